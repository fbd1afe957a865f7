//! The plugin's own ordered key space, provided by both the sandbox and plain tests.

use std::collections::BTreeMap;
use std::ops::Bound;

/// A key and its value.
pub type Entry = (Vec<u8>, Vec<u8>);

/// Read access to the key space. Keys are compared as bytes.
pub trait State {
    /// Returns the value at `key`.
    fn get(&self, key: &[u8]) -> Option<Vec<u8>>;

    /// Returns at most `limit` entries with `start <= key < end` (an empty `end` is no bound), ascending or,
    /// with `reverse`, descending from the end of the range.
    ///
    /// May return fewer when entries are large; an empty list means that the range is exhausted.
    fn scan(&self, start: &[u8], end: &[u8], limit: u32, reverse: bool) -> Vec<Entry>;
}

/// Write access to the key space. Others see the changes only after the host's call succeeds.
pub trait StateMut: State {
    /// Stores `value` at `key`.
    fn put(&mut self, key: &[u8], value: &[u8]);

    /// Removes the entry at `key`.
    fn delete(&mut self, key: &[u8]);

    /// Sends changes that are buffered in the plugin to the host. This also happens at the end of each call.
    fn flush(&mut self) {}

    /// Returns the same key space, for reading only.
    fn reading(&self) -> &dyn State;
}

/// A key space in memory, which lets a plugin run as plain Rust in tests and benchmarks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryState {
    entries: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl MemoryState {
    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns all entries in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.entries.iter().map(|(key, value)| (&key[..], &value[..]))
    }
}

impl State for MemoryState {
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.entries.get(key).cloned()
    }

    fn scan(&self, start: &[u8], end: &[u8], limit: u32, reverse: bool) -> Vec<Entry> {
        if !end.is_empty() && end <= start {
            return Vec::new();
        }
        let upper = if end.is_empty() { Bound::Unbounded } else { Bound::Excluded(end) };
        let range = self.entries.range::<[u8], _>((Bound::Included(start), upper));
        let owned = |(key, value): (&Vec<u8>, &Vec<u8>)| (key.clone(), value.clone());
        if reverse {
            range.rev().take(limit as usize).map(owned).collect()
        } else {
            range.take(limit as usize).map(owned).collect()
        }
    }
}

impl StateMut for MemoryState {
    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.entries.insert(key.to_vec(), value.to_vec());
    }

    fn delete(&mut self, key: &[u8]) {
        self.entries.remove(key);
    }

    fn reading(&self) -> &dyn State {
        self
    }
}

/// Returns the smallest byte string above all that start with `prefix`; empty (no bound) if there is none.
pub fn successor(prefix: &[u8]) -> Vec<u8> {
    let mut bytes = prefix.to_vec();
    while let Some(last) = bytes.pop() {
        if last < 0xff {
            bytes.push(last + 1);
            return bytes;
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scans_respect_both_bounds_limit_and_direction() {
        let mut state = MemoryState::default();
        for key in ["a", "b", "c", "d"] {
            state.put(key.as_bytes(), key.to_uppercase().as_bytes());
        }
        let keys = |start: &str, end: &str, limit, reverse| -> String {
            let entries = state.scan(start.as_bytes(), end.as_bytes(), limit, reverse);
            entries.iter().map(|(key, _)| String::from_utf8(key.clone()).unwrap()).collect()
        };
        assert_eq!(keys("b", "d", 9, false), "bc");
        assert_eq!(keys("b", "", 9, false), "bcd");
        assert_eq!(keys("", "", 2, true), "dc");
        assert_eq!(keys("c", "b", 9, false), "", "bounds the wrong way round are an empty range");
    }

    #[test]
    fn the_successor_of_a_prefix_bounds_it() {
        assert_eq!(successor(b"ab"), b"ac");
        assert_eq!(successor(b"a\xff"), b"b");
        assert_eq!(successor(b"\xff\xff"), b"");
    }
}
