//! Random numbers from a seed. The generator is SplitMix64: a counter whose bits are mixed.

/// A source of numbers.
pub struct Random(u64);

impl Random {
    /// Returns the source for a part of the data.
    pub fn new(seed: u64, part: &str) -> Random {
        let mixed = part.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Random(mixed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from `low` to `high`.
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        let width = (high - low + 1).unsigned_abs();
        low + (self.next() % width) as i64
    }

    /// Returns `low` to `high` letters.
    pub fn letters(&mut self, low: i64, high: i64) -> String {
        let count = self.between(low, high);
        (0..count).map(|_| char::from(b'a' + (self.next() % 26) as u8)).collect()
    }

    /// Returns `count` digits.
    pub fn digits(&mut self, count: usize) -> String {
        (0..count).map(|_| char::from(b'0' + (self.next() % 10) as u8)).collect()
    }

    /// Returns the numbers from 1 to `count` in random order.
    pub fn permutation(&mut self, count: i64) -> Vec<i64> {
        let mut numbers: Vec<i64> = (1..=count).collect();
        for at in (1..numbers.len()).rev() {
            numbers.swap(at, (self.next() % (at as u64 + 1)) as usize);
        }
        numbers
    }

    /// Returns a number in the non-uniform distribution of TPC-C.
    pub fn uneven(&mut self, mask: i64, low: i64, high: i64) -> i64 {
        const SHIFT: i64 = 123;
        let mixed = (self.between(0, mask) | self.between(low, high)) + SHIFT;
        mixed % (high - low + 1) + low
    }
}
