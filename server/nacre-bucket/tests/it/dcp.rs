//! DCP consumers, tested through a session.

use crate::consumer::{
    BEGINNING, COLLECTIONS, Consumer, From, JSON, PRODUCER, number, shown, with_stream_id,
};
use crate::world::{Connection, Node, World, request};
use nacre_auth::User;
use nacre_bucket::Bucket;
use nacre_bucket::kv::Next;
use nacre_cluster::{BucketChange, BucketKind, BucketSettings, Change, EvictionPolicy};
use nacre_protocol::decode;
use nacre_store::Fault;
use nacre_types::Vbid;
use std::sync::Arc;

const XATTRS: u32 = 0x04;
const NO_VALUE: u32 = 0x08;
const DELETE_TIMES: u32 = 0x20;
const SKIP_DELETES: u32 = 0x200;

const SNAPPY: u16 = 0x0a;
const UNORDERED: u16 = 0x0e;

fn world() -> (Arc<World>, Arc<Node>, Connection) {
    let world = World::new();
    let node = world.node();
    let connection = Connection::open(&node);
    (world, node, connection)
}

fn bucket(node: &Node) -> Arc<Bucket> {
    node.bucket("b").unwrap()
}

fn uuid(node: &Node) -> u64 {
    bucket(node).vbucket(Vbid(0)).unwrap().failover_log().current().0
}

fn change(node: &Arc<Node>, change: &Change) {
    node.change(change).unwrap();
}

fn create_collection(node: &Arc<Node>, scope: &str, collection: &str) {
    let (bucket, scope, collection) = ("b".into(), scope.into(), collection.into());
    change(
        node,
        &Change::Buckets(BucketChange::CreateCollection {
            bucket,
            scope,
            collection,
            max_ttl: 0,
            history: None,
        }),
    );
}

fn delete(connection: &mut Connection, key: &str) {
    assert_eq!(connection.ask(&request(0x04, b"", key.as_bytes(), b"")).status, 0);
}

#[test]
fn a_consumer_receives_all_changes() {
    let (world, node, mut connection) = world();
    connection.set("a", "1");
    let mut consumer = Consumer::open(&world, &node);
    assert_eq!(consumer.stream(BEGINNING).0, 0);
    assert_eq!(consumer.received(), ["0 0..1", "0 \0a@1=1"]);
    connection.set("b", "{}");
    connection.set("c", "3");
    delete(&mut connection, "b");
    assert_eq!(consumer.received(), ["0 2..4", "0 \0c@3=3", "0 -\0b@4"]);
    assert_eq!(consumer.received(), [""; 0], "nothing is told twice");
    assert!(!consumer.session.is_ready());
}

#[test]
fn a_stream_begins_with_the_failover_log_and_ends_at_its_end_seqno() {
    let (world, node, mut connection) = world();
    for key in ["a", "b", "c"] {
        connection.set(key, "1");
    }
    let mut consumer = Consumer::open(&world, &node);
    let (status, log) = consumer.stream(From { end: 2, ..BEGINNING });
    assert_eq!((status, number(&log[..8]), number(&log[8..])), (0, uuid(&node), 0));
    assert_eq!(consumer.received(), ["0 0..2", "0 \0a@1=1", "0 \0b@2=1", "0 end 0"]);
    let log = consumer.ask(&request(0x54, b"", b"", b"")).1;
    assert_eq!(number(&log[..8]), uuid(&node));
    assert_eq!(consumer.stream(From { end: 0, ..BEGINNING }).0, 0);
    assert_eq!(consumer.received(), ["0 end 0"], "there is nothing to tell");
    let resumed = From { start: 2, end: 3, uuid: uuid(&node), snapshot: (0, 2), ..BEGINNING };
    assert_eq!(consumer.stream(resumed).0, 0);
    assert_eq!(consumer.received(), ["0 2..3 disk", "0 \0c@3=1", "0 end 0"]);
}

#[test]
fn flags_set_the_beginning_and_the_end_of_a_stream() {
    let (world, node, mut connection) = world();
    connection.set("a", "1");
    world.run_tasks();
    connection.set("b", "1");
    let mut consumer = Consumer::open(&world, &node);
    let mut told = |flags| {
        assert_eq!(consumer.stream(From { flags, ..BEGINNING }).0, 0);
        consumer.received()
    };
    assert_eq!(told(0x02 | 0x10).last().unwrap(), "0 end 0", "what is stored");
    assert_eq!(told(0x04)[1..], ["0 \0a@1=1", "0 \0b@2=1", "0 end 0"], "what there is");
    assert_eq!(told(0x40), [""; 0], "what comes from now on");
    connection.set("c", "1");
    assert_eq!(consumer.received(), ["0 2..3", "0 \0c@3=1"]);
}

#[test]
fn evicted_documents_are_read_from_the_store() {
    let (world, node, mut connection) = world();
    for n in 0..1000 {
        connection.set(&format!("k{n}"), "1");
    }
    for n in 0..1000 {
        delete(&mut connection, &format!("k{n}"));
    }
    connection.set("last", "1");
    world.run_tasks();
    assert_eq!(bucket(&node).vbucket(Vbid(0)).unwrap().checkpoint().memory_bytes(), 0);
    let mut consumer = Consumer::open(&world, &node);
    assert_eq!(consumer.stream(BEGINNING).0, 0);
    let told = consumer.received();
    assert_eq!(told.len(), 1002, "each key once, behind one marker");
    assert_eq!(told[..2], ["0 0..2001 disk", "0 -\0k0@1001"]);
    connection.set("live", "1");
    assert_eq!(consumer.received(), ["0 2002..2002", "0 \0live@2002=1"]);

    let mut thrifty = Consumer::connect(&world, &node, &[COLLECTIONS]);
    assert_eq!(thrifty.dcp("thrifty", PRODUCER | SKIP_DELETES), 0);
    assert_eq!(thrifty.stream(From { end: 2001, ..BEGINNING }).0, 0);
    assert_eq!(thrifty.received(), ["0 0..2002 disk", "0 \0last@2001=1", "0 end 0"]);
}

#[test]
fn deletions_and_expirations_are_sent_in_the_requested_form() {
    let (world, node, mut connection) = world();
    connection.ask(&request(0x01, &[0, 0, 0, 0, 0, 0, 0, 5], b"a", b"1"));
    world.wait(10);
    world.run_tasks();
    let told = |flags: u32, expirations: bool| {
        let mut consumer = Consumer::connect(&world, &node, &[COLLECTIONS]);
        assert_eq!(consumer.dcp("consumer", PRODUCER | flags), 0);
        if expirations {
            assert_eq!(consumer.control("enable_expiry_opcode", "true"), 0);
        }
        assert_eq!(consumer.stream(BEGINNING).0, 0);
        let (out, _) = consumer.raw();
        let marker = decode(&out).unwrap().unwrap().1;
        let (frame, _) = decode(&out[marker..]).unwrap().unwrap();
        (shown(&frame), frame.extras.len(), number(frame.extras.get(16..20).unwrap_or(&[])))
    };
    let buried = u64::from(node.now().unix_s());
    assert_eq!(told(0, false), ("0 -\0a@2".into(), 18, 0));
    assert_eq!(told(DELETE_TIMES, false), ("0 -\0a@2".into(), 21, buried));
    assert_eq!(told(0, true), ("0 expired \0a@2".into(), 20, buried));
}

#[test]
fn a_consumer_chooses_the_form_of_snapshot_markers() {
    let (world, node, mut connection) = world();
    connection.set("a", "1");
    let marker = |version: &str| {
        let mut consumer = Consumer::open(&world, &node);
        assert_eq!(consumer.control("max_marker_version", version), 0);
        assert_eq!(consumer.stream(BEGINNING).0, 0);
        let (out, _) = consumer.raw();
        let (frame, _) = decode(&out).unwrap().unwrap();
        (frame.extras.to_vec(), frame.value.to_vec())
    };
    let seqnos = |seqnos: &[u64]| seqnos.iter().flat_map(|n| n.to_be_bytes()).collect::<Vec<u8>>();
    let fields = |kind| [seqnos(&[0, 1]), vec![0, 0, 0, kind], seqnos(&[1, 0, 0, 0])].concat();
    assert_eq!(marker("2.0"), (vec![0], fields(1)[..36].to_vec()), "from memory");
    assert_eq!(marker("2.2"), (vec![2], fields(2)), "by now from disk");
    let mut consumer = Consumer::open(&world, &node);
    for version in ["", "1.0", "2", "2.1", "2.3", "true"] {
        assert_eq!(consumer.control("max_marker_version", version), 0x04, "{version}");
    }
    assert_eq!(consumer.stream(BEGINNING).0, 0);
    assert_eq!(consumer.received()[0], "0 0..1 disk", "as who has not asked");
}

/// Three seqnos are purged while a consumer is behind. A consumer that returns in the middle of a snapshot whose marker
/// named the purge seqno resumes there; a consumer without the purge seqno starts over.
#[test]
fn a_consumer_that_knows_the_purge_seqno_continues_below_it() {
    let (world, node, mut connection) = world();
    for key in ["a", "b", "c"] {
        connection.set(key, "1");
    }
    delete(&mut connection, "b");
    connection.set("d", "1");
    world.run_tasks();
    let mut early = Consumer::open(&world, &node);
    assert_eq!(early.control("max_marker_version", "2.2"), 0);
    assert_eq!(early.stream(From { end: 3, ..BEGINNING }).0, 0);
    let told = early.received();
    assert_eq!(told.first().unwrap(), "0 0..5 disk purged 0");
    assert_eq!(told[1..], ["0 \0a@1=1", "0 \0c@3=1", "0 end 0"]);
    world.wait(4 * 86_400);
    world.run_tasks();
    assert_eq!(bucket(&node).vbucket(Vbid(0)).unwrap().purge_seqno().0, 4);
    let resumed = From { start: 3, uuid: uuid(&node), snapshot: (0, 5), ..BEGINNING };
    let known = |purged| From { filter: purged, ..resumed };
    let rolled_back = (0x23, vec![0; 8]);
    assert_eq!(early.stream(known(r#"{"purge_seqno":"0"}"#)), rolled_back, "b is deleted for it?");
    let mut late = Consumer::open(&world, &node);
    assert_eq!(late.control("max_marker_version", "2.2"), 0);
    assert_eq!(late.stream(From { end: 3, ..BEGINNING }).0, 0);
    assert_eq!(late.received()[0], "0 0..5 disk purged 4");
    assert_eq!(late.stream(resumed), rolled_back);
    assert_eq!(late.stream(known(r#"{"purge_seqno":"4"}"#)).0, 0, "it never had b");
    assert_eq!(late.received(), ["0 0..5 disk purged 4", "0 \0d@5=1"]);
    connection.set("e", "1");
    assert_eq!(late.received(), ["0 6..6 purged 4", "0 \0e@6=1"]);
}

#[test]
fn an_expired_document_stays_in_history_until_it_is_searched_for() {
    let world = World::new();
    let settings = BucketSettings { expiry_pager_s: 600, ..BucketSettings::default() };
    let node = world.node_with(settings);
    let mut connection = Connection::open(&node);
    world.run_tasks();
    connection.ask(&request(0x01, &[0, 0, 0, 0, 0, 0, 0, 5], b"a", b"1"));
    world.wait(10);
    world.run_tasks();
    let mut consumer = Consumer::open(&world, &node);
    assert_eq!(consumer.stream(BEGINNING).0, 0);
    assert_eq!(consumer.received(), ["0 0..1 disk", "0 \0a@1=1"]);
    world.wait(600);
    world.run_tasks();
    assert_eq!(consumer.received(), ["0 2..2", "0 -\0a@2"]);
}

#[test]
fn a_consumer_without_collections_sees_the_default_one_without_prefixes() {
    let (world, node, mut connection) = world();
    connection.set("a", "{\"a\":1}");
    create_collection(&node, "_default", "c");
    let mut consumer = Consumer::connect(&world, &node, &[]);
    assert_eq!(consumer.dcp("old", PRODUCER), 0);
    assert_eq!(consumer.stream(BEGINNING).0, 0);
    let (out, _) = consumer.raw();
    let (marker, length) = decode(&out).unwrap().unwrap();
    assert_eq!(shown(&marker), "0 0..1", "it would wait for a seqno that it does not see");
    let (mutation, length) = decode(&out[length..]).unwrap().map(|(m, l)| (m, length + l)).unwrap();
    assert_eq!(shown(&mutation), "0 a@1={\"a\":1}");
    assert_eq!((mutation.datatype, length), (0, out.len()), "it has not agreed on JSON");
    assert_eq!(consumer.stream(From { vbid: 1, filter: "{}", ..BEGINNING }).0, 0x04);
}

#[test]
fn scopes_and_collections_are_streamed_and_can_be_chosen() {
    let (world, node, _) = world();
    change(
        &node,
        &Change::Buckets(BucketChange::CreateScope { bucket: "b".into(), scope: "s".into() }),
    );
    create_collection(&node, "s", "c");
    create_collection(&node, "s", "d");
    let mut writer = Consumer::connect(&world, &node, &[COLLECTIONS]);
    for key in [b"\x00a", b"\x08a", b"\x09a"] {
        assert_eq!(writer.ask(&request(0x01, &[0; 8], key, b"1")).0, 0);
    }
    let mut consumer = Consumer::open(&world, &node);
    assert_eq!(consumer.stream(From { end: 6, ..BEGINNING }).0, 0);
    let everything = [
        "0 0..6",
        "0 event 3 @1 s [8]",
        "0 event 0 @2 c [8,8]",
        "0 event 0 @3 d [8,9]",
        "0 \0a@4=1",
        "0 \u{8}a@5=1",
        "0 \ta@6=1",
        "0 end 0",
    ];
    assert_eq!(consumer.received(), everything);
    let filter = r#"{"collections":["8"]}"#;
    assert_eq!(consumer.stream(From { filter, ..BEGINNING }).0, 0);
    assert_eq!(
        consumer.received(),
        ["0 0..6 disk", "0 event 0 @2 c [8,8]", "0 \u{8}a@5=1", "0 ->6"],
        "it learns how far history is"
    );
    let (scope, collection) = ("s".into(), "c".into());
    change(
        &node,
        &Change::Buckets(BucketChange::DropCollection { bucket: "b".into(), scope, collection }),
    );
    assert_eq!(
        consumer.received(),
        ["0 7..7", "0 event 1 @7  [8,8]", "0 end 7"],
        "nothing is left to tell"
    );
    assert_eq!(consumer.stream(From { filter, ..BEGINNING }).0, 0x88);
    let filter = r#"{"scope":"8","uid":"4"}"#;
    assert_eq!(consumer.stream(From { filter, ..BEGINNING }).0, 0);
    assert_eq!(consumer.received().len(), 5, "marker, scope, dropped c, d, and its document");
    change(
        &node,
        &Change::Buckets(BucketChange::DropScope { bucket: "b".into(), scope: "s".into() }),
    );
    assert_eq!(consumer.received()[1..], ["0 event 1 @8  [8,9]", "0 event 4 @9  [8]", "0 end 7"]);
    let seqnos = consumer.ask(&request(0x48, &[0, 0, 0, 1, 0, 0, 0, 0], b"", b"")).1;
    assert_eq!((seqnos.len(), number(&seqnos[..10])), (40, 4), "of the default collection");
    assert_eq!(consumer.ask(&request(0x48, &[0, 0, 0, 1, 0, 0, 0, 9], b"", b"")).0, 0x88);
}

#[test]
fn values_are_sent_in_the_negotiated_form() {
    let (world, node, mut connection) = world();
    let body = format!("{{\"a\":\"{}\"}}", "x".repeat(200));
    connection.set("k", &body);
    let mutate = request(0xd1, b"", b"k", b"\xc8\x04\0\x01\0\0\0\x01a1");
    assert_eq!(connection.ask(&mutate).status, 0);
    let told = |flags: u32, features: &[u16], forced: bool| {
        let mut consumer = Consumer::connect(&world, &node, features);
        assert_eq!(consumer.dcp("consumer", PRODUCER | flags), 0);
        if forced {
            assert_eq!(consumer.control("force_value_compression", "true"), 0);
        }
        assert_eq!(consumer.stream(BEGINNING).0, 0);
        let (out, _) = consumer.raw();
        let marker = decode(&out).unwrap().unwrap().1;
        let (frame, _) = decode(&out[marker..]).unwrap().unwrap();
        (frame.datatype, frame.value.to_vec())
    };
    assert_eq!(told(0, &[JSON], false), (1, body.clone().into_bytes()));
    let (datatype, value) = told(XATTRS, &[JSON], false);
    assert_eq!(
        (datatype, value.len(), value.ends_with(body.as_bytes())),
        (5, body.len() + 12, true)
    );
    assert_eq!(told(NO_VALUE, &[JSON], false), (0, vec![]));
    assert_eq!(told(0x40, &[JSON], false), (5, vec![]), "what it would have been");
    let (datatype, value) = told(NO_VALUE | XATTRS, &[JSON], false);
    assert_eq!((datatype, value.len()), (4, 12), "attributes alone");
    let (datatype, value) = told(0, &[JSON, SNAPPY], true);
    assert!(datatype == 3 && value.len() < 50);
}

#[test]
fn invalid_requests_get_their_status() {
    let (world, node, mut connection) = world();
    let mut consumer = Consumer::connect(&world, &node, &[COLLECTIONS]);
    assert_eq!(consumer.stream(BEGINNING).0, 0x04, "before DCP_OPEN");
    assert_eq!(consumer.control("enable_noop", "true"), 0x04);
    assert_eq!(consumer.close(0), 0x04);
    assert_eq!(number(&consumer.acknowledge(1)[6..8]), 0x04);
    assert_eq!(consumer.dcp("", PRODUCER), 0x04);
    assert_eq!(consumer.dcp(&"n".repeat(201), PRODUCER), 0x04);
    assert_eq!(consumer.dcp("consumer", 0), 0x83, "a consumer of this node's own");
    assert_eq!(consumer.dcp("consumer", PRODUCER), 0);
    assert_eq!(consumer.dcp("another", PRODUCER), 0x04, "a second one");
    assert_eq!(consumer.ask(&request(0x89, b"", b"b", b"")).0, 0x83, "another bucket");
    assert_eq!(consumer.ask(&request(0x51, &[0; 4], b"", b"")).0, 0x83, "ADD_STREAM");
    assert_eq!(consumer.ask(&request(0x53, &[0; 47], b"", b"")).0, 0x04, "extras of 47 bytes");
    assert_eq!(consumer.control("unheard_of", "true"), 0x04);

    for n in 0..9 {
        connection.set(&n.to_string(), "1");
    }
    let from = From { uuid: uuid(&node), start: 5, snapshot: (3, 7), ..BEGINNING };
    let mut status = |from| consumer.stream(from).0;
    assert_eq!(status(From { end: 4, ..from }), 0x22, "it ends before it begins");
    assert_eq!(status(From { snapshot: (6, 7), ..from }), 0x22);
    assert_eq!(status(From { snapshot: (3, 4), ..from }), 0x22);
    assert_eq!(status(From { vbid: 4, ..from }), 0x07, "the bucket has four");
    assert_eq!(status(From { flags: 0x01, ..from }), 0x83, "takeover");
    for filter in ["x", "[]", "{\"collections\":[8]}", "{\"a\":1}"] {
        assert_eq!(status(From { filter, ..from }), 0x04, "{filter}");
    }
    assert_eq!(status(From { filter: r#"{"sid":1}"#, ..from }), 0x8d);
    assert_eq!(status(From { filter: r#"{"uid":"ff"}"#, ..from }), 0x8b);
    assert_eq!(status(From { filter: r#"{"scope":"99"}"#, ..from }), 0x8c);
    assert_eq!(status(from), 0);
    assert_eq!(status(from), 0x02, "there is one already");
    assert_eq!(consumer.close(1), 0x01, "there is none");
    assert_eq!(consumer.close(0), 0);

    let mut unordered = Consumer::connect(&world, &node, &[COLLECTIONS, UNORDERED]);
    assert_eq!(unordered.dcp("unordered", PRODUCER), 0x83);
}

#[test]
fn a_consumer_with_another_history_is_rolled_back_to_the_fork() {
    let (world, node, mut connection) = world();
    for n in 0..9 {
        connection.set(&n.to_string(), "1");
    }
    world.run_tasks();
    let old = uuid(&node);
    connection.set("never stored", "1");
    world.crash();
    let node = world.node();
    Connection::open(&node).set("other", "1");
    let mut consumer = Consumer::open(&world, &node);
    let from = From { uuid: old, start: 10, snapshot: (10, 10), ..BEGINNING };
    let (status, value) = consumer.stream(from);
    assert_eq!((status, number(&value)), (0x23, 9), "the tenth is another now");
    let (status, value) = consumer.stream(From { start: 8, snapshot: (5, 10), ..from });
    assert_eq!((status, number(&value)), (0x23, 4), "its snapshot reaches across the fork");
    let stranger = From { uuid: 99, start: 4, snapshot: (4, 4), ..BEGINNING };
    let (status, value) = consumer.stream(stranger);
    assert_eq!((status, number(&value)), (0x23, 0));
    let strict = From { uuid: 99, flags: 0x20, ..BEGINNING };
    assert_eq!(consumer.stream(strict).0, 0x23, "it insists on its history");
    let (status, log) = consumer.stream(From { start: 9, snapshot: (9, 9), ..from });
    assert_eq!((status, log.len(), number(&log[8..16])), (0, 32, 9));
    assert_eq!(consumer.received(), ["0 9..10", "0 \0other@10=1"]);
}

#[test]
fn streams_with_ids_are_distinguished() {
    let (world, node, mut connection) = world();
    connection.set("a", "1");
    let mut consumer = Consumer::open(&world, &node);
    assert_eq!(consumer.control("enable_stream_id", "true"), 0);
    assert_eq!(consumer.stream(BEGINNING).0, 0x8d, "an id is needed");
    assert_eq!(consumer.stream(From { filter: r#"{"sid":1}"#, ..BEGINNING }).0, 0);
    assert_eq!(consumer.stream(From { filter: r#"{"sid":1}"#, ..BEGINNING }).0, 0x02);
    assert_eq!(consumer.stream(From { filter: r#"{"sid":2}"#, ..BEGINNING }).0, 0);
    let told = ["0#1 0..1", "0#1 \0a@1=1", "0#2 0..1", "0#2 \0a@1=1"];
    assert_eq!(consumer.received(), told);
    assert_eq!(consumer.close(0), 0x8d);
    let close = |id| with_stream_id(id, request(0x52, b"", b"", b""));
    assert_eq!(consumer.ask(&close(3)).0, 0x01);
    assert_eq!(consumer.ask(&close(1)).0, 0);
    connection.set("b", "1");
    assert_eq!(consumer.received(), ["0#2 2..2", "0#2 \0b@2=1"]);
}

#[test]
fn a_consumer_has_a_bounded_number_of_streams() {
    let (world, node, _) = world();
    let mut consumer = Consumer::open(&world, &node);
    assert_eq!(consumer.control("enable_stream_id", "true"), 0);
    let mut opened = 0;
    let refused = (0..u16::MAX).find_map(|n| {
        let filter = format!("{{\"sid\":{}}}", n / 4);
        let (status, _) = consumer.stream(From { vbid: n % 4, filter: &filter, ..BEGINNING });
        opened += 1;
        (status != 0).then_some(status)
    });
    assert_eq!((refused, opened), (Some(0x82), (16 << 10) + 1));
}

#[test]
fn a_closed_stream_ends_with_a_message_if_that_was_agreed() {
    let (world, node, mut connection) = world();
    let mut consumer = Consumer::open(&world, &node);
    assert_eq!(consumer.stream(BEGINNING).0, 0);
    connection.set("a", "1");
    assert_eq!(consumer.close(0), 0);
    assert_eq!(consumer.received(), [""; 0]);
    assert_eq!(consumer.control("send_stream_end_on_client_close_stream", "true"), 0);
    assert_eq!(consumer.stream(BEGINNING).0, 0);
    assert_eq!(consumer.close(0), 0);
    assert_eq!(consumer.received(), ["0 end 1"]);
}

#[test]
fn no_more_is_sent_than_the_window_and_one_message() {
    let (world, node, mut connection) = world();
    for n in 0..100 {
        connection.set(&format!("k{n:02}"), &"x".repeat(100));
    }
    let mut consumer = Consumer::open(&world, &node);
    assert_eq!(consumer.control("connection_buffer_size", "1000"), 0);
    assert_eq!(consumer.stream(BEGINNING).0, 0);
    let each = 24 + 31 + 4 + 100;
    let mut sent = consumer.raw().0.len();
    assert!((1000..1000 + each).contains(&sent), "{sent}");
    assert!(!consumer.session.is_ready(), "the window is full");
    assert_eq!(number(&consumer.acknowledge(sent + 1)[6..8]), 0x04, "more than was sent");
    let mut messages = 0;
    while sent > 0 {
        assert_eq!(consumer.acknowledge(sent), b"");
        sent = consumer.raw().0.len();
        assert!(sent < 1000 + each);
        messages += sent / each;
    }
    assert!(messages > 80);
}

/// Returns the keys of the documents that a consumer of this priority receives from the store, and the most bytes of one turn.
fn turns_of(priority: &str) -> (Vec<String>, usize) {
    let (world, node, mut connection) = world();
    for n in 0..200 {
        connection.set(&format!("k{n:03}"), &"x".repeat(4000));
    }
    world.run_tasks();
    let mut consumer = Consumer::open(&world, &node);
    assert_eq!(consumer.control("set_priority", priority), 0);
    assert_eq!(consumer.stream(BEGINNING).0, 0);
    let (mut keys, mut most) = (Vec::new(), 0);
    while consumer.session.is_ready() {
        let mut out = Vec::new();
        assert!(matches!(consumer.session.resume(&mut out, node.now()), Next::More));
        world.run_tasks();
        most = most.max(out.len());
        let mut rest = &out[..];
        while let Some((frame, length)) = decode(rest).unwrap() {
            if frame.opcode_byte == 0x57 {
                keys.push(String::from_utf8_lossy(&frame.key[1..]).into_owned());
            }
            rest = &rest[length..];
        }
    }
    (keys, most)
}

#[test]
fn a_consumer_of_low_priority_receives_everything_in_smaller_turns() {
    let all: Vec<String> = (0..200).map(|n| format!("k{n:03}")).collect();
    let (keys, most) = turns_of("low");
    assert_eq!(keys, all);
    assert!((64 << 10..69 << 10).contains(&most), "{most} bytes");
    let (keys, most) = turns_of("medium");
    assert_eq!(keys, all);
    assert!(most > 200 << 10, "{most} bytes");
}

#[test]
fn the_first_consumer_of_low_priority_starts_workers_that_end_with_the_bucket() {
    let tasks_left = |priorities: &[&str]| {
        let (world, node, mut connection) = world();
        connection.set("a", "1");
        world.run_tasks();
        let before = world.task_count();
        for (number, priority) in priorities.iter().enumerate() {
            let mut consumer = Consumer::connect(&world, &node, &[COLLECTIONS]);
            assert_eq!(consumer.dcp(&format!("consumer {number}"), PRODUCER), 0);
            assert_eq!(consumer.control("set_priority", priority), 0);
            assert_eq!(consumer.stream(BEGINNING).0, 0);
            assert_eq!(consumer.received(), ["0 0..1 disk", "0 \0a@1=1"], "{priority}");
        }
        let started = world.task_count() - before;
        bucket(&node).close();
        world.run_tasks();
        (started, world.task_count())
    };
    let (started, left) = tasks_left(&["high", "medium"]);
    assert_eq!(started, 0);
    assert_eq!(tasks_left(&["low", "low", "high"]), (2, left));
}

#[test]
fn a_bucket_without_a_store_is_scanned_without_delay() {
    let world = World::new();
    let (kind, eviction_policy) = (BucketKind::Ephemeral, EvictionPolicy::None);
    let node =
        world.node_with(BucketSettings { kind, eviction_policy, ..BucketSettings::default() });
    Connection::open(&node).set("a", "1");
    let before = world.task_count();
    let mut consumer = Consumer::open(&world, &node);
    assert_eq!(consumer.control("set_priority", "low"), 0);
    assert_eq!(world.task_count(), before, "its scans lock the vBucket");
    assert_eq!(consumer.stream(BEGINNING).0, 0);
    assert_eq!(consumer.received().last().unwrap(), "0 \0a@1=1");
}

#[test]
fn a_stalled_consumer_does_not_retain_history() {
    let world = World::new();
    let settings = BucketSettings { ram_quota_mb: 100, ..BucketSettings::default() };
    let node = world.node_with(settings);
    let mut connection = Connection::open(&node);
    let mut consumer = Consumer::open(&world, &node);
    assert_eq!(consumer.control("connection_buffer_size", "1"), 0);
    assert_eq!(consumer.stream(BEGINNING).0, 0);
    // A fifth of the quota is reserved for history, and each of the four vBuckets gets a quarter of it: 5 MiB.
    let body = "x".repeat(64 << 10);
    for n in 0..200 {
        connection.set(&format!("k{n}"), &body);
        consumer.raw();
        world.run_tasks();
        let held = bucket(&node).vbucket(Vbid(0)).unwrap().checkpoint().memory_bytes();
        assert!(held < (5 << 20) + (2 * body.len()), "{held} bytes after {n}");
    }
    let mut seen = std::collections::BTreeSet::new();
    let mut unacknowledged = 24 + 20;
    loop {
        assert_eq!(consumer.acknowledge(unacknowledged), b"");
        let (out, _) = consumer.raw();
        let Some((frame, length)) = decode(&out).unwrap() else { break };
        assert_eq!(length, out.len(), "one message goes beyond the window");
        if frame.opcode_byte == 0x57 {
            assert!(seen.insert(number(&frame.extras[..8])));
        }
        unacknowledged = length;
    }
    assert_eq!(seen.len(), 200, "it misses nothing all the same");
}

#[test]
fn a_stalled_consumer_does_not_keep_scans_open() {
    let (world, node, mut connection) = world();
    for n in 0..2000 {
        connection.set(&format!("k{n}"), "1");
    }
    world.run_tasks();
    let mut consumer = Consumer::open(&world, &node);
    assert_eq!(consumer.control("connection_buffer_size", "1"), 0);
    assert_eq!(consumer.stream(BEGINNING).0, 0);
    let mut unacknowledged = consumer.raw().0.len();
    assert!(unacknowledged > 0 && !consumer.session.is_ready());
    world.wait(29);
    world.run_tasks();
    assert!(!consumer.session.is_ready());
    world.wait(2);
    world.run_tasks();
    assert!(consumer.session.is_ready(), "it is to let go");
    assert!(consumer.raw().0.is_empty());
    world.wait(31);
    world.run_tasks();
    assert!(!consumer.session.is_ready(), "it has nothing open");
    connection.set("k0", "2");
    world.run_tasks();
    let mut seqnos = Vec::new();
    while unacknowledged > 0 {
        assert_eq!(consumer.acknowledge(unacknowledged), b"");
        let (out, _) = consumer.raw();
        unacknowledged = out.len();
        let frame = decode(&out).unwrap().map(|(frame, _)| frame);
        seqnos.extend(
            frame.filter(|frame| frame.opcode_byte == 0x57).map(|frame| number(&frame.extras[..8])),
        );
    }
    assert!(seqnos.is_sorted_by(|one, other| one < other));
    assert_eq!((seqnos.len(), seqnos.last()), (2001, Some(&2001)), "k0 was sent before it changed");
}

#[test]
fn a_silent_consumer_is_probed_and_then_disconnected() {
    let (world, node, _) = world();
    let mut consumer = Consumer::open(&world, &node);
    assert_eq!(consumer.control("set_noop_interval", "60"), 0);
    assert_eq!(consumer.control("enable_noop", "true"), 0);
    let mut answer = request(0x5c, b"", b"", b"");
    answer[0] = 0x81;
    for _ in 0..20 {
        world.wait(61);
        world.run_tasks();
        assert_eq!(consumer.received(), ["noop"]);
        assert!(matches!(consumer.give(&answer), (out, Next::More) if out.is_empty()));
    }
    for _ in 0..6 {
        assert_eq!(consumer.session.cut(), None);
        world.wait(61);
        world.run_tasks();
    }
    assert!(consumer.session.cut().unwrap().contains("not answered"));
}

#[test]
fn a_consumer_that_comes_back_takes_the_place_of_its_old_connection() {
    let (world, node, _) = world();
    let mut old = Consumer::open(&world, &node);
    assert_eq!(old.stream(BEGINNING).0, 0);
    let mut other = Consumer::connect(&world, &node, &[COLLECTIONS]);
    assert_eq!(other.dcp("other", PRODUCER), 0);
    let mut new = Consumer::open(&world, &node);
    assert!(old.session.cut().unwrap().contains("same name"));
    assert_eq!(other.session.cut(), None);
    drop(old);
    assert_eq!(new.session.cut(), None);
    assert_eq!(new.stream(BEGINNING).0, 0);
}

#[test]
fn a_disconnected_consumer_leaves_no_state_behind() {
    let (world, node, mut connection) = world();
    let mut consumer = Consumer::open(&world, &node);
    assert_eq!(consumer.stream(BEGINNING).0, 0);
    connection.set("a", "1");
    world.run_tasks();
    let held = || bucket(&node).vbucket(Vbid(0)).unwrap().checkpoint().memory_bytes();
    assert!(held() > 0, "the stream has not read it");
    drop(consumer);
    connection.set("b", "1");
    world.run_tasks();
    assert_eq!(held(), 0);
}

#[test]
fn streams_end_with_their_bucket() {
    let (world, node, _) = world();
    let mut consumer = Consumer::open(&world, &node);
    assert_eq!(consumer.stream(BEGINNING).0, 0);
    assert_eq!(consumer.stream(From { vbid: 1, ..BEGINNING }).0, 0);
    change(&node, &Change::Buckets(BucketChange::FlushBucket { name: "b".into() }));
    let (out, next) = consumer.raw();
    assert_eq!(out.len(), 2 * 28);
    assert_eq!(shown(&decode(&out).unwrap().unwrap().0), "0 end 2");
    assert!(matches!(next, Next::Close(Some(_))));
}

#[test]
fn a_store_that_cannot_be_read_ends_the_stream() {
    let (world, node, mut connection) = world();
    connection.set("a", "1");
    world.run_tasks();
    let mut consumer = Consumer::open(&world, &node);
    assert_eq!(consumer.stream(BEGINNING).0, 0);
    world.store().inject(Some(Fault::Unreadable(Vbid(0))));
    assert_eq!(consumer.received(), ["0 end 5"]);
    world.store().inject(None);
    assert_eq!(consumer.stream(BEGINNING).0, 0);
    assert_eq!(consumer.received(), ["0 0..1 disk", "0 \0a@1=1"]);
}

#[test]
fn evicted_documents_of_no_interest_are_not_read() {
    let (world, node, mut connection) = world();
    create_collection(&node, "_default", "c");
    let mut writer = Consumer::connect(&world, &node, &[COLLECTIONS]);
    assert_eq!(writer.ask(&request(0x01, &[0; 8], b"\x08a", b"1")).0, 0);
    world.run_tasks();
    world.store().inject(Some(Fault::Unreadable(Vbid(0))));
    let mut consumer = Consumer::connect(&world, &node, &[]);
    assert_eq!(consumer.dcp("of the default collection", PRODUCER), 0);
    assert_eq!(consumer.stream(BEGINNING).0, 0);
    assert_eq!(consumer.received(), [""; 0]);
    connection.set("b", "2");
    assert_eq!(consumer.received(), ["0 0..3", "0 b@3=2"]);
    let mut other = Consumer::open(&world, &node);
    let filter = r#"{"collections":["8"]}"#;
    assert_eq!(other.stream(From { filter, ..BEGINNING }).0, 0);
    assert_eq!(other.received(), ["0 end 5"]);
}

#[test]
fn durable_writes_are_streamed_once_committed() {
    let (world, node, mut connection) = world();
    let mut consumer = Consumer::open(&world, &node);
    assert_eq!(consumer.stream(BEGINNING).0, 0);
    let mut set = request(0x01, &[0; 8], b"k", b"1");
    set[0] = 0x08;
    set[2] = 4;
    set[3] = 1;
    set[11] += 4;
    set.splice(24..24, [0x13, 3, 0x27, 0x10]);
    assert!(connection.give(&set).0.is_empty());
    assert_eq!(consumer.received(), ["0 0..1", "0 ->1", "0 2..2", "0 \0k@2=1"]);
}

#[test]
fn streams_need_the_right_to_their_collections() {
    let (world, node, _) = world();
    change(
        &node,
        &Change::Buckets(BucketChange::CreateScope { bucket: "b".into(), scope: "s".into() }),
    );
    create_collection(&node, "s", "c");
    create_collection(&node, "s", "d");
    let put = |name: &str, roles: &[&str]| {
        let roles = roles.iter().map(|role| role.parse().unwrap()).collect();
        // The password is the same each time, so that logins hold.
        node.put_user(User::new(name, "password", roles, [1; 32])).unwrap();
    };
    // At least one full administrator must remain.
    put("root", &["admin"]);
    let appoint = |roles: &[&str]| put("admin", roles);
    appoint(&["data_reader[b]"]);
    let mut reader = Consumer::connect(&world, &node, &[COLLECTIONS]);
    assert_eq!(reader.dcp("reader", PRODUCER), 0x24);
    appoint(&["data_dcp_reader[b:s:c]"]);
    let mut consumer = Consumer::open(&world, &node);
    let mut status = |vbid, filter| consumer.stream(From { vbid, filter, ..BEGINNING }).0;
    assert_eq!(status(0, ""), 0x24);
    assert_eq!(status(0, r#"{"scope":"8"}"#), 0x24);
    assert_eq!(status(0, r#"{"collections":["8","9"]}"#), 0x24);
    assert_eq!(status(0, r#"{"collections":["8"]}"#), 0);
    appoint(&["data_dcp_reader[b:s]"]);
    assert_eq!(consumer.stream(From { vbid: 1, filter: r#"{"scope":"8"}"#, ..BEGINNING }).0, 0);
    consumer.received();
    appoint(&["data_dcp_reader[b:s:c]"]);
    create_collection(&node, "s", "e");
    let told = consumer.received();
    assert_eq!(told[0], "1 end 8", "the scope is not its to read any more");
    assert_eq!(told[1..], ["0 4..4", "0 ->4"]);
}
