//! nacre in the process: a folder, or memory alone, as a database of JSON documents, without a server.
//!
//! ```
//! use nacre::{Db, Write};
//!
//! let db = Db::open(":memory:")?;
//! let orders = db.collection("shop.orders")?;
//! orders.upsert("o1", br#"{"total":12}"#, Write::new())?;
//! assert_eq!(orders.get("o1")?.expect("it was written").body(), br#"{"total":12}"#);
//! # Ok::<(), nacre::Error>(())
//! ```
//!
//! It is the bucket of the server (nacre-bucket) with an environment of one process:
//!
//! ```text
//! Collection::get, upsert, … ─► Bucket::apply ─► memory          the calling thread, which never waits for a lock held over I/O
//! Session::receive(frames)   ─┘        │ history
//!                                      ├──► flusher ─► folder/documents    one thread, or the one that asks for durability
//!                                      └──► Changes                        whoever reads them
//! ```
//!
//! Invariants:
//! - one process has a folder open: another one gets [`Error::InUse`] at once, and a child of `fork` gets [`Error::Forked`];
//! - at most one thread is started ([`Threads::One`]), and none with [`Threads::None`]; sync, where it is asked for, has one more;
//! - after a power cut the folder opens with everything that was [durable](Sync), and of each vBucket a prefix of its history;
//! - nothing that a caller passes panics, and every refusal has a name ([`Error`]).
#![expect(
    clippy::disallowed_methods,
    reason = "an embedded database is its own environment: it reads the clock and owns a folder"
)]

mod changes;
mod collection;
mod db;
mod error;
mod folder;
mod fork;
mod gate;
#[cfg(doctest)]
mod guide;
mod host;
mod manage;
mod options;
mod runner;
mod scan;
mod session;
mod subdocument;
#[cfg(feature = "sync")]
mod sync;
mod token;

pub use changes::{Change, ChangeKind, Changes, Since};
pub use collection::{Collection, Found, Stored, Write};
pub use db::{Db, Status};
pub use error::Error;
pub use options::{Clock, Options, StoreKind, Sync, SystemClock, Threads};
pub use scan::{Range, Scan};
pub use session::Session;
pub use subdocument::{Looked, Lookup, MutateIn, Mutated, Mutation};
#[cfg(feature = "sync")]
pub use sync::{
    Conflict, ConflictMode, Direction, Failure, Hello, Kept, LineId, NodeAddress, Notice,
    PARKED_BODIES_COLLECTION, PARKED_COLLECTION, SYNC_PROTOCOL, SYNC_SCOPE, SyncEvent, SyncHandle,
    SyncOptions, SyncSession, SyncState, SyncStatus, Verdict, Version,
};

pub use nacre_types::{Cas, Now};
/// Why an operation on a part of a document failed.
pub use nacre_value::Error as PathError;
