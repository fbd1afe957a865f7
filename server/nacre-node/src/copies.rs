//! The copies of a bucket's vBuckets on this node: their roles, and the nodes that they follow.

use crate::node::Node;
use crate::replication::Follower;
use nacre_bucket::{Bucket, CopyRetention};
use nacre_cluster::orchestrator::{Fence, FenceEpoch, needs_leases};
use nacre_cluster::{Chain, Cluster, Membership};
use nacre_types::{NodeId, VbUuid};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::AcqRel;

/// Returns the retention policy of node `me` for copies that are removed from it.
pub(crate) fn retention_of(cluster: &Cluster, me: NodeId) -> CopyRetention {
    let part = cluster.nodes.get(&me).map(|member| member.membership);
    let is_out = matches!(part, Some(Membership::FailedOver | Membership::Added));
    // Other nodes take over its role without urgency.
    let goes_out = cluster.rebalance.as_ref().is_some_and(|rebalance| {
        rebalance.rest == Membership::FailedOver && rebalance.leaving.contains(&me)
    });
    let (keeps_lost, keeps_dead) = (is_out || goes_out, is_out || cluster.rebalance.is_some());
    CopyRetention { keeps_lost, keeps_dead }
}

/// The error for a leader's fence that arrived after a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutdatedFence;

/// The nodes that this node must not follow.
#[derive(Debug, Default)]
pub(crate) struct Fenced {
    /// The UUID of the cluster that the last fence belongs to, and the logical time of that fence.
    last: Option<(String, FenceEpoch)>,
    nodes: BTreeSet<NodeId>,
    /// Fence set that takes effect once the cluster revision is applied.
    later: Option<(u64, BTreeSet<NodeId>)>,
    /// The UUID of the cluster whose state this node has applied up to the revision of a fence at least once.
    known: Option<String>,
    /// True if no leader sends fences.
    is_without_fences: bool,
}

impl Fenced {
    /// Returns true if `peer` must not be followed. Before the first fence, and before all decisions up to that fence
    /// are known, this applies to every node that may have copies: the earlier process may have answered a poll, and a
    /// failover that relies on the answer may have been decided.
    pub fn excludes(&self, peer: NodeId, cluster: &Cluster) -> bool {
        let has_caught_up = self.known.as_ref() == Some(&cluster.uuid);
        let must_catch_up = needs_leases(cluster) && !self.is_without_fences;
        self.nodes.contains(&peer) || must_catch_up && !has_caught_up
    }

    /// Accepts a fence of a leader. Returns true if it is new.
    ///
    /// # Errors
    /// [`OutdatedFence`] when a later fence has arrived before; nothing has changed then.
    fn accept(&mut self, fence: &Fence, cluster: &Cluster) -> Result<bool, OutdatedFence> {
        let known = self.last.as_ref().filter(|(uuid, _)| *uuid == cluster.uuid);
        match known.map(|(_, known)| fence.epoch.cmp(known)) {
            Some(Ordering::Less) => return Err(OutdatedFence),
            Some(Ordering::Equal) => return Ok(false),
            Some(Ordering::Greater) | None => {}
        }
        self.last = Some((cluster.uuid.clone(), fence.epoch));
        // New fences take effect at once. Earlier ones are lifted only in `learn`, when the agreed state has caught up
        // with the leader's.
        self.nodes.extend(&fence.lost);
        self.later = Some((fence.rev, fence.lost.clone()));
        Ok(true)
    }

    /// Lifts fences that `cluster` makes obsolete. Returns true if this changes anything.
    fn learn(&mut self, cluster: &Cluster) -> bool {
        let Some((_, lost)) = self.later.take_if(|(rev, _)| *rev <= cluster.rev) else {
            return false;
        };
        let (nodes, known) = (lost, self.last.as_ref().map(|(uuid, _)| uuid.clone()));
        let is_news = (&nodes, &known) != (&self.nodes, &self.known);
        (self.nodes, self.known) = (nodes, known);
        is_news
    }
}

impl Node {
    /// Sets the roles of a bucket's vBuckets on this node according to their chains. Skips chains that equal those in
    /// `before`.
    pub(crate) fn arrange(&self, before: &[Chain], config: &nacre_cluster::Bucket) {
        self.arrange_keeping(before, config, retention_of(&self.cluster(), self.id()));
    }

    /// Like [`Node::arrange`], with a retention policy for copies that have no role here.
    pub(crate) fn arrange_keeping(
        &self,
        before: &[Chain],
        config: &nacre_cluster::Bucket,
        keep: CopyRetention,
    ) {
        if let Some(bucket) = self.bucket(&config.name) {
            let vb_uuid = || VbUuid::of_random(self.random());
            bucket.arrange(before, &config.chains, self.id(), keep, vb_uuid, self.now());
        }
    }

    /// Returns true if a fence is in effect: this node does not follow nodes that are about to be replaced.
    pub fn is_fenced(&self) -> bool {
        !self.fenced.read().nodes.is_empty()
    }

    /// Follows every node that the agreed state names, without waiting for a leader's fence. For nodes whose copies are
    /// not [orchestrated](Node::orchestrate).
    pub fn follow_without_fence(self: &Arc<Node>) {
        self.fenced.write().is_without_fences = true;
        self.follow();
    }

    /// Starts to follow the nodes whose vBuckets this node should have copies of, unless it follows them already.
    pub(crate) fn follow(self: &Arc<Node>) {
        let (cluster, me) = (self.cluster(), self.id());
        for config in cluster.buckets.values() {
            let Some(bucket) = self.bucket(&config.name) else { continue };
            let mine = config.chains.iter().filter(|chain| chain.is_followed_by(me));
            let peers: BTreeSet<NodeId> = mine.filter_map(|chain| chain.active()).collect();
            for peer in &peers {
                if self.fenced.read().excludes(*peer, &cluster) {
                    continue;
                }
                let Some(member) = cluster.nodes.get(peer) else { continue };
                // The UUID distinguishes the bucket from an earlier one of the same name, whose follower may not have
                // ended yet.
                if self.followed.lock().insert((bucket.uuid.clone(), *peer)) {
                    let follower = Follower::new(Arc::clone(self), Arc::clone(&bucket), *peer);
                    self.platform.link(&member.endpoints, Box::new(follower));
                }
            }
        }
    }

    /// Handles the end of a follower. Starts another one if it is needed again.
    pub(crate) fn follower_ended(self: &Arc<Node>, bucket: &Bucket, peer: NodeId) {
        self.followed.lock().remove(&(bucket.uuid.clone(), peer));
        if !self.is_stopping() {
            self.follow();
        }
    }

    /// Stops following lost nodes, as a leader's fence demands, and follows other nodes again once that is safe.
    ///
    /// # Errors
    /// [`OutdatedFence`] when a later fence has arrived before.
    pub(crate) fn fence(self: &Arc<Node>, fence: &Fence) -> Result<(), OutdatedFence> {
        let is_news = {
            let (mut fenced, cluster) = (self.fenced.write(), self.cluster());
            fenced.accept(fence, &cluster)? | fenced.learn(&cluster)
        };
        if is_news {
            self.fences.fetch_add(1, AcqRel);
            self.follow();
            self.map_watchers.wake();
        }
        Ok(())
    }

    /// Lifts fences after a change of the agreed state. The caller must call [`Node::follow`] afterwards.
    pub(crate) fn unfence(&self) {
        if self.fenced.write().learn(&self.cluster()) {
            self.fences.fetch_add(1, AcqRel);
        }
    }

    /// Returns the vBuckets that this node should serve but does not, because it may have lost the end of their
    /// history.
    pub(crate) fn vbuckets_in_doubt(&self) -> BTreeMap<String, Vec<u16>> {
        let cluster = self.cluster();
        let of_bucket = |name: &String| {
            let bucket = self.bucket(name)?;
            let in_doubt: Vec<u16> = bucket.in_doubt.read().iter().map(|vbid| vbid.0).collect();
            (!in_doubt.is_empty()).then(|| (name.clone(), in_doubt))
        };
        cluster.buckets.keys().filter_map(of_bucket).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_cluster::{Change, Endpoints, GROUP_DEFAULT, Member, NodeChange, Ports, ServiceName};

    /// Returns the state of a cluster of `nodes` nodes, from the view of node 1.
    fn cluster(uuid: &str, nodes: u64) -> Cluster {
        let mut cluster = Cluster::new(uuid.to_owned());
        for id in 1..=nodes {
            let plain = Ports::from([("mgmt", 1), ("kv", 5)]);
            let member = Member {
                uuid: format!("{id:032}"),
                endpoints: Endpoints { host: None, plain, tls: None, fingerprint: None },
                group: GROUP_DEFAULT.into(),
                services: ServiceName::FIRST.into(),
                membership: Membership::Active,
                alternate: None,
            };
            cluster.apply(&Change::Nodes(NodeChange::PutNode { id: NodeId(id), member })).unwrap();
        }
        cluster
    }

    fn fence(epoch: [u64; 4], rev: u64, lost: &[u64]) -> Fence {
        let [regroups, term, start, at] = epoch;
        let epoch = FenceEpoch { regroups, term, start, at };
        Fence { epoch, rev, lost: lost.iter().copied().map(NodeId).collect() }
    }

    #[test]
    fn a_fence_is_lifted_by_a_later_one_and_by_the_decisions_that_it_waits_for() {
        let mut cluster = cluster("c", 3);
        let rev = cluster.rev;
        let mut fenced = Fenced::default();
        let mut accept = |fence: Fence, cluster: &Cluster| {
            let accepted = fenced.accept(&fence, cluster);
            fenced.learn(cluster);
            (accepted, [2, 3].map(|node| fenced.excludes(NodeId(node), cluster)))
        };
        assert_eq!(accept(fence([0, 1, 1, 1], rev, &[]), &cluster), (Ok(true), [false, false]));
        assert_eq!(accept(fence([0, 1, 1, 2], rev, &[3]), &cluster), (Ok(true), [false, true]));
        // An older fence, or the fence of an earlier leader, may arrive later.
        assert_eq!(
            accept(fence([0, 1, 1, 1], rev, &[]), &cluster),
            (Err(OutdatedFence), [false, true])
        );
        assert_eq!(
            accept(fence([0, 0, 1, 9], rev, &[]), &cluster),
            (Err(OutdatedFence), [false, true])
        );
        // The leader restarted, and its clock with it; it still leads in its term.
        assert_eq!(accept(fence([0, 1, 2, 1], rev, &[3]), &cluster), (Ok(true), [false, true]));
        assert_eq!(
            accept(fence([0, 1, 1, 9], rev, &[]), &cluster),
            (Err(OutdatedFence), [false, true])
        );
        let next = fence([0, 1, 2, 3], rev + 1, &[2]);
        assert_eq!(accept(next.clone(), &cluster), (Ok(true), [true, true]));
        cluster.rev += 1;
        assert_eq!(accept(next, &cluster), (Ok(false), [true, false]));
        // The remaining nodes have continued without a majority.
        assert_eq!(accept(fence([1, 1, 1, 1], rev, &[]), &cluster), (Ok(true), [false, false]));
    }

    #[test]
    fn no_node_is_followed_before_the_first_fence_of_a_leader() {
        let [two, three, other] = [("c", 2), ("c", 3), ("d", 3)].map(|(uuid, n)| cluster(uuid, n));
        let mut fenced = Fenced::default();
        let follows = |fenced: &Fenced, cluster| !fenced.excludes(NodeId(2), cluster);
        assert!(follows(&fenced, &two), "no quorum is without one of two");
        assert!(!follows(&fenced, &three));
        let word = fence([0, 7, 1, 1], three.rev, &[]);
        assert_eq!(fenced.accept(&word, &three), Ok(true));
        let before = Cluster { rev: three.rev - 1, ..three.clone() };
        assert!(!fenced.learn(&before) && !follows(&fenced, &before), "that one may be replaced");
        assert!(fenced.learn(&three) && follows(&fenced, &three));
        assert!(!follows(&fenced, &other), "what was said was of another cluster");
        assert_eq!(fenced.accept(&fence([0, 1, 1, 1], other.rev, &[2]), &other), Ok(true));
        assert!(!follows(&fenced, &other));
    }
}
