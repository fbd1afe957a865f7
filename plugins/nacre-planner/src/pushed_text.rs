//! Groups of index entries as EXPLAIN shows them: `index_group_aggs` of the scan. Source: Couchbase documentation, grouping and
//! aggregate pushdown.

use crate::plan::{Access, Group, IndexScan, Pushed, Scan, ScanSource, text};
use nacre_cost::renamed;
use nacre_sql::index::SELF;
use nacre_sql::{Name, Value};
use std::collections::BTreeSet;

/// The position of what is no part of a key.
const NO_PART: i64 = -1;

/// A scan with the groups that are made of its entries.
pub(crate) fn with_groups(operator: &Value, group: &Group, pushed: &Pushed, scan: &Scan) -> Value {
    let ScanSource::Keyspace { access: Access::Index(index), .. } = &scan.source else {
        return operator.clone();
    };
    let fields = operator.as_object().into_iter().flatten();
    let fields = fields.map(|(name, value)| (name.clone(), value.clone()));
    let groups = (Name::from("index_group_aggs"), groups(group, pushed, index, &scan.alias));
    Value::object(fields.chain([groups]))
}

fn groups(group: &Group, pushed: &Pushed, index: &IndexScan, alias: &Name) -> Value {
    let number = |number: usize| Value::Int(number as i64);
    let cover = |at: usize| {
        text(format!("cover ({})", renamed(&index.definition.keys[at].expr, SELF, alias)))
    };
    // Numbers of what is computed go on behind those of the parts and of the document's key.
    let mut id = index.definition.keys.len();
    let mut next_id = || {
        id += 1;
        number(id)
    };
    let keys = pushed.keys.iter().map(|at| {
        Value::object([
            ("depends", vec![number(*at)].into()),
            ("expr", cover(*at)),
            ("id", next_id()),
            ("keypos", number(*at)),
        ])
    });
    let keys: Vec<Value> = keys.collect();
    let aggregates = group.aggregates.iter().zip(&pushed.parts).map(|((_, aggregate), part)| {
        let (depends, expr, position) = match part {
            Some(at) => (vec![number(*at)].into(), cover(*at), number(*at)),
            None => (Value::Missing, "1".into(), Value::Int(NO_PART)),
        };
        Value::object([
            ("aggregate", aggregate.name.to_uppercase().into()),
            ("depends", depends),
            ("distinct", if aggregate.distinct { true.into() } else { Value::Missing }),
            ("expr", expr),
            ("id", next_id()),
            ("keypos", position),
        ])
    });
    let aggregates: Vec<Value> = aggregates.collect();
    let depends: BTreeSet<usize> =
        pushed.keys.iter().copied().chain(pushed.parts.iter().copied().flatten()).collect();
    let list = |all: Vec<Value>| if all.is_empty() { Value::Missing } else { all.into() };
    Value::object([
        ("aggregates", list(aggregates)),
        ("depends", depends.into_iter().map(number).collect::<Vec<_>>().into()),
        ("group", list(keys)),
    ])
}
