//! The environment of buckets and sessions under test: a clock moved by the test, numbers from a counter, in-memory stores,
//! and tasks stepped by hand.

pub use crate::connection::*;
pub use crate::host::Host as Node;

use crate::host::Host;
use nacre_auth::{Role, User};
use nacre_bucket::{Bucket, BucketEnv, Home, Next, Task};
use nacre_cluster::{
    BucketChange, BucketKind, BucketSettings, Change, Cluster, Endpoints, GROUP_DEFAULT, Member,
    Membership, NodeChange, Ports, ServiceName,
};
use nacre_store::{Error, FaultStore, MemoryStore, Store};
use nacre_types::{Cas, NodeId, Now, Vbid};
use nacre_vbucket::{Command, Condition, Refusal, Reply};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// The node of the buckets.
pub const NODE: NodeId = NodeId(1);

pub struct World {
    now: Mutex<Now>,
    chance: AtomicU64,
    /// Keyed by the bucket's UUID and the number of flushes.
    stores: Mutex<BTreeMap<String, Arc<FaultStore<MemoryStore>>>>,
    /// Each task, and whether it requests another step without being woken.
    tasks: Mutex<Vec<(Box<dyn Task>, bool)>>,
    /// The cluster state when the last host ended.
    pub cluster: Mutex<Option<Cluster>>,
}

impl World {
    pub fn new() -> Arc<World> {
        Arc::new(World {
            now: Mutex::new(Now { unix_ns: 1_700_000_000_000_000_000, monotonic_ns: 1 }),
            chance: AtomicU64::new(1),
            stores: Mutex::default(),
            tasks: Mutex::default(),
            cluster: Mutex::default(),
        })
    }

    /// Opens a host with an administrator and the bucket `b`.
    pub fn node(self: &Arc<World>) -> Arc<Host> {
        self.node_with(BucketSettings::default())
    }

    /// Opens a host whose bucket `b` has these settings.
    pub fn node_with(self: &Arc<World>, settings: BucketSettings) -> Arc<Host> {
        let host = Host::open(self);
        let admin =
            User::new("admin", "password", vec![Role::admin()], [2; nacre_auth::SALT_BYTES]);
        host.put_user(admin).unwrap();
        if !host.cluster().buckets.contains_key("b") {
            let settings = BucketSettings { vbucket_count: 4, flush_enabled: true, ..settings };
            let (name, uuid) = ("b".to_owned(), format!("{:032}", 2));
            host.change(&Change::Buckets(BucketChange::CreateBucket { name, uuid, settings }))
                .unwrap();
        }
        host
    }

    /// Opens a bucket with its store in this world.
    pub fn open(
        self: &Arc<World>,
        config: &nacre_cluster::Bucket,
        is_clean: bool,
    ) -> Result<Arc<Bucket>, Error> {
        let env = Arc::clone(self) as Arc<dyn BucketEnv>;
        let name = format!("{}-{}", config.uuid, config.flushes);
        let store = (config.settings.kind == BucketKind::Persistent).then(|| {
            let mut stores = self.stores.lock().unwrap();
            let store = stores.entry(name);
            let store = store.or_insert_with(|| Arc::new(FaultStore::new(MemoryStore::default())));
            Arc::clone(store) as Arc<dyn Store>
        });
        Bucket::open(config, &env, store, is_clean, Home::alone(NODE))
    }

    /// Returns the store of the bucket that was opened last.
    pub fn store(&self) -> Arc<FaultStore<MemoryStore>> {
        Arc::clone(self.stores.lock().unwrap().values().last().unwrap())
    }

    /// Steps new and woken tasks until all wait.
    pub fn run_tasks(&self) {
        loop {
            let mut tasks = std::mem::take(&mut *self.tasks.lock().unwrap());
            let mut has_worked = false;
            tasks.retain_mut(|(task, is_ready)| {
                if !std::mem::take(is_ready) && !task.signal().take() {
                    return true;
                }
                has_worked = true;
                loop {
                    match task.step() {
                        Next::Again => {}
                        Next::Wait | Next::After(_) => break true,
                        Next::Done => break false,
                    }
                }
            });
            self.tasks.lock().unwrap().append(&mut tasks);
            if !has_worked {
                return;
            }
        }
    }

    /// Returns the number of tasks that have not ended.
    pub fn task_count(&self) -> usize {
        self.tasks.lock().unwrap().len()
    }

    /// Drops the tasks without another step, as a killed process would.
    pub fn crash(&self) {
        self.tasks.lock().unwrap().clear();
    }

    pub fn wait(&self, seconds: u64) {
        self.pass(seconds * 1000);
    }

    /// Advances the clock, and lets each task that waits for a time take a step.
    pub fn pass(&self, milliseconds: u64) {
        let mut now = self.now.lock().unwrap();
        now.unix_ns += milliseconds * 1_000_000;
        now.monotonic_ns += milliseconds * 1_000_000;
        self.tasks.lock().unwrap().iter_mut().for_each(|(_, is_ready)| *is_ready = true);
    }
}

impl BucketEnv for World {
    fn now(&self) -> Now {
        *self.now.lock().unwrap()
    }

    fn random(&self) -> u64 {
        self.chance.fetch_add(1, Ordering::Relaxed) << 32
    }

    fn spawn(&self, task: Box<dyn Task>) {
        self.tasks.lock().unwrap().push((task, true));
    }
}

/// Returns a cluster of one node without buckets.
pub fn cluster() -> Cluster {
    let mut cluster = Cluster::new("c".to_owned());
    let plain = Ports::from([("mgmt", 1), ("views", 2), ("query", 3), ("eventing", 4), ("kv", 5)]);
    let member = Member {
        uuid: format!("{:032}", 1),
        endpoints: Endpoints { host: None, plain, tls: None, fingerprint: None },
        group: GROUP_DEFAULT.into(),
        services: ServiceName::FIRST.into(),
        membership: Membership::Active,
        alternate: None,
    };
    cluster.apply(&Change::Nodes(NodeChange::PutNode { id: NODE, member })).unwrap();
    cluster
}

/// Returns the bucket `b` with four vBuckets in a cluster of one node.
pub fn config() -> nacre_cluster::Bucket {
    let mut cluster = cluster();
    let settings = BucketSettings { vbucket_count: 4, ..BucketSettings::default() };
    let (name, uuid) = ("b".to_owned(), format!("{:032}", 2));
    cluster.apply(&Change::Buckets(BucketChange::CreateBucket { name, uuid, settings })).unwrap();
    cluster.buckets["b"].clone()
}

fn key(name: &str) -> Vec<u8> {
    [&[0], name.as_bytes()].concat()
}

/// Writes a document of the default collection.
pub fn set(world: &World, bucket: &Bucket, vbid: u16, name: &str) -> Result<Reply, Refusal> {
    let command = Command::Store {
        condition: Condition::Always,
        cas: Cas::ANY,
        flags: 0,
        expiry: 0,
        keep_expiry: false,
        body: b"1",
    };
    let (reply, _, _) = bucket.apply(Vbid(vbid), &key(name), &command, world.now()).unwrap();
    bucket.wake_listeners();
    reply
}

/// Reads a document of the default collection.
pub fn get(world: &World, bucket: &Bucket, vbid: u16, name: &str) -> Result<Reply, Refusal> {
    bucket.apply(Vbid(vbid), &key(name), &Command::Get, world.now()).unwrap().0
}
