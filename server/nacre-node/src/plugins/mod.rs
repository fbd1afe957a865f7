//! Plugins at work: for each design document and each deployed package a deployment, fed and asked.
//!
//! ```text
//! agreed state ─► Spec (what is to run) ─► Deployment ◄── Feed (a thread) ◄── history of the bucket
//!                       ▲ Loader: compiles                 └─► Partition: state and progress in one commit
//! ```
//!
//! A deployment's state lives in a space named after everything that the state depends on: what is changed is built
//! anew beside the old state, and what is not resumes after a restart.

mod cluster_documents;
mod coverage;
mod deployment;
mod documents;
mod feed;
mod following;
pub mod functions;
mod loader;
mod merging;
mod message;
pub mod packages;
mod part;
pub(crate) mod partitions;
mod past;
mod places;
mod pure;
mod rehearsal;
mod replay;
pub mod rights;
mod scan;
mod service;
mod spec;

use crate::node::Node;
use crate::outgoing::Outgoing;
use crate::query::{EVALUATOR, FunctionQueries, QUERY};
use crate::scatter_gather::Vbids;
pub(crate) use cluster_documents::ClusterDocuments;
pub use deployment::{Deployment, Progress};
pub(crate) use documents::BucketDocuments;
use feed::Feed;
use loader::Loader;
use nacre_bucket::{Bucket, Signal};
use nacre_cluster::{FunctionState, Since};
use nacre_dcp::ResumePoint;
use nacre_plugin_host::{Budget, Capsule, Limits, NoQueries, Partition, Plugin, Queries, Setup};
use nacre_state::{
    BlockCache, IndexForm, KEPT_BACK_BYTES_MAX, SpaceStorage, StateForm, StateStorage, Vouching,
};
use nacre_types::Vbid;
use parking_lot::{Mutex, RwLock};
pub use part::{Missing, Reply, Terms};
pub(crate) use partitions::End;
use partitions::PartitionsFeed;
pub use past::Range;
pub(crate) use pure::PureCaller;
pub use pure::{Failed, Pure};
pub use rehearsal::{Chosen, DOCUMENTS_MAX, Tried, rehearse};
pub use replay::Replay;
pub use scan::Scanned;
pub use spec::Code;
use spec::{
    EVENTING, FUNCTIONS_SPACE, INDEX, INDEXES_SPACE, PLUGINS_SPACE, Spec, VIEWS, VIEWS_SPACE,
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::sync::Notify;

/// The part of the memory for state that rows which a lane keeps back may take: one of so many.
const KEPT_BACK_SHARE: usize = 64;

/// A component that is ready to run.
#[derive(Clone)]
pub(crate) struct Runtime {
    pub plugin: Plugin,
    /// Names the format of its state: those of another version are built anew.
    pub state_version: String,
}

impl Runtime {
    /// A component that says itself which state it keeps.
    fn new(plugin: Plugin) -> Result<Runtime, String> {
        let description = plugin.describe(Limits::default()).map_err(|error| error.to_string())?;
        let description: serde_json::Value = serde_json::from_str(&description).unwrap_or_default();
        let state_version =
            description["state_version"].as_str().ok_or("it has no state_version")?.to_owned();
        Ok(Runtime { plugin, state_version })
    }
}

/// One name, and what answers under it.
struct Slot {
    serving: Arc<Deployment>,
    /// Takes the place of the other once it has caught up.
    building: Option<Arc<Deployment>>,
}

/// The plugins of a node.
#[derive(Default)]
pub struct Plugins {
    /// What was loaded, or why it could not be.
    loaded: RwLock<BTreeMap<Code, Result<Runtime, String>>>,
    /// Wakes the [`Loader`].
    wanted: Signal,
    slots: RwLock<BTreeMap<String, Slot>>,
    /// What is deployed and has not run here, since it was not loaded: the vBuckets that were served here when this node
    /// heard of it.
    heard_of: Mutex<BTreeMap<String, Vbids>>,
    /// What follows no documents, by its name.
    pure: RwLock<BTreeMap<String, Arc<Pure>>>,
    /// Held while deployments are brought in line: loading a state takes time, and queries go on meanwhile.
    deploying: Mutex<()>,
    /// Deployments that were removed and whose feeds may still use their spaces.
    leaving: Mutex<Vec<Arc<Deployment>>>,
    /// What was read of segmented states lately.
    segments: OnceLock<BlockCache>,
    changed: Notify,
    stopped: AtomicBool,
}

impl Plugins {
    /// Waits until the component that runs views is there: compiling it takes seconds after a first start.
    ///
    /// # Errors
    /// Why it cannot run.
    pub async fn views_are_loaded(&self) -> Result<(), String> {
        loop {
            let changed = self.changed();
            if let Some(loaded) = self.loaded.read().get(&VIEWS) {
                return loaded.as_ref().map(drop).map_err(Clone::clone);
            }
            changed.await;
        }
    }

    /// Checks a design document without deploying it.
    ///
    /// # Errors
    /// What is wrong with it, for its author.
    pub fn validate_view(&self, node: &Node, name: &str, document: &str) -> Result<(), String> {
        let runtime = self.runtime(&VIEWS)?;
        let config =
            spec::view_config(name, document, false).ok_or("a design document is a JSON object")?;
        let budgets = node.memory().budgets().clone();
        let setup = Setup { budgets, ..Setup::new("views", config) };
        nacre_plugin_host::validate(&runtime.plugin, setup).map_err(|error| match error {
            nacre_plugin_host::Error::Config { message, .. } => message,
            other => other.to_string(),
        })
    }

    /// The deployment of a design document.
    pub fn view(&self, bucket: &str, name: &str) -> Option<Arc<Deployment>> {
        self.deployment(&spec::view_name(bucket, name))
    }

    /// The deployment of an index.
    pub fn index(&self, bucket: &str, index: &nacre_cluster::Index) -> Option<Arc<Deployment>> {
        self.deployment(&spec::index_name(bucket, index))
    }

    /// Checks the definition of an index without making it.
    ///
    /// # Errors
    /// What is wrong with it, for its author.
    pub fn validate_index(&self, node: &Node, definition: &str) -> Result<(), String> {
        let plugin = self.load_shipped(node, &INDEX)?;
        let config = serde_json::json!({"definition": definition}).to_string();
        let budgets = node.memory().budgets().clone();
        let setup = Setup { budgets, ..Setup::new("index", config) };
        nacre_plugin_host::validate(&plugin, setup).map_err(|error| match error {
            nacre_plugin_host::Error::Config { message, .. } => message,
            other => other.to_string(),
        })
    }

    /// What answers under `name`.
    pub fn deployment(&self, name: &str) -> Option<Arc<Deployment>> {
        self.slots.read().get(name).map(|slot| Arc::clone(&slot.serving))
    }

    /// All deployments, those that are built beside others included.
    pub fn deployments(&self) -> Vec<Arc<Deployment>> {
        let slots = self.slots.read();
        let of_slot = |slot: &Slot| [Some(Arc::clone(&slot.serving)), slot.building.clone()];
        slots.values().flat_map(of_slot).flatten().collect()
    }

    /// What will answer under `name` once it has caught up.
    pub fn building(&self, name: &str) -> Option<Arc<Deployment>> {
        self.slots.read().get(name)?.building.clone()
    }

    /// The component, if it is loaded; otherwise it will be.
    fn runtime(&self, code: &Code) -> Result<Runtime, String> {
        match self.loaded.read().get(code) {
            Some(loaded) => loaded.clone(),
            None => Err(format!("the plugin {code} is not ready yet: try again")),
        }
    }

    /// The component, loaded now if need be; takes seconds then.
    fn runtime_or_load(&self, node: &Node, code: &Code) -> Result<Runtime, String> {
        self.runtime(code).or_else(|_| loader::load(node, code))
    }

    /// A component that comes with the binary.
    ///
    /// # Errors
    /// Why it cannot run.
    pub(crate) fn load_shipped(&self, node: &Node, code: &Code) -> Result<Plugin, String> {
        let runtime = self.runtime_or_load(node, code)?;
        let plugin = runtime.plugin.clone();
        self.provide(code.clone(), runtime);
        Ok(plugin)
    }

    /// Takes what was loaded for a deployment that is to come.
    fn provide(&self, code: Code, runtime: Runtime) {
        self.loaded.write().insert(code, Ok(runtime));
    }

    /// Drops the compiled component of a deleted package from the cache.
    fn forget(&self, digest: &str) {
        self.loaded.write().remove(&Code::Uploaded(digest.to_owned()));
    }

    /// Something that deployments need and that has not been looked at.
    fn next_to_load(&self, node: &Node) -> Option<Code> {
        let loaded = self.loaded.read();
        let cluster = node.cluster();
        let deployed = cluster
            .buckets
            .values()
            .flat_map(|bucket| {
                let mut specs = spec::of_packages(&cluster, bucket);
                specs.extend(functions::specs(&cluster, bucket));
                specs
            })
            .map(|spec| spec.code);
        let has_indexes = cluster.buckets.values().any(|bucket| !bucket.indexes.is_empty());
        // Before the functions that query, which would wait for it.
        let has_queries = cluster.functions.iter().any(|(_, function)| {
            function.state != FunctionState::Undeployed && functions::queries(&function.definition)
        });
        let has_scripts =
            cluster.query_functions.iter().any(|(_, function)| function.is_javascript());
        std::iter::once(VIEWS)
            .chain(has_queries.then_some(QUERY))
            .chain(has_scripts.then_some(EVALUATOR))
            .chain(has_indexes.then_some(INDEX))
            .chain(deployed)
            .chain(pure::specs(&cluster).into_iter().map(|spec| spec.code))
            .find(|code| !loaded.contains_key(code))
    }

    /// Takes what the loader has loaded, and deploys what waits for it.
    fn install(&self, node: &Arc<Node>, code: Code, loaded: Result<Runtime, String>) {
        // Before anything of it can be deployed, so that nothing new is taken for a leftover.
        if let Ok(runtime) = &loaded
            && let Err(error) = remove_leftovers(node, &code, runtime)
        {
            tracing::warn!("state of deployments that are gone could not be removed: {error}");
        }
        self.loaded.write().insert(code, loaded);
        self.redeploy_all(node);
        self.redeploy_pure(node);
        self.changed.notify_waiters();
    }

    /// Users have changed: what they own may have to be held or let go.
    fn look_at_owners(&self) {
        self.wanted.wake();
    }

    /// As [`Plugins::redeploy`] for each bucket.
    fn redeploy_all(&self, node: &Arc<Node>) {
        for name in node.cluster().buckets.keys() {
            if let Some(bucket) = node.bucket(name) {
                self.redeploy(node, &bucket);
            }
        }
    }

    /// Deploys what is deployed of a bucket that was just opened here.
    fn deploy_found(&self, node: &Arc<Node>, bucket: &Arc<Bucket>) {
        self.bring_in_line(node, bucket, Vbids::default);
    }

    /// Brings the deployments of a bucket in line with the agreed state. Those that failed get another try, but for packages that
    /// have run: whoever has mended the cause says so.
    fn redeploy(&self, node: &Arc<Node>, bucket: &Arc<Bucket>) {
        self.bring_in_line(node, bucket, || bucket.active_vbids());
    }

    /// As [`Plugins::redeploy`]; of what is news here, others may answer where they serve what is not `served` here.
    fn bring_in_line(&self, node: &Arc<Node>, bucket: &Arc<Bucket>, served: impl Fn() -> Vbids) {
        let _deploying = self.deploying.lock();
        // Read under the lock, so that whoever comes last brings in line with the newest.
        let cluster = node.cluster();
        let Some(config) = cluster.buckets.get(&bucket.name) else { return };
        let mut wanted = spec::of_packages(&cluster, config);
        let packages = wanted.iter().map(|spec| spec.name.clone());
        self.hear_of(packages.chain(spec::names_of_views(config)), served);
        wanted.extend(functions::specs(&cluster, config));
        if let Ok(runtime) = self.runtime(&VIEWS) {
            wanted.extend(spec::of_views(config, &runtime));
        }
        if let Ok(runtime) = self.runtime(&INDEX) {
            wanted.extend(spec::of_indexes(&cluster, node.id(), config, &runtime));
        }
        let users = node.users().clone();
        wanted.iter_mut().for_each(|spec| spec.hold(&users));
        self.slots.write().retain(|name, slot| {
            let ours = Arc::ptr_eq(&slot.serving.bucket, bucket);
            let of_the_bucket = slot.serving.bucket.name == bucket.name;
            let kept = !of_the_bucket || ours && wanted.iter().any(|spec| spec.name == *name);
            if !kept {
                self.leave(slot);
            }
            kept
        });
        for spec in wanted {
            self.place(node, bucket, spec);
        }
        // Something may be needed that is not loaded.
        self.wanted.wake();
    }

    /// Notes what does not run here, if that is news, with the vBuckets that are served now.
    fn hear_of(&self, names: impl Iterator<Item = String>, served: impl Fn() -> Vbids) {
        let (slots, mut heard_of) = (self.slots.read(), self.heard_of.lock());
        for name in names.filter(|name| !slots.contains_key(name)) {
            heard_of.entry(name).or_insert_with(&served);
        }
    }

    /// Brings one name in line.
    fn place(&self, node: &Arc<Node>, bucket: &Arc<Bucket>, spec: Spec) {
        let Ok(runtime) = self.runtime(&spec.code) else {
            // Until it is loaded, what was there goes on.
            return;
        };
        let name = spec.name.clone();
        let slot = self
            .slots
            .read()
            .get(&name)
            .map(|slot| (Arc::clone(&slot.serving), slot.building.clone()));
        let put = |serving: Arc<Deployment>, building: Option<Arc<Deployment>>| {
            self.slots.write().insert(name.clone(), Slot { serving, building });
            self.changed.notify_waiters();
        };
        let Some((serving, building)) = slot else {
            if spec.share.as_ref().is_some_and(|share| share.held.is_empty()) {
                return;
            }
            self.wait_for_space(&spec.space);
            let news_of = self.heard_of.lock().remove(&name);
            put(deploy(node, bucket, &runtime, spec, news_of), None);
            return;
        };
        if spec.is_part_of(&serving.spec) && serving.progress() == Progress::Running {
            building.iter().for_each(|building| self.leave_one(building));
            put(serving, None);
            return;
        }
        if serving.spec.space == spec.space {
            if let Some(building) = building {
                self.leave_one(&building);
            }
            if serving.is_as(&spec) {
                put(serving, None);
            } else {
                // The state goes on with the next.
                serving.end(Progress::HandedOver);
                serving.wait_for_feeds();
                let next = deploy(node, bucket, &runtime, spec, None);
                next.remember(&serving);
                put(next, None);
            }
            return;
        }
        if let Some(building) = building {
            let is_over = match building.progress() {
                Progress::Running => false,
                Progress::Failed(_) => !building.stays_failed(),
                _ => true,
            };
            if building.spec.is_same_as(&spec) && !is_over {
                return;
            }
            self.leave_one(&building);
        }
        self.wait_for_space(&spec.space);
        let answers = matches!(serving.progress(), Progress::Running | Progress::Paused);
        if spec.beside && answers {
            let building = deploy(node, bucket, &runtime, spec, None);
            put(serving, Some(building));
            // It may have had all there is before anybody knew that it is to take a place.
            bucket.listeners.wake_all();
        } else {
            self.leave_one(&serving);
            put(deploy(node, bucket, &runtime, spec, None), None);
        }
    }

    /// Begins anew with what a deployment counts: it is closed and opened again, and its state goes on. Gives false when
    /// there is none that runs. Not for a thread that others wait for.
    pub fn reopen(&self, node: &Arc<Node>, name: &str) -> bool {
        let _deploying = self.deploying.lock();
        let Some(serving) = self.deployment(name) else { return false };
        let Ok(runtime) = self.runtime(&serving.spec.code) else { return false };
        if serving.progress() != Progress::Running {
            return false;
        }
        serving.end(Progress::HandedOver);
        serving.wait_for_feeds();
        let next = deploy(node, &serving.bucket, &runtime, serving.spec.clone(), None);
        next.remember(&serving);
        if let Some(slot) = self.slots.write().get_mut(name) {
            slot.serving = next;
        }
        self.changed.notify_waiters();
        true
    }

    /// `deployment` has caught up: it takes the place that it was built for. Gives false when that cannot be now, since
    /// deployments are being brought in line, who may be waiting for the thread that asks.
    fn promote(&self, deployment: &Deployment) -> bool {
        let Some(_deploying) = self.deploying.try_lock() else { return false };
        let mut slots = self.slots.write();
        let Some(slot) = slots.get_mut(&deployment.name) else { return true };
        match slot.building.take() {
            Some(building) if std::ptr::eq(&*building, deployment) => {
                let before = std::mem::replace(&mut slot.serving, building);
                self.leave_one(&before);
                tracing::info!(
                    "{}: version {} has caught up",
                    deployment.name,
                    deployment.version()
                );
            }
            other => slot.building = other,
        }
        drop(slots);
        self.changed.notify_waiters();
        true
    }

    /// The calls of a deployment that failed on this node and are kept, by names that say when, the oldest first. Blocks.
    ///
    /// # Errors
    /// What the disk reports.
    pub fn capsules(
        &self,
        node: &Node,
        name: &str,
    ) -> Result<Vec<(String, Capsule)>, nacre_store::Error> {
        node.platform.capsules(name)
    }

    /// Waits until another deployment answers under some name; from when this is called, not from when it is awaited.
    pub fn changed(&self) -> impl Future<Output = ()> + '_ {
        let mut changed = Box::pin(self.changed.notified());
        changed.as_mut().enable();
        changed
    }

    fn undeploy_bucket(&self, bucket: &Arc<Bucket>) {
        self.slots.write().retain(|_, slot| {
            let kept = !Arc::ptr_eq(&slot.serving.bucket, bucket);
            if !kept {
                self.leave(slot);
            }
            kept
        });
    }

    fn leave(&self, slot: &Slot) {
        self.leave_one(&slot.serving);
        slot.building.iter().for_each(|building| self.leave_one(building));
    }

    fn leave_one(&self, deployment: &Arc<Deployment>) {
        deployment.end(Progress::Removed);
        let mut leaving = self.leaving.lock();
        leaving.retain(|deployment| deployment.is_feeding());
        leaving.push(Arc::clone(deployment));
    }

    /// Two feeds never share a space: a text that was replaced and comes back waits until its old rows are gone.
    fn wait_for_space(&self, space: &str) {
        let leaving: Vec<_> = self.leaving.lock().clone();
        leaving
            .iter()
            .filter(|deployment| deployment.spec.space == space)
            .for_each(|deployment| deployment.wait_for_feeds());
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Wakes all feeds so that they see their buckets closed.
    fn end(&self) {
        self.stopped.store(true, Ordering::Release);
        self.wanted.wake();
        for slot in self.slots.read().values() {
            slot.serving.bucket.listeners.wake_all();
        }
    }
}

/// Removes the spaces of deployments that were removed when the node could not finish.
fn remove_leftovers(node: &Node, code: &Code, runtime: &Runtime) -> Result<(), nacre_store::Error> {
    let cluster = node.cluster();
    let buckets = cluster.buckets.values();
    // Which spaces there are to be depends on what is loaded; all but those of packages.
    let (prefix, wanted): (_, Vec<Spec>) = match code {
        code if *code == INDEX => {
            let of = |config| spec::of_indexes(&cluster, node.id(), config, runtime);
            (INDEXES_SPACE, buckets.flat_map(of).collect())
        }
        code if *code == VIEWS => {
            (VIEWS_SPACE, buckets.flat_map(|config| spec::of_views(config, runtime)).collect())
        }
        _ => return Ok(()),
    };
    remove_spaces(node, prefix, &wanted)?;
    if *code == VIEWS {
        let buckets = cluster.buckets.values();
        let wanted: Vec<_> =
            buckets.clone().flat_map(|config| spec::of_packages(&cluster, config)).collect();
        remove_spaces(node, PLUGINS_SPACE, &wanted)?;
        let wanted: Vec<_> =
            buckets.flat_map(|config| functions::specs(&cluster, config)).collect();
        remove_spaces(node, FUNCTIONS_SPACE, &wanted)?;
    }
    Ok(())
}

/// Removes the spaces whose names begin with `prefix`, but for those that are wanted.
fn remove_spaces(node: &Node, prefix: &str, wanted: &[Spec]) -> Result<(), nacre_store::Error> {
    let spaces = node.platform.states();
    for name in spaces.names()?.iter().filter(|name| name.starts_with(prefix)) {
        if !wanted.iter().any(|spec| spec.spaces().contains(name)) {
            remove_state(node, name)?;
        }
    }
    Ok(())
}

/// Removes the state of a deployment.
fn remove_state(node: &Node, space: &str) -> Result<(), nacre_store::Error> {
    Vouching::open(node.platform.spaces())?.forget(space)?;
    node.platform.states().remove(space)
}

/// Starts one deployment.
fn deploy(
    node: &Arc<Node>,
    bucket: &Arc<Bucket>,
    runtime: &Runtime,
    spec: Spec,
    news_of: Option<Vbids>,
) -> Arc<Deployment> {
    let (lanes, progress) = match open(node, bucket, runtime, &spec) {
        Ok(lanes) if spec.paused => (lanes, Progress::Paused),
        Ok(lanes) => (lanes, Progress::Running),
        Err(Unopened::Damaged(reason)) => {
            tracing::error!("{} is paused: {reason}", spec.name);
            (Vec::new(), Progress::Damaged(reason))
        }
        Err(Unopened::Failed(reason)) => {
            tracing::error!("{} cannot be deployed: {reason}", spec.name);
            (Vec::new(), Progress::Failed(reason))
        }
    };
    let deployment = Deployment::new(node, bucket, spec, &lanes, progress, news_of);
    let deployment = Arc::new(deployment);
    if deployment.is_feeding() {
        for (lane, mut partition) in lanes.into_iter().enumerate() {
            let ending = Arc::clone(&deployment);
            partition.interrupt_when(move || ending.is_over());
            let platform = Arc::clone(&node.platform);
            let (bucket, following) = (Arc::clone(bucket), Arc::clone(&deployment));
            node.platform.spawn(match deployment.spec.share {
                Some(_) => Box::new(PartitionsFeed::new(platform, bucket, following, partition)),
                None => Box::new(Feed::new(platform, bucket, following, partition, lane)),
            });
        }
    }
    deployment
}

/// Why the state of a deployment was not opened.
enum Unopened {
    Failed(String),
    /// A part of it is lost, and what the deployment does outside would be done again.
    Damaged(String),
}

impl From<String> for Unopened {
    fn from(reason: String) -> Unopened {
        Unopened::Failed(reason)
    }
}

/// Opens the rows of a lane. Those that only fold are built again when some are lost; of others, the operator decides.
fn open_storage(
    node: &Node,
    spec: &Spec,
    space: &str,
    budget: &Budget,
) -> Result<SpaceStorage, Unopened> {
    let vouching = Vouching::open(node.platform.spaces()).map_err(|error| error.to_string())?;
    let states = node.platform.states();
    let kept_back_bytes_max = kept_back_bytes_max(budget);
    let options = node.platform.state_options();
    let segmenting = match spec.form.unwrap_or(options.form) {
        StateForm::Resident => None,
        StateForm::Segmented => {
            let cache = node.plugins.segments.get_or_init(|| BlockCache::new(options.cache_bytes));
            let flush_bytes = options.flush_bytes.min(kept_back_bytes_max);
            Some(merging::segmenting(&node.platform, cache, flush_bytes))
        }
    };
    let (is_fold, segmenting) = (spec.is_fold(), segmenting.as_ref());
    let mut storage =
        SpaceStorage::open(states, &vouching, space, is_fold, kept_back_bytes_max, segmenting)?;
    storage.begin(budget.limit(), spec.tries.unwrap_or_default())?;
    match storage.damage() {
        None => {}
        Some(damage) if spec.has_effects() => {
            let resume = if spec.code == EVENTING {
                "resume the function with ?from=now or ?from=everything"
            } else {
                "replay the deployment with ?since=now or ?since=everything"
            };
            let reason =
                format!("damaged state, {damage}. It would repeat what it does outside: {resume}");
            return Err(Unopened::Damaged(reason));
        }
        Some(damage) => {
            tracing::warn!("{}: damaged state, {damage}: building it again", spec.name);
            storage.clear()?;
        }
    }
    Ok(storage)
}

/// The partitions of a deployment's lanes.
fn open(
    node: &Arc<Node>,
    bucket: &Arc<Bucket>,
    runtime: &Runtime,
    spec: &Spec,
) -> Result<Vec<Partition>, Unopened> {
    let open = |space: &String| {
        let setup = setup(node, bucket, spec)?;
        let storage = open_storage(node, spec, space, &setup.budgets.state)?;
        let mut partition = Partition::open(runtime.plugin.clone(), setup, Box::new(storage))
            .map_err(|error| error.to_string())?;
        if spec.since == Since::Now && spec.begin.is_none() && !partition.is_begun() {
            partition.begin_at(ends(bucket)).map_err(|error| error.to_string())?;
        }
        if spec.code == EVENTING && !spec.paused {
            let cluster = node.cluster();
            let config = cluster.buckets.get(&bucket.name);
            let leads = config.is_some_and(|config| functions::leads(config, node.id()));
            functions::launch(&mut partition, leads).map_err(|error| error.to_string())?;
        }
        Ok(partition)
    };
    spec.spaces().iter().map(open).collect()
}

/// What a deployment runs with.
fn setup(node: &Arc<Node>, bucket: &Arc<Bucket>, spec: &Spec) -> Result<Setup, String> {
    let source = spec.source.as_ref().map_err(|refusal| refusal.to_string())?;
    let config = match &spec.script {
        Some(digest) => packages::read(node, digest)?.config(&spec.config)?,
        None => spec.config.clone(),
    };
    let documents = Arc::new(ClusterDocuments::new(node, bucket));
    let queries: Arc<dyn Queries> = match spec.grants.query {
        true => {
            let (source, documents) = (source.clone(), Arc::clone(&documents));
            Arc::new(FunctionQueries::new(node, &spec.owner, source, documents))
        }
        false => Arc::new(NoQueries),
    };
    Ok(Setup {
        name: spec.name.clone(),
        config,
        keyspace: spec.keyspace(),
        index: IndexForm {
            held: spec.share.as_ref().map(|share| Arc::clone(&share.held)),
            names_collections: spec.is_index && spec.spans_collections(),
        },
        limits: spec.limits,
        grants: spec.grants.clone(),
        runs_script: spec.code == spec::JS || spec.code == EVENTING,
        documents,
        http: node.platform.http(Outgoing::new(node)),
        queries,
        budgets: node.memory().budgets().clone(),
    })
}

/// Bytes of rows that a lane may keep back: they are copied when they are stored.
fn kept_back_bytes_max(budget: &Budget) -> usize {
    (budget.limit() / KEPT_BACK_SHARE).min(KEPT_BACK_BYTES_MAX)
}

/// Where the history of each vBucket ends.
fn ends(bucket: &Bucket) -> BTreeMap<Vbid, ResumePoint> {
    let vbids = (0..bucket.vbucket_count()).map(Vbid);
    let end = |vbid: Vbid| {
        let vbucket = bucket.vbucket(vbid)?;
        let (seqno, vb_uuid) = (vbucket.high_seqno(), vbucket.failover_log().current());
        Some((vbid, ResumePoint { vb_uuid, seqno, snapshot_start: seqno, snapshot_end: seqno }))
    };
    vbids.filter_map(end).collect()
}
