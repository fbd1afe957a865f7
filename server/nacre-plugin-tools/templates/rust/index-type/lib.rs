//! A kind of index: documents in the order of their member "mail", in lower case.
//!
//! Equal documents give equal entries: there is no state, no clock and no chance. The node keeps the entries, takes out those
//! of a document's earlier versions, and answers `GET /_plugin/{{name}}/scan`.

use nacre_plugin::{Event, EventKind, Events, Fault, IndexEntry, IndexType};
use serde_json::Value;

struct ByMail;

impl IndexType for ByMail {
    fn describe() -> String {
        r#"{"name": "{{name}}", "version": "0.1.0", "limits": {}}"#.into()
    }

    fn init(_config: &str) -> Result<ByMail, Fault> {
        Ok(ByMail)
    }

    fn project(&mut self, events: &Events<'_>) -> Result<Vec<IndexEntry>, Fault> {
        let alive = events.iter().filter(|event| event.kind == EventKind::Upsert);
        Ok(alive.filter_map(|event| entry(&event)).collect())
    }
}

/// The entry of a document; none without an address.
fn entry(event: &Event<'_>) -> Option<IndexEntry> {
    let document: Value = serde_json::from_slice(event.body).ok()?;
    Some(IndexEntry { event: event.index, key: key(&document)?, value: Vec::new() })
}

/// Where a document stands: keys are compared as bytes.
fn key(document: &Value) -> Option<Vec<u8>> {
    Some(document["mail"].as_str()?.to_lowercase().into_bytes())
}

nacre_plugin::export_index_type!(ByMail);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_lower_case() {
        let document = serde_json::json!({"mail": "Ada@Example.com"});
        assert_eq!(key(&document), Some(b"ada@example.com".to_vec()));
        assert_eq!(key(&serde_json::json!({"mail": 7})), None);
    }
}
