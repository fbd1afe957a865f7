//! Where every current version lies: all that the log store keeps in memory of its documents.
//!
//! A vBucket's versions are an array ascending by seqno, which only grows at its end. A version that is replaced leaves
//! a hole; when there are too many holes the array is packed. Beside it lies a hash table of positions in the array.
//! Neither has keys: a match of the 32-bit hash is settled by reading the key from the segment. That is some 40 bytes a
//! document, however long its key.

use super::segment::Segment;
use crate::Error;
use hashbrown::HashTable;
use nacre_types::{Seqno, VbRecord, Vbid};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// vBuckets of a bucket, at most.
const VBUCKETS_MAX: usize = 1024;

/// A piece of a segment; one of no bytes is nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Location {
    pub segment: u32,
    pub offset: u32,
    pub bytes: u32,
}

/// A current version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version {
    pub seqno: Seqno,
    pub location: Location,
    pub hash: u32,
}

const _: () = assert!(size_of::<Version>() == 24);

impl Version {
    fn is_hole(&self) -> bool {
        self.location.bytes == 0
    }
}

/// One vBucket's versions and its record.
#[derive(Default)]
pub(super) struct Versions {
    pub record: Option<VbRecord>,
    /// Ascending by seqno, with holes.
    ordered: Vec<Version>,
    holes: usize,
    /// Positions in `ordered`.
    by_hash: HashTable<u32>,
}

/// The table takes its bits from both ends of a 64-bit hash.
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Versions {
    /// How many versions are current.
    pub fn count(&self) -> usize {
        self.ordered.len() - self.holes
    }

    /// Current versions, ascending by seqno.
    pub fn iter(&self) -> impl Iterator<Item = Version> {
        self.ordered.iter().copied().filter(|version| !version.is_hole())
    }

    /// Current versions after a seqno, ascending.
    pub fn after(&self, seqno: Seqno) -> impl Iterator<Item = Version> {
        let first = self.ordered.partition_point(|version| version.seqno <= seqno);
        self.ordered[first..].iter().copied().filter(|version| !version.is_hole())
    }

    /// The versions that a key of this hash may have: almost always none or one.
    pub fn candidates(&self, hash: u32) -> impl Iterator<Item = Version> {
        self.by_hash
            .iter_hash(spread(hash))
            .map(|position| self.ordered[*position as usize])
            .filter(move |version| version.hash == hash)
    }

    /// The greatest seqno that was ever pushed and not packed away.
    pub fn last_seqno(&self) -> Seqno {
        self.ordered.last().map_or(Seqno::ZERO, |version| version.seqno)
    }

    fn position(&self, seqno: Seqno) -> Option<usize> {
        let position = self.ordered.binary_search_by_key(&seqno, |version| version.seqno).ok()?;
        (!self.ordered[position].is_hole()).then_some(position)
    }

    /// Adds a version after all others.
    fn push(&mut self, version: Version) {
        if self.ordered.len() == self.ordered.capacity() {
            // An eighth at a time: doubling would leave half of the largest table in the process empty.
            self.ordered.reserve_exact(self.ordered.len() / 8 + 8);
        }
        let position = self.ordered.len() as u32;
        self.ordered.push(version);
        let ordered = &self.ordered;
        self.by_hash.insert_unique(spread(version.hash), position, |position| {
            spread(ordered[*position as usize].hash)
        });
    }

    fn remove(&mut self, seqno: Seqno) -> Option<Version> {
        let position = self.position(seqno)?;
        let version = self.ordered[position];
        if let Ok(entry) = self
            .by_hash
            .find_entry(spread(version.hash), |candidate| *candidate as usize == position)
        {
            entry.remove();
        }
        self.ordered[position].location.bytes = 0;
        self.holes += 1;
        if self.holes > self.ordered.len() / 4 + 64 {
            self.pack();
        }
        Some(version)
    }

    fn pack(&mut self) {
        self.ordered.retain(|version| !version.is_hole());
        self.holes = 0;
        self.by_hash.clear();
        for (position, version) in self.ordered.iter().enumerate() {
            self.by_hash.insert_unique(spread(version.hash), position as u32, |_| {
                unreachable!("the table held more than this before")
            });
        }
    }
}

/// What a commit changed in a vBucket.
pub(super) struct Change {
    pub vbid: Vbid,
    pub record: VbRecord,
    /// New versions, ascending, each with the seqno of the version it replaces, or zero.
    pub versions: Vec<(Version, Seqno)>,
    /// Seqnos of versions that are forgotten.
    pub erased: Vec<Seqno>,
}

/// The segments of a store by number. Whoever reads for long keeps a handle to this very map: it never changes, and what
/// it names stays readable.
pub(super) type Segments = Arc<BTreeMap<u32, Arc<Segment>>>;

/// Where everything lies.
pub(super) struct Locations {
    vbuckets: Vec<Versions>,
    pub segments: Segments,
    /// Number of the last batch that this reflects.
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

    /// One vBucket.
    ///
    /// # Errors
    /// When there cannot be such a vBucket.
    pub fn versions(&self, vbid: Vbid) -> Result<&Versions, Error> {
        self.vbuckets.get(vbid.index()).ok_or_else(|| no_such(vbid))
    }

    /// All vBuckets that have a record.
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

    /// Puts back what was saved of a vBucket.
    ///
    /// # Errors
    /// What does not fit, in words.
    pub fn restore(
        &mut self,
        vbid: Vbid,
        record: VbRecord,
        saved: impl Iterator<Item = Version>,
    ) -> Result<(), String> {
        let versions =
            self.vbuckets.get_mut(vbid.index()).ok_or_else(|| no_such(vbid).to_string())?;
        for version in saved {
            if version.seqno <= versions.last_seqno() || version.is_hole() {
                return Err(format!("{vbid} has its versions out of order"));
            }
            add_live(&self.segments, version.location)?;
            versions.push(version);
        }
        versions.record = Some(record);
        Ok(())
    }

    /// Takes over what a commit changed.
    ///
    /// # Errors
    /// What does not fit, in words.
    pub fn apply(&mut self, change: Change) -> Result<(), String> {
        let Change { vbid, record, versions: new, erased } = change;
        let versions =
            self.vbuckets.get_mut(vbid.index()).ok_or_else(|| no_such(vbid).to_string())?;
        for seqno in erased {
            let old = versions
                .remove(seqno)
                .ok_or_else(|| format!("{vbid} erases seqno {seqno}, which is not there"))?;
            take_live(&self.segments, old.location);
        }
        if versions.count() == 0 {
            // A history that begins anew may count from the beginning.
            versions.pack();
        }
        for (version, replaced) in new {
            if replaced != Seqno::ZERO {
                let old = versions.remove(replaced).ok_or_else(|| {
                    format!("{vbid} replaces seqno {replaced}, which is not there")
                })?;
                take_live(&self.segments, old.location);
            }
            if version.seqno <= versions.last_seqno() {
                return Err(format!("{vbid} goes back to seqno {}", version.seqno));
            }
            add_live(&self.segments, version.location)?;
            versions.push(version);
        }
        versions.record = Some(record);
        Ok(())
    }

    /// Lets a version lie elsewhere, if it is still current and lies where it did.
    pub fn relocate(&mut self, vbid: Vbid, seqno: Seqno, from: Location, to: Location) {
        let Some(versions) = self.vbuckets.get_mut(vbid.index()) else { return };
        let Some(position) = versions.position(seqno) else { return };
        if versions.ordered[position].location == from {
            versions.ordered[position].location = to;
            take_live(&self.segments, from);
            add_live(&self.segments, to).expect("whoever relocates has added the segment");
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

    #[test]
    fn versions_are_found_by_hash_and_by_order_while_others_come_and_go() {
        let mut versions = Versions::default();
        let mut newest = BTreeMap::new();
        for seqno in 1..20_000_u64 {
            let hash = (seqno * 7919 % 1000) as u32;
            if let Some(old) = newest.insert(hash, seqno) {
                assert_eq!(versions.remove(Seqno(old)).map(|found| found.hash), Some(hash));
            }
            versions.push(version(seqno, hash));
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
        assert_eq!(versions.remove(Seqno(1)), None, "long gone");
    }

    /// Said in the documentation, and what a bucket of small documents costs beside them.
    #[test]
    fn a_document_takes_forty_bytes_at_most_in_a_table_that_only_grows() {
        for count in [900, 4_000, 200_000, 1_000_000_u64] {
            let mut versions = Versions::default();
            for seqno in 1..=count {
                versions.push(version(seqno, (seqno * 2_654_435_761) as u32));
            }
            let bytes = versions.ordered.capacity() * size_of::<Version>()
                + versions.by_hash.allocation_size();
            let each = bytes as f64 / count as f64;
            assert!(each <= 40.0, "{each:.1} bytes with {count} documents");
        }
    }

    #[test]
    fn keys_of_the_same_hash_are_kept_apart() {
        let mut versions = Versions::default();
        (1..=5).for_each(|seqno| versions.push(version(seqno, 42)));
        versions.remove(Seqno(3));
        let mut found: Vec<u64> = versions.candidates(42).map(|found| found.seqno.0).collect();
        found.sort_unstable();
        assert_eq!(found, [1, 2, 4, 5]);
    }
}
