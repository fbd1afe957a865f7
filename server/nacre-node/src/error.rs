//! Errors of a node, grouped by who must act.

/// The reason why an operation of the node failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The request contradicts the agreed state: the requester changes the request.
    #[error(transparent)]
    Refused(nacre_cluster::Refusal),
    /// A change of users is refused: the requester reads the reason.
    #[error(transparent)]
    Users(#[from] nacre_auth::Refused),
    /// The nodes cannot agree now: the requester tries again, the operator checks the nodes.
    #[error("{0}")]
    Unavailable(String),
    /// A change was decided and stored, but this node could not carry out its effect: the operator checks the disk.
    #[error("{0}")]
    Effect(Box<Error>),
    /// The store failed: the operator checks the disk.
    #[error(transparent)]
    Store(#[from] nacre_store::Error),
    /// The settings of the node cannot be read: the operator restores them.
    #[error("the node's settings are damaged: {0} cannot be read")]
    Settings(&'static str),
    /// A package is invalid: its author fixes it.
    #[error("{0}")]
    Package(String),
    /// Mutations of a bucket were not written before the stop: the next start recovers only the written ones.
    #[error("bucket {bucket} has mutations that were not persisted")]
    Unpersisted {
        /// The bucket.
        bucket: String,
    },
    /// The other nodes have not decided yet which node serves vBuckets whose history may be incomplete here: ask them
    /// again.
    #[error("bucket {bucket} waits for the other nodes to decide who serves some of its vBuckets")]
    InDoubt {
        /// The bucket.
        bucket: String,
    },
}

impl Error {
    /// Returns true if the same request is refused on each node, with nothing changed.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Error::Refused(_) | Error::Users(_))
    }
}
