//! Tests of the plugin as native Rust: requests, and the change stream that returns their writes.

use super::*;
use crate::tree::Rev;
use nacre_plugin::kv;
use nacre_plugin::testing::Harness;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const KEYSPACE: &str = "_default._default";

/// A database, whose changes are fed to the plugin after each request.
struct Database {
    harness: Harness<Couch>,
    /// Versions that were fed, by key; for tombstones in the attribute's format.
    fed: BTreeMap<String, String>,
}

impl Database {
    fn new() -> Database {
        Database { harness: Harness::new("{}").unwrap(), fed: BTreeMap::new() }
    }

    fn feed(&mut self) {
        // An import is another change.
        for _ in 0..3 {
            let documents = self.harness.documents();
            let alive: BTreeMap<String, kv::Document> = documents
                .into_iter()
                .filter(|((keyspace, _), _)| keyspace == KEYSPACE)
                .map(|((_, key), document)| (String::from_utf8(key).unwrap(), document))
                .collect();
            let mut keys: Vec<String> = alive.keys().cloned().collect();
            keys.extend(self.fed.keys().filter(|key| !alive.contains_key(*key)).cloned());
            for key in keys {
                let attributes = self.harness.attributes(KEYSPACE, &key);
                let attribute = attributes["_couch"].clone();
                let cas = attribute["cas"].as_str().unwrap_or("0x0").trim_start_matches("0x");
                let cas = u64::from_str_radix(cas, 16).unwrap().swap_bytes();
                let document = alive.get(&key);
                let version = document.map_or(format!("-{cas}"), |one| one.cas.to_string());
                if self.fed.get(&key) == Some(&version) {
                    continue;
                }
                let cas = document.map_or(cas, |document| document.cas);
                let section = section(&attribute);
                match document {
                    Some(document) => {
                        self.harness.put(&key, std::str::from_utf8(&document.body).unwrap())
                    }
                    None => self.harness.delete(&key),
                };
                self.harness.with_version(cas, 1).with_xattrs(&section);
                self.fed.insert(key, version);
            }
            assert_eq!(self.harness.feed().unwrap(), []);
        }
    }

    fn ask(&mut self, line: &str, body: Value) -> (u16, Value) {
        let (method, path) = line.split_once(' ').unwrap();
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let request = Request {
            method: method.into(),
            path: path.into(),
            query: query.into(),
            headers: vec![("nacre-fresh".into(), "true".into())],
            body: if body.is_null() { Vec::new() } else { body.to_string().into_bytes() },
            now_us: 0,
        };
        let response = self.harness.ask(&request).unwrap();
        self.feed();
        let json = serde_json::from_slice(&response.body).unwrap_or_default();
        (response.status, json)
    }

    fn get(&mut self, path: &str) -> Value {
        self.ask(&format!("GET {path}"), Value::Null).1
    }

    /// Writes like a key-value client.
    fn write(&mut self, key: &str, body: &Value) {
        let body = body.to_string();
        self.harness.store(KEYSPACE, key, &kv::Content::from(body.as_str()));
        self.feed();
    }
}

fn section(attribute: &Value) -> Vec<u8> {
    if attribute.is_null() {
        return Vec::new();
    }
    let pair = [b"_couch\0", attribute.to_string().as_bytes(), b"\0"].concat();
    let prefixed = |bytes: &[u8]| [&(bytes.len() as u32).to_be_bytes(), bytes].concat();
    prefixed(&prefixed(&pair))
}

fn generation(rev: &Value) -> u64 {
    Rev::parse(rev.as_str().unwrap()).unwrap().generation
}

#[test]
fn edits_of_both_protocols_are_one_history() {
    let mut database = Database::new();
    let (status, first) = database.ask("PUT /db/a", json!({"n": 1}));
    assert_eq!(status, 201);
    database.write("a", &json!({"n": 2}));
    let second = database.get("/db/a?revs=true&conflicts=true");
    assert_eq!((&second["n"], generation(&second["_rev"])), (&json!(2), 2));
    assert_eq!(second["_revisions"]["ids"].as_array().unwrap().len(), 2);
    let stale = database.ask("PUT /db/a", json!({"n": 3, "_rev": first["rev"]}));
    assert_eq!(stale.0, 409);
    let (status, _) = database.ask("PUT /db/a", json!({"n": 3, "_rev": second["_rev"]}));
    assert_eq!(status, 201);
    let body = database.harness.documents()[&(KEYSPACE.into(), b"a".to_vec())].body.clone();
    assert_eq!(body, br#"{"n":3}"#);
    let changes = database.get("/db/_changes");
    assert_eq!(changes["results"].as_array().unwrap().len(), 1);
    assert!(changes["last_seq"].as_str().unwrap().starts_with("3-"), "{changes}");
}

#[test]
fn an_import_is_the_same_revision_wherever_it_is_made() {
    let revs: Vec<Value> = (0..2)
        .map(|_| {
            let mut database = Database::new();
            database.write("a", &json!({"n": 1}));
            database.write("a", &json!({"n": 2}));
            database.get("/db/a?revs=true")["_revisions"].clone()
        })
        .collect();
    assert_eq!(revs[0], revs[1]);
}

#[test]
fn tombstones_are_created_kept_and_revived() {
    let mut database = Database::new();
    // A tombstone alone is found by its key.
    database.fed.insert("t".into(), String::new());
    let tombstone = json!({"_id": "t", "_rev": "2-b", "_deleted": true, "_revisions": {"start": 2, "ids": ["b", "a"]}});
    let body = json!({"docs": [tombstone], "new_edits": false});
    assert_eq!(database.ask("POST /db/_bulk_docs", body.clone()), (201, json!([])));
    assert_eq!(database.get("/db/t")["reason"], "deleted");
    assert_eq!(database.get("/db/_changes")["results"][0]["deleted"], true);
    // The same revision again is not a change.
    assert_eq!(database.ask("POST /db/_bulk_docs", body), (201, json!([])));
    assert!(database.get("/db/_changes")["last_seq"].as_str().unwrap().starts_with("1-"));
    let (status, revived) = database.ask("PUT /db/t", json!({"again": true}));
    assert_eq!((status, generation(&revived["rev"])), (201, 3));
    assert_eq!(database.get("/db")["doc_count"], 1);
}

#[test]
fn a_winner_that_is_deleted_gives_way_to_the_other_branch() {
    let mut database = Database::new();
    let docs = json!([{"_id": "c", "_rev": "1-x", "n": 1}, {"_id": "c", "_rev": "1-y", "n": 2}]);
    database.ask("POST /db/_bulk_docs", json!({"docs": docs, "new_edits": false}));
    assert_eq!(database.get("/db/c?conflicts=true")["_conflicts"], json!(["1-x"]));
    let (status, _) = database.ask("DELETE /db/c?rev=1-y", Value::Null);
    assert_eq!(status, 200);
    assert_eq!(database.get("/db/c"), json!({"_id": "c", "_rev": "1-x", "n": 1}));
}

#[test]
fn large_bodies_that_lose_are_kept_apart() {
    let mut database = Database::new();
    let long = "x".repeat(10_000);
    let docs = json!([{"_id": "c", "_rev": "1-x", "t": long}, {"_id": "c", "_rev": "1-y", "n": 2}]);
    database.ask("POST /db/_bulk_docs", json!({"docs": docs, "new_edits": false}));
    let attribute = database.harness.attributes(KEYSPACE, "c")["_couch"].to_string();
    assert!(attribute.len() < 500, "{attribute}");
    assert_eq!(database.get("/db/c?rev=1-x")["t"], json!(long));
    database.ask("DELETE /db/c?rev=1-y", Value::Null);
    assert_eq!(database.get("/db/c")["t"], json!(long));
    let documents = database.harness.documents();
    assert!(documents.keys().all(|(keyspace, _)| keyspace == KEYSPACE), "{documents:?}");
}

#[test]
fn a_state_that_is_built_again_has_another_epoch_and_the_same_revisions() {
    let mut database = Database::new();
    database.ask("PUT /db/a", json!({"n": 1}));
    let before = database.get("/db/_changes?style=all_docs");
    let documents = database.harness.documents();
    let attribute = database.harness.attributes(KEYSPACE, "a")["_couch"].clone();
    let mut other = Harness::<Couch>::new("{}").unwrap();
    other.advance(std::time::Duration::from_secs(1)).unwrap();
    let document = &documents[&(KEYSPACE.to_owned(), b"a".to_vec())];
    other.put("a", std::str::from_utf8(&document.body).unwrap());
    other.with_version(document.cas, 1).with_xattrs(&section(&attribute));
    other.feed().unwrap();
    let since = before["last_seq"].as_str().unwrap();
    let request = Request {
        method: "GET".into(),
        path: "/db/_changes".into(),
        query: format!("since={since}"),
        headers: vec![("nacre-fresh".into(), "true".into())],
        ..Request::default()
    };
    let answer = other.ask(&request).unwrap();
    let answer: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(answer["results"][0]["changes"], before["results"][0]["changes"]);
    assert_ne!(answer["last_seq"], before["last_seq"]);
}

#[test]
fn invalid_configurations_are_refused() {
    for config in [
        r#"{"database": "Upper"}"#,
        r#"{"database": ""}"#,
        r#"{"revs_limit": 1}"#,
        r#"{"revs_limit": 100000}"#,
        r#"{"name": "x"}"#,
    ] {
        assert!(matches!(Couch::init(config), Err(Fault::Reject(_))), "{config}");
    }
}
