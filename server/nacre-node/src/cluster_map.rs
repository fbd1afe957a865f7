//! The cluster map for clients: the node of each vBucket, and the capabilities of the node.
//!
//! Clients order maps by `(revEpoch, rev)` and trust the capability strings, so the map names only features that work.
//! A client replaces `$HOST` by the host it connected to.

use crate::service::ServiceTable;
use nacre_cluster::{
    Alternate, Bucket, BucketKind, Chain, Cluster, Collection, Endpoints, GROUP_DEFAULT, Manifest,
    ServiceName, StorageBackend,
};
use nacre_types::NodeId;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The epoch of maps before the first override of a lost quorum.
const REV_EPOCH: u64 = 1;

/// Features that clients may use on a bucket, by the strings that clients look for.
const BUCKET_CAPABILITIES: [&str; 16] = [
    "collections",
    "durableWrite",
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

/// Returns the alternate addresses of a node in the format of maps and node lists: by network. There is one network.
pub fn alternates(Alternate { host, ports }: &Alternate) -> Value {
    let mut external = json!({"hostname": host});
    if !ports.is_empty() {
        external["ports"] = json!(ports);
    }
    json!({"external": external})
}

/// The node that a map is built for. The map marks this node and contains its own endpoints, which the other nodes may
/// not have yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalNode {
    /// The node.
    pub id: NodeId,
    /// Endpoints of the node.
    pub endpoints: Endpoints,
    /// The services that nodes can have.
    pub services: ServiceTable,
}

impl LocalNode {
    /// Returns the endpoints of all nodes; for this node, its own view of them.
    pub fn nodes(&self, cluster: &Cluster) -> BTreeMap<NodeId, Endpoints> {
        let others = cluster.nodes.iter().map(|(id, node)| (*id, node.endpoints.clone()));
        others.chain([(self.id, self.endpoints.clone())]).collect()
    }

    /// Returns true if clients are sent to this node for key-value operations.
    fn is_listed(&self, cluster: &Cluster) -> bool {
        self.serving(cluster).iter().any(|node| node.id == self.id && node.has_data())
    }

    /// Returns the nodes that clients should connect to. Other nodes are omitted, because a request to a lost or future
    /// node would never be answered. Nodes that serve vBuckets come first, because clients refer to them by index.
    fn serving(&self, cluster: &Cluster) -> Vec<Serving> {
        let chains = cluster.buckets.values().flat_map(|bucket| &bucket.chains);
        let mut with_copies: BTreeSet<NodeId> =
            chains.flat_map(|chain| chain.copies.iter().flatten()).copied().collect();
        with_copies.extend(cluster.serving_nodes().into_keys());
        // These nodes will serve vBuckets soon. A client needs about as long to connect as a vBucket needs to move.
        let joining = cluster.rebalance.iter().map(|rebalance| cluster.with_data(&rebalance.keep));
        with_copies.extend(joining.flatten().map(|(id, _)| id));
        let active = cluster.active_nodes();
        let nodes = self.nodes(cluster).into_iter();
        let nodes = nodes.filter(|(id, _)| with_copies.contains(id) || active.contains(id));
        let mut serving: Vec<Serving> = nodes
            .map(|(id, endpoints)| {
                let member = cluster.nodes.get(&id);
                let mut services = member.map(|node| node.services.clone()).unwrap_or_default();
                if with_copies.contains(&id) {
                    services.insert(ServiceName::DATA);
                }
                let group = member.map_or(GROUP_DEFAULT, |node| &node.group).to_owned();
                let alternate = member.and_then(|node| node.alternate.clone());
                Serving { id, endpoints, services, group, alternate }
            })
            .collect();
        serving.sort_by_key(|node| !node.has_data());
        serving
    }
}

/// A node that clients should connect to.
struct Serving {
    id: NodeId,
    endpoints: Endpoints,
    services: BTreeSet<ServiceName>,
    group: String,
    alternate: Option<Alternate>,
}

impl Serving {
    fn has_data(&self) -> bool {
        self.services.contains(&ServiceName::DATA)
    }

    fn describe(&self, here: &LocalNode) -> Value {
        let services = here.services.map_ports(&self.endpoints, &self.services);
        let mut node = json!({"services": services, "serverGroup": self.group});
        if self.id == here.id {
            node["thisNode"] = json!(true);
        }
        if let Some(host) = &self.endpoints.host {
            node["hostname"] = json!(host);
        }
        if let Some(alternate) = &self.alternate {
            let mut alternates = alternates(alternate);
            if alternate.ports.is_empty() {
                // The C++ core treats a service without a port in this list as absent.
                alternates["external"]["ports"] = node["services"].clone();
            }
            node["alternateAddresses"] = alternates;
        }
        node
    }
}

/// Maps as text, built once per state of the cluster: while vBuckets move, every client that is behind receives one
/// with each request.
#[derive(Default)]
pub(crate) struct MapCache {
    of: Option<(Arc<Cluster>, LocalNode)>,
    /// By bucket; the key `None` is the map of the cluster.
    texts: BTreeMap<Option<String>, Arc<str>>,
    /// True if clients are sent to this node for key-value operations; `None` before the first use.
    is_listed: Option<bool>,
}

impl MapCache {
    /// Returns the map of a bucket, for a client that sent a request to the wrong node; `None` if there is no such
    /// bucket, or if this node is not in the map.
    ///
    /// The SDK for Go (gocbcore 10.8) applies a map from a reply on the thread that reads from the node, and closes the
    /// connections of removed nodes, which waits for their threads: the thread would wait for itself forever. The SDK
    /// gets the map from the other nodes instead.
    pub fn not_my_vbucket_map(
        &mut self,
        cluster: &Arc<Cluster>,
        here: LocalNode,
        bucket: Option<&str>,
    ) -> Option<Arc<str>> {
        let text = self.get(cluster, here, bucket)?;
        let (cluster, here) = self.of.as_ref()?;
        self.is_listed.get_or_insert_with(|| here.is_listed(cluster)).then_some(text)
    }

    /// Returns the map of a bucket, or of the cluster; `None` if there is no such bucket.
    pub fn get(
        &mut self,
        cluster: &Arc<Cluster>,
        here: LocalNode,
        bucket: Option<&str>,
    ) -> Option<Arc<str>> {
        let is_of_now =
            |(of, place): &(Arc<Cluster>, LocalNode)| Arc::ptr_eq(of, cluster) && *place == here;
        if !self.of.as_ref().is_some_and(is_of_now) {
            *self =
                MapCache { of: Some((Arc::clone(cluster), here.clone())), ..MapCache::default() };
        }
        let bucket = bucket.map(str::to_owned);
        if let Some(text) = self.texts.get(&bucket) {
            return Some(Arc::clone(text));
        }
        let map = match &bucket {
            Some(name) => of_bucket(cluster, cluster.bucket(name).ok()?, &here),
            None => global(cluster, &here),
        };
        let text: Arc<str> = map.to_string().into();
        self.texts.insert(bucket, Arc::clone(&text));
        Some(text)
    }
}

/// Returns the epoch and the revision of the map, as clients compare them.
pub fn version(cluster: &Cluster) -> (i64, i64) {
    ((REV_EPOCH + cluster.regroups) as i64, cluster.rev as i64)
}

/// Returns the map of the cluster, for connections without a bucket.
pub fn global(cluster: &Cluster, here: &LocalNode) -> Value {
    let nodes = here.serving(cluster);
    let nodes = nodes.iter().map(|node| node.describe(here));
    json!({
        "rev": cluster.rev,
        "revEpoch": version(cluster).0,
        "nodesExt": nodes.collect::<Vec<_>>(),
        "clusterCapabilitiesVer": [1, 0],
        "clusterCapabilities": here.services.capabilities(),
        "clusterUUID": cluster.uuid,
        "clusterName": cluster.name,
        "prod": "server",
        "prodName": "nacre",
    })
}

/// Returns the map of a bucket.
pub fn of_bucket(cluster: &Cluster, bucket: &Bucket, here: &LocalNode) -> Value {
    let mut map = global(cluster, here);
    let (name, uuid) = (&bucket.name, &bucket.uuid);
    let mut nodes = here.serving(cluster);
    nodes.retain(Serving::has_data);
    let servers_by_id: Vec<NodeId> = nodes.iter().map(|node| node.id).collect();
    let servers = nodes.iter().map(|node| node.endpoints.authority(node.endpoints.plain.kv()));
    let servers: Vec<String> = servers.collect();
    let nodes = nodes.iter().map(|Serving { endpoints, .. }| {
        json!({
            "couchApiBase": endpoints.plain.get("views").map(|port| {
                format!("http://{}/{name}", endpoints.authority(port))
            }),
            "hostname": endpoints.authority(endpoints.plain.mgmt()),
            "ports": {"direct": endpoints.plain.kv()},
        })
    });
    let nodes: Vec<Value> = nodes.collect();
    let rows: Vec<Vec<i64>> =
        bucket.chains.iter().map(|chain| row(chain, &servers_by_id)).collect();
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
            "serverList": servers,
            "vBucketMap": rows,
        },
        "nodes": nodes,
    });
    if let (Value::Object(map), Value::Object(fields)) = (&mut map, fields) {
        map.extend(fields);
    }
    map
}

/// Returns the indexes of a vBucket's copies in the list of servers; -1 for a missing copy.
fn row(chain: &Chain, servers: &[NodeId]) -> Vec<i64> {
    let place = |node: &Option<NodeId>| {
        let place = servers.iter().position(|known| Some(*known) == *node);
        place.map_or(-1, |place| place as i64)
    };
    chain.copies.iter().map(place).collect()
}

/// Returns the capabilities of a bucket.
fn bucket_capabilities(bucket: &Bucket) -> Vec<&'static str> {
    let history = bucket.settings.can_keep_history().then_some("nonDedupedHistory");
    // Clients open no connections for views of an ephemeral bucket. If the map promises views, the Java SDK waits for
    // them until its timeout.
    let views = (bucket.settings.kind == BucketKind::Persistent).then_some("couchapi");
    BUCKET_CAPABILITIES.into_iter().chain(views).chain(history).collect()
}

/// Returns the scopes and collections in the format of the management port; all IDs are hexadecimal text.
///
/// `maxTTL` and `history` are always present: 0 means the bucket's value, -1 means none. Source: Couchbase Server 7.6,
/// `GET …/scopes`.
pub fn manifest(bucket: &Bucket) -> Value {
    let history =
        |collection: &Collection| bucket.settings.can_keep_history() && collection.history;
    manifest_with(&bucket.manifest, |collection, fields| {
        fields["maxTTL"] = json!(collection.max_ttl);
        fields["history"] = json!(history(collection));
    })
}

/// Returns `manifest`, the bucket's or a part of it, in the format of the key-value port: `maxTTL` is never negative
/// and is omitted if the collection has no value of its own; `history` is present if history is kept. Source: Couchbase
/// Server 7.6, opcode 0xba.
pub fn wire_manifest(bucket: &Bucket, manifest: &Manifest) -> Value {
    let can_keep_history = bucket.settings.can_keep_history();
    manifest_with(manifest, |collection, fields| {
        if collection.max_ttl != 0 {
            fields["maxTTL"] = json!(collection.max_ttl.max(0));
        }
        if can_keep_history && collection.history {
            fields["history"] = json!(true);
        }
    })
}

fn manifest_with(manifest: &Manifest, complete: impl Fn(&Collection, &mut Value)) -> Value {
    let scopes = manifest.scopes.iter().map(|scope| {
        let collections = scope.collections.iter().map(|collection| {
            let mut fields =
                json!({"name": collection.name, "uid": format!("{:x}", collection.id)});
            complete(collection, &mut fields);
            fields
        });
        json!({
            "name": scope.name,
            "uid": format!("{:x}", scope.id),
            "collections": collections.collect::<Vec<_>>(),
        })
    });
    json!({"uid": format!("{:x}", manifest.uid), "scopes": scopes.collect::<Vec<_>>()})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scatter_gather::NodeService;
    use crate::service::Service;
    use nacre_cluster::{
        BucketChange, BucketSettings, Change, Member, Membership, NodeChange, Ports,
    };

    /// Returns the table of a node without other services.
    fn node_alone() -> ServiceTable {
        ServiceTable::of(&[Arc::new(NodeService) as Arc<dyn Service>])
    }

    #[test]
    fn a_map_is_made_once_of_each_state() {
        let endpoints = |kv| Endpoints {
            host: None,
            plain: Ports::from([
                ("mgmt", 1),
                ("views", 2),
                ("query", 3),
                ("eventing", 4),
                ("kv", kv),
            ]),
            tls: None,
            fingerprint: None,
        };
        let here =
            |kv| LocalNode { id: NodeId(1), endpoints: endpoints(kv), services: node_alone() };
        let first = Arc::new(Cluster::new("c".repeat(32)));
        let mut texts = MapCache::default();
        let map = texts.get(&first, here(5), None).unwrap();
        assert_eq!(*map, global(&first, &here(5)).to_string());
        assert!(Arc::ptr_eq(&map, &texts.get(&first, here(5), None).unwrap()));
        assert!(texts.get(&first, here(5), Some("none")).is_none());
        // A different node, and a different state.
        let moved = texts.get(&first, here(6), None).unwrap();
        assert_eq!(*moved, global(&first, &here(6)).to_string());
        let next = Arc::new(Cluster { rev: first.rev + 1, ..Cluster::clone(&first) });
        let later = texts.get(&next, here(6), None).unwrap();
        assert_eq!(*later, global(&next, &here(6)).to_string());
        assert_ne!((&moved, &later), (&map, &moved));
    }

    #[test]
    fn a_node_that_is_about_to_serve_is_in_the_map_so_that_clients_are_connected() {
        let ports =
            Ports::from([("mgmt", 1), ("views", 2), ("query", 3), ("eventing", 4), ("kv", 5)]);
        let member = |host: &str, membership| Member {
            uuid: host.into(),
            endpoints: Endpoints {
                host: Some(host.into()),
                plain: ports.clone(),
                tls: None,
                fingerprint: None,
            },
            group: GROUP_DEFAULT.into(),
            services: ServiceName::FIRST.into(),
            membership,
            alternate: None,
        };
        let mut cluster = Cluster::new("c".repeat(32));
        let (first, second) = (member("a", Membership::Active), member("b", Membership::Added));
        let here =
            LocalNode { id: NodeId(1), endpoints: first.endpoints.clone(), services: node_alone() };
        let bucket = ("b".to_owned(), "u".to_owned(), BucketSettings::default());
        let (name, uuid, settings) = bucket;
        for change in [
            Change::Nodes(NodeChange::PutNode { id: NodeId(1), member: first }),
            Change::Buckets(BucketChange::CreateBucket { name, uuid, settings }),
            Change::Nodes(NodeChange::PutNode { id: NodeId(2), member: second }),
        ] {
            cluster.apply(&change).unwrap();
        }
        let servers = |cluster: &Cluster| {
            let map = of_bucket(cluster, &cluster.buckets["b"], &here);
            map["vBucketServerMap"]["serverList"].as_array().unwrap().len()
        };
        assert_eq!(servers(&cluster), 1, "nobody knows when it will serve");
        let keep = [NodeId(1), NodeId(2)].into();
        let rebalance = Change::Nodes(NodeChange::StartRebalance {
            id: "r".into(),
            keep,
            rest: Membership::Leaving,
            services: BTreeMap::new(),
        });
        cluster.apply(&rebalance).unwrap();
        assert_eq!(servers(&cluster), 2);
    }
    #[test]
    fn manifests_of_the_two_ports_differ_in_lives_and_history() {
        let mut cluster = Cluster::new("c".repeat(32));
        let (name, uuid, settings) = ("b".to_owned(), "u".to_owned(), BucketSettings::default());
        cluster
            .apply(&Change::Buckets(BucketChange::CreateBucket { name, uuid, settings }))
            .unwrap();
        for (collection, max_ttl) in [("never", -1), ("short", 60)] {
            let (bucket, scope) = ("b".to_owned(), "_default".to_owned());
            let collection = collection.to_owned();
            let change = Change::Buckets(BucketChange::CreateCollection {
                bucket,
                scope,
                collection,
                max_ttl,
                history: None,
            });
            cluster.apply(&change).unwrap();
        }
        let bucket = &cluster.buckets["b"];
        let fields = |manifest: Value| {
            let collections = manifest["scopes"][0]["collections"].clone();
            let shown = |collection: &Value| {
                let name = collection["name"].as_str().unwrap();
                format!("{name} {} {}", collection["maxTTL"], collection["history"])
            };
            collections.as_array().unwrap().iter().map(shown).collect::<Vec<_>>()
        };
        assert_eq!(
            fields(manifest(bucket)),
            ["_default 0 false", "never -1 false", "short 60 false"]
        );
        assert_eq!(
            fields(wire_manifest(bucket, &bucket.manifest)),
            ["_default null null", "never 0 null", "short 60 null"]
        );
    }
}
