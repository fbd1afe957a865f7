//! Deployments without a feed: functions that queries call, and conflict resolvers. They have no state, and each node runs them
//! independently.

use super::deployment::keep_capsules;
use super::kind::code_of;
use super::spec::Code;
use super::{Components, Runtime};
use crate::NodePlugins;
use nacre_bucket::Bucket;
use nacre_bucket::conflict::{Conflicts, Resolve, Undecided};
use nacre_cluster::{Cluster, World};
use nacre_node::Node;
use nacre_node::Platform;
use nacre_sandbox::{
    Account, Budgets, Caller, Error, Functions, Grants, Limits, Manifest, Queries, Resolver, Setup,
    Status,
};
use nacre_vbucket::{ConflictContext, Verdict, Version};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Maximum number of instances of one deployment in use, so that other deployments get some of the engine's instances.
const CALLERS_MAX: usize = 128;
/// Maximum number of failures that a deployment keeps.
const FAILURES_KEPT: usize = 32;

/// Maximum number of failed calls that are stored per time window; a folder keeps no more of one deployment.
const CAPSULES_MAX: usize = 16;
const CAPSULES_WINDOW_NS: u64 = 10_000_000_000;

/// Returns the limits of a package of a world without a state.
pub(super) fn limits(manifest: &Manifest) -> Limits {
    manifest.limits.within(Limits::pure())
}

/// A wanted deployment without a feed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Spec {
    name: String,
    world: World,
    pub code: Code,
    version: String,
    config: String,
    limits: Limits,
    grants: Grants,
}

/// Returns the wanted deployments without a feed.
pub(super) fn specs(cluster: &Cluster) -> Vec<Spec> {
    let plugins = &cluster.plugins;
    let one = |(name, wanted): (&String, &nacre_cluster::Deployment)| {
        // A deployed package cannot be deleted, and its manifest was checked before it was stored.
        let package = plugins.package(&wanted.package, &wanted.version).ok()?;
        let manifest = Manifest::read(&package.manifest).ok()?;
        Some(Spec {
            name: name.clone(),
            world: wanted.world,
            code: code_of(&manifest, &package.digest),
            version: wanted.version.clone(),
            config: wanted.config.clone(),
            limits: limits(&manifest),
            grants: manifest.grants(),
        })
    };
    let all = plugins.deployments.iter();
    all.filter(|(_, wanted)| !wanted.world.follows_documents()).filter_map(one).collect()
}

/// Returns the code of a deployment without a feed.
pub(super) fn code(cluster: &Cluster, name: &str) -> Option<Code> {
    specs(cluster).into_iter().find(|spec| spec.name == name).map(|spec| spec.code)
}

/// The state of a deployment.
enum Running {
    Functions(Functions),
    Resolver(Resolver),
    /// Cannot run; the reason is for the deployer.
    Failed(String),
}

/// A failed call whose caller made no mistake.
#[derive(Clone, Debug)]
pub struct Failed {
    /// The function, or the key of the document.
    pub what: String,
    /// The reason of the failure.
    pub reason: String,
}

/// A deployment without a feed.
pub struct Pure {
    spec: Spec,
    running: Running,
    /// Has one clone per instance in use.
    callers: Arc<()>,
    failures: Mutex<VecDeque<Failed>>,
    /// The platform that stores failed calls, and the number of calls that it may still store.
    platform: Arc<dyn Platform>,
    allowance: Mutex<Allowance>,
}

impl Pure {
    fn open(spec: Spec, runtime: &Runtime, platform: Arc<dyn Platform>, budgets: Budgets) -> Pure {
        let setup = Setup {
            limits: spec.limits,
            grants: spec.grants.clone(),
            budgets,
            ..Setup::new(&spec.name, &spec.config)
        };
        let plugin = runtime.plugin.clone();
        let opened = match spec.world {
            World::Resolver => Resolver::open(plugin, setup).map(Running::Resolver),
            _ => Functions::open(plugin, setup).map(Running::Functions),
        };
        let running = opened.unwrap_or_else(|error| {
            tracing::error!("{} cannot be deployed: {error}", spec.name);
            Running::Failed(error.to_string())
        });
        Pure {
            spec,
            running,
            callers: Arc::default(),
            failures: Mutex::default(),
            platform,
            allowance: Mutex::default(),
        }
    }

    /// Returns the name of the deployment.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// Returns the version of the package that it runs.
    pub fn version(&self) -> &str {
        &self.spec.version
    }

    /// Returns the reason why it cannot run, if any.
    pub fn failure(&self) -> Option<&str> {
        match &self.running {
            Running::Failed(reason) => Some(reason),
            Running::Functions(_) | Running::Resolver(_) => None,
        }
    }

    /// Returns the counters of the plugin's host.
    pub fn status(&self) -> Status {
        match &self.running {
            Running::Functions(functions) => functions.status(),
            Running::Resolver(resolver) => resolver.status(),
            Running::Failed(_) => Status::default(),
        }
    }

    /// Returns the last failed calls whose callers made no mistake.
    pub fn failures(&self) -> Vec<Failed> {
        self.failures.lock().iter().cloned().collect()
    }

    /// Returns an instance for one request, which calls functions in it one at a time.
    ///
    /// # Errors
    /// The reason why no instance is available, for the user.
    pub fn caller(self: &Arc<Pure>, account: Arc<Account>) -> Result<PureCaller, String> {
        let functions = match &self.running {
            Running::Functions(functions) => functions,
            Running::Resolver(_) => return Err("it has no functions".into()),
            Running::Failed(reason) => return Err(reason.clone()),
        };
        let full = || format!("{CALLERS_MAX} requests call it already");
        let held = held(&self.callers).ok_or_else(full)?;
        let caller = functions
            .caller(Some(account))
            .map_err(|error| self.failure_message("init", &error))?;
        Ok(PureCaller { deployment: Arc::clone(self), caller, _held: held })
    }

    /// Returns the message of a failed call of `what`, for the user. Failures that are not the caller's fault are stored and
    /// logged.
    fn failure_message(&self, what: &str, error: &Error) -> String {
        let reason = match error {
            Error::Reject { message, .. } => return message.clone(),
            Error::Deadline { after, .. } => format!("stopped after {} ms", after.as_millis()),
            error => error.to_string(),
        };
        self.record_failure(what, &reason);
        reason
    }

    /// Stores failed calls, so that their author can repeat them, at a limited rate.
    fn keep_capsules(&self) {
        let mut capsules = match &self.running {
            Running::Functions(functions) => functions.take_capsules(),
            Running::Resolver(resolver) => resolver.take_capsules(),
            Running::Failed(_) => return,
        };
        let now_ns = self.platform.now().monotonic_ns;
        capsules.truncate(self.allowance.lock().take(capsules.len(), now_ns));
        keep_capsules(&*self.platform, &self.spec.name, capsules);
    }

    /// Stores and logs a failure of the deployment.
    fn record_failure(&self, what: &str, reason: &str) {
        tracing::warn!("{}: {what}: {reason}", self.spec.name);
        self.keep_capsules();
        let mut failures = self.failures.lock();
        failures.push_back(Failed { what: what.to_owned(), reason: reason.to_owned() });
        if failures.len() > FAILURES_KEPT {
            failures.pop_front();
        }
    }
}

/// Limits events that may occur at any rate: a fixed number in each window.
#[derive(Debug, Default)]
struct Allowance {
    begun_ns: u64,
    taken: usize,
}

impl Allowance {
    /// Takes up to `wanted` events. Returns how many are allowed.
    fn take(&mut self, wanted: usize, now_ns: u64) -> usize {
        if now_ns.saturating_sub(self.begun_ns) >= CAPSULES_WINDOW_NS {
            *self = Allowance { begun_ns: now_ns, taken: 0 };
        }
        let given = wanted.min(CAPSULES_MAX - self.taken);
        self.taken += given;
        given
    }
}

/// Takes an instance slot, if one is free.
fn held(callers: &Arc<()>) -> Option<Arc<()>> {
    let held = Arc::clone(callers);
    // The deployment itself has one clone.
    (Arc::strong_count(&held) <= CALLERS_MAX + 1).then_some(held)
}

/// An instance of functions for one request. It must be dropped after a call fails.
pub struct PureCaller {
    deployment: Arc<Pure>,
    caller: Caller,
    _held: Arc<()>,
}

impl PureCaller {
    /// Calls `function` with `arguments`, a JSON array. Returns JSON. The time limit is `left`, or the deployment's limit if that
    /// is shorter.
    ///
    /// # Errors
    /// The reason why there is no result, for the user.
    pub fn call(
        &mut self,
        function: &str,
        arguments: &str,
        queries: Arc<dyn Queries>,
        left: Duration,
    ) -> Result<String, String> {
        let called = self.caller.call(function, arguments, queries, left);
        called.map_err(|error| self.deployment.failure_message(function, &error))
    }
}

/// The resolver of a bucket, identified by the name of its deployment, whatever its version.
struct Deployed {
    name: String,
    node: Weak<Node>,
}

impl Deployed {
    fn pure(&self) -> Option<Arc<Pure>> {
        self.node.upgrade()?.plugins().pure().get(&self.name)
    }
}

impl Resolve for Deployed {
    fn resolve(
        &self,
        key: &[u8],
        local: &Version,
        remote: &Version,
        context: &ConflictContext,
    ) -> Result<Verdict, Undecided> {
        // No decision is made until the resolver is loaded: the bucket's own rule would lose versions that the resolver merges.
        let pure = self.pure().ok_or(Undecided)?;
        let Running::Resolver(resolver) = &pure.running else { return Err(Undecided) };
        resolver.resolve(key, local, remote, context).map_err(|error| {
            let reason = error.to_string();
            let name = format!("{}: ", self.name);
            let what = String::from_utf8_lossy(key);
            pure.record_failure(&what, reason.strip_prefix(&name).unwrap_or(&reason));
            Undecided
        })
    }

    fn record_failure(&self, key: &[u8], reason: &str) {
        if let Some(pure) = self.pure() {
            pure.record_failure(&String::from_utf8_lossy(key), reason);
        }
    }
}

/// Makes the bucket's resolver, if one is deployed, decide from now on, as soon as it is loaded.
pub(super) fn place_resolver(node: &Arc<Node>, bucket: &Arc<Bucket>) {
    let cluster = node.cluster();
    let resolver = cluster.plugins.resolver_of(&bucket.name).map(|(name, _)| {
        let (name, node) = (name.to_owned(), Arc::downgrade(node));
        Arc::new(Deployed { name, node }) as Arc<dyn Resolve>
    });
    Conflicts::set_resolver(bucket, &*node.platform, resolver);
}

/// The loaded deployments of a node without a feed, by name.
#[derive(Default)]
pub struct PureDeployments(RwLock<BTreeMap<String, Arc<Pure>>>);

impl PureDeployments {
    /// Returns the deployment with that name.
    pub fn get(&self, name: &str) -> Option<Arc<Pure>> {
        self.0.read().get(name).cloned()
    }

    /// Returns all deployments.
    pub fn all(&self) -> Vec<Arc<Pure>> {
        self.0.read().values().cloned().collect()
    }

    /// Opens and drops deployments according to the agreed state. Only one caller at a time may do this, so that the last one
    /// uses the newest state.
    pub(super) fn reconcile(&self, node: &Node, components: &Components) {
        let wanted = specs(&node.cluster());
        self.0.write().retain(|name, _| wanted.iter().any(|spec| spec.name == *name));
        for spec in wanted {
            let is_as_wanted = |known: Arc<Pure>| {
                known.spec == spec && !matches!(known.running, Running::Failed(_))
            };
            if self.get(&spec.name).is_some_and(is_as_wanted) {
                continue;
            }
            if let Ok(runtime) = components.get(&spec.code) {
                let name = spec.name.clone();
                let budgets = node.memory().budgets().clone();
                let pure = Pure::open(spec, &runtime, Arc::clone(&node.platform), budgets);
                self.0.write().insert(name, Arc::new(pure));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_of_recorded_calls_is_limited() {
        let mut allowance = Allowance::default();
        let mut take = |wanted, s: u64| allowance.take(wanted, s * 1_000_000_000);
        assert_eq!((take(3, 0), take(14, 1), take(1, 9)), (3, 13, 0));
        assert_eq!((take(20, 10), take(1, 19), take(1, 20)), (16, 0, 1));
    }

    #[test]
    fn the_number_of_requests_with_instances_is_limited() {
        let callers = Arc::default();
        let mut all: Vec<_> = (0..CALLERS_MAX).map(|_| held(&callers).unwrap()).collect();
        assert!(held(&callers).is_none());
        assert!(held(&callers).is_none(), "whoever was refused holds nothing");
        all.pop();
        assert!(held(&callers).is_some());
    }
}
