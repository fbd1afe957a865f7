//! Errors of repositories.

/// An error of an object store. The text is a message for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// No object has this name.
    #[error("{0} is missing")]
    Missing(String),
    /// An object of this name already exists and is unchanged.
    #[error("{0} exists already")]
    Exists(String),
    /// The store cannot be used. The operator must check the disk, the network or the rights.
    #[error("{0}")]
    Failed(String),
    /// The store does not answer or is throttling. The same request may succeed later.
    #[error("{0}")]
    Unavailable(String),
}

impl StoreError {
    /// Returns true if the store failed to carry out the request, and false for an answer about an object.
    pub fn is_failure(&self) -> bool {
        matches!(self, StoreError::Failed(_) | StoreError::Unavailable(_))
    }
}

/// An error of a repository operation. The text is a message for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The store has failed. The same operation may succeed later.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An object is damaged. The operator must restore an older backup or a copy of the repository.
    #[error("{object} is damaged: {reason}")]
    Damaged {
        /// The name of the object.
        object: String,
        /// The position in the object, and its defect.
        reason: String,
    },
    /// An object was written by a later version of this program.
    #[error(
        "{object} has format {found}, and this version of nacre reads formats up to {known}: use a newer one"
    )]
    Newer {
        /// The name of the object.
        object: String,
        /// The format of the object.
        found: u64,
        /// The newest format that this program reads.
        known: u64,
    },
    /// The passphrase is wrong, missing, or superfluous because the repository is not encrypted.
    #[error("{0}")]
    Passphrase(&'static str),
    /// The source of a backup has sent an invalid history. The vBucket can be retried.
    #[error("vBucket {vbid}: {reason}")]
    Source {
        /// The vBucket.
        vbid: u16,
        /// The invalid message.
        reason: String,
    },
    /// The request is invalid. The caller must change it.
    #[error("{0}")]
    Invalid(String),
}

impl Error {
    pub(crate) fn damaged(object: &str, reason: impl Into<String>) -> Error {
        Error::Damaged { object: object.to_owned(), reason: reason.into() }
    }

    /// Returns true if an object is missing or damaged.
    pub fn is_damage(&self) -> bool {
        matches!(self, Error::Damaged { .. } | Error::Store(StoreError::Missing(_)))
    }
}

/// For commands, which report messages.
impl From<Error> for String {
    fn from(error: Error) -> String {
        error.to_string()
    }
}
