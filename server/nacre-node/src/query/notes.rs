//! What instances of the query service tell each other: prepared statements, requests that run, and the like. In memory, and
//! bounded: of what begins with the same word, the oldest notes make room for new ones.

use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Bytes of keys and values on one shelf.
const BYTES_MAX: usize = 16 << 20;
/// Notes on one shelf. Source: Couchbase's `prepared-limit`.
const COUNT_MAX: usize = 16_384;

/// Notes by key.
#[derive(Default)]
pub struct Notes(Mutex<BTreeMap<String, Shelf>>);

/// Notes whose keys begin with the same word, up to the first slash.
#[derive(Default)]
struct Shelf {
    /// Each with when it was made.
    notes: BTreeMap<String, (u64, Vec<u8>)>,
    by_age: BTreeMap<u64, String>,
    made: u64,
    bytes: usize,
}

impl Notes {
    pub fn get(&self, key: &str) -> Option<Vec<u8>> {
        let shelves = self.0.lock();
        shelves.get(word(key))?.notes.get(key).map(|(_, value)| value.clone())
    }

    /// Makes a note, or removes it when there is nothing to note.
    pub fn set(&self, key: &str, value: Option<Vec<u8>>) {
        let mut shelves = self.0.lock();
        let shelf = shelves.entry(word(key).to_owned()).or_default();
        shelf.remove(key);
        if let Some(value) = value.filter(|value| key.len() + value.len() <= BYTES_MAX) {
            shelf.add(key, value);
        }
    }

    /// The keys that begin with `prefix`, in order.
    pub fn keys(&self, prefix: &str) -> Vec<String> {
        let shelves = self.0.lock();
        let of = |shelf: &Shelf| {
            let from = shelf.notes.range(prefix.to_owned()..).map(|(key, _)| key);
            from.take_while(|key| key.starts_with(prefix)).cloned().collect::<Vec<_>>()
        };
        shelves.get(word(prefix)).map(of).unwrap_or_default()
    }
}

fn word(key: &str) -> &str {
    key.split('/').next().unwrap_or_default()
}

impl Shelf {
    fn add(&mut self, key: &str, value: Vec<u8>) {
        self.made += 1;
        self.bytes += key.len() + value.len();
        self.by_age.insert(self.made, key.to_owned());
        self.notes.insert(key.to_owned(), (self.made, value));
        while self.bytes > BYTES_MAX || self.notes.len() > COUNT_MAX {
            let Some((_, oldest)) = self.by_age.pop_first() else { break };
            self.remove(&oldest);
        }
    }

    fn remove(&mut self, key: &str) {
        if let Some((made, value)) = self.notes.remove(key) {
            self.by_age.remove(&made);
            self.bytes -= key.len() + value.len();
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
        notes.set("q/a", value());
        for key in ["p/a", "p/b", "p/c", "p/d"] {
            notes.set(key, value());
        }
        assert_eq!(notes.keys("p/"), ["p/b", "p/c", "p/d"], "keys have bytes too");
        notes.set("p/b", None);
        assert_eq!((notes.get("p/b"), notes.keys("p/")), (None, vec!["p/c".into(), "p/d".into()]));
        notes.set("p/huge", Some(vec![0; BYTES_MAX]));
        assert_eq!(notes.keys("p/"), ["p/c", "p/d"], "what never fits pushes nothing out");
        assert_eq!(notes.keys("q/"), ["q/a"], "other shelves have room of their own");
    }

    #[test]
    fn there_are_not_more_than_so_many() {
        let notes = Notes::default();
        (0..=COUNT_MAX).for_each(|n| notes.set(&format!("p/{n:06}"), Some(Vec::new())));
        assert_eq!(notes.keys("p/").len(), COUNT_MAX);
        assert_eq!(notes.get("p/000000"), None);
    }
}
