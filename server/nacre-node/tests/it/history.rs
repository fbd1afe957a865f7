//! A node's description of buckets that keep superseded versions.

use crate::world::World;
use nacre_cluster::{
    BucketChange, BucketSettings, Change, EvictionPolicy, HistoryRetention, Refusal, StorageBackend,
};
use nacre_node::{Error, Node, cluster_map};
use std::sync::Arc;

fn create(node: &Arc<Node>, collection: &str, history: Option<bool>) -> Result<(), Error> {
    let (bucket, scope, collection) = ("b".into(), "_default".into(), collection.into());
    let change = Change::Buckets(BucketChange::CreateCollection {
        bucket,
        scope,
        collection,
        max_ttl: 0,
        history,
    });
    node.change(&change).map(drop)
}

fn capabilities(node: &Node) -> Vec<String> {
    let cluster = node.cluster();
    let map = cluster_map::of_bucket(&cluster, &cluster.buckets["b"], &node.local_node());
    let capabilities = map["bucketCapabilities"].as_array().unwrap().iter();
    capabilities.map(|name| name.as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_bucket_that_cannot_keep_history_reports_that() {
    let world = World::new();
    let node = world.node();
    let refused = create(&node, "c", Some(true)).unwrap_err();
    let reason = "History can only be used with Magma";
    let expected = Refusal::Invalid { field: "history", reason: reason.into() };
    assert!(matches!(refused, Error::Refused(found) if found == expected));
    assert!(!capabilities(&node).contains(&"nonDedupedHistory".into()));
}

#[test]
fn a_manifest_shows_which_collections_keep_history() {
    let world = World::new();
    let node = world.node_with(BucketSettings {
        storage_backend: StorageBackend::Magma,
        eviction_policy: EvictionPolicy::Full,
        history: HistoryRetention { seconds: 3600, ..HistoryRetention::default() },
        ..BucketSettings::default()
    });
    assert!(capabilities(&node).contains(&"nonDedupedHistory".into()));
    create(&node, "kept", None).unwrap();
    create(&node, "plain", Some(false)).unwrap();
    let manifest = cluster_map::manifest(&node.cluster().buckets["b"]);
    let list = manifest["scopes"][0]["collections"].as_array().unwrap().iter();
    let keeps: Vec<_> = list.map(|found| found["history"].as_bool().unwrap()).collect();
    assert_eq!(keeps, [true, true, false]);
}
