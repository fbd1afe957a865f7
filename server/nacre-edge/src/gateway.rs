//! The state that all requests share: the database, sync, logins and limits.

use crate::Options;
use crate::access::Access;
use nacre::{Db, SyncEvent, SyncHandle, SyncOptions, SyncState, SyncStatus};
use nacre_budget::Budgets;
use nacre_http::origin::Hosts;
use nacre_http::strangers::Connections;
use nacre_store::{LogSpaces, OnDamage, Space, Spaces};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{Semaphore, watch};

/// The name of the one bucket.
pub(crate) const BUCKET: &str = "default";
/// The row of the settings that records that devices have synced with this folder.
const HUB: &[u8] = b"hub";
/// The longest single wait for events of sync. The end of sync is an event.
const EVENT_WAIT: Duration = Duration::from_secs(60);
/// Maximum number of requests that wait for sync: each holds a thread.
const WAITERS_MAX: usize = 4;

/// An open gateway.
pub(crate) struct Gateway {
    pub db: Db,
    pub access: Access,
    pub budgets: Budgets,
    pub hosts: Hosts,
    pub connections: Arc<Connections>,
    /// Limits the requests about views.
    #[cfg(feature = "views")]
    pub view_waiters: Semaphore,
    settings: Arc<dyn Space>,
    upstream: Option<Link>,
    is_hub: AtomicBool,
    waiters: Semaphore,
    stop: watch::Sender<bool>,
}

/// The sync with the upstream.
struct Link {
    options: SyncOptions,
    /// `None` once the gateway stops.
    sync: Mutex<Option<Arc<SyncHandle>>>,
    log: Mutex<Option<JoinHandle<()>>>,
}

/// The reason why sync cannot answer.
pub(crate) enum NoSync {
    /// The gateway has no upstream.
    Off,
    /// Too many requests are already waiting.
    Busy,
    /// The database refused, or sync was not in step in time.
    Failed(nacre::Error),
}

/// Reads a file named by an option.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("read {}: {error}", path.display()))
}

impl Gateway {
    /// Opens the folder and starts sync.
    pub fn open(options: &Options) -> Result<Arc<Gateway>, String> {
        let certificates = options.upstream.upstream_certificates.as_deref().map(read);
        let sync = options.upstream.sync(certificates.transpose()?)?;
        let named = |error: &dyn ToString| {
            format!("open {}: {}", options.folder.display(), error.to_string())
        };
        let database = options.database()?;
        let db = Db::open_with(&options.folder, database).map_err(|e| named(&e))?;
        let spaces = LogSpaces::open(&options.folder.join("edge"), OnDamage::Refuse);
        let settings =
            spaces.and_then(|spaces| spaces.open("gateway")).map_err(|error| named(&error))?;
        let was_hub = settings.get(HUB).map_err(|error| named(&error))?.is_some();
        if sync.is_some() && was_hub {
            return Err(format!(
                "devices have synced with {}: what they wrote would not reach the upstream; begin with another folder, or without --upstream",
                options.folder.display()
            ));
        }
        let login = options.user.as_deref().zip(options.password.as_deref());
        let access = Access::open(login, Arc::clone(&settings))?;
        let budgets = Budgets::default();
        let bytes = usize::try_from(options.requests_mib << 20).unwrap_or(usize::MAX);
        budgets.requests.set_limit(bytes);
        let upstream = sync.map(|options| Link::begin(&db, options)).transpose()?;
        Ok(Arc::new(Gateway {
            access,
            budgets,
            hosts: options.hosts(),
            connections: Connections::new(options.limits()),
            #[cfg(feature = "views")]
            view_waiters: Semaphore::new(crate::views::WAITERS_MAX),
            db,
            settings,
            upstream,
            is_hub: AtomicBool::new(was_hub),
            waiters: Semaphore::new(WAITERS_MAX),
            stop: watch::channel(false).0,
        }))
    }

    /// Returns once the gateway stops.
    pub async fn stopped(&self) {
        let mut stop = self.stop.subscribe();
        // An error means that the gateway was dropped, which is the end as well.
        let _ = stop.wait_for(|stops| *stops).await;
    }

    /// Ends connections and sync.
    pub fn stop(&self) {
        self.stop.send_replace(true);
        if let Some(link) = &self.upstream {
            link.end();
        }
    }

    /// Stores everything and releases the folder.
    pub fn close(&self) -> Result<(), String> {
        self.db.close().map_err(|error| format!("close the folder: {error}"))
    }

    /// Returns true if the gateway syncs with a cluster.
    pub fn has_upstream(&self) -> bool {
        self.upstream.is_some()
    }

    /// Records on disk that devices sync with this folder.
    pub fn become_hub(&self) -> Result<(), nacre_store::Error> {
        if !self.is_hub.load(Ordering::Acquire) {
            self.settings.apply(&[(HUB.to_vec(), Some(Vec::new()))], true)?;
            self.is_hub.store(true, Ordering::Release);
        }
        Ok(())
    }

    fn link(&self) -> Result<&Link, NoSync> {
        self.upstream.as_ref().ok_or(NoSync::Off)
    }

    /// Returns the figures of sync.
    pub fn sync_status(&self) -> Result<SyncStatus, NoSync> {
        let sync = self.link()?.sync.lock().clone();
        Ok(sync.ok_or(NoSync::Failed(nacre::Error::Closed))?.status())
    }

    /// Connects at once; restarts sync if it has ended.
    pub fn retry_sync(&self) -> Result<(), NoSync> {
        let link = self.link()?;
        let mut sync = link.sync.lock();
        let Some(known) = &*sync else { return Err(NoSync::Failed(nacre::Error::Closed)) };
        if !matches!(known.status().state, SyncState::Stopped(_)) {
            known.retry_now();
            return Ok(());
        }
        known.stop();
        let again = self.db.sync(link.options.clone()).map_err(NoSync::Failed)?;
        *sync = Some(Arc::new(again));
        if let Some(log) = &*link.log.lock() {
            log.thread().unpark();
        }
        Ok(())
    }

    /// Waits until both sides have everything that the other one has now.
    pub fn wait_for_sync(&self, timeout: Duration) -> Result<(), NoSync> {
        let sync = self.link()?.sync.lock().clone();
        let sync = sync.ok_or(NoSync::Failed(nacre::Error::Closed))?;
        let Ok(_waits) = self.waiters.try_acquire() else { return Err(NoSync::Busy) };
        sync.wait_in_step(timeout).map_err(NoSync::Failed)
    }
}

impl Link {
    fn begin(db: &Db, options: SyncOptions) -> Result<Link, String> {
        let sync = db.sync(options.clone()).map_err(|error| format!("upstream: {error}"))?;
        Ok(Link { options, sync: Mutex::new(Some(Arc::new(sync))), log: Mutex::default() })
    }

    fn end(&self) {
        if let Some(sync) = self.sync.lock().take() {
            sync.stop();
        }
        if let Some(log) = self.log.lock().take() {
            log.thread().unpark();
            // The thread has already reported its panic.
            let _ = log.join();
        }
    }
}

/// Writes the events of sync to the process log, until the gateway stops.
pub(crate) fn log_sync(gateway: &Arc<Gateway>) -> Result<(), String> {
    let Some(link) = &gateway.upstream else { return Ok(()) };
    let of_thread = Arc::clone(gateway);
    let work = move || {
        let Some(link) = &of_thread.upstream else { return };
        loop {
            let Some(sync) = link.sync.lock().clone() else { return };
            while let Some(event) = sync.next_event(EVENT_WAIT) {
                report(&event, &sync.status());
            }
            drop(sync);
            if *of_thread.stop.borrow() {
                return;
            }
            if link.sync.lock().as_ref().is_some_and(|sync| has_ended(sync)) {
                // There are no more events until a request restarts sync.
                std::thread::park_timeout(EVENT_WAIT);
            }
        }
    };
    let thread = std::thread::Builder::new().name("edge-log".into()).spawn(work);
    *link.log.lock() = Some(thread.map_err(|error| format!("start a thread: {error}"))?);
    Ok(())
}

fn has_ended(sync: &SyncHandle) -> bool {
    matches!(sync.status().state, SyncState::Stopped(_))
}

/// Writes an event to the log. Document names come from other parties: they are quoted, so that
/// they cannot start a line.
fn report(event: &SyncEvent, status: &SyncStatus) {
    match event {
        SyncEvent::State(SyncState::Stopped(reason)) => {
            eprintln!("sync: stopped: {reason:?}; correct it, then POST /api/v1/sync/retry");
        }
        SyncEvent::State(state) => match &status.trouble {
            Some(trouble) => eprintln!("sync: {}: {trouble:?}", state.name()),
            None => eprintln!("sync: {}", state.name()),
        },
        SyncEvent::Conflict { collection, key, kept } => {
            eprintln!("sync: conflict: {collection}/{:?}: {kept:?}", String::from_utf8_lossy(key));
        }
        SyncEvent::Parked { collection, key, reason } => {
            let key = String::from_utf8_lossy(key);
            eprintln!("sync: parked: {collection}/{key:?}: {reason:?}");
        }
        SyncEvent::NoCollection(path) => eprintln!("sync: the hub shows no collection {path:?}"),
        SyncEvent::Again { lost: true } => eprintln!("sync: the hub has lost versions"),
        SyncEvent::Again { lost: false } => eprintln!("sync: the hub has purged deletions"),
        _ => {}
    }
}
