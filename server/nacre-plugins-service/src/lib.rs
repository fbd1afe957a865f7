//! Runs plugins: one deployment for each design document, index, function and deployed package.
//!
//! ```text
//! agreed state ─► Spec (a wanted deployment) ─► Deployment ◄── Feed (a thread) ◄── history of the bucket
//!                       ▲ Loader: compiles                 └─► Partition: state and progress in one commit
//! ```
//!
//! A deployment's state is in a space named after everything that the state depends on: a changed deployment builds a
//! new state next to the old one, and an unchanged one resumes after a restart.

mod cluster_documents;
mod components;
pub mod consistency;
mod coverage;
mod deployment;
mod documents;
pub mod failure;
mod feed;
mod following;
pub mod functions;
mod history;
mod kind;
mod loader;
mod merging;
mod message;
mod open;
pub mod packages;
mod part;
pub mod partitions;
mod places;
mod preview;
mod pure;
mod reconcile;
mod rehearsal;
mod replay;
mod retrying;
pub mod rights;
mod rows;
mod scan;
mod service;
mod shipped;
mod spec;

pub use components::Components;
pub(crate) use components::Runtime;
pub use deployment::{Deployment, Progress};
pub use documents::BucketDocuments;
pub use history::Range;
use loader::Loader;
use nacre_node::Node;
use nacre_node::scatter_gather::Vbids;
use nacre_sandbox::Capsule;
use nacre_state::BlockCache;
use open::deploy;
use parking_lot::{Mutex, RwLock};
pub use part::{
    AbsentPart, Missing, PartialAnswer, Pause, Reply, Terms, await_deployment, request, request_all,
};
pub use partitions::End;
pub use preview::{PREVIEW_DOCUMENTS_MAX, Preview, PreviewedView, preview};
pub use pure::{Failed, Pure, PureCaller, PureDeployments};
pub use rehearsal::{DOCUMENTS_MAX, TrialDocuments, TrialResult, rehearse};
pub use replay::Replay;
pub use rows::DeployedService;
pub use scan::{Scanned, scan};
pub use service::NodePlugins;
use shipped::VIEWS;
pub use shipped::{EVALUATOR, QUERY};
pub use spec::Code;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::sync::Notify;

/// A name with the deployments that answer under it.
struct Slot {
    serving: Arc<Deployment>,
    /// The deployment that replaces the serving one once it has caught up.
    building: Option<Arc<Deployment>>,
}

/// The plugins of a node.
#[derive(Default)]
pub struct Plugins {
    components: Components,
    slots: RwLock<BTreeMap<String, Slot>>,
    /// Deployments that have not run here because their component was not loaded, each with the vBuckets that this node
    /// served when it learned of the deployment.
    served_when_announced: Mutex<BTreeMap<String, Vbids>>,
    pure: PureDeployments,
    /// Held while deployments are started and stopped: loading a state takes time, and queries continue meanwhile.
    deploying: Mutex<()>,
    /// Deployments that were removed and whose feeds may still use their spaces.
    leaving: Mutex<Vec<Arc<Deployment>>>,
    /// Cache of recently read blocks of segmented states.
    segments: OnceLock<BlockCache>,
    changed: Notify,
    stopped: AtomicBool,
}

impl Plugins {
    /// Waits until the component that runs views is loaded; compiling it after a first start takes seconds.
    ///
    /// # Errors
    /// The reason why it cannot run.
    pub async fn views_are_loaded(&self) -> Result<(), String> {
        loop {
            let changed = self.changed();
            if let Some(outcome) = self.components.outcome(&VIEWS) {
                return outcome.map(drop);
            }
            changed.await;
        }
    }

    /// Checks a design document without deploying it.
    ///
    /// # Errors
    /// The error in the document, for its author.
    pub fn validate_view(&self, node: &Node, name: &str, document: &str) -> Result<(), String> {
        let runtime = self.components.get(&VIEWS)?;
        let config =
            kind::view_config(name, document, false).ok_or("a design document is a JSON object")?;
        components::validate(node, &runtime.plugin, "views", config)
    }

    /// Returns the deployment of a design document.
    pub fn view(&self, bucket: &str, name: &str) -> Option<Arc<Deployment>> {
        self.deployment(&kind::view_name(bucket, name))
    }

    /// Returns the deployment of an index.
    pub fn index(&self, bucket: &str, index: &nacre_cluster::Index) -> Option<Arc<Deployment>> {
        self.deployment(&kind::index_name(bucket, index))
    }

    /// Checks the definition of an index without creating it.
    ///
    /// # Errors
    /// The error in the definition, for its author.
    pub fn validate_index(&self, node: &Node, definition: &str) -> Result<(), String> {
        let config = serde_json::json!({"definition": definition}).to_string();
        self.components.validate_shipped(node, "index", config)
    }

    /// Returns the loaded components.
    pub fn components(&self) -> &Components {
        &self.components
    }

    /// Returns the loaded deployments without a feed.
    pub fn pure(&self) -> &PureDeployments {
        &self.pure
    }

    /// Returns why the code of a deployment without a feed could not be loaded, if that has been tried.
    pub fn unloadable(&self, node: &Node, name: &str) -> Option<String> {
        let code = pure::code(&node.cluster(), name)?;
        self.components.outcome(&code)?.err()
    }

    /// Returns the deployment that answers under `name`.
    pub fn deployment(&self, name: &str) -> Option<Arc<Deployment>> {
        self.slots.read().get(name).map(|slot| Arc::clone(&slot.serving))
    }

    /// Returns all deployments, including those that are built next to others.
    pub fn deployments(&self) -> Vec<Arc<Deployment>> {
        let slots = self.slots.read();
        let of_slot = |slot: &Slot| [Some(Arc::clone(&slot.serving)), slot.building.clone()];
        slots.values().flat_map(of_slot).flatten().collect()
    }

    /// Returns the deployment that will answer under `name` once it has caught up.
    pub fn building(&self, name: &str) -> Option<Arc<Deployment>> {
        self.slots.read().get(name)?.building.clone()
    }

    /// Resets the counters of a deployment by closing it and opening it with the same state. Returns false if it does
    /// not run. Do not call it on a thread for which others wait.
    pub fn reopen(&self, node: &Arc<Node>, name: &str) -> bool {
        let _deploying = self.deploying.lock();
        let Some(serving) = self.deployment(name) else { return false };
        let Ok(runtime) = self.components.get(&serving.spec.code) else { return false };
        if serving.progress() != Progress::Running {
            return false;
        }
        serving.end(Progress::HandedOver);
        serving.wait_for_feeds();
        let next = deploy(node, &serving.bucket, &runtime, serving.spec.clone(), None);
        next.adopt_log(&serving);
        if let Some(slot) = self.slots.write().get_mut(name) {
            slot.serving = next;
        }
        self.changed.notify_waiters();
        true
    }

    /// Returns the stored failed calls of a deployment on this node, oldest first, under names that contain the time.
    /// Blocks.
    ///
    /// # Errors
    /// Fails if the disk fails.
    pub fn capsules(
        &self,
        node: &Node,
        name: &str,
    ) -> Result<Vec<(String, Capsule)>, nacre_store::Error> {
        node.platform.capsules(name)
    }

    /// Returns a future that ends when another deployment answers under some name. It counts changes from this call on,
    /// not from the first poll.
    pub fn changed(&self) -> impl Future<Output = ()> + '_ {
        let mut changed = Box::pin(self.changed.notified());
        changed.as_mut().enable();
        changed
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Wakes all feeds so that they see their buckets closed.
    fn end(&self) {
        self.stopped.store(true, Ordering::Release);
        self.components.signal().wake();
        for slot in self.slots.read().values() {
            slot.serving.bucket.listeners.wake_all();
        }
    }
}
