//! The DCP connections of a bucket, shared with the bucket, its keeper and other connections.

use crate::Waiter;
use nacre_dcp::{Beat, Heartbeat};
use nacre_types::Now;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// How long store scans stay open for a consumer that takes nothing, in nanoseconds: half a minute. Open scans pin files.
const SCAN_IDLE_NS_MAX: u64 = 30 * 1_000_000_000;

/// One DCP connection.
pub(crate) struct DcpConnection {
    name: Box<[u8]>,
    user: Box<str>,
    waiter: Arc<dyn Waiter>,
    /// True if the connection was woken since it last looked.
    is_woken: AtomicBool,
    heartbeat: Mutex<Heartbeat>,
    /// True if a NOOP is due to check that the consumer is alive.
    needs_ping: AtomicBool,
    holds_scans: AtomicBool,
    must_release_scans: AtomicBool,
    /// The reason why the connection must end at once.
    end_reason: OnceLock<&'static str>,
}

impl Waiter for DcpConnection {
    fn wake(&self) {
        // Collapse wake-ups until the connection looks: a busy bucket wakes its consumers very often.
        if !self.is_woken.swap(true, Ordering::AcqRel) {
            self.waiter.wake();
        }
    }
}

impl DcpConnection {
    /// Records that the connection looks now; the next event wakes it again.
    pub fn reset_wake(&self) {
        self.is_woken.store(false, Ordering::Release);
    }

    /// Changes the heartbeat of the connection.
    pub fn heartbeat(&self, beat: impl FnOnce(&mut Heartbeat)) {
        beat(&mut self.heartbeat.lock());
    }

    /// Returns true if a NOOP is due.
    pub fn needs_ping(&self) -> bool {
        self.needs_ping.load(Ordering::Acquire)
    }

    /// Returns true if a NOOP is due. The caller must send it.
    pub fn take_ping(&self) -> bool {
        self.needs_ping.swap(false, Ordering::AcqRel)
    }

    /// Sets whether store scans are open.
    pub fn set_holds_scans(&self, holds: bool) {
        self.holds_scans.store(holds, Ordering::Release);
    }

    /// Returns true if scans must be closed because the consumer takes nothing.
    pub fn must_release_scans(&self) -> bool {
        self.must_release_scans.load(Ordering::Acquire)
    }

    /// Returns true if scans must be closed. The caller must close them.
    pub fn take_release(&self) -> bool {
        self.must_release_scans.swap(false, Ordering::AcqRel)
    }

    fn tick(&self, now_ns: u64) {
        let (beat, quiet_ns) = {
            let mut heartbeat = self.heartbeat.lock();
            (heartbeat.tick(now_ns), heartbeat.quiet_ns(now_ns))
        };
        if quiet_ns > SCAN_IDLE_NS_MAX && self.holds_scans.load(Ordering::Acquire) {
            self.must_release_scans.store(true, Ordering::Release);
            self.wake();
        }
        match beat {
            Beat::Rest => {}
            Beat::Ask => {
                self.needs_ping.store(true, Ordering::Release);
                self.wake();
            }
            Beat::GiveUp => self.end("the DCP consumer has not answered for long"),
        }
    }

    /// Returns the reason why the connection must end, if it must.
    pub fn end_reason(&self) -> Option<&'static str> {
        self.end_reason.get().copied()
    }

    fn end(&self, why: &'static str) {
        let _ = self.end_reason.set(why);
        // Always wake: the connection may be blocked in sending and look at nothing else.
        self.waiter.wake();
    }
}

/// The DCP connections of a bucket.
#[derive(Default)]
pub(crate) struct DcpConnections(Mutex<Vec<Arc<DcpConnection>>>);

impl DcpConnections {
    /// Adds a connection of `user`. Ends an older connection with the same user and name, because its client has
    /// reconnected.
    pub fn open(
        &self,
        user: &str,
        name: &[u8],
        waiter: &Arc<dyn Waiter>,
        now: Now,
    ) -> Arc<DcpConnection> {
        let connection = Arc::new(DcpConnection {
            name: name.into(),
            user: user.into(),
            waiter: Arc::clone(waiter),
            is_woken: AtomicBool::new(false),
            heartbeat: Mutex::new(Heartbeat::new(now.monotonic_ns)),
            needs_ping: AtomicBool::new(false),
            holds_scans: AtomicBool::new(false),
            must_release_scans: AtomicBool::new(false),
            end_reason: OnceLock::new(),
        });
        let mut connections = self.0.lock();
        let is_same = |known: &mut Arc<DcpConnection>| *known.name == *name && *known.user == *user;
        for old in connections.extract_if(.., is_same) {
            old.end("another DCP connection has the same name");
        }
        connections.push(Arc::clone(&connection));
        connection
    }

    /// Removes a connection.
    pub fn close(&self, connection: &Arc<DcpConnection>) {
        self.0.lock().retain(|known| !Arc::ptr_eq(known, connection));
    }

    /// Returns the number of connections.
    pub fn count(&self) -> usize {
        self.0.lock().len()
    }

    /// Pings silent consumers, ends the connections of unresponsive ones, and closes the scans of consumers that take nothing.
    pub fn tick(&self, now: Now) {
        self.0.lock().iter().for_each(|connection| connection.tick(now.monotonic_ns));
    }
}
