//! The storage form of a state.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The storage form of a state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StateForm {
    /// The whole state is in memory, with a copy on disk.
    #[default]
    Resident,
    /// Sorted segments on disk, read through the node's cache; recent writes are in memory.
    Segmented,
}

/// Options for states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateOptions {
    /// The default form of states.
    pub form: StateForm,
    /// Size of the cache for segmented states, in bytes.
    pub cache_bytes: usize,
    /// Size of a segmented state's unflushed writes in memory at which they are flushed, in bytes.
    pub flush_bytes: usize,
}

impl Default for StateOptions {
    /// Resident; a cache of 16 MiB, and flushes at 8 MiB.
    fn default() -> StateOptions {
        StateOptions { form: StateForm::Resident, cache_bytes: 16 << 20, flush_bytes: 8 << 20 }
    }
}

impl StateForm {
    /// Returns the name of the form in manifests and options.
    pub fn as_str(self) -> &'static str {
        match self {
            StateForm::Resident => "resident",
            StateForm::Segmented => "segmented",
        }
    }

    /// Parses the name of a form.
    ///
    /// # Errors
    /// A message with the valid names.
    pub fn named(name: &str) -> Result<StateForm, String> {
        let forms = [StateForm::Resident, StateForm::Segmented];
        let found = forms.into_iter().find(|form| form.as_str() == name);
        found.ok_or_else(|| format!("{name:?} is not a form of state: use resident or segmented"))
    }
}

impl fmt::Display for StateForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
