//! What can go wrong with a node, by who must act.

/// Why the node could not do something.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The request contradicts the agreed state: the requester changes it.
    #[error(transparent)]
    Refused(nacre_cluster::Refusal),
    /// The store failed: the operator looks at the disk.
    #[error(transparent)]
    Store(#[from] nacre_store::Error),
    /// What the node stored about itself cannot be read: the operator restores it.
    #[error("the node's settings are damaged: {0} cannot be read")]
    Settings(&'static str),
    /// A package is not what it should be: its author mends it.
    #[error("{0}")]
    Package(String),
    /// Mutations of a bucket were not written before the stop: the next start recovers what was.
    #[error("bucket {bucket} has mutations that were not persisted")]
    Unpersisted {
        /// The bucket.
        bucket: String,
    },
}
