//! `_changes`: documents in the order of their newest changes, once or continuously.
//!
//! | feed | answer |
//! | --- | --- |
//! | `normal` | one object, in pieces |
//! | `longpoll` | the same, as soon as there is a change |
//! | `continuous` | a line for each change, and an empty one as heartbeat |
//! | `eventsource` | the same as server-sent events |
//!
//! If there is nothing to send, the answer has the headers `nacre-rest` and `nacre-wait`: the node keeps the connection, and
//! calls again once the state has advanced or the heartbeat is due.

use crate::documents::{Shape, render};
use crate::http::{Problem, header, json};
use crate::index::{self, BySeq, Meta};
use crate::json::quoted;
use crate::selector::Selector;
use crate::store::Store;
use crate::tree::Rev;
use crate::{Call, ask_again};
use nacre_plugin::{Chunk, Fault, Response, State, turn};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Changes per read.
const PAGE: u32 = 200;
/// Milliseconds until a piece of the answer is returned.
const PIECE_MS: u32 = 500;
/// Default and maximum milliseconds that an answer waits for a change, and default interval of heartbeats.
const WAIT_MS: u64 = 60_000;
/// Minimum interval of heartbeats.
const HEARTBEAT_MS_MIN: u64 = 100;
/// Maximum bytes of the body of a request whose answer waits, because the node keeps it meanwhile.
const HELD_BODY_BYTES_MAX: usize = 64 << 10;
/// Maximum number of changes counted for `pending`.
const PENDING_MAX: u32 = 10_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Feed {
    Normal,
    Longpoll,
    Continuous,
    EventSource,
}

impl Feed {
    fn is_lines(self) -> bool {
        matches!(self, Feed::Continuous | Feed::EventSource)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Filter {
    None,
    Ids(Vec<String>),
    Selector(Value),
    Design,
}

/// A request, and the progress of its answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Query {
    feed: Feed,
    after: u64,
    /// The epoch of `after`.
    epoch: String,
    /// Number of rows that may still be returned.
    left: Option<u64>,
    descending: bool,
    all_leaves: bool,
    include_docs: bool,
    conflicts: bool,
    attachments: bool,
    filter: Filter,
    heartbeat_ms: Option<u64>,
    /// The end of an answer without heartbeats, in microseconds since the Unix epoch.
    ends_us: u64,
    /// True if a row was returned.
    has_rows: bool,
}

impl Query {
    /// Handles a state that has begun another epoch, or was rebuilt, while the answer waited.
    fn catch_up(&mut self, state: &dyn State, meta: &Meta) {
        if self.epoch != meta.epoch && !self.descending {
            self.after = meta.shared(state, self.after, &self.epoch);
        }
        self.epoch.clone_from(&meta.epoch);
    }
}

#[derive(Default, Deserialize)]
struct Posted {
    doc_ids: Option<Vec<String>>,
    selector: Option<Value>,
}

/// Answers `/{db}/_changes`.
///
/// # Errors
/// 400 or 404 for an invalid request.
pub fn answer(call: &Call<'_>) -> Result<Response, Problem> {
    let meta = Meta::of(call.state());
    if let Some(rest) = header(call.request, "nacre-rest") {
        let mut query: Query =
            serde_json::from_str(rest).map_err(|error| Problem::bad(&error.to_string()))?;
        query.catch_up(call.state(), &meta);
        return Ok(go_on(call, query, &meta, true));
    }
    let query = read(call, &meta)?;
    if query.feed == Feed::Normal && !call.is_fresh() {
        return Ok(ask_again());
    }
    Ok(go_on(call, query, &meta, false))
}

fn read(call: &Call<'_>, meta: &Meta) -> Result<Query, Problem> {
    let parameters = &call.parameters;
    let feed = match parameters.get("feed") {
        None | Some("normal") => Feed::Normal,
        Some("longpoll") => Feed::Longpoll,
        Some("continuous" | "live") => Feed::Continuous,
        Some("eventsource") => Feed::EventSource,
        Some(_) => {
            return Err(Problem::bad(
                "Supported `feed` types: normal, continuous, live, longpoll, eventsource",
            ));
        }
    };
    if feed != Feed::Normal && call.request.body.len() > HELD_BODY_BYTES_MAX {
        let reason = format!(
            "a feed that waits takes a body of at most {HELD_BODY_BYTES_MAX} bytes: filter what it gives"
        );
        return Err(Problem::new(413, "too_large", &reason));
    }
    let all_leaves = match parameters.get("style") {
        None | Some("main_only") => false,
        Some("all_docs") => true,
        Some(style) => {
            return Err(Problem::bad(&format!("`style` is main_only or all_docs, not {style}")));
        }
    };
    let descending = parameters.is("descending");
    let since = header(call.request, "last-event-id").or(parameters.get("since"));
    let after = match since {
        Some(token) if !descending => meta.seq_of(call.state(), token),
        _ if descending => u64::MAX,
        _ => 0,
    };
    let posted: Posted = match call.request.method == "POST" && !call.request.body.is_empty() {
        true => crate::http::body(call.request)?,
        false => Posted::default(),
    };
    let filter = match parameters.get("filter") {
        None => Filter::None,
        Some("_doc_ids") => Filter::Ids(match (posted.doc_ids, parameters.json("doc_ids")?) {
            (Some(ids), _) | (None, Some(ids)) => ids,
            (None, None) => return Err(Problem::bad("`doc_ids` filter parameter is not a list.")),
        }),
        Some("_selector") => match posted.selector {
            Some(selector @ Value::Object(_)) => {
                Selector::read(&selector)?;
                Filter::Selector(selector)
            }
            Some(_) => return Err(Problem::bad("Selector error: expected a JSON object")),
            None => return Err(Problem::bad("Selector must be specified in POST payload")),
        },
        Some("_design") => Filter::Design,
        Some("_view") if parameters.get("view").is_none() => {
            return Err(Problem::bad("`view` filter parameter is not provided."));
        }
        Some(name) => {
            let reason =
                format!("missing json key: filters: {name} (filter functions are not supported)");
            return Err(Problem::missing(&reason));
        }
    };
    let heartbeat_ms = match parameters.get("heartbeat") {
        None | Some("false") => None,
        Some("true") => Some(WAIT_MS),
        Some(_) => parameters.number("heartbeat")?.map(|ms| ms.clamp(HEARTBEAT_MS_MIN, WAIT_MS)),
    };
    let timeout_ms = parameters.number("timeout")?.unwrap_or(WAIT_MS).min(WAIT_MS);
    Ok(Query {
        feed,
        after,
        epoch: meta.epoch.clone(),
        left: parameters.number("limit")?.map(|limit| limit.max(1)),
        descending,
        all_leaves,
        include_docs: parameters.is("include_docs"),
        conflicts: parameters.is("conflicts"),
        attachments: parameters.is("attachments"),
        filter,
        heartbeat_ms,
        ends_us: call.request.now_us + timeout_ms * 1000,
        has_rows: false,
    })
}

/// Begins an answer, or continues one that has waited.
fn go_on(call: &Call<'_>, mut query: Query, meta: &Meta, has_begun: bool) -> Response {
    let mut text = match (query.feed, has_begun) {
        (Feed::Normal | Feed::Longpoll, false) => String::from("{\"results\":[\n"),
        _ => String::new(),
    };
    let waits = query.feed != Feed::Normal;
    let is_done = rows(&call.store, &mut query, meta, &mut text);
    let response = |text: String| {
        let mut response = json(200, text);
        if query.feed == Feed::EventSource {
            response.headers[0].1 = "text/event-stream".into();
        }
        response
    };
    let is_over = query.left == Some(0) || (query.feed == Feed::Longpoll && query.has_rows);
    let held = |text: String, wait_ms: u64| {
        let mut response = response(text);
        let rest = serde_json::to_string(&query).unwrap_or_default();
        response.headers.push(("nacre-rest".into(), rest));
        response.headers.push(("nacre-wait".into(), wait_ms.to_string()));
        response
    };
    if !is_done && query.feed.is_lines() {
        // The node calls for the next lines at once.
        return held(text, 0);
    }
    if !is_done {
        let mut response = response(text);
        response.cursor = Some(cursor(&query));
        return response;
    }
    let is_late = query.heartbeat_ms.is_none() && call.request.now_us >= query.ends_us;
    if !waits || is_over || is_late {
        end(&query, meta, &call.store, &mut text);
        return response(text);
    }
    if text.is_empty() && has_begun {
        text.push_str(match query.feed {
            Feed::EventSource => "event: heartbeat\ndata: \n\n",
            _ => "\n",
        });
    }
    let left_ms = query.ends_us.saturating_sub(call.request.now_us) / 1000;
    let wait_ms = query.heartbeat_ms.unwrap_or(left_ms.max(1));
    held(text, wait_ms)
}

fn cursor(query: &Query) -> Vec<u8> {
    [&b"c"[..], &serde_json::to_vec(query).unwrap_or_default()].concat()
}

/// Returns the next piece of an answer with many rows.
///
/// # Errors
/// [`Fault::Reject`] for an invalid cursor.
pub fn piece(store: &Store<'_>, cursor_json: &[u8]) -> Result<Chunk, Fault> {
    let mut query: Query =
        serde_json::from_slice(cursor_json).map_err(|error| Fault::Reject(error.to_string()))?;
    let (meta, mut text) = (Meta::of(store.state), String::new());
    match rows(store, &mut query, &meta, &mut text) {
        false => Ok(Chunk { body: text.into_bytes(), cursor: Some(cursor(&query)) }),
        true => {
            end(&query, &meta, store, &mut text);
            Ok(Chunk { body: text.into_bytes(), cursor: None })
        }
    }
}

fn end(query: &Query, meta: &Meta, store: &Store<'_>, text: &mut String) {
    let is_cut = query.left == Some(0) || query.descending;
    let last = match query.descending {
        true if query.after == u64::MAX => meta.seq,
        _ => query.after,
    };
    let pending = match is_cut && !query.descending {
        true => index::changes(store.state, query.after, PENDING_MAX, false).len(),
        false => 0,
    };
    let last = quoted(&meta.token(last));
    match query.feed {
        Feed::EventSource => {}
        Feed::Continuous => {
            text.push_str(&format!("{{\"last_seq\":{last},\"pending\":{pending}}}\n"));
        }
        Feed::Normal | Feed::Longpoll => {
            text.push_str(&format!("\n],\n\"last_seq\":{last},\"pending\":{pending}}}\n"));
        }
    }
}

/// Adds rows to `text`. Returns true if there are no more, and false if it is time for a piece.
fn rows(store: &Store<'_>, query: &mut Query, meta: &Meta, text: &mut String) -> bool {
    let selector = match &query.filter {
        Filter::Selector(selector) => Selector::read(selector).ok(),
        _ => None,
    };
    loop {
        let page = index::changes(store.state, query.after, PAGE, query.descending);
        if page.is_empty() {
            if !query.descending {
                query.after = query.after.max(meta.seq);
            }
            return true;
        }
        for (seq, row) in page {
            if query.left == Some(0) {
                return true;
            }
            query.after = seq;
            if let Some(line) = line(store, query, meta, seq, &row, selector.as_ref()) {
                match query.feed {
                    Feed::EventSource => {
                        let id = meta.token(seq);
                        text.push_str(&format!("data: {line}\nid: {id}\n\n"));
                    }
                    Feed::Continuous => {
                        text.push_str(&line);
                        text.push('\n');
                    }
                    Feed::Normal | Feed::Longpoll => {
                        text.push_str(if query.has_rows { ",\n" } else { "" });
                        text.push_str(&line);
                    }
                }
                query.has_rows = true;
                query.left = query.left.map(|left| left - 1);
            }
        }
        if query.left == Some(0) {
            return true;
        }
        if turn::passed_ms() >= PIECE_MS {
            return false;
        }
    }
}

fn line(
    store: &Store<'_>,
    query: &Query,
    meta: &Meta,
    seq: u64,
    row: &BySeq,
    selector: Option<&Selector>,
) -> Option<String> {
    let is_wanted = match &query.filter {
        Filter::Ids(ids) => ids.contains(&row.id),
        Filter::Design => row.id.starts_with("_design/"),
        Filter::None | Filter::Selector(_) => true,
    };
    if !is_wanted {
        return None;
    }
    let document = match query.include_docs || selector.is_some() {
        true => document(store, query, row),
        false => None,
    };
    if let Some(selector) = selector {
        let value: Value = serde_json::from_str(document.as_deref()?).ok()?;
        if !selector.matches(&value) {
            return None;
        }
    }
    let count = if query.all_leaves { row.leaves.len() } else { 1 };
    let changes: Vec<String> =
        row.leaves.iter().take(count).map(|rev| format!("{{\"rev\":{}}}", quoted(rev))).collect();
    let (token, id) = (quoted(&meta.token(seq)), quoted(&row.id));
    let mut line = format!("{{\"seq\":{token},\"id\":{id},\"changes\":[{}]", changes.join(","));
    if row.deleted {
        line.push_str(",\"deleted\":true");
    }
    if query.include_docs {
        line.push_str(",\"doc\":");
        line.push_str(document.as_deref().unwrap_or("null"));
    }
    line.push('}');
    Some(line)
}

/// Returns the winner of a document, which may be newer than the change.
fn document(store: &Store<'_>, query: &Query, row: &BySeq) -> Option<String> {
    let shape =
        Shape { conflicts: query.conflicts, attachments: query.attachments, ..Shape::default() };
    let deleted = || {
        let rev = Rev::parse(row.leaves.first()?)?;
        let (id, rev) = (quoted(&row.id), quoted(&rev.to_string()));
        Some(format!("{{\"_id\":{id},\"_rev\":{rev},\"_deleted\":true}}"))
    };
    let version = match store.load(&row.id) {
        Ok(version) if version.is_imported => {
            // The revision is returned to a client, so it must stay.
            store.import(&row.id).ok()?;
            version
        }
        Ok(version) => version,
        Err(_) if row.deleted => return deleted(),
        Err(_) => return None,
    };
    match version.winner() {
        Some(winner) => render(store, &version, &winner, shape).ok(),
        None if row.deleted => deleted(),
        None => None,
    }
}
