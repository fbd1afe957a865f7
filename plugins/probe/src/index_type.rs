//! The world `index-type`: a document is a list of keys; `loop` as one of them never ends, `trap` ends the instance.

use nacre_plugin::{EventKind, Events, Fault, IndexEntry, IndexType};

struct Keys;

impl IndexType for Keys {
    fn describe() -> String {
        r#"{"name":"keys","version":"0.1.0","limits":{}}"#.into()
    }

    fn init(config: &str) -> Result<Keys, Fault> {
        if config == "refuse" { Err(Fault::Reject("no such index".into())) } else { Ok(Keys) }
    }

    fn project(&mut self, events: &Events<'_>) -> Result<Vec<IndexEntry>, Fault> {
        let mut entries = Vec::new();
        for event in events.iter().filter(|event| event.kind == EventKind::Upsert) {
            let keys: Vec<String> = serde_json::from_slice(event.body).unwrap_or_default();
            for key in keys {
                match key.as_str() {
                    "loop" => loop {
                        std::hint::black_box(());
                    },
                    "trap" => panic!("as requested"),
                    _ => entries.push(IndexEntry {
                        event: event.index,
                        key: key.into_bytes(),
                        value: event.seqno.to_be_bytes().to_vec(),
                    }),
                }
            }
        }
        Ok(entries)
    }
}

nacre_plugin::export_index_type!(Keys);
