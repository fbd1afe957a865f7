//! Sync of a device's database with a bucket of a cluster ("the hub"), as a state machine: bytes in, bytes out.
//!
//! ```text
//!            frames of the key-value protocol
//! hub ◄───────────────────────────────────────► Engine ◄──► Replica: documents, history and stored state
//!       pull: a stream of each vBucket            │
//!       push: versions, each over a known one   └──► Notice, Status
//! ```
//!
//! A device is a leaf: only the device decides between its version and the hub's, and it writes a version over exactly the hub's
//! version that it knows. So the hub needs no resolver, and any number of devices become equal to it.
//!
//! - A document is *in step* when its history (`_vv`) belongs to its own CAS: the hub has, or had, exactly this version. Any
//!   write of the application changes the CAS and so makes the document *unsent*. Nothing else records what must be sent.
//! - **Pull.** Each vBucket of the hub is streamed from its position. The device takes a version that contains its own, and
//!   overwrites at the hub a version that its own contains; otherwise there is a conflict ([`ConflictMode`]).
//! - **Push.** An unsent version is sent to the hub under the condition that the hub still has the version that it was written
//!   over. If the condition fails, nothing is lost: the pull brings the hub's version, which is then compared.
//! - **Positions** are stored only while no write is in flight, and after the documents: work that a kill interrupts is repeated,
//!   and has no effect the second time.
//!
//! Invariants:
//! - no I/O, no clock, no randomness: `now` is an argument, the replica is a trait;
//! - an edit of the device is replaced only if it reached the hub, the application decided so, or it is parked with a reason;
//! - a decision reaches the hub before the device, so that no two devices have decisions that the hub does not know.
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
