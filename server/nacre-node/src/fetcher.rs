//! Background fetch: reads values that were evicted, so that the threads of connections never wait for a disk.

use crate::bucket::Bucket;
use crate::platform::{Next, Signal, Task};
use crate::ticket::Ticket;
use nacre_types::Vbid;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::Notify;

/// Tasks that read for one bucket: a disk answers several reads at a time faster than one after another.
pub(crate) const FETCHERS: usize = 2;

struct Fetch {
    vbid: Vbid,
    key: Box<[u8]>,
    ticket: Arc<Ticket<bool>>,
}

/// Keys that connections wait for.
#[derive(Default)]
pub(crate) struct FetchQueue {
    waiting: Mutex<VecDeque<Fetch>>,
    signal: Signal,
}

impl FetchQueue {
    /// Asks for the stored version of `key`. The ticket says true once it is in memory, false when it cannot be read.
    pub fn push(&self, vbid: Vbid, key: &[u8], waiter: &Arc<Notify>) -> Arc<Ticket<bool>> {
        let ticket = Ticket::new(waiter);
        let fetch = Fetch { vbid, key: key.into(), ticket: Arc::clone(&ticket) };
        self.waiting.lock().push_back(fetch);
        self.signal.wake();
        ticket
    }

    /// Ends the tasks that read, each of which wakes the next.
    pub fn close(&self) {
        self.signal.wake();
    }

    fn pop(&self) -> Option<Fetch> {
        let mut waiting = self.waiting.lock();
        let fetch = waiting.pop_front();
        if !waiting.is_empty() {
            // The signal is shared: another task helps.
            self.signal.wake();
        }
        fetch
    }
}

pub(crate) struct Fetcher {
    bucket: Arc<Bucket>,
    signal: Signal,
}

impl Fetcher {
    pub fn new(bucket: Arc<Bucket>) -> Fetcher {
        let signal = bucket.fetches.signal.clone();
        Fetcher { bucket, signal }
    }
}

impl Task for Fetcher {
    fn name(&self) -> &'static str {
        "fetcher"
    }

    fn is_background(&self) -> bool {
        false
    }

    fn step(&mut self) -> Next {
        if let Some(Fetch { vbid, key, ticket }) = self.bucket.fetches.pop() {
            let fetched = self.bucket.fetch(vbid, &key);
            if let Err(error) = &fetched
                && !self.bucket.is_discarded()
            {
                tracing::error!(
                    "bucket {}: cannot read a document of {vbid}: {error}",
                    self.bucket.name
                );
            }
            ticket.settle(fetched.is_ok());
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
