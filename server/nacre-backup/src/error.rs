//! Errors of repositories.

/// Failure of an object store. The text is a sentence for the person at a terminal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// There is no object of this name.
    #[error("{0} is missing")]
    Missing(String),
    /// An object of this name exists, and was left as it is.
    #[error("{0} exists already")]
    Exists(String),
    /// The store cannot be used. The operator has to look at the disk, the network or the rights.
    #[error("{0}")]
    Failed(String),
    /// The store does not answer, or asks to be left alone for a while. The same request can succeed later.
    #[error("{0}")]
    Unavailable(String),
}

impl StoreError {
    /// Returns true if the store has not done what it was asked for, and false for an answer about an object.
    pub fn is_failure(&self) -> bool {
        matches!(self, StoreError::Failed(_) | StoreError::Unavailable(_))
    }
}

/// Failure of an operation on a repository. The text is a sentence for the person at a terminal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The store has failed. The same operation can succeed later.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An object is not what was written. The operator restores an older backup, or a copy of the repository.
    #[error("{object} is damaged: {reason}")]
    Damaged {
        /// Name of the object.
        object: String,
        /// Place in the object, and what is wrong there.
        reason: String,
    },
    /// An object was written by a later version of this program.
    #[error(
        "{object} has format {found}, and this version of nacre reads formats up to {known}: use a newer one"
    )]
    Newer {
        /// Name of the object.
        object: String,
        /// Format of the object.
        found: u64,
        /// Newest format that is known here.
        known: u64,
    },
    /// The passphrase is wrong, missing, or given for a repository without encryption.
    #[error("{0}")]
    Passphrase(&'static str),
    /// The source of a backup has sent what history cannot be. The vBucket can be tried again.
    #[error("vBucket {vbid}: {reason}")]
    Source {
        /// vBucket.
        vbid: u16,
        /// What the source has sent.
        reason: String,
    },
    /// The request cannot be carried out. The caller has to change it.
    #[error("{0}")]
    Invalid(String),
}

impl Error {
    pub(crate) fn damaged(object: &str, reason: impl Into<String>) -> Error {
        Error::Damaged { object: object.to_owned(), reason: reason.into() }
    }

    /// Returns true if an object is missing or not what was written.
    pub fn is_damage(&self) -> bool {
        matches!(self, Error::Damaged { .. } | Error::Store(StoreError::Missing(_)))
    }
}

/// Commands report sentences.
impl From<Error> for String {
    fn from(error: Error) -> String {
        error.to_string()
    }
}
