//! The ordered key space of a state, in one of two forms. Snapshots are free.
//!
//! A *resident* space is a tree in memory. A *segmented* space is a tree of the entries and removed keys since the last
//! flush, on top of [`Segments`] on disk. Only reads of a segmented space can fail.

use crate::segments::{Damage, Entries, Segments, Slot};
use crate::tree::{Bytes, KEY_BYTES_MAX, Range, Tree, Value};
use std::ops::Bound;
use std::sync::Arc;

/// Entries sorted by their keys, which have 1 byte to 64 KiB. Clones are snapshots: they cost nothing and share memory.
#[derive(Clone, Default)]
pub struct KeySpace {
    /// All entries of a resident space, or the entries of a segmented space written since the last flush.
    entries: Tree,
    /// Bytes of these entries and of the removed keys.
    bytes: usize,
    base: Option<Base>,
}

/// The part of a segmented space that is on disk.
#[derive(Clone)]
struct Base {
    segments: Arc<Segments>,
    /// Keys removed since the last flush; none of them is also an entry in memory.
    removed: Tree,
}

/// A found value.
pub enum Found<'a> {
    /// In memory.
    Memory(Value<'a>),
    /// In a segment.
    Stored(Slot),
}

impl Found<'_> {
    /// Returns the value.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Found::Memory(value) => value.bytes(),
            Found::Stored(slot) => slot.value().expect("the removed key is not found"),
        }
    }

    /// Returns an owned value: small or stored values are copied.
    pub fn share(&self) -> Bytes {
        match self {
            Found::Memory(value) => value.share(),
            Found::Stored(_) => self.bytes().into(),
        }
    }
}

/// An entry found by a scan.
pub enum Row<'a> {
    /// In memory: key and value.
    Memory(&'a [u8], &'a [u8]),
    /// In a segment.
    Stored(Slot),
}

impl Row<'_> {
    /// Returns the key.
    pub fn key(&self) -> &[u8] {
        match self {
            Row::Memory(key, _) => key,
            Row::Stored(slot) => slot.key(),
        }
    }

    /// Returns the value.
    pub fn value(&self) -> &[u8] {
        match self {
            Row::Memory(_, value) => value,
            Row::Stored(slot) => slot.value().expect("the removed key is not a row"),
        }
    }
}

impl KeySpace {
    /// Creates a resident space of these entries.
    ///
    /// # Errors
    /// Fails when a key is empty or too long.
    pub fn load<'a>(
        entries: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<KeySpace, String> {
        let mut space = KeySpace::default();
        for (key, value) in entries {
            if !is_key(key) {
                return Err(format!("an entry of the state has a key of {} bytes", key.len()));
            }
            space.put(key, Value::Here(value));
        }
        Ok(space)
    }

    /// Creates a segmented space with nothing in memory.
    pub fn over(segments: Arc<Segments>) -> KeySpace {
        let base = Some(Base { segments, removed: Tree::default() });
        KeySpace { base, ..KeySpace::default() }
    }

    /// Returns the segments of a segmented space.
    pub fn segments(&self) -> Option<&Arc<Segments>> {
        self.base.as_ref().map(|base| &base.segments)
    }

    /// Returns the space on other segments with the same content, some of them merged.
    #[must_use]
    pub(crate) fn rebased(&self, segments: Arc<Segments>) -> KeySpace {
        let removed = self.base.as_ref().map(|base| base.removed.clone()).unwrap_or_default();
        KeySpace { base: Some(Base { segments, removed }), ..self.clone() }
    }

    /// Returns true if all entries are in memory.
    pub fn is_resident(&self) -> bool {
        self.base.is_none()
    }

    /// Iterates over the entries in memory with a key in `range`, which are all entries of a resident space.
    pub fn in_memory(&self, range: (Bound<&[u8]>, Bound<&[u8]>)) -> Range<'_> {
        self.entries.range(range)
    }

    /// Iterates over all entries in memory, in order.
    pub fn iter(&self) -> Range<'_> {
        self.in_memory((Bound::Unbounded, Bound::Unbounded))
    }

    /// Iterates over the keys in memory, in order.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.iter().map(|(key, _)| key)
    }

    /// Returns the value of a key if it is in memory.
    pub fn get_in_memory(&self, key: &[u8]) -> Option<Value<'_>> {
        self.entries.get(key)
    }

    /// Iterates over entries and removed keys (`None`) in memory, in order: the input of a flush.
    pub(crate) fn delta(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        let removed = self.base.as_ref().map(|base| &base.removed);
        let all = (Bound::Unbounded, Bound::Unbounded);
        let mut removed =
            removed.map(|removed| removed.range(all)).into_iter().flatten().peekable();
        let mut entries = self.iter().peekable();
        std::iter::from_fn(move || match (entries.peek(), removed.peek()) {
            (Some((key, _)), Some((gone, _))) if gone < key => {
                removed.next().map(|(key, _)| (key, None))
            }
            (None, _) => removed.next().map(|(key, _)| (key, None)),
            _ => entries.next().map(|(key, value)| (key, Some(value))),
        })
    }

    /// Returns the bytes of all keys and values. In a segmented space they include superseded ones that no merge has
    /// removed yet.
    pub fn bytes(&self) -> usize {
        self.bytes + self.base.as_ref().map_or(0, |base| base.segments.content_bytes() as usize)
    }

    /// Returns the bytes of keys and values in memory, plus the memory of segments outside the cache.
    pub fn memory_bytes(&self) -> usize {
        self.bytes + self.base.as_ref().map_or(0, |base| base.segments.memory_bytes())
    }

    /// Returns the bytes of keys and values written since the last flush.
    pub(crate) fn delta_bytes(&self) -> usize {
        self.bytes
    }

    /// Returns true if there are no entries and nothing was ever flushed.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.base.as_ref().is_none_or(|base| base.segments.is_empty())
    }

    /// Returns the value of a key.
    ///
    /// # Errors
    /// [`Damage`] of a segment that cannot be read.
    pub fn get(&self, key: &[u8]) -> Result<Option<Found<'_>>, Damage> {
        if let Some(value) = self.entries.get(key) {
            return Ok(Some(Found::Memory(value)));
        }
        match &self.base {
            Some(base) if base.removed.get(key).is_none() => {
                Ok(base.segments.get(key)?.map(Found::Stored))
            }
            _ => Ok(None),
        }
    }

    /// Iterates over the entries with a key in `range`, in order or in reverse. Reversed bounds yield no entries.
    ///
    /// # Errors
    /// [`Damage`] of a segment that cannot be read. It may also occur in place of an entry, and then ends the scan.
    pub fn scan(
        &self,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        reverse: bool,
    ) -> Result<Rows<'_>, Damage> {
        let stored = match &self.base {
            Some(base) if !base.segments.is_empty() => Some(Stored {
                removed: &base.removed,
                entries: base.segments.scan(range, reverse)?,
                next: None,
            }),
            _ => None,
        };
        Ok(Rows { memory: self.entries.range(range), next: None, reverse, stored })
    }

    /// Sets the value of a key. Returns true if the key is new among those in memory.
    pub fn put(&mut self, key: &[u8], value: Value<'_>) -> bool {
        if let Some(base) = &mut self.base
            && base.removed.delete(key).is_some()
        {
            self.bytes -= key.len();
        }
        self.bytes += value.bytes().len();
        let old_bytes = self.entries.put(key, value);
        match old_bytes {
            Some(old_bytes) => self.bytes -= old_bytes,
            None => self.bytes += key.len(),
        }
        old_bytes.is_none()
    }

    /// Adds a key without a value. Returns true if it is new.
    pub fn add(&mut self, key: &[u8]) -> bool {
        self.put(key, Value::Here(&[]))
    }

    /// Removes a key. Returns true if it may have existed; a segmented space does not look that up.
    pub fn delete(&mut self, key: &[u8]) -> bool {
        let old_bytes = self.entries.delete(key);
        self.bytes -= old_bytes.map_or(0, |old_bytes| key.len() + old_bytes);
        let Some(base) = &mut self.base else { return old_bytes.is_some() };
        if base.removed.put(key, Value::Here(&[])).is_none() {
            self.bytes += key.len();
        }
        true
    }
}

/// Returns true if the key has a valid length.
pub fn is_key(key: &[u8]) -> bool {
    (1..=KEY_BYTES_MAX).contains(&key.len())
}

/// The entries of a scan.
pub struct Rows<'a> {
    memory: Range<'a>,
    /// The next entry in memory, if already read.
    next: Option<(&'a [u8], &'a [u8])>,
    reverse: bool,
    stored: Option<Stored<'a>>,
}

struct Stored<'a> {
    removed: &'a Tree,
    entries: Entries,
    /// The next stored entry that is not removed, if already read.
    next: Option<Slot>,
}

impl<'a> Rows<'a> {
    fn next_in_memory(&mut self) -> Option<(&'a [u8], &'a [u8])> {
        if self.reverse { self.memory.next_back() } else { self.memory.next() }
    }
}

impl<'a> Iterator for Rows<'a> {
    type Item = Result<Row<'a>, Damage>;

    fn next(&mut self) -> Option<Result<Row<'a>, Damage>> {
        let memory = self.next.take().or_else(|| self.next_in_memory());
        let Some(stored) = &mut self.stored else {
            return memory.map(|(key, value)| Ok(Row::Memory(key, value)));
        };
        let slot = loop {
            let slot = match stored.next.take() {
                Some(slot) => Ok(slot),
                None => match stored.entries.next() {
                    Some(slot) => slot,
                    None => break None,
                },
            };
            match slot {
                Ok(slot) if stored.removed.get(slot.key()).is_some() => {}
                // The entry in memory is newer.
                Ok(slot) if memory.is_some_and(|(key, _)| key == slot.key()) => {}
                Ok(slot) => break Some(slot),
                Err(damage) => {
                    self.stored = None;
                    self.memory = Tree::nothing();
                    return Some(Err(damage));
                }
            }
        };
        match (memory, slot) {
            (Some((key, value)), Some(slot)) => {
                let memory_first = if self.reverse { key > slot.key() } else { key < slot.key() };
                if memory_first {
                    stored.next = Some(slot);
                    return Some(Ok(Row::Memory(key, value)));
                }
                self.next = Some((key, value));
                Some(Ok(Row::Stored(slot)))
            }
            (Some((key, value)), None) => Some(Ok(Row::Memory(key, value))),
            (None, slot) => slot.map(|slot| Ok(Row::Stored(slot))),
        }
    }
}
