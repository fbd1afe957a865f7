//! The state machine: applies commands, assigns seqnos and CAS, and keeps hash table and checkpoint consistent.

use crate::checkpoint::Checkpoint;
use crate::command::{Command, Condition, Cost, Extend, Refusal, Reply, Token};
use crate::conflict;
use crate::durability::{Copies, Prepares, Staging, prepared_key};
use crate::graveyard::Graveyard;
use crate::history::Retention;
use crate::lock::Locks;
use crate::prefetch::prefetch_document;
use crate::replica::GivenUp;
use crate::subdoc::{self, Computed, Edited, Found};
use crate::table::{CollectionCounts, Eviction, Table};
use nacre_types::{
    Cas, CollectionId, DATATYPE_JSON, DATATYPE_XATTR, DocKey, Document, FailoverLog, Kind, Meta,
    Now, Seqno, VALUE_BYTES_MAX, VbRecord, VbState, VbUuid, Vbid, XATTR_BYTES_MAX,
};
use nacre_value::json;
use nacre_value::multi::{LookupSpec, Macros};
use nacre_value::xattr::Xattrs;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

/// Minimum number of CAS values that a new branch of history skips: more than a branch assigns while its clock is
/// behind.
const BRANCH_CAS_GAP: u64 = 1 << 24;

/// Number of different offsets with which a branch of history can continue above a received CAS.
///
/// Each offset is a CAS value. This is therefore also the time, in nanoseconds, by which a vBucket can get ahead of the
/// clock for each version that it receives while its clock is behind: less than the time that a message takes.
const BRANCH_PLACES: u64 = 1 << 18;

/// One vBucket of a bucket on this node.
#[derive(Debug)]
pub struct Vbucket {
    pub(crate) id: Vbid,
    pub(crate) state: VbState,
    /// See [`VbRecord::term`].
    pub(crate) term: u64,
    pub(crate) copies: Copies,
    /// See [`Vbucket::mark_in_doubt`].
    pub(crate) in_doubt_term: Option<u64>,
    /// The received snapshots that are not completely stored, oldest first.
    pub(crate) received: VecDeque<(Seqno, Seqno)>,
    /// Prepares of a replica that the active copy has given up.
    pub(crate) given_up: GivenUp,
    /// See [`Vbucket::generation`].
    pub(crate) generation: u32,
    pub(crate) seed: u64,
    /// True if the record must be stored even if history has not grown.
    pub(crate) record_changed: bool,
    pub(crate) table: Table,
    pub(crate) locks: Locks,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) prepares: Prepares,
    /// Durable writes can end here until this time, in monotonic nanoseconds.
    pub(crate) completes_until_ns: u64,
    pub(crate) graveyard: Graveyard,
    pub(crate) retention: Retention,
    pub(crate) failover_log: FailoverLog,
    pub(crate) max_cas: Cas,
    /// The last CAS that this copy assigned in the current branch of history.
    pub(crate) own_cas: Cas,
    pub(crate) persisted: Seqno,
    pub(crate) read_only: bool,
    /// Set while a durable write is carried out: [`Vbucket::commit`] then prepares the version.
    pub(crate) staging: Option<Staging>,
    /// Cost of the last command.
    pub(crate) cost: Cost,
}

/// The effect of a write on one key, after its conditions were checked.
struct Write<'a> {
    pub value: &'a [u8],
    pub flags: u32,
    pub expiry: u32,
    pub datatype: u8,
    pub kind: Kind,
    /// For a version from another cluster: its CAS, if it is kept, and its revision.
    pub origin: Option<(Option<Cas>, u64)>,
}

impl Vbucket {
    /// Creates a vBucket with the history in `record`, before its documents are [loaded](Vbucket::load).
    ///
    /// `seed` makes the order of the hash table unpredictable to clients; any number is suitable.
    pub fn new(id: Vbid, record: VbRecord, seed: u64) -> Vbucket {
        let (_, snapshot_end) = record.snapshot;
        let cut = (record.high_seqno < snapshot_end).then_some(record.snapshot);
        Vbucket {
            id,
            state: record.state,
            term: record.term,
            copies: Copies::default(),
            in_doubt_term: None,
            received: cut.into_iter().collect(),
            given_up: GivenUp::default(),
            generation: 0,
            seed,
            record_changed: false,
            table: Table::new(seed),
            locks: Locks::default(),
            prepares: Prepares::default(),
            completes_until_ns: u64::MAX,
            graveyard: Graveyard::starting_at(record.purge_seqno, record.purged_rev),
            retention: Retention::starting_at(record.history_start),
            checkpoint: Checkpoint::starting_at(record.high_seqno),
            failover_log: record.failover_log,
            max_cas: record.max_cas,
            own_cas: Cas::ANY,
            persisted: record.high_seqno,
            read_only: false,
            staging: None,
            cost: Cost::default(),
        }
    }

    /// Creates an active vBucket without history.
    pub fn create(id: Vbid, vb_uuid: VbUuid, seed: u64) -> Vbucket {
        let record = VbRecord {
            state: VbState::Active,
            failover_log: FailoverLog::new(vb_uuid),
            term: 1,
            high_seqno: Seqno::ZERO,
            snapshot: (Seqno::ZERO, Seqno::ZERO),
            purge_seqno: Seqno::ZERO,
            purged_rev: 0,
            max_cas: Cas::ANY,
            document_count: 0,
            history_start: None,
        };
        Vbucket::new(id, record, seed)
    }

    /// Sets the part of documents that may be evicted.
    pub fn set_eviction(&mut self, eviction: Eviction) {
        self.table.eviction = eviction;
    }

    /// Loads a stored version during warmup, before the first command. Unless it must be `resident`, only the part that
    /// the [`Eviction`] keeps is loaded.
    pub fn load(&mut self, document: Document, resident: bool) {
        debug_assert!(document.meta.seqno <= self.high_seqno());
        self.max_cas = self.max_cas.max(document.meta.cas);
        if document.collection() == CollectionId::PREPARED {
            self.load_prepare(document);
        } else if resident {
            self.table.insert(document);
        } else {
            self.table.insert_evicted(&document);
        }
    }

    /// Begins a new branch of history on this copy, for instance after an unclean stop.
    ///
    /// CAS values continue 17 to 84 ms of clock time above all that this copy has seen: the end of the previous branch
    /// may be lost here but known in other clusters, and no two versions may share a CAS. The distance depends on
    /// `vb_uuid`, because several branches can begin at the same version.
    pub fn begin_branch(&mut self, vb_uuid: VbUuid) {
        self.failover_log.begin(vb_uuid, self.high_seqno());
        let gap = BRANCH_CAS_GAP + vb_uuid.0 % (4 * BRANCH_CAS_GAP);
        self.max_cas = Cas(self.max_cas.0.saturating_add(gap));
        self.own_cas = Cas::ANY;
        self.record_changed = true;
    }

    /// Returns the number of the vBucket.
    pub fn id(&self) -> Vbid {
        self.id
    }

    /// Returns the role of this copy.
    pub fn state(&self) -> VbState {
        self.state
    }

    /// Returns the last assigned or received seqno.
    pub fn high_seqno(&self) -> Seqno {
        self.checkpoint.high_seqno()
    }

    /// Returns the last stored seqno.
    pub fn persisted(&self) -> Seqno {
        self.persisted
    }

    /// Returns the branches of history.
    pub fn failover_log(&self) -> &FailoverLog {
        &self.failover_log
    }

    /// Returns the greatest CAS that this copy assigned or received.
    pub fn max_cas(&self) -> Cas {
        self.max_cas
    }

    /// Returns the history in memory.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// Returns the history in memory, to register and move cursors.
    pub fn checkpoint_mut(&mut self) -> &mut Checkpoint {
        &mut self.checkpoint
    }

    /// Returns the number of existing documents, in memory or not. Expired documents count until the expiry is noticed.
    pub fn alive_count(&self) -> u64 {
        let counts = self.table.counts().iter();
        counts.filter(|(id, _)| id.holds_documents()).map(|(_, counts)| counts.documents).sum()
    }

    /// Returns the number of keys in the hash table, tombstones included.
    pub fn key_count(&self) -> u64 {
        self.table.len() as u64
    }

    /// Returns the number of keys in the hash table whose value is only in the store.
    pub fn stub_count(&self) -> u64 {
        self.table.stubs()
    }

    /// Returns the collections that have or had documents or durable writes in progress here; some may occur twice.
    pub fn collections(&self) -> Vec<CollectionId> {
        let counts = self.table.counts().iter().map(|(id, _)| *id);
        counts.chain(self.prepares.collections()).filter(|id| id.holds_documents()).collect()
    }

    /// Returns the number and size of a collection's documents in this vBucket.
    pub fn counts_of(&self, collection: CollectionId) -> CollectionCounts {
        let counts = self.table.counts().iter();
        counts.copied().find(|(id, _)| *id == collection).map_or_else(Default::default, |c| c.1)
    }

    /// Returns the collections with history after `seqno`, including the collections of events and of prepared writes,
    /// and collections whose later history was erased.
    pub fn collections_after(&self, seqno: Seqno) -> impl Iterator<Item = CollectionId> {
        let counts = self.table.counts().iter();
        let later = counts.filter(move |(_, counts)| counts.high_seqno > seqno).map(|(id, _)| *id);
        later.chain(std::iter::once(CollectionId::PREPARED))
    }

    /// Returns the memory of the versions in the hash table and of prepared writes, in bytes. The memory of history is
    /// counted separately.
    pub fn memory_bytes(&self) -> usize {
        self.table.memory_bytes() + self.prepares.memory_bytes()
    }

    /// Returns the newest version of `key` or its stub, tombstones included. `None` if there is none, or if it was
    /// evicted with its metadata.
    pub fn find(&self, key: &[u8]) -> Option<&Document> {
        self.table.find(key)
    }

    /// Iterates over the durable writes that are neither committed nor given up, by seqno.
    pub fn prepared_documents(&self) -> impl Iterator<Item = &Document> {
        self.prepares.documents()
    }

    /// Iterates over all newest versions in memory, including stubs, in no particular order.
    pub fn documents(&self) -> impl Iterator<Item = &Document> {
        self.table.iter().filter(|item| item.collection().holds_documents())
    }

    /// Iterates over the existing documents of a collection that are in memory, including stubs, in no particular
    /// order. Searches the table only if the collection has documents.
    pub fn living(&self, collection: CollectionId) -> impl Iterator<Item = &Document> {
        let any = self.counts_of(collection).documents > 0;
        let documents = any.then(|| self.documents()).into_iter().flatten();
        documents.filter(move |item| item.collection() == collection && item.is_alive())
    }

    /// Prefetches the slot with the address of the document at `key`, and the counters of its collection.
    pub fn prefetch_slot(&self, key: &[u8]) {
        self.table.prefetch(key);
    }

    /// Prefetches the document at `key`, once its slot is in the cache.
    pub fn prefetch_document(&self, key: &[u8]) {
        if let Some(document) = self.table.guess(key) {
            prefetch_document(document);
        }
    }

    /// Returns true if some keys are only in the store.
    pub fn has_evicted_keys(&self) -> bool {
        self.table.has_evicted_keys()
    }

    /// Returns the number of passes that evicted keys, see [`Vbucket::restore`].
    pub fn eviction_epoch(&self) -> u64 {
        self.table.epoch()
    }

    /// Restores the stored version of `key` (`None` if the store has none), as read in this
    /// [epoch](Vbucket::eviction_epoch).
    ///
    /// Returns false if keys were evicted since then: the version may be outdated and must be read again.
    pub fn restore(&mut self, key: &[u8], stored: Option<Document>, epoch: u64) -> bool {
        self.table.restore(key, stored, epoch)
    }

    /// Evicts about `percent` of the evictable bytes, least read first. Returns the number of freed bytes.
    ///
    /// A document stays in memory if it is not stored, is locked, or is about to be replaced by a durable write.
    pub fn evict(&mut self, percent: u8, now: Now) -> usize {
        let Vbucket { table, prepares, locks, persisted, .. } = self;
        table.evict(percent, |item| {
            item.meta.seqno <= *persisted
                && !prepares.contains(item.key())
                && locks.holder(item.key(), now).is_none()
        })
    }

    /// Keeps the superseded versions of these collections (ascending), from the existing start of the kept history, or
    /// from now on. `None` drops all kept history. Returns true if the start moves and must be stored.
    pub fn keep_history(&mut self, collections: Option<Arc<[CollectionId]>>) -> bool {
        self.retention.want(collections);
        self.settle_history()
    }

    /// Moves the start of the kept history forward to `start`. Returns true if it moves and must be stored.
    pub fn forget_history(&mut self, start: Seqno) -> bool {
        let end = self.high_seqno().next();
        let is_moved = self.retention.forget(start, end);
        self.record_changed |= is_moved;
        is_moved
    }

    /// Adapts the kept history to the wanted collections and to the role of this copy.
    pub(crate) fn settle_history(&mut self) -> bool {
        let next = self.high_seqno().next();
        let is_moved = self.retention.settle(self.state, next);
        self.record_changed |= is_moved;
        is_moved
    }

    /// Returns the seqno from which superseded versions are kept; `None` if none are kept.
    pub fn history_start(&self) -> Option<Seqno> {
        self.retention.start()
    }

    /// Returns the collections whose history is kept, ascending.
    pub fn history_collections(&self) -> &Arc<[CollectionId]> {
        self.retention.collections()
    }

    /// Returns true if the vBucket no longer takes writes.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Records that everything up to `seqno` is stored.
    pub fn set_persisted(&mut self, seqno: Seqno, checkpoint_bytes_max: usize) {
        debug_assert!(seqno <= self.high_seqno());
        self.persisted = self.persisted.max(seqno);
        while self.received.front().is_some_and(|(_, end)| *end <= self.persisted) {
            self.received.pop_front();
        }
        self.checkpoint.trim(self.persisted, checkpoint_bytes_max);
    }

    /// Refuses writes from now on: the store failed, or the bucket is closing.
    ///
    /// History does not grow afterwards: even expired documents do not become tombstones.
    pub fn make_read_only(&mut self) {
        self.read_only = true;
    }

    /// Carries out `command` on `key` (collection prefix first).
    ///
    /// Returns the reply and the seqno of the mutation, if there was one. A read of an expired document makes one too.
    ///
    /// # Errors
    /// [`Refusal`], with nothing changed, except that an expired document became a tombstone.
    pub fn apply(
        &mut self,
        key: &[u8],
        command: &Command<'_>,
        now: Now,
    ) -> (Result<Reply, Refusal>, Option<Seqno>) {
        let before = self.high_seqno();
        let reply = self.dispatch(key, command, now);
        let after = self.high_seqno();
        debug_assert!(after.0 <= before.0 + 1, "one command makes at most one mutation");
        (reply, (after > before).then_some(after))
    }

    /// Returns the cost of the last command, if the command was carried out.
    pub fn cost(&self) -> Cost {
        self.cost
    }

    fn note_read(&mut self, document: &Document) {
        self.cost.read_bytes = document.key().len() + document.value().len();
    }

    fn dispatch(&mut self, key: &[u8], command: &Command<'_>, now: Now) -> Result<Reply, Refusal> {
        if self.state != VbState::Active {
            return Err(Refusal::NotActive);
        }
        if !command.only_reads() {
            if self.read_only {
                return Err(Refusal::ReadOnly);
            }
            if self.prepares.contains(key) {
                return Err(Refusal::SyncWriteInProgress);
            }
        }
        if self.prepares.hides(key) {
            return Err(Refusal::SyncWriteReCommitInProgress);
        }
        self.carry_out(key, command, now)
    }

    /// Answers a reading command from a replica, according to its progress.
    ///
    /// # Errors
    /// [`Refusal::NotActive`] if this is not a replica, or if the command writes; otherwise the errors of
    /// [`Vbucket::apply`].
    pub fn read_replica(
        &mut self,
        key: &[u8],
        command: &Command<'_>,
        now: Now,
    ) -> Result<Reply, Refusal> {
        match self.state == VbState::Replica && command.only_reads() {
            true => self.carry_out(key, command, now),
            false => Err(Refusal::NotActive),
        }
    }

    fn carry_out(&mut self, key: &[u8], command: &Command<'_>, now: Now) -> Result<Reply, Refusal> {
        self.cost = Cost::default();
        if self.table.lacks(key, command) {
            return Err(Refusal::NotResident);
        }
        match *command {
            Command::Get => {
                let document = self.alive(key, now)?;
                self.note_read(&document);
                self.table.hit(&document);
                let cas = self.shown_cas(&document, now);
                Ok(Reply::Found(document, cas))
            }
            Command::GetMeta => self.find(key).cloned().map(Reply::Meta).ok_or(Refusal::NotFound),
            Command::Store { condition, cas, flags, expiry, keep_expiry, body } => {
                self.store(key, condition, cas, flags, (expiry, keep_expiry), body, now)
            }
            Command::StoreVersion { .. } => self.store_version(key, command, now),
            Command::Extend { end, cas, bytes } => self.extend(key, end, cas, bytes, now),
            Command::Delete { cas } => self.delete(key, cas, now),
            Command::Counter { decrement, delta, initial, cas } => {
                self.count(key, decrement, delta, initial, cas, now)
            }
            Command::Touch { expiry } => self.touch(key, expiry, now),
            Command::Lock { seconds } => self.lock(key, seconds, now),
            Command::Unlock { cas } => self.unlock(key, cas, now),
            Command::Lookup { specs, access_deleted, sees_system } => {
                self.lookup(key, specs, access_deleted, sees_system, now)
            }
            Command::Mutate { .. } => self.mutate(key, command, now),
        }
    }

    fn store(
        &mut self,
        key: &[u8],
        condition: Condition,
        cas: Cas,
        flags: u32,
        (expiry, keep_expiry): (u32, bool),
        body: &[u8],
        now: Now,
    ) -> Result<Reply, Refusal> {
        if condition == Condition::Absent && cas != Cas::ANY {
            return Err(Refusal::Invalid);
        }
        let current = self.peek(key, now);
        match (condition, &current) {
            (Condition::Absent, Some(_)) => return Err(Refusal::Exists),
            (Condition::Present, None) => return Err(Refusal::NotFound),
            _ => self.check_cas(key, current.as_ref(), cas, now)?,
        }
        let xattrs = current.as_ref().map_or(&[][..], |document| document.xattrs());
        let expiry = current
            .as_ref()
            .filter(|_| keep_expiry)
            .map_or(expiry, |document| document.meta.expiry);
        let datatype = datatype_of(xattrs, body);
        let joined;
        let value = if xattrs.is_empty() {
            body
        } else {
            joined = [xattrs, body].concat();
            &joined
        };
        self.write(
            key,
            Write { value, flags, expiry, datatype, kind: Kind::Alive, origin: None },
            now,
        )
    }

    fn extend(
        &mut self,
        key: &[u8],
        end: Extend,
        cas: Cas,
        bytes: &[u8],
        now: Now,
    ) -> Result<Reply, Refusal> {
        let current = self.peek(key, now).ok_or(Refusal::NotStored)?;
        self.check_cas(key, Some(&current), cas, now)?;
        self.note_read(&current);
        let (xattrs, body) = current.split();
        let value = match end {
            Extend::Append => [xattrs, body, bytes].concat(),
            Extend::Prepend => [xattrs, bytes, body].concat(),
        };
        let datatype = datatype_of(xattrs, &value[xattrs.len()..]);
        let Meta { flags, expiry, .. } = current.meta;
        self.write(
            key,
            Write { value: &value, flags, expiry, datatype, kind: Kind::Alive, origin: None },
            now,
        )
    }

    fn store_version(
        &mut self,
        key: &[u8],
        command: &Command<'_>,
        now: Now,
    ) -> Result<Reply, Refusal> {
        let Command::StoreVersion { version, value, add, cas, rule, regenerate_cas } = *command
        else {
            return Err(Refusal::Invalid);
        };
        let current = self.peek(key, now);
        if add && current.is_some() {
            return Err(Refusal::Exists);
        }
        self.check_cas(key, current.as_ref(), cas, now)?;
        if !conflict::has_valid_cas(&version, now) {
            return Err(Refusal::CasInvalid);
        }
        conflict::admit(rule, &version, value, self.find(key))?;
        if regenerate_cas {
            self.raise_max_cas(version.cas);
        }
        let origin = Some((if regenerate_cas { None } else { Some(version.cas) }, version.rev));
        let Meta { flags, expiry, datatype, kind, .. } = version;
        let expiry = if kind != Kind::Alive && expiry == 0 { now.unix_s() } else { expiry };
        self.write(key, Write { value, flags, expiry, datatype, kind, origin }, now)
    }

    fn delete(&mut self, key: &[u8], cas: Cas, now: Now) -> Result<Reply, Refusal> {
        let current = self.alive(key, now)?;
        self.check_cas(key, Some(&current), cas, now)?;
        let document = self.tombstone(&current, Kind::Deleted, now);
        Ok(Reply::Stored { cas: document.meta.cas, token: self.token(&document) })
    }

    fn count(
        &mut self,
        key: &[u8],
        decrement: bool,
        delta: u64,
        initial: Option<(u64, u32)>,
        cas: Cas,
        now: Now,
    ) -> Result<Reply, Refusal> {
        let current = self.peek(key, now);
        self.check_cas(key, current.as_ref(), cas, now)?;
        let (value, expiry, flags) = match (&current, initial) {
            (None, None) => return Err(Refusal::NotFound),
            (None, Some((value, expiry))) => (value, expiry, 0),
            (Some(document), _) => {
                self.note_read(document);
                let old = decimal(document.body()).ok_or(Refusal::NotANumber)?;
                let new =
                    if decrement { old.saturating_sub(delta) } else { old.wrapping_add(delta) };
                (new, document.meta.expiry, document.meta.flags)
            }
        };
        let xattrs = current.as_ref().map_or(&[][..], |document| document.split().0);
        let stored = [xattrs, value.to_string().as_bytes()].concat();
        let datatype = datatype_of(xattrs, &stored[xattrs.len()..]);
        let write =
            Write { value: &stored, flags, expiry, datatype, kind: Kind::Alive, origin: None };
        match self.write(key, write, now)? {
            Reply::Stored { cas, token } => Ok(Reply::Counted { value, cas, token }),
            other => Ok(other),
        }
    }

    fn touch(&mut self, key: &[u8], expiry: u32, now: Now) -> Result<Reply, Refusal> {
        let current = self.alive(key, now)?;
        if self.locks.holder(key, now).is_some() {
            return Err(Refusal::Locked);
        }
        self.note_read(&current);
        if current.meta.expiry == expiry {
            let cas = current.meta.cas;
            return Ok(Reply::Found(current, cas));
        }
        let Meta { flags, datatype, .. } = current.meta;
        self.write(
            key,
            Write {
                value: current.value(),
                flags,
                expiry,
                datatype,
                kind: Kind::Alive,
                origin: None,
            },
            now,
        )?;
        // `Found`, not `Stored`: the reply to a touch contains the document or nothing, but never a token.
        let document = self.find(key).cloned().ok_or(Refusal::NotFound)?;
        let cas = document.meta.cas;
        Ok(Reply::Found(document, cas))
    }

    fn lock(&mut self, key: &[u8], seconds: u32, now: Now) -> Result<Reply, Refusal> {
        let current = self.alive(key, now)?;
        if self.locks.holder(key, now).is_some() {
            return Err(Refusal::Locked);
        }
        self.note_read(&current);
        // The CAS of the lock becomes the document's CAS in memory, so that a write with it succeeds even after the
        // lock has expired. This is no mutation: it has no seqno and is not stored.
        let cas = self.cas_above(Cas::ANY, now);
        (self.max_cas, self.own_cas) = (cas, cas);
        let meta = Meta { cas, ..current.meta };
        let document = Document::new(meta, key, current.value());
        self.table.insert(document.clone());
        self.locks.lock(key, cas, seconds, now);
        Ok(Reply::Found(document, cas))
    }

    fn unlock(&mut self, key: &[u8], cas: Cas, now: Now) -> Result<Reply, Refusal> {
        self.alive(key, now)?;
        match self.locks.holder(key, now) {
            None => Err(Refusal::NotLocked),
            Some(holder) if holder != cas => Err(Refusal::Locked),
            Some(_) => {
                self.locks.release(key);
                Ok(Reply::Unlocked)
            }
        }
    }

    fn lookup(
        &mut self,
        key: &[u8],
        specs: &[LookupSpec<'_>],
        access_deleted: bool,
        sees_system: bool,
        now: Now,
    ) -> Result<Reply, Refusal> {
        let document = match self.alive(key, now) {
            Err(Refusal::NotFound) if access_deleted => {
                self.find(key).cloned().ok_or(Refusal::NotFound)?
            }
            found => found?,
        };
        self.note_read(&document);
        let results = subdoc::lookup(&document, specs, self.computed(now), sees_system)?;
        let (cas, deleted) = (self.shown_cas(&document, now), !document.is_alive());
        Ok(Reply::Looked { results, cas, deleted })
    }

    fn mutate(&mut self, key: &[u8], command: &Command<'_>, now: Now) -> Result<Reply, Refusal> {
        let Command::Mutate { condition, access_deleted, revive, cas, .. } = *command else {
            return Err(Refusal::Invalid);
        };
        let alive = self.peek(key, now);
        let current = match &alive {
            Some(document) => Some(document.clone()),
            None => self.find(key).filter(|d| access_deleted && !d.is_alive()).cloned(),
        };
        let found = Found { alive, current };
        found.check(condition, revive)?;
        self.check_cas(key, found.current.as_ref(), cas, now)?;
        found.current.iter().for_each(|document| self.note_read(document));
        let (next_cas, next_seqno) = self.upcoming(now);
        let macros = Macros { cas: next_cas.0, seqno: next_seqno.0 };
        let edited = found.edit(command, self.computed(now), macros)?;
        let document = self.write_parts(key, &edited, now)?;
        let (cas, token) = (document.meta.cas, self.token(&document));
        Ok(Reply::Mutated { results: edited.results, cas, token, deleted: edited.was_deleted })
    }

    /// Returns the inputs of attributes that are computed at `now`.
    fn computed(&self, now: Now) -> Computed {
        Computed { max_cas: self.max_cas, vb_uuid: self.failover_log.current(), now }
    }

    /// Returns the document at `key` if it exists now. An expired document becomes a tombstone.
    fn alive(&mut self, key: &[u8], now: Now) -> Result<Document, Refusal> {
        let document = self.find(key).ok_or(Refusal::NotFound)?.clone();
        if document.is_expired(now.unix_s()) {
            let buries = !self.read_only && self.state == VbState::Active;
            if buries && !self.prepares.contains(key) {
                let staging = self.staging.take();
                self.tombstone(&document, Kind::Expired, now);
                self.staging = staging;
            }
            return Err(Refusal::NotFound);
        }
        if document.is_alive() { Ok(document) } else { Err(Refusal::NotFound) }
    }

    /// Returns the document at `key` if it exists now, for a write that replaces it anyway: creates no tombstone.
    fn peek(&self, key: &[u8], now: Now) -> Option<Document> {
        self.find(key).filter(|d| d.is_alive() && !d.is_expired(now.unix_s())).cloned()
    }

    /// Checks whether a write with `cas` may change `current`. A locked document needs the CAS of the lock's holder.
    fn check_cas(
        &self,
        key: &[u8],
        current: Option<&Document>,
        cas: Cas,
        now: Now,
    ) -> Result<(), Refusal> {
        match current {
            None if cas == Cas::ANY => Ok(()),
            None => Err(Refusal::NotFound),
            Some(document) => match self.locks.holder(key, now) {
                Some(holder) if holder != cas => Err(Refusal::Locked),
                Some(_) => Ok(()),
                None if cas == Cas::ANY || cas == document.meta.cas => Ok(()),
                None => Err(Refusal::Exists),
            },
        }
    }

    /// Returns the CAS to show for a document: all ones while it is locked.
    fn shown_cas(&self, document: &Document, now: Now) -> Cas {
        if self.locks.holder(document.key(), now).is_some() {
            Cas::LOCKED
        } else {
            document.meta.cas
        }
    }

    /// Returns the CAS and the seqno of the next mutation at `now`.
    fn upcoming(&self, now: Now) -> (Cas, Seqno) {
        (self.cas_above(Cas::ANY, now), self.high_seqno().next())
    }

    /// Returns a CAS for a write at `now` that is greater than `cas` and than all CAS values of this copy.
    ///
    /// While the clock is behind, CAS values increase one by one. After a received CAS they continue 65 to 328
    /// microseconds of clock time higher, depending on the branch: a lost branch of history may have continued from the
    /// same version, and no two versions may share a CAS.
    pub fn cas_above(&self, cas: Cas, now: Now) -> Cas {
        let newest = self.max_cas.max(cas);
        let next = newest.tick(now.unix_ns);
        let is_counted = next.0 == newest.0.saturating_add(1);
        if !is_counted || newest == self.own_cas {
            return next;
        }
        // The last bit of a UUID is always 1.
        let place = (self.failover_log.current().0 >> 1) % BRANCH_PLACES;
        Cas((newest.0 | 0xffff).saturating_add(1 + place))
    }

    /// Makes all later CAS values greater than `cas`.
    fn raise_max_cas(&mut self, cas: Cas) {
        self.max_cas = self.max_cas.max(cas);
    }

    /// Writes a version whose conditions are met.
    fn write(&mut self, key: &[u8], write: Write<'_>, now: Now) -> Result<Reply, Refusal> {
        if write.value.len() > VALUE_BYTES_MAX {
            return Err(Refusal::TooBig);
        }
        let document = self.commit(key, write, now);
        Ok(Reply::Stored { cas: document.meta.cas, token: self.token(&document) })
    }

    /// Writes the outcome of a sub-document mutation.
    fn write_parts(
        &mut self,
        key: &[u8],
        edited: &Edited<'_>,
        now: Now,
    ) -> Result<Document, Refusal> {
        let Edited { xattrs, body, body_is_json, meta, .. } = edited;
        let value = match xattrs.is_empty() {
            true => Cow::Borrowed(&body[..]),
            false => Cow::Owned([&xattrs[..], &body[..]].concat()),
        };
        if value.len() > VALUE_BYTES_MAX || xattrs.len() > XATTR_BYTES_MAX {
            return Err(Refusal::TooBig);
        }
        debug_assert_eq!(*body_is_json, json::is_json(body));
        let json = if *body_is_json { DATATYPE_JSON } else { 0 };
        let datatype = json | if xattrs.is_empty() { 0 } else { DATATYPE_XATTR };
        let Meta { flags, expiry, kind, .. } = *meta;
        Ok(self.commit(
            key,
            Write { value: &value, flags, expiry, datatype, kind, origin: None },
            now,
        ))
    }

    /// Replaces `current` by a tombstone. System attributes are kept for their owners.
    pub(crate) fn tombstone(&mut self, current: &Document, kind: Kind, now: Now) -> Document {
        let kept = system_attributes(current.xattrs());
        let datatype = if kept.is_empty() { 0 } else { DATATYPE_XATTR };
        let expiry = now.unix_s();
        self.commit(
            current.key(),
            Write { value: &kept, flags: 0, expiry, datatype, kind, origin: None },
            now,
        )
    }

    /// Assigns seqno, CAS and revision, and updates table and checkpoint. All local writes go through this function. A
    /// durable write only adds a prepare to history here.
    fn commit(&mut self, key: &[u8], write: Write<'_>, now: Now) -> Document {
        let (next_cas, seqno) = self.upcoming(now);
        let Write { value, flags, expiry, datatype, kind, origin } = write;
        let given = origin.and_then(|(cas, _)| cas);
        let cas = given.unwrap_or(next_cas);
        let rev = origin.map_or(self.graveyard.purged_rev() + 1, |(_, rev)| rev);
        let meta = Meta { seqno, cas, rev, flags, expiry, datatype, kind };
        self.max_cas = self.max_cas.max(cas);
        // Other branches may have received the same CAS, even if the clock would have given the same value.
        if given.is_none() {
            self.own_cas = cas;
        }
        self.locks.release(key);
        self.cost.written_bytes = key.len() + value.len();
        if let Some(staging) = self.staging {
            return self.stage(key, Document::new(meta, &prepared_key(key), value), staging);
        }
        self.publish(Document::new(meta, key, value), origin.is_some())
    }

    /// Adds the next version of history to the table and the checkpoint.
    pub(crate) fn publish(&mut self, document: Document, keep_rev: bool) -> Document {
        let document = self.table.replace(document, keep_rev);
        self.checkpoint.push(document.clone());
        document
    }

    /// Records an event of a scope or a collection as a version of the key `name`, which clients cannot access.
    ///
    /// Does nothing if the vBucket is read-only or not active.
    pub fn record_event(&mut self, name: &[u8], ended: bool, value: &[u8], now: Now) {
        if !self.read_only && self.state == VbState::Active {
            let key = DocKey::new(CollectionId::SYSTEM, name);
            let (kind, expiry) =
                if ended { (Kind::Deleted, now.unix_s()) } else { (Kind::Alive, 0) };
            let datatype = DATATYPE_JSON;
            let write = Write { value, flags: 0, expiry, datatype, kind, origin: None };
            self.commit(key.prefixed(), write, now);
        }
    }

    pub(crate) fn token(&self, document: &Document) -> Token {
        Token { vb_uuid: self.failover_log.current(), seqno: document.meta.seqno }
    }
}

/// Returns the datatype bits of a value with this attribute section and body.
fn datatype_of(xattrs: &[u8], body: &[u8]) -> u8 {
    let json = if json::is_json(body) { DATATYPE_JSON } else { 0 };
    let attributes = if xattrs.is_empty() { 0 } else { DATATYPE_XATTR };
    json | attributes
}

/// Returns the part of an attribute section that is kept in tombstones.
fn system_attributes(section: &[u8]) -> Vec<u8> {
    let Ok(mut attributes) = Xattrs::parse(section) else { return Vec::new() };
    attributes.retain_system();
    attributes.encode()
}

/// Parses the value of a counter: 1 to 20 decimal digits.
fn decimal(body: &[u8]) -> Option<u64> {
    let digits = body.iter().all(u8::is_ascii_digit) && !body.is_empty();
    if !digits {
        return None;
    }
    std::str::from_utf8(body).ok()?.parse().ok()
}
