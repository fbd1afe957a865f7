//! Writes to the store, and failures of the store.

use crate::world::{Connection, World};
use nacre_cluster::{BucketChange, BucketSettings, Change};
use nacre_node::{Problem, ProblemKind, problems};
use nacre_store::{Fault, Store};
use nacre_types::{Seqno, Vbid};

const TEMPORARY_FAILURE: u16 = 0x86;

#[test]
fn writes_reach_the_store_and_survive_a_crash() {
    let world = World::new();
    let node = world.node();
    let mut connection = Connection::open(&node);
    for n in 0..300 {
        assert_eq!(connection.set(&format!("k{}", n % 7), &n.to_string()).status, 0);
    }
    world.run_tasks();
    let bucket = node.bucket("b").unwrap();
    let highs = bucket.high_seqnos();
    assert_eq!(
        highs.iter().map(|high| high.0).sum::<u64>(),
        300,
        "all in vBucket 0, as the requests said"
    );
    assert_eq!(bucket.persisted.get(Vbid(0)), Seqno(300));
    assert_eq!(
        bucket.vbucket(Vbid(0)).unwrap().checkpoint().memory_bytes(),
        0,
        "history leaves memory"
    );
    connection.set("k0", "never stored");
    world.crash();

    let node = world.node();
    let mut connection = Connection::open(&node);
    assert_eq!(connection.get("k5").value, b"299");
    assert_eq!(connection.get("k0").value, b"294");
    let bucket = node.bucket("b").unwrap();
    let vbucket = bucket.vbucket(Vbid(0)).unwrap();
    assert_eq!(vbucket.failover_log().entries().len(), 2, "301 may have been seen by somebody");
}

#[test]
fn a_failed_commit_poisons_its_vbuckets_only() {
    let world = World::new();
    let node = world.node();
    let mut connection = Connection::open(&node);
    connection.set("kept", "1");
    world.run_tasks();
    world.store().inject(Some(Fault::Torn));
    assert_eq!(connection.set("lost", "1").status, 0, "memory first");
    world.run_tasks();
    world.store().inject(None);
    assert_eq!(connection.set("other", "1").status, TEMPORARY_FAILURE);
    assert_eq!(connection.get("kept").value, b"1", "reads go on");
    world.run_tasks();
    let bucket = node.bucket("b").unwrap();
    assert_eq!(bucket.persisted.get(Vbid(0)), Seqno(1), "what failed is never called persisted");
    let problems = problems(&node);
    assert_eq!((&*problems[0].bucket, &problems[0].kind), ("b", &ProblemKind::ReadOnly(1)));
    assert!(problems.len() == 1 && problems[0].is_lasting(), "{problems:?}");
    assert!(problems[0].to_string().contains("1 vBuckets are read-only"), "{}", problems[0]);

    let mut elsewhere = crate::world::request(0x01, &[0; 8], b"k", b"1");
    elsewhere[7] = 1;
    assert_eq!(connection.ask(&elsewhere).status, 0, "vBucket 1 has lost nothing");
    world.run_tasks();
    assert_eq!(bucket.persisted.get(Vbid(1)), Seqno(1));
    assert!(node.mark_clean().is_err(), "a stop like this is no clean one");
}

#[test]
fn a_flush_empties_the_bucket_for_open_connections_too() {
    let world = World::new();
    let node = world.node();
    let mut connection = Connection::open(&node);
    connection.set("k", "1");
    world.run_tasks();
    node.change(&Change::Buckets(BucketChange::FlushBucket { name: "b".into() })).unwrap();
    assert_eq!(connection.get("k").status, 0x01);
    assert_eq!(connection.set("k", "2").status, 0);
    world.run_tasks();
    assert_eq!(world.store().records().unwrap().len(), 1);
    assert_eq!(connection.get("k").value, b"2");
}

#[test]
fn a_recreated_bucket_serves_open_connections_too() {
    let world = World::new();
    let node = world.node();
    let mut connection = Connection::open(&node);
    connection.set("k", "1");
    let settings = node.cluster().buckets["b"].settings.clone();
    node.change(&Change::Buckets(BucketChange::DropBucket { name: "b".into() })).unwrap();
    assert_eq!(connection.get("k").status, 0x08, "there is no bucket");
    assert_eq!(connection.get("k").status, 0x08);
    let (name, uuid) = ("b".to_owned(), "another".to_owned());
    node.change(&Change::Buckets(BucketChange::CreateBucket { name, uuid, settings })).unwrap();
    assert_eq!(connection.get("k").status, 0x01, "it is empty");
    assert_eq!(connection.set("k", "2").status, 0);
}

#[test]
fn a_full_disk_refuses_writes_serves_reads_and_loses_nothing() {
    refuses_writes_and_loses_nothing(Fault::Full);
}

#[test]
fn a_shortage_of_descriptors_refuses_writes_serves_reads_and_loses_nothing() {
    refuses_writes_and_loses_nothing(Fault::Exhausted);
}

fn refuses_writes_and_loses_nothing(fault: Fault) {
    let world = World::new();
    let node = world.node();
    let mut connection = Connection::open(&node);
    world.store().inject(Some(fault));
    assert_eq!(connection.set("k", "1").status, 0, "memory first");
    world.run_tasks();
    assert_eq!(connection.set("k", "2").status, TEMPORARY_FAILURE);
    assert_eq!(connection.get("k").value, b"1");
    world.wait(1);
    world.run_tasks();
    assert_eq!(connection.set("k", "2").status, TEMPORARY_FAILURE, "still full");
    let waits = [Problem { bucket: "b".into(), kind: ProblemKind::Waiting }];
    assert_eq!(problems(&node), waits);
    world.store().inject(None);
    world.wait(1);
    world.run_tasks();
    assert_eq!(connection.set("k", "2").status, 0, "there is space again");
    world.run_tasks();
    assert_eq!(node.bucket("b").unwrap().persisted.get(Vbid(0)), Seqno(2));
    assert_eq!(problems(&node), []);
    world.crash();
    assert_eq!(Connection::open(&world.node()).get("k").value, b"2");
}

#[test]
fn acknowledged_writes_are_stored_at_a_stop_and_none_is_accepted_after_it() {
    let world = World::new();
    let node = world.node();
    let mut connection = Connection::open(&node);
    connection.set("k", "1");
    node.stop();
    assert_eq!(connection.set("k", "2").status, TEMPORARY_FAILURE);
    world.run_tasks();
    node.mark_clean().unwrap();

    let node = world.node();
    assert_eq!(Connection::open(&node).get("k").value, b"1");
    let bucket = node.bucket("b").unwrap();
    assert_eq!(
        bucket.vbucket(Vbid(0)).unwrap().failover_log().entries().len(),
        1,
        "the history goes on"
    );
}

/// The flusher of the first bucket must learn of the write although the connection has selected another
/// bucket.
#[test]
fn a_write_reaches_the_store_although_the_bucket_is_changed_in_the_same_burst() {
    let world = World::new();
    let node = world.node();
    let settings = BucketSettings { vbucket_count: 4, ..BucketSettings::default() };
    node.change(&Change::Buckets(BucketChange::CreateBucket {
        name: "c".into(),
        uuid: "c".into(),
        settings,
    }))
    .unwrap();
    let mut connection = Connection::open(&node);
    world.run_tasks();
    let write = crate::world::request(0x01, &[0; 8], b"k", b"1");
    let select = crate::world::request(0x89, b"", b"c", b"");
    connection.give(&[write, select].concat());
    world.run_tasks();
    assert_eq!(node.bucket("b").unwrap().persisted.get(Vbid(0)), Seqno(1));
}
