//! Effects of a change of the agreed state on this node: first buckets and collections are updated, then the
//! services.

use crate::Error;
use crate::copies::retention_of;
use crate::node::Node;
use crate::pending_effects::{created_row, keep_first_error, made};
use crate::service::{AgreedStep, DroppedKeyspace};
use nacre_bucket::{Bucket, BucketEnv, CopyRetention, Home, events};
use nacre_cluster::{
    BucketChange, BucketKind, Change, Cluster, ClusterChange, Manifest, NodeChange, SettingsChange,
};
use nacre_types::{CollectionId, ScopeId};
use std::sync::Arc;

/// Carries out `change`, which led from `before` to `after`: first for buckets, then for services. A failure does
/// not prevent the remaining steps.
///
/// # Errors
/// The first failure.
pub(crate) fn take_effect(
    node: &Arc<Node>,
    change: &Change,
    before: &Cluster,
    after: &Cluster,
) -> Result<(), Error> {
    node.account_for_quotas(after);
    let mut outcome = take_effect_on_buckets(node, change, before, after);
    keep_first_error(
        &mut outcome,
        reconcile(node, &AgreedStep { change: Some(change), before, after }),
    );
    outcome
}

/// Lets every service apply the new state. A failure does not stop the others.
fn reconcile(node: &Arc<Node>, step: &AgreedStep<'_>) -> Result<(), Error> {
    let mut outcome = Ok(());
    for service in node.services() {
        keep_first_error(&mut outcome, service.reconcile(node, step));
    }
    outcome
}

fn take_effect_on_buckets(
    node: &Arc<Node>,
    change: &Change,
    before: &Cluster,
    after: &Cluster,
) -> Result<(), Error> {
    match change {
        Change::Nodes(change) => take_effect_on_copies(node, change, before, after),
        Change::Buckets(change) => take_effect_on_bucket(node, change, before, after)?,
        Change::Cluster(ClusterChange::ChangeSettings { change }) => {
            if matches!(**change, SettingsChange::Compaction(_)) {
                configure_compaction(node, after);
            }
        }
        // Services apply these changes themselves, or read the agreed state with each request.
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

fn take_effect_on_copies(node: &Arc<Node>, change: &NodeChange, before: &Cluster, after: &Cluster) {
    match change {
        NodeChange::Recover { id, full: true } if *id == node.id() => {
            for bucket in after.buckets.values() {
                node.arrange_keeping(&bucket.chains, bucket, CopyRetention::default());
            }
        }
        NodeChange::MoveCopies { chains, .. } if before.rebalance == after.rebalance => {
            for bucket in chains.keys() {
                node.arrange(&before.buckets[bucket].chains, &after.buckets[bucket]);
            }
        }
        // The end of a rebalance affects the copies of all buckets.
        NodeChange::MoveCopies { .. }
        | NodeChange::StopRebalance
        | NodeChange::EndRebalance { .. } => {
            for (name, bucket) in &after.buckets {
                node.arrange(&before.buckets[name].chains, bucket);
            }
        }
        // These only appear in the map.
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
    node: &Arc<Node>,
    change: &BucketChange,
    before: &Cluster,
    after: &Cluster,
) -> Result<(), Error> {
    match change {
        BucketChange::CreateBucket { name, .. } => {
            open_bucket(node, &after.buckets[name], false, true)?
        }
        BucketChange::DropBucket { name } => {
            remove_bucket(node, &before.buckets[name])?;
        }
        BucketChange::FlushBucket { name } => {
            let removed = remove_bucket(node, &before.buckets[name]);
            open_bucket(node, &after.buckets[name], false, true)?;
            removed?;
        }
        BucketChange::UpdateBucket { name: bucket, .. }
        | BucketChange::CreateScope { bucket, .. }
        | BucketChange::DropScope { bucket, .. }
        | BucketChange::CreateCollection { bucket, .. }
        | BucketChange::UpdateCollection { bucket, .. }
        | BucketChange::DropCollection { bucket, .. } => {
            reconfigure(node, &before.buckets[bucket], &after.buckets[bucket]);
        }
    }
    Ok(())
}

fn reconfigure(node: &Arc<Node>, before: &nacre_cluster::Bucket, after: &nacre_cluster::Bucket) {
    let Some(serving) = node.bucket(&after.name) else { return };
    serving.configure(&after.settings, &after.manifest);
    configure_in_cluster(&node.cluster(), &serving, after);
    node.arrange(&[], after);
    let events = events::between(&before.manifest, &after.manifest);
    if !events.is_empty() {
        serving.record_events(&events, node.platform.now());
    }
    for dropped in dropped(&serving, &before.manifest, &after.manifest) {
        node.services().iter().for_each(|service| service.drop_keyspace(node, &dropped));
    }
}

/// Applies the compaction settings to all buckets.
fn configure_compaction(node: &Node, cluster: &Cluster) {
    for config in cluster.buckets.values() {
        if let Some(bucket) = node.bucket(&config.name) {
            configure_in_cluster(cluster, &bucket, config);
        }
    }
}

/// Applies the settings that depend on the cluster as well as on the bucket.
fn configure_in_cluster(cluster: &Cluster, bucket: &Bucket, config: &nacre_cluster::Bucket) {
    let compaction = cluster.compaction_of(&config.settings);
    let percent = compaction.percent(config.settings.storage_backend);
    bucket.set_compaction(percent, compaction.purge_age_s);
    bucket.set_histories(&cluster.uuid, config.settings.histories_since);
}

/// Carries out any number of changes, which led from `before` to `after`. A failure does not prevent the
/// remaining steps; the first failure is returned.
pub(crate) fn apply_state(
    node: &Arc<Node>,
    before: &Cluster,
    after: &Cluster,
) -> Result<(), Error> {
    // A bucket that was flushed, or dropped and created again, counts as a different one.
    let same = |a: &nacre_cluster::Bucket, b: &nacre_cluster::Bucket| {
        (&a.uuid, a.flushes) == (&b.uuid, b.flushes)
    };
    let mut outcome = Ok(());
    for (name, bucket) in &before.buckets {
        if !after.buckets.get(name).is_some_and(|kept| same(kept, bucket)) {
            keep_first_error(&mut outcome, remove_bucket(node, bucket));
        }
    }
    for (name, bucket) in &after.buckets {
        match before.buckets.get(name).filter(|known| same(known, bucket)) {
            Some(known) => reconfigure(node, known, bucket),
            None => keep_first_error(&mut outcome, open_bucket(node, bucket, false, true)),
        }
    }
    keep_first_error(&mut outcome, reconcile(node, &AgreedStep { change: None, before, after }));
    outcome
}

pub(crate) fn open_bucket(
    node: &Arc<Node>,
    config: &nacre_cluster::Bucket,
    created: bool,
    clean: bool,
) -> Result<(), Error> {
    let store = match config.settings.kind {
        BucketKind::Persistent => Some(node.platform.open_store(config, !created)?),
        BucketKind::Ephemeral => None,
    };
    if !created && config.settings.kind == BucketKind::Persistent {
        node.settings.apply(&[made(config)], true)?;
    }
    let keep = retention_of(&node.cluster(), node.id());
    let home = Home { node: node.id(), lease: Arc::clone(&node.lease), keep };
    let env = Arc::clone(&node.platform) as Arc<dyn BucketEnv>;
    let bucket = Bucket::open(config, &env, store, clean, home)?;
    configure_in_cluster(&node.cluster(), &bucket, config);
    let (documents, _) = bucket.usage();
    tracing::info!("bucket {}: serving {documents} documents", bucket.name);
    node.services().iter().for_each(|service| service.prepare_bucket(node, &bucket));
    node.buckets.write().insert(config.name.clone(), Arc::clone(&bucket));
    node.services().iter().for_each(|service| service.open_bucket(node, &bucket));
    Ok(())
}

fn remove_bucket(node: &Arc<Node>, config: &nacre_cluster::Bucket) -> Result<(), Error> {
    if let Some(bucket) = node.buckets.write().remove(&config.name) {
        bucket.discard();
        let dropped = DroppedKeyspace::Bucket(&bucket);
        node.services().iter().for_each(|service| service.drop_keyspace(node, &dropped));
    }
    match config.settings.kind {
        BucketKind::Persistent => remove_store(node, config),
        BucketKind::Ephemeral => Ok(()),
    }
}

/// Removes the store of a bucket, and the row that records it.
pub(crate) fn remove_store(node: &Node, config: &nacre_cluster::Bucket) -> Result<(), Error> {
    node.platform.remove_store(config)?;
    Ok(node.settings.apply(&[(created_row(config), None)], true)?)
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
