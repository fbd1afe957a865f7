//! Messages between the nodes of one cluster.

use crate::checkpoints::Rows;
use crate::status::Status;
use crate::{SPEC, Xdcr};
use nacre_node::{NoReply, Node, PeerMessage};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// What a node asks another one, or says to it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum XdcrMessage {
    /// What the replications do there.
    Statuses,
    /// How far vBuckets are replicated, for the node that may take them over.
    Checkpoints(Rows),
}

/// The reply.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum XdcrReply {
    /// By ID of the replication.
    Statuses(Vec<(String, Status)>),
    /// They are noted.
    Noted,
}

impl PeerMessage for XdcrMessage {
    type Reply = XdcrReply;

    const SERVICE: &'static str = SPEC.id;

    fn subject(&self) -> &'static str {
        match self {
            XdcrMessage::Statuses => "xdcr-statuses",
            XdcrMessage::Checkpoints(_) => "xdcr-checkpoints",
        }
    }

    fn answer(self, node: &Arc<Node>, _left: Duration) -> Result<XdcrReply, NoReply> {
        let service = node.service::<Xdcr>();
        let service = service.ok_or_else(|| NoReply::internal("there is no replication here"))?;
        match self {
            XdcrMessage::Statuses => Ok(XdcrReply::Statuses(service.own_statuses())),
            XdcrMessage::Checkpoints(rows) => {
                let checkpoints = service.checkpoints(node);
                let noted = checkpoints.and_then(|checkpoints| Ok(checkpoints.receive(rows)?));
                noted.map_err(|error| NoReply::internal(error.to_string()))?;
                Ok(XdcrReply::Noted)
            }
        }
    }
}
