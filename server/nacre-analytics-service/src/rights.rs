//! Rights of a user in analytics, in the form in which the process receives them.

use crate::Privilege;
use nacre_auth::Keyspace;
use nacre_cluster::Cluster;
use nacre_node::Node;
use nacre_node::service::HttpRequest;
use serde_json::json;

/// Stands for everything.
const ALL: &str = "*";

/// The rights of the user of a request, as JSON: `{"manage": [bucket], "select": [bucket, bucket:scope, bucket:scope:collection]}`, with `*`
/// for all.
pub(crate) fn of_user(node: &Node, request: &HttpRequest) -> String {
    let cluster = node.cluster();
    let may = |privilege: Privilege, keyspace: Keyspace<'_>| request.may(node, privilege, keyspace);
    json!({"manage": managed(&cluster, &may), "select": selected(&cluster, &may)}).to_string()
}

type May<'a> = dyn Fn(Privilege, Keyspace<'_>) -> bool + 'a;

fn managed(cluster: &Cluster, may: &May<'_>) -> Vec<String> {
    if may(Privilege::AdministerAnalytics, Keyspace::default()) {
        return vec![ALL.to_owned()];
    }
    let of_bucket = |bucket: &&String| {
        let keyspace = Keyspace { bucket: Some(bucket), ..Keyspace::default() };
        may(Privilege::AdministerAnalytics, keyspace)
    };
    cluster.buckets.keys().filter(of_bucket).cloned().collect()
}

fn selected(cluster: &Cluster, may: &May<'_>) -> Vec<String> {
    let may = |keyspace: Keyspace<'_>| may(Privilege::Analyze, keyspace);
    if may(Keyspace::default()) {
        return vec![ALL.to_owned()];
    }
    let mut selected = Vec::new();
    for (bucket, content) in &cluster.buckets {
        let keyspace = Keyspace { bucket: Some(bucket), ..Keyspace::default() };
        if may(keyspace) {
            selected.push(bucket.clone());
            continue;
        }
        for scope in &content.manifest.scopes {
            let keyspace = Keyspace { scope: Some(&scope.name), ..keyspace };
            if may(keyspace) {
                selected.push(format!("{bucket}:{}", scope.name));
                continue;
            }
            for collection in &scope.collections {
                let keyspace = Keyspace { collection: Some(&collection.name), ..keyspace };
                if may(keyspace) {
                    selected.push(format!("{bucket}:{}:{}", scope.name, collection.name));
                }
            }
        }
    }
    selected
}
