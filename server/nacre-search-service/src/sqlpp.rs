//! Full-text search in SQL++: which index answers a search, its hits, and the evaluation of one document without an index.
//!
//! Requests and answers are those of the function `search` in the plugin interface `database`. The query in SQL++ is a text, a
//! query or a whole request; this module converts it into a request of the search service.

use crate::Search;
use crate::definition::{self, Control, Definition};
use crate::error::Failure;
use crate::flexible;
use crate::query::{Demand, ask};
use crate::vectors::{self, NewVectorIndex};
use nacre_auth::{Keyspace, Privilege};
use nacre_node::Node;
use nacre_node::service::QueryQuestion;
use nacre_sandbox::{DatabaseKeyspace, Request};
use nacre_types::{Seqno, Vbid};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Code of a failed evaluation. Source: Couchbase's list of error codes.
const EXECUTION: u32 = 5010;
/// Code of a missing privilege. Source: Couchbase's list of error codes.
const FORBIDDEN: u32 = 13014;
/// Header with the field of a search. The field applies to all parts of the query that do not name one.
const FIELD: &str = "nacre-field";

/// A request of a SQL++ query.
#[derive(Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
enum Question {
    /// Asks which index can answer a search, or helps with a predicate.
    Find {
        #[serde(default)]
        field: Option<String>,
        #[serde(default)]
        predicate: Option<Value>,
        #[serde(default)]
        options: Value,
    },
    /// Asks for hits.
    Hits(Hits),
    /// Asks whether one document is a hit.
    Evaluate(Evaluate),
    /// Creates a vector index.
    CreateVector(NewVectorIndex),
    /// Drops a vector index.
    DropVector { name: String },
    /// Asks for all vector indexes.
    ListVectors,
}

#[derive(Deserialize)]
struct Hits {
    /// Full name of the index.
    index: String,
    #[serde(default)]
    field: Option<String>,
    query: Value,
    /// Maximum number of hits, after the hit `after`.
    limit: u64,
    /// Sort values of the last hit.
    #[serde(default)]
    after: Value,
    #[serde(default)]
    by_score: bool,
    /// True if the hits may include documents that do not match.
    #[serde(default)]
    flexible: bool,
    #[serde(default)]
    consistency: Value,
}

#[derive(Deserialize)]
struct Evaluate {
    id: String,
    document: Value,
    #[serde(default)]
    field: Option<String>,
    query: Value,
    #[serde(default)]
    options: Value,
}

/// Answers a request.
pub(crate) fn answer(
    node: &Arc<Node>,
    question: &QueryQuestion<'_>,
) -> Result<String, nacre_sandbox::Failure> {
    let asked: Question = serde_json::from_str(question.request)
        .map_err(|error| failure(EXECUTION, format!("SEARCH: {error}")))?;
    let is_definition = matches!(asked, Question::CreateVector(_) | Question::DropVector { .. });
    let words = if is_definition { "" } else { "SEARCH: " };
    let answer = match asked {
        Question::Find { predicate: Some(predicate), options, .. } => {
            Ok(find_flexible(node, question, &predicate, &options))
        }
        Question::Find { field, options, .. } => {
            Ok(find(node, question, field.as_deref(), &options))
        }
        Question::Hits(hits) => self::hits(node, question, hits),
        Question::Evaluate(one) => evaluate(node, question, &one),
        Question::CreateVector(new) => vectors::create(node, question, &new),
        Question::DropVector { name } => vectors::drop_index(node, question, &name),
        Question::ListVectors => Ok(vectors::list(node, question.user)),
    };
    answer.map(|answer| answer.to_string()).map_err(|Failure { status, error }| {
        let text = error.as_str().map_or_else(|| error.to_string(), str::to_owned);
        failure(if status == 403 { FORBIDDEN } else { EXECUTION }, format!("{words}{text}"))
    })
}

fn failure(code: u32, message: String) -> nacre_sandbox::Failure {
    nacre_sandbox::Failure { code, message, retry: false }
}

/// Returns the index that answers a search of the keyspace, or of one of its fields: of those that can, the first that `USE INDEX` names,
/// else the first.
fn find(
    node: &Arc<Node>,
    question: &QueryQuestion<'_>,
    field: Option<&str>,
    options: &Value,
) -> Value {
    let cluster = node.cluster();
    let all = definition::all(&cluster).map(|(_, definition)| definition);
    let suitable: Vec<Definition> = all
        .filter(|definition| {
            let is_search = !vectors::is_vector_index(definition) || options["index"].is_string();
            is_search
                && suits(definition, question.keyspace, field, options)
                && definition.is_allowed(Control::Query)
                && may_search(node, question.user, definition)
        })
        .collect();
    let found = preferred(&suitable, question.keyspace, &options["use_index"]);
    found.map_or_else(|| json!({}), |definition| json!({"index": definition.name}))
}

/// Returns the index that has most of the conditions of a predicate, and the query for it. If `USE INDEX` names indexes, it is one of
/// them.
fn find_flexible(
    node: &Arc<Node>,
    question: &QueryQuestion<'_>,
    predicate: &Value,
    options: &Value,
) -> Value {
    let cluster = node.cluster();
    let keyspace = question.keyspace;
    let names = options["use_index"].as_array().map(Vec::as_slice).unwrap_or_default();
    if predicate["nearest"].is_object() {
        return vectors::find(node, keyspace, &predicate["nearest"], names);
    }
    let is_wanted = |definition: &Definition| {
        let is_named =
            |name: &str| definition.name == name || is_short_name(definition, keyspace, name);
        names.is_empty() || names.iter().filter_map(Value::as_str).any(is_named)
    };
    let mut best: Option<(usize, Value)> = None;
    for (_, definition) in definition::all(&cluster) {
        let is_usable = is_of_keyspace(&definition, keyspace)
            && is_wanted(&definition)
            && definition.is_allowed(Control::Query)
            && may_search(node, question.user, &definition);
        let Some(mapping) = mapping_of(&definition, keyspace).filter(|_| is_usable) else {
            continue;
        };
        let all = &definition.member("params")["mapping"];
        let Some((query, count)) = flexible::query(all, mapping, predicate) else { continue };
        if best.as_ref().is_none_or(|(other, _)| count > *other) {
            best = Some((count, json!({"index": definition.name, "query": query})));
        }
    }
    best.map_or_else(|| json!({}), |(_, found)| found)
}

/// Returns the first definition that `names` contains, or else the first.
fn preferred<'a>(
    suitable: &'a [Definition],
    keyspace: &DatabaseKeyspace,
    names: &Value,
) -> Option<&'a Definition> {
    let mut names = names.as_array().into_iter().flatten().filter_map(Value::as_str);
    let named = |name: &str| {
        suitable.iter().find(|one| one.name == name || is_short_name(one, keyspace, name))
    };
    names.find_map(named).or_else(|| suitable.first())
}

fn may_search(node: &Node, user: &str, definition: &Definition) -> bool {
    let users = node.users();
    definition.places().iter().all(|place| {
        let (bucket, scope) = (Some(&*place.bucket), Some(&*place.scope));
        let keyspace = Keyspace { bucket, scope, collection: Some(&*place.collection) };
        users.get(user).is_some_and(|user| user.may(Privilege::Search, keyspace))
    })
}

/// Returns true if an index contains all documents of a keyspace with one mapping that includes the field.
fn suits(
    definition: &Definition,
    keyspace: &DatabaseKeyspace,
    field: Option<&str>,
    options: &Value,
) -> bool {
    let is_named = match &options["index"] {
        Value::Null => true,
        Value::String(name) => {
            *name == definition.name || is_short_name(definition, keyspace, name)
        }
        // A mapping in the options applies to documents one by one.
        _ => false,
    };
    let is_version = options["indexUUID"].as_str().is_none_or(|uuid| uuid == definition.uuid);
    is_of_keyspace(definition, keyspace)
        && is_named
        && is_version
        && mapping_of(definition, keyspace).is_some_and(|mapping| match field {
            Some(field) => has_field(mapping, field),
            // Without `field`, the query names its fields itself. The service assumes that a named index contains them.
            None => is_dynamic(mapping) || options["index"].is_string(),
        })
}

pub(crate) fn is_of_keyspace(definition: &Definition, keyspace: &DatabaseKeyspace) -> bool {
    definition.places().iter().any(|place| {
        (&place.bucket, &place.scope, &place.collection)
            == (&keyspace.bucket, &keyspace.scope, &keyspace.collection)
    })
}

pub(crate) fn is_short_name(
    definition: &Definition,
    keyspace: &DatabaseKeyspace,
    name: &str,
) -> bool {
    definition.short_name() == name
        && definition.scope() == Some((&*keyspace.bucket, &*keyspace.scope))
}

/// Returns the mapping of all documents in a keyspace, or `None` if it depends on the document.
pub(crate) fn mapping_of<'a>(
    definition: &'a Definition,
    keyspace: &DatabaseKeyspace,
) -> Option<&'a Value> {
    let mapping = &definition.member("params")["mapping"];
    let types = mapping["types"].as_object();
    let mut enabled = types.into_iter().flatten().filter(|(_, mapping)| is_enabled(mapping));
    let default = Some(&mapping["default_mapping"]).filter(|mapping| is_enabled(mapping));
    if !definition.is_by_collection() {
        return if enabled.next().is_none() { default } else { None };
    }
    let collection = format!("{}.{}", keyspace.scope, keyspace.collection);
    let of_type = format!("{collection}.");
    let mut own = enabled.filter(|(name, _)| **name == collection || name.starts_with(&of_type));
    match (own.next(), own.next()) {
        (None, _) => default.filter(|_| collection == "_default._default"),
        (Some((name, mapping)), None) if *name == collection => Some(mapping),
        _ => None,
    }
}

pub(crate) fn is_enabled(mapping: &Value) -> bool {
    mapping["enabled"].as_bool().unwrap_or(true)
}

pub(crate) fn is_dynamic(mapping: &Value) -> bool {
    is_enabled(mapping) && mapping["dynamic"].as_bool().unwrap_or(true)
}

fn has_field(root: &Value, field: &str) -> bool {
    let mut mapping = root;
    for part in field.split('.') {
        if !is_enabled(mapping) {
            return false;
        }
        match mapping["properties"].get(part) {
            Some(property) => mapping = property,
            None => return is_dynamic(mapping),
        }
    }
    let fields = mapping["fields"].as_array().into_iter().flatten();
    let is_indexed = |field: &Value| field["index"].as_bool().unwrap_or(false);
    is_enabled(mapping) && fields.into_iter().any(is_indexed)
}

/// Converts the second argument of SEARCH into a request.
fn request_of(query: &Value) -> Result<Map<String, Value>, Failure> {
    match query {
        Value::String(text) => Ok(Map::from_iter([("query".into(), json!({"query": text}))])),
        Value::Object(members) if is_request(members) => Ok(members.clone()),
        Value::Object(_) => Ok(Map::from_iter([("query".into(), query.clone())])),
        _ => Err(Failure::bad_request("the query is a text or an object")),
    }
}

/// Returns true if an object is a whole request rather than a query. One kind of query has a member `query` too, but
/// with a text.
fn is_request(members: &Map<String, Value>) -> bool {
    members.get("query").is_some_and(|query| query.is_object() || query.is_null())
        || members.contains_key("knn")
}

fn header(field: Option<&String>) -> Vec<(String, String)> {
    field.map(|field| (FIELD.to_owned(), field.clone())).into_iter().collect()
}

fn hits(node: &Arc<Node>, question: &QueryQuestion<'_>, asked: Hits) -> Result<Value, Failure> {
    let definition = definition::get(&node.cluster(), &asked.index)
        .ok_or_else(|| Failure::no_index(&asked.index))?;
    let is_neighbours = asked.query["knn"].is_array();
    let is_open = is_neighbours && vectors::may_use(&definition, question.keyspace);
    if !is_open && !may_search(node, question.user, &definition) {
        return Err(Failure::forbidden(&format!("cluster.{}.fts!read", definition.name)));
    }
    let mut request = request_of(&asked.query)?;
    let own_size = request.get("size").or_else(|| request.get("limit")).is_some();
    if !own_size {
        request.insert("size".into(), asked.limit.into());
        let sort = match request.get("sort") {
            Some(Value::Array(sort)) if !sort.is_empty() => {
                sort.iter().cloned().chain([json!("_id")]).collect()
            }
            _ if asked.by_score => json!(["-_score", "_id"]),
            _ => json!(["_id"]),
        };
        request.insert("sort".into(), sort);
        if asked.after.is_array() {
            request.insert("search_after".into(), asked.after);
        }
    }
    if definition.is_by_collection() {
        request.insert("collections".into(), json!([question.keyspace.collection]));
    }
    // Timeout and consistency come from the statement instead.
    request.remove("ctl");
    let mut demand = demand(&definition, question, &asked.consistency);
    // An index lacks documents while it is built.
    demand.is_fresh |= is_open && !vectors::is_complete(node, &definition);
    let send = |request: &Map<String, Value>| {
        let body = serde_json::to_vec(request).unwrap_or_default();
        let headers = header(asked.field.as_ref());
        let asked_for = Request { path: "/query".into(), headers, body, ..Request::default() };
        whole(&ask(node, question.user, &definition, &demand, asked_for)?.body)
    };
    let mut answer = match send(&request) {
        // The statement tests each document, so that all documents are an answer, too.
        Err(failure) if asked.flexible && is_too_wide(&failure) => {
            if is_neighbours {
                vectors::widen(&mut request);
            } else {
                request.insert("query".into(), json!({"match_all": {}}));
            }
            send(&request)?
        }
        answer => answer?,
    };
    let mut hits = answer["hits"].take();
    let rows = hits.as_array_mut().map(Vec::as_mut_slice).unwrap_or_default();
    let is_page = !own_size && rows.len() as u64 >= asked.limit;
    let last = rows.last().filter(|_| is_page).map(place);
    for row in rows.iter_mut().filter_map(Value::as_object_mut) {
        row.remove("sort");
    }
    Ok(match last {
        Some(after) => json!({"hits": hits, "after": after}),
        None => json!({"hits": hits}),
    })
}

/// Parses an answer, which must contain the parts of all partitions.
fn whole(body: &[u8]) -> Result<Value, Failure> {
    let answer: Value =
        serde_json::from_slice(body).map_err(|error| Failure::new(500, error.to_string()))?;
    let errors = answer["status"]["errors"].as_object();
    match errors.and_then(|all| all.iter().next()) {
        Some((name, error)) => Err(Failure::new(500, format!("{name}: {error}"))),
        None => Ok(answer),
    }
}

/// Returns true if a range or a prefix has more terms than a query may have.
fn is_too_wide(failure: &Failure) -> bool {
    failure.error.as_str().is_some_and(|text| text.contains("TooManyClauses"))
}

/// Returns a hit's sort values for `search_after`. Hits do not show their score among the sort values.
fn place(hit: &Value) -> Value {
    let keys = hit["sort"].as_array().into_iter().flatten();
    keys.map(|key| if key == "_score" { hit["score"].to_string().into() } else { key.clone() })
        .collect()
}

/// Returns the required consistency of the hits, according to the statement.
fn demand(definition: &Definition, question: &QueryQuestion<'_>, consistency: &Value) -> Demand {
    let mut demand = Demand { patience: question.left, ..Demand::default() };
    match consistency["level"].as_str().unwrap_or_default() {
        "" | "not_bounded" => {}
        "at_plus" => {
            let vectors = &consistency["vectors"];
            let of_bucket = vectors.get(&*question.keyspace.bucket).unwrap_or(vectors);
            match vector(of_bucket) {
                Some(seqnos) => drop(demand.vectors.insert(definition.name.clone(), seqnos)),
                // For a vector in another format, the answer must reflect all earlier writes.
                None => demand.is_fresh = true,
            }
        }
        _ => demand.is_fresh = true,
    }
    demand
}

/// Parses a sparse vector: `{"VBUCKET": [SEQNO, UUID]}`.
fn vector(value: &Value) -> Option<Vec<(Vbid, Seqno)>> {
    let entry = |(vbid, entry): (&String, &Value)| {
        Some((Vbid(vbid.parse().ok()?), Seqno(entry[0].as_u64()?)))
    };
    value.as_object()?.iter().map(entry).collect()
}

/// Returns the parameters of an index for one document: those of the named index, the given mapping, or none.
fn params_of(node: &Node, question: &QueryQuestion<'_>, options: &Value) -> Result<Value, Failure> {
    match &options["index"] {
        Value::Null => Ok(Value::Null),
        Value::String(name) => {
            let cluster = node.cluster();
            let mut all = definition::all(&cluster).map(|(_, definition)| definition);
            let found =
                all.find(|one| one.name == *name || is_short_name(one, question.keyspace, name));
            let found = found.filter(|found| may_search(node, question.user, found));
            found.map(|found| found.member("params").clone()).ok_or_else(|| Failure::no_index(name))
        }
        Value::Object(members) if members.contains_key("params") => Ok(members["params"].clone()),
        Value::Object(members) if members.contains_key("mapping") => Ok(options["index"].clone()),
        Value::Object(members) => Ok(json!({"mapping": members})),
        _ => Err(Failure::bad_request("the option index is a name or a mapping")),
    }
}

fn evaluate(
    node: &Arc<Node>,
    question: &QueryQuestion<'_>,
    one: &Evaluate,
) -> Result<Value, Failure> {
    let mut request = request_of(&one.query)?;
    request.insert("size".into(), 1.into());
    for member in ["from", "limit", "offset", "ctl", "search_after", "search_before"] {
        request.remove(member);
    }
    let keyspace = question.keyspace;
    let body = json!({
        "params": params_of(node, question, &one.options)?,
        "scope": keyspace.scope,
        "collection": keyspace.collection,
        "documents": [{"id": one.id, "body": one.document}],
        "request": request,
    });
    let asked = Request {
        method: "POST".into(),
        path: "/evaluate".into(),
        headers: header(one.field.as_ref()),
        body: body.to_string().into_bytes(),
        ..Request::default()
    };
    let account = node.memory().budgets().of_user(nacre_auth::person(question.user));
    let reader = Search::of(node).evaluator(node)?;
    let answer = reader.handle_for(&asked, node.now(), Some(account));
    let answer = answer.and_then(nacre_sandbox::Answer::collect);
    let answer = answer.map_err(|error| Failure::new(500, error.to_string()))?;
    let mut body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    if answer.status != 200 {
        let text = body["error"].as_str().unwrap_or("the search component does not answer");
        return Err(Failure::new(answer.status, text));
    }
    let hit = body["hits"].get_mut(0).map(Value::take);
    Ok(hit.map_or_else(
        || json!({}),
        |mut hit| {
            if let Some(hit) = hit.as_object_mut() {
                hit.remove("sort");
            }
            json!({"hit": hit})
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(params: Value) -> Definition {
        let members = json!({"type": definition::INDEX, "sourceName": "b", "params": params});
        let Value::Object(members) = members else { panic!("members are an object") };
        Definition::new("b.s.i", "u", "0", members)
    }

    fn keyspace(scope: &str, collection: &str) -> DatabaseKeyspace {
        DatabaseKeyspace { bucket: "b".into(), scope: scope.into(), collection: collection.into() }
    }

    #[test]
    fn an_index_answers_for_the_fields_of_its_mapping() {
        let default = keyspace("_default", "_default");
        let suits = |params: &Value, field: Option<&str>| {
            super::suits(&index(params.clone()), &default, field, &Value::Null)
        };
        assert!(suits(&Value::Null, Some("a.b")) && suits(&Value::Null, None));
        let text = json!({"fields": [{"type": "text", "index": true}]});
        let unindexed = json!({"fields": [{"type": "text"}]});
        let properties = json!({"a": text, "o": {"properties": {"b": text}}, "c": unindexed});
        let mapping = json!({"default_mapping": {"dynamic": false, "properties": properties}});
        let fixed = json!({"mapping": mapping});
        for (field, expected) in
            [("a", true), ("o.b", true), ("c", false), ("d", false), ("o", false), ("o.c", true)]
        {
            assert_eq!(suits(&fixed, Some(field)), expected, "{field}");
        }
        assert!(!suits(&fixed, None), "the fields of the query are not known");
        let typed = json!({"mapping": {"types": {"beer": {}}}});
        assert!(!suits(&typed, Some("a")), "its documents have several mappings");
        assert!(!suits(&json!({"mapping": {"default_mapping": {"enabled": false}}}), Some("a")));
    }

    #[test]
    fn an_index_answers_for_its_collections_and_by_its_names() {
        let mapping =
            json!({"default_mapping": {"enabled": false}, "types": {"s.c": {}, "s.d.beer": {}}});
        let mode = json!({"mode": "scope.collection.type_field"});
        let index = index(json!({"doc_config": mode, "mapping": mapping}));
        let suits = |collection: &str, options: Value| {
            super::suits(&index, &keyspace("s", collection), Some("a"), &options)
        };
        assert!(suits("c", Value::Null) && suits("c", json!({"index": "i"})));
        assert!(suits("c", json!({"index": "b.s.i", "indexUUID": "u"})));
        assert!(!suits("c", json!({"index": "j"})) && !suits("c", json!({"indexUUID": "v"})));
        assert!(!suits("c", json!({"index": {"default_mapping": {}}})));
        assert!(!suits("d", Value::Null) && !suits("e", Value::Null));
    }

    #[test]
    fn an_index_that_the_statement_names_is_preferred() {
        let keyspace = keyspace("s", "c");
        let of = |name: &str| Definition::new(name, "u", "0", Map::new());
        let all = [of("first"), of("b.s.i"), of("b.s.j")];
        let chosen = |names: Value| {
            preferred(&all, &keyspace, &names).map(|definition| definition.name.clone())
        };
        for (names, expected) in [
            (Value::Null, "first"),
            (json!(["j"]), "b.s.j"),
            (json!(["b.s.i", "j"]), "b.s.i"),
            (json!(["none", "i"]), "b.s.i"),
            (json!(["none"]), "first"),
        ] {
            assert_eq!(chosen(names.clone()).as_deref(), Some(expected), "{names}");
        }
        assert_eq!(preferred(&[], &keyspace, &json!(["i"])), None);
    }

    #[test]
    fn a_query_is_a_text_or_a_query_or_a_request() {
        let of = |query: Value| request_of(&query).map(Value::Object).ok();
        assert_eq!(of(json!("a b")), Some(json!({"query": {"query": "a b"}})));
        assert_eq!(of(json!({"match": "a"})), Some(json!({"query": {"match": "a"}})));
        assert_eq!(of(json!({"query": "+a"})), Some(json!({"query": {"query": "+a"}})));
        let request = json!({"query": {"match": "a"}, "size": 3});
        assert_eq!(of(request.clone()), Some(request));
        assert_eq!(of(json!(["a"])), None);
    }

    #[test]
    fn consistency_comes_from_the_statement() {
        let (index, keyspace) = (index(Value::Null), keyspace("_default", "_default"));
        let left = std::time::Duration::from_secs(1);
        let question = QueryQuestion { user: "u", keyspace: &keyspace, request: "", left };
        let of = |level: &str, vectors: Value| {
            demand(&index, &question, &json!({"level": level, "vectors": vectors}))
        };
        assert!(
            !of("not_bounded", Value::Null).is_fresh && of("request_plus", Value::Null).is_fresh
        );
        let vector = json!({"7": [3, "12"]});
        let expected = vec![(Vbid(7), Seqno(3))];
        for vectors in [vector.clone(), json!({"b": vector})] {
            assert_eq!(of("at_plus", vectors).vectors["b.s.i"], expected);
        }
        assert!(of("at_plus", json!([[1, "2"]])).is_fresh);
    }
}
