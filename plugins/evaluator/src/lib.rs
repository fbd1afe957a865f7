//! Runs JavaScript functions that queries call: from a library file, or from the statement that created the function.
//!
//! An instance has one library. Variables of its file persist between calls in the same instance, which lives as long as the
//! request that uses it.
//!
//! ```text
//! load  [file, code]                               null, or the syntax error with line and column
//! has   [function]                                 true if the function exists
//! call  [function, now_us, seed, [argument, …]]    {"value": v}, {} for undefined, or {"exception": {…}}
//! ```
//!
//! An argument is `[v]`, or `[]` for MISSING, which becomes undefined. An exception has the `thrown` value; its `line` and
//! `column`, and the `text` of that line, if they are known.

mod library;
mod queries;

pub use library::{CallContext, Exception, LIMITS, Library, Outcome, Queries, Refused};
pub use queries::HostQueries;

use nacre_plugin::{Fault, Functions};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

/// The plugin: an instance, which has no library at first.
pub struct Evaluator(Option<Library>);

impl Functions for Evaluator {
    fn describe() -> String {
        let mut limits = LIMITS.by_name();
        limits.insert("result_bytes_max".into(), LIMITS.result_bytes_max.into());
        json!({
            "name": "evaluator",
            "version": env!("CARGO_PKG_VERSION"),
            "state_version": "1",
            "limits": limits,
        })
        .to_string()
    }

    fn init(_: &str) -> Result<Evaluator, Fault> {
        Ok(Evaluator(None))
    }

    fn call(&mut self, name: &str, arguments: &str) -> Result<String, Fault> {
        match name {
            "load" => {
                let (file, code): (String, String) = parsed(arguments)?;
                let library = Library::load(&file, &code, Box::new(HostQueries));
                self.0 = Some(library.map_err(|error| Fault::Reject(error.to_string()))?);
                Ok("null".into())
            }
            "has" => {
                let [function]: [String; 1] = parsed(arguments)?;
                let found = self.library()?.has(&function);
                found
                    .map(|found| found.to_string())
                    .map_err(|error| Fault::Reject(error.to_string()))
            }
            "call" => {
                let (function, now_us, seed, arguments): (String, u64, u64, Vec<Vec<&RawValue>>) =
                    parsed(arguments)?;
                let arguments: Vec<_> =
                    arguments.iter().map(|value| value.first().map(|json| json.get())).collect();
                let moment = CallContext { now_us, seed };
                Ok(self.library()?.call(&function, moment, &arguments).to_json())
            }
            _ => Err(reject("there is no such function")),
        }
    }
}

impl Evaluator {
    fn library(&mut self) -> Result<&mut Library, Fault> {
        self.0.as_mut().ok_or_else(|| reject("nothing is loaded"))
    }
}

fn reject(message: &str) -> Fault {
    Fault::Reject(message.into())
}

fn parsed<'a, T: Deserialize<'a>>(arguments: &'a str) -> Result<T, Fault> {
    serde_json::from_str(arguments).map_err(|error| reject(&format!("the arguments: {error}")))
}

nacre_plugin::export_functions!(Evaluator);
