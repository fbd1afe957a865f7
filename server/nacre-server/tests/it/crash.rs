//! kill -9 under write load, again and again: what was observed to be persisted is there afterwards, seqnos and CAS
//! never go back, and a view says what a recomputation from scratch says.

use crate::process::{Server, port_base};
use nacre_conformance::kv::KvClient;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

const CYCLES: u64 = 20;
const KEYS: u32 = 300;
/// How long each cycle writes before the process is killed, in milliseconds: from one to the other.
const LOAD_MS: std::ops::Range<u64> = 100..700;

const OP_OBSERVE_SEQNO: u8 = 0x91;

/// One write of a key: its number (the document's `n`; deletes have one too), and where it lies in history.
#[derive(Clone, Copy, Debug)]
struct Write {
    n: u64,
    deleted: bool,
    seqno: u64,
    cas: u64,
}

#[derive(Default)]
struct Model {
    next_n: u64,
    /// Writes of each key since the last one known to be persisted, that one first.
    keys: HashMap<u32, Vec<Write>>,
    /// Of each vBucket: greatest CAS seen, and greatest seqno known to be persisted.
    max_cas: HashMap<u16, u64>,
    persisted: HashMap<u16, u64>,
}

fn name(key: u32) -> Vec<u8> {
    format!("crash_{key}").into_bytes()
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
            let reply = if deleted {
                client.delete(&name(key), 0).unwrap()
            } else {
                let group = n % 7;
                client
                    .set(&name(key), format!("{{\"n\":{n},\"group\":{group}}}").as_bytes())
                    .unwrap()
            };
            if !reply.is_success() {
                assert!(deleted, "a set was refused: {reply:?}");
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
            self.keys.entry(key).or_default().push(Write { n, deleted, seqno, cas: reply.cas });
            if random.random_range(0..8) == 0 {
                self.observe(client, vbid, vb_uuid);
            }
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

    /// Compares a restarted node with what was observed; what it kept of the rest becomes known.
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
            let durable = writes.iter().rposition(|write| write.seqno <= persisted);
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
                "key {key}: found {n:?}, but a later write was persisted: {writes:?}"
            );
            assert!(n.is_none() || writes[kept].cas == reply.cas, "key {key} has another CAS");
            if let Some(n) = n {
                alive.insert(key, n);
            }
            let kept = writes[kept];
            *writes = vec![Write { seqno: 0, ..kept }];
        }
        alive
    }
}

#[test]
fn twenty_kills_lose_nothing_that_was_observed_as_persisted() {
    let directory = tempfile::tempdir().unwrap();
    let port_base = port_base();
    let mut random = StdRng::seed_from_u64(20);
    let mut model = Model::default();
    let design = r#"{"views": {"groups": {"map": "function (doc, meta) { emit(doc.group, doc.n) }", "reduce": "_sum"}}}"#;
    for cycle in 0..CYCLES {
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
        server.kill();
    }
    let observed: u64 = model.persisted.values().sum();
    assert!(observed > 1_000, "only {observed} writes were ever observed as persisted");
}
