//! The environment of key-value sessions, implemented by a node.

use crate::cluster_map::{self, wire_manifest};
use crate::node::Node;
use nacre_auth::Users;
use nacre_bucket::kv::KvEnv;
use nacre_bucket::{Bucket, BucketEnv, Logins, SlowLog, Task, Waiter};
use nacre_budget::Budgets;
use nacre_cluster::Manifest;
use nacre_types::Now;
use parking_lot::RwLockReadGuard;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl BucketEnv for Node {
    fn now(&self) -> Now {
        self.platform.now()
    }

    fn random(&self) -> u64 {
        self.platform.random()
    }

    fn spawn(&self, task: Box<dyn Task>) {
        self.platform.spawn(task);
    }
}

impl KvEnv for Node {
    fn uuid(&self) -> String {
        self.uuid()
    }

    fn bucket(&self, name: &str) -> Option<Arc<Bucket>> {
        self.bucket(name)
    }

    fn is_bucket_damaged(&self, name: &str) -> bool {
        self.cluster().buckets.get(name).is_some_and(|config| self.damaged.contains(config))
    }

    fn users(&self) -> RwLockReadGuard<'_, Users> {
        self.users()
    }

    fn users_version(&self) -> u64 {
        self.users_version()
    }

    fn logins(&self) -> &Logins {
        self.logins()
    }

    fn log_refused_login(&self) {
        self.log_refused_login(serde_json::json!({"port": "kv"}));
    }

    fn budgets(&self) -> &Budgets {
        self.memory().budgets()
    }

    fn slow_log(&self) -> Option<&SlowLog> {
        Some(self.slow_log())
    }

    fn map_version(&self) -> (i64, i64) {
        cluster_map::version(&self.cluster())
    }

    fn map_rev(&self) -> i64 {
        self.map_rev()
    }

    fn is_cut_off(&self) -> bool {
        let learned_ns = self.map_learned_ns.load(Ordering::Relaxed);
        self.lease.has_ended_since(learned_ns, self.now().monotonic_ns)
    }

    fn map(&self, bucket: Option<&str>) -> Option<Arc<str>> {
        self.map(bucket)
    }

    fn not_my_vbucket_map(&self, bucket: Option<&str>) -> Option<Arc<str>> {
        self.not_my_vbucket_map(bucket)
    }

    fn watch_map(&self, watcher: &Arc<dyn Waiter>) {
        self.watch_map(watcher);
    }

    fn renew_map(&self, rev: i64) {
        self.ignored_map_rev.store(rev as u64, Ordering::Relaxed);
    }

    fn manifest(&self, bucket: &str, visible: &dyn Fn(&Manifest) -> Manifest) -> Option<String> {
        let cluster = self.cluster();
        let bucket = cluster.bucket(bucket).ok()?;
        Some(wire_manifest(bucket, &visible(&bucket.manifest)).to_string())
    }
}
