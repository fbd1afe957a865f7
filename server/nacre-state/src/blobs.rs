//! Blobs of a state: named files for data too large for entries, such as the segments of a text index.
//!
//! ```text
//! create ─► append, append, … ─► seal ─► read, read, …             delete
//!           grows at its end             immutable
//! ```
//!
//! The names of a state are a map whose clones are snapshots. A name refers to a file and a length. Bytes beyond that
//! length come from a failed call; the next append overwrites them. A call therefore sees its own changes of blobs at
//! once, and readers see them once the state is committed.
//!
//! A sealed blob ends with the checksums of its pages, and is read through the page cache.

use crate::segments::{BlockCache, Damage};
use imbl::OrdMap;
use nacre_store::{DiskFile, SpaceFiles};
use parking_lot::Mutex;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::{fmt, io};

/// Maximum length of a blob's name, in bytes.
pub const BLOB_NAME_BYTES_MAX: usize = 256;
/// Maximum number of blobs of a state.
const BLOBS_MAX: usize = 65_536;
/// Maximum number of bytes that one read returns.
pub const BLOB_READ_BYTES_MAX: usize = 4 << 20;
/// Size of a page, which is read and verified as a whole.
const PAGE_BYTES: u64 = 16 << 10;

/// Creates the files of blobs. Clones share the file numbers.
#[derive(Clone)]
pub struct BlobFiles {
    files: SpaceFiles,
    cache: BlockCache,
    /// Number of the next file.
    next_number: Arc<AtomicU64>,
}

impl BlobFiles {
    /// Creates blob files in a space, numbered from `next_number`, a counter shared with other users.
    pub fn new(files: SpaceFiles, cache: BlockCache, next_number: Arc<AtomicU64>) -> BlobFiles {
        BlobFiles { files, cache, next_number }
    }

    /// Creates an empty file.
    fn create(&self) -> io::Result<Arc<BlobFile>> {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let file = self.files.create(number)?;
        Ok(Arc::new(self.file(number, file, false)))
    }

    fn file(&self, number: u64, file: Arc<dyn DiskFile>, is_named: bool) -> BlobFile {
        BlobFile {
            number,
            file,
            files: self.files.clone(),
            cache: self.cache.clone(),
            cached_as: self.cache.number().into(),
            is_named: AtomicBool::new(is_named),
            is_unsynced: AtomicBool::new(!is_named),
            sums: Mutex::default(),
        }
    }
}

/// The file of a blob. It is removed with its last handle unless rows name it.
struct BlobFile {
    number: u64,
    file: Arc<dyn DiskFile>,
    files: SpaceFiles,
    cache: BlockCache,
    /// The number in the cache. Each seal assigns a new number, because an earlier call that sealed the file may have
    /// failed.
    cached_as: AtomicU64,
    is_named: AtomicBool,
    is_unsynced: AtomicBool,
    /// The checksum of each page, once the blob is sealed.
    sums: Mutex<Arc<[u32]>>,
}

impl Drop for BlobFile {
    fn drop(&mut self) {
        if !*self.is_named.get_mut() {
            // If the removal fails, the next open of the space removes the file, because no row names it.
            let _ = self.files.remove(self.number);
        }
    }
}

impl BlobFile {
    fn damage(&self, reason: impl ToString) -> Damage {
        Damage { file: self.files.path(self.number), reason: reason.to_string() }
    }

    /// Reads a page of content that ends at `length`.
    fn page(&self, page: u64, length: u64) -> Result<Vec<u8>, Damage> {
        let start = page * PAGE_BYTES;
        let mut bytes = vec![0; PAGE_BYTES.min(length - start) as usize];
        let read = SpaceFiles::read(&*self.file, &mut bytes, start);
        read.map_err(|error| self.damage(format!("the page at byte {start}: {error}")))?;
        Ok(bytes)
    }

    /// Reads and verifies a page of a sealed blob.
    fn sealed_page(&self, page: u64, length: u64) -> Result<Arc<[u8]>, Damage> {
        let cached_as = self.cached_as.load(Ordering::Acquire);
        if let Some(bytes) = self.cache.get_page(cached_as, page) {
            return Ok(bytes);
        }
        let bytes = self.page(page, length)?;
        let sum = self.sums.lock().get(page as usize).copied();
        if sum != Some(crc32fast::hash(&bytes)) {
            let at = page * PAGE_BYTES;
            return Err(self.damage(format!("the page at byte {at} does not have its checksum")));
        }
        let bytes: Arc<[u8]> = bytes.into();
        self.cache.insert_page(cached_as, page, &bytes);
        Ok(bytes)
    }
}

/// The content of a named blob.
#[derive(Clone)]
struct Blob {
    file: Arc<BlobFile>,
    length: u64,
    is_sealed: bool,
}

/// Length and state of a blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobInfo {
    /// Name.
    pub name: String,
    /// Size of the content in bytes.
    pub length: u64,
    /// True if the content is immutable.
    pub is_sealed: bool,
}

/// The description of a blob in the rows of a space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobRecord {
    /// Description of the blob.
    pub info: BlobInfo,
    /// The number of its file.
    pub number: u64,
}

/// The reason why a change of blobs is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlobError {
    /// The state's storage has no files.
    #[error("blobs need a state that is segmented: state = \"segmented\" in plugin.toml")]
    None,
    /// The name is empty or too long.
    #[error("the name of a blob must have 1 to {BLOB_NAME_BYTES_MAX} bytes")]
    Name,
    /// There are too many blobs.
    #[error("a state has at most {BLOBS_MAX} blobs")]
    TooMany,
    /// No blob has this name.
    #[error("there is no blob {0:?}")]
    Missing(String),
    /// The blob is sealed and cannot change.
    #[error("the blob {0:?} is sealed")]
    Sealed(String),
    /// The disk refused a write.
    #[error("{0}")]
    Disk(String),
    /// Stored data cannot be read.
    #[error(transparent)]
    Damaged(#[from] Damage),
}

/// The blobs of a state by name. Clones are snapshots.
#[derive(Clone, Default)]
pub struct Blobs {
    files: Option<BlobFiles>,
    all: OrdMap<Arc<str>, Blob>,
    bytes: u64,
}

impl fmt::Debug for Blobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.list("", "", usize::MAX)).finish()
    }
}

impl PartialEq for Blobs {
    fn eq(&self, other: &Blobs) -> bool {
        self.list("", "", usize::MAX) == other.list("", "", usize::MAX)
    }
}

impl Eq for Blobs {}

impl Blobs {
    /// Creates an empty set of blobs with a place for their files.
    pub fn new(files: BlobFiles) -> Blobs {
        Blobs { files: Some(files), ..Blobs::default() }
    }

    /// Opens the blobs that rows name.
    ///
    /// # Errors
    /// The first blob that is missing or too short, or is sealed without valid checksums.
    pub fn open(files: BlobFiles, records: Vec<BlobRecord>) -> Result<Blobs, Damage> {
        let mut blobs = Blobs::new(files.clone());
        for BlobRecord { info, number } in records {
            let damage = |reason: String| Damage { file: files.files.path(number), reason };
            let what = format!("the blob {:?}", info.name);
            let file = match files.files.open(number) {
                Ok(file) => files.file(number, file, true),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Err(damage(format!("{what} is missing")));
                }
                Err(error) => return Err(damage(error.to_string())),
            };
            let bytes = file.file.bytes().map_err(|error| damage(error.to_string()))?;
            let sums_bytes = if info.is_sealed { sums_bytes(info.length) } else { 0 };
            if bytes < info.length + sums_bytes {
                let needed = info.length + sums_bytes;
                return Err(damage(format!("{what} has {bytes} bytes instead of {needed}")));
            }
            if info.is_sealed {
                let sums = read_sums(&*file.file, info.length)
                    .map_err(|reason| damage(format!("{what}: {reason}")))?;
                *file.sums.lock() = sums;
            }
            let blob =
                Blob { file: Arc::new(file), length: info.length, is_sealed: info.is_sealed };
            blobs.set(info.name.into(), Some(blob));
        }
        Ok(blobs)
    }

    /// Returns the size of all blobs in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of blobs.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns true if there are no blobs.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns the description of a blob.
    pub fn info(&self, name: &str) -> Option<BlobInfo> {
        let blob = self.all.get(name)?;
        Some(BlobInfo { name: name.into(), length: blob.length, is_sealed: blob.is_sealed })
    }

    /// Returns up to `limit` blobs whose names begin with `prefix` and come after `after`, in order.
    pub fn list(&self, prefix: &str, after: &str, limit: usize) -> Vec<BlobInfo> {
        let start = match after < prefix {
            true => Bound::Included(Arc::from(prefix)),
            false => Bound::Excluded(Arc::from(after)),
        };
        let all = self.all.range::<_, Arc<str>>((start, Bound::Unbounded));
        let of_prefix = all.take_while(|(name, _)| name.starts_with(prefix));
        let info = |(name, blob): (&Arc<str>, &Blob)| BlobInfo {
            name: name.to_string(),
            length: blob.length,
            is_sealed: blob.is_sealed,
        };
        of_prefix.take(limit).map(info).collect()
    }

    fn set(&mut self, name: Arc<str>, blob: Option<Blob>) -> bool {
        self.bytes += blob.as_ref().map_or(0, |blob| blob.length);
        let before = match blob {
            Some(blob) => self.all.insert(name, blob),
            None => self.all.remove(&name),
        };
        self.bytes -= before.as_ref().map_or(0, |blob| blob.length);
        before.is_some()
    }

    fn get(&self, name: &str) -> Result<&Blob, BlobError> {
        self.all.get(name).ok_or_else(|| BlobError::Missing(name.into()))
    }

    /// Returns the blob with this name if it can be changed.
    fn growing(&self, name: &str) -> Result<Blob, BlobError> {
        let blob = self.get(name)?;
        if blob.is_sealed { Err(BlobError::Sealed(name.into())) } else { Ok(blob.clone()) }
    }

    /// Creates an empty blob; replaces a blob with the same name.
    ///
    /// # Errors
    /// [`BlobError::None`], [`BlobError::Name`], [`BlobError::TooMany`] or [`BlobError::Disk`].
    pub fn create(&mut self, name: &str) -> Result<(), BlobError> {
        let files = self.files.as_ref().ok_or(BlobError::None)?;
        if name.is_empty() || name.len() > BLOB_NAME_BYTES_MAX {
            return Err(BlobError::Name);
        }
        if self.all.len() >= BLOBS_MAX && !self.all.contains_key(name) {
            return Err(BlobError::TooMany);
        }
        let file = files.create().map_err(|error| BlobError::Disk(error.to_string()))?;
        self.set(name.into(), Some(Blob { file, length: 0, is_sealed: false }));
        Ok(())
    }

    /// Appends bytes to a blob that is not sealed.
    ///
    /// # Errors
    /// [`BlobError::Missing`], [`BlobError::Sealed`] or [`BlobError::Disk`].
    pub fn append(&mut self, name: &str, bytes: &[u8]) -> Result<(), BlobError> {
        let mut blob = self.growing(name)?;
        blob.file.is_unsynced.store(true, Ordering::Release);
        let written = blob.file.file.write_at(bytes, blob.length);
        written.map_err(|error| BlobError::Disk(error.to_string()))?;
        blob.length += bytes.len() as u64;
        self.set(name.into(), Some(blob));
        Ok(())
    }

    /// Seals a blob: it becomes immutable.
    ///
    /// # Errors
    /// [`BlobError::Missing`], [`BlobError::Sealed`], [`BlobError::Disk`], or [`BlobError::Damaged`] when its content cannot be
    /// read back.
    pub fn seal(&mut self, name: &str) -> Result<(), BlobError> {
        let mut blob = self.growing(name)?;
        let pages = blob.length.div_ceil(PAGE_BYTES);
        let sum = |page| Ok(crc32fast::hash(&blob.file.page(page, blob.length)?));
        let sums = (0..pages).map(sum).collect::<Result<Vec<u32>, Damage>>()?;
        let mut bytes: Vec<u8> = sums.iter().flat_map(|sum| sum.to_le_bytes()).collect();
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
        blob.file.is_unsynced.store(true, Ordering::Release);
        let written = blob.file.file.write_at(&bytes, blob.length);
        written.map_err(|error| BlobError::Disk(error.to_string()))?;
        *blob.file.sums.lock() = sums.into();
        blob.file.cached_as.store(blob.file.cache.number(), Ordering::Release);
        blob.is_sealed = true;
        self.set(name.into(), Some(blob));
        Ok(())
    }

    /// Removes a blob. Returns true if it existed.
    pub fn delete(&mut self, name: &str) -> bool {
        self.set(name.into(), None)
    }

    /// Reads `length` bytes of a blob from `offset`, or fewer at its end, and at most [`BLOB_READ_BYTES_MAX`].
    ///
    /// # Errors
    /// [`BlobError::Missing`] or [`BlobError::Damaged`].
    pub fn read(&self, name: &str, offset: u64, length: u32) -> Result<Vec<u8>, BlobError> {
        let blob = self.get(name)?;
        let length = u64::from(length).min(BLOB_READ_BYTES_MAX as u64);
        let end = offset.saturating_add(length).min(blob.length);
        let mut out = Vec::with_capacity(end.saturating_sub(offset) as usize);
        let mut at = offset;
        while at < end {
            let (page, from) = (at / PAGE_BYTES, (at % PAGE_BYTES) as usize);
            let to = (end - page * PAGE_BYTES).min(PAGE_BYTES) as usize;
            match blob.is_sealed {
                true => out.extend_from_slice(&blob.file.sealed_page(page, blob.length)?[from..to]),
                false => out.extend_from_slice(&blob.file.page(page, blob.length)?[from..to]),
            }
            at += (to - from) as u64;
        }
        Ok(out)
    }

    /// Returns the changes of names since the commit of `before`: the record of each blob that is new or has grown, and
    /// `None` for each removed one.
    pub(crate) fn changes(&self, before: &Blobs) -> Vec<(String, Option<BlobRecord>)> {
        let mut changes = Vec::new();
        for (name, blob) in &self.all {
            let is_same = |known: &Blob| {
                known.file.number == blob.file.number
                    && (known.length, known.is_sealed) == (blob.length, blob.is_sealed)
            };
            if !before.all.get(name).is_some_and(is_same) {
                let info = self.info(name).expect("it is there");
                let record = BlobRecord { info, number: blob.file.number };
                changes.push((name.to_string(), Some(record)));
            }
        }
        let gone = before.all.keys().filter(|name| !self.all.contains_key(*name));
        changes.extend(gone.map(|name| (name.to_string(), None)));
        changes
    }

    /// Waits until the content of all blobs survives a power cut.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let mut is_new = false;
        for blob in self.all.values() {
            if blob.file.is_unsynced.swap(false, Ordering::AcqRel) {
                blob.file.file.sync()?;
                is_new |= !blob.file.is_named.load(Ordering::Acquire);
            }
        }
        match (&self.files, is_new) {
            (Some(files), true) => files.files.sync_names(),
            _ => Ok(()),
        }
    }

    /// Marks these blobs as named by rows, in place of those of `before`.
    pub(crate) fn committed(&self, before: &Blobs) {
        for blob in before.all.values() {
            blob.file.is_named.store(false, Ordering::Release);
        }
        for blob in self.all.values() {
            blob.file.is_named.store(true, Ordering::Release);
        }
    }

    /// Returns an empty set of blobs with the same place for files.
    pub(crate) fn none(&self) -> Blobs {
        Blobs { files: self.files.clone(), ..Blobs::default() }
    }
}

/// Returns the size of a sealed blob's checksums, including their own checksum.
fn sums_bytes(length: u64) -> u64 {
    length.div_ceil(PAGE_BYTES) * 4 + 4
}

fn read_sums(file: &dyn DiskFile, length: u64) -> Result<Arc<[u32]>, String> {
    let mut bytes = vec![0; sums_bytes(length) as usize];
    SpaceFiles::read(file, &mut bytes, length).map_err(|error| error.to_string())?;
    let sum = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("it has four bytes"));
    let (bytes, last) = bytes.split_at(bytes.len() - 4);
    if crc32fast::hash(bytes) != sum(last) {
        return Err("its checksums do not have theirs".into());
    }
    Ok(bytes.chunks(4).map(sum).collect())
}
