//! The keeper of a bucket: chores that depend on time and memory. The keeper evicts documents when memory is short;
//! expires documents; purges old tombstones, dropped collections and history past its retention; gives up requests
//! whose deadline has passed; and pings silent DCP consumers.

use crate::bucket::Bucket;
use crate::durability;
use crate::retention::Retention;
use crate::{BucketEnv, Next, Signal, Task};
use nacre_store::{Error, Which};
use nacre_types::{CollectionId, Document, Now, Seqno, Vbid};
use std::sync::Arc;
use std::time::Duration;

/// Interval of checks for expired documents, abandoned scans and silent consumers.
const ROUND_INTERVAL: Duration = Duration::from_secs(2);
/// Interval of deadline checks while requests have deadlines.
const DEADLINE_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum interval of searches for old tombstones; a shorter purge age shortens it.
const PURGE_INTERVAL_MAX: Duration = Duration::from_secs(3600);
/// Pause of eviction after a pass that freed nothing.
const BARREN_INTERVAL: Duration = Duration::from_millis(200);

pub(crate) struct Keeper {
    bucket: Arc<Bucket>,
    env: Arc<dyn BucketEnv>,
    /// Monotonic nanoseconds of the next check of deadlines, the next round of checks, and the next search for old
    /// tombstones.
    deadlines_at: u64,
    round_at: u64,
    /// Monotonic nanoseconds of the last search for expired documents.
    expired_at: u64,
    purge_at: u64,
    retention: Retention,
    /// The vBucket to evict from next, and the amount freed in this pass.
    turn: usize,
    freed: usize,
    /// Monotonic nanoseconds of the next pass after one that freed nothing.
    room_at: u64,
}

/// Returns the time of the next search for old tombstones, in monotonic nanoseconds.
fn purge_at(bucket: &Bucket, now: Now) -> u64 {
    let age = Duration::from_secs(u64::from(bucket.purge_age_s()));
    now.monotonic_ns + age.min(PURGE_INTERVAL_MAX).as_nanos() as u64
}

impl Keeper {
    pub fn new(bucket: Arc<Bucket>, env: Arc<dyn BucketEnv>) -> Keeper {
        let purge_at = purge_at(&bucket, env.now());
        Keeper {
            bucket,
            env,
            deadlines_at: 0,
            round_at: 0,
            expired_at: 0,
            purge_at,
            retention: Retention::default(),
            turn: 0,
            freed: 0,
            room_at: 0,
        }
    }

    /// Evicts a share of one vBucket. Returns false when memory suffices or nothing is left to evict.
    fn make_room(&mut self, now: Now) -> bool {
        let percent = self.bucket.excess_percent(self.turn > 0);
        let Some(percent) = percent.filter(|_| now.monotonic_ns >= self.room_at) else {
            self.turn = 0;
            return false;
        };
        self.freed += self.bucket.make_room(Vbid(self.turn as u16), percent, now);
        self.turn += 1;
        if self.turn < usize::from(self.bucket.vbucket_count()) {
            return true;
        }
        self.turn = 0;
        let freed = std::mem::take(&mut self.freed) > 0;
        if !freed {
            self.room_at = now.monotonic_ns + BARREN_INTERVAL.as_nanos() as u64;
        }
        freed
    }

    fn expire(&mut self, now: Now) {
        for index in 0..self.bucket.vbucket_count() {
            self.bucket.expire(Vbid(index), now);
        }
        self.bucket.wake_listeners();
    }

    /// Purges tombstones older than the purge age. Where the keys are not all in memory, searches the store for them
    /// and for expired documents.
    fn purge(&mut self, now: Now) {
        let before = now.unix_s().saturating_sub(self.bucket.purge_age_s());
        for vbid in (0..self.bucket.vbucket_count()).map(Vbid) {
            let purged = self.bucket.change(vbid, |vbucket| vbucket.purge(before));
            if let Err(error) = self.sweep_store(vbid, before, now) {
                let name = &self.bucket.name;
                tracing::warn!("bucket {name}: cannot look for old tombstones of {vbid}: {error}");
            }
            if purged > Some(0) {
                self.bucket.mark_dirty(vbid);
            }
        }
        self.bucket.wake_listeners();
    }

    /// Returns the stored documents of a vBucket whose keys are not all in memory; nothing for other vBuckets.
    fn stored(
        &self,
        vbid: Vbid,
    ) -> Result<impl Iterator<Item = Result<Document, Error>> + use<>, Error> {
        let evicted = self.bucket.vbucket(vbid).is_some_and(|vbucket| vbucket.has_evicted_keys());
        let store = self.bucket.store.as_ref().filter(|_| evicted);
        let scan = store.map(|store| store.scan(vbid, Seqno::ZERO, Which::Current)).transpose()?;
        Ok(scan.into_iter().flat_map(|scan| scan.documents))
    }

    fn sweep_store(&self, vbid: Vbid, before: u32, now: Now) -> Result<(), Error> {
        for document in self.stored(vbid)? {
            let document = document?;
            if !document.collection().holds_documents() {
                continue;
            }
            if document.is_expired(now.unix_s()) {
                self.bucket.fetch(vbid, document.key())?;
            } else if !document.is_alive() && document.meta.expiry < before {
                self.bucket.change(vbid, |vbucket| vbucket.purge_stored(&document));
                self.bucket.mark_dirty(vbid);
            }
        }
        self.bucket.expire(vbid, now);
        Ok(())
    }

    /// Erases documents of dropped collections that are only in the store.
    fn erase_stored(&mut self, dropped: &[CollectionId]) {
        for vbid in (0..self.bucket.vbucket_count()).map(Vbid) {
            if let Err(error) = self.erase_stored_of(vbid, dropped) {
                tracing::warn!(
                    "bucket {}: documents of dropped collections stay in the store of {vbid}: {error}",
                    self.bucket.name
                );
            }
        }
        self.bucket.wake_listeners();
    }

    fn erase_stored_of(&self, vbid: Vbid, dropped: &[CollectionId]) -> Result<(), Error> {
        let mut found: Vec<(Box<[u8]>, Seqno)> = Vec::new();
        for document in self.stored(vbid)? {
            let document = document?;
            if dropped.contains(&document.collection()) {
                found.push((document.key().into(), document.meta.seqno));
            }
        }
        if found.is_empty() {
            return Ok(());
        }
        self.bucket.change(vbid, |vbucket| {
            found.iter().for_each(|(key, seqno)| vbucket.erase(key, *seqno));
        });
        self.bucket.mark_dirty(vbid);
        Ok(())
    }
}

impl Task for Keeper {
    fn name(&self) -> &'static str {
        "keeper"
    }

    fn is_background(&self) -> bool {
        false
    }

    fn step(&mut self) -> Next {
        if self.bucket.is_closed() {
            return Next::Done;
        }
        let now = self.env.now();
        if self.make_room(now) {
            return Next::Again;
        }
        let dropped = self.bucket.take_dropped();
        if !dropped.is_empty() {
            self.erase_stored(&dropped);
        }
        if now.monotonic_ns >= self.round_at {
            self.round_at = now.monotonic_ns + ROUND_INTERVAL.as_nanos() as u64;
            let since = Duration::from_nanos(now.monotonic_ns.saturating_sub(self.expired_at));
            if self.bucket.expiry_interval().is_some_and(|interval| since >= interval) {
                self.expired_at = now.monotonic_ns;
                self.expire(now);
            }
            self.retention.apply_limits(&self.bucket, now);
            self.bucket.scans.forget_old(now);
            self.bucket.dcp_connections.tick(now);
        }
        if now.monotonic_ns >= self.purge_at {
            self.purge_at = purge_at(&self.bucket, now);
            self.purge(now);
        }
        if !self.bucket.waits.has_deadlines() {
            return Next::After(ROUND_INTERVAL);
        }
        if now.monotonic_ns >= self.deadlines_at {
            self.deadlines_at = now.monotonic_ns + DEADLINE_INTERVAL.as_nanos() as u64;
            durability::complete_all(&self.bucket, now);
            self.bucket.waits.give_up_hand_overs(now);
        }
        Next::After(DEADLINE_INTERVAL)
    }

    fn signal(&self) -> &Signal {
        &self.bucket.keeper
    }
}
