//! Two clusters with the example resolvers, which replicate to each other and write the same documents.

use super::{deploy, is};
use nacre_conformance::kv::KvClient;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use xtask_setup::node::{Node, PASSWORD, USER};

/// Ports of the two nodes.
const PORT_BASES: [u16; 2] = [19_620, 19_640];
/// The bucket with the counter, and the one with documents of which both versions are kept.
const BUCKETS: [&str; 2] = ["counters", "notes"];
const RESOLVERS: [&str; 2] = ["counter-merge", "keep-both"];
const COUNTER: &[u8] = b"counter::usercounter";
const NOTE: &[u8] = b"note";
/// Additions of each side: half of them while the clusters are not connected, half of them while they replicate.
const ADDITIONS: u64 = 10_000;
const SUBDOC_COUNTER: u8 = 0xcf;
const TIMEOUT: Duration = Duration::from_secs(120);

/// Checks that a counter to which both sides add 10,000 each ends at 20,000, and that no version of a note is lost.
///
/// # Errors
/// Reports what fails, or which document is not as expected.
pub fn resolve(binary: &Path) -> Result<(), String> {
    let start = |port| Node::start(binary, Some(port), &BUCKETS, &[]);
    let nodes = [start(PORT_BASES[0])?, start(PORT_BASES[1])?];
    for node in &nodes {
        for (bucket, resolver) in BUCKETS.into_iter().zip(RESOLVERS) {
            let path = format!("/pools/default/buckets/{bucket}");
            post(node, &path, &[("enableCrossClusterVersioning", "true")])?;
            deploy(binary, node, resolver, &["--bucket", bucket])?;
        }
    }
    for (node, text) in nodes.iter().zip(["stuck", "slow"]) {
        let written =
            client(node, BUCKETS[1])?.set(NOTE, json!({"lift": text}).to_string().as_bytes());
        let reply = written.map_err(|error| error.to_string())?;
        if !reply.is_success() {
            return Err(format!("the note: {}", reply.text()));
        }
    }
    add_on_both_sides(&nodes)?;
    connect(&nodes[0], &nodes[1])?;
    connect(&nodes[1], &nodes[0])?;
    add_on_both_sides(&nodes)?;
    for bucket in BUCKETS {
        wait_until_equal(binary, &nodes[0], bucket)?;
    }
    for (node, side) in nodes.iter().zip(["the first side", "the second side"]) {
        let counter = document(node, BUCKETS[0], COUNTER)?;
        is(&counter, &json!({"plus": {"one": ADDITIONS, "two": ADDITIONS}}), side)?;
        let note = document(node, BUCKETS[1], NOTE)?;
        let mut bodies =
            [&note["lift"], &note["_conflicts"][0]["body"]["lift"]].map(Value::to_string);
        bodies.sort();
        is(&json!(bodies), &json!([r#""slow""#, r#""stuck""#]), side)?;
    }
    let [first, second] = nodes;
    first.stop()?;
    second.stop()
}

fn post(node: &Node, path: &str, form: &[(&str, &str)]) -> Result<(), String> {
    let answer = node.rest("POST", path, form)?;
    match answer.status {
        200..300 => Ok(()),
        status => Err(format!("POST {path}: {status}: {}", answer.text())),
    }
}

fn client(node: &Node, bucket: &str) -> Result<KvClient, String> {
    let address = format!("127.0.0.1:{}", node.kv_port());
    KvClient::connect(address, USER, PASSWORD, bucket).map_err(|error| format!("{bucket}: {error}"))
}

fn document(node: &Node, bucket: &str, key: &[u8]) -> Result<Value, String> {
    let reply = client(node, bucket)?.get(key).map_err(|error| error.to_string())?;
    serde_json::from_slice(&reply.value).map_err(|error| format!("{}: {error}", reply.text()))
}

/// Replicates all buckets of one cluster to the other.
fn connect(source: &Node, target: &Node) -> Result<(), String> {
    let hostname = target.address();
    let reference = [
        ("name", "other"),
        ("hostname", hostname.as_str()),
        ("username", USER),
        ("password", PASSWORD),
    ];
    post(source, "/pools/default/remoteClusters", &reference)?;
    for bucket in BUCKETS {
        let form = [("fromBucket", bucket), ("toCluster", "other"), ("toBucket", bucket)];
        let kind = [("replicationType", "continuous")];
        post(source, "/controller/createReplication", &[&form[..], &kind].concat())?;
    }
    Ok(())
}

/// Has both sides do half of their additions at the same time.
fn add_on_both_sides(nodes: &[Node; 2]) -> Result<(), String> {
    std::thread::scope(|scope| {
        let first = scope.spawn(|| add(&nodes[0], "one"));
        let second = add(&nodes[1], "two");
        first.join().expect("additions do not panic").and(second)
    })
}

/// Adds to the number of a side, as SDKs do with a sub-document counter.
fn add(node: &Node, side: &str) -> Result<(), String> {
    let mut client = client(node, BUCKETS[0])?;
    let path = format!("plus.{side}");
    // Creates missing parents and the document.
    let extras = [0, path.len() as u8, 1, 1];
    for _ in 0..ADDITIONS / 2 {
        let value = format!("{path}1");
        let reply = client.document(SUBDOC_COUNTER, COUNTER, &extras, value.as_bytes(), 0);
        let reply = reply.map_err(|error| error.to_string())?;
        if !reply.is_success() {
            return Err(format!("an addition was answered {:#x} {}", reply.status, reply.text()));
        }
    }
    Ok(())
}

/// Waits until the bucket is the same on both sides. As nobody writes any more, it then stays so.
fn wait_until_equal(binary: &Path, node: &Node, bucket: &str) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        let mut diff = Command::new(binary);
        diff.args(["xdcr", "diff", bucket, "--server", &format!("http://{}", node.address())]);
        diff.args(["--user", USER, "--password", PASSWORD]);
        let output = diff.output().map_err(|error| format!("nacre xdcr diff: {error}"))?;
        if output.status.success() {
            return Ok(());
        }
        if begun.elapsed() > TIMEOUT {
            let said = [output.stdout, output.stderr].concat();
            return Err(format!("{bucket} differs: {}", String::from_utf8_lossy(&said)));
        }
    }
}
