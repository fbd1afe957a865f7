//! The error map, which tells clients how to handle statuses, including unknown ones.

use nacre_protocol::Status;
use serde_json::{Map, Value, json};

/// Attributes that only version 2 of the map may use.
const VERSION_2_ATTRIBUTES: [&str; 2] = ["rate-limit", "system-constraint"];

/// Returns the map in the highest version that does not exceed `version` (1 or 2).
pub(super) fn error_map(version: u16) -> Value {
    let version = version.clamp(1, 2);
    let mut errors = Map::new();
    for (status, name, desc, attributes) in Status::TABLE {
        let attributes: Vec<&str> = attributes
            .iter()
            .copied()
            .filter(|attribute| version > 1 || !VERSION_2_ATTRIBUTES.contains(attribute))
            .collect();
        let entry = json!({"name": name, "desc": desc, "attrs": attributes});
        errors.insert(format!("{:x}", *status as u16), entry);
    }
    json!({"version": version, "revision": 1, "errors": errors})
}
