//! One node: buckets and services connected over an injected clock and store.
//!
//! ```text
//! nacre-bucket: history ──► Feed (nacre-plugins-service) ──► plugin partition   raises `Deployment::processed`
//!                   ▲
//!                   └─ opened, configured and arranged by effects
//! REST ──► Node::change ──► Agreement ──► Node::apply (stored) ──► effects on buckets, collections, deployments
//! ```
//!
//! No sockets, no clock, no files: a [`Platform`] provides time, randomness and storage, and runs the node's
//! [`nacre_bucket::Task`]s. `nacre-server` is one embedder, a simulator another.

pub mod agreement;
pub mod block;
pub mod cluster_map;
mod copies;
mod effects;
mod error;
mod health;
pub mod journal;
mod memory;
mod node;
mod orchestration;
mod outgoing;
pub mod password_reset;
mod pending_effects;
mod platform;
mod replication;
pub mod scatter_gather;
pub mod service;
mod sessions;

pub use error::Error;
pub use health::{Problem, ProblemKind, problems};
pub use memory::NodeMemory;
pub use node::Node;
pub use outgoing::Outgoing;
pub use platform::{Link, PeerError, PeerMessageHandler, Platform, ReplyCallback};
pub use scatter_gather::{
    NoReply, PeerFailure, PeerMessage, PendingReply, ScatterRequest, ShardReply, Usage, read_reply,
};
