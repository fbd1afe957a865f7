//! The time that calls are measured and bounded by.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How much longer than a call that failed its deployment rests after it: what keeps failing within moments takes a
/// tenth of the time, and of what goes with it, such as memory that the kernel has to clear.
const REST_TIMES: u32 = 9;
/// A rest at most.
const REST_MAX: Duration = Duration::from_millis(250);

/// Ticks of a millisecond for deadlines, and the embedder's clock and pauses.
pub struct Clock {
    ticks: AtomicU64,
    monotonic_ns: Box<dyn Fn() -> u64 + Send + Sync>,
    pause: Box<dyn Fn(Duration) + Send + Sync>,
}

impl Clock {
    pub fn new(
        monotonic_ns: impl Fn() -> u64 + Send + Sync + 'static,
        pause: impl Fn(Duration) + Send + Sync + 'static,
    ) -> Clock {
        Clock {
            ticks: AtomicU64::new(0),
            monotonic_ns: Box::new(monotonic_ns),
            pause: Box::new(pause),
        }
    }

    /// Has the calling thread rest after a call that began at `begun_ns` has failed.
    pub fn rest(&self, begun_ns: u64) {
        let took = Duration::from_nanos(self.now_ns().saturating_sub(begun_ns));
        (self.pause)((REST_TIMES * took).min(REST_MAX));
    }

    pub fn tick(&self) {
        self.ticks.fetch_add(1, Ordering::Relaxed);
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
    fn a_rest_is_in_proportion_to_what_failed() {
        let rests = Arc::new(Mutex::new(Vec::new()));
        let rested = Arc::clone(&rests);
        let clock = Clock::new(|| 1_000_000_000, move |rest| rested.lock().unwrap().push(rest));
        clock.rest(999_000_000);
        clock.rest(0);
        let expected = [Duration::from_millis(9), Duration::from_millis(250)];
        assert_eq!(*rests.lock().unwrap(), expected);
    }
}
