//! Asking nodes how far their copies are.

use super::{Effect, Fence, MS, Message, Standing};
use crate::Chosen;
use nacre_types::NodeId;
use std::collections::{BTreeMap, BTreeSet};

/// When a poll that is not answered is sent again.
const POLL_AGAIN_NS: u64 = 300 * MS;

/// A question to several nodes, and their answers.
#[derive(Debug)]
pub(super) struct Poll {
    /// Comes back with the answers.
    pub(super) number: u64,
    /// When it was sent last, 0 for never.
    sent_at: u64,
    /// Nodes that are about to be replaced.
    pub(super) lost: BTreeSet<NodeId>,
    /// vBuckets, by bucket.
    pub(super) wanted: BTreeMap<String, BTreeSet<u16>>,
    asked: BTreeSet<NodeId>,
    /// What each copy has, by node, bucket and vBucket.
    pub(super) answers: BTreeMap<NodeId, BTreeMap<String, BTreeMap<u16, Standing>>>,
}

impl Poll {
    /// One that was not sent yet.
    pub(super) fn new(
        number: u64,
        lost: BTreeSet<NodeId>,
        wanted: BTreeMap<String, BTreeSet<u16>>,
        asked: BTreeSet<NodeId>,
    ) -> Poll {
        Poll { number, sent_at: 0, lost, wanted, asked, answers: BTreeMap::new() }
    }

    /// Whether all have answered.
    pub(super) fn is_answered(&self) -> bool {
        self.asked.iter().all(|node| self.answers.contains_key(node))
    }

    /// What a node has said of its copy.
    pub(super) fn standing(&self, node: NodeId, bucket: &str, vbid: u16) -> Option<&Standing> {
        self.answers.get(&node)?.get(bucket)?.get(&vbid)
    }

    /// What a copy that is chosen has, as far as its node has said so.
    pub(super) fn chosen(&self, node: Option<NodeId>, bucket: &str, vbid: u16) -> Option<Chosen> {
        let Standing { term, high_seqno, .. } = *self.standing(node?, bucket, vbid)?;
        Some(Chosen { term, high_seqno })
    }

    /// Sends it to those who have not answered, when that is due, with whom not to follow by now: they do not answer to an
    /// earlier word.
    pub(super) fn send(&mut self, fence: &Fence, now: u64, effects: &mut Vec<Effect>) {
        if self.sent_at != 0 && now < self.sent_at + POLL_AGAIN_NS {
            return;
        }
        self.sent_at = now.max(1);
        let wanted = self.wanted.iter().map(|(name, vbids)| (name.clone(), vbids.iter().copied()));
        let message = Message::Poll {
            number: self.number,
            fence: fence.clone(),
            wanted: wanted.map(|(name, vbids)| (name, vbids.collect())).collect(),
        };
        let missing = self.asked.iter().filter(|node| !self.answers.contains_key(node));
        effects.extend(missing.map(|node| Effect::Send(*node, message.clone())));
    }
}
