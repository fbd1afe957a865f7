//! Queries: `/query/service` and what manages its requests, which the query service answers, and what the node tells of it.

use super::Call;
use super::answer::sent;
use super::apart;
use super::body::{Reply, error_reply, json_reply, ok};
use super::libraries;
use hyper::StatusCode;
use nacre_auth::Privilege;
use nacre_node::query::Gone;
use nacre_plugin_host::Request;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub(super) async fn route(call: Call) -> Reply {
    let path: Vec<String> = call.path.clone();
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let outcome = match (call.method.as_str(), &path[..]) {
        ("GET" | "POST", ["query", "service"] | ["query"]) => {
            asked(call, "/query/service".into()).await
        }
        ("GET", ["admin", "ping"] | []) => Ok(ok(&json!({"status": "OK"}))),
        ("GET", ["admin", "vitals"]) => told(&call, vitals(&call)),
        ("GET", ["admin", "stats"]) => told(&call, stats(&call)),
        ("GET", ["admin", "stats", name]) if stats(&call).get(name).is_some() => {
            let value = stats(&call)[*name].take();
            told(&call, json!({ *name: value }))
        }
        ("GET", ["admin", "config"]) => told(&call, config(&call)),
        (
            "GET" | "DELETE",
            ["admin", "prepareds" | "active_requests" | "completed_requests" | "settings", ..],
        ) => {
            let path = format!("/{}", path.join("/"));
            asked(call, path).await
        }
        ("POST", ["admin", "settings"]) => match call.require(Privilege::AdministerCluster, None) {
            Ok(()) => asked(call, "/admin/settings".into()).await,
            Err(reply) => Err(reply),
        },
        (_, ["evaluator", "v1", "libraries"]) => libraries::route(call, None).await,
        (_, ["evaluator", "v1", "libraries", name]) => {
            let name = (*name).to_owned();
            libraries::route(call, Some(name)).await
        }
        _ => Err(error_reply(StatusCode::NOT_FOUND, "not_found", "missing")),
    };
    outcome.unwrap_or_else(|reply| reply)
}

/// What a client is told who has not logged in: SDKs look for the errors of the query service.
pub(super) fn unauthorized() -> Reply {
    let mut reply = super::body::unauthorized();
    let body = json!({
        "errors": [{"code": 13014, "msg": "User does not have credentials to run queries: log in with a user and a password"}],
        "status": "fatal",
    });
    let told = json_reply(StatusCode::UNAUTHORIZED, &body);
    *reply.body_mut() = told.into_body();
    reply
}

/// Sets its mark when it is dropped: a client that goes away drops what waits for its answer.
struct Waiting(Option<Arc<AtomicBool>>);

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(gone) = &self.0 {
            gone.store(true, Ordering::Relaxed);
        }
    }
}

async fn asked(call: Call, path: String) -> Result<Reply, Reply> {
    let desk = call.desk();
    let request = Request {
        method: call.method.to_string(),
        path,
        query: call.query,
        headers: call.headers,
        body: call.body,
    };
    let (node, user) = (Arc::clone(&call.node), call.user);
    let mark = Arc::new(AtomicBool::new(false));
    let mut waiting = Waiting(Some(Arc::clone(&mark)));
    let client = apart::client();
    let gone: Gone = Arc::new(move || {
        mark.load(Ordering::Relaxed) || client.as_ref().is_some_and(apart::is_gone)
    });
    let reply =
        sent(&desk, "query_failed", move || node.queries().handle(&node, &request, &user, gone))
            .await;
    // What is left of the answer ends when it cannot be sent.
    waiting.0 = None;
    reply
}

fn told(call: &Call, value: Value) -> Result<Reply, Reply> {
    call.require(Privilege::ReadStats, None)?;
    Ok(ok(&value))
}

fn vitals(call: &Call) -> Value {
    let vitals = call.node.queries().vitals();
    let mean = vitals.elapsed_ns().checked_div(vitals.ended()).unwrap_or(0);
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "cores": std::thread::available_parallelism().map_or(1, usize::from),
        "request.completed.count": vitals.ended(),
        "request.active.count": vitals.begun().saturating_sub(vitals.ended()),
        "request_time.mean": format!("{:?}", Duration::from_nanos(mean)),
    })
}

/// Names are those of Couchbase; times are nanoseconds.
fn stats(call: &Call) -> Value {
    let vitals = call.node.queries().vitals();
    json!({
        "requests.count": vitals.begun(),
        "active_requests.count": vitals.begun().saturating_sub(vitals.ended()),
        "request_time.count": vitals.elapsed_ns(),
        "errors.count": vitals.failed(),
    })
}

fn config(call: &Call) -> Value {
    let name = call.node.endpoints().management();
    json!([{"name": name, "services": ["n1ql"]}])
}
