//! Functions for tests.

use nacre_eventing::Program;
use nacre_plugin::testing::Harness;
use serde_json::{Value, json};

/// The ID of the functions in these tests.
pub const ID: &str = "f00d";

/// Returns the configuration of a function on `_default._default`, with read-write aliases on its source (`src`) and on
/// `shop.copies` (`dst`), a read-only alias (`ro`), an alias on another bucket (`far`), a server (`server`) and constants.
pub fn config(source: &str) -> Value {
    let bucket = |alias: &str,
                  bucket: Option<&str>,
                  scope: &str,
                  collection: &str,
                  writes: bool| {
        json!({"alias": alias, "bucket": bucket, "scope": scope, "collection": collection, "writes": writes})
    };
    json!({
        "name": "f",
        "id": ID,
        "source": source,
        "keyspace": {"bucket": "b", "scope": "_default", "collection": "_default"},
        "collections": {"0": "_default._default"},
        "buckets": [
            bucket("src", None, "_default", "_default", true),
            bucket("dst", None, "shop", "copies", true),
            bucket("ro", None, "shop", "copies", false),
            bucket("far", Some("other"), "s", "c", true),
            bucket("all", None, "*", "*", true),
        ],
        "urls": [{"alias": "server", "url": "http://server:81/base", "authorization": "Basic eDp5"}],
        "constants": [{"alias": "LIMIT", "literal": "3"}, {"alias": "WORDS", "literal": "{\"a\": [1]}"}, {"alias": "wrong", "literal": "someliteral"}],
        "launch": {"number": 1, "reason": "deploy", "delay_ms": 0},
    })
}

pub fn function(source: &str) -> Harness<Program> {
    Harness::new(&config(source).to_string()).unwrap()
}

/// Returns the reason why a function cannot be deployed.
pub fn refusal(source: &str) -> String {
    match Harness::<Program>::new(&config(source).to_string()) {
        Ok(_) => "ok".into(),
        Err(error) => error.to_string(),
    }
}

/// Returns the body of a document.
pub fn body(function: &Harness<Program>, keyspace: &str, key: &str) -> String {
    match function.documents().get(&(keyspace.to_owned(), key.as_bytes().to_vec())) {
        Some(found) => String::from_utf8_lossy(&found.body).into_owned(),
        None => "none".into(),
    }
}

/// Returns the lines of the log, without their times.
pub fn log(function: &Harness<Program>) -> String {
    let line = |line: &String| line.split_once(' ').map_or(line.clone(), |(_, rest)| rest.into());
    function.log().iter().map(line).collect::<Vec<String>>().join("\n")
}

pub fn count(function: &Harness<Program>, name: &str) -> f64 {
    function.metrics().get(name).copied().unwrap_or_default()
}
