//! Queries: `/query/service`, which the query service answers, and what clients ask to see whether it is there.

use super::Call;
use super::answer::sent;
use super::body::{Reply, error_reply, ok};
use hyper::StatusCode;
use nacre_plugin_host::Request;
use serde_json::json;
use std::sync::Arc;

pub(super) async fn route(call: Call) -> Reply {
    let path: Vec<String> = call.path.clone();
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let outcome = match (call.method.as_str(), &path[..]) {
        ("GET" | "POST", ["query", "service"] | ["query"]) => query(call).await,
        ("GET", ["admin", "ping"] | []) => Ok(ok(&json!({"status": "OK"}))),
        _ => Err(error_reply(StatusCode::NOT_FOUND, "not_found", "missing")),
    };
    outcome.unwrap_or_else(|reply| reply)
}

async fn query(call: Call) -> Result<Reply, Reply> {
    let request = Request {
        method: call.method.to_string(),
        path: "/query/service".into(),
        query: call.query,
        headers: call.headers,
        body: call.body,
    };
    let (node, user) = (Arc::clone(&call.node), call.user);
    sent("query_failed", move || node.queries().handle(&node, &request, &user)).await
}
