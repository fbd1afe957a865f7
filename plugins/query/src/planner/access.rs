//! How the documents of a term are found: by key, by an index, or by reading all of them.
//!
//! Conditions are compared with the parts of an index as trees. An index serves when its own condition follows from
//! those of the query, and its first part is asked for; the one with the longest prefix of such parts is taken.

use super::{conjuncts, literal, mentions};
use crate::datastore::Keyspace;
use crate::plan::{Access, IndexScan, Sarg, Scan, ScanSource};
use crate::run::Run;
use nacre_sql::ast::{
    Binary, Binding, Chain, Expr, FromTerm, OrderTerm, Quantified, Quantifier, Unary,
};
use nacre_sql::index::{Definition, SELF};
use nacre_sql::{Name, Result, Value, each_child, functions};
use std::rc::Rc;

/// How many operands of OR are looked up one by one.
const UNION_MAX: usize = 32;

/// Decides how documents are found; `own` are the variables that have no value yet.
pub(crate) fn choose(
    keyspace: &Keyspace,
    term: &FromTerm,
    known: &[Expr],
    own: &[Name],
    run: &Run<'_>,
) -> Result<Access> {
    if let Some(keys) = &term.hints.keys {
        return Ok(Access::Keys(keys.clone()));
    }
    if let Some(keys) =
        known.iter().find_map(|condition| key_condition(condition, &term.alias, own))
    {
        return Ok(Access::Keys(keys));
    }
    let indexes = load(keyspace, &term.hints.indexes, run)?;
    let usable = candidates(&indexes, &term.alias, known, own, run);
    if let Some(best) = usable.first() {
        return Ok(with_second(best, &usable));
    }
    if let Some(union) = union_of(&indexes, &term.alias, known, own, run) {
        return Ok(Access::Union(union));
    }
    let primary = indexes.iter().find(|(_, definition)| definition.is_primary());
    Ok(match primary {
        Some((_, definition)) => Access::Primary(definition.name.clone()),
        None => Access::Sequential,
    })
}

type Loaded = Vec<(u64, Rc<Definition>)>;

/// The indexes that are ready; only those of the hint, if one of them is there.
fn load(keyspace: &Keyspace, hints: &[Name], run: &Run<'_>) -> Result<Loaded> {
    let mut all = Vec::new();
    for index in run.store.indexes(keyspace)?.into_iter().filter(|index| index.online) {
        all.push((index.id, run.service.definition(&index.definition)?));
    }
    if all.iter().any(|(_, definition)| hints.contains(&definition.name)) {
        all.retain(|(_, definition)| hints.contains(&definition.name));
    }
    Ok(all)
}

/// Scans of all indexes that serve, the best first.
fn candidates(
    indexes: &Loaded,
    alias: &Name,
    known: &[Expr],
    own: &[Name],
    run: &Run<'_>,
) -> Vec<IndexScan> {
    let mut scans: Vec<IndexScan> = indexes
        .iter()
        .filter(|(_, definition)| follows(definition, alias, known, run))
        .filter_map(|(id, definition)| {
            let parts = sargs(definition, alias, known, own);
            let scan = IndexScan {
                id: *id,
                definition: definition.clone(),
                parts,
                spread: spread(definition, alias, known, own),
                reverse: false,
                covers: vec![],
            };
            (!scan.parts.is_empty()).then_some(scan)
        })
        .collect();
    scans.sort_by_key(|scan| (std::cmp::Reverse(score(scan)), scan.definition.keys.len()));
    scans
}

/// Equal values narrow more than ranges do, and ranges more than mere presence.
fn score(scan: &IndexScan) -> usize {
    let of_part = |part: &Vec<Sarg>| {
        let of_sarg = |sarg: &Sarg| match sarg {
            Sarg::Equal(_) | Sarg::IsNull => 8,
            Sarg::In(_) => 6,
            Sarg::Above(..) | Sarg::Below(..) | Sarg::Like(..) => 3,
            Sarg::IsKnown | Sarg::NotMissing => 1,
        };
        part.iter().map(of_sarg).max().unwrap_or(0)
    };
    scan.parts.iter().map(of_part).sum()
}

/// The best index alone, or with another that is asked for an equal value of something else.
fn with_second(best: &IndexScan, usable: &[IndexScan]) -> Access {
    let equal = |scan: &IndexScan| {
        scan.parts.len() == 1 && matches!(scan.parts[0][..], [Sarg::Equal(_), ..])
    };
    let differs = |scan: &&IndexScan| {
        equal(scan) && scan.definition.keys[0].expr != best.definition.keys[0].expr
    };
    match usable[1..].iter().find(differs) {
        Some(second) if equal(best) && !best.repeats() && !second.repeats() => {
            Access::Intersect(vec![best.clone(), second.clone()])
        }
        _ => Access::Index(best.clone()),
    }
}

/// A scan for each operand of an OR, if all have one.
fn union_of(
    indexes: &Loaded,
    alias: &Name,
    known: &[Expr],
    own: &[Name],
    run: &Run<'_>,
) -> Option<Vec<IndexScan>> {
    known.iter().find_map(|condition| {
        let Expr::Chain(Chain::Or, operands) = condition else { return None };
        if operands.len() > UNION_MAX {
            return None;
        }
        let scans = operands.iter().map(|operand| {
            let mut known = known.to_vec();
            known.extend(conjuncts(Some(operand)));
            candidates(indexes, alias, &known, own, run).into_iter().next()
        });
        scans.collect()
    })
}

fn is_id(expr: &Expr, alias: &Name) -> bool {
    let Expr::Field(of, name, _) = expr else { return false };
    let Expr::Call(function, args) = &**of else { return false };
    **name == *"id" && function.name == "META" && args[..] == [Expr::Ident(alias.clone())]
}

/// The keys, if a condition says what they are.
fn key_condition(condition: &Expr, alias: &Name, own: &[Name]) -> Option<Expr> {
    let Expr::Binary(operator, a, b) = condition else { return None };
    let (keys, distinct) = match operator {
        Binary::Equal if is_id(a, alias) => (b, false),
        Binary::Equal if is_id(b, alias) => (a, false),
        Binary::In if is_id(a, alias) => (b, true),
        _ => return None,
    };
    if mentions(keys, own) {
        return None;
    }
    let keys = (**keys).clone();
    // A key that is given twice is one document.
    let unique = functions::find("ARRAY_DISTINCT").expect("it is in the table");
    // An array is no key, so it is put into one where a single key is meant.
    Some(if distinct { Expr::Call(unique, vec![keys]) } else { Expr::Array(vec![keys]) })
}

/// Puts `to` in the place of the variable `from`.
pub(crate) fn rename(expr: &mut Expr, from: &str, to: &Name) {
    if let Expr::Ident(name) = expr {
        if **name == *from {
            *name = to.clone();
        }
        return;
    }
    let done = each_child(expr, &mut |child| {
        rename(child, from, to);
        Ok(())
    });
    debug_assert!(done.is_ok(), "renaming refuses nothing");
}

pub(crate) fn renamed(expr: &Expr, from: &str, to: &Name) -> Expr {
    let mut expr = expr.clone();
    rename(&mut expr, from, to);
    expr
}

/// Whether the condition of an index follows from what is known.
fn follows(definition: &Definition, alias: &Name, known: &[Expr], run: &Run<'_>) -> bool {
    let wanted: Vec<Expr> = definition.condition.iter().flat_map(|c| conjuncts(Some(c))).collect();
    wanted.iter().all(|wanted| {
        let wanted = renamed(wanted, SELF, alias);
        known.iter().any(|known| implies(known, &wanted, run))
    })
}

/// Whether `wanted` holds wherever `known` does.
fn implies(known: &Expr, wanted: &Expr, run: &Run<'_>) -> bool {
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
            let (Some(bound), Some(value)) = (literal(bound, run), literal(value, run)) else {
                return false;
            };
            bound_follows(*operator, &value, *wanted_operator, &bound)
        }
        _ => false,
    }
}

fn bound_follows(known: Binary, value: &Value, wanted: Binary, bound: &Value) -> bool {
    match (known, wanted) {
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
fn sargs(definition: &Definition, alias: &Name, known: &[Expr], own: &[Name]) -> Vec<Vec<Sarg>> {
    let mut parts = Vec::new();
    for key in &definition.keys {
        let expr = renamed(&key.expr, SELF, alias);
        let found: Vec<Sarg> = match key.array {
            None => known.iter().filter_map(|condition| sarg(&expr, condition, own)).collect(),
            Some(_) => known.iter().find_map(|c| array_sargs(&expr, c, own)).unwrap_or_default(),
        };
        if found.is_empty() {
            break;
        }
        parts.push(found);
    }
    parts
}

/// What tells in which partitions of an index the entries are, if equal values do.
fn spread(
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

/// What `condition` asks of `key`.
fn sarg(key: &Expr, condition: &Expr, own: &[Name]) -> Option<Sarg> {
    let free = |expr: &Expr| !mentions(expr, own);
    match condition {
        Expr::Binary(operator, a, b) if **a == *key && free(b) => {
            of_operator(*operator, (**b).clone())
        }
        Expr::Binary(operator, a, b) if **b == *key && free(a) => {
            of_operator(turned(*operator)?, (**a).clone())
        }
        Expr::Like(of, pattern, escape) if **of == *key && free(pattern) => {
            let escape = escape.as_deref().cloned();
            escape.iter().all(free).then(|| Sarg::Like((**pattern).clone(), escape.clone()))
        }
        Expr::Unary(Unary::IsNull, of) if **of == *key => Some(Sarg::IsNull),
        Expr::Unary(Unary::IsKnown, of) if **of == *key => Some(Sarg::IsKnown),
        Expr::Unary(Unary::Not, inner) => match &**inner {
            Expr::Unary(Unary::IsNull, of) if **of == *key => Some(Sarg::IsKnown),
            Expr::Unary(Unary::IsMissing, of) if **of == *key => Some(Sarg::NotMissing),
            _ => None,
        },
        _ => None,
    }
}

/// The operator with its operands exchanged.
fn turned(operator: Binary) -> Option<Binary> {
    Some(match operator {
        Binary::Equal => Binary::Equal,
        Binary::Less => Binary::Greater,
        Binary::LessOrEqual => Binary::GreaterOrEqual,
        Binary::Greater => Binary::Less,
        Binary::GreaterOrEqual => Binary::LessOrEqual,
        _ => return None,
    })
}

fn of_operator(operator: Binary, value: Expr) -> Option<Sarg> {
    Some(match operator {
        Binary::Equal => Sarg::Equal(value),
        Binary::In => Sarg::In(value),
        Binary::Greater => Sarg::Above(value, false),
        Binary::GreaterOrEqual => Sarg::Above(value, true),
        Binary::Less => Sarg::Below(value, false),
        Binary::LessOrEqual => Sarg::Below(value, true),
        _ => return None,
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

/// Reads an index in the wanted order, if it has it; then nothing has to be sorted.
pub(crate) fn take_order(scan: &mut Scan, order: &[OrderTerm]) -> bool {
    let alias = scan.alias.clone();
    let ScanSource::Keyspace { access: Access::Index(index), .. } = &mut scan.source else {
        return false;
    };
    if order.is_empty() || index.repeats() {
        return false;
    }
    let constant =
        |part: &Vec<Sarg>| part.iter().any(|sarg| matches!(sarg, Sarg::Equal(_) | Sarg::IsNull));
    let skipped = index.parts.iter().take_while(|part| constant(part)).count();
    let keys = &index.definition.keys;
    let mut at = skipped;
    let mut reverse = None;
    for term in order {
        let matches =
            |key: &nacre_sql::ast::IndexKey| renamed(&key.expr, SELF, &alias) == term.expr;
        // What is equal in all rows orders nothing.
        if keys[..skipped].iter().any(matches) {
            continue;
        }
        let Some(key) = keys.get(at).filter(|key| matches(key)) else { return false };
        let turned = key.descending != term.descending;
        let usual_nulls = term.nulls_last.is_none_or(|last| last == term.descending);
        if !usual_nulls || *reverse.get_or_insert(turned) != turned {
            return false;
        }
        at += 1;
    }
    index.reverse = reverse.unwrap_or(false);
    true
}
