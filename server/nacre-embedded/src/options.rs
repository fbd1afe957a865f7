//! The options of a database.

use nacre_store::Key;
use nacre_types::Now;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The time at which a write is on disk and survives a power cut. Until then it is only in the memory of this process, and is
/// lost when the process ends, also by a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// Before the call returns. Threads that write at the same time share one sync.
    Always,
    /// At most this long after the call returned, plus the time of one sync.
    After(Duration),
    /// At [`Db::flush`](crate::Db::flush), when the database is closed, or when memory is short.
    Never,
}

/// The store of a folder. It is chosen when the folder is created, and never changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoreKind {
    /// nacre's segmented log.
    #[default]
    Log,
    /// The embedded database sled. Needs the feature `sled`.
    Sled,
}

impl StoreKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            StoreKind::Log => "log",
            StoreKind::Sled => "sled",
        }
    }
}

/// The threads that do the background work: storing, compaction, expiry, eviction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Threads {
    /// One thread of the library, named `nacre`.
    #[default]
    One,
    /// None: the application calls [`Db::poll`](crate::Db::poll). [`Sync::After`] holds only if the application polls in time.
    None,
}

/// The clocks that a database reads, and its source of randomness.
pub trait Clock: Send + std::marker::Sync {
    /// Returns the wall clock and the monotonic clock. The wall clock may step back, the monotonic clock must not.
    fn now(&self) -> Now;

    /// Returns a random number, for names of histories and the secret of the session. By default it comes from the operating
    /// system; if that fails, it is derived from the clock and differs with each start. Only tests that repeat a run override it.
    fn random(&self) -> u64 {
        getrandom::u64().unwrap_or_else(|_| self.now().unix_ns.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }
}

/// The clocks of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Now {
        static START: OnceLock<Instant> = OnceLock::new();
        let monotonic_ns = START.get_or_init(Instant::now).elapsed().as_nanos() as u64;
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now { unix_ns: unix.as_nanos() as u64, monotonic_ns }
    }
}

/// The options of a database. The defaults suit a device with several hundred thousand documents.
#[derive(Clone)]
pub struct Options {
    /// The durability of writes that do not set their own. Default: 10 ms after.
    pub sync: Sync,
    /// Memory for documents, in MiB, at least 4. Values beyond it are evicted, and read from the store when needed; without a
    /// store, writes are refused. Default: 64.
    pub quota_mib: u64,
    /// The number of vBuckets of a new folder, 1..=1024. Each vBucket has its own history and one lock. Default: 16.
    pub vbuckets: u16,
    /// The store of a new folder.
    pub store: StoreKind,
    /// Bytes of a segment of the log, at least 64 KiB. Default: 1 MiB.
    pub segment_bytes: u32,
    /// The key of an encrypted folder. A new folder is encrypted if there is a key; a folder never changes from plain to encrypted
    /// or back, but [`Db::rekey`](crate::Db::rekey) changes its key. Needs the store `log`. Default: none.
    pub key: Option<Key>,
    /// True to create a database in a missing or empty folder. Default: true.
    pub create: bool,
    /// The threads that do the background work.
    pub threads: Threads,
    /// The clocks.
    pub clock: Arc<dyn Clock>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            sync: Sync::After(Duration::from_millis(10)),
            quota_mib: 64,
            vbuckets: 16,
            store: StoreKind::Log,
            segment_bytes: 1 << 20,
            key: None,
            create: true,
            threads: Threads::One,
            clock: Arc::new(SystemClock),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("sync", &self.sync)
            .field("quota_mib", &self.quota_mib)
            .field("vbuckets", &self.vbuckets)
            .field("store", &self.store)
            .field("segment_bytes", &self.segment_bytes)
            .field("key", &self.key)
            .field("create", &self.create)
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}

impl Options {
    /// The smallest quota, in MiB.
    pub const QUOTA_MIB_MIN: u64 = 4;
    /// The smallest segment of the log.
    pub const SEGMENT_BYTES_MIN: u32 = 64 << 10;

    pub(crate) fn check(&self) -> Result<(), crate::Error> {
        let refuse = |what: &str| Err(crate::Error::InvalidArgument(what.to_owned()));
        if !(1..=1024).contains(&self.vbuckets) {
            return refuse("the number of vBuckets is 1 to 1024");
        }
        if !(Options::QUOTA_MIB_MIN..=16 << 20).contains(&self.quota_mib) {
            return refuse("the memory quota is 4 MiB to 16 TiB");
        }
        if self.segment_bytes < Options::SEGMENT_BYTES_MIN {
            return refuse("a segment has 64 KiB or more");
        }
        if self.store == StoreKind::Sled && cfg!(not(feature = "sled")) {
            return refuse("this library was built without the store sled");
        }
        if self.store == StoreKind::Sled && self.key.is_some() {
            return refuse(
                "the store sled is not encrypted: leave out the key, or use the store log",
            );
        }
        if self.key == Some(Key::Passphrase(String::new())) {
            return refuse("the passphrase is empty");
        }
        Ok(())
    }
}
