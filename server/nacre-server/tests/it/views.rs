//! Views through the whole node, user code of every temper included.

use crate::process::{BUCKET, Server};
use serde_json::{Value, json};

#[test]
fn a_view_follows_writes_deletions_and_dropped_collections() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let mut client = server.client();
    let scopes = format!("/pools/default/buckets/{BUCKET}/scopes");
    server.rest("POST", &scopes, "name=s").unwrap();
    server.rest("POST", &format!("{scopes}/s/collections"), "name=c").unwrap();
    let collection = client.collection_id("s.c").unwrap();
    let mut set = |name: &str, value: &str| {
        let (vbid, key) =
            (client.vbid(name.as_bytes()), client.wire_key(collection, name.as_bytes()));
        let reply = client.request(0x01, vbid, &key, &[0; 8], value.as_bytes(), 0);
        assert!(reply.unwrap().is_success());
    };
    for n in 0..500 {
        set(&format!("k{n}"), &format!("{{\"n\":{n}}}"));
    }
    server.put_design("d", r#"{"collection": "s.c", "views": {"n": {"map": "function (doc) { emit(doc.n % 5, doc.n) }", "reduce": "_count"}}}"#);
    assert_eq!(server.rows("d", "n", ""), [json!({"key": null, "value": 500})]);
    set("k0", "{\"n\":1}");
    assert_eq!(server.rows("d", "n", "key=0"), [json!({"key": null, "value": 99})]);
    assert_eq!(
        server.rest("DELETE", &format!("{scopes}/s/collections/c"), "").unwrap().status,
        200
    );
    let gone = server.views("GET", &format!("/{BUCKET}/_design/d/_view/n?stale=false"), "");
    assert_eq!(gone.status, 500, "its collection is gone: {}", gone.text());
}

#[test]
fn the_first_request_waits_for_the_plugin_to_be_compiled() {
    let directory = tempfile::tempdir().unwrap();
    let cache = directory.path().join("plugins");
    let arguments = ["--plugin-cache", cache.to_str().unwrap()];
    let server = Server::start_with(directory.path(), crate::process::port_base(), &arguments);
    server.client().set(b"k", b"{}").unwrap();
    server.put_design(
        "d",
        r#"{"views": {"all": {"map": "function (doc, meta) { emit(meta.id) }"}}}"#,
    );
    assert_eq!(server.rows("d", "all", "")[0]["key"], "k");
}

#[test]
fn a_replaced_design_document_is_rebuilt() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    server.client().set(b"k", b"{\"a\":1,\"b\":2}").unwrap();
    // Back and forth quickly: a text that comes back must not meet the rows of its first time while they are removed.
    for field in ["a", "b"].repeat(10) {
        let map = format!("function (doc) {{ emit(doc.{field}) }}");
        server.put_design("d", &json!({"views": {"v": {"map": map}}}).to_string());
        let rows = server.rows("d", "v", "");
        assert_eq!(rows[0]["key"], if field == "a" { json!(1) } else { json!(2) });
    }
    assert_eq!(server.views("DELETE", &format!("/{BUCKET}/_design/d"), "").status, 200);
    assert_eq!(server.views("GET", &format!("/{BUCKET}/_design/d/_view/v"), "").status, 404);
}

#[test]
fn a_malformed_design_document_is_refused_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    server.put_design("warm", r#"{"views": {}}"#);
    let refused = |document: &str, reason: &str| {
        let answer = server.views("PUT", &format!("/{BUCKET}/_design/bad"), document);
        assert_eq!(answer.status, 400, "{document}: {}", answer.text());
        assert!(answer.text().contains(reason), "{document}: {}", answer.text());
    };
    refused("{", "not JSON");
    refused("[]", "JSON object");
    refused(r#"{"views": {"v": {"map": "function (doc) {"}}}"#, "line");
    refused(r#"{"views": {"v": {"map": "function (doc) {}", "reduce": "_median"}}}"#, "_median");
    refused(r#"{"collection": "no.where", "views": {}}"#, "not found");
    assert_eq!(server.views("GET", &format!("/{BUCKET}/_design/bad"), "").status, 404);
}

/// Every document but one is harmless; the view must have the rows of all others, and report the failure of that one.
#[test]
fn faulty_user_code_affects_only_its_own_document() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let mut client = server.client();
    for n in 0..50 {
        client.set(format!("k{n}").as_bytes(), format!("{{\"n\":{n}}}").as_bytes()).unwrap();
    }
    client.set(b"poison", b"{\"poison\":true}").unwrap();
    for (name, code, reason) in [
        ("throws", "throw new Error('boom')", "boom"),
        ("loops", "while (true) {}", ""),
        ("recurses", "(function f() { f() })()", ""),
        ("emits", "for (var i = 0; i < 1e6; i++) emit(i, 'xxxxxxxxxx')", ""),
        ("grows", "var s = 'x'; while (s.length < 1 << 30) s += s; emit(s)", ""),
    ] {
        let map = format!("function (doc, meta) {{ if (doc.poison) {{ {code} }} emit(meta.id) }}");
        server.put_design(name, &json!({"views": {"v": {"map": map}}}).to_string());
        let rows = server.rows(name, "v", "");
        assert_eq!(rows.len(), 50, "{name}");
        let info: Value =
            server.views("GET", &format!("/{BUCKET}/_design/{name}/_info"), "").json().unwrap();
        let errors = [&info["last_errors"], &info["dead_letters"]];
        let named = errors.iter().any(|list| {
            list[0]["id"] == "poison"
                && list[0]["reason"].as_str().is_some_and(|r| r.contains(reason))
        });
        assert!(named, "{name}: {info}");
        assert!(client.get(b"poison").unwrap().is_success(), "{name}: the node serves on");
    }
}

/// A design document may let changes gather; a query that needs them makes the feed take them.
#[test]
fn changes_gather_until_a_request_arrives() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(directory.path());
    let mut client = server.client();
    server.put_design("d", r#"{"options": {"updateInterval": 86400000}, "views": {"v": {"map": "function (doc, meta) { emit(meta.id) }"}}}"#);
    let rows = |server: &Server, stale: &str| {
        let path = format!("/{BUCKET}/_design/d/_view/v?stale={stale}");
        let answer: Value = server.views("GET", &path, "").json().unwrap();
        answer["rows"].as_array().unwrap().len()
    };
    // The feed may still be taking earlier changes: a write that stays unseen shows that it rests.
    let mut written = 0;
    server.wait_for("a change that is left to gather", |server| {
        client.set(format!("k{written}").as_bytes(), b"{}").unwrap();
        written += 1;
        (0..50).all(|_| rows(server, "ok") < written).then_some(())
    });
    assert!(rows(&server, "update_after") < written, "it is brought up to date after the answer");
    server.wait_for("the update after the answer", |server| {
        (rows(server, "ok") == written).then_some(())
    });
    client.set(b"last", b"{}").unwrap();
    assert_eq!(rows(&server, "false"), written + 1);
    // The body of a query has precedence.
    client.set(b"later", b"{}").unwrap();
    let posted = |path: &str, body: &str| {
        let path = format!("/{BUCKET}/_design/d/_view/v{path}");
        let answer: Value = server.views("POST", &path, body).json().unwrap();
        answer["rows"].as_array().map_or(0, Vec::len)
    };
    for stale in [r#""false""#, "false"] {
        assert_eq!(posted("?stale=ok", &format!(r#"{{"stale": {stale}}}"#)), written + 2);
    }
    assert_eq!(posted("?stale=ok", r#"{"stale": "maybe"}"#), 0, "it is refused");
}

/// A lost state is built again; a query that accepts old rows does not see it grow.
#[test]
fn a_view_answers_after_a_restart_from_all_that_it_answered_from_before() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let mut client = server.client();
    for n in 0..3000 {
        client.set(format!("k{n}").as_bytes(), b"{}").unwrap();
    }
    let all = r#"{"views": {"all": {"map": "function (doc, meta) { emit(meta.id) }"}}}"#;
    server.put_design("d", all);
    assert_eq!(server.rows("d", "all", "").len(), 3000);
    server.stop();
    std::fs::remove_dir_all(directory.path().join("states")).unwrap();
    let server = Server::start(directory.path());
    let path = format!("/{BUCKET}/_design/d/_view/all?stale=ok&limit=1");
    let answer: Value = server.views("GET", &path, "").json().unwrap();
    assert_eq!(answer["total_rows"], 3000, "{answer}");
}

/// While a design document is tried out on many documents, a part of them has to do.
#[test]
fn a_development_view_answers_from_a_part_of_many_documents() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let mut client = server.client();
    const COUNT: u64 = 51_000;
    for n in 0..COUNT {
        client.set(format!("k{n}").as_bytes(), b"{}").unwrap();
    }
    let document = r#"{"views": {"v": {"map": "function (doc, meta) { emit(meta.vb) }", "reduce": "_count"}}}"#;
    server.put_design("dev_d", document);
    server.put_design("d", document);
    let part = server.rows("dev_d", "v", "group=true");
    let count: u64 = part.iter().map(|row| row["value"].as_u64().unwrap()).sum();
    assert!(part.iter().all(|row| row["key"].as_u64().unwrap().is_multiple_of(16)), "{part:?}");
    assert!((COUNT / 20..COUNT / 12).contains(&count), "{count} of {COUNT}");
    assert_eq!(server.rows("dev_d", "v", "full_set=true")[0]["value"], COUNT);
    assert_eq!(server.rows("d", "v", "")[0]["value"], COUNT);
}
