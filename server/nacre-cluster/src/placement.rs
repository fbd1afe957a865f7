//! Placement of the copies of vBuckets on nodes.
//!
//! [`place`] is greedy: it keeps copies where possible, and assigns missing ones to the node with the fewest. A vBucket
//! whose active copy must move is activated on one of its replicas if that keeps the balance, because that needs no
//! copying.
//!
//! Guarantees: no chain contains a node twice; numbers of active copies differ by at most one between nodes; two copies
//! share a server group only if there are fewer groups than copies; the result depends only on the arguments.

use nacre_types::NodeId;
use std::collections::BTreeMap;

/// The copies of one vBucket: the active copy first, holes last.
pub type Copies = Vec<Option<NodeId>>;

/// Returns the chains that a bucket should have on `nodes` (each with its server group), given its current chains: one
/// row of `1 + replicas` copies per vBucket. Without nodes, all rows are empty.
pub fn place(current: &[Copies], nodes: &BTreeMap<NodeId, &str>, replicas: usize) -> Vec<Copies> {
    let actives = place_actives(current, nodes);
    let mut plan = Plan { nodes, load: BTreeMap::new(), pairs: BTreeMap::new() };
    let mut chains: Vec<Copies> = actives.iter().map(|active| vec![*active]).collect();
    for rank in 1..=replicas {
        plan.load.clear();
        let share = chains.len().div_ceil(nodes.len().max(1));
        // Count the copies that stay first, so that no other copy takes their place.
        let kept: Vec<Option<NodeId>> = chains
            .iter()
            .zip(current)
            .map(|(chain, before)| plan.keep(chain, before, rank, share))
            .collect();
        for (chain, kept) in chains.iter_mut().zip(kept) {
            let node = kept.or_else(|| plan.find(chain));
            if let (None, Some(node)) = (kept, node) {
                plan.take(chain, node);
            }
            chain.push(node);
        }
    }
    for chain in &mut chains {
        chain.sort_by_key(Option::is_none);
    }
    chains
}

/// Each node gets its share, and some get one more if the division leaves a remainder.
fn place_actives(current: &[Copies], nodes: &BTreeMap<NodeId, &str>) -> Vec<Option<NodeId>> {
    let Some(share) = current.len().checked_div(nodes.len()) else {
        return vec![None; current.len()];
    };
    let mut extras = current.len() % nodes.len();
    let mut load: BTreeMap<NodeId, usize> = nodes.keys().map(|node| (*node, 0)).collect();
    let mut actives = vec![None; current.len()];
    let mut take = |node: Option<NodeId>, extras: &mut usize| {
        let node = node?;
        let load = load.get_mut(&node)?;
        if *load == share && *extras > 0 {
            *extras -= 1;
        } else if *load >= share {
            return None;
        }
        *load += 1;
        Some(node)
    };
    for (active, before) in actives.iter_mut().zip(current) {
        *active = take(before.first().copied().flatten(), &mut extras);
    }
    for (active, before) in actives.iter_mut().zip(current) {
        let mut replicas = before.iter().skip(1);
        *active = active.or_else(|| replicas.find_map(|replica| take(*replica, &mut extras)));
    }
    let mut others = nodes.keys().copied().cycle();
    for active in &mut actives {
        while active.is_none() {
            *active = take(others.next(), &mut extras);
        }
    }
    actives
}

/// The replicas of one rank placed so far.
struct Plan<'a> {
    nodes: &'a BTreeMap<NodeId, &'a str>,
    /// Number of replicas of this rank, by node.
    load: BTreeMap<NodeId, usize>,
    /// Number of replicas of all ranks, by the nodes of the active copy and of the replica.
    pairs: BTreeMap<(Option<NodeId>, NodeId), usize>,
}

impl Plan<'_> {
    fn take(&mut self, chain: &Copies, node: NodeId) {
        *self.load.entry(node).or_default() += 1;
        *self.pairs.entry((chain[0], node)).or_default() += 1;
    }

    fn shares_group(&self, chain: &Copies, node: NodeId) -> bool {
        chain.iter().flatten().any(|other| self.nodes.get(other) == self.nodes.get(&node))
    }

    /// Returns a previous copy that may stay, preferably of this rank.
    fn keep(
        &mut self,
        chain: &Copies,
        before: &Copies,
        rank: usize,
        share: usize,
    ) -> Option<NodeId> {
        let candidates = before.get(rank).into_iter().chain(before).flatten().copied();
        let node = candidates.into_iter().find(|node| {
            self.nodes.contains_key(node)
                && !chain.contains(&Some(*node))
                && self.load.get(node).copied().unwrap_or(0) < share
                && (!self.shares_group(chain, *node) || !self.has_other_group(chain))
        })?;
        self.take(chain, node);
        Some(node)
    }

    fn has_other_group(&self, chain: &Copies) -> bool {
        self.nodes.keys().any(|node| !self.shares_group(chain, *node))
    }

    /// Returns the node with the fewest replicas, in another server group if possible.
    fn find(&self, chain: &Copies) -> Option<NodeId> {
        let free = self.nodes.keys().copied().filter(|node| !chain.contains(&Some(*node)));
        free.min_by_key(|node| {
            let load = self.load.get(node).copied().unwrap_or(0);
            let pairs = self.pairs.get(&(chain[0], *node)).copied().unwrap_or(0);
            (self.shares_group(chain, *node), load, pairs, *node)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn nodes(ids: &[u64]) -> BTreeMap<NodeId, &'static str> {
        ids.iter().map(|id| (NodeId(*id), "a")).collect()
    }

    fn counts(chains: &[Copies], rank: usize) -> BTreeMap<NodeId, usize> {
        let mut counts = BTreeMap::new();
        for node in chains.iter().filter_map(|chain| chain[rank]) {
            *counts.entry(node).or_default() += 1;
        }
        counts
    }

    #[test]
    fn copies_are_spread_evenly() {
        let chains = place(&vec![Copies::new(); 1024], &nodes(&[1, 2, 3, 4]), 1);
        assert!(counts(&chains, 0).values().all(|count| *count == 256));
        assert!(counts(&chains, 1).values().all(|count| *count == 256));
        let of_1 = chains.iter().filter(|chain| chain[0] == Some(NodeId(1)));
        let theirs: Vec<Copies> = of_1.cloned().collect();
        assert!(counts(&theirs, 1).values().all(|count| (84..=87).contains(count)), "{theirs:?}");
    }

    #[test]
    fn a_lone_node_serves_all_and_has_no_replicas() {
        assert_eq!(place(&[vec![], vec![]], &nodes(&[7]), 1), vec![vec![Some(NodeId(7)), None]; 2]);
        assert_eq!(place(&[vec![]], &nodes(&[]), 1), [[None, None]]);
    }

    #[test]
    fn groups_keep_copies_apart() {
        let nodes: BTreeMap<NodeId, &str> =
            [(1, "a"), (2, "a"), (3, "b"), (4, "b")].map(|(id, group)| (NodeId(id), group)).into();
        for chain in place(&vec![Copies::new(); 64], &nodes, 1) {
            assert_ne!(nodes[&chain[0].unwrap()], nodes[&chain[1].unwrap()]);
        }
        for chain in place(&vec![Copies::new(); 64], &nodes, 2) {
            assert!(chain.iter().all(Option::is_some), "more copies than groups");
        }
    }

    #[test]
    fn another_node_gets_its_share_and_the_rest_stays() {
        let before = place(&vec![Copies::new(); 90], &nodes(&[1, 2]), 1);
        let after = place(&before, &nodes(&[1, 2, 3]), 1);
        let moved = before.iter().zip(&after).filter(|(before, after)| before[0] != after[0]);
        assert_eq!(moved.count(), 30);
        assert_eq!(place(&after, &nodes(&[1, 2, 3]), 1), after, "what is balanced stays");
    }

    proptest! {
        #[test]
        fn every_plan_is_balanced_and_sane(
            steps in prop::collection::vec((prop::collection::btree_set(1u64..9, 1..8), 0usize..4), 1..5),
            vbuckets in 1usize..200,
        ) {
            let mut chains = vec![Copies::new(); vbuckets];
            for (ids, replicas) in steps {
                let nodes: BTreeMap<NodeId, &str> = ids.iter().map(|id| (NodeId(*id), "a")).collect();
                chains = place(&chains, &nodes, replicas);
                let copies = (replicas + 1).min(nodes.len());
                for chain in &chains {
                    prop_assert_eq!(chain.len(), replicas + 1);
                    prop_assert_eq!(chain.iter().take_while(|node| node.is_some()).count(), copies);
                    let mut present: Vec<_> = chain.iter().flatten().collect();
                    present.sort();
                    present.dedup();
                    prop_assert_eq!(present.len(), copies);
                    prop_assert!(present.iter().all(|node| nodes.contains_key(node)));
                }
                let actives = counts(&chains, 0);
                let most = actives.values().max().copied().unwrap_or(0);
                let least = nodes.keys().map(|node| actives.get(node).copied().unwrap_or(0)).min();
                prop_assert!(most - least.unwrap_or(0) <= 1, "{:?}", actives);
            }
        }
    }
}
