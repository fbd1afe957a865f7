//! One run: a cluster, clients, faults, and the conditions that must hold.

use crate::cluster::{MS, id, index};
use crate::faults::{Fault, Mix};
use crate::history::{self, Verdict};
use crate::reader::Reader;
use crate::workload::{BUCKET, Counts, KEYS, VBUCKETS, Workload, vbid};
use crate::{Chance, ClientEvent, Clock, Cluster};
use nacre_cluster::{
    AutoFailover, BucketChange, BucketKind, BucketSettings, Chain, Change, EvictionPolicy,
    Membership, NodeChange, RetryRebalance,
};
use nacre_types::{CollectionId, VbState, Vbid, Vbids};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Number of faults of a run.
const FAULTS: usize = 8;
/// Interval of the checks.
const LOOK_NS: u64 = 25 * MS;
/// Alarms of the reader and of the checks.
const READER: u64 = 2 << 56;
const LOOK: u64 = 3 << 56;
/// Maximum time until the copies are complete after all faults are repaired.
const MEND_NS_MAX: u64 = 120_000 * MS;
/// Delay of a rebalance's retry in seconds.
const RETRY_AFTER_S: u64 = 3;
/// How long to wait for a vBucket that is about to be activated on another node.
const SUCCESSION_NS_MAX: u64 = 6_000 * MS;
/// How long to wait for a copy with half a snapshot.
const HALF_NS_MAX: u64 = 1_000 * MS;
/// Maximum time of everything else after that.
const REST_NS_MAX: u64 = 30_000 * MS;

/// Documents by key: the CAS, and true unless the document is a tombstone.
pub(crate) type Documents = BTreeMap<Vec<u8>, (u64, bool)>;

/// Returns the documents of `one` that are missing or different in `other`.
fn difference(one: &Documents, other: &Documents) -> Documents {
    let differs = |(key, version): &(&Vec<u8>, &(u64, bool))| other.get(*key) != Some(*version);
    one.iter().filter(differs).map(|(key, version)| (key.clone(), *version)).collect()
}

/// Statistics of a successful run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    /// Counts of operations.
    pub counts: Counts,
    /// Number of events.
    pub events: u64,
    /// Simulated time in nanoseconds.
    pub virtual_ns: u64,
    /// Hash of the events, which is the same for the same seed.
    pub hash: u64,
    /// Number of key histories whose check was given up.
    pub undecided: u64,
    /// Number of activations of a vBucket on another node.
    pub terms: u64,
}

/// See the [module](self).
pub struct Simulation {
    cluster: Cluster,
    workload: Workload,
    reader: Reader,
    mix: Mix,
    chance: Chance,
    /// The last map revision known to each node.
    revisions: Vec<u64>,
    /// Faults and repairs, each with the number of decisions before it.
    trace: Vec<(u64, String)>,
}

impl Simulation {
    /// Creates the run of a seed, with a bucket and clients, before the first fault.
    ///
    /// # Panics
    /// Panics if the nodes do not agree on a bucket.
    pub fn new(seed: u64) -> Simulation {
        let mut chance = Chance::new(seed);
        let mix = Mix::new(&mut chance);
        Simulation::with(mix, chance)
    }

    /// Creates a run with a given mix.
    ///
    /// # Panics
    /// Panics if the nodes do not agree on a bucket.
    pub fn with(mix: Mix, mut chance: Chance) -> Simulation {
        let drift = mix.drift_ppm;
        let clock = |chance: &mut Chance| Clock {
            origin_ns: 1 + chance.below(1 << 40),
            rate_ppm: 1_000_000 + chance.below(2 * drift + 1) - drift,
            skew_ns: chance.below(200) as i64 * MS as i64,
        };
        let clocks: Vec<Clock> = (0..mix.nodes).map(|_| clock(&mut chance)).collect();
        let mut cluster = Cluster::new(&clocks, chance.fork(), mix.lost_answers);
        (cluster.network.splits, cluster.network.split_ns) = (mix.splits, mix.split_ns);
        cluster.network.lag_ns = mix.lag_ns;
        (0..mix.nodes).for_each(|node| cluster.slow_disk(node, mix.disk_ns));
        let settings = AutoFailover {
            timeout_ms: mix.failover_timeout_ms,
            count_max: mix.failovers_max,
            ..AutoFailover::default()
        };
        let (kind, eviction_policy) = match mix.is_ephemeral {
            true => (BucketKind::Ephemeral, EvictionPolicy::None),
            false if mix.evicts_keys => (BucketKind::Persistent, EvictionPolicy::Full),
            false => (BucketKind::Persistent, EvictionPolicy::ValueOnly),
        };
        let bucket = BucketSettings {
            kind,
            eviction_policy,
            vbucket_count: VBUCKETS,
            replicas: mix.replicas,
            ram_quota_mb: 100,
            ..BucketSettings::default()
        };
        let create = Change::Buckets(BucketChange::CreateBucket {
            name: BUCKET.into(),
            uuid: "b".repeat(32),
            settings: bucket,
        });
        let retry = RetryRebalance { enabled: true, after_s: RETRY_AFTER_S, retries_max: 3 };
        let retry = Change::Nodes(NodeChange::SetRetryRebalance { settings: retry });
        for change in [Change::Nodes(NodeChange::SetAutoFailover { settings }), retry, create] {
            while cluster.change(&change).is_err() {
                let until = cluster.now() + 10 * MS;
                while cluster.next(until).is_some() {}
                if cluster.agreed().is_some_and(|agreed| !agreed.buckets.is_empty()) {
                    break;
                }
            }
        }
        let workload = Workload::new(&mix, chance.fork(), &mut cluster);
        let reader = Reader::new(chance.fork(), READER, &mut cluster);
        cluster.set_alarm(LOOK_NS, LOOK);
        let revisions = vec![0; mix.nodes];
        Simulation { cluster, workload, reader, mix, chance, revisions, trace: Vec::new() }
    }

    /// Injects all faults and checks the result.
    ///
    /// # Panics
    /// Panics if a condition is violated, with the story of the run.
    pub fn run(mut self) -> Summary {
        self.pass(1000 * MS);
        Workload::fill(self.mix.ballast, &mut self.cluster);
        self.pass(1000 * MS);
        let mut left = FAULTS;
        while left > 0 {
            let calm = self.chance.between(1, 1500);
            self.pass(calm * MS);
            let at_once = self.chance.between(1, self.mix.at_once);
            left = left.saturating_sub(at_once as usize);
            self.break_things(at_once);
            if self.mix.at_once == 1 || self.chance.once_in(2) {
                self.mend();
            }
        }
        self.mend();
        self.pass(500 * MS);
        self.check()
    }

    fn note(&mut self, what: String) {
        let line = format!("{:>9.3} s  {what}", self.cluster.now() as f64 / 1e9);
        self.trace.push((self.cluster.raft.decided(), line));
    }

    /// Lets time pass.
    pub fn pass(&mut self, ns: u64) {
        let until = self.cluster.now() + ns;
        while let Some(happening) = self.cluster.next(until) {
            match happening {
                ClientEvent::Alarm(READER) => self.reader.look(&mut self.cluster),
                ClientEvent::Alarm(LOOK) => {
                    self.cluster.set_alarm(LOOK_NS, LOOK);
                    self.look();
                }
                ClientEvent::Alarm(alarm) => self.workload.alarm(alarm, &mut self.cluster),
                ClientEvent::Received { wire, bytes } => {
                    let _ = self.workload.receive(wire, &bytes, &mut self.cluster)
                        || self.reader.receive(wire, &bytes, &mut self.cluster);
                    if let Some(broken) = self.workload.broken_promise.take() {
                        panic!("{broken}{}", self.story());
                    }
                }
                ClientEvent::Broken { wire } => {
                    let _ =
                        self.workload.broken(wire, &mut self.cluster) || self.reader.broken(wire);
                }
            }
        }
    }

    /// Lets time pass until a condition holds.
    fn pass_until(&mut self, what: &str, ns_max: u64, mut is_so: impl FnMut(&mut Self) -> bool) {
        let end = self.cluster.now() + ns_max;
        while !is_so(self) {
            assert!(self.cluster.now() < end, "{what}{}", self.story());
            self.pass(20 * MS);
        }
    }

    // What breaks.

    /// Injects this many faults, one soon after another, and repairs them in the order of their ends.
    fn break_things(&mut self, count: u64) {
        let mut broken: Vec<(u64, Fault)> = Vec::new();
        for _ in 0..count {
            let (mut fault, mut lasts_ns) = self.mix.fault(&mut self.chance);
            if !broken.is_empty() && self.chance.once_in(self.mix.hunts) {
                let next = self.next_share();
                fault = next.map_or(fault, |node| Fault::Kill { node, tears: false });
            } else if !broken.is_empty() && self.chance.once_in(self.mix.flickers) {
                match self.next_witness() {
                    Some(_) if self.chance.once_in(3) => {
                        let pause = self.chance.between(0, 500);
                        self.pass(pause * MS);
                        fault = Fault::Depose;
                    }
                    Some(node) => {
                        (fault, lasts_ns) = (Fault::Kill { node, tears: false }, MS);
                        broken.extend(self.silence(node, 500));
                    }
                    None => {}
                }
            } else if count > 1 && broken.is_empty() && self.chance.once_in(self.mix.flickers) {
                let node = self.chance.below(self.mix.nodes as u64) as usize;
                broken.extend(self.silence(node, 4000));
                continue;
            } else if let Fault::Kill { node, .. } = &mut fault
                && self.chance.once_in(self.mix.halves)
            {
                *node = self.next_ahead_of_half().unwrap_or(*node);
            }
            self.note(format!("{fault} for {} ms", lasts_ns / MS));
            self.break_one(fault, lasts_ns);
            if self.mix.ballast > 0 && self.chance.once_in(2) {
                // A copy that is cut off misses more than memory keeps for it.
                Workload::fill(self.mix.ballast, &mut self.cluster);
            }
            broken.push((self.cluster.now() + lasts_ns, fault));
            let soon = self.chance.between(0, self.mix.soon_ns);
            if broken.len() < count as usize {
                self.pass(soon);
            }
        }
        broken.sort_by_key(|(ends_at, _)| *ends_at);
        for (ends_at, fault) in broken {
            if self.chance.once_in(self.mix.returns) {
                self.next_share();
            } else {
                self.pass(ends_at.saturating_sub(self.cluster.now()));
            }
            self.put_right(fault);
        }
    }

    /// Lets time pass until shortly after a vBucket is activated on another node. Returns a node with a copy of it,
    /// preferably the active one, or `None` if no activation happens or the newest state is unknown.
    fn next_share(&mut self) -> Option<usize> {
        let before = self.terms();
        let end = self.cluster.now() + SUCCESSION_NS_MAX;
        while self.cluster.now() < end {
            self.pass(MS);
            if self.cluster.raft.has_pending() && self.chance.once_in(2) {
                return None;
            }
            let given = self.terms().iter().zip(&before).position(|(now, before)| now > before);
            if let Some(vbid) = given {
                let pause = self.chance.one_of(&[0, 0, 1, 20, 300]);
                self.pass(pause * MS);
                let copies = self.copies(vbid as u16);
                let active = copies.first().copied();
                return if self.chance.once_in(3) { copies.last().copied() } else { active };
            }
        }
        None
    }

    /// Lets time pass until shortly after a node has reported its copies for a failover of others. Returns that node.
    fn next_witness(&mut self) -> Option<usize> {
        let end = self.cluster.now() + SUCCESSION_NS_MAX;
        while self.cluster.now() < end {
            self.pass(5 * MS);
            let fenced = self.cluster.nodes().filter(|(_, node)| node.is_fenced());
            let witnesses: Vec<usize> = fenced.map(|(index, _)| index).collect();
            if !witnesses.is_empty() {
                let pause = self.chance.between(0, 500);
                self.pass(pause * MS);
                return Some(self.chance.one_of(&witnesses));
            }
        }
        None
    }

    /// Cuts a node off from the leader for a while.
    fn silence(&mut self, node: usize, ms_max: u64) -> Option<(u64, Fault)> {
        let leader = self.cluster.raft.leader().filter(|leader| *leader != node)?;
        let (fault, lasts_ns) = (Fault::Cut(node, leader), self.chance.between(0, ms_max) * MS);
        self.note(format!("{fault} for {} ms", lasts_ns / MS));
        self.break_one(fault, lasts_ns);
        Some((self.cluster.now() + lasts_ns, fault))
    }

    /// Lets time pass until a copy has half a snapshot. Returns the node of the vBucket's active copy.
    fn next_ahead_of_half(&mut self) -> Option<usize> {
        let end = self.cluster.now() + HALF_NS_MAX;
        while self.cluster.now() < end {
            self.pass(MS);
            let first = self.chance.below(VBUCKETS.into()) as u16;
            for vbid in (0..VBUCKETS).map(|vbid| (first + vbid) % VBUCKETS) {
                let copies = self.copies(vbid);
                let has_half = |node: &usize| {
                    let bucket = self.cluster.node(*node)?.bucket(BUCKET)?;
                    Some(!bucket.vbucket(Vbid(vbid))?.is_consistent())
                };
                if copies.iter().skip(1).any(|node| has_half(node) == Some(true)) {
                    return copies.first().copied();
                }
            }
        }
        None
    }

    /// Returns the term of each vBucket.
    fn terms(&self) -> Vec<u64> {
        let Some(agreed) = self.cluster.newest() else { return Vec::new() };
        agreed.buckets[BUCKET].chains.iter().map(|chain| chain.term).collect()
    }

    /// Injects a fault without repairing it.
    pub fn break_one(&mut self, fault: Fault, lasts_ns: u64) {
        let cluster = &mut self.cluster;
        let nodes = cluster.len();
        match fault {
            Fault::Kill { node, tears } => cluster.kill(node, tears),
            Fault::Stop(node) => cluster.stop(node),
            Fault::PowerCut => (0..nodes).for_each(|node| cluster.kill(node, false)),
            Fault::Pause(node) => cluster.pause(node, lasts_ns),
            Fault::Isolate(node) => self.isolate(node, true),
            Fault::Cut(one, other) => self.cut(one, other, true),
            Fault::OneWay(from, to) => cluster.network.blocked[from][to] = true,
            Fault::Reset(one, other) => cluster.reset(one, other),
            Fault::Close(node) => cluster.network.closed[node] = true,
            Fault::Weather => {
                cluster.network.loss = self.chance.between(2, 20);
                cluster.network.spikes = self.chance.between(2, 50);
                cluster.network.spike_ns = self.chance.between(1, 400) * MS;
            }
            Fault::SlowDisk(node) => {
                let delay = self.chance.one_of(&[20, 300, 3000]);
                cluster.slow_disk(node, delay * MS);
            }
            Fault::FullDisk(node) => cluster.break_disk(node, Some(nacre_store::Fault::Full)),
            Fault::NoDescriptors(node) => {
                cluster.break_disk(node, Some(nacre_store::Fault::Exhausted));
            }
            Fault::TornDisk(node) => cluster.break_disk(node, Some(nacre_store::Fault::Torn)),
            Fault::ClockStep(node, seconds) => {
                cluster.step_wall_clock(node, seconds * 1000 * MS as i64);
            }
            Fault::Depose => cluster.raft.depose(),
            Fault::FailOver(node) => {
                cluster.change(&Change::Nodes(NodeChange::FailOver { nodes: vec![id(node)] })).ok();
            }
            Fault::RebalanceOut(node) => {
                let Some(agreed) = cluster.agreed() else { return };
                let keep = agreed.serving_nodes().into_keys().filter(|other| *other != id(node));
                let (id, keep) = ("o".repeat(32), keep.collect());
                // Permanently or temporarily.
                let rest = [Membership::FailedOver, Membership::Leaving][node % 2];
                cluster
                    .change(&Change::Nodes(NodeChange::StartRebalance {
                        id,
                        keep,
                        rest,
                        services: BTreeMap::new(),
                    }))
                    .ok();
            }
        }
    }

    fn isolate(&mut self, node: usize, isolated: bool) {
        let others = (0..self.cluster.len()).filter(|other| *other != node);
        others.for_each(|other| self.cut(node, other, isolated));
    }

    fn cut(&mut self, one: usize, other: usize, is_cut: bool) {
        let blocked = &mut self.cluster.network.blocked;
        (blocked[one][other], blocked[other][one]) = (is_cut, is_cut);
    }

    /// Repairs a fault.
    pub fn put_right(&mut self, fault: Fault) {
        self.note(format!("no more: {fault}"));
        let cluster = &mut self.cluster;
        match fault {
            Fault::Kill { node, .. } | Fault::Stop(node) => cluster.start(node),
            Fault::PowerCut => (0..cluster.len()).for_each(|node| cluster.start(node)),
            Fault::Isolate(node) => self.isolate(node, false),
            Fault::Cut(one, other) => self.cut(one, other, false),
            Fault::OneWay(from, to) => cluster.network.blocked[from][to] = false,
            Fault::Close(node) => cluster.network.closed[node] = false,
            Fault::Weather => (cluster.network.loss, cluster.network.spikes) = (0, 0),
            Fault::SlowDisk(node) => cluster.slow_disk(node, self.mix.disk_ns),
            Fault::FullDisk(node) | Fault::NoDescriptors(node) => cluster.break_disk(node, None),
            Fault::TornDisk(node) => {
                // Writes that may not be stored must not be built upon before a restart.
                cluster.break_disk(node, None);
                cluster.kill(node, false);
                cluster.start(node);
            }
            Fault::Pause(_)
            | Fault::Reset(..)
            | Fault::ClockStep(..)
            | Fault::Depose
            | Fault::FailOver(_)
            | Fault::RebalanceOut(_) => {}
        }
    }

    /// Makes the copies complete again, as an operator would.
    ///
    /// # Panics
    /// Panics if that takes too long.
    pub fn mend(&mut self) {
        self.pass_until("the copies are not whole", MEND_NS_MAX, |simulation| {
            let cluster = &mut simulation.cluster;
            // The leader may not know yet what an operator has requested and what was reported as decided.
            let Some(agreed) = cluster.newest() else { return false };
            if agreed.rebalance.is_some() || !agreed.failing_over.is_empty() {
                return false;
            }
            let has_no_share = |part| !matches!(part, Membership::Active | Membership::Added);
            let out = agreed.nodes.iter().find(|(_, node)| has_no_share(node.membership));
            if let Some((id, _)) = out {
                cluster.change(&Change::Nodes(NodeChange::Recover { id: *id, full: false })).ok();
                return false;
            }
            let copies = usize::from(simulation.mix.replicas) + 1;
            let is_whole = |chain: &Chain| {
                chain.copies.iter().flatten().count() == copies.min(simulation.mix.nodes)
            };
            let all_whole = agreed.buckets[BUCKET].chains.iter().all(is_whole);
            if !all_whole || agreed.serving_nodes().len() < cluster.len() {
                let (id, keep) = ("r".repeat(32), agreed.nodes.keys().copied().collect());
                let rest = Membership::Leaving;
                cluster
                    .change(&Change::Nodes(NodeChange::StartRebalance {
                        id,
                        keep,
                        rest,
                        services: BTreeMap::new(),
                    }))
                    .ok();
                return false;
            }
            if !simulation.is_in_sync() {
                return false;
            }
            simulation.cluster.change(&Change::Nodes(NodeChange::ResetAutoFailover)).is_ok()
        });
        self.note("the copies are whole".into());
    }

    // What must be true.

    /// Checks the conditions that must always hold.
    fn look(&mut self) {
        let at_work = |node: usize| {
            let now = self.cluster.clock_of(node).filter(|_| self.cluster.works(node))?;
            Some((node, self.cluster.node(node)?.bucket(BUCKET)?, now))
        };
        let at_work: Vec<_> = (0..self.cluster.len()).filter_map(at_work).collect();
        if let Some(broken) = &self.cluster.broken_choice {
            panic!("{broken}{}", self.story());
        }
        let mut serving = Vec::new();
        for vbid in (0..VBUCKETS).map(Vbid) {
            let only = Vbids::from_iter([vbid]);
            serving.clear();
            for (node, bucket, now) in &at_work {
                let now = *now;
                if bucket.serves(&only, now) {
                    serving.push(*node);
                }
                let vbucket = bucket.vbucket(vbid).expect("a bucket has all its vBuckets");
                let (stored, last) = (vbucket.persisted(), vbucket.high_seqno());
                assert!(stored <= last, "{vbid} of node {node} has stored {stored} of {last}");
                drop(vbucket);
                if !self.mix.is_ephemeral && self.chance.once_in(self.mix.evictions) {
                    bucket.make_room(vbid, self.chance.one_of(&[50, 100]), now);
                }
            }
            assert!(serving.len() <= 1, "{vbid} is served by {serving:?}{}", self.story());
        }
        // One vBucket at a time, because this is the slowest check.
        let looked_at = Vbid((self.cluster.now() / LOOK_NS) as u16 % VBUCKETS);
        let promises = &self.workload.promises;
        let broken = || promises.broken(looked_at, self.mix.is_ephemeral, &self.cluster);
        if let Some(broken) = self.mix.promises.then(broken).flatten() {
            panic!("{broken}{}", self.story());
        }
        for node in 0..self.cluster.len() {
            let revision = self.cluster.node(node).map(|node| node.cluster().rev);
            let before = std::mem::replace(&mut self.revisions[node], revision.unwrap_or(0));
            let goes_back = revision.is_some_and(|revision| revision < before);
            assert!(!goes_back, "node {node} has forgotten a map{}", self.story());
        }
    }

    /// Returns the nodes with a copy of a vBucket, the active one first.
    fn copies(&self, vbid: u16) -> Vec<usize> {
        let Some(agreed) = self.cluster.newest() else { return Vec::new() };
        let chain = &agreed.buckets[BUCKET].chains[usize::from(vbid)];
        chain.copies.iter().flatten().copied().map(index).collect()
    }

    /// Returns true if each vBucket has one active copy, and all others have caught up with it.
    fn is_in_sync(&self) -> bool {
        (0..VBUCKETS).all(|number| {
            let copies = self.copies(number).into_iter().map(|index| {
                let bucket = self.cluster.node(index)?.bucket(BUCKET)?;
                let vbucket = bucket.vbucket(Vbid(number))?;
                Some((vbucket.state(), vbucket.standing().term, vbucket.high_seqno()))
            });
            let Some(copies) = copies.collect::<Option<Vec<_>>>() else { return false };
            let actives = copies.iter().filter(|(state, ..)| *state == VbState::Active).count();
            actives == 1
                && copies
                    .iter()
                    .all(|(_, term, seqno)| (*term, *seqno) == (copies[0].1, copies[0].2))
        })
    }

    /// Reads all keys once more.
    fn read_all(&mut self) {
        self.workload.rests = true;
        self.pass_until("requests are under way", REST_NS_MAX, |simulation| {
            simulation.workload.is_quiet()
        });
        self.pass_until("keys cannot be read", REST_NS_MAX, |simulation| {
            simulation.workload.read_all(&mut simulation.cluster)
        });
    }

    /// Returns the number of keys that have lost an acknowledged write.
    ///
    /// # Panics
    /// Panics if keys cannot be read.
    pub fn count_lost(mut self) -> usize {
        self.read_all();
        let histories = self.workload.history.values();
        histories.filter(|operations| history::check(operations) != Verdict::Linearizable).count()
    }

    /// Checks the conditions that must hold at the end.
    fn check(mut self) -> Summary {
        self.read_all();
        self.pass_until("the copies do not come to rest", REST_NS_MAX, |simulation| {
            simulation.is_in_sync()
        });
        self.pass_until("the reader has not what there is", REST_NS_MAX, |simulation| {
            (0..VBUCKETS).all(|number| simulation.is_read(number))
        });
        self.pass_until("the copies are not stored", REST_NS_MAX, |simulation| {
            (0..VBUCKETS).all(|number| simulation.is_stored(number))
        });
        self.compare();
        if !self.mix.is_ephemeral && self.chance.once_in(4) {
            self.lose_power();
        }
        let mut undecided = 0;
        for key in 0..KEYS {
            let Some(operations) = self.workload.history.get(&key) else { continue };
            if let Some((earlier, later)) = history::find_older_version(operations) {
                panic!(
                    "k{key} has gone back to an older version:\n{earlier}\n{later}{}",
                    self.story()
                );
            }
            match history::check(operations) {
                Verdict::Linearizable => {}
                Verdict::Undecided => undecided += 1,
                Verdict::Impossible => {
                    let lines: Vec<String> = operations.iter().map(ToString::to_string).collect();
                    let vbid = vbid(key);
                    panic!("k{key} of vb {vbid}:\n{}{}", lines.join("\n"), self.story());
                }
            }
        }
        let agreed = self.cluster.newest().expect("all nodes are up");
        let terms = agreed.buckets[BUCKET].chains.iter().map(|chain| chain.term - 1).sum();
        Summary {
            counts: self.workload.counts,
            events: self.cluster.event_count(),
            virtual_ns: self.cluster.now(),
            hash: self.cluster.hash(),
            undecided,
            terms,
        }
    }

    /// Returns the documents of a vBucket on a node, including tombstones, by key: the CAS, and true unless it is a
    /// tombstone.
    fn documents(&self, index: usize, number: u16) -> Documents {
        let bucket = self.bucket(index);
        let vbucket = bucket.vbucket(Vbid(number)).expect("a bucket has its vBuckets");
        let document = |document: &nacre_types::Document| {
            (document.key().to_vec(), (document.meta.cas.0, document.is_alive()))
        };
        // Sorted at once, which is faster than inserting one by one.
        let mut documents: Documents = vbucket.documents().map(document).collect();
        if self.mix.evicts_keys && !self.mix.is_ephemeral {
            let mut stored = self.cluster.disk(index).documents(Vbid(number));
            stored.retain(|key, _| CollectionId::of_key(key) != CollectionId::PREPARED);
            stored.append(&mut documents);
            documents = stored;
        }
        documents
    }

    fn bucket(&self, index: usize) -> std::sync::Arc<nacre_bucket::Bucket> {
        let bucket = self.cluster.node(index).and_then(|node| node.bucket(BUCKET));
        bucket.expect("all nodes are up")
    }

    /// Returns the keys whose tombstones some copy of a bucket without a store may have purged. Each copy purges by its own
    /// clock, and makes consumers that may have missed the deletion start over.
    fn forgotten(&self, number: u16) -> BTreeSet<Vec<u8>> {
        let mut keys = BTreeSet::new();
        if !self.mix.is_ephemeral {
            return keys;
        }
        let buckets: Vec<_> =
            self.copies(number).into_iter().map(|copy| self.bucket(copy)).collect();
        let vbuckets = || buckets.iter().filter_map(|bucket| bucket.vbucket(Vbid(number)));
        let purged = vbuckets().map(|vbucket| vbucket.purge_seqno()).max().unwrap_or_default();
        for vbucket in vbuckets() {
            let dead = vbucket.documents().filter(|document| !document.is_alive());
            let old = dead.filter(|document| document.meta.seqno <= purged);
            keys.extend(old.map(|document| document.key().to_vec()));
        }
        keys
    }

    /// Returns true if the reader has exactly the documents of the active copy. Seqnos do not show that, because the reader
    /// does not receive prepares or aborts.
    fn is_read(&self, number: u16) -> bool {
        let documents = self.documents(self.copies(number)[0], number);
        let alive = documents.into_iter().filter(|(_, (_, is_alive))| *is_alive);
        // Keys of the default collection begin with a zero byte.
        let alive: BTreeMap<Vec<u8>, u64> =
            alive.map(|(key, (cas, _))| (key[1..].to_vec(), cas)).collect();
        self.reader.documents(number) == alive
    }

    /// Checks that exactly the persisted documents survive a power cut of all nodes.
    fn lose_power(&mut self) {
        let active = |simulation: &Simulation, number| {
            simulation.documents(simulation.copies(number)[0], number)
        };
        let before: Vec<Documents> = (0..VBUCKETS).map(|number| active(self, number)).collect();
        self.break_one(Fault::PowerCut, 0);
        self.pass(100 * MS);
        self.put_right(Fault::PowerCut);
        self.mend();
        for (number, before) in (0..VBUCKETS).zip(before) {
            self.assert_same(&active(self, number), &before, number, "after the power was lost");
        }
    }

    /// Returns true if the copies have nothing to persist, erase or commit.
    fn is_stored(&self, number: u16) -> bool {
        self.copies(number).into_iter().all(|copy| {
            let bucket = self.cluster.node(copy).and_then(|node| node.bucket(BUCKET));
            let copy = bucket.as_ref().and_then(|bucket| bucket.vbucket(Vbid(number)));
            copy.is_some_and(|copy| {
                let has_stored = copy.persisted() == copy.high_seqno() && !copy.has_graves();
                has_stored && copy.prepare_count() == 0
            })
        })
    }

    /// Checks that all copies and their disks have the same documents, without remains of completed prepares.
    fn compare(&self) {
        for number in 0..VBUCKETS {
            let copies = self.copies(number);
            let forgotten = self.forgotten(number);
            let documents_of = |copy| {
                let mut documents = self.documents(copy, number);
                documents.retain(|key, (_, is_alive)| *is_alive || !forgotten.contains(key));
                documents
            };
            let active = documents_of(copies[0]);
            for copy in copies {
                let documents = documents_of(copy);
                self.assert_same(&documents, &active, number, &format!("of node {copy}"));
                if !self.mix.is_ephemeral {
                    let stored = self.cluster.disk(copy).documents(Vbid(number));
                    let of = format!("on the disk of node {copy}");
                    self.assert_same(&stored, &active, number, &of);
                }
            }
        }
    }

    fn assert_same(&self, documents: &Documents, active: &Documents, number: u16, of: &str) {
        if documents == active {
            return;
        }
        let (more, less) = (difference(documents, active), difference(active, documents));
        panic!("vb {number} {of} has {more:?} for {less:?}{}", self.story());
    }

    /// Returns the story of the run and its current state.
    fn story(&self) -> String {
        let mut story = format!("\n\n{:?}\n", self.mix);
        let mut decisions = (1_u64..).zip(self.cluster.raft.decisions_after(0)).peekable();
        let now = (u64::MAX, format!("{:>9.3} s  now", self.cluster.now() as f64 / 1e9));
        for (decided, line) in self.trace.iter().chain([&now]) {
            while let Some((number, proposal)) = decisions.next_if(|(number, _)| number <= decided)
            {
                let _ = writeln!(story, "             decision {number}: {proposal:?}");
            }
            let _ = writeln!(story, "{line}");
        }
        let Some(agreed) = self.cluster.newest() else { return story };
        let parts: Vec<_> = agreed.nodes.values().map(|node| node.membership).collect();
        let leader = self.cluster.raft.leader();
        let _ = writeln!(story, "{parts:?}, node {leader:?} leads, {:?}", agreed.rebalance);
        for (vbid, chain) in (0..).map(Vbid).zip(&agreed.buckets[BUCKET].chains) {
            let _ = writeln!(story, "{vbid}: {chain:?}");
            for (index, node) in self.cluster.nodes() {
                let Some(bucket) = node.bucket(BUCKET) else { continue };
                let vbucket = bucket.vbucket(vbid).expect("a bucket has its vBuckets");
                let _ = writeln!(
                    story,
                    "  node {index}, map {}: {:?} {:?} stored to {}, {} prepares, log {:?}",
                    node.cluster().rev,
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Weak};

    #[test]
    fn nothing_is_left_of_nodes_that_are_gone() {
        for seed in 0..4 {
            let mut simulation = Simulation::new(seed);
            simulation.pass(2000 * MS);
            let nodes: Vec<_> = (0..simulation.cluster.len())
                .filter_map(|index| Some(Arc::downgrade(simulation.cluster.node(index)?)))
                .collect();
            assert!(!nodes.is_empty());
            simulation.cluster.kill(0, false);
            assert_eq!(nodes[0].strong_count(), 0, "killed, in seed {seed}");
            simulation.cluster.stop(1);
            assert_eq!(nodes[1].strong_count(), 0, "stopped, in seed {seed}");
            drop(simulation);
            let left = nodes.iter().map(Weak::strong_count).sum::<usize>();
            assert_eq!(left, 0, "of {} nodes in seed {seed}", nodes.len());
        }
    }
}
