//! Routes of the HTTP ports: the handler of a request, and the checks before it.
//!
//! Each module lists its endpoints as `ROUTES`. A row names the privilege that the request requires, and `answer`
//! checks it. A handler only checks privileges that depend on the body or the query string. It reads the path segments
//! that its row names with [`Call::segment`].

use super::Call;
use super::body::Reply;
use nacre_auth::{Keyspace, Privilege};
use nacre_http::{Access, BODY_BYTES_MAX, Caller, Lookup, Method, Table};
use std::pin::Pin;

/// Future of an answer.
pub type Answer = Pin<Box<dyn Future<Output = Result<Reply, Reply>> + Send>>;
/// Function that answers a request.
pub type Handler = fn(Call) -> Answer;
/// Endpoint.
pub type Route = nacre_http::Route<Handler>;

/// Privilege to read the settings and the state of the cluster.
pub const READ: Access = Access::Cluster(Privilege::ReadCluster);
/// Privilege to read statistics.
pub const READ_STATS: Access = Access::Cluster(Privilege::ReadStats);
/// Privilege to change the cluster.
pub const ADMINISTER: Access = Access::Cluster(Privilege::AdministerCluster);
/// Privilege to read and change users, and the settings that decide who is a user.
pub const USERS: Access = Access::Cluster(Privilege::AdministerUsers);

/// Route for GET.
pub const fn get(path: &'static str, access: Access, handler: Handler) -> Route {
    Route::new(Method::Get, path, access, handler)
}

/// Route for HEAD.
pub const fn head(path: &'static str, access: Access, handler: Handler) -> Route {
    Route::new(Method::Head, path, access, handler)
}

/// Route for POST.
pub const fn post(path: &'static str, access: Access, handler: Handler) -> Route {
    Route::new(Method::Post, path, access, handler)
}

/// Route for PUT.
pub const fn put(path: &'static str, access: Access, handler: Handler) -> Route {
    Route::new(Method::Put, path, access, handler)
}

/// Route for PATCH.
pub const fn patch(path: &'static str, access: Access, handler: Handler) -> Route {
    Route::new(Method::Patch, path, access, handler)
}

/// Route for DELETE.
pub const fn delete(path: &'static str, access: Access, handler: Handler) -> Route {
    Route::new(Method::Delete, path, access, handler)
}

/// Route for every method.
pub const fn any(path: &'static str, access: Access, handler: Handler) -> Route {
    Route::new(Method::Any, path, access, handler)
}

/// Returns an answer that is ready.
pub fn ready(answer: Result<Reply, Reply>) -> Answer {
    Box::pin(std::future::ready(answer))
}

impl Caller for Call {
    type Refusal = Reply;

    fn require(&self, privilege: Privilege, bucket: Option<&str>) -> Result<(), Reply> {
        Call::require(self, privilege, bucket)
    }

    fn require_sight(&self, place: Keyspace<'_>) -> Result<(), Reply> {
        Call::require_sight(self, place)
    }
}

/// Returns the maximum body size of a request in bytes. Without a route, it is the usual maximum.
pub(super) fn body_bytes_max(
    table: &Table<Handler>,
    method: &hyper::Method,
    path: &[String],
) -> usize {
    match table.find(method.as_str(), path) {
        Lookup::Found(found) => found.route.body_bytes_max,
        Lookup::OtherMethods(_) | Lookup::NotFound => BODY_BYTES_MAX,
    }
}

/// Answers a request by the route with its method and path, if the user has the required privilege.
///
/// If a path exists with other methods only, the answer is the same as for an unknown path, as in Couchbase. A port that answers 405
/// there has a route for that.
///
/// # Errors
/// The answer to a user who lacks the privilege, `not_found` without a route, and the errors of the handler.
pub(super) async fn answer(
    table: &Table<Handler>,
    mut call: Call,
    not_found: fn() -> Reply,
) -> Result<Reply, Reply> {
    let Lookup::Found(found) = table.find(call.method.as_str(), &call.path) else {
        return Err(not_found());
    };
    found.route.access.check(&call, &found.parameters)?;
    let handler = found.route.handler;
    let named = found.parameters.named().iter();
    let named = named.map(|(name, text)| (*name, (*text).to_owned())).collect();
    let rest = found.parameters.rest().iter().map(|text| (*text).to_owned()).collect();
    (call.segments, call.rest) = (named, rest);
    handler(call).await
}
