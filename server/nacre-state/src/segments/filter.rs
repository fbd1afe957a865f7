//! A Bloom filter over the keys of one block (Bloom, "Space/time trade-offs in hash coding with allowable errors", 1970).

use xxhash_rust::xxh3::xxh3_64;

/// Bits per key: a false-positive rate of about one percent.
const BITS_PER_KEY: usize = 10;
/// Number of bits that a key sets.
const PROBES: u64 = 6;

/// A filter under construction.
#[derive(Default)]
pub struct Filter {
    hashes: Vec<u64>,
}

impl Filter {
    /// Adds a key.
    pub fn add(&mut self, key: &[u8]) {
        self.hashes.push(xxh3_64(key));
    }

    /// Returns the filter in its stored form, and empties the builder.
    pub fn take(&mut self) -> Vec<u8> {
        let mut bits = vec![0; (self.hashes.len() * BITS_PER_KEY).div_ceil(8)];
        for hash in self.hashes.drain(..) {
            for bit in probes(hash, bits.len() * 8) {
                bits[bit / 8] |= 1 << (bit % 8);
            }
        }
        bits
    }

    /// Returns false if `key` was certainly not added to the filter with the stored form `bits`.
    pub fn may_have(bits: &[u8], key: &[u8]) -> bool {
        // An empty filter excludes no key.
        bits.is_empty()
            || probes(xxh3_64(key), bits.len() * 8).all(|bit| bits[bit / 8] & (1 << (bit % 8)) != 0)
    }
}

/// Double hashing (Kirsch and Mitzenmacher, "Less hashing, same performance", 2006).
fn probes(hash: u64, count: usize) -> impl Iterator<Item = usize> {
    let step = (hash >> 32) | 1;
    (0..PROBES)
        .map(move |probe| (hash.wrapping_add(probe.wrapping_mul(step)) % count as u64) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_contains_all_added_keys_and_few_others() {
        let mut filter = Filter::default();
        let key = |number: u32| number.to_be_bytes();
        (0..1000).for_each(|number| filter.add(&key(number)));
        let bits = filter.take();
        assert!((0..1000).all(|number| Filter::may_have(&bits, &key(number))));
        let wrong = (1000..11_000).filter(|number| Filter::may_have(&bits, &key(*number))).count();
        assert!(wrong < 200, "{wrong} of 10,000");
    }
}
