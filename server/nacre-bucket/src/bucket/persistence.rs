//! Persistence of a bucket: the stored seqno of each vBucket, and reads of stored history.

use super::Bucket;
use crate::{Ticket, Waiter};
use nacre_dcp::StoreScan;
use nacre_store::{Error, Scan, Which};
use nacre_types::{Document, Now, Seqno, VbState, Vbid};
use nacre_vbucket::Vbucket;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A vBucket's stored seqno, and whether it must be reported to the node of the active copy.
pub(super) struct StoredProgress {
    seqno: Seqno,
    is_news: bool,
}

impl Bucket {
    /// Returns true if the bucket has a store.
    pub fn is_persistent(&self) -> bool {
        self.store.is_some()
    }

    /// Schedules the compactor to free all the space it can.
    pub fn compact(&self) {
        self.compaction_asked.store(true, Ordering::Release);
        self.compactor.wake();
    }

    /// Returns true until a requested compaction is done.
    pub(crate) fn compaction_asked(&self) -> bool {
        self.compaction_asked.load(Ordering::Acquire)
    }

    /// Stops a requested compaction; the part in progress is still completed.
    pub fn end_compaction(&self) {
        self.compaction_asked.store(false, Ordering::Release);
    }

    /// Returns the disk space of the store; zero without a store.
    pub fn disk_usage(&self) -> nacre_store::Usage {
        self.store.as_ref().map(|store| store.usage()).unwrap_or_default()
    }

    /// Treats a vBucket of a bucket without a store as stored. History that every cursor has read is freed at once.
    /// Returns `None` if nothing has changed.
    pub(super) fn treat_as_stored(&self, vbucket: &mut Vbucket) -> Option<StoredProgress> {
        let seqno = vbucket.high_seqno();
        vbucket.take_graves(seqno);
        if vbucket.persisted() == seqno {
            return None;
        }
        self.persisted.raise(vbucket.id(), seqno);
        Some(self.record_stored(vbucket, seqno))
    }

    /// Records that a vBucket is stored up to `seqno`, and frees the history that no cursor needs.
    fn record_stored(&self, vbucket: &mut Vbucket, seqno: Seqno) -> StoredProgress {
        let follows = vbucket.state() == VbState::Replica;
        let reached =
            |vbucket: &Vbucket| follows.then(|| (vbucket.prepared(), vbucket.reaches_branch()));
        let before = reached(vbucket);
        vbucket.set_persisted(seqno, self.checkpoint_bytes_max());
        StoredProgress { seqno, is_news: reached(vbucket) != before }
    }

    /// Settles the tickets that wait for the store, and reports progress to the node of the active copy.
    pub(super) fn report_stored(
        &self,
        vbid: Vbid,
        StoredProgress { seqno, is_news }: StoredProgress,
    ) {
        if is_news {
            self.progress_listeners.mark(vbid);
            self.progress_listeners.wake();
        }
        self.waits.persisted(vbid, seqno);
    }

    /// Returns the maximum bytes of a vBucket's history that slow cursors may pin in memory.
    fn checkpoint_bytes_max(&self) -> usize {
        self.quota_bytes() as usize / 5 / self.vbuckets.len()
    }

    /// Records that `vbid` is stored up to `seqno`, and frees the history that no cursor needs.
    ///
    /// Does nothing if the vBucket's `generation` has changed: the history of `seqno` was then discarded.
    pub(crate) fn set_persisted(&self, vbid: Vbid, seqno: Seqno, generation: u32, now: Now) {
        let mut stored = None;
        self.complete(vbid, |vbucket| {
            if vbucket.generation() != generation {
                return Vec::new();
            }
            stored = Some(self.record_stored(vbucket, seqno));
            vbucket.complete(now)
        });
        if let Some(stored) = stored {
            self.persisted.raise(vbid, seqno);
            self.report_stored(vbid, stored);
        }
    }

    /// Returns the history of `vbid` after a seqno, from the store or, without one, from memory. With `history`, the
    /// result includes the kept superseded versions, except those of dropped collections, which consumers no longer
    /// know.
    pub fn scan(&self, vbid: Vbid, after: Seqno, history: bool) -> Result<StoreScan<Error>, Error> {
        if let Some(store) = &self.store {
            let which = if history { Which::All } else { Which::Current };
            let Scan { end, history_start, mut documents } = store.scan(vbid, after, which)?;
            if history {
                let manifest = self.manifest();
                let is_known = move |document: &Document| {
                    let collection = document.collection();
                    !collection.holds_documents() || manifest.collection_by_id(collection).is_some()
                };
                documents =
                    Box::new(documents.filter(move |found| found.as_ref().map_or(true, &is_known)));
            }
            return Ok(StoreScan { documents, end, history_start });
        }
        let Some(vbucket) = self.vbucket(vbid) else {
            let documents = Box::new(std::iter::empty());
            return Ok(StoreScan { documents, end: after, history_start: None });
        };
        let all = vbucket.documents().chain(vbucket.prepared_documents());
        let mut documents: Vec<_> =
            all.filter(|document| document.meta.seqno > after).cloned().collect();
        let end = vbucket.high_seqno();
        drop(vbucket);
        documents.sort_unstable_by_key(|document| document.meta.seqno);
        let documents = Box::new(documents.into_iter().map(Ok));
        Ok(StoreScan { documents, end, history_start: None })
    }

    /// Returns the version that the one at `seqno` superseded, if it is kept.
    pub fn previous(&self, vbid: Vbid, seqno: Seqno) -> Result<Option<Document>, Error> {
        self.store.as_ref().map_or(Ok(None), |store| store.previous(vbid, seqno))
    }

    /// Returns a ticket that is settled with true once `vbid` is stored up to `seqno`, and with false if the bucket
    /// ends first.
    pub fn when_persisted(
        &self,
        vbid: Vbid,
        seqno: Seqno,
        waiter: &Arc<dyn Waiter>,
    ) -> Arc<Ticket<bool>> {
        let ticket = self.waits.persistence(vbid, seqno, waiter);
        // Check after making the entry, so that a commit in between settles it.
        self.waits.persisted(vbid, self.persisted.get(vbid));
        if self.vbucket(vbid).is_none_or(|vbucket| vbucket.is_read_only()) {
            self.waits.give_up(&[vbid]);
        }
        ticket
    }
}
