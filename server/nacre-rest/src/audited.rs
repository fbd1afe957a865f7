//! Entries of the audit log and the event log for HTTP requests.

use super::{Call, Door, Service, api};
use hyper::{Method, StatusCode};
use nacre_auth::INTERNAL;
use nacre_links::audit::{self, AuditEvent};
use std::net::SocketAddr;

/// The part of a request that the audit log needs.
pub(super) struct Audited {
    /// User, method and path of a request that changes something; `None` for requests that only read, and for requests
    /// of other nodes.
    request: Option<(String, String, Vec<String>)>,
    /// True for a document of the HTTP API. As in the key-value protocol, the audit log records such a request only if
    /// it is refused.
    is_document: bool,
}

impl Audited {
    pub fn of(call: &Call) -> Audited {
        let reads = call.method == Method::GET || call.method == Method::HEAD;
        let is_audited = !reads && call.user != INTERNAL;
        let request = (call.user.clone(), call.method.to_string(), call.path.clone());
        let is_document = api::is_document(&call.path);
        Audited { request: is_audited.then_some(request), is_document }
    }

    pub fn write(self, door: &Door, from: SocketAddr, status: StatusCode) {
        let settings = &door.node.cluster().settings.audit;
        let is_written =
            settings.enabled && matches!(door.service, Service::Management | Service::Eventing);
        let Some((user, method, path)) = self.request.filter(|_| is_written) else { return };
        if self.is_document && status != StatusCode::FORBIDDEN {
            return;
        }
        let segments: Vec<&str> = path.iter().map(String::as_str).collect();
        let kind = match status {
            StatusCode::FORBIDDEN => audit::ACCESS_FORBIDDEN,
            _ => audit::kind_of(&method, &segments),
        };
        let path = format!("/{}", path.join("/"));
        let details =
            serde_json::json!({"method": method, "path": path, "status": status.as_u16()});
        let is_first = door.node.cluster().administrator == user;
        let domain = if is_first { "admin" } else { "local" }.to_owned();
        let event = AuditEvent { kind, user, domain, remote: from, details };
        door.front.records.audit.write(settings, &event);
    }
}

/// Records a refused login in the event log and the audit log if a request that named a user is answered with 401.
pub(super) fn refused(door: &Door, named: Option<String>, from: SocketAddr, status: StatusCode) {
    let Some(user) = named.filter(|_| status == StatusCode::UNAUTHORIZED) else { return };
    door.node.log_refused_login(serde_json::json!({"ip": from.ip().to_string()}));
    let event = AuditEvent {
        kind: audit::LOGIN_FAILURE,
        user,
        domain: "local".to_owned(),
        remote: from,
        details: serde_json::json!({}),
    };
    door.front.records.audit.write(&door.node.cluster().settings.audit, &event);
}
