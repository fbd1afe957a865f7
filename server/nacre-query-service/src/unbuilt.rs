//! Indexes that nodes must still build.

use super::catalog::has_to_build;
use super::message::{QueryMessage, QueryReply};
use nacre_node::Node;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Returns the UUIDs of the indexes of which `node` must still build its part.
pub(super) fn own_unbuilt(node: &Node) -> BTreeSet<String> {
    let cluster = node.cluster();
    let all = cluster.buckets.iter().flat_map(|(bucket, config)| {
        config.indexes.iter().map(move |index| (bucket.as_str(), index))
    });
    let unbuilt = all.filter(|(bucket, index)| has_to_build(node, bucket, index));
    unbuilt.map(|(_, index)| index.uuid.clone()).collect()
}

/// Returns the UUIDs of the indexes of which some node must still build its part. A node that does not answer counts as
/// done. Blocks for at most about a second.
pub fn unbuilt(node: &Arc<Node>) -> BTreeSet<String> {
    let mut unbuilt = own_unbuilt(node);
    for reply in node.ask_members(&QueryMessage::Unbuilt) {
        if let QueryReply::Unbuilt(found) = reply {
            unbuilt.extend(found);
        }
    }
    unbuilt
}
