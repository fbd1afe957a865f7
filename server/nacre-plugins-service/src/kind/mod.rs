//! The kinds of workload: the differences between views, indexes, functions and packages of a bucket.
//!
//! The reconciler asks each kind which deployments the agreed state wants, and brings them in line in one way. A kind
//! defines the needs and the behaviour of its deployments; nothing else asks which kind a deployment is of.

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
    &services::OfServices,
];

/// The agreed state as a kind looks at it: one bucket on one node.
pub(super) struct Agreed<'a> {
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

    /// Returns the deployments that the agreed state wants of a bucket. `runtime` is that of [`WorkloadKind::component`].
    fn specs(&self, agreed: &Agreed<'_>, runtime: Option<&Runtime>) -> Vec<Spec>;

    /// Returns the names of deployments that others answer for while this node does not run them.
    fn names(&self, agreed: &Agreed<'_>) -> Vec<String> {
        let _ = agreed;
        Vec::new()
    }

    /// Returns the components that the agreed state needs, in the order in which they are loaded.
    fn components(&self, cluster: &Cluster, services: &[Arc<dyn Service>]) -> Vec<Code>;

    /// Returns in how many lanes a node takes the vBuckets of a deployment, each with a writer and a space of its own.
    fn lanes(&self) -> u16 {
        1
    }

    /// Returns true if a deployment only keeps its state, which can be rebuilt from history at any time.
    fn is_fold(&self, spec: &Spec) -> bool;

    /// Returns true if a deployment has effects outside of its state, which a rebuild of the state would repeat.
    fn has_effects(&self, spec: &Spec) -> bool {
        spec.acts_outside()
    }

    /// Returns true if a deployment has timers, and keeps its position when a vBucket moves to another node.
    fn owns_timers(&self) -> bool {
        false
    }

    /// Returns true if the state before goes on answering until a new one has caught up.
    fn builds_beside(&self, spec: &Spec) -> bool {
        let _ = spec;
        false
    }

    /// Returns true if the component runs the script of somebody else.
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

    /// Prepares a partition whose deployment is about to run.
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
