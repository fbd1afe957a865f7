//! The changes of a collection over HTTP, as documented in `docs/reference/changes.md`.

use crate::process::{BUCKET, PASSWORD, Server, USER};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

const PATH: &str = "/default/_default/_default/_changes";

/// The answer to a request, which succeeds.
fn changes(server: &Server, query: &str) -> Value {
    let answer = server.views("GET", &format!("{PATH}?{query}"), "");
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json().unwrap()
}

/// The ids of the documents that changed, sorted; a deleted one behind a minus.
fn ids(answer: &Value) -> Vec<String> {
    let id = |row: &Value| {
        let deleted = row["deleted"] == true;
        format!("{}{}", if deleted { "-" } else { "" }, row["id"].as_str().unwrap())
    };
    let mut ids: Vec<String> = answer["results"].as_array().unwrap().iter().map(id).collect();
    ids.sort();
    ids
}

fn last_seq(answer: &Value) -> &str {
    answer["last_seq"].as_str().unwrap()
}

/// A stream of events.
pub struct Events(BufReader<TcpStream>);

impl Events {
    fn open(server: &Server, query: &str, headers: &str) -> Events {
        Events::open_at(server.port_base, PATH, query, headers)
    }

    /// Opens the changes of the collection at `path`, from the node at `port_base`.
    pub fn open_at(port_base: u16, path: &str, query: &str, headers: &str) -> Events {
        let mut stream = TcpStream::connect(("127.0.0.1", port_base + 1)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let login = STANDARD.encode(format!("{USER}:{PASSWORD}"));
        let head = format!(
            "GET {path}?feed=sse&{query} HTTP/1.1\r\nHost: x\r\nAuthorization: Basic {login}\r\n{headers}\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        Events(BufReader::new(stream))
    }

    /// The next line that begins so, without its beginning.
    pub fn next(&mut self, begin: &str) -> String {
        let mut comment = String::new();
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the stream has ended{comment}");
            if line.starts_with(": ") {
                comment = line.clone();
            }
            if let Some(rest) = line.strip_prefix(begin) {
                return rest.trim_end().to_owned();
            }
        }
    }

    fn next_id(&mut self) -> String {
        let row: Value = serde_json::from_str(&self.next("data: ")).unwrap();
        row["id"].as_str().unwrap().to_owned()
    }
}

/// Returns each ID once, without those whose deletion follows: versions that the flusher took in between may have been
/// sent.
fn newest(mut ids: Vec<String>) -> Vec<String> {
    let gone: Vec<_> =
        ids.iter().filter_map(|id| id.strip_prefix('-').map(str::to_owned)).collect();
    ids.retain(|id| !gone.contains(id));
    ids.dedup();
    ids
}

#[test]
fn a_client_receives_the_changes_since_its_last_request() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let mut client = server.client();
    client.set(b"a", b"{\"n\":\n1}").unwrap();
    client.set(b"b", b"plain").unwrap();
    client.set(b"c", b"3").unwrap();
    client.delete(b"c", 0).unwrap();
    let first = changes(&server, "");
    assert_eq!(newest(ids(&first)), ["-c", "a", "b"]);
    assert_eq!(ids(&changes(&server, &format!("since={}", last_seq(&first)))), [""; 0]);
    client.set(b"b", b"{}").unwrap();
    let second = changes(&server, &format!("since={}&include_docs=true", last_seq(&first)));
    assert_eq!(ids(&second), ["b"]);
    let row = &second["results"][0];
    assert_eq!(
        (&row["doc"], row["rev"].as_str().unwrap().split_once('-').unwrap().0),
        (&serde_json::json!({}), "2")
    );
    let all = changes(&server, "include_docs=true");
    let rows = all["results"].as_array().unwrap();
    let doc = |id: &str| rows.iter().rfind(|row| row["id"] == id).unwrap();
    assert_eq!((&doc("a")["doc"]["n"], doc("c").get("doc")), (&serde_json::json!(1), None));

    let mut since = String::from("0");
    let mut one_by_one = Vec::new();
    loop {
        let answer = changes(&server, &format!("since={since}&limit=1"));
        if ids(&answer).is_empty() {
            break;
        }
        one_by_one.extend(ids(&answer));
        since = last_seq(&answer).to_owned();
    }
    one_by_one.sort();
    assert_eq!(newest(one_by_one), ["-c", "a", "b"]);
    assert_eq!(ids(&changes(&server, "filter=_doc_ids&doc_ids=%5B%22a%22,%22z%22%5D")), ["a"]);
    assert_eq!(ids(&changes(&server, "since=now")), [""; 0]);

    assert!(last_seq(&all).len() < 6000, "{} bytes", last_seq(&all).len());
    let (by_json, by_form) = (
        serde_json::json!({"since": last_seq(&first), "include_docs": true, "limit": 9})
            .to_string(),
        format!("since={}&include_docs=true", last_seq(&first)),
    );
    for body in [by_json, by_form] {
        let posted = server.views("POST", PATH, &body);
        assert_eq!((posted.status, ids(&posted.json().unwrap())), (200, vec!["b".to_owned()]));
    }
    let asked = serde_json::json!({"filter": "_doc_ids", "doc_ids": ["a", "z"]}).to_string();
    assert_eq!(ids(&server.views("POST", PATH, &asked).json().unwrap()), ["a"]);
    assert_eq!(server.views("POST", PATH, "{\"sinc\": 0}").status, 400);
}

#[test]
fn evicted_documents_come_from_the_store() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(directory.path());
    let mut client = server.client();
    let names: Vec<String> = (0..3000).map(|n| format!("k{n:04}")).collect();
    for name in &names {
        client.set(name.as_bytes(), b"{}").unwrap();
    }
    let port_base = server.port_base;
    server.stop();
    server = Server::start_at(directory.path(), port_base);
    let answer = changes(&server, "");
    assert_eq!(ids(&answer), names);
    assert_eq!(ids(&changes(&server, &format!("since={}", last_seq(&answer)))), [""; 0]);
}

#[test]
fn a_longpoll_answers_with_the_first_change_or_at_its_timeout() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let mut client = server.client();
    let empty = changes(&server, "feed=longpoll&timeout=50");
    assert_eq!(ids(&empty), [""; 0]);
    client.set(b"a", b"1").unwrap();
    let first = changes(&server, &format!("feed=longpoll&since={}", last_seq(&empty)));
    assert_eq!(ids(&first), ["a"], "it is there already");
    std::thread::scope(|scope| {
        let query = format!("feed=longpoll&since={}", last_seq(&first));
        let server = &server;
        let waiting = scope.spawn(move || ids(&changes(server, &query)));
        client.set(b"b", b"1").unwrap();
        assert_eq!(waiting.join().unwrap(), ["b"]);
    });
}

#[test]
fn events_arrive_as_they_happen_and_can_be_resumed() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let mut client = server.client();
    client.set(b"a", b"1").unwrap();
    let mut events = Events::open(&server, "", "");
    assert_eq!(events.next("HTTP/1.1 "), "200 OK");
    assert_eq!(events.next("content-type: "), "text/event-stream");
    assert_eq!(events.next_id(), "a");
    let id = events.next("id: ");
    for name in ["b", "c"] {
        client.set(name.as_bytes(), b"1").unwrap();
        assert_eq!(events.next_id(), name);
    }
    let later = events.next("id: ");
    drop(events);
    client.set(b"d", b"1").unwrap();
    let mut events = Events::open(&server, "", &format!("Last-Event-ID: {later}\r\n"));
    assert_eq!(events.next_id(), "d", "it stands behind those before");
    let mut events = Events::open(&server, "since=0", &format!("Last-Event-ID: {id}\r\n"));
    let mut missed = [events.next_id(), events.next_id(), events.next_id()];
    missed.sort();
    assert_eq!(missed, ["b", "c", "d"], "what a browser was told last goes before \"since\"");
}

#[test]
fn a_token_that_cannot_be_resumed_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let mut client = server.client();
    client.set(b"a", b"1").unwrap();
    let answer = changes(&server, "");
    let since = last_seq(&answer);
    let scopes = format!("/pools/default/buckets/{BUCKET}/scopes");
    let created = server.rest("POST", &format!("{scopes}/_default/collections"), "name=c").unwrap();
    assert_eq!(created.status, 200);
    let ask = |path: &str, query: &str| {
        let answer = server.views("GET", &format!("{path}?{query}"), "");
        (answer.status, answer.text())
    };
    let (status, text) = ask("/default/_default/c/_changes", &format!("since={since}"));
    assert_eq!((status, text.contains("another collection")), (410, true), "{text}");
    assert_eq!(ask("/default/_default/nobody/_changes", "").0, 404);
    assert_eq!(ask("/nobody/_default/_default/_changes", "").0, 404);
    for query in [
        "since=x",
        "feed=continuous",
        "limit=-1",
        "include_docs=1",
        "timeout=soon",
        "filter=mine",
        "filter=_doc_ids",
        "doc_ids=%5B%5D",
        "filter=_doc_ids&doc_ids=a",
        "descending=true",
    ] {
        let (status, text) = ask(PATH, query);
        assert_eq!((status, text.contains("bad_request")), (400, true), "{query}: {text}");
    }
}

#[test]
fn changes_require_the_right_to_read() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let ask = |role: &str| {
        let form = format!("password=secret123&roles={role}");
        let user = "/settings/rbac/users/local/ann";
        assert_eq!(server.rest("PUT", user, &form).unwrap().status, 200);
        let address = format!("127.0.0.1:{}", server.port_base + 1);
        let login = Some(("ann", "secret123"));
        nacre_conformance::http::request(&address, "GET", PATH, login, "", b"").unwrap().status
    };
    let collections = "/pools/default/buckets/default/scopes/_default/collections";
    assert_eq!(server.rest("POST", collections, "name=other").unwrap().status, 200);
    assert_eq!(ask("data_reader[default:_default:_default]"), 200);
    assert_eq!(ask("data_writer[default]"), 403);
    assert_eq!(ask("data_reader[default:_default:other]"), 403);
}

#[test]
fn an_id_that_is_not_utf_8_is_shown_in_hexadecimal() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let mut client = server.client();
    client.set(b"\xff\xfe", b"1").unwrap();
    client.set("\u{fffd}".as_bytes(), b"1").unwrap();
    let told = changes(&server, "");
    let rows = told["results"].as_array().unwrap();
    let of = |name: &str| rows.iter().filter_map(|row| row[name].as_str()).collect::<Vec<_>>();
    assert_eq!((of("id"), of("id_hex")), (vec!["\u{fffd}"], vec!["fffe"]));
    for method in ["PUT", "DELETE"] {
        assert_eq!(server.views(method, PATH, "").status, 405, "{method}");
    }
}
