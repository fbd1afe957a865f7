//! Several nodes: real processes on this machine that agree, lose each other, and find each other again.

use crate::impostor::{self, Key, MANAGEMENT, newcomer};
use crate::plugins;
use crate::process::{BUCKET, PASSWORD, Server, USER, port_base};
use nacre_conformance::http;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a node may take to catch up with the others.
const PATIENCE: Duration = Duration::from_secs(90);
/// Version in the description of nodes that can join, as in `cluster::membership`.
pub const VERSION: u64 = 22;

/// A node with its data directory, to be stopped and started again.
pub struct Node {
    server: Option<Server>,
    directory: TempDir,
    pub port_base: u16,
}

impl Node {
    pub fn start() -> Node {
        Node::started(Server::start_empty)
    }

    /// Starts one that has compiled no plugin yet, which takes it seconds.
    pub fn start_cold() -> Node {
        Node::started(Server::start_cold)
    }

    fn started(start: fn(&Path, u16) -> Server) -> Node {
        let (directory, port_base) = (tempfile::tempdir().unwrap(), port_base());
        let server = Some(start(directory.path(), port_base));
        Node { server, directory, port_base }
    }

    pub fn kill(&mut self) {
        self.server.take().unwrap().kill();
    }

    /// Loses all of its data, while it is not up.
    pub fn forget(&mut self) {
        self.directory = tempfile::tempdir().unwrap();
    }

    pub fn data_dir(&self) -> &Path {
        self.directory.path()
    }

    pub fn restart(&mut self) {
        self.server = Some(Server::start_empty(self.directory.path(), self.port_base));
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port_base)
    }

    pub fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    pub fn ask(&self, method: &str, path: &str, form: &str) -> (u16, String) {
        let answer = self.server().rest(method, path, form).unwrap();
        (answer.status, answer.text())
    }

    pub fn json(&self, path: &str) -> Value {
        serde_json::from_str(&self.ask("GET", path, "").1).unwrap()
    }

    pub fn succeed(&self, method: &str, path: &str, form: &str) {
        let (status, text) = self.ask(method, path, form);
        assert!((200..300).contains(&status), "{method} {path} {form}: {status} {text}");
    }

    pub fn add(&self, other: &Node) -> (u16, String) {
        let form = format!("hostname={}&user={USER}&password={PASSWORD}", other.address());
        self.ask("POST", "/controller/addNode", &form)
    }

    /// Waits until the node answers as wanted.
    pub fn wait_until(&self, what: &str, holds: impl Fn(&Node) -> bool) {
        let begun = Instant::now();
        while !holds(self) {
            assert!(begun.elapsed() < PATIENCE, "still waiting for {what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn has_bucket(&self, name: &str) -> bool {
        self.ask("GET", &format!("/pools/default/buckets/{name}"), "").0 == 200
    }

    fn has_user(&self, name: &str) -> bool {
        self.ask("GET", &format!("/settings/rbac/users/local/{name}"), "").0 == 200
    }

    fn node_count(&self) -> usize {
        self.json("/pools/default")["nodes"].as_array().unwrap().len()
    }
}

/// Three nodes, of which the first has its part of the buckets.
pub fn three() -> [Node; 3] {
    let nodes = [Node::start(), Node::start(), Node::start()];
    for other in &nodes[1..] {
        let (status, text) = nodes[0].add(other);
        assert_eq!(status, 200, "{text}");
        assert!(text.contains(&format!("ns_1@{}", other.address())), "{text}");
    }
    nodes
}

#[test]
fn nodes_with_ipv6_addresses_are_named_added_and_joined() {
    let [first, second, third] = [0; 3].map(|_| Node::started(Server::start_at_all_addresses));
    let name_of = |node: &Node| format!("[::1]:{}", node.port_base);
    let login = format!("user={USER}&password={PASSWORD}");
    let (status, text) = first.ask("POST", "/node/controller/rename", "hostname=%5B%3A%3A%5D");
    assert_eq!(status, 400, "{text}");
    first.succeed("POST", "/node/controller/rename", "hostname=%5B%3A%3A1%5D");
    let form = format!("hostname=%5B%3A%3A1%5D%3A{}&{login}", second.port_base);
    let (status, text) = first.ask("POST", "/controller/addNode", &form);
    assert_eq!(status, 200, "{text}");
    assert!(text.contains(&format!("ns_1@{}", name_of(&second))), "{text}");
    let form = format!("clusterMemberHostIp=%3A%3A1&clusterMemberPort={}&{login}", first.port_base);
    third.succeed("POST", "/node/controller/doJoinCluster", &form);
    second.succeed("POST", "/pools/default/buckets", "name=b&ramQuotaMB=100");
    third.wait_until("the bucket", |node| node.has_bucket("b"));
    let listed = first.json("/pools/default");
    for node in [&first, &second, &third] {
        let mut known = listed["nodes"].as_array().unwrap().iter();
        assert!(known.any(|known| known["hostname"] == name_of(node)), "{listed}");
        let (address, login) = (name_of(node), Some((USER, PASSWORD)));
        let path = "/pools/default/buckets/b";
        node.wait_until("an answer over IPv6", |_| {
            http::request(&address, "GET", path, login, "", b"").unwrap().status == 200
        });
    }
    let described = first.json("/pools/default/buckets/b");
    let servers = &described["vBucketServerMap"]["serverList"];
    assert!(servers[0].as_str().unwrap().starts_with("[::1]:"), "{servers}");
}

#[test]
fn a_change_on_any_node_is_visible_on_all() {
    let nodes = three();
    nodes[1].succeed("POST", "/pools/default/buckets", "name=b&ramQuotaMB=100");
    nodes[2].succeed("PUT", "/settings/rbac/users/local/ann", "password=secret1&roles=admin");
    nodes[2].succeed("POST", "/settings/passwordPolicy", "minLength=9");
    nodes[0].wait_until("the bucket", |node| node.has_bucket("b"));
    nodes[0].succeed("POST", "/pools/default/buckets/b/scopes", "name=s");
    let (status, text) = nodes[0].ask("POST", "/pools/default/buckets", "name=b&ramQuotaMB=100");
    assert_eq!(status, 400, "a refusal is the same everywhere: {text}");
    for node in &nodes {
        node.wait_until("all of it", |node| {
            let scopes = node.ask("GET", "/pools/default/buckets/b/scopes", "").1;
            let policy = node.ask("GET", "/settings/passwordPolicy", "").1;
            scopes.contains(r#""name":"s""#)
                && node.has_user("ann")
                && policy.contains(r#""minLength":9"#)
        });
        let seen = node.json("/pools/default");
        let own: Vec<&Value> = seen["nodes"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|seen| seen["thisNode"] == true)
            .collect();
        assert_eq!(own.len(), 1);
        assert_eq!(own[0]["hostname"], node.address());
        let map = node.json("/pools/default/nodeServices");
        let known = map["nodesExt"].as_array().unwrap();
        // The others have no share yet: clients have nothing to seek there.
        assert_eq!((known.len(), &known[0]["hostname"]), (1, &"127.0.0.1".into()), "{map}");
        assert_eq!(known[0]["serverGroup"], "Group 1", "{map}");
        node.wait_until("everybody to be healthy", |node| {
            let seen = node.json("/pools/nodes");
            seen["nodes"].as_array().unwrap().iter().all(|node| node["status"] == "healthy")
        });
    }
    let memberships = nodes[0].json("/pools/default")["nodes"].clone();
    assert_eq!(memberships[0]["clusterMembership"], "active");
    assert_eq!(memberships[1]["clusterMembership"], "inactiveAdded");
}

/// SDKs ask one node after the other, and assume that the next one knows the decisions of the last.
#[test]
fn each_node_knows_earlier_requests_to_other_nodes() {
    let nodes = three();
    nodes[1].succeed("POST", "/pools/default/buckets", "name=b&ramQuotaMB=100");
    for round in 0..12 {
        let (told, asked) = (&nodes[round % 3], &nodes[(round + 1) % 3]);
        let quota = 101 + round;
        let bucket = "/pools/default/buckets/b";
        told.succeed("POST", bucket, &format!("ramQuotaMB={quota}"));
        assert_eq!(asked.json(bucket)["quota"]["rawRAM"], quota << 20, "{round}");
        let user = format!("/settings/rbac/users/local/u{round}");
        told.succeed("PUT", &user, "password=secret1&roles=admin");
        assert_eq!(asked.ask("GET", &user, "").0, 200, "{round}");
        told.succeed("POST", &format!("{bucket}/scopes"), &format!("name=s{round}"));
        let scope = format!("{bucket}/scopes/s{round}");
        asked.succeed("POST", &format!("{scope}/collections"), "name=c");
        told.succeed("DELETE", &scope, "");
    }
}

#[test]
fn changes_continue_without_the_leader_and_it_catches_up_with_a_snapshot() {
    let mut nodes = three();
    // The first node leads: it is the one that was there.
    nodes[0].kill();
    let begun = Instant::now();
    nodes[1].wait_until("another leader", |node| {
        node.ask("PUT", "/settings/rbac/users/local/ann", "password=secret1&roles=admin").0 == 200
    });
    eprintln!("a change went through {} ms after the kill", begun.elapsed().as_millis());
    nodes[2].wait_until("the user", |node| node.has_user("ann"));
    nodes[2].wait_until("the loss to be seen", |node| {
        node.json("/pools/default")["nodes"][0]["status"] == "unhealthy"
    });
    // More entries than are kept: the node is given a snapshot.
    for round in 0..350 {
        let length = format!("minLength={}", 1 + round % 5);
        nodes[1].succeed("POST", "/settings/passwordPolicy", &length);
    }
    nodes[1].succeed("POST", "/pools/default/buckets", "name=b&ramQuotaMB=100");
    nodes[0].restart();
    nodes[0].wait_until("the state", |node| {
        node.has_bucket("b")
            && node.has_user("ann")
            && node.json("/settings/passwordPolicy")["minLength"] == 5
    });
    nodes[0].succeed("DELETE", "/settings/rbac/users/local/ann", "");
    nodes[2].wait_until("the user to be gone", |node| !node.has_user("ann"));
}

#[test]
fn a_node_joins_late_gets_everything_and_is_clean_when_it_was_removed() {
    let first = Node::start();
    first.succeed("POST", "/pools/default/buckets", "name=b&ramQuotaMB=100");
    first.succeed("POST", "/pools/default/buckets/b/scopes", "name=s");
    first.succeed("PUT", "/settings/rbac/users/local/ann", "password=secret1&roles=admin");
    let uuid = first.json("/pools")["uuid"].clone();

    let mut late = Node::start();
    late.succeed("PUT", "/settings/rbac/users/local/own", "password=secret1&roles=admin");
    let form = format!(
        "clusterMemberHostIp=127.0.0.1&clusterMemberPort={}&user={USER}&password={PASSWORD}",
        first.port_base
    );
    late.succeed("POST", "/node/controller/doJoinCluster", &form);
    late.wait_until("the state", |node| node.has_bucket("b") && node.has_user("ann"));
    assert!(!late.has_user("own"), "it has given up its own users");
    assert_eq!(late.json("/pools")["uuid"], uuid);
    assert_eq!((first.node_count(), late.node_count()), (2, 2));

    // It may come back at another address, and the other node finds it again.
    late.server.take().unwrap().stop();
    late.port_base = port_base();
    late.restart();
    let moved = late.address();
    first.wait_until("the other one's new address", |node| {
        let seen = node.json("/pools/default");
        seen["nodes"].as_array().unwrap().iter().any(|node| node["hostname"] == moved)
    });

    let otp = format!("otpNode=ns_1@{}", late.address());
    first.wait_until("a leader", |node| node.ask("POST", "/controller/ejectNode", &otp).0 == 200);
    late.wait_until("the removal", |node| {
        node.server
            .as_ref()
            .unwrap()
            .rest("GET", "/pools", "")
            .is_ok_and(|answer| answer.status == 200 && answer.json().unwrap()["uuid"] != uuid)
    });
    late.wait_until("an administrator", |node| node.ask("GET", "/pools/default", "").0 == 200);
    assert!(!late.has_bucket("b") && !late.has_user("ann"));
    assert_eq!((first.node_count(), late.node_count()), (1, 1));
    first.succeed("POST", "/pools/default/buckets/b/scopes", "name=t");
    let (status, text) = first.add(&late);
    assert_eq!(status, 200, "it may join again: {text}");
    late.wait_until("the state", |node| node.has_bucket("b"));
}

/// The first state of a newcomer is from when there was the first node alone: it must not disturb the leader.
#[test]
fn a_node_joins_although_the_first_one_does_not_lead() {
    let mut nodes = three();
    nodes[0].kill();
    let newcomer = Node::start();
    nodes[1].wait_until("it to join", |node| node.add(&newcomer).0 == 200);
    newcomer.wait_until("it to know the others", |newcomer| newcomer.node_count() == 4);
}

#[test]
fn the_leader_can_remove_itself_and_starts_as_a_new_node() {
    let nodes = three();
    let uuid = nodes[0].json("/pools")["uuid"].clone();
    let own = format!("otpNode=ns_1@{}", nodes[0].address());
    nodes[0].succeed("POST", "/controller/ejectNode", &own);
    nodes[0].wait_until("an administrator", |node| {
        let (status, text) = node.ask("GET", "/pools", "");
        status == 200 && !text.contains(uuid.as_str().unwrap()) && node.node_count() == 1
    });
    nodes[1].wait_until("another leader", |node| {
        node.ask("POST", "/pools/default/buckets", "name=b&ramQuotaMB=100").0 == 202
    });
    nodes[2].wait_until("the bucket", |node| node.has_bucket("b") && node.node_count() == 2);
    assert!(!nodes[0].has_bucket("b"));
    nodes[0].succeed("POST", "/pools/default/buckets", "name=own&ramQuotaMB=100");
}

#[test]
fn a_node_receives_a_missing_package_from_another() {
    let (first, late) = (Node::start(), Node::start());
    first.succeed("POST", "/pools/default/buckets", &format!("name={BUCKET}&ramQuotaMB=100"));
    let server = first.server.as_ref().unwrap();
    let (status, text) = plugins::upload(server, "1", "");
    assert_eq!(status, 201, "{text}");
    assert_eq!(first.add(&late).0, 200);
    let (status, text) = plugins::deploy(server, "1", plugins::CONFIG);
    assert_eq!(status, 200, "{text}");
    late.wait_until("the deployment", |node| {
        let (status, text) = node.ask("GET", "/deployments/sums", "");
        status == 200 && text.contains(r#""state":"running""#)
    });
}

/// Answers each request as a node that cannot join would, until the test ends.
fn stranger(answer: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close";
            let _ = write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{answer}", answer.len());
        }
    });
    port
}

#[test]
fn a_node_that_cannot_join_is_refused_with_a_reason_and_nothing_changes() {
    let first = Node::start();
    let other = Node::start();
    let full = Node::start();
    full.succeed("POST", "/pools/default/buckets", "name=b&ramQuotaMB=100");
    let [elsewhere, member] = [Node::start(), Node::start()];
    assert_eq!(elsewhere.add(&member).0, 200);
    let odd = stranger("[]");
    let (newer, _) = newcomer(Key::new(), 99, |candidate| candidate);
    let (fast, _) = newcomer(Key::new(), VERSION, |mut candidate| {
        let now_s = candidate["unix_seconds"].as_u64().unwrap();
        candidate["unix_seconds"] = (now_s + 365 * 24 * 3600).into();
        candidate
    });
    let silent = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let form = |port: u16, password: &str| {
        format!("hostname=127.0.0.1:{port}&user={USER}&password={password}")
    };
    for (form, words) in [
        (form(other.port_base, "wrong-password"), "Verify username and password"),
        (form(first.port_base, PASSWORD), "to itself is not allowed"),
        (form(full.port_base, PASSWORD), "has buckets"),
        (form(member.port_base, PASSWORD), "part of another cluster"),
        (form(silent, PASSWORD), "Could not connect"),
        (form(newer, PASSWORD), "Incompatible version"),
        (form(odd, PASSWORD), "Incompatible version"),
        (form(fast, PASSWORD), "s ahead of this one's"),
        ("hostname=nowhere.invalid&user=a&password=b".into(), "Failed to resolve"),
        ("hostname=0.0.0.0&user=a&password=b".into(), "is not valid"),
        ("hostname=127.0.0.1:x&user=a&password=b".into(), "is not a port number"),
        ("hostname=127.0.0.1".into(), "user is missing"),
        (format!("{}&services=tea", form(other.port_base, PASSWORD)), "Unknown services"),
    ] {
        let begun = Instant::now();
        let (status, text) = first.ask("POST", "/controller/addNode", &form);
        assert_eq!(status, 400, "{form}: {text}");
        assert!(text.contains(words), "{form}: {text}");
        assert!(begun.elapsed().as_secs() < 60, "{form}");
    }
    assert_eq!((first.node_count(), other.node_count()), (1, 1));
    for gone in ["otpNode=ns_1@nowhere:1", "id=7"] {
        let (status, text) = first.ask("POST", "/controller/ejectNode", gone);
        assert_eq!((status, text.trim()), (400, "Server does not exist."));
    }
    assert_eq!(first.ask("POST", "/controller/ejectNode", "id=x").0, 400);
    let own = format!("otpNode=ns_1@{}", first.address());
    assert_eq!(first.ask("POST", "/controller/ejectNode", &own).0, 400);
    first.succeed("POST", "/pools/default/buckets", "name=b&ramQuotaMB=100");
}

#[test]
fn a_node_that_was_removed_while_unreachable_is_distinguished_from_members() {
    let mut nodes = three();
    let (status, text) = nodes[0].add(&nodes[1]);
    assert!(status == 400 && text.contains("already part of cluster"), "{status} {text}");
    nodes[2].kill();
    let otp = format!("otpNode=ns_1@{}", nodes[2].address());
    nodes[0].succeed("POST", "/controller/ejectNode", &otp);
    nodes[2].restart();
    let (status, text) = nodes[0].add(&nodes[2]);
    assert!(status == 400 && text.contains("was removed from this cluster"), "{status} {text}");
}

#[test]
fn a_new_node_under_the_name_of_a_removed_one_is_not_mistaken_for_it() {
    let mut nodes = three();
    nodes[2].kill();
    nodes[2].forget();
    nodes[2].restart();
    nodes[0].wait_until("a leader", |node| node.add(&nodes[2]).0 != 503);
    let (status, text) = nodes[0].add(&nodes[2]);
    assert!(status == 400 && text.contains("already part of cluster"), "{status} {text}");
    let otp = format!("otpNode=ns_1@{}", nodes[2].address());
    nodes[0].succeed("POST", "/controller/ejectNode", &otp);
    let (status, text) = nodes[0].add(&nodes[2]);
    assert_eq!(status, 200, "as a new one it may join: {text}");
}

#[test]
fn a_node_that_was_removed_while_unreachable_is_not_admitted_again() {
    let mut nodes = three();
    nodes[2].kill();
    let otp = format!("otpNode=ns_1@{}", nodes[2].address());
    nodes[0].succeed("POST", "/controller/ejectNode", &otp);
    nodes[2].restart();
    nodes[0].succeed("POST", "/pools/default/buckets", "name=b&ramQuotaMB=100");
    nodes[1].wait_until("the bucket", |node| node.has_bucket("b"));
    // It still counts itself as one of three, and cannot change anything.
    let (status, text) = nodes[2].ask("PUT", "/settings/rbac/users/local/x", "password=secret1");
    assert_eq!(status, 503, "{text}");
    assert!(!nodes[2].has_bucket("b") && !nodes[0].has_user("x"));
    assert_eq!(nodes[0].node_count(), 2);
}

#[test]
fn a_node_without_the_secret_of_the_cluster_is_refused() {
    let node = Node::start();
    let uuid = node.json("/pools")["uuid"].as_str().unwrap().to_owned();
    let (stranger, own) = (Key::new(), Key::of_node(node.data_dir()));
    let say = |key: &Key, line: &str, login: Option<(&str, &str)>| {
        let mut stream = key.connect(node.port_base + 11, MANAGEMENT).unwrap();
        impostor::ask(&mut *stream, line, login, "").unwrap().0
    };
    let logins = [Some((USER, PASSWORD)), Some(("@nacre", "")), Some(("@nacre", &uuid[..]))];
    // Not even its own key makes somebody another node.
    for key in [&stranger, &own] {
        for line in ["GET /_nacre/packages/0", "POST /controller/leave", "POST /controller/regroup"]
        {
            assert_eq!(say(key, line, None), 401, "{line}");
            for login in logins {
                assert_eq!(say(key, line, login), 403, "{line} {login:?}");
            }
        }
        for login in [None].into_iter().chain(logins) {
            assert_eq!(say(key, "GET /_nacre/link", login), 401, "{login:?}");
        }
        for line in ["GET /controller/engage", "POST /controller/engage"] {
            for login in [None, Some((USER, "wrong"))] {
                assert_eq!(say(key, line, login), 401, "{line} {login:?}");
            }
            assert_eq!(say(key, line, Some(("@nacre", "x"))), 403, "{line}");
        }
    }
    // No user may see, create, change or remove the user of the nodes.
    let path = "/settings/rbac/users/local/@nacre";
    assert_eq!(node.ask("GET", path, "").0, 404);
    assert_eq!(node.ask("DELETE", path, "").0, 404);
    let (status, text) = node.ask("PUT", path, "password=secret1&roles=admin");
    assert_eq!((status, text.contains("must not begin with @")), (400, true), "{text}");
    assert!(!node.ask("GET", "/settings/rbac/users", "").1.contains("@nacre"));
    let kv = nacre_conformance::kv::KvClient::connect(
        format!("127.0.0.1:{}", node.port_base + 10),
        "@nacre",
        "secret1",
        "b",
    );
    assert!(kv.is_err());
}
