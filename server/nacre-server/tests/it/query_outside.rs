//! Statements that reach beyond documents: buckets, statistics, and CURL to other hosts; with the rights and without.

use crate::process::{BUCKET, PASSWORD, Server, USER, port_base, until};
use crate::queries::serving;
use crate::query_administration::{ask, code, rows, send};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpListener;

fn put_user(server: &Server, name: &str, roles: &str) {
    let form = format!("password={PASSWORD}&roles={roles}");
    let path = format!("/settings/rbac/users/local/{name}");
    assert_eq!(server.rest("PUT", &path, &form).unwrap().status, 200, "{roles}");
}

#[test]
fn buckets_are_created_changed_and_dropped_by_statements() {
    let directory = tempfile::tempdir().unwrap();
    let server = serving(directory.path());
    put_user(&server, "ann", &format!("bucket_admin[{BUCKET}],query_select[*]"));
    let create =
        "CREATE BUCKET shop WITH {\"ramQuota\": 100, \"numVBuckets\": 16, \"replicaNumber\": 0}";
    // A stranger, and a user without the right.
    let stranger = send(&server, None, "/query/service", &json!({"statement": create}));
    assert_eq!(stranger.status, 401);
    for statement in [create, "DROP BUCKET IF EXISTS other", "CREATE BUCKET IF NOT EXISTS default"]
    {
        assert_eq!(code(&ask(&server, "ann", statement)), 13014, "{statement}");
    }
    rows(&server, USER, create);
    assert_eq!(code(&ask(&server, USER, create)), 5502);
    rows(&server, USER, &create.replace("BUCKET", "BUCKET IF NOT EXISTS"));
    let settings = |name: &str| {
        let path = format!("/pools/default/buckets/{name}");
        server.rest("GET", &path, "").unwrap().json().unwrap()
    };
    assert_eq!(settings("shop")["quota"]["rawRAM"], 100 << 20);
    rows(&server, USER, "ALTER BUCKET shop WITH {\"flushEnabled\": true, \"maxTTL\": 60}");
    let changed = settings("shop");
    assert_eq!((&changed["maxTTL"], &changed["numVBuckets"]), (&json!(60), &json!(16)));
    assert!(changed["controllers"]["flush"].is_string(), "{changed}");
    for (statement, expected) in [
        ("ALTER BUCKET shop WITH {\"ramQuota\": \"much\"}", 5502),
        ("ALTER BUCKET shop WITH {\"unheard\": 1}", 5502),
        ("ALTER BUCKET nosuch WITH {\"maxTTL\": 1}", 12020),
        ("CREATE BUCKET small", 5502),
        ("CREATE BUCKET `a b` WITH {\"ramQuota\": 100}", 5502),
        ("DROP BUCKET nosuch", 12020),
    ] {
        assert_eq!(code(&ask(&server, USER, statement)), expected, "{statement}");
    }
    // Whoever administers a bucket changes that one.
    let own = format!("ALTER BUCKET {BUCKET} WITH {{\"maxTTL\": 5}}");
    rows(&server, "ann", &own);
    assert_eq!(code(&ask(&server, "ann", "ALTER BUCKET shop WITH {\"maxTTL\": 5}")), 13014);
    assert_eq!(code(&ask(&server, "ann", "DROP BUCKET shop")), 13014);
    rows(&server, USER, "DROP BUCKET shop");
    rows(&server, USER, "DROP BUCKET IF EXISTS shop");
    assert_eq!(server.rest("GET", "/pools/default/buckets/shop", "").unwrap().status, 404);
}

#[test]
fn statistics_require_the_right_to_query() {
    let directory = tempfile::tempdir().unwrap();
    let server = serving(directory.path());
    rows(&server, USER, &format!("UPSERT INTO {BUCKET} VALUES(\"k\", {{\"a\": 7}})"));
    rows(&server, USER, &format!("CREATE COLLECTION {BUCKET}._default.other"));
    put_user(&server, "ann", &format!("query_select[{BUCKET}:_default:other]"));
    put_user(&server, "bob", &format!("query_select[{BUCKET}]"));
    let update = format!("UPDATE STATISTICS FOR {BUCKET}(a)");
    assert_eq!(code(&ask(&server, "ann", &update)), 13014);
    rows(&server, USER, &update);
    let seen = "SELECT RAW d.distributions.a.max FROM system:dictionary AS d";
    assert_eq!(rows(&server, "bob", seen), json!([7]));
    assert_eq!(rows(&server, "ann", seen), json!([]));
    let counts = "SELECT RAW k.count FROM system:keyspaces_info AS k";
    assert_eq!(rows(&server, "bob", counts), json!([1, 0]));
    assert_eq!(rows(&server, "ann", counts), json!([0]), "only that of the other collection");
    rows(&server, "bob", &format!("UPDATE STATISTICS FOR {BUCKET} DELETE ALL"));
    assert_eq!(rows(&server, USER, seen), json!([]));
}

#[test]
fn statistics_outlive_their_node_and_end_with_their_collection() {
    let directory = tempfile::tempdir().unwrap();
    let server = serving(directory.path());
    rows(&server, USER, &format!("CREATE COLLECTION {BUCKET}._default.orders"));
    let orders = format!("{BUCKET}._default.orders");
    rows(&server, USER, &format!("UPSERT INTO {orders} VALUES(\"k\", {{\"a\": 7}})"));
    rows(&server, USER, &format!("UPDATE STATISTICS FOR {orders}(a)"));
    let seen = "SELECT RAW d.distributions.a.max FROM system:dictionary AS d";
    assert_eq!(rows(&server, USER, seen), json!([7]));
    server.stop();
    let server = serving(directory.path());
    assert_eq!(rows(&server, USER, seen), json!([7]));
    let plan = rows(&server, USER, &format!("EXPLAIN SELECT RAW b FROM {orders} WHERE a = 1"));
    assert!(plan.to_string().contains("optimizer_estimates"), "{plan}");
    rows(&server, USER, &format!("DROP COLLECTION {orders}"));
    rows(&server, USER, &format!("CREATE COLLECTION {orders}"));
    assert_eq!(rows(&server, USER, seen), json!([]), "the new collection has none yet");
    // What is too large is refused, and what was there stays.
    rows(&server, USER, &format!("UPSERT INTO {orders} VALUES(\"k\", {{\"a\": 8}})"));
    rows(&server, USER, &format!("UPDATE STATISTICS FOR {orders}(a)"));
    let long = "SELECT RAW TO_STRING(x) || REPEAT('x', 400) FROM ARRAY_RANGE(0, 800) AS x";
    let insert = format!(
        "INSERT INTO {orders} (KEY k, VALUE {{'text': t}}) SELECT t AS t, UUID() AS k FROM ({long}) AS t"
    );
    rows(&server, USER, &insert);
    let update = format!("UPDATE STATISTICS FOR {orders}(text) WITH {{\"resolution\": 0.1}}");
    assert_eq!(code(&ask(&server, USER, &update)), 5360);
    assert_eq!(rows(&server, USER, seen), json!([8]));
}

fn set(server: &Server, setting: &str) {
    assert_eq!(server.rest("POST", "/settings/querySettings", setting).unwrap().status, 200);
}

#[test]
fn statistics_are_collected_again_after_many_changes() {
    let directory = tempfile::tempdir().unwrap();
    let server = serving(directory.path());
    rows(&server, USER, &format!("CREATE COLLECTION {BUCKET}._default.orders"));
    rows(&server, USER, &format!("CREATE COLLECTION {BUCKET}._default.other"));
    put_user(&server, "ann", &format!("query_select[{BUCKET}:_default:other]"));
    let orders = format!("{BUCKET}._default.orders");
    let fill = |count: u32| {
        let source = format!("SELECT x FROM ARRAY_RANGE(0, {count}) AS x");
        let target = format!("UPSERT INTO {orders} (KEY 'k' || TO_STRING(x), VALUE {{'a': x}})");
        rows(&server, USER, &format!("{target} {source}"));
    };
    let states = "SELECT RAW t.state FROM system:tasks_cache AS t ORDER BY t.state";
    assert_eq!(rows(&server, USER, states), json!([]));
    fill(150);
    rows(
        &server,
        USER,
        &format!("UPDATE STATISTICS FOR {orders}(a) WITH {{\"sample_size\": 1000}}"),
    );
    assert_eq!(rows(&server, USER, states), json!(["scheduled"]));
    assert_eq!(rows(&server, "ann", states), json!([]), "the user may not query the keyspace");
    let settings = "SELECT RAW [a.enable, a.change_percentage] FROM system:aus AS a";
    assert_eq!(rows(&server, "ann", settings), json!([[true, 10]]));
    set(&server, "queryAutoUpdateStatistics=false");
    assert_eq!(rows(&server, USER, states), json!([]));
    assert_eq!(rows(&server, USER, settings), json!([[false, 10]]));
    // A refresh in the middle of the changes would be the only one for minutes.
    fill(300);
    set(&server, "queryAutoUpdateStatistics=true");
    let seen = "SELECT RAW [d.docCount, d.distributions.a.max] FROM system:dictionary AS d";
    until(|| (rows(&server, USER, seen) == json!([[300, 299]])).then_some(()));
    until(|| (rows(&server, USER, states) == json!(["completed", "scheduled"])).then_some(()));
    let task = "SELECT RAW [t.name, t.class, TYPE(t.startTime), TYPE(t.stopTime)] FROM system:tasks_cache AS t WHERE t.state = 'completed'";
    let name = format!("default:{orders}");
    let expected = json!([[name, "update_statistics", "string", "string"]]);
    assert_eq!(rows(&server, USER, task), expected);
    rows(&server, USER, &format!("UPDATE STATISTICS FOR {orders} DELETE ALL"));
    assert_eq!(rows(&server, USER, states), json!([]));
}

#[test]
fn settings_of_the_cluster_limit_requests_and_turn_costs_off() {
    let directory = tempfile::tempdir().unwrap();
    let server = serving(directory.path());
    rows(&server, USER, &format!("UPSERT INTO {BUCKET} VALUES(\"k\", {{\"a\": 7}})"));
    rows(&server, USER, &format!("UPDATE STATISTICS FOR {BUCKET}(a)"));
    let is_by_cost = || {
        let plan = rows(&server, USER, &format!("EXPLAIN SELECT RAW b FROM {BUCKET} WHERE a = 1"));
        plan.to_string().contains("optimizer_estimates")
    };
    assert!(is_by_cost());
    set(&server, "queryUseCBO=false");
    assert!(!is_by_cost());
    set(&server, "queryUseCBO=true");
    assert!(is_by_cost());
    set(&server, "queryTimeout=200000000");
    let endless = "SELECT COUNT(*) FROM ARRAY_RANGE(0, 10000) AS a, ARRAY_RANGE(0, 10000) AS b, ARRAY_RANGE(0, 10000) AS c";
    assert_eq!(code(&ask(&server, USER, endless)), 1080);
    set(&server, "queryTimeout=0");
    let completed =
        "SELECT RAW COUNT(*) FROM system:completed_requests AS r WHERE r.statement = 'SELECT 8'";
    set(&server, "queryCompletedThreshold=-1");
    rows(&server, USER, "SELECT 8");
    assert_eq!(rows(&server, USER, completed), json!([0]));
    set(&server, "queryCompletedThreshold=0");
    rows(&server, USER, "SELECT 8");
    until(|| (rows(&server, USER, completed) == json!([1])).then_some(()));
}

/// Answers each connection once: `/there` with JSON, `/away` with a redirection, `/large` with more than a call may get, `/echo` with the
/// request. Ends with the test.
fn serve_json() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n > 0) {
                head.push(byte[0]);
            }
            let head = String::from_utf8_lossy(&head).into_owned();
            let length = head.to_ascii_lowercase();
            let length = length.split("content-length: ").nth(1);
            let length = length.and_then(|rest| rest.split("\r\n").next()?.parse().ok());
            let mut body = vec![0; length.unwrap_or(0)];
            let _ = stream.read_exact(&mut body);
            let path = head.split(' ').nth(1).unwrap_or_default();
            let (status, more, body) = match path.split('?').next().unwrap_or_default() {
                "/there" => ("200 OK", "", r#"{"answer": 42}"#.to_owned()),
                "/away" => ("302 Found", "Location: /there\r\n", r#"{"moved": true}"#.to_owned()),
                "/large" => ("200 OK", "", "9".repeat(3000)),
                "/text" => ("200 OK", "", "no JSON".to_owned()),
                "/echo" => {
                    let body = String::from_utf8_lossy(&body);
                    ("200 OK", "", json!({"head": head, "body": body}).to_string())
                }
                _ => ("404 Not Found", "", r#"{"error": "none"}"#.to_owned()),
            };
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 {status}\r\n{more}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
            );
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    port
}

#[test]
fn curl_reaches_what_the_setting_allows() {
    let directory = tempfile::tempdir().unwrap();
    let mut server =
        Server::start_with(directory.path(), port_base(), &["--allow-outgoing", "127.0.0.0/8"]);
    server.wait_for("the query service", |server| {
        (ask(server, USER, "SELECT 1")["status"] == "success").then_some(())
    });
    let url = format!("http://127.0.0.1:{}", serve_json());
    let curl = |user: &str, path: &str, options: Value| {
        let statement = format!("SELECT RAW CURL(\"{url}{path}\", {options})");
        ask(&server, user, &statement)
    };
    assert_eq!(code(&curl(USER, "/there", json!({}))), 5010, "nothing is allowed at first");
    let allow = |allowed: &[&str], disallowed: &[&str]| {
        let of = |paths: &[&str]| paths.iter().map(|path| format!("{url}{path}")).collect();
        let (allowed, disallowed): (Vec<String>, Vec<String>) = (of(allowed), of(disallowed));
        let body =
            json!({"all_access": false, "allowed_urls": allowed, "disallowed_urls": disallowed});
        let address = format!("127.0.0.1:{}", server.port_base);
        let path = "/settings/querySettings/curlWhitelist";
        let auth = Some((USER, PASSWORD));
        let body = body.to_string();
        let answer = nacre_conformance::http::request(
            &address,
            "POST",
            path,
            auth,
            "application/json",
            body.as_bytes(),
        );
        assert_eq!(answer.unwrap().status, 200);
    };
    allow(&["/there", "/away", "/large", "/text", "/echo"], &["/echo/secret"]);
    assert_eq!(curl(USER, "/there", json!({}))["results"], json!([{"answer": 42}]));
    // What is not allowed, in whatever spelling, and where an answer leads.
    for path in ["/other", "/therefore", "/there/../other", "/there/%2e%2e/other", "/echo/s%65cret"]
    {
        assert_eq!(code(&curl(USER, path, json!({}))), 5010, "{path}");
    }
    assert_eq!(curl(USER, "/away", json!({}))["results"], json!([{"moved": true}]));
    assert_eq!(code(&curl(USER, "/large", json!({"result-cap": 1000}))), 5010);
    assert_eq!(code(&curl(USER, "/text", json!({}))), 5010);
    let echoed =
        curl(USER, "/echo", json!({"data": ["a=1", "b=2"], "user": "u:p", "header": "X-A: 1"}));
    let echoed = &echoed["results"][0];
    assert_eq!(echoed["body"], "a=1&b=2");
    let head = echoed["head"].as_str().unwrap().to_ascii_lowercase();
    for part in ["post /echo ", "authorization: basic dtpw", "x-a: 1", "x-www-form-urlencoded"] {
        assert!(head.contains(part), "{part}: {head}");
    }
    let asked = curl(USER, "/echo", json!({"data": "a=1", "get": true}));
    assert!(asked["results"][0]["head"].as_str().unwrap().starts_with("GET /echo?a=1 "), "{asked}");
    // A user without the role, and a node, which is never reached without a rule for it.
    put_user(&server, "ann", "query_select[*]");
    assert_eq!(code(&curl("ann", "/there", json!({}))), 13014);
    put_user(&server, "eve", "query_select[*],query_external_access");
    assert_eq!(curl("eve", "/there", json!({}))["status"], "success");
    let node = format!("SELECT CURL(\"http://127.0.0.1:{}/pools\")", server.port_base);
    assert_eq!(code(&ask(&server, USER, &node)), 5010);
}
