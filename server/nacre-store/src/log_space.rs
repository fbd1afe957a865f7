//! Log-structured spaces: each space is one append-only file, which is read when it is opened.
//!
//! ```text
//! file    "nacre space 2\n" | length of the name u16 | name | crc u32 | batches
//! batch   length u64 | synced u64 | crc u32 of the batch before | crc u32 of all else | rows
//! row     length of the key u32 | length of the value u32, or u32::MAX where it was removed | key | value
//! ```
//! Numbers are big-endian. A batch names its predecessor, so that the remains of a longer file are not mistaken for the
//! next batch. It also says how much of the file was known to survive a power cut when it was written. A file is
//! created under a temporary name and renamed once it is complete. A file that has grown to twice the size of its rows
//! is rewritten in the same way. If damage may be forgiven, a new file is synced only when a write must be durable.
//!
//! A mark is a batch without rows after the synced part; it records that the last batch was synced. The next batch
//! overwrites the mark. The mark is not synced itself; without it, less is known about the file, but nothing is lost.
//!
//! Invariants: after any crash the rows are those of a prefix of the batches, and no durable batch is lost. The first
//! unreadable batch ends the file, because a crash can leave one at the end. If a later batch says that the unreadable
//! one had been synced, the file is damaged: the space does not open, unless [`OnDamage::Forget`] is set. Rows that an
//! open has read survive a power cut from then on, even if the previous process ended because it could not sync them.

use crate::Error;
use crate::codec::{u16_at, u32_at, u64_at};
use crate::disk::{self, Directory, Disk, DiskFile, read_exact};
use crate::space::{Rows, Space, Spaces, Write};
use crate::space_files::{self, SpaceFiles};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

const MAGIC: &[u8; 14] = b"nacre space 2\n";
/// Bytes before the rows of a batch.
const BATCH_HEAD_BYTES: usize = 24;
/// Bytes before the key of a row.
const ROW_HEAD_BYTES: usize = 8;
/// Offset of the batch's own checksum in its head.
const CRC_AT: usize = 20;
const REMOVED: u32 = u32::MAX;
/// Bytes by which a file may exceed twice the size of its rows.
const SLACK_BYTES: u64 = 16 << 20;
/// Approximate size of a batch when a file is rewritten.
const PIECE_BYTES: usize = 1 << 20;
/// Suffix of a space's file name, after its number.
const ENDING: &str = ".space";
/// Suffix of a file that is being written.
const NEW: &str = ".new";

/// The reaction to a space whose synced part cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDamage {
    /// Refuse to open: there is no other copy of its rows.
    Refuse,
    /// Open with the rows before the damage (perhaps none): the later rows can be recomputed.
    Forget,
}

/// Spaces in a directory, one file each.
pub struct LogSpaces {
    disk: Arc<dyn Disk>,
    on_damage: OnDamage,
    slack_bytes: u64,
    files: Mutex<Files>,
}

#[derive(Default)]
struct Files {
    /// The file number of each space, and the space if it is open.
    by_name: BTreeMap<String, (u64, Option<Arc<LogSpace>>)>,
    /// The next file number.
    next: u64,
}

impl LogSpaces {
    /// Opens the directory `path`, and creates it if it does not exist.
    ///
    /// # Errors
    /// Any problem with the directory.
    pub fn open(path: &Path, on_damage: OnDamage) -> Result<LogSpaces, Error> {
        LogSpaces::open_on(Arc::new(Directory::open(path)?), on_damage, SLACK_BYTES)
    }

    /// Opens the spaces on a disk. A file may exceed twice the size of its rows by `slack_bytes`.
    ///
    /// # Errors
    /// As for [`LogSpaces::open`].
    pub fn open_on(
        disk: Arc<dyn Disk>,
        on_damage: OnDamage,
        slack_bytes: u64,
    ) -> Result<LogSpaces, Error> {
        let mut files = Files::default();
        // A previous process may have renamed a file and ended before the name was synced.
        disk.sync_names().map_err(failed(&*disk, "sync"))?;
        for file in disk.names().map_err(failed(&*disk, "read"))? {
            let number = file.strip_suffix(ENDING).and_then(|number| number.parse::<u32>().ok());
            let Some(number) = number.map(u64::from) else {
                if file.ends_with(NEW) {
                    disk.remove(&file).map_err(failed(&*disk, "clean"))?;
                }
                continue;
            };
            files.next = files.next.max(number + 1);
            let opened = disk.open(&file).map_err(failed(&*disk, "open a space of"))?;
            match read_head(&*opened).map_err(failed(&*disk, "read a space of"))? {
                Some((name, _)) => drop(files.by_name.insert(name, (number, None))),
                None if on_damage == OnDamage::Forget => {
                    disk.remove(&file).map_err(failed(&*disk, "clean"))?;
                }
                None => {
                    let what = format!("the head of {file} does not read back");
                    return Err(Error::Damaged { path: disk.path().to_owned(), what });
                }
            }
        }
        // A previous process may have removed a space and ended before it removed the space's files.
        for file in disk.names().map_err(failed(&*disk, "read"))? {
            let Some((prefix, _)) = space_files::split(&file) else { continue };
            let is_space = |(number, _): &(u64, _)| number.to_string() == prefix;
            if !files.by_name.values().any(is_space) {
                disk.remove(&file).map_err(failed(&*disk, "clean"))?;
            }
        }
        Ok(LogSpaces { disk, on_damage, slack_bytes, files: Mutex::new(files) })
    }
}

impl Spaces for LogSpaces {
    fn open(&self, name: &str) -> Result<Arc<dyn Space>, Error> {
        let mut files = self.files.lock();
        let known = files.by_name.get(name).map(|(number, space)| (*number, space.clone()));
        let (number, space) = match known {
            Some((_, Some(space))) => return Ok(space),
            Some((number, None)) => (number, LogSpace::open(self, file_name(number))?),
            None => (files.next, LogSpace::create(self, file_name(files.next), name)?),
        };
        let space = Arc::new(space);
        files.next = files.next.max(number + 1);
        files.by_name.insert(name.to_owned(), (number, Some(Arc::clone(&space))));
        Ok(space)
    }

    fn names(&self) -> Result<Vec<String>, Error> {
        Ok(self.files.lock().by_name.keys().cloned().collect())
    }

    fn remove(&self, name: &str) -> Result<(), Error> {
        let mut files = self.files.lock();
        let Some((number, space)) = files.by_name.get(name) else { return Ok(()) };
        let mut log = space.as_ref().map(|space| space.log.lock());
        let gone = self.disk.remove(&file_name(*number));
        gone.map_err(failed(&*self.disk, "remove a space of"))?;
        if let Some(log) = &mut log {
            log.is_removed = true;
        }
        drop(log);
        let of_space = SpaceFiles::new(Arc::clone(&self.disk), number.to_string());
        let numbers = of_space.numbers().map_err(failed(&*self.disk, "read"))?;
        for number in numbers {
            of_space.remove(number).map_err(failed(&*self.disk, "remove a file of"))?;
        }
        files.by_name.remove(name);
        // If the file reappeared after a power cut, a new space of that name would have removed rows.
        self.disk.sync_names().map_err(failed(&*self.disk, "remove a space of"))
    }
}

fn file_name(number: u64) -> String {
    format!("{number}{ENDING}")
}

fn failed(disk: &dyn Disk, what: &str) -> impl FnOnce(io::Error) -> Error {
    move |error| disk::failed(disk, what, error)
}

/// Returns the head of a file.
fn head(name: &str) -> Vec<u8> {
    let mut head = MAGIC.to_vec();
    head.extend_from_slice(&(name.len() as u16).to_be_bytes());
    head.extend_from_slice(name.as_bytes());
    let crc = crc32fast::hash(&head);
    head.extend_from_slice(&crc.to_be_bytes());
    head
}

/// Returns the name of a space and the length of the head; `None` for a file without a head.
fn read_head(file: &dyn DiskFile) -> io::Result<Option<(String, u64)>> {
    let mut start = [0; MAGIC.len() + 2];
    if file.bytes()? < start.len() as u64 {
        return Ok(None);
    }
    read_exact(file, &mut start, 0)?;
    let name_bytes = usize::from(u16_at(&start, MAGIC.len()).unwrap_or_default());
    let bytes = start.len() + name_bytes + 4;
    if !start.starts_with(MAGIC) || file.bytes()? < bytes as u64 {
        return Ok(None);
    }
    let mut whole = vec![0; bytes];
    read_exact(file, &mut whole, 0)?;
    let name = String::from_utf8_lossy(&whole[start.len()..start.len() + name_bytes]).into_owned();
    Ok((head(&name) == whole).then_some((name, bytes as u64)))
}

/// A file and the position for the next batch.
struct Log {
    file: Arc<dyn DiskFile>,
    /// Offset of the first batch.
    head_bytes: u64,
    /// Offset of the next batch.
    end: u64,
    /// Checksum of the last batch.
    crc: u32,
    /// Size of the file when it was rewritten, or of its rows when it was opened.
    was_bytes: u64,
    /// Number of bytes known to survive a power cut.
    synced: u64,
    /// True if the file was created and its name may not survive a power cut.
    is_new: bool,
    /// True if the space was removed and accepts no more writes.
    is_removed: bool,
    /// True after a failed sync: the disk's contents are unknown until the file is opened or written again.
    is_doubtful: bool,
    /// The rows read at the open, until they are loaded.
    fresh: Option<Table>,
    /// The loss found at the open.
    damage: Option<String>,
}

/// Rows by key.
type Table = BTreeMap<Vec<u8>, Vec<u8>>;

struct LogSpace {
    disk: Arc<dyn Disk>,
    file_name: String,
    name: String,
    slack_bytes: u64,
    /// True if rows may be lost: a failed sync then does not stop further writes.
    may_forget: bool,
    log: Mutex<Log>,
}

impl LogSpace {
    fn create(spaces: &LogSpaces, file_name: String, name: &str) -> Result<LogSpace, Error> {
        let disk = &spaces.disk;
        if u16::try_from(name.len()).is_err() {
            let what = io::Error::new(io::ErrorKind::InvalidInput, "its name is too long");
            return Err(failed(&**disk, "create a space in")(what));
        }
        let create = || match spaces.on_damage {
            OnDamage::Refuse => {
                let log = Log::write(&**disk, &file_name, name, &Table::new())?;
                disk.sync_names()?;
                Ok(log)
            }
            // After a power cut the file may be missing or lack a head. The space then does not exist, just as before.
            OnDamage::Forget => {
                let mut log = Log::begin(disk.create(&file_name, 0)?, name)?;
                log.is_new = true;
                Ok(log)
            }
        };
        let log = create().map_err(failed(&**disk, "create a space in"))?;
        Ok(LogSpace::new(spaces, file_name, name.to_owned(), log))
    }

    fn new(spaces: &LogSpaces, file_name: String, name: String, log: Log) -> LogSpace {
        let LogSpaces { disk, slack_bytes, .. } = spaces;
        let (disk, slack_bytes) = (Arc::clone(disk), *slack_bytes);
        let may_forget = spaces.on_damage == OnDamage::Forget;
        LogSpace { disk, file_name, name, slack_bytes, may_forget, log: log.into() }
    }

    fn open(spaces: &LogSpaces, file_name: String) -> Result<LogSpace, Error> {
        let disk = &spaces.disk;
        let open = || {
            let file = disk.open(&file_name)?;
            let (name, head_bytes) = read_head(&*file)?.ok_or(io::ErrorKind::InvalidData)?;
            let mut log = Log::at_head(file, head_bytes);
            let Found { all, end, crc, synced } = log.read(u64::MAX)?;
            // The length of the file would not do: a frequently opened space would never find it doubled.
            let rows_bytes: usize =
                all.iter().map(|(key, value)| row_bytes(key, Some(value))).sum();
            log.was_bytes = head_bytes + rows_bytes as u64;
            (log.end, log.crc, log.fresh) = (end, crc, Some(all));
            if spaces.on_damage == OnDamage::Forget {
                let is_damaged = log.has_batch_after_end()?;
                log.damage =
                    is_damaged.then(|| format!("what follows byte {end} does not read back"));
                return Ok((name, log, false));
            }
            let is_damaged = log.was_longer()?;
            if !is_damaged {
                log.write_again(synced)?;
            }
            Ok((name, log, is_damaged))
        };
        let (name, log, is_damaged) = open().map_err(failed(&**disk, "open a space of"))?;
        if is_damaged {
            let what = format!("of the space {name}, what follows byte {} was stored", log.end);
            let what = format!("{what}, and does not read back ({file_name})");
            return Err(Error::Damaged { path: disk.path().to_owned(), what });
        }
        Ok(LogSpace::new(spaces, file_name, name, log))
    }

    /// Reads all rows.
    fn read(&self, log: &Log) -> Result<Table, Error> {
        let read = log.read(log.end).map_err(failed(&*self.disk, "read a space of"))?;
        let Found { all, end, .. } = read;
        if end < log.end {
            let what =
                format!("of the space {}, a batch at byte {end} does not read back", self.name);
            return Err(Error::Damaged { path: self.disk.path().to_owned(), what });
        }
        Ok(all)
    }

    /// Writes a file with exactly these rows, which replaces the current one.
    fn rewrite(&self, log: &mut Log, all: &Table) -> io::Result<()> {
        *log = Log::write(&*self.disk, &self.file_name, &self.name, all)?;
        // After a power cut the name may still refer to the previous file.
        self.disk.sync_names().inspect_err(|_| log.is_doubtful = true)
    }

    /// Rewrites the file to shorten it. A failure leaves the current file in use.
    fn shorten(&self, log: &mut Log) {
        let all = self.read(log);
        if all.is_ok_and(|all| self.rewrite(log, &all).is_ok()) {
            return;
        }
        let _ = self.disk.remove(&format!("{}{NEW}", self.file_name));
        // Retry only once the file has doubled again.
        log.was_bytes = log.end;
    }
}

impl Log {
    /// Writes a file of that name with exactly these rows. A crash leaves the complete new file or the previous one.
    fn write(disk: &dyn Disk, file_name: &str, name: &str, all: &Table) -> io::Result<Log> {
        let new = format!("{file_name}{NEW}");
        let mut log = Log::begin(disk.create(&new, 0)?, name)?;
        let mut batch = Batch::default();
        for (key, value) in all {
            batch.add(key, Some(value));
            if batch.0.len() >= PIECE_BYTES {
                log.append(std::mem::take(&mut batch))?;
            }
        }
        log.append(batch)?;
        // The file is renamed only with its mark in place.
        log.synced = log.end;
        log.mark()?;
        log.sync(disk)?;
        log.was_bytes = log.end;
        disk.rename(&new, file_name)?;
        Ok(log)
    }

    /// Creates a file with a head and without rows.
    fn begin(file: Arc<dyn DiskFile>, name: &str) -> io::Result<Log> {
        let head = head(name);
        file.write_at(&head, 0)?;
        Ok(Log::at_head(file, head.len() as u64))
    }

    fn at_head(file: Arc<dyn DiskFile>, head_bytes: u64) -> Log {
        let (end, was_bytes) = (head_bytes, head_bytes);
        Log {
            file,
            head_bytes,
            end,
            crc: 0,
            was_bytes,
            synced: head_bytes,
            is_new: false,
            is_removed: false,
            is_doubtful: false,
            fresh: None,
            damage: None,
        }
    }

    /// Reads the rows up to `end` or to a damaged batch. A mark at the end is not included, so that the next batch
    /// overwrites it.
    fn read(&self, end: u64) -> io::Result<Found> {
        let mut found = Found { all: Table::new(), end: self.head_bytes, crc: 0, synced: 0 };
        batches(&*self.file, self.head_bytes, end, |batch, next, head| {
            let is_whole = rows(batch, |_, _| {});
            if is_whole {
                found.synced = head.synced;
            }
            if is_whole && !batch.is_empty() {
                rows(batch, |key, value| {
                    match value {
                        Some(value) => drop(found.all.insert(key.to_vec(), value.to_vec())),
                        None => drop(found.all.remove(key)),
                    };
                });
                (found.end, found.crc) = (next, head.crc);
            }
            is_whole
        })?;
        Ok(found)
    }

    /// Rewrites and syncs everything after the first `synced` bytes. The previous process may have ended because it
    /// could not sync these bytes; the operating system then returns them without knowing that they are not on disk.
    fn write_again(&mut self, synced: u64) -> io::Result<()> {
        let from = synced.max(self.head_bytes);
        if from < self.end {
            let mut rest = vec![0; (self.end - from) as usize];
            read_exact(&*self.file, &mut rest, from)?;
            self.file.write_at(&rest, from)?;
            self.file.sync()?;
        }
        self.synced = self.end;
        Ok(())
    }

    /// Returns true if the unreadable part after the end had been synced, which a later batch proves.
    fn was_longer(&self) -> io::Result<bool> {
        let mut rest = vec![0; self.file.bytes()?.saturating_sub(self.end) as usize];
        read_exact(&*self.file, &mut rest, self.end)?;
        Ok((1..rest.len()).any(|at| {
            let Some(head) = Head::read(&rest[at..]) else { return false };
            let had_been = self.end + 1..=self.end + at as u64;
            had_been.contains(&head.synced) && head.rows(&rest[at..]).is_some()
        }))
    }

    /// Returns true if a complete batch with rows follows the end. The bytes in between are then damaged, because a process that
    /// ends while writing leaves only part of a batch.
    fn has_batch_after_end(&self) -> io::Result<bool> {
        let mut rest = vec![0; self.file.bytes()?.saturating_sub(self.end) as usize];
        read_exact(&*self.file, &mut rest, self.end)?;
        Ok((1..rest.len()).any(|at| {
            let rest = &rest[at..];
            let rows = Head::read(rest).and_then(|head| head.rows(rest));
            rows.is_some_and(|batch| !batch.is_empty() && rows_are_whole(batch))
        }))
    }

    fn sync(&mut self, disk: &dyn Disk) -> io::Result<()> {
        let is_new = std::mem::take(&mut self.is_new);
        let synced =
            self.file.sync().and_then(|()| if is_new { disk.sync_names() } else { Ok(()) });
        synced.inspect_err(|_| self.is_doubtful = true)?;
        self.synced = self.end;
        // The rows are synced even if there is no space for the mark.
        let _ = self.mark();
        Ok(())
    }

    /// Writes the mark: all of the file up to here is synced.
    fn mark(&self) -> io::Result<()> {
        let (bytes, _) = Batch::mark().finish(self.synced, self.crc);
        self.file.write_at(&bytes, self.end)
    }

    fn append(&mut self, batch: Batch) -> io::Result<()> {
        if batch.0.is_empty() {
            return Ok(());
        }
        let (bytes, crc) = batch.finish(self.synced, self.crc);
        // The next write overwrites the remains of a failed one.
        self.file.write_at(&bytes, self.end)?;
        self.end += bytes.len() as u64;
        self.crc = crc;
        Ok(())
    }
}

/// The readable part of a file.
struct Found {
    all: Table,
    /// End and checksum of the last batch with rows.
    end: u64,
    crc: u32,
    /// Bytes known to survive a power cut, according to the last batch.
    synced: u64,
}

/// A batch under construction, with space for its head.
#[derive(Default)]
struct Batch(Vec<u8>);

impl Batch {
    /// Returns a batch without rows, which records the synced length.
    fn mark() -> Batch {
        Batch(vec![0; BATCH_HEAD_BYTES])
    }

    fn add(&mut self, key: &[u8], value: Option<&[u8]>) {
        let Batch(bytes) = self;
        if bytes.is_empty() {
            bytes.resize(BATCH_HEAD_BYTES, 0);
        }
        let value_bytes = value.map_or(REMOVED, |value| value.len() as u32);
        bytes.extend_from_slice(&(key.len() as u32).to_be_bytes());
        bytes.extend_from_slice(&value_bytes.to_be_bytes());
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value.unwrap_or_default());
    }

    /// Returns the bytes and the checksum of a batch that follows one with the checksum `before`, given the synced
    /// length of the file.
    fn finish(self, synced: u64, before: u32) -> (Vec<u8>, u32) {
        let Batch(mut bytes) = self;
        let length = (bytes.len() - BATCH_HEAD_BYTES) as u64;
        bytes[..8].copy_from_slice(&length.to_be_bytes());
        bytes[8..16].copy_from_slice(&synced.to_be_bytes());
        bytes[16..CRC_AT].copy_from_slice(&before.to_be_bytes());
        let crc = checksum(&bytes);
        bytes[CRC_AT..BATCH_HEAD_BYTES].copy_from_slice(&crc.to_be_bytes());
        (bytes, crc)
    }
}

/// Returns the size of a row in a file.
fn row_bytes(key: &[u8], value: Option<&[u8]>) -> usize {
    ROW_HEAD_BYTES + key.len() + value.map_or(0, <[u8]>::len)
}

/// The head of a batch.
struct Head {
    length: u64,
    synced: u64,
    before: u32,
    crc: u32,
}

impl Head {
    fn read(bytes: &[u8]) -> Option<Head> {
        let (length, synced) = (u64_at(bytes, 0)?, u64_at(bytes, 8)?);
        Some(Head { length, synced, before: u32_at(bytes, 16)?, crc: u32_at(bytes, CRC_AT)? })
    }

    /// Returns the rows of the batch at the start of `bytes`; `None` if they are incomplete.
    fn rows<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let length = usize::try_from(self.length).ok()?;
        let batch = bytes.get(..BATCH_HEAD_BYTES.checked_add(length)?)?;
        (checksum(batch) == self.crc).then_some(&batch[BATCH_HEAD_BYTES..])
    }
}

/// Returns the checksum of a batch including its head, without the checksum field.
fn checksum(batch: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&batch[..CRC_AT]);
    hasher.update(&batch[BATCH_HEAD_BYTES..]);
    hasher.finalize()
}

/// Iterates over the batches of a file from `at` to `end`, to a damaged batch, or until `take` returns false. `take` receives the
/// rows, the offset of the next batch, and the head.
fn batches(
    file: &dyn DiskFile,
    mut at: u64,
    end: u64,
    mut take: impl FnMut(&[u8], u64, &Head) -> bool,
) -> io::Result<()> {
    let (mut before, end) = (0, file.bytes()?.min(end));
    let mut batch = Vec::new();
    while at + BATCH_HEAD_BYTES as u64 <= end {
        batch.resize(BATCH_HEAD_BYTES, 0);
        read_exact(file, &mut batch, at)?;
        let Some(head) = Head::read(&batch) else { return Ok(()) };
        if head.before != before || head.length > end - at - BATCH_HEAD_BYTES as u64 {
            return Ok(());
        }
        batch.resize(BATCH_HEAD_BYTES + head.length as usize, 0);
        read_exact(file, &mut batch[BATCH_HEAD_BYTES..], at + BATCH_HEAD_BYTES as u64)?;
        at += batch.len() as u64;
        if !head.rows(&batch).is_some_and(|rows| take(rows, at, &head)) {
            return Ok(());
        }
        before = head.crc;
    }
    Ok(())
}

fn rows_are_whole(batch: &[u8]) -> bool {
    rows(batch, |_, _| {})
}

/// Passes the rows of a batch to `take`. Returns true if they are complete.
fn rows(mut batch: &[u8], mut take: impl FnMut(&[u8], Option<&[u8]>)) -> bool {
    while let (Some(key_bytes), Some(value_bytes)) = (u32_at(batch, 0), u32_at(batch, 4)) {
        let is_there = value_bytes != REMOVED;
        let length = if is_there { value_bytes as usize } else { 0 };
        let Some((key, rest)) = batch[ROW_HEAD_BYTES..].split_at_checked(key_bytes as usize) else {
            return false;
        };
        let Some((value, rest)) = rest.split_at_checked(length) else { return false };
        take(key, is_there.then_some(value));
        batch = rest;
    }
    batch.is_empty()
}

impl Space for LogSpace {
    fn load(&self) -> Result<Rows, Error> {
        let mut log = self.log.lock();
        let all = log.fresh.take().map_or_else(|| self.read(&log), Ok)?;
        Ok(all.into_iter().collect())
    }

    /// Reads the whole file.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.read(&self.log.lock())?.remove(key))
    }

    fn apply(&self, writes: &[Write], durable: bool) -> Result<(), Error> {
        let mut log = self.log.lock();
        if log.is_removed {
            return Ok(());
        }
        if log.is_doubtful && !self.may_forget {
            let what = format!("the space {} could not be synced: start the node again", self.name);
            return Err(Error::Damaged { path: self.disk.path().to_owned(), what });
        }
        log.fresh = None;
        let rows_bytes: usize =
            writes.iter().map(|(key, value)| row_bytes(key, value.as_deref())).sum();
        let bytes = BATCH_HEAD_BYTES + rows_bytes;
        let mut batch = Batch(Vec::with_capacity(bytes));
        writes.iter().for_each(|(key, value)| batch.add(key, value.as_deref()));
        log.append(batch).map_err(failed(&*self.disk, "write a space of"))?;
        if durable {
            // Unlike a full disk, a failed sync leaves unknown contents.
            let what = format!("sync a space of {}", self.disk.path().display());
            log.sync(&*self.disk).map_err(Error::io(what))?;
        }
        if log.end > 2 * log.was_bytes + self.slack_bytes {
            self.shorten(&mut log);
        }
        Ok(())
    }

    fn clear(&self) -> Result<(), Error> {
        let mut log = self.log.lock();
        if log.is_removed {
            return Ok(());
        }
        let cleared = self.rewrite(&mut log, &Table::new());
        cleared.map_err(failed(&*self.disk, "clear a space of"))
    }

    fn rewrite(&self) -> Result<(), Error> {
        let mut log = self.log.lock();
        if log.is_removed {
            return Ok(());
        }
        let all = self.read(&log)?;
        let rewritten = LogSpace::rewrite(self, &mut log, &all);
        rewritten.map_err(failed(&*self.disk, "write a space of"))
    }

    fn files(&self) -> Option<SpaceFiles> {
        let number = self.file_name.strip_suffix(ENDING)?;
        Some(SpaceFiles::new(Arc::clone(&self.disk), number.to_owned()))
    }

    fn file(&self) -> String {
        self.disk.path().join(&self.file_name).display().to_string()
    }

    fn damage(&self) -> Option<String> {
        self.log.lock().damage.clone()
    }
}
