//! Reads many ranges of an index, such as those of `IN` with a long list, as one range, as long as few unwanted entries are read.
//!
//! ```text
//! wanted    [1] [2] [4]       [90] … [99]       a search for each range costs as much as reading several entries
//! read      1 2 3 4 5 6 7 …                     3 is dropped; after too many such entries, the ranges are requested one by one
//! ```

use nacre_datastore::Span;

/// Minimum number of ranges.
const RANGES_MIN: usize = 256;
/// Number of unwanted entries that may be read before the first range, and for each range that is passed. A search for a range
/// costs more.
const VAIN_FIRST: usize = 1024;
const VAIN_A_RANGE: usize = 8;
/// Number of entries read at a time.
const BATCH: usize = 1024;

/// Ranges that are read as one.
pub(super) struct Wide {
    whole: [Span; 1],
    /// Number of entries that have been read.
    read: usize,
    /// Number of wanted entries among them.
    kept: usize,
}

impl Wide {
    /// Creates the state for ranges in order, if there are enough of them.
    pub fn of(spans: &[Span], reverse: bool) -> Option<Wide> {
        let [first, .., last] = spans else { return None };
        let is_wide = spans.len() >= RANGES_MIN && !reverse;
        let whole = [Span { low: first.low.clone(), high: last.high.clone() }];
        is_wide.then_some(Wide { whole, read: 0, kept: 0 })
    }

    /// Returns the single range that covers all.
    pub fn whole(&self) -> &[Span] {
        &self.whole
    }

    /// Returns the number of entries to request if `limit` rows are wanted.
    pub fn batch(limit: usize) -> usize {
        limit.max(BATCH)
    }

    /// Removes entries that are in no range. `done` is the number of ranges that have been passed, and is updated. Returns false
    /// if the ranges must be requested one by one from now on.
    pub fn keep(&mut self, entries: &mut Vec<Vec<u8>>, spans: &[Span], done: &mut usize) -> bool {
        self.read += entries.len();
        entries.retain(|entry| {
            *done += spans[*done..].iter().take_while(|span| span.high <= *entry).count();
            spans.get(*done).is_some_and(|span| span.low <= *entry)
        });
        self.kept += entries.len();
        self.read - self.kept <= VAIN_FIRST + VAIN_A_RANGE * *done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(numbers: impl IntoIterator<Item = u16>) -> Vec<Span> {
        let span = |number: u16| Span {
            low: number.to_be_bytes().to_vec(),
            high: (number + 1).to_be_bytes().to_vec(),
        };
        numbers.into_iter().map(span).collect()
    }

    fn entries(numbers: impl IntoIterator<Item = u16>) -> Vec<Vec<u8>> {
        numbers.into_iter().map(|number| number.to_be_bytes().to_vec()).collect()
    }

    #[test]
    fn entries_between_the_ranges_are_skipped() {
        let spans = spans((0..1000).map(|number| number * 2));
        let mut wide = Wide::of(&spans, false).unwrap();
        let (mut found, mut done) = (entries(0..10), 0);
        assert!(wide.keep(&mut found, &spans, &mut done));
        assert_eq!((found, done), (entries([0, 2, 4, 6, 8]), 5));
        let mut found = entries([11, 11, 12, 1998, 1999]);
        assert!(wide.keep(&mut found, &spans, &mut done));
        assert_eq!((found, done), (entries([12, 1998]), 1000));
    }

    #[test]
    fn ranges_far_apart_are_requested_one_by_one() {
        let spans = spans((0..300).map(|number| number * 200));
        let mut wide = Wide::of(&spans, false).unwrap();
        let (mut found, mut done) = (entries(0..1000), 0);
        assert!(wide.keep(&mut found, &spans, &mut done), "it may turn out well");
        let mut found = entries(1000..3000);
        assert!(!wide.keep(&mut found, &spans, &mut done));
        assert_eq!(found, entries((5..15).map(|number| number * 200)));
    }

    #[test]
    fn few_ranges_and_reverse_ranges_are_not_merged() {
        assert!(Wide::of(&spans(0..300), true).is_none());
        assert!(Wide::of(&spans(0..200), false).is_none());
        assert!(Wide::of(&[], false).is_none());
    }
}
