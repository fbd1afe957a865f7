//! A gateway that syncs with a node, and devices that sync with a gateway.

use crate::gateway::{Gateway, PASSWORD, USER, failed_start, until};
use crate::node::Node;
use nacre::{Db, SyncOptions, SyncState, Write};
use serde_json::json;
use std::path::Path;

const ORDERS: &str = "/api/v1/buckets/default/scopes/shop/collections/orders/documents";

fn start(folder: &Path, node: &Node) -> Gateway {
    let options = node.upstream();
    Gateway::start(folder, &options.iter().map(String::as_str).collect::<Vec<_>>())
}

fn wait(gateway: &Gateway) {
    let done = gateway.ask("POST", "/api/v1/sync/wait?timeout=60", "");
    assert_eq!(done.status, 200, "{done:?}");
}

#[test]
fn documents_go_both_ways_through_restarts_and_kills() {
    let node = Node::start();
    let folder = tempfile::tempdir().unwrap();
    let put = |n: u32| node.rest("PUT", &format!("{ORDERS}/node-{n}"), &n.to_string()).status;
    assert_eq!(put(0), 200);
    let gateway = start(folder.path(), &node);
    wait(&gateway);
    assert_eq!(gateway.ask("GET", &format!("{ORDERS}/node-0"), "").body, "0");
    assert_eq!(gateway.ask("PUT", &format!("{ORDERS}/here-0"), "0").status, 200);
    wait(&gateway);
    assert_eq!(node.rest("GET", &format!("{ORDERS}/here-0"), "").text(), "0");
    let status = gateway.ask("GET", "/api/v1/sync", "").json();
    assert_eq!((&status["state"], &status["parked"]), (&json!("live"), &json!(0)), "{status}");
    assert!(gateway.stop());
    // Both sides write while they are disconnected, and the gateway is killed in between.
    for round in 1..4 {
        let gateway = start(folder.path(), &node);
        for n in 0..40 {
            let n = round * 100 + n;
            assert_eq!(put(n), 200);
            let path = format!("{ORDERS}/here-{n}");
            assert_eq!(gateway.ask("PUT", &path, &n.to_string()).status, 200);
        }
        // Wait until the writes are on disk: the default stores them 10 ms after the answer.
        until("the disk", || {
            let status = gateway.ask("GET", "/api/v1/status", "").json();
            (status["unsaved"] == 0).then_some(())
        });
        gateway.kill();
    }
    let gateway = start(folder.path(), &node);
    wait(&gateway);
    for round in 1..4 {
        for n in 0..40 {
            let n = round * 100 + n;
            for name in [format!("node-{n}"), format!("here-{n}")] {
                let path = format!("{ORDERS}/{name}");
                let here = gateway.ask("GET", &path, "");
                let there = node.rest("GET", &path, "");
                assert_eq!((here.status, &here.body), (200, &n.to_string()), "{name}");
                assert_eq!((there.status, there.text()), (200, here.body), "{name}");
            }
        }
    }
    let status = gateway.ask("GET", "/api/v1/sync", "").json();
    assert_eq!(status["parked"], 0, "{status}");
}

#[test]
fn the_loser_of_a_conflict_is_listed_and_removed_over_http() {
    let node = Node::start();
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(node.rest("PUT", &format!("{ORDERS}/o"), r#"{"by":"node"}"#).status, 200);
    let gateway = start(folder.path(), &node);
    wait(&gateway);
    assert!(gateway.stop());
    // Without the node: the gateway starts although its upstream does not answer.
    let mut options = node.upstream();
    options[1] = "http://127.0.0.1:1/default".into();
    let away =
        Gateway::start(folder.path(), &options.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(away.ask("PUT", &format!("{ORDERS}/o"), r#"{"by":"gateway"}"#).status, 200);
    assert_eq!(away.ask("GET", "/api/v1/sync", "").status, 200);
    assert!(away.stop());
    assert_eq!(node.rest("PUT", &format!("{ORDERS}/o"), r#"{"by":"node again"}"#).status, 200);
    let gateway = start(folder.path(), &node);
    wait(&gateway);
    let parked = gateway.ask("GET", "/api/v1/sync/parked", "").json();
    let parked = parked["parked"].as_array().unwrap().clone();
    assert_eq!((parked.len(), &parked[0]["reason"]), (1, &json!("conflict")), "{parked:?}");
    let rows = "/api/v1/buckets/default/scopes/nacre-sync/collections/parked/documents";
    let listed = gateway.ask("GET", rows, "").json();
    let id = listed["documents"][0]["id"].as_str().unwrap();
    let id = nacre_conformance::http::escape(id);
    assert_eq!(gateway.ask("DELETE", &format!("{rows}/{id}"), "").status, 204);
    let parked = gateway.ask("GET", "/api/v1/sync/parked", "").json();
    assert_eq!(parked, json!({"parked": []}));
}

#[test]
fn stopped_sync_shows_its_reason_and_restarts_on_request() {
    let node = Node::start();
    let folder = tempfile::tempdir().unwrap();
    let form = "password=another&roles=data_sync[default:shop:orders]";
    assert_eq!(node.rest("PUT", "/settings/rbac/users/local/devices", form).status, 200);
    let gateway = start(folder.path(), &node);
    let stopped = until("the refusal", || {
        let status = gateway.ask("GET", "/api/v1/sync", "").json();
        (status["state"] == "stopped").then_some(status)
    });
    assert!(stopped["reason"].as_str().unwrap().contains("password is wrong"), "{stopped}");
    let refused = gateway.ask("POST", "/api/v1/sync/wait", "");
    assert_eq!((refused.status, refused.json()["code"].clone()), (409, json!("sync_stopped")));
    let form = "password=secret&roles=data_sync[default:shop:orders]";
    assert_eq!(node.rest("PUT", "/settings/rbac/users/local/devices", form).status, 200);
    assert_eq!(gateway.ask("POST", "/api/v1/sync/retry", "").status, 200);
    wait(&gateway);
}

#[test]
fn a_gateway_without_an_upstream_is_the_hub_of_devices() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path(), &["--durability", "always"]);
    let form =
        format!("{}Content-Type: application/x-www-form-urlencoded\r\n", crate::gateway::login());
    let scopes = "/pools/default/buckets/default/scopes";
    assert_eq!(gateway.send("POST", scopes, &form, "name=shop").status, 200);
    let collections = format!("{scopes}/shop/collections");
    assert_eq!(gateway.send("POST", &collections, &form, "name=orders").status, 200);
    assert_eq!(gateway.ask("PUT", &format!("{ORDERS}/hub"), "1").status, 200);
    let options = |gateway: &Gateway, password: &str| {
        SyncOptions::new(format!("http://{}/default", gateway.address))
            .login(USER, password)
            .collections(["shop.orders"])
    };
    let devices: Vec<Db> = (0..2).map(|_| Db::open(":memory:").unwrap()).collect();
    for (number, db) in devices.iter().enumerate() {
        let orders = db.collection("shop.orders").unwrap();
        orders.upsert(format!("device-{number}"), b"2", Write::new()).unwrap();
        let sync = db.sync(options(&gateway, PASSWORD)).unwrap();
        sync.wait_in_step(crate::gateway::PATIENCE).unwrap();
    }
    assert_eq!(gateway.ask("GET", &format!("{ORDERS}/device-0"), "").body, "2");
    let second = devices[1].collection("shop.orders").unwrap();
    assert!(second.get("hub").unwrap().is_some() && second.get("device-0").unwrap().is_some());
    let wrong = devices[0].sync(options(&gateway, "wrong")).unwrap();
    let stopped = until("the refusal", || match wrong.status().state {
        SyncState::Stopped(reason) => Some(reason),
        _ => None,
    });
    assert!(stopped.contains("password is wrong"), "{stopped}");
    drop(wrong);
    // The hub is killed and returns at another address.
    gateway.kill();
    let gateway = Gateway::start(folder.path(), &[]);
    let sync = devices[0].sync(options(&gateway, PASSWORD)).unwrap();
    sync.wait_in_step(crate::gateway::PATIENCE).unwrap();
    let first = devices[0].collection("shop.orders").unwrap();
    assert_eq!(first.get("device-1").unwrap().unwrap().body(), b"2");
    drop(sync);
    drop(gateway);
    // The writes of devices would not reach an upstream.
    let upstream = ["--upstream", "http://127.0.0.1:1/b", "--upstream-user", "u"];
    let more = ["--upstream-password", "p", "--collections", "shop.orders"];
    let refused = failed_start(folder.path(), &[upstream, more].concat());
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("devices have synced"), "{said}");
}

#[test]
fn a_gateway_with_an_upstream_takes_no_devices() {
    let folder = tempfile::tempdir().unwrap();
    let upstream = ["--upstream", "http://127.0.0.1:1/b", "--upstream-user", "u"];
    let more = ["--upstream-password", "p", "--collections", "shop.orders"];
    let gateway = Gateway::start(folder.path(), &[upstream, more].concat());
    let refused = gateway.ask("GET", "/_sync/default", "");
    assert_eq!((refused.status, refused.json()["code"].clone()), (409, json!("has_upstream")));
    let late = gateway.ask("POST", "/api/v1/sync/wait?timeout=1", "");
    assert_eq!((late.status, late.json()["code"].clone()), (504, json!("not_in_step")));
}

#[test]
fn devices_reach_a_gateway_over_tls_if_they_trust_its_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let pem = made.cert.pem();
    let (chain, key) = (folder.path().join("chain.pem"), folder.path().join("key.pem"));
    std::fs::write(&chain, &pem).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let files = ["--tls-certificate", chain.to_str().unwrap(), "--tls-key", key.to_str().unwrap()];
    let gateway = Gateway::start(&folder.path().join("database"), &files);
    let port = gateway.address.rsplit_once(':').unwrap().1;
    let options = SyncOptions::new(format!("https://localhost:{port}/default"))
        .login(USER, PASSWORD)
        .collections(["_default._default"]);
    let db = Db::open(":memory:").unwrap();
    db.default_collection().upsert("a", b"1", Write::new()).unwrap();
    let sync = db.sync(options.clone().certificates(pem)).unwrap();
    sync.wait_in_step(crate::gateway::PATIENCE).unwrap();
    assert_eq!(sync.status().pushed, 1);
    sync.stop();
    let stranger = db.sync(options).unwrap();
    let trouble = until("the refusal", || stranger.status().trouble);
    assert!(trouble.contains("certificate"), "{trouble}");
}
