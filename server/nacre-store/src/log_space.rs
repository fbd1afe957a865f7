//! Spaces that are read once, when they are opened, and written from then on: each is one file that grows.
//!
//! ```text
//! file    "nacre space 2\n" | length of the name u16 | name | crc u32 | batches
//! batch   length u64 | synced u64 | crc u32 of the batch before | crc u32 of all else | rows
//! row     length of the key u32 | length of the value u32, or u32::MAX where it was removed | key | value
//! ```
//! Numbers are big-endian. A batch names the one before, so that the remains of a longer file are not taken for the
//! next batch, and says how much of the file was sure to survive a power cut when it was written. A file is created
//! under another name, and gets its own when it is complete; the same happens when it is rewritten, once it is twice as
//! long as its rows were. If damage is forgiven, a new file is only synced when something in it must be durable.
//!
//! A mark, which is a batch without rows, follows the synced part until the next batch overwrites it: it records that
//! the last batch was synced too. The mark is not synced itself; if it is missing, less is known and nothing is wrong.
//!
//! Invariants: after any crash the rows are those of a prefix of the batches, and no durable batch is lost. A batch
//! that cannot be read ends the file, as a crash may leave one at the end. If a later batch says that it had been
//! synced, it is damaged: then the space does not open, unless [`OnDamage::Forget`] was chosen. Rows that were read at
//! the open survive a power cut from then on, even if the process before ended because they could not be synced.

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
/// Before the rows of a batch.
const BATCH_HEAD_BYTES: usize = 24;
/// Before the key of a row.
const ROW_HEAD_BYTES: usize = 8;
/// Offset of the batch's own crc in the head.
const CRC_AT: usize = 20;
const REMOVED: u32 = u32::MAX;
/// A file may exceed twice the size of its rows by this much.
const SLACK_BYTES: u64 = 16 << 20;
/// Rows of a batch of a file that is written again, about.
const PIECE_BYTES: usize = 1 << 20;
/// Behind the number of a file.
const ENDING: &str = ".space";
/// Behind the name of a file that is being written.
const NEW: &str = ".new";

/// What happens to a space if a part that was synced cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDamage {
    /// It does not open: there is no other copy of its rows.
    Refuse,
    /// It opens with the rows before the damage, or with none: the later rows can be computed again.
    Forget,
}

/// Spaces in a directory, a file each.
pub struct LogSpaces {
    disk: Arc<dyn Disk>,
    on_damage: OnDamage,
    slack_bytes: u64,
    files: Mutex<Files>,
}

#[derive(Default)]
struct Files {
    /// The number of each space's file, and the space where it is open.
    by_name: BTreeMap<String, (u64, Option<Arc<LogSpace>>)>,
    /// Number of the next file.
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
        // A file may have been given its name by a process that ended before that was sure.
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
        // The space of a file may have been removed by a process that ended before it had removed the file.
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
        // Should it come back after a power cut, a space of that name would have rows that were removed.
        self.disk.sync_names().map_err(failed(&*self.disk, "remove a space of"))
    }
}

fn file_name(number: u64) -> String {
    format!("{number}{ENDING}")
}

fn failed(disk: &dyn Disk, what: &str) -> impl FnOnce(io::Error) -> Error {
    move |error| disk::failed(disk, what, error)
}

/// Returns the first bytes of a file.
fn head(name: &str) -> Vec<u8> {
    let mut head = MAGIC.to_vec();
    head.extend_from_slice(&(name.len() as u16).to_be_bytes());
    head.extend_from_slice(name.as_bytes());
    let crc = crc32fast::hash(&head);
    head.extend_from_slice(&crc.to_be_bytes());
    head
}

/// The name of a space, and how long the head is; none of a file that has none.
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

/// A file, and where it goes on.
struct Log {
    file: Arc<dyn DiskFile>,
    /// Offset of the first batch.
    head_bytes: u64,
    /// Offset of the next batch.
    end: u64,
    /// crc of the last batch.
    crc: u32,
    /// Length of the file when it was rewritten, or size of its rows when it was opened.
    was_bytes: u64,
    /// Bytes of the file that are sure to survive a power cut.
    synced: u64,
    /// True if the file was created, so that its name may not survive a power cut.
    is_new: bool,
    /// True if the space was removed: no more writes.
    is_removed: bool,
    /// True after a failed sync: the content of the disk is unknown until the file is opened or written again.
    is_doubtful: bool,
    /// Rows that were read at the open, until they are asked for.
    fresh: Option<Table>,
    /// The loss before the open, if any.
    damage: Option<String>,
}

/// Rows by key.
type Table = BTreeMap<Vec<u8>, Vec<u8>>;

struct LogSpace {
    disk: Arc<dyn Disk>,
    file_name: String,
    name: String,
    slack_bytes: u64,
    /// True if rows may be lost: then one that could not be synced is no reason to take no more.
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
            // After a power cut there may be no such file, or one without a head: there is no such space then, as it is.
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
            // The length of the file would not do: a space that is opened often would never find it twice as long.
            let rows_bytes: usize =
                all.iter().map(|(key, value)| row_bytes(key, Some(value))).sum();
            log.was_bytes = head_bytes + rows_bytes as u64;
            (log.end, log.crc, log.fresh) = (end, crc, Some(all));
            if spaces.on_damage == OnDamage::Forget {
                let is_damaged = log.goes_on()?;
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

    /// All rows.
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

    /// Writes a file with these rows alone, and has it take the place of that which is there.
    fn rewrite(&self, log: &mut Log, all: &Table) -> io::Result<()> {
        *log = Log::write(&*self.disk, &self.file_name, &self.name, all)?;
        // After a power cut the name may still refer to the file before, with its rows.
        self.disk.sync_names().inspect_err(|_| log.is_doubtful = true)
    }

    /// Writes the file again; where that cannot be, it is good as it is.
    fn shorten(&self, log: &mut Log) {
        let all = self.read(log);
        if all.is_ok_and(|all| self.rewrite(log, &all).is_ok()) {
            return;
        }
        let _ = self.disk.remove(&format!("{}{NEW}", self.file_name));
        // Not before it is as long again.
        log.was_bytes = log.end;
    }
}

impl Log {
    /// Writes a file of that name with exactly these rows. A crash leaves all of it, or the file before.
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
        // The file gets its name with the mark, or not at all.
        log.synced = log.end;
        log.mark()?;
        log.sync(disk)?;
        log.was_bytes = log.end;
        disk.rename(&new, file_name)?;
        Ok(log)
    }

    /// A file with a head and no rows.
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

    /// The rows up to `end`, or to a batch that is damaged. A mark at the end is left for the next batch to take its place.
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

    /// Writes and syncs everything after the first `synced` bytes again. The process before may have ended because it
    /// could not sync them; the operating system still shows them then, and does not know that they are not on the
    /// disk.
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

    /// Returns true if something behind its end, which cannot be read, had been synced: a batch further on says so.
    fn was_longer(&self) -> io::Result<bool> {
        let mut rest = vec![0; self.file.bytes()?.saturating_sub(self.end) as usize];
        read_exact(&*self.file, &mut rest, self.end)?;
        Ok((1..rest.len()).any(|at| {
            let Some(head) = Head::read(&rest[at..]) else { return false };
            let had_been = self.end + 1..=self.end + at as u64;
            had_been.contains(&head.synced) && head.rows(&rest[at..]).is_some()
        }))
    }

    /// Returns true if a whole batch with rows is behind its end: then something between them does not read back, whereas a process
    /// that ended while it wrote leaves no more than a part of a batch.
    fn goes_on(&self) -> io::Result<bool> {
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
        // If there is no room for the mark, the rows are synced all the same.
        let _ = self.mark();
        Ok(())
    }

    /// Says that all of the file is synced, where the next batch goes.
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
    /// End of the last batch with rows, and its crc.
    end: u64,
    crc: u32,
    /// Bytes that were sure to survive a power cut, according to the last batch.
    synced: u64,
}

/// A batch, with room for its head.
#[derive(Default)]
struct Batch(Vec<u8>);

impl Batch {
    /// Returns a batch without rows, which records how much was synced.
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

    /// The bytes and the crc of a batch that comes after one with the crc `before`, with so much of the file synced.
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

/// The first bytes of a batch.
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

    /// The rows of a batch with this head, which `bytes` begin with; none where they are not whole.
    fn rows<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let length = usize::try_from(self.length).ok()?;
        let batch = bytes.get(..BATCH_HEAD_BYTES.checked_add(length)?)?;
        (checksum(batch) == self.crc).then_some(&batch[BATCH_HEAD_BYTES..])
    }
}

/// Returns the checksum of a batch with its head, without the crc itself.
fn checksum(batch: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&batch[..CRC_AT]);
    hasher.update(&batch[BATCH_HEAD_BYTES..]);
    hasher.finalize()
}

/// Goes through the batches of a file from `at` on, up to `end`, to one that is damaged, or until `take` gives false: it is given the
/// rows, where the next batch begins, and the head.
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

/// Goes through the rows of a batch; whether they are whole.
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

    /// Reads through the whole file.
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
            // Unlike a full disk, a failed sync leaves unknown content.
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
