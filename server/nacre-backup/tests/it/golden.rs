//! Archives of every version of the format, which must stay readable for ever.

use nacre_backup::{
    BackupId, BucketSource, Error, FolderStore, KeySlot, Reader, Record, RecordKind, Repository,
    Store, Task, TaskOptions, verify,
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
