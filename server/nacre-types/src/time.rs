//! Time as an argument: the clocks at the arrival of a request.

/// The reading of both clocks that a state machine works with. The embedder takes it once per batch of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Now {
    /// Wall clock, in nanoseconds since the Unix epoch. May jump. Used for CAS, expiry and deletion times.
    pub unix_ns: u64,
    /// A monotonic clock, in nanoseconds from an origin that differs for each process. Used for locks and timeouts.
    pub monotonic_ns: u64,
}

impl Now {
    /// Returns the wall clock in whole seconds, the unit of expiries.
    pub fn unix_s(self) -> u32 {
        u32::try_from(self.unix_ns / 1_000_000_000).unwrap_or(u32::MAX)
    }
}

/// Seconds until a document expires, as sent by a client.
///
/// 0 never expires; 1..=2_592_000 (30 days) counts from now; more is an absolute Unix time.
/// Source: memcached binary protocol, expiration; kept for SDK compatibility.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expiry(pub u32);

impl Expiry {
    /// The largest value that is relative to the current time: 30 days.
    pub const RELATIVE_MAX: u32 = 30 * 86_400;

    /// Returns the Unix second of the expiry; 0 for never.
    pub fn absolute(self, now: Now) -> u32 {
        match self.0 {
            0 => 0,
            relative @ 1..=Self::RELATIVE_MAX => now.unix_s().saturating_add(relative),
            absolute => absolute,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thirty_days_divide_relative_from_absolute_expiry() {
        let now = Now { unix_ns: 1_700_000_000_000_000_000, monotonic_ns: 0 };
        assert_eq!(Expiry(0).absolute(now), 0);
        assert_eq!(Expiry(10).absolute(now), 1_700_000_010);
        assert_eq!(Expiry(2_592_000).absolute(now), 1_702_592_000);
        assert_eq!(Expiry(2_592_001).absolute(now), 2_592_001, "a moment long past");
    }
}
