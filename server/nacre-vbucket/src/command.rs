//! Commands to a vBucket, and its replies.

use crate::conflict::Rule;
use nacre_types::{Cas, Document, Meta, Seqno, VbUuid};
use nacre_value::multi;

/// When a write may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// No condition.
    Always,
    /// The document must not exist.
    Absent,
    /// The document must exist.
    Present,
}

/// At which end a document is extended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extend {
    /// Behind its body.
    Append,
    /// Before its body.
    Prepend,
}

/// One operation on one key. Keys carry their collection prefix; expiries are absolute Unix seconds, 0 for never.
#[derive(Clone, Debug)]
pub enum Command<'a> {
    /// Read.
    Get,
    /// Read the metadata; tombstones have some too.
    GetMeta,
    /// Write a whole document.
    Store {
        /// When to write.
        condition: Condition,
        /// The CAS the document must have, or [`Cas::ANY`].
        cas: Cas,
        /// Opaque to the server.
        flags: u32,
        /// New expiry.
        expiry: u32,
        /// Keep the expiry of a document that exists instead.
        keep_expiry: bool,
        /// The new body; extended attributes of the document are kept.
        body: &'a [u8],
    },
    /// Take over a version from elsewhere, with its metadata: CAS, revision, flags, expiry, datatype and kind count, the
    /// seqno does not.
    StoreVersion {
        /// The version.
        version: Meta,
        /// Extended attributes, if the datatype says so, and the body.
        value: &'a [u8],
        /// The document must not exist.
        add: bool,
        /// The CAS the document must have, or [`Cas::ANY`].
        cas: Cas,
        /// Decides which version stays.
        rule: Rule,
        /// Give it a CAS of this vBucket, greater than its own.
        regenerate_cas: bool,
    },
    /// Put bytes at one end of a document.
    Extend {
        /// Which end.
        end: Extend,
        /// The CAS the document must have, or [`Cas::ANY`].
        cas: Cas,
        /// The bytes to add.
        bytes: &'a [u8],
    },
    /// Delete.
    Delete {
        /// The CAS the document must have, or [`Cas::ANY`].
        cas: Cas,
    },
    /// Add to a decimal number; wraps upwards at 64 bits, stops at 0 downwards.
    Counter {
        /// Subtract instead.
        decrement: bool,
        /// By how much.
        delta: u64,
        /// Value and expiry of a new counter; `None`: it must exist.
        initial: Option<(u64, u32)>,
        /// The CAS the document must have, or [`Cas::ANY`].
        cas: Cas,
    },
    /// Set the expiry; the answer carries the document.
    Touch {
        /// The new expiry.
        expiry: u32,
    },
    /// Read and lock.
    Lock {
        /// 1..=30; else 15.
        seconds: u32,
    },
    /// Unlock.
    Unlock {
        /// The CAS that locking gave.
        cas: Cas,
    },
    /// Read paths.
    Lookup {
        /// Paths to read.
        specs: &'a [multi::LookupSpec<'a>],
        /// Also read tombstones.
        access_deleted: bool,
        /// Name the attributes of the system, too, where names are asked for.
        sees_system: bool,
    },
    /// Write paths, all or none.
    Mutate {
        /// Changes to make.
        specs: &'a [multi::MutationSpec<'a>],
        /// When to write; [`Condition::Always`] creates a missing document.
        condition: Condition,
        /// Also work on tombstones.
        access_deleted: bool,
        /// A document that is created begins as a tombstone.
        create_as_deleted: bool,
        /// There must be a tombstone, which becomes a document with the tombstone's attributes.
        revive: bool,
        /// The CAS the document must have, or [`Cas::ANY`].
        cas: Cas,
        /// New expiry; `None` keeps the old one.
        expiry: Option<u32>,
        /// The expiry of a document that is created where no other is given.
        expiry_when_new: u32,
        /// New flags; `None` keeps the old ones.
        flags: Option<u32>,
        /// Keep the expiry of a document that exists in any case.
        keep_expiry: bool,
    },
}

impl Command<'_> {
    /// Returns true if the command only reads, so that a vBucket that takes no writes answers it too.
    pub(crate) fn only_reads(&self) -> bool {
        matches!(self, Command::Get | Command::GetMeta | Command::Lookup { .. })
    }

    /// Returns true if the command needs the value of an existing document, and not only its metadata.
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

/// How far a write must have come before it counts and others see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// In memory on a majority of the copies.
    Majority = 1,
    /// In memory on a majority, and on disk at the active copy.
    MajorityAndPersistToActive = 2,
    /// On disk on a majority of the copies.
    PersistToMajority = 3,
}

/// The end of a durable write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The seqno of its prepare.
    pub prepare: Seqno,
    /// Where it was committed; `None` when it was given up, though it may be found again after a restart.
    pub commit: Option<Token>,
}

/// Position of a mutation in history. Clients wait with it for persistence and for indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// The branch of history.
    pub vb_uuid: VbUuid,
    /// The position in it.
    pub seqno: Seqno,
}

/// The answer to a command that was carried out.
#[derive(Clone, Debug)]
pub enum Reply {
    /// The document, with the CAS to show: that of a locked one is hidden.
    Found(Document, Cas),
    /// The metadata of a document or tombstone is that of this version.
    Meta(Document),
    /// Written (or deleted).
    Stored {
        /// The new CAS.
        cas: Cas,
        /// Position of the mutation.
        token: Token,
    },
    /// A counter's new value.
    Counted {
        /// The value.
        value: u64,
        /// The new CAS.
        cas: Cas,
        /// Position of the mutation.
        token: Token,
    },
    /// Unlocked.
    Unlocked,
    /// The results of [`Command::Lookup`], one a spec.
    Looked {
        /// Value or error of each spec.
        results: Vec<Result<Vec<u8>, nacre_value::Error>>,
        /// CAS to show.
        cas: Cas,
        /// The document is a tombstone.
        deleted: bool,
    },
    /// [`Command::Mutate`] was carried out.
    Mutated {
        /// Index and value of the specs that give one (counters).
        results: Vec<(u8, Vec<u8>)>,
        /// The new CAS.
        cas: Cas,
        /// Position of the mutation.
        token: Token,
        /// The document is a tombstone.
        deleted: bool,
    },
}

/// Cost of a command: bytes of keys and values, with attributes, that it has read and written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Bytes of the version that the command works on, if that version matters for the result.
    pub read_bytes: usize,
    /// Bytes of the version that the command makes.
    pub written_bytes: usize,
}

impl Reply {
    /// The reply to a durable write, once it is known where the write was committed.
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

/// Why a command was not carried out; nothing has changed. All are the client's to act on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// No such document.
    NotFound,
    /// The document exists, or has another CAS.
    Exists,
    /// There is no document to extend.
    NotStored,
    /// Locked by another client.
    Locked,
    /// The document is not locked.
    NotLocked,
    /// The counter's document is not a decimal number.
    NotANumber,
    /// The document would be over its limit.
    TooBig,
    /// The command contradicts itself.
    Invalid,
    /// The vBucket has another version than the one the decision was made [about](crate::Seen).
    Conflict,
    /// The CAS of a version from another cluster is zero, or is too far in the future.
    CasInvalid,
    /// The document to revive is not a tombstone.
    NotDeleted,
    /// The vBucket is not active here.
    NotActive,
    /// The node does not know whether it may serve. The owner of the vBucket answers this, never the vBucket.
    NoLease,
    /// The store must be asked first: [`Vbucket::restore`](crate::Vbucket::restore), then again.
    NotResident,
    /// A durable write to the same document is under way.
    SyncWriteInProgress,
    /// A durable write of an earlier term may have been seen by others already, and is not committed yet in this one.
    SyncWriteReCommitInProgress,
    /// The vBucket no longer takes writes: its store failed, or its bucket ends.
    ReadOnly,
    /// A sub-document request made no sense, or one of its writes failed.
    Subdoc {
        /// Which, and why.
        failure: multi::Failure,
        /// The document is a tombstone.
        deleted: bool,
    },
}
