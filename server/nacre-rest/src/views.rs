//! Design documents and view queries.

use super::Call;
use super::answer::{Pieces, answered_as, unanswered};
use super::body::{self, Reply, blocking, error_reply, json_reply, ok, reply};
use super::preview;
use super::routes::{self, Route, any, head, post, ready};
use hyper::{Method, StatusCode};
use nacre_auth::Privilege;
use nacre_bucket::{SlowOperation, SlowService};
use nacre_cluster::{Change, IndexChange};
use nacre_http::Access;
use nacre_node::Node;
use nacre_plugins_service::{self as plugins, Deployment, Missing, NodePlugins, Progress, Terms};
use nacre_sandbox::{Header, LogLine, Request, Status, Usage};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Default timeout of a query that waits for fresh rows.
const FRESH_ROWS_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout of requests that wait until the plugin is compiled after a first start: slightly shorter than the timeout of
/// SDKs.
const LOADING_PATIENCE: Duration = Duration::from_secs(60);

/// Maximum length of a design document's name in bytes: with the prefix `_design/`, the name is a key.
const NAME_BYTES_MAX: usize = 240;

const DESIGN: &str = "/{bucket}/_design/{name}";
const VIEW: &str = "/{bucket}/_design/{name}/_view/{view}";
const ADMINISTER: Access = Access::Bucket(Privilege::AdministerViews);
const READ: Access = Access::Bucket(Privilege::ReadViews);

pub(super) const ROUTES: &[Route] = &[
    routes::get("/", Access::Login, |_| {
        ready(Ok(ok(&json!({"nacre": env!("CARGO_PKG_VERSION"), "views": "Welcome"}))))
    }),
    routes::get(DESIGN, READ, |call| ready(get(&call))),
    head(DESIGN, READ, |call| ready(get(&call))),
    routes::put(DESIGN, ADMINISTER, |call| Box::pin(put(call))),
    routes::delete(DESIGN, ADMINISTER, |call| Box::pin(delete(call))),
    post("/{bucket}/_preview", ADMINISTER, |call| Box::pin(preview::preview(call))),
    routes::get("/{bucket}/_design/{name}/_info", READ, |call| Box::pin(info(call))),
    routes::get(VIEW, READ, |call| Box::pin(query(call))),
    head(VIEW, READ, |call| Box::pin(query(call))),
    post(VIEW, READ, |call| Box::pin(query(call))),
    any(VIEW, Access::Login, |_| {
        let reason = "Only GET, HEAD and POST are allowed";
        ready(Err(error_reply(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", reason)))
    }),
];

/// Returns the bucket and the design document that the path names.
fn names(call: &Call) -> [String; 2] {
    ["bucket", "name"].map(|name| call.segment(name).to_owned())
}

/// Returns the answer for a path that does not exist.
pub(super) fn missing() -> Reply {
    error_reply(StatusCode::NOT_FOUND, "not_found", "missing")
}

/// Returns the answer to a query without its design document. Clients repeat a query with the reason `missing` until their timeout.
fn no_design(name: &str) -> Reply {
    let reason = format!("Design document _design/{name} not found");
    error_reply(StatusCode::NOT_FOUND, "not_found", &reason)
}

pub(super) fn no_bucket() -> Reply {
    error_reply(StatusCode::NOT_FOUND, "not_found", "no_db_file")
}

fn not_ready() -> Reply {
    error_reply(
        StatusCode::SERVICE_UNAVAILABLE,
        "not_ready",
        "the views plugin is not ready yet: try again",
    )
}

/// Runs work that waits for the plugin, with the timeout of clients. The reply after a timeout blames the server, not
/// the request.
pub(super) async fn in_time<T>(work: impl Future<Output = Result<T, Reply>>) -> Result<T, Reply> {
    tokio::time::timeout(LOADING_PATIENCE, work).await.unwrap_or_else(|_| Err(not_ready()))
}

pub(super) async fn loaded(call: &Call) -> Result<(), Reply> {
    call.node
        .plugins()
        .views_are_loaded()
        .await
        .map_err(|reason| error_reply(StatusCode::INTERNAL_SERVER_ERROR, "view_failed", &reason))
}

async fn put(call: Call) -> Result<Reply, Reply> {
    let [bucket, name] = names(&call);
    let bad_request = |reason: &str| error_reply(StatusCode::BAD_REQUEST, "bad_request", reason);
    let invalid =
        |reason: &str| error_reply(StatusCode::BAD_REQUEST, "invalid_design_document", reason);
    let cluster = call.node.cluster();
    let config = cluster.bucket(&bucket).map_err(|_| no_bucket())?;
    let document =
        String::from_utf8(call.body.clone()).map_err(|_| bad_request("the body is not UTF-8"))?;
    let parsed: Value = serde_json::from_str(&document)
        .map_err(|error| bad_request(&format!("the body is not JSON: {error}")))?;
    if let Some(collection) = parsed.get("collection") {
        let path = collection
            .as_str()
            .ok_or_else(|| invalid("\"collection\" must be \"scope.collection\""))?;
        config.manifest.resolve(path).map_err(|refusal| invalid(&refusal.to_string()))?;
    }
    check_name(&name).map_err(invalid)?;
    check_members(&parsed).map_err(|reason| invalid(&reason))?;
    check_options(&parsed).map_err(|reason| invalid(&reason))?;
    in_time(loaded(&call)).await?;
    let (node, text, owned) = (Arc::clone(&call.node), document.clone(), name.clone());
    blocking("the check", move || node.plugins().validate_view(&node, &owned, &text))
        .await?
        .map_err(|reason| invalid(&reason))?;
    let id = format!("_design/{name}");
    call.change(Change::Indexes(IndexChange::PutDesignDocument { bucket, name, document })).await?;
    Ok(json_reply(StatusCode::CREATED, &json!({"ok": true, "id": id})))
}

/// Checks the name of a design document.
fn check_name(name: &str) -> Result<(), &'static str> {
    match name {
        _ if name.trim().is_empty() => Err("a design document needs a name"),
        _ if name.chars().any(char::is_control) => {
            Err("the name of a design document has no control characters")
        }
        _ if name.len() > NAME_BYTES_MAX => {
            Err("the name of a design document has 240 bytes at most")
        }
        _ => Ok(()),
    }
}

/// Members of a design document: nacre's own, and those of Couchbase and CouchDB that have no effect in nacre. Members
/// that begin with `_` are also accepted.
const MEMBERS: [&str; 16] = [
    "views",
    "collection",
    "options",
    "language",
    "spatial",
    "name",
    "signature",
    "indexXattrOnDeletedDocs",
    "index_xattr_on_deleted_docs",
    "autoupdate",
    "filters",
    "lists",
    "rewrites",
    "shows",
    "updates",
    "validate_doc_update",
];
/// Members of a view.
const VIEW_MEMBERS: [&str; 2] = ["map", "reduce"];

/// Refuses unknown members: otherwise a misspelt member would be ignored, and the view would differ from the intended
/// one.
pub(super) fn check_members(document: &Value) -> Result<(), String> {
    let unknown = |value: &Value, known: &[&str]| {
        let members = value.as_object().into_iter().flatten();
        let mut names = members.map(|(name, _)| name.clone());
        names.find(|name| !known.contains(&name.as_str()) && !name.starts_with('_'))
    };
    if let Some(name) = unknown(document, &MEMBERS) {
        let known = "views, collection, options, language and spatial";
        return Err(format!("a design document has no member {name:?}; it may have {known}"));
    }
    for (view, value) in document["views"].as_object().into_iter().flatten() {
        if let Some(name) = unknown(value, &VIEW_MEMBERS) {
            return Err(format!(
                "view {view:?} has no member {name:?}; it may have map and reduce"
            ));
        }
    }
    Ok(())
}

/// Checks the options of a design document. Unknown ones are ignored.
fn check_options(document: &Value) -> Result<(), String> {
    let options = match &document["options"] {
        Value::Null => return Ok(()),
        Value::Object(options) => options,
        _ => return Err("\"options\" must be an object".into()),
    };
    let paces = ["updateInterval", "updateMinChanges", "replicaUpdateMinChanges"];
    let wrong = paces.iter().find(|name| options.get(**name).is_some_and(|value| !value.is_u64()));
    wrong.map_or(Ok(()), |name| Err(format!("\"{name}\" must be a number from 0 on")))
}

fn get(call: &Call) -> Result<Reply, Reply> {
    let (bucket, name) = (call.segment("bucket"), call.segment("name"));
    let cluster = call.node.cluster();
    let config = cluster.bucket(bucket).map_err(|_| no_bucket())?;
    let document = config.design_documents.get(name).ok_or_else(missing)?;
    Ok(reply(StatusCode::OK, "application/json", document.clone()))
}

async fn delete(call: Call) -> Result<Reply, Reply> {
    let [bucket, name] = names(&call);
    let cluster = call.node.cluster();
    let config = cluster.bucket(&bucket).map_err(|_| no_bucket())?;
    if !config.design_documents.contains_key(&name) {
        return Err(missing());
    }
    let id = format!("_design/{name}");
    let deployment = call.node.plugins().view(&bucket, &name);
    call.change(Change::Indexes(IndexChange::DropDesignDocument { bucket, name })).await?;
    if let Some(deployment) = deployment {
        // After the answer, no part of the deployment runs any more and its rows are deleted.
        let _ = tokio::task::spawn_blocking(move || deployment.wait_for_feeds()).await;
    }
    Ok(ok(&json!({"ok": true, "id": id})))
}

/// Returns the deployment of a design document, which exists once the plugin is loaded.
async fn deployment(call: &Call) -> Result<Arc<Deployment>, Reply> {
    let (bucket, name) = (call.segment("bucket"), call.segment("name"));
    in_time(async {
        loop {
            let changed = call.node.plugins().changed();
            let cluster = call.node.cluster();
            let config = cluster.bucket(bucket).map_err(|_| no_bucket())?;
            if !config.design_documents.contains_key(name) {
                return Err(no_design(name));
            }
            loaded(call).await?;
            if let Some(deployment) = call.node.plugins().view(bucket, name) {
                return Ok(deployment);
            }
            changed.await;
        }
    })
    .await
}

/// Describes the state of a design document: documents, failures and stored rows.
async fn info(call: Call) -> Result<Reply, Reply> {
    let deployment = deployment(&call).await?;
    let (state, reason) = state_of(&deployment.progress());
    let mut value = counts_of(&deployment);
    value["name"] = deployment.name.as_str().into();
    value["state"] = state.into();
    value["reason"] = reason.into();
    Ok(ok(&value))
}

/// Returns the state of a deployment as a word, and why it has stopped.
pub(super) fn state_of(progress: &Progress) -> (&'static str, Option<String>) {
    match progress {
        Progress::Running => ("running", None),
        Progress::Paused => ("paused", None),
        Progress::Removed | Progress::HandedOver => ("removed", None),
        Progress::Failed(reason) => ("failed", Some(reason.clone())),
        Progress::Damaged(reason) => ("damaged", Some(reason.clone())),
    }
}

/// Returns the counters of a deployment.
pub(super) fn counts_of(deployment: &Deployment) -> Value {
    let status = deployment.status();
    let lossy = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
    let errors: Vec<Value> = status
        .last_errors
        .iter()
        .map(|error| json!({"id": lossy(&error.key), "vbucket": error.vbid.0, "seqno": error.seqno.0, "reason": error.message}))
        .collect();
    let dead_letters: Vec<Value> = status
        .dead_letters
        .iter()
        .map(|dead| json!({"id": lossy(&dead.key), "vbucket": dead.vbid.0, "seqno": dead.seqno.0, "reason": dead.reason}))
        .collect();
    let dead_timers: Vec<Value> = status
        .dead_timers
        .iter()
        .map(|dead| json!({"name": dead.name, "due_us": dead.due_us, "reason": dead.reason}))
        .collect();
    json!({
        "documents": status.documents,
        "document_errors": status.errors,
        "last_errors": errors,
        "dead_letter_count": status.dead_letter_count,
        "dead_letters": dead_letters,
        "log": log_of(&status),
        "traps": status.writer.failures,
        "timers": status.timers,
        "dead_timers": dead_timers,
        "metrics": status.metrics,
        "writer": usage_of(&status.writer),
        "readers": usage_of(&status.readers),
        "memory_bytes": status.memory_bytes,
        "state_bytes": status.state_bytes,
    })
}

/// Returns the log lines of a plugin.
pub(super) fn log_of(status: &Status) -> Vec<Value> {
    let line = |line: &LogLine| json!({"level": line.level, "message": line.message});
    status.log.iter().map(line).collect()
}

/// Returns the cost of the calls of one kind.
pub(super) fn usage_of(usage: &Usage) -> Value {
    let host_calls = usage.host_calls().filter(|(_, count)| *count > 0);
    let host_calls: serde_json::Map<String, Value> =
        host_calls.map(|(capability, count)| (capability.to_string(), count.into())).collect();
    json!({
        "calls": usage.calls,
        "failures": usage.failures,
        "elapsed_ns": usage.elapsed_ns,
        "p50_ns": usage.latency.quantile_ns(0.5),
        "p99_ns": usage.latency.quantile_ns(0.99),
        "host_calls": host_calls,
    })
}

async fn query(call: Call) -> Result<Reply, Reply> {
    let deployment = deployment(&call).await?;
    let [name, view] = ["name", "view"].map(|name| call.segment(name).to_owned());
    let parameters = body::form(call.query.as_bytes());
    let posted: Value = serde_json::from_slice(&call.body).unwrap_or_default();
    // The plugin reads its parameters with the same precedence.
    let parameter = |wanted: &str| match &posted[wanted] {
        Value::Null => {
            parameters.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.clone())
        }
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    };
    let (fresh, updates) = match parameter("stale").as_deref() {
        None | Some("update_after") => (false, true),
        Some("ok" | "true") => (false, false),
        Some("false") => (true, false),
        Some(other) => {
            let reason =
                format!("Invalid value for stale: {other:?}, expected false, ok or update_after");
            return Err(error_reply(StatusCode::BAD_REQUEST, "query_parse_error", &reason));
        }
    };
    let patience = parameter("connection_timeout").and_then(|text| text.parse().ok());
    let terms = Terms {
        vbids: match parameter("full_set").as_deref() {
            Some("true") => None,
            _ => deployment.development_subset(),
        },
        fresh,
        seqnos: Vec::new(),
        updates,
        patience: patience.map_or(FRESH_ROWS_TIMEOUT, Duration::from_millis),
        account: Arc::clone(&call.account),
        partial: None,
    };
    let desk = call.desk().with_right(Privilege::ReadViews, call.segment("bucket"));
    let (begun_ns, user) = (call.node.now().monotonic_ns, call.user.clone());
    let place = [call.segment("bucket"), &name, &view].map(str::to_owned);
    let asked = call.query.clone();
    let request = Request {
        method: if call.method == Method::POST { "POST" } else { "GET" }.into(),
        path: format!("/{view}"),
        query: call.query.clone(),
        headers: Vec::new(),
        body: call.body,
    };
    // A stopped deployment stays stopped until somebody replaces it.
    let failure = ("view_failed", StatusCode::INTERNAL_SERVER_ERROR);
    let patience = terms.patience;
    let shape = |answer: Result<plugins::Reply, Missing>| match answer {
        Ok(answer) => Ok(Annotated::new(answer, &deployment)),
        Err(Missing::Late) => {
            let reason = late(&name, &view, patience, deployment.last_error());
            Err(error_reply(StatusCode::GATEWAY_TIMEOUT, "timeout", &reason))
        }
        Err(missing) => Err(unanswered(&missing, failure)),
    };
    let node = &call.node;
    let answer = answered_as(node, &desk, &deployment.name, request, terms, failure.0, shape).await;
    note_slow(node, begun_ns, place, (asked, user), fresh);
    answer
}

/// Records a slow query if its first rows were late. The time that the client takes to read the rest does not count.
fn note_slow(
    node: &Node,
    begun_ns: u64,
    [bucket, name, view]: [String; 3],
    (target, user): (String, String),
    fresh: bool,
) {
    let now = node.now();
    let elapsed_ns = now.monotonic_ns.saturating_sub(begun_ns);
    if !node.slow_log().is_slow(SlowService::Views, elapsed_ns) {
        return;
    }
    let elapsed = Duration::from_nanos(elapsed_ns);
    let on = match fresh {
        true => "until the view was up to date and the first rows were there",
        false => "until the first rows",
    };
    let operation = SlowOperation {
        service: SlowService::Views,
        operation: format!("{name}/{view}"),
        bucket,
        target,
        user,
        elapsed,
        spent: vec![(on, elapsed)],
        unix_ms: 0,
    };
    node.slow_log().note(operation, now);
}

/// Returns the message about a query that timed out: the view, and the probable cause.
fn late(name: &str, view: &str, patience: Duration, error: Option<(Vec<u8>, String)>) -> String {
    let mut reason = format!(
        "view {view:?} of design document {name:?} was not up to date within {} ms",
        patience.as_millis()
    );
    if let Some((id, message)) = error {
        let id = String::from_utf8_lossy(&id).into_owned();
        reason.push_str(&format!("; the last document that failed was {id:?}: {message}"));
    }
    reason
}

/// The answer of a view with the number of documents that the view failed to map, whose rows are missing.
///
/// The number is a member of `debug_info`, which clients pass on. Official SDKs would treat `errors` as a failed query.
struct Annotated {
    answer: plugins::Reply,
    note: Option<String>,
}

impl Annotated {
    fn new(answer: plugins::Reply, deployment: &Deployment) -> Annotated {
        let count = deployment.document_errors();
        let note = (count > 0 && answer.head().0 == 200).then(|| {
            let (id, reason) = deployment.last_error().unwrap_or_default();
            let last = json!({"id": String::from_utf8_lossy(&id), "reason": reason});
            format!("\"document_errors\":{count},\"last_error\":{last}")
        });
        Annotated { answer, note }
    }
}

impl Pieces for Annotated {
    fn head(&self) -> (u16, &[Header]) {
        self.answer.head()
    }

    fn next_piece(&mut self) -> Result<Option<Vec<u8>>, String> {
        let piece = self.answer.next_piece()?;
        Ok(piece.map(|piece| match self.note.take() {
            Some(note) => annotated(piece, &note),
            None => piece,
        }))
    }
}

/// Inserts `note` among the members of `debug_info` at the beginning of an answer.
fn annotated(piece: Vec<u8>, note: &str) -> Vec<u8> {
    const DEBUG: &[u8] = b"{\"debug_info\":{";
    if let Some(rest) = piece.strip_prefix(DEBUG) {
        let comma: &[u8] = if rest.first() == Some(&b'}') { b"" } else { b"," };
        return [DEBUG, note.as_bytes(), comma, rest].concat();
    }
    match piece.strip_prefix(b"{") {
        Some(rest) => [DEBUG, note.as_bytes(), b"},", rest].concat(),
        None => piece,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_reports_failed_documents() {
        let noted = |text: &str| {
            String::from_utf8(annotated(text.into(), r#""document_errors":2"#)).unwrap()
        };
        for (text, expected) in [
            (
                r#"{"total_rows":0,"rows":[]}"#,
                r#"{"debug_info":{"document_errors":2},"total_rows":0,"rows":[]}"#,
            ),
            (
                r#"{"debug_info":{"local":{}},"rows":["#,
                r#"{"debug_info":{"document_errors":2,"local":{}},"rows":["#,
            ),
            (r#"{"debug_info":{},"rows":["#, r#"{"debug_info":{"document_errors":2},"rows":["#),
            ("", ""),
        ] {
            assert_eq!(noted(text), expected);
        }
    }

    #[test]
    fn a_late_view_is_named() {
        let told = late("d", "v", Duration::from_secs(2), Some((b"k".to_vec(), "it loops".into())));
        assert_eq!(
            told,
            "view \"v\" of design document \"d\" was not up to date within 2000 ms; \
             the last document that failed was \"k\": it loops"
        );
    }

    #[test]
    fn misspelt_members_are_refused_by_name() {
        for (document, named) in [
            (json!({"colection": "a.b", "views": {}}), "\"colection\""),
            (json!({"view": {}}), "\"view\""),
            (
                json!({"views": {"v": {"map": "", "redcue": "_sum"}}}),
                "view \"v\" has no member \"redcue\"",
            ),
        ] {
            let refused = check_members(&document).unwrap_err();
            assert!(refused.contains(named), "{refused}");
        }
        let members = MEMBERS.iter().map(|name| ((*name).to_owned(), json!({})));
        assert_eq!(check_members(&Value::Object(members.collect())), Ok(()));
        assert_eq!(check_members(&json!({"views": {"v": {"map": "", "reduce": null}}})), Ok(()));
    }

    #[test]
    fn names_and_options_of_design_documents_are_checked() {
        for name in ["", " ", "a\0b", "a\nb", &"x".repeat(241)] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
        assert!(check_name("dev_a b").is_ok() && check_name(&"x".repeat(240)).is_ok());
        for options in [json!(7), json!({"updateInterval": "x"}), json!({"updateMinChanges": -3})] {
            assert!(check_options(&json!({"options": options})).is_err(), "{options}");
        }
        assert!(check_options(&json!({"options": {"updateInterval": 0, "other": "x"}})).is_ok());
        assert!(check_options(&json!({"views": {}})).is_ok());
    }
}
