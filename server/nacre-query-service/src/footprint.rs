//! Data that nodes keep for a request until it ends.

use super::message::QueryMessage;
use crate::NodeQueries;
use nacre_node::Node;
use nacre_types::NodeId;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::time::Duration;

/// Time limit for another node to learn that a request has ended.
const FORGET_PATIENCE: Duration = Duration::from_secs(5);

/// A record of the nodes that keep data for a request.
pub(super) struct Footprint {
    /// The number under which the request asks other nodes.
    pub asker: u64,
    /// The buckets whose nodes may keep data.
    buckets: Mutex<BTreeSet<String>>,
    /// The nodes that were asked for partitions of indexes; they may keep data too.
    pub holders: Mutex<BTreeSet<NodeId>>,
}

impl Footprint {
    /// Creates the footprint of a request for which no data is kept yet.
    pub fn new(asker: u64) -> Footprint {
        Footprint { asker, buckets: Mutex::default(), holders: Mutex::default() }
    }

    /// Records that the nodes of a bucket may keep data.
    pub fn note(&self, bucket: &str) {
        self.buckets.lock().insert(bucket.to_owned());
    }

    /// Makes all nodes drop their data of the request.
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
