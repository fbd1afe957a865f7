//! Indexes that the nodes have yet to build.

use super::message::{QueryMessage, QueryReply};
use crate::node::Node;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Returns the indexes, by their UUIDs, of which `node` has yet to build its part.
pub(super) fn own_unbuilt(node: &Node) -> BTreeSet<String> {
    let cluster = node.cluster();
    let all = cluster.buckets.iter().flat_map(|(bucket, config)| {
        config.indexes.iter().map(move |index| (bucket.as_str(), index))
    });
    let unbuilt = all.filter(|(bucket, index)| node.has_to_build(bucket, index));
    unbuilt.map(|(_, index)| index.uuid.clone()).collect()
}

impl Node {
    /// Returns the indexes, by their UUIDs, of which some node has yet to build its part. A node that does not answer counts as
    /// done. Blocks, for about a second at most.
    pub fn unbuilt(self: &Arc<Node>) -> BTreeSet<String> {
        let mut unbuilt = own_unbuilt(self);
        for reply in self.ask_members(&QueryMessage::Unbuilt) {
            if let QueryReply::Unbuilt(told) = reply {
                unbuilt.extend(told);
            }
        }
        unbuilt
    }
}
