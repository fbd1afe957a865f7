//! The web console from outside, as a browser and as those who pretend to be one: sessions, files, services behind one port, documents,
//! measurements.

use crate::process::{BUCKET, PASSWORD, Server, USER};
use nacre_conformance::http::escape;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(60);
const DOCUMENTS: &str = "/pools/default/buckets/default/scopes/_default/collections/_default/docs";

/// An answer: status, headers as they came, body.
pub struct Reply {
    pub status: u16,
    pub headers: String,
    pub body: String,
}

impl Reply {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("not JSON: {}", self.body))
    }

    /// The cookie that is set, as it is sent back.
    fn cookie(&self) -> Option<String> {
        let line = self.headers.lines().find_map(|line| line.strip_prefix("set-cookie: "))?;
        Some(line.split(';').next().unwrap_or_default().to_owned())
    }
}

/// Bytes of a request above which a node may close the connection while it is sent.
const LARGE_BYTES: usize = 1 << 20;

/// Begins a request, of which `headers` are whole lines.
fn send(server: &Server, request: &str, headers: &[&str], body: &str) -> BufReader<TcpStream> {
    let address = format!("127.0.0.1:{}", server.port_base);
    let mut stream = TcpStream::connect(&address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut text = format!("{request} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n");
    headers.iter().for_each(|header| text.push_str(&format!("{header}\r\n")));
    text.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
    // A node may answer, and close, before it has read all of a request that is too large.
    let sent = stream.write_all(text.as_bytes());
    assert!(sent.is_ok() || text.len() > LARGE_BYTES, "{sent:?}");
    BufReader::new(stream)
}

pub fn ask(server: &Server, request: &str, headers: &[&str], body: &str) -> Reply {
    let mut stream = send(server, request, headers, body);
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    assert!(read.is_ok() || body.len() > LARGE_BYTES, "{read:?}");
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Reply { status, headers: head.replace('\r', ""), body: body.to_owned() }
}

const OF_CONSOLE: &str = "ns-server-ui: yes";

fn log_in(server: &Server, user: &str, password: &str) -> Reply {
    let body = format!("user={user}&password={password}");
    ask(server, "POST /uilogin", &[OF_CONSOLE], &body)
}

/// A browser with a session.
struct Browser<'a> {
    server: &'a Server,
    cookie: String,
}

impl<'a> Browser<'a> {
    fn new(server: &'a Server, user: &str, password: &str) -> Browser<'a> {
        let reply = log_in(server, user, password);
        assert_eq!(reply.status, 200, "{}", reply.body);
        Browser { server, cookie: format!("cookie: {}", reply.cookie().unwrap()) }
    }

    fn ask(&self, request: &str, body: &str) -> Reply {
        ask(self.server, request, &[OF_CONSOLE, &self.cookie], body)
    }
}

fn server(directory: &tempfile::TempDir) -> Server {
    let server = Server::start(directory.path());
    for (user, role) in [("reader", "data_reader[default]"), ("nobody", "")] {
        let path = format!("/settings/rbac/users/local/{user}");
        let form = format!("password=secret&roles={role}");
        assert_eq!(server.rest("PUT", &path, &form).unwrap().status, 200);
    }
    server
}

#[test]
fn a_session_needs_its_header_and_ends_at_logout() {
    let directory = tempfile::tempdir().unwrap();
    let server = server(&directory);
    let wrong = log_in(&server, USER, "wrong");
    assert_eq!((wrong.status, wrong.cookie()), (400, None), "{}", wrong.body);
    assert_eq!(log_in(&server, "%40nacre", "x").status, 400, "the nodes' own user");
    assert_eq!(ask(&server, "POST /uilogin", &[], "user=a").status, 400);
    let foreign = ["origin: http://evil.example"];
    let body = format!("user={USER}&password={PASSWORD}");
    assert_eq!(ask(&server, "POST /uilogin", &foreign, &body).status, 403);

    let reply = log_in(&server, USER, PASSWORD);
    assert!(reply.headers.contains("HttpOnly; SameSite=Strict"), "{}", reply.headers);
    let browser = Browser::new(&server, USER, PASSWORD);
    assert_eq!(browser.ask("GET /whoami", "").json()["id"], USER);
    let without = ask(&server, "GET /whoami", &[&browser.cookie], "");
    assert_eq!(without.status, 401, "another site can have the cookie sent, but not the header");
    assert!(without.headers.contains("www-authenticate"));
    let stranger = ask(&server, "GET /whoami", &[OF_CONSOLE], "");
    assert_eq!(stranger.status, 401);
    assert!(!stranger.headers.contains("www-authenticate"), "the browser asks no password");
    let forged = browser.cookie.replace('=', "=A");
    assert_eq!(ask(&server, "GET /whoami", &[OF_CONSOLE, &forged], "").status, 401);

    let other = Browser::new(&server, USER, PASSWORD);
    assert_eq!(browser.ask("POST /uilogout", "").status, 200);
    assert_eq!(browser.ask("GET /whoami", "").status, 401, "the session has ended");
    assert_eq!(other.ask("GET /whoami", "").status, 200, "the other one has not");
    assert_eq!(other.ask("POST /uilogout", "everywhere=true").status, 200);
    assert_eq!(other.ask("GET /whoami", "").status, 401);

    let reader = Browser::new(&server, "reader", "secret");
    assert_eq!(reader.ask("GET /settings/web", "").status, 403, "it has its user's rights");
    let path = "/settings/rbac/users/local/reader";
    assert_eq!(server.rest("PUT", path, "password=other1&roles=admin").unwrap().status, 200);
    assert_eq!(reader.ask("GET /whoami", "").status, 401, "a new password ends sessions");
}

#[test]
fn browsers_receive_the_console_and_other_clients_the_api() {
    let directory = tempfile::tempdir().unwrap();
    let server = server(&directory);
    let page = ask(&server, "GET /", &["accept: text/html"], "");
    assert_eq!(page.status, 302);
    assert!(page.headers.contains("location: ui/index.html"));
    assert_eq!(ask(&server, "GET /", &[], "").status, 401);
    let page = ask(&server, "GET /ui/index.html", &[], "");
    assert_eq!(page.status, 200);
    assert!(page.body.contains("nacre"));
    assert!(page.headers.contains("require-trusted-types-for 'script'"), "{}", page.headers);
    assert_eq!(ask(&server, "GET /ui/none.js", &[], "").status, 404);
    let disabled = server.rest("POST", "/settings/security", "disableUIOverHttp=true").unwrap();
    assert_eq!(disabled.status, 200);
    assert_eq!(ask(&server, "GET /ui/index.html", &[], "").status, 404);
    assert_eq!(log_in(&server, USER, PASSWORD).status, 404);
}

#[test]
fn services_are_behind_the_port_for_management_with_the_same_rights() {
    let directory = tempfile::tempdir().unwrap();
    let server = server(&directory);
    let browser = Browser::new(&server, USER, PASSWORD);
    let query = browser.ask("POST /_p/query/query/service", "statement=SELECT+1+AS+one");
    assert_eq!(query.status, 200, "{}", query.body);
    assert_eq!(query.json()["results"][0]["one"], 1);
    let functions = browser.ask("GET /_p/event/api/v1/status", "");
    assert_eq!(functions.status, 200, "{}", functions.body);
    let missing = browser.ask("GET /couchBase/default/_design/none", "");
    assert_eq!((missing.status, missing.json()["error"].as_str()), (404, Some("not_found")));
    assert_eq!(browser.ask("GET /_p/none/x", "").status, 404);
    assert_eq!(browser.ask("GET /_p/mgmt/pools", "").status, 404);
    let nobody = Browser::new(&server, "nobody", "secret");
    assert_eq!(nobody.ask("GET /couchBase/default/_design/none", "").status, 403);
    let stranger =
        ask(&server, "POST /_p/query/query/service", &[OF_CONSOLE], "statement=SELECT+1");
    assert_eq!(stranger.status, 401);
}

#[test]
fn documents_are_listed_read_and_replaced_by_their_version() {
    let directory = tempfile::tempdir().unwrap();
    let server = server(&directory);
    let admin = Browser::new(&server, USER, PASSWORD);
    let value = escape("{\"big\": 9007199254740993}");
    let id = format!("{DOCUMENTS}/{}", escape("a/b"));
    let created = admin.ask(&format!("POST {id}"), &format!("value={value}&cas=0"));
    assert_eq!(created.status, 200, "{}", created.body);
    let cas = created.json()["cas"].as_str().unwrap().to_owned();
    let again = admin.ask(&format!("POST {id}"), &format!("value={value}&cas=0"));
    assert_eq!(again.status, 409, "it is there already");
    let found = admin.ask(&format!("GET {id}"), "").json();
    assert_eq!(found["meta"]["cas"], cas.as_str());
    assert_eq!(found["json"], "{\"big\": 9007199254740993}");

    let changed = admin.ask(&format!("POST {id}"), &format!("value=1&cas={cas}"));
    assert_eq!(changed.status, 200, "{}", changed.body);
    let stale = admin.ask(&format!("POST {id}"), &format!("value=2&cas={cas}"));
    assert_eq!((stale.status, &stale.json()["now"]["json"]), (409, &Value::from("1")));
    let stale = admin.ask(&format!("DELETE {id}?cas={cas}"), "");
    assert_eq!(stale.status, 409);
    for (form, field) in [("value={", "value"), ("value=1&cas=x", "cas"), ("", "value")] {
        let refused = admin.ask(&format!("POST {id}"), form);
        assert_eq!(refused.status, 400, "{form}");
        assert!(refused.json()["errors"][field].is_string(), "{}", refused.body);
    }
    assert_eq!(admin.ask(&format!("GET {DOCUMENTS}/none"), "").status, 404);
    let elsewhere = DOCUMENTS.replace("/_default/docs", "/none/docs");
    assert_eq!(admin.ask(&format!("GET {elsewhere}"), "").status, 404);

    for number in 0..5 {
        let path = format!("POST /pools/default/buckets/{BUCKET}/docs/k{number}");
        assert_eq!(admin.ask(&path, "value=%7B%7D").status, 200);
    }
    let page = admin.ask(&format!("GET {DOCUMENTS}?limit=2&prefix=k"), "").json();
    let ids = |page: &Value| -> Vec<String> {
        let rows = page["rows"].as_array().unwrap().iter();
        rows.map(|row| row["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!((ids(&page), &page["count"]), (vec!["k0".into(), "k1".into()], &Value::from(6)));
    let rest = admin.ask(&format!("GET {DOCUMENTS}?prefix=k&after=k1"), "").json();
    assert_eq!((ids(&rest).len(), &rest["next"]), (3, &Value::Null));
    assert_eq!(admin.ask(&format!("GET {DOCUMENTS}?limit=100000"), "").status, 400);

    let reader = Browser::new(&server, "reader", "secret");
    assert_eq!(reader.ask(&format!("GET {id}"), "").json()["json"], "1");
    assert_eq!(reader.ask(&format!("POST {id}"), "value=3").status, 403);
    assert_eq!(reader.ask(&format!("DELETE {id}"), "").status, 403);
    let nobody = Browser::new(&server, "nobody", "secret");
    assert_eq!(nobody.ask(&format!("GET {DOCUMENTS}"), "").status, 403);
    assert_eq!(ask(&server, &format!("GET {DOCUMENTS}"), &[], "").status, 401);
    assert_eq!(admin.ask(&format!("DELETE {id}"), "").status, 200);
    assert_eq!(admin.ask(&format!("GET {id}"), "").status, 404);
}

#[test]
fn measurements_are_streamed_every_second_to_users_with_the_right() {
    let directory = tempfile::tempdir().unwrap();
    let server = server(&directory);
    let admin = Browser::new(&server, USER, PASSWORD);
    let stream = send(&server, "GET /_nacre/stream", &[&admin.cookie], "");
    let mut data = stream
        .lines()
        .map_while(Result::ok)
        .filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok());
    let snapshot = data.find(|event| event["keys"].is_array()).expect("a snapshot");
    let keys: Vec<&str> =
        snapshot["keys"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    for key in ["rss", "items:default", "memory:default", "quota:default"] {
        assert!(keys.contains(&key), "{keys:?}");
    }
    let node = format!("127.0.0.1:{}", server.port_base);
    assert_eq!(snapshot["nodes"][&node].as_array().unwrap().len(), keys.len());
    let next = data.find(|event| event["t"].as_u64() > snapshot["t"].as_u64());
    assert!(next.is_some(), "another second follows");

    let series = admin.ask("GET /_nacre/series?range=60&names=items,rss", "").json();
    let of_node = &series["nodes"][&node];
    assert_eq!(of_node["series"]["rss"].as_array().unwrap().len(), 60);
    assert!(of_node["series"]["rss"].as_array().unwrap().iter().any(Value::is_number));
    assert_eq!(admin.ask("GET /_nacre/series?range=0&names=rss", "").status, 400);
    assert_eq!(admin.ask("GET /_nacre/series?range=60", "").status, 400);

    let nobody = Browser::new(&server, "nobody", "secret");
    for path in ["/_nacre/stream", "/_nacre/series?names=rss"] {
        assert_eq!(nobody.ask(&format!("GET {path}"), "").status, 403, "{path}");
        assert_eq!(ask(&server, &format!("GET {path}"), &[], "").status, 401, "{path}");
    }
}

/// Endpoint of previews, as a browser asks for it.
fn preview_request() -> String {
    format!("POST /couchBase/{BUCKET}/_preview")
}

#[test]
fn a_preview_shows_the_rows_of_a_view_that_is_not_stored() {
    let directory = tempfile::tempdir().unwrap();
    let server = server(&directory);
    for (id, value) in [("a", r#"{"n":1}"#), ("b", r#"{"n":2}"#), ("c", "{}")] {
        let stored = server.rest("POST", &format!("{DOCUMENTS}/{id}"), &format!("value={value}"));
        assert_eq!(stored.unwrap().status, 200);
    }
    let map = "function (doc, meta) {\n  if (!doc.n) throw new Error('no n');\n  log('seen ' + meta.id);\n  emit([doc.n, meta.id], 1);\n}";
    let view = |map: &str| serde_json::json!({"views": {"v": {"map": map, "reduce": "_sum"}}});
    let of = |map: &str, more: &str| -> Value {
        let text = format!(r#"{{"design": {}, "view": "v"{more}}}"#, view(map));
        serde_json::from_str(&text).unwrap()
    };
    let browser = Browser::new(&server, USER, PASSWORD);
    let preview = |body: &Value| browser.ask(&preview_request(), &body.to_string());
    let shown = preview(&of(map, ""));
    assert_eq!(shown.status, 200, "{}", shown.body);
    let found = shown.json();
    let rows = found["emitted"]["rows"].as_array().unwrap();
    let keys: Vec<String> = rows.iter().map(|row| row["key"].to_string()).collect();
    assert_eq!(keys, [r#"[1,"a"]"#, r#"[2,"b"]"#]);
    assert_eq!(found["reduced"]["rows"].as_array().unwrap().len(), 2);
    assert_eq!((&found["about"]["read"], &found["about"]["complete"]), (&3.into(), &true.into()));
    let error = &found["about"]["errors"][0];
    assert_eq!(error["id"], "c");
    assert!(error["message"].as_str().unwrap().contains("no n"), "{error}");

    let some = preview(&of(map, r#", "documents": ["b", "gone"], "group_level": 1"#));
    let found = some.json();
    assert_eq!(found["emitted"]["rows"].as_array().unwrap().len(), 1);
    assert_eq!(found["reduced"]["rows"][0]["key"].to_string(), "[2]");
    assert_eq!(found["about"]["errors"][0]["id"], "gone");

    for (map, more, reason) in [
        ("function (doc) {", "", "line"),
        (map, r#", "documents": [], "last": 3"#, "either documents or last"),
        (map, r#", "whatever": 1"#, "whatever"),
    ] {
        let refused = preview(&of(map, more));
        assert_eq!(refused.status, 400, "{more}: {}", refused.body);
        assert!(refused.body.contains(reason), "{more}: {}", refused.body);
    }
    let many: Vec<String> = (0..101).map(|n| n.to_string()).collect();
    let many = preview(&of(map, &format!(r#", "documents": {}"#, serde_json::json!(many))));
    assert_eq!(many.status, 400, "{}", many.body);
    // Nothing of it stays.
    let stored = server.views("GET", &format!("/{BUCKET}/_design/preview"), "");
    assert_eq!(stored.status, 404);
}

#[test]
fn previews_need_the_rights_to_change_and_read_views() {
    let directory = tempfile::tempdir().unwrap();
    let server = server(&directory);
    let body =
        serde_json::json!({"design": {"views": {"v": {"map": "function () {}"}}}, "view": "v"});
    let stranger = ask(&server, &preview_request(), &[], &body.to_string());
    assert_eq!(stranger.status, 401);
    for (role, status) in [
        (format!("views_reader[{BUCKET}]"), 403),
        (format!("data_reader[{BUCKET}]"), 403),
        (format!("views_admin[{BUCKET}]"), 200),
    ] {
        let form = format!("password=secret1&roles={role}");
        server.rest("PUT", "/settings/rbac/users/local/ann", &form).unwrap();
        let browser = Browser::new(&server, "ann", "secret1");
        let answer = browser.ask(&preview_request(), &body.to_string());
        assert_eq!(answer.status, status, "{role}: {}", answer.body);
    }
}
