//! Backups that keep every version: a reader can read at any moment that they cover, and at no other.

use nacre_backup::{
    BackupId, BucketSource, Error, MemoryStore, MergeRange, Reader, Record, RecordKind, Repository,
    Task, TaskOptions, merge,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Nanoseconds per millisecond: a CAS is in nanoseconds, the time of a backup in milliseconds.
const MS: u64 = 1_000_000;

/// A write: millisecond, key, and value; `None` for a deletion.
type Write = (u64, &'static str, Option<u64>);

/// The history of the only vBucket. The seqno of a write is its position, from 1.
const WRITES: [Write; 8] = [
    (10, "a", Some(1)),
    (20, "b", Some(1)),
    (30, "a", Some(2)),
    (40, "b", None),
    (50, "a", Some(3)),
    (60, "c", Some(1)),
    (70, "a", None),
    (80, "b", Some(2)),
];

fn repository() -> Repository {
    let store = Arc::new(MemoryStore::default());
    Repository::create(&*store, BackupId::new(1, 1, None), None).unwrap();
    Repository::open(store, None).unwrap()
}

/// Backs up the history up to seqno `high`, as snapshots that end at the given seqnos. Each snapshot has every version, or omits
/// those that it replaces itself.
fn take(repository: &Repository, now_ms: u64, snapshots: &[(u64, bool)]) -> BackupId {
    let source = BucketSource { name: "b".into(), uuid: "u".into(), vbuckets: 1 };
    let options = TaskOptions { now_ms, random: [now_ms as u8; 16], is_full: false };
    let task = Task::begin(repository, &[source], options).unwrap();
    let mut worker = task.worker();
    let high = snapshots.last().unwrap().0;
    let mut take = worker.begin(0, 0, high);
    take.accepted(&[(9, 0)]).unwrap();
    let mut from = take.request().start;
    for (end, is_history) in snapshots {
        take.snapshot(*end, *is_history).unwrap();
        for seqno in from + 1..=*end {
            let (ms, key, value) = WRITES[seqno as usize - 1];
            let is_newest = (seqno + 1..=*end).all(|later| WRITES[later as usize - 1].1 != key);
            if !is_newest && !is_history {
                continue;
            }
            let text = value.unwrap_or_default().to_string();
            let record = Record {
                kind: if value.is_some() { RecordKind::Set } else { RecordKind::Deletion },
                seqno,
                cas: ms * MS,
                rev: seqno,
                flags: 0,
                expiry: 0,
                datatype: 0,
                collection: 0,
                key: key.as_bytes(),
                value: if value.is_some() { text.as_bytes() } else { b"" },
            };
            take.record(&record, &mut worker).unwrap();
        }
        from = *end;
    }
    worker.finish(0, take).unwrap();
    worker.flush().unwrap();
    task.complete(now_ms, "test", BTreeMap::new(), BTreeMap::new()).unwrap().id
}

/// Returns the documents of a reader.
fn documents(reader: &Reader<'_>) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut each = |record: &Record<'_>| {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        match record.is_document() {
            true => drop(found.insert(text(record.key), text(record.value))),
            false => drop(found.remove(&text(record.key))),
        }
    };
    let shown = reader.for_each(0, |_, record| {
        each(record);
        Ok::<(), Error>(())
    });
    shown.unwrap();
    found
}

/// Returns the documents at a millisecond.
fn expected(ms: u64) -> BTreeMap<String, String> {
    let mut documents = BTreeMap::new();
    for (_, key, value) in WRITES.iter().filter(|(at, ..)| *at <= ms) {
        match value {
            Some(value) => drop(documents.insert((*key).to_owned(), value.to_string())),
            None => drop(documents.remove(*key)),
        }
    }
    documents
}

#[test]
fn every_covered_moment_can_be_restored() {
    let repository = repository();
    take(&repository, 45, &[(2, true), (4, true)]);
    let id = take(&repository, 90, &[(8, true)]);
    let reader = || Reader::new(&repository, id, "b").unwrap();
    assert_eq!(reader().moments().unwrap(), Some(0..=90 * MS));
    for ms in 0..=90 {
        let found = documents(&reader().at(ms * MS).unwrap());
        assert_eq!(found, expected(ms), "at {ms} ms");
    }
    assert!(matches!(reader().at(91 * MS), Err(Error::Invalid(_))), "after the backup began");
}

#[test]
fn moments_whose_versions_were_left_out_are_refused() {
    let repository = repository();
    // The older versions of `a` no longer exist when the first backup starts.
    take(&repository, 45, &[(3, false), (4, true)]);
    let id = take(&repository, 90, &[(8, true)]);
    let reader = || Reader::new(&repository, id, "b").unwrap();
    assert_eq!(reader().moments().unwrap(), Some(30 * MS..=90 * MS));
    assert!(matches!(reader().at(30 * MS - 1), Err(Error::Invalid(_))));
    for ms in 30..=90 {
        let found = documents(&reader().at(ms * MS).unwrap());
        assert_eq!(found, expected(ms), "at {ms} ms");
    }
    // An increment without versions makes all moments before it unreadable.
    let repository = self::repository();
    take(&repository, 45, &[(4, true)]);
    let id = take(&repository, 90, &[(8, false)]);
    let reader = || Reader::new(&repository, id, "b").unwrap();
    assert_eq!(reader().moments().unwrap(), Some(80 * MS..=90 * MS));
    assert!(matches!(reader().at(60 * MS), Err(Error::Invalid(_))));
    assert_eq!(documents(&reader().at(85 * MS).unwrap()), expected(85));
}

/// Merges all backups of a repository.
fn merged(repository: &Repository, last: BackupId) -> BackupId {
    let options = TaskOptions { now_ms: 200, random: [200; 16], is_full: false };
    merge(repository, MergeRange { last, first: None }, options, "test").unwrap().id
}

#[test]
fn a_merge_goes_back_to_the_same_moments() {
    let histories: [[&[(u64, bool)]; 3]; 4] = [
        [&[(2, true)], &[(4, true)], &[(8, true)]],
        [&[(3, false)], &[(4, true)], &[(6, true), (8, true)]],
        [&[(2, true)], &[(5, false), (6, true)], &[(8, true)]],
        [&[(2, true)], &[(4, true)], &[(8, false)]],
    ];
    for history in histories {
        let repository = repository();
        let ids = [(25, 0), (45, 1), (90, 2)].map(|(now, at)| take(&repository, now, history[at]));
        let id = merged(&repository, ids[2]);
        let open = |id| Reader::new(&repository, id, "b").unwrap();
        let moments = open(ids[2]).moments().unwrap();
        assert_eq!(open(id).moments().unwrap(), moments, "{history:?}");
        for ms in 0..=90 {
            if moments.clone().is_some_and(|moments| moments.contains(&(ms * MS))) {
                let found = documents(&open(id).at(ms * MS).unwrap());
                assert_eq!(found, expected(ms), "at {ms} ms of {history:?}");
            }
        }
        assert_eq!(documents(&open(id)), expected(90));
    }
}
