//! The read side: requests to answers.

use crate::design::{Design, View};
use crate::query::Query;
use crate::reduction::{ViewReducer, result_json};
use crate::row::{ViewRow, corrupt};
use nacre_js::{Engine, quote};
use nacre_plugin::btree::{Group, Range, Step, Tree};
use nacre_plugin::{Fault, Request, Response, State, collate};
use std::cell::RefCell;

/// Answers a request.
pub fn answer(
    design: &Design,
    engine: &RefCell<Engine>,
    request: &Request,
    state: &dyn State,
) -> Result<Response, Fault> {
    let name = request.path.trim_start_matches('/');
    let is_post = request.method == "POST";
    if name.is_empty() && request.method == "GET" {
        return info(design, engine, state);
    }
    let Some(view) = design.view(name) else {
        return Ok(error(404, "not_found", "missing"));
    };
    if request.method != "GET" && !is_post {
        return Ok(error(405, "method_not_allowed", "Only GET and POST are allowed"));
    }
    let body: &[u8] = if is_post { &request.body } else { &[] };
    let asked = Query::parse(&request.query, body).and_then(|query| Ask::new(view, query));
    let ask = match asked {
        Ok(ask) => ask,
        Err(reason) => return Ok(error(400, "query_parse_error", &reason)),
    };
    let reducer = ViewReducer { reduce: view.reduce.as_ref(), engine };
    let tree = Tree::new(&view.prefix, &reducer);
    let body = match ask.reduced {
        true => reduced(&tree, &ask, state)?,
        false => rows(&tree, &ask, state)?,
    };
    Ok(Response::json(200, body))
}

/// A query that fits its view.
struct Ask {
    query: Query,
    ranges: Vec<Range>,
    reduced: bool,
}

impl Ask {
    fn new(view: &View, query: Query) -> Result<Ask, String> {
        let reduced = query.reduce.unwrap_or(view.reduce.is_some());
        if reduced && view.reduce.is_none() {
            return Err(
                "invalid value for reduce: \"true\", the view has no reduce function".into()
            );
        }
        if query.group_level.is_some() && !reduced {
            return Err("invalid use of group or group_level: the query does not reduce".into());
        }
        if reduced && query.keys.is_some() && query.group_level.is_none() {
            return Err(
                "invalid use of keys: a query that reduces several keys needs group=true".into()
            );
        }
        Ok(Ask { ranges: query.ranges()?, reduced, query })
    }
}

fn error(status: u16, error: &str, reason: &str) -> Response {
    let mut body = String::from("{\"error\":");
    quote(error, &mut body);
    body.push_str(",\"reason\":");
    quote(reason, &mut body);
    body.push('}');
    Response::json(status, body)
}

fn info(design: &Design, engine: &RefCell<Engine>, state: &dyn State) -> Result<Response, Fault> {
    let mut views = serde_json::Map::new();
    for view in &design.views {
        let reducer = ViewReducer { reduce: view.reduce.as_ref(), engine };
        let tree = Tree::new(&view.prefix, &reducer);
        let info = serde_json::json!({
            "rows": tree.row_count(state).map_err(corrupt)?,
            "bytes": tree.bytes(state).map_err(corrupt)?,
            "reduce": view.reduce.is_some(),
        });
        views.insert(view.name.clone(), info);
    }
    let body = serde_json::json!({"name": design.name, "views": views});
    Ok(Response::json(200, body.to_string()))
}

/// What is left to leave out and to give.
struct Window {
    skip: u64,
    limit: u64,
}

impl Window {
    /// Counts one item: whether it is to be shown.
    fn shows(&mut self) -> bool {
        match (self.skip, self.limit) {
            (1.., _) => {
                self.skip -= 1;
                false
            }
            (_, 0) => false,
            _ => {
                self.limit -= 1;
                true
            }
        }
    }

    fn step(&self) -> Step {
        if self.limit == 0 { Step::Break(()) } else { Step::Continue(()) }
    }
}

fn rows(tree: &Tree<'_>, ask: &Ask, state: &dyn State) -> Result<String, Fault> {
    let total = tree.row_count(state).map_err(corrupt)?;
    let mut out = format!("{{\"total_rows\":{total},\"rows\":[");
    let empty = out.len();
    let mut window = Window { skip: ask.query.skip, limit: ask.query.limit };
    let mut damaged = false;
    for range in &ask.ranges {
        if window.limit == 0 {
            break;
        }
        // Of a single range the tree skips whole pages; of several, each may end within the skipped part.
        let skip = if ask.ranges.len() == 1 { std::mem::take(&mut window.skip) } else { 0 };
        let each = |row: nacre_plugin::btree::Row<'_>| {
            let Some(view_row) = ViewRow::decode(row.key, row.value) else {
                damaged = true;
                return Step::Break(());
            };
            if window.shows() {
                if out.len() > empty {
                    out.push_str(",\n");
                }
                out.push_str("{\"id\":");
                quote(&view_row.id, &mut out);
                push_key_value(view_row.key, view_row.value, ",", &mut out);
            }
            window.step()
        };
        tree.rows(state, range, skip, each).map_err(corrupt)?;
    }
    if damaged {
        return Err(corrupt("row"));
    }
    out.push_str("]}");
    Ok(out)
}

fn push_key_value(key: &str, value: &str, before: &str, out: &mut String) {
    out.push_str(before);
    out.push_str("\"key\":");
    out.push_str(key);
    out.push_str(",\"value\":");
    out.push_str(value);
    out.push('}');
}

fn reduced(tree: &Tree<'_>, ask: &Ask, state: &dyn State) -> Result<String, Fault> {
    let mut out = String::from("{\"rows\":[");
    let empty = out.len();
    let mut window = Window { skip: ask.query.skip, limit: ask.query.limit };
    let mut errors = Vec::new();
    let group = |key: &[u8]| match ask.query.group_level {
        None => 0,
        // A key that is no encoding makes a group of its own, and is reported when it is read.
        Some(usize::MAX) => collate::value_bytes(key).unwrap_or(key.len()),
        Some(level) => collate::group_bytes(key, level).unwrap_or(key.len()),
    };
    for range in &ask.ranges {
        if window.limit == 0 {
            break;
        }
        let mut each = |found: Group| {
            if window.shows() {
                match result_json(&found.reduction) {
                    Ok(value) => {
                        if out.len() > empty {
                            out.push_str(",\n");
                        }
                        let key = group_key(&found, ask.query.group_level);
                        push_key_value(&key, &value, "{", &mut out);
                    }
                    Err(reason) => errors.push(reason),
                }
            }
            window.step()
        };
        tree.groups(state, range, &group, &mut each).map_err(corrupt)?;
    }
    out.push(']');
    if !errors.is_empty() {
        out.push_str(",\"errors\":[");
        for (index, reason) in errors.iter().enumerate() {
            out.push_str(if index > 0 { "," } else { "" });
            out.push_str("{\"from\":\"local\",\"reason\":");
            quote(reason, &mut out);
            out.push('}');
        }
        out.push(']');
    }
    out.push('}');
    Ok(out)
}

/// The key of a group: the key of its first row, an array cut to the level.
fn group_key(group: &Group, level: Option<usize>) -> String {
    let Some((key, value)) = &group.first else { return "null".into() };
    let Some(row) = ViewRow::decode(key, value) else { return "null".into() };
    let elements: Option<Vec<&serde_json::value::RawValue>> = serde_json::from_str(row.key).ok();
    match (elements, level) {
        (Some(elements), Some(level)) if elements.len() > level => {
            let texts: Vec<_> = elements[..level].iter().map(|element| element.get()).collect();
            format!("[{}]", texts.join(","))
        }
        _ => row.key.to_owned(),
    }
}
