//! The order of inner joins, where all their keyspaces have statistics: the one that costs least, instead of the written one.

use super::join::{LeftSide, plan_join};
use super::{conjuncts, mentions, plan_term};
use crate::plan::Page;
use crate::plan_context::PlanContext;
use nacre_cost::{Estimate, best_order};
use nacre_sql::ast::{
    Block, Chain, Expr, From, FromTerm, HintKind, Join, JoinKind, On, OrderTerm, Side, Source,
};
use nacre_sql::{Name, Result};

/// Puts the terms of a block into the order that costs least. What is selected keeps its order, as it was named before.
pub(super) fn arrange(
    block: &mut Block,
    order: &[OrderTerm],
    page: &Page,
    context: &dyn PlanContext,
) -> Result<()> {
    let Some(from) = block.from.as_ref() else { return Ok(()) };
    let is_ordered = block.optimizer_hints.iter().any(|hint| hint.kind == HintKind::Ordered);
    // The first rows may come early in the written order: of a plan for some rows, all rows are no measure.
    let wants_first =
        page.limit.is_some() && order.iter().all(|term| !mentions(&term.expr, &names(&from.joins)));
    if is_ordered || wants_first || !is_free(from, context)? {
        return Ok(());
    }
    let terms: Vec<FromTerm> = std::iter::once(&from.first)
        .chain(from.joins.iter().map(|join| &join.term))
        .cloned()
        .collect();
    let on = from.joins.iter().flat_map(|join| match &join.on {
        On::Condition(condition) => operands(condition),
        _ => Vec::new(),
    });
    let lets = block.lets.iter().map(|(name, _)| name.clone()).collect();
    let condition = block.condition.clone();
    let joined = Joined { terms, on: on.collect(), condition, lets, context };
    let Some(best) = joined.best() else { return Ok(()) };
    let (first, rest) = best.split_first().expect("there are several terms");
    let mut before = vec![*first];
    let joins = rest.iter().map(|term| {
        let join = joined.join(&before, *term);
        before.push(*term);
        join
    });
    let joins: Vec<Join> = joins.collect();
    // What ON says of the first term alone has no join to stand at.
    let of_first = joined.on.iter().filter(|on| joined.needs(on).is_subset_of(&[*first]));
    let condition = block.condition.take();
    block.condition = all_of(condition.into_iter().chain(of_first.cloned()).collect());
    block.from = Some(From { first: joined.terms[*first].clone(), joins });
    Ok(())
}

fn names(joins: &[Join]) -> Vec<Name> {
    joins.iter().map(|join| join.term.alias.clone()).collect()
}

/// Whether the terms may be read in any order, and each has statistics.
fn is_free(from: &From, context: &dyn PlanContext) -> Result<bool> {
    if from.joins.is_empty() {
        return Ok(false);
    }
    let is_inner = |join: &Join| {
        join.kind == JoinKind::Join
            && join.side == Side::Inner
            && matches!(join.on, On::Condition(_) | On::Nothing)
    };
    if !from.joins.iter().all(is_inner) {
        return Ok(false);
    }
    for term in std::iter::once(&from.first).chain(from.joins.iter().map(|join| &join.term)) {
        let Source::Keyspace(path) = &term.source else { return Ok(false) };
        let is_hinted = term.hints.keys.is_some() || term.hints.hash.is_some();
        if is_hinted || path.is_system() {
            return Ok(false);
        }
        if context.statistics(&context.keyspace(path)?).is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The operands of AND, as they were written.
fn operands(condition: &Expr) -> Vec<Expr> {
    match condition {
        Expr::Chain(Chain::And, inner) => inner.iter().flat_map(operands).collect(),
        other => vec![other.clone()],
    }
}

fn all_of(mut conditions: Vec<Expr>) -> Option<Expr> {
    match conditions.len() {
        0 | 1 => conditions.pop(),
        _ => Some(Expr::Chain(Chain::And, conditions)),
    }
}

/// Terms of inner joins.
struct Joined<'a> {
    terms: Vec<FromTerm>,
    /// What their ON says, taken apart.
    on: Vec<Expr>,
    /// WHERE.
    condition: Option<Expr>,
    /// Variables that have no value before all terms are joined.
    lets: Vec<Name>,
    context: &'a dyn PlanContext,
}

/// The terms that a condition mentions.
struct Needs(Vec<usize>);

impl Needs {
    fn is_subset_of(&self, terms: &[usize]) -> bool {
        self.0.iter().all(|term| terms.contains(term))
    }
}

impl Joined<'_> {
    fn best(&self) -> Option<Vec<usize>> {
        let count = self.terms.len();
        best_order(count, &mut |term| self.first(term), &mut |before, left, term| {
            self.next(before, left, term)
        })
    }

    fn aliases(&self, terms: impl IntoIterator<Item = usize>) -> Vec<Name> {
        terms.into_iter().map(|term| self.terms[term].alias.clone()).collect()
    }

    fn needs(&self, condition: &Expr) -> Needs {
        let is_mentioned = |term: &usize| mentions(condition, &self.aliases([*term]));
        Needs((0..self.terms.len()).filter(is_mentioned).collect())
    }

    /// The join of a term to others, with what ON says of them.
    fn join(&self, before: &[usize], term: usize) -> Join {
        let after = [before, &[term]].concat();
        let is_new = |on: &&Expr| {
            let needs = self.needs(on);
            needs.is_subset_of(&after) && !needs.is_subset_of(before)
        };
        let on = all_of(self.on.iter().filter(is_new).cloned().collect());
        Join {
            kind: JoinKind::Join,
            side: Side::Inner,
            term: self.terms[term].clone(),
            on: on.map_or(On::Nothing, On::Condition),
        }
    }

    fn first(&self, term: usize) -> Option<Estimate> {
        let own = [self.aliases(0..self.terms.len()), self.lets.clone()].concat();
        let mut known = conjuncts(self.condition.as_ref());
        let of_first = self.on.iter().filter(|on| self.needs(on).is_subset_of(&[term]));
        known.extend(of_first.flat_map(|on| conjuncts(Some(on))));
        let scan = plan_term(&self.terms[term], &known, &own, self.context).ok()?;
        scan.costs.map(|costs| costs.with_documents)
    }

    fn next(&self, before: &[usize], left: Estimate, term: usize) -> Option<Estimate> {
        let names = self.aliases(before.iter().copied());
        let later = (0..self.terms.len()).filter(|other| *other != term && !before.contains(other));
        let later = [self.aliases(later), self.lets.clone()].concat();
        let left = LeftSide { names: &names, estimate: Some(left) };
        let join = self.join(before, term);
        plan_join(&join, &left, &later, self.condition.as_ref(), self.context).ok()?.estimate
    }
}
