//! A source of history: vBuckets that change, fail over and purge tombstones, and answer like a DCP producer.

use nacre_backup::{Record, RecordKind, StreamRequest};
use nacre_dcp::{Resume, ResumePoint, resume};
use nacre_types::{FailoverLog, Seqno, VbUuid};
use std::collections::BTreeMap;

/// The value of each key.
pub type State = BTreeMap<u8, u64>;

/// A pseudorandom generator that returns the same numbers for the same seed.
pub struct SeededRandom(pub u64);

impl SeededRandom {
    pub fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    /// Returns true once in `count` times.
    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// A version in history. Its seqno is its position.
#[derive(Clone, Copy)]
struct Change {
    key: u8,
    /// `None` for a deletion.
    value: Option<u64>,
}

/// The history of one vBucket.
#[derive(Default)]
pub struct Vbucket {
    history: Vec<Change>,
    /// The UUID and first seqno of each branch, newest first.
    log: Vec<(u64, u64)>,
    /// Tombstones up to this seqno are purged.
    purged: u64,
}

/// A message of a stream.
pub enum Message {
    Snapshot(u64),
    Record { seqno: u64, key: u8, value: Option<u64> },
    Advanced(u64),
}

/// The answer to a stream request.
pub enum Answer {
    Accepted(Vec<(u64, u64)>),
    Rollback(u64),
}

impl Vbucket {
    pub fn new(chance: &mut SeededRandom) -> Vbucket {
        Vbucket { log: vec![(chance.next() | 1, 0)], ..Vbucket::default() }
    }

    pub fn high(&self) -> u64 {
        self.history.len() as u64
    }

    pub fn change(&mut self, chance: &mut SeededRandom) {
        let value = (!chance.one_in(3)).then(|| chance.next());
        self.history.push(Change { key: chance.below(6) as u8, value });
    }

    /// Fails over to another copy that has only part of the history.
    pub fn fail_over(&mut self, chance: &mut SeededRandom) {
        let lost = chance.below(self.high().min(8) + 1);
        let high = self.high() - lost;
        self.history.truncate(high as usize);
        self.log.retain(|(_, from)| *from <= high);
        self.log.insert(0, (chance.next() | 1, high));
        self.purged = self.purged.min(high);
    }

    pub fn purge(&mut self, chance: &mut SeededRandom) {
        let until = chance.below(self.high() + 1);
        // The newest version of a vBucket is never purged.
        self.purged = self.purged.max(until.min(self.high().saturating_sub(1)));
    }

    /// Returns the documents at a seqno.
    pub fn state(&self, seqno: u64) -> State {
        let mut state = State::new();
        for Change { key, value } in &self.history[..seqno as usize] {
            match value {
                Some(value) => drop(state.insert(*key, *value)),
                None => drop(state.remove(key)),
            }
        }
        state
    }

    pub fn ask(&self, request: StreamRequest) -> Answer {
        let StreamRequest { start, vb_uuid, .. } = request;
        let entries = self.log.iter().map(|(uuid, from)| (VbUuid(*uuid), Seqno(*from))).collect();
        let log = FailoverLog::from_entries(entries).expect("the log of the model is one");
        let at = Seqno(start);
        let from = ResumePoint {
            vb_uuid: VbUuid(vb_uuid),
            seqno: at,
            snapshot_start: at,
            snapshot_end: at,
        };
        match resume(&from, &log, Seqno(self.high()), Seqno(self.purged)) {
            Resume::Continue => Answer::Accepted(self.log.clone()),
            Resume::Rollback(seqno) => Answer::Rollback(seqno.0),
            Resume::Invalid => panic!("the request {request:?} contradicts itself"),
        }
    }

    /// Returns a snapshot of the history after `after`, up to a random seqno: for each key the newest version in it.
    pub fn snapshot(&self, after: u64, chance: &mut SeededRandom) -> Vec<Message> {
        let high = self.high();
        let end = if chance.one_in(2) { high } else { after + 1 + chance.below(high - after) };
        let range = after as usize..end as usize;
        // Up to the purge seqno the store has only the newest versions: the versions that a purged tombstone replaced are gone
        // with it.
        let known = end.max(self.purged.min(high)) as usize;
        let is_last = |at: usize| {
            self.history[at + 1..known].iter().all(|later| later.key != self.history[at].key)
        };
        let mut messages = vec![Message::Snapshot(end)];
        let mut last = after;
        for at in range.clone().filter(|at| is_last(*at)) {
            let (seqno, Change { key, value }) = (at as u64 + 1, self.history[at]);
            if value.is_none() && seqno <= self.purged {
                continue;
            }
            messages.push(Message::Record { seqno, key, value });
            last = seqno;
        }
        if last < end {
            messages.push(Message::Advanced(end));
        }
        messages
    }
}

/// Passes the record of a message to `use_it`.
pub fn with_record<T>(
    seqno: u64,
    key: u8,
    value: Option<u64>,
    use_it: impl FnOnce(&Record<'_>) -> T,
) -> T {
    let bytes =
        value.map_or(Vec::new(), |value| value.to_le_bytes().repeat(1 + (value % 50) as usize));
    let kind = if value.is_some() { RecordKind::Set } else { RecordKind::Deletion };
    let key = [key];
    use_it(&Record {
        kind,
        seqno,
        cas: seqno << 16,
        rev: 1,
        flags: 0,
        expiry: 0,
        datatype: 0,
        collection: 0,
        key: &key,
        value: &bytes,
    })
}

/// Applies a record to a state.
pub fn apply(state: &mut State, record: &Record<'_>) {
    let value = record.value.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    match (record.kind, value) {
        (RecordKind::Set, Some(value)) => drop(state.insert(record.key[0], value)),
        _ => drop(state.remove(&record.key[0])),
    }
}
