//! Each law, over versions whose members collide, and examples of the rules.

use super::*;
use proptest::prelude::*;

/// Returns a version that was written at a time in milliseconds.
fn version(body: &str, written_ms: u64) -> Version {
    Version { body: body.into(), cas: written_ms * 1_000_000, datatype: 1, ..Version::default() }
}

/// Returns the body that is kept on the side with `local`.
fn kept(local: &Version, remote: &Version) -> Vec<u8> {
    match FieldMerge.resolve(b"k", local, remote).unwrap() {
        Verdict::KeepLocal => local.body.clone(),
        Verdict::KeepRemote => remote.body.clone(),
        Verdict::Merged(body) => body,
    }
}

fn merged(one: &str, other: &str) -> String {
    String::from_utf8(kept(&version(one, 10), &version(other, 20))).unwrap()
}

#[test]
fn of_each_value_the_one_written_last_is_kept() {
    let merge = merged(
        r#"{"a": 1, "b": 1, "_t": {"a": 7, "b": 3}}"#,
        r#"{"a": 2, "b": 2, "_t": {"a": 5, "b": 4}}"#,
    );
    assert_eq!(merge, r#"{"_t":{"a":7,"b":4},"a":1,"b":2}"#);
}

#[test]
fn a_value_without_a_time_was_written_with_its_version() {
    let merge = merged(r#"{"a": 1, "b": 1, "only": 0}"#, r#"{"a": 2, "b": 2, "_t": {"b": 9}}"#);
    assert_eq!(merge, r#"{"_t":{"a":20,"b":10,"only":10},"a":2,"b":1,"only":0}"#);
}

#[test]
fn a_time_without_a_value_removes_what_is_older() {
    assert_eq!(
        merged(r#"{"_t": {"a": 15}}"#, r#"{"a": 2, "_t": {"a": 14}}"#),
        r#"{"_t":{"a":15}}"#
    );
    let newer = merged(r#"{"_t": {"a": 15}}"#, r#"{"a": 2}"#);
    assert_eq!(newer, r#"{"_t":{"a":20},"a":2}"#);
}

#[test]
fn sets_unite_and_of_counters_each_place_keeps_its_greater_number() {
    let merge = merged(
        r#"{"tags": {"_set": ["b", "a"]}, "likes": {"_count": {"oslo": 5, "rome": 1}}}"#,
        r#"{"tags": {"_set": ["c", "a"]}, "likes": {"_count": {"rome": 2, "bern": 1}}}"#,
    );
    assert_eq!(
        merge,
        r#"{"likes":{"_count":{"bern":1,"oslo":5,"rome":2}},"tags":{"_set":["a","b","c"]}}"#
    );
}

#[test]
fn digits_that_no_number_of_a_machine_holds_are_kept() {
    let merge = merged(r#"{"a": 123456789012345678901234567890.10}"#, r#"{"b": 1}"#);
    assert!(merge.contains(r#""a":123456789012345678901234567890.10"#), "{merge}");
}

#[test]
fn what_is_no_object_is_kept_as_the_newer_version_has_it() {
    let object = version(r#"{"a": 1}"#, 10);
    let tombstone = |cas| Version { deleted: true, cas, ..Version::default() };
    let raw = Version { datatype: 0, ..version(r#"{"b": 1}"#, 9) };
    let array = version("[1]", 12);
    let resolve =
        |local: &Version, remote: &Version| FieldMerge.resolve(b"k", local, remote).unwrap();
    assert_eq!(resolve(&object, &tombstone(11_000_000)), Verdict::KeepRemote);
    assert_eq!(resolve(&object, &raw), Verdict::KeepLocal);
    assert_eq!(resolve(&object, &array), Verdict::KeepRemote);
    assert_eq!(resolve(&tombstone(9_000_000), &object), Verdict::KeepRemote);
}

#[test]
fn what_cannot_be_read_is_refused_with_a_reason() {
    let refused = |body: &str| match FieldMerge.resolve(b"k", &version("{}", 1), &version(body, 2))
    {
        Err(Fault::Reject(reason)) => reason,
        other => panic!("{body} came to {other:?}"),
    };
    assert!(refused(r#"{"a": 1"#).starts_with("the version 2000000: EOF"));
    assert!(refused(r#"{"_t": 7}"#).contains("_t has a time for each member"));
    assert!(refused(r#"{"_t": {"a": -1}}"#).contains("_t has a time for each member"));
}

fn any_member() -> impl Strategy<Value = String> {
    let set = prop::collection::btree_set("[xyz]", 0..3);
    let counter = prop::collection::btree_map("[pq]", 0u64..4, 0..3);
    prop_oneof![
        (0u8..3).prop_map(|number| number.to_string()),
        Just(r#"{"deep": [1, null]}"#.to_owned()),
        set.prop_map(|elements| format!(r#"{{"_set": {}}}"#, serde_json::json!(elements))),
        counter.prop_map(|counts| format!(r#"{{"_count": {}}}"#, serde_json::json!(counts))),
    ]
}

/// Few names and times, so that they collide.
fn any_version() -> impl Strategy<Value = Version> {
    let members = prop::collection::btree_map("[abc]", any_member(), 0..4);
    let times = prop::option::of(prop::collection::btree_map("[abc]", 0u64..4, 0..4));
    (members, times, 0u64..4).prop_map(|(members, times, written_ms)| {
        let mut parts: Vec<_> =
            members.iter().map(|(name, text)| format!("\"{name}\": {text}")).collect();
        parts.extend(times.map(|times| format!("\"_t\": {}", serde_json::json!(times))));
        version(&format!("{{{}}}", parts.join(", ")), written_ms)
    })
}

/// Returns the merge of two versions as seen by a third side, with a CAS of its own.
fn joined(one: &Version, other: &Version) -> Version {
    Version { body: kept(one, other), ..version("", 99) }
}

/// Returns the content of a version, independent of its text.
fn said(version: &Version) -> Members {
    read(version).unwrap()
}

proptest! {
    #[test]
    fn both_sides_come_to_the_same(one in any_version(), other in any_version()) {
        prop_assert_eq!(kept(&one, &other), kept(&other, &one));
    }

    #[test]
    fn what_is_merged_stays_as_it_is_when_its_parts_come_again(
        one in any_version(), other in any_version()
    ) {
        let both = read(&one).unwrap().join(read(&other).unwrap());
        let merged = Version { body: both.write(), ..version("", 99) };
        for part in [&one, &other, &merged] {
            prop_assert_eq!(said(&joined(&merged, part)), said(&merged));
        }
    }

    #[test]
    fn versions_may_meet_in_any_order(
        a in any_version(), b in any_version(), c in any_version()
    ) {
        let join = |one: Members, other: Members| {
            // Through the written form, as another side receives it.
            Members::read(&one.join(other).write(), 99).unwrap()
        };
        let (a, b, c) = (said(&a), said(&b), said(&c));
        prop_assert_eq!(
            join(join(a.clone(), b.clone()), c.clone()),
            join(a, join(b, c))
        );
    }

    #[test]
    fn any_bytes_get_a_verdict_or_a_reason(local: Vec<u8>, remote: Vec<u8>) {
        let version = |body| Version { body, datatype: 1, ..Version::default() };
        let _ = FieldMerge.resolve(b"k", &version(local), &version(remote));
    }
}
