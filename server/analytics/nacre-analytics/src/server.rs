//! The port: queries, administration and status over HTTP.

use crate::answer::Piece;
use crate::catalog::Catalog;
use crate::engine::{Engine, Running};
use crate::error::{Error, Result};
use crate::fleet;
use crate::follower::LinkState;
use crate::node::Caller;
use crate::processes::PartRequest;
use crate::request::Request as Query;
use bytes::Bytes;
use futures::stream::{self, Stream};
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

/// Maximum size of a request body, in bytes. Source: `maxWebRequestSize` in Couchbase is larger, but no statement
/// needs it.
const BODY_BYTES_MAX: usize = 20 << 20;
/// Maximum size of the body of a refused request that is read.
const UNREAD_BYTES_MAX: usize = 64 << 10;
/// Maximum number of an answer's pieces that wait for the client.
const PIECES_MAX: usize = 4;
/// Time limit for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of connections.
const CONNECTIONS_MAX: usize = 1024;

type Body = http_body_util::combinators::UnsyncBoxBody<Bytes, Infallible>;
type Reply = Response<Body>;

/// Serves requests until the program ends. With a token, it answers only the node, which knows the token.
///
/// # Errors
/// The error of the socket.
pub async fn serve(
    listener: TcpListener,
    engine: Arc<Engine>,
    token: Option<String>,
) -> std::io::Result<()> {
    let token: Option<Arc<str>> = token.map(Arc::from);
    let permits = Arc::new(tokio::sync::Semaphore::new(CONNECTIONS_MAX));
    loop {
        let permit = Arc::clone(&permits).acquire_owned().await.expect("it is never closed");
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        let (engine, token) = (Arc::clone(&engine), token.clone());
        tokio::spawn(async move {
            let service =
                service_fn(move |request| handle(Arc::clone(&engine), token.clone(), request));
            let served = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .serve_connection(TokioIo::new(stream), service);
            if let Err(error) = served.await {
                tracing::debug!(%error, "a connection has ended");
            }
            drop(permit);
        });
    }
}

/// Returns the sender of a request; `None` if only the node is answered and the request is not from it.
fn caller_of(request: &Request<Incoming>, token: Option<&str>) -> Option<Caller> {
    let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
    let Some(token) = token else {
        return Some(Caller::Stranger(header(AUTHORIZATION.as_str()).map(str::to_owned)));
    };
    if !is_secret(header("x-nacre-token").unwrap_or_default(), token) {
        return None;
    }
    Caller::known(header("x-nacre-user")?, header("x-nacre-rights")?)
}

/// Returns true if both texts are equal. Compares all bytes, so that the time does not reveal the position of the first difference.
fn is_secret(given: &str, secret: &str) -> bool {
    let differs = given.bytes().zip(secret.bytes()).fold(0, |differs, (a, b)| differs | (a ^ b));
    given.len() == secret.len() && differs == 0
}

/// Answers a request of another process, which knows the login of the streams.
async fn between_processes(engine: Arc<Engine>, request: Request<Incoming>) -> Reply {
    let given = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let secret = engine.node.authorization();
    if engine.is_alone() || !is_secret(given.unwrap_or_default(), &secret) {
        // A connection that is closed before its request is read may lose the answer.
        let _ = Limited::new(request.into_body(), UNREAD_BYTES_MAX).collect().await;
        return refused(&Error::unauthorized(), StatusCode::UNAUTHORIZED);
    }
    let path = request.uri().path().to_owned();
    let Ok(body) = Limited::new(request.into_body(), BODY_BYTES_MAX).collect().await else {
        return plain(StatusCode::PAYLOAD_TOO_LARGE, "the request is too large");
    };
    let body = body.to_bytes();
    let malformed = |error: serde_json::Error| {
        refused(&Error::new(21009, error.to_string()), StatusCode::BAD_REQUEST)
    };
    match path.as_str() {
        fleet::READ_PATH => match serde_json::from_slice::<PartRequest>(&body) {
            Ok(request) => stream_pieces(move |sender| engine.answer_part(&request, sender)).await,
            Err(error) => malformed(error),
        },
        fleet::CATALOG_PATH => match serde_json::from_slice::<Catalog>(&body) {
            Ok(catalog) => {
                match tokio::task::spawn_blocking(move || engine.accept(catalog)).await {
                    Ok(Ok(())) => plain(StatusCode::OK, ""),
                    Ok(Err(error)) => refused(&error, StatusCode::INTERNAL_SERVER_ERROR),
                    Err(error) => {
                        refused(&Error::internal(error), StatusCode::INTERNAL_SERVER_ERROR)
                    }
                }
            }
            Err(error) => malformed(error),
        },
        _ => plain(StatusCode::NOT_FOUND, "no such path"),
    }
}

async fn handle(
    engine: Arc<Engine>,
    token: Option<Arc<str>>,
    request: Request<Incoming>,
) -> std::result::Result<Reply, Infallible> {
    if request.uri().path().starts_with(fleet::PATHS) {
        return Ok(between_processes(engine, request).await);
    }
    let Some(caller) = caller_of(&request, token.as_deref()) else {
        return Ok(refused(&Error::unauthorized(), StatusCode::UNAUTHORIZED));
    };
    // The node sends all requests by POST, with the method in a header.
    let original = request.headers().get("x-nacre-method").filter(|_| token.is_some());
    let original = original.and_then(|method| Method::from_bytes(method.as_bytes()).ok());
    let method = original.unwrap_or_else(|| request.method().clone());
    let path = request.uri().path().trim_end_matches('/').to_owned();
    let query = request.uri().query().unwrap_or("").to_owned();
    let header = |name| {
        let value = request.headers().get(name).and_then(|value| value.to_str().ok());
        value.map(str::to_owned)
    };
    let content_type = header(CONTENT_TYPE).unwrap_or_default();
    let body = match Limited::new(request.into_body(), BODY_BYTES_MAX).collect().await {
        Ok(body) => body.to_bytes(),
        Err(_) => {
            let error = Error::new(
                21008,
                format!("The body of a request has at most {BODY_BYTES_MAX} bytes."),
            );
            return Ok(refused(&error, StatusCode::PAYLOAD_TOO_LARGE));
        }
    };
    let is_query =
        matches!(path.as_str(), "/analytics/service" | "/query/service" | "/analytics" | "/query");
    if is_query {
        let parsed = match method {
            Method::POST => Query::read(&content_type, &query, &body),
            // A link in a page makes a browser send GET with its user's login, so GET can only read.
            Method::GET => {
                Query::read("", &query, b"").map(|query| Query { is_readonly: true, ..query })
            }
            _ => return Ok(plain(StatusCode::METHOD_NOT_ALLOWED, "use POST")),
        };
        return Ok(stream_pieces(move |sender| engine.answer(parsed, &caller, sender)).await);
    }
    let call = Call { method, path, body, caller };
    let answered = tokio::task::spawn_blocking(move || administer(&engine, &call)).await;
    Ok(match answered {
        Ok(Ok(reply)) => reply,
        Ok(Err(error)) => {
            let status =
                StatusCode::from_u16(error.http_status()).unwrap_or(StatusCode::BAD_REQUEST);
            refused(&error, status)
        }
        Err(error) => refused(&Error::internal(error), StatusCode::INTERNAL_SERVER_ERROR),
    })
}

/// Answers with the pieces that `answer` sends: the first one is the status, the others follow as the client reads them.
async fn stream_pieces(answer: impl FnOnce(mpsc::Sender<Piece>) + Send + 'static) -> Reply {
    let (sender, mut pieces) = mpsc::channel(PIECES_MAX);
    tokio::task::spawn_blocking(move || answer(sender));
    let status = match pieces.recv().await {
        Some(Piece::Status(status)) => status,
        _ => 500,
    };
    let body = StreamBody::new(frames(pieces));
    let mut reply = Response::new(body.boxed_unsync());
    *reply.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    with_headers(reply, "application/json")
}

type Frames = Pin<Box<dyn Stream<Item = std::result::Result<Frame<Bytes>, Infallible>> + Send>>;

fn frames(pieces: mpsc::Receiver<Piece>) -> Frames {
    Box::pin(stream::unfold(pieces, |mut pieces| async move {
        loop {
            match pieces.recv().await? {
                Piece::Bytes(bytes) => return Some((Ok(Frame::data(bytes)), pieces)),
                Piece::Status(_) => {}
            }
        }
    }))
}

fn with_headers(mut reply: Reply, content_type: &'static str) -> Reply {
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, content_type.parse().expect("a media type is a header"));
    if reply.status() == StatusCode::UNAUTHORIZED {
        let challenge = "Basic realm=\"analytics\"".parse().expect("a challenge is a header");
        reply.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    }
    reply
}

fn plain(status: StatusCode, text: &str) -> Reply {
    let mut reply = Response::new(Full::new(Bytes::from(text.to_owned())).boxed_unsync());
    *reply.status_mut() = status;
    with_headers(reply, "text/plain")
}

fn json_reply(value: &Value) -> Reply {
    let body = Full::new(Bytes::from(value.to_string()));
    with_headers(Response::new(body.boxed_unsync()), "application/json")
}

fn refused(error: &Error, status: StatusCode) -> Reply {
    let body =
        json!({"errors": [{"code": error.code, "msg": error.message}], "status": error.status()});
    let mut reply = json_reply(&body);
    *reply.status_mut() = status;
    with_headers(reply, "application/json")
}

struct Call {
    method: Method,
    path: String,
    body: Bytes,
    caller: Caller,
}

/// Answers requests other than queries. Blocks.
fn administer(engine: &Engine, call: &Call) -> Result<Reply> {
    let require = |permission: &str| engine.require(&[permission.to_owned()], &call.caller);
    match (call.method.as_str(), call.path.as_str()) {
        // Clients check without a login whether the service is available.
        ("GET", "/admin/ping") => Ok(json_reply(&json!({"status": "ok"}))),
        ("GET", "/analytics/admin/active_requests") => {
            require("cluster.analytics!manage")?;
            Ok(json_reply(&requests(engine, true)))
        }
        ("GET", "/analytics/admin/completed_requests") => {
            require("cluster.analytics!manage")?;
            Ok(json_reply(&requests(engine, false)))
        }
        ("DELETE", "/analytics/admin/active_requests") => {
            require("cluster.analytics!manage")?;
            cancel(engine, &call.body)
        }
        ("GET", "/analytics/node/agg/stats/remaining") => {
            require("cluster.analytics!manage")?;
            remaining(engine)
        }
        ("GET", "/analytics/status/ingestion" | "/analytics/status/ingestion/v2") => {
            require("cluster.analytics!manage")?;
            Ok(json_reply(&ingestion(engine)))
        }
        ("GET", "/analytics/cluster") => {
            require("cluster.analytics!manage")?;
            Ok(json_reply(&cluster()))
        }
        ("GET", "/analytics/link") => {
            require("cluster.analytics!manage")?;
            Ok(json_reply(&json!([])))
        }
        ("GET", "/metrics" | "/_prometheusMetrics") => {
            require("cluster.stats!read")?;
            Ok(plain(StatusCode::OK, &metrics(engine)))
        }
        ("POST" | "PUT" | "DELETE", path) if path.starts_with("/analytics/link") => {
            require("cluster.analytics!manage")?;
            Err(Error::new(
                24006,
                "Link does not exist: links to other clusters and stores are not supported.",
            ))
        }
        ("GET", path) if path.starts_with("/analytics/link/") => {
            require("cluster.analytics!manage")?;
            Ok(json_reply(&json!([])))
        }
        _ => Ok(plain(StatusCode::NOT_FOUND, "no such path")),
    }
}

fn requests(engine: &Engine, are_running: bool) -> Value {
    let item = |running: &Running| {
        let elapsed = running.took.unwrap_or_else(|| running.began.elapsed());
        json!({
            "cancellable": are_running,
            "clientContextID": running.client_context_id,
            "elapsedTime": elapsed.as_secs_f64(),
            "jobId": format!("JID:0.{}", running.job),
            "jobStatus": if are_running { "RUNNING" } else { "TERMINATED" },
            "requestTime": running.began_ms as u64,
            "state": if are_running { "running" } else { "completed" },
            "statement": running.statement,
            "users": running.user,
            "uuid": running.job.to_string(),
        })
    };
    Value::Array(engine.requests(are_running).iter().map(item).collect())
}

fn cancel(engine: &Engine, body: &[u8]) -> Result<Reply> {
    let text = String::from_utf8_lossy(body);
    let id = text.split('&').find_map(|pair| pair.strip_prefix("client_context_id="));
    let Some(id) = id else {
        return Err(Error::new(21010, "Required parameter \"client_context_id\" is missing."));
    };
    let id = percent_encoding::percent_decode_str(id).decode_utf8_lossy().into_owned();
    match engine.cancel(&id) {
        true => Ok(plain(StatusCode::OK, "")),
        false => Ok(plain(StatusCode::NOT_FOUND, "no such request")),
    }
}

/// Returns the number of changes not yet applied, by scope and collection.
fn remaining(engine: &Engine) -> Result<Reply> {
    let mut scopes: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    for ((scope, name), follower) in engine.followers() {
        if follower.state() == LinkState::Stopped {
            continue;
        }
        let pending = follower.pending().map_err(|reason| Error::new(23000, reason))?;
        scopes.entry(scope).or_default().insert(name, json!(pending));
    }
    Ok(json_reply(&json!(scopes)))
}

fn ingestion(engine: &Engine) -> Value {
    let mut links = Vec::new();
    for ((scope, name), follower) in engine.followers() {
        let (status, reason) = match follower.state() {
            LinkState::Healthy => ("healthy", None),
            LinkState::Unhealthy(reason) => ("unhealthy", Some(reason)),
            LinkState::Suspended => ("suspended", Some("the memory quota is used up".to_owned())),
            LinkState::Stopped => ("stopped", None),
        };
        let pending = follower.pending().unwrap_or(0);
        let rows = follower.shadow().row_count() as u64;
        let progress = if pending == 0 { 1.0 } else { rows as f64 / (rows + pending) as f64 };
        let mut state = json!({
            "progress": progress,
            "scopes": [{"name": scope, "collections": [{"name": name}]}],
            "itemsProcessed": follower.shadow().change_count,
        });
        if pending > 0 {
            state["seqnoAdvances"] = json!(pending);
        }
        let mut link = json!({"name": "Local", "scope": scope, "status": status, "state": [state]});
        if let Some(reason) = reason {
            link["reason"] = json!(reason);
        }
        links.push(link);
    }
    json!({"links": links})
}

fn cluster() -> Value {
    json!({
        "authorizedNodes": [],
        "nodes": [],
        "partitions": [],
        "partitionsTopology": {"balanced": true, "metadataPartition": -1, "numReplicas": 0, "partitions": [],
                               "revision": 1, "version": 1},
        "state": "ACTIVE",
    })
}

/// Returns metrics in the text format of Prometheus.
fn metrics(engine: &Engine) -> String {
    let mut text = String::new();
    let mut put = |name: &str, kind: &str, help: &str, value: u64| {
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n");
    };
    let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let counters = &engine.counters;
    put("cbas_requests_total", "counter", "Requests", load(&counters.requests));
    put("cbas_requests_failed_total", "counter", "Requests that failed", load(&counters.failures));
    put(
        "cbas_row_queries_total",
        "counter",
        "Queries answered document by document",
        load(&counters.by_rows),
    );
    put("cbas_running_jobs", "gauge", "Requests that run", engine.requests(true).len() as u64);
    let (mut taken, mut unparsed, mut rows) = (0, 0, 0);
    for (_, follower) in engine.followers() {
        let shadow = follower.shadow();
        taken += shadow.change_count;
        unparsed += shadow.unparsed_count;
        rows += shadow.row_count() as u64;
    }
    put("cbas_incoming_records_total", "counter", "Changes taken in", taken);
    put("cbas_failed_to_parse_records_total", "counter", "Documents that are no JSON", unparsed);
    put("cbas_documents", "gauge", "Documents in collections of analytics", rows);
    text
}
