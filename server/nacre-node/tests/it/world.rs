//! The environment of a node under test: a clock that the test sets, a counter for random numbers, stores in memory,
//! and tasks that the test steps.

pub use crate::connection::*;
pub use nacre_node::Node;

use nacre_auth::{Role, User};
use nacre_bucket::kv::Peer;
use nacre_bucket::{BucketEnv, Next, Task};
use nacre_changes_service::ChangesService;
use nacre_cluster::{Bucket, BucketChange, BucketSettings, Change};
use nacre_cluster::{Endpoints, Ports};
use nacre_node::scatter_gather::NodeService;
use nacre_node::service::Service;
use nacre_node::{Link, Outgoing, PeerError, Platform, ReplyCallback};
use nacre_plugins_service::{DeployedService, Plugins};
use nacre_query_service::Queries;
use nacre_sandbox::{Capsule, Http, NoHttp, Plugin};
use nacre_store::{Error, FaultStore, MemorySpaces, MemoryStore, Space, Spaces, Store};
use nacre_types::{NodeId, Now};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub struct World {
    now: Mutex<Now>,
    chance: AtomicU64,
    spaces: MemorySpaces,
    stores: Mutex<BTreeMap<String, Arc<FaultStore<MemoryStore>>>>,
    /// True if stores can be neither created nor removed.
    pub is_full: AtomicBool,
    /// Each task, with true if it wants another step without being woken.
    tasks: Mutex<Vec<(Box<dyn Task>, bool)>>,
    /// The name of the tasks whose current step does not end.
    held_up: Mutex<Option<&'static str>>,
    /// Requested connections to other nodes, each with the port of the node.
    pub links: Mutex<Vec<(u16, Box<dyn Link>)>>,
    /// Messages to other nodes.
    pub sent: Mutex<Vec<(NodeId, Vec<u8>)>>,
    /// Questions to other nodes, which the test answers; with `None`, no other node can be reached.
    pub asked: Mutex<Option<Vec<Asked>>>,
    /// The key-value port of the node in this world.
    port: u16,
}

/// A question on its way to a node.
pub type Asked = (NodeId, Vec<u8>, ReplyCallback);

impl World {
    pub fn new() -> Arc<World> {
        World::at(3)
    }

    /// Creates a world whose node has this key-value port.
    pub fn at(port: u16) -> Arc<World> {
        Arc::new(World {
            now: Mutex::new(Now { unix_ns: 1_700_000_000_000_000_000, monotonic_ns: 1 }),
            chance: AtomicU64::new(1 + (u64::from(port) << 20)),
            spaces: MemorySpaces::default(),
            stores: Mutex::default(),
            is_full: AtomicBool::new(false),
            tasks: Mutex::default(),
            held_up: Mutex::default(),
            links: Mutex::default(),
            sent: Mutex::default(),
            asked: Mutex::default(),
            port,
        })
    }

    /// Starts a node with an administrator and the bucket `b`.
    pub fn node(self: &Arc<World>) -> Arc<Node> {
        self.node_with(BucketSettings::default())
    }

    /// Like [`World::node`], with other settings of `b`.
    pub fn node_with(self: &Arc<World>, settings: BucketSettings) -> Arc<Node> {
        let node = self.bare_node();
        if node.bucket("b").is_none() {
            node.put_user(User::new("admin", "password", vec![Role::admin()], node.new_salt()))
                .unwrap();
            let settings = BucketSettings { vbucket_count: 4, flush_enabled: true, ..settings };
            let change = Change::Buckets(BucketChange::CreateBucket {
                name: "b".into(),
                uuid: node.new_uuid(),
                settings,
            });
            node.change(&change).unwrap();
        }
        node
    }

    /// Starts a node from its stored state.
    pub fn bare_node(self: &Arc<World>) -> Arc<Node> {
        Node::open_with(Arc::clone(self) as Arc<_>, self.endpoints(), services()).unwrap()
    }

    /// Returns the endpoints of this world's node.
    pub fn endpoints(&self) -> Endpoints {
        let plain = Ports::from([
            ("mgmt", 1),
            ("views", 2),
            ("query", 5),
            ("eventing", 4),
            ("kv", self.port),
        ]);
        Endpoints { host: None, plain, tls: None, fingerprint: None }
    }

    /// Returns the settings of the node, for writes before it is opened.
    pub fn settings(&self) -> Arc<dyn Space> {
        self.spaces.open("node").unwrap()
    }

    /// Blocks the tasks of this name in one step from now on.
    pub fn hold_up(&self, name: &'static str) {
        *self.held_up.lock().unwrap() = Some(name);
    }

    /// Unblocks all tasks.
    pub fn unblock(&self) {
        *self.held_up.lock().unwrap() = None;
    }

    /// Steps the first task of that name once.
    pub fn step_once(&self, name: &str) {
        let mut tasks = self.tasks.lock().unwrap();
        let found = tasks.iter_mut().find(|(task, _)| task.name() == name);
        let (task, ready) = found.expect("there is such a task");
        *ready |= task.step() == Next::Again;
    }

    /// Steps new and woken tasks until all wait.
    pub fn run_tasks(&self) {
        let held_up = *self.held_up.lock().unwrap();
        loop {
            let mut tasks = std::mem::take(&mut *self.tasks.lock().unwrap());
            let mut worked = false;
            tasks.retain_mut(|(task, ready)| {
                let is_held_up = held_up == Some(task.name());
                if is_held_up || !std::mem::take(ready) && !task.signal().take() {
                    return true;
                }
                worked = true;
                loop {
                    match task.step() {
                        Next::Again => {}
                        Next::Wait | Next::After(_) => break true,
                        Next::Done => break false,
                    }
                }
            });
            self.tasks.lock().unwrap().append(&mut tasks);
            if !worked {
                return;
            }
        }
    }

    /// Kills the process: its tasks end without another step.
    pub fn crash(&self) {
        self.tasks.lock().unwrap().clear();
    }

    pub fn wait(&self, seconds: u64) {
        self.pass(seconds * 1000);
    }

    pub fn pass(&self, milliseconds: u64) {
        let mut now = self.now.lock().unwrap();
        now.unix_ns += milliseconds * 1_000_000;
        now.monotonic_ns += milliseconds * 1_000_000;
        // Every task gets a step, even those that wait longer; an extra step does no harm.
        for (_, ready) in self.tasks.lock().unwrap().iter_mut() {
            *ready = true;
        }
    }

    /// Returns the number of bucket stores.
    pub fn store_count(&self) -> usize {
        self.stores.lock().unwrap().len()
    }

    fn check_room(&self) -> Result<(), Error> {
        match self.is_full.load(Ordering::Relaxed) {
            true => Err(Error::io("make room")(io::ErrorKind::StorageFull.into())),
            false => Ok(()),
        }
    }

    /// Returns the store with the last identity.
    pub fn store(&self) -> Arc<FaultStore<MemoryStore>> {
        Arc::clone(self.stores.lock().unwrap().values().last().unwrap())
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

impl Platform for World {
    fn open_store(&self, bucket: &Bucket, create: bool) -> Result<Arc<dyn Store>, Error> {
        self.check_room()?;
        let name = format!("{}-{}", bucket.uuid, bucket.flushes);
        let mut stores = self.stores.lock().unwrap();
        assert_eq!(create, !stores.contains_key(&name), "a store is created once");
        let store =
            stores.entry(name).or_insert_with(|| Arc::new(FaultStore::new(MemoryStore::default())));
        Ok(Arc::clone(store) as Arc<dyn Store>)
    }

    fn remove_store(&self, bucket: &Bucket) -> Result<(), Error> {
        self.check_room()?;
        self.stores.lock().unwrap().remove(&format!("{}-{}", bucket.uuid, bucket.flushes));
        Ok(())
    }

    fn spaces(&self) -> &dyn Spaces {
        &self.spaces
    }

    fn shipped_plugin(&self, _name: &str) -> Result<&'static [u8], String> {
        Err("there are no plugins in this world".into())
    }

    fn load_plugin(&self, _: &str, _: &str, _: &[u8]) -> Result<Plugin, String> {
        Err("there is no engine in this world".into())
    }

    fn http(&self, _: Outgoing) -> Arc<dyn Http> {
        Arc::new(NoHttp)
    }

    fn keep_capsule(&self, _: &Capsule) -> Result<String, Error> {
        unreachable!("there is no engine in this world")
    }

    fn capsules(&self, _: &str) -> Result<Vec<(String, Capsule)>, Error> {
        Ok(Vec::new())
    }

    fn fetch_package(&self, _: &str) -> Result<Vec<u8>, String> {
        Err("there is one node in this world".into())
    }

    fn link(&self, peer: &Endpoints, link: Box<dyn Link>) {
        self.links.lock().unwrap().push((peer.plain.kv(), link));
    }

    fn ask(&self, to: NodeId, question: Vec<u8>, _: Duration, on_reply: ReplyCallback) {
        match &mut *self.asked.lock().unwrap() {
            Some(asked) => asked.push((to, question, on_reply)),
            None => on_reply(Err(PeerError::NotAsked("there is one node in this world".into()))),
        }
    }

    fn send(&self, to: NodeId, message: Vec<u8>) {
        self.sent.lock().unwrap().push((to, message));
    }
}

/// Returns another node of the cluster, which has presented its key.
pub fn other_node() -> Peer {
    Peer { is_node: true, ..local() }
}

/// Returns the services of each node.
pub fn services() -> Vec<Arc<dyn Service>> {
    vec![
        Arc::new(NodeService),
        Arc::new(DeployedService::views()),
        Arc::<Queries>::default(),
        Arc::new(DeployedService::eventing()),
        Arc::new(DeployedService::index()),
        Arc::<ChangesService>::default(),
        Arc::<Plugins>::default(),
    ]
}
