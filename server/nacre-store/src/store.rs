//! The trait that every back end implements.

use crate::Error;
use nacre_types::{CollectionId, Document, Seqno, VbRecord, Vbid};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The largest useful number of documents in a commit. A commit is atomic, and some back ends need much memory for a
/// large one; a writer with more documents makes several commits and passes them together.
pub const COMMIT_DOCUMENTS_MAX: usize = 64;

/// The next piece of one vBucket's history: a snapshot, so that the vBucket is consistent after it.
#[derive(Clone, Debug)]
pub struct Commit {
    /// The vBucket.
    pub vbid: Vbid,
    /// The vBucket after this commit. `document_count` is filled in by the store.
    pub record: VbRecord,
    /// The newest version of each changed key, ascending by seqno, all above the vBucket's stored high seqno. In
    /// collections that keep history, any number of versions.
    pub documents: Vec<Document>,
    /// Keys to forget without a trace, each with the seqno of the version that is meant: purged tombstones, documents of
    /// a dropped collection. A key whose stored version is another one stays. Never names a version of this commit.
    ///
    /// Never names the version at the vBucket's high seqno: recovery compares the two. Only a history that begins again
    /// erases all that there is, with a record of an empty vBucket and in a call of its own; its seqnos may be lower then.
    pub erased: Vec<(Box<[u8]>, Seqno)>,
    /// The collections that keep history, ascending: a version in them that is replaced or erased stays readable,
    /// unless it is below [`VbRecord::history_start`]. A commit that raises `history_start` forgets the history below,
    /// and a commit without it forgets all.
    ///
    /// Only for stores that [keep history](Store::keeps_history).
    pub history: Arc<[CollectionId]>,
}

impl Commit {
    /// Returns true if the version `seqno` of a key in `collection` stays as history when the key gets another version,
    /// or none.
    pub fn keeps(&self, collection: CollectionId, seqno: Seqno) -> bool {
        self.record.history_start.is_some_and(|start| seqno >= start.max(Seqno(1)))
            && self.history.binary_search(&collection).is_ok()
    }
}

/// Versions that a scan returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The newest of each key.
    Current,
    /// All versions, including those kept as history.
    All,
}

/// Size of a vBucket's history: superseded versions that are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistorySize {
    /// Number of versions.
    pub versions: u64,
    /// Bytes that they take on disk.
    pub bytes: u64,
}

impl HistorySize {
    /// Takes a version of this size out of the budget. Returns false if too little is left.
    pub(crate) fn take(&mut self, bytes: u64) -> bool {
        let left = (self.versions.checked_sub(1), self.bytes.checked_sub(bytes));
        if let (Some(versions), Some(bytes)) = left {
            *self = HistorySize { versions, bytes };
        }
        matches!(left, (Some(_), Some(_)))
    }
}

/// Space of a store on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of its files.
    pub disk_bytes: u64,
    /// Bytes of current data; the rest could be given back.
    pub live_bytes: u64,
}

/// A consistent reading of one vBucket's stored history, ascending by seqno; each key once, if not [all](Which::All)
/// versions were asked for.
///
/// Writers go on meanwhile: what they overwrite stays readable to the scan.
pub struct Scan {
    /// The stored high seqno when the scan began: the reader's position after it.
    pub end: Seqno,
    /// From which seqno on no version is missing, in collections that keep history; `None` when that is nowhere so, or
    /// was not asked for.
    pub history_start: Option<Seqno>,
    /// The versions; an error ends them.
    pub documents: Box<dyn Iterator<Item = Result<Document, Error>> + Send>,
}

/// Keeps the vBuckets of one bucket.
pub trait Store: Send + Sync {
    /// Makes `commits` durable, in order.
    ///
    /// # Errors
    /// [`Error::Full`] when there was no space and [`Error::Exhausted`] when there were no descriptors or memory: nothing was
    /// written, and the same commits may be passed again. After any other error nothing may be assumed about these commits, and the vBuckets in them must not be written to
    /// again.
    fn commit(&self, commits: &[Commit]) -> Result<(), Error>;

    /// The record of every vBucket that was ever committed.
    ///
    /// # Errors
    /// Fails when a record cannot be read.
    fn records(&self) -> Result<Vec<(Vbid, VbRecord)>, Error>;

    /// The history of `vbid` after a seqno.
    ///
    /// # Errors
    /// Fails when the vBucket cannot be read.
    fn scan(&self, vbid: Vbid, after: Seqno, which: Which) -> Result<Scan, Error>;

    /// Returns the stored version of a key (collection prefix first), tombstone or not. Cheap, and can be called from
    /// several threads at once and during commits.
    ///
    /// # Errors
    /// Fails when it cannot be read.
    fn get(&self, vbid: Vbid, key: &[u8]) -> Result<Option<Document>, Error>;

    /// Passes the current version of every key of every vBucket to `each`, once, in the order that is cheapest to read.
    ///
    /// Meant for warmup: during commits the versions are not of one state.
    ///
    /// # Errors
    /// Fails when something cannot be read; the documents before are intact.
    fn visit(&self, each: &mut dyn FnMut(Vbid, Document)) -> Result<(), Error> {
        for (vbid, _) in self.records()? {
            for document in self.scan(vbid, Seqno::ZERO, Which::Current)?.documents {
                each(vbid, document?);
            }
        }
        Ok(())
    }

    /// Returns the space of the store on disk.
    fn usage(&self) -> Usage;

    /// Does one bounded step of giving space back, if more than `fragmentation_percent` (0..=100) of a part of the store
    /// is dead. Returns the bytes given back; 0 when there is nothing to do.
    ///
    /// Meant for a thread of its own: neither commits nor reads wait for it.
    ///
    /// # Errors
    /// Fails when the disk refuses or something cannot be read; the step has changed nothing then.
    fn compact(&self, fragmentation_percent: u8) -> Result<u64, Error>;

    /// The version that the version `seqno` took the place of, if both are there.
    ///
    /// # Errors
    /// Fails when one of them cannot be read.
    fn previous(&self, _vbid: Vbid, _seqno: Seqno) -> Result<Option<Document>, Error> {
        Ok(None)
    }

    /// Returns true if it can keep superseded versions.
    fn keeps_history(&self) -> bool {
        false
    }

    /// Returns the size of the history of each vBucket that has one.
    fn history(&self) -> Vec<(Vbid, HistorySize)> {
        Vec::new()
    }

    /// The seqno at which the history of `vbid` would have to begin to be within `limit`; zero when it is.
    fn history_within(&self, _vbid: Vbid, _limit: HistorySize) -> Seqno {
        Seqno::ZERO
    }
}

/// Passes every stored version to `each`, and checks their number against the records. Warmup does this before a bucket
/// serves.
///
/// # Errors
/// [`Error::Inconsistent`] when a document is missing or too many, else the error of the store.
pub fn load_all(store: &dyn Store, each: &mut dyn FnMut(Vbid, Document)) -> Result<(), Error> {
    let records = store.records()?;
    let mut found: BTreeMap<Vbid, (u64, Seqno)> =
        records.iter().map(|(vbid, _)| (*vbid, (0, Seqno::ZERO))).collect();
    let mut stranger = None;
    store.visit(&mut |vbid, document| match found.get_mut(&vbid) {
        Some((count, last)) => {
            *count += 1;
            *last = document.meta.seqno.max(*last);
            each(vbid, document);
        }
        None => stranger = Some(vbid),
    })?;
    let wrong = |vbid, what: String| Err(Error::Inconsistent { vbid, what });
    if let Some(vbid) = stranger {
        return wrong(vbid, "it has documents, but no record".into());
    }
    for (vbid, VbRecord { document_count, high_seqno, .. }) in records {
        let (count, last) = found[&vbid];
        if count != document_count {
            return wrong(vbid, format!("{document_count} documents recorded, {count} found"));
        }
        if last != high_seqno {
            return wrong(vbid, format!("high seqno {high_seqno} recorded, {last} found"));
        }
    }
    Ok(())
}
