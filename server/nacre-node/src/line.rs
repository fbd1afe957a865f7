//! The DCP connections of a bucket, as those see them who run elsewhere: the bucket, its keeper and each other.

use crate::ticket::Waiter;
use nacre_dcp::{Beat, Heartbeat};
use nacre_types::Now;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// One connection.
pub(crate) struct Line {
    name: Box<[u8]>,
    waiter: Arc<dyn Waiter>,
    /// Woken since it last looked.
    rung: AtomicBool,
    heartbeat: Mutex<Heartbeat>,
    /// The consumer is to be asked whether it lives.
    asks: AtomicBool,
    /// Why the connection is to end at once.
    cut: OnceLock<&'static str>,
}

impl Waiter for Line {
    fn wake(&self) {
        // Many wakes before it looks are one: a busy bucket wakes its readers very often.
        if !self.rung.swap(true, Ordering::AcqRel) {
            self.waiter.wake();
        }
    }
}

impl Line {
    /// Says that the connection looks now: whatever comes from here on wakes it again.
    pub fn look(&self) {
        self.rung.store(false, Ordering::Release);
    }

    /// The connection's heartbeat.
    pub fn heartbeat(&self, beat: impl FnOnce(&mut Heartbeat)) {
        beat(&mut self.heartbeat.lock());
    }

    /// Whether the consumer is to be asked whether it lives.
    pub fn asks(&self) -> bool {
        self.asks.load(Ordering::Acquire)
    }

    /// The same, and it is asked.
    pub fn take_question(&self) -> bool {
        self.asks.swap(false, Ordering::AcqRel)
    }

    /// Why the connection is to end, if it is.
    pub fn cut(&self) -> Option<&'static str> {
        self.cut.get().copied()
    }

    fn end(&self, why: &'static str) {
        let _ = self.cut.set(why);
        // Not deduplicated: it may be stuck with what it sends.
        self.waiter.wake();
    }
}

/// All connections of a bucket.
#[derive(Default)]
pub(crate) struct Lines(Mutex<Vec<Arc<Line>>>);

impl Lines {
    /// Enters a connection. One of the same name is cut: its client has come back.
    pub fn open(&self, name: &[u8], waiter: &Arc<dyn Waiter>, now: Now) -> Arc<Line> {
        let line = Arc::new(Line {
            name: name.into(),
            waiter: Arc::clone(waiter),
            rung: AtomicBool::new(false),
            heartbeat: Mutex::new(Heartbeat::new(now.monotonic_ns)),
            asks: AtomicBool::new(false),
            cut: OnceLock::new(),
        });
        let mut lines = self.0.lock();
        for old in lines.extract_if(.., |known| *known.name == *name) {
            old.end("another DCP connection has the same name");
        }
        lines.push(Arc::clone(&line));
        line
    }

    /// Forgets a connection.
    pub fn close(&self, line: &Arc<Line>) {
        self.0.lock().retain(|known| !Arc::ptr_eq(known, line));
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.lock().len()
    }

    /// Has silent consumers asked whether they live, and cuts the connections of those that do not answer.
    pub fn tick(&self, now: Now) {
        for line in self.0.lock().iter() {
            let beat = line.heartbeat.lock().tick(now.monotonic_ns);
            match beat {
                Beat::Rest => {}
                Beat::Ask => {
                    line.asks.store(true, Ordering::Release);
                    line.wake();
                }
                Beat::GiveUp => line.end("the DCP consumer has not answered for long"),
            }
        }
    }
}
