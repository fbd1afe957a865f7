//! A change of buckets, scopes or collections.

use super::DroppedKeyspace;
use crate::{Bucket, BucketSettings, Cluster, Manifest, Member, Refusal};
use nacre_types::CollectionId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A change of buckets, scopes or collections.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BucketChange {
    /// Creates a bucket.
    CreateBucket {
        /// The name.
        name: String,
        /// A new UUID: 32 hexadecimal digits.
        uuid: String,
        /// Settings chosen by the operator.
        settings: BucketSettings,
    },
    /// Changes the settings of a bucket.
    UpdateBucket {
        /// The name.
        name: String,
        /// The new settings. Settings that are fixed at creation must be unchanged.
        settings: BucketSettings,
    },
    /// Drops a bucket with its contents.
    DropBucket {
        /// The name.
        name: String,
    },
    /// Removes all documents of a bucket.
    FlushBucket {
        /// The name.
        name: String,
    },
    /// Creates a scope.
    CreateScope {
        /// Bucket.
        bucket: String,
        /// The name.
        scope: String,
    },
    /// Drops a scope and its collections.
    DropScope {
        /// Bucket.
        bucket: String,
        /// The name.
        scope: String,
    },
    /// Creates a collection.
    CreateCollection {
        /// Bucket.
        bucket: String,
        /// Scope.
        scope: String,
        /// The name.
        collection: String,
        /// See [`crate::Collection::max_ttl`].
        max_ttl: i32,
        /// See [`crate::Collection::history`]; `None` for the bucket's setting.
        history: Option<bool>,
    },
    /// Changes settings of a collection; `None` leaves a setting unchanged.
    UpdateCollection {
        /// Bucket.
        bucket: String,
        /// Scope.
        scope: String,
        /// The name.
        collection: String,
        /// See [`crate::Collection::max_ttl`].
        max_ttl: Option<i32>,
        /// See [`crate::Collection::history`].
        history: Option<bool>,
    },
    /// Drops a collection.
    DropCollection {
        /// Bucket.
        bucket: String,
        /// Scope.
        scope: String,
        /// The name.
        collection: String,
    },
}

impl BucketChange {
    pub(crate) fn apply(&self, cluster: &mut Cluster) -> Result<Vec<CollectionId>, Refusal> {
        match self {
            BucketChange::CreateBucket { name, uuid, settings } => {
                create_bucket(cluster, name, uuid, settings)?
            }
            BucketChange::UpdateBucket { name, settings } => {
                update_bucket(cluster, name, settings)?
            }
            BucketChange::DropBucket { name } => {
                cluster.bucket(name)?;
                cluster.buckets.remove(name);
                DroppedKeyspace { bucket: name, scope: None, collection: None }.forget(cluster);
            }
            BucketChange::FlushBucket { name } => {
                let bucket = cluster.bucket_mut(name)?;
                if !bucket.settings.flush_enabled {
                    return Err(Refusal::FlushDisabled);
                }
                bucket.flushes += 1;
            }
            BucketChange::CreateScope { bucket, scope } => {
                cluster.bucket_mut(bucket)?.manifest.create_scope(scope)?
            }
            BucketChange::DropScope { bucket, scope } => {
                let dropped = cluster.bucket_mut(bucket)?.manifest.drop_scope(scope)?;
                DroppedKeyspace { bucket, scope: Some(scope), collection: None }.forget(cluster);
                return Ok(dropped);
            }
            BucketChange::CreateCollection { bucket, scope, collection, max_ttl, history } => {
                let serving = cluster.bucket_mut(bucket)?;
                serving.create_collection(scope, collection, *max_ttl, *history)?;
            }
            BucketChange::UpdateCollection { bucket, scope, collection, max_ttl, history } => {
                let serving = cluster.bucket_mut(bucket)?;
                serving.update_collection(scope, collection, *max_ttl, *history)?;
            }
            BucketChange::DropCollection { bucket, scope, collection } => {
                let id = cluster.bucket_mut(bucket)?.manifest.drop_collection(scope, collection)?;
                let (scope, collection) = (Some(scope.as_str()), Some(collection.as_str()));
                DroppedKeyspace { bucket, scope, collection }.forget(cluster);
                return Ok(vec![id]);
            }
        }
        Ok(Vec::new())
    }
}

fn create_bucket(
    cluster: &mut Cluster,
    name: &str,
    uuid: &str,
    settings: &BucketSettings,
) -> Result<(), Refusal> {
    Bucket::check_name(name)?;
    settings.check()?;
    if cluster.buckets.contains_key(name) {
        return Err(Refusal::BucketExists { bucket: name.to_owned() });
    }
    if !cluster.nodes.is_empty() && !cluster.nodes.values().any(Member::has_data) {
        let reason = "There is no node with kv to keep documents".to_owned();
        return Err(Refusal::Invalid { field: "_", reason });
    }
    cluster.check_data_quota(cluster.bucket_quotas_mb() + settings.ram_quota_mb)?;
    let bucket = Bucket {
        name: name.to_owned(),
        uuid: uuid.to_owned(),
        settings: settings.clone(),
        manifest: Manifest::new(settings.history_default()),
        design_documents: BTreeMap::new(),
        indexes: Vec::new(),
        flushes: 0,
        chains: Vec::new(),
    };
    cluster.buckets.insert(name.to_owned(), bucket);
    cluster.place_buckets();
    Ok(())
}

fn update_bucket(
    cluster: &mut Cluster,
    name: &str,
    settings: &BucketSettings,
) -> Result<(), Refusal> {
    let known = &cluster.bucket(name)?.settings;
    known.check_change(settings)?;
    settings.check()?;
    // A quota that does not grow is never too large.
    if settings.ram_quota_mb > known.ram_quota_mb {
        let others_mb = cluster.bucket_quotas_mb() - known.ram_quota_mb;
        cluster.check_data_quota(others_mb + settings.ram_quota_mb)?;
    }
    let bucket = cluster.bucket_mut(name)?;
    bucket.settings = settings.clone();
    // The next rebalance creates missing replicas.
    for chain in &mut bucket.chains {
        chain.copies.resize(1 + usize::from(settings.replicas), None);
    }
    Ok(())
}
