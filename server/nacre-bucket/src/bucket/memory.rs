//! Memory management of a bucket: the quota, eviction, and reading evicted documents back.

use super::Bucket;
use crate::{Ticket, Waiter};
use nacre_cluster::{BucketKind, BucketSettings, EvictionPolicy};
use nacre_store::Error;
use nacre_types::{Now, Vbid};
use nacre_vbucket::{Eviction, Vbucket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

/// Share of the quota above which writes are refused, in percent.
const MUTATION_LIMIT_PERCENT: u64 = 93;
/// Shares of the quota at which eviction begins (high-water mark) and ends (low-water mark), in percent.
const HIGH_WATER_PERCENT: u64 = 85;
pub(crate) const LOW_WATER_PERCENT: u64 = 75;
/// Minimum share of a vBucket to evict in one pass, in percent: smaller shares are not worth the walk.
const SHARE_MIN: u64 = 5;

/// The memory that a bucket uses, and its quota.
pub(super) struct Memory {
    used: AtomicI64,
    quota: AtomicU64,
    /// True if the last log line said that the bucket is full.
    is_logged_full: AtomicBool,
}

impl Memory {
    /// Counts the memory of `vbuckets`. The quota is 0 until it is set.
    pub fn of(vbuckets: &[Vbucket]) -> Memory {
        let used = vbuckets.iter().map(memory_of).sum::<i64>();
        let (quota, is_logged_full) = (AtomicU64::new(0), AtomicBool::new(false));
        Memory { used: AtomicI64::new(used), quota, is_logged_full }
    }

    pub(crate) fn set_quota(&self, bytes: u64) {
        self.quota.store(bytes, Ordering::Relaxed);
    }

    fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed).max(0) as u64
    }

    fn quota(&self) -> u64 {
        self.quota.load(Ordering::Relaxed)
    }

    fn share(&self, percent: u64) -> u64 {
        self.quota() / 100 * percent
    }

    /// Adds `grown` bytes, which may be negative. Returns true if documents should be evicted now.
    pub fn grow(&self, grown: i64) -> bool {
        if grown == 0 {
            return false;
        }
        let before = self.used.fetch_add(grown, Ordering::Relaxed);
        grown > 0 && before as u64 > self.share(HIGH_WATER_PERCENT)
    }
}

impl Bucket {
    /// Returns the bytes of memory in use.
    pub fn memory_bytes(&self) -> u64 {
        self.memory.used()
    }

    /// Returns the memory quota of the bucket on one node, in bytes.
    pub fn quota_bytes(&self) -> u64 {
        self.memory.quota()
    }

    /// Returns true if writes are refused until memory is freed or the store has space.
    pub fn refuses_growth(&self) -> bool {
        self.memory.used() > self.memory.share(MUTATION_LIMIT_PERCENT)
            || self.store_waiting.load(Ordering::Relaxed)
    }

    /// Logs that a bucket without a store is full, once until it has room again. Buckets with a store are full only
    /// briefly, until documents are evicted.
    pub(crate) fn log_full(&self) {
        if self.store.is_some() || self.memory.is_logged_full.swap(true, Ordering::Relaxed) {
            return;
        }
        let (used, quota) = (self.memory.used() >> 20, self.memory.quota() >> 20);
        tracing::error!(
            "bucket {}: its memory is full ({used} of {quota} MiB, ramQuotaMB), writes are refused until there is room",
            self.name
        );
    }

    /// Logs that the bucket has room again, if it was full and a quarter of its memory is free.
    pub(crate) fn log_room(&self) {
        let memory = &self.memory;
        if memory.is_logged_full.load(Ordering::Relaxed)
            && memory.used() <= memory.share(LOW_WATER_PERCENT)
            && memory.is_logged_full.swap(false, Ordering::Relaxed)
        {
            tracing::info!("bucket {}: there is room in its memory again", self.name);
        }
    }

    /// Returns the share of each vBucket to evict, in percent; `None` when memory suffices. Eviction begins above the
    /// high-water mark, and once it has `begun` it ends at the low-water mark.
    pub(crate) fn excess_percent(&self, begun: bool) -> Option<u8> {
        let used = self.memory.used();
        let mark = if begun { LOW_WATER_PERCENT } else { HIGH_WATER_PERCENT };
        if used <= self.memory.share(mark) {
            return None;
        }
        let excess = used - self.memory.share(LOW_WATER_PERCENT);
        Some((excess * 100 / used).clamp(SHARE_MIN, 100) as u8)
    }

    /// Evicts until memory suffices or a pass over all vBuckets frees nothing, on this thread.
    pub fn free_memory(&self, now: Now) {
        let mut begun = false;
        loop {
            let mut freed = 0;
            for vbid in (0..self.vbucket_count()).map(Vbid) {
                let Some(percent) = self.excess_percent(begun) else { return };
                begun = true;
                freed += self.make_room(vbid, percent, now);
            }
            if freed == 0 {
                return;
            }
        }
    }

    /// Returns true if the store waits for space or descriptors; writes are refused meanwhile.
    pub fn store_is_waiting(&self) -> bool {
        self.store_waiting.load(Ordering::Relaxed)
    }

    pub(crate) fn set_store_waiting(&self, waiting: bool) {
        self.store_waiting.store(waiting, Ordering::Relaxed);
    }

    /// Queues a worker to read a document back into memory. The ticket holds true once the document is in memory, and
    /// false if it cannot be read. Returns `None` when the bucket has ended.
    pub fn fetch_later(
        &self,
        vbid: Vbid,
        key: &[u8],
        waiter: &Arc<dyn Waiter>,
    ) -> Option<Arc<Ticket<bool>>> {
        let key = Box::<[u8]>::from(key);
        self.jobs.push(waiter, move |bucket| {
            let fetched = bucket.fetch(vbid, &key);
            if let Err(error) = &fetched
                && !bucket.is_discarded()
            {
                tracing::error!(
                    "bucket {}: cannot read a document of {vbid}: {error}",
                    bucket.name
                );
            }
            fetched.is_ok()
        })
    }

    /// Reads an evicted document back into memory.
    pub fn fetch(&self, vbid: Vbid, key: &[u8]) -> Result<(), Error> {
        let Some(store) = &self.store else { return Ok(()) };
        loop {
            let Some(epoch) = self.vbucket(vbid).map(|vbucket| vbucket.eviction_epoch()) else {
                return Ok(());
            };
            let stored = store.get(vbid, key)?;
            if self.change(vbid, |vbucket| vbucket.restore(key, stored, epoch)) != Some(false) {
                return Ok(());
            }
        }
    }

    /// Evicts about `percent` of a vBucket, or deletes documents if the bucket's policy allows that. Returns a number
    /// above 0 if memory was freed.
    pub fn make_room(&self, vbid: Vbid, percent: u8, now: Now) -> usize {
        if self.store.is_some() {
            return self.change(vbid, |vbucket| vbucket.evict(percent, now)).unwrap_or(0);
        }
        if !self.discards_documents.load(Ordering::Relaxed) {
            return 0;
        }
        let deleted = self.change(vbid, |vbucket| vbucket.discard(percent, now)).unwrap_or(0);
        if deleted > 0 {
            self.mark_dirty(vbid);
            self.wake_listeners();
        }
        deleted
    }
}

/// Returns the memory of a vBucket in bytes, including its checkpoint.
pub(super) fn memory_of(vbucket: &Vbucket) -> i64 {
    (vbucket.memory_bytes() + vbucket.checkpoint().memory_bytes()) as i64
}

/// Returns what may be evicted under the bucket's type and eviction policy.
pub(crate) fn eviction_of(settings: &BucketSettings) -> Eviction {
    match (settings.kind, settings.eviction_policy) {
        (BucketKind::Ephemeral, _) => Eviction::Nothing,
        (BucketKind::Persistent, EvictionPolicy::Full) => Eviction::Items,
        (BucketKind::Persistent, _) => Eviction::Values,
    }
}
