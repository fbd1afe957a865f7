//! Numbers that only grow, and waiting for them: how consumers tell the rest of the node how far they are.

use event_listener::Event;
use nacre_types::{Seqno, Vbid};
use std::sync::atomic::{AtomicU64, Ordering};

/// One seqno a vBucket, with waiters.
#[derive(Debug)]
pub struct Watermarks {
    seqnos: Box<[AtomicU64]>,
    moved: Event,
}

impl Watermarks {
    /// All at zero.
    pub fn new(vbucket_count: usize) -> Watermarks {
        Watermarks {
            seqnos: (0..vbucket_count).map(|_| AtomicU64::new(0)).collect(),
            moved: Event::new(),
        }
    }

    /// Where `vbid` stands.
    pub fn get(&self, vbid: Vbid) -> Seqno {
        Seqno(self.seqnos[vbid.index()].load(Ordering::Acquire))
    }

    /// Raises the watermark of `vbid`; a lower number is ignored. Waiters learn of it by [`Watermarks::publish`].
    pub fn raise(&self, vbid: Vbid, seqno: Seqno) {
        self.seqnos[vbid.index()].fetch_max(seqno.0, Ordering::AcqRel);
    }

    /// Lets waiters look again.
    pub fn publish(&self) {
        self.moved.notify(usize::MAX);
    }

    /// Ends when waiters are to look again; from when this is called, not from when it is awaited.
    pub fn moved(&self) -> impl Future<Output = ()> + use<> {
        self.moved.listen()
    }

    /// Sets the watermark of `vbid` back, as after a rollback.
    pub fn reset(&self, vbid: Vbid, seqno: Seqno) {
        self.seqnos[vbid.index()].store(seqno.0, Ordering::Release);
    }

    /// Waits until `vbid` has reached `seqno`, or `ended` says that it never will.
    pub async fn reached(&self, vbid: Vbid, seqno: Seqno, ended: impl Fn() -> bool) -> bool {
        loop {
            // Before looking, so that a publish in between is not missed.
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
