//! What happens now and then: checkpoints go to the other nodes, and what belongs to nothing any more is removed.

use crate::Xdcr;
use crate::message::XdcrMessage;
use crate::record::{self, Write};
use nacre_bucket::{Next, Signal, Task};
use nacre_node::Node;
use std::sync::Arc;
use std::time::Duration;

/// How often checkpoints go to the other nodes.
const INTERVAL: Duration = Duration::from_secs(2);
/// How many intervals lie between two looks for what is to be removed.
const CLEANING_INTERVALS: u32 = 8;
/// Checkpoints of one message.
const MESSAGE_ROWS: usize = 500;
/// How long another node may take to note them.
const PATIENCE: Duration = Duration::from_secs(10);

/// The task.
pub(crate) struct Keeper {
    node: Arc<Node>,
    signal: Signal,
    turn: u32,
}

impl Keeper {
    /// A task that the signal wakes.
    pub fn new(node: &Arc<Node>, signal: Signal) -> Keeper {
        Keeper { node: Arc::clone(node), signal, turn: 0 }
    }

    fn pass_on(&self, service: &Xdcr) {
        let Ok(checkpoints) = service.checkpoints(&self.node) else { return };
        let news = checkpoints.take_news();
        for rows in news.chunks(MESSAGE_ROWS) {
            let message = XdcrMessage::Checkpoints(rows.to_vec());
            for other in self.node.others() {
                // One that does not get them repeats more when it takes a vBucket over.
                self.node.ask_then(other, &message, PATIENCE, Box::new(drop));
            }
        }
    }

    /// Removes replications whose source does not exist any more.
    fn clean(&self, service: &Xdcr) {
        let cluster = self.node.cluster();
        let agreed = service.agreed.of(&cluster);
        for replication in &agreed.replications {
            let bucket = cluster.buckets.get(&replication.source);
            if bucket.is_some_and(|bucket| bucket.uuid == replication.source_uuid) {
                continue;
            }
            let removed = record::put(&self.node, &cluster, &Write::NoReplication(&replication.id));
            match removed {
                Ok(()) => tracing::warn!(
                    "replication {}: removed, as the bucket {} does not exist any more",
                    replication.id,
                    replication.source
                ),
                // Another node was faster, or the nodes cannot agree now.
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
        self.pass_on(service);
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
