//! `_find` without indexes: examines all documents, in the order of their IDs.

use crate::documents::{Shape, render};
use crate::http::{Problem, body, json};
use crate::index;
use crate::selector::{Selector, at, path};
use crate::{Call, ask_again};
use nacre_plugin::{Response, turn};
use serde::Deserialize;
use serde_json::{Map, Value};

/// The answer to `GET /{db}/_index`.
pub const INDEXES: &str = "{\"total_rows\":1,\"indexes\":[{\"ddoc\":null,\"name\":\"_all_docs\",\"type\":\"special\",\"def\":{\"fields\":[{\"_id\":\"asc\"}]}}]}\n";

/// Documents per read.
const PAGE: u32 = 200;
/// Milliseconds after which the answer ends with a bookmark.
const ANSWER_MS: u32 = 3000;
/// Maximum number of documents in an answer.
const LIMIT_MAX: u64 = 10_000;

#[derive(Deserialize)]
struct Find {
    selector: Value,
    #[serde(default)]
    fields: Option<Vec<String>>,
    #[serde(default)]
    sort: Vec<Value>,
    #[serde(default = "default_limit")]
    limit: u64,
    #[serde(default)]
    skip: u64,
    #[serde(default)]
    bookmark: Option<String>,
    #[serde(default)]
    conflicts: bool,
}

fn default_limit() -> u64 {
    25
}

/// Answers `POST /{db}/_find`.
///
/// # Errors
/// 400 for invalid parameters, and for an order that needs an index.
pub fn answer(call: &Call<'_>) -> Result<Response, Problem> {
    let find: Find = body(call.request)?;
    let selector = Selector::read(&find.selector)?;
    let descending = order(&find.sort)?;
    if find.limit > LIMIT_MAX {
        return Err(Problem::bad(&format!("limit is at most {LIMIT_MAX}")));
    }
    if !call.is_fresh() {
        return Ok(ask_again());
    }
    let (mut start, mut end) = (Vec::new(), Vec::new());
    // A bookmark is the ID that was examined last.
    if let Some(last) = find.bookmark.as_deref().filter(|bookmark| *bookmark != "nil") {
        match descending {
            true => end = last.as_bytes().to_vec(),
            false => start = [last.as_bytes(), &[0]].concat(),
        }
    }
    let shape = Shape { conflicts: find.conflicts, ..Shape::default() };
    let (mut skip, mut found, mut last) = (find.skip, Vec::new(), "nil".to_owned());
    'pages: while (found.len() as u64) < find.limit {
        let page = index::documents(call.state(), &start, &end, PAGE, descending);
        if page.is_empty() {
            break;
        }
        for (id, row) in page {
            match descending {
                true => end = id.clone().into_bytes(),
                false => start = [id.as_bytes(), &[0]].concat(),
            }
            last = id.clone();
            if row.deleted || id.starts_with("_design/") {
                continue;
            }
            let Ok(version) = call.store.load(&id) else { continue };
            let Some(alive) = version.alive() else { continue };
            let Ok(text) = render(&call.store, &version, &alive, shape) else { continue };
            let Ok(document) = serde_json::from_str::<Value>(&text) else { continue };
            if !selector.matches(&document) {
                continue;
            }
            if skip > 0 {
                skip -= 1;
                continue;
            }
            found.push(match &find.fields {
                Some(fields) if !fields.is_empty() => picked(&document, fields).to_string(),
                _ => text,
            });
            if found.len() as u64 == find.limit || turn::passed_ms() > ANSWER_MS {
                break 'pages;
            }
        }
        if turn::passed_ms() > ANSWER_MS {
            break;
        }
    }
    let bookmark = Value::String(last);
    let warning = "No matching index found, create an index to optimize query time.";
    Ok(json(
        200,
        format!(
            "{{\"docs\":[\n{}\n],\"bookmark\":{bookmark},\"warning\":\"{warning}\"}}\n",
            found.join(",\n")
        ),
    ))
}

/// Returns true for descending IDs.
fn order(sort: &[Value]) -> Result<bool, Problem> {
    let field = |field: &Value| match field {
        Value::String(name) => Some((name.clone(), false)),
        Value::Object(members) => {
            let (name, order) = members.iter().next()?;
            Some((name.clone(), order.as_str() == Some("desc")))
        }
        _ => None,
    };
    match sort {
        [] => Ok(false),
        [only] => match field(only) {
            Some((name, descending)) if name == "_id" => Ok(descending),
            Some(_) => Err(no_index()),
            None => Err(Problem::new(400, "invalid_sort_json", "sort is a list of fields")),
        },
        _ => Err(no_index()),
    }
}

fn no_index() -> Problem {
    let reason = "No index exists for this sort, try indexing by the sort fields.";
    Problem::new(400, "no_usable_index", reason)
}

/// Returns the requested fields of a document, at their paths.
fn picked(document: &Value, fields: &[String]) -> Value {
    let mut out = Map::new();
    for field in fields {
        let path = path(field);
        if let Some(value) = at(document, &path) {
            put(&mut out, &path, value);
        }
    }
    Value::Object(out)
}

fn put(members: &mut Map<String, Value>, path: &[String], value: &Value) {
    match path {
        [] => {}
        [last] => drop(members.insert(last.clone(), value.clone())),
        [first, rest @ ..] => {
            let inner = members.entry(first.clone()).or_insert_with(|| Map::new().into());
            if let Value::Object(inner) = inner {
                put(inner, rest, value);
            }
        }
    }
}
