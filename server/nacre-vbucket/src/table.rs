//! The hash table of a vBucket: the newest version of each key, its memory, and its residency.

use crate::command::Command;
use crate::evicted::EvictedKeys;
use crate::prefetch::prefetch;
use crate::slots::{Place, Slots};
use foldhash::SharedSeed;
use foldhash::fast::SeedableRandomState;
use nacre_types::{CollectionId, Document, Kind, Meta, Seqno};
use std::hash::BuildHasher;

/// The part of a document that is evicted first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Eviction {
    /// Nothing, because there is no store to read it back from.
    #[default]
    Nothing,
    /// Values. Keys and metadata stay in memory, so a miss needs no read of the store.
    Values,
    /// Values, metadata and keys.
    Items,
}

/// Statistics of one collection in one vBucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollectionCounts {
    /// Existing documents, in memory or not.
    pub documents: u64,
    /// Memory of their newest versions, tombstones included, in bytes.
    pub memory_bytes: u64,
    /// The seqno of the collection's last mutation.
    pub high_seqno: Seqno,
}

#[derive(Debug)]
pub(crate) struct Table {
    items: Slots,
    hasher: SeedableRandomState,
    pub eviction: Eviction,
    evicted: EvictedKeys,
    /// Counts the passes that evicted keys, so that a reader of the store detects a pass in between.
    epoch: u64,
    counts: Vec<(CollectionId, CollectionCounts)>,
    memory_bytes: usize,
    stubs: u64,
    /// No document expires before this second.
    next_expiry: u32,
    /// State of a simple random generator, which thins out the counting of hits.
    chance: u64,
}

impl Table {
    /// Creates an empty table. `seed` makes the order unpredictable to clients.
    pub fn new(seed: u64) -> Table {
        Table {
            items: Slots::default(),
            hasher: SeedableRandomState::with_seed(seed, SharedSeed::global_fixed()),
            eviction: Eviction::Nothing,
            evicted: EvictedKeys::new(seed),
            epoch: 0,
            counts: Vec::new(),
            memory_bytes: 0,
            stubs: 0,
            next_expiry: u32::MAX,
            chance: seed | 1,
        }
    }

    fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash_one(key)
    }

    /// Returns the entry of `key` in memory: a version, a stub, or the marker that the store has no version.
    pub fn entry(&self, key: &[u8]) -> Option<&Document> {
        self.items.find(self.hash(key), key)
    }

    /// Prefetches the lines that contain the address of the document at `key`.
    pub fn prefetch(&self, key: &[u8]) {
        self.items.prefetch(self.hash(key));
        prefetch(self.counts());
    }

    /// Returns the probable entry of `key` without reading it.
    pub fn guess(&self, key: &[u8]) -> Option<&Document> {
        self.items.guess(self.hash(key))
    }

    /// Returns the newest version of `key` or its stub; it may be a tombstone.
    pub fn find(&self, key: &[u8]) -> Option<&Document> {
        self.entry(key).filter(|item| !is_absence(item))
    }

    /// Returns true if only the store can determine whether `key` exists.
    pub fn may_be_evicted(&self, key: &[u8]) -> bool {
        self.evicted.may_contain(key)
    }

    /// Returns true if everything is in memory.
    pub fn is_whole(&self) -> bool {
        self.stubs == 0 && self.evicted.is_empty()
    }

    /// Returns true if `command` on `key` needs data that is only in the store.
    pub fn lacks(&self, key: &[u8], command: &Command<'_>) -> bool {
        if self.is_whole() {
            return false;
        }
        match self.entry(key) {
            None => self.may_be_evicted(key),
            Some(item) if item.is_resident() || is_absence(item) => false,
            Some(stub) => {
                command.needs_value() || (stub.has_xattrs() && !matches!(command, Command::GetMeta))
            }
        }
    }

    /// Returns true if any key was evicted with its metadata.
    pub fn has_evicted_keys(&self) -> bool {
        !self.evicted.is_empty()
    }

    /// Iterates over all versions and stubs, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &Document> {
        self.items.iter().filter(|item| !is_absence(item))
    }

    /// Counts a read of `document`. The counter grows randomly and ever more slowly, so that 8 bits cover about ten
    /// thousand reads.
    pub fn hit(&mut self, document: &Document) {
        let hits = document.hits();
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        if hits < u8::MAX && self.chance.is_multiple_of(u64::from(hits) + 1) {
            document.set_hits(hits + 1);
        }
    }

    /// Inserts a new version. Unless `keep_rev` is set, its revision continues from the version that it replaces.
    pub fn replace(&mut self, mut document: Document, keep_rev: bool) -> Document {
        let hash = self.hash(document.key());
        let old = match self.items.place(hash, document.key(), hash_with(&self.hasher)) {
            Place::Taken(at) => {
                let old = self.items.at_mut(at);
                if !keep_rev {
                    document = document.with_meta(|meta| meta.rev = old.meta.rev + 1);
                }
                document.set_hits(old.hits().max(Document::HITS_NEW));
                Some(std::mem::replace(old, document.clone()))
            }
            Place::Free(at) => {
                self.items.fill(at, hash, document.clone());
                None
            }
        };
        self.weigh(&document, true);
        if let Some(old) = old {
            self.weigh(&old, false);
        }
        document
    }

    /// Inserts a version unchanged.
    pub fn insert(&mut self, document: Document) {
        self.weigh(&document, true);
        let hash = self.hash(document.key());
        match self.items.place(hash, document.key(), hash_with(&self.hasher)) {
            Place::Taken(at) => {
                let old = std::mem::replace(self.items.at_mut(at), document);
                self.weigh(&old, false);
            }
            Place::Free(at) => self.items.fill(at, hash, document),
        }
    }

    /// Removes a key permanently.
    pub fn remove(&mut self, key: &[u8]) {
        let hash = self.hash(key);
        if let Some(old) = self.items.remove(hash, key, hash_with(&self.hasher)) {
            self.weigh(&old, false);
        }
    }

    fn weigh(&mut self, document: &Document, add: bool) {
        let bytes = document.memory_bytes();
        let stub = u64::from(!document.is_resident());
        let counts = counts_of(&mut self.counts, document.collection());
        let alive = u64::from(document.is_alive());
        if add {
            if document.is_alive() && document.meta.expiry != 0 {
                self.next_expiry = self.next_expiry.min(document.meta.expiry);
            }
            self.memory_bytes += bytes;
            self.stubs += stub;
            counts.documents += alive;
            counts.memory_bytes += bytes as u64;
            counts.high_seqno = counts.high_seqno.max(document.meta.seqno);
        } else {
            self.memory_bytes -= bytes;
            self.stubs -= stub;
            counts.documents -= alive;
            counts.memory_bytes -= bytes as u64;
        }
    }

    /// Restores the stored version of `key`, as read in `epoch`. Returns false if keys were evicted since then: the
    /// version may be outdated and must be read again.
    pub fn restore(&mut self, key: &[u8], stored: Option<Document>, epoch: u64) -> bool {
        let Some(entry) = self.entry(key) else {
            if epoch != self.epoch {
                return false;
            }
            let document = stored.unwrap_or_else(|| absence(key));
            // The counts still include evicted documents, so the document must not be counted twice.
            let counts = counts_of(&mut self.counts, document.collection());
            counts.documents = counts.documents.saturating_sub(u64::from(document.is_alive()));
            self.insert(document);
            return true;
        };
        // A version that was written meanwhile is newer than the stored one. The metadata in memory take precedence:
        // those of a document that was locked differ from the stored ones.
        if let Some(stored) = stored
            && !entry.is_resident()
            && entry.meta.seqno == stored.meta.seqno
        {
            let stored = stored.with_meta(|meta| *meta = entry.meta);
            // It is about to be read, so it must not be the first to be evicted again.
            stored.set_hits(entry.hits().max(Document::HITS_NEW));
            self.insert(stored);
        }
        true
    }

    /// Inserts a stored version that does not fit into memory: its stub, or with [`Eviction::Items`] only the trace
    /// of its key.
    pub fn insert_evicted(&mut self, document: &Document) {
        match self.eviction {
            Eviction::Nothing => self.insert(document.clone()),
            Eviction::Values => self.insert(document.stub()),
            Eviction::Items => {
                self.evicted.add(document.key());
                let counts = counts_of(&mut self.counts, document.collection());
                counts.documents += u64::from(document.is_alive());
                counts.high_seqno = counts.high_seqno.max(document.meta.seqno);
            }
        }
    }

    /// Evicts about `percent` of the evictable bytes, least read first, and halves the hits of the rest. Returns the
    /// number of freed bytes.
    pub fn evict(&mut self, percent: u8, may_go: impl Fn(&Document) -> bool) -> usize {
        let whole = match self.eviction {
            Eviction::Nothing => return 0,
            Eviction::Values => false,
            Eviction::Items => true,
        };
        let gain = |item: &Document| {
            let value = if item.is_resident() { item.value().len() } else { 0 };
            if whole { item.memory_bytes() } else { value }
        };
        let mut by_hits = [0usize; 256];
        for item in self.items.iter().filter(|item| may_go(item)) {
            by_hits[usize::from(item.hits())] += gain(item);
        }
        let wanted = by_hits.iter().sum::<usize>() / 100 * usize::from(percent.min(100));
        let mut below = 0;
        let coldest = by_hits.iter().position(|bytes| {
            below += bytes;
            below >= wanted
        });
        let limit = coldest.map_or(u8::MAX, |hits| hits as u8);
        let mut freed = 0;
        let mut gone = Vec::new();
        for item in self.items.iter_mut() {
            let bytes = gain(item);
            if bytes == 0 || freed >= wanted || item.hits() > limit || !may_go(item) {
                item.set_hits(item.hits() / 2);
                continue;
            }
            freed += bytes;
            if whole {
                gone.push(item.clone());
            } else {
                let stub = item.stub();
                stub.set_hits(item.hits() / 2);
                self.memory_bytes -= bytes;
                self.stubs += 1;
                counts_of(&mut self.counts, item.collection()).memory_bytes -= bytes as u64;
                *item = stub;
            }
        }
        for item in &gone {
            self.remove(item.key());
            if !is_absence(item) {
                self.evicted.add(item.key());
                counts_of(&mut self.counts, item.collection()).documents +=
                    u64::from(item.is_alive());
            }
        }
        self.epoch += u64::from(!gone.is_empty());
        freed
    }

    /// Returns documents that expire at or before `unix_s`. Searches the table only if one may exist.
    pub fn expired(&mut self, unix_s: u32) -> Vec<Document> {
        if self.next_expiry > unix_s {
            return Vec::new();
        }
        self.next_expiry = u32::MAX;
        let mut expired = Vec::new();
        for item in self.items.iter().filter(|item| item.is_alive() && item.meta.expiry != 0) {
            if item.meta.expiry <= unix_s {
                expired.push(item.clone());
            } else {
                self.next_expiry = self.next_expiry.min(item.meta.expiry);
            }
        }
        expired
    }

    /// Schedules another search at `unix_s`, for documents of [`Table::expired`] that were not removed.
    pub fn look_again_at(&mut self, unix_s: u32) {
        self.next_expiry = self.next_expiry.min(unix_s);
    }

    /// Returns the eviction epoch, see [`Table::restore`].
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the memory of all versions and stubs, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// Returns the number of keys in the table.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Returns the number of keys in the table whose value is only in the store.
    pub fn stubs(&self) -> u64 {
        self.stubs
    }

    /// Returns the counts of the collections that have or had documents here, including reserved ones.
    pub fn counts(&self) -> &[(CollectionId, CollectionCounts)] {
        &self.counts
    }

    /// Drops the counts of a permanently removed collection.
    pub fn forget_counts(&mut self, collection: CollectionId) {
        self.counts.retain(|(known, _)| *known != collection);
    }
}

fn hash_with(hasher: &SeedableRandomState) -> impl Fn(&Document) -> u64 {
    |document| hasher.hash_one(document.key())
}

/// Returns the marker that the store has no version of `key`.
fn absence(key: &[u8]) -> Document {
    let meta = Meta { kind: Kind::Deleted, ..Meta::default() };
    Document::new(meta, key, b"").stub()
}

/// Returns true for the marker: no version has seqno 0.
fn is_absence(document: &Document) -> bool {
    document.meta.seqno == Seqno::ZERO
}

fn counts_of(
    counts: &mut Vec<(CollectionId, CollectionCounts)>,
    collection: CollectionId,
) -> &mut CollectionCounts {
    let index = counts.iter().position(|(known, _)| *known == collection).unwrap_or_else(|| {
        counts.push((collection, CollectionCounts::default()));
        counts.len() - 1
    });
    &mut counts[index].1
}
