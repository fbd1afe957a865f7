//! Buckets with more data than their memory quota.

use crate::world::{Answer, Connection, Node, World, request};
use nacre_bucket::kv::Next;
use nacre_cluster::{BucketChange, BucketKind, BucketSettings, Change, EvictionPolicy};
use nacre_store::Store;
use nacre_types::{Seqno, Vbid};
use std::sync::Arc;

const TEMPORARY_FAILURE: u16 = 0x86;
/// Each has 1 MiB.
const DOCUMENTS: usize = 150;

fn small(eviction_policy: EvictionPolicy, kind: BucketKind) -> BucketSettings {
    BucketSettings { ram_quota_mb: 100, eviction_policy, kind, ..BucketSettings::default() }
}

fn key(n: usize) -> String {
    format!("k{n}")
}

fn value(n: usize) -> String {
    format!("{n:04}").repeat(1 << 18)
}

/// Gets a document that may have to be read from the store first.
fn get(world: &World, connection: &mut Connection, key: &str) -> Answer {
    let (mut answers, _, _) = connection.give(&request(0x00, b"", key.as_bytes(), b""));
    for _ in 0..10 {
        if answers.is_empty() {
            // The document may be evicted again before the session handles it, and is then read again.
            world.run_tasks();
            answers = connection.resume();
        }
    }
    answers.pop().expect("an answer")
}

fn a_bucket_serves_more_than_its_quota(policy: EvictionPolicy) {
    let world = World::new();
    let node = world.node_with(small(policy, BucketKind::Persistent));
    let mut connection = Connection::open(&node);
    for n in 0..DOCUMENTS {
        assert_eq!(connection.set(&key(n), &value(n)).status, 0, "{n}");
        world.run_tasks();
    }
    let bucket = node.bucket("b").unwrap();
    let check = |connection: &mut Connection| {
        for n in (0..DOCUMENTS).chain([3, 3]) {
            assert_eq!(get(&world, connection, &key(n)).value, value(n).as_bytes(), "{n}");
            world.run_tasks();
        }
        assert_eq!(get(&world, connection, "missing").status, 0x01);
    };
    check(&mut connection);
    let (documents, memory_bytes) = bucket.usage();
    assert_eq!(documents, DOCUMENTS as u64, "what was evicted still counts");
    assert!(memory_bytes <= 100 << 20, "{memory_bytes} bytes in memory");

    // Commands that need the old document also work on evicted documents.
    let append = request(0x0e, b"", b"k0", b"tail");
    let (answers, _, _) = connection.give(&append);
    world.run_tasks();
    let done = answers.into_iter().chain(connection.resume()).next().unwrap();
    assert_eq!(done.status, 0);
    world.run_tasks();
    assert!(get(&world, &mut connection, "k0").value.ends_with(b"0000tail"));

    world.crash();
    let node = world.node();
    let mut connection = Connection::open(&node);
    assert!(get(&world, &mut connection, "k0").value.ends_with(b"0000tail"));
    connection.set("k0", &value(0));
    world.run_tasks();
    check(&mut connection);
    assert_eq!(node.bucket("b").unwrap().usage().0, DOCUMENTS as u64);
}

#[test]
fn values_that_were_evicted_are_read_back() {
    a_bucket_serves_more_than_its_quota(EvictionPolicy::ValueOnly);
}

#[test]
fn documents_that_were_evicted_whole_are_read_back() {
    a_bucket_serves_more_than_its_quota(EvictionPolicy::Full);
}

/// With the tracing that HELLO negotiates: `02` and two bytes, which grow with the server's processing time.
#[test]
fn the_time_of_a_document_that_must_be_read_counts_from_its_request() {
    let world = World::new();
    let node = world.node_with(small(EvictionPolicy::ValueOnly, BucketKind::Persistent));
    let mut connection = Connection::open(&node);
    assert_eq!(connection.ask(&request(0x1f, b"", b"test", &[0, 0x0f])).value, [0, 0x0f]);
    for n in 0..DOCUMENTS {
        connection.set(&key(n), &value(n));
        world.run_tasks();
    }
    let is_evicted =
        |key: &String| connection.give(&request(0x00, b"", key.as_bytes(), b"")).0.is_empty();
    (0..DOCUMENTS).map(key).find(is_evicted).expect("not all fits");
    world.pass(200);
    connection.now = node.now();
    world.run_tasks();
    let answer = connection.resume().pop().unwrap();
    // (2 x 200,000 us) ^ (1 / 1.74), in two bytes.
    let [0x02, high, low] = answer.framing[..] else { panic!("{:?}", answer.framing) };
    assert!((1600..1800).contains(&u16::from_be_bytes([high, low])), "{:?}", answer.framing);
}

#[test]
fn a_document_that_must_be_read_does_not_hold_up_others() {
    let world = World::new();
    let node = world.node_with(small(EvictionPolicy::ValueOnly, BucketKind::Persistent));
    let mut connection = Connection::open(&node);
    for n in 0..DOCUMENTS {
        connection.set(&key(n), &value(n));
        world.run_tasks();
    }
    let evicted = (0..DOCUMENTS)
        .map(key)
        .find(|key| connection.give(&request(0x00, b"", key.as_bytes(), b"")).0.is_empty());
    let evicted = evicted.expect("not all fits");
    let ping = request(0x0a, b"", b"", b"");
    let (answers, consumed, next) = connection.give(&ping);
    assert!(answers.is_empty() && consumed == 0 && matches!(next, Next::Wait), "in order");
    assert_eq!(Connection::open(&node).set("other", "1").status, 0, "other connections go on");
    world.run_tasks();
    assert_eq!(connection.resume()[0].value.len(), 1 << 20);

    // With unordered execution, others on the same connection are not held up either.
    let mut connection = Connection::open(&node);
    assert_eq!(connection.ask(&request(0x1f, b"", b"test", &[0, 0x0e])).value, [0, 0x0e]);
    let evicted = (0..DOCUMENTS)
        .map(key)
        .filter(|key| *key != evicted)
        .find(|key| connection.give(&request(0x00, b"", key.as_bytes(), b"")).0.is_empty());
    let evicted = evicted.expect("not all fits");
    let n: usize = evicted[1..].parse().unwrap();
    assert_eq!(connection.set("other", "2").status, 0);
    let (answers, consumed, _) = connection.give(&ping);
    assert!(answers.is_empty() && consumed == 0, "what concerns the connection waits");
    world.run_tasks();
    assert_eq!(connection.resume()[0].value, value(n).as_bytes());
    assert_eq!(connection.ask(&ping).status, 0);
}

#[test]
fn a_bucket_that_evicts_nothing_refuses_writes_over_its_quota() {
    let world = World::new();
    let node = world.node_with(small(EvictionPolicy::None, BucketKind::Ephemeral));
    let mut connection = Connection::open(&node);
    let mut written = 0;
    while connection.set(&key(written), &value(written)).status == 0 {
        written += 1;
        world.run_tasks();
        assert!(written < 1000, "the quota is 100 MiB");
    }
    assert!((85..=100).contains(&written), "{written} MiB fitted");
    assert_eq!(connection.set("more", &value(1)).status, TEMPORARY_FAILURE);
    assert_eq!(connection.get("k0").value.len(), 1 << 20);
    assert_eq!(connection.ask(&request(0x04, b"", b"k0", b"")).status, 0, "what frees memory");
}

/// The bucket has no store, so history is freed without waiting for persistence.
#[test]
fn a_bucket_without_a_store_frees_history_as_it_is_written() {
    let world = World::new();
    let node = world.node_with(small(EvictionPolicy::None, BucketKind::Ephemeral));
    let mut connection = Connection::open(&node);
    let bucket = node.bucket("b").unwrap();
    let history_bytes = || bucket.vbucket(Vbid(0)).unwrap().checkpoint().memory_bytes();
    connection.set("k", "1");
    assert_eq!((history_bytes(), bucket.persisted.get(Vbid(0))), (0, Seqno(1)));

    let reader = bucket.vbucket(Vbid(0)).unwrap().checkpoint_mut().register(Seqno(1));
    connection.set("k", "2");
    assert_eq!(bucket.persisted.get(Vbid(0)), Seqno(2), "nobody waits for a reader");
    assert!(history_bytes() > 0, "what has a reader stays");
    bucket.vbucket(Vbid(0)).unwrap().checkpoint_mut().unregister(reader);
    connection.set("k", "3");
    assert_eq!(history_bytes(), 0);
}

#[test]
fn a_bucket_without_a_store_deletes_the_least_read_documents() {
    let world = World::new();
    let node = world.node_with(small(EvictionPolicy::NotRecentlyUsed, BucketKind::Ephemeral));
    let mut connection = Connection::open(&node);
    for n in 0..DOCUMENTS {
        assert_eq!(connection.set(&key(n), &value(n)).status, 0);
        for _ in 0..20 {
            assert_eq!(connection.get("k0").status, 0, "after {n}: in use all the time");
        }
        world.run_tasks();
    }
    let (documents, memory_bytes) = node.bucket("b").unwrap().usage();
    assert!(documents < 100 && memory_bytes < 93 << 20, "{documents} of {memory_bytes} bytes");
    let missing = (0..DOCUMENTS).filter(|n| connection.get(&key(*n)).status == 0x01).count();
    assert_eq!(missing as u64 + documents, DOCUMENTS as u64);
}

#[test]
fn an_expired_document_becomes_a_tombstone_without_being_read() {
    let world = World::new();
    let node = world.node();
    let mut connection = Connection::open(&node);
    connection.ask(&request(0x01, &[0, 0, 0, 0, 0, 0, 0, 5], b"k", b"1"));
    let bucket = node.bucket("b").unwrap();
    world.wait(4);
    world.run_tasks();
    assert_eq!(bucket.usage().0, 1);
    world.wait(2);
    world.run_tasks();
    assert_eq!(bucket.usage().0, 0);
    assert_eq!(bucket.persisted.get(Vbid(0)), Seqno(2), "it is a mutation like any other");
}

/// Creates a collection, and opens a connection with the collections feature.
fn with_collection(node: &Arc<Node>) -> Connection {
    let (bucket, scope, collection) = ("b".into(), "_default".into(), "c".into());
    node.change(&Change::Buckets(BucketChange::CreateCollection {
        bucket,
        scope,
        collection,
        max_ttl: 0,
        history: None,
    }))
    .unwrap();
    let mut connection = Connection::open(node);
    connection.ask(&request(0x1f, b"", b"test", &[0, 0x12]));
    connection
}

fn drop_collection(node: &Arc<Node>) {
    let (bucket, scope, collection) = ("b".into(), "_default".into(), "c".into());
    node.change(&Change::Buckets(BucketChange::DropCollection { bucket, scope, collection }))
        .unwrap();
}

/// Returns a request on the document `k` of the first user-created collection.
fn in_collection(opcode: u8, extras: &[u8], value: &[u8]) -> Vec<u8> {
    request(opcode, extras, &[8, b'k'], value)
}

fn stored(world: &World) -> usize {
    let mut count = 0;
    world.store().visit(&mut |_, document| count += usize::from(document.is_alive())).unwrap();
    count
}

#[test]
fn a_dropped_collection_leaves_memory_and_store() {
    let world = World::new();
    let node = world.node();
    let mut connection = with_collection(&node);
    assert_eq!(connection.ask(&in_collection(0x01, &[0; 8], b"1")).status, 0);
    world.run_tasks();
    let events = usize::from(node.bucket("b").unwrap().vbucket_count());
    assert_eq!(
        stored(&world),
        1 + events,
        "the document, and in each vBucket that there is a collection"
    );
    assert_eq!(node.bucket("b").unwrap().usage().0, 1, "events are no documents");
    drop_collection(&node);
    assert_eq!(connection.ask(&in_collection(0x00, b"", b"")).status, 0x88);
    assert_eq!(node.bucket("b").unwrap().usage().0, 0);
    world.run_tasks();
    assert_eq!(stored(&world), 0);
}

/// The process ends after the manifest has dropped the collection, but before the store has erased its documents.
#[test]
fn remains_of_a_dropped_collection_are_erased_at_the_next_start() {
    let world = World::new();
    let node = world.node();
    let mut connection = with_collection(&node);
    connection.ask(&in_collection(0x01, &[0; 8], b"1"));
    world.run_tasks();
    drop_collection(&node);
    world.crash();
    let node = world.node();
    assert_eq!(node.bucket("b").unwrap().usage().0, 0);
    // The last version of a vBucket is erased only once there is a later one.
    Connection::open(&node).set("k", "1");
    world.run_tasks();
    let events = usize::from(node.bucket("b").unwrap().vbucket_count());
    assert_eq!(stored(&world), 1 + events, "the new document, and the events that are known");
}

/// In a bucket with full eviction, the keeper searches the store for expired documents and old tombstones.
#[test]
fn fully_evicted_documents_expire_and_are_purged_too() {
    let world = World::new();
    let node = world.node_with(small(EvictionPolicy::Full, BucketKind::Persistent));
    let mut connection = Connection::open(&node);
    let mut expiring = vec![0; 8];
    expiring[4..].copy_from_slice(&60u32.to_be_bytes());
    connection.ask(&request(0x01, &expiring, b"expires", value(0).as_bytes()));
    connection.set("deleted", "1");
    connection.ask(&request(0x04, b"", b"deleted", b""));
    for n in 0..DOCUMENTS {
        connection.set(&key(n), &value(n));
        world.run_tasks();
    }
    // Both documents must have left memory for the test to be meaningful.
    let evicted = |name: &[u8]| {
        let bucket = node.bucket("b").unwrap();
        let key = [&[0], name].concat();
        bucket.vbucket(Vbid(0)).unwrap().find(&key).is_none()
    };
    for n in 0..DOCUMENTS {
        get(&world, &mut connection, &key(n));
        world.run_tasks();
    }
    assert!(evicted(b"expires") && evicted(b"deleted"));
    let tombstones = |world: &World| {
        let mut count = 0;
        world.store().visit(&mut |_, document| count += usize::from(!document.is_alive())).unwrap();
        count
    };
    assert_eq!(
        (node.bucket("b").unwrap().usage().0, tombstones(&world)),
        (DOCUMENTS as u64 + 1, 1)
    );
    // The keeper searches once an hour; tombstones are kept for three days.
    world.wait(2 * 3600);
    world.run_tasks();
    assert_eq!((node.bucket("b").unwrap().usage().0, tombstones(&world)), (DOCUMENTS as u64, 2));
    connection.set("last", "1");
    world.wait(4 * 86_400);
    world.run_tasks();
    assert_eq!(
        (node.bucket("b").unwrap().usage().0, tombstones(&world)),
        (DOCUMENTS as u64 + 1, 0)
    );
}

/// Otherwise the tombstones of evicted documents would fill the memory.
#[test]
fn a_bucket_without_a_store_forgets_tombstones_after_a_minute() {
    let world = World::new();
    let node = world.node_with(small(EvictionPolicy::NotRecentlyUsed, BucketKind::Ephemeral));
    let mut connection = Connection::open(&node);
    connection.set("k", "1");
    connection.ask(&request(0x04, b"", b"k", b""));
    // The last version of a history stays.
    connection.set("last", "1");
    let keys = || node.bucket("b").unwrap().vbucket(Vbid(0)).unwrap().key_count();
    for (seconds, left) in [(59, 2), (120, 1)] {
        world.wait(seconds);
        world.run_tasks();
        assert_eq!(keys(), left, "after {seconds} s more");
    }
}

#[test]
fn a_document_created_by_a_path_lives_as_long_as_the_bucket_allows() {
    let world = World::new();
    let node = world.node_with(BucketSettings { max_ttl: 100, ..BucketSettings::default() });
    let mut connection = Connection::open(&node);
    let mut expiry_after = |frame: &[u8], key: &[u8]| {
        connection.ask(frame);
        let extras = connection.ask(&request(0xa0, b"", key, b"")).extras;
        u32::from_be_bytes(extras[8..12].try_into().unwrap())
    };
    let end = node.now().unix_s() + 100;
    let upsert = |extras: &[u8], key: &[u8]| request(0xc8, extras, key, b"a1");
    assert_eq!(expiry_after(&upsert(&[0, 1, 0, 0x01], b"new"), b"new"), end, "create it");
    let staged = request(0xd1, &[0x0c | 0x01], b"staged", b"\xc8\x04\0\x01\0\0\0\x01x1");
    expiry_after(&staged, b"staged");
    let revived = request(0xd1, &[0x04 | 0x10], b"staged", b"\x01\0\0\0\0\0\0\x011");
    assert_eq!(expiry_after(&revived, b"staged"), end, "make a document of a tombstone");
    world.wait(10);
    assert_eq!(expiry_after(&upsert(&[0, 1, 0, 0], b"new"), b"new"), end, "later changes keep it");
}
