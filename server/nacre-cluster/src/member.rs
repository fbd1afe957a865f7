//! The nodes of a cluster.

use serde::{Deserialize, Serialize};

/// A port for each service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ports {
    /// Cluster management over HTTP.
    pub mgmt: u16,
    /// Views over HTTP.
    pub views: u16,
    /// Queries over HTTP.
    pub query: u16,
    /// Functions over HTTP.
    pub eventing: u16,
    /// Key-value over the binary protocol.
    pub kv: u16,
}

/// Where a node is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoints {
    /// Host name; `None` lets clients use the one they connected to, as only a node that is alone can.
    pub host: Option<String>,
    /// Ports without encryption.
    pub plain: Ports,
    /// Ports with TLS, if there are any.
    pub tls: Option<Ports>,
}

impl Endpoints {
    /// Where cluster management is, as `host:port`: what names the node.
    pub fn management(&self) -> String {
        format!("{}:{}", self.host.as_deref().unwrap_or("127.0.0.1"), self.plain.mgmt)
    }

    /// Host and port as maps write them.
    pub fn authority(&self, port: u16) -> String {
        format!("{}:{port}", self.host.as_deref().unwrap_or("$HOST"))
    }
}

/// A node as all nodes know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// 32 hexadecimal digits; a node that left and joins again has another.
    pub uuid: String,
    /// Where it is reached.
    pub endpoints: Endpoints,
    /// Nodes of one group are expected to fail together; copies of a vBucket are kept apart.
    pub group: String,
    /// What part it has in the cluster.
    pub membership: Membership,
}

/// What part a node has in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Membership {
    /// It has joined, and the next rebalance gives it vBuckets.
    Added,
    /// It has its share of the vBuckets.
    Active,
    /// Its vBuckets were given to others; the next rebalance removes it, unless it is recovered before.
    FailedOver,
}
