//! The documents of a database, as the replica of a sync engine.
//!
//! The engine's state and parked versions are documents of collections of the scope `nacre-sync`, which is never sent: `state`,
//! `parked` and `parked_bodies`.

use crate::{Changes, Collection, Db, Error, Range, Scan, Since, Sync, Write};
use nacre_sync::{Branch, Conflict, Fault, Local, Outcome, Parked, Replica};
use nacre_types::{
    Cas, CollectionId, KEY_BYTES_MAX, Kind, Now, VALUE_BYTES_MAX, Vbid, leb128_encode,
};
use nacre_vbucket::{Command, Refusal, Reply, Rule, Seen, Verdict};
use nacre_xdcr::{Arriving, SourceId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The scope for sync's own documents.
pub const SCOPE: &str = "nacre-sync";
const STATE: &str = "nacre-sync.state";
/// The collection of parked versions.
pub const PARKED: &str = "nacre-sync.parked";
/// The collection of bodies of parked versions that do not fit into their records.
pub const PARKED_BODIES: &str = "nacre-sync.parked_bodies";
/// How often a document is read from disk again when it is evicted at once.
const FETCHES_MAX: u32 = 16;

pub(super) type Wake = Arc<dyn Fn() + Send + std::marker::Sync>;
/// Decides a conflict.
pub(super) type Resolver = Arc<dyn Fn(&Conflict<'_>) -> Verdict + Send + std::marker::Sync>;

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        Fault(error.to_string())
    }
}

/// The documents of a database.
pub(super) struct DbReplica {
    db: Db,
    paths: Vec<String>,
    indexes: BTreeMap<String, usize>,
    changes: Changes,
    wake: Option<Wake>,
    resolver: Option<Resolver>,
}

impl DbReplica {
    /// Opens the collections, creates missing ones, and opens the history from `push`.
    ///
    /// # Errors
    /// As for [`Db::collection`].
    pub fn open(
        db: &Db,
        paths: Vec<String>,
        push: Option<&str>,
        resolver: Option<Resolver>,
    ) -> Result<DbReplica, Error> {
        for path in paths.iter().map(String::as_str).chain([STATE, PARKED]) {
            db.collection(path)?;
        }
        let since = push.map_or(Since::Start, Since::Token);
        let changes = match db.changes(since) {
            // The end of the history was lost, or the folder is a copy: all documents are compared again.
            Err(Error::Gone(_) | Error::InvalidArgument(_)) => db.changes(Since::Start)?,
            changes => changes?,
        };
        let indexes = paths.iter().cloned().enumerate().map(|(index, path)| (path, index));
        let indexes = indexes.collect();
        Ok(DbReplica { db: db.clone(), indexes, paths, changes, wake: None, resolver })
    }

    /// Reads the rows of an engine's stored state.
    ///
    /// # Errors
    /// Errors of the disk, when the rows cannot be read.
    pub fn rows(db: &Db) -> Result<Vec<(String, String)>, Error> {
        let mut rows = Vec::new();
        for row in db.collection(STATE)?.scan(Range::all())? {
            let row = row?;
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            rows.push((text(row.key()), text(row.body())));
        }
        Ok(rows)
    }

    /// Calls `wake` when there may be a change.
    pub fn on_change(&mut self, wake: Wake) {
        let called = Arc::clone(&wake);
        self.changes.on_ready(move || called());
        self.wake = Some(wake);
    }

    /// Returns the callback that is called when there may be a change.
    pub fn wake(&self) -> Option<Wake> {
        self.wake.clone()
    }

    pub fn db(&self) -> &Db {
        &self.db
    }

    fn collection(&self, index: usize) -> Result<(Collection, CollectionId), Fault> {
        let collection = self.db.collection(&self.paths[index])?;
        let id = collection.id();
        Ok((collection, id))
    }

    fn place(&self, index: usize, name: &[u8]) -> Result<(Vec<u8>, Vbid), Fault> {
        let (_, id) = self.collection(index)?;
        if name.is_empty() || name.len() > KEY_BYTES_MAX {
            return Err(Fault("a key of the hub is too long".into()));
        }
        let mut key = Vec::with_capacity(5 + name.len());
        leb128_encode(id.0, &mut key);
        key.extend_from_slice(name);
        Ok((key, Vbid::of(name, self.db.inner().bucket.vbucket_count())))
    }
}

impl Replica for DbReplica {
    fn read(&mut self, collection: usize, name: &[u8]) -> Result<Local, Fault> {
        let (key, vbid) = self.place(collection, name)?;
        let inner = self.db.inner();
        inner.check()?;
        let bucket = &inner.bucket;
        let mut document = None;
        for attempt in 0.. {
            let answer = bucket.apply(vbid, &key, &Command::GetMeta, inner.now());
            let (reply, ..) = answer.ok_or_else(|| Fault::from(Error::Closed))?;
            match reply {
                Ok(Reply::Meta(found)) if found.is_resident() => {
                    document = Some(found);
                    break;
                }
                Ok(Reply::Meta(_)) | Err(Refusal::NotResident) if attempt < FETCHES_MAX => {
                    bucket.fetch(vbid, &key).map_err(Error::from)?;
                }
                Err(Refusal::NotFound) => break,
                other => return Err(Fault(format!("a document cannot be read: {other:?}"))),
            }
        }
        let vbucket = bucket.active(vbid).ok_or_else(|| Fault::from(Error::Closed))?;
        let branches = vbucket.failover_log().entries().iter();
        let own = branches.map(|(branch, began)| Branch {
            name: SourceId::of(&bucket.uuid, &format!("{:016x}", branch.0)),
            began: *began,
        });
        Ok(Local { document, own: own.collect() })
    }

    fn store(
        &mut self,
        collection: usize,
        name: &[u8],
        version: &Arriving,
        over: Option<Seen>,
        unix_ns: u64,
    ) -> Result<Outcome, Fault> {
        let (key, vbid) = self.place(collection, name)?;
        let inner = self.db.inner();
        inner.check()?;
        if version.meta.kind == Kind::Alive {
            inner.check_room()?;
        }
        let now = Now { unix_ns, ..inner.now() };
        let (version, value) = (version.meta, &version.value[..]);
        let (rule, cas) = (Rule::Over(over), Cas::ANY);
        let command =
            Command::StoreVersion { version, value, add: false, cas, rule, regenerate_cas: false };
        let answer = inner.bucket.apply(vbid, &key, &command, now);
        let (reply, wrote, _) = answer.ok_or_else(|| Fault::from(Error::Closed))?;
        if wrote {
            inner.bucket.wake_listeners();
        }
        match reply {
            Ok(_) => Ok(Outcome::Stored),
            Err(Refusal::Conflict | Refusal::Exists) => Ok(Outcome::Changed),
            Err(Refusal::Locked) => Ok(Outcome::Busy),
            Err(refusal) => Err(Error::of_refusal(refusal, false).into()),
        }
    }

    fn next_change(&mut self) -> Result<Option<(usize, Vec<u8>)>, Fault> {
        while let Some(change) = self.changes.try_next()? {
            if let Some(index) = self.indexes.get(change.collection()) {
                return Ok(Some((*index, change.key().to_vec())));
            }
        }
        Ok(None)
    }

    fn is_reading(&self) -> bool {
        self.changes.is_reading()
    }

    fn rewind(&mut self) -> Result<(), Fault> {
        self.changes = self.db.changes(Since::Start)?;
        if let Some(wake) = self.wake.clone() {
            self.on_change(wake);
        }
        Ok(())
    }

    fn position(&self) -> String {
        self.changes.token()
    }

    fn names(&mut self, collection: usize) -> Result<Vec<Vec<u8>>, Fault> {
        let (collection, id) = self.collection(collection)?;
        Ok(Scan::begin(&collection, id, Range::all())?.into_keys().collect())
    }

    fn flush(&mut self) -> Result<(), Fault> {
        Ok(self.db.flush()?)
    }

    fn save(&mut self, rows: &[(String, String)]) -> Result<(), Fault> {
        let state = self.db.collection(STATE)?;
        for (name, text) in rows {
            state.upsert(name, text.as_bytes(), Write::new().sync(Sync::Never))?;
        }
        Ok(())
    }

    fn park(&mut self, parked: &Parked) -> Result<(), Fault> {
        let (name, write) = (parked.record_name(), Write::new().sync(Sync::Never));
        let mut record = parked.record(None);
        if record.len() > VALUE_BYTES_MAX {
            // The body is almost of the largest size, or in Base64. It is stored first, so that the record never names a missing
            // body.
            self.db.collection(PARKED_BODIES)?.upsert(&name, &parked.body(), write)?;
            record = parked.record(Some(&name));
        }
        self.db.collection(PARKED)?.upsert(name, &record, write)?;
        Ok(())
    }

    fn resolve(&mut self, conflict: &Conflict<'_>) -> Verdict {
        match &self.resolver {
            Some(resolver) => resolver(conflict),
            None => Verdict::KeepRemote,
        }
    }
}
