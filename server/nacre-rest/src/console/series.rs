//! `GET /_nacre/series?range=3600&names=reads,writes`: measurements of the nodes over a period.

use super::super::Call;
use super::super::body::{Reply, invalid, ok};
use nacre_console::{Console, History};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Longest period, in seconds: a week.
const RANGE_S_MAX: u64 = 7 * 86_400;
/// Maximum length of the list of names.
const NAMES_BYTES_MAX: usize = 4 << 10;

pub(super) async fn answer(call: Call) -> Result<Reply, Reply> {
    let range = call.parameter("range").unwrap_or_else(|| "600".into());
    let range_s = range.parse().ok().filter(|range_s| (1..=RANGE_S_MAX).contains(range_s));
    let Some(range_s) = range_s else {
        return Err(invalid("range", format!("a number of seconds, 1 to {RANGE_S_MAX}")));
    };
    let names = call.parameter("names").unwrap_or_default();
    if names.is_empty() || names.len() > NAMES_BYTES_MAX {
        return Err(invalid("names", "names of series, with commas between them"));
    }
    let names: Vec<String> = names.split(',').map(str::to_owned).collect();
    let node = Arc::clone(&call.node);
    let read = move || {
        let console: Option<&Console> = node.service();
        console.map(|console| {
            console.watch(&node);
            console.history(&node, range_s, &names)
        })
    };
    let read = call.desk().work("the history of measurements", read).await?;
    let (histories, missing) = read.unwrap_or_default();
    let nodes: Map<String, Value> =
        histories.into_iter().map(|(name, history)| (name, described(history))).collect();
    Ok(ok(&json!({"nodes": nodes, "missing": missing})))
}

/// Describes a history. A gap is null, because JSON has no NaN.
fn described(history: History) -> Value {
    let History { step_s, start_s, series } = history;
    let values = |values: Vec<f32>| -> Vec<Option<f32>> {
        values.into_iter().map(|value| value.is_finite().then_some(value)).collect()
    };
    let series: Map<String, Value> =
        series.into_iter().map(|(name, of)| (name, json!(values(of)))).collect();
    json!({"step": step_s, "start": start_s, "series": series})
}
