//! What instances of the query service tell each other: prepared statements, requests that run, and the like. In memory, and
//! bounded: the oldest notes make room for new ones.

use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Bytes of keys and values.
const BYTES_MAX: usize = 32 << 20;

#[derive(Default)]
pub struct Notes(Mutex<Content>);

#[derive(Default)]
struct Content {
    /// Each with when it was made.
    notes: BTreeMap<String, (u64, Vec<u8>)>,
    made: u64,
    bytes: usize,
}

impl Notes {
    pub fn get(&self, key: &str) -> Option<Vec<u8>> {
        self.0.lock().notes.get(key).map(|(_, value)| value.clone())
    }

    /// Makes a note, or removes it when there is nothing to note.
    pub fn set(&self, key: &str, value: Option<Vec<u8>>) {
        let mut content = self.0.lock();
        content.remove(key);
        let Some(value) = value.filter(|value| key.len() + value.len() <= BYTES_MAX) else {
            return;
        };
        content.made += 1;
        content.bytes += key.len() + value.len();
        let made = content.made;
        content.notes.insert(key.to_owned(), (made, value));
        while content.bytes > BYTES_MAX {
            let oldest = content.notes.iter().min_by_key(|(_, (made, _))| *made);
            let Some(key) = oldest.map(|(key, _)| key.clone()) else { break };
            content.remove(&key);
        }
    }

    /// The keys that begin with `prefix`, in order.
    pub fn keys(&self, prefix: &str) -> Vec<String> {
        let content = self.0.lock();
        let from = content.notes.range(prefix.to_owned()..);
        from.map(|(key, _)| key).take_while(|key| key.starts_with(prefix)).cloned().collect()
    }
}

impl Content {
    fn remove(&mut self, key: &str) {
        if let Some((_, value)) = self.notes.remove(key) {
            self.bytes -= key.len() + value.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_notes_make_room() {
        let notes = Notes::default();
        let value = || Some(vec![0; BYTES_MAX / 4]);
        for key in ["p/a", "p/b", "p/c", "q"] {
            notes.set(key, value());
        }
        assert_eq!(notes.keys("p/"), ["p/b", "p/c"], "keys have bytes too");
        notes.set("p/b", None);
        assert_eq!((notes.get("p/b"), notes.keys("")), (None, vec!["p/c".into(), "q".into()]));
        notes.set("huge", Some(vec![0; BYTES_MAX]));
        assert_eq!(notes.keys(""), ["p/c", "q"], "what never fits pushes nothing out");
    }
}
