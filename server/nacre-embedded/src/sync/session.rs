//! A session without a socket: bytes in, bytes out.

use super::options::SyncOptions;
use super::replica::{DbReplica, SCOPE, Wake};
use crate::{Db, Error};
use nacre_sync::{
    ConflictMode, Engine, Failure, Fault, Hello, LineId, Notice, Saved, Settings, State, Status,
};
use nacre_types::Vbid;
use std::sync::Arc;
use std::time::Duration;

/// Keeps a database in step with a bucket over connections that the caller provides: for simulations and custom transports.
pub struct SyncSession {
    engine: Engine,
    replica: DbReplica,
    /// Set by a failure of the device: the engine restarts from its stored state.
    is_broken: bool,
    options: SyncOptions,
}

/// See [`Db::sync_session`].
pub(super) fn begin(db: &Db, options: &SyncOptions) -> Result<SyncSession, Error> {
    db.inner().check()?;
    if options.collections.is_empty() {
        return Err(Error::InvalidArgument("name the collections to keep in step".into()));
    }
    if options.conflicts == ConflictMode::Client && options.resolver.is_none() {
        return Err(Error::InvalidArgument("the mode `client` needs a resolver".into()));
    }
    let (engine, replica) = open(db, options)?;
    let options = options.clone();
    Ok(SyncSession { engine, replica, is_broken: false, options })
}

fn open(db: &Db, options: &SyncOptions) -> Result<(Engine, DbReplica), Error> {
    let mut collections = Vec::new();
    for path in &options.collections {
        let path = if path.contains('.') { path.clone() } else { format!("_default.{path}") };
        if path.split('.').next() == Some(SCOPE) || path.starts_with("_system.") {
            return Err(Error::InvalidArgument(format!("{path} stays on the device")));
        }
        if !collections.contains(&path) {
            collections.push(path);
        }
    }
    // The collection for the engine's state is created with the others.
    let mut replica = DbReplica::open(db, collections.clone(), None, options.resolver.clone())?;
    let saved = Saved::read(&DbReplica::rows(db)?);
    if saved.push.is_some() {
        let push = saved.push.as_deref();
        replica = DbReplica::open(db, collections.clone(), push, options.resolver.clone())?;
    }
    let settings =
        Settings { collections, conflicts: options.conflicts, direction: options.direction };
    // The hub ends an older stream of the same name: two devices have different names, and a device keeps its name as long as its
    // history continues.
    let branch = db.inner().bucket.active(Vbid(0)).map(|vbucket| vbucket.failover_log().current());
    let branch = branch.ok_or(Error::Closed)?;
    let device = format!("nacre-sync:{}:{:016x}", options.device, branch.0);
    Ok((Engine::new(settings, &device, saved), replica))
}

impl SyncSession {
    /// Calls `wake`, on any thread, when [`SyncSession::advance`] may have something to do.
    pub fn on_ready(&mut self, wake: impl Fn() + Send + std::marker::Sync + 'static) {
        self.replica.on_change(Arc::new(wake) as Wake);
    }

    /// Returns the database.
    pub fn db(&self) -> &Db {
        self.replica.db()
    }

    /// Starts using a connection that a node has accepted with `hello`.
    ///
    /// # Errors
    /// See [`Engine::connected`].
    pub fn connected(&mut self, id: LineId, hello: &Hello) -> Result<(), Failure> {
        self.mend()?;
        let now = self.db().inner().now();
        self.engine.connected(id, hello, now)
    }

    /// Restarts from the stored state, after a failure of the device left a change half done.
    fn mend(&mut self) -> Result<(), Failure> {
        if self.is_broken {
            let (engine, mut replica) =
                open(self.replica.db(), &self.options).map_err(Fault::from)?;
            if let Some(wake) = self.replica.wake() {
                replica.on_change(wake);
            }
            (self.engine, self.replica, self.is_broken) = (engine, replica, false);
        }
        Ok(())
    }

    /// Reports that a connection has ended.
    pub fn disconnected(&mut self, id: LineId) {
        self.engine.disconnected(id);
    }

    /// Receives bytes of a connection, split anywhere. After a failure the caller ends the affected connections: all of them
    /// after [`Failure::Local`].
    ///
    /// # Errors
    /// Any [`Failure`].
    pub fn receive(&mut self, id: LineId, bytes: &[u8]) -> Result<(), Failure> {
        let now = self.db().inner().now();
        let received = self.engine.receive(id, bytes, &mut self.replica, now);
        received.inspect_err(|failure| self.note(failure))
    }

    /// Does all work that is possible now. Returns the time until more work is due; `None` for no limit.
    ///
    /// # Errors
    /// [`Failure::Local`].
    pub fn advance(&mut self) -> Result<Option<Duration>, Failure> {
        if self.is_broken {
            return Ok(None);
        }
        let now = self.db().inner().now();
        let advanced = self.engine.advance(&mut self.replica, now);
        advanced.inspect_err(|failure| self.note(failure))
    }

    fn note(&mut self, failure: &Failure) {
        self.is_broken |= matches!(failure, Failure::Local(_));
    }

    /// Stores positions at once if nothing is in flight.
    ///
    /// # Errors
    /// [`Failure::Local`].
    pub fn save(&mut self) -> Result<(), Failure> {
        if self.is_broken {
            return Ok(());
        }
        let now = self.db().inner().now();
        self.engine.save_now(&mut self.replica, now)
    }

    /// Returns the bytes to send on a connection; the caller removes those that it has sent.
    pub fn output(&mut self, id: LineId) -> Option<&mut Vec<u8>> {
        self.engine.output(id)
    }

    /// Returns the oldest unread notice.
    pub fn next_notice(&mut self) -> Option<Notice> {
        self.engine.next_notice()
    }

    /// Returns the figures of sync.
    pub fn status(&self) -> Status {
        let status = self.engine.status();
        if self.is_broken { Status { state: State::Offline, ..status } } else { status }
    }

    /// Asks the nodes for their progress: see [`SyncSession::is_in_step`].
    pub fn ask(&mut self) {
        self.engine.ask();
    }

    /// Returns true if the device has everything that the hub had at the last [question](SyncSession::ask), and the hub has
    /// everything that the device has written.
    pub fn is_in_step(&self) -> bool {
        !self.is_broken && self.engine.is_in_step()
    }
}
