//! Cross-cluster replication as a service: references to other clusters, replications, and the drivers that run them.
//!
//! ```text
//! REST ─► records of the agreed state ─► Xdcr::reconcile ─► a Driver for each replication on each node
//!                                                             │ pipelines of nacre-xdcr
//!                                                             ▼
//!                              Link ─► nodes of the other cluster, by the key-value protocol
//! ```
//!
//! A replication runs on every node, for the vBuckets that are active there. Nodes exchange only checkpoints, which [every node
//! receives](keeper), so that a node that takes a vBucket over resumes where the previous owner stopped.
//!
//! The crate opens sockets through nacre-client, and has threads that wait for them. Time and randomness come from the node.

mod active_pipeline;
mod checkpoints;
mod conflict_log;
mod driver;
mod expression;
mod form;
mod inbox;
mod keeper;
mod link;
mod mapping;
mod message;
mod plan;
mod record;
mod rest;
mod settings;
mod status;
mod target;
mod throttle;
mod wire;

use checkpoints::Checkpoints;
use driver::Driver;
use keeper::Keeper;
use message::{XdcrMessage, XdcrReply};
use nacre_auth::Privilege;
use nacre_bucket::{Bucket, Signal};
use nacre_cluster::Cluster;
use nacre_node::service::{
    AgreedStep, Metric, MetricKind, Operations, Permission, Route, Service, ServiceSpec,
};
use nacre_node::{Error, Node};
use parking_lot::Mutex;
use plan::{Connectivity, Handle, Plan};
use record::{Agreed, AgreedCache};
use serde_json::Value;
use status::Status;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

const ADMINISTER: &[Privilege] = &[Privilege::AdministerReplications];

/// The service's registry entry. It has no port of its own: its endpoints are served by the management service.
static SPEC: ServiceSpec = ServiceSpec {
    id: "xdcr",
    name: None,
    on_request: false,
    ports: &[],
    map: &[],
    capabilities: None,
    permissions: &[
        permission(
            "xdcr.remote_clusters",
            Some(false),
            Operations::Reads,
            &[Privilege::ReadCluster],
        ),
        permission("xdcr.remote_clusters", Some(false), Operations::Writes, ADMINISTER),
        permission("xdcr.settings", Some(false), Operations::Reads, &[Privilege::ReadCluster]),
        permission("xdcr.settings", Some(false), Operations::Writes, ADMINISTER),
        permission("xdcr", Some(true), Operations::Reads, &[Privilege::ReadCluster]),
        permission("xdcr", Some(true), Operations::Writes, ADMINISTER),
    ],
    menu: None,
};

const fn permission(
    object: &'static str,
    in_bucket: Option<bool>,
    operations: Operations,
    privileges: &'static [Privilege],
) -> Permission {
    Permission { object, in_bucket, operations, privileges }
}

/// The service.
#[derive(Default)]
pub struct Xdcr {
    drivers: Mutex<BTreeMap<String, Arc<Handle>>>,
    checkpoints: OnceLock<Arc<Checkpoints>>,
    agreed: AgreedCache,
    keeper: Signal,
    is_over: AtomicBool,
}

impl Xdcr {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Returns the checkpoints of this node.
    fn checkpoints(&self, node: &Node) -> Result<Arc<Checkpoints>, Error> {
        if let Some(checkpoints) = self.checkpoints.get() {
            return Ok(Arc::clone(checkpoints));
        }
        let opened = Arc::new(Checkpoints::open(node.service_space(SPEC.id)?)?);
        Ok(Arc::clone(self.checkpoints.get_or_init(|| opened)))
    }

    /// Ensures that each replication whose bucket is on this node has a driver.
    fn follow(&self, node: &Arc<Node>, cluster: &Cluster) -> Result<(), Error> {
        let mut drivers = self.drivers.lock();
        if self.is_over() {
            return Ok(());
        }
        let agreed = Agreed::of(cluster);
        let mut plans = BTreeMap::new();
        for replication in &agreed.replications {
            if let Some(plan) = Plan::of(cluster, &agreed, replication) {
                plans.insert(replication.id.clone(), plan);
            }
        }
        let is_gone = |id: &String, handle: &mut Arc<Handle>| {
            let plan = plans.get(id);
            let is_same = plan.is_some_and(|plan| {
                plan.replication.uid == handle.plan().replication.uid
                    && plan.replication.source_uuid == handle.bucket
            });
            !is_same
        };
        drivers.extract_if(.., is_gone).for_each(|(_, handle)| handle.end());
        for (id, plan) in plans {
            if let Some(handle) = drivers.get(&id) {
                handle.set_plan(plan);
                continue;
            }
            // `open_bucket` calls this again for a bucket that is opened later.
            let bucket = node.bucket(&plan.replication.source);
            let Some(bucket) = bucket.filter(|it| it.uuid == plan.replication.source_uuid) else {
                continue;
            };
            let handle = Arc::new(Handle::new(plan));
            let checkpoints = self.checkpoints(node)?;
            node.spawn(Box::new(Driver::new(node, &bucket, &handle, &checkpoints)));
            drivers.insert(id, handle);
        }
        Ok(())
    }

    /// Returns the status of each replication on this node, by ID.
    fn own_statuses(&self) -> Vec<(String, Status)> {
        let drivers = self.drivers.lock();
        drivers.iter().map(|(id, handle)| (id.clone(), handle.status())).collect()
    }

    /// Returns the status of each replication over all nodes, by ID.
    fn statuses(&self, node: &Arc<Node>) -> BTreeMap<String, Status> {
        let mut all: BTreeMap<String, Status> = self.own_statuses().into_iter().collect();
        for reply in node.ask_members(&XdcrMessage::Statuses) {
            let XdcrReply::Statuses(statuses) = reply else { continue };
            for (id, status) in statuses {
                match all.get_mut(&id) {
                    Some(known) => known.add(&status),
                    None => drop(all.insert(id, status)),
                }
            }
        }
        all
    }

    /// Returns whether this node can reach the cluster with this UUID.
    fn connectivity(&self, cluster: &str) -> Connectivity {
        let drivers = self.drivers.lock();
        let to_it = drivers.values().filter(|it| it.plan().replication.cluster == cluster);
        to_it.map(|handle| handle.connectivity()).next().unwrap_or(Connectivity::Ok)
    }
}

/// Returns the metrics of a node with this sum over its replications.
fn metrics_of(sum: &Status) -> Vec<Metric> {
    use MetricKind::{Counter, Gauge};
    let sums = &sum.sums;
    let rows = [
        ("xdcr_changes_left", "Versions that are not replicated yet", Gauge, sum.changes_left),
        ("xdcr_docs_received", "Versions read from history", Counter, sums.received),
        ("xdcr_docs_processed", "Versions that are done", Counter, sums.done),
        ("xdcr_docs_sent", "Versions sent, with repetitions", Counter, sums.sent),
        ("xdcr_docs_retried", "Repeated attempts to look up or send", Counter, sums.retried),
        ("xdcr_docs_written", "Versions that targets have taken", Counter, sums.stored),
        ("xdcr_docs_checked", "Versions looked up at targets first", Counter, sums.looked_up),
        ("xdcr_docs_filtered", "Versions that filters left out", Counter, sums.filtered),
        ("xdcr_docs_cloned", "Further copies for other collections", Counter, sums.cloned),
        (
            "xdcr_docs_failed_cr_source",
            "Not sent: the target has a later one",
            Counter,
            sums.kept_at_source,
        ),
        (
            "xdcr_docs_failed_cr_target",
            "Sent, but the target kept its own",
            Counter,
            sums.kept_at_target,
        ),
        ("xdcr_docs_stuck", "Versions that were put aside", Gauge, sum.stuck),
        ("xdcr_window_bytes", "Bytes on their way to targets", Gauge, sum.window_bytes),
        ("xdcr_reroutes", "vBuckets looked for at other nodes of targets", Counter, sum.reroutes),
        ("xdcr_checkpoints", "Checkpoints of vBuckets", Counter, sums.checkpoints),
        ("xdcr_conflicts_logged", "Conflicts written to a log", Counter, sum.logged),
        ("xdcr_conflicts_not_logged", "Conflicts not written to a log", Counter, sum.not_logged),
        ("xdcr_conflict_log_timeouts", "Sent before they were logged", Counter, sums.log_timeouts),
    ];
    let metric = |(name, help, kind, value)| Metric { name, help, kind, value };
    rows.into_iter().map(metric).collect()
}

impl Service for Xdcr {
    fn spec(&self) -> &'static ServiceSpec {
        &SPEC
    }

    fn routes(&self) -> &'static [Route] {
        rest::ROUTES
    }

    fn tasks(&self, node: &Arc<Node>) -> Vec<Value> {
        rest::tasks(self, node)
    }

    fn metrics(&self, _node: &Arc<Node>) -> Vec<Metric> {
        let mut sum = Status::default();
        self.own_statuses().iter().for_each(|(_, status)| sum.add(status));
        metrics_of(&sum)
    }

    fn answer(&self, node: &Arc<Node>, message: &[u8], left: Duration) -> Vec<u8> {
        node.answer_message::<XdcrMessage>(message, left)
    }

    fn start(&self, node: &Arc<Node>) {
        node.spawn(Box::new(Keeper::new(node, self.keeper.clone())));
        if let Err(error) = self.follow(node, &node.cluster()) {
            tracing::error!("replication cannot begin: {error}");
        }
    }

    fn reconcile(&self, node: &Arc<Node>, step: &AgreedStep<'_>) -> Result<(), Error> {
        self.follow(node, step.after)
    }

    fn open_bucket(&self, node: &Arc<Node>, _bucket: &Arc<Bucket>) {
        if let Err(error) = self.follow(node, &node.cluster()) {
            tracing::error!("replication cannot begin: {error}");
        }
    }

    fn stop(&self) {
        self.is_over.store(true, Ordering::Release);
        self.keeper.wake();
        self.drivers.lock().values().for_each(|handle| handle.end());
    }
}
