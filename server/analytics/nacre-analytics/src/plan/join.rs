//! The order of joins. The engine joins in the order of FROM, so the order is determined here.
//!
//! Starts with the pair of inputs with the smallest join, and repeatedly adds the input with the smallest next one: equalities
//! divide by the number of distinct values, other conditions by a constant. Unconnected inputs come last.

use super::Stop;
use super::relation::{Form, Wanted};
use super::scope::{Input, Inputs, Typed};
use datafusion::datasource::{MemTable, provider_as_source};
use datafusion::logical_expr::{Expr, JoinType, LogicalPlan, LogicalPlanBuilder};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The assumed share of rows for which a condition is true.
const SELECTIVITY: f64 = 0.25;

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
    let Joined { mut plan, inputs, mut rows } = joined;
    let mut left = Vec::new();
    for condition in conditions.drain(..) {
        match condition.inputs.is_subset(&inputs) {
            true => {
                plan = LogicalPlanBuilder::from(plan).filter(condition.expr)?.build()?;
                rows = (rows * SELECTIVITY).max(1.0);
            }
            false => left.push(condition),
        }
    }
    *conditions = left;
    Ok(Joined { plan, inputs, rows })
}

/// Estimates the size of a join; also returns whether an equality connects its sides.
fn estimate(left: &Joined, right: &Joined, conditions: &[Condition]) -> (f64, bool) {
    let mut values = 1.0_f64;
    let mut is_connected = false;
    let mut others = 1.0;
    for condition in conditions {
        let touches = |joined: &Joined| !condition.inputs.is_disjoint(&joined.inputs);
        let both: BTreeSet<usize> = left.inputs.union(&right.inputs).copied().collect();
        if !condition.inputs.is_subset(&both) || !touches(left) || !touches(right) {
            continue;
        }
        let Some(sides) = &condition.sides else {
            others *= SELECTIVITY;
            continue;
        };
        is_connected = true;
        let of = |joined: &Joined| {
            let side = sides.iter().find(|(_, inputs)| inputs.is_subset(&joined.inputs));
            side.and_then(|(typed, _)| typed.distinct).unwrap_or(joined.rows).min(joined.rows)
        };
        values *= of(left).max(of(right)).max(1.0);
    }
    let values = values.min(left.rows.max(right.rows)).max(1.0);
    (left.rows * right.rows / values * others, is_connected)
}

/// Joins all inputs in the estimated best order, and applies the conditions.
///
/// # Errors
/// The errors of the engine.
pub fn all(mut parts: Vec<Joined>, conditions: &mut Vec<Condition>) -> Result<Joined, Stop> {
    for part in &mut parts {
        *part = filter(part.clone(), conditions)?;
    }
    let mut best: Option<(bool, f64, usize, usize)> = None;
    for a in 0..parts.len() {
        for b in a + 1..parts.len() {
            let (rows, is_connected) = estimate(&parts[a], &parts[b], conditions);
            let is_better = best.is_none_or(|(connected, least, ..)| {
                (is_connected && !connected) || (is_connected == connected && rows < least)
            });
            if is_better {
                best = Some((is_connected, rows, a, b));
            }
        }
    }
    let Some((_, _, a, b)) = best else {
        return parts.pop().ok_or_else(|| Stop::Unsupported("nothing is read".to_owned()));
    };
    let second = parts.remove(b);
    let mut joined = pair(parts.remove(a), second, conditions)?;
    while !parts.is_empty() {
        let rank = |part: &Joined| {
            let (rows, is_connected) = estimate(&joined, part, conditions);
            (!is_connected, rows)
        };
        let next = (0..parts.len()).min_by(|a, b| {
            let (x, y) = (rank(&parts[*a]), rank(&parts[*b]));
            x.0.cmp(&y.0).then(x.1.total_cmp(&y.1))
        });
        let part = parts.remove(next.expect("there is a part"));
        joined = pair(joined, part, conditions)?;
    }
    Ok(joined)
}

fn pair(left: Joined, right: Joined, conditions: &mut Vec<Condition>) -> Result<Joined, Stop> {
    let (rows, _) = estimate(&left, &right, conditions);
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
