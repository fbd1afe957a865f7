//! This node's part in the orchestration of copies: it sends heartbeats, answers the leader's polls, and makes
//! decisions while it leads. [`nacre_cluster::orchestrator`] contains the logic of the decisions.

use crate::Error;
use crate::copies::OutdatedFence;
use crate::node::Node;
use crate::platform::PeerMessageHandler;
use crate::scatter_gather::{NodeMessage, NodeReply, PendingReply};
use nacre_bucket::{Next, Signal, Task};
use nacre_cluster::orchestrator::{
    Effect, Joint, Leadership, Message, Orchestrator, Standing, TICK_NS, needs_leases,
};
use nacre_cluster::{Change, NodeChange};
use nacre_types::{NodeId, VbState, Vbid};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Interval of heartbeats and decisions while the node has no lease and therefore serves no requests.
const HURRY_NS: u64 = 20_000_000;

/// State shared by the two tasks and the message handler.
pub(crate) struct Orchestration {
    node: Weak<Node>,
    state: Mutex<State>,
    signal: Signal,
}

struct State {
    orchestrator: Orchestrator,
    /// The lease that the leader granted last: its end, and the revision of the agreed state that this node must have
    /// applied to use it.
    granted: Option<(u64, u64)>,
}

impl Orchestration {
    pub fn new(node: &Arc<Node>) -> Arc<Orchestration> {
        let orchestrator = Orchestrator::new(node.id(), node.start);
        let state = Mutex::new(State { orchestrator, granted: None });
        Arc::new(Orchestration { node: Arc::downgrade(node), state, signal: Signal::default() })
    }

    /// Returns the node, unless it is stopping.
    fn node(&self) -> Option<Arc<Node>> {
        self.node.upgrade().filter(|node| !node.is_stopping())
    }

    fn receive(&self, node: &Arc<Node>, from: NodeId, message: Message) {
        let now = node.now().monotonic_ns;
        let answer = match message {
            Message::Grant { at, start, for_ns, rev, fence } => {
                node.fence(&fence).ok();
                // A lease is valid even if another node has become the leader, but not if an earlier process asked for it,
                // because that process had a different clock.
                if start == node.start {
                    self.state.lock().granted = Some((at.saturating_add(for_ns), rev));
                    self.renew(node);
                }
                None
            }
            Message::Poll { number, fence, wanted } => match node.fence(&fence) {
                Ok(()) => {
                    let rev = node.map_rev.load(Ordering::Acquire);
                    Some(Message::Report { number, rev, standings: standings(node, &wanted) })
                }
                Err(OutdatedFence) => {
                    tracing::debug!("ignoring the fence of {from}: a later one has arrived");
                    None
                }
            },
            message => {
                let is_report = matches!(message, Message::Report { .. });
                // The leadership is read first: a leader has applied at least the state of that moment.
                let leads = node.leadership();
                let cluster = node.cluster();
                let orchestrator = &mut self.state.lock().orchestrator;
                let answer = orchestrator.receive(from, message, &cluster, leads, now);
                if is_report {
                    self.signal.wake();
                }
                answer
            }
        };
        if let Some(answer) = answer {
            self.send(node, from, answer);
        }
    }

    /// Drops the state of another cluster, after the node's ID has changed.
    fn reset(&self, node: &Node) {
        let me = node.id();
        let mut state = self.state.lock();
        if state.orchestrator.me() != me {
            *state = State { orchestrator: Orchestrator::new(me, node.start), granted: None };
        }
    }

    fn send(&self, node: &Arc<Node>, to: NodeId, message: Message) {
        if to == node.id() {
            return self.receive(node, to, message);
        }
        node.platform.send(to, written(&message));
    }

    /// Handles a change of the agreed state.
    pub fn on_agreed_change(&self, node: &Node) {
        self.renew(node);
        self.signal.wake();
    }

    /// Uses a granted lease once the node has applied the revision that the leader had.
    pub fn renew(&self, node: &Node) {
        let cluster = node.cluster();
        if !needs_leases(&cluster) {
            return node.lease.set(u64::MAX);
        }
        match self.state.lock().granted {
            // The lease is kept, because leases may become unnecessary for a while and then necessary again.
            Some((until, rev)) if cluster.rev >= rev => node.lease.set(until),
            // Until the leader answers for the first time, the node does not know which vBuckets it may serve.
            _ if node.lease.is_endless() => node.lease.set(0),
            _ => {}
        }
    }
}

/// Encodes a message for sending.
fn written(message: &Message) -> Vec<u8> {
    postcard::to_stdvec(message).expect("messages are plain data")
}

impl PeerMessageHandler for Orchestration {
    fn receive(&self, from: NodeId, message: &[u8]) {
        let Some(node) = self.node.upgrade() else { return };
        match postcard::from_bytes(message) {
            Ok(message) => self.receive(&node, from, message),
            Err(error) => tracing::warn!("cannot decode a message from {from}: {error}"),
        }
    }
}

fn standings(
    node: &Node,
    wanted: &BTreeMap<String, Vec<u16>>,
) -> BTreeMap<String, BTreeMap<u16, Standing>> {
    let (now, cluster) = (node.now(), node.cluster());
    let of_bucket = |(name, vbids): (&String, &Vec<u16>)| {
        let chains = &cluster.buckets.get(name)?.chains;
        let bucket = node.bucket(name)?;
        let standing = |vbid: &u16| {
            let vbucket = bucket.vbucket(Vbid(*vbid))?;
            let copy = vbucket.standing();
            let standing = Standing {
                term: copy.term,
                prepared: copy.prepared.0,
                high_seqno: copy.high_seqno.0,
                persisted: vbucket.stored_whole().0,
                joint: vbucket.moves_to().map(|to| Joint {
                    next: to.next.to_vec(),
                    from: to.from.0,
                    stored: to.stored.0,
                }),
                rests: vbucket.state() != VbState::Active,
                in_doubt_term: vbucket.in_doubt_term(),
                is_busy: vbucket.is_busy(now),
                is_known_held: chains.get(usize::from(*vbid)).is_some_and(|chain| chain.held),
            };
            Some((*vbid, standing))
        };
        Some((name.clone(), vbids.iter().filter_map(standing).collect()))
    };
    wanted.iter().filter_map(of_bucket).collect()
}

/// Returns a pause of `usual_ns`, or a short one while the node has no lease.
fn pause(node: &Node, now: u64, usual_ns: u64) -> Next {
    let ns = if node.lease.holds(now) { usual_ns } else { usual_ns.min(HURRY_NS) };
    Next::After(Duration::from_nanos(ns))
}

/// The task that sends heartbeats. It does not wait for decisions: a leader that waits for one still needs its lease.
pub(crate) struct HeartbeatTask {
    shared: Arc<Orchestration>,
    signal: Signal,
}

impl HeartbeatTask {
    pub fn new(shared: Arc<Orchestration>) -> HeartbeatTask {
        HeartbeatTask { shared, signal: Signal::default() }
    }

    fn speak(&self, node: &Arc<Node>, now: u64) {
        let (cluster, me) = (node.cluster(), node.id());
        let (in_doubt, ignored_map_rev) =
            (node.vbuckets_in_doubt(), node.ignored_map_rev.load(Ordering::Relaxed));
        let message = Message::Ask { at: now, start: node.start, in_doubt, ignored_map_rev };
        let bytes = written(&message);
        for to in cluster.nodes.keys().copied() {
            match to == me {
                true => self.shared.receive(node, me, message.clone()),
                false => node.platform.send(to, bytes.clone()),
            }
        }
    }
}

impl Task for HeartbeatTask {
    fn name(&self) -> &'static str {
        "heartbeat"
    }

    fn is_background(&self) -> bool {
        false
    }

    fn is_urgent(&self) -> bool {
        true
    }

    fn step(&mut self) -> Next {
        let Some(node) = self.shared.node() else { return Next::Done };
        let now = node.now().monotonic_ns;
        self.shared.renew(&node);
        self.speak(&node, now);
        pause(&node, now, TICK_NS)
    }

    fn signal(&self) -> &Signal {
        &self.signal
    }
}

/// The task that makes decisions while its node leads.
pub(crate) struct FailoverTask {
    shared: Arc<Orchestration>,
    /// Nodes for which the warning that their missing report blocks progress was logged.
    late: BTreeSet<NodeId>,
    hand_over: HandOver,
}

impl FailoverTask {
    pub fn new(shared: Arc<Orchestration>) -> FailoverTask {
        FailoverTask { shared, late: BTreeSet::new(), hand_over: HandOver::default() }
    }

    fn decide(&mut self, node: &Arc<Node>, now: u64) {
        let leads = node.leadership();
        let cluster = node.cluster();
        let (effects, late) = {
            let orchestrator = &mut self.shared.state.lock().orchestrator;
            (orchestrator.tick(&cluster, leads, now), orchestrator.late(now))
        };
        if late != self.late {
            for node in late.difference(&self.late) {
                tracing::warn!(
                    "{node} does not report the progress of its copies: failovers and moves wait for it"
                );
            }
            self.late = late;
        }
        if cluster.rebalance.is_none() {
            self.hand_over = HandOver::default();
        }
        for effect in effects {
            match effect {
                Effect::Send(to, message) => self.shared.send(node, to, message),
                Effect::Propose(Change::Nodes(NodeChange::EndRebalance { .. }))
                    if !self.hand_over.is_done(node, now) => {}
                Effect::Propose(change) => {
                    let Some(Leadership { term, .. }) = leads else { continue };
                    if let Change::Nodes(NodeChange::MoveCopies { memberships, .. }) = &change
                        && !memberships.is_empty()
                    {
                        let nodes: Vec<_> = memberships.keys().map(ToString::to_string).collect();
                        tracing::warn!(
                            "failing over {}: copies on other nodes become active",
                            nodes.join(", ")
                        );
                    }
                    let outcome = node.change_as_leader(term, &change);
                    if outcome.as_ref().map_or_else(Error::is_refusal, |_| true) {
                        self.shared.state.lock().orchestrator.settled();
                    }
                    if let Err(error) = outcome {
                        tracing::info!("cannot move copies now: {error}");
                    }
                }
            }
        }
    }
}

/// Longest time that a finished rebalance waits for functions and partitions of indexes, in nanoseconds: longer than
/// the longest permitted run of a handler.
const HAND_OVER_NS: u64 = 120_000_000_000;
/// Time that a node has to answer whether its functions and partitions have settled.
const SETTLED_PATIENCE: Duration = Duration::from_secs(1);

/// Delays the end of a rebalance until functions have settled at the new nodes of their vBuckets, and partitions of
/// indexes have moved. A leaving node still answers for its partitions until then.
#[derive(Default)]
struct HandOver {
    /// Time since which nothing is left to move, in monotonic nanoseconds.
    since_ns: Option<u64>,
    /// Nodes that have not answered yet, and true if all others have settled; `None` if no node was asked.
    asked: Option<(Vec<PendingReply<NodeMessage>>, bool)>,
}

impl HandOver {
    /// Repeats the question while some nodes have not settled. Does not wait for the replies.
    fn is_done(&mut self, node: &Arc<Node>, now_ns: u64) -> bool {
        let since_ns = *self.since_ns.get_or_insert(now_ns);
        let cluster = node.cluster();
        let mut indexes = cluster.buckets.values().flat_map(|bucket| &bucket.indexes);
        let waits = cluster.functions.iter().next().is_some()
            || indexes.any(|index| index.built && index.partitioning.is_some());
        if !waits || now_ns.saturating_sub(since_ns) >= HAND_OVER_NS {
            return true;
        }
        if !node.has_settled() {
            self.asked = None;
            return false;
        }
        let ask = |to| node.ask(to, &NodeMessage::Settled, SETTLED_PATIENCE);
        let (missing, have_settled) =
            self.asked.get_or_insert_with(|| (node.others().into_iter().map(ask).collect(), true));
        missing.retain(|reply| match reply.poll() {
            None => true,
            Some(reply) => {
                *have_settled &= matches!(reply, Ok(Ok(NodeReply::Settled(true))));
                false
            }
        });
        let is_done = missing.is_empty() && *have_settled;
        if missing.is_empty() {
            self.asked = None;
        }
        is_done
    }
}

impl Task for FailoverTask {
    fn name(&self) -> &'static str {
        "failover"
    }

    fn is_background(&self) -> bool {
        false
    }

    fn is_urgent(&self) -> bool {
        true
    }

    fn step(&mut self) -> Next {
        let Some(node) = self.shared.node() else { return Next::Done };
        let now = node.now().monotonic_ns;
        self.shared.reset(&node);
        self.decide(&node, now);
        let pause_ns = self.shared.state.lock().orchestrator.pause_ns();
        pause(&node, now, pause_ns)
    }

    fn signal(&self) -> &Signal {
        &self.shared.signal
    }
}
