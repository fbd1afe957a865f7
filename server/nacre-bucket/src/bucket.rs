//! A bucket on this node: its vBuckets, each behind a short lock, its store, and the consumers of its history.

mod memory;
mod persistence;

pub(crate) use memory::{LOW_WATER_PERCENT, eviction_of};

use crate::compactor::Compactor;
use crate::conflict::Conflicts;
use crate::copies::{self, CopyRetention};
use crate::flusher::Flusher;
use crate::keeper::Keeper;
use crate::lease::Lease;
use crate::listeners::HistoryListeners;
use crate::operations::{OperationCounts, Operations};
use crate::prefetch::PrefetchStep;
use crate::range_scan::Scans;
use crate::waits::Waits;
use crate::worker::{BackgroundJobs, Jobs, WORKERS, Worker};
use crate::{BucketEnv, DcpConnections, Signal, Watermarks, retention, warmup};
use memory::{Memory, memory_of};
use nacre_cluster::{
    BucketKind, BucketSettings, CompressionMode, ConflictResolution, EvictionPolicy,
    HistoryRetention, Manifest,
};
use nacre_store::{Error, Store};
use nacre_types::{Cas, CollectionId, Document, NodeId, Now, Seqno, VbState, VbUuid, Vbid, Vbids};
use nacre_vbucket::{
    CollectionCounts, Command, Completion, Cost, Refusal, Reply, Resolution, Vbucket,
};
use nacre_xdcr::{Site, SourceId};
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Age at which tombstones are purged, in seconds: three days. Without a store, tombstones occupy memory and are kept
/// for one minute.
const PURGE_AGE_S: u32 = 3 * 86_400;
const PURGE_AGE_EPHEMERAL_S: u32 = 60;

/// A bucket served by this node.
pub struct Bucket {
    /// Name, unique in the cluster.
    pub name: String,
    /// UUID: 32 hexadecimal digits, never used for another bucket.
    pub uuid: String,
    vbuckets: Box<[Mutex<Vbucket>]>,
    /// The lease of the node.
    lease: Arc<Lease>,
    /// The store; `None` for a bucket that lives in memory only.
    pub store: Option<Arc<dyn Store>>,
    /// The seqno up to which each vBucket is stored.
    pub persisted: Watermarks,
    /// The consumers of history.
    pub listeners: HistoryListeners,
    /// Listeners that report to other nodes how much history the local copies hold.
    pub progress_listeners: HistoryListeners,
    manifest: RwLock<Arc<Manifest>>,
    memory: Memory,
    /// Maximum TTL of documents in seconds; 0 for no limit. Atomic rather than locked, because every write reads it.
    max_ttl: AtomicU64,
    expiry_pager_s: AtomicU32,
    /// Share of dead bytes above which the store is compacted, in percent; 0 for the compactor's default.
    fragmentation_percent: AtomicU8,
    /// Age at which tombstones are purged, in seconds; 0 for the default.
    purge_age_s: AtomicU32,
    pub(crate) durability_min_level: AtomicU8,
    compresses: AtomicBool,
    resolution: Resolution,
    /// True if the bucket can keep superseded versions.
    can_keep_history: AtomicBool,
    history_limits: Mutex<Option<HistoryRetention>>,
    discards_documents: AtomicBool,
    pub(crate) waits: Waits,
    /// Work that must not block a connection's thread.
    pub(crate) jobs: Jobs,
    pub(crate) background: BackgroundJobs,
    pub(crate) conflicts: Conflicts,
    /// The bucket's identity in version histories, if the bucket keeps them.
    site: RwLock<Option<Site>>,
    /// The open range scans.
    pub(crate) scans: Scans,
    /// The DCP connections.
    pub(crate) dcp_connections: DcpConnections,
    pub(crate) operations: Operations,
    /// Wakes the [`Keeper`].
    pub(crate) keeper: Signal,
    /// Wakes the [`Compactor`].
    pub(crate) compactor: Signal,
    compaction_asked: AtomicBool,
    /// The number of times that a vBucket has changed its state or term.
    pub arrangements: AtomicU64,
    /// vBuckets that were found active, and the value of `arrangements` at that time.
    served: Mutex<(u64, Vbids)>,
    /// The vBuckets that [are in doubt](Vbucket::mark_in_doubt).
    pub in_doubt: RwLock<BTreeSet<Vbid>>,
    /// Dropped collections whose stored documents must still be erased.
    dropped: Mutex<Vec<CollectionId>>,
    store_waiting: AtomicBool,
    /// vBuckets that refuse writes because a commit failed and their stored state is unknown.
    pub read_only: Mutex<BTreeSet<Vbid>>,
    closed: AtomicBool,
    discarded: AtomicBool,
}

impl Bucket {
    /// Loads a bucket into memory, starts its tasks and begins to serve it.
    ///
    /// `clean` means that the previous process stored all its mutations. Otherwise clients and consumers may know of
    /// lost mutations, and each vBucket that is active here begins a new branch of history.
    ///
    /// # Errors
    /// Fails when the store is damaged; the bucket then does not serve.
    pub fn open(
        config: &nacre_cluster::Bucket,
        env: &Arc<dyn BucketEnv>,
        store: Option<Arc<dyn Store>>,
        clean: bool,
        home: Home,
    ) -> Result<Arc<Bucket>, Error> {
        let persisted = Watermarks::new(usize::from(config.settings.vbucket_count));
        let mut loaded = warmup::load(config, &**env, store.as_deref(), &persisted)?;
        for (vbucket, chain) in loaded.vbuckets.iter_mut().zip(&config.chains) {
            // The stored state may predate this copy's activation, so the chain decides.
            if !clean && chain.active() == Some(home.node) && chain.has_followers() {
                vbucket.mark_in_doubt(chain.term);
            }
            let vb_uuid = VbUuid::of_random(env.random());
            copies::arrange(vbucket, chain, home.node, home.keep, vb_uuid, env.now());
        }
        if let Some(store) = store.as_deref().filter(|_| !clean) {
            loaded.begin_branches(&**env, store)?;
        }
        let mut vbuckets = loaded.vbuckets;
        let mut dropped = Vec::new();
        for vbucket in &mut vbuckets {
            // Erase collections that were dropped but not erased before the last process ended.
            for collection in vbucket.collections() {
                if config.manifest.has_lost(collection) {
                    vbucket.erase_collection(collection);
                    dropped.push(collection);
                }
            }
            // A prepare that was stored before the stop has reached its durability level.
            for key in vbucket.prepared_out_of_memory() {
                let stored = store.as_ref().map_or(Ok(None), |store| store.get(vbucket.id(), &key));
                vbucket.restore(&key, stored?, vbucket.eviction_epoch());
            }
            vbucket.complete(env.now());
        }
        let in_doubt = vbuckets.iter().filter(|vbucket| vbucket.in_doubt_term().is_some());
        let in_doubt = in_doubt.map(Vbucket::id).collect();
        let waits = Waits::default();
        waits.begin_hand_overs(&in_doubt);
        let count = vbuckets.len();
        let bucket = Arc::new(Bucket {
            name: config.name.clone(),
            uuid: config.uuid.clone(),
            lease: home.lease,
            memory: Memory::of(&vbuckets),
            vbuckets: vbuckets.into_iter().map(Mutex::new).collect(),
            store,
            persisted,
            listeners: HistoryListeners::new(count),
            progress_listeners: HistoryListeners::new(count),
            manifest: RwLock::new(Arc::new(config.manifest.clone())),
            max_ttl: AtomicU64::new(0),
            expiry_pager_s: AtomicU32::new(0),
            fragmentation_percent: AtomicU8::new(0),
            purge_age_s: AtomicU32::new(0),
            durability_min_level: AtomicU8::new(0),
            compresses: AtomicBool::new(false),
            resolution: match config.settings.conflict_resolution {
                ConflictResolution::LastWriteWins => Resolution::LastWriteWins,
                ConflictResolution::Seqno | ConflictResolution::Custom => Resolution::Seqno,
            },
            can_keep_history: AtomicBool::new(false),
            history_limits: Mutex::new(None),
            discards_documents: AtomicBool::new(false),
            waits,
            jobs: Jobs::default(),
            background: BackgroundJobs::default(),
            conflicts: Conflicts::default(),
            site: RwLock::default(),
            scans: Scans::default(),
            dcp_connections: DcpConnections::default(),
            operations: Operations::default(),
            keeper: Signal::default(),
            compactor: Signal::default(),
            compaction_asked: AtomicBool::new(false),
            arrangements: AtomicU64::new(0),
            served: Mutex::default(),
            in_doubt: RwLock::new(in_doubt),
            dropped: Mutex::new(dropped),
            store_waiting: AtomicBool::new(false),
            read_only: Mutex::default(),
            closed: AtomicBool::new(false),
            discarded: AtomicBool::new(false),
        });
        bucket.configure(&config.settings, &config.manifest);
        env.spawn(Box::new(Keeper::new(Arc::clone(&bucket), Arc::clone(env))));
        for number in 0..WORKERS {
            env.spawn(Box::new(Worker::new(Arc::clone(&bucket), number)));
        }
        if let Some(store) = &bucket.store {
            let (flushed, store) = (Arc::clone(&bucket), Arc::clone(store));
            env.spawn(Box::new(Flusher::new(flushed, Arc::clone(&store), Arc::clone(env))));
            env.spawn(Box::new(Compactor::new(Arc::clone(&bucket), store)));
        }
        Ok(bucket)
    }

    /// Applies changed settings, scopes and collections.
    pub fn configure(&self, settings: &BucketSettings, manifest: &Manifest) {
        self.memory.set_quota(settings.ram_quota_mb << 20);
        self.max_ttl.store(u64::from(settings.max_ttl), Ordering::Relaxed);
        self.expiry_pager_s.store(settings.expiry_pager_s, Ordering::Relaxed);
        self.durability_min_level.store(settings.durability_min_level, Ordering::Relaxed);
        let compresses = settings.compression_mode == CompressionMode::Active;
        self.compresses.store(compresses, Ordering::Relaxed);
        for vbucket in &self.vbuckets {
            vbucket.lock().set_eviction(eviction_of(settings));
        }
        self.configure_history(settings, manifest);
        let discards = settings.kind == BucketKind::Ephemeral
            && settings.eviction_policy == EvictionPolicy::NotRecentlyUsed;
        self.discards_documents.store(discards, Ordering::Relaxed);
        self.keeper.wake();
        *self.manifest.write() = Arc::new(manifest.clone());
    }

    /// Keeps version histories from CAS `since` on, or none for `None`. `cluster` is the UUID of the cluster.
    pub fn set_histories(&self, cluster: &str, since: Option<u64>) {
        let site = |since| Site { id: SourceId::of(&self.uuid, cluster), since: Cas(since) };
        *self.site.write() = since.map(site);
    }

    /// Returns the bucket's identity in version histories, if the bucket keeps them.
    pub(crate) fn site(&self) -> Option<Site> {
        self.site.read().clone()
    }

    /// Sets the fragmentation threshold of the compactor and the age at which tombstones are purged; `None` for the
    /// defaults.
    pub fn set_compaction(&self, percent: Option<u8>, purge_age_s: Option<u32>) {
        self.fragmentation_percent.store(percent.unwrap_or(0), Ordering::Relaxed);
        self.purge_age_s.store(purge_age_s.unwrap_or(0), Ordering::Relaxed);
        self.keeper.wake();
    }

    /// Returns the share of dead bytes above which the store is compacted, in percent; `None` for the default.
    pub fn fragmentation_percent(&self) -> Option<u8> {
        match self.fragmentation_percent.load(Ordering::Relaxed) {
            0 => None,
            percent => Some(percent),
        }
    }

    /// Tells the vBuckets which collections keep history.
    fn configure_history(&self, settings: &BucketSettings, manifest: &Manifest) {
        let has_room = self.store.as_ref().is_some_and(|store| store.keeps_history());
        self.can_keep_history.store(has_room && settings.can_keep_history(), Ordering::Relaxed);
        let keeps = has_room && settings.keeps_history();
        *self.history_limits.lock() = keeps.then_some(settings.history);
        let collections = keeps.then(|| retention::collections(manifest));
        for vbid in (0..self.vbucket_count()).map(Vbid) {
            let tell = |vbucket: &mut Vbucket| vbucket.keep_history(collections.clone());
            if self.vbucket(vbid).is_some_and(|mut vbucket| tell(&mut vbucket)) {
                self.mark_dirty(vbid);
            }
        }
        self.wake_listeners();
    }

    /// Returns true if consumers may request superseded versions.
    pub fn can_keep_history(&self) -> bool {
        self.can_keep_history.load(Ordering::Relaxed)
    }

    /// Returns the retention limits of superseded versions; `None` when they are not kept.
    pub(crate) fn history_limits(&self) -> Option<HistoryRetention> {
        *self.history_limits.lock()
    }

    /// Drops the history of `vbid` before `start`, if there is any.
    pub fn forget_history(&self, vbid: Vbid, start: Seqno) {
        if self.vbucket(vbid).is_some_and(|mut vbucket| vbucket.forget_history(start)) {
            self.mark_dirty(vbid);
        }
    }

    /// Returns the scopes and collections.
    pub fn manifest(&self) -> Arc<Manifest> {
        Arc::clone(&self.manifest.read())
    }

    /// Returns the number of vBuckets.
    pub fn vbucket_count(&self) -> u16 {
        self.vbuckets.len() as u16
    }

    /// Locks a vBucket; `None` for a number out of range.
    pub fn vbucket(&self, vbid: Vbid) -> Option<MutexGuard<'_, Vbucket>> {
        self.vbuckets.get(vbid.index()).map(Mutex::lock)
    }

    /// Returns the last seqno of each vBucket.
    pub fn high_seqnos(&self) -> Vec<Seqno> {
        self.vbuckets.iter().map(|vbucket| vbucket.lock().high_seqno()).collect()
    }

    /// Returns the last seqno of each vBucket that this node serves, and zero for the others.
    pub fn served_seqnos(&self) -> Vec<Seqno> {
        let seqno = |vbucket: &Mutex<Vbucket>| {
            let vbucket = vbucket.lock();
            if vbucket.makes_history() { vbucket.high_seqno() } else { Seqno::ZERO }
        };
        self.vbuckets.iter().map(seqno).collect()
    }

    /// Locks a vBucket that makes history here: it is active or about to be handed over.
    pub fn served(&self, vbid: Vbid) -> Option<MutexGuard<'_, Vbucket>> {
        self.vbucket(vbid).filter(|vbucket| vbucket.makes_history())
    }

    /// Locks a vBucket whose local copy is active.
    pub fn active(&self, vbid: Vbid) -> Option<MutexGuard<'_, Vbucket>> {
        self.vbucket(vbid).filter(|vbucket| vbucket.state() == VbState::Active)
    }

    /// Returns a random document of a collection that this node serves and whose value is in memory. The search begins
    /// at a vBucket that `chance` determines, so the choice is uniform within a vBucket but not across vBuckets.
    pub fn random_document(
        &self,
        collection: CollectionId,
        now_s: u32,
        chance: u64,
    ) -> Option<Document> {
        let count = self.vbucket_count();
        let begin = (chance % u64::from(count)) as u16;
        for vbid in (begin..count).chain(0..begin) {
            let Some(vbucket) = self.served(Vbid(vbid)) else { continue };
            let readable = || {
                let living = vbucket.living(collection);
                living.filter(|document| document.is_resident() && !document.is_expired(now_s))
            };
            let found = readable().count();
            if found > 0 {
                return readable().nth((chance >> 16) as usize % found).cloned();
            }
        }
        None
    }

    /// Returns the last seqno of a vBucket whose local copy is active.
    pub fn active_high_seqno(&self, vbid: Vbid) -> Option<Seqno> {
        self.active(vbid).map(|vbucket| vbucket.high_seqno())
    }

    /// Returns the vBuckets whose local copies are active.
    pub fn active_vbids(&self) -> Vbids {
        (0..self.vbucket_count()).map(Vbid).filter(|vbid| self.active(*vbid).is_some()).collect()
    }

    /// Returns true if the node holds a lease at `now`.
    pub fn has_lease(&self, now: Now) -> bool {
        self.lease.holds(now.monotonic_ns)
    }

    /// Returns true if this node, and only this node, serves all of `vbids` at `now`.
    pub fn serves(&self, vbids: &Vbids, now: Now) -> bool {
        if !self.lease.holds(now.monotonic_ns) {
            return false;
        }
        let arrangements = self.arrangements.load(Ordering::Acquire);
        let mut served = self.served.lock();
        if served.0 == arrangements && served.1.holds(vbids) {
            return true;
        }
        let is_active =
            |vbid| self.vbucket(vbid).is_some_and(|vbucket| vbucket.state() == VbState::Active);
        let all = vbids.iter().all(is_active);
        if all && served.0 == arrangements {
            served.1.add_all(vbids);
        } else if all {
            *served = (arrangements, vbids.clone());
        }
        all
    }

    /// Locks a vBucket of which this node has a copy (active, replica or pending).
    pub fn copy(&self, vbid: Vbid) -> Option<MutexGuard<'_, Vbucket>> {
        self.vbucket(vbid).filter(|vbucket| vbucket.state() != VbState::Dead)
    }

    /// Returns the counts of document requests answered since the bucket was opened.
    pub fn operation_counts(&self) -> OperationCounts {
        self.operations.counts()
    }

    /// Returns the number of documents in the vBuckets served here, and the bytes of memory in use.
    pub fn usage(&self) -> (u64, u64) {
        let vbids = (0..self.vbucket_count()).map(Vbid);
        let served = vbids.filter_map(|vbid| Some(self.served(vbid)?.alive_count()));
        (served.sum(), self.memory_bytes())
    }

    /// Returns the counts of a collection over the vBuckets served here. Their seqno is zero, because it has no meaning
    /// over several vBuckets.
    pub fn counts_of(&self, collection: CollectionId) -> CollectionCounts {
        self.counts_in(collection, &Vbids::first(self.vbucket_count()))
    }

    /// Returns the counts of a collection as [`Bucket::counts_of`] does, limited to some vBuckets.
    pub fn counts_in(&self, collection: CollectionId, vbids: &Vbids) -> CollectionCounts {
        let mut sum = CollectionCounts::default();
        for vbid in vbids.iter() {
            let Some(vbucket) = self.served(vbid) else { continue };
            let counts = vbucket.counts_of(collection);
            sum.documents += counts.documents;
            sum.memory_bytes += counts.memory_bytes;
        }
        sum
    }

    /// Returns the sum of a collection's last seqnos over those of the vBuckets that are served here. Each change of the
    /// collection increases it by at least one.
    pub fn sum_of_high_seqnos_in(&self, collection: CollectionId, vbids: &Vbids) -> u64 {
        let served = vbids.iter().filter_map(|vbid| self.served(vbid));
        served.map(|vbucket| vbucket.counts_of(collection).high_seqno.0).sum()
    }

    /// Returns true if the bucket compresses values for clients that support it.
    pub(crate) fn compresses(&self) -> bool {
        self.compresses.load(Ordering::Relaxed)
    }

    /// Returns the rule by which conflicting versions are resolved.
    pub(crate) fn resolution(&self) -> Resolution {
        self.resolution
    }

    /// Returns the maximum TTL of a collection as in [`nacre_cluster::Collection::max_ttl`]; `None` for an unknown
    /// collection.
    pub fn max_ttl(&self, collection: CollectionId) -> Option<i32> {
        self.manifest.read().collection_by_id(collection).map(|found| found.max_ttl)
    }

    /// Returns the absolute expiry of a document written now. The client's `expiry` is limited by the collection's
    /// `max_ttl`, or else by the bucket's.
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

    /// Prefetches into the processor's cache the memory that a request for the document at `key` is about to touch.
    pub fn prefetch(&self, step: PrefetchStep, vbid: Vbid, key: &[u8]) {
        let Some(vbucket) = self.vbuckets.get(vbid.index()) else { return };
        match step {
            PrefetchStep::Vbucket => nacre_vbucket::prefetch(vbucket),
            // The thread that holds the lock already has these lines in its own cache.
            PrefetchStep::Slot => vbucket.try_lock().iter().for_each(|vb| vb.prefetch_slot(key)),
            PrefetchStep::Document => {
                vbucket.try_lock().iter().for_each(|vb| vb.prefetch_document(key))
            }
        }
    }

    /// Locks a vBucket for `work` and accounts for the memory that `work` allocates or frees. Returns `None` for an
    /// unknown vBucket.
    pub fn change<T>(&self, vbid: Vbid, work: impl FnOnce(&mut Vbucket) -> T) -> Option<T> {
        let mut vbucket = self.vbucket(vbid)?;
        let before = memory_of(&vbucket);
        let result = work(&mut vbucket);
        let stored = if self.store.is_none() { self.treat_as_stored(&mut vbucket) } else { None };
        let after = memory_of(&vbucket);
        drop(vbucket);
        if let Some(stored) = stored {
            self.report_stored(vbid, stored);
        }
        if self.memory.grow(after - before) {
            self.keeper.wake();
        }
        Some(result)
    }

    /// Changes a vBucket by `work`, and settles the tickets of the durable writes that `work` completes.
    pub fn complete(&self, vbid: Vbid, work: impl FnOnce(&mut Vbucket) -> Vec<Completion>) {
        let completions = self.change(vbid, work).unwrap_or_default();
        if !completions.is_empty() {
            self.mark_dirty(vbid);
            self.waits.complete(vbid, &completions);
        }
    }

    /// Returns true if `vbucket` is active but the node holds no lease.
    pub(crate) fn lacks_lease(&self, vbucket: &Vbucket, now: Now) -> bool {
        vbucket.state() == VbState::Active && !self.lease.holds(now.monotonic_ns)
    }

    /// Carries out `command`. Returns the reply, whether history grew, and the cost; `None` for an unknown vBucket. A
    /// mutation marks the vBucket dirty; the caller must wake the consumers by [`Bucket::wake_listeners`].
    pub fn apply(
        &self,
        vbid: Vbid,
        key: &[u8],
        command: &Command<'_>,
        now: Now,
    ) -> Option<(Result<Reply, Refusal>, bool, Cost)> {
        let (reply, mutation, cost) = self.change(vbid, |vbucket| {
            if self.lacks_lease(vbucket, now) {
                return (Err(Refusal::NoLease), None, Cost::default());
            }
            let (reply, mutation) = vbucket.apply(key, command, now);
            (reply, mutation, vbucket.cost())
        })?;
        if mutation.is_some() {
            self.mark_dirty(vbid);
        }
        Some((reply, mutation.is_some(), cost))
    }

    /// Turns the expired documents of a vBucket into tombstones.
    pub(crate) fn expire(&self, vbid: Vbid, now: Now) {
        let expire = |vbucket: &mut Vbucket| vbucket.expire(now);
        let (mut buried, incomplete) = self.change(vbid, expire).unwrap_or_default();
        // Expiring a document keeps its system attributes, so evicted ones must be read back first.
        for key in &incomplete {
            if self.fetch(vbid, key).is_ok() {
                buried += self.change(vbid, expire).unwrap_or_default().0;
            }
        }
        if buried > 0 {
            self.mark_dirty(vbid);
        }
    }

    /// Returns the interval of searches for expired documents; `None` for never.
    pub(crate) fn expiry_interval(&self) -> Option<Duration> {
        let seconds = self.expiry_pager_s.load(Ordering::Relaxed);
        (seconds > 0).then(|| Duration::from_secs(u64::from(seconds)))
    }

    /// Returns the age at which tombstones are purged, in seconds.
    pub fn purge_age_s(&self) -> u32 {
        match self.purge_age_s.load(Ordering::Relaxed) {
            0 if self.store.is_some() => PURGE_AGE_S,
            0 => PURGE_AGE_EPHEMERAL_S,
            chosen => chosen,
        }
    }

    /// Marks `vbid` for every consumer of history, without waking them.
    pub fn mark_dirty(&self, vbid: Vbid) {
        self.listeners.mark(vbid);
    }

    /// Wakes the consumers that have a marked vBucket. Call it once per batch of requests.
    pub fn wake_listeners(&self) {
        self.listeners.wake();
        if self.store.is_none() {
            self.persisted.publish();
        }
    }

    /// Writes scope and collection changes into the history of every active vBucket, and erases the documents of
    /// dropped collections.
    pub fn record_events(&self, events: &[KeyspaceEvent], now: Now) {
        for vbid in (0..self.vbucket_count()).map(Vbid) {
            self.complete(vbid, |vbucket| {
                let mut completions = Vec::new();
                if vbucket.state() != VbState::Active {
                    // Other copies receive the event through replication.
                    return completions;
                }
                for event in events {
                    vbucket.record_event(&event.name, event.ended, &event.value, now);
                    if let Some(collection) = event.dropped {
                        completions.extend(vbucket.erase_collection(collection));
                    }
                }
                completions
            });
            self.mark_dirty(vbid);
        }
        self.forget_stored(&events.iter().filter_map(|event| event.dropped).collect::<Vec<_>>());
        self.wake_listeners();
    }

    /// Schedules the keeper to erase documents of dropped collections that are only in the store.
    pub(crate) fn forget_stored(&self, dropped: &[CollectionId]) {
        if !dropped.is_empty() {
            self.dropped.lock().extend(dropped);
            self.keeper.wake();
        }
    }

    /// Takes the dropped collections whose stored documents must be erased.
    pub(crate) fn take_dropped(&self) -> Vec<CollectionId> {
        std::mem::take(&mut self.dropped.lock())
    }

    /// Closes the bucket: it refuses writes, and its tasks end once they have stored all mutations.
    pub fn close(&self) {
        for vbucket in &self.vbuckets {
            vbucket.lock().make_read_only();
        }
        self.closed.store(true, Ordering::Release);
        self.listeners.wake_all();
        self.waits.end();
        self.jobs.close();
        self.background.jobs.close();
        self.conflicts.jobs.close();
        self.keeper.wake();
        self.compactor.wake();
        self.persisted.publish();
    }

    /// Closes the bucket without storing pending mutations, because it was dropped or flushed.
    pub fn discard(&self) {
        self.discarded.store(true, Ordering::Release);
        self.close();
    }

    /// Returns true after [`Bucket::discard`].
    pub(crate) fn is_discarded(&self) -> bool {
        self.discarded.load(Ordering::Acquire)
    }

    /// Returns true after [`Bucket::close`].
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}

impl nacre_dcp::Vbuckets for Bucket {
    fn with<T>(&self, vbid: Vbid, work: impl FnOnce(&mut Vbucket) -> T) -> Option<T> {
        self.vbucket(vbid).map(|mut vbucket| work(&mut vbucket))
    }
}

/// The bucket's view of its node.
pub struct Home {
    /// Number of the node.
    pub node: NodeId,
    /// The lease of the node.
    pub lease: Arc<Lease>,
    /// Retention policy for copies that are removed from the node.
    pub keep: CopyRetention,
}

impl Home {
    /// Returns a single node, which needs no lease from others.
    pub fn alone(node: NodeId) -> Home {
        Home { node, lease: Arc::default(), keep: CopyRetention::default() }
    }
}

/// A change of a scope or a collection.
pub struct KeyspaceEvent {
    /// Key of the event in history; all events of one scope or collection share it.
    pub name: Vec<u8>,
    /// The event as JSON, for consumers.
    pub value: Vec<u8>,
    /// True if the scope or collection was dropped.
    pub ended: bool,
    /// The collection whose documents are erased with the event.
    pub dropped: Option<CollectionId>,
}
