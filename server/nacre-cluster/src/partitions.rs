//! Placement of the partitions of an index on nodes.
//!
//! The nodes agree only on the index and the members; each node computes the same placement. A partition goes to the
//! first nodes in its own order (rendezvous hashing) that do not have their share already, so few partitions move when
//! a node is added or removed. During a rebalance, the nodes that it keeps count.
//!
//! The new node of a partition builds it, and the old one answers queries until the new one has caught up.

use crate::{Cluster, Index, Membership, Partitioning, ServiceName};
use nacre_types::NodeId;
use std::collections::{BTreeMap, BTreeSet};

impl Cluster {
    /// Returns the nodes that should hold each partition of an index, in the order in which to ask them; empty for an
    /// index without partitions.
    pub fn holders(&self, index: &Index) -> Vec<Vec<NodeId>> {
        let Some(Partitioning { count, replicas, .. }) = &index.partitioning else {
            return Vec::new();
        };
        let (count, replicas) = (*count, *replicas);
        let nodes = self.index_nodes();
        let copies = (usize::from(replicas) + 1).min(nodes.len());
        let mut loads: BTreeMap<NodeId, usize> = nodes.iter().map(|node| (*node, 0)).collect();
        let mut holders = vec![Vec::new(); usize::from(count)];
        // All first copies are placed before all second ones. Each rank is thus spread evenly, and existing copies stay
        // when the number of copies changes.
        for copy in 1..=copies {
            let share = (usize::from(count) * copy).div_ceil(nodes.len());
            for (partition, holders) in (0..count).zip(&mut holders) {
                let fits = |node: &NodeId| loads[node] < share;
                let order = ranked(index, partition, &nodes);
                let free = || order.iter().copied().filter(|node| !holders.contains(node));
                let apart = |node: &NodeId| {
                    let group = |node: &NodeId| &self.nodes[node].group;
                    holders.iter().all(|holder| group(holder) != group(node))
                };
                // Copies that may be lost together are worse than a node with more than its share.
                let chosen = free()
                    .find(|node| apart(node) && fits(node))
                    .or_else(|| free().filter(apart).min_by_key(|node| loads[node]))
                    .or_else(|| free().find(fits))
                    .or_else(|| free().min_by_key(|node| loads[node]));
                if let Some(chosen) = chosen {
                    *loads.entry(chosen).or_default() += 1;
                    holders.push(chosen);
                }
            }
        }
        holders
    }

    /// Returns the partitions of an index that a node should hold.
    pub fn held_by(&self, node: NodeId, index: &Index) -> BTreeSet<u16> {
        let holders = (0..).zip(self.holders(index));
        holders.filter(|(_, nodes)| nodes.contains(&node)).map(|(partition, _)| partition).collect()
    }

    /// Returns the nodes to ask for each partition, in order: those that should hold it, then all others, which may
    /// still have it.
    pub fn asked_for(&self, index: &Index) -> Vec<Vec<NodeId>> {
        let is_left = |node: &NodeId| self.nodes[node].membership != Membership::FailedOver;
        let nodes: BTreeSet<NodeId> = self.nodes.keys().copied().filter(is_left).collect();
        let asked = (0..).zip(self.holders(index)).map(|(partition, mut asked)| {
            let others = ranked(index, partition, &nodes).into_iter();
            let others: Vec<_> = others.filter(|node| !asked.contains(node)).collect();
            asked.extend(others);
            asked
        });
        asked.collect()
    }

    /// Returns the nodes with the index service, or the nodes with data if there are none.
    fn index_nodes(&self) -> BTreeSet<NodeId> {
        let staying = match &self.rebalance {
            Some(rebalance) => rebalance.keep.clone(),
            None => self.active_nodes(),
        };
        let with = |service| {
            let has = |node: &&NodeId| {
                self.nodes.get(node).is_some_and(|member| member.services.contains(&service))
            };
            staying.iter().filter(has).copied().collect::<BTreeSet<_>>()
        };
        let nodes = with(ServiceName::INDEX);
        if nodes.is_empty() { with(ServiceName::DATA) } else { nodes }
    }
}

/// Returns the nodes in the order of preference of a partition.
fn ranked(index: &Index, partition: u16, nodes: &BTreeSet<NodeId>) -> Vec<NodeId> {
    let bytes = index.uuid.bytes();
    let seed = bytes.fold(u64::from(partition), |hash, byte| mixed(hash ^ u64::from(byte)));
    let rank = |node: &NodeId| (mixed(seed ^ mixed(node.0)), *node);
    let mut ranked: Vec<_> = nodes.iter().map(rank).collect();
    ranked.sort_unstable();
    ranked.into_iter().map(|(_, node)| node).collect()
}

/// The finalizer of splitmix64: maps nearby numbers to distant ones.
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Change, Endpoints, Member, NodeChange, Ports};

    fn cluster(nodes: u64) -> Cluster {
        let mut cluster = Cluster::new("c".into());
        for id in 1..=nodes {
            let plain =
                Ports::from([("mgmt", 1), ("views", 2), ("query", 3), ("eventing", 4), ("kv", 5)]);
            let member = Member {
                uuid: format!("{id}"),
                endpoints: Endpoints { host: None, plain, tls: None, fingerprint: None },
                group: crate::GROUP_DEFAULT.into(),
                services: ServiceName::FIRST.into_iter().collect(),
                membership: Membership::Active,
                alternate: None,
            };
            cluster.apply(&Change::Nodes(NodeChange::PutNode { id: NodeId(id), member })).unwrap();
        }
        cluster
    }

    fn index(uuid: &str, count: u16, replicas: u8) -> Index {
        Index {
            uuid: uuid.into(),
            scope: "_default".into(),
            collection: "_default".into(),
            name: "i".into(),
            definition: String::new(),
            keys: vec!["a".into()],
            condition: None,
            built: true,
            partitioning: Some(Partitioning { by: vec!["a".into()], count, replicas }),
        }
    }

    #[test]
    fn each_partition_has_its_copies_on_different_nodes_and_each_node_its_share() {
        for (nodes, count, replicas) in [(1, 8, 2), (2, 8, 0), (3, 8, 1), (5, 64, 3), (4, 1, 1)] {
            let (cluster, index) = (cluster(nodes), index("u", count, replicas));
            let holders = cluster.holders(&index);
            let copies = u64::from(replicas + 1).min(nodes) as usize;
            let different = |holders: &Vec<NodeId>| holders.iter().collect::<BTreeSet<_>>().len();
            assert_eq!(holders.len(), usize::from(count));
            assert!(
                holders
                    .iter()
                    .all(|holders| different(holders) == copies && holders.len() == copies)
            );
            let held = (1..=nodes).map(|node| cluster.held_by(NodeId(node), &index).len());
            let most = (usize::from(count) * copies).div_ceil(nodes as usize);
            assert!(
                held.clone().all(|held| held <= most + most / 8 + 1),
                "{nodes} {count} {replicas}: {held:?}"
            );
        }
        assert_ne!(cluster(5).holders(&index("u", 8, 0)), cluster(5).holders(&index("v", 8, 0)));
    }

    #[test]
    fn partitions_stay_where_they_are_when_they_are_given_other_copies() {
        for (nodes, count) in [(1, 8), (2, 8), (3, 8), (3, 7), (5, 64), (4, 1)] {
            let cluster = cluster(nodes);
            let holders = |replicas| cluster.holders(&index("u", count, replicas));
            for replicas in 0..3 {
                for (fewer, more) in holders(replicas).iter().zip(holders(replicas + 1)) {
                    assert!(more.starts_with(fewer), "{nodes} {count} {replicas}");
                }
            }
        }
    }

    #[test]
    fn few_partitions_move_to_a_new_node_and_their_old_nodes_still_answer() {
        let (before, after, index) = (cluster(4), cluster(5), index("u", 64, 0));
        let (old, new) = (before.holders(&index), after.holders(&index));
        let moved: Vec<u16> =
            (0..64).filter(|p| old[usize::from(*p)] != new[usize::from(*p)]).collect();
        assert!((8..=24).contains(&moved.len()), "{moved:?}");
        for partition in moved {
            let asked = &after.asked_for(&index)[usize::from(partition)];
            assert_eq!((asked[0], asked.len()), (new[usize::from(partition)][0], 5));
            assert!(asked.contains(&old[usize::from(partition)][0]));
        }
    }

    #[test]
    fn a_rebalance_counts_from_its_start_and_groups_are_kept_apart() {
        let mut cluster = cluster(3);
        let index = index("u", 8, 1);
        let keep = BTreeSet::from([NodeId(1), NodeId(2)]);
        let rest = Membership::Leaving;
        cluster.rebalance = Some(cluster.plan_rebalance("r", &keep, rest));
        assert!(cluster.held_by(NodeId(3), &index).is_empty());
        cluster.rebalance = None;
        for (node, group) in [(1, "a"), (2, "a"), (3, "b")] {
            cluster.nodes.get_mut(&NodeId(node)).unwrap().group = group.into();
        }
        let has_both = |holders: &Vec<NodeId>| holders.contains(&NodeId(3));
        assert!(cluster.holders(&index).iter().all(has_both));
        let member = cluster.nodes.get_mut(&NodeId(2)).unwrap();
        member.membership = Membership::FailedOver;
        assert!(cluster.asked_for(&index).iter().all(|asked| !asked.contains(&NodeId(2))));
    }
}
