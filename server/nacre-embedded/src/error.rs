//! The reasons why an operation was refused or failed.

use nacre_vbucket::Refusal;

/// The reason why an operation was refused or failed. A refused operation has changed nothing, except for [`Error::Full`] and
/// [`Error::Broken`] of a durable write: the write is then in memory, and may be stored later.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The document does not exist.
    #[error("document not found")]
    DocumentNotFound,
    /// The document already exists.
    #[error("document exists")]
    DocumentExists,
    /// The document has another CAS than the given one: read it again.
    #[error("the document was changed meanwhile (CAS mismatch)")]
    CasMismatch,
    /// The document is locked: try again later, or with the CAS that locking returned.
    #[error("document locked")]
    DocumentLocked,
    /// The document to unlock is not locked.
    #[error("document not locked")]
    DocumentNotLocked,
    /// The document of a counter is not a decimal number.
    #[error("the document is not a number")]
    NotANumber,
    /// The document would exceed 20 MiB, or its attributes 1 MiB.
    #[error("document too large")]
    TooLarge,
    /// An operation on a part of a document failed.
    #[error("operation {index}: {error}")]
    Path {
        /// Index of the operation in the request, from 0.
        index: u8,
        /// The reason of the failure.
        error: nacre_value::Error,
    },
    /// The arguments contradict each other, or one is out of range.
    #[error("invalid argument: {0}")]
    InvalidArgument(String),
    /// The scope does not exist or was dropped.
    #[error("scope not found: {0}")]
    ScopeNotFound(String),
    /// The collection does not exist or was dropped.
    #[error("collection not found: {0}")]
    CollectionNotFound(String),
    /// The scope or collection already exists.
    #[error("{0} exists already")]
    KeyspaceExists(String),
    /// The design document or the view does not exist.
    #[error("view not found: {0}")]
    ViewNotFound(String),
    /// The rows of a view were not ready in time: the next query continues where this one has ended.
    #[error("the rows are not ready yet: try again")]
    ViewsNotReady,
    /// The rows of a design document, or the answer to a query, are too large.
    #[error("{0}")]
    ViewsTooLarge(String),
    /// The views plugin failed. The next query builds the rows again.
    #[error("the views have failed: {0}")]
    ViewsFailed(String),
    /// The folder is open in the process `pid`, which may be this one. 0 if that process has not yet written its number.
    #[error("the database is in use by process {pid}")]
    InUse {
        /// The process ID.
        pid: u32,
    },
    /// The folder was written by a newer version of nacre: use that version. The folder is unchanged.
    #[error("the database has format {format}, which is newer than this library knows ({known})")]
    Newer {
        /// The format of the folder.
        format: u32,
        /// The newest format that this library can read.
        known: u32,
    },
    /// The folder is encrypted with another key. The folder is unchanged.
    #[error("the key does not open this database")]
    WrongKey,
    /// The folder is encrypted, and no key was given. The folder is unchanged.
    #[error("the database is encrypted: open it with its key")]
    Encrypted,
    /// A key was given for a folder that is not encrypted. The folder is unchanged.
    #[error("the database is not encrypted: open it without a key")]
    NotEncrypted,
    /// Files are damaged or missing: restore a backup.
    #[error("the database is damaged: {what}")]
    Damaged {
        /// The file, the vBucket or the document, if known, and its damage.
        what: String,
    },
    /// The disk has no space or the process no descriptors: free some. Reads still work, and writes work again once there is
    /// space.
    #[error("the disk is full")]
    Full,
    /// Memory is used up to the quota and nothing can be evicted: delete documents or open with a larger quota.
    #[error("the memory quota is used up")]
    QuotaExceeded,
    /// The disk failed, and no more writes are stored: open the database again.
    #[error("the store has failed: {what}")]
    Broken {
        /// The operation, and the error of the operating system.
        what: String,
    },
    /// The operating system refused an operation on the folder.
    #[error("{what}")]
    Io {
        /// The operation, and the error of the operating system.
        what: String,
    },
    /// The database was closed.
    #[error("the database is closed")]
    Closed,
    /// The database was opened by the parent of this process: open it after `fork`, in one of the two.
    #[error("the database was opened before fork(): open it in this process")]
    Forked,
    /// A token no longer belongs to this history: the changes after it were lost in a crash, the files are an older copy, or
    /// deletions after it were purged. Read the documents again and start a new listener.
    #[error("the changes after this token are gone: {0}")]
    Gone(String),
    /// A sync of the database is already running: stop it first.
    #[error("sync runs already")]
    SyncRuns,
    /// Device and hub were not in step in time; the text contains the progress.
    #[error("not in step yet: {0}")]
    NotInStep(String),
    /// Sync has ended; the text contains the reason.
    #[error("sync has stopped: {0}")]
    SyncStopped(String),
    /// A query was refused or has failed.
    #[error("{message} (code {code})")]
    Query {
        /// The code, as in the list of the server's query service.
        code: u32,
        /// The reason.
        message: String,
    },
    /// A session ended because its bytes were not valid frames, or because its client closed it.
    #[error("the session has ended: {0}")]
    SessionEnded(String),
}

impl Error {
    /// Returns true if the same call may succeed later without another change by the caller.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Error::DocumentLocked
                | Error::Full
                | Error::InUse { .. }
                | Error::NotInStep(_)
                | Error::ViewsNotReady
        )
    }

    /// Returns true if the error concerns the whole database, rather than one request.
    #[cfg(any(feature = "query", feature = "views"))]
    pub(crate) fn is_of_database(&self) -> bool {
        matches!(
            self,
            Error::Closed
                | Error::Forked
                | Error::Full
                | Error::Broken { .. }
                | Error::Io { .. }
                | Error::Damaged { .. }
        )
    }

    /// Returns the error for a vBucket's refusal; `has_cas` if the caller gave a CAS.
    pub(crate) fn of_refusal(refusal: Refusal, has_cas: bool) -> Error {
        match refusal {
            Refusal::NotFound | Refusal::NotStored => Error::DocumentNotFound,
            Refusal::Exists if has_cas => Error::CasMismatch,
            Refusal::Exists => Error::DocumentExists,
            Refusal::Locked => Error::DocumentLocked,
            Refusal::NotLocked => Error::DocumentNotLocked,
            Refusal::NotANumber => Error::NotANumber,
            Refusal::TooBig => Error::TooLarge,
            Refusal::ReadOnly => Error::Broken { what: "its documents take no writes".into() },
            refused => match refused.subdoc_error() {
                Some((Some(index), error)) => Error::Path { index, error },
                Some((None, error)) => Error::InvalidArgument(error.to_string()),
                None => Error::InvalidArgument(format!("{refused:?}")),
            },
        }
    }
}

impl From<nacre_store::Error> for Error {
    fn from(error: nacre_store::Error) -> Error {
        use nacre_store::Error as Stored;
        match error {
            Stored::Full | Stored::Exhausted { .. } => Error::Full,
            Stored::Format { found, expected, .. } if found > expected => {
                Error::Newer { format: found, known: expected }
            }
            Stored::InUse { .. } => Error::InUse { pid: 0 },
            Stored::WrongKey { .. } => Error::WrongKey,
            Stored::Encrypted { .. } => Error::Encrypted,
            Stored::NotEncrypted { .. } => Error::NotEncrypted,
            Stored::Io { .. } => Error::Io { what: error.to_string() },
            damage => Error::Damaged { what: damage.to_string() },
        }
    }
}

impl From<nacre_cluster::Refusal> for Error {
    fn from(refusal: nacre_cluster::Refusal) -> Error {
        use nacre_cluster::Refusal as Refused;
        match refusal {
            Refused::ScopeNotFound { scope } => Error::ScopeNotFound(scope),
            Refused::CollectionNotFound { scope, collection } => {
                Error::CollectionNotFound(format!("{scope}.{collection}"))
            }
            Refused::ScopeExists { scope } => Error::KeyspaceExists(scope),
            Refused::CollectionExists { scope, collection } => {
                Error::KeyspaceExists(format!("{scope}.{collection}"))
            }
            Refused::DesignDocumentNotFound { name } => Error::ViewNotFound(name),
            refused => Error::InvalidArgument(refused.to_string()),
        }
    }
}
