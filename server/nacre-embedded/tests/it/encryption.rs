//! Folders that are encrypted with a key.

use crate::disk::copy;
use crate::{by_hand, open};
use nacre::{Db, Error, Key, Options, Range, StoreKind, Sync, Write};
use nacre_store::{LogOptions, LogSpaces, LogStore, MasterKey, OnDamage, Space, Spaces};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The row of the settings that the key of the caller opens.
const ROW: &[u8] = b"key";
const SETTINGS: &str = "settings/0.space";

fn with(key: Option<Key>) -> Options {
    Options { key, sync: Sync::Always, ..by_hand() }
}

fn refusal(path: &Path, key: Option<Key>) -> Error {
    Db::open_with(path, with(key)).map(drop).unwrap_err()
}

fn fill(path: &Path, key: Option<Key>) {
    let db = open(path, &with(key));
    let orders = db.collection("shopping.orders").unwrap();
    for number in 0..50 {
        let value = format!("{{\"customer\":\"Ann Example {number}\"}}");
        orders.upsert(format!("order-{number}"), value.as_bytes(), Write::new()).unwrap();
    }
    orders.remove("order-0", Write::new()).unwrap();
    db.close().unwrap();
}

fn check(path: &Path, key: Option<Key>) {
    let db = open(path, &with(key));
    let orders = db.find_collection("shopping.orders").unwrap().unwrap();
    assert_eq!(orders.scan(Range::all()).unwrap().count(), 49);
    assert_eq!(orders.get("order-7").unwrap().unwrap().body(), br#"{"customer":"Ann Example 7"}"#);
    db.close().unwrap();
}

/// Returns the files of a folder, except for the one that has the number of the last process.
fn contents(path: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            found.extend(contents(&entry));
        } else if !entry.ends_with("lock") {
            let bytes = std::fs::read(&entry).unwrap();
            found.insert(entry, bytes);
        }
    }
    found
}

fn has(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|window| window == text)
}

fn settings(path: &Path) -> Arc<dyn Space> {
    let spaces = LogSpaces::open(&path.join("settings"), OnDamage::Refuse).unwrap();
    spaces.open("database").unwrap()
}

fn slot(path: &Path) -> Vec<u8> {
    settings(path).get(ROW).unwrap().expect("the folder is encrypted")
}

#[test]
fn only_its_key_opens_a_folder_and_a_refusal_changes_nothing() {
    let (bytes, passphrase) = (Key::Bytes([7; 32]), Key::Passphrase("open sesame".into()));
    for (key, others) in [
        (bytes.clone(), [Key::Bytes([8; 32]), passphrase.clone()]),
        (passphrase, [Key::Passphrase("open".into()), bytes]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        fill(folder.path(), Some(key.clone()));
        let before = contents(folder.path());
        for other in others {
            assert_eq!(refusal(folder.path(), Some(other)), Error::WrongKey);
        }
        assert_eq!(refusal(folder.path(), None), Error::Encrypted);
        assert!(contents(folder.path()) == before, "a refused open writes nothing");
        check(folder.path(), Some(key));
    }
}

#[test]
fn a_key_for_a_store_without_encryption_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let key = || Some(Key::Bytes([7; 32]));
    fill(folder.path(), None);
    assert_eq!(refusal(folder.path(), key()), Error::NotEncrypted);
    check(folder.path(), None);

    let path = folder.path().join("sled");
    let options = Options { store: StoreKind::Sled, ..with(key()) };
    let refused = Db::open_with(&path, options).map(drop);
    assert!(matches!(&refused, Err(Error::InvalidArgument(what)) if what.contains("sled")));
    assert!(!path.exists(), "a refused open creates nothing");
    drop(open(&path, &Options { store: StoreKind::Sled, ..with(None) }));
    assert_eq!(refusal(&path, key()), Error::NotEncrypted);

    let path = folder.path().join("empty");
    let refused = refusal(&path, Some(Key::Passphrase(String::new())));
    assert!(matches!(&refused, Error::InvalidArgument(what) if what.contains("passphrase")));
}

#[test]
fn no_file_contains_a_key_a_value_or_the_name_of_a_collection() {
    let words: [&[u8]; 3] = [b"order-", b"Ann Example", b"shopping"];
    let plain = tempfile::tempdir().unwrap();
    fill(plain.path(), None);
    for word in words {
        let found = contents(plain.path()).into_values().any(|bytes| has(&bytes, word));
        assert!(found, "the search finds what is there");
    }
    let folder = tempfile::tempdir().unwrap();
    let key = Some(Key::Bytes([7; 32]));
    fill(folder.path(), key.clone());
    let db = open(folder.path(), &with(key.clone()));
    db.collection("shopping.prices").unwrap();
    db.compact().unwrap();
    db.close().unwrap();
    for (path, bytes) in contents(folder.path()) {
        for word in words {
            assert!(!has(&bytes, word), "{}", path.display());
        }
    }
    check(folder.path(), key);
}

#[cfg(feature = "views")]
#[test]
fn design_documents_are_encrypted() {
    let design = r#"{"views": {"seen": {"map": "function (doc, meta) { emit(doc.hidden); }"}}}"#;
    for key in [None, Some(Key::Bytes([7; 32]))] {
        let folder = tempfile::tempdir().unwrap();
        let db = open(folder.path(), &with(key.clone()));
        db.put_design_document("d", design).unwrap();
        db.close().unwrap();
        let is_readable = contents(folder.path()).values().any(|bytes| has(bytes, b"doc.hidden"));
        assert_eq!(is_readable, key.is_none(), "{key:?}");
    }
}

#[test]
fn a_new_key_replaces_the_old_one() {
    let (old, new) = (Key::Bytes([7; 32]), Key::Passphrase("open sesame".into()));
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path(), Some(old.clone()));
    let before = slot(folder.path());
    let db = open(folder.path(), &with(Some(old.clone())));
    let empty = db.rekey(&Key::Passphrase(String::new()));
    assert!(matches!(empty, Err(Error::InvalidArgument(_))));
    db.rekey(&new).unwrap();
    // A change of the settings after it is encrypted, too.
    db.create_scope("later").unwrap();
    db.close().unwrap();
    assert_eq!(db.rekey(&new), Err(Error::Closed));
    assert_eq!(refusal(folder.path(), Some(old)), Error::WrongKey);
    for (path, bytes) in contents(folder.path()) {
        assert!(!has(&bytes, &before), "{} has what the old key opens", path.display());
    }
    check(folder.path(), Some(new.clone()));

    let plain = tempfile::tempdir().unwrap();
    assert_eq!(open(plain.path(), &with(None)).rekey(&new), Err(Error::NotEncrypted));
    assert_eq!(Db::open(":memory:").unwrap().rekey(&new), Err(Error::NotEncrypted));
}

/// A change of the key writes one row: wherever it ends, the old or the new key opens the folder.
#[test]
fn a_change_of_the_key_that_was_interrupted_leaves_the_old_or_the_new_one() {
    let (old, new) = (Key::Bytes([7; 32]), Key::Bytes([8; 32]));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("database");
    fill(&path, Some(old.clone()));
    let before = std::fs::read(path.join(SETTINGS)).unwrap();
    let master = MasterKey::unlock(&slot(&path), &old, &path).unwrap();
    settings(&path).apply(&[(ROW.to_vec(), Some(master.lock(&new).unwrap()))], true).unwrap();
    let after = std::fs::read(path.join(SETTINGS)).unwrap();
    assert!(after.len() > before.len());
    let (mut with_old, mut with_new) = (0, 0);
    for end in before.len()..=after.len() {
        let cut = folder.path().join(format!("cut-{end}"));
        copy(&path, &cut);
        std::fs::write(cut.join(SETTINGS), &after[..end]).unwrap();
        match Db::open_with(&cut, with(Some(old.clone()))) {
            Ok(_) => with_old += 1,
            Err(error) => {
                assert_eq!(error, Error::WrongKey, "cut at {end}");
                check(&cut, Some(new.clone()));
                with_new += 1;
            }
        }
        std::fs::remove_dir_all(&cut).unwrap();
    }
    assert!(with_old > 0 && with_new > 0, "{with_old} and {with_new}");
}

/// The first process has ended after it had created the store without a key, and before it had stored anything else.
#[test]
fn a_folder_whose_creation_without_a_key_was_interrupted_opens_without_one() {
    let folder = tempfile::tempdir().unwrap();
    let layout = LogOptions { segment_bytes: 1 << 20, seed: 1 };
    drop(LogStore::open(&folder.path().join("documents"), true, layout).unwrap());
    assert_eq!(refusal(folder.path(), Some(Key::Bytes([7; 32]))), Error::NotEncrypted);
    fill(folder.path(), None);
    check(folder.path(), None);
}

/// The first process has ended after it had stored the key, and before it had stored anything else.
#[test]
fn a_folder_whose_creation_was_interrupted_opens_with_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let key = Key::Bytes([7; 32]);
    let master = MasterKey::random().unwrap();
    settings(folder.path())
        .apply(&[(ROW.to_vec(), Some(master.lock(&key).unwrap()))], true)
        .unwrap();
    assert_eq!(refusal(folder.path(), Some(Key::Bytes([8; 32]))), Error::WrongKey);
    assert_eq!(refusal(folder.path(), None), Error::Encrypted);
    fill(folder.path(), Some(key.clone()));
    check(folder.path(), Some(key));
}

#[test]
fn a_database_in_memory_takes_a_key_and_a_store_of_the_caller_does_not() {
    let db = Db::open_with(":memory:", with(Some(Key::Bytes([7; 32])))).unwrap();
    db.default_collection().upsert("a", b"1", Write::new()).unwrap();
    let store = Arc::new(nacre_store::MemoryStore::default());
    let refused = Db::open_over(store, true, with(Some(Key::Bytes([7; 32])))).map(drop);
    assert!(matches!(refused, Err(Error::InvalidArgument(_))));
}
