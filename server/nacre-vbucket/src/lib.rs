//! One vBucket as a state machine: hash table, CAS, locks, expiry, checkpoint.
//!
//! ```text
//! Command ──► Vbucket::apply(command, now) ──► Reply                    to the client
//!                   │ at most one mutation
//!                   ├──► hash table   key → newest version (or tombstone): what clients see
//!                   └──► checkpoint   seqno → version: what cursors read (flusher, streams, plugins)
//! ```
//!
//! No I/O, no clock, no randomness: time arrives as [`nacre_types::Now`], a new history's UUID as an argument. One
//! vBucket is guarded by one lock of its owner and applied on the thread that read the request.
//!
//! Invariants:
//! - seqnos are 1, 2, 3, … without a gap; CAS strictly increases with them, whatever the clock does;
//! - the hash table holds, for each key ever written, its newest version, tombstones included;
//! - the checkpoint holds every version above the lowest cursor; the flusher's cursor is never dropped;
//! - a refused command changes nothing.

mod checkpoint;
mod command;
mod lock;
mod subdoc;
mod vbucket;

pub use checkpoint::{Checkpoint, CursorId, Drained};
pub use command::{Command, Condition, Extend, Refusal, Reply, Token};
pub use vbucket::Vbucket;
