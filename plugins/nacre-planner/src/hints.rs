//! The report on optimizer hints in EXPLAIN: followed, not followed, or invalid.

use crate::plan::{Access, IndexScan, Node, ScanSource, Strategy};
use crate::plan_context::PlanContext;
use crate::planner;
use nacre_sql::ast::{Block, Body, HintKind, OptimizerHint, Statement};
use nacre_sql::{Name, Result, Value};
use std::rc::Rc;

/// How a term is read and joined.
struct Found {
    alias: Name,
    indexes: Vec<Name>,
    is_hashed: Option<bool>,
}

/// Reports which hints were followed, and which were not; MISSING of a statement without any.
///
/// # Errors
/// As [`crate::plan()`].
pub fn report(statement: &Statement, context: &dyn PlanContext) -> Result<Value> {
    let Statement::Select(select) = statement else { return Ok(Value::Missing) };
    let mut hints = Vec::new();
    each_block(&select.body, &mut |block| hints.extend(block.optimizer_hints.iter().cloned()));
    if hints.is_empty() {
        return Ok(Value::Missing);
    }
    let mut found = Vec::new();
    each_term(&planner::plan(select, context)?.root, &mut found);
    let (mut followed, mut not_followed, mut invalid) = (Vec::new(), Vec::new(), Vec::new());
    for hint in &hints {
        let list = match hint.kind {
            HintKind::Invalid => &mut invalid,
            _ if is_followed(hint, &found) => &mut followed,
            _ => &mut not_followed,
        };
        list.push(Value::from(hint.text.as_str()));
    }
    let some = |list: Vec<Value>| if list.is_empty() { Value::Missing } else { list.into() };
    Ok(Value::object([
        ("hints_followed", some(followed)),
        ("hints_not_followed", some(not_followed)),
        ("invalid_hints", some(invalid)),
    ]))
}

fn is_followed(hint: &OptimizerHint, found: &[Found]) -> bool {
    let term = found.iter().find(|term| Some(&term.alias) == hint.alias.as_ref());
    match (hint.kind, term) {
        (HintKind::Ordered, _) => true,
        (HintKind::Index, Some(term)) => {
            let is_named = |index: &Name| hint.names.is_empty() || hint.names.contains(index);
            !term.indexes.is_empty() && term.indexes.iter().all(is_named)
        }
        (HintKind::UseHash, Some(term)) => term.is_hashed == Some(true),
        (HintKind::UseLoop, Some(term)) => term.is_hashed == Some(false),
        _ => false,
    }
}

fn each_block(body: &Body, visit: &mut dyn FnMut(&Block)) {
    match body {
        Body::Block(block) => visit(block),
        Body::Nested(select) => each_block(&select.body, visit),
        Body::Union(_, branches) => branches.iter().for_each(|branch| each_block(branch, visit)),
        Body::Set(_, _, left, right) => {
            each_block(left, visit);
            each_block(right, visit);
        }
    }
}

fn indexes_of(source: &ScanSource) -> Vec<Name> {
    let ScanSource::Keyspace { access, .. } = source else { return Vec::new() };
    let name = |index: &IndexScan| index.definition.name.clone();
    match access {
        Access::Index(index) => vec![name(index)],
        Access::Union(indexes) | Access::Intersect(indexes) => indexes.iter().map(name).collect(),
        Access::Primary(primary) => vec![primary.clone()],
        Access::Search(search) => vec![search.index.clone()],
        Access::Keys(_) | Access::Sequential => Vec::new(),
    }
}

fn each_term(node: &Rc<Node>, found: &mut Vec<Found>) {
    match &**node {
        Node::Scan(scan) => {
            let (alias, indexes) = (scan.alias.clone(), indexes_of(&scan.source));
            found.push(Found { alias, indexes, is_hashed: None });
        }
        Node::Join(_, join) => {
            let (scan, is_hashed) = match &join.strategy {
                Strategy::Nested(scan) | Strategy::Loop(scan) => (scan, false),
                Strategy::Hash(scan, ..) => (scan, true),
                Strategy::Unnest(_) => {
                    return node.input().iter().for_each(|n| each_term(n, found));
                }
            };
            let (alias, indexes) = (join.alias.clone(), indexes_of(&scan.source));
            found.push(Found { alias, indexes, is_hashed: Some(is_hashed) });
        }
        Node::Set(_, _, left, right) => {
            each_term(left, found);
            each_term(right, found);
        }
        Node::Union(_, branches) => branches.iter().for_each(|branch| each_term(branch, found)),
        _ => {}
    }
    if let Some(input) = node.input() {
        each_term(input, found);
    }
}
