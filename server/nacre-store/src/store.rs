//! The trait that every back end implements.

use crate::Error;
use nacre_types::{CollectionId, Document, Seqno, VbRecord, Vbid};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The largest useful number of documents in a commit. A commit is atomic, and some back ends need much memory for a
/// large one; a writer with more documents makes several commits and passes them together.
pub const COMMIT_DOCUMENTS_MAX: usize = 64;

/// The next part of one vBucket's history. It is a complete snapshot, so that the vBucket is consistent after it.
#[derive(Clone, Debug)]
pub struct Commit {
    /// The vBucket.
    pub vbid: Vbid,
    /// The vBucket's record after this commit. The store computes `document_count`.
    pub record: VbRecord,
    /// The newest version of each changed key, ascending by seqno, all above the vBucket's stored high seqno.
    /// Collections that keep history may have several versions of a key.
    pub documents: Vec<Document>,
    /// Keys to erase without a tombstone, each with the seqno of the version to erase: purged tombstones, documents of a
    /// dropped collection. A key whose stored version has another seqno stays. Never names a version of this commit.
    ///
    /// Never names the version at the vBucket's high seqno, because recovery compares the two. The exception is a history
    /// that begins again: it erases everything, in a separate call with the record of an empty vBucket; its seqnos may be
    /// lower afterwards.
    pub erased: Vec<(Box<[u8]>, Seqno)>,
    /// The collections that keep history, ascending. A replaced or erased version in them stays readable, unless it is
    /// below [`VbRecord::history_start`]. A commit that raises `history_start` drops the history below it, and a commit
    /// without `history_start` drops all history.
    ///
    /// Only for stores that [keep history](Store::keeps_history).
    pub history: Arc<[CollectionId]>,
}

impl Commit {
    /// Returns true if the version `seqno` of a key in `collection` is kept as history when the key is overwritten or
    /// erased.
    pub fn keeps(&self, collection: CollectionId, seqno: Seqno) -> bool {
        self.record.history_start.is_some_and(|start| seqno >= start.max(Seqno(1)))
            && self.history.binary_search(&collection).is_ok()
    }
}

/// The versions that a scan returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The newest version of each key.
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
    /// Subtracts a version of this size from the budget. Returns false if the budget is too small.
    pub(crate) fn take(&mut self, bytes: u64) -> bool {
        let left = (self.versions.checked_sub(1), self.bytes.checked_sub(bytes));
        if let (Some(versions), Some(bytes)) = left {
            *self = HistorySize { versions, bytes };
        }
        matches!(left, (Some(_), Some(_)))
    }
}

/// Disk space of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of the store's files.
    pub disk_bytes: u64,
    /// Bytes of current data; the rest can be reclaimed.
    pub live_bytes: u64,
}

/// A consistent scan of one vBucket's stored history, ascending by seqno. Each key occurs once, unless
/// [all](Which::All) versions are requested.
///
/// Writers may continue: the versions that they overwrite stay readable to the scan.
pub struct Scan {
    /// The stored high seqno when the scan began, which is the reader's position after the scan.
    pub end: Seqno,
    /// Seqno from which the scan has every version of collections that keep history; `None` if there is none, or if
    /// history was not requested.
    pub history_start: Option<Seqno>,
    /// The versions; an error ends the iteration.
    pub documents: Box<dyn Iterator<Item = Result<Document, Error>> + Send>,
}

/// A store for the vBuckets of one bucket.
pub trait Store: Send + Sync {
    /// Makes `commits` durable, in order.
    ///
    /// # Errors
    /// [`Error::Full`] when there was no space and [`Error::Exhausted`] when there were no descriptors or memory: nothing was
    /// written, and the same commits may be passed again. After any other error the state of these commits is unknown, and their
    /// vBuckets must not be written again.
    fn commit(&self, commits: &[Commit]) -> Result<(), Error>;

    /// Returns the record of every vBucket that was ever committed.
    ///
    /// # Errors
    /// Fails when a record cannot be read.
    fn records(&self) -> Result<Vec<(Vbid, VbRecord)>, Error>;

    /// Scans the history of `vbid` after a seqno.
    ///
    /// # Errors
    /// Fails when the vBucket cannot be read.
    fn scan(&self, vbid: Vbid, after: Seqno, which: Which) -> Result<Scan, Error>;

    /// Returns the stored version of a key (collection prefix first), including tombstones. Cheap; several threads may
    /// call it concurrently, also during commits.
    ///
    /// # Errors
    /// Fails when the version cannot be read.
    fn get(&self, vbid: Vbid, key: &[u8]) -> Result<Option<Document>, Error>;

    /// Passes the current version of every key of every vBucket to `each`, once, in the order that is cheapest to read.
    ///
    /// Intended for warmup: concurrent commits make the result inconsistent.
    ///
    /// # Errors
    /// Fails when a version cannot be read; the documents before it are intact.
    fn visit(&self, each: &mut dyn FnMut(Vbid, Document)) -> Result<(), Error> {
        for (vbid, _) in self.records()? {
            for document in self.scan(vbid, Seqno::ZERO, Which::Current)?.documents {
                each(vbid, document?);
            }
        }
        Ok(())
    }

    /// Returns the disk space of the store.
    fn usage(&self) -> Usage;

    /// Does one bounded step of compaction, if more than `fragmentation_percent` (0..=100) of a part of the store is
    /// dead. Returns the bytes reclaimed; 0 when there is nothing to do.
    ///
    /// Intended for a separate thread: neither commits nor reads wait for it.
    ///
    /// # Errors
    /// Fails when the disk refuses or something cannot be read; the step has no effect in that case.
    fn compact(&self, fragmentation_percent: u8) -> Result<u64, Error>;

    /// Returns the version that the version `seqno` replaced, if both are stored.
    ///
    /// # Errors
    /// Fails when one of them cannot be read.
    fn previous(&self, _vbid: Vbid, _seqno: Seqno) -> Result<Option<Document>, Error> {
        Ok(None)
    }

    /// Returns true if the store supports history.
    fn keeps_history(&self) -> bool {
        false
    }

    /// Returns the size of the history of each vBucket that has one.
    fn history(&self) -> Vec<(Vbid, HistorySize)> {
        Vec::new()
    }

    /// Returns the seqno at which the history of `vbid` must begin to be within `limit`; zero if it already is.
    fn history_within(&self, _vbid: Vbid, _limit: HistorySize) -> Seqno {
        Seqno::ZERO
    }
}

/// Passes every stored version to `each`, and checks the counts against the records. Warmup does this before a bucket
/// is served.
///
/// # Errors
/// [`Error::Inconsistent`] when documents are missing or superfluous, or the error of the store.
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
