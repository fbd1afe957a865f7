//! Indexes: one deployment per index, or one for each set of its partitions that a node has.

use super::{AgreedState, WorkloadKind};
use crate::Runtime;
use crate::shipped::INDEX;
use crate::spec::{Code, Spec};
use nacre_cluster::{Cluster, Index, Source};
use nacre_node::service::Service;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Options of indexes of all kinds, whose entries are read without the plugin.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct IndexOptions {
    /// This node's share of a partitioned index.
    pub share: Option<Share>,
}

/// A node's share of the partitions of an index.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Share {
    /// Partitions that the node should have.
    pub held: Arc<BTreeSet<u16>>,
    /// True if other nodes may not have their partitions yet, so this node keeps all of its current ones.
    pub is_moving: bool,
}

/// The kind.
pub(super) struct Indexes;

impl WorkloadKind for Indexes {
    fn name(&self) -> &'static str {
        "indexes"
    }

    fn component(&self) -> Option<Code> {
        Some(INDEX)
    }

    /// Returns a deployment for each index, except deferred ones.
    fn specs(&self, agreed: &AgreedState<'_>, runtime: Option<&Runtime>) -> Vec<Spec> {
        let Some(runtime) = runtime else { return Vec::new() };
        let config = agreed.bucket;
        let wanted = config.indexes.iter().filter(|index| index.built).filter_map(|index| {
            if index.partitioning.is_none() {
                return Some(spec(config, runtime, index, None));
            }
            let held = Arc::new(agreed.cluster.held_by(agreed.node, index));
            let share = Share { held, is_moving: agreed.cluster.rebalance.is_some() };
            let is_wanted = share.is_moving || !share.held.is_empty();
            is_wanted.then(|| spec(config, runtime, index, Some(share)))
        });
        wanted.collect()
    }

    fn components(&self, cluster: &Cluster, _: &[Arc<dyn Service>]) -> Vec<Code> {
        let has_indexes = cluster.buckets.values().any(|bucket| !bucket.indexes.is_empty());
        has_indexes.then_some(INDEX).into_iter().collect()
    }

    fn is_fold(&self, spec: &Spec) -> bool {
        spec.has_all_history()
    }

    fn keeps_serving(&self, spec: &Spec) -> bool {
        spec.share().is_some()
    }
}

fn spec(
    config: &nacre_cluster::Bucket,
    runtime: &Runtime,
    index: &Index,
    share: Option<Share>,
) -> Spec {
    let source = Source {
        bucket: config.name.clone(),
        scope: Some(index.scope.clone()),
        collection: Some(index.collection.clone()),
    };
    let space = format!(
        "indexes/{}-{}/{}/{}{}",
        config.uuid,
        config.flushes,
        index.uuid,
        runtime.state_version,
        share.as_ref().map(suffix).unwrap_or_default(),
    );
    Spec {
        config: serde_json::json!({"definition": index.definition}).to_string(),
        index: Some(IndexOptions { share }),
        ..Spec::new(&Indexes, index_name(&config.name, index), INDEX, Ok(source), space)
    }
}

/// Returns the suffix of a space's name for a share of an index.
fn suffix(share: &Share) -> String {
    let held: Vec<_> = share.held.iter().map(u16::to_string).collect();
    format!("/{}", held.join("-"))
}

/// Returns the name of an index's deployment. It contains a space, unlike any name of a bucket or package.
pub(crate) fn index_name(bucket: &str, index: &Index) -> String {
    format!("index {} on {bucket}.{}.{}", index.name, index.scope, index.collection)
}
