//! Functions that choose between values.

use super::{Function, MANY, open};
use crate::Value;

pub(super) const FUNCTIONS: &[Function] = &[
    open("IFMISSING", 2, MANY, |args, _| Ok(first(args, |value| !value.is_missing()))),
    open("IFNULL", 2, MANY, |args, _| Ok(first(args, |value| !matches!(value, Value::Null)))),
    open("IFMISSINGORNULL", 2, MANY, |args, _| Ok(first(args, Value::is_known))),
    open("COALESCE", 1, MANY, |args, _| Ok(first(args, Value::is_known))),
    open("NVL", 2, 2, |args, _| Ok(first(args, Value::is_known))),
    open("NVL2", 3, 3, |args, _| Ok(args[if args[0].is_known() { 1 } else { 2 }].clone())),
    open("MISSINGIF", 2, 2, |args, _| Ok(unless_equal(args, Value::Missing))),
    open("NULLIF", 2, 2, |args, _| Ok(unless_equal(args, Value::Null))),
    open("NANIF", 2, 2, |args, _| Ok(unless_equal(args, Value::Float(f64::NAN)))),
    open("POSINFIF", 2, 2, |args, _| Ok(unless_equal(args, Value::Float(f64::INFINITY)))),
    open("NEGINFIF", 2, 2, |args, _| Ok(unless_equal(args, Value::Float(f64::NEG_INFINITY)))),
    open("IFINF", 2, MANY, |args, _| Ok(first_number(args, |number| !number.is_infinite()))),
    open("IFNAN", 2, MANY, |args, _| Ok(first_number(args, |number| !number.is_nan()))),
    open("IFNANORINF", 2, MANY, |args, _| Ok(first_number(args, f64::is_finite))),
    open("IFPOSINF", 2, MANY, |args, _| Ok(first_number(args, |number| number != f64::INFINITY))),
    open("IFNEGINF", 2, MANY, |args, _| {
        Ok(first_number(args, |number| number != f64::NEG_INFINITY))
    }),
    open("DECODE", 3, MANY, |args, _| {
        // NULL and MISSING are compared like other values.
        let mut rest = args[1..].chunks_exact(2);
        let found = rest.find(|pair| pair[0] == args[0]).map(|pair| pair[1].clone());
        let default = if args.len() % 2 == 0 { args[args.len() - 1].clone() } else { Value::Null };
        Ok(found.unwrap_or(default))
    }),
];

/// Returns the first argument that satisfies `wanted`; NULL if there is none.
fn first(args: &[Value], wanted: fn(&Value) -> bool) -> Value {
    args.iter().find(|value| wanted(value)).cloned().unwrap_or(Value::Null)
}

/// Returns the first number that satisfies `wanted`; NULL if another value comes first.
fn first_number(args: &[Value], wanted: fn(f64) -> bool) -> Value {
    for arg in args {
        // MISSING is skipped.
        match arg.as_f64() {
            Some(number) if wanted(number) => return arg.clone(),
            Some(_) => {}
            None if arg.is_missing() => {}
            None => return Value::Null,
        }
    }
    Value::Null
}

/// Returns the first argument, or `instead` if both are equal.
fn unless_equal(args: &[Value], instead: Value) -> Value {
    match args[0].equals(&args[1]) {
        Value::Bool(true) => instead,
        Value::Bool(_) => args[0].clone(),
        unknown => unknown,
    }
}
