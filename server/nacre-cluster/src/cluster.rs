//! The state machine that all nodes share.

use crate::nodes;
use crate::refusal::Refusal;
use crate::{
    AutoFailover, Bucket, BucketSettings, Chain, Change, ClusterSettings, Deployment,
    EndedRebalance, FunctionDefinition, FunctionId, FunctionKeyspace, FunctionState, Functions,
    Manifest, Member, Membership, OUTGOING_MAX, Outcome, OutgoingRule, Plugins, QueryFunction,
    QueryFunctions, QueryLibraries, Rebalance, RetryRebalance, Secret, Sequences, ServiceRecord,
    ServiceRecords, Source, place,
};
use nacre_types::{CollectionId, NodeId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The longest name of a cluster: it goes into every cluster map.
const NAME_BYTES_MAX: usize = 256;
/// The state that the nodes agree on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    /// 32 hexadecimal digits, chosen when the cluster began.
    pub uuid: String,
    /// Name that the operator chose; empty until named.
    #[serde(default)]
    pub name: String,
    /// Grows with every change that clients can see in a cluster map.
    pub rev: u64,
    /// Secret with which nodes log in to each other.
    #[serde(default)]
    pub secret: Secret,
    /// The nodes, by number.
    #[serde(default)]
    pub nodes: BTreeMap<NodeId, Member>,
    /// The groups that nodes are in: the name of each, by its identity of 32 hexadecimal digits.
    #[serde(default = "nodes::first_group")]
    pub groups: BTreeMap<String, String>,
    /// The highest number of a node that has left: none is used twice.
    #[serde(default)]
    pub last_gone: NodeId,
    /// Counts how often the remaining nodes have gone on without a majority. A map with a larger number is newer,
    /// whatever its revision.
    #[serde(default)]
    pub regroups: u64,
    /// Nodes whose replacement was ordered, whether or not they are heard.
    #[serde(default)]
    pub failing_over: Vec<NodeId>,
    /// True if nodes that fall silent are replaced.
    #[serde(default)]
    pub auto_failover: AutoFailover,
    /// The rebalance that is under way.
    #[serde(default)]
    pub rebalance: Option<Rebalance>,
    /// The last one that has ended.
    #[serde(default)]
    pub last_rebalance: Option<EndedRebalance>,
    /// True if one that has failed is begun again.
    #[serde(default)]
    pub retry_rebalance: RetryRebalance,
    /// Failed-over nodes that get their share again with the next rebalance, and whether all their copies are copied as a whole.
    #[serde(default)]
    pub recovering: BTreeMap<NodeId, bool>,
    /// Name of the user who has administered the cluster since it was set up; empty if unknown. Lists of users omit it,
    /// as Couchbase does, because it is no ordinary user.
    #[serde(default)]
    pub administrator: String,
    /// Settings of the cluster as a whole.
    #[serde(default)]
    pub settings: ClusterSettings,
    /// Counts of rebalances and failovers by their names in REST, since the cluster began.
    #[serde(default)]
    pub counters: BTreeMap<String, u64>,
    /// Buckets by name.
    pub buckets: BTreeMap<String, Bucket>,
    /// Packages of plugins, and their deployments.
    #[serde(default)]
    pub plugins: Plugins,
    /// Functions that react to changes of documents.
    #[serde(default)]
    pub functions: Functions,
    /// True if functions may wake each other in a circle.
    #[serde(default)]
    pub function_recursion: bool,
    /// Addresses that functions and plugins may reach over HTTP although they are denied by default.
    #[serde(default)]
    pub outgoing_http: Vec<OutgoingRule>,
    /// Functions of the query language.
    #[serde(default)]
    pub query_functions: QueryFunctions,
    /// Libraries that they call.
    #[serde(default)]
    pub query_libraries: QueryLibraries,
    /// Sequences of the query language.
    #[serde(default)]
    pub sequences: Sequences,
    /// What services keep, such as the definitions of search indexes.
    #[serde(default)]
    pub service_records: ServiceRecords,
}

impl Cluster {
    /// A cluster without buckets.
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

    /// The bucket `name`.
    ///
    /// # Errors
    /// [`Refusal::BucketNotFound`].
    pub fn bucket(&self, name: &str) -> Result<&Bucket, Refusal> {
        self.buckets.get(name).ok_or_else(|| Refusal::BucketNotFound { bucket: name.to_owned() })
    }

    fn bucket_mut(&mut self, name: &str) -> Result<&mut Bucket, Refusal> {
        self.buckets
            .get_mut(name)
            .ok_or_else(|| Refusal::BucketNotFound { bucket: name.to_owned() })
    }

    /// Applies `change`. Returns the collections that it dropped.
    ///
    /// # Errors
    /// [`Refusal`]; nothing has changed then.
    pub fn apply(&mut self, change: &Change) -> Result<Vec<CollectionId>, Refusal> {
        let was_moving = self.rebalance.is_some();
        let dropped = self.dispatch(change)?;
        self.count(change, was_moving);
        self.rev += 1;
        Ok(dropped)
    }

    /// A table: an arm for each change, which is long as there are many.
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn dispatch(&mut self, change: &Change) -> Result<Vec<CollectionId>, Refusal> {
        match change {
            Change::NameCluster { name } => self.rename(name)?,
            Change::PutNode { id, member } => self.put_node(*id, member)?,
            Change::MoveNode { id, endpoints } => {
                let node = self.nodes.get_mut(id).ok_or(Refusal::NodeNotFound { id: *id })?;
                node.endpoints = endpoints.clone();
            }
            Change::SetAlternate { id, alternate } => {
                self.set_alternate(*id, alternate.as_ref())?
            }
            Change::SetServices { id, services } => self.set_services(*id, services)?,
            Change::PutGroup { uuid, name } => self.put_group(uuid, name)?,
            Change::DropGroup { uuid } => self.drop_group(uuid)?,
            Change::MoveToGroups { groups } => self.move_to_groups(groups)?,
            Change::DropNode { id } => {
                self.nodes.remove(id).ok_or(Refusal::NodeNotFound { id: *id })?;
                self.recovering.remove(id);
                self.last_gone = self.last_gone.max(*id);
            }
            Change::FailOver { nodes } => {
                nodes.iter().try_for_each(|id| self.check_node(*id))?;
                if let Some(id) = self.failing_over.iter().find(|id| !nodes.contains(id)) {
                    return Err(Refusal::FailoverRuns { id: *id });
                }
                self.failing_over.extend(nodes);
            }
            Change::Recover { id, full } => self.recover(*id, *full)?,
            Change::SetAutoFailover { settings } => {
                self.auto_failover = AutoFailover { count: self.auto_failover.count, ..*settings };
            }
            Change::ResetAutoFailover => self.auto_failover.count = 0,
            // Each change is another revision.
            Change::RenewMap => {}
            Change::StartRebalance { id, keep, rest, services } => {
                keep.iter().try_for_each(|id| self.check_node(*id))?;
                self.check_services(services)?;
                self.start_rebalance(self.plan_rebalance(id, keep, *rest))?;
                self.put_services(services);
            }
            Change::StopRebalance => {
                self.end_rebalance(Outcome::Stopped)?;
                self.settle_chains();
            }
            Change::SetRetryRebalance { settings } => self.retry_rebalance = *settings,
            Change::BeginAgain { id } => self.begin_again(id)?,
            Change::GiveUpRebalance { id } => self.give_up_rebalance(id)?,
            Change::EndRebalance { memberships } => {
                self.end_rebalance(Outcome::Completed)?;
                self.set_memberships(memberships);
                self.auto_failover.count = 0;
                self.place_buckets();
            }
            Change::MoveCopies { memberships, chains } => self.move_copies(memberships, chains)?,
            Change::NameAdministrator { name } => self.administrator.clone_from(name),
            Change::ChangeSettings { change } => self.change_settings(change)?,
            Change::CreateBucket { name, uuid, settings } => {
                self.create_bucket(name, uuid, settings)?
            }
            Change::UpdateBucket { name, settings } => self.update_bucket(name, settings)?,
            Change::DropBucket { name } => {
                self.bucket(name)?;
                self.buckets.remove(name);
                self.plugins.forget_bucket(name);
                self.functions.forget(name, None, None);
                self.query_functions.forget(name, None);
                self.sequences.forget(name, None);
                self.query_libraries.forget(name, None);
                self.service_records.forget(name, None);
            }
            Change::FlushBucket { name } => {
                let bucket = self.bucket_mut(name)?;
                if !bucket.settings.flush_enabled {
                    return Err(Refusal::FlushDisabled);
                }
                bucket.flushes += 1;
            }
            Change::CreateScope { bucket, scope } => {
                self.bucket_mut(bucket)?.manifest.create_scope(scope)?
            }
            Change::DropScope { bucket, scope } => {
                let serving = self.bucket_mut(bucket)?;
                let dropped = serving.manifest.drop_scope(scope)?;
                serving.forget_indexes();
                self.functions.forget(bucket, Some(scope), None);
                self.query_functions.forget(bucket, Some(scope));
                self.sequences.forget(bucket, Some(scope));
                self.query_libraries.forget(bucket, Some(scope));
                self.service_records.forget(bucket, Some(scope));
                return Ok(dropped);
            }
            Change::CreateCollection { bucket, scope, collection, max_ttl, history } => {
                let serving = self.bucket_mut(bucket)?;
                serving.create_collection(scope, collection, *max_ttl, *history)?;
            }
            Change::UpdateCollection { bucket, scope, collection, max_ttl, history } => {
                let serving = self.bucket_mut(bucket)?;
                serving.update_collection(scope, collection, *max_ttl, *history)?;
            }
            Change::DropCollection { bucket, scope, collection } => {
                let serving = self.bucket_mut(bucket)?;
                let id = serving.manifest.drop_collection(scope, collection)?;
                serving.forget_indexes();
                self.functions.forget(bucket, Some(scope), Some(collection));
                return Ok(vec![id]);
            }
            Change::PutDesignDocument { bucket, name, document } => {
                self.bucket_mut(bucket)?.design_documents.insert(name.clone(), document.clone());
            }
            Change::DropDesignDocument { bucket, name } => {
                let removed = self.bucket_mut(bucket)?.design_documents.remove(name);
                removed.ok_or_else(|| Refusal::DesignDocumentNotFound { name: name.clone() })?;
            }
            Change::CreateIndex { bucket, index } => {
                self.bucket_mut(bucket)?.create_index(index)?
            }
            Change::DropIndex { bucket, scope, collection, name } => {
                self.bucket_mut(bucket)?.drop_index(scope, collection, name)?
            }
            Change::BuildIndexes { bucket, scope, collection, names } => {
                self.bucket_mut(bucket)?.build_indexes(scope, collection, names)?
            }
            Change::SetIndexReplicas { bucket, scope, collection, name, replicas } => {
                self.bucket_mut(bucket)?.set_index_replicas(scope, collection, name, *replicas)?
            }
            Change::PutQueryFunction { id, text, script, replace } => {
                let function = QueryFunction { text: text.clone(), script: script.clone() };
                self.put_query_function(id, &function, *replace)?
            }
            Change::PutSequence { id, sequence, replace } => {
                self.put_sequence(id, sequence, *replace)?
            }
            Change::DropSequence { id } => self.drop_sequence(id)?,
            Change::AdvanceSequence { id, epoch, from } => {
                self.advance_sequence(id, *epoch, *from)?
            }
            Change::PutQueryLibrary { id, code } => self.put_query_library(id, code)?,
            Change::DropQueryLibrary { id } => self.drop_query_library(id)?,
            Change::DropQueryFunction { id } => self.drop_query_function(id)?,
            Change::PutPackage { name, version, package } => {
                self.plugins.put_package(name, version, package)?
            }
            Change::DropPackage { name, version } => self.plugins.drop_package(name, version)?,
            Change::Deploy { name, deployment } => self.deploy(name, deployment)?,
            Change::PauseDeployment { name, paused } => self.plugins.set_paused(name, *paused)?,
            Change::SetDeploymentOwner { name, owner } => self.plugins.set_owner(name, owner)?,
            Change::ReplayDeployment { name, begin } => {
                self.plugins.replay(name, begin.as_ref())?;
            }
            Change::Undeploy { name } => self.plugins.undeploy(name)?,
            // Checked again when it is deployed, as keyspaces may be dropped meanwhile.
            Change::PutFunction { id, uuid, number, definition } => {
                if let Some((bucket, scope)) = &FunctionId::of_key(id).scope {
                    self.bucket(bucket)?.manifest.collections(Some(scope), None)?;
                }
                self.check_keyspaces(definition)?;
                self.functions.put(&FunctionId::of_key(id), uuid, *number, definition)?;
            }
            Change::DropFunction { id } => {
                self.functions.drop_function(&FunctionId::of_key(id))?;
            }
            Change::RestartFunction { id, since } => {
                let id = FunctionId::of_key(id);
                self.check_keyspaces(&self.functions.get(&id)?.definition)?;
                self.functions.restart(&id, *since)?;
            }
            Change::SetFunctionOwner { id, owner } => {
                self.functions.set_owner(&FunctionId::of_key(id), owner)?;
            }
            Change::SetFunctionState { id, state, unix_ms } => {
                let id = FunctionId::of_key(id);
                if *state == FunctionState::Deployed {
                    self.check_keyspaces(&self.functions.get(&id)?.definition)?;
                    if !self.function_recursion {
                        self.functions.check_recursion(&id)?;
                    }
                }
                self.functions.set_state(&id, *state, *unix_ms)?;
            }
            Change::AllowFunctionRecursion { allowed } => self.function_recursion = *allowed,
            Change::SetOutgoingHttp { allowed } => {
                if allowed.len() > OUTGOING_MAX {
                    let reason = format!("The list has at most {OUTGOING_MAX} entries");
                    return Err(Refusal::Invalid { field: "allow", reason });
                }
                self.outgoing_http.clone_from(allowed);
            }
            Change::PutServiceRecord { service, name, record, expected } => {
                if let ServiceRecord { bucket: Some(bucket), scope, .. } = &**record {
                    self.bucket(bucket)?.manifest.collections(scope.as_deref(), None)?;
                }
                self.service_records.put(service, name, record, expected)?
            }
            Change::DropServiceRecord { service, name, expected } => {
                self.service_records.remove(service, name, expected)?
            }
        }
        Ok(Vec::new())
    }

    fn rename(&mut self, name: &str) -> Result<(), Refusal> {
        if name.len() > NAME_BYTES_MAX {
            let reason = format!("The name cannot exceed {NAME_BYTES_MAX} bytes");
            return Err(Refusal::Invalid { field: "clusterName", reason });
        }
        self.name = name.to_owned();
        Ok(())
    }

    /// Checks that everything that a function names is there.
    fn check_keyspaces(&self, definition: &FunctionDefinition) -> Result<(), Refusal> {
        let bound = definition.buckets.iter().map(|binding| &binding.keyspace);
        for keyspace in [&definition.source, &definition.metadata].into_iter().chain(bound) {
            let FunctionKeyspace { bucket, .. } = keyspace;
            self.bucket(bucket)?.manifest.collections(keyspace.scope(), keyspace.collection())?;
        }
        Ok(())
    }

    fn deploy(&mut self, name: &str, deployment: &Deployment) -> Result<(), Refusal> {
        if let Some(Source { bucket, scope, collection }) = &deployment.source {
            self.bucket(bucket)?.manifest.collections(scope.as_deref(), collection.as_deref())?;
        }
        self.plugins.deploy(name, deployment)
    }

    fn create_bucket(
        &mut self,
        name: &str,
        uuid: &str,
        settings: &BucketSettings,
    ) -> Result<(), Refusal> {
        Bucket::check_name(name)?;
        settings.check()?;
        if self.buckets.contains_key(name) {
            return Err(Refusal::BucketExists { bucket: name.to_owned() });
        }
        if !self.nodes.is_empty() && !self.nodes.values().any(Member::has_data) {
            let reason = "There is no node with kv to keep documents".to_owned();
            return Err(Refusal::Invalid { field: "_", reason });
        }
        self.check_data_quota(self.bucket_quotas_mb() + settings.ram_quota_mb)?;
        let bucket = Bucket {
            name: name.to_owned(),
            uuid: uuid.to_owned(),
            settings: settings.clone(),
            manifest: Manifest::new(settings.history_default()),
            design_documents: BTreeMap::new(),
            indexes: Vec::new(),
            flushes: 0,
            chains: Vec::new(),
        };
        self.buckets.insert(name.to_owned(), bucket);
        self.place_buckets();
        Ok(())
    }

    fn update_bucket(&mut self, name: &str, settings: &BucketSettings) -> Result<(), Refusal> {
        let known = &self.bucket(name)?.settings;
        known.check_change(settings)?;
        settings.check()?;
        // A quota that stays or shrinks is never too large.
        if settings.ram_quota_mb > known.ram_quota_mb {
            let others_mb = self.bucket_quotas_mb() - known.ram_quota_mb;
            self.check_data_quota(others_mb + settings.ram_quota_mb)?;
        }
        let bucket = self.bucket_mut(name)?;
        bucket.settings = settings.clone();
        // Replicas that are missing come with the next rebalance.
        for chain in &mut bucket.chains {
            chain.copies.resize(1 + usize::from(settings.replicas), None);
        }
        Ok(())
    }

    /// Gives new buckets their place, as soon as there are nodes.
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

    fn move_copies(
        &mut self,
        memberships: &BTreeMap<NodeId, Membership>,
        chains: &BTreeMap<String, BTreeMap<u16, Chain>>,
    ) -> Result<(), Refusal> {
        memberships.keys().try_for_each(|id| self.check_node(*id))?;
        for (bucket, moved) in chains {
            let known = &self.bucket(bucket)?.chains;
            // Copies begin to move only for the rebalance under way: a proposal for an earlier one comes too late.
            let is_kept = |node: &&NodeId| {
                self.rebalance.as_ref().is_some_and(|rebalance| rebalance.keep.contains(node))
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
            let known = &mut self.bucket_mut(bucket)?.chains;
            for (vbid, chain) in moved {
                known[usize::from(*vbid)] = chain.clone();
            }
        }
        let is_lost = |node: &&NodeId| memberships.get(node) == Some(&Membership::FailedOver);
        let keep = self.rebalance.iter().flat_map(|rebalance| &rebalance.keep);
        let lost: BTreeSet<NodeId> = keep.filter(is_lost).copied().collect();
        if !lost.is_empty() {
            // The plan of the rebalance cannot be carried out any more.
            self.end_rebalance(Outcome::Failed { lost })?;
            self.settle_chains();
        }
        self.set_memberships(memberships);
        Ok(())
    }

    /// Goes on with the state of this node, without a majority. The excluded nodes do not know the new `secret`, so
    /// that they have no part in the cluster until they join again.
    pub fn regroup(&mut self, secret: Secret) {
        self.regroups += 1;
        self.secret = secret;
        self.rev += 1;
        self.failing_over.clear();
        if self.end_rebalance(Outcome::Failed { lost: BTreeSet::new() }).is_ok() {
            self.settle_chains();
        }
    }

    /// Leaves copies where they are: moves that have not come to their end are forgotten.
    fn settle_chains(&mut self) {
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
    use crate::{Endpoints, Ports, ServiceName};

    fn cluster() -> Cluster {
        let mut cluster = Cluster::new("c".into());
        let settings = BucketSettings::default();
        cluster
            .apply(&Change::CreateBucket { name: "a".into(), uuid: "u".into(), settings })
            .unwrap();
        cluster
    }

    #[test]
    fn a_refused_change_changes_nothing() {
        let mut cluster = cluster();
        let before = cluster.clone();
        let settings = BucketSettings { ram_quota_mb: 1, ..BucketSettings::default() };
        for change in [
            Change::CreateBucket {
                name: "a".into(),
                uuid: "v".into(),
                settings: BucketSettings::default(),
            },
            Change::CreateBucket {
                name: "b c".into(),
                uuid: "v".into(),
                settings: BucketSettings::default(),
            },
            Change::UpdateBucket { name: "a".into(), settings },
            Change::FlushBucket { name: "a".into() },
            Change::DropBucket { name: "z".into() },
            Change::DropScope { bucket: "a".into(), scope: "_default".into() },
            Change::DropDesignDocument { bucket: "a".into(), name: "d".into() },
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
        cluster.apply(&Change::NameCluster { name: "oysters".into() }).unwrap();
        assert_eq!((cluster.name.as_str(), cluster.rev), ("oysters", 8));
        let too_long = Change::NameCluster { name: "x".repeat(NAME_BYTES_MAX + 1) };
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
            cluster.apply(&Change::PutNode { id, member }).unwrap();
        }
        let chains = &cluster.buckets["a"].chains;
        assert_eq!(chains.len(), 1024);
        assert!(chains.iter().all(|chain| *chain == Chain::new(vec![Some(NodeId(1))])));
        let settings = BucketSettings { replicas: 1, ..BucketSettings::default() };
        cluster.apply(&Change::UpdateBucket { name: "a".into(), settings }).unwrap();
        assert_eq!(cluster.buckets["a"].chains[7].copies, [Some(NodeId(1)), None]);
    }

    #[test]
    fn copies_begin_to_move_only_for_the_rebalance_that_is_under_way() {
        let mut cluster = cluster();
        for id in [1, 2] {
            let member = member(Membership::Active);
            cluster.apply(&Change::PutNode { id: NodeId(id), member }).unwrap();
        }
        let (name, uuid) = ("late".to_owned(), "u".to_owned());
        let settings = BucketSettings { vbucket_count: 1, replicas: 0, ..Default::default() };
        cluster.apply(&Change::CreateBucket { name: name.clone(), uuid, settings }).unwrap();
        let known = cluster.buckets[&name].chains[0].clone();
        let next = if known.active() == Some(NodeId(1)) { NodeId(2) } else { NodeId(1) };
        let chain = Chain { next: vec![Some(next)], ..known };
        let chains = BTreeMap::from([(name, BTreeMap::from([(0, chain)]))]);
        let change = Change::MoveCopies { memberships: BTreeMap::new(), chains };
        assert!(matches!(cluster.apply(&change), Err(Refusal::CopiesMoved { .. })));
        let (keep, rest) = ([next].into(), Membership::Leaving);
        cluster
            .apply(&Change::StartRebalance {
                id: "r".into(),
                keep,
                rest,
                services: BTreeMap::new(),
            })
            .unwrap();
        cluster.apply(&change).unwrap();
        cluster.apply(&Change::StopRebalance).unwrap();
        assert!(matches!(cluster.apply(&change), Err(Refusal::CopiesMoved { .. })));
    }

    #[test]
    fn copies_move_only_from_where_they_are() {
        let mut cluster = cluster();
        let member = member(Membership::Active);
        cluster.apply(&Change::PutNode { id: NodeId(1), member }).unwrap();
        let change = |term: u64, active: u64| {
            let chain = Chain { term, ..Chain::new(vec![Some(NodeId(active))]) };
            let chains = BTreeMap::from([("a".to_owned(), BTreeMap::from([(7, chain)]))]);
            Change::MoveCopies { memberships: BTreeMap::new(), chains }
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
            .apply(&Change::CreateScope { bucket: bucket.clone(), scope: scope.clone() })
            .unwrap();
        let (bucket2, scope2, collection) = (bucket.clone(), scope.clone(), "c".to_owned());
        let change = Change::CreateCollection {
            bucket: bucket2,
            scope: scope2,
            collection,
            max_ttl: 0,
            history: None,
        };
        cluster.apply(&change).unwrap();
        let rev = cluster.rev;
        assert_eq!(cluster.apply(&Change::DropScope { bucket, scope }), Ok(vec![CollectionId(8)]));
        assert_eq!(cluster.rev, rev + 1);
    }
}
