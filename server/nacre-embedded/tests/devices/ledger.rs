//! Records which edits were overwritten by which.
//!
//! A body is a set of edits: `{"edits":[7,9]}`. An application replaces the set by a set of one edit, and the ledger records the
//! replaced edits. A resolver joins two sets. An edit is accounted for if a body at the end or a parked one contains it, if an
//! edit that is accounted for replaced it knowingly, or if a deletion replaced it.

use std::collections::{BTreeMap, BTreeSet};

/// The ID of an edit.
pub(crate) type EditId = u64;

struct Edit {
    /// The edits that the application read and replaced.
    over: BTreeSet<EditId>,
    is_deletion: bool,
    /// True if the process that made the edit was killed before it was stored.
    is_excused: bool,
    what: String,
}

/// All edits of a run.
#[derive(Default)]
pub(crate) struct Ledger {
    edits: BTreeMap<EditId, Edit>,
}

/// Returns a body with the given edits.
pub(crate) fn body_of(edits: &BTreeSet<EditId>) -> Vec<u8> {
    serde_json::json!({"edits": edits}).to_string().into_bytes()
}

/// Returns the edits of a body.
pub(crate) fn edits_of(body: &[u8]) -> BTreeSet<EditId> {
    let json: serde_json::Value = serde_json::from_slice(body).expect("bodies are JSON");
    edits_in(&json)
}

pub(crate) fn edits_in(json: &serde_json::Value) -> BTreeSet<EditId> {
    let edits = json["edits"].as_array().expect("bodies have edits");
    edits.iter().map(|edit| edit.as_u64().expect("edits are numbers")).collect()
}

impl Ledger {
    /// Records an edit that replaces what the application has read.
    pub fn edit(&mut self, over: BTreeSet<EditId>, is_deletion: bool, what: String) -> EditId {
        let id = self.edits.len() as EditId;
        self.edits.insert(id, Edit { over, is_deletion, is_excused: false, what });
        id
    }

    /// Excuses edits whose process was killed before they were stored.
    pub fn excuse(&mut self, edits: &[EditId]) {
        for id in edits {
            self.edits.get_mut(id).expect("it was recorded").is_excused = true;
        }
    }

    /// Describes the last edit.
    pub fn last(&self) -> String {
        let last = self.edits.last_key_value();
        last.map_or(String::new(), |(id, edit)| format!("{id}: {} over {:?}", edit.what, edit.over))
    }

    pub fn len(&self) -> usize {
        self.edits.len()
    }

    /// Returns the lost edits, given those that exist at the end or are parked.
    pub fn lost(&self, there: &BTreeSet<EditId>) -> Vec<String> {
        let mut known = there.clone();
        // A deletion that its process had not stored may have reached other sites before the kill.
        let deletions = self.edits.iter().filter(|(_, edit)| edit.is_deletion);
        let mut open: Vec<EditId> =
            there.iter().copied().chain(deletions.map(|(id, _)| *id)).collect();
        while let Some(id) = open.pop() {
            let Some(edit) = self.edits.get(&id) else { continue };
            for over in &edit.over {
                if known.insert(*over) {
                    open.push(*over);
                }
            }
        }
        let lost = self
            .edits
            .iter()
            .filter(|(id, edit)| !edit.is_excused && !edit.is_deletion && !known.contains(*id));
        lost.map(|(id, edit)| format!("{id}: {}", edit.what)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edit_counts_as_lost_unless_a_later_edit_replaced_it() {
        let mut ledger = Ledger::default();
        let first = ledger.edit(BTreeSet::new(), false, "first".into());
        let second = ledger.edit(BTreeSet::from([first]), false, "second".into());
        let aside = ledger.edit(BTreeSet::from([first]), false, "aside".into());
        assert_eq!(ledger.lost(&BTreeSet::from([second])), ["2: aside"]);
        assert!(ledger.lost(&BTreeSet::from([second, aside])).is_empty());
        ledger.edit(BTreeSet::from([aside]), true, "deleted".into());
        assert!(ledger.lost(&BTreeSet::from([second])).is_empty());
        assert_eq!(edits_of(&body_of(&BTreeSet::from([1, 5]))), BTreeSet::from([1, 5]));
    }
}
