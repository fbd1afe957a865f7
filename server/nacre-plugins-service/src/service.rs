//! Deployments as a service of the node: applies changes of the agreed state to them.

use super::message::PluginMessage;
use super::{Loader, Plugins, packages, places, pure};
use crate::rows::PLUGINS;
use nacre_bucket::Bucket;
use nacre_cluster::{
    BucketChange, Change, Cluster, Deployment, FunctionChange, IndexChange, PluginChange,
    RecordChange,
};
use nacre_node::service::{AgreedStep, DroppedKeyspace, Service, ServiceSpec};
use nacre_node::{Error, Node};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The service of deployments of a node.
pub trait NodePlugins {
    /// Returns the service that runs deployments: views, indexes, functions and plugins.
    fn plugins(&self) -> &Plugins;
}

impl NodePlugins for Node {
    fn plugins(&self) -> &Plugins {
        self.service().expect("a node has the service of deployments")
    }
}

impl Service for Plugins {
    fn spec(&self) -> &'static ServiceSpec {
        &PLUGINS
    }

    /// Starts the loader on a separate thread, because compiling components takes seconds.
    fn start(&self, node: &Arc<Node>) {
        node.platform.spawn(Box::new(Loader::new(node)));
    }

    fn reconcile(&self, node: &Arc<Node>, step: &AgreedStep<'_>) -> Result<(), Error> {
        match step.change {
            Some(change) => self.follow(node, change, step)?,
            None => self.follow_all(node, step)?,
        }
        self.move_partitions(node, step);
        Ok(())
    }

    /// No version from another cluster may arrive before the bucket has its resolver.
    fn prepare_bucket(&self, node: &Arc<Node>, bucket: &Arc<Bucket>) {
        pure::place_resolver(node, bucket);
    }

    fn open_bucket(&self, node: &Arc<Node>, bucket: &Arc<Bucket>) {
        self.deploy_found(node, bucket);
    }

    /// Stops deployments of a dropped bucket only: a deployment whose collection is dropped continues with its
    /// remaining collections.
    fn drop_keyspace(&self, _node: &Arc<Node>, dropped: &DroppedKeyspace<'_>) {
        match dropped {
            DroppedKeyspace::Bucket(bucket) => self.undeploy_bucket(bucket),
            DroppedKeyspace::Scope(..) | DroppedKeyspace::Collection(..) => {}
        }
    }

    fn users_changed(&self) {
        self.check_owners();
    }

    fn answer(&self, node: &Arc<Node>, message: &[u8], left: Duration) -> Vec<u8> {
        node.answer_message::<PluginMessage>(message, left)
    }

    fn has_settled(&self, node: &Arc<Node>) -> bool {
        places::have_settled(node)
    }

    fn stop(&self) {
        self.end();
    }
}

impl Plugins {
    /// Adapts the deployments that a change affects.
    fn follow(
        &self,
        node: &Arc<Node>,
        change: &Change,
        AgreedStep { before, after, .. }: &AgreedStep<'_>,
    ) -> Result<(), Error> {
        match change {
            Change::Buckets(
                BucketChange::UpdateBucket { name: bucket, .. }
                | BucketChange::CreateScope { bucket, .. }
                | BucketChange::DropScope { bucket, .. }
                | BucketChange::CreateCollection { bucket, .. }
                | BucketChange::UpdateCollection { bucket, .. }
                | BucketChange::DropCollection { bucket, .. },
            )
            | Change::Indexes(
                IndexChange::PutDesignDocument { bucket, .. }
                | IndexChange::DropDesignDocument { bucket, .. }
                | IndexChange::CreateIndex { bucket, .. }
                | IndexChange::DropIndex { bucket, .. }
                | IndexChange::BuildIndexes { bucket, .. }
                | IndexChange::SetIndexReplicas { bucket, .. },
            ) => self.redeploy_bucket(node, bucket),
            // The resolver of the bucket ends with the bucket.
            Change::Buckets(BucketChange::DropBucket { .. }) => self.redeploy_pure(node),
            Change::Plugins(PluginChange::DropPackage { name, version }) => {
                self.forget_package(node, &before.plugins.packages[name][version].digest, after)?;
            }
            Change::Plugins(
                PluginChange::Deploy { name, .. }
                | PluginChange::PauseDeployment { name, .. }
                | PluginChange::SetDeploymentOwner { name, .. }
                | PluginChange::ReplayDeployment { name, .. },
            ) => {
                self.redeploy_plugin(node, &after.plugins.deployments[name]);
            }
            Change::Plugins(PluginChange::Undeploy { name }) => {
                self.redeploy_plugin(node, &before.plugins.deployments[name]);
            }
            Change::Records(
                RecordChange::PutServiceRecord { service, name, .. }
                | RecordChange::DropServiceRecord { service, name, .. },
            ) => {
                let record = |cluster: &Cluster| {
                    cluster.service_records.get(service, name).and_then(|one| one.bucket.clone())
                };
                let buckets: BTreeSet<String> =
                    [record(before), record(after)].into_iter().flatten().collect();
                buckets.iter().for_each(|bucket| self.redeploy_bucket(node, bucket));
            }
            Change::Functions(
                FunctionChange::SetFunctionState { id, .. }
                | FunctionChange::SetFunctionOwner { id, .. }
                | FunctionChange::RestartFunction { id, .. },
            ) => {
                self.redeploy_bucket(node, &after.functions.0[id].definition.source.bucket);
            }
            _ => {}
        }
        Ok(())
    }

    /// Adapts all deployments after any number of changes.
    fn follow_all(
        &self,
        node: &Arc<Node>,
        AgreedStep { before, after, .. }: &AgreedStep<'_>,
    ) -> Result<(), Error> {
        // Buckets that were just opened already have their deployments.
        for name in after.buckets.keys().filter(|name| before.buckets.contains_key(*name)) {
            self.redeploy_bucket(node, name);
        }
        self.redeploy_pure(node);
        let mut outcome = Ok(());
        for package in before.plugins.packages.values().flat_map(|versions| versions.values()) {
            outcome = outcome.and(self.forget_package(node, &package.digest, after));
        }
        outcome
    }

    /// Moves partitions of indexes, because the placement of partitions depends on the set of nodes.
    fn move_partitions(&self, node: &Arc<Node>, AgreedStep { before, after, .. }: &AgreedStep<'_>) {
        let is_moving = |cluster: &Cluster| cluster.rebalance.is_some();
        for (name, bucket) in &after.buckets {
            let mut partitioned =
                bucket.indexes.iter().filter(|index| index.partitioning.is_some());
            let has_changed = partitioned.any(|index| {
                let held = |cluster: &Cluster| cluster.held_by(node.id(), index);
                is_moving(before) != is_moving(after) || held(before) != held(after)
            });
            if has_changed {
                self.redeploy_bucket(node, name);
            }
        }
    }

    /// Adapts a deployment that was changed or removed.
    fn redeploy_plugin(&self, node: &Arc<Node>, deployment: &Deployment) {
        match deployment.bucket() {
            Some(bucket) if deployment.world.follows_documents() => {
                self.redeploy_bucket(node, bucket);
            }
            _ => self.redeploy_pure(node),
        }
    }

    fn redeploy_bucket(&self, node: &Arc<Node>, bucket: &str) {
        if let Some(serving) = node.bucket(bucket) {
            self.redeploy(node, &serving);
        }
    }

    /// Deletes the bytes and the component of a deleted package, unless another package has the same bytes.
    fn forget_package(&self, node: &Node, digest: &str, cluster: &Cluster) -> Result<(), Error> {
        let mut packages = cluster.plugins.packages.values().flat_map(|versions| versions.values());
        if packages.all(|package| package.digest != digest) {
            self.components.forget(digest);
            packages::forget(&*node.platform, digest)?;
        }
        Ok(())
    }
}
