//! Opens the state of a deployment and starts its feeds.

use super::cluster_documents::ClusterDocuments;
use super::deployment::{Deployment, Progress};
use super::feed::Feed;
use super::partitions::PartitionsFeed;
use super::spec::Spec;
use super::{Runtime, merging, packages};
use crate::NodePlugins;
use nacre_bucket::Bucket;
use nacre_dcp::ResumePoint;
use nacre_node::Node;
use nacre_node::Outgoing;
use nacre_node::scatter_gather::Vbids;
use nacre_node::service::{FunctionQueries, QueryWrites};
use nacre_sandbox::{Budget, NoQueries, Partition, Queries, Setup};
use nacre_state::{
    BlockCache, DEFERRED_BYTES_MAX, IndexForm, SpaceStorage, StateForm, StateStorage, SyncCounts,
};
use nacre_types::Vbid;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The inverse of the share of the memory for states that a lane may use for rows that it holds back.
const DEFERRED_SHARE: usize = 64;

/// Starts a deployment.
pub(super) fn deploy(
    node: &Arc<Node>,
    bucket: &Arc<Bucket>,
    runtime: &Runtime,
    spec: Spec,
    served_when_announced: Option<Vbids>,
) -> Arc<Deployment> {
    let (lanes, progress) = match open(node, bucket, runtime, &spec) {
        Ok(lanes) if spec.paused => (lanes, Progress::Paused),
        Ok(lanes) => (lanes, Progress::Running),
        Err(OpenError::Damaged(reason)) => {
            tracing::error!("{} is paused: {reason}", spec.name);
            (Vec::new(), Progress::Damaged(reason))
        }
        Err(OpenError::Failed(reason)) => {
            tracing::error!("{} cannot be deployed: {reason}", spec.name);
            (Vec::new(), Progress::Failed(reason))
        }
    };
    let deployment = Deployment::new(node, bucket, spec, &lanes, progress, served_when_announced);
    let deployment = Arc::new(deployment);
    if deployment.is_feeding() {
        for (lane, mut partition) in lanes.into_iter().enumerate() {
            let ending = Arc::clone(&deployment);
            partition.interrupt_when(move || ending.is_over());
            let platform = Arc::clone(&node.platform);
            let (bucket, following) = (Arc::clone(bucket), Arc::clone(&deployment));
            node.platform.spawn(match deployment.spec.share() {
                Some(_) => Box::new(PartitionsFeed::new(platform, bucket, following, partition)),
                None => Box::new(Feed::new(platform, bucket, following, partition, lane)),
            });
        }
    }
    deployment
}

/// Why the state of a deployment was not opened.
enum OpenError {
    Failed(String),
    /// A part of it is lost, and a rebuild would repeat the effects of the deployment.
    Damaged(String),
}

impl From<String> for OpenError {
    fn from(reason: String) -> OpenError {
        OpenError::Failed(reason)
    }
}

/// Opens the rows of a lane. If rows are lost, a state without effects is rebuilt; for others the operator
/// decides.
fn open_storage(
    node: &Node,
    spec: &Spec,
    space: &str,
    budget: &Budget,
) -> Result<SpaceStorage, OpenError> {
    let sync_counts =
        SyncCounts::open(node.platform.spaces()).map_err(|error| error.to_string())?;
    let states = node.platform.states();
    let deferred_bytes_max = deferred_bytes_max(budget);
    let options = node.platform.state_options();
    let segmenting = match spec.form().unwrap_or(options.form) {
        StateForm::Resident => None,
        StateForm::Segmented => {
            let cache =
                node.plugins().segments.get_or_init(|| BlockCache::new(options.cache_bytes));
            let flush_bytes = options.flush_bytes.min(deferred_bytes_max);
            Some(merging::segmenting(&node.platform, cache, flush_bytes))
        }
    };
    let (is_fold, segmenting) = (spec.is_fold(), segmenting.as_ref());
    let mut storage =
        SpaceStorage::open(states, &sync_counts, space, is_fold, deferred_bytes_max, segmenting)?;
    storage.begin(budget.limit(), spec.tries().unwrap_or_default())?;
    match storage.damage() {
        None => {}
        Some(damage) if spec.has_effects() => {
            let resume = spec.kind.resume_advice();
            let reason = format!(
                "damaged state, {damage}. A rebuild would repeat its external effects: {resume}"
            );
            return Err(OpenError::Damaged(reason));
        }
        Some(damage) => {
            tracing::warn!("{}: damaged state, {damage}: building it again", spec.name);
            storage.clear()?;
        }
    }
    Ok(storage)
}

/// Opens the partitions of a deployment's lanes.
fn open(
    node: &Arc<Node>,
    bucket: &Arc<Bucket>,
    runtime: &Runtime,
    spec: &Spec,
) -> Result<Vec<Partition>, OpenError> {
    let open = |space: &String| {
        let setup = setup(node, bucket, spec)?;
        let storage = open_storage(node, spec, space, &setup.budgets.state)?;
        let mut partition = Partition::open(runtime.plugin.clone(), setup, Box::new(storage))
            .map_err(|error| error.to_string())?;
        if spec.begins_now() && !partition.is_begun() {
            partition.begin_at(ends(bucket)).map_err(|error| error.to_string())?;
        }
        if !spec.paused {
            spec.kind.begin(node, bucket, &mut partition).map_err(|error| error.to_string())?;
        }
        Ok(partition)
    };
    spec.spaces().iter().map(open).collect()
}

/// Returns the setup of a deployment: limits, grants and budgets.
pub(super) fn setup(node: &Arc<Node>, bucket: &Arc<Bucket>, spec: &Spec) -> Result<Setup, String> {
    let source = spec.source.as_ref().map_err(|refusal| refusal.to_string())?;
    let config = match spec.script() {
        Some(digest) => packages::read(node, digest)?.config(&spec.config)?,
        None => spec.config.clone(),
    };
    let documents = Arc::new(ClusterDocuments::new(node, bucket));
    let queries: Arc<dyn Queries> = match spec.grants.query {
        true => {
            let writes = QueryWrites::Made(Arc::clone(&documents) as Arc<_>);
            function_queries(node, &FunctionQueries { owner: &spec.owner, source, writes })
        }
        false => Arc::new(NoQueries),
    };
    Ok(Setup {
        name: spec.name.clone(),
        config,
        keyspace: spec.keyspace(),
        index: IndexForm {
            held: spec.share().map(|share| Arc::clone(&share.held)),
            names_collections: spec.is_index() && spec.spans_collections(),
        },
        limits: spec.limits,
        grants: spec.grants.clone(),
        runs_script: spec.kind.runs_script(spec),
        documents,
        http: node.platform.http(Outgoing::new(node)),
        queries,
        budgets: node.memory().budgets().clone(),
    })
}

/// Returns the queries of a function. If no service of the node runs queries, they fail.
pub(super) fn function_queries(
    node: &Arc<Node>,
    function: &FunctionQueries<'_>,
) -> Arc<dyn Queries> {
    let mut services = node.services().iter();
    let queries = services.find_map(|service| service.function_queries(node, function));
    queries.unwrap_or_else(|| Arc::new(NoQueries))
}

/// Returns the maximum size in bytes of rows that a lane may hold back; they are copied when they are stored.
fn deferred_bytes_max(budget: &Budget) -> usize {
    (budget.limit() / DEFERRED_SHARE).min(DEFERRED_BYTES_MAX)
}

/// Returns the end of each vBucket's history.
fn ends(bucket: &Bucket) -> BTreeMap<Vbid, ResumePoint> {
    let vbids = (0..bucket.vbucket_count()).map(Vbid);
    let end = |vbid: Vbid| {
        let vbucket = bucket.vbucket(vbid)?;
        let (seqno, vb_uuid) = (vbucket.high_seqno(), vbucket.failover_log().current());
        Some((vbid, ResumePoint { vb_uuid, seqno, snapshot_start: seqno, snapshot_end: seqno }))
    };
    vbids.filter_map(end).collect()
}
