//! JavaScript libraries of the query language, in the agreed state.

use crate::change::DroppedKeyspace;
use crate::query_function::key_of;
use crate::{FunctionId, Refusal};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The longest code of a library, in bytes.
const CODE_BYTES_MAX: usize = 256 << 10;
/// Maximum number of libraries per cluster, and maximum size of their code: all of them are stored with each change.
const LIBRARIES_MAX: usize = 1000;
const LIBRARIES_BYTES_MAX: usize = 8 << 20;

/// The code of libraries, by the keys of their [`FunctionId`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueryLibraries(BTreeMap<String, String>);

impl QueryLibraries {
    /// Returns the code of a library.
    pub fn get(&self, id: &FunctionId) -> Option<&str> {
        self.0.get(&key_of(id)?).map(String::as_str)
    }

    /// Iterates over all libraries.
    pub fn iter(&self) -> impl Iterator<Item = (FunctionId, &str)> {
        self.0.iter().map(|(key, code)| (FunctionId::of_key(key), code.as_str()))
    }

    /// Removes the libraries of a dropped bucket or scope.
    pub(crate) fn forget(&mut self, dropped: &DroppedKeyspace<'_>) {
        self.0.retain(|key, _| !dropped.contains_key(key));
    }

    pub(crate) fn put(&mut self, id: &FunctionId, code: &str) -> Result<(), Refusal> {
        let invalid = |reason: String| Err(Refusal::Invalid { field: "_", reason });
        // Error messages show the name as a file name, followed by line and column.
        let is_word = |c: char| c.is_ascii_alphanumeric() || "_-.%".contains(c);
        let Some(key) = key_of(id).filter(|_| id.name.chars().all(is_word)) else {
            let reason =
                "The name of a library has 1 to 255 letters, digits, and '_', '-', '.', '%'";
            return invalid(reason.into());
        };
        if code.len() > CODE_BYTES_MAX {
            return invalid(format!("A library has {CODE_BYTES_MAX} bytes at most"));
        }
        let libraries = &mut self.0;
        if libraries.len() >= LIBRARIES_MAX && !libraries.contains_key(&key) {
            return invalid(format!("There are {LIBRARIES_MAX} libraries at most"));
        }
        let others = libraries.iter().filter(|(known, _)| **known != key);
        let bytes = others.map(|(_, code)| code.len()).sum::<usize>() + code.len();
        if bytes > LIBRARIES_BYTES_MAX {
            return invalid(format!("All libraries have {LIBRARIES_BYTES_MAX} bytes at most"));
        }
        libraries.insert(key, code.to_owned());
        Ok(())
    }

    pub(crate) fn drop_library(&mut self, id: &FunctionId) -> Result<(), Refusal> {
        let dropped = key_of(id).and_then(|key| self.0.remove(&key));
        dropped.map(drop).ok_or(Refusal::QueryLibraryNotFound { name: id.name.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BucketChange, Change, Cluster, QueryChange};

    fn id(scope: Option<(&str, &str)>, name: &str) -> FunctionId {
        let scope = scope.map(|(bucket, scope)| (bucket.into(), scope.into()));
        FunctionId { scope, name: name.into() }
    }

    fn put(id: &FunctionId, code: &str) -> Change {
        Change::Query(QueryChange::PutQueryLibrary { id: id.clone(), code: code.into() })
    }

    #[test]
    fn libraries_are_replaced_and_go_with_their_bucket() {
        let mut cluster = Cluster::new("u".into());
        let of_scope = id(Some(("b", "_default")), "math");
        assert!(cluster.apply(&put(&of_scope, "one")).is_err(), "there is no such bucket");
        let settings = crate::BucketSettings::default();
        let create = Change::Buckets(BucketChange::CreateBucket {
            name: "b".into(),
            uuid: "v".into(),
            settings,
        });
        cluster.apply(&create).unwrap();
        assert!(cluster.apply(&put(&id(Some(("b", "none")), "math"), "one")).is_err());
        let global = id(None, "math");
        for library in [&of_scope, &global] {
            cluster.apply(&put(library, "one")).unwrap();
            cluster.apply(&put(library, "two")).unwrap();
            assert_eq!(cluster.query_libraries.get(library), Some("two"));
        }
        let stored = serde_json::to_string(&cluster).unwrap();
        assert_eq!(serde_json::from_str::<Cluster>(&stored).unwrap(), cluster);
        cluster.apply(&Change::Buckets(BucketChange::DropBucket { name: "b".into() })).unwrap();
        let left: Vec<_> = cluster.query_libraries.iter().map(|(id, _)| id).collect();
        assert_eq!(left, std::slice::from_ref(&global));
        let drop = Change::Query(QueryChange::DropQueryLibrary { id: global });
        cluster.apply(&drop).unwrap();
        let gone = cluster.apply(&drop);
        assert!(matches!(gone, Err(Refusal::QueryLibraryNotFound { .. })));
    }

    #[test]
    fn names_and_sizes_are_bounded() {
        let mut cluster = Cluster::new("u".into());
        for name in ["", "a/b", "a b", "a\n", &"x".repeat(256)] {
            assert!(cluster.apply(&put(&id(None, name), "")).is_err(), "{name:?}");
        }
        assert!(cluster.apply(&put(&id(None, "a"), &"x".repeat(CODE_BYTES_MAX + 1))).is_err());
        let whole = "x".repeat(CODE_BYTES_MAX);
        let name = |n: usize| id(None, &format!("a{n}"));
        let count = LIBRARIES_BYTES_MAX / CODE_BYTES_MAX;
        for n in 0..count {
            cluster.apply(&put(&name(n), &whole)).unwrap();
        }
        assert!(cluster.apply(&put(&name(count), "x")).is_err(), "all of them together");
        cluster.apply(&put(&name(0), &whole)).unwrap();
    }
}
