//! Ports of registered services, which list their routes in a table: the server reads the request, checks the privilege and calls
//! the handler.

use super::body::{Reply, blocking, not_found, reply, unauthorized};
use super::memory::charged;
use super::routes::Route;
use super::streams::Kind;
use super::{Call, Service};
use hyper::StatusCode;
use nacre_node::service::{self, HttpReply, HttpRequest};

/// The server has no routes of its own here: the services bring them.
pub(super) const ROUTES: &[Route] = &[];

/// Answers a request that arrived at `port`.
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
    // A search, or an analytics statement, may take minutes, and its answer may be large. The limits per user and address are
    // those of other answers, and the threads are not those of management and logins.
    let _place = desk.enter(Kind::Answer)?;
    let Call { node, query, headers, body, user, identity: login, target, .. } = call;
    let request = HttpRequest { parameters, query, headers, body, user, login };
    let (what, work) = ("a request to a service", move || handler(&node, &request));
    let HttpReply { status, content_type, body } = match target {
        Service::Registered(_) => desk.work(what, work).await?,
        _ => blocking(what, work).await?,
    };
    // The user may have been removed while the handler made the answer.
    if !desk.reader.counts() {
        return Err(unauthorized());
    }
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    Ok(reply(status, content_type, charged(&desk.account, body)))
}
