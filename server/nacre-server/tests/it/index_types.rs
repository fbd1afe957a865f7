//! Packages of the world `index-type` through whole nodes: their entries are read in order, by any node, without the plugin.
//!
//! The plugin takes a document for a list of keys; the value of an entry is the seqno of its document, in eight bytes.

use crate::plugin_functions::upload;
use crate::plugins::ask;
use crate::process::{BUCKET, Server};
use crate::spread::{self, ask_while_rebalancing, nodes_with_bucket, rows};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

const FRESH: &str = "stale=false";

fn put(server: &Server, version: &str, more: &Value) -> (u16, Value) {
    let mut wanted = json!({"package": "index-type", "version": version, "bucket": BUCKET});
    wanted.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    ask(server, "PUT", "/deployments/keys", "", wanted.to_string().as_bytes())
}

fn deploy(server: &Server, version: &str) {
    let (code, status) = put(server, version, &json!({}));
    assert_eq!((code, &status["world"]), (200, &json!("index-type")), "{status}");
}

fn status(server: &Server) -> Value {
    ask(server, "GET", "/deployments/keys", "", b"").1
}

fn scan(server: &Server, query: &str) -> Value {
    let (code, answer) = ask(server, "GET", &format!("/_plugin/keys/scan?{query}"), "", b"");
    assert_eq!(code, 200, "{query}: {answer}");
    answer
}

/// `key=document` of each row.
fn entries(answer: &Value) -> Vec<String> {
    let row =
        |row: &Value| format!("{}={}", row["key"].as_str().unwrap(), row["id"].as_str().unwrap());
    answer["rows"].as_array().unwrap().iter().map(row).collect()
}

/// The entries that a scan which reflects all that was written before has.
fn listed(server: &Server, query: &str) -> Vec<String> {
    entries(&scan(server, &format!("{FRESH}&{query}")))
}

fn start(directory: &Path) -> Server {
    let server = Server::start(directory);
    assert_eq!(upload(&server, "index-type", "1", "").0, 201);
    server
}

#[test]
fn entries_follow_documents_through_upgrades_and_restarts() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path());
    let mut client = server.client();
    client.set(b"a", br#"["x", "y"]"#).unwrap();
    client.set(b"b", br#"["x"]"#).unwrap();
    deploy(&server, "1");
    assert_eq!(listed(&server, ""), ["x=a", "x=b", "y=a"]);
    client.set(b"a", br#"["z", "w"]"#).unwrap();
    assert_eq!(listed(&server, ""), ["w=a", "x=b", "z=a"]);
    assert_eq!(listed(&server, "start=x&end=z&inclusive_end=false"), ["x=b"]);
    let calls = |server: &Server| status(server)["readers"]["calls"].as_u64().unwrap();
    let before = calls(&server);
    assert_eq!(listed(&server, "descending=true&limit=2"), ["z=a", "x=b"]);
    assert_eq!(calls(&server), before + 1);
    let of_b = json!({"rows": [{"id": "b", "collection": "_default._default", "key_hex": "78", "value_hex": "0000000000000001"}]});
    assert_eq!(scan(&server, "prefix=x&hex=true"), of_b);
    client.delete(b"b", 0).unwrap();
    assert_eq!(listed(&server, ""), ["w=a", "z=a"]);

    // The same format of entries: the next version continues with them.
    assert_eq!(upload(&server, "index-type", "2", "").0, 201);
    deploy(&server, "2");
    client.set(b"c", br#"["m"]"#).unwrap();
    assert_eq!(listed(&server, ""), ["m=c", "w=a", "z=a"]);
    assert_eq!(status(&server)["documents"], 1, "it took none of the others again");
    server.stop();

    let mut server = Server::start(directory.path());
    server.wait_for("the index", |server| (status(server)["state"] == "running").then_some(()));
    assert_eq!(listed(&server, ""), ["m=c", "w=a", "z=a"]);
    assert_eq!(status(&server)["documents"], 0);
    // Another format: built next to the old version, which answers meanwhile.
    assert_eq!(upload(&server, "index-type", "3", "state_version = \"2\"").0, 201);
    deploy(&server, "3");
    assert_eq!(listed(&server, "prefix=m"), ["m=c"]);
    server
        .wait_for("the upgrade", |server| (status(server)["running_version"] == "3").then_some(()));
    assert_eq!(listed(&server, ""), ["m=c", "w=a", "z=a"]);
    assert_eq!(ask(&server, "DELETE", "/deployments/keys", "", b"").0, 200);
    assert_eq!(ask(&server, "GET", "/_plugin/keys/scan", "", b"").0, 404);
    for version in ["1", "2", "3"] {
        let path = format!("/plugins/index-type/{version}");
        assert_eq!(ask(&server, "DELETE", &path, "", b"").0, 200);
    }
}

#[test]
fn a_paused_index_answers_and_continues_where_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = start(directory.path());
    let mut client = server.client();
    client.set(b"b", br#"["y"]"#).unwrap();
    deploy(&server, "1");
    assert_eq!(listed(&server, ""), ["y=b"]);
    let post = |action: &str| ask(&server, "POST", &format!("/deployments/keys/{action}"), "", b"");
    assert_eq!(post("pause").1["state"], "paused");
    client.set(b"c", br#"["z"]"#).unwrap();
    assert_eq!(entries(&scan(&server, "stale=ok")), ["y=b"]);
    let (code, told) = ask(&server, "GET", "/_plugin/keys/scan?stale=false", "", b"");
    assert_eq!((code, &told["reason"]), (503, &json!("it is paused")), "{told}");
    assert_eq!(post("resume").1["state"], "running");
    assert_eq!(listed(&server, ""), ["y=b", "z=c"]);
    post("replay");
    server.wait_for("the replay", |server| {
        (status(server)["documents"] == 2 && status(server)["building"].is_null()).then_some(())
    });
    assert_eq!(listed(&server, ""), ["y=b", "z=c"]);
}

#[test]
fn an_index_since_now_skips_earlier_documents() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path());
    let mut client = server.client();
    client.set(b"a", br#"["x"]"#).unwrap();
    assert_eq!(put(&server, "1", &json!({"since": "now"})).0, 200);
    client.set(b"b", br#"["y"]"#).unwrap();
    assert_eq!(listed(&server, ""), ["y=b"]);
    client.set(b"a", br#"["z"]"#).unwrap();
    assert_eq!(listed(&server, ""), ["y=b", "z=a"]);
}

/// As after a crash in which the store of documents has lost more than that of the index: the index starts again at its
/// first begin.
#[test]
fn a_restarted_index_since_now_skips_earlier_documents() {
    let (directory, before) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = start(directory.path());
    let port_base = server.port_base;
    server.client().set(b"a", br#"["x"]"#).unwrap();
    server.stop();
    let documents = directory.path().join("buckets");
    let copy = |from: &Path, to: &Path| {
        let copied = Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
        assert!(copied.success());
    };
    copy(&documents, before.path());
    let server = Server::start_at(directory.path(), port_base);
    assert_eq!(put(&server, "1", &json!({"since": "now"})).0, 200);
    server.client().set(b"a", br#"["y"]"#).unwrap();
    assert_eq!(listed(&server, ""), ["y=a"]);
    server.stop();
    std::fs::remove_dir_all(&documents).unwrap();
    copy(&before.path().join("buckets"), directory.path());
    let mut server = Server::start_at(directory.path(), port_base);
    server.wait_for("the index", |server| (status(server)["state"] == "running").then_some(()));
    assert_eq!(listed(&server, ""), [""; 0]);
    server.client().set(b"a", br#"["z"]"#).unwrap();
    assert_eq!(listed(&server, ""), ["z=a"]);
}

#[test]
fn pages_lead_through_all_entries() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path());
    deploy(&server, "1");
    let mut client = server.client();
    for n in 0..250 {
        let keys = format!("[\"k{}\", \"all\"]", n % 10);
        client.set(format!("d{n:03}").as_bytes(), keys.as_bytes()).unwrap();
    }
    let whole = listed(&server, "");
    assert_eq!(whole.len(), 500);
    for order in ["descending=false", "descending=true"] {
        let mut seen = Vec::new();
        let mut after = String::new();
        loop {
            let page = scan(&server, &format!("{FRESH}&{order}&limit=37&after={after}"));
            seen.extend(entries(&page));
            match page["after"].as_str() {
                Some(next) => after = next.to_owned(),
                None => break,
            }
        }
        if order.ends_with("true") {
            seen.reverse();
        }
        assert_eq!(seen, whole, "{order}");
    }
}

/// Ids are unique in a collection only.
#[test]
fn an_index_of_a_scope_names_collections_and_forgets_those_that_are_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path());
    let scopes = format!("/pools/default/buckets/{BUCKET}/scopes");
    let rest = |method: &str, path: &str, form: &str| {
        assert_eq!(server.rest(method, &format!("{scopes}{path}"), form).unwrap().status, 200);
    };
    rest("POST", "", "name=shop");
    rest("POST", "/shop/collections", "name=orders");
    rest("POST", "/shop/collections", "name=carts");
    for (collection, key) in [("orders", "o"), ("carts", "c")] {
        let upsert = format!(
            "UPSERT INTO {BUCKET}.shop.{collection} (KEY, VALUE) VALUES ('same', ['{key}', 'k'])"
        );
        let answer = server.query(&json!({"statement": upsert}).to_string());
        assert_eq!(answer["status"], "success", "{answer}");
    }
    let (code, told) = put(&server, "1", &json!({"scope": "shop"}));
    assert_eq!(code, 200, "{told}");
    let named = || -> Vec<Value> {
        let answer = scan(&server, FRESH);
        let rows = answer["rows"].as_array().unwrap().iter();
        rows.map(|row| json!([row["key"], row["collection"], row["id"]])).collect()
    };
    let mut all = named();
    all.sort_by_key(Value::to_string);
    let expected = [
        json!(["c", "shop.carts", "same"]),
        json!(["k", "shop.carts", "same"]),
        json!(["k", "shop.orders", "same"]),
        json!(["o", "shop.orders", "same"]),
    ];
    assert_eq!(all, expected);
    rest("DELETE", "/shop/collections/carts", "");
    let left = [json!(["k", "shop.orders", "same"]), json!(["o", "shop.orders", "same"])];
    assert_eq!(named(), left);
}

#[test]
fn invalid_requests_and_deployments_are_refused_with_a_reason() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path());
    let reason = |(code, answer): (u16, Value)| (code, answer["errors"]["_"].to_string());
    for (more, words) in [
        (json!({"bucket": null}), "belongs to a bucket: name the bucket"),
        (json!({"grants": {"http-out": ["h"]}}), "may log, and be granted nothing else"),
        (json!({"collection": "c"}), "a collection without its scope"),
    ] {
        let (code, text) = reason(put(&server, "1", &more));
        assert!(code == 400, "{more}: {code} {text}");
        assert!(more["collection"].is_string() || text.contains(words), "{more}: {text}");
    }
    deploy(&server, "1");
    for (path, code, words) in [
        ("scan?limit=0", 400, "limit is a number from 1 to 10000"),
        ("scan?after=nowhere", 400, "after must be copied unchanged from the previous page"),
        ("scan?startkey=1", 400, "there is no parameter"),
        ("other", 404, "whose entries are at /_plugin/keys/scan"),
    ] {
        let (told, text) = reason(ask(&server, "GET", &format!("/_plugin/keys/{path}"), "", b""));
        assert!(told == code && text.contains(words), "{path}: {told} {text}");
    }
    let (code, text) = reason(ask(&server, "POST", "/_plugin/keys/scan", "", b"{}"));
    assert!(code == 405 && text.contains("GET"), "{code} {text}");
    // One of another world has no entries.
    assert_eq!(upload(&server, "functions", "1", "").0, 201);
    let functions = json!({"package": "functions", "version": "1"}).to_string();
    let (code, told) = ask(&server, "PUT", "/deployments/f", "", functions.as_bytes());
    assert_eq!(code, 200, "{told}");
    let (code, text) = reason(ask(&server, "GET", "/_plugin/f/scan", "", b""));
    assert!(code == 400 && text.contains("`functions` answers no requests"), "{code} {text}");
}

#[test]
fn a_document_that_kills_the_plugin_is_named_and_skipped() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path());
    deploy(&server, "1");
    let mut client = server.client();
    client.set(b"a", br#"["x"]"#).unwrap();
    client.set(b"poison", br#"["trap"]"#).unwrap();
    client.set(b"c", br#"["y"]"#).unwrap();
    assert_eq!(listed(&server, ""), ["x=a", "y=c"]);
    let told = status(&server);
    assert_eq!((&told["state"], &told["dead_letter_count"]), (&json!("running"), &json!(1)));
    assert_eq!(told["dead_letters"][0]["id"], "poison");
    let capsules = std::fs::read_dir(directory.path().join("capsules")).unwrap().count();
    assert_eq!(capsules, 1);
}

/// Whichever node is asked, and while vBuckets move, each entry comes once.
#[test]
fn every_node_scans_the_entries_of_all_nodes_while_vbuckets_move() {
    const DOCUMENTS: u64 = 1200;
    let nodes = nodes_with_bucket(1);
    for first in (0..DOCUMENTS).step_by(400) {
        let values: Vec<String> =
            (first..first + 400).map(|n| format!("VALUES ('d{n}', ['k{n:05}'])")).collect();
        let bucket = spread::BUCKET;
        rows(&nodes[0], &format!("UPSERT INTO {bucket} (KEY, VALUE) {}", values.join(", ")));
    }
    assert_eq!(upload(nodes[1].server(), "index-type", "1", "").0, 201);
    let (code, told) = put(nodes[1].server(), "1", &json!({"bucket": spread::BUCKET}));
    assert_eq!(code, 200, "{told}");
    let all: Vec<String> = (0..DOCUMENTS).map(|n| format!("k{n:05}=d{n}")).collect();
    let pages = |server: &Server, stale: &str| {
        let (mut seen, mut after) = (Vec::new(), String::new());
        loop {
            let page = scan(server, &format!("stale={stale}&limit=500&after={after}"));
            seen.extend(entries(&page));
            match page["after"].as_str() {
                Some(next) => after = next.to_owned(),
                None => return seen,
            }
        }
    };
    // Once it is there, all of it is.
    nodes.iter().for_each(|node| {
        node.wait_until("the index", |node| {
            ask(node.server(), "GET", "/_plugin/keys/scan?stale=false", "", b"").0 == 200
        });
    });
    ask_while_rebalancing(&nodes, |node, round| {
        assert!(pages(node.server(), ["false", "ok"][round % 2]) == all, "round {round}");
    });
    for node in &nodes {
        assert_eq!(listed(node.server(), "start=k00700&limit=2"), ["k00700=d700", "k00701=d701"]);
        let back = listed(node.server(), "start=k00700&limit=2&descending=true");
        assert_eq!(back, ["k00700=d700", "k00699=d699"]);
    }
    rows(&nodes[2], &format!("DELETE FROM {} USE KEYS ['d700']", spread::BUCKET));
    nodes.iter().for_each(|node| assert_eq!(listed(node.server(), "prefix=k00700"), [""; 0]));
}
