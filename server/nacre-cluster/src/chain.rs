//! The chain of a vBucket: the nodes that hold its copies.

use nacre_types::NodeId;
use serde::{Deserialize, Serialize};

/// The copies of one vBucket: the node of the active copy, and the nodes that follow it.
///
/// Invariants: no node occurs twice in `copies` or `next`; holes are at the end; the term increases by one with each
/// change of the active copy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chain {
    /// Counts the changes of the active copy. Unlike UUIDs, terms order the branches of history.
    pub term: u64,
    /// The active copy and its replicas. The length is that of the bucket's setting, with holes for missing nodes.
    pub copies: Vec<Option<NodeId>>,
    /// The copies after the current move. Durable writes then need a majority of both lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub next: Vec<Option<NodeId>>,
    /// True during a hand-over: no node serves the vBucket, and the first of `next` catches up with the active copy.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub held: bool,
    /// State of the active copy when it was chosen for this term; `None` if it was active before or has no history yet.
    /// A copy that has less now, because its process has ended since, does not serve, and the leader chooses again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chosen: Option<Chosen>,
    /// The node that served the vBucket last, if no node holds a copy any more: the documents may still be on its disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<NodeId>,
}

/// State of a copy when it was chosen as the active one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chosen {
    /// The last term of which the copy is complete.
    pub term: u64,
    /// The last seqno of its history.
    pub high_seqno: u64,
}

impl Chain {
    /// Creates the initial chain of a vBucket.
    pub fn new(copies: Vec<Option<NodeId>>) -> Chain {
        Chain { term: 1, copies, ..Chain::default() }
    }

    /// Returns the node of the active copy, if there is one.
    pub fn active(&self) -> Option<NodeId> {
        self.copies.first().copied().flatten()
    }

    /// Returns the node that will be active after the current move, if there is one.
    pub fn next_active(&self) -> Option<NodeId> {
        self.next.first().copied().flatten()
    }

    /// Returns true if `node` follows the active copy, as a replica or future copy.
    pub fn is_followed_by(&self, node: NodeId) -> bool {
        self.active().is_some_and(|active| active != node) && self.involves(node)
    }

    /// Returns true if another node than the active one holds a copy or will hold one.
    pub fn has_followers(&self) -> bool {
        let mut all = self.copies.iter().chain(&self.next).flatten();
        all.any(|node| Some(*node) != self.active())
    }

    /// Returns true if `node` holds a copy or will hold one.
    pub fn involves(&self, node: NodeId) -> bool {
        self.copies.contains(&Some(node)) || self.next.contains(&Some(node))
    }

    /// Returns true if this chain may directly follow `before`: another active copy requires the next term, and the
    /// same active copy may begin one.
    pub fn follows(&self, before: &Chain) -> bool {
        let stays = self.term == before.term && self.active() == before.active();
        stays || self.term == before.term + 1
    }

    /// Returns true if a node loses its copy in the current move.
    pub fn drops_copies(&self) -> bool {
        self.copies.iter().flatten().any(|node| !self.next.contains(&Some(*node)))
    }

    /// Ends a hold without a hand-over: the active copy serves again. The term is new, because copies of the held term
    /// may have been activated elsewhere.
    pub fn release(&mut self) {
        self.term += 1;
        self.held = false;
        self.chosen = None;
    }

    /// Returns the chain without `lost`, with the active copy on `active`. The term is new if another node becomes
    /// active, or if a copy is lost: the lost copy may have been the only other one with an acknowledged write. The
    /// other copies belong to the new term once they have everything before it.
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
