//! The kinds of workload: the differences between views, indexes, functions and packages of a bucket.
//!
//! The reconciler asks each kind which deployments the agreed state requires, and starts or stops all of them in the
//! same way. A kind defines the needs and the behaviour of its deployments; no other code depends on the kind of a
//! deployment.

mod functions;
mod indexes;
mod packages;
mod services;
mod views;

use super::Runtime;
use super::spec::{Code, Spec};
use nacre_auth::Privilege;
use nacre_bucket::Bucket;
use nacre_cluster::Cluster;
use nacre_node::Node;
use nacre_node::service::Service;
use nacre_sandbox::{Error, Partition};
use nacre_types::NodeId;
use std::fmt;
use std::sync::Arc;

pub(super) use functions::Functions;
pub(super) use indexes::{IndexOptions, Share, index_name};
pub(super) use packages::{PackageOptions, code_of};
pub(super) use views::{Pace, ViewOptions, view_config, view_name, view_source};

/// All kinds, in the order in which their components are loaded.
pub(super) static KINDS: [&dyn WorkloadKind; 5] = [
    &views::Views,
    &functions::Functions,
    &indexes::Indexes,
    &packages::Packages,
    &services::Services,
];

/// The agreed state of one bucket on one node.
pub(super) struct AgreedState<'a> {
    pub cluster: &'a Cluster,
    pub node: NodeId,
    pub bucket: &'a nacre_cluster::Bucket,
    /// The services of the node.
    pub services: &'a [Arc<dyn Service>],
}

/// A kind of workload.
pub(super) trait WorkloadKind: Sync {
    /// Returns the name of the kind; the names of the spaces of its deployments begin with it and a slash.
    fn name(&self) -> &'static str;

    /// Returns the component that defines the form of a deployment's state, if the kind has one.
    fn component(&self) -> Option<Code> {
        None
    }

    /// Returns the deployments that the agreed state requires for a bucket. `runtime` is that of
    /// [`WorkloadKind::component`].
    fn specs(&self, agreed: &AgreedState<'_>, runtime: Option<&Runtime>) -> Vec<Spec>;

    /// Returns the names of deployments for which other nodes answer while this node does not run them.
    fn names(&self, agreed: &AgreedState<'_>) -> Vec<String> {
        let _ = agreed;
        Vec::new()
    }

    /// Returns the components that the agreed state needs, in the order in which they are loaded.
    fn components(&self, cluster: &Cluster, services: &[Arc<dyn Service>]) -> Vec<Code>;

    /// Returns the number of lanes among which a node divides the vBuckets of a deployment, each with its own writer
    /// and space.
    fn lanes(&self) -> u16 {
        1
    }

    /// Returns true if a deployment has no effects other than its state, which can be rebuilt from history at any time.
    fn is_fold(&self, spec: &Spec) -> bool;

    /// Returns true if a deployment has external effects, which a rebuild of the state would repeat.
    fn has_effects(&self, spec: &Spec) -> bool {
        spec.acts_outside()
    }

    /// Returns true if a deployment has timers, and keeps its position when a vBucket moves to another node.
    fn owns_timers(&self) -> bool {
        false
    }

    /// Returns true if the previous state continues to answer until a new one has caught up.
    fn keeps_serving(&self, spec: &Spec) -> bool {
        let _ = spec;
        false
    }

    /// Returns true if the component runs a user's script.
    fn runs_script(&self, spec: &Spec) -> bool {
        let _ = spec;
        false
    }

    /// Returns the privilege that replaces all others of an owner.
    fn bypass(&self) -> Option<Privilege> {
        None
    }

    /// Returns advice for the operator about a deployment with effects that has lost a part of its state.
    fn resume_advice(&self) -> &'static str {
        "replay the deployment with ?since=now or ?since=everything"
    }

    /// Prepares a partition before its deployment runs.
    fn begin(&self, node: &Node, bucket: &Bucket, partition: &mut Partition) -> Result<(), Error> {
        let (_, _, _) = (node, bucket, partition);
        Ok(())
    }
}

impl PartialEq for dyn WorkloadKind {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl fmt::Debug for dyn WorkloadKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
