//! Many ranges of an index, as of `IN` with a long list: read as one range, as long as that reads few entries more than are wanted.
//!
//! ```text
//! wanted    [1] [2] [4]       [90] … [99]       a search for each range costs as much as reading several entries
//! read      1 2 3 4 5 6 7 …                     3 is left out; once too many are, the ranges are asked for one by one
//! ```

use nacre_datastore::Span;

/// So many ranges are worth trying.
const RANGES_MIN: usize = 256;
/// Entries that may be read in vain before the first range, and for each range that is passed. A search for a range costs more.
const VAIN_FIRST: usize = 1024;
const VAIN_A_RANGE: usize = 8;
/// Entries that are read at once.
const BATCH: usize = 1024;

/// Ranges that are read as one.
pub(super) struct Wide {
    whole: [Span; 1],
    /// Entries that have been read.
    read: usize,
    /// Of these, entries that were wanted.
    kept: usize,
}

impl Wide {
    /// Ranges in order, if they are so many that it may be worth while.
    pub fn of(spans: &[Span], reverse: bool) -> Option<Wide> {
        let [first, .., last] = spans else { return None };
        let is_wide = spans.len() >= RANGES_MIN && !reverse;
        let whole = [Span { low: first.low.clone(), high: last.high.clone() }];
        is_wide.then_some(Wide { whole, read: 0, kept: 0 })
    }

    /// The one range.
    pub fn whole(&self) -> &[Span] {
        &self.whole
    }

    /// How many entries to ask for, where so many rows are wanted.
    pub fn batch(limit: usize) -> usize {
        limit.max(BATCH)
    }

    /// Leaves those entries that are in a range. The first `done` ranges are passed, which are counted on. Returns false if the ranges
    /// are to be asked for one by one from now on.
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
    fn entries_between_the_ranges_are_left_out() {
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
    fn ranges_far_apart_are_asked_for_one_by_one() {
        let spans = spans((0..300).map(|number| number * 200));
        let mut wide = Wide::of(&spans, false).unwrap();
        let (mut found, mut done) = (entries(0..1000), 0);
        assert!(wide.keep(&mut found, &spans, &mut done), "it may turn out well");
        let mut found = entries(1000..3000);
        assert!(!wide.keep(&mut found, &spans, &mut done));
        assert_eq!(found, entries((5..15).map(|number| number * 200)));
    }

    #[test]
    fn few_ranges_and_ranges_from_the_end_are_not_tried() {
        assert!(Wide::of(&spans(0..300), true).is_none());
        assert!(Wide::of(&spans(0..200), false).is_none());
        assert!(Wide::of(&[], false).is_none());
    }
}
