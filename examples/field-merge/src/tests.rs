//! Each law, over versions whose members collide, and examples of the rules.

use super::*;
use nacre_plugin::testing::{kept, merged, version};
use proptest::prelude::*;

#[test]
fn of_each_value_the_one_written_last_is_kept() {
    let merge = merged(
        &mut FieldMerge,
        r#"{"a": 1, "b": 1, "_t": {"a": 7, "b": 3}}"#,
        r#"{"a": 2, "b": 2, "_t": {"a": 5, "b": 4}}"#,
    );
    assert_eq!(merge, r#"{"_t":{"a":7,"b":4},"a":1,"b":2}"#);
}

#[test]
fn a_value_without_a_time_was_written_with_its_version() {
    let merge = merged(
        &mut FieldMerge,
        r#"{"a": 1, "b": 1, "only": 0}"#,
        r#"{"a": 2, "b": 2, "_t": {"b": 9}}"#,
    );
    assert_eq!(merge, r#"{"_t":{"a":20,"b":10,"only":10},"a":2,"b":1,"only":0}"#);
}

#[test]
fn a_time_without_a_value_removes_what_is_older() {
    assert_eq!(
        merged(&mut FieldMerge, r#"{"_t": {"a": 15}}"#, r#"{"a": 2, "_t": {"a": 14}}"#),
        r#"{"_t":{"a":15}}"#
    );
    let newer = merged(&mut FieldMerge, r#"{"_t": {"a": 15}}"#, r#"{"a": 2}"#);
    assert_eq!(newer, r#"{"_t":{"a":20},"a":2}"#);
}

#[test]
fn sets_unite_and_of_counters_each_place_keeps_its_greater_number() {
    let merge = merged(
        &mut FieldMerge,
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
    let merge =
        merged(&mut FieldMerge, r#"{"a": 123456789012345678901234567890.10}"#, r#"{"b": 1}"#);
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

/// Returns what both sides keep of two versions that were changed from `base`, which was written at 5.
fn merged_since(base: &str, older: &str, newer: &str) -> String {
    let conflict = Conflict::between(&version(older, 10), &version(newer, 20));
    let conflict = conflict.since(&version(base, 5));
    let kept = |conflict: &Conflict| {
        let verdict = FieldMerge.resolve_conflict(conflict).unwrap();
        String::from_utf8(verdict.body(&conflict.local, &conflict.remote).to_vec()).unwrap()
    };
    let body = kept(&conflict);
    assert_eq!(kept(&conflict.swapped()), body, "the other side keeps the same");
    body
}

#[test]
fn a_member_that_one_side_removed_and_the_other_one_left_alone_is_removed() {
    let base = r#"{"a": 1, "b": 1, "tags": {"_set": ["x"]}}"#;
    let merge = merged_since(base, r#"{"a": 1}"#, r#"{"a": 2, "b": 1, "tags": {"_set": ["x"]}}"#);
    assert_eq!(merge, r#"{"_t":{"a":20,"b":10,"tags":10},"a":2}"#);
    let merge =
        merged_since(base, r#"{"b": 1, "tags": {"_set": ["x", "y"]}}"#, r#"{"a": 1, "b": 1}"#);
    assert_eq!(merge, r#"{"_t":{"a":10,"b":5},"b":1,"tags":{"_set":["x","y"]}}"#);
}

#[test]
fn a_change_wins_over_a_value_that_is_as_in_the_ancestor() {
    let merge = merged_since(r#"{"a": 1, "b": 1}"#, r#"{"a": 2, "b": 1}"#, r#"{"a": 1, "b": 3}"#);
    assert_eq!(merge, r#"{"_t":{"a":10,"b":20},"a":2,"b":3}"#);
    // Both sides changed the value, or one side removed it: the later change wins, as without an ancestor.
    let merge = merged_since(r#"{"a": 1, "b": 1}"#, r#"{"a": 2}"#, r#"{"a": 3, "b": 2}"#);
    assert_eq!(merge, r#"{"_t":{"a":20,"b":20},"a":3,"b":2}"#);
    // The time of the value is the time at which it was written.
    let merge = merged_since(r#"{"a": 1}"#, r#"{"a": 2}"#, r#"{"a": 1, "_t": {"a": 15}}"#);
    assert_eq!(merge, r#"{"_t":{"a":15},"a":1}"#);
}

#[test]
fn an_ancestor_that_is_no_object_decides_nothing() {
    for base in ["[1]", r#"{"_t": 7}"#] {
        assert_eq!(merged_since(base, r#"{"a": 1}"#, "{}"), r#"{"_t":{"a":10},"a":1}"#);
    }
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
    Version { body: kept(&mut FieldMerge, one, other), ..version("", 99) }
}

/// Returns the content of a version, independent of its text.
fn said(version: &Version) -> Members {
    read(version).unwrap()
}

proptest! {
    #[test]
    fn both_sides_come_to_the_same(one in any_version(), other in any_version()) {
        prop_assert_eq!(kept(&mut FieldMerge, &one, &other), kept(&mut FieldMerge, &other, &one));
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
    fn both_sides_come_to_the_same_since_any_ancestor(
        base in any_version(), one in any_version(), other in any_version()
    ) {
        let kept = |local: &Version, remote: &Version| {
            let conflict = Conflict::between(local, remote).since(&base);
            let verdict = FieldMerge.resolve_conflict(&conflict).unwrap();
            verdict.body(local, remote).to_vec()
        };
        prop_assert_eq!(kept(&one, &other), kept(&other, &one));
    }

    #[test]
    fn any_bytes_get_a_verdict_or_a_reason(local: Vec<u8>, remote: Vec<u8>) {
        let version = |body| Version { body, datatype: 1, ..Version::default() };
        let _ = FieldMerge.resolve(b"k", &version(local), &version(remote));
    }
}
