//! What a bucket has on disk, or would have: how far, and its history from there.

use super::Bucket;
use crate::{Ticket, Waiter};
use nacre_dcp::Past;
use nacre_store::{Error, Scan, Which};
use nacre_types::{Document, Now, Seqno, VbState, Vbid};
use nacre_vbucket::Vbucket;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How far a vBucket is kept, and whether the node that it follows is to hear of that.
pub(super) struct Kept {
    seqno: Seqno,
    is_news: bool,
}

impl Bucket {
    /// Whether it has a store.
    pub fn is_persistent(&self) -> bool {
        self.store.is_some()
    }

    /// Has the store give back all the space it can.
    pub fn compact(&self) {
        self.compaction_asked.store(true, Ordering::Release);
        self.compactor.wake();
    }

    /// Whether a compaction that was asked for is under way.
    pub(crate) fn compaction_asked(&self) -> bool {
        self.compaction_asked.load(Ordering::Acquire)
    }

    pub(crate) fn compaction_done(&self) {
        self.compaction_asked.store(false, Ordering::Release);
    }

    /// What the store takes on disk; nothing where there is none.
    pub fn disk_usage(&self) -> nacre_store::Usage {
        self.store.as_ref().map(|store| store.usage()).unwrap_or_default()
    }

    /// Without a store, memory keeps what a store would: history goes at once that every cursor has. Gives how far that is, if it is
    /// news.
    pub(super) fn keep(&self, vbucket: &mut Vbucket) -> Option<Kept> {
        let seqno = vbucket.high_seqno();
        vbucket.take_graves(seqno);
        if vbucket.persisted() == seqno {
            return None;
        }
        self.persisted.raise(vbucket.id(), seqno);
        Some(self.kept(vbucket, seqno))
    }

    /// Notes in a vBucket that it is kept up to `seqno`, and lets history go that nobody waits for.
    fn kept(&self, vbucket: &mut Vbucket, seqno: Seqno) -> Kept {
        let follows = vbucket.state() == VbState::Replica;
        let reached =
            |vbucket: &Vbucket| follows.then(|| (vbucket.prepared(), vbucket.reaches_branch()));
        let before = reached(vbucket);
        vbucket.set_persisted(seqno, self.checkpoint_bytes_max());
        Kept { seqno, is_news: reached(vbucket) != before }
    }

    /// Tells those who wait for what a store would hold.
    pub(super) fn report_kept(&self, vbid: Vbid, Kept { seqno, is_news }: Kept) {
        if is_news {
            self.progress_listeners.mark(vbid);
            self.progress_listeners.wake();
        }
        self.waits.persisted(vbid, seqno);
    }

    /// How many bytes of a vBucket's history slow cursors may hold in memory.
    fn checkpoint_bytes_max(&self) -> usize {
        self.quota_bytes() as usize / 5 / self.vbuckets.len()
    }

    /// Notes that the store holds `vbid` up to `seqno`, and lets history go that nobody waits for.
    ///
    /// It is ignored when the history that `seqno` is of has been thrown away since: it had another `generation`.
    pub(crate) fn set_persisted(&self, vbid: Vbid, seqno: Seqno, generation: u32, now: Now) {
        let mut kept = None;
        self.complete(vbid, |vbucket| {
            if vbucket.generation() != generation {
                return Vec::new();
            }
            kept = Some(self.kept(vbucket, seqno));
            vbucket.complete(now)
        });
        if let Some(kept) = kept {
            self.persisted.raise(vbid, seqno);
            self.report_kept(vbid, kept);
        }
    }

    /// The history of `vbid` after a seqno, from the store or, for a bucket without one, from memory. With
    /// superseded versions that are kept, if `history` is set; but for those of collections that are gone by now, as nobody
    /// is told any more that these ever were.
    pub fn scan(&self, vbid: Vbid, after: Seqno, history: bool) -> Result<Past<Error>, Error> {
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
            return Ok(Past { documents, end, history_start });
        }
        let Some(vbucket) = self.vbucket(vbid) else {
            let documents = Box::new(std::iter::empty());
            return Ok(Past { documents, end: after, history_start: None });
        };
        let all = vbucket.documents().chain(vbucket.prepared_documents());
        let mut documents: Vec<_> =
            all.filter(|document| document.meta.seqno > after).cloned().collect();
        let end = vbucket.high_seqno();
        drop(vbucket);
        documents.sort_unstable_by_key(|document| document.meta.seqno);
        let documents = Box::new(documents.into_iter().map(Ok));
        Ok(Past { documents, end, history_start: None })
    }

    /// The version that a stored one took the place of, if it is kept.
    pub fn previous(&self, vbid: Vbid, seqno: Seqno) -> Result<Option<Document>, Error> {
        self.store.as_ref().map_or(Ok(None), |store| store.previous(vbid, seqno))
    }

    /// A ticket that is settled once the store holds `vbid` up to `seqno`: with true, or with false when the bucket ends
    /// before.
    pub fn when_persisted(
        &self,
        vbid: Vbid,
        seqno: Seqno,
        waiter: &Arc<dyn Waiter>,
    ) -> Arc<Ticket<bool>> {
        let ticket = self.waits.persistence(vbid, seqno, waiter);
        // Looked at after the entry was made: whatever is stored from now on settles it.
        self.waits.persisted(vbid, self.persisted.get(vbid));
        if self.vbucket(vbid).is_none_or(|vbucket| vbucket.is_read_only()) {
            self.waits.give_up(&[vbid]);
        }
        ticket
    }
}
