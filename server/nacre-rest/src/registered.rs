//! Ports of services that have their routes in a table: the server reads the request, checks the privilege and calls the handler.

use super::body::{Reply, blocking, not_found, reply, unauthorized};
use super::memory::charged;
use super::routes::Route;
use super::streams::Kind;
use super::{Call, Service};
use hyper::StatusCode;
use nacre_node::service::{self, HttpReply, HttpRequest};

/// There are none in the server: services have theirs.
pub(super) const ROUTES: &[Route] = &[];

/// Answers a request that came to `port`.
pub(super) async fn route(call: Call, port: &str) -> Reply {
    answer(call, port).await.unwrap_or_else(|reply| reply)
}

/// Returns true if a service answers the request at `port`.
pub(super) fn has_route(call: &Call, port: &str) -> bool {
    let mut routes = call.node.services().iter().flat_map(|service| service.routes());
    routes.any(|route| {
        route.port == port && route.method == call.method && route.matches(&call.path).is_some()
    })
}

async fn answer(call: Call, port: &str) -> Result<Reply, Reply> {
    let routes = call.node.services().iter().flat_map(|service| service.routes());
    let mut routes = routes.filter(|route| route.port == port && route.method == call.method);
    let found = routes.find_map(|route| Some((route, route.matches(&call.path)?)));
    let (service::Route { access, handler, .. }, parameters) = found.ok_or_else(not_found)?;
    if let service::Access::Cluster(privilege) = access {
        call.require(*privilege, None)?;
    }
    let desk = call.desk();
    // A search, or a statement of analytics, may take minutes, and its answer may be large: users and addresses have as many as of
    // other answers, on threads that management and logins do not use.
    let _place = desk.enter(Kind::Answer)?;
    let Call { node, query, headers, body, user, identity: login, target, .. } = call;
    let request = HttpRequest { parameters, query, headers, body, user, login };
    let (what, work) = ("a request to a service", move || handler(&node, &request));
    let HttpReply { status, content_type, body } = match target {
        Service::Registered(_) => desk.work(what, work).await?,
        _ => blocking(what, work).await?,
    };
    // The answer is not for a user who was removed while it was made.
    if !desk.reader.counts() {
        return Err(unauthorized());
    }
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    Ok(reply(status, content_type, charged(&desk.account, body)))
}
