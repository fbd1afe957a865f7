//! Ordered indexes: what CREATE INDEX says, made of each document.
//!
//! A deployment is one index. Its configuration is `{"definition": "CREATE INDEX i ON orders(status, total DESC)"}`; what an
//! entry is, [`nacre_sql::index`] says. The host keeps the entries and scans them; before those of a partitioned index stands the
//! number of their partition.

use nacre_plugin::{DATATYPE_JSON, Event, EventKind, Events, Fault, IndexEntry, IndexType};
use nacre_sql::index::Definition;
use nacre_sql::{Meta, Value};
use serde::Deserialize;
use std::sync::Arc;

#[derive(Deserialize)]
struct Config {
    definition: String,
}

/// An index that is maintained.
pub struct Ordered {
    definition: Definition,
}

impl IndexType for Ordered {
    fn describe() -> String {
        serde_json::json!({
            "name": "index",
            "version": env!("CARGO_PKG_VERSION"),
            "state_version": "2",
            "limits": {},
        })
        .to_string()
    }

    fn init(config: &str) -> Result<Ordered, Fault> {
        let config: Config =
            serde_json::from_str(config).map_err(|error| Fault::Reject(error.to_string()))?;
        let definition =
            Definition::parse(&config.definition).map_err(|error| Fault::Reject(error.message))?;
        Ok(Ordered { definition })
    }

    fn project(&mut self, events: &Events<'_>) -> Result<Vec<IndexEntry>, Fault> {
        let mut entries = Vec::new();
        for event in events.iter().filter(|event| event.kind == EventKind::Upsert) {
            // A document that cannot be indexed is not in the index.
            let keys = self.keys(&event).unwrap_or_default();
            let entry = |key| IndexEntry { event: event.index, key, value: Vec::new() };
            entries.extend(keys.into_iter().map(entry));
        }
        Ok(entries)
    }
}

impl Ordered {
    fn keys(&self, event: &Event<'_>) -> Option<Vec<Vec<u8>>> {
        let id = str::from_utf8(event.key).ok()?;
        let is_json = event.datatype & DATATYPE_JSON != 0;
        // As queries see it: what is no JSON has no fields.
        let value = match is_json {
            true => Value::parse(event.body).ok()?,
            false => Value::Null,
        };
        let meta = Meta {
            id: id.into(),
            cas: event.cas,
            expiration: event.expiry,
            flags: event.flags,
            json: is_json,
            ..Meta::default()
        };
        let meta = Arc::new(meta);
        let keys = self.definition.entries(&value, &meta).ok()?;
        Some(match self.definition.partition(&value, &meta).ok()? {
            Some(partition) => {
                keys.into_iter().map(|key| [&partition.to_be_bytes()[..], &key].concat()).collect()
            }
            None => keys,
        })
    }
}

nacre_plugin::export_index_type!(Ordered);
