//! Design documents: what they contain, checked with the rules of a node. A misspelt name is an error, not ignored.

use crate::Error;
use nacre_plugin::Service;
use serde_json::{Map, Value};

/// Maximum bytes of the name of a design document.
const NAME_BYTES_MAX: usize = 240;
/// Members of a design document: nacre's own, and those of Couchbase and CouchDB that have no effect.
const MEMBERS: &str = "views collection options language spatial name signature indexXattrOnDeletedDocs index_xattr_on_deleted_docs \
     autoupdate filters lists rewrites shows updates validate_doc_update";
/// Members of a view.
const VIEW_MEMBERS: &str = "map reduce";

/// A design document.
pub(super) struct Definition {
    members: Map<String, Value>,
    /// The collection that the views index: `scope.collection`.
    pub collection: String,
}

impl Definition {
    /// Parses a design document.
    pub fn read(text: &str) -> Result<Definition, Error> {
        let parsed: Value = serde_json::from_str(text)
            .map_err(|error| Error::InvalidArgument(format!("the body is not JSON: {error}")))?;
        let Value::Object(members) = parsed else {
            return Err(invalid("it is not a JSON object"));
        };
        let collection = match members.get("collection") {
            None => "_default._default".to_owned(),
            Some(Value::String(path)) if path.split('.').count() == 2 => path.clone(),
            Some(_) => return Err(invalid("\"collection\" must be \"scope.collection\"")),
        };
        #[cfg(feature = "sync")]
        if collection.split('.').next() == Some(crate::SYNC_SCOPE) {
            return Err(invalid("the collections of sync have no views"));
        }
        Ok(Definition { members, collection })
    }

    /// Refuses unknown members, except those that begin with `_`.
    pub fn check_members(&self) -> Result<(), Error> {
        let unknown = |members: &Map<String, Value>, known: &str| {
            let is_known =
                |name: &str| name.starts_with('_') || known.split(' ').any(|it| it == name);
            members.keys().find(|name| !is_known(name)).cloned()
        };
        if let Some(name) = unknown(&self.members, MEMBERS) {
            return Err(invalid(&format!("a design document has no member {name:?}")));
        }
        let views = self.members.get("views").and_then(Value::as_object);
        for (view, members) in views.into_iter().flatten() {
            let members = members.as_object();
            if let Some(name) = members.and_then(|members| unknown(members, VIEW_MEMBERS)) {
                return Err(invalid(&format!("view {view:?} has no member {name:?}")));
            }
        }
        Ok(())
    }

    /// Returns an instance of the views plugin, which belongs to this thread. It compiles all functions at once, or, if they have
    /// been compiled before (`is_checked`), each when it is needed.
    pub fn instance(&self, name: &str, is_checked: bool) -> Result<nacre_views::Views, Error> {
        let mut members = self.members.clone();
        members.insert("name".into(), name.into());
        members.insert("checked".into(), is_checked.into());
        nacre_views::Views::init(&Value::Object(members).to_string())
            .map_err(|fault| Error::InvalidArgument(fault.to_string()))
    }
}

/// Checks the name of a design document.
pub(super) fn check_name(name: &str) -> Result<(), Error> {
    let is_name = !name.trim().is_empty()
        && name.len() <= NAME_BYTES_MAX
        && !name.chars().any(char::is_control);
    match is_name {
        true => Ok(()),
        false => Err(invalid(&format!(
            "a name of 1 to {NAME_BYTES_MAX} bytes, without control characters"
        ))),
    }
}

fn invalid(reason: &str) -> Error {
    Error::InvalidArgument(reason.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn misspelt_members_are_refused_by_name() {
        let check = |document: Value| Definition::read(&document.to_string())?.check_members();
        let refused = check(json!({"colection": "a.b"})).unwrap_err().to_string();
        assert!(refused.contains("\"colection\""), "{refused}");
        let misspelt = json!({"views": {"v": {"map": "", "redcue": "_sum"}}});
        let refused = check(misspelt).unwrap_err().to_string();
        assert!(refused.contains("\"redcue\""), "{refused}");
        assert_eq!(check(json!({"_id": 1, "views": {"v": {"map": "", "reduce": "_sum"}}})), Ok(()));
    }
}
