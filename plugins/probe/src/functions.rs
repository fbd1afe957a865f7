//! The world `functions`: `count` and `loop`.

use nacre_plugin::{Fault, Functions};

struct Counting;

impl Functions for Counting {
    fn describe() -> String {
        r#"{"name":"counting","version":"0.1.0","limits":{}}"#.into()
    }

    fn init(_: &str) -> Result<Counting, Fault> {
        Ok(Counting)
    }

    fn call(&mut self, name: &str, arguments: &str) -> Result<String, Fault> {
        match name {
            "count" => {
                let arguments: Vec<serde_json::Value> = serde_json::from_str(arguments)
                    .map_err(|error| Fault::Reject(error.to_string()))?;
                Ok(arguments.len().to_string())
            }
            "loop" => loop {
                std::hint::black_box(());
            },
            _ => Err(Fault::Reject(format!("there is no function {name:?}"))),
        }
    }
}

nacre_plugin::export_functions!(Counting);
