//! A service from outside: what a server says and does of one that has only a row in its registry.
#![expect(clippy::disallowed_methods, reason = "these tests start processes and wait for them")]

use nacre_conformance::http::request_within;
use serde_json::{Value, json};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

const USER: &str = "Administrator";
const PASSWORD: &str = "password";
/// Port of the service relative to the others.
const ECHO: u16 = 8;
/// Ports that a node takes.
const PORTS: u16 = 20;
/// How long a node may take to start, and to answer.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server with the service, as a process.
struct Server {
    process: Child,
    port_base: u16,
    _folder: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The example that is built with this test.
fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().and_then(Path::parent).unwrap();
    folder.join("examples/echo-server")
}

/// Returns the first of as many ports as a node takes, which no other program listens on.
fn port_base() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = std::env::var("NACRE_TEST_PORT_BASE")
        .map_or(23_000, |base| base.parse().expect("NACRE_TEST_PORT_BASE is a port"));
    loop {
        let base = first + 900 + NEXT.fetch_add(PORTS, Ordering::Relaxed);
        if (base..base + PORTS).all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok()) {
            return base;
        }
    }
}

impl Server {
    fn start(buckets: &str) -> Server {
        let (folder, port_base) = (tempfile::tempdir().unwrap(), port_base());
        let shared_cache = std::env::temp_dir().join("nacre-test-plugins");
        let process = Command::new(program())
            .args(["--port-base", &port_base.to_string(), "--user", USER, "--password", PASSWORD])
            .args(["--buckets", buckets])
            .arg("--data-dir")
            .arg(folder.path())
            .env("NACRE_PLUGIN_CACHE", shared_cache)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let server = Server { process, port_base, _folder: folder };
        let begun = Instant::now();
        while server.try_ask(0, "GET", "/pools", "").is_none() {
            assert!(begun.elapsed() < PATIENCE, "the node does not start");
            std::thread::yield_now();
        }
        server
    }

    fn try_ask(&self, port: u16, method: &str, path: &str, body: &str) -> Option<(u16, String)> {
        let address = format!("127.0.0.1:{}", self.port_base + port);
        let login = Some((USER, PASSWORD));
        let form = "application/x-www-form-urlencoded";
        let answer =
            request_within(PATIENCE, &address, method, path, login, form, body.as_bytes()).ok()?;
        Some((answer.status, answer.text()))
    }

    fn ask(&self, port: u16, method: &str, path: &str, body: &str) -> (u16, String) {
        self.try_ask(port, method, path, body).expect("a node that runs answers")
    }

    fn json(&self, port: u16, path: &str) -> Value {
        let (status, text) = self.ask(port, "GET", path, "");
        assert_eq!(status, 200, "{path}: {text}");
        serde_json::from_str(&text).unwrap()
    }

    /// Returns the value of a metric.
    fn metric(&self, name: &str) -> Option<u64> {
        let (_, text) = self.ask(0, "GET", "/metrics", "");
        let mut values =
            text.lines().filter_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        values.next()
    }
}

#[test]
fn a_row_gives_a_service_its_port_its_names_its_permission_and_its_metrics() {
    let server = Server::start("default");
    assert_eq!(
        server.json(ECHO, "/echo/a%20b"),
        json!({"said": [[1, "a b"]], "user": USER}),
        "the route answers at the port of the service"
    );
    assert_eq!(server.ask(ECHO, "GET", "/echo", "").0, 404);
    assert_eq!(server.ask(ECHO, "POST", "/echo/a", "").0, 404);
    let address = format!("127.0.0.1:{}", server.port_base + ECHO);
    let stranger =
        request_within(PATIENCE, &address, "GET", "/echo/a", None, "text/plain", b"").unwrap();
    assert_eq!(stranger.status, 401, "a login is asked for");

    let node = server.json(0, "/pools/default/nodeServices")["nodesExt"][0].clone();
    assert_eq!(node["services"]["echo"], json!(server.port_base + ECHO));
    assert_eq!(node["services"]["echoSSL"], json!(server.port_base + 19));
    let nodes = server.json(0, "/pools/default")["nodes"].clone();
    assert_eq!(nodes[0]["services"], json!(["kv", "n1ql", "eventing", "index", "echo", "fts"]));
    let permission = "cluster.echo!use";
    let (_, text) = server.ask(0, "POST", "/pools/default/checkPermissions", permission);
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), json!({permission: true}));

    assert_eq!(server.metric("nacre_echo_messages_total"), Some(0));
    assert_eq!(server.metric("nacre_echo_dropped_total"), Some(0));
    let scopes = "/pools/default/buckets/default/scopes";
    for (method, path, form) in [
        ("POST", scopes.to_owned(), "name=s"),
        ("POST", format!("{scopes}/s/collections"), "name=c"),
        ("DELETE", format!("{scopes}/s"), ""),
        ("DELETE", "/pools/default/buckets/default".to_owned(), ""),
    ] {
        let (status, text) = server.ask(0, method, &path, form);
        assert_eq!(status, 200, "{method} {path}: {text}");
    }
    assert_eq!(server.metric("nacre_echo_dropped_total"), Some(3), "collection, scope, bucket");
}

#[test]
fn the_services_of_two_nodes_exchange_their_own_messages() {
    let (first, second) = (Server::start(""), Server::start(""));
    let form = format!("hostname=127.0.0.1:{}&user={USER}&password={PASSWORD}", second.port_base);
    let (status, text) = first.ask(0, "POST", "/controller/addNode", &form);
    assert_eq!(status, 200, "{text}");
    let begun = Instant::now();
    let both = json!({"said": [[1, "hello"], [2, "hello"]], "user": USER});
    while first.json(ECHO, "/echo/hello") != both {
        assert!(begun.elapsed() < PATIENCE, "the other node does not answer");
    }
    assert!(second.metric("nacre_echo_messages_total").unwrap() > 0);
    let counted = second.metric("nacre_questions_answered_total{subject=\"echo\"}");
    assert!(counted.unwrap() > 0, "the transport counts by the subject of the message");
}
