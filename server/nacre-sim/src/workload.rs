//! Clients: each sends one request at a time to the node that it believes to serve the key, and records the answers.

use crate::cluster::{MS, index};
use crate::faults::Mix;
use crate::frame::{self, DURABILITY_TIMEOUT_MS, GREETING, Request, ResponseFrame};
use crate::history::{Asked, Operation, Outcome};
use crate::promise::{Promise, Promises};
use crate::{Chance, Cluster};
use nacre_protocol::Opcode;
use nacre_types::Cas;
use std::collections::BTreeMap;

/// The bucket of the clients.
pub const BUCKET: &str = "b";
/// Number of its vBuckets.
pub const VBUCKETS: u16 = 4;
/// Maximum number of keys of durable writes, whose histories are checked.
pub const KEYS: u16 = 10;
/// Number of further keys with less durable writes, whose copies are compared.
const VOLATILE_KEYS: u16 = 4;
/// Timeout of a client: longer than the server's timeout of a durable write.
const PATIENCE_NS: u64 = (DURABILITY_TIMEOUT_MS as u64 + 2000) * MS;
/// Pads values to their size. A padded value is not JSON, so it is not parsed.
const PADDING: u8 = b'.';
/// Pause of a client that reaches no node.
const NOBODY_NS: u64 = 50 * MS;

/// Purposes of a client's alarms.
const NEXT: u64 = 0;
const DEADLINE: u64 = 1;

/// The request in progress.
struct Pending {
    wire: u64,
    opaque: u32,
    key: u16,
    asked: Asked,
    begun: u64,
    /// Set for a durable write.
    promise: Option<Promise>,
}

#[derive(Default)]
struct Client {
    /// Connections with their nodes.
    wires: Vec<(usize, u64)>,
    pending: Option<Pending>,
    /// True if an alarm will check the age of the request in progress.
    is_timed: bool,
    opaque: u32,
    /// The client's knowledge of the node of each vBucket.
    map: Vec<Option<usize>>,
    /// Values with their CAS by key, as last seen.
    seen: BTreeMap<u16, (u64, u64)>,
}

/// Counts of operations by outcome.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Acknowledged durable writes.
    pub writes: u64,
    /// Answered reads.
    pub reads: u64,
    /// Operations with an unknown outcome.
    pub unknown: u64,
    /// Operations that were refused without effect.
    pub refused: u64,
}

/// See the [module](self).
pub struct Workload {
    clients: Vec<Client>,
    chance: Chance,
    /// Durability levels in use, and those of keys whose histories are not checked.
    levels: Vec<u8>,
    weaker_levels: Vec<u8>,
    /// See [`Mix::evicts_keys`].
    evicts_keys: bool,
    /// Minimum size of values in bytes.
    value_bytes: usize,
    keys: u16,
    /// Maximum pause of a client between two operations, in nanoseconds.
    pace_ns: u64,
    /// True if no new requests are sent.
    pub rests: bool,
    values: u64,
    /// Names of all keys.
    names: Vec<String>,
    /// History of each key of durable writes.
    pub history: BTreeMap<u16, Vec<Operation>>,
    /// Acknowledged durable writes of these keys.
    pub promises: Promises,
    /// A write that was acknowledged wrongly.
    pub broken_promise: Option<String>,
    /// See [`Counts`].
    pub counts: Counts,
}

/// Encodes an alarm of a client; [`Workload::alarm`] decodes it.
fn alarm(purpose: u64, client: usize) -> u64 {
    purpose << 56 | client as u64
}

/// Returns the vBucket of a key.
pub fn vbid(key: u16) -> u16 {
    key % VBUCKETS
}

impl Workload {
    /// Creates the clients of a mix, which start at once.
    pub fn new(mix: &Mix, chance: Chance, cluster: &mut Cluster) -> Workload {
        let mut workload = Workload {
            clients: (0..mix.clients).map(|_| Client::default()).collect(),
            chance,
            levels: mix.levels.clone(),
            weaker_levels: mix.weaker_levels.clone(),
            evicts_keys: mix.evicts_keys,
            value_bytes: mix.value_bytes,
            keys: mix.keys,
            pace_ns: mix.pace_ns,
            rests: false,
            values: 0,
            names: (0..KEYS + VOLATILE_KEYS).map(|key| format!("k{key}")).collect(),
            history: BTreeMap::new(),
            promises: Promises::default(),
            broken_promise: None,
            counts: Counts::default(),
        };
        (0..mix.clients).for_each(|client| workload.rest(client, cluster));
        workload
    }

    /// Returns true if no request is in progress.
    pub fn is_quiet(&self) -> bool {
        self.clients.iter().all(|client| client.pending.is_none())
    }

    fn rest(&mut self, client: usize, cluster: &mut Cluster) {
        let pause = self.chance.between(1, self.pace_ns);
        cluster.set_alarm(pause, alarm(NEXT, client));
    }

    /// Handles an alarm set by this workload.
    pub fn alarm(&mut self, alarm: u64, cluster: &mut Cluster) {
        let client = (alarm & 0xff_ffff) as usize;
        match alarm >> 56 {
            NEXT if self.rests => cluster.set_alarm(NOBODY_NS, alarm),
            NEXT => self.ask_something(client, cluster),
            _ => {
                self.clients[client].is_timed = false;
                self.look_at_the_time(client, cluster);
            }
        }
    }

    /// Gives up the request in progress after its timeout, and otherwise schedules the next check.
    fn look_at_the_time(&mut self, client: usize, cluster: &mut Cluster) {
        let known = &mut self.clients[client];
        let Some(pending) = &known.pending else { return };
        let ends = pending.begun + PATIENCE_NS;
        if ends <= cluster.now() {
            self.note(client, Outcome::Unknown, 0, cluster.now());
            self.rest(client, cluster);
        } else if !std::mem::replace(&mut known.is_timed, true) {
            cluster.set_alarm(ends - cluster.now(), alarm(DEADLINE, client));
        }
    }

    fn ask_something(&mut self, client: usize, cluster: &mut Cluster) {
        if self.clients[client].pending.is_some() {
            return;
        }
        // Keys of less durable writes come after all others.
        let key = self.chance.below(u64::from(self.keys + VOLATILE_KEYS)) as u16;
        let key = if key < self.keys { key } else { key - self.keys + KEYS };
        let seen = self.clients[client].seen.get(&key).copied();
        self.values += 1;
        let value = self.values;
        let asked = match (self.chance.below(10), seen) {
            (0..4, _) => Asked::Get,
            (4, _) => Asked::Remove,
            (5, _) => Asked::Add(value),
            (6 | 7, Some((old, _))) => Asked::Swap(old, value),
            _ => Asked::Set(value),
        };
        self.ask(client, key, asked, cluster);
    }

    /// Sends a request, or schedules it for later if no node is reached.
    fn ask(&mut self, client: usize, key: u16, asked: Asked, cluster: &mut Cluster) {
        let Some((node, wire)) = self.wire(client, key, cluster) else {
            // Another node may have a newer map.
            self.clients[client].map.clear();
            return cluster.set_alarm(NOBODY_NS, alarm(NEXT, client));
        };
        let level = match asked {
            Asked::Get => 0,
            _ if key >= KEYS => self.chance.one_of(&self.weaker_levels),
            _ => self.chance.one_of(&self.levels),
        };
        let known = &mut self.clients[client];
        known.opaque = (known.opaque + 1) & 0xff_ffff;
        let opaque = known.opaque;
        let name = &self.names[usize::from(key)];
        let cas = known.seen.get(&key).map_or(0, |(_, cas)| *cas);
        let (opcode, extras, cas, value): (Opcode, &[u8], u64, Option<u64>) = match asked {
            Asked::Get => (Opcode::Get, &[], 0, None),
            Asked::Set(value) => (Opcode::Set, &[0; 8], 0, Some(value)),
            Asked::Add(value) => (Opcode::Add, &[0; 8], 0, Some(value)),
            Asked::Swap(_, value) => (Opcode::Replace, &[0; 8], cas, Some(value)),
            Asked::Remove => (Opcode::Delete, &[], 0, None),
        };
        let mut value = value.map(|value| value.to_string().into_bytes()).unwrap_or_default();
        if !value.is_empty() {
            value.resize(self.value_bytes.max(value.len()), PADDING);
        }
        let (vbid, value) = (vbid(key), value.as_slice());
        let plain = Request::new(opcode, name.as_bytes());
        let request = Request { vbid, opaque, cas, level, extras, value, ..plain };
        let begun = cluster.now();
        let promise =
            (level > 0).then(|| Promise::new(key, level, self.evicts_keys, node, cluster));
        known.pending = Some(Pending { wire, opaque, key, asked, begun, promise });
        cluster.send(wire, request.encode());
        self.look_at_the_time(client, cluster);
    }

    /// Returns the node of the key according to the client's map, and a connection to it.
    fn wire(&mut self, client: usize, key: u16, cluster: &mut Cluster) -> Option<(usize, u64)> {
        let known = &mut self.clients[client];
        if known.map.is_empty() {
            let asked = self.chance.below(cluster.len() as u64) as usize;
            let agreed = cluster.node(asked).filter(|_| cluster.works(asked))?.cluster();
            let chains = &agreed.buckets.get(BUCKET)?.chains;
            known.map = chains.iter().map(|chain| chain.active().map(index)).collect();
        }
        let node = known.map[usize::from(vbid(key))]?;
        if let Some(there) = known.wires.iter().find(|(to, _)| *to == node) {
            return Some(*there);
        }
        let wire = cluster.connect(node)?;
        cluster.send(wire, frame::greet(BUCKET));
        self.clients[client].wires.push((node, wire));
        Some((node, wire))
    }

    /// Writes this many unread documents to each vBucket.
    pub fn fill(count: u32, cluster: &mut Cluster) {
        let Some(agreed) = cluster.newest().filter(|_| count > 0) else { return };
        for (vbid, chain) in (0..VBUCKETS).zip(&agreed.buckets[BUCKET].chains) {
            let wire = chain.active().and_then(|active| cluster.connect(index(active)));
            let Some(wire) = wire else { continue };
            let mut bytes = frame::greet(BUCKET);
            for number in 0..count {
                let key = format!("ballast-{number}");
                let set = Request::new(Opcode::Set, key.as_bytes());
                bytes.extend(Request { vbid, extras: &[0; 8], value: b"1", ..set }.encode());
            }
            cluster.send(wire, bytes);
        }
    }

    fn owner(&self, wire: u64) -> Option<usize> {
        self.clients.iter().position(|client| client.wires.iter().any(|(_, known)| *known == wire))
    }

    /// Handles received bytes. Returns false if they are not for these clients.
    pub fn receive(&mut self, wire: u64, bytes: &[u8], cluster: &mut Cluster) -> bool {
        let Some(client) = self.owner(wire) else { return false };
        let mut rest = bytes;
        while let Some(frame) = frame::next(&mut rest) {
            self.answered(client, wire, &frame, cluster);
        }
        cluster.keep(wire, rest);
        true
    }

    fn answered(
        &mut self,
        client: usize,
        wire: u64,
        frame: &ResponseFrame<'_>,
        cluster: &mut Cluster,
    ) {
        if frame.opaque == GREETING {
            // A node that does not know the bucket yet refuses its selection.
            if frame.status != 0 {
                self.clients[client].wires.retain(|(_, known)| *known != wire);
                cluster.close(wire);
                self.broken_off(client, wire, cluster);
            }
            return;
        }
        let Some(pending) = &mut self.clients[client].pending else { return };
        if pending.opaque != frame.opaque {
            return;
        }
        let (key, asked) = (pending.key, pending.asked);
        if let Some(promise) = pending.promise.take().filter(|_| frame.status == 0) {
            let wires = &self.clients[client].wires;
            let by = wires.iter().find_map(|(node, known)| (*known == wire).then_some(*node));
            let (by, cas) = (by.expect("it came by a connection"), Cas(frame.cas));
            let broken = promise.broken_when_acknowledged(cas, by, cluster);
            self.broken_promise = self.broken_promise.take().or(broken);
            if key < KEYS {
                self.promises.keep(promise, cas, asked == Asked::Remove, by, cluster);
            }
        }
        let read = || {
            let number = frame.value.split(|byte| *byte == PADDING).next().unwrap_or_default();
            let number = std::str::from_utf8(number).ok().and_then(|number| number.parse().ok());
            number.expect("values begin with numbers")
        };
        let outcome = match (frame.status, asked) {
            (0x00, Asked::Get) => Some(Outcome::Value(read())),
            (0x00, _) => Some(Outcome::Done),
            (0x01, _) => Some(Outcome::Missing),
            (0x02, _) => Some(Outcome::Exists),
            (0xa3, _) => Some(Outcome::Unknown),
            // Not my vBucket, temporary failure, impossible durability, or another write in progress or being
            // re-committed.
            (0x07 | 0x86 | 0xa1 | 0xa2 | 0xa4, _) => None,
            (status, _) => panic!("{asked:?} of k{key} was answered with {status:#x}"),
        };
        let value = match (asked, outcome) {
            (_, Some(Outcome::Value(value))) => Some(value),
            (
                Asked::Set(value) | Asked::Add(value) | Asked::Swap(_, value),
                Some(Outcome::Done),
            ) => Some(value),
            _ => None,
        };
        let known = &mut self.clients[client];
        match value {
            Some(value) => drop(known.seen.insert(key, (value, frame.cas))),
            None => drop(known.seen.remove(&key)),
        }
        if frame.status == 0x07 {
            known.map.clear();
        }
        match outcome {
            Some(outcome) => self.note(client, outcome, frame.cas, cluster.now()),
            None => {
                known.pending = None;
                self.counts.refused += 1;
            }
        }
        self.rest(client, cluster);
    }

    fn note(&mut self, client: usize, outcome: Outcome, cas: u64, now: u64) {
        let Some(pending) = self.clients[client].pending.take() else { return };
        let Pending { key, asked, begun, .. } = pending;
        match (asked, outcome) {
            (_, Outcome::Unknown) => self.counts.unknown += 1,
            (Asked::Get, _) => self.counts.reads += 1,
            _ if key < KEYS => self.counts.writes += 1,
            _ => {}
        }
        if outcome == Outcome::Unknown {
            self.clients[client].map.clear();
        }
        if key < KEYS {
            let ended = if outcome == Outcome::Unknown { u64::MAX } else { now };
            let operation = Operation { client, begun, ended, asked, outcome, cas };
            self.history.entry(key).or_default().push(operation);
        }
    }

    /// Handles a lost connection. Returns false if it was not of these clients.
    pub fn broken(&mut self, wire: u64, cluster: &mut Cluster) -> bool {
        let Some(client) = self.owner(wire) else { return false };
        self.clients[client].wires.retain(|(_, known)| *known != wire);
        self.broken_off(client, wire, cluster);
        true
    }

    fn broken_off(&mut self, client: usize, wire: u64, cluster: &mut Cluster) {
        self.clients[client].map.clear();
        if self.clients[client].pending.as_ref().is_some_and(|pending| pending.wire == wire) {
            self.note(client, Outcome::Unknown, 0, cluster.now());
            self.rest(client, cluster);
        }
    }

    /// Reads each key once more from every client.
    pub fn read_all(&mut self, cluster: &mut Cluster) -> bool {
        let mut all = true;
        for client in 0..self.clients.len() {
            let due = (0..self.keys).filter(|key| usize::from(*key) % self.clients.len() == client);
            let read = |key: &u16| {
                let history = self.history.get(key);
                let last = history.and_then(|history| history.last());
                last.is_some_and(|last| {
                    last.asked == Asked::Get && last.outcome != Outcome::Unknown
                })
            };
            let due: Vec<u16> = due.filter(|key| !read(key)).collect();
            all &= due.is_empty();
            if let (Some(key), None) = (due.first(), &self.clients[client].pending) {
                self.ask(client, *key, Asked::Get, cluster);
            }
        }
        all
    }
}
