//! Commands to a vBucket, and its replies.

use crate::conflict::Rule;
use nacre_types::{Cas, Document, Meta, Seqno, VbUuid};
use nacre_value::multi;

/// The precondition of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// No condition.
    Always,
    /// The document must not exist.
    Absent,
    /// The document must exist.
    Present,
}

/// The end at which a document is extended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extend {
    /// After the body.
    Append,
    /// Before the body.
    Prepend,
}

/// One operation on one key. Keys have their collection prefix; expiries are absolute Unix seconds, 0 for never.
#[derive(Clone, Debug)]
pub enum Command<'a> {
    /// Reads the document.
    Get,
    /// Reads the metadata, also of tombstones.
    GetMeta,
    /// Stores a whole document.
    Store {
        /// Precondition of the write.
        condition: Condition,
        /// The CAS the document must have, or [`Cas::ANY`].
        cas: Cas,
        /// Opaque to the server.
        flags: u32,
        /// New expiry.
        expiry: u32,
        /// If true, an existing document keeps its expiry.
        keep_expiry: bool,
        /// The new body. The document's extended attributes are kept.
        body: &'a [u8],
    },
    /// Stores a version from another cluster with its metadata: CAS, revision, flags, expiry, datatype and kind are
    /// used, the seqno is not.
    StoreVersion {
        /// The version.
        version: Meta,
        /// Extended attributes, if the datatype says that there are some, then the body.
        value: &'a [u8],
        /// True if the document must not exist.
        add: bool,
        /// The CAS the document must have, or [`Cas::ANY`].
        cas: Cas,
        /// Decides which version is kept.
        rule: Rule,
        /// True to assign a new CAS of this vBucket, greater than the version's own.
        regenerate_cas: bool,
    },
    /// Adds bytes at one end of a document.
    Extend {
        /// The end to extend.
        end: Extend,
        /// The CAS the document must have, or [`Cas::ANY`].
        cas: Cas,
        /// The bytes to add.
        bytes: &'a [u8],
    },
    /// Deletes the document.
    Delete {
        /// The CAS the document must have, or [`Cas::ANY`].
        cas: Cas,
    },
    /// Adds to a decimal number. Addition wraps at 64 bits; subtraction stops at 0.
    Counter {
        /// True to subtract.
        decrement: bool,
        /// The amount to add or subtract.
        delta: u64,
        /// Value and expiry of a new counter; `None` if the counter must exist.
        initial: Option<(u64, u32)>,
        /// The CAS the document must have, or [`Cas::ANY`].
        cas: Cas,
    },
    /// Sets the expiry. The reply contains the document.
    Touch {
        /// The new expiry.
        expiry: u32,
    },
    /// Reads and locks the document.
    Lock {
        /// Duration of the lock: 1..=30, otherwise 15.
        seconds: u32,
    },
    /// Unlocks the document.
    Unlock {
        /// The CAS that the lock command returned.
        cas: Cas,
    },
    /// Reads paths.
    Lookup {
        /// Paths to read.
        specs: &'a [multi::LookupSpec<'a>],
        /// True to read tombstones too.
        access_deleted: bool,
        /// True to include system attributes in lists of attribute names.
        sees_system: bool,
    },
    /// Writes paths, all or none.
    Mutate {
        /// Changes to make.
        specs: &'a [multi::MutationSpec<'a>],
        /// Precondition of the write; [`Condition::Always`] creates a missing document.
        condition: Condition,
        /// True to work on tombstones too.
        access_deleted: bool,
        /// True to create a missing document as a tombstone.
        create_as_deleted: bool,
        /// True if there must be a tombstone, which becomes a document with the tombstone's attributes.
        revive: bool,
        /// The CAS the document must have, or [`Cas::ANY`].
        cas: Cas,
        /// New expiry; `None` keeps the old one.
        expiry: Option<u32>,
        /// The expiry of a created document if `expiry` is not set.
        expiry_when_new: u32,
        /// New flags; `None` keeps the old ones.
        flags: Option<u32>,
        /// True to keep the expiry of an existing document in any case.
        keep_expiry: bool,
    },
}

impl Command<'_> {
    /// Returns true if the command only reads, so that read-only vBuckets answer it too.
    pub(crate) fn only_reads(&self) -> bool {
        matches!(self, Command::Get | Command::GetMeta | Command::Lookup { .. })
    }

    /// Returns true if the command needs the value of an existing document in addition to its metadata.
    pub(crate) fn needs_value(&self) -> bool {
        match self {
            Command::Get
            | Command::Extend { .. }
            | Command::Counter { .. }
            | Command::Touch { .. }
            | Command::Lock { .. }
            | Command::Lookup { .. }
            | Command::Mutate { .. } => true,
            Command::GetMeta
            | Command::Store { .. }
            | Command::StoreVersion { .. }
            | Command::Delete { .. }
            | Command::Unlock { .. } => false,
        }
    }
}

/// The durability that a write must reach before it is committed and visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// In memory on a majority of the copies.
    Majority = 1,
    /// In memory on a majority, and on disk at the active copy.
    MajorityAndPersistToActive = 2,
    /// On disk on a majority of the copies.
    PersistToMajority = 3,
}

/// The outcome of a durable write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The seqno of its prepare.
    pub prepare: Seqno,
    /// Position of the commit; `None` if the write was given up, though a restart may still find its prepare.
    pub commit: Option<Token>,
}

/// Position of a mutation in history. Clients use it to wait for persistence and for indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// The branch of history.
    pub vb_uuid: VbUuid,
    /// The position in the branch.
    pub seqno: Seqno,
}

/// The reply to a command that was carried out.
#[derive(Clone, Debug)]
pub enum Reply {
    /// The document, and the CAS to show: the CAS of a locked document is hidden.
    Found(Document, Cas),
    /// The version whose metadata was read; it may be a tombstone.
    Meta(Document),
    /// The document was stored or deleted.
    Stored {
        /// The new CAS.
        cas: Cas,
        /// Position of the mutation.
        token: Token,
    },
    /// The new value of a counter.
    Counted {
        /// The value.
        value: u64,
        /// The new CAS.
        cas: Cas,
        /// Position of the mutation.
        token: Token,
    },
    /// The lock was released.
    Unlocked,
    /// The results of [`Command::Lookup`], one per spec.
    Looked {
        /// Value or error of each spec.
        results: Vec<Result<Vec<u8>, nacre_value::Error>>,
        /// CAS to show.
        cas: Cas,
        /// True if the document is a tombstone.
        deleted: bool,
    },
    /// The result of [`Command::Mutate`].
    Mutated {
        /// Index and value of the specs that return a value (counters).
        results: Vec<(u8, Vec<u8>)>,
        /// The new CAS.
        cas: Cas,
        /// Position of the mutation.
        token: Token,
        /// True if the document is a tombstone.
        deleted: bool,
    },
}

/// Cost of a command: bytes of keys and values, including attributes, that it read and wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Bytes of the version that the command uses, if that version affects the result.
    pub read_bytes: usize,
    /// Bytes of the version that the command creates.
    pub written_bytes: usize,
}

impl Reply {
    /// Returns the reply to a durable write with the position of its commit.
    #[must_use]
    pub fn committed(mut self, at: Token) -> Reply {
        if let Reply::Stored { token, .. }
        | Reply::Counted { token, .. }
        | Reply::Mutated { token, .. } = &mut self
        {
            *token = at;
        }
        self
    }
}

/// The reason why a command was not carried out. Nothing has changed; the client must act.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The document does not exist.
    NotFound,
    /// The document exists, or has another CAS.
    Exists,
    /// There is no document to extend.
    NotStored,
    /// Another client has locked the document.
    Locked,
    /// The document is not locked.
    NotLocked,
    /// The document of the counter is not a decimal number.
    NotANumber,
    /// The document would exceed its size limit.
    TooBig,
    /// The command contradicts itself.
    Invalid,
    /// The vBucket's version differs from the version that the decision is [based on](crate::Seen).
    Conflict,
    /// The CAS of a version from another cluster is zero, or is too far in the future.
    CasInvalid,
    /// The document to revive is not a tombstone.
    NotDeleted,
    /// This copy of the vBucket is not active.
    NotActive,
    /// It is unknown whether the node may serve. The owner of the vBucket returns this, never the vBucket.
    NoLease,
    /// The document must be read from the store first ([`Vbucket::restore`](crate::Vbucket::restore)); then the
    /// command can be repeated.
    NotResident,
    /// A durable write to the same document is in progress.
    SyncWriteInProgress,
    /// A durable write of an earlier term may already be visible elsewhere, but is not committed yet in this term.
    SyncWriteReCommitInProgress,
    /// The vBucket no longer takes writes: its store failed, or its bucket is closing.
    ReadOnly,
    /// A sub-document request was invalid, or one of its writes failed.
    Subdoc {
        /// The failed operation, and the reason.
        failure: multi::Failure,
        /// True if the document is a tombstone.
        deleted: bool,
    },
}
