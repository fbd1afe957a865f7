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
//! Of the copies that are left, the best serves: the last term that it had all of, then what it acknowledged, then the
//! length of its history. One answer missing, and nothing is decided; nor is a silent node replaced where no copy that is
//! left has all of the present term's beginning: acknowledged writes may be on that node alone. Source: vertical replication with an external
//! chooser, as in the rules of failover for durable writes.
//!
//! [tick]: Orchestrator::tick

use crate::{Chain, Change, Cluster, Copies, Member, Membership, place};
use nacre_types::NodeId;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

const MS: u64 = 1_000_000;
/// How long a node may serve after it asked, by its own clock: longer than the nodes take to find another leader. It is also
/// most of the time that a lost node's documents are not served.
pub const LEASE_NS: u64 = 2000 * MS;
/// How long the leader takes a lease to last: clocks may differ in speed.
const LEASE_KEPT_NS: u64 = LEASE_NS + LEASE_NS / 4;
/// How often a node asks, and how often a decision is due at least.
pub const TICK_NS: u64 = 100 * MS;
/// How often a decision is due while writers wait for it.
const HURRY_NS: u64 = 5 * MS;
/// When a poll that is not answered is sent again.
const POLL_AGAIN_NS: u64 = 300 * MS;
/// vBuckets of a bucket that change their active copy at once in a rebalance.
const HAND_OVERS_MAX: usize = MOVES_MAX / 2;
/// How long nobody may write to a vBucket, since it is handed over.
const HOLD_NS_MAX: u64 = 1000 * MS;
/// How long writers are left alone after that.
const HOLD_AGAIN_NS: u64 = 5000 * MS;
/// How long a leader may have heard of no quorum and still decide.
const SILENCE_NS_MAX: u64 = 1000 * MS;
/// How far a copy may be behind to count as caught up while the active one is written to, in seqnos.
const LAG_MAX: u64 = 256;
/// vBuckets of a bucket that get new copies at once in a rebalance.
const MOVES_MAX: usize = 64;
/// Between those and the next: what is not moved at once leaves the processors, and the clients who have to learn each map,
/// time for the requests.
const MOVES_PAUSE_NS: u64 = 100 * MS;

/// What a node knows for sure of its leading the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leadership {
    /// Which: no two nodes lead in the same term.
    pub term: u64,
    /// When the node began to ask, by its monotonic clock, where a quorum has then said that they follow it. It knows all
    /// that was decided before.
    pub confirmed_ns: u64,
}

/// What nodes tell each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// I am here.
    Ask {
        /// When this was sent, by the sender's monotonic clock.
        at: u64,
        /// vBuckets that the sender is to serve and does not, by bucket: it may have lost the end of their history.
        doubted: BTreeMap<String, Vec<u16>>,
    },
    /// You may serve for so long from `at` on, once you know the agreed state up to `rev`.
    Grant {
        /// As the question had it.
        at: u64,
        /// In nanoseconds; at most [`LEASE_NS`].
        for_ns: u64,
        /// The revision of the agreed state.
        rev: u64,
        /// Nodes that are about to be replaced, and not to be followed.
        lost: Vec<NodeId>,
    },
    /// How far are your copies? Do not follow `lost` any more.
    Poll {
        /// Comes back with the report.
        number: u64,
        /// Nodes that are about to be replaced.
        lost: Vec<NodeId>,
        /// vBuckets, by bucket.
        wanted: BTreeMap<String, Vec<u16>>,
    },
    /// So far.
    Report {
        /// Of the poll.
        number: u64,
        /// By bucket, then by vBucket.
        standings: BTreeMap<String, BTreeMap<u16, Standing>>,
    },
}

/// How good a copy is: greater is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Standing {
    /// The last term that it has all of.
    pub term: u64,
    /// What it has acknowledged, or would.
    pub prepared: u64,
    /// The end of its history.
    pub high_seqno: u64,
    /// Whether it takes no more writes, though it is the active copy: it is held, or not sure of itself.
    pub rests: bool,
    /// Whether it may make history yet, as durable writes are under way.
    #[serde(default)]
    pub is_busy: bool,
    /// Whether its node knows that it is held, so that requests for it wait there. One that does not know sends clients away that
    /// come too early, and they take their time to come back.
    #[serde(default = "known")]
    pub is_known_held: bool,
}

/// Nodes of before this was said were not asked for it.
fn known() -> bool {
    true
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send a message; perhaps to this very node.
    Send(NodeId, Message),
    /// Propose a change. It may be refused, when somebody else was faster.
    Propose(Change),
}

/// A question to several nodes, and their answers.
#[derive(Debug, Default)]
struct Poll {
    number: u64,
    sent_at: u64,
    lost: BTreeSet<NodeId>,
    wanted: BTreeMap<String, BTreeSet<u16>>,
    asked: BTreeSet<NodeId>,
    answers: BTreeMap<NodeId, BTreeMap<String, BTreeMap<u16, Standing>>>,
}

impl Poll {
    fn is_answered(&self) -> bool {
        self.asked.iter().all(|node| self.answers.contains_key(node))
    }

    fn standing(&self, node: NodeId, bucket: &str, vbid: u16) -> Option<Standing> {
        self.answers.get(&node)?.get(bucket)?.get(&vbid).copied()
    }
}

/// See the [module](self).
#[derive(Debug)]
pub struct Orchestrator {
    me: NodeId,
    heard: BTreeMap<NodeId, u64>,
    granted: BTreeMap<NodeId, u64>,
    doubted: BTreeMap<NodeId, BTreeMap<String, Vec<u16>>>,
    /// In which term this node leads, and since when.
    leads: Option<(u64, u64)>,
    polls: u64,
    failover: Option<Poll>,
    moving: Option<Poll>,
    /// The id of the last rebalance, and when more vBuckets may begin to move in it.
    move_at: (String, u64),
    /// vBuckets that are held, or were in vain: by bucket and number.
    holds: BTreeMap<(String, u16), Hold>,
}

/// A vBucket that is handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    /// Nobody writes to it since then.
    Since(u64),
    /// It took too long: the next try is not before then.
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

impl Orchestrator {
    /// Of node `me`, which has heard of nobody yet.
    pub fn new(me: NodeId) -> Orchestrator {
        Orchestrator {
            me,
            heard: BTreeMap::new(),
            granted: BTreeMap::new(),
            doubted: BTreeMap::new(),
            leads: None,
            polls: 0,
            failover: None,
            moving: None,
            move_at: (String::new(), 0),
            holds: BTreeMap::new(),
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
            Message::Ask { at, doubted } => {
                self.heard.insert(from, now);
                self.doubted.insert(from, doubted);
                let is_lost = self.failover.as_ref().is_some_and(|poll| poll.lost.contains(&from));
                let serves = cluster.nodes.get(&from)?.membership != Membership::FailedOver;
                // The last tick may be of long ago, and others may have led since.
                let leads = current(leads, now)?;
                let is_known = self.leads.is_some_and(|(term, _)| term == leads.term);
                if !is_known || is_lost || !serves {
                    return None;
                }
                self.granted.insert(from, now);
                let for_ns = LEASE_NS - now.saturating_sub(leads.confirmed_ns);
                let lost = self.failover.iter().flat_map(|poll| &poll.lost).copied().collect();
                Some(Message::Grant { at, for_ns, rev: cluster.rev, lost })
            }
            Message::Report { number, standings } => {
                let polls = [&mut self.failover, &mut self.moving];
                let poll = polls.into_iter().flatten().find(|poll| poll.number == number)?;
                poll.answers.insert(from, standings);
                None
            }
            Message::Grant { .. } | Message::Poll { .. } => None,
        }
    }

    /// Decides what is to be done now. `leads`: what this node knows of its leading the others, if it does.
    pub fn tick(&mut self, cluster: &Cluster, leads: Option<Leadership>, now: u64) -> Vec<Effect> {
        let leads = current(leads, now);
        if self.leads.map(|(term, _)| term) != leads.map(|leads| leads.term) {
            self.leads = leads.map(|leads| (leads.term, now));
            (self.failover, self.moving) = (None, None);
            self.holds.clear();
            // What was heard before may be of long ago.
            self.heard = cluster.nodes.keys().map(|node| (*node, now)).collect();
        }
        let Some((_, since)) = self.leads else { return Vec::new() };
        self.heard.insert(self.me, now);
        let mut effects = Vec::new();
        self.replace_lost(cluster, since, now, &mut effects);
        if self.failover.is_none() {
            self.rebalance(cluster, now, &mut effects);
        }
        effects
    }

    /// Nodes that have their part and were not heard for too long, as far as they may be replaced.
    fn lost(&self, cluster: &Cluster, now: u64) -> BTreeSet<NodeId> {
        let lost: BTreeSet<NodeId> = cluster.failing_over.iter().copied().collect();
        let settings = &cluster.auto_failover;
        if !settings.enabled {
            return lost;
        }
        let timeout = settings.timeout_ms * MS;
        let silent = |node: &NodeId| {
            self.heard.get(node).is_none_or(|heard| now.saturating_sub(*heard) > timeout)
        };
        // Whoever copies are moved to is waited for, though it has no share yet.
        let chains = cluster.buckets.values().flat_map(|bucket| &bucket.chains);
        let targets = chains.flat_map(|chain| chain.next.iter().flatten().copied());
        let needed: BTreeSet<NodeId> = cluster.active_nodes().into_iter().chain(targets).collect();
        let silent: BTreeSet<NodeId> = needed.into_iter().filter(silent).collect();
        if silent.is_empty() {
            return lost;
        }
        let room = settings.count_max.saturating_sub(settings.count);
        let gone: BTreeSet<NodeId> = lost.union(&silent).copied().collect();
        if silent.len() <= room
            && gone.len() * 2 < cluster.nodes.len()
            && self.spares(cluster, &gone)
        {
            return gone;
        }
        lost
    }

    /// Whether all that was acknowledged as durable is on other nodes as well, as long as no other copy fails: who serves a
    /// vBucket stays and is sure of itself, or fewer copies are gone than a majority.
    fn spares(&self, cluster: &Cluster, gone: &BTreeSet<NodeId>) -> bool {
        cluster.buckets.iter().all(|(name, bucket)| {
            (0_u16..).zip(&bucket.chains).all(|(vbid, chain)| {
                let copies = || chain.copies.iter().flatten();
                let Some(active) = chain.active() else { return true };
                let is_sure = !gone.contains(&active) && !self.is_doubted(active, name, vbid);
                if is_sure || !copies().any(|node| gone.contains(node)) {
                    return true;
                }
                let lost = copies().filter(|node| gone.contains(node) || **node == active).count();
                lost < copies().count() && lost < chain.copies.len() / 2 + 1
            })
        })
    }

    fn is_doubted(&self, node: NodeId, bucket: &str, vbid: u16) -> bool {
        let doubted = self.doubted.get(&node).and_then(|doubted| doubted.get(bucket));
        doubted.is_some_and(|doubted| doubted.contains(&vbid))
    }

    /// Has others serve what lost nodes served, and what nodes that are not sure of themselves should.
    fn replace_lost(&mut self, cluster: &Cluster, since: u64, now: u64, effects: &mut Vec<Effect>) {
        let lost = self.lost(cluster, now);
        if lost.is_empty() && self.doubted.values().all(BTreeMap::is_empty) {
            self.failover = None;
            return;
        }
        let mut wanted: BTreeMap<String, BTreeSet<u16>> = BTreeMap::new();
        for (name, bucket) in &cluster.buckets {
            let concerned = (0_u16..).zip(&bucket.chains).filter(|(vbid, chain)| {
                lost.iter().any(|node| chain.involves(*node))
                    || chain.active().is_some_and(|active| self.is_doubted(active, name, *vbid))
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
        let up: BTreeSet<NodeId> =
            cluster.nodes.keys().copied().filter(|node| !lost.contains(node)).collect();
        let is_same = |poll: &Poll| poll.lost == lost && poll.wanted == wanted;
        if !self.failover.as_ref().is_some_and(is_same) {
            self.failover = Some(self.poll(lost.clone(), wanted.clone(), up));
        }
        let Some(poll) = &mut self.failover else { return };
        send(poll, now, effects);
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
            if !is_ordered && !vbids.iter().all(has_all) {
                // What was reported is old by the next tick.
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
        effects.push(Effect::Propose(Change::MoveCopies { memberships, chains }));
        self.failover = None;
        self.doubted.clear();
    }

    fn poll(
        &mut self,
        lost: BTreeSet<NodeId>,
        wanted: BTreeMap<String, BTreeSet<u16>>,
        asked: BTreeSet<NodeId>,
    ) -> Poll {
        self.polls += 1;
        // Not to be mistaken for one of a leader before.
        let number = self.me.0 << 48 | self.polls;
        Poll { number, sent_at: 0, lost, wanted, asked, answers: BTreeMap::new() }
    }

    /// Takes the next step of a rebalance, where one is wanted.
    fn rebalance(&mut self, cluster: &Cluster, now: u64, effects: &mut Vec<Effect>) {
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
            place(&current, &nodes, usize::from(bucket.settings.replicas))
        };
        // One bucket after another.
        let unfinished = cluster.buckets.iter().find_map(|(name, bucket)| {
            let target = target(name);
            let differs = bucket.chains.iter().zip(&target).any(|(chain, target)| {
                chain.copies != *target || !chain.next.is_empty() || chain.held
            });
            differs.then_some((name, bucket, target))
        });
        let Some((name, bucket, target)) = unfinished else {
            self.moving = None;
            let part = |(node, member): (&NodeId, &Member)| {
                let part = match member.membership {
                    _ if wanted.keep.contains(node) => Membership::Active,
                    Membership::Added if wanted.rest == Membership::FailedOver => return None,
                    _ => wanted.rest,
                };
                Some((*node, part))
            };
            let memberships = cluster.nodes.iter().filter_map(part).collect();
            effects.push(Effect::Propose(Change::EndRebalance { memberships }));
            return;
        };
        let moving: BTreeSet<u16> = (0_u16..)
            .zip(&bucket.chains)
            .filter(|(_, chain)| !chain.next.is_empty())
            .map(|(vbid, _)| vbid)
            .collect();
        let mut chains = BTreeMap::new();
        if self.move_at.0 != wanted.id {
            // Clients are told of new nodes, and connect to them, before anything is served there.
            self.move_at = (wanted.id.clone(), now + MOVES_PAUSE_NS);
        }
        if moving.len() < MOVES_MAX && now >= self.move_at.1 {
            self.move_at.1 = now + MOVES_PAUSE_NS;
            let waiting = (0_u16..).zip(bucket.chains.iter().zip(&target));
            let waiting = waiting
                .filter(|(_, (chain, target))| chain.next.is_empty() && chain.copies != **target);
            for (vbid, (chain, target)) in waiting.take(MOVES_MAX - moving.len()) {
                chains.insert(vbid, Chain { next: target.clone(), ..chain.clone() });
            }
        }
        self.advance(cluster, name, &moving, now, &mut chains, effects);
        if !chains.is_empty() {
            let chains = BTreeMap::from([(name.clone(), chains)]);
            let memberships = BTreeMap::new();
            effects.push(Effect::Propose(Change::MoveCopies { memberships, chains }));
        }
    }

    /// Moves those on whose next copies have all there is.
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
            let asked = cluster.nodes.keys().copied().collect();
            self.moving = Some(self.poll(BTreeSet::new(), wanted, asked));
        }
        let Some(poll) = &mut self.moving else { return };
        send(poll, now, effects);
        let mut hand_overs = HAND_OVERS_MAX;
        for vbid in moving {
            let chain = &bucket.chains[usize::from(*vbid)];
            let stays = chain.next.first() == chain.copies.first();
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
                // Nothing is written any more, and the next has it all.
                (true, false, true) => {
                    chains.insert(*vbid, Chain { term: chain.term + 1, ..moved });
                }
                // What comes next is too slow: writers go on meanwhile, on another branch of history.
                (false, _, true) if hold.is_too_long(now) => {
                    self.holds.insert((name.to_owned(), *vbid), Hold::Again(now + HOLD_AGAIN_NS));
                    let term = chain.term + 1;
                    chains.insert(*vbid, Chain { held: false, term, ..chain.clone() });
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
            // What was reported is old by the next tick.
            self.moving = None;
        }
    }
}

/// Sends a poll to those who have not answered, when that is due.
fn send(poll: &mut Poll, now: u64, effects: &mut Vec<Effect>) {
    if poll.sent_at != 0 && now < poll.sent_at + POLL_AGAIN_NS {
        return;
    }
    poll.sent_at = now.max(1);
    let wanted = poll.wanted.iter().map(|(name, vbids)| (name.clone(), vbids.iter().copied()));
    let message = Message::Poll {
        number: poll.number,
        lost: poll.lost.iter().copied().collect(),
        wanted: wanted.map(|(name, vbids)| (name, vbids.collect())).collect(),
    };
    let missing = poll.asked.iter().filter(|node| !poll.answers.contains_key(node));
    effects.extend(missing.map(|node| Effect::Send(*node, message.clone())));
}

/// What is known of leading, unless it is too old.
fn current(leads: Option<Leadership>, now: u64) -> Option<Leadership> {
    leads.filter(|leads| now.saturating_sub(leads.confirmed_ns) <= SILENCE_NS_MAX)
}

/// Whether nodes need a lease to serve: a quorum can be without one of them.
pub fn needs_leases(cluster: &Cluster) -> bool {
    cluster.nodes.len() > 2
}

/// The chain without lost nodes: the best of the copies that are left serves, under a new term.
fn replaced(chain: &Chain, lost: &BTreeSet<NodeId>, poll: &Poll, name: &str, vbid: u16) -> Chain {
    let all: Vec<NodeId> = lost.iter().copied().collect();
    let serves = |node: &NodeId| {
        let standing = poll.standing(*node, name, vbid);
        !lost.contains(node) && standing.is_some_and(|standing| !standing.rests)
    };
    let active = chain.active().filter(serves);
    let best = active.or_else(|| {
        let left = chain.copies.iter().flatten().copied().filter(|node| !lost.contains(node));
        let standing = |node: &NodeId| {
            poll.standing(*node, name, vbid).map(|s| (s.term, s.prepared, s.high_seqno))
        };
        left.rev().max_by_key(standing)
    });
    let mut replaced = chain.without(&all, best);
    if active.is_none() && best == chain.active() {
        // The same node, and another branch of history.
        replaced.term = chain.term + 1;
    }
    replaced
}

/// Whether all copies that are to be have what the active one has.
fn is_caught_up(chain: &Chain, poll: &Poll, name: &str, vbid: u16) -> bool {
    let Some(active) = chain.active() else { return true };
    let Some(source) = poll.standing(active, name, vbid) else { return false };
    // It was held before, perhaps, and made history again since: that was in an earlier term.
    if chain.held && (!source.rests || source.is_busy || source.term < chain.term) {
        return false;
    }
    let next = chain.next.first().copied().flatten().and_then(|it| poll.standing(it, name, vbid));
    if chain.held && next.is_some_and(|next| !next.is_known_held) {
        return false;
    }
    // Writers go on until the vBucket is held: only then it is known where they end.
    let lag = if chain.held { 0 } else { LAG_MAX };
    chain.next.iter().flatten().filter(|node| **node != active).all(|node| {
        poll.standing(*node, name, vbid).is_some_and(|copy| {
            copy.term >= chain.term && copy.high_seqno + lag >= source.high_seqno
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AutoFailover, BucketSettings, Endpoints, Ports, Refusal, Service};

    const SECOND: u64 = 1000 * MS;

    fn cluster(nodes: u64, replicas: u8) -> Cluster {
        let mut cluster = Cluster::new("c".into());
        for id in 1..=nodes {
            let member = member(Membership::Active);
            cluster.apply(&Change::PutNode { id: NodeId(id), member }).unwrap();
        }
        let settings = BucketSettings { vbucket_count: 12, replicas, ..BucketSettings::default() };
        let (name, uuid) = ("b".to_owned(), "u".to_owned());
        cluster.apply(&Change::CreateBucket { name, uuid, settings }).unwrap();
        cluster
    }

    fn member(membership: Membership) -> Member {
        let plain = Ports { mgmt: 1, views: 2, query: 3, eventing: 4, kv: 5 };
        let endpoints = Endpoints { host: None, plain, tls: None, fingerprint: None };
        let services = Service::ALL.into();
        Member { uuid: "u".into(), endpoints, group: "g".into(), services, membership }
    }

    /// The nodes as a leader sees them, node 1, until it proposes something.
    struct World {
        cluster: Cluster,
        leader: Orchestrator,
        now: u64,
        down: Vec<NodeId>,
        /// What copies say of themselves: by node.
        standings: BTreeMap<NodeId, Standing>,
    }

    impl World {
        fn new(cluster: Cluster) -> World {
            let leader = Orchestrator::new(NodeId(1));
            World { cluster, leader, now: SECOND, down: Vec::new(), standings: BTreeMap::new() }
        }

        fn standing(&self, node: NodeId, chain: &Chain) -> Standing {
            let good = Standing {
                term: chain.term,
                prepared: 9,
                high_seqno: 9,
                rests: chain.held,
                is_busy: false,
                is_known_held: chain.held,
            };
            let rests = chain.held && chain.active() == Some(node);
            self.standings.get(&node).copied().unwrap_or(Standing { rests, ..good })
        }

        /// One tick, with the answers to what it asks. Gives what it proposes.
        fn tick(&mut self) -> Vec<Change> {
            self.now += TICK_NS;
            let nodes: Vec<NodeId> = self.cluster.nodes.keys().copied().collect();
            for node in nodes.into_iter().filter(|node| !self.down.contains(node)) {
                let ask = Message::Ask { at: self.now, doubted: BTreeMap::new() };
                self.leader.hear(node, ask, &self.cluster, self.leads(), self.now);
            }
            let mut proposed = Vec::new();
            for effect in self.leader.tick(&self.cluster, self.leads(), self.now) {
                match effect {
                    Effect::Propose(change) => proposed.push(change),
                    Effect::Send(node, Message::Poll { number, wanted, .. })
                        if !self.down.contains(&node) =>
                    {
                        let report = self.report(node, number, wanted);
                        self.leader.hear(node, report, &self.cluster, self.leads(), self.now);
                    }
                    Effect::Send(..) => {}
                }
            }
            proposed
        }

        fn leads(&self) -> Option<Leadership> {
            Some(Leadership { term: 1, confirmed_ns: self.now })
        }

        fn report(&self, node: NodeId, number: u64, wanted: BTreeMap<String, Vec<u16>>) -> Message {
            let chains = &self.cluster.buckets["b"].chains;
            let standings = wanted.into_iter().map(|(name, vbids)| {
                let of = |vbid: u16| (vbid, self.standing(node, &chains[usize::from(vbid)]));
                (name, vbids.into_iter().map(of).collect())
            });
            Message::Report { number, standings: standings.collect() }
        }

        /// Ticks until something is proposed, for so long at most.
        fn until_proposed(&mut self, seconds: u64) -> Option<Change> {
            let end = self.now + seconds * SECOND;
            while self.now < end {
                if let Some(change) = self.tick().into_iter().next() {
                    return Some(change);
                }
            }
            None
        }
    }

    #[test]
    fn a_node_that_falls_silent_is_replaced_by_the_best_of_its_replicas() {
        let mut world = World::new(cluster(3, 2));
        assert_eq!(world.until_proposed(10), None, "all are well");
        world.down = vec![NodeId(3)];
        let better = Standing {
            term: 1,
            prepared: 12,
            high_seqno: 12,
            rests: false,
            is_busy: false,
            is_known_held: true,
        };
        world.standings.insert(NodeId(2), better);
        let silent_since = world.now;
        let change = world.until_proposed(20).unwrap();
        assert!(world.now - silent_since > 5 * SECOND, "not before its time is over");
        assert!(world.now - silent_since < 6 * SECOND);
        world.cluster.apply(&change).unwrap();
        for chain in &world.cluster.buckets["b"].chains {
            assert!(!chain.involves(NodeId(3)));
            assert_eq!(chain.copies.iter().flatten().count(), 2);
        }
        let of_3 = cluster(3, 2).buckets["b"].chains.clone();
        for (before, after) in of_3.iter().zip(&world.cluster.buckets["b"].chains) {
            if before.active() == Some(NodeId(3)) {
                assert_eq!((after.active(), after.term), (Some(NodeId(2)), 2));
            } else {
                assert_eq!((after.active(), after.term), (before.active(), 2), "a copy is gone");
            }
        }
        assert_eq!(world.cluster.nodes[&NodeId(3)].membership, Membership::FailedOver);
        assert_eq!(world.until_proposed(20), None, "once");
        assert_eq!(world.cluster.auto_failover.count, 1);
    }

    #[test]
    fn nobody_is_replaced_before_all_that_are_left_have_answered_and_leases_have_ended() {
        let mut world = World::new(cluster(4, 1));
        world.cluster.auto_failover.timeout_ms = 100;
        world.tick();
        world.down = vec![NodeId(4)];
        let silent_since = world.now;
        world.until_proposed(20).unwrap();
        assert!(world.now - silent_since > LEASE_NS, "its lease");
        let mut world = World::new(cluster(4, 1));
        world.cluster.auto_failover = AutoFailover { count_max: 1, ..Default::default() };
        world.cluster.apply(&Change::FailOver { nodes: vec![NodeId(4)] }).unwrap();
        world.down = vec![NodeId(3), NodeId(4)];
        assert_eq!(world.until_proposed(4), None, "one answer is missing");
        world.down = vec![NodeId(4)];
        assert!(world.until_proposed(4).is_some());
    }

    #[test]
    fn a_lease_ends_when_it_would_had_the_leader_granted_it_when_it_was_followed_for_sure() {
        let cluster = cluster(3, 1);
        let mut leader = Orchestrator::new(NodeId(1));
        let confirmed = |term, confirmed_ns| Some(Leadership { term, confirmed_ns });
        let mut ask = |leads, now| {
            let ask = Message::Ask { at: 7, doubted: BTreeMap::new() };
            leader.tick(&cluster, confirmed(1, SECOND), SECOND);
            leader.hear(NodeId(2), ask, &cluster, leads, now)
        };
        let granted = |for_ns| {
            let rev = cluster.rev;
            Some(Message::Grant { at: 7, for_ns, rev, lost: Vec::new() })
        };
        assert_eq!(ask(confirmed(1, SECOND), SECOND), granted(LEASE_NS));
        assert_eq!(ask(confirmed(1, SECOND), 2 * SECOND), granted(LEASE_NS - SECOND));
        assert_eq!(ask(confirmed(1, SECOND), 2 * SECOND + 1), None, "others may lead by now");
        assert_eq!(ask(confirmed(3, SECOND), SECOND), None, "others have led since the last tick");
        assert_eq!(ask(None, SECOND), None);
    }

    #[test]
    fn a_node_is_not_replaced_by_itself_where_nobody_has_all_that_it_may_have() {
        let mut world = World::new(cluster(3, 2));
        world.tick();
        world.down = vec![NodeId(3)];
        let behind = Standing {
            term: 0,
            prepared: 9,
            high_seqno: 9,
            rests: false,
            is_busy: false,
            is_known_held: true,
        };
        world.standings = BTreeMap::from([(NodeId(1), behind), (NodeId(2), behind)]);
        assert_eq!(world.until_proposed(20), None);
        world.standings.remove(&NodeId(2));
        assert!(world.until_proposed(20).is_some(), "one has caught up");
        world.standings.insert(NodeId(2), behind);
        world.cluster.apply(&Change::FailOver { nodes: vec![NodeId(3)] }).unwrap();
        assert!(world.until_proposed(20).is_some(), "the operator wants it all the same");
    }

    #[test]
    fn no_two_copies_are_given_up_at_once_where_the_third_may_lack_what_they_have_acknowledged() {
        let mut world = World::new(cluster(3, 2));
        world.tick();
        world.cluster.apply(&Change::FailOver { nodes: vec![NodeId(3)] }).unwrap();
        world.down = vec![NodeId(2), NodeId(3)];
        assert_eq!(
            world.until_proposed(20),
            None,
            "of one that was ordered and one that is silent"
        );
        let refused = world.cluster.apply(&Change::FailOver { nodes: vec![NodeId(2)] });
        assert_eq!(refused, Err(Refusal::FailoverRuns { id: NodeId(3) }));
        let both = vec![NodeId(2), NodeId(3)];
        world.cluster.apply(&Change::FailOver { nodes: both }).unwrap();
        assert!(world.until_proposed(20).is_some(), "the operator wants it all the same");

        let mut world = World::new(cluster(5, 2));
        world.cluster.auto_failover.count_max = 2;
        world.tick();
        let pair = [4, 5].map(NodeId);
        let chains = &world.cluster.buckets["b"].chains;
        let is_second = |node: &Option<NodeId>| node.is_some_and(|node| pair.contains(&node));
        let both = |chain: &Chain| chain.copies.iter().filter(|node| is_second(node)).count() == 2;
        assert!(chains.iter().any(|chain| both(chain) && is_second(&chain.active())));
        world.down = pair.into();
        assert_eq!(world.until_proposed(20), None, "of two that are silent");
        world.down = vec![NodeId(5)];
        assert!(world.until_proposed(20).is_some());
    }

    #[test]
    fn whoever_has_a_copy_proves_anew_that_it_has_all_once_another_copy_is_gone() {
        let mut world = World::new(cluster(3, 2));
        world.cluster.auto_failover.count_max = 2;
        world.tick();
        world.down = vec![NodeId(3)];
        let change = world.until_proposed(20).unwrap();
        world.cluster.apply(&change).unwrap();
        world.cluster.apply(&Change::ResetAutoFailover).unwrap();
        // What node 3 has acknowledged has not come to node 1 yet.
        let behind = Standing {
            term: 1,
            prepared: 7,
            high_seqno: 7,
            rests: false,
            is_busy: false,
            is_known_held: true,
        };
        world.standings.insert(NodeId(1), behind);
        world.down = vec![NodeId(2)];
        assert_eq!(world.until_proposed(20), None);
    }

    #[test]
    fn too_many_nodes_or_the_last_copy_are_not_replaced_by_themselves() {
        let silent = |cluster: Cluster, down: &[u64]| {
            let mut world = World::new(cluster);
            world.tick();
            world.down = down.iter().map(|id| NodeId(*id)).collect();
            world.until_proposed(20)
        };
        assert_eq!(silent(cluster(5, 2), &[4, 5]), None, "one at a time");
        assert_eq!(silent(cluster(2, 1), &[2]), None, "no majority is left");
        assert_eq!(silent(cluster(3, 0), &[3]), None, "there is no other copy");
        let mut off = cluster(3, 1);
        off.auto_failover.enabled = false;
        assert_eq!(silent(off, &[3]), None);
        assert!(silent(cluster(3, 1), &[3]).is_some());
    }

    #[test]
    fn a_rebalance_leaves_time_for_requests() {
        let mut cluster = Cluster::new("c".into());
        for id in 1..=2 {
            let member = member(Membership::Active);
            cluster.apply(&Change::PutNode { id: NodeId(id), member }).unwrap();
        }
        let settings = BucketSettings { vbucket_count: 1024, ..BucketSettings::default() };
        let (name, uuid) = ("b".to_owned(), "u".to_owned());
        cluster.apply(&Change::CreateBucket { name, uuid, settings }).unwrap();
        let mut world = World::new(cluster);
        world.tick();
        let keep = [NodeId(1)].into();
        let rebalance = Change::StartRebalance { id: "r".into(), keep, rest: Membership::Leaving };
        world.cluster.apply(&rebalance).unwrap();
        assert_eq!(world.tick(), [], "clients hear of it first");
        let chains = |world: &World| world.cluster.buckets["b"].chains.clone();
        while world.cluster.rebalance.is_some() {
            let before = chains(&world);
            for change in world.tick() {
                world.cluster.apply(&change).unwrap();
            }
            let after = chains(&world);
            let begun = before.iter().zip(&after);
            let begun =
                begun.filter(|(before, after)| before.next.is_empty() && !after.next.is_empty());
            assert!(begun.count() <= MOVES_MAX);
            assert!(after.iter().filter(|chain| chain.held).count() <= HAND_OVERS_MAX);
        }
    }

    #[test]
    fn a_rebalance_moves_copies_step_by_step_until_they_are_even() {
        let mut world = World::new(cluster(2, 1));
        for id in [3, 4] {
            let member = member(Membership::Added);
            world.cluster.apply(&Change::PutNode { id: NodeId(id), member }).unwrap();
        }
        let keep = [1, 3, 4].map(NodeId).into();
        world
            .cluster
            .apply(&Change::StartRebalance { id: "r".into(), keep, rest: Membership::Leaving })
            .unwrap();
        let mut held = 0;
        for _ in 0..200 {
            for change in world.tick() {
                let before = world.cluster.buckets["b"].chains.clone();
                world.cluster.apply(&change).unwrap();
                for (before, after) in before.iter().zip(&world.cluster.buckets["b"].chains) {
                    held += usize::from(after.held && !before.held);
                    if after.held {
                        assert_eq!(world.leader.pause_ns(), HURRY_NS, "writers wait");
                    }
                    if before.active() != after.active() {
                        assert!(before.held, "nobody may write while the active copy changes");
                        assert_eq!(after.term, before.term + 1);
                    }
                }
            }
        }
        assert!(held > 0);
        assert_eq!(world.cluster.rebalance, None, "it has come to its end");
        assert_eq!(world.leader.pause_ns(), TICK_NS, "nobody waits");
        assert_eq!(world.cluster.nodes[&NodeId(2)].membership, Membership::Leaving);
        assert_eq!(world.cluster.serving_nodes().len(), 3);
        for chain in &world.cluster.buckets["b"].chains {
            assert!(chain.next.is_empty() && !chain.held && !chain.involves(NodeId(2)));
            assert_eq!(chain.copies.iter().flatten().count(), 2);
        }
    }

    #[test]
    fn a_rebalance_ends_when_a_node_that_it_needs_is_lost() {
        let mut world = World::new(cluster(3, 1));
        let added = member(Membership::Added);
        world.cluster.apply(&Change::PutNode { id: NodeId(4), member: added }).unwrap();
        let keep = [1, 2, 4].map(NodeId).into();
        let rest = Membership::Leaving;
        world.cluster.apply(&Change::StartRebalance { id: "r".into(), keep, rest }).unwrap();
        world.down = vec![NodeId(4)];
        for _ in 0..200 {
            for change in world.tick() {
                world.cluster.apply(&change).unwrap();
            }
        }
        assert_eq!(world.cluster.rebalance, None);
        assert_eq!(world.cluster.nodes[&NodeId(4)].membership, Membership::FailedOver);
        for chain in &world.cluster.buckets["b"].chains {
            assert!(chain.next.is_empty() && !chain.held && !chain.involves(NodeId(4)));
            assert_eq!(chain.copies.iter().flatten().count(), 2, "what was there stays");
        }
    }

    #[test]
    fn a_rebalance_leaves_the_data_to_nodes_that_are_there() {
        let mut cluster = cluster(3, 1);
        let failed_over = BTreeMap::from([(NodeId(3), Membership::FailedOver)]);
        let chains = BTreeMap::new();
        cluster.apply(&Change::MoveCopies { memberships: failed_over, chains }).unwrap();
        let mut start = |keep: &[u64]| {
            let keep = keep.iter().map(|id| NodeId(*id)).collect();
            let rest = Membership::Leaving;
            cluster.apply(&Change::StartRebalance { id: "r".into(), keep, rest })
        };
        assert_eq!(start(&[]), Err(Refusal::NobodyKeeps));
        assert_eq!(start(&[1, 3]), Err(Refusal::NobodyKeeps));
        assert_eq!(start(&[1]).map(drop), Ok(()));
    }

    #[test]
    fn a_copy_that_lags_behind_takes_nothing_over() {
        let mut world = World::new(cluster(1, 0));
        let member = member(Membership::Added);
        world.cluster.apply(&Change::PutNode { id: NodeId(2), member }).unwrap();
        let keep = [NodeId(2)].into();
        world
            .cluster
            .apply(&Change::StartRebalance { id: "r".into(), keep, rest: Membership::Leaving })
            .unwrap();
        let behind = Standing {
            term: 100,
            prepared: 8,
            high_seqno: 8,
            rests: false,
            is_busy: false,
            is_known_held: true,
        };
        world.standings.insert(NodeId(2), behind);
        let is_held = |world: &World| world.cluster.buckets["b"].chains.iter().all(|c| c.held);
        let (mut held, mut longest, mut ticks) = (0, 0, 0);
        for _ in 0..300 {
            for change in world.tick() {
                world.cluster.apply(&change).unwrap();
            }
            ticks = if is_held(&world) { ticks + 1 } else { 0 };
            (held, longest) = (held + u64::from(ticks > 0), longest.max(ticks));
        }
        let chains = &world.cluster.buckets["b"].chains;
        assert!(chains.iter().all(|chain| chain.active() == Some(NodeId(1)) && chain.term > 2));
        assert!((1..=HOLD_NS_MAX / TICK_NS + 1).contains(&longest), "writers wait for {longest}");
        assert!(held * TICK_NS * 2 < 300 * TICK_NS, "and seldom: {held} ticks of 300");
        while !is_held(&world) {
            for change in world.tick() {
                world.cluster.apply(&change).unwrap();
            }
        }
        let term = world.cluster.buckets["b"].chains[0].term;
        world.cluster.apply(&Change::StopRebalance).unwrap();
        let chains = &world.cluster.buckets["b"].chains;
        assert!(chains.iter().all(|chain| !chain.held && chain.term == term + 1));
    }

    #[test]
    fn a_vbucket_is_not_handed_over_while_durable_writes_end_or_where_that_is_not_known() {
        let mut world = World::new(cluster(1, 0));
        let member = member(Membership::Added);
        world.cluster.apply(&Change::PutNode { id: NodeId(2), member }).unwrap();
        let keep = [NodeId(2)].into();
        let rebalance = Change::StartRebalance { id: "r".into(), keep, rest: Membership::Leaving };
        world.cluster.apply(&rebalance).unwrap();
        let tick = |world: &mut World| {
            for change in world.tick() {
                world.cluster.apply(&change).unwrap();
            }
            world.cluster.buckets["b"].chains[0].clone()
        };
        while !tick(&mut world).held {}
        let good = Standing {
            term: 100,
            prepared: 9,
            high_seqno: 9,
            rests: true,
            is_busy: false,
            is_known_held: true,
        };
        let busy = Standing { is_busy: true, ..good };
        let unknowing = Standing { rests: false, is_known_held: false, ..good };
        for (node, standing) in [(NodeId(1), busy), (NodeId(2), unknowing)] {
            world.standings.insert(node, standing);
            for _ in 0..4 {
                assert!(tick(&mut world).held);
            }
            world.standings.clear();
        }
        let after = [tick(&mut world), tick(&mut world)].map(|chain| chain.active());
        assert_eq!(after[1], Some(NodeId(2)));
    }
}
