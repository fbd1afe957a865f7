//! Functions that compare.

use super::{Function, MANY, open};
use crate::value::Value;

pub(super) const FUNCTIONS: &[Function] = &[
    open("GREATEST", 2, MANY, |args, _| Ok(known(args).max().cloned().unwrap_or(Value::Null))),
    open("LEAST", 2, MANY, |args, _| Ok(known(args).min().cloned().unwrap_or(Value::Null))),
];

fn known(args: &[Value]) -> impl Iterator<Item = &Value> {
    args.iter().filter(|value| value.is_known())
}
