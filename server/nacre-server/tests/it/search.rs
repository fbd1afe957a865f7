//! Search from outside: endpoints in the words that clients look for, rights, restarts, and several nodes.

use crate::cluster::Node;
use crate::copies::{AMBIGUOUS, OP_SET, SmartClient, WRITE_IN_PROGRESS, is_rebalancing, rebalance};
use crate::process::{BUCKET, PASSWORD, Server, USER, from_env};
use crate::spread::{self, SetAtLast, nodes_with_bucket, rows};
use nacre_conformance::http;
use nacre_types::Vbid;
use serde_json::{Value, json};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Port of the service relative to the others.
const SEARCH: u16 = 3;
/// The same of the query service.
const QUERY: u16 = 2;
/// Status of a key without a document.
const NOT_FOUND: u16 = 1;
const PATIENCE: Duration = Duration::from_secs(120);

type Login<'a> = Option<(&'a str, &'a str)>;

fn ask_as(
    login: Login<'_>,
    port_base: u16,
    method: &str,
    path: &str,
    body: &Value,
) -> (u16, Value) {
    let address = format!("127.0.0.1:{}", port_base + SEARCH);
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let json = "application/json";
    let answer =
        http::request_within(PATIENCE, &address, method, path, login, json, body.as_bytes());
    let answer = answer.unwrap();
    let text = answer.text();
    (answer.status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

fn ask(port_base: u16, method: &str, path: &str, body: &Value) -> (u16, Value) {
    ask_as(Some((USER, PASSWORD)), port_base, method, path, body)
}

fn succeed(port_base: u16, method: &str, path: &str, body: &Value) -> Value {
    let (status, answer) = ask(port_base, method, path, body);
    let hint = "`cargo xtask plugins` builds what the tests need";
    assert_eq!((status, &answer["status"]), (200, &json!("ok")), "{path}: {answer} ({hint})");
    answer
}

/// The text of a refusal.
fn refused(port_base: u16, method: &str, path: &str, body: &Value) -> String {
    let (status, answer) = ask(port_base, method, path, body);
    assert_eq!((status, &answer["status"]), (400, &json!("fail")), "{method} {path}: {answer}");
    answer["error"].as_str().unwrap().to_owned()
}

fn index_of(bucket: &str) -> Value {
    json!({"type": "fulltext-index", "sourceType": "couchbase", "sourceName": bucket})
}

/// Members by which a query sees all that was written before.
fn fresh() -> Value {
    json!({"timeout": 60_000, "consistency": {"level": "scan_plus"}})
}

/// IDs of the hits of a query that sees all that was written before, and how many there are in all.
fn found(port_base: u16, path: &str, query: &Value) -> (Vec<String>, u64) {
    let body = json!({"query": query, "sort": ["_id"], "size": 1000, "ctl": fresh()});
    let (status, answer) = ask(port_base, "POST", &format!("{path}/query"), &body);
    assert_eq!(status, 200, "{path}: {answer}");
    assert_eq!(answer["status"]["failed"], 0, "{answer}");
    assert!(answer["took"].as_u64().unwrap() > 0, "{answer}");
    let ids = answer["hits"].as_array().unwrap().iter();
    let ids = ids.map(|hit| hit["id"].as_str().unwrap().to_owned()).collect();
    (ids, answer["total_hits"].as_u64().unwrap())
}

pub(crate) fn write(server: &Server, documents: &[(&str, &str)]) {
    let mut client = server.client();
    for (key, body) in documents {
        assert_eq!(client.set(key.as_bytes(), body.as_bytes()).unwrap().status, 0);
    }
}

#[test]
fn an_index_is_made_asked_changed_and_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let base = server.port_base;
    write(&server, &[("a", r#"{"t":"red wine","n":1}"#), ("b", r#"{"t":"white wine","n":2}"#)]);
    assert_eq!(
        succeed(base, "GET", "/api/index", &Value::Null)["indexDefs"]["indexDefs"],
        json!({})
    );
    for (method, path) in [
        ("GET", "/api/index/i"),
        ("DELETE", "/api/index/i"),
        ("GET", "/api/index/i/count"),
        ("GET", "/api/index/i/status"),
        ("POST", "/api/index/i/query"),
        ("POST", "/api/index/i/analyzeDoc"),
        ("POST", "/api/index/i/ingestControl/pause"),
        ("POST", "/api/index/i/queryControl/allow"),
        ("POST", "/api/index/i/planFreezeControl/freeze"),
    ] {
        let text = refused(base, method, path, &Value::Null);
        assert!(text.contains("index not found"), "{path}: {text}");
    }
    let made = succeed(base, "PUT", "/api/index/i", &index_of(BUCKET));
    assert_eq!(made["name"], "i");
    let text = refused(base, "PUT", "/api/index/i", &index_of(BUCKET));
    assert!(text.contains("index with the same name already exists"), "{text}");
    let (ids, total) = found(base, "/api/index/i", &json!({"match": "wine", "field": "t"}));
    assert_eq!((ids, total), (vec!["a".to_owned(), "b".to_owned()], 2));
    assert_eq!(succeed(base, "GET", "/api/index/i/count", &Value::Null)["count"], 2);
    assert_eq!(succeed(base, "GET", "/api/index/i/status", &Value::Null)["indexStatus"], "Ready");
    let analyzed = succeed(base, "POST", "/api/index/i/analyzeDoc", &json!({"t": "Red"}));
    assert_eq!(analyzed["analyzed"][0]["red"]["Term"], "cmVk");
    let text = refused(base, "POST", "/api/index/i/query", &json!({"query": {"no": 1}}));
    assert_eq!(text, "rest_index: Query, indexName: i, err: unknown query type");

    for (query, words) in [
        (json!({"regexp": "(a{1000}){1000}", "field": "t"}), "too many instructions"),
        (json!({"query": "\"open"}), "unterminated quote"),
        (json!({"match": "a", "fuzziness": 9}), "fuzziness exceeds max (2)"),
    ] {
        let text = refused(base, "POST", "/api/index/i/query", &json!({"query": query}));
        assert!(text.to_lowercase().contains(words), "{text}");
    }
    let (open, close) = (r#"{"conjuncts":["#.repeat(10_000), "]}".repeat(10_000));
    let deep = format!(r#"{{"query":{open}{{"match_all":{{}}}}{close}}}"#);
    let (address, login) = (format!("127.0.0.1:{}", base + SEARCH), Some((USER, PASSWORD)));
    let (path, json) = ("/api/index/i/query", "application/json");
    let answer = http::request(&address, "POST", path, login, json, deep.as_bytes()).unwrap();
    assert_eq!(answer.status, 400, "{}", answer.text());
    let far = json!({"query": {"match_all": {}}, "from": 9_999, "size": 2});
    let text = refused(base, "POST", "/api/index/i/query", &far);
    assert!(text.contains("bleveMaxResultWindow exceeded"), "{text}");

    let shown = succeed(base, "GET", "/api/index/i", &Value::Null);
    let (definition, uuid) = (shown["indexDef"].clone(), made["uuid"].clone());
    assert_eq!((&definition["uuid"], &definition["sourceType"]), (&uuid, &json!("gocbcore")));
    assert_eq!(shown["planPIndexes"].as_array().unwrap().len(), 1);
    for (wrong, words) in [
        ("00", "did not match input UUID"),
        ("*", ""),
        (uuid.as_str().unwrap(), "did not match input UUID"),
    ] {
        let mut changed = definition.clone();
        changed["uuid"] = wrong.into();
        match words {
            "" => drop(succeed(base, "PUT", "/api/index/i", &changed)),
            words => {
                let text = refused(base, "PUT", "/api/index/i", &changed);
                assert!(text.contains(words), "{text}");
            }
        }
    }
    // Another mapping is built beside the index, which answers meanwhile.
    let mut changed = index_of(BUCKET);
    changed["uuid"] = "*".into();
    changed["params"] = json!({"mapping": {"default_analyzer": "keyword"}});
    succeed(base, "PUT", "/api/index/i", &changed);
    let mut server = server;
    server.wait_for("the other mapping", |_| {
        let (ids, _) = found(base, "/api/index/i", &json!({"term": "red wine", "field": "t"}));
        (ids == ["a"]).then_some(())
    });

    succeed(base, "POST", "/api/index/i/ingestControl/pause", &Value::Null);
    write(&server, &[("c", r#"{"t":"rose"}"#)]);
    assert_eq!(succeed(base, "GET", "/api/index/i/count", &Value::Null)["count"], 2);
    let body = json!({"query": {"match_all": {}}, "ctl": {"consistency": {"level": "scan_plus"}}});
    assert_eq!(ask(base, "POST", "/api/index/i/query", &body).0, 412, "it takes nothing");
    succeed(base, "POST", "/api/index/i/ingestControl/resume", &Value::Null);
    assert_eq!(found(base, "/api/index/i", &json!({"match_all": {}})).1, 3);
    succeed(base, "POST", "/api/index/i/queryControl/disallow", &Value::Null);
    let text = refused(base, "POST", "/api/index/i/query", &body);
    assert!(text.contains("queries are disallowed"), "{text}");
    succeed(base, "POST", "/api/index/i/queryControl/allow", &Value::Null);
    let text = refused(base, "POST", "/api/index/i/queryControl/think", &Value::Null);
    assert_eq!(text, "unsupported op: think");
    let stats = ask(base, "GET", "/api/nsstats/index/i", &Value::Null).1;
    assert_eq!(stats[format!("{BUCKET}:i:doc_count")], 3);
    assert_eq!(ask(base, "GET", "/api/ping", &Value::Null), (200, json!("")));

    succeed(base, "DELETE", "/api/index/i", &Value::Null);
    assert!(refused(base, "GET", "/api/index/i", &Value::Null).contains("index not found"));
    assert_eq!(ask(base, "GET", "/api/nothing", &Value::Null).0, 404);
}

#[test]
fn controls_are_part_of_the_definition_and_statistics_say_what_is_indexed() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let base = server.port_base;
    write(&server, &[("a", r#"{"t":"wine"}"#)]);
    let index = "/api/index/i";
    let made = succeed(base, "PUT", index, &index_of(BUCKET));
    let uuid = made["uuid"].as_str().unwrap();
    succeed(base, "GET", &format!("{index}?indexUUID={uuid}"), &Value::Null);
    let text = refused(base, "GET", &format!("{index}?indexUUID=00"), &Value::Null);
    assert!(text.contains("wrong index UUID"), "{text}");
    let control = |operation: &str| {
        succeed(base, "POST", &format!("{index}/{operation}"), &Value::Null);
        succeed(base, "GET", index, &Value::Null)["indexDef"].clone()
    };
    let frozen = control("planFreezeControl/freeze");
    assert_eq!(frozen["planParams"]["planFrozen"], true);
    assert_ne!(frozen["uuid"], made["uuid"], "each control is a version");
    let mut parted = index_of(BUCKET);
    parted["uuid"] = "*".into();
    parted["planParams"] = json!({"indexPartitions": 2});
    let text = refused(base, "PUT", index, &parted);
    let words = "cannot update partition or replica count for a planFrozen index";
    assert!(text.contains(words), "{text}");
    assert_eq!(control("planFreezeControl/unfreeze")["planParams"]["planFrozen"], Value::Null);
    succeed(base, "PUT", index, &parted);
    for (operation, read, write) in
        [("ingestControl/pause", true, false), ("queryControl/disallow", false, false)]
    {
        let of_node = control(operation)["planParams"]["nodePlanParams"][""][""].clone();
        assert_eq!(of_node, json!({"canRead": read, "canWrite": write}), "{operation}");
    }
    control("ingestControl/resume");
    let allowed = control("queryControl/allow");
    assert_eq!(allowed["planParams"], json!({"indexPartitions": 2}));
    assert_eq!(found(base, index, &json!({"match": "wine"})).1, 1);
    let progress = succeed(base, "GET", "/api/stats/index/i/progress", &Value::Null);
    let reached = (&progress["doc_count"], &progress["num_mutations_to_index"]);
    assert_eq!(reached, (&json!(1), &json!(0)), "{progress}");
    assert_eq!(progress["ingest_status"], "ready");
    let stats = ask(base, "GET", "/api/nsstats", &Value::Null).1;
    assert_eq!(stats[format!("{BUCKET}:i:doc_count")], 1, "{stats}");
    assert!(stats["total_queries"].as_u64().unwrap() > 0, "{stats}");
    let options = succeed(base, "GET", "/api/conciseOptions", &Value::Null);
    assert_eq!(options["bleveMaxResultWindow"], "10000");
}

#[test]
fn unsupported_definitions_are_refused_with_known_messages() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let base = server.port_base;
    let refuse = |path: &str, body: Value, words: &str| {
        let text = refused(base, "PUT", path, &body);
        assert!(text.contains(words), "{path} {body}: {text}");
        assert!(text.starts_with("rest_create_index: error creating index: "), "{text}");
    };
    let with = |name: &str, value: Value| {
        let mut body = index_of(BUCKET);
        body[name] = value;
        body
    };
    let index = "/api/index/i";
    refuse("/api/index/9", index_of(BUCKET), "indexName is invalid");
    refuse("/api/index/a.b", index_of(BUCKET), "indexName is invalid");
    refuse(index, with("type", json!("")), "index type is required");
    refuse(index, with("type", json!("other")), "unknown indexType: other");
    refuse(index, with("sourceType", json!("")), "sourceType is required");
    refuse(index, with("sourceName", json!("none")), "failed to connect to");
    refuse(index, with("sourceUUID", json!("x")), "sourceUUID mismatched for sourceName");
    refuse(index, with("uuid", json!("7")), "index missing for update");
    refuse(index, with("params", json!("{")), "params is not JSON");
    let analyzer = json!({"mapping": {"default_analyzer": "nope"}});
    refuse(index, with("params", analyzer), "no analyzer with name or type 'nope' registered");
    let filters = json!({"f": {"type": "hierarchy"}});
    let filters = json!({"mapping": {"analysis": {"token_filters": filters}}});
    refuse(index, with("params", filters), "must specify delimiter");
    refuse(index, with("planParams", json!({"numReplicas": 9})), "maxReplicasAllowed: '3'");
    let words = "cluster needs 2 search nodes to support the requested replica count of 1";
    refuse(index, with("planParams", json!({"numReplicas": 1})), words);
    let words = "cannot create index with 2000 partitions";
    refuse(index, with("planParams", json!({"indexPartitions": 2000})), words);
    let by_collection = |types: Value| {
        let mode = json!({"mode": "scope.collection.type_field"});
        let mapping = json!({"default_mapping": {"enabled": false}, "types": types});
        with("params", json!({"doc_config": mode, "mapping": mapping}))
    };
    refuse(index, by_collection(json!({"s.c": {}})), "scope: 's' not found in bucket");
    refuse(index, by_collection(json!({"s.c": {}, "t.c": {}})), "multiple scopes found");
    let words = "collection: 'c' doesn't belong to scope: '_default'";
    refuse(index, by_collection(json!({"_default.c": {}})), words);
    let scoped = format!("/api/bucket/{BUCKET}/scope/_default/index/i");
    refuse(&scoped, by_collection(json!({"s.c": {}})), "doesn't belong to scope");
    let alias = |targets: Value| json!({"type": "fulltext-alias", "params": {"targets": targets}});
    refuse(index, alias(json!({})), "no index targets were specified");
    refuse(index, alias(json!({"i": {}})), "target of its own");
    refuse(&scoped, alias(json!({"j": {}})), "index not found");
    let text = refused(base, "PUT", index, &json!([1]));
    assert!(text.contains("the definition must be an object"), "{text}");
    let huge = with("params", json!({"padding": "x".repeat(2 << 20)}));
    refuse(index, huge, "A record has a body of at most");
    // An alias may come before its target.
    succeed(base, "PUT", "/api/index/later", &alias(json!({"i": {}})));
    let text = refused(base, "POST", "/api/index/later/query", &json!({"query": {}}));
    assert!(text.contains("the alias depends upon a target index that does not exist"), "{text}");
    succeed(base, "PUT", index, &index_of(BUCKET));
    succeed(base, "PUT", "/api/index/j", &index_of(BUCKET));
    let mut both = alias(json!({"i": {}, "j": {}}));
    both["uuid"] = "*".into();
    succeed(base, "PUT", "/api/index/later", &both);
    write(&server, &[("a", r#"{"t":"wine"}"#)]);
    let (ids, total) = found(base, "/api/index/later", &json!({"match": "wine"}));
    assert_eq!((ids, total), (vec!["a".to_owned(), "a".to_owned()], 2), "once of each target");
    // Indexes end with their bucket, aliases of all buckets do not.
    assert_eq!(
        server.rest("DELETE", &format!("/pools/default/buckets/{BUCKET}"), "").unwrap().status,
        200
    );
    let left = succeed(base, "GET", "/api/index", &Value::Null)["indexDefs"]["indexDefs"].clone();
    assert_eq!(left.as_object().unwrap().keys().collect::<Vec<_>>(), ["later"]);
}

#[test]
fn strangers_and_users_without_the_right_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let base = server.port_base;
    let scope = format!("/pools/default/buckets/{BUCKET}/scopes");
    assert_eq!(server.rest("POST", &scope, "name=s").unwrap().status, 200);
    for collection in ["open", "shut"] {
        let path = format!("{scope}/s/collections");
        let form = format!("name={collection}");
        assert_eq!(server.rest("POST", &path, &form).unwrap().status, 200);
    }
    let scoped = format!("/api/bucket/{BUCKET}/scope/s/index");
    let shut = json!({"en": {"collection": "shut", "analyzer": "en"}});
    for (name, types, synonyms) in [
        ("one", json!({"s.open": {}}), json!({})),
        ("two", json!({"s.open": {}, "s.shut": {}}), json!({})),
        ("three", json!({"s.open": {}}), shut),
    ] {
        let mut body = index_of(BUCKET);
        body["params"] = json!({
            "doc_config": {"mode": "scope.collection.type_field"},
            "mapping": {
                "default_mapping": {"enabled": false},
                "types": types,
                "analysis": {"synonym_sources": synonyms},
            },
        });
        succeed(base, "PUT", &format!("{scoped}/{name}"), &body);
    }
    for (user, roles) in [
        ("nobody", "data_reader[*]".to_owned()),
        ("reader", format!("fts_searcher[{BUCKET}:s:open]")),
        ("admin", format!("fts_admin[{BUCKET}]")),
    ] {
        let path = format!("/settings/rbac/users/local/{user}");
        let form = format!("password=secret&roles={roles}");
        let answer = server.rest("PUT", &path, &form).unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let query = json!({"query": {"match_all": {}}});
    let routes = [
        ("GET", "", false),
        ("POST", "/query", false),
        ("GET", "/count", false),
        ("GET", "/status", false),
        ("POST", "/analyzeDoc", false),
        ("POST", "/ingestControl/pause", true),
        ("POST", "/ingestControl/resume", true),
        ("POST", "/planFreezeControl/freeze", true),
        ("POST", "/planFreezeControl/unfreeze", true),
        ("POST", "/queryControl/allow", true),
    ];
    let global = format!("/api/index/{BUCKET}.s");
    for (method, route, is_write) in routes {
        for name in ["one", "two", "three"] {
            for path in [format!("{scoped}/{name}{route}"), format!("{global}.{name}{route}")] {
                let status = |login| ask_as(login, base, method, &path, &query).0;
                assert_eq!(status(None), 401, "{path}");
                assert_eq!(status(Some(("nobody", "secret"))), 403, "{path}");
                let may_read = name == "one" && !is_write;
                let expected = if may_read { 200 } else { 403 };
                assert_eq!(status(Some(("reader", "secret"))), expected, "{path}");
                assert_eq!(status(Some(("admin", "secret"))), 200, "{path}");
            }
        }
    }
    for (method, path) in [("PUT", format!("{scoped}/new")), ("DELETE", format!("{scoped}/one"))] {
        let status = |login| ask_as(login, base, method, &path, &index_of(BUCKET)).0;
        assert_eq!(status(None), 401);
        assert_eq!(status(Some(("nobody", "secret"))), 403);
        assert_eq!(status(Some(("reader", "secret"))), 403);
    }
    for path in ["/api/index", "/api/nsstats", "/api/stats", "/api/ping", "/api/conciseOptions"] {
        assert_eq!(ask_as(None, base, "GET", path, &Value::Null).0, 401, "{path}");
    }
    let listed = |user: &str| {
        let (status, list) = ask_as(Some((user, "secret")), base, "GET", &scoped, &Value::Null);
        assert_eq!(status, 200);
        let list = list["indexDefs"]["indexDefs"].as_object().unwrap().clone();
        list.values().map(|one| one["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(listed("nobody"), [""; 0]);
    assert_eq!(listed("reader"), ["one"]);
    assert_eq!(listed("admin"), ["one", "three", "two"]);
    // Where there is nothing to see, only those who may search learn that.
    let missing = |user: &str| {
        let path = "/api/index/none/query";
        ask_as(Some((user, "secret")), base, "POST", path, &query).0
    };
    assert_eq!((missing("nobody"), missing("reader")), (403, 400));
    let (_, stats) = ask_as(Some(("nobody", "secret")), base, "GET", "/api/nsstats", &Value::Null);
    assert!(!stats.to_string().contains("doc_count"), "{stats}");
}

/// Number of keys that the client of a killed node writes.
const KILLED_KEYS: u64 = 2000;

fn killed_key(number: u64) -> String {
    format!("k{number:04}")
}

/// Checks that the index has exactly the documents that reads by key return, each once and in its current version.
fn check_against_keys(server: &Server) {
    let body = json!({
        "query": {"match": "pearl", "field": "t"},
        "fields": ["n"],
        "sort": ["_id"],
        "size": 10_000,
        "ctl": fresh(),
    });
    let (status, answer) = ask(server.port_base, "POST", "/api/index/i/query", &body);
    assert_eq!((status, &answer["status"]["failed"]), (200, &json!(0)), "{}", answer["status"]);
    let hit = |hit: &Value| {
        (hit["id"].as_str().unwrap().to_owned(), hit["fields"]["n"].as_f64().unwrap())
    };
    let hits: Vec<(String, f64)> = answer["hits"].as_array().unwrap().iter().map(hit).collect();
    let mut client = server.client();
    let mut stored = Vec::new();
    for number in 0..KILLED_KEYS {
        let key = killed_key(number);
        let reply = client.get(key.as_bytes()).unwrap();
        assert!(matches!(reply.status, 0 | NOT_FOUND), "{key}: {:#x}", reply.status);
        if reply.status == 0 {
            let document: Value = serde_json::from_slice(&reply.value).unwrap();
            stored.push((key, document["n"].as_f64().unwrap()));
        }
    }
    assert_eq!(answer["total_hits"], stored.len());
    let first = hits.iter().zip(&stored).find(|(hit, document)| hit != document);
    assert_eq!(first, None, "the first difference: a hit and a document");
    assert_eq!(hits.len(), stored.len());
}

#[test]
fn a_node_that_was_killed_finds_everything_once_after_its_restart() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let port_base = server.port_base;
    succeed(port_base, "PUT", "/api/index/i", &index_of(BUCKET));
    let mut written = 0;
    let mut server = Some(server);
    for round in 0..from_env("NACRE_SEARCH_KILLS", 3) {
        let running = server.take().unwrap();
        let mut client = running.client();
        // Updates and deletions make the index mark and merge segments. Their number differs by round, and so the moment of the kill.
        for _ in 0..400 + round * 37 % 200 {
            written += 1;
            let key = killed_key(written * 7919 % KILLED_KEYS);
            let reply = if written % 7 == 0 {
                client.delete(key.as_bytes(), 0)
            } else {
                let body = json!({"t": "pearl", "n": written}).to_string();
                client.set(key.as_bytes(), body.as_bytes())
            };
            let status = reply.unwrap().status;
            assert!(matches!(status, 0 | NOT_FOUND), "{key}: {status:#x}");
        }
        // In the other rounds the node is killed while it indexes and merges; the kill may undo acknowledged writes.
        if round % 3 == 0 {
            check_against_keys(&running);
        }
        running.kill();
        let again = Server::start_at(directory.path(), port_base);
        check_against_keys(&again);
        server = Some(again);
    }
}

#[test]
fn an_index_merges_segments_before_and_after_a_restart() {
    // Each change is a segment, as each is waited for, and eight of them are merged: once in each round, with the result of the round
    // before. Once the result of the first merge of each process had the same name, and the second of them was stuck.
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(directory.path());
    let port_base = server.port_base;
    succeed(port_base, "PUT", "/api/index/i", &index_of(BUCKET));
    for round in 0..3_u64 {
        for number in 0..10 {
            write(&server, &[(&format!("k{round}-{number}"), r#"{"t":"pearl"}"#)]);
            let (_, total) = found(port_base, "/api/index/i", &json!({"match": "pearl"}));
            assert_eq!(total, round * 10 + number + 1);
        }
        server.stop();
        server = Server::start_at(directory.path(), port_base);
    }
}

/// The answer of each node to a query that sees at least the seqnos of a vector.
fn at_plus(nodes: &[Node], vector: &Value, timeout_ms: u64) -> Vec<(u16, Value)> {
    let consistency = json!({"level": "at_plus", "vectors": {"i": vector}});
    let ctl = json!({"timeout": timeout_ms, "consistency": consistency});
    let body = json!({"query": {"match_all": {}}, "size": 0, "ctl": ctl});
    let answers = nodes.iter().map(|node| ask(node.port_base, "POST", "/api/index/i/query", &body));
    answers.collect()
}

#[test]
fn each_node_answers_for_all_nodes_while_copies_move_and_nodes_end() {
    let mut nodes = nodes_with_bucket(1);
    let base = nodes[2].port_base;
    let vector = json!({"type": "vector", "dims": 2, "similarity": "l2_norm", "index": true});
    let mut definition = index_of(spread::BUCKET);
    definition["params"] =
        json!({"mapping": {"default_mapping": {"properties": {"v": {"fields": [vector]}}}}});
    succeed(base, "PUT", "/api/index/i", &definition);
    spread::fill(&nodes[1]);
    rows(&nodes[0], &format!("UPDATE {} SET v = [n, 0] WHERE n < 100", spread::BUCKET));
    let check = |nodes: &[Node]| {
        for node in nodes {
            let port_base = node.port_base;
            let (_, total) =
                found(port_base, "/api/index/i", &json!({"match": "b", "field": "text"}));
            assert_eq!(total, spread::DOCUMENTS);
            let range = json!({"min": 10, "max": 14, "field": "n"});
            let (ids, _) = found(port_base, "/api/index/i", &range);
            assert_eq!(ids, ["k10", "k11", "k12", "k13"]);
            let knn = json!([{"field": "v", "vector": [50, 0], "k": 3}]);
            let body = json!({"query": {"match_none": {}}, "knn": knn, "ctl": fresh()});
            let (status, answer) = ask(port_base, "POST", "/api/index/i/query", &body);
            assert_eq!(status, 200, "{answer}");
            let hits = answer["hits"].as_array().unwrap().iter();
            let mut ids: Vec<&str> = hits.map(|hit| hit["id"].as_str().unwrap()).collect();
            ids.sort_unstable();
            assert_eq!(ids, ["k49", "k50", "k51"], "the nearest of all nodes: {answer}");
        }
    };
    check(&nodes[..1]);
    rebalance(&nodes, &[]);
    while is_rebalancing(&nodes[0]) {
        check(&nodes[..1]);
    }
    check(&nodes);
    let (_, answer) = ask(base, "GET", "/api/index/i/count", &Value::Null);
    assert_eq!(answer["count"], spread::DOCUMENTS);
    let wide = json!({"query": {"match_all": {}}, "size": 0, "ctl": fresh()});
    let (_, answer) = ask(base, "POST", "/api/index/i/query", &wide);
    // An index is one partition, whatever the number of nodes that hold a part of it.
    assert_eq!(answer["status"], json!({"total": 1, "failed": 0, "successful": 1}), "{answer}");
    let written = (0..100).map(|n| Vbid::of(format!("k{n}").as_bytes(), 1024));
    let vector: Value = written.map(|vbid| (format!("{}/77", vbid.0), json!(1))).collect();
    for (status, answer) in at_plus(&nodes, &vector, 60_000) {
        assert_eq!((status, &answer["total_hits"]), (200, &json!(spread::DOCUMENTS)), "{answer}");
    }
    for (status, answer) in at_plus(&nodes, &json!({"7": 1_u64 << 40}), 300) {
        assert_eq!(status, 412, "nobody has written that: {answer}");
    }
    nodes[0].succeed("POST", "/settings/autoFailover", "enabled=true&timeout=1&maxCount=1");
    nodes[1].kill();
    nodes[0].wait_until("the failover", |node| {
        node.json("/pools/default")["nodes"][1]["clusterMembership"] == "inactiveFailed"
    });
    check(&nodes[..1]);
    check(&nodes[2..]);
}

/// Acknowledged writes of a client.
#[derive(Default)]
struct Written {
    /// The newest seqno of each vBucket.
    seqnos: BTreeMap<u16, u64>,
    /// Number of acknowledged documents.
    count: u64,
}

/// Pause of the writing client between two documents, so that three nodes on two processors index as fast as it writes.
const PAUSE: Duration = Duration::from_millis(20);

/// Writes documents, each acknowledged by a majority of the copies, until a flag is set. `begun` counts those that may exist.
fn write_until(
    is_over: &AtomicBool,
    client: &mut SmartClient,
    written: &Mutex<Written>,
    begun: &AtomicU64,
) {
    while !is_over.load(Ordering::Relaxed) {
        let key = format!("load{}", begun.fetch_add(1, Ordering::Relaxed));
        let seqno = loop {
            let reply = client.reply(key.as_bytes(), OP_SET, 1, br#"{"t":"pearl"}"#);
            if reply.status == 0 {
                break u64::from_be_bytes(reply.extras[8..16].try_into().unwrap());
            }
            // The document may exist or not: the same is written again.
            let is_open = matches!(reply.status, AMBIGUOUS | WRITE_IN_PROGRESS);
            assert!(is_open, "a write was answered with {:#x}", reply.status);
        };
        let mut written = written.lock().unwrap();
        written.seqnos.insert(Vbid::of(key.as_bytes(), 1024).0, seqno);
        written.count += 1;
        drop(written);
        std::thread::sleep(PAUSE);
    }
}

/// Searches for all documents that were acknowledged before, each of which must be found once. Returns the answer as an error if the node
/// refuses or names a part that is missing, because another node that may have some of them does not answer in time.
fn find_written(
    port_base: u16,
    written: &Mutex<Written>,
    begun: &AtomicU64,
    timeout_ms: u64,
) -> Result<(), String> {
    let (count, vector) = {
        let written = written.lock().unwrap();
        let seqnos = written.seqnos.iter();
        let vector: Value =
            seqnos.map(|(vbid, seqno)| (format!("{vbid}/77"), json!(seqno))).collect();
        (written.count, vector)
    };
    let consistency = json!({"level": "at_plus", "vectors": {"i": vector}});
    let ctl = json!({"timeout": timeout_ms, "consistency": consistency});
    let body = json!({"query": {"match": "pearl", "field": "t"}, "size": 0, "ctl": ctl});
    let (status, answer) = ask(port_base, "POST", "/api/index/i/query", &body);
    if status != 200 {
        assert!(status == 412 || status >= 500, "{status}: {answer}");
        return Err(format!("{status}: {answer}"));
    }
    if answer["status"]["failed"] != 0 {
        let errors = answer["status"]["errors"].as_object().unwrap().values();
        let is_late =
            |error: &Value| error.as_str().is_some_and(|text| text.contains("longer than"));
        assert!(errors.clone().all(is_late), "a part is missing for another reason: {answer}");
        return Err(answer.to_string());
    }
    let total = answer["total_hits"].as_u64().unwrap();
    let most = begun.load(Ordering::Relaxed);
    assert!((count..=most).contains(&total), "{count} acknowledged, {most} begun, {total} found");
    Ok(())
}

#[test]
fn queries_at_plus_are_complete_under_load_while_copies_move_and_a_node_ends() {
    // A client writes throughout. Each query names the seqnos that were acknowledged before, and finds all of their documents, each
    // once. Only while a dead node is still a member, and nobody else may answer for its vBuckets, can an answer lack its part.
    let mut nodes = [Node::start(), Node::start(), Node::start()];
    assert_eq!(nodes[0].add(&nodes[1]).0, 200);
    let form = format!("name={}&ramQuotaMB=100&replicaNumber=2", spread::BUCKET);
    nodes[0].succeed("POST", "/pools/default/buckets", &form);
    rebalance(&nodes, &[]);
    nodes[0].wait_until("the rebalance", |node| !is_rebalancing(node));
    succeed(nodes[0].port_base, "PUT", "/api/index/i", &index_of(spread::BUCKET));
    let ports = [0, 1, 2].map(|at: usize| nodes[at].port_base);
    let mut client = SmartClient::new(&nodes, spread::BUCKET);
    let (written, begun) = (Mutex::new(Written::default()), AtomicU64::new(0));
    let is_over = AtomicBool::new(false);
    let complete = |ports: &[u16]| {
        for port_base in ports {
            let found = find_written(*port_base, &written, &begun, 60_000);
            assert_eq!(found, Ok(()), "an incomplete answer of the node at {port_base}");
        }
    };
    std::thread::scope(|scope| {
        let _over = SetAtLast(&is_over);
        scope.spawn(|| write_until(&is_over, &mut client, &written, &begun));
        assert_eq!(nodes[0].add(&nodes[2]).0, 200);
        rebalance(&nodes, &[]);
        let mut rounds = 0;
        while rounds < 5 || is_rebalancing(&nodes[0]) {
            complete(&ports[..2]);
            rounds += 1;
        }
        complete(&ports);
        nodes[0].succeed("POST", "/settings/autoFailover", "enabled=true&timeout=1&maxCount=1");
        nodes[1].kill();
        let (left, refused) = ([ports[0], ports[2]], Cell::new(0));
        nodes[0].wait_until("the failover", |node| {
            let found = left.map(|port_base| find_written(port_base, &written, &begun, 5_000));
            refused.set(refused.get() + found.iter().filter(|found| found.is_err()).count());
            node.json("/pools/default")["nodes"][1]["clusterMembership"] == "inactiveFailed"
        });
        // The other copies of its vBuckets are indexed from their history.
        complete(&left);
        let count = || written.lock().unwrap().count;
        let before = count();
        crate::process::until(|| {
            complete(&left);
            (count() > before + 100).then_some(())
        });
        eprintln!(
            "{rounds} rounds of complete queries while copies moved; {} queries refused before the failover; {} documents",
            refused.get(),
            count()
        );
    });
}

#[test]
fn an_answer_lacks_only_the_part_of_an_unresponsive_node() {
    let nodes = nodes_with_bucket(1);
    let base = nodes[0].port_base;
    nodes[0].succeed("POST", "/settings/autoFailover", "enabled=false");
    let vector = json!({"type": "vector", "dims": 2, "similarity": "l2_norm", "index": true});
    let mut definition = index_of(spread::BUCKET);
    definition["params"] =
        json!({"mapping": {"default_mapping": {"properties": {"v": {"fields": [vector]}}}}});
    succeed(base, "PUT", "/api/index/i", &definition);
    spread::fill(&nodes[1]);
    rows(&nodes[0], &format!("UPDATE {} SET v = [n, 0] WHERE n < 100", spread::BUCKET));
    rebalance(&nodes, &[]);
    nodes[0].wait_until("the rebalance", |node| !is_rebalancing(node));
    assert_eq!(found(base, "/api/index/i", &json!({"match_all": {}})).1, spread::DOCUMENTS);
    nodes[1].server().freeze();
    let of = |ctl: Value| {
        let knn = json!([{"field": "v", "vector": [50, 0], "k": 5}]);
        json!({"query": {"match_all": {}}, "knn": knn, "size": 0, "ctl": ctl})
    };
    let plain = json!({"query": {"match_all": {}}, "size": 0, "ctl": {"timeout": 3000}});
    let silent = format!("@{}", nodes[1].address());
    // The others need a moment until they serve without the node, if it led them.
    let partial = |body: &Value| {
        crate::process::until(|| {
            let begun = std::time::Instant::now();
            let (status, answer) = ask(base, "POST", "/api/index/i/query", body);
            let took = begun.elapsed();
            (status == 200 && answer["status"]["failed"] == 1).then_some((answer, took))
        })
    };
    for body in [plain, of(json!({"timeout": 6000}))] {
        let (answer, took) = partial(&body);
        let status = &answer["status"];
        assert_eq!((&status["total"], &status["successful"]), (&json!(1), &json!(0)), "{answer}");
        let errors = status["errors"].as_object().unwrap();
        let (name, error) = errors.iter().next().unwrap();
        assert!(name.starts_with('i') && name.ends_with(&silent), "{answer}");
        assert_eq!(error, "context deadline exceeded");
        let total = answer["total_hits"].as_u64().unwrap();
        assert!((1..spread::DOCUMENTS).contains(&total), "{answer}");
        // Some seconds are for a machine under load. Nodes that are out of reach are waited for longer.
        let limit = Duration::from_millis(body["ctl"]["timeout"].as_u64().unwrap());
        assert!(took < limit + Duration::from_secs(3), "{took:?}");
    }
    let complete = json!({"timeout": 3000, "consistency": {"results": "complete"}});
    let (status, answer) = ask(base, "POST", "/api/index/i/query", &of(complete));
    assert_eq!(status, 504, "{answer}");
    let text = answer["error"].as_str().unwrap();
    assert!(text.ends_with("query consistency requirement not met"), "{answer}");
    let fresh = json!({"timeout": 3000, "consistency": {"level": "scan_plus"}});
    assert_eq!(ask(base, "POST", "/api/index/i/query", &of(fresh)).0, 412);
    assert_ne!(ask(base, "GET", "/api/index/i/count", &Value::Null).0, 200, "no count of a part");
    nodes[1].server().go_on();
    assert_eq!(found(base, "/api/index/i", &json!({"match_all": {}})).1, spread::DOCUMENTS);
}

#[test]
fn a_node_without_data_answers_for_those_that_have_it() {
    let nodes = [Node::start(), Node::start()];
    nodes[0].succeed("POST", "/node/controller/setupServices", "services=kv,n1ql");
    let other = nodes[1].address();
    let form = format!("hostname={other}&user={USER}&password={PASSWORD}&services=fts");
    nodes[0].succeed("POST", "/controller/addNode", &form);
    let form = format!("name={}&ramQuotaMB=100&replicaNumber=0", spread::BUCKET);
    nodes[0].succeed("POST", "/pools/default/buckets", &form);
    rebalance(&nodes, &[]);
    nodes[0].wait_until("the rebalance", |node| !is_rebalancing(node));
    let map = nodes[0].json("/pools/default/nodeServices");
    let named = map["nodesExt"].as_array().unwrap().iter();
    let named: Vec<Value> = named.map(|node| node["services"]["fts"].clone()).collect();
    let port = json!(nodes[1].port_base + SEARCH);
    assert_eq!(named.iter().filter(|port| !port.is_null()).collect::<Vec<_>>(), [&port]);
    let capabilities = ["vectorSearch", "scopedSearchIndex"];
    assert_eq!(map["clusterCapabilities"]["search"], json!(capabilities));
    let base = nodes[1].port_base;
    succeed(base, "PUT", "/api/index/i", &index_of(spread::BUCKET));
    spread::fill(&nodes[0]);
    assert_eq!(found(base, "/api/index/i", &json!({"match_all": {}})).1, spread::DOCUMENTS);
}

/// The rows of a statement of SQL++, or the code and the message of its error.
pub(crate) fn statement(
    login: (&str, &str),
    port_base: u16,
    statement: &str,
) -> Result<Value, (u64, String)> {
    let body = json!({"statement": statement, "scan_consistency": "request_plus"}).to_string();
    let address = format!("127.0.0.1:{}", port_base + QUERY);
    let (path, json) = ("/query/service", "application/json");
    let answer =
        http::request_within(PATIENCE, &address, "POST", path, Some(login), json, body.as_bytes());
    let answer: Value = serde_json::from_str(&answer.unwrap().text()).unwrap();
    match answer["errors"].get(0) {
        None => Ok(answer["results"].clone()),
        Some(error) => {
            let message = error["msg"].as_str().unwrap_or_default().to_owned();
            Err((error["code"].as_u64().unwrap_or_default(), message))
        }
    }
}

#[test]
fn words_of_a_collection_are_found_in_place_of_others() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let base = server.port_base;
    let scope = format!("/pools/default/buckets/{BUCKET}/scopes");
    assert_eq!(server.rest("POST", &scope, "name=s").unwrap().status, 200);
    for collection in ["texts", "words"] {
        let path = format!("{scope}/s/collections");
        let form = format!("name={collection}");
        assert_eq!(server.rest("POST", &path, &form).unwrap().status, 200);
    }
    let run = |text: &str| statement((USER, PASSWORD), base, &text.replace('$', BUCKET)).unwrap();
    run("INSERT INTO $.s.texts VALUES ('a', {'t': 'fast car'}), ('b', {'t': 'auto'})");
    run("INSERT INTO $.s.words VALUES ('1', {'synonyms': ['car', 'auto']})");
    let index = format!("/api/bucket/{BUCKET}/scope/s/index/i");
    let of = |collection: &str| {
        let source = json!({"collection": collection, "analyzer": "standard"});
        let mapping = json!({
            "default_mapping": {"enabled": false},
            "types": {"s.texts": {}},
            "analysis": {"synonym_sources": {"en": source}},
            "default_synonym_source": "en",
        });
        let mode = json!({"mode": "scope.collection.type_field"});
        let mut body = index_of(BUCKET);
        body["params"] = json!({"doc_config": mode, "mapping": mapping});
        body
    };
    let text = refused(base, "PUT", &index, &of("none"));
    assert!(text.contains("collection: 'none' doesn't belong to scope: 's'"), "{text}");
    succeed(base, "PUT", &index, &of("words"));
    let found = |word: &str| found(base, &index, &json!({"match": word, "field": "t"})).0;
    assert_eq!(found("car"), ["a", "b"]);
    assert_eq!(found("auto"), ["a", "b"]);
    let count = succeed(base, "GET", &format!("{index}/count"), &Value::Null);
    assert_eq!(count["count"], 2, "the words are no documents of the index");
    run("DELETE FROM $.s.words USE KEYS '1'");
    assert_eq!(found("car"), ["a"]);
}

#[test]
fn statements_search_with_an_index_and_without_one() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let (base, root) = (server.port_base, (USER, PASSWORD));
    write(
        &server,
        &[
            ("a", r#"{"t":"Red wine of the south","n":1}"#),
            ("b", r#"{"t":"White wine","n":2}"#),
            ("c", r#"{"t":"Wine, wine and wine","n":3}"#),
            ("d", r#"{"t":"Beer","n":4}"#),
        ],
    );
    let rows = |text: &str| statement(root, base, &text.replace('$', BUCKET)).unwrap();
    let check = || {
        for (text, expected) in [
            (
                "SELECT RAW META(x).id FROM $ x WHERE SEARCH(x.t, 'wine') ORDER BY x.n",
                json!(["a", "b", "c"]),
            ),
            (
                "SELECT RAW x.n FROM $ x WHERE SEARCH(x.t, 'WINE') AND x.n > 1 ORDER BY x.n",
                json!([2, 3]),
            ),
            (
                "SELECT RAW x.n FROM $ x WHERE SEARCH(x, '+t:wine -t:red') ORDER BY x.n",
                json!([2, 3]),
            ),
            (
                "SELECT RAW x.n FROM $ x WHERE SEARCH(x, {'match': 'bear', 'field': 't', 'fuzziness': 1})",
                json!([4]),
            ),
            (
                "SELECT RAW x.n FROM $ x WHERE SEARCH(x, {'query': {'match_all': {}}}) AND x.n < 3 ORDER BY x.n",
                json!([1, 2]),
            ),
            ("SELECT RAW SEARCH_META().id FROM $ x WHERE SEARCH(x.t, 'beer')", json!(["d"])),
            (
                "SELECT RAW x.n FROM $ x WHERE SEARCH(x.t, 'wine') AND SEARCH_SCORE() > 0 ORDER BY x.n",
                json!([1, 2, 3]),
            ),
            ("SELECT RAW x.n FROM $ x WHERE SEARCH(x.t, NULL)", json!([])),
        ] {
            assert_eq!(rows(text), expected, "{text}");
        }
    };
    let plan = || rows("EXPLAIN SELECT * FROM $ x WHERE SEARCH(x.t, 'wine')").to_string();
    check();
    assert!(!plan().contains("IndexFtsSearch"), "{}", plan());
    let invalid = format!("SELECT 1 FROM {BUCKET} x WHERE SEARCH(x, {{'no': 1}})");
    let refused = statement(root, base, &invalid).unwrap_err();
    assert_eq!(refused, (5010, "SEARCH: unknown query type".into()));
    succeed(base, "PUT", "/api/index/i", &index_of(BUCKET));
    check();
    assert!(plan().contains("IndexFtsSearch"), "{}", plan());
    let refused = statement(root, base, &invalid).unwrap_err();
    assert_eq!(refused.0, 5010, "{}", refused.1);
    let best =
        "SELECT RAW x.n FROM $ x WHERE SEARCH(x.t, 'wine') ORDER BY SEARCH_SCORE() DESC LIMIT 1";
    assert_eq!(rows(best), json!([3]));
    // Of two indexes that can answer, the statement chooses one.
    succeed(base, "PUT", "/api/index/j", &index_of(BUCKET));
    for (hint, index) in
        [("", "i"), ("USE INDEX (j USING FTS)", "j"), ("USE INDEX (k USING FTS)", "i")]
    {
        let text = format!("SELECT RAW x.n FROM $ x {hint} WHERE SEARCH(x.t, 'wine') ORDER BY x.n");
        assert_eq!(rows(&text), json!([1, 2, 3]), "{text}");
        let explained = rows(&format!("EXPLAIN {text}")).to_string();
        assert!(explained.contains(&format!("\"index\":\"{index}\"")), "{explained}");
    }
    succeed(base, "DELETE", "/api/index/j", &Value::Null);
    assert_eq!(rows("DELETE FROM $ x WHERE SEARCH(x.t, 'beer') RETURNING RAW x.n"), json!([4]));
    assert_eq!(rows("SELECT RAW x.n FROM $ x WHERE SEARCH(x.t, 'beer')"), json!([]));
    // Without the right to search, a user has no index; without the right to query, nothing.
    for (user, roles) in [
        ("asker", format!("query_select[{BUCKET}]")),
        ("searcher", format!("fts_searcher[{BUCKET}]")),
    ] {
        let form = format!("password=secret&roles={roles}");
        let path = format!("/settings/rbac/users/local/{user}");
        assert_eq!(server.rest("PUT", &path, &form).unwrap().status, 200);
    }
    let text = format!("SELECT RAW x.n FROM {BUCKET} x WHERE SEARCH(x.t, 'wine') ORDER BY x.n");
    assert_eq!(statement(("searcher", "secret"), base, &text).unwrap_err().0, 13014);
    let explained = statement(("asker", "secret"), base, &format!("EXPLAIN {text}")).unwrap();
    assert!(!explained.to_string().contains("IndexFtsSearch"), "{explained}");
}

#[test]
fn a_flexible_index_helps_with_other_conditions_than_searches() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let (base, root) = (server.port_base, (USER, PASSWORD));
    let documents: Vec<(String, String)> = (0..1500)
        .map(|n| {
            let body = json!({"s": format!("name{n}"), "n": n, "tags": [{"k": n % 7}], "t": "Red"});
            (format!("k{n:04}"), body.to_string())
        })
        .collect();
    let written: Vec<(&str, &str)> =
        documents.iter().map(|(key, body)| (&**key, &**body)).collect();
    write(&server, &written);
    let mut definition = index_of(BUCKET);
    definition["params"] = json!({"mapping": {"default_analyzer": "keyword"}});
    succeed(base, "PUT", "/api/index/i", &definition);
    let rows = |text: &str| statement(root, base, text).unwrap();
    let select = |hint: &str, condition: &str| {
        format!("SELECT RAW x.n FROM {BUCKET} x {hint} WHERE {condition} ORDER BY x.n")
    };
    let hint = "USE INDEX (USING FTS)";
    for condition in [
        "x.s = 'name7'",
        "x.n BETWEEN 10 AND 20 OR x.s IN ['name3', 'name4']",
        "x.s LIKE 'name10%' AND ANY tag IN x.tags SATISFIES tag.k = 3 END",
        "x.s >= 'name12' AND x.s < 'name13' AND x.n > 300",
        // More terms than a query of the service may have.
        "x.s LIKE 'name%' AND x.n % 100 = 0",
    ] {
        let found = rows(&select(hint, condition));
        assert_eq!(found, rows(&select("", condition)), "{condition}");
        assert!(!found.as_array().unwrap().is_empty(), "{condition}");
        let plan = rows(&format!("EXPLAIN {}", select(hint, condition))).to_string();
        assert!(plan.contains("IndexFtsSearch"), "{condition}: {plan}");
    }
    let has_search = |hint: &str, condition: &str| {
        let plan = rows(&format!("EXPLAIN {}", select(hint, condition)));
        plan.to_string().contains("IndexFtsSearch")
    };
    assert!(has_search("USE INDEX (i USING FTS)", "x.n = 7"));
    assert!(!has_search("USE INDEX (j USING FTS)", "x.n = 7") && !has_search("", "x.n = 7"));
    assert!(!has_search(hint, "x.n > 7"), "texts are greater, too");
}
