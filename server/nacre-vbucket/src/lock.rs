//! Pessimistic locks: in memory only, and lost at a restart or after their time limit.

use nacre_types::{Cas, Now};
use std::collections::BTreeMap;

/// Duration of a lock in seconds if the client requests none, or more than the maximum.
const LOCK_SECONDS_DEFAULT: u32 = 15;
/// Maximum duration of a lock in seconds.
const LOCK_SECONDS_MAX: u32 = 30;

#[derive(Clone, Copy, Debug)]
struct Lock {
    cas: Cas,
    until_ns: u64,
}

/// The locked keys of a vBucket. Most vBuckets have none, so a lookup usually costs one comparison.
#[derive(Debug, Default)]
pub(crate) struct Locks(BTreeMap<Box<[u8]>, Lock>);

impl Locks {
    /// Returns the CAS that only the holder of the lock has, if `key` is locked at `now`.
    pub fn holder(&self, key: &[u8], now: Now) -> Option<Cas> {
        if self.0.is_empty() {
            return None;
        }
        self.0.get(key).filter(|lock| now.monotonic_ns < lock.until_ns).map(|lock| lock.cas)
    }

    /// Locks `key` for `seconds`. 0, or more than the maximum, selects the default.
    pub fn lock(&mut self, key: &[u8], cas: Cas, seconds: u32, now: Now) {
        let seconds =
            if (1..=LOCK_SECONDS_MAX).contains(&seconds) { seconds } else { LOCK_SECONDS_DEFAULT };
        let until_ns = now.monotonic_ns + u64::from(seconds) * 1_000_000_000;
        self.0.retain(|_, lock| now.monotonic_ns < lock.until_ns);
        self.0.insert(key.into(), Lock { cas, until_ns });
    }

    /// Unlocks `key`.
    pub fn release(&mut self, key: &[u8]) {
        if !self.0.is_empty() {
            self.0.remove(key);
        }
    }
}
