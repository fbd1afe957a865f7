//! Views: the requests of SDKs, which the database answers on the thread of the request.
//!
//! Only the owner, or a token with that right, can define functions. Functions run without a sandbox; the engine limits their memory,
//! stack and steps.

use crate::documents;
use crate::door::Call;
use crate::endpoints::Handler;
use hyper::StatusCode;
use nacre_auth::Privilege;
use nacre_http::body::{Reply, ok, reply};
use nacre_http::memory::charged;
use nacre_http::{Access, Method, Route, problem};
use serde_json::json;

/// Maximum bytes of a request's body.
const BODY_BYTES_MAX: usize = 1 << 20;
/// Maximum number of requests about views at a time: each holds a thread that documents need, too.
pub(crate) const WAITERS_MAX: usize = 8;

const DESIGN: &str = "/{bucket}/_design/{name}";
const VIEW: &str = "/{bucket}/_design/{name}/_view/{view}";
const ADMINISTER: Access = Access::Bucket(Privilege::AdministerViews);
const READ: Access = Access::Bucket(Privilege::ReadViews);

pub(crate) const ROUTES: &[Route<Handler>] = &[
    Route::new(Method::Get, "/{bucket}/_design", READ, list as Handler),
    Route::new(Method::Get, DESIGN, READ, answer as Handler),
    Route::new(Method::Put, DESIGN, ADMINISTER, answer as Handler).with_body(BODY_BYTES_MAX),
    Route::new(Method::Delete, DESIGN, ADMINISTER, answer as Handler),
    Route::new(Method::Get, VIEW, READ, answer as Handler),
    Route::new(Method::Post, VIEW, READ, answer as Handler).with_body(BODY_BYTES_MAX),
];

fn list(call: Call) -> Result<Reply, Reply> {
    Ok(ok(&json!({"designs": call.gateway.db.design_documents()})))
}

fn answer(call: Call) -> Result<Reply, Reply> {
    let gateway = &call.gateway;
    let Ok(_waits) = gateway.view_waiters.try_acquire() else {
        let reason = "too many requests wait for views: try again";
        return Err(problem::reply(StatusCode::SERVICE_UNAVAILABLE, "busy", reason));
    };
    let target = format!("{}?{}", call.raw_path, call.query);
    let managed = gateway.db.manage(call.method.as_str(), &target, &call.body);
    let (status, text) = managed.map_err(|error| documents::failed(&error))?;
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    Ok(reply(status, "application/json", charged(&call.account, text.into_bytes())))
}
