//! Periodic chores: sends checkpoints to the other nodes, and removes state that nothing uses any more.

use crate::Xdcr;
use crate::message::XdcrMessage;
use crate::record::{self, Write};
use nacre_bucket::{Next, Signal, Task};
use nacre_node::Node;
use std::sync::Arc;
use std::time::Duration;

/// How often the node sends checkpoints to the other nodes.
const INTERVAL: Duration = Duration::from_secs(2);
/// Number of intervals between two clean-ups.
const CLEANING_INTERVALS: u32 = 8;
/// Maximum number of checkpoints in one message.
const MESSAGE_ROWS: usize = 500;
/// Timeout of another node for storing them.
const PATIENCE: Duration = Duration::from_secs(10);

/// The task that runs the chores.
pub(crate) struct Keeper {
    node: Arc<Node>,
    signal: Signal,
    turn: u32,
}

impl Keeper {
    /// Creates a task that `signal` wakes.
    pub fn new(node: &Arc<Node>, signal: Signal) -> Keeper {
        Keeper { node: Arc::clone(node), signal, turn: 0 }
    }

    fn share_checkpoints(&self, service: &Xdcr) {
        let Ok(checkpoints) = service.checkpoints(&self.node) else { return };
        let news = checkpoints.take_news();
        for rows in news.chunks(MESSAGE_ROWS) {
            let message = XdcrMessage::Checkpoints(rows.to_vec());
            for other in self.node.others() {
                // A node that misses checkpoints repeats more work when it takes a vBucket over; that is harmless.
                self.node.ask_with_callback(other, &message, PATIENCE, Box::new(drop));
            }
        }
    }

    /// Removes replications whose source bucket no longer exists, except those with `skipReplSpecAutoGc`.
    fn clean(&self, service: &Xdcr) {
        let cluster = self.node.cluster();
        let agreed = service.agreed.of(&cluster);
        for replication in &agreed.replications {
            let stays = replication.chosen().flag("skipReplSpecAutoGc");
            if stays || replication.has_source(&cluster) {
                continue;
            }
            let removed = record::put(&self.node, &cluster, &Write::NoReplication(&replication.id));
            match removed {
                Ok(()) => tracing::warn!(
                    "replication {}: removed, as the bucket {} does not exist any more",
                    replication.id,
                    replication.source
                ),
                // Another node removed the replication first, or the nodes cannot agree now.
                Err(error) => tracing::debug!("replication {}: {error}", replication.id),
            }
        }
        if let Ok(checkpoints) = service.checkpoints(&self.node)
            && let Err(error) = checkpoints.forget_others(|id| agreed.replication(id).is_some())
        {
            tracing::warn!("replication: old checkpoints cannot be removed: {error}");
        }
    }
}

impl Task for Keeper {
    fn name(&self) -> &'static str {
        "xdcr-keeper"
    }

    fn is_background(&self) -> bool {
        true
    }

    fn is_vital(&self) -> bool {
        false
    }

    fn step(&mut self) -> Next {
        let Some(service) = self.node.service::<Xdcr>() else { return Next::Done };
        if service.is_over() {
            return Next::Done;
        }
        self.share_checkpoints(service);
        self.turn += 1;
        if self.turn.is_multiple_of(CLEANING_INTERVALS) {
            self.clean(service);
        }
        Next::After(INTERVAL)
    }

    fn signal(&self) -> &Signal {
        &self.signal
    }
}
