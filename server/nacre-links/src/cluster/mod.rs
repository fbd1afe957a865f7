//! Several nodes as one: how they agree (Raft), how they reach each other, how one joins and leaves.
//!
//! ```text
//! Node::change ─► Consensus::propose ─► leader ─► Log (synced, on most nodes) ─► Machine ─► Node::apply, on each node
//! Platform::send ─► Peers ─► link ─► Node::hear
//! POST /controller/addNode ─► membership::add ─► the newcomer takes the state ─► it learns, and then votes
//! ```
//!
//! A node that is alone runs Raft too, with one voter: there is one way from a change to its effect. Raft has a thread of
//! its own, so that neither requests nor slow disks keep a heartbeat waiting.

mod consensus;
mod directory;
mod election;
mod failure;
mod frame;
mod leadership;
pub mod link;
mod log;
mod machine;
pub mod membership;
mod network;
mod peers;
pub mod request;
mod room;
mod types;

#[cfg(test)]
mod tests;

pub use consensus::Consensus;
pub use peers::Peers;
