//! Statistics of a bucket over a period, in the form that monitoring tools of Couchbase read. The nodes keep them for a week.

use super::Call;
use super::body::{Reply, invalid, not_found, ok};
use super::routes::{Route, get};
use nacre_auth::Privilege;
use nacre_cluster::BucketKind;
use nacre_console::{Console, History};
use nacre_http::Access;
use nacre_node::Node;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const READ: Access = Access::Bucket(Privilege::ReadStats);

pub(super) const ROUTES: &[Route] = &[
    get("/pools/default/buckets/{bucket}/stats", READ, |call| Box::pin(of_cluster(call))),
    get("/pools/default/buckets/{bucket}/nodes/{node}/stats", READ, |call| Box::pin(of_node(call))),
];

/// The series in the response, and the names of their statistics. Source: Couchbase's bucket statistics.
const SAMPLES: &[(&str, &[&str])] = &[
    ("reads", &["cmd_get"]),
    ("writes", &["cmd_set"]),
    ("deletes", &["delete_hits"]),
    ("items", &["curr_items"]),
    ("memory", &["mem_used"]),
    ("quota", &["ep_max_size"]),
    ("disk", &["couch_docs_actual_disk_size", "couch_total_disk_size"]),
    ("disk_queue", &["disk_write_queue", "ep_diskqueue_items"]),
];
/// The series whose sum is the number of all operations.
const OPERATIONS: [&str; 3] = ["reads", "writes", "deletes"];
/// Period in seconds in which each node measures at least once.
const RECENT_S: u64 = 15;

/// Returns the operations per second of each bucket on all nodes. Blocks, for about a second at most.
pub(super) fn operations_per_second(node: &Arc<Node>) -> BTreeMap<String, f64> {
    let console: Option<&Console> = node.service();
    let names = OPERATIONS.map(str::to_owned);
    let (histories, _) =
        console.map(|console| console.history(node, RECENT_S, &names)).unwrap_or_default();
    let mut rates = BTreeMap::new();
    for (name, values) in histories.values().flat_map(|history| &history.series) {
        let latest = values.iter().rev().find(|value| value.is_finite());
        if let (Some((_, bucket)), Some(latest)) = (name.split_once(':'), latest) {
            *rates.entry(bucket.to_owned()).or_default() += f64::from(*latest);
        }
    }
    rates
}

async fn of_cluster(call: Call) -> Result<Reply, Reply> {
    answer(&call, None).await
}

async fn of_node(call: Call) -> Result<Reply, Reply> {
    let cluster = call.node.cluster();
    let named = cluster.nodes.values().find(|node| {
        call.authority(&node.endpoints, node.endpoints.plain.mgmt()) == call.segment("node")
    });
    let named = named.ok_or_else(not_found)?.endpoints.management();
    answer(&call, Some(named)).await
}

/// Answers with the statistics of all nodes, or of the node at an address of management.
async fn answer(call: &Call, of: Option<String>) -> Result<Reply, Reply> {
    let name = call.segment("bucket").to_owned();
    let cluster = call.node.cluster();
    let bucket = cluster.bucket(&name).map_err(|_| not_found())?;
    let range_s = match call.parameter("zoom").as_deref() {
        None | Some("minute") => 60,
        Some("hour") => 3_600,
        Some("day") => 86_400,
        // Older values are not kept.
        Some("week" | "month" | "year") => 7 * 86_400,
        Some(_) => return Err(invalid("zoom", "minute, hour, day, week, month or year")),
    };
    let since_ms = call.parameter("haveTStamp").map_or(Ok(0), |text| text.parse::<u64>());
    let since_ms = since_ms.map_err(|_| invalid("haveTStamp", "milliseconds since 1970"))?;
    let node = Arc::clone(&call.node);
    let names: Vec<String> = SAMPLES.iter().map(|(word, _)| format!("{word}:{name}")).collect();
    let read = move || {
        let console: Option<&Console> = node.service();
        console.map(|console| {
            console.watch(&node);
            console.history(&node, range_s, &names).0
        })
    };
    let read = call.desk().work("the history of measurements", read).await?;
    let mut histories = read.unwrap_or_default();
    histories.retain(|node, _| of.as_ref().is_none_or(|of| of == node));
    let histories: Vec<History> = histories.into_values().collect();
    let samples = samples(&histories, &name, since_ms);
    let times = samples["timestamp"].as_array().cloned().unwrap_or_default();
    let step_s = histories.iter().map(|history| history.step_s).max().unwrap_or(1);
    Ok(ok(&json!({
        "op": {
            "samples": samples,
            "samplesCount": times.len(),
            "isPersistent": bucket.settings.kind == BucketKind::Persistent,
            "lastTStamp": times.last().unwrap_or(&json!(0)),
            "interval": step_s * 1000,
        },
        "hot_keys": [],
    })))
}

/// Returns the sums of all nodes' values for each time at which a node has measured.
fn samples(histories: &[History], bucket: &str, since_ms: u64) -> Map<String, Value> {
    let mut times = BTreeSet::new();
    for history in histories {
        for (_, values) in &history.series {
            times.extend(measured(history, values).map(|(at_ms, _)| at_ms));
        }
    }
    let times: Vec<u64> = times.into_iter().filter(|at_ms| *at_ms >= since_ms).collect();
    let mut samples = Map::new();
    let mut operations = vec![0.0; times.len()];
    for (word, names) in SAMPLES {
        let values = summed(histories, &format!("{word}:{bucket}"), &times);
        if OPERATIONS.contains(word) {
            operations.iter_mut().zip(&values).for_each(|(sum, value)| *sum += value);
        }
        for name in *names {
            samples.insert((*name).to_owned(), json!(values));
        }
    }
    samples.insert("ops".to_owned(), json!(operations));
    samples.insert("timestamp".to_owned(), json!(times));
    samples
}

/// Returns the values of a series without its gaps, with their times in milliseconds.
fn measured<'a>(
    history: &'a History,
    values: &'a [f32],
) -> impl Iterator<Item = (u64, f64)> + use<'a> {
    let at_ms = move |slot: usize| (history.start_s + slot as u64 * history.step_s) * 1000;
    let values = values.iter().enumerate().filter(|(_, value)| value.is_finite());
    values.map(move |(slot, value)| (at_ms(slot), f64::from(*value)))
}

/// Returns the sums of a series over the nodes at `times`. Until a node measures again, its last value counts.
fn summed(histories: &[History], name: &str, times: &[u64]) -> Vec<f64> {
    let mut sums = vec![0.0; times.len()];
    for history in histories {
        let found = history.series.iter().find(|(known, _)| known == name);
        let values = found.map_or(&[][..], |(_, values)| &values[..]);
        let mut values = measured(history, values).peekable();
        let mut latest = 0.0;
        for (sum, time) in sums.iter_mut().zip(times) {
            while let Some((_, value)) = values.next_if(|(at_ms, _)| at_ms <= time) {
                latest = value;
            }
            *sum += latest;
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_nodes_are_added_although_these_measure_at_different_times() {
        let gap = f32::NAN;
        let history = |values: [f32; 4], items: [f32; 4]| History {
            step_s: 1,
            start_s: 100,
            series: vec![
                ("reads:b".to_owned(), values.to_vec()),
                ("items:b".to_owned(), items.to_vec()),
                ("items:other".to_owned(), vec![9.0; 4]),
            ],
        };
        let histories = [
            history([1.0, gap, 3.0, gap], [5.0; 4]),
            history([gap, 10.0, gap, gap], [7.0, gap, gap, 8.0]),
        ];
        let all = samples(&histories, "b", 0);
        assert_eq!(all["timestamp"], json!([100_000, 101_000, 102_000, 103_000]));
        assert_eq!(all["cmd_get"], json!([1.0, 11.0, 13.0, 13.0]));
        assert_eq!(all["ops"], all["cmd_get"]);
        assert_eq!(all["curr_items"], json!([12.0, 12.0, 12.0, 13.0]));
        let late = samples(&histories, "b", 102_500);
        assert_eq!(late["timestamp"], json!([103_000]));
        assert_eq!(late["curr_items"], json!([13.0]));
        assert_eq!(samples(&[], "b", 0)["timestamp"], json!([]));
    }
}
