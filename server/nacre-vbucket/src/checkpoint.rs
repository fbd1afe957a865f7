//! The part of a vBucket's history that is in memory: ordered, read by cursors, and deduplicated while it is read.
//!
//! A cursor is a seqno; a binary search finds its position among the entries. An active copy has an entry for each
//! seqno. A replica lacks the versions that it was not sent, and its history may extend beyond its last entry.
//! Overwriting a key leaves its older versions in place; [`Checkpoint::read`] returns only the newest version within
//! the range that it returns. This range is therefore a snapshot: a state that the vBucket really had.
//!
//! Worked example: `a@1 b@2 a@3` with a limit of 10 reads as `b@2 a@3`, snapshot 1..=3; with a limit of 2 it reads as
//! `a@1 b@2`, snapshot 1..=2, and next as `a@3`. A reader of history that needs every version of some collections uses
//! [`Checkpoint::read_keeping`].

use nacre_types::{CollectionId, Document, Seqno};
use std::collections::{HashSet, VecDeque};

/// Identifies a registered cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CursorId(u64);

/// A snapshot read from memory.
#[derive(Clone, Debug, Default)]
pub struct Drained {
    /// The newest version of each key that changed in the snapshot, ascending by seqno; for the collections of
    /// [`Checkpoint::read_keeping`], all versions.
    pub documents: Vec<Document>,
    /// First seqno of the snapshot.
    pub snapshot_start: Seqno,
    /// Last seqno of the snapshot: the reader's position after it.
    pub snapshot_end: Seqno,
}

/// History in memory, in order.
#[derive(Debug, Default)]
pub struct Checkpoint {
    /// Versions with seqnos above `trimmed_to`, ascending.
    entries: VecDeque<Document>,
    trimmed_to: Seqno,
    high_seqno: Seqno,
    bytes: usize,
    cursors: Vec<(CursorId, Seqno)>,
    cursors_made: u64,
}

impl Checkpoint {
    /// Creates an empty checkpoint for a history that ends at `high_seqno`.
    pub fn starting_at(high_seqno: Seqno) -> Checkpoint {
        Checkpoint { trimmed_to: high_seqno, high_seqno, ..Checkpoint::default() }
    }

    /// Adds the next version.
    pub(crate) fn push(&mut self, document: Document) {
        debug_assert!(document.meta.seqno > self.high_seqno);
        self.high_seqno = document.meta.seqno;
        self.bytes += document.memory_bytes();
        self.entries.push_back(document);
    }

    /// Advances history to `seqno` without a visible version.
    pub(crate) fn advance_to(&mut self, seqno: Seqno) {
        self.high_seqno = self.high_seqno.max(seqno);
    }

    /// Drops all history, so that the next seqno is 1. Cursors move to the beginning.
    pub(crate) fn clear(&mut self) {
        let cursors = self.cursors.iter().map(|(id, _)| (*id, Seqno::ZERO)).collect();
        *self = Checkpoint { cursors, cursors_made: self.cursors_made, ..Checkpoint::default() };
    }

    /// Returns the last seqno of the history.
    pub fn high_seqno(&self) -> Seqno {
        self.high_seqno
    }

    /// Returns the number of entries with seqnos up to `after`: the index at which a reader at `after` continues.
    fn place(&self, after: Seqno) -> usize {
        let last = self.entries.back().map_or(after, |entry| entry.meta.seqno);
        // There are at most as many later entries as later seqnos, and usually exactly as many.
        let least = self.entries.len().saturating_sub(last.0.saturating_sub(after.0) as usize);
        match self.entries.get(least) {
            Some(entry) if entry.meta.seqno <= after => {
                self.entries.partition_point(|entry| entry.meta.seqno <= after)
            }
            _ => least,
        }
    }

    /// Returns the memory of the entries, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the versions after `after`, at most `limit` entries; `None` if that part is no longer in memory.
    ///
    /// If there is nothing to read, the snapshot is empty and ends at `after`.
    pub fn read(&self, after: Seqno, limit: usize) -> Option<Drained> {
        self.read_keeping(after, limit, &[])
    }

    /// Like [`Checkpoint::read`], but returns every version in `collections` (ascending).
    pub fn read_keeping(
        &self,
        after: Seqno,
        limit: usize,
        collections: &[CollectionId],
    ) -> Option<Drained> {
        if after < self.trimmed_to || after > self.high_seqno {
            return None;
        }
        let start = self.place(after);
        let end = self.entries.len().min(start.saturating_add(limit));
        // Most readers are up to date, and a single entry needs no deduplication.
        let count = end - start;
        let room = if count > 1 { count } else { 0 };
        let mut seen =
            HashSet::with_capacity_and_hasher(room, foldhash::fast::FixedState::default());
        let keeps = |entry: &Document| {
            !collections.is_empty() && collections.binary_search(&entry.collection()).is_ok()
        };
        let mut documents: Vec<Document> = self
            .entries
            .range(start..end)
            .rev()
            .filter(|entry| count == 1 || keeps(entry) || seen.insert(entry.key()))
            .cloned()
            .collect();
        documents.reverse();
        Some(Drained {
            documents,
            snapshot_start: after.next(),
            snapshot_end: match self.entries.get(end) {
                // More entries follow: the snapshot ends with the last entry that is returned.
                Some(_) if end == start => after,
                Some(_) => self.entries[end - 1].meta.seqno,
                None => self.high_seqno,
            },
        })
    }

    /// Returns how many of the `count` entries after `after` make up about `bytes`; at least 1.
    pub fn count_within(&self, after: Seqno, count: usize, bytes: usize) -> usize {
        let mut taken = 0;
        let entries = self.entries.range(self.place(after)..);
        let within = entries.take(count).take_while(|entry| {
            let fits = taken < bytes;
            taken += entry.memory_bytes();
            fits
        });
        within.count().max(1)
    }

    /// Registers a reader that has read up to `after`. Later history stays in memory for it as long as the limit
    /// allows.
    pub fn register(&mut self, after: Seqno) -> CursorId {
        self.cursors_made += 1;
        let id = CursorId(self.cursors_made);
        self.cursors.push((id, after));
        id
    }

    /// Moves a cursor forward.
    pub fn advance(&mut self, id: CursorId, to: Seqno) {
        if let Some((_, position)) = self.cursors.iter_mut().find(|(known, _)| *known == id) {
            *position = to.max(*position);
        }
    }

    /// Removes a cursor.
    pub fn unregister(&mut self, id: CursorId) {
        self.cursors.retain(|(known, _)| *known != id);
    }

    /// Drops history that every cursor has read and that is in the store (`persisted`).
    ///
    /// Above `bytes_max`, slow cursors no longer retain history: they continue from the store.
    pub fn trim(&mut self, persisted: Seqno, bytes_max: usize) {
        let slowest = self.cursors.iter().map(|(_, position)| *position).min().unwrap_or(persisted);
        self.drop_to(slowest.min(persisted), usize::MAX);
        if self.bytes > bytes_max {
            self.drop_to(persisted, self.bytes - bytes_max);
        }
    }

    /// Drops entries up to `seqno`, or until `bytes` are freed.
    fn drop_to(&mut self, seqno: Seqno, bytes: usize) {
        let mut freed = 0;
        while freed < bytes && self.trimmed_to < seqno {
            match self.entries.pop_front_if(|entry| entry.meta.seqno <= seqno) {
                Some(entry) => {
                    freed += entry.memory_bytes();
                    self.trimmed_to = entry.meta.seqno;
                }
                None => self.trimmed_to = seqno,
            }
        }
        self.bytes -= freed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::Meta;

    fn checkpoint(keys: &[&str]) -> Checkpoint {
        let mut checkpoint = Checkpoint::default();
        for (index, key) in keys.iter().enumerate() {
            let meta = Meta { seqno: Seqno(index as u64 + 1), ..Meta::default() };
            checkpoint.push(Document::new(meta, format!("\0{key}").as_bytes(), b"v"));
        }
        checkpoint
    }

    fn shown(drained: Option<Drained>) -> String {
        let Some(drained) = drained else { return "gone".into() };
        let names: Vec<String> = drained
            .documents
            .iter()
            .map(|d| format!("{}@{}", String::from_utf8_lossy(d.name()), d.meta.seqno))
            .collect();
        format!("{}..={} {}", drained.snapshot_start, drained.snapshot_end, names.join(" "))
    }

    #[test]
    fn a_reader_finds_its_place_between_numbers_that_are_missing() {
        let mut checkpoint = Checkpoint::default();
        for seqno in [3, 4, 7, 8, 20] {
            let meta = Meta { seqno: Seqno(seqno), ..Meta::default() };
            checkpoint.push(Document::new(meta, b"\0k", b"v"));
        }
        let places = (0..23).map(|after| checkpoint.place(Seqno(after))).collect::<Vec<_>>();
        let expected = [[0; 3].as_slice(), &[1], &[2; 3], &[3], &[4; 12], &[5; 3]].concat();
        assert_eq!(places, expected);
        assert_eq!(Checkpoint::default().place(Seqno(7)), 0);
    }

    #[test]
    fn a_snapshot_has_each_key_once_in_its_newest_version() {
        let checkpoint = checkpoint(&["a", "b", "a"]);
        assert_eq!(shown(checkpoint.read(Seqno(0), 10)), "1..=3 b@2 a@3");
        assert_eq!(shown(checkpoint.read(Seqno(0), 2)), "1..=2 a@1 b@2");
        assert_eq!(shown(checkpoint.read(Seqno(2), 2)), "3..=3 a@3");
        assert_eq!(shown(checkpoint.read(Seqno(3), 2)), "4..=3 ");
    }

    #[test]
    fn every_version_of_chosen_collections_is_available_to_consumers_of_history() {
        let mut checkpoint = checkpoint(&["a", "a"]);
        for (seqno, key) in [(3, b"\x08a"), (4, b"\x09a"), (5, b"\x08a"), (6, b"\x09a")] {
            let meta = Meta { seqno: Seqno(seqno), ..Meta::default() };
            checkpoint.push(Document::new(meta, key, b"v"));
        }
        let kept = [CollectionId(0), CollectionId(8)];
        let drained = checkpoint.read_keeping(Seqno(0), 9, &kept);
        assert_eq!(shown(drained), "1..=6 a@1 a@2 a@3 a@5 a@6");
    }

    #[test]
    fn history_stays_until_the_store_and_every_cursor_have_it() {
        let mut checkpoint = checkpoint(&["a", "b", "c", "d"]);
        let slow = checkpoint.register(Seqno(1));
        checkpoint.trim(Seqno(3), usize::MAX);
        assert_eq!(shown(checkpoint.read(Seqno(1), 9)), "2..=4 b@2 c@3 d@4");
        assert_eq!(shown(checkpoint.read(Seqno(0), 9)), "gone");
        checkpoint.advance(slow, Seqno(4));
        checkpoint.trim(Seqno(3), usize::MAX);
        assert_eq!(shown(checkpoint.read(Seqno(2), 9)), "gone");
        assert_eq!(shown(checkpoint.read(Seqno(3), 9)), "4..=4 d@4");
    }

    #[test]
    fn a_slow_cursor_is_dropped_to_the_store_when_memory_is_short() {
        let mut checkpoint = checkpoint(&["a", "b", "c", "d"]);
        checkpoint.register(Seqno(0));
        checkpoint.trim(Seqno(3), 1);
        assert_eq!(shown(checkpoint.read(Seqno(0), 9)), "gone");
        assert_eq!(
            shown(checkpoint.read(Seqno(3), 9)),
            "4..=4 d@4",
            "what is not stored is never dropped"
        );
        assert_eq!(checkpoint.memory_bytes(), checkpoint.entries[0].memory_bytes());
    }

    #[test]
    fn a_reader_that_takes_little_at_a_time_gets_at_least_one_seqno() {
        let checkpoint = checkpoint(&["a", "b", "c", "d"]);
        let each = checkpoint.memory_bytes() / 4;
        assert_eq!(checkpoint.count_within(Seqno(0), 9, 2 * each), 2);
        assert_eq!(checkpoint.count_within(Seqno(1), 9, 2 * each - 1), 2, "give or take one");
        assert_eq!(checkpoint.count_within(Seqno(0), 3, usize::MAX), 3);
        assert_eq!(checkpoint.count_within(Seqno(0), 9, 0), 1);
        assert_eq!(checkpoint.count_within(Seqno(9), 9, each), 1, "nothing is there");
    }

    #[test]
    fn a_cursor_ahead_of_history_finds_nothing() {
        assert_eq!(shown(checkpoint(&["a"]).read(Seqno(2), 9)), "gone");
    }
}
