//! The nodes of a cluster.

use crate::{Fingerprint, Refusal, ServiceName, bracketed};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The longest host name, in bytes. Source: RFC 1035.
const HOST_BYTES_MAX: usize = 253;
/// The longest port name in a map, in bytes.
const PORT_NAME_BYTES_MAX: usize = 32;
/// Maximum number of ports of an alternate address: more than there are names.
const ALTERNATE_PORTS_MAX: usize = 64;

/// The ports of a node by ID: `mgmt`, `kv`, and one or more of each service with ports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ports(BTreeMap<String, u16>);

impl Ports {
    /// ID of the management port (HTTP).
    pub const MGMT: &str = "mgmt";
    /// ID of the key-value port (binary protocol).
    pub const KV: &str = "kv";

    /// Returns the management port, which every node has; 0 if unknown.
    pub fn mgmt(&self) -> u16 {
        self.get(Ports::MGMT).unwrap_or_default()
    }

    /// Returns the key-value port, which every node has; 0 if unknown.
    pub fn kv(&self) -> u16 {
        self.get(Ports::KV).unwrap_or_default()
    }

    /// Returns the port with this ID.
    pub fn get(&self, id: &str) -> Option<u16> {
        self.0.get(id).copied()
    }

    /// Returns true if a service of the node listens on `port`.
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
    /// Host name or address, IPv6 without brackets; `None` makes clients use the host that they connected to, which is allowed for a single node only.
    pub host: Option<String>,
    /// Plain ports.
    pub plain: Ports,
    /// TLS ports, if there are any.
    pub tls: Option<Ports>,
    /// Fingerprint of the node's key; `None` if nodes need no authentication, as in a simulation.
    #[serde(default)]
    pub fingerprint: Option<Fingerprint>,
}

impl Endpoints {
    /// Returns the management address as `host:port`. It identifies the node.
    pub fn management(&self) -> String {
        self.address(self.plain.mgmt())
    }

    /// Returns the TLS management address for other nodes as `host:port`; `None` without such a port.
    pub fn internal(&self) -> Option<String> {
        Some(self.address(self.tls.as_ref()?.mgmt()))
    }

    /// Returns the address of a port for other nodes as `host:port`.
    pub fn address(&self, port: u16) -> String {
        format!("{}:{port}", bracketed(self.host.as_deref().unwrap_or("127.0.0.1")))
    }

    /// Returns host and port in the form of cluster maps.
    pub fn authority(&self, port: u16) -> String {
        format!("{}:{port}", bracketed(self.host.as_deref().unwrap_or("$HOST")))
    }
}

/// An alternate address of a node, for clients that cannot reach its [`Endpoints`]: from outside a container network,
/// or behind a NAT router. Source: Couchbase's external alternate address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alternate {
    /// Host name or address.
    pub host: String,
    /// External ports by their names in cluster maps, for the reachable services. If empty, all services are reachable at the
    /// node's own ports.
    pub ports: BTreeMap<String, u16>,
}

impl Alternate {
    /// Checks the address.
    ///
    /// # Errors
    /// [`Refusal::Invalid`] with the name of the invalid field.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        let refuse = |field, reason: String| Err(Refusal::Invalid { field, reason });
        if self.host.is_empty() || self.host.len() > HOST_BYTES_MAX {
            let reason = format!("a host has 1 to {HOST_BYTES_MAX} characters");
            return refuse("hostname", reason);
        }
        // The services of the nodes define the names, which may differ between versions.
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

/// A node in the agreed state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// UUID: 32 hexadecimal digits. A node that rejoins has another one.
    pub uuid: String,
    /// Addresses.
    pub endpoints: Endpoints,
    /// Server group. Nodes of one group are expected to fail together, so copies of a vBucket are placed in different
    /// groups.
    pub group: String,
    /// Services for clients; never empty.
    #[serde(default = "ServiceName::first")]
    pub services: BTreeSet<ServiceName>,
    /// Membership.
    pub membership: Membership,
    /// Alternate address, if there is one.
    #[serde(default)]
    pub alternate: Option<Alternate>,
}

impl Member {
    /// Returns true if the node runs the data service, so that it gets a share of the vBuckets.
    pub fn has_data(&self) -> bool {
        self.services.contains(&ServiceName::DATA)
    }

    /// Returns the names of its services for lists of nodes. The index service is included with data, because most
    /// indexes are stored with the documents.
    pub fn service_names(&self) -> Vec<&str> {
        let indexes = self.has_data() && !self.services.contains(&ServiceName::INDEX);
        let index = indexes.then_some(&ServiceName::INDEX);
        self.services.iter().chain(index).map(ServiceName::as_str).collect()
    }
}

/// Membership of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Membership {
    /// The node has joined; the next rebalance gives it vBuckets.
    Added,
    /// The node has its share of the vBuckets.
    Active,
    /// Other nodes have taken over its vBuckets; the next rebalance removes it unless it is recovered first.
    FailedOver,
    /// A rebalance has moved its vBuckets away, and the node is about to be removed.
    Leaving,
}

/// Auto-failover settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AutoFailover {
    /// True if unreachable nodes are failed over automatically.
    pub enabled: bool,
    /// Silence after which a node is failed over, in milliseconds; at least 1000.
    pub timeout_ms: u64,
    /// Maximum number of automatic failovers before a rebalance or a reset of the count.
    pub count_max: usize,
    /// Number of automatic failovers so far.
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

    #[test]
    fn an_ipv6_host_is_in_brackets_before_a_port() {
        let ports = r#"{"mgmt":1,"views":2,"query":3,"eventing":4,"kv":5}"#;
        let stored = format!(r#"{{"host":"::1","plain":{ports},"tls":{ports}}}"#);
        let endpoints: Endpoints = serde_json::from_str(&stored).unwrap();
        assert_eq!(endpoints.management(), "[::1]:1");
        assert_eq!(endpoints.internal().as_deref(), Some("[::1]:1"));
        assert_eq!(endpoints.authority(5), "[::1]:5");
        let unnamed = Endpoints { host: None, ..endpoints };
        assert_eq!(unnamed.authority(5), "$HOST:5");
    }
}
