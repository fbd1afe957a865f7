//! Persistence of a bucket, and the state of a bucket opened from that store.

use crate::world::{World, config, get, set};
use nacre_store::Fault;
use nacre_types::{Seqno, Vbid};
use nacre_vbucket::Refusal;

#[test]
fn stored_documents_are_served_again_and_a_crash_begins_a_new_branch() {
    let (world, config) = (World::new(), config());
    let bucket = world.open(&config, true).unwrap();
    set(&world, &bucket, 0, "stored").unwrap();
    world.run_tasks();
    assert_eq!(bucket.persisted.get(Vbid(0)), Seqno(1));
    set(&world, &bucket, 0, "lost").unwrap();
    world.crash();

    let bucket = world.open(&config, false).unwrap();
    assert!(get(&world, &bucket, 0, "stored").is_ok());
    assert_eq!(get(&world, &bucket, 0, "lost").unwrap_err(), Refusal::NotFound);
    let vbucket = bucket.vbucket(Vbid(0)).unwrap();
    assert_eq!(vbucket.failover_log().entries().len(), 2, "2 may have been seen by somebody");
}

#[test]
fn a_failed_commit_makes_its_vbuckets_read_only_and_no_others() {
    let (world, config) = (World::new(), config());
    let bucket = world.open(&config, true).unwrap();
    set(&world, &bucket, 0, "kept").unwrap();
    world.run_tasks();
    world.store().inject(Some(Fault::Torn));
    set(&world, &bucket, 0, "memory first").unwrap();
    world.run_tasks();
    world.store().inject(None);
    assert!(set(&world, &bucket, 0, "refused").is_err());
    assert!(get(&world, &bucket, 0, "kept").is_ok(), "reads go on");
    set(&world, &bucket, 1, "elsewhere").unwrap();
    world.run_tasks();
    let persisted = [0, 1].map(|vbid| bucket.persisted.get(Vbid(vbid)));
    assert_eq!(persisted, [Seqno(1); 2], "what failed is never called persisted");
}

#[test]
fn a_full_store_is_retried_until_it_has_space() {
    let (world, config) = (World::new(), config());
    let bucket = world.open(&config, true).unwrap();
    world.store().inject(Some(Fault::Full));
    set(&world, &bucket, 0, "k").unwrap();
    world.run_tasks();
    assert!(bucket.store_is_waiting());
    world.store().inject(None);
    world.pass(500);
    world.run_tasks();
    assert!(!bucket.store_is_waiting());
    assert_eq!(bucket.persisted.get(Vbid(0)), Seqno(1));
}

#[test]
fn a_closed_bucket_stores_its_changes_refuses_writes_and_ends_its_tasks() {
    let (world, config) = (World::new(), config());
    let bucket = world.open(&config, true).unwrap();
    set(&world, &bucket, 0, "k").unwrap();
    bucket.close();
    assert!(set(&world, &bucket, 0, "late").is_err());
    world.run_tasks();
    assert_eq!(bucket.persisted.get(Vbid(0)), Seqno(1));
    assert_eq!(world.task_count(), 0);
}

#[test]
fn a_store_with_more_vbuckets_than_its_bucket_is_refused() {
    let (world, mut config) = (World::new(), config());
    let bucket = world.open(&config, true).unwrap();
    set(&world, &bucket, 3, "k").unwrap();
    world.run_tasks();
    config.settings.vbucket_count = 2;
    let refused = world.open(&config, true);
    assert!(refused.err().unwrap().to_string().contains("the bucket has 2 vBuckets"));
}
