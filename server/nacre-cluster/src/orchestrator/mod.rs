//! The orchestrator of copies: detects lost nodes, lets other copies take their place, and moves copies in a rebalance.
//!
//! Every node runs an [`Orchestrator`]; only that of the leader decides. It is level-triggered: each [tick] compares the
//! agreed state with what the nodes report, and proposes the next change. It keeps nothing that its successor would miss.
//!
//! ```text
//!  every node ── Ask { at } ──► the leader            "I am here", a few times a second
//!             ◄── Grant { at } ──                     "serve until at + LEASE" by the asker's own clock
//!  the leader ── Poll ──► nodes ── Report ──►         how far each copy is; a polled node stops following the lost ones
//!             ── NodeChange::MoveCopies ──► all           the new active copies
//! ```
//!
//! A node that cannot reach the leader stops serving when its lease ends. The leader replaces a node only after the
//! last lease that it granted has ended, and a new leader only after any lease of its predecessor has; so two nodes
//! never serve a vBucket at once. A lease ends [`LEASE_NS`] after the last moment at which a quorum certainly followed
//! the leader, however late the leader grants it: the leader's process may have been suspended in between. With fewer
//! than three voters every quorum contains every node, and no node needs a lease.
//!
//! A node that has reported its copies does not follow a lost node until it knows the decision: otherwise a copy could
//! acknowledge a write that the chosen copy lacks. So only a later [`Fence`] lifts an earlier one, and only on nodes
//! that know everything that was decided before it. A node follows no other node before its first fence, because its
//! process before may have answered a poll; and a decision of a leader counts only while it leads.
//!
//! The best remaining copy serves. Copies are compared by the last term that they have completely, then by their
//! acknowledged seqno, then by the length of their history. Nothing is decided while the answer of a node with a copy
//! is missing. A silent node is not replaced if no remaining copy has everything up to the beginning of the present
//! term: acknowledged writes may be on that node alone. An active copy that does not serve is replaced only if it knows
//! that, and will not serve by itself. Source: vertical replication with an external chooser, as in the rules of
//! failover for durable writes.
//!
//! [tick]: Orchestrator::tick

mod failover;
mod poll;
mod rebalance;

use crate::{Chain, Change, Cluster, Membership, NodeChange};
use nacre_types::NodeId;
use poll::{Answer, Poll};
use rebalance::Hold;
pub use rebalance::MOVES_MAX;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

const MS: u64 = 1_000_000;
/// How long a node may serve after it asked, by its own clock. This is longer than an election takes, and it is most of
/// the time for which the documents of a lost node are not served.
pub const LEASE_NS: u64 = 1800 * MS;
/// Interval of the questions, and the longest interval between decisions.
pub const TICK_NS: u64 = 100 * MS;
/// Interval of the decisions while writers wait for them.
const HURRY_NS: u64 = 5 * MS;
/// After this time without a report, the log says that nothing goes on without the missing nodes.
const ANSWER_NS_MAX: u64 = 5000 * MS;
/// Pause between two renewals of the map: a client that never follows any map must not make all others read maps.
const RENEW_PAUSE_NS: u64 = 10_000 * MS;
/// How old the leader's last confirmation by a quorum may be.
const SILENCE_NS_MAX: u64 = 1000 * MS;

/// Certain knowledge of a node about its leadership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leadership {
    /// The term: no two nodes lead in the same one.
    pub term: u64,
    /// Monotonic time at which the node, already leading, began to ask a quorum that then confirmed that it follows. No
    /// other node leads from then on, and this one knows everything that was decided before.
    pub confirmed_ns: u64,
}

/// Messages between nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// I am here.
    Ask {
        /// When this was sent, by the sender's monotonic clock.
        at: u64,
        /// Counts the starts of the sender: its clock begins again with each.
        start: u64,
        /// vBuckets that the sender should serve and does not, by bucket: it may have lost the end of their history.
        doubted: BTreeMap<String, Vec<u16>>,
        /// The revision of a map that a client was given repeatedly and does not follow; 0 if there is none.
        unheeded: u64,
    },
    /// You may serve for so long from `at` on, once you know the agreed state up to `rev`.
    Grant {
        /// `at` of the question.
        at: u64,
        /// `start` of the question. The question may come from a process that is gone, because messages wait for a node
        /// to return.
        start: u64,
        /// In nanoseconds; at most [`LEASE_NS`].
        for_ns: u64,
        /// The revision of the agreed state.
        rev: u64,
        /// Nodes not to follow.
        fence: Fence,
    },
    /// Asks how far the copies are, after their nodes have stopped following lost nodes.
    Poll {
        /// Comes back with the report.
        number: u64,
        /// Nodes not to follow.
        fence: Fence,
        /// vBuckets, by bucket.
        wanted: BTreeMap<String, Vec<u16>>,
    },
    /// Answers a poll.
    Report {
        /// Number of the poll.
        number: u64,
        /// Revision of the agreed state whose effects its node had carried out before it looked.
        rev: u64,
        /// By bucket, then by vBucket.
        standings: BTreeMap<String, BTreeMap<u16, Standing>>,
    },
}

/// A leader's order not to follow nodes that are about to be replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fence {
    /// Since when it says so.
    pub said: Said,
    /// A node that is no longer lost may be followed by nodes that know the agreed state up to this revision.
    pub rev: u64,
    /// Not to be followed.
    pub lost: BTreeSet<NodeId>,
}

/// Time of a leader's order. A greater one is later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Said {
    /// The cluster's [regroups](Cluster::regroups).
    pub regroups: u64,
    /// In which term the leader leads.
    pub term: u64,
    /// Counts the starts of the leader: it may go on leading in its term after a restart, with another clock.
    pub start: u64,
    /// By its monotonic clock.
    pub at: u64,
}

/// The quality of a copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// The last term that it has all of.
    pub term: u64,
    /// The seqno that the copy has acknowledged, or would.
    pub prepared: u64,
    /// The end of its history.
    pub high_seqno: u64,
    /// End of the history that is stored as its writes demand, up to the end of a snapshot.
    pub persisted: u64,
    /// Set for an active copy while it moves.
    pub joint: Option<Joint>,
    /// True if it takes no more writes, though it is the active copy: it is held, or not sure of itself.
    pub rests: bool,
    /// The term in which it is not sure of itself: it serves in a later one only.
    pub doubted: Option<u64>,
    /// True if it may make history yet, as durable writes are under way.
    pub is_busy: bool,
    /// True if its node knows that it is held, so that requests for it wait there. One that does not know sends clients
    /// away that come too early, and they take their time to come back.
    pub is_known_held: bool,
}

impl Standing {
    /// Greater is better.
    fn rank(&self) -> (u64, u64, u64) {
        (self.term, self.prepared, self.high_seqno)
    }

    /// Returns true if the copy, as the active one of `chain`, serves nobody before something else is decided. A copy
    /// that does not serve yet may only have to learn the decision.
    fn is_at_rest(&self, chain: &Chain) -> bool {
        let is_held = chain.held && self.term >= chain.term;
        self.rests && (is_held || self.doubted >= Some(chain.term))
    }
}

/// Knowledge of an active copy about its move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Joint {
    /// As in [`Chain::next`](crate::Chain::next).
    pub next: Vec<Option<NodeId>>,
    /// Writes after this seqno count as durable only if they are in `next` as well.
    pub from: u64,
    /// Up to this seqno, writes count because the active copy has stored them: its successor must have stored them too.
    pub stored: u64,
}

/// An effect that the caller carries out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send a message; perhaps to this very node.
    Send(NodeId, Message),
    /// Propose a change. It may be refused, when somebody else was faster.
    Propose(Change),
}

/// See the [module](self).
#[derive(Debug)]
pub struct Orchestrator {
    me: NodeId,
    /// Number of starts of the node, including this one.
    start: u64,
    heard: BTreeMap<NodeId, u64>,
    granted: BTreeMap<NodeId, u64>,
    doubted: BTreeMap<NodeId, BTreeMap<String, Vec<u16>>>,
    /// Term in which this node leads, and the time since when no other node has led.
    leads: Option<(u64, u64)>,
    polls: u64,
    fence: Fence,
    /// Nodes whose replacement was proposed, until the outcome is known.
    proposed: BTreeSet<NodeId>,
    failover: Option<Poll>,
    moving: Option<Poll>,
    /// The id of the last rebalance, and when more vBuckets may begin to move in it.
    move_at: (String, u64),
    /// The id of the rebalance that is pending, and when it is begun again.
    retry_at: Option<(String, u64)>,
    /// vBuckets that are held, or were in vain: by bucket and number.
    holds: BTreeMap<(String, u16), Hold>,
    /// True if some client does not follow the map.
    is_unheeded: bool,
    /// Before this moment no map is renewed.
    renew_at: u64,
}

impl Orchestrator {
    /// Creates the orchestrator of node `me` at its `start`th start. It has heard no node yet.
    pub fn new(me: NodeId, start: u64) -> Orchestrator {
        Orchestrator {
            me,
            start,
            heard: BTreeMap::new(),
            granted: BTreeMap::new(),
            doubted: BTreeMap::new(),
            leads: None,
            polls: 0,
            fence: Fence::default(),
            proposed: BTreeSet::new(),
            failover: None,
            moving: None,
            move_at: (String::new(), 0),
            retry_at: None,
            holds: BTreeMap::new(),
            is_unheeded: false,
            renew_at: 0,
        }
    }

    /// The node that it is of.
    pub fn me(&self) -> NodeId {
        self.me
    }

    /// When `node` was heard last, in monotonic nanoseconds.
    pub fn heard(&self, node: NodeId) -> Option<u64> {
        self.heard.get(&node).copied()
    }

    /// When the next [tick](Orchestrator::tick) is due, in nanoseconds from the one before.
    pub fn pause_ns(&self) -> u64 {
        let is_held = self.holds.values().any(|hold| matches!(hold, Hold::Since(_)));
        if is_held { HURRY_NS } else { TICK_NS }
    }

    /// Nodes without whose answer nothing goes on, as they have not said for long how far their copies are.
    pub fn late(&self, now: u64) -> BTreeSet<NodeId> {
        let polls = [&self.failover, &self.moving].into_iter().flatten();
        polls.flat_map(|poll| poll.late(ANSWER_NS_MAX, now)).collect()
    }

    /// Takes in a message that is for the leader. Returns the answer, if there is one. `leads`: as for
    /// [`tick`](Orchestrator::tick).
    pub fn hear(
        &mut self,
        from: NodeId,
        message: Message,
        cluster: &Cluster,
        leads: Option<Leadership>,
        now: u64,
    ) -> Option<Message> {
        match message {
            Message::Ask { at, start, doubted, unheeded } => {
                self.heard.insert(from, now);
                self.is_unheeded |= unheeded != 0 && unheeded == cluster.rev;
                self.doubted.insert(from, doubted);
                let is_lost = self.fence.lost.contains(&from);
                let serves = cluster.nodes.get(&from)?.membership != Membership::FailedOver;
                // The last tick may be of long ago, and others may have led since.
                let leads = current(leads, now)?;
                let is_known = self.leads.is_some_and(|(term, _)| term == leads.term);
                if !is_known || is_lost || !serves {
                    return None;
                }
                self.granted.insert(from, now);
                let for_ns = LEASE_NS - now.saturating_sub(leads.confirmed_ns);
                let (rev, fence) = (cluster.rev, self.fence.clone());
                Some(Message::Grant { at, start, for_ns, rev, fence })
            }
            Message::Report { number, rev, standings } => {
                let polls = [&mut self.failover, &mut self.moving];
                let poll = polls.into_iter().flatten().find(|poll| poll.number == number)?;
                poll.answers.insert(from, Answer { rev, standings });
                None
            }
            Message::Grant { .. } | Message::Poll { .. } => None,
        }
    }

    /// Returns what to do now. `leads`: this node's certain knowledge of its leadership, if it leads.
    pub fn tick(&mut self, cluster: &Cluster, leads: Option<Leadership>, now: u64) -> Vec<Effect> {
        let leads = current(leads, now);
        if self.leads.map(|(term, _)| term) != leads.map(|leads| leads.term) {
            self.leads = leads.map(|leads| (leads.term, leads.confirmed_ns));
            (self.failover, self.moving) = (None, None);
            self.proposed.clear();
            self.retry_at = None;
            self.holds.clear();
            self.is_unheeded = false;
            // Messages from before this term may be old: every node gets its full time again.
            self.heard = cluster.nodes.keys().map(|node| (*node, now)).collect();
        }
        let Some((_, since)) = self.leads else { return Vec::new() };
        self.heard.insert(self.me, now);
        let mut effects = Vec::new();
        self.replace_lost(cluster, since, now, &mut effects);
        // The open proposal may be the end of a rebalance.
        if self.failover.is_none() && effects.is_empty() {
            self.rebalance(cluster, now, &mut effects);
            self.begin_again(cluster, now, &mut effects);
        }
        // A map is not renewed where the next is on its way.
        if std::mem::take(&mut self.is_unheeded) && effects.is_empty() && now >= self.renew_at {
            self.renew_at = now + RENEW_PAUSE_NS;
            effects.push(Effect::Propose(Change::Nodes(NodeChange::RenewMap)));
        }
        effects
    }

    /// Called when the outcome of the last proposal is known: it was made, or refused.
    pub fn settled(&mut self) {
        self.proposed.clear();
    }

    /// Says of these nodes that they are lost, and of no other.
    fn fence(&mut self, lost: &BTreeSet<NodeId>, cluster: &Cluster, now: u64) {
        let term = self.leads.map_or(0, |(term, _)| term);
        let Said { regroups, term: of, at, .. } = self.fence.said;
        if (regroups, of) != (cluster.regroups, term) || self.fence.lost != *lost {
            let (regroups, start) = (cluster.regroups, self.start);
            let said = Said { regroups, term, start, at: now.max(at + 1) };
            self.fence = Fence { said, rev: cluster.rev, lost: lost.clone() };
        }
    }

    /// Creates a poll of all nodes except `lost` that have one of the copies, or are about to.
    fn poll(
        &mut self,
        cluster: &Cluster,
        lost: BTreeSet<NodeId>,
        wanted: BTreeMap<String, BTreeSet<u16>>,
    ) -> Poll {
        self.polls += 1;
        // A node without a copy has nothing to report, and may be gone for good.
        let chains = wanted.iter().flat_map(|(name, vbids)| {
            let chains = &cluster.buckets[name].chains;
            vbids.iter().map(|vbid| &chains[usize::from(*vbid)])
        });
        let holders = chains.flat_map(|chain| chain.copies.iter().chain(&chain.next).flatten());
        let asked = holders.copied().filter(|node| !lost.contains(node)).collect();
        // Not to be mistaken for one of a leader before, nor of a process before.
        let number = self.me.0 << 48 | (self.start & 0xffff) << 32 | self.polls;
        Poll::new(number, lost, wanted, asked)
    }
}

/// Returns the leadership, unless its confirmation is too old.
fn current(leads: Option<Leadership>, now: u64) -> Option<Leadership> {
    leads.filter(|leads| now.saturating_sub(leads.confirmed_ns) <= SILENCE_NS_MAX)
}

/// Returns true if nodes need a lease to serve: a quorum can be without one of them.
pub fn needs_leases(cluster: &Cluster) -> bool {
    cluster.nodes.len() > 2
}

#[cfg(test)]
mod tests;
