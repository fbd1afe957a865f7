//! A limit on the bytes that a replication sends from one node (`networkUsageLimit`).
//!
//! The throttle counts bytes when they are read for sending, and history is read only within the limit. The backlog therefore
//! stays in the store, and memory stays flat however far the target is behind.
//!
//! A large document may be sent at once; nothing more is read for the time that it should have taken. If a filter drops part of a
//! portion, the same fraction of its bytes is not counted. Repetitions do not count; documents that the target turns out to have
//! do.

/// Bursts: an idle replication may send this fraction of a second's bytes at once.
const BURST_PER_SECOND: u64 = 10;
const SECOND_NS: u64 = 1_000_000_000;

/// Limits the bytes sent per second.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    /// Bytes per second; 0 is unlimited.
    limit: u64,
    /// Monotonic time from which more may be sent.
    free_ns: u64,
}

impl Throttle {
    /// Sets the limit in bytes per second; 0 is unlimited. A changed limit forgets what was sent before.
    pub fn set_limit(&mut self, limit: u64) {
        if self.limit != limit {
            *self = Throttle { limit, free_ns: 0 };
        }
    }

    /// Returns the number of bytes to read at a time, between `least` and `most`.
    pub fn portion(&self, least: usize, most: usize) -> usize {
        if self.limit == 0 {
            return most;
        }
        let burst = usize::try_from(self.limit / BURST_PER_SECOND).unwrap_or(usize::MAX);
        burst.clamp(least.min(most), most)
    }

    /// Counts bytes as sent.
    pub fn spend(&mut self, bytes: usize, now_ns: u64) {
        if self.limit == 0 {
            return;
        }
        let begins_ns = self.free_ns.max(now_ns.saturating_sub(SECOND_NS / BURST_PER_SECOND));
        let takes_ns = u128::from(SECOND_NS) * bytes as u128 / u128::from(self.limit);
        self.free_ns = begins_ns.saturating_add(u64::try_from(takes_ns).unwrap_or(u64::MAX));
    }

    /// Returns how long nothing more may be sent, in nanoseconds; `None` if sending is allowed now.
    pub fn wait_ns(&self, now_ns: u64) -> Option<u64> {
        self.free_ns.checked_sub(now_ns).filter(|wait_ns| *wait_ns > 0)
    }

    /// Returns true if there is a limit.
    pub fn is_limited(&self) -> bool {
        self.limit != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sent_bytes_are_throttled() {
        let mut throttle = Throttle::default();
        throttle.set_limit(1000);
        let mut now_ns = 50 * SECOND_NS;
        let mut sent = 0;
        while now_ns < 60 * SECOND_NS {
            match throttle.wait_ns(now_ns) {
                Some(wait_ns) => now_ns += wait_ns,
                None => {
                    throttle.spend(70, now_ns);
                    sent += 70;
                }
            }
        }
        assert!((10_000..=10_200).contains(&sent), "{sent} bytes in 10 s");
    }

    #[test]
    fn a_large_document_is_paid_for_afterwards() {
        let mut throttle = Throttle::default();
        throttle.set_limit(1000);
        throttle.spend(5000, SECOND_NS);
        assert_eq!(throttle.wait_ns(SECOND_NS), Some(4_900_000_000));
        assert_eq!(throttle.wait_ns(6 * SECOND_NS), None);
        throttle.set_limit(1000);
        assert!(throttle.wait_ns(SECOND_NS).is_some(), "the limit is the same");
        throttle.set_limit(2000);
        assert_eq!(throttle.wait_ns(SECOND_NS), None, "another limit counts from its beginning");
    }

    #[test]
    fn without_a_limit_nothing_waits() {
        let mut throttle = Throttle::default();
        throttle.spend(usize::MAX, 1);
        assert_eq!((throttle.wait_ns(1), throttle.portion(10, 5000)), (None, 5000));
        throttle.set_limit(1000);
        assert_eq!((throttle.portion(10, 5000), throttle.portion(200, 5000)), (100, 200));
        throttle.spend(usize::MAX, 1);
        throttle.spend(usize::MAX, 1);
        assert!(throttle.wait_ns(u64::MAX - 1).is_some());
    }
}
