//! Single failures of a repository, each with its required outcome.

use nacre_backup::{
    BackupId, BucketSource, Error, KeySlot, LOCK_MS, LockKind, MemoryStore, Reader, Record,
    RecordKind, Repository, SHARE_NUMBERS, Store, Task, TaskOptions, verify,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

fn source(uuid: &str, vbuckets: u16) -> BucketSource {
    BucketSource { name: "b".into(), uuid: uuid.into(), vbuckets }
}

fn repository(store: &Arc<MemoryStore>) -> Repository {
    if !Repository::exists(&**store).unwrap() {
        Repository::create(&**store, BackupId::new(1, 1, None), None).unwrap();
    }
    Repository::open(Arc::clone(store) as Arc<dyn Store>, None).unwrap()
}

fn options(now_ms: u64) -> TaskOptions {
    TaskOptions { now_ms, random: [now_ms as u8; 16], is_full: false }
}

/// Adds `(key, value)` at the seqnos after the base, up to `high`.
fn feed(task: &Task<'_>, vbid: u16, high: u64, value: &[u8]) {
    let mut worker = task.worker();
    let mut take = worker.begin(0, vbid, high);
    take.accepted(&[(9, 0)]).unwrap();
    let from = take.request().start;
    take.snapshot(high, false).unwrap();
    for seqno in from + 1..=high {
        let key = seqno.to_string();
        let record = Record {
            kind: RecordKind::Set,
            seqno,
            cas: seqno,
            rev: 1,
            flags: 0,
            expiry: 0,
            datatype: 0,
            collection: 0,
            key: key.as_bytes(),
            value,
        };
        take.record(&record, &mut worker).unwrap();
    }
    worker.finish(0, take).unwrap();
    worker.flush().unwrap();
}

fn take(repository: &Repository, source: &BucketSource, now_ms: u64, high: u64) -> BackupId {
    let task = Task::begin(repository, std::slice::from_ref(source), options(now_ms)).unwrap();
    (0..source.vbuckets).for_each(|vbid| feed(&task, vbid, high, &[b'x'; 400]));
    complete(&task)
}

fn complete(task: &Task<'_>) -> BackupId {
    task.complete(9, "test", BTreeMap::new(), BTreeMap::new()).unwrap().id
}

fn records(repository: &Repository, id: BackupId, vbid: u16) -> Result<usize, Error> {
    let mut count = 0;
    Reader::new(repository, id, "b")?.for_each(vbid, |_, _| {
        count += 1;
        Ok::<(), Error>(())
    })?;
    Ok(count)
}

#[test]
fn case_01_an_interrupted_backup_is_listed_as_such_and_is_continued_or_removed() {
    let store = Arc::new(MemoryStore::default());
    let repository = repository(&store);
    let source = source("u", 2);
    let task = Task::begin(&repository, std::slice::from_ref(&source), options(5)).unwrap();
    feed(&task, 0, 3, b"1");
    let id = task.id();
    assert!(task.complete(9, "", BTreeMap::new(), BTreeMap::new()).is_err());
    drop(task);
    assert_eq!(
        (repository.backups().unwrap(), repository.unfinished().unwrap()),
        (vec![], vec![id])
    );
    let other = BucketSource { uuid: "v".into(), ..source.clone() };
    let refused = Task::resume(&repository, id, &[other], options(6)).err().unwrap();
    assert!(refused.to_string().contains("discard"), "{refused}");

    let task = Task::resume(&repository, id, std::slice::from_ref(&source), options(6)).unwrap();
    assert_eq!(task.remaining(0), [1], "what was complete is not taken again");
    feed(&task, 1, 3, b"1");
    assert_eq!(complete(&task), id);
    assert_eq!(
        (repository.backups().unwrap(), repository.unfinished().unwrap()),
        (vec![id], vec![])
    );
    assert_eq!(store.list("progress/").unwrap(), [""; 0]);

    let task = Task::begin(&repository, &[source], options(7)).unwrap();
    let second = task.id();
    drop(task);
    repository.remove(second).unwrap();
    assert_eq!(repository.unfinished().unwrap(), []);
}

#[test]
fn an_increment_without_changes_is_one_small_object() {
    let store = Arc::new(MemoryStore::default());
    let repository = repository(&store);
    let source = source("u", 1024);
    let first = take(&repository, &source, 5, 2);
    let before = store.list("").unwrap();
    let second = take(&repository, &source, 6, 2);
    let name = format!("backups/{second}/manifest.json");
    let added: Vec<String> =
        store.list("").unwrap().into_iter().filter(|name| !before.contains(name)).collect();
    assert_eq!(added, std::slice::from_ref(&name));
    let bytes = store.size(&name).unwrap();
    assert!(bytes < 1_000, "{bytes} bytes");
    assert_eq!(records(&repository, second, 1023).unwrap(), 2);
    assert!(repository.remove(first).is_err(), "the second needs it");
}

#[test]
fn case_06_another_bucket_of_the_name_begins_a_new_chain_and_the_old_one_is_kept() {
    let store = Arc::new(MemoryStore::default());
    let repository = repository(&store);
    let old = take(&repository, &source("u", 1), 5, 3);
    for other in [source("v", 1), source("v", 2)] {
        let id = take(&repository, &other, 6, 2);
        assert_eq!(repository.manifest(id).unwrap().0.buckets[0].parent, None);
        assert_eq!(records(&repository, id, 0).unwrap(), 2);
    }
    assert_eq!(records(&repository, old, 0).unwrap(), 3);
}

#[test]
fn case_10_two_backups_at_once_both_complete_from_the_same_parent() {
    let store = Arc::new(MemoryStore::default());
    let repository = repository(&store);
    let source = source("u", 1);
    take(&repository, &source, 5, 1);
    let begin =
        |now| Task::begin(&repository, std::slice::from_ref(&source), options(now)).unwrap();
    let (first, second) = (begin(6), begin(7));
    feed(&first, 0, 3, b"1");
    feed(&second, 0, 4, b"1");
    let (second, first) = (complete(&second), complete(&first));
    assert_eq!(records(&repository, first, 0).unwrap(), 3);
    assert_eq!(records(&repository, second, 0).unwrap(), 4);
}

#[test]
fn case_11_12_damage_is_found_and_named_and_a_damaged_chain_is_not_continued() {
    let store = Arc::new(MemoryStore::default());
    let source = source("u", 1);
    let id = take(&repository(&store), &source, 5, 3);
    let (object, manifest) =
        (format!("backups/{id}/data/0.nbk"), format!("backups/{id}/manifest.json"));
    let bytes = store.read(&object, 0..u64::MAX).unwrap();
    let findings = |has_data| {
        let verified = verify(&repository(&store), id, has_data).unwrap();
        verified
            .findings
            .into_iter()
            .map(|found| format!("{}: {}", found.object, found.reason))
            .collect::<Vec<_>>()
    };
    let mut changed = bytes.clone();
    *changed.last_mut().unwrap() ^= 4;
    store.tamper(&object, Some(changed));
    assert_eq!(findings(false), [""; 0]);
    let found = findings(true).join("\n");
    assert!(found.contains("0.nbk: its checksum is wrong"), "{found}");
    assert!(
        found.contains("vBucket 0, block at byte 20: the checksum of a block is wrong"),
        "{found}"
    );
    assert!(records(&repository(&store), id, 0).unwrap_err().is_damage());

    store.tamper(&object, Some(bytes[..50].to_vec()));
    assert!(findings(false)[0].contains("it has 50 bytes of"), "found without reading data");
    store.tamper(&object, None);
    assert!(findings(false)[0].contains("is missing"));
    store.tamper(&object, Some(bytes));
    assert_eq!(findings(true), [""; 0]);

    let child = take(&repository(&store), &source, 6, 5);
    store.tamper(&manifest, None);
    let found = verify(&repository(&store), child, false).unwrap().findings;
    assert!(found[0].reason.contains(&id.to_string()), "{found:?}");
    let third = take(&repository(&store), &source, 7, 5);
    assert_eq!(repository(&store).manifest(third).unwrap().0.buckets[0].parent, None);
    assert_eq!(records(&repository(&store), third, 0).unwrap(), 5);
}

#[test]
fn case_13_a_manifest_of_another_backup_or_format_is_refused() {
    let store = Arc::new(MemoryStore::default());
    let id = take(&repository(&store), &source("u", 1), 5, 3);
    let name = format!("backups/{id}/manifest.json");
    let bytes = store.read(&name, 0..u64::MAX).unwrap();
    let other = BackupId::new(77, 7, None);
    store.tamper(&format!("backups/{other}/manifest.json"), Some(bytes.clone()));
    assert!(repository(&store).manifest(other).unwrap_err().is_damage());
    let newer = String::from_utf8(bytes).unwrap().replacen("\"format\":1", "\"format\":9", 1);
    store.tamper(&name, Some(newer.into_bytes()));
    let said = repository(&store).manifest(id).unwrap_err().to_string();
    assert!(said.contains("has format 9") && said.contains("up to 1"), "{said}");
    store.tamper("nacre-backup.json", Some(br#"{"format":9,"id":"x"}"#.to_vec()));
    let said = Repository::open(store, None).err().unwrap().to_string();
    assert!(said.contains("nacre-backup.json has format 9"), "{said}");
}

#[test]
fn a_source_that_contradicts_itself_is_refused() {
    let store = Arc::new(MemoryStore::default());
    let repository = repository(&store);
    let task = Task::begin(&repository, &[source("u", 1)], options(5)).unwrap();
    let mut worker = task.worker();
    let begin = || {
        let mut take = task.worker().begin(0, 0, 5);
        take.accepted(&[(1, 0)]).unwrap();
        take.snapshot(5, false).unwrap();
        take
    };
    assert!(worker.begin(0, 0, 5).rolled_back(3).is_err(), "a stream from 0");
    assert!(worker.begin(0, 0, 5).accepted(&[]).is_err(), "no branch");
    assert!(begin().advanced(6).is_err(), "behind the snapshot");
    let mut take = begin();
    take.advanced(4).unwrap();
    assert!(take.snapshot(3, false).is_err(), "a snapshot in the past");
    assert!(worker.finish(0, begin()).is_err(), "a stream that ended early");
    assert_eq!(task.remaining(0), [0]);
}

#[test]
fn a_backup_that_was_discarded_or_lost_its_base_while_it_ran_is_not_completed() {
    let store = Arc::new(MemoryStore::default());
    let ours = repository(&store);
    let source = source("u", 1);
    let refused = |task: &Task<'_>| {
        task.complete(9, "", BTreeMap::new(), BTreeMap::new()).unwrap_err().to_string()
    };
    let task = Task::begin(&ours, std::slice::from_ref(&source), options(5)).unwrap();
    feed(&task, 0, 3, b"1");
    repository(&store).remove(task.id()).unwrap();
    assert!(refused(&task).ends_with("0.nbk is missing"));
    let base = take(&ours, &source, 6, 3);
    let task = Task::begin(&ours, &[source], options(7)).unwrap();
    feed(&task, 0, 5, b"1");
    repository(&store).remove(base).unwrap();
    assert!(refused(&task).ends_with("manifest.json is missing"));
}

#[test]
fn processes_that_join_a_backup_write_parts_of_it() {
    let store = Arc::new(MemoryStore::default());
    let (own, other) = (repository(&store), repository(&store));
    let source = source("u", 4);
    take(&own, &source, 5, 2);
    let task = Task::begin(&own, std::slice::from_ref(&source), options(6)).unwrap();
    let id = task.id();
    let join = |first, random| Task::join(&other, id, first, [random; 16]);
    assert!(join(0, 1).is_err() && join(7, 1).is_err());
    assert!(Task::join(&other, BackupId::new(99, 9, None), SHARE_NUMBERS, [1; 16]).is_err());
    let (first, second) = (join(SHARE_NUMBERS, 1).unwrap(), join(2 * SHARE_NUMBERS, 2).unwrap());
    feed(&first, 0, 3, b"1");
    feed(&second, 1, 4, b"1");
    // Both take the same vBucket, because each knows only the progress at the time it joined.
    feed(&first, 2, 5, b"1");
    feed(&second, 2, 6, b"1");
    assert_eq!(task.remaining(0), [0, 1, 2, 3]);
    task.refresh().unwrap();
    assert_eq!(task.remaining(0), [3], "what others have written is known");
    drop(task);

    // Another process completes the backup.
    let task = Task::resume(&own, id, &[source], options(7)).unwrap();
    assert_eq!(task.remaining(0), [3]);
    feed(&task, 3, 3, b"1");
    assert_eq!(complete(&task), id);
    assert_eq!(verify(&own, id, true).unwrap().findings, []);
    for (vbid, count) in [(0, 3), (1, 4), (3, 3)] {
        assert_eq!(records(&own, id, vbid).unwrap(), count);
    }
    assert!([5, 6].contains(&records(&own, id, 2).unwrap()));
    let numbers: Vec<u32> =
        own.manifest(id).unwrap().0.objects.iter().map(|object| object.number).collect();
    assert!(numbers.is_sorted() && numbers[0] < SHARE_NUMBERS, "{numbers:?}");
    assert!(numbers.iter().any(|number| *number >= 2 * SHARE_NUMBERS), "{numbers:?}");
    let complete = |id| Task::join(&own, id, SHARE_NUMBERS, [3; 16]).is_err();
    assert!(complete(id), "nothing is left to join");
}

#[test]
fn case_24_backups_in_use_are_not_removed_and_removed_ones_are_not_read() {
    let store = Arc::new(MemoryStore::default());
    let slot = KeySlot::new("open sesame", 1, [3; 48]).0;
    Repository::create(&*store, BackupId::new(1, 1, None), Some(slot)).unwrap();
    let open =
        || Repository::open(Arc::clone(&store) as Arc<dyn Store>, Some("open sesame")).unwrap();
    let (reader, remover) = (open(), open());
    let source = source("u", 1);
    let (first, second) = (take(&reader, &source, 5, 3), take(&reader, &source, 6, 5));
    let other = take(&reader, &BucketSource { uuid: "v".into(), ..source }, 7, 2);
    let read = reader.needs(second).unwrap();
    assert_eq!(read, BTreeSet::from([first, second]));
    let now = 10_000_000;
    let lock = |repository: &Repository, kind, backups: &[BackupId], now, random| {
        repository.lock(kind, &backups.iter().copied().collect(), now, [random; 16])
    };
    let held = reader.lock(LockKind::Read, &read, now, [1; 16]).unwrap();
    // Other processes may read the same backup, and remove another one.
    let also = lock(&remover, LockKind::Read, &[first], now + 1, 2).unwrap();
    remover.unlock(also).unwrap();
    let elsewhere = lock(&remover, LockKind::Remove, &[other], now + 1, 3).unwrap();
    let refused = lock(&remover, LockKind::Remove, &[first], now + 1, 4).unwrap_err().to_string();
    assert_eq!(refused, format!("the backup {first} is being read"));
    assert_eq!(remover.locks(now + 1).unwrap().len(), 2, "a lock that is refused is released");
    let refused = lock(&reader, LockKind::Read, &[other], now + 2, 5).unwrap_err().to_string();
    assert_eq!(refused, format!("the backup {other} is being removed"));
    remover.unlock(elsewhere).unwrap();

    // A remover waits for a killed reader until its lock expires.
    let locks = remover.locks(now + LOCK_MS - 1).unwrap();
    assert_eq!((locks.len(), locks[0].ends_ms()), (1, now + LOCK_MS));
    assert!(locks[0].covers(first) && !locks[0].covers(other));
    assert_eq!(remover.locks(now + LOCK_MS).unwrap(), []);
    let late = lock(&remover, LockKind::Remove, &[first, second], now + LOCK_MS, 6).unwrap();
    remover.remove(second).unwrap();
    remover.unlock(late).unwrap();
    assert_eq!(remover.unlock_all().unwrap(), 1);
    assert_eq!(remover.unlock_all().unwrap(), 0);
    reader.unlock(held).unwrap();
    // A reader that has cached the manifest does not start to read a removed backup.
    let refused = reader.lock(LockKind::Read, &read, now, [7; 16]).unwrap_err().to_string();
    assert_eq!(refused, format!("the backup {second} was removed meanwhile"));
    assert_eq!(store.list("locks/").unwrap(), [""; 0]);
}

#[test]
fn case_24_a_lock_that_cannot_be_read_protects_all_backups_until_it_ends() {
    let store = Arc::new(MemoryStore::default());
    let repository = repository(&store);
    let id = take(&repository, &source("u", 1), 5, 3);
    let now = 10_000_000;
    let torn = BackupId::new(now, 1, None);
    store.tamper(&format!("locks/{torn}.json"), Some(b"{\"format\":1,".to_vec()));
    store.tamper("locks/notes.txt", Some(Vec::new()));
    let lock =
        |now, random| repository.lock(LockKind::Remove, &BTreeSet::from([id]), now, [random; 16]);
    assert!(lock(now + 1, 1).unwrap_err().to_string().contains("is being read"));
    // A lock from a clock that was far ahead is not valid for ever.
    assert!(lock(now - LOCK_MS, 2).is_ok());
    assert!(lock(now + LOCK_MS, 3).is_ok());
}
