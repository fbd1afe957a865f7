//! A database: open, flush, close.

use crate::folder::{self, BUCKET, Folder, NODE, Opened};
use crate::fork;
use crate::gate::Gate;
use crate::host::Host;
use crate::options::{Options, Sync, Threads};
use crate::runner::Runner;
use crate::{Changes, Collection, Error, Session, Since};
use nacre_bucket::{Bucket, BucketEnv, CopyRetention, Home, events};
use nacre_cluster::{BucketChange, Change, Cluster};
use nacre_store::{Key, Store};
use nacre_types::{CollectionId, Now, Vbid};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Seconds until tombstones are purged: 60 days, the maximum of any bucket. A device may be offline for weeks before it can send
/// its deletions to a cluster.
const PURGE_AGE_S: u32 = 60 * 24 * 3600;

/// The path of a database in memory only.
const IN_MEMORY: &str = ":memory:";

/// An open database. All clones share one database. It closes when the last clone, collection, session and listener is dropped.
#[derive(Clone)]
pub struct Db(Arc<Inner>);

pub(crate) struct Inner {
    pub bucket: Arc<Bucket>,
    pub runner: Arc<Runner>,
    pub host: Arc<Host>,
    pub options: Options,
    /// The bucket's configuration, as stored in the folder. The lock admits one change at a time.
    cluster: Mutex<Cluster>,
    /// `None` for a database in memory, and after close.
    folder: Mutex<Option<Folder>>,
    gate: Option<Arc<Gate>>,
    forks: u32,
    is_closed: AtomicBool,
    #[cfg(feature = "sync")]
    pub is_syncing: AtomicBool,
    #[cfg(feature = "views")]
    pub indexes: crate::views::Indexes,
}

/// Figures of a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// Existing documents.
    pub documents: u64,
    /// Bytes of memory used by documents and by history that is not on disk yet.
    pub memory_bytes: u64,
    /// Bytes of the store's files; 0 in memory.
    pub disk_bytes: u64,
    /// Changes that are not on disk yet.
    pub unsaved: u64,
    /// True while writes wait for space on the disk.
    pub is_full: bool,
}

impl Db {
    /// Opens the database in the folder `path` with the default [`Options`]; `:memory:` opens a new one in memory.
    ///
    /// # Errors
    /// See [`Db::open_with`].
    pub fn open(path: impl AsRef<Path>) -> Result<Db, Error> {
        Db::open_with(path, Options::default())
    }

    /// Opens the database in the folder `path`; `:memory:` opens a new one in memory.
    ///
    /// # Errors
    /// [`Error::InUse`] when the folder is already open, [`Error::Newer`] and [`Error::Damaged`] for the content of the folder,
    /// [`Error::WrongKey`], [`Error::Encrypted`] and [`Error::NotEncrypted`] for its key, [`Error::Full`], [`Error::Io`], and
    /// [`Error::InvalidArgument`] for options out of range.
    pub fn open_with(path: impl AsRef<Path>, mut options: Options) -> Result<Db, Error> {
        options.check()?;
        let path = path.as_ref();
        let opened = match path.as_os_str() == IN_MEMORY {
            true => folder::in_memory(&options),
            false => folder::open(path, &options)?,
        };
        // A later copy of the memory contains the master key, but not the user's passphrase.
        options.key = None;
        Db::start(opened, options)
    }

    /// Opens a database over a store of the caller, for simulations and tests. Scopes and collections are not stored. `is_clean`
    /// says that the store has every write that was ever acknowledged from it.
    ///
    /// # Errors
    /// As for [`Db::open_with`].
    pub fn open_over(store: Arc<dyn Store>, is_clean: bool, options: Options) -> Result<Db, Error> {
        options.check()?;
        if options.key.is_some() {
            let what = "a key is for a folder: open the store with its own";
            return Err(Error::InvalidArgument(what.into()));
        }
        Db::start(folder::over(store, is_clean, &options), options)
    }

    fn start(opened: Opened, options: Options) -> Result<Db, Error> {
        let Opened { config, store, is_clean, folder } = opened;
        let runner = Runner::new(Arc::clone(&options.clock), options.sync);
        let host = Host::new(Arc::clone(&options.clock), Arc::clone(&runner));
        let env = Arc::clone(&host) as Arc<dyn BucketEnv>;
        let gate = store.map(Gate::new);
        let store = gate.clone().map(|gate| gate as Arc<dyn Store>);
        let bucket = Bucket::open(&config, &env, store, is_clean, Home::alone(NODE))?;
        bucket.set_compaction(None, Some(PURGE_AGE_S));
        host.serve(Arc::clone(&bucket));
        let mut cluster = Cluster::new(String::new());
        cluster.buckets.insert(BUCKET.into(), config);
        if options.threads == Threads::One {
            let failed = |error| Error::Io { what: format!("start a thread: {error}") };
            runner.start().map_err(failed)?;
        }
        Ok(Db(Arc::new(Inner {
            bucket,
            runner,
            host,
            options,
            cluster: Mutex::new(cluster),
            folder: Mutex::new(folder),
            gate,
            forks: fork::generation(),
            is_closed: AtomicBool::new(false),
            #[cfg(feature = "sync")]
            is_syncing: AtomicBool::new(false),
            #[cfg(feature = "views")]
            indexes: crate::views::Indexes::default(),
        })))
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.0
    }

    /// Returns the collection `path`, and creates it and its scope if they are missing: `scope.collection`, or `collection` in
    /// the scope `_default`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a name that is not allowed, and errors of the disk.
    pub fn collection(&self, path: &str) -> Result<Collection, Error> {
        let (scope, name) = path.split_once('.').unwrap_or(("_default", path));
        self.0.check()?;
        if let Some(found) = self.0.bucket.manifest().collection(scope, name) {
            return Ok(Collection::new(self, CollectionId(found.id)));
        }
        if self.0.bucket.manifest().scope(scope).is_none() {
            match self.create_scope(scope) {
                Ok(()) | Err(Error::KeyspaceExists(_)) => {}
                Err(error) => return Err(error),
            }
        }
        match self.create_collection(scope, name, 0) {
            Ok(()) | Err(Error::KeyspaceExists(_)) => {}
            Err(error) => return Err(error),
        }
        let manifest = self.0.bucket.manifest();
        let found = manifest.collection(scope, name);
        let found = found.ok_or_else(|| Error::CollectionNotFound(path.to_owned()))?;
        Ok(Collection::new(self, CollectionId(found.id)))
    }

    /// Returns the collection `path` if it exists: `scope.collection`, or `collection` in the scope `_default`.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Forked`].
    pub fn find_collection(&self, path: &str) -> Result<Option<Collection>, Error> {
        let (scope, name) = path.split_once('.').unwrap_or(("_default", path));
        self.0.check()?;
        let found = self.0.bucket.manifest().collection(scope, name).map(|found| found.id);
        Ok(found.map(|id| Collection::new(self, CollectionId(id))))
    }

    /// Returns the collection `_default._default`.
    pub fn default_collection(&self) -> Collection {
        Collection::new(self, CollectionId::DEFAULT)
    }

    /// Returns the collections as `scope.collection`, in order of creation.
    pub fn collections(&self) -> Vec<String> {
        let manifest = self.0.bucket.manifest();
        let names = manifest.scopes.iter().flat_map(|scope| {
            scope.collections.iter().map(|found| format!("{}.{}", scope.name, found.name))
        });
        names.collect()
    }

    /// Returns the scopes, in order of creation.
    pub fn scopes(&self) -> Vec<String> {
        self.0.bucket.manifest().scopes.iter().map(|scope| scope.name.clone()).collect()
    }

    /// Creates a scope.
    ///
    /// # Errors
    /// [`Error::KeyspaceExists`], [`Error::InvalidArgument`] for a name that is not allowed, and errors of the disk.
    pub fn create_scope(&self, scope: &str) -> Result<(), Error> {
        self.0.change(&Change::Buckets(BucketChange::CreateScope {
            bucket: BUCKET.into(),
            scope: scope.into(),
        }))
    }

    /// Drops a scope, its collections and their documents.
    ///
    /// # Errors
    /// [`Error::ScopeNotFound`], [`Error::InvalidArgument`] for `_default`, and errors of the disk.
    pub fn drop_scope(&self, scope: &str) -> Result<(), Error> {
        self.0.change(&Change::Buckets(BucketChange::DropScope {
            bucket: BUCKET.into(),
            scope: scope.into(),
        }))
    }

    /// Creates a collection. Its documents live for at most `max_ttl_s` seconds; 0 for no limit.
    ///
    /// # Errors
    /// [`Error::KeyspaceExists`], [`Error::ScopeNotFound`], [`Error::InvalidArgument`] for a name that is not allowed, and errors
    /// of the disk.
    pub fn create_collection(&self, scope: &str, name: &str, max_ttl_s: u32) -> Result<(), Error> {
        let max_ttl = i32::try_from(max_ttl_s)
            .map_err(|_| Error::InvalidArgument("the longest life is at most 68 years".into()))?;
        let (bucket, scope, collection) = (BUCKET.into(), scope.into(), name.into());
        self.0.change(&Change::Buckets(BucketChange::CreateCollection {
            bucket,
            scope,
            collection,
            max_ttl,
            history: None,
        }))
    }

    /// Drops a collection and its documents.
    ///
    /// # Errors
    /// [`Error::ScopeNotFound`], [`Error::CollectionNotFound`], and errors of the disk.
    pub fn drop_collection(&self, scope: &str, name: &str) -> Result<(), Error> {
        let (bucket, scope, collection) = (BUCKET.into(), scope.into(), name.into());
        self.0.change(&Change::Buckets(BucketChange::DropCollection { bucket, scope, collection }))
    }

    /// Returns the changes of all collections from `since`.
    ///
    /// # Errors
    /// [`Error::Gone`] for a token of a lost history, [`Error::InvalidArgument`] for a malformed token.
    pub fn changes(&self, since: Since<'_>) -> Result<Changes, Error> {
        Changes::open(self, None, since)
    }

    /// Opens a session of the key-value protocol: frames in, frames out, logged in as the owner of the database. Calls `wake`, on
    /// any thread and also within a call of the session, when [`Session::poll`] may have more.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Forked`].
    pub fn session(
        &self,
        wake: impl Fn() + Send + std::marker::Sync + 'static,
    ) -> Result<Session, Error> {
        self.0.check()?;
        Ok(Session::new(self, Box::new(wake)))
    }

    /// Stores all writes that have returned, and waits until they survive a power cut.
    ///
    /// # Errors
    /// [`Error::Full`] and [`Error::Broken`].
    pub fn flush(&self) -> Result<(), Error> {
        self.0.check()?;
        self.0.flush()
    }

    /// Does the work that is due, in a database opened with [`Threads::None`]. Returns the time until more work is due if nobody
    /// writes; `None` for no time limit.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Forked`].
    pub fn poll(&self) -> Result<Option<Duration>, Error> {
        self.0.check()?;
        Ok(self.0.runner.run(false))
    }

    /// Replaces the key of an encrypted folder; from then on only `key` opens it. The documents are not written again: a person with
    /// the previous key and an earlier copy of the folder can read later copies, too. If other people have learned a key, copy the
    /// documents to a new folder instead.
    ///
    /// # Errors
    /// [`Error::NotEncrypted`] for a folder without a key and for a database in memory; [`Error::Full`] and errors of the disk,
    /// after which either the previous key or `key` opens the folder: repeat the call.
    pub fn rekey(&self, key: &Key) -> Result<(), Error> {
        self.0.check()?;
        if *key == Key::Passphrase(String::new()) {
            return Err(Error::InvalidArgument("the passphrase is empty".into()));
        }
        match &*self.0.folder.lock() {
            Some(folder) => folder.rekey(key),
            None => Err(Error::NotEncrypted),
        }
    }

    /// Frees as much disk space as possible, and returns when that is done.
    ///
    /// # Errors
    /// [`Error::Full`] and [`Error::Broken`] as for [`Db::flush`], and errors of the disk.
    pub fn compact(&self) -> Result<(), Error> {
        self.flush()?;
        if let Some(store) = &self.0.bucket.store {
            while store.compact(1)? > 0 {}
        }
        Ok(())
    }

    /// Returns the number of vBuckets, which was chosen when the folder was created.
    pub fn vbucket_count(&self) -> u16 {
        self.0.bucket.vbucket_count()
    }

    /// Returns the figures of the database.
    pub fn status(&self) -> Status {
        let bucket = &self.0.bucket;
        let (documents, memory_bytes) = bucket.usage();
        let seqnos = bucket.high_seqnos().into_iter().enumerate();
        let unsaved = seqnos.map(|(index, high)| {
            let stored = bucket.persisted.get(Vbid(index as u16));
            high.0.saturating_sub(stored.0)
        });
        Status {
            documents,
            memory_bytes,
            disk_bytes: bucket.disk_usage().disk_bytes,
            unsaved: if bucket.is_persistent() { unsaved.sum() } else { 0 },
            is_full: bucket.store_is_waiting(),
        }
    }

    /// Stores all unsaved writes and closes the database, also for its collections, sessions and listeners. A second call does
    /// nothing.
    ///
    /// # Errors
    /// [`Error::Full`] and [`Error::Broken`] when a write could not be stored; that write is then lost.
    pub fn close(&self) -> Result<(), Error> {
        if self.0.forks != fork::current() {
            return Err(Error::Forked);
        }
        self.0.close()
    }

    /// Answers a request of an SDK about scopes and collections, about views (`/default/_design/…`), or for SQL++ (`/query/service`).
    /// `method` and `path` are those of HTTP, `body` is a form, or JSON for views and SQL++. Returns the status and the body of the
    /// answer, which is JSON. The status is 404 for requests that the database does not support, and 501 for views and SQL++ in a
    /// library without the features `views` and `query`.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Forked`], and errors of the disk. An invalid request gets an answer, not an error.
    pub fn manage(&self, method: &str, path: &str, body: &[u8]) -> Result<(u16, String), Error> {
        crate::manage::answer(self, method, path, body)
    }
}

impl Inner {
    pub fn now(&self) -> Now {
        self.options.clock.now()
    }

    /// Refuses calls after the database was closed, and calls in a child of the process that opened it.
    pub fn check(&self) -> Result<(), Error> {
        if self.forks != fork::current() {
            return Err(Error::Forked);
        }
        if self.is_closed.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        Ok(())
    }

    /// Calls `read` with the bucket's configuration.
    #[cfg(feature = "views")]
    pub fn with_config<T>(&self, read: impl FnOnce(&nacre_cluster::Bucket) -> T) -> T {
        read(&self.cluster.lock().buckets[BUCKET])
    }

    /// Changes scopes, collections and design documents: in the folder first, then in the bucket.
    pub fn change(&self, change: &Change) -> Result<(), Error> {
        self.check()?;
        let mut cluster = self.cluster.lock();
        let mut after = cluster.clone();
        after.apply(change)?;
        let (old, new) = (&cluster.buckets[BUCKET], &after.buckets[BUCKET]);
        if let Some(folder) = &*self.folder.lock() {
            folder.put(new)?;
        }
        let now = self.now();
        self.bucket.configure(&new.settings, &new.manifest);
        let vb_uuid = || nacre_types::VbUuid::of_random(BucketEnv::random(&*self.host));
        self.bucket.arrange(&old.chains, &new.chains, NODE, CopyRetention::default(), vb_uuid, now);
        let events = events::between(&old.manifest, &new.manifest);
        if !events.is_empty() {
            self.bucket.record_events(&events, now);
        }
        *cluster = after;
        Ok(())
    }

    /// Stores all unsaved writes, on this thread.
    pub fn flush(&self) -> Result<(), Error> {
        if !self.bucket.is_persistent() {
            return Ok(());
        }
        self.runner.flush();
        self.failure()
    }

    /// Returns the reason why the store accepts no writes, if there is one.
    pub fn failure(&self) -> Result<(), Error> {
        if self.bucket.store_is_waiting() {
            return Err(Error::Full);
        }
        if !self.bucket.read_only.lock().is_empty() {
            return Err(Error::Broken { what: "a write to the disk failed".into() });
        }
        Ok(())
    }

    /// Refuses a write when there is no memory, after an attempt to free some, or when the disk has no space.
    pub fn check_room(&self) -> Result<(), Error> {
        if !self.bucket.refuses_growth() {
            return Ok(());
        }
        // Documents that are on disk can be evicted. The task that evicts may be on another thread, or pause after a pass that
        // freed nothing.
        self.flush()?;
        self.bucket.free_memory(self.now());
        match self.bucket.refuses_growth() {
            true => Err(Error::QuotaExceeded),
            false => Ok(()),
        }
    }

    /// Makes a write durable as `sync` requires. The write has already been applied in memory.
    pub fn settle(&self, sync: Sync) -> Result<(), Error> {
        if sync == Sync::Always { self.flush() } else { Ok(()) }
    }

    fn close(&self) -> Result<(), Error> {
        if self.is_closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        #[cfg(feature = "views")]
        self.indexes.clear();
        let flushed = self.flush();
        self.bucket.close();
        self.runner.stop();
        let seqnos = self.bucket.high_seqnos().into_iter().enumerate();
        let mut is_behind = false;
        for (index, high) in seqnos {
            is_behind |= self.bucket.persisted.get(Vbid(index as u16)) < high;
        }
        let folder = self.folder.lock().take();
        let marked = match folder.as_ref().filter(|_| !is_behind) {
            Some(folder) => folder.mark_clean(),
            None => Ok(()),
        };
        // Close the store first, so that a process that finds the folder unlocked also finds its store unlocked.
        self.gate.iter().for_each(|gate| gate.shut());
        drop(folder);
        flushed.and(marked)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.forks == fork::current() {
            // No caller is left to receive an error; the next open finds the stored writes.
            let _ = self.close();
            return;
        }
        // The parent still uses these files: this process must not write to them, not even when it exits.
        std::mem::forget((Arc::clone(&self.bucket), Arc::clone(&self.host), self.gate.take()));
        std::mem::forget((self.folder.get_mut().take(), Arc::clone(&self.runner)));
        #[cfg(feature = "views")]
        std::mem::forget(std::mem::take(&mut self.indexes));
    }
}
