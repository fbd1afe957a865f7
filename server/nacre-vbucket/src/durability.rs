//! Durable writes: prepared in history, invisible to readers, committed once enough copies have them.
//!
//! A prepare is a version in a namespace of its own ([`CollectionId::PREPARED`]), so that it can be stored and streamed
//! beside the committed version of the same key. Its commit is an ordinary version with a seqno of its own and the
//! prepare's CAS; the stored prepare is erased in the same batch. A prepare that a start finds in the store was
//! therefore never committed, and is committed then.
//!
//! The chain of copies is this one alone: it is the majority as soon as the level's conditions hold here.

use crate::command::{Command, Completion, Level, Refusal, Reply};
use crate::vbucket::Vbucket;
use nacre_types::{CollectionId, DocKey, Document, Kind, Meta, Now, Seqno};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How the write at hand is to be prepared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Staging {
    level: Level,
    /// Monotonic nanoseconds.
    deadline_ns: u64,
}

#[derive(Debug)]
struct Prepare {
    /// In the namespace of prepares.
    document: Arc<Document>,
    staging: Staging,
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

    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// The collection of each.
    pub fn collections(&self) -> impl Iterator<Item = CollectionId> {
        let ids = self.by_key.keys().filter_map(|key| nacre_types::leb128_decode(key));
        ids.map(|(id, _)| CollectionId(id))
    }

    fn insert(&mut self, document: Arc<Document>, staging: Staging) {
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
}

/// The key under which a write to `key` is prepared.
pub(crate) fn prepared_key(key: &[u8]) -> Vec<u8> {
    DocKey::new(CollectionId::PREPARED, key).prefixed().to_vec()
}

impl Vbucket {
    /// Carries out a write that counts only once it is durable: it takes a seqno, and readers go on seeing what was
    /// there before. The reply and the seqno are those of the prepare; [`Vbucket::complete`] tells how it ends.
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
    pub(crate) fn stage(
        &mut self,
        key: &[u8],
        mut document: Document,
        staging: Staging,
    ) -> Arc<Document> {
        document.meta.rev = self.table.find(key).map_or(document.meta.rev, |old| old.meta.rev + 1);
        let document = Arc::new(document);
        self.checkpoint.push(Arc::clone(&document));
        self.prepares.insert(Arc::clone(&document), staging);
        document
    }

    /// Takes in what the store has in the namespace of prepares.
    pub(crate) fn load_prepare(&mut self, document: Arc<Document>) {
        if document.meta.kind == Kind::Aborted {
            let seqno = document.meta.seqno;
            self.graveyard.erase_later(document.key(), seqno, seqno.next());
        } else {
            let staging = Staging { level: Level::PersistToMajority, deadline_ns: u64::MAX };
            self.prepares.insert(document, staging);
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

    /// Durable writes that are neither committed nor given up.
    pub fn prepare_count(&self) -> usize {
        self.prepares.by_seqno.len()
    }

    /// Commits, in order, the durable writes that have come far enough, and gives up those whose time is over. Each
    /// is a mutation.
    pub fn complete(&mut self, now: Now) -> Vec<Completion> {
        let mut completions = Vec::new();
        if self.read_only {
            return completions;
        }
        while let Some((&seqno, prepare)) = self.prepares.by_seqno.first_key_value() {
            let satisfied = prepare.staging.level == Level::Majority || self.persisted >= seqno;
            if !satisfied {
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

    fn commit_prepare(&mut self, seqno: Seqno) -> Option<Completion> {
        let Prepare { document, .. } = self.prepares.remove(seqno)?;
        let meta = Meta { seqno: self.high_seqno().next(), ..document.meta };
        let committed = self.publish(Document::new(meta, document.name(), document.value()), true);
        self.graveyard.erase_later(document.key(), seqno, committed.meta.seqno);
        Some(Completion { prepare: seqno, commit: Some(self.token(&committed)) })
    }

    pub(crate) fn abort_prepare(&mut self, seqno: Seqno) -> Option<Completion> {
        let Prepare { document, .. } = self.prepares.remove(seqno)?;
        let aborted = self.high_seqno().next();
        let meta = Meta { seqno: aborted, kind: Kind::Aborted, datatype: 0, ..document.meta };
        self.checkpoint.push(Arc::new(Document::new(meta, document.key(), b"")));
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
