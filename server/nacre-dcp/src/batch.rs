//! Input of a consumer that keeps derived state: documents of many vBuckets, and the resulting positions.

use nacre_types::{Document, Seqno, VbUuid, Vbid};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A consumer's position in the history of one vBucket: everything that the consumer must store to resume without loss
/// or repetition.
///
/// Invariant: `snapshot_start <= seqno <= snapshot_end`. The default is "before everything".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResumePoint {
    /// The branch of history of `seqno`; 0 when nothing was consumed yet.
    pub vb_uuid: VbUuid,
    /// The last seqno consumed.
    pub seqno: Seqno,
    /// First seqno of the snapshot that contains `seqno`.
    pub snapshot_start: Seqno,
    /// Last seqno of the snapshot that contains `seqno`. The consumer is consistent only when `seqno` reaches it.
    pub snapshot_end: Seqno,
}

/// Superseded versions, keyed by the vBucket and seqno of the version that superseded each.
pub type Previous = BTreeMap<(Vbid, Seqno), Document>;

/// Documents in history order (ascending seqno within each vBucket), and the resume points after them.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Mutations, deletions and expirations, each with its vBucket.
    pub documents: Vec<(Vbid, Document)>,
    /// The versions that the documents superseded, for consumers that request them. Only kept versions are included.
    pub previous: Previous,
    /// The consumer's position after all of `documents`, for each vBucket that moved.
    pub progress: BTreeMap<Vbid, ResumePoint>,
}
