//! Vector indexes of SQL++ from outside: they find what all documents have, and are listed, dropped and permitted like other indexes.

use crate::process::{BUCKET, PASSWORD, Server, USER};
use crate::search::{statement, write};
use serde_json::{Value, json};

const OPTIONS: &str = r#"WITH {"dimension": 2, "similarity": "L2", "description": "IVF,SQ8"}"#;

/// Writes 600 documents with vectors on a grid.
fn write_grid(server: &Server) {
    let documents: Vec<(String, String)> = (0..600)
        .map(|n| {
            let body = json!({"n": n, "v": [n % 30, n / 30], "kind": format!("kind{}", n % 7)});
            (format!("k{n:04}"), body.to_string())
        })
        .collect();
    let documents: Vec<(&str, &str)> =
        documents.iter().map(|(key, body)| (&**key, &**body)).collect();
    write(server, &documents);
    // A document without a vector is in no vector index.
    write(server, &[("none", r#"{"n": 1000, "kind": "other"}"#)]);
}

fn nearest(function: &str, condition: &str) -> String {
    format!(
        "SELECT RAW x.n FROM {BUCKET} x WHERE x.v IS NOT MISSING {condition} ORDER BY {function}(x.v, [10.21, 5.57], 'L2') LIMIT 10"
    )
}

#[test]
fn a_vector_index_finds_the_neighbours_that_all_documents_have() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let (base, root) = (server.port_base, (USER, PASSWORD));
    write_grid(&server);
    let rows = |text: &str| statement(root, base, text).unwrap();
    let uses_index =
        |text: &str| rows(&format!("EXPLAIN {text}")).to_string().contains("index_vector");
    let create = format!("CREATE VECTOR INDEX near ON {BUCKET}(v VECTOR) INCLUDE (kind) {OPTIONS}");
    assert!(!uses_index(&nearest("APPROX_VECTOR_DISTANCE", "")));
    assert_eq!(rows(&create), json!([]));
    assert_eq!(statement(root, base, &create).unwrap_err().0, 4300);
    let other = format!("CREATE INDEX near ON {BUCKET}(n)");
    assert_eq!(statement(root, base, &other).unwrap_err().0, 4300);
    assert_eq!(rows(&create.replace("near", "IF NOT EXISTS near")), json!([]));
    let listed = "SELECT i.is_vector, i.index_key, i.`with`.dimension AS d FROM system:indexes AS i WHERE i.name = 'near'";
    assert_eq!(rows(listed), json!([{"is_vector": true, "index_key": ["`v` VECTOR"], "d": 2}]));
    for condition in
        ["", "AND x.kind = 'kind3'", "AND x.kind = 'kind3' AND x.n > 100", "AND x.n % 2 = 0"]
    {
        let text = nearest("APPROX_VECTOR_DISTANCE", condition);
        assert!(uses_index(&text), "{text}");
        let exact = rows(&nearest("VECTOR_DISTANCE", condition));
        assert_eq!(exact.as_array().map(Vec::len), Some(10), "{condition}");
        assert_eq!(rows(&text), exact, "{condition}");
    }
    // A change is seen by a statement that sees all earlier writes.
    write(&server, &[("new", r#"{"n": 2000, "v": [10.21, 5.57], "kind": "new"}"#)]);
    let found = rows(&nearest("APPROX_VECTOR_DISTANCE", ""));
    assert_eq!(found[0], json!(2000), "{found}");
    let by_dot = nearest("APPROX_VECTOR_DISTANCE", "").replace("'L2'", "'DOT'");
    assert!(!uses_index(&by_dot), "{by_dot}");
    let wrong = nearest("APPROX_VECTOR_DISTANCE", "").replace("[10.21, 5.57]", "[1, 2, 3]");
    let (_, message) = statement(root, base, &wrong).unwrap_err();
    assert!(message.contains("a vector of 2 numbers"), "{message}");
    // The index builds itself, and is dropped like others.
    assert_eq!(rows(&format!("BUILD INDEX ON {BUCKET}(near)")), json!([]));
    assert_eq!(rows(&format!("DROP INDEX near ON {BUCKET}")), json!([]));
    assert!(!uses_index(&nearest("APPROX_VECTOR_DISTANCE", "")));
    assert_eq!(rows(listed), json!([]));
    let again = statement(root, base, &format!("DROP INDEX near ON {BUCKET}")).unwrap_err();
    assert_eq!(again.0, 12016, "{}", again.1);
    assert_eq!(rows(&format!("DROP INDEX near IF EXISTS ON {BUCKET}")), json!([]));
}

#[test]
fn vector_indexes_need_the_right_to_manage_indexes_and_queries_only_that_to_select() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let base = server.port_base;
    write_grid(&server);
    for (user, role) in [("asker", "query_select"), ("manager", "query_manage_index")] {
        let form = format!("password=secret&roles={role}[{BUCKET}]");
        let path = format!("/settings/rbac/users/local/{user}");
        assert_eq!(server.rest("PUT", &path, &form).unwrap().status, 200);
    }
    let (asker, manager) = (("asker", "secret"), ("manager", "secret"));
    let create = format!("CREATE INDEX near ON {BUCKET}(kind, v VECTOR) {OPTIONS}");
    let drop = format!("DROP INDEX near ON {BUCKET}");
    let refused = |text: &str| statement(asker, base, text).unwrap_err().0;
    assert_eq!(refused(&create), 13014);
    assert_eq!(statement(manager, base, &create).unwrap(), json!([]));
    assert_eq!(refused(&drop), 13014);
    let text = nearest("APPROX_VECTOR_DISTANCE", "AND x.kind = 'kind1'");
    let explained: Value = statement(asker, base, &format!("EXPLAIN {text}")).unwrap();
    assert!(explained.to_string().contains("index_vector"), "{explained}");
    let exact = nearest("VECTOR_DISTANCE", "AND x.kind = 'kind1'");
    assert_eq!(statement(asker, base, &text).unwrap(), statement(asker, base, &exact).unwrap());
    // A user without the right to search cannot use the index for other searches.
    let search = format!("SELECT RAW x.n FROM {BUCKET} x WHERE SEARCH(x.kind, 'kind1')");
    let explained = statement(asker, base, &format!("EXPLAIN {search}")).unwrap();
    assert!(!explained.to_string().contains("IndexFtsSearch"), "{explained}");
    assert_eq!(statement(manager, base, &drop).unwrap(), json!([]));
}
