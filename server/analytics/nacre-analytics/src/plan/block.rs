//! A query block: FROM, WHERE, GROUP BY, SELECT, ORDER BY.

use super::evaluate::Mode;
use super::expr::comparable;
use super::join::{self, Condition, Joined};
use super::relation::{Form, Level, Relation, Ty, Wanted};
use super::scope::{
    Input, Leaf, Resolved, Scope, Typed, Variable, column, conjuncts, count_of, null, path_of,
};
use super::{Builder, Out, Stop, unsupported};
use crate::names::parts_of;
use datafusion::arrow::datatypes::DataType;
use datafusion::functions_aggregate::expr_fn::{avg, count, count_distinct, max, min, sum};
use datafusion::logical_expr::{
    Expr, JoinType, LogicalPlan, LogicalPlanBuilder, SortExpr, cast, lit,
};
use nacre_sql::ast::{
    self, Aggregate, Binary, Block, Body, Expr as Sql, FromTerm, JoinKind, On, OrderTerm, Path,
    Projection, Select, Side, Source, Term, Unary,
};
use nacre_sql::{Name, Value, any_in, each_child};
use std::collections::BTreeSet;

/// Sums of integers of at most this magnitude fit into 64 bits for 2^40 rows.
const SUM_MAGNITUDE_MAX: u64 = 1 << 22;

/// The magnitude of a sum of wide numbers that is converted to 64 bits afterwards.
const WIDE: u64 = i64::MAX as u64;

type Planned<T> = Result<T, Stop>;

/// A query with a plan.
pub struct PlannedSelect {
    pub plan: LogicalPlan,
    pub out: Out,
    pub rows: f64,
}

/// FROM and WHERE of a block.
struct Read {
    scope: Scope,
    joined: Joined,
    /// Conditions on the surrounding query.
    outer: Vec<Condition>,
}

/// The selected columns with their expressions.
type Selected = Vec<(String, Expr)>;

impl Builder<'_> {
    /// Plans a query.
    ///
    /// # Errors
    /// The reason, if it has no plan.
    pub fn select(&mut self, select: &Select, outer: &Scope) -> Planned<PlannedSelect> {
        let before = self.with.len();
        for with in &select.with {
            match &with.expr {
                Sql::Subquery(inner) if !with.recursive => {
                    self.with.push((with.alias.clone(), (**inner).clone()));
                }
                _ => return unsupported("WITH of something else than a query"),
            }
        }
        let planned = match &select.body {
            Body::Block(block) => self.block(block, select, outer),
            Body::Nested(inner)
                if select.order.is_empty() && select.limit.is_none() && select.offset.is_none() =>
            {
                self.select(inner, outer)
            }
            _ => unsupported("UNION, INTERSECT or EXCEPT"),
        };
        self.with.truncate(before);
        planned
    }

    fn block(&mut self, block: &Block, select: &Select, outer: &Scope) -> Planned<PlannedSelect> {
        if !block.windows.is_empty() {
            return unsupported("WINDOW");
        }
        let block = &without_lets(block)?;
        let around = std::mem::replace(&mut self.order, select.order.clone());
        let read = self.read(block, outer);
        self.order = around;
        let Read { scope, joined, outer } = read?;
        if !outer.is_empty() {
            return unsupported("a subquery that depends on what is around it");
        }
        let (scope, joined) = self.group(block, select, scope, joined)?;
        self.project(block, select, &scope, joined)
    }

    /// Plans FROM and WHERE.
    fn read(&mut self, block: &Block, outer: &Scope) -> Planned<Read> {
        let Some(from) = &block.from else { return unsupported("a query without FROM") };
        let mut scope = Scope { variables: outer.variables.clone(), ..Scope::default() };
        let outer_inputs: BTreeSet<usize> = (0..self.inputs.all.len()).collect();
        let mut own: Vec<usize> = Vec::new();
        own.extend(self.term(&from.first, &mut scope)?);
        let mut ons: Vec<(usize, Sql)> = Vec::new();
        let mut lefts: Vec<(usize, Sql)> = Vec::new();
        for term in &from.joins {
            if term.kind == JoinKind::Nest || term.side == Side::Right {
                return unsupported("NEST or RIGHT JOIN");
            }
            let is_left = term.side == Side::Left;
            let added = self.term(&term.term, &mut scope)?;
            match (&term.on, is_left, added) {
                (On::Nothing, false, added) => own.extend(added),
                (On::Condition(on), false, Some(input)) => {
                    own.push(input);
                    ons.push((lefts.len(), on.clone()));
                }
                (On::Condition(on), true, Some(input)) => lefts.push((input, on.clone())),
                _ => return unsupported("this kind of join"),
            }
        }
        if !lefts.is_empty() && !ons.iter().all(|(at, _)| *at == 0) {
            return unsupported("an inner join behind a left join");
        }
        let mut parts = Vec::new();
        for (_, on) in &ons {
            conjuncts(on, &mut parts);
        }
        if let Some(condition) = &block.condition {
            conjuncts(condition, &mut parts);
        }
        // The ON condition of a left join sees the rows of its right side before the join.
        let mut left_conditions = Vec::new();
        for (input, on) in &lefts {
            let mut parts = Vec::new();
            conjuncts(on, &mut parts);
            left_conditions.push(
                parts
                    .iter()
                    .map(|part| self.predicate(part, &scope))
                    .collect::<Planned<Vec<_>>>()?,
            );
            // Later joins and WHERE see rows in which this side is missing.
            self.inputs.nullable.insert(*input);
        }
        let (mut conditions, mut subqueries) = (Vec::new(), Vec::new());
        for part in &parts {
            match self.subquery(part, &scope)? {
                Some(subquery) => subqueries.push(subquery),
                None => conditions.push(self.predicate(part, &scope)?),
            }
        }
        let mut outer = Vec::new();
        conditions.retain(|condition| {
            let is_outer = !condition.inputs.is_disjoint(&outer_inputs);
            if is_outer {
                outer.push(condition.clone());
            }
            !is_outer
        });
        // The columns of later expressions are not known yet: tables are created once they are.
        let joined = Pending {
            own,
            lefts: lefts.into_iter().map(|(input, _)| input).zip(left_conditions).collect(),
            conditions,
            subqueries,
        };
        self.mention(block, &scope)?;
        let joined = self.join(joined)?;
        Ok(Read { scope, joined, outer })
    }

    /// Requests the columns for everything above FROM and WHERE, so that the tables have them.
    fn mention(&mut self, block: &Block, scope: &Scope) -> Planned<()> {
        let mut mentioned = Vec::new();
        if let Some(group) = &block.group {
            mentioned.extend(group.by.iter().map(|(expr, _)| expr.clone()));
            mentioned.extend(group.having.clone());
        }
        match &block.projection {
            Projection::Raw(expr, _) => mentioned.push(expr.clone()),
            Projection::Terms(terms, _) => {
                for term in terms {
                    match term {
                        Term::Star => {
                            mentioned.extend(own_variables(block).into_iter().map(Sql::Ident))
                        }
                        Term::StarOf(expr) | Term::Expr(expr, _) => mentioned.push(expr.clone()),
                    }
                }
            }
        }
        mentioned.extend(self.order.iter().map(|term| term.expr.clone()));
        mentioned.iter().try_for_each(|expr| self.mention_paths(expr, scope))
    }

    fn mention_paths(&mut self, expr: &Sql, scope: &Scope) -> Planned<()> {
        if let Some((name, path)) = path_of(expr) {
            let Some(variable) = scope.variable(name).cloned() else { return Ok(()) };
            let resolved = self.inputs.resolve(name, &variable, &path);
            let needs_text = match resolved {
                Some(Resolved::Typed(typed)) => typed.is_mixed(),
                _ => false,
            };
            if needs_text && let Variable::Row(input, level) = variable {
                self.inputs.json(name, input, level, &path);
            }
            return Ok(());
        }
        if let Sql::Field(of, name, false) = expr
            && let (Sql::Call(function, arguments), "id") = (&**of, &**name)
            && let ("META", [Sql::Ident(variable)]) = (function.name, &arguments[..])
            && let Some(Variable::Row(input, 0)) = scope.variable(variable)
        {
            let wanted = Wanted { level: 0, path: Vec::new(), form: Form::Id };
            self.inputs.want(*input, &format!("{variable}#id"), wanted);
            return Ok(());
        }
        if matches!(expr, Sql::Subquery(_)) {
            return Ok(());
        }
        let mut outcome = Ok(());
        let walked = each_child(&mut expr.clone(), &mut |child| {
            if outcome.is_ok() {
                outcome = self.mention_paths(child, scope);
            }
            Ok(())
        });
        walked.map_err(|error| Stop::Unsupported(error.message))?;
        outcome
    }

    /// Plans a term of FROM: returns its input, unless it is an array of another term.
    fn term(&mut self, term: &FromTerm, scope: &mut Scope) -> Planned<Option<usize>> {
        if term.hints.keys.is_some() {
            return unsupported("USE KEYS");
        }
        let mut own = None;
        let variable = match &term.source {
            Source::Keyspace(path) => {
                let input = self.relation(path)?;
                own = Some(input);
                Variable::Row(input, 0)
            }
            Source::Expr(Sql::Subquery(select)) => {
                let (input, variable) = self.derived(select, scope)?;
                own = Some(input);
                variable
            }
            Source::Expr(Sql::Ident(name)) if scope.variable(name).is_none() => {
                let Some(at) = self.with.iter().rposition(|(alias, _)| alias == name) else {
                    return unsupported(format!("FROM {name}"));
                };
                // A query of WITH sees those before it.
                let after = self.with.split_off(at);
                let derived = self.derived(&after[0].1, &Scope::default());
                self.with.extend(after);
                let (input, variable) = derived?;
                own = Some(input);
                variable
            }
            Source::Expr(expr) => self.unnest(expr, scope)?,
        };
        scope.variables.insert(0, (term.alias.clone(), variable));
        Ok(own)
    }

    fn relation(&mut self, path: &Path) -> Planned<usize> {
        let name = parts_of(path).map(|(scope, name)| (scope.to_owned(), name.to_owned()));
        let Some(snapshot) = name.and_then(|name| self.snapshots.get(&name)) else {
            return unsupported(format!("{path} is no collection of analytics"));
        };
        let relation =
            Relation { snapshot: snapshot.clone(), levels: Vec::new(), columns: Vec::new() };
        self.inputs.all.push(Input::Relation(relation));
        Ok(self.inputs.all.len() - 1)
    }

    /// Plans a subquery in FROM.
    fn derived(&mut self, select: &Select, around: &Scope) -> Planned<(usize, Variable)> {
        let PlannedSelect { plan, out, rows } = self.select_apart(select, around)?;
        let input = self.inputs.all.len();
        for column in plan.schema().columns() {
            self.inputs.owners.insert(column.name.clone(), input);
        }
        self.inputs.all.push(Input::Plan(plan, rows));
        let variable = match out {
            Out::Leaf(leaf) => Variable::Value(input, leaf),
            Out::Object(fields) => {
                let field = |(name, out): (Name, Out)| match out {
                    Out::Leaf(leaf) => Ok((name, leaf)),
                    _ => unsupported("objects within the rows of a subquery"),
                };
                Variable::Fields(input, fields.into_iter().map(field).collect::<Planned<_>>()?)
            }
            Out::Fields(_) => return unsupported("v.* in a subquery"),
        };
        Ok((input, variable))
    }

    /// Plans a query that does not depend on the surrounding one.
    ///
    /// # Errors
    /// The reason, if it has no plan or depends on a surrounding variable.
    pub fn select_apart(&mut self, select: &Select, around: &Scope) -> Planned<PlannedSelect> {
        // A variable hides the query of WITH with the same name.
        let all = self.with.clone();
        self.with.retain(|(alias, _)| around.variable(alias).is_none());
        let planned = self.select(select, &Scope::default());
        self.with = all;
        planned
    }

    /// Plans the elements of an array of a variable.
    fn unnest(&mut self, expr: &Sql, scope: &Scope) -> Planned<Variable> {
        let Some((name, path)) = path_of(expr) else { return unsupported("FROM an expression") };
        let Some(Variable::Row(input, level)) = scope.variable(name).cloned() else {
            return unsupported(format!("FROM {expr}"));
        };
        if self.inputs.nullable.contains(&input) {
            return unsupported("an array on the right of a left join");
        }
        let Some(relation) = self.inputs.relation(input) else {
            return unsupported("FROM an array");
        };
        if !relation.can_unnest(level, &path) {
            return unsupported(format!("{expr} is not always an array"));
        }
        relation.levels.push(Level { parent: level, path });
        Ok(Variable::Row(input, relation.levels.len()))
    }

    /// Returns a condition with the inputs that it reads.
    fn predicate(&mut self, expr: &Sql, scope: &Scope) -> Planned<Condition> {
        let mut sides = None;
        if let Sql::Binary(Binary::Equal, a, b) = expr
            && let (Some(a), Some(b)) = (self.typed(a, scope)?, self.typed(b, scope)?)
        {
            let (reads_a, reads_b) = (self.inputs.of(&a.expr), self.inputs.of(&b.expr));
            if !reads_a.is_empty() && !reads_b.is_empty() && reads_a.is_disjoint(&reads_b) {
                sides = Some(Box::new([(a, reads_a), (b, reads_b)]));
            }
        }
        let expr = self.condition(expr, scope)?;
        Ok(Condition { inputs: self.inputs.of(&expr), expr, sides })
    }

    /// Plans a condition that is a subquery: EXISTS or IN, also negated.
    fn subquery(&mut self, expr: &Sql, scope: &Scope) -> Planned<Option<SemiJoin>> {
        match expr {
            Sql::Unary(Unary::Exists, of) => match &**of {
                Sql::Subquery(select) => self.exists(select, scope, JoinType::LeftSemi).map(Some),
                _ => Ok(None),
            },
            Sql::Unary(Unary::Not, of) => match &**of {
                Sql::Unary(Unary::Exists, of) => match &**of {
                    Sql::Subquery(select) => {
                        self.exists(select, scope, JoinType::LeftAnti).map(Some)
                    }
                    _ => Ok(None),
                },
                Sql::Binary(Binary::In, item, list) => match &**list {
                    Sql::Subquery(select) => {
                        self.member(item, select, scope, JoinType::LeftAnti).map(Some)
                    }
                    _ => Ok(None),
                },
                _ => Ok(None),
            },
            Sql::Binary(Binary::In, item, list) => match &**list {
                Sql::Subquery(select) => {
                    self.member(item, select, scope, JoinType::LeftSemi).map(Some)
                }
                _ => Ok(None),
            },
            _ => Ok(None),
        }
    }

    fn exists(&mut self, select: &Select, scope: &Scope, kind: JoinType) -> Planned<SemiJoin> {
        let Body::Block(block) = &select.body else { return unsupported("EXISTS of this query") };
        let is_plain = block.group.is_none()
            && select.limit.is_none()
            && select.offset.is_none()
            && select.with.is_empty()
            && block.windows.is_empty()
            && !selects_aggregate(block);
        if !is_plain {
            return unsupported("EXISTS of a query with groups or limits");
        }
        let mut block = without_lets(block)?;
        // The select list does not affect whether there are rows.
        block.projection = Projection::Raw(Sql::Literal(Value::Int(1)), None);
        let mut on = Vec::new();
        let mut inner = scope.clone();
        if let Some(from) = &mut block.from
            && let Source::Expr(expr) = &from.first.source
            && let Some((name, path)) = path_of(expr)
            && let Some(Variable::Row(input, level)) = scope.variable(name).cloned()
        {
            // An array of a surrounding row: reads the same documents again, with the array, joined by their
            // number.
            if level != 0 || self.inputs.nullable.contains(&input) {
                return unsupported("EXISTS over an array of an element");
            }
            let (own, again) = self.again(input)?;
            let alias: Name = format!("{name}#again").into();
            inner.variables.insert(0, (alias.clone(), Variable::Row(again, 0)));
            on.push(column(&own).eq(column(&self.row_number(again))));
            let path = path
                .iter()
                .fold(Sql::Ident(alias), |of, name| Sql::Field(Box::new(of), name.clone(), false));
            from.first.source = Source::Expr(path);
            let variable = self.unnest_source(&from.first.source, &inner)?;
            let mut scope = inner.clone();
            scope.variables.insert(0, (from.first.alias.clone(), variable));
            if !from.joins.is_empty() {
                return unsupported("EXISTS over an array that is joined");
            }
            return self.exists_over(&block, scope, again, on, kind);
        }
        let order = std::mem::take(&mut self.order);
        let read = self.read(&block, &inner);
        self.order = order;
        let Read { joined, outer, .. } = read?;
        on.extend(outer.into_iter().map(|condition| condition.expr));
        if on.is_empty() {
            return unsupported("EXISTS that depends on no row");
        }
        Ok(SemiJoin { right: Right::Joined(joined), on, kind, known: None })
    }

    fn unnest_source(&mut self, source: &Source, scope: &Scope) -> Planned<Variable> {
        match source {
            Source::Expr(expr) => self.unnest(expr, scope),
            Source::Keyspace(_) => unsupported("an array"),
        }
    }

    /// Plans EXISTS over an array, whose rows are those of the input `again`.
    fn exists_over(
        &mut self,
        block: &Block,
        scope: Scope,
        again: usize,
        mut on: Vec<Expr>,
        kind: JoinType,
    ) -> Planned<SemiJoin> {
        let mut parts = Vec::new();
        if let Some(condition) = &block.condition {
            conjuncts(condition, &mut parts);
        }
        let mut own = Vec::new();
        for part in &parts {
            if self.subquery(part, &scope)?.is_some() {
                return unsupported("a subquery in EXISTS over an array");
            }
            let condition = self.predicate(part, &scope)?;
            match condition.inputs.is_subset(&BTreeSet::from([again])) {
                true => own.push(condition),
                false => on.push(condition.expr),
            }
        }
        Ok(SemiJoin { right: Right::Input(again, own), on, kind, known: None })
    }

    /// Reads the documents of a relation again: returns the column with their number in the first, and the new
    /// input.
    fn again(&mut self, input: usize) -> Planned<(String, usize)> {
        let own = self.row_number(input);
        let Some(relation) = self.inputs.relation(input) else {
            return unsupported("EXISTS over a subquery");
        };
        let snapshot = relation.snapshot.clone();
        let relation = Relation { snapshot, levels: Vec::new(), columns: Vec::new() };
        self.inputs.all.push(Input::Relation(relation));
        Ok((own, self.inputs.all.len() - 1))
    }

    fn row_number(&mut self, input: usize) -> String {
        self.inputs.want(input, "#row", Wanted { level: 0, path: Vec::new(), form: Form::Row })
    }

    /// Plans `item IN (SELECT …)`.
    fn member(
        &mut self,
        item: &Sql,
        select: &Select,
        scope: &Scope,
        kind: JoinType,
    ) -> Planned<SemiJoin> {
        let Some(item) = self.typed(item, scope)? else {
            return unsupported("IN of a value of several types");
        };
        let PlannedSelect { plan, out, rows } = self.select_apart(select, scope)?;
        let Out::Leaf(leaf) = out else { return unsupported("IN a query of objects") };
        let Some(typed) = leaf.typed else {
            return unsupported("IN a query of values of several types");
        };
        if typed.ty != item.ty || item.ty.is_none() {
            return unsupported("IN a query of values of another type");
        }
        // NOT IN is unknown where a value is unknown, and an unknown among the rows makes it unknown for all values
        // that are not found.
        let is_anti = kind == JoinType::LeftAnti;
        if is_anti && (typed.null || typed.missing) {
            return unsupported("NOT IN a query that can have unknown values");
        }
        let known =
            (is_anti && (item.missing || item.null)).then(|| item.expr.clone().is_not_null());
        let found = Typed { expr: column(&leaf.column), ..typed };
        let on = vec![comparable(&item).eq(comparable(&found))];
        let joined = Joined { plan, inputs: BTreeSet::new(), rows };
        Ok(SemiJoin { right: Right::Joined(joined), on, kind, known })
    }

    /// Creates the tables and joins them.
    fn join(&mut self, pending: Pending) -> Planned<Joined> {
        let Pending { own, lefts, mut conditions, subqueries } = pending;
        let parts = own.iter().map(|input| join::read(&self.inputs, *input, self.parts));
        let mut joined = join::all(parts.collect::<Planned<Vec<_>>>()?, &mut conditions)?;
        for (input, on) in lefts {
            let right = join::read(&self.inputs, input, self.parts)?;
            let on = on.into_iter().map(|condition| condition.expr).collect();
            joined = join::keep(joined, right, JoinType::Left, on)?;
        }
        joined = join::filter(joined, &mut conditions)?;
        if !conditions.is_empty() {
            return unsupported("a condition on something that is not joined");
        }
        for SemiJoin { right, on, kind, known } in subqueries {
            let right = match right {
                Right::Joined(joined) => joined,
                Right::Input(input, mut conditions) => {
                    let read = join::read(&self.inputs, input, self.parts)?;
                    join::filter(read, &mut conditions)?
                }
            };
            if let Some(known) = known {
                joined.plan = LogicalPlanBuilder::from(joined.plan).filter(known)?.build()?;
            }
            joined = join::keep(joined, right, kind, on)?;
        }
        Ok(joined)
    }

    /// Plans GROUP BY and HAVING.
    fn group(
        &mut self,
        block: &Block,
        select: &Select,
        scope: Scope,
        joined: Joined,
    ) -> Planned<(Scope, Joined)> {
        let mut aggregates: Vec<Aggregate> = Vec::new();
        collect_aggregates(block, select, &mut aggregates);
        let group = match &block.group {
            None if aggregates.is_empty() => return Ok((scope, joined)),
            group => group.clone().unwrap_or_default(),
        };
        if group.name.is_some() || !group.letting.is_empty() {
            return unsupported("GROUP AS or LETTING");
        }
        let mut bound = Vec::new();
        let (mut keys, mut values, mut wide) = (Vec::new(), Vec::new(), Vec::new());
        let mut rows = 1.0_f64;
        for (expr, alias) in &group.by {
            let name = format!("group#{}", self.next_id());
            let typed = self.typed(expr, &scope)?.filter(|typed| !typed.is_mixed());
            let (key, typed) = match typed {
                Some(typed) => (comparable(&typed), Some(typed)),
                None => (self.evaluated(expr, &scope, Mode::Canonical)?, None),
            };
            rows *= typed.as_ref().and_then(|typed| typed.distinct).unwrap_or(joined.rows);
            keys.push(key.alias(&name));
            let leaf = Leaf { column: name, typed };
            bound.extend(alias.clone().map(|alias| (Sql::Ident(alias), leaf.clone())));
            if alias.is_none()
                && let Some(name) = expr.implicit_name()
            {
                bound.push((Sql::Ident(name), leaf.clone()));
            }
            bound.push((expr.clone(), leaf));
        }
        for aggregate in aggregates {
            let name = format!("aggregate#{}", self.next_id());
            let (expr, typed) = self.aggregate(&aggregate, &scope)?;
            if typed.ty == Some(Ty::Int) && &*aggregate.name == "sum" && typed.magnitude == WIDE {
                wide.push(name.clone());
            }
            values.push(expr.alias(&name));
            bound.push((
                Sql::Aggregate(Box::new(aggregate)),
                Leaf { column: name, typed: Some(typed) },
            ));
        }
        let mut plan = LogicalPlanBuilder::from(joined.plan).aggregate(keys, values)?.build()?;
        if !wide.is_empty() {
            let columns =
                plan.schema().columns().into_iter().map(|found| match wide.contains(&found.name) {
                    true => cast(column(&found.name), DataType::Int64).alias(&found.name),
                    false => column(&found.name),
                });
            plan = LogicalPlanBuilder::from(plan.clone())
                .project(columns.collect::<Vec<_>>())?
                .build()?;
        }
        let scope = Scope { bound, is_grouped: true, ..scope };
        if let Some(having) = &group.having {
            let mut parts = Vec::new();
            conjuncts(having, &mut parts);
            for part in &parts {
                let condition = self.condition(part, &scope)?;
                plan = LogicalPlanBuilder::from(plan).filter(condition)?.build()?;
            }
        }
        Ok((scope, Joined { plan, rows: rows.min(joined.rows), ..joined }))
    }

    fn aggregate(&mut self, aggregate: &Aggregate, scope: &Scope) -> Planned<(Expr, Typed)> {
        if aggregate.filter.is_some() || aggregate.over.is_some() {
            return unsupported("FILTER or OVER");
        }
        let name = &*aggregate.name;
        let counted = |expr: Expr| {
            (expr.clone(), Typed { magnitude: 1 << 40, ..Typed::known(expr, Ty::Int) })
        };
        let argument = match &aggregate.args[..] {
            [] if name == "count" => return Ok(counted(count(lit(1_i64)))),
            [argument] => argument,
            _ => return unsupported(format!("the aggregate {name}")),
        };
        let typed = match self.typed(argument, scope)? {
            Some(typed) => typed,
            // COUNT depends only on whether there is a value.
            None if name == "count" && !aggregate.distinct => {
                let is_known = Sql::Unary(Unary::IsKnown, Box::new(argument.clone()));
                let condition = self.evaluated(&is_known, scope, Mode::Condition)?;
                let one = datafusion::logical_expr::when(condition, lit(1_i64)).end()?;
                return Ok(counted(count(one)));
            }
            None => return unsupported(format!("{name} of values of several types")),
        };
        let is_number = matches!(typed.ty, Some(Ty::Int | Ty::Float));
        let result = |expr: Expr, ty| {
            let typed = Typed { null: true, distinct: None, ..Typed::known(expr.clone(), ty) };
            (expr, typed)
        };
        Ok(match (name, aggregate.distinct) {
            ("count", _) if typed.ty.is_none() => counted(count(null(Ty::Int))),
            // If no value is known, the sum is unknown, too.
            ("sum" | "avg" | "min" | "max", _) if typed.ty.is_none() => {
                let (expr, typed) = result(max(null(Ty::Int)), Ty::Int);
                (expr, Typed { magnitude: 0, ..typed })
            }
            ("count", false) => counted(count(typed.expr)),
            ("count", true) => counted(count_distinct(comparable(&typed))),
            ("min" | "max", _) if typed.ty.is_some() => {
                let ty = typed.ty.expect("it was just looked at");
                let expr = if name == "min" { min(typed.expr) } else { max(typed.expr) };
                let (expr, mut result) = result(expr, ty);
                result.magnitude = typed.magnitude;
                result.distinct = typed.distinct;
                (expr, result)
            }
            ("sum", false) if typed.ty == Some(Ty::Float) => result(sum(typed.expr), Ty::Float),
            ("sum", false) if typed.ty == Some(Ty::Int) && typed.magnitude <= SUM_MAGNITUDE_MAX => {
                result(sum(typed.expr), Ty::Int)
            }
            ("sum", false) if typed.ty == Some(Ty::Int) => {
                // The sum is exact, and is refused when it exceeds 64 bits.
                let wide = cast(typed.expr, DataType::Decimal128(19, 0));
                let (expr, typed) = result(sum(wide), Ty::Int);
                (expr, Typed { magnitude: WIDE, ..typed })
            }
            ("avg", false) if is_number && typed.is_exact() => {
                result(avg(cast(typed.expr, DataType::Float64)), Ty::Float)
            }
            _ => return unsupported(format!("the aggregate {name}, of these values")),
        })
    }

    /// Plans SELECT, ORDER BY and LIMIT.
    fn project(
        &mut self,
        block: &Block,
        select: &Select,
        scope: &Scope,
        joined: Joined,
    ) -> Planned<PlannedSelect> {
        let mut selected = Selected::new();
        let out = self.out_of_block(block, scope, &mut selected)?;
        if block.distinct && !select.order.is_empty() {
            return unsupported("DISTINCT with ORDER BY");
        }
        let mut keys = Vec::new();
        for term in &select.order {
            keys.push(self.order_key(term, scope, &mut selected)?);
        }
        let columns = selected.iter().map(|(name, expr)| expr.clone().alias(name));
        let mut builder =
            LogicalPlanBuilder::from(joined.plan).project(columns.collect::<Vec<_>>())?;
        if block.distinct {
            builder = builder.distinct()?;
        }
        let limit = select.limit.as_ref().map(count_of).transpose()?;
        let offset = select.offset.as_ref().map(count_of).transpose()?.unwrap_or(0);
        if !keys.is_empty() {
            builder = builder.sort(keys)?;
        }
        let mut rows = joined.rows;
        if limit.is_some() || offset > 0 {
            builder = builder.limit(offset, limit)?;
            rows = limit.map_or(rows, |limit| rows.min(limit as f64));
        }
        Ok(PlannedSelect { plan: builder.build()?, out, rows })
    }

    fn order_key(
        &mut self,
        term: &OrderTerm,
        scope: &Scope,
        selected: &mut Selected,
    ) -> Planned<SortExpr> {
        if term.nulls_last.is_some() {
            return unsupported("NULLS FIRST or LAST");
        }
        let typed = self.typed(&term.expr, scope)?.filter(|typed| !typed.is_mixed());
        let expr = match typed {
            Some(typed) => typed.expr,
            None => self.evaluated(&term.expr, scope, Mode::Key)?,
        };
        let name = match selected.iter().find(|(_, known)| *known == expr) {
            Some((name, _)) => name.clone(),
            None => {
                let name = format!("order#{}", self.next_id());
                selected.push((name.clone(), expr));
                name
            }
        };
        // Unknown values come before all others, and last in descending order.
        Ok(column(&name).sort(!term.descending, !term.descending))
    }

    fn out_of_block(
        &mut self,
        block: &Block,
        scope: &Scope,
        selected: &mut Selected,
    ) -> Planned<Out> {
        let terms = match &block.projection {
            Projection::Raw(expr, _) => return self.out(expr, scope, block.distinct, selected),
            Projection::Terms(_, excluded) if !excluded.is_empty() => {
                return unsupported("EXCLUDE");
            }
            Projection::Terms(terms, _) => terms,
        };
        if let [Term::StarOf(expr)] = &terms[..] {
            return self.fields_of(expr, scope, selected);
        }
        let mut fields = Vec::new();
        for (term, name) in terms.iter().zip(block.projection.names()) {
            match (term, name) {
                (Term::Expr(expr, _), Some(name)) => {
                    fields.push((name, self.out(expr, scope, block.distinct, selected)?));
                }
                (Term::Star, _) if !scope.is_grouped && !block.distinct => {
                    for name in own_variables(block) {
                        let out = self.out(&Sql::Ident(name.clone()), scope, false, selected)?;
                        fields.push((name, out));
                    }
                }
                _ => return unsupported("v.* beside other terms"),
            }
        }
        let mut names: Vec<&Name> = fields.iter().map(|(name, _)| name).collect();
        names.sort();
        match names.windows(2).any(|pair| pair[0] == pair[1]) {
            true => unsupported("two fields of one name"),
            false => Ok(Out::Object(fields)),
        }
    }

    /// Plans `v.*`.
    fn fields_of(&mut self, expr: &Sql, scope: &Scope, selected: &mut Selected) -> Planned<Out> {
        match self.out(expr, scope, false, selected)? {
            Out::Leaf(leaf) if leaf.typed.is_none() => Ok(Out::Fields(leaf)),
            Out::Object(fields) => Ok(Out::Object(fields)),
            _ => unsupported("v.* of a value"),
        }
    }

    /// Returns the value of an expression for a row.
    fn out(
        &mut self,
        expr: &Sql,
        scope: &Scope,
        is_distinct: bool,
        selected: &mut Selected,
    ) -> Planned<Out> {
        if scope.bound(expr).is_none() {
            if let Sql::Object(fields) = expr {
                let field = |(name, value): &(Sql, Sql)| match name {
                    Sql::Literal(Value::String(name)) => {
                        Ok((name.clone(), self.out(value, scope, is_distinct, selected)?))
                    }
                    _ => unsupported("an object whose names are computed"),
                };
                return Ok(Out::Object(fields.iter().map(field).collect::<Planned<_>>()?));
            }
            if let Sql::Ident(name) = expr
                && let Some(Variable::Fields(input, fields)) = scope.variable(name).cloned()
                && !scope.is_grouped
            {
                if self.inputs.nullable.contains(&input) {
                    return unsupported("the whole row of a left join");
                }
                let field = |(field, _): (Name, Leaf)| {
                    let path = Sql::Field(Box::new(expr.clone()), field.clone(), false);
                    Ok((field, self.out(&path, scope, is_distinct, selected)?))
                };
                return Ok(Out::Object(fields.into_iter().map(field).collect::<Planned<_>>()?));
            }
        }
        let typed = self.typed(expr, scope)?.filter(|typed| !typed.is_mixed());
        let (value, typed) = match typed {
            Some(typed) if is_distinct => (comparable(&typed), Some(typed)),
            Some(typed) => (typed.expr.clone(), Some(typed)),
            None => (self.text(expr, scope, is_distinct)?, None),
        };
        let name = format!("out#{}", self.next_id());
        selected.push((name.clone(), value));
        Ok(Out::Leaf(Leaf { column: name, typed }))
    }

    /// Returns an expression as JSON text; a path in its stored form.
    fn text(&mut self, expr: &Sql, scope: &Scope, is_distinct: bool) -> Planned<Expr> {
        if !is_distinct {
            match scope.bound(expr) {
                Some(Resolved::Json(column)) => return Ok(column),
                Some(Resolved::Typed(_)) => {}
                None => {
                    if let Some((name, path)) = path_of(expr)
                        && !scope.is_grouped
                        && let Some(Variable::Row(input, level)) = scope.variable(name).cloned()
                    {
                        return Ok(self.inputs.json(name, input, level, &path));
                    }
                }
            }
        }
        self.evaluated(expr, scope, if is_distinct { Mode::Canonical } else { Mode::Json })
    }
}

/// A join that only checks whether there is a partner.
struct SemiJoin {
    right: Right,
    on: Vec<Expr>,
    kind: JoinType,
    /// A condition on the left side before the join.
    known: Option<Expr>,
}

/// The right side of such a join.
enum Right {
    Joined(Joined),
    /// An input with its own conditions, whose table is created later.
    Input(usize, Vec<Condition>),
}

/// A join whose columns are known.
struct Pending {
    own: Vec<usize>,
    lefts: Vec<(usize, Vec<Condition>)>,
    conditions: Vec<Condition>,
    subqueries: Vec<SemiJoin>,
}

/// Returns the variables of the terms of FROM.
fn own_variables(block: &Block) -> Vec<Name> {
    let terms = block.from.iter();
    terms
        .flat_map(|from| {
            let joined = from.joins.iter().map(|join| join.term.alias.clone());
            std::iter::once(from.first.alias.clone()).chain(joined)
        })
        .collect()
}

/// Replaces the names of LET by their expressions.
fn without_lets(block: &Block) -> Planned<Block> {
    let mut block = block.clone();
    let lets = std::mem::take(&mut block.lets);
    if lets.is_empty() {
        return Ok(block);
    }
    unsupported(format!("LET {}", lets[0].0))
}

/// Returns true if SELECT has an aggregate.
pub fn selects_aggregate(block: &Block) -> bool {
    let is_aggregate = |expr: &Sql| matches!(expr, Sql::Aggregate(_));
    match &block.projection {
        Projection::Raw(expr, _) => any_in(expr, &is_aggregate),
        Projection::Terms(terms, _) => terms.iter().any(|term| match term {
            Term::Star => false,
            Term::StarOf(expr) | Term::Expr(expr, _) => any_in(expr, &is_aggregate),
        }),
    }
}

/// Collects the distinct aggregates above FROM and WHERE.
pub fn collect_aggregates(block: &Block, select: &Select, into: &mut Vec<Aggregate>) {
    let mut add = |expr: &Sql| collect(expr, into);
    if let Some(having) = block.group.as_ref().and_then(|group| group.having.as_ref()) {
        add(having);
    }
    match &block.projection {
        Projection::Raw(expr, _) => add(expr),
        Projection::Terms(terms, _) => terms.iter().for_each(|term| match term {
            Term::Star => {}
            Term::StarOf(expr) | Term::Expr(expr, _) => add(expr),
        }),
    }
    select.order.iter().for_each(|term| add(&term.expr));
}

fn collect(expr: &Sql, into: &mut Vec<ast::Aggregate>) {
    match expr {
        Sql::Aggregate(aggregate) => {
            if !into.contains(aggregate) {
                into.push((**aggregate).clone());
            }
        }
        Sql::Subquery(_) => {}
        other => {
            let walked = each_child(&mut other.clone(), &mut |child| {
                collect(child, into);
                Ok(())
            });
            debug_assert!(walked.is_ok(), "collecting refuses nothing");
        }
    }
}
