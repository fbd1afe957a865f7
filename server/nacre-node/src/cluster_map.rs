//! The cluster map as clients read it: where each vBucket is served, and what the node offers.
//!
//! Clients order maps by `(revEpoch, rev)` and trust the capability strings, so that only what works is named here.
//! `$HOST` is replaced by the client with the host it connected to.

use nacre_cluster::{Bucket, BucketKind, Cluster, Endpoints, Ports, StorageBackend};
use serde_json::{Value, json};

/// The epoch of all maps: it grows only when a lost quorum is overridden.
const REV_EPOCH: u64 = 1;

/// What clients may use on a bucket, by the strings they look for.
const BUCKET_CAPABILITIES: [&str; 17] = [
    "collections",
    "durableWrite",
    "couchapi",
    "cccp",
    "cbhello",
    "nodesExt",
    "touch",
    "xattr",
    "preserveExpiry",
    "rangeScan",
    "tombstonedUserXAttrs",
    "subdoc.AccessDeleted",
    "subdoc.BinaryXattr",
    "subdoc.DocumentMacroSupport",
    "subdoc.ReplicaRead",
    "subdoc.ReviveDocument",
    "subdoc.ReplaceBodyWithXattr",
];

fn services(endpoints: &Endpoints) -> Value {
    let Ports { mgmt, views, query, eventing, kv } = endpoints.plain;
    let mut services = json!({
        "mgmt": mgmt,
        "capi": views,
        "n1ql": query,
        "eventingAdminPort": eventing,
        "kv": kv,
    });
    if let Some(Ports { mgmt, views, query, eventing, kv }) = endpoints.tls {
        services["n1qlSSL"] = json!(query);
        services["eventingSSL"] = json!(eventing);
        services["mgmtSSL"] = json!(mgmt);
        services["capiSSL"] = json!(views);
        services["kvSSL"] = json!(kv);
    }
    services
}

fn node_ext(endpoints: &Endpoints) -> Value {
    let mut node = json!({"thisNode": true, "services": services(endpoints)});
    if let Some(host) = &endpoints.host {
        node["hostname"] = json!(host);
    }
    node
}

/// Epoch and revision of the map, as clients compare them.
pub fn version(cluster: &Cluster) -> (i64, i64) {
    (REV_EPOCH as i64, cluster.rev as i64)
}

/// The map of the cluster, for connections without a bucket.
pub fn global(cluster: &Cluster, endpoints: &Endpoints) -> Value {
    json!({
        "rev": cluster.rev,
        "revEpoch": REV_EPOCH,
        "nodesExt": [node_ext(endpoints)],
        "clusterCapabilitiesVer": [1, 0],
        "clusterCapabilities": {"n1ql": ["enhancedPreparedStatements"]},
        "clusterUUID": cluster.uuid,
        "clusterName": cluster.name,
        "prod": "server",
        "prodName": "nacre",
    })
}

/// The map of a bucket.
pub fn of_bucket(cluster: &Cluster, bucket: &Bucket, endpoints: &Endpoints) -> Value {
    let mut map = global(cluster, endpoints);
    let (name, uuid, plain) = (&bucket.name, &bucket.uuid, endpoints.plain);
    let chain: Vec<i64> = std::iter::once(0)
        .chain(std::iter::repeat_n(-1, usize::from(bucket.settings.replicas)))
        .collect();
    let rows = vec![chain; usize::from(bucket.settings.vbucket_count)];
    let (kind, backend) = match (bucket.settings.kind, bucket.settings.storage_backend) {
        (BucketKind::Ephemeral, _) => ("ephemeral", "undefined"),
        (BucketKind::Persistent, StorageBackend::Couchstore) => ("membase", "couchstore"),
        (BucketKind::Persistent, StorageBackend::Magma) => ("membase", "magma"),
        (BucketKind::Persistent, StorageBackend::Sled) => ("membase", "sled"),
    };
    let fields = json!({
        "name": name,
        "uuid": uuid,
        "nodeLocator": "vbucket",
        "bucketType": kind,
        "storageBackend": backend,
        "numVBuckets": bucket.settings.vbucket_count,
        "uri": format!("/pools/default/buckets/{name}?bucket_uuid={uuid}"),
        "streamingUri": format!("/pools/default/bucketsStreaming/{name}?bucket_uuid={uuid}"),
        "bucketCapabilitiesVer": "",
        "bucketCapabilities": BUCKET_CAPABILITIES,
        "collectionsManifestUid": format!("{:x}", bucket.manifest.uid),
        "ddocs": {"uri": format!("/pools/default/buckets/{name}/ddocs")},
        "vBucketServerMap": {
            "hashAlgorithm": "CRC",
            "numReplicas": bucket.settings.replicas,
            "serverList": [endpoints.authority(plain.kv)],
            "vBucketMap": rows,
        },
        "nodes": [{
            "couchApiBase": format!("http://{}/{name}", endpoints.authority(plain.views)),
            "hostname": endpoints.authority(plain.mgmt),
            "ports": {"direct": plain.kv},
        }],
    });
    if let (Value::Object(map), Value::Object(fields)) = (&mut map, fields) {
        map.extend(fields);
    }
    map
}

/// Scopes and collections as clients read them; all numbers are hexadecimal text.
pub fn manifest(bucket: &Bucket) -> Value {
    let scopes = bucket.manifest.scopes.iter().map(|scope| {
        let collections = scope.collections.iter().map(|collection| {
            let mut fields =
                json!({"name": collection.name, "uid": format!("{:x}", collection.id)});
            if collection.max_ttl != 0 {
                fields["maxTTL"] = json!(collection.max_ttl);
            }
            fields
        });
        json!({
            "name": scope.name,
            "uid": format!("{:x}", scope.id),
            "collections": collections.collect::<Vec<_>>(),
        })
    });
    json!({"uid": format!("{:x}", bucket.manifest.uid), "scopes": scopes.collect::<Vec<_>>()})
}
