//! Documents over HTTP, across restarts and kills.

use crate::gateway::{Answer, DOCUMENTS, Gateway, login};
use serde_json::json;

fn with(header: &str) -> String {
    format!("{}{header}\r\n", login())
}

fn id_list(answer: &Answer) -> Vec<String> {
    let rows = answer.json()["documents"].as_array().unwrap().clone();
    rows.iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn documents_are_stored_read_changed_under_conditions_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path(), &[]);
    let ann = format!("{DOCUMENTS}/ann");
    let stored = gateway.ask("PUT", &ann, r#"{"age": 7}"#);
    assert_eq!(stored.status, 200, "{stored:?}");
    let etag = stored.header("etag").unwrap().to_owned();
    let read = gateway.ask("GET", &ann, "");
    assert_eq!((read.status, read.body.as_str()), (200, r#"{"age": 7}"#));
    assert_eq!(read.header("content-type"), Some("application/json"));
    assert_eq!(read.header("etag"), Some(etag.as_str()));
    let head = gateway.ask("HEAD", &ann, "");
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    let known = gateway.send("GET", &ann, &with(&format!("If-None-Match: {etag}")), "");
    assert_eq!(known.status, 304);
    let condition = with(&format!("If-Match: {etag}"));
    assert_eq!(gateway.send("PUT", &ann, &condition, r#"{"age": 8}"#).status, 200);
    let late = gateway.send("PUT", &ann, &condition, r#"{"age": 9}"#);
    assert_eq!((late.status, late.json()["code"].as_str()), (412, Some("changed")));
    let taken = gateway.send("PUT", &ann, &with("If-None-Match: *"), "{}");
    assert_eq!(taken.status, 412);
    let made = gateway.send("PUT", &format!("{DOCUMENTS}/a%2Fb"), &with("If-None-Match: *"), "1");
    assert_eq!(made.status, 201);
    let posted = gateway.ask("POST", DOCUMENTS, "[1]");
    assert_eq!(posted.status, 201);
    let place = posted.header("location").unwrap().to_owned();
    assert_eq!(gateway.ask("GET", &place, "").body, "[1]");
    assert_eq!(gateway.ask("DELETE", &place, "").status, 204);
    assert_eq!(gateway.ask("GET", &place, "").status, 404);
    let short = gateway.ask("PUT", &format!("{ann}?ttl=1000"), "{}");
    assert_eq!(short.status, 200);
    assert!(gateway.ask("GET", &ann, "").header("nacre-expiry").is_some());
    assert_eq!(id_list(&gateway.ask("GET", DOCUMENTS, "")), ["a/b", "ann"]);
}

#[test]
fn pages_follow_each_other_and_collections_are_made_and_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path(), &[]);
    let scopes = "/pools/default/buckets/default/scopes";
    let form = with("Content-Type: application/x-www-form-urlencoded");
    assert_eq!(gateway.send("POST", scopes, &form, "name=shop").status, 200);
    let collections = format!("{scopes}/shop/collections");
    assert_eq!(gateway.send("POST", &collections, &form, "name=orders").status, 200);
    let again = gateway.send("POST", &collections, &form, "name=orders");
    assert_eq!(again.status, 400, "{again:?}");
    let docs = "/api/v1/buckets/default/scopes/shop/collections/orders/documents";
    for number in 0..7 {
        assert_eq!(gateway.ask("PUT", &format!("{docs}/o:{number}"), "{}").status, 200);
    }
    assert_eq!(gateway.ask("PUT", &format!("{docs}/p"), "{}").status, 200);
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let page = gateway.ask("GET", &format!("{docs}?prefix=o:&limit=3{after}"), "");
        seen.extend(id_list(&page));
        match page.json()["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    let expected: Vec<String> = (0..7).map(|number| format!("o:{number}")).collect();
    assert_eq!(seen, expected);
    let all = gateway.ask("GET", "/api/v1/buckets", "").json();
    let shop = json!({"name": "shop", "collections": ["orders"]});
    assert!(all["buckets"][0]["scopes"].as_array().unwrap().contains(&shop), "{all}");
    let dropped = gateway.ask("DELETE", &format!("{scopes}/shop/collections/orders"), "");
    assert_eq!(dropped.status, 200);
    let gone = gateway.ask("GET", &format!("{docs}/p"), "");
    assert_eq!((gone.status, gone.json()["code"].clone()), (404, json!("collection_not_found")));
}

#[test]
fn acknowledged_writes_exist_after_a_restart_and_after_kills() {
    for store in ["log", "sled"] {
        let folder = tempfile::tempdir().unwrap();
        let options = ["--durability", "always", "--store", store];
        let mut count = 0;
        for round in 0..4 {
            let gateway = Gateway::start(folder.path(), &options);
            for number in 0..count {
                let found = gateway.ask("GET", &format!("{DOCUMENTS}/k{number}"), "");
                assert_eq!(found.body, format!("{number}"), "{store}, round {round}");
            }
            for _ in 0..25 {
                let path = format!("{DOCUMENTS}/k{count}");
                assert_eq!(gateway.ask("PUT", &path, &count.to_string()).status, 200);
                count += 1;
            }
            match round {
                0 => assert!(gateway.stop(), "it ends well by SIGTERM"),
                _ => gateway.kill(),
            }
        }
    }
}

#[test]
fn a_token_has_its_rights_until_it_is_revoked_and_survives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path(), &[]);
    gateway.ask("PUT", &format!("{DOCUMENTS}/ann"), "{}");
    let made = gateway.ask(
        "POST",
        "/api/v1/tokens",
        r#"{"name":"report","scopes":["data_reader[default]"],"ttl":1000}"#,
    );
    assert_eq!(made.status, 201, "{made:?}");
    let made = made.json();
    let bearer = format!("Authorization: Bearer {}\r\n", made["token"].as_str().unwrap());
    assert!(gateway.stop());
    let gateway = Gateway::start(folder.path(), &[]);
    let ann = format!("{DOCUMENTS}/ann");
    assert_eq!(gateway.send("GET", &ann, &bearer, "").status, 200);
    assert_eq!(gateway.send("DELETE", &ann, &bearer, "").status, 403);
    assert_eq!(gateway.send("POST", "/api/v1/sync/retry", &bearer, "").status, 403);
    let more = gateway.send("POST", "/api/v1/tokens", &bearer, r#"{"name":"more"}"#);
    assert_eq!((more.status, more.json()["code"].clone()), (403, json!("by_token")));
    let listed = gateway.ask("GET", "/api/v1/tokens", "").json();
    assert_eq!(listed["tokens"][0]["name"], "report");
    let id = made["id"].as_str().unwrap();
    assert_eq!(gateway.ask("DELETE", &format!("/api/v1/tokens/{id}"), "").status, 204);
    assert_eq!(gateway.send("GET", &ann, &bearer, "").status, 401);
}

#[test]
fn without_an_owner_programs_of_this_machine_need_no_login() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start_with(folder.path(), &[]);
    let ann = format!("{DOCUMENTS}/ann");
    assert_eq!(gateway.send("PUT", &ann, "", "{}").status, 200);
    assert_eq!(gateway.send("GET", &ann, "", "").status, 200);
    let refused = gateway.send("POST", "/api/v1/tokens", "", r#"{"name":"x"}"#);
    assert_eq!((refused.status, refused.json()["code"].clone()), (409, json!("no_owner")));
    let figures = gateway.send("GET", "/api/v1/status", "", "").json();
    assert_eq!(figures["documents"], 1);
    println!("own memory of an idle gateway: {} KiB", gateway.own_memory_bytes() >> 10);
    assert!(gateway.own_memory_bytes() < 24 << 20);
}
