//! Settings of the service, and the threads of each node.

use crate::Outcome;
use crate::record;
use crate::reply::{Failure, body, done, ok};
use nacre_node::Node;
use nacre_node::service::HttpRequest;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Key of the settings.
const CONFIG: &str = "config";
/// Key of the threads.
const THREADS: &str = "threads";
/// MiB of history. Source: Couchbase's backup service.
const SIZE: RangeInclusive<u64> = 5..=200;
/// Days of history. Source: Couchbase's backup service.
const PERIOD: RangeInclusive<u64> = 1..=365;
/// Streams or vBuckets at a time of one task, at most.
const THREADS_MAX: u64 = 64;
/// Threads of a node that nobody has said anything about.
const THREADS_DEFAULT: u64 = 4;

/// Settings of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Config {
    /// Kept as it is given: the history of a repository is bounded by the number of its tasks.
    history_rotation_size: u64,
    /// Days after which tasks leave the history.
    pub history_rotation_period: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config { history_rotation_size: 50, history_rotation_period: 30 }
    }
}

/// What a request says of the settings.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    history_rotation_size: Option<u64>,
    history_rotation_period: Option<u64>,
}

/// Returns the settings.
pub(crate) fn config(node: &Node) -> Config {
    record::read(node, CONFIG).map(|(config, _)| config).unwrap_or_default()
}

/// Returns how many threads a task has on this node.
pub(crate) fn own_threads(node: &Node, uuid: &str) -> u64 {
    let known = record::read::<BTreeMap<String, u64>>(node, THREADS);
    let own = known.and_then(|(threads, _)| threads.get(uuid).copied());
    own.unwrap_or(THREADS_DEFAULT)
}

/// `GET /config`.
pub(crate) fn get(node: &Arc<Node>, _request: &HttpRequest) -> Outcome {
    node.catch_up();
    Ok(ok(&json!(config(node))))
}

/// `POST` and `PUT /config`: what is left out gets its default.
pub(crate) fn replace(node: &Arc<Node>, request: &HttpRequest) -> Outcome {
    put(node, request, Config::default())
}

/// `PATCH /config`: what is left out stays.
pub(crate) fn change(node: &Arc<Node>, request: &HttpRequest) -> Outcome {
    node.catch_up();
    put(node, request, config(node))
}

fn put(node: &Arc<Node>, request: &HttpRequest, before: Config) -> Outcome {
    let wanted: Wanted = body(request)?;
    let config = merged(before, &wanted)?;
    record::put_any(node, CONFIG, &config)?;
    Ok(done())
}

fn merged(before: Config, wanted: &Wanted) -> Result<Config, Failure> {
    let history_rotation_size =
        wanted.history_rotation_size.unwrap_or(before.history_rotation_size);
    let history_rotation_period =
        wanted.history_rotation_period.unwrap_or(before.history_rotation_period);
    if !SIZE.contains(&history_rotation_size) {
        return Err(Failure::bad_request("Rotation size has to be between 5 and 200"));
    }
    if !PERIOD.contains(&history_rotation_period) {
        return Err(Failure::bad_request("Rotation period has to be between 1 and 365"));
    }
    Ok(Config { history_rotation_size, history_rotation_period })
}

/// `GET /nodesThreadsMap`.
pub(crate) fn threads(node: &Arc<Node>, _request: &HttpRequest) -> Outcome {
    node.catch_up();
    let threads: Map<String, Value> =
        record::read(node, THREADS).map(|(threads, _)| threads).unwrap_or_default();
    Ok(ok(&json!({"nodes_threads_map": threads})))
}

/// `POST /nodesThreadsMap`.
pub(crate) fn replace_threads(node: &Arc<Node>, request: &HttpRequest) -> Outcome {
    put_threads(node, request, BTreeMap::new())
}

/// `PATCH /nodesThreadsMap`.
pub(crate) fn change_threads(node: &Arc<Node>, request: &HttpRequest) -> Outcome {
    node.catch_up();
    let before = record::read(node, THREADS).map(|(threads, _)| threads).unwrap_or_default();
    put_threads(node, request, before)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ThreadsWanted {
    nodes_threads_map: BTreeMap<String, u64>,
}

fn put_threads(
    node: &Arc<Node>,
    request: &HttpRequest,
    mut threads: BTreeMap<String, u64>,
) -> Outcome {
    let wanted: ThreadsWanted = body(request)?;
    let cluster = node.cluster();
    for (uuid, count) in wanted.nodes_threads_map {
        if !cluster.nodes.values().any(|member| member.uuid == uuid) {
            return Err(Failure::bad_request(format!("there is no node {uuid}")));
        }
        if !(1..=THREADS_MAX).contains(&count) {
            return Err(Failure::bad_request(format!("a node has 1 to {THREADS_MAX} threads")));
        }
        threads.insert(uuid, count);
    }
    record::put_any(node, THREADS, &threads)?;
    Ok(done())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_out_of_range_are_refused() {
        let read = |text: &str| {
            let wanted: Wanted = serde_json::from_str(text).unwrap();
            merged(Config::default(), &wanted)
        };
        assert_eq!(read("{}"), Ok(Config::default()));
        let changed = read(r#"{"history_rotation_size":200}"#).unwrap();
        assert_eq!((changed.history_rotation_size, changed.history_rotation_period), (200, 30));
        for size in [0, 4, 201] {
            let refused = read(&format!("{{\"history_rotation_size\":{size}}}")).unwrap_err();
            assert_eq!(refused.message, "Rotation size has to be between 5 and 200");
        }
        for period in [0, 366] {
            let refused = read(&format!("{{\"history_rotation_period\":{period}}}")).unwrap_err();
            assert_eq!(refused.message, "Rotation period has to be between 1 and 365");
        }
    }
}
