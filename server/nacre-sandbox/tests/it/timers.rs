//! Timers: they are part of the state, and fire once, in a separate commit.

use crate::fixture::*;
use nacre_sandbox::{Limits, Partition, Setup};
use nacre_state::{MemoryStorage, StateStorage, Timer, TimerCopy};
use nacre_types::Vbid;
use std::sync::atomic::Ordering;
use std::time::Duration;

fn open_on(storage: &MemoryStorage, setup: Setup) -> Partition {
    Partition::open(probe(), setup, Box::new(storage.clone())).unwrap()
}

#[test]
fn timers_fire_once_when_they_are_due_and_outlive_a_restart() {
    let storage = MemoryStorage::default();
    let setup = granted("");
    let mut partition = open_on(&storage, setup.clone());
    let set = r#"[["timer","b",20,[["put","b","done"]]],["timer","a",10,[]],["timer","c",99,[]]]"#;
    tell(&mut partition, &[set]).unwrap();
    assert_eq!(partition.next_timer_us(), Some(NOW.unix_ns / 1000 + 10));
    assert_eq!(partition.on_timers(NOW).unwrap().timers, 0, "none is due yet");
    drop(partition);

    let mut partition = open_on(&storage, setup.clone());
    assert_eq!(partition.on_timers(later(30)).unwrap().timers, 2);
    assert_eq!(told(&partition), "a fired\nb fired\n");
    assert_eq!(request(&partition.reader(), "/state", "b"), "done");
    assert_eq!(partition.next_timer_us(), Some(NOW.unix_ns / 1000 + 99));
    drop(partition);
    let mut partition = open_on(&storage, setup);
    assert_eq!(partition.on_timers(later(30)).unwrap().timers, 0, "that they fired is committed");
    let status = partition.status();
    assert_eq!((status.timers, status.next_timer_us), (0, Some(NOW.unix_ns / 1000 + 99)));
}

#[test]
fn a_timer_may_set_itself_again_and_cancel_others() {
    let mut partition = open_probe(granted(""));
    let again = r#"[["is-set","b"],["timer","a",5,[["is-set","b"],["cancel","b"],["is-set","b"],["timer","a",100,[]]]],["timer","b",50,[]]]"#;
    tell(&mut partition, &[again]).unwrap();
    assert_eq!(partition.on_timers(later(10)).unwrap().timers, 1);
    assert_eq!(partition.next_timer_us(), Some(NOW.unix_ns / 1000 + 110));
    assert_eq!(partition.on_timers(later(60)).unwrap().timers, 0, "b was cancelled");
    assert_eq!(partition.on_timers(later(110)).unwrap().timers, 1);
    assert_eq!(
        told(&partition),
        "set: false\na fired\nset: true\ncancelled: true\nset: false\na fired\n"
    );
    assert_eq!(partition.next_timer_us(), None);
}

/// All timers are due in one call. The poison causes several calls, the first of which cancels a timer of a
/// later one.
#[test]
fn a_timer_that_kills_the_plugin_is_parked_and_the_others_fire() {
    let storage = MemoryStorage::default();
    let mut partition = open_on(&storage, granted(""));
    let steps: Vec<_> = (0..20)
        .map(|number| match number {
            7 => r#"["timer","07",7,[["panic","poison"]]]"#.to_owned(),
            0 => r#"["timer","00",0,[["cancel","19"]]]"#.to_owned(),
            _ => format!(r#"["timer","{number:02}",{number},[]]"#),
        })
        .collect();
    tell(&mut partition, &[&format!("[{}]", steps.join(","))]).unwrap();
    let report = partition.on_timers(later(100)).unwrap();
    assert_eq!(report.dead_timers.len(), 1);
    assert_eq!(report.dead_timers[0].name, "07");
    assert!(report.dead_timers[0].reason.contains("poison"), "{:?}", report.dead_timers);
    assert_eq!(report.timers, 18, "one was parked, one was cancelled");
    let told = told(&partition);
    assert!(told.contains("18 fired") && !told.contains("19 fired") && !told.contains("07 fired"));
    assert_eq!(partition.next_timer_us(), None);
    assert!(storage.clone().load().unwrap().timers.is_empty(), "the parked one is gone too");
    assert_eq!(partition.status().dead_timer_count, 1);
}

#[test]
fn timers_that_request_a_retry_are_all_still_set() {
    let mut partition = open_probe(granted(""));
    let set = r#"[["timer","a",1,[["put","x","1"],["timer","new",5,[]]]],["timer","b",2,[["retry","not yet"]]]]"#;
    tell(&mut partition, &[set]).unwrap();
    let error = partition.on_timers(later(10)).unwrap_err();
    assert!(error.is_retryable(), "{error}");
    assert_eq!(partition.next_timer_us(), Some(NOW.unix_ns / 1000 + 1));
    assert_eq!(request(&partition.reader(), "/state", "x"), "404 ", "what a wrote is dropped");
}

#[test]
fn poison_timers_in_a_row_stop_the_partition() {
    let limits = Limits { deadline: Duration::from_millis(200), ..Limits::default() };
    let mut partition = open_probe(Setup { limits, ..granted("") });
    let set =
        r#"[["timer","a",1,[["loop"]]],["timer","b",2,[["loop"]]],["timer","c",3,[["loop"]]]]"#;
    tell(&mut partition, &[set]).unwrap();
    let error = partition.on_timers(later(10)).unwrap_err();
    insta::assert_snapshot!(error, @"p is stopped: 3 timers in a row killed it, the last with: took longer than 200 ms");
    assert_eq!(partition.next_timer_us(), None, "a stopped partition waits for nothing");
}

#[test]
fn timers_count_as_state_and_have_names() {
    let limits = Limits { state_bytes: 1000, ..Limits::default() };
    let mut partition = open_probe(Setup { limits, ..granted("") });
    let error = tell(&mut partition, &[&format!(r#"[["timer","a",1,["{}"]]]"#, "x".repeat(1000))]);
    insta::assert_snapshot!(error.unwrap_err(), @"p: the state needs more than 1000 bytes");
    let mut partition = open_probe(granted(""));
    let report = tell(&mut partition, &[r#"[["timer","",1,[]]]"#]).unwrap();
    insta::assert_snapshot!(report.dead_letters[0].reason, @"the name of a timer must have 1 to 1024 bytes");
}

#[test]
fn a_storage_keeps_the_timers_that_are_left() {
    let storage = MemoryStorage::default();
    let mut partition = open_on(&storage, granted(""));
    tell(&mut partition, &[r#"[["timer","a",1,[]],["timer","b",2,[]]]"#]).unwrap();
    let mut partition = open_on(&storage, granted(""));
    tell(&mut partition, &[r#"[["cancel","a"]]"#]).unwrap();
    let due_us = NOW.unix_ns / 1000 + 2;
    let left = storage.clone().load().unwrap().timers;
    assert_eq!(left, [(None, "b".to_owned(), Timer { due_us, payload: b"[]".to_vec() })]);
}

#[test]
fn timers_whose_commit_fails_are_still_set_when_the_partition_is_opened_again() {
    let storage = crate::commits::Failing::default();
    let open = || Partition::open(probe(), granted(""), Box::new(storage.clone())).unwrap();
    let mut partition = open();
    tell(&mut partition, &[r#"[["timer","a",1,[["put","x","1"]]]]"#]).unwrap();
    storage.fails.store(true, Ordering::Relaxed);
    partition.on_timers(later(5)).unwrap_err();
    assert!(partition.on_timers(later(5)).is_err(), "it is stopped");
    storage.fails.store(false, Ordering::Relaxed);
    let mut partition = open();
    assert_eq!(partition.on_timers(later(5)).unwrap().timers, 1);
    assert_eq!(told(&partition), "a fired\n");
}

/// Updates `to` to the progress of `from` in a vBucket, as nodes do.
fn follow(to: &mut Partition, from: &Partition, vbid: Vbid) {
    let (reader, mut copying) = (from.reader(), TimerCopy::default());
    while to.standing(vbid).moment < from.standing(vbid).moment {
        let own = to.standing(vbid).moment;
        let share = reader.share(vbid, copying.position(own), 100);
        if let Some((standing, timers, whole)) = copying.take(own, share) {
            to.follow(vbid, standing, timers, whole).unwrap();
        }
    }
}

#[test]
fn timers_of_a_vbucket_fire_where_it_is_served() {
    let storage = MemoryStorage::default();
    let (mut first, mut second) = (open_probe(granted("")), open_on(&storage, granted("")));
    let vbid = Vbid(7);
    first.serve(vbid, 1, 1).unwrap();
    let set = r#"[["timer","stays",5,[]],["belong",7],["timer","a",10,[["timer","again",10,[]]]],["timer","b",20,[]]]"#;
    tell(&mut first, &[set, r#"[["belong",8],["timer","not served",30,[]]]"#]).unwrap();
    follow(&mut second, &first, vbid);
    assert_eq!(second.next_timer_us(), None, "what is copied does not fire");
    assert_eq!(first.on_timers(later(15)).unwrap().timers, 2);
    assert_eq!(told(&first), "stays fired\na fired\n");
    first.release(vbid);
    assert_eq!(first.on_timers(later(99)).unwrap().timers, 1, "what is not served stays here");
    follow(&mut second, &first, vbid);
    drop(second);
    let mut second = open_on(&storage, granted(""));
    assert_eq!(second.on_timers(later(99)).unwrap().timers, 0);
    second.serve(vbid, 2, 1).unwrap();
    assert_eq!(second.on_timers(later(99)).unwrap().timers, 2);
    assert_eq!(
        told(&second),
        "b fired\nagain fired\n",
        "what a fired timer sets is of its vBucket"
    );
    follow(&mut first, &second, vbid);
    first.serve(vbid, 3, 1).unwrap();
    assert_eq!(first.next_timer_us(), None, "they have fired elsewhere");
}

/// A node that takes over many vBuckets writes once for all of them.
#[test]
fn the_beginning_of_service_is_stored_with_the_next_commit() {
    let storage = MemoryStorage::default();
    let mut partition = open_on(&storage, granted(""));
    for vbid in [1, 2] {
        partition.serve(Vbid(vbid), 3, 1).unwrap();
        assert_eq!(partition.standing(Vbid(vbid)).moment.term, 3);
    }
    partition.release(Vbid(2));
    assert_eq!(partition.take_moved(), [Vbid(1)].into());
    drop(partition);
    let mut partition = open_on(&storage, granted(""));
    assert_eq!(partition.standing(Vbid(1)).moment.term, 0, "nothing was done with it");
    partition.serve(Vbid(1), 3, 2).unwrap();
    partition.serve(Vbid(2), 3, 2).unwrap();
    tell(&mut partition, &[r#"[["timer","a",1,[]]]"#]).unwrap();
    drop(partition);
    let partition = open_on(&storage, granted(""));
    assert_eq!([1, 2].map(|vbid| partition.standing(Vbid(vbid)).moment.term), [3, 3]);
}

/// Names are unique on the node, regardless of the vBucket of a timer.
#[test]
fn a_timer_takes_the_place_of_one_of_another_vbucket() {
    let mut partition = open_probe(granted(""));
    partition.serve(Vbid(1), 1, 1).unwrap();
    partition.serve(Vbid(2), 1, 1).unwrap();
    let set = r#"[["belong",1],["timer","a",1,[]],["belong",2],["timer","a",2,[]],["is-set","a"]]"#;
    tell(&mut partition, &[set]).unwrap();
    assert_eq!(partition.on_timers(later(5)).unwrap().timers, 1);
    let cancelled = r#"[["belong",1],["timer","b",1,[]],["belong",2],["cancel","b"]]"#;
    tell(&mut partition, &[cancelled]).unwrap();
    assert_eq!(told(&partition), "set: true\na fired\ncancelled: true\n");
    assert_eq!(partition.next_timer_us(), None);
}
