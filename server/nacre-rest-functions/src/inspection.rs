//! Requests of Couchbase's console and of monitoring tools: failures of functions by line, names in their code that
//! should not be there, the keyspaces that a user may choose, and metrics.

use super::error::Kind;
use super::{FunctionAccess, asked, find, stats};
use hyper::StatusCode;
use nacre_auth::{Keyspace, Privilege};
use nacre_cluster::{Cluster, Function, FunctionId};
use nacre_http::Access;
use nacre_http::body::{Reply, ok, reply};
use nacre_plugins_service::functions::{self, FunctionStatus};
use nacre_plugins_service::{Deployment, NodePlugins};
use nacre_rest::Call;
use nacre_rest::routes::{READ_STATS, Route, get, post, ready};
use nacre_sql::inline::words;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

pub(crate) const ROUTES: &[Route] = &[
    get("/getInsight", Access::Handler, |call| ready(insight(&call))),
    get("/getAnnotations", Access::Handler, |call| ready(Ok(annotations(&call)))),
    get("/getUserInfo", Access::Login, |call| ready(Ok(user_info(&call)))),
    get("/getDebuggerUrl", Access::Handler, |call| ready(no_debugger(&call))),
    post("/getDebuggerUrl", Access::Handler, |call| ready(no_debugger(&call))),
    get("/startDebugger", Access::Handler, |call| ready(no_debugger(&call))),
    post("/startDebugger", Access::Handler, |call| ready(no_debugger(&call))),
    get("/stopDebugger", Access::Handler, |call| ready(no_debugger(&call))),
    post("/stopDebugger", Access::Handler, |call| ready(no_debugger(&call))),
    get("/_prometheusMetrics", READ_STATS, |call| ready(Ok(restarts(&call)))),
    get("/_prometheusMetricsHigh", READ_STATS, |call| ready(Ok(metrics(&call)))),
];

/// The media type of Prometheus' text format.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Functions of older Couchbase versions.
const DEPRECATED: [&str; 1] = ["N1qlQuery"];
/// Names that the code should not give to something else.
const PREDEFINED: [&str; 8] =
    ["createTimer", "cancelTimer", "curl", "log", "crc64", "N1QL", "N1qlQuery", "couchbase"];

fn deployment(call: &Call, id: &FunctionId) -> Option<Arc<Deployment>> {
    call.node.plugins().deployment(&functions::deployment_name(id))
}

/// Refuses requests to the debugger, as Couchbase does where it is not enabled: `enable_debugger` is always false.
fn no_debugger(call: &Call) -> Result<Reply, Reply> {
    call.must_manage(&call.function_id(&call.parameter("name").unwrap_or_default()))?;
    let description = "Debugger is not enabled: dry runs and the log show what a function does";
    Err(Kind::DebuggerDisabled.reply(description))
}

/// Describes the function that the query string names, or all deployed ones.
fn insight(call: &Call) -> Result<Reply, Reply> {
    let cluster = call.node.cluster();
    let described = |id: &FunctionId, function: &Function| {
        let log = deployment(call, id).map(|deployment| deployment.status().log);
        let log = log.unwrap_or_default();
        let definition = &function.definition;
        let modules: Vec<&str> = definition.modules.keys().map(String::as_str).collect();
        let lines = lines(log.iter().map(|line| line.message.as_str()), &modules);
        (id.to_string(), json!({"script": definition.code, "lines": lines}))
    };
    let all: Map<String, Value> = if call.parameter("name").is_some() {
        let id = asked(call)?;
        std::iter::once(described(&id, find(&cluster, &id)?)).collect()
    } else {
        let is_deployed = |(id, function): &(FunctionId, &Function)| {
            functions::status(&call.node, id, function).0 == FunctionStatus::Deployed
        };
        let deployed = call.visible(&cluster).into_iter().filter(is_deployed);
        deployed.map(|(id, function)| described(&id, function)).collect()
    };
    Ok(ok(&Value::Object(all)))
}

/// Describes the failures in the log by their lines in the code. Calls are not counted by line.
fn lines<'l>(log: impl Iterator<Item = &'l str>, modules: &[&str]) -> Value {
    let mut lines: BTreeMap<u32, (u64, &str)> = BTreeMap::new();
    for error in log.filter_map(error_of) {
        let is_of_module = modules.iter().any(|module| error.contains(&format!(": {module}: ")));
        if let Some(line) = line_of(error).filter(|_| !is_of_module) {
            let known = lines.entry(line).or_default();
            *known = (known.0 + 1, error);
        }
    }
    let described = lines.into_iter().map(|(line, (count, error))| {
        let line_described = json!({
            "call_count": 0,
            "call_time": 0.0,
            "error_count": count,
            "error_msg": error,
            "last_log": "",
        });
        (line.to_string(), line_described)
    });
    Value::Object(described.collect())
}

/// Returns the error of a line of the log, as in `2026-01-01T00:00:00.000Z [ERROR] OnUpdate of "k": …`.
fn error_of(line: &str) -> Option<&str> {
    let (_, entry) = line.split_once(' ')?;
    entry.strip_prefix("[ERROR] ")
}

/// Returns the line that an error names at its end, as in `TypeError: … (line 3, column 5)`.
fn line_of(error: &str) -> Option<u32> {
    let (_, place) = error.strip_suffix(')')?.rsplit_once(" (line ")?;
    let (line, _) = place.split_once(", column ")?;
    line.parse().ok()
}

/// Lists the functions with the deprecated names that their code uses, and the predefined names that it replaces.
fn annotations(call: &Call) -> Reply {
    let cluster = call.node.cluster();
    let functions = call.visible(&cluster).into_iter().map(|(id, function)| {
        let words = words(&function.definition.code);
        let used = DEPRECATED.into_iter().filter(|name| words.used.contains(name));
        let replaced = PREDEFINED.into_iter().filter(|name| words.replaced.contains(name));
        let scope = id.scope.as_ref();
        let (bucket, scope) = scope.map_or(("*", "*"), |(bucket, scope)| (bucket, scope));
        json!({
            "name": id.name,
            "function_scope": {"bucket": bucket, "scope": scope},
            "deprecatedNames": used.collect::<Vec<&str>>(),
            "overloadedNames": replaced.collect::<Vec<&str>>(),
        })
    });
    ok(&functions.collect())
}

/// Returns all keyspaces of a cluster that a user may have rights on.
fn places(cluster: &Cluster) -> Vec<Keyspace<'_>> {
    let mut places = Vec::new();
    for bucket in cluster.buckets.values() {
        let of_bucket = Keyspace { bucket: Some(&bucket.name), ..Keyspace::default() };
        places.push(of_bucket);
        for scope in &bucket.manifest.scopes {
            let of_scope = Keyspace { scope: Some(&scope.name), ..of_bucket };
            places.push(of_scope);
            let collections = scope.collections.iter();
            places.extend(
                collections
                    .map(|collection| Keyspace { collection: Some(&collection.name), ..of_scope }),
            );
        }
    }
    places
}

/// Lists the keyspaces in which the user of the request may define functions, and those that these may use.
fn user_info(call: &Call) -> Reply {
    let cluster = call.node.cluster();
    let places = places(&cluster);
    let may = |privilege: Privilege, place: &Keyspace<'_>| call.may(privilege, *place);
    let listed = |accepts: &dyn Fn(&Keyspace<'_>) -> bool| -> Vec<Value> {
        places.iter().filter(|place| accepts(place)).map(described).collect()
    };
    let everywhere = Keyspace::default();
    let mut managed = Vec::new();
    if may(Privilege::ManageFunctions, &everywhere) {
        managed.push(described(&everywhere));
    }
    managed.extend(listed(&|place| {
        place.collection.is_none() && may(Privilege::ManageFunctions, place)
    }));
    let written =
        listed(&|place| may(Privilege::ReadData, place) && may(Privilege::WriteData, place));
    ok(&json!({
        "func_scope": managed,
        "read_permission": listed(&|place| may(Privilege::ReadData, place)),
        "write_permission": written,
        "read_write_permission": written,
        "dcp_stream_permission": listed(&|place| may(Privilege::StreamData, place)),
    }))
}

fn described(place: &Keyspace<'_>) -> Value {
    json!({
        "bucket_name": place.bucket.unwrap_or("*"),
        "scope_name": place.scope.unwrap_or("*"),
        "collection_name": place.collection.unwrap_or("*"),
    })
}

/// Returns how often a document or a timer has ended the instance that processed it, which then starts again.
fn restarts(call: &Call) -> Reply {
    let mut count = 0;
    for (id, _) in call.node.cluster().functions.iter() {
        if let Some(deployment) = deployment(call, &id) {
            let status = deployment.status();
            count += status.dead_letter_count + status.dead_timer_count;
        }
    }
    reply(StatusCode::OK, METRICS_TYPE, format!("eventing_worker_restart_count {count}\n"))
}

/// Returns the statistics of all deployed functions in Prometheus' text format.
fn metrics(call: &Call) -> Reply {
    let mut text = String::new();
    for (id, _) in call.node.cluster().functions.iter() {
        let Some(deployment) = deployment(call, &id) else { continue };
        let status = deployment.status();
        let name = id.to_string().replace('\\', "\\\\").replace('"', "\\\"");
        let backlog = json!({"dcp_backlog": deployment.lag()});
        let all =
            [backlog, stats::execution(&status), stats::failures(&status), stats::events(&status)];
        for (metric, value) in all.iter().filter_map(Value::as_object).flatten() {
            writeln!(text, "eventing_{metric}{{functionName=\"{name}\"}} {value}")
                .expect("a string takes any text");
        }
    }
    reply(StatusCode::OK, METRICS_TYPE, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_found_by_their_lines() {
        let log = [
            "[INFO] \"(line 1, column 1)\"",
            "[INFO] \"[ERROR] (line 1, column 1)",
            "[ERROR] OnUpdate of \"a\": TypeError: no (line 2, column 16)",
            "[ERROR] OnUpdate of \"(line 9, column 1)\": Error: again (line 2, column 4)",
            "[ERROR] OnDelete of \"c\": uncaught \"a string\"",
            "[ERROR] OnUpdate of \"d\": ./lib.js: Error: there (line 5, column 1)",
        ];
        let log = log.map(|line| format!("2026-01-01T00:00:00.000Z {line}"));
        let line = json!({
            "call_count": 0,
            "call_time": 0.0,
            "error_count": 2,
            "error_msg": "OnUpdate of \"(line 9, column 1)\": Error: again (line 2, column 4)",
            "last_log": "",
        });
        assert_eq!(lines(log.iter().map(String::as_str), &["./lib.js"]), json!({"2": line}));
    }
}
