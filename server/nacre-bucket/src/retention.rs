//! Retention of superseded versions: limited by age, by size, and by the memory for the table of their locations.
//!
//! For the age limit, the bucket records marks: the seqnos of all vBuckets at a point in time. Once a mark is as old as
//! the limit, history begins after it. Marks are not stored, so after a restart all kept versions count as written at
//! the restart.

use crate::bucket::Bucket;
use nacre_cluster::Manifest;
use nacre_store::{HistorySize, Store};
use nacre_types::{CollectionId, Now, Seqno, Vbid};
use std::collections::VecDeque;
use std::sync::Arc;

/// Number of marks per age limit. Versions are kept for at most 1/32 of the limit too long.
const MARKS: u64 = 32;
/// The divisor of the bucket's quota that bounds the table of history (one eighth), and the table's bytes per version.
const TABLE_SHARE: u64 = 8;
const TABLE_VERSION_BYTES: u64 = 27;
/// History over the limit is cut to 15/16 of it, so that it does not exceed the limit again at once.
const CUT_SIXTEENTHS: u64 = 15;

/// Returns the collections that keep history, plus that of system events, which consumers of the documents need.
pub(crate) fn collections(manifest: &Manifest) -> Arc<[CollectionId]> {
    let collections = manifest.scopes.iter().flat_map(|scope| &scope.collections);
    let kept = collections.filter(|collection| collection.history);
    let mut ids: Vec<CollectionId> = kept.map(|collection| CollectionId(collection.id)).collect();
    ids.push(CollectionId::SYSTEM);
    ids.sort_unstable();
    ids.into()
}

/// Ends history that is past its retention.
#[derive(Default)]
pub(crate) struct Retention {
    /// Monotonic nanoseconds, and the seqnos of the vBuckets at that time.
    marks: VecDeque<(u64, Vec<Seqno>)>,
}

impl Retention {
    /// Applies the limits of a bucket. Called every two seconds.
    pub fn apply_limits(&mut self, bucket: &Bucket, now: Now) {
        let Some(limits) = bucket.history_limits() else {
            self.marks.clear();
            return;
        };
        if limits.seconds > 0 {
            self.forget_old(bucket, limits.seconds.saturating_mul(1_000_000_000), now);
        }
        if let Some(store) = &bucket.store {
            forget_excess(bucket, &**store, limits.bytes);
        }
        bucket.wake_listeners();
    }

    fn forget_old(&mut self, bucket: &Bucket, age_ns: u64, now: Now) {
        let is_due = |(at, _): &(u64, _)| now.monotonic_ns - at >= age_ns / MARKS;
        if self.marks.back().is_none_or(is_due) {
            self.marks.push_back((now.monotonic_ns, bucket.high_seqnos()));
        }
        let mut old = None;
        while self.marks.front().is_some_and(|(at, _)| now.monotonic_ns - at >= age_ns) {
            old = self.marks.pop_front();
        }
        let (_, seqnos) = old.unwrap_or_default();
        for (vbid, seqno) in (0..).map(Vbid).zip(seqnos) {
            bucket.forget_history(vbid, seqno.next());
        }
    }
}

/// Drops the oldest history of the vBuckets that use the largest part of the excess.
fn forget_excess(bucket: &Bucket, store: &dyn Store, bytes_max: u64) {
    let sizes = store.history();
    let versions_max = bucket.quota_bytes() / TABLE_SHARE / TABLE_VERSION_BYTES;
    let bytes_max = if bytes_max == 0 { u64::MAX } else { bytes_max };
    let most = |of: fn(&HistorySize) -> u64, max| {
        largest_share(sizes.iter().map(|(_, size)| of(size)).collect(), max)
    };
    let versions = most(|size| size.versions, versions_max);
    if versions.is_some() {
        tracing::warn!(
            "bucket {}: more than {versions_max} superseded versions do not fit its quota, the oldest go",
            bucket.name
        );
    }
    let limit = HistorySize {
        versions: versions.unwrap_or(u64::MAX),
        bytes: most(|size| size.bytes, bytes_max).unwrap_or(u64::MAX),
    };
    for (vbid, size) in sizes {
        if size.versions > limit.versions || size.bytes > limit.bytes {
            bucket.forget_history(vbid, store.history_within(vbid, limit));
        }
    }
}

/// Returns the largest size that each vBucket may keep so that the sum stays below `max`; `None` if it already does.
fn largest_share(mut sizes: Vec<u64>, max: u64) -> Option<u64> {
    if sizes.iter().sum::<u64>() <= max {
        return None;
    }
    sizes.sort_unstable();
    let mut left = max / 16 * CUT_SIXTEENTHS;
    for (index, size) in sizes.iter().enumerate() {
        let share = left / (sizes.len() - index) as u64;
        if *size > share {
            return Some(share);
        }
        left -= size;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_holders_give_memory_first() {
        assert_eq!(largest_share(vec![], 0), None);
        assert_eq!(largest_share(vec![100, 60], 160), None);
        assert_eq!(largest_share(vec![100, 61], 160), Some(89), "150 of 160 stay");
        assert_eq!(largest_share(vec![1000, 2, 1000, 4], 160), Some(72));
        assert_eq!(largest_share(vec![5, 5], 0), Some(0));
    }
}
