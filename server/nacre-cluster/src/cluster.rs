//! The state machine shared by all nodes.

use crate::refusal::Refusal;
use crate::{
    AutoFailover, Bucket, BucketKind, BucketSettings, Chain, Change, ClusterSettings, Compaction,
    EndedRebalance, Functions, Member, Outcome, OutgoingRule, Plugins, QueryFunctions,
    QueryLibraries, RAM_QUOTA_TOO_LARGE, Rebalance, RetryRebalance, Secret, Sequences,
    ServiceRecords, place,
};
use crate::{counters, nodes};
use nacre_types::{CollectionId, NodeId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The agreed state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    /// UUID: 32 hexadecimal digits, chosen when the cluster was created.
    pub uuid: String,
    /// Name chosen by the operator; empty until named.
    #[serde(default)]
    pub name: String,
    /// Revision; increases with every change that clients can see in a cluster map.
    pub rev: u64,
    /// Secret with which nodes log in to each other.
    #[serde(default)]
    pub secret: Secret,
    /// The nodes by ID.
    #[serde(default)]
    pub nodes: BTreeMap<NodeId, Member>,
    /// Names of the server groups by UUID (32 hexadecimal digits).
    #[serde(default = "nodes::first_group")]
    pub groups: BTreeMap<String, String>,
    /// The highest ID of a removed node; IDs are never reused.
    #[serde(default)]
    pub last_gone: NodeId,
    /// Number of times that the remaining nodes have continued without a majority. A map with a larger number is newer,
    /// whatever its revision.
    #[serde(default)]
    pub regroups: u64,
    /// Nodes whose failover was ordered, whether or not they are alive.
    #[serde(default)]
    pub failing_over: Vec<NodeId>,
    /// Settings and count of automatic failovers.
    #[serde(default)]
    pub auto_failover: AutoFailover,
    /// The running rebalance.
    #[serde(default)]
    pub rebalance: Option<Rebalance>,
    /// The last rebalance that has ended.
    #[serde(default)]
    pub last_rebalance: Option<EndedRebalance>,
    /// Settings for retries of failed rebalances.
    #[serde(default)]
    pub retry_rebalance: RetryRebalance,
    /// Failed-over nodes that get their share again in the next rebalance; true for a full recovery.
    #[serde(default)]
    pub recovering: BTreeMap<NodeId, bool>,
    /// Name of the user who has administered the cluster since its creation; empty if unknown. Lists of users omit this
    /// user, as in Couchbase.
    #[serde(default)]
    pub administrator: String,
    /// Settings of the cluster as a whole.
    #[serde(default)]
    pub settings: ClusterSettings,
    /// Counts of rebalances and failovers by their names in REST, since the cluster was created.
    #[serde(default)]
    pub counters: BTreeMap<String, u64>,
    /// Buckets by name.
    pub buckets: BTreeMap<String, Bucket>,
    /// Packages of plugins, and their deployments.
    #[serde(default)]
    pub plugins: Plugins,
    /// Eventing functions.
    #[serde(default)]
    pub functions: Functions,
    /// True if eventing functions may trigger each other in a cycle.
    #[serde(default)]
    pub function_recursion: bool,
    /// Addresses that functions and plugins may reach over HTTP despite the default denials.
    #[serde(default)]
    pub outgoing_http: Vec<OutgoingRule>,
    /// User-defined functions of the query language.
    #[serde(default)]
    pub query_functions: QueryFunctions,
    /// JavaScript libraries called by these functions.
    #[serde(default)]
    pub query_libraries: QueryLibraries,
    /// Sequences of the query language.
    #[serde(default)]
    pub sequences: Sequences,
    /// Records of services, such as the definitions of search indexes.
    #[serde(default)]
    pub service_records: ServiceRecords,
}

impl Cluster {
    /// Creates a cluster without buckets.
    pub fn new(uuid: String) -> Cluster {
        Cluster {
            uuid,
            name: String::new(),
            rev: 1,
            secret: Secret::default(),
            nodes: BTreeMap::new(),
            groups: nodes::first_group(),
            last_gone: NodeId(0),
            regroups: 0,
            failing_over: Vec::new(),
            auto_failover: AutoFailover::default(),
            rebalance: None,
            last_rebalance: None,
            retry_rebalance: RetryRebalance::default(),
            recovering: BTreeMap::new(),
            administrator: String::new(),
            settings: ClusterSettings::default(),
            counters: BTreeMap::new(),
            buckets: BTreeMap::new(),
            plugins: Plugins::default(),
            functions: Functions::default(),
            function_recursion: false,
            outgoing_http: Vec::new(),
            query_functions: QueryFunctions::default(),
            sequences: Sequences::default(),
            query_libraries: QueryLibraries::default(),
            service_records: ServiceRecords::default(),
        }
    }

    /// Returns the bucket `name`.
    ///
    /// # Errors
    /// [`Refusal::BucketNotFound`].
    pub fn bucket(&self, name: &str) -> Result<&Bucket, Refusal> {
        self.buckets.get(name).ok_or_else(|| Refusal::BucketNotFound { bucket: name.to_owned() })
    }

    pub(crate) fn bucket_mut(&mut self, name: &str) -> Result<&mut Bucket, Refusal> {
        self.buckets
            .get_mut(name)
            .ok_or_else(|| Refusal::BucketNotFound { bucket: name.to_owned() })
    }

    /// Applies `change`. Returns the collections that it drops.
    ///
    /// # Errors
    /// [`Refusal`]; the state is unchanged in that case.
    pub fn apply(&mut self, change: &Change) -> Result<Vec<CollectionId>, Refusal> {
        let was_moving = self.rebalance.is_some();
        let dropped = change.apply(self)?;
        counters::count(self, change, was_moving);
        self.rev += 1;
        Ok(dropped)
    }

    /// Assigns the vBuckets of new buckets to nodes, once there are nodes.
    pub(crate) fn place_buckets(&mut self) {
        let nodes: BTreeMap<NodeId, String> =
            self.serving_nodes().into_iter().map(|(id, group)| (id, group.to_owned())).collect();
        if nodes.is_empty() {
            return;
        }
        let nodes = nodes.iter().map(|(id, group)| (*id, group.as_str())).collect();
        for bucket in self.buckets.values_mut().filter(|bucket| bucket.chains.is_empty()) {
            let BucketSettings { vbucket_count, replicas, .. } = bucket.settings;
            let unplaced = vec![Vec::new(); usize::from(vbucket_count)];
            let placed = place(&unplaced, &nodes, usize::from(replicas));
            bucket.chains = placed.into_iter().map(Chain::new).collect();
        }
    }

    /// Returns the compaction settings of a bucket: its own, or those of the cluster.
    pub fn compaction_of(&self, bucket: &BucketSettings) -> Compaction {
        let general = &self.settings.compaction;
        match &bucket.compaction {
            Some(own) => own.clone(),
            // Tombstones of an ephemeral bucket occupy memory, so only its own setting may keep them for long.
            None if bucket.kind == BucketKind::Ephemeral => {
                Compaction { purge_age_s: None, ..general.clone() }
            }
            None => general.clone(),
        }
    }

    /// Returns the sum of all buckets' quotas on a node, in MiB.
    pub fn bucket_quotas_mb(&self) -> u64 {
        self.buckets.values().map(|bucket| bucket.settings.ram_quota_mb).sum()
    }

    /// Refuses buckets whose quotas together exceed that of the data service.
    pub(crate) fn check_data_quota(&self, buckets_mb: u64) -> Result<(), Refusal> {
        match self.settings.quotas.data_mb {
            Some(quota_mb) if buckets_mb > quota_mb => {
                Err(Refusal::Invalid { field: "ramQuota", reason: RAM_QUOTA_TOO_LARGE.into() })
            }
            _ => Ok(()),
        }
    }

    /// Continues with the state of this node, without a majority. The excluded nodes do not know the new `secret`, so
    /// they have no part in the cluster until they rejoin.
    pub fn regroup(&mut self, secret: Secret) {
        self.regroups += 1;
        self.secret = secret;
        self.rev += 1;
        self.failing_over.clear();
        if self.end_rebalance(Outcome::Failed { lost: BTreeSet::new() }).is_ok() {
            self.settle_chains();
        }
    }

    /// Stops all moves of copies; unfinished moves are dropped.
    pub(crate) fn settle_chains(&mut self) {
        for chain in self.buckets.values_mut().flat_map(|bucket| &mut bucket.chains) {
            if chain.held {
                chain.release();
            }
            chain.next.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        BucketChange, ClusterChange, Endpoints, IndexChange, Membership, NodeChange, Ports,
        ServiceName,
    };

    fn cluster() -> Cluster {
        let mut cluster = Cluster::new("c".into());
        let settings = BucketSettings::default();
        cluster
            .apply(&Change::Buckets(BucketChange::CreateBucket {
                name: "a".into(),
                uuid: "u".into(),
                settings,
            }))
            .unwrap();
        cluster
    }

    #[test]
    fn a_refused_change_changes_nothing() {
        let mut cluster = cluster();
        let before = cluster.clone();
        let settings = BucketSettings { ram_quota_mb: 1, ..BucketSettings::default() };
        for change in [
            Change::Buckets(BucketChange::CreateBucket {
                name: "a".into(),
                uuid: "v".into(),
                settings: BucketSettings::default(),
            }),
            Change::Buckets(BucketChange::CreateBucket {
                name: "b c".into(),
                uuid: "v".into(),
                settings: BucketSettings::default(),
            }),
            Change::Buckets(BucketChange::UpdateBucket { name: "a".into(), settings }),
            Change::Buckets(BucketChange::FlushBucket { name: "a".into() }),
            Change::Buckets(BucketChange::DropBucket { name: "z".into() }),
            Change::Buckets(BucketChange::DropScope {
                bucket: "a".into(),
                scope: "_default".into(),
            }),
            Change::Indexes(IndexChange::DropDesignDocument {
                bucket: "a".into(),
                name: "d".into(),
            }),
        ] {
            assert!(cluster.apply(&change).is_err(), "{change:?}");
            assert_eq!(cluster, before, "{change:?}");
        }
    }

    #[test]
    fn a_cluster_stored_before_there_were_names_has_none() {
        let stored = r#"{"uuid":"c","rev":7,"buckets":{}}"#;
        let mut cluster: Cluster = serde_json::from_str(stored).unwrap();
        assert_eq!((cluster.name.as_str(), cluster.rev), ("", 7));
        cluster
            .apply(&Change::Cluster(ClusterChange::NameCluster { name: "oysters".into() }))
            .unwrap();
        assert_eq!((cluster.name.as_str(), cluster.rev), ("oysters", 8));
        let too_long = Change::Cluster(ClusterChange::NameCluster { name: "x".repeat(257) });
        assert!(cluster.apply(&too_long).is_err());
    }

    fn member(membership: Membership) -> Member {
        let plain =
            Ports::from([("mgmt", 1), ("views", 2), ("query", 3), ("eventing", 4), ("kv", 5)]);
        let endpoints = Endpoints { host: None, plain, tls: None, fingerprint: None };
        let services = ServiceName::FIRST.into();
        Member {
            uuid: "u".into(),
            endpoints,
            group: "g".into(),
            services,
            membership,
            alternate: None,
        }
    }

    #[test]
    fn a_bucket_is_placed_on_the_nodes_that_serve() {
        let mut cluster = cluster();
        assert!(cluster.buckets["a"].chains.is_empty(), "there is no node yet");
        for (id, membership) in [(2, Membership::Added), (1, Membership::Active)] {
            let (id, member) = (NodeId(id), member(membership));
            cluster.apply(&Change::Nodes(NodeChange::PutNode { id, member })).unwrap();
        }
        let chains = &cluster.buckets["a"].chains;
        assert_eq!(chains.len(), 1024);
        assert!(chains.iter().all(|chain| *chain == Chain::new(vec![Some(NodeId(1))])));
        let settings = BucketSettings { replicas: 1, ..BucketSettings::default() };
        cluster
            .apply(&Change::Buckets(BucketChange::UpdateBucket { name: "a".into(), settings }))
            .unwrap();
        assert_eq!(cluster.buckets["a"].chains[7].copies, [Some(NodeId(1)), None]);
    }

    #[test]
    fn copies_begin_to_move_only_for_the_rebalance_that_is_under_way() {
        let mut cluster = cluster();
        for id in [1, 2] {
            let member = member(Membership::Active);
            cluster.apply(&Change::Nodes(NodeChange::PutNode { id: NodeId(id), member })).unwrap();
        }
        let (name, uuid) = ("late".to_owned(), "u".to_owned());
        let settings = BucketSettings { vbucket_count: 1, replicas: 0, ..Default::default() };
        cluster
            .apply(&Change::Buckets(BucketChange::CreateBucket {
                name: name.clone(),
                uuid,
                settings,
            }))
            .unwrap();
        let known = cluster.buckets[&name].chains[0].clone();
        let next = if known.active() == Some(NodeId(1)) { NodeId(2) } else { NodeId(1) };
        let chain = Chain { next: vec![Some(next)], ..known };
        let chains = BTreeMap::from([(name, BTreeMap::from([(0, chain)]))]);
        let change = Change::Nodes(NodeChange::MoveCopies { memberships: BTreeMap::new(), chains });
        assert!(matches!(cluster.apply(&change), Err(Refusal::CopiesMoved { .. })));
        let (keep, rest) = ([next].into(), Membership::Leaving);
        cluster
            .apply(&Change::Nodes(NodeChange::StartRebalance {
                id: "r".into(),
                keep,
                rest,
                services: BTreeMap::new(),
            }))
            .unwrap();
        cluster.apply(&change).unwrap();
        cluster.apply(&Change::Nodes(NodeChange::StopRebalance)).unwrap();
        assert!(matches!(cluster.apply(&change), Err(Refusal::CopiesMoved { .. })));
    }

    #[test]
    fn copies_move_only_from_their_current_node() {
        let mut cluster = cluster();
        let member = member(Membership::Active);
        cluster.apply(&Change::Nodes(NodeChange::PutNode { id: NodeId(1), member })).unwrap();
        let change = |term: u64, active: u64| {
            let chain = Chain { term, ..Chain::new(vec![Some(NodeId(active))]) };
            let chains = BTreeMap::from([("a".to_owned(), BTreeMap::from([(7, chain)]))]);
            Change::Nodes(NodeChange::MoveCopies { memberships: BTreeMap::new(), chains })
        };
        let before = cluster.clone();
        for stale in [change(1, 2), change(3, 2), change(3, 1)] {
            let refused = cluster.apply(&stale).unwrap_err();
            assert_eq!(refused, Refusal::CopiesMoved { bucket: "a".into() });
            assert_eq!(cluster, before);
        }
        cluster.apply(&change(2, 2)).unwrap();
        assert_eq!(cluster.buckets["a"].chains[7].active(), Some(NodeId(2)));
    }

    #[test]
    fn dropping_a_scope_names_the_collections_that_went_with_it() {
        let mut cluster = cluster();
        let (bucket, scope) = ("a".to_owned(), "s".to_owned());
        cluster
            .apply(&Change::Buckets(BucketChange::CreateScope {
                bucket: bucket.clone(),
                scope: scope.clone(),
            }))
            .unwrap();
        let (bucket2, scope2, collection) = (bucket.clone(), scope.clone(), "c".to_owned());
        let change = Change::Buckets(BucketChange::CreateCollection {
            bucket: bucket2,
            scope: scope2,
            collection,
            max_ttl: 0,
            history: None,
        });
        cluster.apply(&change).unwrap();
        let rev = cluster.rev;
        assert_eq!(
            cluster.apply(&Change::Buckets(BucketChange::DropScope { bucket, scope })),
            Ok(vec![CollectionId(8)])
        );
        assert_eq!(cluster.rev, rev + 1);
    }
}
