//! Dry runs, which change nothing, and replays, which do again.

use crate::eventing::{Collection, ask, collections, command, define, deploy, function, get};
use crate::process::Server;
use crate::queries::serving;
use serde_json::{Value, json};

fn dry_run(server: &Server, name: &str, body: &Value) -> Value {
    let (status, answer) = ask(server, "POST", &format!("/api/v1/functions/{name}/dryrun"), body);
    assert_eq!(status, 200, "{answer}");
    answer
}

/// The document `id` of an answer.
fn of<'a>(answer: &'a Value, id: &str) -> &'a Value {
    let mut all = answer["documents"].as_array().unwrap().iter();
    all.find(|tried| tried["id"] == id).unwrap_or_else(|| panic!("{id} is not in {answer}"))
}

const TRIED: &str = "function OnUpdate(doc, meta) {
    log('seen', meta.id);
    if (doc.bad) throw new Error('no such thing');
    dst[meta.id] = {n: doc.n};
    dst[meta.id] = {n: dst[meta.id].n + 1};
    delete dst.old;
    couchbase.increment(dst, {id: 'count'});
    N1QL('UPSERT INTO default._default.dst VALUES (\"q\", {\"n\": $n})', {n: doc.n});
    const answer = curl('POST', server, {path: 'x', body: {n: doc.n}});
    createTimer(Later, new Date(1900000000000), meta.id, {status: answer.status});
    cancelTimer(Later, 'other');
}
function Later() {}
function OnDelete(meta) { dst['gone ' + meta.id] = 1 }";

#[test]
fn a_dry_run_reports_the_effects_of_a_function_and_has_none() {
    let directory = tempfile::tempdir().unwrap();
    let server = serving(directory.path());
    collections(&server, &["meta", "dst"]);
    let mut tried = function("tried", TRIED, "_default", &["dst"]);
    tried["depcfg"]["curl"] = json!([{"hostname": "http://127.0.0.1:1/base", "value": "server",
        "auth_type": "basic", "username": "u", "password": "secret"}]);
    tried["settings"] = json!({"filter": "n < 100"});
    define(&server, &tried);
    let mut source = Collection::open(&server, "_default");
    let mut dst = Collection::open(&server, "dst");
    dst.put("old", &json!(1));
    source.put("a", &json!({"n": 1}));
    source.put("b", &json!({"n": 2, "bad": true}));
    source.put("c", &json!({"n": 100}));
    let answer = dry_run(&server, "tried", &json!({"documents": ["a", "b", "c", "none"]}));
    assert_eq!(answer["complete"], true);
    let a = of(&answer, "a");
    assert_eq!(a["outcome"], "OnUpdate", "{a}");
    let write = |id: &str, operation: &str, keyspace: &str, doc: Value| json!({"id": id, "operation": operation, "keyspace": keyspace, "doc": doc});
    let own = "_default.dst";
    assert_eq!(
        a["writes"],
        json!([
            write("a", "store", own, json!({"n": 1})),
            write("a", "store", own, json!({"n": 2})),
            {"id": "old", "operation": "remove", "keyspace": own},
            write("count", "mutate", own, json!({"count": 1})),
            write("q", "upsert", "default._default.dst", json!({"n": 1})),
        ]),
    );
    let request = &a["requests"][0];
    assert_eq!(request["url"], "http://127.0.0.1:1/base/x");
    assert_eq!((&request["method"], &request["body"]), (&json!("POST"), &json!("{\"n\":1}")));
    assert!(!a.to_string().contains("uthorization"), "no secrets: {a}");
    let timer = json!({"callback": "Later", "reference": "a", "due_ms": 1_900_000_000_000_u64,
        "context": {"status": 200}});
    assert!(a["timers"].as_array().unwrap().contains(&timer), "{a}");
    assert!(a["log"][0].as_str().unwrap().ends_with("[INFO] \"seen\" \"a\""), "{a}");
    assert!(a["steps"].is_u64() && a["seq"].is_u64() && a["vb"].is_u64(), "{a}");
    let b = of(&answer, "b");
    assert_eq!(b["error"], "Error: no such thing (line 3, column 28)", "{b}");
    assert_eq!(b["writes"], Value::Null);
    assert_eq!(of(&answer, "c")["outcome"], "filtered");
    assert_eq!(of(&answer, "none")["outcome"], "missing");
    // The dry run has had no effect.
    assert_eq!(dst.get("old"), Some(json!(1)));
    assert_eq!([dst.get("a"), dst.get("count"), dst.get("q")], [None, None, None]);
    // Another definition, of a function that need not be there.
    let code = "function OnUpdate(doc, meta) { dst.other = [meta.id, dst.old] }";
    let other = function("other", code, "_default", &["dst"]);
    let answer = dry_run(&server, "other", &json!({"function": other, "last": 2}));
    let documents = answer["documents"].as_array().unwrap();
    assert_eq!(documents.len(), 2, "{answer}");
    assert_eq!(of(&answer, "c")["writes"][0]["doc"], json!(["c", 1]));
    assert_eq!(ask(&server, "GET", "/api/v1/functions/other", &Value::Null).0, 404);
    // A part of history; deletions are part of it.
    assert!(source.remove("a"));
    let (vbid, seqno) = (a["vb"].clone(), a["seq"].as_u64().unwrap());
    let answer = dry_run(&server, "tried", &json!({"vbucket": vbid, "from": seqno + 1}));
    assert_eq!(answer["documents"].as_array().unwrap().len(), 1, "{answer}");
    let gone = of(&answer, "a");
    assert_eq!(
        (&gone["outcome"], &gone["writes"][0]["id"]),
        (&json!("OnDelete"), &json!("gone a"))
    );
    let path = "/api/v1/functions/tried/dryrun";
    let both = json!({"documents": ["a"], "last": 1});
    assert_eq!(ask(&server, "POST", path, &both).0, 400);
    assert_eq!(ask(&server, "POST", path, &json!({"docs": ["a"]})).0, 400);
    let broken = json!({"function": function("tried", "function OnUpdate( {", "_default", &[])});
    let (status, answer) = ask(&server, "POST", path, &broken);
    assert_eq!((status, &answer["name"]), (422, &json!("ERR_HANDLER_COMPILATION")));
    server.stop();
}

#[test]
fn documents_whose_handlers_failed_can_be_retried() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = serving(directory.path());
    collections(&server, &["meta", "dst"]);
    let code = "function OnUpdate(doc, meta) {
            if (doc.n >= 10 && dst.open === undefined) throw new Error('closed');
            couchbase.increment(dst, {id: meta.id});
        }";
    deploy(&mut server, &function("again", code, "_default", &["dst"]));
    let mut source = Collection::open(&server, "_default");
    let mut dst = Collection::open(&server, "dst");
    for n in 0..20 {
        source.put(&format!("d{n}"), &json!({"n": n}));
    }
    let failures = |server: &Server, wanted: u64| {
        let all = &get(server, "/api/v1/stats")[0];
        let stats = &all["execution_stats"];
        let are_counted = stats["on_update_failure"] == wanted && stats["on_update_success"] == 10;
        (are_counted && all["events_remaining"]["dcp_backlog"] == 0).then_some(())
    };
    server.wait_for("failures", |server| failures(server, 10));
    let path = "/api/v1/functions/again/replay";
    let replay = |server: &mut Server, body: &Value| {
        let (status, answer) = ask(server, "POST", path, body);
        assert_eq!(status, 200, "{answer}");
    };
    // They fail again, and are still replayed once.
    replay(&mut server, &json!({"failed": true}));
    server.wait_for("the same failures", |server| failures(server, 20));
    dst.put("open", &json!(1));
    replay(&mut server, &json!({"failed": true}));
    let count =
        |dst: &mut Collection, id: &str| dst.get(id).map_or(json!(0), |n| n["count"].clone());
    server.wait_for("those that failed", |_| {
        (0..20).all(|n| count(&mut dst, &format!("d{n}")) == 1).then_some(())
    });
    // All documents again, and new ones as well.
    replay(&mut server, &json!({}));
    source.put("new", &json!({"n": 1}));
    server.wait_for("all of them", |_| {
        (0..20).all(|n| count(&mut dst, &format!("d{n}")) == 2).then_some(())
    });
    server.wait_for("the new one", |_| dst.get("new"));
    // The documents are reported before the vBuckets without any are through.
    let ended = json!({"parts_remaining": 0, "documents": 40});
    server.wait_for("the end of the replay", |server| {
        (get(server, "/api/v1/stats")[0]["replay"] == ended).then_some(())
    });
    // Nothing was written since a time in the future.
    replay(&mut server, &json!({"since_ms": 4_000_000_000_000_u64}));
    server.wait_for("the end", |server| {
        (get(server, "/api/v1/stats")[0]["replay"]["parts_remaining"] == 0).then_some(())
    });
    assert_eq!(count(&mut dst, "d0"), 2);
    command(&server, "again", "pause");
    let (status, answer) = ask(&server, "POST", path, &json!({}));
    assert_eq!((status, &answer["name"]), (406, &json!("ERR_APP_NOT_DEPLOYED")));
}
