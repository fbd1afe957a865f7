//! Joins: how the right side is found for a row of the left.

use super::{conjuncts, cost, mentions, plan_term};
use crate::plan::{Access, IndexScan, Join, Sarg, Scan, ScanSource, Strategy};
use crate::plan_context::PlanContext;
use nacre_cost::Estimate;
use nacre_sql::ast::{
    self, Binary, Binding, Chain, Expr, From, FromTerm, JoinKind, On, Quantified, Quantifier, Side,
    Source,
};
use nacre_sql::{Name, Result, functions};

/// Conditions on the elements of arrays that are unnested, as conditions on the arrays: for array indexes.
pub(super) fn unnested_conditions(from: &From, known: &[Expr], own: &[Name]) -> Vec<Expr> {
    let mut conditions = Vec::new();
    for join in
        from.joins.iter().filter(|join| join.kind == JoinKind::Unnest && join.side == Side::Inner)
    {
        let Source::Expr(source) = &join.term.source else { continue };
        let alias = &join.term.alias;
        let others: Vec<Name> = own.iter().filter(|name| *name != alias).cloned().collect();
        let of_element =
            |expr: &&Expr| mentions(expr, std::slice::from_ref(alias)) && !mentions(expr, &others);
        let found: Vec<Expr> = known.iter().filter(of_element).cloned().collect();
        if found.is_empty() {
            continue;
        }
        let binding = Binding {
            position: None,
            variable: alias.clone(),
            source: source.clone(),
            within: false,
        };
        conditions.push(Expr::Quantified(Box::new(Quantified {
            kind: Quantifier::Any,
            bindings: vec![binding],
            condition: Expr::Chain(Chain::And, found),
        })));
    }
    conditions
}

/// Makes a left join of a right join of the first two terms: the right one is read once, and what serves a left join serves it.
///
/// The terms of `*` keep their order, as they were named before.
pub(super) fn turn_right_join(from: &mut From) {
    let From { first, joins } = from;
    let Some(join) = joins.first_mut() else { return };
    let is_turned = join.side == Side::Right
        && join.kind == JoinKind::Join
        && matches!(join.on, On::Condition(_))
        && !reads(&join.term, &first.alias)
        // A name of WITH that the other term has too would be taken for that one.
        && !reads(first, &join.term.alias);
    if is_turned {
        std::mem::swap(first, &mut join.term);
        // How the two are joined may be said at either.
        let hint = first.hints.hash.take();
        join.term.hints.hash = join.term.hints.hash.or(hint);
        join.side = Side::Left;
    }
}

/// Whether `name` is in what a term is made of.
fn reads(term: &FromTerm, name: &Name) -> bool {
    let source = match &term.source {
        Source::Expr(expr) => Some(expr),
        Source::Keyspace(_) => None,
    };
    let mut read = source.into_iter().chain(&term.hints.keys);
    read.any(|expr| mentions(expr, std::slice::from_ref(name)))
}

/// The left side of a join.
pub(super) struct LeftSide<'a> {
    /// Its variables.
    pub names: &'a [Name],
    /// Its rows, if there are statistics.
    pub estimate: Option<Estimate>,
}

/// Plans a join; `later` are the variables that do not have a value yet.
pub(super) fn plan_join(
    join: &ast::Join,
    left: &LeftSide<'_>,
    later: &[Name],
    filter: Option<&Expr>,
    context: &dyn PlanContext,
) -> Result<Join> {
    let alias = join.term.alias.clone();
    let before = left.names;
    let planned = |strategy, condition| Join {
        kind: join.kind,
        side: join.side,
        alias: alias.clone(),
        estimate: cost::of_join(left.estimate, &strategy, join, context),
        strategy,
        condition,
        left: before.to_vec(),
    };
    if let (JoinKind::Unnest, Source::Expr(expr)) = (join.kind, &join.term.source) {
        return Ok(planned(Strategy::Unnest(expr.clone()), None));
    }
    let condition = match &join.on {
        On::Nothing => None,
        On::Condition(condition) => Some(condition.clone()),
        On::Keys(keys) => {
            let mut term = join.term.clone();
            term.hints.keys = Some(keys.clone());
            return Ok(planned(Strategy::Nested(plan_term(&term, &[], &[], context)?), None));
        }
        On::KeyFor(key, left) => {
            let meta = functions::find("META").expect("it is in the table");
            let id = Expr::Field(
                Box::new(Expr::Call(meta, vec![Expr::Ident(left.clone())])),
                "id".into(),
                false,
            );
            Some(Expr::Binary(Binary::Equal, Box::new(key.clone()), Box::new(id)))
        }
    };
    let mut known = conjuncts(condition.as_ref());
    if join.side == Side::Inner && join.kind == JoinKind::Join {
        known.extend(conjuncts(filter));
    }
    let mut own = later.to_vec();
    own.push(alias.clone());
    let apart = || -> Result<Scan> {
        let mut own = own.clone();
        own.extend(before.iter().cloned());
        plan_term(&join.term, if join.side == Side::Right { &[] } else { &known }, &own, context)
    };
    if join.side == Side::Right {
        return Ok(planned(Strategy::Loop(apart()?), condition));
    }
    let scan = plan_term(&join.term, &known, &own, context)?;
    let hashed = hash_keys(&known, &alias, before, later);
    let prefers_hash = join.term.hints.hash == Some(true) && !hashed.0.is_empty();
    let looked_up = needs_left(&scan, before) && !prefers_hash;
    if looked_up && (hashed.0.is_empty() || join.term.hints.hash.is_some()) {
        return Ok(planned(Strategy::Nested(scan), condition));
    }
    let nested = looked_up.then(|| planned(Strategy::Nested(scan), condition.clone()));
    // Without statistics, what an index finds for each row is taken.
    if let Some(nested) = nested {
        if nested.estimate.is_none() {
            return Ok(nested);
        }
        let hash = planned(Strategy::Hash(apart()?, hashed.0, hashed.1), condition);
        let cost = |join: &Join| join.estimate.map_or(f64::INFINITY, |estimate| estimate.cost);
        return Ok(if cost(&hash) < cost(&nested) { hash } else { nested });
    }
    let scan = apart()?;
    Ok(if hashed.0.is_empty() || join.term.hints.hash == Some(false) {
        planned(Strategy::Loop(scan), condition)
    } else {
        planned(Strategy::Hash(scan, hashed.0, hashed.1), condition)
    })
}

/// What must be equal, on the left and on the right.
fn hash_keys(
    known: &[Expr],
    alias: &Name,
    before: &[Name],
    later: &[Name],
) -> (Vec<Expr>, Vec<Expr>) {
    let own = std::slice::from_ref(alias);
    let mut others = before.to_vec();
    others.extend(later.iter().cloned());
    let right = |expr: &Expr| mentions(expr, own) && !mentions(expr, &others);
    let left =
        |expr: &Expr| mentions(expr, before) && !mentions(expr, own) && !mentions(expr, later);
    let pairs = known.iter().filter_map(|condition| match condition {
        Expr::Binary(Binary::Equal, a, b) if left(a) && right(b) => {
            Some(((**a).clone(), (**b).clone()))
        }
        Expr::Binary(Binary::Equal, a, b) if left(b) && right(a) => {
            Some(((**b).clone(), (**a).clone()))
        }
        _ => None,
    });
    pairs.unzip()
}

/// Whether what a scan reads depends on the left side.
fn needs_left(scan: &Scan, left: &[Name]) -> bool {
    match &scan.source {
        ScanSource::Expr(expr) => mentions(expr, left),
        ScanSource::Catalog(_) => false,
        ScanSource::Keyspace { access, .. } => match access {
            Access::Keys(keys) => mentions(keys, left),
            Access::Primary(_) | Access::Sequential => false,
            Access::Index(index) => index_needs(index, left),
            Access::Union(indexes) | Access::Intersect(indexes) => {
                indexes.iter().any(|index| index_needs(index, left))
            }
            Access::Search(search) => mentions(&search.call, left),
        },
    }
}

fn index_needs(index: &IndexScan, left: &[Name]) -> bool {
    index.parts.iter().flatten().any(|sarg| match sarg {
        Sarg::Equal(expr) | Sarg::In(expr) | Sarg::Above(expr, _) | Sarg::Below(expr, _) => {
            mentions(expr, left)
        }
        Sarg::Like(pattern, escape) => {
            mentions(pattern, left) || escape.as_ref().is_some_and(|escape| mentions(escape, left))
        }
        Sarg::IsNull | Sarg::IsMissing | Sarg::IsKnown | Sarg::NotMissing => false,
    })
}
