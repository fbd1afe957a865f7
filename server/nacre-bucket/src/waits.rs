//! Parked requests of a bucket: they wait for the store, for a durable write, or for the end of a hand-over.

use crate::{Ticket, Waiter};
use nacre_types::{Now, Seqno, Vbid};
use nacre_vbucket::{Completion, Token};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

type Durable = BTreeMap<(Vbid, Seqno), Arc<Ticket<Option<Token>>>>;
type Persistence = BTreeMap<(Vbid, Seqno), Vec<Arc<Ticket<bool>>>>;
/// Each ticket with the monotonic nanoseconds at which its wait began.
type HandOvers = BTreeMap<Vbid, Vec<(u64, Arc<Ticket<bool>>)>>;

/// Maximum number of requests that wait for the hand-over of one vBucket.
const HAND_OVER_WAITING_MAX: usize = 4096;

/// Maximum wait for a hand-over in nanoseconds: as long as a vBucket may refuse writes.
const HAND_OVER_PATIENCE_NS: u64 = 1_000_000_000;

#[derive(Default)]
pub(crate) struct Waits {
    /// Keyed by the seqno of the prepare.
    durable: Mutex<Durable>,
    persistence: Mutex<Persistence>,
    /// Number of entries in `persistence`, so that the flusher need not take the lock when it is empty.
    persistence_count: AtomicUsize,
    /// The vBuckets that are handed over to or from this node, or are in doubt.
    hand_overs: Mutex<HandOvers>,
}

impl Waits {
    /// Adds a durable write. Returns its ticket, and whether it is the only one in progress.
    pub fn durable(
        &self,
        vbid: Vbid,
        prepare: Seqno,
        waiter: &Arc<dyn Waiter>,
    ) -> (Arc<Ticket<Option<Token>>>, bool) {
        let ticket = Ticket::new(waiter);
        let mut durable = self.durable.lock();
        let first = durable.is_empty();
        durable.insert((vbid, prepare), Arc::clone(&ticket));
        (ticket, first)
    }

    fn has_durable(&self) -> bool {
        !self.durable.lock().is_empty()
    }

    /// Settles the tickets of completed durable writes.
    pub fn complete(&self, vbid: Vbid, completions: &[Completion]) {
        let mut durable = self.durable.lock();
        for completion in completions {
            if let Some(ticket) = durable.remove(&(vbid, completion.prepare)) {
                ticket.settle(completion.commit);
            }
        }
    }

    /// Returns a ticket that is settled once `seqno` is persisted.
    pub fn persistence(
        &self,
        vbid: Vbid,
        seqno: Seqno,
        waiter: &Arc<dyn Waiter>,
    ) -> Arc<Ticket<bool>> {
        let ticket = Ticket::new(waiter);
        let mut persistence = self.persistence.lock();
        persistence.entry((vbid, seqno)).or_default().push(Arc::clone(&ticket));
        self.persistence_count.store(persistence.len(), Ordering::Release);
        ticket
    }

    /// Settles the tickets of the seqnos persisted so far.
    pub fn persisted(&self, vbid: Vbid, seqno: Seqno) {
        if self.persistence_count.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut persistence = self.persistence.lock();
        let reached: Vec<_> =
            persistence.range((vbid, Seqno::ZERO)..=(vbid, seqno)).map(|(key, _)| *key).collect();
        for key in reached {
            for ticket in persistence.remove(&key).into_iter().flatten() {
                ticket.settle(true);
            }
        }
        self.persistence_count.store(persistence.len(), Ordering::Release);
    }

    /// Records that the hand-over of these vBuckets has begun and that no node serves them.
    pub fn begin_hand_overs(&self, vbids: &BTreeSet<Vbid>) {
        let mut hand_overs = self.hand_overs.lock();
        for vbid in vbids {
            hand_overs.entry(*vbid).or_default();
        }
    }

    /// Settles the waits for all vBuckets except `but`: their requests may be retried.
    pub fn end_hand_overs(&self, but: &BTreeSet<Vbid>) {
        let mut hand_overs = self.hand_overs.lock();
        for (_, waiting) in hand_overs.extract_if(.., |vbid, _| !but.contains(vbid)) {
            waiting.iter().for_each(|(_, ticket)| ticket.settle(true));
        }
    }

    /// Returns a ticket for the end of a hand-over, and whether it is the first. `None` when the vBucket is not handed
    /// over, or too many requests wait.
    pub fn hand_over(
        &self,
        vbid: Vbid,
        now_ns: u64,
        waiter: &Arc<dyn Waiter>,
    ) -> Option<(Arc<Ticket<bool>>, bool)> {
        let mut hand_overs = self.hand_overs.lock();
        let waiting = hand_overs.get_mut(&vbid)?;
        if waiting.len() >= HAND_OVER_WAITING_MAX {
            return None;
        }
        let (ticket, first) = (Ticket::new(waiter), waiting.is_empty());
        waiting.push((now_ns, Arc::clone(&ticket)));
        Some((ticket, first))
    }

    fn has_hand_overs(&self) -> bool {
        self.hand_overs.lock().values().any(|waiting| !waiting.is_empty())
    }

    /// Ends the waits for a hand-over that exceed [`HAND_OVER_PATIENCE_NS`].
    pub fn give_up_hand_overs(&self, now: Now) {
        let before_ns = now.monotonic_ns.saturating_sub(HAND_OVER_PATIENCE_NS);
        for waiting in self.hand_overs.lock().values_mut() {
            let old = waiting.extract_if(.., |(since_ns, _)| *since_ns < before_ns);
            old.for_each(|(_, ticket)| ticket.settle(false));
        }
    }

    /// Settles the waits for vBuckets that can no longer be persisted. Their prepares may be found after a restart, so
    /// durable writes end as ambiguous.
    pub fn give_up(&self, vbids: &[Vbid]) {
        for vbid in vbids {
            let all = (*vbid, Seqno::ZERO)..=(*vbid, Seqno(u64::MAX));
            for (_, ticket) in self.durable.lock().extract_if(all.clone(), |_, _| true) {
                ticket.settle(None);
            }
            let mut persistence = self.persistence.lock();
            for (_, tickets) in persistence.extract_if(all, |_, _| true) {
                tickets.iter().for_each(|ticket| ticket.settle(false));
            }
            self.persistence_count.store(persistence.len(), Ordering::Release);
        }
    }

    /// Settles all waits because the bucket has ended.
    pub fn end(&self) {
        for ticket in std::mem::take(&mut *self.durable.lock()).into_values() {
            ticket.settle(None);
        }
        for ticket in std::mem::take(&mut *self.persistence.lock()).into_values().flatten() {
            ticket.settle(false);
        }
        for (_, ticket) in std::mem::take(&mut *self.hand_overs.lock()).into_values().flatten() {
            ticket.settle(false);
        }
    }

    /// Returns true if a wait has a deadline: a durable write, or a request for a vBucket in hand-over.
    pub fn has_deadlines(&self) -> bool {
        self.has_durable() || self.has_hand_overs()
    }
}
