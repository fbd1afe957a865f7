//! Latencies by transaction, and their log in the format of YCSB.

use super::retry::{Failure, Retries};
use crate::load::latencies;
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// First line of a block. Programs that read logs of YCSB recognise its first words.
const MARKER: &str = concat!("YCSB Client nacre-", env!("CARGO_PKG_VERSION"));

/// Measurements of one client or of all.
#[derive(Default)]
pub struct Measurements {
    /// Latencies in nanoseconds by transaction. Failed transactions have separate names, which end with `-FAILED`.
    pub transactions: BTreeMap<String, Histogram<u64>>,
    /// Requests that were repeated or abandoned.
    pub retries: Retries,
    /// Number of writes that were repeated because their document had changed.
    pub conflicts: u64,
    /// The first failure.
    pub failure: Option<Failure>,
}

impl Measurements {
    /// Records one transaction.
    ///
    /// # Errors
    /// Fails if there is no memory for latencies.
    pub fn record(
        &mut self,
        transaction: &str,
        latency: Duration,
        outcome: Result<(), Failure>,
    ) -> Result<(), String> {
        let name = match &outcome {
            Ok(()) => transaction.to_owned(),
            Err(_) => format!("{transaction}-FAILED"),
        };
        let ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.failure = self.failure.take().or(outcome.err());
        match self.transactions.get_mut(&name) {
            Some(known) => known.saturating_record(ns),
            None => {
                self.transactions.entry(name).or_insert(latencies()?).saturating_record(ns);
            }
        }
        Ok(())
    }

    /// Adds the measurements of another client.
    ///
    /// # Errors
    /// Fails if there is no memory for latencies.
    pub fn add(&mut self, other: Measurements) -> Result<(), String> {
        for (name, latencies) in other.transactions {
            match self.transactions.get_mut(&name) {
                Some(known) => known.add(latencies).map_err(|error| error.to_string())?,
                None => drop(self.transactions.insert(name, latencies)),
            }
        }
        self.retries.repeated += other.retries.repeated;
        self.retries.given_up += other.retries.given_up;
        self.conflicts += other.conflicts;
        self.failure = self.failure.take().or(other.failure);
        Ok(())
    }

    /// Returns the number of transactions, including failed ones.
    pub fn count(&self) -> u64 {
        self.transactions.values().map(Histogram::len).sum()
    }
}

/// A completed phase of a run.
pub struct Outcome {
    /// Measurements of all clients.
    pub measurements: Measurements,
    /// Time of the first request.
    pub started: SystemTime,
    /// Time from the first request to the last answer.
    pub elapsed: Duration,
    /// Sum over all clients of the time from the first request until the client had completed its share.
    pub at_work: Duration,
    /// Number of concurrent clients.
    pub threads: usize,
}

impl Outcome {
    /// Returns the number of transactions per second.
    pub fn throughput(&self) -> f64 {
        self.measurements.count() as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Returns the sum of all latencies in nanoseconds.
    pub fn busy_ns(&self) -> f64 {
        let all = self.measurements.transactions.values();
        all.map(|one| one.mean() * one.len() as f64).sum()
    }

    /// Returns the average number of transactions in progress while all clients work: the number of clients, unless clients spend
    /// time outside of transactions. Clients that contend for a document end at different times, so the time of each client is
    /// counted separately.
    pub fn in_flight(&self) -> f64 {
        self.busy_ns() * self.threads as f64 / self.at_work.as_nanos().max(1) as f64
    }

    /// Returns the outcome as a block of a log. `command` is the command line of the run.
    pub fn log(&self, command: &str) -> String {
        let since = self.started.duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut log = format!("{MARKER}\nCommand line: {command}\n");
        let mut add = |section: &str, metric: &str, value: String| {
            let _ = writeln!(log, "[{section}], {metric}, {value}");
        };
        add("OVERALL", "StartTime(us)", since.as_micros().to_string());
        add("OVERALL", "RunTime(ms)", format!("{:.3}", self.elapsed.as_secs_f64() * 1000.0));
        add("OVERALL", "Throughput(ops/sec)", self.throughput().to_string());
        add("OVERALL", "InFlight", self.in_flight().to_string());
        let Retries { repeated, given_up } = self.measurements.retries;
        for (metric, count) in [
            ("Retries", repeated),
            ("GivenUp", given_up),
            ("Conflicts", self.measurements.conflicts),
        ] {
            add("OVERALL", metric, count.to_string());
        }
        let us = |ns: u64| (ns as f64 / 1000.0).to_string();
        for (name, latencies) in &self.measurements.transactions {
            add(name, "Operations", latencies.len().to_string());
            add(name, "AverageLatency(us)", (latencies.mean() / 1000.0).to_string());
            add(name, "MinLatency(us)", us(latencies.min()));
            add(name, "MaxLatency(us)", us(latencies.max()));
            add(name, "95thPercentileLatency(us)", us(latencies.value_at_quantile(0.95)));
            add(name, "99thPercentileLatency(us)", us(latencies.value_at_quantile(0.99)));
        }
        log
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(transactions: &[(&str, u64, bool)]) -> Measurements {
        let mut seen = Measurements::default();
        for (name, us, is_done) in transactions {
            let failure = Failure::new("ETMPFAIL", "busy");
            let outcome = if *is_done { Ok(()) } else { Err(failure) };
            seen.record(name, Duration::from_micros(*us), outcome).unwrap();
        }
        seen
    }

    #[test]
    fn failed_transactions_have_a_separate_name() {
        let mut all = seen(&[("INSERT-USER", 100, true), ("INSERT-USER", 300, true)]);
        all.add(seen(&[("INSERT-USER", 9000, false), ("INSERT-USER", 200, true)])).unwrap();
        let counts: Vec<_> =
            all.transactions.iter().map(|(name, one)| (&name[..], one.len())).collect();
        assert_eq!(counts, [("INSERT-USER", 3), ("INSERT-USER-FAILED", 1)]);
        assert_eq!(all.failure.unwrap().text, "busy");
    }

    #[test]
    fn latencies_are_microseconds_in_the_log() {
        let measurements = seen(&[("GET-COMMENTS", 1000, true), ("GET-COMMENTS", 3000, true)]);
        let (started, elapsed) = (UNIX_EPOCH + Duration::from_secs(7), Duration::from_millis(4));
        let outcome = Outcome { measurements, started, elapsed, at_work: elapsed, threads: 1 };
        assert!((outcome.in_flight() - 1.0).abs() < 0.01, "{}", outcome.in_flight());
        let log = outcome.log("-threads 1");
        let number = |metric: &str| -> f64 {
            let line = log.lines().find(|line| line.contains(metric)).unwrap();
            line.rsplit_once(", ").unwrap().1.parse().unwrap()
        };
        // Latencies have three significant digits.
        assert!((number("AverageLatency(us)") - 2000.0).abs() < 3.0, "{log}");
        assert!((number("MaxLatency(us)") - 3000.0).abs() < 5.0, "{log}");
        assert!((number("Throughput(ops/sec)") - 500.0).abs() < 0.01, "{log}");
        assert!(log.contains("[OVERALL], StartTime(us), 7000000\n"), "{log}");
        assert!(
            log.starts_with("YCSB Client nacre-") && log.contains("\nCommand line: -threads 1\n")
        );
    }
    /// Two clients, one of which has completed its share after half of the time.
    #[test]
    fn a_finished_client_is_not_counted_as_in_flight() {
        let measurements = seen(&[("A", 1000, true), ("A", 3000, true), ("A", 2000, true)]);
        let (started, elapsed) = (UNIX_EPOCH, Duration::from_millis(4));
        let at_work = Duration::from_millis(6);
        let outcome = Outcome { measurements, started, elapsed, at_work, threads: 2 };
        assert!((outcome.in_flight() - 2.0).abs() < 0.01, "{}", outcome.in_flight());
    }
}
