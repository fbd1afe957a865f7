//! Archives of every version of the format, which must stay readable for ever.

use nacre_backup::{
    BackupId, BucketSource, Error, FolderStore, KeySlot, Manifest, MemoryStore, MergeRange, Reader,
    Record, RecordKind, Repository, Store, Task, TaskOptions, VbucketPart, merge, verify,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const PASSPHRASE: &str = "open sesame";

fn archive(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/golden").join(name)
}

/// Writes a full backup and an increment that use everything in the format.
fn write(root: &Path, passphrase: Option<&str>) {
    let store: Arc<dyn Store> = Arc::new(FolderStore::new(root));
    let slot = passphrase.map(|passphrase| KeySlot::new(passphrase, 10, [5; 48]).0);
    Repository::create(&*store, BackupId::new(1_700_000_000_000, 1, None), slot).unwrap();
    let repository = Repository::open(store, passphrase).unwrap();
    let source = BucketSource { name: "travel".into(), uuid: "0123".into(), vbuckets: 2 };
    for (turn, high) in [(0_u8, 3), (1, 5)] {
        let now_ms = 1_700_000_001_000 + u64::from(turn);
        let options = TaskOptions { now_ms, random: [turn; 16], is_full: false };
        let task = Task::begin(&repository, std::slice::from_ref(&source), options).unwrap();
        let mut worker = task.worker();
        for vbid in 0..2 {
            let mut take = worker.begin(0, vbid, high);
            take.accepted(&[(77, 0)]).unwrap();
            let from = take.request().start;
            take.snapshot(high, false).unwrap();
            for seqno in from + 1..=high {
                let is_gone = seqno == 4;
                let kind = if is_gone { RecordKind::Expiration } else { RecordKind::Set };
                let body = format!("{{\"n\":{seqno},\"long\":\"{}\"}}", "x".repeat(300));
                let key = format!("k{}", seqno % 3);
                let record = Record {
                    kind,
                    seqno,
                    cas: seqno << 16,
                    rev: seqno,
                    flags: 0x0200_0000,
                    expiry: if seqno == 2 { 2_000_000_000 } else { 0 },
                    datatype: 1,
                    collection: if seqno == 3 { 300 } else { 0 },
                    key: key.as_bytes(),
                    value: if is_gone { b"" } else { body.as_bytes() },
                };
                take.record(&record, &mut worker).unwrap();
            }
            worker.finish(0, take).unwrap();
        }
        worker.flush().unwrap();
        task.complete(now_ms, "golden", BTreeMap::new(), BTreeMap::new()).unwrap();
    }
}

/// Returns all records of the newest backup, and the result of a verification.
fn shown(root: &Path, passphrase: Option<&str>) -> Vec<String> {
    let repository = Repository::open(Arc::new(FolderStore::new(root)), passphrase).unwrap();
    let id = *repository.backups().unwrap().last().unwrap();
    let verified = verify(&repository, id, true).unwrap();
    assert_eq!((verified.manifests, verified.findings), (2, Vec::new()));
    let reader = Reader::new(&repository, id, "travel").unwrap();
    let mut lines = Vec::new();
    for vbid in 0..2 {
        reader
            .for_each(vbid, |part, record| {
                let Record { kind, seqno, cas, rev, flags, expiry, datatype, collection, key, value } = record;
                let key = String::from_utf8_lossy(key);
                lines.push(format!(
                    "{vbid} ({},{}] {kind:?} {seqno} {cas} {rev} {flags} {expiry} {datatype} {collection} {key} {}",
                    part.from,
                    part.to,
                    value.len()
                ));
                Ok::<(), Error>(())
            })
            .unwrap();
    }
    lines
}

#[test]
fn archives_of_format_1_are_read() {
    if std::env::var_os("NACRE_GOLDEN").is_some() {
        write(&archive("1"), None);
        write(&archive("1-encrypted"), Some(PASSPHRASE));
    }
    let expected: Vec<String> = (0..2)
        .flat_map(|vbid| {
            [
                "(0,3] Set 1 65536 1 33554432 0 1 0 k1 317",
                "(0,3] Set 2 131072 2 33554432 2000000000 1 0 k2 317",
                "(0,3] Set 3 196608 3 33554432 0 1 300 k0 317",
                "(3,5] Expiration 4 262144 4 33554432 0 1 0 k1 0",
                "(3,5] Set 5 327680 5 33554432 0 1 0 k2 317",
            ]
            .map(|line| format!("{vbid} {line}"))
        })
        .collect();
    assert_eq!(shown(&archive("1"), None), expected);
    assert_eq!(shown(&archive("1-encrypted"), Some(PASSPHRASE)), expected);
    let encrypted = || Arc::new(FolderStore::new(&archive("1-encrypted")));
    let refused = |passphrase| Repository::open(encrypted(), passphrase).err().unwrap().to_string();
    assert_eq!(refused(Some("open")), "the passphrase is wrong");
    assert!(refused(None).contains("--passphrase-file"));
}

#[test]
fn the_written_format_is_unchanged() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), None);
    assert_eq!(shown(directory.path(), None), shown(&archive("1"), None));
}

/// Returns the seqnos of a vBucket in a backup, or up to a moment.
fn seqnos(repository: &Repository, id: BackupId, vbid: u16, moment: Option<u64>) -> Vec<u64> {
    let mut reader = Reader::new(repository, id, "travel").unwrap();
    if let Some(cas) = moment {
        reader = reader.at(cas).unwrap();
    }
    let mut seqnos = Vec::new();
    reader
        .for_each(vbid, |_, record| {
            seqnos.push(record.seqno);
            Ok::<(), Error>(())
        })
        .unwrap();
    seqnos
}

/// Another program wrote this archive, from the description of the format: a full backup with all versions, an increment in which a vBucket
/// was rolled back, and the merge of both.
#[test]
fn archives_with_versions_rollbacks_and_merges_are_read() {
    let folder = Arc::new(FolderStore::new(&archive("1-history")));
    let repository = Repository::open(Arc::clone(&folder) as Arc<dyn Store>, None).unwrap();
    let backups = repository.backups().unwrap();
    let [full, increment, merged] = backups[..] else { panic!("{backups:?}") };
    for (id, manifests) in [(full, 1), (increment, 2), (merged, 1)] {
        let verified = verify(&repository, id, true).unwrap();
        assert_eq!((verified.manifests, verified.findings), (manifests, Vec::new()), "{id}");
    }
    assert_eq!(seqnos(&repository, full, 1, None), [1, 2, 3, 4]);
    for id in [increment, merged] {
        assert_eq!(seqnos(&repository, id, 0, None), [1, 2, 3, 4, 5, 6]);
        assert_eq!(seqnos(&repository, id, 1, None), [1, 2, 5], "the others were rolled back");
    }
    let second = |number: u64| (1_700_000_000 + number) * 1_000_000_000;
    let moments = |id| Reader::new(&repository, id, "travel").unwrap().moments().unwrap();
    assert_eq!(moments(full), Some(0..=second(10)));
    for id in [increment, merged] {
        assert_eq!(moments(id), Some(second(2)..=second(20)));
        assert_eq!(seqnos(&repository, id, 0, Some(second(3))), [1, 2, 3]);
        assert_eq!(seqnos(&repository, id, 0, Some(second(11))), [1, 2, 3, 4, 5]);
        assert_eq!(seqnos(&repository, id, 1, Some(second(11))), [1, 2]);
    }
    let rolled_back = repository.manifest(increment).unwrap();
    assert_eq!(rolled_back.0.buckets[0].part(1).unwrap().dropped, Some(4));
    let known = repository.manifest(merged).unwrap();
    assert_eq!(known.0.merged, [full, increment]);
    assert_eq!(known.0.buckets[0].collections[1].max_ttl, 60);

    // This version merges them in the same way.
    let copy = Arc::new(MemoryStore::default());
    for name in folder.list("").unwrap() {
        if !name.contains(&merged.to_string()) {
            copy.create(&name, &folder.read(&name, 0..u64::MAX).unwrap()).unwrap();
        }
    }
    let copy = Repository::open(copy, None).unwrap();
    let options = TaskOptions { now_ms: 1_700_000_030_000, random: [1; 16], is_full: false };
    let range = MergeRange { last: increment, first: None };
    let again = merge(&copy, range, options, "golden").unwrap();
    let parts = |manifest: &Manifest| -> Vec<VbucketPart> {
        let parts = manifest.buckets[0].parts.iter().cloned();
        let plain = |part| VbucketPart { runs: Vec::new(), collections: BTreeMap::new(), ..part };
        parts.map(plain).collect()
    };
    assert_eq!(parts(&again), parts(&known.0));
    assert_eq!((&again.merged, again.time_ms), (&known.0.merged, known.0.time_ms));
}

/// Returns the changes of each collection in a backup.
fn counts(repository: &Repository, id: BackupId) -> Option<Vec<(u32, (u64, u64))>> {
    let manifest = repository.manifest(id).unwrap();
    Some(manifest.0.buckets[0].counts()?.into_iter().collect())
}

/// Another program wrote this archive, from the description of the format: a full backup and an increment, with definitions and users. A
/// test of nacre-server restores it.
#[test]
fn archives_with_counts_and_definitions_are_read() {
    let folder = FolderStore::new(&archive("1-definitions"));
    let copy = Arc::new(MemoryStore::default());
    for name in folder.list("").unwrap() {
        copy.create(&name, &folder.read(&name, 0..u64::MAX).unwrap()).unwrap();
    }
    let open = || Repository::open(Arc::clone(&copy) as Arc<dyn Store>, None).unwrap();
    let repository = open();
    let backups = repository.backups().unwrap();
    let [full, increment] = backups[..] else { panic!("{backups:?}") };
    for (id, manifests) in [(full, 1), (increment, 2)] {
        let verified = verify(&repository, id, true).unwrap();
        assert_eq!((verified.manifests, verified.findings), (manifests, Vec::new()), "{id}");
    }
    let of_full = [(0, (2, 1)), (8, (1, 0)), (9, (1, 0))];
    assert_eq!(counts(&repository, full).as_deref(), Some(&of_full[..]));
    assert_eq!(counts(&repository, increment).as_deref(), Some(&[(0, (1, 0))][..]));
    let known = repository.manifest(increment).unwrap();
    let bucket = &known.0.buckets[0];
    let scopes: Vec<_> = bucket.collections.iter().map(|one| (one.id, one.scope_id)).collect();
    assert_eq!(scopes, [(0, Some(0)), (8, Some(8))]);
    assert_eq!(bucket.definitions["indexes"][0]["name"], "by_name");
    assert_eq!(known.0.definitions["users"]["users"][0]["id"], "ann");

    // Counts that add up and are wrong nevertheless.
    let name = format!("backups/{full}/manifest.json");
    let text = String::from_utf8(copy.read(&name, 0..u64::MAX).unwrap()).unwrap();
    let body = text.split_once('\n').unwrap().1.replacen("\"9\":[1,0]", "\"7\":[1,0]", 1);
    let (bytes, hash) = (body.len(), blake3::hash(body.as_bytes()));
    let changed = format!("{{\"format\":1,\"bytes\":{bytes},\"blake3\":\"{hash}\"}}\n{body}");
    copy.tamper(&name, Some(changed.into_bytes()));
    let repository = open();
    assert!(verify(&repository, full, false).unwrap().findings.is_empty());
    let findings = verify(&repository, full, true).unwrap().findings;
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert!(findings[0].reason.contains("vBucket 1 are not those"), "{findings:?}");
}

#[test]
fn changes_are_counted_by_collection() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), None);
    let open = |root: &Path| Repository::open(Arc::new(FolderStore::new(root)), None).unwrap();
    let repository = open(directory.path());
    let backups = repository.backups().unwrap();
    assert_eq!(counts(&repository, backups[0]), Some(vec![(0, (4, 0)), (300, (2, 0))]));
    assert_eq!(counts(&repository, backups[1]), Some(vec![(0, (2, 2))]));
    let options = TaskOptions { now_ms: 1_700_000_030_000, random: [1; 16], is_full: false };
    let range = MergeRange { last: backups[1], first: None };
    let merged = merge(&repository, range, options, "test").unwrap();
    assert_eq!(
        merged.buckets[0].counts().map(|counts| counts.into_iter().collect::<Vec<_>>()),
        Some(vec![(0, (2, 2)), (300, (2, 0))])
    );
    let old = open(&archive("1"));
    for id in old.backups().unwrap() {
        assert_eq!(counts(&old, id), None, "it does not record them");
    }
}
