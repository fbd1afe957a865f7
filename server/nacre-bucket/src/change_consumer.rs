//! The history of a bucket for a consumer that has no task of its own: it is told when there is more, and takes what there
//! is, one message after another.
//!
//! Memory is read by whoever takes; the store is read by the bucket's workers. Nothing here waits.

use crate::bucket::Bucket;
use crate::listeners::DirtyVbuckets;
use crate::{Ticket, Waiter};
use nacre_dcp::{Address, Finished, Message, Producer};
use nacre_store::Error;
use nacre_types::Vbid;
use parking_lot::Mutex;
use std::sync::Arc;

/// A portion of a scan on its way back from a worker.
type Scanned = Arc<Ticket<Mutex<Option<Finished<Error>>>>>;

/// The streams of one consumer, and what feeds them.
pub struct ChangeConsumer {
    /// The bucket whose history it is.
    pub bucket: Arc<Bucket>,
    /// The streams.
    pub producer: Producer<Error>,
    dirty: Arc<DirtyVbuckets>,
    waiter: Arc<dyn Waiter>,
    scans: Vec<Scanned>,
}

impl ChangeConsumer {
    /// Without streams. `waiter` is woken when there is something to take.
    pub fn new(bucket: Arc<Bucket>, waiter: Arc<dyn Waiter>) -> ChangeConsumer {
        let dirty = bucket.listeners.listen(Arc::clone(&waiter));
        ChangeConsumer { bucket, producer: Producer::default(), dirty, waiter, scans: Vec::new() }
    }

    /// From now on the consumer hears of `vbid`; to be called before a stream of it is opened.
    pub fn watch(&self, vbid: Vbid) {
        self.dirty.watch(vbid);
    }

    /// Whether a portion has come from a worker.
    pub fn has_scanned(&self) -> bool {
        self.scans.iter().any(|scan| scan.outcome().is_some())
    }

    /// Whether there may be something to take, or to have read.
    pub fn is_ready(&self) -> bool {
        self.producer.is_ready() || self.producer.has_work() || !self.dirty.is_empty()
    }

    /// Takes in what has happened since: portions of scans, and writes to the bucket.
    pub fn refresh(&mut self) {
        let is_over = |scan: &mut Scanned| scan.outcome().is_some();
        for scan in self.scans.extract_if(.., is_over) {
            let finished = scan.outcome().and_then(|outcome| outcome.lock().take());
            let failure =
                finished.and_then(|finished| self.producer.finish(finished, &*self.bucket));
            if let Some(error) = failure {
                tracing::error!(
                    "bucket {}: a stream of history ends, as it cannot be read: {error}",
                    self.bucket.name
                );
            }
        }
        while let Some(vbid) = self.dirty.take(0) {
            self.producer.note(vbid);
        }
    }

    /// The next message, if there is one now.
    pub fn next(&mut self) -> Option<(Address, Message)> {
        self.producer.next(&*self.bucket)
    }

    /// Has the workers read what has left memory.
    pub fn begin_scans(&mut self) {
        while let Some(work) = self.producer.take_work() {
            let scan = self.bucket.jobs.push(&self.waiter, move |bucket| {
                Mutex::new(Some(work.run(|vbid, after, history| bucket.scan(vbid, after, history))))
            });
            // Without a worker the bucket has ended, and so do the streams.
            self.scans.extend(scan);
        }
    }
}

impl Drop for ChangeConsumer {
    fn drop(&mut self) {
        self.bucket.listeners.remove(&self.dirty);
        self.producer.clear(&*self.bucket);
    }
}
