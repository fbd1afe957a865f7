//! Messages between the search services of nodes.

use nacre_node::{NoReply, Node, PeerMessage};
use nacre_plugins_service::{NodePlugins, Progress};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// How long another node may take to say how far it is.
const PATIENCE: Duration = Duration::from_secs(5);

/// Asks how far the deployment of that name is on a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SearchMessage(String);

/// How far the part of an index on a node is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Extent {
    /// Changes of documents that are not in the index yet.
    pub pending: u64,
    /// Documents that were taken since the node has opened the index.
    pub taken: u64,
    /// Bytes of its files.
    pub bytes: u64,
    /// Nodes whose part is still built for the first time, or cannot be.
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

/// How far an index is on all nodes. Nodes that do not answer count as incomplete.
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
