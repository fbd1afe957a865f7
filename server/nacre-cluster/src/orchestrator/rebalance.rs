//! Rebalance: moves copies to their destinations step by step.

use super::poll::Poll;
use super::{Effect, MS, Orchestrator, Standing};
use crate::{Chain, Change, Cluster, Copies, Membership, NodeChange, place};
use nacre_types::NodeId;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of a bucket's vBuckets that receive new copies concurrently in a rebalance.
pub const MOVES_MAX: usize = 64;
/// Pause before the next moves. It leaves processor time for requests, and gives clients time to adopt each map.
const MOVES_PAUSE_NS: u64 = 100 * MS;
/// Maximum number of a bucket's vBuckets that change their active copy concurrently in a rebalance.
pub(super) const HAND_OVERS_MAX: usize = MOVES_MAX / 2;
/// Maximum time for which a hand-over may block writers.
pub(super) const HOLD_NS_MAX: u64 = 1000 * MS;
/// Pause for writers after a hand-over that took too long.
const HOLD_AGAIN_NS: u64 = 5000 * MS;
/// Maximum lag of a copy in seqnos that counts as caught up while the active copy accepts writes.
const LAG_MAX: u64 = 256;

/// The state of a vBucket's hand-over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// Held since this time: no node accepts writes.
    Since(u64),
    /// The last hold took too long; the next one begins at this time at the earliest.
    Again(u64),
}

impl Hold {
    fn is_too_long(self, now: u64) -> bool {
        matches!(self, Hold::Since(since) if now.saturating_sub(since) >= HOLD_NS_MAX)
    }

    fn is_due(self, now: u64) -> bool {
        matches!(self, Hold::Again(at) if now >= at)
    }
}

/// Number of moves of each node, and its maximum.
struct NodeLoad {
    moves: BTreeMap<NodeId, usize>,
    moves_max: Option<usize>,
}

impl NodeLoad {
    fn of(chains: &[Chain], moves_max: Option<usize>) -> NodeLoad {
        let mut load = NodeLoad { moves: BTreeMap::new(), moves_max };
        for chain in chains.iter().filter(|chain| !chain.next.is_empty()) {
            for node in NodeLoad::nodes(chain, &chain.next) {
                *load.moves.entry(node).or_default() += 1;
            }
        }
        load
    }

    /// Adds a move of `chain` to `target`. Returns false without adding it if a node has reached its maximum.
    fn add(&mut self, chain: &Chain, target: &Copies) -> bool {
        let nodes = NodeLoad::nodes(chain, target);
        let is_full = |node: &NodeId| {
            let moves = self.moves.get(node).copied().unwrap_or_default();
            self.moves_max.is_some_and(|most| moves >= most)
        };
        if nodes.iter().any(is_full) {
            return false;
        }
        nodes.into_iter().for_each(|node| *self.moves.entry(node).or_default() += 1);
        true
    }

    /// Returns the sender and the receivers of a move.
    fn nodes(chain: &Chain, target: &Copies) -> BTreeSet<NodeId> {
        let is_new = |node: &NodeId| !chain.copies.contains(&Some(*node));
        target.iter().flatten().copied().filter(is_new).chain(chain.active()).collect()
    }
}

impl Orchestrator {
    /// Takes the next step of the rebalance, if one is running.
    pub(super) fn rebalance(&mut self, cluster: &Cluster, now: u64, effects: &mut Vec<Effect>) {
        let Some(wanted) = &cluster.rebalance else {
            self.moving = None;
            self.holds.clear();
            return;
        };
        let nodes = cluster.with_data(&wanted.keep);
        let target = |name: &str| -> Vec<Copies> {
            let bucket = &cluster.buckets[name];
            let current: Vec<Copies> =
                bucket.chains.iter().map(|chain| chain.copies.clone()).collect();
            let mut target = place(&current, &nodes, usize::from(bucket.settings.replicas));
            // Before any other move, a vBucket without an active copy is activated on the node that had it last.
            for (copies, chain) in target.iter_mut().zip(&bucket.chains) {
                let last = chain.last.filter(|node| nodes.contains_key(node));
                if let (Some(last), None) = (last, chain.active()) {
                    copies.fill(None);
                    copies[0] = Some(last);
                }
            }
            target
        };
        // Buckets move one after another.
        let unfinished = cluster.buckets.iter().find_map(|(name, bucket)| {
            let target = target(name);
            let differs = bucket.chains.iter().zip(&target).any(|(chain, target)| {
                chain.copies != *target || !chain.next.is_empty() || chain.held
            });
            differs.then_some((name, bucket, target))
        });
        let Some((name, bucket, target)) = unfinished else {
            self.moving = None;
            let part = |node: &NodeId| match node {
                _ if wanted.keep.contains(node) => Some((*node, Membership::Active)),
                _ if wanted.leaving.contains(node) => Some((*node, wanted.rest)),
                // The node has joined since; the next rebalance gives it a share.
                _ => None,
            };
            let memberships = cluster.nodes.keys().filter_map(part).collect();
            effects.push(Effect::Propose(Change::Nodes(NodeChange::EndRebalance { memberships })));
            return;
        };
        let moving: BTreeSet<u16> = (0_u16..)
            .zip(&bucket.chains)
            .filter(|(_, chain)| !chain.next.is_empty())
            .map(|(vbid, _)| vbid)
            .collect();
        let mut chains = BTreeMap::new();
        if self.move_at.0 != wanted.id {
            // Gives clients time to learn of new nodes and connect to them before the first vBucket is served there.
            self.move_at = (wanted.id.clone(), now + MOVES_PAUSE_NS);
        }
        if moving.len() < MOVES_MAX && now >= self.move_at.1 {
            self.move_at.1 = now + MOVES_PAUSE_NS;
            let mut load = NodeLoad::of(&bucket.chains, cluster.settings.moves_per_node);
            let waiting = (0_u16..).zip(bucket.chains.iter().zip(&target));
            let waiting = waiting.filter(|(_, (chain, target))| {
                chain.next.is_empty() && chain.copies != **target && load.add(chain, target)
            });
            for (vbid, (chain, target)) in waiting.take(MOVES_MAX - moving.len()) {
                chains.insert(vbid, Chain { next: target.clone(), ..chain.clone() });
            }
        }
        self.advance(cluster, name, &moving, now, &mut chains, effects);
        if !chains.is_empty() {
            let chains = BTreeMap::from([(name.clone(), chains)]);
            let memberships = BTreeMap::new();
            effects.push(Effect::Propose(Change::Nodes(NodeChange::MoveCopies {
                memberships,
                chains,
            })));
        }
    }

    /// Retries the failed rebalance once its time has come. A new leader waits as long as after the failure.
    pub(super) fn begin_again(&mut self, cluster: &Cluster, now: u64, effects: &mut Vec<Effect>) {
        let Some(pending) = cluster.pending_rebalance() else {
            self.retry_at = None;
            return;
        };
        let pause = cluster.retry_rebalance.after_s.saturating_mul(1000 * MS);
        let known = self.retry_at.take().filter(|(id, _)| *id == pending.id);
        let (id, due) = known.unwrap_or_else(|| (pending.id.clone(), now.saturating_add(pause)));
        if now >= due {
            effects.push(Effect::Propose(Change::Nodes(NodeChange::BeginAgain { id: id.clone() })));
        }
        self.retry_at = Some((id, due));
    }

    /// Completes the moves whose next copies have caught up.
    fn advance(
        &mut self,
        cluster: &Cluster,
        name: &str,
        moving: &BTreeSet<u16>,
        now: u64,
        chains: &mut BTreeMap<u16, Chain>,
        effects: &mut Vec<Effect>,
    ) {
        let bucket = &cluster.buckets[name];
        self.holds.retain(|(bucket, vbid), _| bucket == name && moving.contains(vbid));
        if moving.is_empty() {
            self.moving = None;
            return;
        }
        let wanted = BTreeMap::from([(name.to_owned(), moving.clone())]);
        if self.moving.as_ref().is_none_or(|poll| poll.wanted != wanted) {
            self.moving = Some(self.poll(cluster, BTreeSet::new(), wanted));
        }
        let Some(poll) = &mut self.moving else { return };
        poll.send(&self.fence, now, effects);
        let chain = |vbid: &u16| &bucket.chains[usize::from(*vbid)];
        let held = moving.iter().filter(|vbid| chain(vbid).held).count();
        let mut hand_overs = HAND_OVERS_MAX.saturating_sub(held);
        for vbid in moving {
            let chain = chain(vbid);
            let stays = chain.next_active() == chain.active();
            let has_all = is_caught_up(chain, poll, name, *vbid);
            let moved = Chain { copies: chain.next.clone(), ..Chain::default() };
            let hold = match (self.holds.get(&(name.to_owned(), *vbid)), chain.held) {
                (Some(Hold::Since(since)), true) => Hold::Since(*since),
                (_, true) => Hold::Since(now),
                (Some(Hold::Again(at)), false) => Hold::Again(*at),
                (_, false) => Hold::Again(0),
            };
            self.holds.insert((name.to_owned(), *vbid), hold);
            match (has_all, stays, chain.held) {
                (true, true, _) => {
                    let term = chain.term + u64::from(chain.drops_copies());
                    chains.insert(*vbid, Chain { term, ..moved });
                }
                // There are no more writes, and the next active copy has everything.
                (true, false, true) => {
                    let chosen = poll.chosen(chain.next_active(), name, *vbid);
                    chains.insert(*vbid, Chain { term: chain.term + 1, chosen, ..moved });
                }
                // The next copy is too slow: the active copy accepts writes again, on a new branch of history.
                (false, _, true) if hold.is_too_long(now) => {
                    self.holds.insert((name.to_owned(), *vbid), Hold::Again(now + HOLD_AGAIN_NS));
                    let mut released = chain.clone();
                    released.release();
                    chains.insert(*vbid, released);
                }
                (true, false, false) if hand_overs > 0 && hold.is_due(now) => {
                    hand_overs -= 1;
                    self.holds.insert((name.to_owned(), *vbid), Hold::Since(now));
                    chains.insert(*vbid, Chain { held: true, ..chain.clone() });
                }
                _ => {}
            }
        }
        if poll.is_answered() {
            // The reports are outdated by the next tick.
            self.moving = None;
        }
    }
}

/// Returns true if all future copies have everything that the active copy has.
fn is_caught_up(chain: &Chain, poll: &Poll, name: &str, vbid: u16) -> bool {
    let Some(active) = chain.active() else { return true };
    let Some(source) = poll.standing(active, name, vbid) else { return false };
    // The copy may have been held before and have made history again since; its report is then of an earlier term.
    if chain.held && (!source.rests || source.is_busy || source.term < chain.term) {
        return false;
    }
    // `from` bounds the writes that only the old copies had to acknowledge: once the new copies have those as well, the
    // old copies may be dropped.
    let Some(joint) = source.joint.as_ref().filter(|joint| joint.next == chain.next) else {
        return false;
    };
    // The next active copy must know of the hold, so that requests wait there, and must have persisted the writes that
    // count because the active copy has persisted them.
    let is_ready = |next: &Standing| next.is_known_held && next.persisted >= joint.stored;
    let next = chain.next_active().and_then(|next| poll.standing(next, name, vbid));
    if chain.held && !next.is_none_or(is_ready) {
        return false;
    }
    // Writers continue until the vBucket is held; only then the end of their writes is known.
    let lag = if chain.held { 0 } else { LAG_MAX };
    chain.next.iter().flatten().filter(|node| **node != active).all(|node| {
        poll.standing(*node, name, vbid).is_some_and(|copy| {
            copy.term >= chain.term
                && copy.high_seqno + lag >= source.high_seqno
                && copy.persisted >= joint.from
        })
    })
}
