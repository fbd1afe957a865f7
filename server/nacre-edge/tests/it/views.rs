//! Views: rows in step with the documents, across restarts; invalid definitions.

use crate::gateway::{DOCUMENTS, Gateway, login};
use serde_json::{Value, json};

const DESIGN: &str = "/default/_design/orders";

fn put(gateway: &Gateway, id: &str, body: &Value) {
    assert_eq!(gateway.ask("PUT", &format!("{DOCUMENTS}/{id}"), &body.to_string()).status, 200);
}

fn define(gateway: &Gateway, design: &Value) -> (u16, Value) {
    let headers = format!("{}Content-Type: application/json\r\n", login());
    let answer = gateway.send("PUT", DESIGN, &headers, &design.to_string());
    (answer.status, answer.json())
}

fn rows(gateway: &Gateway, query: &str) -> Value {
    let answer = gateway.ask("GET", &format!("{DESIGN}/_view/{query}"), "");
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["rows"].clone()
}

fn by_customer() -> Value {
    json!({"views": {
        "totals": {"map": "function (doc, meta) { emit(doc.customer, doc.total); }", "reduce": "_sum"},
        // A function that needs the engine.
        "words": {"map": "function (doc, meta) { doc.customer.split('').forEach(function (c) { emit(c, null); }); }"},
    }})
}

#[test]
fn rows_follow_the_documents_and_survive_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path(), &["--durability", "always"]);
    put(&gateway, "o1", &json!({"customer": "ann", "total": 30}));
    let (status, answer) = define(&gateway, &by_customer());
    assert_eq!((status, &answer["id"]), (201, &json!("_design/orders")), "{answer}");
    put(&gateway, "o2", &json!({"customer": "bob", "total": 5}));
    put(&gateway, "o3", &json!({"customer": "ann", "total": 12}));
    let sums = json!([{"key": "ann", "value": 42}, {"key": "bob", "value": 5}]);
    assert_eq!(rows(&gateway, "totals?group=true"), sums);
    let of_ann = rows(&gateway, "totals?reduce=false&key=%22ann%22");
    assert_eq!(
        of_ann,
        json!([
            {"id": "o1", "key": "ann", "value": 30},
            {"id": "o3", "key": "ann", "value": 12},
        ])
    );
    assert_eq!(rows(&gateway, "words?key=%22n%22").as_array().unwrap().len(), 4);
    // A deletion removes rows at once.
    assert_eq!(gateway.ask("DELETE", &format!("{DOCUMENTS}/o1"), "").status, 204);
    assert_eq!(rows(&gateway, "totals"), json!([{"key": null, "value": 17}]));
    gateway.kill();
    let gateway = Gateway::start(folder.path(), &[]);
    assert_eq!(rows(&gateway, "totals"), json!([{"key": null, "value": 17}]));
    assert_eq!(gateway.ask("GET", DESIGN, "").json(), by_customer());
    let listed = gateway.ask("GET", "/default/_design", "").json();
    assert_eq!(listed, json!({"designs": ["orders"]}));
    // Another definition has other rows.
    let (status, _) = define(
        &gateway,
        &json!({"views": {"ids": {"map": "function (doc, meta) { emit(meta.id, 1); }"}}}),
    );
    assert_eq!(status, 201);
    assert_eq!(rows(&gateway, "ids").as_array().unwrap().len(), 2);
    assert_eq!(gateway.ask("DELETE", DESIGN, "").status, 200);
    assert_eq!(gateway.ask("GET", &format!("{DESIGN}/_view/ids"), "").status, 404);
}

#[test]
fn a_view_of_a_collection_ends_with_its_documents() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path(), &[]);
    let scopes = "/pools/default/buckets/default/scopes";
    let form = format!("{}Content-Type: application/x-www-form-urlencoded\r\n", login());
    assert_eq!(gateway.send("POST", scopes, &form, "name=shop").status, 200);
    let collections = format!("{scopes}/shop/collections");
    assert_eq!(gateway.send("POST", &collections, &form, "name=orders").status, 200);
    let design = json!({"collection": "shop.orders", "views": {"ids": {"map": "function (doc, meta) { emit(meta.id, 1); }"}}});
    assert_eq!(define(&gateway, &design).0, 201);
    let docs = "/api/v1/buckets/default/scopes/shop/collections/orders/documents";
    for number in 0..600 {
        assert_eq!(gateway.ask("PUT", &format!("{docs}/o{number}"), "{}").status, 200);
        if number % 3 == 0 {
            put(&gateway, &format!("elsewhere{number}"), &json!({}));
        }
    }
    let counted = gateway.ask("GET", &format!("{DESIGN}/_view/ids?limit=0"), "").json();
    assert_eq!(counted["total_rows"], 600, "{counted}");
    // The last writes are in another collection.
    put(&gateway, "last", &json!({}));
    assert_eq!(rows(&gateway, "ids?limit=2").as_array().unwrap().len(), 2);
    let dropped = gateway.ask("DELETE", &format!("{scopes}/shop/collections/orders"), "");
    assert_eq!(dropped.status, 200);
    assert_eq!(gateway.ask("GET", &format!("{DESIGN}/_view/ids"), "").status, 500);
    assert_eq!(gateway.ask("GET", "/health", "").status, 200);
}

#[test]
fn invalid_definitions_are_refused_by_name_and_endless_functions_end() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path(), &[]);
    for (design, what) in [
        (json!([]), "object"),
        (json!({"views": {"v": {}}}), "no function map"),
        (json!({"views": {"v": {"map": "function ("}}}), "map of view"),
        (json!({"collection": "no.where", "views": {}}), "there is no collection"),
        (json!({"collection": 7, "views": {}}), "scope.collection"),
        (json!({"collection": "nacre-sync.state", "views": {}}), "sync"),
    ] {
        let (status, answer) = define(&gateway, &design);
        assert_eq!(status, 400, "{design}: {answer}");
        assert!(answer["detail"].as_str().unwrap().contains(what), "{design}: {answer}");
    }
    assert_eq!(gateway.ask("GET", &format!("{DESIGN}/_view/v"), "").status, 404);
    put(&gateway, "a", &json!({}));
    let endless = json!({"views": {"v": {"map": "function (doc, meta) { for (;;) {} }"}, "w": {"map": "function (doc, meta) { emit(1, 1); }"}}});
    assert_eq!(define(&gateway, &endless).0, 201);
    assert_eq!(rows(&gateway, "v"), json!([]), "a function that does not end has no rows");
    assert_eq!(rows(&gateway, "w").as_array().unwrap().len(), 1);
    let unknown = gateway.ask("GET", &format!("{DESIGN}/_view/none"), "");
    assert_eq!(unknown.status, 404, "{unknown:?}");
    let wrong = gateway.ask("GET", &format!("{DESIGN}/_view/w?limit=x"), "");
    assert_eq!(wrong.status, 400, "{wrong:?}");
    let made =
        gateway.ask("POST", "/api/v1/tokens", r#"{"name":"r","scopes":["data_reader[default]"]}"#);
    let bearer = format!("Authorization: Bearer {}\r\n", made.json()["token"].as_str().unwrap());
    assert_eq!(gateway.send("DELETE", DESIGN, &bearer, "").status, 403);
}
