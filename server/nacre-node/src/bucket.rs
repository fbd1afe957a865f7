//! One bucket on this node: its vBuckets, each behind one short lock, its store, and those who read its history.

use crate::flusher::Flusher;
use crate::reader::News;
use crate::{Platform, Watermarks};
use nacre_cluster::{BucketSettings, Manifest};
use nacre_store::{Commit, Error, Scan, Store};
use nacre_types::{CollectionId, Now, Seqno, VbUuid, Vbid};
use nacre_vbucket::{Command, Refusal, Reply, Vbucket};
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

/// Share of the quota above which writes are refused for the time being, in percent.
const MUTATION_LIMIT_PERCENT: u64 = 93;

/// A bucket that serves.
pub struct Bucket {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub uuid: String,
    vbuckets: Box<[Mutex<Vbucket>]>,
    /// None for a bucket that lives in memory only.
    pub(crate) store: Option<Arc<dyn Store>>,
    /// What the store holds, by vBucket.
    pub persisted: Watermarks,
    readers: RwLock<Vec<Arc<News>>>,
    manifest: RwLock<Arc<Manifest>>,
    /// Read on every write, so kept beside the settings they come from.
    quota_bytes: AtomicU64,
    max_ttl: AtomicU64,
    memory_bytes: AtomicI64,
    closed: AtomicBool,
    discarded: AtomicBool,
}

impl Bucket {
    /// Reads a bucket into memory and begins to serve it.
    ///
    /// `clean` says that the last process to serve it wrote everything it had; otherwise clients and consumers may
    /// know of mutations that are gone, and each vBucket begins a new branch of history.
    ///
    /// # Errors
    /// When the store is damaged; the bucket does not serve then.
    pub fn open(
        config: &nacre_cluster::Bucket,
        platform: &dyn Platform,
        store: Option<Arc<dyn Store>>,
        clean: bool,
    ) -> Result<Arc<Bucket>, Error> {
        let count = usize::from(config.settings.vbucket_count);
        let random_uuid = || VbUuid(platform.random() >> 16 | 1);
        let mut vbuckets: Vec<Vbucket> = (0..count)
            .map(|id| Vbucket::create(Vbid(id as u16), random_uuid(), platform.random()))
            .collect();
        let persisted = Watermarks::new(count);
        if let Some(store) = &store {
            let records = store.records()?;
            for (vbid, record) in &records {
                let Some(slot) = vbuckets.get_mut(vbid.index()) else {
                    let what = format!("the bucket has {count} vBuckets");
                    return Err(Error::Inconsistent { vbid: *vbid, what });
                };
                *slot = Vbucket::new(*vbid, record.clone(), platform.random());
                persisted.raise(*vbid, record.high_seqno);
            }
            nacre_store::load_all(&**store, &mut |vbid, document| {
                vbuckets[vbid.index()].load(document);
            })?;
            if !clean {
                let branches = records.iter().map(|(vbid, _)| {
                    let vbucket = &mut vbuckets[vbid.index()];
                    vbucket.begin_branch(random_uuid());
                    let record = crate::flusher::record_of(vbucket);
                    Commit { vbid: *vbid, record, documents: Vec::new(), erased: Vec::new() }
                });
                store.commit(&branches.collect::<Vec<_>>())?;
            }
        }
        let memory_bytes =
            vbuckets.iter().map(|vbucket| vbucket.memory_bytes() as i64).sum::<i64>();
        let bucket = Arc::new(Bucket {
            name: config.name.clone(),
            uuid: config.uuid.clone(),
            vbuckets: vbuckets.into_iter().map(Mutex::new).collect(),
            store,
            persisted,
            readers: RwLock::default(),
            manifest: RwLock::new(Arc::new(config.manifest.clone())),
            quota_bytes: AtomicU64::new(0),
            max_ttl: AtomicU64::new(0),
            memory_bytes: AtomicI64::new(memory_bytes),
            closed: AtomicBool::new(false),
            discarded: AtomicBool::new(false),
        });
        bucket.configure(&config.settings, &config.manifest);
        platform.run(Box::new(Flusher::new(Arc::clone(&bucket))));
        Ok(bucket)
    }

    /// Takes over changed settings, scopes and collections.
    pub(crate) fn configure(&self, settings: &BucketSettings, manifest: &Manifest) {
        self.quota_bytes.store(settings.ram_quota_mb << 20, Ordering::Relaxed);
        self.max_ttl.store(u64::from(settings.max_ttl), Ordering::Relaxed);
        *self.manifest.write() = Arc::new(manifest.clone());
    }

    /// Scopes and collections.
    pub fn manifest(&self) -> Arc<Manifest> {
        Arc::clone(&self.manifest.read())
    }

    /// How many vBuckets it has.
    pub fn vbucket_count(&self) -> u16 {
        self.vbuckets.len() as u16
    }

    /// Locks one vBucket; `None` when there is none of this number.
    pub fn vbucket(&self, vbid: Vbid) -> Option<MutexGuard<'_, Vbucket>> {
        self.vbuckets.get(vbid.index()).map(Mutex::lock)
    }

    /// The last seqno of each vBucket.
    pub fn high_seqnos(&self) -> Vec<Seqno> {
        self.vbuckets.iter().map(|vbucket| vbucket.lock().high_seqno()).collect()
    }

    /// Documents that exist, and bytes of memory in use.
    pub fn usage(&self) -> (u64, u64) {
        let documents = self.vbuckets.iter().map(|vbucket| vbucket.lock().alive_count()).sum();
        (documents, self.memory_bytes.load(Ordering::Relaxed).max(0) as u64)
    }

    /// Whether writes are refused until memory is free again.
    pub fn is_over_quota(&self) -> bool {
        let limit = self.quota_bytes.load(Ordering::Relaxed) / 100 * MUTATION_LIMIT_PERCENT;
        self.memory_bytes.load(Ordering::Relaxed) > limit as i64
    }

    /// Memory per node, in bytes.
    pub fn quota_bytes(&self) -> u64 {
        self.quota_bytes.load(Ordering::Relaxed)
    }

    /// The longest life of documents of a collection, as [`nacre_cluster::Collection::max_ttl`] has it; `None` when
    /// there is no such collection.
    pub fn max_ttl(&self, collection: CollectionId) -> Option<i32> {
        self.manifest.read().collection_by_id(collection).map(|found| found.max_ttl)
    }

    /// The absolute expiry of a document written now, given what the client asked for: the collection's longest life
    /// (`max_ttl`) or else the bucket's applies.
    pub fn expiry(&self, max_ttl: i32, expiry: u32, now: Now) -> u32 {
        let ttl = match max_ttl {
            0 => self.max_ttl.load(Ordering::Relaxed) as u32,
            seconds => u32::try_from(seconds).unwrap_or(0),
        };
        let asked = nacre_types::Expiry(expiry).absolute(now);
        match (ttl, asked) {
            (0, asked) => asked,
            (ttl, 0) => now.unix_s().saturating_add(ttl),
            (ttl, asked) => asked.min(now.unix_s().saturating_add(ttl)),
        }
    }

    /// Carries out `command`; a mutation is noted for the readers, who are woken by [`Bucket::wake_readers`].
    ///
    /// `None` when there is no such vBucket.
    pub fn apply(
        &self,
        vbid: Vbid,
        key: &[u8],
        command: &Command<'_>,
        now: Now,
    ) -> Option<(Result<Reply, Refusal>, bool)> {
        let mut vbucket = self.vbucket(vbid)?;
        let before = memory_of(&vbucket);
        let (reply, mutation) = vbucket.apply(key, command, now);
        let after = memory_of(&vbucket);
        drop(vbucket);
        if after != before {
            self.memory_bytes.fetch_add(after - before, Ordering::Relaxed);
        }
        if mutation.is_some() {
            self.note(vbid);
        }
        Some((reply, mutation.is_some()))
    }

    /// Tells every reader that `vbid` has news.
    fn note(&self, vbid: Vbid) {
        for reader in self.readers.read().iter() {
            reader.note(vbid);
        }
    }

    /// Wakes those who have news; called once for the requests that arrived together.
    pub fn wake_readers(&self) {
        for reader in self.readers.read().iter() {
            reader.signal.wake();
        }
    }

    /// Deletes all documents of a dropped collection.
    pub(crate) fn drop_collection(&self, collection: CollectionId, now: Now) {
        for (index, vbucket) in self.vbuckets.iter().enumerate() {
            let mut vbucket = vbucket.lock();
            let before = memory_of(&vbucket);
            let count = vbucket.drop_collection(collection, now);
            self.memory_bytes.fetch_add(memory_of(&vbucket) - before, Ordering::Relaxed);
            drop(vbucket);
            if count > 0 {
                self.note(Vbid(index as u16));
            }
        }
        self.wake_readers();
    }

    /// Notes that the store holds `vbid` up to `seqno`, and lets history go that nobody waits for.
    pub(crate) fn set_persisted(&self, vbid: Vbid, seqno: Seqno) {
        let Some(mut vbucket) = self.vbucket(vbid) else { return };
        let before = memory_of(&vbucket);
        let checkpoint_bytes_max = self.quota_bytes() as usize / 5 / self.vbuckets.len();
        vbucket.set_persisted(seqno, checkpoint_bytes_max);
        self.memory_bytes.fetch_add(memory_of(&vbucket) - before, Ordering::Relaxed);
        drop(vbucket);
        self.persisted.raise(vbid, seqno);
    }

    /// The history of `vbid` after a seqno, from the store or, for a bucket without one, from the hash table.
    pub(crate) fn scan(&self, vbid: Vbid, after: Seqno) -> Result<Scan, Error> {
        if let Some(store) = &self.store {
            return store.scan(vbid, after);
        }
        let Some(vbucket) = self.vbucket(vbid) else {
            return Ok(Scan { end: after, documents: Box::new(std::iter::empty()) });
        };
        let mut documents: Vec<_> =
            vbucket.documents().filter(|document| document.meta.seqno > after).cloned().collect();
        let end = vbucket.high_seqno();
        drop(vbucket);
        documents.sort_unstable_by_key(|document| document.meta.seqno);
        Ok(Scan { end, documents: Box::new(documents.into_iter().map(Ok)) })
    }

    /// Registers a reader, which at first has news of every vBucket.
    pub(crate) fn add_reader(&self) -> Arc<News> {
        let news = Arc::new(News::new(self.vbuckets.len()));
        self.readers.write().push(Arc::clone(&news));
        for index in 0..self.vbuckets.len() {
            news.note(Vbid(index as u16));
        }
        news.signal.wake();
        news
    }

    /// Forgets a reader.
    pub(crate) fn remove_reader(&self, news: &Arc<News>) {
        self.readers.write().retain(|known| !Arc::ptr_eq(known, news));
    }

    /// Ends the bucket: no write is taken any more, and its tasks end once they have done what is to do.
    pub(crate) fn close(&self) {
        for vbucket in &self.vbuckets {
            vbucket.lock().make_read_only();
        }
        self.closed.store(true, Ordering::Release);
        self.wake_readers();
        self.persisted.publish();
    }

    /// Ends the bucket without storing what is left: it was dropped or flushed.
    pub(crate) fn discard(&self) {
        self.discarded.store(true, Ordering::Release);
        self.close();
    }

    /// Whether the bucket was discarded.
    pub(crate) fn is_discarded(&self) -> bool {
        self.discarded.load(Ordering::Acquire)
    }

    /// Whether the bucket was closed.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}

fn memory_of(vbucket: &Vbucket) -> i64 {
    (vbucket.memory_bytes() + vbucket.checkpoint().memory_bytes()) as i64
}
