//! The DCP connections of a bucket, as those see them who run elsewhere: the bucket, its keeper and each other.

use crate::Waiter;
use nacre_dcp::{Beat, Heartbeat};
use nacre_types::Now;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// How long scans may stay open for a consumer that takes nothing, in nanoseconds: half a minute.
const SCAN_IDLE_NS_MAX: u64 = 30 * 1_000_000_000;

/// One connection.
pub struct Line {
    name: Box<[u8]>,
    user: Box<str>,
    waiter: Arc<dyn Waiter>,
    /// Woken since it last looked.
    rung: AtomicBool,
    heartbeat: Mutex<Heartbeat>,
    /// The consumer is to be asked whether it lives.
    asks: AtomicBool,
    /// It has scans open.
    holds_scans: AtomicBool,
    /// It is to let go of them.
    lets_go: AtomicBool,
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
    pub(crate) fn asks(&self) -> bool {
        self.asks.load(Ordering::Acquire)
    }

    /// The same, and it is asked.
    pub(crate) fn take_question(&self) -> bool {
        self.asks.swap(false, Ordering::AcqRel)
    }

    /// Notes whether scans are open.
    pub(crate) fn hold_scans(&self, holds: bool) {
        self.holds_scans.store(holds, Ordering::Release);
    }

    /// Whether scans are to be let go, as the consumer takes nothing.
    pub(crate) fn lets_go(&self) -> bool {
        self.lets_go.load(Ordering::Acquire)
    }

    /// The same, and they are let go.
    pub(crate) fn take_release(&self) -> bool {
        self.lets_go.swap(false, Ordering::AcqRel)
    }

    fn tick(&self, now_ns: u64) {
        let (beat, quiet_ns) = {
            let mut heartbeat = self.heartbeat.lock();
            (heartbeat.tick(now_ns), heartbeat.quiet_ns(now_ns))
        };
        if quiet_ns > SCAN_IDLE_NS_MAX && self.holds_scans.load(Ordering::Acquire) {
            self.lets_go.store(true, Ordering::Release);
            self.wake();
        }
        match beat {
            Beat::Rest => {}
            Beat::Ask => {
                self.asks.store(true, Ordering::Release);
                self.wake();
            }
            Beat::GiveUp => self.end("the DCP consumer has not answered for long"),
        }
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
pub struct Lines(Mutex<Vec<Arc<Line>>>);

impl Lines {
    /// Enters a connection of `user`. One of the same user and name is cut: its client has come back.
    pub fn open(&self, user: &str, name: &[u8], waiter: &Arc<dyn Waiter>, now: Now) -> Arc<Line> {
        let line = Arc::new(Line {
            name: name.into(),
            user: user.into(),
            waiter: Arc::clone(waiter),
            rung: AtomicBool::new(false),
            heartbeat: Mutex::new(Heartbeat::new(now.monotonic_ns)),
            asks: AtomicBool::new(false),
            holds_scans: AtomicBool::new(false),
            lets_go: AtomicBool::new(false),
            cut: OnceLock::new(),
        });
        let mut lines = self.0.lock();
        let is_same = |known: &mut Arc<Line>| *known.name == *name && *known.user == *user;
        for old in lines.extract_if(.., is_same) {
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

    /// Has silent consumers asked whether they live, cuts the connections of those that do not answer, and takes scans from
    /// those that take nothing.
    pub fn tick(&self, now: Now) {
        self.0.lock().iter().for_each(|line| line.tick(now.monotonic_ns));
    }
}
