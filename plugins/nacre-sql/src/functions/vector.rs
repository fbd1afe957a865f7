//! Functions of vectors: arrays of numbers, or 32-bit floats in base64.

use super::{Function, open, strict};
use crate::{Error, Result, Value};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Maximum number of dimensions. Source: Couchbase.
const DIMENSIONS_MAX: usize = 4096;

pub(super) const FUNCTIONS: &[Function] = &[
    open("ISVECTOR", 3, 3, |args, _| Ok(is_vector(args))),
    strict("VECTOR_DISTANCE", 3, 3, |args, _| distance(args)),
    // An index only chooses documents: their order is that of the exact distance.
    strict("APPROX_VECTOR_DISTANCE", 3, 6, |args, _| distance(args)),
    strict("ENCODE_VECTOR", 1, 2, |args, _| Ok(encode(args))),
    strict("DECODE_VECTOR", 1, 2, |args, _| Ok(decode(args))),
    strict("NORMALIZE_VECTOR", 1, 1, |args, _| Ok(normalize(&args[0]))),
];

/// Returns the numbers of a vector; `None` if it is empty or has other elements.
fn numbers(value: &Value) -> Option<Vec<f64>> {
    let elements = value.as_array().filter(|all| (1..=DIMENSIONS_MAX).contains(&all.len()))?;
    elements.iter().map(Value::as_f64).collect()
}

/// Returns true if a value is a vector with this number of dimensions and this format; the only format is
/// `float32`.
fn is_vector(args: &[Value]) -> Value {
    if args.iter().any(Value::is_missing) {
        return Value::Missing;
    }
    let (Some(dimensions), Some(format)) = (args[1].as_i64(), args[2].as_str()) else {
        return Value::Null;
    };
    let fits = |numbers: Vec<f64>| {
        numbers.len() as i64 == dimensions
            && numbers.iter().all(|number| (*number as f32).is_finite())
    };
    (format.eq_ignore_ascii_case("float32") && numbers(&args[0]).is_some_and(fits)).into()
}

/// Returns the distance of two vectors by a metric; smaller is nearer. NULL if they are not vectors of equal
/// length.
fn distance(args: &[Value]) -> Result<Value> {
    let Some(metric) = args[2].as_str() else { return Ok(Value::Null) };
    let (Some(a), Some(b)) = (numbers(&args[0]), numbers(&args[1])) else {
        return Ok(Value::Null);
    };
    if a.len() != b.len() {
        return Ok(Value::Null);
    }
    let pairs = || a.iter().zip(&b);
    let dot = || pairs().map(|(a, b)| a * b).sum::<f64>();
    let squares = || pairs().map(|(a, b)| (a - b) * (a - b)).sum::<f64>();
    Ok(match metric.to_ascii_uppercase().as_str() {
        "L2" | "EUCLIDEAN" => Value::number(squares().sqrt()),
        "L2_SQUARED" | "EUCLIDEAN_SQUARED" => Value::number(squares()),
        "DOT" => Value::number(-dot()),
        "COSINE" => {
            let length = |all: &[f64]| all.iter().map(|number| number * number).sum::<f64>().sqrt();
            let lengths = length(&a) * length(&b);
            if lengths == 0.0 { Value::Null } else { Value::number(1.0 - dot() / lengths) }
        }
        _ => return Err(Error::execution(format!("there is no vector metric {metric}"))),
    })
}

/// Returns true for big-endian byte order; `None` if the argument is not a boolean.
fn is_big_endian(args: &[Value]) -> Option<bool> {
    match args.get(1) {
        None => Some(false),
        Some(Value::Bool(big)) => Some(*big),
        Some(_) => None,
    }
}

fn encode(args: &[Value]) -> Value {
    let (Some(numbers), Some(big)) = (numbers(&args[0]), is_big_endian(args)) else {
        return Value::Null;
    };
    let bytes = numbers.iter().flat_map(|number| {
        let number = *number as f32;
        if big { number.to_be_bytes() } else { number.to_le_bytes() }
    });
    STANDARD.encode(bytes.collect::<Vec<u8>>()).into()
}

fn decode(args: &[Value]) -> Value {
    let (Some(text), Some(big)) = (args[0].as_str(), is_big_endian(args)) else {
        return Value::Null;
    };
    let Ok(bytes) = STANDARD.decode(text) else { return Value::Null };
    let (chunks, rest) = bytes.as_chunks::<4>();
    if !rest.is_empty() {
        return Value::Null;
    }
    let number = |bytes: &[u8; 4]| {
        let number = if big { f32::from_be_bytes(*bytes) } else { f32::from_le_bytes(*bytes) };
        Value::number(f64::from(number))
    };
    chunks.iter().map(number).collect::<Vec<_>>().into()
}

/// Returns the vector of length 1 in the same direction.
fn normalize(value: &Value) -> Value {
    let Some(numbers) = numbers(value) else { return Value::Null };
    let length = numbers.iter().map(|number| number * number).sum::<f64>().sqrt();
    if length == 0.0 || !length.is_finite() {
        return Value::Null;
    }
    numbers.iter().map(|number| Value::number(number / length)).collect::<Vec<_>>().into()
}
