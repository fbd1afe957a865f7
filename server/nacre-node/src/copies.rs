//! The copies of a bucket's vBuckets on this node: which part each has, and how history comes to those that follow.

use crate::bucket::Bucket;
use crate::node::Node;
use crate::replication::Follower;
use nacre_cluster::orchestrator::{Fence, Said, needs_leases};
use nacre_cluster::{Chain, Cluster, Membership};
use nacre_store::Error;
use nacre_types::{Document, NodeId, Now, Seqno, VbState, VbUuid, Vbid};
use nacre_vbucket::{OutOfOrder, Vbucket};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::AcqRel;

/// How long durable writes that were under way when their vBucket was held may take to end there: their clients need not be
/// told that nobody knows. Half of what the leader waits for.
const HOLD_COMPLETES_NS: u64 = 500_000_000;

/// What a node does with copies that it is to have no more: one whose place others have taken may be recovered, and is then sent
/// only what it has missed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Keep {
    /// It keeps the copies that it loses now.
    lost: bool,
    /// It still keeps those that it has lost so.
    dead: bool,
}

impl Keep {
    /// What node `me` does.
    pub(crate) fn of(cluster: &Cluster, me: NodeId) -> Keep {
        let part = cluster.nodes.get(&me).map(|member| member.membership);
        let is_out = matches!(part, Some(Membership::FailedOver | Membership::Added));
        // Others take its place without haste.
        let goes_out = cluster.rebalance.as_ref().is_some_and(|rebalance| {
            rebalance.rest == Membership::FailedOver && rebalance.leaving.contains(&me)
        });
        Keep { lost: is_out || goes_out, dead: is_out || cluster.rebalance.is_some() }
    }

    /// Whether a vBucket that has no part here keeps its history.
    fn holds(self, vbucket: &Vbucket) -> bool {
        match vbucket.state() {
            VbState::Dead => self.dead,
            _ => self.lost,
        }
    }
}

/// A leader's word that came after a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outdated;

/// Whom this node does not follow.
#[derive(Debug, Default)]
pub(crate) struct Fenced {
    /// The UUID of the cluster in which something was said of that, and when.
    said: Option<(String, Said)>,
    nodes: BTreeSet<NodeId>,
    /// Who it is to be once the agreed state is known up to a revision.
    later: Option<(u64, BTreeSet<NodeId>)>,
    /// The UUID of the cluster whose state was known up to there once.
    known: Option<String>,
    /// Whether there is nobody who says so.
    is_unasked: bool,
}

impl Fenced {
    /// Whether `peer` is not to be followed. Before something was said, and what was decided until then is known, nobody is, where
    /// it may be: the process before may have answered how far its copies are, and what came of that may be decided.
    pub fn keeps_from(&self, peer: NodeId, cluster: &Cluster) -> bool {
        let is_told = self.known.as_ref() == Some(&cluster.uuid);
        let must_be_told = needs_leases(cluster) && !self.is_unasked;
        self.nodes.contains(&peer) || must_be_told && !is_told
    }

    /// Takes the word of a leader. Says whether it is new.
    ///
    /// # Errors
    /// [`Outdated`] when there was a later one: nothing has changed then.
    fn hear(&mut self, fence: &Fence, cluster: &Cluster) -> Result<bool, Outdated> {
        let known = self.said.as_ref().filter(|(uuid, _)| *uuid == cluster.uuid);
        match known.map(|(_, known)| fence.said.cmp(known)) {
            Some(Ordering::Less) => return Err(Outdated),
            Some(Ordering::Equal) => return Ok(false),
            Some(Ordering::Greater) | None => {}
        }
        self.said = Some((cluster.uuid.clone(), fence.said));
        self.nodes.extend(&fence.lost);
        self.later = Some((fence.rev, fence.lost.clone()));
        Ok(true)
    }

    /// Has those followed again who may be, as `cluster` is known. Says whether anything is new.
    fn learn(&mut self, cluster: &Cluster) -> bool {
        let Some((_, lost)) = self.later.take_if(|(rev, _)| *rev <= cluster.rev) else {
            return false;
        };
        let (nodes, known) = (lost, self.said.as_ref().map(|(uuid, _)| uuid.clone()));
        let is_news = (&nodes, &known) != (&self.nodes, &self.known);
        (self.nodes, self.known) = (nodes, known);
        is_news
    }
}

/// Gives a vBucket the part that its chain has for node `me`. Says whether that is another than before. `vb_uuid` names the
/// branch of history that begins if it becomes the active copy, or begins anew.
pub(crate) fn arrange(
    vbucket: &mut Vbucket,
    chain: &Chain,
    me: NodeId,
    keep: Keep,
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
        VbState::Active if !is_as_chosen(vbucket, chain) => vbucket.doubt(chain.term),
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

impl Node {
    /// Gives the vBuckets of a bucket the parts that their chains have for this node. Chains that are as `before` are passed
    /// over.
    pub(crate) fn arrange(&self, before: &[Chain], config: &nacre_cluster::Bucket) {
        self.arrange_keeping(before, config, Keep::of(&self.cluster(), self.id()));
    }

    /// The same where it is known what becomes of copies that have no part here.
    pub(crate) fn arrange_keeping(
        &self,
        before: &[Chain],
        config: &nacre_cluster::Bucket,
        keep: Keep,
    ) {
        if let Some(bucket) = self.bucket(&config.name) {
            let vb_uuid = || VbUuid::of_random(self.random());
            bucket.arrange(before, &config.chains, self.id(), keep, vb_uuid, self.now());
        }
    }

    /// Whether this node has been told of nodes that are about to be replaced, and does not follow them.
    pub fn is_fenced(&self) -> bool {
        !self.fenced.read().nodes.is_empty()
    }

    /// Follows whomever the agreed state names, although no leader says whom not to: where nobody [looks after](Node::orchestrate)
    /// the copies.
    pub fn follow_unasked(self: &Arc<Node>) {
        self.fenced.write().is_unasked = true;
        self.follow();
    }

    /// Begins to follow the nodes whose vBuckets this one is to have copies of, where it does not yet.
    pub(crate) fn follow(self: &Arc<Node>) {
        let (cluster, me) = (self.cluster(), self.id());
        for config in cluster.buckets.values() {
            let Some(bucket) = self.bucket(&config.name) else { continue };
            let mine = config.chains.iter().filter(|chain| chain.is_followed_by(me));
            let peers: BTreeSet<NodeId> = mine.filter_map(|chain| chain.active()).collect();
            for peer in &peers {
                if self.fenced.read().keeps_from(*peer, &cluster) {
                    continue;
                }
                let Some(member) = cluster.nodes.get(peer) else { continue };
                if self.followed.lock().insert((bucket.uuid.clone(), *peer)) {
                    let follower = Follower::new(Arc::clone(self), Arc::clone(&bucket), *peer);
                    self.platform.link(&member.endpoints, Box::new(follower));
                }
            }
        }
    }

    /// A follower is no more. There is another one if it is needed again by now.
    pub(crate) fn follower_ended(self: &Arc<Node>, bucket: &Bucket, peer: NodeId) {
        self.followed.lock().remove(&(bucket.uuid.clone(), peer));
        if !self.is_stopping() {
            self.follow();
        }
    }

    /// Follows lost nodes no more as a leader says, and others again once that is safe.
    ///
    /// # Errors
    /// [`Outdated`] when another word has come before that is later.
    pub(crate) fn fence(self: &Arc<Node>, fence: &Fence) -> Result<(), Outdated> {
        let is_news = {
            let (mut fenced, cluster) = (self.fenced.write(), self.cluster());
            fenced.hear(fence, &cluster)? | fenced.learn(&cluster)
        };
        if is_news {
            self.fences.fetch_add(1, AcqRel);
            self.follow();
            self.map_watchers.wake();
        }
        Ok(())
    }

    /// The agreed state has changed: some may be followed again. Whoever calls sees to it that they are.
    pub(crate) fn unfence(&self) {
        if self.fenced.write().learn(&self.cluster()) {
            self.fences.fetch_add(1, AcqRel);
        }
    }

    /// The vBuckets that this node is to serve and does not: it may have lost the end of their history.
    pub(crate) fn doubted(&self) -> BTreeMap<String, Vec<u16>> {
        let cluster = self.cluster();
        let of_bucket = |name: &String| {
            let bucket = self.bucket(name)?;
            let doubted: Vec<u16> = bucket.doubted.read().iter().map(|vbid| vbid.0).collect();
            (!doubted.is_empty()).then(|| (name.clone(), doubted))
        };
        cluster.buckets.keys().filter_map(of_bucket).collect()
    }
}

impl Bucket {
    /// Gives each vBucket whose chain is not as `before` the part that this has for node `me`; and those that are not to be kept
    /// any longer.
    pub(crate) fn arrange(
        &self,
        before: &[Chain],
        chains: &[Chain],
        me: NodeId,
        keep: Keep,
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
                && (keep.dead || !self.vbucket(vbid).is_some_and(|copy| is_left_over(&copy)))
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
                    self.give_up_waiting(&[vbid]);
                }
                self.note(vbid);
            }
        }
        // What is in doubt is about to be served as well, here or elsewhere.
        handed_over.extend(self.doubted.read().iter());
        self.waits.begin_hand_overs(&handed_over);
        self.waits.end_hand_overs(&handed_over);
        self.wake_readers();
    }

    /// Throws away the history of a copy, to take over another.
    pub(crate) fn begin_anew(&self, vbid: Vbid, vb_uuid: VbUuid) {
        self.change(vbid, |vbucket| {
            if vbucket.state() == VbState::Replica {
                vbucket.clear(VbState::Replica, vb_uuid);
            }
        });
        self.persisted.reset(vbid, Seqno::ZERO);
        self.note(vbid);
        self.wake_readers();
    }

    /// The copy of `vbid` on `node` has everything up to `seqno`.
    pub(crate) fn acknowledge(&self, vbid: Vbid, node: NodeId, seqno: Seqno, now: Now) {
        self.complete(vbid, |vbucket| {
            vbucket.acknowledge(node, seqno);
            vbucket.complete(now)
        });
        self.wake_readers();
    }

    /// Takes in what the active copy of `vbid` has told the copy of that `generation`; see [`Vbucket::receive`].
    ///
    /// # Errors
    /// When it does not continue what is here.
    pub(crate) fn receive(
        &self,
        vbid: Vbid,
        generation: Option<u32>,
        documents: Vec<Document>,
        seqno: Seqno,
        snapshot: (Seqno, Seqno),
    ) -> Result<(), Trouble> {
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
        received.unwrap_or(Err(OutOfOrder)).map_err(|OutOfOrder| Trouble::OutOfOrder)?;
        self.forget_stored(&dropped);
        self.note(vbid);
        Ok(())
    }

    /// Reads back what is about to be replaced, where keys may be in the store only: it is counted.
    fn fetch_evicted(&self, vbid: Vbid, documents: &[Document]) -> Result<(), Trouble> {
        if !self.vbucket(vbid).is_some_and(|vbucket| vbucket.has_evicted_keys()) {
            return Ok(());
        }
        for document in documents {
            if self.vbucket(vbid).is_some_and(|vbucket| vbucket.find(document.key()).is_none()) {
                self.fetch(vbid, document.key()).map_err(Trouble::Store)?;
            }
        }
        Ok(())
    }
}

/// Why history from elsewhere was not taken in.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// It does not continue what is here.
    OutOfOrder,
    /// What is here cannot be read.
    Store(Error),
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_cluster::{Change, Endpoints, GROUP_DEFAULT, Member, Ports, Service};

    /// What node 1 knows of a cluster of so many.
    fn cluster(uuid: &str, nodes: u64) -> Cluster {
        let mut cluster = Cluster::new(uuid.to_owned());
        let plain = Ports { mgmt: 1, views: 2, query: 3, eventing: 4, kv: 5 };
        for id in 1..=nodes {
            let member = Member {
                uuid: format!("{id:032}"),
                endpoints: Endpoints { host: None, plain, tls: None, fingerprint: None },
                group: GROUP_DEFAULT.into(),
                services: Service::ALL.into(),
                membership: Membership::Active,
                alternate: None,
            };
            cluster.apply(&Change::PutNode { id: NodeId(id), member }).unwrap();
        }
        cluster
    }

    fn fence(said: [u64; 4], rev: u64, lost: &[u64]) -> Fence {
        let [regroups, term, start, at] = said;
        let said = Said { regroups, term, start, at };
        Fence { said, rev, lost: lost.iter().copied().map(NodeId).collect() }
    }

    #[test]
    fn the_word_of_a_leader_is_taken_back_by_a_later_one_and_by_those_who_know_what_was_decided() {
        let mut cluster = cluster("c", 3);
        let rev = cluster.rev;
        let mut fenced = Fenced::default();
        let mut hear = |fence: Fence, cluster: &Cluster| {
            let heard = fenced.hear(&fence, cluster);
            fenced.learn(cluster);
            (heard, [2, 3].map(|node| fenced.keeps_from(NodeId(node), cluster)))
        };
        assert_eq!(hear(fence([0, 1, 1, 1], rev, &[]), &cluster), (Ok(true), [false, false]));
        assert_eq!(hear(fence([0, 1, 1, 2], rev, &[3]), &cluster), (Ok(true), [false, true]));
        // What was said before, or by a leader of before, may arrive later.
        assert_eq!(hear(fence([0, 1, 1, 1], rev, &[]), &cluster), (Err(Outdated), [false, true]));
        assert_eq!(hear(fence([0, 0, 1, 9], rev, &[]), &cluster), (Err(Outdated), [false, true]));
        // The leader was started again, and its clock with it; it leads on in its term.
        assert_eq!(hear(fence([0, 1, 2, 1], rev, &[3]), &cluster), (Ok(true), [false, true]));
        assert_eq!(hear(fence([0, 1, 1, 9], rev, &[]), &cluster), (Err(Outdated), [false, true]));
        let next = fence([0, 1, 2, 3], rev + 1, &[2]);
        assert_eq!(hear(next.clone(), &cluster), (Ok(true), [true, true]));
        cluster.rev += 1;
        assert_eq!(hear(next, &cluster), (Ok(false), [true, false]));
        // They went on without most of the others.
        assert_eq!(hear(fence([1, 1, 1, 1], rev, &[]), &cluster), (Ok(true), [false, false]));
    }

    #[test]
    fn nobody_is_followed_before_a_leader_has_said_who_is_lost() {
        let [two, three, other] = [("c", 2), ("c", 3), ("d", 3)].map(|(uuid, n)| cluster(uuid, n));
        let mut fenced = Fenced::default();
        let follows = |fenced: &Fenced, cluster| !fenced.keeps_from(NodeId(2), cluster);
        assert!(follows(&fenced, &two), "no quorum is without one of two");
        assert!(!follows(&fenced, &three));
        let word = fence([0, 7, 1, 1], three.rev, &[]);
        assert_eq!(fenced.hear(&word, &three), Ok(true));
        let before = Cluster { rev: three.rev - 1, ..three.clone() };
        assert!(!fenced.learn(&before) && !follows(&fenced, &before), "that one may be replaced");
        assert!(fenced.learn(&three) && follows(&fenced, &three));
        assert!(!follows(&fenced, &other), "what was said was of another cluster");
        assert_eq!(fenced.hear(&fence([0, 1, 1, 1], other.rev, &[2]), &other), Ok(true));
        assert!(!follows(&fenced, &other));
    }
}
