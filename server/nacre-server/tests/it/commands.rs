//! Commands for buckets, documents, users and indexes, against one node; health; the first world of `nacre dev`.

use crate::process::{PASSWORD, Server, USER};
use nacre_conformance::http::{self, Answer};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs a command at a node; gives its exit status, what it prints, and its complaints.
fn run(server: &Server, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nacre"));
    command.args(arguments).env("NACRE_URL", format!("127.0.0.1:{}", server.port_base));
    ended(command.env("NACRE_PASSWORD", PASSWORD))
}

fn ended(command: &mut Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.stdin(Stdio::null()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

/// Runs a command that succeeds; gives what it prints.
fn done(server: &Server, arguments: &[&str]) -> String {
    let (status, printed, complaints) = run(server, arguments);
    assert_eq!(status, Some(0), "{arguments:?}: {printed}{complaints}");
    printed
}

fn json_of(server: &Server, arguments: &[&str]) -> Value {
    serde_json::from_str(&done(server, &[arguments, &["--output", "json"]].concat())).unwrap()
}

/// Runs a command that fails with this status; gives its complaints.
fn refused(server: &Server, expected: i32, arguments: &[&str]) -> String {
    let (status, printed, complaints) = run(server, arguments);
    assert_eq!(status, Some(expected), "{arguments:?}: {printed}{complaints}");
    complaints
}

/// Asks for a path without a login.
fn public(server: &Server, path: &str) -> Answer {
    let address = format!("127.0.0.1:{}", server.port_base);
    http::request(&address, "GET", path, None, "", b"").unwrap()
}

/// Arguments of `nacre doc` for the collection of the test.
fn doc<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    [&["doc"][..], arguments, &["-b", "shop", "-C", "till.sales"]].concat()
}

#[test]
fn commands_create_list_and_delete_each_kind_of_object() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());

    assert_eq!(done(&server, &["bucket", "create", "shop"]), "created the bucket shop\n");
    let buckets = json_of(&server, &["bucket", "list"]);
    assert_eq!(buckets[1]["name"], "shop");
    assert_eq!(buckets[1]["memory_quota_mb"], 256);
    assert!(done(&server, &["bucket", "show", "shop"]).contains("persistent"));
    assert!(refused(&server, 1, &["bucket", "show", "none"]).contains("no bucket none"));
    assert!(refused(&server, 1, &["bucket", "rm", "shop"]).contains("--yes"));

    let in_shop = ["-b", "shop"];
    let of_shop = |arguments: &[&str]| done(&server, &[arguments, &in_shop].concat());
    assert_eq!(
        of_shop(&["collection", "create", "till.sales"]),
        "created the collection shop.till.sales\n"
    );
    assert!(of_shop(&["collection", "create", "till.sales"]).contains("exists already"));
    let collections = json_of(&server, &["collection", "list", "-b", "shop"]);
    let expected = json!({"scope": "till", "collection": "sales", "max_ttl_s": 0});
    assert!(collections.as_array().unwrap().contains(&expected), "{collections}");
    assert!(of_shop(&["scope", "list"]).contains("till"));

    assert!(
        done(&server, &doc(&["set", "s1", "{\"total\": 3}"])).starts_with("wrote s1 with CAS ")
    );
    assert_eq!(done(&server, &doc(&["get", "s1"])), "{\"total\": 3}\n");
    assert!(
        refused(&server, 1, &doc(&["insert", "s1", "1"])).contains("has a document s1 already")
    );
    assert!(refused(&server, 1, &doc(&["set", "s1", "{total"])).contains("not JSON"));
    assert!(refused(&server, 1, &doc(&["get", "s2"])).contains("has no document s2"));
    assert!(refused(&server, 1, &doc(&["replace", "s2", "1"])).contains("has no document s2"));
    done(&server, &doc(&["insert", "t_1", "[]"]));
    assert_eq!(json_of(&server, &doc(&["list", "--prefix", "t_"])), json!([{"key": "t_1"}]));
    assert_eq!(done(&server, &doc(&["rm", "t_1"])), "deleted t_1\n");

    let place = ["by_total", "till.sales"];
    of_shop(&[&["index", "create"][..], &place[..], &["total DESC"]].concat());
    let indexes = json_of(&server, &["index", "list", "-b", "shop"]);
    assert_eq!(indexes[0]["index"], "by_total", "{indexes}");
    of_shop(&[&["index", "rm"][..], &place[..], &["--yes"]].concat());
    assert_eq!(json_of(&server, &["index", "list", "-b", "shop"]), json!([]));

    assert_eq!(
        of_shop(&["collection", "rm", "till.sales", "--yes"]),
        "deleted the collection shop.till.sales\n"
    );
    done(&server, &["bucket", "rm", "shop", "--yes"]);
    server.kill();
}

#[test]
fn a_user_without_the_right_is_refused_with_a_separate_exit_status() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let file = directory.path().join("password");
    std::fs::write(&file, "secret-1\n").unwrap();
    let set = ["user", "set", "till", "--roles", "data_reader[default]", "--new-password-file"];
    done(&server, &[&set[..], &[file.to_str().unwrap()]].concat());
    let users = json_of(&server, &["user", "list"]);
    let till = users.as_array().unwrap().iter().find(|user| user["user"] == "till").unwrap();
    assert_eq!(till["roles"], json!(["data_reader[default:*:*]"]));
    let as_till = ["-u", "till", "-p", "secret-1"];
    let complaint = refused(&server, 4, &[&["bucket", "create", "b"][..], &as_till[..]].concat());
    assert!(complaint.contains("till may not do that"), "{complaint}");
    refused(&server, 4, &[&["doc", "set", "k", "1"][..], &as_till[..]].concat());
    refused(&server, 4, &["user", "list", "-p", "wrong-1"]);
    done(&server, &["user", "rm", "till", "--yes"]);
    server.kill();
}

#[test]
fn health_needs_no_login_and_shows_when_clients_can_connect() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    for (path, status) in [("/health", "ok"), ("/ready", "ready")] {
        let answer = public(&server, path);
        assert_eq!((answer.status, answer.json().unwrap()["status"].as_str()), (200, Some(status)));
    }
    assert_eq!(done(&server, &["health", "--ready"]), "ready\n");
    let answered = json_of(&server, &["ping"]);
    let services: Vec<_> =
        answered.as_array().unwrap().iter().map(|one| one["service"].as_str().unwrap()).collect();
    assert_eq!(services, ["management", "keys", "queries"]);
    server.kill();

    let directory = tempfile::tempdir().unwrap();
    let server = Server::start_unclaimed(directory.path(), crate::process::port_base());
    let answer = public(&server, "/ready");
    assert_eq!(answer.status, 503);
    assert_eq!(answer.json().unwrap()["reasons"], json!(["the node has no administrator yet"]));
    assert!(refused(&server, 1, &["health", "--ready"]).contains("no administrator"));
    server.kill();
}

#[test]
fn programs_read_nodes_replications_and_plugins_as_json() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let nodes = json_of(&server, &["cluster", "status"]);
    let node = &nodes[0];
    assert_eq!((&node["status"], &node["membership"]), (&json!("healthy"), &json!("active")));
    assert_eq!((&node["is_asked"], &node["problems"]), (&json!(true), &json!([])), "{nodes}");
    assert!(node["services"].as_array().unwrap().contains(&json!("kv")), "{nodes}");
    for state in ["healthy", "balanced"] {
        assert!(done(&server, &["cluster", "wait", state]).contains("healthy  active"), "{state}");
    }
    let late = refused(&server, 1, &["cluster", "wait", "failed-over", "--timeout", "0"]);
    assert!(late.contains("no node is failed over: `nacre cluster status`"), "{late}");
    let unknown = refused(&server, 1, &["cluster", "wait", "healthy", "--node", "db9:8091"]);
    assert!(unknown.contains("there is no node db9:8091"), "{unknown}");
    let none = refused(&server, 1, &["cluster", "status", "--map", "none"]);
    assert!(none.contains("bucket none") && none.contains("`nacre bucket list`"), "{none}");

    let nothing = json!({"clusters": [], "replications": []});
    assert_eq!(json_of(&server, &["xdcr", "list"]), nothing);
    let nothing = json!({"replications": [], "errors": []});
    assert_eq!(json_of(&server, &["xdcr", "status"]), nothing);
    for readers in [["plugin", "list"], ["plugin", "packages"]] {
        assert_eq!(json_of(&server, &readers), json!([]), "{readers:?}");
    }
    server.kill();
}

#[test]
fn metrics_have_connections_and_refused_logins() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    refused(&server, 4, &["bucket", "list", "-p", "wrong-1"]);
    let metrics = server.rest("GET", "/metrics", "").unwrap().text();
    let value = |name: &str| {
        let line = metrics.lines().find(|line| line.starts_with(&format!("{name}{{}} ")));
        line.and_then(|line| line.split(' ').nth(1)?.parse::<f64>().ok())
    };
    assert_eq!(value("kv_auth_errors_total"), Some(1.0), "{metrics}");
    assert!(value("kv_curr_connections").unwrap() >= 1.0);
    assert!(value("nacre_connections_limit").unwrap() > 100.0);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let expiry = value("nacre_certificate_expiry_timestamp_seconds").unwrap();
    assert!(expiry > now.as_secs_f64() + 86_400.0, "{expiry}");
    // Buckets have Couchbase's names, too.
    for line in [
        "kv_curr_items{bucket=\"default\"} 0\n",
        "kv_mem_used_bytes{bucket=\"default\"} ",
        "kv_ep_max_size{bucket=\"default\"} ",
        "couch_docs_actual_disk_size{bucket=\"default\"} ",
        "kv_ops{bucket=\"default\",op=\"get\"} ",
        "\nn1ql_requests",
        "\nn1ql_active_requests",
        "\nn1ql_request_time",
        "\nfts_total_queries",
        "\nfts_total_queries_error",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    server.kill();
}

/// A node of `nacre dev`, which ends with it.
struct DevNode(std::process::Child);

impl DevNode {
    fn start(folder: &Path, arguments: &[&str]) -> DevNode {
        let mut command = dev_command(folder);
        let port_base = crate::process::port_base().to_string();
        command.args(["dev", "--port-base", &port_base]).args(arguments);
        command.env("NACRE_LOG", "error").stdout(Stdio::null()).stdin(Stdio::null());
        DevNode(command.spawn().unwrap())
    }

    fn stop(mut self) {
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").arg(pid).status().unwrap().success());
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for DevNode {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn dev_command(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nacre"));
    let cache = std::env::temp_dir().join("nacre-test-plugins");
    let cache = std::env::var_os("NACRE_PLUGIN_CACHE").unwrap_or(cache.into());
    command.env_clear().env("NACRE_PLUGIN_CACHE", cache).env("HOME", folder).current_dir(folder);
    command
}

#[test]
fn commands_in_the_folder_of_a_node_for_development_need_no_login() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path();
    let command = |arguments: &[&str]| {
        let (status, printed, complaints) = ended(dev_command(folder).args(arguments));
        assert_eq!(status, Some(0), "{arguments:?}: {printed}{complaints}");
        printed
    };
    let node = DevNode::start(folder, &["--sample", "travel"]);
    command(&["ping", "--wait", "120"]);
    let hotel = ["-C", "travel.hotel"];
    let shown = command(&[&["doc", "get", "hotel_LIS_0"][..], &hotel[..]].concat());
    assert!(shown.contains("\"city\":\"Lisbon\""), "{shown}");
    command(&["doc", "set", "mine", "{\"kept\": true}"]);
    assert!(command(&["context", "list"]).contains("(nacre dev of this folder)"));
    node.stop();
    assert!(!folder.join(".nacre/dev.toml").exists());

    let node = DevNode::start(folder, &[]);
    command(&["ping", "--wait", "120"]);
    assert_eq!(command(&["doc", "get", "mine"]), "{\"kept\": true}\n");
    node.stop();
}

#[test]
fn a_context_names_a_node_and_a_login() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let file = directory.path().join("contexts.toml");
    let node = format!("127.0.0.1:{}", server.port_base);
    let command = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nacre"));
        command.env_clear().env("NACRE_CONTEXTS", &file).current_dir(directory.path());
        ended(command.args(arguments))
    };
    let add = ["context", "add", "here", "-c", &node, "-p", PASSWORD, "--save-password"];
    let (status, printed, complaints) = command(&add);
    assert_eq!(
        (status, printed),
        (Some(0), format!("here is http://{node} as {USER}\n")),
        "{complaints}"
    );
    assert_eq!(command(&["bucket", "list"]).0, Some(0));
    assert_eq!(command(&["bucket", "list", "-c", "@here"]).0, Some(0));
    let (status, _, complaints) = command(&["bucket", "list", "-c", "@there"]);
    assert_eq!(status, Some(1));
    assert!(complaints.contains("there is no context there, only here"), "{complaints}");
    // The password is that of its user, and of no other.
    assert_eq!(command(&["bucket", "list", "-u", "other"]).0, Some(4));
    server.kill();
}
