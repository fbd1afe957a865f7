//! DISTINCT, UNION and the other set operators, and WITH.

use super::{Operator, Rows, build, result_name, result_of};
use crate::run::Run;
use nacre_planner::Node;
use nacre_sql::ast::{Body, Expr, Select, SetOp, With};
use nacre_sql::{Context, DEPTH_MAX, Env, Error, Host, Result, Value, eval, key};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

/// Maximum number of iterations of a recursive query.
const ROUNDS_MAX: usize = 1000;

pub(super) struct DistinctRows {
    input: Rows,
    seen: BTreeSet<Vec<u8>>,
}

impl DistinctRows {
    pub fn new(input: Rows) -> DistinctRows {
        DistinctRows { input, seen: BTreeSet::new() }
    }
}

impl Operator for DistinctRows {
    fn next(&mut self, run: &Run<'_>, context: &Context<'_>) -> Result<Option<Env>> {
        while let Some(row) = self.input.next(run, context)? {
            let bytes = key::encoded(&result_of(&row));
            let length = bytes.len();
            if self.seen.insert(bytes) {
                run.charge(length + 48)?;
                return Ok(Some(row));
            }
        }
        Ok(None)
    }
}

/// The concatenated rows of several inputs.
pub(super) struct UnionRows {
    branches: VecDeque<Rows>,
}

impl UnionRows {
    pub fn new(branches: VecDeque<Rows>) -> UnionRows {
        UnionRows { branches }
    }
}

impl Operator for UnionRows {
    fn next(&mut self, run: &Run<'_>, context: &Context<'_>) -> Result<Option<Env>> {
        while let Some(branch) = self.branches.front_mut() {
            if let Some(row) = branch.next(run, context)? {
                return Ok(Some(row));
            }
            self.branches.pop_front();
        }
        Ok(None)
    }
}

pub(super) struct SetRows {
    node: Rc<Node>,
    left: Rows,
    right: Rows,
    /// For each row of the right side, how often it must still be matched.
    counts: Option<BTreeMap<Vec<u8>, usize>>,
    seen: BTreeSet<Vec<u8>>,
    left_ended: bool,
}

impl SetRows {
    pub fn new(node: Rc<Node>, left: Rows, right: Rows) -> SetRows {
        SetRows { node, left, right, counts: None, seen: BTreeSet::new(), left_ended: false }
    }

    fn next_of_union(&mut self, run: &Run<'_>, context: &Context<'_>) -> Result<Option<Env>> {
        if !self.left_ended {
            if let Some(row) = self.left.next(run, context)? {
                return Ok(Some(row));
            }
            self.left_ended = true;
        }
        self.right.next(run, context)
    }

    fn counts(
        &mut self,
        run: &Run<'_>,
        context: &Context<'_>,
    ) -> Result<&mut BTreeMap<Vec<u8>, usize>> {
        if self.counts.is_none() {
            let mut counts: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
            while let Some(row) = self.right.next(run, context)? {
                let bytes = key::encoded(&result_of(&row));
                let size = bytes.len() + 56;
                match counts.entry(bytes) {
                    Entry::Occupied(mut count) => *count.get_mut() += 1,
                    Entry::Vacant(count) => {
                        run.charge(size)?;
                        count.insert(1);
                    }
                }
            }
            self.counts = Some(counts);
        }
        Ok(self.counts.as_mut().expect("made right above"))
    }
}

impl Operator for SetRows {
    fn next(&mut self, run: &Run<'_>, context: &Context<'_>) -> Result<Option<Env>> {
        let node = self.node.clone();
        let Node::Set(operator, all, ..) = &*node else { return Ok(None) };
        loop {
            let next = match operator {
                SetOp::Union => self.next_of_union(run, context)?,
                _ => self.left.next(run, context)?,
            };
            let Some(row) = next else { return Ok(None) };
            let bytes = key::encoded(&result_of(&row));
            if *operator != SetOp::Union {
                let matched = match self.counts(run, context)?.get_mut(&bytes) {
                    Some(0) | None => false,
                    Some(count) if *all => {
                        *count -= 1;
                        true
                    }
                    Some(_) => true,
                };
                if matched != (*operator == SetOp::Intersect) {
                    continue;
                }
            }
            if !all {
                let length = bytes.len();
                if !self.seen.insert(bytes) {
                    continue;
                }
                run.charge(length + 48)?;
            }
            return Ok(Some(row));
        }
    }
}

pub(super) struct WithRows {
    node: Rc<Node>,
    base: Env,
    rows: Option<Rows>,
}

impl WithRows {
    pub fn new(node: Rc<Node>, base: Env) -> WithRows {
        WithRows { node, base, rows: None }
    }
}

impl Operator for WithRows {
    fn next(&mut self, run: &Run<'_>, context: &Context<'_>) -> Result<Option<Env>> {
        let node = self.node.clone();
        let Node::With(input, withs) = &*node else { return Ok(None) };
        if self.rows.is_none() {
            let mut env = self.base.clone();
            for with in withs {
                let value = match recursion(with) {
                    Some((first, step, all)) => {
                        recursive(with, first, step, all, &env, run, context)?
                    }
                    None => eval(&with.expr, &env, context)?,
                };
                env = env.with(&with.alias, value);
            }
            self.rows = Some(build(input, &env));
        }
        self.rows.as_mut().map_or(Ok(None), |rows| rows.next(run, context))
    }
}

/// Returns anchor and step of a recursive query, which are the sides of its UNION, and true for
/// UNION ALL.
fn recursion(with: &With) -> Option<(Body, Body, bool)> {
    match &with.expr {
        Expr::Subquery(select) if with.recursive => match &select.body {
            Body::Union(..) => None,
            Body::Set(SetOp::Union, all, first, step) => {
                Some(((**first).clone(), (**step).clone(), *all))
            }
            _ => None,
        },
        _ => None,
    }
}

/// Limits of a recursive query. Source: SQL++ reference, WITH RECURSIVE.
struct RecursionLimits {
    /// Maximum number of iterations.
    levels: Option<usize>,
    /// Maximum number of rows.
    documents: Option<usize>,
}

impl RecursionLimits {
    fn of(with: &With, env: &Env, context: &Context<'_>) -> Result<RecursionLimits> {
        let options =
            with.options.as_ref().map(|options| eval(options, env, context)).transpose()?;
        let options = options.unwrap_or_default();
        for (name, value) in options.as_object().into_iter().flatten() {
            let is_known = matches!(&**name, "levels" | "documents");
            let is_count = value.as_i64().is_some_and(|count| count >= 0);
            if !is_known || !is_count {
                let message = format!("Invalid option {name} of WITH RECURSIVE {}", with.alias);
                return Err(Error::new(3303, message));
            }
        }
        if with.options.is_some() && options.as_object().is_none() {
            let message = format!("The options of WITH RECURSIVE {} are an object", with.alias);
            return Err(Error::new(3303, message));
        }
        let count = |name: &str| {
            options.field(name).as_i64().map(|count| usize::try_from(count).unwrap_or(usize::MAX))
        };
        Ok(RecursionLimits { levels: count("levels"), documents: count("documents") })
    }
}

/// Returns true if a row has the same values of the CYCLE expressions as an earlier one.
fn closes_circle(
    with: &With,
    row: &Value,
    circles: &mut BTreeSet<Vec<u8>>,
    context: &Context<'_>,
) -> Result<bool> {
    if with.cycle.is_empty() {
        return Ok(false);
    }
    let env = Env::new().with(&with.alias, row.clone());
    let mut bytes = Vec::new();
    for expr in &with.cycle {
        key::encode(&eval(expr, &env, context)?, false, &mut bytes);
    }
    Ok(!circles.insert(bytes))
}

fn recursive(
    with: &With,
    first: Body,
    step: Body,
    all: bool,
    env: &Env,
    run: &Run<'_>,
    context: &Context<'_>,
) -> Result<Value> {
    let select = |body| Select { with: vec![], body, order: vec![], limit: None, offset: None };
    let first = nacre_planner::plan(&select(first), run)?;
    let step = nacre_planner::plan(&select(step), run)?;
    run.keep(first.root.clone());
    run.keep(step.root.clone());
    let limits = RecursionLimits::of(with, env, context)?;
    let mut seen = BTreeSet::new();
    let mut circles = BTreeSet::new();
    let mut results = Vec::new();
    let mut recent: VecDeque<Value> = VecDeque::new();
    let mut rows = build(&first.root, env);
    for round in 0..ROUNDS_MAX {
        while let Some(row) = rows.next(run, context)? {
            run.tick()?;
            let value = row.get(result_name()).cloned().unwrap_or_default();
            // Each iteration may nest the values of the previous one, and code that walks values
            // recurses.
            if value.nests_deeper_than(DEPTH_MAX) {
                return Err(Error::execution(format!(
                    "WITH RECURSIVE {} nests values too deeply",
                    with.alias
                )));
            }
            if closes_circle(with, &value, &mut circles, context)? {
                continue;
            }
            if all || seen.insert(key::encoded(&value)) {
                run.charge(value.size_bytes() * 2)?;
                recent.push_back(value);
            }
        }
        if recent.is_empty() {
            return Ok(Value::array(results));
        }
        results.extend(recent.iter().cloned());
        if limits.documents.is_some_and(|most| results.len() >= most) {
            results.truncate(limits.documents.unwrap_or(usize::MAX));
            return Ok(Value::array(results));
        }
        if limits.levels.is_some_and(|most| round >= most) {
            return Ok(Value::array(results));
        }
        // Each step sees the results of the previous one.
        let inner = env.with(&with.alias, Value::array(recent.drain(..).collect()));
        rows = build(&step.root, &inner);
    }
    Err(Error::execution(format!(
        "WITH RECURSIVE {} has gone on for {ROUNDS_MAX} rounds",
        with.alias
    )))
}
