//! Lists of indexes: `GET /getIndexStatus` and `GET /getIndexMetadata`, as Couchbase's indexer answers them at the port
//! that maps call `indexHttp`, and `GET /indexStatus`, as its cluster manager answers it. Only statements create and
//! drop indexes.

use super::Call;
use super::body::{Reply, blocking, ok};
use super::routes::{Route, get};
use nacre_auth::Keyspace;
use nacre_cluster::{Bucket, Cluster, Index, Partitioning};
use nacre_http::Access;
use nacre_types::NodeId;
use serde_json::{Value, json};
use std::sync::Arc;

pub(super) const ROUTES: &[Route] = &[
    get("/getIndexStatus", Access::Sight, |call| Box::pin(list(call))),
    get("/indexStatus", Access::Sight, |call| Box::pin(list(call))),
    get("/getIndexMetadata", Access::Sight, |call| Box::pin(list(call))),
];

/// Returns the indexes in which the user has a role: those of all collections, or of the bucket that the request names.
async fn list(call: Call) -> Result<Reply, Reply> {
    let node = Arc::clone(&call.node);
    let unbuilt =
        blocking("the look at indexes", move || nacre_query_service::unbuilt(&node)).await?;
    let cluster = call.node.cluster();
    let wanted = call.parameter("bucket").filter(|name| !name.is_empty());
    let buckets = cluster.buckets.values();
    let buckets = buckets.filter(|bucket| wanted.as_ref().is_none_or(|name| *name == bucket.name));
    let all = buckets.flat_map(|bucket| bucket.indexes.iter().map(move |index| (bucket, index)));
    let seen = all.filter(|(bucket, index)| {
        call.sees(Keyspace {
            bucket: Some(&bucket.name),
            scope: Some(&index.scope),
            collection: Some(&index.collection),
        })
    });
    let described: Vec<Value> = seen
        .map(|(bucket, index)| {
            let has_to_build = unbuilt.contains(&index.uuid);
            describe(&call, &cluster, bucket, index, has_to_build)
        })
        .collect();
    match call.path.first().map(String::as_str) {
        Some("getIndexStatus") => Ok(ok(&json!({"code": "success", "status": described}))),
        Some("getIndexMetadata") => {
            let metadata =
                json!({"version": 0, "metadata": [{"topologies": [], "definitions": described}]});
            Ok(ok(&json!({"code": "success", "result": metadata})))
        }
        _ => Ok(ok(
            &json!({"indexes": described, "version": cluster.rev.to_string(), "warnings": []}),
        )),
    }
}

/// Describes an index. `has_to_build` is true if some node has not yet built its part.
fn describe(
    call: &Call,
    cluster: &Cluster,
    bucket: &Bucket,
    index: &Index,
    has_to_build: bool,
) -> Value {
    let (status, percent) = match (index.built, has_to_build) {
        (false, _) => ("Created", 0),
        (true, true) => ("Building", 0),
        (true, false) => ("Ready", 100),
    };
    let (count, replicas) = match &index.partitioning {
        Some(Partitioning { count, replicas, .. }) => (*count, *replicas),
        None => (1, 0),
    };
    json!({
        "id": index.uuid,
        "name": index.name,
        "index": index.name,
        "indexName": index.name,
        "bucket": bucket.name,
        "scope": index.scope,
        "collection": index.collection,
        "definition": index.definition,
        "isPrimary": index.keys.is_empty(),
        "secExprs": index.keys,
        "where": index.condition.as_deref().unwrap_or_default(),
        "indexType": "memory_optimized",
        "storageMode": "memory_optimized",
        "status": status,
        "completion": percent,
        "progress": percent,
        "hosts": hosts(call, cluster, index),
        "partitioned": index.partitioning.is_some(),
        "numPartition": count,
        "numReplica": replicas,
        "replicaId": 0,
    })
}

/// Returns the nodes that hold a part of an index: those with its partitions, or all nodes with documents.
fn hosts(call: &Call, cluster: &Cluster, index: &Index) -> Vec<String> {
    let nodes: Vec<NodeId> = match index.partitioning {
        Some(_) => {
            let has_some = |id: &NodeId| !cluster.held_by(*id, index).is_empty();
            cluster.nodes.keys().copied().filter(has_some).collect()
        }
        None => cluster.serving_nodes().into_keys().collect(),
    };
    let known = nodes.iter().filter_map(|id| cluster.nodes.get(id));
    known.map(|node| call.authority(&node.endpoints, node.endpoints.plain.mgmt())).collect()
}
