//! Sync with a bucket of a cluster.
//!
//! ```text
//! application ─► SyncHandle ─► Shared ◄─► Driver (a thread): sockets, pauses
//!                                           └► SyncSession: Engine (nacre-sync) + DbReplica
//! ```
//!
//! The thread belongs to sync and waits in one place, for sockets, the database and the handle.

mod driver;
mod options;
mod replica;
mod session;
mod shared;
mod socket;

pub use nacre_sync::{
    Conflict, ConflictMode, Direction, Failure, Hello, Kept, LineId, NodeAddress, Notice,
};
pub use nacre_vbucket::{Verdict, Version};
pub use options::SyncOptions;
pub use replica::{
    PARKED as PARKED_COLLECTION, PARKED_BODIES as PARKED_BODIES_COLLECTION, SCOPE as SYNC_SCOPE,
};
pub use session::SyncSession;
pub use socket::PROTOCOL as SYNC_PROTOCOL;

use crate::{Db, Error};
use driver::Driver;
use parking_lot::Mutex;
use shared::Shared;
use socket::Access;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

/// How far sync is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SyncState {
    /// No node can be reached; another attempt will be made.
    #[default]
    Offline,
    /// A connection is being made.
    Connecting,
    /// Older changes are on their way.
    CatchingUp,
    /// Changes go over as they happen.
    Live,
    /// It has ended, for this reason: it was stopped, the user lacks a right, or the bucket is another one.
    Stopped(String),
}

impl SyncState {
    /// Returns the name of the state: `offline`, `connecting`, `catching_up`, `live` or `stopped`.
    pub fn name(&self) -> &'static str {
        match self {
            SyncState::Offline => "offline",
            SyncState::Connecting => "connecting",
            SyncState::CatchingUp => "catching_up",
            SyncState::Live => "live",
            SyncState::Stopped(_) => "stopped",
        }
    }
}

/// Figures of sync.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SyncStatus {
    /// How far it is.
    pub state: SyncState,
    /// Versions that were taken from the hub.
    pub pulled: u64,
    /// Versions that the hub has taken.
    pub pushed: u64,
    /// Conflicts that were decided.
    pub conflicts: u64,
    /// Versions that were put aside.
    pub parked: u64,
    /// Changes of the hub that are still to come, at most, as far as known.
    pub remaining: u64,
    /// Versions on their way to the hub.
    pub on_the_way: u64,
    /// Why the last connection failed; `None` while all is well.
    pub trouble: Option<String>,
}

impl SyncStatus {
    fn set(&mut self, status: nacre_sync::Status) {
        let nacre_sync::Status { pulled, pushed, conflicts, parked, remaining, on_the_way, .. } =
            status;
        (self.pulled, self.pushed, self.conflicts) = (pulled, pushed, conflicts);
        (self.parked, self.remaining, self.on_the_way) = (parked, remaining, on_the_way);
    }

    fn describe(&self) -> String {
        let SyncStatus { state, remaining, on_the_way, trouble, .. } = self;
        let trouble = trouble.as_ref().map_or(String::new(), |trouble| format!(": {trouble}"));
        let name = state.name();
        format!("{name}, {remaining} changes to come, {on_the_way} on their way{trouble}")
    }

    /// Returns the figures as JSON.
    pub fn to_json(&self) -> String {
        let reason = if let SyncState::Stopped(reason) = &self.state { Some(reason) } else { None };
        serde_json::json!({
            "state": self.state.name(),
            "reason": reason,
            "trouble": self.trouble,
            "pulled": self.pulled,
            "pushed": self.pushed,
            "conflicts": self.conflicts,
            "parked": self.parked,
            "remaining": self.remaining,
            "on_the_way": self.on_the_way,
        })
        .to_string()
    }
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SyncEvent {
    /// The state is another one.
    State(SyncState),
    /// Both sides had changed a document, and it was decided.
    Conflict {
        /// The collection.
        collection: String,
        /// The key.
        key: Vec<u8>,
        /// Which version was kept.
        kept: Kept,
    },
    /// A version was put aside: see [`Db::parked`].
    Parked {
        /// The collection.
        collection: String,
        /// The key.
        key: Vec<u8>,
        /// Why.
        reason: String,
    },
    /// The hub shows no such collection. What is on the device stays.
    NoCollection(String),
    /// A part of the hub has lost versions, which are sent again, or has forgotten deletions: its documents are compared again.
    Again {
        /// True if it has lost versions.
        lost: bool,
    },
}

/// The turn of the one sync that a database has.
struct Turn(Db);

impl Turn {
    fn take(db: &Db) -> Result<Turn, Error> {
        match db.inner().is_syncing.swap(true, Ordering::AcqRel) {
            true => Err(Error::SyncRuns),
            false => Ok(Turn(db.clone())),
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.inner().is_syncing.store(false, Ordering::Release);
    }
}

/// Sync that runs. It ends when the handle is dropped.
pub struct SyncHandle {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Db {
    /// Keeps the database in step with a bucket, on a thread of its own, until the handle is dropped or the database is closed. Without a
    /// network it waits, and the database works as ever. A database has one sync at a time.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for options that cannot be, [`Error::SyncRuns`], and what the disk refuses.
    pub fn sync(&self, options: SyncOptions) -> Result<SyncHandle, Error> {
        let access = Access::of(&options)?;
        self.inner().check()?;
        let turn = Turn::take(self)?;
        let mut session = self.sync_session(&options)?;
        let failed = |error| Error::Io { what: format!("start sync: {error}") };
        let (bell, rung) = UnixStream::pair().map_err(failed)?;
        bell.set_nonblocking(true).and_then(|()| rung.set_nonblocking(true)).map_err(failed)?;
        let shared = Arc::new(Shared::new(bell));
        let woken = Arc::clone(&shared);
        session.on_ready(move || woken.ring());
        let driver = Driver::new(session, access, Arc::clone(&shared), rung);
        let work = move || {
            driver.run();
            drop(turn);
        };
        let thread = std::thread::Builder::new().name("nacre-sync".into()).spawn(work);
        let thread = Mutex::new(Some(thread.map_err(failed)?));
        Ok(SyncHandle { shared, thread })
    }

    /// Returns the first message to a device whose hub is this database: it is followed by the frames of a [`Session`](crate::Session).
    ///
    /// A database that is in step with a hub itself must not be the hub of others: what it takes from a device counts as in step, and is not
    /// sent on.
    pub fn hello(&self) -> Hello {
        let bucket = &self.inner().bucket;
        Hello {
            cluster_uuid: bucket.uuid.clone(),
            bucket: bucket.name.clone(),
            bucket_uuid: bucket.uuid.clone(),
            vbuckets: bucket.vbucket_count(),
            by_time: false,
            unix_ns: self.inner().now().unix_ns,
            nodes: Vec::new(),
        }
    }

    /// Returns the versions that sync has put aside, as JSON: with `collection`, `key`, `reason`, `side` (`device` or `hub`), `cas`,
    /// `deleted`, `flags`, `expiry`, `history`, and `body` or `base64`, or `stored`: the key of a body of more than about 15 MiB in the
    /// collection `nacre-sync.parked_bodies`. They are the documents of the collection `nacre-sync.parked`: who has dealt with one removes it
    /// there.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn parked(&self) -> Result<Vec<Vec<u8>>, Error> {
        let found = self.collection(replica::PARKED)?.scan(crate::Range::all())?;
        found.map(|parked| Ok(parked?.body().to_vec())).collect()
    }
}

impl SyncHandle {
    /// Returns figures.
    pub fn status(&self) -> SyncStatus {
        self.shared.status()
    }

    /// Returns the next event, and waits for it up to `timeout`; `None` when there was none. Of more than 1024 that nobody reads, the
    /// oldest are dropped.
    pub fn next_event(&self, timeout: Duration) -> Option<SyncEvent> {
        self.shared.next_event(timeout)
    }

    /// Waits until the device has everything that the hub has now, and the hub everything that the device has written.
    ///
    /// # Errors
    /// [`Error::NotInStep`] after `timeout`, [`Error::SyncStopped`].
    pub fn wait_in_step(&self, timeout: Duration) -> Result<(), Error> {
        self.shared.wait_in_step(timeout)
    }

    /// Tries to connect at once, as after a hint that there is a network.
    pub fn retry_now(&self) {
        self.shared.hint();
    }

    /// Ends sync. What was not sent is sent by the next one.
    pub fn stop(&self) {
        self.shared.stop();
        if let Some(thread) = self.thread.lock().take() {
            // A panic was reported by its thread.
            let _ = thread.join();
        }
    }
}

impl Drop for SyncHandle {
    fn drop(&mut self) {
        self.stop();
    }
}
