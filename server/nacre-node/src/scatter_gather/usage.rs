//! Disk and memory usage of each bucket on the nodes.

use super::{NodeMessage, NodeReply};
use crate::node::Node;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Usage of a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Documents in the vBuckets that the node serves, without tombstones.
    pub documents: u64,
    /// Memory of all copies, in bytes.
    pub memory_bytes: u64,
    /// Files of all copies, in bytes.
    pub disk_bytes: u64,
    /// Current versions in the files, in bytes.
    pub live_bytes: u64,
}

impl Usage {
    /// Returns a node's usage of each bucket.
    pub fn of_node(node: &Node) -> BTreeMap<String, Usage> {
        let cluster = node.cluster();
        let buckets = cluster.buckets.keys().filter_map(|name| node.bucket(name));
        let usage = buckets.map(|bucket| {
            let (documents, memory_bytes) = bucket.usage();
            let disk = bucket.disk_usage();
            let (disk_bytes, live_bytes) = (disk.disk_bytes, disk.live_bytes);
            (bucket.name.clone(), Usage { documents, memory_bytes, disk_bytes, live_bytes })
        });
        usage.collect()
    }

    /// Returns the usage of each bucket on all member nodes, as `node` learns it. Omits nodes that do not answer,
    /// because operators need the figures of the others most when a node is lost. Blocks for about a second at most.
    pub fn of_cluster(node: &Node) -> BTreeMap<String, Usage> {
        let mut sum = Usage::of_node(node);
        for reply in node.ask_members(&NodeMessage::Usage) {
            let NodeReply::Usage(usages) = reply else { continue };
            for (bucket, usage) in usages {
                sum.entry(bucket).or_default().add(&usage);
            }
        }
        sum
    }

    fn add(&mut self, other: &Usage) {
        self.documents += other.documents;
        self.memory_bytes += other.memory_bytes;
        self.disk_bytes += other.disk_bytes;
        self.live_bytes += other.live_bytes;
    }
}
