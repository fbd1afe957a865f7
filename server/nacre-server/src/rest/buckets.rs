//! Buckets: list, create, change, flush, drop.

use super::Call;
use super::body::{Reply, done, not_found, ok, refused, reply};
use super::bucket_form;
use super::nodes;
use hyper::StatusCode;
use nacre_auth::Privilege;
use nacre_cluster::{Bucket, Change, Cluster, Refusal};
use nacre_node::{Error, Node, cluster_map};
use serde_json::{Value, json};

pub(super) async fn route(call: Call, path: &[&str]) -> Result<Reply, Reply> {
    match (call.method.as_str(), path) {
        ("GET", []) => {
            call.require(Privilege::ReadCluster, None)?;
            let cluster = call.node.cluster();
            let all = cluster.buckets.values().map(|bucket| describe(&call.node, &cluster, bucket));
            Ok(ok(&Value::Array(all.collect())))
        }
        ("POST", []) => create(call).await,
        ("GET", [name]) => {
            call.require(Privilege::ReadCluster, None)?;
            let cluster = call.node.cluster();
            let bucket = cluster.bucket(name).map_err(|_| not_found())?;
            Ok(ok(&describe(&call.node, &cluster, bucket)))
        }
        ("POST", [name]) => update(call, name).await,
        ("DELETE", [name]) => {
            call.require(Privilege::AdministerBucket, Some(name))?;
            call.change(Change::DropBucket { name: (*name).to_owned() }).await?;
            Ok(done())
        }
        ("POST", [name, "controller", "doFlush"]) => {
            call.require(Privilege::AdministerBucket, Some(name))?;
            call.change(Change::FlushBucket { name: (*name).to_owned() }).await?;
            Ok(done())
        }
        ("POST", [name, "controller", "compactBucket"]) => {
            call.require(Privilege::AdministerBucket, Some(name))?;
            call.node.bucket(name).ok_or_else(not_found)?.compact();
            Ok(done())
        }
        ("GET", [name, "ddocs"]) => {
            call.require(Privilege::ReadViews, Some(name))?;
            design_documents(&call, name)
        }
        _ => Err(not_found()),
    }
}

fn describe(node: &Node, cluster: &Cluster, bucket: &Bucket) -> Value {
    let settings = &bucket.settings;
    let serving = node.bucket(&bucket.name);
    let (documents, memory_bytes) = serving.as_ref().map_or((0, 0), |serving| serving.usage());
    let disk = serving.as_ref().map(|serving| serving.disk_usage()).unwrap_or_default();
    let quota_bytes = settings.ram_quota_mb << 20;
    let mut value = cluster_map::of_bucket(cluster, bucket, &node.here());
    let usage = json!({
        "authType": "sasl",
        "autoCompactionSettings": false,
        "threadsNumber": 3,
        "quota": {"ram": quota_bytes, "rawRAM": quota_bytes},
        "controllers": controllers(bucket),
        "basicStats": {
            "itemCount": documents,
            "memUsed": memory_bytes,
            "quotaPercentUsed": memory_bytes as f64 * 100.0 / quota_bytes as f64,
            "diskUsed": disk.disk_bytes,
            "dataUsed": disk.live_bytes,
        },
        "nodes": nodes::describe_all(node),
    });
    for fields in [usage, bucket_form::describe(settings)] {
        if let (Value::Object(value), Value::Object(fields)) = (&mut value, fields) {
            value.extend(fields);
        }
    }
    value
}

/// Clients conclude from the flush controller whether a bucket may be flushed.
fn controllers(bucket: &Bucket) -> Value {
    let at = |what: &str| format!("/pools/default/buckets/{}/controller/{what}", bucket.name);
    let mut controllers =
        json!({"compactAll": at("compactBucket"), "compactDB": at("compactBucket")});
    if bucket.settings.flush_enabled {
        controllers["flush"] = at("doFlush").into();
    }
    controllers
}

async fn create(call: Call) -> Result<Reply, Reply> {
    call.require(Privilege::AdministerCluster, None)?;
    let form = call.form();
    let name = form
        .iter()
        .find(|(field, _)| field == "name")
        .map(|(_, name)| name.clone())
        .unwrap_or_default();
    let settings = bucket_form::create(&form)?;
    let uuid = call.node.new_uuid();
    call.change(Change::CreateBucket { name, uuid, settings }).await?;
    Ok(reply(StatusCode::ACCEPTED, "application/json", ""))
}

async fn update(call: Call, name: &str) -> Result<Reply, Reply> {
    call.require(Privilege::AdministerBucket, Some(name))?;
    let cluster = call.node.cluster();
    let missing = || refused(&Error::Refused(Refusal::BucketNotFound { bucket: name.to_owned() }));
    let mut settings = cluster.bucket(name).map_err(|_| missing())?.settings.clone();
    bucket_form::apply(&mut settings, &call.form())?;
    call.change(Change::UpdateBucket { name: name.to_owned(), settings }).await?;
    Ok(done())
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
