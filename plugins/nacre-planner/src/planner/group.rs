//! GROUP BY, aggregates and windows: what is computed before is bound to a name, and expressions above refer to it.

use super::{each_output, pushed};
use crate::plan::{Group, Node, Project};
use crate::plan_context::PlanContext;
use nacre_sql::ast::{
    Aggregate, Block, Body, Bound, Expr, OrderTerm, Projection, Select, Source, Term,
};
use nacre_sql::{Error, Name, Result, each_child};
use std::rc::Rc;

fn bound(name: &Name, of: Expr) -> Expr {
    Expr::Bound(Box::new(Bound { name: name.clone(), of, cover: false }))
}

/// `SELECT COUNT(*) FROM keyspace`, or of a constant, which the store knows.
pub(super) fn count_of_keyspace(
    block: &Block,
    order: &[OrderTerm],
    context: &dyn PlanContext,
) -> Result<Option<Rc<Node>>> {
    let Some(from) = &block.from else { return Ok(None) };
    let Source::Keyspace(path) = &from.first.source else { return Ok(None) };
    let plain = from.joins.is_empty()
        && from.first.hints.keys.is_none()
        && !path.is_system()
        && block.lets.is_empty()
        && block.condition.is_none()
        && block.group.is_none()
        && !block.distinct
        && order.is_empty();
    let counted = match &block.projection {
        Projection::Raw(expr, _) => Some(expr),
        Projection::Terms(terms, excluded) => match &terms[..] {
            [Term::Expr(expr, _)] if excluded.is_empty() => Some(expr),
            _ => None,
        },
    };
    let Some(Expr::Aggregate(aggregate)) = counted else { return Ok(None) };
    let counts_all =
        aggregate.args.iter().all(|arg| matches!(arg, Expr::Literal(value) if value.is_known()));
    let every = counts_all
        && (!aggregate.distinct || aggregate.args.is_empty())
        && aggregate.filter.is_none()
        && aggregate.over.is_none();
    if !plain || !every || &*aggregate.name != "count" {
        return Ok(None);
    }
    let name: Name = "#count".into();
    let count = Node::Count(context.keyspace(path)?, name.clone());
    let mut projection = block.projection.clone();
    each_output(&mut projection, &mut [], &mut |expr| {
        *expr = bound(&name, expr.clone());
        Ok(())
    })?;
    Ok(Some(Rc::new(Node::Project(Rc::new(count), Project { projection, star: Vec::new() }))))
}

struct Rewriter {
    keys: Vec<(Name, Expr, Option<Name>)>,
    aggregates: Vec<(Name, Aggregate)>,
    /// The variables that groups do not have.
    gone: Vec<Name>,
}

impl Rewriter {
    /// Puts keys and aggregates in their places; inside of a subquery only keys, as its aggregates are its own.
    fn rewrite(&mut self, expr: &mut Expr, inside: bool) -> Result<()> {
        if let Some((name, ..)) = self.keys.iter().find(|(_, key, _)| key == expr) {
            *expr = bound(name, expr.clone());
            return Ok(());
        }
        match expr {
            Expr::Aggregate(aggregate) if aggregate.over.is_none() && !inside => {
                if aggregate.args.iter().any(has_aggregate) {
                    return Err(Error::new(
                        4230,
                        format!("Nested aggregates are not allowed: {aggregate}"),
                    ));
                }
                let known = self.aggregates.iter().find(|(_, known)| *known == **aggregate);
                let name = known.map(|(name, _)| name.clone()).unwrap_or_else(|| {
                    let name: Name = format!("#aggregate.{}", self.aggregates.len()).into();
                    self.aggregates.push((name.clone(), (**aggregate).clone()));
                    name
                });
                *expr = bound(&name, expr.clone());
                Ok(())
            }
            Expr::Subquery(_) => each_child(expr, &mut |child| self.rewrite(child, true)),
            _ => each_child(expr, &mut |child| self.rewrite(child, inside)),
        }
    }

    /// Refuses what depends on single rows of a group.
    fn check(&self, expr: &Expr, hidden: &mut Vec<Name>) -> Result<()> {
        // The whole path is named, as the user has written it.
        if let Some(name) = root(expr)
            && self.gone.contains(name)
            && !hidden.contains(name)
        {
            return Err(Error::new(
                4210,
                format!("Expression {expr} must depend only on group keys or aggregates."),
            ));
        }
        let variables: Vec<Name> = match expr {
            Expr::Subquery(select) => own_names(select),
            // A part of an index stands for a field.
            Expr::Bound(bound) if bound.cover => return self.check(&bound.of, hidden),
            Expr::Quantified(quantified) => {
                quantified.bindings.iter().map(|b| b.variable.clone()).collect()
            }
            Expr::Comprehension(comprehension) => {
                comprehension.bindings.iter().map(|b| b.variable.clone()).collect()
            }
            _ => Vec::new(),
        };
        let before = hidden.len();
        hidden.extend(variables);
        let checked = each_child(&mut expr.clone(), &mut |child| self.check(child, hidden));
        hidden.truncate(before);
        checked
    }

    fn finish(&mut self, expr: &mut Expr) -> Result<()> {
        self.rewrite(expr, false)?;
        self.check(expr, &mut Vec::new())
    }
}

/// The names that a query gives to its terms and variables.
fn own_names(select: &Select) -> Vec<Name> {
    fn of_body(body: &Body, names: &mut Vec<Name>) {
        match body {
            Body::Nested(select) => names.extend(own_names(select)),
            Body::Union(_, branches) => branches.iter().for_each(|body| of_body(body, names)),
            Body::Set(_, _, left, right) => {
                of_body(left, names);
                of_body(right, names);
            }
            Body::Block(block) => {
                if let Some(from) = &block.from {
                    names.push(from.first.alias.clone());
                    names.extend(from.joins.iter().map(|join| join.term.alias.clone()));
                }
                names.extend(block.lets.iter().map(|(name, _)| name.clone()));
                if let Some(group) = &block.group {
                    names.extend(group.by.iter().filter_map(|(_, alias)| alias.clone()));
                    names.extend(group.name.clone());
                    names.extend(group.letting.iter().map(|(name, _)| name.clone()));
                }
            }
        }
    }
    let mut names: Vec<Name> = select.with.iter().map(|with| with.alias.clone()).collect();
    of_body(&select.body, &mut names);
    names
}

/// The variable that a path of fields begins with.
fn root(expr: &Expr) -> Option<&Name> {
    match expr {
        Expr::Ident(name) => Some(name),
        Expr::Field(of, ..) => root(of),
        _ => None,
    }
}

fn has_aggregate(expr: &Expr) -> bool {
    match expr {
        Expr::Aggregate(aggregate) if aggregate.over.is_none() => true,
        Expr::Subquery(_) => false,
        _ => {
            let mut found = false;
            let walked = each_child(&mut expr.clone(), &mut |child| {
                found |= has_aggregate(child);
                Ok(())
            });
            found && walked.is_ok()
        }
    }
}

/// Adds groups, LETTING and HAVING to a plan, if the block has any.
pub(super) fn plan_groups(
    mut root: Rc<Node>,
    block: &mut Block,
    order: &mut [OrderTerm],
    star: &mut Vec<Name>,
) -> Result<Rc<Node>> {
    let mut aggregated = block.group.is_some();
    each_output(&mut block.projection, order, &mut |expr| {
        aggregated |= has_aggregate(expr);
        Ok(())
    })?;
    if let Some(condition) = &block.condition
        && has_aggregate(condition)
    {
        return Err(Error::new(4220, format!("Aggregates not allowed in WHERE: {condition}")));
    }
    if !aggregated {
        return Ok(root);
    }
    let group = block.group.take().unwrap_or_default();
    let keys = group.by.iter().enumerate().map(|(at, (expr, alias))| {
        let alias = alias.clone().or_else(|| expr.implicit_name());
        (format!("#key.{at}").into(), expr.clone(), alias)
    });
    let mut rewriter =
        Rewriter { keys: keys.collect(), aggregates: Vec::new(), gone: star.clone() };
    let written = |name: &Name| group.by.iter().any(|(_, alias)| alias.as_ref() == Some(name));
    rewriter.gone.retain(|name| !written(name));
    let mut letting = group.letting.clone();
    for (_, expr) in &mut letting {
        rewriter.finish(expr)?;
    }
    let mut having = group.having.clone();
    having.iter_mut().try_for_each(|expr| rewriter.finish(expr))?;
    each_output(&mut block.projection, order, &mut |expr| rewriter.finish(expr))?;
    let collect = group.name.clone().map(|name| (name, star.clone()));
    star.clear();
    star.extend(rewriter.keys.iter().filter_map(|(_, _, alias)| alias.clone()));
    star.extend(group.name);
    star.extend(letting.iter().map(|(name, _)| name.clone()));
    // Only names that were written are variables; the others would hide what they are named after.
    let keys = rewriter.keys.iter().cloned().zip(&group.by);
    let keys = keys.map(|((name, expr, _), (_, alias))| (name, expr, alias.clone()));
    let keys: Vec<_> = keys.collect();
    let aggregates = rewriter.aggregates;
    let (input, pushed) = match pushed::of(&root, &keys, &aggregates) {
        Some((scan, pushed)) if collect.is_none() => (scan, Some(pushed)),
        _ => (root, None),
    };
    root = Rc::new(Node::Group(input, Group { keys, aggregates, collect, pushed }));
    if !letting.is_empty() {
        root = Rc::new(Node::Let(root, letting));
    }
    if let Some(having) = having {
        root = Rc::new(Node::Filter(root, having));
    }
    Ok(root)
}

/// Adds the window functions of a block to a plan.
pub(super) fn plan_windows(
    root: Rc<Node>,
    projection: &mut Projection,
    order: &mut [OrderTerm],
) -> Result<Rc<Node>> {
    let mut windows: Vec<(Name, Aggregate)> = Vec::new();
    each_output(projection, order, &mut |expr| bind_windows(expr, &mut windows))?;
    Ok(if windows.is_empty() { root } else { Rc::new(Node::Window(root, windows)) })
}

fn bind_windows(expr: &mut Expr, windows: &mut Vec<(Name, Aggregate)>) -> Result<()> {
    match expr {
        Expr::Subquery(_) => Ok(()),
        Expr::Aggregate(aggregate) if aggregate.over.is_some() => {
            let known = windows.iter().find(|(_, known)| *known == **aggregate);
            let name = known.map(|(name, _)| name.clone()).unwrap_or_else(|| {
                let name: Name = format!("#window.{}", windows.len()).into();
                windows.push((name.clone(), (**aggregate).clone()));
                name
            });
            *expr = bound(&name, expr.clone());
            Ok(())
        }
        _ => each_child(expr, &mut |child| bind_windows(child, windows)),
    }
}
