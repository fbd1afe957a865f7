//! The laws, over versions whose bodies collide, and examples of the rules.

use super::*;
use nacre_plugin::testing::{kept, merged, version};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Returns the merge of two versions as a third cluster receives it.
fn joined(one: &Version, other: &Version) -> Version {
    Version { body: kept(&mut KeepBoth, one, other), ..version("", 99) }
}

#[test]
fn the_newer_version_has_the_body_of_the_older_one() {
    let merge = merged(&mut KeepBoth, r#"{"b": "x  y\" ", "a": 1}"#, r#"{"a": 2}"#);
    let wanted = r#"{"_conflicts":[{"at_ms":10,"body":{"a":1,"b":"x  y\" "}}],"a":2}"#;
    assert_eq!(merge, wanted);
}

#[test]
fn the_newest_bodies_come_first_and_each_of_them_once() {
    let merge = merged(
        &mut KeepBoth,
        r#"{"a": 1, "_conflicts": [{"at_ms": 5, "body": {"a": 3}}, {"at_ms": 7, "body": {"a": 0}}]}"#,
        r#"{"a": 2, "_conflicts": [{"at_ms": 6, "body": {"a":3}}, {"at_ms": 9, "body": {"a": 2}}]}"#,
    );
    let merge: Value = serde_json::from_str(&merge).unwrap();
    let wanted = json!([
        {"at_ms": 10, "body": {"a": 1}},
        {"at_ms": 7, "body": {"a": 0}},
        {"at_ms": 6, "body": {"a": 3}},
    ]);
    assert_eq!(merge, json!({"a": 2, "_conflicts": wanted}));
}

#[test]
fn equal_bodies_are_no_conflict() {
    assert_eq!(
        merged(&mut KeepBoth, r#"{"a": 1, "b": 2}"#, r#"{"b":2,"a":1}"#),
        r#"{"b":2,"a":1}"#
    );
}

#[test]
fn the_number_and_the_size_of_bodies_are_limited() {
    let mut document = version(r#"{"n": 0}"#, 0);
    for number in 1..30 {
        let next = version(&format!(r#"{{"n": {number}}}"#), number);
        document = Version { body: kept(&mut KeepBoth, &document, &next), ..next };
    }
    let body: Value = serde_json::from_slice(&document.body).unwrap();
    let numbers: Vec<_> = body["_conflicts"].as_array().unwrap().iter().collect();
    assert_eq!((numbers.len(), &body["n"]), (BODIES_MAX, &json!(29)));
    assert_eq!((&numbers[0]["body"]["n"], &numbers[9]["body"]["n"]), (&json!(28), &json!(19)));

    let large = version(&format!(r#"{{"text": "{}"}}"#, "x".repeat(BODIES_BYTES_MAX)), 30);
    let next = version(r#"{"n": 30}"#, 31);
    assert_eq!(KeepBoth.resolve(b"k", &large, &next), Ok(Verdict::KeepRemote));
    let full = version(&format!(r#"{{"text": "{}"}}"#, "x".repeat(DOCUMENT_BYTES_MAX)), 32);
    assert_eq!(KeepBoth.resolve(b"k", &full, &next), Ok(Verdict::KeepLocal));
}

#[test]
fn a_changed_document_wins_over_its_deletion() {
    let object = version(r#"{"a": 1}"#, 10);
    let tombstone = Version { deleted: true, ..version("", 20) };
    assert_eq!(KeepBoth.resolve(b"k", &object, &tombstone), Ok(Verdict::KeepLocal));
    assert_eq!(KeepBoth.resolve(b"k", &tombstone, &object), Ok(Verdict::KeepRemote));
}

#[test]
fn of_anything_but_objects_the_newer_version_is_kept() {
    let (object, array) = (version(r#"{"a": 1}"#, 10), version("[1]", 11));
    let raw = Version { datatype: 0, ..version("{}", 9) };
    assert_eq!(KeepBoth.resolve(b"k", &object, &array), Ok(Verdict::KeepRemote));
    assert_eq!(KeepBoth.resolve(b"k", &raw, &object), Ok(Verdict::KeepRemote));
}

#[test]
fn a_list_that_cannot_be_read_is_refused_with_a_reason() {
    for list in ["7", "[1]", r#"[{"at_ms": -1, "body": {}}]"#, r#"[{"at_ms": 1}]"#] {
        let body = format!(r#"{{"_conflicts": {list}}}"#);
        let reason = match KeepBoth.resolve(b"k", &version("{}", 1), &version(&body, 2)) {
            Err(Fault::Reject(reason)) => reason,
            other => panic!("{body} came to {other:?}"),
        };
        assert!(reason.starts_with("the version 2000000: _conflicts has elements"), "{reason}");
    }
}

/// Few bodies and times, so that they collide, and fewer bodies than a document can keep.
fn any_version() -> impl Strategy<Value = Version> {
    let lost = prop::collection::vec((0u64..6, 0u64..4), 0..4);
    (0u64..6, 0u64..4, prop::option::of(lost)).prop_map(|(number, at_ms, lost)| {
        let mut body = json!({"n": number});
        if let Some(lost) = lost {
            let written = |(n, at_ms): (u64, u64)| json!({"at_ms": at_ms, "body": {"n": n}});
            body[CONFLICTS] = lost.into_iter().map(written).collect();
        }
        version(&body.to_string(), at_ms)
    })
}

/// Returns all bodies of a version: its own, and those that lost.
fn bodies(version: &Version) -> BTreeSet<String> {
    let Document { body, lost, .. } = Document::read(version).unwrap();
    lost.into_keys().chain([body]).collect()
}

proptest! {
    #[test]
    fn both_sides_come_to_the_same(one in any_version(), other in any_version()) {
        prop_assert_eq!(kept(&mut KeepBoth, &one, &other), kept(&mut KeepBoth, &other, &one));
    }

    #[test]
    fn no_body_is_lost(one in any_version(), other in any_version()) {
        let both: BTreeSet<_> = bodies(&one).into_iter().chain(bodies(&other)).collect();
        prop_assert_eq!(bodies(&joined(&one, &other)), both);
    }

    #[test]
    fn a_merge_stays_as_it_is_when_its_parts_come_again(
        one in any_version(), other in any_version()
    ) {
        let merge = joined(&one, &other);
        for part in [&one, &other, &merge] {
            prop_assert_eq!(KeepBoth.resolve(b"k", &merge, part), Ok(Verdict::KeepLocal));
        }
    }

    #[test]
    fn the_bodies_are_the_same_in_any_order(
        a in any_version(), b in any_version(), c in any_version()
    ) {
        let (left, right) = (joined(&joined(&a, &b), &c), joined(&a, &joined(&b, &c)));
        prop_assert_eq!(bodies(&left), bodies(&right));
    }

    #[test]
    fn any_bytes_get_a_verdict_or_a_reason(local: Vec<u8>, remote: Vec<u8>) {
        let version = |body| Version { body, datatype: 1, ..Version::default() };
        let _ = KeepBoth.resolve(b"k", &version(local), &version(remote));
    }

    #[test]
    fn any_list_gets_a_verdict_or_a_reason(
        list in r#"\[?(\{"at_ms": ?-?[0-9]{1,21}, "body": ?("[a-c \\"]{0,4}"|\{\}|[0-9.]{1,3}) ?\}|null)\]?"#,
        remote in any_version()
    ) {
        let local = version(&format!(r#"{{"_conflicts": {list}}}"#), 1);
        let _ = KeepBoth.resolve(b"k", &local, &remote);
    }
}
