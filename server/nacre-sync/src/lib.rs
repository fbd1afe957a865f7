//! Sync of a device's database with a bucket of a cluster ("the hub"), as a state machine: bytes in, bytes out.
//!
//! ```text
//!            frames of the key-value protocol
//! hub ◄───────────────────────────────────────► Engine ◄──► Replica: documents, history and memory of the device
//!       pull: a stream of each vBucket            │
//!       push: versions, each over the one known   └──► Notice, Status
//! ```
//!
//! A device is a leaf: it alone decides between its version and that of the hub, and writes a version over exactly the version of
//! the hub that it knows. So the hub needs no resolver, and any number of devices end equal to it.
//!
//! - A document is *in step* when its history (`_vv`) is of its own CAS: so the hub has, or had, exactly this version. Any write of
//!   the application changes the CAS, which makes it *unsent*. Nothing else records what is to be sent.
//! - **Pull.** Each vBucket of the hub is streamed from its position. A version that contains the device's is taken; one that the
//!   device's contains is overwritten at the hub; else there is a conflict ([`ConflictMode`]).
//! - **Push.** An unsent version goes to the hub under the condition that the hub still has the version that it was written over. If
//!   not, nothing is lost: the hub's version arrives by the pull, and is compared then.
//! - **Positions** are stored only while nothing is on its way, and after the documents: what a kill cuts off happens again, and has
//!   no effect the second time.
//!
//! Invariants:
//! - no I/O, no clock, no randomness: `now` is an argument, the replica is a trait;
//! - an edit of the device that is replaced was at the hub, was decided by the application, or is parked with a reason;
//! - a decision reaches the hub before the device, so that no two devices hold decisions that the hub does not know.
//!
//! Left out: one stream for all vBuckets, filters within a collection, blobs on demand, compression.

mod compare;
mod engine;
mod handshake;
mod position;
mod pull;
mod push;
mod replica;
mod settings;
mod wire;

pub use engine::{Engine, LineId};
pub use position::{Issued, Point, Saved};
pub use replica::{Branch, Conflict, Fault, Local, Outcome, Parked, Replica};
pub use settings::{
    ConflictMode, Direction, Failure, Hello, Kept, NodeAddress, Notice, Settings, State, Status,
};
