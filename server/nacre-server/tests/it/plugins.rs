//! Packages of plugins through the whole node: uploaded, deployed, upgraded, paused, replayed, removed.
//!
//! The component is that of the views, whose configuration is a design document.

use crate::process::{BUCKET, PASSWORD, Server, USER};
use base64::Engine;
use nacre_sandbox::Package;
use nacre_store::{LogSpaces, OnDamage, Spaces as _};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

/// Rows are counted by the member `n` of documents.
pub const CONFIG: &str = r#"{"name": "d", "views": {"n": {"map": "function (doc) { emit(doc.n, 1) }", "reduce": "_sum"}}}"#;

fn component() -> Vec<u8> {
    // <target>/<profile>/nacre
    let binary = Path::new(env!("CARGO_BIN_EXE_nacre"));
    let path = binary.ancestors().nth(2).unwrap().join("plugins/views.wasm");
    std::fs::read(&path).unwrap_or_else(|_| {
        panic!("{} is missing: run `cargo xtask plugins` before the tests", path.display())
    })
}

fn package(version: &str, more: &str) -> Vec<u8> {
    let manifest =
        format!("name = \"sums\"\nversion = \"{version}\"\ncomponent = \"plugin.wasm\"\n{more}\n");
    let files = BTreeMap::from([("plugin.wasm".to_owned(), component())]);
    Package::new(manifest, files).unwrap().write()
}

/// One request with a body of any kind; gives status and body.
pub fn ask(server: &Server, method: &str, path: &str, headers: &str, body: &[u8]) -> (u16, Value) {
    let login = base64::engine::general_purpose::STANDARD.encode(format!("{USER}:{PASSWORD}"));
    let mut stream = TcpStream::connect(("127.0.0.1", server.port_base)).unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: n\r\nConnection: close\r\nAuthorization: Basic {login}\r\n{headers}Content-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let text = String::from_utf8_lossy(&answer);
    let status = text.split(' ').nth(1).unwrap().parse().unwrap();
    let (_, body) = text.split_once("\r\n\r\n").unwrap();
    (status, serde_json::from_str(body).unwrap_or_else(|_| Value::String(body.into())))
}

pub fn upload(server: &Server, version: &str, more: &str) -> (u16, Value) {
    ask(server, "POST", "/plugins", "", &package(version, more))
}

pub fn deploy(server: &Server, version: &str, config: &str) -> (u16, Value) {
    let config: Value = serde_json::from_str(config).unwrap();
    let wanted = json!({"package": "sums", "version": version, "bucket": BUCKET, "config": config});
    ask(server, "PUT", "/deployments/sums", "", wanted.to_string().as_bytes())
}

pub fn status(server: &Server) -> Value {
    let (code, status) = ask(server, "GET", "/deployments/sums", "", b"");
    assert_eq!(code, 200, "{status}");
    status
}

/// The sum of a state that reflects every write before, or none without a row.
pub fn sum(server: &Server) -> Value {
    let fresh = "Nacre-Consistency: request_plus\r\n";
    let (code, answer) = ask(server, "GET", "/_plugin/sums/n", fresh, b"");
    assert_eq!(code, 200, "{answer}");
    answer["rows"][0]["value"].clone()
}

fn write(server: &Server, keys: std::ops::Range<u32>) {
    let mut client = server.client();
    for key in keys {
        client.set(format!("k{key}").as_bytes(), b"{\"n\":1}").unwrap();
    }
}

#[test]
fn a_profile_shows_where_a_deployment_spends_its_time() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let profile =
        |query: &str| ask(&server, "GET", &format!("/deployments/sums/profile{query}"), "", b"");
    assert_eq!(profile("").0, 404);
    let busy = CONFIG.replace("emit(", "for (let i = 0; i < 2e4; i++); emit(");
    assert_eq!(upload(&server, "1", "").0, 201);
    assert_eq!(deploy(&server, "1", &busy).0, 200);
    for wrong in ["?seconds=0", "?seconds=61", "?seconds=a"] {
        assert_eq!(profile(wrong).0, 400, "{wrong}");
    }
    let looked = || {
        let told = profile("?seconds=1");
        assert_eq!(told.0, 200, "{told:?}");
        let counts = told.1.as_str().unwrap().lines().map(|line| line.rsplit_once(' ').unwrap().1);
        counts.map(|count| count.parse::<u64>().unwrap()).sum::<u64>()
    };
    std::thread::scope(|scope| {
        // On a machine with other things to do it is seldom at work.
        let looking = scope.spawn(|| {
            let mut ticks = 0;
            (0..20).any(|_| {
                ticks += looked();
                ticks > 10
            })
        });
        for round in 0.. {
            write(&server, round * 10..round * 10 + 10);
            sum(&server);
            if looking.is_finished() {
                break;
            }
        }
        assert!(looking.join().unwrap(), "it was hardly seen at work");
    });
    assert_eq!(sum(&server), json!(status(&server)["documents"]));
}

#[test]
fn a_package_is_deployed_upgraded_and_removed() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(directory.path());
    write(&server, 0..300);
    assert_eq!(upload(&server, "1", "").0, 201);
    assert_eq!(upload(&server, "1", "").0, 201, "the same once more");
    assert_eq!(upload(&server, "1", "description = \"other\"").0, 409);
    assert_eq!(deploy(&server, "1", CONFIG).0, 200);
    assert_eq!(sum(&server), 300);

    // The same format of state: the next version continues with it.
    assert_eq!(upload(&server, "2", "").0, 201);
    let (code, upgraded) = deploy(&server, "2", CONFIG);
    assert_eq!((code, &upgraded["running_version"]), (200, &json!("2")));
    write(&server, 300..400);
    assert_eq!(sum(&server), 400);
    assert_eq!(status(&server)["documents"], 100, "it took none of the first 300 again");

    // Another format: it is built next to the old version, which answers meanwhile.
    assert_eq!(upload(&server, "3", "state_version = \"2\"").0, 201);
    assert_eq!(deploy(&server, "3", CONFIG).0, 200);
    assert_eq!(sum(&server), 400);
    server.wait_for("the upgrade", |server| {
        let status = status(server);
        (status["running_version"] == "3").then(|| assert_eq!(status["documents"], 400))
    });
    assert_eq!(sum(&server), 400);

    assert_eq!(ask(&server, "DELETE", "/plugins/sums/3", "", b"").0, 409, "it is deployed");
    assert_eq!(ask(&server, "DELETE", "/deployments/sums", "", b"").0, 200);
    assert_eq!(ask(&server, "GET", "/_plugin/sums/n", "", b"").0, 404);
    for version in ["1", "2", "3"] {
        assert_eq!(ask(&server, "DELETE", &format!("/plugins/sums/{version}"), "", b"").0, 200);
    }
    assert_eq!(ask(&server, "GET", "/plugins", "", b"").1, json!([]));
}

#[test]
fn a_paused_deployment_answers_and_continues_where_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(directory.path());
    upload(&server, "1", "");
    deploy(&server, "1", CONFIG);
    write(&server, 0..10);
    assert_eq!(sum(&server), 10);
    let (code, paused) = ask(&server, "POST", "/deployments/sums/pause", "", b"");
    assert_eq!((code, &paused["state"]), (200, &json!("paused")));
    write(&server, 10..15);
    let (_, stale) = ask(&server, "GET", "/_plugin/sums/n", "", b"");
    assert_eq!(stale["rows"][0]["value"], 10);
    let fresh = "Nacre-Consistency: request_plus\r\n";
    assert_eq!(ask(&server, "GET", "/_plugin/sums/n", fresh, b"").0, 503, "it will not be");
    ask(&server, "POST", "/deployments/sums/resume", "", b"");
    assert_eq!(sum(&server), 15);
    assert_eq!(status(&server)["documents"], 5);
    ask(&server, "POST", "/deployments/sums/replay", "", b"");
    server.wait_for("the replay", |server| (status(server)["documents"] == 15).then_some(()));
    assert_eq!(sum(&server), 15);
}

#[test]
fn a_deployment_resumes_after_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    upload(&server, "1", "");
    deploy(&server, "1", CONFIG);
    write(&server, 0..200);
    assert_eq!(sum(&server), 200);
    server.kill();
    let mut server = Server::start(directory.path());
    server
        .wait_for("the deployment", |server| (status(server)["state"] == "running").then_some(()));
    // Some writes may be lost, which is the store's affair: the state follows the present documents.
    write(&server, 0..250);
    assert_eq!(sum(&server), 250);
}

#[test]
fn a_deployment_since_now_skips_earlier_documents() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    write(&server, 0..100);
    upload(&server, "1", "");
    let config: Value = serde_json::from_str(CONFIG).unwrap();
    let wanted = json!({"package": "sums", "version": "1", "bucket": BUCKET, "since": "now", "config": config});
    ask(&server, "PUT", "/deployments/sums", "", wanted.to_string().as_bytes());
    assert_eq!(sum(&server), Value::Null);
    write(&server, 100..107);
    assert_eq!(sum(&server), 7);
}

/// Returns the state of a deployment once the version that is built next to it has replaced it.
fn sum_once_built(server: &mut Server, documents: u64) -> Value {
    server.wait_for("what is built", |server| {
        let status = status(server);
        (status["building"].is_null() && status["documents"] == documents).then_some(())
    });
    sum(server)
}

#[test]
fn a_rebuilt_deployment_begins_where_it_began() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(directory.path());
    write(&server, 0..100);
    upload(&server, "1", "");
    let put = |server: &Server, more: Value| {
        let config: Value = serde_json::from_str(CONFIG).unwrap();
        let mut wanted =
            json!({"package": "sums", "version": "1", "bucket": BUCKET, "config": config});
        wanted.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        ask(server, "PUT", "/deployments/sums", "", wanted.to_string().as_bytes())
    };
    assert_eq!(put(&server, json!({"since": "now"})).0, 200);
    write(&server, 100..107);
    assert_eq!(sum(&server), 7);
    assert_eq!(ask(&server, "POST", "/deployments/sums/replay", "", b"").0, 200);
    assert_eq!(sum_once_built(&mut server, 7), 7);

    // A new configuration, without a word of where to begin.
    let twice: Value = serde_json::from_str(&CONFIG.replace("doc.n, 1", "doc.n, 2")).unwrap();
    assert_eq!(put(&server, json!({"config": twice})).1["since"], "now");
    server.wait_for("the configuration", |server| (sum(server) == 14).then_some(()));
    assert_eq!(put(&server, json!({"since": "now"})).0, 200);
    server.wait_for("the one of before", |server| (sum(server) == 7).then_some(()));

    // After a token, and with everything.
    let changes = format!("/{BUCKET}/_default/_default/_changes");
    let told: Value = server.views("GET", &changes, "").json().unwrap();
    let token = told["last_seq"].as_str().unwrap().to_owned();
    write(&server, 107..110);
    assert_eq!(put(&server, json!({"since": token})).1["since"], json!(token));
    assert_eq!(sum_once_built(&mut server, 3), 3);
    assert_eq!(put(&server, json!({"since": "everything"})).0, 200);
    assert_eq!(sum_once_built(&mut server, 110), 110);

    let (code, told) = put(&server, json!({"since": "yesterday"}));
    assert_eq!(code, 400);
    assert!(told["errors"]["since"].to_string().contains("everything, now, or a last_seq"));
}

#[test]
fn an_invalid_deployment_is_refused_with_a_reason() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let post = |body: &[u8]| ask(&server, "POST", "/plugins", "", body);
    let reason = |answer: (u16, Value)| (answer.0, answer.1["errors"]["_"].to_string());
    let (code, text) = reason(post(b"no archive"));
    assert!(code == 400 && text.contains("not a package"), "{code} {text}");
    let manifest = "name = \"x\"\nversion = \"1\"\ncomponent = \"x.wasm\"\n";
    let files = BTreeMap::from([("x.wasm".to_owned(), b"no component".to_vec())]);
    let (code, text) = reason(post(&Package::new(manifest.into(), files).unwrap().write()));
    assert!(code == 400 && text.contains("not a plugin"), "{code} {text}");

    for (wrong, words) in [
        ("[limits]\nmemory_mb = 0", "limits.memory_mb"),
        ("[capabilities]\nhttp-out = [\"http://x\"]", "http://x"),
    ] {
        let (code, text) = reason(upload(&server, "1", wrong));
        assert!(code == 400 && text.contains(words), "{code} {text}");
    }
    assert_eq!(upload(&server, "1", "[capabilities]\nkv = { write = [\"a.b\"] }").0, 201);
    let put = |name: &str, wanted: Value| {
        ask(&server, "PUT", &format!("/deployments/{name}"), "", wanted.to_string().as_bytes())
    };
    let wanted = |more: Value| {
        let mut wanted = json!({
            "package": "sums", "version": "1", "bucket": BUCKET,
            "config": {"name": "d", "views": {}}, "grants": {"kv": {"write": ["*"]}},
        });
        wanted.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        wanted
    };
    let refused = [
        ("a", json!({"grants": {}}), 400, "write documents of a.b"),
        ("a", json!({"grants": {"kv": {"write": ["*"], "read": ["c.d"]}}}), 400, "kv:read=c.d"),
        ("a", json!({"version": "9"}), 404, "no package sums 9"),
        ("a", json!({"bucket": "nowhere"}), 404, "no bucket nowhere"),
        ("a", json!({"scope": "nowhere"}), 404, "nowhere"),
        ("a", json!({"collection": "c"}), 400, "null"),
        ("a", json!({"sinse": "now"}), 400, "sinse"),
        ("a", json!({"config": {"views": {"v": {"map": "function ("}}}}), 400, "v"),
        ("-", json!({}), 400, "null"),
    ];
    for (name, more, code, words) in refused {
        let (status, text) = reason(put(name, wanted(more.clone())));
        assert!(status == code && text.contains(words), "{more}: {status} {text}");
    }
    assert_eq!(ask(&server, "GET", "/deployments", "", b"").1, json!([]), "nothing was deployed");
    assert_eq!(put("a", wanted(json!({}))).0, 200);
    assert_eq!(put("a", wanted(json!({"scope": "_default"}))).0, 409, "another source");
}

#[test]
fn deploying_and_invoking_need_their_rights() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    upload(&server, "1", "");
    deploy(&server, "1", CONFIG);
    let user = |name: &str, roles: &str| {
        let form = format!("password=password&roles={roles}");
        let path = format!("/settings/rbac/users/local/{name}");
        assert_eq!(server.rest("PUT", &path, &form).unwrap().status, 200);
        base64::engine::general_purpose::STANDARD.encode(format!("{name}:password"))
    };
    let told = |login: &str, path: &str| {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port_base)).unwrap();
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: n\r\nConnection: close\r\nAuthorization: Basic {login}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let call = |login: &str, path: &str| told(login, path).split(' ').nth(1).unwrap().to_owned();
    let reader = user("reader", &format!("data_reader[{BUCKET}]"));
    let asker = user("asker", &format!("plugin_invoke[{BUCKET}]"));
    let viewer = user("viewer", "ro_admin");
    let deployer = user("deployer", &format!("plugin_admin,data_reader[{BUCKET}]"));
    let paths = ["/_plugin/sums/n", "/deployments"];
    assert_eq!(paths.map(|path| call(&reader, path)), ["403", "403"]);
    assert_eq!(paths.map(|path| call(&asker, path)), ["200", "403"]);
    assert_eq!(paths.map(|path| call(&viewer, path)), ["403", "200"]);
    assert_eq!(call(&viewer, "/deployments/sums"), "200");
    assert_eq!(call(&viewer, "/plugins"), "403");
    assert_eq!(call(&viewer, "/deployments/sums/capsules"), "403");
    assert_eq!(paths.map(|path| call(&deployer, path)), ["200", "200"]);
    for role in ["external_stats_reader", "data_monitoring[*]", "data_dcp_reader[*]"] {
        let watcher = user("watcher", role);
        assert_eq!(call(&watcher, "/deployments"), "403", "{role}");
        assert_eq!(call(&watcher, "/deployments/sums"), "403", "{role}");
    }
    let confidential = ["config", "log", "last_errors", "dead_letters", "dead_timers"];
    let has = |text: &str, member: &&str| text.contains(&format!("\"{member}\":"));
    for path in ["/deployments", "/deployments/sums"] {
        let all = told(&deployer, path);
        assert!(confidential.iter().all(|member| has(&all, member)), "{all}");
        for login in [
            &viewer,
            &user("blind", "plugin_admin"),
            &user("replicator", "replication_admin"),
            &user("saver", "backup_admin"),
        ] {
            let some = told(login, path);
            assert!(has(&some, &"lag"), "{some}");
            assert!(!confidential.iter().any(|member| has(&some, member)), "{some}");
        }
    }
}

/// The package of a file of JavaScript.
fn script(name: &str, source: &str, more: &str) -> Vec<u8> {
    let manifest = format!("name = \"{name}\"\nversion = \"1\"\nscript = \"main.js\"\n{more}\n");
    let files = BTreeMap::from([("main.js".to_owned(), source.as_bytes().to_vec())]);
    Package::new(manifest, files).unwrap().write()
}

/// Uploads and deploys a file of JavaScript.
fn deploy_script(server: &Server, name: &str, source: &str, more: &str) -> (u16, Value) {
    let package = script(name, source, more);
    assert_eq!(ask(server, "POST", "/plugins", "", &package).0, 201);
    let wanted = json!({"package": name, "version": "1", "bucket": BUCKET}).to_string();
    ask(server, "PUT", &format!("/deployments/{name}"), "", wanted.as_bytes())
}

#[test]
fn a_failed_bucket_is_not_retried_for_another() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(directory.path());
    // Its steps take long, so that the deadline comes before the limit of steps.
    let endless = "const all = Array.from({ length: 1e5 }, (_, i) => i);
        export function onUpdate() { for (;;) all.sort(); }";
    deploy_script(&server, "bad", endless, "[limits]\ndeadline_ms = 500");
    deploy_script(&server, "good", "export function onUpdate() {}", "");
    write(&server, 0..10);
    let bad = |server: &Server| ask(server, "GET", "/deployments/bad", "", b"").1;
    server.wait_for("the failure", |server| (bad(server)["state"] == "failed").then_some(()));
    let calls = bad(&server)["writer"]["calls"].clone();
    for command in ["pause", "resume"] {
        assert_eq!(ask(&server, "POST", &format!("/deployments/good/{command}"), "", b"").0, 200);
    }
    let untouched = bad(&server);
    assert_eq!((&untouched["state"], &untouched["writer"]["calls"]), (&json!("failed"), &calls));
    // The failed call is kept for its author.
    let capsules = |path: &str| ask(&server, "GET", &format!("/deployments/{path}"), "", b"");
    let (code, told) = capsules("bad/capsules");
    assert_eq!(code, 200);
    let id = told[0]["id"].as_str().unwrap();
    let (code, capsule) = capsules(&format!("bad/capsules/{id}"));
    assert_eq!((code, &capsule["reason"]), (200, &told[0]["reason"]));
    assert_eq!((&capsule["deployment"], &capsule["format"]), (&json!("bad"), &json!(1)));
    assert_eq!(capsules("bad/capsules/1").0, 404);
    assert_eq!(capsules("good/capsules").1, json!([]));
    assert_eq!(capsules("nobody/capsules").0, 404);
    // The author orders another try after mending the cause.
    let (code, told) = ask(&server, "POST", "/deployments/bad/resume", "", b"");
    assert_eq!((code, &told["state"]), (200, &json!("running")));
}

#[test]
fn a_bucket_that_could_not_be_opened_is_opened_once_possible() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let source = "export function onUpdate() {}";
    deploy_script(&server, "lost", source, "");
    deploy_script(&server, "other", source, "");
    server.stop();
    let spaces = LogSpaces::open(&directory.path().join("node"), OnDamage::Refuse).unwrap();
    let package = script("lost", source, "");
    let name = format!("packages/{}", nacre_sandbox::digest(&package));
    assert!(spaces.names().unwrap().contains(&name));
    spaces.remove(&name).unwrap();
    drop(spaces);
    let mut server = Server::start(directory.path());
    let state =
        |server: &Server| ask(server, "GET", "/deployments/lost", "", b"").1["state"].clone();
    server.wait_for("the failure", |server| (state(server) == "failed").then_some(()));
    assert_eq!(ask(&server, "POST", "/plugins", "", &package).0, 201);
    // Any change is an occasion to look again.
    assert_eq!(ask(&server, "POST", "/deployments/other/pause", "", b"").0, 200);
    assert_eq!(state(&server), "running");
}

#[test]
fn a_plugin_receives_its_caller_and_its_answers_are_checked() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let source = r#"
export function handle({ path, headers }) {
    if (path === "/bad") return new Response("", { headers: { "a b": "c" } });
    if (path.startsWith("/status/")) return new Response("", { status: Number(path.slice(8)) });
    return { user: headers["nacre-user"] };
}"#;
    assert_eq!(deploy_script(&server, "who", source, "").0, 200);
    let (code, told) = ask(&server, "GET", "/_plugin/who/", "Nacre-User: somebody\r\n", b"");
    assert_eq!((code, &told["user"]), (200, &json!(USER)));
    let (code, told) = ask(&server, "GET", "/_plugin/who/bad", "", b"");
    assert!(code == 500 && told["reason"].to_string().contains("a b"), "{code} {told}");
    let (code, told) = ask(&server, "GET", "/_plugin/who/status/101", "", b"");
    assert!(
        code == 500 && told["reason"].to_string().contains("101 is not a valid HTTP status"),
        "{code} {told}"
    );
    assert_eq!(ask(&server, "GET", "/_plugin/who/", "Nacre-Consistency: bogus\r\n", b"").0, 400);
}
