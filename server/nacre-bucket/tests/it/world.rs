//! The environment of a bucket under test: a clock that the test moves, numbers from a counter, a store in memory.

use nacre_bucket::{Bucket, BucketEnv, Home, Next, Task};
use nacre_cluster::{
    BucketSettings, Change, Cluster, Endpoints, GROUP_DEFAULT, Member, Membership, Ports, Service,
};
use nacre_store::{Error, FaultStore, MemoryStore, Store};
use nacre_types::{Cas, NodeId, Now, Vbid};
use nacre_vbucket::{Command, Condition, Refusal, Reply};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// The node that the buckets are on.
pub const NODE: NodeId = NodeId(1);

pub struct World {
    now: Mutex<Now>,
    chance: AtomicU64,
    pub store: Arc<FaultStore<MemoryStore>>,
    /// Each with whether it wants another step without being woken.
    tasks: Mutex<Vec<(Box<dyn Task>, bool)>>,
}

impl World {
    pub fn new() -> Arc<World> {
        Arc::new(World {
            now: Mutex::new(Now { unix_ns: 1_700_000_000_000_000_000, monotonic_ns: 1 }),
            chance: AtomicU64::new(1),
            store: Arc::new(FaultStore::new(MemoryStore::default())),
            tasks: Mutex::default(),
        })
    }

    /// Opens a bucket over the store of this world.
    pub fn open(
        self: &Arc<World>,
        config: &nacre_cluster::Bucket,
        is_clean: bool,
    ) -> Result<Arc<Bucket>, Error> {
        let (env, store) = (Arc::clone(self) as Arc<dyn BucketEnv>, Arc::clone(&self.store));
        Bucket::open(config, &env, Some(store as Arc<dyn Store>), is_clean, Home::alone(NODE))
    }

    /// Steps the tasks that are new or were woken, until all wait.
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

    /// Ends the tasks without another step, as the end of a process does.
    pub fn crash(&self) {
        self.tasks.lock().unwrap().clear();
    }

    /// Moves the clock, and lets every task that waits for a time take a step.
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

/// The bucket `b` of four vBuckets in a cluster of one node.
pub fn config() -> nacre_cluster::Bucket {
    let mut cluster = Cluster::new("c".to_owned());
    let plain = Ports { mgmt: 1, views: 2, query: 3, eventing: 4, kv: 5 };
    let member = Member {
        uuid: format!("{:032}", 1),
        endpoints: Endpoints { host: None, plain, tls: None, fingerprint: None },
        group: GROUP_DEFAULT.into(),
        services: Service::ALL.into(),
        membership: Membership::Active,
        alternate: None,
    };
    cluster.apply(&Change::PutNode { id: NODE, member }).unwrap();
    let settings = BucketSettings { vbucket_count: 4, ..BucketSettings::default() };
    let (name, uuid) = ("b".to_owned(), format!("{:032}", 2));
    cluster.apply(&Change::CreateBucket { name, uuid, settings }).unwrap();
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
