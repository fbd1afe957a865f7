//! The nodes of a cluster.

use crate::{Fingerprint, Refusal, ServiceName};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The longest name of a host. Source: RFC 1035.
const HOST_BYTES_MAX: usize = 253;
/// The longest name of a port in a map, in bytes.
const PORT_NAME_BYTES_MAX: usize = 32;
/// Ports of an alternate address: more than there are names.
const ALTERNATE_PORTS_MAX: usize = 64;

/// The ports of a node by purpose: `mgmt`, `kv`, and one or more of each service that has any.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ports(BTreeMap<String, u16>);

impl Ports {
    /// The ID of the port for cluster management over HTTP.
    pub const MGMT: &str = "mgmt";
    /// The ID of the port for keys over the binary protocol.
    pub const KV: &str = "kv";

    /// Returns the port for cluster management, which every node has; 0 if it is not known.
    pub fn mgmt(&self) -> u16 {
        self.get(Ports::MGMT).unwrap_or_default()
    }

    /// Returns the port for keys, which every node has; 0 if it is not known.
    pub fn kv(&self) -> u16 {
        self.get(Ports::KV).unwrap_or_default()
    }

    /// Returns the port with that ID.
    pub fn get(&self, id: &str) -> Option<u16> {
        self.0.get(id).copied()
    }

    /// Returns true if a service of the node listens at `port`.
    pub fn contains(&self, port: u16) -> bool {
        self.0.values().any(|known| *known == port)
    }
}

impl<N: Into<String>> FromIterator<(N, u16)> for Ports {
    fn from_iter<I: IntoIterator<Item = (N, u16)>>(ports: I) -> Ports {
        Ports(ports.into_iter().map(|(id, port)| (id.into(), port)).collect())
    }
}

impl<const N: usize> From<[(&str, u16); N]> for Ports {
    fn from(ports: [(&str, u16); N]) -> Ports {
        ports.into_iter().collect()
    }
}

/// Addresses of a node, and the fingerprint of its key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoints {
    /// Host name; `None` lets clients use the one they connected to, as only a node that is alone can.
    pub host: Option<String>,
    /// Ports without encryption.
    pub plain: Ports,
    /// Ports with TLS, if there are any.
    pub tls: Option<Ports>,
    /// Fingerprint of the key that the node shows other nodes; `None` if nodes need no proof, as in a simulation.
    #[serde(default)]
    pub fingerprint: Option<Fingerprint>,
}

impl Endpoints {
    /// Returns the address of cluster management as `host:port`. It names the node.
    pub fn management(&self) -> String {
        self.address(self.plain.mgmt())
    }

    /// Returns the TLS address of cluster management for other nodes as `host:port`; `None` without such a port.
    pub fn internal(&self) -> Option<String> {
        Some(self.address(self.tls.as_ref()?.mgmt()))
    }

    /// Returns the address of a port for other nodes, as `host:port`.
    pub fn address(&self, port: u16) -> String {
        format!("{}:{port}", self.host.as_deref().unwrap_or("127.0.0.1"))
    }

    /// Host and port as maps write them.
    pub fn authority(&self, port: u16) -> String {
        format!("{}:{port}", self.host.as_deref().unwrap_or("$HOST"))
    }
}

/// Another address of a node, for clients that do not reach its [`Endpoints`]: from outside of a network of containers,
/// or behind a router that translates addresses. Source: Couchbase's external alternate address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alternate {
    /// Host name or address.
    pub host: String,
    /// Ports there by the names that maps give them, of those services that are reached there. With none, all are at the ports
    /// that the node has.
    pub ports: BTreeMap<String, u16>,
}

impl Alternate {
    /// Checks the address.
    ///
    /// # Errors
    /// [`Refusal::Invalid`], with the name of what is wrong.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        let refuse = |field, reason: String| Err(Refusal::Invalid { field, reason });
        if self.host.is_empty() || self.host.len() > HOST_BYTES_MAX {
            let reason = format!("a host has 1 to {HOST_BYTES_MAX} characters");
            return refuse("hostname", reason);
        }
        // The services of the nodes define the names: nodes of two versions may differ.
        let is_name = |name: &str| {
            (1..=PORT_NAME_BYTES_MAX).contains(&name.len())
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric())
        };
        match self.ports.keys().find(|name| !is_name(name)) {
            Some(name) => refuse("ports", format!("there is no port {name:?}")),
            None if self.ports.len() > ALTERNATE_PORTS_MAX => {
                refuse("ports", format!("at most {ALTERNATE_PORTS_MAX} ports"))
            }
            None if self.ports.values().any(|port| *port == 0) => {
                refuse("ports", "a port is a number from 1 to 65535".into())
            }
            None => Ok(()),
        }
    }
}

/// A node as all nodes know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// 32 hexadecimal digits; a node that left and joins again has another.
    pub uuid: String,
    /// Addresses.
    pub endpoints: Endpoints,
    /// Nodes of one group are expected to fail together; copies of a vBucket are kept apart.
    pub group: String,
    /// Services for clients; never empty.
    #[serde(default = "ServiceName::first")]
    pub services: BTreeSet<ServiceName>,
    /// Part in the cluster.
    pub membership: Membership,
    /// Alternate address, if there is one.
    #[serde(default)]
    pub alternate: Option<Alternate>,
}

impl Member {
    /// Returns true if the node gets a share of the vBuckets once it is active.
    pub fn has_data(&self) -> bool {
        self.services.contains(&ServiceName::DATA)
    }

    /// Returns its services as lists of nodes name them. Index is included with data, because most indexes are stored
    /// with the documents.
    pub fn service_names(&self) -> Vec<&str> {
        let indexes = self.has_data() && !self.services.contains(&ServiceName::INDEX);
        let index = indexes.then_some(&ServiceName::INDEX);
        self.services.iter().chain(index).map(ServiceName::as_str).collect()
    }
}

/// Part of a node in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Membership {
    /// The node has joined, and the next rebalance gives it vBuckets.
    Added,
    /// The node has its share of the vBuckets.
    Active,
    /// Other nodes have taken over its vBuckets; the next rebalance removes it, unless it is recovered before.
    FailedOver,
    /// A rebalance has given its vBuckets to other nodes, and it is about to be removed.
    Leaving,
}

/// Settings for silent nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AutoFailover {
    /// True if they are replaced.
    pub enabled: bool,
    /// After how many milliseconds; at least 1000.
    pub timeout_ms: u64,
    /// How many nodes may be replaced before a rebalance, or a reset of the count.
    pub count_max: usize,
    /// How many were replaced.
    pub count: usize,
}

impl Default for AutoFailover {
    fn default() -> AutoFailover {
        AutoFailover { enabled: true, timeout_ms: 5000, count_max: 1, count: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_was_stored_before_nodes_had_keys_has_none() {
        let ports = r#"{"mgmt":1,"views":2,"query":3,"eventing":4,"kv":5}"#;
        let stored = format!(r#"{{"host":"a","plain":{ports},"tls":null}}"#);
        let endpoints: Endpoints = serde_json::from_str(&stored).unwrap();
        assert_eq!((endpoints.fingerprint, endpoints.internal()), (None, None));
        let key = Some(Fingerprint([7; 32]));
        let now = Endpoints { tls: Some(endpoints.plain.clone()), fingerprint: key, ..endpoints };
        assert_eq!(now.internal().as_deref(), Some("a:1"));
        let again: Endpoints = serde_json::from_str(&serde_json::to_string(&now).unwrap()).unwrap();
        assert_eq!(again, now);
    }
}
