//! The commit path.

use super::LogStore;
use super::batch::{BATCH_HEADER_BYTES, BatchHeader, Staged, key_hash};
use super::locations::{Change, Location, Old, Version};
use super::sealed::Sealer;
use super::segment::{HEADER_BYTES, Kind, Segment};
use crate::disk::{Disk, is_exhausted, is_full};
use crate::seal::Nonces;
use crate::{Commit, Error, note};
use nacre_types::{CollectionId, Seqno, VbRecord, Vbid};
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// A larger buffer is not kept for the next commit.
const BUFFER_BYTES_KEPT: usize = 32 << 20;

/// The end of the log.
pub(super) struct Writer {
    /// The segment for the next batch, and the position in it; `None` before the first segment.
    pub head: Option<(Arc<Segment>, u32)>,
    /// Number of the last batch.
    pub batch: u64,
    /// True if an earlier failure prevents commits.
    pub stopped: bool,
    /// Kept between commits, because a group commit needs megabytes.
    pub buffer: Vec<u8>,
}

/// Commits that form one batch in one segment.
struct Run {
    commits: Range<usize>,
    segment: Arc<Segment>,
    offset: u32,
    bytes: u32,
    created: bool,
}

/// The state of vBuckets after the preceding commits of this call, which the table of locations does not reflect yet.
#[derive(Default)]
struct Ahead<'a> {
    seqnos: HashMap<(Vbid, &'a [u8]), Seqno>,
    vbuckets: HashMap<Vbid, (u64, Seqno)>,
}

impl LogStore {
    pub(super) fn write(&self, commits: &[Commit]) -> Result<(), Error> {
        if commits.is_empty() {
            return Ok(());
        }
        let mut writer = self.writer.lock();
        if writer.stopped {
            return Err(stopped(&*self.disk));
        }
        let staged = self.stage(commits)?;
        let nonces = self.nonces()?;
        let runs = self.plan(&writer, &staged).inspect_err(|error| {
            writer.stopped |= !error.is_temporary();
        })?;
        let mut buffer = std::mem::take(&mut writer.buffer);
        let mut changes = Vec::with_capacity(staged.len());
        for (index, run) in runs.iter().enumerate() {
            let batch = writer.batch + 1 + index as u64;
            let commits = &staged[run.commits.clone()];
            encode(&mut buffer, run, batch, self.salt, nonces, commits, &mut changes);
            if let Err((error, synced)) = put(run, &buffer) {
                let is_temporary = is_full(&error) || is_exhausted(&error);
                let undone = is_temporary && !synced && self.take_back(&runs, index).is_ok();
                writer.stopped = !undone;
                return Err(match undone {
                    true => self.failed("write to", error),
                    false => Error::io(format!("write to {}", self.disk.path().display()))(error),
                });
            }
        }
        writer.batch += runs.len() as u64;
        writer.head = runs.last().map(|run| (Arc::clone(&run.segment), run.offset + run.bytes));
        buffer.clear();
        buffer.shrink_to(BUFFER_BYTES_KEPT);
        writer.buffer = buffer;
        self.enter(&mut writer, runs, changes)?;
        match self.write_note(writer.batch) {
            // The batch is on disk; a lagging note is harmless.
            Err(error) if is_full(&error) || is_exhausted(&error) => Ok(()),
            Err(error) => {
                writer.stopped = true;
                Err(Error::io(format!("write {}", note::NAME))(error))
            }
            Ok(()) => Ok(()),
        }
    }

    /// Resolves the version that each document replaces and each erasure refers to, and counts the documents.
    fn stage<'a>(&self, commits: &'a [Commit]) -> Result<Vec<Staged<'a>>, Error> {
        let mut ahead = Ahead::default();
        commits.iter().map(|commit| self.stage_commit(&mut ahead, commit)).collect()
    }

    fn stage_commit<'a>(
        &self,
        ahead: &mut Ahead<'a>,
        commit: &'a Commit,
    ) -> Result<Staged<'a>, Error> {
        let vbid = commit.vbid;
        let (mut count, mut high) = match ahead.vbuckets.get(&vbid) {
            Some(known) => *known,
            None => {
                let locations = self.locations.read();
                let versions = locations.versions(vbid)?;
                (versions.count() as u64, versions.last_seqno())
            }
        };
        let mut erased = Vec::new();
        for (key, seqno) in &commit.erased {
            let current = match ahead.seqnos.get(&(vbid, &key[..])) {
                Some(seqno) => *seqno,
                None => self.seqno_of(vbid, key, key_hash(self.salt, key))?,
            };
            if current == *seqno && current != Seqno::ZERO {
                ahead.seqnos.insert((vbid, key), Seqno::ZERO);
                let kept = commit.keeps(CollectionId::of_key(key), current);
                erased.push(Old { seqno: current, kept });
                count -= 1;
            }
        }
        let mut documents = Vec::with_capacity(commit.documents.len());
        for document in &commit.documents {
            let seqno = document.meta.seqno;
            if seqno <= high {
                let what = format!("seqno {seqno} was committed after {high}");
                return Err(Error::Inconsistent { vbid, what });
            }
            high = seqno;
            let hash = key_hash(self.salt, document.key());
            let replaced = match ahead.seqnos.get(&(vbid, document.key())) {
                Some(seqno) => *seqno,
                None => self.seqno_of(vbid, document.key(), hash)?,
            };
            count += u64::from(replaced == Seqno::ZERO);
            let kept = commit.keeps(document.collection(), replaced);
            let replaced = Old { seqno: replaced, kept };
            ahead.seqnos.insert((vbid, document.key()), seqno);
            documents.push((document, hash, replaced));
        }
        ahead.vbuckets.insert(vbid, (count, high));
        let record = VbRecord { document_count: count, ..commit.record.clone() };
        Ok(Staged::new(vbid, record, documents, erased))
    }

    /// Assigns commits to segments, and allocates all required space before anything is written.
    fn plan(&self, writer: &Writer, staged: &[Staged]) -> Result<Vec<Run>, Error> {
        let mut runs: Vec<Run> = Vec::new();
        for (index, commit) in staged.iter().enumerate() {
            let bytes = commit.bytes(self.master.is_some()) as u64;
            if let Some(run) = runs.last_mut()
                && u64::from(run.offset) + u64::from(run.bytes) + bytes <= run.segment.bytes
            {
                run.commits.end += 1;
                run.bytes += bytes as u32;
                continue;
            }
            let bytes = bytes + BATCH_HEADER_BYTES as u64;
            let open = match (runs.last(), &writer.head) {
                (None, Some((segment, position)))
                    if u64::from(*position) + bytes <= segment.bytes =>
                {
                    Ok((Arc::clone(segment), *position, false))
                }
                _ => {
                    let bytes = self.segment_bytes().max(HEADER_BYTES as u64 + bytes);
                    if bytes > u64::from(u32::MAX) {
                        let reason = "a commit of more than 4 GiB";
                        Err(self.failed("write", io::Error::other(reason)))
                    } else {
                        self.create_segment(Kind::Log, bytes)
                            .map(|segment| (segment, HEADER_BYTES as u32, true))
                    }
                }
            };
            match open {
                Ok((segment, offset, created)) => runs.push(Run {
                    commits: index..index + 1,
                    segment,
                    offset,
                    bytes: bytes as u32,
                    created,
                }),
                Err(error) => {
                    remove_created(&*self.disk, &runs);
                    return Err(error);
                }
            }
        }
        Ok(runs)
    }

    /// Invalidates the batches up to `last`, in reverse order.
    fn take_back(&self, runs: &[Run], last: usize) -> io::Result<()> {
        for run in runs[..=last].iter().rev() {
            run.segment.file.write_at(&[0; BATCH_HEADER_BYTES], u64::from(run.offset))?;
            run.segment.file.sync()?;
        }
        remove_created(&*self.disk, runs);
        Ok(())
    }

    /// Applies the synced commits to the table of locations, all at once.
    fn enter(
        &self,
        writer: &mut Writer,
        runs: Vec<Run>,
        changes: Vec<Change>,
    ) -> Result<(), Error> {
        let mut locations = self.locations.write();
        for run in runs.into_iter().filter(|run| run.created) {
            locations.add_segment(run.segment);
        }
        for change in changes {
            if let Err(what) = locations.apply(change) {
                writer.stopped = true;
                return Err(self.damaged(what));
            }
        }
        locations.batch = writer.batch;
        Ok(())
    }

    /// Writes the note after the batch is synced. The note itself is not synced: it may lag behind the log.
    pub(super) fn write_note(&self, batch: u64) -> io::Result<()> {
        self.note.write_at(&note::encode(batch), 0)
    }
}

/// Returns the error after an earlier failed write.
pub(super) fn stopped(disk: &dyn Disk) -> Error {
    let reason = "an earlier write failed, what is on disk is unknown";
    Error::io(format!("commit to {}", disk.path().display()))(io::Error::other(reason))
}

fn remove_created(disk: &dyn Disk, runs: &[Run]) {
    // A file that cannot be removed contains no batch; the next open tolerates it.
    for run in runs.iter().filter(|run| run.created) {
        let _ = disk.remove(&super::segment::name(run.segment.number, Kind::Log));
    }
}

fn encode(
    buffer: &mut Vec<u8>,
    run: &Run,
    batch: u64,
    salt: u64,
    nonces: Option<Nonces>,
    commits: &[Staged],
    changes: &mut Vec<Change>,
) {
    let sealer = run.segment.cipher.as_ref().zip(nonces).map(|(cipher, nonces)| Sealer {
        cipher,
        nonces,
        offset: run.offset,
        batch,
    });
    buffer.clear();
    buffer.reserve(run.bytes as usize);
    buffer.extend([0; BATCH_HEADER_BYTES]);
    for commit in commits {
        let places = commit.encode(buffer, sealer.as_ref());
        let versions =
            commit.documents.iter().zip(places).map(|((document, hash, replaced), place)| {
                let location = Location {
                    segment: run.segment.number,
                    offset: run.offset + place.0 as u32,
                    bytes: place.1 as u32,
                };
                (Version { seqno: document.meta.seqno, location, hash: *hash }, *replaced)
            });
        changes.push(Change {
            vbid: commit.vbid,
            record: commit.record.clone(),
            versions: versions.collect(),
            erased: commit.erased.clone(),
        });
    }
    let body = &buffer[BATCH_HEADER_BYTES..];
    let header = BatchHeader {
        number: batch,
        segment: run.segment.number,
        commits: commits.len() as u32,
        body_bytes: body.len() as u32,
        body_crc: crc32fast::hash(body),
    };
    buffer[..BATCH_HEADER_BYTES].copy_from_slice(&header.encode(salt));
}

/// Writes and syncs a batch. The error is paired with true if the sync failed.
fn put(run: &Run, bytes: &[u8]) -> Result<(), (io::Error, bool)> {
    run.segment.file.write_at(bytes, u64::from(run.offset)).map_err(|error| (error, false))?;
    run.segment.file.sync().map_err(|error| (error, true))
}

impl Writer {
    /// Creates a writer that continues after `batch`.
    pub fn new(head: Option<(Arc<Segment>, u32)>, batch: u64) -> Writer {
        Writer { head, batch, stopped: false, buffer: Vec::new() }
    }

    /// Returns the position from which a replay would begin now.
    pub fn tail(&self) -> (u32, u32) {
        self.head.as_ref().map_or((0, 0), |(segment, position)| (segment.number, *position))
    }
}
