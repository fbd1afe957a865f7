//! The memory of a bucket: how much it may take, what leaves it when it takes more, and how that comes back.

use super::Bucket;
use crate::{Ticket, Waiter};
use nacre_cluster::{BucketKind, BucketSettings, EvictionPolicy};
use nacre_store::Error;
use nacre_types::{Now, Vbid};
use nacre_vbucket::{Eviction, Vbucket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

/// Share of the quota above which writes are refused for the time being, in percent.
const MUTATION_LIMIT_PERCENT: u64 = 93;
/// Share of the quota above which values leave memory, and the share at which that ends.
const HIGH_WATER_PERCENT: u64 = 85;
pub(crate) const LOW_WATER_PERCENT: u64 = 75;

/// What a bucket has in memory, and what it may have there.
pub(super) struct Memory {
    used: AtomicI64,
    quota: AtomicU64,
    /// Whether the log says that the bucket is full, and not yet that it is no longer.
    is_logged_full: AtomicBool,
}

impl Memory {
    /// With what these vBuckets have in memory, and no quota so far.
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

    /// Accounts for `grown` bytes more, or less; tells whether some are to be freed now.
    pub fn grow(&self, grown: i64) -> bool {
        if grown == 0 {
            return false;
        }
        let before = self.used.fetch_add(grown, Ordering::Relaxed);
        grown > 0 && before as u64 > self.share(HIGH_WATER_PERCENT)
    }
}

impl Bucket {
    /// Bytes of memory in use.
    pub fn memory_bytes(&self) -> u64 {
        self.memory.used()
    }

    /// Memory per node, in bytes.
    pub fn quota_bytes(&self) -> u64 {
        self.memory.quota()
    }

    /// Whether writes are refused until memory is free again, or space on the disk.
    pub fn refuses_growth(&self) -> bool {
        self.memory.used() > self.memory.share(MUTATION_LIMIT_PERCENT)
            || self.store_waiting.load(Ordering::Relaxed)
    }

    /// Says in the log that a bucket which has all of its documents in memory has no room for more, once until there is
    /// room again. Others are full for moments only, until documents have left memory.
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

    /// Says in the log that there is room again, if it was full and a quarter of its memory is free.
    pub(crate) fn log_room(&self) {
        let memory = &self.memory;
        if memory.is_logged_full.load(Ordering::Relaxed)
            && memory.used() <= memory.share(LOW_WATER_PERCENT)
            && memory.is_logged_full.swap(false, Ordering::Relaxed)
        {
            tracing::info!("bucket {}: there is room in its memory again", self.name);
        }
    }

    /// Bytes to free: those above the low-water mark, once the high-water mark was passed (`begun`).
    pub(crate) fn excess_bytes(&self, begun: bool) -> u64 {
        let used = self.memory.used();
        let mark = if begun { LOW_WATER_PERCENT } else { HIGH_WATER_PERCENT };
        if used <= self.memory.share(mark) {
            return 0;
        }
        used - self.memory.share(LOW_WATER_PERCENT)
    }

    /// Whether the store waits for space or descriptors, so that writes are refused for the time being.
    pub fn store_is_waiting(&self) -> bool {
        self.store_waiting.load(Ordering::Relaxed)
    }

    pub(crate) fn set_store_waiting(&self, waiting: bool) {
        self.store_waiting.store(waiting, Ordering::Relaxed);
    }

    /// Has a worker read a document of the store back into memory. The ticket says true once it is there, false when it
    /// cannot be read; there is none when the bucket has ended.
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

    /// Reads a document of the store back into memory.
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

    /// Takes about `percent` of a vBucket out of memory, or deletes it where the bucket does that. Gives a number above 0 if
    /// that made room.
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

/// What a vBucket has in memory, its history included.
pub(super) fn memory_of(vbucket: &Vbucket) -> i64 {
    (vbucket.memory_bytes() + vbucket.checkpoint().memory_bytes()) as i64
}

/// What may leave memory, given where the bucket's documents are kept.
pub(crate) fn eviction_of(settings: &BucketSettings) -> Eviction {
    match (settings.kind, settings.eviction_policy) {
        (BucketKind::Ephemeral, _) => Eviction::Nothing,
        (BucketKind::Persistent, EvictionPolicy::Full) => Eviction::Items,
        (BucketKind::Persistent, _) => Eviction::Values,
    }
}
