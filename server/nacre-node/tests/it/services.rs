//! The services of a node as data.

use crate::world::services;
use nacre_cluster::{Endpoints, Ports, ServiceName};
use nacre_node::service::ServiceTable;
use std::collections::BTreeSet;

#[test]
fn ports_at_other_addresses_have_the_names_that_maps_use() {
    let ports = Ports::from([("mgmt", 1), ("views", 2), ("query", 3), ("eventing", 4), ("kv", 5)]);
    let tls = Some(ports.clone());
    let endpoints = Endpoints { host: None, plain: ports, tls, fingerprint: None };
    let table = ServiceTable::of(&services());
    let named = table.map_ports(&endpoints, &ServiceName::FIRST.into());
    let names: BTreeSet<&str> = named.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(names, table.map_names().into_iter().collect());
    let expected = [
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
    assert_eq!(names, expected.into());
}
