//! Reads documents by key, by seqno, or all of them.

use super::LogStore;
use super::batch::{FRONT_BYTES, decode_document, has_key, key_end, key_hash, replaced_by};
use super::locations::{Location, Segments, Version};
use super::segment::Segment;
use crate::disk::read_exact;
use crate::{Error, Scan, Which};
use nacre_types::{Document, Seqno, Vbid};
use std::path::Path;
use std::sync::Arc;

/// Size of a read in a bulk read, unless a single document is larger.
const READ_BYTES: u32 = 1 << 20;
/// Dead bytes between two documents up to which a bulk read reads through the gap instead of skipping it.
const GAP_BYTES: u32 = 16 << 10;

impl LogStore {
    pub(super) fn read_key(&self, vbid: Vbid, key: &[u8]) -> Result<Option<Document>, Error> {
        for (version, segment) in self.candidates(vbid, key_hash(self.salt, key))? {
            let document = self.read_version(&segment, vbid, version)?;
            if document.key() == key {
                return Ok(Some(document));
            }
        }
        Ok(None)
    }

    /// Returns the versions whose key has this hash, and their segments.
    fn candidates(&self, vbid: Vbid, hash: u32) -> Result<Vec<(Version, Arc<Segment>)>, Error> {
        let locations = self.locations.read();
        let with_segment = |version: Version| {
            Some((version, Arc::clone(locations.segment(version.location.segment)?)))
        };
        Ok(locations.versions(vbid)?.candidates(hash).filter_map(with_segment).collect())
    }

    /// Returns the seqno of the current version of a key, without reading its value.
    pub(super) fn seqno_of(&self, vbid: Vbid, key: &[u8], hash: u32) -> Result<Seqno, Error> {
        let mut front = vec![0; key_end(key)];
        for (version, segment) in self.candidates(vbid, hash)? {
            if segment.cipher.is_some() {
                // A chunk is decrypted as a whole.
                if self.read_version(&segment, vbid, version)?.key() == key {
                    return Ok(version.seqno);
                }
                continue;
            }
            let Location { offset, bytes, .. } = version.location;
            let front = &mut front[..key_end(key).min(bytes as usize)];
            read_exact(&*segment.file, front, u64::from(offset))
                .map_err(|error| self.failed("read", error))?;
            if has_key(front, vbid, version.seqno, key) {
                return Ok(version.seqno);
            }
            // This is another key with the same hash, or a damaged version of this key, which must not count as a new
            // key.
            self.read_version(&segment, vbid, version)?;
        }
        Ok(Seqno::ZERO)
    }

    /// Finds the previous version by the seqno in the stored document.
    pub(super) fn read_previous(
        &self,
        vbid: Vbid,
        seqno: Seqno,
    ) -> Result<Option<Document>, Error> {
        let Some((version, segment)) = self.at(vbid, seqno)? else { return Ok(None) };
        let Location { offset, bytes, .. } = version.location;
        let front_bytes = if segment.cipher.is_some() { bytes as usize } else { FRONT_BYTES };
        let mut front = vec![0; front_bytes];
        read_exact(&*segment.file, &mut front, offset.into())
            .map_err(|error| self.failed("read", error))?;
        let front = segment.plain(offset, &mut front).ok_or_else(|| damaged(vbid, version))?;
        let replaced = replaced_by(front, vbid, seqno).ok_or_else(|| damaged(vbid, version))?;
        let Some((version, segment)) = self.at(vbid, replaced)? else { return Ok(None) };
        self.read_version(&segment, vbid, version).map(Some)
    }

    fn at(&self, vbid: Vbid, seqno: Seqno) -> Result<Option<(Version, Arc<Segment>)>, Error> {
        let locations = self.locations.read();
        let found = locations.versions(vbid)?.at(seqno);
        let with_segment = |version: Version| {
            Some((version, Arc::clone(locations.segment(version.location.segment)?)))
        };
        Ok(found.and_then(with_segment))
    }

    pub(super) fn read_version(
        &self,
        segment: &Segment,
        vbid: Vbid,
        version: Version,
    ) -> Result<Document, Error> {
        read_version(segment, vbid, version, self.disk.path())
    }

    /// Returns the versions after a seqno, with history if `which` requests it.
    pub(super) fn read_after(&self, vbid: Vbid, after: Seqno, which: Which) -> Result<Scan, Error> {
        let locations = self.locations.read();
        let versions = locations.versions(vbid)?;
        let record = versions.record.as_ref();
        let end = record.map_or(after, |record| record.high_seqno);
        let (wanted, history_start): (Vec<Version>, _) = match which {
            Which::Current => (versions.after(after).collect(), None),
            Which::All => (
                versions.all_after(after).collect(),
                record.and_then(|record| record.history_start),
            ),
        };
        let segments = Arc::clone(&locations.segments);
        drop(locations);
        let path = self.disk.path().to_owned();
        let documents = wanted.into_iter().map(move |version| {
            let segment = &segments[&version.location.segment];
            read_version(segment, vbid, version, &path)
        });
        Ok(Scan { end, history_start, documents: Box::new(documents.scan(false, until_error)) })
    }

    /// Reads segments sequentially, whatever the vBuckets of their documents.
    pub(super) fn read_everything(
        &self,
        each: &mut dyn FnMut(Vbid, Document),
    ) -> Result<(), Error> {
        let (mut wanted, segments): (Vec<(Vbid, Version)>, Segments) = {
            let locations = self.locations.read();
            let all = locations
                .vbuckets()
                .flat_map(|(vbid, versions)| versions.iter().map(move |version| (vbid, version)));
            (all.collect(), Arc::clone(&locations.segments))
        };
        wanted.sort_unstable_by_key(|(_, version)| {
            (version.location.segment, version.location.offset)
        });
        let mut buffer = Vec::new();
        for run in runs(&wanted) {
            let segment = &segments[&run[0].1.location.segment];
            self.read_run(segment, run, &mut buffer, |vbid, document, _| {
                each(vbid, document);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Reads adjacent documents of a segment in one read. Passes each document with its stored bytes, which are decrypted.
    pub(super) fn read_run(
        &self,
        segment: &Segment,
        run: &[(Vbid, Version)],
        buffer: &mut Vec<u8>,
        mut each: impl FnMut(Vbid, Document, &[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (Some((_, first)), Some((_, last))) = (run.first(), run.last()) else { return Ok(()) };
        let start = first.location.offset;
        buffer.resize((last.location.offset - start + last.location.bytes) as usize, 0);
        read_exact(&*segment.file, buffer, u64::from(start))
            .map_err(|error| self.failed("read", error))?;
        for (vbid, version) in run {
            let Location { offset, bytes, .. } = version.location;
            let stored = &mut buffer[(offset - start) as usize..][..bytes as usize];
            let plain = segment.plain(offset, stored).ok_or_else(|| damaged(*vbid, *version))?;
            let document = decode_document(plain, *vbid, version.seqno)
                .ok_or_else(|| damaged(*vbid, *version))?;
            each(*vbid, document, plain)?;
        }
        Ok(())
    }
}

/// Splits versions in location order into runs that are each read at once.
pub(super) fn runs(ordered: &[(Vbid, Version)]) -> impl Iterator<Item = &[(Vbid, Version)]> {
    let mut rest = ordered;
    std::iter::from_fn(move || {
        let first = rest.first()?.1.location;
        let together = rest.windows(2).take_while(|pair| {
            let (one, next) = (pair[0].1.location, pair[1].1.location);
            next.segment == one.segment
                && next.offset - (one.offset + one.bytes) <= GAP_BYTES
                && next.offset + next.bytes - first.offset <= READ_BYTES
        });
        let (run, after) = rest.split_at(1 + together.count());
        rest = after;
        Some(run)
    })
}

fn read_version(
    segment: &Segment,
    vbid: Vbid,
    version: Version,
    path: &Path,
) -> Result<Document, Error> {
    let Location { offset, bytes, .. } = version.location;
    let mut stored = vec![0; bytes as usize];
    read_exact(&*segment.file, &mut stored, u64::from(offset))
        .map_err(|error| Error::io(format!("read {}", path.display()))(error))?;
    let plain = segment.plain(offset, &mut stored);
    let document = plain.and_then(|plain| decode_document(plain, vbid, version.seqno));
    document.ok_or_else(|| damaged(vbid, version))
}

fn damaged(vbid: Vbid, version: Version) -> Error {
    let Location { segment, offset, .. } = version.location;
    let what = format!(
        "the document at seqno {} is damaged (segment {segment}, offset {offset})",
        version.seqno
    );
    Error::Inconsistent { vbid, what }
}

/// Ends the iteration after the first error.
fn until_error(
    failed: &mut bool,
    item: Result<Document, Error>,
) -> Option<Result<Document, Error>> {
    let ended = *failed;
    *failed = item.is_err();
    (!ended).then_some(item)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Commit, LogOptions, SimDisk, Store};
    use nacre_types::{Cas, FailoverLog, Meta, VbRecord, VbState, VbUuid};
    use std::collections::HashMap;

    fn commit(seqno: u64, key: &[u8]) -> Commit {
        let meta = Meta { seqno: Seqno(seqno), ..Meta::default() };
        let record = VbRecord {
            state: VbState::Active,
            failover_log: FailoverLog::new(VbUuid(7)),
            high_seqno: Seqno(seqno),
            term: 3,
            snapshot: (Seqno(seqno), Seqno(seqno)),
            purge_seqno: Seqno::ZERO,
            purged_rev: 0,
            max_cas: Cas(1),
            document_count: 0,
            history_start: None,
        };
        let documents = vec![Document::new(meta, key, b"value")];
        Commit { vbid: Vbid(0), record, documents, erased: Vec::new(), history: Arc::default() }
    }

    #[test]
    fn two_keys_of_the_same_hash_are_two_documents() {
        let disk = SimDisk::new();
        let store = LogStore::open_on(disk, true, LogOptions::default()).unwrap();
        let mut seen = HashMap::new();
        let (one, other) = (0_u32..)
            .find_map(|number| {
                let key = [&[0], &number.to_be_bytes()[..]].concat();
                let before = seen.insert(key_hash(store.salt, &key), key.clone())?;
                Some((before, key))
            })
            .unwrap();
        let seqnos = || {
            let found = |key: &[u8]| store.get(Vbid(0), key).unwrap();
            [&one, &other].map(|key| found(key).map(|document| document.meta.seqno.0))
        };
        store.commit(&[commit(1, &one)]).unwrap();
        assert_eq!(seqnos(), [Some(1), None]);
        store.commit(&[commit(2, &other)]).unwrap();
        assert_eq!(seqnos(), [Some(1), Some(2)]);
        store.commit(&[commit(3, &one)]).unwrap();
        assert_eq!(seqnos(), [Some(3), Some(2)]);
        let erased = vec![(other.clone().into_boxed_slice(), Seqno(2))];
        store.commit(&[Commit { documents: Vec::new(), erased, ..commit(3, &one) }]).unwrap();
        assert_eq!(seqnos(), [Some(3), None]);
        assert_eq!(store.records().unwrap()[0].1.document_count, 1);
    }
}
