//! The traces of keys that were evicted with their metadata: a growing Bloom filter.

use foldhash::SharedSeed;
use foldhash::fast::SeedableRandomState;
use std::hash::BuildHasher;

/// Capacity of the first filter in keys; each further filter has twice the capacity.
const KEYS_MIN: u64 = 512;
/// Bits per key: about 1 in 100 keys that were never evicted appears as evicted.
const BITS_PER_KEY: u64 = 10;
/// Number of bits that a key sets.
const PROBES: u64 = 5;

/// Answers "was this key evicted?" with "no" or "maybe". A wrong "maybe" costs a read of the store.
///
/// A key remains in the filter when it is restored: the table is checked first, and the key will be
/// evicted again.
#[derive(Debug)]
pub(crate) struct EvictedKeys {
    hasher: SeedableRandomState,
    filters: Vec<Filter>,
}

#[derive(Debug)]
struct Filter {
    words: Box<[u64]>,
    room: u64,
}

impl Filter {
    /// Returns the positions of a key's bits, computed by stepping with two halves of one hash.
    fn bits(&self, hash: u64) -> impl Iterator<Item = (usize, u64)> + use<> {
        let length = self.words.len() as u64 * 64;
        let step = hash >> 32 | 1;
        (0..PROBES).map(move |probe| {
            let bit = hash.wrapping_add(step.wrapping_mul(probe)) % length;
            ((bit / 64) as usize, 1 << (bit % 64))
        })
    }

    fn contains(&self, hash: u64) -> bool {
        self.bits(hash).all(|(word, bit)| self.words[word] & bit != 0)
    }
}

impl EvictedKeys {
    /// Creates an empty filter.
    pub fn new(seed: u64) -> EvictedKeys {
        let hasher = SeedableRandomState::with_seed(!seed, SharedSeed::global_fixed());
        EvictedKeys { hasher, filters: Vec::new() }
    }

    /// Adds a key.
    pub fn add(&mut self, key: &[u8]) {
        let hash = self.hasher.hash_one(key);
        if self.filters.iter().any(|filter| filter.contains(hash)) {
            return;
        }
        if self.filters.last().is_none_or(|filter| filter.room == 0) {
            let room = KEYS_MIN << self.filters.len();
            let words = vec![0; (room * BITS_PER_KEY).div_ceil(64) as usize].into();
            self.filters.push(Filter { words, room });
        }
        if let Some(filter) = self.filters.last_mut() {
            filter.room -= 1;
            for (word, bit) in filter.bits(hash) {
                filter.words[word] |= bit;
            }
        }
    }

    /// Returns true if no key was ever added.
    pub fn is_empty(&self) -> bool {
        self.filters.is_empty()
    }

    /// Returns false only if the key was never added.
    pub fn may_contain(&self, key: &[u8]) -> bool {
        if self.filters.is_empty() {
            return false;
        }
        let hash = self.hasher.hash_one(key);
        self.filters.iter().any(|filter| filter.contains(hash))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_has_no_false_negatives_and_few_false_positives() {
        let mut keys = EvictedKeys::new(7);
        assert!(!keys.may_contain(b"a"));
        for n in 0..20_000u32 {
            keys.add(&n.to_be_bytes());
        }
        assert!((0..20_000u32).all(|n| keys.may_contain(&n.to_be_bytes())));
        let suspected = (20_000..40_000u32).filter(|n| keys.may_contain(&n.to_be_bytes())).count();
        assert!(suspected < 2_000, "{suspected} of 20,000");
    }
}
