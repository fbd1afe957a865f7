//! Sets of vBuckets.

use crate::Vbid;
use serde::{Deserialize, Serialize};

/// A set of vBuckets of a bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vbids(Vec<u64>);

impl Vbids {
    /// Returns the set of the first `count` vBuckets.
    pub fn first(count: u16) -> Vbids {
        let (words, bits) = (usize::from(count / 64), count % 64);
        let rest = (bits > 0).then(|| (1 << bits) - 1);
        Vbids(std::iter::repeat_n(u64::MAX, words).chain(rest).collect())
    }

    /// Adds a vBucket.
    pub fn insert(&mut self, vbid: Vbid) {
        let word = vbid.index() / 64;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (vbid.index() % 64);
    }

    /// Adds all vBuckets of another set.
    pub fn add_all(&mut self, others: &Vbids) {
        if self.0.len() < others.0.len() {
            self.0.resize(others.0.len(), 0);
        }
        self.0.iter_mut().zip(&others.0).for_each(|(word, other)| *word |= other);
    }

    /// Removes all vBuckets of another set.
    pub fn remove_all(&mut self, others: &Vbids) {
        self.0.iter_mut().zip(&others.0).for_each(|(word, other)| *word &= !other);
        // Trailing zeros are dropped, so that equal sets compare as equal.
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }

    /// Returns true if the set contains the vBucket.
    pub fn contains(&self, vbid: Vbid) -> bool {
        self.0.get(vbid.index() / 64).is_some_and(|word| word >> (vbid.index() % 64) & 1 == 1)
    }

    /// Returns true if the set contains all vBuckets of another set.
    pub fn holds(&self, others: &Vbids) -> bool {
        let rest = others.0.iter().enumerate();
        rest.into_iter().all(|(at, word)| word & !self.0.get(at).unwrap_or(&0) == 0)
    }

    /// Returns true if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// Iterates over the vBuckets in order. A set from another node may contain vBuckets that do
    /// not exist.
    pub fn iter(&self) -> impl Iterator<Item = Vbid> + '_ {
        let words = self.0.iter().take(usize::from(u16::MAX) / 64).enumerate();
        words.flat_map(|(index, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                let bit = (rest != 0).then(|| rest.trailing_zeros())?;
                rest &= rest - 1;
                Some(Vbid((index * 64) as u16 + bit as u16))
            })
        })
    }
}

impl FromIterator<Vbid> for Vbids {
    fn from_iter<I: IntoIterator<Item = Vbid>>(vbids: I) -> Vbids {
        let mut set = Vbids::default();
        vbids.into_iter().for_each(|vbid| set.insert(vbid));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_contains_what_was_inserted_and_not_removed() {
        let mut set: Vbids = [Vbid(3), Vbid(1023), Vbid(64), Vbid(3)].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [Vbid(3), Vbid(64), Vbid(1023)]);
        assert!(set.contains(Vbid(64)) && !set.contains(Vbid(65)) && !set.contains(Vbid(2000)));
        assert!(Vbids::first(1024).holds(&set) && !set.holds(&Vbids::first(4)));
        set.remove_all(&Vbids::first(65));
        assert_eq!(set.iter().collect::<Vec<_>>(), [Vbid(1023)]);
        assert!(!set.is_empty());
        set.add_all(&[Vbid(5), Vbid(2000)].into_iter().collect());
        assert_eq!(set.iter().collect::<Vec<_>>(), [Vbid(5), Vbid(1023), Vbid(2000)]);
        set.remove_all(&Vbids::first(2001));
        assert!(set.is_empty() && set == Vbids::default());
        for count in [0, 4, 64, 1000, 1024] {
            assert_eq!(Vbids::first(count), (0..count).map(Vbid).collect(), "{count}");
        }
    }
}
