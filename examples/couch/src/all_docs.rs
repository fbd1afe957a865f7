//! `_all_docs` and `_design_docs`: documents in the order of their IDs, compared as bytes.

use crate::documents::{Shape, render};
use crate::http::{Problem, body, json};
use crate::index::{self, Meta};
use crate::json::quoted;
use crate::store::Store;
use crate::{Call, ask_again};
use nacre_plugin::{Chunk, Fault, Response, successor, turn};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Documents per read.
const PAGE: u32 = 500;
/// Milliseconds until a piece of the answer is returned.
const PIECE_MS: u32 = 500;
/// Maximum number of keys in a request.
const KEYS_MAX: usize = 10_000;

/// A request, and the progress of its answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Query {
    start: Vec<u8>,
    end: Vec<u8>,
    descending: bool,
    left: u64,
    skip: u64,
    include_docs: bool,
    conflicts: bool,
    attachments: bool,
    has_rows: bool,
}

impl Query {
    fn shape(&self) -> Shape {
        Shape { conflicts: self.conflicts, attachments: self.attachments, ..Shape::default() }
    }
}

/// Answers `/{db}/_all_docs`, or returns the documents whose IDs begin with `prefix`.
///
/// # Errors
/// 400 for invalid parameters.
pub fn answer(call: &Call<'_>, prefix: &str) -> Result<Response, Problem> {
    if !call.is_fresh() {
        return Ok(ask_again());
    }
    // Members of a body are parameters, too.
    let mut parameters = call.parameters.clone();
    if call.request.method == "POST" && !call.request.body.is_empty() {
        let members: serde_json::Map<String, Value> = body(call.request)?;
        members.iter().for_each(|(name, value)| parameters.set(name, value.to_string()));
    }
    let keys: Option<Vec<Value>> = parameters.json("keys")?;
    let text = |names: [&str; 2]| -> Result<Option<String>, Problem> {
        let values = names.iter().map(|name| parameters.json::<Value>(name));
        let value = values.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().next();
        Ok(match value {
            None => None,
            Some(Value::String(text)) => Some(text),
            // Numbers and null sort before all texts, arrays and objects after them.
            Some(Value::Array(_) | Value::Object(_)) => Some("\u{10ffff}".into()),
            Some(_) => Some(String::new()),
        })
    };
    let key = text(["key", "key"])?;
    let (first, last) = (text(["startkey", "start_key"])?, text(["endkey", "end_key"])?);
    let inclusive = parameters.get("inclusive_end") != Some("false");
    let descending = parameters.is("descending");
    let meta = Meta::of(call.state());
    let skip = parameters.number("skip")?.unwrap_or(0);
    let left = parameters.number("limit")?.unwrap_or(u64::MAX);
    let mut query = Query {
        start: prefix.as_bytes().to_vec(),
        end: if prefix.is_empty() { Vec::new() } else { successor(prefix.as_bytes()) },
        descending,
        left,
        skip,
        include_docs: parameters.is("include_docs"),
        conflicts: parameters.is("conflicts"),
        attachments: parameters.is("attachments"),
        has_rows: false,
    };
    if let Some(mut keys) = keys {
        if key.is_some() || first.is_some() || last.is_some() {
            return Err(Problem::new(
                400,
                "query_parse_error",
                "`keys` is incompatible with `key`, `start_key` and `end_key`",
            ));
        }
        if keys.len() > KEYS_MAX {
            return Err(Problem::bad(&format!("at most {KEYS_MAX} keys at once")));
        }
        if descending {
            keys.reverse();
        }
        let keys = keys.into_iter().skip(skip as usize).take(left.min(usize::MAX as u64) as usize);
        let rows: Vec<String> = keys.map(|key| by_key(&call.store, &query, &key)).collect();
        return Ok(json(200, format!("{}{}\n]}}\n", head(&meta, skip), rows.join(",\n"))));
    }
    let mut upper = |text: &str| {
        query.end = [text.as_bytes(), if inclusive { &[0] } else { &[] }].concat();
    };
    match (key, descending) {
        (Some(key), _) => {
            query.end = [key.as_bytes(), &[0]].concat();
            query.start = key.into_bytes();
        }
        (None, false) => {
            if let Some(last) = &last {
                upper(last);
            }
            if let Some(first) = first {
                query.start = first.into_bytes();
            }
        }
        (None, true) => {
            // The range begins with its greatest ID, which is part of it.
            if let Some(first) = &first {
                query.end = [first.as_bytes(), &[0]].concat();
            }
            if let Some(last) = last {
                query.start = last.into_bytes();
                if !inclusive {
                    query.start.push(0);
                }
            }
        }
    }
    let mut text = head(&meta, skip);
    let is_done = rows(&call.store, &mut query, &mut text);
    let mut response = json(200, text);
    if !is_done {
        response.cursor = Some(cursor(&query));
    }
    Ok(response)
}

fn head(meta: &Meta, offset: u64) -> String {
    format!("{{\"total_rows\":{},\"offset\":{offset},\"rows\":[\n", meta.documents)
}

fn cursor(query: &Query) -> Vec<u8> {
    [&b"a"[..], &serde_json::to_vec(query).unwrap_or_default()].concat()
}

/// Returns the next piece of an answer with many rows.
///
/// # Errors
/// [`Fault::Reject`] for an invalid cursor.
pub fn piece(store: &Store<'_>, json: &[u8]) -> Result<Chunk, Fault> {
    let mut query: Query =
        serde_json::from_slice(json).map_err(|error| Fault::Reject(error.to_string()))?;
    let mut text = String::new();
    let is_done = rows(store, &mut query, &mut text);
    let cursor = (!is_done).then(|| cursor(&query));
    Ok(Chunk { body: text.into_bytes(), cursor })
}

/// Adds rows to `text`, and the end when there are no more; returns false if it is time for a piece.
fn rows(store: &Store<'_>, query: &mut Query, text: &mut String) -> bool {
    loop {
        let page = index::documents(store.state, &query.start, &query.end, PAGE, query.descending);
        let is_last = page.is_empty();
        for (id, row) in page {
            match query.descending {
                true => query.end = id.clone().into_bytes(),
                false => query.start = [id.as_bytes(), &[0]].concat(),
            }
            if row.deleted || query.left == 0 {
                continue;
            }
            if query.skip > 0 {
                query.skip -= 1;
                continue;
            }
            query.left -= 1;
            let doc = match query.include_docs {
                true => format!(",\"doc\":{}", winner(store, &id, query.shape())),
                false => String::new(),
            };
            text.push_str(if query.has_rows { ",\n" } else { "" });
            query.has_rows = true;
            let (id, rev) = (quoted(&id), quoted(&row.winner));
            text.push_str(&format!(
                "{{\"id\":{id},\"key\":{id},\"value\":{{\"rev\":{rev}}}{doc}}}"
            ));
        }
        if is_last || query.left == 0 {
            text.push_str("\n]}\n");
            return true;
        }
        if turn::passed_ms() >= PIECE_MS {
            return false;
        }
    }
}

fn winner(store: &Store<'_>, id: &str, shape: Shape) -> String {
    let rendered = store.load(id).and_then(|version| match version.alive() {
        Some(alive) => render(store, &version, &alive, shape),
        None => Ok("null".into()),
    });
    rendered.unwrap_or_else(|_| "null".into())
}

/// Returns the row of a document requested by its ID, including deleted ones.
fn by_key(store: &Store<'_>, query: &Query, key: &Value) -> String {
    let missing = || format!("{{\"key\":{key},\"error\":\"not_found\"}}");
    let Value::String(id) = key else { return missing() };
    let Ok(version) = store.load(id) else { return missing() };
    if version.is_imported {
        // If the import fails now, the change stream will import it.
        drop(store.import(id));
    }
    let Some(winner) = version.winner() else { return missing() };
    let (id, rev) = (quoted(id), quoted(&winner.to_string()));
    let is_alive = version.alive().is_some();
    let deleted = if is_alive { "" } else { ",\"deleted\":true" };
    let doc = match (query.include_docs, is_alive) {
        (false, _) => String::new(),
        (true, false) => ",\"doc\":null".into(),
        (true, true) => {
            let doc = render(store, &version, &winner, query.shape());
            format!(",\"doc\":{}", doc.unwrap_or_else(|_| "null".into()))
        }
    };
    format!("{{\"id\":{id},\"key\":{id},\"value\":{{\"rev\":{rev}{deleted}}}{doc}}}")
}
