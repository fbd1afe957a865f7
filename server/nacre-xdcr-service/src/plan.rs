//! What the driver of a replication is to do, and what it has to say.

use crate::conflict_log::LogRules;
use crate::expression::Expression;
use crate::inbox::Inbox;
use crate::record::{Agreed, Reference, Replication};
use crate::settings::{self, Chosen};
use crate::status::Status;
use crate::target::Target;
use nacre_cluster::{Cluster, ConflictResolution};
use nacre_types::{Cas, Vbid};
use nacre_vbucket::Resolution;
use nacre_xdcr::{Condition, Filter, Policy, Settings, Site, SourceId};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A checkpoint is made at least that often, in seconds: it is cheap, and what is sent again after a failure is less.
const CHECKPOINT_S_MAX: u64 = 60;
/// Connections to a node of the target, at most, whatever the settings say.
const LINKS_MAX: u64 = 16;

/// What the nodes have agreed on about one replication.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    /// The replication.
    pub replication: Replication,
    /// The reference to its target; `None` when there is none any more.
    pub reference: Option<Reference>,
    /// UUID of this cluster.
    pub cluster: String,
    /// How the source's bucket resolves conflicts, in the words of REST.
    pub resolution: String,
    /// True if a plugin resolves conflicts in the source's bucket.
    pub has_resolver: bool,
    /// The CAS from which on the source's bucket keeps histories, if it does.
    pub histories_since: Option<Cas>,
    /// The condition on documents that go; `Err` with a sentence when it cannot be read.
    pub expression: Result<Option<Arc<Expression>>, String>,
    /// Which conflicts are logged, and where.
    pub log: Option<Arc<LogRules>>,
    /// Bytes that each node may send a second; 0 is no limit.
    pub limit: u64,
}

impl Plan {
    /// The plan of a replication; `None` when its bucket is not there.
    pub fn of(cluster: &Cluster, agreed: &Agreed, replication: &Replication) -> Option<Plan> {
        let bucket = cluster.buckets.get(&replication.source)?;
        if bucket.uuid != replication.source_uuid {
            return None;
        }
        let chosen = replication.chosen();
        // The limit is one of the whole cluster.
        let nodes = cluster.serving_nodes().len().max(1) as u64;
        Some(Plan {
            replication: replication.clone(),
            reference: agreed.reference_to(&replication.cluster).cloned(),
            cluster: cluster.uuid.clone(),
            resolution: resolution_name(bucket.settings.conflict_resolution).to_owned(),
            has_resolver: cluster.plugins.resolver_of(&replication.source).is_some(),
            histories_since: bucket.settings.histories_since.map(Cas),
            expression: expression_of(&chosen),
            // Settings that cannot be read were refused.
            log: LogRules::read(&chosen).ok().flatten().map(Arc::new),
            limit: (chosen.number("networkUsageLimit") << 20).div_ceil(nodes),
        })
    }

    /// Returns true if pipelines of `other` can go on under this plan, once their settings are adjusted.
    pub fn runs_like(&self, other: &Plan) -> bool {
        let structure = |plan: &Plan| {
            let mut plan = plan.clone();
            plan.replication.settings.retain(|name, _| settings::is_structural(name));
            plan.reference = None;
            plan.expression = Ok(None);
            plan.log = None;
            plan.limit = 0;
            plan
        };
        structure(self) == structure(other)
    }

    /// Returns true if pipelines of `other` have other settings under this plan.
    pub fn adjusts(&self, other: &Plan) -> bool {
        let adjusted = |plan: &Plan| {
            let mut settings = plan.replication.settings.clone();
            settings.remove("pauseRequested");
            (settings, plan.expression.clone())
        };
        adjusted(self) != adjusted(other)
    }

    /// Connections to each node of the target.
    pub fn links_per_node(&self) -> usize {
        let links = self.replication.chosen().number("targetNozzlePerNode");
        links.clamp(1, LINKS_MAX) as usize
    }

    /// Settings of the pipeline of a vBucket, without those that depend on how many there are.
    pub fn settings(&self, vbid: Vbid, vbuckets: u16, target: &Target, there: u16) -> Settings {
        let chosen = self.replication.chosen();
        let site = |bucket: &str, cluster: &str, since: Option<Cas>| Site {
            id: SourceId::of(bucket, cluster),
            since: since.unwrap_or(Cas(u64::MAX)),
        };
        let source = site(&self.replication.source_uuid, &self.cluster, self.histories_since);
        let keeps_histories = self.histories_since.is_some() && target.histories_since.is_some();
        let remote = site(&target.uuid, &target.cluster.uuid, target.histories_since);
        let rule = match self.resolution.as_str() {
            "lww" => Resolution::LastWriteWins,
            _ => Resolution::Seqno,
        };
        let policy = if self.has_resolver { Policy::Resolver(rule) } else { Policy::Rule(rule) };
        let mut settings = Settings::new(source, remote, vbid, vbuckets, policy);
        settings.target_vbuckets = there;
        settings.keeps_histories = keeps_histories;
        settings.logs_conflicts = self.log.is_some();
        let condition = self.expression.clone().ok().flatten();
        settings.filter = Filter {
            drops_deletions: chosen.flag("filterDeletion"),
            drops_expirations: chosen.flag("filterExpiration"),
            strips_expiry: chosen.flag("filterBypassExpiry"),
            drops_binary: chosen.flag("filterBinary"),
            drops_uncommitted: chosen.flag("filterBypassUncommittedTxn"),
            condition: condition.map(|it| it as Arc<dyn Condition>),
        };
        settings.optimistic_bytes = chosen.number("optimisticReplicationThreshold") as usize;
        settings.compresses = chosen.text("compressionType") != "None";
        settings.batch_count = chosen.number("workerBatchSize") as usize;
        let checkpoint_s = chosen.number("checkpointInterval").min(CHECKPOINT_S_MAX);
        settings.checkpoint_ns = checkpoint_s * 1_000_000_000;
        settings.timeout_ns = 5_000_000_000;
        settings.seed = u64::from(vbid.0);
        settings
    }
}

/// The condition on documents that `chosen` has, if it has one.
///
/// # Errors
/// A sentence about what cannot be read.
pub(crate) fn expression_of(chosen: &Chosen) -> Result<Option<Arc<Expression>>, String> {
    let text = chosen.text("filterExpression");
    let read = |text: &str| Expression::parse(text).map(Arc::new);
    Some(text.trim()).filter(|text| !text.is_empty()).map(read).transpose()
}

/// The word for a conflict resolution in REST.
pub(crate) fn resolution_name(resolution: ConflictResolution) -> &'static str {
    match resolution {
        ConflictResolution::Seqno => "seqno",
        ConflictResolution::LastWriteWins => "lww",
        ConflictResolution::Custom => "custom",
    }
}

/// Whether the target's nodes can be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Connectivity {
    /// Nobody has tried.
    #[default]
    Init,
    /// They can.
    Ok,
    /// The login is refused.
    Unauthorized,
    /// They cannot.
    Error,
}

impl Connectivity {
    /// The state that a failure shows.
    pub fn of(reason: &str) -> Connectivity {
        let is_login = ["password", "may not", "log in"].iter().any(|word| reason.contains(word));
        if is_login { Connectivity::Unauthorized } else { Connectivity::Error }
    }

    /// The word in REST.
    pub fn name(self) -> &'static str {
        match self {
            Connectivity::Init => "RC_INIT",
            Connectivity::Ok => "RC_OK",
            Connectivity::Unauthorized => "RC_AUTH_ERR",
            Connectivity::Error => "RC_ERROR",
        }
    }
}

/// A driver, for those who tell it what to do or ask what it does.
pub(crate) struct Handle {
    /// ID of the replication.
    pub id: String,
    /// UUID of the bucket whose history is read.
    pub bucket: String,
    /// What happens to the driver.
    pub inbox: Arc<Inbox>,
    plan: Mutex<Arc<Plan>>,
    status: Mutex<Status>,
    connectivity: Mutex<Connectivity>,
    is_over: AtomicBool,
}

impl Handle {
    /// A driver with its first plan.
    pub fn new(plan: Plan) -> Handle {
        Handle {
            id: plan.replication.id.clone(),
            bucket: plan.replication.source_uuid.clone(),
            inbox: Arc::default(),
            plan: Mutex::new(Arc::new(plan)),
            status: Mutex::default(),
            connectivity: Mutex::default(),
            is_over: AtomicBool::new(false),
        }
    }

    /// Returns the plan. It is another `Arc` exactly if it has changed.
    pub fn plan(&self) -> Arc<Plan> {
        Arc::clone(&self.plan.lock())
    }

    /// Gives the driver another plan.
    pub fn set_plan(&self, plan: Plan) {
        let mut known = self.plan.lock();
        if **known != plan {
            *known = Arc::new(plan);
            drop(known);
            self.inbox.signal.wake();
        }
    }

    /// Returns what the driver does.
    pub fn status(&self) -> Status {
        self.status.lock().clone()
    }

    /// Says what the driver does.
    pub fn set_status(&self, status: Status) {
        *self.status.lock() = status;
    }

    /// Returns whether the target can be reached.
    pub fn connectivity(&self) -> Connectivity {
        *self.connectivity.lock()
    }

    /// Says whether the target can be reached.
    pub fn set_connectivity(&self, connectivity: Connectivity) {
        *self.connectivity.lock() = connectivity;
    }

    /// Ends the driver.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        self.inbox.signal.wake();
    }

    /// Returns true if the driver is to end.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }
}
