//! One origin for all services: a page may only talk to the port that it came from, so this port forwards requests to the node's
//! other ports.
//!
//! ```text
//! /_p/query/query/service     8093 /query/service
//! /_p/view/…, /couchBase/…    8092 /…
//! /_p/event/api/v1/functions  8096 /api/v1/functions
//! /_p/ID/…                    the port with that ID, of any service in the registry
//! ```
//!
//! Nothing goes over the network: the server looks up the request in the other port's table of routes, with the same
//! login and privileges.

use super::super::Service;
use nacre_node::service::{Protocol, ServiceTable};

/// Couchbase's names of services, and the IDs of their ports in nacre.
const NAMES: [(&str, &str); 5] = [
    ("view", "views"),
    ("event", "eventing"),
    ("fts", "search"),
    ("cbas", "analytics"),
    ("backup", "backup"),
];

/// Returns the service that answers a request to `service` at `path`, and the path there; `None` if the node does not have
/// the service.
pub(in super::super) fn target(
    service: Service,
    path: Vec<String>,
    table: &ServiceTable,
) -> Option<(Service, Vec<String>)> {
    if service != Service::Management {
        return Some((service, path));
    }
    let (name, skipped) = match &path[..] {
        [first, ..] if first == "couchBase" => ("views", 1),
        [first, name, ..] if first == "_p" => (name.as_str(), 2),
        [first] if first == "_p" => return None,
        _ => return Some((service, path)),
    };
    let named = NAMES.iter().find(|(known, _)| *known == name).map(|(_, id)| *id);
    let ports = table.ports();
    let of = |id: &str| ports.iter().find(|port| port.id == id && port.protocol == Protocol::Http);
    let port = of(name).or_else(|| of(named?))?;
    match Service::at(port) {
        // This prevents a loop.
        Service::Management => None,
        other => Some((other, path[skipped..].to_vec())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_to_the_services_of_the_node() {
        let table = &ServiceTable::of(&nacre_server::services());
        let of = |service, path: &str| {
            let path = path.split('/').map(str::to_owned).collect();
            target(service, path, table).map(|(service, path)| (service, path.join("/")))
        };
        let of_id = |id| Service::at(table.ports().iter().find(|port| port.id == id).unwrap());
        let management = Service::Management;
        for (path, service, rest) in [
            ("_p/query/query/service", Service::Query, "query/service"),
            ("_p/view/b/_design/d", Service::Views, "b/_design/d"),
            ("_p/views/b/_design/d", Service::Views, "b/_design/d"),
            ("couchBase/b/_design/d", Service::Views, "b/_design/d"),
            ("_p/event/api/v1/status", Service::Eventing, "api/v1/status"),
            ("_p/cbas/analytics/status", of_id("analytics"), "analytics/status"),
            ("_p/query", Service::Query, ""),
            ("pools/default", management, "pools/default"),
        ] {
            assert_eq!(of(management, path), Some((service, rest.to_owned())), "{path}");
        }
        for path in ["_p", "_p/none/x", "_p/mgmt/pools", "_p/kv/x"] {
            assert_eq!(of(management, path), None, "{path}");
        }
        let elsewhere = of(Service::Views, "_p/query/x");
        assert_eq!(elsewhere, Some((Service::Views, "_p/query/x".into())), "a bucket named _p");
    }
}
