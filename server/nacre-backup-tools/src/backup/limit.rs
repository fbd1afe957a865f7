//! A limit of the bytes that a command reads in a second.

use super::patient::Pace;
use parking_lot::Mutex;
use std::time::Duration;

/// Bytes of a megabyte.
const MEGABYTE: f64 = 1e6;
/// Debt up to which nobody is held up: a pause for each record would take longer than it should.
const BURST: Duration = Duration::from_millis(20);

/// Holds up threads so that all of them together read no more than a number of bytes in a second.
pub(super) struct RateLimit<P> {
    pace: P,
    /// None without a limit.
    bytes_per_s: Option<f64>,
    /// Time at which what was read so far is paid for.
    paid_at: Mutex<Duration>,
}

impl<P: Pace> RateLimit<P> {
    /// Creates a limit in megabytes a second; none without a number.
    pub fn new(pace: P, megabytes: Option<u32>) -> RateLimit<P> {
        let bytes_per_s = megabytes.map(|megabytes| f64::from(megabytes.max(1)) * MEGABYTE);
        RateLimit { pace, bytes_per_s, paid_at: Mutex::default() }
    }

    /// Takes in that bytes were read; waits if there were too many.
    pub fn pass(&self, bytes: usize) {
        let Some(bytes_per_s) = self.bytes_per_s else { return };
        let now = self.pace.elapsed();
        let mut paid_at = self.paid_at.lock();
        *paid_at = (*paid_at).max(now) + Duration::from_secs_f64(bytes as f64 / bytes_per_s);
        let debt = *paid_at - now;
        drop(paid_at);
        if debt > BURST {
            self.pace.pause(debt);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock that pauses move.
    #[derive(Default)]
    struct Clock(Mutex<Duration>);

    impl Pace for Clock {
        fn elapsed(&self) -> Duration {
            *self.0.lock()
        }

        fn pause(&self, time: Duration) {
            *self.0.lock() += time;
        }
    }

    #[test]
    fn no_more_is_read_than_the_limit_allows() {
        let limit = RateLimit::new(Clock::default(), Some(10));
        for _ in 0..10_000 {
            limit.pass(5_000);
        }
        let took = limit.pace.elapsed();
        assert!((4.9..=5.0).contains(&took.as_secs_f64()), "50 MB at 10 MB/s took {took:?}");
        // Time in which nothing was read is not made up for.
        limit.pace.pause(Duration::from_secs(60));
        limit.pass(10_000_000);
        assert_eq!(limit.pace.elapsed() - took, Duration::from_secs(61));
        let none = RateLimit::new(Clock::default(), None);
        none.pass(usize::MAX);
        assert_eq!(none.pace.elapsed(), Duration::ZERO);
    }
}
