//! Functions for queries: `distance_km`, `slug` and `levenshtein`.
//!
//! A call is a name and a JSON array of arguments, and returns JSON. Equal arguments give equal results: there is no
//! state, no clock and no randomness.

mod place;
mod text;

use nacre_plugin::{Fault, Functions};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The functions.
pub struct TextAndPlaces;

impl Functions for TextAndPlaces {
    fn describe() -> String {
        let version = env!("CARGO_PKG_VERSION");
        format!(r#"{{"name": "text-and-places", "version": "{version}", "limits": {{}}}}"#)
    }

    fn init(_config: &str) -> Result<TextAndPlaces, Fault> {
        Ok(TextAndPlaces)
    }

    fn call(&mut self, name: &str, arguments: &str) -> Result<String, Fault> {
        let result = match name {
            "distance_km" => with(arguments, |(from, to)| place::distance_km(from, to)),
            "slug" => with(arguments, |(title,): (String,)| Ok(text::slug(&title))),
            "levenshtein" => {
                with(arguments, |(one, other): (String, String)| text::levenshtein(&one, &other))
            }
            _ => Err("there is no such function".into()),
        };
        result.map_err(|reason| Fault::Reject(format!("{name}: {reason}")))
    }
}

nacre_plugin::export_functions!(TextAndPlaces);

/// Calls a function with the arguments that it takes.
fn with<A: DeserializeOwned, R: Serialize>(
    arguments: &str,
    function: impl FnOnce(A) -> Result<R, String>,
) -> Result<String, String> {
    let arguments = serde_json::from_str(arguments).map_err(|error| error.to_string())?;
    serde_json::to_string(&function(arguments)?).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
