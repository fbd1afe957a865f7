//! A hash table of documents with predictable addresses: the cache lines of a key's slot follow from its hash alone, so
//! they can be [prefetched](Slots::prefetch).
//!
//! A document is in the first free slot at or after its home, which its hash determines. The tags of the slots, one
//! byte of the hash each, are contiguous, so that a search reads one line of tags and, for nearly all keys, one slot.
//!
//! ```text
//! home of a key       v
//! tags      0   0    93   a1   93   0         0: a free slot
//! slots     -   -    a    b    c    -         c has the same home as a, and was inserted last
//! ```

use crate::prefetch::prefetch;
use nacre_types::Document;

/// Slots of the smallest table.
const SLOTS_MIN: usize = 16;
/// The table doubles when more than this many of four slots would be taken.
const TAKEN_OF_FOUR_MAX: usize = 3;
/// Number of slots from a key's home that are prefetched; nearly all documents are within this distance.
const REACH: usize = 8;
/// The tag of a free slot.
const FREE: u8 = 0;

/// The table. It contains one document per key, and the number of slots is a power of two.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    tags: Box<[u8]>,
    slots: Box<[Option<Document>]>,
    taken: usize,
}

/// The slot of a key, or the slot where it would be put.
pub(crate) enum Place {
    Taken(usize),
    Free(usize),
}

fn tag(hash: u64) -> u8 {
    (hash >> 56) as u8 | 0x80
}

impl Slots {
    /// Returns the number of documents.
    pub fn len(&self) -> usize {
        self.taken
    }

    fn home(&self, hash: u64) -> usize {
        hash as usize & (self.tags.len() - 1)
    }

    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.tags.len() - 1)
    }

    /// Returns the first slot from the home of `hash` that has the tag of `hash` and a document for which `is_it`
    /// returns true, or that is free. One exists, because the table is never full.
    fn search(&self, hash: u64, is_it: impl Fn(&Document) -> bool) -> Place {
        let (wanted, mut at) = (tag(hash), self.home(hash));
        loop {
            match self.tags[at] {
                FREE => return Place::Free(at),
                tag if tag == wanted && self.slots[at].as_ref().is_some_and(&is_it) => {
                    return Place::Taken(at);
                }
                _ => at = self.after(at),
            }
        }
    }

    fn find_if(&self, hash: u64, is_it: impl Fn(&Document) -> bool) -> Option<&Document> {
        if self.taken == 0 {
            return None;
        }
        match self.search(hash, is_it) {
            Place::Taken(at) => self.slots[at].as_ref(),
            Place::Free(_) => None,
        }
    }

    /// Returns the document of `key`, whose hash is `hash`.
    pub fn find(&self, hash: u64, key: &[u8]) -> Option<&Document> {
        self.find_if(hash, |document| document.key() == key)
    }

    /// Returns the document that probably belongs to the key with this hash, without reading the document.
    pub fn guess(&self, hash: u64) -> Option<&Document> {
        self.find_if(hash, |_| true)
    }

    /// Prefetches the lines that [`Slots::guess`] will read.
    pub fn prefetch(&self, hash: u64) {
        if !self.tags.is_empty() {
            let near = self.home(hash)..(self.home(hash) + REACH).min(self.tags.len());
            prefetch(&self.tags[near.clone()]);
            prefetch(&self.slots[near]);
        }
    }

    /// Returns the slot where `key` is or would be put, after making room for one more document. `hash_of` returns the
    /// hashes of documents that move.
    pub fn place(&mut self, hash: u64, key: &[u8], hash_of: impl Fn(&Document) -> u64) -> Place {
        if (self.taken + 1) * 4 > self.tags.len() * TAKEN_OF_FOUR_MAX {
            self.grow(hash_of);
        }
        self.search(hash, |document| document.key() == key)
    }

    /// Returns the document at a [taken](Place::Taken) slot, for replacement by another version of the same key.
    pub fn at_mut(&mut self, at: usize) -> &mut Document {
        self.slots[at].as_mut().expect("a place that is taken has a document")
    }

    /// Puts a document into the [free](Place::Free) slot that was found for it.
    pub fn fill(&mut self, at: usize, hash: u64, document: Document) {
        self.tags[at] = tag(hash);
        self.slots[at] = Some(document);
        self.taken += 1;
    }

    /// Removes a key. Later entries move into the gap, because a search stops at a gap.
    pub fn remove(
        &mut self,
        hash: u64,
        key: &[u8],
        hash_of: impl Fn(&Document) -> u64,
    ) -> Option<Document> {
        if self.taken == 0 {
            return None;
        }
        let Place::Taken(mut gap) = self.search(hash, |document| document.key() == key) else {
            return None;
        };
        let removed = self.slots[gap].take();
        self.taken -= 1;
        let mut at = self.after(gap);
        while let Some(document) = &self.slots[at] {
            let mask = self.tags.len() - 1;
            let from_home = at.wrapping_sub(self.home(hash_of(document))) & mask;
            if from_home >= at.wrapping_sub(gap) & mask {
                self.slots[gap] = self.slots[at].take();
                self.tags[gap] = self.tags[at];
                gap = at;
            }
            at = self.after(at);
        }
        self.tags[gap] = FREE;
        removed
    }

    fn grow(&mut self, hash_of: impl Fn(&Document) -> u64) {
        let count = (self.tags.len() * 2).max(SLOTS_MIN);
        self.tags = vec![FREE; count].into_boxed_slice();
        let old = std::mem::replace(&mut self.slots, vec![None; count].into_boxed_slice());
        self.taken = 0;
        for document in old.into_iter().flatten() {
            let hash = hash_of(&document);
            let (Place::Free(at) | Place::Taken(at)) = self.search(hash, |_| false);
            self.fill(at, hash, document);
        }
    }

    /// Iterates over all documents, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &Document> {
        self.slots.iter().flatten()
    }

    /// Iterates over all documents. The caller may replace each by another version of its key.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Document> {
        self.slots.iter_mut().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::{Meta, Seqno};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn document(key: u8, seqno: u64) -> Document {
        Document::new(Meta { seqno: Seqno(seqno), ..Meta::default() }, &[0, key], b"")
    }

    /// Few homes and few tags, so that keys collide, also around the end of the table.
    fn hash(key: &[u8]) -> u64 {
        let key = u64::from(key[1]);
        (key % 5).wrapping_sub(3) | (key % 3) << 56
    }

    proptest! {
        #[test]
        fn lookups_equal_those_of_a_map(steps in prop::collection::vec((any::<bool>(), 0..40u8), 0..400)) {
            let (mut slots, mut model) = (Slots::default(), BTreeMap::new());
            let hash_of = |document: &Document| hash(document.key());
            for (seqno, (puts, key)) in steps.into_iter().enumerate() {
                let (seqno, name) = (seqno as u64, [0, key]);
                if puts {
                    match slots.place(hash(&name), &name, hash_of) {
                        Place::Taken(at) => *slots.at_mut(at) = document(key, seqno),
                        Place::Free(at) => slots.fill(at, hash(&name), document(key, seqno)),
                    }
                    model.insert(key, seqno);
                } else {
                    let removed = slots.remove(hash(&name), &name, hash_of);
                    prop_assert_eq!(removed.map(|old| old.meta.seqno.0), model.remove(&key));
                }
                prop_assert_eq!(slots.len(), model.len());
                for key in 0..40 {
                    let name = [0, key];
                    slots.prefetch(hash(&name));
                    let found = slots.find(hash(&name), &name).map(|found| found.meta.seqno.0);
                    prop_assert_eq!(found, model.get(&key).copied());
                    prop_assert!(found.is_none() || slots.guess(hash(&name)).is_some());
                }
            }
            let mut all: Vec<u64> = slots.iter().map(|found| found.meta.seqno.0).collect();
            let mut expected: Vec<u64> = model.into_values().collect();
            all.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(all, expected);
        }
    }
}
