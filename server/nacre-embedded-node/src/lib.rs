//! nacre in the process for Node: what `connect('nacre:///folder')` of sdk-js loads.
//!
//! ```text
//! Connection ─► EmbeddedSocket.write ─► Session.receive(frames) ─► responses, at once
//!               EmbeddedSocket 'data' ◄─ Session.poll() ◄─ wake(), from any thread, when there are more
//! ```
//!
//! The addon knows no opcode: it hands bytes over. Node-API is the one interface to Node, so that a binary serves every later version.

use nacre::{Db, Options, StoreKind, Sync as Durability, SyncHandle, SyncOptions};
use napi::bindgen_prelude::{AsyncTask, Buffer};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi::{Env, Error, Result, Status, Task};
use napi_derive::napi;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// What wakes a session's owner. It keeps no process alive, and carries nothing.
type Wake = ThreadsafeFunction<(), (), (), Status, false, true>;

fn failed(error: &nacre::Error) -> Error {
    let code = match error {
        nacre::Error::InUse { .. } => "IN_USE",
        nacre::Error::InvalidArgument(_) => "INVALID_ARGUMENT",
        nacre::Error::Closed => "CLOSED",
        _ => "FAILED",
    };
    Error::new(Status::GenericFailure, format!("{code}: {error}"))
}

/// How a database is opened; what is missing has the library's default.
#[napi(object)]
#[derive(Default)]
pub struct OpenOptions {
    /// `always`, `after` or `never`.
    pub sync: Option<String>,
    /// Milliseconds for `after`.
    pub sync_delay_ms: Option<u32>,
    /// Memory for documents, in MiB.
    pub quota_mib: Option<u32>,
    /// The number of vBuckets of a folder that is created.
    pub vbuckets: Option<u32>,
    /// `log` or `sled`, for a folder that is created.
    pub store: Option<String>,
    /// Whether a folder is created.
    pub create: Option<bool>,
}

impl OpenOptions {
    fn read(self) -> Result<Options> {
        let refuse = |what: String| Err(failed(&nacre::Error::InvalidArgument(what)));
        let mut options = Options::default();
        if let Some(delay) = self.sync_delay_ms {
            options.sync = Durability::After(Duration::from_millis(delay.into()));
        }
        match self.sync.as_deref() {
            None | Some("after") => {}
            Some("always") => options.sync = Durability::Always,
            Some("never") => options.sync = Durability::Never,
            Some(other) => return refuse(format!("sync is always, after or never, not {other}")),
        }
        match self.store.as_deref() {
            None | Some("log") => {}
            Some("sled") => options.store = StoreKind::Sled,
            Some(other) => return refuse(format!("store is log or sled, not {other}")),
        }
        if let Some(quota) = self.quota_mib {
            options.quota_mib = quota.into();
        }
        if let Some(vbuckets) = self.vbuckets {
            // What is out of range is refused by the library, with the range.
            options.vbuckets = u16::try_from(vbuckets).unwrap_or(u16::MAX);
        }
        options.create = self.create.unwrap_or(true);
        Ok(options)
    }
}

/// The answer to a request about scopes and collections.
#[napi(object)]
pub struct Answer {
    /// Status of HTTP.
    pub status: u32,
    /// JSON.
    pub body: String,
}

/// An open database.
#[napi]
pub struct Database {
    /// `None` once it was closed: the garbage collector may keep this for long.
    db: Option<Db>,
}

#[napi]
impl Database {
    /// Opens a folder, or with `:memory:` a new database in memory.
    #[napi(constructor)]
    pub fn new(path: String, options: Option<OpenOptions>) -> Result<Database> {
        let options = options.unwrap_or_default().read()?;
        let db = Db::open_with(path, options).map_err(|error| failed(&error))?;
        Ok(Database { db: Some(db) })
    }

    fn open(&self) -> Result<&Db> {
        self.db.as_ref().ok_or_else(|| failed(&nacre::Error::Closed))
    }

    /// Opens a session of the key-value protocol. `wake` is called when `poll` may have more.
    #[napi]
    pub fn session(&self, wake: Wake) -> Result<Session> {
        let wake = move || {
            // A call that is refused is one to an environment that ends.
            wake.call((), ThreadsafeFunctionCallMode::NonBlocking);
        };
        let session = self.open()?.session(wake).map_err(|error| failed(&error))?;
        Ok(Session { session: Some(session), ended: None })
    }

    /// Answers a request of the management protocol about scopes and collections.
    #[napi]
    pub fn manage(&self, method: String, path: String, body: Buffer) -> Result<Answer> {
        let answer = self.open()?.manage(&method, &path, &body);
        let (status, body) = answer.map_err(|error| failed(&error))?;
        Ok(Answer { status: status.into(), body })
    }

    /// Keeps the database in step with a bucket, by options in JSON: see `nacre_sync_start` of the library for C.
    #[napi]
    pub fn sync(&self, options: String) -> Result<Sync> {
        let options = SyncOptions::from_json(&options).map_err(|error| failed(&error))?;
        let handle = self.open()?.sync(options).map_err(|error| failed(&error))?;
        Ok(Sync { handle: Mutex::new(Some(Arc::new(handle))) })
    }

    /// Stores what there is to store, and closes the database.
    #[napi]
    pub fn close(&mut self) -> Result<()> {
        self.db.take().map_or(Ok(()), |db| db.close().map_err(|error| failed(&error)))
    }
}

/// Sync that runs.
#[napi]
pub struct Sync {
    /// `None` once it was stopped. A wait that goes on has the object borrowed, so that no method may borrow it mutably.
    handle: Mutex<Option<Arc<SyncHandle>>>,
}

#[napi]
impl Sync {
    fn running(&self) -> Result<Arc<SyncHandle>> {
        let stopped = || nacre::Error::SyncStopped("it was stopped".into());
        self.handle.lock().clone().ok_or_else(|| failed(&stopped()))
    }

    /// Returns figures as JSON.
    #[napi]
    pub fn status(&self) -> Result<String> {
        Ok(self.running()?.status().to_json())
    }

    /// Resolves to true once both sides have what the other one has now, and to false after so many milliseconds.
    #[napi]
    pub fn wait_in_step(&self, timeout_ms: u32) -> Result<AsyncTask<WaitInStep>> {
        let timeout = Duration::from_millis(timeout_ms.into());
        Ok(AsyncTask::new(WaitInStep { handle: self.running()?, timeout }))
    }

    /// Tries to connect at once.
    #[napi]
    pub fn retry(&self) -> Result<()> {
        self.running()?.retry_now();
        Ok(())
    }

    /// Ends sync, and waits for its thread.
    #[napi]
    pub fn stop(&self) {
        if let Some(handle) = self.handle.lock().take() {
            handle.stop();
        }
    }
}

/// Waits on a thread of the pool.
pub struct WaitInStep {
    handle: Arc<SyncHandle>,
    timeout: Duration,
}

impl Task for WaitInStep {
    type Output = bool;
    type JsValue = bool;

    fn compute(&mut self) -> Result<bool> {
        match self.handle.wait_in_step(self.timeout) {
            Ok(()) => Ok(true),
            Err(nacre::Error::NotInStep(_)) => Ok(false),
            Err(error) => Err(failed(&error)),
        }
    }

    fn resolve(&mut self, _: Env, output: bool) -> Result<bool> {
        Ok(output)
    }
}

/// A session: frames in, frames out.
#[napi]
pub struct Session {
    /// `None` once it was closed.
    session: Option<nacre::Session>,
    ended: Option<String>,
}

#[napi]
impl Session {
    /// Takes requests, of which the last may be cut anywhere, and returns the responses that are ready. Whether the session has ended by
    /// that is in `ended`.
    #[napi]
    pub fn receive(&mut self, requests: Buffer) -> Buffer {
        let mut out = Vec::new();
        if let Some(session) = &mut self.session {
            let outcome = session.receive(&requests, &mut out);
            self.note(outcome);
        }
        out.into()
    }

    /// Returns the responses that have become ready.
    #[napi]
    pub fn poll(&mut self) -> Buffer {
        let mut out = Vec::new();
        if let Some(session) = &mut self.session {
            let outcome = session.poll(&mut out);
            self.note(outcome);
        }
        out.into()
    }

    /// Ends the session.
    #[napi]
    pub fn close(&mut self) {
        self.session = None;
    }

    /// Why the session has ended, if it has.
    #[napi(getter)]
    pub fn ended(&self) -> Option<String> {
        self.ended.clone()
    }

    fn note(&mut self, outcome: std::result::Result<(), nacre::Error>) {
        self.ended = self.ended.take().or(outcome.err().map(|error| error.to_string()));
    }
}
