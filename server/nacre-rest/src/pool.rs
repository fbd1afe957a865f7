//! The description of the cluster at `/pools/default`, and the settings that are changed there. Paths, members and
//! texts are Couchbase's.

use super::Call;
use super::body::{Reply, blocking, done, invalid, ok};
use super::compaction_settings;
use super::nodes::{self, Form};
use super::rebalance;
use super::routes::{ADMINISTER, Route, get, post};
use super::settings::ALERTS_TOKEN;
use nacre_cluster::{Change, Cluster, ClusterChange, ServiceQuotas, SettingsChange};
use nacre_http::Access;
use nacre_links::platform::{Disk, memory_bytes};
use nacre_node::{Node, Usage};
use nacre_sandbox::Budget;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Memory quotas of services other than the data service, with the defaults of a new Couchbase server, in MiB. The
/// cluster stores them, but they have no effect: these services use memory within the quotas of buckets, or within the
/// limits of plugins.
const OTHER_QUOTAS: [(&str, u64); 5] = [
    ("indexMemoryQuota", 512),
    ("ftsMemoryQuota", 512),
    ("cbasMemoryQuota", 1024),
    ("eventingMemoryQuota", 256),
    ("queryMemoryQuota", 0),
];

/// Returns true if `field` is the quota of a service.
pub(super) fn is_quota(field: &str) -> bool {
    field == "memoryQuota" || OTHER_QUOTAS.iter().any(|(name, _)| *name == field)
}

/// Returns the memory of this machine in MiB.
fn machine_mb() -> u64 {
    memory_bytes().unwrap_or(u64::MAX) >> 20
}

pub(super) const ROUTES: &[Route] = &[
    get("/pools/default", Access::Sight, |call| Box::pin(show(call))),
    get("/pools/nodes", Access::Sight, |call| Box::pin(show(call))),
    post("/pools/default", ADMINISTER, |call| Box::pin(update(call))),
];

async fn show(call: Call) -> Result<Reply, Reply> {
    Ok(ok(&describe(&call).await?))
}

/// `POST /pools/default`: sets the name of the cluster and the quotas of services.
async fn update(call: Call) -> Result<Reply, Reply> {
    let form = call.form();
    for (field, _) in &form {
        if field != "clusterName" && !is_quota(field) {
            return Err(invalid(field, "Unsupported key"));
        }
    }
    let quotas = read_quotas(&call.node.cluster(), &form)?;
    if let Some(quotas) = quotas {
        let change = Box::new(SettingsChange::Quotas(quotas));
        call.change(Change::Cluster(ClusterChange::ChangeSettings { change })).await?;
    }
    if let Some(name) = Form(form).given("clusterName") {
        call.change(Change::Cluster(ClusterChange::NameCluster { name: name.to_owned() })).await?;
    }
    Ok(done())
}

/// Returns the quotas as they are after the form, if the form names any.
///
/// # Errors
/// A quota that is not a number, or quotas whose sum exceeds the machine's memory.
pub(super) fn read_quotas(
    cluster: &Cluster,
    form: &[(String, String)],
) -> Result<Option<ServiceQuotas>, Reply> {
    let mut quotas = cluster.settings.quotas.clone();
    let mut is_other = false;
    for (field, value) in form.iter().filter(|(field, _)| is_quota(field)) {
        let quota_mb: u64 =
            value.parse().map_err(|_| invalid(field, "The value must be an integer"))?;
        is_other = true;
        match field.as_str() {
            "memoryQuota" => quotas.data_mb = Some(quota_mb),
            _ => drop(quotas.others_mb.insert(field.clone(), quota_mb)),
        }
    }
    if !is_other {
        return Ok(None);
    }
    let all = quotas.others_mb.values().chain(&quotas.data_mb);
    let total_mb = all.fold(0_u64, |sum, quota_mb| sum.saturating_add(*quota_mb));
    let most_mb = machine_mb();
    if total_mb > most_mb {
        let reason = format!(
            "Total quota ({total_mb}MB) exceeds the maximum allowed quota ({most_mb}MB): the memory of the machine."
        );
        return Err(invalid("_", reason));
    }
    Ok(Some(quotas))
}

/// `GET /pools/default` and `GET /pools/nodes`. The function waits for other nodes.
pub(super) async fn describe(call: &Call) -> Result<Value, Reply> {
    let node = Arc::clone(&call.node);
    let usage = blocking("the count", move || Usage::of_cluster(&node)).await?;
    Ok(describe_with(call, &usage))
}

/// Describes the cluster, with the usage of buckets.
pub(super) fn describe_with(call: &Call, usage: &BTreeMap<String, Usage>) -> Value {
    let cluster = call.node.cluster();
    let mut pool = json!({
        "name": "default",
        "clusterName": cluster.name,
        "nodes": nodes::describe_all(call),
        "rebalanceStatus": if cluster.rebalance.is_some() { "running" } else { "none" },
        "balanced": rebalance::is_balanced(&cluster),
        "counters": cluster.counters,
        "autoCompactionSettings": compaction_settings::describe(&cluster.settings.compaction),
        "clusterEncryptionLevel": "all",
        "storageTotals": storage_totals(call, &cluster, usage),
        "alerts": [],
        "alertsSilenceURL": format!("/controller/resetAlerts?token={ALERTS_TOKEN}"),
        "minReplicasCount": 0,
        "maxBucketCount": 100,
        "maxScopeCount": 1200,
        "maxCollectionCount": 1200,
    });
    let parts = [links(&cluster), quotas(call, &cluster)];
    for part in parts {
        if let (Value::Object(pool), Value::Object(part)) = (&mut pool, part) {
            pool.extend(part);
        }
    }
    pool
}

/// Returns the addresses of all other resources.
fn links(cluster: &Cluster) -> Value {
    let rev = cluster.rev;
    let controller = |name: &str| json!({"uri": format!("/controller/{name}")});
    json!({
        "buckets": {
            "uri": "/pools/default/buckets",
            "terseBucketsBase": "/pools/default/b/",
            "terseStreamingBucketsBase": "/pools/default/bs/",
        },
        "controllers": {
            "addNode": controller("addNode"),
            "rebalance": controller("rebalance"),
            "failOver": controller("failOver"),
            "startGracefulFailover": controller("startGracefulFailover"),
            "reAddNode": controller("reAddNode"),
            "ejectNode": controller("ejectNode"),
            "setRecoveryType": controller("setRecoveryType"),
            "setAutoCompaction": controller("setAutoCompaction"),
            "clusterLogsCollection": {
                "startURI": "/controller/startLogsCollection",
                "cancelURI": "/controller/cancelLogsCollection",
            },
        },
        "tasks": {"uri": format!("/pools/default/tasks?v={rev}")},
        "rebalanceProgressUri": "/pools/default/rebalanceProgress",
        "stopRebalanceUri": "/controller/stopRebalance",
        "nodeStatusesUri": "/nodeStatuses",
        "nodeServicesUri": "/pools/default/nodeServices",
        "serverGroupsUri": format!("/pools/default/serverGroups?rev={rev}"),
        "indexStatusURI": format!("/indexStatus?v={rev}"),
        "checkPermissionsURI": format!("/pools/default/checkPermissions?v={rev}"),
        "trustedCAsURI": "/pools/default/trustedCAs",
        "remoteClusters": {
            "uri": "/pools/default/remoteClusters",
            "validateURI": "/pools/default/remoteClusters?just_validate=1",
        },
    })
}

/// Returns the quota of the data service in MiB. The default is this node's memory for buckets.
fn data_quota_mb(call: &Call, cluster: &Cluster) -> u64 {
    let of_node = || call.node.memory().quotas_bytes_max().map_or_else(machine_mb, |max| max >> 20);
    cluster.settings.quotas.data_mb.unwrap_or_else(of_node)
}

fn quotas(call: &Call, cluster: &Cluster) -> Value {
    let mut quotas = json!({"memoryQuota": data_quota_mb(call, cluster)});
    for (name, usual_mb) in OTHER_QUOTAS {
        let known = cluster.settings.quotas.others_mb.get(name);
        quotas[name] = json!(known.copied().unwrap_or(usual_mb));
    }
    quotas
}

/// Returns memory and disk of all nodes, assuming that all nodes have as much as this one.
fn storage_totals(call: &Call, cluster: &Cluster, usage: &BTreeMap<String, Usage>) -> Value {
    let nodes = cluster.serving_nodes().len().max(1) as u64;
    let sum = |of: fn(&Usage) -> u64| usage.values().map(of).sum::<u64>();
    let (used, disk_used) = (sum(|usage| usage.memory_bytes), sum(|usage| usage.disk_bytes));
    let quota_per_node = data_quota_mb(call, cluster) << 20;
    let quota_used_per_node = cluster.bucket_quotas_mb() << 20;
    let memory = call.node.memory();
    let total = memory.limit_bytes().or_else(memory_bytes).unwrap_or_default();
    let disk = Disk::of(&call.records.data_dir).unwrap_or_default();
    json!({
        "ram": {
            "total": total * nodes,
            "quotaTotal": quota_per_node * nodes,
            "quotaUsed": quota_used_per_node * nodes,
            "used": used,
            "usedByData": used,
            "quotaUsedPerNode": quota_used_per_node,
            "quotaTotalPerNode": quota_per_node,
            "budgets": memory.budgets().all().map(|(name, budget)| describe_budget(name, budget)),
        },
        "hdd": {
            "total": disk.total_bytes * nodes,
            "quotaTotal": disk.total_bytes * nodes,
            "used": (disk.total_bytes - disk.free_bytes) * nodes,
            "usedByData": disk_used,
            "free": disk.free_bytes * nodes,
        },
    })
}

/// Describes a budget of this node: its limit and usage in bytes, and the number of times that it was exceeded.
/// Couchbase does not have this member.
fn describe_budget(name: &str, budget: &Budget) -> Value {
    let limit = Some(budget.limit()).filter(|limit| *limit < usize::MAX);
    json!({"name": name, "limit": limit, "used": budget.held(), "refusals": budget.refusals()})
}

/// Returns the additional members of `/nodes/self`: paths of the node's data, and its memory and disk usage.
pub(super) fn own_storage(call: &Call, node: &Node) -> Value {
    let cluster = node.cluster();
    let folder = call.records.data_dir.display().to_string();
    json!({
        "storage": {
            "ssd": [],
            "hdd": [{
                "path": folder,
                "index_path": folder,
                "eventing_path": folder,
                "cbas_dirs": [],
                "java_home": "",
                "quotaMb": "none",
                "state": "ok",
            }],
        },
        "storageTotals": storage_totals(call, &alone(&cluster), &Usage::of_node(node)),
    })
}

/// Returns the cluster as if this were its only node.
fn alone(cluster: &Cluster) -> Cluster {
    Cluster { nodes: BTreeMap::new(), ..cluster.clone() }
}
