//! Messages about the node itself: its usage, and whether its services have followed a rebalance.

use super::{NoReply, PeerMessage, Usage};
use crate::node::Node;
use crate::service::{NODE, Service, ServiceSpec};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A message to a node about itself.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum NodeMessage {
    /// Asks whether all services have taken over the vBuckets that the node serves, and have released the
    /// others.
    Settled,
    /// Asks for the node's usage of each bucket.
    Usage,
}

/// A reply of a node about itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum NodeReply {
    /// Reply to [`NodeMessage::Settled`].
    Settled(bool),
    /// Reply to [`NodeMessage::Usage`], by bucket.
    Usage(BTreeMap<String, Usage>),
}

impl PeerMessage for NodeMessage {
    type Reply = NodeReply;

    const SERVICE: &'static str = NODE.id;

    fn subject(&self) -> &'static str {
        match self {
            NodeMessage::Settled => "settled",
            NodeMessage::Usage => "usage",
        }
    }

    fn answer(self, node: &Arc<Node>, _left: Duration) -> Result<NodeReply, NoReply> {
        Ok(match self {
            NodeMessage::Settled => NodeReply::Settled(node.has_settled()),
            NodeMessage::Usage => NodeReply::Usage(Usage::of_node(node)),
        })
    }
}

/// Answers messages about the node itself.
#[derive(Debug, Default)]
pub struct NodeService;

impl Service for NodeService {
    fn spec(&self) -> &'static ServiceSpec {
        &NODE
    }

    fn answer(&self, node: &Arc<Node>, message: &[u8], left: Duration) -> Vec<u8> {
        node.answer_message::<NodeMessage>(message, left)
    }
}
