//! The smallest service: it says what it is told, on every node of the cluster.
//!
//! ```text
//! GET /echo/{text} ─► Echo on this node ─► EchoMessage ─► Echo on each other node
//! ```
//!
//! It shows what a service consists of, and the tests of this crate show that a server needs one row in its registry to have
//! it: the example `echo-server` is such a server.

use nacre_auth::Privilege;
use nacre_cluster::ServiceName;
use nacre_node::service::{
    Access, DroppedKeyspace, HttpReply, HttpRequest, MapEntry, MenuEntry, Metric, MetricKind,
    Operations, Permission, PortNumber, PortSpec, Protocol, Route, Service, ServiceSpec,
};
use nacre_node::{NoReply, Node, PeerMessage};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The row of the service.
static SPEC: ServiceSpec = ServiceSpec {
    id: "echo",
    name: Some(ServiceName::new("echo")),
    on_request: false,
    ports: &[PortSpec {
        id: "echo",
        protocol: Protocol::Http,
        plain: PortNumber { default: 8099, offset: 8 },
        tls: PortNumber { default: 18099, offset: 19 },
        purpose: "echoes",
        label: "echoes",
        url: "http://$AUTHORITY/echo/hello",
    }],
    map: &[MapEntry {
        plain: "echo",
        tls: "echoSSL",
        port: "echo",
        of: &[ServiceName::new("echo")],
    }],
    capabilities: None,
    permissions: &[Permission {
        object: "echo",
        in_bucket: Some(false),
        operations: Operations::All,
        privileges: &[Privilege::ReadCluster],
    }],
    menu: Some(MenuEntry { title: "Echoes", path: "/echoes" }),
};

/// How long another node may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// The service.
#[derive(Debug, Default)]
pub struct Echo {
    /// Messages of other nodes that were answered.
    messages: AtomicU64,
    /// Buckets, scopes and collections that were dropped.
    dropped: AtomicU64,
}

/// The text that a node returns.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EchoMessage(String);

impl PeerMessage for EchoMessage {
    /// The text, with the number of the node that says it.
    type Reply = (u64, String);

    const SERVICE: &'static str = SPEC.id;

    fn subject(&self) -> &'static str {
        "echo"
    }

    fn answer(self, node: &Arc<Node>, _left: Duration) -> Result<(u64, String), NoReply> {
        Ok((node.id().0, self.0))
    }
}

impl Service for Echo {
    fn spec(&self) -> &'static ServiceSpec {
        &SPEC
    }

    fn routes(&self) -> &'static [Route] {
        &[Route {
            port: "echo",
            method: "GET",
            path: "/echo/{text}",
            access: Access::Cluster(Privilege::ReadCluster),
            handler: say,
        }]
    }

    fn metrics(&self, _node: &Arc<Node>) -> Vec<Metric> {
        let counter = |name, help, value: &AtomicU64| {
            let value = value.load(Ordering::Relaxed);
            Metric { name, help, kind: MetricKind::Counter, value }
        };
        vec![
            counter("echo_messages", "Messages of other nodes", &self.messages),
            counter("echo_dropped", "Key spaces that were dropped", &self.dropped),
        ]
    }

    fn answer(&self, node: &Arc<Node>, message: &[u8], left: Duration) -> Vec<u8> {
        self.messages.fetch_add(1, Ordering::Relaxed);
        node.answer_message::<EchoMessage>(message, left)
    }

    fn drop_keyspace(&self, _node: &Arc<Node>, _dropped: &DroppedKeyspace<'_>) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

/// Answers `GET /echo/{text}` with the texts of all nodes.
fn say(node: &Arc<Node>, request: &HttpRequest) -> HttpReply {
    let text = request.parameters.concat();
    let mut said = vec![(node.id().0, text.clone())];
    let others = node.others().into_iter();
    let message = EchoMessage(text);
    let asked: Vec<_> = others.map(|other| node.ask(other, &message, PATIENCE)).collect();
    said.extend(asked.iter().filter_map(|reply| reply.wait().ok()?.ok()));
    said.sort();
    let body = json!({"said": said, "user": request.user}).to_string().into_bytes();
    HttpReply { status: 200, content_type: "application/json", body }
}
