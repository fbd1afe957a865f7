//! Disks that are full or flip a bit, and folders that are copies.

use crate::{Chance, by_hand, durable_and_encrypted, open};
use nacre::{Db, Error, Options, Since, Sync, Write};
use nacre_store::{Fault, FaultStore, MemoryStore};
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[test]
fn a_full_disk_refuses_writes_and_recovers_by_itself() {
    for fault in [Fault::Full, Fault::Exhausted] {
        let store = Arc::new(FaultStore::new(MemoryStore::default()));
        let options = Options { sync: Sync::Always, ..by_hand() };
        let db = Db::open_over(Arc::clone(&store) as Arc<_>, true, options.clone()).unwrap();
        let docs = db.default_collection();
        docs.upsert("a", b"1", Write::new()).unwrap();
        store.inject(Some(fault));
        assert_eq!(docs.upsert("a", b"2", Write::new()), Err(Error::Full), "in memory only");
        assert_eq!(docs.upsert("b", b"1", Write::new()), Err(Error::Full), "refused");
        assert!(db.status().is_full);
        assert_eq!(docs.get("a").unwrap().unwrap().body(), b"2", "reads go on");
        assert_eq!(docs.get("b").unwrap(), None);
        store.inject(None);
        docs.upsert("b", b"2", Write::new()).unwrap();
        assert!(!db.status().is_full);
        drop((docs, db));
        let db = Db::open_over(store, true, options).unwrap();
        assert_eq!(db.default_collection().get("a").unwrap().unwrap().body(), b"2");
        assert_eq!(db.default_collection().get("b").unwrap().unwrap().body(), b"2");
    }
}

#[test]
fn a_disk_that_fails_ends_writes_by_name() {
    let store = Arc::new(FaultStore::new(MemoryStore::default()));
    let options = Options { sync: Sync::Always, vbuckets: 1, ..by_hand() };
    let db = Db::open_over(Arc::clone(&store) as Arc<_>, true, options).unwrap();
    let docs = db.default_collection();
    docs.upsert("a", b"1", Write::new()).unwrap();
    store.inject(Some(Fault::Torn));
    assert!(matches!(docs.upsert("a", b"2", Write::new()), Err(Error::Broken { .. })));
    store.inject(None);
    assert!(matches!(docs.upsert("a", b"3", Write::new()), Err(Error::Broken { .. })));
    assert!(docs.get("a").unwrap().is_some(), "reads go on");
    assert!(matches!(db.close(), Err(Error::Broken { .. })));
}

pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            files(&entry, found);
        } else if entry.metadata().unwrap().len() > 0 {
            found.push(entry);
        }
    }
}

#[test]
fn a_flipped_bit_is_named_or_changes_nothing() {
    let (mut named, mut harmless) = (0, 0);
    for (number, options) in durable_and_encrypted().into_iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        let db = open(folder.path(), &options);
        for number in 0..40 {
            let value = format!("value {number} {}", "x".repeat(100));
            db.default_collection()
                .upsert(format!("k{number}"), value.as_bytes(), Write::new())
                .unwrap();
        }
        drop(db);
        let mut chance = Chance(number as u64);
        for _ in 0..60 {
            let damaged = tempfile::tempdir().unwrap();
            copy(folder.path(), damaged.path());
            let mut found = Vec::new();
            files(damaged.path(), &mut found);
            found.retain(|path| !path.ends_with("lock"));
            found.sort();
            let path = &found[chance.below(found.len() as u64) as usize];
            let mut bytes = std::fs::read(path).unwrap();
            let bit = chance.below(bytes.len() as u64 * 8) as usize;
            bytes[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(path, bytes).unwrap();
            match Db::open_with(damaged.path(), options.clone()) {
                Ok(db) => {
                    let docs = db.default_collection();
                    for number in 0..40 {
                        let expected = format!("value {number} {}", "x".repeat(100));
                        match docs.get(format!("k{number}")) {
                            Ok(Some(found)) => assert_eq!(found.body(), expected.as_bytes()),
                            Ok(None) => panic!("bit {bit} of {} lost k{number}", path.display()),
                            Err(error) => assert!(matches!(error, Error::Damaged { .. })),
                        }
                    }
                    harmless += 1;
                }
                Err(Error::Damaged { what }) => {
                    assert!(!what.is_empty());
                    named += 1;
                }
                Err(Error::Newer { .. } | Error::Io { .. } | Error::InvalidArgument(_)) => {
                    named += 1
                }
                Err(other) => panic!("bit {bit} of {}: {other}", path.display()),
            }
        }
    }
    println!("flipped bits: {named} named, {harmless} harmless, 0 lost documents");
    assert!(named > 10 && harmless > 10);
}

#[test]
fn a_newer_format_is_refused_and_left_alone() {
    use nacre_store::{LogSpaces, OnDamage, Spaces};
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path(), &by_hand()));
    let format = |format: &str| {
        let spaces = LogSpaces::open(&folder.path().join("settings"), OnDamage::Refuse).unwrap();
        let row = (b"format".to_vec(), Some(format.as_bytes().to_vec()));
        spaces.open("database").unwrap().apply(&[row], true).unwrap();
    };
    format("3");
    let before = std::fs::read(folder.path().join("settings/0.space")).unwrap();
    let refused = Db::open_with(folder.path(), by_hand()).map(drop);
    assert_eq!(refused, Err(Error::Newer { format: 3, known: 2 }));
    assert_eq!(std::fs::read(folder.path().join("settings/0.space")).unwrap(), before);
    format("1");
    drop(open(folder.path(), &by_hand()));
}

#[test]
fn a_copy_is_another_branch_of_history() {
    for options in durable_and_encrypted() {
        let folder = tempfile::tempdir().unwrap();
        let (original, restored) = (folder.path().join("original"), folder.path().join("restored"));
        let db = open(&original, &options);
        let docs = db.default_collection();
        docs.upsert("a", b"1", Write::new()).unwrap();
        let mut early = db.changes(Since::Start).unwrap();
        while early.try_next().unwrap().is_some() {}
        drop((docs, db.clone()));
        let early_token = early.token();
        drop(early);
        drop(db);
        copy(&original, &restored);
        // The original continues, with a listener.
        let db = open(&original, &options);
        db.default_collection().upsert("a", b"2", Write::new()).unwrap();
        let mut late = db.changes(Since::Start).unwrap();
        while late.try_next().unwrap().is_some() {}
        let late_token = late.token();
        drop((late, db));
        // The copy continues too, with other writes at the same seqnos.
        let db = open(&restored, &options);
        db.default_collection().upsert("a", b"3", Write::new()).unwrap();
        db.default_collection().upsert("a", b"4", Write::new()).unwrap();
        assert!(matches!(db.changes(Since::Token(&late_token)).map(drop), Err(Error::Gone(_))));
        let mut known = db.changes(Since::Token(&early_token)).unwrap();
        let change = known.try_next().unwrap().unwrap();
        assert_eq!((change.key(), change.body()), (&b"a"[..], &b"4"[..]));
    }
}

#[test]
fn a_missing_folder_is_created_only_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("none");
    let refused = Db::open_with(&path, Options { create: false, ..by_hand() }).map(drop);
    assert!(matches!(refused, Err(Error::Io { .. })));
    assert!(!path.exists());
    std::fs::write(&path, "a file").unwrap();
    assert!(matches!(Db::open_with(&path, by_hand()).map(drop), Err(Error::Io { .. })));
}

#[test]
fn space_is_given_back_by_one_call() {
    for options in durable_and_encrypted() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options { sync: Sync::Never, segment_bytes: 64 << 10, ..options };
        let db = open(folder.path(), &options);
        let docs = db.default_collection();
        for round in 0..40 {
            for number in 0..20 {
                docs.upsert(format!("k{number}"), &vec![round; 4000], Write::new()).unwrap();
            }
            db.flush().unwrap();
        }
        let before = db.status().disk_bytes;
        db.compact().unwrap();
        let after = db.status().disk_bytes;
        assert!(after <= before, "{before} to {after}");
        for number in 0..20 {
            assert_eq!(docs.get(format!("k{number}")).unwrap().unwrap().body(), vec![39; 4000]);
        }
    }
}
