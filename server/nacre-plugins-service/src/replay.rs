//! Parts of history that a function processes again, alternating with new history. Its position does not change.

use super::history::{HistoryReader, Range};
use nacre_bucket::Bucket;
use nacre_dcp::{Batch, Limit};
use nacre_store::Error;
use nacre_types::{Document, Vbid};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Limit of the documents in one call; low, so that new history need not wait.
const LIMIT: Limit = Limit { count: 64, bytes: 4 << 20 };

/// A part of history to process again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replay {
    /// The part.
    pub range: Range,
    /// Only versions written at or after this time, in nanoseconds since the Unix epoch.
    pub since_ns: u64,
}

/// The parts that a deployment must process again, and the progress.
#[derive(Default)]
pub(super) struct Replays {
    waiting: Mutex<VecDeque<Replay>>,
    documents: AtomicU64,
}

impl Replays {
    pub fn add(&self, replays: &[Replay]) {
        self.waiting.lock().extend(replays);
    }

    /// Returns how many parts wait or are in progress, and how many documents were processed.
    pub fn counts(&self) -> (usize, u64) {
        (self.waiting.lock().len(), self.documents.load(Ordering::Relaxed))
    }
}

/// The part that is being processed.
#[derive(Default)]
pub(super) struct Replaying {
    part: Option<(HistoryReader, Replay)>,
    /// The rest of a batch that the plugin wants to receive again.
    retry: Option<Batch>,
}

impl Replaying {
    /// Returns the next documents that are `ours`, in vBuckets that the node `serves`; `None` if there is nothing to process.
    pub fn next(
        &mut self,
        replays: &Replays,
        bucket: &Arc<Bucket>,
        serves: impl Fn(Vbid) -> bool,
        is_ours: impl Fn(&Document) -> bool,
    ) -> Result<Option<Batch>, Error> {
        if let Some(batch) = self.left(&serves) {
            return Ok(Some(batch));
        }
        if self.part.is_none() {
            let Some(replay) = replays.waiting.lock().front().copied() else { return Ok(None) };
            self.part = Some((HistoryReader::open(bucket, replay.range), replay));
        }
        let Some((history, replay)) = &mut self.part else { return Ok(None) };
        let vbid = replay.range.vbid;
        let found = if serves(vbid) { history.next(LIMIT)? } else { None };
        let Some(found) = found else {
            self.part = None;
            replays.waiting.lock().pop_front();
            return Ok(Some(Batch::default()));
        };
        let ours = found
            .into_iter()
            .filter(|document| document.meta.cas.0 >= replay.since_ns && is_ours(document));
        let documents = ours.map(|document| (vbid, document)).collect();
        Ok(Some(Batch { documents, ..Batch::default() }))
    }

    /// Returns the rest to process again, without vBuckets that have left the node since.
    fn left(&mut self, serves: impl Fn(Vbid) -> bool) -> Option<Batch> {
        let mut batch = self.retry.take()?;
        batch.documents.retain(|(vbid, _)| serves(*vbid));
        Some(batch)
    }

    /// Counts processed documents.
    pub fn mark_processed(&self, replays: &Replays, documents: usize) {
        replays.documents.fetch_add(documents as u64, Ordering::Relaxed);
    }

    /// Records that the first `taken` documents of `batch` were processed; the others are processed again.
    pub fn mark_partly_processed(&mut self, replays: &Replays, mut batch: Batch, taken: usize) {
        batch.documents.drain(..taken);
        self.retry = Some(batch);
        self.mark_processed(replays, taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::{CollectionId, DocKey, Meta};

    #[test]
    fn the_processed_part_of_a_batch_counts_although_the_rest_is_repeated() {
        let (mut replaying, replays) = (Replaying::default(), Replays::default());
        let document = |name: &[u8]| {
            let key = DocKey::new(CollectionId(0), name);
            (Vbid(0), Document::new(Meta::default(), key.prefixed(), b"1"))
        };
        let documents = vec![document(b"a"), document(b"b"), document(b"c")];
        let last = documents[2].clone();
        replaying.mark_partly_processed(&replays, Batch { documents, ..Batch::default() }, 2);
        assert_eq!(replays.counts(), (0, 2));
        let left = replaying.left(|_| true).unwrap();
        assert_eq!(left.documents, [last]);
        replaying.mark_processed(&replays, left.documents.len());
        assert_eq!(replays.counts(), (0, 3));
        replaying.mark_partly_processed(&replays, left, 0);
        let left = replaying.left(|_| false).unwrap();
        assert!(left.documents.is_empty(), "another node serves it now");
        assert!(replaying.left(|_| true).is_none());
    }
}
