//! Checks of design documents and of queries, with the rules of a node: a misspelt name is an error, not ignored.

use nacre_http::body::form;
use serde_json::{Map, Value};

/// Members of a design document: nacre's own, and those of Couchbase and CouchDB that have no effect.
const MEMBERS: &str = "views collection options language spatial name signature indexXattrOnDeletedDocs index_xattr_on_deleted_docs \
     autoupdate filters lists rewrites shows updates validate_doc_update";
/// Members of a view.
const VIEW_MEMBERS: &str = "map reduce";
/// Values of the parameter `stale`. A gateway updates the rows before each answer, whatever the value.
const STALE: [&str; 4] = ["false", "ok", "true", "update_after"];

/// Refuses unknown members, except those that begin with `_`.
///
/// # Errors
/// Names the first unknown member.
pub(crate) fn check_members(document: &Map<String, Value>) -> Result<(), String> {
    let unknown = |members: &Map<String, Value>, known: &str| {
        let is_known = |name: &str| name.starts_with('_') || known.split(' ').any(|it| it == name);
        members.keys().find(|name| !is_known(name)).cloned()
    };
    if let Some(name) = unknown(document, MEMBERS) {
        return Err(format!("a design document has no member {name:?}"));
    }
    let views = document.get("views").and_then(Value::as_object);
    for (view, members) in views.into_iter().flatten() {
        let members = members.as_object();
        if let Some(name) = members.and_then(|members| unknown(members, VIEW_MEMBERS)) {
            return Err(format!("view {view:?} has no member {name:?}"));
        }
    }
    Ok(())
}

/// Checks the parameter `stale` of a query; a JSON body takes precedence over the query string, as for every parameter.
///
/// # Errors
/// Names the wrong value.
pub(crate) fn check_stale(query: &str, body: &[u8]) -> Result<(), String> {
    let posted: Value = serde_json::from_slice(body).unwrap_or_default();
    let stale = match &posted["stale"] {
        Value::Null => {
            form(query.as_bytes()).into_iter().find(|(name, _)| name == "stale").map(|it| it.1)
        }
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    };
    match stale {
        Some(value) if !STALE.contains(&value.as_str()) => {
            Err(format!("Invalid value for stale: {value:?}, expected false, ok or update_after"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn misspelt_members_are_refused_by_name() {
        let check = |document: Value| check_members(document.as_object().unwrap());
        let refused = check(json!({"colection": "a.b"})).unwrap_err();
        assert!(refused.contains("\"colection\""), "{refused}");
        let refused = check(json!({"views": {"v": {"map": "", "redcue": "_sum"}}})).unwrap_err();
        assert!(refused.contains("\"redcue\""), "{refused}");
        assert_eq!(check(json!({"_id": 1, "views": {"v": {"map": "", "reduce": "_sum"}}})), Ok(()));
    }

    #[test]
    fn unknown_values_of_stale_are_refused() {
        assert!(check_stale("stale=", b"").is_err());
        assert!(check_stale("stale=ok", br#"{"stale": "maybe"}"#).is_err());
        assert!(check_stale("limit=1&stale=update_after", b"").is_ok());
        assert!(check_stale("", b"not JSON").is_ok());
    }
}
