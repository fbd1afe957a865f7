//! `cargo xtask bench`: performance ratios to other servers, measured alternately in one run; and endurance tests of a node.
//!
//! A figure with a limit ([`Limit`]) is printed with it; exceeding the limit is a failure.
#![expect(
    clippy::disallowed_methods,
    reason = "a chore reads and writes files, starts programs and reads the clock"
)]

mod application;
mod backup;
mod cluster;
mod dcp;
mod deployments;
mod documents;
mod embedded;
mod evaluation;
mod eventing;
mod eviction;
mod idle;
mod isolation;
mod kills;
mod kv;
mod load;
mod patterns;
mod peers;
pub mod postgres;
mod query;
mod rebalance;
mod replication;
mod sdk;
mod search;
mod start;
mod store;
mod summary;
mod vectors;
mod views;
mod warmup;
mod ycsb;
mod ycsb_java;

use clap::{Args, Subcommand};
use std::path::{Path, PathBuf};
use xtask_setup::command::{cargo, run as run_command};
use xtask_setup::{node, plugins};

/// Options of `cargo xtask bench`.
#[derive(Args, Debug)]
pub struct Bench {
    #[command(subcommand)]
    what: Benchmark,
}

#[derive(Subcommand, Debug)]
enum Benchmark {
    /// Measure reads and writes by key, compared with another server
    Kv {
        /// Server to compare with
        #[arg(long, value_enum, default_value = "memcached")]
        peer: peers::Peer,
        /// Rounds of each cell; the median ratio is shown
        #[arg(long, default_value_t = 3)]
        rounds: usize,
        /// Seconds of each measurement
        #[arg(long, default_value_t = 2.0)]
        seconds: f64,
    },
    /// Measure clusters from an application's view, by nodes, durability and documents, and while a
    /// node is killed: a page with plots
    Cluster {
        /// Nodes of the largest cluster
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(3..=5))]
        nodes: u8,
        /// Numbers of documents, separated by commas
        #[arg(long, value_delimiter = ',', default_value = "1000,3000,5000")]
        documents: Vec<usize>,
    },
    /// Measure inserts, updates, queries, searches and deletes of one client of the official Python
    /// SDK, by nodes, durability and documents
    Evaluation {
        /// Nodes of the largest cluster
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..=5))]
        nodes: u8,
        /// Numbers of documents, separated by commas
        #[arg(long, value_delimiter = ',', default_value = "1000,3000,5000")]
        documents: Vec<usize>,
        /// Write the tables into this file, too
        #[arg(long, value_name = "FILE")]
        page: Option<PathBuf>,
        /// A server to run instead of the one of this workspace
        #[arg(long, value_name = "PATH")]
        node: Option<PathBuf>,
    },
    /// Measure the latency of requests at a steady rate while nodes leave a cluster of three and
    /// rejoin it
    Rebalance {
        /// How often each node leaves
        #[arg(long, default_value_t = 3)]
        rounds: usize,
        /// Requests per second
        #[arg(long, default_value_t = 10_000)]
        rate: u32,
        /// A server to run instead of the one of this workspace
        #[arg(long, value_name = "PATH")]
        node: Option<PathBuf>,
    },
    /// Run YCSB's workloads A to F, compared with PostgreSQL
    Ycsb {
        /// Number of records to load
        #[arg(long, default_value_t = 100_000)]
        records: u64,
        /// Clients, each with one operation in flight
        #[arg(long, default_value_t = 16)]
        clients: usize,
        /// Pairs of measurements; the median ratio is shown
        #[arg(long, default_value_t = 3)]
        rounds: usize,
        /// Seconds of each measurement
        #[arg(long, default_value_t = 2.0)]
        seconds: f64,
        /// Run only these workloads, by their letters, without durable writes
        #[arg(long, value_delimiter = ',')]
        only: Vec<String>,
        /// A node to run instead of the one of this workspace
        #[arg(long, value_name = "PATH")]
        node: Option<PathBuf>,
    },
    /// Run YCSB's workloads A to F with the official Java client; no operation may fail
    YcsbJava {
        /// Number of records to load
        #[arg(long, default_value_t = 100_000)]
        records: u64,
        /// Operations of each workload
        #[arg(long, default_value_t = 100_000)]
        operations: u64,
        /// Threads, each with one operation in flight
        #[arg(long, default_value_t = 16)]
        threads: usize,
        /// Target rate in operations per second; 0 for the maximum
        #[arg(long, default_value_t = 0)]
        target: u64,
        /// Run only these workloads, by their letters
        #[arg(long, value_delimiter = ',')]
        only: Vec<String>,
        /// A node to run instead of the one of this workspace
        #[arg(long, value_name = "PATH")]
        node: Option<PathBuf>,
    },
    /// Measure queries: latencies, index maintenance and scans under load, and the sandbox compared
    /// with native code
    Query {
        /// Number of documents
        #[arg(long, default_value_t = 300_000)]
        documents: u64,
        /// Seconds of each measurement
        #[arg(long, default_value_t = 3.0)]
        seconds: f64,
    },
    /// Compare scalable data models with naive ones: keys, lookups, comments and feeds, with a
    /// minimum for each ratio
    Patterns {
        /// Use the dissertation's sizes, which takes hours
        #[arg(long)]
        long: bool,
        /// Numbers of nodes for the first and the second measurements
        #[arg(long, value_delimiter = ',', default_values_t = [4, 8])]
        nodes: Vec<usize>,
        /// Build profile of the node
        #[arg(long, value_enum, default_value = "release")]
        profile: patterns::Profile,
        /// A node to run instead of the one of this workspace
        #[arg(long, value_name = "PATH")]
        node: Option<PathBuf>,
    },
    /// Measure indexing and search, compared with bleve, the engine of Couchbase Search, and with
    /// SQLite, PostgreSQL and native tantivy
    Search {
        /// Pairs of measurements; the median ratio is shown
        #[arg(long, default_value_t = 3)]
        rounds: usize,
        /// Seconds for each kind of query
        #[arg(long, default_value_t = 1.0)]
        seconds: f64,
        /// A node to run instead of the one of this workspace
        #[arg(long, value_name = "PATH")]
        node: Option<PathBuf>,
    },
    /// Index many documents of 1 KB for search: size of the index, and memory with 256 MiB for
    /// plugins
    SearchMemory {
        /// Number of documents
        #[arg(long, default_value_t = 1_000_000)]
        documents: u64,
        /// A node to run instead of the one of this workspace
        #[arg(long, value_name = "PATH")]
        node: Option<PathBuf>,
    },
    /// Kill a node repeatedly while it indexes and merges; its search index must have exactly the
    /// documents that reads by key return, each once
    SearchKills {
        /// Number of kills
        #[arg(long, alias = "cycles", default_value_t = 200)]
        kills: u64,
        /// A node to run instead of the one of this workspace
        #[arg(long, value_name = "PATH")]
        node: Option<PathBuf>,
    },
    /// Measure recall and cost of searches for vectors of texts, compared with faiss, hnswlib and
    /// usearch
    Vectors {
        /// Number of runs of each query
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// A node to run instead of the one of this workspace
        #[arg(long, value_name = "PATH")]
        node: Option<PathBuf>,
    },
    /// Measure views: documents indexed per second compared with another server, queries, and the
    /// sandbox compared with native code
    Views {
        /// Number of documents; each has three rows
        #[arg(long, default_value_t = 333_334)]
        documents: u32,
        /// Number of documents that both servers index
        #[arg(long, default_value_t = 10_000)]
        peer_documents: u32,
    },
    /// Compare the stores: load, reads, synced commits, overwriting, reopening
    Store {
        /// Number of documents
        #[arg(long, default_value_t = 1_000_000)]
        documents: u64,
        /// Write the figures to this file too
        #[arg(long)]
        csv: Option<PathBuf>,
    },
    /// Measure backups to a folder and restores on one processor, an empty increment, and the
    /// latency of concurrent requests
    Backup {
        /// Number of documents of 1 KB
        #[arg(long, default_value_t = 300_000)]
        documents: u32,
        /// Rounds; the medians count
        #[arg(long, default_value_t = 3)]
        rounds: usize,
        /// Seconds of each measurement of requests
        #[arg(long, default_value_t = 10.0)]
        seconds: f64,
        /// Limit of backups during requests, in megabytes per second
        #[arg(long, value_name = "MB")]
        limit_mb: Option<u32>,
        /// A node to run instead of the one of this workspace
        #[arg(long, value_name = "PATH")]
        node: Option<PathBuf>,
    },
    /// Measure a replication to another cluster: throughput, latency at the target, cost at the
    /// source, conflicts with a resolver
    Replication {
        /// Number of documents of 1 KB
        #[arg(long, default_value_t = 200_000)]
        documents: u32,
        /// Rounds; the medians count
        #[arg(long, default_value_t = 3)]
        rounds: usize,
        /// Seconds of each measurement of requests
        #[arg(long, default_value_t = 5.0)]
        seconds: f64,
        /// A node to run instead of the one of this workspace
        #[arg(long, value_name = "PATH")]
        node: Option<PathBuf>,
    },
    /// Have the core of the Go SDK write versions with metadata to two clusters and read both by
    /// DCP; both must have the versions that win
    ReplicationOthers {
        /// Number of documents
        #[arg(long, default_value_t = 20_000)]
        keys: u32,
        /// A node to run instead of the one of this workspace
        #[arg(long, value_name = "PATH")]
        node: Option<PathBuf>,
    },
    /// Kill and cut off two distant clusters of two nodes while both write; they must be equal
    /// afterwards
    ReplicationKills {
        /// How often a node is killed
        #[arg(long, default_value_t = 100)]
        kills: u64,
        /// Number of cuts between the clusters
        #[arg(long, default_value_t = 20)]
        cuts: u64,
    },
    /// Back up three nodes while they are killed, replaced and rebalanced, and restore into two;
    /// the data must be equal
    BackupKills {
        /// Number of backups
        #[arg(long, default_value_t = 50)]
        backups: u64,
    },
    /// Restore a bucket to random points in time; each must be as it was written
    BackupMoments {
        /// Number of points in time
        #[arg(long, default_value_t = 50)]
        moments: u64,
    },
    /// Cut the power at every write of many workloads, flip bits, fill the disk; count losses
    Crashes {
        /// Number of workloads; 16 have more than 100,000 points
        #[arg(long, default_value_t = 16)]
        seeds: u64,
    },
    /// Kill a node under load repeatedly; acknowledged durable writes must be there
    Kills {
        /// Number of kills
        #[arg(long, default_value_t = 500)]
        cycles: u64,
    },
    /// Kill, upgrade, pause and rebuild a plugin under load repeatedly; it must have processed
    /// every document once
    Once {
        /// Number of kills
        #[arg(long, default_value_t = 1000)]
        cycles: u64,
    },
    /// Stream a whole bucket to a DCP consumer, compared with a plain copy of as many bytes over a
    /// socket
    Dcp {
        /// Number of documents of 1 KB
        #[arg(long, default_value_t = 500_000)]
        documents: u32,
        /// Pairs of measurements; the median ratio is shown
        #[arg(long, default_value_t = 5)]
        rounds: usize,
    },
    /// Measure how many changes a function processes per second, and its lag at half that load
    Eventing {
        /// Number of documents
        #[arg(long, default_value_t = 200_000)]
        documents: u64,
        /// Seconds of the second measurement
        #[arg(long, default_value_t = 10.0)]
        seconds: f64,
        /// Build profile of the node
        #[arg(long, default_value = "release")]
        profile: String,
    },
    /// Let a function fill the feeds of users, and kill the node twice; every feed must have every
    /// row
    Feeds {
        /// Number of users, with eight activities each
        #[arg(long, default_value_t = 1000)]
        users: u64,
        /// Number of users that each follows
        #[arg(long, default_value_t = 100)]
        followees: u64,
    },
    /// Kill a node while timers are due; each must fire once
    Timers {
        /// Number of timers within one second
        #[arg(long, default_value_t = 10_000)]
        timers: u64,
    },
    /// Measure the memory of idle and of removed deployments
    Deployments {
        /// Number of deployments at once
        #[arg(long, default_value_t = 50)]
        deployments: usize,
        /// Number of deployments created and removed in turn
        #[arg(long, default_value_t = 1000)]
        cycles: usize,
    },
    /// Restart a full node and measure the time until its first and its last document can be read
    Warmup {
        /// Number of documents of 1 KB
        #[arg(long, default_value_t = 1_000_000)]
        documents: u32,
    },
    /// Load four times the documents that fit into the quota; measure the latency of reads and the
    /// memory
    Eviction {
        /// Seconds of each measurement
        #[arg(long, default_value_t = 10.0)]
        seconds: f64,
    },
    /// Measure the latency of 16 connections next to idle ones and clients that send a byte at a
    /// time
    Idle {
        /// Idle connections
        #[arg(long, default_value_t = 10_000)]
        connections: usize,
        /// Pairs of measurements; the median ratio counts
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// Seconds of each measurement
        #[arg(long, default_value_t = 3.0)]
        seconds: f64,
    },
    /// Compare this project's SDKs with the official ones, in Node.js and Python: reads, writes,
    /// memory, import
    Sdk {
        /// Rounds of each SDK, in turn; the median counts
        #[arg(long, default_value_t = 3)]
        rounds: usize,
        /// Seconds of each measurement
        #[arg(long, default_value_t = 2.0)]
        seconds: f64,
        /// A node to run instead of the one of this workspace
        #[arg(long, value_name = "PATH")]
        node: Option<PathBuf>,
    },
    /// Compare the embedded database with SQLite, LMDB, RocksDB and libSQL, in Rust, Python and
    /// Node.js; sizes of its libraries
    Embedded {
        /// Rounds of each engine, in turn; the median counts
        #[arg(long, default_value_t = 3)]
        rounds: usize,
        /// Seconds of each measurement
        #[arg(long, default_value_t = 1.0)]
        seconds: f64,
        /// Print and check only the sizes
        #[arg(long, conflicts_with_all = ["rounds", "seconds"])]
        sizes: bool,
    },
    /// Draw the chart at the top of docs/reference/figures.md from the table there
    Summary,
    /// Measure the time from the start of a new node to its first answer, and its memory
    Start {
        /// Number of starts; the median counts
        #[arg(long, default_value_t = 9)]
        rounds: usize,
    },
    /// Measure the cost of the sandbox: delivery, code compared with native code, instances,
    /// deadlines
    Plugins,
    /// Measure latencies while plugins loop, allocate without bound, flood the host with calls or
    /// trap, compared with none
    Isolation {
        /// Pairs of measurements; the median ratio is shown
        #[arg(long, default_value_t = 9)]
        rounds: usize,
        /// Seconds of each measurement
        #[arg(long, default_value_t = 2.0)]
        seconds: f64,
        /// Only with this plugin, by its name in the table
        #[arg(long)]
        only: Option<String>,
    },
}

/// The lowest port: nodes take 20 ports, other servers begin 50 higher.
const PORT_BASE: u16 = 24_200;

/// Runs the following command with one key-value thread.
const NODE: [&str; 2] = ["env", "NACRE_KV_THREADS=1"];
/// Runs the following command on the first processor.
pub const ON_FIRST: [&str; 3] = ["taskset", "-c", "0"];
/// Runs the following command on the second processor.
const ON_SECOND: [&str; 3] = ["taskset", "-c", "1"];

/// Runs a benchmark.
///
/// # Errors
/// Reports what is missing, or which limit was exceeded.
pub fn run(options: &Bench) -> Result<(), String> {
    match &options.what {
        Benchmark::Isolation { rounds, seconds, only } => {
            isolation::run((*rounds).max(1), *seconds, only.as_deref())
        }
        Benchmark::Cluster { nodes, documents } => cluster::run((*nodes).into(), documents),
        Benchmark::Evaluation { nodes, documents, page, node } => {
            evaluation::run((*nodes).into(), documents, page.as_deref(), node.as_deref())
        }
        Benchmark::Rebalance { rounds, rate, node } => {
            rebalance::run((*rounds).max(1), (*rate).max(1), node.as_deref())
        }
        Benchmark::Kv { peer, rounds, seconds } => {
            kv::run(*peer, kv::Effort { rounds: (*rounds).max(1), seconds: *seconds })
        }
        Benchmark::Store { documents, csv } => store::run((*documents).max(1000), csv.as_deref()),
        Benchmark::Backup { documents, rounds, seconds, limit_mb, node } => {
            let (documents, rounds) = ((*documents).max(1), (*rounds).max(1));
            let (seconds, limit_mb) = (*seconds, *limit_mb);
            backup::run(backup::Effort { documents, rounds, seconds, limit_mb }, node.as_deref())
        }
        Benchmark::Replication { documents, rounds, seconds, node } => {
            let (documents, rounds) = ((*documents).max(1), (*rounds).max(1));
            let effort = replication::Effort { documents, rounds, seconds: *seconds };
            replication::run(effort, node.as_deref())
        }
        Benchmark::ReplicationOthers { keys, node } => {
            replication::run_with_others((*keys).max(1), node.as_deref())
        }
        Benchmark::ReplicationKills { kills, cuts } => {
            let cuts = ("NACRE_REPLICATION_CUTS", (*cuts).max(1).to_string());
            kills::REPLICATION.run_with((*kills).max(1), &[cuts])
        }
        Benchmark::BackupKills { backups } => kills::BACKUPS.run((*backups).max(1)),
        Benchmark::BackupMoments { moments } => kills::MOMENTS.run((*moments).max(1)),
        Benchmark::Crashes { seeds } => store::crashes((*seeds).max(1)),
        Benchmark::Kills { cycles } => kills::KILLS.run((*cycles).max(1)),
        Benchmark::Dcp { documents, rounds } => dcp::run((*documents).max(1), (*rounds).max(1)),
        Benchmark::Deployments { deployments, cycles } => {
            deployments::run((*deployments).max(1), *cycles)
        }
        Benchmark::Eventing { documents, seconds, profile } => {
            eventing::run((*documents).max(1000), *seconds, profile)
        }
        Benchmark::Feeds { users, followees } => {
            let followees = ("NACRE_FEED_FOLLOWEES", (*followees).clamp(1, *users).to_string());
            kills::FEEDS.run_with((*users).max(1), &[followees])
        }
        Benchmark::Timers { timers } => kills::TIMERS.run((*timers).max(10)),
        Benchmark::Once { cycles } => kills::ONCE.run((*cycles).max(1)),
        Benchmark::Warmup { documents } => warmup::run((*documents).max(1)),
        Benchmark::Eviction { seconds } => eviction::run(*seconds),
        Benchmark::Idle { connections, rounds, seconds } => {
            idle::run((*connections).max(1), (*rounds).max(1), *seconds)
        }
        Benchmark::Search { rounds, seconds, node } => {
            let effort = search::Effort { rounds: (*rounds).max(1), seconds: *seconds };
            search::run(effort, node.as_deref())
        }
        Benchmark::SearchMemory { documents, node } => {
            search::run_memory((*documents).max(1000), node.as_deref())
        }
        Benchmark::SearchKills { kills, node } => {
            kills::SEARCH.run_on(node.as_deref(), (*kills).max(1))
        }
        Benchmark::Start { rounds } => start::run((*rounds).max(1)),
        Benchmark::Sdk { rounds, seconds, node } => {
            sdk::run((*rounds).max(1), *seconds, node.as_deref())
        }
        Benchmark::Summary => summary::run(),
        Benchmark::Embedded { sizes: true, .. } => embedded::check_sizes(),
        Benchmark::Embedded { rounds, seconds, .. } => embedded::run((*rounds).max(1), *seconds),
        Benchmark::Plugins => in_sandbox("plugins"),
        Benchmark::Ycsb { records, clients, rounds, seconds, only, node } => {
            let (records, clients) = ((*records).max(1), (*clients).max(1));
            let (rounds, seconds) = ((*rounds).max(1), *seconds);
            ycsb::run(ycsb::Effort { records, clients, rounds, seconds }, only, node.as_deref())
        }
        Benchmark::Query { documents, seconds } => {
            let node = query::run((*documents).max(1000), *seconds);
            in_sandbox("index").and(in_sandbox("query")).and(node)
        }
        Benchmark::YcsbJava { records, operations, threads, target, only, node } => {
            let (records, operations) = ((*records).max(1), (*operations).max(1));
            let (threads, target) = ((*threads).max(1), *target);
            let effort = ycsb_java::Effort { records, operations, threads, target };
            ycsb_java::run(effort, only, node.as_deref())
        }
        Benchmark::Patterns { long, nodes, profile, node } => {
            let count = |place: usize| nodes.get(place).map_or(1, |count| (*count).max(1));
            let nodes = [count(0), count(1).max(count(0))];
            let effort = patterns::Effort { is_long: *long, nodes, profile: profile.name() };
            patterns::run(effort, node.as_deref())
        }
        Benchmark::Vectors { rounds, node } => vectors::run((*rounds).max(1), node.as_deref()),
        Benchmark::Views { documents, peer_documents } => {
            let node = views::run((*documents).max(1), (*peer_documents).max(1));
            in_sandbox("views").and(node)
        }
    }
}

/// Returns the named node binary, or builds the one of this workspace.
///
/// # Errors
/// As for [`node::build`].
fn binary(named: Option<&Path>, profile: &str) -> Result<PathBuf, String> {
    named.map_or_else(|| node::build(profile), |path| Ok(path.to_owned()))
}

/// Runs a benchmark of the plugin host.
fn in_sandbox(name: &str) -> Result<(), String> {
    plugins::build()?;
    let mut bench = cargo();
    bench.args(["bench", "--quiet", "-p", "nacre-sandbox", "--bench", name]);
    run_command(&mut bench, &format!("measure {name}"))
}

/// A lower bound of a figure.
struct Goal {
    what: &'static str,
    unit: &'static str,
    min: f64,
}

impl Goal {
    /// Prints `found` with the goal.
    ///
    /// # Errors
    /// Fails when it is lower.
    fn check(&self, found: f64) -> Result<(), String> {
        let Goal { what, unit, min } = self;
        println!("{what}: {found:.2}{unit} (goal {min}{unit})");
        if found >= *min {
            Ok(())
        } else {
            Err(format!("{what} is {found:.2}{unit}, less than {min}{unit}"))
        }
    }
}

/// An upper bound of a figure.
struct Limit {
    what: &'static str,
    unit: &'static str,
    max: f64,
}

impl Limit {
    /// Prints `found` with the limit.
    ///
    /// # Errors
    /// Fails when it is higher.
    fn check(&self, found: f64) -> Result<(), String> {
        let Limit { what, unit, max } = self;
        println!("{what}: {found:.2}{unit} (limit {max}{unit})");
        if found <= *max {
            Ok(())
        } else {
            Err(format!("{what} is {found:.2}{unit}, more than {max}{unit}"))
        }
    }
}
