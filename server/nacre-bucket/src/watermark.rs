//! Watermarks: monotonic seqnos by which consumers report their progress, and waiting for them.

use event_listener::Event;
use nacre_types::{Seqno, Vbid};
use std::sync::atomic::{AtomicU64, Ordering};

/// One seqno per vBucket, with waiters.
#[derive(Debug)]
pub struct Watermarks {
    seqnos: Box<[AtomicU64]>,
    moved: Event,
}

impl Watermarks {
    /// Creates watermarks that are all zero.
    pub fn new(vbucket_count: usize) -> Watermarks {
        Watermarks {
            seqnos: (0..vbucket_count).map(|_| AtomicU64::new(0)).collect(),
            moved: Event::new(),
        }
    }

    /// Returns the watermark of `vbid`.
    pub fn get(&self, vbid: Vbid) -> Seqno {
        Seqno(self.seqnos[vbid.index()].load(Ordering::Acquire))
    }

    /// Raises the watermark of `vbid`; a lower number is ignored. Waiters are woken only by [`Watermarks::publish`].
    pub fn raise(&self, vbid: Vbid, seqno: Seqno) {
        self.seqnos[vbid.index()].fetch_max(seqno.0, Ordering::AcqRel);
    }

    /// Wakes the waiters.
    pub fn publish(&self) {
        self.moved.notify(usize::MAX);
    }

    /// Completes at the next [`Watermarks::publish`] after this call, even if it is awaited later.
    pub fn moved(&self) -> impl Future<Output = ()> + use<> {
        self.moved.listen()
    }

    /// Lowers the watermark of `vbid`, for example after a rollback.
    pub fn reset(&self, vbid: Vbid, seqno: Seqno) {
        self.seqnos[vbid.index()].store(seqno.0, Ordering::Release);
    }

    /// Waits until `vbid` has reached `seqno`. Returns false if `ended` reports that it never will.
    pub async fn reached(&self, vbid: Vbid, seqno: Seqno, ended: impl Fn() -> bool) -> bool {
        loop {
            // Listen before checking, so that a publish in between is not missed.
            let moved = self.moved();
            if self.get(vbid) >= seqno {
                return true;
            }
            if ended() {
                return false;
            }
            moved.await;
        }
    }
}
