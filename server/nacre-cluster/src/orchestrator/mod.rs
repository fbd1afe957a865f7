//! The orchestrator of copies: detects lost nodes, fails over to other copies, and moves copies in a rebalance.
//!
//! Every node runs an [`Orchestrator`]; only that of the leader decides. It is level-triggered: each [tick] compares the
//! agreed state with the nodes' reports, and proposes the next change. It keeps no state that its successor would miss.
//!
//! ```text
//!  every node ── Ask { at } ──► the leader            "I am here", a few times a second
//!             ◄── Grant { at } ──                     "serve until at + LEASE" by the asker's own clock
//!  the leader ── Poll ──► nodes ── Report ──►         progress of each copy; a polled node stops following the lost nodes
//!             ── NodeChange::MoveCopies ──► all           the new active copies
//! ```
//!
//! A node that cannot reach the leader stops serving when its lease ends. The leader fails a node over only after the
//! last lease that it granted has ended, and a new leader only after any lease of its predecessor has ended; so two
//! nodes never serve a vBucket at the same time. A lease ends [`LEASE_NS`] after the last time at which a quorum
//! certainly followed the leader, however late the leader grants it, because the leader's process may have been
//! suspended in between. With fewer than three voters every quorum contains every node, and no node needs a lease.
//!
//! A node that has reported its copies does not follow a lost node until it knows the decision. Otherwise, a copy could
//! acknowledge a write that the chosen copy lacks. Therefore only a later [`Fence`] lifts an earlier one, and only on
//! nodes that know everything decided before it. After a restart a node follows no other node before its first fence,
//! because its previous process may have answered a poll. A decision of a leader counts only while it leads.
//!
//! The best remaining copy becomes active. Copies are compared by the last term of which they are complete, then by
//! their acknowledged seqno, then by the length of their history. Nothing is decided while the report of a node with a
//! copy is missing. A silent node is not failed over if no remaining copy has everything before the current term,
//! because acknowledged writes may exist on that node alone. An active copy that does not serve is replaced only if it
//! reports that it will not serve on its own. Source: vertical replication with an external chooser, as in the failover
//! rules for durable writes.
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
/// How long a node may serve after its question, by its own clock. Longer than an election, and most of the time for
/// which the documents of a lost node are unavailable.
pub const LEASE_NS: u64 = 1800 * MS;
/// Interval of the questions, and the maximum interval between decisions.
pub const TICK_NS: u64 = 100 * MS;
/// Interval between decisions while writers wait for one.
const HURRY_NS: u64 = 5 * MS;
/// Time without a report after which the log names the nodes that block progress.
const ANSWER_NS_MAX: u64 = 5000 * MS;
/// Pause between two renewals of the map: a client that never adopts any map must not make all others read new maps.
const RENEW_PAUSE_NS: u64 = 10_000 * MS;
/// Maximum age of the leader's last confirmation by a quorum.
const SILENCE_NS_MAX: u64 = 1000 * MS;

/// A node's confirmed knowledge of its leadership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leadership {
    /// The term. No two nodes lead in the same term.
    pub term: u64,
    /// Monotonic time at which the node, already leading, began to ask a quorum that then confirmed to follow it. No
    /// other node has led since, and this node knows everything that was decided before.
    pub confirmed_ns: u64,
}

/// Messages between nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// A sign of life, which asks for a lease.
    Ask {
        /// Time of sending, by the sender's monotonic clock.
        at: u64,
        /// Number of the sender's starts: its clock restarts with each.
        start: u64,
        /// vBuckets that the sender should serve but does not, by bucket, because it may have lost the end of their
        /// history.
        in_doubt: BTreeMap<String, Vec<u16>>,
        /// The revision of a map that a client received repeatedly without adopting it; 0 for none.
        ignored_map_rev: u64,
    },
    /// Grants a lease from `at` on, once the receiver knows the agreed state up to `rev`.
    Grant {
        /// `at` of the question.
        at: u64,
        /// `start` of the question. Messages wait for a node to return, so the question may come from a process that
        /// has ended.
        start: u64,
        /// Length of the lease in nanoseconds; at most [`LEASE_NS`].
        for_ns: u64,
        /// The revision of the agreed state.
        rev: u64,
        /// Nodes that must not be followed.
        fence: Fence,
    },
    /// Asks for the progress of copies, after the receiving node has stopped following lost nodes.
    Poll {
        /// Identifies the poll in the report.
        number: u64,
        /// Nodes that must not be followed.
        fence: Fence,
        /// vBuckets, by bucket.
        wanted: BTreeMap<String, Vec<u16>>,
    },
    /// Answers a poll.
    Report {
        /// Number of the poll.
        number: u64,
        /// Revision of the agreed state that the node had applied before it read its copies.
        rev: u64,
        /// Standings by bucket and vBucket.
        standings: BTreeMap<String, BTreeMap<u16, Standing>>,
    },
}

/// A leader's order not to follow nodes that are about to be failed over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fence {
    /// When the leader gave the order.
    pub epoch: FenceEpoch,
    /// Nodes that know the agreed state up to this revision may again follow a node that is no longer lost.
    pub rev: u64,
    /// Nodes that must not be followed.
    pub lost: BTreeSet<NodeId>,
}

/// The logical time of a leader's order. A greater value is later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FenceEpoch {
    /// The cluster's [regroups](Cluster::regroups).
    pub regroups: u64,
    /// The term of the leader.
    pub term: u64,
    /// Number of the leader's starts: after a restart it may continue to lead in its term, with another clock.
    pub start: u64,
    /// The leader's monotonic time.
    pub at: u64,
}

/// The progress of a copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// The last term of which the copy is complete.
    pub term: u64,
    /// The seqno that the copy has acknowledged, or would acknowledge.
    pub prepared: u64,
    /// The last seqno of its history.
    pub high_seqno: u64,
    /// The end of the history that is persisted as its writes require, at the end of a snapshot.
    pub persisted: u64,
    /// State of an active copy's move, while it moves.
    pub joint: Option<Joint>,
    /// True if the active copy refuses writes because it is held or in doubt.
    pub rests: bool,
    /// The term in which the copy is in doubt: it serves only in a later term.
    pub in_doubt_term: Option<u64>,
    /// True if its history may still grow, because durable writes are in progress.
    pub is_busy: bool,
    /// True if its node knows that the vBucket is held, so that requests wait there. A node without that knowledge
    /// rejects clients that come too early, and they return only after a pause.
    pub is_known_held: bool,
}

impl Standing {
    /// Returns the rank; a greater rank is better.
    fn rank(&self) -> (u64, u64, u64) {
        (self.term, self.prepared, self.high_seqno)
    }

    /// Returns true if the copy, as the active one of `chain`, serves no request before the next decision. A copy that
    /// merely does not serve yet may only lack the decision.
    fn is_at_rest(&self, chain: &Chain) -> bool {
        let is_held = chain.held && self.term >= chain.term;
        self.rests && (is_held || self.in_doubt_term >= Some(chain.term))
    }
}

/// An active copy's knowledge of its move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Joint {
    /// As in [`Chain::next`](crate::Chain::next).
    pub next: Vec<Option<NodeId>>,
    /// Durable writes after this seqno also need a majority of `next`.
    pub from: u64,
    /// Writes up to this seqno count because the active copy has persisted them, so its successor must have persisted
    /// them too.
    pub stored: u64,
}

/// An effect that the caller carries out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Sends a message, possibly to this node itself.
    Send(NodeId, Message),
    /// Proposes a change. It may be refused if another change was faster.
    Propose(Change),
}

/// See the [module](self).
#[derive(Debug)]
pub struct Orchestrator {
    me: NodeId,
    /// Number of starts of the node, including the current one.
    start: u64,
    last_contact: BTreeMap<NodeId, u64>,
    granted: BTreeMap<NodeId, u64>,
    in_doubt: BTreeMap<NodeId, BTreeMap<String, Vec<u16>>>,
    /// The term in which this node leads, and the time since which no other node has led.
    leads: Option<(u64, u64)>,
    polls: u64,
    fence: Fence,
    /// Nodes in an undecided failover proposal.
    proposed: BTreeSet<NodeId>,
    failover: Option<Poll>,
    moving: Option<Poll>,
    /// ID of the last rebalance, and the time at which more of its vBuckets may begin to move.
    move_at: (String, u64),
    /// ID of the pending rebalance, and the time of its retry.
    retry_at: Option<(String, u64)>,
    /// vBuckets that are held, or whose hold has failed, by bucket and number.
    holds: BTreeMap<(String, u16), Hold>,
    /// True if a client does not adopt the map.
    is_map_ignored: bool,
    /// Time before which the map is not renewed.
    renew_at: u64,
}

impl Orchestrator {
    /// Creates the orchestrator of node `me` for its `start`th start. It has heard no node yet.
    pub fn new(me: NodeId, start: u64) -> Orchestrator {
        Orchestrator {
            me,
            start,
            last_contact: BTreeMap::new(),
            granted: BTreeMap::new(),
            in_doubt: BTreeMap::new(),
            leads: None,
            polls: 0,
            fence: Fence::default(),
            proposed: BTreeSet::new(),
            failover: None,
            moving: None,
            move_at: (String::new(), 0),
            retry_at: None,
            holds: BTreeMap::new(),
            is_map_ignored: false,
            renew_at: 0,
        }
    }

    /// Returns the node's ID.
    pub fn me(&self) -> NodeId {
        self.me
    }

    /// Returns when `node` was heard last, in monotonic nanoseconds.
    pub fn last_contact(&self, node: NodeId) -> Option<u64> {
        self.last_contact.get(&node).copied()
    }

    /// Returns the time until the next [tick](Orchestrator::tick), in nanoseconds after the previous one.
    pub fn pause_ns(&self) -> u64 {
        let is_held = self.holds.values().any(|hold| matches!(hold, Hold::Since(_)));
        if is_held { HURRY_NS } else { TICK_NS }
    }

    /// Returns the nodes that block progress because they have not reported their copies for long.
    pub fn late(&self, now: u64) -> BTreeSet<NodeId> {
        let polls = [&self.failover, &self.moving].into_iter().flatten();
        polls.flat_map(|poll| poll.late(ANSWER_NS_MAX, now)).collect()
    }

    /// Handles a message for the leader. Returns the answer, if there is one. `leads` is as for
    /// [`tick`](Orchestrator::tick).
    pub fn receive(
        &mut self,
        from: NodeId,
        message: Message,
        cluster: &Cluster,
        leads: Option<Leadership>,
        now: u64,
    ) -> Option<Message> {
        match message {
            Message::Ask { at, start, in_doubt, ignored_map_rev } => {
                self.last_contact.insert(from, now);
                self.is_map_ignored |= ignored_map_rev != 0 && ignored_map_rev == cluster.rev;
                self.in_doubt.insert(from, in_doubt);
                let is_lost = self.fence.lost.contains(&from);
                let serves = cluster.nodes.get(&from)?.membership != Membership::FailedOver;
                // The last tick may be long ago, and other nodes may have led since.
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

    /// Returns the next effects. `leads` is this node's confirmed leadership, if it leads.
    pub fn tick(&mut self, cluster: &Cluster, leads: Option<Leadership>, now: u64) -> Vec<Effect> {
        let leads = current(leads, now);
        if self.leads.map(|(term, _)| term) != leads.map(|leads| leads.term) {
            self.leads = leads.map(|leads| (leads.term, leads.confirmed_ns));
            (self.failover, self.moving) = (None, None);
            self.proposed.clear();
            self.retry_at = None;
            self.holds.clear();
            self.is_map_ignored = false;
            // Messages from before this term may be old, so every node gets its full timeout again.
            self.last_contact = cluster.nodes.keys().map(|node| (*node, now)).collect();
        }
        let Some((_, since)) = self.leads else { return Vec::new() };
        self.last_contact.insert(self.me, now);
        let mut effects = Vec::new();
        self.replace_lost(cluster, since, now, &mut effects);
        // The undecided proposal may end a rebalance.
        if self.failover.is_none() && effects.is_empty() {
            self.rebalance(cluster, now, &mut effects);
            self.begin_again(cluster, now, &mut effects);
        }
        // The map is not renewed if another change is about to be proposed.
        if std::mem::take(&mut self.is_map_ignored) && effects.is_empty() && now >= self.renew_at {
            self.renew_at = now + RENEW_PAUSE_NS;
            effects.push(Effect::Propose(Change::Nodes(NodeChange::RenewMap)));
        }
        effects
    }

    /// Records that the outcome of the last proposal is known: it was accepted or refused.
    pub fn settled(&mut self) {
        self.proposed.clear();
    }

    /// Sets the fence to exactly these lost nodes.
    fn fence(&mut self, lost: &BTreeSet<NodeId>, cluster: &Cluster, now: u64) {
        let term = self.leads.map_or(0, |(term, _)| term);
        let FenceEpoch { regroups, term: of, at, .. } = self.fence.epoch;
        if (regroups, of) != (cluster.regroups, term) || self.fence.lost != *lost {
            let (regroups, start) = (cluster.regroups, self.start);
            let epoch = FenceEpoch { regroups, term, start, at: now.max(at + 1) };
            self.fence = Fence { epoch, rev: cluster.rev, lost: lost.clone() };
        }
    }

    /// Creates a poll of all nodes except `lost` that hold a wanted copy or will hold one.
    fn poll(
        &mut self,
        cluster: &Cluster,
        lost: BTreeSet<NodeId>,
        wanted: BTreeMap<String, BTreeSet<u16>>,
    ) -> Poll {
        self.polls += 1;
        // A node without a copy has nothing to report, and may be lost for good.
        let chains = wanted.iter().flat_map(|(name, vbids)| {
            let chains = &cluster.buckets[name].chains;
            vbids.iter().map(|vbid| &chains[usize::from(*vbid)])
        });
        let holders = chains.flat_map(|chain| chain.copies.iter().chain(&chain.next).flatten());
        let asked = holders.copied().filter(|node| !lost.contains(node)).collect();
        // Unique among the polls of earlier leaders and processes.
        let number = self.me.0 << 48 | (self.start & 0xffff) << 32 | self.polls;
        Poll::new(number, lost, wanted, asked)
    }
}

/// Returns the leadership, unless its confirmation is too old.
fn current(leads: Option<Leadership>, now: u64) -> Option<Leadership> {
    leads.filter(|leads| now.saturating_sub(leads.confirmed_ns) <= SILENCE_NS_MAX)
}

/// Returns true if nodes need a lease to serve, because a quorum may lack one of them.
pub fn needs_leases(cluster: &Cluster) -> bool {
    cluster.nodes.len() > 2
}

#[cfg(test)]
mod tests;
