//! Splits a query whose documents are in several processes.
//!
//! ```text
//! SELECT o.w, SUM(l.n) FROM orders o, o.lines l WHERE o.d < 'x' GROUP BY o.w
//!   each process   SELECT o.w AS k0, SUM(l.n) AS a0 FROM orders o, o.lines l WHERE o.d < 'x' GROUP BY o.w
//!   then           SELECT p.k0 AS w, SUM(p.a0) FROM p GROUP BY p.k0
//!
//! SELECT c.n, i.t FROM customers c, items i WHERE c.i = i.id AND c.n > 7
//!   each process   SELECT VALUE {"i": c.i, "n": c.n} FROM customers c WHERE c.n > 7     and likewise for items
//!   then           the query itself, over these documents
//! ```
//!
//! *Invariant:* the second form is right for every query: it leaves out only fields that the query does not name, and documents
//! for which a condition of WHERE is not true.

use super::block::collect_aggregates;
use super::scope::{conjuncts, path_of};
use super::substituted;
use crate::names::parts_of;
use nacre_query::Settings;
use nacre_sql::ast::{
    Aggregate, Binary, Block, Body, Chain, Expr as Sql, From as FromClause, FromTerm, Group, Hints,
    JoinKind, On, Path, Projection, Select, Side, Source, Term,
};
use nacre_sql::{Name, Scope as Names, Value, any_in, each_child, each_in_select, resolve_select};
use std::collections::{BTreeMap, BTreeSet};

/// Scope and name of the rows of the processes, in the last step.
pub const PARTIAL: (&str, &str) = ("#processes", "#partial");
/// The variable of these rows, which users cannot write without quotes.
const ROW: &str = "#row";

/// The part of a query that each process runs over its documents of one collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Scope and name of the collection.
    pub collection: (String, String),
    /// A query whose names are resolved; `None` for all documents with their metadata.
    pub statement: Option<String>,
}

impl Fragment {
    /// Returns the fragment that reads everything of a collection.
    pub fn whole(collection: &(String, String)) -> Fragment {
        Fragment { collection: collection.clone(), statement: None }
    }
}

/// A query in two steps.
#[derive(Debug)]
pub struct Split {
    /// Groups that each process computes, and the query that combines them; `None` if the query has no such form.
    pub groups: Option<(Fragment, Box<Select>)>,
    /// The documents that the query needs, by collection.
    pub documents: Vec<Fragment>,
}

/// Splits a query whose collections are resolved. `used` are the collections.
pub fn split(select: &Select, used: &BTreeSet<(String, String)>, settings: &Settings) -> Split {
    let resolved = substituted(select, settings).ok().and_then(|mut select| {
        resolve_select(&mut select, &Names::new()).ok()?;
        Some(select)
    });
    let Some(resolved) = resolved else {
        return Split { groups: None, documents: used.iter().map(Fragment::whole).collect() };
    };
    let uses = Uses::of(&resolved);
    let documents = used.iter().map(|collection| uses.fragment(collection)).collect();
    Split { groups: groups(&resolved, &uses), documents }
}

/// Calls `visit` for each block of a query, and of the queries in it.
fn blocks_in(select: &mut Select, visit: &mut dyn FnMut(&Block)) {
    blocks_in_body(&mut select.body, visit);
    let walked = each_in_select(select, &mut |expr| {
        blocks_in_expr(expr, &mut *visit);
        Ok(())
    });
    debug_assert!(walked.is_ok(), "nothing is refused");
}

/// Calls `visit` for the blocks of the body itself; expressions are visited separately.
fn blocks_in_body(body: &mut Body, visit: &mut dyn FnMut(&Block)) {
    match body {
        Body::Block(block) => visit(block),
        Body::Union(_, branches) => {
            branches.iter_mut().for_each(|branch| blocks_in_body(branch, &mut *visit));
        }
        Body::Set(_, _, left, right) => {
            blocks_in_body(left, &mut *visit);
            blocks_in_body(right, &mut *visit);
        }
        Body::Nested(select) => blocks_in_body(&mut select.body, visit),
    }
}

fn blocks_in_expr(expr: &mut Sql, visit: &mut dyn FnMut(&Block)) {
    if let Sql::Subquery(select) = expr {
        return blocks_in(select, visit);
    }
    let walked = each_child(expr, &mut |child| {
        blocks_in_expr(child, &mut *visit);
        Ok(())
    });
    debug_assert!(walked.is_ok(), "nothing is refused");
}

/// The use of documents in a query.
#[derive(Debug, Default)]
struct Uses {
    /// The variables of each collection, one for each term of FROM.
    variables: BTreeMap<(String, String), Vec<Name>>,
    /// The fields of each variable; `None` if its whole value is used.
    fields: BTreeMap<Name, Option<BTreeSet<Name>>>,
    /// Conditions that read only the documents of a collection.
    conditions: BTreeMap<(String, String), Vec<Sql>>,
    /// True if whole documents are used without their variable.
    needs_documents: bool,
    /// True if metadata is used.
    needs_metadata: bool,
    /// True if equal documents may give different results.
    varies: bool,
}

impl Uses {
    fn of(select: &Select) -> Uses {
        let mut uses = Uses::default();
        let mut select = select.clone();
        blocks_in(&mut select, &mut |block| uses.block(block));
        let walked = each_in_select(&mut select, &mut |expr| {
            uses.expr(expr);
            Ok(())
        });
        debug_assert!(walked.is_ok(), "nothing is refused");
        uses
    }

    fn block(&mut self, block: &Block) {
        let is_star = |term: &Term| matches!(term, Term::Star);
        self.needs_documents |= match &block.projection {
            Projection::Raw(..) => false,
            Projection::Terms(terms, excluded) => terms.iter().any(is_star) || !excluded.is_empty(),
        };
        self.needs_documents |= block.group.as_ref().is_some_and(|group| group.name.is_some());
        let Some(from) = &block.from else { return };
        let mut parts = Vec::new();
        if let Some(condition) = &block.condition {
            conjuncts(condition, &mut parts);
        }
        // A left join keeps rows without a partner, and WHERE sees them.
        let is_inner =
            from.joins.iter().all(|join| join.side == Side::Inner && join.kind != JoinKind::Nest);
        let by_key = |on: &On| matches!(on, On::Keys(_) | On::KeyFor(..));
        self.needs_metadata |= from.joins.iter().any(|join| by_key(&join.on));
        for term in std::iter::once(&from.first).chain(from.joins.iter().map(|join| &join.term)) {
            self.needs_metadata |= term.hints.keys.is_some();
            let Source::Keyspace(path) = &term.source else { continue };
            let Some((scope, name)) = parts_of(path) else { continue };
            let collection = (scope.to_owned(), name.to_owned());
            if is_inner {
                let own = parts.iter().filter(|part| reads_only(part, &term.alias)).cloned();
                self.conditions.entry(collection.clone()).or_default().extend(own);
            }
            self.variables.entry(collection).or_default().push(term.alias.clone());
        }
    }

    fn expr(&mut self, expr: &mut Sql) {
        match expr {
            Sql::Ident(name) => {
                self.fields.insert(name.clone(), None);
                return;
            }
            Sql::Itself => self.needs_documents = true,
            Sql::Field(of, field, false) => {
                if let Sql::Ident(name) = &**of {
                    let fields = self.fields.entry(name.clone());
                    if let Some(fields) = fields.or_insert_with(|| Some(BTreeSet::new())) {
                        fields.insert(field.clone());
                    }
                    return;
                }
            }
            Sql::Call(function, _) => {
                self.needs_metadata |= function.name.contains("META");
                self.varies |= !function.is_deterministic();
            }
            _ => {}
        }
        let walked = each_child(expr, &mut |child| {
            self.expr(child);
            Ok(())
        });
        debug_assert!(walked.is_ok(), "nothing is refused");
    }

    /// Returns the documents that the query needs of a collection.
    fn fragment(&self, collection: &(String, String)) -> Fragment {
        let variables = self.variables.get(collection).map(Vec::as_slice).unwrap_or_default();
        let (Some(variable), false) = (variables.first(), self.needs_metadata) else {
            return Fragment::whole(collection);
        };
        let mut fields = (!self.needs_documents).then(BTreeSet::new);
        for variable in variables {
            match (self.fields.get(variable), &mut fields) {
                (Some(Some(own)), Some(fields)) => fields.extend(own.iter().cloned()),
                (Some(None), fields) => *fields = None,
                _ => {}
            }
        }
        let of_variable = |name: &Name| {
            let value = Sql::Field(Box::new(Sql::Ident(variable.clone())), name.clone(), false);
            (Sql::Literal(Value::String(name.clone())), value)
        };
        let value = match &fields {
            None => Sql::Ident(variable.clone()),
            // Only the number of documents matters.
            Some(fields) if fields.is_empty() => Sql::Literal(Value::Int(1)),
            Some(fields) => Sql::Object(fields.iter().map(of_variable).collect()),
        };
        // Another use of the same documents may need those that the condition excludes.
        let conditions = match (variables, self.conditions.get(collection)) {
            ([_], Some(conditions)) => conditions.clone(),
            _ => Vec::new(),
        };
        let block = Block {
            projection: Projection::Raw(value, None),
            from: Some(from_collection(collection, variable)),
            condition: all_of(conditions),
            ..Block::default()
        };
        let statement = Some(select_of(block).to_string());
        Fragment { collection: collection.clone(), statement }
    }
}

/// Returns true if a condition reads the fields of this variable and nothing else, so that it can be checked elsewhere.
fn reads_only(condition: &Sql, variable: &Name) -> bool {
    let is_variable = |expr: &Sql| matches!(expr, Sql::Ident(name) if name == variable);
    let is_other = |expr: &Sql| match expr {
        Sql::Ident(name) => name != variable,
        Sql::Call(function, _) => !function.is_deterministic(),
        Sql::Subquery(_)
        | Sql::Aggregate(_)
        | Sql::Itself
        | Sql::Positional(_)
        | Sql::Named(_)
        | Sql::Bound(_)
        | Sql::UserCall(..) => true,
        _ => false,
    };
    any_in(condition, &is_variable) && !any_in(condition, &is_other)
}

fn all_of(mut conditions: Vec<Sql>) -> Option<Sql> {
    match conditions.len() {
        0 | 1 => conditions.pop(),
        _ => Some(Sql::Chain(Chain::And, conditions)),
    }
}

fn from_collection((scope, name): &(String, String), variable: &Name) -> FromClause {
    let parts = vec![scope.as_str().into(), crate::names::BETWEEN.into(), name.as_str().into()];
    let source = Source::Keyspace(Path { namespace: None, parts });
    let first = FromTerm { source, alias: variable.clone(), hints: Hints::default() };
    FromClause { first, joins: Vec::new() }
}

fn select_of(block: Block) -> Select {
    Select {
        with: Vec::new(),
        body: Body::Block(Box::new(block)),
        order: Vec::new(),
        limit: None,
        offset: None,
    }
}

/// Returns the fragment that computes groups, and the query that combines them, for a query over one collection and the arrays of
/// its documents.
fn groups(select: &Select, uses: &Uses) -> Option<(Fragment, Box<Select>)> {
    let Body::Block(block) = &select.body else { return None };
    let from = block.from.as_ref()?;
    let Source::Keyspace(path) = &from.first.source else { return None };
    let collection = parts_of(path).map(|(scope, name)| (scope.to_owned(), name.to_owned()))?;
    let uses_of_collections: usize = uses.variables.values().map(Vec::len).sum();
    let is_plain = select.with.is_empty()
        && block.windows.is_empty()
        && block.lets.is_empty()
        && block
            .group
            .as_ref()
            .is_none_or(|group| group.name.is_none() && group.letting.is_empty());
    if !is_plain || uses_of_collections != 1 || uses.varies || !joins_only_arrays(from) {
        return None;
    }
    let mut aggregates = Vec::new();
    collect_aggregates(block, select, &mut aggregates);
    if !aggregates.iter().all(can_be_combined) {
        return None;
    }
    let keys = block.group.as_ref().map(|group| group.by.as_slice()).unwrap_or_default();
    let (mut terms, mut replacements) = (Vec::new(), Vec::new());
    for (at, (key, alias)) in keys.iter().enumerate() {
        let name: Name = format!("k{at}").into();
        terms.push(Term::Expr(key.clone(), Some(name.clone())));
        replacements.push((key.clone(), of_row(&name)));
        replacements.extend(alias.clone().map(|alias| (Sql::Ident(alias), of_row(&name))));
    }
    for (at, aggregate) in aggregates.into_iter().enumerate() {
        let combined = combined(at, &aggregate, &mut terms);
        replacements.push((Sql::Aggregate(Box::new(aggregate)), combined));
    }
    if terms.is_empty() {
        return None;
    }
    let key_count = keys.len();
    let partial = Block {
        projection: Projection::Terms(terms, Vec::new()),
        from: block.from.clone(),
        condition: block.condition.clone(),
        group: (key_count > 0).then(|| Group {
            by: keys.iter().map(|(key, _)| (key.clone(), None)).collect(),
            ..Group::default()
        }),
        ..Block::default()
    };
    let last = combining(select, block, &replacements, key_count)?;
    let fragment = Fragment { collection, statement: Some(select_of(partial).to_string()) };
    Some((fragment, Box::new(last)))
}

/// Returns true if all terms after the first one are arrays of earlier ones.
fn joins_only_arrays(from: &FromClause) -> bool {
    let mut variables = vec![&from.first.alias];
    from.joins.iter().all(|join| {
        let Source::Expr(array) = &join.term.source else { return false };
        let is_array = join.kind != JoinKind::Nest
            && join.side == Side::Inner
            && join.on == On::Nothing
            && path_of(array).is_some_and(|(variable, _)| variables.contains(&variable));
        variables.push(&join.term.alias);
        is_array
    })
}

/// Returns true if the values of an aggregate in several processes give its value over all documents.
fn can_be_combined(aggregate: &Aggregate) -> bool {
    let is_known = match &aggregate.args[..] {
        [] => &*aggregate.name == "count",
        [_] => matches!(&*aggregate.name, "count" | "sum" | "avg" | "min" | "max"),
        _ => false,
    };
    is_known && !aggregate.distinct && aggregate.filter.is_none() && aggregate.over.is_none()
}

/// Adds the values that each process computes for an aggregate, and returns the expression that combines them.
fn combined(at: usize, aggregate: &Aggregate, terms: &mut Vec<Term>) -> Sql {
    let mut add = |suffix: &str, aggregate: Aggregate| {
        let name: Name = format!("a{at}{suffix}").into();
        terms.push(Term::Expr(Sql::Aggregate(Box::new(aggregate)), Some(name.clone())));
        of_row(&name)
    };
    match (&*aggregate.name, &aggregate.args[..]) {
        ("avg", [value]) => {
            // AVG ignores values that are not numbers. Adding 0 to them gives NULL, which COUNT ignores.
            let zero = (Binary::Add, Sql::Literal(Value::Int(0)));
            let number = Sql::Fold(Box::new(value.clone()), vec![zero]);
            let sum = add("", call("sum", value.clone()));
            let count = add("n", call("count", number));
            let [sum, count] =
                [sum, count].map(|value| Sql::Aggregate(Box::new(call("sum", value))));
            Sql::Fold(Box::new(sum), vec![(Binary::Divide, count)])
        }
        (name, _) => {
            let name = if name == "count" { "sum" } else { name };
            let value = add("", aggregate.clone());
            Sql::Aggregate(Box::new(call(name, value)))
        }
    }
}

fn call(name: &str, argument: Sql) -> Aggregate {
    Aggregate {
        name: name.into(),
        args: vec![argument],
        distinct: false,
        filter: None,
        over: None,
        from_last: false,
        ignore_nulls: false,
    }
}

/// Returns a field of the row of a process.
fn of_row(name: &Name) -> Sql {
    Sql::Field(Box::new(Sql::Ident(ROW.into())), name.clone(), false)
}

/// Returns the query that combines the groups of the processes.
fn combining(
    select: &Select,
    block: &Block,
    replacements: &[(Sql, Sql)],
    key_count: usize,
) -> Option<Select> {
    let projection = match &block.projection {
        Projection::Raw(expr, alias) => {
            Projection::Raw(replaced(expr, replacements)?, alias.clone())
        }
        Projection::Terms(terms, excluded) if excluded.is_empty() => {
            let named = terms.iter().zip(block.projection.names());
            let terms = named.map(|(term, name)| match term {
                Term::Expr(expr, _) => Some(Term::Expr(replaced(expr, replacements)?, name)),
                Term::Star | Term::StarOf(_) => None,
            });
            Projection::Terms(terms.collect::<Option<_>>()?, Vec::new())
        }
        Projection::Terms(..) => return None,
    };
    let having = match block.group.as_ref().and_then(|group| group.having.as_ref()) {
        Some(having) => Some(replaced(having, replacements)?),
        None => None,
    };
    let by = (0..key_count).map(|at| (of_row(&format!("k{at}").into()), None)).collect();
    let mut order = select.order.clone();
    for term in &mut order {
        term.expr = replaced(&term.expr, replacements)?;
    }
    let has_group = key_count > 0 || having.is_some();
    let collection = (PARTIAL.0.to_owned(), PARTIAL.1.to_owned());
    let last = Block {
        distinct: block.distinct,
        projection,
        from: Some(from_collection(&collection, &ROW.into())),
        group: has_group.then(|| Group { by, having, ..Group::default() }),
        ..Block::default()
    };
    let (limit, offset) = (select.limit.clone(), select.offset.clone());
    Some(Select { order, limit, offset, ..select_of(last) })
}

/// Returns an expression over the rows of the processes; `None` if it reads something else.
fn replaced(expr: &Sql, replacements: &[(Sql, Sql)]) -> Option<Sql> {
    if let Some((_, to)) = replacements.iter().find(|(from, _)| from == expr) {
        return Some(to.clone());
    }
    if matches!(
        expr,
        Sql::Ident(_)
            | Sql::Itself
            | Sql::Aggregate(_)
            | Sql::Subquery(_)
            | Sql::Quantified(_)
            | Sql::Comprehension(_)
    ) {
        return None;
    }
    let (mut copy, mut is_replaced) = (expr.clone(), true);
    let walked = each_child(&mut copy, &mut |child| {
        match replaced(child, replacements) {
            Some(to) => *child = to,
            None => is_replaced = false,
        }
        Ok(())
    });
    (walked.is_ok() && is_replaced).then_some(copy)
}
