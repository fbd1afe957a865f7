//! The store on fjall 3: a log-structured merge tree, with one atomic batch per commit. The rows are those of
//! `rows.rs`.
//!
//! Built only with the feature `fjall`, as a benchmark reference. Scans read a snapshot of the engine.

use crate::codec::{decode_document, decode_record, encode_document, encode_record, seqno_of};
use crate::note::{self, Note};
use crate::rows::{BY_KEY, BY_SEQNO, FORMAT, RECORD, meta_row, row, shown, vbid_of};
use crate::{Commit, Error, Scan, Store, Usage, Which};
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode, Readable, Snapshot};
use nacre_types::{Document, Seqno, VbRecord, Vbid};
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

#[derive(Default)]
struct Writer {
    commits: u64,
    counts: HashMap<Vbid, u64>,
}

/// Keeps the vBuckets of one bucket in a fjall database.
pub struct FjallStore {
    path: PathBuf,
    database: Database,
    rows: Keyspace,
    note: Note,
    writer: Mutex<Writer>,
}

impl FjallStore {
    /// Opens the database in `path`. Creates it if `create` is set; otherwise it must exist.
    ///
    /// # Errors
    /// Any problem with the directory, named.
    pub fn open(path: &Path, create: bool, cache_bytes: u64) -> Result<FjallStore, Error> {
        let damaged = |what: &str| Error::Damaged { path: path.to_owned(), what: what.to_owned() };
        if !create && !path.join(note::NAME).exists() {
            return Err(damaged("it is missing or empty, but its bucket was created before"));
        }
        crate::disk::create_private_directory(path)
            .map_err(Error::io(format!("create {}", path.display())))?;
        let failed = |error| from_fjall(path, "open", error);
        let database =
            Database::builder(path.join("fjall")).cache_size(cache_bytes).open().map_err(failed)?;
        let rows = database.keyspace("rows", KeyspaceCreateOptions::default).map_err(failed)?;
        let note = Note::open(path)?;
        let store =
            FjallStore { path: path.to_owned(), database, rows, note, writer: Mutex::default() };
        store.check()?;
        Ok(store)
    }

    /// Compares the database with the acknowledged commits, and loads the counters for the next commits.
    fn check(&self) -> Result<(), Error> {
        let damaged = |what: String| Error::Damaged { path: self.path.clone(), what };
        let acknowledged = self.note.read()?;
        let commits = self.number("commits")?.unwrap_or(0);
        match self.number("format")? {
            None if acknowledged == 0 && commits == 0 => {
                let mut batch = self.database.batch().durability(Some(PersistMode::SyncAll));
                batch.insert(&self.rows, meta_row("format"), u64::from(FORMAT).to_be_bytes());
                batch.commit().map_err(|error| self.failed("write the format", error))?;
                self.note.write(0)?;
                crate::sled_store::sync_directory(&self.path)?;
            }
            Some(format) if format != u64::from(FORMAT) => {
                let found = u32::try_from(format).unwrap_or(u32::MAX);
                return Err(Error::Format { path: self.path.clone(), found, expected: FORMAT });
            }
            _ if commits < acknowledged => {
                return Err(damaged(format!(
                    "{acknowledged} commits were acknowledged, but the database ends after {commits}"
                )));
            }
            _ => {}
        }
        let counts = self.records()?;
        let counts = counts.into_iter().map(|(vbid, record)| (vbid, record.document_count));
        *self.writer.lock() = Writer { commits, counts: counts.collect() };
        Ok(())
    }

    fn number(&self, name: &str) -> Result<Option<u64>, Error> {
        let value = self.rows.get(meta_row(name)).map_err(|error| self.failed("read", error))?;
        let Some(value) = value else { return Ok(None) };
        let what = format!("row {name:?} is not a number");
        let bytes = <[u8; 8]>::try_from(&value[..])
            .map_err(|_| Error::Damaged { path: self.path.clone(), what })?;
        Ok(Some(u64::from_be_bytes(bytes)))
    }

    /// Writes commits of distinct vBuckets as one atomic batch.
    fn write(
        &self,
        writer: &mut Writer,
        commits: &[Commit],
        persist: Option<PersistMode>,
    ) -> Result<(), Error> {
        let mut batch = self.database.batch().durability(persist);
        let mut counts = Vec::with_capacity(commits.len());
        for Commit { vbid, record, documents, erased, .. } in commits {
            let vbid = *vbid;
            let mut document_count = writer.counts.get(&vbid).copied().unwrap_or(0);
            // A set, because a key named twice would count twice.
            for (key, seqno) in erased.iter().collect::<BTreeSet<_>>() {
                let replaced = documents.iter().any(|document| document.key() == &key[..]);
                if !replaced && self.stored_seqno(vbid, key)? == Some(*seqno) {
                    batch.remove(&self.rows, row(BY_SEQNO, vbid, &seqno.0.to_be_bytes()));
                    batch.remove(&self.rows, row(BY_KEY, vbid, key));
                    document_count -= 1;
                }
            }
            for document in documents {
                match self.stored_seqno(vbid, document.key())? {
                    Some(seqno) => {
                        batch.remove(&self.rows, row(BY_SEQNO, vbid, &seqno.0.to_be_bytes()));
                    }
                    None => document_count += 1,
                }
                let seqno = document.meta.seqno.0.to_be_bytes();
                batch.insert(&self.rows, row(BY_SEQNO, vbid, &seqno), document.key());
                let key_row = row(BY_KEY, vbid, document.key());
                let stored = encode_document(&key_row, document);
                batch.insert(&self.rows, key_row, stored);
            }
            let record_row = row(RECORD, vbid, &[]);
            let record = VbRecord { document_count, ..record.clone() };
            let stored = encode_record(&record_row, &record);
            batch.insert(&self.rows, record_row, stored);
            counts.push((vbid, document_count));
        }
        batch.insert(&self.rows, meta_row("commits"), (writer.commits + 1).to_be_bytes());
        batch.commit().map_err(|error| self.failed("write", error))?;
        writer.commits += 1;
        writer.counts.extend(counts);
        Ok(())
    }

    fn stored_seqno(&self, vbid: Vbid, key: &[u8]) -> Result<Option<Seqno>, Error> {
        let stored = self.rows.get(row(BY_KEY, vbid, key));
        let stored = stored.map_err(|error| self.failed("read", error))?;
        Ok(stored.and_then(|stored| seqno_of(&stored)))
    }

    fn failed(&self, what: &str, error: fjall::Error) -> Error {
        from_fjall(&self.path, what, error)
    }
}

impl Store for FjallStore {
    fn commit(&self, commits: &[Commit]) -> Result<(), Error> {
        let mut writer = self.writer.lock();
        let mut rest = commits;
        while !rest.is_empty() {
            let mut vbuckets = BTreeSet::new();
            let count = rest.iter().take_while(|commit| vbuckets.insert(commit.vbid)).count();
            let (batch, after) = rest.split_at(count);
            // All batches share one journal, so the last sync covers them.
            let persist = after.is_empty().then_some(PersistMode::SyncData);
            self.write(&mut writer, batch, persist)?;
            rest = after;
        }
        self.note.write(writer.commits)
    }

    fn records(&self) -> Result<Vec<(Vbid, VbRecord)>, Error> {
        let damaged = |what: String| Error::Damaged { path: self.path.clone(), what };
        let rows = self.rows.prefix([RECORD]);
        rows.map(|entry| {
            let (row, value) =
                entry.into_inner().map_err(|error| self.failed("read the records", error))?;
            let vbid = vbid_of(&row).ok_or_else(|| damaged("a record has no vBucket".into()))?;
            let record = decode_record(&row, &value);
            let wrong = || damaged(format!("the record of {vbid} does not match its checksum"));
            Ok((vbid, record.ok_or_else(wrong)?))
        })
        .collect()
    }

    fn scan(&self, vbid: Vbid, after: Seqno, _which: Which) -> Result<Scan, Error> {
        let snapshot = self.database.snapshot();
        let record_row = row(RECORD, vbid, &[]);
        let record = snapshot
            .get(&self.rows, &record_row)
            .map_err(|error| self.failed("read a record", error))?;
        let end = match record {
            None => after,
            Some(stored) => {
                let what = "its record does not match its checksum".into();
                decode_record(&record_row, &stored)
                    .ok_or(Error::Inconsistent { vbid, what })?
                    .high_seqno
            }
        };
        let first = row(BY_SEQNO, vbid, &after.next().0.to_be_bytes());
        let last = row(BY_SEQNO, vbid, &end.0.to_be_bytes());
        let history: Box<dyn Iterator<Item = fjall::Guard> + Send> = match first <= last {
            true => Box::new(snapshot.range(&self.rows, first..=last)),
            false => Box::new(std::iter::empty()),
        };
        let (rows, path) = (self.rows.clone(), self.path.clone());
        let documents = history.map(move |entry| {
            let key = entry.into_inner().map_err(|error| from_fjall(&path, "scan", error))?.1;
            read(&snapshot, &rows, &path, vbid, &key)?.ok_or_else(|| {
                let what = format!("the document {} is missing", shown(&key));
                Error::Inconsistent { vbid, what }
            })
        });
        Ok(Scan { end, history_start: None, documents: Box::new(documents) })
    }

    fn get(&self, vbid: Vbid, key: &[u8]) -> Result<Option<Document>, Error> {
        read(&self.database.snapshot(), &self.rows, &self.path, vbid, key)
    }

    /// fjall does not report how much of its files is current data.
    fn usage(&self) -> Usage {
        let disk_bytes = self.database.disk_space().unwrap_or(0);
        Usage { disk_bytes, live_bytes: disk_bytes }
    }

    /// fjall compacts in its own threads.
    fn compact(&self, _fragmentation_percent: u8) -> Result<u64, Error> {
        Ok(0)
    }
}

fn read(
    snapshot: &Snapshot,
    rows: &Keyspace,
    path: &Path,
    vbid: Vbid,
    key: &[u8],
) -> Result<Option<Document>, Error> {
    let row = row(BY_KEY, vbid, key);
    let stored = snapshot.get(rows, &row).map_err(|error| from_fjall(path, "read", error))?;
    let Some(stored) = stored else { return Ok(None) };
    let what = || format!("the document {} is damaged", shown(key));
    decode_document(&row, key, &stored)
        .map(Some)
        .ok_or_else(|| Error::Inconsistent { vbid, what: what() })
}

fn from_fjall(path: &Path, what: &str, error: fjall::Error) -> Error {
    match error {
        fjall::Error::Io(source) | fjall::Error::Storage(fjall::LsmError::Io(source)) => {
            Error::Io { what: format!("{what} {}", path.display()), source }
        }
        fjall::Error::Locked => Error::InUse { path: path.to_owned() },
        other => Error::Damaged { path: path.to_owned(), what: format!("{what}: {other}") },
    }
}
