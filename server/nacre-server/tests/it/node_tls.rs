//! Links between nodes: no stranger can read them, or take part in them.

use crate::cluster::{Node, VERSION};
use crate::impostor::{self, COPIES, Key, MANAGEMENT, Stream};
use crate::process::{PASSWORD, USER};
use crate::tls;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// Requests that only nodes make.
const INTERNAL: [&str; 6] = [
    "GET /_nacre/link",
    "GET /_nacre/packages/0",
    "GET /controller/engage",
    "POST /controller/engage",
    "POST /controller/regroup",
    "POST /controller/leave",
];

/// The cluster as `node` sends it to a newcomer, which the test plays and which then does not join.
fn state_of(node: &Node) -> Value {
    let (port, given) = impostor::newcomer(Key::new(), VERSION, |candidate| candidate);
    let form = format!("hostname=127.0.0.1:{port}&user=a&password=b");
    let (status, text) = node.ask("POST", "/controller/addNode", &form);
    assert!(status == 400 && text.contains("not today"), "{status} {text}");
    given.recv().unwrap()["cluster"].take()
}

/// The headers of a request for a link from node 1 to node 2.
fn link_headers(cluster: &Value, uuid: &str) -> String {
    let id = cluster["uuid"].as_str().unwrap();
    format!(
        "Connection: upgrade\r\nUpgrade: nacre/2\r\nNacre-Cluster: {id}\r\nNacre-From: 1 {uuid}\r\nNacre-To: 2\r\nNacre-Lane: questions\r\n"
    )
}

/// A login over the binary protocol; its status, or that there is no connection.
fn log_in(stream: &mut dyn Stream, secret: &str) -> Option<u16> {
    let message = format!("\0@nacre\0{secret}");
    tls::ask(stream, 0x21, b"", b"PLAIN", message.as_bytes()).ok().map(|(status, _)| status)
}

#[test]
fn a_client_without_the_key_of_a_node_is_never_accepted_as_one() {
    let (first, second) = (Node::start(), Node::start());
    assert_eq!(first.add(&second).0, 200);
    let cluster = state_of(&first);
    let secret = cluster["secret"].as_str().unwrap();
    let uuid = cluster["nodes"]["1"]["uuid"].as_str().unwrap();
    let headers = link_headers(&cluster, uuid);
    let (node, admin) = (Some(("@nacre", secret)), Some((USER, PASSWORD)));
    let (management, keys) = (second.port_base + 11, second.port_base + 9);

    let authority = second.ask("GET", "/pools/default/certificate", "").1;
    let plain = || -> Box<dyn Stream> { Box::new(impostor::connect(second.port_base).unwrap()) };
    let as_client = || -> Box<dyn Stream> {
        Box::new(tls::connect(management, &authority, None, tls::BOTH).unwrap())
    };
    let refused = |stream: &mut dyn Stream, line, login, status, words: &str| {
        let (said, text) = impostor::ask(stream, line, login, &headers).unwrap();
        assert!(said == status && text.contains(words), "{line}: {said} {text}");
    };
    // With the secret, but without a key.
    for connect in [&plain as &dyn Fn() -> Box<dyn Stream>, &as_client] {
        for line in INTERNAL {
            refused(&mut *connect(), line, node, 403, "with the keys that it knows");
            let unknown = if line.ends_with("link") { 403 } else { 401 };
            refused(&mut *connect(), line, None, unknown, "");
        }
        for line in &INTERNAL[2..] {
            refused(&mut *connect(), line, admin, 403, "with the keys that it knows");
        }
    }
    // With the secret and some other key.
    let stranger = Key::new();
    let come = |key: &Key| key.connect(management, MANAGEMENT).unwrap();
    refused(&mut *come(&stranger), INTERNAL[0], node, 403, "that node has another key");
    for line in &INTERNAL[1..] {
        refused(&mut *come(&stranger), line, node, 403, "with the keys that it knows");
    }
    for line in INTERNAL {
        refused(&mut *come(&stranger), line, None, 401, "log in");
    }
    // A peer that shows a key is asked for no certificate: with a password it can do nothing but join.
    for key in [&stranger, &Key::of_node(first.data_dir())] {
        refused(&mut *come(key), "GET /pools/default", admin, 403, "with the keys that it knows");
    }
    let mut joining = come(&stranger);
    refused(&mut *joining, "GET /controller/engage", admin, 200, "unix_seconds");
    // With the key of a node, but without the secret, or as one that is no more.
    let known = Key::of_node(first.data_dir());
    refused(&mut *come(&known), INTERNAL[0], Some(("@nacre", "x")), 401, "log in");
    for line in &INTERNAL[3..] {
        refused(&mut *come(&known), line, Some(("@nacre", "x")), 401, "is wrong");
    }
    let old = link_headers(&cluster, &"0".repeat(32));
    let (status, text) = impostor::ask(&mut *come(&known), INTERNAL[0], node, &old).unwrap();
    assert!(status == 403 && text.contains("no such node"), "{status} {text}");
    // With everything: so it was not something else that was refused.
    let (status, text) = impostor::ask(&mut *come(&known), INTERNAL[0], node, &headers).unwrap();
    assert_eq!(status, 101, "{text}");
    refused(&mut *come(&known), INTERNAL[1], node, 404, "");

    // The same for copies of documents.
    let mut in_the_clear = impostor::connect(second.port_base + 10).unwrap();
    assert_eq!(log_in(&mut in_the_clear, secret), Some(0x20));
    let mut as_client = tls::connect(keys, &authority, None, tls::BOTH).unwrap();
    assert_eq!(log_in(&mut as_client, secret), Some(0x20));
    let mut without_secret = known.connect(keys, COPIES).unwrap();
    assert_eq!(log_in(&mut *without_secret, "x"), Some(0x20));
    let mut other_key = stranger.connect(keys, COPIES).unwrap();
    assert_eq!(log_in(&mut *other_key, secret), None, "the connection is closed");
    let mut with_both = known.connect(keys, COPIES).unwrap();
    assert_eq!(log_in(&mut *with_both, secret), Some(0));
    // A protocol of nodes on one port is not served on another.
    assert!(known.connect(second.port_base + 12, MANAGEMENT).is_err());
    assert!(known.connect(keys, MANAGEMENT).is_err());
    assert_eq!(second.json("/pools/default")["nodes"].as_array().unwrap().len(), 2);
}

#[test]
fn a_node_that_is_removed_is_cut_off_from_what_it_was_copying() {
    let (first, second) = (Node::start(), Node::start());
    assert_eq!(first.add(&second).0, 200);
    let secret = state_of(&first)["secret"].as_str().unwrap().to_owned();
    let key = Key::of_node(second.data_dir());
    let mut stream = key.connect(first.port_base + 9, COPIES).unwrap();
    assert_eq!(log_in(&mut *stream, &secret), Some(0));
    first.succeed("POST", "/controller/ejectNode", &format!("otpNode=ns_1@{}", second.address()));
    match stream.read(&mut [0]) {
        Ok(length) => assert_eq!(length, 0, "nothing is said any more"),
        Err(error) => assert_ne!(error.kind(), ErrorKind::WouldBlock, "it is still open"),
    }
    let mut again = key.connect(first.port_base + 9, COPIES).unwrap();
    assert_eq!(log_in(&mut *again, &secret), None);
}

#[test]
fn a_node_is_added_only_with_the_key_that_is_asked_for() {
    let (first, other) = (Node::start(), Node::start());
    let add = |hostname: &str, fingerprint: &str| {
        let form = format!(
            "hostname={hostname}&fingerprint={fingerprint}&user={USER}&password={PASSWORD}"
        );
        first.ask("POST", "/controller/addNode", &form)
    };
    let fingerprint = other.json("/nodes/self")["fingerprint"].as_str().unwrap().to_owned();
    assert_eq!(fingerprint, Key::of_node(other.data_dir()).fingerprint());
    let (status, text) = add(&other.address(), &Key::new().fingerprint());
    assert!(status == 400 && text.contains("another node answers at this address"), "{text}");
    let (status, text) = add(&other.address(), "abc");
    assert!(status == 400 && text.contains("64 hexadecimal digits"), "{text}");
    // A proxy that passes on the node's description.
    let named = fingerprint.clone();
    let (port, given) = impostor::newcomer(Key::new(), VERSION, move |mut candidate| {
        candidate["endpoints"]["fingerprint"] = named.as_str().into();
        candidate
    });
    let (status, text) = add(&format!("127.0.0.1:{port}"), "");
    assert!(status == 400 && text.contains("does not have the key that it announced"), "{text}");
    let (status, text) = add(&format!("127.0.0.1:{port}"), &fingerprint);
    assert!(status == 400 && text.contains("another node answers at this address"), "{text}");
    // A copy of the data directory of a member.
    let (port, copy) =
        impostor::newcomer(Key::of_node(first.data_dir()), VERSION, |candidate| candidate);
    let (status, text) = add(&format!("127.0.0.1:{port}"), "");
    assert!(status == 400 && text.contains("key of another one"), "{text}");
    assert!(given.try_recv().is_err() && copy.try_recv().is_err(), "nobody was given the secret");

    let (status, text) =
        add(&format!("https://127.0.0.1:{}", other.port_base + 11), &fingerprint.to_uppercase());
    assert_eq!(status, 200, "{text}");
    for node in &first.json("/pools/default")["nodes"].as_array().unwrap()[..] {
        assert_eq!(node["nodeEncryption"], true);
    }
}

#[test]
fn a_node_joins_the_one_with_the_key_that_is_asked_for() {
    let (first, late) = (Node::start(), Node::start());
    let join = |fingerprint: &str| {
        let form = format!(
            "clusterMemberHostIp=https://127.0.0.1&clusterMemberPort={}&fingerprint={fingerprint}&user={USER}&password={PASSWORD}",
            first.port_base + 11
        );
        late.ask("POST", "/node/controller/doJoinCluster", &form)
    };
    let (status, text) = join(&Key::new().fingerprint());
    assert!(status == 400 && text.contains("another node answers at this address"), "{text}");
    assert_eq!(join(&Key::of_node(first.data_dir()).fingerprint()).0, 200);
    late.wait_until("the cluster", |node| {
        node.json("/pools")["uuid"] == first.json("/pools")["uuid"]
    });
}

#[test]
fn a_node_without_its_key_is_refused_by_the_others_and_a_lone_one_creates_another() {
    let (first, mut second) = (Node::start(), Node::start());
    let forget_key = |node: &Node| {
        std::fs::remove_file(node.data_dir().join("tls/node-key.pem")).unwrap();
    };
    let fingerprint = |node: &Node| {
        let introduction: Value =
            serde_json::from_str(&node.ask("GET", "/_nacre/node", "").1).unwrap();
        introduction["fingerprint"].clone()
    };
    let before = fingerprint(&second);
    second.kill();
    forget_key(&second);
    second.restart();
    let after = fingerprint(&second);
    assert_ne!(before, after);
    second.wait_until("the agreed key", |node| {
        node.json("/pools/default")["nodes"][0]["fingerprint"] == after
    });

    assert_eq!(first.add(&second).0, 200);
    second.kill();
    forget_key(&second);
    second.restart();
    first.wait_until("the silence", |node| {
        node.json("/pools/default")["nodes"][1]["status"] == "unhealthy"
    });
    // With two nodes each is needed: while the other is not heard, nothing is decided.
    let (status, text) = first.ask("PUT", "/settings/rbac/users/local/x", "password=secret1");
    assert_eq!(status, 503, "{text}");
}

/// Everything that went between nodes, in both directions, by port relative to the first of the node.
type Seen = Arc<Mutex<BTreeMap<u16, Vec<u8>>>>;
/// Management without TLS, keys with it, and management with it.
const PORTS: [u16; 3] = [0, 9, 11];

/// Listens in front of a node under another address, and records the bytes.
fn eavesdrop(port_base: u16, address: &'static str, seen: &Seen) {
    for offset in [0, 1, 2, 5, 9, 10, 11, 12, 13, 16] {
        let port = port_base + offset;
        let (listener, seen) = (TcpListener::bind((address, port)).unwrap(), Arc::clone(seen));
        std::thread::spawn(move || {
            for from in listener.incoming() {
                let from = from.unwrap();
                let Ok(to) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                let back = (to.try_clone().unwrap(), from.try_clone().unwrap());
                for (from, to) in [(from, to), back] {
                    let seen = Arc::clone(&seen);
                    std::thread::spawn(move || copy(from, to, &seen, offset));
                }
            }
        });
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream, seen: &Seen, offset: u16) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(length @ 1..) = from.read(&mut bytes) {
        seen.lock().unwrap().entry(offset).or_default().extend_from_slice(&bytes[..length]);
        if to.write_all(&bytes[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// Also shows that the search would find something: a request without TLS is found.
#[test]
fn an_eavesdropper_between_nodes_learns_neither_documents_nor_the_secret() {
    let (first, second) = (Node::start(), Node::start());
    let seen = Seen::default();
    eavesdrop(first.port_base, "127.0.0.2", &seen);
    eavesdrop(second.port_base, "127.0.0.3", &seen);
    first.succeed("POST", "/node/controller/rename", "hostname=127.0.0.2");
    let form = format!("hostname=127.0.0.3:{}&user={USER}&password={PASSWORD}", second.port_base);
    first.succeed("POST", "/controller/addNode", &form);
    let secret = state_of(&first)["secret"].as_str().unwrap().to_owned();
    first.succeed("POST", "/pools/default/buckets", "name=b-51c2&ramQuotaMB=100&replicaNumber=1");
    first.succeed("PUT", "/settings/rbac/users/local/hidden", "password=secret1&roles=admin");
    let names: Vec<String> = [2, 3]
        .map(|last| {
            format!("ns_1@127.0.0.{last}:{}", [first.port_base, second.port_base][last - 2])
        })
        .into();
    first.succeed("POST", "/controller/rebalance", &format!("knownNodes={}", names.join(",")));
    first.wait_until("the rebalance", |node| {
        node.json("/pools/default/rebalanceProgress")["status"] == "none"
    });
    // A write that is on both nodes before it is answered.
    let statement =
        r#"INSERT INTO `b-51c2` (KEY, VALUE) VALUES ("k-7d1f", {"v": "document-3b9ac"})"#;
    let written = json!({"statement": statement, "tximplicit": true});
    let written = first.server().query(&written.to_string());
    assert_eq!(written["status"], "success", "{written}");
    let answer =
        second.server().query(r#"{"statement":"SELECT RAW v FROM `b-51c2` USE KEYS \"k-7d1f\""}"#);
    assert_eq!(answer["results"][0], "document-3b9ac", "{answer}");

    let seen = seen.lock().unwrap();
    let has = |text: &str| {
        seen.values().any(|bytes| bytes.windows(text.len()).any(|seen| seen == text.as_bytes()))
    };
    let count = |port: u16| seen.get(&port).map_or(0, Vec::len);
    let counts = PORTS.map(count);
    assert!(
        has("GET /_nacre/node") && counts[1..].iter().all(|count| *count > 5_000),
        "{counts:?}"
    );
    assert_eq!(seen.keys().copied().collect::<Vec<u16>>(), PORTS);
    let found: BTreeMap<&str, bool> =
        [&secret, "document-3b9ac", "k-7d1f", "hidden", PASSWORD, "Basic ", "@nacre", "b-51c2"]
            .map(|text| (text, has(text)))
            .into();
    assert!(found.values().all(|found| !found), "{found:?}");
}
