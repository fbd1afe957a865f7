//! Reclaims space and saves the table of locations, concurrently with commits and reads.
//!
//! A step takes the segment with the largest dead part, copies its current versions and history into a `.copy` segment,
//! syncs that, and updates the table of locations. The old segment is then *retired*: only the last saved table still
//! needs it. It is removed when the table is saved again, which happens once enough bytes are retired.

use super::locations::{Location, Version};
use super::read::runs;
use super::saved::{self, Head};
use super::sealed::Sealer;
use super::segment::{HEADER_BYTES, Kind, Segment, name};
use super::{LogStore, write};
use crate::Error;
use crate::seal::{CHUNK_BYTES, Nonces};
use nacre_types::{Seqno, Vbid};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes of copies that are buffered before they are written.
const WRITE_BYTES: usize = 1 << 20;
/// Versions relocated per lock.
const RELOCATE_COUNT: usize = 512;
/// The table is saved once the log exceeds this multiple of the table's size, because an open must read the log.
const LOG_PER_TABLE: u64 = 8;

/// The state between two steps of compaction.
pub(super) struct Compactor {
    /// The segment that receives copies, and the position in it.
    copies: Option<(Arc<Segment>, u32)>,
    /// Retired segments that are not removed yet.
    retired: Vec<Arc<Segment>>,
    /// The batch and the segment from which a replay would start.
    saved_batch: u64,
    saved_tail: u32,
}

impl Compactor {
    /// Continues from a table that was saved at `batch`, when the log ended in segment `tail`.
    pub fn new(batch: u64, tail: u32) -> Compactor {
        Compactor { copies: None, retired: Vec::new(), saved_batch: batch, saved_tail: tail }
    }
}

impl LogStore {
    pub(super) fn compact_step(&self, fragmentation_percent: u8) -> Result<u64, Error> {
        let mut compactor = self.compactor.lock();
        let given_back = match self.worst_segment(&compactor, fragmentation_percent) {
            Some(segment) => self.move_out(&mut compactor, &segment)?,
            None => 0,
        };
        let saved_bytes = self.saved_bytes.load(Ordering::Relaxed);
        let retired_bytes = self.retired_bytes.load(Ordering::Relaxed);
        let enough = match given_back {
            0 => 1,
            _ => (self.live_bytes() / 16).max(2 * saved_bytes),
        };
        let log_bytes = self.log_bytes(compactor.saved_tail);
        let long = log_bytes > (LOG_PER_TABLE * saved_bytes).max(self.options.segment_bytes.into());
        if retired_bytes >= enough || long {
            self.save(&mut compactor)?;
        }
        Ok(given_back)
    }

    /// Returns the segment with the greatest share of dead bytes, if that exceeds `percent`.
    fn worst_segment(&self, compactor: &Compactor, percent: u8) -> Option<Arc<Segment>> {
        // Held to the end: otherwise a segment could become the head meanwhile and look dead.
        let writer = self.writer.lock();
        let head = writer.tail().0;
        let copies = compactor.copies.as_ref().map_or(0, |(segment, _)| segment.number);
        let locations = self.locations.read();
        let share = |segment: &Segment| segment.dead_bytes() * 1000 / segment.bytes.max(1);
        locations
            .segments
            .values()
            .filter(|segment| segment.number != copies)
            .filter(|segment| segment.number != head)
            .filter(|segment| segment.dead_bytes() * 100 > segment.bytes * u64::from(percent))
            .max_by_key(|segment| share(segment))
            .cloned()
    }

    fn vbids(&self) -> Vec<Vbid> {
        self.locations.read().vbuckets().map(|(vbid, _)| vbid).collect()
    }

    /// Returns the bytes of the segments that a replay would read, without the first one.
    fn log_bytes(&self, tail: u32) -> u64 {
        let locations = self.locations.read();
        let later = locations.segments.range(tail + 1..).map(|(_, segment)| segment);
        later.filter(|segment| segment.kind == Kind::Log).map(|segment| segment.bytes).sum()
    }

    /// Copies the current versions and the history of `segment` and retires it. Returns the bytes gained.
    fn move_out(&self, compactor: &mut Compactor, segment: &Arc<Segment>) -> Result<u64, Error> {
        let mut wanted: Vec<(Vbid, Version)> = Vec::new();
        // One vBucket at a time, so that commits do not wait for all of them.
        for vbid in self.vbids() {
            let locations = self.locations.read();
            let versions = locations.versions(vbid)?.all_after(Seqno::ZERO);
            let here = versions.filter(|version| version.location.segment == segment.number);
            wanted.extend(here.map(|version| (vbid, version)));
        }
        wanted.sort_unstable_by_key(|(_, version)| version.location.offset);
        let nonces = self.nonces()?;
        let mut copies = Copies { store: self, compactor, pending: Vec::new(), nonces };
        let mut moved: Vec<(Vbid, Version, Location)> = Vec::with_capacity(wanted.len());
        let mut buffer = Vec::new();
        for run in runs(&wanted) {
            let mut versions = run.iter();
            self.read_run(segment, run, &mut buffer, |vbid, _, stored| {
                let version = *versions.next().expect("one for each document");
                moved.push((vbid, version.1, copies.add(stored)?));
                Ok(())
            })?;
        }
        copies.finish()?;
        for some in moved.chunks(RELOCATE_COUNT) {
            let mut locations = self.locations.write();
            for (vbid, version, to) in some {
                locations.relocate(*vbid, version.seqno, version.location, *to);
            }
        }
        self.locations.write().remove_segment(segment.number);
        compactor.retired.push(Arc::clone(segment));
        self.retired_bytes.fetch_add(segment.bytes, Ordering::Relaxed);
        let copied: u64 = moved.iter().map(|(.., to)| u64::from(to.bytes)).sum();
        Ok(segment.bytes.saturating_sub(copied).max(1))
    }

    /// Saves the table of locations, and removes the segments that only the previous table needed.
    fn save(&self, compactor: &mut Compactor) -> Result<(), Error> {
        let head = {
            let writer = self.writer.lock();
            if writer.stopped {
                return Err(write::stopped(&*self.disk));
            }
            let locations = self.locations.read();
            let segments = locations
                .segments
                .values()
                .map(|segment| (segment.number, segment.kind, segment.bytes))
                .collect();
            Head {
                salt: self.salt,
                next_segment: self.next_segment.load(Ordering::Relaxed),
                tail: writer.tail(),
                batch: writer.batch,
                segments,
            }
        };
        let vbids = self.vbids();
        let failed = |error| self.failed("save the table of locations in", error);
        let file = self.disk.create(saved::UNFINISHED, 0).map_err(failed)?;
        let lock = saved::Lock::new(self.master.as_ref(), self.salt).map_err(failed)?;
        let mut writer =
            saved::Writer::begin(&*file, &head, vbids.len() as u32, lock).map_err(failed)?;
        for vbid in vbids {
            {
                let locations = self.locations.read();
                let versions = locations.versions(vbid)?;
                let record = versions.record.as_ref().expect("a record never goes away");
                writer.push(vbid, record, versions, locations.batch);
            }
            writer.flush(true).map_err(failed)?;
        }
        let saved_bytes = writer.finish().map_err(failed)?;
        self.disk.rename(saved::UNFINISHED, saved::NAME).map_err(failed)?;
        self.disk.sync_names().map_err(failed)?;
        self.saved_bytes.store(saved_bytes, Ordering::Relaxed);
        compactor.saved_batch = head.batch;
        compactor.saved_tail = head.tail.0;
        for segment in std::mem::take(&mut compactor.retired) {
            // A file that cannot be removed now is removed by the next open.
            let _ = self.disk.remove(&name(segment.number, segment.kind));
            self.retired_bytes.fetch_sub(segment.bytes, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Saves the table so that the next open has nothing to replay.
    pub(super) fn close(&self) {
        let mut compactor = self.compactor.lock();
        let (batch, stopped) = {
            let writer = self.writer.lock();
            (writer.batch, writer.stopped)
        };
        if stopped || (batch == compactor.saved_batch && compactor.retired.is_empty()) {
            return;
        }
        // On failure the next open only takes longer.
        let _ = self.save(&mut compactor);
        // A full disk may have refused the last batch's note, or written half of it.
        let _ = self.write_note(batch);
        let _ = self.note.sync();
    }
}

/// Copies in progress.
struct Copies<'a> {
    store: &'a LogStore,
    compactor: &'a mut Compactor,
    /// Copies not written yet. They end at the position of the open segment.
    pending: Vec<u8>,
    /// The nonces of these copies, if the store is encrypted.
    nonces: Option<Nonces>,
}

impl Copies<'_> {
    /// Adds a document, and encrypts it for its new place if the store is encrypted. Returns its future location.
    fn add(&mut self, plain: &[u8]) -> Result<Location, Error> {
        let length = plain.len() + if self.nonces.is_some() { CHUNK_BYTES } else { 0 };
        let fits = self.compactor.copies.as_ref().is_some_and(|(segment, position)| {
            u64::from(*position) + length as u64 <= segment.bytes
        });
        if !fits {
            self.seal()?;
            let bytes = self.store.segment_bytes().max((HEADER_BYTES + length) as u64);
            let segment = self.store.create_segment(Kind::Copy, bytes)?;
            self.store.locations.write().add_segment(Arc::clone(&segment));
            self.compactor.copies = Some((segment, HEADER_BYTES as u32));
        }
        let (segment, position) = self.compactor.copies.as_mut().expect("it was just opened");
        let location =
            Location { segment: segment.number, offset: *position, bytes: length as u32 };
        match segment.cipher.as_ref().zip(self.nonces) {
            None => self.pending.extend_from_slice(plain),
            Some((cipher, nonces)) => {
                let offset = *position - self.pending.len() as u32;
                let sealer = Sealer { cipher, nonces, offset, batch: 0 };
                sealer.add(&mut self.pending, 0, |bytes| bytes.extend_from_slice(plain));
            }
        }
        *position += length as u32;
        if self.pending.len() >= WRITE_BYTES {
            self.write()?;
        }
        Ok(location)
    }

    fn write(&mut self) -> Result<(), Error> {
        let Some((segment, position)) = &self.compactor.copies else { return Ok(()) };
        let start = u64::from(*position) - self.pending.len() as u64;
        let failed = |error| self.store.failed("copy documents in", error);
        segment.file.write_at(&self.pending, start).map_err(failed)?;
        self.pending.clear();
        Ok(())
    }

    /// Writes and syncs the documents added.
    fn finish(&mut self) -> Result<(), Error> {
        self.write()?;
        let Some((segment, _)) = &self.compactor.copies else { return Ok(()) };
        segment.file.sync().map_err(|error| self.store.failed("copy documents in", error))
    }

    /// Closes the open segment.
    fn seal(&mut self) -> Result<(), Error> {
        self.finish()?;
        if let Some((segment, position)) = self.compactor.copies.take() {
            segment.end.store(position.into(), Ordering::Relaxed);
        }
        Ok(())
    }
}
