//! The changes of the agreed state, in the form that nodes propose and store. Each domain has a type, and one place that
//! applies its changes.

mod buckets;
mod cluster;
mod dropped;
mod functions;
mod indexes;
mod nodes;
mod plugins;
mod query;
mod records;
mod stored;

use crate::{Cluster, Refusal};
use nacre_types::CollectionId;
use serde::Serialize;

pub use buckets::BucketChange;
pub use cluster::ClusterChange;
pub(crate) use dropped::DroppedKeyspace;
pub use functions::FunctionChange;
pub use indexes::IndexChange;
pub use nodes::NodeChange;
pub use plugins::PluginChange;
pub use query::QueryChange;
pub use records::RecordChange;

/// A change of the agreed state.
///
/// The serialised form does not name the domain: it is the form of the change itself, as nodes have always sent and stored it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Change {
    /// The cluster as a whole.
    Cluster(ClusterChange),
    /// Nodes, server groups, and the copies of vBuckets.
    Nodes(NodeChange),
    /// Buckets, scopes and collections.
    Buckets(BucketChange),
    /// Design documents and indexes.
    Indexes(IndexChange),
    /// Packages and deployments of plugins.
    Plugins(PluginChange),
    /// Eventing functions.
    Functions(FunctionChange),
    /// Functions, libraries and sequences of the query language.
    Query(QueryChange),
    /// Records of services.
    Records(RecordChange),
}

impl Change {
    /// Applies the change to `cluster`. Returns the collections that it dropped.
    pub(crate) fn apply(&self, cluster: &mut Cluster) -> Result<Vec<CollectionId>, Refusal> {
        match self {
            Change::Buckets(change) => return change.apply(cluster),
            Change::Cluster(change) => change.apply(cluster)?,
            Change::Nodes(change) => change.apply(cluster)?,
            Change::Indexes(change) => change.apply(cluster)?,
            Change::Plugins(change) => change.apply(cluster)?,
            Change::Functions(change) => change.apply(cluster)?,
            Change::Query(change) => change.apply(cluster)?,
            Change::Records(change) => change.apply(cluster)?,
        }
        Ok(Vec::new())
    }
}
