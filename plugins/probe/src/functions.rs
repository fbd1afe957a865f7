//! The world `functions`: `count` and `calls`, `says` with a line for the log, and what ends badly: `loop`, `trap`, `grow`, `words`.

use nacre_plugin::{Fault, Functions};

#[derive(Default)]
struct Counting {
    calls: u32,
}

impl Functions for Counting {
    fn describe() -> String {
        r#"{"name":"counting","version":"0.1.0","limits":{}}"#.into()
    }

    fn init(_: &str) -> Result<Counting, Fault> {
        Ok(Counting::default())
    }

    fn call(&mut self, name: &str, arguments: &str) -> Result<String, Fault> {
        self.calls += 1;
        match name {
            "calls" => Ok(self.calls.to_string()),
            "count" => {
                let arguments: Vec<serde_json::Value> = serde_json::from_str(arguments)
                    .map_err(|error| Fault::Reject(error.to_string()))?;
                Ok(arguments.len().to_string())
            }
            "says" => {
                nacre_plugin::log(arguments);
                Ok("null".into())
            }
            "trap" => panic!("on purpose"),
            "grow" => {
                let mut all = Vec::new();
                loop {
                    all.push(std::hint::black_box(vec![1_u8; 1 << 20]));
                }
            }
            "words" => Ok("no JSON".into()),
            "loop" => loop {
                std::hint::black_box(());
            },
            _ => Err(Fault::Reject(format!("there is no function {name:?}"))),
        }
    }
}

nacre_plugin::export_functions!(Counting);
