//! The copies of a bucket's vBuckets on this node: the state of each, and history that comes from other nodes.

use crate::{Bucket, Ticket, Waiter};
use nacre_cluster::Chain;
use nacre_store::Error;
use nacre_types::{Document, NodeId, Now, Seqno, VbState, VbUuid, Vbid};
use nacre_vbucket::{OutOfOrder, Vbucket};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::AcqRel;

/// How long durable writes under way may take to complete after their vBucket is held for a hand-over, in
/// nanoseconds. Half of what the leader waits for, so that most clients learn the outcome.
const HOLD_COMPLETES_NS: u64 = 500_000_000;

/// Retention policy for copies that are removed from this node. A node that was failed over may be recovered, and is then sent only
/// what it has missed. The default deletes all of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct CopyRetention {
    /// Copies that are removed from now on keep their history.
    pub keeps_lost: bool,
    /// Copies that were removed before keep it still.
    pub keeps_dead: bool,
}

impl CopyRetention {
    /// Returns true if a vBucket that has no place on this node keeps its history.
    fn holds(self, vbucket: &Vbucket) -> bool {
        match vbucket.state() {
            VbState::Dead => self.keeps_dead,
            _ => self.keeps_lost,
        }
    }
}

/// Gives a vBucket the state that its chain says for node `me`. Returns true if the state or term has changed.
/// `vb_uuid` names the branch of history that begins if the vBucket becomes active or empty.
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
        // Other nodes decide whether this copy is good enough.
        VbState::Active if vbucket.doubted() >= Some(chain.term) => {}
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

/// Returns true if the active copy of `chain` has what the orchestrator assumed when it chose it: at least the same
/// history, or no doubt about its own where it was to go on.
fn is_as_chosen(vbucket: &Vbucket, chain: &Chain) -> bool {
    let Some(chosen) = chain.chosen else { return vbucket.doubted().is_none() };
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
    /// Gives each vBucket whose chain differs from the one in `before` its state on node `me`, and deletes the copies
    /// that `keep` does not retain any longer.
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
            let (mut is_new, mut completes, mut begins_anew) = (false, false, false);
            self.complete(vbid, |vbucket| {
                let generation = vbucket.generation();
                is_new = arrange(vbucket, chain, me, keep, vb_uuid(), now);
                completes = vbucket.makes_history();
                begins_anew = vbucket.generation() != generation;
                match vbucket.doubted() {
                    Some(_) => self.doubted.write().insert(vbid),
                    None => self.doubted.write().remove(&vbid),
                };
                if is_new {
                    // Counted under the lock of the vBucket: a reader that sees the new state sees the new count.
                    self.arrangements.fetch_add(1, AcqRel);
                }
                // The copies may already have what the new chain requires.
                vbucket.complete(now)
            });
            if begins_anew {
                self.persisted.reset(vbid, Seqno::ZERO);
            }
            if is_new {
                if !completes {
                    self.waits.give_up(&[vbid]);
                }
                self.mark_dirty(vbid);
            }
        }
        // A vBucket in doubt is about to be served too, here or by another node.
        handed_over.extend(self.doubted.read().iter());
        self.waits.begin_hand_overs(&handed_over);
        self.waits.end_hand_overs(&handed_over);
        self.wake_listeners();
    }

    /// Returns a ticket for the end of a hand-over or of a doubt. It holds true if the request may be tried again.
    /// `None` when the vBucket is neither handed over nor in doubt, or too many requests wait.
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

    /// Discards the history of a replica, so that it can take over another one.
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

    /// Notes that the copy of `vbid` on `node` has the history up to `seqno`.
    pub fn acknowledge(&self, vbid: Vbid, node: NodeId, seqno: Seqno, now: Now) {
        self.complete(vbid, |vbucket| {
            vbucket.acknowledge(node, seqno);
            vbucket.complete(now)
        });
        self.wake_listeners();
    }

    /// Takes in history that the active copy of `vbid` has sent to the copy of that `generation`; see
    /// [`Vbucket::receive`].
    ///
    /// # Errors
    /// Fails when the documents do not continue the local history, or an evicted document cannot be read.
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

    /// Reads back evicted documents that are about to be replaced, because the vBucket counts them.
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

/// Why history from another node was not taken in.
#[derive(Debug)]
pub enum ReceiveError {
    /// It does not continue the local history.
    OutOfOrder,
    /// The store cannot be read.
    Store(Error),
}
