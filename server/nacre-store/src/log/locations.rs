//! The location of every version: the only part of its documents that the log store keeps in memory.
//!
//! A vBucket's versions are an array in ascending seqno order, which grows only at its end. A replaced version leaves a
//! hole; the array is packed when it has too many holes. A hash table maps key hashes to positions in the array. Neither
//! stores keys: a match of the 32-bit hash is verified by reading the key from the segment. A document takes about 40
//! bytes, however long its key is.
//!
//! A replaced version that is kept as history stays in the array with a mark and leaves the hash table; it takes about 27
//! bytes. Invariant: no such version is below the vBucket's `history_start`.

use super::segment::Segment;
use crate::{Error, HistorySize};
use hashbrown::HashTable;
use nacre_types::{Seqno, VbRecord, Vbid};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Maximum number of vBuckets of a bucket.
const VBUCKETS_MAX: usize = 1024;

/// A range of a segment; zero bytes mean no location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Location {
    pub segment: u32,
    pub offset: u32,
    pub bytes: u32,
}

/// A version in the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version {
    pub seqno: Seqno,
    pub location: Location,
    pub hash: u32,
}

/// The bit that marks a version as history: in its length in the table, and in its seqno in a batch.
const KEPT_BIT: u32 = 31;

/// An entry of the array: a version with its mark, or a hole. The saved table has the same form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot(pub Version);

const _: () = assert!(size_of::<Slot>() == 24);

impl Slot {
    fn is_hole(self) -> bool {
        self.0.location.bytes == 0
    }

    fn is_kept(self) -> bool {
        self.0.location.bytes >> KEPT_BIT == 1
    }

    fn is_current(self) -> bool {
        !self.is_hole() && !self.is_kept()
    }

    fn version(self) -> Version {
        let bytes = self.0.location.bytes & !(1 << KEPT_BIT);
        Version { location: Location { bytes, ..self.0.location }, ..self.0 }
    }
}

/// A version that is replaced or erased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Old {
    /// Zero for no version.
    pub seqno: Seqno,
    /// True if the version is kept as history.
    pub kept: bool,
}

impl Old {
    pub const NONE: Old = Old { seqno: Seqno::ZERO, kept: false };

    pub fn encode(self) -> [u8; 8] {
        (self.seqno.0 | u64::from(self.kept) << 63).to_be_bytes()
    }

    pub fn decode(number: u64) -> Old {
        Old { seqno: Seqno(number & !(1 << 63)), kept: number >> 63 == 1 }
    }
}

/// The versions and the record of one vBucket.
#[derive(Default)]
pub(super) struct Versions {
    pub record: Option<VbRecord>,
    /// Ascending by seqno, with holes.
    ordered: Vec<Slot>,
    holes: usize,
    /// Positions in `ordered` of the current versions.
    by_hash: HashTable<u32>,
    /// Size of the versions that are kept as history.
    history: HistorySize,
}

/// Spreads the hash over 64 bits, because the table takes its bits from both ends.
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Versions {
    /// Returns the number of current versions.
    pub fn count(&self) -> usize {
        self.ordered.len() - self.holes - self.history.versions as usize
    }

    /// Returns the size of the history.
    pub fn history(&self) -> HistorySize {
        self.history
    }

    fn slots_after(&self, seqno: Seqno) -> impl Iterator<Item = Slot> {
        let first = self.ordered.partition_point(|slot| slot.0.seqno <= seqno);
        self.ordered[first..].iter().copied()
    }

    /// Iterates over current versions, ascending by seqno.
    pub fn iter(&self) -> impl Iterator<Item = Version> {
        self.after(Seqno::ZERO)
    }

    /// Iterates over current versions after a seqno, ascending.
    pub fn after(&self, seqno: Seqno) -> impl Iterator<Item = Version> {
        self.slots_after(seqno).filter(|slot| slot.is_current()).map(Slot::version)
    }

    /// Iterates over all versions after a seqno, including history, ascending.
    pub fn all_after(&self, seqno: Seqno) -> impl Iterator<Item = Version> {
        self.slots_after(seqno).filter(|slot| !slot.is_hole()).map(Slot::version)
    }

    /// Iterates over all entries with their marks, ascending by seqno.
    pub fn slots(&self) -> impl Iterator<Item = Slot> {
        self.slots_after(Seqno::ZERO).filter(|slot| !slot.is_hole())
    }

    /// Iterates over the versions whose key has this hash: almost always none or one.
    pub fn candidates(&self, hash: u32) -> impl Iterator<Item = Version> {
        self.by_hash
            .iter_hash(spread(hash))
            .map(|position| self.ordered[*position as usize].0)
            .filter(move |version| version.hash == hash)
    }

    /// Returns the version at a seqno, current or history.
    pub fn at(&self, seqno: Seqno) -> Option<Version> {
        self.position(seqno).map(|position| self.ordered[position].version())
    }

    /// Returns the greatest seqno pushed, unless packing has removed it.
    pub fn last_seqno(&self) -> Seqno {
        self.ordered.last().map_or(Seqno::ZERO, |slot| slot.0.seqno)
    }

    /// Returns the seqno at which history must begin to be within `limit`.
    pub fn history_within(&self, limit: HistorySize) -> Seqno {
        let mut left = limit;
        let newest_first = self.ordered.iter().rev().filter(|slot| slot.is_kept());
        let mut versions = newest_first.map(|slot| slot.version());
        let beyond = versions.find(|version| !left.take(version.location.bytes.into()));
        beyond.map_or(Seqno::ZERO, |version| version.seqno.next())
    }

    fn position(&self, seqno: Seqno) -> Option<usize> {
        let position = self.ordered.binary_search_by_key(&seqno, |slot| slot.0.seqno).ok()?;
        (!self.ordered[position].is_hole()).then_some(position)
    }

    /// Adds a version at the end.
    fn push(&mut self, slot: Slot) {
        if self.ordered.len() == self.ordered.capacity() {
            // Grow by an eighth: doubling would leave half of the largest table of the process empty.
            self.ordered.reserve_exact(self.ordered.len() / 8 + 8);
        }
        let position = self.ordered.len() as u32;
        self.ordered.push(slot);
        if slot.is_kept() {
            self.count_kept(slot.version());
            return;
        }
        let ordered = &self.ordered;
        self.by_hash.insert_unique(spread(slot.0.hash), position, |position| {
            spread(ordered[*position as usize].0.hash)
        });
    }

    fn count_kept(&mut self, version: Version) {
        self.history.versions += 1;
        self.history.bytes += u64::from(version.location.bytes);
    }

    /// Supersedes a current version: it becomes a hole, or stays as history. Returns the version.
    fn supersede(&mut self, old: Old) -> Option<Version> {
        let position = self.position(old.seqno).filter(|at| self.ordered[*at].is_current())?;
        let version = self.ordered[position].0;
        if let Ok(entry) = self
            .by_hash
            .find_entry(spread(version.hash), |candidate| *candidate as usize == position)
        {
            entry.remove();
        }
        if old.kept {
            self.ordered[position].0.location.bytes |= 1 << KEPT_BIT;
            self.count_kept(version);
        } else {
            self.dig(position);
            self.pack_if_worth();
        }
        Some(version)
    }

    fn dig(&mut self, position: usize) {
        self.ordered[position].0.location.bytes = 0;
        self.holes += 1;
    }

    /// Drops the history before a seqno, given that there is none before `start`. Calls `each` with every dropped
    /// version.
    fn forget_history(&mut self, start: Seqno, before: Seqno, mut each: impl FnMut(Version)) {
        let position_of = |seqno| self.ordered.partition_point(|slot| slot.0.seqno < seqno);
        for position in position_of(start)..position_of(before) {
            if self.ordered[position].is_kept() {
                let version = self.ordered[position].version();
                self.dig(position);
                self.history.versions -= 1;
                self.history.bytes -= u64::from(version.location.bytes);
                each(version);
            }
        }
        self.pack_if_worth();
    }

    fn pack_if_worth(&mut self) {
        if self.holes > self.ordered.len() / 4 + 64 {
            self.pack();
        }
    }

    fn pack(&mut self) {
        self.ordered.retain(|slot| !slot.is_hole());
        self.holes = 0;
        self.by_hash.clear();
        for (position, slot) in
            self.ordered.iter().enumerate().filter(|(_, slot)| slot.is_current())
        {
            self.by_hash.insert_unique(spread(slot.0.hash), position as u32, |_| {
                unreachable!("the table held more than this before")
            });
        }
    }
}

/// The changes of a vBucket in one commit.
pub(super) struct Change {
    pub vbid: Vbid,
    pub record: VbRecord,
    /// New versions, ascending, each with the version that it replaces.
    pub versions: Vec<(Version, Old)>,
    /// Versions to erase.
    pub erased: Vec<Old>,
}

/// The segments of a store by number. The map is immutable, so a long reader can keep this handle, and its segments
/// stay readable.
pub(super) type Segments = Arc<BTreeMap<u32, Arc<Segment>>>;

/// The locations of all vBuckets.
pub(super) struct Locations {
    vbuckets: Vec<Versions>,
    pub segments: Segments,
    /// Number of the last batch applied.
    pub batch: u64,
}

impl Locations {
    pub fn new() -> Locations {
        Locations {
            vbuckets: (0..VBUCKETS_MAX).map(|_| Versions::default()).collect(),
            segments: Segments::default(),
            batch: 0,
        }
    }

    /// Returns a vBucket.
    ///
    /// # Errors
    /// Fails when the number is out of range.
    pub fn versions(&self, vbid: Vbid) -> Result<&Versions, Error> {
        self.vbuckets.get(vbid.index()).ok_or_else(|| no_such(vbid))
    }

    /// Iterates over the vBuckets that have a record.
    pub fn vbuckets(&self) -> impl Iterator<Item = (Vbid, &Versions)> {
        (0..).map(Vbid).zip(&self.vbuckets).filter(|(_, versions)| versions.record.is_some())
    }

    pub fn segment(&self, number: u32) -> Option<&Arc<Segment>> {
        self.segments.get(&number)
    }

    pub fn add_segment(&mut self, segment: Arc<Segment>) {
        Arc::make_mut(&mut self.segments).insert(segment.number, segment);
    }

    pub fn remove_segment(&mut self, number: u32) {
        Arc::make_mut(&mut self.segments).remove(&number);
    }

    /// Restores the saved table of a vBucket.
    ///
    /// # Errors
    /// A description of the contradiction.
    pub fn restore(
        &mut self,
        vbid: Vbid,
        record: VbRecord,
        saved: impl Iterator<Item = Slot>,
    ) -> Result<(), String> {
        let versions =
            self.vbuckets.get_mut(vbid.index()).ok_or_else(|| no_such(vbid).to_string())?;
        for slot in saved {
            if slot.0.seqno <= versions.last_seqno() || slot.is_hole() {
                return Err(format!("{vbid} has its versions out of order"));
            }
            add_live(&self.segments, slot.version().location)?;
            versions.push(slot);
        }
        versions.record = Some(record);
        Ok(())
    }

    /// Applies the changes of a commit.
    ///
    /// # Errors
    /// A description of the contradiction.
    pub fn apply(&mut self, change: Change) -> Result<(), String> {
        let Change { vbid, record, versions: new, erased } = change;
        let versions =
            self.vbuckets.get_mut(vbid.index()).ok_or_else(|| no_such(vbid).to_string())?;
        let segments = &self.segments;
        let supersede = |versions: &mut Versions, old: Old, what: &str| {
            let version = versions
                .supersede(old)
                .ok_or_else(|| format!("{vbid} {what} seqno {}, which is not there", old.seqno))?;
            if !old.kept {
                take_live(segments, version.location);
            }
            Ok::<(), String>(())
        };
        for old in erased {
            supersede(versions, old, "erases")?;
        }
        if versions.history.versions > 0 {
            let before = versions.record.as_ref().and_then(|record| record.history_start);
            let (start, end) = (before.unwrap_or_default(), record.history_start);
            let end = end.unwrap_or(Seqno(u64::MAX));
            versions.forget_history(start, end, |version| take_live(segments, version.location));
        }
        if versions.holes == versions.ordered.len() {
            // A history that begins again may count from zero.
            versions.pack();
        }
        for (version, replaced) in new {
            if replaced != Old::NONE {
                supersede(versions, replaced, "replaces")?;
            }
            if version.seqno <= versions.last_seqno() {
                return Err(format!("{vbid} goes back to seqno {}", version.seqno));
            }
            add_live(segments, version.location)?;
            versions.push(Slot(version));
        }
        versions.record = Some(record);
        Ok(())
    }

    /// Moves a version to another location if it is still at `from`.
    pub fn relocate(&mut self, vbid: Vbid, seqno: Seqno, from: Location, to: Location) {
        let Some(versions) = self.vbuckets.get_mut(vbid.index()) else { return };
        let Some(position) = versions.position(seqno) else { return };
        let slot = &mut versions.ordered[position];
        if slot.version().location == from {
            let mark = slot.0.location.bytes & 1 << KEPT_BIT;
            slot.0.location = Location { bytes: to.bytes | mark, ..to };
            take_live(&self.segments, from);
            add_live(&self.segments, to).expect("the relocation has added the segment");
        }
    }
}

fn no_such(vbid: Vbid) -> Error {
    Error::Inconsistent { vbid, what: format!("a bucket has at most {VBUCKETS_MAX} vBuckets") }
}

fn add_live(segments: &Segments, location: Location) -> Result<(), String> {
    let end = u64::from(location.offset) + u64::from(location.bytes);
    match segments.get(&location.segment) {
        Some(segment) if end <= segment.bytes => {
            segment.live_bytes.fetch_add(u64::from(location.bytes), Ordering::Relaxed);
            Ok(())
        }
        Some(_) => Err(format!("segment {} ends before offset {end}", location.segment)),
        None => Err(format!("segment {} is missing", location.segment)),
    }
}

fn take_live(segments: &Segments, location: Location) {
    if let Some(segment) = segments.get(&location.segment) {
        segment.live_bytes.fetch_sub(u64::from(location.bytes), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(seqno: u64, hash: u32) -> Version {
        Version {
            seqno: Seqno(seqno),
            location: Location { segment: 1, offset: 0, bytes: 1 },
            hash,
        }
    }

    fn gone(seqno: u64) -> Old {
        Old { seqno: Seqno(seqno), kept: false }
    }

    #[test]
    fn versions_are_found_by_hash_and_by_order_while_others_come_and_go() {
        let mut versions = Versions::default();
        let mut newest = BTreeMap::new();
        for seqno in 1..20_000_u64 {
            let hash = (seqno * 7919 % 1000) as u32;
            if let Some(old) = newest.insert(hash, seqno) {
                assert_eq!(versions.supersede(gone(old)).map(|found| found.hash), Some(hash));
            }
            versions.push(Slot(version(seqno, hash)));
        }
        assert_eq!(versions.count(), newest.len());
        for (hash, seqno) in &newest {
            let found: Vec<u64> = versions.candidates(*hash).map(|found| found.seqno.0).collect();
            assert_eq!(found, [*seqno]);
        }
        let mut expected: Vec<u64> = newest.into_values().filter(|seqno| *seqno > 19_500).collect();
        expected.sort_unstable();
        let found: Vec<u64> = versions.after(Seqno(19_500)).map(|found| found.seqno.0).collect();
        assert_eq!(found, expected);
        assert!(versions.ordered.len() < 1000 + 1000 / 3 + 100, "holes are packed away");
        assert_eq!(versions.supersede(gone(1)), None, "long gone");
    }

    /// The documentation promises this limit; it is the overhead of a bucket of small documents.
    #[test]
    fn a_document_takes_forty_bytes_at_most_in_a_table_that_only_grows() {
        for count in [900, 4_000, 200_000, 1_000_000_u64] {
            let mut versions = Versions::default();
            for seqno in 1..=count {
                versions.push(Slot(version(seqno, (seqno * 2_654_435_761) as u32)));
            }
            let bytes = versions.ordered.capacity() * size_of::<Slot>()
                + versions.by_hash.allocation_size();
            let each = bytes as f64 / count as f64;
            assert!(each <= 40.0, "{each:.1} bytes with {count} documents");
        }
    }

    /// Overwrites one key again and again. Shows the cost of a version of history, and that such a version is not a
    /// candidate for its key.
    #[test]
    fn a_version_of_history_takes_twenty_seven_bytes_at_most() {
        for count in [4_000, 200_000, 1_000_000_u64] {
            let mut versions = Versions::default();
            versions.push(Slot(version(1, 7)));
            for seqno in 2..=count {
                versions.supersede(Old { seqno: Seqno(seqno - 1), kept: true }).unwrap();
                versions.push(Slot(version(seqno, 7)));
            }
            assert_eq!((versions.count(), versions.history().versions), (1, count - 1));
            assert_eq!(versions.candidates(7).count(), 1);
            let bytes = versions.ordered.capacity() * size_of::<Slot>()
                + versions.by_hash.allocation_size();
            let each = bytes as f64 / count as f64;
            assert!(each <= 27.1, "{each:.1} bytes with {count} versions");
        }
    }

    #[test]
    fn history_is_forgotten_from_its_old_end() {
        let mut versions = Versions::default();
        (1..=5).for_each(|seqno| versions.push(Slot(version(seqno, seqno as u32))));
        for seqno in [2, 3, 5] {
            versions.supersede(Old { seqno: Seqno(seqno), kept: true }).unwrap();
        }
        let within = |versions: &Versions, count, bytes| {
            versions.history_within(HistorySize { versions: count, bytes }).0
        };
        assert_eq!(within(&versions, 3, 3), 0);
        assert_eq!(within(&versions, 2, 3), 3);
        assert_eq!(within(&versions, 3, 1), 4);
        assert_eq!(within(&versions, 0, 9), 6);
        let mut dropped = Vec::new();
        versions.forget_history(Seqno(2), Seqno(5), |version| dropped.push(version.seqno.0));
        assert_eq!(dropped, [2, 3]);
        assert_eq!(versions.history(), HistorySize { versions: 1, bytes: 1 });
        let all: Vec<u64> = versions.all_after(Seqno(0)).map(|version| version.seqno.0).collect();
        assert_eq!(all, [1, 4, 5]);
        let current: Vec<u64> = versions.iter().map(|version| version.seqno.0).collect();
        assert_eq!(current, [1, 4]);
    }

    #[test]
    fn keys_of_the_same_hash_are_kept_apart() {
        let mut versions = Versions::default();
        (1..=5).for_each(|seqno| versions.push(Slot(version(seqno, 42))));
        versions.supersede(gone(3));
        let mut found: Vec<u64> = versions.candidates(42).map(|found| found.seqno.0).collect();
        found.sort_unstable();
        assert_eq!(found, [1, 2, 4, 5]);
    }
}
