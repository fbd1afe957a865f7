//! The order of joins. The engine joins in the order of FROM, so the order is determined here.
//!
//! Starts with each input, and repeatedly adds the one with the smallest next join: equalities divide by the number of distinct
//! values, other conditions by a constant. Unconnected inputs come last. The order with the smallest intermediate results is used.

use super::Stop;
use super::relation::{Form, Wanted};
use super::scope::{Input, Inputs, Typed};
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::TreeNode;
use datafusion::datasource::{MemTable, provider_as_source};
use datafusion::logical_expr::expr::Like;
use datafusion::logical_expr::{Expr, JoinType, LogicalPlan, LogicalPlanBuilder};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The assumed share of rows for which a condition is true.
const SELECTIVITY: f64 = 0.25;
/// The assumed share of texts that have a given letter at a given place.
const SHARE_OF_LETTER: f64 = 0.2;

/// A condition with the inputs that it reads.
#[derive(Clone, Debug)]
pub struct Condition {
    /// The condition.
    pub expr: Expr,
    /// Inputs.
    pub inputs: BTreeSet<usize>,
    /// Both sides of an equality of two expressions that read different inputs.
    pub sides: Option<Box<[(Typed, BTreeSet<usize>); 2]>>,
}

/// Joined rows with their estimated number.
#[derive(Clone)]
pub struct Joined {
    /// Plan.
    pub plan: LogicalPlan,
    /// The inputs that it contains.
    pub inputs: BTreeSet<usize>,
    /// The estimate.
    pub rows: f64,
}

/// Creates the table of an input.
///
/// # Errors
/// The errors of the engine.
pub fn read(inputs: &Inputs, input: usize, parts: usize) -> Result<Joined, Stop> {
    let (plan, rows) = match &inputs.all[input] {
        Input::Plan(plan, rows) => (plan.clone(), *rows),
        Input::Relation(relation) => {
            let mut relation = relation.clone();
            if relation.columns.is_empty() {
                // A table without columns has no rows to count.
                let row = Wanted { level: 0, path: Vec::new(), form: Form::Row };
                relation.columns.push((format!("row#{input}"), row));
            }
            let batches =
                relation.batches(parts).map_err(datafusion::error::DataFusionError::from)?;
            let table = MemTable::try_new(relation.schema(), batches)?;
            let source = provider_as_source(Arc::new(table));
            let plan = LogicalPlanBuilder::scan("documents", source, None)?.build()?;
            // Columns are identified only by their names, which are unique in a statement.
            let columns: Vec<Expr> = plan
                .schema()
                .columns()
                .into_iter()
                .map(|column| {
                    let name = column.name.clone();
                    Expr::Column(column).alias(name)
                })
                .collect();
            let plan = LogicalPlanBuilder::from(plan).project(columns)?.build()?;
            (plan, relation.row_estimate())
        }
    };
    Ok(Joined { plan, inputs: BTreeSet::from([input]), rows })
}

/// Applies the conditions that read only these inputs, and removes them from the list.
///
/// # Errors
/// The errors of the engine.
pub fn filter(joined: Joined, conditions: &mut Vec<Condition>) -> Result<Joined, Stop> {
    let Joined { mut plan, inputs, rows } = joined;
    let (own, left): (Vec<_>, Vec<_>) =
        conditions.drain(..).partition(|condition| condition.inputs.is_subset(&inputs));
    *conditions = left;
    let shares = own.iter().map(|condition| share(&condition.expr));
    let rows = (rows * shares.product::<f64>()).max(1.0);
    // The engine evaluates the end of a conjunction only for the rows that are left, so functions come last.
    let (calls, plain): (Vec<_>, Vec<_>) =
        own.into_iter().map(|condition| condition.expr).partition(calls_function);
    if let Some(condition) = plain.into_iter().chain(calls).reduce(Expr::and) {
        plan = LogicalPlanBuilder::from(plan).filter(condition)?.build()?;
    }
    Ok(Joined { plan, inputs, rows })
}

/// Estimates the share of rows for which a condition is true: a pattern has few of them if it has many letters.
fn share(condition: &Expr) -> f64 {
    match condition {
        Expr::Not(of) => 1.0 - share(of),
        Expr::Like(Like { negated: false, pattern, .. }) => match &**pattern {
            Expr::Literal(ScalarValue::Utf8View(Some(pattern)), _) => {
                let letters = pattern.chars().filter(|letter| !matches!(letter, '%' | '_')).count();
                SHARE_OF_LETTER.powi(letters.min(5) as i32)
            }
            _ => SELECTIVITY,
        },
        _ => SELECTIVITY,
    }
}

fn calls_function(expr: &Expr) -> bool {
    let found = expr.exists(|part| Ok(matches!(part, Expr::ScalarFunction(_))));
    found.unwrap_or(false)
}

/// Inputs with the estimated number of their rows.
type Size<'a> = (&'a BTreeSet<usize>, f64);

/// Estimates the size of a join; also returns whether an equality connects its sides.
fn estimate(left: Size<'_>, right: Size<'_>, conditions: &[Condition]) -> (f64, bool) {
    let mut values = 1.0_f64;
    let mut is_connected = false;
    let mut others = 1.0;
    for condition in conditions {
        let is_inside = |input: &usize| left.0.contains(input) || right.0.contains(input);
        let touches = |size: Size<'_>| !condition.inputs.is_disjoint(size.0);
        if !condition.inputs.iter().all(is_inside) || !touches(left) || !touches(right) {
            continue;
        }
        let Some(sides) = &condition.sides else {
            others *= SELECTIVITY;
            continue;
        };
        is_connected = true;
        let of = |(own, rows): Size<'_>| {
            let side = sides.iter().find(|(_, inputs)| inputs.is_subset(own));
            side.and_then(|(typed, _)| typed.distinct).unwrap_or(rows).min(rows)
        };
        values *= of(left).max(of(right)).max(1.0);
    }
    let values = values.min(left.1.max(right.1)).max(1.0);
    (left.1 * right.1 / values * others, is_connected)
}

/// Returns the order in which to join the parts: for each part as the first one, the next ones are those with the smallest next join.
/// The order with the fewest products and the smallest sum of sizes is the best.
fn order(parts: &[Joined], conditions: &[Condition]) -> Vec<usize> {
    let mut best: Option<(usize, f64, Vec<usize>)> = None;
    for first in 0..parts.len() {
        let (mut order, mut inputs, mut rows) =
            (vec![first], parts[first].inputs.clone(), parts[first].rows);
        let (mut products, mut sum) = (0, 0.0);
        while order.len() < parts.len() {
            let size = |at: usize| {
                let part = &parts[at];
                estimate((&inputs, rows), (&part.inputs, part.rows), conditions)
            };
            let left = (0..parts.len()).filter(|at| !order.contains(at));
            let sizes = left.map(|at| (at, size(at)));
            let next = sizes.min_by(|(_, (a, is_connected)), (_, (b, is_other_connected))| {
                is_other_connected.cmp(is_connected).then(a.total_cmp(b))
            });
            let (at, (size, is_connected)) = next.expect("there is a part");
            order.push(at);
            inputs.extend(&parts[at].inputs);
            rows = size.max(1.0);
            products += usize::from(!is_connected);
            sum += rows;
        }
        let is_better = best.as_ref().is_none_or(|(fewest, least, _)| {
            products < *fewest || products == *fewest && sum < *least
        });
        if is_better {
            best = Some((products, sum, order));
        }
    }
    best.map(|(_, _, order)| order).unwrap_or_default()
}

/// Joins all inputs in the estimated best order, and applies the conditions.
///
/// # Errors
/// The errors of the engine.
pub fn all(mut parts: Vec<Joined>, conditions: &mut Vec<Condition>) -> Result<Joined, Stop> {
    for part in &mut parts {
        *part = filter(part.clone(), conditions)?;
    }
    let mut ordered = order(&parts, conditions).into_iter().map(|at| parts[at].clone());
    let Some(mut joined) = ordered.next() else {
        return Err(Stop::Unsupported("nothing is read".to_owned()));
    };
    for part in ordered {
        joined = pair(joined, part, conditions)?;
    }
    Ok(joined)
}

fn pair(left: Joined, right: Joined, conditions: &mut Vec<Condition>) -> Result<Joined, Stop> {
    let (rows, _) = estimate((&left.inputs, left.rows), (&right.inputs, right.rows), conditions);
    let inputs: BTreeSet<usize> = left.inputs.union(&right.inputs).copied().collect();
    let (on, rest): (Vec<_>, Vec<_>) =
        conditions.drain(..).partition(|condition| condition.inputs.is_subset(&inputs));
    *conditions = rest;
    let builder = LogicalPlanBuilder::from(left.plan);
    let plan = match on.is_empty() {
        true => builder.cross_join(right.plan)?,
        false => {
            let on = on.into_iter().map(|condition| condition.expr);
            builder.join_on(right.plan, JoinType::Inner, on)?
        }
    };
    Ok(Joined { plan: plan.build()?, inputs, rows: rows.max(1.0) })
}

/// Joins with a kind that keeps or drops rows of the left side: left, semi and anti joins.
///
/// # Errors
/// The errors of the engine.
pub fn keep(left: Joined, right: Joined, kind: JoinType, on: Vec<Expr>) -> Result<Joined, Stop> {
    let plan = LogicalPlanBuilder::from(left.plan).join_on(right.plan, kind, on)?.build()?;
    let mut inputs = left.inputs;
    let rows = match kind {
        JoinType::Left => {
            inputs.extend(right.inputs);
            left.rows.max(right.rows)
        }
        _ => (left.rows / 2.0).max(1.0),
    };
    Ok(Joined { plan, inputs, rows })
}
