//! Problems of a node, by bucket.

use crate::node::Node;
use crate::{Error, pending_effects};
use nacre_cluster::Bucket;
use nacre_store::Error as StoreError;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;

/// A problem of a bucket on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The name of the bucket.
    pub bucket: String,
    /// The problem.
    pub kind: ProblemKind,
}

/// The kind of a bucket's problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProblemKind {
    /// The stored data of the bucket cannot be read. This node does not serve the bucket.
    Damaged(String),
    /// After a failed commit the stored state of this many vBuckets is unknown: they are read-only until the node is
    /// restarted.
    ReadOnly(usize),
    /// The store waits for space or descriptors. Writes are refused until then.
    Waiting,
}

impl Problem {
    /// Returns true if the operator must act, because the problem does not resolve itself.
    pub fn is_lasting(&self) -> bool {
        self.kind != ProblemKind::Waiting
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bucket {}: ", self.bucket)?;
        match &self.kind {
            ProblemKind::Damaged(reason) => {
                write!(f, "not served, its files are damaged: {reason}")
            }
            ProblemKind::ReadOnly(count) => {
                write!(
                    f,
                    "{count} vBuckets are read-only after a failed write until the node is started again"
                )
            }
            ProblemKind::Waiting => {
                write!(
                    f,
                    "writes are refused until the disk has space and the process has descriptors"
                )
            }
        }
    }
}

/// Returns true if the node serves its other buckets although one cannot be opened because of `error`.
///
/// Damage stays until someone repairs it. A bucket in another format, or one that another process uses, means that the
/// whole node was started by mistake.
pub(crate) fn is_of_one_bucket(error: &Error) -> bool {
    match error {
        Error::Store(StoreError::InUse { .. } | StoreError::Format { .. }) => false,
        Error::Store(_) => true,
        _ => false,
    }
}

/// Buckets that could not be opened at the start. The node does not serve them, and does not retry before the next
/// start.
#[derive(Debug, Default)]
pub(crate) struct DamagedBuckets {
    /// Names and reasons, by the row that records the store.
    by_row: Mutex<BTreeMap<Vec<u8>, (String, String)>>,
}

impl DamagedBuckets {
    /// Adds a bucket.
    pub fn add(&self, config: &Bucket, error: &Error) {
        tracing::error!(
            "bucket {} is not served by this node, its files are damaged: {error}; other buckets are served. Restore its files from a copy and start the node \
             again; in a cluster, fail this node over, remove the directory of the bucket and recover the node in full; or drop the \
             bucket",
            config.name
        );
        let row = pending_effects::created_row(config);
        self.by_row.lock().insert(row, (config.name.clone(), error.to_string()));
    }

    /// Returns true if this bucket could not be opened.
    pub fn contains(&self, config: &Bucket) -> bool {
        self.by_row.lock().contains_key(&pending_effects::created_row(config))
    }

    /// Returns the reason why a bucket could not be opened, if it could not.
    fn reason(&self, config: &Bucket) -> Option<String> {
        let by_row = self.by_row.lock();
        by_row.get(&pending_effects::created_row(config)).map(|(_, reason)| reason.clone())
    }
}

/// Returns the problems of a node's buckets.
pub fn problems(node: &Node) -> Vec<Problem> {
    let mut problems: Vec<Problem> = Vec::new();
    let cluster = node.cluster();
    for config in cluster.buckets.values() {
        let mut add = |kind| problems.push(Problem { bucket: config.name.clone(), kind });
        if let Some(reason) = node.damaged.reason(config) {
            add(ProblemKind::Damaged(reason));
        }
        let Some(bucket) = node.bucket(&config.name) else { continue };
        match bucket.read_only.lock().len() {
            0 => {}
            count => add(ProblemKind::ReadOnly(count)),
        }
        if bucket.store_is_waiting() {
            add(ProblemKind::Waiting);
        }
    }
    problems
}
