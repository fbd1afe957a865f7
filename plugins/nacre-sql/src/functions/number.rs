//! Arithmetic, and functions of numbers.

use super::{Function, MANY, of_number, open, strict};
use crate::Value;
use std::f64::consts;

pub(super) const FUNCTIONS: &[Function] = &[
    strict("ABS", 1, 1, |args, _| {
        Ok(match &args[0] {
            Value::Int(number) => {
                number.checked_abs().map_or(Value::Float(-(*number as f64)), Value::Int)
            }
            Value::Float(number) => Value::Float(number.abs()),
            _ => Value::Null,
        })
    }),
    of_number!("ACOS", f64::acos),
    of_number!("ASIN", f64::asin),
    of_number!("ATAN", f64::atan),
    strict("ATAN2", 2, 2, |args, _| Ok(of_two(args, f64::atan2))),
    of_number!("CEIL", f64::ceil),
    of_number!("COS", f64::cos),
    of_number!("DEGREES", f64::to_degrees),
    open("E", 0, 0, |_, _| Ok(Value::Float(consts::E))),
    of_number!("EXP", f64::exp),
    of_number!("LN", f64::ln),
    of_number!("LOG", f64::log10),
    of_number!("FLOOR", f64::floor),
    open("INF", 0, 0, |_, _| Ok(Value::Float(f64::INFINITY))),
    open("NAN", 0, 0, |_, _| Ok(Value::Float(f64::NAN))),
    open("NEGINF", 0, 0, |_, _| Ok(Value::Float(f64::NEG_INFINITY))),
    open("POSINF", 0, 0, |_, _| Ok(Value::Float(f64::INFINITY))),
    open("PI", 0, 0, |_, _| Ok(Value::Float(consts::PI))),
    strict("POWER", 2, 2, |args, _| Ok(of_two(args, f64::powf))),
    strict("POW", 2, 2, |args, _| Ok(of_two(args, f64::powf))),
    of_number!("RADIANS", f64::to_radians),
    open("RANDOM", 0, 1, |args, context| {
        let bits = match args.first() {
            Some(Value::Missing) => return Ok(Value::Missing),
            Some(seed) if seed.as_i64().is_none() => return Ok(Value::Null),
            // A seed gives the same number every time.
            Some(seed) => scramble(seed.as_i64().unwrap_or_default() as u64),
            None => context.host.random(),
        };
        Ok(Value::Float((bits >> 11) as f64 / (1u64 << 53) as f64))
    }),
    strict("ROUND", 1, 2, |args, _| Ok(to_digits(args, f64::round_ties_even))),
    strict("ROUND_EVEN", 1, 2, |args, _| Ok(to_digits(args, f64::round_ties_even))),
    strict("ROUND_NEAREST", 1, 2, |args, _| Ok(to_digits(args, round_away))),
    of_number!("SIGN", |x| if x > 0.0 {
        1.0
    } else if x < 0.0 {
        -1.0
    } else {
        0.0
    }),
    of_number!("SIN", f64::sin),
    of_number!("SQRT", f64::sqrt),
    of_number!("TAN", f64::tan),
    of_number!("COT", |x| 1.0 / x.tan()),
    strict("TRUNC", 1, 2, |args, _| Ok(to_digits(args, f64::trunc))),
    strict("ADD", 2, MANY, |args, _| Ok(fold(args, add))),
    strict("SUB", 2, 2, |args, _| Ok(subtract(&args[0], &args[1]))),
    strict("MULT", 2, MANY, |args, _| Ok(fold(args, multiply))),
    strict("DIV", 2, 2, |args, _| Ok(divide(&args[0], &args[1]))),
    strict("IDIV", 2, 2, |args, _| {
        Ok(match (&args[0], &args[1]) {
            (Value::Int(a), Value::Int(b)) => a.checked_div(*b).map_or(Value::Null, Value::Int),
            (a, b) => match divide(a, b).as_f64() {
                Some(quotient) => Value::number(quotient.trunc()),
                None => Value::Null,
            },
        })
    }),
    strict("MOD", 2, 2, |args, _| Ok(remainder(&args[0], &args[1]))),
    strict("IMOD", 2, 2, |args, _| Ok(modulo(&args[0], &args[1]))),
    strict("NEG", 1, 1, |args, _| Ok(subtract(&Value::Int(0), &args[0]))),
];

fn scramble(seed: u64) -> u64 {
    // SplitMix64 (Steele, Lea, Flood 2014).
    let mut bits = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

fn fold(args: &[Value], operator: fn(&Value, &Value) -> Value) -> Value {
    args[1..].iter().fold(args[0].clone(), |a, b| operator(&a, b))
}

fn of_two(args: &[Value], compute: fn(f64, f64) -> f64) -> Value {
    match (args[0].as_f64(), args[1].as_f64()) {
        (Some(a), Some(b)) => Value::number(compute(a, b)),
        _ => Value::Null,
    }
}

fn round_away(number: f64) -> f64 {
    number.round()
}

/// Rounds to a number of digits after the decimal point; before it, if the number is negative.
fn to_digits(args: &[Value], round: fn(f64) -> f64) -> Value {
    let digits = match args.get(1) {
        None => 0,
        Some(digits) => match digits.as_i64() {
            Some(digits) => digits.clamp(-400, 400) as i32,
            None => return Value::Null,
        },
    };
    match &args[0] {
        Value::Int(number) if digits >= 0 => Value::Int(*number),
        number => {
            let Some(number) = number.as_f64() else { return Value::Null };
            let scale = 10f64.powi(digits.abs());
            if !scale.is_finite() || !number.is_finite() {
                return Value::number(if digits < 0 { 0.0 } else { number });
            }
            if digits < 0 {
                return Value::number(round(number / scale) * scale);
            }
            let scaled = number * scale;
            Value::number(if scaled.is_finite() { round(scaled) / scale } else { number })
        }
    }
}

fn unknown(a: &Value, b: &Value) -> Value {
    if a.is_missing() || b.is_missing() { Value::Missing } else { Value::Null }
}

fn arithmetic(
    a: &Value,
    b: &Value,
    exact: fn(i64, i64) -> Option<i64>,
    rounded: fn(f64, f64) -> f64,
) -> Value {
    if let (Value::Int(a), Value::Int(b)) = (a, b)
        && let Some(result) = exact(*a, *b)
    {
        return Value::Int(result);
    }
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => Value::number(rounded(a, b)),
        _ => unknown(a, b),
    }
}

/// Returns the sum; NULL if either value is not a number.
pub fn add(a: &Value, b: &Value) -> Value {
    arithmetic(a, b, i64::checked_add, |a, b| a + b)
}

/// Returns the difference; NULL if either value is not a number.
pub fn subtract(a: &Value, b: &Value) -> Value {
    arithmetic(a, b, i64::checked_sub, |a, b| a - b)
}

/// Returns the product; NULL if either value is not a number.
pub fn multiply(a: &Value, b: &Value) -> Value {
    arithmetic(a, b, i64::checked_mul, |a, b| a * b)
}

/// Returns the quotient; NULL for a division by 0.
pub fn divide(a: &Value, b: &Value) -> Value {
    if b.as_f64() == Some(0.0) {
        return unknown(a, &Value::Null);
    }
    let whole = |a: i64, b: i64| if a.checked_rem(b)? == 0 { a.checked_div(b) } else { None };
    arithmetic(a, b, whole, |a, b| a / b)
}

/// Returns the remainder of the integer parts, with the sign of the dividend; NULL for a division
/// by 0.
pub fn modulo(a: &Value, b: &Value) -> Value {
    let whole = |value: &Value| match value {
        Value::Float(number) => Value::number(number.trunc()),
        other => other.clone(),
    };
    remainder(&whole(a), &whole(b))
}

/// Returns the remainder with the sign of the dividend; NULL for a division by 0.
fn remainder(a: &Value, b: &Value) -> Value {
    if b.as_f64() == Some(0.0) {
        return unknown(a, &Value::Null);
    }
    arithmetic(a, b, i64::checked_rem, |a, b| a % b)
}
