//! Documents that end without a client's request (expired documents, discarded documents, old tombstones, dropped
//! collections), and versions that the store must erase.

use crate::command::Completion;
use crate::vbucket::Vbucket;
use nacre_types::{CollectionId, Document, Kind, Now, Seqno, VbState};
use std::collections::BTreeMap;

/// A stored version to erase: its key and seqno.
type Grave = (Box<[u8]>, Seqno);

/// Stored versions that must be erased without a tombstone, and a summary of the erased ones.
#[derive(Debug, Default)]
pub(crate) struct Graveyard {
    /// By the seqno that must be stored no later than the erasure, so that a crash cannot bring the version back.
    graves: BTreeMap<Seqno, Vec<Grave>>,
    purge_seqno: Seqno,
    purged_rev: u64,
}

impl Graveyard {
    /// Creates an empty graveyard from the purges in the vBucket's record.
    pub fn starting_at(purge_seqno: Seqno, purged_rev: u64) -> Graveyard {
        Graveyard { graves: BTreeMap::new(), purge_seqno, purged_rev }
    }

    /// Schedules the erasure of the version `seqno` of `key` once `after`, which must be greater than `seqno`, is
    /// stored.
    pub fn erase_later(&mut self, key: &[u8], seqno: Seqno, after: Seqno) {
        debug_assert!(after > seqno);
        self.graves.entry(after).or_default().push((key.into(), seqno));
    }

    /// Returns the greatest revision of an erased tombstone. A key that is written again continues from it, so that it
    /// wins against the deleted version.
    pub fn purged_rev(&self) -> u64 {
        self.purged_rev
    }
}

impl Vbucket {
    /// Turns expired documents into tombstones.
    ///
    /// Returns their number, and the keys of those whose attributes must be [restored](Vbucket::restore) first.
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

    /// Deletes about `percent` of the documents, least read first, to make room in a bucket without a store. Returns
    /// their number.
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

    /// Erases tombstones from before `unix_s`, including those of scopes and collections. Returns their number.
    ///
    /// The version with the highest seqno is kept.
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

    /// Erases a tombstone that is only in the store, unless it is the newest version of the vBucket.
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

    /// Erases the version `seqno` of `key` in memory and in the store. A later version is kept.
    pub fn erase(&mut self, key: &[u8], seqno: Seqno) {
        if self.find(key).is_some_and(|item| item.meta.seqno == seqno) {
            self.table.remove(key);
        }
        let after = self.high_seqno().max(seqno.next());
        self.graveyard.erase_later(key, seqno, after);
    }

    /// Erases the documents of a dropped collection that are in memory, and gives up its durable writes.
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

    /// Returns true if some versions can be erased now.
    pub fn has_graves(&self) -> bool {
        let high = self.high_seqno();
        self.graveyard.graves.first_key_value().is_some_and(|(after, _)| *after <= high)
    }

    /// Returns the versions to erase together with a commit of history up to `position`.
    pub fn take_graves(&mut self, position: Seqno) -> Vec<(Box<[u8]>, Seqno)> {
        let first = self.graveyard.graves.first_key_value();
        if first.is_none_or(|(after, _)| *after > position) {
            return Vec::new();
        }
        let later = self.graveyard.graves.split_off(&position.next());
        std::mem::replace(&mut self.graveyard.graves, later).into_values().flatten().collect()
    }

    /// Returns the greatest revision of an erased tombstone.
    pub fn purged_rev(&self) -> u64 {
        self.graveyard.purged_rev
    }

    /// Returns the greatest seqno of an erased tombstone. A consumer that stopped below it may have missed a deletion.
    pub fn purge_seqno(&self) -> Seqno {
        self.graveyard.purge_seqno
    }
}
