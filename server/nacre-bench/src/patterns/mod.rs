//! `nacre bench patterns`: the workloads of a dissertation about scalability patterns, each in a naive version and with the
//! pattern.
//!
//! ```text
//! Patterns ── Workload ─► Pattern: prepare, load, settle, transact
//!    │ threads                         │
//!    └────────► Client: Connections ◄──┘   RetryPolicy, Measurements ─► table, CSV, log as of YCSB, curves
//! ```
//!
//! A client executes one transaction at a time, each of one or more requests; the latency is that of all of them together. Names
//! of properties and transactions are those of the original programs. Latencies are in microseconds, where those programs printed
//! milliseconds under the same name. Source: C. H. Costa, "Scalability Patterns for Distributed NoSQL Databases", 2017; the code
//! is our own.

mod client;
mod comments;
mod connections;
mod feeds;
mod keys;
mod lookups;
mod measurements;
mod properties;
mod retry;
mod start;
mod sweep;
mod workload;

use super::Durability;
use super::report::{self, Report};
use super::threads::each_of;
use clap::{Args, ValueEnum};
use client::{Client, Pattern};
use connections::{Cluster, Connections};
use measurements::{Measurements, Outcome};
use nacre_cli::Server;
use parking_lot::Mutex;
pub use properties::Properties;
use rand::SeedableRng;
use rand::rngs::StdRng;
use retry::RetryPolicy;
use start::Start;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use sweep::Point;
use workload::Workload;

/// Names of the columns before and after the latencies.
const COLUMNS: [&str; 9] = [
    "workload",
    "round",
    "threads",
    "transaction",
    "operations",
    "ops_per_s",
    "in_flight",
    "avg_us",
    "p95_us",
];
const LAST_COLUMNS: [&str; 3] = ["retries", "given_up", "conflicts"];
/// Maximum number of clients that load.
const LOADERS_MAX: usize = 8;

#[derive(Args, Clone, Debug)]
pub struct Patterns {
    /// Workloads, separated by commas, which run in turn
    #[arg(value_enum, value_delimiter = ',', required = true)]
    workloads: Vec<Workload>,
    #[command(flatten)]
    server: Server,
    /// Bucket; it must exist in each cluster
    #[arg(long, default_value = "default")]
    bucket: String,
    /// A file of properties; may be given more than once
    #[arg(short = 'P', long, value_name = "FILE")]
    properties: Vec<PathBuf>,
    /// A property; may be given more than once: operationcount=1000, clusters=a,b, nodes.a=host:8091, tries=10, …
    #[arg(long, value_name = "NAME=VALUE")]
    property: Vec<String>,
    /// Concurrent clients; several values, separated by commas, are measured in turn (default: the
    /// property threadcount, else 1)
    #[arg(long, value_delimiter = ',')]
    threads: Vec<usize>,
    /// Measure each number of clients so many times; documents are loaded once
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    /// Do not load documents; they must exist already
    #[arg(long)]
    no_load: bool,
    /// Append a block for each run to this file, in the form of logs of YCSB
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Draw throughput and latency by the number of clients into this file, as SVG
    #[arg(long, value_name = "FILE")]
    curves: Option<PathBuf>,
    #[command(flatten)]
    files: report::Files,
}

/// The state that the workloads of one command share.
struct Runner<'a> {
    options: &'a Patterns,
    properties: &'a Properties,
    clusters: Arc<Vec<Cluster>>,
    policy: RetryPolicy,
    durability: Durability,
    start: Start,
    /// Number of transactions of a run.
    operations: u64,
    points: Vec<Point>,
    /// Seed of the clients' random numbers, so that no two generate the same UUIDs.
    seed: u64,
}

/// A step of a client, which receives its number.
type Step<'a> = dyn Fn(&mut Client, u64) -> Result<(), String> + Sync + 'a;

impl Patterns {
    pub fn run(&self) -> Result<(), String> {
        let properties = Properties::read(&self.properties, &self.property)?;
        for name in properties.unknown() {
            eprintln!("Ignoring the property {name}: it has no effect here.");
        }
        let threads = match self.threads.is_empty() {
            true => vec![properties.get("threadcount", 1)?],
            false => self.threads.clone(),
        };
        if self.rounds == 0 || threads.contains(&0) {
            return Err("--threads and --rounds begin at 1".to_owned());
        }
        let columns = COLUMNS.into_iter().chain(report::LATENCIES).chain(LAST_COLUMNS).collect();
        let mut report = Report::new(&self.files, columns);
        let mut runner = Runner::new(self, &properties)?;
        runner.print_settings()?;
        for workload in &self.workloads {
            runner.measure(*workload, &threads, &mut report)?;
        }
        if let Some(path) = &self.curves {
            std::fs::write(path, sweep::svg(&runner.points))
                .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        }
        report.finish()
    }
}

impl<'a> Runner<'a> {
    fn new(options: &'a Patterns, properties: &'a Properties) -> Result<Runner<'a>, String> {
        let clusters = Cluster::all(&options.server, &options.bucket, properties)?;
        let level = properties.text("durability").unwrap_or("none");
        let durability = Durability::from_str(level, false)
            .map_err(|_| format!("invalid value of the property durability: {level}"))?;
        Ok(Runner {
            options,
            properties,
            clusters: Arc::new(clusters),
            policy: RetryPolicy {
                tries: properties.count("tries", 10)?,
                max_backoff: Duration::from_millis(properties.get("maxBackoff", 1000)?),
                not_retried: properties.list("notRetried").into_iter().map(str::to_owned).collect(),
            },
            durability,
            start: Start::of(properties, SystemTime::now())?,
            operations: properties.count("operationcount", 1000)?,
            points: Vec::new(),
            seed: SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos() as u64),
        })
    }

    /// Prints the settings that affect the results to standard error, so that standard output contains only tables.
    fn print_settings(&self) -> Result<(), String> {
        for cluster in self.clusters.iter() {
            let (nodes, replicas) = cluster.size()?;
            eprintln!(
                "{}: {nodes} nodes, {replicas} replicas, bucket {}, durability {}, scan consistency {}, tries {}, longest pause {} ms",
                cluster.name,
                cluster.bucket(),
                self.properties.text("durability").unwrap_or("none"),
                self.properties.text("scanConsistency").unwrap_or("not_bounded"),
                self.policy.tries,
                self.policy.max_backoff.as_millis(),
            );
        }
        Ok(())
    }

    fn client(&mut self) -> Result<Client, String> {
        self.seed += 1;
        let mut connections = Connections::new(&self.clusters, self.durability);
        connections.open().map_err(|failure| failure.text)?;
        Ok(Client {
            connections,
            measurements: Measurements::default(),
            random: StdRng::seed_from_u64(self.seed),
            page: None,
            policy: self.policy.clone(),
        })
    }

    /// Runs `count` steps, divided equally among `threads` clients.
    fn phase(
        &mut self,
        threads: usize,
        count: u64,
        start: Start,
        step: &Step<'_>,
    ) -> Result<Outcome, String> {
        let clients: Vec<Client> =
            (0..threads).map(|_| self.client()).collect::<Result<_, String>>()?;
        let clients = Mutex::new(clients);
        start.wait();
        let (started, begun) = (SystemTime::now(), Instant::now());
        let bound = |thread: usize| count * thread as u64 / threads as u64;
        let work = |thread: usize| -> Result<(Measurements, Duration), String> {
            let mut client = clients.lock().pop().ok_or("there are as many clients as threads")?;
            for number in bound(thread)..bound(thread + 1) {
                step(&mut client, number)?;
            }
            Ok((client.measurements, begun.elapsed()))
        };
        let (mut measurements, mut at_work) = (Measurements::default(), Duration::ZERO);
        for (seen, elapsed) in each_of(threads, work)? {
            measurements.add(seen)?;
            at_work += elapsed;
        }
        Ok(Outcome { measurements, started, elapsed: begun.elapsed(), at_work, threads })
    }

    fn measure(
        &mut self,
        workload: Workload,
        threads: &[usize],
        report: &mut Report<'_>,
    ) -> Result<(), String> {
        let clusters = self.clusters.len();
        let pattern = workload.pattern(self.properties, &self.options.bucket, clusters)?;
        if !self.options.no_load {
            let outcome = self.load(&*pattern)?;
            if let Some(outcome) = outcome {
                self.show(&format!("{}:load", workload.name()), 0, &outcome, report)?;
            }
        }
        let flushes = self.properties.get("flushBucket", false)?;
        let operations = self.operations;
        for round in 1..=self.options.rounds {
            for (place, clients) in threads.iter().enumerate() {
                if flushes && (round > 1 || place > 0) {
                    self.clusters.iter().try_for_each(Cluster::flush)?;
                    self.load(&*pattern)?;
                }
                // Transaction numbers differ between runs, so that inserted documents differ.
                let runs = (round - 1) * threads.len() + place;
                let first = operations * runs as u64;
                let step = |client: &mut Client, number| pattern.transact(client, first + number);
                let start = if runs == 0 { self.start } else { Start::Now };
                let outcome = self.phase(*clients, operations, start, &step)?;
                self.show(&workload.name(), round, &outcome, report)?;
                self.note(workload, &outcome)?;
            }
        }
        Ok(())
    }

    /// Creates indexes and documents; returns `None` if the pattern needs none. A failed request ends the command.
    fn load(&mut self, pattern: &dyn Pattern) -> Result<Option<Outcome>, String> {
        let failed = |failure: retry::Failure| format!("loading failed: {}", failure.text);
        let mut client = self.client()?;
        pattern.prepare(&mut client).map_err(failed)?;
        let count = pattern.loads();
        let loaders = usize::try_from(count).unwrap_or(LOADERS_MAX).clamp(1, LOADERS_MAX);
        let step = |client: &mut Client, number| pattern.load(client, number);
        let outcome = self.phase(loaders, count, Start::Now, &step)?;
        if let Some(failure) = outcome.measurements.failure.clone() {
            return Err(failed(failure));
        }
        pattern.settle(&mut client).map_err(failed)?;
        Ok((count > 0).then_some(outcome))
    }

    fn show(
        &self,
        name: &str,
        round: usize,
        outcome: &Outcome,
        report: &mut Report<'_>,
    ) -> Result<(), String> {
        let Measurements { transactions, retries, conflicts, failure } = &outcome.measurements;
        if let Some(failure) = failure {
            eprintln!("{name}: the first failure was: {}", failure.text);
        }
        for (transaction, latencies) in transactions {
            let per_s = latencies.len() as f64 / outcome.elapsed.as_secs_f64().max(1e-9);
            let us = |ns: f64| format!("{:.1}", ns / 1000.0);
            let row = [
                name.to_owned(),
                round.to_string(),
                outcome.threads.to_string(),
                transaction.clone(),
                latencies.len().to_string(),
                format!("{per_s:.1}"),
                format!("{:.2}", outcome.in_flight()),
                us(latencies.mean()),
                us(latencies.value_at_quantile(0.95) as f64),
                retries.repeated.to_string(),
                retries.given_up.to_string(),
                conflicts.to_string(),
            ];
            let label = format!("{name} {transaction}, {} clients", outcome.threads);
            report.add(row.into(), label, latencies)?;
        }
        Ok(())
    }

    /// Records a run for the curves and the log.
    fn note(&mut self, workload: Workload, outcome: &Outcome) -> Result<(), String> {
        let count = outcome.measurements.count().max(1);
        let busy_s = outcome.busy_ns() / 1e9;
        self.points.push(Point {
            workload: workload.name(),
            threads: outcome.threads,
            throughput: outcome.throughput(),
            latency_ms: busy_s * 1000.0 / count as f64,
        });
        let Some(path) = &self.options.log else { return Ok(()) };
        let properties: String =
            self.options.property.iter().map(|one| format!(" -p {one}")).collect();
        let command =
            format!("-workload {} -threads {}{properties}", workload.name(), outcome.threads);
        let written = OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .and_then(|mut file| file.write_all(outcome.log(&command).as_bytes()));
        written.map_err(|error| format!("cannot write {}: {error}", path.display()))
    }
}
