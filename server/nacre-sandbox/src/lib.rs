//! Runs plugins on wasmtime: loads, links and limits them, feeds them with the change stream, and calls them.
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
//! A plugin is a fold over the change stream, plus readers of the resulting state. The writes of a call are
//! committed together with the progress that they reflect, or not at all; readers see the last commit.
//!
//! Invariants:
//! - Only the interfaces of `plugins/wit` that a component imports are linked; there is no WASI.
//! - The deadline is set before every call; an instance that trapped is dropped and never called again.
//! - A document that kills its instance is found by narrowing the batch, recorded as a [`DeadLetter`] and skipped.
//! - A commit that fails stops the partition, because memory and storage may then differ.
//! - There are no threads, clocks, files or sockets. The embedder calls [`Host::tick`] about once per millisecond
//!   while plugins are called; deadlines count ticks, so without them no call is ever interrupted.
//!
//! This is the only crate that names wasmtime.

mod abi;
mod artefact;
mod bulk;
mod call;
mod capability;
mod capsule;
mod clock;
mod context;
mod error;
mod feed;
mod host;
mod instance;
mod journal;
mod limits;
mod manifest;
mod pack;
mod package;
mod partition;
mod pool;
mod profile;
mod pure;
pub mod pure_script;
mod reader;
mod rehearsal;
mod replay;
pub mod script;
mod setup;
mod size;
mod status;
mod typescript;
mod usage;

pub use abi::World;
pub use capability::{
    Action, Body, Capability, Consistency, Content, Counted, Database, DatabaseIndex,
    DatabaseKeyspace, DatabaseRights, Definition, DocumentCall, DocumentReply, Documents, Failure,
    Found, FunctionPath, Grants, Header, Http, HttpError, HttpRequest, HttpResponse, IndexPage,
    IndexScan, IndexedRows, KeyspaceGrant, KvError, LogLine, Looked, MemoryDocuments,
    MutateOptions, Mutated, Mutation, NewFunction, NewIndex, NewPartitioning, NoDocuments, NoHttp,
    NoQueries, PathLookup, PathMutation, Queries, Query, QueryRows, QueryService, Row, RowRefusal,
    Rows, Script, StoreMode, TombstoneUse, TransactionSettings, TransactionStep, origin,
    path_failure,
};
pub use capsule::{
    Answer as CapsuleAnswer, Bytes, Call, Capsule, CapsuleContext, CapsuleGrants, CapsuleHistory,
    CapsuleLimits, CapsuleRequest, CapsuleVersion, DueTimer,
};
pub use context::LOG_LINES_MAX;
pub use error::Error;
pub use host::{Host, Plugin, validate};
pub use limits::Limits;
pub use manifest::{Capabilities, Keyspaces, Manifest, Wanted};
pub use nacre_budget::{Account, AccountLimit, Budget, Budgets, Exceeded, Permit, Purpose};
pub use package::{PACKAGE_BYTES_MAX, Package, digest};
pub use partition::Partition;
pub use pure::{Caller, Functions, Resolver};
pub use reader::{Answer, Reader, Request, Response, USER_HEADER};
pub use rehearsal::{Effect, Effects, Rehearsal, Rehearsed, TOO_MUCH};
pub use replay::replay;
pub use setup::Setup;
pub use status::{DeadLetter, DeadTimer, DocumentError, Report, Status};
pub use typescript::TypeScript;
pub use usage::{Histogram, Usage};
