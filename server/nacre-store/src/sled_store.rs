//! The store on sled 0.34: one tree for all vBuckets of a bucket, one atomic batch per commit. The rows are those of
//! `rows.rs`.
//!
//! sled leaves three tasks to its user:
//! - `flush` writes but does not sync on Linux, so this store syncs the database file (and the files of large values);
//! - a batch is atomic, but a large one needs several times its size in memory: small commits share a batch, up to
//!   [`COMMIT_DOCUMENTS_MAX`] documents;
//! - a log with a damaged end opens as if it were shorter: the note `acknowledged` next to the database counts the synced
//!   commits, and a database with fewer is refused.

use crate::codec::{decode_document, decode_record, encode_document, encode_record, seqno_of};
use crate::note::{self, Note};
use crate::rows::{BY_KEY, BY_SEQNO, FORMAT, RECORD, meta_row, row, shown, vbid_of};
use crate::store::COMMIT_DOCUMENTS_MAX;
use crate::{Commit, Error, Scan, Store, Usage, Which};
use nacre_types::{Document, Seqno, VbRecord, Vbid};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{File, TryLockError};
use std::ops::Deref;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Larger values are in separate files, which must also be synced. sled's own limit is near 128 KiB.
const BLOB_BYTES_MIN: usize = 32 * 1024;
/// Rows read at a time by a scan.
const SCAN_ROWS: usize = 256;

/// Overwritten versions that scans in progress still need.
#[derive(Default)]
struct Retained(Mutex<BTreeMap<u64, Document>>);

struct Pin {
    end: Seqno,
    retained: Weak<Retained>,
}

#[derive(Default)]
struct Writer {
    commits: u64,
    counts: HashMap<Vbid, u64>,
    pins: HashMap<Vbid, Vec<Pin>>,
}

/// Keeps the vBuckets of one bucket in a sled database.
pub struct SledStore {
    path: PathBuf,
    database: Arc<Database>,
    note: Note,
    /// Allows one writer at a time; a scan locks it only to begin.
    writer: Mutex<Writer>,
}

impl SledStore {
    /// Opens the database in `path`. Creates it if `create` is set; otherwise it must exist.
    ///
    /// # Errors
    /// Any problem with the directory, named.
    pub fn open(path: &Path, create: bool, cache_bytes: u64) -> Result<SledStore, Error> {
        let damaged = |what: &str| Error::Damaged { path: path.to_owned(), what: what.to_owned() };
        if !create && !path.join(note::NAME).exists() {
            return Err(damaged("it is missing or empty, but its bucket was created before"));
        }
        crate::disk::create_private_directory(path)
            .map_err(Error::io(format!("create {}", path.display())))?;
        let database = Arc::new(open_database(&path.join("sled"), cache_bytes)?);
        let note = Note::open(path)?;
        let store = SledStore { path: path.to_owned(), database, note, writer: Mutex::default() };
        store.check()?;
        Ok(store)
    }

    /// Compares the database with the acknowledged commits, and loads the counters for the next commits.
    fn check(&self) -> Result<(), Error> {
        let damaged = |what: String| Err(Error::Damaged { path: self.path.clone(), what });
        let acknowledged = self.note.read()?;
        let Some(format) = self.number(&meta_row("format"))? else {
            if acknowledged > 0 || !self.database.is_empty() {
                return damaged(format!("{acknowledged} commits were acknowledged, none is there"));
            }
            self.database
                .insert(meta_row("format"), &u64::from(FORMAT).to_be_bytes())
                .map_err(|error| self.failed("write the format", error))?;
            self.sync(false)?;
            self.note.write(0)?;
            // The files exist; make their names durable as well.
            sync_directory(&self.path.join("sled"))?;
            return sync_directory(&self.path);
        };
        if format != u64::from(FORMAT) {
            let found = u32::try_from(format).unwrap_or(u32::MAX);
            return Err(Error::Format { path: self.path.clone(), found, expected: FORMAT });
        }
        let commits = self.number(&meta_row("commits"))?.unwrap_or(0);
        if commits < acknowledged {
            return damaged(format!(
                "{acknowledged} commits were acknowledged, but the database ends after {commits}"
            ));
        }
        let counts = self
            .records()?
            .into_iter()
            .map(|(vbid, record)| (vbid, record.document_count))
            .collect();
        *self.writer.lock() = Writer { commits, counts, pins: HashMap::new() };
        Ok(())
    }

    fn number(&self, row: &[u8]) -> Result<Option<u64>, Error> {
        let value = self.database.get(row).map_err(|error| self.failed("read", error))?;
        let Some(value) = value else { return Ok(None) };
        let bytes = <[u8; 8]>::try_from(&value[..]).map_err(|_| Error::Damaged {
            path: self.path.clone(),
            what: format!("row {:?} is not a number", String::from_utf8_lossy(&row[1..])),
        })?;
        Ok(Some(u64::from_be_bytes(bytes)))
    }

    /// Writes commits of distinct vBuckets as one atomic batch.
    fn write(&self, writer: &mut Writer, commits: &[Commit]) -> Result<(), Error> {
        let mut batch = sled::Batch::default();
        let mut counts = Vec::with_capacity(commits.len());
        for commit in commits {
            counts.push((commit.vbid, self.stage(writer, &mut batch, commit)?));
        }
        batch.insert(meta_row("commits"), &(writer.commits + 1).to_be_bytes());
        self.database.apply_batch(batch).map_err(|error| self.failed("write", error))?;
        writer.commits += 1;
        writer.counts.extend(counts);
        Ok(())
    }

    /// Adds the rows of a commit to `batch`. Returns the resulting document count of the vBucket.
    fn stage(
        &self,
        writer: &mut Writer,
        batch: &mut sled::Batch,
        commit: &Commit,
    ) -> Result<u64, Error> {
        let vbid = commit.vbid;
        let mut document_count = writer.counts.get(&vbid).copied().unwrap_or(0);
        for document in &commit.documents {
            let key_row = row(BY_KEY, vbid, document.key());
            let old = self.database.get(&key_row).map_err(|error| self.failed("read", error))?;
            match old.as_deref().and_then(|stored| Some((seqno_of(stored)?, stored))) {
                Some((seqno, stored)) => {
                    self.retain(writer, vbid, seqno, document.key(), &key_row, stored);
                    batch.remove(row(BY_SEQNO, vbid, &seqno.0.to_be_bytes()));
                }
                None => document_count += 1,
            }
            batch.insert(row(BY_SEQNO, vbid, &document.meta.seqno.0.to_be_bytes()), document.key());
            let stored = encode_document(&key_row, document);
            batch.insert(key_row, stored);
        }
        // A set: staged keys are still in the tree, so a key named twice would be counted twice.
        for (key, seqno) in commit.erased.iter().collect::<BTreeSet<_>>() {
            let key_row = row(BY_KEY, vbid, key);
            let old = self.database.get(&key_row).map_err(|error| self.failed("read", error))?;
            let Some(stored) = old.filter(|stored| seqno_of(stored) == Some(*seqno)) else {
                continue;
            };
            // A newer version in this commit has already replaced it.
            if commit.documents.iter().any(|document| document.key() == &key[..]) {
                continue;
            }
            self.retain(writer, vbid, *seqno, key, &key_row, &stored);
            batch.remove(row(BY_SEQNO, vbid, &seqno.0.to_be_bytes()));
            batch.remove(key_row);
            document_count -= 1;
        }
        let record_row = row(RECORD, vbid, &[]);
        let record = VbRecord { document_count, ..commit.record.clone() };
        batch.insert(&record_row[..], encode_record(&record_row, &record));
        Ok(document_count)
    }

    /// Retains a version that is about to be overwritten, for the scans that still need it.
    fn retain(
        &self,
        writer: &mut Writer,
        vbid: Vbid,
        seqno: Seqno,
        key: &[u8],
        row: &[u8],
        stored: &[u8],
    ) {
        let Some(pins) = writer.pins.get_mut(&vbid) else { return };
        pins.retain(|pin| pin.retained.strong_count() > 0);
        let readers =
            pins.iter().filter(|pin| pin.end >= seqno).filter_map(|pin| pin.retained.upgrade());
        for reader in readers {
            if let Some(document) = decode_document(row, key, stored) {
                reader.0.lock().insert(seqno.0, document);
            }
        }
        if pins.is_empty() {
            writer.pins.remove(&vbid);
        }
    }

    fn sync(&self, blobs: bool) -> Result<(), Error> {
        self.database.flush().map_err(|error| self.failed("flush", error))?;
        sync_file(&self.path.join("sled").join("db"))?;
        if blobs {
            sync_directory(&self.path.join("sled").join("blobs"))?;
        }
        Ok(())
    }

    fn failed(&self, what: &str, error: sled::Error) -> Error {
        from_sled(&self.path, what, error)
    }
}

impl Store for SledStore {
    fn commit(&self, commits: &[Commit]) -> Result<(), Error> {
        let mut writer = self.writer.lock();
        let mut rest = commits;
        while !rest.is_empty() {
            let (group, after) = rest.split_at(batch_length(rest));
            self.write(&mut writer, group)?;
            rest = after;
        }
        let blobs = commits
            .iter()
            .flat_map(|commit| &commit.documents)
            .any(|document| document.value().len() >= BLOB_BYTES_MIN);
        self.sync(blobs)?;
        self.note.write(writer.commits)
    }

    fn records(&self) -> Result<Vec<(Vbid, VbRecord)>, Error> {
        self.database
            .scan_prefix([RECORD])
            .map(|entry| {
                let (row, value) = entry.map_err(|error| self.failed("read the records", error))?;
                let damaged = |what: String| Error::Damaged { path: self.path.clone(), what };
                let vbid =
                    vbid_of(&row).ok_or_else(|| damaged("a record has no vBucket".into()))?;
                let record = decode_record(&row, &value);
                Ok((
                    vbid,
                    record.ok_or_else(|| {
                        damaged(format!("the record of {vbid} does not match its checksum"))
                    })?,
                ))
            })
            .collect()
    }

    fn scan(&self, vbid: Vbid, after: Seqno, _which: Which) -> Result<Scan, Error> {
        let mut writer = self.writer.lock();
        let record_row = row(RECORD, vbid, &[]);
        let record =
            self.database.get(&record_row).map_err(|error| self.failed("read a record", error))?;
        let end = match record {
            None => after,
            Some(value) => {
                let record = decode_record(&record_row, &value);
                let wrong = || Error::Inconsistent {
                    vbid,
                    what: "its record does not match its checksum".into(),
                };
                record.ok_or_else(wrong)?.high_seqno
            }
        };
        let retained = Arc::new(Retained::default());
        writer.pins.entry(vbid).or_default().push(Pin { end, retained: Arc::downgrade(&retained) });
        let rows = Rows {
            database: Arc::clone(&self.database),
            path: self.path.clone(),
            vbid,
            next: after.next(),
            end,
            retained,
            ready: Vec::new().into_iter(),
        };
        Ok(Scan { end, history_start: None, documents: Box::new(rows) })
    }

    fn get(&self, vbid: Vbid, key: &[u8]) -> Result<Option<Document>, Error> {
        let row = row(BY_KEY, vbid, key);
        let Some(stored) = self.database.get(&row).map_err(|error| self.failed("read", error))?
        else {
            return Ok(None);
        };
        let damaged = || Error::Inconsistent {
            vbid,
            what: format!("the document {} is damaged", shown(key)),
        };
        decode_document(&row, key, &stored).map(Some).ok_or_else(damaged)
    }

    /// sled does not report how much of its file is current data.
    fn usage(&self) -> Usage {
        let disk_bytes = self.database.size_on_disk().unwrap_or(0);
        Usage { disk_bytes, live_bytes: disk_bytes }
    }

    /// sled reclaims space on its own.
    fn compact(&self, _fragmentation_percent: u8) -> Result<u64, Error> {
        Ok(0)
    }
}

/// Returns how many of `commits` form the next batch: at least one, no vBucket twice, and a limited number of
/// documents.
fn batch_length(commits: &[Commit]) -> usize {
    let mut vbuckets = BTreeSet::new();
    let mut documents = 0;
    let fits = |commit: &&Commit| {
        documents += commit.documents.len();
        vbuckets.insert(commit.vbid) && (documents <= COMMIT_DOCUMENTS_MAX || vbuckets.len() == 1)
    };
    commits.iter().take_while(fits).count()
}

/// A scan in progress. It reads some rows at a time, and takes versions overwritten since its start from `retained`.
struct Rows {
    database: Arc<Database>,
    path: PathBuf,
    vbid: Vbid,
    next: Seqno,
    end: Seqno,
    retained: Arc<Retained>,
    ready: std::vec::IntoIter<Document>,
}

impl Rows {
    /// Reads the next rows. The order matters: a version leaves the tree only after it was retained, so reading the
    /// tree first and `retained` second misses nothing.
    fn fill(&mut self) -> Result<(), Error> {
        let first = row(BY_SEQNO, self.vbid, &self.next.0.to_be_bytes());
        let last = row(BY_SEQNO, self.vbid, &self.end.0.to_be_bytes());
        let mut found: BTreeMap<u64, Document> = BTreeMap::new();
        let mut reached = self.end;
        for (index, entry) in self.database.range(first..=last).enumerate() {
            let (seqno_row, key) = entry.map_err(|error| from_sled(&self.path, "scan", error))?;
            let seqno = u64::from_be_bytes(
                seqno_row[3..11].try_into().expect("rows of history end in a seqno"),
            );
            if index == SCAN_ROWS {
                reached = Seqno(seqno - 1);
                break;
            }
            let key_row = row(BY_KEY, self.vbid, &key);
            let stored = self
                .database
                .get(&key_row)
                .map_err(|error| from_sled(&self.path, "scan", error))?;
            let Some(stored) = stored else {
                return Err(self.damaged(format!("the document {} is missing", shown(&key))));
            };
            if seqno_of(&stored) == Some(Seqno(seqno)) {
                let document = decode_document(&key_row, &key, &stored);
                let document = document.ok_or_else(|| {
                    self.damaged(format!("the document {} is damaged", shown(&key)))
                })?;
                found.insert(seqno, document);
            }
        }
        let retained = self.retained.0.lock();
        found.extend(
            retained
                .range(self.next.0..=reached.0)
                .map(|(seqno, document)| (*seqno, document.clone())),
        );
        self.next = reached.next();
        self.ready = found.into_values().collect::<Vec<_>>().into_iter();
        Ok(())
    }

    fn damaged(&self, what: String) -> Error {
        Error::Inconsistent { vbid: self.vbid, what }
    }
}

impl Iterator for Rows {
    type Item = Result<Document, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(document) = self.ready.next() {
                return Some(Ok(document));
            }
            if self.next > self.end {
                return None;
            }
            if let Err(error) = self.fill() {
                self.next = self.end.next();
                return Some(Err(error));
            }
        }
    }
}

fn from_sled(path: &Path, what: &str, error: sled::Error) -> Error {
    match error {
        // sled passes some errors as the debug text of the original; the kind of the original has a readable message.
        sled::Error::Io(source) if source.to_string().starts_with("Os {") => {
            Error::Io { what: format!("{what} {}", path.display()), source: source.kind().into() }
        }
        sled::Error::Io(source) => Error::Io { what: format!("{what} {}", path.display()), source },
        other => Error::Damaged { path: path.to_owned(), what: format!("{what}: {other}") },
    }
}

/// How long an open waits for the threads of a database that this process has closed. They release its file shortly
/// after the last handle is dropped.
const CLOSE_WAIT: Duration = Duration::from_secs(5);

/// A sled database, and a lock that excludes other processes and other handles of this process.
///
/// sled locks its own file too, but its threads hold that lock slightly longer than the last handle. With a separate
/// lock, "in use" and "about to close" can be distinguished.
struct Database {
    tree: sled::Db,
    _lock: File,
}

impl Deref for Database {
    type Target = sled::Db;

    fn deref(&self) -> &sled::Db {
        &self.tree
    }
}

/// Opens sled defensively: a damaged file may make it panic, and a half-written snapshot prevents it from opening.
fn open_database(path: &Path, cache_bytes: u64) -> Result<Database, Error> {
    let lock = lock_directory(path)?;
    if let Ok(entries) = std::fs::read_dir(path) {
        let unfinished = entries.flatten().map(|entry| entry.path()).filter(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(".generating"))
        });
        for file in unfinished {
            let aside = file.with_extension("unfinished");
            std::fs::rename(&file, aside)
                .map_err(Error::io(format!("move {} aside", file.display())))?;
        }
    }
    let config = sled::Config::new().path(path).cache_capacity(cache_bytes).flush_every_ms(None);
    let give_up = Instant::now() + CLOSE_WAIT;
    loop {
        let opened = std::panic::catch_unwind(AssertUnwindSafe(|| config.open()));
        return match opened {
            Ok(Ok(tree)) => Ok(Database { tree, _lock: lock }),
            Ok(Err(error)) if !is_locked(&error) => Err(from_sled(path, "open", error)),
            Ok(Err(_)) if Instant::now() < give_up => {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            Ok(Err(_)) => Err(Error::InUse { path: path.to_owned() }),
            Err(_) => Err(Error::Damaged {
                path: path.to_owned(),
                what: "the database cannot be opened".into(),
            }),
        };
    }
}

/// Locks the file `<path>.lock`. It is next to the database because sled accepts no foreign file in its directory.
fn lock_directory(path: &Path) -> Result<File, Error> {
    let name = path.with_extension("lock");
    let failed = |source| Error::Io { what: format!("lock {}", name.display()), source };
    if let Some(parent) = path.parent() {
        crate::disk::create_private_directory(parent).map_err(failed)?;
    }
    let file = File::options().create(true).append(true).open(&name).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::InUse { path: path.to_owned() }),
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}

fn is_locked(error: &sled::Error) -> bool {
    matches!(error, sled::Error::Io(source)
        if source.kind() == std::io::ErrorKind::WouldBlock
            || source.to_string().contains("could not acquire lock"))
}

fn sync_file(path: &Path) -> Result<(), Error> {
    File::open(path)
        .and_then(|file| file.sync_data())
        .map_err(Error::io(format!("sync {}", path.display())))
}

/// Syncs the files of a directory and the directory itself. A missing directory needs no sync.
pub(crate) fn sync_directory(path: &Path) -> Result<(), Error> {
    let Ok(entries) = std::fs::read_dir(path) else { return Ok(()) };
    for entry in entries.flatten() {
        match sync_file(&entry.path()) {
            // A concurrently replaced value was removed, and nothing needs it.
            Err(_) if !entry.path().exists() => {}
            synced => synced?,
        }
    }
    sync_file(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_disappears_while_its_folder_is_synced_is_ignored() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("there"), b"1").unwrap();
        // Listed, but missing when it is opened.
        std::os::unix::fs::symlink("nowhere", folder.path().join("gone")).unwrap();
        sync_directory(folder.path()).unwrap();
    }
}
