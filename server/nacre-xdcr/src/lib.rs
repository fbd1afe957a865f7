//! Replication between clusters as state machines: pipelines, version histories, checkpoints, conflicts.
//!
//! ```text
//! source's history ─► Pipeline: filter ─► map ─► look up? ─► judge? ─► write ─► position ─► Record
//!                        │  ▲                      │                     │
//!                effects ▼  │ inputs               ▼                     ▼
//!              whoever has sockets, the clock and the vBucket: a service, or a simulation
//!
//! target: a version arrives ─► receive() ─► Keep │ Store │ Ask ─► resolver ─► settle() ─► Store
//! ```
//!
//! - [`Pipeline`] is one active vBucket of the source on its way to a bucket of another cluster: [`Input`] in, [`Effect`]s
//!   out. It finds where to go on ([`Records`]), keeps as much on its way as the target takes ([`Window`]), and waits when
//!   that has trouble. What one document meets never blocks another.
//! - [`History`] is which versions went into a version; [`attribute`] is how documents carry it; [`Known`] is what is known
//!   about a version, computed when it is needed.
//! - [`judge`] says which of two versions stays; [`receive`] and [`settle`] say what the target stores.
//! - [`Filter`] and [`Mapping`] say what leaves the bucket.
//!
//! Invariants:
//! - no I/O, no clock, no randomness: `now` and a seed are arguments;
//! - the position of a record never passes a version that the target has not answered for;
//! - after [`Effect::Rested`], nothing is wanted until the next [`Input::Start`];
//! - whatever is lost, repeated or out of order on the way, the target ends with what the source has.

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

pub use arrival::{Arriving, Outcome, known_here, receive, settle};
pub use attribute::{Known, Malformed, Site};
pub use checkpoint::{
    RECORDS_MAX, Record, Records, SourceState, TargetPoint, TargetPoints, TargetState,
};
pub use filter::{Condition, Filter, Passage};
pub use history::{History, Relation, Versions};
pub use judge::{Judgement, Policy, Side, judge};
pub use message::{
    Answer, Conflict, Effect, Found, Input, Lookup, Merge, Notice, Operation, Over, Run, Wanted,
};
pub use pipeline::{Counts, Pipeline};
pub use settings::{Echo, Judge, Mapping, Settings};
pub use source::SourceId;
pub use window::Window;
