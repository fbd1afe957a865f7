//! Errors of stored data, grouped by who must act.

use nacre_types::Vbid;
use std::path::PathBuf;

/// The reason why a store operation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The disk refused: the operator frees space or replaces the disk. Writes that were not acknowledged may be lost.
    #[error("{what}: {source}")]
    Io {
        /// The operation and its path.
        what: String,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// The disk has no space: the operator frees some. Nothing was written, so the operation may be repeated.
    #[error("the disk has no space left")]
    Full,
    /// The process or the machine is out of file descriptors or memory: the operator raises the limit or finds the
    /// process that uses them up. Nothing was written, so the operation may be repeated.
    #[error("{what}: {source}")]
    Exhausted {
        /// The operation and its path.
        what: String,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// Stored data is damaged or missing: the operator restores a backup or re-creates the copy.
    #[error("data directory {path} is damaged: {what}")]
    Damaged {
        /// The directory.
        path: PathBuf,
        /// The damage, naming vBucket and document where known.
        what: String,
    },
    /// The directory was written by another version of the format: the operator uses that version, or upgrades.
    #[error("data directory {path} has format {found}, this version reads {expected}")]
    Format {
        /// The directory.
        path: PathBuf,
        /// The format found.
        found: u32,
        /// The format that this version reads.
        expected: u32,
    },
    /// The directory is open in another process; the operator stops that process first.
    #[error("data directory {path} is in use by another process")]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// The data is encrypted with another key: the application opens it with its key.
    #[error("the key does not open {path}")]
    WrongKey {
        /// The directory.
        path: PathBuf,
    },
    /// The data is encrypted, and no key was given: the application opens it with its key.
    #[error("{path} is encrypted: open it with its key")]
    Encrypted {
        /// The directory.
        path: PathBuf,
    },
    /// A key was given, but the data is not encrypted: the application opens it without a key.
    #[error("{path} is not encrypted: open it without a key")]
    NotEncrypted {
        /// The directory.
        path: PathBuf,
    },
    /// The stored documents of a vBucket contradict its record.
    #[error("{vbid} is damaged: {what}")]
    Inconsistent {
        /// The vBucket.
        vbid: Vbid,
        /// The contradiction.
        what: String,
    },
}

impl Error {
    /// Returns true if nothing was written and the operation may be repeated later.
    pub fn is_temporary(&self) -> bool {
        matches!(self, Error::Full | Error::Exhausted { .. })
    }

    /// Returns a function that wraps an error of the operating system; `what` names the operation.
    pub fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
        let what = what.into();
        move |source| Error::Io { what, source }
    }
}
