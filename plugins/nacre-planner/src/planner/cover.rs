//! Covering: when all that a block reads of a term is in the index, no document is fetched.
//!
//! What the entries were found by need not be tested of documents either: `ANY v IN tags SATISFIES v = "x" END` holds for all that
//! an index of the elements has at `"x"`, though no entry has the whole array.
//!
//! What the condition of a partial index says is in the index too: `WHERE state = "open"` need not be tested of its entries, and
//! `state` is `"open"` in all of them.

use super::conjuncts;
use super::sarg::{held, implies, is_answered};
use crate::plan::IndexScan;
use crate::plan_context::PlanContext;
use nacre_cost::renamed;
use nacre_sql::ast::{
    Binary, Binding, Block, Body, Bound, Chain, Expr, OrderTerm, Projection, Select, Term,
};
use nacre_sql::index::SELF;
use nacre_sql::{Error, Name, Result, Value, any_in, each_child, each_in_select};

/// A block over entries instead of documents.
pub(super) struct Covered {
    pub block: Block,
    pub order: Vec<OrderTerm>,
}

/// The block over the entries of an index, if it can be; then the entries are bound to names.
pub(super) fn cover(
    index: &mut IndexScan,
    alias: &Name,
    block: &Block,
    order: &[OrderTerm],
    own: &[Name],
    context: &dyn PlanContext,
) -> Option<Covered> {
    let starred = match &block.projection {
        Projection::Terms(terms, _) => terms.contains(&Term::Star),
        Projection::Raw(..) => false,
    };
    let collected = block.group.as_ref().is_some_and(|group| group.name.is_some());
    if starred || collected {
        return None;
    }
    let held = held(&index.definition, alias);
    let covers = names(index, alias);
    let constants = constants(&held, alias);
    let parts = index.definition.keys.iter().zip(&covers).filter(|(key, _)| key.array.is_none());
    let mut known: Vec<Bound> =
        parts.map(|(key, name)| bound(name.clone(), renamed(&key.expr, SELF, alias))).collect();
    known.extend(constants.iter().map(|(bound, _)| bound.clone()));
    let mut block = block.clone();
    let is_held = |wanted: &Expr| {
        held.iter().any(|held| implies(held, wanted, context))
            || is_answered(index, alias, wanted, own)
    };
    block.condition = without(block.condition, &is_held);
    let mut whole = Select {
        with: Vec::new(),
        body: Body::Block(Box::new(block)),
        order: order.to_vec(),
        limit: None,
        offset: None,
    };
    each_in_select(&mut whole, &mut |expr| replace(expr, alias, &known)).ok()?;
    let Body::Block(block) = whole.body else { return None };
    index.covers = covers;
    index.constants = constants;
    Some(Covered { block: *block, order: whole.order })
}

fn bound(name: Name, of: Expr) -> Bound {
    Bound { name, of, cover: true }
}

/// Names that no user can write, one for each part of the keys.
fn names(index: &IndexScan, alias: &str) -> Vec<Name> {
    (0..index.definition.keys.len()).map(|at| format!("#cover.{alias}.{at}").into()).collect()
}

/// What is the same in all documents of an index. Equal numbers may be written in several ways, so they are not known.
fn constants(held: &[Expr], alias: &str) -> Vec<(Bound, Value)> {
    let constant = |(at, condition): (usize, &Expr)| {
        let Expr::Binary(Binary::Equal, a, b) = condition else { return None };
        let (of, value) = match (&**a, &**b) {
            (of, Expr::Literal(value)) | (Expr::Literal(value), of) => (of, value),
            _ => return None,
        };
        let name = format!("#constant.{alias}.{at}").into();
        let is_plain = matches!(value, Value::Bool(_) | Value::String(_));
        is_plain.then(|| (bound(name, of.clone()), value.clone()))
    };
    held.iter().enumerate().filter_map(constant).collect()
}

/// The condition without what holds for all entries.
fn without(condition: Option<Expr>, is_held: &dyn Fn(&Expr) -> bool) -> Option<Expr> {
    let all = conjuncts(condition.as_ref());
    let mut left: Vec<Expr> = all.iter().filter(|wanted| !is_held(wanted)).cloned().collect();
    match left.len() {
        count if count == all.len() => condition,
        0 | 1 => left.pop(),
        _ => Some(Expr::Chain(Chain::And, left)),
    }
}

/// Puts parts of the index in the place of what they hold.
///
/// The error says that there is more than the index holds; nobody sees it.
fn replace(expr: &mut Expr, alias: &Name, known: &[Bound]) -> Result<()> {
    if let Some(bound) = known.iter().find(|bound| bound.of == *expr) {
        *expr = Expr::Bound(Box::new(bound.clone()));
        return Ok(());
    }
    let more = || Err(Error::execution("not covered"));
    let is_alias = |expr: &Expr| matches!(expr, Expr::Ident(name) if name == alias);
    let hides = |bindings: &[Binding]| {
        bindings.iter().any(|b| b.variable == *alias || b.position.as_ref() == Some(alias))
    };
    let divides = matches!(expr, Expr::Call(function, _) if function.name == "MULTIKEY_OBJECTS");
    match expr {
        Expr::Ident(name) if name == alias => more(),
        Expr::Field(of, name, _)
            if **name == *"id"
                && matches!(&**of, Expr::Call(f, args) if f.name == "META" && is_alias(&args[0])) =>
        {
            Ok(())
        }
        Expr::Subquery(_) if any_in(expr, &is_alias) => more(),
        // The function goes through the arrays on a path, but an index with that path as its key does not have them.
        Expr::Call(..) if divides && any_in(expr, &is_alias) => more(),
        Expr::Subquery(_) => Ok(()),
        // What has the name in there is something else.
        Expr::Quantified(quantified) if hides(&quantified.bindings) => more(),
        Expr::Comprehension(comprehension) if hides(&comprehension.bindings) => more(),
        _ => each_child(expr, &mut |child| replace(child, alias, known)),
    }
}
