//! The ports of a node: which there are follows from the table of services.

use nacre_cluster::{Endpoints, Ports};
use nacre_links::kv;
use nacre_node::service::{PortSpec, Protocol, ServiceTable};
use nacre_rest as rest;
use std::io::ErrorKind;
use std::net::TcpListener;

/// Returns the endpoints of a node whose ports begin at `base`, or are the default ones of Couchbase's clients.
///
/// # Errors
/// A sentence for the operator.
pub fn endpoints(table: &ServiceTable, base: Option<u16>) -> Result<Endpoints, String> {
    let ports = match base {
        None => Some(table.default_ports()),
        Some(base) => table.ports_from(base),
    };
    let (plain, tls) = ports.ok_or("--port-base is too high, its ports end at 65535")?;
    Ok(Endpoints { host: None, plain, tls: Some(tls), fingerprint: None })
}

/// A listener for each port, plain or with TLS.
pub struct Listeners(Vec<(&'static PortSpec, TcpListener)>);

impl Listeners {
    /// Listens at each of `ports` on the address `host`.
    ///
    /// # Errors
    /// A sentence for the operator.
    pub fn bind(table: &ServiceTable, host: &str, ports: &Ports) -> Result<Listeners, String> {
        let bind = |spec: &'static PortSpec| {
            let port = ports.get(spec.id).unwrap_or_default();
            let listener = TcpListener::bind((host, port)).map_err(|error| {
                let hint = match error.kind() {
                    ErrorKind::AddrInUse => {
                        ": stop what uses it, or move all ports with --port-base"
                    }
                    ErrorKind::AddrNotAvailable => ": name an address of this machine with --host",
                    _ => "",
                };
                format!("cannot listen on {host}:{port} for {}: {error}{hint}", spec.purpose)
            })?;
            Ok((spec, listener))
        };
        table.ports().into_iter().map(bind).collect::<Result<_, String>>().map(Listeners)
    }
}

/// Returns the ports for keys, and those for HTTP.
pub fn split(plain: Listeners, encrypted: Option<Listeners>) -> (Vec<kv::Port>, Vec<rest::Port>) {
    let (mut for_keys, mut for_http) = (Vec::new(), Vec::new());
    for (listeners, encrypted) in [(Some(plain), false), (encrypted, true)] {
        for (spec, listener) in listeners.into_iter().flat_map(|listeners| listeners.0) {
            match spec.protocol {
                Protocol::KeyValue => for_keys.push(kv::Port { listener, encrypted }),
                Protocol::Http => {
                    let service = rest::Service::at(spec);
                    for_http.push(rest::Port { listener, service, encrypted });
                }
            }
        }
    }
    (for_keys, for_http)
}

/// Writes into the log where the node serves.
pub fn log(table: &ServiceTable, host: &str, endpoints: &Endpoints) {
    let list = |ports: &Ports| {
        let port = |spec: &PortSpec| {
            format!("{} {}", spec.purpose, ports.get(spec.id).unwrap_or_default())
        };
        table.ports().into_iter().map(port).collect::<Vec<_>>().join(", ")
    };
    let version = env!("CARGO_PKG_VERSION");
    tracing::info!("nacre {version} serves on {host}: {}", list(&endpoints.plain));
    if let Some(tls) = &endpoints.tls {
        tracing::info!("with TLS: {}", list(tls));
    }
}

/// Returns the lines of the banner of `nacre dev`: where each service is that a new node has.
pub fn banner(table: &ServiceTable, endpoints: &Endpoints) -> Vec<String> {
    let line = |spec: &PortSpec| {
        let port = endpoints.plain.get(spec.id).unwrap_or_default();
        let url = spec.url.replace("$AUTHORITY", &format!("127.0.0.1:{port}"));
        format!("  {:<10}  {url}", spec.label)
    };
    let absent = table.iter().filter(|spec| spec.on_request).flat_map(|spec| spec.ports);
    let absent: Vec<&str> = absent.map(|port| port.id).collect();
    table.ports().into_iter().filter(|port| !absent.contains(&port.id)).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services;

    #[test]
    fn ports_match_the_defaults_of_couchbase_clients() {
        let Endpoints { plain, tls, .. } = endpoints(services::table(), None).unwrap();
        let expected = [
            ("mgmt", 8091),
            ("views", 8092),
            ("query", 8093),
            ("search", 8094),
            ("analytics", 8095),
            ("eventing", 8096),
            ("backup", 8097),
            ("kv", 11210),
        ];
        assert_eq!(plain, Ports::from(expected));
        let expected = [
            ("mgmt", 18091),
            ("views", 18092),
            ("query", 18093),
            ("search", 18094),
            ("analytics", 18095),
            ("eventing", 18096),
            ("backup", 18097),
            ("kv", 11207),
        ];
        assert_eq!(tls, Some(Ports::from(expected)));
    }

    #[test]
    fn ports_move_together() {
        let Endpoints { plain, tls, .. } = endpoints(services::table(), Some(9000)).unwrap();
        let expected = [
            ("mgmt", 9000),
            ("views", 9001),
            ("query", 9002),
            ("search", 9003),
            ("analytics", 9004),
            ("eventing", 9005),
            ("backup", 9006),
            ("kv", 9010),
        ];
        assert_eq!(plain, Ports::from(expected));
        let expected = [
            ("mgmt", 9011),
            ("views", 9012),
            ("query", 9013),
            ("search", 9014),
            ("analytics", 9015),
            ("eventing", 9016),
            ("backup", 9017),
            ("kv", 9009),
        ];
        assert_eq!(tls, Some(Ports::from(expected)));
        assert!(endpoints(services::table(), Some(65530)).unwrap_err().contains("too high"));
        assert_eq!(
            services::table().describe_offsets(),
            "Move all ports: management N, views N+1, queries N+2, search N+3, analytics N+4, functions N+5, backups N+6, keys N+10 \
             (defaults: 8091, 8092, 8093, 8094, 8095, 8096, 8097, 11210); with TLS N+11, N+12, N+13, N+14, N+15, N+16, N+17, N+9 \
             (defaults: 18091, 18092, 18093, 18094, 18095, 18096, 18097, 11207)"
        );
    }

    #[test]
    fn the_banner_shows_the_port_of_each_service() {
        let endpoints = endpoints(services::table(), Some(9000)).unwrap();
        assert_eq!(
            banner(services::table(), &endpoints),
            [
                "  management  http://127.0.0.1:9000",
                "  views       http://127.0.0.1:9001/default/_design/…",
                "  queries     http://127.0.0.1:9002/query/service",
                "  search      http://127.0.0.1:9003/api/index",
                "  functions   http://127.0.0.1:9005/api/v1/functions",
                "  SDKs        couchbase://127.0.0.1:9010",
            ]
        );
    }
}
