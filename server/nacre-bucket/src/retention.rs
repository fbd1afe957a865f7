//! Retention of superseded versions: for a time, up to a size, and as far as the table of their locations has room.
//!
//! For the time limit, marks are kept: the seqnos that all vBuckets had reached at a moment. When a mark is as old as
//! the limit, history begins after it. Marks are not stored, so that after a restart all versions count as written
//! then.

use crate::bucket::Bucket;
use nacre_cluster::Manifest;
use nacre_store::{HistorySize, Store};
use nacre_types::{CollectionId, Now, Seqno, Vbid};
use std::collections::VecDeque;
use std::sync::Arc;

/// Marks within the time limit. Versions are kept longer than the limit by at most one part of this many.
const MARKS: u64 = 32;
/// The part of the bucket's quota that the table of history may take (one in so many), and its bytes for each
/// version.
const TABLE_SHARE: u64 = 8;
const TABLE_VERSION_BYTES: u64 = 27;
/// History that is too large is cut to so many sixteenths of the limit, so that it is not too large again at once.
const CUT_SIXTEENTHS: u64 = 15;

/// Returns the collections that keep history, and the one of system events: a consumer of their documents must know
/// them.
pub(crate) fn collections(manifest: &Manifest) -> Arc<[CollectionId]> {
    let collections = manifest.scopes.iter().flat_map(|scope| &scope.collections);
    let kept = collections.filter(|collection| collection.history);
    let mut ids: Vec<CollectionId> = kept.map(|collection| CollectionId(collection.id)).collect();
    ids.push(CollectionId::SYSTEM);
    ids.sort_unstable();
    ids.into()
}

/// Ends history that has passed its retention.
#[derive(Default)]
pub(crate) struct Retention {
    /// Monotonic nanoseconds, and the seqnos of the vBuckets then.
    marks: VecDeque<(u64, Vec<Seqno>)>,
}

impl Retention {
    /// Applies the limits of a bucket. Called every other second.
    pub fn look(&mut self, bucket: &Bucket, now: Now) {
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

/// Ends the oldest history of the vBuckets that use most of what is too much.
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

/// Returns the most that each may keep of its size, so that together they stay below `max`; `None` if they do.
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
    fn those_who_have_most_give_first() {
        assert_eq!(largest_share(vec![], 0), None);
        assert_eq!(largest_share(vec![100, 60], 160), None);
        assert_eq!(largest_share(vec![100, 61], 160), Some(89), "150 of 160 stay");
        assert_eq!(largest_share(vec![1000, 2, 1000, 4], 160), Some(72));
        assert_eq!(largest_share(vec![5, 5], 0), Some(0));
    }
}
