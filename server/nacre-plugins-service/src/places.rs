//! Exchanges the positions of functions in each vBucket's history, and their timers, between nodes: when a vBucket
//! moves, its new node does not handle documents again, and has the timers.
//!
//! ```text
//! serves a vBucket:   Partition ─► each second to all nodes: the progress (PluginMessage::ReportPlaces)
//! has a copy of it:   Copier ─► missing changes? (PluginMessage::Follow) ─► Partition, which keeps timers that do not fire
//! will serve it:      progress, and busy? (PluginMessage::Places) ─► Copier ─► Partition::serve
//! ```
//!
//! A node serves a vBucket only from a copy that is at least as far as the copy of every node that answers. A position
//! and the timers set before it are always sent together, so that after a loss the timers exist or are set again.

use super::Deployment;
use super::message::{PluginMessage, PluginReply, StateName};
use super::shipped::INDEX;
use crate::NodePlugins;
use crossbeam_channel::bounded;
use nacre_bucket::{Bucket, Signal};
use nacre_cluster::{Chain, Index, Membership};
use nacre_node::Node;
use nacre_node::PeerError;
use nacre_node::scatter_gather::PendingReply;
use nacre_sandbox::{Error, Partition};
use nacre_state::{FollowerPosition, ProgressStamp, TimerCopy, VbucketProgress};
use nacre_types::{NodeId, Vbid};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Maximum wait for each answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Maximum number of vBuckets in one request.
const ASKED_MAX: usize = 256;
/// Approximate maximum size of one message in bytes.
const SHARES_BYTES_MAX: usize = 1 << 20;

/// How long a node keeps an outdated position in a vBucket of which it has no copy, in nanoseconds. Meanwhile the nodes
/// with copies catch up.
const LEFT_NS: u64 = 30_000_000_000;

/// The progress of the most advanced node, by vBucket.
pub type FurthestNodes = BTreeMap<Vbid, (ProgressStamp, NodeId)>;

/// The answers of the nodes about a deployment.
#[derive(Debug, Default)]
pub struct PlaceReports {
    /// The most advanced nodes.
    pub furthest: FurthestNodes,
    /// vBuckets that some node has not finished.
    pub busy: Vec<Vbid>,
    /// True if an awaited node is reachable but has not answered yet.
    pub is_silent: bool,
    /// True if an awaited node is not reachable and was not replaced.
    pub is_missing: bool,
}

/// Records the progress of `node` in a vBucket if it is the furthest.
fn note(others: &mut FurthestNodes, vbid: Vbid, moment: ProgressStamp, node: NodeId) {
    let known = others.entry(vbid).or_insert((moment, node));
    if known.0 <= moment {
        *known = (moment, node);
    }
}

impl Deployment {
    fn state_name(&self) -> StateName {
        StateName { deployment: self.name.clone(), space: self.spec.space.clone() }
    }

    /// Asks all other nodes for their progress. A replaced node need not answer: it makes no further progress, or first
    /// learns that it has lost its vBuckets, and its last report is known.
    pub(super) fn ask_places(&self, node: &Arc<Node>) -> PlaceReports {
        let question = PluginMessage::Places(self.state_name());
        let ask = |other| (other, node.ask(other, &question, PATIENCE));
        let asked: Vec<_> = node.others().into_iter().map(ask).collect();
        let mut reports = PlaceReports::default();
        let cluster = node.cluster();
        for (other, answer) in asked {
            let member = cluster.nodes.get(&other);
            let is_awaited = member.is_some_and(|node| node.membership != Membership::FailedOver);
            match answer.wait() {
                Ok(Ok(PluginReply::Places(moments, busy))) => {
                    for (vbid, moment) in moments {
                        note(&mut reports.furthest, vbid, moment, other);
                    }
                    reports.busy.extend(busy);
                }
                Err(PeerError::NotAsked(_)) => reports.is_missing |= is_awaited,
                Ok(_) | Err(PeerError::Lost(_)) => reports.is_silent |= is_awaited,
            }
        }
        reports
    }

    /// Reports the progress of this node to all others.
    pub(super) fn report_places(&self, node: &Arc<Node>, moments: &[(Vbid, ProgressStamp)]) {
        for other in node.others() {
            let reported =
                PluginMessage::ReportPlaces(self.state_name(), node.id(), moments.to_vec());
            // The answer is not needed.
            drop(node.ask(other, &reported, PATIENCE));
        }
    }
}

/// Returns the deployment with a state if it runs here.
fn deployment_of(node: &Node, state: &StateName) -> Option<Arc<Deployment>> {
    let found = node.plugins().deployment(&state.deployment);
    found.filter(|found| found.spec.space == state.space)
}

/// Answers a node that asks for the progress of a deployment here.
pub(crate) fn answer_places(node: &Node, state: &StateName) -> PluginReply {
    let Some(found) = deployment_of(node, state) else {
        return PluginReply::Places(BTreeMap::new(), Vec::new());
    };
    // The busy vBuckets are read before the moments: the moment of a vBucket that is not busy no longer changes. A
    // paused or replaced deployment may still process its last batch, so it counts while it is fed.
    let is_busy = |vbid: &Vbid| found.is_feeding() && found.coverage.is_known(*vbid);
    let busy = (0..found.bucket.vbucket_count()).map(Vbid).filter(is_busy).collect();
    let moments = found.readers.first().map(|reader| reader.moments());
    PluginReply::Places(moments.unwrap_or_default(), busy)
}

/// Returns true if the deployments that follow their vBuckets have arrived at all vBuckets that `node` should serve,
/// and have released the others.
pub(crate) fn have_settled(node: &Node) -> bool {
    let (cluster, me) = (node.cluster(), node.id());
    let has_settled = |found: &Arc<Deployment>| {
        let Some(config) = cluster.buckets.get(&found.bucket.name) else { return true };
        // Uses the agreed state, because the vBuckets of the bucket may not have their new roles yet.
        let mut chains = (0..).map(Vbid).zip(&config.chains);
        let serves = |chain: &Chain| chain.active() == Some(me);
        chains.all(|(vbid, chain)| serves(chain) == found.coverage.is_known(vbid))
    };
    // Paused deployments count as well, since their timers must move along.
    let follows = |found: &&Arc<Deployment>| found.spec.keeps_places() && found.is_feeding();
    let deployments = node.plugins().deployments();
    deployments.iter().filter(follows).all(has_settled) && have_partitions(node)
}

/// Returns true if `node` has all partitions of indexes that it should have.
fn have_partitions(node: &Node) -> bool {
    let (cluster, me) = (node.cluster(), node.id());
    // Do not wait for an index that cannot be built.
    let is_hopeless = matches!(node.plugins().components.outcome(&INDEX), Some(Err(_)));
    let has = |bucket: &nacre_cluster::Bucket, index: &Index| {
        let wanted = cluster.held_by(me, index);
        let found = node.plugins().index(&bucket.name, index);
        wanted.is_empty()
            || is_hopeless
            || found.is_some_and(|found| found.is_ended() || found.has(&wanted))
    };
    cluster.buckets.values().all(|bucket| {
        let built = bucket.indexes.iter().filter(|index| index.built);
        built.filter(|index| index.partitioning.is_some()).all(|index| has(bucket, index))
    })
}

/// Records a progress report of another node.
pub(crate) fn receive_places(
    node: &Node,
    state: &StateName,
    from: NodeId,
    reported: &[(Vbid, ProgressStamp)],
) {
    if let Some(found) = deployment_of(node, state) {
        let mut others = found.others.lock();
        reported.iter().for_each(|(vbid, moment)| note(&mut others, *vbid, *moment, from));
        drop(others);
        found.bucket.listeners.wake_all();
    }
}

/// Answers a node that catches up with this one.
pub(crate) fn answer_follower(
    node: &Node,
    state: &StateName,
    lacking: Vec<(Vbid, FollowerPosition)>,
) -> PluginReply {
    let found = deployment_of(node, state);
    let mut left = SHARES_BYTES_MAX;
    let mut shares = Vec::new();
    if let Some(reader) = found.as_ref().and_then(|found| found.readers.first()) {
        for (vbid, lacking) in lacking {
            let share = reader.share(vbid, lacking, left);
            left = left.saturating_sub(share.bytes());
            shares.push((vbid, share));
            if left == 0 {
                break;
            }
        }
    }
    PluginReply::Shares(shares)
}

/// Copies the positions and timers of the vBuckets of which this node has copies.
#[derive(Default)]
pub struct Copier {
    /// Nodes that are further.
    wanted: FurthestNodes,
    /// Incomplete copies.
    copying: BTreeMap<Vbid, TimerCopy>,
    asked: Option<(NodeId, PendingReply<PluginMessage>)>,
    /// The time since which other nodes are known to be further in vBuckets without a copy here, in monotonic
    /// nanoseconds.
    left_ns: BTreeMap<Vbid, u64>,
}

impl Copier {
    /// Adds reports of nodes that may be further.
    pub fn note_all(&mut self, others: impl IntoIterator<Item = (Vbid, (ProgressStamp, NodeId))>) {
        for (vbid, (moment, node)) in others {
            note(&mut self.wanted, vbid, moment, node);
        }
    }

    /// Processes answers, and then requests missing parts. An answer wakes `signal`.
    pub fn step(
        &mut self,
        deployment: &Deployment,
        bucket: &Bucket,
        partition: &mut Partition,
        signal: &Signal,
    ) -> Result<(), Error> {
        let Some(node) = deployment.node.upgrade() else { return Ok(()) };
        let reported = std::mem::take(&mut *deployment.others.lock());
        self.note_all(reported);
        if let Some((from, answer)) = &self.asked {
            let from = *from;
            let Some(reply) = answer.poll() else { return Ok(()) };
            self.take(from, reply.ok().and_then(Result::ok), partition)?;
            self.asked = None;
        }
        for (vbid, (moment, from)) in std::mem::take(&mut self.wanted) {
            let own = partition.standing(vbid).moment;
            let is_behind = !partition.serves(vbid) && own < moment;
            let has_copy = bucket.copy(vbid).is_some();
            if is_behind && has_copy {
                self.left_ns.remove(&vbid);
                self.wanted.insert(vbid, (moment, from));
                continue;
            }
            self.copying.remove(&vbid);
            if !is_behind || own == ProgressStamp::default() {
                self.left_ns.remove(&vbid);
                continue;
            }
            let now_ns = node.now().monotonic_ns;
            let since_ns = *self.left_ns.entry(vbid).or_insert(now_ns);
            if now_ns.saturating_sub(since_ns) >= LEFT_NS {
                self.left_ns.remove(&vbid);
                partition.follow(vbid, VbucketProgress::default(), Vec::new(), true)?;
            }
        }
        let Some((_, (_, to))) = self.wanted.first_key_value() else { return Ok(()) };
        let to = *to;
        let of_node = self.wanted.iter().filter(|(_, (_, other))| *other == to).take(ASKED_MAX);
        let lacking = of_node.map(|(vbid, _)| {
            let own = partition.standing(*vbid).moment;
            (*vbid, self.copying.get(vbid).map_or((own, None), |copying| copying.position(own)))
        });
        let question = PluginMessage::Follow(deployment.state_name(), lacking.collect());
        let (send, replies) = bounded(1);
        let signal = signal.clone();
        let reply_to = Box::new(move |answer| {
            // Fails if the feed has ended.
            drop(send.send(answer));
            signal.wake();
        });
        node.ask_with_callback(to, &question, PATIENCE, reply_to);
        self.asked = Some((to, PendingReply::new(replies)));
        Ok(())
    }

    /// Processes the answer of a node. A node that does not answer is asked again once it is known to be alive.
    fn take(
        &mut self,
        from: NodeId,
        answer: Option<PluginReply>,
        partition: &mut Partition,
    ) -> Result<(), Error> {
        let shares = match answer {
            Some(PluginReply::Shares(shares)) => shares,
            _ => Vec::new(),
        };
        if shares.is_empty() {
            self.wanted.retain(|_, (_, node)| *node != from);
        }
        for (vbid, share) in shares {
            if partition.serves(vbid) {
                continue;
            }
            let own = partition.standing(vbid).moment;
            let copying = self.copying.entry(vbid).or_default();
            let is_all = !share.has_more;
            if let Some((standing, timers, whole)) = copying.take(own, share) {
                partition.follow(vbid, standing, timers, whole)?;
            }
            if copying.is_idle() {
                self.copying.remove(&vbid);
                if is_all {
                    // The node has no more for now, regardless of earlier reports.
                    self.wanted.remove(&vbid);
                }
            }
        }
        Ok(())
    }
}
