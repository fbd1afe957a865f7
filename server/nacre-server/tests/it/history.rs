//! Buckets that keep superseded versions, over REST, across a restart.

use crate::process::{PASSWORD, Server, USER};
use nacre_conformance::kv::KvClient;
use nacre_conformance::kv::dcp::{Consumer, Event, PRODUCER, Range};
use serde_json::{Value, json};

const BUCKETS: &str = "/pools/default/buckets";

fn ask(server: &Server, method: &str, path: &str, form: &str) -> (u16, Value) {
    let answer = server.rest(method, &format!("{BUCKETS}{path}"), form).unwrap();
    (answer.status, answer.json().unwrap_or(Value::Null))
}

fn collection(server: &Server, bucket: &str, name: &str) -> Value {
    let (_, manifest) = ask(server, "GET", &format!("/{bucket}/scopes"), "");
    let collections = manifest["scopes"][0]["collections"].as_array().unwrap();
    collections.iter().find(|found| found["name"] == name).unwrap().clone()
}

#[test]
fn history_is_chosen_for_a_bucket_and_for_each_collection() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let settings = "name=h&ramQuotaMB=256&storageBackend=magma&historyRetentionSeconds=3600";
    assert_eq!(ask(&server, "POST", "", settings).0, 202);
    assert_eq!(ask(&server, "POST", "/h", "historyRetentionBytes=2147483648").0, 200);
    let (_, found) = ask(&server, "GET", "/h", "");
    assert_eq!(found["historyRetentionSeconds"], 3600);
    assert_eq!(found["historyRetentionBytes"], 2_147_483_648_u64);
    assert_eq!(found["historyRetentionCollectionDefault"], true);
    let can = |bucket: &Value| {
        bucket["bucketCapabilities"].as_array().unwrap().contains(&json!("nonDedupedHistory"))
    };
    assert!(can(&found));
    assert!(!can(&ask(&server, "GET", "/default", "").1));

    let collections = "/h/scopes/_default/collections";
    assert_eq!(ask(&server, "POST", collections, "name=kept").0, 200);
    assert_eq!(ask(&server, "POST", collections, "name=plain&history=false&maxTTL=60").0, 200);
    assert_eq!(collection(&server, "h", "_default")["history"], true);
    assert_eq!(collection(&server, "h", "kept")["history"], true);
    assert_eq!(collection(&server, "h", "plain")["history"], false);
    let plain = format!("{collections}/plain");
    assert_eq!(ask(&server, "PATCH", &plain, "history=true").0, 200);
    let found = collection(&server, "h", "plain");
    assert_eq!((&found["history"], &found["maxTTL"]), (&json!(true), &json!(60)));
    let (status, refused) = ask(&server, "PATCH", &plain, "history=perhaps");
    assert_eq!((status, refused["errors"]["history"].is_string()), (400, true), "{refused}");

    let elsewhere = "/default/scopes/_default/collections";
    let (status, refused) = ask(&server, "POST", elsewhere, "name=c&history=true");
    let reason = json!({"errors": {"history": "History can only be used with Magma"}});
    assert_eq!((status, refused), (400, reason));
    assert_eq!(ask(&server, "POST", elsewhere, "name=c&history=false").0, 200);
    assert_eq!(collection(&server, "default", "c")["history"], false);
}

/// Returns the bodies of a document's first versions, as a consumer gets them that wants history.
fn bodies(server: &Server, vbid: u16, versions: u64) -> Vec<String> {
    let client = KvClient::connect(server.kv_address(), USER, PASSWORD, "h").unwrap();
    let mut consumer = Consumer::open(client, "history", PRODUCER).unwrap();
    assert!(consumer.control("change_streams", "true").unwrap().is_success());
    let range = Range { end: versions, ..Range::ALL };
    assert!(consumer.stream(vbid, range, "").unwrap().is_success());
    let mut bodies = Vec::new();
    loop {
        match consumer.next_event().unwrap().1 {
            Event::Mutation { value, .. } => bodies.push(String::from_utf8(value).unwrap()),
            Event::End(_) => return bodies,
            _ => {}
        }
    }
}

#[test]
fn every_version_is_there_after_a_compaction_a_stop_and_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let settings = "name=h&ramQuotaMB=256&storageBackend=magma&historyRetentionSeconds=3600";
    assert_eq!(ask(&server, "POST", "", settings).0, 202);
    let mut client = KvClient::connect(server.kv_address(), USER, PASSWORD, "h").unwrap();
    let vbid = client.vbid(b"k");
    let padding = "x".repeat(64 << 10);
    let written: Vec<String> = (0..200).map(|n| format!("{{\"{n}\":\"{padding}\"}}")).collect();
    for body in &written {
        assert!(client.set(b"k", body.as_bytes()).unwrap().is_success());
    }
    assert!(bodies(&server, vbid, 200) == written);
    assert_eq!(ask(&server, "POST", "/h/controller/compactBucket", "").0, 200);
    drop(client);
    server.stop();
    let server = Server::start(directory.path());
    assert!(bodies(&server, vbid, 200) == written, "after a stop");
    server.kill();
    let server = Server::start(directory.path());
    assert!(bodies(&server, vbid, 200) == written, "after a kill");
}
