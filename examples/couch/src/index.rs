//! The plugin's state: documents by ID, and in the order of their changes.
//!
//! | key | value |
//! | --- | --- |
//! | `m` | the counters: [`Meta`] |
//! | `d` and the ID | [`ById`] |
//! | `s` and the sequence number, big-endian | [`BySeq`]: one for each document, at its newest change |
//! | `t` and the ID | the revision tree, for documents whose tombstone was purged or replaced |
//! | `e` | earlier epochs: [`Ended`], oldest first |
//!
//! Clients get a sequence number such as `12-5f2a…`: the number, and the epoch in which it was assigned. Each writer begins an
//! epoch with its first number, because a crash loses unstored numbers, and the next writer assigns them to other changes. The
//! state contains the end of each earlier epoch, so that a client continues from the last number that its past and this state
//! have in common. A client that names an unknown epoch reads from the beginning, which does not change what it already has.

use crate::record::Record;
use crate::tree::Tree;
use nacre_plugin::{State, StateMut, successor};
use serde::{Deserialize, Serialize};

const META: &[u8] = b"m";
const ID: u8 = b'd';
const SEQ: u8 = b's';
const TREE: u8 = b't';
const ENDED: &[u8] = b"e";
/// Maximum number of earlier epochs.
const ENDED_MAX: usize = 256;

/// Counters of the state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// The epoch of the newest sequence number.
    pub epoch: String,
    /// The newest sequence number.
    pub seq: u64,
    /// Number of existing documents.
    pub documents: u64,
    /// Number of deleted documents.
    pub deleted: u64,
}

impl Meta {
    /// Returns the counters of a state.
    pub fn of(state: &dyn State) -> Meta {
        let stored = state.get(META).and_then(|json| serde_json::from_slice(&json).ok());
        stored.unwrap_or_else(|| Meta { epoch: "0".into(), ..Meta::default() })
    }

    /// Returns a sequence number in the clients' form.
    pub fn token(&self, seq: u64) -> String {
        format!("{seq}-{}", self.epoch)
    }

    /// Returns the sequence number that a client names, or the last one before it that this state has in common with the client.
    /// Returns 0 for an unknown epoch or an invalid number.
    pub fn seq_of(&self, state: &dyn State, token: &str) -> u64 {
        let token = token.trim_matches('"');
        if token == "now" {
            return self.seq;
        }
        let (number, epoch) = token.split_once('-').unwrap_or((token, &self.epoch));
        number.parse().map_or(0, |number| self.shared(state, number, epoch))
    }

    /// Returns the last number up to `seq` of `epoch` that this state has, too.
    pub fn shared(&self, state: &dyn State, seq: u64, epoch: &str) -> u64 {
        if epoch == self.epoch {
            // A greater number was lost in a crash, and the next epoch has not begun.
            return seq.min(self.seq);
        }
        let ended = ended(state).into_iter().find(|ended| ended.epoch == epoch);
        ended.map_or(0, |ended| seq.min(ended.seq))
    }
}

/// An epoch that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// The name.
    #[serde(rename = "e")]
    pub epoch: String,
    /// The last sequence number of the epoch in the state.
    #[serde(rename = "s")]
    pub seq: u64,
}

fn ended(state: &dyn State) -> Vec<Ended> {
    let stored = state.get(ENDED).and_then(|json| serde_json::from_slice(&json).ok());
    stored.unwrap_or_default()
}

/// The epoch of a writer.
#[derive(Clone, Debug, Default)]
pub struct Epoch(Option<String>);

impl Epoch {
    /// Makes the state's epoch that of this writer. A state without numbers was rebuilt, perhaps by the same writer: it gets
    /// another epoch.
    fn begin(&mut self, state: &mut dyn StateMut, meta: &mut Meta, now_us: u64) {
        if meta.seq == 0 {
            self.0 = None;
        }
        let own = self.0.get_or_insert_with(|| format!("{now_us:x}"));
        if meta.epoch == *own {
            return;
        }
        if meta.seq > 0 {
            let mut all = ended(state);
            all.push(Ended { epoch: std::mem::take(&mut meta.epoch), seq: meta.seq });
            all.drain(..all.len().saturating_sub(ENDED_MAX));
            state.put(ENDED, &json(&all));
        }
        meta.epoch.clone_from(own);
    }
}

/// The entry of a document by its ID.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ById {
    /// The sequence number of its newest change.
    #[serde(rename = "s")]
    pub seq: u64,
    /// The winning revision.
    #[serde(rename = "w")]
    pub winner: String,
    /// True if it is deleted.
    #[serde(rename = "d", default)]
    pub deleted: bool,
}

/// The newest change of a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BySeq {
    /// The ID.
    #[serde(rename = "i")]
    pub id: String,
    /// The leaves, the winner first.
    #[serde(rename = "l")]
    pub leaves: Vec<String>,
    /// True if the winner deletes the document.
    #[serde(rename = "d", default)]
    pub deleted: bool,
}

fn key(kind: u8, rest: &[u8]) -> Vec<u8> {
    [&[kind], rest].concat()
}

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

/// Returns the entry of a document.
pub fn by_id(state: &dyn State, id: &str) -> Option<ById> {
    serde_json::from_slice(&state.get(&key(ID, id.as_bytes()))?).ok()
}

/// Returns the tree of a document at its newest change.
pub fn tree(state: &dyn State, id: &str) -> Option<Tree> {
    Some(Record::read(&state.get(&key(TREE, id.as_bytes()))?)?.tree)
}

/// Returns changes with `after < seq`, or with `descending` those before `after`, newest first; at most `limit`, and fewer only
/// if there are no more.
pub fn changes(state: &dyn State, after: u64, limit: u32, descending: bool) -> Vec<(u64, BySeq)> {
    let (start, end) = match descending {
        false => (key(SEQ, &(after.saturating_add(1)).to_be_bytes()), successor(&[SEQ])),
        true => (key(SEQ, &[]), key(SEQ, &after.to_be_bytes())),
    };
    scan(state, start, end, limit, descending, |key, value| {
        let seq = u64::from_be_bytes(key.get(1..)?.try_into().ok()?);
        Some((seq, serde_json::from_slice(value).ok()?))
    })
}

/// Returns documents with IDs from `start`, included, to `end`, excluded, both as bytes; an empty `end` is no bound.
pub fn documents(
    state: &dyn State,
    start: &[u8],
    end: &[u8],
    limit: u32,
    descending: bool,
) -> Vec<(String, ById)> {
    let end = if end.is_empty() { successor(&[ID]) } else { key(ID, end) };
    scan(state, key(ID, start), end, limit, descending, |key, value| {
        let id = String::from_utf8(key.get(1..)?.to_vec()).ok()?;
        Some((id, serde_json::from_slice(value).ok()?))
    })
}

/// Reads entries until there are `limit`: the host returns fewer at once if they are large.
fn scan<T>(
    state: &dyn State,
    mut start: Vec<u8>,
    mut end: Vec<u8>,
    limit: u32,
    descending: bool,
    read: impl Fn(&[u8], &[u8]) -> Option<T>,
) -> Vec<T> {
    let mut found = Vec::new();
    while (found.len() as u32) < limit && start < end {
        let entries = state.scan(&start, &end, limit - found.len() as u32, descending);
        let Some((last, _)) = entries.last() else { break };
        match descending {
            true => end = last.clone(),
            false => start = [last, &[0][..]].concat(),
        }
        found.extend(entries.iter().filter_map(|(key, value)| read(key, value)));
    }
    found
}

/// Records the tree of a document. A tree with the same leaves is not a change for clients, and gets no sequence number.
pub fn note(state: &mut dyn StateMut, epoch: &mut Epoch, id: &str, tree: &Tree, now_us: u64) {
    let leaves: Vec<String> = tree.leaves().iter().map(ToString::to_string).collect();
    let Some(winner) = leaves.first().cloned() else { return };
    let deleted = tree.winner().is_some_and(|winner| tree.is_deleted(&winner));
    let known = by_id(state, id);
    if let Some(known) = &known {
        let change = state.get(&key(SEQ, &known.seq.to_be_bytes()));
        let change: Option<BySeq> = change.and_then(|json| serde_json::from_slice(&json).ok());
        if change.is_some_and(|change| change.leaves == leaves) {
            return;
        }
        state.delete(&key(SEQ, &known.seq.to_be_bytes()));
    }
    let mut meta = Meta::of(state);
    epoch.begin(state, &mut meta, now_us);
    meta.seq += 1;
    if let Some(known) = &known {
        let count = if known.deleted { &mut meta.deleted } else { &mut meta.documents };
        *count = count.saturating_sub(1);
    }
    *(if deleted { &mut meta.deleted } else { &mut meta.documents }) += 1;
    let (seq, row) = (meta.seq, ById { seq: meta.seq, winner, deleted });
    state.put(META, &json(&meta));
    state.put(&key(ID, id.as_bytes()), &json(&row));
    state.put(&key(SEQ, &seq.to_be_bytes()), &json(&BySeq { id: id.into(), leaves, deleted }));
    state.put(&key(TREE, id.as_bytes()), Record::write_tree(tree).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Rev;
    use nacre_plugin::MemoryState;

    fn tree(paths: &[&str], deleted: bool) -> Tree {
        let mut tree = Tree::default();
        for path in paths {
            let path: Vec<Rev> = path.split(' ').map(|rev| Rev::parse(rev).unwrap()).collect();
            tree.merge_path(&path, deleted);
        }
        tree
    }

    #[test]
    fn a_document_has_one_change_and_equal_leaves_are_none() {
        let (mut state, mut epoch) = (MemoryState::default(), Epoch::default());
        note(&mut state, &mut epoch, "a", &tree(&["1-a"], false), 255);
        note(&mut state, &mut epoch, "b", &tree(&["1-b"], false), 256);
        note(&mut state, &mut epoch, "a", &tree(&["1-a"], false), 257);
        note(&mut state, &mut epoch, "a", &tree(&["2-a 1-a"], true), 258);
        let meta = Meta::of(&state);
        assert_eq!(meta, Meta { epoch: "ff".into(), seq: 3, documents: 1, deleted: 1 });
        let ids = |rows: Vec<(u64, BySeq)>| -> Vec<(u64, String)> {
            rows.into_iter().map(|(seq, row)| (seq, row.id)).collect()
        };
        assert_eq!(ids(changes(&state, 0, 10, false)), [(2, "b".into()), (3, "a".into())]);
        assert_eq!(ids(changes(&state, u64::MAX, 1, true)), [(3, "a".into())]);
        assert_eq!(documents(&state, b"b", b"", 10, false).len(), 1);
    }

    #[test]
    fn numbers_of_another_epoch_begin_again() {
        let meta = Meta { epoch: "ff".into(), seq: 7, ..Meta::default() };
        let state = MemoryState::default();
        for (token, seq) in [
            ("5-ff", 5),
            ("5-fe", 0),
            ("5", 5),
            ("now", 7),
            ("\"5-ff\"", 5),
            ("x", 0),
            ("x-ff", 0),
            ("-ff", 0),
            ("8-ff", 7),
        ] {
            assert_eq!(meta.seq_of(&state, token), seq, "{token}");
        }
    }

    /// A client has read up to 3 when a crash loses 2 and 3. The next writer assigns 2 and 3 to other documents, which the client
    /// would miss if it continued from 3.
    #[test]
    fn numbers_that_a_crash_took_back_are_read_again() {
        let (mut state, mut epoch) = (MemoryState::default(), Epoch::default());
        note(&mut state, &mut epoch, "a", &tree(&["1-a"], false), 1);
        let mut stored = state.clone();
        note(&mut state, &mut epoch, "b", &tree(&["1-b"], false), 2);
        note(&mut state, &mut epoch, "c", &tree(&["1-c"], false), 3);
        let seen = Meta::of(&state).token(3);
        assert_eq!(seen, "3-1");
        assert_eq!(Meta::of(&stored).seq_of(&stored, &seen), 1, "nothing is written yet");

        let mut next = Epoch::default();
        for (id, now_us) in [("x", 10), ("c", 11), ("b", 12)] {
            note(&mut stored, &mut next, id, &tree(&["1-x"], false), now_us);
        }
        let meta = Meta::of(&stored);
        assert_eq!(meta.token(meta.seq), "4-a");
        assert_eq!(meta.seq_of(&stored, &seen), 1);
        assert_eq!(meta.seq_of(&stored, "1-1"), 1);
        assert_eq!(meta.seq_of(&stored, "3-a"), 3);

        // Another writer, which changes nothing, begins no epoch.
        let mut last = Epoch::default();
        note(&mut stored, &mut last, "x", &tree(&["1-x"], false), 20);
        assert_eq!(Meta::of(&stored), meta);
        note(&mut stored, &mut last, "x", &tree(&["2-y 1-x"], false), 20);
        let meta = Meta::of(&stored);
        assert_eq!(meta.token(meta.seq), "5-14");
        let shared = ["3-1", "9-a", "5-14", "9-14"].map(|token| meta.seq_of(&stored, token));
        assert_eq!(shared, [1, 4, 5, 5]);
    }

    #[test]
    fn a_state_that_the_same_writer_builds_again_has_another_epoch() {
        let mut epoch = Epoch::default();
        let mut tokens = Vec::new();
        for now_us in [1, 2] {
            let mut state = MemoryState::default();
            note(&mut state, &mut epoch, "a", &tree(&["1-a"], false), now_us);
            tokens.push(Meta::of(&state).token(1));
        }
        assert_eq!(tokens, ["1-1", "1-2"]);
    }

    #[test]
    fn earlier_epochs_are_bounded() {
        let mut state = MemoryState::default();
        for now_us in 1..=ENDED_MAX as u64 + 10 {
            let rev = format!("1-{now_us}");
            note(&mut state, &mut Epoch::default(), "a", &tree(&[&rev], false), now_us);
        }
        assert_eq!(ended(&state).len(), ENDED_MAX);
        let meta = Meta::of(&state);
        assert_eq!(meta.seq_of(&state, "1-1"), 0, "that one is forgotten");
        assert_eq!(meta.seq_of(&state, "200-c8"), 200);
    }
}
