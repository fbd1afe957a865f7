//! Input of a consumer that keeps derived state: documents of many vBuckets, and the positions after them.

use nacre_types::{Document, Seqno, VbUuid, Vbid};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A consumer's position in the history of one vBucket: all that it must keep to resume without loss or repetition.
///
/// Invariant: `snapshot_start <= seqno <= snapshot_end`. The default is "before everything".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResumePoint {
    /// The branch of history that `seqno` counts in; 0 when nothing was consumed yet.
    pub vb_uuid: VbUuid,
    /// The last seqno consumed.
    pub seqno: Seqno,
    /// First seqno of the snapshot that contains `seqno`.
    pub snapshot_start: Seqno,
    /// Last seqno of the snapshot that contains `seqno`. The consumer is consistent only when `seqno` reaches it.
    pub snapshot_end: Seqno,
}

/// Versions by vBucket and seqno of those that took their place.
pub type Previous = BTreeMap<(Vbid, Seqno), Document>;

/// Documents in history order (ascending seqno within each vBucket), and the resume points they lead to.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Mutations, deletions and expirations, each with its vBucket.
    pub documents: Vec<(Vbid, Document)>,
    /// The versions that the documents replaced, by position in `documents`: for consumers that want them, as far as
    /// they are kept.
    pub previous: Previous,
    /// For each vBucket that moved: the consumer's position after all of `documents`.
    pub progress: BTreeMap<Vbid, ResumePoint>,
}
