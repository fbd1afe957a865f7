//! Clients: each asks one thing after another, at whichever node it believes serves the key, and notes what it saw.

use crate::cluster::MS;
use crate::faults::Mix;
use crate::frame::{self, DURABILITY_TIMEOUT_MS, Request, Told};
use crate::history::{Asked, Operation, Outcome};
use crate::{Chance, Cluster};
use std::collections::BTreeMap;

/// The bucket that clients use.
pub const BUCKET: &str = "b";
/// Its vBuckets.
pub const VBUCKETS: u16 = 4;
/// Keys of durable writes at most: their histories are checked.
pub const KEYS: u16 = 10;
/// Keys after those, of writes that are not durable: their copies are compared.
const VOLATILE_KEYS: u16 = 4;
/// How long a client waits for an answer: longer than the server for a durable write.
const PATIENCE_NS: u64 = (DURABILITY_TIMEOUT_MS as u64 + 2000) * MS;
/// When a client that reaches nobody looks again.
const NOBODY_NS: u64 = 50 * MS;
const HELLO: u32 = 0xffff_ffff;
const SELECT: u32 = 0xffff_fffe;

/// What an alarm of a client is for.
const NEXT: u64 = 0;
const DEADLINE: u64 = 1;

mod opcode {
    pub const GET: u8 = 0x00;
    pub const SET: u8 = 0x01;
    pub const ADD: u8 = 0x02;
    pub const REPLACE: u8 = 0x03;
    pub const DELETE: u8 = 0x04;
    pub const HELLO: u8 = 0x1f;
    pub const SELECT_BUCKET: u8 = 0x89;
}

/// What is under way.
struct Pending {
    wire: u64,
    opaque: u32,
    key: u16,
    asked: Asked,
    begun: u64,
}

#[derive(Default)]
struct Client {
    /// By node.
    wires: BTreeMap<usize, u64>,
    pending: Option<Pending>,
    opaque: u32,
    /// Which node serves each vBucket, as far as it knows.
    map: Vec<Option<usize>>,
    /// Values with their versions, by key, as it saw them last.
    seen: BTreeMap<u16, (u64, u64)>,
}

/// What came of all operations.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Durable writes that were acknowledged.
    pub writes: u64,
    /// Reads that were answered.
    pub reads: u64,
    /// Operations of which nothing is known.
    pub unknown: u64,
    /// Operations that were refused, and did nothing.
    pub refused: u64,
}

/// See the [module](self).
pub struct Workload {
    clients: Vec<Client>,
    chance: Chance,
    /// Durability levels that are used.
    levels: Vec<u8>,
    /// Bytes that values have at least.
    value_bytes: usize,
    keys: u16,
    /// How long a client rests between two operations, at most.
    pace_ns: u64,
    /// Nothing new is asked.
    pub rests: bool,
    values: u64,
    /// What was seen of each key of durable writes.
    pub history: BTreeMap<u16, Vec<Operation>>,
    /// See [`Counts`].
    pub counts: Counts,
}

/// The vBucket of a key.
pub fn vbid(key: u16) -> u16 {
    key % VBUCKETS
}

impl Workload {
    /// The clients of a mix, which begin at once.
    pub fn new(mix: &Mix, chance: Chance, cluster: &mut Cluster) -> Workload {
        let mut workload = Workload {
            clients: (0..mix.clients).map(|_| Client::default()).collect(),
            chance,
            levels: mix.levels.clone(),
            value_bytes: mix.value_bytes,
            keys: mix.keys,
            pace_ns: mix.pace_ns,
            rests: false,
            values: 0,
            history: BTreeMap::new(),
            counts: Counts::default(),
        };
        (0..mix.clients).for_each(|client| workload.rest(client, cluster));
        workload
    }

    /// Whether nothing is under way.
    pub fn is_quiet(&self) -> bool {
        self.clients.iter().all(|client| client.pending.is_none())
    }

    fn rest(&mut self, client: usize, cluster: &mut Cluster) {
        let pause = self.chance.between(1, self.pace_ns);
        cluster.set_alarm(pause, NEXT << 56 | (client as u64) << 32);
    }

    /// An alarm that this workload has set.
    pub fn alarm(&mut self, alarm: u64, cluster: &mut Cluster) {
        let client = (alarm >> 32 & 0xff_ffff) as usize;
        match alarm >> 56 {
            NEXT if self.rests => cluster.set_alarm(NOBODY_NS, alarm),
            NEXT => self.ask_something(client, cluster),
            _ => {
                let pending = self.clients[client].pending.as_ref();
                if pending.is_some_and(|pending| pending.opaque == alarm as u32) {
                    self.note(client, Outcome::Unknown, 0, cluster.now());
                    self.rest(client, cluster);
                }
            }
        }
    }

    fn ask_something(&mut self, client: usize, cluster: &mut Cluster) {
        if self.clients[client].pending.is_some() {
            return;
        }
        // Those that are not durable come after all that may be.
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

    /// Asks; later if nobody is reached.
    fn ask(&mut self, client: usize, key: u16, asked: Asked, cluster: &mut Cluster) {
        let Some(wire) = self.wire(client, key, cluster) else {
            // Another node may know more.
            self.clients[client].map.clear();
            return cluster.set_alarm(NOBODY_NS, NEXT << 56 | (client as u64) << 32);
        };
        let level = match asked {
            Asked::Get => 0,
            // Some are not durable whatever is asked of the others.
            _ if key >= KEYS => 0,
            _ => self.chance.one_of(&self.levels),
        };
        let known = &mut self.clients[client];
        known.opaque = (known.opaque + 1) & 0xff_ffff;
        let opaque = known.opaque;
        let name = format!("k{key}");
        let cas = known.seen.get(&key).map_or(0, |(_, cas)| *cas);
        let (code, extras, cas, value): (u8, &[u8], u64, Option<u64>) = match asked {
            Asked::Get => (opcode::GET, &[], 0, None),
            Asked::Set(value) => (opcode::SET, &[0; 8], 0, Some(value)),
            Asked::Add(value) => (opcode::ADD, &[0; 8], 0, Some(value)),
            Asked::Swap(_, value) => (opcode::REPLACE, &[0; 8], cas, Some(value)),
            Asked::Remove => (opcode::DELETE, &[], 0, None),
        };
        let width = self.value_bytes;
        let value = value.map(|value| format!("{value:<width$}")).unwrap_or_default();
        let (key_bytes, value) = (name.as_bytes(), value.as_bytes());
        let vbid = vbid(key);
        let request =
            Request { opcode: code, vbid, opaque, cas, level, extras, key: key_bytes, value };
        let begun = cluster.now();
        known.pending = Some(Pending { wire, opaque, key, asked, begun });
        cluster.send(wire, request.encode());
        let deadline = DEADLINE << 56 | (client as u64) << 32 | u64::from(opaque);
        cluster.set_alarm(PATIENCE_NS, deadline);
    }

    /// A connection to the node that serves the key, as far as the client knows.
    fn wire(&mut self, client: usize, key: u16, cluster: &mut Cluster) -> Option<u64> {
        let known = &mut self.clients[client];
        if known.map.is_empty() {
            let index = self.chance.below(cluster.len() as u64) as usize;
            let agreed = cluster.node(index).filter(|_| cluster.works(index))?.cluster();
            let chains = &agreed.buckets.get(BUCKET)?.chains;
            let active = chains.iter().map(|chain| Some(chain.active()?.0 as usize - 1));
            known.map = active.collect();
        }
        let node = known.map[usize::from(vbid(key))]?;
        if let Some(wire) = known.wires.get(&node) {
            return Some(*wire);
        }
        let wire = cluster.connect(node)?;
        let plain = Request {
            opcode: opcode::HELLO,
            vbid: 0,
            opaque: HELLO,
            cas: 0,
            level: 0,
            extras: b"",
            key: b"sim",
            value: b"",
        };
        let select = Request {
            opcode: opcode::SELECT_BUCKET,
            opaque: SELECT,
            key: BUCKET.as_bytes(),
            ..plain
        };
        cluster.send(wire, [plain.encode(), select.encode()].concat());
        self.clients[client].wires.insert(node, wire);
        Some(wire)
    }

    /// Writes so many documents to each vBucket that nobody asks for later.
    pub fn fill(count: u32, cluster: &mut Cluster) {
        let Some(agreed) = cluster.agreed().filter(|_| count > 0) else { return };
        for (vbid, chain) in (0..VBUCKETS).zip(&agreed.buckets[BUCKET].chains) {
            let node = chain.active().map(|active| active.0 as usize - 1);
            let Some(wire) = node.and_then(|node| cluster.connect(node)) else { continue };
            let plain = Request {
                opcode: opcode::SELECT_BUCKET,
                vbid,
                opaque: 0,
                cas: 0,
                level: 0,
                extras: b"",
                key: BUCKET.as_bytes(),
                value: b"",
            };
            let mut bytes = plain.encode();
            for number in 0..count {
                let key = format!("ballast-{number}");
                let (key, extras) = (key.as_bytes(), &[0; 8]);
                let set = Request { opcode: opcode::SET, key, extras, value: b"1", ..plain };
                bytes.extend(set.encode());
            }
            cluster.send(wire, bytes);
        }
    }

    fn owner(&self, wire: u64) -> Option<usize> {
        self.clients.iter().position(|client| client.wires.values().any(|known| *known == wire))
    }

    /// Bytes have arrived; says whether they are for one of these clients.
    pub fn told(&mut self, wire: u64, bytes: &[u8], cluster: &mut Cluster) -> bool {
        let Some(client) = self.owner(wire) else { return false };
        let (frames, rest) = frame::read(bytes);
        cluster.keep(wire, rest);
        for frame in frames {
            self.answered(client, wire, &frame, cluster);
        }
        true
    }

    fn answered(&mut self, client: usize, wire: u64, frame: &Told, cluster: &mut Cluster) {
        if frame.opaque == HELLO || frame.opaque == SELECT {
            // A node that has not learned of the bucket yet lets nobody choose it.
            if frame.status != 0 {
                self.clients[client].wires.retain(|_, known| *known != wire);
                cluster.close(wire);
                self.broken_off(client, wire, cluster);
            }
            return;
        }
        let Some(pending) = &self.clients[client].pending else { return };
        if pending.opaque != frame.opaque {
            return;
        }
        let (key, asked) = (pending.key, pending.asked);
        let read = || {
            let text = std::str::from_utf8(&frame.value).expect("values are text");
            text.trim_end().parse::<u64>().expect("values are numbers")
        };
        let outcome = match (frame.status, asked) {
            (0x00, Asked::Get) => Some(Outcome::Value(read())),
            (0x00, _) => Some(Outcome::Done),
            (0x01, _) => Some(Outcome::Missing),
            (0x02, _) => Some(Outcome::Exists),
            (0xa3, _) => Some(Outcome::Unknown),
            // Not here, not now, impossible, in progress, to be committed again.
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

    /// A connection is gone; says whether it was of one of these clients.
    pub fn broken(&mut self, wire: u64, cluster: &mut Cluster) -> bool {
        let Some(client) = self.owner(wire) else { return false };
        self.clients[client].wires.retain(|_, known| *known != wire);
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

    /// One more read of each key, by as many clients as there are.
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
