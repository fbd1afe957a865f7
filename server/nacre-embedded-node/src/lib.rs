//! Embedded nacre for Node: the addon that sdk-js loads for `connect('nacre:///folder')`.
//!
//! ```text
//! Connection ─► EmbeddedSocket.write ─► Session.receive(frames) ─► responses, at once
//!               EmbeddedSocket 'data' ◄─ Session.poll() ◄─ wake(), from any thread, when there are more
//! ```
//!
//! The addon knows no opcodes: it only passes bytes. Node-API is its only interface to Node, so that one binary serves every
//! later version.

use nacre::{Db, Key, Options, StoreKind, Sync as Durability, SyncHandle, SyncOptions};
use napi::bindgen_prelude::{AsyncTask, Buffer};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi::{Env, Error, Result, Status, Task};
use napi_derive::napi;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// Wakes the owner of a session. It does not keep the process alive, and carries no data.
type Wake = ThreadsafeFunction<(), (), (), Status, false, true>;

fn failed(error: &nacre::Error) -> Error {
    let code = match error {
        nacre::Error::InUse { .. } => "IN_USE",
        nacre::Error::InvalidArgument(_) => "INVALID_ARGUMENT",
        nacre::Error::Closed => "CLOSED",
        nacre::Error::WrongKey => "WRONG_KEY",
        nacre::Error::Encrypted => "ENCRYPTED",
        nacre::Error::NotEncrypted => "NOT_ENCRYPTED",
        _ => "FAILED",
    };
    Error::new(Status::GenericFailure, format!("{code}: {error}"))
}

/// Options of a database; a missing member has the library's default.
#[napi(object)]
#[derive(Default)]
pub struct OpenOptions {
    /// `always`, `after` or `never`.
    pub sync: Option<String>,
    /// Milliseconds for `after`.
    pub sync_delay_ms: Option<u32>,
    /// Memory for documents, in MiB.
    pub quota_mib: Option<u32>,
    /// The number of vBuckets of a new folder.
    pub vbuckets: Option<u32>,
    /// `log` or `sled`, for a new folder.
    pub store: Option<String>,
    /// False to open only an existing database.
    pub create: Option<bool>,
    /// The 32 bytes of the key of an encrypted folder.
    pub key: Option<Buffer>,
    /// The passphrase of an encrypted folder.
    pub passphrase: Option<String>,
}

/// Returns the key, if one is given.
fn key_of(key: Option<Buffer>, passphrase: Option<String>) -> Result<Option<Key>> {
    let refuse = |what: &str| failed(&nacre::Error::InvalidArgument(what.into()));
    match (key, passphrase) {
        (None, None) => Ok(None),
        (Some(key), None) => {
            let key: &[u8] = key.as_ref();
            let bytes = key.try_into().map_err(|_| refuse("a key has 32 bytes"))?;
            Ok(Some(Key::Bytes(bytes)))
        }
        (None, Some(passphrase)) => Ok(Some(Key::Passphrase(passphrase))),
        (Some(_), Some(_)) => Err(refuse("a folder has a key or a passphrase, not both")),
    }
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
            // The library refuses a number out of range, and names the range.
            options.vbuckets = u16::try_from(vbuckets).unwrap_or(u16::MAX);
        }
        options.create = self.create.unwrap_or(true);
        options.key = key_of(self.key, self.passphrase)?;
        Ok(options)
    }
}

/// The answer to a request about scopes and collections, about views, or for SQL++.
#[napi(object)]
pub struct Answer {
    /// The HTTP status.
    pub status: u32,
    /// The body, which is JSON.
    pub body: String,
}

/// An open database.
#[napi]
pub struct Database {
    /// `None` after close: the garbage collector may keep this object for a long time.
    db: Option<Db>,
}

#[napi]
impl Database {
    /// Opens a folder, or a new database in memory with `:memory:`.
    #[napi(constructor)]
    pub fn new(path: String, options: Option<OpenOptions>) -> Result<Database> {
        let options = options.unwrap_or_default().read()?;
        let db = Db::open_with(path, options).map_err(|error| failed(&error))?;
        Ok(Database { db: Some(db) })
    }

    fn open(&self) -> Result<&Db> {
        self.db.as_ref().ok_or_else(|| failed(&nacre::Error::Closed))
    }

    /// Opens a session of the key-value protocol. Calls `wake` when `poll` may have more.
    #[napi]
    pub fn session(&self, wake: Wake) -> Result<Session> {
        let wake = move || {
            // The call fails only when the environment ends.
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

    /// Answers a request about views, or for SQL++. Resolves on a thread of Node's pool, because both read many documents.
    #[napi]
    pub fn manage_later(
        &self,
        method: String,
        path: String,
        body: Buffer,
    ) -> Result<AsyncTask<Manage>> {
        let db = self.open()?.clone();
        Ok(AsyncTask::new(Manage { db, method, path, body: body.to_vec() }))
    }

    /// Keeps the database in step with a bucket. `options` is JSON: see `nacre_sync_start` of the C library.
    #[napi]
    pub fn sync(&self, options: String) -> Result<Sync> {
        let options = SyncOptions::from_json(&options).map_err(|error| failed(&error))?;
        let handle = self.open()?.sync(options).map_err(|error| failed(&error))?;
        Ok(Sync { handle: Mutex::new(Some(Arc::new(handle))) })
    }

    /// Replaces the key of an encrypted folder by 32 bytes, or by a passphrase if `key` is null.
    #[napi]
    pub fn rekey(&self, key: Option<Buffer>, passphrase: Option<String>) -> Result<()> {
        let missing = || failed(&nacre::Error::InvalidArgument("the new key is missing".into()));
        let key = key_of(key, passphrase)?.ok_or_else(missing)?;
        self.open()?.rekey(&key).map_err(|error| failed(&error))
    }

    /// Stores all unsaved writes and closes the database.
    #[napi]
    pub fn close(&mut self) -> Result<()> {
        self.db.take().map_or(Ok(()), |db| db.close().map_err(|error| failed(&error)))
    }
}

/// Answers a request on a thread of Node's pool.
pub struct Manage {
    db: Db,
    method: String,
    path: String,
    body: Vec<u8>,
}

impl Task for Manage {
    type Output = (u16, String);
    type JsValue = Answer;

    fn compute(&mut self) -> Result<(u16, String)> {
        let answer = self.db.manage(&self.method, &self.path, &self.body);
        answer.map_err(|error| failed(&error))
    }

    fn resolve(&mut self, _: Env, (status, body): (u16, String)) -> Result<Answer> {
        Ok(Answer { status: status.into(), body })
    }
}

/// A running sync.
#[napi]
pub struct Sync {
    /// `None` after stop. A wait in progress borrows the object, so that no method may borrow it mutably.
    handle: Mutex<Option<Arc<SyncHandle>>>,
}

#[napi]
impl Sync {
    fn running(&self) -> Result<Arc<SyncHandle>> {
        let stopped = || nacre::Error::SyncStopped("it was stopped".into());
        self.handle.lock().clone().ok_or_else(|| failed(&stopped()))
    }

    /// Returns the figures as JSON.
    #[napi]
    pub fn status(&self) -> Result<String> {
        Ok(self.running()?.status().to_json())
    }

    /// Resolves to true once both sides have everything that the other one has now, and to false after `timeout_ms` milliseconds.
    #[napi]
    pub fn wait_in_step(&self, timeout_ms: u32) -> Result<AsyncTask<WaitInStep>> {
        let timeout = Duration::from_millis(timeout_ms.into());
        Ok(AsyncTask::new(WaitInStep { handle: self.running()?, timeout }))
    }

    /// Resolves to the next event as JSON, and to an empty string if none came within `timeout_ms` milliseconds.
    #[napi]
    pub fn next_event(&self, timeout_ms: u32) -> Result<AsyncTask<NextEvent>> {
        let timeout = Duration::from_millis(timeout_ms.into());
        Ok(AsyncTask::new(NextEvent { handle: self.running()?, timeout }))
    }

    /// Connects at once instead of after the current pause.
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

/// Waits on a thread of Node's pool.
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

/// Waits on a thread of Node's pool.
pub struct NextEvent {
    handle: Arc<SyncHandle>,
    timeout: Duration,
}

impl Task for NextEvent {
    type Output = String;
    type JsValue = String;

    fn compute(&mut self) -> Result<String> {
        let event = self.handle.next_event(self.timeout);
        Ok(event.map_or_else(String::new, |event| event.to_json()))
    }

    fn resolve(&mut self, _: Env, output: String) -> Result<String> {
        Ok(output)
    }
}

/// A session: frames in, frames out.
#[napi]
pub struct Session {
    /// `None` after close.
    session: Option<nacre::Session>,
    ended: Option<String>,
}

#[napi]
impl Session {
    /// Accepts requests, the last of which may be incomplete, and returns the responses that are ready. `ended` says whether this
    /// has ended the session.
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

    /// Returns the reason why the session has ended, if it has.
    #[napi(getter)]
    pub fn ended(&self) -> Option<String> {
        self.ended.clone()
    }

    fn note(&mut self, outcome: std::result::Result<(), nacre::Error>) {
        self.ended = self.ended.take().or(outcome.err().map(|error| error.to_string()));
    }
}
