//! Decisions that were made while the disk of a node was full.

use crate::world::World;
use nacre_cluster::{BucketChange, BucketSettings, Change};
use nacre_node::{Error, Node};
use std::sync::Arc;
use std::sync::atomic::Ordering;

fn create(node: &Arc<Node>, name: &str) -> Result<(), Error> {
    let settings =
        BucketSettings { vbucket_count: 4, flush_enabled: true, ..BucketSettings::default() };
    let (name, uuid) = (name.to_owned(), node.new_uuid());
    node.change(&Change::Buckets(BucketChange::CreateBucket { name, uuid, settings })).map(drop)
}

fn drop_bucket(node: &Arc<Node>, name: &str) -> Result<(), Error> {
    node.change(&Change::Buckets(BucketChange::DropBucket { name: name.to_owned() })).map(drop)
}

#[track_caller]
fn assert_put_off(outcome: Result<(), Error>) {
    assert!(matches!(outcome, Err(Error::Effect(_))), "{outcome:?}");
}

/// Lets time pass, and runs the waiting tasks.
fn later(world: &World) {
    world.wait(5);
    world.run_tasks();
}

#[test]
fn a_bucket_serves_once_there_is_room_for_it() {
    let world = World::new();
    let node = world.bare_node();
    world.is_full.store(true, Ordering::Relaxed);
    assert_put_off(create(&node, "a"));
    assert_put_off(create(&node, "b"));
    later(&world);
    assert!(node.bucket("a").is_none());
    world.is_full.store(false, Ordering::Relaxed);
    later(&world);
    assert!(["a", "b"].iter().all(|name| node.bucket(name).is_some()));

    world.is_full.store(true, Ordering::Relaxed);
    assert_put_off(
        node.change(&Change::Buckets(BucketChange::FlushBucket { name: "a".into() })).map(drop),
    );
    assert_put_off(drop_bucket(&node, "b"));
    later(&world);
    assert_eq!((node.bucket("a").is_none(), world.store_count()), (true, 2));
    world.is_full.store(false, Ordering::Relaxed);
    later(&world);
    assert!(node.bucket("a").is_some(), "it was flushed");
    assert_eq!(world.store_count(), 1, "what was flushed and dropped is gone");
}

#[test]
fn a_store_that_could_not_be_removed_is_removed_by_the_next_process() {
    let world = World::new();
    let node = world.bare_node();
    create(&node, "a").unwrap();
    create(&node, "b").unwrap();
    world.is_full.store(true, Ordering::Relaxed);
    assert_put_off(drop_bucket(&node, "a"));
    world.crash();
    drop(node);
    world.is_full.store(false, Ordering::Relaxed);
    let node = world.bare_node();
    assert_eq!((node.bucket("b").is_some(), world.store_count()), (true, 1));
}
