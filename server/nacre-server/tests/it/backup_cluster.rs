//! Backups of a cluster whose nodes are killed, replaced and rebalanced meanwhile, and what they have of writes that are not done.

use crate::backup::{Over, command, is_interrupted, open, succeed, until, write_on};
use crate::cluster::{Node, three};
use crate::copies::{is_rebalancing, rebalance};
use crate::process::{PASSWORD, Server, USER, from_env};
use nacre_client::{
    Bucket, Durability, Error, Key, Login, Lookup, PathMutation, PathOperation, StoreOptions,
};
use nacre_conformance::http;
use serde_json::{Value, json};
use std::process::{Child, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(150);
/// Backups that are taken, if `NACRE_BACKUP_KILLS` does not say how many.
const BACKUPS: u64 = 5;
/// Port of the backup service relative to that of management.
const SERVICE: u16 = 6;
/// Status of a write of a document that has a durable one under way.
const WRITE_IN_PROGRESS: u16 = 0xa2;
/// The record of transactions that begin with a document of vBucket 9, of 1024.
const RECORD: &str = "_txn:atr-9-#0";

fn begin(server: &Server, arguments: &[&str]) -> Child {
    command(server, arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits for a command that has to succeed.
fn end(process: Child) {
    let output = process.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

fn settle(nodes: &[Node]) {
    nodes[0].wait_until("the rebalance", |node| !is_rebalancing(node));
}

/// A backup, and what happens to the cluster meanwhile.
fn turn(nodes: &mut [Node; 3], number: u64, arguments: &[&str]) {
    let mut process = begin(nodes[0].server(), arguments);
    match number % 5 {
        1 => {
            until(Duration::from_millis(40 + 13 * number), || {
                process.try_wait().unwrap().is_some()
            });
            let _ = process.kill();
            process.wait().unwrap();
        }
        2 => {
            nodes[2].kill();
            nodes[2].restart();
            end(process);
        }
        3 => {
            // Copies of the third node take its place; what they do not have yet is lost.
            let settings = "/settings/autoFailover";
            nodes[0].succeed("POST", settings, "enabled=true&timeout=1&maxCount=1");
            nodes[2].kill();
            end(process);
            nodes[0].wait_until("the failover", |node| {
                node.json("/pools/default")["nodes"][2]["clusterMembership"] == "inactiveFailed"
            });
            rebalance(&nodes[..], &[]);
            nodes[0].wait_until("it to be no part of the cluster", |node| {
                node.json("/pools/default")["nodes"].as_array().unwrap().len() == 2
            });
            nodes[0].succeed("POST", settings, "enabled=false&timeout=120");
            nodes[0].succeed("POST", "/settings/autoFailover/resetCount", "");
        }
        4 => {
            nodes[2].forget();
            nodes[2].restart();
            let (status, text) = nodes[0].add(&nodes[2]);
            assert_eq!(status, 200, "{text}");
            rebalance(&nodes[..], &[]);
            end(process);
            settle(&nodes[..]);
        }
        _ => end(process),
    }
}

#[test]
fn case_02_03_backups_continue_while_nodes_are_killed_replaced_and_rebalanced() {
    let directory = tempfile::tempdir().unwrap();
    let turns = from_env("NACRE_BACKUP_KILLS", BACKUPS);
    let mut nodes = three();
    let form = "name=shop&ramQuotaMB=100&numVBuckets=64&replicaNumber=1";
    nodes[0].succeed("POST", "/pools/default/buckets", form);
    nodes[0].succeed("POST", "/settings/autoFailover", "enabled=false&timeout=120");
    rebalance(&nodes, &[]);
    settle(&nodes);
    let repository = directory.path().join("backups").display().to_string();
    let create = ["backup", "create", &repository, "--bucket", "shop", "--quiet"];
    let (is_over, address) = (AtomicBool::new(false), nodes[0].server().kv_address());
    std::thread::scope(|scope| {
        let _ends_with_the_scope = Over(&is_over);
        scope.spawn(|| write_on(&address, &is_over));
        for number in 0..turns {
            let more: &[&str] = match (is_interrupted(nodes[0].server(), &repository), number % 2) {
                (false, _) => &[],
                (true, 0) => &["--resume"],
                (true, _) => &["--discard"],
            };
            turn(&mut nodes, number, &[&create[..], more].concat());
        }
    });
    let server = nodes[0].server();
    let more: &[&str] = if is_interrupted(server, &repository) { &["--discard"] } else { &[] };
    succeed(server, &[&create[..], more].concat());
    let list = succeed(server, &["backup", "list", &repository, "--output", "json"]);
    let list: Value = serde_json::from_str(&list).unwrap();
    let list = list.as_array().unwrap();
    assert!(list.len() as u64 > turns * 3 / 5, "{list:?}");
    for backup in list {
        assert_eq!(backup["state"], "complete", "{backup}");
        let id = backup["id"].as_str().unwrap();
        succeed(server, &["backup", "verify", &repository, id, "--read-data"]);
    }
    succeed(server, &["backup", "diff", &repository, "--bucket", "shop"]);

    // Two nodes, and another number of vBuckets.
    let others = [Node::start(), Node::start()];
    assert_eq!(others[0].add(&others[1]).0, 200);
    let form = "name=shop&ramQuotaMB=100&numVBuckets=16&replicaNumber=0";
    others[0].succeed("POST", "/pools/default/buckets", form);
    rebalance(&others, &[]);
    settle(&others);
    let other = others[0].server();
    succeed(other, &["restore", &repository, "--bucket", "shop", "--quiet"]);
    succeed(other, &["backup", "diff", &repository, "--bucket", "shop"]);
}

/// Asks the backup service of a node; what it answers is JSON.
fn ask_service(node: &Node, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let address = format!("127.0.0.1:{}", node.port_base + SERVICE);
    let (path, login) = (format!("/api/v1{path}"), Some((USER, PASSWORD)));
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let json = "application/json";
    let answer = http::request(&address, method, &path, login, json, text.as_bytes()).unwrap();
    (answer.status, serde_json::from_str(&answer.text()).unwrap_or(Value::Null))
}

/// Sets documents whose values have a number.
fn fill(node: &Node, turn: u32) {
    let mut bucket = open(node.server(), "shop");
    for n in 0..1000 {
        let (name, value) = (format!("key-{n}"), format!("{{\"turn\":{turn}}}"));
        let key = Key::of_default(name.as_bytes());
        bucket.set(key, value.as_bytes(), StoreOptions::default()).unwrap();
    }
}

#[test]
fn case_03_nodes_write_what_they_serve_and_the_command_the_rest() {
    let directory = tempfile::tempdir().unwrap();
    let nodes = three();
    let form = "name=shop&ramQuotaMB=100&numVBuckets=64&replicaNumber=1";
    nodes[0].succeed("POST", "/pools/default/buckets", form);
    let otp = |node: &Node| format!("ns_1%40{}", node.address());
    let all: Vec<String> = nodes.iter().map(otp).collect();
    let form = format!("knownNodes={}&topology[backup]={},{}", all.join(","), all[0], all[1]);
    nodes[0].succeed("POST", "/controller/rebalance", &form);
    settle(&nodes);
    let schedule = json!({"job_type": "BACKUP", "frequency": 200, "period": "WEEKS"});
    let plan = json!({"tasks": [{"name": "b", "task_type": "BACKUP", "schedule": schedule}]});
    let active = "/cluster/self/repository/active/r";
    let archive = directory.path().join("archive");
    let repository = json!({"plan": "p", "archive": archive, "bucket_name": "shop"});
    for (path, body) in [("/plan/p", &plan), (active, &repository)] {
        let (status, answer) = ask_service(&nodes[0], "POST", path, body);
        assert_eq!(status, 200, "{path}: {answer}");
    }
    let (_, shown) = ask_service(&nodes[0], "GET", active, &Value::Null);
    let repository = archive.join(shown["repo"].as_str().unwrap()).display().to_string();
    let server = nodes[0].server();
    let create =
        ["backup", "create", &repository, "--bucket", "shop", "--quiet", "--by-nodes", "r"];
    let wrote = |said: &str| -> u32 {
        let (_, rest) = said.split_once("nodes wrote ").unwrap();
        rest.split(' ').next().unwrap().parse().unwrap()
    };
    let same = |repository: &str| {
        succeed(server, &["backup", "verify", repository, "--read-data"]);
        let said = succeed(server, &["backup", "diff", repository, "--bucket", "shop"]);
        assert_eq!(said, "1000 documents the same, 0 different\n");
    };

    // Two of three nodes have the service: they write their share, and the command that of the third one.
    fill(&nodes[0], 1);
    let said = succeed(server, &create);
    assert!((40..=46).contains(&wrote(&said)), "{said}");
    same(&repository);
    // A vBucket that moves is asked for where it comes to.
    fill(&nodes[0], 2);
    let process = begin(server, &create);
    rebalance(&nodes, &[&nodes[2]]);
    let output = process.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    nodes[0].wait_until("the node to leave", |node| {
        node.json("/pools/default")["nodes"].as_array().unwrap().len() == 2
    });
    same(&repository);
    // A task of the service does so by itself.
    fill(&nodes[0], 3);
    let (status, begun) = ask_service(&nodes[1], "POST", &format!("{active}/backup"), &json!({}));
    assert_eq!(status, 200, "{begun}");
    let path = format!("{active}/taskHistory?task_name={}", begun["task_name"].as_str().unwrap());
    let run = || ask_service(&nodes[1], "GET", &path, &Value::Null).1[0].clone();
    until(PATIENCE, || run()["status"] != "running");
    assert_eq!(run()["status"], "done", "{}", run());
    assert!(run().to_string().contains("nodes wrote 64 of 64 vBuckets"), "{}", run());
    same(&repository);

    // A store that nodes do not find is written by the command alone.
    let elsewhere = directory.path().join("elsewhere").display().to_string();
    let create = ["backup", "create", &elsewhere, "--bucket", "shop", "--quiet", "--by-nodes", "r"];
    let said = succeed(server, &create);
    assert_eq!(wrote(&said), 0, "{said}");
    same(&elsewhere);

    // Requests name a repository that is there, and no place.
    let share = json!({"backup": "01J00000000000000000000000", "bucket": "shop"});
    let post = |path: &str, body: &Value| ask_service(&nodes[0], "POST", path, body).0;
    assert_eq!(post("/cluster/self/repository/active/none/share", &share), 404);
    for (name, value) in [("backup", "../../x"), ("bucket", "none"), ("archive", "/tmp")] {
        let mut share = share.clone();
        share[name] = value.into();
        assert_eq!(post(&format!("{active}/share"), &share), 400, "{share}");
    }
}

#[test]
fn case_21_a_durable_write_is_in_the_backup_once_it_is_done() {
    let directory = tempfile::tempdir().unwrap();
    let mut nodes = three();
    // One vBucket, so that one node has all documents, another one their copies, and the third one nothing.
    let form = "name=shop&ramQuotaMB=100&numVBuckets=1&replicaNumber=1";
    nodes[0].succeed("POST", "/pools/default/buckets", form);
    nodes[0].succeed("POST", "/settings/autoFailover", "enabled=false&timeout=120");
    rebalance(&nodes, &[]);
    settle(&nodes);
    let map = nodes[0].json("/pools/default/b/shop")["vBucketServerMap"].clone();
    let place = |copy: usize| {
        let server = map["vBucketMap"][0][copy].as_u64().unwrap() as usize;
        let address = map["serverList"][server].as_str().unwrap();
        let is_there = |node: &Node| node.server().kv_address() == address;
        nodes.iter().position(is_there).unwrap()
    };
    let (active, replica) = (place(0), place(1));
    let repository = directory.path().join("backups").display().to_string();
    let create = ["backup", "create", &repository, "--bucket", "shop", "--quiet"];
    let mut bucket = open(nodes[active].server(), "shop");
    bucket.set(Key::of_default(b"before"), b"1", StoreOptions::default()).unwrap();

    nodes[replica].kill();
    let address = nodes[active].server().kv_address();
    let pending = std::thread::spawn(move || {
        let login = Login { user: USER.into(), password: PASSWORD.into(), bucket: "shop".into() };
        let mut bucket = Bucket::connect(&[address], None, login).unwrap();
        let durability = Some(Durability::Majority);
        let options = StoreOptions { durability, ..StoreOptions::default() };
        bucket.set(Key::of_default(b"pending"), b"2", options)
    });
    bucket.set_patience(Duration::ZERO);
    let mut is_pending = || {
        // Refused in any case: there is no document with this CAS.
        let options = StoreOptions { cas: 1, ..StoreOptions::default() };
        let refused = bucket.set(Key::of_default(b"pending"), b"3", options).unwrap_err();
        matches!(refused, Error::Refused { status: WRITE_IN_PROGRESS, .. })
    };
    until(PATIENCE, &mut is_pending);
    assert!(is_pending(), "the write waits for the copy");
    let versions = |key: &str| {
        let server = nodes[active].server();
        succeed(server, &["backup", "examine", &repository, key, "--in", "shop"]).lines().count()
    };
    succeed(nodes[active].server(), &create);
    assert!(is_pending(), "it was not done meanwhile");
    assert_eq!((versions("before"), versions("pending")), (1, 0));

    nodes[replica].restart();
    pending.join().unwrap().unwrap();
    let versions = |key: &str| {
        let server = nodes[active].server();
        succeed(server, &["backup", "examine", &repository, key, "--in", "shop"]).lines().count()
    };
    succeed(nodes[active].server(), &create);
    assert_eq!((versions("before"), versions("pending")), (1, 1));
}

/// Changes attributes of a document, which is made if it is missing.
fn edit(bucket: &mut Bucket, key: &str, path: &str, value: &Value) {
    let value = value.to_string();
    let change = PathMutation {
        operation: PathOperation::Upsert,
        path,
        value: value.as_bytes(),
        is_xattr: true,
        create_parents: true,
    };
    bucket.mutate_in(Key::of_default(key.as_bytes()), &[change], StoreOptions::default()).unwrap();
}

/// A CAS as records of transactions have it: hexadecimal, its lowest byte first.
fn in_record(cas: u64) -> String {
    format!("0x{:016x}", cas.swap_bytes())
}

/// Stages a replacement in a transaction whose client is gone since.
fn stage(bucket: &mut Bucket, key: &str, attempt: &str, state: &str) {
    let any = StoreOptions::default();
    let begun = bucket.set(Key::of_default(key.as_bytes()), b"{\"n\":1}", any).unwrap().cas;
    let place = json!([{"bkt": "shop", "scp": "_default", "col": "_default", "id": key}]);
    let listed = if state == "PENDING" { json!([]) } else { place };
    let entry = json!({
        "tid": "t", "st": state, "exp": 1000, "d": "n", "tst": in_record(begun), "rep": listed,
    });
    edit(bucket, RECORD, &format!("attempts.{attempt}"), &entry);
    let staged = json!({
        "id": {"txn": "t", "atmpt": attempt, "op": "o"},
        "atr": {"id": RECORD, "bkt": "shop", "scp": "_default", "coll": "_default"},
        "op": {"type": "replace", "stgd": {"n": 2}},
        "restore": {},
    });
    edit(bucket, key, "txn", &staged);
}

#[test]
fn case_21_an_open_transaction_is_in_the_backup_and_is_ended_after_the_restore() {
    let directory = tempfile::tempdir().unwrap();
    // It looks for lost transactions a minute after its start, and later on.
    let target = Server::start(&directory.path().join("target"));
    let source = Server::start(&directory.path().join("source"));
    for server in [&target, &source] {
        let form = "name=shop&ramQuotaMB=100&numVBuckets=16&replicaNumber=0";
        assert_eq!(server.rest("POST", "/pools/default/buckets", form).unwrap().status, 202);
    }
    let mut bucket = open(&source, "shop");
    bucket.set(Key::of_default(RECORD.as_bytes()), b"{}", StoreOptions::default()).unwrap();
    for (key, attempt, state) in
        [("committed", "a", "COMMITTED"), ("aborted", "b", "ABORTED"), ("pending", "c", "PENDING")]
    {
        stage(&mut bucket, key, attempt, state);
    }
    let repository = directory.path().join("backups").display().to_string();
    succeed(&source, &["backup", "create", &repository, "--bucket", "shop", "--quiet"]);
    // What the source does with them later is not in the backup.
    source.kill();

    let restore = ["restore", &repository, "--bucket", "shop", "--quiet"];
    let said = succeed(&target, &restore);
    assert!(said.contains("restored 4 documents"), "{said}");
    let mut bucket = open(&target, "shop");
    let mut has = |key: &str, path: &str| {
        let lookup = Lookup { path, is_xattr: true };
        let found = bucket.lookup_in(Key::of_default(key.as_bytes()), &[lookup]).unwrap();
        found.unwrap()[0].is_ok()
    };
    let attempts = ["attempts.a", "attempts.b", "attempts.c"];
    assert!(attempts.iter().all(|attempt| has(RECORD, attempt)), "they are restored as they were");
    until(PATIENCE, || !attempts.iter().any(|attempt| has(RECORD, attempt)));
    assert!(!attempts.iter().any(|attempt| has(RECORD, attempt)), "they are ended");
    assert!(!has("committed", "txn") && !has("aborted", "txn"));
    let value =
        |key: &[u8]| open(&target, "shop").get(Key::of_default(key)).unwrap().unwrap().value;
    assert_eq!(value(b"committed"), b"{\"n\":2}");
    assert_eq!(value(b"aborted"), b"{\"n\":1}");
    assert_eq!(value(b"pending"), b"{\"n\":1}");
}
