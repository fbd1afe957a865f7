//! The node: the agreed state, the users, the buckets that serve, and how a change of the first reaches the others.

use crate::bucket::Bucket;

use crate::plugins::{Loader, Plugins, packages};
use crate::query::Queries;
use crate::replication::Follower;
use crate::ticket::Waiter;
use crate::{Error, Platform, events};
use nacre_auth::{Group, PasswordPolicy, User, Users};
use nacre_cluster::{BucketKind, Change, Cluster, Endpoints, Member, Membership};
use nacre_store::Space;
use nacre_types::{NodeId, VbUuid};
use parking_lot::{Mutex, RwLock};
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use tokio::sync::Notify;

/// Rows of the space that keeps what the node knows.
mod row {
    pub const CLUSTER: &[u8] = b"cluster";
    pub const USERS: &[u8] = b"users";
    pub const GROUPS: &[u8] = b"groups";
    pub const PASSWORD_POLICY: &[u8] = b"password-policy";
    pub const CLEAN: &[u8] = b"clean";
    /// The number of this node.
    pub const NODE_ID: &[u8] = b"node-id";
    /// Followed by the identity of a store that was created.
    pub const CREATED: &[u8] = b"created/";
}

/// One node.
pub struct Node {
    pub(crate) platform: Arc<dyn Platform>,
    endpoints: Endpoints,
    id: NodeId,
    settings: Arc<dyn Space>,
    cluster: RwLock<Arc<Cluster>>,
    /// The nodes that are followed, by bucket.
    followed: Mutex<BTreeSet<(String, NodeId)>>,
    stopping: AtomicBool,
    /// Held through a change, so that changes and their effects happen one after another.
    changing: Mutex<()>,
    users: RwLock<Users>,
    password_policy: RwLock<PasswordPolicy>,
    /// Grows with every change of a user.
    users_version: AtomicU64,
    buckets: RwLock<BTreeMap<String, Arc<Bucket>>>,
    plugins: Plugins,
    queries: Queries,
    /// The revision of the cluster map, beside the state it is of: connections look at it all the time.
    map_rev: AtomicU64,
    map_changed: Notify,
    /// The connections that are told of a new map, as long as they live.
    map_watchers: Mutex<Vec<Weak<dyn Waiter>>>,
}

impl Node {
    /// Starts a node: reads what it knows and takes its buckets into memory.
    ///
    /// # Errors
    /// When what is stored cannot be read; the node does not serve then.
    pub fn open(platform: Arc<dyn Platform>, endpoints: Endpoints) -> Result<Arc<Node>, Error> {
        let settings = platform.spaces().open("node")?;
        let rows: BTreeMap<Vec<u8>, Vec<u8>> = settings.load()?.into_iter().collect();
        let id = NodeId(stored(&rows, row::NODE_ID, "node-id")?).max(NodeId(1));
        let mut cluster: Cluster = match rows.get(row::CLUSTER) {
            Some(stored) => {
                serde_json::from_slice(stored).map_err(|_| Error::Settings("cluster"))?
            }
            None => Cluster::new(random_hex(&*platform)),
        };
        if !cluster.nodes.contains_key(&id) {
            let member = Member {
                uuid: random_hex(&*platform),
                endpoints: endpoints.clone(),
                group: "Group 1".into(),
                membership: Membership::Active,
            };
            cluster.apply(&Change::PutNode { id, member }).map_err(Error::Refused)?;
            let row = serde_json::to_vec(&cluster).expect("the agreed state has text keys only");
            settings.apply(&[(row::CLUSTER.to_vec(), Some(row))], true)?;
        }
        let mut users = Users::new(random_bytes(&*platform));
        let groups: Vec<Group> = stored(&rows, row::GROUPS, "groups")?;
        groups.into_iter().for_each(|group| users.insert_group(group));
        let known: Vec<User> = stored(&rows, row::USERS, "users")?;
        known.into_iter().for_each(|user| {
            users.insert(user);
        });
        let password_policy = stored(&rows, row::PASSWORD_POLICY, "password-policy")?;
        let clean = rows.contains_key(row::CLEAN);
        settings.apply(&[(row::CLEAN.to_vec(), None)], true)?;

        let map_rev = AtomicU64::new(cluster.rev);
        let node = Arc::new(Node {
            platform,
            endpoints,
            id,
            settings,
            cluster: RwLock::new(Arc::new(cluster)),
            followed: Mutex::default(),
            stopping: AtomicBool::new(false),
            changing: Mutex::new(()),
            users: RwLock::new(users),
            password_policy: RwLock::new(password_policy),
            users_version: AtomicU64::new(1),
            buckets: RwLock::default(),
            plugins: Plugins::default(),
            queries: Queries::default(),
            map_rev,
            map_changed: Notify::new(),
            map_watchers: Mutex::default(),
        });
        for config in node.cluster().buckets.values() {
            let created = rows.contains_key(&created_row(config));
            node.open_bucket(config, created, clean)?;
        }
        node.follow();
        Ok(node)
    }

    /// The agreed state.
    pub fn cluster(&self) -> Arc<Cluster> {
        Arc::clone(&self.cluster.read())
    }

    /// Its number in the cluster.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// Where clients reach this node.
    pub fn endpoints(&self) -> &Endpoints {
        &self.endpoints
    }

    /// The users.
    pub fn users(&self) -> parking_lot::RwLockReadGuard<'_, Users> {
        self.users.read()
    }

    /// What new passwords have to be like.
    pub fn password_policy(&self) -> PasswordPolicy {
        self.password_policy.read().clone()
    }

    /// Asks something else of new passwords; those that are in use stay.
    ///
    /// # Errors
    /// What the disk reports; the policy is as it was then.
    pub fn set_password_policy(&self, policy: PasswordPolicy) -> Result<(), Error> {
        let _changing = self.changing.lock();
        let stored = serde_json::to_vec(&policy).expect("a policy is plain data");
        self.settings.apply(&[(row::PASSWORD_POLICY.to_vec(), Some(stored))], true)?;
        *self.password_policy.write() = policy;
        Ok(())
    }

    /// Grows with every change of a user, from 1 on: rights that were looked up at another version may no longer hold.
    pub fn users_version(&self) -> u64 {
        self.users_version.load(Ordering::Acquire)
    }

    /// Views, and everything else that is deployed.
    pub fn plugins(&self) -> &Plugins {
        &self.plugins
    }

    /// The query service.
    pub fn queries(&self) -> &Queries {
        &self.queries
    }

    /// Loads plugins from now on, beside everything else: compiling them takes seconds.
    pub fn load_plugins(self: &Arc<Node>) {
        self.platform.run(Box::new(Loader::new(self)));
    }

    /// The bucket `name`, if it serves here.
    pub fn bucket(&self, name: &str) -> Option<Arc<Bucket>> {
        self.buckets.read().get(name).cloned()
    }

    /// The revision of the cluster map.
    pub(crate) fn map_rev(&self) -> i64 {
        self.map_rev.load(Ordering::Acquire) as i64
    }

    /// Waits for the next change of the cluster map.
    pub fn map_changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.map_changed.notified()
    }

    /// Wakes `watcher` at each change of the cluster map, until it is dropped.
    pub(crate) fn watch_map(&self, watcher: &Arc<dyn Waiter>) {
        let mut watchers = self.map_watchers.lock();
        watchers.retain(|known| known.strong_count() > 0);
        watchers.push(Arc::downgrade(watcher));
    }

    /// Both clocks.
    pub fn now(&self) -> nacre_types::Now {
        self.platform.now()
    }

    /// A number nobody can foresee.
    pub fn random(&self) -> u64 {
        self.platform.random()
    }

    /// A new identity: 32 hexadecimal digits.
    pub fn new_uuid(&self) -> String {
        random_hex(&*self.platform)
    }

    /// Changes the agreed state and lets the change take effect. Gives the state after it.
    ///
    /// # Errors
    /// [`Error::Refused`] with nothing changed; or what the disk reports.
    pub fn change(self: &Arc<Node>, change: &Change) -> Result<Arc<Cluster>, Error> {
        let _changing = self.changing.lock();
        let before = self.cluster();
        let mut after = (*before).clone();
        after.apply(change).map_err(Error::Refused)?;
        let after = Arc::new(after);
        let stored = serde_json::to_vec(&*after).expect("the agreed state has text keys only");
        self.settings.apply(&[(row::CLUSTER.to_vec(), Some(stored))], true)?;
        *self.cluster.write() = Arc::clone(&after);
        self.take_effect(change, &before, &after)?;
        self.map_rev.store(after.rev, Ordering::Release);
        self.follow();
        self.map_changed.notify_waiters();
        self.wake_map_watchers();
        Ok(after)
    }

    fn wake_map_watchers(&self) {
        let mut watchers = self.map_watchers.lock();
        watchers.retain(|watcher| watcher.upgrade().inspect(|watcher| watcher.wake()).is_some());
    }

    fn take_effect(
        self: &Arc<Node>,
        change: &Change,
        before: &Cluster,
        after: &Cluster,
    ) -> Result<(), Error> {
        match change {
            // Only the map shows them.
            Change::NameCluster { .. } | Change::PutNode { .. } | Change::DropNode { .. } => {}
            // The orchestrator sees to what follows from them.
            Change::FailOver { .. }
            | Change::Recover { .. }
            | Change::SetAutoFailover { .. }
            | Change::StartRebalance { .. } => {}
            Change::StopRebalance | Change::EndRebalance { .. } => {
                after.buckets.values().for_each(|bucket| self.arrange(bucket));
            }
            Change::MoveCopies { chains, .. } => {
                chains.keys().for_each(|bucket| self.arrange(&after.buckets[bucket]));
            }
            Change::CreateBucket { name, .. } => {
                self.open_bucket(&after.buckets[name], false, true)?
            }
            Change::DropBucket { name } => self.remove_bucket(&before.buckets[name])?,
            Change::FlushBucket { name } => {
                self.remove_bucket(&before.buckets[name])?;
                self.open_bucket(&after.buckets[name], false, true)?;
            }
            Change::UpdateBucket { name: bucket, .. }
            | Change::CreateScope { bucket, .. }
            | Change::DropScope { bucket, .. }
            | Change::CreateCollection { bucket, .. }
            | Change::UpdateCollection { bucket, .. }
            | Change::DropCollection { bucket, .. } => {
                let config = &after.buckets[bucket];
                if let Some(serving) = self.bucket(bucket) {
                    serving.configure(&config.settings, &config.manifest);
                    self.arrange(config);
                    let events =
                        events::between(&before.buckets[bucket].manifest, &config.manifest);
                    if !events.is_empty() {
                        serving.record_events(&events, self.platform.now());
                    }
                    self.plugins.redeploy(self, &serving);
                }
            }
            Change::PutDesignDocument { bucket, .. }
            | Change::DropDesignDocument { bucket, .. }
            | Change::CreateIndex { bucket, .. }
            | Change::DropIndex { bucket, .. }
            | Change::BuildIndexes { bucket, .. } => {
                self.redeploy(bucket);
            }
            // What is deployed of it comes later, or has gone before.
            Change::PutPackage { .. } => {}
            Change::DropPackage { name, version } => {
                self.forget_package(&before.plugins.packages[name][version].digest, after)?;
            }
            Change::Deploy { name, .. }
            | Change::PauseDeployment { name, .. }
            | Change::ReplayDeployment { name } => {
                self.redeploy(&after.plugins.deployments[name].source.bucket);
            }
            Change::Undeploy { name } => {
                self.redeploy(&before.plugins.deployments[name].source.bucket);
            }
            // Each query reads them.
            Change::PutQueryFunction { .. } | Change::DropQueryFunction { .. } => {}
            // One that runs cannot be changed.
            Change::PutFunction { .. } | Change::DropFunction { .. } => {}
            Change::SetFunctionState { id, .. } => {
                self.redeploy(&after.functions.0[id].definition.source.bucket);
            }
        }
        Ok(())
    }

    /// Gives the vBuckets of a bucket the parts that their chains have for this node.
    fn arrange(&self, config: &nacre_cluster::Bucket) {
        if let Some(bucket) = self.bucket(&config.name) {
            let vb_uuid = || VbUuid(self.platform.random() >> 16 | 1);
            bucket.arrange(&config.chains, self.id, vb_uuid, self.platform.now());
        }
    }

    /// Begins to follow the nodes whose vBuckets this one is to have copies of, where it does not yet.
    fn follow(self: &Arc<Node>) {
        let cluster = self.cluster();
        for config in cluster.buckets.values() {
            let Some(bucket) = self.bucket(&config.name) else { continue };
            let mine = config.chains.iter().filter(|chain| {
                chain.active().is_some() && chain.followers().any(|node| node == self.id)
            });
            let peers: BTreeSet<NodeId> = mine.filter_map(|chain| chain.active()).collect();
            for peer in peers {
                let Some(member) = cluster.nodes.get(&peer) else { continue };
                if self.followed.lock().insert((bucket.uuid.clone(), peer)) {
                    let follower = Follower::new(Arc::clone(self), Arc::clone(&bucket), peer);
                    self.platform.link(&member.endpoints, Box::new(follower));
                }
            }
        }
    }

    /// A follower is no more.
    pub(crate) fn follower_ended(&self, bucket: &Bucket, peer: NodeId) {
        self.followed.lock().remove(&(bucket.uuid.clone(), peer));
    }

    /// Whether the node is about to end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    fn redeploy(self: &Arc<Node>, bucket: &str) {
        if let Some(serving) = self.bucket(bucket) {
            self.plugins.redeploy(self, &serving);
        }
    }

    /// Two packages may have the same bytes under different names.
    fn forget_package(&self, digest: &str, cluster: &Cluster) -> Result<(), Error> {
        let mut packages = cluster.plugins.packages.values().flat_map(|versions| versions.values());
        if packages.all(|package| package.digest != digest) {
            self.plugins.forget(digest);
            packages::forget(&*self.platform, digest)?;
        }
        Ok(())
    }

    fn open_bucket(
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
            self.settings.apply(&[(created_row(config), Some(Vec::new()))], true)?;
        }
        let bucket = Bucket::open(config, &self.platform, store, clean, self.id)?;
        let (documents, _) = bucket.usage();
        tracing::info!("bucket {}: serving {documents} documents", bucket.name);
        self.buckets.write().insert(config.name.clone(), Arc::clone(&bucket));
        self.plugins.redeploy(self, &bucket);
        Ok(())
    }

    fn remove_bucket(&self, config: &nacre_cluster::Bucket) -> Result<(), Error> {
        if let Some(bucket) = self.buckets.write().remove(&config.name) {
            bucket.discard();
            self.plugins.undeploy_bucket(&bucket);
        }
        if config.settings.kind == BucketKind::Persistent {
            self.platform.remove_store(config)?;
            self.settings.apply(&[(created_row(config), None)], true)?;
        }
        Ok(())
    }

    /// Adds or replaces a user.
    ///
    /// # Errors
    /// What the disk reports; the users are as they were then.
    pub fn put_user(&self, user: User) -> Result<(), Error> {
        self.change_users(|users| {
            users.insert(user);
        })
    }

    /// Removes a user; says whether there was one.
    ///
    /// # Errors
    /// What the disk reports; the users are as they were then.
    pub fn remove_user(&self, name: &str) -> Result<bool, Error> {
        let mut existed = false;
        self.change_users(|users| existed = users.remove(name).is_some())?;
        Ok(existed)
    }

    /// Adds or replaces a group.
    ///
    /// # Errors
    /// What the disk reports; the groups are as they were then.
    pub fn put_group(&self, group: Group) -> Result<(), Error> {
        self.change_users(|users| users.insert_group(group))
    }

    /// Removes a group, also from its users; says whether there was one.
    ///
    /// # Errors
    /// What the disk reports; the groups are as they were then.
    pub fn remove_group(&self, name: &str) -> Result<bool, Error> {
        let mut existed = false;
        self.change_users(|users| existed = users.remove_group(name).is_some())?;
        Ok(existed)
    }

    /// Stores the users as `change` makes them, and then lets them count. Logins go on while the disk is waited for.
    fn change_users(&self, change: impl FnOnce(&mut Users)) -> Result<(), Error> {
        let _changing = self.changing.lock();
        let mut users = self.users.read().clone();
        change(&mut users);
        let all: Vec<&User> = users.iter().collect();
        let groups: Vec<&Group> = users.groups().collect();
        let all = serde_json::to_vec(&all).expect("users are plain data");
        let groups = serde_json::to_vec(&groups).expect("groups are plain data");
        let rows = [(row::USERS.to_vec(), Some(all)), (row::GROUPS.to_vec(), Some(groups))];
        self.settings.apply(&rows, true)?;
        *self.users.write() = users;
        self.users_version.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// A salt for a new password.
    pub fn new_salt(&self) -> [u8; nacre_auth::SALT_BYTES] {
        random_bytes(&*self.platform)
    }

    /// Ends all tasks once they have written what there is. The embedder waits for its tasks, then calls
    /// [`Node::mark_clean`].
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.wake_map_watchers();
        self.plugins.stop();
        for bucket in self.buckets.read().values() {
            bucket.close();
        }
    }

    /// Notes that everything was written, so that the next start need not assume the worst.
    ///
    /// # Errors
    /// What the disk reports, or [`Error::Unpersisted`] when something was not written.
    pub fn mark_clean(&self) -> Result<(), Error> {
        for bucket in self.buckets.read().values() {
            let behind =
                bucket.high_seqnos().iter().enumerate().any(|(index, high)| {
                    bucket.persisted.get(nacre_types::Vbid(index as u16)) < *high
                });
            if behind {
                return Err(Error::Unpersisted { bucket: bucket.name.clone() });
            }
        }
        Ok(self.settings.apply(&[(row::CLEAN.to_vec(), Some(Vec::new()))], true)?)
    }
}

/// What a row holds; what a node has before it stores any when there is no such row.
fn stored<T: DeserializeOwned + Default>(
    rows: &BTreeMap<Vec<u8>, Vec<u8>>,
    row: &[u8],
    name: &'static str,
) -> Result<T, Error> {
    let Some(stored) = rows.get(row) else { return Ok(T::default()) };
    serde_json::from_slice(stored).map_err(|_| Error::Settings(name))
}

fn created_row(config: &nacre_cluster::Bucket) -> Vec<u8> {
    let identity = format!("{}-{}", config.uuid, config.flushes);
    [row::CREATED, identity.as_bytes()].concat()
}

fn random_hex(platform: &dyn Platform) -> String {
    format!("{:016x}{:016x}", platform.random(), platform.random())
}

fn random_bytes<const N: usize>(platform: &dyn Platform) -> [u8; N] {
    let mut bytes = [0; N];
    for chunk in bytes.chunks_mut(8) {
        chunk.copy_from_slice(&platform.random().to_be_bytes()[..chunk.len()]);
    }
    bytes
}
