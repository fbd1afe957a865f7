//! The alternate address of a node, for clients in another network. Paths and fields have Couchbase's names.

use super::Call;
use super::body::{Reply, done, invalid};
use super::routes::{ADMINISTER, Route, delete, put};
use nacre_cluster::{Alternate, Change, NodeChange, read_host};
use std::collections::BTreeMap;

/// Ports of services that nacre does not have: tools name the ports of all services that they know.
const ABSENT_PORTS: [&str; 8] = [
    "ftsGRPC",
    "ftsGRPCSSL",
    "backupGRPC",
    "indexAdmin",
    "indexScan",
    "indexStreamInit",
    "indexStreamCatchup",
    "indexStreamMaint",
];

/// Reads the fields of a form: `hostname`, and a port for each service that has another port number there.
fn read(names: &[&str], form: Vec<(String, String)>) -> Result<Alternate, Reply> {
    let (mut host, mut ports) = (String::new(), BTreeMap::new());
    for (field, value) in form {
        if field == "hostname" {
            host = read_host(&value).map_err(|reason| invalid("hostname", reason))?;
        } else if names.contains(&field.as_str()) {
            let reason = || format!("{value:?} is not a port: expected a number from 1 to 65535");
            let port = value.parse().ok().filter(|port| *port != 0);
            let port = port.ok_or_else(|| invalid(&field, reason()))?;
            ports.insert(field, port);
        } else if ABSENT_PORTS.contains(&field.as_str()) {
            // nacre does not have this service, so its port is ignored.
        } else {
            return Err(invalid(
                &field,
                format!("there is no such port; there are {}", names.join(", ")),
            ));
        }
    }
    if host.is_empty() {
        return Err(invalid("hostname", "the name or address is missing"));
    }
    Ok(Alternate { host, ports })
}

const PATH: &str = "/node/controller/setupAlternateAddresses/external";

pub(super) const ROUTES: &[Route] = &[
    put(PATH, ADMINISTER, |call| {
        Box::pin(async move {
            let names = call.node.service_table().map_names();
            let alternate = read(&names, call.form())?;
            set(&call, Some(alternate)).await
        })
    }),
    delete(PATH, ADMINISTER, |call| Box::pin(async move { set(&call, None).await })),
];

/// Sets the alternate address of this node, or removes it.
async fn set(call: &Call, alternate: Option<Alternate>) -> Result<Reply, Reply> {
    let change = Change::Nodes(NodeChange::SetAlternate { id: call.node.id(), alternate });
    call.change(change).await.map(|_| done())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::form;
    use nacre_node::service::ServiceTable;

    #[test]
    fn an_address_is_a_host_and_perhaps_ports() {
        let names = ServiceTable::of(&nacre_server::services()).map_names();
        let read = |text: &[u8]| read(&names, form(text)).ok();
        let alternate = |host: &str, ports: &[(&str, u16)]| Alternate {
            host: host.into(),
            ports: ports.iter().map(|(name, port)| ((*name).to_owned(), *port)).collect(),
        };
        assert_eq!(read(b"hostname=a.example"), Some(alternate("a.example", &[])));
        let with_ports = alternate("10.0.0.1", &[("kv", 9000), ("mgmtSSL", 9001)]);
        assert_eq!(read(b"kv=9000&hostname=10.0.0.1&mgmtSSL=9001"), Some(with_ports));
        for text in ["", "kv=1", "hostname=", "hostname=a%20b", "hostname=a&kv=0"] {
            assert_eq!(read(text.as_bytes()), None, "{text}");
        }
        let with_others = alternate("a", &[("kv", 1)]);
        assert_eq!(read(b"hostname=a&kv=1&ftsGRPC=4"), Some(with_others));
        for text in ["hostname=a&kv=65536", "hostname=a&kv=x", "hostname=a&telnet=1"] {
            assert_eq!(read(text.as_bytes()), None, "{text}");
        }
    }
}
