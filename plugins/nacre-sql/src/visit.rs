//! Walks trees.

use crate::Result;
use crate::ast::{
    Aggregate, Binding, Body, Expr, Frame, FrameBound, From, FromTerm, On, Over, Projection,
    Select, Source, Term, Window,
};

type Visitor<'a> = &'a mut dyn FnMut(&mut Expr) -> Result<()>;

/// Calls `visit` for each expression directly below `expr`; for a subquery, for each expression in its
/// clauses.
///
/// # Errors
/// The first error of `visit`.
pub fn each_child(expr: &mut Expr, visit: Visitor<'_>) -> Result<()> {
    match expr {
        Expr::Literal(_)
        | Expr::Ident(_)
        | Expr::Itself
        | Expr::Positional(_)
        | Expr::Named(_)
        | Expr::Bound(_) => Ok(()),
        Expr::Field(of, ..) | Expr::Unary(_, of) => visit(of),
        Expr::Element(a, b) | Expr::Binary(_, a, b) => {
            visit(a)?;
            visit(b)
        }
        Expr::Slice(of, from, to) => {
            visit(of)?;
            from.iter_mut().chain(to).try_for_each(|bound| visit(bound))
        }
        Expr::Fold(first, rest) => {
            visit(first)?;
            rest.iter_mut().try_for_each(|(_, operand)| visit(operand))
        }
        Expr::Chain(_, all) | Expr::Array(all) | Expr::Call(_, all) | Expr::UserCall(_, all) => {
            all.iter_mut().try_for_each(visit)
        }
        Expr::Like(of, pattern, escape) => {
            visit(of)?;
            visit(pattern)?;
            escape.iter_mut().try_for_each(|escape| visit(escape))
        }
        Expr::Between(of, low, high) => {
            visit(of)?;
            visit(low)?;
            visit(high)
        }
        Expr::Case(case) => {
            case.operand.iter_mut().try_for_each(&mut *visit)?;
            for (when, then) in &mut case.whens {
                visit(when)?;
                visit(then)?;
            }
            case.otherwise.iter_mut().try_for_each(visit)
        }
        Expr::Object(fields) => fields.iter_mut().try_for_each(|(name, value)| {
            visit(name)?;
            visit(value)
        }),
        Expr::Quantified(quantified) => {
            each_source(&mut quantified.bindings, visit)?;
            visit(&mut quantified.condition)
        }
        Expr::Comprehension(comprehension) => {
            each_source(&mut comprehension.bindings, visit)?;
            if let crate::ast::Collect::Object(name) = &mut comprehension.collect {
                visit(name)?;
            }
            visit(&mut comprehension.value)?;
            comprehension.condition.iter_mut().try_for_each(visit)
        }
        Expr::FlattenKeys(keys) => keys.iter_mut().try_for_each(|key| visit(&mut key.expr)),
        Expr::Aggregate(aggregate) => each_in_aggregate(aggregate, visit),
        Expr::Subquery(select) => each_in_select(select, visit),
    }
}

fn each_source(bindings: &mut [Binding], visit: Visitor<'_>) -> Result<()> {
    bindings.iter_mut().try_for_each(|binding| visit(&mut binding.source))
}

fn each_in_aggregate(aggregate: &mut Aggregate, visit: Visitor<'_>) -> Result<()> {
    aggregate.args.iter_mut().try_for_each(&mut *visit)?;
    aggregate.filter.iter_mut().try_for_each(&mut *visit)?;
    match &mut aggregate.over {
        Some(Over::Window(window)) => each_in_window(window, visit),
        _ => Ok(()),
    }
}

fn each_in_window(window: &mut Window, visit: Visitor<'_>) -> Result<()> {
    window.partition.iter_mut().try_for_each(&mut *visit)?;
    window.order.iter_mut().try_for_each(|term| visit(&mut term.expr))?;
    let Some(Frame { start, end, .. }) = &mut window.frame else { return Ok(()) };
    for bound in [start, end] {
        if let FrameBound::Preceding(distance) | FrameBound::Following(distance) = bound {
            visit(distance)?;
        }
    }
    Ok(())
}

/// Calls `visit` for each expression in a clause of `select`.
///
/// # Errors
/// The first error of `visit`.
pub fn each_in_select(select: &mut Select, visit: Visitor<'_>) -> Result<()> {
    for with in &mut select.with {
        visit(&mut with.expr)?;
        with.cycle.iter_mut().chain(&mut with.options).try_for_each(&mut *visit)?;
    }
    each_in_body(&mut select.body, visit)?;
    select.order.iter_mut().try_for_each(|term| visit(&mut term.expr))?;
    select.limit.iter_mut().chain(&mut select.offset).try_for_each(visit)
}

fn each_in_body(body: &mut Body, visit: Visitor<'_>) -> Result<()> {
    let block = match body {
        Body::Union(_, branches) => {
            return branches.iter_mut().try_for_each(|branch| each_in_body(branch, visit));
        }
        Body::Set(_, _, left, right) => {
            each_in_body(left, visit)?;
            return each_in_body(right, visit);
        }
        Body::Nested(select) => return each_in_select(select, visit),
        Body::Block(block) => block,
    };
    each_in_projection(&mut block.projection, visit)?;
    if let Some(from) = &mut block.from {
        each_in_from(from, visit)?;
    }
    block.lets.iter_mut().try_for_each(|(_, expr)| visit(expr))?;
    block.condition.iter_mut().try_for_each(&mut *visit)?;
    if let Some(group) = &mut block.group {
        group.by.iter_mut().try_for_each(|(expr, _)| visit(expr))?;
        group.letting.iter_mut().try_for_each(|(_, expr)| visit(expr))?;
        group.having.iter_mut().try_for_each(&mut *visit)?;
    }
    block.windows.iter_mut().try_for_each(|(_, window)| each_in_window(window, visit))
}

fn each_in_projection(projection: &mut Projection, visit: Visitor<'_>) -> Result<()> {
    match projection {
        Projection::Raw(expr, _) => visit(expr),
        Projection::Terms(terms, _) => terms.iter_mut().try_for_each(|term| match term {
            Term::Star => Ok(()),
            Term::StarOf(expr) | Term::Expr(expr, _) => visit(expr),
        }),
    }
}

fn each_in_from(from: &mut From, visit: Visitor<'_>) -> Result<()> {
    each_in_term(&mut from.first, visit)?;
    from.joins.iter_mut().try_for_each(|join| {
        each_in_term(&mut join.term, visit)?;
        match &mut join.on {
            On::Nothing => Ok(()),
            On::Condition(expr) | On::Keys(expr) | On::KeyFor(expr, _) => visit(expr),
        }
    })
}

fn each_in_term(term: &mut FromTerm, visit: Visitor<'_>) -> Result<()> {
    if let Source::Expr(expr) = &mut term.source {
        visit(expr)?;
    }
    term.hints.keys.iter_mut().try_for_each(visit)
}

/// Returns true if `wanted` returns true for `expr` or any expression below it.
pub fn any_in(expr: &Expr, wanted: &dyn Fn(&Expr) -> bool) -> bool {
    fn search(expr: &mut Expr, wanted: &dyn Fn(&Expr) -> bool) -> Result<()> {
        if wanted(expr) {
            // An internal error ends the walk.
            return Err(crate::Error::execution(""));
        }
        each_child(expr, &mut |child| search(child, wanted))
    }
    search(&mut expr.clone(), wanted).is_err()
}
