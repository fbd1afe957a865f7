//! Statements about users, roles and sequences, extended attributes, and the setting for the time of requests: with the
//! rights and without.

use crate::process::{BUCKET, PASSWORD, Server, USER};
use crate::queries::serving;
use nacre_conformance::http::{self, Answer};
use serde_json::{Value, json};
use std::time::Duration;

pub fn send(server: &Server, user: Option<&str>, path: &str, body: &Value) -> Answer {
    let address = format!("127.0.0.1:{}", server.port_base + 2);
    let auth = user.map(|user| (user, PASSWORD));
    let patience = Duration::from_secs(100);
    let body = body.to_string();
    let body = body.as_bytes();
    http::request_within(patience, &address, "POST", path, auth, "application/json", body).unwrap()
}

pub fn ask(server: &Server, user: &str, statement: &str) -> Value {
    let request = json!({"statement": statement});
    send(server, Some(user), "/query/service", &request).json().unwrap()
}

pub fn rows(server: &Server, user: &str, statement: &str) -> Value {
    let mut answer = ask(server, user, statement);
    assert_eq!(answer["status"], "success", "{statement}: {answer}");
    answer["results"].take()
}

pub fn code(answer: &Value) -> u64 {
    answer["errors"][0]["code"].as_u64().unwrap_or_else(|| panic!("no error: {answer}"))
}

#[test]
fn users_groups_and_roles_are_created_and_granted_by_statements() {
    let directory = tempfile::tempdir().unwrap();
    let server = serving(directory.path());
    let own = format!("SELECT RAW COUNT(*) FROM {BUCKET}");
    rows(&server, USER, &format!("CREATE USER ann PASSWORD \"{PASSWORD}\" WITH \"Ann\""));
    assert_eq!(code(&ask(&server, USER, "CREATE USER ann PASSWORD \"another1\"")), 5000);
    assert_eq!(code(&ask(&server, "ann", &own)), 13014);
    rows(&server, USER, &format!("GRANT query_select ON {BUCKET} TO ann"));
    assert_eq!(rows(&server, "ann", &own), json!([0]));
    let roles = "SELECT RAW roles[0].`role` FROM system:my_user_info";
    assert_eq!(rows(&server, "ann", roles), json!(["query_select"]));
    rows(&server, USER, &format!("REVOKE select ON {BUCKET} FROM USER ann"));
    assert_eq!(code(&ask(&server, "ann", &own)), 13014);
    rows(&server, USER, &format!("CREATE GROUP readers ROLES query_select ON {BUCKET}"));
    rows(&server, USER, "ALTER USER ann GROUPS readers");
    assert_eq!(rows(&server, "ann", &own), json!([0]));
    // A user who may query may not administer, and sees no other user.
    for statement in [
        "GRANT admin TO ann",
        "CREATE USER bob PASSWORD \"password\"",
        "ALTER USER ann PASSWORD \"password\"",
        "DROP USER ann",
        "DROP GROUP readers",
        &format!("CREATE SEQUENCE {BUCKET}._default.s"),
    ] {
        assert_eq!(code(&ask(&server, "ann", statement)), 13014, "{statement}");
    }
    assert_eq!(rows(&server, "ann", "SELECT RAW COUNT(*) FROM system:user_info"), json!([0]));
    for (statement, expected) in [
        ("GRANT admin TO nobody", 5210),
        ("GRANT no_such_role TO ann", 5250),
        ("ALTER USER ann GROUPS nobodies", 5210),
        ("DROP USER nobody", 5210),
    ] {
        assert_eq!(code(&ask(&server, USER, statement)), expected, "{statement}");
    }
    rows(&server, USER, "DROP USER IF EXISTS nobody");
    rows(&server, USER, "DROP USER ann");
    assert_eq!(send(&server, Some("ann"), "/query/service", &json!({})).status, 401);
}

#[test]
fn a_sequence_gives_no_value_twice_also_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let sequence = format!("{BUCKET}._default.numbers");
    let next = format!("SELECT RAW NEXTVAL FOR {sequence}");
    let mut seen = Vec::new();
    {
        let server = serving(directory.path());
        rows(&server, USER, &format!("CREATE SEQUENCE {sequence} START WITH 1 CACHE 10"));
        for _ in 0..12 {
            seen.push(rows(&server, USER, &next)[0].as_i64().unwrap());
        }
        assert_eq!(seen, (1..=12).collect::<Vec<_>>());
    }
    let server = serving(directory.path());
    let value = rows(&server, USER, &next)[0].as_i64().unwrap();
    assert_eq!(value, 21, "what was left of a block is lost");
    let names = "SELECT RAW s.name FROM system:sequences AS s";
    assert_eq!(rows(&server, USER, names), json!(["numbers"]));
    rows(&server, USER, &format!("DROP SEQUENCE {sequence}"));
    assert_eq!(code(&ask(&server, USER, &next)), 19106);
}

#[test]
fn a_query_sees_the_attribute_that_all_documents_have() {
    let directory = tempfile::tempdir().unwrap();
    let server = serving(directory.path());
    rows(&server, USER, &format!("UPSERT INTO {BUCKET} VALUES(\"k\", {{}})"));
    let deleted =
        format!("SELECT RAW META(t).xattrs.`$document`.deleted FROM {BUCKET} AS t USE KEYS \"k\"");
    assert_eq!(rows(&server, USER, &deleted), json!([false]));
    rows(&server, USER, &format!("DELETE FROM {BUCKET} USE KEYS \"k\""));
    assert_eq!(rows(&server, USER, &deleted), json!([true]));
    let system = format!("SELECT META(t).xattrs._sync AS s FROM {BUCKET} AS t USE KEYS \"k\"");
    let form = format!("password={PASSWORD}&roles=query_select[{BUCKET}]");
    assert_eq!(server.rest("PUT", "/settings/rbac/users/local/eve", &form).unwrap().status, 200);
    assert_eq!(code(&ask(&server, "eve", &system)), 13014);
    assert_eq!(rows(&server, "eve", &deleted), json!([true]));
}

#[test]
fn statements_have_http_statuses_and_a_timeout_setting() {
    let directory = tempfile::tempdir().unwrap();
    let server = serving(directory.path());
    let status = |statement: &str| {
        send(&server, Some(USER), "/query/service", &json!({"statement": statement})).status
    };
    assert_eq!(status("SELECT 1 FROM nosuch"), 424);
    assert_eq!(status("SELECT 1 FROM other:nosuch"), 424);
    let answer = ask(&server, USER, &format!("SELECT 1 FROM {BUCKET}.nosuch.c"));
    assert_eq!(code(&answer), 12021);
    let stranger = send(&server, None, "/query/service", &json!({"statement": "SELECT 1"}));
    assert_eq!(stranger.status, 401);
    assert_eq!(code(&stranger.json().unwrap()), 13014);
    let form = format!("password={PASSWORD}&roles=query_select[{BUCKET}]");
    assert_eq!(server.rest("PUT", "/settings/rbac/users/local/eve", &form).unwrap().status, 200);
    let short = json!({"timeout": 200_000_000});
    assert_eq!(send(&server, Some("eve"), "/admin/settings", &short).status, 403);
    assert_eq!(send(&server, Some(USER), "/admin/settings", &short).status, 200);
    let endless = "SELECT COUNT(*) FROM ARRAY_RANGE(0, 10000) AS a, ARRAY_RANGE(0, 10000) AS b, ARRAY_RANGE(0, 10000) AS c";
    assert_eq!(code(&ask(&server, USER, endless)), 1080);
    let none = json!({"timeout": 0});
    assert_eq!(send(&server, Some(USER), "/admin/settings", &none).status, 200);
    let scope = json!({"statement": "SELECT RAW 1", "query_context": format!("default:{BUCKET}.test-scope")});
    let answer = send(&server, Some(USER), "/query/service", &scope).json().unwrap();
    assert_eq!(answer["results"], json!([1]), "{answer}");
}
