//! What a session needs beyond its bucket.

use crate::{Bucket, BucketEnv, Logins, SlowLog, Waiter};
use nacre_auth::Users;
use nacre_budget::Budgets;
use nacre_cluster::Manifest;
use parking_lot::RwLockReadGuard;
use std::sync::Arc;

/// The environment of key-value sessions: buckets by name, users, memory, and the cluster map. A node implements it; an embedder without
/// a cluster can do so with a map of one node.
///
/// Sessions call [`KvEnv::users_version`] and [`KvEnv::map_rev`] for every request: both should be one atomic load.
pub trait KvEnv: BucketEnv {
    /// Returns what identifies the node in its cluster. It changes when the node joins another one.
    fn uuid(&self) -> String;

    /// Returns the bucket of that name, if it is served here.
    fn bucket(&self, name: &str) -> Option<Arc<Bucket>>;

    /// Returns true if there is such a bucket, but its files could not be read.
    fn is_bucket_damaged(&self, name: &str) -> bool;

    /// Locks the users for reading.
    fn users(&self) -> RwLockReadGuard<'_, Users>;

    /// Returns a number that grows with every change of a user, from 1 on.
    fn users_version(&self) -> u64;

    /// Returns the pool in which passwords are hashed.
    fn logins(&self) -> &Logins;

    /// Records a refused login for the operator.
    fn log_refused_login(&self);

    /// Returns the memory that requests and answers are taken from.
    fn budgets(&self) -> &Budgets;

    /// Returns the log of slow operations, if there is one.
    fn slow_log(&self) -> Option<&SlowLog> {
        None
    }

    /// Returns the epoch and the revision of the cluster map.
    fn map_version(&self) -> (i64, i64);

    /// Returns the revision of the cluster map.
    fn map_rev(&self) -> i64;

    /// Returns true if the node may have missed a newer map: its lease has ended since it learned the one it has.
    fn is_cut_off(&self) -> bool;

    /// Returns the map of a bucket, or without a name that of the cluster, as JSON; `None` when there is no such bucket.
    fn map(&self, bucket: Option<&str>) -> Option<Arc<str>>;

    /// Returns the map for a client that sent a request to the wrong node; `None` also when the node itself is not in it.
    fn map_for_strays(&self, bucket: Option<&str>) -> Option<Arc<str>>;

    /// Wakes `watcher` at each change of the map, until it is dropped.
    fn watch_map(&self, watcher: &Arc<dyn Waiter>);

    /// Asks for a new revision of the map, because a client does not follow the one of revision `rev`.
    fn renew_map(&self, rev: i64);

    /// Returns the part of a bucket's manifest that `visible` keeps, as JSON; `None` when there is no such bucket.
    fn manifest(&self, bucket: &str, visible: &dyn Fn(&Manifest) -> Manifest) -> Option<String>;
}
