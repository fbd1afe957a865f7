//! The document API, in memory and over both stores, across reopenings.

use crate::{by_hand, durable_and_encrypted, open};
use nacre::{
    Cas, Collection, Db, Error, Lookup, MutateIn, Mutation, Options, PathError, Range, Write,
};
use std::ops::Bound;
use std::time::Duration;

fn memory() -> Db {
    Db::open_with(":memory:", by_hand()).unwrap()
}

fn body(collection: &Collection, key: &str) -> Option<String> {
    let found = collection.get(key).unwrap()?;
    Some(String::from_utf8(found.body().to_vec()).unwrap())
}

#[test]
fn documents_are_written_read_and_deleted() {
    let db = memory();
    let docs = db.default_collection();
    assert_eq!(docs.get("a").unwrap(), None);
    assert!(!docs.exists("a").unwrap());
    let first = docs.insert("a", b"{}", Write::new().flags(7)).unwrap();
    assert_eq!(docs.insert("a", b"{}", Write::new()), Err(Error::DocumentExists));
    let found = docs.get("a").unwrap().unwrap();
    assert_eq!(
        (found.body(), found.key(), found.cas(), found.flags(), found.expiry(), found.is_json()),
        (&b"{}"[..], &b"a"[..], first.cas, 7, 0, true)
    );
    let second = docs.replace("a", b"not json", Write::new().cas(first.cas)).unwrap();
    assert!(second.cas > first.cas && second.seqno > first.seqno);
    assert_eq!(docs.upsert("a", b"1", Write::new().cas(first.cas)), Err(Error::CasMismatch));
    assert_eq!(found.body(), b"{}", "what was read does not change");
    assert!(!docs.get("a").unwrap().unwrap().is_json());
    assert_eq!(docs.replace("b", b"1", Write::new()), Err(Error::DocumentNotFound));
    assert_eq!(docs.remove("a", Write::new().cas(first.cas)), Err(Error::CasMismatch));
    docs.remove("a", Write::new()).unwrap();
    assert_eq!(docs.remove("a", Write::new()), Err(Error::DocumentNotFound));
    assert_eq!(db.status().documents, 0);
}

#[test]
fn keys_and_values_have_limits_with_names() {
    let db = memory();
    let docs = db.default_collection();
    let invalid = |outcome: Result<_, Error>| matches!(outcome, Err(Error::InvalidArgument(_)));
    assert!(invalid(docs.get("").map(drop)));
    assert!(invalid(docs.upsert("k".repeat(251), b"1", Write::new()).map(drop)));
    docs.upsert("k".repeat(250), b"1", Write::new()).unwrap();
    let named = db.collection("s.c").unwrap();
    assert!(invalid(named.upsert("k".repeat(247), b"1", Write::new()).map(drop)));
    named.upsert("k".repeat(246), b"1", Write::new()).unwrap();
    assert_eq!(docs.upsert("k", &vec![b'x'; (20 << 20) + 1], Write::new()), Err(Error::TooLarge));
    for options in [
        Options { vbuckets: 0, ..by_hand() },
        Options { vbuckets: 1025, ..by_hand() },
        Options { quota_mib: 3, ..by_hand() },
        Options { segment_bytes: 1, ..by_hand() },
    ] {
        assert!(invalid(Db::open_with(":memory:", options).map(drop)));
    }
}

#[test]
fn counters_and_byte_documents_grow() {
    let db = memory();
    let docs = db.default_collection();
    assert_eq!(docs.add("n", 1, None, Write::new()), Err(Error::DocumentNotFound));
    assert_eq!(docs.add("n", 5, Some(10), Write::new()).unwrap().0, 10);
    assert_eq!(docs.add("n", 5, Some(10), Write::new()).unwrap().0, 15);
    assert_eq!(docs.add("n", -20, None, Write::new()).unwrap().0, 0);
    assert_eq!(docs.append("t", b"x", Write::new()), Err(Error::DocumentNotFound));
    docs.upsert("t", b"b", Write::new()).unwrap();
    docs.append("t", b"c", Write::new()).unwrap();
    docs.prepend("t", b"a", Write::new()).unwrap();
    assert_eq!(body(&docs, "t").unwrap(), "abc");
    assert_eq!(docs.add("t", 1, None, Write::new()), Err(Error::NotANumber));
}

#[test]
fn a_locked_document_is_changed_by_the_holder_of_its_cas() {
    let db = memory();
    let docs = db.default_collection();
    docs.upsert("a", b"1", Write::new()).unwrap();
    assert_eq!(docs.unlock("a", Cas(1)), Err(Error::DocumentNotLocked));
    let locked = docs.get_and_lock("a", Duration::from_secs(15)).unwrap();
    assert_eq!(docs.upsert("a", b"2", Write::new()), Err(Error::DocumentLocked));
    assert!(docs.get_and_lock("a", Duration::from_secs(15)).unwrap_err().is_retryable());
    docs.upsert("a", b"2", Write::new().cas(locked.cas())).unwrap();
    let locked = docs.get_and_lock("a", Duration::from_secs(1)).unwrap();
    docs.unlock("a", locked.cas()).unwrap();
    docs.upsert("a", b"3", Write::new()).unwrap();
    for seconds in [0, 31] {
        let outcome = docs.get_and_lock("a", Duration::from_secs(seconds));
        assert!(matches!(outcome, Err(Error::InvalidArgument(_))));
    }
}

#[test]
fn parts_of_documents_are_read_and_changed_with_attributes() {
    let db = memory();
    let docs = db.default_collection();
    let parts = [
        Mutation::upsert("owner.name", br#""Ada""#).xattr().create_path(),
        Mutation::upsert("cas", br#""${Mutation.CAS}""#).xattr().expand_macros(),
        Mutation::upsert("a", b"[1]"),
        Mutation::array_append("a", b"2,3"),
        Mutation::array_prepend("a", b"0"),
        Mutation::array_add_unique("a", b"9"),
        Mutation::counter("n.count", b"4").create_path(),
    ];
    assert_eq!(docs.mutate_in("d", &parts, MutateIn::replace()), Err(Error::DocumentNotFound));
    let made = docs.mutate_in("d", &parts, MutateIn::upsert()).unwrap();
    assert_eq!(made.results, [(6, b"4".to_vec())]);
    assert_eq!(docs.mutate_in("d", &parts, MutateIn::insert()).unwrap_err(), Error::DocumentExists);
    assert_eq!(body(&docs, "d").unwrap(), r#"{"a":[0,1,2,3,9],"n":{"count":4}}"#);
    let looked = docs
        .lookup_in(
            "d",
            &[
                Lookup::get("owner.name").xattr(),
                Lookup::get("cas").xattr(),
                Lookup::get("a[1]"),
                Lookup::count("a"),
                Lookup::exists("n.count"),
                Lookup::get("missing"),
                Lookup::document(),
            ],
        )
        .unwrap();
    let cas = format!("\"0x{:016x}\"", made.stored.cas.0.swap_bytes());
    let text = |part: &str| Ok(part.as_bytes().to_vec());
    assert_eq!(looked.cas, made.stored.cas);
    assert_eq!(
        looked.parts,
        [
            text("\"Ada\""),
            text(&cas),
            text("1"),
            text("5"),
            text(""),
            Err(PathError::PathNotFound),
            text(r#"{"a":[0,1,2,3,9],"n":{"count":4}}"#),
        ]
    );
    let failing = [Mutation::upsert("z", b"1"), Mutation::insert("a", b"1")];
    let refused = docs.mutate_in("d", &failing, MutateIn::replace()).unwrap_err();
    assert_eq!(refused, Error::Path { index: 1, error: PathError::PathExists });
    assert!(!body(&docs, "d").unwrap().contains('z'), "all or none");
    let stale = MutateIn::replace().cas(Cas(1));
    let refused = docs.mutate_in("d", &[Mutation::remove("a")], stale);
    assert_eq!(refused.unwrap_err(), Error::CasMismatch);
}

#[test]
fn ranges_are_in_the_order_of_keys() {
    let db = memory();
    let docs = db.collection("shop.orders").unwrap();
    for number in (0..50).rev() {
        docs.upsert(format!("o:{number:02}"), b"1", Write::new()).unwrap();
    }
    docs.upsert("p", b"1", Write::new()).unwrap();
    db.default_collection().upsert("o:elsewhere", b"1", Write::new()).unwrap();
    let keys = |range: Range| -> Vec<String> {
        let found = docs.scan(range).unwrap().map(|found| found.unwrap().key().to_vec());
        found.map(|key| String::from_utf8(key).unwrap()).collect()
    };
    let expected: Vec<String> = (0..50).map(|number| format!("o:{number:02}")).collect();
    assert_eq!(keys(Range::prefix("o:")), expected);
    assert_eq!(keys(Range::all()).len(), 51);
    let between = Range::between(Bound::Excluded(b"o:47"), Bound::Included(b"o:49"));
    assert_eq!(keys(between), ["o:48", "o:49"]);
    assert_eq!(keys(Range::prefix([0xff])), Vec::<String>::new());
    assert_eq!(docs.scan(Range::prefix("o:4")).unwrap().into_keys().count(), 10);
}

#[test]
fn written_documents_exist_when_the_folder_is_opened_again() {
    for options in durable_and_encrypted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("db");
        let cas = {
            let db = open(&path, &options);
            let docs = db.collection("shop.orders").unwrap();
            docs.upsert("gone", b"1", Write::new()).unwrap();
            docs.remove("gone", Write::new()).unwrap();
            docs.upsert("kept", b"{\"n\":1}", Write::new().expiry(86_400).flags(3)).unwrap().cas
        };
        let db = open(&path, &Options { create: false, ..options.clone() });
        assert_eq!(db.collections(), ["_default._default", "shop.orders"]);
        let docs = db.collection("shop.orders").unwrap();
        let found = docs.get("kept").unwrap().unwrap();
        assert_eq!((found.body(), found.cas(), found.flags()), (&b"{\"n\":1}"[..], cas, 3));
        assert!(found.expiry() > 0);
        assert!(!docs.exists("gone").unwrap());
        let newer = docs.upsert("kept", b"2", Write::new().cas(cas)).unwrap();
        assert!(newer.cas > cas);
        assert_eq!(db.status().unsaved, 0);
        db.close().unwrap();
        db.close().unwrap();
        assert_eq!(docs.get("kept"), Err(Error::Closed));
        assert_eq!(docs.upsert("kept", b"3", Write::new()), Err(Error::Closed));
        assert_eq!(db.flush(), Err(Error::Closed));
    }
}

#[test]
fn more_documents_than_the_quota_are_evicted_and_read_from_the_folder() {
    for options in durable_and_encrypted() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options { quota_mib: 4, sync: nacre::Sync::Never, ..options };
        let db = open(folder.path(), &options);
        let docs = db.default_collection();
        let value = vec![b'v'; 10_000];
        for number in 0..1000 {
            docs.upsert(format!("k{number}"), &value, Write::new()).unwrap();
        }
        let status = db.status();
        assert_eq!(status.documents, 1000);
        assert!(status.memory_bytes < 4 << 20, "{status:?}");
        for number in 0..1000 {
            let found = docs.get(format!("k{number}")).unwrap().unwrap();
            assert_eq!(found.body(), value);
        }
        let scanned = docs.scan(Range::all()).unwrap().map(|found| found.unwrap().body().len());
        assert_eq!(scanned.sum::<usize>(), 10_000_000);
    }
}

#[test]
fn a_write_makes_room_though_eviction_has_just_found_nothing_to_evict() {
    for options in durable_and_encrypted() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options { quota_mib: 4, sync: nacre::Sync::Never, ..options };
        let db = open(folder.path(), &options);
        let docs = db.default_collection();
        for number in 0..1000 {
            // Nothing is on disk yet, so the task that evicts frees nothing and pauses.
            db.poll().unwrap();
            docs.upsert(format!("k{number}"), &vec![b'v'; 10_000], Write::new()).unwrap();
        }
        assert_eq!(db.status().documents, 1000);
    }
}

#[test]
fn without_a_folder_a_full_quota_refuses_writes_by_name() {
    let db = Db::open_with(":memory:", Options { quota_mib: 4, ..by_hand() }).unwrap();
    let docs = db.default_collection();
    let value = vec![b'v'; 100_000];
    let refused =
        (0..100).find_map(|number| docs.upsert(format!("k{number}"), &value, Write::new()).err());
    assert_eq!(refused, Some(Error::QuotaExceeded));
    assert!(docs.get("k0").unwrap().is_some());
    docs.remove("k0", Write::new()).unwrap();
}
