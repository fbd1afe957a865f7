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
mod postgres;
mod query;
mod rebalance;
mod replication;
mod sdk;
mod search;
mod start;
mod store;
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
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Reads and writes by key, against other servers
    Kv {
        /// Which server to compare with
        #[arg(long, value_enum, default_value = "memcached")]
        peer: peers::Peer,
        /// Rounds of each cell; the median ratio is shown
        #[arg(long, default_value_t = 3)]
        rounds: usize,
        /// Seconds of each measurement
        #[arg(long, default_value_t = 2.0)]
        seconds: f64,
    },
    /// What an application sees of clusters, by nodes, durability and documents, and while a node is killed: a page with plots
    Cluster {
        /// Nodes of the largest
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(3..=5))]
        nodes: u8,
        /// Numbers of documents, separated by commas
        #[arg(long, value_delimiter = ',', default_value = "1000,3000,5000")]
        documents: Vec<usize>,
    },
    /// Inserts, updates, queries, searches and deletes of one client of the official Python SDK, by nodes, durability and documents
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
    /// How long requests at a steady rate wait while nodes leave a cluster of three and come again
    Rebalance {
        /// How often each node does
        #[arg(long, default_value_t = 3)]
        rounds: usize,
        /// Requests in a second
        #[arg(long, default_value_t = 10_000)]
        rate: u32,
        /// A server to run instead of the one of this workspace
        #[arg(long, value_name = "PATH")]
        node: Option<PathBuf>,
    },
    /// The workloads A to F of YCSB, against PostgreSQL
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
        /// Only these workloads, by their letters, and without durable writes
        #[arg(long, value_delimiter = ',')]
        only: Vec<String>,
        /// A node to run instead of the one of this workspace
        #[arg(long, value_name = "PATH")]
        node: Option<PathBuf>,
    },
    /// YCSB itself with the official Java client, workloads A to F; no operation may fail
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
        /// Operations in a second that are aimed at; 0 for as many as there can be
        #[arg(long, default_value_t = 0)]
        target: u64,
        /// Only these workloads, by their letters
        #[arg(long, value_delimiter = ',')]
        only: Vec<String>,
        /// A node to run instead of the one of this workspace
        #[arg(long, value_name = "PATH")]
        node: Option<PathBuf>,
    },
    /// Queries: latencies, indexes that are kept up to date and asked under load, and the sandbox against the same natively
    Query {
        /// How many documents
        #[arg(long, default_value_t = 300_000)]
        documents: u64,
        /// Seconds of each measurement
        #[arg(long, default_value_t = 3.0)]
        seconds: f64,
    },
    /// Scalability patterns against what they replace: keys, lookups, comments and feeds, with a floor for each ratio
    Patterns {
        /// Sizes of the dissertation, which take hours
        #[arg(long)]
        long: bool,
        /// Nodes of the first measurements, and of the second ones
        #[arg(long, value_delimiter = ',', default_values_t = [4, 8])]
        nodes: Vec<usize>,
        /// How the node is built
        #[arg(long, value_enum, default_value = "release")]
        profile: patterns::Profile,
        /// A node to run instead of the one of this workspace
        #[arg(long, value_name = "PATH")]
        node: Option<PathBuf>,
    },
    /// Search: what it takes to index and to ask, against bleve, the engine of Couchbase Search; SQLite and PostgreSQL beside
    Search {
        /// Pairs of measurements; the median ratio is shown
        #[arg(long, default_value_t = 3)]
        rounds: usize,
        /// Seconds of each measurement of a kind of query
        #[arg(long, default_value_t = 1.0)]
        seconds: f64,
        /// A node to run instead of the one of this workspace
        #[arg(long, value_name = "PATH")]
        node: Option<PathBuf>,
    },
    /// Many documents of 1 KB in one search index: its size, and memory with 256 MiB for plugins
    SearchMemory {
        /// How many documents
        #[arg(long, default_value_t = 1_000_000)]
        documents: u64,
        /// A node to run instead of the one of this workspace
        #[arg(long, value_name = "PATH")]
        node: Option<PathBuf>,
    },
    /// Kill a node again and again while it indexes and merges; its search index must have every document once
    SearchKills {
        /// How many times
        #[arg(long, default_value_t = 200)]
        cycles: u64,
    },
    /// Vectors of texts: how many of the nearest are found, and what that takes, beside faiss, hnswlib and usearch
    Vectors {
        /// How often each query is asked
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// A node to run instead of the one of this workspace
        #[arg(long, value_name = "PATH")]
        node: Option<PathBuf>,
    },
    /// Views: documents indexed per second against another server, queries, and the sandbox against the same natively
    Views {
        /// How many documents; each makes three rows
        #[arg(long, default_value_t = 333_334)]
        documents: u32,
        /// How many documents both servers index
        #[arg(long, default_value_t = 10_000)]
        peer_documents: u32,
    },
    /// The stores under the same work: load, reads, synced commits, overwriting, reopening
    Store {
        /// How many documents
        #[arg(long, default_value_t = 1_000_000)]
        documents: u64,
        /// Write the figures to this file too
        #[arg(long)]
        csv: Option<PathBuf>,
    },
    /// Backups to a folder and restores on one processor, an increment of nothing, and what requests beside them wait for
    Backup {
        /// How many documents of 1 KB
        #[arg(long, default_value_t = 300_000)]
        documents: u32,
        /// Rounds; the medians count
        #[arg(long, default_value_t = 3)]
        rounds: usize,
        /// Seconds of each measurement of requests
        #[arg(long, default_value_t = 10.0)]
        seconds: f64,
        /// Limit the backups beside requests to so many megabytes in a second
        #[arg(long, value_name = "MB")]
        limit_mb: Option<u32>,
        /// A node to run instead of the one of this workspace
        #[arg(long, value_name = "PATH")]
        node: Option<PathBuf>,
    },
    /// A replication to another cluster: throughput, latency at the target, what it costs the source, conflicts with a resolver
    Replication {
        /// How many documents of 1 KB
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
    /// Two clusters of two nodes, far from each other, that are killed and cut off while both write; nothing may differ
    ReplicationKills {
        /// How often a node is killed
        #[arg(long, default_value_t = 100)]
        kills: u64,
        /// How often the clusters are cut off from each other
        #[arg(long, default_value_t = 20)]
        cuts: u64,
    },
    /// Back up three nodes while they are killed, replaced and rebalanced, and restore into two; nothing may differ
    BackupKills {
        /// How many backups
        #[arg(long, default_value_t = 50)]
        backups: u64,
    },
    /// Restore a bucket to moments that chance decides; each must be as it was written
    BackupMoments {
        /// How many moments
        #[arg(long, default_value_t = 50)]
        moments: u64,
    },
    /// Cut the power at every moment of many workloads, turn bits, fill the disk; count what is lost
    Crashes {
        /// How many workloads; 16 are more than 100,000 points
        #[arg(long, default_value_t = 16)]
        seeds: u64,
    },
    /// Kill a node under load again and again; what was acknowledged as durable must be there
    Kills {
        /// How many times
        #[arg(long, default_value_t = 500)]
        cycles: u64,
    },
    /// Kill, upgrade, pause and rebuild a plugin under load again and again; it must have taken every document once
    Once {
        /// How many times
        #[arg(long, default_value_t = 1000)]
        cycles: u64,
    },
    /// A consumer takes a whole bucket, beside a plain copy of as many bytes over a socket
    Dcp {
        /// How many documents of 1 KB
        #[arg(long, default_value_t = 500_000)]
        documents: u32,
        /// Pairs of measurements; the median ratio is shown
        #[arg(long, default_value_t = 5)]
        rounds: usize,
    },
    /// Changes that a function takes in a second, and how far behind it is at half that load
    Eventing {
        /// How many documents
        #[arg(long, default_value_t = 200_000)]
        documents: u64,
        /// Seconds of the second measurement
        #[arg(long, default_value_t = 10.0)]
        seconds: f64,
        /// How the node is built
        #[arg(long, default_value = "release")]
        profile: String,
    },
    /// Fill the feeds of users by a function, and kill the node twice; every feed must have every row
    Feeds {
        /// How many users, with eight activities each
        #[arg(long, default_value_t = 1000)]
        users: u64,
        /// How many others each follows
        #[arg(long, default_value_t = 100)]
        followees: u64,
    },
    /// Kill a node while timers are due; each must fire once
    Timers {
        /// How many within one second
        #[arg(long, default_value_t = 10_000)]
        timers: u64,
    },
    /// Memory of deployments that have nothing to do, and of those that were ended
    Deployments {
        /// How many at once
        #[arg(long, default_value_t = 50)]
        deployments: usize,
        /// How many one after another
        #[arg(long, default_value_t = 1000)]
        cycles: usize,
    },
    /// Stop and start a full node; time until its first and its last document can be read
    Warmup {
        /// How many documents of 1 KB
        #[arg(long, default_value_t = 1_000_000)]
        documents: u32,
    },
    /// Four times as many documents as fit into the quota: latency of reads, and memory throughout
    Eviction {
        /// Seconds of each measurement
        #[arg(long, default_value_t = 10.0)]
        seconds: f64,
    },
    /// Latency of 16 connections beside idle ones and clients that send a byte at a time
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
    /// This project's SDKs against the official ones, in Node.js and Python: reads, writes, memory, import
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
    /// A database in the process beside SQLite, LMDB, RocksDB and libSQL, in Rust, Python and Node.js; sizes of its libraries
    Embedded {
        /// Rounds of each engine, one after another; the median counts
        #[arg(long, default_value_t = 3)]
        rounds: usize,
        /// Seconds of each measurement
        #[arg(long, default_value_t = 1.0)]
        seconds: f64,
    },
    /// Time from the start of a new node to its first answer, and its memory
    Start {
        /// How many starts; the median counts
        #[arg(long, default_value_t = 9)]
        rounds: usize,
    },
    /// What the sandbox costs: delivery, the same code in it and natively, instances, deadlines
    Plugins,
    /// Latencies beside plugins that loop, grow, storm the host and trap, against the same without them
    Isolation {
        /// Pairs of measurements; the median ratio is shown
        #[arg(long, default_value_t = 9)]
        rounds: usize,
        /// Seconds of each measurement
        #[arg(long, default_value_t = 2.0)]
        seconds: f64,
        /// Only beside this plugin, of those that the table names
        #[arg(long)]
        only: Option<String>,
    },
}

/// The lowest port: nodes take 20 ports, other servers begin 50 higher.
const PORT_BASE: u16 = 24_200;

/// Runs the following command with one key-value thread.
const NODE: [&str; 2] = ["env", "NACRE_KV_THREADS=1"];
/// Runs the following command on the first processor.
const ON_FIRST: [&str; 3] = ["taskset", "-c", "0"];
/// Runs the following command on the second processor.
const ON_SECOND: [&str; 3] = ["taskset", "-c", "1"];

/// Runs a benchmark.
///
/// # Errors
/// Reports what is missing, or which limit was exceeded.
pub fn run(options: &Bench) -> Result<(), String> {
    match &options.what {
        What::Isolation { rounds, seconds, only } => {
            isolation::run((*rounds).max(1), *seconds, only.as_deref())
        }
        What::Cluster { nodes, documents } => cluster::run((*nodes).into(), documents),
        What::Evaluation { nodes, documents, page, node } => {
            evaluation::run((*nodes).into(), documents, page.as_deref(), node.as_deref())
        }
        What::Rebalance { rounds, rate, node } => {
            rebalance::run((*rounds).max(1), (*rate).max(1), node.as_deref())
        }
        What::Kv { peer, rounds, seconds } => {
            kv::run(*peer, kv::Effort { rounds: (*rounds).max(1), seconds: *seconds })
        }
        What::Store { documents, csv } => store::run((*documents).max(1000), csv.as_deref()),
        What::Backup { documents, rounds, seconds, limit_mb, node } => {
            let (documents, rounds) = ((*documents).max(1), (*rounds).max(1));
            let (seconds, limit_mb) = (*seconds, *limit_mb);
            backup::run(backup::Effort { documents, rounds, seconds, limit_mb }, node.as_deref())
        }
        What::Replication { documents, rounds, seconds, node } => {
            let (documents, rounds) = ((*documents).max(1), (*rounds).max(1));
            let effort = replication::Effort { documents, rounds, seconds: *seconds };
            replication::run(effort, node.as_deref())
        }
        What::ReplicationKills { kills, cuts } => {
            let cuts = ("NACRE_REPLICATION_CUTS", (*cuts).max(1).to_string());
            kills::REPLICATION.run_with((*kills).max(1), &[cuts])
        }
        What::BackupKills { backups } => kills::BACKUPS.run((*backups).max(1)),
        What::BackupMoments { moments } => kills::MOMENTS.run((*moments).max(1)),
        What::Crashes { seeds } => store::crashes((*seeds).max(1)),
        What::Kills { cycles } => kills::KILLS.run((*cycles).max(1)),
        What::Dcp { documents, rounds } => dcp::run((*documents).max(1), (*rounds).max(1)),
        What::Deployments { deployments, cycles } => {
            deployments::run((*deployments).max(1), *cycles)
        }
        What::Eventing { documents, seconds, profile } => {
            eventing::run((*documents).max(1000), *seconds, profile)
        }
        What::Feeds { users, followees } => {
            let followees = ("NACRE_FEED_FOLLOWEES", (*followees).clamp(1, *users).to_string());
            kills::FEEDS.run_with((*users).max(1), &[followees])
        }
        What::Timers { timers } => kills::TIMERS.run((*timers).max(10)),
        What::Once { cycles } => kills::ONCE.run((*cycles).max(1)),
        What::Warmup { documents } => warmup::run((*documents).max(1)),
        What::Eviction { seconds } => eviction::run(*seconds),
        What::Idle { connections, rounds, seconds } => {
            idle::run((*connections).max(1), (*rounds).max(1), *seconds)
        }
        What::Search { rounds, seconds, node } => {
            let effort = search::Effort { rounds: (*rounds).max(1), seconds: *seconds };
            search::run(effort, node.as_deref())
        }
        What::SearchMemory { documents, node } => {
            search::run_memory((*documents).max(1000), node.as_deref())
        }
        What::SearchKills { cycles } => kills::SEARCH.run((*cycles).max(1)),
        What::Start { rounds } => start::run((*rounds).max(1)),
        What::Sdk { rounds, seconds, node } => {
            sdk::run((*rounds).max(1), *seconds, node.as_deref())
        }
        What::Embedded { rounds, seconds } => embedded::run((*rounds).max(1), *seconds),
        What::Plugins => in_sandbox("plugins"),
        What::Ycsb { records, clients, rounds, seconds, only, node } => {
            let (records, clients) = ((*records).max(1), (*clients).max(1));
            let (rounds, seconds) = ((*rounds).max(1), *seconds);
            ycsb::run(ycsb::Effort { records, clients, rounds, seconds }, only, node.as_deref())
        }
        What::Query { documents, seconds } => {
            let node = query::run((*documents).max(1000), *seconds);
            in_sandbox("index").and(in_sandbox("query")).and(node)
        }
        What::YcsbJava { records, operations, threads, target, only, node } => {
            let (records, operations) = ((*records).max(1), (*operations).max(1));
            let (threads, target) = ((*threads).max(1), *target);
            let effort = ycsb_java::Effort { records, operations, threads, target };
            ycsb_java::run(effort, only, node.as_deref())
        }
        What::Patterns { long, nodes, profile, node } => {
            let count = |place: usize| nodes.get(place).map_or(1, |count| (*count).max(1));
            let nodes = [count(0), count(1).max(count(0))];
            let effort = patterns::Effort { is_long: *long, nodes, profile: profile.name() };
            patterns::run(effort, node.as_deref())
        }
        What::Vectors { rounds, node } => vectors::run((*rounds).max(1), node.as_deref()),
        What::Views { documents, peer_documents } => {
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
