//! The state that the thread of sync and the application share.

use super::{SyncEvent, SyncState, SyncStatus};
use crate::Error;
use nacre_sync::{Notice, State, Status};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Maximum number of unread events; the oldest are dropped.
const EVENTS_MAX: usize = 1024;

#[derive(Default)]
struct Inner {
    status: SyncStatus,
    events: VecDeque<SyncEvent>,
    stops: bool,
    has_hint: bool,
    has_question: bool,
    /// Counts questions of the application, and questions sent to the nodes.
    asked: u64,
    put: u64,
    /// True if the answers to the last question have arrived and no work is left.
    is_in_step: bool,
}

/// State, events and orders.
pub(super) struct Shared {
    inner: Mutex<Inner>,
    news: Condvar,
    bell: UnixStream,
}

impl Shared {
    pub fn new(bell: UnixStream) -> Shared {
        Shared { inner: Mutex::default(), news: Condvar::new(), bell }
    }

    /// Wakes the thread of sync.
    pub fn wake(&self) {
        // A full pipe has already woken it.
        let _ = (&self.bell).write(&[1]);
    }

    pub fn stop(&self) {
        self.inner.lock().stops = true;
        self.wake();
    }

    pub fn stops(&self) -> bool {
        self.inner.lock().stops
    }

    pub fn hint(&self) {
        self.inner.lock().has_hint = true;
        self.wake();
    }

    pub fn takes_hint(&self) -> bool {
        std::mem::take(&mut self.inner.lock().has_hint)
    }

    /// Returns true if a caller wants the current progress of the nodes.
    pub fn takes_question(&self) -> bool {
        let mut inner = self.inner.lock();
        let takes = std::mem::take(&mut inner.has_question);
        if takes {
            (inner.put, inner.is_in_step) = (inner.asked, false);
        }
        takes
    }

    fn push(&self, inner: &mut Inner, event: SyncEvent) {
        if inner.events.len() == EVENTS_MAX {
            inner.events.pop_front();
        }
        inner.events.push_back(event);
        self.news.notify_all();
    }

    fn enter(&self, inner: &mut Inner, state: SyncState) {
        if inner.status.state != state {
            inner.status.state = state.clone();
            self.push(inner, SyncEvent::State(state));
        }
    }

    pub fn set_state(&self, state: SyncState) {
        self.enter(&mut self.inner.lock(), state);
    }

    pub fn set_trouble(&self, trouble: String) {
        self.inner.lock().status.trouble = Some(trouble);
    }

    pub fn notify(&self, notice: Notice) {
        let event = match notice {
            // The figures contain it.
            Notice::State(_) => return,
            Notice::Conflict { collection, name, kept, .. } => {
                SyncEvent::Conflict { collection, key: name, kept }
            }
            Notice::Parked { collection, name, reason } => {
                SyncEvent::Parked { collection, key: name, reason }
            }
            Notice::NoCollection(path) => SyncEvent::NoCollection(path),
            Notice::Again { lost } => SyncEvent::Again { lost },
        };
        self.push(&mut self.inner.lock(), event);
    }

    pub fn report(&self, status: Status, is_in_step: bool, is_waiting: bool) {
        let mut inner = self.inner.lock();
        let state = match status.state {
            State::Offline if is_waiting => SyncState::Offline,
            State::Offline => SyncState::Connecting,
            State::CatchingUp => SyncState::CatchingUp,
            State::Live => SyncState::Live,
        };
        if state == SyncState::Live {
            inner.status.trouble = None;
        }
        inner.status.set(status);
        if is_in_step && !inner.is_in_step {
            self.news.notify_all();
        }
        inner.is_in_step = is_in_step;
        self.enter(&mut inner, state);
    }

    pub fn end(&self, reason: String, status: Status) {
        let mut inner = self.inner.lock();
        inner.status.set(status);
        self.enter(&mut inner, SyncState::Stopped(reason));
        self.news.notify_all();
    }

    pub fn status(&self) -> SyncStatus {
        self.inner.lock().status.clone()
    }

    /// Returns the next event and waits for it up to `timeout`.
    pub fn next_event(&self, timeout: Duration) -> Option<SyncEvent> {
        let until = Instant::now().checked_add(timeout);
        let mut inner = self.inner.lock();
        loop {
            if let Some(event) = inner.events.pop_front() {
                return Some(event);
            }
            if matches!(inner.status.state, SyncState::Stopped(_)) {
                return None;
            }
            match until {
                Some(until) if self.news.wait_until(&mut inner, until).timed_out() => return None,
                Some(_) => {}
                None => self.news.wait(&mut inner),
            }
        }
    }

    /// Waits until both sides have everything that the other one has now.
    pub fn wait_in_step(&self, timeout: Duration) -> Result<(), Error> {
        let until = Instant::now().checked_add(timeout);
        let mut inner = self.inner.lock();
        inner.asked += 1;
        let asked = inner.asked;
        inner.has_question = true;
        self.wake();
        loop {
            if let SyncState::Stopped(reason) = &inner.status.state {
                return Err(Error::SyncStopped(reason.clone()));
            }
            if inner.put >= asked && inner.is_in_step {
                return Ok(());
            }
            match until {
                Some(until) if self.news.wait_until(&mut inner, until).timed_out() => {
                    return Err(Error::NotInStep(inner.status.describe()));
                }
                Some(_) => {}
                None => self.news.wait(&mut inner),
            }
        }
    }
}
