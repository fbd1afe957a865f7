//! A common suite for all back ends, and tests of damage that only affects files.
#![expect(clippy::disallowed_methods, reason = "these tests damage files on purpose")]

mod crash;
mod damage;
mod encryption;
mod interleaving;
mod log;
mod model;
mod spaces;
mod suite;

use nacre_store::{Commit, Scan, Store, Which};
use nacre_types::{
    Cas, CollectionId, DocKey, Document, FailoverLog, Kind, Meta, Seqno, VbRecord, VbState, VbUuid,
    Vbid,
};
use std::sync::Arc;

/// Returns a version of a document.
pub fn version(seqno: u64, name: &str, value: &str) -> Document {
    let meta =
        Meta { seqno: Seqno(seqno), cas: Cas(seqno << 16), rev: 1, datatype: 1, ..Meta::default() };
    Document::new(meta, DocKey::new(CollectionId(8), name.as_bytes()).prefixed(), value.as_bytes())
}

/// Returns a tombstone.
pub fn tombstone(seqno: u64, name: &str) -> Document {
    let meta = Meta { seqno: Seqno(seqno), kind: Kind::Deleted, ..Meta::default() };
    Document::new(meta, DocKey::new(CollectionId(8), name.as_bytes()).prefixed(), b"")
}

/// Returns the next commit in a vBucket's history.
pub fn commit(vbid: u16, documents: Vec<Document>) -> Commit {
    let high_seqno = documents.last().expect("a commit has documents").meta.seqno;
    let record = VbRecord {
        state: VbState::Active,
        failover_log: FailoverLog::new(VbUuid(7)),
        high_seqno,
        term: 3,
        snapshot: (high_seqno, high_seqno),
        purge_seqno: Seqno::ZERO,
        purged_rev: 0,
        max_cas: Cas(high_seqno.0 << 16),
        document_count: 0,
        history_start: None,
    };
    Commit { vbid: Vbid(vbid), record, documents, erased: Vec::new(), history: Arc::default() }
}

/// Returns a key to erase, if its version is still this one.
pub fn erased(name: &str, seqno: u64) -> (Box<[u8]>, Seqno) {
    (DocKey::new(CollectionId(8), name.as_bytes()).prefixed().into(), Seqno(seqno))
}

/// Like [`commit`], in a collection that keeps history from `start` on.
pub fn kept(start: u64, commit: Commit) -> Commit {
    let record = VbRecord { history_start: Some(Seqno(start)), ..commit.record };
    Commit { record, history: [CollectionId(8)].into(), ..commit }
}

/// Returns the current versions of a vBucket after a seqno, as text.
pub fn shown(store: &dyn Store, vbid: u16, after: u64) -> String {
    text_of(store.scan(Vbid(vbid), Seqno(after), Which::Current).unwrap())
}

/// Returns all versions, and the start of the history, as text.
pub fn shown_all(store: &dyn Store, vbid: u16, after: u64) -> String {
    let scan = store.scan(Vbid(vbid), Seqno(after), Which::All).unwrap();
    let start = scan.history_start.map_or("nowhere".into(), |start| format!("{start}"));
    format!("{}, history from {start}", text_of(scan))
}

fn text_of(scan: Scan) -> String {
    let documents = scan.documents.map(|document| {
        let document = document.unwrap();
        let value = if document.is_alive() {
            String::from_utf8_lossy(document.value()).into_owned()
        } else {
            "gone".into()
        };
        format!("{}@{}={value}", String::from_utf8_lossy(document.name()), document.meta.seqno)
    });
    format!("{} | to {}", documents.collect::<Vec<_>>().join(" "), scan.end)
}
