//! Backups of buckets: a repository of immutable objects in a folder or an object store.
//!
//! ```text
//! nacre-backup.json                  format, id, key slot           written once
//! backups/<id>/data/<n>.nbk          blocks of records              written once, under a number that was never used
//! progress/<id>/begin.json, <n>.json vBuckets that are complete     for a backup that is resumed; removed at the end
//! backups/<id>/manifest.json         names all of the above         written last, if absent: its existence completes the backup
//! locks/<id>.json                    backups that are read or removed; ends by itself
//! ```
//!
//! A backup has for each vBucket a *part*: the records of `(from, to]`, and the backup whose part ends at `from`, its *base*. The parts from
//! one that begins at 0 up to the newest are the *lineage* of the vBucket; replayed in order they give its state at `to`. A vBucket in which
//! nothing happened has no part: that of the backup before counts.
//!
//! ```text
//! [`Repository`] ─► [`Task`] ─► a [`Worker`] a thread ─► a [`VbucketTake`] a vBucket ─► Task::complete: the manifest
//!               │     └► Task::join, on other nodes: vBuckets of the same backup, found by Task::refresh
//!               └► [`Reader`]: records of a backup, oldest first ─► [`merge`]: increments as one backup
//! ```
//!
//! *Invariants:* a part ends where a snapshot of the source ends, so that no key is missing from it whose newer version came later. A part
//! continues a base that the source has confirmed to be a prefix of its history; what a failover discarded is never in a lineage. Nothing
//! that a repository holds panics a reader, leads outside of the repository, or makes it allocate more than [`BLOCK_RAW_BYTES_MAX`] at a
//! time for a block and [`OBJECT_BYTES_MAX`] for an object.
//!
//! The crate has no clock, randomness, thread or socket: they are arguments. Only [`FolderStore`] touches files.

mod address;
mod block;
mod cipher;
mod contract;
mod error;
mod id;
mod lock;
mod manifest;
mod merge;
mod reader;
mod record;
mod repository;
mod store;
mod take;
mod task;
mod verify;

pub use address::{ObjectStoreKind, RemoteAddress, SCHEMES, Scheme};
pub use block::{BLOCK_RAW_BYTES, BLOCK_RAW_BYTES_MAX, Block, BlockBuilder, decode_block};
pub use cipher::{Cipher, KeySlot, PASSPHRASE_ROUNDS};
pub use contract::check_store;
pub use error::{Error, StoreError};
pub use id::BackupId;
pub use lock::{LOCK_MS, Lock, LockKind};
pub use manifest::{
    BucketPart, Collection, FORMAT, Manifest, ObjectInfo, Parent, Run, VbucketPart, Versions,
    decode_manifest,
};
pub use merge::{MergeRange, merge};
pub use reader::{Digest, Lineage, Reader};
pub use record::{Record, RecordKind};
pub use repository::{Repository, RepositoryFile};
pub use store::{FolderStore, MemoryStore, Store};
pub use take::{StreamRequest, VbucketTake};
pub use task::{
    BucketSource, OBJECT_BYTES, OBJECT_BYTES_MAX, SHARE_NUMBERS, Task, TaskOptions, Worker,
};
pub use verify::{Finding, Verified, verify};
