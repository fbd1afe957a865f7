//! Searches: finds the index for a search, reads its hits, and tests single documents without an index.
//!
//! The store carries requests to the search service and returns its answers, as JSON:
//!
//! | request | answer |
//! | --- | --- |
//! | `{"do": "find", "field", "options"}` | `{"index": NAME}`, or `{}` if no index answers for the keyspace and field |
//! | `{"do": "find", "predicate", "options"}` | `{"index": NAME, "query": QUERY}`, or `{}` if no index helps with the predicate |
//! | `{"do": "find", "predicate": {"nearest": {"field", "metric", "filter"}}, "options"}` | `{"index": NAME, "query": {"dimension", "filter", "is_whole"}}`, or `{}` if no index has these vectors |
//! | `{"do": "hits", "index", "field", "query", "options", "limit", "after", "by_score", "flexible", "consistency"}` | `{"hits": […], "after": KEYS}`; `after` is there if more hits may follow |
//! | `{"do": "evaluate", "id", "document", "field", "query", "options"}` | `{"hit": HIT}`, or `{}` if the document does not match |

use crate::exec::sort::page_of;
use crate::run::Run;
use nacre_datastore::{Consistency, Keyspace};
use nacre_planner::{Nearest, SearchScan};
use nacre_sql::ast::Expr;
use nacre_sql::{Context, Env, Error, Name, Result, Searched, Value, eval, out_of, search_target};
use std::collections::VecDeque;

/// Maximum number of hits in one answer. Source: the result window of the search service.
const HITS_MAX: usize = 10_000;
/// Number of hits in the first answer of a flexible index. Later answers are larger: a statement with LIMIT may need few hits, but how many
/// is known only after the tests of the documents.
const HITS_FIRST: usize = 256;
/// Growth of the answers of a flexible index.
const GROWTH: usize = 4;

/// The hits of a scan; some may not have been requested yet.
pub(crate) struct HitRows {
    /// Members that all requests share.
    members: Vec<(&'static str, Value)>,
    /// The name of the hits.
    out: Name,
    /// Number of hits that are still wanted; `None` for all.
    wanted: Option<usize>,
    /// Maximum number of hits in the next answer.
    page: usize,
    found: VecDeque<Value>,
    /// The position at which the next answer continues; `None` before the first.
    after: Option<Value>,
    is_whole: bool,
}

fn text(name: Option<String>) -> Value {
    name.map_or(Value::Missing, Value::from)
}

fn request(action: &str, members: Vec<(&'static str, Value)>) -> Value {
    Value::object([("do", Value::from(action))].into_iter().chain(members))
}

/// Returns the consistency of the request's reads.
fn consistency(run: &Run<'_>) -> Value {
    let Consistency { level, vectors } = &run.settings.consistency;
    Value::object([("level", Value::from(level.as_str())), ("vectors", vectors.clone())])
}

/// Returns the name of an index that can answer a search over a keyspace, or over one of its fields.
pub(crate) fn find(
    keyspace: &Keyspace,
    field: Option<String>,
    options: Value,
    run: &Run<'_>,
) -> Result<Option<Name>> {
    let request = request("find", vec![("field", text(field)), ("options", options)]);
    let answer = run.store.search(keyspace, &request)?;
    Ok(answer.field("index").as_str().map(Name::from))
}

/// Returns the name of an index that helps to answer a predicate on the documents of a keyspace, and the query for it: one of `names`, if
/// there are any.
pub(crate) fn find_flexible(
    keyspace: &Keyspace,
    predicate: Value,
    names: &[Name],
    run: &Run<'_>,
) -> Option<(Name, Value)> {
    let names: Vec<Value> = names.iter().cloned().map(Value::from).collect();
    let options = Value::object([("use_index", Value::from(names))]);
    let request = request("find", vec![("predicate", predicate), ("options", options)]);
    // The index is only a hint, which fails no statement.
    let answer = run.store.search(keyspace, &request).ok()?;
    let (index, query) = (answer.field("index"), answer.field("query"));
    query.as_object()?;
    Some((Name::from(index.as_str()?), query))
}

/// Returns the search hit for a document. Errors are those of the search service.
pub(crate) fn evaluate(searched: &Searched<'_>, run: &Run<'_>) -> Result<Option<Value>> {
    let path = nacre_sql::parse_path(&searched.meta.keyspace)
        .map_err(|_| Error::execution("SEARCH takes documents of a keyspace"))?;
    let keyspace = Keyspace::of(&path, None)?;
    let members = vec![
        ("id", Value::String(searched.meta.id.clone())),
        ("document", searched.document.clone()),
        ("field", text(searched.field.clone())),
        ("query", searched.query.clone()),
        ("options", searched.options.clone()),
    ];
    let answer = run.store.search(&keyspace, &request("evaluate", members))?;
    Ok(Some(answer.field("hit")).filter(|hit| !hit.is_missing()))
}

impl HitRows {
    /// Creates the hits of a scan without requesting any.
    pub fn open(
        scan: &SearchScan,
        env: &Env,
        run: &Run<'_>,
        context: &Context<'_>,
    ) -> Result<HitRows> {
        let Expr::Call(_, args) = &scan.call else {
            return Err(Error::execution("a search scan has no search"));
        };
        let value = |at: usize| args.get(at).map(|arg| eval(arg, env, context)).transpose();
        if let Some(nearest) = &scan.nearest {
            return HitRows::of_nearest(scan, nearest, value(1)?.unwrap_or_default(), run);
        }
        let (query, options) = (value(1)?.unwrap_or_default(), value(2)?.unwrap_or_default());
        let is_nothing = query.is_missing() || query == Value::Null;
        let out = out_of(&options);
        let field = args.first().and_then(search_target).and_then(|(_, field)| field);
        let wanted = match page_of(&scan.page, env, context)? {
            (Some(limit), offset) => Some(limit.saturating_add(offset)),
            (None, _) => None,
        };
        let members = vec![
            ("index", Value::String(scan.index.clone())),
            ("field", text(field)),
            ("query", query),
            ("options", options),
            ("by_score", scan.by_score.into()),
            ("flexible", if scan.is_flexible { Value::Bool(true) } else { Value::Missing }),
            ("consistency", consistency(run)),
        ];
        let is_whole = is_nothing || wanted == Some(0);
        let page = if scan.is_flexible { HITS_FIRST } else { HITS_MAX };
        Ok(HitRows { members, out, wanted, page, found: VecDeque::new(), after: None, is_whole })
    }

    /// Creates the hits of a scan of the documents nearest to a vector.
    fn of_nearest(
        scan: &SearchScan,
        nearest: &Nearest,
        vector: Value,
        run: &Run<'_>,
    ) -> Result<HitRows> {
        let Nearest { field, dimension, count, filter } = nearest;
        let is_vector = vector.as_array().is_some_and(|elements| {
            elements.len() == *dimension && elements.iter().all(|one| one.as_f64().is_some())
        });
        if !is_vector {
            let message = format!(
                "APPROX_VECTOR_DISTANCE by the index {} needs a vector of {dimension} numbers",
                scan.index
            );
            return Err(Error::execution(message));
        }
        let neighbours = Value::object([
            ("field", Value::from(field.clone())),
            ("vector", vector),
            ("k", Value::Int(*count as i64)),
            ("filter", filter.clone()),
        ]);
        let nothing = Value::object([("match_none", Value::object::<Name>([]))]);
        let query = Value::object([("query", nothing), ("knn", vec![neighbours].into())]);
        let members = vec![
            ("index", Value::from(scan.index.clone())),
            ("query", query),
            ("by_score", Value::Bool(true)),
            ("flexible", Value::Bool(true)),
            ("consistency", consistency(run)),
        ];
        Ok(HitRows {
            members,
            out: out_of(&Value::Missing),
            wanted: Some(*count),
            page: HITS_MAX,
            found: VecDeque::new(),
            after: None,
            is_whole: false,
        })
    }

    /// Returns at most `limit` of the next hits, with their IDs; empty after the last.
    pub fn next(
        &mut self,
        keyspace: &Keyspace,
        limit: usize,
        run: &Run<'_>,
    ) -> Result<Vec<(Name, Value)>> {
        while self.found.is_empty() && !self.is_whole {
            let count = self.wanted.unwrap_or(HITS_MAX).min(self.page);
            self.page = (self.page * GROWTH).min(HITS_MAX);
            let mut members = self.members.clone();
            members.push(("limit", Value::Int(count as i64)));
            members.extend(self.after.clone().map(|after| ("after", after)));
            let answer = run.store.search(keyspace, &request("hits", members))?;
            let hits = answer.field("hits");
            let hits = hits.as_array().unwrap_or_default();
            run.charge(hits.iter().map(Value::size_bytes).sum())?;
            self.found.extend(hits.iter().cloned());
            self.wanted = self.wanted.map(|wanted| wanted - hits.len().min(wanted));
            let after = answer.field("after");
            self.is_whole = after.is_missing() || self.wanted == Some(0);
            self.after = Some(after);
        }
        let hits = self.found.drain(..limit.min(self.found.len()));
        Ok(hits.filter_map(|hit| Some((hit.field("id").as_str()?.into(), hit))).collect())
    }

    /// Returns the name under which hits are attached to documents.
    pub fn out(&self) -> &Name {
        &self.out
    }
}
