//! The specification of the service.

use nacre_auth::Privilege;
use nacre_cluster::ServiceName;
use nacre_node::service::{
    Capabilities, MapEntry, Operations, Permission, PortNumber, PortSpec, Protocol, ServiceSpec,
};

/// The SQL++ query service.
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
        Permission::in_bucket("n1ql.select", Operations::All, &[Privilege::Query]),
        Permission::in_bucket("n1ql.insert", Operations::All, &[Privilege::QueryInsert]),
        Permission::in_bucket("n1ql.update", Operations::All, &[Privilege::QueryUpdate]),
        Permission::in_bucket("n1ql.delete", Operations::All, &[Privilege::QueryDelete]),
        Permission::in_bucket("n1ql.index", Operations::All, &[Privilege::AdministerIndexes]),
        Permission::in_bucket("n1ql.udf", Operations::Execute, &[Privilege::ExecuteQueryFunctions]),
        Permission::in_bucket(
            "n1ql.udf",
            Operations::NotExecute,
            &[Privilege::ManageQueryFunctions],
        ),
        Permission::in_bucket(
            "n1ql.udf_external",
            Operations::Execute,
            &[Privilege::ExecuteExternalFunctions],
        ),
        Permission::in_bucket(
            "n1ql.udf_external",
            Operations::NotExecute,
            &[Privilege::ManageExternalFunctions],
        ),
        Permission::anywhere("n1ql.curl", &[Privilege::QueryExternal]),
    ],
    menu: None,
};
