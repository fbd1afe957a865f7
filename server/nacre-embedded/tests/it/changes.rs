//! Listeners return every change once, in order, across reopenings, and never continue past lost
//! changes.

use crate::{by_hand, open};
use nacre::{Change, ChangeKind, Changes, Db, Error, Options, Since, Write};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn drain(changes: &mut Changes) -> Vec<Change> {
    let mut found = Vec::new();
    while let Some(change) = changes.try_next().unwrap() {
        found.push(change);
    }
    found
}

fn shown(changes: &[Change]) -> BTreeMap<String, (ChangeKind, String)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let row = |change: &Change| {
        let key = format!("{}/{}", change.collection(), text(change.key()));
        (key, (change.kind(), text(change.body())))
    };
    changes.iter().map(row).collect()
}

#[test]
fn a_listener_receives_existing_and_new_changes() {
    let db = Db::open_with(":memory:", by_hand()).unwrap();
    let docs = db.default_collection();
    let orders = db.collection("shop.orders").unwrap();
    docs.upsert("a", b"1", Write::new()).unwrap();
    docs.upsert("a", b"2", Write::new()).unwrap();
    orders.upsert("o", b"3", Write::new()).unwrap();
    let mut all = db.changes(Since::Start).unwrap();
    let mut of_orders = orders.changes(Since::Start).unwrap();
    let mut later = db.changes(Since::Now).unwrap();
    let written = |body: &str| (ChangeKind::Written, body.to_owned());
    assert_eq!(
        shown(&drain(&mut all)),
        BTreeMap::from([
            ("_default._default/a".into(), written("2")),
            ("shop.orders/o".into(), written("3"))
        ])
    );
    assert_eq!(drain(&mut of_orders).len(), 1);
    assert_eq!(drain(&mut later).len(), 0);
    docs.remove("a", Write::new()).unwrap();
    let removed =
        BTreeMap::from([("_default._default/a".to_owned(), (ChangeKind::Removed, String::new()))]);
    assert_eq!(shown(&drain(&mut all)), removed);
    assert_eq!(shown(&drain(&mut later)), removed);
    assert_eq!(drain(&mut of_orders).len(), 0);
    db.drop_scope("shop").unwrap();
    let end = loop {
        match of_orders.try_next() {
            Ok(change) => assert_eq!(change, None),
            Err(end) => break end,
        }
    };
    assert!(matches!(end, Error::CollectionNotFound(_)));
}

#[test]
fn a_listener_continues_from_its_token_in_the_next_process() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { quota_mib: 4, ..by_hand() };
    let db = open(folder.path(), &options);
    let docs = db.default_collection();
    for number in 0..200 {
        docs.upsert(format!("k{number}"), &[b'v'; 2000], Write::new()).unwrap();
    }
    let mut changes = db.changes(Since::Start).unwrap();
    let mut seen = Vec::new();
    for _ in 0..77 {
        seen.push(changes.try_next().unwrap().unwrap());
    }
    let token = changes.token();
    drop((changes, docs, db));
    let db = open(folder.path(), &options);
    let mut changes = db.changes(Since::Token(&token)).unwrap();
    seen.extend(drain(&mut changes));
    let keys: BTreeMap<_, _> = seen.iter().map(|change| (change.key(), change.place())).collect();
    assert_eq!((seen.len(), keys.len()), (200, 200), "each once");
    let mut none = db.changes(Since::Token(&changes.token())).unwrap();
    assert_eq!(drain(&mut none).len(), 0);
    for token in ["", "AAAA", "~"] {
        let refused = db.changes(Since::Token(token)).map(drop);
        assert!(matches!(refused, Err(Error::InvalidArgument(_))));
    }
}

#[test]
fn a_listener_waits_without_a_thread_of_its_own_and_rings() {
    let folder = tempfile::tempdir().unwrap();
    let db = Db::open(folder.path()).unwrap();
    let docs = db.default_collection();
    let mut changes = db.changes(Since::Now).unwrap();
    let rings = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&rings);
    changes.on_ready(move || {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(changes.next_within(Duration::from_millis(1)).unwrap(), None);
    std::thread::scope(|scope| {
        scope.spawn(|| docs.upsert("a", b"1", Write::new()).unwrap());
        let change = changes.next().unwrap().unwrap();
        assert_eq!(change.key(), b"a");
    });
    assert!(rings.load(Ordering::Relaxed) > 0);
    db.close().unwrap();
    assert_eq!(changes.next(), Some(Err(Error::Closed)));
    assert_eq!(changes.next(), None);
}

#[test]
fn a_slow_listener_reads_evicted_changes_from_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let db = open(folder.path(), &Options { quota_mib: 4, ..by_hand() });
    let docs = db.default_collection();
    let mut changes = db.changes(Since::Now).unwrap();
    for number in 0..600 {
        docs.upsert(format!("k{number}"), &vec![b'v'; 20_000], Write::new()).unwrap();
    }
    assert!(db.status().memory_bytes < 4 << 20);
    let seen = drain(&mut changes);
    assert_eq!(seen.len(), 600);
    assert!(seen.iter().all(|change| change.body().len() == 20_000));
}

// Case 22
#[test]
fn a_listener_that_panics_or_calls_back_does_not_block_others() {
    let db = Db::open_with(":memory:", by_hand()).unwrap();
    let docs = db.default_collection();
    let [mut panics, mut calls, mut others] = [(); 3].map(|()| db.changes(Since::Now).unwrap());
    panics.on_ready(|| panic!("a fault of the application, which this test makes"));
    let (read, of_call) = (Arc::new(AtomicUsize::new(0)), docs.clone());
    let counted = Arc::clone(&read);
    calls.on_ready(move || {
        let found = of_call.get("a").unwrap().expect("it was written before the listeners wake");
        counted.fetch_add(found.body().len(), Ordering::Relaxed);
    });
    for key in ["a", "b", "c"] {
        docs.upsert(key, b"1", Write::new()).unwrap();
        for changes in [&mut panics, &mut calls, &mut others] {
            assert_eq!(drain(changes).len(), 1, "{key}");
        }
    }
    assert!(read.load(Ordering::Relaxed) >= 3);
    let session = db.session(|| panic!("another one"));
    assert!(session.unwrap().receive(&[], &mut Vec::new()).is_ok());
}
