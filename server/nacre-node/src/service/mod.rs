//! Services of a node in addition to its vBuckets, each behind one trait.
//!
//! The node has no code for single services: it keeps a list and passes events to each.

mod http;
mod metric;
mod node_row;
mod spec;
mod workload;
mod writing_queries;

use crate::Error;
use crate::node::Node;
use crate::scatter_gather::NoReply;
use nacre_bucket::Bucket;
use nacre_cluster::{Change, Cluster};
use nacre_sandbox::{DatabaseKeyspace, Failure, Queries};
use nacre_types::{CollectionId, ScopeId};
use serde_json::Value;
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

pub use http::{Access, HttpReply, HttpRequest, Route};
pub use metric::{Metric, MetricKind};
pub(crate) use node_row::NODE;
pub use spec::{
    Capabilities, MapEntry, MenuEntry, Operations, Permission, PortNumber, PortSpec, Protocol,
    ServiceSpec, ServiceTable,
};
pub use workload::Workload;
pub use writing_queries::{FunctionQueries, QueryWrites, WriteListener};

/// A service of a node.
pub trait Service: Any + Send + Sync {
    /// Returns the row of the service in the table: ports, names in cluster maps, permissions.
    fn spec(&self) -> &'static ServiceSpec;

    /// Returns the HTTP endpoints of the service at its ports.
    fn routes(&self) -> &'static [Route] {
        &[]
    }

    /// Returns the metrics of the service. Called for each request for the metrics of the node.
    fn metrics(&self, node: &Arc<Node>) -> Vec<Metric> {
        let _ = node;
        Vec::new()
    }

    /// Returns the running tasks of the service in the cluster, as entries of `/pools/default/tasks`. Blocks.
    fn tasks(&self, node: &Arc<Node>) -> Vec<Value> {
        let _ = node;
        Vec::new()
    }

    /// Answers a message of the same service on another node. Blocks, for `left` at most.
    ///
    /// Most services have one type of [`PeerMessage`](crate::PeerMessage), and answer with [`Node::answer_message`].
    fn answer(&self, node: &Arc<Node>, message: &[u8], left: Duration) -> Vec<u8> {
        let (_, _, _) = (node, message, left);
        NoReply::internal(format!("{} takes no messages", self.spec().id)).to_bytes()
    }

    /// Answers a question of a running query. Question and answer are JSON; `None` if the service takes no such
    /// questions. Blocks.
    fn answer_query(
        &self,
        node: &Arc<Node>,
        question: &QueryQuestion<'_>,
    ) -> Option<Result<String, Failure>> {
        let (_, _) = (node, question);
        None
    }

    /// Returns the environment for the queries of a function; `None` if the service runs no queries.
    fn function_queries(
        &self,
        node: &Arc<Node>,
        function: &FunctionQueries<'_>,
    ) -> Option<Arc<dyn Queries>> {
        let (_, _) = (node, function);
        None
    }

    /// Starts the tasks of the service. The other nodes can be reached by now.
    fn start(&self, node: &Arc<Node>) {
        let _ = node;
    }

    /// Updates the service according to the agreed state. Blocks the next change, so it must be fast.
    ///
    /// Buckets have been opened, configured and removed before the call. A service may use the change as a hint, but
    /// must reach the same state from `before` and `after` alone.
    ///
    /// # Errors
    /// The error of the disk. The node retries later.
    fn reconcile(&self, node: &Arc<Node>, step: &AgreedStep<'_>) -> Result<(), Error> {
        let (_, _) = (node, step);
        Ok(())
    }

    /// Returns the deployments that the service wants for a bucket, derived from the agreed state alone. Called often,
    /// so it must be fast.
    fn workloads(&self, cluster: &Cluster, bucket: &nacre_cluster::Bucket) -> Vec<Workload> {
        let (_, _) = (cluster, bucket);
        Vec::new()
    }

    /// Prepares a bucket before it serves requests.
    fn prepare_bucket(&self, node: &Arc<Node>, bucket: &Arc<Bucket>) {
        let (_, _) = (node, bucket);
    }

    /// Starts work on a bucket that serves from now on.
    fn open_bucket(&self, node: &Arc<Node>, bucket: &Arc<Bucket>) {
        let (_, _) = (node, bucket);
    }

    /// Drops the data of a dropped keyspace.
    fn drop_keyspace(&self, node: &Arc<Node>, dropped: &DroppedKeyspace<'_>) {
        let (_, _) = (node, dropped);
    }

    /// Rechecks the rights of users after a change. Never blocks.
    fn users_changed(&self) {}

    /// Stops the service. Its tasks end by themselves afterwards.
    fn stop(&self) {}

    /// Returns true if the service has taken over all vBuckets that the node serves, and has released all others. A
    /// rebalance waits for this.
    fn has_settled(&self, node: &Arc<Node>) -> bool {
        let _ = node;
        true
    }
}

/// A question of a running query to a service, about the documents of a collection.
#[derive(Clone, Copy, Debug)]
pub struct QueryQuestion<'a> {
    /// The user of the query, who may query the collection.
    pub user: &'a str,
    /// The collection.
    pub keyspace: &'a DatabaseKeyspace,
    /// The question, in JSON.
    pub request: &'a str,
    /// Time left for the answer.
    pub left: Duration,
}

/// A transition of the agreed state.
#[derive(Clone, Copy, Debug)]
pub struct AgreedStep<'a> {
    /// The change that leads from `before` to `after`; `None` for any number of changes.
    pub change: Option<&'a Change>,
    /// The state before.
    pub before: &'a Cluster,
    /// The state after.
    pub after: &'a Cluster,
}

/// A keyspace that was dropped with all its documents.
#[derive(Clone, Copy)]
pub enum DroppedKeyspace<'a> {
    /// A bucket that was dropped or flushed.
    Bucket(&'a Arc<Bucket>),
    /// A scope of a bucket. Its collections are reported before it.
    Scope(&'a Arc<Bucket>, ScopeId),
    /// A collection of a bucket.
    Collection(&'a Arc<Bucket>, CollectionId),
}
