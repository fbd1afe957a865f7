//! Durable writes: prepared in history, invisible to readers, and committed once enough copies have them.
//!
//! A prepare is a version in a reserved namespace ([`CollectionId::PREPARED`]), so that it can be stored and streamed
//! next to the committed version of the same key. Its commit is an ordinary version with the next seqno and the
//! prepare's CAS. The same batch erases the stored prepare, or the prepare is never stored if both are in one batch. A
//! prepare that is found in the store at a start was therefore never seen committed here, and is then committed.
//!
//! A write is committed once a majority of the [`Copies`], including the active one, has it as its level demands. A
//! copy that is alone is its own majority. Replicas acknowledge their progress ([`Vbucket::acknowledge`]); the module
//! `replica` shows which prepares delay an acknowledgement.
//!
//! A prepare that existed before this copy became active may have been committed, and seen, elsewhere. It is never
//! given up, and its key is hidden until the prepare is committed here too.
//!
//! Source: the durability rules of Couchbase's synchronous replication.

use crate::command::{Command, Completion, Level, Refusal, Reply};
use crate::vbucket::Vbucket;
use nacre_types::{
    CollectionId, DATATYPE_LEVEL_SHIFT, DocKey, Document, Kind, Meta, NodeId, Now, Seqno, VbState,
};
use std::collections::BTreeMap;

/// The parameters for preparing the current write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Staging {
    level: Level,
    /// Time limit in monotonic nanoseconds; the maximum for a prepare of an earlier term.
    deadline_ns: u64,
}

impl Staging {
    /// Returns the staging of a prepare that was made in an earlier term, or by another copy.
    pub fn inherited(level: Level) -> Staging {
        Staging { level, deadline_ns: u64::MAX }
    }
}

impl Level {
    /// Returns the level of a prepare in history.
    pub fn of_prepare(document: &Document) -> Level {
        match document.meta.datatype >> DATATYPE_LEVEL_SHIFT {
            1 => Level::Majority,
            2 => Level::MajorityAndPersistToActive,
            // The strictest level, for prepares from before levels were stored.
            _ => Level::PersistToMajority,
        }
    }

    /// Adds the level to the datatype, for the stored form of prepares. Clients see only `datatype`.
    pub fn mark(self, datatype: u8) -> u8 {
        datatype | (self as u8) << DATATYPE_LEVEL_SHIFT
    }

    /// Returns the datatype without the level.
    pub fn unmark(datatype: u8) -> u8 {
        datatype & ((1 << DATATYPE_LEVEL_SHIFT) - 1)
    }
}

/// The copies of a vBucket, and the progress of each.
#[derive(Clone, Debug, Default)]
pub struct Copies {
    /// The nodes of the copies, with holes: one list, or two while the vBucket moves. An empty vector means that this
    /// copy is alone.
    chains: Vec<Vec<Option<NodeId>>>,
    /// The node of this copy.
    me: NodeId,
    /// The high seqno at the last change of the chains.
    since: Seqno,
    /// Acknowledgements of replicas in the current term. Nodes outside the chains are included, because a chain that
    /// names them may arrive soon.
    acknowledged: BTreeMap<NodeId, Seqno>,
    /// The last prepare that was committed because the active copy, this one, had stored it.
    stored_here: Seqno,
}

/// Destination of a moving active copy.
#[derive(Clone, Copy, Debug)]
pub struct Move<'a> {
    /// The nodes of the new copies, the active one first, with holes.
    pub next: &'a [Option<NodeId>],
    /// Durable writes that are acknowledged after this seqno are durable in `next` too.
    pub from: Seqno,
    /// Up to this seqno the active copy has acknowledged writes that only it had to store. Its successor must have
    /// stored them too.
    pub stored: Seqno,
}

impl Copies {
    /// Returns true if a majority of each list has `seqno`, given that this copy has it.
    fn have(&self, seqno: Seqno) -> bool {
        let has = |node: &NodeId| {
            *node == self.me || self.acknowledged.get(node).is_some_and(|known| *known >= seqno)
        };
        let is_majority = |chain: &Vec<Option<NodeId>>| {
            chain.iter().flatten().filter(|node| has(node)).count() > chain.len() / 2
        };
        self.chains.iter().all(is_majority)
    }

    /// Returns true if a copy has acknowledged a seqno above `seqno`.
    fn claim_more_than(&self, seqno: Seqno) -> bool {
        self.acknowledged.values().any(|known| *known > seqno)
    }

    /// Returns true if there are enough copies for a durable write.
    fn are_enough(&self) -> bool {
        self.chains.iter().all(|chain| chain.iter().flatten().count() > chain.len() / 2)
    }

    /// Returns true if this is the last copy.
    fn is_last(&self) -> bool {
        self.chains.iter().flatten().flatten().all(|node| *node == self.me)
    }
}

#[derive(Debug)]
struct Prepare {
    /// The version in the namespace of prepares.
    document: Document,
    staging: Staging,
}

impl Prepare {
    /// Returns true if the write may have been committed elsewhere and acknowledged.
    fn is_inherited(&self) -> bool {
        self.staging.deadline_ns == u64::MAX
    }
}

/// The prepared writes of a vBucket; at most one per key.
#[derive(Debug, Default)]
pub(crate) struct Prepares {
    by_seqno: BTreeMap<Seqno, Prepare>,
    by_key: BTreeMap<Box<[u8]>, Seqno>,
    memory_bytes: usize,
}

impl Prepares {
    pub fn contains(&self, key: &[u8]) -> bool {
        !self.by_key.is_empty() && self.by_key.contains_key(key)
    }

    /// Returns true if `key` may have a newer value than the one committed here.
    pub fn hides(&self, key: &[u8]) -> bool {
        if self.by_key.is_empty() {
            return false;
        }
        let prepare = self.by_key.get(key).and_then(|seqno| self.by_seqno.get(seqno));
        prepare.is_some_and(Prepare::is_inherited)
    }

    /// Returns all prepares by seqno.
    pub fn documents(&self) -> impl Iterator<Item = &Document> {
        self.by_seqno.values().map(|prepare| &prepare.document)
    }

    /// Returns the seqno of the prepare of `key`.
    pub fn seqno_of(&self, key: &[u8]) -> Option<Seqno> {
        self.by_key.get(key).copied()
    }

    /// Returns the first prepare after `after` that must be stored by a majority.
    pub fn first_fence(&self, after: Seqno) -> Option<Seqno> {
        let later = self.by_seqno.range(after.next()..);
        let mut fences =
            later.filter(|(_, prepare)| prepare.staging.level == Level::PersistToMajority);
        fences.next().map(|(seqno, _)| *seqno)
    }

    /// Marks all prepares as inherited: their outcome may be decided elsewhere from now on.
    pub fn inherit(&mut self) {
        self.by_seqno.values_mut().for_each(|prepare| prepare.staging.deadline_ns = u64::MAX);
    }

    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// Returns the collection of each prepare.
    pub fn collections(&self) -> impl Iterator<Item = CollectionId> {
        let ids = self.by_key.keys().filter_map(|key| nacre_types::leb128_decode(key));
        ids.map(|(id, _)| CollectionId(id))
    }

    pub fn insert(&mut self, document: Document, staging: Staging) {
        self.memory_bytes += document.memory_bytes();
        self.by_key.insert(document.name().into(), document.meta.seqno);
        self.by_seqno.insert(document.meta.seqno, Prepare { document, staging });
    }

    fn remove(&mut self, seqno: Seqno) -> Option<Prepare> {
        let prepare = self.by_seqno.remove(&seqno)?;
        self.memory_bytes -= prepare.document.memory_bytes();
        self.by_key.remove(prepare.document.name());
        Some(prepare)
    }

    /// Removes a prepare. Returns its key in history.
    pub fn end(&mut self, seqno: Seqno) -> Option<Box<[u8]>> {
        self.remove(seqno).map(|prepare| prepare.document.key().into())
    }

    /// Removes the prepare of `key`. Returns its seqno.
    pub fn remove_key(&mut self, key: &[u8]) -> Option<Seqno> {
        let seqno = self.seqno_of(key)?;
        self.remove(seqno).map(|_| seqno)
    }
}

/// Returns the key under which a write to `key` is prepared.
pub(crate) fn prepared_key(key: &[u8]) -> Vec<u8> {
    DocKey::new(CollectionId::PREPARED, key).prefixed().to_vec()
}

impl Vbucket {
    /// Prepares a write that is committed only once it is durable. The write takes a seqno, but readers still see the
    /// previous version. The reply and the seqno are those of the prepare; [`Vbucket::complete`] returns the outcome.
    ///
    /// # Errors
    /// The [`Refusal`]s of [`Vbucket::apply`].
    pub fn prepare(
        &mut self,
        key: &[u8],
        command: &Command<'_>,
        level: Level,
        deadline_ns: u64,
        now: Now,
    ) -> (Result<Reply, Refusal>, Option<Seqno>) {
        self.staging = Some(Staging { level, deadline_ns });
        let outcome = self.apply(key, command, now);
        self.staging = None;
        outcome
    }

    /// Adds a prepare to history.
    pub(crate) fn stage(&mut self, key: &[u8], document: Document, staging: Staging) -> Document {
        let document = document.with_meta(|meta| {
            meta.rev = self.table.find(key).map_or(meta.rev, |old| old.meta.rev + 1);
            meta.datatype = staging.level.mark(meta.datatype);
        });
        self.checkpoint.push(document.clone());
        self.prepares.insert(document.clone(), staging);
        document
    }

    /// Loads a stored document of the namespace of prepares.
    pub(crate) fn load_prepare(&mut self, document: Document) {
        if document.meta.kind == Kind::Aborted {
            let seqno = document.meta.seqno;
            self.graveyard.erase_later(document.key(), seqno, seqno.next());
        } else {
            let level = Level::of_prepare(&document);
            self.prepares.insert(document, Staging::inherited(level));
        }
    }

    /// Returns the keys with a prepare whose committed version is only in the store. After a start they must be
    /// [restored](Vbucket::restore) before [`Vbucket::complete`] replaces them.
    pub fn prepared_out_of_memory(&self) -> Vec<Box<[u8]>> {
        let keys = self.prepares.by_key.keys();
        keys.filter(|key| self.table.entry(key).is_none() && self.table.may_be_evicted(key))
            .cloned()
            .collect()
    }

    /// Returns true if the vBucket is held for a hand-over while durable writes that may still end here are in
    /// progress.
    pub fn is_busy(&self, now: Now) -> bool {
        let is_held = self.state == VbState::Pending && self.makes_history();
        is_held && self.prepare_count() > 0 && now.monotonic_ns < self.completes_until_ns
    }

    /// Returns the number of durable writes that are neither committed nor given up.
    pub fn prepare_count(&self) -> usize {
        self.prepares.by_seqno.len()
    }

    /// Commits the durable writes that enough copies have, in order, and gives up those whose time limit has passed.
    /// Each is a mutation.
    ///
    /// A vBucket that is held for a hand-over still does both, so that clients learn the outcome of their writes. If no
    /// other copy is left, inherited writes do not wait for a majority, because no other copy can know their outcome.
    pub fn complete(&mut self, now: Now) -> Vec<Completion> {
        let mut completions = Vec::new();
        if self.read_only || !self.makes_history() {
            return completions;
        }
        debug_assert!(
            !self.copies.claim_more_than(self.high_seqno()),
            "a copy is taken to have what this one does not have"
        );
        if now.monotonic_ns >= self.completes_until_ns {
            // The next active copy decides about the remaining writes.
            self.completes_until_ns = 0;
            let own = self.prepares.by_seqno.iter().filter(|(_, prepare)| !prepare.is_inherited());
            completions.extend(own.map(|(seqno, _)| Completion { prepare: *seqno, commit: None }));
            self.prepares.inherit();
            return completions;
        }
        while let Some((&seqno, prepare)) = self.prepares.by_seqno.first_key_value() {
            let here = prepare.staging.level == Level::Majority || self.persisted >= seqno;
            let is_left = prepare.is_inherited() && self.copies.is_last();
            if !here || !self.copies.have(seqno) && !is_left {
                break;
            }
            completions.extend(self.commit_prepare(seqno));
        }
        let overdue = |prepare: &Prepare| prepare.staging.deadline_ns <= now.monotonic_ns;
        let given_up: Vec<Seqno> = self
            .prepares
            .by_seqno
            .iter()
            .filter(|(_, prepare)| overdue(prepare))
            .map(|(seqno, _)| *seqno)
            .collect();
        completions.extend(given_up.into_iter().filter_map(|seqno| self.abort_prepare(seqno)));
        completions
    }

    /// Sets the nodes of the copies; this copy is on node `me`. `chains` has one list, or two while the vBucket moves.
    pub fn set_copies(&mut self, chains: Vec<Vec<Option<NodeId>>>, me: NodeId) {
        if self.copies.chains != chains {
            self.copies.since = self.high_seqno();
        }
        self.copies.chains = chains;
        self.copies.me = me;
    }

    /// Returns the destination of this copy if it is active and moving.
    pub fn moves_to(&self) -> Option<Move<'_>> {
        let next = self.copies.chains.get(1).filter(|_| self.makes_history())?;
        // Writes may have been given up since `stored_here` was set; the successor need not store those.
        let stored = self.copies.stored_here.min(self.high_seqno());
        Some(Move { next, from: self.copies.since, stored })
    }

    /// Returns true if there are enough copies for durable writes.
    pub fn can_be_durable(&self) -> bool {
        self.copies.are_enough()
    }

    /// Returns true if this copy alone is a majority.
    pub fn is_its_own_majority(&self) -> bool {
        self.copies.have(Seqno(u64::MAX))
    }

    /// Records that the copy on `node` has everything up to `seqno`, as the levels of the prepares demand.
    /// [`Vbucket::complete`] uses this.
    pub fn acknowledge(&mut self, node: NodeId, seqno: Seqno) {
        let known = self.copies.acknowledged.entry(node).or_default();
        *known = seqno.min(self.checkpoint.high_seqno()).max(*known);
    }

    /// Forgets the acknowledgements of the copy on `node`, which starts again empty.
    pub fn forget_acknowledged(&mut self, node: NodeId) {
        self.copies.acknowledged.remove(&node);
    }

    /// Forgets all acknowledgements at the beginning of a term. The replicas acknowledge again: old acknowledgements
    /// may concern a discarded branch of history.
    pub(crate) fn forget_all_acknowledged(&mut self) {
        self.copies.acknowledged.clear();
    }

    fn commit_prepare(&mut self, seqno: Seqno) -> Option<Completion> {
        let Prepare { document, staging } = self.prepares.remove(seqno)?;
        if staging.level == Level::MajorityAndPersistToActive {
            self.copies.stored_here = seqno;
        }
        let datatype = Level::unmark(document.meta.datatype);
        let meta = Meta { seqno: self.high_seqno().next(), datatype, ..document.meta };
        let committed = self.publish(Document::new(meta, document.name(), document.value()), true);
        self.graveyard.erase_later(document.key(), seqno, committed.meta.seqno);
        Some(Completion { prepare: seqno, commit: Some(self.token(&committed)) })
    }

    pub(crate) fn abort_prepare(&mut self, seqno: Seqno) -> Option<Completion> {
        let Prepare { document, .. } = self.prepares.remove(seqno)?;
        let aborted = self.high_seqno().next();
        let meta = Meta { seqno: aborted, kind: Kind::Aborted, datatype: 0, ..document.meta };
        self.checkpoint.push(Document::new(meta, document.key(), b""));
        self.graveyard.erase_later(document.key(), seqno, aborted);
        self.graveyard.erase_later(document.key(), aborted, aborted.next());
        Some(Completion { prepare: seqno, commit: None })
    }

    /// Gives up the durable writes of a dropped collection.
    pub(crate) fn abort_prepares_of(&mut self, collection: CollectionId) -> Vec<Completion> {
        let of_it = |prepare: &Prepare| {
            nacre_types::leb128_decode(prepare.document.name())
                .is_some_and(|(id, _)| id == collection.0)
        };
        let seqnos: Vec<Seqno> = self
            .prepares
            .by_seqno
            .iter()
            .filter(|(_, prepare)| of_it(prepare))
            .map(|(seqno, _)| *seqno)
            .collect();
        seqnos.into_iter().filter_map(|seqno| self.abort_prepare(seqno)).collect()
    }
}
