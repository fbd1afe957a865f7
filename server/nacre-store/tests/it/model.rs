//! The expected content of a store: a random workload, and every state of each vBucket with its history.

use crate::{commit, erased, tombstone, version};
use nacre_store::{Commit, Error, Store, Which, load_all};
use nacre_types::{CollectionId, Document, Seqno, VbRecord, Vbid};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

pub const VBUCKETS: u16 = 4;
const KEYS: u64 = 14;

/// A pseudo-random sequence: the same seed yields the same choices.
pub struct Chance(pub u64);

impl Chance {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Documents by key.
type Contents = BTreeMap<Vec<u8>, Document>;

/// Superseded versions by seqno.
type History = BTreeMap<u64, Document>;

/// Returns a hash of a state.
fn fingerprint(record: &VbRecord, contents: &Contents, history: &History) -> u64 {
    let mut hasher = DefaultHasher::new();
    // The purge seqno distinguishes commits that change no document.
    (record.high_seqno.0, record.purge_seqno.0, record.max_cas.0).hash(&mut hasher);
    assert_eq!(record.document_count, contents.len() as u64);
    for (key, document) in contents {
        let meta = document.meta;
        (key, meta.seqno.0, meta.cas.0, meta.kind as u8, document.value()).hash(&mut hasher);
    }
    record.history_start.map(|start| start.0).hash(&mut hasher);
    for (seqno, document) in history {
        (seqno, document.key(), document.value()).hash(&mut hasher);
    }
    hasher.finish()
}

/// Returns the superseded versions in a store, and checks that the store also returns the current versions, in order.
fn history_of(store: &dyn Store, vbid: Vbid, current: &Contents) -> Result<History, Error> {
    let mut history = History::new();
    let (mut last, mut given) = (Seqno::ZERO, 0);
    for document in store.scan(vbid, Seqno::ZERO, Which::All)?.documents {
        let document = document?;
        let seqno = document.meta.seqno;
        assert!(seqno > last, "{vbid} gives {seqno} after {last}");
        last = seqno;
        match current.get(document.key()) {
            Some(newest) if newest.meta.seqno == seqno => given += 1,
            _ => drop(history.insert(seqno.0, document)),
        }
    }
    assert_eq!(given, current.len(), "{vbid} leaves out current versions");
    Ok(history)
}

/// Reads a whole store, as a start does. Returns a state for each vBucket, 0 for a vBucket without a record.
pub fn read(store: &dyn Store) -> Result<Vec<u64>, Error> {
    let mut contents = vec![Contents::new(); VBUCKETS.into()];
    let mut twice = None;
    load_all(store, &mut |vbid, document| {
        let key = document.key().to_vec();
        if contents[vbid.index()].insert(key, document).is_some() {
            twice = Some(vbid);
        }
    })?;
    assert_eq!(twice, None, "a key was given twice");
    let mut states = vec![0; VBUCKETS.into()];
    for (vbid, record) in store.records()? {
        let contents = &contents[vbid.index()];
        states[vbid.index()] = fingerprint(&record, contents, &history_of(store, vbid, contents)?);
    }
    Ok(states)
}

#[derive(Default)]
struct Vbucket {
    contents: Contents,
    history: History,
    high: u64,
    /// The seqno from which history is kept, if it is.
    start: Option<u64>,
    /// Each state, with the times at which its commit began and was acknowledged.
    states: Vec<(u64, usize, usize)>,
}

/// The writes to a store.
pub struct Model {
    vbuckets: Vec<Vbucket>,
    commits: u64,
    keeps_history: bool,
}

impl Model {
    /// Creates a model for stores without history.
    pub fn without_history() -> Model {
        Model { keeps_history: false, ..Model::new() }
    }

    pub fn new() -> Model {
        let vbuckets = (0..VBUCKETS).map(|_| Vbucket::default()).collect();
        Model { vbuckets, commits: 0, keeps_history: true }
    }

    /// Returns the start of the history after the next commit. History is switched on and off, and its start moves
    /// forwards.
    fn next_start(chance: &mut Chance, start: Option<u64>, high: u64) -> Option<u64> {
        match (chance.below(40), start) {
            (0, _) => None,
            (1..16, None) => Some(high + 1),
            (1..7, Some(start)) => Some((start + chance.below(30)).min(high + 1).max(start)),
            (_, start) => start,
        }
    }

    /// Returns the next commits. The model changes only with [`Model::begin`].
    pub fn commits(&mut self, chance: &mut Chance) -> Vec<Commit> {
        let mut highs: Vec<u64> = self.vbuckets.iter().map(|vbucket| vbucket.high).collect();
        let mut starts: Vec<_> = self.vbuckets.iter().map(|vbucket| vbucket.start).collect();
        (0..1 + chance.below(4))
            .map(|_| {
                let vbid = chance.below(VBUCKETS.into()) as u16;
                let high = &mut highs[usize::from(vbid)];
                let start = &mut starts[usize::from(vbid)];
                // The last vBucket never has history.
                if self.keeps_history && vbid + 1 < VBUCKETS {
                    *start = Model::next_start(chance, *start, *high);
                }
                let mut documents: Vec<Document> = Vec::new();
                for _ in 0..chance.below(6) {
                    let name = format!("key{}", chance.below(KEYS));
                    *high += 1 + chance.below(2);
                    let is_there =
                        documents.iter().any(|document| document.name() == name.as_bytes());
                    if is_there && start.is_none() {
                        continue;
                    }
                    documents.push(match chance.below(5) {
                        0 => tombstone(*high, &name),
                        1 => version(*high, &name, &"long ".repeat(chance.below(400) as usize)),
                        _ => version(
                            *high,
                            &name,
                            &format!("{high} {}", "x".repeat(chance.below(90) as usize)),
                        ),
                    });
                }
                *high = documents
                    .last()
                    .map_or(self.vbuckets[usize::from(vbid)].high.max(*high), |document| {
                        document.meta.seqno.0
                    });
                self.commits += 1;
                let contents = &self.vbuckets[usize::from(vbid)].contents;
                let mut forgotten = Vec::new();
                for _ in 0..chance.below(3) {
                    let name = format!("key{}", chance.below(KEYS));
                    let (key, _) = erased(&name, 0);
                    let current =
                        contents.get(&key[..]).map_or(0, |document| document.meta.seqno.0);
                    let stale = chance.below(4) == 0;
                    forgotten.push(erased(&name, current + u64::from(stale)));
                }
                let mut next = match documents.is_empty() {
                    true => commit(vbid, vec![version(*high, "only for its record", "")]),
                    false => commit(vbid, documents.clone()),
                };
                next.documents = documents;
                next.record.purge_seqno = Seqno(self.commits);
                next.erased = forgotten;
                next.record.history_start = start.map(Seqno);
                next.history = [CollectionId(8)].into();
                next
            })
            .collect()
    }

    /// Records writes before they are passed to a store, at a time of its disk. Removes erased keys at the high seqno
    /// from the commits, because no vBucket produces these.
    pub fn begin(&mut self, commits: &mut [Commit], now: usize) {
        for commit in commits {
            let vbucket = &mut self.vbuckets[commit.vbid.index()];
            let next =
                commit.documents.last().map_or(vbucket.high, |document| document.meta.seqno.0);
            commit.erased.retain(|(_, seqno)| seqno.0 != next);
            let mut superseded: Vec<Document> = Vec::new();
            for (key, seqno) in &commit.erased {
                if vbucket
                    .contents
                    .get(&key[..])
                    .is_some_and(|document| document.meta.seqno == *seqno)
                {
                    superseded.extend(vbucket.contents.remove(&key[..]));
                }
            }
            for document in &commit.documents {
                let old = vbucket.contents.insert(document.key().to_vec(), document.clone());
                superseded.extend(old);
            }
            vbucket.high = next;
            vbucket.start = commit.record.history_start.map(|start| start.0);
            let start = vbucket.start.unwrap_or(u64::MAX);
            let superseded = superseded.into_iter().map(|old| (old.meta.seqno.0, old));
            vbucket.history.extend(superseded);
            vbucket.history.retain(|seqno, _| *seqno >= start);
            commit.record.high_seqno = Seqno(next);
            let record =
                VbRecord { document_count: vbucket.contents.len() as u64, ..commit.record.clone() };
            let state = fingerprint(&record, &vbucket.contents, &vbucket.history);
            vbucket.states.push((state, now, usize::MAX));
        }
    }

    /// Records that all writes were acknowledged.
    pub fn acknowledge(&mut self, now: usize) {
        for vbucket in &mut self.vbuckets {
            for (.., acknowledged) in vbucket.states.iter_mut().rev() {
                if *acknowledged != usize::MAX {
                    break;
                }
                *acknowledged = now;
            }
        }
    }

    /// Checks the content of a store at a time of its disk: each vBucket must contain a prefix of its commits, with all
    /// acknowledged commits and no commit that had not begun.
    pub fn judge(&self, found: &[u64], now: usize) -> Result<(), String> {
        for ((vbid, vbucket), state) in (0..).map(Vbid).zip(&self.vbuckets).zip(found) {
            let acknowledged =
                vbucket.states.iter().filter(|(.., acknowledged)| *acknowledged <= now).count();
            let begun = vbucket.states.iter().filter(|(_, began, _)| *began <= now).count();
            let allowed = |count: usize| match count {
                0 => 0,
                _ => vbucket.states[count - 1].0,
            };
            if !(acknowledged..=begun).any(|count| allowed(count) == *state) {
                let at = (0..=vbucket.states.len()).find(|count| allowed(*count) == *state);
                return Err(format!(
                    "{vbid} has {at:?} commits, {acknowledged} were acknowledged and {begun} begun"
                ));
            }
        }
        Ok(())
    }

    /// Creates a model of a store with content, all of which counts as acknowledged.
    pub fn of(store: &dyn Store) -> Model {
        let mut model = Model::new();
        let found = read(store).unwrap();
        for (vbid, record) in store.records().unwrap() {
            let vbucket = &mut model.vbuckets[vbid.index()];
            for document in store.scan(vbid, Seqno::ZERO, Which::Current).unwrap().documents {
                let document = document.unwrap();
                vbucket.contents.insert(document.key().to_vec(), document);
            }
            vbucket.history = history_of(store, vbid, &vbucket.contents).unwrap();
            vbucket.start = record.history_start.map(|start| start.0);
            vbucket.high = record.high_seqno.0;
            vbucket.states.push((found[vbid.index()], 0, 0));
            model.commits = model.commits.max(record.purge_seqno.0);
        }
        model
    }

    /// Compares lookups in a store with the model.
    pub fn check_keys(&self, store: &dyn Store) {
        for (vbid, vbucket) in (0..).map(Vbid).zip(&self.vbuckets) {
            for name in 0..KEYS {
                let (key, _) = erased(&format!("key{name}"), 0);
                let found = store.get(vbid, &key).unwrap();
                assert_eq!(found.as_ref(), vbucket.contents.get(&key[..]));
            }
        }
    }
}
