//! The description of a service as data: its ports, names in cluster maps, permissions, and entry in the menu of the
//! console.
//!
//! Everything that a node exposes of its services follows from the [`ServiceTable`]: ports and their offsets from
//! `--port-base`, names in cluster maps and alternate addresses, log lines, the help and the banner of `nacre dev`, and
//! permissions that tools may query.

use super::Service;
use nacre_auth::Privilege;
use nacre_cluster::{Endpoints, Ports, ServiceName};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A service as data.
#[derive(Debug)]
pub struct ServiceSpec {
    /// Name in messages between nodes: lower-case ASCII, unique in the table.
    pub id: &'static str,
    /// Name under which the service is assigned to nodes; `None` for a service that every node has.
    pub name: Option<ServiceName>,
    /// True if nodes get the service only on request; false if every new node gets it.
    pub on_request: bool,
    /// Ports that the service listens on.
    pub ports: &'static [PortSpec],
    /// Entries of cluster maps.
    pub map: &'static [MapEntry],
    /// Features of the service beyond its first version, as cluster maps announce them.
    pub capabilities: Option<Capabilities>,
    /// Permissions that tools may query, and the privileges that they need here.
    pub permissions: &'static [Permission],
    /// Entry in the menu of the console.
    pub menu: Option<MenuEntry>,
}

impl ServiceSpec {
    /// Returns a service without ports, names and permissions, for use by other nodes and other services.
    pub const fn internal(id: &'static str) -> ServiceSpec {
        ServiceSpec {
            id,
            name: None,
            on_request: false,
            ports: &[],
            map: &[],
            capabilities: None,
            permissions: &[],
            menu: None,
        }
    }
}

/// A port of a service, plain and with TLS.
#[derive(Debug)]
pub struct PortSpec {
    /// Name of the port in the agreed state: unique in the table.
    pub id: &'static str,
    /// Protocol of the port.
    pub protocol: Protocol,
    /// Port number without encryption.
    pub plain: PortNumber,
    /// Port number with TLS.
    pub tls: PortNumber,
    /// Purpose, in one word, for the log.
    pub purpose: &'static str,
    /// Label in the banner of `nacre dev`.
    pub label: &'static str,
    /// URL that the banner shows, with `$AUTHORITY` for host and port.
    pub url: &'static str,
}

/// Protocol of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP, for the routes of the service.
    Http,
    /// The binary key-value protocol.
    KeyValue,
}

/// Number of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortNumber {
    /// The port that Couchbase's clients try first.
    pub default: u16,
    /// Offset from `--port-base`, below 20, so that many nodes fit on a machine.
    pub offset: u16,
}

/// An entry of cluster maps: a name for a port.
#[derive(Debug)]
pub struct MapEntry {
    /// Name of the plain port.
    pub plain: &'static str,
    /// Name of the port with TLS.
    pub tls: &'static str,
    /// ID of the port, which may belong to another service.
    pub port: &'static str,
    /// A node has the entry if it has one of these services. With an empty list, every node has it.
    pub of: &'static [ServiceName],
}

/// Capabilities of a service in cluster maps.
#[derive(Clone, Copy, Debug)]
pub struct Capabilities {
    /// Name of the service in the list of capabilities: `n1ql`, `search`.
    pub service: &'static str,
    /// Names of the capabilities, such as `scopedSearchIndex`.
    pub names: &'static [&'static str],
}

/// A permission in Couchbase's terms, with the privileges that it needs here.
#[derive(Debug)]
pub struct Permission {
    /// Object, such as `views` or `n1ql.select`.
    pub object: &'static str,
    /// True for a permission on a bucket, false for one on the cluster; `None` for both.
    pub in_bucket: Option<bool>,
    /// The operations that the permission covers.
    pub operations: Operations,
    /// Required privileges: all of them are needed.
    pub privileges: &'static [Privilege],
}

impl Permission {
    /// Returns a permission on an object of a bucket.
    pub const fn in_bucket(
        object: &'static str,
        operations: Operations,
        privileges: &'static [Privilege],
    ) -> Permission {
        Permission { object, in_bucket: Some(true), operations, privileges }
    }

    /// Returns a permission on an object that may belong to a bucket or to none.
    pub const fn anywhere(object: &'static str, privileges: &'static [Privilege]) -> Permission {
        Permission { object, in_bucket: None, operations: Operations::All, privileges }
    }
}

/// Operations of a permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operations {
    /// Any operation.
    All,
    /// `read` and `list`.
    Reads,
    /// Any operation except `read` and `list`.
    Writes,
    /// `select`.
    Select,
    /// `execute`.
    Execute,
    /// Any operation except `execute`.
    NotExecute,
}

impl Operations {
    fn include(self, operation: &str) -> bool {
        let reads = matches!(operation, "read" | "list");
        match self {
            Operations::All => true,
            Operations::Reads => reads,
            Operations::Writes => !reads,
            Operations::Select => operation == "select",
            Operations::Execute => operation == "execute",
            Operations::NotExecute => operation != "execute",
        }
    }
}

/// An entry in the menu of the console.
#[derive(Debug)]
pub struct MenuEntry {
    /// Title.
    pub title: &'static str,
    /// Path of the page.
    pub path: &'static str,
}

/// The services of a node as data, in the order of registration.
#[derive(Clone, Debug)]
pub struct ServiceTable(Arc<[&'static ServiceSpec]>);

/// Two tables are equal if they list the same services in the same order.
impl PartialEq for ServiceTable {
    fn eq(&self, other: &ServiceTable) -> bool {
        self.0.iter().map(|spec| spec.id).eq(other.0.iter().map(|spec| spec.id))
    }
}

impl Eq for ServiceTable {}

impl ServiceTable {
    /// Creates the table of these services.
    ///
    /// # Panics
    /// When two services or two ports have the same ID, or two ports have the same number or offset: the registry is
    /// part of the program.
    pub fn of(services: &[Arc<dyn Service>]) -> ServiceTable {
        let table = ServiceTable(services.iter().map(|service| service.spec()).collect());
        let ids: BTreeSet<&str> = table.0.iter().map(|spec| spec.id).collect();
        assert_eq!(ids.len(), table.0.len(), "two services have the same ID");
        let ports = table.ports();
        let ids: BTreeSet<&str> = ports.iter().map(|port| port.id).collect();
        assert_eq!(ids.len(), ports.len(), "two ports have the same ID");
        let numbers: BTreeSet<u16> =
            ports.iter().flat_map(|port| [port.plain.default, port.tls.default]).collect();
        assert_eq!(numbers.len(), 2 * ports.len(), "two ports have the same number");
        let offsets: BTreeSet<u16> =
            ports.iter().flat_map(|port| [port.plain.offset, port.tls.offset]).collect();
        assert_eq!(offsets.len(), 2 * ports.len(), "two ports have the same offset");
        table
    }

    /// Returns the services.
    pub fn iter(&self) -> impl Iterator<Item = &'static ServiceSpec> {
        self.0.iter().copied()
    }

    /// Returns the ports of all services, by number.
    pub fn ports(&self) -> Vec<&'static PortSpec> {
        let mut ports: Vec<_> = self.0.iter().flat_map(|spec| spec.ports).collect();
        ports.sort_by_key(|port| port.plain.default);
        ports
    }

    /// Returns the ports that Couchbase's clients try first, plain and with TLS.
    pub fn default_ports(&self) -> (Ports, Ports) {
        let of = |number: fn(&PortSpec) -> PortNumber| {
            self.ports().into_iter().map(|port| (port.id, number(port).default)).collect()
        };
        (of(|port| port.plain), of(|port| port.tls))
    }

    /// Returns the ports, plain and with TLS, of a node whose ports start at `base`; `None` if some would exceed 65535.
    pub fn ports_from(&self, base: u16) -> Option<(Ports, Ports)> {
        let of = |number: fn(&PortSpec) -> PortNumber| {
            let port = |port: &PortSpec| Some((port.id, base.checked_add(number(port).offset)?));
            self.ports().into_iter().map(port).collect::<Option<Ports>>()
        };
        Some((of(|port| port.plain)?, of(|port| port.tls)?))
    }

    /// Describes the ports of a node whose ports start at N, for the help.
    pub fn describe_offsets(&self) -> String {
        let ports = self.ports();
        let list = |text: &dyn Fn(&PortSpec) -> String| -> String {
            ports.iter().map(|port| text(port)).collect::<Vec<_>>().join(", ")
        };
        let at = |offset: u16| if offset == 0 { "N".to_owned() } else { format!("N+{offset}") };
        format!(
            "Move all ports: {} (defaults: {}); with TLS {} (defaults: {})",
            list(&|port| format!("{} {}", port.purpose, at(port.plain.offset))),
            list(&|port| port.plain.default.to_string()),
            list(&|port| at(port.tls.offset)),
            list(&|port| port.tls.default.to_string()),
        )
    }

    /// Returns the services that can be assigned to a node.
    pub fn names(&self) -> BTreeSet<ServiceName> {
        self.0.iter().filter_map(|spec| spec.name).collect()
    }

    /// Returns the services that a new node gets.
    pub fn first_names(&self) -> BTreeSet<ServiceName> {
        self.0.iter().filter(|spec| !spec.on_request).filter_map(|spec| spec.name).collect()
    }

    /// Returns the names of ports in cluster maps; each plain name precedes its TLS name.
    pub fn map_names(&self) -> Vec<&'static str> {
        let entries = self.0.iter().flat_map(|spec| spec.map);
        entries.flat_map(|entry| [entry.plain, entry.tls]).collect()
    }

    /// Returns the ports of a node that has `services`, under the names of cluster maps.
    pub fn map_ports(&self, endpoints: &Endpoints, services: &BTreeSet<ServiceName>) -> Value {
        let mut named = Map::new();
        let entries = self.0.iter().flat_map(|spec| spec.map);
        for entry in entries.filter(|entry| {
            entry.of.is_empty() || entry.of.iter().any(|name| services.contains(name))
        }) {
            let mut put = |name: &str, ports: &Ports| {
                if let Some(port) = ports.get(entry.port) {
                    named.insert(name.to_owned(), json!(port));
                }
            };
            put(entry.plain, &endpoints.plain);
            endpoints.tls.iter().for_each(|ports| put(entry.tls, ports));
        }
        Value::Object(named)
    }

    /// Returns the capabilities of all services, as cluster maps announce them.
    pub fn capabilities(&self) -> Value {
        let of_services = self.0.iter().filter_map(|spec| spec.capabilities);
        of_services.map(|one| (one.service.to_owned(), json!(one.names))).collect()
    }

    /// Returns the privileges that a permission needs; `None` if the permission belongs to no service.
    pub fn privileges(
        &self,
        object: &str,
        in_bucket: bool,
        operation: &str,
    ) -> Option<&'static [Privilege]> {
        let mut permissions = self.0.iter().flat_map(|spec| spec.permissions);
        let found = permissions.find(|permission| {
            permission.object == object
                && permission.in_bucket.is_none_or(|wanted| wanted == in_bucket)
                && permission.operations.include(operation)
        });
        found.map(|permission| permission.privileges)
    }

    /// Returns the menu of the console.
    pub fn menu(&self) -> impl Iterator<Item = &'static MenuEntry> {
        self.0.iter().filter_map(|spec| spec.menu.as_ref())
    }
}
