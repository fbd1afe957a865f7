//! `GET /health` and `GET /ready`: answers for programs that supervise a node. They need no login.
//!
//! `/health` answers 200 as long as the node answers at all: a supervisor that gets no answer may restart the node. `/ready` answers 200
//! if clients can use the node, else 503 with the reasons. Both answers contain no documents and no names of buckets or users.

use super::body::{Reply, json_reply, ok};
use hyper::StatusCode;
use nacre_cluster::Member;
use nacre_node::Node;
use serde_json::json;

/// Paths that need no login.
pub(super) const HEALTH: &str = "/health";
pub(super) const READY: &str = "/ready";

/// Reports that the node answers.
pub(super) fn health() -> Reply {
    ok(&json!({"status": "ok"}))
}

/// Reports whether clients can use the node.
pub(super) fn ready(node: &Node) -> Reply {
    let reasons = reasons(node);
    match reasons.is_empty() {
        true => ok(&json!({"status": "ready"})),
        false => json_reply(
            StatusCode::SERVICE_UNAVAILABLE,
            &json!({"status": "not_ready", "reasons": reasons}),
        ),
    }
}

/// Returns the reasons why clients cannot use the node: counts, but no names.
fn reasons(node: &Node) -> Vec<String> {
    let mut reasons = Vec::new();
    if node.users().iter().next().is_none() {
        reasons.push("the node has no administrator yet".to_owned());
    }
    let (cluster, now) = (node.cluster(), node.now());
    let buckets: Vec<_> = cluster.buckets.keys().filter_map(|name| node.bucket(name)).collect();
    let closed = cluster.buckets.len() - buckets.len();
    let keeps_documents = cluster.nodes.get(&node.id()).is_none_or(Member::has_data);
    if closed > 0 && keeps_documents {
        reasons.push(format!("{closed} buckets are not open"));
    }
    if buckets.iter().any(|bucket| !bucket.has_lease(now)) {
        reasons.push("the node does not reach most nodes of its cluster".to_owned());
    }
    let damaged = node.problems().iter().filter(|problem| problem.is_lasting()).count();
    if damaged > 0 {
        reasons.push(format!("{damaged} buckets have problems that do not pass by themselves"));
    }
    reasons
}
