//! A host of buckets and sessions without a node, as an embedder would write it. It has users, and a cluster map of one
//! node.

use crate::world::{NODE, World, cluster};
use nacre_auth::{User, Users};
use nacre_bucket::kv::KvEnv;
use nacre_bucket::{
    Bucket, BucketEnv, CopyRetention, Logins, SlowLog, Task, Waiter, Watchers, events,
};
use nacre_budget::Budgets;
use nacre_cluster::{Change, Cluster, Manifest, Refusal};
use nacre_types::{Now, VbUuid};
use parking_lot::{RwLock, RwLockReadGuard};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub struct Host {
    world: Arc<World>,
    cluster: RwLock<Arc<Cluster>>,
    buckets: RwLock<BTreeMap<String, Arc<Bucket>>>,
    users: RwLock<Users>,
    users_version: AtomicU64,
    logins: Arc<Logins>,
    budgets: Budgets,
    pub slow: SlowLog,
    map_watchers: Watchers,
}

impl Host {
    /// Opens the buckets of this world's last host, as after a crash.
    pub fn open(world: &Arc<World>) -> Arc<Host> {
        let known = world.cluster.lock().unwrap().clone().unwrap_or_else(cluster);
        let host = Arc::new(Host {
            world: Arc::clone(world),
            cluster: RwLock::new(Arc::new(known)),
            buckets: RwLock::default(),
            users: RwLock::new(Users::new([1; 32])),
            users_version: AtomicU64::new(1),
            logins: Arc::default(),
            budgets: Budgets::default(),
            slow: SlowLog::default(),
            map_watchers: Watchers::default(),
        });
        for config in host.cluster().buckets.values() {
            host.open_bucket(config, false);
        }
        host.logins.start(&(Arc::clone(world) as Arc<dyn BucketEnv>));
        host
    }

    fn open_bucket(&self, config: &nacre_cluster::Bucket, is_clean: bool) {
        let bucket = self.world.open(config, is_clean).unwrap();
        self.buckets.write().insert(config.name.clone(), bucket);
    }

    pub fn cluster(&self) -> Arc<Cluster> {
        Arc::clone(&self.cluster.read())
    }

    pub fn put_user(&self, user: User) -> Result<(), Infallible> {
        self.users.write().insert(user);
        self.users_version.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Changes the cluster, and updates the buckets accordingly.
    pub fn change(&self, change: &Change) -> Result<(), Refusal> {
        let before = self.cluster();
        let mut after = (*before).clone();
        after.apply(change)?;
        *self.world.cluster.lock().unwrap() = Some(after.clone());
        let after = Arc::new(after);
        *self.cluster.write() = Arc::clone(&after);
        let is_same = |one: &nacre_cluster::Bucket, other: &nacre_cluster::Bucket| {
            (&one.uuid, one.flushes) == (&other.uuid, other.flushes)
        };
        for (name, config) in &before.buckets {
            if !after.buckets.get(name).is_some_and(|kept| is_same(kept, config))
                && let Some(bucket) = self.buckets.write().remove(name)
            {
                bucket.discard();
            }
        }
        for (name, config) in &after.buckets {
            match before.buckets.get(name).filter(|known| is_same(known, config)) {
                Some(known) if known != config => self.configure(known, config),
                Some(_) => {}
                None => self.open_bucket(config, true),
            }
        }
        self.map_watchers.wake();
        Ok(())
    }

    fn configure(&self, before: &nacre_cluster::Bucket, after: &nacre_cluster::Bucket) {
        let bucket = KvEnv::bucket(self, &after.name).unwrap();
        bucket.configure(&after.settings, &after.manifest);
        let vb_uuid = || VbUuid::of_random(self.random());
        let keep = CopyRetention::default();
        bucket.arrange(&before.chains, &after.chains, NODE, keep, vb_uuid, self.now());
        let events = events::between(&before.manifest, &after.manifest);
        if !events.is_empty() {
            bucket.record_events(&events, self.now());
        }
    }

    pub fn bucket(&self, name: &str) -> Option<Arc<Bucket>> {
        KvEnv::bucket(self, name)
    }

    pub fn now(&self) -> Now {
        BucketEnv::now(self)
    }

    pub fn users(&self) -> RwLockReadGuard<'_, Users> {
        self.users.read()
    }
}

impl BucketEnv for Host {
    fn now(&self) -> Now {
        self.world.now()
    }

    fn random(&self) -> u64 {
        self.world.random()
    }

    fn spawn(&self, task: Box<dyn Task>) {
        self.world.spawn(task);
    }
}

impl KvEnv for Host {
    fn uuid(&self) -> String {
        format!("{:032}", 1)
    }

    fn bucket(&self, name: &str) -> Option<Arc<Bucket>> {
        self.buckets.read().get(name).cloned()
    }

    fn is_bucket_damaged(&self, _: &str) -> bool {
        false
    }

    fn users(&self) -> RwLockReadGuard<'_, Users> {
        self.users.read()
    }

    fn users_version(&self) -> u64 {
        self.users_version.load(Ordering::Relaxed)
    }

    fn logins(&self) -> &Logins {
        &self.logins
    }

    fn log_refused_login(&self) {}

    fn budgets(&self) -> &Budgets {
        &self.budgets
    }

    fn slow_log(&self) -> Option<&SlowLog> {
        Some(&self.slow)
    }

    fn map_version(&self) -> (i64, i64) {
        (1, self.map_rev())
    }

    fn map_rev(&self) -> i64 {
        self.cluster().rev as i64
    }

    fn is_cut_off(&self) -> bool {
        false
    }

    fn map(&self, bucket: Option<&str>) -> Option<Arc<str>> {
        let is_known = bucket.is_none_or(|name| self.buckets.read().contains_key(name));
        is_known.then(|| format!(r#"{{"rev":{}}}"#, self.map_rev()).into())
    }

    fn not_my_vbucket_map(&self, bucket: Option<&str>) -> Option<Arc<str>> {
        self.map(bucket)
    }

    fn watch_map(&self, watcher: &Arc<dyn Waiter>) {
        self.map_watchers.add(watcher);
    }

    fn renew_map(&self, _: i64) {}

    fn manifest(&self, bucket: &str, visible: &dyn Fn(&Manifest) -> Manifest) -> Option<String> {
        let manifest = visible(&self.cluster().buckets.get(bucket)?.manifest);
        Some(format!(r#"{{"uid":"{:x}"}}"#, manifest.uid))
    }
}
