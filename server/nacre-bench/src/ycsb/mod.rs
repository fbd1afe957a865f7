//! `nacre bench ycsb`: the workloads A to F of YCSB, against a node or PostgreSQL.
//!
//! [`workload`] draws operations, a [`Store`] executes them, and each client has one operation in flight, as in YCSB: as a
//! thread with a connection, or as one of several that share a connection ([`shared`]). Records have ten fields of 100
//! bytes; an update writes one of them.

mod couchbase;
mod postgres;
mod shared;
mod store;
mod workload;

use super::Durability;
use super::load::latencies;
use super::report::{self, Report};
use super::threads::each_of;
use clap::{Args, ValueEnum};
use couchbase::Couchbase;
use hdrhistogram::Histogram;
use postgres::Postgres;
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};
use store::{Login, Scans, Store};
use workload::{Operation, Popularity, Records, Source, Task, Workload};

/// Number of threads that load records.
const LOADERS: usize = 4;

/// Names of the columns before the latencies.
const COLUMNS: [&str; 5] = ["workload", "operation", "clients", "operations", "ops_per_s"];

#[derive(Args, Clone, Debug)]
pub struct Ycsb {
    /// Database to measure
    #[arg(long, value_enum, default_value = "couchbase")]
    protocol: Protocol,
    /// Address of the server's key-value port
    #[arg(long, default_value = "127.0.0.1:11210")]
    server: String,
    /// Address for queries, which workload E needs
    #[arg(long, default_value = "127.0.0.1:8093")]
    query: String,
    /// User
    #[arg(long, default_value = "Administrator")]
    user: String,
    /// Password of the user; not used for PostgreSQL
    #[arg(long, env = "NACRE_PASSWORD", hide_env_values = true, default_value = "")]
    password: String,
    /// Bucket, or database of PostgreSQL; it must exist
    #[arg(long, default_value = "bench")]
    bucket: String,
    /// Workloads, separated by commas, which run in turn
    #[arg(long, value_enum, value_delimiter = ',', default_value = "a,b,c,f,d,e")]
    workload: Vec<Workload>,
    /// Number of records to load
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=u64::from(u32::MAX)))]
    records: u64,
    /// Clients, each with one operation in flight
    #[arg(long, default_value_t = 16)]
    clients: usize,
    /// Let all clients share one connection, as in an application with an SDK, instead of one
    /// connection each
    #[arg(long)]
    share: bool,
    /// Seconds to measure each workload; 0 only loads
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// End a workload after so many operations, even if time is left
    #[arg(long)]
    operations: Option<u64>,
    /// Distribution of records (default: the one of each workload)
    #[arg(long, value_enum)]
    popularity: Option<Popularity>,
    /// Source of workload E's records
    #[arg(long, value_enum, default_value = "documents")]
    scans: Scans,
    /// Durability level of writes
    #[arg(long, value_enum, default_value = "none")]
    durability: Durability,
    /// A setting of PostgreSQL for these connections, such as synchronous_commit=off
    #[arg(long, default_value = "")]
    setting: String,
    /// Do not load records; they must exist already
    #[arg(long)]
    no_load: bool,
    #[command(flatten)]
    files: report::Files,
}

/// Kind of a server.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// A node, or Couchbase
    Couchbase,
    /// PostgreSQL, which has to trust who connects
    Postgres,
}

/// Options that all clients share.
struct Run<'a> {
    workload: Workload,
    records: &'a Records,
    text: &'a [u8],
    popularity: Popularity,
    until: Instant,
    /// Number of operations that may still begin.
    left: AtomicU64,
}

/// Latencies in nanoseconds, by operation.
#[derive(Default)]
struct Latencies(BTreeMap<Operation, Histogram<u64>>);

impl Latencies {
    fn record(&mut self, operation: Operation, latency: Duration) -> Result<(), String> {
        let latency = latency.as_nanos() as u64;
        match self.0.get_mut(&operation) {
            Some(known) => known.saturating_record(latency),
            None => self.0.entry(operation).or_insert(latencies()?).saturating_record(latency),
        }
        Ok(())
    }

    fn add(&mut self, other: Latencies) -> Result<(), String> {
        for (operation, latencies) in other.0 {
            match self.0.get_mut(&operation) {
                Some(known) => known.add(latencies).map_err(|error| error.to_string())?,
                None => drop(self.0.insert(operation, latencies)),
            }
        }
        Ok(())
    }
}

impl Ycsb {
    pub fn run(&self) -> Result<(), String> {
        if self.clients == 0 || !(0.0..=1e6).contains(&self.seconds) {
            return Err("--clients begins at 1, --seconds goes from 0 to 1000000".into());
        }
        if self.share
            && (self.protocol != Protocol::Couchbase || self.workload.contains(&Workload::E))
        {
            return Err(
                "--share is for keys of a node: neither for PostgreSQL nor for workload e".into()
            );
        }
        let salt = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos() as u64);
        // Record numbers are below 2^32, so keys of two runs differ.
        let records = Records::new(self.records, salt << 32);
        let text = workload::text(&mut StdRng::seed_from_u64(7));
        let columns = COLUMNS.into_iter().chain(report::LATENCIES).collect();
        let mut report = Report::new(&self.files, columns);
        if !self.no_load {
            self.load(&records, &text).map_err(|reason| format!("loading failed: {reason}"))?;
        }
        for workload in self.workload.iter().filter(|_| self.seconds > 0.0) {
            let (latencies, elapsed) = self.measure(*workload, &records, &text)?;
            self.show(*workload, &latencies, elapsed, &mut report)?;
        }
        report.finish()
    }

    fn login(&self, scans: bool) -> Login {
        Login {
            server: self.server.clone(),
            query: self.query.clone(),
            user: self.user.clone(),
            password: self.password.clone(),
            database: self.bucket.clone(),
            scans: scans.then_some(self.scans),
        }
    }

    fn connect(&self, scans: bool) -> Result<Box<dyn Store>, String> {
        let login = self.login(scans);
        Ok(match self.protocol {
            Protocol::Couchbase => Box::new(Couchbase::connect(&login, self.durability as u8)?),
            Protocol::Postgres => Box::new(Postgres::connect(&login, &self.setting)?),
        })
    }

    fn load(&self, records: &Records, text: &[u8]) -> Result<(), String> {
        let bound = |loader: usize| self.records * loader as u64 / LOADERS as u64;
        let load = |loader: usize| {
            let random = StdRng::seed_from_u64(loader as u64);
            let mut source = Source::new(records, text, Popularity::Uniform, random)?;
            let numbers = bound(loader)..bound(loader + 1);
            let mut all = numbers.map(|number| (records.key(number), source.record()));
            self.connect(false)?.load(&mut all)
        };
        // The first client creates the table, so that others do not create it concurrently.
        drop(self.connect(false)?);
        each_of(LOADERS, load)?;
        self.connect(self.workload.contains(&Workload::E))?.ready()
    }

    /// Returns the latencies of all clients, and the time since they were connected.
    fn measure(
        &self,
        workload: Workload,
        records: &Records,
        text: &[u8],
    ) -> Result<(Latencies, Duration), String> {
        let scans = workload == Workload::E;
        let run = |begun: Instant| Run {
            workload,
            records,
            text,
            popularity: self.popularity.unwrap_or(workload.popularity()),
            until: begun + Duration::from_secs_f64(self.seconds),
            left: AtomicU64::new(self.operations.unwrap_or(u64::MAX)),
        };
        if self.share {
            let store = Couchbase::connect(&self.login(scans), self.durability as u8)?;
            let begun = Instant::now();
            return Ok((shared::run(&run(begun), self.clients, store)?, begun.elapsed()));
        }
        let stores =
            (0..self.clients).map(|_| self.connect(scans)).collect::<Result<Vec<_>, _>>()?;
        let begun = Instant::now();
        let (stores, run) = (parking_lot::Mutex::new(stores), run(begun));
        let client = |number: usize| {
            let store = stores.lock().pop().ok_or("there are as many stores as clients")?;
            run.client(number, store)
        };
        let mut all = Latencies::default();
        for one in each_of(self.clients, client)? {
            all.add(one)?;
        }
        Ok((all, begun.elapsed()))
    }

    fn show(
        &self,
        workload: Workload,
        latencies: &Latencies,
        elapsed: Duration,
        report: &mut Report<'_>,
    ) -> Result<(), String> {
        let mut total = super::load::latencies()?;
        for one in latencies.0.values() {
            total.add(one).map_err(|error| error.to_string())?;
        }
        let rows = latencies.0.iter().map(|(operation, one)| (operation.name(), one));
        for (name, latencies) in rows.chain([("all", &total)]) {
            let per_s = latencies.len() as f64 / elapsed.as_secs_f64().max(1e-9);
            let row = [
                workload.name().to_owned(),
                name.to_owned(),
                self.clients.to_string(),
                latencies.len().to_string(),
                format!("{per_s:.0}"),
            ];
            let label = format!("{} {name}: {per_s:.0}/s", workload.name());
            report.add(row.into(), label, latencies)?;
        }
        Ok(())
    }
}

impl<'a> Run<'a> {
    /// Returns the source of operations of a client.
    fn source(&self, client: usize) -> Result<Source<'a>, String> {
        let random = StdRng::seed_from_u64(client as u64 ^ (self.workload as u64) << 32);
        Source::new(self.records, self.text, self.popularity, random)
    }

    /// Returns the next operation, unless the run is over.
    fn task(&self, source: &mut Source<'a>) -> Option<Task<'a>> {
        let take = |left: u64| left.checked_sub(1);
        let may = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        (may.is_ok() && Instant::now() < self.until).then(|| source.task(self.workload))
    }

    /// Returns the latencies of a client with its own connection.
    fn client(&self, number: usize, mut store: Box<dyn Store>) -> Result<Latencies, String> {
        let (mut source, mut all) = (self.source(number)?, Latencies::default());
        while let Some(task) = self.task(&mut source) {
            let begun = Instant::now();
            if task.operation == Operation::Scan {
                there(store.scan(&task.key, task.scanned)? > 0, &task)?;
            }
            let mut taken = 0;
            while let Some(step) = task.step(taken) {
                there(store.call(&task.key, step)?, &task)?;
                taken += 1;
            }
            all.record(task.operation, begun.elapsed())?;
            self.records.done(&task);
        }
        Ok(all)
    }
}

fn there(found: bool, task: &Task<'_>) -> Result<(), String> {
    let key = &task.key;
    found
        .then_some(())
        .ok_or_else(|| format!("{key} is not there: load first, as many records as are read"))
}
