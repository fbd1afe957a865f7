//! The read side: converts requests into answers.

use crate::Bounds;
use crate::design::{Design, View};
use crate::header;
use crate::listing::Listing;
use crate::mask::Mask;
use crate::part;
use crate::query::Query;
use crate::reduction::ViewReducer;
use crate::rest::Rest;
use crate::row::corrupt;
use nacre_js::{Functions, quote};
use nacre_plugin::btree::{Range, Tree};
use nacre_plugin::{Fault, Request, Response, State};
use std::cell::RefCell;
use std::collections::VecDeque;

/// The result of a request.
pub enum Answer {
    /// The whole answer.
    Whole(Response),
    /// Rows, which are sent piece by piece.
    Listing(Box<Listing>),
}

/// A query that is valid for its view.
pub struct ValidQuery {
    /// Number of the view in its design document.
    pub view: usize,
    /// True if the query asks for groups, false if it asks for rows.
    pub reduced: bool,
    /// The ranges of the tree, in the order of the answer.
    pub ranges: VecDeque<Range>,
    /// The parameters.
    pub query: Query,
}

/// Starts to answer a request.
pub fn answer(
    design: &Design,
    functions: &RefCell<Functions>,
    request: &Request,
    state: &dyn State,
    bounds: &Bounds,
) -> Result<Answer, Fault> {
    if name_of(request).is_empty() && request.method == "GET" {
        return info(design, functions, state).map(Answer::Whole);
    }
    let asked = match asked(design, request) {
        Ok(asked) => asked,
        Err(response) => return Ok(Answer::Whole(response)),
    };
    let mask = Mask::of(request)?;
    let Some(from) = header::value_of(request, header::PART) else {
        return Ok(Answer::Listing(Box::new(Listing::new(asked, mask))));
    };
    let (rest, view) = (Rest::of(request)?, &design.views[asked.view]);
    part::give(&asked, from, rest.as_ref(), mask.as_ref(), view, functions, state, bounds)
        .map(Answer::Whole)
}

/// Returns the name of the view that a request names.
fn name_of(request: &Request) -> &str {
    request.path.trim_start_matches('/')
}

/// Parses a request for a view.
///
/// # Errors
/// An answer that describes the error in the request.
pub fn asked(design: &Design, request: &Request) -> Result<ValidQuery, Response> {
    let is_post = request.method == "POST";
    let Some(view) = design.views.iter().position(|view| view.name == name_of(request)) else {
        // Clients retry after the reason `missing`, which means that the design document does not exist yet.
        return Err(error(404, "not_found", "missing_named_view"));
    };
    if request.method != "GET" && !is_post {
        return Err(error(405, "method_not_allowed", "Only GET and POST are allowed"));
    }
    let body: &[u8] = if is_post { &request.body } else { &[] };
    Query::parse(&request.query, body)
        .and_then(|query| {
            let reduced = checked(&design.views[view], &query)?;
            Ok(ValidQuery { view, reduced, ranges: query.ranges()?, query })
        })
        .map_err(|reason| error(400, "query_parse_error", &reason))
}

/// Returns whether a query reduces, if it is valid for its view.
fn checked(view: &View, query: &Query) -> Result<bool, String> {
    let reduced = query.reduce.unwrap_or(view.reduce.is_some());
    if reduced && view.reduce.is_none() {
        return Err("invalid value for reduce: \"true\", the view has no reduce function".into());
    }
    if query.include_docs && reduced {
        return Err("invalid use of include_docs: a reduced row is of no one document".into());
    }
    if query.group_level.is_some() && !reduced {
        return Err("invalid use of group or group_level: the query does not reduce".into());
    }
    if reduced && query.keys.is_some() && query.group_level.is_none() {
        return Err(
            "invalid use of keys: a query that reduces several keys needs group=true".into()
        );
    }
    Ok(reduced)
}

fn error(status: u16, error: &str, reason: &str) -> Response {
    let mut body = String::from("{\"error\":");
    quote(error, &mut body);
    body.push_str(",\"reason\":");
    quote(reason, &mut body);
    body.push('}');
    Response::json(status, body)
}

fn info(
    design: &Design,
    functions: &RefCell<Functions>,
    state: &dyn State,
) -> Result<Response, Fault> {
    let mut views = serde_json::Map::new();
    for view in &design.views {
        let reducer = ViewReducer { reduce: view.reduce.as_ref(), functions };
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
