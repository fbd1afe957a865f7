//! The ordered key space of a partition in memory: persistent, so that a snapshot costs nothing.

use imbl::OrdMap;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

type Bytes = Arc<[u8]>;

/// Entries in key order. Clones are snapshots: they share structure and never see later changes.
#[derive(Clone, Default)]
pub struct KeySpace {
    entries: OrdMap<Bytes, Bytes>,
    bytes: usize,
}

impl KeySpace {
    pub fn from_entries(entries: Vec<(Vec<u8>, Vec<u8>)>) -> KeySpace {
        let mut space = KeySpace::default();
        for (key, value) in entries {
            space.put(key.into(), value.into());
        }
        space
    }

    /// Bytes of all keys and values.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn put(&mut self, key: Bytes, value: Bytes) {
        let key_bytes = key.len();
        self.bytes += value.len();
        match self.entries.insert(key, value) {
            Some(old) => self.bytes -= old.len(),
            None => self.bytes += key_bytes,
        }
    }

    fn delete(&mut self, key: &[u8]) {
        if let Some(old) = self.entries.remove(key) {
            self.bytes -= key.len() + old.len();
        }
    }
}

/// Writes of a call or of several: the new value of each key, or none where it was removed.
pub type Writes = BTreeMap<Bytes, Option<Bytes>>;

/// What an instance sees of a key space during one call.
#[derive(Default)]
pub struct View {
    pub space: KeySpace,
    /// None for a reader.
    pub writes: Option<Writes>,
    pub bytes_max: usize,
}

/// Why the host ended a call that a capability was used in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("a reader cannot write")]
    ReadOnly,
    #[error("the state is full")]
    StateFull,
    #[error("a state key must have 1 to {KEY_BYTES_MAX} bytes")]
    Key,
}

/// The largest key of a plugin's state.
pub const KEY_BYTES_MAX: usize = 64 << 10;
/// One scan gives about this much at most; the plugin scans on from the last key.
const SCAN_BYTES_MAX: usize = 4 << 20;

impl View {
    /// A snapshot to read.
    pub fn reading(space: KeySpace) -> View {
        View { space, writes: None, bytes_max: 0 }
    }

    /// A key space to change, up to `bytes_max` bytes in all.
    pub fn writing(space: KeySpace, bytes_max: usize) -> View {
        View { space, writes: Some(Writes::new()), bytes_max }
    }

    pub fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.space.entries.get(key).map(|value| value.to_vec())
    }

    pub fn put(&mut self, key: Vec<u8>, value: Vec<u8>) -> Result<(), Refused> {
        let writes = self.writes.as_mut().ok_or(Refused::ReadOnly)?;
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(Refused::Key);
        }
        let (key, value) = (Bytes::from(key), Bytes::from(value));
        self.space.put(Arc::clone(&key), Arc::clone(&value));
        writes.insert(key, Some(value));
        if self.space.bytes > self.bytes_max { Err(Refused::StateFull) } else { Ok(()) }
    }

    pub fn delete(&mut self, key: Vec<u8>) -> Result<(), Refused> {
        let writes = self.writes.as_mut().ok_or(Refused::ReadOnly)?;
        self.space.delete(&key);
        writes.insert(key.into(), None);
        Ok(())
    }

    pub fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        limit: u32,
        reverse: bool,
    ) -> Vec<(Vec<u8>, Vec<u8>)> {
        if !end.is_empty() && end <= start {
            return Vec::new();
        }
        let upper = if end.is_empty() { Bound::Unbounded } else { Bound::Excluded(end) };
        let range = self.space.entries.range::<_, [u8]>((Bound::Included(start), upper));
        match reverse {
            true => bounded(range.rev(), limit),
            false => bounded(range, limit),
        }
    }
}

fn bounded<'a>(
    entries: impl Iterator<Item = (&'a Bytes, &'a Bytes)>,
    limit: u32,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut bytes = 0;
    let mut out = Vec::new();
    for (key, value) in entries.take(limit as usize) {
        out.push((key.to_vec(), value.to_vec()));
        bytes += key.len() + value.len();
        if bytes >= SCAN_BYTES_MAX {
            break;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_do_not_see_later_writes() {
        let mut view = View::writing(KeySpace::default(), 100);
        view.put(b"a".to_vec(), b"1".to_vec()).unwrap();
        let snapshot = View::reading(view.space.clone());
        view.put(b"a".to_vec(), b"22".to_vec()).unwrap();
        view.put(b"b".to_vec(), b"3".to_vec()).unwrap();
        view.delete(b"b".to_vec()).unwrap();
        assert_eq!(
            (snapshot.get(b"a"), view.get(b"a")),
            (Some(b"1".to_vec()), Some(b"22".to_vec()))
        );
        assert_eq!((snapshot.space.bytes(), view.space.bytes()), (2, 3));
        assert_eq!(view.writes.unwrap().len(), 2, "both keys were touched");
    }

    #[test]
    fn what_is_not_granted_is_refused() {
        let mut reader = View::reading(KeySpace::default());
        assert_eq!(reader.put(b"a".to_vec(), Vec::new()), Err(Refused::ReadOnly));
        assert_eq!(reader.delete(b"a".to_vec()), Err(Refused::ReadOnly));
        let mut writer = View::writing(KeySpace::default(), 3);
        assert_eq!(writer.put(Vec::new(), b"1".to_vec()), Err(Refused::Key));
        assert_eq!(writer.put(b"ab".to_vec(), b"12".to_vec()), Err(Refused::StateFull));
    }
}
