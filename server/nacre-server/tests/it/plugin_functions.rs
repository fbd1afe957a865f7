//! Functions of plugins: deployed, called in queries, upgraded, and how they end.

use crate::cluster::Node;
use crate::plugins::ask;
use crate::process::{BUCKET, PASSWORD, Server, USER};
use crate::queries::serving;
use nacre_conformance::http;
use nacre_sandbox::{Call, Capsule, Package};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A component of the plugins that test the host.
pub fn component(name: &str) -> Vec<u8> {
    // <target>/<profile>/nacre
    let binary = Path::new(env!("CARGO_BIN_EXE_nacre"));
    let path = binary.ancestors().nth(2).unwrap().join(format!("plugins/{name}.wasm"));
    std::fs::read(&path).unwrap_or_else(|_| {
        panic!("{} is missing: run `cargo xtask plugins` before the tests", path.display())
    })
}

/// The failed calls that a node has kept, the oldest first.
pub fn kept_calls(data_dir: &Path) -> Vec<Call> {
    let files = std::fs::read_dir(data_dir.join("capsules")).unwrap();
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    let read = |file: &PathBuf| {
        let capsule = Capsule::from_json(&std::fs::read_to_string(file).unwrap()).unwrap();
        assert!(capsule.is_whole, "{}", capsule.reason);
        capsule.call
    };
    files.iter().map(read).collect()
}

/// Uploads a package with that component.
pub fn upload(server: &Server, world: &str, version: &str, more: &str) -> (u16, Value) {
    let manifest = format!(
        "name = \"{world}\"\nversion = \"{version}\"\nworld = \"{world}\"\ncomponent = \"p.wasm\"\n{more}\n"
    );
    let files = BTreeMap::from([("p.wasm".to_owned(), component(&format!("probe-{world}")))]);
    ask(server, "POST", "/plugins", "", &Package::new(manifest, files).unwrap().write())
}

fn put(server: &Server, name: &str, wanted: &Value) -> (u16, Value) {
    ask(server, "PUT", &format!("/deployments/{name}"), "", wanted.to_string().as_bytes())
}

fn deploy(server: &Server, version: &str) {
    let (code, status) = put(server, "probe", &json!({"package": "functions", "version": version}));
    assert_eq!((code, &status["running_version"]), (200, &json!(version)), "{status}");
}

fn query_as(port_base: u16, user: &str, statement: &str) -> Value {
    let (address, patience) = (format!("127.0.0.1:{}", port_base + 2), Duration::from_secs(100));
    let (login, kind) = (Some((user, PASSWORD)), "application/json");
    let body = json!({"statement": statement}).to_string();
    let path = "/query/service";
    let answer =
        http::request_within(patience, &address, "POST", path, login, kind, body.as_bytes());
    answer.unwrap().json().unwrap()
}

fn query(server: &Server, statement: &str) -> Value {
    query_as(server.port_base, USER, statement)
}

fn rows(server: &Server, statement: &str) -> Value {
    let mut answer = query(server, statement);
    assert_eq!(answer["status"], "success", "{statement}: {answer}");
    answer["results"].take()
}

/// Makes functions that are called as in the plugin.
fn define(server: &Server, names: &[&str]) {
    for name in names {
        let create =
            format!("CREATE FUNCTION f_{name}(...) LANGUAGE WASM AS \"{name}\" AT \"probe\"");
        rows(server, &create);
    }
}

/// Returns the exception of a call.
fn exception(answer: &Value) -> &str {
    assert_eq!(answer["errors"][0]["code"], 10109, "{answer}");
    let reason = &answer["errors"][0]["reason"];
    assert_eq!(reason["type"], "Exceptions from Wasm code", "{answer}");
    reason["details"]["Exception"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

fn status(server: &Server) -> Value {
    let (code, status) = ask(server, "GET", "/deployments/probe", "", b"");
    assert_eq!(code, 200, "{status}");
    status
}

#[test]
fn a_function_of_a_plugin_is_called_by_queries_until_it_is_undeployed() {
    let directory = tempfile::tempdir().unwrap();
    let server = serving(directory.path());
    define(&server, &["count", "calls", "none"]);
    let early = query(&server, "SELECT f_count(1)");
    assert_eq!(exception(&early), "there is no deployment probe");
    assert_eq!(upload(&server, "functions", "1", "").0, 201);
    deploy(&server, "1");
    assert_eq!(rows(&server, "SELECT RAW f_count(1, MISSING, {\"a\": [2]})"), json!([3]));
    assert_eq!(rows(&server, "EXECUTE FUNCTION f_count()"), json!([0]));
    // One instance for each request: its variables are not shared.
    let counted = "SELECT RAW MAX(f_calls()) FROM ARRAY_RANGE(0, 10) AS r";
    assert_eq!(rows(&server, counted), json!([10]));
    assert_eq!(rows(&server, counted), json!([10]));
    assert_eq!(exception(&query(&server, "SELECT f_none()")), "there is no function \"none\"");
    let message = &query(&server, "SELECT f_none()")["errors"][0]["msg"];
    assert_eq!(message, "Error executing function 'f_none' (probe:none)");

    assert_eq!(upload(&server, "functions", "2", "").0, 201);
    deploy(&server, "2");
    assert_eq!(rows(&server, "SELECT RAW f_count(1)"), json!([1]));
    assert_eq!(ask(&server, "DELETE", "/plugins/functions/2", "", b"").0, 409, "it is deployed");
    assert_eq!(ask(&server, "DELETE", "/deployments/probe", "", b"").0, 200);
    assert_eq!(exception(&query(&server, "SELECT f_count(1)")), "there is no deployment probe");
    assert_eq!(ask(&server, "DELETE", "/plugins/functions/2", "", b"").0, 200);
    assert_eq!(ask(&server, "GET", "/deployments", "", b"").1, json!([]));
}

#[test]
fn a_function_that_ends_badly_fails_its_query_alone() {
    let directory = tempfile::tempdir().unwrap();
    let server = serving(directory.path());
    assert_eq!(upload(&server, "functions", "1", "[limits]\nmemory_mb = 8\n").0, 201);
    deploy(&server, "1");
    define(&server, &["loop", "trap", "grow", "words", "count", "says"]);
    for (name, why) in [
        ("loop", "stopped after 50 ms"),
        ("trap", "on purpose"),
        ("grow", "needs more than 8388608 bytes of memory"),
        ("words", "its result is not JSON"),
    ] {
        let answer = query(&server, &format!("EXECUTE FUNCTION f_{name}()"));
        assert!(exception(&answer).contains(why), "{name}: {answer}");
        assert_eq!(rows(&server, "SELECT RAW f_count(1)"), json!([1]), "after {name}");
    }
    rows(&server, "SELECT f_says('hello')");
    let of = |name: &str| Call::Function { name: name.into(), arguments: "[]".into() };
    assert_eq!(kept_calls(directory.path()), [of("loop"), of("trap"), of("grow")]);
    let status = status(&server);
    assert_eq!((&status["state"], &status["world"]), (&json!("running"), &json!("functions")));
    assert_eq!(status["readers"]["failures"], 3, "{status}");
    let failed: Vec<_> =
        status["last_failures"].as_array().unwrap().iter().map(|one| &one["call"]).collect();
    assert_eq!(json!(failed), json!(["loop", "trap", "grow"]));
    assert!(status["log"].to_string().contains("hello"), "{status}");
    for absent in ["source", "since", "documents", "lag", "state_bytes", "writer"] {
        assert_eq!(status.get(absent), None, "{absent} means nothing here");
    }
    let metrics = server.rest("GET", "/metrics", "").unwrap().text();
    let has = |name: &str, of: &str| {
        metrics.lines().any(|line| line.starts_with(name) && line.contains(of))
    };
    let ours = "deployment=\"probe\"";
    assert!(
        has("nacre_plugin_running", ours) && has("nacre_plugin_memory_bytes", ours),
        "{metrics}"
    );
    assert!(has("nacre_plugin_call_failures_total", "deployment=\"probe\",role=\"reader\"} 3"));
    assert!(!has("nacre_plugin_documents", ours) && !has("nacre_plugin_state", ours), "{metrics}");
    assert!(!has("nacre_plugin_call", "deployment=\"probe\",role=\"writer\""), "{metrics}");
}

#[test]
fn unsupported_settings_of_functions_are_refused_with_a_reason() {
    let directory = tempfile::tempdir().unwrap();
    let server = serving(directory.path());
    assert_eq!(upload(&server, "functions", "1", "").0, 201);
    let asks = "[capabilities]\nhttp-out = [\"example.com\"]\n";
    assert_eq!(upload(&server, "functions", "asks", asks).0, 201);
    for (more, why) in [
        (json!({"bucket": BUCKET}), "belongs to no bucket"),
        (json!({"scope": "s"}), "name that as well"),
        (json!({"since": "now"}), "leave out where to begin"),
        (json!({"grants": {"http-out": ["example.com"]}}), "granted nothing else"),
        (json!({"version": "asks"}), "granted nothing else"),
    ] {
        let mut wanted = json!({"package": "functions", "version": "1"});
        wanted.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let (code, answer) = put(&server, "probe", &wanted);
        assert!(code == 400 && answer.to_string().contains(why), "{wanted}: {code} {answer}");
    }
    deploy(&server, "1");
    for (method, path, why) in [
        ("POST", "/deployments/probe/pause", "cannot be paused"),
        ("POST", "/deployments/probe/replay", "cannot be replayed"),
        ("GET", "/_plugin/probe/x", "answers no requests"),
    ] {
        let (code, answer) = ask(&server, method, path, "", b"");
        assert!(code == 400 && answer.to_string().contains(why), "{path}: {code} {answer}");
    }
    // A service has no functions.
    let service = json!({"package": "sums", "version": "1", "bucket": BUCKET, "config": {"name": "d", "views": {}}});
    assert_eq!(crate::plugins::upload(&server, "1", "").0, 201);
    assert_eq!(put(&server, "sums", &service).0, 200);
    rows(&server, "CREATE FUNCTION g() LANGUAGE WASM AS \"count\" AT \"sums\"");
    let called = query(&server, "SELECT g()");
    assert_eq!(
        exception(&called),
        "the deployment sums is of the world `service`: it has no functions"
    );
}

#[test]
fn functions_of_plugins_need_the_right_to_call_code() {
    let directory = tempfile::tempdir().unwrap();
    let server = serving(directory.path());
    assert_eq!(upload(&server, "functions", "1", "").0, 201);
    deploy(&server, "1");
    define(&server, &["count"]);
    for (name, roles) in [
        ("inline", "query_execute_global_functions"),
        ("caller", "query_execute_global_external_functions"),
    ] {
        let form = format!("password={PASSWORD}&roles={roles},query_select[default]");
        let path = format!("/settings/rbac/users/local/{name}");
        assert_eq!(server.rest("PUT", &path, &form).unwrap().status, 200);
    }
    let as_user = |user: &str, statement: &str| query_as(server.port_base, user, statement);
    assert_eq!(as_user("caller", "SELECT RAW f_count(1)")["results"], json!([1]));
    assert_eq!(as_user("inline", "SELECT RAW f_count(1)")["errors"][0]["code"], 13014);
    let create = "CREATE FUNCTION g() LANGUAGE WASM AS \"count\" AT \"probe\"";
    assert_eq!(as_user("caller", create)["errors"][0]["code"], 13014);
}

#[test]
fn functions_of_plugins_are_there_after_a_restart_and_on_every_node() {
    let directory = tempfile::tempdir().unwrap();
    let server = serving(directory.path());
    assert_eq!(upload(&server, "functions", "1", "").0, 201);
    deploy(&server, "1");
    define(&server, &["count"]);
    server.stop();
    let mut server = serving(directory.path());
    server.wait_for("the plugin to be loaded", |server| {
        (query(server, "SELECT RAW f_count(1)")["results"] == json!([1])).then_some(())
    });
    drop(server);

    let nodes = [Node::start(), Node::start()];
    assert_eq!(nodes[0].add(&nodes[1]).0, 200);
    assert_eq!(upload(nodes[0].server(), "functions", "1", "").0, 201);
    deploy(nodes[0].server(), "1");
    define(nodes[0].server(), &["count"]);
    for node in &nodes {
        node.wait_until("the function to be there", |node| {
            query(node.server(), "SELECT RAW f_count(1)")["results"] == json!([1])
        });
    }
    assert_eq!(ask(nodes[1].server(), "DELETE", "/deployments/probe", "", b"").0, 200);
    for node in &nodes {
        node.wait_until("the deployment to be gone", |node| {
            query(node.server(), "SELECT RAW f_count(1)")["status"] == "errors"
        });
    }
}
