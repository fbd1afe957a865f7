//! State on disk: sorted, immutable segments, newest first.
//!
//! ```text
//!  in memory     entries written and keys removed since the last flush   (the KeySpace on top of these segments)
//!  on disk       ■ ■ ■   ■■■■   ■■■■■■■■■■■■■■■■    each about four times as large as the previous one
//!                newest            oldest           entries of newer segments take precedence
//! ```
//!
//! A log-structured merge tree (O'Neil et al., 1996) with tiered levels: four neighbours of similar size are merged
//! into one. Merges run on another thread ([`Merge`]), bypass the cache, and take effect when the storage commits the
//! list with the new segment. A reader holds the list of its snapshot.
//!
//! Invariants: a segment is immutable once it is named; a removed key stays an entry until no older segment remains; an
//! unreadable part is reported as [`Damage`] with the name of the file, and never as the end of the entries.

mod block;
mod cache;
mod filter;
mod merge;
mod segment;
#[cfg(test)]
mod tests;

pub use cache::BlockCache;
pub use merge::{Merge, Merged};
pub use segment::{Damage, Record, Slot};
pub(crate) use segment::{Segment, SegmentWriter};

use nacre_store::SpaceFiles;
use segment::Cursor;
use std::fmt;
use std::ops::{Bound, Range};
use std::sync::Arc;

/// Number of neighbours of similar size that are merged.
const FAN_IN: usize = 4;

/// The segments of a state, as of one commit. Clones share them.
#[derive(Clone, Default)]
pub struct Segments {
    /// Newest first.
    all: Vec<Arc<Segment>>,
    content_bytes: u64,
}

impl fmt::Debug for Segments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.records()).finish()
    }
}

impl PartialEq for Segments {
    fn eq(&self, other: &Segments) -> bool {
        self.records().eq(other.records())
    }
}

impl Eq for Segments {}

impl Segments {
    /// Opens the segments that rows name.
    ///
    /// # Errors
    /// The first damaged segment.
    pub fn open(
        files: &SpaceFiles,
        mut records: Vec<Record>,
        cache: &BlockCache,
    ) -> Result<Segments, Damage> {
        records.sort_by_key(|record| std::cmp::Reverse(record.age));
        let open = |record| Segment::open(files, record, cache).map(Arc::new);
        Ok(Segments::of(records.into_iter().map(open).collect::<Result<_, _>>()?))
    }

    fn of(all: Vec<Arc<Segment>>) -> Segments {
        let content_bytes = all.iter().map(|segment| segment.content_bytes()).sum();
        Segments { all, content_bytes }
    }

    /// Returns these segments plus a newer one.
    pub(crate) fn with(&self, newest: Segment) -> Segments {
        let all = std::iter::once(Arc::new(newest)).chain(self.all.iter().cloned());
        Segments::of(all.collect())
    }

    /// Returns true if there are no segments.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns the number of segments.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Iterates over the records in the rows that name the segments.
    pub fn records(&self) -> impl Iterator<Item = Record> {
        self.all.iter().map(|segment| segment.record())
    }

    /// Returns the bytes of keys and values, including superseded ones.
    pub fn content_bytes(&self) -> u64 {
        self.content_bytes
    }

    /// Returns the memory size outside the cache.
    pub fn memory_bytes(&self) -> usize {
        self.all.iter().map(|segment| segment.memory_bytes()).sum()
    }

    /// Removes the files of all segments once no reader uses them.
    pub(crate) fn retire(&self) {
        self.all.iter().for_each(|segment| segment.retire());
    }

    /// Returns the entry of a key; `None` if the key does not exist.
    ///
    /// # Errors
    /// [`Damage`] of a segment that cannot be read.
    pub fn get(&self, key: &[u8]) -> Result<Option<Slot>, Damage> {
        for segment in &self.all {
            if let Some(slot) = segment.get(key)? {
                return Ok(slot.value().is_some().then_some(slot));
            }
        }
        Ok(None)
    }

    /// Iterates over the entries between two bounds in order, or in reverse if `reverse` is set.
    ///
    /// # Errors
    /// As for [`Segments::get`], for the call and for each entry.
    pub fn scan(
        &self,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        reverse: bool,
    ) -> Result<Entries, Damage> {
        let (start, end) = range;
        let mut cursors = Vec::with_capacity(self.all.len());
        for segment in &self.all {
            let cursor = match (reverse, start, end) {
                (false, Bound::Unbounded, _) => Cursor::at_or_after(segment, None, true)?,
                (false, Bound::Included(key), _) => Cursor::at_or_after(segment, Some(key), true)?,
                (false, Bound::Excluded(key), _) => {
                    let mut cursor = Cursor::at_or_after(segment, Some(key), true)?;
                    if cursor.key() == Some(key) {
                        cursor.advance()?;
                    }
                    cursor
                }
                (true, _, Bound::Unbounded) => Cursor::before(segment, None, true)?,
                (true, _, Bound::Excluded(key)) => Cursor::before(segment, Some(key), true)?,
                (true, _, Bound::Included(key)) => {
                    let mut cursor = Cursor::at_or_after(segment, Some(key), true)?;
                    if cursor.key() != Some(key) {
                        cursor = Cursor::before(segment, Some(key), true)?;
                    }
                    cursor
                }
            };
            cursors.push(cursor);
        }
        let own = |bound: Bound<&[u8]>| bound.map(<[u8]>::to_vec);
        let last = own(if reverse { start } else { end });
        Ok(Entries { cursors, reverse, last })
    }

    /// Returns the segments to merge next, if any, as a range counted from the newest.
    fn plan(&self) -> Option<Range<usize>> {
        // By the size of the entries, because the file of a merged segment may contain garbage.
        let tier = |segment: &Arc<Segment>| segment.content_bytes().max(1).ilog(FAN_IN as u64);
        // New segments and segments whose content was mostly superseded are in small tiers, so a run may contain smaller
        // segments.
        let mut run = 0;
        while run < self.all.len() {
            let of_run = tier(&self.all[run]);
            let end = self.all.iter().position(|segment| tier(segment) > of_run);
            let end = end.unwrap_or(self.all.len());
            if end >= FAN_IN {
                return Some(0..end);
            }
            run = end.max(run + 1);
        }
        None
    }

    /// Returns the next merge if one is due. It writes the file `number`.
    pub fn merge(&self, files: &SpaceFiles, number: u64) -> Option<Merge> {
        let range = self.plan()?;
        let is_oldest = range.end == self.all.len();
        Some(Merge::new(self.all[range].to_vec(), is_oldest, files.clone(), number))
    }

    /// Returns these segments with the result of a merge in place of its inputs; `None` if an input is missing.
    pub(crate) fn replaced(&self, inputs: &[Record], output: Option<Segment>) -> Option<Segments> {
        let first = self.all.iter().position(|segment| segment.record() == inputs[0])?;
        let there = self.all[first..].iter().map(|segment| segment.record());
        if !there.take(inputs.len()).eq(inputs.iter().copied()) {
            return None;
        }
        let mut all = self.all.clone();
        all.splice(first..first + inputs.len(), output.map(Arc::new));
        Some(Segments::of(all))
    }

    /// Returns the segments of `others` that are not among these.
    pub(crate) fn missing_of(&self, others: &Segments) -> Segments {
        let is_here = |other: &&Arc<Segment>| self.all.iter().any(|own| Arc::ptr_eq(own, other));
        Segments::of(others.all.iter().filter(|other| !is_here(other)).cloned().collect())
    }
}

/// The sorted entries of several segments. For each key, the newest entry is returned.
pub struct Entries {
    cursors: Vec<Cursor>,
    reverse: bool,
    /// The bound at which the iteration ends.
    last: Bound<Vec<u8>>,
}

impl Entries {
    /// Returns the next entry, including entries of removed keys.
    pub(crate) fn next_slot(&mut self) -> Result<Option<Slot>, Damage> {
        let mut first: Option<(usize, &[u8])> = None;
        for (at, cursor) in self.cursors.iter().enumerate() {
            let Some(key) = cursor.key() else { continue };
            let comes_first = first.is_none_or(|(_, known)| match self.reverse {
                false => key < known,
                true => key > known,
            });
            if comes_first {
                first = Some((at, key));
            }
        }
        let Some((at, key)) = first else { return Ok(None) };
        let is_over = match (&self.last, self.reverse) {
            (Bound::Unbounded, _) => false,
            (Bound::Included(last), false) => key > &last[..],
            (Bound::Excluded(last), false) => key >= &last[..],
            (Bound::Included(last), true) => key < &last[..],
            (Bound::Excluded(last), true) => key <= &last[..],
        };
        let Some(slot) = self.cursors[at].slot().filter(|_| !is_over) else { return Ok(None) };
        for cursor in &mut self.cursors[at..] {
            if cursor.key() == Some(slot.key()) {
                if self.reverse { cursor.back()? } else { cursor.advance()? }
            }
        }
        Ok(Some(slot))
    }
}

impl Iterator for Entries {
    type Item = Result<Slot, Damage>;

    fn next(&mut self) -> Option<Result<Slot, Damage>> {
        loop {
            match self.next_slot() {
                Ok(Some(slot)) if slot.value().is_none() => {}
                Ok(slot) => return slot.map(Ok),
                Err(damage) => {
                    // No entry may follow the unreadable part.
                    self.cursors.clear();
                    return Some(Err(damage));
                }
            }
        }
    }
}
