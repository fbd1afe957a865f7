//! A log-structured store: one append-only log for all vBuckets of a bucket, and a table of locations in memory.
//!
//! ```text
//! commit ─► batch ─► 00000007.log   one write and one sync, into preallocated space
//!              └───► Locations      where each version is: 40 bytes a document, 27 a version of history, no keys
//! get, scan ◄─ read ◄─ segments     one read a document
//! compact:     00000003.log ─► 00000008.copy, then `locations` is saved, then 00000003.log is removed
//! open:        `locations`, and the batches after it
//! ```
//!
//! - A batch has a length, a checksum and a number, and is synced before the next is written. An unreadable batch was
//!   therefore never acknowledged if it is the last one, and is reported as damage if a later one exists.
//! - The last batch alone could be lost without a trace. The note `acknowledged` says how many batches were synced. It
//!   is written after each sync, but not synced itself until the store is closed.
//! - A written segment does not change until it is removed. A reader holds a handle, so that its versions stay
//!   readable.
//! - After a failed sync the contents of the disk are unknown. The store accepts no more commits until it is reopened.
//!   The open rewrites the last batch, because the operating system may have it in memory only.
//! - With a [`MasterKey`] documents, records and the table are encrypted, each document for itself. Numbers, lengths and
//!   checksums of batches and segments stay readable: recovery is the same with and without a key.

mod batch;
mod compact;
mod locations;
mod read;
mod recover;
mod saved;
mod sealed;
mod segment;
mod write;

use crate::disk::{Directory, Disk, DiskFile, failed};
use crate::seal::Nonces;
use crate::{Commit, Error, HistorySize, MasterKey, Scan, Store, Usage, Which, note};
use locations::Locations;
use nacre_types::{Document, Seqno, VbRecord, Vbid};
use parking_lot::{Mutex, RwLock};
use segment::Segment;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The options of a log store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// Size of a segment in bytes once there is enough data; the first segments are smaller. A larger commit gets a
    /// segment of its own size.
    pub segment_bytes: u32,
    /// A number unpredictable for clients, used and stored when the store is created. It prevents clients from choosing
    /// keys of equal hash, or values that imitate a batch.
    pub seed: u64,
}

impl LogOptions {
    /// 64 MiB: large enough that segments are rarely created, small enough that compacting one is quick.
    pub const SEGMENT_BYTES: u32 = 64 << 20;
}

impl Default for LogOptions {
    fn default() -> LogOptions {
        LogOptions { segment_bytes: LogOptions::SEGMENT_BYTES, seed: 0 }
    }
}

/// Stores the vBuckets of one bucket in a log.
pub struct LogStore {
    disk: Arc<dyn Disk>,
    options: LogOptions,
    /// The key, if the store is encrypted.
    master: Option<MasterKey>,
    salt: u64,
    /// Number of the next segment.
    next_segment: AtomicU32,
    note: Arc<dyn DiskFile>,
    /// Locked for reading during a look-up, and for writing while synced commits are applied; never during I/O.
    locations: RwLock<Locations>,
    /// Allows one writer at a time.
    writer: Mutex<write::Writer>,
    /// Allows one compaction at a time; commits and reads do not wait for it.
    compactor: Mutex<compact::Compactor>,
    /// Bytes of the last saved table, and of retired segments.
    saved_bytes: AtomicU64,
    retired_bytes: AtomicU64,
}

impl LogStore {
    /// Opens the store in the directory `path`. Creates it if `create` is set; otherwise it must exist.
    ///
    /// # Errors
    /// Any problem with the directory, named.
    pub fn open(path: &Path, create: bool, options: LogOptions) -> Result<LogStore, Error> {
        LogStore::open_with_key(path, create, options, None)
    }

    /// Opens the store in the directory `path` like [`LogStore::open`]. With a key, a new store is encrypted.
    ///
    /// # Errors
    /// [`Error::WrongKey`], [`Error::Encrypted`] and [`Error::NotEncrypted`] with nothing changed, and any problem with the
    /// directory, named.
    pub fn open_with_key(
        path: &Path,
        create: bool,
        options: LogOptions,
        master: Option<MasterKey>,
    ) -> Result<LogStore, Error> {
        if !create && !path.join(note::NAME).exists() {
            return Err(Error::Damaged { path: path.to_owned(), what: recover::MISSING.into() });
        }
        LogStore::open_on_with_key(Arc::new(Directory::open(path)?), create, options, master)
    }

    /// Opens the store on a disk, which may be a simulated one.
    ///
    /// # Errors
    /// Any problem with the stored data, named.
    pub fn open_on(
        disk: Arc<dyn Disk>,
        create: bool,
        options: LogOptions,
    ) -> Result<LogStore, Error> {
        LogStore::open_on_with_key(disk, create, options, None)
    }

    /// Opens the store on a disk like [`LogStore::open_with_key`].
    ///
    /// # Errors
    /// As for [`LogStore::open_with_key`].
    pub fn open_on_with_key(
        disk: Arc<dyn Disk>,
        create: bool,
        options: LogOptions,
        master: Option<MasterKey>,
    ) -> Result<LogStore, Error> {
        recover::open(disk, create, options, master)
    }

    /// Returns the nonces of the next write, if the store is encrypted.
    fn nonces(&self) -> Result<Option<Nonces>, Error> {
        let nonces = self.master.as_ref().map(|_| Nonces::random()).transpose();
        nonces.map_err(|error| self.failed("encrypt for", error))
    }

    fn create_segment(&self, kind: segment::Kind, bytes: u64) -> Result<Arc<Segment>, Error> {
        let number = self.next_segment.fetch_add(1, Ordering::Relaxed);
        Segment::create(&*self.disk, number, kind, bytes, self.salt, self.master.as_ref())
            .map(Arc::new)
            .map_err(|error| self.failed("create a segment of", error))
    }

    /// Returns the size of the next segment: a sixteenth of the data up to `segment_bytes`, so that a small bucket
    /// stays small, and 1/256 of the data beyond that, so that a large bucket does not need thousands of open files.
    fn segment_bytes(&self) -> u64 {
        const SEGMENT_BYTES_END: u64 = 1 << 31;
        let most = u64::from(self.options.segment_bytes);
        let data: u64 = self.locations.read().segments.values().map(|segment| segment.bytes).sum();
        (data / 16).clamp(most / 16, most).max(data / 256).min(SEGMENT_BYTES_END)
    }

    /// Returns the bytes of current versions.
    fn live_bytes(&self) -> u64 {
        let segments = Arc::clone(&self.locations.read().segments);
        segments.values().map(|segment| segment.live_bytes.load(Ordering::Relaxed)).sum()
    }

    fn failed(&self, what: &str, error: io::Error) -> Error {
        failed(&*self.disk, what, error)
    }

    fn damaged(&self, what: impl Into<String>) -> Error {
        Error::Damaged { path: self.disk.path().to_owned(), what: what.into() }
    }
}

impl Store for LogStore {
    fn commit(&self, commits: &[Commit]) -> Result<(), Error> {
        self.write(commits)
    }

    fn records(&self) -> Result<Vec<(Vbid, VbRecord)>, Error> {
        let locations = self.locations.read();
        Ok(locations
            .vbuckets()
            .filter_map(|(vbid, versions)| Some((vbid, versions.record.clone()?)))
            .collect())
    }

    fn scan(&self, vbid: Vbid, after: Seqno, which: Which) -> Result<Scan, Error> {
        self.read_after(vbid, after, which)
    }

    fn get(&self, vbid: Vbid, key: &[u8]) -> Result<Option<Document>, Error> {
        self.read_key(vbid, key)
    }

    fn visit(&self, each: &mut dyn FnMut(Vbid, Document)) -> Result<(), Error> {
        self.read_everything(each)
    }

    fn usage(&self) -> Usage {
        let segments = Arc::clone(&self.locations.read().segments);
        let data: u64 = segments.values().map(|segment| segment.bytes).sum();
        let saved = self.saved_bytes.load(Ordering::Relaxed);
        let retired = self.retired_bytes.load(Ordering::Relaxed);
        Usage { disk_bytes: data + saved + retired, live_bytes: self.live_bytes() + saved }
    }

    fn compact(&self, fragmentation_percent: u8) -> Result<u64, Error> {
        self.compact_step(fragmentation_percent)
    }

    fn previous(&self, vbid: Vbid, seqno: Seqno) -> Result<Option<Document>, Error> {
        self.read_previous(vbid, seqno)
    }

    fn keeps_history(&self) -> bool {
        true
    }

    fn history(&self) -> Vec<(Vbid, HistorySize)> {
        let locations = self.locations.read();
        let sizes = locations.vbuckets().map(|(vbid, versions)| (vbid, versions.history()));
        sizes.filter(|(_, size)| size.versions > 0).collect()
    }

    fn history_within(&self, vbid: Vbid, limit: HistorySize) -> Seqno {
        self.locations
            .read()
            .versions(vbid)
            .map_or(Seqno::ZERO, |found| found.history_within(limit))
    }
}

impl Drop for LogStore {
    fn drop(&mut self) {
        self.close();
    }
}
