//! Recovery: loads the saved table of locations and replays the batches after it.

use super::batch::{BATCH_HEADER_BYTES, BatchHeader, decode_body, later_batch};
use super::compact::Compactor;
use super::locations::{Change, Locations};
use super::saved::{self, Head, Reader};
use super::segment::{ENCRYPTED_FORMAT, Fault, HEADER_BYTES, Kind, Segment, name, parse_name};
use super::write::Writer;
use super::{LogOptions, LogStore};
use crate::disk::{Disk, DiskFile, failed, read_exact};
use crate::note::NAME as NOTE;
use crate::{Error, MasterKey, note};
use nacre_types::Vbid;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

pub(super) const MISSING: &str = "it is missing or empty, but its bucket was created before";

/// Bytes searched for batches at a time.
const SEARCH_BYTES: usize = 1 << 20;

pub(super) fn open(
    disk: Arc<dyn Disk>,
    create: bool,
    options: LogOptions,
    master: Option<MasterKey>,
) -> Result<LogStore, Error> {
    let opening = Opening { disk: &*disk, master: master.as_ref() };
    let mut names = opening.io("list", disk.names())?;
    names.sort_unstable();
    if !names.iter().any(|name| name == saved::NAME) {
        opening.create(&names, create, options.seed)?;
        names = opening.io("list", disk.names())?;
    }
    let (note, acknowledged) = opening.note()?;
    let file = opening.io("open", disk.open(saved::NAME))?;
    let saved_bytes = opening.io("read", file.bytes())?;
    let (head, mut reader) = opening.check(saved::NAME, Reader::open(&*file, master.as_ref()))?;
    let segments: Vec<(u32, Kind)> = names.iter().filter_map(|name| parse_name(name)).collect();

    let mut replay = Replay {
        opening: &opening,
        salt: head.salt,
        locations: Locations::new(),
        reflected: BTreeMap::new(),
        batch: head.batch,
        last: None,
    };
    for (number, kind, bytes) in &head.segments {
        let name = name(*number, *kind);
        let segment = Segment::open(&*disk, *number, *kind, head.salt, master.as_ref());
        let segment = opening.check(&name, segment)?;
        if segment.bytes < *bytes {
            return Err(opening.damaged(format!("{name} is cut")));
        }
        replay.locations.add_segment(Arc::new(segment));
    }
    // Commits continued while the table was saved: its locations may refer to later segments.
    let (tail, unreadable) = opening.tail(&head, &segments)?;
    for segment in &tail {
        replay.locations.add_segment(Arc::clone(segment));
    }
    while let Some(vbucket) = opening.check(saved::NAME, reader.next())? {
        replay.reflected.insert(vbucket.vbid, vbucket.batch);
        let (vbid, record) = (vbucket.vbid, vbucket.record.clone());
        let restored = replay.locations.restore(vbid, record, vbucket.versions());
        restored.map_err(|what| opening.damaged(format!("{}: {what}", saved::NAME)))?;
    }
    let end = replay.run(&head, &tail)?;
    for (name, file) in &unreadable {
        // Batches are only written to a segment whose header is on disk.
        if let Some(batch) =
            opening.search(&**file, HEADER_BYTES as u64, head.salt, replay.batch)?
        {
            return Err(opening.damaged(format!("{name} has a damaged header, and batch {batch}")));
        }
    }
    // The note is not synced, so it may lag behind the log, but never lead it.
    if replay.batch < acknowledged {
        return Err(opening.damaged(format!(
            "{acknowledged} batches were acknowledged, but the log ends after {}",
            replay.batch
        )));
    }
    replay.check_counts()?;
    // The last batch may be only in the operating system's cache, if the previous process could not sync it. It is
    // written again, so that everything visible to readers survives a power cut.
    replay.write_last_again()?;
    let Replay { mut locations, batch, .. } = replay;
    locations.batch = batch;

    let current = |number: u32| locations.segments.contains_key(&number);
    for (number, kind) in segments.iter().filter(|(number, _)| !current(*number)) {
        // A file that cannot be removed only wastes disk space.
        let _ = disk.remove(&name(*number, *kind));
    }
    let _ = disk.remove(saved::UNFINISHED);
    let beyond = segments.iter().map(|(number, _)| number + 1).max().unwrap_or(1);
    Ok(LogStore {
        options,
        salt: head.salt,
        next_segment: AtomicU32::new(head.next_segment.max(beyond)),
        note,
        locations: RwLock::new(locations),
        writer: Mutex::new(Writer::new(end, batch)),
        compactor: Mutex::new(Compactor::new(head.batch, head.tail.0)),
        saved_bytes: AtomicU64::new(saved_bytes),
        retired_bytes: AtomicU64::new(0),
        disk,
        master,
    })
}

/// An open in progress; adds context to every error.
struct Opening<'a> {
    disk: &'a dyn Disk,
    master: Option<&'a MasterKey>,
}

impl Opening<'_> {
    fn io<T>(&self, what: &str, result: io::Result<T>) -> Result<T, Error> {
        result.map_err(Error::io(format!("{what} {}", self.disk.path().display())))
    }

    fn damaged(&self, what: impl Into<String>) -> Error {
        Error::Damaged { path: self.disk.path().to_owned(), what: what.into() }
    }

    fn check<T>(&self, name: &str, result: Result<T, Fault>) -> Result<T, Error> {
        let path = self.disk.path();
        result.map_err(|fault| match fault {
            Fault::Io(error) => Error::io(format!("read {}", path.join(name).display()))(error),
            Fault::Format(found) => {
                Error::Format { path: path.to_owned(), found, expected: ENCRYPTED_FORMAT }
            }
            Fault::WrongKey => Error::WrongKey { path: path.to_owned() },
            Fault::Encrypted => Error::Encrypted { path: path.to_owned() },
            Fault::NotEncrypted => Error::NotEncrypted { path: path.to_owned() },
            Fault::Damaged(what) => self.damaged(format!("{name} {what}")),
        })
    }

    /// Creates an empty store. The note comes first: a store with a table therefore has both.
    fn create(&self, names: &[String], create: bool, salt: u64) -> Result<(), Error> {
        if let Some(name) = names.iter().find(|name| parse_name(name).is_some()) {
            return Err(self.damaged(format!("{name} is there, but {} is missing", saved::NAME)));
        }
        if names.iter().any(|name| name == NOTE) {
            let (_, acknowledged) = self.note()?;
            if acknowledged > 0 {
                let what = format!("{acknowledged} batches were acknowledged, none is there");
                return Err(self.damaged(what));
            }
        }
        if !create {
            return Err(self.damaged(MISSING));
        }
        let write = || {
            let file = self.disk.create(saved::UNFINISHED, 0)?;
            file.write_at(&note::encode(0), 0)?;
            file.sync()?;
            self.disk.rename(saved::UNFINISHED, NOTE)?;
            self.disk.sync_names()?;
            let head = Head { salt, next_segment: 1, tail: (0, 0), batch: 0, segments: Vec::new() };
            let file = self.disk.create(saved::UNFINISHED, 0)?;
            let lock = saved::Lock::new(self.master, salt)?;
            saved::Writer::begin(&*file, &head, 0, lock)?.finish()?;
            self.disk.rename(saved::UNFINISHED, saved::NAME)?;
            self.disk.sync_names()
        };
        write().map_err(|error| failed(&*self.disk, "create", error))
    }

    /// Opens the note. Returns the number of synced batches in it.
    fn note(&self) -> Result<(Arc<dyn DiskFile>, u64), Error> {
        let file = self.check(NOTE, self.disk.open(NOTE).map_err(Fault::from))?;
        let mut found = [0; 12];
        self.check(NOTE, read_exact(&*file, &mut found, 0).map_err(Fault::from))?;
        let number = note::decode(found);
        let number =
            number.ok_or_else(|| self.damaged(format!("{NOTE} does not match its checksum")))?;
        Ok((file, number))
    }

    /// Returns the segments to replay, and the files that may have been about to become segments.
    #[expect(clippy::type_complexity, reason = "two lists that are found in one pass")]
    fn tail(
        &self,
        head: &Head,
        segments: &[(u32, Kind)],
    ) -> Result<(Vec<Arc<Segment>>, Vec<(String, Arc<dyn DiskFile>)>), Error> {
        let (mut tail, mut unreadable) = (Vec::new(), Vec::new());
        let later =
            segments.iter().filter(|(number, kind)| *kind == Kind::Log && *number > head.tail.0);
        for (number, kind) in later {
            let name = name(*number, *kind);
            match Segment::open(self.disk, *number, *kind, head.salt, self.master) {
                Ok(segment) => tail.push(Arc::new(segment)),
                Err(Fault::Damaged(_)) => {
                    let file = self.check(&name, self.disk.open(&name).map_err(Fault::from))?;
                    unreadable.push((name, file));
                }
                Err(other) => return self.check(&name, Err(other)),
            }
        }
        tail.sort_unstable_by_key(|segment| segment.number);
        Ok((tail, unreadable))
    }

    /// Returns the number of a batch above `number` that begins at or after `start` of a file.
    fn search(
        &self,
        file: &dyn DiskFile,
        start: u64,
        salt: u64,
        number: u64,
    ) -> Result<Option<u64>, Error> {
        let end = self.io("read", file.bytes())?;
        let mut position = start;
        let mut buffer = Vec::new();
        while position + (BATCH_HEADER_BYTES as u64) <= end {
            let bytes = (end - position).min(SEARCH_BYTES as u64);
            buffer.resize(bytes as usize, 0);
            self.io("read", read_exact(file, &mut buffer, position))?;
            if let Some(found) = later_batch(&buffer, salt, number) {
                return Ok(Some(found));
            }
            // A header may cross the boundary between two reads.
            position += bytes.max(BATCH_HEADER_BYTES as u64) - (BATCH_HEADER_BYTES as u64 - 1);
        }
        Ok(None)
    }
}

/// The state of the replay.
struct Replay<'a> {
    opening: &'a Opening<'a>,
    salt: u64,
    locations: Locations,
    /// The last batch reflected in the saved table, for each of its vBuckets.
    reflected: BTreeMap<Vbid, u64>,
    batch: u64,
    /// The last batch: its segment, offset and length.
    last: Option<(Arc<Segment>, u64, usize)>,
}

impl Replay<'_> {
    /// Replays all batches after the saved table. Returns the position for the next batch.
    fn run(
        &mut self,
        head: &Head,
        tail: &[Arc<Segment>],
    ) -> Result<Option<(Arc<Segment>, u32)>, Error> {
        let first = self.locations.segment(head.tail.0).cloned();
        if first.is_none() && head.tail.0 != 0 {
            let what = format!("{}: the segment that replay begins in is missing", saved::NAME);
            return Err(self.opening.damaged(what));
        }
        let first = first.map(|segment| (segment, u64::from(head.tail.1)));
        let later = tail.iter().map(|segment| (Arc::clone(segment), HEADER_BYTES as u64));
        let mut end = None;
        for (segment, mut position) in first.into_iter().chain(later) {
            while let Some(bytes) = self.batch_at(&segment, position)? {
                self.last = Some((Arc::clone(&segment), position, bytes));
                position += bytes as u64;
            }
            let file = &*segment.file;
            if let Some(found) = self.opening.search(file, position, self.salt, self.batch + 1)? {
                return Err(self.opening.damaged(format!(
                    "batch {} cannot be read, but batch {found} is there",
                    self.batch + 1
                )));
            }
            end = Some((segment, position as u32));
        }
        Ok(end)
    }

    /// Applies the batch at this position, if there is one, and returns its length.
    fn batch_at(&mut self, segment: &Segment, position: u64) -> Result<Option<usize>, Error> {
        if position + BATCH_HEADER_BYTES as u64 > segment.bytes {
            return Ok(None);
        }
        let mut front = [0; BATCH_HEADER_BYTES];
        self.opening.io("read", read_exact(&*segment.file, &mut front, position))?;
        let Some(header) = BatchHeader::decode(&front, self.salt) else { return Ok(None) };
        let start = position + BATCH_HEADER_BYTES as u64;
        let expected = header.number == self.batch + 1 && header.segment == segment.number;
        if !expected || start + u64::from(header.body_bytes) > segment.bytes {
            return Ok(None);
        }
        let mut body = vec![0; header.body_bytes as usize];
        self.opening.io("read", read_exact(&*segment.file, &mut body, start))?;
        let cipher = segment.cipher.as_ref();
        let Some(commits) = decode_body(&header, &body, start as u32, self.salt, cipher) else {
            return Ok(None);
        };
        for commit in commits {
            if self.reflected.get(&commit.vbid).is_some_and(|batch| *batch >= header.number) {
                continue;
            }
            let (vbid, record) = (commit.vbid, commit.record);
            let change = Change { vbid, record, versions: commit.versions, erased: commit.erased };
            self.locations
                .apply(change)
                .map_err(|what| self.opening.damaged(format!("batch {}: {what}", header.number)))?;
        }
        self.batch = header.number;
        Ok(Some(BATCH_HEADER_BYTES + body.len()))
    }

    fn check_counts(&self) -> Result<(), Error> {
        for (vbid, versions) in self.locations.vbuckets() {
            let recorded = versions.record.as_ref().map_or(0, |record| record.document_count);
            let found = versions.count() as u64;
            if recorded != found {
                let what = format!("{recorded} documents recorded, {found} found");
                return Err(Error::Inconsistent { vbid, what });
            }
        }
        Ok(())
    }

    /// Rewrites the last batch. The previous process may have ended because it could not sync this batch; the operating
    /// system then returns its bytes without knowing that they are not on disk.
    fn write_last_again(&self) -> Result<(), Error> {
        let Some((segment, position, bytes)) = &self.last else { return Ok(()) };
        let mut batch = vec![0; *bytes];
        let mut again = || {
            read_exact(&*segment.file, &mut batch, *position)?;
            segment.file.write_at(&batch, *position)?;
            segment.file.sync()
        };
        self.opening.io("write the last batch again in", again())
    }
}
