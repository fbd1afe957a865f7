//! Which indexes the nodes have yet to build.

use super::{Answer, Question};
use crate::node::Node;
use nacre_cluster::Membership;
use nacre_types::NodeId;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// How long the others have to answer. They only read what they know.
const PATIENCE: Duration = Duration::from_secs(1);

impl Node {
    /// The indexes, by their identities, of which this node has yet to build its part.
    pub(crate) fn own_unbuilt(&self) -> BTreeSet<String> {
        let cluster = self.cluster();
        let all = cluster.buckets.iter().flat_map(|(bucket, config)| {
            config.indexes.iter().map(move |index| (bucket.as_str(), index))
        });
        let unbuilt = all.filter(|(bucket, index)| self.state_of(bucket, index) == "building");
        unbuilt.map(|(_, index)| index.uuid.clone()).collect()
    }

    /// The indexes, by their identities, of which some node has yet to build its part. What one that does not answer has to do
    /// is not in it. Blocks, for about a second at most.
    pub fn unbuilt(self: &Arc<Node>) -> BTreeSet<String> {
        let cluster = self.cluster();
        let is_asked = |id: &NodeId| {
            cluster.nodes.get(id).is_some_and(|node| node.membership != Membership::FailedOver)
        };
        let others = self.others().into_iter().filter(is_asked);
        let asked: Vec<_> = others.map(|id| self.ask(id, Question::Unbuilt, PATIENCE)).collect();
        let mut unbuilt = self.own_unbuilt();
        for answer in asked {
            if let Ok(Answer::Unbuilt(told)) = self.answered(&answer) {
                unbuilt.extend(told);
            }
        }
        unbuilt
    }
}
