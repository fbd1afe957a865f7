//! Buckets: list, create, change, flush, drop.

use super::Call;
use super::body::{Reply, blocking, done, invalid, json_reply, not_found, ok, reply};
use super::bucket_form;
use super::bucket_stats::operations_per_second;
use super::nodes;
use super::refusal::refused;
use super::routes::{ADMINISTER, Route, delete, get, post, ready};
use hyper::StatusCode;
use nacre_auth::{Keyspace, Privilege};
use nacre_cluster::{
    Bucket, BucketChange, BucketSettings, Change, Cluster, RAM_QUOTA_TOO_LARGE, Refusal,
};
use nacre_http::Access;
use nacre_links::platform::memory_bytes;
use nacre_node::{Error, Usage, cluster_map};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

const BUCKETS: &str = "/pools/default/buckets";
const BUCKET: &str = "/pools/default/buckets/{bucket}";
const ADMINISTER_BUCKET: Access = Access::Bucket(Privilege::AdministerBucket);

pub(super) const ROUTES: &[Route] = &[
    get(BUCKETS, Access::Sight, |call| Box::pin(list(call))),
    post(BUCKETS, ADMINISTER, |call| Box::pin(create(call))),
    get(BUCKET, Access::SightOfBucket, |call| Box::pin(describe(call))),
    post(BUCKET, ADMINISTER_BUCKET, |call| Box::pin(update(call))),
    delete(BUCKET, ADMINISTER_BUCKET, |call| Box::pin(drop_bucket(call))),
    get("/pools/default/buckets/{bucket}/nodes", Access::SightOfBucket, |call| {
        ready(servers(&call, call.segment("bucket")))
    }),
    get("/pools/default/buckets/{bucket}/ddocs", Access::Bucket(Privilege::ReadViews), |call| {
        ready(design_documents(&call, call.segment("bucket")))
    }),
    post("/pools/default/buckets/{bucket}/controller/doFlush", ADMINISTER_BUCKET, |call| {
        Box::pin(flush(call))
    }),
    post("/pools/default/buckets/{bucket}/controller/compactBucket", ADMINISTER_BUCKET, |call| {
        ready(compact(&call))
    }),
    post(
        "/pools/default/buckets/{bucket}/controller/compactDatabases",
        ADMINISTER_BUCKET,
        |call| ready(compact(&call)),
    ),
    post(
        "/pools/default/buckets/{bucket}/controller/cancelBucketCompaction",
        ADMINISTER_BUCKET,
        |call| ready(cancel_compaction(&call)),
    ),
    post(
        "/pools/default/buckets/{bucket}/controller/cancelDatabasesCompaction",
        ADMINISTER_BUCKET,
        |call| ready(cancel_compaction(&call)),
    ),
    post(
        "/pools/default/buckets/{bucket}/ddocs/{design}/controller/compactView",
        ADMINISTER_BUCKET,
        |call| ready(of_design(&call)),
    ),
    post(
        "/pools/default/buckets/{bucket}/ddocs/{design}/controller/cancelViewCompaction",
        ADMINISTER_BUCKET,
        |call| ready(of_design(&call)),
    ),
];

/// Lists the buckets in which the user has a role.
async fn list(call: Call) -> Result<Reply, Reply> {
    let view = View::of(&call).await?;
    let buckets = view.cluster.buckets.values();
    let seen = buckets.filter(|bucket| call.sees(of_bucket(&bucket.name)));
    Ok(ok(&Value::Array(seen.map(|bucket| view.describe(bucket)).collect())))
}

async fn describe(call: Call) -> Result<Reply, Reply> {
    let view = View::of(&call).await?;
    let bucket = view.cluster.bucket(call.segment("bucket")).map_err(|_| not_found())?;
    Ok(ok(&view.describe(bucket)))
}

async fn drop_bucket(call: Call) -> Result<Reply, Reply> {
    let name = call.segment("bucket").to_owned();
    call.change(Change::Buckets(BucketChange::DropBucket { name })).await?;
    Ok(done())
}

async fn flush(call: Call) -> Result<Reply, Reply> {
    let name = call.segment("bucket").to_owned();
    call.change(Change::Buckets(BucketChange::FlushBucket { name })).await?;
    Ok(done())
}

/// Starts a compaction. The answer does not wait for its end.
fn compact(call: &Call) -> Result<Reply, Reply> {
    call.node.bucket(call.segment("bucket")).ok_or_else(not_found)?.compact();
    Ok(done())
}

/// Cancels a compaction that somebody has requested. The compaction stops after the part in progress.
fn cancel_compaction(call: &Call) -> Result<Reply, Reply> {
    call.node.bucket(call.segment("bucket")).ok_or_else(not_found)?.end_compaction();
    Ok(done())
}

/// Answers requests to compact a design document or to cancel that. They have no effect: the state of views compacts
/// itself.
fn of_design(call: &Call) -> Result<Reply, Reply> {
    let cluster = call.node.cluster();
    let bucket = cluster.bucket(call.segment("bucket")).map_err(|_| not_found())?;
    let name = call.segment("design");
    let name = name.strip_prefix("_design/").unwrap_or(name);
    bucket.design_documents.get(name).map(|_| done()).ok_or_else(not_found)
}

/// Lists the nodes that hold a part of a bucket.
fn servers(call: &Call, name: &str) -> Result<Reply, Reply> {
    let cluster = call.node.cluster();
    cluster.bucket(name).map_err(|_| not_found())?;
    let serving = cluster.serving_nodes().into_keys().filter_map(|id| cluster.nodes.get(&id));
    let hosts = serving.map(|node| call.authority(&node.endpoints, node.endpoints.plain.mgmt()));
    let servers = hosts.map(|host| {
        let stats = format!("/pools/default/buckets/{name}/nodes/{host}/stats");
        json!({"hostname": host, "stats": {"uri": stats}})
    });
    Ok(ok(&json!({"servers": servers.collect::<Vec<_>>()})))
}

fn of_bucket(name: &str) -> Keyspace<'_> {
    Keyspace { bucket: Some(name), ..Keyspace::default() }
}

/// The cluster and the buckets' usage on its nodes, from which buckets are described.
struct View<'a> {
    call: &'a Call,
    cluster: Arc<Cluster>,
    nodes: Value,
    usage: BTreeMap<String, Usage>,
    /// Operations per second, by bucket.
    rates: BTreeMap<String, f64>,
}

impl View<'_> {
    async fn of(call: &Call) -> Result<View<'_>, Reply> {
        let node = Arc::clone(&call.node);
        let rates = blocking("the rates", move || operations_per_second(&node));
        let (usage, rates) = tokio::try_join!(usage(call), rates)?;
        let (cluster, nodes) = (call.node.cluster(), nodes::describe_all(call));
        Ok(View { call, cluster, nodes, usage, rates })
    }

    fn describe(&self, bucket: &Bucket) -> Value {
        let settings = &bucket.settings;
        let usage = self.usage.get(&bucket.name).copied().unwrap_or_default();
        let quota_bytes = settings.ram_quota_mb << 20;
        let all_bytes = quota_bytes * node_count(&self.cluster);
        let used = json!({
            "authType": "sasl",
            "threadsNumber": bucket_form::THREADS,
            "quota": {"ram": all_bytes, "rawRAM": quota_bytes},
            "controllers": controllers(bucket),
            "stats": {
                "uri": format!("/pools/default/buckets/{}/stats", bucket.name),
                "nodeStatsListURI": format!("/pools/default/buckets/{}/nodes", bucket.name),
            },
            "basicStats": {
                "opsPerSec": self.rates.get(&bucket.name).copied().unwrap_or_default(),
                "itemCount": usage.documents,
                "memUsed": usage.memory_bytes,
                "quotaPercentUsed": usage.memory_bytes as f64 * 100.0 / all_bytes as f64,
                "diskUsed": usage.disk_bytes,
                "dataUsed": usage.live_bytes,
            },
            "nodes": self.nodes,
        });
        let mut value = self.map(bucket);
        for fields in [used, bucket_form::describe(settings)] {
            if let (Value::Object(value), Value::Object(fields)) = (&mut value, fields) {
                value.extend(fields);
            }
        }
        value
    }

    /// Returns the map, in which this node has the host by which the client reached it. The map omits the table of
    /// vBuckets if the client does not want it.
    fn map(&self, bucket: &Bucket) -> Value {
        let mut map = cluster_map::of_bucket(&self.cluster, bucket, &self.call.node.local_node());
        if self.call.parameter("skipMap").as_deref() == Some("true")
            && let Some(fields) = map.as_object_mut()
        {
            fields.remove("vBucketServerMap");
        }
        let servers = map.pointer_mut("/vBucketServerMap/serverList").and_then(Value::as_array_mut);
        for server in servers.into_iter().flatten() {
            if let Some(named) = server.as_str() {
                *server = self.call.named(named).into();
            }
        }
        map
    }
}

/// Returns the usage of each bucket on the nodes.
async fn usage(call: &Call) -> Result<BTreeMap<String, Usage>, Reply> {
    let node = Arc::clone(&call.node);
    blocking("the count", move || Usage::of_cluster(&node)).await
}

/// Returns the number of nodes, each of which has the quota of each bucket.
fn node_count(cluster: &Cluster) -> u64 {
    cluster.serving_nodes().len().max(1) as u64
}

/// Clients conclude from the flush controller whether a bucket may be flushed.
fn controllers(bucket: &Bucket) -> Value {
    let at = |what: &str| format!("/pools/default/buckets/{}/controller/{what}", bucket.name);
    let mut controllers =
        json!({"compactAll": at("compactBucket"), "compactDB": at("compactDatabases")});
    if bucket.settings.flush_enabled {
        controllers["flush"] = at("doFlush").into();
    }
    controllers
}

async fn create(call: Call) -> Result<Reply, Reply> {
    let form = call.form();
    let name = form
        .iter()
        .find(|(field, _)| field == "name")
        .map(|(_, name)| name.clone())
        .unwrap_or_default();
    let form: Vec<_> = form.into_iter().filter(|(field, _)| field != "name").collect();
    let settings = bucket_form::create(&form)?;
    check_memory(&call, &name, settings.ram_quota_mb)?;
    let uuid = call.node.new_uuid();
    let change = Change::Buckets(BucketChange::CreateBucket { name, uuid, settings });
    if is_trial(&call) {
        return check(&call, &change).await;
    }
    call.change(change).await?;
    Ok(reply(StatusCode::ACCEPTED, "application/json", ""))
}

async fn update(call: Call) -> Result<Reply, Reply> {
    let name = call.segment("bucket");
    let cluster = call.node.cluster();
    let missing = || refused(&Error::Refused(Refusal::BucketNotFound { bucket: name.to_owned() }));
    let mut settings = cluster.bucket(name).map_err(|_| missing())?.settings.clone();
    let mut form = call.form();
    if let Some((_, other)) = form.iter().find(|(field, to)| field == "name" && to != name) {
        return Err(invalid("name", format!("The bucket cannot be renamed to {other}.")));
    }
    form.retain(|(field, _)| field != "name");
    let quota_mb = settings.ram_quota_mb;
    // The upper 48 bits of a CAS contain the time.
    let now_cas = call.node.now().unix_ns & !0xffff;
    bucket_form::versioning(&mut settings, &mut form, now_cas)?;
    bucket_form::apply(&mut settings, &form)?;
    if settings.ram_quota_mb > quota_mb {
        check_memory(&call, name, settings.ram_quota_mb)?;
    }
    let change = Change::Buckets(BucketChange::UpdateBucket { name: name.to_owned(), settings });
    if is_trial(&call) {
        return check(&call, &change).await;
    }
    call.change(change).await?;
    Ok(done())
}

/// Refuses a quota for the bucket `name` that exceeds the memory of this node.
fn check_memory(call: &Call, name: &str, quota_mb: u64) -> Result<(), Reply> {
    match call.node.memory().has_room_for(&call.node.cluster(), name, quota_mb) {
        true => Ok(()),
        false => Err(invalid("ramQuota", RAM_QUOTA_TOO_LARGE)),
    }
}

/// Returns true if the request only asks for the result of a change.
fn is_trial(call: &Call) -> bool {
    call.parameter("just_validate").as_deref() == Some("1")
}

/// Returns the result of a change without making it: that the change is valid, and the memory left after it.
async fn check(call: &Call, change: &Change) -> Result<Reply, Reply> {
    let mut after = Cluster::clone(&call.node.cluster());
    after.apply(change).map_err(|refusal| refused(&Error::Refused(refusal)))?;
    let Change::Buckets(
        BucketChange::CreateBucket { name, settings, .. }
        | BucketChange::UpdateBucket { name, settings },
    ) = change
    else {
        return Err(not_found());
    };
    let used = usage(call).await?.get(name).map_or(0, |usage| usage.memory_bytes);
    let total_bytes = call.node.memory().quotas_bytes_max().or_else(memory_bytes);
    let summary = ram_summary(&after, settings, used, total_bytes);
    Ok(json_reply(StatusCode::OK, &json!({"errors": {}, "summaries": {"ramSummary": summary}})))
}

/// Returns how the buckets share the memory of all nodes if one bucket has `settings` and uses this many bytes. The
/// function assumes that all nodes have as much memory as this one.
fn ram_summary(
    cluster: &Cluster,
    settings: &BucketSettings,
    used: u64,
    total_bytes: Option<u64>,
) -> Value {
    let nodes = node_count(cluster);
    let quotas_mb: u64 = cluster.buckets.values().map(|bucket| bucket.settings.ram_quota_mb).sum();
    let own = (settings.ram_quota_mb << 20) * nodes;
    let all = (quotas_mb << 20) * nodes;
    let total = total_bytes.unwrap_or_default() * nodes;
    json!({
        "total": total,
        "otherBuckets": all - own,
        "nodesCount": nodes,
        "perNodeMegs": settings.ram_quota_mb,
        "thisAlloc": own,
        "thisUsed": used,
        "free": total.saturating_sub(all),
    })
}

fn design_documents(call: &Call, name: &str) -> Result<Reply, Reply> {
    let cluster = call.node.cluster();
    let bucket = cluster.bucket(name).map_err(|_| not_found())?;
    let rows = bucket.design_documents.iter().map(|(name, document)| {
        let json: Value = serde_json::from_str(document).unwrap_or_default();
        let meta = json!({"id": format!("_design/{name}"), "rev": "1-0"});
        json!({
            "doc": {"meta": meta, "json": json},
            "controllers": {"compact": "", "setUpdateMinChanges": ""},
        })
    });
    Ok(ok(&json!({"rows": rows.collect::<Vec<_>>()})))
}
