//! Replication between clusters as state machines: pipelines, version histories, checkpoints, conflicts.
//!
//! ```text
//! source's history ─► Pipeline: filter ─► map ─► look up? ─► judge? ─► write ─► position ─► Record
//!                        │  ▲                      │                     │
//!                effects ▼  │ inputs               ▼                     ▼
//!              the owner of sockets, clock and vBucket: a service, or a simulation
//!
//! target: a version arrives ─► receive() ─► Keep │ Store │ Ask ─► resolver ─► settle() ─► Store
//! ```
//!
//! - [`Pipeline`] replicates one active vBucket of the source to a bucket of another cluster: [`Input`] in, [`Effect`]s
//!   out. It resumes from a checkpoint record ([`Records`]), limits the bytes in flight to what the target accepts
//!   ([`Window`]), and backs off when the target has trouble. Trouble with one document never blocks another.
//! - [`History`] lists the versions that went into a version; [`attribute`] has its stored form; [`Known`] is the
//!   knowledge about a version, computed on demand.
//! - [`judge`] decides which of two versions stays; [`receive`] and [`settle`] decide what the target stores.
//! - [`Filter`] and [`Mapping`] select the documents that leave the bucket, and their collections.
//!
//! Invariants:
//! - no I/O, no clock, no randomness: `now` and a seed are arguments;
//! - the position of a record never passes a version that the target has not answered;
//! - after [`Effect::Rested`], there are no effects until the next [`Input::Start`];
//! - even if messages are lost, repeated or out of order, the target ends with the documents of the source.

mod arrival;
pub mod attribute;
mod checkpoint;
mod filter;
mod history;
mod judge;
mod message;
mod pipeline;
mod settings;
mod source;
mod stored;
mod window;

pub use arrival::{
    Arriving, Outcome, add_histories, first_loss, is_common_ancestor, known_here, receive, settle,
};
pub use attribute::{Known, Malformed, Site};
pub use checkpoint::{
    RECORDS_MAX, Record, Records, SourceState, TargetPoint, TargetPoints, TargetState,
};
pub use filter::{Condition, Filter, Passage};
pub use history::{History, Relation, Versions};
pub use judge::{Judgement, Policy, Side, judge};
pub use message::{
    Answer, Conflict, Effect, Epoch, Epochs, Found, Input, Lookup, Merge, Notice, Operation, Over,
    Run, VersionId, Wanted,
};
pub use pipeline::{Counts, Pipeline};
pub use settings::{Echo, Judge, Mapping, Settings};
pub use source::SourceId;
pub use window::Window;
