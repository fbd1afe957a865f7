//! The time that calls are measured and bounded by.

use std::sync::atomic::{AtomicU64, Ordering};

/// Ticks of a millisecond for deadlines, and the embedder's clock for what is shown.
pub struct Clock {
    ticks: AtomicU64,
    monotonic_ns: Box<dyn Fn() -> u64 + Send + Sync>,
}

impl Clock {
    pub fn new(monotonic_ns: impl Fn() -> u64 + Send + Sync + 'static) -> Clock {
        Clock { ticks: AtomicU64::new(0), monotonic_ns: Box::new(monotonic_ns) }
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
