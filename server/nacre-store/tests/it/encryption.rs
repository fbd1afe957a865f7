//! Encryption of the log store. The power cuts of `crash` run with encryption, too.

use crate::{commit, shown, tombstone, version};
use nacre_store::{Error, LogOptions, LogStore, MasterKey, SimDisk, Store};
use std::path::Path;
use std::sync::Arc;

const OPTIONS: LogOptions = LogOptions { segment_bytes: 64 << 10, seed: 9 };

fn open(disk: &Arc<SimDisk>, master: Option<&MasterKey>) -> Result<LogStore, Error> {
    LogStore::open_on_with_key(Arc::clone(disk) as Arc<_>, true, OPTIONS, master.cloned())
}

fn refusal(disk: &Arc<SimDisk>, master: Option<&MasterKey>) -> Error {
    let before = disk.operation_count();
    let refused = open(disk, master).err().expect("it must be refused");
    assert_eq!(disk.operation_count(), before, "nothing is written: {refused}");
    refused
}

#[test]
fn a_store_opens_only_with_its_own_key_and_is_unchanged_otherwise() {
    let (master, other) = (MasterKey::random().unwrap(), MasterKey::random().unwrap());
    let disk = SimDisk::new();
    let store = open(&disk, Some(&master)).unwrap();
    store.commit(&[commit(0, vec![version(1, "a", "one")])]).unwrap();
    // The process is killed: the log is not in the table yet.
    let killed = disk.copy();
    store.compact(0).unwrap();
    drop(store);
    for disk in [&killed, &disk] {
        assert!(matches!(refusal(disk, Some(&other)), Error::WrongKey { .. }));
        assert!(matches!(refusal(disk, None), Error::Encrypted { .. }));
        let store = open(disk, Some(&master)).unwrap();
        assert_eq!(shown(&store, 0, 0), "a@1=one | to 1");
    }
}

#[test]
fn a_store_without_encryption_refuses_a_key() {
    let disk = SimDisk::new();
    drop(open(&disk, None).unwrap());
    let key = MasterKey::random().unwrap();
    assert!(matches!(refusal(&disk, Some(&key)), Error::NotEncrypted { .. }));
    open(&disk, None).unwrap();
}

/// Returns the names of the files that contain `text`.
fn files_with(path: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap()) {
        let bytes = std::fs::read(entry.path()).unwrap();
        if bytes.windows(text.len()).any(|window| window == text.as_bytes()) {
            found.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    found
}

/// Writes versions, replaces some, and moves the rest by compaction.
fn fill(path: &Path, master: Option<MasterKey>) -> LogStore {
    let store = LogStore::open_with_key(path, true, OPTIONS, master).unwrap();
    let value = format!("the value {}", "v".repeat(400));
    for n in 1..=600 {
        let name = format!("the key {}", n % 50);
        store.commit(&[commit(0, vec![version(n, &name, &value)])]).unwrap();
    }
    store.commit(&[commit(0, vec![tombstone(601, "the key 1")])]).unwrap();
    while store.compact(1).unwrap() > 0 {}
    store
}

#[test]
fn no_file_contains_a_key_or_a_value_of_a_document() {
    let plain = tempfile::tempdir().unwrap();
    drop(fill(plain.path(), None));
    assert!(!files_with(plain.path(), "the key").is_empty(), "the search finds what is there");
    let copies = |path: &Path| {
        let names = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().ends_with(".copy")).count()
    };
    let sealed = tempfile::tempdir().unwrap();
    let master = MasterKey::random().unwrap();
    let store = fill(sealed.path(), Some(master.clone()));
    let expected = shown(&store, 0, 0);
    assert!(expected.contains("the key 2@552=the value"), "{expected}");
    assert!(copies(sealed.path()) > 0, "compaction has moved documents");
    drop(store);
    for text in ["the key", "the value"] {
        assert_eq!(files_with(sealed.path(), text), Vec::<String>::new(), "{text}");
    }
    let store = LogStore::open_with_key(sealed.path(), false, OPTIONS, Some(master)).unwrap();
    assert_eq!(shown(&store, 0, 0), expected);
}
