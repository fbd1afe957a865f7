//! INFER: what documents look like. ADVISE: which index would help.

use crate::planner::conjuncts;
use crate::run::Run;
use crate::service::keyspace_of;
use nacre_sql::ast::{Binary, Body, Expr, FromTerm, Source, Statement};
use nacre_sql::{Name, Result, Value};
use std::collections::BTreeMap;

/// How many documents are looked at.
const SAMPLE: usize = 1000;

/// Describes the documents of a keyspace as a JSON schema.
pub(crate) fn infer(target: &FromTerm, run: &Run<'_>) -> Result<Value> {
    let keyspace = keyspace_of(target, run)?;
    let documents = run.store.scan(&keyspace, None, true, SAMPLE, &run.settings.consistency)?;
    let mut fields: BTreeMap<Name, (u64, BTreeMap<&'static str, u64>)> = BTreeMap::new();
    for document in &documents {
        let value = Value::parse(&document.body).unwrap_or(Value::Null);
        for (name, value) in value.as_object().into_iter().flatten() {
            let field = fields.entry(name.clone()).or_default();
            field.0 += 1;
            *field.1.entry(value.type_name()).or_default() += 1;
        }
    }
    let count = documents.len() as u64;
    let properties = fields.into_iter().map(|(name, (docs, kinds))| {
        let mut kinds: Vec<Value> = kinds.into_keys().map(Value::from).collect();
        let kind = if kinds.len() == 1 { kinds.remove(0) } else { kinds.into() };
        let share = docs as f64 * 100.0 / count.max(1) as f64;
        (
            name,
            Value::object([
                ("#docs", Value::Int(docs as i64)),
                ("%docs", Value::number(share)),
                ("type", kind),
            ]),
        )
    });
    let flavor = Value::object([
        ("#docs", Value::Int(count as i64)),
        ("$schema", "http://json-schema.org/draft-06/schema".into()),
        ("properties", Value::object(properties)),
        ("type", "object".into()),
    ]);
    Ok(Value::array(vec![flavor]))
}

/// Proposes an index of what a statement compares: equal values first, then one range.
pub(crate) fn advise(statement: &Statement) -> Value {
    let (term, condition) = match statement {
        Statement::Select(select) => match &select.body {
            Body::Block(block) => {
                (block.from.as_ref().map(|from| &from.first), block.condition.as_ref())
            }
            _ => (None, None),
        },
        Statement::Update(update) => (Some(&update.target), update.condition.as_ref()),
        Statement::Delete(delete) => (Some(&delete.target), delete.condition.as_ref()),
        _ => (None, None),
    };
    let Some(FromTerm { source: Source::Keyspace(path), alias, .. }) = term else {
        return Value::object([("advice", Value::from("No index is proposed."))]);
    };
    let mut equal = Vec::new();
    let mut ranges = Vec::new();
    for condition in conjuncts(condition) {
        if let Expr::Binary(operator, of, _) = &condition
            && matches!(&**of, Expr::Field(base, ..) if **base == Expr::Ident(alias.clone()))
        {
            let name = of.implicit_name().unwrap_or_default();
            match operator {
                Binary::Equal | Binary::In => equal.push(format!("`{name}`")),
                Binary::Less | Binary::LessOrEqual | Binary::Greater | Binary::GreaterOrEqual => {
                    ranges.push(format!("`{name}`"));
                }
                _ => {}
            }
        }
    }
    equal.extend(ranges);
    let mut keys: Vec<String> = Vec::new();
    for key in equal {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    if keys.is_empty() {
        return Value::object([("advice", Value::from("No index is proposed."))]);
    }
    let name = format!("adv_{}", keys.join("_").replace('`', ""));
    let text = format!("CREATE INDEX {name} ON {path}({})", keys.join(","));
    let index = Value::object([("index_statement", Value::from(text))]);
    let recommended = Value::object([("indexes", Value::array(vec![index]))]);
    Value::object([("#operator", "Advise".into()), ("recommended_indexes", recommended)])
}
