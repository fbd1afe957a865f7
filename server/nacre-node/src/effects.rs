//! What a change of the agreed state does to this node: buckets, collections and deployments are brought in line.

use crate::Error;
use crate::arrears::{also, created_row, made};
use crate::copies::retention_of;
use crate::node::Node;
use crate::plugins::packages;
use nacre_bucket::{Bucket, BucketEnv, CopyRetention, Home, events};
use nacre_cluster::{BucketKind, Change, Cluster, Deployment, SettingsChange};
use std::sync::Arc;

impl Node {
    /// What `change` means, which led from `before` to `after`.
    pub(crate) fn take_effect(
        self: &Arc<Node>,
        change: &Change,
        before: &Cluster,
        after: &Cluster,
    ) -> Result<(), Error> {
        self.account_for_quotas(after);
        match change {
            // Only the map shows them.
            Change::NameCluster { .. }
            | Change::NameAdministrator { .. }
            | Change::PutNode { .. }
            | Change::MoveNode { .. }
            | Change::SetAlternate { .. }
            | Change::SetServices { .. }
            | Change::PutGroup { .. }
            | Change::DropGroup { .. }
            | Change::MoveToGroups { .. }
            | Change::DropNode { .. } => {}
            Change::Recover { id, full: true } if *id == self.id() => {
                for bucket in after.buckets.values() {
                    self.arrange_keeping(&bucket.chains, bucket, CopyRetention::default());
                }
            }
            // The orchestrator sees to what follows from them.
            Change::FailOver { .. }
            | Change::Recover { .. }
            | Change::SetAutoFailover { .. }
            | Change::ResetAutoFailover
            | Change::RenewMap
            | Change::SetRetryRebalance { .. }
            | Change::BeginAgain { .. }
            | Change::GiveUpRebalance { .. }
            | Change::StartRebalance { .. } => {}
            Change::MoveCopies { chains, .. } if before.rebalance == after.rebalance => {
                for bucket in chains.keys() {
                    self.arrange(&before.buckets[bucket].chains, &after.buckets[bucket]);
                }
            }
            // The end of a rebalance leaves copies where they are, in all buckets.
            Change::MoveCopies { .. } | Change::StopRebalance | Change::EndRebalance { .. } => {
                for (name, bucket) in &after.buckets {
                    self.arrange(&before.buckets[name].chains, bucket);
                }
            }
            Change::ChangeSettings { change } => {
                if matches!(**change, SettingsChange::Compaction(_)) {
                    self.configure_compaction(after);
                }
            }
            Change::CreateBucket { name, .. } => {
                self.open_bucket(&after.buckets[name], false, true)?
            }
            Change::DropBucket { name } => {
                let removed = self.remove_bucket(&before.buckets[name]);
                // Its resolver went with it.
                self.plugins().redeploy_pure(self);
                removed?;
            }
            Change::FlushBucket { name } => {
                let removed = self.remove_bucket(&before.buckets[name]);
                self.open_bucket(&after.buckets[name], false, true)?;
                removed?;
            }
            Change::UpdateBucket { name: bucket, .. }
            | Change::CreateScope { bucket, .. }
            | Change::DropScope { bucket, .. }
            | Change::CreateCollection { bucket, .. }
            | Change::UpdateCollection { bucket, .. }
            | Change::DropCollection { bucket, .. } => {
                self.reconfigure(&before.buckets[bucket], &after.buckets[bucket]);
            }
            Change::PutDesignDocument { bucket, .. }
            | Change::DropDesignDocument { bucket, .. }
            | Change::CreateIndex { bucket, .. }
            | Change::DropIndex { bucket, .. }
            | Change::BuildIndexes { bucket, .. }
            | Change::SetIndexReplicas { bucket, .. } => {
                self.redeploy(bucket);
            }
            // Each request looks at it.
            Change::SetOutgoingHttp { .. } => {}
            // What is deployed of it comes later, or has gone before.
            Change::PutPackage { .. } => {}
            Change::DropPackage { name, version } => {
                self.forget_package(&before.plugins.packages[name][version].digest, after)?;
            }
            Change::Deploy { name, .. }
            | Change::PauseDeployment { name, .. }
            | Change::SetDeploymentOwner { name, .. }
            | Change::ReplayDeployment { name, .. } => {
                self.redeploy_plugin(&after.plugins.deployments[name]);
            }
            Change::Undeploy { name } => self.redeploy_plugin(&before.plugins.deployments[name]),
            // Each query reads them.
            Change::PutSequence { .. }
            | Change::DropSequence { .. }
            | Change::AdvanceSequence { .. }
            | Change::PutQueryFunction { .. }
            | Change::DropQueryFunction { .. }
            | Change::PutQueryLibrary { .. }
            | Change::DropQueryLibrary { .. } => {}
            // One that runs cannot be changed.
            Change::PutFunction { .. } | Change::DropFunction { .. } => {}
            // It counts when one is deployed.
            Change::AllowFunctionRecursion { .. } => {}
            Change::SetFunctionState { id, .. }
            | Change::SetFunctionOwner { id, .. }
            | Change::RestartFunction { id, .. } => {
                self.redeploy(&after.functions.0[id].definition.source.bucket);
            }
        }
        self.move_partitions(before, after);
        Ok(())
    }

    /// What this node has to keep of the partitions of indexes may be something else when other nodes are there.
    fn move_partitions(self: &Arc<Node>, before: &Cluster, after: &Cluster) {
        let is_moving = |cluster: &Cluster| cluster.rebalance.is_some();
        for (name, bucket) in &after.buckets {
            let mut spread = bucket.indexes.iter().filter(|index| index.partitioning.is_some());
            let is_other = spread.any(|index| {
                let held = |cluster: &Cluster| cluster.held_by(self.id(), index);
                is_moving(before) != is_moving(after) || held(before) != held(after)
            });
            if is_other {
                self.redeploy(name);
            }
        }
    }

    fn reconfigure(
        self: &Arc<Node>,
        before: &nacre_cluster::Bucket,
        after: &nacre_cluster::Bucket,
    ) {
        let Some(serving) = self.bucket(&after.name) else { return };
        serving.configure(&after.settings, &after.manifest);
        Node::set_compaction(&self.cluster(), &serving, after);
        self.arrange(&[], after);
        let events = events::between(&before.manifest, &after.manifest);
        if !events.is_empty() {
            serving.record_events(&events, self.platform.now());
        }
        self.plugins().redeploy(self, &serving);
    }

    /// Tells all buckets when they give back space.
    fn configure_compaction(&self, cluster: &Cluster) {
        for config in cluster.buckets.values() {
            if let Some(bucket) = self.bucket(&config.name) {
                Node::set_compaction(cluster, &bucket, config);
            }
        }
    }

    fn set_compaction(cluster: &Cluster, bucket: &Bucket, config: &nacre_cluster::Bucket) {
        let compaction = cluster.compaction_of(&config.settings);
        let percent = compaction.percent(config.settings.storage_backend);
        bucket.set_compaction(percent, compaction.purge_age_s);
    }

    /// What any number of changes mean, which led from `before` to `after`. What fails holds nothing else up; gives why the first
    /// did.
    pub(crate) fn bring_in_line(
        self: &Arc<Node>,
        before: &Cluster,
        after: &Cluster,
    ) -> Result<(), Error> {
        // One that was dropped and made again, or flushed, is another one.
        let same = |a: &nacre_cluster::Bucket, b: &nacre_cluster::Bucket| {
            (&a.uuid, a.flushes) == (&b.uuid, b.flushes)
        };
        let mut outcome = Ok(());
        for (name, bucket) in &before.buckets {
            if !after.buckets.get(name).is_some_and(|kept| same(kept, bucket)) {
                also(&mut outcome, self.remove_bucket(bucket));
            }
        }
        for (name, bucket) in &after.buckets {
            match before.buckets.get(name).filter(|known| same(known, bucket)) {
                Some(known) => self.reconfigure(known, bucket),
                None => also(&mut outcome, self.open_bucket(bucket, false, true)),
            }
        }
        self.plugins().redeploy_pure(self);
        for package in before.plugins.packages.values().flat_map(|versions| versions.values()) {
            also(&mut outcome, self.forget_package(&package.digest, after));
        }
        outcome
    }

    /// A deployment has changed, or is gone.
    fn redeploy_plugin(self: &Arc<Node>, deployment: &Deployment) {
        match deployment.bucket() {
            Some(bucket) if deployment.world.follows_documents() => self.redeploy(bucket),
            _ => self.plugins().redeploy_pure(self),
        }
    }

    fn redeploy(self: &Arc<Node>, bucket: &str) {
        if let Some(serving) = self.bucket(bucket) {
            self.plugins().redeploy(self, &serving);
        }
    }

    /// Two packages may have the same bytes under different names.
    fn forget_package(&self, digest: &str, cluster: &Cluster) -> Result<(), Error> {
        let mut packages = cluster.plugins.packages.values().flat_map(|versions| versions.values());
        if packages.all(|package| package.digest != digest) {
            self.plugins().forget(digest);
            packages::forget(&*self.platform, digest)?;
        }
        Ok(())
    }

    pub(crate) fn open_bucket(
        self: &Arc<Node>,
        config: &nacre_cluster::Bucket,
        created: bool,
        clean: bool,
    ) -> Result<(), Error> {
        let store = match config.settings.kind {
            BucketKind::Persistent => Some(self.platform.open_store(config, !created)?),
            BucketKind::Ephemeral => None,
        };
        if !created && config.settings.kind == BucketKind::Persistent {
            self.settings.apply(&[made(config)], true)?;
        }
        let keep = retention_of(&self.cluster(), self.id());
        let home = Home { node: self.id(), lease: Arc::clone(&self.lease), keep };
        let env = Arc::clone(&self.platform) as Arc<dyn BucketEnv>;
        let bucket = Bucket::open(config, &env, store, clean, home)?;
        Node::set_compaction(&self.cluster(), &bucket, config);
        let (documents, _) = bucket.usage();
        tracing::info!("bucket {}: serving {documents} documents", bucket.name);
        // No version from elsewhere may come before.
        self.plugins().place_resolver(self, &bucket);
        self.buckets.write().insert(config.name.clone(), Arc::clone(&bucket));
        self.plugins().deploy_found(self, &bucket);
        Ok(())
    }

    fn remove_bucket(&self, config: &nacre_cluster::Bucket) -> Result<(), Error> {
        if let Some(bucket) = self.buckets.write().remove(&config.name) {
            bucket.discard();
            self.plugins().undeploy_bucket(&bucket);
        }
        match config.settings.kind {
            BucketKind::Persistent => self.remove_store(config),
            BucketKind::Ephemeral => Ok(()),
        }
    }

    /// Removes the store of a bucket, and the note that it was made.
    pub(crate) fn remove_store(&self, config: &nacre_cluster::Bucket) -> Result<(), Error> {
        self.platform.remove_store(config)?;
        Ok(self.settings.apply(&[(created_row(config), None)], true)?)
    }
}
