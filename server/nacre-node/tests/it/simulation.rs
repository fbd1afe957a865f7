//! Three nodes under faults that a seed decides: kills, cuts, lost leaders, at any moment of durable writes and reads.
//!
//! One fault at a time, and the copies are made whole before the next, so that every acknowledged durable write must
//! survive, whatever its level. Clients are sequential: each key has one operation under way. Values grow, so that what
//! a read may give is a matter of numbers: never less than what was acknowledged or read before, and nothing that was
//! refused.
//!
//! A few seeds run with every test run; `NACRE_SIM_SEEDS` says how many, `NACRE_SIM_SEED` which one alone.

use crate::nodes::{Chance, Nodes};
use crate::world::{Connection, durable, request};
use nacre_cluster::{Change, Cluster, Membership};
use nacre_types::{NodeId, VbState, Vbid};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

const SEEDS: u64 = 12;
const NODES: usize = 3;
const KEYS: u16 = 12;
const VBUCKETS: u16 = 4;
const STEP_MS: u64 = 20;
const FAULTS: usize = 8;
/// Operations that begin in a step.
const OPERATIONS: usize = 4;
/// How long a write may take before its client gives up, in steps.
const PATIENCE: u64 = 1000;

/// A write that is not answered.
struct Pending {
    node: usize,
    client: Connection,
    value: u64,
    given_up_at: u64,
}

/// What is known of a key.
#[derive(Default)]
struct Known {
    /// The greatest value that was acknowledged or read.
    floor: u64,
    /// Greater ones that may be there.
    maybe: Vec<u64>,
    pending: Option<Pending>,
}

impl Known {
    /// The value is there for sure.
    fn seen(&mut self, value: u64) {
        self.floor = self.floor.max(value);
        self.maybe.retain(|other| *other > value);
    }

    fn allows(&self, value: u64) -> bool {
        let under_way = self.pending.as_ref().map(|pending| pending.value);
        value == self.floor || self.maybe.contains(&value) || under_way == Some(value)
    }
}

struct Simulation {
    nodes: Nodes,
    chance: Chance,
    known: BTreeMap<u16, Known>,
    values: u64,
    step: u64,
    acknowledged: usize,
    reads: usize,
    trace: Vec<String>,
}

impl Simulation {
    fn new(seed: u64) -> Simulation {
        let mut nodes = Nodes::new(NODES, 2);
        nodes.orchestrate();
        let settings = nacre_cluster::AutoFailover { count_max: 9, ..Default::default() };
        nodes.change(&Change::SetAutoFailover { settings });
        nodes.pass(2000);
        nodes.haste = Some(Chance(!seed));
        let known = (0..KEYS).map(|key| (key, Known::default())).collect();
        let chance = Chance(seed);
        let trace = Vec::new();
        Simulation { nodes, chance, known, values: 0, step: 0, acknowledged: 0, reads: 0, trace }
    }

    fn note(&mut self, what: String) {
        self.trace.push(format!("{:>6} ms  {what}", self.step * STEP_MS));
    }

    /// What a node that can be reached knows.
    fn cluster(&self) -> Arc<Cluster> {
        let nodes = self.nodes.nodes.iter().enumerate();
        let mut reached = nodes.filter(|(index, _)| !self.nodes.isolated.contains(index));
        reached.find_map(|(_, node)| node.as_ref()).expect("two nodes are left").cluster()
    }

    /// A client goes where some node's map says, which may be old.
    fn route(&mut self, key: u16) -> Option<usize> {
        let index = self.chance.below(NODES as u64) as usize;
        let node = self.nodes.nodes[index].as_ref()?;
        let chain = &node.cluster().buckets["b"].chains[usize::from(key % VBUCKETS)];
        let active = chain.active()?.0 as usize - 1;
        self.nodes.nodes[active].as_ref().map(|_| active)
    }

    fn request(key: u16, opcode: u8, extras: &[u8], value: &[u8]) -> Vec<u8> {
        let mut bytes = request(opcode, extras, format!("k{key}").as_bytes(), value);
        bytes[6..8].copy_from_slice(&(key % VBUCKETS).to_be_bytes());
        bytes
    }

    fn write(&mut self, key: u16) {
        let Some(node) = self.route(key) else { return };
        self.values += 1;
        let value = self.values;
        let level = 1 + self.chance.below(3) as u8;
        let set = Simulation::request(key, 0x01, &[0; 8], value.to_string().as_bytes());
        let mut client = self.nodes.connect(node);
        let (answers, ..) = client.give(&durable(level, 10_000, &set));
        let given_up_at = self.step + PATIENCE;
        let pending = Pending { node, client, value, given_up_at };
        match answers.first() {
            None => self.known.get_mut(&key).unwrap().pending = Some(pending),
            Some(answer) => self.answered(key, value, answer.status),
        }
    }

    fn answered(&mut self, key: u16, value: u64, status: u16) {
        let known = self.known.get_mut(&key).unwrap();
        match status {
            0 => {
                self.acknowledged += 1;
                known.seen(value);
            }
            0xa3 => known.maybe.push(value),
            0x07 | 0x86 | 0xa1 | 0xa2 | 0xa4 => {}
            other => panic!("a write was answered with {other:#x}"),
        }
    }

    fn read(&mut self, key: u16) {
        let Some(node) = self.route(key) else { return };
        let answer = self.nodes.connect(node).ask(&Simulation::request(key, 0x00, b"", b""));
        let value = match answer.status {
            0 => String::from_utf8(answer.value).unwrap().parse().unwrap(),
            0x01 => 0,
            0x07 | 0x86 | 0xa4 => return,
            other => panic!("a read was answered with {other:#x}"),
        };
        self.reads += 1;
        let known = self.known.get_mut(&key).unwrap();
        let (allowed, floor) = (known.allows(value), known.floor);
        known.seen(value);
        assert!(allowed, "k{key} on node {node} is {value} and was {floor}{}", self.story());
    }

    /// One step of time, and whatever clients do in it.
    fn go_on(&mut self) {
        self.step += 1;
        for _ in 0..OPERATIONS {
            let key = self.chance.below(u64::from(KEYS)) as u16;
            match self.chance.below(3) {
                0 => self.read(key),
                _ if self.known[&key].pending.is_none() => self.write(key),
                _ => {}
            }
        }
        // Faults come at any moment, not only when all is done.
        let some = 1 + self.chance.below(STEP_MS);
        self.nodes.pass(some);
        self.collect_answers();
    }

    /// What has become of the writes that were not answered. A client gives up when its node is gone, or time is over.
    fn collect_answers(&mut self) {
        for key in 0..KEYS {
            let Some(mut pending) = self.known.get_mut(&key).unwrap().pending.take() else {
                continue;
            };
            let gone = self.nodes.nodes[pending.node].is_none();
            let answer = if gone { None } else { pending.client.resume().into_iter().next() };
            let known = self.known.get_mut(&key).unwrap();
            match answer {
                Some(answer) => self.answered(key, pending.value, answer.status),
                None if gone || self.step >= pending.given_up_at => known.maybe.push(pending.value),
                None => known.pending = Some(pending),
            }
        }
    }

    fn go_on_for(&mut self, steps: u64) {
        (0..steps).for_each(|_| self.go_on());
    }

    /// Something breaks, and after a while it is there again.
    fn fault(&mut self) {
        let node = self.chance.below(NODES as u64) as usize;
        let other = (node + 1 + self.chance.below(NODES as u64 - 1) as usize) % NODES;
        let longest = [4, 60, 800][self.chance.below(3) as usize];
        let steps = 1 + self.chance.below(longest);
        match self.chance.below(5) {
            0 | 1 => {
                self.note(format!("node {node} is killed for {} ms", steps * STEP_MS));
                self.nodes.kill(node);
                self.without_leader(node, steps);
                self.nodes.start(node);
            }
            2 => {
                self.note(format!("node {node} is cut off for {} ms", steps * STEP_MS));
                self.nodes.isolated.insert(node);
                self.without_leader(node, steps);
                self.nodes.isolated.clear();
            }
            3 => {
                self.note(format!(
                    "{node} and {other} do not hear each other for {} ms",
                    steps * STEP_MS
                ));
                self.nodes.cut = vec![(node, other)];
                self.go_on_for(steps);
                self.nodes.cut.clear();
            }
            _ => {
                self.note(format!("connections of {node} and {other} break"));
                self.nodes.reset(node, other);
                self.go_on_for(steps.min(40));
            }
        }
    }

    /// Goes on while `node` is not there; if it led, another one does after a while.
    fn without_leader(&mut self, node: usize, steps: u64) {
        let leads = self.nodes.leader().is_none_or(|leader| leader == node);
        let election = if leads { 10 + self.chance.below(50) } else { 0 };
        if leads {
            self.nodes.elect(None);
        }
        for step in 0..steps.max(election + 1) {
            if leads && step == election {
                let leader = (node + 1 + self.chance.below(NODES as u64 - 1) as usize) % NODES;
                self.note(format!("node {leader} leads"));
                self.nodes.elect(leader);
            }
            self.go_on();
        }
    }

    /// Makes the copies whole again, as an operator would.
    fn mend(&mut self) {
        let begun = self.step;
        loop {
            self.go_on();
            assert!(self.step < begun + 8000, "the copies are not whole{}", self.story());
            let cluster = self.cluster();
            if cluster.rebalance.is_some() {
                continue;
            }
            let failed = cluster.nodes.iter();
            let mut failed = failed.filter(|(_, node)| node.membership == Membership::FailedOver);
            if let Some((id, _)) = failed.next() {
                self.nodes.change(&Change::Recover { id: *id });
                continue;
            }
            let whole = |chain: &nacre_cluster::Chain| chain.copies.iter().all(Option::is_some);
            let all_whole = cluster.buckets["b"].chains.iter().all(whole);
            if all_whole && cluster.serving_nodes().len() == NODES && self.is_in_sync() {
                self.nodes.change(&Change::ResetAutoFailover);
                self.note("the copies are whole".into());
                return;
            }
            let unfinished = !all_whole || cluster.serving_nodes().len() < NODES;
            if unfinished && cluster.failing_over.is_empty() {
                let keep = (1..=NODES as u64).map(NodeId).collect();
                let rest = Membership::Leaving;
                self.nodes.change(&Change::StartRebalance { id: "r".into(), keep, rest });
            }
        }
    }

    /// Whether each vBucket has one active copy, and all others follow it to its end.
    fn is_in_sync(&self) -> bool {
        (0..VBUCKETS).map(Vbid).all(|vbid| {
            let copies = self.nodes.nodes.iter().flatten().map(|node| {
                let bucket = node.bucket("b").unwrap();
                let vbucket = bucket.vbucket(vbid).unwrap();
                (vbucket.state(), vbucket.standing())
            });
            let copies: Vec<_> = copies.collect();
            let actives = copies.iter().filter(|(state, _)| *state == VbState::Active).count();
            let first = copies[0].1;
            actives == 1
                && copies.iter().all(|(_, standing)| {
                    (standing.term, standing.high_seqno) == (first.term, first.high_seqno)
                })
        })
    }

    /// All copies have the same documents, and each key what was acknowledged.
    fn check(&mut self) {
        let begun = self.step;
        while self.known.values().any(|known| known.pending.is_some()) || !self.is_in_sync() {
            self.nodes.pass(STEP_MS);
            self.step += 1;
            self.collect_answers();
            assert!(self.step < begun + 4000, "the copies do not come to rest{}", self.story());
        }
        for key in 0..KEYS {
            let name = format!("\0k{key}");
            let copies = self.nodes.nodes.iter().flatten().map(|node| {
                let bucket = node.bucket("b").unwrap();
                let vbucket = bucket.vbucket(Vbid(key % VBUCKETS)).unwrap();
                let document = vbucket.find(name.as_bytes()).cloned();
                document.map(|document| (document.meta.cas, document.value().to_vec()))
            });
            let copies: Vec<_> = copies.collect();
            assert!(
                copies.iter().all(|copy| *copy == copies[0]),
                "k{key}: {copies:?}{}",
                self.story()
            );
            self.read(key);
        }
    }

    /// What happened, and how things are.
    fn story(&self) -> String {
        let cluster = self.cluster();
        let mut story = format!("\n{}\n", self.trace.join("\n"));
        let parts: Vec<_> = cluster.nodes.values().map(|node| node.membership).collect();
        let _ = writeln!(story, "{parts:?}, rebalance: {:?}", cluster.rebalance.is_some());
        for (vbid, chain) in (0..).map(Vbid).zip(&cluster.buckets["b"].chains) {
            let _ = writeln!(story, "{vbid}: {chain:?}");
            for (index, node) in self.nodes.nodes.iter().enumerate() {
                let Some(bucket) = node.as_ref().and_then(|node| node.bucket("b")) else {
                    continue;
                };
                let vbucket = bucket.vbucket(vbid).unwrap();
                let _ = writeln!(
                    story,
                    "  node {index}: {:?} {:?} stored to {}, {} prepares, log {:?}",
                    vbucket.state(),
                    vbucket.standing(),
                    vbucket.persisted(),
                    vbucket.prepare_count(),
                    vbucket.failover_log().entries(),
                );
            }
        }
        story
    }
}

#[test]
fn whatever_breaks_no_acknowledged_durable_write_is_lost_and_no_read_goes_back() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seeds = match number("NACRE_SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("NACRE_SIM_SEEDS").unwrap_or(SEEDS),
    };
    let (mut acknowledged, mut reads, mut milliseconds) = (0, 0, 0);
    for seed in seeds.clone() {
        let simulated = std::panic::catch_unwind(|| {
            let mut simulation = Simulation::new(seed);
            for _ in 0..FAULTS {
                let steps = simulation.chance.below(60);
                simulation.go_on_for(steps);
                simulation.fault();
                simulation.mend();
            }
            simulation.check();
            (simulation.acknowledged, simulation.reads, simulation.step * STEP_MS)
        });
        let Ok(counts) = simulated else { panic!("seed {seed}") };
        acknowledged += counts.0;
        reads += counts.1;
        milliseconds += counts.2;
    }
    eprintln!(
        "{seeds:?}: {acknowledged} durable writes, {reads} reads, {} s of the nodes' time",
        milliseconds / 1000
    );
    assert!(acknowledged > 0 && reads > 0);
}
