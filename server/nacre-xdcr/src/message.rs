//! Inputs and effects of a pipeline.

use crate::{Arriving, Records, Settings, SourceState, TargetState};
use nacre_dcp::ResumePoint;
use nacre_types::{Cas, Document, Meta, Seqno, Vbid};
use nacre_vbucket::Verdict;
use std::collections::BTreeMap;

/// Gives each pipeline an epoch that no other one has had. Whoever passes answers to pipelines has one for all of them, for
/// as long as answers may arrive.
#[derive(Debug, Default)]
pub struct Epochs(u64);

impl Epochs {
    /// Returns the epoch of the next pipeline.
    pub fn next_epoch(&mut self) -> Epoch {
        self.0 += 1;
        Epoch(self.0)
    }
}

/// The life of one pipeline. It cannot be copied, so that two pipelines never share one.
#[derive(Debug)]
pub struct Epoch(u64);

impl Epoch {
    /// Returns the run before the first one.
    pub(crate) fn before_first_run(self) -> Run {
        Run { epoch: self.0, number: 0 }
    }
}

/// The run of a pipeline that a request belongs to: answers to requests of an earlier run are ignored.
///
/// A pipeline begins a run each time it goes back to a record. Another pipeline of the same vBucket has another epoch: what
/// was answered to the one before, perhaps for a document that its bucket has lost since, counts for none of its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    epoch: u64,
    number: u32,
}

impl Run {
    /// Goes on to the next run of the same pipeline.
    pub(crate) fn advance(&mut self) {
        self.number += 1;
    }
}

/// Names a version on its way to one collection of the target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct VersionId {
    /// The place of the version in the source's history.
    pub seqno: Seqno,
    /// The place of the collection among those that the version goes to, from 0.
    pub copy: u16,
}

impl From<Seqno> for VersionId {
    /// The only copy of a version, or the first one.
    fn from(seqno: Seqno) -> VersionId {
        VersionId { seqno, copy: 0 }
    }
}

/// An input of a pipeline.
#[derive(Clone, Debug)]
pub enum Input {
    /// Starts the pipeline: the vBucket is active here, with this history.
    Start(SourceState),
    /// The vBucket's history is another one now: a branch has begun, or the pipeline's position is no part of it any more.
    SourceChanged(SourceState),
    /// Answers [`Effect::AskTarget`]; `None` when one of the vBuckets could not be reached.
    Target {
        /// Run of the request.
        run: Run,
        /// The vBuckets that were asked for.
        states: Option<BTreeMap<Vbid, TargetState>>,
    },
    /// Answers [`Effect::Read`], as soon as there is something.
    Portion {
        /// Run of the request.
        run: Run,
        /// Consecutive versions, with their values.
        documents: Vec<Document>,
        /// The reader's position after them.
        position: ResumePoint,
        /// The greatest seqno of a deletion that the source had forgotten when they were read.
        purge_seqno: Seqno,
    },
    /// Answers one key of [`Effect::LookUp`].
    LookedUp {
        /// Run of the request.
        run: Run,
        /// Names the version that the key was looked up for.
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
    /// Answers [`Effect::Merge`]: whether it was written, or the version is not the newest any more. Else it is tried again.
    Merged {
        /// Run of the request.
        run: Run,
        /// Names the version.
        id: VersionId,
        /// True if there is nothing left to do.
        is_done: bool,
    },
    /// Answers [`Effect::Log`]: the conflict is logged, or cannot be.
    Logged {
        /// Run of the request.
        run: Run,
        /// Names the version.
        id: VersionId,
        /// Number of the request.
        number: u64,
    },
    /// A connection to the target has ended, or a vBucket of the target has another owner: requests may have no answer.
    LinkLost,
    /// Drops a version that was put aside, by order of the user.
    Skip {
        /// The key, collection prefix first.
        key: Vec<u8>,
    },
    /// Changes the settings of a pipeline that goes on: see [`Settings::adjust`].
    Adjust(Box<Settings>),
    /// Stops the pipeline.
    Pause,
    /// Time has passed.
    Tick,
}

/// The target's version of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// The target has none, not even a tombstone.
    Nothing,
    /// This; the value as far as it was [wanted](Wanted).
    Version(Arriving),
    /// The version with this CAS has a body with this CRC-32C.
    Checksum(Cas, u32),
    /// The look-up failed.
    Failed(Answer),
}

/// The target's answer to a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The target has stored it.
    Stored,
    /// The target keeps its own.
    Kept,
    /// The target has another version than the one that was looked up.
    Changed,
    /// The vBucket is elsewhere.
    NotMyVbucket,
    /// The target cannot store it now: try again.
    Busy,
    /// The target does not know the collection.
    NoCollection,
    /// The target will never store it: too big, malformed, too far in the future, not allowed.
    Refused(String),
}

/// The part of a version to look up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wanted {
    /// Metadata; an empty value, and the datatype without attributes unless there are some.
    Meta,
    /// Metadata, `_vv` and `_mou`.
    History,
    /// All of it.
    Whole,
    /// The checksum of the body, because the metadata do not tell the two versions apart.
    Checksum,
}

/// Condition of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// The target judges.
    Anything,
    /// No condition; the target does not judge.
    Nothing,
    /// The version, or the tombstone, with this CAS; the target does not judge.
    Version(Cas),
    /// The target judges, and refuses if its document has another CAS than this: so it decides about no version that was not looked up.
    Judged(Cas),
}

/// A version to be written, with its metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Names the version.
    pub id: VersionId,
    /// Number of the request, for the answer: another one for each attempt.
    pub number: u64,
    /// The target's vBucket.
    pub vbid: Vbid,
    /// The key with the target's collection, prefix first.
    pub key: Vec<u8>,
    /// The metadata, with the kind that tells a deletion from an expiration, and the value.
    pub version: Arriving,
    /// Under which condition.
    pub over: Over,
    /// True if the bucket compares times, which the request must state (`FORCE_ACCEPT`).
    pub by_time: bool,
    /// True if the value should be compressed.
    pub compresses: bool,
}

/// A key to be looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// Names the version that it is looked up for.
    pub id: VersionId,
    /// Number of the request, for the answer: another one for each attempt. What a late answer has may lack the body, or was there before
    /// a later write was refused.
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

/// A decision, to be written into the source's own bucket: [`settle`](crate::settle) with the version here as the local one,
/// over just that. It is replicated as any write.
#[derive(Clone, Debug)]
pub struct Merge {
    /// The version here.
    pub local: Document,
    /// The target's version.
    pub target: Arriving,
    /// The decision of the resolver.
    pub verdict: Verdict,
}

/// Something that the user should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Everything is sent from the beginning, as no record fits.
    FromZero,
    /// The source has forgotten deletions that may not have been sent: they are missing at the target.
    DeletionsForgotten,
    /// The source has another history from this seqno on.
    SourceRolledBack(Seqno),
    /// The target has another history: versions that it may have lost are sent again.
    TargetRolledBack,
    /// A document could not be judged by the filter.
    Unclear {
        /// The key, collection prefix first.
        key: Vec<u8>,
        /// Why.
        reason: String,
    },
    /// A version was put aside; the others go on.
    Stuck {
        /// The key, collection prefix first.
        key: Vec<u8>,
        /// Why.
        reason: String,
    },
    /// A version that was put aside has been sent, or was superseded.
    Freed {
        /// The key, collection prefix first.
        key: Vec<u8>,
    },
}

/// An effect of a pipeline. Each one except notices is answered by an [`Input`].
#[derive(Clone, Debug)]
pub enum Effect {
    /// Ask how far the histories of these vBuckets of the target are, at their owners now.
    AskTarget {
        /// For the answer: another one each time, so that a late answer to an earlier question means nothing.
        run: Run,
        /// The vBuckets.
        vbids: Vec<Vbid>,
    },
    /// Reads on in the source's history.
    Read {
        /// For the answer.
        run: Run,
        /// After this.
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
    /// Write to the target.
    Write {
        /// For the answers.
        run: Run,
        /// The writes.
        operations: Vec<Operation>,
    },
    /// Ask the resolver.
    Resolve {
        /// For the answer.
        run: Run,
        /// Names the version.
        id: VersionId,
        /// The conflict.
        conflict: Box<Conflict>,
    },
    /// Logs a conflict, before the version of the source is sent: once at least, however it ends.
    Log {
        /// For the answer.
        run: Run,
        /// Names the version.
        id: VersionId,
        /// Number of the request, for the answer: another one for each conflict of the version.
        number: u64,
        /// The conflict. The target's version has its history.
        conflict: Box<Conflict>,
    },
    /// Write a decision here.
    Merge {
        /// For the answer.
        run: Run,
        /// Names the version.
        id: VersionId,
        /// The merge.
        merge: Box<Merge>,
    },
    /// Finds the present owner of a vBucket of the target.
    Reroute {
        /// The vBucket.
        vbid: Vbid,
    },
    /// Stores the records with the vBucket.
    Save(Records),
    /// Informs the user.
    Notify(Notice),
    /// The pipeline rests, and has nothing on its way.
    Rested,
}

/// The metadata of a tombstone has the second of its deletion where documents have their expiry.
pub(crate) fn without_expiry(meta: Meta) -> Meta {
    Meta { expiry: 0, ..meta }
}
