//! The read side: requests to answers.

use crate::design::{Design, View};
use crate::listing::Listing;
use crate::mask::Mask;
use crate::query::Query;
use crate::reduction::ViewReducer;
use crate::row::corrupt;
use nacre_js::{Engine, quote};
use nacre_plugin::btree::Tree;
use nacre_plugin::{Fault, Request, Response, State};
use std::cell::RefCell;

/// What a request comes to.
pub enum Answered {
    /// All of the answer.
    Whole(Response),
    /// Rows, which are given piece by piece.
    Listing(Listing),
}

/// Begins to answer a request.
pub fn answer(
    design: &Design,
    engine: &RefCell<Engine>,
    request: &Request,
    state: &dyn State,
) -> Result<Answered, Fault> {
    let name = request.path.trim_start_matches('/');
    let is_post = request.method == "POST";
    let whole = |response: Response| Ok(Answered::Whole(response));
    if name.is_empty() && request.method == "GET" {
        return whole(info(design, engine, state)?);
    }
    let Some(number) = design.views.iter().position(|view| view.name == name) else {
        return whole(error(404, "not_found", "missing"));
    };
    if request.method != "GET" && !is_post {
        return whole(error(405, "method_not_allowed", "Only GET and POST are allowed"));
    }
    let body: &[u8] = if is_post { &request.body } else { &[] };
    let mask = Mask::of(request)?;
    let asked = Query::parse(&request.query, body)
        .and_then(|query| checked(&design.views[number], query))
        .and_then(|query| Listing::new(number, &design.views[number], &query, mask));
    match asked {
        Ok(listing) => Ok(Answered::Listing(listing)),
        Err(reason) => whole(error(400, "query_parse_error", &reason)),
    }
}

/// A query that fits its view.
fn checked(view: &View, query: Query) -> Result<Query, String> {
    let reduced = query.reduce.unwrap_or(view.reduce.is_some());
    if reduced && view.reduce.is_none() {
        return Err("invalid value for reduce: \"true\", the view has no reduce function".into());
    }
    if query.group_level.is_some() && !reduced {
        return Err("invalid use of group or group_level: the query does not reduce".into());
    }
    if reduced && query.keys.is_some() && query.group_level.is_none() {
        return Err(
            "invalid use of keys: a query that reduces several keys needs group=true".into()
        );
    }
    Ok(query)
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
