//! Full-text search, as a service of the nodes.
//!
//! ```text
//! PUT /api/index/i ─► Definition ─► record of the agreed state ─► Workload on every node that has documents
//! POST /api/index/i/query ─► Terms ─► deployments of the component `search` on all nodes ─► one response
//! ```
//!
//! The component contains the index and executes queries. This crate contains what clients see: the endpoints and error texts of
//! Couchbase Search. Each node indexes its own documents, so that the index moves with them and needs no replicas. Any node with the
//! service answers requests.
//!
//! Invariants: the service returns a definition as the client sent it; a query reflects the documents that its vector names, or fails;
//! a user without the privilege on a collection sees nothing of it.

mod access;
mod definition;
mod error;
mod flexible;
mod manage;
mod message;
mod query;
mod sqlpp;
mod statistics;
mod vectors;

use access::Named;
use error::Failure;
use nacre_auth::Privilege;
use nacre_cluster::{Cluster, ServiceName};
use nacre_node::Node;
use nacre_node::service::{
    Access, Capabilities, HttpReply, HttpRequest, MapEntry, MenuEntry, Metric, MetricKind,
    Operations, Permission, PortNumber, PortSpec, Protocol, QueryQuestion, Route, Service,
    ServiceSpec, Workload,
};
use nacre_plugins_service::NodePlugins;
use nacre_sandbox::Reader;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// ID of the service, and of its port.
const ID: &str = "search";

/// Name of the service in the list of a node's services.
const NAME: ServiceName = ServiceName::new("fts");

/// The service's row in the service table.
static SPEC: ServiceSpec = ServiceSpec {
    id: ID,
    name: Some(NAME),
    on_request: false,
    ports: &[PortSpec {
        id: ID,
        protocol: Protocol::Http,
        plain: PortNumber { default: 8094, offset: 3 },
        tls: PortNumber { default: 18094, offset: 14 },
        purpose: "search",
        label: "search",
        url: "http://$AUTHORITY/api/index",
    }],
    map: &[MapEntry { plain: "fts", tls: "ftsSSL", port: ID, of: &[NAME] }],
    capabilities: Some(Capabilities {
        service: "search",
        names: &["vectorSearch", "scopedSearchIndex"],
    }),
    permissions: &[
        Permission {
            object: "fts",
            in_bucket: None,
            operations: Operations::Reads,
            privileges: &[Privilege::Search],
        },
        Permission {
            object: "fts",
            in_bucket: None,
            operations: Operations::Writes,
            privileges: &[Privilege::AdministerSearch],
        },
    ],
    menu: Some(MenuEntry { title: "Search", path: "/search" }),
};

/// The service.
#[derive(Default)]
pub struct Search {
    /// Number of queries started, number of failed queries, and total time in nanoseconds.
    queries: AtomicU64,
    failures: AtomicU64,
    nanoseconds: AtomicU64,
    /// Evaluates searches on documents that arrive with the request.
    evaluator: Mutex<Option<Reader>>,
}

impl Search {
    fn of(node: &Node) -> &Search {
        node.service().expect("the routes are those of the service")
    }

    /// Returns the reader that evaluates searches on documents that arrive with the request. The first call loads it, which takes
    /// seconds.
    fn evaluator(&self, node: &Node) -> Result<Reader, Failure> {
        let mut slot = self.evaluator.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reader) = &*slot {
            return Ok(reader.clone());
        }
        let components = node.plugins().components();
        let reader = components.shipped_reader(node, definition::COMPONENT, "{}".into());
        let reader = reader.map_err(|reason| Failure::new(500, reason))?;
        Ok(slot.insert(reader).clone())
    }

    fn count(&self, took: Duration, has_failed: bool) {
        self.queries.fetch_add(1, Ordering::Relaxed);
        self.failures.fetch_add(u64::from(has_failed), Ordering::Relaxed);
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }
}

impl Service for Search {
    fn spec(&self) -> &'static ServiceSpec {
        &SPEC
    }

    fn routes(&self) -> &'static [Route] {
        ROUTES
    }

    fn workloads(&self, cluster: &Cluster, bucket: &nacre_cluster::Bucket) -> Vec<Workload> {
        definition::all(cluster).filter_map(|(_, definition)| definition.workload(bucket)).collect()
    }

    fn metrics(&self, _node: &Arc<Node>) -> Vec<Metric> {
        let counter = |name, help, value: &AtomicU64| {
            let value = value.load(Ordering::Relaxed);
            Metric { name, help, kind: MetricKind::Counter, value }
        };
        // Couchbase's names, for its dashboards. There, counters have no `_total`.
        let couchbase = |name, help, value: &AtomicU64| {
            let value = value.load(Ordering::Relaxed);
            Metric { name, help, kind: MetricKind::Gauge, value }
        };
        vec![
            couchbase("fts_total_queries", "Search queries since the start", &self.queries),
            couchbase("fts_total_queries_error", "Search queries that failed", &self.failures),
            counter("search_queries", "Search queries", &self.queries),
            counter("search_query_errors", "Search queries that failed", &self.failures),
            counter(
                "search_query_nanoseconds",
                "Nanoseconds that search queries took",
                &self.nanoseconds,
            ),
        ]
    }

    fn answer_query(
        &self,
        node: &Arc<Node>,
        question: &QueryQuestion<'_>,
    ) -> Option<Result<String, nacre_sandbox::Failure>> {
        Some(sqlpp::answer(node, question))
    }

    fn answer(&self, node: &Arc<Node>, message: &[u8], left: Duration) -> Vec<u8> {
        node.answer_message::<message::SearchMessage>(message, left)
    }
}

/// The answer of a handler: a reply or an error.
type Outcome = Result<HttpReply, Failure>;

/// Wraps a fallible handler into the function that a route calls.
macro_rules! handler {
    ($function:path, $is_scoped:literal) => {
        |node, request| match $function(node, request, &Named::read(request, $is_scoped)) {
            Ok(reply) => reply,
            Err(failure) => failure.reply(request),
        }
    };
}

/// The routes of an index, both for global indexes and for indexes in a scope. The parameters before `{index}` distinguish the
/// two.
macro_rules! of_index {
    ($($method:literal $path:literal $function:path;)*) => {
        &[
            route("GET", "/api/ping", handler!(statistics::ping, false)),
            route("GET", "/api/conciseOptions", handler!(statistics::options, false)),
            route("GET", "/api/nsstats", handler!(statistics::all, false)),
            route("GET", "/api/stats", handler!(statistics::all, false)),
            route("GET", "/api/nsstats/index/{index}", handler!(statistics::of_index, false)),
            route("GET", "/api/stats/index/{index}", handler!(statistics::of_index, false)),
            route("GET", "/api/stats/index/{index}/progress", handler!(statistics::progress, false)),
            route("GET", "/api/index", handler!(manage::list, false)),
            route("GET", "/api/bucket/{bucket}/scope/{scope}/index", handler!(manage::list, true)),
            $(
                route($method, concat!("/api/index/{index}", $path), handler!($function, false)),
                route(
                    $method,
                    concat!("/api/bucket/{bucket}/scope/{scope}/index/{index}", $path),
                    handler!($function, true),
                ),
            )*
        ]
    };
}

static ROUTES: &[Route] = of_index! {
    "GET" "" manage::get;
    "PUT" "" manage::put;
    "DELETE" "" manage::delete;
    "POST" "/ingestControl/{operation}" manage::control_ingest;
    "POST" "/planFreezeControl/{operation}" manage::control_plan;
    "POST" "/queryControl/{operation}" manage::control_queries;
    "POST" "/query" query::query;
    "GET" "/count" query::count;
    "GET" "/status" statistics::status;
    "POST" "/analyzeDoc" query::analyze;
};

const fn route(
    method: &'static str,
    path: &'static str,
    handler: fn(&Arc<Node>, &HttpRequest) -> HttpReply,
) -> Route {
    // The required privilege depends on the bucket, scope and collections of the index.
    Route { port: ID, method, path, access: Access::Handler, handler }
}
