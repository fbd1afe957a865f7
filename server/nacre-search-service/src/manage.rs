//! Endpoints that list, read, create, change, control and delete indexes.

use crate::access::{self, Named};
use crate::definition::{self, ALIAS, COMPONENT, Control, Definition, INDEX};
use crate::error::{Failure, ok};
use crate::{ID, NAME, Outcome};
use nacre_cluster::{Bucket, Change, Cluster, Expected, RecordChange, Refusal};
use nacre_node::Node;
use nacre_node::service::HttpRequest;
use nacre_plugins_service::NodePlugins;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Version of the definitions' format, which clients check. Source: Couchbase Search.
const IMPLEMENTATION: &str = "5.8.0";
/// Maximum length of a full name, in bytes.
const NAME_BYTES_MAX: usize = 209;
/// Maximum number of replicas of a partition that clients may request.
pub(crate) const REPLICAS_MAX: u64 = 3;

/// `GET /api/index`: returns the definitions that the user may read, by full name.
pub(crate) fn list(node: &Arc<Node>, request: &HttpRequest, named: &Named) -> Outcome {
    node.catch_up();
    let cluster = node.cluster();
    let (mut definitions, mut versions) = (Map::new(), String::new());
    for (name, definition) in definition::all(&cluster) {
        versions.push_str(&definition.uuid);
        let scope = named.scope.as_ref().map(|(bucket, scope)| (&**bucket, &**scope));
        let is_listed = scope.is_none() || definition.scope() == scope;
        if is_listed && access::may_read(node, request, &definition) {
            let shown = shown_name(&definition, named);
            definitions.insert(name, definition.to_json(shown));
        }
    }
    let uuid = format!("{:016x}", nacre_value::crc32c(versions.as_bytes()));
    Ok(ok(json!({"indexDefs": {
        "uuid": uuid,
        "indexDefs": definitions,
        "implVersion": IMPLEMENTATION,
    }})))
}

/// Returns the name of an index for the client: without bucket and scope if the path names them.
fn shown_name<'a>(definition: &'a Definition, named: &Named) -> &'a str {
    if named.scope.is_some() { definition.short_name() } else { &definition.name }
}

/// `GET /api/index/{index}`.
pub(crate) fn get(node: &Arc<Node>, request: &HttpRequest, named: &Named) -> Outcome {
    node.catch_up();
    let definition = access::readable(node, request, named)?;
    let wanted = parameter(request, &["indexUUID"]);
    if wanted.is_some_and(|uuid| uuid != definition.uuid) {
        return Err(Failure::bad_request(format!(
            "wrong index UUID, it is {}, indexName: {}",
            definition.uuid, definition.name
        )));
    }
    let shown = shown_name(&definition, named);
    Ok(ok(json!({
        "indexDef": definition.to_json(shown),
        "planPIndexes": partitions(node, &definition, shown),
        "warnings": [],
    })))
}

/// Describes the partitions of an index. An index has one partition with all vBuckets; each node with documents holds a
/// part of it.
fn partitions(node: &Node, definition: &Definition, name: &str) -> Value {
    let cluster = node.cluster();
    let Some(bucket) = cluster.buckets.get(definition.bucket()) else { return json!([]) };
    let vbuckets: Vec<String> =
        (0..bucket.settings.vbucket_count).map(|number| number.to_string()).collect();
    let read = definition.is_allowed(Control::Query);
    let write = definition.is_allowed(Control::Ingest);
    let nodes: Map<String, Value> = cluster
        .nodes
        .values()
        .filter(|member| member.has_data())
        .map(|member| {
            let rights = json!({"canRead": read, "canWrite": write, "priority": 0});
            (member.uuid.clone(), rights)
        })
        .collect();
    json!([{
        "name": definition.partition(),
        "uuid": definition.identity(),
        "indexType": definition.member("type"),
        "indexName": name,
        "indexUUID": definition.uuid,
        "sourceType": definition.member("sourceType"),
        "sourceName": definition.member("sourceName"),
        "sourceUUID": definition.member("sourceUUID"),
        "sourcePartitions": vbuckets.join(","),
        "nodes": nodes,
    }])
}

/// `PUT /api/index/{index}`: creates or changes an index.
pub(crate) fn put(node: &Arc<Node>, request: &HttpRequest, named: &Named) -> Outcome {
    node.catch_up();
    access::require_create(node, request, named)?;
    let name = named.full();
    let words = format!("rest_create_index: error creating index: {name}, err: ");
    let (definition, expected) =
        prepare(node, request, named).map_err(|failure| failure.within(&words))?;
    access::require_write(node, request, &definition)?;
    check(node, &definition).map_err(|failure| failure.within(&words))?;
    store(node, &definition, expected).map_err(|failure| failure.within(&words))?;
    Ok(ok(json!({"name": name, "uuid": definition.uuid})))
}

/// Creates an index in a scope for a statement of SQL++.
pub(crate) fn create(
    node: &Arc<Node>,
    name: &str,
    mut members: Map<String, Value>,
) -> Result<Definition, Failure> {
    let (_, short) = name.rsplit_once('.').unwrap_or_default();
    check_name(short)?;
    if name.len() > NAME_BYTES_MAX {
        return Err(Failure::bad_request(format!(
            "indexName is invalid: it has at most {NAME_BYTES_MAX} bytes, indexName: {name}"
        )));
    }
    fill_in(&node.cluster(), &mut members)?;
    let definition = Definition::new(name, &new_uuid(node), &new_uuid(node), members);
    check(node, &definition)?;
    store(node, &definition, Expected::Nothing)?;
    Ok(definition)
}

fn store(node: &Arc<Node>, definition: &Definition, expected: Expected) -> Result<(), Failure> {
    node.change(&Change::Records(RecordChange::PutServiceRecord {
        service: ID.into(),
        name: definition.name.clone(),
        record: Box::new(definition.record()),
        expected,
    }))?;
    Ok(())
}

/// Returns the definition that a request asks for, and the expected present record.
fn prepare(
    node: &Node,
    request: &HttpRequest,
    named: &Named,
) -> Result<(Definition, Expected), Failure> {
    let mut members = members(request)?;
    let given = |members: &mut Map<String, Value>, name: &str| match members.remove(name) {
        Some(Value::String(text)) => text,
        _ => String::new(),
    };
    let uuid = given(&mut members, "uuid");
    let uuid = parameter(request, &["prevIndexUUID", "indexUUID"]).unwrap_or(uuid);
    members.remove("name");
    let name = named.full();
    let cluster = node.cluster();
    let known = definition::get(&cluster, &name);
    let expected = match (&*uuid, &known) {
        ("", Some(_)) => return Err(Refusal::RecordExists { name }.into()),
        ("", None) => Expected::Nothing,
        ("*", _) => Expected::Anything,
        (_, None) => return Err(Refusal::RecordNotFound { name }.into()),
        (uuid, Some(known)) if *uuid != *known.uuid => {
            return Err(Refusal::RecordChanged { name, version: known.uuid.clone() }.into());
        }
        (uuid, Some(_)) => Expected::Version(uuid.to_owned()),
    };
    if known.is_none() {
        check_name(&named.short)?;
        if name.len() > NAME_BYTES_MAX {
            return Err(Failure::bad_request(format!(
                "indexName is invalid: it has at most {NAME_BYTES_MAX} bytes, indexName: {name}"
            )));
        }
    }
    let text = |name: &str| members.get(name).and_then(Value::as_str).unwrap_or_default();
    match text("type") {
        INDEX | ALIAS => {}
        "" => return Err(Failure::bad_request("index type is required")),
        other => return Err(Failure::bad_request(format!("unknown indexType: {other}"))),
    }
    let is_alias = text("type") == ALIAS;
    let source_type = match text("sourceType") {
        "" if is_alias => "nil",
        "nil" if is_alias => "nil",
        "" => return Err(Failure::bad_request("sourceType is required")),
        "couchbase" | "gocbcore" if !is_alias => "gocbcore",
        other => return Err(Failure::bad_request(format!("unknown sourceType: {other}"))),
    };
    members.insert("sourceType".into(), source_type.into());
    if is_alias {
        for name in ["sourceName", "sourceUUID"] {
            members.insert(name.into(), "".into());
        }
    } else {
        fill_in(&cluster, &mut members)?;
    }
    let uuid = new_uuid(node);
    let identity = known.as_ref().map_or_else(|| new_uuid(node), |known| known.identity().into());
    let definition = Definition::new(&name, &uuid, &identity, members);
    if let Some(known) = known {
        check_change(&known, &definition)?;
    }
    Ok((definition, expected))
}

/// Returns 16 random hexadecimal digits.
fn new_uuid(node: &Node) -> String {
    format!("{:016x}", node.random())
}

/// Returns the members that a client has sent. Members in the query string override those in the body.
fn members(request: &HttpRequest) -> Result<Map<String, Value>, Failure> {
    let mut members = match &request.body[..] {
        [] => Map::new(),
        body => match serde_json::from_slice(body) {
            Ok(Value::Object(members)) => members,
            Ok(_) => return Err(Failure::bad_request("the definition must be an object")),
            Err(error) => {
                let text = format!("could not unmarshal the definition: {error}");
                return Err(Failure::bad_request(text));
            }
        },
    };
    for (parameter_name, member) in [
        ("indexType", "type"),
        ("indexParams", "params"),
        ("sourceType", "sourceType"),
        ("sourceName", "sourceName"),
        ("sourceUUID", "sourceUUID"),
        ("sourceParams", "sourceParams"),
        ("planParams", "planParams"),
    ] {
        if let Some(text) = parameter(request, &[parameter_name]) {
            members.insert(member.into(), text.into());
        }
    }
    for name in ["params", "sourceParams", "planParams"] {
        let value = match members.get(name) {
            Some(Value::String(text)) if text.trim().is_empty() => Value::Null,
            Some(Value::String(text)) => serde_json::from_str(text)
                .map_err(|error| Failure::bad_request(format!("{name} is not JSON: {error}")))?,
            Some(value) => value.clone(),
            None => Value::Null,
        };
        match value {
            Value::Object(_) => drop(members.insert(name.into(), value)),
            Value::Null => drop(members.insert(name.into(), json!({}))),
            _ => return Err(Failure::bad_request(format!("{name} must be an object"))),
        }
    }
    Ok(members)
}

/// Adds the members that clients may omit and expect to find later.
fn fill_in(cluster: &Cluster, members: &mut Map<String, Value>) -> Result<(), Failure> {
    let text = |name: &str| members.get(name).and_then(Value::as_str).unwrap_or_default();
    let name = text("sourceName").to_owned();
    let Some(bucket) = cluster.buckets.get(&name) else {
        return Err(Failure::bad_request(format!(
            "failed to connect to or retrieve information from source, sourceType: gocbcore, sourceName: {name}"
        )));
    };
    if !matches!(text("sourceUUID"), "" | "nil") && text("sourceUUID") != bucket.uuid {
        return Err(Failure::bad_request(format!(
            "sourceUUID mismatched for sourceName: {name}, it is {}",
            bucket.uuid
        )));
    }
    members.insert("sourceUUID".into(), (*bucket.uuid).into());
    if members["planParams"] == json!({}) {
        members.insert(
            "planParams".into(),
            json!({"maxPartitionsPerPIndex": 1024, "indexPartitions": 1, "numReplicas": 0}),
        );
    }
    if let Some(params) = members.get_mut("params").and_then(Value::as_object_mut) {
        let store = params.entry("store").or_insert_with(|| json!({}));
        if let Some(store) = store.as_object_mut() {
            store.entry("indexType").or_insert_with(|| "scorch".into());
            store.entry("segmentVersion").or_insert_with(|| 16.into());
        }
    }
    Ok(())
}

fn check_name(name: &str) -> Result<(), Failure> {
    let mut letters = name.bytes();
    let is_valid = letters.next().is_some_and(|first| first.is_ascii_alphabetic())
        && letters.all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, b'_' | b'-'));
    match is_valid {
        true => Ok(()),
        false => Err(Failure::bad_request(format!(
            "indexName is invalid: it begins with a letter and has letters, digits, - and _ only, indexName: {name:?}"
        ))),
    }
}

/// Refuses changes of members that cannot change.
fn check_change(known: &Definition, wanted: &Definition) -> Result<(), Failure> {
    if known.is_alias() != wanted.is_alias() {
        return Err(Failure::bad_request("the type of an index cannot be changed"));
    }
    let place = |one: &Definition| (one.bucket().to_owned(), one.collections().map(|(s, _)| s));
    if !known.is_alias() && known.scope().is_some() && place(known) != place(wanted) {
        return Err(Failure::bad_request(
            "changing a scoped index's bucket/scope name is NOT allowed",
        ));
    }
    let plan = |one: &Definition, name: &str| one.member("planParams")[name].clone();
    let is_replanned = ["indexPartitions", "maxPartitionsPerPIndex", "numReplicas"]
        .iter()
        .any(|name| plan(known, name) != plan(wanted, name));
    if !known.is_allowed(Control::Plan) && is_replanned {
        return Err(Failure::bad_request(
            "cannot update partition or replica count for a planFrozen index",
        ));
    }
    Ok(())
}

/// Refuses a definition that the component cannot execute. This takes seconds if the component is not loaded yet.
fn check(node: &Node, definition: &Definition) -> Result<(), Failure> {
    let cluster = node.cluster();
    if definition.is_alias() {
        return check_alias(&cluster, definition);
    }
    let bucket = cluster.bucket(definition.bucket())?;
    check_plan(&cluster, bucket, definition)?;
    check_collections(bucket, definition)?;
    let config = definition.config_of_new(bucket);
    let components = node.plugins().components();
    components.validate_shipped(node, COMPONENT, config).map_err(Failure::bad_request)
}

fn check_alias(cluster: &Cluster, definition: &Definition) -> Result<(), Failure> {
    let targets = definition.alias_targets().unwrap_or_default();
    if targets.is_empty() {
        return Err(Failure::bad_request(
            "cannot create index alias because no index targets were specified",
        ));
    }
    if let Some((bucket, scope)) = definition.scope() {
        for name in &targets {
            let target = definition::get(cluster, name).ok_or_else(|| Failure::no_index(name))?;
            if target.scope() != Some((bucket, scope)) {
                return Err(Failure::bad_request(format!(
                    "the target of an alias in a scope is in the same scope, target: {name}"
                )));
            }
        }
    }
    let (mut open, mut seen) = (targets, BTreeSet::new());
    while let Some(name) = open.pop() {
        if name == definition.name {
            return Err(Failure::bad_request("the alias would be a target of its own"));
        }
        if seen.insert(name.clone())
            && let Some(target) = definition::get(cluster, &name)
        {
            open.extend(target.alias_targets().unwrap_or_default());
        }
    }
    Ok(())
}

fn check_plan(cluster: &Cluster, bucket: &Bucket, definition: &Definition) -> Result<(), Failure> {
    let plan = definition.member("planParams");
    let replicas = plan["numReplicas"].as_u64().unwrap_or(0);
    if replicas > REPLICAS_MAX {
        return Err(Failure::bad_request(format!(
            "maxReplicasAllowed: '{REPLICAS_MAX}', but request for '{replicas}'"
        )));
    }
    let nodes = cluster.nodes.values().filter(|member| member.services.contains(&NAME)).count();
    if replicas >= nodes.max(1) as u64 {
        return Err(Failure::bad_request(format!(
            "cluster needs {} search nodes to support the requested replica count of {replicas}",
            replicas + 1
        )));
    }
    let (partitions, vbuckets) =
        (plan["indexPartitions"].as_u64().unwrap_or(0), bucket.settings.vbucket_count);
    if partitions > u64::from(vbuckets) {
        return Err(Failure::bad_request(format!(
            "cannot create index with {partitions} partitions, source bucket '{}' has {vbuckets} vbuckets",
            bucket.name
        )));
    }
    Ok(())
}

fn check_collections(bucket: &Bucket, definition: &Definition) -> Result<(), Failure> {
    let (scope, collections) = definition.collections()?;
    definition::check_count(collections.len())?;
    if let Some((of, named)) = definition.scope()
        && (of != bucket.name || named != scope)
    {
        let text = if definition.is_by_collection() {
            format!(
                "collection_utils: collection: '{}' doesn't belong to scope: '{named}' in bucket: '{of}'",
                collections.join("', '")
            )
        } else {
            format!(
                "a scoped index outside of the scope _default has types by collection: doc_config.mode begins with scope.collection, scope: '{named}'"
            )
        };
        return Err(Failure::bad_request(text));
    }
    if bucket.manifest.collections(Some(&scope), None).is_err() {
        return Err(Failure::bad_request(format!(
            "collection_utils: scope: '{scope}' not found in bucket: '{}'",
            bucket.name
        )));
    }
    let is_absent =
        |collection: &&String| bucket.manifest.resolve(&format!("{scope}.{collection}")).is_err();
    match collections.iter().find(is_absent) {
        None => Ok(()),
        Some(collection) => Err(Failure::bad_request(format!(
            "collection_utils: collection: '{collection}' doesn't belong to scope: '{scope}' in bucket: '{}'",
            bucket.name
        ))),
    }
}

/// `DELETE /api/index/{index}`.
pub(crate) fn delete(node: &Arc<Node>, request: &HttpRequest, named: &Named) -> Outcome {
    let definition = writable(node, request, named)?;
    let wanted = parameter(request, &["indexUUID"]);
    let change = Change::Records(RecordChange::DropServiceRecord {
        service: ID.into(),
        name: definition.name.clone(),
        expected: wanted.map_or(Expected::Anything, Expected::Version),
    });
    node.change(&change)?;
    Ok(ok(json!({"uuid": definition.uuid})))
}

/// Returns the definition that a request names, if its user may change it.
fn writable(node: &Node, request: &HttpRequest, named: &Named) -> Result<Definition, Failure> {
    node.catch_up();
    match definition::get(&node.cluster(), &named.full()) {
        Some(definition) => {
            access::require_write(node, request, &definition)?;
            Ok(definition)
        }
        None => {
            access::require_create(node, request, named)?;
            Err(Failure::no_index(&named.full()))
        }
    }
}

/// `POST …/ingestControl/{pause|resume}`.
pub(crate) fn control_ingest(node: &Arc<Node>, request: &HttpRequest, named: &Named) -> Outcome {
    control(node, request, named, Control::Ingest, ["resume", "pause"])
}

/// `POST …/planFreezeControl/{freeze|unfreeze}`.
pub(crate) fn control_plan(node: &Arc<Node>, request: &HttpRequest, named: &Named) -> Outcome {
    control(node, request, named, Control::Plan, ["unfreeze", "freeze"])
}

/// `POST …/queryControl/{allow|disallow}`.
pub(crate) fn control_queries(node: &Arc<Node>, request: &HttpRequest, named: &Named) -> Outcome {
    control(node, request, named, Control::Query, ["allow", "disallow"])
}

/// Switches a property of an index. The first operation allows it, and the second disallows it.
fn control(
    node: &Arc<Node>,
    request: &HttpRequest,
    named: &Named,
    control: Control,
    operations: [&str; 2],
) -> Outcome {
    let mut definition = writable(node, request, named)?;
    let [allow, _] = operations;
    if !operations.contains(&&*named.operation) {
        return Err(Failure::bad_request(format!("unsupported op: {}", named.operation)));
    }
    let expected = Expected::Version(definition.uuid.clone());
    definition.control(control, named.operation == allow);
    definition.uuid = new_uuid(node);
    store(node, &definition, expected)?;
    Ok(ok(json!({})))
}

/// Returns the first of these query parameters that exists, percent-decoded.
pub(crate) fn parameter(request: &HttpRequest, names: &[&str]) -> Option<String> {
    let mut given =
        request.query_pairs().filter(|(name, value)| names.contains(name) && !value.is_empty());
    given.next().map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(query: &str, body: &str) -> HttpRequest {
        HttpRequest { query: query.into(), body: body.into(), ..HttpRequest::default() }
    }

    #[test]
    fn members_are_objects_or_texts_with_one() {
        let read = |query: &str, body: &str| {
            let read = members(&request(query, body)).map(Value::Object);
            read.map_err(|failure| failure.error.as_str().unwrap_or_default().to_owned())
        };
        let expected = json!({"params": {"a": 1}, "planParams": {}, "sourceParams": {"b": 2}});
        assert_eq!(read("", r#"{"params":"{\"a\":1}","sourceParams":{"b":2}}"#), Ok(expected));
        let expected = json!({
            "type": "fulltext-index", "params": {}, "planParams": {"c": "+"}, "sourceParams": {},
        });
        let query = "indexType=fulltext-index&planParams=%7B%22c%22:%22%2B%22%7D";
        assert_eq!(read(query, ""), Ok(expected));
        for (body, words) in [
            ("[]", "must be an object"),
            ("{", "could not unmarshal"),
            (r#"{"params":7}"#, "params must be an object"),
            (r#"{"planParams":"{"}"#, "planParams is not JSON"),
        ] {
            let refused = read("", body).unwrap_err();
            assert!(refused.contains(words), "{body}: {refused}");
        }
    }

    #[test]
    fn names_begin_with_a_letter() {
        for name in ["a", "Z9", "a_b-c"] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        for name in ["", "9a", "_a", "a.b", "a b", "é"] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}
