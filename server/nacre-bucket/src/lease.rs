//! The lease of a node: the time until which it may serve.

use std::sync::atomic::{AtomicU64, Ordering};

/// The end of a node's lease, in nanoseconds of its monotonic clock.
#[derive(Debug)]
pub struct Lease(AtomicU64);

impl Default for Lease {
    /// Returns a lease without an end, for a node without others.
    fn default() -> Lease {
        Lease(AtomicU64::new(u64::MAX))
    }
}

impl Lease {
    /// Returns true if the lease has not ended.
    pub fn holds(&self, now_ns: u64) -> bool {
        now_ns < self.0.load(Ordering::Relaxed)
    }

    /// Returns true if the lease has ended after `since_ns`.
    pub fn has_ended_since(&self, since_ns: u64, now_ns: u64) -> bool {
        (since_ns + 1..=now_ns).contains(&self.0.load(Ordering::Relaxed))
    }

    /// Returns true if the node needs no lease from others.
    pub fn is_endless(&self) -> bool {
        self.0.load(Ordering::Relaxed) == u64::MAX
    }

    /// Sets the end of the lease, in monotonic nanoseconds; `u64::MAX` for none.
    pub fn set(&self, until_ns: u64) {
        self.0.store(until_ns, Ordering::Release);
    }
}
