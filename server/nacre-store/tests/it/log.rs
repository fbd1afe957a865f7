//! Guarantees of the log store only.

use crate::{commit, shown, tombstone, version};
use nacre_store::{Commit, Disk, Error, LogOptions, LogStore, SimDisk, Store, load_all};
use std::path::Path;
use std::sync::Arc;

const OPTIONS: LogOptions = LogOptions { segment_bytes: 64 << 10, seed: 9 };

fn filled(path: &Path) {
    let store = LogStore::open(path, true, OPTIONS).unwrap();
    for n in 1..=20 {
        store.commit(&[commit(0, vec![version(n, &format!("k{n}"), "value")])]).unwrap();
    }
}

fn refusal(path: &Path) -> String {
    LogStore::open(path, false, OPTIONS).err().expect("it must be refused").to_string()
}

#[test]
fn a_log_store_in_use_is_not_opened_twice() {
    let directory = tempfile::tempdir().unwrap();
    filled(directory.path());
    let _open = LogStore::open(directory.path(), false, OPTIONS).unwrap();
    let again = LogStore::open(directory.path(), false, OPTIONS);
    assert!(matches!(again, Err(Error::InUse { .. })));
}

#[test]
fn a_directory_that_was_emptied_or_lost_files_is_not_taken_for_an_empty_bucket() {
    let directory = tempfile::tempdir().unwrap();
    filled(directory.path());
    std::fs::remove_file(directory.path().join("locations")).unwrap();
    let message = refusal(directory.path());
    assert!(message.contains("locations"), "{message}");
    let message = LogStore::open(directory.path(), true, OPTIONS).err().unwrap().to_string();
    assert!(message.contains("locations is missing"), "not even when it may be created: {message}");
    for entry in std::fs::read_dir(directory.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "log") {
            std::fs::remove_file(path).unwrap();
        }
    }
    let message = LogStore::open(directory.path(), true, OPTIONS).err().unwrap().to_string();
    assert!(message.contains("20 batches were acknowledged, none is there"), "{message}");
    std::fs::remove_file(directory.path().join("acknowledged")).unwrap();
    let message = refusal(directory.path());
    assert!(message.contains("missing or empty"), "{message}");
    std::fs::remove_dir_all(directory.path()).unwrap();
    let message = refusal(directory.path());
    assert!(message.contains("missing or empty"), "{message}");
    assert!(!directory.path().exists(), "a refused open creates nothing");
}

#[test]
fn a_later_format_is_refused() {
    let disk = SimDisk::new();
    drop(LogStore::open_on(Arc::clone(&disk) as Arc<_>, true, OPTIONS).unwrap());
    disk.open("locations").unwrap().write_at(&3_u32.to_be_bytes(), 8).unwrap();
    let refused = LogStore::open_on(disk, false, OPTIONS);
    assert!(matches!(refused, Err(Error::Format { found: 3, expected: 2, .. })));
}

/// The first version of the log store has written the files in `samples/log-1`: a saved table, followed by a log.
#[test]
fn a_store_of_the_first_format_opens() {
    let directory = tempfile::tempdir().unwrap();
    let sample = Path::new("tests/it/samples/log-1");
    for entry in std::fs::read_dir(sample).unwrap().map(|entry| entry.unwrap()) {
        std::fs::copy(entry.path(), directory.path().join(entry.file_name())).unwrap();
    }
    let store = LogStore::open(directory.path(), false, OPTIONS).unwrap();
    assert_eq!(shown(&store, 0, 0), "a@1=saved b@3=gone c@4=replayed | to 4");
    assert_eq!(shown(&store, 1023, 0), "z@1=saved | to 1");
}

/// Writes the commits in the sample.
#[expect(dead_code, reason = "says what the sample is, for the one who makes the next")]
fn write_sample(path: &Path) {
    let store = LogStore::open(path, true, OPTIONS).unwrap();
    let first = vec![version(1, "a", "saved"), version(2, "b", "saved")];
    store.commit(&[commit(0, first), commit(1023, vec![version(1, "z", "saved")])]).unwrap();
    drop(store);
    let store = LogStore::open(path, false, OPTIONS).unwrap();
    store.commit(&[commit(0, vec![tombstone(3, "b"), version(4, "c", "replayed")])]).unwrap();
    std::mem::forget(store);
}

#[test]
fn space_stays_below_twice_the_data_while_documents_are_overwritten() {
    let store = LogStore::open_on(SimDisk::new(), true, OPTIONS).unwrap();
    let value = "v".repeat(1000);
    let documents = 2000;
    let mut chance = crate::model::Chance(4);
    let mut worst: f64 = 0.0;
    for group in 0..400 {
        let first = group * 40;
        let mut keys: Vec<u64> = (first..first + 40).collect();
        if first >= documents {
            keys = (0..40).map(|_| chance.below(documents)).collect();
            keys.sort_unstable();
            keys.dedup();
        }
        let written = keys.iter().zip(first + 1..);
        let written = written.map(|(key, seqno)| version(seqno, &format!("k{key}"), &value));
        store.commit(&[Commit { ..commit(0, written.collect()) }]).unwrap();
        while store.compact(50).unwrap() > 0 {}
        if first >= documents {
            let usage = store.usage();
            worst = worst.max(usage.disk_bytes as f64 / usage.live_bytes as f64);
        }
    }
    assert!(worst < 2.0, "{worst:.2} times the data");
    let mut count = 0;
    load_all(&store, &mut |_, _| count += 1).unwrap();
    assert_eq!(count, documents);
}
