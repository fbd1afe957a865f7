//! Effects of a change of the agreed state on this node: buckets and collections are brought in line, then the
//! services.

use crate::Error;
use crate::arrears::{also, created_row, made};
use crate::copies::retention_of;
use crate::node::Node;
use crate::service::{AgreedStep, DroppedKeyspace};
use nacre_bucket::{Bucket, BucketEnv, CopyRetention, Home, events};
use nacre_cluster::{
    BucketChange, BucketKind, Change, Cluster, ClusterChange, Manifest, NodeChange, SettingsChange,
};
use nacre_types::{CollectionId, ScopeId};
use std::sync::Arc;

impl Node {
    /// Carries out `change`, which led from `before` to `after`: first for buckets, then for services. A failure does
    /// not keep the rest from being carried out.
    ///
    /// # Errors
    /// The first failure.
    pub(crate) fn take_effect(
        self: &Arc<Node>,
        change: &Change,
        before: &Cluster,
        after: &Cluster,
    ) -> Result<(), Error> {
        self.account_for_quotas(after);
        let mut outcome = self.take_effect_on_buckets(change, before, after);
        also(&mut outcome, self.reconcile(&AgreedStep { change: Some(change), before, after }));
        outcome
    }

    /// Lets every service bring itself in line. A failure does not stop the others.
    fn reconcile(self: &Arc<Node>, step: &AgreedStep<'_>) -> Result<(), Error> {
        let mut outcome = Ok(());
        for service in self.services() {
            also(&mut outcome, service.reconcile(self, step));
        }
        outcome
    }

    fn take_effect_on_buckets(
        self: &Arc<Node>,
        change: &Change,
        before: &Cluster,
        after: &Cluster,
    ) -> Result<(), Error> {
        match change {
            Change::Nodes(change) => self.take_effect_on_copies(change, before, after),
            Change::Buckets(change) => self.take_effect_on_bucket(change, before, after)?,
            Change::Cluster(ClusterChange::ChangeSettings { change }) => {
                if matches!(**change, SettingsChange::Compaction(_)) {
                    self.configure_compaction(after);
                }
            }
            // Services bring themselves in line, or look at the agreed state with each request.
            Change::Cluster(
                ClusterChange::NameCluster { .. }
                | ClusterChange::NameAdministrator { .. }
                | ClusterChange::SetOutgoingHttp { .. },
            )
            | Change::Indexes(_)
            | Change::Plugins(_)
            | Change::Functions(_)
            | Change::Query(_)
            | Change::Records(_) => {}
        }
        Ok(())
    }

    fn take_effect_on_copies(
        self: &Arc<Node>,
        change: &NodeChange,
        before: &Cluster,
        after: &Cluster,
    ) {
        match change {
            NodeChange::Recover { id, full: true } if *id == self.id() => {
                for bucket in after.buckets.values() {
                    self.arrange_keeping(&bucket.chains, bucket, CopyRetention::default());
                }
            }
            NodeChange::MoveCopies { chains, .. } if before.rebalance == after.rebalance => {
                for bucket in chains.keys() {
                    self.arrange(&before.buckets[bucket].chains, &after.buckets[bucket]);
                }
            }
            // The end of a rebalance leaves copies where they are, in all buckets.
            NodeChange::MoveCopies { .. }
            | NodeChange::StopRebalance
            | NodeChange::EndRebalance { .. } => {
                for (name, bucket) in &after.buckets {
                    self.arrange(&before.buckets[name].chains, bucket);
                }
            }
            // Only the map shows them.
            NodeChange::PutNode { .. }
            | NodeChange::MoveNode { .. }
            | NodeChange::SetAlternate { .. }
            | NodeChange::SetServices { .. }
            | NodeChange::PutGroup { .. }
            | NodeChange::DropGroup { .. }
            | NodeChange::MoveToGroups { .. }
            | NodeChange::DropNode { .. } => {}
            // The orchestrator carries these out.
            NodeChange::FailOver { .. }
            | NodeChange::Recover { .. }
            | NodeChange::SetAutoFailover { .. }
            | NodeChange::ResetAutoFailover
            | NodeChange::RenewMap
            | NodeChange::SetRetryRebalance { .. }
            | NodeChange::BeginAgain { .. }
            | NodeChange::GiveUpRebalance { .. }
            | NodeChange::StartRebalance { .. } => {}
        }
    }

    fn take_effect_on_bucket(
        self: &Arc<Node>,
        change: &BucketChange,
        before: &Cluster,
        after: &Cluster,
    ) -> Result<(), Error> {
        match change {
            BucketChange::CreateBucket { name, .. } => {
                self.open_bucket(&after.buckets[name], false, true)?
            }
            BucketChange::DropBucket { name } => {
                self.remove_bucket(&before.buckets[name])?;
            }
            BucketChange::FlushBucket { name } => {
                let removed = self.remove_bucket(&before.buckets[name]);
                self.open_bucket(&after.buckets[name], false, true)?;
                removed?;
            }
            BucketChange::UpdateBucket { name: bucket, .. }
            | BucketChange::CreateScope { bucket, .. }
            | BucketChange::DropScope { bucket, .. }
            | BucketChange::CreateCollection { bucket, .. }
            | BucketChange::UpdateCollection { bucket, .. }
            | BucketChange::DropCollection { bucket, .. } => {
                self.reconfigure(&before.buckets[bucket], &after.buckets[bucket]);
            }
        }
        Ok(())
    }

    fn reconfigure(
        self: &Arc<Node>,
        before: &nacre_cluster::Bucket,
        after: &nacre_cluster::Bucket,
    ) {
        let Some(serving) = self.bucket(&after.name) else { return };
        serving.configure(&after.settings, &after.manifest);
        Node::configure_in_cluster(&self.cluster(), &serving, after);
        self.arrange(&[], after);
        let events = events::between(&before.manifest, &after.manifest);
        if !events.is_empty() {
            serving.record_events(&events, self.platform.now());
        }
        for dropped in dropped(&serving, &before.manifest, &after.manifest) {
            self.services().iter().for_each(|service| service.drop_keyspace(self, &dropped));
        }
    }

    /// Sets for all buckets when compaction starts.
    fn configure_compaction(&self, cluster: &Cluster) {
        for config in cluster.buckets.values() {
            if let Some(bucket) = self.bucket(&config.name) {
                Node::configure_in_cluster(cluster, &bucket, config);
            }
        }
    }

    /// Sets what depends on the cluster as well as on the bucket.
    fn configure_in_cluster(cluster: &Cluster, bucket: &Bucket, config: &nacre_cluster::Bucket) {
        let compaction = cluster.compaction_of(&config.settings);
        let percent = compaction.percent(config.settings.storage_backend);
        bucket.set_compaction(percent, compaction.purge_age_s);
        bucket.set_histories(&cluster.uuid, config.settings.histories_since);
    }

    /// Carries out any number of changes, which led from `before` to `after`. A failure does not keep the rest from
    /// being carried out; the first one is returned.
    pub(crate) fn bring_in_line(
        self: &Arc<Node>,
        before: &Cluster,
        after: &Cluster,
    ) -> Result<(), Error> {
        // A bucket that was dropped and created again, or flushed, counts as another one.
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
        also(&mut outcome, self.reconcile(&AgreedStep { change: None, before, after }));
        outcome
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
        Node::configure_in_cluster(&self.cluster(), &bucket, config);
        let (documents, _) = bucket.usage();
        tracing::info!("bucket {}: serving {documents} documents", bucket.name);
        self.services().iter().for_each(|service| service.prepare_bucket(self, &bucket));
        self.buckets.write().insert(config.name.clone(), Arc::clone(&bucket));
        self.services().iter().for_each(|service| service.open_bucket(self, &bucket));
        Ok(())
    }

    fn remove_bucket(self: &Arc<Node>, config: &nacre_cluster::Bucket) -> Result<(), Error> {
        if let Some(bucket) = self.buckets.write().remove(&config.name) {
            bucket.discard();
            let dropped = DroppedKeyspace::Bucket(&bucket);
            self.services().iter().for_each(|service| service.drop_keyspace(self, &dropped));
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

/// Returns the scopes and collections of a bucket that do not exist in `after`.
fn dropped<'a>(
    bucket: &'a Arc<Bucket>,
    before: &Manifest,
    after: &Manifest,
) -> Vec<DroppedKeyspace<'a>> {
    let mut dropped = Vec::new();
    for scope in &before.scopes {
        for collection in &scope.collections {
            let id = CollectionId(collection.id);
            if after.collection_by_id(id).is_none() {
                dropped.push(DroppedKeyspace::Collection(bucket, id));
            }
        }
        if !after.scopes.iter().any(|kept| kept.id == scope.id) {
            dropped.push(DroppedKeyspace::Scope(bucket, ScopeId(scope.id)));
        }
    }
    dropped
}
