//! The laws, over versions whose clusters collide, and examples of the rules.

use super::*;
use nacre_plugin::testing::{kept, merged, version};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Names of clusters.
const CLUSTERS: [&str; 3] = ["oslo", "rome", "bern"];

#[test]
fn of_each_cluster_the_greater_number_is_kept() {
    let merge = merged(
        &mut CounterMerge,
        r#"{"plus": {"oslo": 5, "rome": 1}, "minus": {"oslo": 1}}"#,
        r#"{"plus": {"rome": 2, "bern": 3}}"#,
    );
    assert_eq!(merge, r#"{"minus":{"oslo":1},"plus":{"bern":3,"oslo":5,"rome":2}}"#);
}

#[test]
fn other_members_are_those_of_the_newer_version() {
    let merge = merged(
        &mut CounterMerge,
        r#"{"plus": {"oslo": 5}, "title": "old", "gone": 1}"#,
        r#"{"plus": {"oslo": 4}, "title": "new", "price": 1.10}"#,
    );
    assert_eq!(merge, r#"{"plus":{"oslo":5},"price":1.10,"title":"new"}"#);
}

#[test]
fn a_version_that_counts_everything_stays_as_it_is() {
    let (less, more) = (r#"{"plus": {"oslo": 5}}"#, r#"{ "plus": {"oslo": 6} }"#);
    assert_eq!(merged(&mut CounterMerge, less, more), more);
    assert_eq!(merged(&mut CounterMerge, "{}", less), less);
    assert_eq!(merged(&mut CounterMerge, less, "{}"), r#"{"plus":{"oslo":5}}"#);
}

#[test]
fn a_newer_version_that_is_no_object_replaces_the_counter() {
    let counter = version(r#"{"plus": {"oslo": 5}}"#, 10);
    let tombstone = |cas| Version { deleted: true, cas, ..Version::default() };
    let resolve =
        |local: &Version, remote: &Version| CounterMerge.resolve(b"k", local, remote).unwrap();
    assert_eq!(resolve(&counter, &tombstone(11_000_000)), Verdict::KeepRemote);
    assert_eq!(resolve(&counter, &tombstone(9_000_000)), Verdict::KeepLocal);
    assert_eq!(resolve(&version("7", 11), &counter), Verdict::KeepLocal);
    assert_eq!(resolve(&version("7", 9), &counter), Verdict::KeepRemote);
}

#[test]
fn numbers_that_cannot_be_merged_are_refused_with_a_reason() {
    for body in [r#"{"plus": 7}"#, r#"{"minus": {"oslo": -1}}"#, r#"{"plus": {"oslo": 1.5}}"#, "{"]
    {
        let reason = match CounterMerge.resolve(b"k", &version("{}", 1), &version(body, 2)) {
            Err(Fault::Reject(reason)) => reason,
            other => panic!("{body} came to {other:?}"),
        };
        assert!(
            reason.starts_with("the version 2000000: plus and minus have a number"),
            "{reason}"
        );
    }
}

/// A step of a history of three clusters.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A client adds one at a cluster, or subtracts one.
    Count { at: usize, member: &'static str },
    /// A cluster receives the version of another one.
    Receive { at: usize, from: usize },
}

fn any_step() -> impl Strategy<Value = Step> {
    let member = prop_oneof![Just("plus"), Just("minus")];
    prop_oneof![
        (0..3usize, member).prop_map(|(at, member)| Step::Count { at, member }),
        (0..3usize, 0..3usize).prop_map(|(at, from)| Step::Receive { at, from }),
    ]
}

/// Does a step at the time `now`.
fn take(step: Step, versions: &mut [Version; 3], now: u64) {
    match step {
        Step::Count { at, member } => {
            let mut body: Value = serde_json::from_slice(&versions[at].body).unwrap();
            let number = body[member][CLUSTERS[at]].as_u64().unwrap_or(0);
            body[member][CLUSTERS[at]] = json!(number + 1);
            versions[at] = version(&body.to_string(), now);
        }
        Step::Receive { at, from } => {
            let body = kept(&mut CounterMerge, &versions[at], &versions[from]);
            versions[at] = Version { body, ..version("", now) };
        }
    }
}

fn value(version: &Version) -> i64 {
    let counter = Counter::read(version).unwrap();
    let sum = |numbers: &Numbers| numbers.values().sum::<u64>() as i64;
    sum(&counter.plus) - sum(&counter.minus)
}

fn any_version() -> impl Strategy<Value = Version> {
    let numbers = || prop::option::of(prop::collection::btree_map("[pqr]", 0u64..4, 0..4));
    (numbers(), numbers(), 0u64..3, 0u64..4).prop_map(|(plus, minus, other, cas)| {
        let mut body = json!({"other": other});
        for (name, numbers) in [("plus", plus), ("minus", minus)] {
            if let Some(numbers) = numbers {
                body[name] = json!(numbers);
            }
        }
        version(&body.to_string(), cas)
    })
}

proptest! {
    #[test]
    fn each_addition_and_subtraction_counts_once(
        steps in prop::collection::vec(any_step(), 0..60)
    ) {
        let mut versions = [(); 3].map(|()| version("{}", 0));
        let mut wanted = 0;
        let last = [(0, 1), (0, 2), (1, 0), (2, 0)].map(|(at, from)| Step::Receive { at, from });
        for (now, step) in (1..).zip(steps.into_iter().chain(last)) {
            match step {
                Step::Count { member: "plus", .. } => wanted += 1,
                Step::Count { .. } => wanted -= 1,
                Step::Receive { .. } => {}
            }
            take(step, &mut versions, now);
        }
        prop_assert_eq!(versions.each_ref().map(value), [wanted; 3]);
    }

    #[test]
    fn both_sides_come_to_the_same(one in any_version(), other in any_version()) {
        prop_assert_eq!(kept(&mut CounterMerge, &one, &other), kept(&mut CounterMerge, &other, &one));
    }

    #[test]
    fn a_merge_stays_as_it_is_when_its_parts_come_again(
        one in any_version(), other in any_version()
    ) {
        let merge = Version { body: kept(&mut CounterMerge, &one, &other), ..version("", 99) };
        for part in [&one, &other, &merge] {
            prop_assert_eq!(CounterMerge.resolve(b"k", &merge, part), Ok(Verdict::KeepLocal));
        }
    }

    #[test]
    fn counters_may_meet_in_any_order(a in any_version(), b in any_version(), c in any_version()) {
        let join = |one: &Version, other: &Version| {
            Version { body: kept(&mut CounterMerge, one, other), ..version("", 99) }
        };
        let (left, right) = (join(&join(&a, &b), &c), join(&a, &join(&b, &c)));
        prop_assert_eq!(Counter::read(&left).unwrap(), Counter::read(&right).unwrap());
    }

    #[test]
    fn any_bytes_get_a_verdict_or_a_reason(local: Vec<u8>, remote: Vec<u8>) {
        let version = |body| Version { body, datatype: 1, ..Version::default() };
        let _ = CounterMerge.resolve(b"k", &version(local), &version(remote));
    }

    #[test]
    fn any_numbers_get_a_verdict_or_a_reason(
        local in r#"\{"plus": ?(\{"[ab]": ?(-?[0-9]{1,25}|null|1e[0-9]{1,3})\}|[0-9]|\[\])\}"#,
        remote in any_version()
    ) {
        let _ = CounterMerge.resolve(b"k", &version(&local, 1), &remote);
    }
}
