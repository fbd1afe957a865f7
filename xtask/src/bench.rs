//! `cargo xtask bench`: ratios to a peer, both measured in one run, in turn.

mod store;

use crate::command::{cargo, output, run as run_command};
use crate::node::{self, Node, PASSWORD, USER};
use crate::plugins;
use clap::{Args, Subcommand};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Options of `cargo xtask bench`.
#[derive(Args, Debug)]
pub struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Reads and writes by key, against memcached
    Kv {
        /// Rounds of each cell; the median ratio is shown
        #[arg(long, default_value_t = 3)]
        rounds: usize,
        /// Seconds of each measurement
        #[arg(long, default_value_t = 2.0)]
        seconds: f64,
    },
    /// Documents indexed per second, in the sandbox against natively
    Views,
    /// The stores under the same work: load, reads, synced commits, overwriting, reopening
    Store {
        /// How many documents
        #[arg(long, default_value_t = 1_000_000)]
        documents: u64,
        /// Write the figures to this file too
        #[arg(long)]
        csv: Option<PathBuf>,
    },
    /// Cut the power at every moment of many workloads, turn bits, fill the disk; count what is lost
    Crashes {
        /// How many workloads; 16 are more than 100,000 points
        #[arg(long, default_value_t = 16)]
        seeds: u64,
    },
    /// Latency of reads beside a view whose map function never ends, against the same without it
    Isolation {
        /// Pairs of measurements; the median ratio is shown
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// Seconds of each measurement
        #[arg(long, default_value_t = 3.0)]
        seconds: f64,
    },
}

const PORT_BASE: u16 = 19_300;
const MEMCACHED_PORT: u16 = 19_399;
const BUCKET: &str = "bench";

/// Runs a benchmark.
///
/// # Errors
/// What is missing.
pub fn run(options: &Bench) -> Result<(), String> {
    match &options.what {
        What::Isolation { rounds, seconds } => isolation((*rounds).max(1), *seconds),
        What::Kv { rounds, seconds } => kv((*rounds).max(1), *seconds),
        What::Store { documents, csv } => store::run((*documents).max(1000), csv.as_deref()),
        What::Crashes { seeds } => store::crashes((*seeds).max(1)),
        What::Views => {
            plugins::build()?;
            let mut bench = cargo();
            bench.args(["bench", "--quiet", "-p", "nacre-plugin-host", "--bench", "views"]);
            run_command(&mut bench, "measure views")
        }
    }
}

/// memcached on one processor, with as many requests handled at a time as it likes best.
struct Memcached(Child);

impl Memcached {
    fn start() -> Result<Memcached, String> {
        let port = MEMCACHED_PORT.to_string();
        let mut command = Command::new("taskset");
        command.args([
            "-c",
            "0",
            "memcached",
            "-l",
            "127.0.0.1",
            "-p",
            &port,
            "-U",
            "0",
            "-t",
            "1",
            "-m",
            "1024",
            "-R",
            "500",
        ]);
        command.args(["-u", "root"]).stderr(Stdio::null());
        let process = command.spawn().map_err(|error| format!("cannot start memcached on one processor (packages memcached and util-linux): {error}"))?;
        let memcached = Memcached(process);
        for _ in 0..500 {
            if std::net::TcpStream::connect(("127.0.0.1", MEMCACHED_PORT)).is_ok() {
                return Ok(memcached);
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        Err("memcached does not answer: is the package installed?".into())
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Figures {
    ops: f64,
    p50: f64,
    p99: f64,
}

fn measure(
    binary: &Path,
    pinned: bool,
    target: &[&str],
    cell: &[&str],
    seconds: f64,
) -> Result<Figures, String> {
    let mut command = if pinned { Command::new("taskset") } else { Command::new(binary) };
    if pinned {
        command.args(["-c", "1"]).arg(binary);
    }
    command.args(["bench", "kv", "--seconds", &seconds.to_string()]).args(target).args(cell);
    let line = output(&mut command, "measure")?;
    let number_before = |unit: &str, label: &str| -> Option<f64> {
        let part = line.split(", ").find(|part| part.contains(label))?;
        part.split_whitespace()
            .rev()
            .skip_while(|word| word.trim_end() != unit)
            .nth(1)?
            .parse()
            .ok()
    };
    let figures = (|| {
        Some(Figures {
            ops: number_before("ops/s", "ops/s")?,
            p50: number_before("us", "p50")?,
            p99: number_before("us", "p99 ")?,
        })
    })();
    figures.ok_or(format!("cannot read {line:?}"))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn kv(rounds: usize, seconds: f64) -> Result<(), String> {
    let binary = node::build("release")?;
    let node = Node::start(&binary, Some(PORT_BASE), &[], &["taskset", "-c", "0"])?;
    let created = node.rest(
        "POST",
        "/pools/default/buckets",
        &[("name", BUCKET), ("ramQuotaMB", "2048"), ("bucketType", "ephemeral")],
    )?;
    if created.status != 202 {
        return Err(format!("cannot create the bucket: {}", created.text()));
    }
    let _memcached = Memcached::start()?;
    let nacre_address = format!("127.0.0.1:{}", node.kv_port());
    let memcached_address = format!("127.0.0.1:{MEMCACHED_PORT}");
    let nacre =
        ["--server", &nacre_address, "--user", USER, "--password", PASSWORD, "--bucket", BUCKET];
    let memcached = ["--server", &memcached_address];
    println!(
        "nacre / memcached -t 1 -R 500; server on one processor, client on the other; 1 KB values; median of {rounds} rounds"
    );
    println!(
        "{:<10}{:>12}{:>14}{:>16}{:>8}{:>12}{:>12}",
        "reads",
        "conns x depth",
        "nacre ops/s",
        "memcached ops/s",
        "ratio",
        "p50 ratio",
        "p99 ratio"
    );
    for reads in ["50", "100"] {
        for (connections, depth) in [("16", "64"), ("16", "16"), ("16", "1"), ("1", "1")] {
            let cell = ["--reads", reads, "--connections", connections, "--depth", depth];
            let mut pairs = Vec::new();
            for _ in 0..rounds {
                pairs.push((
                    measure(&binary, true, &nacre, &cell, seconds)?,
                    measure(&binary, true, &memcached, &cell, seconds)?,
                ));
            }
            let of = |figure: &dyn Fn(&(Figures, Figures)) -> f64| {
                median(pairs.iter().map(figure).collect())
            };
            println!(
                "{:<10}{:>12}{:>14.0}{:>16.0}{:>8.2}{:>12.2}{:>12.2}",
                format!("{reads}%"),
                format!("{connections} x {depth}"),
                of(&|pair| pair.0.ops),
                of(&|pair| pair.1.ops),
                of(&|pair| pair.0.ops / pair.1.ops),
                of(&|pair| pair.0.p50 / pair.1.p50),
                of(&|pair| pair.0.p99 / pair.1.p99)
            );
        }
    }
    node.stop()
}

/// A design document whose map never ends: each document costs it all the steps it may take.
const ENDLESS: &str = r#"{"views": {"endless": {"map": "function (doc) { while (true) {} }"}}}"#;

/// How many documents the endless function was given and stopped at.
fn given_up(node: &Node) -> Result<u64, String> {
    let info = node.views("GET", &format!("/{BUCKET}/_design/endless/_info"), "")?;
    let info = info.json().map_err(|error| error.to_string())?;
    Ok(info["document_errors"].as_u64().unwrap_or(0))
}

fn isolation(rounds: usize, seconds: f64) -> Result<(), String> {
    let binary = node::build("release")?;
    let node = Node::start(&binary, Some(PORT_BASE), &[BUCKET], &[])?;
    let address = format!("127.0.0.1:{}", node.kv_port());
    let target = ["--server", &address, "--user", USER, "--password", PASSWORD, "--bucket", BUCKET];
    let cell = ["--reads", "100", "--connections", "4", "--depth", "1", "--keys", "20000"];
    println!(
        "p99 of reads, 4 connections, beside an endless map function / without; {rounds} pairs"
    );
    let mut ratios = Vec::new();
    for _ in 0..rounds {
        let alone = measure(&binary, false, &target, &cell, seconds)?;
        node.put_design(BUCKET, "endless", ENDLESS)?;
        let until = Instant::now() + Duration::from_secs(30);
        while given_up(&node)? == 0 {
            if Instant::now() > until {
                return Err("the endless function does not run".into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let before = given_up(&node)?;
        let beside = measure(&binary, false, &target, &cell, seconds)?;
        let documents = given_up(&node)? - before;
        node.views("DELETE", &format!("/{BUCKET}/_design/endless"), "")?;
        println!(
            "  alone p50 {:.0} us p99 {:.0} us, beside p50 {:.0} us p99 {:.0} us; {documents} documents were given up meanwhile",
            alone.p50, alone.p99, beside.p50, beside.p99
        );
        ratios.push((beside.p50 / alone.p50, beside.p99 / alone.p99));
    }
    println!(
        "median ratio: p50 {:.2}, p99 {:.2}",
        median(ratios.iter().map(|ratio| ratio.0).collect()),
        median(ratios.iter().map(|ratio| ratio.1).collect())
    );
    node.stop()
}
