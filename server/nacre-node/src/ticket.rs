//! What a connection waits for, and how it hears of it.

use std::sync::{Arc, OnceLock};

/// A connection or a task as those see it who have something for it: whatever runs the connection implements this.
pub trait Waiter: Send + Sync {
    /// Has it look at what it waits for, soon and on its own thread. Never blocks.
    fn wake(&self);
}

/// The outcome of something that takes longer than a request may hold up a thread: settled once, by whoever does it.
pub(crate) struct Ticket<T> {
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
