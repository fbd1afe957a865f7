//! Sync with a bucket of a cluster.
//!
//! ```text
//! application ─► SyncHandle ─► Shared ◄─► Driver (a thread): sockets, pauses
//!                                           └► SyncSession: Engine (nacre-sync) + DbReplica
//! ```
//!
//! The thread belongs to sync and waits at one point, for sockets, the database and the handle.

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
use serde_json::json;
use shared::Shared;
use socket::Access;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

/// The state of sync.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SyncState {
    /// No node can be reached; sync tries again later.
    #[default]
    Offline,
    /// Sync is connecting.
    Connecting,
    /// Older changes are being transferred.
    CatchingUp,
    /// Changes are transferred as they happen.
    Live,
    /// Sync has ended, for this reason: it was stopped, the user lacks a right, or the bucket is another one.
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
    /// The state of sync.
    pub state: SyncState,
    /// Versions received from the hub and stored.
    pub pulled: u64,
    /// Versions that the hub has accepted.
    pub pushed: u64,
    /// Resolved conflicts.
    pub conflicts: u64,
    /// Parked versions.
    pub parked: u64,
    /// The maximum number of changes that the hub still has to send, as far as known.
    pub remaining: u64,
    /// Versions sent to the hub and not yet answered.
    pub on_the_way: u64,
    /// The reason why the last connection failed; `None` if there is no problem.
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
        format!("{name}, {remaining} changes to receive, {on_the_way} being sent{trouble}")
    }

    /// Returns the figures as JSON.
    pub fn to_json(&self) -> String {
        let reason = if let SyncState::Stopped(reason) = &self.state { Some(reason) } else { None };
        json!({
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

/// An event of sync.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SyncEvent {
    /// The state has changed.
    State(SyncState),
    /// Both sides had changed a document, and the conflict was resolved.
    Conflict {
        /// The collection.
        collection: String,
        /// The key.
        key: Vec<u8>,
        /// The version that was kept.
        kept: Kept,
    },
    /// A version was parked: see [`Db::parked`].
    Parked {
        /// The collection.
        collection: String,
        /// The key.
        key: Vec<u8>,
        /// The reason.
        reason: String,
    },
    /// The hub does not have the collection. The documents on the device stay.
    NoCollection(String),
    /// The hub's documents are compared again: a part of the hub has lost versions, which are sent again, or has purged
    /// deletions.
    Again {
        /// True if the hub has lost versions.
        lost: bool,
    },
}

impl SyncEvent {
    /// Returns the event as JSON: `{"event": "state" | "conflict" | "parked" | "no_collection" | "again", ..}`.
    pub fn to_json(&self) -> String {
        let text = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
        let json = match self {
            SyncEvent::State(SyncState::Stopped(reason)) => {
                json!({"event": "state", "state": "stopped", "reason": reason})
            }
            SyncEvent::State(state) => json!({"event": "state", "state": state.name()}),
            SyncEvent::Conflict { collection, key, kept } => {
                let kept = match kept {
                    Kept::Hub => "hub",
                    Kept::Device => "device",
                    Kept::Merged => "merged",
                };
                json!({"event": "conflict", "collection": collection, "key": text(key), "kept": kept})
            }
            SyncEvent::Parked { collection, key, reason } => {
                json!({"event": "parked", "collection": collection, "key": text(key), "reason": reason})
            }
            SyncEvent::NoCollection(path) => json!({"event": "no_collection", "collection": path}),
            SyncEvent::Again { lost } => json!({"event": "again", "lost": lost}),
        };
        json.to_string()
    }
}

/// The right to run a sync. A database has one.
struct SyncPermit(Db);

impl SyncPermit {
    fn take(db: &Db) -> Result<SyncPermit, Error> {
        match db.inner().is_syncing.swap(true, Ordering::AcqRel) {
            true => Err(Error::SyncRuns),
            false => Ok(SyncPermit(db.clone())),
        }
    }
}

impl Drop for SyncPermit {
    fn drop(&mut self) {
        self.0.inner().is_syncing.store(false, Ordering::Release);
    }
}

/// A running sync. It ends when the handle is dropped.
pub struct SyncHandle {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Db {
    /// Keeps the database in step with a bucket, on a separate thread, until the handle is dropped or the database is closed.
    /// Without a network, sync waits and the database works as usual. A database can have one sync at a time.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for invalid options, [`Error::SyncRuns`], and errors of the disk.
    pub fn sync(&self, options: SyncOptions) -> Result<SyncHandle, Error> {
        let access = Access::of(&options)?;
        self.inner().check()?;
        let permit = SyncPermit::take(self)?;
        let mut session = self.sync_session(&options)?;
        let failed = |error| Error::Io { what: format!("start sync: {error}") };
        let (bell, rung) = UnixStream::pair().map_err(failed)?;
        bell.set_nonblocking(true).and_then(|()| rung.set_nonblocking(true)).map_err(failed)?;
        let shared = Arc::new(Shared::new(bell));
        let woken = Arc::clone(&shared);
        session.on_ready(move || woken.wake());
        let driver = Driver::new(session, access, Arc::clone(&shared), rung);
        let work = move || {
            driver.run();
            drop(permit);
        };
        let thread = std::thread::Builder::new().name("nacre-sync".into()).spawn(work);
        let thread = Mutex::new(Some(thread.map_err(failed)?));
        Ok(SyncHandle { shared, thread })
    }

    /// Returns a session that is not connected. A database has one at a time.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for options that contradict each other, and errors of the disk.
    pub fn sync_session(&self, options: &SyncOptions) -> Result<SyncSession, Error> {
        session::begin(self, options)
    }

    /// Returns the first message to a device whose hub is this database. The frames of a [`Session`](crate::Session) follow it.
    ///
    /// A database that is itself in step with a hub must not be the hub of other devices: sync counts versions from those devices
    /// as already in step, and does not send them on.
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

    /// Returns the parked versions as JSON, with `collection`, `key`, `reason`, `side` (`device` or `hub`), `cas`, `deleted`,
    /// `flags`, `expiry`, `history`, and `body`, `base64` or `stored`. `stored` is the key of a body of more than about 15 MiB in
    /// the collection `nacre-sync.parked_bodies`. The versions are documents of the collection `nacre-sync.parked`; remove a
    /// document from it once it has been dealt with.
    ///
    /// # Errors
    /// Errors of the disk, when the documents cannot be read.
    pub fn parked(&self) -> Result<Vec<Vec<u8>>, Error> {
        let found = self.collection(replica::PARKED)?.scan(crate::Range::all())?;
        found.map(|parked| Ok(parked?.body().to_vec())).collect()
    }
}

impl SyncHandle {
    /// Returns the figures of sync.
    pub fn status(&self) -> SyncStatus {
        self.shared.status()
    }

    /// Returns the next event and waits for it up to `timeout`; `None` when none came. If more than 1024 events are unread, the
    /// oldest are dropped.
    pub fn next_event(&self, timeout: Duration) -> Option<SyncEvent> {
        self.shared.next_event(timeout)
    }

    /// Waits until the device has everything that the hub has now, and the hub has everything that the device has written.
    ///
    /// # Errors
    /// [`Error::NotInStep`] after `timeout`, [`Error::SyncStopped`].
    pub fn wait_in_step(&self, timeout: Duration) -> Result<(), Error> {
        self.shared.wait_in_step(timeout)
    }

    /// Connects at once instead of after the current pause, for example when the network is back.
    pub fn retry_now(&self) {
        self.shared.hint();
    }

    /// Ends sync. The next sync sends what was not sent.
    pub fn stop(&self) {
        self.shared.stop();
        if let Some(thread) = self.thread.lock().take() {
            // The thread has already reported its panic.
            let _ = thread.join();
        }
    }
}

impl Drop for SyncHandle {
    fn drop(&mut self) {
        self.stop();
    }
}
