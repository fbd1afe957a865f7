//! A function for queries: `initials("Ada King Lovelace")` is `"AKL"`.
//!
//! Equal arguments give equal results: there is no state, no clock and no chance.

use nacre_plugin::{Fault, Functions};
use serde_json::Value;

struct Names;

impl Functions for Names {
    fn describe() -> String {
        r#"{"name": "{{name}}", "version": "0.1.0", "limits": {}}"#.into()
    }

    fn init(_config: &str) -> Result<Names, Fault> {
        Ok(Names)
    }

    fn call(&mut self, name: &str, arguments: &str) -> Result<String, Fault> {
        match name {
            "initials" => {
                let [text]: [String; 1] = serde_json::from_str(arguments).map_err(wrong)?;
                Ok(Value::from(initials(&text)).to_string())
            }
            _ => Err(Fault::Reject("there is no such function".into())),
        }
    }
}

/// What the arguments are not.
fn wrong(error: serde_json::Error) -> Fault {
    Fault::Reject(error.to_string())
}

fn initials(text: &str) -> String {
    text.split_whitespace().filter_map(|word| word.chars().next()).collect()
}

nacre_plugin::export_functions!(Names);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_gives_its_first_letter() {
        assert_eq!(Names.call("initials", r#"["Ada  King"]"#).unwrap(), r#""AK""#);
    }
}
