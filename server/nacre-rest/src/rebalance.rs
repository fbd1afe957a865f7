//! Rebalance and failover. Paths and texts are Couchbase's where clients read them.

use super::Call;
use super::body::{Reply, blocking, done, invalid, json_reply, not_found, ok};
use super::nodes::{self, Form};
use super::refusal::refused;
use super::routes::{ADMINISTER, READ, Route, get, post, ready};
use super::{events, fixed};
use hyper::StatusCode;
use nacre_cluster::{
    AutoFailover, Change, Cluster, Copies, EndedRebalance, Membership, NodeChange, Outcome,
    RetryRebalance, ServiceName, place,
};
use nacre_links::cluster::membership::{self, SILENCE_NS_MAX, otp_node};
use nacre_node::Node;
use nacre_types::NodeId;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Timeout of a failover, which waits for leases to end and for replicas to report.
const FAILOVER_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval at which the request checks whether the failover has ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Couchbase's message when most nodes are down.
const UNSAFE: &str = "Cannot safely perform a failover at the moment";
/// Interval at which tools may ask for the progress of a rebalance, in seconds. Source: Couchbase.
const REFRESH_S: f64 = 0.25;
/// Silence in seconds after which a node is failed over.
const TIMEOUT_S: RangeInclusive<u64> = 1..=3600;
/// Fixed properties of automatic failover: it never loses a durable write; it may interrupt a rebalance; it fails over
/// at most `maxCount` nodes.
const UNCHANGING: [(&str, bool); 3] = [
    ("failoverPreserveDurabilityMajority", true),
    ("canAbortRebalance", true),
    ("disableMaxCount", false),
];
/// Period in seconds in which disk failures count, if automatic failover acted on them. Source: Couchbase's default.
const DISK_PERIOD_S: u64 = 120;
/// Delay in seconds before a failed rebalance is retried.
const RETRY_AFTER_S: RangeInclusive<u64> = 5..=3600;

const AUTO_FAILOVER: &str = "/settings/autoFailover";
const RETRY: &str = "/settings/retryRebalance";

pub(super) const ROUTES: &[Route] = &[
    get("/pools/default/rebalanceProgress", READ, |call| {
        ready(Ok(ok(&progress(&call.node.cluster()))))
    }),
    get("/pools/default/tasks", READ, |call| Box::pin(tasks(call))),
    get("/pools/default/pendingRetryRebalance", READ, |call| {
        ready(Ok(ok(&pending(&call.node.cluster()))))
    }),
    get("/logs/rebalanceReport", READ, |call| ready(last_report(&call))),
    get(AUTO_FAILOVER, READ, |call| ready(Ok(ok(&settings(&call.node.cluster().auto_failover))))),
    post(AUTO_FAILOVER, ADMINISTER, |call| Box::pin(set_auto_failover(call))),
    post("/settings/autoFailover/resetCount", ADMINISTER, |call| {
        Box::pin(async move { change(&call, Change::Nodes(NodeChange::ResetAutoFailover)).await })
    }),
    get(RETRY, READ, |call| ready(Ok(ok(&retry_settings(&call.node.cluster()))))),
    post(RETRY, ADMINISTER, |call| Box::pin(set_retry(call))),
    post("/controller/rebalance", ADMINISTER, |call| Box::pin(rebalance(call))),
    post("/controller/stopRebalance", ADMINISTER, |call| Box::pin(stop(call))),
    post("/controller/cancelRebalanceRetry/{id}", ADMINISTER, |call| Box::pin(cancel_retry(call))),
    post("/controller/startGracefulFailover", ADMINISTER, |call| Box::pin(hand_over(call))),
    post("/controller/failOver", ADMINISTER, |call| Box::pin(fail_over(call))),
    post("/controller/startFailover", ADMINISTER, |call| Box::pin(fail_over(call))),
    post("/controller/reAddNode", ADMINISTER, |call| Box::pin(recover(call, false))),
    post("/controller/setRecoveryType", ADMINISTER, |call| Box::pin(recover(call, true))),
];

/// Lists the rebalance, collections of logs, and tasks of services.
async fn tasks(call: Call) -> Result<Reply, Reply> {
    let first = task(&call.node.cluster());
    let mut tasks: Vec<Value> = std::iter::once(first).chain(events::task(&call)).collect();
    let node = Arc::clone(&call.node);
    let of_services = move || {
        let services = node.services().iter();
        services.flat_map(|service| service.tasks(&node)).collect::<Vec<_>>()
    };
    tasks.extend(blocking("the tasks of services", of_services).await?);
    Ok(ok(&Value::Array(tasks)))
}

fn last_report(call: &Call) -> Result<Reply, Reply> {
    let cluster = call.node.cluster();
    let form = Form(call.form());
    let wanted = form.optional("reportID");
    let ended = cluster.last_rebalance.as_ref();
    let ended = ended.filter(|ended| wanted.is_none_or(|id| id == ended.rebalance.id));
    Ok(ok(&report(&cluster, ended.ok_or_else(not_found)?)))
}

async fn set_auto_failover(call: Call) -> Result<Reply, Reply> {
    let settings = read_settings(&Form(call.form()), call.node.cluster().auto_failover)?;
    change(&call, Change::Nodes(NodeChange::SetAutoFailover { settings })).await
}

async fn set_retry(call: Call) -> Result<Reply, Reply> {
    let settings = read_retry_settings(&Form(call.form()), call.node.cluster().retry_rebalance)?;
    call.change(Change::Nodes(NodeChange::SetRetryRebalance { settings })).await?;
    Ok(ok(&retry_settings(&call.node.cluster())))
}

async fn cancel_retry(call: Call) -> Result<Reply, Reply> {
    let id = call.segment("id").to_owned();
    change(&call, Change::Nodes(NodeChange::GiveUpRebalance { id })).await
}

async fn rebalance(call: Call) -> Result<Reply, Reply> {
    let cluster = call.node.cluster();
    let keep = read_plan(&call, &cluster)?;
    let services = read_topology(&call, &cluster)?;
    start(&call, keep, Membership::Leaving, services).await
}

/// Graceful failover: moves the vBuckets off nodes, and then fails the nodes over.
async fn hand_over(call: Call) -> Result<Reply, Reply> {
    let cluster = call.node.cluster();
    Form(call.form()).only(&["otpNode"])?;
    let lost = named(&call)?;
    let active = cluster.active_nodes();
    let keep: BTreeSet<NodeId> = active.difference(&lost).copied().collect();
    if cluster.with_data(&keep).is_empty() {
        return Err(bad("Last server can't be failed over."));
    }
    start(&call, keep, Membership::FailedOver, BTreeMap::new()).await
}

/// Recovers a failed-over node. If `names_type` is true, the form says whether the recovery is full.
async fn recover(call: Call, names_type: bool) -> Result<Reply, Reply> {
    let cluster = call.node.cluster();
    Form(call.form()).only(&["otpNode", "recoveryType"])?;
    let id = named(&call)?.first().copied().ok_or_else(|| bad("Server does not exist."))?;
    let full = names_type && is_full(&Form(call.form()))?;
    let is_pending = cluster.recovering.contains_key(&id);
    if cluster.nodes[&id].membership != Membership::FailedOver && !is_pending {
        return Err(bad("Can only recover a server that was failed over."));
    }
    change(&call, Change::Nodes(NodeChange::Recover { id, full })).await
}

/// Returns true if all copies of a failed-over node restart from nothing (full recovery), and false if only copies with
/// a diverged history do (delta recovery).
fn is_full(form: &Form) -> Result<bool, Reply> {
    match form.optional("recoveryType") {
        Some("delta") => Ok(false),
        Some("full") => Ok(true),
        _ => {
            let reason = "recovery type must be either 'delta' or 'full'";
            Err(json_reply(StatusCode::BAD_REQUEST, &json!({"recoveryType": reason})))
        }
    }
}

fn bad(reason: &str) -> Reply {
    json_reply(StatusCode::BAD_REQUEST, &json!(reason))
}

async fn change(call: &Call, change: Change) -> Result<Reply, Reply> {
    call.change(change).await.map(|_| done())
}

/// Stops the running rebalance. Succeeds without one too, because scripts may stop a rebalance that has just ended.
async fn stop(call: Call) -> Result<Reply, Reply> {
    if call.node.cluster().rebalance.is_none() {
        return Ok(done());
    }
    match change(&call, Change::Nodes(NodeChange::StopRebalance)).await {
        Err(reply) if call.node.cluster().rebalance.is_some() => Err(reply),
        _ => Ok(done()),
    }
}

async fn start(
    call: &Call,
    keep: BTreeSet<NodeId>,
    rest: Membership,
    services: BTreeMap<NodeId, BTreeSet<ServiceName>>,
) -> Result<Reply, Reply> {
    let id = call.node.new_uuid();
    change(
        call,
        Change::Nodes(NodeChange::StartRebalance { id: id.clone(), keep, rest, services }),
    )
    .await?;
    Ok(ok(&json!({"rebalanceId": id})))
}

/// Returns the nodes that the request names.
fn named(call: &Call) -> Result<BTreeSet<NodeId>, Reply> {
    let form = Form(call.form());
    let names = form.0.iter().filter(|(field, _)| field == "otpNode");
    let found = names.map(|(_, otp)| nodes::find(&call.node, otp));
    let found: Option<BTreeSet<NodeId>> = found.collect();
    match found {
        Some(found) if !found.is_empty() => Ok(found),
        _ => Err(bad("Unknown server given.")),
    }
}

/// Returns the nodes that hold data after the requested rebalance.
fn read_plan(call: &Call, cluster: &Cluster) -> Result<BTreeSet<NodeId>, Reply> {
    let form = Form(call.form());
    let is_known = |field: &str| {
        ["knownNodes", "ejectedNodes", "deltaRecoveryBuckets"].contains(&field)
            || field.starts_with("topology[")
    };
    if let Some((field, _)) = form.0.iter().find(|(field, _)| !is_known(field)) {
        return Err(invalid(field, "Unsupported key"));
    }
    // All buckets use delta recovery, unless a node is to be recovered in full.
    let delta = form.optional("deltaRecoveryBuckets").unwrap_or_default();
    let mut delta = delta.split(',').filter(|name| !name.is_empty()).peekable();
    let is_full = delta.peek().is_some() && cluster.recovering.values().any(|full| *full);
    if is_full || delta.any(|name| !cluster.buckets.contains_key(name)) {
        let reason = json!({"deltaRecoveryNotPossible": 1});
        return Err(json_reply(StatusCode::BAD_REQUEST, &reason));
    }
    let list = |field: &str| -> Option<BTreeSet<NodeId>> {
        let names = form.optional(field).unwrap_or_default();
        let names = names.split(',').filter(|name| !name.is_empty());
        names.map(|otp| nodes::find(&call.node, otp)).collect()
    };
    let mismatch = || json_reply(StatusCode::BAD_REQUEST, &json!({"mismatch": 1}));
    let known = list("knownNodes").ok_or_else(mismatch)?;
    let ejected = list("ejectedNodes").ok_or_else(mismatch)?;
    // The operator must have seen the present nodes.
    if !known.iter().eq(cluster.nodes.keys()) {
        return Err(mismatch());
    }
    let stays = |id: &NodeId| {
        let part = cluster.nodes[id].membership;
        !ejected.contains(id) && !matches!(part, Membership::FailedOver | Membership::Leaving)
    };
    let keep: BTreeSet<NodeId> = known.into_iter().filter(stays).collect();
    if keep.is_empty() {
        return Err(json_reply(StatusCode::BAD_REQUEST, &json!({"empty_known_nodes": 1})));
    }
    Ok(keep)
}

/// Returns the new services of nodes whose services change: `topology[n1ql]`, `topology[eventing]` and
/// `topology[index]` each name all nodes with that service.
fn read_topology(
    call: &Call,
    cluster: &Cluster,
) -> Result<BTreeMap<NodeId, BTreeSet<ServiceName>>, Reply> {
    let mut wanted: BTreeMap<NodeId, BTreeSet<ServiceName>> =
        cluster.nodes.iter().map(|(id, node)| (*id, node.services.clone())).collect();
    for (field, value) in call.form() {
        let Some(name) = field.strip_prefix("topology[").and_then(|rest| rest.strip_suffix(']'))
        else {
            continue;
        };
        // A present node keeps the data service, or its absence, until it leaves.
        let mut movable = call.node.service_table().names();
        movable.remove(&ServiceName::DATA);
        let service = match movable.iter().find(|service| service.as_str() == name) {
            Some(service) => *service,
            None => {
                let names = nodes::listed(&movable);
                return Err(bad(&format!("Only {names} may be given to nodes that are there.")));
            }
        };
        let named = value.split(',').filter(|name| !name.is_empty());
        let named: Option<BTreeSet<NodeId>> =
            named.map(|otp| nodes::find(&call.node, otp)).collect();
        let named = named.ok_or_else(|| bad("Unknown server given."))?;
        for (id, services) in &mut wanted {
            match named.contains(id) {
                true => services.insert(service),
                false => services.remove(&service),
            };
        }
    }
    if wanted.values().any(BTreeSet::is_empty) {
        return Err(bad("A node would be left without a service: remove it instead."));
    }
    wanted.retain(|id, services| cluster.nodes[id].services != *services);
    Ok(wanted)
}

/// Orders the immediate failover of nodes, and waits until it is done.
#[expect(
    clippy::disallowed_methods,
    reason = "the end of a failover wakes nobody: a thread of its own looks for it"
)]
async fn fail_over(call: Call) -> Result<Reply, Reply> {
    Form(call.form()).only(&["otpNode", "allowUnsafe"])?;
    let lost = named(&call)?;
    let node = Arc::clone(&call.node);
    let cluster = node.cluster();
    let active = cluster.active_nodes();
    if cluster.serving_nodes().into_keys().all(|id| lost.contains(&id)) {
        return Err(bad("Last server can't be failed over."));
    }
    if !lost.is_subset(&active) {
        return Err(bad("Inactive server can't be failed over."));
    }
    let unsafely = Form(call.form()).optional("allowUnsafe") == Some("true");
    let consensus = Arc::clone(&call.consensus);
    let proposal = Change::Nodes(NodeChange::FailOver { nodes: lost.iter().copied().collect() });
    let work = move || {
        match (consensus.reaches_quorum(SILENCE_NS_MAX), unsafely) {
            (true, _) => drop(node.change(&proposal).map_err(|error| refused(&error))?),
            (false, true) => membership::regroup(&consensus, &lost).map_err(|why| bad(&why))?,
            (false, false) => return Err(json_reply(StatusCode::GATEWAY_TIMEOUT, &json!(UNSAFE))),
        }
        let end = Instant::now() + FAILOVER_TIMEOUT;
        while Instant::now() < end {
            if is_over(&node, &lost) {
                return Ok(done());
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
        let reason =
            "Failover continues: not all remaining copies have reported their progress yet.";
        Err(json_reply(StatusCode::GATEWAY_TIMEOUT, &json!(reason)))
    };
    blocking("the failover", work).await?
}

fn is_over(node: &Node, lost: &BTreeSet<NodeId>) -> bool {
    let cluster = node.cluster();
    let serves = |id: &NodeId| {
        cluster.nodes.get(id).is_some_and(|node| node.membership == Membership::Active)
    };
    !lost.iter().any(serves)
}

/// Returns the number of vBuckets that are in place for a cluster with the data on `keep`, and the number of all
/// vBuckets.
fn placed(cluster: &Cluster, keep: &BTreeSet<NodeId>) -> (usize, usize) {
    let nodes = cluster.with_data(keep);
    let mut counts = (0, 0);
    for bucket in cluster.buckets.values() {
        let current: Vec<Copies> = bucket.chains.iter().map(|chain| chain.copies.clone()).collect();
        let target = place(&current, &nodes, usize::from(bucket.settings.replicas));
        counts.0 += current.iter().zip(&target).filter(|(is, wanted)| is == wanted).count();
        counts.1 += current.len();
    }
    counts
}

/// Returns true if a rebalance would move no vBucket.
pub(super) fn is_balanced(cluster: &Cluster) -> bool {
    let stays = |membership| matches!(membership, Membership::Active | Membership::Added);
    let keep = cluster.nodes.iter().filter(|(_, node)| stays(node.membership));
    let (placed, all) = placed(cluster, &keep.map(|(id, _)| *id).collect());
    placed == all
}

fn share(cluster: &Cluster, keep: &BTreeSet<NodeId>) -> f64 {
    let (placed, all) = placed(cluster, keep);
    placed as f64 / all.max(1) as f64
}

fn progress(cluster: &Cluster) -> Value {
    let Some(rebalance) = &cluster.rebalance else {
        let mut progress = json!({"status": "none"});
        add_failure(cluster, &mut progress);
        return progress;
    };
    let share = share(cluster, &rebalance.keep);
    let mut progress = json!({"status": "running"});
    for node in cluster.nodes.values() {
        progress[otp_node(&node.endpoints)] = json!({"progress": share});
    }
    progress
}

fn task(cluster: &Cluster) -> Value {
    match &cluster.rebalance {
        None => {
            let mut task =
                json!({"type": "rebalance", "status": "notRunning", "statusIsStale": false});
            if let Some(ended) = &cluster.last_rebalance {
                let id = &ended.rebalance.id;
                task["lastReportURI"] = json!(format!("/logs/rebalanceReport?reportID={id}"));
            }
            add_failure(cluster, &mut task);
            task
        }
        Some(rebalance) => {
            let progress = 100.0 * share(cluster, &rebalance.keep);
            let nodes = cluster.nodes.values().map(|node| otp_node(&node.endpoints));
            let per_node: serde_json::Map<String, Value> =
                nodes.map(|otp| (otp, json!({"progress": progress}))).collect();
            let is_failover = rebalance.rest == Membership::FailedOver;
            json!({
                "type": "rebalance",
                "subtype": if is_failover { "gracefulFailover" } else { "rebalance" },
                "status": "running",
                "statusId": rebalance.id,
                "statusIsStale": false,
                "rebalanceId": rebalance.id,
                "recommendedRefreshPeriod": REFRESH_S,
                "progress": progress,
                "perNode": per_node,
                // By bucket. It is empty because a rebalance moves all buckets together.
                "detailedProgress": {},
            })
        }
    }
}

/// Adds the error if the last rebalance has failed.
fn add_failure(cluster: &Cluster, task: &mut Value) {
    if let Some(EndedRebalance { outcome: Outcome::Failed { lost }, .. }) = &cluster.last_rebalance
    {
        task["errorMessage"] = json!(failure(cluster, lost));
    }
}

fn failure(cluster: &Cluster, lost: &BTreeSet<NodeId>) -> String {
    let lost = match &names(cluster, lost)[..] {
        [] => "most nodes were".to_owned(),
        [one] => format!("{one} was"),
        some => format!("{} were", some.join(", ")),
    };
    let next = match cluster.pending_rebalance() {
        Some(_) => "It starts again automatically.",
        None => "You can try again.",
    };
    format!("Rebalance failed: {lost} lost meanwhile. {next}")
}

/// Returns the names of nodes as maps contain them, without nodes that have left.
fn names(cluster: &Cluster, nodes: &BTreeSet<NodeId>) -> Vec<String> {
    let known = nodes.iter().filter_map(|id| cluster.nodes.get(id));
    known.map(|node| otp_node(&node.endpoints)).collect()
}

/// Describes a rebalance that has ended.
fn report(cluster: &Cluster, ended: &EndedRebalance) -> Value {
    let rebalance = &ended.rebalance;
    let message = match &ended.outcome {
        Outcome::Completed => "Rebalance completed successfully.".to_owned(),
        Outcome::Stopped => "Rebalance stopped by user.".to_owned(),
        Outcome::Failed { lost } => failure(cluster, lost),
    };
    let lost = match &ended.outcome {
        Outcome::Failed { lost } => names(cluster, lost),
        _ => Vec::new(),
    };
    json!({
        "rebalanceId": rebalance.id,
        "nodesInfo": {
            "active_nodes": names(cluster, &cluster.active_nodes()),
            "keep_nodes": names(cluster, &rebalance.keep),
            "failed_nodes": lost,
        },
        "retries": rebalance.retries,
        "completionMessage": message,
    })
}

fn retry_settings(cluster: &Cluster) -> Value {
    let RetryRebalance { enabled, after_s, retries_max } = cluster.retry_rebalance;
    json!({"enabled": enabled, "afterTimePeriod": after_s, "maxAttempts": retries_max})
}

fn pending(cluster: &Cluster) -> Value {
    let Some(pending) = cluster.pending_rebalance() else {
        return json!({"retry_rebalance": "not_pending"});
    };
    let RetryRebalance { after_s, retries_max, .. } = cluster.retry_rebalance;
    json!({
        "retry_rebalance": "pending",
        "rebalance_id": pending.id,
        "type": "rebalance",
        "attempts_remaining": retries_max - pending.retries,
        "retry_after_secs": after_s,
    })
}

fn read_retry_settings(form: &Form, known: RetryRebalance) -> Result<RetryRebalance, Reply> {
    form.only(&["enabled", "afterTimePeriod", "maxAttempts"])?;
    let enabled = read_enabled(form)?;
    let after_s = read_number(form, "afterTimePeriod", RETRY_AFTER_S, known.after_s)?;
    let retries_max = read_number(form, "maxAttempts", 1..=3, known.retries_max.into())? as u32;
    Ok(RetryRebalance { enabled, after_s, retries_max })
}

fn settings(settings: &AutoFailover) -> Value {
    let mut described = json!({
        "enabled": settings.enabled,
        "timeout": settings.timeout_ms / 1000,
        "maxCount": settings.count_max,
        "count": settings.count,
        "failoverOnDataDiskIssues": {"enabled": false, "timePeriod": DISK_PERIOD_S},
    });
    for (field, value) in UNCHANGING {
        described[field] = json!(value);
    }
    described
}

fn read_settings(form: &Form, known: AutoFailover) -> Result<AutoFailover, Reply> {
    let mut unchanging: serde_json::Map<String, Value> =
        UNCHANGING.map(|(field, value)| (field.to_owned(), json!(value))).into_iter().collect();
    unchanging.insert("failoverOnDataDiskIssues[enabled]".into(), json!(false));
    unchanging.insert("failoverOnDataDiskIssues[timePeriod]".into(), json!(DISK_PERIOD_S));
    let is_fixed = |(field, _): &&(String, String)| {
        !["enabled", "timeout", "maxCount"].contains(&field.as_str())
    };
    let others: Vec<_> = form.0.iter().filter(is_fixed).cloned().collect();
    fixed::check(&unchanging, &others)?;
    let enabled = read_enabled(form)?;
    let timeout_s = read_number(form, "timeout", TIMEOUT_S, known.timeout_ms / 1000)?;
    let count_max = read_number(form, "maxCount", 1..=100, known.count_max as u64)? as usize;
    Ok(AutoFailover { enabled, timeout_ms: timeout_s * 1000, count_max, ..known })
}

fn read_enabled(form: &Form) -> Result<bool, Reply> {
    match form.optional("enabled") {
        Some("true") => Ok(true),
        Some("false") => Ok(false),
        _ => Err(invalid("enabled", "The value must be one of the following: [true,false]")),
    }
}

/// Returns a field, or the `known` value without it.
fn read_number(
    form: &Form,
    field: &str,
    range: RangeInclusive<u64>,
    known: u64,
) -> Result<u64, Reply> {
    let Some(text) = form.optional(field) else { return Ok(known) };
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| {
        let (least, most) = (range.start(), range.end());
        invalid(field, format!("The value must be in range from {least} to {most}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_cluster::{Endpoints, GROUP_DEFAULT, Member, Ports};

    /// couchbase-cli reads these members without checking that they exist.
    #[test]
    fn a_task_has_the_members_that_tools_require() {
        let mut cluster = Cluster::new("c".into());
        for id in 1..=2 {
            let ports = |port| {
                Ports::from([
                    ("mgmt", port),
                    ("views", 2),
                    ("query", 3),
                    ("eventing", 4),
                    ("kv", 5),
                ])
            };
            let host = Some("a".to_owned());
            let endpoints = Endpoints { host, plain: ports(id), tls: None, fingerprint: None };
            let member = Member {
                uuid: format!("{id}"),
                endpoints,
                group: GROUP_DEFAULT.into(),
                services: ServiceName::FIRST.into(),
                membership: Membership::Active,
                alternate: None,
            };
            cluster
                .apply(&Change::Nodes(NodeChange::PutNode { id: NodeId(id.into()), member }))
                .unwrap();
        }
        assert_eq!(task(&cluster)["status"], "notRunning");
        for (rest, subtype) in
            [(Membership::Leaving, "rebalance"), (Membership::FailedOver, "gracefulFailover")]
        {
            let (id, keep, services) = ("r".to_owned(), [NodeId(1)].into(), BTreeMap::new());
            cluster
                .apply(&Change::Nodes(NodeChange::StartRebalance { id, keep, rest, services }))
                .unwrap();
            let told = task(&cluster);
            assert_eq!((&told["status"], &told["subtype"]), (&json!("running"), &json!(subtype)));
            assert_eq!(told["recommendedRefreshPeriod"], 0.25);
            assert!(told["detailedProgress"].is_object() && told["statusId"].is_string());
            assert!(told["perNode"]["ns_1@a:2"]["progress"].is_number(), "{told}");
            cluster.apply(&Change::Nodes(NodeChange::StopRebalance)).unwrap();
        }
    }
}
