//! SQL++ over the documents of a database.

use crate::by_hand;
use nacre::{Db, Error, MutateIn, Mutation, Options, QueryOptions, Write};
use serde_json::{Value, json};
use std::time::Duration;

fn shop() -> QueryOptions {
    QueryOptions::new().scope("shop")
}

/// Opens a database with the orders of two customers.
fn orders() -> Db {
    let db = Db::open_with(":memory:", by_hand()).unwrap();
    let orders = db.collection("shop.orders").unwrap();
    for (key, customer, total) in [("o1", "ann", 30), ("o2", "bob", 5), ("o3", "ann", 12)] {
        let body = json!({"customer": customer, "total": total}).to_string();
        orders.upsert(key, body.as_bytes(), Write::new()).unwrap();
    }
    db
}

fn rows(db: &Db, statement: &str, options: &QueryOptions) -> Vec<Value> {
    let result =
        db.query(statement, options).unwrap_or_else(|error| panic!("{statement}: {error}"));
    result.rows.iter().map(|row| serde_json::from_str(row).unwrap()).collect()
}

fn code(db: &Db, statement: &str, options: &QueryOptions) -> u32 {
    match db.query(statement, options) {
        Err(Error::Query { code, message }) => {
            assert!(!message.is_empty());
            code
        }
        other => panic!("{statement}: {other:?}"),
    }
}

#[test]
fn statements_read_documents_by_condition_and_by_key() {
    let db = orders();
    let found = rows(
        &db,
        "SELECT META(o).id, o.total FROM orders o WHERE o.total > $1 ORDER BY o.total",
        &shop().argument("10"),
    );
    assert_eq!(found, [json!({"id": "o3", "total": 12}), json!({"id": "o1", "total": 30})]);
    let by_customer = "SELECT o.customer, SUM(o.total) AS total FROM orders o \
                       WHERE o.customer = $who GROUP BY o.customer";
    let found = rows(&db, by_customer, &shop().named("who", "\"ann\""));
    assert_eq!(found, [json!({"customer": "ann", "total": 42})]);
    let by_key = "SELECT RAW o.total FROM orders o USE KEYS [\"o2\", \"none\", \"o1\"]";
    assert_eq!(rows(&db, by_key, &shop()), [json!(5), json!(30)]);
    let pairs = "SELECT RAW COUNT(*) FROM orders a JOIN orders b ON a.customer = b.customer";
    assert_eq!(rows(&db, pairs, &shop()), [json!(5)]);
    let path = "SELECT RAW COUNT(*) FROM `default`.shop.orders";
    assert_eq!(rows(&db, path, &QueryOptions::new()), [json!(3)]);
    let long = format!("SELECT RAW o FROM orders o USE KEYS \"{}\"", "x".repeat(300));
    assert_eq!(rows(&db, &long, &shop()), Vec::<Value>::new());
}

#[test]
fn statements_change_documents() {
    let db = orders();
    let docs = db.find_collection("shop.orders").unwrap().unwrap();
    let insert =
        "INSERT INTO orders (KEY, VALUE) VALUES (\"o4\", {\"customer\": \"cid\", \"total\": 7})";
    assert_eq!(db.query(insert, &shop()).unwrap().mutation_count, 1);
    let stored: Value = serde_json::from_slice(docs.get("o4").unwrap().unwrap().body()).unwrap();
    assert_eq!(stored, json!({"customer": "cid", "total": 7}));
    assert!(matches!(db.query(insert, &shop()), Err(Error::Query { .. })), "it exists");

    let update =
        "UPDATE orders o SET o.paid = TRUE WHERE o.customer = \"ann\" RETURNING RAW META(o).id";
    let result = db.query(update, &shop()).unwrap();
    assert_eq!(result.mutation_count, 2);
    assert_eq!(result.rows.len(), 2);
    let paid = "SELECT RAW COUNT(*) FROM orders o WHERE o.paid";
    assert_eq!(rows(&db, paid, &shop()), [json!(2)]);

    let delete = "DELETE FROM orders o WHERE o.total < 10";
    assert_eq!(db.query(delete, &shop()).unwrap().mutation_count, 2);
    assert!(docs.get("o2").unwrap().is_none() && docs.get("o4").unwrap().is_none());
    assert!(docs.get("o3").unwrap().is_some());
}

#[test]
fn scopes_and_collections_are_created_and_dropped() {
    let db = orders();
    let run = |statement: &str| db.query(statement, &QueryOptions::new()).map(drop);
    run("CREATE SCOPE `default`.store").unwrap();
    run("CREATE COLLECTION `default`.store.goods").unwrap();
    run("CREATE COLLECTION `default`.store.goods IF NOT EXISTS").unwrap();
    assert!(matches!(
        run("CREATE COLLECTION `default`.store.goods"),
        Err(Error::Query { code: 12027, .. })
    ));
    assert!(db.find_collection("store.goods").unwrap().is_some());
    run("DROP COLLECTION `default`.store.goods").unwrap();
    run("DROP SCOPE `default`.store").unwrap();
    assert!(!db.scopes().contains(&"store".to_owned()));
}

#[test]
fn a_large_collection_is_read_in_pages() {
    let folder = tempfile::tempdir().unwrap();
    // Most values are in the folder only.
    let options = Options { quota_mib: 4, sync: nacre::Sync::Never, ..by_hand() };
    let db = Db::open_with(folder.path(), options).unwrap();
    let docs = db.collection("shop.orders").unwrap();
    for number in 0..3000 {
        let body = json!({"n": number, "text": "x".repeat(3000)}).to_string();
        docs.upsert(format!("o{number}"), body.as_bytes(), Write::new()).unwrap();
    }
    assert_eq!(rows(&db, "SELECT RAW SUM(o.n) FROM orders o", &shop()), [json!(4_498_500)]);
}

#[test]
fn documents_that_are_not_json_and_attributes_are_seen_as_by_the_server() {
    let db = orders();
    let docs = db.find_collection("shop.orders").unwrap().unwrap();
    docs.upsert("bytes", &[0, 159, 146, 150], Write::new()).unwrap();
    let binary = "SELECT RAW o FROM orders o USE KEYS \"bytes\"";
    assert_eq!(rows(&db, binary, &shop()), [json!("<binary (4 b)>")]);
    let owner = [Mutation::upsert("owner", br#""eve""#).xattr()];
    docs.mutate_in("o1", &owner, MutateIn::replace()).unwrap();
    let attribute = "SELECT RAW META(o).xattrs.owner FROM orders o USE KEYS \"o1\"";
    assert_eq!(rows(&db, attribute, &shop()), [json!("eve")]);
}

#[test]
fn statements_that_cannot_be_executed_are_refused_by_code() {
    let db = orders();
    for (statement, expected) in [
        ("SELECT FROM WHERE", 3000),
        ("SELECT * FROM nothing", 12003),
        ("SELECT * FROM other.shop.orders", 12003),
        ("PREPARE p AS SELECT 1", 1000),
        ("CREATE INDEX by_total ON orders(total)", 1001),
    ] {
        assert_eq!(code(&db, statement, &shop()), expected, "{statement}");
    }
    assert_eq!(code(&db, "SELECT * FROM orders", &QueryOptions::new().scope("none")), 12021);
    assert_eq!(code(&db, "DELETE FROM orders", &shop().readonly()), 1000);
    assert_eq!(rows(&db, "SELECT RAW COUNT(*) FROM orders", &shop()), [json!(3)]);
    let wrong = db.query("SELECT $1", &shop().argument("{")).map(drop);
    assert!(matches!(wrong, Err(Error::InvalidArgument(_))));
    let wrong = db.query("SELECT 1", &QueryOptions::new().scope("a`b")).map(drop);
    assert!(matches!(wrong, Err(Error::InvalidArgument(_))));
    db.close().unwrap();
    assert_eq!(db.query("SELECT 1", &shop()).map(drop), Err(Error::Closed));
}

#[test]
fn requests_of_sdks_are_answered_as_by_the_query_service() {
    let db = orders();
    let ask = |method: &str, body: Value| {
        let body = body.to_string();
        let (status, text) = db.manage(method, "/query/service", body.as_bytes()).unwrap();
        (status, serde_json::from_str::<Value>(&text).unwrap())
    };
    let (shop, none) = ("default:`default`.`shop`", "default:`default`.`none`");
    let (status, answer) = ask(
        "POST",
        json!({
            "statement": "SELECT RAW o.total FROM orders o WHERE o.customer = $who AND o.total > $1",
            "args": [20], "$who": "ann", "query_context": shop, "client_context_id": "c1",
            "scan_consistency": "request_plus", "scan_wait": "1s", "timeout": "60s",
        }),
    );
    assert_eq!((status, &answer["results"]), (200, &json!([30])), "{answer}");
    assert_eq!(answer["status"], "success");
    assert_eq!((&answer["clientContextID"], answer.get("errors")), (&json!("c1"), None));
    assert_eq!(answer["metrics"]["resultCount"], 1);
    // A statement that is prepared and executed at once.
    let update = "PREPARE UPDATE orders o SET o.paid = TRUE WHERE o.total = 5 RETURNING o.paid";
    let (status, answer) =
        ask("POST", json!({"statement": update, "auto_execute": true, "query_context": shop}));
    assert_eq!((status, &answer["results"]), (200, &json!([{"paid": true}])), "{answer}");
    assert_eq!((&answer["metrics"]["mutationCount"], answer.get("prepared")), (&json!(1), None));
    for (method, body, expected_status, expected_code) in [
        ("POST", json!({"statement": "SELECT FROM"}), 400, 3000),
        ("POST", json!({"statement": "SELECT 1 FROM nothing", "query_context": shop}), 424, 12003),
        ("POST", json!({"statement": "SELECT 1 FROM orders", "query_context": none}), 404, 12021),
        ("POST", json!({"statement": "SELECT 1", "speed": 1}), 400, 1065),
        ("POST", json!({"query_context": shop}), 400, 1050),
        ("POST", json!({"prepared": "p"}), 404, 4040),
        ("POST", json!({"statement": "BEGIN WORK"}), 403, 1000),
        ("POST", json!([]), 400, 1040),
        ("GET", json!({"statement": "SELECT 1"}), 405, 1010),
    ] {
        let (status, answer) = ask(method, body);
        let code = answer["errors"][0]["code"].as_u64().unwrap_or(0);
        assert_eq!((status, code), (expected_status, expected_code), "{answer}");
    }
    let slow = "SELECT COUNT(*) FROM ARRAY_RANGE(0, 3000) AS i, ARRAY_RANGE(0, 3000) AS j";
    let (status, answer) = ask("POST", json!({"statement": slow, "timeout": "1ms"}));
    assert_eq!((status, &answer["errors"][0]["code"]), (200, &json!(1080)), "{answer}");
    assert_eq!(answer["status"], "timeout");
    let read = json!({"statement": "DELETE FROM orders", "readonly": true, "query_context": shop});
    assert_eq!(ask("POST", read).0, 403);
    assert_eq!(
        rows(&db, "SELECT RAW COUNT(*) FROM orders", &QueryOptions::new().scope("shop")),
        [json!(3)]
    );
    db.close().unwrap();
    assert_eq!(db.manage("POST", "/query/service", b"{}"), Err(Error::Closed));
}

#[test]
fn a_request_returns_the_body_of_an_answer_or_an_error() {
    let db = orders();
    let shop = r#"{"query_context": "default:default.shop", "args": ["bob"]}"#;
    let text = db.query_request("SELECT RAW o.total FROM orders o WHERE o.customer = $1", shop);
    let answer: Value = serde_json::from_str(&text.unwrap()).unwrap();
    assert_eq!((&answer["results"], &answer["status"]), (&json!([5]), &json!("success")));
    for (statement, parameters, expected) in [
        ("SELECT FROM", "{}", 3000),
        ("SELECT 1", "[", 1040),
        ("SELECT 1", r#"{"speed": 1}"#, 1065),
        ("DELETE FROM orders", r#"{"readonly": true}"#, 1000),
    ] {
        let refused = db.query_request(statement, parameters);
        let Err(Error::Query { code, message }) = refused else { panic!("{refused:?}") };
        assert_eq!(code, expected, "{statement} {parameters}: {message}");
    }
    db.close().unwrap();
    assert_eq!(db.query_request("SELECT 1", "{}"), Err(Error::Closed));
}

#[test]
fn a_query_ends_at_its_timeout_and_within_its_memory() {
    let db = orders();
    let docs = db.find_collection("shop.orders").unwrap().unwrap();
    for number in 0..400 {
        let body = json!({"text": "x".repeat(5000), "n": number}).to_string();
        docs.upsert(format!("k{number}"), body.as_bytes(), Write::new()).unwrap();
    }
    let all = "SELECT RAW o.n FROM orders o";
    assert_eq!(code(&db, all, &shop().timeout(Duration::ZERO)), 1080);
    let joined = "SELECT ARRAY_AGG(o.text || TO_STRING(o.n)) AS texts FROM orders o";
    assert_eq!(code(&db, joined, &shop().memory_mib(1)), 5500);
    assert_eq!(rows(&db, joined, &shop().memory_mib(0)).len(), 1);
}
