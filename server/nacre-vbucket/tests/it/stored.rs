//! Laws about a vBucket with a store: eviction changes no reply, and a crash loses no stored data.

use nacre_types::{
    Cas, CollectionId, DocKey, Document, FailoverLog, Now, Seqno, VbRecord, VbState, VbUuid, Vbid,
};
use nacre_vbucket::{Command, Completion, Condition, Eviction, Level, Refusal, Reply, Vbucket};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Few keys, so that operations collide.
const KEYS: usize = 5;
/// Time limit of durable writes in seconds.
const DURABLE_S: u64 = 10;

#[derive(Clone, Debug)]
enum Operation {
    Set { key: usize, value: u8, expires_in: u32 },
    Delete { key: usize },
    DurableSet { key: usize, value: u8 },
    DurableDelete { key: usize },
    Get { key: usize },
    Append { key: usize, value: u8 },
    Flush { share: u8 },
    Evict { percent: u8 },
    Wait { seconds: u64 },
    Expire,
    Purge,
    Crash,
}

fn operation() -> impl Strategy<Value = Operation> {
    let key = 0..KEYS;
    prop_oneof![
        4 => (key.clone(), any::<u8>(), prop_oneof![Just(0u32), 1..5u32])
            .prop_map(|(key, value, expires_in)| Operation::Set { key, value, expires_in }),
        2 => key.clone().prop_map(|key| Operation::Delete { key }),
        3 => (key.clone(), any::<u8>()).prop_map(|(key, value)| Operation::DurableSet { key, value }),
        1 => key.clone().prop_map(|key| Operation::DurableDelete { key }),
        3 => key.clone().prop_map(|key| Operation::Get { key }),
        1 => (key, any::<u8>()).prop_map(|(key, value)| Operation::Append { key, value }),
        4 => any::<u8>().prop_map(|share| Operation::Flush { share }),
        3 => (1..=100u8).prop_map(|percent| Operation::Evict { percent }),
        1 => (1..12u64).prop_map(|seconds| Operation::Wait { seconds }),
        1 => Just(Operation::Expire),
        1 => Just(Operation::Purge),
        1 => Just(Operation::Crash),
    ]
}

fn key(index: usize) -> DocKey {
    DocKey::new(CollectionId::DEFAULT, format!("key{index}").as_bytes())
}

type Model = BTreeMap<usize, (Vec<u8>, u32)>;

struct World {
    vbucket: Vbucket,
    eviction: Eviction,
    /// Content of the disk by prefixed key, and the record.
    stored: BTreeMap<Vec<u8>, Document>,
    record: VbRecord,
    /// The documents that readers see, and those that they will see once the durable writes are stored, by the seqnos
    /// of their prepares.
    model: Model,
    pending: BTreeMap<Seqno, (usize, Option<Vec<u8>>)>,
    /// The model at each seqno, to return to after a crash.
    states: BTreeMap<Seqno, Model>,
    now: Now,
}

impl World {
    fn new(eviction: Eviction) -> World {
        let mut vbucket = Vbucket::create(Vbid(0), VbUuid(1), 7);
        vbucket.set_eviction(eviction);
        World {
            vbucket,
            eviction,
            stored: BTreeMap::new(),
            record: VbRecord {
                state: VbState::Active,
                failover_log: FailoverLog::new(VbUuid(1)),
                high_seqno: Seqno::ZERO,
                term: 3,
                snapshot: (Seqno::ZERO, Seqno::ZERO),
                purge_seqno: Seqno::ZERO,
                purged_rev: 0,
                max_cas: Cas::ANY,
                document_count: 0,
                history_start: None,
            },
            model: BTreeMap::new(),
            pending: BTreeMap::new(),
            states: BTreeMap::from([(Seqno::ZERO, Model::new())]),
            now: Now { unix_ns: 1_700_000_000_000_000_000, monotonic_ns: 1 },
        }
    }

    /// Applies a command as a node does: reads an evicted document from the store first.
    fn apply(
        &mut self,
        index: usize,
        command: &Command<'_>,
        durable: bool,
    ) -> (Result<Reply, Refusal>, Option<Seqno>) {
        let key = key(index);
        let key = key.prefixed();
        for _ in 0..2 {
            let (now, deadline) = (self.now, self.now.monotonic_ns + DURABLE_S * 1_000_000_000);
            let (reply, seqno) = if durable {
                self.vbucket.prepare(key, command, Level::PersistToMajority, deadline, now)
            } else {
                self.vbucket.apply(key, command, now)
            };
            if !matches!(reply, Err(Refusal::NotResident)) {
                return (reply, seqno);
            }
            let epoch = self.vbucket.eviction_epoch();
            assert!(self.vbucket.restore(key, self.stored.get(key).cloned(), epoch));
        }
        panic!("what was restored is in memory");
    }

    fn forget_expired(&mut self) {
        let unix_s = self.now.unix_s();
        self.model.retain(|_, (_, expiry)| *expiry == 0 || *expiry > unix_s);
    }

    fn note_state(&mut self) {
        self.states.insert(self.vbucket.high_seqno(), self.model.clone());
    }

    fn complete(&mut self) {
        let completions = self.vbucket.complete(self.now);
        for Completion { prepare, commit } in completions {
            let (key, value) = self.pending.remove(&prepare).expect("it was prepared");
            if let Some(token) = commit {
                assert!(prepare <= self.vbucket.persisted(), "committed before it was stored");
                self.commit(key, value);
                self.states.insert(token.seqno, self.model.clone());
            }
        }
        self.note_state();
    }

    fn commit(&mut self, key: usize, value: Option<Vec<u8>>) {
        match value {
            Some(value) => self.model.insert(key, (value, 0)),
            None => self.model.remove(&key),
        };
    }

    /// Stores history up to a seqno, as the flusher does.
    fn flush(&mut self, to: Seqno) {
        let from = self.vbucket.persisted();
        let drained = self.vbucket.checkpoint().read(from, (to.0 - from.0) as usize).unwrap();
        for document in &drained.documents {
            self.stored.insert(document.key().to_vec(), Document::clone(document));
        }
        for (key, seqno) in self.vbucket.take_graves(drained.snapshot_end) {
            if self.stored.get(&key[..]).is_some_and(|stored| stored.meta.seqno == seqno) {
                assert!(seqno < drained.snapshot_end, "the newest version is never erased");
                self.stored.remove(&key[..]);
            }
        }
        self.record = VbRecord {
            failover_log: self.vbucket.failover_log().clone(),
            high_seqno: drained.snapshot_end,
            term: 3,
            snapshot: (drained.snapshot_end, drained.snapshot_end),
            max_cas: self.vbucket.max_cas(),
            purge_seqno: self.vbucket.purge_seqno(),
            purged_rev: self.vbucket.purged_rev(),
            ..self.record.clone()
        };
        self.vbucket.set_persisted(drained.snapshot_end, usize::MAX);
    }

    /// Ends the process. Another one starts with the stored state.
    fn crash(&mut self) {
        let record = self.record.clone();
        let stored_to = record.high_seqno;
        self.vbucket = Vbucket::new(Vbid(0), record, 9);
        self.vbucket.set_eviction(self.eviction);
        for (index, document) in self.stored.values().enumerate() {
            self.vbucket.load(document.clone(), index % 2 == 0);
        }
        self.vbucket.begin_branch(VbUuid(2));
        let (_, state) = self.states.range(..=stored_to).next_back().expect("it began empty");
        self.model = state.clone();
        self.states.retain(|seqno, _| *seqno <= stored_to);
        // Stored prepares are restored; committed and aborted ones do not.
        let prepared: Vec<Seqno> = self
            .stored
            .values()
            .filter(|document| document.collection() == CollectionId::PREPARED)
            .map(|document| document.meta.seqno)
            .collect();
        let known = std::mem::take(&mut self.pending);
        for (seqno, write) in known {
            if seqno <= stored_to {
                assert!(prepared.contains(&seqno), "the stored prepare {seqno} is gone");
                self.pending.insert(seqno, write);
            }
        }
        for key in self.vbucket.prepared_out_of_memory() {
            let epoch = self.vbucket.eviction_epoch();
            self.vbucket.restore(&key, self.stored.get(&key[..]).cloned(), epoch);
        }
        for completion in self.vbucket.complete(self.now) {
            let token = completion.commit.expect("a stored prepare is never given up");
            let write = self.pending.remove(&completion.prepare);
            // Not in the model any more: the write was committed or given up, but the disk did not record it in time.
            let (key, value) = write.unwrap_or_else(|| self.written_at(token.seqno));
            self.commit(key, value);
            self.states.insert(token.seqno, self.model.clone());
        }
        assert!(self.pending.is_empty());
        self.note_state();
    }

    /// Returns the key and the value of the version with this seqno.
    fn written_at(&self, seqno: Seqno) -> (usize, Option<Vec<u8>>) {
        let mut documents = self.vbucket.documents();
        let document = documents.find(|document| document.meta.seqno == seqno).expect("it is new");
        let index = (0..KEYS).find(|index| key(*index).prefixed() == document.key());
        let value = document.is_alive().then(|| document.body().to_vec());
        (index.expect("one of the keys"), value)
    }

    fn run(&mut self, operation: &Operation) {
        self.forget_expired();
        match *operation {
            Operation::Set { key, value, expires_in } => {
                let expiry = if expires_in == 0 { 0 } else { self.now.unix_s() + expires_in };
                let body = [value];
                if self.apply(key, &store(&body, expiry), false).0.is_ok() {
                    self.model.insert(key, (body.to_vec(), expiry));
                } else {
                    assert!(self.pending.values().any(|(pending, _)| *pending == key));
                }
            }
            Operation::Delete { key } => {
                let (reply, _) = self.apply(key, &Command::Delete { cas: Cas::ANY }, false);
                match reply {
                    Ok(_) => assert!(self.model.remove(&key).is_some()),
                    Err(Refusal::NotFound) => assert!(!self.model.contains_key(&key)),
                    Err(refusal) => assert_eq!(refusal, Refusal::SyncWriteInProgress),
                }
            }
            Operation::DurableSet { key, value } => {
                let body = [value];
                let (reply, seqno) = self.apply(key, &store(&body, 0), true);
                if reply.is_ok() {
                    self.pending.insert(seqno.unwrap(), (key, Some(body.to_vec())));
                }
            }
            Operation::DurableDelete { key } => {
                let (reply, seqno) = self.apply(key, &Command::Delete { cas: Cas::ANY }, true);
                if reply.is_ok() {
                    self.pending.insert(seqno.unwrap(), (key, None));
                }
            }
            Operation::Get { key } => self.check(key),
            Operation::Append { key, value } => {
                let bytes = [value];
                let end = nacre_vbucket::Extend::Append;
                let command = Command::Extend { end, cas: Cas::ANY, bytes: &bytes };
                if self.apply(key, &command, false).0.is_ok() {
                    self.model.get_mut(&key).expect("it exists").0.push(value);
                }
            }
            Operation::Flush { share } => {
                let (high, persisted) = (self.vbucket.high_seqno().0, self.vbucket.persisted().0);
                self.flush(Seqno(persisted + (high - persisted) * u64::from(share) / 255));
                self.complete();
            }
            Operation::Evict { percent } => {
                self.vbucket.evict(percent, self.now);
            }
            Operation::Wait { seconds } => {
                let ns = seconds * 1_000_000_000;
                self.now = Now {
                    unix_ns: self.now.unix_ns + ns,
                    monotonic_ns: self.now.monotonic_ns + ns,
                };
                self.complete();
            }
            Operation::Expire => {
                self.vbucket.expire(self.now);
            }
            Operation::Purge => {
                self.vbucket.purge(self.now.unix_s());
            }
            Operation::Crash => self.crash(),
        }
        self.forget_expired();
        self.note_state();
    }

    fn check(&mut self, key: usize) {
        let expected = self.model.get(&key).map(|(value, _)| value.clone());
        let found = match self.apply(key, &Command::Get, false).0 {
            Ok(Reply::Found(document, _)) => Some(document.body().to_vec()),
            Err(Refusal::NotFound) => None,
            other => panic!("{other:?}"),
        };
        assert_eq!(found, expected, "key {key}");
    }
}

fn store(body: &[u8], expiry: u32) -> Command<'_> {
    Command::Store {
        condition: Condition::Always,
        cas: Cas::ANY,
        flags: 0,
        expiry,
        keep_expiry: false,
        body,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]
    #[test]
    fn neither_eviction_nor_a_crash_changes_what_is_stored(
        whole in any::<bool>(),
        operations in proptest::collection::vec(operation(), 1..80),
    ) {
        let mut world = World::new(if whole { Eviction::Items } else { Eviction::Values });
        operations.iter().for_each(|operation| world.run(operation));
        world.forget_expired();
        (0..KEYS).for_each(|key| world.check(key));
        world.flush(world.vbucket.high_seqno());
        world.complete();
        world.forget_expired();
        world.vbucket.expire(world.now);
        // A document that was evicted with its metadata expires only when it is read.
        (0..KEYS).for_each(|key| world.check(key));
        prop_assert_eq!(world.vbucket.alive_count(), world.model.len() as u64);
    }
}
