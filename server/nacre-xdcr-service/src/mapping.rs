//! Which collections of the target those of the source go to.

use crate::settings::Chosen;
use nacre_cluster::Manifest;
use nacre_types::CollectionId;
use nacre_xdcr::Mapping;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// The scope of the system, which never leaves a cluster.
const SYSTEM: &str = "_system";
/// Rules of one replication, at most.
const RULES_MAX: usize = 2000;

/// Names of a scope and a collection in it.
type Path = (String, String);

/// Where collections go: the same names, or what rules say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rules {
    /// Without rules, every collection goes to the one of its name.
    rules: Option<BTreeMap<String, Option<String>>>,
}

/// What becomes of the collections of a bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mapped {
    /// Those that go somewhere.
    pub named: BTreeMap<CollectionId, CollectionId>,
    /// Names at the target that do not exist there.
    pub missing: BTreeSet<String>,
}

impl Mapped {
    /// The mapping of a pipeline.
    pub fn mapping(&self) -> Mapping {
        Mapping::Named(self.named.clone())
    }
}

impl Rules {
    /// Reads the rules of a replication's settings.
    ///
    /// # Errors
    /// A sentence about the first rule that cannot be.
    pub fn read(chosen: &Chosen) -> Result<Rules, String> {
        if !chosen.flag("collectionsExplicitMapping") {
            return Ok(Rules::default());
        }
        let rules = read_rules(&chosen.object("colMappingRules"))?;
        if rules.is_empty() {
            return Err("explicit mapping needs at least one rule".to_owned());
        }
        check_redundant(&rules)?;
        Ok(Rules { rules: Some(rules) })
    }

    /// Returns the names at the target of a collection; `None` when it goes nowhere.
    fn target_of(&self, scope: &str, collection: &str) -> Option<Path> {
        let Some(rules) = &self.rules else {
            return Some((scope.to_owned(), collection.to_owned()));
        };
        match rules.get(&format!("{scope}.{collection}")) {
            Some(exact) => {
                let (scope, collection) = exact.as_ref()?.split_once('.')?;
                Some((scope.to_owned(), collection.to_owned()))
            }
            None => {
                let scope = rules.get(scope)?.as_ref()?;
                Some((scope.clone(), collection.to_owned()))
            }
        }
    }

    /// Maps the collections of a bucket to those of another.
    pub fn map(&self, source: &Manifest, target: &BTreeMap<Path, CollectionId>) -> Mapped {
        let mut mapped = Mapped::default();
        for scope in source.scopes.iter().filter(|scope| scope.name != SYSTEM) {
            for collection in &scope.collections {
                let Some(path) = self.target_of(&scope.name, &collection.name) else { continue };
                if let Some(id) = target.get(&path) {
                    mapped.named.insert(CollectionId(collection.id), *id);
                } else {
                    mapped.missing.insert(format!("{}.{}", path.0, path.1));
                }
            }
        }
        mapped
    }
}

fn read_rules(given: &Map<String, Value>) -> Result<BTreeMap<String, Option<String>>, String> {
    if given.len() > RULES_MAX {
        return Err(format!("there are more than {RULES_MAX} rules"));
    }
    let mut rules = BTreeMap::new();
    let mut targets = BTreeSet::new();
    for (source, target) in given {
        let target = match target {
            Value::Null => None,
            Value::String(target) => Some(target.clone()),
            _ => return Err(format!("the rule of {source} must be a name or null")),
        };
        for name in std::iter::once(source).chain(&target) {
            check_name(name)?;
        }
        if let Some(target) = &target {
            if source.contains('.') != target.contains('.') {
                return Err(format!("{source} and {target} are not both scopes or collections"));
            }
            if !targets.insert(target.clone()) {
                return Err(format!("two rules go to {target}"));
            }
        }
        rules.insert(source.clone(), target);
    }
    Ok(rules)
}

fn check_name(name: &str) -> Result<(), String> {
    let parts: Vec<&str> = name.split('.').collect();
    if parts.len() > 2 || parts.iter().any(|part| part.is_empty()) {
        return Err(format!("{name:?} is neither a scope nor scope.collection"));
    }
    if parts[0] == SYSTEM {
        return Err("the scope _system is not replicated".to_owned());
    }
    Ok(())
}

/// Refuses rules that another one implies.
fn check_redundant(rules: &BTreeMap<String, Option<String>>) -> Result<(), String> {
    for (source, target) in rules {
        let Some((scope, collection)) = source.split_once('.') else { continue };
        let Some(of_scope) = rules.get(scope) else { continue };
        let implied = of_scope.as_ref().map(|scope| format!("{scope}.{collection}"));
        if implied == *target {
            return Err(format!("the rule of {source} is implied by that of {scope}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_cluster::{BucketSettings, Change, Cluster};
    use serde_json::json;

    fn chosen(rules: Value) -> Chosen {
        let values = [("collectionsExplicitMapping", json!(true)), ("colMappingRules", rules)];
        Chosen(values.map(|(name, value)| (name.to_owned(), value)).into())
    }

    fn manifest() -> Manifest {
        let mut cluster = Cluster::new("c".repeat(32));
        let (name, uuid) = ("b".to_owned(), "u".to_owned());
        let settings = BucketSettings::default();
        cluster.apply(&Change::CreateBucket { name, uuid, settings }).unwrap();
        let (bucket, scope) = ("b".to_owned(), "s".to_owned());
        cluster.apply(&Change::CreateScope { bucket, scope }).unwrap();
        for collection in ["a", "b"] {
            let (bucket, scope, collection) = ("b".into(), "s".into(), collection.to_owned());
            let change =
                Change::CreateCollection { bucket, scope, collection, max_ttl: 0, history: None };
            cluster.apply(&change).unwrap();
        }
        cluster.buckets["b"].manifest.clone()
    }

    fn target(names: &[(&str, &str, u32)]) -> BTreeMap<Path, CollectionId> {
        let entry = |(scope, collection, id): &(&str, &str, u32)| {
            (((*scope).to_owned(), (*collection).to_owned()), CollectionId(*id))
        };
        names.iter().map(entry).collect()
    }

    #[test]
    fn without_rules_collections_go_to_those_of_their_names() {
        let target = target(&[("_default", "_default", 0), ("s", "b", 20)]);
        let mapped = Rules::default().map(&manifest(), &target);
        let ids: Vec<(u32, u32)> = mapped.named.iter().map(|(from, to)| (from.0, to.0)).collect();
        assert_eq!(ids, [(0, 0), (9, 20)]);
        assert_eq!(mapped.missing.iter().collect::<Vec<_>>(), ["s.a"]);
    }

    #[test]
    fn the_most_specific_rule_counts_and_what_none_names_stays() {
        let rules = json!({"s": "t", "s.b": null, "s.a": "u.a"});
        let rules = Rules::read(&chosen(rules)).unwrap();
        let target = target(&[("_default", "_default", 0), ("t", "b", 20), ("u", "a", 30)]);
        let mapped = rules.map(&manifest(), &target);
        let ids: Vec<(u32, u32)> = mapped.named.iter().map(|(from, to)| (from.0, to.0)).collect();
        assert_eq!(ids, [(8, 30)]);
        assert!(mapped.missing.is_empty());
    }

    #[test]
    fn rules_that_cannot_be_are_refused() {
        for (rules, reason) in [
            (json!({}), "explicit mapping needs at least one rule"),
            (json!({"a": 1}), "the rule of a must be a name or null"),
            (json!({"a.b.c": null}), "\"a.b.c\" is neither a scope nor scope.collection"),
            (json!({"": null}), "\"\" is neither a scope nor scope.collection"),
            (json!({"a": "b.c"}), "a and b.c are not both scopes or collections"),
            (json!({"a.b": "x.y", "a.c": "x.y"}), "two rules go to x.y"),
            (json!({"_system": "x"}), "the scope _system is not replicated"),
            (json!({"a": "x", "a.b": "x.b"}), "the rule of a.b is implied by that of a"),
            (json!({"a": null, "a.b": null}), "the rule of a.b is implied by that of a"),
        ] {
            assert_eq!(Rules::read(&chosen(rules)).unwrap_err(), reason);
        }
    }
}
