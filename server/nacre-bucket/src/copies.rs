//! The copies of a bucket's vBuckets on this node: the part that each has, and history that comes from other nodes.

use crate::{Bucket, Ticket, Waiter};
use nacre_cluster::Chain;
use nacre_store::Error;
use nacre_types::{Document, NodeId, Now, Seqno, VbState, VbUuid, Vbid};
use nacre_vbucket::{OutOfOrder, Vbucket};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::AcqRel;

/// How long durable writes that were under way when their vBucket was held may take to end there: their clients need not be
/// told that nobody knows. Half of what the leader waits for.
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
    /// Whether a vBucket that has no part here keeps its history.
    fn holds(self, vbucket: &Vbucket) -> bool {
        match vbucket.state() {
            VbState::Dead => self.keeps_dead,
            _ => self.keeps_lost,
        }
    }
}

/// Gives a vBucket the part that its chain has for node `me`. Says whether that is another than before. `vb_uuid` names the
/// branch of history that begins if it becomes the active copy, or begins anew.
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
        // It is for others to say whether this copy is good enough.
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

/// Whether the active copy of `chain` is what those who have decided about that took it for: with as much as when it was chosen,
/// or sure of itself where it was to go on.
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

/// Whether a vBucket is about to be served by another node instead of `me`, or the other way round.
fn is_handed_over(chain: &Chain, me: NodeId) -> bool {
    chain.held && [chain.active(), chain.next_active()].contains(&Some(me))
}

impl Bucket {
    /// Gives each vBucket whose chain is not as `before` the part that this has for node `me`; and those that are not to be kept
    /// any longer.
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
                    // Under its lock: who reads what it has from now on finds it counted.
                    self.arrangements.fetch_add(1, AcqRel);
                }
                // Another chain may be satisfied with what the copies have.
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
        // What is in doubt is about to be served as well, here or elsewhere.
        handed_over.extend(self.doubted.read().iter());
        self.waits.begin_hand_overs(&handed_over);
        self.waits.end_hand_overs(&handed_over);
        self.wake_listeners();
    }

    /// A ticket for a vBucket being handed over, or in doubt, if it is: whether it may be asked again.
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

    /// Throws away the history of a copy, to take over another.
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

    /// The copy of `vbid` on `node` has everything up to `seqno`.
    pub fn acknowledge(&self, vbid: Vbid, node: NodeId, seqno: Seqno, now: Now) {
        self.complete(vbid, |vbucket| {
            vbucket.acknowledge(node, seqno);
            vbucket.complete(now)
        });
        self.wake_listeners();
    }

    /// Takes in what the active copy of `vbid` has told the copy of that `generation`; see [`Vbucket::receive`].
    ///
    /// # Errors
    /// When it does not continue what is here.
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

    /// Reads back what is about to be replaced, where keys may be in the store only: it is counted.
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

/// Why history from elsewhere was not taken in.
#[derive(Debug)]
pub enum ReceiveError {
    /// It does not continue what is here.
    OutOfOrder,
    /// What is here cannot be read.
    Store(Error),
}
