//! Failover: other nodes take over the vBuckets of lost nodes.

use super::poll::Poll;
use super::{Effect, LEASE_NS, MS, Orchestrator, Standing, needs_leases};
use crate::{Chain, Change, Cluster, Membership, NodeChange};
use nacre_types::NodeId;
use std::collections::{BTreeMap, BTreeSet};

/// The longest time that the leader assumes for a lease: clock speeds may differ by a fifth.
const LEASE_KEPT_NS: u64 = LEASE_NS + LEASE_NS / 5;

impl Orchestrator {
    /// Returns the nodes with a current or future share that were silent for too long.
    fn silent(&self, cluster: &Cluster, now: u64) -> BTreeSet<NodeId> {
        let timeout = cluster.auto_failover.timeout_ms * MS;
        let is_silent = |node: &NodeId| {
            self.last_contact
                .get(node)
                .is_none_or(|last_contact| now.saturating_sub(*last_contact) > timeout)
        };
        // The destination of a move counts as well, although it has no share yet.
        let chains = cluster.buckets.values().flat_map(|bucket| &bucket.chains);
        let targets = chains.flat_map(|chain| chain.next.iter().flatten().copied());
        cluster.active_nodes().into_iter().chain(targets).filter(is_silent).collect()
    }

    /// Returns the nodes to fail over: those that an operator has named, those in an undecided proposal, and the `silent` ones
    /// if all of these may be lost together.
    fn lost(&self, cluster: &Cluster, silent: &BTreeSet<NodeId>) -> BTreeSet<NodeId> {
        // An undecided proposal may still be accepted. Until then its nodes are not followed, and nothing else is
        // decided about them.
        let named = cluster.failing_over.iter().chain(&self.proposed).copied();
        let lost: BTreeSet<NodeId> =
            named.filter(|node| cluster.nodes.contains_key(node)).collect();
        let settings = &cluster.auto_failover;
        if !settings.enabled || silent.is_subset(&lost) {
            return lost;
        }
        let room = settings.count_max.saturating_sub(settings.count);
        let gone: BTreeSet<NodeId> = lost.union(silent).copied().collect();
        if silent.union(&self.proposed).count() <= room
            && gone.len() * 2 < cluster.nodes.len()
            && self.spares(cluster, &gone)
        {
            return gone;
        }
        lost
    }

    /// Returns true if all acknowledged durable writes also exist on other nodes, unless another copy fails: for each
    /// vBucket, either the active copy stays and is not in doubt, or fewer than a majority of the copies are lost.
    fn spares(&self, cluster: &Cluster, gone: &BTreeSet<NodeId>) -> bool {
        cluster.buckets.iter().all(|(name, bucket)| {
            (0_u16..).zip(&bucket.chains).all(|(vbid, chain)| {
                let copies = || chain.copies.iter().flatten();
                let Some(active) = chain.active() else { return true };
                let is_sure = !gone.contains(&active) && !self.is_in_doubt(active, name, vbid);
                if is_sure || !copies().any(|node| gone.contains(node)) {
                    return true;
                }
                let lost = copies().filter(|node| gone.contains(node) || **node == active).count();
                lost < copies().count() && lost < chain.copies.len() / 2 + 1
            })
        })
    }

    fn is_in_doubt(&self, node: NodeId, bucket: &str, vbid: u16) -> bool {
        let in_doubt = self.in_doubt.get(&node).and_then(|in_doubt| in_doubt.get(bucket));
        in_doubt.is_some_and(|in_doubt| in_doubt.contains(&vbid))
    }

    /// Proposes that other copies take over the vBuckets of lost nodes and of active copies in doubt.
    pub(super) fn replace_lost(
        &mut self,
        cluster: &Cluster,
        since: u64,
        now: u64,
        effects: &mut Vec<Effect>,
    ) {
        let silent = self.silent(cluster, now);
        let lost = self.lost(cluster, &silent);
        self.fence(&lost, cluster, now);
        if !self.proposed.is_empty() && !silent.is_subset(&lost) {
            // Whether the silent nodes may be failed over depends on the outcome of the undecided proposal. Any later
            // decision reveals it, so propose one.
            self.failover = None;
            effects.push(Effect::Propose(Change::Nodes(NodeChange::RenewMap)));
            return;
        }
        if lost.is_empty() && self.in_doubt.values().all(BTreeMap::is_empty) {
            self.failover = None;
            return;
        }
        let mut wanted: BTreeMap<String, BTreeSet<u16>> = BTreeMap::new();
        for (name, bucket) in &cluster.buckets {
            let concerned = (0_u16..).zip(&bucket.chains).filter(|(vbid, chain)| {
                lost.iter().any(|node| chain.involves(*node))
                    || chain.active().is_some_and(|active| self.is_in_doubt(active, name, *vbid))
            });
            let concerned: BTreeSet<u16> = concerned.map(|(vbid, _)| vbid).collect();
            if !concerned.is_empty() {
                wanted.insert(name.clone(), concerned);
            }
        }
        if wanted.is_empty() && lost.is_empty() {
            self.failover = None;
            return;
        }
        let is_same = |poll: &Poll| poll.lost == lost && poll.wanted == wanted;
        if !self.failover.as_ref().is_some_and(is_same) {
            self.failover = Some(self.poll(cluster, lost.clone(), wanted.clone()));
        }
        let Some(poll) = &mut self.failover else { return };
        poll.send(&self.fence, now, effects);
        let lease_ends = |node: &NodeId| {
            let granted = self.granted.get(node).copied().unwrap_or(0).max(since);
            granted + LEASE_KEPT_NS
        };
        let leased = needs_leases(cluster) && lost.iter().any(|node| lease_ends(node) > now);
        if !poll.is_answered() || leased {
            return;
        }
        let is_ordered = lost.iter().all(|node| cluster.failing_over.contains(node));
        let mut chains = BTreeMap::new();
        for (name, vbids) in &poll.wanted {
            let Some(bucket) = cluster.buckets.get(name) else { continue };
            let has_all = |vbid: &u16| {
                let chain = &bucket.chains[usize::from(*vbid)];
                let left = chain.copies.iter().flatten().filter(|node| !lost.contains(node));
                let terms =
                    left.filter_map(|node| poll.standing(*node, name, *vbid)).map(|s| s.term);
                terms.max().is_none_or(|term| term >= chain.term)
            };
            // An active copy that is replaced must not serve concurrently with its successor.
            let is_settled = |vbid: &u16| {
                let chain = &bucket.chains[usize::from(*vbid)];
                let active = chain.active().filter(|node| !lost.contains(node));
                active.is_none_or(|node| match poll.standing(node, name, *vbid) {
                    Some(standing) => !standing.rests || standing.is_at_rest(chain),
                    None => poll.knows(node, cluster.rev),
                })
            };
            if !is_ordered && !vbids.iter().all(has_all) || !vbids.iter().all(is_settled) {
                // The reports are outdated by the next tick.
                self.failover = None;
                return;
            }
            let moved = vbids.iter().filter_map(|vbid| {
                let chain = bucket.chains.get(usize::from(*vbid))?;
                Some((*vbid, replaced(chain, &lost, poll, name, *vbid)))
            });
            chains.insert(name.clone(), moved.collect());
        }
        let memberships = lost.iter().map(|node| (*node, Membership::FailedOver)).collect();
        // Kept until the outcome is known: the proposal may be accepted later, and its nodes must stay fenced until
        // then.
        self.proposed = lost;
        effects
            .push(Effect::Propose(Change::Nodes(NodeChange::MoveCopies { memberships, chains })));
        self.failover = None;
        self.in_doubt.clear();
    }
}

/// Returns the chain without lost nodes: the best remaining copy becomes active, under a new term.
fn replaced(chain: &Chain, lost: &BTreeSet<NodeId>, poll: &Poll, name: &str, vbid: u16) -> Chain {
    let all: Vec<NodeId> = lost.iter().copied().collect();
    let serves = |node: &NodeId| {
        let standing = poll.standing(*node, name, vbid);
        !lost.contains(node) && standing.is_some_and(|standing| !standing.rests)
    };
    let active = chain.active().filter(serves);
    let best = active.or_else(|| {
        let left = chain.copies.iter().flatten().copied().filter(|node| !lost.contains(node));
        // Reversed, because `max_by_key` returns the last of equal copies, and the first in the chain should win.
        left.rev().max_by_key(|node| poll.standing(*node, name, vbid).map(Standing::rank))
    });
    let mut replaced = chain.without(&all, best);
    if active.is_none() {
        // A new branch of history, even on the same node.
        replaced.term = chain.term + 1;
        replaced.chosen = poll.chosen(best, name, vbid);
    }
    replaced
}
