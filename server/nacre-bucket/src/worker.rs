//! Workers of a bucket: work that must not run on a connection's thread, such as reading evicted documents.
//! Connections' threads never wait for a disk or for each other.

use crate::bucket::Bucket;
use crate::{BucketEnv, Next, Signal, Task, Ticket, Waiter};
use parking_lot::Mutex;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// Number of workers per bucket. Several, because a disk serves concurrent reads faster than sequential ones.
pub(crate) const WORKERS: usize = 2;

type Job = Box<dyn FnOnce(&Bucket) + Send>;

/// A first-in, first-out queue of jobs.
#[derive(Default)]
pub(crate) struct Jobs {
    queue: Mutex<Queue>,
    /// One signal for each worker.
    signals: [Signal; WORKERS],
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Job>,
    /// The numbers of idle workers.
    idle: BTreeSet<usize>,
    /// True if the workers end once the queue is empty.
    closed: bool,
}

impl Jobs {
    /// Queues `work`. Its result settles the ticket. Returns `None` when the bucket has ended and no worker is left.
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

    /// Takes the next job, or returns what the worker does without one.
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

/// Jobs that give way to requests: scans for consumers of low priority. The first such consumer starts the workers.
#[derive(Default)]
pub(crate) struct BackgroundJobs {
    pub(crate) jobs: Jobs,
    has_workers: Mutex<bool>,
}

impl BackgroundJobs {
    /// Starts the workers of the bucket, unless they run already.
    pub fn start(bucket: &Arc<Bucket>, env: &dyn BucketEnv) {
        let mut has_workers = bucket.background.has_workers.lock();
        if std::mem::replace(&mut *has_workers, true) {
            return;
        }
        for number in 0..WORKERS {
            env.spawn(Box::new(Worker::of_background(Arc::clone(bucket), number)));
        }
    }
}

pub(crate) struct Worker {
    bucket: Arc<Bucket>,
    name: &'static str,
    jobs: fn(&Bucket) -> &Jobs,
    number: usize,
    is_background: bool,
}

impl Worker {
    /// Creates a worker of the bucket, numbered below [`WORKERS`].
    pub fn new(bucket: Arc<Bucket>, number: usize) -> Worker {
        let jobs: fn(&Bucket) -> &Jobs = |bucket| &bucket.jobs;
        Worker { bucket, name: "worker", jobs, number, is_background: false }
    }

    /// Creates a worker for consumers of low priority, numbered below [`WORKERS`]. Separate workers, so that requests for
    /// evicted documents never wait behind a backup.
    fn of_background(bucket: Arc<Bucket>, number: usize) -> Worker {
        let jobs: fn(&Bucket) -> &Jobs = |bucket| &bucket.background.jobs;
        Worker { bucket, name: "scanner", jobs, number, is_background: true }
    }

    /// Creates a worker that asks the resolver, numbered below [`WORKERS`]. Separate workers, so that a slow plugin
    /// delays only other conflicts.
    pub(crate) fn of_conflicts(bucket: Arc<Bucket>, number: usize) -> Worker {
        let jobs: fn(&Bucket) -> &Jobs = |bucket| &bucket.conflicts.jobs;
        Worker { bucket, name: "resolver", jobs, number, is_background: false }
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
        self.is_background
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
