//! Analytics as a service of nodes.
//!
//! ```text
//! POST :8095/analytics/service ─► rights of the user ─► HTTP on the loopback ─► nacre-analytics, a process of its own
//!                                                        Supervisor starts it, and again when it ends
//! ```
//!
//! The process has the engine, which is larger than the node: a node without it serves everything else, and says by a named error that
//! analytics is not installed. The process reads documents as any consumer of history does, so that its end is that of a connection.
//!
//! Invariants: a request reaches the process only with a user whom the node has let in, and with what that user may do; the process is
//! given a login that reads documents and no more; nothing waits for the process but requests of this service.

mod pass;
mod rights;
mod supervisor;

use nacre_auth::Privilege;
use nacre_cluster::ServiceName;
use nacre_node::Node;
use nacre_node::service::{
    Access, MapEntry, Metric, MetricKind, Operations, Permission, PortNumber, PortSpec, Protocol,
    Route, Service, ServiceSpec,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use supervisor::Supervisor;

/// ID of the service, and of its port.
const ID: &str = "analytics";

/// Name under which nodes are given the service.
const NAME: ServiceName = ServiceName::new("cbas");

/// The row of the service.
static SPEC: ServiceSpec = ServiceSpec {
    id: ID,
    name: Some(NAME),
    on_request: true,
    ports: &[PortSpec {
        id: ID,
        protocol: Protocol::Http,
        plain: PortNumber { default: 8095, offset: 4 },
        tls: PortNumber { default: 18095, offset: 15 },
        purpose: "analytics",
        label: "analytics",
        url: "http://$AUTHORITY/analytics/service",
    }],
    map: &[MapEntry { plain: "cbas", tls: "cbasSSL", port: ID, of: &[NAME] }],
    capabilities: None,
    permissions: &[
        Permission {
            object: "analytics",
            in_bucket: None,
            operations: Operations::Select,
            privileges: &[Privilege::Analyze],
        },
        Permission {
            object: "analytics",
            in_bucket: None,
            operations: Operations::All,
            privileges: &[Privilege::AdministerAnalytics],
        },
    ],
    menu: None,
};

/// The service.
#[derive(Debug, Default)]
pub struct Analytics {
    supervisor: Arc<Supervisor>,
    /// Requests that were passed on, and those that the process did not answer.
    requests: AtomicU64,
    failures: AtomicU64,
}

impl Analytics {
    fn of(node: &Node) -> &Analytics {
        node.service().expect("the routes are those of the service")
    }
}

impl Service for Analytics {
    fn spec(&self) -> &'static ServiceSpec {
        &SPEC
    }

    fn routes(&self) -> &'static [Route] {
        ROUTES
    }

    fn metrics(&self, _node: &Arc<Node>) -> Vec<Metric> {
        let counter = |name, help, value: &AtomicU64| {
            let value = value.load(Ordering::Relaxed);
            Metric { name, help, kind: MetricKind::Counter, value }
        };
        vec![
            counter("analytics_requests", "Requests passed on to analytics", &self.requests),
            counter(
                "analytics_request_errors",
                "Requests that analytics did not answer",
                &self.failures,
            ),
            counter(
                "analytics_starts",
                "Starts of the process of analytics",
                &self.supervisor.starts,
            ),
        ]
    }

    fn start(&self, node: &Arc<Node>) {
        Supervisor::start(&self.supervisor, node);
    }

    fn stop(&self) {
        self.supervisor.end();
    }
}

/// Makes a route whose requests are passed on under the same path.
macro_rules! routes {
    ($($method:literal $path:literal;)*) => {
        &[$(Route {
            port: ID,
            method: $method,
            path: $path,
            // The right depends on what the statement names: the process refuses by the rights that come with the request.
            access: Access::Handler,
            handler: |node, request| pass::pass(Analytics::of(node), node, request, $method, $path),
        },)*]
    };
}

static ROUTES: &[Route] = routes! {
    "POST" "/analytics/service";
    "GET" "/analytics/service";
    "POST" "/query/service";
    "GET" "/query/service";
    "GET" "/admin/ping";
    "GET" "/analytics/admin/active_requests";
    "DELETE" "/analytics/admin/active_requests";
    "GET" "/analytics/admin/completed_requests";
    "GET" "/analytics/node/agg/stats/remaining";
    "GET" "/analytics/status/ingestion";
    "GET" "/analytics/status/ingestion/v2";
    "GET" "/analytics/cluster";
    "GET" "/analytics/link";
    "POST" "/analytics/link";
    "PUT" "/analytics/link";
    "DELETE" "/analytics/link";
    "GET" "/analytics/link/{scope}";
    "GET" "/analytics/link/{scope}/{name}";
    "POST" "/analytics/link/{scope}/{name}";
    "PUT" "/analytics/link/{scope}/{name}";
    "DELETE" "/analytics/link/{scope}/{name}";
};
