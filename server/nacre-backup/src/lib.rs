//! Backups of buckets: a repository of immutable objects in a folder or an object store.
//!
//! ```text
//! nacre-backup.json                  format, id, key slot           written once
//! backups/<id>/data/<n>.nbk          blocks of records              written once, under an unused number
//! progress/<id>/begin.json, <n>.json completed vBuckets            for resuming a backup; removed at the end
//! backups/<id>/manifest.json         names all of the above         written last, if absent: its existence completes the backup
//! locks/<id>.json                    backups being read or removed     expires by itself
//! ```
//!
//! A backup has for each vBucket a *part*: the records of `(from, to]` and its *base*, the backup whose part ends at `from`. The
//! *lineage* of a vBucket is the sequence of parts from one that begins at 0 to the newest; replayed in order, they give the
//! vBucket's state at `to`. A vBucket without changes has no part: the part of the previous backup applies.
//!
//! ```text
//! [`Repository`] ─► [`Task`] ─► a [`Worker`] per thread ─► a [`VbucketTake`] per vBucket ─► Task::complete: the manifest
//!               │     └► Task::join, on other nodes: vBuckets of the same backup, found by Task::refresh
//!               └► [`Reader`]: records of a backup, oldest first ─► [`merge`]: increments as one backup
//! ```
//!
//! *Invariants:* a part ends where a snapshot of the source ends, because within a snapshot a key may be missing whose newer
//! version comes later. A part continues a base only if the source has confirmed that the base is a prefix of its history; a
//! lineage never contains versions that a failover discarded. No content of a repository makes a reader panic, leave the
//! repository, or allocate more than [`BLOCK_RAW_BYTES_MAX`] at a time for a block and [`OBJECT_BYTES_MAX`] for an object.
//!
//! The crate has no clock, randomness, threads or sockets: they are arguments. Only [`FolderStore`] accesses files.

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
