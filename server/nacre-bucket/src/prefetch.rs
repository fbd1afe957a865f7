//! Prefetching in steps: memory is loaded into the processor's cache ahead of the requests that touch it.

/// The object that a step loads. Each step needs the previous one to find its memory.
#[derive(Clone, Copy)]
pub enum PrefetchStep {
    /// The vBucket.
    Vbucket,
    /// The slot of the hash table that locates the document.
    Slot,
    /// The document.
    Document,
}

/// The steps, and how many requests before its turn each is taken: early enough for memory to respond, and late enough
/// for the lines to stay in the cache.
pub(crate) const STEPS: [(PrefetchStep, usize); 3] =
    [(PrefetchStep::Vbucket, 5), (PrefetchStep::Slot, 3), (PrefetchStep::Document, 1)];

/// Returns the steps that are due at the turn of item `turn` of a list, and the item that each is for.
pub fn due(turn: usize) -> impl Iterator<Item = (PrefetchStep, usize)> {
    STEPS.into_iter().flat_map(move |(step, ahead)| {
        let first = if turn == 0 { 1 } else { turn + ahead };
        (first..=turn + ahead).map(move |number| (step, number))
    })
}
