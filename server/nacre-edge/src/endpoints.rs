//! The endpoints of a gateway: those of a node that apply here, and some for sync.

use crate::door::Call;
use crate::gateway::{BUCKET, Gateway, NoSync};
use crate::{devices, documents, tokens};
use hyper::http::request::Parts;
use hyper::{Method as HttpMethod, StatusCode};
use nacre::SyncStatus;
use nacre_auth::{Keyspace, Privilege};
use nacre_http::body::{Reply, invalid, json_reply, ok, reply};
use nacre_http::{Access, Method, Route, Table, problem};
use serde_json::{Value, json};
use std::sync::LazyLock;
use std::time::Duration;

/// Answers a request. It runs on a thread that may wait for the disk.
pub(crate) type Handler = fn(Call) -> Result<Reply, Reply>;

/// Largest body of a request that is not a document, in bytes.
const SMALL_BYTES_MAX: usize = 64 << 10;
/// Longest wait for sync, in seconds.
const WAIT_S_MAX: u64 = 60;

const DOCUMENTS: &str = "/api/v1/buckets/{bucket}/documents";
const DOCUMENT: &str = "/api/v1/buckets/{bucket}/documents/{id}";
const IN_COLLECTION: &str =
    "/api/v1/buckets/{bucket}/scopes/{scope}/collections/{collection}/documents";
const ONE_IN_COLLECTION: &str =
    "/api/v1/buckets/{bucket}/scopes/{scope}/collections/{collection}/documents/{id}";
const SCOPES: &str = "/pools/default/buckets/{bucket}/scopes";
const SCOPE: &str = "/pools/default/buckets/{bucket}/scopes/{scope}";
const COLLECTIONS: &str = "/pools/default/buckets/{bucket}/scopes/{scope}/collections";
const COLLECTION: &str = "/pools/default/buckets/{bucket}/scopes/{scope}/collections/{collection}";
const KEYSPACES: Access = Access::Bucket(Privilege::AdministerCollections);
const STATS: Access = Access::Cluster(Privilege::ReadStats);
const OWNER: Access = Access::Cluster(Privilege::AdministerCluster);

const fn route(
    method: Method,
    path: &'static str,
    access: Access,
    handler: Handler,
) -> Route<Handler> {
    Route::new(method, path, access, handler)
}

const ROUTES: &[Route<Handler>] = &[
    route(Method::Get, "/api/v1", Access::Login, |_| Ok(about())),
    route(Method::Get, "/api/v1/buckets", Access::Login, |call| Ok(buckets(&call))),
    route(Method::Get, "/api/v1/status", STATS, |call| Ok(status(&call))),
    route(Method::Get, DOCUMENTS, Access::Handler, documents::list),
    route(Method::Post, DOCUMENTS, Access::Handler, documents::create)
        .with_body(documents::VALUE_BYTES_MAX),
    route(Method::Get, DOCUMENT, Access::Handler, documents::show),
    route(Method::Head, DOCUMENT, Access::Handler, documents::show),
    route(Method::Put, DOCUMENT, Access::Handler, documents::store)
        .with_body(documents::VALUE_BYTES_MAX),
    route(Method::Delete, DOCUMENT, Access::Handler, documents::remove),
    route(Method::Get, IN_COLLECTION, Access::Handler, documents::list),
    route(Method::Post, IN_COLLECTION, Access::Handler, documents::create)
        .with_body(documents::VALUE_BYTES_MAX),
    route(Method::Get, ONE_IN_COLLECTION, Access::Handler, documents::show),
    route(Method::Head, ONE_IN_COLLECTION, Access::Handler, documents::show),
    route(Method::Put, ONE_IN_COLLECTION, Access::Handler, documents::store)
        .with_body(documents::VALUE_BYTES_MAX),
    route(Method::Delete, ONE_IN_COLLECTION, Access::Handler, documents::remove),
    route(Method::Get, "/api/v1/tokens", Access::Login, tokens::list),
    route(Method::Post, "/api/v1/tokens", Access::Login, tokens::create).with_body(SMALL_BYTES_MAX),
    route(Method::Delete, "/api/v1/tokens/{token}", Access::Login, tokens::revoke),
    route(Method::Get, "/api/v1/sync", STATS, sync_status),
    route(Method::Get, "/api/v1/sync/parked", Access::Handler, parked),
    route(Method::Post, "/api/v1/sync/retry", OWNER, sync_retry).with_body(SMALL_BYTES_MAX),
    route(Method::Post, "/api/v1/sync/wait", STATS, sync_wait).with_body(SMALL_BYTES_MAX),
    route(Method::Get, SCOPES, Access::SightOfBucket, keyspaces),
    route(Method::Post, SCOPES, KEYSPACES, keyspaces).with_body(SMALL_BYTES_MAX),
    route(Method::Delete, SCOPE, KEYSPACES, keyspaces),
    route(Method::Post, COLLECTIONS, KEYSPACES, keyspaces).with_body(SMALL_BYTES_MAX),
    route(Method::Delete, COLLECTION, KEYSPACES, keyspaces),
    route(Method::Get, "/_sync/{bucket}", Access::Handler, devices::accept),
];

/// All endpoints that require a login.
pub(crate) static TABLE: LazyLock<Table<Handler>> = LazyLock::new(|| {
    Table::new([
        ROUTES,
        #[cfg(feature = "views")]
        crate::views::ROUTES,
    ])
});

/// Answers requests that need no login. The answers contain no documents, names or users.
pub(crate) fn public(gateway: &Gateway, head: &Parts) -> Option<Reply> {
    if head.method != HttpMethod::GET {
        return None;
    }
    match head.uri.path() {
        "/health" => Some(ok(&json!({"status": "ok"}))),
        "/ready" if gateway.db.status().is_full => {
            let reasons = ["the disk is full: writes wait for space"];
            let why = json!({"status": "not_ready", "reasons": reasons});
            Some(json_reply(StatusCode::SERVICE_UNAVAILABLE, &why))
        }
        "/ready" => Some(ok(&json!({"status": "ready"}))),
        _ => None,
    }
}

fn about() -> Reply {
    ok(&json!({"name": "nacre-edge", "version": env!("CARGO_PKG_VERSION")}))
}

/// Returns the scopes and collections that the user may see.
fn buckets(call: &Call) -> Reply {
    let (access, db) = (&call.gateway.access, &call.gateway.db);
    let place = Keyspace { bucket: Some(BUCKET), ..Keyspace::default() };
    let collections = db.collections();
    let scopes = db.scopes().into_iter().filter_map(|scope| {
        let place = Keyspace { scope: Some(&scope), ..place };
        let names = collections.iter().filter_map(|path| path.split_once('.'));
        let names = names.filter(|(of, _)| *of == scope).map(|(_, name)| name);
        let seen: Vec<&str> = names
            .filter(|name| access.sees(&call.caller, Keyspace { collection: Some(name), ..place }))
            .collect();
        let sees = access.sees(&call.caller, place);
        sees.then(|| json!({"name": scope, "collections": seen}))
    });
    let scopes: Vec<Value> = scopes.collect();
    let buckets = match access.sees(&call.caller, place) {
        true => vec![json!({"name": BUCKET, "scopes": scopes})],
        false => Vec::new(),
    };
    ok(&json!({"buckets": buckets}))
}

/// Returns the figures of the database.
fn status(call: &Call) -> Reply {
    let gateway = &call.gateway;
    let status = gateway.db.status();
    let connections = gateway.connections.counts();
    ok(&json!({
        "documents": status.documents,
        "memory_bytes": status.memory_bytes,
        "disk_bytes": status.disk_bytes,
        "unsaved": status.unsaved,
        "is_full": status.is_full,
        "request_bytes": gateway.budgets.requests.held(),
        "connections": connections.descriptors,
        "connections_refused": connections.refused,
    }))
}

/// Manages scopes and collections, as on the management port of a node.
fn keyspaces(call: Call) -> Result<Reply, Reply> {
    if call.found("scope").is_some_and(|scope| scope == nacre::SYNC_SCOPE) {
        let reason = format!("the scope {} belongs to sync", nacre::SYNC_SCOPE);
        return Err(problem::reply(StatusCode::FORBIDDEN, "forbidden", &reason));
    }
    let managed = call.gateway.db.manage(call.method.as_str(), &call.raw_path, &call.body);
    let (status, text) = managed.map_err(|error| documents::failed(&error))?;
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    Ok(reply(status, "application/json", text))
}

fn no_sync(why: NoSync) -> Reply {
    let (status, code, detail) = match why {
        NoSync::Off => {
            let detail = "this gateway has no upstream: start it with --upstream".to_owned();
            (StatusCode::NOT_FOUND, "no_upstream", detail)
        }
        NoSync::Busy => {
            let detail = "too many requests wait for sync: ask GET /api/v1/sync".to_owned();
            (StatusCode::SERVICE_UNAVAILABLE, "busy", detail)
        }
        NoSync::Failed(error @ nacre::Error::NotInStep(_)) => {
            (StatusCode::GATEWAY_TIMEOUT, "not_in_step", error.to_string())
        }
        NoSync::Failed(error @ nacre::Error::SyncStopped(_)) => {
            (StatusCode::CONFLICT, "sync_stopped", error.to_string())
        }
        NoSync::Failed(error) => return documents::failed(&error),
    };
    problem::reply(status, code, &detail)
}

fn shown(status: &SyncStatus) -> Reply {
    reply(StatusCode::OK, "application/json", status.to_json())
}

fn sync_status(call: Call) -> Result<Reply, Reply> {
    call.gateway.sync_status().map(|status| shown(&status)).map_err(no_sync)
}

fn sync_retry(call: Call) -> Result<Reply, Reply> {
    call.gateway.retry_sync().map_err(no_sync)?;
    sync_status(call)
}

fn sync_wait(call: Call) -> Result<Reply, Reply> {
    let seconds = call.parameter("timeout").map_or(Ok(WAIT_S_MAX / 2), |text| text.parse::<u64>());
    let seconds = seconds.ok().filter(|seconds| (1..=WAIT_S_MAX).contains(seconds));
    let reason = || invalid("timeout", format!("seconds, 1 to {WAIT_S_MAX}"));
    let timeout = Duration::from_secs(seconds.ok_or_else(reason)?);
    call.gateway.wait_for_sync(timeout).map_err(no_sync)?;
    sync_status(call)
}

/// Returns the parked versions.
fn parked(call: Call) -> Result<Reply, Reply> {
    let place = Keyspace { bucket: Some(BUCKET), ..Keyspace::default() };
    call.gateway.access.require(&call.caller, Privilege::ReadData, place)?;
    let parked = match call.gateway.db.find_collection(nacre::PARKED_COLLECTION) {
        Ok(Some(_)) => call.gateway.db.parked(),
        Ok(None) => Ok(Vec::new()),
        Err(error) => Err(error),
    };
    let parked = parked.map_err(|error| documents::failed(&error))?;
    let records: Result<Vec<Value>, _> =
        parked.iter().map(|record| serde_json::from_slice(record)).collect();
    let records = records.map_err(|error| {
        problem::reply(StatusCode::INTERNAL_SERVER_ERROR, "failed", &error.to_string())
    })?;
    Ok(ok(&json!({"parked": records})))
}
