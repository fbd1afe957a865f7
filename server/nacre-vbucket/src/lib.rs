//! One vBucket as a state machine: hash table, CAS, locks, expiry, checkpoint.
//!
//! ```text
//! Command ──► Vbucket::apply(command, now) ──► Reply                    to the client
//!                   │ at most one mutation
//!                   ├──► hash table   key → newest version (or tombstone): what clients see
//!                   └──► checkpoint   seqno → version: what cursors read (flusher, streams, plugins)
//! ```
//!
//! No I/O, no clock, no randomness: time arrives as [`nacre_types::Now`], and the UUID of a new history as an
//! argument. The owner guards each vBucket with one lock, and applies commands on the thread that read the
//! request.
//!
//! Invariants:
//! - seqnos are 1, 2, 3, … without a gap; the CAS of successive writes strictly increases, even if the clock runs
//!   backwards (the commit of a durable write keeps the CAS of its prepare);
//! - the hash table contains the newest version of each key ever written, tombstones included, except evicted ones
//!   (which are in the store) and erased ones (old tombstones, dropped collections);
//! - eviction changes no reply: a command that needs an evicted document is refused with [`Refusal::NotResident`],
//!   and succeeds after [`Vbucket::restore`];
//! - the checkpoint contains every version above the lowest cursor; the flusher's cursor is never dropped;
//! - a refused command changes nothing.

mod checkpoint;
mod command;
mod conflict;
mod durability;
mod evicted;
mod graveyard;
mod history;
mod lock;
mod prefetch;
mod replica;
mod slots;
mod subdoc;
mod table;
mod vbucket;

pub use checkpoint::{Checkpoint, CursorId, Drained};
pub use command::{Command, Completion, Condition, Cost, Extend, Level, Refusal, Reply, Token};
pub use conflict::{
    ConflictContext, Content, Resolution, Rule, Seen, Verdict, Version, VersionHistory,
};
pub use durability::{Copies, Move};
pub use prefetch::prefetch;
pub use replica::{OutOfOrder, Standing, UnderWay};
pub use table::{CollectionCounts, Eviction};
pub use vbucket::Vbucket;
