//! The nodes that a suite runs against.

use super::BUCKET;
use std::path::Path;
use xtask_setup::node::Node;

/// The addresses of the nodes: all use the default ports, like nodes on separate machines, so that suites conclude
/// nothing from ports. Linux has all these addresses.
const HOSTS: [&str; 3] = ["127.0.0.1", "127.0.0.2", "127.0.0.3"];
/// Replicas of a document in the bucket of a cluster.
const REPLICAS: &str = "1";

/// Nodes of one cluster.
pub(super) struct Cluster {
    nodes: Vec<Node>,
}

impl Cluster {
    /// Starts `count` nodes, with the suites' bucket spread over them.
    ///
    /// # Errors
    /// Reports a node's refusal.
    pub fn start(binary: &Path, count: usize) -> Result<Cluster, String> {
        if count == 1 {
            let nodes = vec![Node::start(binary, None, &[BUCKET], &[])?];
            return Ok(Cluster { nodes });
        }
        let mut nodes = Vec::new();
        for host in &HOSTS[..count] {
            nodes.push(Node::spawn_at(binary, host, None, &[], &[])?);
        }
        nodes.iter_mut().try_for_each(Node::wait_until_ready)?;
        let cluster = Cluster { nodes };
        for other in &cluster.nodes[1..] {
            cluster.first().cluster(binary, &["add", &other.address()])?;
        }
        let bucket = [("name", BUCKET), ("ramQuotaMB", "256"), ("replicaNumber", REPLICAS)];
        let answer = cluster.first().rest("POST", "/pools/default/buckets", &bucket)?;
        if answer.status != 202 {
            return Err(format!("the bucket of the cluster: {}", answer.text()));
        }
        cluster.first().cluster(binary, &["rebalance"])?;
        Ok(cluster)
    }

    /// Returns the node at the usual address.
    pub fn first(&self) -> &Node {
        &self.nodes[0]
    }

    /// Stops all nodes.
    ///
    /// # Errors
    /// Fails when one does not end cleanly.
    pub fn stop(self) -> Result<(), String> {
        self.nodes.into_iter().try_for_each(Node::stop)
    }
}
