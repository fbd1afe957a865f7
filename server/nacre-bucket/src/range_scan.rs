//! Scans of a vBucket by key: a range, or a sample.
//!
//! A scan captures the documents that exist when it begins: those in memory as they are, and only the keys of the
//! others. Their values are read from the store when the scan reaches them.

use crate::bucket::Bucket;
use foldhash::SharedSeed;
use foldhash::fast::SeedableRandomState;
use nacre_store::{Error, Which};
use nacre_types::{CollectionId, Document, Now, Seqno, VbUuid, Vbid};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasher;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// Maximum number of open scans of a bucket.
const SCANS_MAX: usize = 4096;
/// Maximum number of open scans of a bucket per user.
const SCANS_OF_USER_MAX: usize = SCANS_MAX / 4;
/// Lifetime of a scan in nanoseconds: three minutes.
const LIFETIME_NS: u64 = 180 * 1_000_000_000;

/// Identifies a scan.
pub(crate) type ScanId = [u8; 16];

/// The options of a scan.
#[derive(Clone, Debug)]
pub(crate) struct ScanOptions {
    /// The collection to scan.
    pub collection: CollectionId,
    /// The range of keys, with their collection prefix.
    pub range: (Bound<Vec<u8>>, Bound<Vec<u8>>),
    /// For a sample: a seed, and the number of keys to select with it.
    pub sample: Option<(u64, usize)>,
    /// Returns keys without values.
    pub key_only: bool,
    /// Returns extended attributes with the values.
    pub with_xattrs: bool,
    /// The branch of history and the seqno that the vBucket must have reached.
    pub at_least: Option<(VbUuid, Seqno)>,
}

/// The reason why a scan cannot begin or continue.
#[derive(Debug)]
pub enum ScanError {
    /// The scan does not exist, or there are no documents to scan.
    NotFound,
    /// The vBucket is on another branch of history.
    OtherHistory,
    /// The vBucket has not reached the requested seqno yet.
    Behind,
    /// Too many scans are open, or another request is reading this scan.
    Busy,
    /// The scan was cancelled while it was read.
    Cancelled,
    /// The vBucket is not served by this node.
    NoVbucket,
    /// The store failed.
    Store(Error),
}

/// The owner of a connection's scans, which end with the connection.
pub(crate) struct ScanOwner {
    user: Arc<str>,
    has_ended: Arc<AtomicBool>,
    buckets: Vec<Weak<Bucket>>,
}

impl ScanOwner {
    /// Creates the owner of the scans of one connection of `user`.
    pub fn new(user: &str) -> ScanOwner {
        ScanOwner { user: user.into(), has_ended: Arc::default(), buckets: Vec::new() }
    }

    /// Returns the ownership mark for a scan of `bucket` by this connection.
    pub fn mark(&mut self, bucket: &Arc<Bucket>) -> ScanMark {
        self.buckets.retain(|known| known.strong_count() > 0);
        if !self.buckets.iter().any(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(bucket))) {
            self.buckets.push(Arc::downgrade(bucket));
        }
        ScanMark { user: Arc::clone(&self.user), has_ended: Arc::clone(&self.has_ended) }
    }

    /// Returns the user of the connection.
    pub fn user(&self) -> &str {
        &self.user
    }
}

impl Drop for ScanOwner {
    fn drop(&mut self) {
        // Set before the scans are searched, so that a scan that a worker is about to begin is refused.
        self.has_ended.store(true, Ordering::Release);
        for bucket in self.buckets.iter().filter_map(Weak::upgrade) {
            bucket.scans.0.lock().retain(|_, scan| !scan.mark.has_ended.load(Ordering::Acquire));
        }
    }
}

/// The owner of a scan: user and connection.
#[derive(Clone)]
pub(crate) struct ScanMark {
    user: Arc<str>,
    has_ended: Arc<AtomicBool>,
}

struct Scan {
    mark: ScanMark,
    vbid: Vbid,
    /// Sorted by key. Evicted documents are stubs.
    documents: Arc<Vec<Document>>,
    /// The number of documents returned; `None` while a request reads the scan.
    position: Option<usize>,
    key_only: bool,
    with_xattrs: bool,
    ends_ns: u64,
}

/// The open scans of a bucket.
#[derive(Default)]
pub(crate) struct Scans(Mutex<HashMap<ScanId, Scan>>);

impl Scans {
    /// Begins a scan.
    ///
    /// # Errors
    /// Fails when there are no documents, too many scans are open, or the vBucket does not satisfy the options.
    pub fn begin(
        &self,
        bucket: &Bucket,
        id: ScanId,
        vbid: Vbid,
        options: &ScanOptions,
        mark: &ScanMark,
        now: Now,
    ) -> Result<(), ScanError> {
        let mut found = scannable(bucket, vbid, options, now)?;
        if let Some((seed, samples)) = options.sample {
            let order = |document: &Document| sample_order(seed, document.key());
            found.sort_by_cached_key(order);
            found.truncate(samples);
            found.sort_unstable_by(|one, other| one.key().cmp(other.key()));
        }
        if found.is_empty() {
            return Err(ScanError::NotFound);
        }
        self.forget_old(now);
        let mut scans = self.0.lock();
        if mark.has_ended.load(Ordering::Acquire) {
            return Err(ScanError::Cancelled);
        }
        let of_user = || scans.values().filter(|scan| scan.mark.user == mark.user).count();
        if scans.len() >= SCANS_MAX || of_user() >= SCANS_OF_USER_MAX {
            return Err(ScanError::Busy);
        }
        let scan = Scan {
            mark: mark.clone(),
            vbid,
            documents: Arc::new(found),
            position: Some(0),
            key_only: options.key_only,
            with_xattrs: options.with_xattrs,
            ends_ns: now.monotonic_ns + LIFETIME_NS,
        };
        scans.insert(id, scan);
        Ok(())
    }

    /// Reads the next `items` documents, or fewer once `bytes` are exceeded.
    ///
    /// # Errors
    /// Fails when the scan has ended, when another request reads it, or when the store fails.
    pub fn read_on(
        &self,
        bucket: &Bucket,
        id: ScanId,
        items: usize,
        bytes: usize,
        has_time: &dyn Fn() -> bool,
    ) -> Result<Page, ScanError> {
        let (vbid, all, begin, key_only, with_xattrs) = {
            let mut scans = self.0.lock();
            let scan = scans.get_mut(&id).ok_or(ScanError::NotFound)?;
            let position = scan.position.take().ok_or(ScanError::Busy)?;
            (scan.vbid, Arc::clone(&scan.documents), position, scan.key_only, scan.with_xattrs)
        };
        let mut documents = Vec::new();
        let (mut position, mut read) = (begin, 0);
        let mut failure = None;
        while position < all.len() && documents.len() < items && read < bytes {
            if position > begin && !has_time() {
                break;
            }
            let document = &all[position];
            position += 1;
            let document = if key_only || document.is_resident() {
                Ok(Some(document.clone()))
            } else {
                stored(bucket, vbid, document.key())
            };
            match document {
                Ok(document) => {
                    read += document.as_ref().map_or(0, |document| document.memory_bytes());
                    documents.extend(document);
                }
                Err(error) => {
                    // The page is not returned, so the next request starts from the same position.
                    (failure, position) = (Some(error), begin);
                    break;
                }
            }
        }
        let complete = position == all.len();
        let mut scans = self.0.lock();
        match scans.get_mut(&id) {
            None => return Err(ScanError::Cancelled),
            Some(_) if complete => {
                scans.remove(&id);
            }
            Some(scan) => scan.position = Some(position),
        }
        if let Some(error) = failure {
            return Err(ScanError::Store(error));
        }
        Ok(Page { key_only, with_xattrs, documents, complete })
    }

    /// Cancels a scan. Returns false when it does not exist.
    pub fn cancel(&self, id: ScanId) -> bool {
        self.0.lock().remove(&id).is_some()
    }

    /// Ends the scans whose lifetime is over.
    pub fn forget_old(&self, now: Now) {
        self.0.lock().retain(|_, scan| scan.ends_ns > now.monotonic_ns);
    }
}

/// The next documents of a scan.
pub(crate) struct Page {
    /// See [`ScanOptions::key_only`].
    pub key_only: bool,
    /// See [`ScanOptions::with_xattrs`].
    pub with_xattrs: bool,
    /// The documents, sorted by key.
    pub documents: Vec<Document>,
    /// True if the scan has returned everything and has ended.
    pub complete: bool,
}

/// Returns the documents of a collection in a vBucket, sorted by key; evicted ones are stubs.
///
/// # Errors
/// Fails when the vBucket is not served by this node, or the store fails.
pub fn documents_of(
    bucket: &Bucket,
    vbid: Vbid,
    collection: CollectionId,
    now: Now,
) -> Result<Vec<Document>, ScanError> {
    let options = ScanOptions {
        collection,
        range: (Bound::Unbounded, Bound::Unbounded),
        sample: None,
        key_only: true,
        with_xattrs: false,
        at_least: None,
    };
    scannable(bucket, vbid, &options, now)
}

/// Returns the documents that match `options`, sorted by key.
fn scannable(
    bucket: &Bucket,
    vbid: Vbid,
    options: &ScanOptions,
    now: Now,
) -> Result<Vec<Document>, ScanError> {
    let wanted = |document: &Document| {
        !document.is_expired(now.unix_s()) && contains(&options.range, document.key())
    };
    let mut found: BTreeMap<Box<[u8]>, Document> = BTreeMap::new();
    let vbucket = bucket.served(vbid).ok_or(ScanError::NoVbucket)?;
    if let Some((vb_uuid, seqno)) = options.at_least {
        if vbucket.failover_log().current() != vb_uuid {
            return Err(ScanError::OtherHistory);
        }
        if seqno > vbucket.high_seqno() {
            return Err(ScanError::Behind);
        }
    }
    let in_memory: Vec<_> =
        vbucket.living(options.collection).filter(|document| wanted(document)).cloned().collect();
    let has_documents = vbucket.counts_of(options.collection).documents > 0;
    let some_are_evicted = has_documents && vbucket.has_evicted_keys();
    drop(vbucket);
    if some_are_evicted && let Some(store) = &bucket.store {
        let scan = store.scan(vbid, Seqno::ZERO, Which::Current).map_err(ScanError::Store)?;
        for document in scan.documents {
            let document = document.map_err(ScanError::Store)?;
            let is_living = document.collection() == options.collection && document.is_alive();
            let is_evicted =
                || bucket.vbucket(vbid).is_none_or(|known| known.find(document.key()).is_none());
            if is_living && wanted(&document) && is_evicted() {
                found.insert(document.key().into(), document.stub());
            }
        }
    }
    found.extend(in_memory.into_iter().map(|document| (document.key().into(), document)));
    Ok(found.into_values().collect())
}

/// Returns the stored version of a document, if it exists.
fn stored(bucket: &Bucket, vbid: Vbid, key: &[u8]) -> Result<Option<Document>, Error> {
    let Some(store) = &bucket.store else { return Ok(None) };
    Ok(store.get(vbid, key)?.filter(Document::is_alive))
}

fn contains((start, end): &(Bound<Vec<u8>>, Bound<Vec<u8>>), key: &[u8]) -> bool {
    let after = match start {
        Bound::Included(start) => key >= &start[..],
        Bound::Excluded(start) => key > &start[..],
        Bound::Unbounded => true,
    };
    let before = match end {
        Bound::Included(end) => key <= &end[..],
        Bound::Excluded(end) => key < &end[..],
        Bound::Unbounded => true,
    };
    after && before
}

/// Returns a uniformly distributed number that depends only on the seed and the key.
fn sample_order(seed: u64, key: &[u8]) -> u64 {
    SeedableRandomState::with_seed(seed, SharedSeed::global_fixed()).hash_one(key)
}
