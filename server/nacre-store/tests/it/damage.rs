//! Errors name directories that were truncated, damaged or emptied.

use crate::{commit, shown, version};
use nacre_store::{Error, SledStore, Store, load_all};
use std::path::{Path, PathBuf};

fn open(path: &Path) -> Result<SledStore, Error> {
    SledStore::open(path, false, 1 << 20)
}

/// Creates a store with 200 commits, and closes it.
fn filled() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let store = SledStore::open(directory.path(), true, 1 << 20).unwrap();
    for n in 1..=200 {
        store
            .commit(&[commit((n % 8) as u16, vec![version(n, &format!("k{n}"), &"v".repeat(500))])])
            .unwrap();
    }
    directory
}

/// Opens a store and reads everything, as a node does at its start.
fn read_all(path: &Path) -> Result<usize, String> {
    let store = open(path).map_err(|error| error.to_string())?;
    let mut count = 0;
    load_all(&store, &mut |_, _| count += 1).map_err(|error| error.to_string())?;
    Ok(count)
}

#[test]
fn a_closed_store_reopens_with_all_commits() {
    let directory = filled();
    assert_eq!(read_all(directory.path()), Ok(200));
    let store = open(directory.path()).unwrap();
    store.commit(&[commit(1, vec![version(201, "k1", "new")])]).unwrap();
    drop(store);
    let store = open(directory.path()).unwrap();
    assert!(shown(&store, 1, 200).starts_with("k1@201=new"));
}

/// The threads of a closed database hold its file slightly longer than its handles do.
#[test]
fn a_store_opens_again_at_once_after_it_was_closed() {
    let directory = filled();
    for n in 201..400 {
        let store = open(directory.path()).unwrap_or_else(|error| panic!("commit {n}: {error}"));
        store
            .commit(&[commit((n % 8) as u16, vec![version(n, "key", &"v".repeat(9000))])])
            .unwrap();
    }
}

#[test]
fn a_store_in_use_is_not_opened_twice() {
    let directory = filled();
    let _open = open(directory.path()).unwrap();
    assert!(matches!(open(directory.path()), Err(Error::InUse { .. })));
}

#[test]
fn an_emptied_directory_is_not_taken_for_an_empty_bucket() {
    let directory = filled();
    std::fs::remove_dir_all(directory.path()).unwrap();
    let message = open(directory.path()).err().unwrap().to_string();
    assert!(message.contains("missing or empty"), "{message}");

    let directory = filled();
    std::fs::remove_dir_all(directory.path().join("sled")).unwrap();
    let message = open(directory.path()).err().unwrap().to_string();
    assert!(message.contains("200 commits were acknowledged, none is there"), "{message}");
}

#[test]
fn a_damaged_note_is_reported() {
    let directory = filled();
    std::fs::write(directory.path().join("acknowledged"), b"twelve bytes").unwrap();
    let message = open(directory.path()).err().unwrap().to_string();
    assert!(message.contains("acknowledged") && message.contains("checksum"), "{message}");
}

/// Wherever the database file is truncated or a byte is flipped, a start either finds everything or names the damage.
/// It never silently omits data.
#[test]
fn every_truncation_and_every_changed_byte_is_detected() {
    let original = filled();
    let file = PathBuf::from("sled/db");
    let bytes = std::fs::read(original.path().join(&file)).unwrap();
    let mut noticed = 0;
    for step in 0..40 {
        let position = bytes.len() * step / 40;
        for cut in [true, false] {
            let copy = tempfile::tempdir().unwrap();
            copy_directory(original.path(), copy.path());
            let mut damaged = bytes.clone();
            if cut {
                damaged.truncate(position);
            } else {
                damaged[position] ^= 0x55;
            }
            std::fs::write(copy.path().join(&file), damaged).unwrap();
            match std::panic::catch_unwind(|| read_all(copy.path())) {
                Ok(Ok(count)) => {
                    assert_eq!(count, 200, "cut {cut} at {position} of {}", bytes.len())
                }
                Ok(Err(message)) => {
                    assert!(message.contains("damaged"), "{message}");
                    noticed += 1;
                }
                Err(_) => panic!("cut {cut} at {position} ended in a panic"),
            }
        }
    }
    assert!(noticed > 10, "only {noticed} of 80 damages mattered");
}

fn copy_directory(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            std::fs::create_dir_all(&target).unwrap();
            copy_directory(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}
