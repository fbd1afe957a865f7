//! What a connection waits for, and how it hears of it.

use parking_lot::Mutex;
use std::sync::{Arc, OnceLock, Weak};

/// A connection or a task as those see it who have something for it: whatever runs the connection implements this.
pub trait Waiter: Send + Sync {
    /// Has it look at what it waits for, soon and on its own thread. Never blocks.
    fn wake(&self);
}

/// Those who want to know of something, as long as they live.
#[derive(Default)]
pub struct Watchers(Mutex<Vec<Weak<dyn Waiter>>>);

impl Watchers {
    /// Adds one.
    pub fn add(&self, watcher: &Arc<dyn Waiter>) {
        let mut watchers = self.0.lock();
        watchers.retain(|known| known.strong_count() > 0);
        watchers.push(Arc::downgrade(watcher));
    }

    /// Wakes all.
    pub fn wake(&self) {
        let wake = |watcher: &Weak<dyn Waiter>| {
            watcher.upgrade().inspect(|watcher| watcher.wake()).is_some()
        };
        self.0.lock().retain(wake);
    }
}

/// The outcome of something that takes longer than a request may hold up a thread: settled once, by whoever does it.
pub struct Ticket<T> {
    outcome: OnceLock<T>,
    /// The connection, which may wait for several.
    waiter: Arc<dyn Waiter>,
}

impl<T> Ticket<T> {
    /// Not settled; `waiter` is woken when it is.
    pub fn new(waiter: &Arc<dyn Waiter>) -> Arc<Ticket<T>> {
        Arc::new(Ticket { outcome: OnceLock::new(), waiter: Arc::clone(waiter) })
    }

    /// Settles it. A second outcome is ignored.
    pub fn settle(&self, outcome: T) {
        let _ = self.outcome.set(outcome);
        self.waiter.wake();
    }

    /// The outcome, once there is one.
    pub fn outcome(&self) -> Option<&T> {
        self.outcome.get()
    }
}
