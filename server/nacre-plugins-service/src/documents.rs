//! Access of plugins to documents: requests like those of a client, which may block.
//!
//! A state must not reflect documents that can still be lost: [`BucketDocuments::settle`] waits until the stores have the writes
//! of a call, and only then is the call committed.

use nacre_bucket::prefetch::due;
use nacre_bucket::{Bucket, Signal, Ticket, Waiter, durability};
use nacre_node::Node;
use nacre_node::Platform;
use nacre_sandbox::{
    Content, Counted, DocumentCall, DocumentReply, Documents, Found, KvError, Looked,
    MutateOptions, Mutated, PathLookup, PathMutation, StoreMode, TombstoneUse, path_failure,
};
use nacre_types::{
    Cas, CollectionId, DATATYPE_JSON, Document, KEY_BYTES_MAX, Now, Seqno, Vbid, write_key,
};
use nacre_value::multi::{LookupOperation, MutationOperation, MutationSpec};
use nacre_value::subdoc::Lookup;
use nacre_vbucket::{Command, Condition, Level, Refusal, Reply};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Pause before the retry of a call on a locked document, or of a write that another write of the same key blocks.
const RETRY_PAUSE: Duration = Duration::from_millis(5);

/// Time limit for a durable write: a lost copy must not delay a call for longer. Source: the default of SDKs.
const DURABLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Time limit for the stores after a call.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);

/// The documents of a deployment's bucket and of other buckets that a keyspace names, as far as this node serves them.
pub struct BucketDocuments {
    bucket: Arc<Bucket>,
    node: Weak<Node>,
    platform: Arc<dyn Platform>,
    written: Mutex<Written>,
    /// Default durability of writes.
    level: Option<Level>,
}

/// The last unsettled seqno written to each vBucket.
type Written = BTreeMap<(String, Vbid), (Arc<Bucket>, Seqno)>;

/// Wakes the thread that waits for an outcome.
struct Wake(Signal);

impl Waiter for Wake {
    fn wake(&self) {
        self.0.wake();
    }
}

/// A call in progress: the location of its document and its deadline.
struct Call<'a> {
    documents: &'a BucketDocuments,
    bucket: Arc<Bucket>,
    vbid: Vbid,
    /// The key, with the collection prefix.
    key: Vec<u8>,
    max_ttl: i32,
    deadline_ns: u64,
    signal: Signal,
    waiter: Arc<dyn Waiter>,
}

impl BucketDocuments {
    /// Returns the documents of `bucket`, as `node` serves them.
    pub fn new(node: &Arc<Node>, bucket: &Arc<Bucket>) -> BucketDocuments {
        BucketDocuments {
            bucket: Arc::clone(bucket),
            node: Arc::downgrade(node),
            platform: Arc::clone(&node.platform),
            written: Mutex::default(),
            level: None,
        }
    }

    /// Returns the same documents with this durability for writes, or the bucket's if that is higher.
    #[must_use]
    pub fn with_level(self, level: Option<Level>) -> BucketDocuments {
        BucketDocuments { level, ..self }
    }

    /// Returns a document of the deployment's bucket if that is possible without waiting; otherwise `None`, and
    /// [`Documents::get`] finds the reason. `wire_key` is a buffer that is reused.
    ///
    /// # Errors
    /// [`KvError::NotFound`] if the document certainly does not exist.
    pub fn resident(
        &self,
        collection: CollectionId,
        key: &[u8],
        now: Now,
        wire_key: &mut Vec<u8>,
    ) -> Option<Result<(Document, Cas), KvError>> {
        if key.is_empty() || key.len() > KEY_BYTES_MAX - 4 {
            return None;
        }
        write_key(collection, key, wire_key);
        let vbid = Vbid::of(key, self.bucket.vbucket_count());
        match self.bucket.apply(vbid, wire_key, &Command::Get, now)?.0 {
            Ok(Reply::Found(document, cas)) => Some(Ok((document, cas))),
            Err(Refusal::NotFound) => Some(Err(KvError::NotFound)),
            _ => None,
        }
    }

    /// Prefetches into the processor's caches the memory that [`BucketDocuments::resident`] will read for the keys soon after
    /// `turn`. `wire_key` is a buffer that is reused.
    pub fn prefetch(
        &self,
        collection: CollectionId,
        keys: &[impl AsRef<[u8]>],
        turn: usize,
        wire_key: &mut Vec<u8>,
    ) {
        for (step, number) in due(turn) {
            if let Some(key) = keys.get(number).map(AsRef::as_ref) {
                write_key(collection, key, wire_key);
                let vbid = Vbid::of(key, self.bucket.vbucket_count());
                self.bucket.prefetch(step, vbid, wire_key);
            }
        }
    }

    /// Carries out a read-only command. Returns the vBucket's reply.
    pub fn read_by(
        &self,
        keyspace: &str,
        key: &[u8],
        command: &Command<'_>,
        left: Duration,
    ) -> Result<Reply, KvError> {
        self.begin(keyspace, key, left)?.carry_out(command, None)
    }

    /// Carries out a write with durability `level`, or the bucket's if that is higher.
    pub fn write_by(
        &self,
        keyspace: &str,
        key: &[u8],
        command: &Command<'_>,
        level: Option<Level>,
        left: Duration,
    ) -> Result<Reply, KvError> {
        self.begin(keyspace, key, left)?.write(command, level)
    }

    /// Returns a document with all its metadata. May block.
    ///
    /// # Errors
    /// As for [`Documents::call`]; [`KvError::NotMyVbucket`] if another node serves it.
    pub fn document(
        &self,
        keyspace: &str,
        key: &[u8],
        left: Duration,
    ) -> Result<(Vbid, Document), KvError> {
        let call = self.begin(keyspace, key, left)?;
        match call.read()? {
            Reply::Found(document, _) => Ok((call.vbid, document)),
            other => Err(unexpected(&other)),
        }
    }

    /// Returns a vBucket with unsettled writes, and the seqno of the last one.
    pub fn written(&self) -> Option<(Vbid, Seqno)> {
        let written = self.written.lock();
        written.iter().next().map(|((_, vbid), (_, seqno))| (*vbid, *seqno))
    }

    /// Takes the seqnos of unsettled writes, by bucket.
    pub fn take_written(&self) -> BTreeMap<String, BTreeMap<Vbid, Seqno>> {
        let mut taken: BTreeMap<String, BTreeMap<Vbid, Seqno>> = BTreeMap::new();
        for ((bucket, vbid), (_, seqno)) in std::mem::take(&mut *self.written.lock()) {
            taken.entry(bucket).or_default().insert(vbid, seqno);
        }
        taken
    }

    /// Marks those vBuckets of the bucket as written, at most up to their high seqnos.
    pub fn has_written(&self, seqnos: &[(Vbid, Seqno)]) {
        if !self.bucket.is_persistent() {
            return;
        }
        let mut written = self.written.lock();
        for (vbid, seqno) in seqnos {
            let at = (self.bucket.name.clone(), *vbid);
            let high = self.bucket.vbucket(*vbid).map(|vbucket| vbucket.high_seqno());
            let seqno = high.map_or(*seqno, |high| high.min(*seqno));
            written.insert(at, (Arc::clone(&self.bucket), seqno));
        }
    }

    /// Returns the bucket of a keyspace, and the rest of its name. Only a bucket's name may contain dots.
    fn bucket_of<'k>(&self, keyspace: &'k str) -> Result<(Arc<Bucket>, &'k str), KvError> {
        let Some((at, _)) = keyspace.rmatch_indices('.').nth(1) else {
            return Ok((Arc::clone(&self.bucket), keyspace));
        };
        let (name, path) = (&keyspace[..at], &keyspace[at + 1..]);
        let bucket = self.node.upgrade().and_then(|node| node.bucket(name));
        let missing = || KvError::Denied(format!("there is no bucket {name}"));
        Ok((bucket.ok_or_else(missing)?, path))
    }

    fn begin(&self, keyspace: &str, key: &[u8], left: Duration) -> Result<Call<'_>, KvError> {
        let (bucket, path) = self.bucket_of(keyspace)?;
        let collection = bucket
            .manifest()
            .resolve(path)
            .map_err(|refusal| KvError::Denied(refusal.to_string()))?;
        if key.is_empty() {
            return Err(KvError::Invalid("a key has at least one byte".into()));
        }
        let mut wire_key = Vec::with_capacity(key.len() + 5);
        write_key(collection, key, &mut wire_key);
        if key.len() > KEY_BYTES_MAX - 4 {
            return Err(KvError::TooLarge);
        }
        let max_ttl = bucket.max_ttl(collection).unwrap_or(0);
        let left_ns = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
        let signal = Signal::default();
        Ok(Call {
            documents: self,
            vbid: Vbid::of(key, bucket.vbucket_count()),
            bucket,
            key: wire_key,
            max_ttl,
            deadline_ns: self.platform.now().monotonic_ns.saturating_add(left_ns),
            waiter: Arc::new(Wake(signal.clone())),
            signal,
        })
    }
}

impl Call<'_> {
    fn bucket(&self) -> &Bucket {
        &self.bucket
    }

    /// Records a write that must be stored before the plugin's call is committed.
    fn note(&self, reply: &Reply) {
        let (Reply::Stored { token, .. }
        | Reply::Counted { token, .. }
        | Reply::Mutated { token, .. }) = reply
        else {
            return;
        };
        self.note_seqno(token.seqno);
    }

    fn note_seqno(&self, seqno: Seqno) {
        if self.bucket.is_persistent() {
            let mut written = self.documents.written.lock();
            let at = (self.bucket.name.clone(), self.vbid);
            written.insert(at, (Arc::clone(&self.bucket), seqno));
        }
    }

    fn expiry(&self, expiry: u32) -> u32 {
        self.bucket().expiry(self.max_ttl, expiry, self.documents.platform.now())
    }

    fn now_ns(&self) -> u64 {
        self.documents.platform.now().monotonic_ns
    }

    fn left_ns(&self) -> u64 {
        self.deadline_ns.saturating_sub(self.now_ns())
    }

    fn left(&self) -> Result<Duration, KvError> {
        match self.left_ns() {
            0 => Err(KvError::Temporary("the time of the call is over".into())),
            left => Ok(Duration::from_nanos(left)),
        }
    }

    fn wait<T: Copy>(&self, ticket: &Ticket<T>) -> Result<T, KvError> {
        loop {
            if let Some(outcome) = ticket.outcome() {
                return Ok(*outcome);
            }
            self.signal.wait_at_most(self.left()?);
        }
    }

    fn read(&self) -> Result<Reply, KvError> {
        self.carry_out(&Command::Get, None)
    }

    /// Carries out a write with durability `level`, or the bucket's if that is higher.
    fn write(&self, command: &Command<'_>, level: Option<Level>) -> Result<Reply, KvError> {
        let bucket = self.bucket();
        if !matches!(command, Command::Delete { .. }) && bucket.refuses_growth() {
            return Err(KvError::Temporary("the bucket's memory or disk is full".into()));
        }
        let level = level.or(self.documents.level);
        let level = durability::level_for(bucket, level, self.vbid).map_err(|_| {
            KvError::Denied("the bucket has too few copies to be written to".into())
        })?;
        let reply = self.carry_out(command, level);
        bucket.wake_listeners();
        if let Ok(reply) = &reply {
            self.note(reply);
        }
        reply
    }

    fn carry_out(&self, command: &Command<'_>, level: Option<Level>) -> Result<Reply, KvError> {
        let bucket = self.bucket();
        // A refused call is repeated from the start of the batch, so it is better to wait for locks here, as long as enough time
        // remains for the rest of the call.
        let locked_until_ns = self.deadline_ns - self.left_ns() / 2;
        loop {
            let now = self.documents.platform.now();
            let (reply, ticket) = match level {
                None => {
                    let applied = bucket.apply(self.vbid, &self.key, command, now);
                    (applied.ok_or(KvError::NotMyVbucket)?.0, None)
                }
                Some(level) => {
                    let in_time_ns = now.monotonic_ns + DURABLE_TIMEOUT.as_nanos() as u64;
                    let terms = (level, in_time_ns.min(self.deadline_ns));
                    let prepared = durability::prepare(
                        bucket,
                        self.vbid,
                        &self.key,
                        command,
                        terms,
                        now,
                        &self.waiter,
                    );
                    let (reply, ticket, ..) = prepared.ok_or(KvError::NotMyVbucket)?;
                    bucket.wake_listeners();
                    (reply, ticket)
                }
            };
            match (reply, ticket) {
                (Ok(reply), Some(ticket)) => {
                    return match self.wait(&ticket)? {
                        Some(committed) => Ok(reply.committed(committed)),
                        None => Err(KvError::Temporary("the write was not durable in time".into())),
                    };
                }
                (Ok(reply), None) => return Ok(reply),
                (Err(Refusal::NotResident), _) => {
                    let ticket = bucket.fetch_later(self.vbid, &self.key, &self.waiter);
                    if !self.wait(&*ticket.ok_or(KvError::NotMyVbucket)?)? {
                        return Err(KvError::Temporary("the document cannot be read".into()));
                    }
                }
                (Err(Refusal::SyncWriteInProgress), _) => {
                    self.signal.wait_at_most(self.left()?.min(RETRY_PAUSE));
                }
                (Err(Refusal::Locked), _) if self.now_ns() < locked_until_ns => {
                    self.signal.wait_at_most(RETRY_PAUSE);
                }
                (Err(refusal), _) => return Err(error(&refusal)),
            }
        }
    }
}

fn error(refusal: &Refusal) -> KvError {
    match refusal {
        Refusal::NotFound | Refusal::NotStored => KvError::NotFound,
        Refusal::Exists => KvError::Exists,
        Refusal::Locked => KvError::Locked,
        Refusal::TooBig => KvError::TooLarge,
        Refusal::NotANumber => KvError::Invalid("the document is not a number".into()),
        Refusal::NotActive | Refusal::NoLease => KvError::NotMyVbucket,
        Refusal::Subdoc { failure, .. } => KvError::Path(path_failure(*failure)),
        other => KvError::Temporary(format!("the vBucket does not take it: {other:?}")),
    }
}

fn found(document: &Document, cas: Cas) -> Found {
    let (_, body) = document.split();
    Found {
        body: body.to_vec(),
        cas,
        flags: document.meta.flags,
        expiry: document.meta.expiry,
        is_json: document.meta.datatype & DATATYPE_JSON != 0,
    }
}

fn stored(reply: Reply) -> Result<Cas, KvError> {
    match reply {
        Reply::Stored { cas, .. } => Ok(cas),
        other => Err(unexpected(&other)),
    }
}

impl Documents for BucketDocuments {
    fn call(
        &self,
        keyspace: &str,
        key: &[u8],
        call: &DocumentCall,
        left: Duration,
    ) -> Result<DocumentReply, KvError> {
        use DocumentReply::{Counted, Found, Looked, LookedAny, Mutated, Stored};
        match call {
            DocumentCall::Get => self.get(keyspace, key, left).map(Found),
            DocumentCall::Store(content, mode) => {
                self.store(keyspace, key, content, *mode, left).map(Stored)
            }
            DocumentCall::Remove(cas) => self.remove(keyspace, key, *cas, left).map(Stored),
            DocumentCall::Count(delta, initial, expiry) => {
                self.count(keyspace, key, *delta, *initial, *expiry, left).map(Counted)
            }
            DocumentCall::Touch(expiry) => self.touch(keyspace, key, *expiry, left).map(Stored),
            DocumentCall::Lookup(specs) => {
                self.lookup(keyspace, key, specs, false, left).map(|(looked, _)| Looked(looked))
            }
            DocumentCall::LookupAny(specs) => {
                let looked = self.lookup(keyspace, key, specs, true, left);
                looked.map(|(looked, deleted)| LookedAny(looked, deleted))
            }
            DocumentCall::Mutate(specs, options) => {
                self.mutate(keyspace, key, specs, *options, None, left).map(Mutated)
            }
            DocumentCall::MutateAny(specs, options, tombstone) => {
                self.mutate(keyspace, key, specs, *options, Some(*tombstone), left).map(Mutated)
            }
        }
    }

    fn settle(&self) -> Result<(), KvError> {
        let written = self.written.lock().clone();
        let signal = Signal::default();
        let waiter: Arc<dyn Waiter> = Arc::new(Wake(signal.clone()));
        let deadline_ns = self.platform.now().monotonic_ns + SETTLE_TIMEOUT.as_nanos() as u64;
        let mut any_moved = false;
        for (at, (bucket, seqno)) in &written {
            let vbid = at.1;
            // Another node serves the vBucket now, and stores the write.
            let has_moved = || !bucket.is_closed() && bucket.served(vbid).is_none();
            if has_moved() {
                any_moved = true;
                continue;
            }
            let ticket = bucket.when_persisted(vbid, *seqno, &waiter);
            while ticket.outcome().is_none() {
                let now_ns = self.platform.now().monotonic_ns;
                let Some(left) = deadline_ns.checked_sub(now_ns).filter(|left| *left > 0) else {
                    return Err(KvError::Temporary("the write is not on disk yet".into()));
                };
                signal.wait_at_most(Duration::from_nanos(left));
            }
            if ticket.outcome() == Some(&false) && has_moved() {
                any_moved = true;
                continue;
            }
            // Later writes by a reader remain for the next call.
            let mut written = self.written.lock();
            if written.get(at).is_some_and(|(_, newest)| newest <= seqno) {
                written.remove(at);
            }
        }
        if any_moved { Err(KvError::NotMyVbucket) } else { Ok(()) }
    }
}

impl BucketDocuments {
    fn get(&self, keyspace: &str, key: &[u8], left: Duration) -> Result<Found, KvError> {
        let Reply::Found(document, cas) = self.begin(keyspace, key, left)?.read()? else {
            return Err(KvError::Temporary("an unexpected reply".into()));
        };
        Ok(found(&document, cas))
    }

    fn store(
        &self,
        keyspace: &str,
        key: &[u8],
        content: &Content,
        mode: StoreMode,
        left: Duration,
    ) -> Result<Cas, KvError> {
        let call = self.begin(keyspace, key, left)?;
        let (condition, cas) = condition(mode);
        let command = Command::Store {
            condition,
            cas,
            flags: content.flags,
            expiry: call.expiry(content.expiry.unwrap_or(0)),
            keep_expiry: content.expiry.is_none(),
            body: &content.body,
        };
        let outcome = call.write(&command, None);
        match (outcome, mode) {
            // The document exists, so its CAS differs.
            (Err(KvError::Exists), StoreMode::Replace(_)) => Err(KvError::CasMismatch),
            (outcome, _) => stored(outcome?),
        }
    }

    fn remove(
        &self,
        keyspace: &str,
        key: &[u8],
        cas: Option<Cas>,
        left: Duration,
    ) -> Result<Cas, KvError> {
        let command = Command::Delete { cas: cas.unwrap_or(Cas::ANY) };
        match self.begin(keyspace, key, left)?.write(&command, None) {
            Err(KvError::Exists) => Err(KvError::CasMismatch),
            outcome => stored(outcome?),
        }
    }

    fn count(
        &self,
        keyspace: &str,
        key: &[u8],
        delta: i64,
        initial: Option<u64>,
        expiry: u32,
        left: Duration,
    ) -> Result<Counted, KvError> {
        let call = self.begin(keyspace, key, left)?;
        let command = Command::Counter {
            decrement: delta < 0,
            delta: delta.unsigned_abs(),
            initial: initial.map(|value| (value, call.expiry(expiry))),
            cas: Cas::ANY,
        };
        match call.write(&command, None)? {
            Reply::Counted { value, cas, .. } => Ok(Counted { value, cas }),
            other => Err(unexpected(&other)),
        }
    }

    fn touch(
        &self,
        keyspace: &str,
        key: &[u8],
        expiry: u32,
        left: Duration,
    ) -> Result<Cas, KvError> {
        let call = self.begin(keyspace, key, left)?;
        match call.write(&Command::Touch { expiry: call.expiry(expiry) }, None)? {
            Reply::Found(document, cas) => {
                call.note_seqno(document.meta.seqno);
                Ok(cas)
            }
            other => stored(other),
        }
    }

    fn lookup(
        &self,
        keyspace: &str,
        key: &[u8],
        specs: &[PathLookup],
        access_deleted: bool,
        left: Duration,
    ) -> Result<(Looked, bool), KvError> {
        let specs: Vec<_> = specs.iter().map(PathLookup::spec).collect();
        let command = Command::Lookup { specs: &specs, access_deleted, sees_system: true };
        match self.begin(keyspace, key, left)?.carry_out(&command, None)? {
            Reply::Looked { results, cas, deleted } => {
                let results = results.into_iter();
                let results = results.map(|result| result.map_err(|error| error.to_string()));
                Ok((Looked { cas, results: results.collect() }, deleted))
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Returns the named extended attributes of a document, even if it is deleted.
    pub fn attributes(
        &self,
        keyspace: &str,
        key: &[u8],
        names: &[String],
        left: Duration,
    ) -> Result<serde_json::Map<String, serde_json::Value>, KvError> {
        let lookup = |name: &String| PathLookup {
            operation: LookupOperation::Path(Lookup::Get),
            path: name.clone(),
            xattr: true,
        };
        let mut found = serde_json::Map::new();
        for name in names {
            // One lookup per name, because a lookup can read the attributes of only one key.
            let lookup = lookup(name);
            let specs = [lookup.spec()];
            let command =
                Command::Lookup { specs: &specs, access_deleted: true, sees_system: true };
            match self.begin(keyspace, key, left)?.carry_out(&command, None)? {
                Reply::Looked { results, .. } => {
                    let value = results.into_iter().next().and_then(Result::ok);
                    let value = value.and_then(|json| serde_json::from_slice(&json).ok());
                    found.extend(value.map(|value| (name.clone(), value)));
                }
                other => return Err(unexpected(&other)),
            }
        }
        Ok(found)
    }

    fn mutate(
        &self,
        keyspace: &str,
        key: &[u8],
        specs: &[PathMutation],
        options: MutateOptions,
        tombstone: Option<TombstoneUse>,
        left: Duration,
    ) -> Result<Mutated, KvError> {
        let MutateOptions { mode, expiry, flags } = options;
        let call = self.begin(keyspace, key, left)?;
        let specs: Vec<_> = specs.iter().map(PathMutation::spec).collect();
        let (condition, cas) = condition(mode);
        let removes = |spec: &MutationSpec<'_>| spec.operation == MutationOperation::RemoveDocument;
        let command = Command::Mutate {
            specs: &specs,
            condition,
            access_deleted: tombstone.is_some(),
            create_as_deleted: tombstone == Some(TombstoneUse::Create),
            revive: tombstone == Some(TombstoneUse::Revive),
            cas,
            expiry: match specs.iter().any(removes) {
                true => None,
                false => expiry.map(|expiry| call.expiry(expiry)),
            },
            expiry_when_new: call.expiry(0),
            flags,
            keep_expiry: false,
        };
        let outcome = call.write(&command, None);
        match (outcome, mode) {
            (Err(KvError::Exists), StoreMode::Replace(_)) => Err(KvError::CasMismatch),
            (outcome, _) => match outcome? {
                Reply::Mutated { results, cas, .. } => Ok(Mutated { cas, results }),
                other => Err(unexpected(&other)),
            },
        }
    }
}

fn unexpected(reply: &Reply) -> KvError {
    KvError::Temporary(format!("an unexpected reply: {reply:?}"))
}

fn condition(mode: StoreMode) -> (Condition, Cas) {
    match mode {
        StoreMode::Insert => (Condition::Absent, Cas::ANY),
        StoreMode::Upsert => (Condition::Always, Cas::ANY),
        StoreMode::Replace(cas) => (Condition::Present, cas.unwrap_or(Cas::ANY)),
    }
}
