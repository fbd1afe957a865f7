//! Maps collections of the source to collections of the target.

use crate::expression::Expression;
use crate::settings::Chosen;
use nacre_cluster::Manifest;
use nacre_types::CollectionId;
use nacre_xdcr::{Condition, Mapping};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The system scope, which is never replicated.
const SYSTEM: &str = "_system";
/// Maximum number of rules of a replication.
const RULES_MAX: usize = 2000;
/// Maximum number of rules of a migration; each document is tested by every rule.
const MIGRATION_RULES_MAX: usize = 200;

/// Names of a scope and a collection in it.
type Path = (String, String);

/// Key of the migration rule that matches every document.
const EVERY_DOCUMENT: &str = "_default._default";

/// A migration rule: the condition and the target collection. Without an expression, the rule matches every document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Migration {
    expression: Option<Arc<Expression>>,
    target: Path,
}

/// The mapping rules of a replication.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Rules {
    /// Every collection maps to the collection of the same name.
    #[default]
    Same,
    /// Scopes and collections map to named ones, or are not replicated.
    Explicit(BTreeMap<String, Option<String>>),
    /// Documents of the default collection map to collections by their contents.
    Migration(Vec<Migration>),
}

/// The collections of a bucket, resolved by the rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mapped {
    /// Target collection of each replicated collection.
    pub named: BTreeMap<CollectionId, CollectionId>,
    /// For a migration: conditions on documents of the default collection, with the target collections. `None` without
    /// a migration.
    pub migrated: Option<Vec<(Option<Arc<Expression>>, CollectionId)>>,
    /// Names of target collections that do not exist.
    pub missing: BTreeSet<String>,
}

impl Mapped {
    /// Returns the mapping for a pipeline.
    pub fn mapping(&self) -> Mapping {
        let Some(migrated) = &self.migrated else { return Mapping::Named(self.named.clone()) };
        let condition = |expression: &Arc<Expression>| Arc::clone(expression) as Arc<dyn Condition>;
        let rules = migrated.iter();
        Mapping::Migration(rules.map(|(it, to)| (it.as_ref().map(condition), *to)).collect())
    }

    /// Returns true if `other` sends every document to the same collections.
    pub fn has_same_targets(&self, other: &Mapped) -> bool {
        self.named == other.named && self.migrated == other.migrated
    }

    /// Returns the mapping as far as checkpoints depend on it: source and target collection IDs. All rules of a migration have
    /// the same source collection, so their entries use the target's ID as the key.
    pub fn terms(&self) -> BTreeMap<u32, u32> {
        let named = self.named.iter().map(|(from, to)| (from.0, to.0));
        named.chain(self.migrated.iter().flatten().map(|(_, to)| (to.0, to.0))).collect()
    }
}

impl Rules {
    /// Reads the rules of a replication's settings.
    ///
    /// # Errors
    /// A sentence about the first invalid rule.
    pub fn read(chosen: &Chosen) -> Result<Rules, String> {
        let given = chosen.object("colMappingRules");
        if chosen.flag("collectionsMigrationMode") {
            return read_migration(&given).map(Rules::Migration);
        }
        if !chosen.flag("collectionsExplicitMapping") {
            return Ok(Rules::Same);
        }
        let rules = read_rules(&given)?;
        if rules.is_empty() {
            return Err("explicit mapping needs at least one rule".to_owned());
        }
        check_redundant(&rules)?;
        Ok(Rules::Explicit(rules))
    }

    /// Returns the target names of a collection; `None` when it is not replicated.
    fn target_of(&self, scope: &str, collection: &str) -> Option<Path> {
        let rules = match self {
            Rules::Same => return Some((scope.to_owned(), collection.to_owned())),
            Rules::Explicit(rules) => rules,
            Rules::Migration(_) => return None,
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

    /// Resolves the rules for the collections of both buckets.
    pub fn map(&self, source: &Manifest, target: &BTreeMap<Path, CollectionId>) -> Mapped {
        let mut mapped = Mapped::default();
        if let Rules::Migration(rules) = self {
            let mut migrated = Vec::new();
            for Migration { expression, target: path } in rules {
                match target.get(path) {
                    Some(id) => migrated.push((expression.clone(), *id)),
                    None => drop(mapped.missing.insert(format!("{}.{}", path.0, path.1))),
                }
            }
            mapped.migrated = Some(migrated);
            return mapped;
        }
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

fn read_migration(given: &Map<String, Value>) -> Result<Vec<Migration>, String> {
    if given.is_empty() {
        return Err("a migration needs at least one rule".to_owned());
    }
    if given.len() > MIGRATION_RULES_MAX {
        return Err(format!("a migration has at most {MIGRATION_RULES_MAX} rules"));
    }
    let mut targets = BTreeSet::new();
    let mut rules = Vec::new();
    for (source, target) in given {
        let path = target.as_str().and_then(|target| target.split_once('.'));
        let Some((scope, collection)) = path else {
            return Err(format!("the rule {source:?} of a migration must name scope.collection"));
        };
        check_name(&format!("{scope}.{collection}"))?;
        if !targets.insert((scope, collection)) {
            return Err(format!("two rules go to {scope}.{collection}"));
        }
        let expression = match source == EVERY_DOCUMENT {
            true => None,
            false => {
                let read = Expression::parse(source);
                Some(Arc::new(read.map_err(|reason| format!("the rule {source:?}: {reason}"))?))
            }
        };
        let target = (scope.to_owned(), collection.to_owned());
        rules.push(Migration { expression, target });
    }
    Ok(rules)
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

/// Refuses rules that are implied by others.
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
    use nacre_cluster::{BucketChange, BucketSettings, Change, Cluster};
    use serde_json::json;

    fn chosen(rules: Value) -> Chosen {
        let values = [("collectionsExplicitMapping", json!(true)), ("colMappingRules", rules)];
        Chosen(values.map(|(name, value)| (name.to_owned(), value)).into())
    }

    fn manifest() -> Manifest {
        let mut cluster = Cluster::new("c".repeat(32));
        let (name, uuid) = ("b".to_owned(), "u".to_owned());
        let settings = BucketSettings::default();
        cluster
            .apply(&Change::Buckets(BucketChange::CreateBucket { name, uuid, settings }))
            .unwrap();
        let (bucket, scope) = ("b".to_owned(), "s".to_owned());
        cluster.apply(&Change::Buckets(BucketChange::CreateScope { bucket, scope })).unwrap();
        for collection in ["a", "b"] {
            let (bucket, scope, collection) = ("b".into(), "s".into(), collection.to_owned());
            let change = Change::Buckets(BucketChange::CreateCollection {
                bucket,
                scope,
                collection,
                max_ttl: 0,
                history: None,
            });
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
    fn the_most_specific_rule_counts_and_unnamed_collections_stay() {
        let rules = json!({"s": "t", "s.b": null, "s.a": "u.a"});
        let rules = Rules::read(&chosen(rules)).unwrap();
        let target = target(&[("_default", "_default", 0), ("t", "b", 20), ("u", "a", 30)]);
        let mapped = rules.map(&manifest(), &target);
        let ids: Vec<(u32, u32)> = mapped.named.iter().map(|(from, to)| (from.0, to.0)).collect();
        assert_eq!(ids, [(8, 30)]);
        assert!(mapped.missing.is_empty());
    }

    #[test]
    fn invalid_rules_are_refused() {
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

    fn migration(rules: Value) -> Result<Rules, String> {
        let values = [("collectionsMigrationMode", json!(true)), ("colMappingRules", rules)];
        Rules::read(&Chosen(values.map(|(name, value)| (name.to_owned(), value)).into()))
    }

    #[test]
    fn a_migration_sends_documents_of_the_default_collection_by_rules() {
        let rules = json!({"type = \"a\"": "s.a", "_default._default": "t.all", "n > 1": "t.none"});
        let rules = migration(rules).unwrap();
        let target = target(&[("s", "a", 20), ("t", "all", 30), ("_default", "_default", 0)]);
        let mapped = rules.map(&manifest(), &target);
        let Mapping::Migration(of) = mapped.mapping() else { panic!("{mapped:?}") };
        let mut to: Vec<(bool, u32)> = of.iter().map(|(it, to)| (it.is_some(), to.0)).collect();
        to.sort_unstable();
        assert_eq!(to, [(false, 30), (true, 20)]);
        assert_eq!(mapped.missing.iter().collect::<Vec<_>>(), ["t.none"]);
        assert_eq!(mapped.terms(), [(20, 20), (30, 30)].into());
        assert!(mapped.named.is_empty());
    }

    #[test]
    fn invalid_rules_of_a_migration_are_refused() {
        for (rules, reason) in [
            (json!({}), "a migration needs at least one rule"),
            (
                json!({"a = 1": null}),
                "the rule \"a = 1\" of a migration must name scope.collection",
            ),
            (json!({"a = 1": "s"}), "the rule \"a = 1\" of a migration must name scope.collection"),
            (json!({"a = 1": "_system.a"}), "the scope _system is not replicated"),
            (json!({"a = 1": "a.b.c"}), "\"a.b.c\" is neither a scope nor scope.collection"),
            (json!({"a": "s.a"}), "the rule \"a\": character 2: a comparison is expected"),
            (json!({"a = 1": "s.a", "b = 1": "s.a"}), "two rules go to s.a"),
        ] {
            assert_eq!(migration(rules).unwrap_err(), reason);
        }
    }
}
