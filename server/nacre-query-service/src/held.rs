//! Data that a node keeps for requests in progress, on any node, until they end.

use nacre_state::IndexSnapshot;
use nacre_types::{CollectionId, Now, Vbid, Vbids};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// Number of requests above which old ones are dropped, because their nodes may have failed to
/// report their end.
const ASKERS_MAX: usize = 1024;
/// Age in nanoseconds from which the data of a request may be dropped.
const LIFETIME_NS: u64 = 120_000_000_000;

/// The kept data, by the number under which a request asks.
#[derive(Default)]
pub struct Held(Mutex<HashMap<u64, (u64, Kept)>>);

/// The kept data of one request.
#[derive(Clone, Default)]
pub struct Kept {
    /// Snapshots of indexes or their partitions that were read, each with its vBuckets.
    pub snapshots: HashMap<(String, Option<u16>), (Vbids, IndexSnapshot)>,
    /// IDs of the vBucket that a scan has reached, so that it need not be listed for every page.
    pub listed: Option<Listed>,
}

/// The sorted IDs of a vBucket.
#[derive(Clone)]
pub struct Listed {
    /// The bucket's UUID, the collection and the vBucket.
    pub of: (String, CollectionId, Vbid),
    /// The IDs of the documents.
    pub ids: Arc<Vec<String>>,
}

impl Held {
    /// Passes the kept data of a request to `look`.
    pub fn look<T>(&self, asker: u64, look: impl FnOnce(&Kept) -> Option<T>) -> Option<T> {
        look(&self.0.lock().get(&asker)?.1)
    }

    /// Changes the kept data of a request.
    pub fn keep(&self, asker: u64, now: Now, change: impl FnOnce(&mut Kept)) {
        let mut held = self.0.lock();
        if held.len() >= ASKERS_MAX && !held.contains_key(&asker) {
            let oldest_ns = now.monotonic_ns.saturating_sub(LIFETIME_NS);
            held.retain(|_, (since_ns, _)| *since_ns >= oldest_ns);
        }
        change(&mut held.entry(asker).or_insert_with(|| (now.monotonic_ns, Kept::default())).1);
    }

    /// Drops the data of a request that has ended.
    pub fn forget(&self, asker: u64) {
        let kept = self.0.lock().remove(&asker);
        // The data may be large, so it is dropped outside of the lock.
        drop(kept);
    }
}
