//! nacre-client against real nodes: documents, history, encryption, and vBuckets that move while they are written to.

use crate::cluster::Node;
use crate::process::{BUCKET, PASSWORD, Server, USER};
use nacre_client::{
    BASIC_FEATURES, Bucket, Connection, DcpConsumer, Durability, EventKind, Key, Login, Lookup,
    Metadata, PathMutation, PathOperation, Rest, StoreOptions, StreamRange, StreamReply,
    TrustedRoots, Version,
};
use nacre_types::Vbid;
use std::cell::RefCell;
use std::collections::BTreeMap;

const LOGIN: [&str; 3] = [USER, PASSWORD, BUCKET];

fn bucket(server: &Server) -> Bucket {
    Bucket::connect(&[server.kv_address()], None, login(BUCKET)).unwrap()
}

fn login(bucket: &str) -> Login {
    Login { user: USER.into(), password: PASSWORD.into(), bucket: bucket.into() }
}

fn name(n: usize) -> Vec<u8> {
    format!("key-{n}").into_bytes()
}

#[test]
fn documents_are_written_read_and_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let mut bucket = bucket(&server);
    let (key, any) = (Key::of_default(b"k"), StoreOptions::default());
    assert_eq!(bucket.get(key).unwrap(), None);
    assert_eq!(bucket.replace(key, b"{}", any).unwrap_err().status(), Some(0x01));
    let added = bucket.add(key, br#"{"a":1}"#, StoreOptions { flags: 7, ..any }).unwrap();
    let (branch, seqno) = added.token.unwrap();
    assert!(branch != 0 && seqno == 1, "{added:?}");
    assert_eq!(bucket.add(key, b"{}", any).unwrap_err().status(), Some(0x02));
    let document = bucket.get(key).unwrap().unwrap();
    assert_eq!(
        (document.cas, document.flags, &document.value[..]),
        (added.cas, 7, &br#"{"a":1}"#[..])
    );

    let change = |operation, path, value| PathMutation {
        operation,
        path,
        value,
        is_xattr: false,
        create_parents: true,
    };
    let changes = [
        change(PathOperation::Upsert, "b.c", b"[1]"),
        change(PathOperation::ArrayAppend, "b.c", b"2"),
        PathMutation { is_xattr: true, ..change(PathOperation::Upsert, "x", b"true") },
    ];
    // Attributes come first.
    let changes = [changes[2], changes[0], changes[1]];
    let stale = StoreOptions { cas: 1, ..any };
    assert_eq!(bucket.mutate_in(key, &changes, stale).unwrap_err().status(), Some(0x02));
    let durable = StoreOptions { durability: Some(Durability::Majority), ..any };
    bucket.mutate_in(key, &changes, durable).unwrap();
    let lookups = [
        Lookup { path: "x", is_xattr: true },
        Lookup { path: "b.c[1]", is_xattr: false },
        Lookup { path: "d", is_xattr: false },
    ];
    let found = bucket.lookup_in(key, &lookups).unwrap().unwrap();
    assert_eq!(found, [Ok(b"true".to_vec()), Ok(b"2".to_vec()), Err(0xc0)]);

    bucket.delete(key, any).unwrap();
    assert_eq!(bucket.lookup_in(key, &lookups).unwrap(), None);
    let metadata = bucket.metadata(key).unwrap().unwrap();
    assert!(metadata.is_deleted && metadata.rev == 3, "{metadata:?}");
    assert_eq!(bucket.metadata(Key::of_default(b"other")).unwrap(), None);
    assert_eq!(bucket.collection_id("_default._default").unwrap(), 0);
    assert!(bucket.collection_id("no.such").is_err());
}

#[test]
fn a_version_of_another_cluster_is_kept_unless_it_loses() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let mut bucket = bucket(&server);
    let key = Key::of_default(b"k");
    let metadata = Metadata { is_deleted: false, flags: 1, expiry: 0, rev: 5, cas: 1 << 20 };
    let version = Version { metadata, datatype: 1, value: br#"{"v":5}"#, by_time: false };
    bucket.set_version(key, version).unwrap();
    assert_eq!(bucket.metadata(key).unwrap(), Some(metadata));
    let older = Version { metadata: Metadata { rev: 4, ..metadata }, ..version };
    assert_eq!(bucket.set_version(key, older).unwrap_err().status(), Some(0x02));
    let deleted = Metadata { rev: 6, cas: 2 << 20, is_deleted: true, ..metadata };
    bucket
        .set_version(key, Version { metadata: deleted, value: b"", datatype: 0, by_time: false })
        .unwrap();
    assert_eq!(bucket.get(key).unwrap(), None);
    assert!(bucket.metadata(key).unwrap().unwrap().is_deleted);
}

#[test]
fn history_goes_through_a_small_window_and_an_unknown_branch_is_rolled_back() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let mut bucket = bucket(&server);
    let body = format!("\"{}\"", "x".repeat(500));
    let mut expected = BTreeMap::new();
    for n in 0..300 {
        let name = name(n);
        bucket.set(Key::of_default(&name), body.as_bytes(), StoreOptions::default()).unwrap();
        if n % 3 == 0 {
            bucket.delete(Key::of_default(&name), StoreOptions::default()).unwrap();
        } else {
            expected.insert(name, body.clone().into_bytes());
        }
    }
    let connection =
        Connection::connect(&server.kv_address(), None, LOGIN, BASIC_FEATURES).unwrap();
    let mut consumer = DcpConsumer::with_window(connection, "client", 0, 8 << 10).unwrap();
    let count = bucket.map().vbucket_count();
    for vbid in (0..count).map(Vbid) {
        let reply = consumer.stream(vbid, StreamRange::ALL, 0, "").unwrap();
        assert!(matches!(reply, StreamReply::Accepted(log) if log.len() == 1));
    }
    let (mut documents, mut deleted) = (BTreeMap::new(), 0);
    while documents != expected || deleted < 100 {
        match consumer.next_event().unwrap().kind {
            EventKind::Mutation { key, value, .. } => {
                documents.insert(key[1..].to_vec(), value);
            }
            EventKind::Deletion { key, is_expiration, .. } => {
                assert!(!is_expiration);
                documents.remove(&key[1..]);
                deleted += 1;
            }
            EventKind::Snapshot { start, end, .. } => assert!(start <= end),
            EventKind::Advanced(_) => {}
            other => panic!("{other:?}"),
        }
    }

    let connection =
        Connection::connect(&server.kv_address(), None, LOGIN, BASIC_FEATURES).unwrap();
    let mut consumer = DcpConsumer::open(connection, "another", 0).unwrap();
    let unknown = StreamRange { start: 9, end: u64::MAX, vb_uuid: 1, snapshot: (9, 9) };
    assert_eq!(consumer.stream(Vbid(0), unknown, 0, "").unwrap(), StreamReply::Rollback(0));
    let refused = consumer.stream(Vbid(count), StreamRange::ALL, 0, "").unwrap_err();
    assert_eq!(refused.status(), Some(0x07));
}

#[test]
fn an_encrypted_connection_requires_a_trusted_authority() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let nobody = TrustedRoots::default();
    let plain = [format!("http://127.0.0.1:{}", server.port_base)];
    let rest = Rest::new(&plain, USER, PASSWORD, &nobody);
    let pem = rest.call("GET", "/pools/default/certificate", b"").unwrap();
    assert!(pem.is_success());
    let roots = TrustedRoots::from_pem("the answer", pem.text.as_bytes()).unwrap();

    let hosts = [format!("https://127.0.0.1:{}", server.port_base + 11)];
    let whoami = Rest::new(&hosts, USER, PASSWORD, &roots).call("GET", "/whoami", b"").unwrap();
    assert!(whoami.is_success() && whoami.text.contains(USER), "{whoami:?}");
    assert!(Rest::new(&hosts, USER, PASSWORD, &nobody).call("GET", "/whoami", b"").is_err());
    assert_eq!(
        Rest::new(&hosts, USER, "wrong", &roots).call("GET", "/whoami", b"").unwrap().status,
        401
    );

    let keys = [format!("127.0.0.1:{}", server.port_base + 9)];
    let tls = roots.client_config().unwrap();
    let mut bucket = Bucket::connect(&keys, Some(tls), login(BUCKET)).unwrap();
    bucket.set(Key::of_default(b"k"), b"1", StoreOptions::default()).unwrap();
    assert_eq!(bucket.get(Key::of_default(b"k")).unwrap().unwrap().value, b"1");
    let strange = Bucket::connect(&keys, Some(nobody.client_config().unwrap()), login(BUCKET));
    let reason = strange.err().unwrap().to_string();
    assert!(reason.ends_with(": name its authority with --cacert"), "{reason}");
}

#[test]
fn requests_follow_vbuckets_to_another_node() {
    let nodes = [Node::start(), Node::start()];
    let (status, text) = nodes[0].add(&nodes[1]);
    assert_eq!(status, 200, "{text}");
    nodes[0].succeed("POST", "/pools/default/buckets", "name=b&ramQuotaMB=100&replicaNumber=0");
    let seeds = [format!("127.0.0.1:{}", nodes[0].port_base + 10)];
    let bucket = Bucket::connect(&seeds, None, login("b")).unwrap();
    let all = nodes[0].json("/pools/default")["nodes"].clone();
    let known: Vec<&str> =
        all.as_array().unwrap().iter().map(|node| node["otpNode"].as_str().unwrap()).collect();
    assert_eq!(bucket.map().servers().len(), 1);
    nodes[0].succeed("POST", "/controller/rebalance", &format!("knownNodes={}", known.join(",")));
    // The client only writes, while vBuckets move.
    let state = RefCell::new((bucket, 0));
    nodes[0].wait_until("the rebalance", |node| {
        let (bucket, written) = &mut *state.borrow_mut();
        for _ in 0..20 {
            let (name, value) = (name(*written), written.to_string());
            bucket.set(Key::of_default(&name), value.as_bytes(), StoreOptions::default()).unwrap();
            *written += 1;
        }
        node.json("/pools/default/rebalanceProgress")["status"] == "none"
    });
    let (mut bucket, written) = state.into_inner();
    for n in 0..written {
        let name = name(n);
        let document = bucket.get(Key::of_default(&name)).unwrap().unwrap();
        assert_eq!(document.value, n.to_string().into_bytes());
    }
    assert_eq!(bucket.map().servers().len(), 2, "the map was learned on the way");
}
