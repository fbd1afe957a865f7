//! The interface that a session requires besides its bucket.

use crate::{Bucket, BucketEnv, Logins, SlowLog, Waiter};
use nacre_auth::Users;
use nacre_budget::Budgets;
use nacre_cluster::Manifest;
use parking_lot::RwLockReadGuard;
use std::sync::Arc;

/// The environment of key-value sessions: buckets by name, users, memory budgets and the cluster map. A node implements it; an
/// embedder without a cluster can use a map of one node.
///
/// Sessions call [`KvEnv::users_version`] and [`KvEnv::map_rev`] for every request: both should be a single atomic load.
pub trait KvEnv: BucketEnv {
    /// Returns the UUID of the node within its cluster. It changes when the node joins another cluster.
    fn uuid(&self) -> String;

    /// Returns the bucket with this name if this node serves it.
    fn bucket(&self, name: &str) -> Option<Arc<Bucket>>;

    /// Returns true if the bucket exists but its files could not be read.
    fn is_bucket_damaged(&self, name: &str) -> bool;

    /// Locks the users for reading.
    fn users(&self) -> RwLockReadGuard<'_, Users>;

    /// Returns a number from 1 that increases with every change of a user.
    fn users_version(&self) -> u64;

    /// Returns the pool that hashes passwords.
    fn logins(&self) -> &Logins;

    /// Records a refused login for the operator.
    fn log_refused_login(&self);

    /// Returns the memory budgets for requests and answers.
    fn budgets(&self) -> &Budgets;

    /// Returns the log of slow operations, if there is one.
    fn slow_log(&self) -> Option<&SlowLog> {
        None
    }

    /// Returns the epoch and the revision of the cluster map.
    fn map_version(&self) -> (i64, i64);

    /// Returns the revision of the cluster map.
    fn map_rev(&self) -> i64;

    /// Returns true if the node may have missed a newer map, because its lease has ended since it learned the current
    /// map.
    fn is_cut_off(&self) -> bool;

    /// Returns the map of a bucket (or of the cluster without a name) as JSON; `None` when the bucket does not exist.
    fn map(&self, bucket: Option<&str>) -> Option<Arc<str>>;

    /// Returns the map for a client that sent a request to the wrong node; also `None` when this node is not in the map.
    fn not_my_vbucket_map(&self, bucket: Option<&str>) -> Option<Arc<str>>;

    /// Wakes `watcher` at each change of the map until `watcher` is dropped.
    fn watch_map(&self, watcher: &Arc<dyn Waiter>);

    /// Requests a new revision of the map, because a client does not adopt revision `rev`.
    fn renew_map(&self, rev: i64);

    /// Returns the part of a bucket's manifest that `visible` selects, as JSON; `None` when the bucket does not exist.
    fn manifest(&self, bucket: &str, visible: &dyn Fn(&Manifest) -> Manifest) -> Option<String>;
}
