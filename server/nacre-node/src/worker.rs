//! Work for a bucket that a connection must not do itself: reading what was evicted, scanning. The threads of
//! connections never wait for a disk, nor for each other.

use crate::bucket::Bucket;
use crate::platform::{Next, Signal, Task};
use crate::ticket::{Ticket, Waiter};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

/// Tasks that work for one bucket: a disk answers several reads at a time faster than one after another.
pub(crate) const WORKERS: usize = 2;

type Job = Box<dyn FnOnce(&Bucket) + Send>;

/// What is to be done, first come, first served.
#[derive(Default)]
pub(crate) struct Jobs {
    queue: Mutex<Queue>,
    signal: Signal,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Job>,
    /// The workers end once nothing waits.
    closed: bool,
}

impl Jobs {
    /// Has `work` done soon, and tells `waiter` its outcome. `None` when the bucket has ended, and nobody is left to do it.
    pub fn push<T: Send + Sync + 'static>(
        &self,
        waiter: &Arc<dyn Waiter>,
        work: impl FnOnce(&Bucket) -> T + Send + 'static,
    ) -> Option<Arc<Ticket<T>>> {
        let ticket = Ticket::new(waiter);
        let done = Arc::clone(&ticket);
        let mut queue = self.queue.lock();
        if queue.closed {
            return None;
        }
        queue.waiting.push_back(Box::new(move |bucket| done.settle(work(bucket))));
        drop(queue);
        self.signal.wake();
        Some(ticket)
    }

    /// Ends the workers, each of which wakes the next.
    pub fn close(&self) {
        self.queue.lock().closed = true;
        self.signal.wake();
    }

    /// The next job, or whether there will be one.
    fn pop(&self) -> Result<Job, Next> {
        let mut queue = self.queue.lock();
        let job = queue.waiting.pop_front();
        if !queue.waiting.is_empty() || queue.closed {
            // The signal is shared: another worker helps, or ends.
            self.signal.wake();
        }
        job.ok_or(if queue.closed { Next::Done } else { Next::Wait })
    }
}

pub(crate) struct Worker {
    bucket: Arc<Bucket>,
    signal: Signal,
}

impl Worker {
    pub fn new(bucket: Arc<Bucket>) -> Worker {
        let signal = bucket.jobs.signal.clone();
        Worker { bucket, signal }
    }
}

impl Task for Worker {
    fn name(&self) -> &'static str {
        "worker"
    }

    fn is_background(&self) -> bool {
        false
    }

    fn step(&mut self) -> Next {
        match self.bucket.jobs.pop() {
            Ok(job) => {
                job(&self.bucket);
                Next::Again
            }
            Err(next) => next,
        }
    }

    fn signal(&self) -> &Signal {
        &self.signal
    }
}
