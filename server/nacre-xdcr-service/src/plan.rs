//! A driver's plan, and the status that it reports.

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

/// The longest checkpoint interval, in seconds. Checkpoints are cheap, and frequent ones save repetitions after a
/// failure.
const CHECKPOINT_S_MAX: u64 = 60;
/// Maximum number of connections per target node, whatever the settings say.
const LINKS_MAX: u64 = 16;
/// Maximum number of history portions read per step by a replication of high priority.
const READS_MAX: usize = 64;
/// The same for one of low priority. Replications that have something to read take turns, so that it gets about 8 portions of 97.
/// Source: Couchbase, which gives 89 tokens to high and 8 to low priorities.
const LOW_READS_MAX: usize = 6;
const _: () = assert!(LOW_READS_MAX < READS_MAX);

/// The agreed state of one replication.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    /// The replication.
    pub replication: Replication,
    /// The reference to the target cluster; `None` when it was deleted.
    pub reference: Option<Reference>,
    /// UUID of this cluster.
    pub cluster: String,
    /// Conflict resolution of the source's bucket, as REST names it.
    pub resolution: String,
    /// True if a plugin resolves conflicts in the source's bucket.
    pub has_resolver: bool,
    /// The CAS from which the source's bucket keeps histories, if it does.
    pub histories_since: Option<Cas>,
    /// The filter expression, if there is one; `Err` with a sentence when it cannot be parsed.
    pub expression: Result<Option<Arc<Expression>>, String>,
    /// Which conflicts are logged, and where.
    pub log: Option<Arc<LogRules>>,
    /// Limit of this node in bytes per second; 0 is unlimited.
    pub limit: u64,
}

impl Plan {
    /// Returns the plan of a replication; `None` when its bucket does not exist.
    pub fn of(cluster: &Cluster, agreed: &Agreed, replication: &Replication) -> Option<Plan> {
        let bucket = cluster.buckets.get(&replication.source)?;
        if bucket.uuid != replication.source_uuid {
            return None;
        }
        let chosen = replication.chosen();
        // The configured limit applies to the whole cluster.
        let nodes = cluster.serving_nodes().len().max(1) as u64;
        Some(Plan {
            replication: replication.clone(),
            reference: agreed.reference_to(&replication.cluster).cloned(),
            cluster: cluster.uuid.clone(),
            resolution: resolution_name(bucket.settings.conflict_resolution).to_owned(),
            has_resolver: cluster.plugins.resolver_of(&replication.source).is_some(),
            histories_since: bucket.settings.histories_since.map(Cas),
            expression: expression_of(&chosen),
            // Invalid settings were refused when they were set.
            log: LogRules::read(&chosen).ok().flatten().map(Arc::new),
            limit: (chosen.number("networkUsageLimit") << 20).div_ceil(nodes),
        })
    }

    /// Returns true if pipelines of `other` can continue under this plan once their settings are adjusted.
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

    /// Returns true if pipelines of `other` need adjusted settings under this plan.
    pub fn adjusts(&self, other: &Plan) -> bool {
        let adjusted = |plan: &Plan| {
            let mut settings = plan.replication.settings.clone();
            settings.remove("pauseRequested");
            (settings, plan.expression.clone())
        };
        adjusted(self) != adjusted(other)
    }

    /// Returns the number of connections to each node of the target.
    pub fn links_per_node(&self) -> usize {
        let links = self.replication.chosen().number("targetNozzlePerNode");
        links.clamp(1, LINKS_MAX) as usize
    }

    /// Returns the maximum number of history portions to read per step, according to `priority`. A replication of medium priority
    /// counts as low until it `has_caught_up` for the first time, then as high.
    pub fn reads_max(&self, has_caught_up: bool) -> usize {
        match self.replication.chosen().text("priority").as_str() {
            "Low" => LOW_READS_MAX,
            "Medium" if !has_caught_up => LOW_READS_MAX,
            _ => READS_MAX,
        }
    }

    /// Returns the pipeline settings of a vBucket, without those that depend on the number of pipelines.
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
        settings.sends_own_only = chosen.flag("forwardLocalOnly");
        settings.filter = self.filter(&chosen);
        settings.optimistic_bytes = chosen.number("optimisticReplicationThreshold") as usize;
        settings.compresses = chosen.text("compressionType") != "None";
        settings.batch_count = chosen.number("workerBatchSize") as usize;
        settings.batch_bytes = (chosen.number("docBatchSizeKb") as usize) << 10;
        let checkpoint_s = chosen.number("checkpointInterval").min(CHECKPOINT_S_MAX);
        settings.checkpoint_ns = checkpoint_s * 1_000_000_000;
        settings.timeout_ns = 5_000_000_000;
        settings.seed = u64::from(vbid.0);
        settings
    }

    fn filter(&self, chosen: &Chosen) -> Filter {
        let condition = self.expression.clone().ok().flatten();
        // A switch that drops deletions drops only some of them once it is refined by an expression.
        let selects_deletions = chosen.flag("filterDeletionsWithExpression");
        let selects_expirations = chosen.flag("filterExpirationsWithExpression");
        Filter {
            drops_deletions: chosen.flag("filterDeletion") && !selects_deletions,
            drops_expirations: chosen.flag("filterExpiration") && !selects_expirations,
            strips_expiry: chosen.flag("filterBypassExpiry"),
            drops_binary: chosen.flag("filterBinary"),
            drops_uncommitted: chosen.flag("filterBypassUncommittedTxn"),
            selects_deletions,
            selects_expirations,
            condition: condition.map(|it| it as Arc<dyn Condition>),
        }
    }
}

/// Parses the filter expression of `chosen`, if it has one.
///
/// # Errors
/// A sentence about the error.
pub(crate) fn expression_of(chosen: &Chosen) -> Result<Option<Arc<Expression>>, String> {
    let text = chosen.text("filterExpression");
    let read = |text: &str| Expression::parse(text).map(Arc::new);
    Some(text.trim()).filter(|text| !text.is_empty()).map(read).transpose()
}

/// Returns the name of a conflict resolution in REST.
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
    /// No attempt was made yet.
    #[default]
    Init,
    /// They can be reached.
    Ok,
    /// They refuse the login.
    Unauthorized,
    /// They cannot be reached.
    Error,
}

impl Connectivity {
    /// Returns the state that a failure implies.
    pub fn of(reason: &str) -> Connectivity {
        let words = ["password", "may not", "log in", "client certificate"];
        let is_login = words.iter().any(|word| reason.contains(word));
        if is_login { Connectivity::Unauthorized } else { Connectivity::Error }
    }

    /// Returns the name in REST.
    pub fn name(self) -> &'static str {
        match self {
            Connectivity::Init => "RC_INIT",
            Connectivity::Ok => "RC_OK",
            Connectivity::Unauthorized => "RC_AUTH_ERR",
            Connectivity::Error => "RC_ERROR",
        }
    }
}

/// The handle of a driver, to control it and to read its status.
pub(crate) struct Handle {
    /// ID of the replication.
    pub id: String,
    /// UUID of the bucket whose history is read.
    pub bucket: String,
    /// The driver's inbox.
    pub inbox: Arc<Inbox>,
    plan: Mutex<Arc<Plan>>,
    status: Mutex<Status>,
    connectivity: Mutex<Connectivity>,
    is_over: AtomicBool,
}

impl Handle {
    /// Creates the handle of a driver with its first plan.
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

    /// Returns the plan. A change of the plan always changes the `Arc`.
    pub fn plan(&self) -> Arc<Plan> {
        Arc::clone(&self.plan.lock())
    }

    /// Replaces the plan.
    pub fn set_plan(&self, plan: Plan) {
        let mut known = self.plan.lock();
        if **known != plan {
            *known = Arc::new(plan);
            drop(known);
            self.inbox.signal.wake();
        }
    }

    /// Returns the driver's status.
    pub fn status(&self) -> Status {
        self.status.lock().clone()
    }

    /// Publishes the driver's status.
    pub fn set_status(&self, status: Status) {
        *self.status.lock() = status;
    }

    /// Returns whether the target can be reached.
    pub fn connectivity(&self) -> Connectivity {
        *self.connectivity.lock()
    }

    /// Records whether the target can be reached.
    pub fn set_connectivity(&self, connectivity: Connectivity) {
        *self.connectivity.lock() = connectivity;
    }

    /// Asks the driver to end.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        self.inbox.signal.wake();
    }

    /// Returns true if the driver should end.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn plan(settings: &[(&str, Value)]) -> Plan {
        let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        let replication = Replication { settings: settings.collect(), ..Replication::sample() };
        Plan {
            expression: expression_of(&replication.chosen()),
            replication,
            reference: None,
            cluster: "here".to_owned(),
            resolution: "seqno".to_owned(),
            has_resolver: false,
            histories_since: None,
            log: None,
            limit: 0,
        }
    }

    #[test]
    fn a_priority_decides_how_much_is_read_at_a_time() {
        let reads = |priority: &str, has_caught_up| {
            plan(&[("priority", json!(priority))]).reads_max(has_caught_up)
        };
        assert_eq!((reads("High", false), reads("High", true)), (READS_MAX, READS_MAX));
        assert_eq!((reads("Low", false), reads("Low", true)), (LOW_READS_MAX, LOW_READS_MAX));
        assert_eq!((reads("Medium", false), reads("Medium", true)), (LOW_READS_MAX, READS_MAX));
        assert_eq!(plan(&[]).reads_max(false), READS_MAX);
    }

    #[test]
    fn an_expression_refines_a_switch_that_drops_deletions() {
        let filter = |selects: bool| {
            let plan = plan(&[
                ("filterDeletion", json!(true)),
                ("filterDeletionsWithExpression", json!(selects)),
                ("filterExpression", json!("META().id = 'a'")),
            ]);
            plan.filter(&plan.replication.chosen())
        };
        let (all, some) = (filter(false), filter(true));
        assert_eq!((all.drops_deletions, all.selects_deletions), (true, false));
        assert_eq!((some.drops_deletions, some.selects_deletions), (false, true));
        assert!(all.condition.is_some() && !some.drops_expirations && !some.selects_expirations);
    }
}
