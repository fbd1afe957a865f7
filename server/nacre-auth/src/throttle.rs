//! Failed logins by address: the delay of the next reply, and the rate limit of log lines.
//!
//! ```text
//! score of an address   1  2  3  4     5      6      7      8      9 …
//! delay of the reply    0  0  0  0 ms  62 ms  125 ms 250 ms 500 ms 1 s
//! ```
//!
//! The score rises by one with each failed login and falls by one every [`FORGOTTEN_AFTER_NS`]. Only replies to failed
//! logins are delayed: a client with the right password never waits because of others at the same address.
//!
//! Invariants: at most [`ADDRESSES_MAX`] addresses are tracked; beyond that, the one whose score was updated longest
//! ago is dropped. Nothing here reads a clock: `now_ns` is a monotonic time in nanoseconds.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

/// Maximum number of tracked addresses. Each takes about 100 bytes.
const ADDRESSES_MAX: usize = 4096;
/// Failed logins without a delay: a person mistypes, and a client tries one mechanism after another.
const FREE: u32 = 4;
/// The first delay, in nanoseconds; each further one is twice as long.
const DELAY_FIRST_NS: u64 = 62_500_000;
/// The maximum delay of a reply, in nanoseconds. The timeouts of clients are longer.
const DELAY_MAX_NS: u64 = 1_000_000_000;
/// The maximum score. Its delay is [`DELAY_MAX_NS`], and it takes this many times [`FORGOTTEN_AFTER_NS`] to fall to 0.
const SCORE_MAX: u32 = 12;
const _: () = assert!(DELAY_FIRST_NS << (SCORE_MAX - FREE - 1) >= DELAY_MAX_NS);
/// Time after which one failed login is forgotten, in nanoseconds.
const FORGOTTEN_AFTER_NS: u64 = 5_000_000_000;
/// Minimum interval of log lines about one address, and the period of [`REPORTS_MAX`], in nanoseconds.
const REPORT_EVERY_NS: u64 = 10_000_000_000;
const REPORTS_MAX: u32 = 10;

/// The consequences of a failed login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Delay of the reply, in nanoseconds.
    pub delay_ns: u64,
    /// Number of failed logins of the address since the last log line about it, if a line is due.
    pub report: Option<u64>,
}

#[derive(Debug)]
struct Address {
    score: u32,
    /// Time at which the score was valid, in nanoseconds.
    at_ns: u64,
    /// Failed logins that are not logged yet.
    unreported: u64,
    reported_ns: Option<u64>,
}

/// The addresses from which logins have failed.
#[derive(Debug, Default)]
pub struct Throttle {
    addresses: BTreeMap<IpAddr, Address>,
    /// Number of log lines since `reports_since_ns`.
    reports: u32,
    reports_since_ns: u64,
}

impl Throttle {
    /// Records a failed login from `address`.
    pub fn fail(&mut self, address: IpAddr, now_ns: u64) -> Failure {
        let address = network(address);
        if !self.addresses.contains_key(&address) {
            self.make_room();
        }
        let entry = self.addresses.entry(address).or_insert(Address {
            score: 0,
            at_ns: now_ns,
            unreported: 0,
            reported_ns: None,
        });
        let forgotten = now_ns.saturating_sub(entry.at_ns) / FORGOTTEN_AFTER_NS;
        let left = entry.score.saturating_sub(u32::try_from(forgotten).unwrap_or(u32::MAX));
        entry.at_ns = match left {
            0 => now_ns,
            _ => entry.at_ns + forgotten * FORGOTTEN_AFTER_NS,
        };
        entry.score = (left + 1).min(SCORE_MAX);
        entry.unreported += 1;
        let delay_ns = delay_ns(entry.score);
        let is_due = entry.reported_ns.is_none_or(|at| now_ns >= at + REPORT_EVERY_NS);
        if now_ns >= self.reports_since_ns + REPORT_EVERY_NS {
            (self.reports, self.reports_since_ns) = (0, now_ns);
        }
        let report = (is_due && self.reports < REPORTS_MAX).then(|| {
            self.reports += 1;
            entry.reported_ns = Some(now_ns);
            std::mem::take(&mut entry.unreported)
        });
        Failure { delay_ns, report }
    }

    /// Returns the number of tracked addresses.
    pub fn len(&self) -> usize {
        self.addresses.len()
    }

    /// Returns true if no address is tracked.
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }

    /// Drops the address whose score was updated longest ago, if the table is full.
    fn make_room(&mut self) {
        if self.addresses.len() < ADDRESSES_MAX {
            return;
        }
        let oldest = self.addresses.iter().min_by_key(|(_, entry)| entry.at_ns);
        if let Some(address) = oldest.map(|(address, _)| *address) {
            self.addresses.remove(&address);
        }
    }
}

fn delay_ns(score: u32) -> u64 {
    match score.checked_sub(FREE + 1) {
        None => 0,
        Some(doublings) => (DELAY_FIRST_NS << doublings).min(DELAY_MAX_NS),
    }
}

/// Returns the address under which logins are counted: for IPv6 the network of one customer, 64 bits.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            IpAddr::V6(Ipv6Addr::from(u128::from(address) >> 64 << 64))
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn fail_often(throttle: &mut Throttle, address: IpAddr, now_ns: u64) {
        for _ in 0..100 {
            throttle.fail(address, now_ns);
        }
    }

    #[test]
    fn each_failed_login_doubles_the_delay_up_to_a_second() {
        let mut throttle = Throttle::default();
        let delays: Vec<u64> =
            (0..14).map(|_| throttle.fail(address("10.0.0.1"), 7).delay_ns / 1_000_000).collect();
        assert_eq!(delays, [0, 0, 0, 0, 62, 125, 250, 500, 1000, 1000, 1000, 1000, 1000, 1000]);
    }

    #[test]
    fn failed_logins_are_forgotten_one_by_one() {
        let mut throttle = Throttle::default();
        fail_often(&mut throttle, address("10.0.0.1"), 0);
        assert_eq!(throttle.fail(address("10.0.0.1"), 10 * S).delay_ns, S);
        let later = 10 * S + u64::from(SCORE_MAX) * FORGOTTEN_AFTER_NS;
        assert_eq!(throttle.fail(address("10.0.0.1"), later).delay_ns, 0);
    }

    #[test]
    fn addresses_do_not_wait_for_each_other() {
        let mut throttle = Throttle::default();
        fail_often(&mut throttle, address("10.0.0.1"), 0);
        assert_eq!(throttle.fail(address("10.0.0.2"), 0).delay_ns, 0);
        assert_eq!(throttle.fail(address("::ffff:10.0.0.1"), 0).delay_ns, S);
        fail_often(&mut throttle, address("2001:db8::1"), 0);
        assert_eq!(throttle.fail(address("2001:db8::2"), 0).delay_ns, S, "one customer has both");
        assert_eq!(throttle.fail(address("2001:db8:0:1::1"), 0).delay_ns, 0);
    }

    #[test]
    fn the_table_of_addresses_is_bounded_and_forgets_the_oldest() {
        let mut throttle = Throttle::default();
        for number in 0..2 * ADDRESSES_MAX as u32 {
            throttle.fail(IpAddr::V4(number.into()), u64::from(number));
        }
        assert_eq!(throttle.len(), ADDRESSES_MAX);
        fail_often(&mut throttle, address("10.0.0.1"), S);
        throttle.fail(address("10.0.0.2"), S);
        assert_eq!(throttle.fail(address("10.0.0.1"), S).delay_ns, S, "not the newest");
    }

    #[test]
    fn a_flood_is_reported_in_few_lines_with_its_size() {
        let mut throttle = Throttle::default();
        let mut lines = Vec::new();
        for number in 0..1000 {
            lines.extend(throttle.fail(address("10.0.0.1"), number * S / 40).report);
        }
        assert_eq!(lines, [1, 400, 400]);
        let many = (0..1000u32).filter(|number| {
            let address = IpAddr::V4((0x0a01_0000 + number).into());
            throttle.fail(address, 30 * S).report.is_some()
        });
        assert_eq!(many.count(), REPORTS_MAX as usize);
    }
}
