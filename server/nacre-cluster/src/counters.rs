//! Counters of node events, as in `counters` of `/pools/default`. Source: Couchbase's REST.

use crate::{Change, Cluster, EndedRebalance, Membership, NodeChange, Outcome};

/// Counts `change` after it was applied; `was_moving` is true if a rebalance was running before.
pub(crate) fn count(cluster: &mut Cluster, change: &Change, was_moving: bool) {
    let kind = |rest: Membership| match rest {
        Membership::FailedOver => "graceful_failover",
        _ => "rebalance",
    };
    match change {
        Change::Nodes(NodeChange::StartRebalance { rest, .. }) => {
            add_one(cluster, &format!("{}_start", kind(*rest)))
        }
        Change::Nodes(NodeChange::BeginAgain { .. }) if cluster.rebalance.is_some() => {
            add_one(cluster, "rebalance_start");
        }
        Change::Nodes(NodeChange::FailOver { .. }) => add_one(cluster, "failover"),
        _ => {}
    }
    let ended =
        cluster.last_rebalance.as_ref().filter(|_| was_moving && cluster.rebalance.is_none());
    if let Some(EndedRebalance { rebalance, outcome, .. }) = ended {
        let outcome = match outcome {
            Outcome::Completed => "success",
            Outcome::Stopped => "stop",
            Outcome::Failed { .. } => "fail",
        };
        add_one(cluster, &format!("{}_{outcome}", kind(rebalance.rest)));
    }
}

fn add_one(cluster: &mut Cluster, name: &str) {
    *cluster.counters.entry(name.to_owned()).or_default() += 1;
}

#[cfg(test)]
mod tests {
    use crate::{
        Change, Cluster, Endpoints, GROUP_DEFAULT, Member, Membership, NodeChange, Ports,
        ServiceName,
    };
    use nacre_types::NodeId;
    use std::collections::BTreeMap;

    #[test]
    fn rebalances_are_counted_by_how_they_begin_and_end() {
        let mut cluster = Cluster::new("c".into());
        let plain =
            Ports::from([("mgmt", 1), ("views", 2), ("query", 3), ("eventing", 4), ("kv", 5)]);
        let member = Member {
            uuid: "u".into(),
            endpoints: Endpoints { host: None, plain, tls: None, fingerprint: None },
            group: GROUP_DEFAULT.into(),
            services: ServiceName::FIRST.into(),
            membership: Membership::Active,
            alternate: None,
        };
        cluster.apply(&Change::Nodes(NodeChange::PutNode { id: NodeId(1), member })).unwrap();
        let start = |rest| {
            Change::Nodes(NodeChange::StartRebalance {
                id: "r".into(),
                keep: [NodeId(1)].into(),
                rest,
                services: BTreeMap::new(),
            })
        };
        for _ in 0..2 {
            cluster.apply(&start(Membership::Leaving)).unwrap();
            cluster.apply(&Change::Nodes(NodeChange::StopRebalance)).unwrap();
        }
        cluster.apply(&start(Membership::FailedOver)).unwrap();
        cluster
            .apply(&Change::Nodes(NodeChange::EndRebalance { memberships: BTreeMap::new() }))
            .unwrap();
        let counted: Vec<(&str, u64)> =
            cluster.counters.iter().map(|(name, count)| (name.as_str(), *count)).collect();
        let expected = [
            ("graceful_failover_start", 1),
            ("graceful_failover_success", 1),
            ("rebalance_start", 2),
            ("rebalance_stop", 2),
        ];
        assert_eq!(counted, expected);
    }
}
