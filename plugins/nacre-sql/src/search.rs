//! `SEARCH`, `SEARCH_META` and `SEARCH_SCORE`: test whether a document is a hit, and return the hit's properties.
//!
//! ```text
//! SELECT SEARCH_SCORE(d) FROM docs AS d WHERE SEARCH(d.title, "pearl")
//!
//! with an index     the scan attaches hits to the documents, and SEARCH is removed from the condition
//! without an index  SEARCH asks the host about each document, and attaches the hit to it
//! ```
//!
//! A hit is an object with `id`, `score` and other members that the request asks for. `"out"` in the options of SEARCH names the
//! hit, which distinguishes several searches of one statement. Source: Couchbase's SQL++ reference, search functions.

use crate::ast::Expr;
use crate::env::{Context, Env, Meta};
use crate::eval::eval;
use crate::{Error, Name, Result, Value};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Default name of a hit.
const OUT: &str = "out";

/// The hits of searches for a document, by name.
#[derive(Debug, Default)]
pub struct Hits(Mutex<Vec<(Name, Value)>>);

impl Hits {
    fn all(&self) -> MutexGuard<'_, Vec<(Name, Value)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores a hit and replaces one with the same name.
    pub fn put(&self, name: Name, hit: Value) {
        let mut all = self.all();
        all.retain(|(other, _)| *other != name);
        all.push((name, hit));
    }

    /// Returns the hit with a name; without a name, the one with the default name, or else the latest.
    pub fn get(&self, name: Option<&str>) -> Option<Value> {
        let all = self.all();
        let found = all.iter().find(|(other, _)| **other == *name.unwrap_or(OUT));
        let found = found.or_else(|| all.last().filter(|_| name.is_none()));
        found.map(|(_, hit)| hit.clone())
    }
}

impl Clone for Hits {
    fn clone(&self) -> Hits {
        Hits(Mutex::new(self.all().clone()))
    }
}

impl PartialEq for Hits {
    fn eq(&self, other: &Hits) -> bool {
        std::ptr::eq(self, other) || self.all().clone() == *other.all()
    }
}

/// A document that a search must test.
pub struct Searched<'a> {
    /// The document.
    pub document: &'a Value,
    /// The ID and other properties of the document.
    pub meta: &'a Meta,
    /// The field to search; `None` for all fields.
    pub field: Option<String>,
    /// A text, a query, or a whole request.
    pub query: &'a Value,
    /// The third argument of SEARCH; MISSING if there is none.
    pub options: &'a Value,
}

/// Returns the variable and the field named by the first argument of a search function.
pub fn target(expr: &Expr) -> Option<(&Name, Option<String>)> {
    match expr {
        Expr::Ident(alias) => Some((alias, None)),
        Expr::Field(of, name, _) => {
            let (alias, outer) = target(of)?;
            let path = outer.map_or_else(|| name.to_string(), |outer| format!("{outer}.{name}"));
            Some((alias, Some(path)))
        }
        _ => None,
    }
}

/// Returns the name of the hit from the options of SEARCH.
pub fn out_of(options: &Value) -> Name {
    options.field(OUT).as_str().unwrap_or(OUT).into()
}

/// Evaluates a search function.
pub(crate) fn call(
    function: &str,
    args: &[Expr],
    env: &Env,
    context: &Context<'_>,
) -> Result<Value> {
    let target = args.first().and_then(target);
    if function != "SEARCH" {
        let Some((alias, name)) = target else { return Ok(Value::Missing) };
        let hit = env.meta(alias).and_then(|meta| meta.hits.get(name.as_deref()));
        let hit = hit.unwrap_or_default();
        return Ok(if function == "SEARCH_SCORE" { hit.field("score") } else { hit });
    }
    let Some((alias, field)) = target else {
        return Err(Error::execution("SEARCH: the first argument is a keyspace or a field of one"));
    };
    let query = eval(&args[1], env, context)?;
    let options = args.get(2).map(|options| eval(options, env, context)).transpose()?;
    let options = options.unwrap_or_default();
    if query.is_missing() || query == Value::Null {
        return Ok(query);
    }
    let (Some(meta), Some(document)) = (env.meta(alias), env.get(alias)) else {
        return Ok(Value::Missing);
    };
    let searched = Searched { document, meta, field, query: &query, options: &options };
    let hit = context.host.search(&searched)?;
    let is_hit = hit.is_some();
    if let Some(hit) = hit {
        meta.hits.put(out_of(&options), hit);
    }
    Ok(is_hit.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::{Caches, Host, NoHost};
    use crate::{Scope, parse_expr, resolve_expr};
    use std::collections::BTreeMap;
    use std::sync::Arc;

    /// Finds documents whose searched field equals the query.
    struct Equal;

    impl Host for Equal {
        fn subquery(
            &self,
            select: &crate::ast::Select,
            env: &Env,
            limit: usize,
            context: &Context<'_>,
        ) -> Result<Vec<Value>> {
            NoHost.subquery(select, env, limit, context)
        }

        fn call(&self, path: &[Name], args: Vec<Value>, context: &Context<'_>) -> Result<Value> {
            NoHost.call(path, args, context)
        }

        fn search(&self, searched: &Searched<'_>) -> Result<Option<Value>> {
            let field = searched.field.clone().unwrap_or_default();
            let is_hit = searched.document.field(&field) == *searched.query;
            let id = Value::String(searched.meta.id.clone());
            Ok(is_hit.then(|| Value::object([("id", id), ("score", Value::Int(7))])))
        }

        fn now_ms(&self) -> i64 {
            0
        }

        fn random(&self) -> u64 {
            0
        }

        fn tick(&self) -> Result<()> {
            Ok(())
        }
    }

    fn evaluated(texts: &[&str]) -> Vec<String> {
        let name: Name = "d".into();
        let meta = Meta { id: "k".into(), json: true, ..Meta::default() };
        let document = Value::object([("title", Value::from("pearl"))]);
        let env = Env::new().with_document(&name, document, Some(Arc::new(meta)));
        let (named, caches) = (BTreeMap::new(), Caches::default());
        let context = Context {
            host: &Equal,
            positional: &[],
            named: &named,
            statement_ms: 0,
            caches: &caches,
        };
        let value = |text: &&str| {
            let mut expr = parse_expr(text).unwrap();
            resolve_expr(&mut expr, &Scope::of_term(&name)).unwrap();
            eval(&expr, &env, &context)
                .map_or_else(|error| error.message, |value| value.to_string())
        };
        texts.iter().map(value).collect()
    }

    #[test]
    fn a_search_notes_its_hit_at_the_document() {
        let told = evaluated(&[
            "SEARCH_SCORE()",
            "SEARCH(d.title, \"stone\")",
            "SEARCH(title, \"pearl\")",
            "SEARCH_SCORE(d)",
            "SEARCH_META().id",
            "SEARCH(d.title, \"pearl\", {\"out\": \"two\"})",
            "SEARCH_META(d.two)",
            "SEARCH_META(d.three)",
            "SEARCH(d, NULL)",
            "SEARCH(d, MISSING)",
            "SEARCH(1, \"x\")",
        ]);
        let hit = "{\"id\":\"k\",\"score\":7}";
        let wanted = [
            "missing",
            "false",
            "true",
            "7",
            "\"k\"",
            "true",
            hit,
            "missing",
            "null",
            "missing",
            "SEARCH: the first argument is a keyspace or a field of one",
        ];
        assert_eq!(told, wanted);
    }
}
