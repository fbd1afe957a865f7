//! Runs the tasks of the bucket on one thread, on the application's threads, or on both.
//!
//! The thread that holds a task's lock steps the task: the library's thread, a caller of `poll`, or a caller that waits for a
//! durable write and therefore steps the flusher itself. A durable write thus needs no change of threads, and writers that wait
//! for the flusher's lock find their writes stored by its previous holder.

use crate::{Clock, Sync};
use nacre_bucket::{Next, Signal, Task};
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

const NEVER: u64 = u64::MAX;
/// How long the thread leaves a write to a caller that waits until it is on disk.
const CALLER_STORES: Duration = Duration::from_millis(5);
/// The task that stores.
const FLUSHER: &str = "flusher";

struct Slot {
    /// `None` once the task is done.
    task: Mutex<Option<Box<dyn Task>>>,
    signal: Signal,
    is_flusher: bool,
    /// Monotonic nanoseconds at which the task takes its next step without being woken.
    due_ns: AtomicU64,
}

impl Slot {
    /// Steps the task until it waits. Without `waits`, returns at once if another thread steps the task.
    fn run(&self, clock: &dyn Clock, waits: bool) {
        let Some(mut task) = (if waits { Some(self.task.lock()) } else { self.task.try_lock() })
        else {
            return;
        };
        // Taken before the step: a signal that comes meanwhile causes another step.
        self.signal.take();
        self.due_ns.store(NEVER, Ordering::Release);
        while let Some(running) = task.as_mut() {
            match running.step() {
                Next::Again => {}
                Next::Wait => return,
                Next::After(wait) => {
                    let due = clock.now().monotonic_ns.saturating_add(wait.as_nanos() as u64);
                    self.due_ns.fetch_min(due, Ordering::AcqRel);
                    return;
                }
                Next::Done => *task = None,
            }
        }
    }
}

/// Runs tasks.
pub(crate) struct Runner {
    slots: RwLock<Vec<Arc<Slot>>>,
    clock: Arc<dyn Clock>,
    /// How long the flusher waits after a wake; `None` to wait until a caller asks for it.
    flush_delay: Option<Duration>,
    stops: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Runner {
    pub fn new(clock: Arc<dyn Clock>, sync: Sync) -> Arc<Runner> {
        let flush_delay = match sync {
            Sync::Always => Some(CALLER_STORES),
            Sync::After(delay) => Some(delay),
            Sync::Never => None,
        };
        let (slots, stops, thread) = Default::default();
        Arc::new(Runner { slots, clock, flush_delay, stops, thread })
    }

    /// Adds a task, which takes its first step with the next run.
    pub fn add(&self, task: Box<dyn Task>) {
        let signal = task.signal().clone();
        let is_flusher = task.name() == FLUSHER;
        let (task, due_ns) = (Mutex::new(Some(task)), AtomicU64::new(0));
        self.slots.write().push(Arc::new(Slot { task, signal, is_flusher, due_ns }));
    }

    fn slots(&self) -> Vec<Arc<Slot>> {
        self.slots.read().clone()
    }

    /// Starts the thread.
    pub fn start(self: &Arc<Runner>) -> std::io::Result<()> {
        let runner = Arc::clone(self);
        let work = move || runner.work();
        *self.thread.lock() = Some(thread::Builder::new().name("nacre".into()).spawn(work)?);
        Ok(())
    }

    fn work(&self) {
        while !self.stops.load(Ordering::Acquire) {
            let wait = self.run(true);
            // A flusher with a due time must not be woken by each write before that time.
            let slots = self.slots();
            let sleeps = |slot: &Arc<Slot>| {
                (slot.is_flusher && slot.due_ns.load(Ordering::Acquire) != NEVER)
                    || slot.signal.arm()
            };
            if !slots.iter().all(sleeps) || self.stops.load(Ordering::Acquire) {
                continue;
            }
            match wait {
                Some(wait) => thread::park_timeout(wait),
                None => thread::park(),
            }
        }
    }

    /// Steps the tasks that are due or were woken. Returns the time until the next task is due if none is woken; `None` for no
    /// limit. Without `waits`, skips a task that another thread steps.
    pub fn run(&self, waits: bool) -> Option<Duration> {
        let mut next_ns = NEVER;
        for slot in self.slots() {
            let now_ns = self.clock.now().monotonic_ns;
            if slot.signal.take() {
                let delay = if slot.is_flusher { self.flush_delay } else { Some(Duration::ZERO) };
                if let Some(delay) = delay {
                    let due = now_ns.saturating_add(delay.as_nanos() as u64);
                    slot.due_ns.fetch_min(due, Ordering::AcqRel);
                }
            }
            if slot.due_ns.load(Ordering::Acquire) <= now_ns {
                slot.run(&*self.clock, waits);
            }
            next_ns = next_ns.min(slot.due_ns.load(Ordering::Acquire));
        }
        let now_ns = self.clock.now().monotonic_ns;
        (next_ns != NEVER).then(|| Duration::from_nanos(next_ns.saturating_sub(now_ns)))
    }

    /// Stores all unsaved writes, on this thread.
    pub fn flush(&self) {
        for slot in self.slots().iter().filter(|slot| slot.is_flusher) {
            slot.run(&*self.clock, true);
        }
    }

    /// Steps all tasks except the flusher on this thread, due or not, for a caller that waits for one of them.
    pub fn help(&self) {
        for slot in self.slots().iter().filter(|slot| !slot.is_flusher) {
            slot.run(&*self.clock, false);
        }
    }

    /// Ends the thread, and steps each task until it is done or waits. The caller must have closed the bucket.
    pub fn stop(&self) {
        self.stops.store(true, Ordering::Release);
        if let Some(thread) = self.thread.lock().take() {
            thread.thread().unpark();
            // A task on that very thread may drop the last handle.
            if thread.thread().id() != thread::current().id() {
                // A task that panicked has already reported it. Its vBuckets are not stored, which the caller checks.
                let _ = thread.join();
            }
        }
        for slot in self.slots() {
            slot.run(&*self.clock, true);
        }
        self.slots.write().clear();
    }
}
