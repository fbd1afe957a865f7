//! Work for a bucket that a connection must not do itself, such as reading what was evicted. The threads of
//! connections never wait for a disk or for each other.

use crate::bucket::Bucket;
use crate::{Next, Signal, Task, Ticket, Waiter};
use parking_lot::Mutex;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// Tasks that work for one bucket: a disk answers several reads at a time faster than one after another.
pub(crate) const WORKERS: usize = 2;

type Job = Box<dyn FnOnce(&Bucket) + Send>;

/// A queue of work: first come, first served.
#[derive(Default)]
pub(crate) struct Jobs {
    queue: Mutex<Queue>,
    /// One for each worker.
    signals: [Signal; WORKERS],
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Job>,
    /// The numbers of the workers that wait.
    idle: BTreeSet<usize>,
    /// The workers end once the queue is empty.
    closed: bool,
}

impl Jobs {
    /// Queues `work`, whose outcome settles the ticket. Returns `None` when the bucket has ended and nobody is left
    /// to do it.
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
        let idle = queue.idle.pop_first();
        drop(queue);
        if let Some(worker) = idle {
            self.signals[worker].wake();
        }
        Some(ticket)
    }

    /// Ends the workers once the queue is empty.
    pub fn close(&self) {
        self.queue.lock().closed = true;
        self.signals.iter().for_each(Signal::wake);
    }

    /// Returns the length of the queue.
    pub fn waiting(&self) -> usize {
        self.queue.lock().waiting.len()
    }

    /// Takes the next job, or says what the worker does without one.
    fn pop(&self, worker: usize) -> Result<Job, Next> {
        let mut queue = self.queue.lock();
        if let Some(job) = queue.waiting.pop_front() {
            queue.idle.remove(&worker);
            return Ok(job);
        }
        queue.idle.insert(worker);
        Err(if queue.closed { Next::Done } else { Next::Wait })
    }
}

pub(crate) struct Worker {
    bucket: Arc<Bucket>,
    name: &'static str,
    jobs: fn(&Bucket) -> &Jobs,
    number: usize,
}

impl Worker {
    /// Creates a worker of the bucket, numbered below [`WORKERS`].
    pub fn new(bucket: Arc<Bucket>, number: usize) -> Worker {
        Worker { bucket, name: "worker", jobs: |bucket| &bucket.jobs, number }
    }

    /// Creates a worker that asks the resolver, numbered below [`WORKERS`]: plugins delay nothing but each other.
    pub(crate) fn of_conflicts(bucket: Arc<Bucket>, number: usize) -> Worker {
        Worker { bucket, name: "resolver", jobs: |bucket| &bucket.conflicts.jobs, number }
    }

    fn jobs(&self) -> &Jobs {
        (self.jobs)(&self.bucket)
    }
}

impl Task for Worker {
    fn name(&self) -> &'static str {
        self.name
    }

    fn is_background(&self) -> bool {
        false
    }

    fn step(&mut self) -> Next {
        match self.jobs().pop(self.number) {
            Ok(job) => {
                job(&self.bucket);
                Next::Again
            }
            Err(next) => next,
        }
    }

    fn signal(&self) -> &Signal {
        &self.jobs().signals[self.number]
    }
}
