//! Status, statistics and logs of functions.

use nacre_cluster::{Function, FunctionId, FunctionState};
use nacre_node::Node;
use nacre_plugins_service::Deployment;
use nacre_plugins_service::functions::{self, FunctionStatus};
use nacre_sandbox::{Histogram, Status};
use serde_json::{Map, Value, json};

/// Names of the execution counters.
const EXECUTION: [&str; 13] = [
    "on_update_success",
    "on_update_failure",
    "on_delete_success",
    "on_delete_failure",
    "on_deploy_success",
    "on_deploy_failure",
    "timer_callback_success",
    "timer_callback_failure",
    "timer_create_counter",
    "timer_cancel_counter",
    "curl_success_count",
    "suppressed_count",
    "filtered_count",
];

/// Describes a function in the answer to `/api/v1/status`.
pub(super) fn status(node: &Node, id: &FunctionId, function: &Function) -> Value {
    let (status, deployment) = functions::status(node, id, function);
    let composite = match status {
        FunctionStatus::Undeployed => "undeployed",
        FunctionStatus::Deploying => "deploying",
        FunctionStatus::Deployed => "deployed",
        FunctionStatus::Undeploying => "undeploying",
        FunctionStatus::Pausing => "pausing",
        FunctionStatus::Paused => "paused",
    };
    let scope = id.scope.as_ref();
    let (bucket, scope) = scope.map_or(("*", "*"), |(bucket, scope)| (bucket, scope));
    let mut value = json!({
        "name": id.name,
        "composite_status": composite,
        "num_bootstrapping_nodes": u8::from(status == FunctionStatus::Deploying),
        "num_deployed_nodes": u8::from(status == FunctionStatus::Deployed),
        "deployment_status": function.state != FunctionState::Undeployed,
        "processing_status": function.state == FunctionState::Deployed,
        "redeploy_required": false,
        "function_scope": {"bucket": bucket, "scope": scope},
    });
    if let Some(reason) = deployment.and_then(|deployment| deployment.reason()) {
        value["reason"] = reason.into();
    }
    value
}

fn number(count: f64) -> Value {
    // Counters are whole numbers.
    Value::from(count as u64)
}

pub(super) fn execution(status: &Status) -> Value {
    let count = |name: &&str| {
        let count = status.metrics.get(*name).copied().unwrap_or_default();
        ((*name).to_owned(), number(count))
    };
    Value::Object(EXECUTION.iter().map(count).collect())
}

pub(super) fn failures(status: &Status) -> Value {
    let count = |name: &str| status.metrics.get(name).copied().unwrap_or_default();
    // Either the engine or the host ends a handler that exceeds its time limit; the host also discards all its effects.
    let killed = (status.dead_letter_count + status.dead_timer_count) as f64;
    json!({
        "bucket_op_exception_count": number(count("bucket_op_exception_count")),
        "n1ql_op_exception_count": number(count("n1ql_op_exception_count")),
        "curl_failure_count": number(count("curl_failure_count")),
        "timeout_count": number(count("timeout_count") + killed),
        "v8worker_exception_count": number(
            count("on_update_failure") + count("on_delete_failure")
                + count("on_deploy_failure") + count("timer_callback_failure")
        ),
    })
}

/// Returns the latency histogram of the component's calls: the upper bound of each class in microseconds, and the
/// number of calls in it.
pub(super) fn latencies(status: &Status) -> Value {
    let counts = status.writer.latency.counts.iter().enumerate();
    let class = |(index, count): (usize, &u64)| {
        let bound_us = Histogram::bound_ns(index)? / 1000;
        (*count > 0).then(|| (bound_us.to_string(), Value::from(*count)))
    };
    Value::Object(counts.filter_map(class).collect::<Map<_, _>>())
}

/// Returns the number of events that the function's code has received, without the timer with which the component calls
/// `OnDeploy`.
pub(super) fn events(status: &Status) -> Value {
    let count = |name: &str| status.metrics.get(name).copied().unwrap_or_default();
    let timers = count("timer_callback_success") + count("timer_callback_failure");
    json!({"dcp_mutation_sent_to_worker": status.documents, "timer_events": number(timers)})
}

/// Returns all statistics of a function.
pub(super) fn all(id: &FunctionId, deployment: Option<&Deployment>) -> Value {
    let status = deployment.map(Deployment::status).unwrap_or_default();
    let lag = deployment.map_or(0, Deployment::lag);
    let (parts, replayed) = deployment.map(Deployment::replayed).unwrap_or_default();
    let quantile = |share| status.writer.latency.quantile_ns(share).map(|ns| ns / 1000);
    let scope = id.scope.as_ref();
    let (bucket, scope) = scope.map_or(("*", "*"), |(bucket, scope)| (bucket, scope));
    json!({
        "function_name": id.name,
        "function_scope": {"bucket": bucket, "scope": scope},
        "execution_stats": execution(&status),
        "failure_stats": failures(&status),
        "event_processing_stats": events(&status),
        "events_remaining": {"dcp_backlog": lag},
        "replay": {"parts_remaining": parts, "documents": replayed},
        "latency_stats": latencies(&status),
        "latency_percentile_stats":
            {"50": quantile(0.5), "90": quantile(0.9), "99": quantile(0.99), "100": quantile(1.0)},
        "state_bytes": status.state_bytes,
        "memory_bytes": status.memory_bytes,
        "next_timer_us": status.next_timer_us,
    })
}

/// Returns at most `bytes_max` bytes of a function's log, newest line first.
pub(super) fn log(deployment: Option<&Deployment>, bytes_max: usize) -> String {
    let status = deployment.map(Deployment::status).unwrap_or_default();
    let killed = status.dead_letters.iter().map(|dead| {
        let key = String::from_utf8_lossy(&dead.key);
        format!("[ERROR] document {key:?} was given up: {}", dead.reason)
    });
    let killed_timers = status
        .dead_timers
        .iter()
        .map(|dead| format!("[ERROR] timer {:?} was given up: {}", dead.name, dead.reason));
    let lines = status.log.iter().rev().map(|line| line.message.clone());
    let mut text = String::new();
    for line in killed.chain(killed_timers).chain(lines) {
        if text.len() + line.len() >= bytes_max {
            break;
        }
        text.push_str(&line);
        text.push('\n');
    }
    text
}
