//! Where the copies of a vBucket are.

use nacre_types::NodeId;
use serde::{Deserialize, Serialize};

/// The copies of one vBucket: which node serves it, and which follow.
///
/// Invariants: no node stands twice in `copies` or `next`; holes are at the end; the term grows by one with each change of
/// the active copy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chain {
    /// Counts the nodes that were the active one: it orders the branches of history, as UUIDs do not.
    pub term: u64,
    /// The active copy, then its replicas; as long as the bucket has copies, with holes where a node is missing.
    pub copies: Vec<Option<NodeId>>,
    /// While the vBucket moves: what `copies` is to become. Durable writes need a majority of both.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub next: Vec<Option<NodeId>>,
    /// Set for the moment in which the active copy is handed over: nobody serves the vBucket, and the active one lets the
    /// first of `next` catch up.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub held: bool,
    /// What the active copy had when it was chosen to begin this term; `None` where it served before, or has no history yet. One
    /// that has less by now, as its process has ended since, leaves it to the others to say who is best.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chosen: Option<Chosen>,
    /// The node that served the vBucket last, where nobody has a copy any more: what it had may be on its disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<NodeId>,
}

/// What a copy had when it was chosen to be the active one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chosen {
    /// The last term that it had all of.
    pub term: u64,
    /// The end of its history, as a seqno.
    pub high_seqno: u64,
}

impl Chain {
    /// The first copies of a vBucket.
    pub fn new(copies: Vec<Option<NodeId>>) -> Chain {
        Chain { term: 1, copies, ..Chain::default() }
    }

    /// The node that serves the vBucket, if one does.
    pub fn active(&self) -> Option<NodeId> {
        self.copies.first().copied().flatten()
    }

    /// The node that is to serve the vBucket while it moves, if one is.
    pub fn next_active(&self) -> Option<NodeId> {
        self.next.first().copied().flatten()
    }

    /// Whether `node` follows the active copy: as a replica, or as one that is to be.
    pub fn is_followed_by(&self, node: NodeId) -> bool {
        self.active().is_some_and(|active| active != node) && self.involves(node)
    }

    /// Whether anybody but the active copy has one, or is to.
    pub fn has_followers(&self) -> bool {
        let mut all = self.copies.iter().chain(&self.next).flatten();
        all.any(|node| Some(*node) != self.active())
    }

    /// Whether `node` holds a copy, or is to.
    pub fn involves(&self, node: NodeId) -> bool {
        self.copies.contains(&Some(node)) || self.next.contains(&Some(node))
    }

    /// Whether this may come right after `before`: another active copy is another term, and the same may begin one.
    pub fn follows(&self, before: &Chain) -> bool {
        let stays = self.term == before.term && self.active() == before.active();
        stays || self.term == before.term + 1
    }

    /// Whether a node that has a copy has none afterwards.
    pub fn drops_copies(&self) -> bool {
        self.copies.iter().flatten().any(|node| !self.next.contains(&Some(*node)))
    }

    /// Has the active copy, which was held, serve again: on another branch of history, as what was written on another node would
    /// not be known there.
    pub fn release(&mut self) {
        self.term += 1;
        self.held = false;
        self.chosen = None;
    }

    /// What is left without `lost` when `active` serves: a new term if that is another node than before, or if a copy is gone.
    /// It may have been the only other one of what was acknowledged; those that are left are of the new term once they have that
    /// too.
    #[must_use]
    pub fn without(&self, lost: &[NodeId], active: Option<NodeId>) -> Chain {
        let stays = |node: &NodeId| !lost.contains(node) && Some(*node) != active;
        let rest = self.copies.iter().flatten().copied().filter(stays);
        let mut copies: Vec<Option<NodeId>> =
            std::iter::once(active).chain(rest.map(Some)).collect();
        copies.resize(self.copies.len(), None);
        let has_lost = self.copies.iter().flatten().any(|node| lost.contains(node));
        let term = self.term + u64::from(active != self.active() || has_lost);
        let last = active.map_or_else(|| self.active().or(self.last), |_| None);
        Chain { term, copies, last, ..Chain::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(copies: &[u64], next: &[u64]) -> Chain {
        let nodes = |ids: &[u64]| ids.iter().map(|id| (*id > 0).then_some(NodeId(*id))).collect();
        Chain { term: 1, copies: nodes(copies), next: nodes(next), ..Chain::default() }
    }

    #[test]
    fn followers_are_all_but_the_active_one() {
        let followers = |chain: Chain| {
            assert_eq!(chain.has_followers(), (1..9).any(|id| chain.is_followed_by(NodeId(id))));
            (1..9).filter(|id| chain.is_followed_by(NodeId(*id))).collect::<Vec<u64>>()
        };
        assert_eq!(followers(chain(&[1, 2, 0], &[])), [2]);
        assert_eq!(followers(chain(&[1, 2, 3], &[2, 4, 1])), [2, 3, 4]);
        assert_eq!(followers(chain(&[0, 0], &[])), [0; 0]);
    }

    #[test]
    fn a_chain_closes_up_where_a_node_is_lost() {
        let lost = chain(&[1, 2, 3], &[]).without(&[NodeId(1)], Some(NodeId(3)));
        assert_eq!(lost, Chain { term: 2, ..chain(&[3, 2, 0], &[]) });
        let replica = chain(&[1, 2, 3], &[1, 4, 2]).without(&[NodeId(2)], Some(NodeId(1)));
        assert_eq!(
            replica,
            Chain { term: 2, ..chain(&[1, 3, 0], &[]) },
            "who is left proves itself"
        );
        let all = chain(&[1, 0], &[]).without(&[NodeId(1)], None);
        let last = Some(NodeId(1));
        assert_eq!(all, Chain { term: 2, last, ..chain(&[0, 0], &[]) });
        assert_eq!(all.without(&[NodeId(2)], None).last, last, "who goes later had nothing");
    }
}
