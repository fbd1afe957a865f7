//! Streams over a vBucket's history: cursors, snapshots, failover log, rollback.
//!
//! Every consumer reads the same ordered history, by a [`Stream`] per vBucket. A stream asks [`resume`] whether its
//! consumer's history is still part of this one, reads the old part from the store and the rest from memory, and hands
//! out [`Portion`]s: documents in order, each with the [`ResumePoint`] that leads past it.
//!
//! ```text
//! resume point ──► resume() ──► rollback to r: the consumer drops what is above r and asks again
//!                     │ ok
//!                     ▼
//!        Stream::read(vBucket)  ──► Memory portion … ──► CaughtUp (until the vBucket is written to)
//!                     │         └──► Gone: the vBucket has started another history
//!                     │ Behind: that part left memory, and the consumer wants something of it
//!                     ▼
//!        Stream::begin_backfill(scan) ──► Stream::backfill() ──► Disk portions … ──► Stream::read again
//! ```
//!
//! Invariants: seqnos ascend within a stream; a key appears once in a snapshot, unless the snapshot is history; a
//! consumer that stopped at any resume point it was given continues from there without loss or repetition.
//!
//! A consumer on another machine has many streams: its [`Producer`] chooses the next stream and makes its [`Message`]s,
//! its [`Window`] bounds the bytes on their way, and its [`Heartbeat`] notices a dead connection. None of them knows
//! the bytes, the socket or the clock.

mod batch;
mod event;
mod heartbeat;
mod interest;
mod outlet;
mod producer;
mod rollback;
mod stream;
mod window;

pub use batch::{Batch, Previous, ResumePoint};
pub use event::SystemEvent;
pub use heartbeat::{Beat, Heartbeat};
pub use interest::Interest;
pub use outlet::{End, Message, Origin, Wanted};
pub use producer::{Address, Finished, Producer, SCANS_MAX, STREAMS_MAX, Vbuckets, Work};
pub use rollback::{Resume, resume};
pub use stream::{Backfill, Documents, Limit, Past, Portion, Read, Stream};
pub use window::Window;
