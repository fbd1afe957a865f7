//! Copies of vBuckets on several real nodes: rebalance and failover under writes that must not be lost.

use crate::cluster::{Node, three};
use crate::process::{PASSWORD, USER};
use nacre_conformance::kv::{KvClient, Reply, Request};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const BUCKET: &str = "copies";
pub const OP_SET: u8 = 0x01;
pub const OP_GET: u8 = 0x00;
const OP_INCREMENT: u8 = 0x05;
/// Increment, initial value of a new counter, and no expiry.
const BY_ONE_FROM_ONE: [u8; 20] = [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
const NOT_MY_VBUCKET: u16 = 0x07;
const TEMPORARY_FAILURE: u16 = 0x86;
const DURABILITY_IMPOSSIBLE: u16 = 0xa1;
const COMMITTED_ANEW: u16 = 0xa4;
pub const WRITE_IN_PROGRESS: u16 = 0xa2;
pub const AMBIGUOUS: u16 = 0xa3;
/// How long an operation is tried again.
const PATIENCE: Duration = Duration::from_secs(60);

/// A client that goes where the map says.
pub struct SmartClient {
    bucket: &'static str,
    /// Management of the nodes, any of which has a map.
    nodes: Vec<u16>,
    map: Vec<Vec<i64>>,
    servers: Vec<String>,
    connections: BTreeMap<String, KvClient>,
}

impl SmartClient {
    pub fn new(nodes: &[Node], bucket: &'static str) -> SmartClient {
        let nodes = nodes.iter().map(|node| node.port_base).collect();
        let (map, servers, connections) = (Vec::new(), Vec::new(), BTreeMap::new());
        let mut client = SmartClient { bucket, nodes, map, servers, connections };
        client.refresh();
        client
    }

    /// Takes the newest map that any node has.
    fn refresh(&mut self) {
        let map_of = |port: &u16| -> Option<Value> {
            let path = format!("/pools/default/b/{}", self.bucket);
            let login = Some((USER, PASSWORD));
            let address = format!("127.0.0.1:{port}");
            let answer = nacre_conformance::http::request(&address, "GET", &path, login, "", b"");
            serde_json::from_str(&answer.ok()?.text()).ok()
        };
        let maps = self.nodes.iter().filter_map(map_of);
        let Some(map) = maps.max_by_key(|map| map["rev"].as_u64()) else { return };
        let map = &map["vBucketServerMap"];
        if map.is_object() {
            self.map = serde_json::from_value(map["vBucketMap"].clone()).unwrap();
            self.servers = serde_json::from_value(map["serverList"].clone()).unwrap();
        }
    }

    fn try_once(&mut self, key: &[u8], opcode: u8, level: u8, value: &[u8]) -> io::Result<Reply> {
        let vbid = nacre_conformance::kv::vbid(key, 1024);
        let place = usize::try_from(self.map[usize::from(vbid)][0]);
        let place = place.map_err(|_| io::Error::other("nobody serves it"))?;
        let server = self.servers[place].clone();
        if !self.connections.contains_key(&server) {
            let client = KvClient::connect(server.as_str(), USER, PASSWORD, self.bucket)?;
            self.connections.insert(server.clone(), client);
        }
        let client = self.connections.get_mut(&server).expect("it was just made");
        let request = Request {
            opcode,
            vbid,
            key: client.wire_key(0, key),
            framing: if level == 0 { Vec::new() } else { vec![0x11, level] },
            extras: match opcode {
                OP_SET => vec![0; 8],
                OP_INCREMENT => BY_ONE_FROM_ONE.to_vec(),
                _ => Vec::new(),
            },
            value: value.to_vec(),
            ..Request::default()
        };
        match client.call(&request) {
            Ok(reply) => Ok(reply),
            Err(error) => {
                self.connections.remove(&server);
                Err(error)
            }
        }
    }

    /// Tries until the answer is final: the status, and the value of a read.
    pub fn call(&mut self, key: &[u8], opcode: u8, level: u8, value: &[u8]) -> (u16, Vec<u8>) {
        let reply = self.reply(key, opcode, level, value);
        (reply.status, reply.value)
    }

    /// Tries until the answer is final.
    pub fn reply(&mut self, key: &[u8], opcode: u8, level: u8, value: &[u8]) -> Reply {
        let begun = Instant::now();
        loop {
            if let Ok(reply) = self.try_once(key, opcode, level, value) {
                match reply.status {
                    NOT_MY_VBUCKET | TEMPORARY_FAILURE | DURABILITY_IMPOSSIBLE | COMMITTED_ANEW => {
                    }
                    _ => return reply,
                }
            }
            assert!(begun.elapsed() < PATIENCE, "no answer for {:?}", String::from_utf8_lossy(key));
            std::thread::sleep(Duration::from_millis(5));
            self.refresh();
        }
    }
}

/// Acknowledged writes of each key.
#[derive(Default)]
struct Acknowledged(BTreeMap<Vec<u8>, Option<u64>>);

impl Acknowledged {
    /// Writes durably, one key after another, while `goes_on` says so. Returns the longest time that a write took.
    fn write_while(
        &mut self,
        client: &mut SmartClient,
        level: u8,
        mut goes_on: impl FnMut(u64) -> bool,
    ) -> Duration {
        let mut longest = Duration::ZERO;
        let mut round = 0;
        while goes_on(round) {
            round += 1;
            let key = format!("key-{}", round % 500).into_bytes();
            let begun = Instant::now();
            let (status, _) = client.call(&key, OP_SET, level, round.to_string().as_bytes());
            longest = longest.max(begun.elapsed());
            match status {
                0 => drop(self.0.insert(key, Some(round))),
                // Either value may be there.
                AMBIGUOUS => drop(self.0.insert(key, None)),
                other => panic!("a write was answered with {other:#x}"),
            }
        }
        longest
    }

    fn check(&self, client: &mut SmartClient) {
        for (key, round) in &self.0 {
            let (status, value) = client.call(key, OP_GET, 0, b"");
            let Some(round) = round else { continue };
            let value = String::from_utf8(value).unwrap();
            let key = String::from_utf8_lossy(key);
            assert_eq!((status, value), (0, round.to_string()), "{key} was acknowledged");
        }
    }
}

fn nodes_with_bucket(replicas: u8) -> [Node; 3] {
    let nodes = three();
    let form = format!("name={BUCKET}&ramQuotaMB=100&replicaNumber={replicas}");
    nodes[0].succeed("POST", "/pools/default/buckets", &form);
    nodes
}

/// Each has a copy of everything, and may be replaced once it is silent for a second.
fn nodes_with_three_copies() -> [Node; 3] {
    let nodes = nodes_with_bucket(2);
    nodes[0].succeed("POST", "/settings/autoFailover", "enabled=true&timeout=1&maxCount=1");
    rebalance(&nodes, &[]);
    nodes[0].wait_until("the rebalance", |node| !is_rebalancing(node));
    nodes
}

/// Begins a rebalance in which some of the nodes leave.
pub fn rebalance(nodes: &[Node], leaving: &[&Node]) {
    let pool = nodes[0].json("/pools/default");
    let known: Vec<&str> =
        pool["nodes"].as_array().unwrap().iter().filter_map(|n| n["otpNode"].as_str()).collect();
    let ejected: Vec<String> =
        leaving.iter().map(|node| format!("ns_1@{}", node.address())).collect();
    let form = format!("knownNodes={}&ejectedNodes={}", known.join(","), ejected.join(","));
    nodes[0].succeed("POST", "/controller/rebalance", &form.replace('@', "%40"));
}

pub fn is_rebalancing(node: &Node) -> bool {
    node.json("/pools/default/rebalanceProgress")["status"] != "none"
}

#[test]
fn writes_continue_while_a_rebalance_moves_the_copies() {
    let nodes = nodes_with_bucket(1);
    let mut client = SmartClient::new(&nodes, BUCKET);
    let mut acknowledged = Acknowledged::default();
    acknowledged.write_while(&mut client, 0, |round| round < 2000);
    rebalance(&nodes, &[]);
    acknowledged.write_while(&mut client, 1, |round| round < 500 || is_rebalancing(&nodes[0]));
    client.refresh();
    let mut share = [0; 3];
    client.map.iter().for_each(|chain| share[chain[0] as usize] += 1);
    assert!(share.iter().all(|count| (341..=342).contains(count)), "{share:?}");
    assert!(client.map.iter().all(|chain| chain[1] >= 0 && chain[1] != chain[0]));
    acknowledged.check(&mut client);
    // And back to two.
    rebalance(&nodes, &[&nodes[2]]);
    acknowledged.write_while(&mut client, 1, |round| round < 500 || is_rebalancing(&nodes[0]));
    nodes[0].wait_until("the node to leave", |node| {
        node.json("/pools/default")["nodes"].as_array().unwrap().len() == 2
    });
    client.refresh();
    acknowledged.check(&mut client);
}

#[test]
fn a_rebalance_whose_node_is_lost_reports_that_and_starts_again() {
    let mut nodes = nodes_with_bucket(1);
    nodes[0].succeed("POST", "/settings/autoFailover", "enabled=true&timeout=1&maxCount=1");
    let settings = "/settings/retryRebalance";
    assert_eq!(nodes[0].ask("POST", settings, "enabled=true&afterTimePeriod=4").0, 400);
    nodes[0].succeed("POST", settings, "enabled=true&afterTimePeriod=5&maxAttempts=1");
    let pending = |node: &Node| node.json("/pools/default/pendingRetryRebalance");
    assert_eq!(pending(&nodes[1])["retry_rebalance"], "not_pending");
    rebalance(&nodes, &[]);
    nodes[2].kill();
    nodes[0].wait_until("the rebalance fails", |node| !is_rebalancing(node));
    let said = nodes[0].json("/pools/default/rebalanceProgress")["errorMessage"].to_string();
    let lost = format!("{} was lost meanwhile. It starts again", nodes[2].address());
    assert!(said.contains(&lost), "{said}");
    let told = pending(&nodes[0]);
    assert_eq!(
        (&told["retry_rebalance"], &told["attempts_remaining"]),
        (&"pending".into(), &1.into())
    );
    let report = |node: &Node| {
        let id = &told["rebalance_id"];
        node.json(&format!("/logs/rebalanceReport?reportID={}", id.as_str().unwrap()))
    };
    assert!(report(&nodes[0])["completionMessage"].as_str().unwrap().contains(&lost));
    nodes[0].wait_until("it is begun again and comes to its end", |node| {
        report(node)["completionMessage"] == "Rebalance completed successfully."
    });
    let task = &nodes[0].json("/pools/default/tasks")[0];
    assert_eq!((&task["status"], &task["errorMessage"]), (&"notRunning".into(), &Value::Null));
    let client = SmartClient::new(&nodes[..2], BUCKET);
    let mut share = [0; 2];
    client.map.iter().for_each(|chain| share[chain[0] as usize] += 1);
    assert_eq!(share, [512; 2]);
    let id = told["rebalance_id"].as_str().unwrap();
    let cancelled = nodes[0].ask("POST", &format!("/controller/cancelRebalanceRetry/{id}"), "");
    assert_eq!(cancelled.0, 400, "nothing is pending");
}

#[test]
fn an_import_writes_each_document_where_it_is_served() {
    let nodes = nodes_with_bucket(1);
    rebalance(&nodes, &[]);
    nodes[0].wait_until("the rebalance", |node| !is_rebalancing(node));
    let file = nodes[0].data_dir().join("rows.json");
    let rows: String = (0..2000).map(|n| format!("{{\"n\":{n}}}\n")).collect();
    std::fs::write(&file, rows).unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_nacre"))
        .args(["import", "json", "--bucket", BUCKET, "--key", "row_%n%", "--quiet"])
        .args(["--user", USER, "--password", PASSWORD])
        .args(["--server", &format!("127.0.0.1:{}", nodes[1].port_base + 10)])
        .arg(&file)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let mut client = SmartClient::new(&nodes, BUCKET);
    for n in 0..2000 {
        let (status, value) = client.call(format!("row_{n}").as_bytes(), OP_GET, 0, b"");
        assert_eq!((status, value), (0, format!("{{\"n\":{n}}}").into_bytes()), "row_{n}");
    }
}

#[test]
fn a_node_that_is_killed_is_replaced_and_nothing_durable_is_lost() {
    let mut nodes = nodes_with_three_copies();
    let mut client = SmartClient::new(&nodes, BUCKET);
    let mut acknowledged = Acknowledged::default();
    acknowledged.write_while(&mut client, 1, |round| round < 1000);
    acknowledged.write_while(&mut client, 3, |round| round < 100);
    nodes[1].kill();
    let longest = acknowledged.write_while(&mut client, 1, |round| round < 1000);
    eprintln!("the longest write took {} ms", longest.as_millis());
    nodes[0].wait_until("the failover", |node| {
        node.json("/pools/default")["nodes"][1]["clusterMembership"] == "inactiveFailed"
    });
    acknowledged.check(&mut client);
    acknowledged.write_while(&mut client, 3, |round| round < 100);
    acknowledged.check(&mut client);
    // Clients see only nodes that serve: requests for a lost node are not sent to another one.
    assert_eq!(client.servers.len(), 2, "{:?}", client.servers);
    let map = nodes[0].json(&format!("/pools/default/b/{BUCKET}"));
    assert_eq!(map["nodesExt"].as_array().unwrap().len(), 2, "{map}");
    // It is lost for good: the rebalance that removes it needs nothing of it.
    rebalance(&nodes, &[]);
    acknowledged.write_while(&mut client, 1, |round| round < 100 || is_rebalancing(&nodes[0]));
    nodes[0].wait_until("it is no part of the cluster", |node| {
        node.json("/pools/default")["nodes"].as_array().unwrap().len() == 2
    });
    acknowledged.check(&mut client);
}

#[test]
fn no_number_is_handed_out_twice_although_the_node_of_the_counter_is_killed() {
    const KEY: &[u8] = b"counter";
    let mut nodes = nodes_with_three_copies();
    let client = SmartClient::new(&nodes, BUCKET);
    let chain = &client.map[usize::from(nacre_conformance::kv::vbid(KEY, 1024))];
    let server = client.servers[chain[0] as usize].clone();
    let serves = |node: &Node| server == format!("127.0.0.1:{}", node.port_base + 10);
    let place = nodes.iter().position(serves).unwrap();
    let (counted, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let count = |mut client: SmartClient| {
        let mut numbers = Vec::new();
        while !is_over.load(Ordering::Relaxed) {
            match client.call(KEY, OP_INCREMENT, 1, b"") {
                (0, number) => numbers.push(u64::from_be_bytes(number.try_into().unwrap())),
                (WRITE_IN_PROGRESS | AMBIGUOUS, _) => continue,
                (other, _) => panic!("counting was answered with {other:#x}"),
            }
            counted.fetch_add(1, Ordering::Relaxed);
        }
        numbers
    };
    let clients = [(); 4].map(|()| SmartClient::new(&nodes, BUCKET));
    let mut numbers = std::thread::scope(|scope| {
        let clients = clients.map(|client| scope.spawn(|| count(client)));
        let are_counted = |node: &Node, target| {
            node.wait_until("they count", |_| counted.load(Ordering::Relaxed) >= target);
        };
        let left = (place + 1) % 3;
        are_counted(&nodes[left], 200);
        nodes[place].kill();
        nodes[left].wait_until("the failover", |node| {
            node.json("/pools/default")["nodes"][place]["clusterMembership"] == "inactiveFailed"
        });
        are_counted(&nodes[left], counted.load(Ordering::Relaxed) + 200);
        is_over.store(true, Ordering::Relaxed);
        clients.map(|client| client.join().unwrap()).concat()
    });
    let all = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), all);
}

#[test]
fn remaining_nodes_continue_when_an_operator_requests_it() {
    let [first, second, third] = three();
    let fourth = Node::start();
    let form = format!("hostname={}&user={USER}&password={PASSWORD}", fourth.address());
    first.succeed("POST", "/controller/addNode", &form);
    let mut nodes = [first, second, third, fourth];
    let form = format!("name={BUCKET}&ramQuotaMB=100&replicaNumber=2");
    nodes[0].succeed("POST", "/pools/default/buckets", &form);
    rebalance(&nodes, &[]);
    nodes[0].wait_until("the copies are spread", |node| !is_rebalancing(node));
    let key = |number: u32| format!("key-{number}").into_bytes();
    let mut client = SmartClient::new(&nodes, BUCKET);
    for number in 0..200 {
        assert_eq!(client.call(&key(number), OP_SET, 3, b"1").0, 0);
    }
    let otp = |node: &Node| format!("otpNode=ns_1%40127.0.0.1:{}", node.port_base);
    let lost = format!("{}&{}", otp(&nodes[2]), otp(&nodes[3]));
    nodes[2].kill();
    nodes[3].kill();
    let is_silent = |node: &Node| {
        let pool = node.json("/pools/default");
        let healthy = pool["nodes"].as_array().unwrap().iter();
        healthy.filter(|node| node["status"] == "healthy").count() == 2
    };
    nodes[0].wait_until("two nodes are gone", is_silent);
    let (status, said) = nodes[0].ask("POST", "/controller/failOver", &lost);
    assert_eq!(
        (status, said.as_str()),
        (504, r#""Cannot safely perform a failover at the moment""#)
    );
    nodes[0].succeed("POST", "/controller/failOver", &format!("{lost}&allowUnsafe=true"));

    // Each document has a copy that is left, or two.
    let mut client = SmartClient::new(&nodes[..2], BUCKET);
    for number in 0..200 {
        assert_eq!(client.call(&key(number), OP_GET, 0, b""), (0, b"1".to_vec()), "{number}");
        assert_eq!(client.call(&key(number), OP_SET, 0, b"2").0, 0, "{number}");
    }
    let map = nodes[1].json(&format!("/pools/default/b/{BUCKET}"));
    assert_eq!(map["revEpoch"], 2, "clients take it for newer than what the others may have");

    // A node that comes back belongs to no cluster: no other node accepts it, and it serves nobody.
    nodes[2].restart();
    let kv = |node: &Node| ("127.0.0.1", node.port_base + 10);
    let mut stranger = KvClient::connect(kv(&nodes[2]), USER, PASSWORD, BUCKET).unwrap();
    for number in 0..50 {
        let reply = stranger.get(&key(number)).unwrap();
        assert!([NOT_MY_VBUCKET, TEMPORARY_FAILURE].contains(&reply.status), "{}", reply.status);
    }
    for node in [&nodes[2], &nodes[3]] {
        nodes[0].succeed("POST", "/controller/ejectNode", &otp(node));
    }
    rebalance(&nodes[..2], &[]);
    nodes[0].wait_until("the copies are spread again", |node| !is_rebalancing(node));
    let mut client = SmartClient::new(&nodes[..2], BUCKET);
    for number in 0..200 {
        assert_eq!(client.call(&key(number), OP_GET, 0, b""), (0, b"2".to_vec()), "{number}");
    }
}

#[test]
fn failover_and_rebalance_refuse_invalid_requests() {
    let nodes = nodes_with_bucket(1);
    let post = |path: &str, form: &str| nodes[0].ask("POST", path, &form.replace('@', "%40"));
    let name = |index: usize| format!("ns_1@{}", nodes[index].address());
    let (status, text) = post("/controller/failOver", "otpNode=ns_1@127.0.0.1:1");
    assert_eq!((status, text.as_str()), (400, "\"Unknown server given.\""));
    let (status, text) = post("/controller/failOver", &format!("otpNode={}", name(1)));
    assert_eq!((status, text.as_str()), (400, "\"Inactive server can't be failed over.\""));
    let (status, text) = post("/controller/failOver", &format!("otpNode={}", name(0)));
    assert_eq!((status, text.as_str()), (400, "\"Last server can't be failed over.\""));
    let (status, text) = post("/controller/rebalance", &format!("knownNodes={}", name(0)));
    assert_eq!((status, text.as_str()), (400, "{\"mismatch\":1}"), "there are others");
    assert_eq!(post("/controller/stopRebalance", "").0, 200, "nothing to stop is no error");
    let (status, text) = post("/controller/reAddNode", &format!("otpNode={}", name(1)));
    assert_eq!(status, 400, "{text}");
    for (kind, reason) in [("full", "was failed over"), ("partly", "either 'delta' or 'full'")] {
        let form = format!("otpNode={}&recoveryType={kind}", name(1));
        let (status, text) = post("/controller/setRecoveryType", &form);
        assert_eq!((status, text.contains(reason)), (400, true), "{text}");
    }
    let (status, text) = post("/settings/autoFailover", "enabled=true&timeout=0");
    assert_eq!(status, 400, "{text}");
    assert_eq!(nodes[1].json("/settings/autoFailover")["timeout"], 5, "nothing has changed");
}

#[test]
fn a_statement_waits_ten_seconds_for_a_copy_that_is_gone_and_not_for_ever() {
    let mut nodes = [Node::start(), Node::start()];
    assert_eq!(nodes[0].add(&nodes[1]).0, 200);
    let form = format!("name={BUCKET}&ramQuotaMB=100&replicaNumber=1&durabilityMinLevel=majority");
    nodes[0].succeed("POST", "/pools/default/buckets", &form);
    rebalance(&nodes, &[]);
    nodes[0].wait_until("the rebalance", |node| !is_rebalancing(node));
    let client = SmartClient::new(&nodes, BUCKET);
    let own = format!(":{}", nodes[0].port_base + 10);
    let is_own = |key: &String| {
        let vbid = nacre_conformance::kv::vbid(key.as_bytes(), 1024);
        client.servers[client.map[usize::from(vbid)][0] as usize].ends_with(&own)
    };
    let key = (0..).map(|n| format!("k{n}")).find(is_own).unwrap();
    nodes[1].kill();
    let body =
        format!(r#"{{"statement": "UPSERT INTO {BUCKET} (KEY, VALUE) VALUES ('{key}', 1)"}}"#);
    let begun = Instant::now();
    let answer = nodes[0].server().query(&body);
    assert_eq!(answer["errors"][0]["code"], 12009, "{answer}");
    assert!(answer.to_string().contains("not durable in time"), "{answer}");
    let waited = begun.elapsed().as_secs();
    assert!((10..30).contains(&waited), "{waited} s");
}

/// Both nodes of two were ordered to go on alone. Neither accepts the other any more, and the documents of both stay
/// until an operator decides for one.
#[test]
fn two_nodes_that_both_continued_alone_stay_separate() {
    let mut nodes = [Node::start(), Node::start()];
    assert_eq!(nodes[0].add(&nodes[1]).0, 200);
    let form = format!("name={BUCKET}&ramQuotaMB=100&replicaNumber=1");
    nodes[0].succeed("POST", "/pools/default/buckets", &form);
    rebalance(&nodes, &[]);
    nodes[0].wait_until("the rebalance", |node| !is_rebalancing(node));
    assert_eq!(SmartClient::new(&nodes, BUCKET).call(b"k", OP_SET, 1, b"both").0, 0);
    let otp = |node: &Node| format!("otpNode=ns_1%40{}", node.address());
    let others = [otp(&nodes[1]), otp(&nodes[0])];
    for (left, lost) in [(0, 1), (1, 0)] {
        if left == 1 {
            nodes[left].restart();
        }
        nodes[lost].kill();
        let form = format!("{}&allowUnsafe=true", others[left]);
        nodes[left].wait_until("it to go on", |node| {
            node.ask("POST", "/controller/failOver", &form).0 == 200
        });
        let mut client = SmartClient::new(&nodes[left..=left], BUCKET);
        assert_eq!(client.call(b"k", OP_SET, 0, format!("{left}").as_bytes()).0, 0);
    }
    nodes[0].restart();
    for (index, node) in nodes.iter().enumerate() {
        let mut client = SmartClient::new(&nodes[index..=index], BUCKET);
        let value = format!("{index}").into_bytes();
        assert_eq!(client.call(b"k", OP_GET, 0, b""), (0, value), "node {index}");
        let pool = node.json("/pools/default");
        let parts: Vec<&str> =
            (0..2).filter_map(|other| pool["nodes"][other]["clusterMembership"].as_str()).collect();
        assert_eq!(parts[index], "active", "{pool}");
        assert_eq!(parts[1 - index], "inactiveFailed", "{pool}");
        let (status, text) = node.add(&nodes[1 - index]);
        assert_eq!(status, 400, "{text}");
    }
    // An operator decides for the first one.
    nodes[0].succeed("POST", "/controller/ejectNode", &others[0]);
    nodes[1].kill();
    nodes[1].forget();
    nodes[1].restart();
    let (status, text) = nodes[0].add(&nodes[1]);
    assert_eq!(status, 200, "{text}");
    rebalance(&nodes, &[]);
    nodes[0].wait_until("the rebalance", |node| !is_rebalancing(node));
    assert_eq!(SmartClient::new(&nodes, BUCKET).call(b"k", OP_GET, 0, b""), (0, b"0".to_vec()));
}
