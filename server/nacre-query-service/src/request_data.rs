//! Data that a node keeps for requests in progress, on any node, until they end.

use nacre_state::IndexSnapshot;
use nacre_types::{CollectionId, Now, Vbid, Vbids};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Number of requests above which unused data is dropped, because the nodes of its requests may have
/// failed to report their end.
const ASKERS_MAX: usize = 1024;
/// Time in nanoseconds since its last use after which the data of a request may be dropped. Requests
/// may run for much longer.
const UNUSED_NS_MAX: u64 = 120_000_000_000;
/// Number of dropped snapshots that are remembered; beyond it, the oldest are forgotten.
const DROPPED_MAX: usize = 16_384;

/// An index, and the partition if it is partitioned.
pub type Source = (String, Option<u16>);

/// The kept data, by the number under which a request asks.
#[derive(Default)]
pub struct RequestCache(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    kept: HashMap<u64, Entry>,
    /// Snapshots that were dropped although the end of their requests was not reported.
    dropped: VecDeque<(u64, Source)>,
}

struct Entry {
    /// Time of the last use.
    used_ns: u64,
    data: RequestData,
}

/// The kept data of one request.
#[derive(Clone, Default)]
pub struct RequestData {
    /// Snapshots of indexes or their partitions that were read, each with its vBuckets.
    pub snapshots: HashMap<Source, (Vbids, IndexSnapshot)>,
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

impl RequestCache {
    /// Passes the kept data of a request to `read`, which counts as a use.
    pub fn read<T>(
        &self,
        asker: u64,
        now: Now,
        read: impl FnOnce(&RequestData) -> Option<T>,
    ) -> Option<T> {
        let mut requests = self.0.lock();
        let entry = requests.kept.get_mut(&asker)?;
        entry.used_ns = now.monotonic_ns;
        read(&entry.data)
    }

    /// Changes the kept data of a request, which counts as a use.
    pub fn update(&self, asker: u64, now: Now, change: impl FnOnce(&mut RequestData)) {
        let mut requests = self.0.lock();
        let mut unused = Vec::new();
        if requests.kept.len() >= ASKERS_MAX && !requests.kept.contains_key(&asker) {
            unused = requests.take_unused(now);
        }
        let entry = requests.kept.entry(asker);
        let entry = entry.or_insert_with(|| Entry { used_ns: 0, data: RequestData::default() });
        entry.used_ns = now.monotonic_ns;
        change(&mut entry.data);
        drop(requests);
        // The data may be large, so it is dropped outside of the lock.
        drop(unused);
    }

    /// Returns true if the request's snapshot was dropped before the request's end. Another snapshot
    /// would contradict the rows that the request has read already.
    pub fn has_lost_snapshot(&self, asker: u64, source: &Source) -> bool {
        let requests = self.0.lock();
        requests.dropped.iter().any(|(owner, dropped)| *owner == asker && dropped == source)
    }

    /// Drops the data of a request that has ended.
    pub fn forget(&self, asker: u64) {
        let mut requests = self.0.lock();
        let kept = requests.kept.remove(&asker);
        requests.dropped.retain(|(owner, _)| *owner != asker);
        drop(requests);
        // The data may be large, so it is dropped outside of the lock.
        drop(kept);
    }
}

impl Inner {
    /// Removes the data of requests that have not used it for long.
    fn take_unused(&mut self, now: Now) -> Vec<(u64, Entry)> {
        let oldest_ns = now.monotonic_ns.saturating_sub(UNUSED_NS_MAX);
        let is_unused = |_: &u64, entry: &mut Entry| entry.used_ns < oldest_ns;
        let unused: Vec<_> = self.kept.extract_if(is_unused).collect();
        for (asker, entry) in &unused {
            let sources = entry.data.snapshots.keys();
            self.dropped.extend(sources.map(|source| (*asker, source.clone())));
        }
        let excess = self.dropped.len().saturating_sub(DROPPED_MAX);
        self.dropped.drain(..excess);
        unused
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_state::{IndexForm, State};

    const LONG: u64 = 1;

    fn at(seconds: u64) -> Now {
        Now { monotonic_ns: seconds * 1_000_000_000, ..Now::default() }
    }

    fn source() -> Source {
        ("index".to_owned(), None)
    }

    /// Keeps a snapshot for a request.
    fn keep(cache: &RequestCache, asker: u64, now: Now) {
        cache.update(asker, now, |kept| {
            let snapshot = IndexSnapshot::new(State::default(), &IndexForm::default());
            kept.snapshots.insert(source(), (Vbids::default(), snapshot));
        });
    }

    /// Returns true if the snapshot of a request is kept.
    fn has(cache: &RequestCache, asker: u64, now: Now) -> bool {
        cache
            .read(asker, now, |kept| kept.snapshots.contains_key(&source()).then_some(()))
            .is_some()
    }

    /// Lets so many other requests keep data that unused data is dropped.
    fn fill(cache: &RequestCache, now: Now) {
        let first = now.monotonic_ns;
        (first..first + ASKERS_MAX as u64).for_each(|asker| keep(cache, asker, now));
    }

    #[test]
    fn data_that_a_long_request_still_uses_is_kept() {
        let cache = RequestCache::default();
        keep(&cache, LONG, at(0));
        assert!(has(&cache, LONG, at(100)));
        fill(&cache, at(200));
        assert!(has(&cache, LONG, at(200)), "looked at 100 seconds ago");
        cache.update(LONG, at(500), |_| {});
        fill(&cache, at(600));
        assert!(has(&cache, LONG, at(600)), "changed 100 seconds ago");
    }

    #[test]
    fn a_dropped_snapshot_is_remembered_until_the_end_of_its_request() {
        let cache = RequestCache::default();
        keep(&cache, LONG, at(0));
        assert!(!cache.has_lost_snapshot(LONG, &source()));
        fill(&cache, at(200));
        assert!(!has(&cache, LONG, at(200)));
        assert!(cache.has_lost_snapshot(LONG, &source()));
        assert!(!cache.has_lost_snapshot(LONG, &("index".to_owned(), Some(0))), "another snapshot");
        assert!(!cache.has_lost_snapshot(LONG + 1, &source()), "another request");
        cache.forget(LONG);
        assert!(!cache.has_lost_snapshot(LONG, &source()));
    }
}
