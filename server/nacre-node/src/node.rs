//! The node: its identity, the agreed state, and the buckets that it serves.

use crate::agreement::{self, Agreement, SingleNodeAgreement};
use crate::cluster_map::{LocalNode, MapCache};
use crate::copies::Fenced;
use crate::effects::open_bucket;
use crate::health::{DamagedBuckets, is_of_one_bucket};
use crate::journal::{self, EventKind, Journal};
use crate::orchestration::{FailoverTask, HeartbeatTask, Orchestration};
use crate::password_reset;
use crate::pending_effects::{apply_pending_effects, created_row, schedule_retry};
use crate::scatter_gather::Owners;
use crate::service::{Service, ServiceTable};
use crate::{Error, NodeMemory, PeerMessageHandler, Platform};
use nacre_auth::{Group, PasswordPolicy, User, Users};
use nacre_bucket::{Bucket, BucketEnv, Lease, Logins, SlowLog, Waiter, Watchers};
use nacre_cluster::{
    BucketKind, Change, Cluster, Endpoints, GROUP_DEFAULT, Member, Membership, NodeChange,
    OutgoingRule, Secret, ServiceName,
};
use nacre_store::{Space, Write};
use nacre_types::NodeId;
use parking_lot::{Mutex, RwLock};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::sync::Notify;

/// Rows of the space that keeps the settings of the node.
pub(crate) mod row {
    pub const IDENTITY: &[u8] = b"identity";
    pub const POSITION: &[u8] = b"position";
    pub const CLUSTER: &[u8] = b"cluster";
    pub const USERS: &[u8] = b"users";
    pub const GROUPS: &[u8] = b"groups";
    pub const USER_GENERATION: &[u8] = b"user-generation";
    pub const PASSWORD_POLICY: &[u8] = b"password-policy";
    pub const CLEAN: &[u8] = b"clean";
    pub const START: &[u8] = b"start";
    /// Prefix of rows for created stores, followed by the identity of the store.
    pub const CREATED: &[u8] = b"created/";
}

/// The identity of a node in its cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub id: NodeId,
    /// 32 hexadecimal digits, new each time the node joins a cluster.
    pub uuid: String,
}

/// One node.
pub struct Node {
    /// The environment of the node.
    pub platform: Arc<dyn Platform>,
    pub(crate) identity: RwLock<Identity>,
    /// Endpoints of this process. The agreed state may override the host.
    own: Endpoints,
    pub(crate) agreement: RwLock<Arc<dyn Agreement>>,
    handler: RwLock<Option<Arc<dyn PeerMessageHandler>>>,
    /// The nodes that this node follows, by UUID of the bucket.
    pub(crate) followed: Mutex<BTreeSet<(String, NodeId)>>,
    /// The nodes that this node must not follow.
    pub(crate) fenced: RwLock<Fenced>,
    /// Grows with every change of the fences.
    pub(crate) fences: AtomicU64,
    pub(crate) lease: Arc<Lease>,
    pub(crate) orchestration: OnceLock<Arc<Orchestration>>,
    /// Number of starts on this disk, including this one. It distinguishes messages of different processes.
    pub(crate) start: u64,
    /// True if some agreed change has not taken effect on this node yet.
    pub(crate) has_pending_effects: AtomicBool,
    stopping: AtomicBool,
    /// Time of the last message of each node, in monotonic nanoseconds.
    last_contact: Mutex<BTreeMap<NodeId, u64>>,
    /// Addresses that functions and plugins may reach, from the command-line options.
    pub(crate) outgoing_allowed: OnceLock<Vec<OutgoingRule>>,
    pub(crate) settings: Arc<dyn Space>,
    pub(crate) cluster: RwLock<Arc<Cluster>>,
    /// Locked during a change, so that changes and their effects are serialized.
    pub(crate) changing: Mutex<()>,
    pub(crate) users: RwLock<Users>,
    pub(crate) password_policy: RwLock<PasswordPolicy>,
    logins: Arc<Logins>,
    /// Grows with every change of a user.
    pub(crate) users_version: AtomicU64,
    pub(crate) buckets: RwLock<BTreeMap<String, Arc<Bucket>>>,
    pub(crate) damaged: DamagedBuckets,
    services: Vec<Arc<dyn Service>>,
    service_table: ServiceTable,
    memory: NodeMemory,
    /// Revision of the cluster map, separate from the state because connections read it all the time.
    pub(crate) map_rev: AtomicU64,
    /// Time at which this node learned the revision, in monotonic nanoseconds; 0 before the first.
    pub(crate) map_learned_ns: AtomicU64,
    /// Revision of a map that a client received repeatedly and does not follow; 0 if there is none.
    pub(crate) ignored_map_rev: AtomicU64,
    pub(crate) map_changed: Notify,
    pub(crate) users_changed: Notify,
    maps: Mutex<MapCache>,
    /// The node that serves each vBucket, by bucket, as of the last query.
    pub(crate) owners: RwLock<BTreeMap<String, Arc<Owners>>>,
    /// The connections to wake when the map changes, as long as they live.
    pub(crate) map_watchers: Watchers,
    /// A user whose password was reset while the node was stopped.
    pub(crate) password_reset: Mutex<Option<User>>,
    /// Events since the start.
    pub(crate) journal: Journal,
    slow_log: SlowLog,
    /// Number of questions from other nodes that were answered, by subject.
    pub(crate) answered: Mutex<BTreeMap<&'static str, u64>>,
}

impl Node {
    /// Starts a node with these services: reads its settings and loads its buckets into memory.
    ///
    /// # Errors
    /// Fails when the settings cannot be read; the node then serves nothing. A bucket that cannot be read is [a
    /// problem](crate::problems), and the others are served.
    pub fn open_with(
        platform: Arc<dyn Platform>,
        endpoints: Endpoints,
        services: Vec<Arc<dyn Service>>,
    ) -> Result<Arc<Node>, Error> {
        let settings = platform.spaces().open("node")?;
        let rows: BTreeMap<Vec<u8>, Vec<u8>> = settings.load()?.into_iter().collect();
        let service_table = ServiceTable::of(&services);
        let (identity, cluster, mut writes) =
            begin(&*platform, &rows, &endpoints, &service_table.first_names())?;
        let mut users = Users::new(random_bytes(&*platform));
        users.set_internal(cluster.secret.reveal(), random_bytes(&*platform));
        let groups: Vec<Group> = stored(&rows, row::GROUPS, "groups")?;
        groups.into_iter().for_each(|group| users.insert_group(group));
        let known: Vec<User> = stored(&rows, row::USERS, "users")?;
        known.into_iter().for_each(|user| {
            users.insert(user);
        });
        users.skip_generations(stored(&rows, row::USER_GENERATION, "user-generation")?);
        let password_policy = stored(&rows, row::PASSWORD_POLICY, "password-policy")?;
        let password_reset = rows
            .get(password_reset::ROW)
            .map(|row| serde_json::from_slice(row).map_err(|_| Error::Settings("password-reset")));
        let password_reset = password_reset.transpose()?;
        let clean = rows.contains_key(row::CLEAN);
        writes.push((row::CLEAN.to_vec(), None));
        let start = stored::<u64>(&rows, row::START, "start")? + 1;
        writes.push(agreement::write(row::START, &start));
        settings.apply(&writes, true)?;

        let map_rev = AtomicU64::new(cluster.rev);
        let node = Arc::new(Node {
            platform,
            identity: RwLock::new(identity),
            own: endpoints,
            agreement: RwLock::new(Arc::new(SingleNodeAgreement)),
            handler: RwLock::default(),
            followed: Mutex::default(),
            fenced: RwLock::default(),
            fences: AtomicU64::new(0),
            lease: Arc::default(),
            orchestration: OnceLock::new(),
            start,
            has_pending_effects: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            last_contact: Mutex::default(),
            outgoing_allowed: OnceLock::new(),
            settings,
            cluster: RwLock::new(Arc::new(cluster)),
            changing: Mutex::new(()),
            users: RwLock::new(users),
            password_policy: RwLock::new(password_policy),
            logins: Arc::default(),
            users_version: AtomicU64::new(1),
            buckets: RwLock::default(),
            damaged: DamagedBuckets::default(),
            services,
            service_table,
            memory: NodeMemory::default(),
            map_rev,
            map_learned_ns: AtomicU64::new(0),
            ignored_map_rev: AtomicU64::new(0),
            map_changed: Notify::new(),
            users_changed: Notify::new(),
            maps: Mutex::default(),
            owners: RwLock::default(),
            map_watchers: Watchers::default(),
            password_reset: Mutex::new(password_reset),
            journal: Journal::default(),
            slow_log: SlowLog::default(),
            answered: Mutex::default(),
        });
        node.log_event(journal::STARTED, serde_json::json!({"name": "nacre"}));
        node.account_for_quotas(&node.cluster());
        for config in node.cluster().buckets.values() {
            let created = rows.contains_key(&created_row(config));
            // Documents that were only in memory are lost, even after a clean stop.
            let was_clean = clean && config.settings.kind == BucketKind::Persistent;
            match open_bucket(&node, config, created, was_clean) {
                Err(error) if !is_of_one_bucket(&error) => return Err(error),
                // Temporary errors are retried together with other missing effects.
                Err(Error::Store(error)) if error.is_temporary() => {}
                Err(error) => node.damaged.add(config, &error),
                Ok(()) => {}
            }
        }
        node.logins.start(&(Arc::clone(&node.platform) as Arc<dyn BucketEnv>));
        // Stores that the previous process could not remove.
        if let Err(error) = apply_pending_effects(&node, &rows) {
            tracing::warn!("cannot apply an agreed change, retrying: {error}");
            schedule_retry(&node);
        }
        Ok(node)
    }

    /// Returns the event log.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Returns the log of slow operations.
    pub fn slow_log(&self) -> &SlowLog {
        &self.slow_log
    }

    /// Adds an event to the event log.
    pub fn log_event(&self, kind: EventKind, attributes: serde_json::Value) {
        let unix_ms = self.now().unix_ns / 1_000_000;
        self.journal.add(kind, attributes, unix_ms, self.event_seed());
    }

    /// Returns a seed that differs for each node and each start.
    fn event_seed(&self) -> u128 {
        let uuid = u128::from_str_radix(&self.uuid(), 16).unwrap_or_default();
        uuid ^ (u128::from(self.start) << 64)
    }

    /// Adds a refused login to the event log.
    pub fn log_refused_login(&self, attributes: serde_json::Value) {
        let unix_ms = self.now().unix_ns / 1_000_000;
        let seed = self.event_seed();
        self.journal.add_counted(journal::LOGIN_REFUSED, attributes, unix_ms, seed);
    }

    /// Returns the agreed state.
    pub fn cluster(&self) -> Arc<Cluster> {
        Arc::clone(&self.cluster.read())
    }

    /// Returns the node's ID in the cluster.
    pub fn id(&self) -> NodeId {
        self.identity.read().id
    }

    /// Returns 32 hexadecimal digits that distinguish this node from earlier ones with the same ID.
    pub fn uuid(&self) -> String {
        self.identity.read().uuid.clone()
    }

    /// Returns the endpoints that the node was started with.
    pub(crate) fn own_endpoints(&self) -> &Endpoints {
        &self.own
    }

    /// Returns the node's endpoints for clients.
    pub fn endpoints(&self) -> Endpoints {
        let agreed =
            self.cluster().nodes.get(&self.id()).and_then(|node| node.endpoints.host.clone());
        Endpoints { host: agreed.or_else(|| self.own.host.clone()), ..self.own.clone() }
    }

    /// Returns the node's perspective on the cluster map.
    pub fn local_node(&self) -> LocalNode {
        LocalNode {
            id: self.id(),
            endpoints: self.endpoints(),
            services: self.service_table.clone(),
        }
    }

    /// Returns the cluster map of a bucket, or the global one, as text; `None` if there is no such bucket.
    pub fn map(&self, bucket: Option<&str>) -> Option<Arc<str>> {
        self.maps.lock().get(&self.cluster(), self.local_node(), bucket)
    }

    /// Returns the cluster map of a bucket as text, for a client that sent a request to the wrong node; `None` if there
    /// is no such bucket, or if this node is not in the map.
    pub fn not_my_vbucket_map(&self, bucket: Option<&str>) -> Option<Arc<str>> {
        self.maps.lock().not_my_vbucket_map(&self.cluster(), self.local_node(), bucket)
    }

    /// Returns the change that announces this node's new endpoints, if the agreed state contains different ones.
    pub fn moved(&self) -> Option<Change> {
        let (id, endpoints) = (self.id(), self.endpoints());
        let known = self.cluster().nodes.get(&id).map(|node| node.endpoints.clone());
        known
            .filter(|known| *known != endpoints)
            .map(|_| Change::Nodes(NodeChange::MoveNode { id, endpoints }))
    }

    /// Delivers the one-way messages of other nodes to `handler` from now on.
    pub fn listen(&self, handler: Arc<dyn PeerMessageHandler>) {
        *self.handler.write() = Some(handler);
    }

    /// Receives a message of another node. An empty message only shows that the node is alive.
    pub fn receive(&self, from: NodeId, message: &[u8]) {
        self.last_contact.lock().insert(from, self.now().monotonic_ns);
        let handler = if message.is_empty() { None } else { self.handler.read().clone() };
        if let Some(handler) = handler {
            handler.receive(from, message);
        }
    }

    /// Returns the time since the last message of another node, in nanoseconds; `None` if there was none.
    pub fn silence_ns(&self, of: NodeId) -> Option<u64> {
        let last_contact = self.last_contact.lock().get(&of).copied();
        last_contact.map(|last_contact| self.now().monotonic_ns.saturating_sub(last_contact))
    }

    /// Returns the users.
    pub fn users(&self) -> parking_lot::RwLockReadGuard<'_, Users> {
        self.users.read()
    }

    /// Returns the service that hashes passwords and counts failed logins.
    pub fn logins(&self) -> &Logins {
        &self.logins
    }

    /// Returns the policy for new passwords.
    pub fn password_policy(&self) -> PasswordPolicy {
        self.password_policy.read().clone()
    }

    /// Returns a number that grows with every change of a user, from 1. Rights that were looked up at another version
    /// may be outdated.
    pub fn users_version(&self) -> u64 {
        self.users_version.load(Ordering::Acquire)
    }

    /// Returns the memory limit of the node, and the usage of its parts.
    pub fn memory(&self) -> &NodeMemory {
        &self.memory
    }

    /// Divides the memory that the quotas of `cluster` leave among requests and plugins.
    pub(crate) fn account_for_quotas(&self, cluster: &Cluster) {
        let quotas = cluster.buckets.values().map(|bucket| bucket.settings.ram_quota_mb << 20);
        self.memory.set_quotas(quotas.sum());
    }

    /// Starts to orchestrate the copies of vBuckets together with the other nodes.
    pub fn orchestrate(self: &Arc<Node>) {
        let orchestration = self.orchestration.get_or_init(|| Orchestration::new(self));
        *self.fenced.write() = Fenced::default();
        // The stored state may be outdated: the node serves no requests before the leader confirms it.
        orchestration.renew(self);
        self.listen(Arc::clone(orchestration) as _);
        self.platform.spawn(Box::new(HeartbeatTask::new(Arc::clone(orchestration))));
        self.platform.spawn(Box::new(FailoverTask::new(Arc::clone(orchestration))));
        // In a cluster without leases every quorum contains this node, so it need not wait for a fence.
        self.follow();
    }

    /// Returns the folder for a service's own files, if the node stores files.
    pub fn folder(&self, service: &str) -> Option<std::path::PathBuf> {
        self.platform.folder(service)
    }

    /// Runs a task of a service until it is done.
    pub fn spawn(&self, task: Box<dyn nacre_bucket::Task>) {
        self.platform.spawn(task);
    }

    /// Returns the service of type `S`; `None` if the node was started without it.
    pub fn service<S: Service>(&self) -> Option<&S> {
        let mut services = self.services.iter();
        services.find_map(|service| (&**service as &dyn Any).downcast_ref::<S>())
    }

    /// Starts the tasks of all services.
    pub fn start_services(self: &Arc<Node>) {
        self.services.iter().for_each(|service| service.start(self));
    }

    /// Returns true if every service has taken over the vBuckets that the node serves, and has released the others.
    pub(crate) fn has_settled(self: &Arc<Node>) -> bool {
        self.services.iter().all(|service| service.has_settled(self))
    }

    /// Returns the services of the node as data.
    pub fn service_table(&self) -> &ServiceTable {
        &self.service_table
    }

    /// Returns the services of the node, in the order in which they were registered.
    pub fn services(&self) -> &[Arc<dyn Service>] {
        &self.services
    }

    /// Allows functions and plugins on this node to reach more addresses than the cluster's settings allow. Only the
    /// first call has an effect.
    pub fn allow_outgoing(&self, rules: Vec<OutgoingRule>) {
        // A node starts with one list.
        let _ = self.outgoing_allowed.set(rules);
    }

    /// Returns true if the node is stopping.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Returns the bucket `name` if this node serves it.
    pub fn bucket(&self, name: &str) -> Option<Arc<Bucket>> {
        self.buckets.read().get(name).cloned()
    }

    /// Returns the buckets that this node serves.
    pub fn buckets(&self) -> Vec<Arc<Bucket>> {
        self.buckets.read().values().cloned().collect()
    }

    /// Returns the revision of the cluster map.
    pub fn map_rev(&self) -> i64 {
        self.map_rev.load(Ordering::Acquire) as i64
    }

    /// Waits for the next change of the cluster map.
    pub fn map_changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.map_changed.notified()
    }

    /// Waits for the next change of a user or a group.
    pub fn users_changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.users_changed.notified()
    }

    /// Wakes `watcher` at each change of the cluster map, until it is dropped.
    pub fn watch_map(&self, watcher: &Arc<dyn Waiter>) {
        self.map_watchers.add(watcher);
    }

    /// Returns the time of both clocks.
    pub fn now(&self) -> nacre_types::Now {
        self.platform.now()
    }

    /// Opens the space in which a service keeps its own rows on this node. Other nodes do not see them.
    ///
    /// # Errors
    /// The error of the disk.
    pub fn service_space(&self, service: &str) -> Result<Arc<dyn Space>, Error> {
        Ok(self.platform.spaces().open(&format!("service-{service}"))?)
    }

    /// Returns an unpredictable number.
    pub fn random(&self) -> u64 {
        self.platform.random()
    }

    /// Returns a new identity: 32 hexadecimal digits.
    pub fn new_uuid(&self) -> String {
        random_hex(&*self.platform)
    }

    /// Returns a new ID for a transaction, grouped like a UUID.
    pub fn new_transaction_id(&self) -> String {
        let digits = self.new_uuid();
        let groups =
            [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
        groups.join("-")
    }

    /// Returns a new cluster without buckets and users that contains only this node.
    pub fn new_cluster(&self) -> (NodeId, String, Cluster) {
        let identity = Identity { id: NodeId(1), uuid: self.new_uuid() };
        let cluster =
            found(&*self.platform, None, &identity, &self.own, &self.service_table.first_names());
        (identity.id, identity.uuid, cluster)
    }

    /// Returns a salt for a new password.
    pub fn new_salt(&self) -> [u8; nacre_auth::SALT_BYTES] {
        random_bytes(&*self.platform)
    }

    /// Returns random bytes for secrets.
    pub fn random_bytes<const N: usize>(&self) -> [u8; N] {
        random_bytes(&*self.platform)
    }

    /// Returns a new secret for a cluster.
    pub fn new_secret(&self) -> Secret {
        new_secret(&*self.platform)
    }

    /// Ends all tasks after they have written their data. The embedder waits for its tasks, then calls
    /// [`Node::mark_clean`].
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.map_watchers.wake();
        self.logins.close();
        self.services.iter().for_each(|service| service.stop());
        for bucket in self.buckets.read().values() {
            bucket.close();
        }
    }

    /// Records that everything was written, so that the next start need not assume lost writes.
    ///
    /// # Errors
    /// The error of the disk, [`Error::Unpersisted`] when some mutations were not written, or [`Error::InDoubt`] when
    /// the losses of the previous process are still unknown.
    pub fn mark_clean(&self) -> Result<(), Error> {
        for bucket in self.buckets.read().values() {
            if !bucket.in_doubt.read().is_empty() {
                return Err(Error::InDoubt { bucket: bucket.name.clone() });
            }
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

/// Returns the identity of the node and its last agreed state, with the rows to store. A new node creates a cluster of
/// its own.
fn begin(
    platform: &dyn Platform,
    rows: &BTreeMap<Vec<u8>, Vec<u8>>,
    endpoints: &Endpoints,
    services: &BTreeSet<ServiceName>,
) -> Result<(Identity, Cluster, Vec<Write>), Error> {
    let mut writes = Vec::new();
    let identity = match rows.get(row::IDENTITY) {
        Some(stored) => serde_json::from_slice(stored).map_err(|_| Error::Settings("identity"))?,
        None => {
            let identity = Identity { id: NodeId(1), uuid: random_hex(platform) };
            writes.push(agreement::write(row::IDENTITY, &identity));
            identity
        }
    };
    let known: Option<Cluster> = match rows.get(row::CLUSTER) {
        Some(stored) => {
            Some(serde_json::from_slice(stored).map_err(|_| Error::Settings("cluster"))?)
        }
        None => None,
    };
    let cluster = match known {
        Some(cluster) if !cluster.secret.is_empty() => cluster,
        known => {
            let cluster = found(platform, known, &identity, endpoints, services);
            writes.push(agreement::write(row::CLUSTER, &cluster));
            cluster
        }
    };
    Ok((identity, cluster, writes))
}

/// Returns a cluster of one node. `known` is a state that was stored before clusters recorded their nodes.
fn found(
    platform: &dyn Platform,
    known: Option<Cluster>,
    identity: &Identity,
    endpoints: &Endpoints,
    services: &BTreeSet<ServiceName>,
) -> Cluster {
    let mut cluster = known.unwrap_or_else(|| Cluster::new(random_hex(platform)));
    cluster.secret = new_secret(platform);
    let member = Member {
        uuid: identity.uuid.clone(),
        endpoints: endpoints.clone(),
        group: GROUP_DEFAULT.to_owned(),
        services: services.clone(),
        membership: Membership::Active,
        alternate: None,
    };
    let first = Change::Nodes(NodeChange::PutNode { id: identity.id, member });
    cluster.apply(&first).expect("a cluster without nodes takes any");
    cluster
}

/// Reads a row; returns the default if there is none.
fn stored<T: DeserializeOwned + Default>(
    rows: &BTreeMap<Vec<u8>, Vec<u8>>,
    row: &[u8],
    name: &'static str,
) -> Result<T, Error> {
    let Some(stored) = rows.get(row) else { return Ok(T::default()) };
    serde_json::from_slice(stored).map_err(|_| Error::Settings(name))
}

fn random_hex(platform: &dyn Platform) -> String {
    format!("{:016x}{:016x}", platform.random(), platform.random())
}

fn new_secret(platform: &dyn Platform) -> Secret {
    Secret::new(random_bytes(platform))
}

pub(crate) fn random_bytes<const N: usize>(platform: &dyn Platform) -> [u8; N] {
    let mut bytes = [0; N];
    for chunk in bytes.chunks_mut(8) {
        chunk.copy_from_slice(&platform.random().to_be_bytes()[..chunk.len()]);
    }
    bytes
}
