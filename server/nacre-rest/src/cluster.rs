//! Requests about the cluster as a whole.

use super::Call;
use super::body::{Reply, not_found, ok, reply};
use super::nodes::COMPATIBLE_VERSION;
use super::pieces::pieces;
use super::rebalance;
use super::routes::{READ, Route, any, get, ready};
use super::streams::{Kind, Place, STALLED_MAX};
use super::{pool, users};
use http_body_util::BodyExt;
use hyper::{Response, StatusCode};
use nacre_auth::{Keyspace, Login, Privilege};
use nacre_http::Access;
use nacre_links::cluster::membership::otp_node;
use nacre_node::{Node, Usage};
use serde_json::{Value, json};
use std::sync::Arc;

pub(super) const ROUTES: &[Route] = &[
    get("/", Access::Login, |_| ready(Ok(ok(&json!({"nacre": env!("CARGO_PKG_VERSION")}))))),
    get("/pools", Access::Login, |call| ready(Ok(ok(&pools(&call))))),
    get("/pools/default/terseClusterInfo", READ, |call| ready(Ok(ok(&terse(&call.node))))),
    get("/pools/default/nodeServices", Access::Login, |call| ready(map_once(&call.node, None))),
    get("/pools/default/nodeServicesStreaming", Access::Login, |call| {
        ready(map_stream(&call, None))
    }),
    get("/poolsStreaming/default", Access::Sight, |call| ready(pool_stream(call))),
    any("/pools/default/b/{name}", Access::Handler, |call| ready(map(&call, false))),
    any("/pools/default/bs/{name}", Access::Handler, |call| ready(map(&call, true))),
    any("/pools/default/bucketsStreaming/{name}", Access::Handler, |call| ready(map(&call, true))),
    get("/whoami", Access::Login, |call| ready(whoami(&call))),
    get("/versions", Access::Login, |_| {
        ready(Ok(ok(&json!({"implementationVersion": COMPATIBLE_VERSION}))))
    }),
];

fn whoami(call: &Call) -> Result<Reply, Reply> {
    let known = call.node.users();
    let mut described = users::describe(call.holder(&known).ok_or_else(not_found)?);
    if call.node.cluster().administrator == call.user {
        described["domain"] = json!("admin");
    }
    Ok(ok(&described))
}

/// Returns the reply to a request without a login: the kind of the server, and whether it has an administrator.
pub(super) fn for_strangers(is_unclaimed: bool) -> Reply {
    ok(&json!({
        "claimed": !is_unclaimed,
        "isAdminCreds": false,
        "isEnterprise": true,
        "implementationVersion": COMPATIBLE_VERSION,
        "pools": [],
    }))
}

/// Returns the reply of a node without an administrator. Tools send the credentials that they are about to set, and
/// conclude from the empty list that they may set them.
fn unclaimed() -> Value {
    json!({
        "isAdminCreds": true,
        "isEnterprise": true,
        "implementationVersion": COMPATIBLE_VERSION,
        "uuid": [],
        "pools": [],
    })
}

fn pools(call: &Call) -> Value {
    if call.claim.is_open() {
        return unclaimed();
    }
    json!({
        "isAdminCreds": call.require(Privilege::AdministerCluster, None).is_ok(),
        "isEnterprise": true,
        "implementationVersion": COMPATIBLE_VERSION,
        "uuid": call.node.cluster().uuid,
        "pools": [{"name": "default", "uri": "/pools/default"}],
        "componentsVersion": {"ns_server": COMPATIBLE_VERSION, "nacre": env!("CARGO_PKG_VERSION")},
    })
}

/// Returns a short description of the cluster: its UUID and its leader.
fn terse(node: &Node) -> Value {
    let cluster = node.cluster();
    let leader = node.leader().and_then(|leader| cluster.nodes.get(&leader));
    let leader = leader.map(|leader| otp_node(&leader.endpoints));
    json!({
        "clusterUUID": cluster.uuid,
        "orchestrator": leader.unwrap_or_else(|| "undefined".into()),
        "isBalanced": rebalance::is_balanced(&cluster),
        "clusterCompatVersion": COMPATIBLE_VERSION.get(..3),
    })
}

/// Returns the map of a bucket, or of the cluster.
fn map_once(node: &Node, bucket: Option<&str>) -> Result<Reply, Reply> {
    let map = node.map(bucket).ok_or_else(not_found)?;
    Ok(reply(StatusCode::OK, "application/json", map.to_string()))
}

/// Returns the map of a bucket once, or streams it with each change. Four newlines follow each map of a stream.
fn map(call: &Call, is_stream: bool) -> Result<Reply, Reply> {
    let name = call.segment("name");
    if !may_follow(&call.node, call.identity.as_ref(), Some(name)) {
        return Err(not_found());
    }
    match is_stream {
        false => map_once(&call.node, Some(name)),
        true => map_stream(call, Some(name)),
    }
}

/// Returns true if the user may read the map of that bucket, or of the cluster.
fn may_follow(node: &Node, login: Option<&Login>, bucket: Option<&str>) -> bool {
    let users = node.users();
    let user = login.and_then(|login| users.holder(login));
    user.is_some_and(|user| bucket.is_none_or(|bucket| user.may_open(bucket)))
}

/// Streams the map of a bucket, or of the cluster, with each change.
fn map_stream(call: &Call, bucket: Option<&str>) -> Result<Reply, Reply> {
    // This read only checks that the bucket exists. The stream reads the maps that it sends itself, so that it misses no
    // change.
    call.node.map(bucket).ok_or_else(not_found)?;
    let place = call.desk().enter(Kind::Watch)?;
    let (node, bucket) = (Arc::clone(&call.node), bucket.map(str::to_owned));
    let login = call.identity.clone();
    let read = move |node: &Arc<Node>| {
        let bucket = bucket.as_deref();
        may_follow(node, login.as_ref(), bucket)
            .then(|| node.map(bucket))?
            .map(|map| map.to_string())
    };
    Ok(stream(node, place, read))
}

/// Streams the description of `/pools/default` with each change.
fn pool_stream(call: Call) -> Result<Reply, Reply> {
    let place = call.desk().enter(Kind::Watch)?;
    let node = Arc::clone(&call.node);
    // The node does not ask other nodes for their usage: the stream reports changes of the map.
    let read = move |node: &Arc<Node>| {
        call.require_sight(Keyspace::default()).ok()?;
        Some(pool::describe_with(&call, &Usage::of_node(node)).to_string())
    };
    Ok(stream(node, place, read))
}

/// Streams the result of `read`, first immediately and then with each change of the map. The stream ends when `read`
/// returns `None`, for instance because the user was deleted. Four newlines follow each result.
fn stream(
    node: Arc<Node>,
    place: Option<Place>,
    mut read: impl FnMut(&Arc<Node>) -> Option<String> + Send + 'static,
) -> Reply {
    let (sender, body) = pieces();
    tokio::spawn(async move {
        let _place = place;
        let mut is_new = true;
        loop {
            let (changed, users) = (node.map_changed(), node.users_changed());
            let Some(text) = read(&node) else { return sender.finish() };
            if is_new {
                let piece = format!("{text}\n\n\n\n");
                let sent = tokio::time::timeout(STALLED_MAX, sender.send(piece));
                if !sent.await.unwrap_or(false) {
                    return;
                }
            }
            is_new = tokio::select! {
                () = changed => true,
                () = users => false,
                () = sender.closed() => return,
            };
        }
    });
    Response::new(body.boxed())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_cluster::{Change, Endpoints, FunctionChange, Ports};
    use nacre_links::platform::SystemPlatform;
    use nacre_links::process::Embedded;

    #[tokio::test]
    async fn a_stream_of_maps_begins_with_the_current_map() {
        let folder = tempfile::tempdir().unwrap();
        let platform =
            SystemPlatform::open(folder.path(), folder.path().join("plugins"), &Embedded).unwrap();
        let plain =
            Ports::from([("mgmt", 1), ("views", 2), ("query", 5), ("eventing", 4), ("kv", 3)]);
        let endpoints = Endpoints { host: None, plain, tls: None, fingerprint: None };
        let node =
            Node::open_with(Arc::new(platform), endpoints, nacre_server::services()).unwrap();
        // A spawned task does not run before the first await.
        let read = |node: &Arc<Node>| node.map(None).map(|map| map.to_string());
        let mut maps = stream(Arc::clone(&node), None, read).into_body();
        node.change(&Change::Functions(FunctionChange::AllowFunctionRecursion { allowed: true }))
            .unwrap();
        let first = maps.frame().await.unwrap().unwrap().into_data().unwrap();
        let first: Value = serde_json::from_slice(&first).unwrap();
        assert_eq!(first["rev"], node.cluster().rev);
    }
}
