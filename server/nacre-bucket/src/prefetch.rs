//! Steps by which memory is fetched ahead of the requests that touch it.

/// What is fetched from memory, in this order: where the next is, only the one before knows.
#[derive(Clone, Copy)]
pub enum PrefetchStep {
    /// The vBucket.
    Vbucket,
    /// What says where the document is.
    Slot,
    /// The document.
    Document,
}

/// The steps, and how many requests before its turn each is taken: long enough for memory, and no longer than what was fetched
/// stays.
pub(crate) const STEPS: [(PrefetchStep, usize); 3] =
    [(PrefetchStep::Vbucket, 5), (PrefetchStep::Slot, 3), (PrefetchStep::Document, 1)];

/// The steps that are due when item `turn` has its turn, and for which item each: the same for what can be reached by number.
pub fn due(turn: usize) -> impl Iterator<Item = (PrefetchStep, usize)> {
    STEPS.into_iter().flat_map(move |(step, ahead)| {
        let first = if turn == 0 { 1 } else { turn + ahead };
        (first..=turn + ahead).map(move |number| (step, number))
    })
}
