//! Views: each option of a query, rows in step with the documents, definitions that are kept or refused.

use crate::{by_hand, open};
use nacre::{Collection, Db, Error, Stale, ViewQuery, Write};
use serde_json::{Value, json};
use std::time::Duration;

const TOTALS: &str = r#"{"collection": "shop.orders", "views": {
    "totals": {"map": "function (doc, meta) { emit(doc.customer, doc.total); }", "reduce": "_sum"},
    "days": {"map": "function (doc, meta) { emit([doc.year, doc.month], doc.total); }", "reduce": "_count"},
    "letters": {"map": "function (doc, meta) { doc.customer.split('').forEach(function (c) { emit(c, null); }); }"},
    "most": {"map": "function (doc, meta) { emit(doc.customer, doc.total); }",
             "reduce": "function (keys, values, rereduce) { return Math.max.apply(null, values); }"}
}}"#;

fn put(orders: &Collection, id: &str, customer: &str, total: u32, month: u32) {
    let body = json!({"customer": customer, "total": total, "year": 2026, "month": month});
    orders.upsert(id, body.to_string().as_bytes(), Write::new()).unwrap();
}

/// Returns a database with four orders and their views.
fn shop() -> (Db, Collection) {
    let db = Db::open_with(":memory:", by_hand()).unwrap();
    let orders = db.collection("shop.orders").unwrap();
    for (id, customer, total, month) in
        [("o1", "ann", 30, 1), ("o2", "bob", 5, 1), ("o3", "ann", 12, 2), ("o4", "cid", 7, 3)]
    {
        put(&orders, id, customer, total, month);
    }
    db.put_design_document("orders", TOTALS).unwrap();
    (db, orders)
}

fn answer(db: &Db, view: &str, query: &ViewQuery) -> Value {
    serde_json::from_slice(&db.query_view("orders", view, query).unwrap()).unwrap()
}

fn rows(db: &Db, view: &str, query: &ViewQuery) -> Value {
    answer(db, view, query)["rows"].clone()
}

/// Returns the document IDs of the rows.
fn ids(db: &Db, view: &str, query: ViewQuery) -> String {
    let rows = rows(db, view, &query.reduce(false));
    let ids = rows.as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap());
    ids.collect::<Vec<_>>().join(" ")
}

#[test]
fn each_option_of_a_query_has_its_effect() {
    let (db, _) = shop();
    let query = ViewQuery::new;
    let all = answer(&db, "totals", &query().reduce(false));
    assert_eq!(all["total_rows"], 4);
    assert_eq!(all["rows"][0], json!({"id": "o1", "key": "ann", "value": 30}));
    assert_eq!(ids(&db, "totals", query()), "o1 o3 o2 o4");
    assert_eq!(ids(&db, "totals", query().key("\"ann\"")), "o1 o3");
    assert_eq!(ids(&db, "totals", query().keys("[\"cid\", \"bob\"]")), "o4 o2");
    let to_bob = query().start_key("\"ann\"").end_key("\"bob\"");
    assert_eq!(ids(&db, "totals", to_bob.clone()), "o1 o3 o2");
    assert_eq!(ids(&db, "totals", to_bob.inclusive_end(false)), "o1 o3");
    assert_eq!(ids(&db, "totals", query().start_key("\"ann\"").start_id("o2")), "o3 o2 o4");
    assert_eq!(ids(&db, "totals", query().end_key("\"ann\"").end_id("o1")), "o1");
    assert_eq!(ids(&db, "totals", query().descending(true)), "o4 o2 o3 o1");
    assert_eq!(ids(&db, "totals", query().skip(1).limit(2)), "o3 o2");
    assert_eq!(ids(&db, "totals", query().limit(0)), "");
    assert_eq!(rows(&db, "totals", &query()), json!([{"key": null, "value": 54}]));
    let by_customer = json!([
        {"key": "ann", "value": 42}, {"key": "bob", "value": 5}, {"key": "cid", "value": 7},
    ]);
    assert_eq!(rows(&db, "totals", &query().group(true)), by_customer);
    assert_eq!(rows(&db, "days", &query().group_level(1)), json!([{"key": [2026], "value": 4}]));
    assert_eq!(
        rows(&db, "days", &query().group_level(2))[0],
        json!({"key": [2026, 1], "value": 2})
    );
    let of_url = ViewQuery::from_parameters("group=true&skip=1&limit=1").unwrap();
    assert_eq!(rows(&db, "totals", &of_url), json!([{"key": "bob", "value": 5}]));
}

#[test]
fn functions_that_need_the_engine_run_in_it_on_any_thread() {
    let (db, orders) = shop();
    assert_eq!(rows(&db, "letters", &ViewQuery::new()).as_array().unwrap().len(), 12);
    let most = |db: &Db| rows(db, "most", &ViewQuery::new())[0]["value"].clone();
    assert_eq!(most(&db), 30);
    put(&orders, "o5", "dan", 99, 4);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| most(&db));
        assert_eq!(other.join().unwrap(), 99);
    });
    orders.remove("o5", Write::new()).unwrap();
    assert_eq!(most(&db), 30);
}

#[test]
fn functions_may_log_without_an_effect() {
    let (db, _) = shop();
    let talking = r#"{"views": {"v": {"map": "function (doc, meta) { log('seen', meta.id); emit(meta.id, null); }"}}}"#;
    db.put_design_document("talking", talking).unwrap();
    db.default_collection().upsert("d", b"{}", Write::new()).unwrap();
    let body = db.query_view("talking", "v", &ViewQuery::new()).unwrap();
    let answer: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(answer["total_rows"], 1);
    assert_eq!(nacre_plugin::testing::take_log(), [""; 0], "the lines are not kept");
}

#[test]
fn stale_says_when_the_rows_are_brought_up_to_date() {
    let (db, orders) = shop();
    let total =
        |stale| rows(&db, "totals", &ViewQuery::new().stale(stale))[0]["value"].as_u64().unwrap();
    assert_eq!(total(Stale::Ok), 54, "the first query builds the rows");
    put(&orders, "o5", "ann", 100, 4);
    assert_eq!(total(Stale::Ok), 54);
    db.put_design_document("orders", TOTALS).unwrap();
    assert_eq!(total(Stale::Ok), 54, "the same text keeps the rows");
    assert_eq!(total(Stale::UpdateAfter), 54);
    assert_eq!(total(Stale::Ok), 154);
    put(&orders, "o6", "ann", 1000, 4);
    assert_eq!(total(Stale::False), 1154);
    orders.remove("o6", Write::new()).unwrap();
    db.update_views().unwrap();
    assert_eq!(total(Stale::Ok), 154);
}

#[test]
fn rows_are_built_again_when_the_folder_is_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let db = open(folder.path(), &by_hand());
    let orders = db.collection("shop.orders").unwrap();
    put(&orders, "o1", "ann", 30, 1);
    db.put_design_document("orders", TOTALS).unwrap();
    assert_eq!(rows(&db, "totals", &ViewQuery::new())[0]["value"], 30);
    put(&orders, "o2", "ann", 12, 1);
    db.close().unwrap();
    let closed = db.query_view("orders", "totals", &ViewQuery::new());
    assert_eq!(closed, Err(Error::Closed));
    drop((orders, db));
    let db = open(folder.path(), &by_hand());
    assert_eq!(db.design_documents(), ["orders"]);
    assert_eq!(db.design_document("orders").unwrap().as_deref(), Some(TOTALS));
    let now = ViewQuery::new().stale(Stale::Ok);
    assert_eq!(rows(&db, "totals", &now)[0]["value"], 42);
    db.drop_design_document("orders").unwrap();
    drop(db);
    let db = open(folder.path(), &by_hand());
    assert_eq!(db.design_documents(), [""; 0]);
    assert_eq!(db.drop_design_document("orders"), Err(Error::ViewNotFound("orders".into())));
}

#[test]
fn a_database_closes_with_its_last_handle_although_views_read_its_history() {
    let folder = tempfile::tempdir().unwrap();
    let db = open(folder.path(), &by_hand());
    db.collection("shop.orders").unwrap();
    db.put_design_document("orders", TOTALS).unwrap();
    assert_eq!(ids(&db, "totals", ViewQuery::new()), "");
    drop(db);
    // Otherwise, the folder would still be locked.
    open(folder.path(), &by_hand()).close().unwrap();
}

#[test]
fn another_definition_has_other_rows_and_a_dropped_collection_has_no_rows() {
    let (db, _) = shop();
    assert_eq!(rows(&db, "totals", &ViewQuery::new())[0]["value"], 54);
    let other =
        r#"{"views": {"totals": {"map": "function (doc, meta) { emit(meta.id, null); }"}}}"#;
    db.put_design_document("orders", other).unwrap();
    db.default_collection().upsert("d", b"{}", Write::new()).unwrap();
    assert_eq!(ids(&db, "totals", ViewQuery::new()), "d", "rows of the default collection");
    db.put_design_document("orders", TOTALS).unwrap();
    assert_eq!(rows(&db, "totals", &ViewQuery::new())[0]["value"], 54);
    db.drop_collection("shop", "orders").unwrap();
    for _ in 0..2 {
        let dropped = db.query_view("orders", "totals", &ViewQuery::new());
        assert!(matches!(dropped, Err(Error::CollectionNotFound(_))), "{dropped:?}");
    }
    assert!(matches!(db.update_views(), Err(Error::CollectionNotFound(_))));
    let orders = db.collection("shop.orders").unwrap();
    put(&orders, "o1", "ann", 1, 1);
    assert_eq!(rows(&db, "totals", &ViewQuery::new())[0]["value"], 1);
}

#[test]
fn invalid_designs_and_queries_are_refused_by_name() {
    let db = Db::open_with(":memory:", by_hand()).unwrap();
    for (design, what) in [
        ("[]", "object"),
        ("{", "not JSON"),
        (r#"{"views": {"v": {}}}"#, "no function map"),
        (r#"{"views": {"v": {"map": "function ("}}}"#, "map of view"),
        (r#"{"views": {"v": {"map": "function (d) {}", "redcue": "_sum"}}}"#, "redcue"),
        (r#"{"collection": "no.where", "views": {}}"#, "there is no collection"),
        (r#"{"collection": 7, "views": {}}"#, "scope.collection"),
    ] {
        let refused = db.put_design_document("d", design).unwrap_err();
        assert!(matches!(refused, Error::InvalidArgument(_)), "{design}: {refused:?}");
        assert!(refused.to_string().contains(what), "{design}: {refused}");
    }
    let long = "x".repeat(241);
    for name in ["", " ", "a\nb", long.as_str()] {
        let refused = db.put_design_document(name, r#"{"views": {}}"#);
        assert!(matches!(refused, Err(Error::InvalidArgument(_))), "{name:?}: {refused:?}");
    }
    assert_eq!(db.design_documents(), [""; 0]);
    let design = r#"{"views": {"v": {"map": "function (doc, meta) { for (;;) {} }"}, "w": {"map": "function (doc, meta) { emit(1, 1); }"}}}"#;
    db.put_design_document("d", design).unwrap();
    db.default_collection().upsert("a", b"{}", Write::new()).unwrap();
    let count = |view| {
        let body = db.query_view("d", view, &ViewQuery::new()).unwrap();
        let answer: Value = serde_json::from_slice(&body).unwrap();
        answer["rows"].as_array().unwrap().len()
    };
    assert_eq!(count("v"), 0, "a function that does not end has no rows");
    assert_eq!(count("w"), 1);
    for (design, view) in [("d", "none"), ("none", "v")] {
        let missing = db.query_view(design, view, &ViewQuery::new());
        assert!(matches!(missing, Err(Error::ViewNotFound(_))), "{missing:?}");
    }
    for wrong in [
        ViewQuery::new().key("{nope"),
        ViewQuery::new().keys("1"),
        ViewQuery::new().reduce(true),
        ViewQuery::new().start_key("2").end_key("1"),
    ] {
        let refused = db.query_view("d", "w", &wrong);
        assert!(matches!(refused, Err(Error::InvalidArgument(_))), "{wrong:?}: {refused:?}");
    }
    assert!(matches!(ViewQuery::from_parameters("stale=no"), Err(Error::InvalidArgument(_))));
    let name = |number: u32| format!("d{number}");
    for number in 1..64 {
        db.put_design_document(&name(number), r#"{"views": {}}"#).unwrap();
    }
    let refused = db.put_design_document("one more", r#"{"views": {}}"#).unwrap_err();
    assert!(refused.to_string().contains("64 design documents at most"), "{refused}");
    db.put_design_document("d", r#"{"views": {}}"#).unwrap();
}

#[test]
fn a_query_ends_after_its_timeout_and_the_next_one_continues() {
    let (db, orders) = shop();
    for number in 0..600 {
        put(&orders, &format!("more{number}"), "ann", 1, 5);
    }
    let hasty = ViewQuery::new().timeout(Duration::ZERO);
    // The time is over after the first batch.
    let late = db.query_view("orders", "totals", &hasty);
    assert_eq!(late, Err(Error::ViewsNotReady));
    assert!(Error::ViewsNotReady.is_retryable());
    assert_eq!(rows(&db, "totals", &ViewQuery::new())[0]["value"], 654);
}

#[test]
fn requests_of_sdks_about_views_are_answered_as_by_a_node() {
    let (db, _) = shop();
    let ask = |method: &str, path: &str, body: &str| {
        let (status, text) = db.manage(method, path, body.as_bytes()).unwrap();
        (status, serde_json::from_str::<Value>(&text).unwrap())
    };
    let listed = ask("GET", "/pools/default/buckets/default/ddocs", "");
    let document: Value = serde_json::from_str(TOTALS).unwrap();
    let meta = json!({"id": "_design/orders", "rev": "1-0"});
    assert_eq!(listed, (200, json!({"rows": [{"doc": {"meta": meta, "json": document}}]})));
    let path = "/default/_design/a%2Fb";
    let design = r#"{"views": {"ids": {"map": "function (doc, meta) { emit(meta.id, null); }"}}}"#;
    assert_eq!(ask("PUT", path, design), (201, json!({"ok": true, "id": "_design/a/b"})));
    assert_eq!(ask("GET", path, "").1, serde_json::from_str::<Value>(design).unwrap());
    let view = format!("{path}/_view/ids");
    assert_eq!(ask("GET", &view, ""), (200, json!({"total_rows": 0, "rows": []})));
    db.default_collection().upsert("k", b"{}", Write::new()).unwrap();
    assert_eq!(ask("GET", &format!("{view}?stale=ok"), "").1["rows"], json!([]));
    let posted = ask("POST", &format!("{view}?stale=false"), r#"{"keys": ["k"]}"#);
    assert_eq!(posted.1["rows"], json!([{"id": "k", "key": "k", "value": null}]));
    for (method, path, body, status, error) in [
        ("GET", "/default/_design/none", "", 404, "not_found"),
        ("GET", "/default/_design/none/_view/v", "", 404, "not_found"),
        ("GET", "/default/_design/a%2Fb/_view/none", "", 404, "not_found"),
        ("GET", "/default/_design/a%2Fb/_view/ids?limit=x", "", 400, "query_parse_error"),
        ("GET", "/default/_design/a%2Fb/_view/ids?stale=no", "", 400, "query_parse_error"),
        ("PUT", path, "[]", 400, "invalid_design_document"),
        ("PATCH", path, "", 405, "method_not_allowed"),
        ("PUT", "/default/_design/a%2Fb/_view/ids", "", 405, "method_not_allowed"),
    ] {
        let (found, answer) = ask(method, path, body);
        assert_eq!((found, &answer["error"]), (status, &json!(error)), "{method} {path}: {answer}");
    }
    assert_eq!(ask("DELETE", path, "").0, 200);
    assert_eq!(ask("DELETE", path, "").0, 404);
    assert_eq!(ask("GET", "/other/_design/a", "").0, 404);
}
