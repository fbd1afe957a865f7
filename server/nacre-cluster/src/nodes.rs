//! Changes of nodes and server groups in the agreed state.

use crate::{Alternate, Cluster, Fingerprint, Member, Membership, Refusal, ServiceName};
use nacre_types::NodeId;
use std::collections::{BTreeMap, BTreeSet};

/// The longest name of a server group in bytes; it is part of cluster maps.
const GROUP_NAME_BYTES_MAX: usize = 64;
/// The name of the initial server group. Source: Couchbase.
pub const GROUP_DEFAULT: &str = "Group 1";

fn refused_services(reason: &str) -> Refusal {
    Refusal::Invalid { field: "services", reason: reason.into() }
}

pub(crate) fn first_group() -> BTreeMap<String, String> {
    [("0".to_owned(), GROUP_DEFAULT.to_owned())].into()
}

impl Cluster {
    /// Adds or changes a node. An ID always belongs to the node that had it first, even after that node has left.
    pub(crate) fn put_node(&mut self, id: NodeId, member: &Member) -> Result<(), Refusal> {
        let fits = match self.nodes.get(&id) {
            Some(known) => known.uuid == member.uuid,
            None => id > self.last_gone,
        };
        if !fits {
            return Err(Refusal::NodeNumberTaken { id });
        }
        self.nodes.insert(id, member.clone());
        self.place_buckets();
        Ok(())
    }

    /// Returns an unused node ID.
    pub fn next_node(&self) -> NodeId {
        let last = self.nodes.keys().next_back().copied().unwrap_or_default();
        NodeId(last.max(self.last_gone).0 + 1)
    }

    /// Returns the node whose key has this fingerprint.
    pub fn node_with_key(&self, key: &Fingerprint) -> Option<NodeId> {
        let mut nodes = self.nodes.iter();
        nodes.find(|(_, node)| node.endpoints.fingerprint.as_ref() == Some(key)).map(|(id, _)| *id)
    }

    pub(crate) fn set_alternate(
        &mut self,
        id: NodeId,
        alternate: Option<&Alternate>,
    ) -> Result<(), Refusal> {
        let node = self.nodes.get_mut(&id).ok_or(Refusal::NodeNotFound { id })?;
        alternate.map_or(Ok(()), Alternate::check)?;
        node.alternate = alternate.cloned();
        Ok(())
    }

    pub(crate) fn set_services(
        &mut self,
        id: NodeId,
        services: &BTreeSet<ServiceName>,
    ) -> Result<(), Refusal> {
        let is_new = self.buckets.is_empty() && self.nodes.len() == 1;
        let node = self.nodes.get_mut(&id).ok_or(Refusal::NodeNotFound { id })?;
        if services.is_empty() {
            return Err(refused_services("a node needs a service"));
        }
        if !is_new {
            return Err(refused_services(
                "cannot change node services after cluster is provisioned",
            ));
        }
        node.services = services.clone();
        Ok(())
    }

    /// Checks that active nodes may have these services from now on.
    pub(crate) fn check_services(
        &self,
        wanted: &BTreeMap<NodeId, BTreeSet<ServiceName>>,
    ) -> Result<(), Refusal> {
        for (id, services) in wanted {
            let node = self.nodes.get(id).ok_or(Refusal::NodeNotFound { id: *id })?;
            if services.is_empty() {
                return Err(refused_services("a node needs a service"));
            }
            let stays = node.has_data() == services.contains(&ServiceName::DATA);
            if !stays && node.membership != Membership::Added {
                return Err(refused_services(
                    "kv cannot be added to or taken from a node of the cluster: remove the node first",
                ));
            }
        }
        Ok(())
    }

    /// Applies services that [`check_services`](Cluster::check_services) has accepted.
    pub(crate) fn put_services(&mut self, wanted: &BTreeMap<NodeId, BTreeSet<ServiceName>>) {
        for (id, services) in wanted {
            if let Some(node) = self.nodes.get_mut(id) {
                node.services = services.clone();
            }
        }
    }

    pub(crate) fn set_memberships(&mut self, memberships: &BTreeMap<NodeId, Membership>) {
        for (id, membership) in memberships {
            let Some(node) = self.nodes.get_mut(id) else { continue };
            node.membership = *membership;
            if *membership != Membership::Added {
                self.recovering.remove(id);
            }
            let asked_for = self.failing_over.iter().position(|known| known == id);
            match (asked_for, *membership) {
                (Some(index), _) => drop(self.failing_over.remove(index)),
                (None, Membership::FailedOver) if self.rebalance.is_none() => {
                    self.auto_failover.count += 1;
                }
                (None, _) => {}
            }
        }
    }

    /// Schedules the recovery of a node for the next rebalance. Until then the kind of recovery can be changed.
    pub(crate) fn recover(&mut self, id: NodeId, full: bool) -> Result<(), Refusal> {
        self.check_node(id)?;
        if self.rebalance.is_some() {
            return Err(Refusal::RebalanceRuns);
        }
        self.set_memberships(&BTreeMap::from([(id, Membership::Added)]));
        self.recovering.insert(id, full);
        Ok(())
    }

    pub(crate) fn check_node(&self, id: NodeId) -> Result<(), Refusal> {
        self.nodes.get(&id).map(drop).ok_or(Refusal::NodeNotFound { id })
    }

    /// Returns the active nodes, with or without data.
    pub fn active_nodes(&self) -> BTreeSet<NodeId> {
        let active = self.nodes.iter().filter(|(_, node)| node.membership == Membership::Active);
        active.map(|(id, _)| *id).collect()
    }

    /// Returns the nodes among `nodes` that get a share of the vBuckets, each with its server group.
    pub fn with_data(&self, nodes: &BTreeSet<NodeId>) -> BTreeMap<NodeId, &str> {
        let with_data =
            self.nodes.iter().filter(|(id, node)| nodes.contains(id) && node.has_data());
        with_data.map(|(id, node)| (*id, node.group.as_str())).collect()
    }

    /// Returns the nodes with a share of the vBuckets, each with its server group.
    pub fn serving_nodes(&self) -> BTreeMap<NodeId, &str> {
        self.with_data(&self.active_nodes())
    }

    pub(crate) fn put_group(&mut self, uuid: &str, name: &str) -> Result<(), Refusal> {
        let refuse = |reason: String| Refusal::Invalid { field: "name", reason };
        if name.trim().is_empty() || name.len() > GROUP_NAME_BYTES_MAX {
            return Err(refuse(format!("a name has 1 to {GROUP_NAME_BYTES_MAX} bytes")));
        }
        if self.groups.iter().any(|(known, taken)| taken == name && known != uuid) {
            return Err(refuse("already exists".into()));
        }
        let before = self.groups.insert(uuid.to_owned(), name.to_owned());
        for node in self.nodes.values_mut().filter(|node| Some(&node.group) == before.as_ref()) {
            node.group = name.to_owned();
        }
        Ok(())
    }

    pub(crate) fn drop_group(&mut self, uuid: &str) -> Result<(), Refusal> {
        let name = self.groups.get(uuid).ok_or(Refusal::GroupNotFound)?;
        if self.groups.len() == 1 || self.nodes.values().any(|node| node.group == *name) {
            let reason = "group is not empty, or the last one".to_owned();
            return Err(Refusal::Invalid { field: "_", reason });
        }
        self.groups.remove(uuid);
        Ok(())
    }

    pub(crate) fn move_to_groups(
        &mut self,
        groups: &BTreeMap<NodeId, String>,
    ) -> Result<(), Refusal> {
        groups.keys().try_for_each(|id| self.check_node(*id))?;
        if !groups.values().all(|uuid| self.groups.contains_key(uuid)) {
            return Err(Refusal::GroupNotFound);
        }
        for (id, uuid) in groups {
            let node = self.nodes.get_mut(id).expect("it was checked");
            node.group = self.groups[uuid].clone();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BucketChange, BucketSettings, Change, Endpoints, NodeChange, Ports};

    fn member(services: &[ServiceName], membership: Membership) -> Member {
        let plain =
            Ports::from([("mgmt", 1), ("views", 2), ("query", 3), ("eventing", 4), ("kv", 5)]);
        let endpoints = Endpoints { host: None, plain, tls: None, fingerprint: None };
        let services = services.iter().copied().collect();
        Member {
            uuid: "u".into(),
            endpoints,
            group: GROUP_DEFAULT.into(),
            services,
            membership,
            alternate: None,
        }
    }

    /// A node with data, and one with only the query service.
    fn two() -> Cluster {
        let mut cluster = Cluster::new("c".into());
        for (id, services) in [(1, &ServiceName::FIRST[..]), (2, &[ServiceName::QUERY])] {
            let member = member(services, Membership::Active);
            cluster.apply(&Change::Nodes(NodeChange::PutNode { id: NodeId(id), member })).unwrap();
        }
        cluster
    }

    fn set(id: u64, services: &[ServiceName]) -> Change {
        Change::Nodes(NodeChange::SetServices {
            id: NodeId(id),
            services: services.iter().copied().collect(),
        })
    }

    /// A rebalance of all nodes that changes the services of one.
    fn rebalance(cluster: &Cluster, id: u64, services: &[ServiceName]) -> Change {
        let services = [(NodeId(id), services.iter().copied().collect())].into();
        let (keep, rest) = (cluster.nodes.keys().copied().collect(), Membership::Leaving);
        Change::Nodes(NodeChange::StartRebalance { id: "r".into(), keep, rest, services })
    }

    #[test]
    fn node_ids_are_never_reused() {
        let put = |id: u64, uuid: &str, host: &str| {
            let part = member(&ServiceName::FIRST, Membership::Added);
            let mut member = Member { uuid: uuid.into(), ..part };
            member.endpoints.host = Some(host.into());
            Change::Nodes(NodeChange::PutNode { id: NodeId(id), member })
        };
        let mut cluster = Cluster::new("c".into());
        cluster.apply(&put(1, "u", "a")).unwrap();
        cluster.apply(&put(1, "u", "b")).unwrap();
        assert!(cluster.apply(&put(1, "v", "a")).is_err(), "another node has the number");
        cluster.apply(&put(2, "v", "c")).unwrap();
        cluster.apply(&Change::Nodes(NodeChange::DropNode { id: NodeId(2) })).unwrap();
        assert!(cluster.apply(&put(2, "v", "c")).is_err(), "one that was removed stays so");
        cluster.apply(&put(3, "w", "c")).unwrap();
        assert_eq!((cluster.next_node(), cluster.nodes.len()), (NodeId(4), 2));
    }

    #[test]
    fn copies_are_only_on_nodes_with_data() {
        let mut cluster = two();
        let settings = BucketSettings { replicas: 1, ..BucketSettings::default() };
        let bucket = Change::Buckets(BucketChange::CreateBucket {
            name: "b".into(),
            uuid: "u".into(),
            settings,
        });
        cluster.apply(&bucket).unwrap();
        let chains = &cluster.buckets["b"].chains;
        assert!(chains.iter().all(|chain| chain.copies == [Some(NodeId(1)), None]));
        let keep = [NodeId(2)].into();
        let rebalance = Change::Nodes(NodeChange::StartRebalance {
            id: "r".into(),
            keep,
            rest: Membership::Leaving,
            services: BTreeMap::new(),
        });
        assert_eq!(cluster.apply(&rebalance), Err(Refusal::NobodyKeeps));
    }

    #[test]
    fn services_of_a_node_can_change_except_for_data() {
        let mut cluster = two();
        let refused: [(u64, &[ServiceName]); 3] =
            [(2, &[]), (2, &[ServiceName::DATA]), (1, &[ServiceName::QUERY])];
        for (id, services) in refused {
            let refused = rebalance(&cluster, id, services);
            assert!(cluster.apply(&refused).is_err(), "{refused:?}");
        }
        for services in [&ServiceName::FIRST[..], &[ServiceName::QUERY]] {
            assert!(cluster.apply(&set(2, services)).is_err(), "it has its part");
        }
        assert_eq!(
            cluster.apply(&set(9, &ServiceName::FIRST)).unwrap_err(),
            Refusal::NodeNotFound { id: NodeId(9) }
        );
        assert_eq!(
            cluster.apply(&rebalance(&cluster.clone(), 9, &ServiceName::FIRST)).unwrap_err(),
            Refusal::NodeNotFound { id: NodeId(9) }
        );
        let wanted = [ServiceName::QUERY, ServiceName::EVENTING];
        cluster.apply(&rebalance(&cluster.clone(), 2, &wanted)).unwrap();
        assert_eq!(cluster.nodes[&NodeId(2)].services, wanted.into());
        let second = rebalance(&cluster, 2, &[ServiceName::QUERY]);
        assert_eq!(cluster.apply(&second), Err(Refusal::RebalanceRuns));
        assert_eq!(cluster.nodes[&NodeId(2)].services, wanted.into(), "refused is not begun");
        let mut alone = Cluster::new("c".into());
        let first = member(&ServiceName::FIRST, Membership::Active);
        alone.apply(&Change::Nodes(NodeChange::PutNode { id: NodeId(1), member: first })).unwrap();
        alone.apply(&set(1, &[ServiceName::QUERY])).unwrap();
        let settings = BucketSettings::default();
        let bucket = Change::Buckets(BucketChange::CreateBucket {
            name: "b".into(),
            uuid: "u".into(),
            settings,
        });
        assert!(alone.apply(&bucket).is_err(), "nobody could keep its documents");
    }

    #[test]
    fn the_kind_of_recovery_can_be_changed_until_the_rebalance() {
        let mut cluster = two();
        let id = NodeId(2);
        let recover = |full| Change::Nodes(NodeChange::Recover { id, full });
        let memberships = |part| [(id, part)].into();
        cluster
            .apply(&Change::Nodes(NodeChange::MoveCopies {
                memberships: memberships(Membership::FailedOver),
                chains: BTreeMap::new(),
            }))
            .unwrap();
        for full in [false, true, false] {
            cluster.apply(&recover(full)).unwrap();
            assert_eq!(cluster.recovering, [(id, full)].into());
            assert_eq!(cluster.nodes[&id].membership, Membership::Added);
        }
        let keep = [NodeId(1), id].into();
        let (rest, services) = (Membership::Leaving, BTreeMap::new());
        cluster
            .apply(&Change::Nodes(NodeChange::StartRebalance {
                id: "r".into(),
                keep,
                rest,
                services,
            }))
            .unwrap();
        assert_eq!(cluster.apply(&recover(true)), Err(Refusal::RebalanceRuns));
        let memberships = memberships(Membership::Active);
        cluster.apply(&Change::Nodes(NodeChange::EndRebalance { memberships })).unwrap();
        assert_eq!(cluster.recovering, BTreeMap::new());
    }

    #[test]
    fn a_node_that_is_leaving_is_not_taken_back() {
        let mut cluster = two();
        let leaving = member(&ServiceName::FIRST, Membership::Leaving);
        cluster
            .apply(&Change::Nodes(NodeChange::PutNode { id: NodeId(3), member: leaving }))
            .unwrap();
        let start = |keep: &[u64]| {
            let keep = keep.iter().copied().map(NodeId).collect();
            let (rest, services) = (Membership::Leaving, BTreeMap::new());
            Change::Nodes(NodeChange::StartRebalance { id: "r".into(), keep, rest, services })
        };
        assert_eq!(cluster.apply(&start(&[1, 2, 3])), Err(Refusal::NobodyKeeps));
        cluster.apply(&start(&[1, 2])).unwrap();
    }

    #[test]
    fn groups_have_names_of_their_own_and_go_when_they_are_empty() {
        let mut cluster = two();
        let put = |uuid: &str, name: &str| {
            Change::Nodes(NodeChange::PutGroup { uuid: uuid.into(), name: name.into() })
        };
        let moved = |id: u64, uuid: &str| {
            Change::Nodes(NodeChange::MoveToGroups { groups: [(NodeId(id), uuid.into())].into() })
        };
        let dropped = |uuid: &str| Change::Nodes(NodeChange::DropGroup { uuid: uuid.into() });
        cluster.apply(&put("g", "rack 2")).unwrap();
        cluster.apply(&moved(1, "g")).unwrap();
        cluster.apply(&put("g", "rack two")).unwrap();
        assert_eq!(cluster.nodes[&NodeId(1)].group, "rack two");
        let long = "x".repeat(GROUP_NAME_BYTES_MAX + 1);
        for refused in [
            put("h", "rack two"),
            put("g", GROUP_DEFAULT),
            put("h", " "),
            put("h", &long),
            dropped("g"),
            dropped("h"),
            moved(1, "h"),
            moved(9, "g"),
        ] {
            assert!(cluster.apply(&refused).is_err(), "{refused:?}");
        }
        cluster.apply(&put("g", "rack two")).unwrap();
        cluster.apply(&moved(1, "0")).unwrap();
        cluster.apply(&dropped("g")).unwrap();
        assert!(cluster.apply(&dropped("0")).is_err(), "one has to be left");
    }
}
