//! Addresses that functions and plugins of this node may reach over HTTP.

use crate::node::Node;
use nacre_cluster::{Destination, Endpoints, Member};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

/// The rules for outgoing requests of a node: those of the cluster's settings and those that the node was started with.
///
/// The sender of a request resolves its host once, checks each address and connects to a checked one. Otherwise a
/// different second answer of the name server would bypass the check.
#[derive(Clone)]
pub struct Outgoing(Weak<Node>);

impl Outgoing {
    /// Creates the check of requests for functions and plugins of `node`.
    pub fn new(node: &Arc<Node>) -> Outgoing {
        Outgoing(Arc::downgrade(node))
    }

    /// Returns the hosts, as recorded in the cluster, of nodes that listen at `port`.
    pub fn nodes_at(&self, port: u16) -> BTreeSet<String> {
        let Some(node) = self.0.upgrade() else { return BTreeSet::new() };
        let cluster = node.cluster();
        let own = hosts_at(node.own_endpoints(), port);
        cluster.nodes.values().flat_map(|member| hosts_of(member, port)).chain(own).collect()
    }

    /// Checks whether a request may be sent there.
    ///
    /// # Errors
    /// The reason why the request is not allowed.
    pub fn check(&self, destination: &Destination<'_>) -> Result<(), String> {
        let node = self.0.upgrade().ok_or("the node is stopping")?;
        let cluster = node.cluster();
        let own = node.outgoing_allowed.get().into_iter().flatten();
        destination.check(cluster.outgoing_http.iter().chain(own))
    }

    /// Resolves a host that a user has named, and returns the addresses that the node may send requests to.
    ///
    /// # Errors
    /// The reason why there are none, for that user.
    pub fn reachable(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
        let node = self.0.upgrade().ok_or("the node is stopping")?;
        node.platform.reachable(self, host, port)
    }
}

fn hosts_of(member: &Member, port: u16) -> Vec<String> {
    let mut hosts = hosts_at(&member.endpoints, port);
    // An alternate address without ports uses those of the node.
    let alternate = member.alternate.iter().filter(|alternate| {
        let is_own = alternate.ports.is_empty() && !hosts.is_empty();
        is_own || alternate.ports.values().any(|known| *known == port)
    });
    let alternate: Vec<String> = alternate.map(|alternate| alternate.host.clone()).collect();
    hosts.extend(alternate);
    hosts
}

fn hosts_at(endpoints: &Endpoints, port: u16) -> Vec<String> {
    let mut all = std::iter::once(&endpoints.plain).chain(&endpoints.tls);
    let host = endpoints.host.clone().unwrap_or_else(|| "127.0.0.1".into());
    all.any(|ports| ports.contains(port)).then_some(host).into_iter().collect()
}
