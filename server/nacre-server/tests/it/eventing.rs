//! Functions on a node: over REST, across crashes, and within the rights of their authors.
//!
//! `NACRE_FEED_USERS`, `NACRE_FEED_FOLLOWEES` and `NACRE_TIMERS` make the long tests longer.

use crate::process::{BUCKET, PASSWORD, Server, USER, from_env};
use nacre_conformance::http::{self, Answer};
use nacre_conformance::kv::{KvClient, Request};
use serde_json::{Value, json};
use std::time::Duration;

/// Framing extras of a write that is on disk before it is acknowledged.
const DURABLE: [u8; 2] = [0x11, 3];
const OP_SET: u8 = 0x01;
const OP_GET: u8 = 0x00;
const OP_DELETE: u8 = 0x04;
const OP_LOCK: u8 = 0x94;

pub fn eventing(server: &Server, user: &str, method: &str, path: &str, body: &Value) -> Answer {
    let address = format!("127.0.0.1:{}", server.port_base + 5);
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let auth = Some((user, PASSWORD));
    http::request(&address, method, path, auth, "application/json", body.as_bytes()).unwrap()
}

/// Status and body of a request by the administrator.
pub fn ask(server: &Server, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let answer = eventing(server, USER, method, path, body);
    (answer.status, answer.json().unwrap_or_else(|_| answer.text().into()))
}

pub fn get(server: &Server, path: &str) -> Value {
    ask(server, "GET", path, &Value::Null).1
}

pub fn collections(server: &Server, names: &[&str]) {
    for name in names {
        let path = format!("/pools/default/buckets/{BUCKET}/scopes/_default/collections");
        let answer = server.rest("POST", &path, &format!("name={name}")).unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
}

pub fn binding(alias: &str, bucket: &str, collection: &str) -> Value {
    json!({"alias": alias, "bucket_name": bucket, "scope_name": "_default",
        "collection_name": collection, "access": "rw"})
}

/// A function on `source`, with aliases of its own name for `source` and each of `others`.
pub fn function(name: &str, code: &str, source: &str, others: &[&str]) -> Value {
    let aliases = others.iter().map(|alias| binding(alias, BUCKET, alias));
    json!({
        "appname": name, "appcode": code, "version": "1", "settings": {},
        "depcfg": {
            "source_bucket": BUCKET, "source_scope": "_default", "source_collection": source,
            "metadata_bucket": BUCKET, "metadata_scope": "_default", "metadata_collection": "meta",
            "buckets": aliases.collect::<Vec<_>>(), "curl": [], "constants": [],
        },
    })
}

pub fn define(server: &Server, function: &Value) {
    let path = format!("/api/v1/functions/{}", function["appname"].as_str().unwrap());
    let (status, answer) = ask(server, "POST", &path, function);
    assert_eq!(status, 200, "{answer}");
}

pub fn command(server: &Server, name: &str, command: &str) {
    let path = format!("/api/v1/functions/{name}/{command}");
    let (status, answer) = ask(server, "POST", &path, &Value::Null);
    assert_eq!(status, 200, "{command}: {answer}");
}

pub fn wait_for_status(server: &mut Server, name: &str, wanted: &str) {
    let path = format!("/api/v1/status/{name}");
    server.wait_for(wanted, |server| {
        (get(server, &path)["app"]["composite_status"] == wanted).then_some(())
    });
}

pub fn deploy(server: &mut Server, function: &Value) {
    define(server, function);
    let name = function["appname"].as_str().unwrap();
    command(server, name, "deploy");
    wait_for_status(server, name, "deployed");
}

/// A client that writes to one collection.
pub struct Collection {
    pub client: KvClient,
    id: u32,
}

impl Collection {
    pub fn open(server: &Server, name: &str) -> Collection {
        let mut client = server.client();
        let id = client.collection_id(&format!("_default.{name}")).unwrap();
        Collection { client, id }
    }

    pub fn request(&self, opcode: u8, key: &str) -> Request {
        let (vbid, key) =
            (self.client.vbid(key.as_bytes()), self.client.wire_key(self.id, key.as_bytes()));
        Request { opcode, vbid, key, ..Request::default() }
    }

    /// Writes a document; whether it is in memory.
    pub fn set(&mut self, key: &str, value: &Value) -> bool {
        let request = Request {
            extras: vec![0; 8],
            value: value.to_string().into_bytes(),
            ..self.request(OP_SET, key)
        };
        self.client.call(&request).is_ok_and(|reply| reply.is_success())
    }

    /// Writes a document; whether it is on disk. It is not when the node is gone.
    pub fn put(&mut self, key: &str, value: &Value) -> bool {
        let request = Request {
            extras: vec![0; 8],
            value: value.to_string().into_bytes(),
            framing: DURABLE.to_vec(),
            ..self.request(OP_SET, key)
        };
        self.client.call(&request).is_ok_and(|reply| reply.is_success())
    }

    /// Removes a document; whether it was there.
    pub fn remove(&mut self, key: &str) -> bool {
        let request = self.request(OP_DELETE, key);
        self.client.call(&request).is_ok_and(|reply| reply.is_success())
    }

    pub fn get(&mut self, key: &str) -> Option<Value> {
        let reply = self.client.call(&self.request(OP_GET, key)).unwrap();
        reply.is_success().then(|| serde_json::from_slice(&reply.value).unwrap())
    }
}

/// The documents of the bucket.
fn item_count(server: &Server) -> u64 {
    let answer = server.rest("GET", &format!("/pools/default/buckets/{BUCKET}"), "").unwrap();
    answer.json().unwrap()["basicStats"]["itemCount"].as_u64().unwrap()
}

fn wait_for_items(server: &mut Server, wanted: u64) {
    server.wait_for("all documents", |server| (item_count(server) >= wanted).then_some(()));
    assert_eq!(item_count(server), wanted);
}

#[test]
fn a_function_copies_documents_and_is_paused_resumed_and_undeployed() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(directory.path());
    collections(&server, &["meta", "dst"]);
    let code = "function OnDeploy(action) { dst['deploy ' + action.reason] = action.delay > 0 }
        function OnUpdate(doc, meta) { dst[meta.id] = doc; couchbase.increment(dst, {id: 'n'}) }";
    deploy(&mut server, &function("copy", code, "_default", &["dst"]));
    let mut source = Collection::open(&server, "_default");
    let mut copies = Collection::open(&server, "dst");
    source.put("a", &json!(1));
    server.wait_for("the copy", |_| copies.get("a"));
    command(&server, "copy", "pause");
    wait_for_status(&mut server, "copy", "paused");
    source.put("b", &json!(2));
    let (status, answer) = ask(&server, "POST", "/api/v1/functions/copy/pause", &Value::Null);
    assert_eq!((status, &answer["name"]), (422, &json!("ERR_APP_PAUSED")));
    // Other code for a function that is paused goes on where it was.
    let changed = code.replace("= doc;", "= [doc];");
    define(&server, &function("copy", &changed, "_default", &["dst"]));
    command(&server, "copy", "resume");
    assert_eq!(server.wait_for("the other copy", |_| copies.get("b")), json!([2]));
    server.wait_for("the count", |_| copies.get("n").filter(|n| n["count"] == 2));
    assert_eq!(copies.get("deploy deploy"), Some(json!(false)));
    assert_eq!(copies.get("deploy resume"), Some(json!(true)));
    assert_eq!(copies.get("a"), Some(json!(1)), "it was not taken again");
    command(&server, "copy", "undeploy");
    wait_for_status(&mut server, "copy", "undeployed");
    command(&server, "copy", "deploy");
    server.wait_for("all over again", |_| copies.get("a").filter(|copy| *copy == json!([1])));
    // Log lines survive a pause; counters begin with each opening.
    let (_, stats) = ask(&server, "GET", "/getExecutionStats?name=copy", &Value::Null);
    assert_eq!(stats["on_update_failure"], 0);
    assert_eq!(ask(&server, "GET", "/resetStatsCounters?name=copy", &Value::Null).0, 200);
    server.stop();
    let mut server = Server::start(directory.path());
    wait_for_status(&mut server, "copy", "deployed");
    let mut source = Collection::open(&server, "_default");
    let mut copies = Collection::open(&server, "dst");
    source.put("c", &json!(3));
    server.wait_for("a copy after the restart", |_| copies.get("c"));
}

/// Of versions in quick succession, an ordinary function would see the last.
#[test]
fn a_function_that_requests_it_gets_every_version_with_the_previous_one() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(directory.path());
    let bucket = format!("/pools/default/buckets/{BUCKET}");
    assert_eq!(server.rest("DELETE", &bucket, "").unwrap().status, 200);
    let settings = "ramQuotaMB=256&numVBuckets=64&storageBackend=magma&historyRetentionSeconds=60";
    let settings = format!("name={BUCKET}&{settings}");
    assert_eq!(server.rest("POST", "/pools/default/buckets", &settings).unwrap().status, 202);
    collections(&server, &["meta", "dst", "late"]);
    let code =
        "function OnUpdate(doc, meta) { dst[`${meta.id} ${doc.n}`] = ['old' in meta, meta.old] }
        function OnDelete(meta) { dst[`${meta.id} gone`] = ['old' in meta, meta.old] }";
    let mut asks = function("asks", code, "_default", &["dst"]);
    asks["settings"] = json!({"old_documents": true});
    deploy(&mut server, &asks);
    let mut source = Collection::open(&server, "_default");
    let mut told = Collection::open(&server, "dst");
    for n in 1..=50 {
        assert!(
            source.client.set(b"k", json!({ "n": n }).to_string().as_bytes()).unwrap().is_success()
        );
    }
    assert!(source.client.call(&source.request(OP_DELETE, "k")).unwrap().is_success());
    let last = server.wait_for("the deletion", |_| told.get("k gone"));
    assert_eq!(last, json!([true, {"n": 50}]));
    assert_eq!(told.get("k 1"), Some(json!([false, null])), "there was none before");
    for n in 2..=50 {
        assert_eq!(told.get(&format!("k {n}")), Some(json!([true, {"n": n - 1}])));
    }
    // One that comes when all has left memory reads it from the store.
    let mut late = function("late", &code.replace("dst[", "late["), "_default", &["late"]);
    late["settings"] = json!({"old_documents": true});
    deploy(&mut server, &late);
    let mut told = Collection::open(&server, "late");
    let last = server.wait_for("the deletion once more", |_| told.get("k gone"));
    assert_eq!(last, json!([true, {"n": 50}]));
    assert_eq!(told.get("k 30"), Some(json!([true, {"n": 29}])));
    let wrong = json!({"old_documents": 1});
    let path = "/api/v1/functions/asks/settings";
    assert_ne!(ask(&server, "POST", path, &wrong).0, 200);
}

#[test]
fn a_function_waits_for_a_locked_document() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(directory.path());
    collections(&server, &["meta", "dst"]);
    let code =
        "function OnUpdate(doc, meta) { couchbase.increment(dst, {id: 'runs'}); dst.held = doc }";
    deploy(&mut server, &function("patient", code, "_default", &["dst"]));
    let (mut source, mut copies) =
        (Collection::open(&server, "_default"), Collection::open(&server, "dst"));
    copies.put("held", &json!("before"));
    let lock = Request { extras: 2u32.to_be_bytes().to_vec(), ..copies.request(OP_LOCK, "held") };
    assert!(copies.client.call(&lock).unwrap().is_success());
    source.put("a", &json!("after"));
    server.wait_for("the write", |_| copies.get("held").filter(|held| *held == "after"));
    assert_eq!(copies.get("runs"), Some(json!({"count": 1})), "nothing was done twice");
}

#[test]
fn timers_that_set_timers_do_not_starve_documents() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(directory.path());
    collections(&server, &["meta", "dst"]);
    let code = "function Again(n) { createTimer(Again, new Date(0), 'again', n + 1) }
        function OnUpdate(doc, meta) { createTimer(Again, new Date(0), 'again', 0); dst[meta.id] = 1 }";
    deploy(&mut server, &function("busy", code, "_default", &["dst"]));
    let (mut source, mut copies) =
        (Collection::open(&server, "_default"), Collection::open(&server, "dst"));
    for key in ["a", "b", "c"] {
        source.put(key, &json!(1));
        server.wait_for("the document", |_| copies.get(key));
    }
    let fired =
        get(&server, "/api/v1/stats")[0]["execution_stats"]["timer_callback_success"].clone();
    assert!(fired.as_u64().unwrap() > 0, "{fired}");
    command(&server, "busy", "undeploy");
}

/// A secret that clients cannot read is kept for its server only: another host would learn it.
#[test]
fn stored_secrets_are_kept_for_the_same_server_only() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    collections(&server, &["meta", "dst"]);
    let with = |curl: Value| {
        let mut written = function("f", "function OnUpdate(doc, meta) {}", "_default", &["dst"]);
        written["depcfg"]["curl"] = json!([curl]);
        written
    };
    let basic = |host: &str, user: &str, password: &str| {
        json!({"hostname": host, "value": "site", "auth_type": "basic", "username": user,
            "password": password})
    };
    let bearer = |host: &str, key: &str| json!({"hostname": host, "value": "site", "auth_type": "bearer", "bearer_key": key});
    let put = |curl: Value| ask(&server, "POST", "/api/v1/functions/f", &with(curl));
    let refused = |curl: Value| {
        let (status, told) = put(curl);
        let told = told.to_string();
        status == 400 && told.contains("again") && told.contains("site")
    };
    assert_eq!(put(basic("https://a.example/x", "ann", "secret")).0, 200);
    assert_eq!(put(basic("https://A.example:443/y", "ann", "")).0, 200, "another path");
    for host in ["https://b.example/", "http://a.example/", "https://a.example:8443/"] {
        assert!(refused(basic(host, "ann", "")), "{host}");
        assert_eq!(put(basic("https://a.example/", "ann", "")).0, 200, "nothing has changed");
        let config = &with(basic(host, "ann", ""))["depcfg"];
        assert_eq!(ask(&server, "POST", "/api/v1/functions/f/config", config).0, 400, "{host}");
    }
    assert!(refused(basic("https://a.example/", "bob", "")), "another user");
    assert!(refused(bearer("https://a.example/", "")), "another kind");
    assert_eq!(put(bearer("https://a.example/", "token")).0, 200);
    assert_eq!(put(bearer("https://a.example/z", "")).0, 200);
    assert!(refused(bearer("https://evil.example/", "")));
    assert_eq!(put(basic("https://b.example/", "ann", "given")).0, 200, "with a password");
}

#[test]
fn definitions_are_returned_exported_and_imported() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    collections(&server, &["meta", "dst"]);
    let mut written = function("f", "function OnUpdate(doc, meta) {}", "_default", &["dst"]);
    written["settings"] =
        json!({"worker_count": 3, "dcp_stream_boundary": "from_now", "mine": {"x": 1}});
    written["depcfg"]["curl"] = json!([{"hostname": "https://a.example", "value": "site",
        "auth_type": "basic", "username": "ann", "password": "secret"}]);
    written["depcfg"]["constants"] = json!([{"value": "N", "literal": "1"}]);
    define(&server, &written);
    let told = get(&server, "/api/v1/functions/f");
    assert_eq!(told["settings"]["mine"], json!({"x": 1}));
    assert_eq!(told["settings"]["dcp_stream_boundary"], "from_now");
    assert_eq!(told["settings"]["deployment_status"], false);
    assert_eq!(told["depcfg"]["curl"][0]["username"], "ann");
    assert_eq!(told["depcfg"]["curl"][0]["password"], "", "secrets stay");
    assert_eq!(told["function_scope"], json!({"bucket": "*", "scope": "*"}));
    assert_eq!(get(&server, "/api/v1/functions/f/config"), told["depcfg"]);
    assert_eq!(get(&server, "/api/v1/functions/f/settings"), told["settings"]);
    assert_eq!(get(&server, "/api/v1/functions/f/appcode"), written["appcode"]);
    assert_eq!(get(&server, "/api/v1/list/functions"), json!({"functions": ["f"]}));
    let exported = get(&server, "/api/v1/export");
    assert_eq!(exported, json!([told]));
    assert_eq!(ask(&server, "DELETE", "/api/v1/functions/f", &Value::Null).0, 200);
    assert_eq!(get(&server, "/api/v1/functions"), json!([]));
    assert_eq!(ask(&server, "POST", "/api/v1/import", &exported).0, 200);
    assert_eq!(get(&server, "/api/v1/functions/f")["depcfg"], told["depcfg"]);
    // Parts of a definition.
    assert_eq!(
        ask(&server, "POST", "/api/v1/functions/f/settings", &json!({"worker_count": 5})).0,
        200
    );
    assert_eq!(get(&server, "/api/v1/functions/f/settings")["worker_count"], 5);
    let (status, refused) = ask(&server, "POST", "/api/v1/functions/g", &written);
    assert_eq!((status, &refused["name"]), (422, &json!("ERR_APPNAME_MISMATCH")));
    let (status, refused) = ask(&server, "GET", "/api/v1/functions/none", &Value::Null);
    assert_eq!((status, &refused["name"]), (404, &json!("ERR_APP_NOT_FOUND_TS")));
    let (status, refused) = ask(&server, "POST", "/api/v1/functions", &json!([{"x": 1}]));
    assert_eq!((status, &refused["name"]), (400, &json!("ERR_UNMARSHAL_PLD")));
    let mut slash = written.clone();
    slash["appname"] = json!("default/_default/f");
    let (status, refused) = ask(&server, "POST", "/api/v1/functions", &slash);
    assert_eq!((status, &refused["name"]), (400, &json!("ERR_INVALID_CONFIG")));
    let elsewhere = "/api/v1/functions/f?bucket=default&scope=none";
    let (status, refused) = ask(&server, "POST", elsewhere, &written);
    assert_eq!((status, &refused["name"]), (400, &json!("ERR_COLLECTION_MISSING")));
    // Settings deploy and undeploy, as they always did.
    let running = json!({"deployment_status": true, "processing_status": true});
    assert_eq!(ask(&server, "POST", "/api/v1/functions/f/settings", &running).0, 200);
    assert_eq!(get(&server, "/api/v1/functions/f/settings")["processing_status"], true);
    let (status, refused) = ask(&server, "DELETE", "/api/v1/functions/f", &Value::Null);
    assert_eq!((status, &refused["name"]), (422, &json!("ERR_APP_NOT_UNDEPLOYED")));
}

#[test]
fn functions_that_would_trigger_each_other_are_not_deployed_unless_allowed() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(directory.path());
    collections(&server, &["a", "b", "meta"]);
    let code = "function OnUpdate(doc, meta) {}";
    deploy(&mut server, &function("there", code, "a", &["b"]));
    define(&server, &function("back", code, "b", &["a"]));
    let refused = |server: &Server| {
        let path = "/api/v1/functions/back/deploy";
        let (status, answer) = ask(server, "POST", path, &Value::Null);
        (status, answer["name"].clone(), answer["code"].clone())
    };
    let recursion = (400, json!("ERR_INTER_FUNCTION_RECURSION"), json!(50));
    assert_eq!(refused(&server), recursion);
    let config = |server: &Server, body: &Value| ask(server, "POST", "/api/v1/config", body).0;
    assert_eq!(config(&server, &json!({"allow_interbucket_recursion": "yes"})), 400);
    assert_eq!(config(&server, &json!({"no_such": true})), 400);
    assert_eq!(config(&server, &json!({"allow_interbucket_recursion": true})), 200);
    let told = get(&server, "/api/v1/config");
    assert_eq!(told, json!({"enable_debugger": false, "allow_interbucket_recursion": true}));
    command(&server, "back", "deploy");
    wait_for_status(&mut server, "back", "deployed");
    command(&server, "back", "undeploy");
    assert_eq!(config(&server, &json!({"allow_interbucket_recursion": false})), 200);
    wait_for_status(&mut server, "back", "undeployed");
    assert_eq!(refused(&server), recursion);
}

#[test]
fn a_function_reaches_other_buckets_and_follows_all_collections_of_a_scope() {
    let directory = tempfile::tempdir().unwrap();
    let arguments = ["--buckets", "default,other.one"];
    let mut server = Server::start_with(directory.path(), crate::process::port_base(), &arguments);
    collections(&server, &["meta"]);
    let code = "function OnUpdate(doc, meta) {
        far[meta.keyspace.collection_name + ' ' + meta.id] = doc;
        couchbase.upsert(src, {id: 'made ' + meta.id, keyspace: meta.keyspace}, 1) }";
    let mut wide = function("wide", code, "*", &[]);
    wide["depcfg"]["metadata_bucket"] = json!("other.one");
    wide["depcfg"]["metadata_collection"] = json!("_default");
    wide["depcfg"]["buckets"] =
        json!([binding("far", "other.one", "_default"), binding("src", BUCKET, "*")]);
    deploy(&mut server, &wide);
    collections(&server, &["late"]);
    Collection::open(&server, "_default").put("a", &json!(1));
    Collection::open(&server, "late").put("b", &json!(2));
    let address = format!("127.0.0.1:{}", server.port_base + 10);
    let mut other = KvClient::connect(address, USER, PASSWORD, "other.one").unwrap();
    for key in ["_default a", "late b"] {
        server.wait_for(key, |_| other.get(key.as_bytes()).unwrap().is_success().then_some(()));
    }
    let mut late = Collection::open(&server, "late");
    server.wait_for("the other document", |_| late.get("made b"));
    assert!(!other.get(b"late made b").unwrap().is_success(), "its own writes do not wake it");
}

#[test]
fn defining_a_function_needs_the_rights_that_it_uses() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    collections(&server, &["meta", "dst"]);
    let user = |name: &str, roles: &str| {
        let form = format!("password={PASSWORD}&roles={roles}");
        let answer = server.rest("PUT", &format!("/settings/rbac/users/local/{name}"), &form);
        assert_eq!(answer.unwrap().status, 200);
    };
    user("reader", "data_reader[default]");
    user("manager", "eventing_manage_functions[default:_default]");
    user(
        "author",
        "eventing_manage_functions[default:_default],data_dcp_reader[default],data_writer[default:_default:dst]",
    );
    user("admin2", "eventing_admin");
    let mut own = function("f", "function OnUpdate(doc, meta) {}", "_default", &["dst"]);
    own["function_scope"] = json!({"bucket": "default", "scope": "_default"});
    let path = "/api/v1/functions/f?bucket=default&scope=_default";
    let told = |user: &str, path: &str| {
        let answer = eventing(&server, user, "POST", path, &own);
        (answer.status, answer.json().unwrap()["name"].as_str().unwrap_or_default().to_owned())
    };
    let forbidden = (403, "ERR_FORBIDDEN".to_owned());
    assert_eq!(told("reader", path), forbidden);
    assert_eq!(told("manager", path), forbidden, "it may not read the source");
    assert_eq!(told("author", "/api/v1/functions/g?bucket=default&scope=other"), forbidden);
    assert_eq!(told("author", path), (200, String::new()));
    assert_eq!(told("admin2", path), (200, String::new()));
    let mut wide = own.clone();
    wide["depcfg"]["buckets"] = json!([binding("x", BUCKET, "*")]);
    let answer = eventing(&server, "author", "POST", path, &wide);
    assert_eq!(answer.status, 403, "it may not write everywhere: {}", answer.text());
    let seen = |user: &str| {
        let answer = eventing(&server, user, "GET", "/api/v1/functions", &Value::Null);
        answer.json().unwrap().as_array().map(Vec::len)
    };
    assert_eq!((seen("reader"), seen("manager"), seen("admin2")), (Some(0), Some(1), Some(1)));
    let answer =
        server.rest("DELETE", "/pools/default/buckets/default/scopes/_default/collections/dst", "");
    assert_eq!(answer.unwrap().status, 200);
    let answer =
        eventing(&server, "admin2", "POST", &path.replace("/f?", "/f/deploy?"), &Value::Null);
    assert!(answer.text().contains("ERR_COLLECTION_MISSING"), "{}", answer.text());
}

const ACTIVITIES: u64 = 8;

/// Each activity of a user goes into the feed of each follower, a row each, by time.
const FEED: &str = "function OnUpdate(doc, meta) {
    for (const follower of followers[doc.user]) {
        feeds[`${follower}:${String(doc.time).padStart(6, '0')}`] = {user: doc.user, time: doc.time};
    }
}";

#[test]
fn every_feed_has_every_row_although_the_node_is_killed_twice() {
    let users = from_env("NACRE_FEED_USERS", 50);
    let followees = from_env("NACRE_FEED_FOLLOWEES", 20);
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(directory.path());
    collections(&server, &["meta", "followers", "feeds"]);
    let mut followers = Collection::open(&server, "followers");
    for user in 0..users {
        let of_user: Vec<u64> = (1..=followees).map(|step| (user + step) % users).collect();
        assert!(followers.put(&user.to_string(), &json!(of_user)));
    }
    deploy(&mut server, &function("feed", FEED, "_default", &["followers", "feeds"]));
    let total = users * ACTIVITIES;
    let mut written = 0;
    for stop in [total / 3, 2 * total / 3, total] {
        let mut source = Collection::open(&server, "_default");
        while written < stop {
            let activity = json!({"user": (written % users).to_string(), "time": written});
            assert!(source.put(&format!("activity {written}"), &activity));
            written += 1;
        }
        if written < total {
            server.kill();
            server = Server::start(directory.path());
        }
    }
    wait_for_items(&mut server, users + total + total * followees);
    let mut feeds = Collection::open(&server, "feeds");
    for user in 0..users {
        // The users whom a user follows, with the time of an action: the rows of the feed in their order.
        let followed = |time: &u64| {
            let author = time % users;
            (1..=followees).any(|step| (author + step) % users == user)
        };
        let rows: Vec<u64> = (0..total).filter(followed).collect();
        assert_eq!(rows.len() as u64, followees * ACTIVITIES);
        for time in rows {
            let row = feeds.get(&format!("{user}:{time:06}"));
            assert_eq!(row, Some(json!({"user": (time % users).to_string(), "time": time})));
        }
    }
}

#[test]
fn timers_that_are_due_while_the_node_is_killed_fire_once_each() {
    let timers = from_env("NACRE_TIMERS", 1000);
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(directory.path());
    collections(&server, &["meta", "fired"]);
    let code = "function Fire(id) { if (!couchbase.insert(fired, {id}, 1).success) log('twice', id) }
        function OnUpdate(doc, meta) {
            for (let i = 0; i < doc.count; i++) createTimer(Fire, new Date(doc.at + i % 1000), meta.id + ':' + i, meta.id + ':' + i);
        }";
    deploy(&mut server, &function("alarm", code, "_default", &["fired"]));
    let mut source = Collection::open(&server, "_default");
    #[expect(clippy::disallowed_methods, reason = "timers are set by the clock of the node")]
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let at = (now + Duration::from_secs(2)).as_millis() as u64;
    for document in 0..10 {
        let plan = json!({"count": timers / 10, "at": at});
        assert!(source.put(&document.to_string(), &plan));
    }
    // Killed as soon as some have fired.
    server.wait_for("the first", |server| (item_count(server) > 10).then_some(()));
    server.kill();
    let mut server = Server::start(directory.path());
    wait_for_items(&mut server, 10 + timers);
    wait_for_status(&mut server, "alarm", "deployed");
    server.wait_for("the last", |server| {
        let stats = get(server, "/api/v1/stats");
        (stats[0]["next_timer_us"].is_null() && stats[0]["events_remaining"]["dcp_backlog"] == 0)
            .then_some(())
    });
    assert_eq!(item_count(&server), 10 + timers);
}

#[test]
fn writes_of_a_function_do_not_trigger_it_after_a_crash_either() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(directory.path());
    collections(&server, &["meta", "runs"]);
    let code = "function OnUpdate(doc, meta) { src[meta.id + '+'] = doc; runs[meta.id] = 1 }";
    let mut own = function("own", code, "_default", &["runs"]);
    own["depcfg"]["buckets"] =
        json!([binding("src", BUCKET, "_default"), binding("runs", BUCKET, "runs")]);
    deploy(&mut server, &own);
    let mut source = Collection::open(&server, "_default");
    for document in 0..100 {
        assert!(source.put(&document.to_string(), &json!(document)));
    }
    server.kill();
    let mut server = Server::start(directory.path());
    let mut source = Collection::open(&server, "_default");
    assert!(source.put("last", &json!("last")));
    wait_for_items(&mut server, 3 * 101);
    server.wait_for("the end", |server| {
        let stats = get(server, "/api/v1/stats");
        (stats[0]["events_remaining"]["dcp_backlog"] == 0).then_some(())
    });
    assert_eq!(item_count(&server), 3 * 101);
}
