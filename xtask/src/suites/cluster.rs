//! The nodes that a suite runs against.

use super::BUCKET;
use std::path::Path;
use xtask_setup::node::Node;

/// Where the nodes are: all on the default ports, as nodes on machines of their own are, so that suites conclude nothing
/// from ports. Linux has all these addresses.
const HOSTS: [&str; 3] = ["127.0.0.1", "127.0.0.2", "127.0.0.3"];
/// Copies of a document beside the first one, in the bucket of a cluster.
const REPLICAS: &str = "1";

/// Nodes of one cluster.
pub(super) struct Cluster {
    nodes: Vec<Node>,
}

impl Cluster {
    /// Starts as many nodes, with the bucket that suites use spread over them.
    ///
    /// # Errors
    /// What a node says.
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

    /// The node on the usual address.
    pub fn first(&self) -> &Node {
        &self.nodes[0]
    }

    /// Stops all nodes.
    ///
    /// # Errors
    /// When one does not end well.
    pub fn stop(self) -> Result<(), String> {
        self.nodes.into_iter().try_for_each(Node::stop)
    }
}
