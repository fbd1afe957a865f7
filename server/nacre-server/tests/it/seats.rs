//! Roles of single nodes of a cluster: services, and the groups over which copies are spread.

use crate::cluster::Node;
use crate::copies::{is_rebalancing, rebalance};
use crate::process::{PASSWORD, USER};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const BUCKET: &str = "seats";
const GROUPS: &str = "/pools/default/serverGroups";

fn add_at(first: &Node, path: &str, other: &Node, services: &str) {
    let hostname = other.address();
    let form = format!("hostname={hostname}&user={USER}&password={PASSWORD}&services={services}");
    first.succeed("POST", &format!("{path}/addNode"), &form);
}

fn spread(nodes: &[Node], replicas: u8) {
    let form = format!("name={BUCKET}&ramQuotaMB=100&replicaNumber={replicas}");
    nodes[0].succeed("POST", "/pools/default/buckets", &form);
    rebalance(nodes, &[]);
    nodes[0].wait_until("the rebalance", |node| !is_rebalancing(node));
}

fn map(node: &Node) -> Value {
    node.json(&format!("/pools/default/b/{BUCKET}"))
}

fn ask(node: &Node, statement: &str) -> Value {
    let body = json!({"statement": statement, "scan_consistency": "request_plus"}).to_string();
    let address = format!("127.0.0.1:{}", node.port_base + 2);
    let (login, kind) = (Some((USER, PASSWORD)), "application/json");
    let answer = nacre_conformance::http::request(
        &address,
        "POST",
        "/query/service",
        login,
        kind,
        body.as_bytes(),
    );
    let answer: Value = serde_json::from_str(&answer.unwrap().text()).unwrap();
    assert_eq!(answer["status"], "success", "{statement}: {answer}");
    answer["results"].clone()
}

/// The services of each node in a map, by its management port.
fn services(map: &Value) -> Vec<(u64, BTreeSet<String>)> {
    let nodes = map["nodesExt"].as_array().unwrap().iter();
    let names = |services: &Value| -> BTreeSet<String> {
        let named = services.as_object().unwrap().keys();
        let is_encrypted = |name: &str| name.ends_with("SSL") || name == "indexHttps";
        named.filter(|name| !is_encrypted(name) && *name != "mgmt").cloned().collect()
    };
    nodes
        .map(|node| (node["services"]["mgmt"].as_u64().unwrap(), names(&node["services"])))
        .collect()
}

fn named(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn a_node_without_data_answers_queries_for_those_that_have_it() {
    let mut nodes = [Node::start(), Node::start(), Node::start()];
    nodes[0].succeed("POST", "/node/controller/setupServices", "services=kv,eventing");
    add_at(&nodes[0], "/controller", &nodes[1], "n1ql,index");
    add_at(&nodes[0], "/controller", &nodes[2], "kv,index");
    spread(&nodes, 1);
    let ports = |n: usize| u64::from(nodes[n].port_base);
    let (data, query) = (named(&["kv", "capi", "indexHttp"]), named(&["n1ql", "indexHttp"]));
    let first = named(&["kv", "capi", "eventingAdminPort", "indexHttp"]);
    for node in &nodes {
        node.wait_until("the map", |node| map(node)["nodesExt"].as_array().unwrap().len() == 3);
        let map = map(node);
        let expected =
            [(ports(0), first.clone()), (ports(2), data.clone()), (ports(1), query.clone())];
        assert_eq!(services(&map), expected, "those with data come first: {map}");
        assert_eq!(map["vBucketServerMap"]["serverList"].as_array().unwrap().len(), 2, "{map}");
        assert_eq!(map["nodes"].as_array().unwrap().len(), 2, "{map}");
    }
    let chains: Vec<Vec<i64>> =
        serde_json::from_value(map(&nodes[0])["vBucketServerMap"]["vBucketMap"].clone()).unwrap();
    assert!(chains.iter().all(|chain| chain.iter().sum::<i64>() == 1), "a copy on each of two");

    let (asked, other) = (&nodes[1], &nodes[0]);
    ask(asked, &format!("CREATE INDEX by_n ON {BUCKET}(n)"));
    let values: Vec<String> = (0..300).map(|n| format!("VALUES ('k{n}', {{'n': {n}}})")).collect();
    ask(asked, &format!("UPSERT INTO {BUCKET} (KEY, VALUE) {}", values.join(", ")));
    let statement = format!("SELECT RAW n FROM {BUCKET} WHERE n BETWEEN 7 AND 9 ORDER BY n");
    assert_eq!(ask(asked, &statement), json!([7, 8, 9]));
    // Partitions are on the nodes with `index`, with or without data.
    ask(asked, &format!("CREATE INDEX spread ON {BUCKET}(n) PARTITION BY HASH(n)"));
    let told = other.json("/getIndexStatus");
    let hosts = |name: &str| {
        let all = told["status"].as_array().unwrap();
        all.iter().find(|index| index["name"] == name).unwrap()["hosts"].as_array().unwrap().len()
    };
    assert_eq!((hosts("by_n"), hosts("spread")), (2, 2), "{told}");
    let spread = statement.replace(BUCKET, &format!("{BUCKET} USE INDEX (spread)"));
    assert_eq!(ask(asked, &spread), json!([7, 8, 9]));
    let has_state = |node: &Node| {
        let (_, metrics) = node.ask("GET", "/metrics", "");
        metrics.contains(r#"nacre_plugin_running{deployment="index spread on"#)
    };
    assert_eq!(nodes.each_ref().map(has_state), [false, true, true]);
    let pool = other.json("/pools/default");
    let listed = pool["nodes"].as_array().unwrap().iter().map(|node| node["services"].clone());
    let expected =
        [json!(["kv", "eventing", "index"]), json!(["n1ql", "index"]), json!(["kv", "index"])];
    assert_eq!(listed.collect::<Vec<_>>(), expected);

    // A node's answer may change while it runs.
    let otp = |n: usize| format!("ns_1%40{}", nodes[n].address());
    let all = format!("{},{},{}", otp(0), otp(1), otp(2));
    let rebalance = |topology: &str| {
        nodes[0].ask("POST", "/controller/rebalance", &format!("knownNodes={all}&{topology}"))
    };
    let (status, text) = rebalance(&format!(
        "topology[n1ql]={},{}&topology[eventing]=&topology[fts]=&topology[cbas]=&topology[backup]=",
        otp(1),
        otp(2)
    ));
    assert_eq!(status, 200, "{text}");
    nodes[0].wait_until("the rebalance", |node| !is_rebalancing(node));
    let expected = [
        (ports(0), data.clone()),
        (ports(2), named(&["kv", "capi", "n1ql", "indexHttp"])),
        (ports(1), query.clone()),
    ];
    assert_eq!(services(&map(&nodes[0])), expected);
    for (wrong, words) in [
        (format!("topology[n1ql]={0}&topology[index]={0}", otp(2)), "left without a service"),
        ("topology[kv]=".to_owned(), "Only n1ql, eventing, index, backup, cbas and fts"),
        (format!("topology[mail]={}", otp(2)), "Only n1ql, eventing, index, backup, cbas and fts"),
        ("topology[n1ql]=ns_1%40nobody:1".to_owned(), "Unknown server"),
        (format!("ejectedNodes={},{}", otp(0), otp(2)), "nodes with kv"),
    ] {
        let (status, text) = rebalance(&wrong);
        assert!(status == 400 && text.contains(words), "{wrong}: {status} {text}");
    }
    let (status, text) = nodes[2].ask("POST", "/node/controller/setupServices", "services=n1ql");
    assert!(status == 400 && text.contains("after cluster is provisioned"), "{status} {text}");
    let (status, text) = nodes[2].ask("POST", "/node/controller/setupServices", "services=mail");
    assert!(status == 400 && text.contains("Unknown services"), "{status} {text}");

    // Without it clients ask somebody else.
    nodes[0].succeed("POST", "/settings/autoFailover", "enabled=true&timeout=1&maxCount=1");
    nodes[1].kill();
    nodes[0]
        .wait_until("the failover", |node| map(node)["nodesExt"].as_array().unwrap().len() == 2);
    assert_eq!(ask(&nodes[2], &statement), json!([7, 8, 9]));
}

#[test]
fn copies_are_in_different_groups() {
    let nodes = [Node::start(), Node::start(), Node::start(), Node::start()];
    let first = &nodes[0];
    first.succeed("POST", GROUPS, "name=rack+2");
    let groups = || first.json(GROUPS);
    let uri = groups()["groups"]
        .as_array()
        .unwrap()
        .iter()
        .find(|group| group["name"] == "rack 2")
        .map(|group| group["uri"].as_str().unwrap().to_owned())
        .unwrap();
    add_at(first, "/controller", &nodes[1], "kv");
    add_at(first, &uri, &nodes[2], "kv,n1ql");
    add_at(first, &uri, &nodes[3], "kv");
    spread(&nodes, 1);
    let map = map(first);
    let names = map["nodesExt"].as_array().unwrap().iter().map(|node| &node["serverGroup"]);
    assert_eq!(names.collect::<Vec<_>>(), ["Group 1", "Group 1", "rack 2", "rack 2"]);
    let chains: Vec<Vec<i64>> =
        serde_json::from_value(map["vBucketServerMap"]["vBucketMap"].clone()).unwrap();
    let is_apart = |chain: &Vec<i64>| (chain[0] < 2) != (chain[1] < 2);
    assert!(chains.iter().all(is_apart), "a group holds all documents");

    // A node is moved by a body that has all of them.
    let mut wanted = groups();
    let path = wanted["uri"].as_str().unwrap().to_owned();
    let inside = wanted["groups"].as_array_mut().unwrap();
    let at = |name: &str, groups: &[Value]| groups.iter().position(|g| g["name"] == name).unwrap();
    let (one, two) = (at("Group 1", inside), at("rack 2", inside));
    let moved = inside[two]["nodes"].as_array_mut().unwrap().pop().unwrap();
    inside[one]["nodes"].as_array_mut().unwrap().push(moved);
    first.succeed("PUT", &path, &wanted.to_string());
    assert_eq!(
        groups()["groups"][at("Group 1", groups()["groups"].as_array().unwrap())]["nodes"]
            .as_array()
            .unwrap()
            .len(),
        3
    );
    let (status, text) = first.ask("PUT", &path, &wanted.to_string());
    assert_eq!(status, 409, "somebody has changed them since: {text}");
    let now = groups()["uri"].as_str().unwrap().to_owned();
    inside_is_refused(first, &now, &json!({"groups": []}), "have to be named");
    inside_is_refused(first, &now, &json!({"groups": [{"uri": "/x", "nodes": []}]}), "no group");
    inside_is_refused(first, &now, &json!([]), "cannot be read");

    first.succeed("PUT", &uri, "name=cellar");
    assert_eq!(first.json("/pools/default")["nodes"][2]["serverGroup"], "cellar");
    for (method, path, form, status) in [
        ("POST", GROUPS, "name=cellar", 400),
        ("POST", GROUPS, "", 400),
        ("DELETE", uri.as_str(), "", 400),
        ("DELETE", "/pools/default/serverGroups/none", "", 404),
        ("PUT", "/pools/default/serverGroups/none", "name=a", 404),
    ] {
        let (answered, text) = first.ask(method, path, form);
        assert_eq!(answered, status, "{method} {path} {form}: {text}");
    }
    first.succeed("POST", GROUPS, "name=empty");
    let empty = groups();
    let empty = empty["groups"].as_array().unwrap().iter().find(|g| g["name"] == "empty").unwrap();
    first.succeed("DELETE", empty["uri"].as_str().unwrap(), "");
}

fn inside_is_refused(node: &Node, path: &str, body: &Value, words: &str) {
    let (status, text) = node.ask("PUT", path, &body.to_string());
    assert!(status == 400 && text.contains(words), "{body}: {status} {text}");
}
