//! The reconciler: adapts the deployments of a bucket to the agreed state, in the same way for all kinds of workload.
//!
//! ```text
//! agreed state ─► WorkloadKind::specs ─► Spec ─► place: start, continue with the state, build beside, or leave unchanged
//! ```
//!
//! It is level-triggered: it compares wanted and running deployments, and can be called at any time.

use super::deployment::{Deployment, Progress};
use super::kind::{AgreedState, KINDS, WorkloadKind};
use super::open::deploy;
use super::shipped::EVALUATOR;
use super::spec::{Code, Spec};
use super::{Plugins, Runtime, Slot, pure};
use nacre_bucket::Bucket;
use nacre_node::Node;
use nacre_node::scatter_gather::Vbids;
use nacre_state::SyncCounts;
use std::sync::Arc;

impl Plugins {
    /// Returns a component that deployments need and that has not been loaded yet.
    pub(super) fn next_to_load(&self, node: &Node) -> Option<Code> {
        let cluster = node.cluster();
        let has_scripts =
            cluster.query_functions.iter().any(|(_, function)| function.is_javascript());
        let of_kinds = KINDS.iter().flat_map(|kind| kind.components(&cluster, node.services()));
        let wanted = of_kinds
            .chain(has_scripts.then_some(EVALUATOR))
            .chain(pure::specs(&cluster).into_iter().map(|spec| spec.code));
        self.components.first_missing(wanted)
    }

    /// Receives a component from the loader, and starts all deployments that wait for it.
    pub(super) fn install(&self, node: &Arc<Node>, code: Code, loaded: Result<Runtime, String>) {
        // Must happen before any of its deployments starts, so that no new state is mistaken for a leftover.
        if let Ok(runtime) = &loaded {
            let of_component = |kind: &&&dyn WorkloadKind| kind.component().as_ref() == Some(&code);
            KINDS.iter().filter(of_component).for_each(|kind| {
                remove_leftovers(node, *kind, Some(runtime));
            });
        }
        self.components.put(code, loaded);
        self.redeploy_all(node);
        self.redeploy_pure(node);
        self.changed.notify_waiters();
    }

    /// Wakes the loader after users have changed, because their deployments may have to be held or released.
    pub(super) fn check_owners(&self) {
        self.components.signal().wake();
    }

    /// Calls [`Plugins::redeploy`] for each bucket.
    pub(super) fn redeploy_all(&self, node: &Arc<Node>) {
        for name in node.cluster().buckets.keys() {
            if let Some(bucket) = node.bucket(name) {
                self.redeploy(node, &bucket);
            }
        }
    }

    /// Starts the deployments of a bucket that was just opened here.
    pub(super) fn deploy_found(&self, node: &Arc<Node>, bucket: &Arc<Bucket>) {
        self.apply_agreed(node, bucket, Vbids::default);
    }

    /// Adapts the deployments of a bucket to the agreed state. Failed ones are retried, except packages that have run,
    /// which wait for an operator's request.
    pub(super) fn redeploy(&self, node: &Arc<Node>, bucket: &Arc<Bucket>) {
        self.apply_agreed(node, bucket, || bucket.active_vbids());
    }

    /// Adapts the deployments without a feed to the agreed state. Until the code of one is loaded, its predecessor
    /// continues.
    pub(super) fn redeploy_pure(&self, node: &Arc<Node>) {
        let _deploying = self.deploying.lock();
        self.pure.reconcile(node, &self.components);
        let buckets: Vec<_> = node.buckets();
        buckets.iter().for_each(|bucket| pure::place_resolver(node, bucket));
        // A needed component may not be loaded.
        self.components.signal().wake();
        self.changed.notify_waiters();
    }

    /// As [`Plugins::redeploy`]. For deployments that are new here, other nodes may answer for vBuckets that are not
    /// `served` here.
    fn apply_agreed(&self, node: &Arc<Node>, bucket: &Arc<Bucket>, served: impl Fn() -> Vbids) {
        let _deploying = self.deploying.lock();
        // Read under the lock, so that the last caller uses the newest state.
        let cluster = node.cluster();
        let Some(config) = cluster.buckets.get(&bucket.name) else { return };
        let services = node.services();
        let agreed = AgreedState { cluster: &cluster, node: node.id(), bucket: config, services };
        self.record_new(KINDS.iter().flat_map(|kind| kind.names(&agreed)), served);
        let mut wanted: Vec<Spec> =
            KINDS.iter().flat_map(|kind| self.specs(*kind, &agreed)).collect();
        let users = node.users().clone();
        wanted.iter_mut().for_each(|spec| spec.hold(&users));
        self.slots.write().retain(|name, slot| {
            let ours = Arc::ptr_eq(&slot.serving.bucket, bucket);
            let of_the_bucket = slot.serving.bucket.name == bucket.name;
            let kept = !of_the_bucket || ours && wanted.iter().any(|spec| spec.name == *name);
            if !kept {
                self.stop_slot(slot);
            }
            kept
        });
        for spec in wanted {
            self.place(node, bucket, spec);
        }
        // A needed component may not be loaded.
        self.components.signal().wake();
    }

    /// Returns the wanted deployments of a kind, as far as they are known without the component of the kind.
    fn specs(&self, kind: &dyn WorkloadKind, agreed: &AgreedState<'_>) -> Vec<Spec> {
        let runtime = kind.component().and_then(|code| self.components.get(&code).ok());
        kind.specs(agreed, runtime.as_ref())
    }

    /// Records new deployments that do not run here, with the vBuckets that are served now.
    fn record_new(&self, names: impl Iterator<Item = String>, served: impl Fn() -> Vbids) {
        let (slots, mut served_when_announced) =
            (self.slots.read(), self.served_when_announced.lock());
        for name in names.filter(|name| !slots.contains_key(name)) {
            served_when_announced.entry(name).or_insert_with(&served);
        }
    }

    /// Adapts the deployments under one name.
    fn place(&self, node: &Arc<Node>, bucket: &Arc<Bucket>, spec: Spec) {
        let Ok(runtime) = self.components.get(&spec.code) else {
            // Until the component is loaded, the running deployment continues.
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
            if spec.share().is_some_and(|share| share.held.is_empty()) {
                return;
            }
            self.wait_for_space(&spec.space);
            let served_when_announced = self.served_when_announced.lock().remove(&name);
            put(deploy(node, bucket, &runtime, spec, served_when_announced), None);
            return;
        };
        if spec.is_part_of(&serving.spec) && serving.progress() == Progress::Running {
            building.iter().for_each(|building| self.stop_one(building));
            put(serving, None);
            return;
        }
        if serving.spec.space == spec.space {
            if let Some(building) = building {
                self.stop_one(&building);
            }
            if serving.is_as(&spec) {
                put(serving, None);
            } else {
                // The next deployment continues with the state.
                serving.end(Progress::HandedOver);
                serving.wait_for_feeds();
                let next = deploy(node, bucket, &runtime, spec, None);
                next.adopt_log(&serving);
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
            self.stop_one(&building);
        }
        self.wait_for_space(&spec.space);
        let answers = matches!(serving.progress(), Progress::Running | Progress::Paused);
        if spec.kind.keeps_serving(&spec) && answers {
            let building = deploy(node, bucket, &runtime, spec, None);
            put(serving, Some(building));
            // The new deployment may have caught up before it was registered as a replacement.
            bucket.listeners.wake_all();
        } else {
            self.stop_one(&serving);
            put(deploy(node, bucket, &runtime, spec, None), None);
        }
    }

    /// Makes `deployment`, which has caught up, replace the one for which it was built. Returns false if deployments are
    /// being adapted at the moment, because that thread may be waiting for the caller's.
    pub(super) fn promote(&self, deployment: &Deployment) -> bool {
        let Some(_deploying) = self.deploying.try_lock() else { return false };
        let mut slots = self.slots.write();
        let Some(slot) = slots.get_mut(&deployment.name) else { return true };
        match slot.building.take() {
            Some(building) if std::ptr::eq(&*building, deployment) => {
                let before = std::mem::replace(&mut slot.serving, building);
                self.stop_one(&before);
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

    pub(super) fn undeploy_bucket(&self, bucket: &Arc<Bucket>) {
        self.slots.write().retain(|_, slot| {
            let kept = !Arc::ptr_eq(&slot.serving.bucket, bucket);
            if !kept {
                self.stop_slot(slot);
            }
            kept
        });
    }

    fn stop_slot(&self, slot: &Slot) {
        self.stop_one(&slot.serving);
        slot.building.iter().for_each(|building| self.stop_one(building));
    }

    fn stop_one(&self, deployment: &Arc<Deployment>) {
        deployment.end(Progress::Removed);
        let mut leaving = self.leaving.lock();
        leaving.retain(|deployment| deployment.is_feeding());
        leaving.push(Arc::clone(deployment));
    }

    /// Waits until no other feed uses `space`: if a former definition returns, its old rows must be removed first.
    fn wait_for_space(&self, space: &str) {
        let leaving: Vec<_> = self.leaving.lock().clone();
        leaving
            .iter()
            .filter(|deployment| deployment.spec.space == space)
            .for_each(|deployment| deployment.wait_for_feeds());
    }
}

/// Removes the spaces of a kind that remained because the node stopped while it removed deployments.
pub(super) fn remove_leftovers(node: &Node, kind: &dyn WorkloadKind, runtime: Option<&Runtime>) {
    let cluster = node.cluster();
    let services = node.services();
    let of = |bucket| {
        let agreed = AgreedState { cluster: &cluster, node: node.id(), bucket, services };
        kind.specs(&agreed, runtime)
    };
    let wanted: Vec<Spec> = cluster.buckets.values().flat_map(of).collect();
    if let Err(error) = remove_spaces(node, &format!("{}/", kind.name()), &wanted) {
        let name = kind.name();
        tracing::warn!("state of {name} that are gone could not be removed: {error}");
    }
}

/// Removes leftover spaces of all kinds whose spaces are known without a component.
pub(super) fn remove_known_leftovers(node: &Node) {
    let known = KINDS.iter().filter(|kind| kind.component().is_none());
    known.for_each(|kind| remove_leftovers(node, *kind, None));
}

/// Removes the spaces whose names begin with `prefix`, except wanted ones.
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
pub(super) fn remove_state(node: &Node, space: &str) -> Result<(), nacre_store::Error> {
    SyncCounts::open(node.platform.spaces())?.forget(space)?;
    node.platform.states().remove(space)
}
