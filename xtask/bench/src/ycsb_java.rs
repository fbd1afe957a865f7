//! `cargo xtask bench ycsb-java`: YCSB itself, with the official Java client. No operation may fail.
//!
//! ```text
//! site.ycsb.Client (unmodified) ─► conformance/ycsb/Documents.java ─► official Java client ─► node
//! ```
//!
//! The workloads have the proportions published with YCSB. A run with a target throughput shows the latency of a server below its
//! limit; a run without one shows the limit.

use super::load::BUCKET;
use super::load::create_bucket;
use super::{NODE, ON_FIRST, PORT_BASE};
use std::path::{Path, PathBuf};
use std::process::Command;
use xtask_setup::command::{output, run as run_command, workspace};
use xtask_setup::node::{Node, PASSWORD, USER};
use xtask_setup::tools;

/// YCSB and the client. Later versions of the client lack a required library.
const LIBRARIES: [&str; 2] = ["site.ycsb:core:0.17.0", "com.couchbase.client:java-client:3.12.1"];
const QUOTA_MB: u32 = 2048;

/// The amount of work to measure.
#[derive(Clone, Copy)]
pub struct Effort {
    /// Records to load.
    pub records: u64,
    /// Operations per run.
    pub operations: u64,
    /// Threads per run.
    pub threads: usize,
    /// Target operations per second, 0 for no limit.
    pub target: u64,
}

/// A workload: its letter, the shares of its operations, and the distribution of records. Inserting workloads come last, as in
/// YCSB.
const WORKLOADS: [(&str, &[(&str, &str)]); 6] = [
    ("a", &[("readproportion", "0.5"), ("updateproportion", "0.5")]),
    ("b", &[("readproportion", "0.95"), ("updateproportion", "0.05")]),
    ("c", &[("readproportion", "1"), ("updateproportion", "0")]),
    (
        "f",
        &[
            ("readproportion", "0.5"),
            ("updateproportion", "0"),
            ("readmodifywriteproportion", "0.5"),
        ],
    ),
    (
        "d",
        &[
            ("readproportion", "0.95"),
            ("updateproportion", "0"),
            ("insertproportion", "0.05"),
            ("requestdistribution", "latest"),
        ],
    ),
    (
        "e",
        &[
            ("readproportion", "0"),
            ("updateproportion", "0"),
            ("scanproportion", "0.95"),
            ("insertproportion", "0.05"),
            ("maxscanlength", "100"),
        ],
    ),
];

/// The result of a run.
struct Outcome {
    throughput: f64,
    /// Name, count, average and 95th percentile in microseconds of each kind of operation.
    operations: Vec<(String, u64, f64, f64)>,
    failed: u64,
}

/// Measures all workloads, or some.
///
/// # Errors
/// A missing tool, or a workload with failed operations.
pub fn run(effort: Effort, only: &[String], named: Option<&Path>) -> Result<(), String> {
    let binary = super::binary(named, "release")?;
    let program = Program::build()?;
    let wrapper: Vec<&str> = NODE.iter().chain(&ON_FIRST).copied().collect();
    let node = Node::start(&binary, Some(PORT_BASE), &[], &wrapper)?;
    create_bucket(&node, "couchbase", QUOTA_MB)?;
    let statement = format!("CREATE PRIMARY INDEX ON `{BUCKET}`");
    node.query(&serde_json::json!({ "statement": statement }))?;
    println!(
        "{}, {}; {} records, {} operations, {} threads, target {}",
        LIBRARIES[0],
        LIBRARIES[1],
        effort.records,
        effort.operations,
        effort.threads,
        effort.target
    );
    let load = program.run(&node, effort, &["-load"], &[])?;
    show("load", &load);
    let mut failed = load.failed;
    let is_wanted = |workload: &str| only.is_empty() || only.iter().any(|name| name == workload);
    for (workload, properties) in WORKLOADS.iter().filter(|row| is_wanted(row.0)) {
        let target = effort.target.to_string();
        let aim: &[&str] = if effort.target == 0 { &["-t"] } else { &["-t", "-target", &target] };
        let outcome = program.run(&node, effort, aim, properties)?;
        show(workload, &outcome);
        failed += outcome.failed;
    }
    match failed {
        0 => Ok(()),
        failed => Err(format!("{failed} operations have failed")),
    }
}

fn show(workload: &str, outcome: &Outcome) {
    println!("{workload:<6}{:>12.0}/s, {} failed", outcome.throughput, outcome.failed);
    for (name, count, average, p95) in &outcome.operations {
        println!("      {name:<20}{count:>10}{average:>10.0} us average{p95:>10.0} us p95");
    }
}

/// The compiled binding, and the libraries.
struct Program {
    classes: PathBuf,
    class_path: String,
}

impl Program {
    fn build() -> Result<Program, String> {
        let archives = tools::java("ycsb-0.17.0", &LIBRARIES)?;
        let classes = std::env::temp_dir().join("nacre-ycsb");
        std::fs::create_dir_all(&classes)
            .map_err(|error| format!("{}: {error}", classes.display()))?;
        let class_path = format!("{}:{}/*", classes.display(), archives.display());
        let mut compile = Command::new("javac");
        compile
            .args(["-cp", &class_path, "-d"])
            .arg(&classes)
            .arg(workspace().join("conformance/ycsb/Documents.java"));
        run_command(&mut compile, "compile the binding (a Java development kit is needed)")?;
        Ok(Program { classes, class_path })
    }

    fn run(
        &self,
        node: &Node,
        effort: Effort,
        mode: &[&str],
        properties: &[(&str, &str)],
    ) -> Result<Outcome, String> {
        let connection = format!("couchbase://127.0.0.1:{}=kv", node.kv_port());
        let (records, operations) = (effort.records.to_string(), effort.operations.to_string());
        let given = [
            ("workload", "site.ycsb.workloads.CoreWorkload"),
            ("recordcount", records.as_str()),
            ("operationcount", operations.as_str()),
            ("requestdistribution", "zipfian"),
            ("measurementtype", "hdrhistogram"),
            ("nacre.connection", connection.as_str()),
            ("nacre.user", USER),
            ("nacre.password", PASSWORD),
            ("nacre.bucket", BUCKET),
        ];
        let mut command = Command::new("java");
        command
            .args(["-cp", &self.class_path, "site.ycsb.Client", "-db", "Documents"])
            .args(["-threads", &effort.threads.to_string()])
            .args(mode)
            .current_dir(&self.classes);
        for (name, value) in given.iter().chain(properties) {
            command.args(["-p", &format!("{name}={value}")]);
        }
        read(&output(&mut command, "run YCSB")?)
    }
}

/// Parses the output of YCSB.
fn read(text: &str) -> Result<Outcome, String> {
    let mut outcome = Outcome { throughput: 0.0, operations: Vec::new(), failed: 0 };
    let result = |line: &str| {
        let (section, rest) = line.strip_prefix('[')?.split_once("], ")?;
        let (metric, value) = rest.rsplit_once(", ")?;
        Some((section.to_owned(), metric.to_owned(), value.trim().parse::<f64>().ok()?))
    };
    for (section, metric, value) in text.lines().filter_map(result) {
        match (section.as_str(), metric.as_str()) {
            ("OVERALL", "Throughput(ops/sec)") => outcome.throughput = value,
            ("CLEANUP", _) => {}
            (name, "Operations") if name.ends_with("-FAILED") => outcome.failed += value as u64,
            (name, "Operations") => {
                outcome.operations.push((name.to_owned(), value as u64, 0.0, 0.0));
            }
            (name, "AverageLatency(us)") if !name.ends_with("-FAILED") => {
                outcome
                    .operations
                    .iter_mut()
                    .filter(|one| one.0 == name)
                    .for_each(|one| one.2 = value);
            }
            (name, "95thPercentileLatency(us)") if !name.ends_with("-FAILED") => {
                outcome
                    .operations
                    .iter_mut()
                    .filter(|one| one.0 == name)
                    .for_each(|one| one.3 = value);
            }
            _ => {}
        }
    }
    match outcome.throughput > 0.0 {
        true => Ok(outcome),
        false => Err(format!("YCSB has printed no throughput: {text}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_ycsb_is_parsed() {
        let text = "[OVERALL], RunTime(ms), 100\n[OVERALL], Throughput(ops/sec), 5000.5\n\
            [READ], Operations, 90\n[READ], AverageLatency(us), 117.25\n[READ], Return=OK, 90\n\
            [READ], 95thPercentileLatency(us), 300\n[CLEANUP], Operations, 1\n\
            [READ-FAILED], Operations, 3\n[READ-FAILED], AverageLatency(us), 9\n";
        let outcome = read(text).unwrap();
        assert_eq!((outcome.throughput, outcome.failed), (5000.5, 3));
        assert_eq!(outcome.operations, [("READ".to_owned(), 90, 117.25, 300.0)]);
        assert!(read("nothing").is_err());
    }
}
