//! Queries: `/query/service` and the management of its requests, which the query service answers, and the node's
//! statistics of queries.

use super::Call;
use super::answer::sent;
use super::blocking_yield;
use super::body::{Reply, error_reply, json_reply, ok};
use super::routes::{ADMINISTER, Route, delete, get, post, ready};
use hyper::StatusCode;
use nacre_auth::Privilege;
use nacre_cluster::{Member, ServiceName};
use nacre_http::Access;
use nacre_query_service::DisconnectCheck;
use nacre_query_service::NodeQueries;
use nacre_sandbox::Request;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const READ_STATS: Access = Access::Cluster(Privilege::ReadStats);
const SERVICE: &str = "/query/service";
const PREPAREDS: &str = "/admin/prepareds/{rest...}";
const ACTIVE: &str = "/admin/active_requests/{rest...}";
const COMPLETED: &str = "/admin/completed_requests/{rest...}";
const FUNCTIONS: &str = "/admin/functions_cache/{rest...}";
const TASKS: &str = "/admin/tasks_cache/{rest...}";
const DICTIONARY: &str = "/admin/dictionary_cache/{rest...}";
const SETTINGS: &str = "/admin/settings/{rest...}";

/// The query service checks the privileges of its users itself.
pub(super) const ROUTES: &[Route] = &[
    get("/", Access::Login, |_| ready(Ok(ok(&json!({"status": "OK"}))))),
    get(SERVICE, Access::Handler, |call| Box::pin(asked(call, SERVICE.into()))),
    post(SERVICE, Access::Handler, |call| Box::pin(asked(call, SERVICE.into()))),
    get("/query", Access::Handler, |call| Box::pin(asked(call, SERVICE.into()))),
    post("/query", Access::Handler, |call| Box::pin(asked(call, SERVICE.into()))),
    get("/admin/ping", Access::Login, |_| ready(Ok(ok(&json!({"status": "OK"}))))),
    get("/admin/vitals", READ_STATS, |call| ready(Ok(ok(&vitals(&call))))),
    get("/admin/stats", READ_STATS, |call| ready(Ok(ok(&stats(&call))))),
    get("/admin/stats/{name}", READ_STATS, |call| ready(one_stat(&call))),
    get("/admin/config", READ_STATS, |call| ready(Ok(ok(&config(&call))))),
    get("/admin/clusters", READ_STATS, |call| ready(Ok(ok(&json!([cluster(&call)]))))),
    get("/admin/clusters/default", READ_STATS, |call| ready(Ok(ok(&cluster(&call))))),
    get("/admin/clusters/default/nodes", READ_STATS, |call| {
        ready(Ok(ok(&nodes(&call).into_values().collect())))
    }),
    get("/admin/clusters/default/nodes/{node}", READ_STATS, |call| {
        ready(nodes(&call).get(call.segment("node")).map(ok).ok_or_else(missing))
    }),
    get("/admin/indexes/{catalog}", Access::Handler, |call| Box::pin(asked_as_named(call))),
    get(PREPAREDS, Access::Handler, |call| Box::pin(asked_as_named(call))),
    delete(PREPAREDS, Access::Handler, |call| Box::pin(asked_as_named(call))),
    get(ACTIVE, Access::Handler, |call| Box::pin(asked_as_named(call))),
    delete(ACTIVE, Access::Handler, |call| Box::pin(asked_as_named(call))),
    get(COMPLETED, Access::Handler, |call| Box::pin(asked_as_named(call))),
    delete(COMPLETED, Access::Handler, |call| Box::pin(asked_as_named(call))),
    get(FUNCTIONS, Access::Handler, |call| Box::pin(asked_as_named(call))),
    get(TASKS, Access::Handler, |call| Box::pin(asked_as_named(call))),
    get(DICTIONARY, Access::Handler, |call| Box::pin(asked_as_named(call))),
    get(SETTINGS, Access::Handler, |call| Box::pin(asked_as_named(call))),
    delete(SETTINGS, Access::Handler, |call| Box::pin(asked_as_named(call))),
    post("/admin/settings", ADMINISTER, |call| Box::pin(asked_as_named(call))),
];

/// Returns the answer for a path that does not exist.
pub(super) fn missing() -> Reply {
    error_reply(StatusCode::NOT_FOUND, "not_found", "missing")
}

/// Forwards the request with its path to the query service.
async fn asked_as_named(call: Call) -> Result<Reply, Reply> {
    let path = format!("/{}", call.path.join("/"));
    asked(call, path).await
}

fn one_stat(call: &Call) -> Result<Reply, Reply> {
    let (name, mut stats) = (call.segment("name"), stats(call));
    let value = stats.get_mut(name).ok_or_else(missing)?.take();
    Ok(ok(&json!({ name: value })))
}

/// Returns the reply to a request without a login. SDKs expect an error of the query service.
pub(super) fn unauthorized() -> Reply {
    let mut reply = super::body::unauthorized();
    let body = json!({
        "errors": [{"code": 13014, "msg": "User does not have credentials to run queries: log in with a user and a password"}],
        "status": "fatal",
    });
    let refused = json_reply(StatusCode::UNAUTHORIZED, &body);
    *reply.body_mut() = refused.into_body();
    reply
}

/// Sets its flag when dropped. hyper drops the handler when the client disconnects.
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
    let client = blocking_yield::client();
    let gone: DisconnectCheck = Arc::new(move || {
        mark.load(Ordering::Relaxed) || client.as_ref().is_some_and(blocking_yield::is_gone)
    });
    let reply =
        sent(&desk, "query_failed", move || node.queries().handle(&node, &request, &user, gone))
            .await;
    // From here on, sending the answer fails if the client disconnects.
    waiting.0 = None;
    reply
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

/// Returns the statistics. Names are Couchbase's; times are in nanoseconds.
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

/// Describes the cluster, which is the only one that a node knows.
fn cluster(call: &Call) -> Value {
    let endpoints = call.node.endpoints();
    let store = format!("http://{}", call.authority(&endpoints, endpoints.plain.mgmt()));
    json!({
        "name": "default",
        "datastore": store,
        "configstore": store,
        "accountingstore": store,
        "version": env!("CARGO_PKG_VERSION"),
    })
}

/// Describes the nodes with the query service, by their names.
fn nodes(call: &Call) -> BTreeMap<String, Value> {
    let (cluster, name) = (call.node.cluster(), ServiceName::QUERY);
    let members = cluster.nodes.values().filter(|member| member.services.contains(&name));
    let nodes = members.map(|Member { endpoints, .. }| {
        let name = call.authority(endpoints, endpoints.plain.mgmt());
        let mut node = json!({"cluster": "default", "name": name, "options": null});
        let tls = endpoints.tls.as_ref();
        let ports = [("http", "queryEndpoint", "adminEndpoint", endpoints.plain.get("query"))];
        let tls = ("https", "querySecure", "adminSecure", tls.and_then(|tls| tls.get("query")));
        for (scheme, query, admin, port) in ports.into_iter().chain([tls]) {
            if let Some(port) = port {
                let base = format!("{scheme}://{}", call.authority(endpoints, port));
                node[query] = format!("{base}{SERVICE}").into();
                node[admin] = format!("{base}/admin").into();
            }
        }
        (name, node)
    });
    nodes.collect()
}
