//! The folder of a database: its lock, its settings, and the store of its documents.
//!
//! ```text
//! folder/lock        flock'ed while a process has it open; contains the process ID
//! folder/settings/   a space of rows: format, key, bucket, store, seed, place, clean
//! folder/documents/  the store
//! ```
//!
//! In an encrypted folder `key` has the master key, which the key of the caller opens, and `bucket` is encrypted with it, as it
//! names scopes and collections. The row `key` is stored before anything is encrypted, and replaced as a whole.
//!
//! `place` is the device and inode of the folder. A folder that was copied, restored or moved to another disk has another `place`
//! and therefore starts another branch of history: a token for a change after the copy is never mistaken for a change written to
//! the copy.

use crate::{Error, Options, StoreKind};
use nacre_cluster::{Bucket, BucketKind, BucketSettings, Chain, EvictionPolicy, Manifest};
use nacre_store::{
    Key, LogOptions, LogSpaces, LogStore, MasterKey, OnDamage, Space, Spaces, Store, Write,
};
use nacre_types::NodeId;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write as _};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The newest format of a folder that this library reads. It is increased when an older library cannot read the folder.
const FORMAT: u32 = 2;
/// The format of a folder without a key, which the first version reads, too.
const PLAIN_FORMAT: u32 = 1;
/// The name for which the row `bucket` is encrypted.
const BUCKET_VALUE: &str = "bucket";
/// The node that has all copies of all vBuckets.
pub(crate) const NODE: NodeId = NodeId(1);
/// The name of the one bucket.
pub(crate) const BUCKET: &str = "default";

mod row {
    pub const FORMAT: &[u8] = b"format";
    pub const KEY: &[u8] = b"key";
    pub const BUCKET: &[u8] = b"bucket";
    pub const STORE: &[u8] = b"store";
    pub const SEED: &[u8] = b"seed";
    pub const PLACE: &[u8] = b"place";
    pub const CLEAN: &[u8] = b"clean";
}

/// The result of opening a folder: everything that a database needs.
pub(crate) struct Opened {
    pub config: Bucket,
    /// `None` for a database in memory.
    pub store: Option<Arc<dyn Store>>,
    /// True if the last process stored everything, and the folder has not been moved or copied.
    pub is_clean: bool,
    pub folder: Option<Folder>,
}

/// A folder that this process has locked.
pub(crate) struct Folder {
    settings: Arc<dyn Space>,
    /// `None` for a folder that is not encrypted.
    master: Option<MasterKey>,
    place: String,
    /// Unlocked when it is dropped.
    lock: File,
}

impl Folder {
    /// Stores scopes and collections.
    pub fn put(&self, config: &Bucket) -> Result<(), Error> {
        Ok(self.settings.apply(&[(row::BUCKET.to_vec(), Some(self.seal(config)?))], true)?)
    }

    /// Returns the row of the bucket, encrypted if the folder is.
    fn seal(&self, config: &Bucket) -> Result<Vec<u8>, Error> {
        let bytes = bytes_of(config)?;
        Ok(match &self.master {
            None => bytes,
            Some(master) => master.seal_value(BUCKET_VALUE, &bytes)?,
        })
    }

    /// Replaces the key. After a power cut the previous one or `key` opens the folder.
    pub fn rekey(&self, key: &Key) -> Result<(), Error> {
        let master = self.master.as_ref().ok_or(Error::NotEncrypted)?;
        self.settings.apply(&[(row::KEY.to_vec(), Some(master.lock(key)?))], true)?;
        // The file still has the row that the previous key opens.
        Ok(self.settings.rewrite()?)
    }

    /// Records that everything is stored.
    pub fn mark_clean(&self) -> Result<(), Error> {
        let place = self.place.clone().into_bytes();
        let rows: [Write; 2] =
            [(row::PLACE.to_vec(), Some(place)), (row::CLEAN.to_vec(), Some(Vec::new()))];
        Ok(self.settings.apply(&rows, true)?)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Child processes that were forked meanwhile share the lock, and would keep it.
        let _ = self.lock.unlock();
    }
}

fn bytes_of(config: &Bucket) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(config).map_err(|error| Error::InvalidArgument(error.to_string()))
}

/// Returns the bucket of a new database.
fn new_config(options: &Options, kind: BucketKind) -> Bucket {
    let eviction_policy = match kind {
        BucketKind::Persistent => EvictionPolicy::ValueOnly,
        BucketKind::Ephemeral => EvictionPolicy::None,
    };
    let settings = BucketSettings {
        kind,
        eviction_policy,
        ram_quota_mb: options.quota_mib,
        vbucket_count: options.vbuckets,
        ..BucketSettings::default()
    };
    Bucket {
        name: BUCKET.into(),
        uuid: format!("{:016x}{:016x}", options.clock.random(), options.clock.random()),
        settings,
        manifest: Manifest::default(),
        design_documents: BTreeMap::new(),
        indexes: Vec::new(),
        flushes: 0,
        chains: vec![Chain::new(vec![Some(NODE)]); usize::from(options.vbuckets)],
    }
}

/// Opens a database in memory.
pub(crate) fn in_memory(options: &Options) -> Opened {
    let config = new_config(options, BucketKind::Ephemeral);
    Opened { config, store: None, is_clean: true, folder: None }
}

/// Opens a database over a store of the caller.
pub(crate) fn over(store: Arc<dyn Store>, is_clean: bool, options: &Options) -> Opened {
    let config = new_config(options, BucketKind::Persistent);
    Opened { config, store: Some(store), is_clean, folder: None }
}

/// Opens a folder, and creates it if the options allow that.
pub(crate) fn open(path: &Path, options: &Options) -> Result<Opened, Error> {
    let io = |what: &str| {
        let what = format!("{what} {}", path.display());
        move |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => Error::Full,
            _ => Error::Io { what: format!("{what}: {error}") },
        }
    };
    if !options.create && !path.join("settings").exists() {
        return Err(Error::Io { what: format!("there is no database in {}", path.display()) });
    }
    nacre_store::create_private_directory(path).map_err(io("create"))?;
    let lock = lock(path, &io)?;
    let metadata = path.metadata().map_err(io("open"))?;
    let place = format!("{}:{}", metadata.dev(), metadata.ino());
    let spaces = LogSpaces::open(&path.join("settings"), OnDamage::Refuse)?;
    let settings = spaces.open("database")?;
    let rows: BTreeMap<Vec<u8>, Vec<u8>> = settings.load()?.into_iter().collect();
    let folder = Folder { settings, master: None, place, lock };
    match rows.get(row::BUCKET) {
        None => create(path, folder, &rows, options),
        Some(config) => reopen(path, folder, &rows, config, options),
    }
}

/// Locks the folder for this process.
fn lock<E>(path: &Path, io: &impl Fn(&str) -> E) -> Result<File, Error>
where
    E: FnOnce(std::io::Error) -> Error,
{
    let path: PathBuf = path.join("lock");
    let open = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path);
    let mut file = open.map_err(io("lock"))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut text = String::new();
            let pid = file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
            return Err(Error::InUse { pid: pid.unwrap_or(0) });
        }
        Err(TryLockError::Error(error)) => return Err(io("lock")(error)),
    }
    // Padded, so that the number overwrites a longer one of an earlier process. On a full disk only the number is missing.
    let _ = file.rewind().and_then(|()| writeln!(file, "{:<10}", std::process::id()));
    Ok(file)
}

/// Returns the master key of the folder, if it has one.
fn unlock(
    path: &Path,
    rows: &BTreeMap<Vec<u8>, Vec<u8>>,
    options: &Options,
) -> Result<Option<MasterKey>, Error> {
    match (rows.get(row::KEY), &options.key) {
        (Some(slot), Some(key)) => Ok(Some(MasterKey::unlock(slot, key, path)?)),
        (Some(_), None) => Err(Error::Encrypted),
        (None, Some(_)) if rows.contains_key(row::BUCKET) => Err(Error::NotEncrypted),
        (None, _) => Ok(None),
    }
}

fn create(
    path: &Path,
    mut folder: Folder,
    rows: &BTreeMap<Vec<u8>, Vec<u8>>,
    options: &Options,
) -> Result<Opened, Error> {
    // A process that ended here may have left a master key, and a store that is encrypted with it.
    folder.master = unlock(path, rows, options)?;
    let is_first_key = options.key.is_some() && folder.master.is_none();
    if let (Some(key), None) = (&options.key, &folder.master) {
        let master = MasterKey::random()?;
        folder.settings.apply(&[(row::KEY.to_vec(), Some(master.lock(key)?))], true)?;
        folder.master = Some(master);
    }
    let config = new_config(options, BucketKind::Persistent);
    let seed = options.clock.random();
    // The store first: a folder without settings is created again, over any remains of the store.
    let master = folder.master.clone();
    let format = if master.is_some() { FORMAT } else { PLAIN_FORMAT };
    let store = open_store(path, options.store, true, seed, options, master);
    if is_first_key && matches!(store, Err(Error::NotEncrypted)) {
        // A process without a key had begun to create the folder, which opens without one again.
        folder.settings.apply(&[(row::KEY.to_vec(), None)], true)?;
    }
    let store = store?;
    let text = |text: &str| Some(text.as_bytes().to_vec());
    let rows: [Write; 5] = [
        (row::FORMAT.to_vec(), text(&format.to_string())),
        (row::STORE.to_vec(), text(options.store.name())),
        (row::SEED.to_vec(), text(&seed.to_string())),
        (row::PLACE.to_vec(), text(&folder.place)),
        (row::BUCKET.to_vec(), Some(folder.seal(&config)?)),
    ];
    folder.settings.apply(&rows, true)?;
    Ok(Opened { config, store: Some(store), is_clean: true, folder: Some(folder) })
}

fn reopen(
    path: &Path,
    mut folder: Folder,
    rows: &BTreeMap<Vec<u8>, Vec<u8>>,
    config: &[u8],
    options: &Options,
) -> Result<Opened, Error> {
    let damaged = |what: &str| Error::Damaged { what: format!("{}: {what}", path.display()) };
    let text = |row: &[u8]| std::str::from_utf8(rows.get(row).map_or(&[], Vec::as_slice)).ok();
    let number = |row: &[u8]| text(row).and_then(|text| text.parse::<u64>().ok());
    let format = number(row::FORMAT).ok_or_else(|| damaged("its format is missing"))?;
    if format > u64::from(FORMAT) {
        let format = u32::try_from(format).unwrap_or(u32::MAX);
        return Err(Error::Newer { format, known: FORMAT });
    }
    let kind = match text(row::STORE) {
        Some("log") => StoreKind::Log,
        Some("sled") if cfg!(feature = "sled") => StoreKind::Sled,
        Some(other) => {
            let what = format!("the store {other} of this folder is not in this library");
            return Err(Error::InvalidArgument(what));
        }
        None => return Err(damaged("the name of its store is not UTF-8")),
    };
    let seed = number(row::SEED).ok_or_else(|| damaged("its seed is missing"))?;
    folder.master = unlock(path, rows, options)?;
    let config = match &folder.master {
        None => config.to_vec(),
        Some(master) => {
            let opened = master.open_value(BUCKET_VALUE, config);
            opened.ok_or_else(|| damaged("its settings do not decrypt"))?
        }
    };
    let mut config: Bucket =
        serde_json::from_slice(&config).map_err(|error| damaged(&error.to_string()))?;
    config.settings.ram_quota_mb = options.quota_mib;
    let store = open_store(path, kind, false, seed, options, folder.master.clone())?;
    let is_clean = rows.contains_key(row::CLEAN) && text(row::PLACE) == Some(folder.place.as_str());
    if rows.contains_key(row::CLEAN) {
        // Only after everything that can be refused was opened.
        folder.settings.apply(&[(row::CLEAN.to_vec(), None)], true)?;
    }
    Ok(Opened { config, store: Some(store), is_clean, folder: Some(folder) })
}

fn open_store(
    path: &Path,
    kind: StoreKind,
    create: bool,
    seed: u64,
    options: &Options,
    master: Option<MasterKey>,
) -> Result<Arc<dyn Store>, Error> {
    let path = path.join("documents");
    Ok(match kind {
        StoreKind::Log => {
            let layout = LogOptions { segment_bytes: options.segment_bytes, seed };
            Arc::new(LogStore::open_with_key(&path, create, layout, master)?)
        }
        #[cfg(feature = "sled")]
        StoreKind::Sled => Arc::new(nacre_store::SledStore::open(&path, create, SLED_CACHE_BYTES)?),
        #[cfg(not(feature = "sled"))]
        StoreKind::Sled => {
            return Err(Error::InvalidArgument("this library has no store sled".into()));
        }
    })
}

/// The cache of sled. It is small because documents are already in memory.
#[cfg(feature = "sled")]
const SLED_CACHE_BYTES: u64 = 2 << 20;
