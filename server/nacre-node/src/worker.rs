//! Work for a bucket that a connection must not do itself: reading what was evicted, scanning. The threads of
//! connections never wait for a disk, nor for each other.

use crate::bucket::Bucket;
use crate::platform::{Next, Signal, Task};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

/// Tasks that work for one bucket: a disk answers several reads at a time faster than one after another.
pub(crate) const WORKERS: usize = 2;

type Job = Box<dyn FnOnce(&Bucket) + Send>;

/// What is to be done, first come, first served.
#[derive(Default)]
pub(crate) struct Jobs {
    waiting: Mutex<VecDeque<Job>>,
    signal: Signal,
}

impl Jobs {
    /// Has `job` done soon.
    pub fn push(&self, job: impl FnOnce(&Bucket) + Send + 'static) {
        self.waiting.lock().push_back(Box::new(job));
        self.signal.wake();
    }

    /// Ends the workers, each of which wakes the next.
    pub fn close(&self) {
        self.signal.wake();
    }

    fn pop(&self) -> Option<Job> {
        let mut waiting = self.waiting.lock();
        let job = waiting.pop_front();
        if !waiting.is_empty() {
            // The signal is shared: another worker helps.
            self.signal.wake();
        }
        job
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
        if let Some(job) = self.bucket.jobs.pop() {
            job(&self.bucket);
            return Next::Again;
        }
        if self.bucket.is_closed() {
            self.signal.wake();
            return Next::Done;
        }
        Next::Wait
    }

    fn signal(&self) -> &Signal {
        &self.signal
    }
}
