//! Replication between clusters: real nodes, of which some are killed, and the command that compares two buckets.

use crate::cluster::Node;
use crate::copies::{is_rebalancing, rebalance};
use crate::plugin_functions::upload;
use crate::plugins::ask;
use crate::process::{PASSWORD, USER};
use crate::xdcr_failures::unix_ns;
use nacre_client::{Bucket, Durability, Key, Login, Metadata, StoreOptions, Version};
use nacre_conformance::http;
use nacre_types::Vbid;
use serde_json::{Value, json};
use std::process::{Command, Output};
use std::time::Duration;

const BUCKETS: &str = "/pools/default/buckets";
pub const REFERENCES: &str = "/pools/default/remoteClusters";
pub const CREATE: &str = "/controller/createReplication";

pub fn make_bucket(node: &Node, name: &str, more: &str) {
    let form = format!("name={name}&ramQuotaMB=100&{more}");
    node.succeed("POST", BUCKETS, &form);
}

pub fn reference(name: &str, to: &Node) -> String {
    format!("name={name}&hostname={}&username={USER}&password={PASSWORD}", to.address())
}

pub fn replication(from: &str, cluster: &str, to: &str) -> String {
    format!("fromBucket={from}&toCluster={cluster}&toBucket={to}&replicationType=continuous")
}

pub fn client(node: &Node, bucket: &str) -> Bucket {
    let login = Login { user: USER.into(), password: PASSWORD.into(), bucket: bucket.into() };
    let mut client = Bucket::connect(&[node.server().kv_address()], None, login).unwrap();
    client.set_patience(Duration::from_secs(60));
    client
}

fn set(client: &mut Bucket, key: &str, body: &str) {
    client.set(Key::of_default(key.as_bytes()), body.as_bytes(), StoreOptions::default()).unwrap();
}

fn get(client: &mut Bucket, key: &str) -> Option<String> {
    let document = client.get(Key::of_default(key.as_bytes())).unwrap()?;
    Some(String::from_utf8(document.value).unwrap())
}

pub fn task(node: &Node) -> Value {
    let tasks = node.json("/pools/default/tasks");
    let mut tasks = tasks.as_array().unwrap().iter();
    tasks.find(|task| task["type"] == "xdcr").cloned().unwrap_or_default()
}

fn nacre(node: &Node, arguments: &[&str]) -> Output {
    let server = format!("http://{}", node.address());
    let login = ["--server", &server, "--user", USER, "--password", PASSWORD];
    let mut command = Command::new(env!("CARGO_BIN_EXE_nacre"));
    command.arg("xdcr").args(arguments).args(login).output().unwrap()
}

pub fn printed(node: &Node, arguments: &[&str]) -> String {
    let output = nacre(node, arguments);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

#[test]
fn a_bucket_follows_another_until_the_replication_is_deleted() {
    let node = Node::start();
    make_bucket(&node, "one", "numVBuckets=16");
    make_bucket(&node, "two", "numVBuckets=64");
    let (mut one, mut two) = (client(&node, "one"), client(&node, "two"));
    set(&mut one, "before", "1");
    node.succeed("POST", REFERENCES, &reference("self", &node));
    let (status, made) = node.ask("POST", CREATE, &replication("one", "self", "two"));
    assert_eq!(status, 200, "{made}");
    let id = serde_json::from_str::<Value>(&made).unwrap()["id"].as_str().unwrap().to_owned();
    assert!(id.ends_with("/one/two"), "{id}");
    let wait = |key: &str, body: Option<&str>, two: &mut Bucket| {
        let two = std::cell::RefCell::new(two);
        node.wait_until(key, |_| get(&mut two.borrow_mut(), key).as_deref() == body);
    };
    wait("before", Some("1"), &mut two);
    set(&mut one, "later", &format!("{:?}", "x".repeat(1000)));
    wait("later", Some(&format!("{:?}", "x".repeat(1000))), &mut two);
    one.delete(Key::of_default(b"before"), StoreOptions::default()).unwrap();
    wait("before", None, &mut two);
    let metadata =
        |client: &mut Bucket, key: &str| client.metadata(Key::of_default(key.as_bytes()));
    assert_eq!(metadata(&mut one, "later").unwrap(), metadata(&mut two, "later").unwrap());
    node.wait_until("nothing to be left", |node| task(node)["changesLeft"] == 0);
    assert_eq!(task(&node)["status"], "running");

    assert!(printed(&node, &["pause", "one"]).contains("paused one"));
    node.wait_until("it to rest", |node| task(node)["status"] == "paused");
    set(&mut one, "paused", "2");
    let differs = nacre(&node, &["diff", "one", "--wait", "0"]);
    assert!(!differs.status.success());
    let shown = String::from_utf8_lossy(&differs.stdout).into_owned();
    assert_eq!(shown, "_default._default paused: only at the source\n");
    printed(&node, &["resume", "one"]);
    wait("paused", Some("2"), &mut two);
    let equal = printed(&node, &["diff", "one"]);
    assert_eq!(equal, "3 documents and deletions are equal\n");
    node.wait_until("it to run", |node| printed(node, &["status"]).contains("running"));
    let metrics = node.ask("GET", "/metrics", "").1;
    for name in ["docs_received", "docs_processed", "docs_sent", "docs_failed_cr_target"] {
        assert!(metrics.contains(&format!("nacre_xdcr_{name}")), "{name}: {metrics}");
    }

    printed(&node, &["delete", &id]);
    assert_eq!(task(&node), Value::Null);
    set(&mut one, "deleted", "3");
    assert_eq!(get(&mut two, "deleted"), None);
    printed(&node, &["unlink", "self"]);
    assert_eq!(node.json(REFERENCES), json!([]));
}

/// Documents of all kinds, deletions, and a filter that is changed in both ways.
#[test]
fn a_filter_selects_the_replicated_documents() {
    let node = Node::start();
    make_bucket(&node, "one", "numVBuckets=16");
    make_bucket(&node, "two", "numVBuckets=16");
    let (mut one, mut two) = (client(&node, "one"), client(&node, "two"));
    for (key, body) in [
        ("airline_1", r#"{"country": "France", "n": 1}"#),
        ("airline_2", r#"{"country": "Spain", "n": 2}"#),
        ("array", "[1]"),
        ("text", "not json"),
        ("gone", r#"{"country": "France"}"#),
    ] {
        set(&mut one, key, body);
    }
    node.succeed("POST", REFERENCES, &reference("self", &node));
    let filtered = |expression: &str, more: &str| {
        format!("filterExpression={}&{more}", http::escape(expression))
    };
    let first = filtered(r#"country = "France" OR n > 5"#, "filterDeletion=true&filterBinary=true");
    let form = format!("{}&{first}", replication("one", "self", "two"));
    let (status, made) = node.ask("POST", CREATE, &form);
    assert_eq!(status, 200, "{made}");
    let id = serde_json::from_str::<Value>(&made).unwrap()["id"].as_str().unwrap().to_owned();
    let settings = format!("/settings/replications/{}", id.replace('/', "%2F"));
    let wait = |keys: &[&str], two: &mut Bucket| {
        let two = std::cell::RefCell::new(two);
        node.wait_until("the documents", |_| {
            keys.iter().all(|key| get(&mut two.borrow_mut(), key).is_some())
        });
        node.wait_until("nothing to be left", |node| task(node)["changesLeft"] == 0);
    };
    wait(&["airline_1", "gone"], &mut two);
    for key in ["airline_2", "array", "text"] {
        assert_eq!(get(&mut two, key), None, "{key}");
    }
    one.delete(Key::of_default(b"gone"), StoreOptions::default()).unwrap();
    set(&mut one, "later", r#"{"n": "6"}"#);
    wait(&["later"], &mut two);
    assert!(get(&mut two, "gone").is_some(), "deletions are left out");

    // Only later changes, then everything again.
    let spain = r#"country = "Spain""#;
    node.succeed("POST", &settings, &filtered(spain, "filterSkipRestream=true"));
    set(&mut one, "airline_3", r#"{"country": "Spain"}"#);
    wait(&["airline_3"], &mut two);
    assert_eq!(get(&mut two, "airline_2"), None, "earlier documents are not looked at again");
    let not_france = r#"NOT country = "France""#;
    node.succeed(
        "POST",
        &settings,
        &filtered(not_france, "filterSkipRestream=false&filterBinary=false"),
    );
    wait(&["airline_2", "text"], &mut two);
    assert_eq!(get(&mut two, "array"), None, "only objects have fields");
    assert!(get(&mut two, "airline_1").is_some(), "what does not match any more stays");

    // A regular expression without end counts against its document alone.
    let endless = r#"REGEXP_CONTAINS(META().id, "(?=(a+)+\\1+b)") OR META().id = "short""#;
    node.succeed("POST", &settings, &filtered(endless, "filterSkipRestream=true"));
    set(&mut one, &"a".repeat(200), "{}");
    set(&mut one, "short", "{}");
    wait(&["short"], &mut two);
    assert_eq!(get(&mut two, &"a".repeat(200)), None);
    node.wait_until("the error", |node| {
        task(node)["errors"].to_string().contains("the filter cannot be applied to")
    });
}

#[test]
fn two_clusters_that_write_and_lose_nodes_converge() {
    let mut nodes = [Node::start(), Node::start()];
    let mut other = Node::start();
    assert_eq!(nodes[0].add(&nodes[1]).0, 200);
    make_bucket(&nodes[0], "b", "numVBuckets=64&replicaNumber=0");
    rebalance(&nodes, &[]);
    nodes[0].wait_until("the rebalance", |node| !is_rebalancing(node));
    make_bucket(&other, "b", "numVBuckets=128");
    nodes[0].succeed("POST", REFERENCES, &reference("other", &other));
    other.succeed("POST", REFERENCES, &reference("first", &nodes[1]));
    nodes[1].succeed("POST", CREATE, &replication("b", "other", "b"));
    other.succeed("POST", CREATE, &replication("b", "first", "b"));
    let write = |client: &mut Bucket, side: &str, round: usize| {
        for number in 0..200 {
            set(client, &format!("{side}-{number}"), &format!("{round}"));
            // What both sides write.
            set(client, &format!("both-{}", number % 40), &format!("\"{side}-{round}-{number}\""));
        }
        let gone = format!("{side}-{}", round * 7);
        client.delete(Key::of_default(gone.as_bytes()), StoreOptions::default()).unwrap();
    };
    for round in 0..4 {
        // A node that was started again has closed the connections to it.
        let (mut here, mut there) = (client(&nodes[0], "b"), client(&other, "b"));
        std::thread::scope(|scope| {
            scope.spawn(|| write(&mut here, "here", round));
            write(&mut there, "there", round);
        });
        match round {
            // One that sends and receives, in the cluster of two.
            0 => {
                nodes[1].kill();
                nodes[1].restart();
            }
            1 => {
                other.kill();
                other.restart();
            }
            _ => {}
        }
    }
    for node in [&nodes[0], &other] {
        node.wait_until("nothing to be left", |node| task(node)["changesLeft"] == 0);
    }
    let equal = printed(&nodes[0], &["diff", "b"]);
    assert_eq!(equal, "440 documents and deletions are equal\n");
    let both = [client(&nodes[0], "b"), client(&other, "b")].map(|mut it| get(&mut it, "both-7"));
    assert!(both[0].is_some() && both[0] == both[1], "{both:?}");
}

/// Both keep the longer of two bodies, and record that they did: nobody asks again.
#[test]
fn resolvers_of_two_clusters_come_to_the_same_decision() {
    let nodes = [Node::start(), Node::start()];
    for node in &nodes {
        make_bucket(node, "b", "numVBuckets=16");
        node.succeed("POST", "/pools/default/buckets/b", "enableCrossClusterVersioning=true");
        let bucket = node.json("/pools/default/buckets/b");
        assert_eq!(bucket["enableCrossClusterVersioning"], true);
        assert_eq!(bucket["vbucketsMaxCas"].as_array().unwrap().len(), 16);
        assert_eq!(upload(node.server(), "resolver", "1", "").0, 201);
        let wanted = json!({"package": "resolver", "version": "1", "bucket": "b"}).to_string();
        let (status, told) =
            ask(node.server(), "PUT", "/deployments/longer", "", wanted.as_bytes());
        assert_eq!((status, &told["state"]), (200, &json!("running")), "{told}");
    }
    let off =
        nodes[0].ask("POST", "/pools/default/buckets/b", "enableCrossClusterVersioning=false");
    assert_eq!(off.0, 400, "{}", off.1);
    let mut clients = [client(&nodes[0], "b"), client(&nodes[1], "b")];
    for number in 0..20 {
        let key = format!("k{number}");
        set(&mut clients[number % 2], &key, "\"the longer one stays\"");
        set(&mut clients[(number + 1) % 2], &key, "\"short\"");
    }
    nodes[0].succeed("POST", REFERENCES, &reference("other", &nodes[1]));
    nodes[1].succeed("POST", REFERENCES, &reference("other", &nodes[0]));
    for node in &nodes {
        node.succeed("POST", CREATE, &replication("b", "other", "b"));
    }
    for node in &nodes {
        node.wait_until("nothing to be left", |node| {
            let task = task(node);
            task["changesLeft"] == 0 && task["docsWritten"].as_u64() > Some(0)
        });
    }
    assert_eq!(printed(&nodes[0], &["diff", "b"]), "20 documents and deletions are equal\n");
    for number in 0..20 {
        let key = format!("k{number}");
        for client in &mut clients {
            assert_eq!(get(client, &key).as_deref(), Some("\"the longer one stays\""), "{key}");
        }
    }
}

/// The resolver shows the facts that it receives as the merged body.
#[test]
fn a_resolver_receives_histories_and_the_common_ancestor_that_its_bucket_keeps() {
    let nodes = [Node::start(), Node::start()];
    for node in &nodes {
        let kept = "storageBackend=magma&historyRetentionSeconds=3600&replicaNumber=0";
        let form = format!("name=b&ramQuotaMB=256&numVBuckets=16&{kept}");
        node.succeed("POST", BUCKETS, &form);
        node.succeed("POST", "/pools/default/buckets/b", "enableCrossClusterVersioning=true");
        assert_eq!(upload(node.server(), "resolver", "1", "").0, 201);
        let wanted = json!({"package": "resolver", "version": "1", "bucket": "b"}).to_string();
        let (status, reply) =
            ask(node.server(), "PUT", "/deployments/facts", "", wanted.as_bytes());
        assert_eq!((status, &reply["state"]), (200, &json!("running")), "{reply}");
    }
    let [mut one, mut two] = [client(&nodes[0], "b"), client(&nodes[1], "b")];
    let first = one.set(Key::of_default(b"k"), b"\"first\"", StoreOptions::default()).unwrap();
    nodes[0].succeed("POST", REFERENCES, &reference("other", &nodes[1]));
    nodes[0].succeed("POST", CREATE, &replication("b", "other", "b"));
    nodes[0].wait_until("the first version", |node| task(node)["docsWritten"] == 1);
    printed(&nodes[0], &["pause", "b"]);
    nodes[0].wait_until("it to rest", |node| task(node)["status"] == "paused");
    set(&mut two, "k", "context");
    // The node knows the predecessors of stored versions. A durable write to the same vBucket is stored after them.
    let vbid = Vbid::of(b"k", 16);
    let mut names = (0..).map(|number| format!("other-{number}"));
    let neighbour = names.find(|name| Vbid::of(name.as_bytes(), 16) == vbid).unwrap();
    let durability = Some(Durability::PersistMajority);
    let durable = StoreOptions { durability, ..StoreOptions::default() };
    two.set(Key::of_default(neighbour.as_bytes()), b"1", durable).unwrap();
    set(&mut one, "k", "\"remote\"");
    printed(&nodes[0], &["resume", "b"]);

    let two = std::cell::RefCell::new(two);
    let facts = || serde_json::from_str::<Value>(&get(&mut two.borrow_mut(), "k").unwrap());
    nodes[1].wait_until("the decision", |_| facts().is_ok());
    let facts = facts().unwrap();
    assert_eq!(facts["keyspace"], "_default._default");
    assert_eq!(facts["base"], json!(["\"first\"", first.cas]));
    let here = facts["here"].as_str().unwrap();
    assert_eq!((here.len(), &facts["local"][0]), (22, &json!(here)));
    let there = &facts["remote"][0];
    assert_eq!(
        facts["local"][3],
        json!([[there, first.cas]]),
        "its version was written over the first"
    );
    assert!(there.is_string() && there != here, "{facts}");
}

/// Both buckets have versions with the same CAS, revision, flags and expiry, as of writes within one tick of two clocks: small
/// ones, which are sent at once, and large ones, which are looked up first.
#[test]
fn versions_of_the_same_time_end_with_the_same_value() {
    let node = Node::start();
    for name in ["one", "two"] {
        make_bucket(&node, name, "numVBuckets=16&conflictResolutionType=lww");
    }
    let mut clients = [client(&node, "one"), client(&node, "two")];
    let cas = 1_700_000_000_000_000_000 & !0xffff;
    for number in 0..10 {
        for (side, client) in clients.iter_mut().enumerate() {
            let letter = if number % 2 == side { "a" } else { "b" };
            let length = if number < 5 { 1 } else { 1000 };
            let (key, body) = (format!("k{number}"), format!("{:?}", letter.repeat(length)));
            let metadata = Metadata { is_deleted: false, flags: 1, expiry: 0, rev: 3, cas };
            let version = Version { metadata, datatype: 0, value: body.as_bytes(), by_time: true };
            client.set_version(Key::of_default(key.as_bytes()), version).unwrap();
        }
    }
    node.succeed("POST", REFERENCES, &reference("self", &node));
    node.succeed("POST", CREATE, &replication("one", "self", "two"));
    node.succeed("POST", CREATE, &replication("two", "self", "one"));
    let clients = std::cell::RefCell::new(clients);
    node.wait_until("the same values", |_| {
        let mut clients = clients.borrow_mut();
        (0..10).all(|number| {
            let key = format!("k{number}");
            let [one, two] = clients.each_mut().map(|client| get(client, &key).unwrap());
            one == two
        })
    });
    let mut clients = clients.into_inner();
    let letters = ["k0", "k1"].map(|key| get(&mut clients[0], key).unwrap());
    assert_eq!(letters[0], letters[1], "whichever bucket had it");
    node.wait_until("nothing to be left", |node| {
        let tasks = node.json("/pools/default/tasks");
        let mut tasks = tasks.as_array().unwrap().iter().filter(|task| task["type"] == "xdcr");
        tasks.all(|task| task["changesLeft"] == 0)
    });
    let equal = nacre(&node, &["diff", "one"]);
    assert!(equal.status.success(), "{}", String::from_utf8_lossy(&equal.stdout));
}

/// The documents of the collection for logs of a bucket, by their keys.
fn log_of(node: &Node, bucket: &str) -> Vec<(String, Value)> {
    let path = format!("{BUCKETS}/{bucket}/scopes/logs/collections/conflicts/docs");
    let listed = node.json(&format!("{path}?limit=100"));
    let rows = listed["rows"].as_array().unwrap_or_else(|| panic!("{listed}"));
    let whole = |row: &Value| {
        let id = row["id"].as_str().unwrap().to_owned();
        let text = node.json(&format!("{path}/{id}"))["json"].as_str().unwrap().to_owned();
        (id, serde_json::from_str(&text).unwrap())
    };
    rows.iter().map(whole).collect()
}

/// Both buckets have the same keys with other bodies before anything is replicated. The one with the later writes follows the other one.
#[test]
fn conflicts_are_logged_with_both_bodies() {
    let node = Node::start();
    for name in ["one", "two"] {
        make_bucket(&node, name, "numVBuckets=16&conflictResolutionType=lww");
        let path = format!("{BUCKETS}/{name}/scopes");
        node.succeed("POST", &path, "name=logs");
        node.succeed("POST", &format!("{path}/logs/collections"), "name=conflicts");
    }
    node.succeed("POST", REFERENCES, &reference("self", &node));
    let log = r#"&conflictLogging={"bucket":"one","collection":"logs.conflicts"}"#;
    let logged = format!("{}{log}", replication("one", "self", "two"));
    let (status, without) = node.ask("POST", CREATE, &logged);
    assert_eq!(status, 400, "{without}");
    assert!(without.to_string().contains("enableCrossClusterVersioning"), "{without}");
    for name in ["one", "two"] {
        node.succeed("POST", &format!("{BUCKETS}/{name}"), "enableCrossClusterVersioning=true");
    }
    let missing = logged.replace("logs.conflicts", "logs.others");
    let (status, missing) = node.ask("POST", CREATE, &missing);
    assert_eq!(status, 400, "{missing}");
    assert!(missing.to_string().contains("there is no collection one.logs.others"), "{missing}");

    let mut clients = [client(&node, "one"), client(&node, "two")];
    for number in 0..10 {
        // Whichever is later stays; both are logged.
        for side in [number % 2, 1 - number % 2] {
            let body = format!(r#"{{"side":{side},"number":{number}}}"#);
            set(&mut clients[side], &format!("k{number}"), &body);
        }
    }
    clients[1].delete(Key::of_default(b"k9"), StoreOptions::default()).unwrap();
    set(&mut clients[0], "alone", "1");
    node.succeed("POST", CREATE, &logged);
    node.wait_until("nothing to be left", |node| {
        let task = task(node);
        task["changesLeft"] == 0 && task["conflictsLogged"] == 10
    });
    assert_eq!(task(&node)["conflictsNotLogged"], 0, "{}", task(&node));
    let log = log_of(&node, "one");
    let of = |prefix: &str| {
        let found = log.iter().filter(|(key, _)| key.starts_with(prefix));
        found.cloned().collect::<std::collections::BTreeMap<String, Value>>()
    };
    let (records, sources, targets) = (of("crd_"), of("src_"), of("tgt_"));
    assert_eq!((records.len(), sources.len(), targets.len()), (10, 10, 9), "{log:?}");
    for record in records.values() {
        let key = record["docId"].as_str().unwrap();
        let number: u64 = key[1..].parse().unwrap();
        let body = |side: &str, bodies: &std::collections::BTreeMap<String, Value>| {
            record[side]["id"].as_str().map(|id| bodies[id].clone())
        };
        assert_eq!(body("srcDoc", &sources), Some(json!({"side": 0, "number": number})));
        let there = (number != 9).then(|| json!({"side": 1, "number": number}));
        assert_eq!(body("tgtDoc", &targets), there, "{record}");
        assert_eq!(record["tgtDoc"]["isDeleted"], number == 9);
        assert!(record["srcDoc"]["xattrs"]["_vv"]["ver"].is_string(), "{record}");
    }
    // Records stay in their cluster.
    assert_eq!(log_of(&node, "two"), []);

    // A replicator who may not write documents may not have them written either.
    node.succeed(
        "PUT",
        "/settings/rbac/users/local/rep",
        "password=secret1&roles=replication_admin",
    );
    let id = task(&node)["id"].as_str().unwrap().replace('/', "%2F");
    let set = |login: (&str, &str), form: &str| {
        let kind = "application/x-www-form-urlencoded";
        let path = format!("/settings/replications/{id}");
        http::request(&node.address(), "POST", &path, Some(login), kind, form.as_bytes()).unwrap()
    };
    let other = r#"conflictLogging={"bucket":"two","collection":"logs.conflicts"}"#;
    let refused = set(("rep", "secret1"), other);
    assert_eq!(refused.status, 400);
    assert!(
        refused.text().contains("you may not write to two.logs.conflicts"),
        "{}",
        refused.text()
    );
    assert_eq!(set((USER, PASSWORD), other).status, 200);
    assert_eq!(set(("rep", "secret1"), "filterDeletion=true").status, 200);
    printed(&node, &["set", "one", "--log-conflicts", "off"]);
    let known = node.json(&format!("/settings/replications/{id}"));
    assert_eq!(known["conflictLogging"], json!({}));
}

/// Two buckets that were filled with the same keys, each by itself: there is a conflict for each of them, and all are found at once.
#[test]
fn many_conflicts_at_once_are_all_logged() {
    let node = Node::start();
    for name in ["one", "two"] {
        make_bucket(&node, name, "numVBuckets=16&conflictResolutionType=lww");
        node.succeed("POST", &format!("{BUCKETS}/{name}"), "enableCrossClusterVersioning=true");
        let mut client = client(&node, name);
        (0..7000).for_each(|number| set(&mut client, &format!("k{number}"), &number.to_string()));
    }
    node.succeed("POST", REFERENCES, &reference("self", &node));
    let log = r#"&conflictLogging={"bucket":"one","collection":"_default._default"}"#;
    node.succeed("POST", CREATE, &format!("{}{log}", replication("one", "self", "two")));
    node.wait_until("all conflicts", |node| {
        let task = task(node);
        task["changesLeft"] == 0 && task["conflictsLogged"] == 7000
    });
    let shown = task(&node);
    assert_eq!(shown["conflictsNotLogged"], 0, "{shown}");
    let two = node.json(&format!("{BUCKETS}/two"));
    assert_eq!(two["basicStats"]["itemCount"], 7000, "records stay in their cluster");
}

/// The collection of the log is dropped: versions go on without a record, and that is said. Once it is there again, it is written to.
#[test]
fn a_missing_log_delays_nothing() {
    let node = Node::start();
    for name in ["one", "two"] {
        make_bucket(&node, name, "numVBuckets=16&conflictResolutionType=lww");
        node.succeed("POST", &format!("{BUCKETS}/{name}"), "enableCrossClusterVersioning=true");
    }
    let scopes = format!("{BUCKETS}/one/scopes");
    let make = |node: &Node| {
        node.succeed("POST", &scopes, "name=logs");
        node.succeed("POST", &format!("{scopes}/logs/collections"), "name=conflicts");
    };
    make(&node);
    node.succeed("POST", REFERENCES, &reference("self", &node));
    let log = r#"&conflictLogging={"bucket":"one","collection":"logs.conflicts"}"#;
    node.succeed("POST", CREATE, &format!("{}{log}", replication("one", "self", "two")));
    node.succeed("DELETE", &format!("{scopes}/logs"), "");
    let mut clients = [client(&node, "one"), client(&node, "two")];
    let mut conflict = |key: &str| {
        let id = Key::of_default(key.as_bytes());
        let earlier = clients[1].set(id, b"1", StoreOptions::default()).unwrap().cas;
        // Writes to two buckets within 65,536 ns may have the same CAS: then bodies are compared, and either may stay.
        node.wait_until("the next tick of CAS", |_| unix_ns() > earlier);
        set(&mut clients[0], key, "2");
        let two = std::cell::RefCell::new(&mut clients[1]);
        node.wait_until("the later version", |_| {
            get(&mut two.borrow_mut(), key).as_deref() == Some("2")
        });
    };
    ["a", "b", "c"].into_iter().for_each(&mut conflict);
    node.wait_until("the failures to be counted", |node| task(node)["conflictsNotLogged"] == 3);
    let shown = task(&node);
    assert_eq!(shown["conflictsLogged"], 0, "{shown}");
    let errors = shown["errors"].to_string();
    assert!(errors.contains("a conflict is not logged: one.logs.conflicts: "), "{errors}");
    make(&node);
    conflict("d");
    node.wait_until("a record", |node| task(node)["conflictsLogged"] == 1);
    assert_eq!(log_of(&node, "one").len(), 3);
}

/// 3 MiB, a second's worth of which is free at most.
#[test]
fn a_replication_sends_no_more_than_its_limit() {
    let node = Node::start();
    for name in ["one", "two"] {
        make_bucket(&node, name, "numVBuckets=16");
    }
    let mut one = client(&node, "one");
    let body = format!("{:?}", "x".repeat(10 << 10));
    (0..300).for_each(|number| set(&mut one, &format!("k{number}"), &body));
    node.succeed("POST", REFERENCES, &reference("self", &node));
    let limited = format!("{}&networkUsageLimit=1", replication("one", "self", "two"));
    #[allow(clippy::disallowed_methods, reason = "a limit is one on time")]
    let begun = std::time::Instant::now();
    node.succeed("POST", CREATE, &limited);
    node.wait_until("all documents", |node| task(node)["docsWritten"] == 300);
    assert!(begun.elapsed() > Duration::from_secs(2), "{:?}", begun.elapsed());
    printed(&node, &["set", "one", "--set", "networkUsageLimit=0"]);
    (0..300).for_each(|number| set(&mut one, &format!("l{number}"), &body));
    node.wait_until("the rest", |node| {
        let task = task(node);
        task["docsWritten"] == 600 && task["changesLeft"] == 0
    });
    let mut two = client(&node, "two");
    assert_eq!(get(&mut two, "k299"), Some(body.clone()));
    assert_eq!(get(&mut two, "l299"), Some(body));
}

/// It is told to go on while its vBuckets still ask the target how far it is, before they rest.
#[test]
fn a_replication_that_is_resumed_at_once_continues() {
    let node = Node::start();
    for name in ["one", "two"] {
        make_bucket(&node, name, "numVBuckets=16");
    }
    node.succeed("POST", REFERENCES, &reference("self", &node));
    node.succeed("POST", CREATE, &replication("one", "self", "two"));
    let settings = format!(
        "/settings/replications/{}",
        task(&node)["id"].as_str().unwrap().replace('/', "%2F")
    );
    let mut one = client(&node, "one");
    for round in 0..5 {
        let written = 20 * (round + 1);
        (0..20).for_each(|number| set(&mut one, &format!("{round}-{number}"), "1"));
        node.wait_until("the documents", |node| task(node)["docsWritten"] == written);
        node.succeed("POST", &settings, "pauseRequested=true");
        node.succeed("POST", &settings, "pauseRequested=false");
    }
    set(&mut one, "last", "1");
    let two = std::cell::RefCell::new(client(&node, "two"));
    node.wait_until("the last document", |_| get(&mut two.borrow_mut(), "last").is_some());
    node.wait_until("nothing to be left", |node| {
        let task = task(node);
        task["changesLeft"] == 0 && task["status"] == "running"
    });
}

/// Keys of the default collection may be longer than those of others.
#[test]
fn a_document_that_the_target_refuses_is_shown_and_skipped() {
    let node = Node::start();
    for name in ["one", "two"] {
        make_bucket(&node, name, "numVBuckets=16");
    }
    node.succeed("POST", &format!("{BUCKETS}/two/scopes"), "name=shop");
    node.succeed("POST", &format!("{BUCKETS}/two/scopes/shop/collections"), "name=orders");
    node.succeed("POST", REFERENCES, &reference("self", &node));
    let rules =
        r#"&collectionsExplicitMapping=true&colMappingRules={"_default._default":"shop.orders"}"#;
    node.succeed("POST", CREATE, &format!("{}{rules}", replication("one", "self", "two")));
    let key = "k".repeat(250);
    let mut one = client(&node, "one");
    set(&mut one, &key, "1");
    set(&mut one, "short", "2");
    node.wait_until("the document to be put aside", |node| {
        let task = task(node);
        task["stuckDocuments"] == 1 && task["docsWritten"] == 1
    });
    let id = task(&node)["id"].as_str().unwrap().replace('/', "%2F");
    let list = format!("/pools/default/replications/{id}/stuckDocuments");
    let stuck = node.json(&list);
    assert_eq!(
        (&stuck[0]["collection"], &stuck[0]["id"]),
        (&json!("_default._default"), &json!(key))
    );
    assert!(stuck[0]["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{stuck}");
    assert!(printed(&node, &["stuck", "one"]).contains(&key));
    let skip = format!("/controller/skipStuckDocument/{id}");
    for (path, form, status) in [
        (&skip, "id=short", 404),
        (&skip, &format!("id={key}&collection=shop.orders")[..], 404),
        (&skip, "", 400),
        (&skip.replace("one", "three"), "id=short", 404),
        (&list.replace("one", "three"), "", 404),
    ] {
        let method = if form.is_empty() && status == 404 { "GET" } else { "POST" };
        assert_eq!(node.ask(method, path, form).0, status, "{path} {form}");
    }
    printed(&node, &["skip", "one", &key]);
    node.wait_until("nothing to be left", |node| {
        let task = task(node);
        task["stuckDocuments"] == 0 && task["changesLeft"] == 0
    });
    assert_eq!(node.json(&list), json!([]));
}

#[test]
fn replication_needs_its_right() {
    let node = Node::start();
    make_bucket(&node, "one", "numVBuckets=16");
    let user = "/settings/rbac/users/local/ann";
    node.succeed("PUT", user, "password=secret1&roles=ro_admin");
    node.succeed(
        "PUT",
        "/settings/rbac/users/local/rep",
        "password=secret1&roles=replication_admin",
    );
    let request = |login: Option<(&str, &str)>, method: &str, path: &str, form: &str| {
        let kind = "application/x-www-form-urlencoded";
        http::request(&node.address(), method, path, login, kind, form.as_bytes()).unwrap()
    };
    let endpoints = [
        ("GET", REFERENCES),
        ("POST", REFERENCES),
        ("POST", "/pools/default/remoteClusters/x"),
        ("DELETE", "/pools/default/remoteClusters/x"),
        ("POST", CREATE),
        ("POST", "/controller/cancelXDCR/x"),
        ("DELETE", "/controller/cancelXDCR/x"),
        ("GET", "/settings/replications"),
        ("POST", "/settings/replications"),
        ("GET", "/settings/replications/x"),
        ("POST", "/settings/replications/x"),
        ("GET", "/pools/default/replications"),
        ("GET", "/pools/default/replicationInfos"),
        ("POST", "/controller/regexpValidation"),
    ];
    for (method, path) in endpoints {
        assert_eq!(request(None, method, path, "").status, 401, "{method} {path}");
        let reader = request(Some(("ann", "secret1")), method, path, "").status;
        assert_eq!(reader == 403, method != "GET", "{method} {path}: {reader}");
        let replicator = request(Some(("rep", "secret1")), method, path, "").status;
        assert_ne!(replicator, 403, "{method} {path}");
    }
    let reference = format!("{}&name=self", reference("x", &node));
    let rep = Some(("rep", "secret1"));
    assert_eq!(request(rep, "POST", REFERENCES, &reference).status, 200);
    let listed = request(rep, "GET", REFERENCES, "").text();
    assert!(listed.contains("self") && !listed.contains(PASSWORD), "{listed}");
    let same = request(rep, "POST", CREATE, &replication("one", "self", "one"));
    assert_eq!(same.status, 400);
    assert!(same.text().contains("to the same bucket is not allowed"), "{}", same.text());
    // A user without the right to read documents cannot probe them with expressions.
    let cluster_admin = "password=secret1&roles=cluster_admin";
    node.succeed("PUT", "/settings/rbac/users/local/adm", cluster_admin);
    let (trial, adm) = ("/controller/regexpValidation", Some(("adm", "secret1")));
    let of_document = "expression=TRUE&docId=k&bucket=one";
    let refused = request(adm, "POST", trial, of_document);
    assert_eq!(refused.status, 403);
    assert!(refused.text().contains("you may not read one._default._default"));
    assert_eq!(request(adm, "POST", trial, "expression=TRUE&skipDoc=true").status, 200);
    let missing = request(rep, "POST", trial, of_document);
    assert!(missing.status == 400 && missing.text().contains("docId"), "{}", missing.text());
    // A user who may only receive is enough for a reference.
    node.succeed("PUT", user, "password=secret1&roles=replication_target[one]");
    let form = format!("name=self&hostname={}&username=ann&password=secret1", node.address());
    let edited = request(rep, "POST", "/pools/default/remoteClusters/self", &form);
    assert_eq!(edited.status, 200, "{}", edited.text());
    let wrong = form.replace("secret1", "secret2");
    let refused = request(rep, "POST", "/pools/default/remoteClusters/self", &wrong);
    assert_eq!(refused.status, 400);
    assert!(refused.text().contains("Verify username and password"), "{}", refused.text());
}
