//! Conversion of TypeScript to JavaScript: a component removes the types, in the sandbox.

use crate::{Error, Functions, Limits, Plugin, Setup};
use serde_json::json;
use std::time::Duration;

/// Time limit for one file.
const DEADLINE: Duration = Duration::from_secs(10);

/// The shipped component `typescript`, ready for use.
pub struct TypeScript(Functions);

impl TypeScript {
    /// Opens the component.
    ///
    /// # Errors
    /// The reason why it cannot run.
    pub fn open(plugin: Plugin) -> Result<TypeScript, String> {
        let limits = Limits { deadline: DEADLINE, ..Limits::pure() };
        let setup = Setup { limits, ..Setup::new("typescript", "{}") };
        Functions::open(plugin, setup).map(TypeScript).map_err(|error| error.to_string())
    }

    /// Returns `text` without its types. Every line and column is unchanged.
    ///
    /// # Errors
    /// A syntax error, for the author of the text, with line and column.
    pub fn strip(&self, text: &str) -> Result<String, String> {
        let stripped = self.0.call("strip", &json!([text]).to_string());
        let stripped = stripped.map_err(|error| match error {
            Error::Reject { message, .. } => message,
            other => other.to_string(),
        });
        serde_json::from_str(&stripped?).map_err(|error| error.to_string())
    }
}
