//! Numbers from a seed.

/// A generator that returns the same numbers for the same seed on every machine (SplitMix64).
#[derive(Clone, Debug, Default)]
pub struct Chance(u64);

impl Chance {
    /// Returns a generator that begins at `seed`.
    pub fn new(seed: u64) -> Chance {
        Chance(seed)
    }

    /// Returns any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound
    }

    /// Returns a number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// Returns true once in `of` times on average; never for 0.
    pub fn once_in(&mut self, of: u64) -> bool {
        of > 0 && self.below(of) == 0
    }

    /// Returns an element of `of`, which is not empty.
    pub fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}
