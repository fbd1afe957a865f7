//! The lease of a node: the time up to which it may serve.

use std::sync::atomic::{AtomicU64, Ordering};

/// Until when this node may serve, by its monotonic clock.
#[derive(Debug)]
pub struct Lease(AtomicU64);

impl Default for Lease {
    /// For ever: a node without others needs none.
    fn default() -> Lease {
        Lease(AtomicU64::new(u64::MAX))
    }
}

impl Lease {
    /// Whether it has not ended.
    pub fn holds(&self, now_ns: u64) -> bool {
        now_ns < self.0.load(Ordering::Relaxed)
    }

    /// Whether it has ended, and did so after `since_ns`.
    pub fn has_ended_since(&self, since_ns: u64, now_ns: u64) -> bool {
        (since_ns + 1..=now_ns).contains(&self.0.load(Ordering::Relaxed))
    }

    /// Whether it needs no other.
    pub fn is_endless(&self) -> bool {
        self.0.load(Ordering::Relaxed) == u64::MAX
    }

    /// Sets the end of the lease, in monotonic nanoseconds; `u64::MAX` for a node that needs none.
    pub fn set(&self, until_ns: u64) {
        self.0.store(until_ns, Ordering::Release);
    }
}
