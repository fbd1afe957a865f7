//! Questions about the measurements of the nodes over a period, in the form in which Couchbase answers them from its
//! Prometheus.
//!
//! [`Question`] reads a question, and [`answers`] evaluates questions for a user who may see a part of the metrics.

mod function;
mod question;

pub use question::{Mistake, Question};

use crate::{Console, History};
use function::{Aggregate, Function, Kind, Window};
use nacre_node::Node;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Maximum number of values in an answer.
const VALUES_MAX: usize = 200_000;
/// Time in seconds after which a measurement is no longer the value of a metric, at least.
const STALE_S: u64 = 30;
/// Periods in seconds that the nodes keep with different precision.
const RANGES_S: [u64; 4] = [600, 3_600, 86_400, 7 * 86_400];

/// A metric.
struct Metric {
    /// The series of the nodes. A series of a bucket has the name of the bucket after a colon.
    word: &'static str,
    /// Name in the response.
    name: &'static str,
    /// Other labels.
    labels: &'static [(&'static str, &'static str)],
    kind: Kind,
    /// Unit of the series in units of the metric.
    factor: f64,
}

const fn metric(
    word: &'static str,
    name: &'static str,
    labels: &'static [(&'static str, &'static str)],
    kind: Kind,
) -> Metric {
    Metric { word, name, labels, kind, factor: 1.0 }
}

const KV: (&str, &str) = ("instance", "kv");
const QUERY: (&str, &str) = ("instance", "n1ql");
const NODE: (&str, &str) = ("instance", "ns_server");
const PROCESS: &[(&str, &str)] = &[NODE, ("category", "system-processes"), ("proc", "nacre")];

/// The metrics. Source of names and labels: Couchbase's metrics reference.
const METRICS: &[Metric] = &[
    metric("reads", "kv_ops", &[KV, ("op", "get")], Kind::Rate),
    metric("writes", "kv_ops", &[KV, ("op", "set")], Kind::Rate),
    metric("deletes", "kv_ops", &[KV, ("op", "delete")], Kind::Rate),
    metric("items", "kv_curr_items", &[KV], Kind::Gauge),
    metric("memory", "kv_mem_used_bytes", &[KV], Kind::Gauge),
    metric("quota", "kv_ep_max_size", &[KV], Kind::Gauge),
    metric("disk_queue", "kv_disk_write_queue", &[KV], Kind::Gauge),
    metric("disk", "couch_docs_actual_disk_size", &[NODE], Kind::Gauge),
    metric("queries", "n1ql_requests", &[QUERY], Kind::Rate),
    metric("query_failures", "n1ql_errors", &[QUERY], Kind::Rate),
    metric("queries_active", "n1ql_active_requests", &[QUERY], Kind::Gauge),
    Metric {
        word: "query_seconds",
        name: "n1ql_request_time",
        labels: &[QUERY],
        kind: Kind::Rate,
        factor: 1e9,
    },
    metric("cpu", "sysproc_cpu_utilization", PROCESS, Kind::Gauge),
    metric("rss", "sysproc_mem_resident", PROCESS, Kind::Gauge),
];

type Labels = BTreeMap<String, String>;

/// The measurements of a metric on one node.
struct Series {
    labels: Labels,
    kind: Kind,
    /// Times in seconds and values.
    samples: Vec<(u64, f64)>,
    /// Time in seconds for which a measurement counts.
    fresh_s: u64,
}

/// Values by time in seconds.
type Values = BTreeMap<u64, f64>;

/// The metrics that a user may see.
#[derive(Clone, Debug, Default)]
pub struct Sight {
    /// True if the user sees the metrics of nodes.
    pub nodes: bool,
    /// The buckets whose metrics the user sees.
    pub buckets: BTreeSet<String>,
}

impl Sight {
    fn covers(&self, bucket: Option<&str>) -> bool {
        bucket.map_or(self.nodes, |bucket| self.buckets.contains(bucket))
    }
}

/// Returns true if all of these are names of functions that a question can apply.
pub fn are_functions(names: &[String]) -> bool {
    names.iter().all(|name| Function::named(name).is_some())
}

/// Returns the shortest period that reaches back to the beginning of a question.
fn range_of(question: &Question, now_s: u64) -> u64 {
    let window_s = question.window_s.max(STALE_S);
    let reach_s = now_s.saturating_sub(question.start_s).saturating_add(window_s);
    let range_s = RANGES_S.into_iter().find(|range_s| *range_s >= reach_s);
    range_s.unwrap_or(RANGES_S[RANGES_S.len() - 1])
}

/// Answers questions in their order, each about the nodes that `names` lists for it: management addresses, and names for
/// the client. Blocks, for some seconds at most.
///
/// # Errors
/// [`Mistake`] if the answers could be too large together.
pub fn answers(
    node: &Arc<Node>,
    sight: &Sight,
    asked: &[Question],
    names: &[Vec<(String, String)>],
) -> Result<Vec<Value>, Mistake> {
    let now_s = u64::from(node.now().unix_s());
    let ranges_s = asked.iter().map(|question| range_of(question, now_s)).collect();
    let measured = Measured::read(node, sight, ranges_s);
    let mut values_left = VALUES_MAX;
    let mut answers = Vec::new();
    for (question, names) in asked.iter().zip(names) {
        let range_s = range_of(question, now_s);
        answers.push(measured.answer(question, range_s, names, sight, &mut values_left)?);
    }
    Ok(answers)
}

/// The measurements of all nodes.
struct Measured {
    /// By period, the measurements of each node that has answered, by its management address.
    histories: BTreeMap<u64, BTreeMap<String, History>>,
    /// Management addresses of the nodes that have not answered.
    missing: BTreeSet<String>,
}

impl Measured {
    /// Asks all nodes. Blocks, for about a second at most for each period.
    fn read(node: &Arc<Node>, sight: &Sight, ranges_s: BTreeSet<u64>) -> Measured {
        let mut measured = Measured { histories: BTreeMap::new(), missing: BTreeSet::new() };
        let console: Option<&Console> = node.service();
        let Some(console) = console else { return measured };
        let mut words: Vec<String> = METRICS.iter().map(|metric| metric.word.to_owned()).collect();
        words.retain(|word| sight.nodes || is_of_buckets(word));
        for range_s in ranges_s {
            let (histories, missing) = console.history(node, range_s, &words);
            measured.histories.insert(range_s, histories);
            measured.missing.extend(missing);
        }
        measured
    }

    /// Answers a question about the nodes with these management addresses and names.
    ///
    /// # Errors
    /// A mistake if the answer could have more than `values_left` values, from which its maximum is subtracted.
    fn answer(
        &self,
        question: &Question,
        range_s: u64,
        names: &[(String, String)],
        sight: &Sight,
        values_left: &mut usize,
    ) -> Result<Value, Mistake> {
        let histories = self.histories.get(&range_s);
        let mut answer = Answer { question, data: Vec::new(), errors: Vec::new() };
        for (address, name) in names {
            if self.missing.contains(address) {
                answer.errors.push(json!({"node": name, "error": "the node does not answer"}));
            } else if let Some(history) = histories.and_then(|all| all.get(address)) {
                let measured = series(history, sight, question);
                let count = question.values_max().saturating_mul(measured.len());
                *values_left = values_left.checked_sub(count).ok_or_else(too_many)?;
                answer.add(name, &measured);
            }
        }
        Ok(answer.finish())
    }
}

fn too_many() -> Mistake {
    let reason = format!(
        "The answer could have more than {VALUES_MAX} values: ask for fewer metrics, or for a larger step"
    );
    Mistake::new("step", reason)
}

/// Returns true if the series with that word are measured for each bucket.
fn is_of_buckets(word: &str) -> bool {
    let of_nodes = ["queries", "query_failures", "queries_active", "query_seconds", "cpu", "rss"];
    !of_nodes.contains(&word)
}

/// Returns the measurements of a node that the user may see and the question is about.
fn series(history: &History, sight: &Sight, question: &Question) -> Vec<Series> {
    let mut found = Vec::new();
    for metric in METRICS {
        for (known, values) in &history.series {
            let (word, bucket) = match known.split_once(':') {
                Some((word, bucket)) => (word, Some(bucket)),
                None => (known.as_str(), None),
            };
            if word != metric.word || !sight.covers(bucket) {
                continue;
            }
            let mut labels = Labels::from([("name".to_owned(), metric.name.to_owned())]);
            for (label, value) in metric.labels {
                labels.insert((*label).to_owned(), (*value).to_owned());
            }
            if let Some(bucket) = bucket {
                labels.insert("bucket".to_owned(), bucket.to_owned());
            }
            if !question.labels.iter().all(|matcher| matcher.accepts(&labels)) {
                continue;
            }
            let at_s = |slot: usize| history.start_s + slot as u64 * history.step_s;
            let values = values.iter().enumerate().filter(|(_, value)| value.is_finite());
            let samples =
                values.map(|(slot, value)| (at_s(slot), f64::from(*value) * metric.factor));
            found.push(Series {
                labels,
                kind: metric.kind,
                samples: samples.collect(),
                fresh_s: STALE_S.max(2 * history.step_s),
            });
        }
    }
    found
}

/// The answer to a question, as it grows.
struct Answer<'q> {
    question: &'q Question,
    /// Names of nodes, labels, and values.
    data: Vec<(Vec<String>, Labels, Values)>,
    errors: Vec<Value>,
}

impl Answer<'_> {
    /// Adds the measurements of a node.
    fn add(&mut self, node: &str, measured: &[Series]) {
        match evaluate(self.question, measured) {
            Ok(results) => {
                for (labels, values) in results {
                    self.data.push((vec![node.to_owned()], labels, values));
                }
            }
            Err(reason) => self.errors.push(json!({"node": node, "error": reason})),
        }
    }

    /// Returns the answer in Couchbase's form.
    fn finish(self) -> Value {
        let Answer { question, data, errors } = self;
        let data = match question.across_nodes {
            Some(aggregate) => merged(data, aggregate),
            None => data,
        };
        let data = data.into_iter().filter(|(_, _, values)| !values.is_empty());
        let data = data.map(|(nodes, labels, values)| {
            let mut metric = json!(labels);
            metric["nodes"] = json!(nodes);
            let values: Vec<Value> =
                values.into_iter().map(|(at_s, value)| json!([at_s, value.to_string()])).collect();
            json!({"metric": metric, "values": values})
        });
        let mut answer = json!({
            "data": data.collect::<Vec<_>>(),
            "errors": errors,
            "startTimestamp": question.start_s,
            "endTimestamp": question.end_s,
        });
        if let Some(echo) = &question.echo {
            answer["requestParams"] = echo.clone();
        }
        answer
    }
}

/// Returns the results of a question for the measurements of one node.
///
/// # Errors
/// The reason if the nodes do not keep what the functions need.
fn evaluate(question: &Question, measured: &[Series]) -> Result<Vec<(Labels, Values)>, String> {
    let (window, aggregates) = split(&question.functions)?;
    let times = || (question.start_s..=question.end_s).step_by(question.step());
    let mut results = Vec::new();
    for series in measured {
        if let Some(reason) = series.kind.objection(window) {
            return Err(format!("{}: {reason}", series.labels["name"]));
        }
        let window_s = match window {
            Some(_) => question.window_s,
            None => series.fresh_s,
        };
        let value =
            |at_s| Some((at_s, series.kind.value(&series.samples, window, at_s, window_s)?));
        results.push((series.labels.clone(), times().filter_map(value).collect::<Values>()));
    }
    for aggregate in aggregates {
        if !results.is_empty() {
            let all: Vec<Values> = results.into_iter().map(|(_, values)| values).collect();
            results = vec![(Labels::new(), combined(&all, aggregate))];
        }
    }
    Ok(results)
}

/// Splits functions into the one over measurements, which comes first, and those over values of the same time.
///
/// # Errors
/// The reason if they do not fit together.
fn split(functions: &[Function]) -> Result<(Option<Window>, Vec<Aggregate>), String> {
    let (first, others) = match functions.split_first() {
        Some((Function::Over(window), others)) => (Some(*window), others),
        _ => (None, functions),
    };
    let aggregate = |function: &Function| match function {
        Function::Across(aggregate) => Ok(*aggregate),
        Function::Over(_) => Err("a function over a time window comes first, and only once".into()),
        Function::Percentile => Err("there are no histograms".to_owned()),
    };
    Ok((first, others.iter().map(aggregate).collect::<Result<_, String>>()?))
}

/// Combines the values of several series at each time.
fn combined(all: &[Values], aggregate: Aggregate) -> Values {
    let times: BTreeSet<u64> = all.iter().flat_map(|values| values.keys().copied()).collect();
    let at = |at_s: u64| -> Vec<f64> {
        all.iter().filter_map(|values| values.get(&at_s).copied()).collect()
    };
    times.into_iter().map(|at_s| (at_s, aggregate.of(&at(at_s)))).collect()
}

/// Combines the values of all nodes for each metric.
fn merged(
    data: Vec<(Vec<String>, Labels, Values)>,
    aggregate: Aggregate,
) -> Vec<(Vec<String>, Labels, Values)> {
    let nodes: BTreeSet<String> = data.iter().flat_map(|(nodes, ..)| nodes.clone()).collect();
    let nodes: Vec<String> = nodes.into_iter().collect();
    let mut by_labels: BTreeMap<Labels, Vec<Values>> = BTreeMap::new();
    for (_, labels, values) in data {
        by_labels.entry(labels).or_default().push(values);
    }
    let merged = by_labels.into_iter();
    merged.map(|(labels, all)| (nodes.clone(), labels, combined(&all, aggregate))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(reads: f32, items: [f32; 4]) -> History {
        History {
            step_s: 10,
            start_s: 1_000,
            series: vec![
                ("reads:b".to_owned(), vec![reads; 4]),
                ("items:b".to_owned(), items.to_vec()),
                ("items:secret".to_owned(), vec![9.0; 4]),
                ("cpu".to_owned(), vec![1.5; 4]),
            ],
        }
    }

    fn asked(question: Value) -> Question {
        Question::of_json(question, 1_030).unwrap()
    }

    /// Returns the answer for two nodes to a user who may see the bucket `b` only.
    fn answer(question: &Question) -> Result<Value, Mistake> {
        let sight = Sight { nodes: false, buckets: BTreeSet::from(["b".to_owned()]) };
        let gap = f32::NAN;
        let histories = BTreeMap::from([
            ("1".to_owned(), history(1.0, [5.0; 4])),
            ("2".to_owned(), history(3.0, [gap, 1.0, gap, 2.0])),
        ]);
        let histories = BTreeMap::from([(600, histories)]);
        let measured = Measured { histories, missing: BTreeSet::from(["3".to_owned()]) };
        let names = [("1", "one:1"), ("2", "two:1")];
        let names = names.map(|(address, name)| (address.to_owned(), name.to_owned()));
        measured.answer(question, 600, &names, &sight, &mut 20)
    }

    #[test]
    fn values_have_the_form_of_couchbase() {
        let name = |name: &str| json!([{"label": "name", "value": name}]);
        let items = asked(json!({"metric": name("kv_curr_items"), "start": 1_000}));
        assert_eq!(
            answer(&items).unwrap(),
            json!({
                "data": [
                    {
                        "metric": {"name": "kv_curr_items", "bucket": "b", "instance": "kv", "nodes": ["one:1"]},
                        "values": [[1000, "5"], [1010, "5"], [1020, "5"], [1030, "5"]],
                    },
                    {
                        "metric": {"name": "kv_curr_items", "bucket": "b", "instance": "kv", "nodes": ["two:1"]},
                        "values": [[1010, "1"], [1020, "1"], [1030, "2"]],
                    },
                ],
                "errors": [],
                "startTimestamp": 1000,
                "endTimestamp": 1030,
            })
        );
        let sum = json!({"metric": name("kv_curr_items"), "start": -10, "nodesAggregation": "sum"});
        let sum = answer(&asked(sum)).unwrap();
        assert_eq!(sum["data"][0]["values"], json!([[1020, "6"], [1030, "7"]]));
        assert_eq!(sum["data"][0]["metric"]["nodes"], json!(["one:1", "two:1"]));
        // The user may not read the statistics of nodes.
        let cpu = asked(json!({"metric": name("sysproc_cpu_utilization"), "start": 1_000}));
        assert_eq!(answer(&cpu).unwrap()["data"], json!([]));
    }

    #[test]
    fn growth_is_asked_for_with_a_function() {
        let metric = json!([{"label": "name", "value": "kv_ops"}]);
        let plain = answer(&asked(json!({"metric": metric, "start": 1_030}))).unwrap();
        assert_eq!(
            (&plain["data"], plain["errors"].as_array().map(Vec::len)),
            (&json!([]), Some(2))
        );
        let rate = json!({
            "metric": metric,
            "start": 1_030,
            "applyFunctions": ["irate", "sum"],
            "nodesAggregation": "max",
        });
        let rate = answer(&asked(rate)).unwrap();
        assert_eq!(rate["data"][0]["values"], json!([[1030, "3"]]));
        assert_eq!(rate["data"][0]["metric"], json!({"nodes": ["one:1", "two:1"]}));
        assert_eq!(rate["errors"], json!([]));
    }

    #[test]
    fn an_answer_has_a_largest_size() {
        let metric = json!([{"label": "bucket", "value": "b"}]);
        assert!(answer(&asked(json!({"metric": metric, "start": 1_000}))).is_ok());
        assert!(answer(&asked(json!({"metric": metric, "start": 1_000, "step": 5}))).is_err());
    }
}
