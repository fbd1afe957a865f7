//! Flexible indexes: conditions without SEARCH that a search index helps to answer, if `USE INDEX (USING FTS)` or the request asks for
//! one.
//!
//! ```text
//! x.a = "v" AND x.n BETWEEN 1 AND 5  ─►  {"and": [{"field": "a", "eq": "v"}, {"field": "n", "min": 1, "max": 5}]}
//! ```
//!
//! | condition | predicate |
//! | --- | --- |
//! | `x.a = v`, `v IN x.a` | `{"field", "eq"}` |
//! | `x.a IN [v, …]` | `{"or": […]}` |
//! | `x.a LIKE "text%"` | `{"field", "prefix"}` |
//! | `x.a > v AND x.a < w`, BETWEEN, `ISNUMBER(x.a) AND x.a > v` | `{"field", "min", "max"}` |
//! | `ANY e IN x.a SATISFIES … END`, ANY AND EVERY, UNNEST | the predicate of the condition, with `x.a` in place of `e` |
//! | AND, OR | `{"and": […]}`, `{"or": […]}` |
//!
//! Invariant: the documents with the predicate include all for which the condition is true. There may be others, because the query tests
//! each document: an index does not distinguish `["v"]` from `"v"`, and AND omits conditions without a predicate. A range needs bounds of
//! one type on both sides, or ISNUMBER or ISSTRING, because all texts are greater than any number.

use super::{conjuncts, literal};
use crate::plan::{Access, Page, Scan, ScanSource, SearchScan};
use crate::plan_context::PlanContext;
use nacre_sql::ast::{self, Binary, Chain, Expr, JoinKind, Path, Quantified, Quantifier, Source};
use nacre_sql::{Name, Result, Value, like_prefix};
use std::collections::BTreeMap;

/// Maximum number of values of IN. Source: the limit of alternatives in a query of the search service.
const VALUES_MAX: usize = 1000;
/// Maximum length of a text in bytes. Much longer ones are not in an index.
const TEXT_BYTES_MAX: usize = 10_000;

/// Plans the first term of a block as the documents that a search index finds for the operands of the condition.
pub(super) fn choose(
    from: &ast::From,
    path: &Path,
    operands: &[Expr],
    context: &dyn PlanContext,
) -> Result<Option<Scan>> {
    let hints = &from.first.hints;
    if !hints.any_search && hints.search_indexes.is_empty() && !context.uses_search() {
        return Ok(None);
    }
    let Some(search) = nacre_sql::functions::find("SEARCH") else { return Ok(None) };
    let Some(predicate) = predicate(from, operands, context) else { return Ok(None) };
    let keyspace = context.keyspace(path)?;
    let found = context.flexible_index(&keyspace, predicate, &hints.search_indexes);
    let Some((index, query)) = found else { return Ok(None) };
    let alias = &from.first.alias;
    let call = Expr::Call(search, vec![Expr::Ident(alias.clone()), Expr::Literal(query)]);
    let page = Page::default();
    let scan = SearchScan { index, call, page, by_score: false, is_flexible: true, nearest: None };
    let access = Access::Search(scan);
    let source = ScanSource::Keyspace { keyspace, access, covering: false };
    Ok(Some(Scan::of(alias.clone(), source)))
}

/// Returns the predicate of the operands of a condition, if any of them has one.
pub(super) fn predicate(
    from: &ast::From,
    operands: &[Expr],
    context: &dyn PlanContext,
) -> Option<Value> {
    let names = vec![(from.first.alias.clone(), Some(String::new()))];
    let mut paths = Paths { names, context };
    for join in from.joins.iter().filter(|join| join.kind == JoinKind::Unnest) {
        if let Source::Expr(source) = &join.term.source {
            let path = paths.path(source);
            paths.names.push((join.term.alias.clone(), path));
        }
    }
    paths.all(operands)
}

/// Returns the path of an expression in the documents of the first term; `None` if it is no path, or the document itself.
pub(super) fn field_of(from: &ast::From, expr: &Expr, context: &dyn PlanContext) -> Option<String> {
    let names = vec![(from.first.alias.clone(), Some(String::new()))];
    Paths { names, context }.field(expr)
}

/// Returns true if each operand of a condition has a part in the predicate, so that the condition is hardly ever false for a document that
/// an index finds for all of the predicate.
pub(super) fn is_covered(from: &ast::From, operands: &[Expr], context: &dyn PlanContext) -> bool {
    let names = vec![(from.first.alias.clone(), Some(String::new()))];
    let paths = Paths { names, context };
    let ranges = paths.ranges(operands);
    let is_in_range = |operand: &Expr| {
        let Some((field, _)) = paths.bound(operand) else { return false };
        ranges.iter().any(|range| range.field("field").as_str() == Some(field.as_str()))
    };
    operands.iter().all(|operand| paths.one(operand).is_some() || is_in_range(operand))
}

/// The variables in a condition.
struct Paths<'a> {
    /// Each variable with its path in the document, which is empty for the document itself; `None` for other values. Later variables hide
    /// earlier ones of the same name.
    names: Vec<(Name, Option<String>)>,
    context: &'a dyn PlanContext,
}

/// A condition that limits the values at a path.
enum Bound {
    Min(Value),
    Max(Value),
    Number,
    Text,
}

/// All conditions that limit the values at a path.
#[derive(Default)]
struct Bounds {
    min: Option<Value>,
    max: Option<Value>,
    number: bool,
    text: bool,
}

impl Paths<'_> {
    /// Returns the path of an expression in the document.
    fn path(&self, expr: &Expr) -> Option<String> {
        match expr {
            Expr::Ident(name) => {
                let known = self.names.iter().rev().find(|(known, _)| known == name);
                known.and_then(|(_, path)| path.clone())
            }
            // An index cannot distinguish a dot in a name from the one between two names.
            Expr::Field(of, name, false) if !name.is_empty() && !name.contains(['.', '\0']) => {
                let outer = self.path(of)?;
                Some(if outer.is_empty() { name.to_string() } else { format!("{outer}.{name}") })
            }
            _ => None,
        }
    }

    /// Returns the path of a field.
    fn field(&self, expr: &Expr) -> Option<String> {
        self.path(expr).filter(|path| !path.is_empty())
    }

    /// Returns the predicate of conditions that must all hold.
    fn all(&self, operands: &[Expr]) -> Option<Value> {
        let mut parts: Vec<Value> =
            operands.iter().filter_map(|operand| self.one(operand)).collect();
        parts.extend(self.ranges(operands));
        joined("and", parts)
    }

    fn one(&self, condition: &Expr) -> Option<Value> {
        match condition {
            Expr::Chain(Chain::And, _) | Expr::Between(..) => self.all(&conjuncts(Some(condition))),
            Expr::Chain(Chain::Or, operands) => {
                let parts: Option<Vec<Value>> =
                    operands.iter().map(|operand| self.one(operand)).collect();
                joined("or", parts?)
            }
            Expr::Binary(Binary::Equal, left, right) => {
                self.equal(left, right).or_else(|| self.equal(right, left))
            }
            Expr::Binary(Binary::In, item, list) => self.contained(item, list),
            Expr::Like(of, pattern, None) => self.like(of, pattern),
            Expr::Quantified(quantified) => self.any(quantified),
            _ => None,
        }
    }

    fn equal(&self, of: &Expr, value: &Expr) -> Option<Value> {
        equal(self.field(of)?, literal(value, self.context)?)
    }

    fn contained(&self, item: &Expr, list: &Expr) -> Option<Value> {
        if let Some(field) = self.field(list) {
            return equal(field, literal(item, self.context)?);
        }
        let field = self.field(item)?;
        let values: Vec<Value> = match list {
            Expr::Array(elements) => {
                let values = elements.iter().map(|element| literal(element, self.context));
                values.collect::<Option<_>>()?
            }
            list => literal(list, self.context)?.as_array()?.to_vec(),
        };
        if values.len() > VALUES_MAX {
            return None;
        }
        // Nothing equals NULL or MISSING.
        let known = values.into_iter().filter(Value::is_known);
        let parts: Option<Vec<Value>> = known.map(|value| equal(field.clone(), value)).collect();
        joined("or", parts?)
    }

    fn like(&self, of: &Expr, pattern: &Expr) -> Option<Value> {
        let field = self.field(of)?;
        let pattern = literal(pattern, self.context)?;
        let (prefix, _) = like_prefix(pattern.as_str()?, '\\');
        is_indexed(&prefix).then(|| leaf(field, vec![("prefix", Value::from(prefix))]))
    }

    fn any(&self, quantified: &Quantified) -> Option<Value> {
        // EVERY also holds for empty arrays, of which an index has nothing.
        if quantified.kind == Quantifier::Every {
            return None;
        }
        let mut names = self.names.clone();
        for binding in &quantified.bindings {
            let is_element = binding.position.is_none() && !binding.within;
            let path = self.path(&binding.source).filter(|_| is_element);
            names.extend(binding.position.clone().map(|position| (position, None)));
            names.push((binding.variable.clone(), path));
        }
        Paths { names, context: self.context }.all(&conjuncts(Some(&quantified.condition)))
    }

    /// Returns the predicates of comparisons that must all hold.
    fn ranges(&self, operands: &[Expr]) -> Vec<Value> {
        let mut all: BTreeMap<String, Bounds> = BTreeMap::new();
        for (field, bound) in operands.iter().filter_map(|operand| self.bound(operand)) {
            let bounds = all.entry(field).or_default();
            match bound {
                Bound::Min(value) => bounds.min = bounds.min.take().or(Some(value)),
                Bound::Max(value) => bounds.max = bounds.max.take().or(Some(value)),
                Bound::Number => bounds.number = true,
                Bound::Text => bounds.text = true,
            }
        }
        all.into_iter().filter_map(|(field, bounds)| range(field, bounds)).collect()
    }

    fn bound(&self, operand: &Expr) -> Option<(String, Bound)> {
        match operand {
            Expr::Binary(operator, left, right) => {
                let is_greater = match operator {
                    Binary::Greater | Binary::GreaterOrEqual => true,
                    Binary::Less | Binary::LessOrEqual => false,
                    _ => return None,
                };
                let (field, value, is_min) = match (self.field(left), self.field(right)) {
                    (Some(field), None) => (field, right, is_greater),
                    (None, Some(field)) => (field, left, !is_greater),
                    _ => return None,
                };
                let value = literal(value, self.context)?;
                Some((field, if is_min { Bound::Min(value) } else { Bound::Max(value) }))
            }
            Expr::Call(function, args) => {
                let bound = match function.name {
                    "ISNUM" | "ISNUMBER" | "IS_NUM" | "IS_NUMBER" => Bound::Number,
                    "ISSTR" | "ISSTRING" | "IS_STR" | "IS_STRING" => Bound::Text,
                    _ => return None,
                };
                Some((self.field(args.first()?)?, bound))
            }
            _ => None,
        }
    }
}

fn leaf(field: String, members: Vec<(&'static str, Value)>) -> Value {
    Value::object([("field", Value::from(field))].into_iter().chain(members))
}

fn joined(name: &'static str, mut parts: Vec<Value>) -> Option<Value> {
    if parts.len() > 1 {
        return Some(Value::object([(name, Value::from(parts))]));
    }
    parts.pop()
}

fn equal(field: String, value: Value) -> Option<Value> {
    let is_comparable = match &value {
        Value::String(text) => is_indexed(text),
        Value::Bool(_) => true,
        other => is_number(other),
    };
    is_comparable.then(|| leaf(field, vec![("eq", value)]))
}

fn range(field: String, bounds: Bounds) -> Option<Value> {
    let Bounds { min, max, number, text } = bounds;
    let given: Vec<&Value> = min.iter().chain(&max).collect();
    let is_range = |is_typed: bool| given.len() == 2 || given.len() == 1 && is_typed;
    let is_usable = if given.iter().all(|value| is_number(value)) {
        is_range(number)
    } else {
        // Without a lower bound, the empty text is in the range, and no index has it.
        let is_bounded = min.as_ref().and_then(Value::as_str).is_some_and(is_indexed);
        is_bounded && given.iter().all(|value| value.as_str().is_some()) && is_range(text)
    };
    let bound = |bound: Option<Value>| bound.unwrap_or_default();
    is_usable.then(|| leaf(field, vec![("min", bound(min)), ("max", bound(max))]))
}

fn is_number(value: &Value) -> bool {
    match value {
        Value::Int(_) => true,
        Value::Float(number) => number.is_finite(),
        _ => false,
    }
}

/// Returns true if an index has a text as one term.
fn is_indexed(text: &str) -> bool {
    !text.is_empty() && text.len() <= TEXT_BYTES_MAX
}
