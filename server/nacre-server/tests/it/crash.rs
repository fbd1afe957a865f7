//! kill -9 under write load, again and again: everything that was seen to be persisted, or acknowledged as durable, is
//! there afterwards, seqnos and CAS never go back, and a view equals a recomputation from scratch.
//!
//! `NACRE_KILL_CYCLES` makes it longer.

use crate::process::{Server, from_env, port_base};
use nacre_conformance::kv::{KvClient, Reply, Request};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

const CYCLES: u64 = 20;
const KEYS: u32 = 300;
/// Range of the time for which each cycle writes before the process is killed, in milliseconds.
const LOAD_MS: std::ops::Range<u64> = 100..700;

/// Sent before each kill, and no answer waited for.
const IN_FLIGHT: u32 = 30;

const OP_SET: u8 = 0x01;
const OP_DELETE: u8 = 0x04;
const OP_OBSERVE_SEQNO: u8 = 0x91;

/// Levels of durability as the protocol numbers them: once the active node has it on disk, once a majority has.
const DURABLE: [u8; 2] = [2, 3];

/// One write of a key: its number (the document's `n`; deletes have one too), and its position in history.
#[derive(Clone, Copy, Debug)]
struct Write {
    n: u64,
    deleted: bool,
    /// Acknowledged at a level that outlives the process.
    durable: bool,
    seqno: u64,
    /// `None` for a write that was not acknowledged.
    cas: Option<u64>,
}

#[derive(Default)]
struct Model {
    next_n: u64,
    /// Writes of each key since the last one known to be persisted, that one first.
    keys: HashMap<u32, Vec<Write>>,
    /// For each vBucket: greatest CAS seen, and greatest seqno known to be persisted.
    max_cas: HashMap<u16, u64>,
    persisted: HashMap<u16, u64>,
    durable_count: u64,
}

fn name(key: u32) -> Vec<u8> {
    format!("crash_{key}").into_bytes()
}

/// A write of `n`; level 0 is in memory only.
fn request(client: &KvClient, key: u32, n: u64, deleted: bool, level: u8) -> Request {
    let (name, group) = (name(key), n % 7);
    let framing = if level == 0 { Vec::new() } else { vec![0x11, level] };
    let request = Request {
        vbid: client.vbid(&name),
        key: client.wire_key(0, &name),
        framing,
        ..Request::default()
    };
    if deleted {
        return Request { opcode: OP_DELETE, ..request };
    }
    let value = format!("{{\"n\":{n},\"group\":{group}}}").into_bytes();
    Request { opcode: OP_SET, extras: vec![2, 0, 0, 0, 0, 0, 0, 0], value, ..request }
}

/// Mostly none, because durable writes take so long that few other writes would be made.
fn draw_level(random: &mut StdRng) -> u8 {
    if random.random_range(0..20) == 0 { DURABLE[random.random_range(0..2)] } else { 0 }
}

fn token(extras: &[u8]) -> (u64, u64) {
    let number = |at: usize| u64::from_be_bytes(extras[at..at + 8].try_into().unwrap());
    (number(0), number(8))
}

impl Model {
    /// Writes at random until the time is up, now and then observing how far a vBucket is persisted.
    fn load(&mut self, client: &mut KvClient, random: &mut StdRng, until: Instant) {
        while Instant::now() < until {
            let key = random.random_range(0..KEYS);
            let vbid = client.vbid(&name(key));
            self.next_n += 1;
            let n = self.next_n;
            let deleted = random.random_range(0..10) == 0;
            let level = draw_level(random);
            let reply: Reply = client.call(&request(client, key, n, deleted, level)).unwrap();
            if !reply.is_success() {
                assert!(deleted && reply.status == 1, "refused at level {level}: {reply:?}");
                continue;
            }
            let (vb_uuid, seqno) = token(&reply.extras);
            assert!(
                seqno > self.persisted.get(&vbid).copied().unwrap_or(0),
                "a seqno was given twice"
            );
            let max_cas = self.max_cas.entry(vbid).or_default();
            assert!(reply.cas > *max_cas, "the CAS of vBucket {vbid} went back");
            *max_cas = reply.cas;
            let durable = level != 0;
            self.durable_count += u64::from(durable);
            let cas = Some(reply.cas);
            self.keys.entry(key).or_default().push(Write { n, deleted, durable, seqno, cas });
            if random.random_range(0..8) == 0 {
                self.observe(client, vbid, vb_uuid);
            }
        }
    }

    /// Sends writes without reading their answers: each may be there afterwards, or not.
    fn leave_in_flight(&mut self, client: &mut KvClient, random: &mut StdRng) {
        for _ in 0..IN_FLIGHT {
            let key = random.random_range(0..KEYS);
            self.next_n += 1;
            let n = self.next_n;
            client.send(&request(client, key, n, false, draw_level(random))).unwrap();
            let (durable, seqno) = (false, u64::MAX);
            let write = Write { n, deleted: false, durable, seqno, cas: None };
            self.keys.entry(key).or_default().push(write);
        }
    }

    fn observe(&mut self, client: &mut KvClient, vbid: u16, vb_uuid: u64) {
        let reply =
            client.request(OP_OBSERVE_SEQNO, vbid, b"", b"", &vb_uuid.to_be_bytes(), 0).unwrap();
        assert!(reply.is_success() && reply.value[0] == 0, "{reply:?}");
        let persisted = u64::from_be_bytes(reply.value[11..19].try_into().unwrap());
        let known = self.persisted.entry(vbid).or_default();
        assert!(persisted >= *known, "the persisted seqno of vBucket {vbid} went back");
        *known = persisted;
    }

    /// Compares a restarted node with the observations; the fate of other writes becomes known.
    fn check(&mut self, client: &mut KvClient) -> BTreeMap<u32, u64> {
        let mut alive = BTreeMap::new();
        for key in 0..KEYS {
            let vbid = client.vbid(&name(key));
            let persisted = self.persisted.get(&vbid).copied().unwrap_or(0);
            let writes = self.keys.entry(key).or_default();
            let reply = client.get(&name(key)).unwrap();
            let n = reply.is_success().then(|| {
                let document: serde_json::Value = serde_json::from_slice(&reply.value).unwrap();
                document["n"].as_u64().unwrap()
            });
            let durable =
                writes.iter().rposition(|write| write.durable || write.seqno <= persisted);
            let kept = writes.iter().rposition(|write| (!write.deleted).then_some(write.n) == n);
            let Some(kept) = kept else {
                assert!(
                    durable.is_none() && n.is_none(),
                    "key {key}: found {n:?}, wrote {writes:?}"
                );
                writes.clear();
                continue;
            };
            assert!(
                Some(kept) >= durable,
                "key {key}: found {n:?}, but a later write was persisted or durable: {writes:?}"
            );
            let mut kept = writes[kept];
            if let Some(n) = n {
                alive.insert(key, n);
                let cas = *kept.cas.get_or_insert(reply.cas);
                assert_eq!(cas, reply.cas, "key {key} has another CAS");
                let max_cas = self.max_cas.entry(vbid).or_default();
                *max_cas = cas.max(*max_cas);
            }
            *writes = vec![Write { seqno: 0, ..kept }];
        }
        alive
    }
}

#[test]
fn kills_lose_nothing_that_was_persisted_or_durable() {
    let cycles = from_env("NACRE_KILL_CYCLES", CYCLES);
    let directory = tempfile::tempdir().unwrap();
    let port_base = port_base();
    let mut random = StdRng::seed_from_u64(20);
    let mut model = Model::default();
    let design = r#"{"views": {"groups": {"map": "function (doc, meta) { emit(doc.group, doc.n) }", "reduce": "_sum"}}}"#;
    for cycle in 0..cycles {
        let mut server = Server::start_at(directory.path(), port_base);
        let mut client = server.client();
        let alive = model.check(&mut client);
        if cycle == 0 {
            server.put_design("crash", design);
        }
        let mut expected: BTreeMap<u64, u64> = BTreeMap::new();
        alive.values().for_each(|n| *expected.entry(n % 7).or_default() += n);
        let rows = server.wait_for("the views plugin", |server| {
            let path = "/default/_design/crash/_view/groups?stale=false&group=true";
            let value = server.views("GET", path, "").json().unwrap();
            value["rows"].as_array().cloned()
        });
        let found: BTreeMap<u64, u64> = rows
            .iter()
            .map(|row| (row["key"].as_u64().unwrap(), row["value"].as_f64().unwrap() as u64))
            .collect();
        assert_eq!(found, expected, "the view after kill {cycle}");
        let load = Duration::from_millis(random.random_range(LOAD_MS));
        model.load(&mut client, &mut random, Instant::now() + load);
        model.leave_in_flight(&mut client, &mut random);
        server.kill();
    }
    let observed: u64 = model.persisted.values().sum();
    let (written, durable) = (model.next_n, model.durable_count);
    println!("{cycles} kills: {written} writes, {durable} of them durable; nothing lost");
    assert!(observed > 50 * cycles, "only {observed} writes were ever observed as persisted");
    assert!(durable > 10 * cycles, "only {durable} writes were ever durable");
}
