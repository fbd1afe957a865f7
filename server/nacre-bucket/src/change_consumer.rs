//! The history of a bucket for a consumer without a task: its waiter is woken when there may be more, and the
//! consumer takes one message after another.
//!
//! Memory is read on the thread that takes, the store is read by the bucket's workers. Nothing here blocks.

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

/// The streams of one consumer, and the scans that feed them.
pub struct ChangeConsumer {
    /// The bucket whose history is read.
    pub bucket: Arc<Bucket>,
    /// The streams.
    pub producer: Producer<Error>,
    dirty: Arc<DirtyVbuckets>,
    waiter: Arc<dyn Waiter>,
    scans: Vec<Scanned>,
}

impl ChangeConsumer {
    /// Creates a consumer without streams. `waiter` is woken when there may be something to take.
    pub fn new(bucket: Arc<Bucket>, waiter: Arc<dyn Waiter>) -> ChangeConsumer {
        let dirty = bucket.listeners.listen(Arc::clone(&waiter));
        ChangeConsumer { bucket, producer: Producer::default(), dirty, waiter, scans: Vec::new() }
    }

    /// Watches `vbid` from now on. Must be called before a stream of it is opened.
    pub fn watch(&self, vbid: Vbid) {
        self.dirty.watch(vbid);
    }

    /// Returns true if a portion has come back from a worker.
    pub fn has_scanned(&self) -> bool {
        self.scans.iter().any(|scan| scan.outcome().is_some())
    }

    /// Returns true if there may be something to take, or to have read.
    pub fn is_ready(&self) -> bool {
        self.producer.is_ready() || self.producer.has_work() || !self.dirty.is_empty()
    }

    /// Takes in portions of scans that have come back, and the vBuckets that were written to.
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

    /// Returns the next message, if there is one now.
    pub fn next_message(&mut self) -> Option<(Address, Message)> {
        self.producer.next(&*self.bucket)
    }

    /// Has the workers read the history that has left memory.
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
