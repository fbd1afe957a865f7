//! System events: changes of scopes and collections in a vBucket's history. Each is a version under
//! [`CollectionId::SYSTEM`]; history keeps the newest event of each scope and collection.
//!
//! The key is `scope:8` or `collection:a`, with numbers in hexadecimal. The value is JSON. The version is a tombstone if
//! the scope or collection was dropped:
//!
//! ```text
//! {"uid": "5", "scope": "8", "collection": "a", "name": "airline", "maxTTL": 0}
//! ```

use nacre_types::{CollectionId, Document, ScopeId};
use serde::{Deserialize, Serialize};

/// The creation, change or drop of a scope or collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemEvent {
    /// UID of the manifest after the change.
    pub manifest_uid: u64,
    /// The scope itself, or the scope of the collection.
    pub scope: ScopeId,
    /// The collection and its maximum TTL in seconds (0 is the bucket's, -1 is never); `None` for an event of a scope.
    pub collection: Option<(CollectionId, i32)>,
    /// Name of the scope or collection.
    pub name: String,
    /// True if the scope or collection was dropped.
    pub ended: bool,
}

#[derive(Serialize, Deserialize)]
struct Value {
    uid: String,
    scope: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    collection: Option<String>,
    name: String,
    #[serde(default, rename = "maxTTL", skip_serializing_if = "Option::is_none")]
    max_ttl: Option<i32>,
}

impl SystemEvent {
    /// Returns the key of the event in history.
    pub fn key(&self) -> Vec<u8> {
        match self.collection {
            Some((id, _)) => format!("collection:{id}").into_bytes(),
            None => format!("scope:{}", self.scope).into_bytes(),
        }
    }

    /// Returns the value of the event in history.
    pub fn value(&self) -> Vec<u8> {
        let value = Value {
            uid: format!("{:x}", self.manifest_uid),
            scope: self.scope.to_string(),
            collection: self.collection.map(|(id, _)| id.to_string()),
            name: self.name.clone(),
            max_ttl: self.collection.map(|(_, max_ttl)| max_ttl),
        };
        serde_json::to_vec(&value).expect("texts and numbers are JSON")
    }

    /// Parses a version as an event; `None` if the version is a document.
    pub fn read(document: &Document) -> Option<SystemEvent> {
        if document.collection() != CollectionId::SYSTEM {
            return None;
        }
        let value: Value = serde_json::from_slice(document.value()).ok()?;
        let collection = match value.collection {
            Some(id) => Some((id.parse().ok()?, value.max_ttl.unwrap_or(0))),
            None => None,
        };
        Some(SystemEvent {
            manifest_uid: u64::from_str_radix(&value.uid, 16).ok()?,
            scope: value.scope.parse().ok()?,
            collection,
            name: value.name,
            ended: !document.is_alive(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::{DocKey, Kind, Meta};

    fn kept(event: &SystemEvent) -> Document {
        let kind = if event.ended { Kind::Deleted } else { Kind::Alive };
        let key = DocKey::new(CollectionId::SYSTEM, &event.key());
        Document::new(Meta { kind, ..Meta::default() }, key.prefixed(), &event.value())
    }

    #[test]
    fn events_read_back_as_stored() {
        let scope = SystemEvent {
            manifest_uid: 0x1f,
            scope: ScopeId(9),
            collection: None,
            name: "inventory".into(),
            ended: true,
        };
        let collection =
            SystemEvent { collection: Some((CollectionId(10), -1)), ended: false, ..scope.clone() };
        for event in [scope, collection] {
            assert_eq!(SystemEvent::read(&kept(&event)), Some(event));
        }
    }

    #[test]
    fn ordinary_documents_are_not_events() {
        let document = |key: &[u8]| Document::new(Meta::default(), key, b"{\"uid\":\"x\"}");
        assert_eq!(SystemEvent::read(&document(b"\0scope:8")), None, "somebody's document");
        assert_eq!(SystemEvent::read(&document(b"\x01scope:8")), None, "without its fields");
    }
}
