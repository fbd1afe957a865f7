//! Queries to plans: by rules, or by cost where there are statistics.
//!
//! A block becomes scan, joins, LET, filter, groups, windows, order, projection, DISTINCT and page, in this order.
//! Which index a term uses is decided in [`access`], what is asked of one in [`sarg`], what it covers in [`cover`], which order it
//! has in [`order`], whether documents are only passed on in [`passed`], the least and the greatest value by that in [`extreme`], and what
//! stays of expressions after GROUP BY in [`group`], groups that are made of index entries in [`pushed`], and whether the documents are the hits of a search in [`search`], [`flexible`] and [`nearest`]. Where keyspaces
//! have statistics, [`cost`] compares indexes and joins, and [`join_order`] puts the terms in order.

mod access;
mod attributes;
mod cost;
mod cover;
mod extreme;
mod flexible;
mod group;
mod join;
mod join_order;
mod nearest;
mod order;
mod passed;
mod pushed;
mod sarg;
mod search;

use self::access::{AccessChoice, TermNeeds};
pub use self::attributes::attributes_in;
use self::attributes::attributes_of;
use self::cover::Covered;
use self::join::LeftSide;
use crate::plan::{Node, Page, Project, Scan, ScanSource, SelectPlan, Strategy};
use crate::plan_context::PlanContext;
use nacre_cost::mentions;
use nacre_sql::ast::{
    Block, Body, Chain, Expr, FromTerm, JoinKind, OrderTerm, Over, Projection, Select, Side,
    Source, Window,
};
use nacre_sql::{Error, Name, PLAN, Result, Scope, Value, any_in, each_child, resolve_select};
use std::rc::Rc;

/// Plans a query whose names are resolved.
///
/// # Errors
/// If a keyspace does not exist or cannot be reached, or the query has no meaning, such as an aggregate in WHERE.
pub fn plan(select: &Select, context: &dyn PlanContext) -> Result<SelectPlan> {
    Ok(SelectPlan { root: plan_select(select, context)?, alone: stands_alone(select) })
}

/// Whether a query means the same wherever it stands.
fn stands_alone(select: &Select) -> bool {
    let bound = |expr: &Expr| {
        matches!(expr, Expr::Bound(_) | Expr::UserCall(..))
            || matches!(expr, Expr::Call(function, _) if !function.is_deterministic())
    };
    let mut copy = select.clone();
    let whole = Expr::Subquery(Box::new(select.clone()));
    resolve_select(&mut copy, &Scope::new()).is_ok() && copy == *select && !any_in(&whole, &bound)
}

fn plan_select(select: &Select, context: &dyn PlanContext) -> Result<Rc<Node>> {
    let page = Page { limit: select.limit.clone(), offset: select.offset.clone() };
    let root = match &select.body {
        Body::Block(block) => plan_block(block, &select.order, &page, context)?,
        body => {
            let mut root = plan_body(body, context)?;
            if !select.order.is_empty() {
                root = Rc::new(Node::Order(root, select.order.clone(), page.clone()));
            }
            paged(root, page)
        }
    };
    Ok(if select.with.is_empty() { root } else { Rc::new(Node::With(root, select.with.clone())) })
}

fn paged(root: Rc<Node>, page: Page) -> Rc<Node> {
    if page.limit.is_none() && page.offset.is_none() {
        root
    } else {
        Rc::new(Node::Page(root, page))
    }
}

fn plan_body(body: &Body, context: &dyn PlanContext) -> Result<Rc<Node>> {
    match body {
        Body::Block(block) => plan_block(block, &[], &Page::default(), context),
        Body::Nested(select) => plan_select(select, context),
        Body::Union(all, branches) => {
            let branches = branches.iter().map(|branch| plan_body(branch, context));
            Ok(Rc::new(Node::Union(*all, branches.collect::<Result<_>>()?)))
        }
        Body::Set(operator, all, left, right) => {
            let left = plan_body(left, context)?;
            Ok(Rc::new(Node::Set(*operator, *all, left, plan_body(right, context)?)))
        }
    }
}

/// Returns the operands of a condition that must all hold.
pub fn conjuncts(condition: Option<&Expr>) -> Vec<Expr> {
    match condition {
        None => Vec::new(),
        Some(Expr::Chain(Chain::And, operands)) => {
            operands.iter().flat_map(|operand| conjuncts(Some(operand))).collect()
        }
        // BETWEEN is two bounds, for indexes and joins to see.
        Some(Expr::Between(of, low, high)) => {
            let side = |operator, bound: &Expr| {
                Expr::Binary(operator, of.clone(), Box::new(bound.clone()))
            };
            vec![
                side(nacre_sql::ast::Binary::GreaterOrEqual, low),
                side(nacre_sql::ast::Binary::LessOrEqual, high),
            ]
        }
        Some(other) => vec![other.clone()],
    }
}

/// Puts what a named window is in the place of its name.
fn inline_windows(expr: &mut Expr, windows: &[(Name, Window)]) -> Result<()> {
    if let Expr::Aggregate(aggregate) = expr {
        let find = |name: &Name| {
            let found = windows.iter().find(|(other, _)| other == name);
            found
                .map(|(_, window)| window.clone())
                .ok_or_else(|| Error::new(PLAN, format!("Window {name} is not defined.")))
        };
        match &mut aggregate.over {
            Some(Over::Named(name)) => {
                aggregate.over = Some(Over::Window(based(find(name)?, windows)?))
            }
            Some(Over::Window(window)) => *window = based(window.clone(), windows)?,
            None => {}
        }
    }
    if matches!(expr, Expr::Subquery(_)) {
        return Ok(());
    }
    each_child(expr, &mut |child| inline_windows(child, windows))
}

/// A window with what it takes over from the one that it goes on from.
fn based(mut window: Window, windows: &[(Name, Window)]) -> Result<Window> {
    // A window can only go on from one that stands before it, so this ends after as many steps as there are.
    for _ in 0..=windows.len() {
        let Some(base) = window.base.take() else { return Ok(window) };
        let Some((_, base)) = windows.iter().find(|(name, _)| *name == base) else {
            return Err(Error::new(PLAN, format!("Window {base} is not defined.")));
        };
        if window.partition.is_empty() {
            window.partition = base.partition.clone();
        }
        if window.order.is_empty() {
            window.order = base.order.clone();
        }
        window.frame = window.frame.or_else(|| base.frame.clone());
        window.base = base.base.clone();
    }
    Err(Error::new(PLAN, "Windows go on from each other in a circle."))
}

/// The expressions of a block that are evaluated after its groups and windows.
fn each_output(
    projection: &mut Projection,
    order: &mut [OrderTerm],
    visit: &mut dyn FnMut(&mut Expr) -> Result<()>,
) -> Result<()> {
    match projection {
        Projection::Raw(expr, _) => visit(expr)?,
        Projection::Terms(terms, _) => {
            for term in terms {
                match term {
                    nacre_sql::ast::Term::Star => {}
                    nacre_sql::ast::Term::StarOf(expr) | nacre_sql::ast::Term::Expr(expr, _) => {
                        visit(expr)?
                    }
                }
            }
        }
    }
    order.iter_mut().try_for_each(|term| visit(&mut term.expr))
}

fn plan_block(
    block: &Block,
    order: &[OrderTerm],
    page: &Page,
    context: &dyn PlanContext,
) -> Result<Rc<Node>> {
    let mut block = block.clone();
    let mut order = order.to_vec();
    name_terms(&mut block.projection);
    if block.condition == Some(Expr::Literal(Value::Bool(true))) {
        block.condition = None;
    }
    let windows = std::mem::take(&mut block.windows);
    each_output(&mut block.projection, &mut order, &mut |expr| inline_windows(expr, &windows))?;
    if let Some(count) = group::count_of_keyspace(&block, &order, context)? {
        return Ok(paged(count, page.clone()));
    }
    if let Some(extreme) = extreme::plan_extreme(&block, &order, page, context)? {
        return Ok(extreme);
    }
    let mut sorted = false;
    let mut root = Rc::new(Node::Dummy);
    let mut star: Vec<Name> = Vec::new();
    if block.from.is_some() {
        let from = block.from.as_mut().expect("checked right above");
        star.push(from.first.alias.clone());
        star.extend(from.joins.iter().map(|join| join.term.alias.clone()));
        join::turn_right_join(from);
        join_order::arrange(&mut block, &order, page, context)?;
        root = plan_from(&mut block, &mut order, page, &mut sorted, context)?;
    }
    if !block.lets.is_empty() {
        root = Rc::new(Node::Let(root, block.lets.clone()));
        star.extend(block.lets.iter().map(|(name, _)| name.clone()));
    }
    if let Some(condition) = &block.condition {
        root = Rc::new(Node::Filter(root, condition.clone()));
    }
    root = group::plan_groups(root, &mut block, &mut order, &mut star)?;
    root = group::plan_windows(root, &mut block.projection, &mut order)?;
    if !order.is_empty() && !sorted {
        // Only as many rows as are wanted are kept, unless equal ones are dropped later.
        let top = if block.distinct { Page::default() } else { page.clone() };
        root = Rc::new(Node::Order(root, order, top));
    }
    root = Rc::new(Node::Project(root, Project { projection: block.projection, star }));
    if block.distinct {
        root = Rc::new(Node::Distinct(root));
    }
    Ok(paged(root, page.clone()))
}

/// Gives each term its name for good, since what it is may be replaced.
pub fn name_terms(projection: &mut Projection) {
    let names = projection.names();
    let Projection::Terms(terms, _) = projection else { return };
    for (term, name) in terms.iter_mut().zip(names) {
        if let nacre_sql::ast::Term::Expr(_, alias) = term {
            *alias = name;
        }
    }
}

fn plan_from(
    block: &mut Block,
    order: &mut Vec<OrderTerm>,
    page: &Page,
    sorted: &mut bool,
    context: &dyn PlanContext,
) -> Result<Rc<Node>> {
    let from = block.from.clone().expect("the caller has checked");
    let attributes = |alias: &Name| attributes_of(block, order, alias);
    let of_first = attributes(&from.first.alias);
    let of_joins: Vec<Vec<Name>> =
        from.joins.iter().map(|join| attributes(&join.term.alias)).collect();
    let mut own: Vec<Name> = vec![from.first.alias.clone()];
    own.extend(from.joins.iter().map(|join| join.term.alias.clone()));
    own.extend(block.lets.iter().map(|(name, _)| name.clone()));
    let mut known = conjuncts(block.condition.as_ref());
    // After a left join, the first term is still complete; after a right join, WHERE says nothing about it alone.
    if from.has_right_join() {
        known.clear();
    }
    let unnested = join::unnested_conditions(&from, &known, &own);
    known.extend(unnested);
    let wanted = TermNeeds::of_block(block, order, page);
    let searched = search::choose(block, order, page, context)?;
    let (mut scan, covered) = match searched {
        Some(search::Searched { scan, condition, ordered }) => {
            (block.condition, *sorted) = (condition, ordered);
            (scan, None)
        }
        None => plan_wanted(&from.first, &known, &own, &wanted, sorted, context)?,
    };
    if let Some(covered) = covered {
        (*block, *order) = (covered.block, covered.order);
    }
    // Nothing that is between the scan and the page needs all rows.
    let pulled = block.group.is_none() && !block.distinct && (*sorted || order.is_empty());
    if pulled && from.joins.is_empty() {
        scan.page = page.clone();
        if of_first.is_empty() {
            scan.passing = passed::passing(block, &scan, &own);
        }
    }
    scan.attributes = of_first;
    let mut rows = scan.costs.map(|costs| costs.with_documents);
    let mut root = Rc::new(Node::Scan(scan));
    let mut before = vec![from.first.alias.clone()];
    let joins = block.from.as_ref().expect("nothing has removed it").joins.clone();
    for (at, join) in joins.iter().enumerate() {
        let later: Vec<Name> = own[at + 2..].to_vec();
        let left = LeftSide { names: &before, estimate: rows };
        let mut planned = join::plan_join(join, &left, &later, block.condition.as_ref(), context)?;
        rows = planned.estimate;
        if let Strategy::Nested(scan) | Strategy::Loop(scan) | Strategy::Hash(scan, ..) =
            &mut planned.strategy
        {
            scan.attributes.clone_from(&of_joins[at]);
        }
        root = Rc::new(Node::Join(root, planned));
        before.push(join.term.alias.clone());
        // A join may have made rows, so the order of the first term stays, but for those of the right side.
        if join.kind == JoinKind::Join && join.side == Side::Right {
            *sorted = false;
        }
    }
    Ok(root)
}

/// Plans how the rows of a term are found, given conditions that hold for all that are wanted.
///
/// `own` are the variables that do not have a value yet.
///
/// # Errors
/// If the keyspace does not exist or cannot be reached.
pub fn plan_term(
    term: &FromTerm,
    known: &[Expr],
    own: &[Name],
    context: &dyn PlanContext,
) -> Result<Scan> {
    let (scan, _) = plan_wanted(term, known, own, &TermNeeds::default(), &mut false, context)?;
    Ok(scan)
}

/// As [`plan_term`], with entries in the place of documents if they hold all that is wanted, and in the wanted order if they have
/// it: then `sorted` is set.
fn plan_wanted(
    term: &FromTerm,
    known: &[Expr],
    own: &[Name],
    wanted: &TermNeeds<'_>,
    sorted: &mut bool,
    context: &dyn PlanContext,
) -> Result<(Scan, Option<Covered>)> {
    let alias = term.alias.clone();
    let path = match &term.source {
        Source::Expr(expr) => return Ok((Scan::of(alias, ScanSource::Expr(expr.clone())), None)),
        Source::Keyspace(path) => path,
    };
    if path.is_system() {
        return Ok((Scan::of(alias, ScanSource::Catalog(path.parts[0].clone())), None));
    }
    let keyspace = context.keyspace(path)?;
    let AccessChoice { access, ordered, covered } =
        access::choose(&keyspace, term, known, own, wanted, context)?;
    *sorted = ordered;
    let covering = covered.is_some();
    let costs = cost::of_access(&keyspace, &access, covering, &alias, context);
    let source = ScanSource::Keyspace { keyspace, access, covering };
    Ok((Scan { costs, ..Scan::of(alias, source) }, covered))
}

/// Returns the value of an expression that is the same for every row: that of a literal, or of a parameter that the request has.
pub fn literal(expr: &Expr, context: &dyn PlanContext) -> Option<Value> {
    match expr {
        Expr::Literal(value) => Some(value.clone()),
        Expr::Positional(position) => context.positional(*position),
        Expr::Named(name) => context.named(name),
        _ => None,
    }
}

/// Plans the rows of a MERGE: each of the source, with the document of the target that it matches, if there is one.
///
/// # Errors
/// If a keyspace does not exist or cannot be reached.
pub fn plan_merge(merge: &nacre_sql::ast::Merge, context: &dyn PlanContext) -> Result<Rc<Node>> {
    let source = plan_term(&merge.source, &[], &[], context)?;
    let names = [merge.source.alias.clone()];
    let before =
        LeftSide { names: &names, estimate: source.costs.map(|costs| costs.with_documents) };
    let joined = nacre_sql::ast::Join {
        kind: JoinKind::Join,
        side: Side::Left,
        term: merge.target.clone(),
        on: merge.on.clone(),
    };
    let planned = join::plan_join(&joined, &before, &[], None, context)?;
    Ok(Rc::new(Node::Join(Rc::new(Node::Scan(source)), planned)))
}
