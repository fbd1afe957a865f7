//! Queries from outside: limits, cancelling, rights, and statements that no client should send.

use crate::process::{BUCKET, PASSWORD, Server, USER};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use nacre_conformance::http::{self, Answer};
use nacre_conformance::run::{Target, run};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Rows of a cross join that no machine ever finishes.
const ENDLESS: &str = "SELECT COUNT(*) FROM ARRAY_RANGE(0, 10000) AS a, ARRAY_RANGE(0, 10000) AS b, ARRAY_RANGE(0, 10000) AS c";
/// How much longer than its timeout a query may take on a busy machine.
const SLACK: Duration = Duration::from_secs(20);

fn address(server: &Server) -> String {
    format!("127.0.0.1:{}", server.port_base + 2)
}

fn send(server: &Server, user: &str, method: &str, path: &str, body: &[u8]) -> Answer {
    let auth = Some((user, PASSWORD));
    let patience = Duration::from_secs(100);
    http::request_within(patience, &address(server), method, path, auth, "application/json", body)
        .unwrap()
}

fn ask_as(server: &Server, user: &str, request: &Value) -> Value {
    let body = request.to_string();
    send(server, user, "POST", "/query/service", body.as_bytes()).json().unwrap()
}

fn ask(server: &Server, request: &Value) -> Value {
    ask_as(server, USER, request)
}

fn query(server: &Server, statement: &str) -> Value {
    ask(server, &json!({"statement": statement}))
}

fn rows(server: &Server, statement: &str) -> Value {
    let mut answer = query(server, statement);
    assert_eq!(answer["status"], "success", "{answer}");
    answer["results"].take()
}

fn code(answer: &Value) -> u64 {
    answer["errors"][0]["code"].as_u64().unwrap_or_else(|| panic!("no error: {answer}"))
}

/// A node whose query service answers.
pub fn serving(directory: &std::path::Path) -> Server {
    let mut server = Server::start(directory);
    server.wait_for("the query service (run `cargo xtask plugins` before the tests)", |server| {
        (query(server, "SELECT 1")["status"] == "success").then_some(())
    });
    server
}

#[test]
fn a_query_of_any_kind_ends_at_its_timeout() {
    let directory = tempfile::tempdir().unwrap();
    let server = serving(directory.path());
    // The second one is a single call of a function, within which the guest never reads the time.
    let one_step = "SELECT REGEXP_CONTAINS(REPEAT('ab', 5000000), '(a|b|ab){200}c')";
    for statement in [ENDLESS, one_step] {
        let begun = Instant::now();
        let request =
            json!({"statement": statement, "timeout": "300ms", "client_context_id": "mine"});
        let answer = ask(&server, &request);
        assert!(answer["requestID"].is_string() && answer["clientContextID"] == "mine", "{answer}");
        assert_eq!((code(&answer), &answer["status"]), (1080, &json!("timeout")), "{answer}");
        assert!(begun.elapsed() < SLACK, "{statement} took {:?}", begun.elapsed());
    }
    assert_eq!(rows(&server, "SELECT RAW 1"), json!([1]));
}

#[test]
fn a_query_that_wants_too_much_memory_fails_alone() {
    let directory = tempfile::tempdir().unwrap();
    let server = serving(directory.path());
    let bomb = "SELECT a, b FROM ARRAY_RANGE(0, 3000) AS a UNNEST ARRAY_REPEAT(REPEAT('x', 1000), 3000) AS b ORDER BY b, a";
    let answer = query(&server, bomb);
    assert_eq!((code(&answer), &answer["status"]), (5500, &json!("errors")), "{answer}");
    let answer = ask(&server, &json!({"statement": bomb, "memory_quota": 1}));
    assert_eq!(code(&answer), 5500, "{answer}");
    assert_eq!(rows(&server, "SELECT RAW 1"), json!([1]));
}

#[test]
fn other_queries_are_answered_while_some_run() {
    let directory = tempfile::tempdir().unwrap();
    let server = serving(directory.path());
    std::thread::scope(|scope| {
        let endless: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| ask(&server, &json!({"statement": ENDLESS, "timeout": "5s"}))))
            .collect();
        for number in 0..20 {
            assert_eq!(rows(&server, &format!("SELECT RAW {number}")), json!([number]));
        }
        for answer in endless {
            assert_eq!(code(&answer.join().unwrap()), 1080);
        }
    });
}

/// A connection that is kept, as SDKs keep theirs.
struct KeepAlive(BufReader<TcpStream>);

impl KeepAlive {
    fn open(server: &Server) -> KeepAlive {
        let stream = TcpStream::connect(address(server)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(100))).unwrap();
        KeepAlive(BufReader::new(stream))
    }

    fn send(&mut self, request: &Value) {
        let body = request.to_string();
        let head = format!(
            "POST /query/service HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Basic {}\r\nContent-Length: {}\r\n\r\n{body}",
            BASE64_STANDARD.encode(format!("{USER}:{PASSWORD}")),
            body.len()
        );
        self.0.get_mut().write_all(head.as_bytes()).unwrap();
    }

    /// The status line of the answer, which is then read to its end.
    fn status(&mut self) -> String {
        let lines: Vec<String> =
            (&mut self.0).lines().map(Result::unwrap).take_while(|line| !line.is_empty()).collect();
        let length = lines.iter().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.expect("a short answer has a length").parse().unwrap()];
        self.0.read_exact(&mut body).unwrap();
        lines[0].clone()
    }
}

#[test]
fn connections_share_threads_but_do_not_wait_for_each_other() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = serving(directory.path());
    rows(&server, "CREATE PRIMARY INDEX ON default");
    let written = server.client().set(b"k", b"1").unwrap().extras;
    let number = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().unwrap());
    let (uuid, seqno) = (number(&written[..8]), number(&written[8..]));
    let vbid = nacre_conformance::kv::vbid(b"k", 1024).to_string();
    // Waits for a seqno that was never written.
    let waits = json!({
        "statement": "SELECT RAW META(d).id FROM default AS d WHERE META(d).id > ''",
        "scan_consistency": "at_plus", "scan_wait": "60s",
        "scan_vector": {vbid: [seqno + 1_000_000, uuid.to_string()]},
    });
    let computes = json!({"statement": ENDLESS});
    let code = "function endless() { for (;;) {} }";
    rows(&server, &format!("CREATE FUNCTION endless() LANGUAGE JAVASCRIPT AS {}", json!(code)));
    let calls = json!({"statement": "EXECUTE FUNCTION endless()"});
    let mut connections: Vec<KeepAlive> = (0..100).map(|_| KeepAlive::open(&server)).collect();
    // More of each than threads, of connections that were dealt out alike.
    let long = [&waits, &computes, &calls].repeat(4);
    for (number, request) in long.iter().enumerate() {
        connections[number * 5].send(request);
        server
            .wait_for("the request to run", |server| (running(server) == number + 1).then_some(()));
    }
    for (number, connection) in connections.iter_mut().enumerate() {
        if number % 5 != 0 || number / 5 >= long.len() {
            connection.send(&json!({"statement": "SELECT 1"}));
            assert_eq!(connection.status(), "HTTP/1.1 200 OK");
        }
    }
    assert_eq!(running(&server), long.len(), "the others go on meanwhile");
}

fn running(server: &Server) -> usize {
    let active = send(server, USER, "GET", "/admin/active_requests", b"").json().unwrap();
    active.as_array().unwrap_or_else(|| panic!("{active}")).len()
}

#[test]
fn a_running_request_is_stopped_by_users_with_the_right() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = serving(directory.path());
    let body = json!({"statement": ENDLESS, "client_context_id": "mine"}).to_string();
    let address = address(&server);
    let endless = std::thread::spawn(move || {
        let auth = Some((USER, PASSWORD));
        let (path, json) = ("/query/service", "application/json");
        let patience = Duration::from_secs(100);
        http::request_within(patience, &address, "POST", path, auth, json, body.as_bytes())
            .unwrap()
            .json()
            .unwrap()
    });
    server.wait_for("the request to run", |server| (running(server) == 1).then_some(()));
    let stop =
        "DELETE FROM system:active_requests WHERE clientContextID = 'mine' RETURNING RAW users";
    assert_eq!(rows(&server, stop), json!([USER]));
    let answer = endless.join().unwrap();
    assert_eq!(
        (&answer["status"], &answer["clientContextID"]),
        (&json!("stopped"), &json!("mine"))
    );
    server.wait_for("the request to end", |server| (running(server) == 0).then_some(()));
}

#[test]
fn a_query_ends_when_its_client_disconnects() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = serving(directory.path());
    let rows = "SELECT a, b FROM ARRAY_RANGE(0, 100000) AS a, ARRAY_RANGE(0, 100000) AS b";
    // The one has no row ever, the other has them faster than anybody takes them.
    let statements = [ENDLESS, rows];
    // Alone, and next to many clients.
    let mut crowd = Vec::new();
    for (size, statement) in [0, 64].into_iter().flat_map(|size| statements.map(|s| (size, s))) {
        crowd.resize_with(size, || TcpStream::connect(address(&server)).unwrap());
        let body = json!({"statement": statement}).to_string();
        let mut stream = TcpStream::connect(address(&server)).unwrap();
        let length = body.len();
        let head = format!(
            "POST /query/service HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Basic QWRtaW5pc3RyYXRvcjpwYXNzd29yZA==\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(head.as_bytes()).unwrap();
        server.wait_for("the request to run", |server| (running(server) == 1).then_some(()));
        drop(stream);
        let begun = Instant::now();
        server.wait_for("the request to end", |server| (running(server) == 0).then_some(()));
        assert!(begun.elapsed() < Duration::from_secs(60), "{statement}: that was its time-out");
    }
}

#[test]
fn functions_survive_a_restart_and_go_with_their_scope() {
    let directory = tempfile::tempdir().unwrap();
    let server = serving(directory.path());
    rows(&server, "CREATE SCOPE default:`default`.travel");
    rows(&server, "CREATE FUNCTION default:`default`.travel.twice(x) { x * 2 }");
    rows(&server, "CREATE FUNCTION thrice(x) { x * 3 }");
    let again = query(&server, "CREATE FUNCTION thrice(x) { x * 4 }");
    assert_eq!(code(&again), 10102);
    server.stop();
    let server = serving(directory.path());
    let both = "SELECT RAW [default:`default`.travel.twice(1), thrice(1)]";
    assert_eq!(rows(&server, both), json!([[2, 3]]));
    rows(&server, "DROP SCOPE default:`default`.travel");
    assert_eq!(code(&query(&server, both)), 10101);
    let left = "SELECT RAW f.identity.name FROM system:functions AS f";
    assert_eq!(rows(&server, left), json!(["thrice"]));
}

#[test]
fn a_prepared_statement_needs_rights_whenever_it_is_executed() {
    let directory = tempfile::tempdir().unwrap();
    let server = serving(directory.path());
    let grant = |roles: &str| {
        let user = format!("password={PASSWORD}&roles={roles}");
        let made = server.rest("PUT", "/settings/rbac/users/local/ann", &user).unwrap();
        assert_eq!(made.status, 200, "{}", made.text());
    };
    let statements = [
        ("read", "SELECT RAW d.n FROM default AS d WHERE d.n = 7"),
        ("by_index", "SELECT RAW META(d).id FROM default AS d WHERE d.n = 7"),
        ("count", "SELECT RAW COUNT(*) FROM default"),
        ("by_key", "SELECT RAW d.n FROM default AS d USE KEYS 'a'"),
        ("write", "UPSERT INTO default VALUES ('b', {'n': 8}) RETURNING RAW n"),
        ("change", "UPDATE default AS d USE KEYS 'b' SET d.n = 9 RETURNING RAW d.n"),
        ("remove", "DELETE FROM default AS d USE KEYS 'b' RETURNING RAW d.n"),
    ];
    let answers = |expected: &[Value]| {
        for ((name, _), expected) in statements.iter().zip(expected) {
            let answer = ask_as(&server, "ann", &json!({"prepared": name}));
            let found = match &answer["status"] {
                status if status == "success" => answer["results"].clone(),
                _ => code(&answer).into(),
            };
            assert_eq!(found, *expected, "{name}: {answer}");
        }
    };
    rows(&server, "UPSERT INTO default VALUES ('a', {'n': 7})");
    rows(&server, "CREATE INDEX by_n ON default(n)");
    let writes =
        "query_select[default],query_insert[default],query_update[default],query_delete[default]";
    grant(writes);
    for (name, statement) in statements {
        let prepared =
            ask_as(&server, "ann", &json!({"statement": format!("PREPARE {name} AS {statement}")}));
        assert_eq!(prepared["status"], "success", "{prepared}");
    }
    let all =
        [json!([7]), json!(["a"]), json!([1]), json!([7]), json!([8]), json!([9]), json!([9])];
    // The second time by the plan of the first.
    answers(&all);
    answers(&all);
    rows(&server, "DROP INDEX by_n ON default");
    answers(&all);
    rows(&server, "CREATE INDEX by_n ON default(n) WHERE n > 100");
    answers(&all);
    grant("query_select[default]");
    let refused = || json!(13014);
    answers(&[&all[..4], &[refused(), refused(), refused()]].concat());
    grant("");
    answers(&[refused(), refused(), refused(), refused(), refused(), refused(), refused()]);
    grant(writes);
    answers(&all);
}

#[test]
fn users_see_their_own_requests_and_prepared_statements() {
    let directory = tempfile::tempdir().unwrap();
    let server = serving(directory.path());
    for (name, roles) in [("ann", "query_select[*]"), ("bob", ""), ("sys", "query_system_catalog")]
    {
        let user = format!("password={PASSWORD}&roles={roles}");
        let made =
            server.rest("PUT", &format!("/settings/rbac/users/local/{name}"), &user).unwrap();
        assert_eq!(made.status, 200, "{}", made.text());
    }
    let run = |user: &str, statement: &str| {
        let answer = ask_as(&server, user, &json!({"statement": statement}));
        if answer["status"] == "success" { answer["results"].clone() } else { code(&answer).into() }
    };
    run(USER, "PREPARE report AS SELECT RAW 1");
    assert_eq!(run("bob", "EXECUTE report"), json!(4040), "the name of another user");
    run("bob", "PREPARE FORCE report AS SELECT RAW 2");
    assert_eq!(run(USER, "EXECUTE report"), json!([1]), "nobody replaces it");
    assert_eq!(run("bob", "EXECUTE report"), json!([2]));
    let own = "SELECT p.statement, META(p).id FROM system:prepareds AS p ORDER BY META(p).id";
    assert_eq!(run("ann", own), json!([]));
    let texts = "SELECT RAW META(p).id FROM system:prepareds AS p";
    assert_eq!(run("bob", texts), json!(["report"]));
    assert_eq!(run(USER, texts), json!(["report", "bob//report"]));
    assert_eq!(run("sys", texts), json!(["Administrator//report", "bob//report"]));
    for catalog in ["active_requests", "completed_requests"] {
        let users = format!("SELECT DISTINCT RAW users FROM system:{catalog} WHERE users != 'ann'");
        assert_eq!(run("ann", &users), json!([]));
        assert_eq!(send(&server, "ann", "GET", &format!("/admin/{catalog}"), b"").status, 200);
    }
    let gone = send(&server, "ann", "DELETE", "/admin/prepareds/bob//report", b"");
    assert_eq!(gone.status, 404, "no part of hers");
    run(USER, "DELETE FROM system:prepareds WHERE users = 'bob'");
    assert_eq!(run("bob", "EXECUTE report"), json!(4040));
    let create = ask_as(&server, "ann", &json!({"statement": "CREATE FUNCTION f() { 1 }"}));
    assert_eq!(code(&create), 13014, "{create}");
}

#[test]
fn management_reports_the_true_state() {
    let directory = tempfile::tempdir().unwrap();
    let server = serving(directory.path());
    let get = |path: &str| {
        let answer = send(&server, USER, "GET", path, b"");
        assert_eq!(answer.status, 200, "{path}");
        answer.json().unwrap()
    };
    let before = get("/admin/vitals")["request.completed.count"].as_u64().unwrap();
    rows(&server, "SELECT 1");
    let vitals = get("/admin/vitals");
    assert_eq!(vitals["request.completed.count"], before + 1, "{vitals}");
    assert_eq!(vitals["request.active.count"], 0, "{vitals}");
    assert_eq!(get("/admin/stats/requests.count")["requests.count"], before + 1);
    assert_eq!(get("/admin/ping")["status"], "OK");
    assert_eq!(get("/admin/settings")["completed-threshold"], 1000);
    assert!(get("/admin/config").is_array());
    rows(&server, "PREPARE p AS SELECT RAW 7");
    assert_eq!(get("/admin/prepareds/p")["name"], "p");
    assert_eq!(send(&server, USER, "DELETE", "/admin/prepareds/p", b"").status, 200);
    assert_eq!(send(&server, USER, "GET", "/admin/prepareds/p", b"").status, 404);
    assert_eq!(code(&query(&server, "EXECUTE p")), 4040);
}

#[test]
fn hostile_statements_are_refused_or_answered() {
    let directory = tempfile::tempdir().unwrap();
    let server = serving(directory.path());
    let nested = |open: &str, middle: &str, close: &str| {
        format!("SELECT {}{middle}{}", open.repeat(10_000), close.repeat(10_000))
    };
    for statement in [
        nested("(", "1", ")"),
        nested("[", "1", "]"),
        nested("{\"a\": ", "1", "}"),
        nested("(SELECT ", "1", ")"),
        nested("CASE WHEN TRUE THEN ", "1", " END"),
        nested("NOT ", "TRUE", ""),
        nested("ARRAY x FOR x IN ", "[1]", " END"),
        nested("-", "1", ""),
        format!("SELECT {}", "((((".repeat(100_000)),
    ] {
        let answer = ask(&server, &json!({"statement": statement, "timeout": "30s"}));
        assert_ne!(answer["status"], "success");
        assert!(code(&answer) != 1080 && code(&answer) != 5500, "{}", answer["errors"]);
    }
    let many = (0..200_000).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let list = json!({"statement": format!("SELECT RAW 199999 IN [{many}]"), "timeout": "60s"});
    assert_eq!(ask(&server, &list)["results"], json!([true]));
    let parameter = json!({"statement": "SELECT RAW LENGTH($1)", "args": ["x".repeat(8 << 20)]});
    assert_eq!(ask(&server, &parameter)["results"], json!([8 << 20]));
    let text = "a".repeat(5000);
    let pattern = format!("SELECT RAW REGEXP_CONTAINS('{text}!', '^(a+)+$')");
    let linear = json!({"statement": pattern, "timeout": "30s"});
    assert_eq!(ask(&server, &linear)["results"], json!([false]));
    let like = format!("SELECT RAW '{text}' LIKE '{}b'", "%a".repeat(500));
    let linear = json!({"statement": like, "timeout": "30s"});
    assert_eq!(ask(&server, &linear)["results"], json!([false]));
    let recursive = "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 AS n FROM r) SELECT COUNT(*) FROM r";
    let answer = ask(&server, &json!({"statement": recursive, "timeout": "30s"}));
    assert!(answer["status"] != "timeout", "{answer}");
    for body in [&b""[..], b"{", b"[]", b"{\"statement\": 7}", b"\xff\xfe", b"null"] {
        let answer = send(&server, USER, "POST", "/query/service", body);
        assert_eq!(answer.status, 400, "{}", answer.text());
        code(&answer.json().unwrap());
    }
    assert_eq!(rows(&server, "SELECT RAW 1"), json!([1]));
}

#[test]
fn a_flood_of_prepared_names_pushes_out_the_oldest_only() {
    let directory = tempfile::tempdir().unwrap();
    let server = serving(directory.path());
    let padding = "x".repeat(1 << 20);
    for number in 0..20 {
        let statement = format!("PREPARE p{number} AS SELECT RAW '{padding}'");
        assert_eq!(query(&server, &statement)["status"], "success");
    }
    assert_eq!(code(&query(&server, "EXECUTE p0")), 4040);
    assert_eq!(query(&server, "EXECUTE p19")["status"], "success");
}

/// The datasets of the cases are collections, which somebody may have of the same name.
#[test]
fn conformance_cases_do_not_change_data_of_others() {
    let directory = tempfile::tempdir().unwrap();
    let server = serving(directory.path());
    rows(&server, "CREATE COLLECTION default._default.orders");
    rows(&server, "INSERT INTO default._default.orders VALUES ('mine', {})");
    let target = Target {
        host: "127.0.0.1".into(),
        kv_port: server.port_base + 10,
        mgmt_port: server.port_base,
        views_port: server.port_base + 1,
        query_port: server.port_base + 2,
        eventing_port: server.port_base + 5,
        fresh_ports: Vec::new(),
        user: USER.into(),
        password: PASSWORD.into(),
        bucket: BUCKET.into(),
        filter: "sqlpp/grouping".into(),
        run: "x".into(),
    };
    let outcomes = run(&target, |_| ());
    assert!(!outcomes.is_empty());
    for outcome in outcomes {
        let problem = outcome.problem.unwrap();
        assert!(problem.contains("as \"mine\": use a node of its own"), "{problem}");
    }
    assert_eq!(rows(&server, "SELECT RAW META().id FROM default._default.orders"), json!(["mine"]));
}
