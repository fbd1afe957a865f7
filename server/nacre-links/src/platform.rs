//! The real world: clocks, randomness, disks, threads, and an engine for plugins.

use crate::STACK_BYTES;
use crate::capsules;
use crate::cluster::{Peers, membership};
use crate::data_dir::{self, Reserve};
use crate::http_out::{self, HttpClient};
use crate::kv::links::Links;
use crate::process::{Priority, Process};
use crate::sealed::{self, SealedSpaces, SettingsKey};
use crate::tls::NodeKey;
use crate::vital::depend_on_this_thread;
use nacre_bucket::{BucketEnv, Next, Task};
use nacre_cluster::{Bucket, BucketSettings, Endpoints, StorageBackend};
use nacre_engine::{Engine, Hooks};
use nacre_node::{Link, Outgoing, PeerError, Platform, ReplyCallback};
use nacre_sandbox::{Capsule, Http, Plugin};
use nacre_state::StateOptions;
use nacre_store::{Error, LogOptions, LogSpaces, LogStore, OnDamage, SledStore, Spaces, Store};
use nacre_types::{NodeId, Now};
use parking_lot::Mutex;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Size of sled's own cache per bucket. The documents are in the node's memory anyway.
const STORE_CACHE_BYTES: u64 = 32 << 20;
/// Grace period for an answer, because a node that reports its own timeout answers after it.
const ASK_GRACE: Duration = Duration::from_secs(1);
/// How long tasks of a dropped bucket may still create files; each ends with its current step.
const REMOVAL_PATIENCE: Duration = Duration::from_secs(10);
const REMOVAL_PAUSE: Duration = Duration::from_millis(1);
/// The format version of a data directory. In version 1, sled kept the settings.
const FORMAT: u32 = 2;

/// Memory of this machine.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Total bytes.
    pub total_bytes: u64,
    /// Free bytes, not counting the page cache.
    pub free_bytes: u64,
}

impl Memory {
    /// Returns the memory of the machine, if the system reports it.
    pub fn of_machine() -> Option<Memory> {
        // SAFETY: all calls only return a number, which is negative when unknown.
        let numbers = [libc::_SC_PHYS_PAGES, libc::_SC_AVPHYS_PAGES, libc::_SC_PAGESIZE]
            .map(|name| u64::try_from(unsafe { libc::sysconf(name) }).ok());
        let [Some(pages), Some(free_pages), Some(page_bytes)] = numbers else { return None };
        let total_bytes = pages.checked_mul(page_bytes)?;
        Some(Memory { total_bytes, free_bytes: free_pages.checked_mul(page_bytes)? })
    }
}

/// Space of a file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disk {
    /// Total bytes.
    pub total_bytes: u64,
    /// Free bytes.
    pub free_bytes: u64,
}

impl Disk {
    /// Returns the file system of `folder`, if the system reports it.
    pub fn of(folder: &Path) -> Option<Disk> {
        use std::os::unix::ffi::OsStrExt;
        let path = std::ffi::CString::new(folder.as_os_str().as_bytes()).ok()?;
        // SAFETY: zero is valid for all fields of the structure.
        let mut about: libc::statvfs = unsafe { std::mem::zeroed() };
        // SAFETY: the path ends with a zero byte, and the structure outlives the call.
        if unsafe { libc::statvfs(path.as_ptr(), &raw mut about) } != 0 {
            return None;
        }
        #[expect(clippy::useless_conversion, reason = "these types differ between systems")]
        let bytes =
            |blocks| u64::try_from(blocks).ok()?.checked_mul(u64::try_from(about.f_frsize).ok()?);
        Some(Disk { total_bytes: bytes(about.f_blocks)?, free_bytes: bytes(about.f_bavail)? })
    }
}

/// Returns the memory of this machine, if the system reports it.
pub fn memory_bytes() -> Option<u64> {
    Some(Memory::of_machine()?.total_bytes)
}

/// Parses the settings of a bucket from fields, as [`Platform::bucket_settings`] does.
pub type ReadBucketSettings =
    fn(Option<&BucketSettings>, &[(String, String)], u64) -> Result<BucketSettings, String>;

/// The platform of a real node: system clocks, a data directory, and a thread per task.
pub struct SystemPlatform {
    started: Instant,
    data_dir: PathBuf,
    reserve: Reserve,
    spaces: SealedSpaces,
    states: LogSpaces,
    state_options: StateOptions,
    read_bucket_settings: Option<ReadBucketSettings>,
    engine: Engine,
    process: &'static dyn Process,
    node_key: Arc<NodeKey>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    peers: OnceLock<Arc<Peers>>,
    questions: OnceLock<Arc<Peers>>,
    /// Created when the first other node is followed.
    links: OnceLock<Links>,
}

/// Returns both clocks; the monotonic clock starts at `started`.
fn now_since(started: Instant) -> Now {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Now {
        unix_ns: u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX),
        monotonic_ns: u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX),
    }
}

/// Connects the plugin engine with the process.
fn hooks(process: &'static dyn Process) -> Hooks {
    let deadlines_started = move || {
        depend_on_this_thread();
        // While other threads use the processors, deadlines advance more slowly: plugin calls do not get that time
        // either.
        process.prioritize(Priority::FirstOfBackground);
    };
    let deadlines_started = Box::new(deadlines_started);
    Hooks { deadlines_started, before_blocking: nacre_bucket::before_blocking }
}

impl SystemPlatform {
    /// Opens the data directory, and creates it if it does not exist. `plugin_cache` keeps compiled plugins; `process`
    /// is the process of the node.
    ///
    /// # Errors
    /// Any problem with the directory.
    pub fn open(
        data_dir: &Path,
        plugin_cache: PathBuf,
        process: &'static dyn Process,
    ) -> Result<SystemPlatform, Error> {
        let settings = data_dir.join("node");
        if settings.join("conf").exists() {
            return Err(Error::Format { path: data_dir.to_owned(), found: 1, expected: FORMAT });
        }
        // Nothing is created in a directory that is refused.
        if !settings.exists() {
            data_dir::check(data_dir, &[])?;
        }
        let spaces = LogSpaces::open(&settings, OnDamage::Refuse)?;
        data_dir::check(data_dir, &spaces.names()?)?;
        data_dir::close_to_others(data_dir)?;
        // After locking the directory: the reserve may belong to a running node.
        let reserve = Reserve::open(data_dir);
        // Before the node key: a node key without settings shows that the settings were lost.
        let is_sealed = sealed::is_sealed(&*spaces.open("node")?)?;
        let spaces = SealedSpaces::new(spaces, SettingsKey::open(data_dir, !is_sealed)?);
        // Lost states are rebuilt from history.
        let states = LogSpaces::open(&data_dir.join("states"), OnDamage::Forget)?;
        // After locking the directory, so that two processes do not both create a key.
        let node_key = NodeKey::open(data_dir).map_err(io::Error::other);
        let node_key = node_key.map_err(Error::io("open the key of the node"))?;
        Ok(SystemPlatform {
            started: Instant::now(),
            data_dir: data_dir.to_owned(),
            reserve,
            spaces,
            states,
            state_options: StateOptions::default(),
            read_bucket_settings: None,
            engine: Engine::with_hooks(plugin_cache, hooks(process)),
            process,
            node_key: Arc::new(node_key),
            threads: Mutex::default(),
            peers: OnceLock::new(),
            questions: OnceLock::new(),
            links: OnceLock::new(),
        })
    }

    /// Sets the options for states.
    pub fn keep_states(&mut self, options: StateOptions) {
        self.state_options = options;
    }

    /// Enables statements that create and change buckets; `read` parses the settings.
    pub fn read_bucket_settings_by(&mut self, read: ReadBucketSettings) {
        self.read_bucket_settings = Some(read);
    }

    /// Returns the key that identifies this node to others.
    pub fn node_key(&self) -> &Arc<NodeKey> {
        &self.node_key
    }

    /// Returns the space reserved for the next start.
    pub fn reserve(&self) -> &Reserve {
        &self.reserve
    }

    /// Enables messages and questions to other nodes.
    pub fn connect(&self, peers: &Arc<Peers>, questions: &Arc<Peers>) {
        // A process has only one node.
        let _ = self.peers.set(Arc::clone(peers));
        let _ = self.questions.set(Arc::clone(questions));
    }

    /// Waits for every task to end.
    pub fn join(&self) {
        loop {
            let Some(thread) = self.threads.lock().pop() else { return };
            if thread.join().is_err() {
                tracing::error!("a task has panicked");
            }
        }
    }

    /// Returns a bucket's directory. A flushed bucket gets another one, so that a crash in between mixes nothing.
    fn bucket_dir(&self, bucket: &Bucket) -> PathBuf {
        self.data_dir
            .join("buckets")
            .join(format!("{}-{}-{}", bucket.name, bucket.uuid, bucket.flushes))
    }
}

/// Removes a directory with its contents. A task in its last step may create and remove files meanwhile, so a directory
/// that is not empty, or that has lost a file, is retried.
fn remove_folder(path: &Path) -> io::Result<()> {
    let begun = Instant::now();
    loop {
        let Err(error) = std::fs::remove_dir_all(path) else { return Ok(()) };
        match error.kind() {
            ErrorKind::NotFound if !path.exists() => return Ok(()),
            ErrorKind::DirectoryNotEmpty | ErrorKind::NotFound
                if begun.elapsed() < REMOVAL_PATIENCE =>
            {
                std::thread::sleep(REMOVAL_PAUSE);
            }
            _ => return Err(error),
        }
    }
}

impl BucketEnv for SystemPlatform {
    fn now(&self) -> Now {
        now_since(self.started)
    }

    fn random(&self) -> u64 {
        rand::random()
    }

    fn spawn(&self, mut task: Box<dyn Task>) {
        let process = self.process;
        let thread = std::thread::Builder::new().name(task.name().to_owned());
        let thread = thread.stack_size(STACK_BYTES).spawn(move || {
            process.prioritize(Priority::of(&*task));
            if task.is_vital() {
                depend_on_this_thread();
            }
            loop {
                match task.step() {
                    Next::Again => {}
                    Next::Wait => task.signal().wait(),
                    Next::After(time) => task.signal().wait_at_most(time),
                    Next::Done => return,
                }
            }
        });
        let mut threads = self.threads.lock();
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread.expect("the machine has room for another thread"));
    }
}

impl Platform for SystemPlatform {
    fn folder(&self, service: &str) -> Option<PathBuf> {
        Some(self.data_dir.join(service))
    }

    fn open_store(&self, bucket: &Bucket, create: bool) -> Result<Arc<dyn Store>, Error> {
        let path = self.bucket_dir(bucket);
        if create {
            // A new bucket starts without files. When a node leaves a cluster and joins it again, tasks of the previous
            // bucket may have written once more after its removal.
            self.remove_store(bucket)?;
        }
        // An existing bucket keeps the storage engine with which it was created.
        let sled = match create {
            true => bucket.settings.storage_backend == StorageBackend::Sled,
            false => path.join("sled").exists(),
        };
        if sled {
            return Ok(Arc::new(SledStore::open(&path, create, STORE_CACHE_BYTES)?));
        }
        let options = LogOptions { seed: self.random(), ..LogOptions::default() };
        Ok(Arc::new(LogStore::open(&path, create, options)?))
    }

    fn remove_store(&self, bucket: &Bucket) -> Result<(), Error> {
        let path = self.bucket_dir(bucket);
        remove_folder(&path).map_err(Error::io(format!("remove {}", path.display())))
    }

    fn spaces(&self) -> &dyn Spaces {
        &self.spaces
    }

    fn states(&self) -> &dyn Spaces {
        &self.states
    }

    fn state_options(&self) -> StateOptions {
        self.state_options
    }

    fn shipped_plugin(&self, name: &str) -> Result<&'static [u8], String> {
        nacre_engine::shipped(name)
    }

    fn load_plugin(&self, name: &str, digest: &str, component: &[u8]) -> Result<Plugin, String> {
        self.engine.load(name, digest, component)
    }

    fn http(&self, outgoing: Outgoing) -> Arc<dyn Http> {
        Arc::new(HttpClient::new(outgoing))
    }

    fn reachable(
        &self,
        outgoing: &Outgoing,
        host: &str,
        port: u16,
    ) -> Result<Vec<SocketAddr>, String> {
        http_out::reachable(outgoing, host, port)
    }

    fn bucket_settings(
        &self,
        known: Option<&BucketSettings>,
        fields: &[(String, String)],
        now_cas: u64,
    ) -> Result<BucketSettings, String> {
        let read = self.read_bucket_settings.ok_or("buckets are not made by statements here")?;
        read(known, fields, now_cas)
    }

    fn keep_capsule(&self, capsule: &Capsule) -> Result<String, Error> {
        let folder = self.data_dir.join("capsules");
        let failed = Error::io(format!("write to {}", folder.display()));
        capsules::keep(&folder, capsule, self.now())
            .map(|path| path.display().to_string())
            .map_err(failed)
    }

    fn capsules(&self, deployment: &str) -> Result<Vec<(String, Capsule)>, Error> {
        let folder = self.data_dir.join("capsules");
        let failed = Error::io(format!("read {}", folder.display()));
        capsules::kept(&folder, deployment).map_err(failed)
    }

    fn link(&self, peer: &Endpoints, link: Box<dyn Link>) {
        let started = self.started;
        self.links
            .get_or_init(|| Links::start(&self.node_key))
            .run(peer, link, move || now_since(started));
    }

    fn fetch_package(&self, digest: &str) -> Result<Vec<u8>, String> {
        let peers = self.questions.get().ok_or("this node is alone in its cluster")?;
        membership::fetch_package(peers, digest)
    }

    fn ask(&self, to: NodeId, question: Vec<u8>, patience: Duration, on_reply: ReplyCallback) {
        match self.questions.get() {
            Some(questions) => questions.ask(to, question, patience + ASK_GRACE, on_reply),
            None => on_reply(Err(PeerError::NotAsked("the node is starting".into()))),
        }
    }

    fn send(&self, to: NodeId, message: Vec<u8>) {
        if let Some(peers) = self.peers.get() {
            peers.send(to, message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_folder_is_removed_although_files_are_still_made_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bucket");
        fs::create_dir(&path).unwrap();
        // As many files as there are steps: a new file appears each time.
        let files: Vec<PathBuf> = (0..2000).map(|n| path.join(n.to_string())).collect();
        files[..1000].iter().for_each(|file| fs::write(file, "").unwrap());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                files[1000..].iter().for_each(|file| drop(fs::write(file, "")));
            });
            remove_folder(&path).unwrap();
        });
        assert!(!path.exists());
        remove_folder(&path).unwrap();
    }
}
