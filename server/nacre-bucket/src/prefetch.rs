//! The steps by which memory is loaded into the processor's cache ahead of the requests that touch it.

/// What a step loads. Only what one step has loaded says where the next finds its memory.
#[derive(Clone, Copy)]
pub enum PrefetchStep {
    /// The vBucket.
    Vbucket,
    /// The slot of the hash table that says where the document is.
    Slot,
    /// The document.
    Document,
}

/// The steps, and the number of requests before its turn at which each is taken: long enough for memory to answer,
/// and short enough for the lines to stay in the cache.
pub(crate) const STEPS: [(PrefetchStep, usize); 3] =
    [(PrefetchStep::Vbucket, 5), (PrefetchStep::Slot, 3), (PrefetchStep::Document, 1)];

/// Returns the steps that are due when item `turn` of a list has its turn, and the item that each is for.
pub fn due(turn: usize) -> impl Iterator<Item = (PrefetchStep, usize)> {
    STEPS.into_iter().flat_map(move |(step, ahead)| {
        let first = if turn == 0 { 1 } else { turn + ahead };
        (first..=turn + ahead).map(move |number| (step, number))
    })
}
