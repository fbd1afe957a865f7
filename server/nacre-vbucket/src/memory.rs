//! Eviction from memory, and the return of evicted documents.

use crate::command::Command;
use crate::vbucket::Vbucket;
use nacre_types::{Document, Now, VbState};

impl Vbucket {
    /// Returns true if `command` on `key` needs something that only the store has.
    pub(crate) fn is_out_of_memory_for(&self, key: &[u8], command: &Command<'_>) -> bool {
        if self.table.is_whole() {
            return false;
        }
        match self.table.entry(key) {
            None => self.table.may_be_evicted(key),
            Some(item) if item.is_resident() || self.table.find(key).is_none() => false,
            Some(stub) => {
                command.needs_value() || (stub.has_xattrs() && !matches!(command, Command::GetMeta))
            }
        }
    }

    /// Returns true if some keys are in the store only.
    pub fn has_evicted_keys(&self) -> bool {
        self.table.has_evicted_keys()
    }

    /// Counts the passes that took keys out of memory; see [`Vbucket::restore`].
    pub fn eviction_epoch(&self) -> u64 {
        self.table.epoch()
    }

    /// Takes in the stored version of `key` (`None` if the store has none), as read in that
    /// [epoch](Vbucket::eviction_epoch).
    ///
    /// Returns false if the version may be old because keys were evicted since: read it again.
    pub fn restore(&mut self, key: &[u8], stored: Option<Document>, epoch: u64) -> bool {
        self.table.restore(key, stored, epoch)
    }

    /// Evicts about `percent` of the bytes that may leave memory, the least read first. Returns the bytes freed.
    ///
    /// A document stays if it is not stored, is locked, or is about to be replaced by a durable write.
    pub fn evict(&mut self, percent: u8, now: Now) -> usize {
        let Vbucket { table, prepares, locks, persisted, .. } = self;
        table.evict(percent, |item| {
            item.meta.seqno <= *persisted
                && !prepares.contains(item.key())
                && locks.holder(item.key(), now).is_none()
        })
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
            self.tombstone(document, nacre_types::Kind::Deleted, now);
        }
        for document in &documents[count..] {
            document.set_hits(document.hits() / 2);
        }
        count
    }
}
