//! `nacre bench`: an application-like load against one server, the same for every server that speaks the protocol.
//!
//! [`load`] keeps requests in flight on many connections, [`wire`] writes and reads them, [`report`] shows the results.
//! A closed loop (the default) sends a request after each answer and measures the maximum rate of a server; an open
//! loop (`--rate`) sends at fixed times, whether or not the server keeps up, and measures latency from the time at
//! which a request was due. A server that stalls for a second then shows a latency of a second, as its users would see
//! it.
#![expect(
    clippy::disallowed_methods,
    reason = "tools of the command line read files, clocks and sockets"
)]

mod extract;
mod hash;
mod http;
mod load;
mod patterns;
mod plot;
mod query;
mod report;
mod threads;
mod wire;
mod ycsb;

use clap::{Args, Subcommand, ValueEnum};
use load::Outcome;
use nacre_cli::Server;
use nacre_client::BASIC_FEATURES;
use wire::{Connection, Protocol};

/// Options of `nacre bench`.
#[derive(Args, Clone, Debug)]
pub struct Bench {
    #[command(subcommand)]
    what: Benchmark,
}

#[derive(Subcommand, Clone, Debug)]
enum Benchmark {
    /// Read and write by key; one line for each combination of connections, depth and size:
    /// operations per second and latencies
    Kv(Kv),
    /// Run YCSB's workloads A to F; one line for each kind of operation: operations per second and
    /// latencies
    Ycsb(ycsb::Ycsb),
    /// Repeat one SQL++ statement: requests per second and latencies
    Query(query::Query),
    /// Compare naive and scalable data models: keys, lookups, comments, feeds; one line for each
    /// transaction
    Patterns(patterns::Patterns),
    /// Extract the runs in logs of YCSB (old and new) or of `bench patterns` as CSV: one line for
    /// each run
    Extract(extract::Extract),
}

#[derive(Args, Clone, Debug)]
struct Kv {
    /// Address of the server: with --user any node, as for other commands; otherwise host:port of
    /// any server with this protocol
    #[arg(long, env = "NACRE_SERVER", default_value = "127.0.0.1:11210")]
    server: String,
    /// Protocol of the server
    #[arg(long, value_enum, default_value = "memcached")]
    protocol: Protocol,
    /// Log in as this user; leave out for servers without login
    #[arg(long)]
    user: Option<String>,
    /// Password of the user
    #[arg(long, env = "NACRE_PASSWORD", hide_env_values = true, default_value = "")]
    password: String,
    /// Bucket, after a login
    #[arg(long, default_value = "bench")]
    bucket: String,
    /// Connections; several values, separated by commas, are measured in turn, as for depth and
    /// value bytes
    #[arg(long, value_delimiter = ',', default_value = "16")]
    connections: Vec<usize>,
    /// Requests in flight on each connection
    #[arg(long, value_delimiter = ',', default_value = "16")]
    depth: Vec<usize>,
    /// Bytes of a value
    #[arg(long, value_delimiter = ',', default_value = "1024")]
    value_bytes: Vec<usize>,
    /// Requests a second on all connections together; without it, each reply is followed by the
    /// next request at once
    #[arg(long)]
    rate: Option<f64>,
    /// Seconds to measure; 0 only loads
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Number of keys, from key_000000000000
    #[arg(long, default_value_t = 100_000)]
    keys: u32,
    /// Distribution of keys
    #[arg(long, value_enum, default_value = "zipfian")]
    popularity: Popularity,
    /// Share of reads, in percent
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(0..=100))]
    read_percent: u32,
    /// Durability level of writes; other levels than none need a login
    #[arg(long, value_enum, default_value = "none")]
    durability: Durability,
    /// Do not write all keys first; they must exist already
    #[arg(long)]
    no_load: bool,
    #[command(flatten)]
    files: report::Files,
}

/// Distribution of keys.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Popularity {
    /// A few keys get most requests, by a zipfian distribution of 0.99, as in YCSB
    Zipfian,
    /// All keys alike
    Uniform,
}

/// Durability level of writes. The numbers are those of the protocol.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
#[value(rename_all = "camelCase")]
enum Durability {
    /// In memory
    None = 0,
    /// In the memory of a majority
    Majority = 1,
    /// In the memory of a majority, and on the disk of the active node
    MajorityAndPersistToActive = 2,
    /// On the disk of a majority
    PersistToMajority = 3,
}

/// Names of the columns before and after the latencies.
const COLUMNS: [&str; 6] =
    ["connections", "depth", "value_bytes", "read_percent", "operations", "ops_per_s"];
const LAST_COLUMNS: [&str; 2] = ["retries", "mib_per_s"];

/// One combination of parameters to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    connections: usize,
    depth: usize,
    value_bytes: usize,
}

/// Runs a benchmark.
///
/// # Errors
/// A message for the terminal.
pub fn bench(options: &Bench) -> Result<(), String> {
    match &options.what {
        Benchmark::Kv(options) => options.run(),
        Benchmark::Ycsb(options) => options.run(),
        Benchmark::Query(options) => options.run(),
        Benchmark::Patterns(options) => options.run(),
        Benchmark::Extract(options) => options.run(),
    }
}

impl Kv {
    fn run(&self) -> Result<(), String> {
        self.validate()?;
        let columns = COLUMNS.into_iter().chain(report::LATENCIES).chain(LAST_COLUMNS).collect();
        let mut report = report::Report::new(&self.files, columns);
        let found = self.with_address()?;
        for &value_bytes in &self.value_bytes {
            if !self.no_load {
                let outcome = load::fill(&found, value_bytes)?;
                if self.seconds == 0.0 {
                    self.show(&mut report, load::filling(value_bytes), &outcome)?;
                }
            }
            if self.seconds == 0.0 {
                continue;
            }
            for &connections in &self.connections {
                for &depth in &self.depth {
                    let cell = Cell { connections, depth, value_bytes };
                    self.show(&mut report, cell, &load::measure(&found, cell)?)?;
                }
            }
        }
        report.finish()
    }

    fn show(
        &self,
        report: &mut report::Report<'_>,
        cell: Cell,
        outcome: &Outcome,
    ) -> Result<(), String> {
        let Cell { connections, depth, value_bytes } = cell;
        let operations = outcome.latencies.len();
        let per_s = operations as f64 / outcome.elapsed.as_secs_f64().max(1e-9);
        let row = [
            connections.to_string(),
            depth.to_string(),
            value_bytes.to_string(),
            if self.seconds == 0.0 { 0 } else { self.read_percent }.to_string(),
            operations.to_string(),
            format!("{per_s:.0}"),
            outcome.retries.to_string(),
            format!("{:.1}", per_s * value_bytes as f64 / f64::from(1 << 20)),
        ];
        let label = format!("{connections} x {depth}, {value_bytes} B: {per_s:.0}/s");
        report.add(row.into(), label, &outcome.latencies)
    }

    fn validate(&self) -> Result<(), String> {
        let refused = |reason: &str| Err(reason.to_owned());
        if self.keys == 0 || self.connections.contains(&0) || self.depth.contains(&0) {
            return refused("--keys, --connections and --depth begin at 1");
        }
        if self.value_bytes.iter().any(|bytes| *bytes > nacre_protocol::BODY_BYTES_MAX) {
            return refused("--value-bytes is more than a frame can carry");
        }
        if !(0.0..=1e6).contains(&self.seconds) {
            return refused("--seconds goes from 0 to 1000000");
        }
        if self.rate.is_some_and(|rate| !(0.001..=1e9).contains(&rate)) {
            return refused("--rate goes from 0.001 to 1000000000");
        }
        if self.durability != Durability::None && self.user.is_none() {
            return refused("--durability needs a login: use --user and --password");
        }
        if self.user.is_some() && self.protocol == Protocol::Redis {
            return refused("--user is a login of the memcached protocol: leave it out");
        }
        Ok(())
    }

    /// Returns the options with the address of the key-value service as the server.
    fn with_address(&self) -> Result<Kv, String> {
        let Some(user) = &self.user else {
            return match self.server.contains("://") {
                true => Err("a node reports its ports only after a login: use --user".to_owned()),
                false => Ok(self.clone()),
            };
        };
        let keys = Server::new(&self.server, user, &self.password)?.keys()?;
        if keys.is_encrypted {
            return Err("bench kv does not speak TLS: name the node as http://host:8091".to_owned());
        }
        Ok(Kv { server: keys.address, ..self.clone() })
    }

    fn connect(&self) -> Result<Connection, String> {
        let connection = match &self.user {
            Some(user) => {
                let login = [user, self.password.as_str(), &self.bucket];
                nacre_client::Connection::connect(&self.server, None, login, BASIC_FEATURES)
            }
            None => nacre_client::Connection::open(&self.server),
        }?;
        Connection::new(connection, self.protocol, self.user.is_some(), self.durability as u8)
    }
}
