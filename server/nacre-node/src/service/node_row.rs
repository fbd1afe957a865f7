//! The row of the node itself in the table of services.

use super::spec::{MapEntry, PortNumber, PortSpec, Protocol, ServiceSpec};
use nacre_cluster::{Ports, ServiceName};

/// Key-value access and cluster management.
pub(crate) static NODE: ServiceSpec = ServiceSpec {
    id: "node",
    name: Some(ServiceName::DATA),
    on_request: false,
    ports: &[
        PortSpec {
            id: Ports::MGMT,
            protocol: Protocol::Http,
            plain: PortNumber { default: 8091, offset: 0 },
            tls: PortNumber { default: 18091, offset: 11 },
            purpose: "management",
            label: "management",
            url: "http://$AUTHORITY",
        },
        PortSpec {
            id: Ports::KV,
            protocol: Protocol::KeyValue,
            plain: PortNumber { default: 11210, offset: 10 },
            tls: PortNumber { default: 11207, offset: 9 },
            purpose: "keys",
            label: "SDKs",
            url: "couchbase://$AUTHORITY",
        },
    ],
    map: &[
        MapEntry { plain: "mgmt", tls: "mgmtSSL", port: Ports::MGMT, of: &[] },
        MapEntry { plain: "kv", tls: "kvSSL", port: Ports::KV, of: &[ServiceName::DATA] },
    ],
    capabilities: None,
    permissions: &[],
    menu: None,
};
