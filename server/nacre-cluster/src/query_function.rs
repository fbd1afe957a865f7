//! User-defined functions of the query language, in the agreed state.

use crate::change::DroppedPath;
use crate::{Cluster, FunctionId, Refusal};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The longest name of a function, in bytes.
const NAME_BYTES_MAX: usize = 255;
/// The longest statement that creates a function, in bytes.
const TEXT_BYTES_MAX: usize = 256 << 10;
/// Maximum number of functions per cluster: all of them are stored with each change.
const FUNCTIONS_MAX: usize = 1000;

/// A function of the query language.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Stored")]
pub struct QueryFunction {
    /// The statement that creates it.
    pub text: String,
    /// The script to run, for a function with user code.
    pub script: Option<Script>,
}

impl QueryFunction {
    /// Returns true if the function runs JavaScript.
    pub fn is_javascript(&self) -> bool {
        matches!(self.script, Some(Script::Code(_) | Script::Library { .. }))
    }
}

/// The user code of a function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Script {
    /// JavaScript code that contains a function of the same name.
    Code(String),
    /// A function of a deployed plugin.
    Deployed {
        /// The deployment, of the world `functions`.
        deployment: String,
        /// Name of the function in the plugin.
        function: String,
    },
    /// A function of a JavaScript library.
    Library {
        /// The library.
        library: FunctionId,
        /// Name of the function in the library.
        function: String,
    },
}

/// The stored form, and the earlier one in which functions were only statements.
#[derive(Deserialize)]
#[serde(untagged)]
enum Stored {
    Text(String),
    Function { text: String, script: Option<Script> },
}

impl From<Stored> for QueryFunction {
    fn from(stored: Stored) -> QueryFunction {
        match stored {
            Stored::Text(text) => QueryFunction { text, script: None },
            Stored::Function { text, script } => QueryFunction { text, script },
        }
    }
}

/// Functions by the keys of their [`FunctionId`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueryFunctions(BTreeMap<String, QueryFunction>);

impl QueryFunctions {
    /// Returns a function.
    pub fn get(&self, id: &FunctionId) -> Option<&QueryFunction> {
        self.0.get(&key_of(id)?)
    }

    /// Iterates over all functions.
    pub fn iter(&self) -> impl Iterator<Item = (FunctionId, &QueryFunction)> {
        self.0.iter().map(|(key, function)| (FunctionId::of_key(key), function))
    }

    pub(crate) fn put(
        &mut self,
        id: &FunctionId,
        new: &QueryFunction,
        replace: bool,
    ) -> Result<(), Refusal> {
        let invalid = |reason: String| Err(Refusal::Invalid { field: "_", reason });
        let Some(key) = key_of(id) else {
            let reason =
                format!("The name of a function has 1 to {NAME_BYTES_MAX} bytes and no '/'");
            return invalid(reason);
        };
        if self.0.contains_key(&key) && !replace {
            return Err(Refusal::QueryFunctionExists { name: id.name.clone() });
        }
        if new.text.len() > TEXT_BYTES_MAX {
            return invalid(format!("A function has {TEXT_BYTES_MAX} bytes at most"));
        }
        if self.0.len() >= FUNCTIONS_MAX && !self.0.contains_key(&key) {
            return invalid(format!("There are {FUNCTIONS_MAX} functions at most"));
        }
        self.0.insert(key, new.clone());
        Ok(())
    }

    pub(crate) fn drop_function(&mut self, id: &FunctionId) -> Result<(), Refusal> {
        let dropped = key_of(id).and_then(|key| self.0.remove(&key));
        dropped.map(drop).ok_or(Refusal::QueryFunctionNotFound { name: id.name.clone() })
    }

    /// Removes the functions of a dropped bucket or scope.
    pub(crate) fn forget(&mut self, dropped: &DroppedPath<'_>) {
        self.0.retain(|key, _| !dropped.contains_key(key));
    }
}

/// Returns the key of a function; `None` for an invalid name. Keys separate their parts with slashes, so names have
/// none.
pub(crate) fn key_of(id: &FunctionId) -> Option<String> {
    let may_be = (1..=NAME_BYTES_MAX).contains(&id.name.len()) && !id.name.contains('/');
    may_be.then(|| id.to_string())
}

/// Checks that the scope in `id`, if any, exists.
pub(crate) fn check_scope(cluster: &Cluster, id: &FunctionId) -> Result<(), Refusal> {
    let Some((bucket, scope)) = &id.scope else { return Ok(()) };
    match cluster.bucket(bucket)?.manifest.scopes.iter().any(|there| there.name == *scope) {
        true => Ok(()),
        false => Err(Refusal::ScopeNotFound { scope: scope.clone() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BucketChange, Change, QueryChange};

    fn id(scope: Option<(&str, &str)>, name: &str) -> FunctionId {
        let scope = scope.map(|(bucket, scope)| (bucket.into(), scope.into()));
        FunctionId { scope, name: name.into() }
    }

    fn put(id: &FunctionId, text: &str, replace: bool) -> Change {
        Change::Query(QueryChange::PutQueryFunction {
            id: id.clone(),
            text: text.into(),
            script: None,
            replace,
        })
    }

    #[test]
    fn functions_are_created_once_unless_replaced_and_dropped_with_their_scope() {
        let mut cluster = Cluster::new("u".into());
        let settings = crate::BucketSettings::default();
        let create = Change::Buckets(BucketChange::CreateBucket {
            name: "b".into(),
            uuid: "v".into(),
            settings,
        });
        cluster.apply(&create).unwrap();
        let (bucket, scope) = ("b".to_owned(), "s".to_owned());
        cluster.apply(&Change::Buckets(BucketChange::CreateScope { bucket, scope })).unwrap();
        let of_scope = id(Some(("b", "s")), "f");
        let global = id(None, "f");
        for function in [&of_scope, &global] {
            cluster.apply(&put(function, "one", false)).unwrap();
            let again = cluster.apply(&put(function, "two", false));
            assert!(matches!(again, Err(Refusal::QueryFunctionExists { .. })));
            cluster.apply(&put(function, "three", true)).unwrap();
            assert_eq!(cluster.query_functions.get(function).unwrap().text, "three");
        }
        let stored = serde_json::to_string(&cluster).unwrap();
        assert_eq!(serde_json::from_str::<Cluster>(&stored).unwrap(), cluster);
        let (bucket, scope) = ("b".to_owned(), "s".to_owned());
        cluster.apply(&Change::Buckets(BucketChange::DropScope { bucket, scope })).unwrap();
        let left: Vec<_> = cluster.query_functions.iter().map(|(id, _)| id).collect();
        assert_eq!(left, std::slice::from_ref(&global));
        cluster
            .apply(&Change::Query(QueryChange::DropQueryFunction { id: global.clone() }))
            .unwrap();
        let gone = cluster.apply(&Change::Query(QueryChange::DropQueryFunction { id: global }));
        assert!(matches!(gone, Err(Refusal::QueryFunctionNotFound { .. })));
    }

    #[test]
    fn functions_that_were_stored_as_statements_are_read() {
        let stored = r#"{"f":"CREATE FUNCTION f() { 1 }","g":{"text":"t","script":{"Code":"c"}}}"#;
        let functions: QueryFunctions = serde_json::from_str(stored).unwrap();
        let [f, g] = ["f", "g"].map(|name| functions.get(&id(None, name)).unwrap().clone());
        assert_eq!((&f.text[..], f.script), ("CREATE FUNCTION f() { 1 }", None));
        assert_eq!((&g.text[..], g.script), ("t", Some(Script::Code("c".into()))));
        let again = serde_json::to_string(&functions).unwrap();
        assert_eq!(serde_json::from_str::<QueryFunctions>(&again).unwrap(), functions);
    }

    #[test]
    fn a_name_with_slashes_is_refused() {
        let mut cluster = Cluster::new("u".into());
        assert!(cluster.apply(&put(&id(None, "b/s/f"), "x", false)).is_err());
        assert!(cluster.apply(&put(&id(Some(("b", "s")), "f"), "x", false)).is_err());
        assert!(cluster.query_functions.get(&id(None, "b/s/f")).is_none());
    }
}
