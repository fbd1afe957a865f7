//! The plugin's own state: documents by ID, and by the order of their changes.
//!
//! | key | value |
//! | --- | --- |
//! | `m` | the counters: [`Meta`] |
//! | `d` and the ID | [`ById`] |
//! | `s` and the sequence number, big-endian | [`BySeq`]: one for each document, at its newest change |
//! | `t` and the ID | the revision tree, for documents whose tombstone was purged or replaced |
//!
//! A client gets a sequence number as `12-5f2a…`: the number, and the epoch of this state. After the state was built again the epoch
//! is another one, and clients that name the earlier one read from the beginning, which changes nothing for what they have.

use crate::record::Record;
use crate::tree::Tree;
use nacre_plugin::{State, StateMut, successor};
use serde::{Deserialize, Serialize};

const META: &[u8] = b"m";
const ID: u8 = b'd';
const SEQ: u8 = b's';
const TREE: u8 = b't';

/// Counters of the state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// Distinguishes this state from one that is built again.
    pub epoch: String,
    /// The newest sequence number.
    pub seq: u64,
    /// Documents that are alive.
    pub documents: u64,
    /// Documents that are deleted.
    pub deleted: u64,
}

impl Meta {
    /// The counters of a state.
    pub fn of(state: &dyn State) -> Meta {
        let stored = state.get(META).and_then(|json| serde_json::from_slice(&json).ok());
        stored.unwrap_or_else(|| Meta { epoch: "0".into(), ..Meta::default() })
    }

    /// A sequence number as clients get it.
    pub fn token(&self, seq: u64) -> String {
        format!("{seq}-{}", self.epoch)
    }

    /// The sequence number that a client names. One of another epoch is 0, and so is what is none.
    pub fn seq_of(&self, token: &str) -> u64 {
        let token = token.trim_matches('"');
        if token == "now" {
            return self.seq;
        }
        let (number, epoch) = token.split_once('-').unwrap_or((token, &self.epoch));
        if epoch == self.epoch { number.parse().unwrap_or(0) } else { 0 }
    }
}

/// What is known of a document by its ID.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ById {
    /// The sequence number of its newest change.
    #[serde(rename = "s")]
    pub seq: u64,
    /// The revision that wins.
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

/// The entry of a document.
pub fn by_id(state: &dyn State, id: &str) -> Option<ById> {
    serde_json::from_slice(&state.get(&key(ID, id.as_bytes()))?).ok()
}

/// The tree of a document as of its newest change.
pub fn tree(state: &dyn State, id: &str) -> Option<Tree> {
    Some(Record::read(&state.get(&key(TREE, id.as_bytes()))?)?.tree)
}

/// Changes with `after < seq`, or with `descending` those before `after`, newest first; at most `limit`, and fewer when there are no
/// more.
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

/// Documents with IDs from `start` up to but without `end`, both as bytes; an empty `end` is no bound.
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

/// Reads entries until there are `limit`: the host gives fewer at once when they are large.
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

/// Notes the tree of a document. A tree with the same leaves is no change to clients, and gets no sequence number.
pub fn note(state: &mut dyn StateMut, id: &str, tree: &Tree, now_us: u64) {
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
    if meta.seq == 0 {
        meta.epoch = format!("{now_us:x}");
    }
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
        let mut state = MemoryState::default();
        note(&mut state, "a", &tree(&["1-a"], false), 255);
        note(&mut state, "b", &tree(&["1-b"], false), 256);
        note(&mut state, "a", &tree(&["1-a"], false), 257);
        note(&mut state, "a", &tree(&["2-a 1-a"], true), 258);
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
        for (token, seq) in
            [("5-ff", 5), ("5-fe", 0), ("5", 5), ("now", 7), ("\"5-ff\"", 5), ("x", 0)]
        {
            assert_eq!(meta.seq_of(token), seq, "{token}");
        }
    }
}
