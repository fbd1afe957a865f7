//! Functions of the 64 bits of an integer. Bits are numbered from 1, the lowest.

use super::{Function, MANY, strict};
use crate::Value;

pub(super) const FUNCTIONS: &[Function] = &[
    strict("BITAND", 2, MANY, |args, _| Ok(fold(args, |a, b| a & b))),
    strict("BITOR", 2, MANY, |args, _| Ok(fold(args, |a, b| a | b))),
    strict("BITXOR", 2, MANY, |args, _| Ok(fold(args, |a, b| a ^ b))),
    strict("BITNOT", 1, 1, |args, _| {
        Ok(args[0].as_i64().map_or(Value::Null, |bits| (!bits).into()))
    }),
    strict("BITSHIFT", 2, 3, |args, _| Ok(shift(args))),
    strict("BITSET", 2, 2, |args, _| Ok(with_mask(args, |bits, mask| (bits | mask).into()))),
    strict("BITCLEAR", 2, 2, |args, _| Ok(with_mask(args, |bits, mask| (bits & !mask).into()))),
    strict("BITTEST", 2, 3, |args, _| Ok(test(args))),
    strict("ISBITSET", 2, 3, |args, _| Ok(test(args))),
];

fn fold(args: &[Value], operator: fn(i64, i64) -> i64) -> Value {
    let bits: Option<Vec<i64>> = args.iter().map(Value::as_i64).collect();
    bits.and_then(|bits| bits.into_iter().reduce(operator)).map_or(Value::Null, Value::Int)
}

/// Shifts to the left, or to the right by a negative distance; rotates if the third argument is
/// TRUE.
fn shift(args: &[Value]) -> Value {
    let (Some(bits), Some(by)) = (args[0].as_i64(), args[1].as_i64()) else { return Value::Null };
    match args.get(2) {
        Some(Value::Bool(true)) => Value::Int(bits.rotate_left(by.rem_euclid(64) as u32)),
        None | Some(Value::Bool(false)) => {
            let distance = by.unsigned_abs();
            Value::Int(match (by >= 0, distance < 64) {
                (_, false) => 0,
                (true, true) => bits << distance,
                // The shift is logical: zeros are shifted in, even for negative numbers.
                (false, true) => (bits as u64 >> distance) as i64,
            })
        }
        _ => Value::Null,
    }
}

/// Returns the mask of one position, or of an array of positions.
fn mask(positions: &Value) -> Option<i64> {
    let positions = positions.as_array().unwrap_or(std::slice::from_ref(positions));
    positions.iter().try_fold(0, |mask, position| match position.as_i64() {
        Some(position @ 1..=64) => Some(mask | 1i64 << (position - 1)),
        _ => None,
    })
}

fn with_mask(args: &[Value], compute: fn(i64, i64) -> Value) -> Value {
    match (args[0].as_i64(), mask(&args[1])) {
        (Some(bits), Some(mask)) => compute(bits, mask),
        _ => Value::Null,
    }
}

fn test(args: &[Value]) -> Value {
    let all = match args.get(2) {
        None => false,
        Some(Value::Bool(all)) => *all,
        Some(_) => return Value::Null,
    };
    match (args[0].as_i64(), mask(&args[1])) {
        (Some(bits), Some(mask)) if all => (bits & mask == mask).into(),
        (Some(bits), Some(mask)) => (bits & mask != 0).into(),
        _ => Value::Null,
    }
}
