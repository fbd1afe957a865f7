//! `/api/v1`: nacre's own HTTP API on the management port, with the conventions that general-purpose tools expect.
//!
//! ```text
//! GET  /api/v1/buckets                           buckets, scopes and collections that the user may see
//! PUT  /api/v1/buckets/shop/documents/ann        a document, with its version as ETag
//! POST /api/v1/tokens                            a token, for Authorization: Bearer
//! GET  /api/v1/openapi.json                      all of it, for programs
//! ```
//!
//! Every error is a problem document (RFC 9457), including errors from other parts of the server: see [`problem`]. The API answers
//! 405 if a path exists with other methods only. Pages of other sites may use the API if the operator allows their origin: see
//! [`cors`].

mod collections;
pub(super) mod cors;
mod documents;
mod openapi;
mod slow;
mod tokens;

use super::body::{Reply, invalid, ok};
use super::routes::{READ, READ_STATS, Route, USERS, delete, get, head, post, put, ready};
use super::{Call, routes};
use hyper::StatusCode;
use hyper::header::{ALLOW, HeaderValue};
use nacre_http::problem;
use nacre_http::{Access, Lookup, Table};
use serde::de::DeserializeOwned;
use serde_json::json;

/// First segments of the paths of the API.
const ROOT: [&str; 2] = ["api", "v1"];
/// Largest body of a request that does not carry a document, in bytes.
const SMALL_BYTES_MAX: usize = 64 << 10;

const DOCUMENTS: &str = "/api/v1/buckets/{bucket}/documents";
const DOCUMENT: &str = "/api/v1/buckets/{bucket}/documents/{id}";
const IN_COLLECTION: &str =
    "/api/v1/buckets/{bucket}/scopes/{scope}/collections/{collection}/documents";
const ONE_IN_COLLECTION: &str =
    "/api/v1/buckets/{bucket}/scopes/{scope}/collections/{collection}/documents/{id}";
const CORS: &str = "/api/v1/settings/cors";
const TOKENS: &str = "/api/v1/tokens";
const TOKENS_OF_USER: &str = "/api/v1/users/{user}/tokens";

pub(super) const ROUTES: &[Route] = &[
    get("/api/v1", Access::Login, |_| ready(Ok(about()))),
    get("/api/v1/openapi.json", Access::Login, |_| ready(Ok(openapi::answer()))),
    get("/api/v1/buckets", Access::Login, |call| ready(Ok(collections::list(&call)))),
    get(DOCUMENTS, Access::Handler, |call| Box::pin(documents::list(call))),
    post(DOCUMENTS, Access::Handler, |call| Box::pin(documents::create(call)))
        .with_body(documents::VALUE_BYTES_MAX),
    get(DOCUMENT, Access::Handler, |call| Box::pin(documents::show(call))),
    head(DOCUMENT, Access::Handler, |call| Box::pin(documents::show(call))),
    put(DOCUMENT, Access::Handler, |call| Box::pin(documents::store(call)))
        .with_body(documents::VALUE_BYTES_MAX),
    delete(DOCUMENT, Access::Handler, |call| Box::pin(documents::remove(call))),
    get(IN_COLLECTION, Access::Handler, |call| Box::pin(documents::list(call))),
    post(IN_COLLECTION, Access::Handler, |call| Box::pin(documents::create(call)))
        .with_body(documents::VALUE_BYTES_MAX),
    get(ONE_IN_COLLECTION, Access::Handler, |call| Box::pin(documents::show(call))),
    head(ONE_IN_COLLECTION, Access::Handler, |call| Box::pin(documents::show(call))),
    put(ONE_IN_COLLECTION, Access::Handler, |call| Box::pin(documents::store(call)))
        .with_body(documents::VALUE_BYTES_MAX),
    delete(ONE_IN_COLLECTION, Access::Handler, |call| Box::pin(documents::remove(call))),
    get(TOKENS, Access::Login, |call| ready(tokens::list(&call))),
    post(TOKENS, Access::Login, |call| Box::pin(tokens::create(call))).with_body(SMALL_BYTES_MAX),
    delete("/api/v1/tokens/{token}", Access::Login, |call| Box::pin(tokens::revoke(call))),
    get(TOKENS_OF_USER, USERS, |call| ready(tokens::list_of(&call))),
    delete("/api/v1/users/{user}/tokens/{token}", USERS, |call| Box::pin(tokens::revoke_of(call))),
    get(CORS, READ, |call| ready(Ok(cors::show(&call)))),
    put(CORS, USERS, |call| Box::pin(cors::change(call))).with_body(SMALL_BYTES_MAX),
    get("/api/v1/slow-operations", READ_STATS, |call| ready(slow::list(&call))),
];

/// Returns true for a path of the API.
pub(super) fn is_api(path: &str) -> bool {
    let mut segments = path.split('/').filter(|segment| !segment.is_empty());
    ROOT.iter().all(|root| segments.next() == Some(*root))
}

/// Returns true for a path of documents.
pub(super) fn is_document(path: &[String]) -> bool {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    matches!(
        path[..],
        ["api", "v1", "buckets", _, "documents", ..]
            | ["api", "v1", "buckets", _, "scopes", _, "collections", _, "documents", ..]
    )
}

/// Answers a request whose path exists with other methods only; returns `None` for any other request.
pub(super) fn other_methods(table: &Table<routes::Handler>, call: &Call) -> Option<Reply> {
    if !call.path.iter().map(String::as_str).take(ROOT.len()).eq(ROOT) {
        return None;
    }
    let Lookup::OtherMethods(allow) = table.find(call.method.as_str(), &call.path) else {
        return None;
    };
    let detail = format!("{} is not a method of this path: {}", call.method, allow.as_str());
    let mut reply = problem::reply(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", &detail);
    if let Ok(methods) = HeaderValue::from_str(allow.as_str()) {
        reply.headers_mut().insert(ALLOW, methods);
    }
    Some(reply)
}

fn about() -> Reply {
    ok(&json!({
        "name": "nacre",
        "version": env!("CARGO_PKG_VERSION"),
        "openapi": "/api/v1/openapi.json",
    }))
}

/// Reads a JSON body, and refuses unknown members.
fn read_body<T: DeserializeOwned>(call: &Call) -> Result<T, Reply> {
    serde_json::from_slice(&call.body).map_err(|error| invalid("_", error.to_string()))
}
