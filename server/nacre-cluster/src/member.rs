//! The nodes of a cluster.

use crate::{Fingerprint, Refusal};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The longest name of a host. Source: RFC 1035.
const HOST_BYTES_MAX: usize = 253;

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

/// Where a node is reached, and by what it is recognised there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoints {
    /// Host name; `None` lets clients use the one they connected to, as only a node that is alone can.
    pub host: Option<String>,
    /// Ports without encryption.
    pub plain: Ports,
    /// Ports with TLS, if there are any.
    pub tls: Option<Ports>,
    /// Of the key that it shows other nodes; `None` where nodes need not prove who they are, as in a simulation.
    #[serde(default)]
    pub fingerprint: Option<Fingerprint>,
}

impl Endpoints {
    /// Where cluster management is, as `host:port`: what names the node.
    pub fn management(&self) -> String {
        self.address(self.plain.mgmt)
    }

    /// Where other nodes reach cluster management, as `host:port`: with TLS; `None` without such a port.
    pub fn internal(&self) -> Option<String> {
        Some(self.address(self.tls?.mgmt))
    }

    /// Where other nodes reach that port, as `host:port`.
    pub fn address(&self, port: u16) -> String {
        format!("{}:{port}", self.host.as_deref().unwrap_or("127.0.0.1"))
    }

    /// Host and port as maps write them.
    pub fn authority(&self, port: u16) -> String {
        format!("{}:{port}", self.host.as_deref().unwrap_or("$HOST"))
    }
}

/// Another address of a node, for clients that do not reach it at its [`Endpoints`]: from outside of a network of containers, or
/// past a router that translates addresses. Source: what Couchbase calls the external alternate address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alternate {
    /// Host name or address.
    pub host: String,
    /// Ports there by the names that maps give them, of those services that are reached there. With none, all are at the ports
    /// that the node has.
    pub ports: BTreeMap<String, u16>,
}

impl Alternate {
    /// The names of ports in maps.
    pub const PORT_NAMES: [&str; 12] = [
        "mgmt",
        "mgmtSSL",
        "kv",
        "kvSSL",
        "capi",
        "capiSSL",
        "n1ql",
        "n1qlSSL",
        "eventingAdminPort",
        "eventingSSL",
        "indexHttp",
        "indexHttps",
    ];

    /// Whether it can be one.
    ///
    /// # Errors
    /// [`Refusal::Invalid`], with the name of what is wrong.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        let refuse = |field, reason: String| Err(Refusal::Invalid { field, reason });
        if self.host.is_empty() || self.host.len() > HOST_BYTES_MAX {
            let reason = format!("a host has 1 to {HOST_BYTES_MAX} characters");
            return refuse("hostname", reason);
        }
        match self.ports.iter().find(|(name, _)| !Alternate::PORT_NAMES.contains(&name.as_str())) {
            Some((name, _)) => refuse("ports", format!("there is no port {name}")),
            None if self.ports.values().any(|port| *port == 0) => {
                refuse("ports", "a port is a number from 1 to 65535".into())
            }
            None => Ok(()),
        }
    }
}

/// What a node does for clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Service {
    /// It has a share of the vBuckets, and of all that is made of their documents: rows of views, functions, and the entries of
    /// indexes that have no partitions.
    Data,
    /// It answers queries, for all nodes.
    Query,
    /// It answers who manages functions, which run where the documents are.
    Eventing,
    /// It keeps partitions of indexes.
    Index,
}

impl Service {
    /// All there are.
    pub const ALL: [Service; 4] =
        [Service::Data, Service::Query, Service::Eventing, Service::Index];

    /// Its name in requests and maps. Source: Couchbase's REST.
    pub fn name(self) -> &'static str {
        match self {
            Service::Data => "kv",
            Service::Query => "n1ql",
            Service::Eventing => "eventing",
            Service::Index => "index",
        }
    }

    fn all() -> BTreeSet<Service> {
        Service::ALL.into()
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
    /// What it does for clients: something.
    #[serde(default = "Service::all")]
    pub services: BTreeSet<Service>,
    /// What part it has in the cluster.
    pub membership: Membership,
    /// Where it is reached from elsewhere, if that is another place.
    #[serde(default)]
    pub alternate: Option<Alternate>,
}

impl Member {
    /// Whether it is to have a share of the vBuckets, once it is active.
    pub fn has_data(&self) -> bool {
        self.services.contains(&Service::Data)
    }

    /// What it does, as lists of nodes name it: most indexes are where the documents are.
    pub fn service_names(&self) -> Vec<&'static str> {
        let indexes = self.has_data() && !self.services.contains(&Service::Index);
        let index = indexes.then(|| Service::Index.name());
        self.services.iter().map(|service| service.name()).chain(index).collect()
    }
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
    /// Its vBuckets were given to others by a rebalance, and it is about to be removed.
    Leaving,
}

/// What happens to nodes that fall silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AutoFailover {
    /// Whether they are replaced.
    pub enabled: bool,
    /// After how many milliseconds; at least 1000.
    pub timeout_ms: u64,
    /// How many may be replaced before somebody rebalances, or resets the count.
    pub count_max: usize,
    /// How many were.
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
        let now = Endpoints { tls: Some(endpoints.plain), fingerprint: key, ..endpoints };
        assert_eq!(now.internal().as_deref(), Some("a:1"));
        let again: Endpoints = serde_json::from_str(&serde_json::to_string(&now).unwrap()).unwrap();
        assert_eq!(again, now);
    }
}
