//! Tickets: the eventual outcome of work that a connection waits for.

use parking_lot::Mutex;
use std::sync::{Arc, OnceLock, Weak};

/// A connection or task that can be woken. The embedder implements it.
pub trait Waiter: Send + Sync {
    /// Schedules the waiter to check its condition soon, on its own thread. Never blocks.
    fn wake(&self);
}

/// A set of waiters that are woken together while they live.
#[derive(Default)]
pub struct Watchers(Mutex<Vec<Weak<dyn Waiter>>>);

impl Watchers {
    /// Adds a waiter.
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

/// The outcome of work that must not block a request's thread. Settled once by the worker.
pub struct Ticket<T> {
    outcome: OnceLock<T>,
    /// The connection. It may wait for several tickets.
    waiter: Arc<dyn Waiter>,
}

impl<T> Ticket<T> {
    /// Creates a ticket without an outcome. Settling it wakes `waiter`.
    pub fn new(waiter: &Arc<dyn Waiter>) -> Arc<Ticket<T>> {
        Arc::new(Ticket { outcome: OnceLock::new(), waiter: Arc::clone(waiter) })
    }

    /// Sets the outcome and wakes the waiter. A second outcome is ignored.
    pub fn settle(&self, outcome: T) {
        let _ = self.outcome.set(outcome);
        self.waiter.wake();
    }

    /// Returns the outcome if the ticket is settled.
    pub fn outcome(&self) -> Option<&T> {
        self.outcome.get()
    }
}
