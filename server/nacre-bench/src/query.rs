//! `nacre bench query`: executes one statement repeatedly with different arguments.

use super::http::QueryClient;
use super::load::latencies;
use super::report::{self, Report};
use super::threads::each_of;
use clap::Args;
use hdrhistogram::Histogram;
use nacre_cli::Server;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Names of the columns before the latencies.
const COLUMNS: [&str; 4] = ["clients", "operations", "ops_per_s", "bytes"];

#[derive(Args, Clone, Debug)]
pub struct Query {
    /// The statement, which is prepared first; its arguments are $1, $2, …
    statement: String,
    #[command(flatten)]
    server: Server,
    /// host:port of the query service, for one that no node names
    #[arg(long, hide = true)]
    query: Option<String>,
    /// An argument, as JSON; may be given more than once. {} in it is replaced by a random number
    /// for each request
    #[arg(long)]
    argument: Vec<String>,
    /// Exclusive upper bound of the random numbers
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    numbers: u64,
    /// Clients, each with one request in flight
    #[arg(long, default_value_t = 1)]
    clients: usize,
    /// Seconds to measure
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Scan consistency: not_bounded or request_plus
    #[arg(long, default_value = "not_bounded")]
    scan_consistency: String,
    /// Do not prepare the statement; send its text each time
    #[arg(long)]
    adhoc: bool,
    #[command(flatten)]
    files: report::Files,
}

/// Latencies of one client, and the total size of its answers in bytes.
type ClientResult = (Histogram<u64>, u64);

impl Query {
    pub fn run(&self) -> Result<(), String> {
        if self.clients == 0 || !(0.0..=1e6).contains(&self.seconds) {
            return Err("--clients begins at 1, --seconds goes from 0 to 1000000".into());
        }
        let address = self.address()?;
        let what = self.prepared(&address)?;
        let begun = Instant::now();
        let until = begun + Duration::from_secs_f64(self.seconds);
        let (mut all, mut bytes) = (latencies()?, 0);
        for (one, received) in
            each_of(self.clients, |number| self.client(number, &address, &what, until))?
        {
            all.add(one).map_err(|error| error.to_string())?;
            bytes += received;
        }
        let per_s = all.len() as f64 / begun.elapsed().as_secs_f64();
        let columns = COLUMNS.into_iter().chain(report::LATENCIES).collect();
        let mut report = Report::new(&self.files, columns);
        let row = [
            self.clients.to_string(),
            all.len().to_string(),
            format!("{per_s:.0}"),
            bytes.checked_div(all.len()).unwrap_or(0).to_string(),
        ];
        report.add(row.into(), format!("{} clients: {per_s:.0}/s", self.clients), &all)?;
        report.finish()
    }

    fn address(&self) -> Result<String, String> {
        if let Some(address) = &self.query {
            return Ok(address.clone());
        }
        let url = self.server.queries()?;
        url.strip_prefix("http://").map(str::to_owned).ok_or_else(|| {
            "bench query does not speak TLS: name the node as http://host:8091".to_owned()
        })
    }

    fn connect(&self, address: &str) -> Result<QueryClient, String> {
        let (user, password) = self.server.login()?;
        QueryClient::connect(address, user, password)
    }

    /// Returns the members of a request that identify the statement.
    fn prepared(&self, address: &str) -> Result<String, String> {
        if self.adhoc {
            return Ok(format!("\"statement\":{}", json!(self.statement)));
        }
        let prepare = json!({"statement": format!("PREPARE {}", self.statement)}).to_string();
        let rows = self.connect(address)?.rows(&prepare)?;
        let name = rows.first().map_or(&Value::Null, |row| &row["name"]);
        Ok(format!("\"prepared\":{name}"))
    }

    fn client(
        &self,
        number: usize,
        address: &str,
        what: &str,
        until: Instant,
    ) -> Result<ClientResult, String> {
        let mut client = self.connect(address)?;
        let mut random = StdRng::seed_from_u64(number as u64);
        let (mut latencies, mut bytes) = (latencies()?, 0);
        while Instant::now() < until {
            let mut argument = |text: &String| {
                text.replace("{}", &random.random_range(0..self.numbers).to_string())
            };
            let arguments: Vec<_> = self.argument.iter().map(&mut argument).collect();
            let request = format!(
                "{{{what},\"args\":[{}],\"scan_consistency\":\"{}\"}}",
                arguments.join(","),
                self.scan_consistency
            );
            let begun = Instant::now();
            let answer = client.ask(&request)?;
            latencies.saturating_record(begun.elapsed().as_nanos() as u64);
            bytes += answer.len() as u64;
            // The status follows the rows.
            let tail = String::from_utf8_lossy(&answer[answer.len().saturating_sub(1000)..]);
            if !tail.contains("\"status\":\"success\"") {
                return Err(format!("the server refused {request}: {tail}"));
            }
        }
        Ok((latencies, bytes))
    }
}
