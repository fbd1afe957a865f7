//! What breaks, and how it is mended.

use crate::Chance;
use crate::cluster::{MS, US};
use crate::workload::KEYS;
use std::fmt;

/// Something that breaks, for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A process is killed, perhaps in the middle of a commit.
    Kill {
        /// Which node.
        node: usize,
        /// See [`Cluster::kill`](crate::Cluster::kill).
        tears: bool,
    },
    /// A process is stopped as an operator does it.
    Stop(usize),
    /// All processes are killed at once.
    PowerCut,
    /// A process stands still.
    Pause(usize),
    /// A node neither hears the others nor is heard; clients reach it.
    Isolate(usize),
    /// Two nodes do not hear each other.
    Cut(usize, usize),
    /// The second does not hear the first.
    OneWay(usize, usize),
    /// Connections of two nodes break.
    Reset(usize, usize),
    /// Clients do not reach a node.
    Close(usize),
    /// Messages are lost, and things take long.
    Weather,
    /// A node's disk takes long.
    SlowDisk(usize),
    /// A node's disk is full.
    FullDisk(usize),
    /// The process of that node has no descriptors left for its files.
    NoDescriptors(usize),
    /// A commit fails in the middle; the node is started again in the end.
    TornDisk(usize),
    /// The wall clock of a node steps by seconds.
    ClockStep(usize, i64),
    /// Another node leads.
    Depose,
    /// An operator gives a node's copies to others at once.
    FailOver(usize),
    /// An operator takes a node out of the share.
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

/// Which faults a run has, and how often: by chance, so that some runs have many of one kind and none of another.
#[derive(Clone, Debug)]
pub struct Mix {
    /// How many nodes.
    pub nodes: usize,
    /// Copies beside the active one.
    pub replicas: u8,
    /// Durability levels that are asked for.
    pub levels: Vec<u8>,
    /// Whether nothing that is acknowledged at these may be lost, whatever breaks: then it is looked where it is.
    pub promises: bool,
    /// Durability levels of keys whose histories are not checked: that copies have what is acknowledged must be so of these, too.
    pub weaker_levels: Vec<u8>,
    /// So many faults at once, at most.
    pub at_once: u64,
    /// How long after one of them the next one comes, at most.
    pub soon_ns: u64,
    /// One of so many faults that follow another hits a node with a copy of whichever vBucket is given to another node next, soon
    /// after; none for 0.
    pub hunts: u64,
    /// One of so many faults that begin others cuts the leader off from a node, and one of so many that follow another comes when a
    /// node has said how far its copies are, as others are about to be replaced: it is killed for a moment, and the leader does not
    /// reach it for a while; or another one is to lead. None for 0.
    pub flickers: u64,
    /// One of so many nodes that are killed is one that serves a vBucket of which another node has half a snapshot; none for 0.
    pub halves: u64,
    /// One of so many faults ends just when a vBucket is given to another node, if one soon is; none for 0.
    pub returns: u64,
    /// See [`Network::splits`](crate::cluster::Network::splits).
    pub splits: u64,
    /// See [`Network::split_ns`](crate::cluster::Network::split_ns).
    pub split_ns: u64,
    /// See [`Network::lag_ns`](crate::cluster::Network::lag_ns).
    pub lag_ns: u64,
    /// How long each disk takes for a commit, at most, in nanoseconds; as long as anything else if it is 0.
    pub disk_ns: u64,
    /// Weights of the kinds.
    weights: [u64; KINDS],
    /// How far clocks may run apart, in millionths.
    pub drift_ppm: u64,
    /// See [`Council`](crate::Council): a proposal in so many is decided although its proposer is told otherwise.
    pub lost_answers: u64,
    /// Faults last so long, at most.
    longest_ns: u64,
    /// Clients.
    pub clients: usize,
    /// Nodes are replaced when they were silent for so long.
    pub failover_timeout_ms: u64,
    /// Bytes that values have at least: of large ones, what is stored soon leaves the history in memory.
    pub value_bytes: usize,
    /// How many nodes are replaced before an operator has looked.
    pub failovers_max: usize,
    /// How long a client rests between two operations, at most.
    pub pace_ns: u64,
    /// Keys of durable writes: with few, clients meet.
    pub keys: u16,
    /// Documents of each vBucket that nobody reads, written anew with some of the faults: a copy takes them in two whole pieces and
    /// a rest.
    pub ballast: u32,
    /// Whether the bucket is in memory only: a process that ends loses its copies.
    pub is_ephemeral: bool,
    /// Each time that it is looked whether all is well, one copy of so many loses most of what it has in memory and on disk from
    /// memory; none for 0.
    pub evictions: u64,
    /// Whether keys go as well.
    pub evicts_keys: bool,
}

const KINDS: usize = 17;
/// Those in which nothing is lost, whatever its level, if they do not last for long: clean stops, broken connections, clients
/// that reach nobody, slow disks, clocks that step, another leader, rebalances. As [`Mix::fault`] numbers them.
const GENTLE: [usize; 7] = [2, 7, 8, 10, 13, 14, 16];

impl Mix {
    /// Nothing breaks by itself.
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

    /// What a seed decides.
    pub fn new(chance: &mut Chance) -> Mix {
        let nodes = chance.one_of(&[3, 3, 3, 4, 5]);
        // With several faults at once only what is stored by a majority is promised.
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
        // There is always something.
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

    /// The same with one copy of each vBucket: what it has stored is not lost.
    fn alone(self) -> Mix {
        Mix { replicas: 0, levels: vec![2, 3], weaker_levels: vec![0, 1], ..self }
    }

    /// The same with nothing that loses writes, so that all levels may be asked for, also for one key.
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

    /// The next fault, and how long it lasts.
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
