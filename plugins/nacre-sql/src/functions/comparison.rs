//! Comparison functions.

use super::{Function, MANY, open};
use crate::Value;

pub(super) const FUNCTIONS: &[Function] = &[
    open("GREATEST", 2, MANY, |args, _| Ok(known(args).max().cloned().unwrap_or(Value::Null))),
    open("SUCCESSOR", 1, 1, |args, _| Ok(successor(&args[0]))),
    open("LEAST", 2, MANY, |args, _| Ok(known(args).min().cloned().unwrap_or(Value::Null))),
];

fn known(args: &[Value]) -> impl Iterator<Item = &Value> {
    args.iter().filter(|value| value.is_known())
}

/// Returns the smallest value above another, as far as there is one.
fn successor(value: &Value) -> Value {
    match value {
        Value::Missing => Value::Null,
        Value::Null => Value::Bool(false),
        Value::Bool(false) => Value::Bool(true),
        Value::Bool(true) => Value::Float(f64::MIN),
        Value::Int(number) if number.abs() < 1 << 53 => Value::Float((*number as f64).next_up()),
        Value::Int(number) => number.checked_add(1).map_or("".into(), Value::Int),
        Value::Float(number) if *number >= f64::MAX => "".into(),
        Value::Float(number) => Value::Float(number.next_up()),
        Value::String(text) => format!("{text}\0").into(),
        Value::Array(elements) => [elements.as_slice(), &[Value::Null]].concat().into(),
        Value::Object(fields) => {
            let mut fields = (**fields).clone();
            let last = fields.keys().max().map_or(String::new(), |name| format!("{name}\0"));
            fields.insert(last.into(), Value::Null);
            Value::Object(std::sync::Arc::new(fields))
        }
    }
}
