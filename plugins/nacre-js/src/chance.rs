//! Chance that is the same when a call is made again.

/// Numbers that nobody is to be surprised by, but that spread load. Source: SplitMix64, Steele, Lea and Flood, 2014.
#[derive(Clone, Copy, Debug, Default)]
pub struct Chance(u64);

impl Chance {
    /// Begins where `seed` says: the same seed gives the same numbers.
    pub fn new(seed: u64) -> Chance {
        Chance(seed)
    }

    /// The next number, from 0 up to 1.
    pub fn next_number(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}
