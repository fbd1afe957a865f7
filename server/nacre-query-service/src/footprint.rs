//! What nodes keep for a request until it ends.

use super::message::QueryMessage;
use crate::NodeQueries;
use nacre_node::Node;
use nacre_types::NodeId;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::time::Duration;

/// How long another node may take to learn that a request has ended.
const FORGET_PATIENCE: Duration = Duration::from_secs(5);

/// What nodes keep for a request.
pub(super) struct Footprint {
    /// Number under which the request asks other nodes.
    pub asker: u64,
    /// The buckets of which nodes may keep something.
    buckets: Mutex<BTreeSet<String>>,
    /// The nodes that were asked for partitions of indexes: the same of them.
    pub holders: Mutex<BTreeSet<NodeId>>,
}

impl Footprint {
    /// A request for which nothing is kept yet.
    pub fn new(asker: u64) -> Footprint {
        Footprint { asker, buckets: Mutex::default(), holders: Mutex::default() }
    }

    /// Notes that the nodes of a bucket may keep something.
    pub fn note(&self, bucket: &str) {
        self.buckets.lock().insert(bucket.to_owned());
    }

    /// Lets all nodes forget the request.
    pub fn clear(&mut self, node: &Node) {
        node.queries().forget(self.asker);
        let buckets = std::mem::take(self.buckets.get_mut());
        let owners = buckets.iter().filter_map(|bucket| node.owners(bucket));
        let mut nodes: BTreeSet<NodeId> = owners.flat_map(|owners| owners.nodes()).collect();
        nodes.append(self.holders.get_mut());
        for other in nodes.into_iter().filter(|other| *other != node.id()) {
            // The answer is not needed.
            drop(node.ask(other, &QueryMessage::Forget(self.asker), FORGET_PATIENCE));
        }
    }
}
