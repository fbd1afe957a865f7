//! Which indexes the nodes have yet to build.

use super::{Answer, Question};
use crate::node::Node;
use std::collections::BTreeSet;
use std::sync::Arc;

impl Node {
    /// The indexes, by their identities, of which this node has yet to build its part.
    pub(crate) fn own_unbuilt(&self) -> BTreeSet<String> {
        let cluster = self.cluster();
        let all = cluster.buckets.iter().flat_map(|(bucket, config)| {
            config.indexes.iter().map(move |index| (bucket.as_str(), index))
        });
        let unbuilt = all.filter(|(bucket, index)| self.has_to_build(bucket, index));
        unbuilt.map(|(_, index)| index.uuid.clone()).collect()
    }

    /// The indexes, by their identities, of which some node has yet to build its part. What one that does not answer has to do
    /// is not in it. Blocks, for about a second at most.
    pub fn unbuilt(self: &Arc<Node>) -> BTreeSet<String> {
        let mut unbuilt = self.own_unbuilt();
        for answer in self.ask_members(&Question::Unbuilt) {
            if let Answer::Unbuilt(told) = answer {
                unbuilt.extend(told);
            }
        }
        unbuilt
    }
}
