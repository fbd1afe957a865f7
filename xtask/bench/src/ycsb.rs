//! `cargo xtask bench ycsb`: the workloads of YCSB on a node and on PostgreSQL, in turn.

use super::load::{self, BUCKET, Row, median};
use super::postgres::{Postgres, SETTINGS};
use super::{Goal, NODE, ON_FIRST, ON_SECOND, PORT_BASE};
use std::path::Path;
use xtask_setup::node::{Node, PASSWORD, USER};

const UPDATES: Goal =
    Goal { what: "workload a on a shared connection, against PostgreSQL", unit: "x", min: 6.0 };
const SCANS: Goal = Goal { what: "workload e, against PostgreSQL", unit: "x", min: 3.7 };
const QUOTA_MB: u32 = 4096;
/// The option of clients that share a connection.
const SHARED: &[&str] = &["--share"];
const SHARED_TITLE: &str = "   the same, nacre on a shared connection";

/// The amount of work to measure.
#[derive(Clone, Copy)]
pub struct Effort {
    /// Records to load.
    pub records: u64,
    /// Concurrent clients.
    pub clients: usize,
    /// Rounds; the median of the ratios of paired runs is shown.
    pub rounds: usize,
    /// Seconds of each run.
    pub seconds: f64,
}

/// A workload, options only for the node's runs, and its name.
///
/// Inserting workloads come last, as in YCSB, and scans at the end: they need an index, which PostgreSQL always has.
///
/// nacre's keys are read on a connection for each client, as PostgreSQL requires, and then on one for all of them, as in
/// SDKs.
const WORKLOADS: [(&str, &[&str], &str); 12] = [
    ("a", &[], "a: half reads, half updates"),
    ("a", SHARED, SHARED_TITLE),
    ("b", &[], "b: 95 % reads, 5 % updates"),
    ("b", SHARED, SHARED_TITLE),
    ("c", &[], "c: reads only"),
    ("c", SHARED, SHARED_TITLE),
    ("f", &[], "f: half reads, half read-modify-writes"),
    ("f", SHARED, SHARED_TITLE),
    ("d", &[], "d: 95 % reads of new records, 5 % inserts"),
    ("d", SHARED, SHARED_TITLE),
    ("e", &["--scans", "documents"], "e: 95 % scans, 5 % inserts"),
    ("e", &["--scans", "keys"], "e: the same, documents read by key"),
];

/// The comparisons: the session settings of PostgreSQL, the durability of the node's writes, and a name.
const COMPARED: [(&str, &str, &str); 2] = [
    ("synchronous_commit=off", "none", "synchronous_commit=off"),
    ("", "majorityAndPersistToActive", "durable writes"),
];

/// Measures both in turn. If `only` is not empty, measures only its workloads, without durable writes.
///
/// # Errors
/// Reports what is missing, what a server refused, or which goal was missed.
pub fn run(effort: Effort, only: &[String], named: Option<&Path>) -> Result<(), String> {
    let binary = super::binary(named, "release")?;
    let peer = Postgres::start(PORT_BASE + 53)?;
    let wrapper: Vec<&str> = NODE.iter().chain(&ON_FIRST).copied().collect();
    let node = Node::start(&binary, Some(PORT_BASE), &[], &wrapper)?;
    load::create_bucket(&node, "couchbase", QUOTA_MB)?;
    let ours = target(&node);
    let theirs = peer.target();
    tell(&peer, effort);
    for target in [&ours, &theirs] {
        ycsb(&binary, effort, target, &["--seconds", "0", "--workload", "a"])?;
    }
    let mut outcomes = Vec::new();
    let is_wanted = |workload: &str| only.is_empty() || only.iter().any(|name| name == workload);
    let compared = if only.is_empty() { &COMPARED[..] } else { &COMPARED[..1] };
    for &(setting, durability, name) in compared {
        println!("{name}:");
        println!(
            "  {:<42}{:>12}{:>9}{:>9}{:>14}{:>9}{:>8}",
            "", "nacre op/s", "p50 us", "p99 us", "postgres op/s", "p99 us", "ratio"
        );
        let ours = [&ours[..], &own(&["--durability", durability])].concat();
        let theirs = [&theirs[..], &own(&["--setting", setting])].concat();
        for (workload, options, title) in WORKLOADS.into_iter().filter(|row| is_wanted(row.0)) {
            let ours = [&ours[..], &own(options)].concat();
            let common = ["--no-load", "--workload", workload];
            let ratio = pairs(&binary, effort, [&ours, &theirs], &common, title)?;
            match (workload, options) {
                _ if setting.is_empty() => {}
                ("a", SHARED) => outcomes.push((UPDATES, ratio)),
                ("e", [_, "documents"]) => outcomes.push((SCANS, ratio)),
                _ => {}
            }
        }
    }
    drop(peer);
    node.stop()?;
    let checked: Vec<_> = outcomes.into_iter().map(|(goal, ratio)| goal.check(ratio)).collect();
    checked.into_iter().collect()
}

fn own(options: &[&str]) -> Vec<String> {
    options.iter().map(|option| (*option).to_owned()).collect()
}

/// Returns the options that make the client use a node.
fn target(node: &Node) -> Vec<String> {
    let (keys, query) =
        (format!("127.0.0.1:{}", node.kv_port()), format!("127.0.0.1:{}", node.query_port()));
    let server = ["--server", &keys, "--query", &query];
    own(&[&server[..], &["--user", USER, "--password", PASSWORD, "--bucket", BUCKET]].concat())
}

fn tell(peer: &Postgres, effort: Effort) {
    let Effort { records, clients, rounds, .. } = effort;
    println!(
        "{records} records of 10 fields of 100 B, {clients} clients with one operation in flight each; servers on one \
         processor, clients on the other; median of {rounds} rounds, servers in turn."
    );
    println!(
        "nacre: one thread for keys, a bucket that is persistent: writes count in memory, and are synced in the background."
    );
    println!(
        "{}: {}; synchronous_commit=off counts writes in memory, too. Durable writes are its default, and \
         majorityAndPersistToActive of nacre.",
        peer.version(),
        SETTINGS.join(", ")
    );
}

/// Prints a row; returns the median of the ratios.
fn pairs(
    binary: &Path,
    effort: Effort,
    targets: [&[String]; 2],
    options: &[&str],
    title: &str,
) -> Result<f64, String> {
    let round = |_| -> Result<[[f64; 3]; 2], String> {
        let one = |target: &[String]| {
            let seconds = effort.seconds.to_string();
            let rows = ycsb(binary, effort, target, &[options, &["--seconds", &seconds]].concat())?;
            let all = rows.iter().find(|row| row["operation"] == "all").ok_or("no sum")?;
            let figure = |name: &str| load::figure(all, name);
            Ok::<_, String>([figure("ops_per_s")?, figure("p50_us")?, figure("p99_us")?])
        };
        Ok([one(targets[0])?, one(targets[1])?])
    };
    let rounds = (0..effort.rounds).map(round).collect::<Result<Vec<_>, _>>()?;
    let of = |figure: &dyn Fn(&[[f64; 3]; 2]) -> f64| median(rounds.iter().map(figure).collect());
    let ratio = of(&|[ours, theirs]| ours[0] / theirs[0]);
    println!(
        "  {title:<42}{:>12.0}{:>9.0}{:>9.0}{:>14.0}{:>9.0}{ratio:>8.2}",
        of(&|[ours, _]| ours[0]),
        of(&|[ours, _]| ours[1]),
        of(&|[ours, _]| ours[2]),
        of(&|[_, theirs]| theirs[0]),
        of(&|[_, theirs]| theirs[2]),
    );
    Ok(ratio)
}

fn ycsb(
    binary: &Path,
    effort: Effort,
    target: &[String],
    options: &[&str],
) -> Result<Vec<Row>, String> {
    let (records, clients) = (effort.records.to_string(), effort.clients.to_string());
    let common = own(&["--records", &records, "--clients", &clients]);
    load::rows(binary, &ON_SECOND, "ycsb", &[target, &common, &own(options)].concat())
}
