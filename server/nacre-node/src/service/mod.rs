//! Services: what a node does for clients besides its vBuckets, each behind one trait.
//!
//! The node knows no service by name: it holds a list, and hands each what happens to it.

use crate::changes::ChangesService;
use crate::node::Node;
use crate::plugins::Plugins;
use crate::query::Queries;
use crate::scatter_gather::{NoReply, NodeService};
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

/// A service of a node.
pub trait Service: Any + Send + Sync {
    /// Returns the name of the service in messages between nodes: lower-case ASCII, unique in the node.
    fn id(&self) -> &'static str;

    /// Answers a message of the same service on another node. Blocks, for `left` at most.
    ///
    /// Most services have one type of [`PeerMessage`](crate::PeerMessage), and answer by [`Node::answer_message`].
    fn answer(&self, node: &Arc<Node>, message: &[u8], left: Duration) -> Vec<u8> {
        let (_, _, _) = (node, message, left);
        NoReply::internal(format!("{} takes no messages", self.id())).to_bytes()
    }

    /// Returns true if what the service does with vBuckets is done on this node for those that it serves, and for no others: a
    /// rebalance waits for it.
    fn has_settled(&self, node: &Arc<Node>) -> bool {
        let _ = node;
        true
    }
}

/// Returns the services that come with a node.
pub fn shipped() -> Vec<Arc<dyn Service>> {
    vec![
        Arc::new(NodeService),
        Arc::<Queries>::default(),
        Arc::<ChangesService>::default(),
        Arc::<Plugins>::default(),
    ]
}

impl Node {
    /// Returns the service of type `S`; `None` where the node was started without it.
    pub fn service<S: Service>(&self) -> Option<&S> {
        let mut services = self.services.iter();
        services.find_map(|service| (&**service as &dyn Any).downcast_ref::<S>())
    }

    /// Returns true if every service has come to the vBuckets that the node serves, and has left the others.
    pub(crate) fn has_settled(self: &Arc<Node>) -> bool {
        self.services.iter().all(|service| service.has_settled(self))
    }

    /// Returns the services of the node, in the order of their ports.
    pub fn services(&self) -> &[Arc<dyn Service>] {
        &self.services
    }
}
