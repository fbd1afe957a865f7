//! The trait that every back end implements.

use crate::Error;
use nacre_types::{Document, Seqno, VbRecord, Vbid};
use std::sync::Arc;

/// How many documents a commit should have at most. A commit is atomic, and some back ends pay for a large one in
/// memory; whoever has more to write makes several commits and passes them together.
pub const COMMIT_DOCUMENTS_MAX: usize = 64;

/// The next piece of one vBucket's history: a snapshot, so that the vBucket is consistent after it.
#[derive(Clone, Debug)]
pub struct Commit {
    /// Which vBucket.
    pub vbid: Vbid,
    /// The vBucket after this commit. `document_count` is filled in by the store.
    pub record: VbRecord,
    /// The newest version of each key changed, ascending by seqno, all above the vBucket's stored high seqno.
    pub documents: Vec<Arc<Document>>,
}

/// A consistent reading of one vBucket's stored history, ascending by seqno, each key once.
///
/// Writers go on meanwhile: what they overwrite stays readable to the scan.
pub struct Scan {
    /// The stored high seqno when the scan began: where the reader stands afterwards.
    pub end: Seqno,
    /// The versions; an error ends them.
    pub documents: Box<dyn Iterator<Item = Result<Arc<Document>, Error>> + Send>,
}

/// Keeps the vBuckets of one bucket.
pub trait Store: Send + Sync {
    /// Makes `commits` durable, in order.
    ///
    /// # Errors
    /// When the disk refuses; nothing may be assumed about these commits then, and the vBuckets in them must not
    /// be written to again.
    fn commit(&self, commits: &[Commit]) -> Result<(), Error>;

    /// The record of every vBucket that was ever committed.
    ///
    /// # Errors
    /// When a record cannot be read.
    fn records(&self) -> Result<Vec<(Vbid, VbRecord)>, Error>;

    /// The history of `vbid` after a seqno.
    ///
    /// # Errors
    /// When the vBucket cannot be read.
    fn scan(&self, vbid: Vbid, after: Seqno) -> Result<Scan, Error>;

    /// The stored version of a key (collection prefix first), tombstone or not.
    ///
    /// # Errors
    /// When it cannot be read.
    fn get(&self, vbid: Vbid, key: &[u8]) -> Result<Option<Document>, Error>;
}

/// Reads the whole of `vbid` and checks it against its record: what warmup does before a vBucket serves.
///
/// # Errors
/// [`Error::Inconsistent`] when a document is missing or too many, else what the store reports.
pub fn load(store: &dyn Store, vbid: Vbid, record: &VbRecord) -> Result<Vec<Arc<Document>>, Error> {
    let mut documents =
        Vec::with_capacity(usize::try_from(record.document_count.min(1 << 20)).unwrap_or(0));
    for document in store.scan(vbid, Seqno::ZERO)?.documents {
        documents.push(document?);
    }
    let last = documents.last().map_or(Seqno::ZERO, |document| document.meta.seqno);
    let wrong = |what: String| Err(Error::Inconsistent { vbid, what });
    if documents.len() as u64 != record.document_count {
        return wrong(format!(
            "{} documents recorded, {} found",
            record.document_count,
            documents.len()
        ));
    }
    if last != record.high_seqno {
        return wrong(format!("high seqno {} recorded, {last} found", record.high_seqno));
    }
    Ok(documents)
}
