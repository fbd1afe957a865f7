//! Definitions of indexes and aliases, as clients send them, the cluster stores them, and the service returns them.
//!
//! A definition is a record of the agreed state whose body is [`Stored`]. The service stores the members that a client sends unchanged.
//! It interprets only the members that it needs itself; the component checks the rest.

use crate::ID;
use crate::access::Place;
use crate::error::Failure;
use nacre_cluster::{Bucket, Cluster, ServiceRecord, Source};
use nacre_node::service::Workload;
use nacre_state::StateForm;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// The component that holds the indexes.
pub(crate) const COMPONENT: &str = "search";
/// Version of the component's state, as the component reports it.
pub(crate) const STATE_VERSION: &str = "2";
/// Analyzers and token filters whose terms have changed since state version 2. A state of such an index contains other terms than its
/// queries, so that it is built again: its configuration has the member `terms`. All other indexes keep their states.
const CHANGED: [&str; 6] = ["hi", "normalize_hi", "ckb", "normalize_ckb", "shingle", "hierarchy"];
/// Version of the terms of these components.
const TERMS_VERSION: u32 = 2;
/// Maximum number of collections of an index. Source: Couchbase's `collectionsLimitPerIndex`.
const COLLECTIONS_MAX: usize = 100;

/// Value of `type` for an index.
pub(crate) const INDEX: &str = "fulltext-index";
/// Value of `type` for an alias.
pub(crate) const ALIAS: &str = "fulltext-alias";

/// The body of a record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Stored {
    /// 16 hexadecimal digits, chosen when the index is created. Changes of the definition keep them.
    identity: String,
    /// The definition without name and UUID: type, source, parameters.
    definition: Map<String, Value>,
}

/// A definition of an index or an alias.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Definition {
    /// Full name: `bucket.scope.index`, or the name of a global index.
    pub name: String,
    /// 16 hexadecimal digits, which each change replaces.
    pub uuid: String,
    stored: Stored,
}

/// Returns all definitions, by full name.
pub(crate) fn all(cluster: &Cluster) -> impl Iterator<Item = (String, Definition)> {
    let records = cluster.service_records.of(ID);
    records.filter_map(|(name, record)| Some((name.to_owned(), Definition::read(name, record)?)))
}

/// Returns the definition with that full name.
pub(crate) fn get(cluster: &Cluster, name: &str) -> Option<Definition> {
    Definition::read(name, cluster.service_records.get(ID, name)?)
}

/// Prefix of the deployment's name before the index name.
const DEPLOYMENT: &str = "search index ";

/// Returns the name of an index's deployment. No view and no package can have such a name.
pub(crate) fn deployment(name: &str) -> String {
    format!("{DEPLOYMENT}{name}")
}

/// Returns the name of the index that belongs to a deployment.
pub(crate) fn index_of(deployment: &str) -> &str {
    deployment.strip_prefix(DEPLOYMENT).unwrap_or(deployment)
}

/// Refuses too many collections. Earlier versions did not count those with synonyms, so that only new definitions are limited by them.
///
/// # Errors
/// The number exceeds the limit.
pub(crate) fn check_count(collections: usize) -> Result<(), Failure> {
    if collections > COLLECTIONS_MAX {
        return Err(Failure::bad_request(format!(
            "collection_utils: an index has at most {COLLECTIONS_MAX} collections"
        )));
    }
    Ok(())
}

/// Returns true if a value contains one of the [`CHANGED`] names.
fn mentions_changed(value: &Value) -> bool {
    match value {
        Value::String(text) => CHANGED.contains(&&**text),
        Value::Array(elements) => elements.iter().any(mentions_changed),
        Value::Object(members) => members.values().any(mentions_changed),
        _ => false,
    }
}

impl Definition {
    /// Creates a definition with the members that a client has sent.
    pub fn new(name: &str, uuid: &str, identity: &str, members: Map<String, Value>) -> Definition {
        let stored = Stored { identity: identity.to_owned(), definition: members };
        Definition { name: name.to_owned(), uuid: uuid.to_owned(), stored }
    }

    fn read(name: &str, record: &ServiceRecord) -> Option<Definition> {
        let stored = serde_json::from_str(&record.body).ok()?;
        Some(Definition { name: name.to_owned(), uuid: record.version.clone(), stored })
    }

    /// Returns the record that stores the definition.
    pub fn record(&self) -> ServiceRecord {
        let (bucket, scope) = match (self.scope(), self.is_alias()) {
            (Some((bucket, scope)), _) => (Some(bucket.to_owned()), Some(scope.to_owned())),
            (None, true) => (None, None),
            (None, false) => {
                let (scope, _) = self.collections().unwrap_or_default();
                (Some(self.bucket().to_owned()), Some(scope))
            }
        };
        ServiceRecord {
            version: self.uuid.clone(),
            bucket,
            scope,
            body: serde_json::to_string(&self.stored).unwrap_or_default(),
        }
    }

    /// Returns the member with that name, or `null` if it is missing.
    pub fn member(&self, name: &str) -> &Value {
        self.stored.definition.get(name).unwrap_or(&Value::Null)
    }

    /// Sets a member.
    pub fn set(&mut self, name: &str, value: Value) {
        self.stored.definition.insert(name.to_owned(), value);
    }

    /// Returns the digits that distinguish this index from an earlier index with the same name.
    pub fn identity(&self) -> &str {
        &self.stored.identity
    }

    /// Returns true for an alias.
    pub fn is_alias(&self) -> bool {
        self.member("type") == ALIAS
    }

    /// Returns the bucket of the documents; empty for an alias.
    pub fn bucket(&self) -> &str {
        self.member("sourceName").as_str().unwrap_or_default()
    }

    /// Returns the bucket and scope in the name. Names of global indexes contain no dots.
    pub fn scope(&self) -> Option<(&str, &str)> {
        // The name of a bucket may contain dots; names of scopes and indexes may not.
        let (rest, _) = self.name.rsplit_once('.')?;
        rest.rsplit_once('.')
    }

    /// Returns the name without bucket and scope.
    pub fn short_name(&self) -> &str {
        self.name.rsplit_once('.').map_or(&*self.name, |(_, short)| short)
    }

    /// Returns the full names of an alias's targets; `None` for an index.
    pub fn alias_targets(&self) -> Option<Vec<String>> {
        if !self.is_alias() {
            return None;
        }
        let names = self.member("params")["targets"].as_object().into_iter().flatten();
        let full = |name: &String| match self.scope() {
            Some((bucket, scope)) if !name.contains('.') => format!("{bucket}.{scope}.{name}"),
            _ => name.clone(),
        };
        Some(names.map(|(name, _)| full(name)).collect())
    }

    /// Returns the definition as clients see it, with the name that they use.
    pub fn to_json(&self, name: &str) -> Value {
        let mut members = self.stored.definition.clone();
        members.insert("name".into(), name.into());
        members.insert("uuid".into(), (*self.uuid).into());
        Value::Object(members)
    }

    /// Returns the name of the index's partition in hits and lists.
    pub fn partition(&self) -> String {
        let sum = nacre_value::crc32c(self.name.as_bytes());
        format!("{}_{}_{sum:08x}", self.name, self.identity())
    }

    /// Returns true unless the control disallows it: the index then takes no documents, answers no queries, or has a
    /// frozen plan.
    pub fn is_allowed(&self, control: Control) -> bool {
        let plan = self.member("planParams");
        let of_node = &plan["nodePlanParams"][""][""];
        match control {
            Control::Ingest => of_node["canWrite"].as_bool().unwrap_or(true),
            Control::Query => of_node["canRead"].as_bool().unwrap_or(true),
            Control::Plan => !plan["planFrozen"].as_bool().unwrap_or(false),
        }
    }

    /// Returns the scope and the collections whose documents are indexed.
    ///
    /// # Errors
    /// The mapping names several scopes or too many collections.
    pub fn collections(&self) -> Result<(String, Vec<String>), Failure> {
        let default = || ("_default".to_owned(), vec!["_default".to_owned()]);
        if !self.is_by_collection() {
            return Ok(default());
        }
        let mapping = &self.member("params")["mapping"];
        let is_enabled = |mapping: &Value| mapping["enabled"].as_bool().unwrap_or(true);
        let mut found: BTreeSet<(String, String)> = BTreeSet::new();
        if is_enabled(&mapping["default_mapping"]) {
            found.insert(("_default".into(), "_default".into()));
        }
        let types = mapping["types"].as_object().into_iter().flatten();
        for (name, _) in types.filter(|(_, mapping)| is_enabled(mapping)) {
            let mut parts = name.splitn(3, '.');
            let scope = parts.next().unwrap_or_default().to_owned();
            found.insert((scope, parts.next().unwrap_or("_default").to_owned()));
        }
        let scopes: BTreeSet<&String> = found.iter().map(|(scope, _)| scope).collect();
        if scopes.len() > 1 {
            let names: Vec<String> = scopes.iter().map(|scope| format!("'{scope}'")).collect();
            return Err(Failure::bad_request(format!(
                "collection_utils: multiple scopes found: {}; index can only span collections on a single scope",
                names.join(", ")
            )));
        }
        check_count(found.len())?;
        let Some((scope, _)) = found.first().cloned() else { return Ok(default()) };
        let synonyms = self.synonym_collections().into_iter();
        found.extend(synonyms.map(|collection| (scope.clone(), collection)));
        Ok((scope, found.into_iter().map(|(_, collection)| collection).collect()))
    }

    /// Returns the collections whose documents define synonyms.
    fn synonym_collections(&self) -> BTreeSet<String> {
        let sources = &self.member("params")["mapping"]["analysis"]["synonym_sources"];
        let sources = sources.as_object().into_iter().flatten();
        let named = sources.filter_map(|(_, source)| source["collection"].as_str());
        named.map(str::to_owned).collect()
    }

    /// Returns true if queries of the index first collect synonyms from all nodes.
    pub fn has_synonyms(&self) -> bool {
        self.is_by_collection() && !self.synonym_collections().is_empty()
    }

    /// Returns true if a document's type begins with its scope and collection.
    pub fn is_by_collection(&self) -> bool {
        let mode = &self.member("params")["doc_config"]["mode"];
        mode.as_str().is_some_and(|mode| mode.starts_with("scope.collection"))
    }

    /// Returns the collections that the index covers; none for an alias.
    pub fn places(&self) -> Vec<Place> {
        if self.is_alias() {
            return Vec::new();
        }
        let (scope, collections) = self.collections().unwrap_or_default();
        let bucket = self.bucket();
        let place =
            |collection| Place { bucket: bucket.to_owned(), scope: scope.clone(), collection };
        collections.into_iter().map(place).collect()
    }

    /// Returns the configuration of the component, with the IDs of the collections in `bucket`. A different text has a state of its own,
    /// which is built from the documents.
    pub fn config(&self, bucket: Option<&Bucket>) -> String {
        self.config_json(bucket).to_string()
    }

    /// Returns the configuration of a definition that is not stored yet. The component refuses more of it.
    pub fn config_of_new(&self, bucket: &Bucket) -> String {
        let mut config = self.config_json(Some(bucket));
        config["new"] = true.into();
        config.to_string()
    }

    fn config_json(&self, bucket: Option<&Bucket>) -> Value {
        let (scope, collections) = self.collections().unwrap_or_default();
        let numbered = collections.iter().filter_map(|collection| {
            let id = bucket?.manifest.resolve(&format!("{scope}.{collection}")).ok()?;
            Some((format!("{:x}", id.0), Value::from(collection.as_str())))
        });
        let numbers: Map<String, Value> = numbered.collect();
        let mut config = json!({
            "name": self.name,
            "partition": self.partition(),
            "seed": u64::from_str_radix(self.identity(), 16).unwrap_or_default(),
            "params": self.member("params"),
            "scope": scope,
            "collections": numbers,
        });
        if mentions_changed(&self.member("params")["mapping"]) {
            config["terms"] = TERMS_VERSION.into();
        }
        config
    }

    /// Returns the deployment of the index, if `bucket` contains its documents.
    pub fn workload(&self, bucket: &Bucket) -> Option<Workload> {
        if self.is_alias() || self.bucket() != bucket.name {
            return None;
        }
        let (scope, mut collections) = self.collections().ok()?;
        let collection = if collections.len() == 1 { collections.pop() } else { None };
        let source = Source { bucket: bucket.name.clone(), scope: Some(scope), collection };
        Some(Workload {
            name: deployment(&self.name),
            component: COMPONENT,
            state_version: STATE_VERSION,
            form: StateForm::Segmented,
            identity: self.identity().to_owned(),
            source,
            config: self.config(Some(bucket)),
            paused: !self.is_allowed(Control::Ingest),
        })
    }
}

/// A property of an index that can be switched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// The index takes documents.
    Ingest,
    /// The index answers queries.
    Query,
    /// The partitions of the index may move.
    Plan,
}

impl Definition {
    /// Allows or disallows the property. The plan omits members that state the default.
    pub fn control(&mut self, control: Control, allow: bool) {
        let mut plan = match self.member("planParams") {
            Value::Object(plan) => plan.clone(),
            _ => Map::new(),
        };
        let may = |control| self.is_allowed(control);
        let (write, read) = match control {
            Control::Ingest => (allow, may(Control::Query)),
            Control::Query => (may(Control::Ingest), allow),
            Control::Plan => (may(Control::Ingest), may(Control::Query)),
        };
        if write && read {
            plan.remove("nodePlanParams");
        } else {
            let of_node = json!({"": {"": {"canRead": read, "canWrite": write}}});
            plan.insert("nodePlanParams".into(), of_node);
        }
        match control {
            Control::Plan if allow => drop(plan.remove("planFrozen")),
            Control::Plan => drop(plan.insert("planFrozen".into(), true.into())),
            Control::Ingest | Control::Query => {}
        }
        self.set("planParams", plan.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_plugin::Service;

    fn definition(name: &str, members: Value) -> Definition {
        let Value::Object(members) = members else { panic!("members are an object") };
        Definition::new(name, "u", "00000000000000aa", members)
    }

    #[test]
    fn the_state_version_is_that_of_the_component() {
        let description: Value =
            serde_json::from_str(&nacre_search::SearchComponent::describe()).unwrap();
        assert_eq!(description["state_version"], STATE_VERSION);
    }

    #[test]
    fn a_record_reads_back_as_the_definition() {
        let members = json!({"type": INDEX, "sourceName": "b.c", "params": {"x": [1]}});
        let one = definition("b.c.s.i", members);
        let record = one.record();
        assert_eq!(Definition::read("b.c.s.i", &record), Some(one.clone()));
        assert_eq!((record.bucket.as_deref(), record.scope.as_deref()), (Some("b.c"), Some("s")));
        assert_eq!(one.short_name(), "i");
        assert_eq!(one.to_json("i")["params"], json!({"x": [1]}));
    }

    #[test]
    fn collections_with_synonyms_belong_to_the_index() {
        let mode = json!({"mode": "scope.collection.type_field"});
        let sources = json!({"en": {"collection": "words", "analyzer": "en"}});
        let mapping = json!({
            "default_mapping": {"enabled": false},
            "types": {"s.a": {}},
            "analysis": {"synonym_sources": sources},
        });
        let of = |params: Value| {
            definition("b.s.i", json!({"type": INDEX, "sourceName": "b", "params": params}))
        };
        let index = of(json!({"doc_config": mode, "mapping": mapping}));
        let expected = ("s".to_owned(), vec!["a".to_owned(), "words".to_owned()]);
        assert_eq!(index.collections(), Ok(expected));
        assert!(index.has_synonyms());
        let plain = of(json!({"mapping": mapping}));
        assert_eq!(plain.collections().unwrap().1, ["_default"]);
        assert!(!plain.has_synonyms(), "documents of one collection define no synonyms");
    }

    #[test]
    fn only_definitions_with_changed_components_have_a_new_state() {
        let config = |mapping: Value| -> Value {
            let params = json!({"mapping": mapping});
            let members = json!({"type": INDEX, "sourceName": "b", "params": params});
            serde_json::from_str(&definition("i", members).config(None)).unwrap()
        };
        let filters = |kind: &str| json!({"analysis": {"token_filters": {"f": {"type": kind}}}});
        let field = json!({"fields": [{"type": "text", "analyzer": "hi"}]});
        let properties = json!({"default_mapping": {"properties": {"t": field}}});
        for mapping in [filters("shingle"), filters("hierarchy"), properties] {
            assert_eq!(config(mapping.clone())["terms"], TERMS_VERSION, "{mapping}");
        }
        for mapping in [Value::Null, filters("ngram"), json!({"default_analyzer": "en"})] {
            let members = config(mapping.clone());
            assert!(members.get("terms").is_none(), "{mapping}: its state would be built again");
        }
    }

    #[test]
    fn synonyms_do_not_count_among_the_collections_of_stored_definitions() {
        let mode = json!({"mode": "scope.collection.type_field"});
        let types: Map<String, Value> =
            (0..COLLECTIONS_MAX).map(|number| (format!("s.c{number}"), json!({}))).collect();
        let sources = json!({"en": {"collection": "words", "analyzer": "en"}});
        let mapping = json!({
            "default_mapping": {"enabled": false},
            "types": types,
            "analysis": {"synonym_sources": sources},
        });
        let params = json!({"doc_config": mode, "mapping": mapping});
        let index = definition("i", json!({"type": INDEX, "sourceName": "b", "params": params}));
        let (_, collections) = index.collections().unwrap();
        assert_eq!(collections.len(), COLLECTIONS_MAX + 1);
        assert!(check_count(COLLECTIONS_MAX).is_ok() && check_count(collections.len()).is_err());
    }

    #[test]
    fn collections_come_from_enabled_types() {
        let of = |params: Value| {
            definition("i", json!({"type": INDEX, "sourceName": "b", "params": params}))
                .collections()
                .map_err(|failure| failure.error.as_str().unwrap_or_default().to_owned())
        };
        let default = Ok(("_default".to_owned(), vec!["_default".to_owned()]));
        assert_eq!(of(Value::Null), default);
        assert_eq!(of(json!({"doc_config": {"mode": "scope.collection.type_field"}})), default);
        let mode = json!({"mode": "scope.collection.type_field"});
        let off = json!({"enabled": false});
        let types = json!({"s.a": {}, "s.b.beer": {"enabled": true}, "t.c": off});
        let mapping = json!({"default_mapping": off, "types": types});
        let expected = ("s".to_owned(), vec!["a".to_owned(), "b".to_owned()]);
        assert_eq!(of(json!({"doc_config": mode, "mapping": mapping})), Ok(expected));
        let mapping = json!({"default_mapping": off, "types": {"s.a": {}, "t.a": {}}});
        let refused = of(json!({"doc_config": mode, "mapping": mapping})).unwrap_err();
        assert!(refused.contains("multiple scopes found"), "{refused}");
    }

    #[test]
    fn controls_are_kept_in_the_plan_and_leave_no_trace() {
        let plan = json!({"indexPartitions": 1});
        let mut one = definition("i", json!({"type": INDEX, "planParams": plan}));
        one.control(Control::Ingest, false);
        one.control(Control::Plan, false);
        let of_node = json!({"": {"": {"canRead": true, "canWrite": false}}});
        let expected = json!({"indexPartitions": 1, "planFrozen": true, "nodePlanParams": of_node});
        assert_eq!(one.member("planParams"), &expected);
        one.control(Control::Query, false);
        one.control(Control::Ingest, true);
        assert!(one.is_allowed(Control::Ingest) && !one.is_allowed(Control::Query));
        one.control(Control::Query, true);
        one.control(Control::Plan, true);
        assert_eq!(one.member("planParams"), &plan);
    }

    #[test]
    fn targets_of_a_scoped_alias_are_in_its_scope() {
        let members = json!({"type": ALIAS, "params": {"targets": {"a": {}, "b.s.c": {}}}});
        let targets = definition("b.s.i", members.clone()).alias_targets();
        assert_eq!(targets, Some(vec!["b.s.a".to_owned(), "b.s.c".to_owned()]));
        let targets = definition("i", members).alias_targets();
        assert_eq!(targets, Some(vec!["a".to_owned(), "b.s.c".to_owned()]));
    }
}
