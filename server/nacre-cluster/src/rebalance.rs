//! Rebalances: the running one, the outcome of the last one, and retries.

use crate::{Cluster, Member, Membership, Refusal};
use nacre_types::NodeId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A rebalance, which moves copies until they are spread evenly.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rebalance {
    /// ID: 32 hexadecimal digits.
    pub id: String,
    /// The nodes that have a share afterwards.
    pub keep: BTreeSet<NodeId>,
    /// Nodes without a share afterwards: those that existed at the start and are not in `keep`.
    #[serde(default)]
    pub leaving: BTreeSet<NodeId>,
    /// Membership of the nodes in `leaving` afterwards.
    pub rest: Membership,
    /// Number of retries so far.
    #[serde(default)]
    pub retries: u32,
}

/// The outcome of a rebalance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The copies are spread evenly.
    Completed,
    /// The operator stopped it.
    Stopped,
    /// Nodes that should have had a share were lost.
    Failed {
        /// The lost nodes; empty if the remaining nodes have continued without a majority.
        lost: BTreeSet<NodeId>,
    },
}

/// A rebalance that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedRebalance {
    /// The rebalance.
    pub rebalance: Rebalance,
    /// The outcome.
    pub outcome: Outcome,
    /// True if it must not be retried, whatever the settings say.
    pub is_given_up: bool,
}

/// Retries of a failed rebalance, with the remaining nodes.
///
/// Source: Couchbase's REST `/settings/retryRebalance`, with its defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryRebalance {
    /// True if failed rebalances are retried.
    pub enabled: bool,
    /// Delay of a retry in seconds: 5 to 3600.
    pub after_s: u64,
    /// Maximum number of retries, 1 to 3.
    pub retries_max: u32,
}

impl Default for RetryRebalance {
    fn default() -> RetryRebalance {
        RetryRebalance { enabled: false, after_s: 300, retries_max: 1 }
    }
}

impl Cluster {
    /// Returns the failed rebalance that will be retried by [`NodeChange::BeginAgain`](crate::NodeChange::BeginAgain).
    pub fn pending_rebalance(&self) -> Option<&Rebalance> {
        let ended = self.last_rebalance.as_ref().filter(|_| self.rebalance.is_none())?;
        let RetryRebalance { enabled, retries_max, .. } = self.retry_rebalance;
        let is_pending = matches!(ended.outcome, Outcome::Failed { .. })
            && !ended.is_given_up
            && enabled
            && ended.rebalance.retries < retries_max;
        is_pending.then_some(&ended.rebalance)
    }

    /// Returns a rebalance of the current nodes: `keep` have a share afterwards, and the others become `rest`.
    pub(crate) fn plan_rebalance(
        &self,
        id: &str,
        keep: &BTreeSet<NodeId>,
        rest: Membership,
    ) -> Rebalance {
        // A node without a share has none to lose.
        let stays = |(id, node): &(&NodeId, &Member)| {
            let is_new = node.membership == Membership::Added;
            keep.contains(id) || (is_new && rest == Membership::FailedOver)
        };
        let leaving = self.nodes.iter().filter(|node| !stays(node)).map(|(id, _)| *id).collect();
        Rebalance { id: id.to_owned(), keep: keep.clone(), leaving, rest, retries: 0 }
    }

    pub(crate) fn start_rebalance(&mut self, rebalance: Rebalance) -> Result<(), Refusal> {
        if self.rebalance.is_some() {
            return Err(Refusal::RebalanceRuns);
        }
        let is_out = |id: &NodeId| {
            matches!(self.nodes[id].membership, Membership::FailedOver | Membership::Leaving)
        };
        if self.with_data(&rebalance.keep).is_empty() || rebalance.keep.iter().any(is_out) {
            return Err(Refusal::NobodyKeeps);
        }
        self.rebalance = Some(rebalance);
        Ok(())
    }

    /// Records the outcome of the running rebalance.
    ///
    /// # Errors
    /// [`Refusal::NoRebalance`].
    pub(crate) fn end_rebalance(&mut self, outcome: Outcome) -> Result<(), Refusal> {
        let rebalance = self.rebalance.take().ok_or(Refusal::NoRebalance)?;
        self.last_rebalance = Some(EndedRebalance { rebalance, outcome, is_given_up: false });
        Ok(())
    }

    /// Retries the pending rebalance. Cancels it if none of its remaining nodes can have a share.
    pub(crate) fn begin_again(&mut self, id: &str) -> Result<(), Refusal> {
        let pending = self.pending_rebalance().filter(|pending| pending.id == id);
        let failed = pending.ok_or(Refusal::NoRebalance)?;
        let is_there = |node: &&NodeId| {
            let part = self.nodes.get(node).map(|member| member.membership);
            matches!(part, Some(Membership::Active | Membership::Added))
        };
        let keep = failed.keep.iter().filter(is_there).copied().collect();
        let again = Rebalance { keep, retries: failed.retries + 1, ..failed.clone() };
        match self.start_rebalance(again) {
            Err(Refusal::NobodyKeeps) => self.give_up_rebalance(id),
            started => started,
        }
    }

    pub(crate) fn give_up_rebalance(&mut self, id: &str) -> Result<(), Refusal> {
        let pending = self.pending_rebalance().is_some_and(|pending| pending.id == id);
        let ended = self.last_rebalance.as_mut().filter(|_| pending);
        ended.ok_or(Refusal::NoRebalance)?.is_given_up = true;
        Ok(())
    }
}
