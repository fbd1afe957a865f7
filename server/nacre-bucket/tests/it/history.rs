//! A bucket that keeps superseded versions, and a consumer that requests them.

use crate::consumer::{BEGINNING, COLLECTIONS, Consumer, From, JSON, PRODUCER};
use crate::world::{Connection, Node, World, request};
use nacre_bucket::Bucket;
use nacre_cluster::{
    BucketChange, BucketSettings, Change, EvictionPolicy, HistoryRetention, StorageBackend,
};
use nacre_store::Store;
use nacre_types::{CollectionId, Vbid};
use std::collections::BTreeMap;
use std::sync::Arc;

fn settings(history: HistoryRetention) -> BucketSettings {
    BucketSettings {
        storage_backend: StorageBackend::Magma,
        eviction_policy: EvictionPolicy::Full,
        history,
        ..BucketSettings::default()
    }
}

fn an_hour() -> HistoryRetention {
    HistoryRetention { seconds: 3600, ..HistoryRetention::default() }
}

fn world(history: HistoryRetention) -> (Arc<World>, Arc<Node>, Connection) {
    let world = World::new();
    let node = world.node_with(settings(history));
    let connection = Connection::open(&node);
    (world, node, connection)
}

fn update(node: &Arc<Node>, history: HistoryRetention) {
    let settings = BucketSettings { vbucket_count: 4, flush_enabled: true, ..settings(history) };
    node.change(&Change::Buckets(BucketChange::UpdateBucket { name: "b".into(), settings }))
        .unwrap();
}

fn bucket(node: &Node) -> Arc<Bucket> {
    node.bucket("b").unwrap()
}

/// Returns a consumer that has requested every version.
fn follower(world: &Arc<World>, node: &Arc<Node>) -> Consumer {
    let mut consumer = Consumer::connect(world, node, &[COLLECTIONS, JSON]);
    assert_eq!(consumer.dcp("follower", PRODUCER), 0);
    assert_eq!(consumer.control("change_streams", "true"), 0);
    consumer
}

fn delete(connection: &mut Connection, key: &str) {
    assert_eq!(connection.ask(&request(0x04, b"", key.as_bytes(), b"")).status, 0);
}

/// Returns all messages of vBucket 0 from the beginning to its current end.
fn all(world: &Arc<World>, node: &Arc<Node>) -> Vec<String> {
    let mut consumer = follower(world, node);
    assert_eq!(consumer.stream(From { flags: 0x04, ..BEGINNING }).0, 0);
    consumer.received()
}

#[test]
fn a_consumer_of_history_receives_every_version_from_memory_and_the_store() {
    let (world, node, mut connection) = world(an_hour());
    connection.set("a", "1");
    let mut consumer = follower(&world, &node);
    assert_eq!(consumer.stream(BEGINNING).0, 0);
    connection.set("a", "2");
    delete(&mut connection, "a");
    connection.set("a", "3");
    let told = ["0 \0a@1=1", "0 \0a@2=2", "0 -\0a@3", "0 \0a@4=3"];
    assert_eq!(consumer.received()[0], "0 0..4 history");
    world.run_tasks();
    let (marker, rest) = (all(&world, &node)[0].clone(), all(&world, &node)[1..].to_vec());
    assert_eq!(marker, "0 0..4 disk history");
    assert_eq!(rest[..4], told);
    assert_eq!(rest[4..], ["0 end 0"]);

    let mut plain = Consumer::open(&world, &node);
    assert_eq!(plain.stream(BEGINNING).0, 0);
    assert_eq!(plain.received(), ["0 0..4 disk", "0 \0a@4=3"], "nothing has changed for others");
}

#[test]
fn documents_before_the_kept_history_form_their_own_snapshot() {
    let (world, node, mut connection) = world(HistoryRetention::default());
    connection.set("a", "1");
    connection.set("a", "2");
    connection.set("b", "1");
    world.run_tasks();
    assert_eq!(all(&world, &node), ["0 0..3 disk", "0 \0a@2=2", "0 \0b@3=1", "0 end 0"]);
    update(&node, an_hour());
    connection.set("c", "1");
    connection.set("c", "2");
    connection.set("b", "2");
    world.run_tasks();
    assert_eq!(
        all(&world, &node),
        [
            "0 0..3 disk",
            "0 \0a@2=2",
            "0 ->3",
            "0 4..6 disk history",
            "0 \0c@4=1",
            "0 \0c@5=2",
            "0 \0b@6=2",
            "0 end 0"
        ]
    );
    let mut consumer = follower(&world, &node);
    let uuid = bucket(&node).vbucket(Vbid(0)).unwrap().failover_log().current().0;
    let resumed = From { start: 4, end: 6, uuid, snapshot: (4, 6), ..BEGINNING };
    assert_eq!(consumer.stream(resumed).0, 0);
    let rest = ["0 4..6 disk history", "0 \0c@5=2", "0 \0b@6=2", "0 end 0"];
    assert_eq!(consumer.received(), rest);

    update(&node, HistoryRetention::default());
    world.run_tasks();
    let newest = ["0 0..6 disk", "0 \0a@2=2", "0 \0c@5=2", "0 \0b@6=2", "0 end 0"];
    assert_eq!(all(&world, &node), newest, "history is over");
}

#[test]
fn history_is_removed_at_its_age_limit_and_not_before() {
    let (world, node, mut connection) = world(an_hour());
    let seconds = |count: u64| {
        for _ in 0..count / 60 {
            world.wait(60);
            world.run_tasks();
        }
    };
    connection.set("a", "1");
    connection.set("a", "2");
    seconds(1800);
    connection.set("a", "3");
    connection.set("a", "4");
    seconds(1740);
    let versions = |told: Vec<String>| -> Vec<String> {
        told.into_iter().filter(|line| line.contains('=')).collect()
    };
    assert_eq!(versions(all(&world, &node)).len(), 4);
    seconds(300);
    assert_eq!(versions(all(&world, &node)), ["0 \0a@3=3", "0 \0a@4=4"]);
    seconds(3600);
    assert_eq!(versions(all(&world, &node)), ["0 \0a@4=4"]);
}

#[test]
fn history_is_cut_where_the_table_of_its_versions_outgrows_its_share_of_the_quota() {
    let world = World::new();
    let settings = BucketSettings { ram_quota_mb: 100, ..settings(an_hour()) };
    let node = world.node_with(settings);
    let mut connection = Connection::open(&node);
    let versions_max = (100 << 20) / 8 / 27;
    for step in 0..=versions_max + 1 {
        assert_eq!(connection.set("a", "1").status, 0);
        if step % 1000 == 0 {
            world.run_tasks();
        }
    }
    world.run_tasks();
    let versions = || world.store().history()[0].1.versions;
    assert_eq!(versions(), versions_max + 1, "it is not looked all the time");
    world.wait(2);
    world.run_tasks();
    assert_eq!(versions(), versions_max / 16 * 15);
}

#[test]
fn history_outlives_the_process() {
    let (world, node, mut connection) = world(an_hour());
    for value in ["1", "2", "3"] {
        connection.set("a", value);
    }
    world.run_tasks();
    connection.set("a", "lost");
    drop((connection, node));
    world.crash();
    let node = world.node();
    let mut connection = Connection::open(&node);
    connection.set("a", "4");
    world.run_tasks();
    let told = ["0 \0a@1=1", "0 \0a@2=2", "0 \0a@3=3", "0 \0a@4=4"];
    assert_eq!(all(&world, &node)[1..5], told);
}

#[test]
fn collections_choose_whether_they_keep_history() {
    let (world, node, _) = world(an_hour());
    let create = |collection: &str, history| {
        let (bucket, scope, collection) = ("b".into(), "_default".into(), collection.into());
        let change = Change::Buckets(BucketChange::CreateCollection {
            bucket,
            scope,
            collection,
            max_ttl: 0,
            history,
        });
        node.change(&change).unwrap();
    };
    create("kept", None);
    create("plain", Some(false));
    let collections = || {
        let manifest = bucket(&node).manifest();
        manifest.scopes[0].collections.iter().map(|found| found.history).collect::<Vec<_>>()
    };
    assert_eq!(collections(), [true, true, false]);
    let versions_of = |name: &str| {
        let id = bucket(&node).manifest().collection("_default", name).unwrap().id;
        let mut client = Consumer::connect(&world, &node, &[COLLECTIONS]);
        for value in ["1", "2"] {
            let key = [&[id as u8][..], b"k"].concat();
            assert_eq!(client.ask(&request(0x01, &[0; 8], &key, value.as_bytes())).0, 0);
        }
        world.run_tasks();
        let mut consumer = follower(&world, &node);
        let filter = format!(r#"{{"collections":["{id:x}"]}}"#);
        assert_eq!(consumer.stream(From { flags: 0x04, filter: &filter, ..BEGINNING }).0, 0);
        consumer.received().iter().filter(|line| line.contains('=')).count()
    };
    assert_eq!((versions_of("kept"), versions_of("plain")), (2, 1));
    let (bucket_name, scope, collection) = ("b".into(), "_default".into(), "plain".into());
    node.change(&Change::Buckets(BucketChange::UpdateCollection {
        bucket: bucket_name,
        scope,
        collection,
        max_ttl: None,
        history: Some(true),
    }))
    .unwrap();
    assert_eq!(collections(), [true, true, true]);
    let told = all(&world, &node);
    let events = told.iter().filter(|line| line.contains(" plain "));
    assert_eq!(events.count(), 2, "it was made, and changed: {told:?}");
    assert_eq!(versions_of("plain"), 3, "of the two versions before, one was kept as history");
}

#[test]
fn a_collection_that_is_dropped_takes_its_history_with_it() {
    let (world, node, mut connection) = world(an_hour());
    let (b, scope, collection) = ("b".to_owned(), "_default".to_owned(), "gone".to_owned());
    node.change(&Change::Buckets(BucketChange::CreateCollection {
        bucket: b.clone(),
        scope: scope.clone(),
        collection: collection.clone(),
        max_ttl: 0,
        history: None,
    }))
    .unwrap();
    let id = bucket(&node).manifest().collection("_default", "gone").unwrap().id;
    let mut client = Consumer::connect(&world, &node, &[COLLECTIONS]);
    for value in ["1", "2"] {
        let key = [&[id as u8][..], b"k"].concat();
        assert_eq!(client.ask(&request(0x01, &[0; 8], &key, value.as_bytes())).0, 0);
    }
    world.run_tasks();
    node.change(&Change::Buckets(BucketChange::DropCollection { bucket: b, scope, collection }))
        .unwrap();
    connection.set("a", "1");
    world.run_tasks();
    let told = all(&world, &node);
    let id = CollectionId(id).0;
    let events = [
        format!("0 event 0 @1 gone [0,{id}]"),
        format!("0 event 1 @4  [0,{id}]"),
        "0 \0a@5=1".into(),
    ];
    assert_eq!(told[1..4], events, "{told:?}");
}

#[test]
fn a_bucket_that_cannot_keep_history_reports_that() {
    let world = World::new();
    let node = world.node();
    let mut consumer = Consumer::open(&world, &node);
    assert_eq!(consumer.control("change_streams", "true"), 0x83);
    assert_eq!(consumer.control("change_streams", "false"), 0);
}

/// Random sequence of writes, deletions, flushes, restarts and moves of the start of history. From the start of history
/// on, a stream must return every version that was written.
#[test]
fn a_stream_of_history_leaves_out_nothing() {
    for seed in 0..40_u64 {
        let mut state = seed;
        let mut chance = |limit: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % limit
        };
        let (world, mut node, mut connection) = world(an_hour());
        let mut versions: BTreeMap<u64, String> = BTreeMap::new();
        let mut stored = 0;
        for step in 0..120 {
            let key = ["a", "b", "c"][chance(3) as usize];
            let high = versions.len() as u64;
            match chance(12) {
                0..6 => {
                    connection.set(key, &step.to_string());
                    versions.insert(high + 1, format!("0 \0{key}@{}={step}", high + 1));
                }
                6 => {
                    if connection.ask(&request(0x04, b"", key.as_bytes(), b"")).status == 0 {
                        versions.insert(high + 1, format!("0 -\0{key}@{}", high + 1));
                    }
                }
                7 => {
                    let start = nacre_types::Seqno(chance(high + 2));
                    bucket(&node).vbucket(Vbid(0)).unwrap().forget_history(start);
                }
                8 | 9 => {
                    world.run_tasks();
                    stored = high;
                }
                10 => {
                    drop((connection, node));
                    world.crash();
                    versions.split_off(&(stored + 1));
                    node = world.node();
                    connection = Connection::open(&node);
                }
                _ => {
                    let start = bucket(&node).vbucket(Vbid(0)).unwrap().history_start().unwrap();
                    let told = all(&world, &node);
                    // `all` also runs the tasks.
                    stored = high;
                    let found: Vec<&String> =
                        told.iter().filter(|line| line.contains('@')).collect();
                    let expected: Vec<&String> =
                        versions.range(start.0..).map(|(_, line)| line).collect();
                    let tail = &found[found.len() - expected.len().min(found.len())..];
                    assert_eq!(tail, expected, "seed {seed}, step {step}, from {start}");
                    let newest: BTreeMap<&str, &String> = versions
                        .values()
                        .map(|line| {
                            (line.split(['@', '=']).next().unwrap().trim_start_matches("0 -"), line)
                        })
                        .map(|(name, line)| (name.trim_start_matches("0 "), line))
                        .collect();
                    assert!(newest.values().all(|line| found.contains(line)), "{newest:?}");
                }
            }
        }
    }
}
