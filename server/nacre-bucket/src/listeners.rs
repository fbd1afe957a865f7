//! Notifies the consumers of a bucket's history which vBuckets have new mutations.
//!
//! ```text
//! write to vBucket 7 ─► HistoryListeners::mark(7) ─► bit 7 of each DirtyVbuckets that watches it
//! end of the burst   ─► HistoryListeners::wake    ─► waiter of each that has a bit set ─► DirtyVbuckets::take
//! ```
//!
//! A mark carries no document and no seqno. A slow consumer finds a single bit however often a vBucket was written, and a write
//! costs the same whether consumers keep up or not.

use crate::Waiter;
use nacre_types::Vbid;
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The vBuckets that one consumer must read, and the waiter that wakes the consumer.
pub struct DirtyVbuckets {
    /// One bit per vBucket.
    bits: Box<[AtomicU64]>,
    /// The vBuckets that may be marked.
    watched: Box<[AtomicU64]>,
    waiter: Arc<dyn Waiter>,
}

/// Returns one bit per vBucket in words of 64, each word initialised to `bits`.
fn words(vbucket_count: usize, bits: u64) -> Box<[AtomicU64]> {
    (0..vbucket_count.div_ceil(64)).map(|_| AtomicU64::new(bits)).collect()
}

impl DirtyVbuckets {
    /// Creates a set without marks that watches all of `vbucket_count` vBuckets.
    pub fn watching_all(vbucket_count: usize, waiter: Arc<dyn Waiter>) -> DirtyVbuckets {
        let (bits, watched) = (words(vbucket_count, 0), words(vbucket_count, u64::MAX));
        DirtyVbuckets { bits, watched, waiter }
    }

    /// Creates a set that ignores each vBucket until [`DirtyVbuckets::watch`].
    pub fn watching_none(vbucket_count: usize, waiter: Arc<dyn Waiter>) -> DirtyVbuckets {
        let (bits, watched) = (words(vbucket_count, 0), words(vbucket_count, 0));
        DirtyVbuckets { bits, watched, waiter }
    }

    /// Starts watching `vbid`. A vBucket out of range is ignored.
    pub fn watch(&self, vbid: Vbid) {
        if let Some(word) = self.watched.get(vbid.index() / 64) {
            word.fetch_or(1 << (vbid.index() % 64), Ordering::AcqRel);
        }
    }

    /// Wakes the consumer.
    pub fn wake(&self) {
        self.waiter.wake();
    }

    /// Returns true if no vBucket is marked.
    pub fn is_empty(&self) -> bool {
        self.bits.iter().all(|word| word.load(Ordering::Acquire) == 0)
    }

    /// Marks `vbid` if it is watched. Does not wake the consumer: callers wake once per burst of writes.
    pub fn mark(&self, vbid: Vbid) {
        let (word, bit) = (vbid.index() / 64, 1 << (vbid.index() % 64));
        if self.watched[word].load(Ordering::Acquire) & bit == 0 {
            return;
        }
        // Most writes find the bit set, so check before writing to a cache line that other threads read.
        if self.bits[word].load(Ordering::Relaxed) & bit == 0 {
            self.bits[word].fetch_or(bit, Ordering::Release);
        }
    }

    /// Removes and returns one marked vBucket: the first at or after `from`, or else the first of all.
    pub fn take(&self, from: usize) -> Option<Vbid> {
        self.take_among(from, u64::MAX)
    }

    /// Takes one vBucket as [`DirtyVbuckets::take`] does, among those whose bit is set in `wanted`: bit `vbid % 64`.
    pub fn take_among(&self, from: usize, wanted: u64) -> Option<Vbid> {
        let words = self.bits.len();
        for step in 0..=words {
            let index = (from / 64 + step) % words;
            let mut word = self.bits[index].load(Ordering::Acquire) & wanted;
            if step == 0 {
                word &= u64::MAX << (from % 64);
            }
            if word != 0 {
                let bit = word.trailing_zeros() as usize;
                self.bits[index].fetch_and(!(1 << bit), Ordering::AcqRel);
                return Some(Vbid((index * 64 + bit) as u16));
            }
        }
        None
    }
}

/// The consumers of a bucket's history.
pub struct HistoryListeners {
    vbucket_count: usize,
    all: RwLock<Vec<Arc<DirtyVbuckets>>>,
}

impl HistoryListeners {
    /// Creates an empty list for a bucket of `vbucket_count` vBuckets.
    pub fn new(vbucket_count: usize) -> HistoryListeners {
        HistoryListeners { vbucket_count, all: RwLock::default() }
    }

    /// Registers a consumer of every vBucket.
    pub fn listen_to_all(&self, waiter: Arc<dyn Waiter>) -> Arc<DirtyVbuckets> {
        self.register(DirtyVbuckets::watching_all(self.vbucket_count, waiter))
    }

    /// Registers a consumer of the vBuckets that it [watches](DirtyVbuckets::watch) later.
    pub fn listen(&self, waiter: Arc<dyn Waiter>) -> Arc<DirtyVbuckets> {
        self.register(DirtyVbuckets::watching_none(self.vbucket_count, waiter))
    }

    /// Registers a consumer of `vbids`. Each is marked initially, so that the consumer reads the existing history.
    pub fn listen_to(
        &self,
        vbids: impl Iterator<Item = Vbid>,
        waiter: Arc<dyn Waiter>,
    ) -> Arc<DirtyVbuckets> {
        let dirty = self.listen(waiter);
        for vbid in vbids {
            dirty.watch(vbid);
            dirty.mark(vbid);
        }
        dirty.wake();
        dirty
    }

    fn register(&self, dirty: DirtyVbuckets) -> Arc<DirtyVbuckets> {
        let dirty = Arc::new(dirty);
        self.all.write().push(Arc::clone(&dirty));
        dirty
    }

    /// Removes a consumer.
    pub fn remove(&self, dirty: &Arc<DirtyVbuckets>) {
        self.all.write().retain(|known| !Arc::ptr_eq(known, dirty));
    }

    /// Marks `vbid` for each consumer that watches it. Does not wake.
    pub fn mark(&self, vbid: Vbid) {
        self.all.read().iter().for_each(|dirty| dirty.mark(vbid));
    }

    /// Wakes each consumer that has a vBucket marked.
    pub fn wake(&self) {
        self.all.read().iter().filter(|dirty| !dirty.is_empty()).for_each(|dirty| dirty.wake());
    }

    /// Wakes every consumer, because a condition other than history may have changed for some of them.
    pub fn wake_all(&self) {
        self.all.read().iter().for_each(|dirty| dirty.wake());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Signal;

    fn dirty(vbucket_count: usize) -> DirtyVbuckets {
        DirtyVbuckets::watching_all(vbucket_count, Arc::new(Signal::default()))
    }

    #[test]
    fn a_vbucket_that_is_not_watched_is_not_marked() {
        let dirty = DirtyVbuckets::watching_none(1024, Arc::new(Signal::default()));
        dirty.mark(Vbid(65));
        assert!(dirty.is_empty());
        dirty.watch(Vbid(65));
        (64..67).for_each(|vbid| dirty.mark(Vbid(vbid)));
        assert_eq!((dirty.take(0), dirty.take(0)), (Some(Vbid(65)), None));
    }

    #[test]
    fn marks_are_taken_once_and_in_turn() {
        let dirty = dirty(1024);
        for vbid in [3, 64, 700] {
            dirty.mark(Vbid(vbid));
            dirty.mark(Vbid(vbid));
        }
        assert!(!dirty.is_empty());
        assert_eq!(dirty.take(65), Some(Vbid(700)));
        assert_eq!(dirty.take(701), Some(Vbid(3)));
        assert_eq!(dirty.take(4), Some(Vbid(64)));
        assert_eq!(dirty.take(0), None);
        assert!(dirty.is_empty());
    }

    #[test]
    fn marks_of_other_vbuckets_stay() {
        let dirty = dirty(1024);
        for vbid in [3, 16, 700, 704] {
            dirty.mark(Vbid(vbid));
        }
        let sixteenth = 1 | 1 << 16 | 1 << 32 | 1 << 48;
        assert_eq!(dirty.take_among(17, sixteenth), Some(Vbid(704)));
        assert_eq!(dirty.take_among(705, sixteenth), Some(Vbid(16)));
        assert_eq!(dirty.take_among(17, sixteenth), None);
        assert_eq!(dirty.take(17), Some(Vbid(700)));
    }

    #[test]
    fn a_bit_below_the_start_is_found_after_the_wraparound() {
        let dirty = dirty(64);
        dirty.mark(Vbid(2));
        assert_eq!(dirty.take(5), Some(Vbid(2)));
    }
}
