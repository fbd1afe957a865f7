//! One node: services and loops wired together over an injected clock and store.
//!
//! ```text
//! bytes ──► kv::Session ──► Bucket::apply ──► Vbucket (one short lock)
//!                                │ note, wake
//!                                ├──► Flusher       ──► Store           raises `Bucket::persisted`
//!                                └──► plugins::Feed   ──► plugin partition raises `Deployment::processed`
//! REST  ──► Node::change ──► Agreement ──► Node::apply (stored) ──► takes effect: buckets, collections, deployments
//! ```
//!
//! No sockets, no clock, no files: a [`Platform`] gives time, chance and storage and runs the node's [`Task`]s.
//! `nacre-server` is one embedder, a simulator another.

pub mod agreement;
mod arrears;
mod block;
mod bucket;
pub mod changes;
pub mod cluster_map;
pub mod compactor;
pub mod conflict;
mod copies;
mod durability;
mod effects;
mod error;
mod events;
mod flusher;
mod health;
pub mod journal;
mod keeper;
pub mod kv;
mod line;
mod logins;
mod memory;
mod node;
mod orchestration;
mod outgoing;
pub mod password_reset;
mod platform;
pub mod plugins;
pub mod query;
mod range_scan;
mod reader;
mod replication;
mod retention;
mod spread;
mod tap;
mod ticket;
mod waits;
mod warmup;
mod watermark;
mod worker;

pub use bucket::{Bucket, Home};
pub use error::Error;
pub use health::{Problem, ProblemKind};
pub use logins::{LoginCallback, LoginOutcome, Logins};
pub use memory::NodeMemory;
pub use node::Node;
pub use outgoing::Outgoing;
pub use platform::{
    Hear, Link, Next, Platform, Signal, Task, Told, Unanswered, about_to_hold_up, before_holding_up,
};
pub use spread::{Usage, Vbids};
pub use ticket::Waiter;
pub use watermark::Watermarks;
