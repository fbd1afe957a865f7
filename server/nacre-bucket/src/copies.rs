//! The vBucket copies on this node: their states, and history received from other nodes.

use crate::{Bucket, Ticket, Waiter};
use nacre_cluster::Chain;
use nacre_store::Error;
use nacre_types::{Document, NodeId, Now, Seqno, VbState, VbUuid, Vbid};
use nacre_vbucket::{OutOfOrder, Vbucket};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::AcqRel;

/// How long durable writes in progress may take to complete once their vBucket is held for a hand-over, in nanoseconds:
/// half of the leader's wait, so that most clients learn the outcome.
const HOLD_COMPLETES_NS: u64 = 500_000_000;

/// Retention policy for copies that are removed from this node. A node that was failed over may be recovered; if it has kept its
/// copies, it is sent only the history that it lacks. The default deletes all removed copies.
#[derive(Clone, Copy, Debug, Default)]
pub struct CopyRetention {
    /// Copies that are removed from now on keep their history.
    pub keeps_lost: bool,
    /// Copies that were removed earlier keep their history.
    pub keeps_dead: bool,
}

impl CopyRetention {
    /// Returns true if a vBucket without a place on this node keeps its history.
    fn holds(self, vbucket: &Vbucket) -> bool {
        match vbucket.state() {
            VbState::Dead => self.keeps_dead,
            _ => self.keeps_lost,
        }
    }
}

/// Sets the state of a vBucket that its chain assigns to node `me`. Returns true if the state or term has changed.
/// `vb_uuid` identifies the branch of history that begins if the vBucket becomes active or empty.
pub fn arrange(
    vbucket: &mut Vbucket,
    chain: &Chain,
    me: NodeId,
    keep: CopyRetention,
    vb_uuid: VbUuid,
    now: Now,
) -> bool {
    let part = part_of(chain, me);
    let chains = [&chain.copies, &chain.next];
    let chains = chains.into_iter().filter(|copies| !copies.is_empty()).cloned().collect();
    vbucket.set_copies(chains, me);
    let before = (vbucket.state(), vbucket.term());
    match part {
        VbState::Active if vbucket.state() == part && vbucket.term() >= chain.term => {}
        // The other nodes decide whether this copy is good enough.
        VbState::Active if vbucket.in_doubt_term() >= Some(chain.term) => {}
        VbState::Active if !is_as_chosen(vbucket, chain) => vbucket.mark_in_doubt(chain.term),
        VbState::Active => vbucket.activate(chain.term, vb_uuid),
        VbState::Dead if has_history(vbucket) && !keep.holds(vbucket) => {
            vbucket.clear(part, vb_uuid)
        }
        VbState::Pending => vbucket.hold(now.monotonic_ns + HOLD_COMPLETES_NS),
        part => vbucket.deactivate(part),
    }
    before != (vbucket.state(), vbucket.term())
}

/// Returns true if the active copy of `chain` has at least the history that the orchestrator assumed when it chose the
/// copy. A copy chosen without such an assumption must not be in doubt.
fn is_as_chosen(vbucket: &Vbucket, chain: &Chain) -> bool {
    let Some(chosen) = chain.chosen else { return vbucket.in_doubt_term().is_none() };
    vbucket.term() >= chosen.term && vbucket.high_seqno().0 >= chosen.high_seqno
}

fn has_history(vbucket: &Vbucket) -> bool {
    vbucket.high_seqno() > Seqno::ZERO
}

fn part_of(chain: &Chain, me: NodeId) -> VbState {
    match chain.active() {
        Some(active) if active == me && chain.held => VbState::Pending,
        Some(active) if active == me => VbState::Active,
        _ if chain.involves(me) => VbState::Replica,
        _ => VbState::Dead,
    }
}

/// Returns true if a vBucket is being handed over to or from node `me`.
fn is_handed_over(chain: &Chain, me: NodeId) -> bool {
    chain.held && [chain.active(), chain.next_active()].contains(&Some(me))
}

impl Bucket {
    /// Sets the state of each vBucket whose chain on node `me` differs from that in `before`, and deletes the copies
    /// that `keep` no longer retains.
    pub fn arrange(
        &self,
        before: &[Chain],
        chains: &[Chain],
        me: NodeId,
        keep: CopyRetention,
        mut vb_uuid: impl FnMut() -> VbUuid,
        now: Now,
    ) {
        let of = |(vbid, chain): (Vbid, &Chain)| is_handed_over(chain, me).then_some(vbid);
        let mut handed_over: BTreeSet<Vbid> =
            (0..self.vbucket_count()).map(Vbid).zip(chains).filter_map(of).collect();
        self.waits.begin_hand_overs(&handed_over);
        for (vbid, chain) in (0..self.vbucket_count()).map(Vbid).zip(chains) {
            let is_left_over = |copy: &Vbucket| copy.state() == VbState::Dead && has_history(copy);
            if before.get(vbid.index()) == Some(chain)
                && (keep.keeps_dead || !self.vbucket(vbid).is_some_and(|copy| is_left_over(&copy)))
            {
                continue;
            }
            let (mut is_new, mut completes, mut restarts) = (false, false, false);
            self.complete(vbid, |vbucket| {
                let generation = vbucket.generation();
                is_new = arrange(vbucket, chain, me, keep, vb_uuid(), now);
                completes = vbucket.makes_history();
                restarts = vbucket.generation() != generation;
                match vbucket.in_doubt_term() {
                    Some(_) => self.in_doubt.write().insert(vbid),
                    None => self.in_doubt.write().remove(&vbid),
                };
                if is_new {
                    // Incremented under the vBucket's lock: a reader that sees the new state also sees the new count.
                    self.arrangements.fetch_add(1, AcqRel);
                }
                // The copies may already satisfy the durable writes under the new chain.
                vbucket.complete(now)
            });
            if restarts {
                self.persisted.reset(vbid, Seqno::ZERO);
            }
            if is_new {
                if !completes {
                    self.waits.give_up(&[vbid]);
                }
                self.mark_dirty(vbid);
            }
        }
        // A vBucket in doubt will soon be served as well, here or on another node.
        handed_over.extend(self.in_doubt.read().iter());
        self.waits.begin_hand_overs(&handed_over);
        self.waits.end_hand_overs(&handed_over);
        self.wake_listeners();
    }

    /// Returns a ticket for the end of a hand-over or of a doubt. It holds true if the request may be retried. `None`
    /// when the vBucket is neither handed over nor in doubt, or too many requests are waiting.
    pub(crate) fn when_handed_over(
        &self,
        vbid: Vbid,
        now: Now,
        waiter: &Arc<dyn Waiter>,
    ) -> Option<Arc<Ticket<bool>>> {
        let (ticket, first) = self.waits.hand_over(vbid, now.monotonic_ns, waiter)?;
        if first {
            self.keeper.wake();
        }
        Some(ticket)
    }

    /// Discards the history of a replica, so that it can receive another one.
    pub fn discard_history(&self, vbid: Vbid, vb_uuid: VbUuid) {
        self.change(vbid, |vbucket| {
            if vbucket.state() == VbState::Replica {
                vbucket.clear(VbState::Replica, vb_uuid);
            }
        });
        self.persisted.reset(vbid, Seqno::ZERO);
        self.mark_dirty(vbid);
        self.wake_listeners();
    }

    /// Records that the copy of `vbid` on `node` has the history up to `seqno`.
    pub fn acknowledge(&self, vbid: Vbid, node: NodeId, seqno: Seqno, now: Now) {
        self.complete(vbid, |vbucket| {
            vbucket.acknowledge(node, seqno);
            vbucket.complete(now)
        });
        self.wake_listeners();
    }

    /// Appends history that the active copy of `vbid` has sent to the local copy of that `generation`; see
    /// [`Vbucket::receive`].
    ///
    /// # Errors
    /// Fails when the documents do not continue the local history, or when an evicted document cannot be read.
    pub fn receive(
        &self,
        vbid: Vbid,
        generation: Option<u32>,
        documents: Vec<Document>,
        seqno: Seqno,
        snapshot: (Seqno, Seqno),
    ) -> Result<(), ReceiveError> {
        self.fetch_evicted(vbid, &documents)?;
        let dropped = documents.iter().filter_map(crate::events::dropped_by).collect::<Vec<_>>();
        let received = self.change(vbid, |vbucket| {
            if generation != Some(vbucket.generation()) {
                return Err(OutOfOrder);
            }
            vbucket.receive(documents, seqno, snapshot)?;
            for collection in &dropped {
                vbucket.erase_collection(*collection);
            }
            Ok(())
        });
        received.unwrap_or(Err(OutOfOrder)).map_err(|OutOfOrder| ReceiveError::OutOfOrder)?;
        self.forget_stored(&dropped);
        self.mark_dirty(vbid);
        Ok(())
    }

    /// Reads back evicted documents that are about to be replaced: the vBucket's counters need them.
    fn fetch_evicted(&self, vbid: Vbid, documents: &[Document]) -> Result<(), ReceiveError> {
        if !self.vbucket(vbid).is_some_and(|vbucket| vbucket.has_evicted_keys()) {
            return Ok(());
        }
        for document in documents {
            if self.vbucket(vbid).is_some_and(|vbucket| vbucket.find(document.key()).is_none()) {
                self.fetch(vbid, document.key()).map_err(ReceiveError::Store)?;
            }
        }
        Ok(())
    }
}

/// The reason why history from another node was refused.
#[derive(Debug)]
pub enum ReceiveError {
    /// The history does not continue the local history.
    OutOfOrder,
    /// The store cannot be read.
    Store(Error),
}
