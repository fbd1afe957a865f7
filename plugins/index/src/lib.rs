//! Ordered indexes: computes the entries that a CREATE INDEX statement defines for each document.
//!
//! A deployment is one index. Its configuration is `{"definition": "CREATE INDEX i ON orders(status, total DESC)"}`;
//! [`nacre_sql::index`] defines the entries. The host stores the entries and scans them. In a partitioned index, the number of
//! its partition precedes each entry.

use nacre_plugin::{DATATYPE_JSON, Event, EventKind, Events, Fault, IndexEntry, IndexType};
use nacre_sql::index::Definition;
use nacre_sql::{Meta, Value};
use serde::Deserialize;
use std::sync::Arc;

#[derive(Deserialize)]
struct Config {
    definition: String,
}

/// A deployed index.
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
            // A document that cannot be indexed has no entries.
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
        // As in queries, a document that is not JSON has no fields.
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
