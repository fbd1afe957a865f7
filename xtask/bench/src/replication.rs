//! `cargo xtask bench replication`: the performance of a replication between clusters, and its cost for the source.
//! `cargo xtask bench replication-others`: the same versions in both clusters, for a program that uses the core of the Go SDK.
//!
//! Each cluster is one node. The source runs on the first processor, the target and the clients on the second.

use super::load::{self, BUCKET, median};
use super::{Goal, Limit, ON_FIRST, ON_SECOND, PORT_BASE};
use nacre_conformance::kv::KvClient;
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use xtask_setup::command::{run as run_command, workspace};
use xtask_setup::node::{Node, PASSWORD, USER};

const QUOTA_MB: u32 = 1024;
const DOCUMENT_BYTES: &str = "1024";
/// Requests per second while the latency of the source is measured.
const RATE: &str = "5000";
/// Number of consecutive writes for which the time until they can be read at the target is measured.
const WRITES: usize = 2000;
/// Number of documents with different bodies in both buckets, each of which causes a conflict.
const CONFLICTS: u32 = 20_000;
const PATIENCE: Duration = Duration::from_secs(300);

const THROUGHPUT: Goal =
    Goal { what: "replicated documents", unit: " of the rate of local writes", min: 0.5 };
const VISIBLE: Limit = Limit { what: "write to visible at the target, p50", unit: " ms", max: 5.0 };
const LATENCY: Limit = Limit {
    what: "requests to the source",
    unit: " times the p99 without a replication",
    max: 1.3,
};
const MEMORY: Limit = Limit {
    what: "memory of the source while it catches up, above that before",
    unit: " MiB",
    max: 64.0,
};
const RESUME: Limit = Limit {
    what: "resumed until a document of each of 1,024 vBuckets is there",
    unit: " ms",
    max: 200.0,
};
const RESOLVER: Limit =
    Limit { what: "a conflict with a resolver, above one without", unit: " us", max: 100.0 };

/// The amount of work to measure.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    pub documents: u32,
    pub rounds: usize,
    /// Seconds of each measurement of requests.
    pub seconds: f64,
}

/// Two clusters with one node each. The replication is from `source` to `target`.
struct Bench<'a> {
    binary: &'a Path,
    source: Node,
    target: Node,
    effort: Effort,
}

/// The figures of one round. The medians are reported.
struct Round {
    ratio: f64,
    grown_bytes: u64,
    visible_ms: f64,
    latency: f64,
    resumed_ms: f64,
}

/// Measures a replication.
///
/// # Errors
/// Reports what fails, or which goal is missed.
pub fn run(effort: Effort, node: Option<&Path>) -> Result<(), String> {
    let binary = super::binary(node, "release")?;
    let source = Node::start(&binary, Some(PORT_BASE), &[], &ON_FIRST)?;
    let target = Node::start(&binary, Some(PORT_BASE + 20), &[], &ON_SECOND)?;
    let bench = Bench { binary: &binary, source, target, effort };
    refer(&bench.source, &bench.target)?;
    let rounds: Vec<Round> = (0..effort.rounds).map(|_| bench.round()).collect::<Result<_, _>>()?;
    let middle = |of: fn(&Round) -> f64| median(rounds.iter().map(of).collect());
    println!("{} documents of 1 KB, medians of {} rounds", effort.documents, effort.rounds);
    // Print all figures before the first missed goal is reported.
    let found = [
        THROUGHPUT.check(middle(|round| round.ratio)),
        MEMORY.check(middle(|round| round.grown_bytes as f64 / f64::from(1 << 20))),
        VISIBLE.check(middle(|round| round.visible_ms)),
        LATENCY.check(middle(|round| round.latency)),
        RESUME.check(middle(|round| round.resumed_ms)),
        RESOLVER.check(bench.resolver_us()?),
    ];
    bench.source.stop()?;
    bench.target.stop()?;
    found.into_iter().collect()
}

/// Has a program in Go write versions with their metadata to two clusters that replicate to each other, and read both by DCP.
///
/// # Errors
/// Reports what fails. The program prints the documents that differ.
pub fn run_with_others(keys: u32, node: Option<&Path>) -> Result<(), String> {
    let program = std::env::temp_dir().join("nacre-replication");
    let mut build = Command::new("go");
    build
        .args(["build", "-o"])
        .arg(&program)
        .current_dir(workspace().join("conformance/replication"));
    run_command(&mut build, "compile the program (go is needed, and a module proxy in reach)")?;
    let binary = super::binary(node, "release")?;
    let here = Node::start(&binary, Some(PORT_BASE), &[], &ON_FIRST)?;
    let there = Node::start(&binary, Some(PORT_BASE + 20), &[], &ON_SECOND)?;
    for node in [&here, &there] {
        load::create_bucket(node, "couchbase", QUOTA_MB)?;
    }
    for (source, target) in [(&here, &there), (&there, &here)] {
        refer(source, target)?;
        replicate(source)?;
    }
    let connection = |node: &Node| format!("couchbase://127.0.0.1:{}", node.kv_port());
    let mut written = Command::new(&program);
    written
        .args(["-here", &connection(&here), "-there", &connection(&there)])
        .args(["-user", USER, "-password", PASSWORD, "-bucket", BUCKET])
        .args(["-keys", &keys.to_string()]);
    run_command(&mut written, "find the same versions in both clusters")?;
    here.stop()?;
    there.stop()
}

/// Makes a reference to `target` at `source`.
fn refer(source: &Node, target: &Node) -> Result<(), String> {
    let hostname = target.address();
    let form = [
        ("name", "target"),
        ("hostname", hostname.as_str()),
        ("username", USER),
        ("password", PASSWORD),
    ];
    expect(source, "POST", "/pools/default/remoteClusters", &form).map(drop)
}

/// Creates the replication from `source`. Returns its ID as a segment of a path.
fn replicate(source: &Node) -> Result<String, String> {
    let form = [
        ("fromBucket", BUCKET),
        ("toCluster", "target"),
        ("toBucket", BUCKET),
        ("replicationType", "continuous"),
    ];
    let made = expect(source, "POST", "/controller/createReplication", &form)?;
    let id = made["id"].as_str().ok_or(format!("no replication in {made}"))?;
    Ok(id.replace('/', "%2F"))
}

impl Bench<'_> {
    fn round(&self) -> Result<Round, String> {
        for node in [&self.source, &self.target] {
            load::create_bucket(node, "couchbase", QUOTA_MB)?;
        }
        let keys = self.effort.documents.to_string();
        let fill = ["--keys", &keys, "--value-bytes", DOCUMENT_BYTES, "--seconds", "0"];
        let filled = load::measure(self.binary, &ON_SECOND, &load::target(&self.source), &fill)?;
        let begun = Instant::now();
        let (id, grown_bytes) = load::with_memory(self.source.id(), || {
            let id = replicate(&self.source)?;
            self.wait_for(self.effort.documents.into())?;
            Ok(id)
        })?;
        let rate = f64::from(self.effort.documents) / begun.elapsed().as_secs_f64();
        println!("  written at {:.0}/s, replicated at {rate:.0}/s", filled.ops);
        let visible_ms = self.visible_ms()?;
        let beside = self.p99()?;
        self.pause(&id, true)?;
        let alone = self.p99()?;
        println!("  p99 of requests: {alone:.0} us, {beside:.0} us with the replication");
        self.pause(&id, false)?;
        self.wait_for_the_rest()?;
        let resumed_ms = self.resumed_ms(&id)?;
        self.forget(&id)?;
        Ok(Round {
            ratio: rate / filled.ops,
            grown_bytes,
            visible_ms,
            latency: beside / alone,
            resumed_ms,
        })
    }

    fn pause(&self, id: &str, rests: bool) -> Result<(), String> {
        let path = format!("/settings/replications/{id}");
        let form = [("pauseRequested", if rests { "true" } else { "false" })];
        expect(&self.source, "POST", &path, &form)?;
        let wanted = if rests { "paused" } else { "running" };
        until(wanted, || Ok(self.task()?["status"] == wanted))
    }

    /// Deletes the replication and both buckets.
    fn forget(&self, id: &str) -> Result<(), String> {
        expect(&self.source, "DELETE", &format!("/controller/cancelXDCR/{id}"), &[])?;
        for node in [&self.source, &self.target] {
            expect(node, "DELETE", &format!("/pools/default/buckets/{BUCKET}"), &[])?;
        }
        Ok(())
    }

    fn task(&self) -> Result<Value, String> {
        let tasks = expect(&self.source, "GET", "/pools/default/tasks", &[])?;
        let mut tasks = tasks.as_array().into_iter().flatten();
        Ok(tasks.find(|task| task["type"] == "xdcr").cloned().unwrap_or_default())
    }

    /// Waits until the target has the given number of documents.
    fn wait_for(&self, documents: u64) -> Result<(), String> {
        until("the documents at the target", || {
            let path = format!("/pools/default/buckets/{BUCKET}");
            let found = expect(&self.target, "GET", &path, &[])?;
            Ok(found["basicStats"]["itemCount"].as_u64() >= Some(documents))
        })
    }

    fn wait_for_the_rest(&self) -> Result<(), String> {
        until("nothing to be left", || Ok(self.task()?["changesLeft"] == 0))
    }

    /// Returns the median time from the request of a write until the target returns the version.
    fn visible_ms(&self) -> Result<f64, String> {
        let (mut source, mut target) = (client(&self.source)?, client(&self.target)?);
        let mut times = Vec::with_capacity(WRITES);
        for number in 0..WRITES {
            let (key, body) = (format!("visible-{}", number % 100), number.to_string());
            let begun = Instant::now();
            source.set(key.as_bytes(), body.as_bytes()).map_err(|error| error.to_string())?;
            loop {
                let found = target.get(key.as_bytes()).map_err(|error| error.to_string())?;
                if found.is_success() && found.value == body.as_bytes() {
                    break;
                }
                if begun.elapsed() > PATIENCE {
                    return Err(format!("version {number} of {key} is not at the target"));
                }
            }
            times.push(begun.elapsed().as_secs_f64() * 1e3);
        }
        Ok(median(times))
    }

    /// Returns the p99 of requests to the source at a steady rate, half of them writes.
    fn p99(&self) -> Result<f64, String> {
        let (keys, seconds) = (self.effort.documents.to_string(), self.effort.seconds.to_string());
        let options = [
            "--keys",
            &keys,
            "--value-bytes",
            DOCUMENT_BYTES,
            "--seconds",
            &seconds,
            "--rate",
            RATE,
            "--no-load",
        ];
        let target = load::target(&self.source);
        Ok(load::measure(self.binary, &ON_SECOND, &target, &options)?.p99)
    }

    /// Returns the milliseconds from the request to resume until the target has a document of each vBucket that was written
    /// meanwhile.
    fn resumed_ms(&self, id: &str) -> Result<f64, String> {
        self.pause(id, true)?;
        let (mut source, mut target) = (client(&self.source)?, client(&self.target)?);
        let mut keys = vec![None; usize::from(source.vbucket_count())];
        let mut number = 0;
        while keys.iter().any(Option::is_none) {
            let key = format!("resumed-{number}");
            keys[usize::from(source.vbid(key.as_bytes()))].get_or_insert(key);
            number += 1;
        }
        let keys: Vec<String> = keys.into_iter().flatten().collect();
        for key in &keys {
            source.set(key.as_bytes(), b"1").map_err(|error| error.to_string())?;
        }
        let form = [("pauseRequested", "false")];
        let begun = Instant::now();
        expect(&self.source, "POST", &format!("/settings/replications/{id}"), &form)?;
        for key in &keys {
            until(key, || {
                let found = target.get(key.as_bytes()).map_err(|error| error.to_string())?;
                Ok(found.is_success())
            })?;
        }
        Ok(begun.elapsed().as_secs_f64() * 1e3)
    }

    /// Returns the additional microseconds of a conflict that calls a resolver.
    fn resolver_us(&self) -> Result<f64, String> {
        let without = self.conflicts_us(false)?;
        let with = self.conflicts_us(true)?;
        println!("  a conflict: {without:.0} us, {with:.0} us with a resolver");
        Ok(with - without)
    }

    /// Returns the microseconds per document for documents of which both buckets have a version.
    fn conflicts_us(&self, asks: bool) -> Result<f64, String> {
        let keys = CONFLICTS.to_string();
        let fill = ["--keys", &keys, "--value-bytes", "128", "--seconds", "0"];
        for node in [&self.target, &self.source] {
            load::create_bucket(node, "couchbase", QUOTA_MB)?;
            let form = [("enableCrossClusterVersioning", "true")];
            expect(node, "POST", &format!("/pools/default/buckets/{BUCKET}"), &form)?;
            if asks {
                let project = workspace().join("examples/field-merge").display().to_string();
                node.plugin(
                    self.binary,
                    &["deploy", &project, "--bucket", BUCKET, "--name", "merge"],
                )?;
            }
        }
        for node in [&self.target, &self.source] {
            load::measure(self.binary, &ON_SECOND, &load::target(node), &fill)?;
        }
        let begun = Instant::now();
        let id = replicate(&self.source)?;
        until("all conflicts", || {
            let task = self.task()?;
            let done = task["docsWritten"].as_u64().unwrap_or(0);
            Ok(task["changesLeft"] == 0 && done > 0)
        })?;
        let took = begun.elapsed();
        if asks {
            for node in [&self.source, &self.target] {
                node.plugin(self.binary, &["undeploy", "merge"])?;
            }
        }
        self.forget(&id)?;
        Ok(took.as_secs_f64() * 1e6 / f64::from(CONFLICTS))
    }
}

fn client(node: &Node) -> Result<KvClient, String> {
    let address = format!("127.0.0.1:{}", node.kv_port());
    KvClient::connect(address, USER, PASSWORD, BUCKET).map_err(|error| error.to_string())
}

/// Sends a request to cluster management; an unsuccessful answer is an error.
fn expect(node: &Node, method: &str, path: &str, form: &[(&str, &str)]) -> Result<Value, String> {
    let answer = node.rest(method, path, form)?;
    match answer.status {
        200..300 => Ok(answer.json().unwrap_or_default()),
        status => Err(format!("{method} {path}: {status}: {}", answer.text())),
    }
}

fn until(what: &str, mut holds: impl FnMut() -> Result<bool, String>) -> Result<(), String> {
    let begun = Instant::now();
    while !holds()? {
        if begun.elapsed() > PATIENCE {
            return Err(format!("still waiting for {what}"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
