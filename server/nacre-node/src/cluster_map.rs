//! The cluster map as clients read it: where each vBucket is served, and what the node offers.
//!
//! Clients order maps by `(revEpoch, rev)` and trust the capability strings, so that only what works is named here.
//! `$HOST` is replaced by the client with the host it connected to.

use nacre_cluster::{Bucket, BucketKind, Cluster, StorageBackend};
use serde_json::{Value, json};

/// A port for each service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// Cluster management over HTTP.
    pub mgmt: u16,
    /// Views over HTTP.
    pub views: u16,
    /// Queries over HTTP.
    pub query: u16,
    /// Functions over HTTP.
    pub eventing: u16,
    /// Key-value over the binary protocol.
    pub kv: u16,
}

/// The ports of this node, and the name that clients reach it by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoints {
    /// Host name; `None` lets clients use the one they connected to.
    pub host: Option<String>,
    /// Ports without encryption.
    pub plain: Ports,
    /// Ports with TLS, if there are any.
    pub tls: Option<Ports>,
}

impl Endpoints {
    /// Where cluster management is, as `host:port`: what names the node.
    pub fn management(&self) -> String {
        format!("{}:{}", self.host.as_deref().unwrap_or("127.0.0.1"), self.plain.mgmt)
    }
}

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

impl Endpoints {
    fn services(&self) -> Value {
        let Ports { mgmt, views, query, eventing, kv } = self.plain;
        let mut services = json!({
            "mgmt": mgmt,
            "capi": views,
            "n1ql": query,
            "eventingAdminPort": eventing,
            "kv": kv,
        });
        if let Some(Ports { mgmt, views, query, eventing, kv }) = self.tls {
            services["n1qlSSL"] = json!(query);
            services["eventingSSL"] = json!(eventing);
            services["mgmtSSL"] = json!(mgmt);
            services["capiSSL"] = json!(views);
            services["kvSSL"] = json!(kv);
        }
        services
    }

    fn node_ext(&self) -> Value {
        let mut node = json!({"thisNode": true, "services": self.services()});
        if let Some(host) = &self.host {
            node["hostname"] = json!(host);
        }
        node
    }

    /// Host and port as maps write them.
    pub fn authority(&self, port: u16) -> String {
        format!("{}:{port}", self.host.as_deref().unwrap_or("$HOST"))
    }
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
        "nodesExt": [endpoints.node_ext()],
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
        "bucketCapabilities": bucket_capabilities(bucket),
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

/// What clients may expect of a bucket.
fn bucket_capabilities(bucket: &Bucket) -> Vec<&'static str> {
    let history = bucket.settings.can_keep_history().then_some("nonDedupedHistory");
    BUCKET_CAPABILITIES.into_iter().chain(history).collect()
}

/// Scopes and collections as clients read them; all numbers are hexadecimal text. Of a bucket that cannot keep history,
/// nothing is said about it.
pub fn manifest(bucket: &Bucket) -> Value {
    let can_keep_history = bucket.settings.can_keep_history();
    let scopes = bucket.manifest.scopes.iter().map(|scope| {
        let collections = scope.collections.iter().map(|collection| {
            let mut fields =
                json!({"name": collection.name, "uid": format!("{:x}", collection.id)});
            if collection.max_ttl != 0 {
                fields["maxTTL"] = json!(collection.max_ttl);
            }
            if can_keep_history {
                fields["history"] = json!(collection.history);
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
