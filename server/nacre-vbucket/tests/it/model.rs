//! Laws over random histories, checked against a plain map.

use nacre_types::{Cas, CollectionId, DocKey, Document, Now, Seqno, VbUuid, Vbid};
use nacre_vbucket::{Command, Condition, Refusal, Reply, Vbucket};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Few keys, so that operations collide.
const KEYS: usize = 4;

#[derive(Clone, Debug)]
enum Operation {
    Set { key: usize, value: u8, expires_in: u32 },
    Add { key: usize, value: u8 },
    Delete { key: usize },
    Get { key: usize },
    Wait { seconds: u32 },
    StepClockBack { seconds: u32 },
    Persist { share: u8 },
}

fn operation() -> impl Strategy<Value = Operation> {
    let key = 0..KEYS;
    prop_oneof![
        4 => (key.clone(), any::<u8>(), prop_oneof![Just(0u32), 1..5u32])
            .prop_map(|(key, value, expires_in)| Operation::Set { key, value, expires_in }),
        2 => (key.clone(), any::<u8>()).prop_map(|(key, value)| Operation::Add { key, value }),
        2 => key.clone().prop_map(|key| Operation::Delete { key }),
        2 => key.prop_map(|key| Operation::Get { key }),
        1 => (1..4u32).prop_map(|seconds| Operation::Wait { seconds }),
        1 => (1..100u32).prop_map(|seconds| Operation::StepClockBack { seconds }),
        1 => any::<u8>().prop_map(|share| Operation::Persist { share }),
    ]
}

fn key(index: usize) -> DocKey {
    DocKey::new(CollectionId::DEFAULT, format!("key{index}").as_bytes())
}

struct World {
    vbucket: Vbucket,
    /// Value and expiry of existing documents.
    model: BTreeMap<usize, (u8, u32)>,
    now: Now,
    max_cas: Cas,
    /// The state that is rebuilt from the history that cursors read.
    replayed: BTreeMap<Vec<u8>, Document>,
    read_to: Seqno,
}

impl World {
    fn alive(&mut self, key: usize) -> Option<u8> {
        let unix_s = self.now.unix_s();
        self.model.retain(|_, (_, expiry)| *expiry == 0 || *expiry > unix_s);
        self.model.get(&key).map(|(value, _)| *value)
    }

    fn apply(&mut self, index: usize, command: &Command<'_>) -> Result<Reply, Refusal> {
        let before = self.vbucket.high_seqno();
        let (reply, mutation) = self.vbucket.apply(key(index).prefixed(), command, self.now);
        assert_eq!(
            mutation,
            (self.vbucket.high_seqno() > before).then(|| before.next()),
            "no gap in seqnos"
        );
        if let Ok(Reply::Stored { cas, token }) = &reply {
            assert!(*cas > self.max_cas, "CAS grows");
            assert_eq!(token.seqno, self.vbucket.high_seqno());
            self.max_cas = *cas;
        }
        reply
    }

    fn run(&mut self, operation: &Operation) {
        match *operation {
            Operation::Set { key, value, expires_in } => {
                let expiry = if expires_in == 0 { 0 } else { self.now.unix_s() + expires_in };
                self.store(key, Condition::Always, value, expiry).unwrap();
                self.model.insert(key, (value, expiry));
            }
            Operation::Add { key, value } => {
                let existed = self.alive(key).is_some();
                let outcome = self.store(key, Condition::Absent, value, 0);
                assert_eq!(outcome.is_err(), existed);
                if !existed {
                    self.model.insert(key, (value, 0));
                }
            }
            Operation::Delete { key } => {
                let existed = self.alive(key).is_some();
                assert_eq!(self.apply(key, &Command::Delete { cas: Cas::ANY }).is_ok(), existed);
                self.model.remove(&key);
            }
            Operation::Get { key } => {
                let expected = self.alive(key);
                let found = match self.apply(key, &Command::Get) {
                    Ok(Reply::Found(document, _)) => Some(document.body()[0]),
                    Err(Refusal::NotFound) => None,
                    other => panic!("{other:?}"),
                };
                assert_eq!(found, expected);
            }
            Operation::Wait { seconds } => {
                let ns = u64::from(seconds) * 1_000_000_000;
                self.now = Now {
                    unix_ns: self.now.unix_ns + ns,
                    monotonic_ns: self.now.monotonic_ns + ns,
                };
            }
            Operation::StepClockBack { seconds } => {
                // Expired documents would exist again. The model removes them first, as a reader
                // would.
                (0..KEYS).for_each(|key| self.run(&Operation::Get { key }));
                self.now.unix_ns -= u64::from(seconds) * 1_000_000_000;
            }
            Operation::Persist { share } => {
                let high = self.vbucket.high_seqno().0;
                let persisted = self.vbucket.persisted().0;
                let seqno = persisted + (high - persisted) * u64::from(share) / 255;
                self.replay();
                self.vbucket.set_persisted(Seqno(seqno), usize::MAX);
            }
        }
    }

    fn store(
        &mut self,
        key: usize,
        condition: Condition,
        value: u8,
        expiry: u32,
    ) -> Result<Reply, Refusal> {
        let body = [value];
        let command = Command::Store {
            condition,
            cas: Cas::ANY,
            flags: 0,
            expiry,
            keep_expiry: false,
            body: &body,
        };
        self.apply(key, &command)
    }

    /// Reads new history in portions, as a cursor does.
    fn replay(&mut self) {
        while self.read_to < self.vbucket.high_seqno() {
            let drained =
                self.vbucket.checkpoint().read(self.read_to, 3).expect("history is in memory");
            let mut last = self.read_to;
            for document in &drained.documents {
                assert!(document.meta.seqno > last && document.meta.seqno <= drained.snapshot_end);
                last = document.meta.seqno;
                self.replayed.insert(document.key().to_vec(), Document::clone(document));
            }
            self.read_to = drained.snapshot_end;
        }
    }
}

proptest! {
    #[test]
    fn replaying_the_history_rebuilds_the_table(operations in proptest::collection::vec(operation(), 1..60)) {
        let mut world = World {
            vbucket: Vbucket::create(Vbid(0), VbUuid(1), 7),
            model: BTreeMap::new(),
            now: Now { unix_ns: 1_700_000_000_000_000_000, monotonic_ns: 0 },
            max_cas: Cas::ANY,
            replayed: BTreeMap::new(),
            read_to: Seqno::ZERO,
        };
        operations.iter().for_each(|operation| world.run(operation));
        world.replay();
        let table: BTreeMap<Vec<u8>, Document> = world
            .vbucket
            .documents()
            .map(|document| (document.key().to_vec(), Document::clone(document)))
            .collect();
        prop_assert_eq!(&world.replayed, &table);
        let alive = table.values().filter(|document| document.is_alive()).count() as u64;
        prop_assert_eq!(world.vbucket.alive_count(), alive);
        let bytes: usize = table.values().map(Document::memory_bytes).sum();
        prop_assert_eq!(world.vbucket.memory_bytes(), bytes);
    }
}
