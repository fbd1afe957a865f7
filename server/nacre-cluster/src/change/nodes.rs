//! Changes of nodes, of their server groups, or of the placement of vBuckets.

use crate::{
    Alternate, AutoFailover, Chain, Cluster, Endpoints, Member, Membership, Outcome, Refusal,
    RetryRebalance, ServiceName,
};
use nacre_types::NodeId;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A change of nodes, of their server groups, or of the placement of vBuckets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeChange {
    /// Adds a node, or changes its addresses or membership.
    PutNode {
        /// ID of the node.
        id: NodeId,
        /// Addresses, services and membership of the node.
        member: Member,
    },
    /// Changes the addresses of a node.
    MoveNode {
        /// ID of the node.
        id: NodeId,
        /// New addresses.
        endpoints: Endpoints,
    },
    /// Sets or removes the alternate address of a node.
    SetAlternate {
        /// ID of the node.
        id: NodeId,
        /// New alternate address, if any.
        alternate: Option<Alternate>,
    },
    /// Changes the services of a single node without buckets. The services of other nodes change with a
    /// [rebalance](NodeChange::StartRebalance).
    SetServices {
        /// ID of the node.
        id: NodeId,
        /// New services.
        services: BTreeSet<ServiceName>,
    },
    /// Creates or renames a server group.
    PutGroup {
        /// UUID of the group: 32 hexadecimal digits, or the UUID of the first group.
        uuid: String,
        /// The name.
        name: String,
    },
    /// Drops an empty server group.
    DropGroup {
        /// UUID of the group.
        uuid: String,
    },
    /// Moves nodes to other server groups. The copies follow with the next rebalance.
    MoveToGroups {
        /// UUID of the new group of each node.
        groups: BTreeMap<NodeId, String>,
    },
    /// Removes a node.
    DropNode {
        /// ID of the node.
        id: NodeId,
    },
    /// Orders the failover of nodes, whether or not they are alive.
    FailOver {
        /// The IDs of the nodes.
        nodes: Vec<NodeId>,
    },
    /// Gives a failed-over node its share again in the next rebalance.
    Recover {
        /// ID of the node.
        id: NodeId,
        /// True for a full recovery: all its copies are built from scratch. False for a delta recovery from the last
        /// common seqno.
        #[serde(default)]
        full: bool,
    },
    /// Changes the auto-failover settings.
    SetAutoFailover {
        /// The settings; the current count of failovers is kept.
        settings: AutoFailover,
    },
    /// Resets the count of automatic failovers.
    ResetAutoFailover,
    /// Starts a rebalance: spreads the copies evenly over these nodes.
    StartRebalance {
        /// ID of the rebalance: 32 hexadecimal digits.
        id: String,
        /// Nodes that have a share afterwards.
        keep: BTreeSet<NodeId>,
        /// Membership of all other nodes afterwards: leaving, or failed over.
        rest: Membership,
        /// New services of the nodes whose services change.
        #[serde(default)]
        services: BTreeMap<NodeId, BTreeSet<ServiceName>>,
    },
    /// Stops the running rebalance.
    StopRebalance,
    /// Gives the cluster map a new revision, so that clients adopt it.
    RenewMap,
    /// Changes the settings for retries of failed rebalances.
    SetRetryRebalance {
        /// The settings.
        settings: RetryRebalance,
    },
    /// Retries the [pending](Cluster::pending_rebalance) rebalance.
    BeginAgain {
        /// ID of the rebalance.
        id: String,
    },
    /// Cancels the [pending](Cluster::pending_rebalance) rebalance.
    GiveUpRebalance {
        /// ID of the rebalance.
        id: String,
    },
    /// Completes the running rebalance.
    EndRebalance {
        /// The new membership of each node.
        memberships: BTreeMap<NodeId, Membership>,
    },
    /// Changes copies of vBuckets and memberships of nodes atomically.
    MoveCopies {
        /// The new memberships.
        memberships: BTreeMap<NodeId, Membership>,
        /// The new chains by bucket and vBucket.
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
            // Every change increments the revision.
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
        // Copies begin to move only for the running rebalance: a proposal for an earlier one is too late.
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
        // The plan of the rebalance can no longer be carried out.
        cluster.end_rebalance(Outcome::Failed { lost })?;
        cluster.settle_chains();
    }
    cluster.set_memberships(memberships);
    Ok(())
}
