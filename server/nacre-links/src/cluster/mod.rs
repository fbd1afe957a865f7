//! Several nodes as one cluster: agreement (Raft), links between nodes, joining and leaving.
//!
//! ```text
//! Node::change ─► Consensus::propose ─► leader ─► Log (synced, on most nodes) ─► Machine ─► Node::apply, on each node
//! Platform::send ─► Peers ─► link ─► Node::receive
//! POST /controller/addNode ─► membership::add ─► the new node receives the state ─► learner ─► voter
//! ```
//!
//! A single node runs Raft too, with one voter, so that there is only one path from a change to its effect. Raft has its
//! own thread, so that neither requests nor slow disks delay heartbeats.

mod consensus;
mod directory;
mod disk_space;
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
mod types;

#[cfg(test)]
mod tests;

pub use consensus::Consensus;
pub use peers::Peers;
