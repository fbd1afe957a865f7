//! A consumer of a bucket's history without a task of its own. Its waiter is woken when there may be more, and the
//! consumer takes one message at a time.
//!
//! The calling thread reads memory; the bucket's workers read the store. No method blocks.

use crate::bucket::Bucket;
use crate::listeners::DirtyVbuckets;
use crate::worker::BackgroundJobs;
use crate::{BucketEnv, Ticket, Waiter};
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
    has_low_priority: bool,
}

impl ChangeConsumer {
    /// Creates a consumer without streams. `waiter` is woken when there may be something to take.
    pub fn new(bucket: Arc<Bucket>, waiter: Arc<dyn Waiter>) -> ChangeConsumer {
        let dirty = bucket.listeners.listen(Arc::clone(&waiter));
        let (producer, scans) = (Producer::default(), Vec::new());
        ChangeConsumer { bucket, producer, dirty, waiter, scans, has_low_priority: false }
    }

    /// Sets whether scans give way to requests from now on. `env` runs the workers that carry them out.
    pub(crate) fn set_low_priority(&mut self, is_low: bool, env: &dyn BucketEnv) {
        // Without a store, a scan locks its vBucket: it must not be late.
        self.has_low_priority = is_low && self.bucket.store.is_some();
        if self.has_low_priority {
            BackgroundJobs::start(&self.bucket, env);
        }
    }

    /// Starts watching `vbid`. Must be called before a stream of `vbid` is opened.
    pub fn watch(&self, vbid: Vbid) {
        self.dirty.watch(vbid);
    }

    /// Returns true if a worker has completed a scan.
    pub fn has_scanned(&self) -> bool {
        self.scans.iter().any(|scan| scan.outcome().is_some())
    }

    /// Returns true if there may be a message to take or a scan to begin.
    pub fn is_ready(&self) -> bool {
        self.producer.is_ready() || self.producer.has_work() || !self.dirty.is_empty()
    }

    /// Collects completed scans and the vBuckets with new mutations.
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

    /// Returns the next message, if one is available.
    pub fn next_message(&mut self) -> Option<(Address, Message)> {
        self.producer.next(&*self.bucket)
    }

    /// Queues scans of the history that is no longer in memory.
    pub fn begin_scans(&mut self) {
        let background = &self.bucket.background.jobs;
        let jobs = if self.has_low_priority { background } else { &self.bucket.jobs };
        while let Some(work) = self.producer.take_work() {
            let scan = jobs.push(&self.waiter, move |bucket| {
                Mutex::new(Some(work.run(|vbid, after, history| bucket.scan(vbid, after, history))))
            });
            // `push` returns nothing when the bucket has ended; its streams end as well.
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
