//! Messages between the search services of nodes.

use nacre_node::{NoReply, Node, PeerMessage};
use nacre_plugins_service::{NodePlugins, Progress};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// Timeout of a node's report about its progress.
const PATIENCE: Duration = Duration::from_secs(5);

/// Asks a node for the progress of the deployment with that name.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SearchMessage(String);

/// The progress of a node's part of an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Extent {
    /// Number of changes that the index does not contain yet.
    pub pending: u64,
    /// Number of documents indexed since the node opened the index.
    pub taken: u64,
    /// Size of the index files, in bytes.
    pub bytes: u64,
    /// Number of nodes whose part is still being built for the first time, or cannot be built.
    pub incomplete: u64,
}

impl PeerMessage for SearchMessage {
    type Reply = Extent;

    const SERVICE: &'static str = crate::ID;

    fn subject(&self) -> &'static str {
        "search"
    }

    fn answer(self, node: &Arc<Node>, _left: Duration) -> Result<Extent, NoReply> {
        Ok(here(node, &self.0))
    }
}

fn here(node: &Node, name: &str) -> Extent {
    let Some(deployment) = node.plugins().deployment(name) else {
        return Extent { incomplete: 1, ..Extent::default() };
    };
    let status = deployment.status();
    let runs = matches!(deployment.progress(), Progress::Running | Progress::Paused);
    let pending = deployment.lag();
    Extent {
        pending,
        taken: status.documents,
        bytes: status.state_bytes as u64,
        incomplete: u64::from(!runs || pending > 0 && !deployment.is_complete()),
    }
}

/// Returns the progress of an index on all nodes. Nodes that do not answer count as incomplete.
pub(crate) fn extent(node: &Arc<Node>, name: &str) -> Extent {
    let message = SearchMessage(name.to_owned());
    let others = node.others().into_iter();
    let asked: Vec<_> = others.map(|other| node.ask(other, &message, PATIENCE)).collect();
    let silent = Extent { incomplete: 1, ..Extent::default() };
    let replies = asked.iter().map(|reply| match reply.wait() {
        Ok(Ok(extent)) => extent,
        _ => silent,
    });
    replies.fold(here(node, name), |sum, one| Extent {
        pending: sum.pending + one.pending,
        taken: sum.taken + one.taken,
        bytes: sum.bytes + one.bytes,
        incomplete: sum.incomplete + one.incomplete,
    })
}
