//! Vector indexes of SQL++: indexes of this service that `CREATE VECTOR INDEX` creates, and the choice of one for a query.
//!
//! Such an index is of one collection, has its vectors and the included fields, and is named as in the statement. Its definition has the
//! member `vectorIndex`, which contains what the statement says. A user who may query the collection may use the index, as in Couchbase.

use crate::definition::{self, Control, Definition, INDEX};
use crate::error::Failure;
use crate::query::{Demand, ask};
use crate::sqlpp::{is_of_keyspace, is_short_name, mapping_of};
use crate::{ID, NAME, flexible, manage};
use nacre_auth::{Keyspace, Privilege};
use nacre_cluster::{Change, Expected, RecordChange};
use nacre_node::Node;
use nacre_node::service::QueryQuestion;
use nacre_plugins_service::NodePlugins;
use nacre_sandbox::{DatabaseKeyspace, Request};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;

/// The member of definitions that a statement has created.
const MEMBER: &str = "vectorIndex";
/// Maximum number of neighbours. Source: the component's limit.
const NEIGHBOURS_MAX: u32 = 10_000;
/// Longest time that CREATE VECTOR INDEX waits for the index, which is built further afterwards.
const BUILD_PATIENCE: Duration = Duration::from_secs(60);

/// An index to create.
#[derive(Deserialize)]
pub(crate) struct NewVectorIndex {
    /// The name in the scope.
    name: String,
    /// The path of the vectors.
    field: String,
    dimension: u32,
    similarity: String,
    /// Paths of fields for conditions.
    #[serde(default)]
    included: Vec<String>,
    replicas: u64,
    /// True if the statement ends when the index has all documents.
    waits: bool,
    /// The members of the row in `system:indexes` besides name and place.
    row: Map<String, Value>,
}

/// Creates an index. The answer is `{"exists": true}` if the name is taken.
pub(crate) fn create(
    node: &Arc<Node>,
    question: &QueryQuestion<'_>,
    new: &NewVectorIndex,
) -> Result<Value, Failure> {
    require_right(node, question)?;
    node.catch_up();
    let cluster = node.cluster();
    if !cluster.nodes.values().any(|member| member.services.contains(&NAME)) {
        let text = "no node has the search service, which holds vector indexes";
        return Err(Failure::bad_request(text));
    }
    let name = full_name(question.keyspace, &new.name);
    if definition::get(&cluster, &name).is_some() {
        return Ok(json!({"exists": true}));
    }
    let definition = manage::create(node, &name, members(question.keyspace, new))?;
    if new.waits {
        let patience = question.left.min(BUILD_PATIENCE);
        let demand = Demand { is_fresh: true, patience, ..Demand::default() };
        let body = json!({"query": {"match_none": {}}, "size": 0}).to_string().into_bytes();
        let request = Request { path: "/query".into(), body, ..Request::default() };
        // After a timeout, the index is built further.
        drop(ask(node, question.user, &definition, &demand, request));
    }
    Ok(json!({"created": true}))
}

/// Drops an index. The answer is `{"dropped": false}` if the collection has no vector index with the name.
pub(crate) fn drop_index(
    node: &Arc<Node>,
    question: &QueryQuestion<'_>,
    name: &str,
) -> Result<Value, Failure> {
    node.catch_up();
    let known = definition::get(&node.cluster(), &full_name(question.keyspace, name));
    let is_known = |known: &Definition| may_use(known, question.keyspace);
    let Some(definition) = known.filter(is_known) else { return Ok(json!({"dropped": false})) };
    require_right(node, question)?;
    let expected = Expected::Version(definition.uuid);
    let (service, name) = (ID.into(), definition.name);
    node.change(&Change::Records(RecordChange::DropServiceRecord { service, name, expected }))?;
    Ok(json!({"dropped": true}))
}

/// Returns the rows of `system:indexes` that a user may see.
pub(crate) fn list(node: &Node, user: &str) -> Value {
    node.catch_up();
    let cluster = node.cluster();
    let rows: Vec<Value> = definition::all(&cluster)
        .filter(|(_, definition)| is_vector_index(definition) && may_see(node, user, definition))
        .map(|(_, definition)| row(node, &definition))
        .collect();
    json!({"rows": rows})
}

/// Returns true if queries of a collection may use an index without the right to search.
pub(crate) fn may_use(definition: &Definition, keyspace: &DatabaseKeyspace) -> bool {
    is_vector_index(definition) && is_of_keyspace(definition, keyspace)
}

/// Returns an index with vectors at the wanted path that are compared as wanted, the number of their dimensions, and the query for the
/// member `filter`. If `names` has any, it is one of them. The query has as many of the conditions as possible: the member `is_whole` is true
/// if it has all.
pub(crate) fn find(
    node: &Arc<Node>,
    keyspace: &DatabaseKeyspace,
    wanted: &Value,
    names: &[Value],
) -> Value {
    let cluster = node.cluster();
    let is_wanted = |definition: &Definition| {
        let is_named =
            |name: &str| definition.name == name || is_short_name(definition, keyspace, name);
        let new = definition.member(MEMBER);
        new["field"] == wanted["field"]
            && new["similarity"] == wanted["metric"]
            && (names.is_empty() || names.iter().filter_map(Value::as_str).any(is_named))
    };
    let mut best: Option<(usize, Value)> = None;
    for (_, definition) in definition::all(&cluster) {
        let is_usable = may_use(&definition, keyspace)
            && definition.is_allowed(Control::Query)
            && is_wanted(&definition);
        let Some(mapping) = mapping_of(&definition, keyspace).filter(|_| is_usable) else {
            continue;
        };
        let all = &definition.member("params")["mapping"];
        let filter = flexible::query(all, mapping, &wanted["filter"]);
        let count = filter.as_ref().map_or(0, |(_, count)| *count);
        let mut query = json!({
            "dimension": definition.member(MEMBER)["dimension"],
            "is_whole": count == conditions(&wanted["filter"]),
        });
        if let Some((filter, _)) = filter {
            query["filter"] = filter;
        }
        if best.as_ref().is_none_or(|(other, _)| count > *other) {
            best = Some((count, json!({"index": definition.name, "query": query})));
        }
    }
    best.map_or_else(|| json!({}), |(_, found)| found)
}

/// Replaces the filter of a request for neighbours by more neighbours.
pub(crate) fn widen(request: &mut Map<String, Value>) {
    let neighbours = request.get_mut("knn").and_then(|knn| knn.get_mut(0));
    if let Some(neighbours) = neighbours.and_then(Value::as_object_mut) {
        neighbours.remove("filter");
        neighbours.insert("k".into(), NEIGHBOURS_MAX.into());
    }
    request.insert("size".into(), NEIGHBOURS_MAX.into());
}

/// Returns the number of conditions in a predicate.
fn conditions(predicate: &Value) -> usize {
    let parts = predicate["and"].as_array().or_else(|| predicate["or"].as_array());
    match parts {
        Some(parts) => parts.iter().map(conditions).sum(),
        None => usize::from(predicate.is_object()),
    }
}

/// Returns true if a statement has created an index for vectors. Its texts are not analyzed, so that only its name makes it answer a search.
pub(crate) fn is_vector_index(definition: &Definition) -> bool {
    definition.member(MEMBER).is_object()
}

fn full_name(keyspace: &DatabaseKeyspace, name: &str) -> String {
    format!("{}.{}.{name}", keyspace.bucket, keyspace.scope)
}

fn has_right(
    node: &Node,
    user: &str,
    privileges: &[Privilege],
    keyspace: &DatabaseKeyspace,
) -> bool {
    let users = node.users();
    let (bucket, scope) = (Some(&*keyspace.bucket), Some(&*keyspace.scope));
    let place = Keyspace { bucket, scope, collection: Some(&*keyspace.collection) };
    let user = users.get(user);
    user.is_some_and(|user| privileges.iter().any(|privilege| user.may(*privilege, place)))
}

fn require_right(node: &Node, question: &QueryQuestion<'_>) -> Result<(), Failure> {
    let keyspace = question.keyspace;
    if has_right(node, question.user, &[Privilege::AdministerIndexes], keyspace) {
        return Ok(());
    }
    let DatabaseKeyspace { bucket, scope, collection } = keyspace;
    let text = format!(
        "User does not have credentials to run this statement on {bucket}.{scope}.{collection} (AdministerIndexes)"
    );
    Err(Failure::new(403, text))
}

fn may_see(node: &Node, user: &str, definition: &Definition) -> bool {
    let privileges = [
        Privilege::Query,
        Privilege::QueryInsert,
        Privilege::QueryUpdate,
        Privilege::QueryDelete,
        Privilege::AdministerIndexes,
    ];
    definition.places().into_iter().all(|place| {
        let (bucket, scope, collection) = (place.bucket, place.scope, place.collection);
        has_right(node, user, &privileges, &DatabaseKeyspace { bucket, scope, collection })
    })
}

/// Returns the definition of an index without its name.
fn members(keyspace: &DatabaseKeyspace, new: &NewVectorIndex) -> Map<String, Value> {
    let mut mapping = json!({"enabled": true, "dynamic": false});
    for path in &new.included {
        let fields = json!([
            {"type": "text", "analyzer": "keyword", "index": true},
            {"type": "number", "index": true},
            {"type": "boolean", "index": true},
        ]);
        insert(&mut mapping, path, fields);
    }
    let vector = json!({
        "type": "vector", "dims": new.dimension, "similarity": new.similarity, "index": true,
    });
    insert(&mut mapping, &new.field, json!([vector]));
    let mut types = Map::new();
    types.insert(format!("{}.{}", keyspace.scope, keyspace.collection), mapping);
    let params = json!({
        "doc_config": {"mode": "scope.collection.type_field", "type_field": "type"},
        "mapping": {"default_mapping": {"enabled": false, "dynamic": false}, "types": types},
    });
    let plan = json!({
        "maxPartitionsPerPIndex": 1024, "indexPartitions": 1, "numReplicas": new.replicas,
    });
    let statement = json!({"field": new.field, "dimension": new.dimension, "similarity": new.similarity, "row": new.row});
    Map::from_iter([
        ("type".to_owned(), INDEX.into()),
        ("sourceType".to_owned(), "gocbcore".into()),
        ("sourceName".to_owned(), keyspace.bucket.as_str().into()),
        ("sourceParams".to_owned(), json!({})),
        ("planParams".to_owned(), plan),
        ("params".to_owned(), params),
        (MEMBER.to_owned(), statement),
    ])
}

/// Adds the fields of a path to a mapping.
fn insert(mapping: &mut Value, path: &str, fields: Value) {
    let (name, rest) = match path.split_once('.') {
        Some((name, rest)) => (name, Some(rest)),
        None => (path, None),
    };
    let property = &mut mapping["properties"][name];
    if property.is_null() {
        *property = json!({"enabled": true, "dynamic": false});
    }
    match rest {
        Some(rest) => insert(property, rest, fields),
        None => property["fields"] = fields,
    }
}

/// Returns true if this node's part of an index has had all documents.
pub(crate) fn is_complete(node: &Node, definition: &Definition) -> bool {
    let deployment = node.plugins().deployment(&definition::deployment(&definition.name));
    deployment.is_some_and(|deployment| deployment.is_complete())
}

/// Returns the row of `system:indexes`.
fn row(node: &Node, definition: &Definition) -> Value {
    let mut row = json!({
        "id": definition.identity(),
        "name": definition.short_name(),
        "datastore_id": "nacre",
        "namespace_id": "default",
        "using": "gsi",
        "is_vector": true,
        "state": if is_complete(node, definition) { "online" } else { "building" },
        "metadata": {"num_replica": definition.member("planParams")["numReplicas"]},
    });
    let (scope, collections) = definition.collections().unwrap_or_default();
    let collection = collections.into_iter().next().unwrap_or_default();
    if scope == "_default" && collection == "_default" {
        row["keyspace_id"] = definition.bucket().into();
    } else {
        row["bucket_id"] = definition.bucket().into();
        row["scope_id"] = scope.into();
        row["keyspace_id"] = collection.into();
    }
    let shown = definition.member(MEMBER)["row"].as_object().into_iter().flatten();
    for (name, value) in shown {
        row[name.as_str()] = value.clone();
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new_index() -> NewVectorIndex {
        serde_json::from_value(json!({
            "name": "i", "field": "o.v", "dimension": 3, "similarity": "cosine",
            "included": ["a", "o.p"], "replicas": 0, "waits": true,
            "row": {"index_key": ["`o`.`v` VECTOR"]},
        }))
        .unwrap()
    }

    fn keyspace() -> DatabaseKeyspace {
        DatabaseKeyspace { bucket: "b".into(), scope: "s".into(), collection: "c".into() }
    }

    #[test]
    fn an_index_has_the_vector_and_the_included_fields_of_one_collection() {
        let definition = Definition::new("b.s.i", "1", "2", members(&keyspace(), &new_index()));
        assert!(may_use(&definition, &keyspace()));
        let other = DatabaseKeyspace { collection: "d".into(), ..keyspace() };
        assert!(!may_use(&definition, &other));
        let mapping = mapping_of(&definition, &keyspace()).unwrap();
        assert_eq!(mapping["properties"]["o"]["properties"]["v"]["fields"][0]["dims"], 3);
        let all = &definition.member("params")["mapping"];
        for (field, value) in [("a", json!("x")), ("a", json!(1)), ("o.p", json!(true))] {
            let predicate = json!({"field": field, "eq": value});
            assert!(flexible::query(all, mapping, &predicate).is_some(), "{predicate}");
        }
        let unknown = json!({"field": "z", "eq": 1});
        assert_eq!(flexible::query(all, mapping, &unknown), None);
    }

    #[test]
    fn more_neighbours_replace_a_filter() {
        let filter = json!({"field": "a", "prefix": "x"});
        let request = json!({"knn": [{"field": "v", "k": 100, "filter": filter}], "size": 100});
        let mut request = request.as_object().unwrap().clone();
        widen(&mut request);
        let expected = json!({"knn": [{"field": "v", "k": 10_000}], "size": 10_000});
        assert_eq!(Value::Object(request), expected);
    }

    #[test]
    fn conditions_are_counted_in_all_parts_of_a_predicate() {
        let one = json!({"field": "a", "eq": 1});
        assert_eq!(conditions(&Value::Null), 0);
        assert_eq!(conditions(&one), 1);
        assert_eq!(conditions(&json!({"and": [one, {"or": [one, one]}]})), 3);
    }
}
