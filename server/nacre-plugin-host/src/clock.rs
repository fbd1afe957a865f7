//! The time that calls are measured and bounded by.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How much longer than a call that failed its deployment rests after it: what keeps failing within moments takes a
/// tenth of the time, and of what goes with it, such as memory that the kernel has to clear.
const REST_TIMES: u32 = 9;
/// A rest at most.
const REST_MAX: Duration = Duration::from_millis(250);
/// Ticks that one wake counts for at most. What is more is time in which others had the processors, so that calls did not
/// have it either.
const TICKS_MAX: u64 = 2;

/// Ticks of a millisecond for deadlines, and the embedder's clock and pauses.
pub struct Clock {
    ticks: AtomicU64,
    /// The whole milliseconds of the embedder's clock that ticks were counted for.
    counted_ms: AtomicU64,
    monotonic_ns: Box<dyn Fn() -> u64 + Send + Sync>,
    pause: Box<dyn Fn(Duration) + Send + Sync>,
    goes_on: Box<dyn Fn() + Send + Sync>,
}

impl Clock {
    pub fn new(
        monotonic_ns: impl Fn() -> u64 + Send + Sync + 'static,
        pause: impl Fn(Duration) + Send + Sync + 'static,
        goes_on: impl Fn() + Send + Sync + 'static,
    ) -> Clock {
        Clock {
            ticks: AtomicU64::new(0),
            counted_ms: AtomicU64::new(0),
            monotonic_ns: Box::new(monotonic_ns),
            pause: Box::new(pause),
            goes_on: Box::new(goes_on),
        }
    }

    /// Tells the embedder that a call of this thread takes long, and goes on.
    pub fn goes_on(&self) {
        (self.goes_on)();
    }

    /// Has the calling thread rest after a call that began at `begun_ns` has failed.
    pub fn rest(&self, begun_ns: u64) {
        let took = Duration::from_nanos(self.now_ns().saturating_sub(begun_ns));
        (self.pause)((REST_TIMES * took).min(REST_MAX));
    }

    /// Counts the milliseconds that have passed since it was last called; gives how many. A thread that sleeps for one wakes
    /// later than that, and a deadline of a second would be a tenth of it late if each wake counted for one.
    pub fn tick(&self) -> u64 {
        let now_ms = self.now_ns() / 1_000_000;
        let before_ms = self.counted_ms.fetch_max(now_ms, Ordering::Relaxed);
        let passed = now_ms.saturating_sub(before_ms).min(TICKS_MAX);
        self.ticks.fetch_add(passed, Ordering::Relaxed);
        passed
    }

    pub fn ticks(&self) -> u64 {
        self.ticks.load(Ordering::Relaxed)
    }

    pub fn now_ns(&self) -> u64 {
        (self.monotonic_ns)()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[test]
    fn ticks_keep_up_with_a_thread_that_wakes_late_but_not_with_one_that_stood_still() {
        let now_us = Arc::new(AtomicU64::new(0));
        let clock_us = Arc::clone(&now_us);
        let clock = Clock::new(move || clock_us.load(Ordering::Relaxed) * 1000, drop, || {});
        let mut tick_at = |us: u64| {
            now_us.store(us, Ordering::Relaxed);
            clock.tick()
        };
        let passed = [900, 1_100, 2_200, 4_100, 4_150, 5_900].map(&mut tick_at);
        assert_eq!(passed, [0, 1, 1, 2, 0, 1]);
        assert_eq!([10_000_000, 10_001_000].map(tick_at), [TICKS_MAX, 1]);
        assert_eq!(clock.ticks(), 8);
    }

    #[test]
    fn a_rest_is_in_proportion_to_what_failed() {
        let rests = Arc::new(Mutex::new(Vec::new()));
        let rested = Arc::clone(&rests);
        let rest = move |rest| rested.lock().unwrap().push(rest);
        let clock = Clock::new(|| 1_000_000_000, rest, || {});
        clock.rest(999_000_000);
        clock.rest(0);
        let expected = [Duration::from_millis(9), Duration::from_millis(250)];
        assert_eq!(*rests.lock().unwrap(), expected);
    }
}
