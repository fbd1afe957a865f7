//! The form in which a state is kept.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The form in which a state is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StateForm {
    /// All of it is in memory, with a copy on disk.
    #[default]
    Resident,
    /// Sorted segments on disk, read through the cache of the node; recent writes are in memory.
    Segmented,
}

/// Options for states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateOptions {
    /// The form of states that are not said to have one.
    pub form: StateForm,
    /// Bytes of segmented states that are kept in memory since they were read.
    pub cache_bytes: usize,
    /// Bytes of a segmented state in memory, written since the last flush, beyond which they are flushed.
    pub flush_bytes: usize,
}

impl Default for StateOptions {
    /// Resident; a cache of 16 MiB, and flushes of 8 MiB.
    fn default() -> StateOptions {
        StateOptions { form: StateForm::Resident, cache_bytes: 16 << 20, flush_bytes: 8 << 20 }
    }
}

impl StateForm {
    /// The form as manifests and options spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            StateForm::Resident => "resident",
            StateForm::Segmented => "segmented",
        }
    }

    /// The form of that name.
    ///
    /// # Errors
    /// The names that there are.
    pub fn named(name: &str) -> Result<StateForm, String> {
        let forms = [StateForm::Resident, StateForm::Segmented];
        let found = forms.into_iter().find(|form| form.as_str() == name);
        found.ok_or_else(|| format!("{name:?} is no form of state: resident or segmented"))
    }
}

impl fmt::Display for StateForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
