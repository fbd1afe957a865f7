//! Buckets on one node, the tasks that serve them, and key-value sessions: what can be embedded without a cluster.
//!
//! ```text
//! bytes ──► kv::Session ──► Bucket::apply ──► Vbucket (one short lock)
//!                                │ note, wake
//!                                ├──► Flusher ──► Store   raises `Bucket::persisted`
//!                                └──► consumers of history: DCP streams, plugins, copies on other nodes
//! ```
//!
//! No sockets, no clock, no files: a [`BucketEnv`] gives time and random numbers and runs the [`Task`]s, a [`kv::KvEnv`] has users and the
//! cluster map, and the store is an argument of [`Bucket::open`].
//!
//! Invariants:
//! - no thread of a connection waits for a disk or for another connection: what takes long is a [`Task`]'s, and the session parks the
//!   request until its [`Ticket`] is settled;
//! - a write is acknowledged from memory; consumers of history only learn which vBuckets have news, and never delay it;
//! - nothing here names a plugin, a node's agreement or HTTP.

mod bucket;
mod change_consumer;
pub mod compactor;
pub mod conflict;
mod copies;
mod dcp_connections;
pub mod durability;
mod env;
pub mod events;
mod flusher;
mod keeper;
pub mod kv;
mod lease;
mod listeners;
mod logins;
mod operations;
pub mod prefetch;
pub mod range_scan;
mod retention;
mod slow;
mod task;
mod ticket;
mod waits;
mod warmup;
mod watermark;
mod worker;

pub use bucket::{Bucket, Home, KeyspaceEvent};
pub use change_consumer::ChangeConsumer;
pub use copies::{CopyRetention, ReceiveError};
pub(crate) use dcp_connections::{DcpConnection, DcpConnections};
pub use env::BucketEnv;
pub use lease::Lease;
pub use listeners::{DirtyVbuckets, HistoryListeners};
pub use logins::{LoginCallback, LoginOutcome, Logins};
pub use operations::OperationCounts;
pub use slow::{SlowLog, SlowOperation, SlowService, SlowSettings};
pub use task::{Next, Signal, Task, before_blocking, on_blocking};
pub use ticket::{Ticket, Waiter, Watchers};
pub use watermark::Watermarks;
