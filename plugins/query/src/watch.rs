//! Requests as operators see them: active ones, which can be stopped, and slow ones.
//!
//! All of this is stored in notes, so each instance of the service sees the requests of all. The host removes a note below
//! `request/` at the end of its request, however it ends.

use crate::controls;
use crate::object_text::ObjectText;
use crate::request::Request;
use crate::run::Run;
use nacre_datastore::{Datastore, Platform};
use nacre_sql::ast::Expr;
use nacre_sql::{Env, Error, Name, Result, Value, eval, functions};

const ACTIVE: &str = "request/";
const STOP: &str = "stop/";
const COMPLETED: &str = "completed/";

/// The key of the note with the minimum duration of requests that are kept after they end, in milliseconds.
const COMPLETED_THRESHOLD: &str = "settings/completed-threshold";
/// Its default. Source: Couchbase's `completed-threshold`.
const COMPLETED_THRESHOLD_MS: i64 = 1000;
/// Maximum number of bytes kept of a statement.
const STATEMENT_BYTES_MAX: usize = 4096;

/// The outcome of a request.
pub(crate) struct End {
    pub state: &'static str,
    pub error_count: usize,
    pub result_count: u64,
    pub result_bytes: u64,
    pub mutation_count: u64,
}

/// Records that a request is running.
pub(crate) fn begin(id: &str, request: &Request, store: &dyn Datastore) {
    let row = row_of(id, request, store, "running").end();
    store.notes().note(&format!("{ACTIVE}{id}"), Some(&row));
}

/// Records the end of a request, and keeps its description if it was slow.
pub(crate) fn end(
    id: &str,
    request: &Request,
    end: &End,
    store: &dyn Datastore,
    platform: &dyn Platform,
) {
    let notes = store.notes();
    notes.note(&format!("{ACTIVE}{id}"), None);
    let elapsed_ms = (platform.now_ms() - request.settings.statement_ms).max(1);
    let threshold_ms = completed_threshold_ms(store);
    if threshold_ms < 0 || elapsed_ms < threshold_ms {
        return;
    }
    let mut row = row_of(id, request, store, end.state);
    row.text("elapsedTime", &format!("{elapsed_ms}ms"));
    row.number("errorCount", end.error_count as u64);
    row.number("mutations", end.mutation_count);
    row.number("resultCount", end.result_count);
    row.number("resultSize", end.result_bytes);
    row.text("serviceTime", &format!("{elapsed_ms}ms"));
    notes.note(&format!("{COMPLETED}{id}"), Some(&row.end()));
}

fn row_of(id: &str, request: &Request, store: &dyn Datastore, state: &str) -> ObjectText {
    let statement = request.statement.as_deref().map(|text| {
        let end =
            (0..=STATEMENT_BYTES_MAX.min(text.len())).rfind(|end| text.is_char_boundary(*end));
        &text[..end.unwrap_or(0)]
    });
    let context = request.settings.context.as_ref().map(ToString::to_string);
    let mut row = ObjectText::new();
    row.text_if("clientContextID", request.client_context_id.as_deref());
    row.text_if("preparedName", request.prepared.as_deref());
    row.text_if("queryContext", context.as_deref());
    row.text("requestId", id);
    if let Some(json) = controls::kept(request) {
        row.json("controls", &json);
    }
    row.text("scanConsistency", controls::level_of(request));
    row.number("startedMs", request.settings.statement_ms);
    row.text("state", state);
    row.text_if("statement", statement);
    row.text("users", &store.user());
    row
}

/// Returns the rows of `system:active_requests`.
pub(crate) fn active(run: &Run<'_>) -> Result<Vec<(Name, Value)>> {
    rows(ACTIVE, run, |started_ms| {
        let elapsed = format!("{}ms", (run.platform.now_ms() - started_ms).max(1));
        vec![("elapsedTime", Value::from(elapsed.as_str())), ("executionTime", elapsed.into())]
    })
}

/// Returns the minimum duration of requests that are kept after they end, in milliseconds; -1 if none is kept.
pub(crate) fn completed_threshold_ms(store: &dyn Datastore) -> i64 {
    let set = store.notes().recall(COMPLETED_THRESHOLD).and_then(|text| text.parse().ok());
    set.unwrap_or(COMPLETED_THRESHOLD_MS)
}

/// Returns the rows of `system:tasks_cache`, with times as text.
pub(crate) fn tasks(run: &Run<'_>) -> Result<Vec<(Name, Value)>> {
    let mut rows = run.store.catalog("tasks_cache")?.unwrap_or_default();
    for (_, row) in &mut rows {
        let Value::Object(fields) = row else { continue };
        let fields_mut = std::sync::Arc::make_mut(fields);
        for (ms, text) in [("startMs", "startTime"), ("stopMs", "stopTime")] {
            if let Some(time_ms) = fields_mut.shift_remove(ms).and_then(|value| value.as_i64()) {
                fields_mut.insert(text.into(), utc(time_ms, run)?);
            }
        }
    }
    Ok(rows)
}

/// Returns the rows of `system:completed_requests`.
pub(crate) fn completed(run: &Run<'_>) -> Result<Vec<(Name, Value)>> {
    rows(COMPLETED, run, |_| Vec::new())
}

fn rows(
    prefix: &str,
    run: &Run<'_>,
    more: impl Fn(i64) -> Vec<(&'static str, Value)>,
) -> Result<Vec<(Name, Value)>> {
    let notes = run.store.notes();
    let mut rows = Vec::new();
    for key in notes.keys(prefix)? {
        // The request may have ended since the keys were read.
        let Some(noted) = notes.recall(&key).and_then(|text| Value::parse(text.as_bytes()).ok())
        else {
            continue;
        };
        let Value::Object(mut fields) = noted else { continue };
        let fields_mut = std::sync::Arc::make_mut(&mut fields);
        let started = fields_mut.shift_remove("startedMs").unwrap_or_default();
        let started_ms = started.as_i64().unwrap_or_default();
        fields_mut.insert("requestTime".into(), utc(started_ms, run)?);
        for (name, value) in more(started_ms) {
            fields_mut.insert(name.into(), value);
        }
        rows.push((key[prefix.len()..].into(), Value::Object(fields)));
    }
    Ok(rows)
}

/// Formats a time as text.
pub(crate) fn utc(ms: i64, run: &Run<'_>) -> Result<Value> {
    let function = functions::find("MILLIS_TO_UTC").expect("a function of the language");
    let call = Expr::Call(function, vec![Expr::Literal(Value::Int(ms))]);
    eval(&call, &Env::new(), &run.context())
}

/// Stops a request soon.
pub(crate) fn stop(id: &str, run: &Run<'_>) {
    run.store.notes().note(&format!("{STOP}{id}"), Some(""));
}

/// Removes a completed request.
pub(crate) fn forget(id: &str, run: &Run<'_>) {
    run.store.notes().note(&format!("{COMPLETED}{id}"), None);
}

/// Checks whether a request may continue.
///
/// # Errors
/// Code 1190 if it was stopped.
pub(crate) fn check(id: &str, store: &dyn Datastore) -> Result<()> {
    let key = format!("{STOP}{id}");
    if id.is_empty() || store.notes().recall(&key).is_none() {
        return Ok(());
    }
    store.notes().note(&key, None);
    Err(Error::new(1190, "Request has been stopped"))
}
