//! `cargo xtask sdk changes`: change feeds while nodes fail and leave.
//!
//! ```text
//! write.mjs ──► cluster (as in `chaos`) ──► follow.mjs, follow.py, which leave their feeds and continue from their tokens
//!    └ progress, which triggers kills and removals of nodes
//! ```

use serde::Deserialize;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use xtask_setup::cluster::{BUCKET, Cluster};
use xtask_setup::node::{PASSWORD, USER};
use xtask_setup::sdks::{Language, command, targets};

const NODES: usize = 3;
/// Seconds after which a silent node is failed over automatically: longer than each fault takes.
const FAILOVER_S: u64 = 60;
/// vBuckets of the bucket: changes of each vBucket may be repeated after a token.
const VBUCKETS: u64 = 1024;

/// The number of events in a run.
pub struct Effort {
    /// Writes, each of which a majority of nodes confirms.
    pub mutations: u64,
    /// How often each reader disconnects from its feed.
    pub disconnects: u32,
    /// How often a node is killed and failed over.
    pub failovers: u32,
}

/// The observations of a reader.
#[derive(Deserialize)]
struct Observations {
    documents: u64,
    changes: u64,
    passes: u64,
    /// Changes whose seqno is not above the previous one of their vBucket, within a pass.
    backwards: u64,
}

/// A script and its output.
struct Script {
    name: &'static str,
    process: Child,
    lines: BufReader<ChildStdout>,
}

impl Script {
    fn start(name: &'static str, command: &mut Command) -> Result<Script, String> {
        let spawned = command.stdout(Stdio::piped()).spawn();
        let mut process = spawned.map_err(|error| format!("cannot run {name}: {error}"))?;
        let stdout = process.stdout.take().ok_or("no output")?;
        Ok(Script { name, process, lines: BufReader::new(stdout) })
    }

    /// Returns the next line of output; `None` when the script has ended successfully.
    fn line(&mut self) -> Result<Option<String>, String> {
        let mut line = String::new();
        let read =
            self.lines.read_line(&mut line).map_err(|error| format!("{}: {error}", self.name))?;
        if read > 0 {
            return Ok(Some(line.trim().to_owned()));
        }
        let status = self.process.wait().map_err(|error| format!("{}: {error}", self.name))?;
        if status.success() { Ok(None) } else { Err(format!("{}: {status}", self.name)) }
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Follows `effort.mutations` writes with both SDKs while nodes are killed, failed over and recovered, and one leaves and
/// returns.
///
/// # Errors
/// Fails when a reader misses the last version of a document, or changes of a vBucket arrive out of order more often than the
/// faults explain.
pub fn run(binary: &Path, effort: &Effort) -> Result<(), String> {
    let mut cluster = Cluster::start(binary, NODES, FAILOVER_S, false)?;
    let folder = std::env::temp_dir().join(format!("nacre-changes-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let table = folder.join("table.json");
    let mut readers = readers(&cluster, effort.disconnects, &table)?;
    for reader in &mut readers {
        if reader.line()?.as_deref() != Some("ready") {
            return Err(format!("{} did not begin", reader.name));
        }
    }
    let js = targets(Language::Node)?.own;
    let mut write = command(Language::Node, &js, "conformance/sdk/changes/write");
    write.arg(cluster.seeds()).args([USER, PASSWORD, BUCKET]);
    write.arg(effort.mutations.to_string()).arg(&table);
    let mut writer = Script::start("the writer", &mut write)?;
    let mut faults = faults(effort.failovers);
    while let Some(line) = writer.line()? {
        let share: u32 = line.parse().map_err(|_| format!("the writer: {line}"))?;
        if let Some(fault) = faults.pop_front_if(|fault| fault.at <= share) {
            // The writer waits for its durable writes meanwhile, or continues where it can.
            inject(&mut cluster, &fault)?;
            println!("{share} %: {}", fault.what());
        }
    }
    let mut within = true;
    for mut reader in readers {
        let answer = reader.line()?.ok_or_else(|| format!("{} printed nothing", reader.name))?;
        let seen: Observations =
            serde_json::from_str(&answer).map_err(|error| format!("{answer}: {error}"))?;
        println!(
            "{}: {} documents, each with its last version; {} changes in {} passes, {} of them not behind the one before",
            reader.name, seen.documents, seen.changes, seen.passes, seen.backwards
        );
        // Each fault may kill the node to which a reader is connected: its changes since the last token then arrive again.
        within &= seen.backwards <= u64::from(effort.failovers + 2) * VBUCKETS;
        if reader.line()?.is_some() {
            return Err(format!("{} printed more lines than expected", reader.name));
        }
    }
    cluster.stop()?;
    let _ = std::fs::remove_dir_all(&folder);
    if within { Ok(()) } else { Err("changes of a vBucket came out of order".into()) }
}

fn readers(cluster: &Cluster, disconnects: u32, table: &Path) -> Result<[Script; 2], String> {
    let of = |language| -> Result<Command, String> {
        let mut command =
            command(language, &targets(language)?.own, "conformance/sdk/changes/follow");
        command.arg(cluster.seeds()).args([USER, PASSWORD, BUCKET]);
        command.arg(disconnects.to_string()).arg(table);
        Ok(command)
    };
    let js = Script::start("sdk-js", &mut of(Language::Node)?)?;
    let py = Script::start("sdk-py", &mut of(Language::Python)?)?;
    Ok([js, py])
}

/// An event at a given progress of the writer.
struct Fault {
    /// The progress in per cent.
    at: u32,
    node: usize,
    /// True to kill and fail over the node, false to remove and add it again.
    kills: bool,
}

impl Fault {
    fn what(&self) -> String {
        let done = if self.kills {
            "killed, replaced and taken back"
        } else {
            "removed by a rebalance and added again"
        };
        format!("node {} was {done}", self.node + 1)
    }
}

/// Returns failovers, spread over the first two thirds of the writes, and then a rebalance.
fn faults(failovers: u32) -> VecDeque<Fault> {
    let kill = |number: u32| Fault {
        at: 5 + number * 60 / failovers,
        node: number as usize % NODES,
        kills: true,
    };
    (0..failovers).map(kill).chain([Fault { at: 75, node: 1, kills: false }]).collect()
}

fn inject(cluster: &mut Cluster, fault: &Fault) -> Result<(), String> {
    let other = (fault.node + 1) % NODES;
    if fault.kills {
        cluster.nodes[fault.node].kill()?;
        cluster.fail_over(other, fault.node)?;
        cluster.nodes[fault.node].respawn()?;
    } else {
        cluster.remove(other, fault.node)?;
        cluster.add(other, fault.node)?;
    }
    cluster.make_whole(false)
}
