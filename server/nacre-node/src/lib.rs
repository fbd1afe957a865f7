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
pub mod changes;
pub mod cluster_map;
mod copies;
mod effects;
mod error;
mod health;
pub mod journal;
pub mod kv;
mod logins;
mod memory;
mod node;
mod orchestration;
mod outgoing;
pub mod password_reset;
mod platform;
pub mod plugins;
pub mod query;
mod replication;
mod spread;

pub use error::Error;
pub use health::{Problem, ProblemKind};
pub use logins::{LoginCallback, LoginOutcome, Logins};
pub use memory::NodeMemory;
pub use node::Node;
pub use outgoing::Outgoing;
pub use platform::{Hear, Link, Platform, Told, Unanswered};
pub use spread::Usage;
