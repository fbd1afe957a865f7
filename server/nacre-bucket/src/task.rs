//! The loops of a node in steps, and how a sleeping one is woken.

use crate::Waiter;
use std::cell::Cell;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::Duration;

/// A loop of the node, in steps that never block for long.
pub trait Task: Send {
    /// For people who look at threads, at most 15 characters.
    fn name(&self) -> &'static str;

    /// Whether clients wait for it less than for others: it yields the processor to them.
    fn is_background(&self) -> bool;

    /// Whether the whole node waits for it, and it takes little time: it comes before others.
    fn is_urgent(&self) -> bool {
        false
    }

    /// Whether the node is none without it: the env ends the process when such a task panics.
    fn is_vital(&self) -> bool {
        true
    }

    /// Does some work.
    fn step(&mut self) -> Next;

    /// Wakes the task after [`Next::Wait`].
    fn signal(&self) -> &Signal;
}

/// What a task wants after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Another step.
    Again,
    /// Another step once its signal is woken.
    Wait,
    /// Another step after that time, or when its signal is woken.
    After(Duration),
    /// None: the task is dropped.
    Done,
}

thread_local! {
    static ON_BLOCKING: Cell<fn()> = const { Cell::new(|| {}) };
}

/// Has this thread do `work` whenever a request that it carries out is about to wait, or computes for long: others may be waiting for
/// the thread.
pub fn on_blocking(work: fn()) {
    ON_BLOCKING.set(work);
}

/// To be called where a request computes for long, and before it waits for anything but a [`Signal`], which calls it by itself.
pub fn before_blocking() {
    ON_BLOCKING.get()();
}

/// Wakes a sleeping task; waking one that is awake makes it take one more step.
///
/// Whoever wakes never waits for who sleeps: the one may come before the other where the processor is short, and then the other
/// would never get to what is waited for.
#[derive(Clone, Debug, Default)]
pub struct Signal(Arc<Bell>);

#[derive(Debug, Default)]
struct Bell {
    /// One of the three below.
    state: AtomicU8,
    /// The one thread that waits, from the first time that it does.
    sleeper: OnceLock<Thread>,
}

const AWAKE: u8 = 0;
const ASLEEP: u8 = 1;
const WOKEN: u8 = 2;

impl Waiter for Signal {
    fn wake(&self) {
        Signal::wake(self);
    }
}

impl Signal {
    /// Wakes the task. Many wakes before it looks are one.
    pub fn wake(&self) {
        if self.0.state.swap(WOKEN, Ordering::AcqRel) == ASLEEP
            && let Some(sleeper) = self.0.sleeper.get()
        {
            sleeper.unpark();
        }
    }

    /// Blocks until woken.
    ///
    /// # Panics
    /// Where another thread has waited before.
    pub fn wait(&self) {
        if self.begin_sleep() {
            while self.0.state.load(Ordering::Acquire) == ASLEEP {
                thread::park();
            }
        }
        self.0.state.swap(AWAKE, Ordering::AcqRel);
    }

    /// Blocks until woken, or until `timeout` has passed; the system may wake it too.
    ///
    /// # Panics
    /// Where another thread has waited before.
    pub fn wait_at_most(&self, timeout: Duration) {
        if self.begin_sleep() {
            thread::park_timeout(timeout);
        }
        // Either way the task takes another step.
        self.0.state.swap(AWAKE, Ordering::AcqRel);
    }

    /// Whether it has not been woken already.
    fn begin_sleep(&self) -> bool {
        if self.0.state.load(Ordering::Relaxed) == AWAKE {
            before_blocking();
        }
        let sleeper = self.0.sleeper.get_or_init(thread::current);
        assert_eq!(sleeper.id(), thread::current().id(), "one thread waits for a signal");
        let state = &self.0.state;
        state.compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Whether a wake has arrived since the last look.
    pub fn take(&self) -> bool {
        // Whoever runs many tasks asks often.
        self.0.state.load(Ordering::Relaxed) == WOKEN
            && self.0.state.swap(AWAKE, Ordering::AcqRel) == WOKEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOREVER: Duration = Duration::from_secs(3600);

    #[test]
    fn many_wakes_are_one_and_none_is_missed() {
        let signal = Signal::default();
        assert!(!signal.take());
        signal.wake();
        signal.wake();
        signal.wait();
        assert!(!signal.take());
        signal.wake();
        assert!(signal.take());
        signal.wake();
        signal.wait_at_most(FOREVER);
        assert!(!signal.take());
    }

    #[test]
    fn two_tasks_wake_each_other_in_turn() {
        const TURNS: usize = 20_000;
        let (ping, pong) = (Signal::default(), Signal::default());
        thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..TURNS {
                    ping.wait();
                    pong.wake();
                }
            });
            for _ in 0..TURNS {
                ping.wake();
                pong.wait();
            }
        });
    }
}
