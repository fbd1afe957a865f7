//! What a node measures of itself.
//!
//! A name is a word, or a word and what it is about: `reads:travel` are reads of the bucket `travel`.

use crate::ProcessUsage;
use nacre_bucket::Bucket;
use nacre_node::Node;
use nacre_plugins_service::Deployment;
use nacre_plugins_service::NodePlugins;
use nacre_query_service::NodeQueries;
use nacre_types::Vbid;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A number that was read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Reading {
    /// A number that counts by itself.
    Gauge(f64),
    /// A number that only grows: shown as its growth a second.
    Counter(f64),
}

/// What was read at one time.
pub(crate) type Readings = Vec<(String, Reading)>;

/// Reads all that a node measures.
pub(crate) fn read(node: &Arc<Node>, process: ProcessUsage) -> Readings {
    use Reading::{Counter, Gauge};
    let vitals = node.queries().vitals();
    let mut readings: Readings = vec![
        // Percent of one processor.
        ("cpu".into(), Counter(process.cpu_seconds * 100.0)),
        ("rss".into(), Gauge(process.resident_bytes as f64)),
        ("queries".into(), Counter(vitals.ended() as f64)),
        ("query_failures".into(), Counter(vitals.failed() as f64)),
        ("queries_active".into(), Gauge(vitals.begun().saturating_sub(vitals.ended()) as f64)),
        ("query_seconds".into(), Counter(vitals.elapsed_ns() as f64 / 1e9)),
    ];
    if let Some(limit) = node.memory().limit_bytes() {
        readings.push(("memory_limit".into(), Gauge(limit as f64)));
    }
    let cluster = node.cluster();
    for bucket in cluster.buckets.keys().filter_map(|name| node.bucket(name)) {
        of_bucket(&bucket, &mut readings);
    }
    for deployment in node.plugins().deployments() {
        of_deployment(&deployment, &mut readings);
    }
    readings
}

fn of_bucket(bucket: &Bucket, readings: &mut Readings) {
    use Reading::{Counter, Gauge};
    let counts = bucket.operation_counts();
    let (items, memory_bytes) = bucket.usage();
    let disk = bucket.disk_usage();
    let mut add = |word: &str, reading| readings.push((format!("{word}:{}", bucket.name), reading));
    add("reads", Counter(counts.reads as f64));
    add("writes", Counter(counts.writes as f64));
    add("deletes", Counter(counts.deletes as f64));
    add("items", Gauge(items as f64));
    add("memory", Gauge(memory_bytes as f64));
    add("quota", Gauge(bucket.quota_bytes() as f64));
    add("disk", Gauge(disk.disk_bytes as f64));
    let served = bucket.served_seqnos();
    let mutations: u64 = served.iter().map(|seqno| seqno.0).sum();
    add("mutations", Counter(mutations as f64));
    if bucket.store.is_some() {
        let behind = |(index, high): (usize, &nacre_types::Seqno)| {
            let vbid = Vbid(u16::try_from(index).unwrap_or_default());
            high.0.saturating_sub(bucket.persisted.get(vbid).0)
        };
        let queue: u64 = served.iter().enumerate().map(behind).sum();
        add("disk_queue", Gauge(queue as f64));
    }
}

fn of_deployment(deployment: &Deployment, readings: &mut Readings) {
    use Reading::{Counter, Gauge};
    let status = deployment.status();
    let mut add = |word: &str, reading| {
        readings.push((format!("{word}:{}", deployment.name), reading));
    };
    let calls = status.writer.calls + status.readers.calls;
    let failures = status.writer.failures + status.readers.failures;
    let elapsed_ns = status.writer.elapsed_ns + status.readers.elapsed_ns;
    add("plugin_lag", Gauge(deployment.lag() as f64));
    add("plugin_documents", Counter(status.documents as f64));
    add("plugin_calls", Counter(calls as f64));
    add("plugin_failures", Counter(failures as f64));
    // Percent of one processor.
    add("plugin_cpu", Counter(elapsed_ns as f64 / 1e7));
    add("plugin_memory", Gauge(status.memory_bytes as f64));
    add("plugin_state", Gauge(status.state_bytes as f64));
    for (word, usage) in [("plugin_p99", &status.writer), ("plugin_p99_read", &status.readers)] {
        if let Some(ns) = usage.latency.quantile_ns(0.99) {
            add(word, Gauge(ns as f64 / 1e6));
        }
    }
}

/// Turns counters into rates.
#[derive(Debug, Default)]
pub(crate) struct Rates {
    before: BTreeMap<String, f64>,
    at_ns: Option<u64>,
}

impl Rates {
    /// Returns what was read with counters as their growth a second since the last call; without those that are read for the first
    /// time or have begun again.
    pub fn of(&mut self, readings: Readings, now_ns: u64) -> Vec<(String, f64)> {
        let elapsed_s = self.at_ns.map(|before| now_ns.saturating_sub(before) as f64 / 1e9);
        self.at_ns = Some(now_ns);
        let mut before = std::mem::take(&mut self.before);
        let mut values = Vec::with_capacity(readings.len());
        for (name, reading) in readings {
            match reading {
                Reading::Gauge(value) => values.push((name, value)),
                Reading::Counter(value) => {
                    let rate =
                        before.remove(&name).zip(elapsed_s).and_then(|(before, elapsed_s)| {
                            (value >= before && elapsed_s > 0.0)
                                .then(|| (value - before) / elapsed_s)
                        });
                    self.before.insert(name.clone(), value);
                    values.extend(rate.map(|rate| (name, rate)));
                }
            }
        }
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_become_rates_and_begin_again_without_a_spike() {
        let mut rates = Rates::default();
        let counter = |value| vec![("a".to_owned(), Reading::Counter(value))];
        let second = 1_000_000_000;
        assert_eq!(rates.of(counter(10.0), second), []);
        assert_eq!(rates.of(counter(30.0), 3 * second), [("a".to_owned(), 10.0)]);
        assert_eq!(rates.of(counter(5.0), 4 * second), [], "the bucket was flushed");
        assert_eq!(rates.of(counter(6.0), 4 * second), [], "no time has passed");
        let gauge = vec![("b".to_owned(), Reading::Gauge(7.0))];
        assert_eq!(rates.of(gauge, 5 * second), [("b".to_owned(), 7.0)]);
        assert_eq!(rates.of(counter(9.0), 6 * second), [], "it was away in between");
    }
}
