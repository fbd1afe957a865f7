//! Streams over a vBucket's history: cursors, snapshots, failover log, rollback.
//!
//! Every consumer reads the same ordered history through one [`Stream`] per vBucket. A stream asks [`resume`] whether
//! the consumer's history is still part of the vBucket's, reads the old part from the store and the rest from memory,
//! and returns [`Portion`]s: documents in order, each with the [`ResumePoint`] after it.
//!
//! ```text
//! resume point ──► resume() ──► rollback to r: the consumer drops everything above r and asks again
//!                     │ ok
//!                     ▼
//!        Stream::read(vBucket)  ──► Memory portion … ──► CaughtUp (until the next write to the vBucket)
//!                     │         └──► Gone: the vBucket has begun another history
//!                     │ Behind: that part has left memory, and the consumer needs some of it
//!                     ▼
//!        Stream::begin_backfill(scan) ──► Stream::backfill() ──► Disk portions … ──► Stream::read again
//! ```
//!
//! Invariants: seqnos ascend within a stream; a key occurs once per snapshot, unless the snapshot is history; a
//! consumer that stops at any resume point continues from there without loss or repetition.
//!
//! A remote consumer has many streams: its [`Producer`] chooses the next stream and builds its [`Message`]s, its
//! [`Window`] limits the bytes in flight, and its [`Heartbeat`] detects a dead connection. None of them depends on
//! encoding, sockets or clocks.

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
pub use stream::{Backfill, Documents, Limit, Portion, Read, StoreScan, Stream};
pub use window::Window;
