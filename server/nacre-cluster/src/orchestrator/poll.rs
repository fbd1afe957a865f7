//! Polls: ask nodes for the progress of their copies.

use super::{Effect, Fence, MS, Message, Standing};
use crate::Chosen;
use nacre_types::NodeId;
use std::collections::{BTreeMap, BTreeSet};

/// Interval at which an unanswered poll is repeated.
const POLL_AGAIN_NS: u64 = 300 * MS;

/// A question to several nodes, and their reports.
#[derive(Debug)]
pub(super) struct Poll {
    /// Identifies the poll in the reports.
    pub(super) number: u64,
    /// Times of the first and the last sending; 0 for never.
    begun_at: u64,
    sent_at: u64,
    /// Nodes that are about to be failed over.
    pub(super) lost: BTreeSet<NodeId>,
    /// vBuckets, by bucket.
    pub(super) wanted: BTreeMap<String, BTreeSet<u16>>,
    asked: BTreeSet<NodeId>,
    pub(super) answers: BTreeMap<NodeId, Answer>,
}

/// The report of a node.
#[derive(Debug)]
pub(super) struct Answer {
    /// Revision of the agreed state that the node had applied before it read its copies.
    pub(super) rev: u64,
    /// Standing of each copy, by bucket and vBucket.
    pub(super) standings: BTreeMap<String, BTreeMap<u16, Standing>>,
}

impl Poll {
    /// Creates an unsent poll.
    pub(super) fn new(
        number: u64,
        lost: BTreeSet<NodeId>,
        wanted: BTreeMap<String, BTreeSet<u16>>,
        asked: BTreeSet<NodeId>,
    ) -> Poll {
        Poll { number, begun_at: 0, sent_at: 0, lost, wanted, asked, answers: BTreeMap::new() }
    }

    /// Returns true if all nodes have answered.
    pub(super) fn is_answered(&self) -> bool {
        self.missing().next().is_none()
    }

    /// Returns the standing that a node has reported for its copy.
    pub(super) fn standing(&self, node: NodeId, bucket: &str, vbid: u16) -> Option<&Standing> {
        self.answers.get(&node)?.standings.get(bucket)?.get(&vbid)
    }

    /// Returns true if a node has answered with the agreed state up to `rev` applied.
    pub(super) fn knows(&self, node: NodeId, rev: u64) -> bool {
        self.answers.get(&node).is_some_and(|answer| answer.rev >= rev)
    }

    /// Returns the state of a chosen copy, if its node has reported it.
    pub(super) fn chosen(&self, node: Option<NodeId>, bucket: &str, vbid: u16) -> Option<Chosen> {
        let Standing { term, high_seqno, .. } = *self.standing(node?, bucket, vbid)?;
        Some(Chosen { term, high_seqno })
    }

    /// Sends the poll to the nodes that have not answered, if that is due. Uses the newest fence, because nodes do not
    /// answer with an older one.
    pub(super) fn send(&mut self, fence: &Fence, now: u64, effects: &mut Vec<Effect>) {
        if self.sent_at != 0 && now < self.sent_at + POLL_AGAIN_NS {
            return;
        }
        self.sent_at = now.max(1);
        if self.begun_at == 0 {
            self.begun_at = self.sent_at;
        }
        let wanted = self.wanted.iter().map(|(name, vbids)| (name.clone(), vbids.iter().copied()));
        let message = Message::Poll {
            number: self.number,
            fence: fence.clone(),
            wanted: wanted.map(|(name, vbids)| (name, vbids.collect())).collect(),
        };
        effects.extend(self.missing().map(|node| Effect::Send(node, message.clone())));
    }

    /// Returns the nodes that have not answered.
    fn missing(&self) -> impl Iterator<Item = NodeId> {
        self.asked.iter().filter(|node| !self.answers.contains_key(node)).copied()
    }

    /// Returns the nodes that have not answered within `patience_ns` of the first sending.
    pub(super) fn late(&self, patience_ns: u64, now: u64) -> impl Iterator<Item = NodeId> {
        let is_late = self.begun_at != 0 && now.saturating_sub(self.begun_at) >= patience_ns;
        self.missing().filter(move |_| is_late)
    }
}
