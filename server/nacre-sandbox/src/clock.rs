//! The clock for measuring and limiting calls.

use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Ratio of the pause after a failed call to the duration of the call: a deployment that always fails takes a tenth of
/// the time and of other resources, such as memory that the kernel must clear.
const REST_TIMES: u32 = 9;
/// Maximum pause.
const REST_MAX: Duration = Duration::from_millis(250);
/// Minimum pause: a call that fails at once would otherwise run so often that one in a hundred requests of others is
/// delayed.
const REST_MIN: Duration = Duration::from_millis(10);
/// Maximum number of ticks that one wake-up counts. During the excess time other threads had the processors, so calls
/// could not run either.
const TICKS_MAX: u64 = 2;
/// Ticks without a call after which ticking stops. Restarting it costs the next call some microseconds.
const IDLE_TICKS: u64 = 100;

/// Deadline ticks of one millisecond, and the embedder's clock and pause function.
pub struct Clock {
    ticks: AtomicU64,
    /// The whole milliseconds of the embedder's clock that have been counted as ticks.
    counted_ms: AtomicU64,
    /// Number of running calls, and the tick at which one last ran.
    calls: AtomicU32,
    called_tick: AtomicU64,
    /// True while the ticking thread waits for a call to begin.
    is_still: AtomicBool,
    stillness: Mutex<()>,
    call_begins: Condvar,
    monotonic_ns: Box<dyn Fn() -> u64 + Send + Sync>,
    pause: Box<dyn Fn(Duration) + Send + Sync>,
    on_long_call: Box<dyn Fn() + Send + Sync>,
}

impl Clock {
    pub fn new(
        monotonic_ns: impl Fn() -> u64 + Send + Sync + 'static,
        pause: impl Fn(Duration) + Send + Sync + 'static,
        on_long_call: impl Fn() + Send + Sync + 'static,
    ) -> Clock {
        Clock {
            ticks: AtomicU64::new(0),
            counted_ms: AtomicU64::new(0),
            calls: AtomicU32::new(0),
            called_tick: AtomicU64::new(0),
            is_still: AtomicBool::new(false),
            stillness: Mutex::new(()),
            call_begins: Condvar::new(),
            monotonic_ns: Box::new(monotonic_ns),
            pause: Box::new(pause),
            on_long_call: Box::new(on_long_call),
        }
    }

    /// Informs the embedder that a call on this thread takes long and continues.
    pub fn on_long_call(&self) {
        (self.on_long_call)();
    }

    /// Pauses the calling thread after a call that began at `begun_ns` has failed.
    pub fn rest(&self, begun_ns: u64) {
        let took = Duration::from_nanos(self.now_ns().saturating_sub(begun_ns));
        (self.pause)((REST_TIMES * took).clamp(REST_MIN, REST_MAX));
    }

    /// Counts the milliseconds since the last call of this function. Returns their number. A thread that sleeps for one
    /// millisecond wakes up later than that, and if each wake-up counted as one tick, a deadline of a second would be a
    /// tenth late.
    pub fn tick(&self) -> u64 {
        let passed = self.uncounted_ms().min(TICKS_MAX);
        self.ticks.fetch_add(passed, Ordering::Relaxed);
        passed
    }

    fn uncounted_ms(&self) -> u64 {
        let now_ms = self.now_ms();
        let before_ms = self.counted_ms.fetch_max(now_ms, Ordering::Relaxed);
        now_ms.saturating_sub(before_ms)
    }

    fn now_ms(&self) -> u64 {
        self.now_ns() / 1_000_000
    }

    /// Returns the ticks, including those that the ticking thread has not counted yet: a call that begins now must not
    /// be charged for them.
    pub fn ticks(&self) -> u64 {
        if self.is_still.load(Ordering::Relaxed) {
            self.catch_up();
        }
        let late = self.now_ms().saturating_sub(self.counted_ms.load(Ordering::Relaxed));
        self.ticks.load(Ordering::Relaxed) + late.min(TICKS_MAX)
    }

    /// Counts the time without ticking as ticks. No call ran during this time.
    fn catch_up(&self) {
        self.ticks.fetch_add(self.uncounted_ms(), Ordering::Relaxed);
    }

    /// Begins a call. The call ends when the returned value is dropped.
    pub fn begin_call(&self) -> Running<'_> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if self.is_still.load(Ordering::SeqCst) {
            let _held = self.stillness.lock();
            self.catch_up();
            self.is_still.store(false, Ordering::SeqCst);
            self.call_begins.notify_all();
        }
        Running(self)
    }

    /// Returns true if no call is running or has run recently.
    pub fn is_idle(&self) -> bool {
        let called = self.called_tick.load(Ordering::Relaxed);
        self.calls.load(Ordering::SeqCst) == 0 && self.ticks().saturating_sub(called) > IDLE_TICKS
    }

    /// Blocks the ticking thread until a call begins, if none is running.
    pub fn await_call(&self) {
        let mut held = self.stillness.lock();
        self.is_still.store(true, Ordering::SeqCst);
        // A call that began just before has not seen the flag, but is seen here; a later call waits for the lock.
        while self.is_still.load(Ordering::SeqCst) && self.calls.load(Ordering::SeqCst) == 0 {
            self.call_begins.wait(&mut held);
        }
        if self.is_still.swap(false, Ordering::SeqCst) {
            self.catch_up();
        }
    }

    pub fn now_ns(&self) -> u64 {
        (self.monotonic_ns)()
    }
}

/// A running call.
pub struct Running<'a>(&'a Clock);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.called_tick.store(self.0.ticks.load(Ordering::Relaxed), Ordering::Relaxed);
        self.0.calls.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[test]
    fn ticks_catch_up_with_a_late_thread_but_not_with_a_suspended_one() {
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
        // Before the thread wakes up, the ticks that it will count are already included.
        let ticks = [10_001_900, 10_002_100, 10_090_000].map(|us| {
            now_us.store(us, Ordering::Relaxed);
            clock.ticks()
        });
        assert_eq!(ticks, [8, 9, 10]);
        assert_eq!((clock.tick(), clock.ticks()), (2, 10));
    }

    #[test]
    fn no_ticks_are_needed_while_no_call_runs_and_that_time_is_counted() {
        let now_ms = Arc::new(AtomicU64::new(0));
        let clock_ms = Arc::clone(&now_ms);
        let now_ns = move || clock_ms.load(Ordering::Relaxed) * 1_000_000;
        let clock = Arc::new(Clock::new(now_ns, drop, || {}));
        let tick_to = |ms: u64| {
            for ms in now_ms.load(Ordering::Relaxed) + 1..=ms {
                now_ms.store(ms, Ordering::Relaxed);
                clock.tick();
            }
        };
        let call = clock.begin_call();
        tick_to(IDLE_TICKS + 10);
        assert!(!clock.is_idle(), "a call runs");
        drop(call);
        tick_to(2 * IDLE_TICKS + 10);
        assert!(!clock.is_idle(), "one ran not long ago");
        tick_to(2 * IDLE_TICKS + 11);
        assert!(clock.is_idle());

        let waiting = Arc::clone(&clock);
        let ticker = std::thread::spawn(move || waiting.await_call());
        while !clock.is_still.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        now_ms.store(75_000, Ordering::Relaxed);
        assert_eq!(clock.ticks(), 75_000, "also before a call begins");
        now_ms.store(80_000, Ordering::Relaxed);
        let call = clock.begin_call();
        assert_eq!(clock.ticks(), 80_000, "it begins now");
        ticker.join().unwrap();
        assert!(!clock.is_idle());
        clock.await_call();
        drop(call);
    }

    #[test]
    fn a_pause_is_proportional_to_the_time_of_the_failed_call() {
        let rests = Arc::new(Mutex::new(Vec::new()));
        let rested = Arc::clone(&rests);
        let rest = move |rest| rested.lock().unwrap().push(rest);
        let clock = Clock::new(|| 1_000_000_000, rest, || {});
        clock.rest(995_000_000);
        clock.rest(999_900_000);
        clock.rest(0);
        let expected = [45, 10, 250].map(Duration::from_millis);
        assert_eq!(*rests.lock().unwrap(), expected);
    }
}
