//! Faults and their mix.

use crate::Chance;
use crate::cluster::{MS, US};
use crate::workload::KEYS;
use std::fmt;

/// A temporary fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A process is killed, possibly in the middle of a commit.
    Kill {
        /// The node.
        node: usize,
        /// See [`Cluster::kill`](crate::Cluster::kill).
        tears: bool,
    },
    /// A process is stopped cleanly.
    Stop(usize),
    /// All processes are killed at once.
    PowerCut,
    /// A process is paused.
    Pause(usize),
    /// A node is cut off from the other nodes, but not from clients.
    Isolate(usize),
    /// Two nodes cannot reach each other.
    Cut(usize, usize),
    /// The second node receives no messages of the first.
    OneWay(usize, usize),
    /// The connections between two nodes break.
    Reset(usize, usize),
    /// Clients cannot reach a node.
    Close(usize),
    /// Messages are lost, and delays are long.
    Weather,
    /// The disk of a node is slow.
    SlowDisk(usize),
    /// A node's disk is full.
    FullDisk(usize),
    /// The process of a node has no file descriptors left.
    NoDescriptors(usize),
    /// A commit fails in the middle; the node is restarted afterwards.
    TornDisk(usize),
    /// The wall clock of a node steps by seconds.
    ClockStep(usize, i64),
    /// Another leader is elected.
    Depose,
    /// An operator fails a node over.
    FailOver(usize),
    /// An operator rebalances a node out.
    RebalanceOut(usize),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Kill { node, tears: false } => write!(f, "node {node} is killed"),
            Fault::Kill { node, tears: true } => write!(f, "node {node} is killed in a commit"),
            Fault::Stop(node) => write!(f, "node {node} is stopped"),
            Fault::PowerCut => write!(f, "all nodes are killed"),
            Fault::Pause(node) => write!(f, "node {node} stands still"),
            Fault::Isolate(node) => write!(f, "node {node} is isolated"),
            Fault::Cut(one, other) => write!(f, "nodes {one} and {other} do not hear each other"),
            Fault::OneWay(from, to) => write!(f, "node {to} does not hear node {from}"),
            Fault::Reset(one, other) => write!(f, "connections of {one} and {other} break"),
            Fault::Close(node) => write!(f, "clients do not reach node {node}"),
            Fault::Weather => write!(f, "messages are lost and late"),
            Fault::SlowDisk(node) => write!(f, "the disk of node {node} is slow"),
            Fault::FullDisk(node) => write!(f, "the disk of node {node} is full"),
            Fault::NoDescriptors(node) => write!(f, "node {node} has no descriptors left"),
            Fault::TornDisk(node) => write!(f, "a commit of node {node} fails"),
            Fault::ClockStep(node, s) => write!(f, "the wall clock of node {node} steps {s} s"),
            Fault::Depose => write!(f, "another node is to lead"),
            Fault::FailOver(node) => write!(f, "node {node} is failed over"),
            Fault::RebalanceOut(node) => write!(f, "node {node} is to have no share"),
        }
    }
}

/// The faults of a run and their frequency. They are random, so that some runs have many faults of one kind and none of
/// another.
#[derive(Clone, Debug)]
pub struct Mix {
    /// Number of nodes.
    pub nodes: usize,
    /// Number of replicas.
    pub replicas: u8,
    /// Durability levels of the checked writes.
    pub levels: Vec<u8>,
    /// True if no write acknowledged at these levels may be lost under any fault; each copy is then checked.
    pub promises: bool,
    /// Durability levels of keys whose histories are not checked, although their copies are.
    pub weaker_levels: Vec<u8>,
    /// Maximum number of concurrent faults.
    pub at_once: u64,
    /// Maximum time from one of them to the next, in nanoseconds.
    pub soon_ns: u64,
    /// One following fault in this many hits a node with a copy of the vBucket that is next activated on another node, soon after
    /// the activation; none for 0.
    pub hunts: u64,
    /// One first fault in this many cuts the leader off from a node. One following fault in this many happens when a node has
    /// reported its copies for a failover: the node is killed for a moment and cut off from the leader for a while, or another
    /// leader is elected. None for 0.
    pub flickers: u64,
    /// One killed node in this many serves a vBucket of which another node has half a snapshot; none for 0.
    pub halves: u64,
    /// One fault in this many ends just when a vBucket is activated on another node, if that happens soon; none for 0.
    pub returns: u64,
    /// See [`Network::splits`](crate::cluster::Network::splits).
    pub splits: u64,
    /// See [`Network::split_ns`](crate::cluster::Network::split_ns).
    pub split_ns: u64,
    /// See [`Network::lag_ns`](crate::cluster::Network::lag_ns).
    pub lag_ns: u64,
    /// Maximum time of a commit on each disk, in nanoseconds; the usual delay if 0.
    pub disk_ns: u64,
    /// Weights of the kinds of faults.
    weights: [u64; KINDS],
    /// Maximum drift of the clocks, in millionths.
    pub drift_ppm: u64,
    /// See [`SimulatedRaft`](crate::SimulatedRaft): one proposal in this many is decided although its proposer is told otherwise.
    pub lost_answers: u64,
    /// Maximum duration of a fault, in nanoseconds.
    longest_ns: u64,
    /// Number of clients.
    pub clients: usize,
    /// Auto-failover timeout in milliseconds.
    pub failover_timeout_ms: u64,
    /// Minimum size of values in bytes. Large values leave the history in memory soon after they are stored.
    pub value_bytes: usize,
    /// Maximum number of automatic failovers before an operator intervenes.
    pub failovers_max: usize,
    /// Maximum pause of a client between two operations, in nanoseconds.
    pub pace_ns: u64,
    /// Number of keys of durable writes; with few keys, clients compete.
    pub keys: u16,
    /// Number of unread documents per vBucket that are rewritten with some of the faults. A copy receives them in two whole
    /// portions and a rest.
    pub ballast: u32,
    /// True if the bucket is in memory only, so that a process that ends loses its copies.
    pub is_ephemeral: bool,
    /// At each check, one copy in this many evicts most of what is both in memory and on disk; none for 0.
    pub evictions: u64,
    /// True if keys are evicted as well.
    pub evicts_keys: bool,
}

const KINDS: usize = 17;
/// Faults that lose nothing at any level unless they last long: clean stops, broken connections, unreachable nodes, slow
/// disks, clock steps, another leader, rebalances. Numbered as in [`Mix::fault`].
const GENTLE: [usize; 7] = [2, 7, 8, 10, 13, 14, 16];

impl Mix {
    /// Returns a mix without faults.
    pub fn calm(nodes: usize, replicas: u8, level: u8) -> Mix {
        Mix {
            nodes,
            replicas,
            levels: vec![level],
            promises: false,
            weaker_levels: vec![0],
            at_once: 1,
            soon_ns: 0,
            hunts: 0,
            flickers: 0,
            halves: 0,
            returns: 0,
            splits: 0,
            split_ns: 0,
            lag_ns: 0,
            disk_ns: 0,
            weights: [0; KINDS],
            drift_ppm: 0,
            lost_answers: 0,
            longest_ns: 0,
            clients: 4,
            failover_timeout_ms: 1000,
            value_bytes: 0,
            failovers_max: 1,
            pace_ns: 100 * MS,
            keys: KEYS,
            ballast: 0,
            is_ephemeral: false,
            evictions: 0,
            evicts_keys: false,
        }
    }

    /// Returns a random mix.
    pub fn new(chance: &mut Chance) -> Mix {
        let nodes = chance.one_of(&[3, 3, 3, 4, 5]);
        // With several concurrent faults, only writes persisted on a majority are guaranteed.
        let at_once = chance.one_of(&[1, 1, 3]);
        let is_ephemeral = at_once == 1 && chance.once_in(8);
        let levels = match at_once {
            1 if is_ephemeral => vec![1],
            1 => vec![1, 2, 3],
            _ => vec![3],
        };
        let weaker_levels = if at_once == 1 { vec![0] } else { vec![0, 1, 2] };
        let mut weights = [0; KINDS];
        weights.iter_mut().for_each(|weight| *weight = chance.one_of(&[0, 0, 1, 1, 3, 8]));
        // Ensures at least one fault.
        weights[chance.below(2) as usize] += 1;
        let mix = Mix {
            nodes,
            replicas: chance.one_of(&[1, 2, 2]),
            levels,
            promises: true,
            weaker_levels,
            at_once,
            soon_ns: chance.one_of(&[200, 200, 4_000]) * MS,
            hunts: chance.one_of(&[0, 2]),
            flickers: chance.one_of(&[0, 2]),
            halves: chance.one_of(&[0, 0, 2]),
            returns: chance.one_of(&[0, 0, 2]),
            splits: chance.one_of(&[0, 0, 2]),
            split_ns: chance.one_of(&[1, 30]) * MS,
            lag_ns: chance.one_of(&[0, 0, 200, 1_500]) * MS,
            disk_ns: chance.one_of(&[0, 0, 20, 300]) * MS,
            weights,
            drift_ppm: chance.one_of(&[0, 100, 20_000, 80_000]),
            lost_answers: chance.one_of(&[0, 0, 20]),
            longest_ns: chance.one_of(&[100, 3_000, 12_000]) * MS,
            clients: chance.between(3, 6) as usize,
            failover_timeout_ms: chance.one_of(&[1000, 1000, 5000]),
            value_bytes: if chance.once_in(20) { 30_000 } else { 0 },
            failovers_max: chance.one_of(&[1, 9]),
            pace_ns: chance.one_of(&[100, 100, 100, 100, 100, 15]) * MS,
            keys: chance.one_of(&[KEYS, KEYS, 3]),
            ballast: chance.one_of(&[0, 0, 0, 0, 600]),
            is_ephemeral,
            evictions: chance.one_of(&[0, 0, 4, 30]),
            evicts_keys: chance.once_in(2),
        };
        match chance.below(12) {
            0 | 6 => mix.gentle(),
            3 if !is_ephemeral => mix.alone(),
            _ => mix,
        }
    }

    /// Returns the mix with a single copy of each vBucket: persisted writes are not lost.
    fn alone(self) -> Mix {
        Mix { replicas: 0, levels: vec![2, 3], weaker_levels: vec![0, 1], ..self }
    }

    /// Returns the mix without faults that lose writes, so that all levels may be used, even for one key.
    fn gentle(mut self) -> Mix {
        for (kind, weight) in self.weights.iter_mut().enumerate() {
            *weight *= u64::from(GENTLE.contains(&kind));
        }
        self.weights[GENTLE[GENTLE.len() - 1]] += 1;
        self.levels = vec![0, 1, 2, 3];
        self.is_ephemeral = false;
        (self.hunts, self.flickers, self.halves, self.returns) = (0, 0, 0, 0);
        self.failover_timeout_ms = 5000;
        self.longest_ns = self.longest_ns.min(300 * MS);
        self
    }

    /// Returns the next fault and its duration.
    pub fn fault(&self, chance: &mut Chance) -> (Fault, u64) {
        let mut left = chance.below(self.weights.iter().sum());
        let kind = self.weights.iter().position(|weight| {
            let is_it = left < *weight;
            left = left.saturating_sub(*weight);
            is_it
        });
        let node = chance.below(self.nodes as u64) as usize;
        let other = (node + 1 + chance.below(self.nodes as u64 - 1) as usize) % self.nodes;
        let fault = match kind.expect("the weights sum up") {
            0 => Fault::Kill { node, tears: chance.once_in(3) },
            1 => Fault::Isolate(node),
            2 => Fault::Stop(node),
            3 if self.at_once > 1 => Fault::PowerCut,
            4 => Fault::Pause(node),
            5 => Fault::Cut(node, other),
            6 => Fault::OneWay(node, other),
            7 => Fault::Reset(node, other),
            8 => Fault::Close(node),
            9 => Fault::Weather,
            10 => Fault::SlowDisk(node),
            11 if chance.once_in(3) => Fault::NoDescriptors(node),
            11 => Fault::FullDisk(node),
            12 => Fault::TornDisk(node),
            13 => Fault::ClockStep(node, chance.one_of(&[-120, -1, 1, 120])),
            14 => Fault::Depose,
            15 if self.at_once == 1 => Fault::FailOver(node),
            16 => Fault::RebalanceOut(node),
            _ => Fault::Kill { node, tears: false },
        };
        let longest = chance.one_of(&[self.longest_ns, self.longest_ns / 8]);
        (fault, chance.between(100 * US, longest))
    }
}
