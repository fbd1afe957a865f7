//! Durable writes: prepared in history, invisible to readers, committed once enough copies have them.
//!
//! A prepare is a version in a reserved namespace ([`CollectionId::PREPARED`]), so that it can be stored and streamed
//! next to the committed version of the same key. Its commit is an ordinary version with the next seqno and the
//! prepare's CAS; the stored prepare is erased in the same batch, or never stored if both come in one batch. A prepare
//! that a start finds in the store was therefore never seen committed here, and is committed then.
//!
//! A write counts once a majority of the [`Copies`] has it as its level demands, the active one among them. A copy that
//! is alone is its own majority. Replicas acknowledge how far they are ([`Vbucket::acknowledge`]); `replica` shows
//! which prepares hold them up.
//!
//! A prepare that was there before this copy became the active one may have been committed, and seen, elsewhere. It is
//! never given up, and its key is hidden until it is committed here too.
//!
//! Source: the durability rules of Couchbase's synchronous replication.

use crate::command::{Command, Completion, Level, Refusal, Reply};
use crate::vbucket::Vbucket;
use nacre_types::{
    CollectionId, DATATYPE_LEVEL_SHIFT, DocKey, Document, Kind, Meta, NodeId, Now, Seqno, VbState,
};
use std::collections::BTreeMap;

/// How to prepare the current write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Staging {
    level: Level,
    /// Monotonic nanoseconds; the greatest number for one of an earlier term.
    deadline_ns: u64,
}

impl Staging {
    /// Returns the staging of a prepare that was made in an earlier term, or by another copy.
    pub fn inherited(level: Level) -> Staging {
        Staging { level, deadline_ns: u64::MAX }
    }
}

impl Level {
    /// The level that a prepare in history asks for.
    pub fn of_prepare(document: &Document) -> Level {
        match document.meta.datatype >> DATATYPE_LEVEL_SHIFT {
            1 => Level::Majority,
            2 => Level::MajorityAndPersistToActive,
            // The strictest, for prepares of before levels were kept.
            _ => Level::PersistToMajority,
        }
    }

    /// Adds the level to the datatype, as prepares are stored. Clients see only `datatype`.
    pub fn mark(self, datatype: u8) -> u8 {
        datatype | (self as u8) << DATATYPE_LEVEL_SHIFT
    }

    /// The datatype without a level.
    pub fn unmark(datatype: u8) -> u8 {
        datatype & ((1 << DATATYPE_LEVEL_SHIFT) - 1)
    }
}

/// The copies of a vBucket, and how far each has come.
#[derive(Clone, Debug, Default)]
pub struct Copies {
    /// Where copies are, holes included: one list, or two while the vBucket moves. No list: this copy is alone.
    chains: Vec<Vec<Option<NodeId>>>,
    /// The node of this copy.
    me: NodeId,
    /// The end of history at the time when the chains changed last.
    since: Seqno,
    /// Acknowledgements of replicas in the present term. Nodes outside the chains are included: a chain that names them
    /// may be on its way.
    acknowledged: BTreeMap<NodeId, Seqno>,
    /// The last prepare that counts because this copy, as the active one, has stored it.
    stored_here: Seqno,
}

/// Destination of an active copy that moves.
#[derive(Clone, Copy, Debug)]
pub struct Move<'a> {
    /// The nodes of the new copies, the active one first, holes included.
    pub next: &'a [Option<NodeId>],
    /// Writes that are acknowledged as durable after this seqno are durable in `next` too.
    pub from: Seqno,
    /// Up to this seqno the active copy has acknowledged writes that only it had to store. Its successor must have
    /// stored them as well.
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

    /// Returns true if a copy has acknowledged more than `seqno`.
    fn claim_more_than(&self, seqno: Seqno) -> bool {
        self.acknowledged.values().any(|known| *known > seqno)
    }

    /// Returns true if there are enough copies for a durable write.
    fn are_enough(&self) -> bool {
        self.chains.iter().all(|chain| chain.iter().flatten().count() > chain.len() / 2)
    }

    /// Returns true if no other copy is left.
    fn is_last(&self) -> bool {
        self.chains.iter().flatten().flatten().all(|node| *node == self.me)
    }
}

#[derive(Debug)]
struct Prepare {
    /// In the namespace of prepares.
    document: Document,
    staging: Staging,
}

impl Prepare {
    /// Returns true if the write may have been committed elsewhere, and acknowledged.
    fn is_inherited(&self) -> bool {
        self.staging.deadline_ns == u64::MAX
    }
}

/// The prepared writes of a vBucket, of which no two have the same key.
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

    /// Returns true if `key` may have a newer value than the one that is committed here.
    pub fn hides(&self, key: &[u8]) -> bool {
        if self.by_key.is_empty() {
            return false;
        }
        let prepare = self.by_key.get(key).and_then(|seqno| self.by_seqno.get(seqno));
        prepare.is_some_and(Prepare::is_inherited)
    }

    /// All of them, by seqno.
    pub fn documents(&self) -> impl Iterator<Item = &Document> {
        self.by_seqno.values().map(|prepare| &prepare.document)
    }

    /// The seqno of the prepare of `key`.
    pub fn seqno_of(&self, key: &[u8]) -> Option<Seqno> {
        self.by_key.get(key).copied()
    }

    /// The first prepare after `after` that wants a majority to have stored it.
    pub fn first_fence(&self, after: Seqno) -> Option<Seqno> {
        let later = self.by_seqno.range(after.next()..);
        let mut fences =
            later.filter(|(_, prepare)| prepare.staging.level == Level::PersistToMajority);
        fences.next().map(|(seqno, _)| *seqno)
    }

    /// Marks all prepares as inherited: from now on their outcome may be decided elsewhere.
    pub fn inherit(&mut self) {
        self.by_seqno.values_mut().for_each(|prepare| prepare.staging.deadline_ns = u64::MAX);
    }

    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// The collection of each.
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

    /// Removes a prepare. Returns the key under which it is in history.
    pub fn end(&mut self, seqno: Seqno) -> Option<Box<[u8]>> {
        self.remove(seqno).map(|prepare| prepare.document.key().into())
    }

    /// Removes the prepare of `key`. Returns its seqno.
    pub fn remove_key(&mut self, key: &[u8]) -> Option<Seqno> {
        let seqno = self.seqno_of(key)?;
        self.remove(seqno).map(|_| seqno)
    }
}

/// The key under which a write to `key` is prepared.
pub(crate) fn prepared_key(key: &[u8]) -> Vec<u8> {
    DocKey::new(CollectionId::PREPARED, key).prefixed().to_vec()
}

impl Vbucket {
    /// Carries out a write that counts only once it is durable. The write takes a seqno, and readers still see the
    /// version before it. The reply and the seqno are those of the prepare; [`Vbucket::complete`] returns how it ends.
    ///
    /// # Errors
    /// [`Refusal`] as from [`Vbucket::apply`].
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

    /// Puts a prepare into history.
    pub(crate) fn stage(&mut self, key: &[u8], document: Document, staging: Staging) -> Document {
        let document = document.with_meta(|meta| {
            meta.rev = self.table.find(key).map_or(meta.rev, |old| old.meta.rev + 1);
            meta.datatype = staging.level.mark(meta.datatype);
        });
        self.checkpoint.push(document.clone());
        self.prepares.insert(document.clone(), staging);
        document
    }

    /// Takes in a document that the store has in the namespace of prepares.
    pub(crate) fn load_prepare(&mut self, document: Document) {
        if document.meta.kind == Kind::Aborted {
            let seqno = document.meta.seqno;
            self.graveyard.erase_later(document.key(), seqno, seqno.next());
        } else {
            let level = Level::of_prepare(&document);
            self.prepares.insert(document, Staging::inherited(level));
        }
    }

    /// Keys with a prepare whose committed version is only in the store: to be [restored](Vbucket::restore) after a start,
    /// before [`Vbucket::complete`] replaces them.
    pub fn prepared_out_of_memory(&self) -> Vec<Box<[u8]>> {
        let keys = self.prepares.by_key.keys();
        keys.filter(|key| self.table.entry(key).is_none() && self.table.may_be_evicted(key))
            .cloned()
            .collect()
    }

    /// Returns true if the vBucket is held for a hand-over while durable writes that may still end here are under way.
    pub fn is_busy(&self, now: Now) -> bool {
        let is_held = self.state == VbState::Pending && self.makes_history();
        is_held && self.prepare_count() > 0 && now.monotonic_ns < self.completes_until_ns
    }

    /// Durable writes that are neither committed nor given up.
    pub fn prepare_count(&self) -> usize {
        self.prepares.by_seqno.len()
    }

    /// Commits the durable writes that enough copies have, in order, and gives up those whose time is over. Each is a
    /// mutation.
    ///
    /// A vBucket that is held for a hand-over still does both, so that clients learn how their writes ended. If no
    /// other copy is left, inherited writes do not wait for a majority: no other copy can know how they ended.
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
            // The next active copy decides about the rest.
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

    /// Says where the copies are, this one on node `me`: `chains` has one list, or two while the vBucket moves.
    pub fn set_copies(&mut self, chains: Vec<Vec<Option<NodeId>>>, me: NodeId) {
        if self.copies.chains != chains {
            self.copies.since = self.high_seqno();
        }
        self.copies.chains = chains;
        self.copies.me = me;
    }

    /// Returns the destination of this copy, if it is active and moves.
    pub fn moves_to(&self) -> Option<Move<'_>> {
        let next = self.copies.chains.get(1).filter(|_| self.makes_history())?;
        // Writes may have been given up since `stored_here` was set: the successor need not store those.
        let stored = self.copies.stored_here.min(self.high_seqno());
        Some(Move { next, from: self.copies.since, stored })
    }

    /// Returns true if there are enough copies for a durable write.
    pub fn can_be_durable(&self) -> bool {
        self.copies.are_enough()
    }

    /// Returns true if this copy alone is a majority.
    pub fn is_its_own_majority(&self) -> bool {
        self.copies.have(Seqno(u64::MAX))
    }

    /// The copy on `node` has everything up to `seqno`, as the prepares in it demand. [`Vbucket::complete`] makes use of
    /// that.
    pub fn acknowledge(&mut self, node: NodeId, seqno: Seqno) {
        let known = self.copies.acknowledged.entry(node).or_default();
        *known = seqno.min(self.checkpoint.high_seqno()).max(*known);
    }

    /// Forgets the acknowledgements of the copy on `node`, which starts again from nothing.
    pub fn forget_acknowledged(&mut self, node: NodeId) {
        self.copies.acknowledged.remove(&node);
    }

    /// Forgets all acknowledgements at the beginning of a term. The replicas acknowledge again: their old
    /// acknowledgements may concern a branch of history that was given up.
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

    /// Gives up the durable writes of a collection that is gone.
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
