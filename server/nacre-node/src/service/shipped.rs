//! The services that come with a node: one row each.

use super::spec::{
    Capabilities, MapEntry, Operations, Permission, PortNumber, PortSpec, Protocol, ServiceSpec,
};
use super::{Service, ServiceTable};
use crate::changes::ChangesService;
use crate::plugins::Plugins;
use crate::query::Queries;
use crate::scatter_gather::NodeService;
use nacre_auth::Privilege;
use nacre_cluster::{Ports, ServiceName};
use std::sync::Arc;

/// Returns the services that come with a node.
pub fn shipped() -> Vec<Arc<dyn Service>> {
    vec![
        Arc::new(NodeService),
        Arc::new(Deployed(&VIEWS)),
        Arc::<Queries>::default(),
        Arc::new(Deployed(&EVENTING)),
        Arc::new(Deployed(&INDEX)),
        Arc::<ChangesService>::default(),
        Arc::<Plugins>::default(),
    ]
}

/// Returns the table of the services that come with a node.
pub fn shipped_table() -> ServiceTable {
    ServiceTable::of(&shipped())
}

/// A service whose work is done by deployments: the service of deployments follows the agreed state for it.
struct Deployed(&'static ServiceSpec);

impl Service for Deployed {
    fn spec(&self) -> &'static ServiceSpec {
        self.0
    }
}

/// Keys, and management of the cluster.
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

/// Views.
static VIEWS: ServiceSpec = ServiceSpec {
    id: "views",
    name: None,
    on_request: false,
    ports: &[PortSpec {
        id: "views",
        protocol: Protocol::Http,
        plain: PortNumber { default: 8092, offset: 1 },
        tls: PortNumber { default: 18092, offset: 12 },
        purpose: "views",
        label: "views",
        url: "http://$AUTHORITY/default/_design/…",
    }],
    map: &[MapEntry { plain: "capi", tls: "capiSSL", port: "views", of: &[ServiceName::DATA] }],
    capabilities: None,
    permissions: &[
        in_bucket("views", Operations::Reads, &[Privilege::ReadViews]),
        in_bucket("views", Operations::Writes, &[Privilege::AdministerViews]),
    ],
    menu: None,
};

/// SQL++.
pub(crate) static QUERY: ServiceSpec = ServiceSpec {
    id: "query",
    name: Some(ServiceName::QUERY),
    on_request: false,
    ports: &[PortSpec {
        id: "query",
        protocol: Protocol::Http,
        plain: PortNumber { default: 8093, offset: 2 },
        tls: PortNumber { default: 18093, offset: 13 },
        purpose: "queries",
        label: "queries",
        url: "http://$AUTHORITY/query/service",
    }],
    map: &[MapEntry { plain: "n1ql", tls: "n1qlSSL", port: "query", of: &[ServiceName::QUERY] }],
    capabilities: Some(Capabilities { service: "n1ql", names: &["enhancedPreparedStatements"] }),
    permissions: &[
        in_bucket("n1ql.select", Operations::All, &[Privilege::Query]),
        in_bucket("n1ql.insert", Operations::All, &[Privilege::QueryWrite]),
        in_bucket("n1ql.update", Operations::All, &[Privilege::QueryWrite]),
        in_bucket("n1ql.delete", Operations::All, &[Privilege::QueryWrite]),
        in_bucket("n1ql.index", Operations::All, &[Privilege::AdministerIndexes]),
        in_bucket("n1ql.udf", Operations::Execute, &[Privilege::ExecuteQueryFunctions]),
        in_bucket("n1ql.udf", Operations::NotExecute, &[Privilege::ManageQueryFunctions]),
        in_bucket("n1ql.udf_external", Operations::Execute, &[Privilege::ExecuteExternalFunctions]),
        in_bucket(
            "n1ql.udf_external",
            Operations::NotExecute,
            &[Privilege::ManageExternalFunctions],
        ),
        anywhere("n1ql.curl", &[Privilege::QueryExternal]),
    ],
    menu: None,
};

/// Functions.
static EVENTING: ServiceSpec = ServiceSpec {
    id: "eventing",
    name: Some(ServiceName::EVENTING),
    on_request: false,
    ports: &[PortSpec {
        id: "eventing",
        protocol: Protocol::Http,
        plain: PortNumber { default: 8096, offset: 5 },
        tls: PortNumber { default: 18096, offset: 16 },
        purpose: "functions",
        label: "functions",
        url: "http://$AUTHORITY/api/v1/functions",
    }],
    map: &[MapEntry {
        plain: "eventingAdminPort",
        tls: "eventingSSL",
        port: "eventing",
        of: &[ServiceName::EVENTING],
    }],
    capabilities: None,
    permissions: &[
        anywhere("eventing.function", &[Privilege::ManageFunctions]),
        anywhere("eventing.functions", &[Privilege::ManageFunctions]),
        Permission {
            object: "eventing",
            in_bucket: Some(false),
            operations: Operations::All,
            privileges: &[Privilege::AdministerEventing],
        },
    ],
    menu: None,
};

/// Partitions of indexes; indexes without partitions are where the documents are.
static INDEX: ServiceSpec = ServiceSpec {
    id: "index",
    name: Some(ServiceName::INDEX),
    on_request: false,
    ports: &[],
    map: &[MapEntry {
        plain: "indexHttp",
        tls: "indexHttps",
        port: Ports::MGMT,
        of: &[ServiceName::INDEX, ServiceName::DATA],
    }],
    capabilities: None,
    permissions: &[],
    menu: None,
};

/// Changes of collections.
pub(crate) static CHANGES: ServiceSpec = ServiceSpec::internal("changes");

/// Deployments: the common base of views, functions, indexes and plugins.
pub(crate) static PLUGINS: ServiceSpec = ServiceSpec::internal("plugins");

const fn in_bucket(
    object: &'static str,
    operations: Operations,
    privileges: &'static [Privilege],
) -> Permission {
    Permission { object, in_bucket: Some(true), operations, privileges }
}

const fn anywhere(object: &'static str, privileges: &'static [Privilege]) -> Permission {
    Permission { object, in_bucket: None, operations: Operations::All, privileges }
}
