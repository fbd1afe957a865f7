//! Inputs and effects of a pipeline.

use crate::{Arriving, Records, Settings, SourceState, TargetState};
use nacre_dcp::ResumePoint;
use nacre_types::{Cas, Document, Meta, Seqno, Vbid};
use nacre_vbucket::Verdict;
use std::collections::BTreeMap;

/// Allocates a unique epoch for each pipeline. The component that passes answers to pipelines keeps one allocator for as
/// long as answers may arrive.
#[derive(Debug, Default)]
pub struct Epochs(u64);

impl Epochs {
    /// Returns the epoch of the next pipeline.
    pub fn next_epoch(&mut self) -> Epoch {
        self.0 += 1;
        Epoch(self.0)
    }
}

/// The identity of one pipeline. It cannot be copied, so two pipelines never share one.
#[derive(Debug)]
pub struct Epoch(u64);

impl Epoch {
    /// Returns the run number that precedes the first run.
    pub(crate) fn before_first_run(self) -> Run {
        Run { epoch: self.0, number: 0 }
    }
}

/// The run of a pipeline that a request belongs to. Answers to requests of an earlier run are ignored.
///
/// A pipeline begins a run each time it returns to a record. Another pipeline of the same vBucket has another epoch, so
/// late answers to its predecessor never match its requests. Such an answer may be about a document that the bucket has
/// lost since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    epoch: u64,
    number: u32,
}

impl Run {
    /// Advances to the next run of the same pipeline.
    pub(crate) fn advance(&mut self) {
        self.number += 1;
    }
}

/// Identifies a version in flight to one collection of the target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct VersionId {
    /// The seqno of the version in the source's history.
    pub seqno: Seqno,
    /// The index of the collection among those that receive the version, from 0.
    pub copy: u16,
}

impl From<Seqno> for VersionId {
    /// Returns the ID of the only or the first copy of a version.
    fn from(seqno: Seqno) -> VersionId {
        VersionId { seqno, copy: 0 }
    }
}

/// An input of a pipeline.
#[derive(Clone, Debug)]
pub enum Input {
    /// Starts the pipeline. The vBucket is active on this node and has this history.
    Start(SourceState),
    /// The vBucket's history has changed: a branch has begun, or the pipeline's position was rolled back.
    SourceChanged(SourceState),
    /// Answers [`Effect::AskTarget`]; `None` when one of the vBuckets could not be reached.
    Target {
        /// Run of the request.
        run: Run,
        /// State of each vBucket asked.
        states: Option<BTreeMap<Vbid, TargetState>>,
    },
    /// Answers [`Effect::Read`] as soon as the history has more.
    Portion {
        /// Run of the request.
        run: Run,
        /// Consecutive versions, with their values.
        documents: Vec<Document>,
        /// The reader's position after them.
        position: ResumePoint,
        /// The greatest seqno of a tombstone that the source had purged before the read.
        purge_seqno: Seqno,
    },
    /// Answers one key of [`Effect::LookUp`].
    LookedUp {
        /// Run of the request.
        run: Run,
        /// The version for which the key was looked up.
        id: VersionId,
        /// [`Lookup::number`] of the request.
        number: u64,
        /// The result.
        found: Found,
    },
    /// Answers one operation of [`Effect::Write`].
    Written {
        /// Run of the request.
        run: Run,
        /// Names the version.
        id: VersionId,
        /// [`Operation::number`] of the request.
        number: u64,
        /// The answer of the target.
        answer: Answer,
    },
    /// Answers [`Effect::Resolve`]; `None` when the resolver has not decided.
    Resolved {
        /// Run of the request.
        run: Run,
        /// Names the version.
        id: VersionId,
        /// The version to keep.
        verdict: Option<Verdict>,
    },
    /// Answers [`Effect::Merge`]. If not done, the pipeline retries.
    Merged {
        /// Run of the request.
        run: Run,
        /// Names the version.
        id: VersionId,
        /// True if the decision was written, or if the version has been superseded.
        is_done: bool,
    },
    /// Answers [`Effect::Log`]: the conflict was logged, or cannot be logged.
    Logged {
        /// Run of the request.
        run: Run,
        /// Names the version.
        id: VersionId,
        /// Number of the request.
        number: u64,
    },
    /// A connection to the target has ended, or a vBucket of the target has moved: requests may stay unanswered.
    LinkLost,
    /// Drops a version that was put aside. The user ordered this.
    Skip {
        /// The key, collection prefix first.
        key: Vec<u8>,
    },
    /// Changes the settings of a running pipeline: see [`Settings::adjust`].
    Adjust(Box<Settings>),
    /// Stops the pipeline.
    Pause,
    /// Time has passed.
    Tick,
}

/// The target's version of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// The target has neither a document nor a tombstone.
    Nothing,
    /// The target's version, with the parts of the value that were [wanted](Wanted).
    Version(Arriving),
    /// CAS of the target's version, and the CRC-32C of its body.
    Checksum(Cas, u32),
    /// The look-up failed.
    Failed(Answer),
}

/// The target's answer to a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The target has stored it.
    Stored,
    /// The target keeps its own version.
    Kept,
    /// The target's version is not the one that was looked up.
    Changed,
    /// The node asked does not own the vBucket.
    NotMyVbucket,
    /// The target cannot store the version now; the pipeline retries.
    Busy,
    /// The target does not know the collection.
    NoCollection,
    /// The target will never store the version: too big, malformed, too far in the future, or not allowed.
    Refused(String),
}

/// The part of a version to look up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wanted {
    /// Metadata. The value is empty, and the datatype has no attribute flag unless there are attributes.
    Meta,
    /// Metadata, `_vv` and `_mou`.
    History,
    /// The whole version.
    Whole,
    /// The checksum of the body, to break a tie of metadata.
    Checksum,
}

/// Condition of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// No condition; the target judges.
    Anything,
    /// For a version that the look-up did not find; the target does not judge. A document is added and refused if the
    /// key exists; a deletion is unconditional.
    Nothing,
    /// The version or tombstone must have this CAS; the target does not judge.
    Version(Cas),
    /// The target judges, and refuses if its document has another CAS. So the target never decides about a version that was not
    /// looked up.
    Judged(Cas),
}

/// A version to be written, with its metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Names the version.
    pub id: VersionId,
    /// Number of the request, for the answer; each attempt has another number.
    pub number: u64,
    /// The target's vBucket.
    pub vbid: Vbid,
    /// The key with the target's collection, prefix first.
    pub key: Vec<u8>,
    /// The metadata (the kind distinguishes deletions from expirations) and the value.
    pub version: Arriving,
    /// Condition of the write.
    pub over: Over,
    /// True if the bucket resolves conflicts by time, which the request must state (`FORCE_ACCEPT`).
    pub by_time: bool,
    /// True if the value should be compressed.
    pub compresses: bool,
}

/// A key to be looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// The version for which the key is looked up.
    pub id: VersionId,
    /// Number of the request, for the answer; each attempt has another number. A late answer may lack the body, or may describe
    /// the target before a later write was refused.
    pub number: u64,
    /// The target's vBucket.
    pub vbid: Vbid,
    /// The key with the target's collection, prefix first.
    pub key: Vec<u8>,
}

/// Two versions in conflict, for the resolver of the source or for a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The key at the source, prefix first.
    pub key: Vec<u8>,
    /// The key at the target, prefix first.
    pub target_key: Vec<u8>,
    /// The source's version, with its history.
    pub source: Arriving,
    /// The target's version.
    pub target: Arriving,
}

/// A decision to write into the source's own bucket: [`settle`](crate::settle) with `local` as the local version, under the
/// condition that the bucket still holds exactly that version. It then replicates as any other write.
#[derive(Clone, Debug)]
pub struct Merge {
    /// The source's version.
    pub local: Document,
    /// The target's version.
    pub target: Arriving,
    /// The decision of the resolver.
    pub verdict: Verdict,
}

/// An event that the user should see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Replication restarts from zero because no record fits both histories.
    FromZero,
    /// The source has purged tombstones that may not have been sent: the target may keep deleted documents.
    DeletionsForgotten,
    /// The source's history has changed from this seqno on.
    SourceRolledBack(Seqno),
    /// The target's history has changed; versions that it may have lost are sent again.
    TargetRolledBack,
    /// The filter could not decide about a document.
    Unclear {
        /// The key, collection prefix first.
        key: Vec<u8>,
        /// Why.
        reason: String,
    },
    /// A version was put aside; the other versions continue.
    Stuck {
        /// The key, collection prefix first.
        key: Vec<u8>,
        /// Why.
        reason: String,
    },
    /// A version that was put aside was sent or superseded.
    Freed {
        /// The key, collection prefix first.
        key: Vec<u8>,
    },
}

/// An effect of a pipeline. An [`Input`] answers each request; `Reroute`, `Save`, `Notify` and `Rested` have no answer.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Asks the current owners of these vBuckets of the target for their histories.
    AskTarget {
        /// For the answer. Each question has another run, so that a late answer to an earlier question is ignored.
        run: Run,
        /// The vBuckets.
        vbids: Vec<Vbid>,
    },
    /// Reads further in the source's history.
    Read {
        /// For the answer.
        run: Run,
        /// Position after which to read.
        after: ResumePoint,
    },
    /// Looks up the target's versions.
    LookUp {
        /// For the answers.
        run: Run,
        /// The part to look up.
        wanted: Wanted,
        /// The keys.
        keys: Vec<Lookup>,
    },
    /// Writes to the target.
    Write {
        /// For the answers.
        run: Run,
        /// The writes.
        operations: Vec<Operation>,
    },
    /// Asks the resolver.
    Resolve {
        /// For the answer.
        run: Run,
        /// Names the version.
        id: VersionId,
        /// The conflict.
        conflict: Box<Conflict>,
    },
    /// Logs a conflict before the source's version is sent. The conflict is logged at least once, whatever its outcome.
    Log {
        /// For the answer.
        run: Run,
        /// Names the version.
        id: VersionId,
        /// Number of the request, for the answer: another one for each conflict of the version.
        number: u64,
        /// The conflict. The target's version includes its history.
        conflict: Box<Conflict>,
    },
    /// Writes a decision into the source's bucket.
    Merge {
        /// For the answer.
        run: Run,
        /// Names the version.
        id: VersionId,
        /// The merge.
        merge: Box<Merge>,
    },
    /// Finds the current owner of a vBucket of the target.
    Reroute {
        /// The vBucket.
        vbid: Vbid,
    },
    /// Stores the records with the vBucket.
    Save(Records),
    /// Informs the user.
    Notify(Notice),
    /// The pipeline has stopped, and nothing is in flight.
    Rested,
}

/// Returns the metadata without expiry. A tombstone's expiry field holds the second of its deletion.
pub(crate) fn without_expiry(meta: Meta) -> Meta {
    Meta { expiry: 0, ..meta }
}
