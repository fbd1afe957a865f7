//! The service that starts analytics and passes requests on. The process of these tests is this test: a script names its port to the node.

use crate::eventing::{Collection, collections, deploy, function};
use crate::process::{PASSWORD, Server, USER, port_base};
use nacre_conformance::http::{self, Answer};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};

/// Gives analytics to the node, and waits until it has the service.
fn give(server: &Server) {
    let pool = server.rest("GET", "/pools/default", "").unwrap().text();
    let pool: serde_json::Value = serde_json::from_str(&pool).unwrap();
    let node = pool["nodes"][0]["otpNode"].as_str().unwrap().replace('@', "%40");
    let form = format!("knownNodes={node}&topology[cbas]={node}");
    let given = server.rest("POST", "/controller/rebalance", &form).unwrap();
    assert_eq!(given.status, 200, "{}", given.text());
    crate::process::until(|| services(server).contains("\"cbas\"").then_some(()));
}

/// A request as the process gets it: first line, headers, body.
type Passed = (String, BTreeMap<String, String>, String);

/// Answers each request with its own text, and passes it to the test.
fn process() -> (u16, Receiver<Passed>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, passed) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let (mut first, mut headers) = (String::new(), BTreeMap::new());
            reader.read_line(&mut first).unwrap();
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                let Some((name, value)) = line.trim().split_once(": ") else { break };
                headers.insert(name.to_ascii_lowercase(), value.to_owned());
            }
            let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let answer = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\
                          Connection: close\r\n\r\n{}";
            stream.write_all(answer.as_bytes()).unwrap();
            let body = String::from_utf8(body).unwrap();
            if sender.send((first.trim().to_owned(), headers, body)).is_err() {
                return;
            }
        }
    });
    (port, passed)
}

/// A program that names a port and waits for the end of its input.
fn program(folder: &Path, port: u16) -> String {
    let path = folder.join("program");
    std::fs::write(&path, format!("#!/bin/sh\necho {port}\ncat > /dev/null\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

fn ask(server: &Server, user: Option<(&str, &str)>, statement: &str) -> Answer {
    let address = format!("127.0.0.1:{}", server.port_base + 4);
    let kind = "application/x-www-form-urlencoded";
    let body = format!("statement={statement}");
    http::request(&address, "POST", "/analytics/service", user, kind, body.as_bytes()).unwrap()
}

fn services(server: &Server) -> String {
    server.rest("GET", "/pools/default/nodeServices", "").unwrap().text()
}

#[test]
fn a_node_runs_analytics_if_configured() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("nothing");
    let server = Server::start_with_env(
        &folder.path().join("data"),
        port_base(),
        &[("NACRE_ANALYTICS", missing.to_str().unwrap())],
    );
    assert!(!services(&server).contains("\"cbas\""), "{}", services(&server));
    give(&server);
    // The program is not there: clients learn that, and try again.
    let answer = crate::process::until(|| {
        let answer = ask(&server, Some((USER, PASSWORD)), "SELECT+1");
        answer.text().contains("not installed").then_some(answer)
    });
    assert_eq!(answer.status, 503);
    assert!(
        answer.text().contains("23000") && answer.text().contains("NACRE_ANALYTICS"),
        "{}",
        answer.text()
    );
    assert_eq!(ask(&server, None, "SELECT+1").status, 401, "a stranger learns nothing");
    server.stop();
}

#[test]
fn requests_are_passed_on_with_the_rights_of_their_users() {
    let folder = tempfile::tempdir().unwrap();
    let (port, passed) = process();
    let server = Server::start_with_env(
        &folder.path().join("data"),
        port_base(),
        &[("NACRE_ANALYTICS", &program(folder.path(), port))],
    );
    give(&server);
    let admin = Some((USER, PASSWORD));
    crate::process::until(|| (ask(&server, admin, "SELECT+1").status == 200).then_some(()));
    let (first, headers, body) = passed.recv().unwrap();
    assert_eq!(
        (first.as_str(), body.as_str()),
        ("POST /analytics/service HTTP/1.1", "statement=SELECT+1")
    );
    assert_eq!((&*headers["x-nacre-method"], &*headers["x-nacre-user"]), ("POST", USER));
    assert_eq!(rights(&headers), r#"{"manage":["*"],"select":["*"]}"#);
    assert_eq!(headers["x-nacre-token"].len(), 64, "the process knows the node by a secret");
    for (name, roles, expected) in [
        ("reader", "analytics_reader", r#"{"manage":[],"select":["*"]}"#),
        ("manager", "analytics_manager[default]", r#"{"manage":["default"],"select":["default"]}"#),
        (
            "selector",
            "analytics_select[default:_default:_default]",
            r#"{"manage":[],"select":["default:_default:_default"]}"#,
        ),
        ("other", "data_reader[default]", r#"{"manage":[],"select":[]}"#),
    ] {
        let form = format!("roles={roles}&password={PASSWORD}");
        let path = format!("/settings/rbac/users/local/{name}");
        assert_eq!(server.rest("PUT", &path, &form).unwrap().status, 200);
        crate::process::until(|| {
            (ask(&server, Some((name, PASSWORD)), "SELECT+2").status == 200).then_some(())
        });
        assert_eq!(rights(&passed.recv().unwrap().1), expected, "{name}");
    }
    assert_eq!(ask(&server, None, "SELECT+1").status, 401);
    assert!(passed.try_recv().is_err(), "nothing of a stranger is passed on");
    server.stop();
}

#[test]
fn a_function_queries_analytics_with_the_rights_of_its_owner() {
    let folder = tempfile::tempdir().unwrap();
    let (port, passed) = process();
    let mut server = Server::start_with_env(
        &folder.path().join("data"),
        port_base(),
        &[("NACRE_ANALYTICS", &program(folder.path(), port))],
    );
    collections(&server, &["meta", "dst"]);
    let code = "function OnUpdate(doc, meta) {
            try { dst[meta.id] = [...couchbase.analyticsQuery('SELECT $n', {n: doc.n}, {consistency: 'request'})] }
            catch (e) { dst[meta.id] = [e.name, e.code] }
        }";
    deploy(&mut server, &function("f", code, "_default", &["dst"]));
    let mut source = Collection::open(&server, "_default");
    let mut told = Collection::open(&server, "dst");
    source.put("a", &json!({"n": 1}));
    let refused = server.wait_for("the refusal", |_| told.get("a"));
    assert_eq!(refused, json!(["AnalyticsError", 5000]), "no node has the service");
    give(&server);
    let admin = Some((USER, PASSWORD));
    crate::process::until(|| (ask(&server, admin, "SELECT+1").status == 200).then_some(()));
    passed.recv().unwrap();
    source.put("b", &json!({"n": 7}));
    assert_eq!(server.wait_for("the rows", |_| told.get("b")), json!([]));
    let (first, headers, body) = passed.recv().unwrap();
    assert_eq!(first, "POST /analytics/service HTTP/1.1");
    assert_eq!((&*headers["x-nacre-user"], &*headers["content-type"]), (USER, "application/json"));
    let mut body: Value = serde_json::from_str(&body).unwrap();
    let timeout = body["timeout"].take();
    assert!(timeout.as_str().is_some_and(|text| text.ends_with("ms")), "{timeout}");
    let expected = json!({"statement": "SELECT $n", "$n": 7, "readonly": true,
        "scan_consistency": "request_plus", "timeout": null});
    assert_eq!(body, expected);
    server.stop();
}

fn rights(headers: &BTreeMap<String, String>) -> String {
    percent_encoding::percent_decode_str(&headers["x-nacre-rights"])
        .decode_utf8()
        .unwrap()
        .into_owned()
}
