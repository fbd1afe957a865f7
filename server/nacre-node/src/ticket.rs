//! What a connection waits for, and how it hears of it.

use std::sync::{Arc, OnceLock};
use tokio::sync::Notify;

/// The outcome of something that takes longer than a request may hold up a thread: settled once, by whoever does it.
#[derive(Debug)]
pub(crate) struct Ticket<T> {
    outcome: OnceLock<T>,
    /// Of the connection, which may wait for several.
    waiter: Arc<Notify>,
}

impl<T> Ticket<T> {
    /// Not settled; `waiter` is notified when it is.
    pub fn new(waiter: &Arc<Notify>) -> Arc<Ticket<T>> {
        Arc::new(Ticket { outcome: OnceLock::new(), waiter: Arc::clone(waiter) })
    }

    /// Settles it. A second outcome is ignored.
    pub fn settle(&self, outcome: T) {
        let _ = self.outcome.set(outcome);
        self.waiter.notify_one();
    }

    /// The outcome, once there is one.
    pub fn outcome(&self) -> Option<&T> {
        self.outcome.get()
    }
}
