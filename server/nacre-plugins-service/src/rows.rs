//! The services that are implemented by deployments.

use nacre_auth::Privilege;
use nacre_cluster::{Ports, ServiceName};
use nacre_node::service::{
    MapEntry, Operations, Permission, PortNumber, PortSpec, Protocol, Service, ServiceSpec,
};

/// A service that is implemented by deployments: [`Plugins`](crate::Plugins) follows the agreed state for
/// it.
pub struct DeployedService(&'static ServiceSpec);

impl DeployedService {
    /// Returns the service of views.
    pub fn views() -> DeployedService {
        DeployedService(&VIEWS)
    }

    /// Returns the service of functions.
    pub fn eventing() -> DeployedService {
        DeployedService(&EVENTING)
    }

    /// Returns the service of indexes.
    pub fn index() -> DeployedService {
        DeployedService(&INDEX)
    }
}

impl Service for DeployedService {
    fn spec(&self) -> &'static ServiceSpec {
        self.0
    }
}

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
        Permission::in_bucket("views", Operations::Reads, &[Privilege::ReadViews]),
        Permission::in_bucket("views", Operations::Writes, &[Privilege::AdministerViews]),
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
        Permission::anywhere("eventing.function", &[Privilege::ManageFunctions]),
        Permission::anywhere("eventing.functions", &[Privilege::ManageFunctions]),
        Permission {
            object: "eventing",
            in_bucket: Some(false),
            operations: Operations::All,
            privileges: &[Privilege::AdministerEventing],
        },
    ],
    menu: None,
};

/// Partitions of indexes; entries of indexes without partitions are on the nodes of their documents.
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

/// Deployments: the common base of views, functions, indexes and plugins.
pub(crate) static PLUGINS: ServiceSpec = ServiceSpec::internal("plugins");
