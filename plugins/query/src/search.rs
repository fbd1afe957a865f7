//! Searches: which index answers one, its hits, and one document without an index.
//!
//! The store carries requests to the search service and back, as JSON:
//!
//! | request | answer |
//! | --- | --- |
//! | `{"do": "find", "field", "options"}` | `{"index": NAME}`, or `{}` if no index answers for the keyspace and field |
//! | `{"do": "hits", "index", "field", "query", "options", "limit", "after", "by_score", "consistency"}` | `{"hits": […], "after": KEYS}`; `after` is there if more hits may follow |
//! | `{"do": "evaluate", "id", "document", "field", "query", "options"}` | `{"hit": HIT}`, or `{}` if the document does not match |

use crate::exec::sort::page_of;
use crate::run::Run;
use nacre_datastore::{Consistency, Keyspace};
use nacre_planner::SearchScan;
use nacre_sql::ast::Expr;
use nacre_sql::{Context, Env, Error, Name, Result, Searched, Value, eval, out_of, search_target};
use std::collections::VecDeque;

/// Hits of one answer. Source: the result window of the search service.
const HITS_MAX: usize = 10_000;

/// The hits of a scan, some of which may still have to be asked for.
pub(crate) struct HitRows {
    /// Members of each request.
    members: Vec<(&'static str, Value)>,
    /// The name of the hits.
    out: Name,
    /// Hits that are still wanted; none if all are.
    wanted: Option<usize>,
    found: VecDeque<Value>,
    /// Where the next answer goes on; none before the first.
    after: Option<Value>,
    is_whole: bool,
}

fn text(name: Option<String>) -> Value {
    name.map_or(Value::Missing, Value::from)
}

fn request(action: &str, members: Vec<(&'static str, Value)>) -> Value {
    Value::object([("do", Value::from(action))].into_iter().chain(members))
}

/// The name of an index that answers a search over a keyspace, or over one of its fields.
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

/// The hit that a search makes of a document. Source of the error: SQL++ refuses what the search service refuses.
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
    /// The hits of a scan; nothing is asked for yet.
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
        let (query, options) = (value(1)?.unwrap_or_default(), value(2)?.unwrap_or_default());
        let is_nothing = query.is_missing() || query == Value::Null;
        let out = out_of(&options);
        let field = args.first().and_then(search_target).and_then(|(_, field)| field);
        let Consistency { level, vectors } = &run.settings.consistency;
        let consistency =
            Value::object([("level", Value::from(level.as_str())), ("vectors", vectors.clone())]);
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
            ("consistency", consistency),
        ];
        let is_whole = is_nothing || wanted == Some(0);
        Ok(HitRows { members, out, wanted, found: VecDeque::new(), after: None, is_whole })
    }

    /// The next hits, `limit` at most, with their IDs; none after the last.
    pub fn next(
        &mut self,
        keyspace: &Keyspace,
        limit: usize,
        run: &Run<'_>,
    ) -> Result<Vec<(Name, Value)>> {
        while self.found.is_empty() && !self.is_whole {
            let count = self.wanted.unwrap_or(HITS_MAX).min(HITS_MAX);
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

    /// The name under which the hits are noted.
    pub fn out(&self) -> &Name {
        &self.out
    }
}
