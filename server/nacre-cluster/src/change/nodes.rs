//! A change of nodes, of their groups, or of where the copies of vBuckets are.

use crate::{
    Alternate, AutoFailover, Chain, Cluster, Endpoints, Member, Membership, Outcome, Refusal,
    RetryRebalance, ServiceName,
};
use nacre_types::NodeId;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A change of nodes, of their groups, or of where the copies of vBuckets are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeChange {
    /// A node is added, or is reached elsewhere, or has another part.
    PutNode {
        /// ID of the node.
        id: NodeId,
        /// Addresses, services and membership of the node.
        member: Member,
    },
    /// A node is reached elsewhere.
    MoveNode {
        /// ID of the node.
        id: NodeId,
        /// New addresses.
        endpoints: Endpoints,
    },
    /// A node is reached from elsewhere at another address, or not any more.
    SetAlternate {
        /// ID of the node.
        id: NodeId,
        /// New alternate address, if any.
        alternate: Option<Alternate>,
    },
    /// Changes the services of a node that is alone and has no buckets. The services of other nodes change with a
    /// [rebalance](NodeChange::StartRebalance).
    SetServices {
        /// ID of the node.
        id: NodeId,
        /// New services.
        services: BTreeSet<ServiceName>,
    },
    /// A new group of nodes, or another name for one.
    PutGroup {
        /// UUID of the group: 32 hexadecimal digits, or the UUID of the first group.
        uuid: String,
        /// The name.
        name: String,
    },
    /// The end of a group that no node is in.
    DropGroup {
        /// UUID of the group.
        uuid: String,
    },
    /// Nodes are in other groups. Copies follow with the next rebalance.
    MoveToGroups {
        /// By node: the identity of its group.
        groups: BTreeMap<NodeId, String>,
    },
    /// A node has left.
    DropNode {
        /// ID of the node.
        id: NodeId,
    },
    /// Orders the replacement of nodes, whether or not they are heard.
    FailOver {
        /// Their numbers.
        nodes: Vec<NodeId>,
    },
    /// Gives a replaced node its share again, with the next rebalance.
    Recover {
        /// ID of the node.
        id: NodeId,
        /// True if all its copies are filled from nothing, instead of from their last common seqno.
        #[serde(default)]
        full: bool,
    },
    /// Sets what happens to silent nodes.
    SetAutoFailover {
        /// The settings; the count of those that were replaced stays.
        settings: AutoFailover,
    },
    /// Allows as many silent nodes to be replaced again as when the cluster was new.
    ResetAutoFailover,
    /// Starts to spread the copies evenly over these nodes.
    StartRebalance {
        /// 32 hexadecimal digits.
        id: String,
        /// Nodes that have a share afterwards.
        keep: BTreeSet<NodeId>,
        /// Membership of all other nodes afterwards: they leave, or only have no share.
        rest: Membership,
        /// New services of the nodes whose services change.
        #[serde(default)]
        services: BTreeMap<NodeId, BTreeSet<ServiceName>>,
    },
    /// The rebalance that is under way goes no further.
    StopRebalance,
    /// The map is given another revision, so that clients take it for news.
    RenewMap,
    /// Sets what happens after a failed rebalance.
    SetRetryRebalance {
        /// The settings.
        settings: RetryRebalance,
    },
    /// The rebalance that is [pending](Cluster::pending_rebalance) is begun again.
    BeginAgain {
        /// ID of the rebalance.
        id: String,
    },
    /// The rebalance that is [pending](Cluster::pending_rebalance) is not begun again.
    GiveUpRebalance {
        /// ID of the rebalance.
        id: String,
    },
    /// The rebalance that is under way has come to its end.
    EndRebalance {
        /// The part of each node.
        memberships: BTreeMap<NodeId, Membership>,
    },
    /// Copies of vBuckets are elsewhere, and nodes have another part, at once.
    MoveCopies {
        /// The parts of nodes.
        memberships: BTreeMap<NodeId, Membership>,
        /// By bucket and number of the vBucket: where its copies are.
        chains: BTreeMap<String, BTreeMap<u16, Chain>>,
    },
}

impl NodeChange {
    pub(crate) fn apply(&self, cluster: &mut Cluster) -> Result<(), Refusal> {
        match self {
            NodeChange::PutNode { id, member } => cluster.put_node(*id, member)?,
            NodeChange::MoveNode { id, endpoints } => {
                let node = cluster.nodes.get_mut(id).ok_or(Refusal::NodeNotFound { id: *id })?;
                node.endpoints = endpoints.clone();
            }
            NodeChange::SetAlternate { id, alternate } => {
                cluster.set_alternate(*id, alternate.as_ref())?
            }
            NodeChange::SetServices { id, services } => cluster.set_services(*id, services)?,
            NodeChange::PutGroup { uuid, name } => cluster.put_group(uuid, name)?,
            NodeChange::DropGroup { uuid } => cluster.drop_group(uuid)?,
            NodeChange::MoveToGroups { groups } => cluster.move_to_groups(groups)?,
            NodeChange::DropNode { id } => {
                cluster.nodes.remove(id).ok_or(Refusal::NodeNotFound { id: *id })?;
                cluster.recovering.remove(id);
                cluster.last_gone = cluster.last_gone.max(*id);
            }
            NodeChange::FailOver { nodes } => {
                nodes.iter().try_for_each(|id| cluster.check_node(*id))?;
                if let Some(id) = cluster.failing_over.iter().find(|id| !nodes.contains(id)) {
                    return Err(Refusal::FailoverRuns { id: *id });
                }
                cluster.failing_over.extend(nodes);
            }
            NodeChange::Recover { id, full } => cluster.recover(*id, *full)?,
            NodeChange::SetAutoFailover { settings } => {
                cluster.auto_failover =
                    AutoFailover { count: cluster.auto_failover.count, ..*settings };
            }
            NodeChange::ResetAutoFailover => cluster.auto_failover.count = 0,
            // Each change is another revision.
            NodeChange::RenewMap => {}
            NodeChange::StartRebalance { id, keep, rest, services } => {
                keep.iter().try_for_each(|id| cluster.check_node(*id))?;
                cluster.check_services(services)?;
                cluster.start_rebalance(cluster.plan_rebalance(id, keep, *rest))?;
                cluster.put_services(services);
            }
            NodeChange::StopRebalance => {
                cluster.end_rebalance(Outcome::Stopped)?;
                cluster.settle_chains();
            }
            NodeChange::SetRetryRebalance { settings } => cluster.retry_rebalance = *settings,
            NodeChange::BeginAgain { id } => cluster.begin_again(id)?,
            NodeChange::GiveUpRebalance { id } => cluster.give_up_rebalance(id)?,
            NodeChange::EndRebalance { memberships } => {
                cluster.end_rebalance(Outcome::Completed)?;
                cluster.set_memberships(memberships);
                cluster.auto_failover.count = 0;
                cluster.place_buckets();
            }
            NodeChange::MoveCopies { memberships, chains } => {
                move_copies(cluster, memberships, chains)?
            }
        }
        Ok(())
    }
}

fn move_copies(
    cluster: &mut Cluster,
    memberships: &BTreeMap<NodeId, Membership>,
    chains: &BTreeMap<String, BTreeMap<u16, Chain>>,
) -> Result<(), Refusal> {
    memberships.keys().try_for_each(|id| cluster.check_node(*id))?;
    for (bucket, moved) in chains {
        let known = &cluster.bucket(bucket)?.chains;
        // Copies begin to move only for the rebalance under way: a proposal for an earlier one comes too late.
        let is_kept = |node: &&NodeId| {
            cluster.rebalance.as_ref().is_some_and(|rebalance| rebalance.keep.contains(node))
        };
        let follows = |(vbid, chain): (&u16, &Chain)| {
            known.get(usize::from(*vbid)).is_some_and(|known| {
                let mut next = chain.next.iter().flatten();
                let is_next = |node: &&NodeId| known.next.contains(&Some(**node));
                chain.follows(known) && next.all(|node| is_kept(&node) || is_next(&node))
            })
        };
        if !moved.iter().all(follows) {
            return Err(Refusal::CopiesMoved { bucket: bucket.clone() });
        }
    }
    for (bucket, moved) in chains {
        let known = &mut cluster.bucket_mut(bucket)?.chains;
        for (vbid, chain) in moved {
            known[usize::from(*vbid)] = chain.clone();
        }
    }
    let is_lost = |node: &&NodeId| memberships.get(node) == Some(&Membership::FailedOver);
    let keep = cluster.rebalance.iter().flat_map(|rebalance| &rebalance.keep);
    let lost: BTreeSet<NodeId> = keep.filter(is_lost).copied().collect();
    if !lost.is_empty() {
        // The plan of the rebalance cannot be carried out any more.
        cluster.end_rebalance(Outcome::Failed { lost })?;
        cluster.settle_chains();
    }
    cluster.set_memberships(memberships);
    Ok(())
}
