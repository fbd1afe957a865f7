//! Buckets on one node, the tasks that serve them, and key-value sessions: the tier that can be embedded without a
//! cluster.
//!
//! ```text
//! bytes ──► kv::Session ──► Bucket::apply ──► Vbucket (one short lock)
//!                                │ note, wake
//!                                ├──► Flusher ──► Store   raises `Bucket::persisted`
//!                                └──► consumers of history: DCP streams, plugins, copies on other nodes
//! ```
//!
//! No sockets, no clock, no files: a [`BucketEnv`] provides time and random numbers and runs the [`Task`]s, a [`kv::KvEnv`]
//! provides users and the cluster map, and the store is an argument of [`Bucket::open`].
//!
//! Invariants:
//! - no connection's thread waits for a disk or another connection: slow work belongs to a [`Task`], and the session parks the
//!   request until its [`Ticket`] is settled;
//! - a write is acknowledged from memory; consumers of history only learn which vBuckets have changed, and never delay a write;
//! - nothing here depends on plugins, on the nodes' agreement or on HTTP.

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
