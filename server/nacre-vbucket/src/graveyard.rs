//! Documents that end by themselves (expired documents, those that make room, old tombstones, dropped collections) and versions
//! that the store must forget.

use crate::command::Completion;
use crate::vbucket::Vbucket;
use nacre_types::{CollectionId, Document, Kind, Now, Seqno, VbState};
use std::collections::BTreeMap;

/// A stored version to forget, once history has come to a seqno.
type Grave = (Box<[u8]>, Seqno);

/// Stored versions that must be erased without a trace, and a summary of those that were erased.
#[derive(Debug, Default)]
pub(crate) struct Graveyard {
    /// By the seqno that must be stored with or before the erasure, so that no crash brings the version back.
    graves: BTreeMap<Seqno, Vec<Grave>>,
    purge_seqno: Seqno,
    purged_rev: u64,
}

impl Graveyard {
    /// Creates a graveyard with nothing to erase, from the purges that the vBucket's record names.
    pub fn starting_at(purge_seqno: Seqno, purged_rev: u64) -> Graveyard {
        Graveyard { graves: BTreeMap::new(), purge_seqno, purged_rev }
    }

    /// Has the version `seqno` of `key` erased once `after` is stored, which is never below `seqno`.
    pub fn erase_later(&mut self, key: &[u8], seqno: Seqno, after: Seqno) {
        debug_assert!(after > seqno);
        self.graves.entry(after).or_default().push((key.into(), seqno));
    }

    /// The greatest revision of an erased tombstone. A key that comes back counts on from it, so that it wins against
    /// the deleted version.
    pub fn purged_rev(&self) -> u64 {
        self.purged_rev
    }
}

impl Vbucket {
    /// Turns documents whose expiry has passed into tombstones.
    ///
    /// Returns how many, and the keys of those whose attributes must be [restored](Vbucket::restore) first.
    pub fn expire(&mut self, now: Now) -> (usize, Vec<Box<[u8]>>) {
        let mut incomplete = Vec::new();
        if self.read_only || self.state != VbState::Active {
            return (0, incomplete);
        }
        let mut buried = 0;
        for document in self.table.expired(now.unix_s()) {
            if self.prepares.contains(document.key()) {
                self.table.look_again_at(document.meta.expiry);
            } else if !document.is_resident() && document.has_xattrs() {
                self.table.look_again_at(document.meta.expiry);
                incomplete.push(document.key().into());
            } else {
                self.tombstone(&document, Kind::Expired, now);
                buried += 1;
            }
        }
        (buried, incomplete)
    }

    /// Deletes about `percent` of the documents, the least read first: how a bucket without a store makes room. Returns
    /// how many.
    pub fn discard(&mut self, percent: u8, now: Now) -> usize {
        if self.read_only || self.state != VbState::Active {
            return 0;
        }
        let mut documents: Vec<_> = self
            .documents()
            .filter(|item| item.is_alive() && !self.prepares.contains(item.key()))
            .filter(|item| self.locks.holder(item.key(), now).is_none())
            .cloned()
            .collect();
        documents.sort_unstable_by_key(|item| (item.hits(), item.meta.seqno));
        let count = (documents.len() * usize::from(percent.min(100))).div_ceil(100);
        for document in &documents[..count] {
            self.tombstone(document, Kind::Deleted, now);
        }
        for document in &documents[count..] {
            document.set_hits(document.hits() / 2);
        }
        count
    }

    /// Forgets tombstones of before `unix_s`, those of scopes and collections among them. Returns how many.
    ///
    /// The version with the highest seqno stays.
    pub fn purge(&mut self, unix_s: u32) -> usize {
        let (high, persisted) = (self.high_seqno(), self.persisted);
        let old: Vec<_> = self
            .table
            .iter()
            .filter(|item| !item.is_alive() && item.meta.expiry < unix_s)
            .filter(|item| item.meta.seqno < high && item.meta.seqno <= persisted)
            .cloned()
            .collect();
        old.iter().for_each(|tombstone| self.forget(tombstone));
        old.len()
    }

    /// Forgets a tombstone that only the store has, unless it is the newest version of all.
    pub fn purge_stored(&mut self, tombstone: &Document) {
        let older = tombstone.meta.seqno < self.high_seqno();
        if older && self.find(tombstone.key()).is_none() {
            self.forget(tombstone);
        }
    }

    fn forget(&mut self, tombstone: &Document) {
        let meta = tombstone.meta;
        self.graveyard.purge_seqno = self.graveyard.purge_seqno.max(meta.seqno);
        self.graveyard.purged_rev = self.graveyard.purged_rev.max(meta.rev);
        self.erase(tombstone.key(), meta.seqno);
    }

    /// Forgets the version `seqno` of `key`, in memory and in the store. A later version stays.
    pub fn erase(&mut self, key: &[u8], seqno: Seqno) {
        if self.find(key).is_some_and(|item| item.meta.seqno == seqno) {
            self.table.remove(key);
        }
        let after = self.high_seqno().max(seqno.next());
        self.graveyard.erase_later(key, seqno, after);
    }

    /// Forgets the documents of a dropped collection that are in memory, and gives up its durable writes.
    pub fn erase_collection(&mut self, collection: CollectionId) -> Vec<Completion> {
        if self.read_only {
            return Vec::new();
        }
        let completions = match self.state {
            VbState::Active => self.abort_prepares_of(collection),
            _ => Vec::new(),
        };
        let of_it: Vec<_> =
            self.documents().filter(|item| item.collection() == collection).cloned().collect();
        for document in of_it {
            self.erase(document.key(), document.meta.seqno);
        }
        self.table.forget_counts(collection);
        completions
    }

    /// Returns true if versions wait to be erased and may be erased by now.
    pub fn has_graves(&self) -> bool {
        let high = self.high_seqno();
        self.graveyard.graves.first_key_value().is_some_and(|(after, _)| *after <= high)
    }

    /// The versions to erase together with a commit of history up to `position`.
    pub fn take_graves(&mut self, position: Seqno) -> Vec<(Box<[u8]>, Seqno)> {
        let first = self.graveyard.graves.first_key_value();
        if first.is_none_or(|(after, _)| *after > position) {
            return Vec::new();
        }
        let later = self.graveyard.graves.split_off(&position.next());
        std::mem::replace(&mut self.graveyard.graves, later).into_values().flatten().collect()
    }

    /// The greatest revision of a tombstone that was forgotten.
    pub fn purged_rev(&self) -> u64 {
        self.graveyard.purged_rev
    }

    /// The greatest seqno of a tombstone that was forgotten: a consumer that stopped below it may have missed one.
    pub fn purge_seqno(&self) -> Seqno {
        self.graveyard.purge_seqno
    }
}
