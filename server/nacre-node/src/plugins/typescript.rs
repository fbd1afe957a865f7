//! Takes the types out of code, in the sandbox.

use nacre_plugin_host::{Error, Functions, Limits, Plugin, Setup};
use serde_json::json;
use std::time::Duration;

/// How long one file may take.
const DEADLINE: Duration = Duration::from_secs(10);

/// The component `typescript`, ready for texts.
pub struct TypeScript(Functions);

impl TypeScript {
    /// Prepares the component.
    ///
    /// # Errors
    /// Why it cannot run.
    pub fn open(plugin: Plugin) -> Result<TypeScript, String> {
        let limits = Limits { deadline: DEADLINE, ..Limits::pure() };
        let setup = Setup { limits, ..Setup::new("typescript", "{}") };
        Functions::open(plugin, setup).map(TypeScript).map_err(|error| error.to_string())
    }

    /// The text without its types, each line and column where it was.
    ///
    /// # Errors
    /// What is wrong with it, for its author, with line and column.
    pub fn strip(&self, text: &str) -> Result<String, String> {
        let stripped = self.0.call("strip", &json!([text]).to_string());
        let stripped = stripped.map_err(|error| match error {
            Error::Reject { message, .. } => message,
            other => other.to_string(),
        });
        serde_json::from_str(&stripped?).map_err(|error| error.to_string())
    }
}
