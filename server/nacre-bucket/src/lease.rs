//! The lease of a node: the node may serve until the lease ends.

use std::sync::atomic::{AtomicU64, Ordering};

/// The end of a node's lease, in nanoseconds of its monotonic clock.
#[derive(Debug)]
pub struct Lease(AtomicU64);

impl Default for Lease {
    /// Returns an endless lease, for a single node.
    fn default() -> Lease {
        Lease(AtomicU64::new(u64::MAX))
    }
}

impl Lease {
    /// Returns true if the lease has not ended.
    pub fn holds(&self, now_ns: u64) -> bool {
        now_ns < self.0.load(Ordering::Relaxed)
    }

    /// Returns true if the lease has ended between `since_ns` (exclusive) and `now_ns`.
    pub fn has_ended_since(&self, since_ns: u64, now_ns: u64) -> bool {
        (since_ns + 1..=now_ns).contains(&self.0.load(Ordering::Relaxed))
    }

    /// Returns true if the node needs no lease from others.
    pub fn is_endless(&self) -> bool {
        self.0.load(Ordering::Relaxed) == u64::MAX
    }

    /// Sets the end of the lease in monotonic nanoseconds; `u64::MAX` for an endless lease.
    pub fn set(&self, until_ns: u64) {
        self.0.store(until_ns, Ordering::Release);
    }
}
