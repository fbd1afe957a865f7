//! The memory of a node: quotas of buckets, and the division of the rest.
//!
//! ```text
//! memory of the node ─┬─ an eighth: the process itself, and waste of the allocator
//!                     ├─ quotas of buckets
//!                     └─ the rest, an eighth at least ─┬─ four eighths: requests and answers, by user
//!                                                      ├─ three eighths: state of plugins, by deployment
//!                                                      └─ one eighth: plugins that follow documents, by deployment
//! ```

use nacre_budget::Budgets;
use nacre_cluster::Cluster;
use std::sync::atomic::{AtomicU64, Ordering};

/// The process itself gets one of this many parts of the limit; everything except buckets gets at least as much.
const PARTS: u64 = 8;

/// The memory limit of a node, and its budgets. Without a limit, they are unlimited.
#[derive(Debug, Default)]
pub struct NodeMemory {
    /// Limit in bytes; 0 for none.
    limit_bytes: AtomicU64,
    quotas_bytes: AtomicU64,
    budgets: Budgets,
}

impl NodeMemory {
    /// Returns the memory that the node may use, in bytes, if a limit is set.
    pub fn limit_bytes(&self) -> Option<u64> {
        Some(self.limit_bytes.load(Ordering::Relaxed)).filter(|bytes| *bytes > 0)
    }

    /// Sets the memory limit of the node, in bytes.
    pub fn set_limit(&self, bytes: u64) {
        self.limit_bytes.store(bytes, Ordering::Relaxed);
        self.divide();
    }

    /// Returns the sum of the quotas of all buckets, in bytes.
    pub fn quotas_bytes(&self) -> u64 {
        self.quotas_bytes.load(Ordering::Relaxed)
    }

    /// Returns the largest sum of all quotas, in bytes: everything except the part of the process itself.
    pub fn quotas_bytes_max(&self) -> Option<u64> {
        self.limit_bytes().map(|limit| limit - limit / PARTS)
    }

    /// Returns true if a quota of the bucket `name`, in MiB, fits into this node's memory together with the quotas of
    /// the other buckets.
    pub fn has_room_for(&self, cluster: &Cluster, name: &str, quota_mb: u64) -> bool {
        let others = cluster.buckets.values().filter(|bucket| bucket.name != name);
        let others_mb: u64 = others.map(|bucket| bucket.settings.ram_quota_mb).sum();
        let max = self.quotas_bytes_max();
        max.is_none_or(|max| others_mb.saturating_add(quota_mb) <= max >> 20)
    }

    /// Sets the sum of the quotas of all buckets, in bytes.
    pub(crate) fn set_quotas(&self, bytes: u64) {
        self.quotas_bytes.store(bytes, Ordering::Relaxed);
        self.divide();
    }

    /// Returns the budgets of requests, answers and plugins.
    pub fn budgets(&self) -> &Budgets {
        &self.budgets
    }

    fn divide(&self) {
        let Some(limit) = self.limit_bytes() else { return };
        let part = limit / PARTS;
        let rest = limit.saturating_sub(part).saturating_sub(self.quotas_bytes()).max(part);
        let eighths = |count: u64| usize::try_from(rest / 8 * count).unwrap_or(usize::MAX);
        self.budgets.requests.set_limit(eighths(4));
        self.budgets.state.set_limit(eighths(3));
        self.budgets.writers.set_limit(eighths(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn memory_left_by_quotas_is_divided_and_never_zero() {
        let memory = NodeMemory::default();
        assert_eq!((memory.limit_bytes(), memory.budgets().requests.limit()), (None, usize::MAX));
        memory.set_quotas(256 * MIB);
        memory.set_limit(1600 * MIB);
        let parts = || memory.budgets().all().map(|(_, budget)| budget.limit() >> 20);
        assert_eq!(parts(), [572, 429, 143]);
        assert_eq!(memory.quotas_bytes_max(), Some(1400 * MIB));
        memory.set_quotas(4000 * MIB);
        assert_eq!(parts(), [100, 75, 25], "quotas that do not fit leave an eighth");
    }
}
