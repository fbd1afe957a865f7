//! The world of one node: clocks that may be wrong, a disk that may fail, and the node's requests to other nodes,
//! queued until the simulation takes them.

use crate::Chance;
use crate::simulation::Documents;
use nacre_bucket::{BucketEnv, Task, Waiter};
use nacre_cluster::{Bucket, Endpoints, Ports};
use nacre_node::{Link, Outgoing, PeerError, Platform, ReplyCallback};
use nacre_sandbox::{Capsule, Http, NoHttp, Plugin};
use nacre_store::{Error, Fault, FaultStore, MemorySpaces, MemoryStore, Spaces, Store, Which};
use nacre_types::{Cas, CollectionId, DocKey, Kind, NodeId, Now, Seqno, Vbid};
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// Start of the wall clocks.
const EPOCH_UNIX_NS: u64 = 1_700_000_000_000_000_000;

/// The disk of a node, which outlives its processes.
#[derive(Default)]
pub struct Disk {
    spaces: MemorySpaces,
    stores: Mutex<BTreeMap<String, Arc<FaultStore<MemoryStore>>>>,
}

impl Disk {
    /// Returns the spaces of the node's settings.
    ///
    /// # Panics
    /// Never: they are in memory.
    pub fn spaces(&self) -> &MemorySpaces {
        &self.spaces
    }

    /// Sets the fault that commits meet from now on.
    pub fn inject(&self, fault: Option<Fault>) {
        self.stores.lock().values().for_each(|store| store.inject(fault));
    }

    /// Returns the stored documents of a vBucket by key: the CAS, and true unless it is a tombstone. Excludes aborted durable
    /// writes, which the next commit erases.
    ///
    /// # Panics
    /// Panics if the disk cannot be read.
    pub(crate) fn documents(&self, number: Vbid) -> Documents {
        let stores = self.stores.lock();
        let scans = stores.values().map(|store| store.scan(number, Seqno::ZERO, Which::Current));
        let documents = scans.flat_map(|scan| scan.expect("nothing is broken").documents);
        documents
            .map(|document| document.expect("nothing is broken"))
            .filter(|document| document.meta.kind != Kind::Aborted)
            .map(|document| (document.key().to_vec(), (document.meta.cas.0, document.is_alive())))
            .collect()
    }

    /// Returns true if this or a later version of a key is stored, committed or prepared.
    pub(crate) fn has(&self, number: Vbid, names: &Names, cas: Cas) -> bool {
        let is_in = |store: &FaultStore<MemoryStore>, key: &DocKey| {
            let found = store.inner().meta(number, key.prefixed());
            found.is_some_and(|version| version.cas >= cas)
        };
        let Names { committed, prepared } = names;
        self.stores.lock().values().any(|store| is_in(store, committed) || is_in(store, prepared))
    }
}

/// The keys under which the versions of a document are stored.
pub(crate) struct Names {
    pub committed: DocKey,
    pub prepared: DocKey,
}

impl Names {
    /// Returns the keys of a document of the default collection.
    pub fn new(key: &str) -> Names {
        let committed = DocKey::new(CollectionId::DEFAULT, key.as_bytes());
        let prepared = DocKey::new(CollectionId::PREPARED, committed.prefixed());
        Names { committed, prepared }
    }
}

/// The deviation of a node's clocks from true time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Value of the monotonic clock when a process starts.
    pub origin_ns: u64,
    /// Nanoseconds of its clocks per million nanoseconds of true time.
    pub rate_ppm: u64,
    /// Offset of the wall clock in nanoseconds.
    pub skew_ns: i64,
}

impl Clock {
    /// Returns the clocks at `true_ns`, for a process that was started at `begun_ns`.
    fn read(self, true_ns: u64, begun_ns: u64) -> Now {
        let passed = |ns: u64| ns / 1000 * self.rate_ppm / 1000;
        Now {
            unix_ns: (EPOCH_UNIX_NS + passed(true_ns)).saturating_add_signed(self.skew_ns),
            monotonic_ns: self.origin_ns + passed(true_ns - begun_ns),
        }
    }
}

/// The requests of a node since they were last taken.
#[derive(Default)]
pub struct Wishes {
    /// Tasks to run.
    pub tasks: Vec<Box<dyn Task>>,
    /// Connections to the key-value ports of other nodes, with the port.
    pub links: Vec<(u16, Box<dyn Link>)>,
    /// Messages to other nodes.
    pub sent: Vec<(NodeId, Vec<u8>)>,
    /// Numbers of the connections that were woken.
    pub woken: Vec<u64>,
}

/// Requests, with a flag because they are checked far more often than made.
#[derive(Default)]
struct Wanted {
    any: AtomicBool,
    wishes: Mutex<Wishes>,
}

impl Wanted {
    fn add(&self) -> MutexGuard<'_, Wishes> {
        let wishes = self.wishes.lock();
        self.any.store(true, Ordering::Release);
        wishes
    }

    fn take(&self) -> Option<Wishes> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let mut wishes = self.wishes.lock();
        self.any.store(false, Ordering::Release);
        Some(std::mem::take(&mut wishes))
    }
}

/// The world of one process of a node.
pub struct World {
    clock: Clock,
    /// True time of its start.
    begun_ns: u64,
    true_ns: AtomicU64,
    /// Total step of the wall clock.
    stepped_ns: AtomicI64,
    /// Current values of the clocks, which are read far more often than set.
    unix_ns: AtomicU64,
    monotonic_ns: AtomicU64,
    chance: Mutex<Chance>,
    disk: Arc<Disk>,
    wishes: Arc<Wanted>,
    index: usize,
}

impl World {
    /// Creates the world of node `index` with the disk of earlier processes. The process starts at `begun_ns`.
    pub fn new(
        index: usize,
        disk: &Arc<Disk>,
        clock: Clock,
        begun_ns: u64,
        chance: Chance,
    ) -> Arc<World> {
        let world = World {
            clock,
            begun_ns,
            true_ns: AtomicU64::new(begun_ns),
            stepped_ns: AtomicI64::default(),
            unix_ns: AtomicU64::default(),
            monotonic_ns: AtomicU64::default(),
            chance: Mutex::new(chance),
            disk: Arc::clone(disk),
            wishes: Arc::default(),
            index,
        };
        world.look_at_the_clock();
        Arc::new(world)
    }

    /// Sets the time to `true_ns`.
    pub fn set_time(&self, true_ns: u64) {
        self.true_ns.store(true_ns, Ordering::Relaxed);
        self.look_at_the_clock();
    }

    fn look_at_the_clock(&self) {
        let skew_ns = self.clock.skew_ns + self.stepped_ns.load(Ordering::Relaxed);
        let true_ns = self.true_ns.load(Ordering::Relaxed);
        let now = Clock { skew_ns, ..self.clock }.read(true_ns, self.begun_ns);
        self.unix_ns.store(now.unix_ns, Ordering::Relaxed);
        self.monotonic_ns.store(now.monotonic_ns, Ordering::Relaxed);
    }

    /// Steps the wall clock.
    pub fn step_wall_clock(&self, by_ns: i64) {
        self.stepped_ns.fetch_add(by_ns, Ordering::Relaxed);
        self.look_at_the_clock();
    }

    /// Takes the requests of the node since the last call, if there are any.
    pub fn take_wishes(&self) -> Option<Wishes> {
        self.wishes.take()
    }

    /// Returns a waiter that wakes the connection `number`.
    pub fn waiter(&self, number: u64) -> Arc<dyn Waiter> {
        Arc::new(Wake { wishes: Arc::clone(&self.wishes), number })
    }

    /// Returns the addresses of a node. Its key-value port is its index.
    pub fn endpoints(index: usize) -> Endpoints {
        let plain = Ports::from([
            ("mgmt", 1),
            ("views", 2),
            ("query", 5),
            ("eventing", 4),
            ("kv", index as u16),
        ]);
        Endpoints { host: None, plain, tls: None, fingerprint: None }
    }
}

struct Wake {
    wishes: Arc<Wanted>,
    number: u64,
}

impl Waiter for Wake {
    fn wake(&self) {
        let woken = &mut self.wishes.add().woken;
        if !woken.contains(&self.number) {
            woken.push(self.number);
        }
    }
}

impl BucketEnv for World {
    fn now(&self) -> Now {
        Now {
            unix_ns: self.unix_ns.load(Ordering::Relaxed),
            monotonic_ns: self.monotonic_ns.load(Ordering::Relaxed),
        }
    }

    fn random(&self) -> u64 {
        self.chance.lock().number()
    }

    fn spawn(&self, task: Box<dyn Task>) {
        self.wishes.add().tasks.push(task);
    }
}

impl Platform for World {
    fn open_store(&self, bucket: &Bucket, create: bool) -> Result<Arc<dyn Store>, Error> {
        let name = format!("{}-{}", bucket.uuid, bucket.flushes);
        let mut stores = self.disk.stores.lock();
        // A process may have ended between creating a store and recording it.
        assert!(create || stores.contains_key(&name), "node {} has lost a store", self.index);
        let store =
            stores.entry(name).or_insert_with(|| Arc::new(FaultStore::new(MemoryStore::default())));
        Ok(Arc::clone(store) as Arc<dyn Store>)
    }

    fn remove_store(&self, bucket: &Bucket) -> Result<(), Error> {
        self.disk.stores.lock().remove(&format!("{}-{}", bucket.uuid, bucket.flushes));
        Ok(())
    }

    fn spaces(&self) -> &dyn Spaces {
        &self.disk.spaces
    }

    fn shipped_plugin(&self, _: &str) -> Result<&'static [u8], String> {
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
        Err("there are no packages in this world".into())
    }

    fn link(&self, peer: &Endpoints, link: Box<dyn Link>) {
        self.wishes.add().links.push((peer.plain.kv(), link));
    }

    fn ask(&self, _: NodeId, _: Vec<u8>, _: Duration, on_reply: ReplyCallback) {
        on_reply(Err(PeerError::NotAsked("there are no questions in this world".into())));
    }

    fn send(&self, to: NodeId, message: Vec<u8>) {
        self.wishes.add().sent.push((to, message));
    }
}
