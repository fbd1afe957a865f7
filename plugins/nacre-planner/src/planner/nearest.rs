//! Vector indexes: the documents of the first term are the neighbours of a vector, if they are ordered by their distance and limited.
//!
//! ```text
//! ORDER BY APPROX_VECTOR_DISTANCE(x.v, $v, "L2") LIMIT 10  ─►  {"nearest": {"field": "v", "metric": "l2_norm"}}
//! ```
//!
//! The answer is an index, with the dimension of its vectors and the query for the predicate of the condition. The rows are sorted by the exact
//! distance afterwards, and each document is tested. If the index does not test all of the condition, it returns as many neighbours as it can,
//! because any of them may fail the test.

use super::{each_output, flexible, literal};
use crate::plan::{Access, Nearest, Page, Scan, ScanSource, SearchScan};
use crate::plan_context::PlanContext;
use nacre_sql::ast::{Block, Expr, OrderTerm, Source, Unary};
use nacre_sql::{Name, Result, Value, any_in};

/// Maximum number of neighbours. Source: the limit of the search service.
const COUNT_MAX: usize = 10_000;
/// Minimum number of neighbours if documents are tested: an index is less exact than the condition.
const TESTED_MIN: usize = 100;
/// Neighbours for each wanted row if documents are tested.
const TESTED_FACTOR: usize = 4;

/// Plans the first term of a block as the neighbours of a vector, if an index finds them.
pub(super) fn choose(
    block: &Block,
    order: &[OrderTerm],
    page: &Page,
    operands: &[Expr],
    context: &dyn PlanContext,
) -> Result<Option<Scan>> {
    let Some(from) = &block.from else { return Ok(None) };
    let Source::Keyspace(path) = &from.first.source else { return Ok(None) };
    let Some(call) = distance(order) else { return Ok(None) };
    let Expr::Call(_, args) = call else { return Ok(None) };
    let is_alone = from.joins.is_empty() && block.group.is_none() && !block.distinct;
    if !is_alone || needs_all(block, order)? || !is_independent(block, &args[1]) {
        return Ok(None);
    }
    let Some(field) = flexible::field_of(from, &args[0], context) else { return Ok(None) };
    let Some(metric) = literal(&args[2], context).and_then(|name| metric(&name)) else {
        return Ok(None);
    };
    let Some(wanted) = wanted(page, context) else { return Ok(None) };
    let tested: Vec<Expr> =
        operands.iter().filter(|operand| !is_implied(operand, &args[0])).cloned().collect();
    let predicate = flexible::predicate(from, &tested, context);
    let is_covered = flexible::is_covered(from, &tested, context);
    let keyspace = context.keyspace(path)?;
    let question = Value::object([
        ("field", Value::from(field.as_str())),
        ("metric", metric.into()),
        ("filter", predicate.unwrap_or_default()),
    ]);
    let hints = &from.first.hints;
    let names: Vec<Name> = hints.indexes.iter().chain(&hints.search_indexes).cloned().collect();
    let question = Value::object([("nearest", question)]);
    let Some((index, found)) = context.flexible_index(&keyspace, question, &names) else {
        return Ok(None);
    };
    let Some(dimension) = found.field("dimension").as_i64() else { return Ok(None) };
    let count = if tested.is_empty() {
        wanted
    } else if is_covered && found.field("is_whole").truth() {
        (wanted * TESTED_FACTOR).clamp(TESTED_MIN, COUNT_MAX)
    } else {
        COUNT_MAX
    };
    let dimension = usize::try_from(dimension).unwrap_or_default();
    let filter = found.field("filter");
    let nearest = Some(Box::new(Nearest { field: field.into(), dimension, count, filter }));
    let (call, page) = (call.clone(), Page::default());
    let scan = SearchScan { index, call, page, by_score: true, is_flexible: false, nearest };
    let access = Access::Search(scan);
    let source = ScanSource::Keyspace { keyspace, access, covering: false };
    Ok(Some(Scan::of(from.first.alias.clone(), source)))
}

/// Returns the call of the distance that rows are ordered by, from the nearest on.
fn distance(order: &[OrderTerm]) -> Option<&Expr> {
    let term = order.first().filter(|term| !term.descending && term.nulls_last.is_none())?;
    match &term.expr {
        Expr::Call(function, args) => {
            let is_distance = function.name == "APPROX_VECTOR_DISTANCE" && args.len() >= 3;
            is_distance.then_some(&term.expr)
        }
        _ => None,
    }
}

/// Returns true if a condition holds for all documents in an index with a vector: `IS NOT MISSING`, `IS NOT NULL` and `IS VALUED`.
fn is_implied(condition: &Expr, vector: &Expr) -> bool {
    match condition {
        Expr::Unary(Unary::IsKnown, of) => **of == *vector,
        Expr::Unary(Unary::Not, inner) => match &**inner {
            Expr::Unary(Unary::IsMissing | Unary::IsNull, of) => **of == *vector,
            _ => false,
        },
        _ => false,
    }
}

/// Returns true if a value needs all rows: an aggregate, or a window.
fn needs_all(block: &Block, order: &[OrderTerm]) -> Result<bool> {
    let (mut projection, mut order) = (block.projection.clone(), order.to_vec());
    let mut has_aggregate = false;
    each_output(&mut projection, &mut order, &mut |expr| {
        has_aggregate |= any_in(expr, &|expr| matches!(expr, Expr::Aggregate(_)));
        Ok(())
    })?;
    Ok(has_aggregate)
}

/// Returns true if an expression has its value before documents are read.
fn is_independent(block: &Block, expr: &Expr) -> bool {
    let first = block.from.iter().map(|from| from.first.alias.clone());
    let names: Vec<Name> = first.chain(block.lets.iter().map(|(name, _)| name.clone())).collect();
    !super::mentions(expr, &names)
}

/// Returns the similarity of an index that orders documents as a metric does.
fn metric(name: &Value) -> Option<&'static str> {
    Some(match name.as_str()?.to_ascii_uppercase().as_str() {
        "L2" | "EUCLIDEAN" | "L2_SQUARED" | "EUCLIDEAN_SQUARED" => "l2_norm",
        "DOT" => "dot_product",
        "COSINE" => "cosine",
        _ => return None,
    })
}

/// Returns the number of rows up to the end of the page, if it is known now and an index finds as many.
fn wanted(page: &Page, context: &dyn PlanContext) -> Option<usize> {
    let number = |expr: &Expr| usize::try_from(literal(expr, context)?.as_i64()?).ok();
    let limit = number(page.limit.as_ref()?)?;
    let offset = page.offset.as_ref().map_or(Some(0), number)?;
    let wanted = limit.checked_add(offset)?;
    (1..=COUNT_MAX).contains(&wanted).then_some(wanted)
}
