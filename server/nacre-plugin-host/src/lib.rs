//! Runs plugins on wasmtime: load, grant, limit, feed with the change stream, call.
//!
//! ```text
//!                       Host (engine, compiler)
//!                         │ compile → artefact → load
//!                       Plugin (compiled, linked)
//!                         │ open(config, limits, storage)
//!  Batch ──on_batch──► Partition ── one writer instance
//!                         │   writes + progress: one atomic commit
//!                         ▼
//!                      KeySpace ── snapshot ──► Reader, Reader, … ◄── Request
//! ```
//!
//! A plugin is a fold over the change stream plus readers of the state it folds into. What a call writes is
//! committed together with the progress it reflects, or not at all; readers see the last commit.
//!
//! Invariants:
//! - Nothing is linked but the interfaces of `plugins/wit` that a component imports; there is no WASI.
//! - The deadline is armed anew before every call; an instance that trapped is dropped, never called again.
//! - A document that kills its instance is found by narrowing the batch, parked as a [`DeadLetter`] and skipped.
//! - A commit that fails stops the partition: memory and storage may differ then.
//! - No thread, clock, file or socket. The embedder calls [`Host::tick`] once a millisecond; deadlines count
//!   ticks, so without them nothing is ever interrupted.
//!
//! This is the only crate that names wasmtime.

mod abi;
mod error;
mod feed;
mod host;
mod instance;
mod limits;
mod manifest;
mod pack;
mod package;
mod partition;
mod reader;
mod space;
mod status;
mod storage;

pub use error::Error;
pub use host::{Host, Plugin, validate};
pub use limits::Limits;
pub use manifest::{Capabilities, Keyspaces, Manifest, Wanted, World};
pub use package::{PACKAGE_BYTES_MAX, Package};
pub use partition::Partition;
pub use reader::{Reader, Request, Response};
pub use status::{DeadLetter, DocumentError, LogLine, Report, Status};
pub use storage::{Loaded, MemoryStorage, StateStorage};
