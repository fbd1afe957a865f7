//! Conflicts that a plugin resolves, through the whole node: a bucket with a resolver, and versions as another cluster sends them.

use crate::cluster::Node;
use crate::copies::{is_rebalancing, rebalance};
use crate::plugin_functions::{kept_calls, upload};
use crate::plugins::ask;
use crate::process::{BUCKET, PASSWORD, Server, USER};
use nacre_conformance::kv::{KvClient, Reply};
use nacre_sandbox::Call;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const EXISTS: u16 = 0x02;
const NOT_MY_VBUCKET: u16 = 0x07;
const TEMPORARY_FAILURE: u16 = 0x86;
/// A CAS of 2020.
const CAS: u64 = 1_600_000_000_000_000_000;

/// SetWithMeta; the later a version is, the greater its number.
fn set(client: &mut KvClient, key: &str, body: &str, number: u64) -> Reply {
    let mut extras = vec![0; 8];
    extras.extend(number.to_be_bytes());
    extras.extend((CAS + (number << 16)).to_be_bytes());
    client.document(0xa2, key.as_bytes(), &extras, body.as_bytes(), 0).unwrap()
}

fn body(client: &mut KvClient, key: &str) -> String {
    client.get(key.as_bytes()).unwrap().text()
}

fn put(server: &Server, name: &str, bucket: &str) -> (u16, Value) {
    let wanted = json!({"package": "resolver", "version": "1", "bucket": bucket});
    ask(server, "PUT", &format!("/deployments/{name}"), "", wanted.to_string().as_bytes())
}

fn status(server: &Server) -> Value {
    ask(server, "GET", "/deployments/longer", "", b"").1
}

/// A node whose bucket keeps the longer body.
fn start(directory: &std::path::Path) -> Server {
    let server = Server::start(directory);
    assert_eq!(upload(&server, "resolver", "1", "").0, 201);
    let (code, told) = put(&server, "longer", BUCKET);
    assert_eq!((code, &told["state"]), (200, &json!("running")), "{told}");
    server
}

#[test]
fn a_bucket_has_its_conflicts_resolved_by_a_plugin_until_it_is_undeployed() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path());
    let mut client = server.client();
    assert_eq!(set(&mut client, "k", "longest", 5).status, 0);
    assert_eq!(set(&mut client, "k", "short", 9).status, EXISTS, "though it is newer");
    assert_eq!(set(&mut client, "k", "longest of all", 1).status, 0, "though it is older");
    assert_eq!(body(&mut client, "k"), "longest of all");
    assert_eq!(set(&mut client, "m", "merge", 5).status, 0);
    let merged = set(&mut client, "m", "d", 9);
    assert!(merged.status == 0 && merged.cas > CAS + (9 << 16), "{merged:?}");
    assert_eq!(body(&mut client, "m"), "merged");

    let (code, second) = put(&server, "second", BUCKET);
    assert!(code == 409 && second.to_string().contains("longer"), "{code} {second}");
    let told = status(&server);
    assert_eq!((&told["world"], &told["source"]), (&json!("resolver"), &json!({"bucket": BUCKET})));
    assert!(told["readers"]["calls"].as_u64() >= Some(3), "{told}");
    assert_eq!(told["last_failures"], json!([]));
    let scoped =
        json!({"package": "resolver", "version": "1", "bucket": BUCKET, "scope": "_default"});
    let (code, refused) =
        ask(&server, "PUT", "/deployments/third", "", scoped.to_string().as_bytes());
    assert!(code == 400 && refused.to_string().contains("leave the scope out"), "{refused}");

    assert_eq!(ask(&server, "DELETE", "/deployments/longer", "", b"").0, 200);
    assert_eq!(set(&mut client, "k", "short", 9).status, 0, "the bucket's rule");
    assert_eq!(put(&server, "second", BUCKET).0, 200);
    assert_eq!(set(&mut client, "k", "s", 10).status, EXISTS);
    // A resolver goes with its bucket.
    assert_eq!(
        server.rest("DELETE", &format!("/pools/default/buckets/{BUCKET}"), "").unwrap().status,
        200
    );
    assert_eq!(ask(&server, "GET", "/deployments", "", b"").1, json!([]));
    let metrics = server.rest("GET", "/metrics", "").unwrap().text();
    assert!(!metrics.contains("deployment=\"second\""), "{metrics}");
}

#[test]
fn a_resolver_that_traps_fails_one_write_and_delays_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path());
    let mut client = server.client();
    for key in ["loop", "trap", "refuse", "large"] {
        assert_eq!(set(&mut client, key, key, 1).status, 0);
        assert_eq!(set(&mut client, key, "remote", 2).status, TEMPORARY_FAILURE, "{key}");
        assert_eq!(body(&mut client, key), key);
    }
    let told = status(&server);
    let failed: Vec<&Value> =
        told["last_failures"].as_array().unwrap().iter().map(|one| &one["call"]).collect();
    assert_eq!(json!(failed), json!(["loop", "trap", "refuse", "large"]), "{told}");
    assert_eq!(told["last_failures"][0]["reason"], "took longer than 50 ms");
    assert_eq!(told["state"], "running");
    // Calls that were neither refused nor too large; on a slow machine, these take too long instead.
    let kept: Vec<_> = kept_calls(directory.path())
        .into_iter()
        .map(|call| match call {
            Call::Resolve { key, local, remote, .. } => [key.0, local.body.0, remote.body.0],
            other => panic!("{other:?}"),
        })
        .collect();
    let of = |key: &str| [key.into(), key.into(), b"remote".to_vec()];
    let mut ended = vec![of("loop"), of("trap")];
    if told["last_failures"][3]["reason"] == told["last_failures"][0]["reason"] {
        ended.push(of("large"));
    }
    assert_eq!(kept, ended, "{told}");

    // Others go on while one connection has nothing but conflicts that do not end.
    let mut other = server.client();
    std::thread::scope(|scope| {
        let looping = scope.spawn(|| {
            let mut statuses = Vec::new();
            for number in 3..13 {
                statuses.push(set(&mut client, "loop", "remote", number).status);
            }
            statuses
        });
        let mut slowest = Duration::ZERO;
        while !looping.is_finished() {
            let begun = Instant::now();
            assert_eq!(body(&mut other, "trap"), "trap");
            slowest = slowest.max(begun.elapsed());
        }
        assert_eq!(looping.join().unwrap(), [TEMPORARY_FAILURE; 10]);
        println!("the slowest read took {slowest:?}");
    });
    assert_eq!(set(&mut other, "k", "a", 1).status, 0);
    assert_eq!(set(&mut other, "k", "bb", 1).status, 0);
}

/// The bucket's own rule would keep the local version.
#[test]
fn after_a_restart_nothing_is_decided_before_the_resolver_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path());
    assert_eq!(set(&mut server.client(), "k", "here", 5).status, 0);
    server.stop();
    let mut server = Server::start(directory.path());
    server.wait_for("the resolver", |server| {
        match set(&mut server.client(), "k", "longer, though it is older", 1).status {
            0 => Some(()),
            status => {
                assert_eq!(status, TEMPORARY_FAILURE);
                None
            }
        }
    });
}

#[test]
fn every_node_asks_the_resolver_about_what_it_serves() {
    const SPREAD: &str = "spread";
    let nodes = [Node::start(), Node::start()];
    assert_eq!(nodes[0].add(&nodes[1]).0, 200);
    nodes[0].succeed(
        "POST",
        "/pools/default/buckets",
        &format!("name={SPREAD}&ramQuotaMB=100&replicaNumber=0"),
    );
    assert_eq!(upload(nodes[0].server(), "resolver", "1", "").0, 201);
    assert_eq!(put(nodes[0].server(), "longer", SPREAD).0, 200);
    rebalance(&nodes, &[]);
    nodes[0].wait_until("the end of the rebalance", |node| !is_rebalancing(node));
    for node in &nodes {
        node.wait_until("the resolver", |node| status(node.server())["state"] == "running");
    }
    let mut clients = nodes.each_ref().map(|node| {
        node.wait_until("the bucket", |node| {
            KvClient::connect(node.server().kv_address(), USER, PASSWORD, SPREAD).is_ok()
        });
        KvClient::connect(node.server().kv_address(), USER, PASSWORD, SPREAD).unwrap()
    });
    for (client, node) in clients.iter_mut().zip(&nodes) {
        let mut decided = 0;
        for number in 0..64 {
            let key = format!("k{number}");
            if set(client, &key, "longest", 5).status == NOT_MY_VBUCKET {
                continue;
            }
            assert_eq!(set(client, &key, "short", 9).status, EXISTS);
            assert_eq!(set(client, &key, "longest of all", 1).status, 0);
            decided += 1;
        }
        assert!(decided > 0, "it serves some");
        let calls = status(node.server())["readers"]["calls"].as_u64();
        assert!(calls >= Some(2 * decided), "{calls:?} of {decided}");
    }
}
