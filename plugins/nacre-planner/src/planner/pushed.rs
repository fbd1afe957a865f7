//! Groups of index entries: keys and aggregates that an index holds are taken from its entries, so that no rows are made.
//!
//! ```text
//! SELECT city, COUNT(*), MAX(age) FROM people WHERE city > "M" GROUP BY city        index (city, age)
//! ```
//!
//! All that the condition says has to be asked of the index, as nothing else looks at the entries.

use super::conjuncts;
use crate::plan::{Access, IndexScan, Node, Pushed, Sarg, ScanSource};
use nacre_cost::{renamed, sarg};
use nacre_sql::Name;
use nacre_sql::ast::{Aggregate, Bound, Expr};
use nacre_sql::index::SELF;
use std::rc::Rc;

/// Aggregates that are computed from entries.
const AGGREGATES: [&str; 7] = ["avg", "count", "countn", "max", "mean", "min", "sum"];

/// How groups are made of the entries that `root` reads, if they can be; with the scan of these.
pub(super) fn of(
    root: &Rc<Node>,
    keys: &[(Name, Expr, Option<Name>)],
    aggregates: &[(Name, Aggregate)],
) -> Option<(Rc<Node>, Pushed)> {
    let (input, condition) = match &**root {
        Node::Filter(input, condition) => (input, Some(condition)),
        _ => (root, None),
    };
    let Node::Scan(scan) = &**input else { return None };
    let ScanSource::Keyspace { access: Access::Index(index), covering: true, .. } = &scan.source
    else {
        return None;
    };
    // What has several entries of a document counts it several times.
    if index.repeats() || !scan.attributes.is_empty() {
        return None;
    }
    let parts = parts_of(index, &scan.alias);
    let place = |expr: &Expr| parts.iter().position(|part| part == expr);
    let keys: Option<Vec<usize>> = keys.iter().map(|(_, key, _)| place(key)).collect();
    let keys = keys?;
    let of_aggregates: Option<Vec<Option<usize>>> =
        aggregates.iter().map(|(_, aggregate)| part_of(aggregate, &place)).collect();
    let of_aggregates = of_aggregates?;
    let own = [scan.alias.clone()];
    let is_asked = |condition: &Expr| is_asked(condition, index, &parts, &own);
    if !conjuncts(condition).iter().all(is_asked) {
        return None;
    }
    let leading = leading(index, &keys, aggregates, &of_aggregates);
    Some((Rc::clone(input), Pushed { keys, parts: of_aggregates, leading }))
}

/// What stands for the parts of an index in a block over its entries.
fn parts_of(index: &IndexScan, alias: &Name) -> Vec<Expr> {
    let parts = index.definition.keys.iter().zip(&index.covers);
    let part = |(key, name): (&nacre_sql::ast::IndexKey, &Name)| {
        let of = renamed(&key.expr, SELF, alias);
        Expr::Bound(Box::new(Bound { name: name.clone(), of, cover: true }))
    };
    parts.map(part).collect()
}

/// The part that an aggregate is of; none of one that counts entries. The outer none says that it is of something else.
fn part_of(aggregate: &Aggregate, place: &dyn Fn(&Expr) -> Option<usize>) -> Option<Option<usize>> {
    let is_plain = aggregate.filter.is_none() && aggregate.over.is_none();
    if !is_plain || !AGGREGATES.contains(&&*aggregate.name) {
        return None;
    }
    match &aggregate.args[..] {
        [] => Some(None),
        [Expr::Literal(value)]
            if value.is_known() && &*aggregate.name == "count" && !aggregate.distinct =>
        {
            Some(None)
        }
        [of] => place(of).map(Some),
        _ => None,
    }
}

/// Whether a condition holds for all entries that are read, as it is asked of the index, and for no others.
fn is_asked(condition: &Expr, index: &IndexScan, parts: &[Expr], own: &[Name]) -> bool {
    for (part, sargs) in parts.iter().zip(&index.parts) {
        // What a pattern begins with says less than the pattern.
        let asked = sarg(part, condition, own).filter(|asked| !matches!(asked, Sarg::Like(..)));
        if asked.is_some_and(|asked| sargs.contains(&asked)) {
            return true;
        }
        // Only where a part has one value, the next one is asked for.
        if !has_one_value(sargs) {
            return false;
        }
    }
    false
}

fn has_one_value(sargs: &[Sarg]) -> bool {
    sargs.iter().any(|sarg| matches!(sarg, Sarg::Equal(_) | Sarg::IsNull | Sarg::IsMissing))
}

/// How many first parts are the same in all entries of a group, if all aggregates are known from the first entries of these: the
/// others need not be read.
fn leading(
    index: &IndexScan,
    keys: &[usize],
    aggregates: &[(Name, Aggregate)],
    parts: &[Option<usize>],
) -> Option<usize> {
    let all = &index.definition.keys;
    let is_fixed = |at: &usize| {
        keys.contains(at) || index.parts.get(*at).is_some_and(|sargs| has_one_value(sargs))
    };
    let count = (0..all.len()).take_while(is_fixed).count();
    if index.reverse || keys.is_empty() || keys.iter().any(|key| *key >= count) {
        return None;
    }
    let is_first = |((_, aggregate), part): (&(Name, Aggregate), &Option<usize>)| {
        let first = match all.get(count) {
            Some(key) if key.descending => "max",
            _ => "min",
        };
        *part == Some(count) && &*aggregate.name == first
    };
    aggregates.iter().zip(parts).all(is_first).then_some(count)
}
