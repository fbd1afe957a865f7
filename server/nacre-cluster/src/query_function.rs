//! Functions of the query language, as nodes agree on them.

use crate::{Cluster, FunctionId, Refusal};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The longest name of a function, in bytes.
const NAME_BYTES_MAX: usize = 255;
/// The longest statement that makes a function, in bytes.
const TEXT_BYTES_MAX: usize = 256 << 10;
/// Functions of one cluster: all of them are stored with each change.
const FUNCTIONS_MAX: usize = 1000;

/// Functions by the keys of their [`FunctionId`], each the statement that makes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueryFunctions(BTreeMap<String, String>);

impl QueryFunctions {
    /// The statement of a function.
    pub fn get(&self, id: &FunctionId) -> Option<&str> {
        self.0.get(&key_of(id)?).map(String::as_str)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (FunctionId, &str)> {
        self.0.iter().map(|(key, text)| (FunctionId::of_key(key), text.as_str()))
    }

    fn put(&mut self, id: &FunctionId, text: &str, replace: bool) -> Result<(), Refusal> {
        let invalid = |reason: String| Err(Refusal::Invalid { field: "_", reason });
        let Some(key) = key_of(id) else {
            let reason =
                format!("The name of a function has 1 to {NAME_BYTES_MAX} bytes and no '/'");
            return invalid(reason);
        };
        if self.0.contains_key(&key) && !replace {
            return Err(Refusal::QueryFunctionExists { name: id.name.clone() });
        }
        if text.len() > TEXT_BYTES_MAX {
            return invalid(format!("A function has {TEXT_BYTES_MAX} bytes at most"));
        }
        if self.0.len() >= FUNCTIONS_MAX && !self.0.contains_key(&key) {
            return invalid(format!("There are {FUNCTIONS_MAX} functions at most"));
        }
        self.0.insert(key, text.to_owned());
        Ok(())
    }

    fn drop_function(&mut self, id: &FunctionId) -> Result<(), Refusal> {
        let dropped = key_of(id).and_then(|key| self.0.remove(&key));
        dropped.map(drop).ok_or(Refusal::QueryFunctionNotFound { name: id.name.clone() })
    }

    /// Functions go with their bucket, or with their scope.
    pub(crate) fn forget(&mut self, bucket: &str, scope: Option<&str>) {
        self.0.retain(|key, _| {
            let of = FunctionId::of_key(key).scope;
            !of.is_some_and(|(own_bucket, own_scope)| {
                own_bucket == bucket && scope.is_none_or(|scope| own_scope == scope)
            })
        });
    }
}

/// Keys of functions in scopes have slashes between their parts, so that names have none.
fn key_of(id: &FunctionId) -> Option<String> {
    let may_be = (1..=NAME_BYTES_MAX).contains(&id.name.len()) && !id.name.contains('/');
    may_be.then(|| id.to_string())
}

impl Cluster {
    pub(crate) fn put_query_function(
        &mut self,
        id: &FunctionId,
        text: &str,
        replace: bool,
    ) -> Result<(), Refusal> {
        if let Some((bucket, scope)) = &id.scope {
            let scopes = &self.bucket(bucket)?.manifest.scopes;
            if !scopes.iter().any(|there| there.name == *scope) {
                return Err(Refusal::ScopeNotFound { scope: scope.clone() });
            }
        }
        self.query_functions.put(id, text, replace)
    }

    pub(crate) fn drop_query_function(&mut self, id: &FunctionId) -> Result<(), Refusal> {
        self.query_functions.drop_function(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Change;

    fn id(scope: Option<(&str, &str)>, name: &str) -> FunctionId {
        let scope = scope.map(|(bucket, scope)| (bucket.into(), scope.into()));
        FunctionId { scope, name: name.into() }
    }

    fn put(id: &FunctionId, text: &str, replace: bool) -> Change {
        Change::PutQueryFunction { id: id.clone(), text: text.into(), replace }
    }

    #[test]
    fn functions_are_made_once_unless_replaced_and_go_with_their_scope() {
        let mut cluster = Cluster::new("u".into());
        let settings = crate::BucketSettings::default();
        let create = Change::CreateBucket { name: "b".into(), uuid: "v".into(), settings };
        cluster.apply(&create).unwrap();
        let (bucket, scope) = ("b".to_owned(), "s".to_owned());
        cluster.apply(&Change::CreateScope { bucket, scope }).unwrap();
        let of_scope = id(Some(("b", "s")), "f");
        let global = id(None, "f");
        for function in [&of_scope, &global] {
            cluster.apply(&put(function, "one", false)).unwrap();
            let again = cluster.apply(&put(function, "two", false));
            assert!(matches!(again, Err(Refusal::QueryFunctionExists { .. })));
            cluster.apply(&put(function, "three", true)).unwrap();
            assert_eq!(cluster.query_functions.get(function), Some("three"));
        }
        let stored = serde_json::to_string(&cluster).unwrap();
        assert_eq!(serde_json::from_str::<Cluster>(&stored).unwrap(), cluster);
        let (bucket, scope) = ("b".to_owned(), "s".to_owned());
        cluster.apply(&Change::DropScope { bucket, scope }).unwrap();
        let left: Vec<_> = cluster.query_functions.iter().map(|(id, _)| id).collect();
        assert_eq!(left, std::slice::from_ref(&global));
        cluster.apply(&Change::DropQueryFunction { id: global.clone() }).unwrap();
        let gone = cluster.apply(&Change::DropQueryFunction { id: global });
        assert!(matches!(gone, Err(Refusal::QueryFunctionNotFound { .. })));
    }

    #[test]
    fn a_name_with_slashes_is_nobodys() {
        let mut cluster = Cluster::new("u".into());
        assert!(cluster.apply(&put(&id(None, "b/s/f"), "x", false)).is_err());
        assert!(cluster.apply(&put(&id(Some(("b", "s")), "f"), "x", false)).is_err());
        assert!(cluster.query_functions.get(&id(None, "b/s/f")).is_none());
    }
}
