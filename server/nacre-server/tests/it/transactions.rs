//! Transactions of statements from outside: isolation, visibility and ends.

use crate::cluster::three;
use crate::copies::{is_rebalancing, rebalance};
use crate::process::{PASSWORD, Server, USER};
use crate::queries::serving;
use nacre_conformance::http;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// How long a condition may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn ask_as(port_base: u16, user: &str, request: &Value) -> Value {
    let address = format!("127.0.0.1:{}", port_base + 2);
    let (auth, body) = (Some((user, PASSWORD)), request.to_string());
    let (path, json) = ("/query/service", "application/json");
    let answer = http::request(&address, "POST", path, auth, json, body.as_bytes());
    answer.unwrap().json().unwrap()
}

/// A statement outside of transactions that sees all that was written before.
fn rows(port_base: u16, statement: &str) -> Value {
    let request = json!({"statement": statement, "scan_consistency": "request_plus"});
    succeeded(&ask_as(port_base, USER, &request))
}

fn succeeded(answer: &Value) -> Value {
    assert_eq!(answer["status"], "success", "{answer}");
    answer["results"].clone()
}

fn code(answer: &Value) -> u64 {
    answer["errors"][0]["code"].as_u64().unwrap_or_else(|| panic!("no error: {answer}"))
}

/// A transaction by its id, and where it is.
struct Transaction {
    port_base: u16,
    id: String,
}

impl Transaction {
    fn begin(port_base: u16) -> Transaction {
        let begin = json!({"statement": "BEGIN WORK", "txtimeout": "120s"});
        let begun = succeeded(&ask_as(port_base, USER, &begin));
        Transaction { port_base, id: begun[0]["txid"].as_str().unwrap().into() }
    }

    fn ask(&self, statement: &str) -> Value {
        ask_as(self.port_base, USER, &json!({"statement": statement, "txid": self.id}))
    }

    fn rows(&self, statement: &str) -> Value {
        succeeded(&self.ask(statement))
    }
}

/// A node with documents `k0` to `k9`, whose `n` has an index.
fn node_with_documents(directory: &std::path::Path) -> Server {
    let server = serving(directory);
    fill(server.port_base, "default");
    server
}

fn fill(port_base: u16, bucket: &str) {
    let values: Vec<String> =
        (0..10).map(|n| format!("VALUES ('k{n}', {{'n': {n}, 'tags': ['t{n}']}})")).collect();
    rows(port_base, &format!("INSERT INTO {bucket} {}", values.join(", ")));
    rows(port_base, &format!("CREATE INDEX by_n ON {bucket}(n)"));
    rows(
        port_base,
        &format!("CREATE INDEX by_tag ON {bucket}(DISTINCT ARRAY t FOR t IN tags END)"),
    );
    rows(port_base, &format!("CREATE INDEX large ON {bucket}(n DESC) WHERE n > 100"));
}

/// Checks all ways to documents of the bucket, with the changes of [`change`].
fn check_changed(rows: &dyn Fn(&str) -> Value, bucket: &str) {
    let all = [0, 2, 4, 5, 6, 7, 8, 9, 30, 100, 200];
    for (statement, expected) in [
        ("SELECT RAW n FROM b WHERE n >= 0 ORDER BY n", json!(all)),
        ("SELECT RAW n FROM b WHERE n >= 0 ORDER BY n DESC LIMIT 3", json!([200, 100, 30])),
        ("SELECT RAW n FROM b WHERE n >= 0 ORDER BY n OFFSET 7 LIMIT 2", json!([9, 30])),
        (
            "SELECT RAW META(d).id FROM b AS d WHERE n BETWEEN 25 AND 150 ORDER BY n",
            json!(["k3", "a"]),
        ),
        ("SELECT RAW META(d).id FROM b AS d WHERE n = 1 OR n = 3", json!([])),
        ("SELECT RAW META(d).id FROM b AS d WHERE n > 100", json!(["z"])),
        ("SELECT RAW COUNT(*) FROM b", json!([all.len()])),
        (
            "SELECT RAW META(d).id FROM b AS d WHERE ANY t IN tags SATISFIES t IN ['t1', 't3', 'new'] END ORDER BY META(d).id",
            json!(["k3", "z"]),
        ),
        (
            "SELECT RAW META(d).id FROM b AS d USE KEYS ['k1', 'k2', 'k3', 'z']",
            json!(["k2", "k3", "z"]),
        ),
        ("SELECT RAW SUM(d.n) FROM b AS d", json!([all.iter().sum::<i32>()])),
        ("SELECT RAW x.n FROM b AS y JOIN b AS x ON x.n = y.n + 100 WHERE y.n = 100", json!([200])),
    ] {
        let statement = statement.replace("FROM b", &format!("FROM {bucket}"));
        let statement = statement.replace("JOIN b", &format!("JOIN {bucket}"));
        assert_eq!(rows(&statement), expected, "{statement}");
    }
}

fn change(rows: &dyn Fn(&str) -> Value, bucket: &str) {
    for statement in [
        "INSERT INTO b VALUES ('a', {'n': 100, 'tags': []}), VALUES ('z', {'n': 200, 'tags': ['new']})",
        "DELETE FROM b WHERE n = 1",
        "UPDATE b SET n = 30 WHERE n = 3",
        "INSERT INTO b VALUES ('gone', {'n': 500})",
        "DELETE FROM b WHERE n = 500",
    ] {
        rows(&statement.replace(" b ", &format!(" {bucket} ")));
    }
}

#[test]
fn a_transaction_sees_what_it_has_changed_and_others_do_once_it_commits() {
    let directory = tempfile::tempdir().unwrap();
    let server = node_with_documents(directory.path());
    let outside = |statement: &str| rows(server.port_base, statement);
    let transaction = Transaction::begin(server.port_base);
    let inside = |statement: &str| transaction.rows(statement);
    change(&inside, "default");
    check_changed(&inside, "default");
    let before = json!([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(outside("SELECT RAW n FROM default WHERE n >= 0 ORDER BY n"), before);
    assert_eq!(
        outside("SELECT RAW numStmts FROM system:transactions").as_array().unwrap().len(),
        1
    );
    transaction.rows("COMMIT TRANSACTION");
    check_changed(&outside, "default");
    assert_eq!(outside("SELECT * FROM system:transactions"), json!([]));
    assert_eq!(code(&transaction.ask("COMMIT")), 17004);
}

#[test]
fn a_change_that_preserves_the_expiry_does_so_within_a_transaction_and_without() {
    let directory = tempfile::tempdir().unwrap();
    let server = node_with_documents(directory.path());
    let outside = |statement: &str| rows(server.port_base, statement);
    let keep = |transaction: Option<&Transaction>, statement: &str| {
        let mut request = json!({"statement": statement, "preserve_expiry": true});
        if let Some(transaction) = transaction {
            request["txid"] = transaction.id.clone().into();
        }
        succeeded(&ask_as(server.port_base, USER, &request));
    };
    let insert = "INSERT INTO default VALUES ('k', {'n': 1}, {'expiration': 6000})";
    let changes = ["UPDATE default USE KEYS 'k' SET n = 2", "UPSERT INTO default VALUES ('k', {})"];
    for within in [false, true] {
        for change in changes {
            let transaction = within.then(|| Transaction::begin(server.port_base));
            match &transaction {
                Some(transaction) => transaction.rows(insert),
                None => outside(insert),
            };
            keep(transaction.as_ref(), change);
            if let Some(transaction) = &transaction {
                transaction.rows("COMMIT");
            }
            let left = "SELECT RAW META().expiration > 0 FROM default USE KEYS 'k'";
            assert_eq!(outside(left), json!([true]), "{change}, in a transaction: {within}");
            outside("UPDATE default USE KEYS 'k' SET n = 3");
            assert_eq!(outside(left), json!([false]), "what says nothing of it takes it away");
            outside("DELETE FROM default USE KEYS 'k'");
        }
    }
}

#[test]
fn transactions_of_any_node_change_documents_of_all() {
    let nodes = three();
    nodes[0].succeed(
        "POST",
        "/pools/default/buckets",
        "name=spread&ramQuotaMB=100&replicaNumber=1",
    );
    rebalance(&nodes, &[]);
    nodes[0].wait_until("the rebalance", |node| !is_rebalancing(node));
    let base = nodes[1].port_base;
    fill(base, "spread");
    let transaction = Transaction::begin(base);
    let inside = |statement: &str| transaction.rows(statement);
    change(&inside, "spread");
    check_changed(&inside, "spread");
    let elsewhere = json!({"statement": "COMMIT", "txid": transaction.id});
    assert_eq!(
        code(&ask_as(nodes[2].port_base, USER, &elsewhere)),
        17004,
        "it is kept by one node"
    );
    transaction.rows("COMMIT");
    for node in &nodes {
        check_changed(&|statement| rows(node.port_base, statement), "spread");
    }
}

#[test]
fn of_two_transactions_that_change_a_document_one_commits() {
    let directory = tempfile::tempdir().unwrap();
    let server = node_with_documents(directory.path());
    let [one, other] = [Transaction::begin(server.port_base), Transaction::begin(server.port_base)];
    for (transaction, n) in [(&one, 11), (&other, 12)] {
        transaction.rows(&format!("UPDATE default USE KEYS ['k1', 'k2'] SET n = {n}"));
    }
    one.rows("COMMIT");
    let refused = other.ask("COMMIT");
    assert_eq!(code(&refused), 17007, "{refused}");
    let cause = &refused["errors"][0]["cause"];
    assert_eq!(
        (&cause["retry"], &cause["rollback"], &cause["raise"]),
        (&json!(true), &json!(false), &json!("failed"))
    );
    assert!(
        refused["errors"][0].get("retry").is_none(),
        "the statement alone is not to be sent again"
    );
    let both = "SELECT RAW n FROM default USE KEYS ['k1', 'k2']";
    assert_eq!(rows(server.port_base, both), json!([11, 11]));
}

#[test]
fn a_statement_that_fails_leaves_its_transaction_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let server = node_with_documents(directory.path());
    let transaction = Transaction::begin(server.port_base);
    transaction.rows("INSERT INTO default VALUES ('a', {})");
    let twice = "INSERT INTO default VALUES ('b', {}), VALUES ('k1', {})";
    assert_eq!(code(&transaction.ask(twice)), 17012);
    transaction.rows("SAVEPOINT s");
    transaction.rows("DELETE FROM default");
    assert_eq!(transaction.rows("SELECT RAW COUNT(*) FROM default"), json!([0]));
    transaction.rows("ROLLBACK TRANSACTION TO SAVEPOINT s");
    assert_eq!(code(&transaction.ask("ROLLBACK TO SAVEPOINT t")), 17009);
    transaction.rows("COMMIT");
    let ids = "SELECT RAW COUNT(*) FROM default USE KEYS ['a', 'b', 'k1']";
    assert_eq!(rows(server.port_base, ids), json!([2]));
    let dropped = Transaction::begin(server.port_base);
    dropped.rows("DELETE FROM default");
    dropped.rows("ROLLBACK WORK");
    assert_eq!(rows(server.port_base, "SELECT RAW COUNT(*) FROM default"), json!([11]));
}

#[test]
fn a_statement_may_be_a_transaction_by_itself() {
    let directory = tempfile::tempdir().unwrap();
    let server = node_with_documents(directory.path());
    let alone = |statement: &str| {
        let request =
            json!({"statement": statement, "tximplicit": true, "durability_level": "none"});
        ask_as(server.port_base, USER, &request)
    };
    let insert = "INSERT INTO default VALUES ('a', {}), VALUES ('b', {}) RETURNING RAW META().id";
    let answer = alone(insert);
    assert_eq!(
        (succeeded(&answer), &answer["metrics"]["mutationCount"]),
        (json!(["a", "b"]), &json!(2))
    );
    let half = "INSERT INTO default VALUES ('c', {}), VALUES ('a', {})";
    assert_eq!(code(&alone(half)), 17012);
    assert_eq!(
        succeeded(&alone("SELECT RAW COUNT(*) FROM default USE KEYS ['a', 'b', 'c']")),
        json!([2])
    );
    assert_eq!(rows(server.port_base, "SELECT * FROM system:transactions"), json!([]));
}

#[test]
fn a_transaction_ends_with_its_time_and_with_its_node() {
    let directory = tempfile::tempdir().unwrap();
    let server = node_with_documents(directory.path());
    let begin = json!({"statement": "START TRANSACTION", "txtimeout": "200ms"});
    let begun = succeeded(&ask_as(server.port_base, USER, &begin));
    let id = begun[0]["txid"].as_str().unwrap().to_owned();
    let short = Transaction { port_base: server.port_base, id };
    let until = Instant::now() + PATIENCE;
    let late = loop {
        let answer = short.ask("DELETE FROM default");
        if answer["status"] != "success" {
            break answer;
        }
        assert!(Instant::now() < until, "it lasts too long");
    };
    assert_eq!((code(&late), &late["errors"][0]["cause"]["raise"]), (17010, &json!("expired")));
    assert_eq!(code(&short.ask("COMMIT")), 17010);
    let lost = Transaction::begin(server.port_base);
    lost.rows("DELETE FROM default");
    server.kill();
    let server = serving(directory.path());
    assert_eq!(rows(server.port_base, "SELECT RAW COUNT(*) FROM default"), json!([10]));
    let lost = Transaction { port_base: server.port_base, ..lost };
    assert_eq!(code(&lost.ask("COMMIT")), 17004);
}

#[test]
fn a_transaction_is_limited_to_allowed_statements_and_the_rights_of_its_user() {
    let directory = tempfile::tempdir().unwrap();
    let server = node_with_documents(directory.path());
    let transaction = Transaction::begin(server.port_base);
    for (statement, expected) in [
        ("CREATE INDEX i ON default(x)", 17002),
        ("DROP INDEX by_n ON default", 17002),
        ("CREATE SCOPE default.s", 17002),
        ("INFER default", 17002),
        ("BEGIN WORK", 17002),
        ("EXECUTE __get", 5010),
        ("EXECUTE __nothing", 4040),
        ("SELEC", 3000),
    ] {
        assert_eq!(code(&transaction.ask(statement)), expected, "{statement}");
    }
    transaction.rows("SET TRANSACTION ISOLATION LEVEL READ COMMITTED");
    for statement in ["COMMIT", "ROLLBACK", "SAVEPOINT s", "ROLLBACK TO SAVEPOINT s"] {
        let outside = ask_as(server.port_base, USER, &json!({"statement": statement}));
        assert_eq!(code(&outside), 17002, "{statement}");
    }
    for (name, value, expected) in [
        ("txid", json!("nobody's"), 17004),
        ("txid", json!(7), 1070),
        ("tximplicit", json!("yes"), 1070),
        ("txtimeout", json!("soon"), 1040),
        ("txdata", json!("x"), 1070),
        ("durability_level", json!("a little"), 1030),
    ] {
        let request = json!({"statement": "SELECT 1", name: value});
        assert_eq!(code(&ask_as(server.port_base, USER, &request)), expected, "{name}");
    }
    for (name, value) in [
        ("atrcollection", json!("a.b")),
        ("txdata", json!({"id": {"txn": "t", "atmpt": "a.b"}})),
        ("txdata", json!({"id": {"txn": "t", "atmpt": "a"}, "mutations": [{"id": "k1"}]})),
    ] {
        let request = json!({"statement": "BEGIN WORK", name: value});
        assert_eq!(code(&ask_as(server.port_base, USER, &request)), 17006, "{name}");
    }
    let user = format!("password={PASSWORD}&roles=query_select[default]");
    assert_eq!(server.rest("PUT", "/settings/rbac/users/local/ann", &user).unwrap().status, 200);
    let as_ann = |request: Value| ask_as(server.port_base, "ann", &request);
    assert_eq!(code(&as_ann(json!({"statement": "COMMIT", "txid": transaction.id}))), 17004);
    assert_eq!(
        succeeded(&as_ann(json!({"statement": "SELECT * FROM system:transactions"}))),
        json!([])
    );
    let begun = succeeded(&as_ann(json!({"statement": "BEGIN WORK"})));
    let id = &begun[0]["txid"];
    assert_eq!(code(&as_ann(json!({"statement": "DELETE FROM default", "txid": id}))), 13014);
    succeeded(&as_ann(json!({"statement": "SELECT * FROM default", "txid": id})));
    succeeded(&as_ann(json!({"statement": "COMMIT", "txid": id})));
}
