//! Backups as a service of nodes, with the endpoints of Couchbase's backup service.
//!
//! ```text
//! POST …/repository/active/r/backup ─► claim r in the agreed state ─► `nacre backup create` as a process ─► its outcome in the history of r
//! the scheduler of any node         ─► the same, for a task that is due
//! ```
//!
//! Plans, repositories and what became of their tasks are records of the agreed state, so that every node answers the same. A task runs on
//! the node that has claimed the repository; a claim is a change of one version of its record, so that of two nodes one runs a task that is
//! due. The work is done by the commands of the program `nacre`: a backup that fails, or takes all memory, is the end of a process. Of a
//! backup each node with the service writes what it serves itself (`share`).
//!
//! Invariants: a repository has one task at a time; a task whose node has restarted, or has left, counts as failed; no password is
//! in a record, a path, or the arguments of a process.

mod command;
mod endpoint;
mod info;
mod plan;
mod record;
mod reply;
mod repository;
mod restore;
mod runner;
mod schedule;
mod settings;
mod share;

use nacre_auth::Privilege;
use nacre_cluster::ServiceName;
use nacre_node::Node;
use nacre_node::service::{
    Access, HttpReply, HttpRequest, MapEntry, Metric, MetricKind, Operations, Permission,
    PortNumber, PortSpec, Protocol, Route, Service, ServiceSpec,
};
use record::State;
use reply::Failure;
use runner::Runner;
use share::ShareMessage;
use std::sync::Arc;
use std::time::Duration;

/// ID of the service, and of its port.
const ID: &str = "backup";

/// Name under which nodes are given the service.
const NAME: ServiceName = ServiceName::new("backup");

/// The row of the service.
static SPEC: ServiceSpec = ServiceSpec {
    id: ID,
    name: Some(NAME),
    on_request: true,
    ports: &[PortSpec {
        id: ID,
        protocol: Protocol::Http,
        plain: PortNumber { default: 8097, offset: 6 },
        tls: PortNumber { default: 18097, offset: 17 },
        purpose: "backups",
        label: "backups",
        url: "http://$AUTHORITY/api/v1/cluster/self",
    }],
    map: &[MapEntry { plain: "backupAPI", tls: "backupAPIHTTPS", port: ID, of: &[NAME] }],
    capabilities: None,
    permissions: &[Permission {
        object: "backup",
        in_bucket: Some(false),
        operations: Operations::All,
        privileges: &[Privilege::Backup],
    }],
    menu: None,
};

/// The service.
#[derive(Debug, Default)]
pub struct Backup {
    runner: Arc<Runner>,
}

impl Backup {
    fn of(node: &Node) -> &Backup {
        node.service().expect("the routes are those of the service")
    }
}

impl Service for Backup {
    fn spec(&self) -> &'static ServiceSpec {
        &SPEC
    }

    fn routes(&self) -> &'static [Route] {
        ROUTES
    }

    fn metrics(&self, _node: &Arc<Node>) -> Vec<Metric> {
        let counter = |name, help, value| Metric { name, help, kind: MetricKind::Counter, value };
        let [tasks, failures] = self.runner.counts();
        vec![
            counter("backup_task_run", "Tasks of repositories that this node has begun", tasks),
            counter("backup_task_failed", "Tasks that have failed", failures),
        ]
    }

    fn answer(&self, node: &Arc<Node>, message: &[u8], left: Duration) -> Vec<u8> {
        node.answer_message::<ShareMessage>(message, left)
    }

    fn start(&self, node: &Arc<Node>) {
        Runner::start(&self.runner, node);
    }

    fn stop(&self) {
        self.runner.end();
    }
}

/// Outcome of a request: an answer, or the reason for its refusal.
type Outcome = Result<HttpReply, Failure>;

/// Makes a route of a function that can fail.
macro_rules! route {
    ($method:literal $path:literal $function:path) => {
        route!($method $path $function as |node, request| $function(node, request))
    };
    ($method:literal $path:literal $function:path, $state:expr) => {
        route!($method $path $function as |node, request| $function(node, request, $state))
    };
    ($method:literal $path:literal $function:path as |$node:ident, $request:ident| $call:expr) => {
        Route {
            port: ID,
            method: $method,
            path: concat!("/api/v1", $path),
            access: Access::Cluster(Privilege::Backup),
            handler: |$node: &Arc<Node>, $request: &HttpRequest| {
                let outcome: Outcome = $call;
                outcome.unwrap_or_else(|failure| failure.reply())
            },
        }
    };
}

static ROUTES: &[Route] = &[
    route!("GET" "/cluster/self" repository::of_cluster),
    route!("GET" "/config" settings::get),
    route!("POST" "/config" settings::replace),
    route!("PUT" "/config" settings::replace),
    route!("PATCH" "/config" settings::change),
    route!("GET" "/nodesThreadsMap" settings::threads),
    route!("POST" "/nodesThreadsMap" settings::replace_threads),
    route!("PATCH" "/nodesThreadsMap" settings::change_threads),
    route!("GET" "/plan" plan::list),
    route!("GET" "/plan/{name}" plan::get),
    route!("POST" "/plan/{name}" plan::create),
    route!("PUT" "/plan/{name}" plan::replace),
    route!("DELETE" "/plan/{name}" plan::delete),
    route!("GET" "/cluster/self/repository/active" repository::list, State::Active),
    route!("GET" "/cluster/self/repository/archived" repository::list, State::Archived),
    route!("GET" "/cluster/self/repository/imported" repository::list, State::Imported),
    route!("GET" "/cluster/self/repository/active/{id}" repository::get, State::Active),
    route!("GET" "/cluster/self/repository/archived/{id}" repository::get, State::Archived),
    route!("GET" "/cluster/self/repository/imported/{id}" repository::get, State::Imported),
    route!("POST" "/cluster/self/repository/active/{id}" repository::create),
    route!("POST" "/cluster/self/repository/import" repository::import),
    route!("POST" "/cluster/self/repository/active/{id}/pause" repository::pause),
    route!("POST" "/cluster/self/repository/active/{id}/resume" repository::resume),
    route!("POST" "/cluster/self/repository/active/{id}/archive" repository::archive),
    route!("DELETE" "/cluster/self/repository/archived/{id}" repository::delete, State::Archived),
    route!("DELETE" "/cluster/self/repository/imported/{id}" repository::delete, State::Imported),
    route!("POST" "/cluster/self/repository/active/{id}/backup" repository::back_up),
    route!("POST" "/cluster/self/repository/active/{id}/merge" repository::merge),
    route!("POST" "/cluster/self/repository/active/{id}/share" share::begin),
    route!("GET" "/cluster/self/repository/active/{id}/share/{backup}" share::look),
    route!(
        "DELETE" "/cluster/self/repository/active/{id}/backups/{name}" repository::delete_backup
    ),
    route!("GET" "/cluster/self/repository/active/{id}/info" info::info, State::Active),
    route!("GET" "/cluster/self/repository/archived/{id}/info" info::info, State::Archived),
    route!("GET" "/cluster/self/repository/imported/{id}/info" info::info, State::Imported),
    route!("POST" "/cluster/self/repository/active/{id}/examine" info::examine, State::Active),
    route!("POST" "/cluster/self/repository/archived/{id}/examine" info::examine, State::Archived),
    route!("POST" "/cluster/self/repository/imported/{id}/examine" info::examine, State::Imported),
    route!("GET" "/cluster/self/repository/active/{id}/taskHistory" info::history, State::Active),
    route!(
        "GET" "/cluster/self/repository/archived/{id}/taskHistory" info::history, State::Archived
    ),
    route!(
        "GET" "/cluster/self/repository/imported/{id}/taskHistory" info::history, State::Imported
    ),
    route!("POST" "/cluster/self/repository/active/{id}/restore" restore::restore, State::Active),
    route!(
        "POST" "/cluster/self/repository/archived/{id}/restore" restore::restore, State::Archived
    ),
    route!(
        "POST" "/cluster/self/repository/imported/{id}/restore" restore::restore, State::Imported
    ),
];
