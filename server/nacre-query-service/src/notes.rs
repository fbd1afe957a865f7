//! Notes that instances of the query service share: prepared statements, running requests, and others.
//!
//! Notes are kept in memory and belong to a user. Keys that begin with the same word form a group with a maximum size. When
//! a group is full, the user with the largest share of it loses the oldest note, so that one user cannot displace the notes
//! of others:
//!
//! ```text
//! prepared/ann//report        prepared/ann/`travel`.`inventory`/flights        request/3f6a…        completed/91bc…
//! ```

use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Maximum size of keys and values in one group, in bytes.
const BYTES_MAX: usize = 16 << 20;
/// Maximum number of notes in one group. Source: Couchbase's `prepared-limit`.
const COUNT_MAX: usize = 16_384;

/// Notes by key.
#[derive(Default)]
pub struct Notes(Mutex<BTreeMap<String, NoteGroup>>);

/// A note and its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub owner: String,
    pub value: Vec<u8>,
}

/// Notes whose keys begin with the same word, up to the first slash.
#[derive(Default)]
struct NoteGroup {
    /// Each note with its age number.
    notes: BTreeMap<String, (u64, Note)>,
    shares: BTreeMap<String, UserNotes>,
    added: u64,
    bytes: usize,
}

/// The notes of one user in a group.
#[derive(Default)]
struct UserNotes {
    /// Keys by age number, oldest first.
    by_age: BTreeMap<u64, String>,
    bytes: usize,
}

impl Notes {
    /// Returns a note.
    pub fn get(&self, key: &str) -> Option<Note> {
        let groups = self.0.lock();
        groups.get(word(key))?.notes.get(key).map(|(_, note)| note.clone())
    }

    /// Stores a note that belongs to `owner`, or removes the note if there is no value.
    pub fn set(&self, key: &str, owner: &str, value: Option<Vec<u8>>) {
        let mut groups = self.0.lock();
        let group = groups.entry(word(key).to_owned()).or_default();
        group.remove(key);
        if let Some(value) = value.filter(|value| key.len() + value.len() <= BYTES_MAX) {
            group.add(key, Note { owner: owner.to_owned(), value });
        }
    }

    /// Removes a note.
    pub fn remove(&self, key: &str) {
        self.set(key, "", None);
    }

    /// Returns the keys that begin with `prefix`, in order: those of `owner`, or all of them without one.
    pub fn keys(&self, prefix: &str, owner: Option<&str>) -> Vec<String> {
        let groups = self.0.lock();
        let of = |group: &NoteGroup| {
            let from = group.notes.range(prefix.to_owned()..);
            from.take_while(|(key, _)| key.starts_with(prefix))
                .filter(|(_, (_, note))| owner.is_none_or(|owner| owner == note.owner))
                .map(|(key, _)| key.clone())
                .collect::<Vec<_>>()
        };
        groups.get(word(prefix)).map(of).unwrap_or_default()
    }
}

fn word(key: &str) -> &str {
    key.split('/').next().unwrap_or_default()
}

impl NoteGroup {
    fn add(&mut self, key: &str, note: Note) {
        self.added += 1;
        let bytes = key.len() + note.value.len();
        self.bytes += bytes;
        let share = self.shares.entry(note.owner.clone()).or_default();
        share.bytes += bytes;
        share.by_age.insert(self.added, key.to_owned());
        self.notes.insert(key.to_owned(), (self.added, note));
        while self.bytes > BYTES_MAX {
            self.remove_oldest_of(|share| share.bytes);
        }
        while self.notes.len() > COUNT_MAX {
            self.remove_oldest_of(|share| share.by_age.len());
        }
    }

    /// Removes the oldest note of the user whose share has the largest size.
    fn remove_oldest_of(&mut self, size: impl Fn(&UserNotes) -> usize) {
        let largest = self.shares.values().max_by_key(|share| size(share));
        let oldest = largest.and_then(|share| share.by_age.values().next()).cloned();
        self.remove(&oldest.expect("a group over its limit has a note"));
    }

    fn remove(&mut self, key: &str) {
        let Some((age, note)) = self.notes.remove(key) else { return };
        let bytes = key.len() + note.value.len();
        self.bytes -= bytes;
        let share = self.shares.get_mut(&note.owner).expect("the share of a note");
        share.by_age.remove(&age);
        share.bytes -= bytes;
        if share.by_age.is_empty() {
            self.shares.remove(&note.owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_notes_of_a_shelf_make_room() {
        let notes = Notes::default();
        let value = || Some(vec![0; BYTES_MAX / 4]);
        notes.set("q/a", "ann", value());
        for key in ["p/a", "p/b", "p/c", "p/d"] {
            notes.set(key, "ann", value());
        }
        let keys = |prefix| notes.keys(prefix, None);
        assert_eq!(keys("p/"), ["p/b", "p/c", "p/d"], "keys count as bytes too");
        notes.remove("p/b");
        assert_eq!((notes.get("p/b"), keys("p/")), (None, vec!["p/c".into(), "p/d".into()]));
        notes.set("p/huge", "ann", Some(vec![0; BYTES_MAX]));
        assert_eq!(keys("p/"), ["p/c", "p/d"], "a note that never fits displaces nothing");
        assert_eq!(keys("q/"), ["q/a"], "each group has its own limit");
    }

    #[test]
    fn the_user_with_most_notes_makes_room() {
        let notes = Notes::default();
        (0..10).for_each(|n| notes.set(&format!("p/ann/{n}"), "ann", Some(Vec::new())));
        (0..20_000).for_each(|n| notes.set(&format!("p/bob/{n:06}"), "bob", Some(Vec::new())));
        assert_eq!(notes.keys("p/", Some("ann")).len(), 10);
        assert_eq!(notes.keys("p/", None).len(), COUNT_MAX);
        assert_eq!(notes.get("p/bob/000000"), None);
        let large = || Some(vec![0; BYTES_MAX / 8]);
        (0..20).for_each(|n| notes.set(&format!("p/eve/{n}"), "eve", large()));
        assert_eq!(notes.keys("p/", Some("ann")).len(), 10, "bytes displace no others either");
    }
}
