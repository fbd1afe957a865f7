//! Durable vBuckets: the [`Store`] trait with sled, log, memory and fault-injecting back ends, and [`Spaces`] for the
//! other data of a node (its settings, plugin state).
//!
//! # The contract
//!
//! A commit takes versions of documents and, for each of their vBuckets, a [`nacre_types::VbRecord`] that describes the
//! vBucket after the commit. When `commit` returns, both survive a power cut. After a crash, exactly a prefix of each
//! vBucket's acknowledged commits is stored (perhaps followed by one that was in progress), and the record describes
//! that prefix: high seqno, failover log, greatest CAS, number of documents.
//!
//! Unreadable data is reported by name, and a history is never silently shortened: records carry checksums, a vBucket's
//! record counts its documents, and a note next to the database counts the acknowledged commits.
//!
//! With a [`MasterKey`] a [`LogStore`] encrypts all parts of documents: keys, values, metadata, and hashes of keys.
#![expect(clippy::disallowed_methods, reason = "this crate owns the files of a node")]

mod codec;
mod disk;
mod error;
mod fault;
#[cfg(feature = "fjall")]
mod fjall_store;
mod key;
mod log;
mod log_space;
mod memory;
mod note;
mod rows;
mod seal;
mod sim_disk;
mod sled_store;
mod space;
mod space_files;
mod store;

pub use disk::{Disk, DiskFile, create_private_directory};
pub use error::Error;
pub use fault::{Fault, FaultStore};
#[cfg(feature = "fjall")]
pub use fjall_store::FjallStore;
pub use key::{Key, MasterKey};
pub use log::{LogOptions, LogStore};
pub use log_space::{LogSpaces, OnDamage};
pub use memory::MemoryStore;
pub use sim_disk::{Loss, Replay, SimDisk, Trouble};
pub use sled_store::SledStore;
pub use space::{MemorySpaces, Space, Spaces, Write};
pub use space_files::SpaceFiles;
pub use store::{COMMIT_DOCUMENTS_MAX, Commit, HistorySize, Scan, Store, Usage, Which, load_all};
