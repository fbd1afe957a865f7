//! A bucket that is written to, rebalanced to another node, and failed over from a killed one, while the client follows.

use super::{Documents, Follower, compare};
use crate::suites::{BUCKET, folder};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use xtask_setup::node::Node;

/// Ports of the three nodes.
const PORT_BASES: [u16; 3] = [19_300, 19_400, 19_500];
/// Documents before the client starts.
const DOCUMENTS: u32 = 20_000;
/// Documents per statement.
const BATCH: u32 = 500;
/// Number of documents in a batch that replace existing ones, and number of removed documents.
const REPLACED: u32 = 100;
/// Time limit of any step.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

pub(super) fn play(follower: &Follower) -> Result<(), String> {
    let (file, signal) = (folder()?.join("moves.state"), folder()?.join("moves.signal"));
    let ready = signal.with_extension("signal.ready");
    for left in [&file, &signal, &ready] {
        let _ = std::fs::remove_file(left);
    }
    let mut nodes = start(&follower.binary)?;
    let mut writer = Writer::default();
    while writer.next < DOCUMENTS {
        writer.write(&nodes[0])?;
    }
    // The third node does not have the bucket yet.
    let known = PORT_BASES[..2].iter().map(|base| format!("127.0.0.1:{}=kv", base + 10));
    let hosts = known.collect::<Vec<_>>().join(",");
    let until = signal.to_string_lossy();
    let (stop, (asked, others)) = (AtomicBool::new(false), nodes.split_at_mut(1));
    let (asked, writer) = (&asked[0], &mut writer);
    let ended = std::thread::scope(|scope| {
        let client = scope.spawn(|| follower.follow_at(&hosts, &file, &["until", &until]));
        let writing = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                writer.write(asked)?;
            }
            writer.write(asked)
        });
        let moved = wait_until("the client streams", || Ok(ready.exists()))
            .and_then(|()| move_all(&follower.binary, asked, others));
        stop.store(true, Ordering::Relaxed);
        let written = writing.join().expect("it only fails");
        let told = std::fs::write(&signal, "").map_err(|error| error.to_string());
        let ended = client.join().expect("it only fails");
        moved.and(written).and(told).and(ended)
    })?;
    compare(&ended, &file, &writer.documents)?;
    for (number, node) in nodes.into_iter().enumerate() {
        // The second one was killed.
        if number != 1 {
            node.stop()?;
        }
    }
    Ok(())
}

/// Starts two nodes with the bucket, and one that has not joined them. Writes are durable on two nodes, so that a failover loses
/// nothing and two of three nodes can still write.
fn start(binary: &Path) -> Result<Vec<Node>, String> {
    let start = |base: u16| Node::start(binary, Some(base), &[], &[]);
    let nodes = PORT_BASES.into_iter().map(start).collect::<Result<Vec<Node>, String>>()?;
    nodes[0].cluster(binary, &["add", &nodes[1].address()])?;
    let bucket = [
        ("name", BUCKET),
        ("ramQuotaMB", "256"),
        ("replicaNumber", "2"),
        ("durabilityMinLevel", "majority"),
    ];
    let failover = [("enabled", "true"), ("timeout", "1"), ("maxCount", "1")];
    for (path, form) in
        [("/pools/default/buckets", &bucket[..]), ("/settings/autoFailover", &failover)]
    {
        let answer = nodes[0].rest("POST", path, form)?;
        if !(200..300).contains(&answer.status) {
            return Err(format!("{path}: {}", answer.text()));
        }
    }
    nodes[0].cluster(binary, &["rebalance"])?;
    Ok(nodes)
}

/// Rebalances to the third node, then kills the second one and fails it over.
fn move_all(binary: &Path, asked: &Node, others: &mut [Node]) -> Result<(), String> {
    asked.cluster(binary, &["add", &others[1].address()])?;
    asked.cluster(binary, &["rebalance"])?;
    others[0].kill()?;
    wait_until("the killed node is replaced", || {
        let pool = asked.rest("GET", "/pools/default", &[])?.json();
        let pool: Value = pool.map_err(|error| format!("/pools/default: {error}"))?;
        Ok(pool["nodes"][1]["clusterMembership"] == "inactiveFailed")
    })
}

fn wait_until(what: &str, is_so: impl Fn() -> Result<bool, String>) -> Result<(), String> {
    let begun = Instant::now();
    while !is_so()? {
        if begun.elapsed() > PATIENCE {
            return Err(format!("timed out waiting for {what}"));
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
    Ok(())
}

/// Writes documents by statements, and records the expected ones.
#[derive(Default)]
struct Writer {
    /// The number of the next document.
    next: u32,
    documents: Documents,
}

impl Writer {
    /// Writes new documents, replaces some and removes some.
    fn write(&mut self, node: &Node) -> Result<(), String> {
        let first = self.next;
        let (old, replaced) = (first.saturating_sub(BATCH), first.saturating_sub(BATCH - REPLACED));
        self.put(node, first..first + BATCH, "new")?;
        self.put(node, old..replaced, "replaced")?;
        let removed = replaced..(replaced + REPLACED).min(first);
        let keys: Vec<String> = removed.map(key).collect();
        run(node, &format!("DELETE FROM {BUCKET} USE KEYS {}", json!(keys)))?;
        keys.iter().for_each(|key| drop(self.documents.remove(key)));
        self.next += BATCH;
        Ok(())
    }

    fn put(
        &mut self,
        node: &Node,
        numbers: std::ops::Range<u32>,
        what: &str,
    ) -> Result<(), String> {
        let body = |number| format!("{{\"n\":{number},\"what\":\"{what}\"}}");
        let put: Vec<(String, String)> =
            numbers.map(|number| (key(number), body(number))).collect();
        if put.is_empty() {
            return Ok(());
        }
        let values = put.iter().map(|(key, body)| format!("VALUES ('{key}', {body})"));
        let values = values.collect::<Vec<_>>().join(", ");
        run(node, &format!("UPSERT INTO {BUCKET} (KEY, VALUE) {values}"))?;
        self.documents.extend(put);
        Ok(())
    }
}

fn key(number: u32) -> String {
    format!("key-{number}")
}

/// Runs a statement until it succeeds: while a node is failed over, part of it may be done and the rest refused.
fn run(node: &Node, statement: &str) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        let answer = node.query(&json!({"statement": statement}))?.text();
        if answer.contains("\"status\":\"success\"") || answer.contains("\"status\": \"success\"") {
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            return Err(answer);
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}
