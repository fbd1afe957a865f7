//! Events: `/logs`, `/events`, `/eventsStreaming`, `/diag`, and collections of logs. Paths, fields and texts are
//! Couchbase's.

use super::body::{Reply, blocking, done, invalid, json_reply, ok, reply};
use super::nodes::Form;
use super::pieces::pieces;
use super::routes::{ADMINISTER, READ, Route, get, post, ready};
use super::streams::{Kind, STALLED_MAX};
use super::{Call, date, nodes, pool};
use http_body_util::BodyExt;
use hyper::{Response, StatusCode};
use nacre_auth::{Privilege, Redaction, UserData};
use nacre_http::Access;
use nacre_links::cluster::membership::{is_named, otp_node};
use nacre_links::log_collection::Progress;
use nacre_node::Node;
use nacre_node::journal::Event;
use serde_json::{Value, json};
use std::fmt::Write;
use std::sync::Arc;

/// Default number of events in an answer. Source: Couchbase.
const EVENTS: usize = 250;
/// Maximum number of entries in `/logs`. Source: Couchbase keeps as many.
const LOG_ENTRIES: usize = 3000;
/// Attributes of events that have names of users.
const USER_ATTRIBUTES: [&str; 2] = ["user", "users"];

pub(super) const ROUTES: &[Route] = &[
    get("/logs", READ, |call| ready(Ok(ok(&json!({"list": log_entries(&call)}))))),
    get("/events", READ, |call| ready(events(&call))),
    get("/eventsStreaming", READ, |call| ready(follow(call))),
    get("/diag", ADMINISTER, |call| Box::pin(diag(call))),
    get("/sasl_logs", ADMINISTER, |call| Box::pin(diag(call))),
    post("/controller/startLogsCollection", ADMINISTER, |call| Box::pin(start(call))),
    post("/controller/cancelLogsCollection", ADMINISTER, |call| ready(cancel(&call))),
    post("/logClientError", Access::Sight, |call| ready(note(&call))),
];

fn events(call: &Call) -> Result<Reply, Reply> {
    let (since, limit) = range(call)?;
    let events = call.node.journal().last(0, usize::MAX);
    let newer: Vec<Value> = events
        .iter()
        .filter(|event| time(event) >= since)
        .map(|event| describe(&call.node, event))
        .collect();
    // The limit keeps the newest events.
    let skipped = newer.len().saturating_sub(limit);
    Ok(ok(&json!({"events": newer[skipped..]})))
}

fn follow(call: Call) -> Result<Reply, Reply> {
    let (since, limit) = range(&call)?;
    stream(call, since, limit)
}

async fn diag(call: Call) -> Result<Reply, Reply> {
    let text = diagnosis(&call).await?;
    Ok(reply(StatusCode::OK, "text/plain; charset=utf-8", text))
}

fn cancel(call: &Call) -> Result<Reply, Reply> {
    match call.records.collections.cancel() {
        true => Ok(done()),
        false => {
            let reason = "Log collection is not running";
            Err(json_reply(StatusCode::BAD_REQUEST, &json!(reason)))
        }
    }
}

/// Logs a client's report about itself.
fn note(call: &Call) -> Result<Reply, Reply> {
    let text = String::from_utf8_lossy(&call.body);
    let text: String = text.chars().filter(|letter| !letter.is_control()).take(500).collect();
    tracing::info!("a client reports: {text}");
    Ok(done())
}

/// Reads the earliest time of events, as a text, and the maximum number of events.
fn range(call: &Call) -> Result<(String, usize), Reply> {
    let since = call.parameter("sinceTime").unwrap_or_default();
    let looks_good = |text: &str| {
        text.len() >= 20
            && text.as_bytes()[10] == b'T'
            && text.ends_with('Z')
            && text.bytes().all(|byte| byte.is_ascii_digit() || b"-:.TZ".contains(&byte))
    };
    if !since.is_empty() && !looks_good(&since) {
        let reason = "must be a valid ISO 8601 UTC timestamp";
        return Err(invalid("sinceTime", reason));
    }
    let limit = match call.parameter("limit").as_deref() {
        None => EVENTS,
        Some("-1") => usize::MAX,
        Some(text) => {
            let limit = text.parse().ok().filter(|limit| *limit >= 1);
            limit.ok_or_else(|| invalid("limit", "must be an integer of at least 1, or -1"))?
        }
    };
    Ok((since, limit))
}

fn time(event: &Event) -> String {
    let seconds = i64::try_from(event.unix_ms / 1000).unwrap_or_default();
    date(seconds, u32::try_from(event.unix_ms % 1000).unwrap_or_default())
}

fn describe(node: &Node, event: &Event) -> Value {
    let endpoints = node.endpoints();
    json!({
        "timestamp": time(event),
        "uuid": event.uuid,
        "event_id": event.kind.id,
        "component": event.kind.component,
        "severity": event.kind.severity,
        "description": event.kind.description,
        "node": endpoints.management(),
        "otp_node": otp_node(&endpoints),
        "extra_attributes": event.attributes,
    })
}

/// Returns the events as texts for people, newest first.
fn log_entries(call: &Call) -> Vec<Value> {
    let endpoints = call.node.endpoints();
    let events = call.node.journal().last(0, LOG_ENTRIES);
    let entry = |event: &Event| {
        json!({
            "node": otp_node(&endpoints),
            "type": match event.kind.severity {
                "error" => "critical",
                "warn" => "warning",
                _ => "info",
            },
            "code": event.kind.id,
            "module": event.kind.component,
            "tstamp": event.unix_ms,
            "shortText": "message",
            "text": sentence(event),
            "serverTime": time(event),
        })
    };
    events.iter().rev().map(entry).collect()
}

/// Formats an event as one line.
fn sentence(event: &Event) -> String {
    let mut text = event.kind.description.to_owned();
    let attributes = event.attributes.as_object().into_iter().flatten();
    for (index, (name, value)) in attributes.enumerate() {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let _ = write!(text, "{} {name} {value}", if index == 0 { ":" } else { "," });
    }
    text
}

/// Streams the latest events and then each new one, as long as the user may read them. Four newlines follow each event.
fn stream(call: Call, since: String, limit: usize) -> Result<Reply, Reply> {
    let place = call.desk().enter(Kind::Watch)?;
    let (sender, body) = pieces();
    tokio::spawn(async move {
        let _place = place;
        let node = Arc::clone(&call.node);
        let (mut last, mut limit) = (0, limit);
        loop {
            let (added, users) = (node.journal().added(), node.users_changed());
            tokio::pin!(added);
            // From here on, the future sees every event.
            added.as_mut().enable();
            if call.require(Privilege::ReadCluster, None).is_err() {
                return sender.finish();
            }
            for event in node.journal().last(last, limit) {
                last = event.number;
                if time(&event) < since {
                    continue;
                }
                let piece = format!("{}\n\n\n\n", describe(&node, &event));
                let sent = tokio::time::timeout(STALLED_MAX, sender.send(piece)).await;
                if !sent.unwrap_or(false) {
                    return;
                }
            }
            limit = usize::MAX;
            tokio::select! {
                () = added => {}
                () = users => {}
                () = sender.closed() => return,
            }
        }
    });
    Ok(Response::new(body.boxed()))
}

/// Returns an event with its names of users marked.
fn marked(event: &Event) -> Event {
    let mut event = event.clone();
    for name in USER_ATTRIBUTES {
        match event.attributes.get_mut(name) {
            Some(Value::String(user)) => *user = UserData(&*user).to_string(),
            Some(Value::Array(users)) => {
                for user in users {
                    if let Value::String(user) = user {
                        *user = UserData(&*user).to_string();
                    }
                }
            }
            _ => {}
        }
    }
    event
}

/// Returns diagnostics of the node for support, without documents, passwords or keys. Names of users are marked.
async fn diagnosis(call: &Call) -> Result<String, Reply> {
    let pool = pool::describe(call).await?;
    let cluster = call.node.cluster();
    let mut text = String::new();
    let mut section = |name: &str, value: &Value| {
        let _ = writeln!(text, "== {name}\n{value:#}\n");
    };
    section("version", &json!({"nacre": env!("CARGO_PKG_VERSION")}));
    section("pool", &pool);
    section("this node", &nodes::describe_own(call));
    let buckets: Vec<Value> = cluster
        .buckets
        .values()
        .map(|bucket| {
            json!({
                "name": bucket.name,
                "uuid": bucket.uuid,
                "settings": bucket.settings,
                "collections": bucket.manifest.scopes.iter().map(|scope| scope.collections.len()).sum::<usize>(),
                "indexes": bucket.indexes.len(),
                "designDocuments": bucket.design_documents.len(),
            })
        })
        .collect();
    section("buckets", &Value::Array(buckets));
    section("settings", &json!(cluster.settings));
    let events = call.node.journal().last(0, usize::MAX);
    let events = events.iter().map(|event| describe(&call.node, &marked(event))).collect();
    section("events", &Value::Array(events));
    Ok(text)
}

/// `POST /controller/startLogsCollection`: collects the logs of this node into a file in its data directory.
async fn start(call: Call) -> Result<Reply, Reply> {
    let form = Form(call.form());
    let own = otp_node(&call.node.endpoints());
    for (field, value) in &form.0 {
        match (field.as_str(), value.as_str()) {
            ("nodes", "*") if call.node.cluster().nodes.len() == 1 => {}
            ("nodes", "*") => {
                let reason = "A node collects its own logs: ask each node, and name it.";
                return Err(invalid("nodes", reason));
            }
            ("nodes", names) => {
                let unknown = names.split(',').find(|name| nodes::find(&call.node, name).is_none());
                if let Some(name) = unknown {
                    return Err(invalid("nodes", format!("Unknown server: {name}")));
                }
                if !names.split(',').any(|name| is_named(&call.node.endpoints(), name)) {
                    let reason = format!("A node collects its own logs: ask {names} itself.");
                    return Err(invalid("nodes", reason));
                }
            }
            ("logRedactionLevel", "none" | "partial") | ("logRedactionSalt" | "from", _) => {}
            ("logRedactionLevel", _) => {
                return Err(invalid(field, "The value must be one of: none, partial"));
            }
            ("uploadHost" | "uploadProxy" | "customer" | "ticket", _) => {
                return Err(invalid(field, "Nothing is uploaded: fetch the file from the node."));
            }
            ("logDir" | "tmpDir", _) => {
                return Err(invalid(
                    field,
                    "The file is in the folder logs of the data directory.",
                ));
            }
            _ => return Err(invalid(field, "Unsupported key")),
        }
    }
    if form.optional("nodes").is_none() {
        return Err(invalid("nodes", "The value must be supplied"));
    }
    let now = call.node.now();
    let seconds = i64::from(now.unix_s());
    let millis = u32::try_from(now.unix_ns / 1_000_000 % 1000).unwrap_or_default();
    if !call.records.collections.begin(&date(seconds, millis), &own) {
        let reason = "Log collection is already running";
        return Err(json_reply(StatusCode::BAD_REQUEST, &json!(reason)));
    }
    let mut text = diagnosis(&call).await.unwrap_or_default();
    if form.optional("logRedactionLevel") == Some("partial") {
        let salt =
            form.optional("logRedactionSalt").map_or_else(|| call.node.new_uuid(), str::to_owned);
        text = Redaction::new(salt.as_bytes()).redact(&text);
    }
    let records = Arc::clone(&call.records);
    blocking("the collection", move || records.collections.finish(&text)).await?;
    Ok(done())
}

/// Describes the latest collection as a task of `/pools/default/tasks`, if there is one.
pub(super) fn task(call: &Call) -> Option<Value> {
    let last = call.records.collections.last()?;
    let (status, node) = match &last.progress {
        Progress::Running => ("running", json!({"status": "starting"})),
        Progress::Done(path) => {
            ("completed", json!({"status": "collected", "path": path.display().to_string()}))
        }
        Progress::Failed(reason) => ("completed", json!({"status": "failed", "error": reason})),
        Progress::Cancelled => ("cancelled", json!({"status": "failed"})),
    };
    let progress = if last.progress == Progress::Running { 0 } else { 100 };
    Some(json!({
        "type": "clusterLogsCollection",
        "status": status,
        "progress": progress,
        "ts": last.timestamp,
        "timestamp": last.timestamp,
        "perNode": {(last.node): node},
        "cancelURI": "/controller/cancelLogsCollection",
    }))
}
