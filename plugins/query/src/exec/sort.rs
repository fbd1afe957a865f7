//! ORDER BY, LIMIT and OFFSET.

use super::{Operator, PassThrough, Rows, result_name};
use crate::run::Run;
use nacre_planner::{Node, Page};
use nacre_sql::ast::{Expr, OrderTerm};
use nacre_sql::{Content, Context, Env, Error, Result, Value, eval};
use std::cmp::Ordering;
use std::rc::Rc;
use std::vec::IntoIter;

/// Compares the values of ORDER BY.
pub(super) fn compare(terms: &[OrderTerm], a: &[Value], b: &[Value]) -> Ordering {
    for ((term, a), b) in terms.iter().zip(a).zip(b) {
        let mut order = a.collate(b);
        if term.descending {
            order = order.reverse();
        }
        if let Some(last) = term.nulls_last
            && a.is_known() != b.is_known()
        {
            order = if a.is_known() == last { Ordering::Less } else { Ordering::Greater };
        }
        if order.is_ne() {
            return order;
        }
    }
    Ordering::Equal
}

/// A row with its sort keys.
struct Sorted {
    keys: Vec<Value>,
    row: Env,
    /// Memory charged for it.
    size: usize,
}

impl Sorted {
    fn new(keys: Vec<Value>, row: Env) -> Sorted {
        let size = keys.iter().map(Value::size_bytes).sum::<usize>()
            + row.get(result_name()).map_or(0, Value::size_bytes)
            + 64;
        Sorted { keys, row, size }
    }
}

/// Returns the value of LIMIT or OFFSET; `None` if the clause is missing, 0 for a negative number.
fn count(
    expr: Option<&Expr>,
    name: &str,
    base: &Env,
    context: &Context<'_>,
) -> Result<Option<usize>> {
    let Some(expr) = expr else { return Ok(None) };
    let value = eval(expr, base, context)?;
    match value.as_i64() {
        Some(count) => Ok(Some(usize::try_from(count).unwrap_or(0))),
        None => Err(Error::new(5011, format!("{name} must be an integer and not {value}"))),
    }
}

pub(crate) fn page_of(
    page: &Page,
    base: &Env,
    context: &Context<'_>,
) -> Result<(Option<usize>, usize)> {
    let limit = count(page.limit.as_ref(), "LIMIT", base, context)?;
    Ok((limit, count(page.offset.as_ref(), "OFFSET", base, context)?.unwrap_or(0)))
}

pub(super) struct OrderRows {
    node: Rc<Node>,
    input: Rows,
    base: Env,
    rows: Option<IntoIter<Sorted>>,
}

impl OrderRows {
    pub fn new(node: Rc<Node>, input: Rows, base: Env) -> OrderRows {
        OrderRows { node, input, base, rows: None }
    }

    fn read(
        &mut self,
        terms: &[OrderTerm],
        page: &Page,
        run: &Run<'_>,
        context: &Context<'_>,
    ) -> Result<Vec<Sorted>> {
        let (limit, offset) = page_of(page, &self.base, context)?;
        let wanted = limit.map(|limit| limit.saturating_add(offset));
        let mut rows: Vec<Sorted> = Vec::new();
        let sort = |rows: &mut Vec<Sorted>| rows.sort_by(|a, b| compare(terms, &a.keys, &b.keys));
        let mut count = 0;
        while let Some(row) = self.input.next(run, context)? {
            let keys: Vec<Value> =
                terms.iter().map(|term| eval(&term.expr, &row, context)).collect::<Result<_>>()?;
            count += 1;
            let row = Sorted::new(keys, row);
            run.charge(row.size)?;
            rows.push(row);
            // Rows that can no longer be among the first are dropped from time to time.
            if let Some(wanted) = wanted
                && rows.len() > wanted.saturating_mul(2).max(64)
            {
                sort(&mut rows);
                run.give_back(rows.drain(wanted..).map(|row| row.size).sum());
            }
        }
        sort(&mut rows);
        run.state.sort_count.set(run.state.sort_count.get() + count);
        Ok(rows)
    }
}

impl Operator for OrderRows {
    fn next(&mut self, run: &Run<'_>, context: &Context<'_>) -> Result<Option<Env>> {
        let node = self.node.clone();
        let Node::Order(_, terms, page) = &*node else { return Ok(None) };
        if self.rows.is_none() {
            self.rows = Some(self.read(terms, page, run, context)?.into_iter());
        }
        Ok(self.rows.as_mut().and_then(Iterator::next).map(|sorted| sorted.row))
    }
}

pub(super) struct PageRows {
    node: Rc<Node>,
    input: Rows,
    base: Env,
    /// Number of remaining rows; known after the first request.
    left: Option<usize>,
}

impl PageRows {
    pub fn new(node: Rc<Node>, input: Rows, base: Env) -> PageRows {
        PageRows { node, input, base, left: None }
    }
}

impl PageRows {
    /// Returns the next row of the page; `pull` takes one from the input.
    fn step<T>(
        &mut self,
        run: &Run<'_>,
        context: &Context<'_>,
        pull: impl Fn(&mut Rows, &Run<'_>, &Context<'_>) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let node = self.node.clone();
        let Node::Page(_, page) = &*node else { return Ok(None) };
        if self.left.is_none() {
            let (limit, offset) = page_of(page, &self.base, context)?;
            self.left = Some(limit.unwrap_or(usize::MAX));
            for _ in 0..offset {
                if limit == Some(0) || pull(&mut self.input, run, context)?.is_none() {
                    self.left = Some(0);
                    break;
                }
            }
        }
        match self.left {
            Some(left) if left > 0 => {
                self.left = Some(left - 1);
                pull(&mut self.input, run, context)
            }
            _ => Ok(None),
        }
    }
}

impl Operator for PageRows {
    fn next_pass_through(
        &mut self,
        max: usize,
        run: &Run<'_>,
        context: &Context<'_>,
    ) -> Result<Option<PassThrough>> {
        let node = self.node.clone();
        let Node::Page(_, page) = &*node else { return Ok(None) };
        if page.offset.is_some() {
            return Ok(None);
        }
        let left = match self.left {
            Some(left) => left,
            None => page_of(page, &self.base, context)?.0.unwrap_or(usize::MAX),
        };
        let rows = match left {
            0 => None,
            _ => self.input.next_pass_through(left.min(max), run, context)?,
        };
        self.left = Some(left - rows.as_ref().map_or(0, |rows| rows.documents.count));
        Ok(rows)
    }

    fn next(&mut self, run: &Run<'_>, context: &Context<'_>) -> Result<Option<Env>> {
        self.step(run, context, |input, run, context| input.next(run, context))
    }

    fn next_content(&mut self, run: &Run<'_>, context: &Context<'_>) -> Result<Option<Content>> {
        self.step(run, context, |input, run, context| input.next_content(run, context))
    }
}
