//! What goes into a pipeline, and what it wants done.

use crate::{Arriving, Records, SourceState, TargetState};
use nacre_dcp::ResumePoint;
use nacre_types::{Cas, Document, Meta, Seqno, Vbid};
use nacre_vbucket::Verdict;
use std::collections::BTreeMap;

/// Which run of a pipeline a request belongs to: it grows each time the pipeline goes back to a record, and answers to
/// requests of an earlier run mean nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Run(pub u32);

/// What happens to a pipeline.
#[derive(Clone, Debug)]
pub enum Input {
    /// It is to run: the vBucket is active here, and its history is this.
    Start(SourceState),
    /// The vBucket's history is another one now: a branch has begun, or the pipeline's position is no part of it any more.
    SourceChanged(SourceState),
    /// Answers [`Effect::AskTarget`]; `None` when one of the vBuckets could not be reached.
    Target {
        /// That of the request.
        run: Run,
        /// The vBuckets that were asked for.
        states: Option<BTreeMap<Vbid, TargetState>>,
    },
    /// Answers [`Effect::Read`], as soon as there is something.
    Portion {
        /// That of the request.
        run: Run,
        /// Consecutive versions, with their values.
        documents: Vec<Document>,
        /// Where the reader stands after them.
        position: ResumePoint,
        /// The greatest seqno of a deletion that the source had forgotten when they were read.
        purge_seqno: Seqno,
    },
    /// Answers one key of [`Effect::LookUp`].
    LookedUp {
        /// That of the request.
        run: Run,
        /// Names the version that the key was looked up for.
        seqno: Seqno,
        /// What there is.
        found: Found,
    },
    /// Answers one operation of [`Effect::Write`].
    Written {
        /// That of the request.
        run: Run,
        /// Names the version.
        seqno: Seqno,
        /// What the target said.
        answer: Answer,
    },
    /// Answers [`Effect::Resolve`]; `None` when the resolver has not decided.
    Resolved {
        /// That of the request.
        run: Run,
        /// Names the version.
        seqno: Seqno,
        /// What is kept.
        verdict: Option<Verdict>,
    },
    /// Answers [`Effect::Merge`]: whether it was written, or the version is not the newest any more. Else it is tried again.
    Merged {
        /// That of the request.
        run: Run,
        /// Names the version.
        seqno: Seqno,
        /// True if there is nothing left to do.
        is_done: bool,
    },
    /// A connection to the target has ended, or a vBucket of the target has another owner: what was sent may have no answer.
    LinkLost,
    /// The user gives a version that was put aside up.
    Skip {
        /// The key, collection prefix first.
        key: Vec<u8>,
    },
    /// It is to rest.
    Pause,
    /// Time has passed.
    Tick,
}

/// What the target has of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing, not even a tombstone.
    Nothing,
    /// This; the value as far as it was [wanted](Wanted).
    Version(Arriving),
    /// It could not be looked up.
    Failed(Answer),
}

/// What the target says to a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It has it.
    Stored,
    /// It has one that stays.
    Kept,
    /// It has another one than was looked up.
    Changed,
    /// The vBucket is elsewhere.
    NotMyVbucket,
    /// It cannot now; try again.
    Busy,
    /// It does not know the collection.
    NoCollection,
    /// It never will: too big, malformed, too far in the future, not allowed.
    Refused(String),
}

/// How much of a version is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wanted {
    /// Metadata; an empty value, and the datatype without attributes unless there are some.
    Meta,
    /// Metadata, `_vv` and `_mou`.
    History,
    /// All of it.
    Whole,
}

/// What must be there for a write to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// The target judges.
    Anything,
    /// Nothing; the target does not judge.
    Nothing,
    /// The version, or the tombstone, with this CAS; the target does not judge.
    Version(Cas),
}

/// A version to be written, with its metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Names the version.
    pub seqno: Seqno,
    /// The target's vBucket.
    pub vbid: Vbid,
    /// The key with the target's collection, prefix first.
    pub key: Vec<u8>,
    /// Its metadata, with the kind that says whether it is a deletion or an expiration, and its value.
    pub version: Arriving,
    /// Under which condition.
    pub over: Over,
    /// True if the bucket counts by time, which a target demands to be told (`FORCE_ACCEPT`).
    pub by_time: bool,
    /// True if the value is to be compressed.
    pub compresses: bool,
}

/// A key to be looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// Names the version that it is looked up for.
    pub seqno: Seqno,
    /// The target's vBucket.
    pub vbid: Vbid,
    /// The key with the target's collection, prefix first.
    pub key: Vec<u8>,
}

/// Two versions in conflict, for the resolver of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The key at the source, prefix first.
    pub key: Vec<u8>,
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
    /// What the resolver decided.
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
    /// The target has another history: what it may have lost is sent again.
    TargetRolledBack,
    /// A document could not be judged by the filter.
    Unclear {
        /// Its key, prefix first.
        key: Vec<u8>,
        /// Why.
        reason: String,
    },
    /// A version was put aside; the others go on.
    Stuck {
        /// Its key, prefix first.
        key: Vec<u8>,
        /// Why.
        reason: String,
    },
    /// What was put aside has gone, or was superseded.
    Freed {
        /// Its key, prefix first.
        key: Vec<u8>,
    },
}

/// What a pipeline wants done. Everything but notices is answered by an [`Input`].
#[derive(Clone, Debug)]
pub enum Effect {
    /// Ask how far the histories of these vBuckets of the target are, at their owners now.
    AskTarget {
        /// For the answer.
        run: Run,
        /// Which.
        vbids: Vec<Vbid>,
    },
    /// Read what follows in the source's history.
    Read {
        /// For the answer.
        run: Run,
        /// After this.
        after: ResumePoint,
    },
    /// Look up what the target has.
    LookUp {
        /// For the answers.
        run: Run,
        /// How much of it.
        wanted: Wanted,
        /// Of which keys.
        keys: Vec<Lookup>,
    },
    /// Write to the target.
    Write {
        /// For the answers.
        run: Run,
        /// What.
        operations: Vec<Operation>,
    },
    /// Ask the resolver.
    Resolve {
        /// For the answer.
        run: Run,
        /// Names the version.
        seqno: Seqno,
        /// What about.
        conflict: Box<Conflict>,
    },
    /// Write a decision here.
    Merge {
        /// For the answer.
        run: Run,
        /// Names the version.
        seqno: Seqno,
        /// What.
        merge: Box<Merge>,
    },
    /// Find out who has this vBucket of the target now.
    Reroute {
        /// Which.
        vbid: Vbid,
    },
    /// Store the records beside the vBucket.
    Save(Records),
    /// Tell the user.
    Notify(Notice),
    /// It rests, and has nothing on its way.
    Rested,
}

/// The metadata of a tombstone has the second of its deletion where documents have their expiry.
pub(crate) fn without_expiry(meta: Meta) -> Meta {
    Meta { expiry: 0, ..meta }
}
