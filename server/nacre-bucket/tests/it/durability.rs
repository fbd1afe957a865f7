//! Durable writes, tested through a session.

use crate::world::{Connection, World, durable, request};
use nacre_bucket::SlowSettings;
use nacre_bucket::kv::Next;
use nacre_cluster::{BucketKind, BucketSettings, EvictionPolicy};
use nacre_store::Fault;
use std::time::Duration;

const AMBIGUOUS: u16 = 0xa3;

fn set(value: &str) -> Vec<u8> {
    request(0x01, &[0; 8], b"k", value.as_bytes())
}

#[test]
fn a_write_is_seen_and_answered_once_it_is_stored() {
    let world = World::new();
    let node = world.node();
    let mut connection = Connection::open(&node);
    connection.set("k", "1");
    for (level, value) in [(2, "2"), (3, "3")] {
        let before = connection.get("k").value;
        assert_eq!(connection.give(&durable(level, 1000, &set(value))).0, []);
        let mut other = Connection::open(&node);
        assert_eq!(other.get("k").value, before, "nobody sees it yet");
        assert_eq!(other.set("k", "x").status, 0xa2, "nobody writes it meanwhile");
        let (_, _, next) = connection.give(&request(0x0a, b"", b"", b""));
        assert!(matches!(next, Next::Wait), "answers come in order");
        world.run_tasks();
        let answers = connection.resume();
        assert_eq!(answers[0].status, 0);
        let found = connection.get("k");
        assert_eq!((&found.value[..], found.cas), (value.as_bytes(), answers[0].cas));
    }
    assert_eq!(connection.ask(&durable(1, 1000, &set("4"))).status, 0, "one copy is a majority");
    world.crash();
    assert_eq!(Connection::open(&world.node()).get("k").value, b"3", "memory only");
}

#[test]
fn a_write_that_does_not_reach_the_disk_in_time_is_ambiguous() {
    let world = World::new();
    let node = world.node();
    let mut connection = Connection::open(&node);
    world.run_tasks();
    world.store().inject(Some(Fault::Full));
    connection.give(&durable(3, 1500, &set("1")));
    world.run_tasks();
    assert_eq!(connection.resume(), []);
    world.wait(2);
    world.run_tasks();
    assert_eq!(connection.resume()[0].status, AMBIGUOUS);
    assert_eq!(connection.get("k").status, 0x01);
    world.store().inject(None);
    world.wait(1);
    world.run_tasks();
    assert_eq!(connection.set("k", "2").status, 0);
    world.run_tasks();
    world.crash();
    assert_eq!(Connection::open(&world.node()).get("k").value, b"2");
}

#[test]
fn a_slow_request_is_recorded_with_the_reason_of_its_wait() {
    let world = World::new();
    let node = world.node();
    let second = Duration::from_secs(1);
    node.slow.set(SlowSettings { kv: second, query: second, redaction: None });
    let mut connection = Connection::open(&node);
    world.run_tasks();
    for (wait_s, expected) in [(0, 0), (2, 1)] {
        connection.now = node.now();
        connection.give(&durable(3, 60_000, &set("1")));
        world.wait(wait_s);
        world.run_tasks();
        connection.now = node.now();
        assert_eq!(connection.resume()[0].status, 0);
        assert_eq!(node.slow.kept().len(), expected, "{wait_s} s");
    }
    let kept = node.slow.kept().pop().unwrap();
    assert_eq!((&*kept.operation, &*kept.bucket, &*kept.target), ("Set", "b", "k"));
    assert_eq!((&*kept.user, kept.spent[0].0), ("admin", "durability"));
    assert!(kept.elapsed >= second * 2, "{:?}", kept.elapsed);
    // A stall of the reading thread: it had no processor for two seconds.
    connection.now = node.now();
    world.wait(2);
    assert_eq!(connection.get("k").status, 0);
    assert_eq!(node.slow.kept()[0].operation, "1 requests of one read");
}

#[test]
fn no_request_waits_for_a_failed_store() {
    let world = World::new();
    let node = world.node();
    let mut connection = Connection::open(&node);
    let mut other = Connection::open(&node);
    world.run_tasks();
    world.store().inject(Some(Fault::Torn));
    connection.give(&durable(3, 60_000, &set("1")));
    other.give(&request(0xb7, &1u64.to_be_bytes(), b"", b""));
    world.run_tasks();
    assert_eq!(connection.resume()[0].status, AMBIGUOUS);
    assert_eq!(other.resume()[0].status, 0x86);
    let (answers, _, _) = other.give(&request(0xb7, &1u64.to_be_bytes(), b"", b""));
    assert!(answers.is_empty());
    assert_eq!(other.resume()[0].status, 0x86, "nor does who asks later");
}

#[test]
fn a_bucket_has_a_minimum_durability_level() {
    let world = World::new();
    let settings = BucketSettings { durability_min_level: 3, ..BucketSettings::default() };
    let node = world.node_with(settings);
    let mut connection = Connection::open(&node);
    assert_eq!(connection.give(&set("1")).0, [], "it waits for the disk");
    world.run_tasks();
    assert_eq!(connection.resume()[0].status, 0);
}

#[test]
fn unavailable_levels_are_refused() {
    let status = |settings: BucketSettings, level| {
        let world = World::new();
        let node = world.node_with(settings);
        let mut connection = Connection::open(&node);
        connection.ask(&durable(level, 1000, &set("1"))).status
    };
    let ephemeral = BucketSettings {
        kind: BucketKind::Ephemeral,
        eviction_policy: EvictionPolicy::None,
        ..BucketSettings::default()
    };
    assert_eq!(status(ephemeral.clone(), 1), 0);
    assert_eq!(status(ephemeral, 2), 0xa0, "there is no disk");
    let replicas = BucketSettings { replicas: 1, ..BucketSettings::default() };
    assert_eq!(status(replicas, 1), 0xa1, "there is no second node");
    assert_eq!(status(BucketSettings::default(), 4), 0xa0);
    let world = World::new();
    let node = world.node();
    let mut connection = Connection::open(&node);
    let read = durable(1, 1000, &request(0x00, b"", b"k", b""));
    assert_eq!(connection.ask(&read).status, 0x04, "a read is not durable");
    assert_eq!(connection.ask(&durable(1, 0, &set("1"))).status, 0x04, "no time at all");
}
