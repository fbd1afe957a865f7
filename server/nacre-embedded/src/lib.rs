//! An embedded database of JSON documents: nacre in the process of the application, in a folder or in memory, without a server.
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
//! The library is the server's bucket (nacre-bucket) in the environment of one process:
//!
//! ```text
//! Collection::get, upsert, … ─► Bucket::apply ─► memory          the calling thread, which never waits for a lock held over I/O
//! Session::receive(frames)   ─┘        │ history
//!                                      ├──► flusher ─► folder/documents    one thread, or the caller that asks for durability
//!                                      ├──► Changes                        the caller that reads them
//!                                      └──► rows of views                  the caller that queries them
//! Db::query ─► planner, evaluator ─► Collection                             the calling thread
//! ```
//!
//! Invariants:
//! - one process has a folder open: another one gets [`Error::InUse`] at once, and a child of `fork` gets [`Error::Forked`];
//! - the library starts at most one thread ([`Threads::One`]), and none with [`Threads::None`]; sync adds one more;
//! - after a power cut the folder opens with every [durable](Sync) write, and with a prefix of the history of each vBucket;
//! - no argument of a caller causes a panic, and every refusal has a name ([`Error`]).
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
#[cfg(feature = "query")]
mod query;
mod runner;
mod scan;
mod session;
mod subdocument;
#[cfg(feature = "sync")]
mod sync;
mod token;
#[cfg(feature = "views")]
mod views;

pub use changes::{Change, ChangeKind, Changes, Since};
pub use collection::{Collection, Found, Stored, Write};
pub use db::{Db, Status};
pub use error::Error;
pub use options::{Clock, Options, StoreKind, Sync, SystemClock, Threads};
#[cfg(feature = "query")]
pub use query::{QueryOptions, QueryResult};
pub use scan::{Range, Scan};
pub use session::Session;
pub use subdocument::{Looked, Lookup, MutateIn, Mutated, Mutation};
#[cfg(feature = "sync")]
pub use sync::{
    Conflict, ConflictMode, Direction, Failure, Hello, Kept, LineId, NodeAddress, Notice,
    PARKED_BODIES_COLLECTION, PARKED_COLLECTION, SYNC_PROTOCOL, SYNC_SCOPE, SyncEvent, SyncHandle,
    SyncOptions, SyncSession, SyncState, SyncStatus, Verdict, Version,
};
#[cfg(feature = "views")]
pub use views::{Stale, ViewQuery};

pub use nacre_store::Key;
pub use nacre_types::{Cas, Now};
/// The reason why an operation on a part of a document failed.
pub use nacre_value::Error as PathError;
