//! Who looks after the copies: notices nodes that are gone, has others take their place, and moves copies in a rebalance.
//!
//! Every node runs an [`Orchestrator`]; only that of the leader decides. It is level-triggered: each [tick] compares the
//! agreed state with what the nodes report, and proposes the next change. It keeps nothing that its successor would miss.
//!
//! ```text
//!  every node ── Ask { at } ──► the leader            "I am here", a few times a second
//!             ◄── Grant { at } ──                     "serve until at + LEASE" by the asker's own clock
//!  the leader ── Poll ──► nodes ── Report ──►         how far each copy is; who is polled about lost nodes follows them no more
//!             ── Change::MoveCopies ──► all            who serves from now on
//! ```
//!
//! A node that cannot reach the leader stops serving when its lease ends. The leader replaces a node only after the last
//! lease that it granted has ended, and a new leader only after any lease of its predecessor has; so two nodes never
//! serve a vBucket at once. A lease ends [`LEASE_NS`] after a quorum followed the leader for sure, however late the leader
//! grants it: it may have slept meanwhile. Where fewer than three nodes vote, no quorum can be without a node, and none
//! needs a lease.
//!
//! Nobody follows a lost node from when they have said how far their copies are until they know what was decided: what a copy
//! acknowledged meanwhile, the one that is chosen may lack. So the leader's word about lost nodes, a [`Fence`], is taken back by
//! a later one alone, and only by those who know all that was decided before that. Nobody follows anybody before the first, as
//! the process before may have answered; and what a leader decides holds only while it leads.
//!
//! Of the copies that are left, the best serves: the last term that it had all of, then what it acknowledged, then the
//! length of its history. One answer of a node with a copy missing, and nothing is decided; nor is a silent node replaced
//! where no copy that is left has all of the present term's beginning: acknowledged writes may be on that node alone. Nor
//! is the place of a copy taken that is to serve and does not, unless it knows that and will not by itself.
//! Source: vertical replication with an external chooser, as in the rules of failover for durable writes.
//!
//! [tick]: Orchestrator::tick

mod failover;
mod poll;
mod rebalance;

use crate::{Chain, Change, Cluster, Membership};
use nacre_types::NodeId;
use poll::{Answer, Poll};
use rebalance::Hold;
pub use rebalance::MOVES_MAX;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

const MS: u64 = 1_000_000;
/// How long a node may serve after it asked, by its own clock: longer than the nodes take to find another leader. It is also
/// most of the time that a lost node's documents are not served.
pub const LEASE_NS: u64 = 1800 * MS;
/// How often a node asks, and how often a decision is due at least.
pub const TICK_NS: u64 = 100 * MS;
/// How often a decision is due while writers wait for it.
const HURRY_NS: u64 = 5 * MS;
/// How long nodes may take to say how far their copies are before it is worth a word that nothing goes on without them.
const ANSWER_NS_MAX: u64 = 5000 * MS;
/// How long a map counts as new to those who did not follow the one before: clients that never follow any are not to have all
/// others read maps.
const RENEW_PAUSE_NS: u64 = 10_000 * MS;
/// How long a leader may have heard of no quorum and still decide.
const SILENCE_NS_MAX: u64 = 1000 * MS;

/// What a node knows for sure of its leading the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leadership {
    /// Which: no two nodes lead in the same term.
    pub term: u64,
    /// When the node, which led already, began to ask, by its monotonic clock, where a quorum has then said that they follow
    /// it. Nobody else leads any more from then on for sure, and it knows all that was decided before.
    pub confirmed_ns: u64,
}

/// What nodes tell each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// I am here.
    Ask {
        /// When this was sent, by the sender's monotonic clock.
        at: u64,
        /// How often the sender was started: the clock begins again each time.
        start: u64,
        /// vBuckets that the sender is to serve and does not, by bucket: it may have lost the end of their history.
        doubted: BTreeMap<String, Vec<u16>>,
        /// The revision of a map that a client was given there again and again and does not follow; 0 if there is none.
        unheeded: u64,
    },
    /// You may serve for so long from `at` on, once you know the agreed state up to `rev`.
    Grant {
        /// As the question had it.
        at: u64,
        /// The same: it may have been asked by a process that is gone, as messages wait for a node to be back.
        start: u64,
        /// In nanoseconds; at most [`LEASE_NS`].
        for_ns: u64,
        /// The revision of the agreed state.
        rev: u64,
        /// Whom not to follow.
        fence: Fence,
    },
    /// How far are your copies, now that you follow lost nodes no more?
    Poll {
        /// Comes back with the report.
        number: u64,
        /// Whom not to follow.
        fence: Fence,
        /// vBuckets, by bucket.
        wanted: BTreeMap<String, Vec<u16>>,
    },
    /// So far.
    Report {
        /// Of the poll.
        number: u64,
        /// Up to which revision of the agreed state its node had done what follows from that, before it looked.
        rev: u64,
        /// By bucket, then by vBucket.
        standings: BTreeMap<String, BTreeMap<u16, Standing>>,
    },
}

/// What a leader says of nodes that are about to be replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fence {
    /// Since when it says so.
    pub said: Said,
    /// Who is not lost any more may be followed by those who know the agreed state up to this revision.
    pub rev: u64,
    /// Not to be followed.
    pub lost: BTreeSet<NodeId>,
}

/// When a leader said something: what is greater is later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Said {
    /// How often the cluster had [regrouped](Cluster::regroups).
    pub regroups: u64,
    /// In which term the leader leads.
    pub term: u64,
    /// How often the leader was started: it may lead on in its term afterwards, with another clock.
    pub start: u64,
    /// By its monotonic clock.
    pub at: u64,
}

/// How good a copy is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// The last term that it has all of.
    pub term: u64,
    /// What it has acknowledged, or would.
    pub prepared: u64,
    /// The end of its history.
    pub high_seqno: u64,
    /// What of that is stored, where it is to be, up to the end of a snapshot.
    pub persisted: u64,
    /// Of the active copy while it moves.
    pub joint: Option<Joint>,
    /// Whether it takes no more writes, though it is the active copy: it is held, or not sure of itself.
    pub rests: bool,
    /// The term in which it is not sure of itself: it serves in a later one only.
    pub doubted: Option<u64>,
    /// Whether it may make history yet, as durable writes are under way.
    pub is_busy: bool,
    /// Whether its node knows that it is held, so that requests for it wait there. One that does not know sends clients away that
    /// come too early, and they take their time to come back.
    pub is_known_held: bool,
}

impl Standing {
    /// Greater is better.
    fn rank(&self) -> (u64, u64, u64) {
        (self.term, self.prepared, self.high_seqno)
    }

    /// Whether the copy serves nobody as the active one of `chain` before something else is decided. One that does not serve yet
    /// may only have to learn that it is to.
    fn is_at_rest(&self, chain: &Chain) -> bool {
        let is_held = chain.held && self.term >= chain.term;
        self.rests && (is_held || self.doubted >= Some(chain.term))
    }
}

/// What an active copy knows of where it moves to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Joint {
    /// As in [`Chain::next`](crate::Chain::next).
    pub next: Vec<Option<NodeId>>,
    /// What comes after this seqno counts as durable only where it is in `next` as well.
    pub from: u64,
    /// What counts up to this seqno because the active copy has stored it has to be stored by who takes its place.
    pub stored: u64,
}

/// What is to be done.
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
    /// How often the node was started, this time included.
    start: u64,
    heard: BTreeMap<NodeId, u64>,
    granted: BTreeMap<NodeId, u64>,
    doubted: BTreeMap<NodeId, BTreeMap<String, Vec<u16>>>,
    /// In which term this node leads, and since when nobody else did for sure.
    leads: Option<(u64, u64)>,
    polls: u64,
    fence: Fence,
    /// Nodes whose replacement was proposed, as long as nobody knows what came of that.
    proposed: BTreeSet<NodeId>,
    failover: Option<Poll>,
    moving: Option<Poll>,
    /// The id of the last rebalance, and when more vBuckets may begin to move in it.
    move_at: (String, u64),
    /// The id of the rebalance that is pending, and when it is begun again.
    retry_at: Option<(String, u64)>,
    /// vBuckets that are held, or were in vain: by bucket and number.
    holds: BTreeMap<(String, u16), Hold>,
    /// Whether some client does not follow the map.
    is_unheeded: bool,
    /// Before this moment no map is renewed.
    renew_at: u64,
}

impl Orchestrator {
    /// Of node `me`, which was started for the `start`th time and has heard of nobody yet.
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

    /// Takes in a message that is for the leader; gives the answer, if there is one. `leads`: as for
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

    /// Decides what is to be done now. `leads`: what this node knows of its leading the others, if it does.
    pub fn tick(&mut self, cluster: &Cluster, leads: Option<Leadership>, now: u64) -> Vec<Effect> {
        let leads = current(leads, now);
        if self.leads.map(|(term, _)| term) != leads.map(|leads| leads.term) {
            self.leads = leads.map(|leads| (leads.term, leads.confirmed_ns));
            (self.failover, self.moving) = (None, None);
            self.proposed.clear();
            self.retry_at = None;
            self.holds.clear();
            self.is_unheeded = false;
            // What was heard before may be of long ago.
            self.heard = cluster.nodes.keys().map(|node| (*node, now)).collect();
        }
        let Some((_, since)) = self.leads else { return Vec::new() };
        self.heard.insert(self.me, now);
        let mut effects = Vec::new();
        self.replace_lost(cluster, since, now, &mut effects);
        // What is proposed already may be the end of a rebalance.
        if self.failover.is_none() && effects.is_empty() {
            self.rebalance(cluster, now, &mut effects);
            self.begin_again(cluster, now, &mut effects);
        }
        // A map is not renewed where the next is on its way.
        if std::mem::take(&mut self.is_unheeded) && effects.is_empty() && now >= self.renew_at {
            self.renew_at = now + RENEW_PAUSE_NS;
            effects.push(Effect::Propose(Change::RenewMap));
        }
        effects
    }

    /// It is known what came of the replacement that was proposed last: it was made, or refused.
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

    /// A question about copies that was not asked before, to those who have one, or are about to, but for `lost`.
    fn poll(
        &mut self,
        cluster: &Cluster,
        lost: BTreeSet<NodeId>,
        wanted: BTreeMap<String, BTreeSet<u16>>,
    ) -> Poll {
        self.polls += 1;
        // Whoever has none has nothing to say, and may be gone for good.
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

/// What is known of leading, unless it is too old.
fn current(leads: Option<Leadership>, now: u64) -> Option<Leadership> {
    leads.filter(|leads| now.saturating_sub(leads.confirmed_ns) <= SILENCE_NS_MAX)
}

/// Whether nodes need a lease to serve: a quorum can be without one of them.
pub fn needs_leases(cluster: &Cluster) -> bool {
    cluster.nodes.len() > 2
}

#[cfg(test)]
mod tests;
