//! Joins, NEST and UNNEST.

use super::scan::{Found, TermRows};
use super::{Operator, Rows};
use crate::run::Run;
use nacre_planner::{Join, Node, Scan, Strategy};
use nacre_sql::ast::{Expr, JoinKind, Side};
use nacre_sql::{Context, Env, Host, Result, Value, eval, key, position_name};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// The state of the right side.
enum Right {
    Unread,
    List(Vec<Found>),
    Table(BTreeMap<Vec<u8>, Vec<Found>>),
}

pub(super) struct JoinRows {
    node: Rc<Node>,
    left: Rows,
    base: Env,
    right: Right,
    ready: VecDeque<Env>,
    /// Memory charged for the join candidates of the last row.
    lent: usize,
    /// True after a right join, which is computed in one step.
    ended: bool,
}

impl JoinRows {
    pub fn new(node: Rc<Node>, left: Rows, base: Env) -> JoinRows {
        let ready = VecDeque::new();
        JoinRows { node, left, base, right: Right::Unread, ready, lent: 0, ended: false }
    }

    fn right_join(&mut self, join: &Join, run: &Run<'_>, context: &Context<'_>) -> Result<()> {
        let Strategy::Loop(scan) = &join.strategy else { return Ok(()) };
        let mut lefts = Vec::new();
        while let Some(left) = self.left.next(run, context)? {
            run.charge(64)?;
            lefts.push(left);
        }
        for found in read(scan, &self.base, run, context)? {
            let mut matched = false;
            for left in &lefts {
                run.tick()?;
                let row = found.clone().bind(left, &join.alias);
                if holds(join, &row, context)? {
                    matched = true;
                    self.ready.push_back(row);
                }
            }
            if !matched {
                let nothing = join
                    .left
                    .iter()
                    .fold(self.base.clone(), |env, name| env.with(name, Value::Missing));
                self.ready.push_back(found.bind(&nothing, &join.alias));
            }
        }
        Ok(())
    }

    /// Returns the rows that may be joined to a row.
    fn candidates(
        &mut self,
        join: &Join,
        left: &Env,
        run: &Run<'_>,
        context: &Context<'_>,
    ) -> Result<Vec<Found>> {
        match &join.strategy {
            Strategy::Nested(scan) => {
                // The candidates of the previous row have been passed on.
                run.give_back(std::mem::take(&mut self.lent));
                let before = run.charged();
                let found = read(scan, left, run, context)?;
                self.lent = run.charged().saturating_sub(before);
                Ok(found)
            }
            Strategy::Unnest(_) => Ok(Vec::new()),
            Strategy::Loop(scan) => {
                if matches!(self.right, Right::Unread) {
                    self.right = Right::List(read(scan, &self.base, run, context)?);
                }
                let Right::List(list) = &self.right else { return Ok(Vec::new()) };
                Ok(list.clone())
            }
            Strategy::Hash(scan, lefts, rights) => {
                if matches!(self.right, Right::Unread) {
                    self.right = Right::Table(self.table(scan, join, rights, run, context)?);
                }
                let Right::Table(table) = &self.right else { return Ok(Vec::new()) };
                let key = hash_key(lefts, left, context)?;
                Ok(key.and_then(|key| table.get(&key)).cloned().unwrap_or_default())
            }
        }
    }

    fn table(
        &self,
        scan: &Scan,
        join: &Join,
        keys: &[Expr],
        run: &Run<'_>,
        context: &Context<'_>,
    ) -> Result<BTreeMap<Vec<u8>, Vec<Found>>> {
        let mut table: BTreeMap<Vec<u8>, Vec<Found>> = BTreeMap::new();
        for found in read(scan, &self.base, run, context)? {
            let env = found.clone().bind(&self.base, &join.alias);
            if let Some(key) = hash_key(keys, &env, context)? {
                table.entry(key).or_default().push(found);
            }
        }
        Ok(table)
    }

    fn extend(
        &mut self,
        join: &Join,
        left: Env,
        run: &Run<'_>,
        context: &Context<'_>,
    ) -> Result<()> {
        if let Strategy::Unnest(expr) = &join.strategy {
            let elements = eval(expr, &left, context)?;
            let elements = elements.as_array().unwrap_or_default();
            let place = position_name(&join.alias);
            self.ready.extend(elements.iter().enumerate().map(|(at, element)| {
                left.with(&place, Value::Int(at as i64)).with(&join.alias, element.clone())
            }));
            if elements.is_empty() && join.side == Side::Left {
                self.ready.push_back(left.with(&join.alias, Value::Missing));
            }
            return Ok(());
        }
        let mut nested = Vec::new();
        let mut matched = false;
        for found in self.candidates(join, &left, run, context)? {
            run.tick()?;
            let value = found.content.value().clone();
            let row = found.bind(&left, &join.alias);
            if holds(join, &row, context)? {
                matched = true;
                match join.kind {
                    JoinKind::Nest => nested.push(value),
                    _ => self.ready.push_back(row),
                }
            }
        }
        match join.kind {
            JoinKind::Nest if matched || join.side == Side::Left => {
                self.ready.push_back(left.with(&join.alias, Value::array(nested)));
            }
            JoinKind::Join if !matched && join.side == Side::Left => {
                self.ready.push_back(left.with(&join.alias, Value::Missing));
            }
            _ => {}
        }
        Ok(())
    }
}

impl Operator for JoinRows {
    fn next(&mut self, run: &Run<'_>, context: &Context<'_>) -> Result<Option<Env>> {
        let node = self.node.clone();
        let Node::Join(_, join) = &*node else { return Ok(None) };
        loop {
            if let Some(row) = self.ready.pop_front() {
                return Ok(Some(row));
            }
            if self.ended {
                return Ok(None);
            }
            if join.side == Side::Right {
                self.ended = true;
                self.right_join(join, run, context)?;
                continue;
            }
            run.tick()?;
            match self.left.next(run, context)? {
                Some(left) => self.extend(join, left, run, context)?,
                None => self.ended = true,
            }
        }
    }
}

fn holds(join: &Join, row: &Env, context: &Context<'_>) -> Result<bool> {
    join.condition.as_ref().map_or(Ok(true), |condition| Ok(eval(condition, row, context)?.truth()))
}

fn read(scan: &Scan, env: &Env, run: &Run<'_>, context: &Context<'_>) -> Result<Vec<Found>> {
    let mut rows = TermRows::new();
    let mut all = Vec::new();
    while let Some(found) = rows.next(scan, env, run, context)? {
        run.charge(found.size_bytes())?;
        all.push(found);
    }
    Ok(all)
}

/// Returns bytes that are equal if and only if all values are equal; `None` if a value is NULL or
/// MISSING, which equals nothing.
fn hash_key(exprs: &[Expr], env: &Env, context: &Context<'_>) -> Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    for expr in exprs {
        let value = eval(expr, env, context)?;
        if !value.is_known() {
            return Ok(None);
        }
        key::encode(&value, false, &mut bytes);
    }
    Ok(Some(bytes))
}
