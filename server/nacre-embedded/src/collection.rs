//! The documents of one collection.

use crate::subdocument::{Looked, Lookup, MutateIn, Mutated, Mutation};
use crate::{Changes, Db, Error, Range, Scan, Since, Sync};
use nacre_types::{
    Cas, CollectionId, Document, KEY_BYTES_MAX, Now, Seqno, VbUuid, Vbid, leb128_encode,
    name_bytes_max,
};
use nacre_vbucket::{Command, Condition, Extend, Refusal, Reply, Token};
use std::time::Duration;

/// A collection of an open database. Cheap to clone; may be used by several threads.
#[derive(Clone)]
pub struct Collection {
    db: Db,
    id: CollectionId,
    /// The collection ID in the encoding that keys begin with.
    prefix: Vec<u8>,
}

/// A document as read. It does not change when the document changes, and it copies nothing: it shares the memory of the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    document: Document,
    cas: Cas,
}

impl Found {
    pub(crate) fn new(document: Document, cas: Cas) -> Found {
        Found { document, cas }
    }

    /// Returns the body.
    pub fn body(&self) -> &[u8] {
        self.document.body()
    }

    /// Returns the key.
    pub fn key(&self) -> &[u8] {
        self.document.name()
    }

    /// Returns the version. The CAS of a locked document is hidden.
    pub fn cas(&self) -> Cas {
        self.cas
    }

    /// Returns the flags, a number that the writer stored with the document. The database does not interpret it.
    pub fn flags(&self) -> u32 {
        self.document.meta.flags
    }

    /// Returns the Unix second at which the document expires; 0 for never.
    pub fn expiry(&self) -> u32 {
        self.document.meta.expiry
    }

    /// Returns true if the body is JSON.
    pub fn is_json(&self) -> bool {
        self.document.meta.datatype & nacre_types::DATATYPE_JSON != 0
    }
}

/// The version that a write created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The version, for the next compare-and-swap.
    pub cas: Cas,
    /// The vBucket of the document.
    pub vbid: Vbid,
    /// The branch of the vBucket's history.
    pub vb_uuid: VbUuid,
    /// The position in that history.
    pub seqno: Seqno,
}

/// Options of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Write {
    pub(crate) cas: Option<Cas>,
    pub(crate) flags: u32,
    pub(crate) expiry: u32,
    pub(crate) keep_expiry: bool,
    pub(crate) sync: Option<Sync>,
}

impl Write {
    /// Returns the default options: no CAS, no expiry, and the durability of the database.
    pub fn new() -> Write {
        Write::default()
    }

    /// Writes only if the document has this version.
    #[must_use]
    pub fn cas(self, cas: Cas) -> Write {
        Write { cas: Some(cas), ..self }
    }

    /// Stores a number with the document.
    #[must_use]
    pub fn flags(self, flags: u32) -> Write {
        Write { flags, ..self }
    }

    /// Sets the expiry: seconds from now up to 30 days, a Unix time above that, 0 for never.
    #[must_use]
    pub fn expiry(self, expiry: u32) -> Write {
        Write { expiry, ..self }
    }

    /// Keeps the expiry of an existing document.
    #[must_use]
    pub fn keep_expiry(self) -> Write {
        Write { keep_expiry: true, ..self }
    }

    /// Sets the durability of this write, in place of the database's [`Options::sync`](crate::Options::sync). Only
    /// [`Sync::Always`] has an effect.
    #[must_use]
    pub fn sync(self, sync: Sync) -> Write {
        Write { sync: Some(sync), ..self }
    }

    fn expected(&self) -> Cas {
        self.cas.unwrap_or(Cas::ANY)
    }
}

/// A key with its collection's prefix, on the stack.
struct Key {
    bytes: [u8; KEY_BYTES_MAX + 5],
    len: usize,
    vbid: Vbid,
}

impl Key {
    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Collection {
    pub(crate) fn new(db: &Db, id: CollectionId) -> Collection {
        let mut prefix = Vec::with_capacity(5);
        leb128_encode(id.0, &mut prefix);
        Collection { db: db.clone(), id, prefix }
    }

    #[cfg(feature = "sync")]
    pub(crate) fn id(&self) -> CollectionId {
        self.id
    }

    /// Returns the database.
    pub fn db(&self) -> &Db {
        &self.db
    }

    fn key(&self, key: &[u8]) -> Result<Key, Error> {
        let most = name_bytes_max(self.id == CollectionId::DEFAULT);
        if key.is_empty() || key.len() > most {
            return Err(Error::InvalidArgument(format!("a key has 1 to {most} bytes")));
        }
        let mut bytes = [0; KEY_BYTES_MAX + 5];
        let len = self.prefix.len() + key.len();
        bytes[..self.prefix.len()].copy_from_slice(&self.prefix);
        bytes[self.prefix.len()..len].copy_from_slice(key);
        let vbid = Vbid::of(key, self.db.inner().bucket.vbucket_count());
        Ok(Key { bytes, len, vbid })
    }

    /// Applies a command. Reads the value of the document from disk if the command needs it and it is not in memory.
    fn apply(&self, key: &Key, command: &Command<'_>, now: Now) -> Result<Reply, Refusal> {
        let bucket = &self.db.inner().bucket;
        loop {
            let (reply, wrote, _) =
                bucket.apply(key.vbid, key.bytes(), command, now).ok_or(Refusal::NotActive)?;
            if wrote {
                bucket.wake_listeners();
            }
            match reply {
                Err(Refusal::NotResident) if bucket.fetch(key.vbid, key.bytes()).is_ok() => {}
                reply => return reply,
            }
        }
    }

    fn unreadable(&self, key: &Key) -> Error {
        let name = String::from_utf8_lossy(&key.bytes()[self.prefix.len()..]);
        Error::Damaged { what: format!("the document {name} cannot be read from the store") }
    }

    /// Returns the error for a refusal. A dropped collection has no documents; the error says that it was dropped.
    fn refused(&self, key: &Key, refusal: Refusal, has_cas: bool) -> Error {
        match refusal {
            Refusal::NotResident => self.unreadable(key),
            Refusal::NotFound if self.longest_life().is_err() => self.not_there(),
            refusal => Error::of_refusal(refusal, has_cas),
        }
    }

    fn not_there(&self) -> Error {
        Error::CollectionNotFound(format!("number {:x}", self.id.0))
    }

    fn longest_life(&self) -> Result<i32, Error> {
        self.db.inner().bucket.max_ttl(self.id).ok_or_else(|| self.not_there())
    }

    fn read(&self, key: &[u8], command: &Command<'_>) -> Result<Reply, Error> {
        let inner = self.db.inner();
        inner.check()?;
        let key = self.key(key)?;
        self.apply(&key, command, inner.now()).map_err(|refusal| self.refused(&key, refusal, false))
    }

    /// Checks the requirements of a write. Refuses a write that `grows` memory when there is no memory left.
    fn begin(&self, key: &[u8], write: &Write, grows: bool) -> Result<Begun, Error> {
        let inner = self.db.inner();
        inner.check()?;
        let (key, now) = (self.key(key)?, inner.now());
        let longest = self.longest_life()?;
        let expiry = inner.bucket.expiry(longest, write.expiry, now);
        let expiry_when_new = inner.bucket.expiry(longest, 0, now);
        if grows {
            inner.check_room()?;
        }
        Ok(Begun { key, now, expiry, expiry_when_new })
    }

    /// Applies a write, and waits until it is durable if the options ask for that.
    fn write(&self, begun: &Begun, write: &Write, command: &Command<'_>) -> Result<Reply, Error> {
        let inner = self.db.inner();
        let reply = self.apply(&begun.key, command, begun.now);
        let has_cas = write.cas.is_some();
        let reply = reply.map_err(|refusal| self.refused(&begun.key, refusal, has_cas))?;
        inner.settle(write.sync.unwrap_or(inner.options.sync))?;
        Ok(reply)
    }

    /// Reads a document; `None` when there is none.
    ///
    /// # Errors
    /// [`Error::Damaged`] when its value is on disk only and cannot be read, [`Error::CollectionNotFound`] when the collection was
    /// dropped.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Found>, Error> {
        match self.read(key.as_ref(), &Command::Get) {
            Ok(Reply::Found(document, cas)) => Ok(Some(Found { document, cas })),
            Ok(_) => Err(unexpected()),
            Err(Error::DocumentNotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns true if the document exists. Does not read its value.
    ///
    /// # Errors
    /// As for [`Collection::get`].
    pub fn exists(&self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        let now_s = self.db.inner().now().unix_s();
        match self.read(key.as_ref(), &Command::GetMeta) {
            Ok(Reply::Meta(document)) => Ok(document.is_alive() && !document.is_expired(now_s)),
            Ok(_) => Err(unexpected()),
            Err(Error::DocumentNotFound) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Writes a document, whether it exists or not.
    ///
    /// # Errors
    /// [`Error::CasMismatch`], [`Error::DocumentLocked`], [`Error::TooLarge`], [`Error::Full`], [`Error::QuotaExceeded`],
    /// [`Error::Broken`]; with a CAS [`Error::DocumentNotFound`].
    pub fn upsert(
        &self,
        key: impl AsRef<[u8]>,
        body: &[u8],
        write: Write,
    ) -> Result<Stored, Error> {
        self.store(key.as_ref(), Condition::Always, body, &write)
    }

    /// Writes a document that must not exist.
    ///
    /// # Errors
    /// [`Error::DocumentExists`], and as for [`Collection::upsert`].
    pub fn insert(
        &self,
        key: impl AsRef<[u8]>,
        body: &[u8],
        write: Write,
    ) -> Result<Stored, Error> {
        self.store(key.as_ref(), Condition::Absent, body, &Write { cas: None, ..write })
    }

    /// Writes a document that must exist.
    ///
    /// # Errors
    /// [`Error::DocumentNotFound`], and as for [`Collection::upsert`].
    pub fn replace(
        &self,
        key: impl AsRef<[u8]>,
        body: &[u8],
        write: Write,
    ) -> Result<Stored, Error> {
        self.store(key.as_ref(), Condition::Present, body, &write)
    }

    fn store(
        &self,
        key: &[u8],
        condition: Condition,
        body: &[u8],
        write: &Write,
    ) -> Result<Stored, Error> {
        let begun = self.begin(key, write, true)?;
        let Write { flags, keep_expiry, .. } = *write;
        let (cas, expiry) = (write.expected(), begun.expiry);
        let command = Command::Store { condition, cas, flags, expiry, keep_expiry, body };
        stored(begun.key.vbid, self.write(&begun, write, &command)?)
    }

    /// Deletes a document.
    ///
    /// # Errors
    /// [`Error::DocumentNotFound`], [`Error::CasMismatch`], [`Error::DocumentLocked`], [`Error::Broken`].
    pub fn remove(&self, key: impl AsRef<[u8]>, write: Write) -> Result<Stored, Error> {
        let begun = self.begin(key.as_ref(), &write, false)?;
        let command = Command::Delete { cas: write.expected() };
        stored(begun.key.vbid, self.write(&begun, &write, &command)?)
    }

    /// Sets the expiry of a document, as in [`Write::expiry`], and returns the document.
    ///
    /// # Errors
    /// [`Error::DocumentNotFound`], [`Error::DocumentLocked`], [`Error::Broken`].
    pub fn touch(&self, key: impl AsRef<[u8]>, expiry: u32) -> Result<Found, Error> {
        let write = Write::new().expiry(expiry);
        let begun = self.begin(key.as_ref(), &write, false)?;
        let command = Command::Touch { expiry: begun.expiry };
        self.found(self.write(&begun, &write, &command)?)
    }

    /// Reads and locks a document for 1 to 30 seconds. A change with the returned CAS unlocks the document; any other change is
    /// refused.
    ///
    /// # Errors
    /// [`Error::DocumentNotFound`], [`Error::DocumentLocked`], [`Error::InvalidArgument`] for another time.
    pub fn get_and_lock(&self, key: impl AsRef<[u8]>, time: Duration) -> Result<Found, Error> {
        let seconds = u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
        if !(1..=30).contains(&seconds) {
            return Err(Error::InvalidArgument("a lock lasts 1 to 30 seconds".into()));
        }
        self.found(self.read(key.as_ref(), &Command::Lock { seconds })?)
    }

    /// Unlocks a document with the CAS that [`Collection::get_and_lock`] returned.
    ///
    /// # Errors
    /// [`Error::DocumentNotLocked`], [`Error::DocumentLocked`] for another CAS, [`Error::DocumentNotFound`].
    pub fn unlock(&self, key: impl AsRef<[u8]>, cas: Cas) -> Result<(), Error> {
        if cas == Cas::ANY {
            return Err(Error::InvalidArgument("unlocking needs a CAS".into()));
        }
        self.read(key.as_ref(), &Command::Unlock { cas }).map(drop)
    }

    fn found(&self, reply: Reply) -> Result<Found, Error> {
        match reply {
            Reply::Found(document, cas) => Ok(Found { document, cas }),
            _ => Err(unexpected()),
        }
    }

    /// Adds `delta` to a decimal number of 0 to 2^64 - 1. The number wraps above the maximum and stops at 0. A missing document
    /// becomes `initial`; without `initial`, the document must exist. Returns the new value.
    ///
    /// # Errors
    /// [`Error::NotANumber`], [`Error::DocumentNotFound`], and as for [`Collection::upsert`].
    pub fn add(
        &self,
        key: impl AsRef<[u8]>,
        delta: i64,
        initial: Option<u64>,
        write: Write,
    ) -> Result<(u64, Stored), Error> {
        let begun = self.begin(key.as_ref(), &write, true)?;
        let initial = initial.map(|value| (value, begun.expiry));
        let (decrement, delta) = (delta < 0, delta.unsigned_abs());
        let cas = write.expected();
        let command = Command::Counter { decrement, delta, initial, cas };
        let reply = self.write(&begun, &write, &command)?;
        let Reply::Counted { value, .. } = reply else { return Err(unexpected()) };
        Ok((value, stored(begun.key.vbid, reply)?))
    }

    /// Appends bytes to the body of a document.
    ///
    /// # Errors
    /// [`Error::DocumentNotFound`], and as for [`Collection::upsert`].
    pub fn append(
        &self,
        key: impl AsRef<[u8]>,
        bytes: &[u8],
        write: Write,
    ) -> Result<Stored, Error> {
        self.extend(key.as_ref(), Extend::Append, bytes, &write)
    }

    /// Prepends bytes to the body of a document.
    ///
    /// # Errors
    /// [`Error::DocumentNotFound`], and as for [`Collection::upsert`].
    pub fn prepend(
        &self,
        key: impl AsRef<[u8]>,
        bytes: &[u8],
        write: Write,
    ) -> Result<Stored, Error> {
        self.extend(key.as_ref(), Extend::Prepend, bytes, &write)
    }

    fn extend(
        &self,
        key: &[u8],
        end: Extend,
        bytes: &[u8],
        write: &Write,
    ) -> Result<Stored, Error> {
        let begun = self.begin(key, write, true)?;
        let command = Command::Extend { end, cas: write.expected(), bytes };
        stored(begun.key.vbid, self.write(&begun, write, &command)?)
    }

    /// Reads parts of a document, up to 16.
    ///
    /// # Errors
    /// [`Error::DocumentNotFound`], [`Error::InvalidArgument`] for a combination that is not allowed. The error of a single part
    /// is returned in its place in [`Looked`].
    pub fn lookup_in(&self, key: impl AsRef<[u8]>, parts: &[Lookup<'_>]) -> Result<Looked, Error> {
        let specs: Vec<_> = parts.iter().map(Lookup::spec).collect();
        let command = Command::Lookup { specs: &specs, access_deleted: false, sees_system: true };
        match self.read(key.as_ref(), &command)? {
            Reply::Looked { results, cas, .. } => Ok(Looked { cas, parts: results }),
            _ => Err(unexpected()),
        }
    }

    /// Changes up to 16 parts of a document: all or none.
    ///
    /// # Errors
    /// [`Error::Path`] for the first part that cannot be changed, [`Error::DocumentNotFound`], [`Error::DocumentExists`], and as for
    /// [`Collection::upsert`].
    pub fn mutate_in(
        &self,
        key: impl AsRef<[u8]>,
        parts: &[Mutation<'_>],
        how: MutateIn,
    ) -> Result<Mutated, Error> {
        let write = how.write;
        let begun = self.begin(key.as_ref(), &write, true)?;
        let specs: Vec<_> = parts.iter().map(Mutation::spec).collect();
        let command = Command::Mutate {
            specs: &specs,
            condition: how.condition,
            access_deleted: false,
            create_as_deleted: false,
            revive: false,
            cas: write.expected(),
            expiry: (!write.keep_expiry).then_some(begun.expiry),
            expiry_when_new: begun.expiry_when_new,
            flags: None,
            keep_expiry: write.keep_expiry,
        };
        let reply = self.write(&begun, &write, &command)?;
        let written = stored(begun.key.vbid, reply.clone())?;
        let Reply::Mutated { results, .. } = reply else { return Err(unexpected()) };
        Ok(Mutated { stored: written, results })
    }

    /// Returns the documents of a range of keys, in byte order. Documents written during the scan may be missing.
    ///
    /// # Errors
    /// [`Error::Damaged`] when keys are on disk only and cannot be read.
    pub fn scan(&self, range: Range) -> Result<Scan, Error> {
        self.db.inner().check()?;
        self.longest_life()?;
        Scan::begin(self, self.id, range)
    }

    /// Returns the changes of this collection from `since`.
    ///
    /// # Errors
    /// As for [`Db::changes`].
    pub fn changes(&self, since: Since<'_>) -> Result<Changes, Error> {
        self.longest_life()?;
        Changes::open(&self.db, Some(self.id), since)
    }
}

/// A checked write.
struct Begun {
    key: Key,
    now: Now,
    /// The Unix second of the write's expiry, and of the expiry if the write sets none; 0 for never.
    expiry: u32,
    expiry_when_new: u32,
}

fn unexpected() -> Error {
    Error::InvalidArgument("the reply is of another command".into())
}

fn stored(vbid: Vbid, reply: Reply) -> Result<Stored, Error> {
    match reply {
        Reply::Stored { cas, token: Token { vb_uuid, seqno } }
        | Reply::Counted { cas, token: Token { vb_uuid, seqno }, .. }
        | Reply::Mutated { cas, token: Token { vb_uuid, seqno }, .. } => {
            Ok(Stored { cas, vbid, vb_uuid, seqno })
        }
        _ => Err(unexpected()),
    }
}
