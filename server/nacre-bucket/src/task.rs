//! Tasks: loops that run in steps, and the signals that wake them.

use crate::Waiter;
use std::cell::Cell;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::Duration;

/// A loop in steps. No step blocks for long.
pub trait Task: Send {
    /// Returns the name of the task's thread, at most 15 characters.
    fn name(&self) -> &'static str;

    /// Returns true if the task runs in the background: it yields the processor to tasks that clients wait for.
    fn is_background(&self) -> bool;

    /// Returns true if the whole node depends on this task and it takes little time: it precedes other tasks.
    fn is_urgent(&self) -> bool {
        false
    }

    /// Returns true if the node cannot run without this task: the embedder ends the process when the task panics.
    fn is_vital(&self) -> bool {
        true
    }

    /// Does a portion of work.
    fn step(&mut self) -> Next;

    /// Returns the signal that wakes the task after [`Next::Wait`].
    fn signal(&self) -> &Signal;
}

/// The request of a task after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Another step at once.
    Again,
    /// Another step when its signal is woken.
    Wait,
    /// Another step after that time, or when its signal is woken.
    After(Duration),
    /// No more steps: the task has ended and is dropped.
    Done,
}

thread_local! {
    static ON_BLOCKING: Cell<fn()> = const { Cell::new(|| {}) };
}

/// Sets a function that this thread calls before a request blocks or computes for long, because other work may depend
/// on the thread.
pub fn on_blocking(work: fn()) {
    ON_BLOCKING.set(work);
}

/// Must be called before a request computes for long or waits for anything but a [`Signal`], which calls this function
/// itself.
pub fn before_blocking() {
    ON_BLOCKING.get()();
}

/// Wakes a sleeping task. Waking an awake task makes it take one more step.
///
/// `wake` never blocks on the sleeping task. With priorities, blocking here would deadlock: the sleeper might not get
/// the processor.
#[derive(Clone, Debug, Default)]
pub struct Signal(Arc<WakeState>);

#[derive(Debug, Default)]
struct WakeState {
    /// `AWAKE`, `ASLEEP` or `WOKEN`.
    state: AtomicU8,
    /// The only thread that waits; set by its first wait.
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
    /// Wakes the task. Several wakes before the task looks count as one.
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
    /// Panics if another thread has waited before.
    pub fn wait(&self) {
        if self.begin_sleep() {
            while self.0.state.load(Ordering::Acquire) == ASLEEP {
                thread::park();
            }
        }
        self.0.state.swap(AWAKE, Ordering::AcqRel);
    }

    /// Blocks until woken or until `timeout` has passed. May return early.
    ///
    /// # Panics
    /// Panics if another thread has waited before.
    pub fn wait_at_most(&self, timeout: Duration) {
        if self.begin_sleep() {
            thread::park_timeout(timeout);
        }
        // The task takes another step, whether it was woken or timed out.
        self.0.state.swap(AWAKE, Ordering::AcqRel);
    }

    /// Returns false if the signal was already woken.
    fn begin_sleep(&self) -> bool {
        if self.0.state.load(Ordering::Relaxed) == AWAKE {
            before_blocking();
        }
        let sleeper = self.0.sleeper.get_or_init(thread::current);
        assert_eq!(sleeper.id(), thread::current().id(), "one thread waits for a signal");
        let state = &self.0.state;
        state.compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Arms the signal so that the next wake unparks the current thread. A thread that steps several tasks arms the signal of
    /// each, parks itself if all could be armed, and then polls each by [`Signal::take`]. Returns false if a wake has already
    /// arrived.
    ///
    /// # Panics
    /// Panics if another thread has waited before.
    pub fn arm(&self) -> bool {
        self.begin_sleep() || self.0.state.load(Ordering::Acquire) == ASLEEP
    }

    /// Returns true if a wake has arrived since the last call.
    pub fn take(&self) -> bool {
        // Load first, because an embedder that runs many tasks on one thread polls often.
        self.0.state.load(Ordering::Relaxed) == WOKEN
            && self.0.state.swap(AWAKE, Ordering::AcqRel) == WOKEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOREVER: Duration = Duration::from_secs(3600);

    #[test]
    fn wakes_are_coalesced_and_none_is_missed() {
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
    fn one_thread_sleeps_over_several_signals() {
        let signals = [Signal::default(), Signal::default()];
        signals[1].wake();
        assert!(signals[0].arm());
        assert!(!signals[1].arm(), "a wake that came before keeps the thread awake");
        assert!(!signals[0].take());
        assert!(signals[1].take());
        thread::scope(|scope| {
            scope.spawn(|| signals[1].wake());
            while !signals[1].take() {
                if signals.iter().all(Signal::arm) {
                    thread::park();
                }
            }
        });
        assert!(!signals[0].take());
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
