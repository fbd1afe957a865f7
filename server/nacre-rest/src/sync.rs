//! Entry point for devices: `GET /_sync/{bucket}` upgrades to a session. See [`kv::web`](nacre_links::kv::web).

use super::Call;
use super::body::{Reply, error_reply};
use super::routes::{Answer, Route, get, ready};
use hyper::StatusCode;
use nacre_auth::{Keyspace, person};
use nacre_cluster::ConflictResolution;
use nacre_http::{Access, websocket};
use nacre_links::kv::web::Upgrade;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The subprotocol of the WebSocket.
const PROTOCOL: &str = "nacre-sync-1";

pub(super) const ROUTES: &[Route] = &[get("/_sync/{bucket}", Access::Handler, accept)];

fn accept(call: Call) -> Answer {
    ready(upgrade(call))
}

fn refused(status: StatusCode, code: &str, reason: &str) -> Result<Reply, Reply> {
    Err(error_reply(status, code, reason))
}

fn upgrade(mut call: Call) -> Result<Reply, Reply> {
    let name = call.segment("bucket").to_owned();
    call.require_sight(Keyspace { bucket: Some(&name), ..Keyspace::default() })?;
    let Some(login) = call.identity.clone() else {
        return refused(StatusCode::FORBIDDEN, "forbidden", "the node has no administrator yet");
    };
    if call.session.is_some() || call.user != person(&call.user) {
        let reason = "a device logs in with name and password, or with a certificate";
        return refused(StatusCode::FORBIDDEN, "forbidden", reason);
    }
    let hello = hello(&call, &name)?;
    let reply = websocket::accept(&call.headers, PROTOCOL)?;
    let Some(upgrade) = call.upgrade.take() else {
        return refused(StatusCode::BAD_REQUEST, "bad_request", "this connection cannot change");
    };
    let Some(permit) = call.front.connections.enter(call.from, 1) else {
        let reason = "there are too many connections: try again later";
        return refused(StatusCode::SERVICE_UNAVAILABLE, "busy", reason);
    };
    call.front.threads.web.serve(Upgrade { upgrade, login, from: call.from, permit, hello });
    Ok(reply)
}

/// Returns the first message, which tells a device what it must know before it sends a frame.
fn hello(call: &Call, name: &str) -> Result<String, Reply> {
    let cluster = call.node.cluster();
    let Ok(bucket) = cluster.bucket(name) else {
        return Err(super::body::not_found());
    };
    let by_time = bucket.settings.conflict_resolution == ConflictResolution::LastWriteWins;
    let here = call.node.id();
    let serving: BTreeSet<_> = bucket.chains.iter().filter_map(|chain| chain.active()).collect();
    let others = || cluster.nodes.iter().filter(|(id, _)| **id != here && serving.contains(id));
    let nodes = others().map(|(_, node)| {
        let endpoints = &node.endpoints;
        let encrypted = endpoints.tls.as_ref().map(|ports| call.authority(endpoints, ports.mgmt()));
        json!({"plain": call.authority(endpoints, endpoints.plain.mgmt()), "encrypted": encrypted})
    });
    let nodes: Vec<Value> = nodes.collect();
    let hello = json!({
        "clusterUuid": cluster.uuid,
        "bucket": name,
        "bucketUuid": bucket.uuid,
        "vbuckets": bucket.settings.vbucket_count,
        "byTime": by_time,
        "unixNs": call.node.now().unix_ns,
        "nodes": nodes,
    });
    Ok(hello.to_string())
}
