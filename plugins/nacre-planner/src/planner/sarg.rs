//! Conditions against the parts of an index, compared as trees: whether the index has the documents, and what is asked of it.

use super::{conjuncts, literal, mentions};
use crate::plan::{IndexScan, Sarg};
use crate::plan_context::PlanContext;
use nacre_cost::{renamed, sarg};
use nacre_sql::ast::{Binary, Binding, Collect, Expr, Quantified, Quantifier, Unary};
use nacre_sql::index::{Definition, SELF};
use nacre_sql::{Name, Value};

/// Whether the condition of an index follows from what is known.
pub(super) fn follows(
    definition: &Definition,
    alias: &Name,
    known: &[Expr],
    context: &dyn PlanContext,
) -> bool {
    let wanted = held(definition, alias);
    wanted.iter().all(|wanted| known.iter().any(|known| implies(known, wanted, context)))
}

/// What holds for all documents that an index has.
pub(super) fn held(definition: &Definition, alias: &Name) -> Vec<Expr> {
    let conditions = definition.condition.iter().flat_map(|condition| conjuncts(Some(condition)));
    conditions.map(|condition| renamed(&condition, SELF, alias)).collect()
}

/// Whether `wanted` holds wherever `known` does.
pub(super) fn implies(known: &Expr, wanted: &Expr, context: &dyn PlanContext) -> bool {
    if known == wanted {
        return true;
    }
    let subject = match known {
        Expr::Binary(operator, of, _)
            if !matches!(operator, Binary::DistinctFrom | Binary::Within) =>
        {
            of
        }
        Expr::Like(of, ..) => of,
        _ => return false,
    };
    match wanted {
        Expr::Unary(Unary::IsKnown, of) => of == subject,
        Expr::Unary(Unary::Not, inner) => {
            matches!(&**inner, Expr::Unary(Unary::IsNull | Unary::IsMissing, of) if of == subject)
        }
        Expr::Binary(wanted_operator, of, bound) if of == subject => {
            let Expr::Binary(operator, _, value) = known else { return false };
            let (Some(bound), Some(value)) = (literal(bound, context), literal(value, context))
            else {
                return false;
            };
            bound_follows(*operator, &value, *wanted_operator, &bound)
        }
        _ => false,
    }
}

fn bound_follows(known: Binary, value: &Value, wanted: Binary, bound: &Value) -> bool {
    // Nothing compares with NULL or MISSING, though both have a place in the order of values.
    if !value.is_known() || !bound.is_known() {
        return false;
    }
    match (known, wanted) {
        (Binary::Equal, Binary::Equal) => value == bound,
        (Binary::Greater, Binary::Greater) => value >= bound,
        (Binary::Equal | Binary::GreaterOrEqual, Binary::Greater) => value > bound,
        (Binary::Equal | Binary::Greater | Binary::GreaterOrEqual, Binary::GreaterOrEqual) => {
            value >= bound
        }
        (Binary::Less, Binary::Less) => value <= bound,
        (Binary::Equal | Binary::LessOrEqual, Binary::Less) => value < bound,
        (Binary::Equal | Binary::Less | Binary::LessOrEqual, Binary::LessOrEqual) => value <= bound,
        _ => false,
    }
}

/// What is asked of the parts of an index, up to the first of which nothing is.
pub(super) fn sargs(
    definition: &Definition,
    alias: &Name,
    known: &[Expr],
    own: &[Name],
) -> Vec<Vec<Sarg>> {
    let mut parts = Vec::new();
    // The condition that asks for elements: all parts of FLATTEN_KEYS are of the same element.
    let mut asking: &[Expr] = known;
    for (at, key) in definition.keys.iter().enumerate() {
        let expr = renamed(&key.expr, SELF, alias);
        let mut found: Vec<Sarg> = match key.array {
            None => known.iter().filter_map(|condition| sarg(&expr, condition, own)).collect(),
            Some(_) => {
                asking = if key.joined { asking } else { known };
                let mut asked = asking.iter().enumerate().filter_map(|(place, condition)| {
                    Some((place, array_sargs(&expr, condition, own)?))
                });
                match asked.next() {
                    Some((place, sargs)) => {
                        asking = &asking[place..=place];
                        sargs
                    }
                    None => Vec::new(),
                }
            }
        };
        // There are no entries to find where documents without the part have none.
        if key.array.is_some() || at == 0 && !key.include_missing {
            found.retain(|sarg| *sarg != Sarg::IsMissing);
        }
        if found.is_empty() {
            break;
        }
        parts.push(found);
    }
    parts
}

/// What tells in which partitions of an index the entries are, if equal values do.
pub(super) fn spread(
    definition: &Definition,
    alias: &Name,
    known: &[Expr],
    own: &[Name],
) -> Option<Vec<Sarg>> {
    let equal = |by: &Expr| {
        let by = renamed(by, SELF, alias);
        let mut asked = known.iter().filter_map(|condition| sarg(&by, condition, own));
        asked.find(|sarg| matches!(sarg, Sarg::Equal(_) | Sarg::In(_)))
    };
    definition.partitioning.as_ref()?.by.iter().map(equal).collect()
}

/// Whether a condition is what is asked of the first part of an index, which is of the elements of an array, and holds for all that is
/// found there.
pub(super) fn is_answered(index: &IndexScan, alias: &Name, condition: &Expr, own: &[Name]) -> bool {
    let Some(key) = index.definition.keys.first().filter(|key| key.array.is_some()) else {
        return false;
    };
    let asked = match condition {
        Expr::Quantified(quantified) if quantified.kind == Quantifier::Any => {
            conjuncts(Some(&quantified.condition)).len()
        }
        Expr::Binary(Binary::In, ..) => 1,
        _ => return false,
    };
    let is_exact = |sarg: &Sarg| {
        matches!(sarg, Sarg::Equal(_) | Sarg::In(_) | Sarg::Above(..) | Sarg::Below(..))
    };
    let when = match &key.expr {
        // Of arrays within arrays, conditions stand within conditions.
        Expr::Comprehension(outer) if matches!(outer.value, Expr::Comprehension(_)) => {
            return false;
        }
        Expr::Comprehension(comprehension) => conjuncts(comprehension.condition.as_ref()).len(),
        _ => 0,
    };
    // What the index asks of its elements is among what is asked.
    array_sargs(&renamed(&key.expr, SELF, alias), condition, own).is_some_and(|sargs| {
        // Of several conditions on the array, one is asked of the index.
        index.parts.first() == Some(&sargs)
            && sargs.iter().all(is_exact)
            && sargs.len() + when == asked
    })
}

/// What `condition` asks of the elements that an array part has.
fn array_sargs(key: &Expr, condition: &Expr, own: &[Name]) -> Option<Vec<Sarg>> {
    let (bindings, value, when) = match key {
        Expr::Comprehension(comprehension) => {
            (&comprehension.bindings[..], Some(&comprehension.value), &comprehension.condition)
        }
        _ => (&[][..], None, &None),
    };
    let source = match bindings {
        [Binding { position: None, source, within: false, .. }] => source,
        [] => key,
        _ => return None,
    };
    let (variable, asked) = match condition {
        Expr::Quantified(quantified) => any_over(quantified, source)?,
        // `value IN array` asks for an element that is equal.
        Expr::Binary(Binary::In, item, list) if **list == *source && !mentions(item, own) => {
            let variable: Name = "#element".into();
            let element = Box::new(Expr::Ident(variable.clone()));
            (variable, vec![Expr::Binary(Binary::Equal, element, item.clone())])
        }
        _ => return None,
    };
    let in_terms = |expr: &Expr| match bindings {
        [binding] => renamed(expr, &binding.variable, &variable),
        _ => expr.clone(),
    };
    let implied = conjuncts(when.as_ref()).iter().all(|when| asked.contains(&in_terms(when)));
    if !implied {
        return None;
    }
    let element = value.map_or_else(|| Expr::Ident(variable.clone()), in_terms);
    let mut own = own.to_vec();
    own.push(variable);
    if matches!(&element, Expr::Comprehension(inner) if inner.collect == Collect::DistinctArray) {
        return asked.iter().find_map(|condition| array_sargs(&element, condition, &own));
    }
    let found: Vec<Sarg> =
        asked.iter().filter_map(|condition| sarg(&element, condition, &own)).collect();
    (!found.is_empty()).then_some(found)
}

/// The variable and conditions of `ANY v IN source SATISFIES …`.
fn any_over(quantified: &Quantified, source: &Expr) -> Option<(Name, Vec<Expr>)> {
    match &quantified.bindings[..] {
        [binding]
            if quantified.kind != Quantifier::Every
                && binding.position.is_none()
                && !binding.within
                && binding.source == *source =>
        {
            Some((binding.variable.clone(), conjuncts(Some(&quantified.condition))))
        }
        _ => None,
    }
}
