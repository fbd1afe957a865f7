//! Functions of arrays.

use super::{Function, MANY, RESULT_MAX, number, of_array, open, strict, too_large};
use crate::env::Context;
use crate::{Result, Value, position};
use std::collections::BTreeMap;

pub(super) const FUNCTIONS: &[Function] = &[
    open("ARRAY_APPEND", 2, MANY, |args, _| Ok(grown(args, |elements, new| elements.extend(new)))),
    open("ARRAY_PUT", 2, MANY, |args, _| {
        Ok(grown(args, |elements, new| {
            for value in new {
                if !elements.contains(&value) {
                    elements.push(value);
                }
            }
        }))
    }),
    open("ARRAY_PREPEND", 2, MANY, |args, _| {
        let mut turned: Vec<Value> = args.to_vec();
        turned.rotate_right(1);
        Ok(grown(&turned, |elements, new| {
            elements.splice(0..0, new);
        }))
    }),
    open("ARRAY_INSERT", 3, MANY, array_insert),
    strict("ARRAY_AVG", 1, 1, |args, _| Ok(average(&args[0]))),
    open("ARRAY_BINARY_SEARCH", 2, 2, |args, _| {
        if args[0].is_missing() {
            return Ok(Value::Missing);
        }
        // NULL can be an element, MISSING cannot.
        Ok(args[0].as_array().map_or(Value::Null, |elements| {
            let at = elements.partition_point(|element| *element < args[1]);
            let is_there = !args[1].is_missing() && elements.get(at) == Some(&args[1]);
            Value::Int(if is_there { at as i64 } else { -1 })
        }))
    }),
    strict("ARRAY_CONCAT", 2, MANY, |args, _| {
        let arrays: Option<Vec<&[Value]>> = args.iter().map(Value::as_array).collect();
        let Some(arrays) = arrays else { return Ok(Value::Null) };
        let length: usize = arrays.iter().map(|array| array.len()).sum();
        if length * size_of::<Value>() > RESULT_MAX {
            return Err(too_large());
        }
        Ok(arrays.concat().into())
    }),
    strict("ARRAY_CONTAINS", 2, 2, |args, _| {
        Ok(args[0].as_array().map_or(Value::Null, |elements| elements.contains(&args[1]).into()))
    }),
    strict("ARRAY_CONTAINS_ALL", 2, 2, |args, _| {
        let Some(elements) = args[0].as_array() else { return Ok(Value::Null) };
        let wanted = args[1].as_array().unwrap_or(std::slice::from_ref(&args[1]));
        let has = |value: &Value| elements.iter().any(|element| value.equals(element).truth());
        Ok(wanted.iter().all(has).into())
    }),
    strict("ARRAY_CONTAINS_ANY", 2, 2, |args, _| {
        let Some(elements) = args[0].as_array() else { return Ok(Value::Null) };
        let wanted = args[1].as_array().unwrap_or(std::slice::from_ref(&args[1]));
        let has = |value: &Value| elements.iter().any(|element| value.equals(element).truth());
        Ok(wanted.iter().any(has).into())
    }),
    of_array!("ARRAY_COUNT", |elements| (elements.iter().filter(|e| e.is_known()).count() as i64)
        .into()),
    of_array!("ARRAY_DISTINCT", |elements| unique(elements).into()),
    strict("ARRAY_FLATTEN", 2, 2, |args, _| {
        Ok(match (&args[0], args[1].as_i64()) {
            (Value::Array(_), Some(depth)) => {
                let mut out = Vec::new();
                flatten(&args[0], depth, &mut out);
                out.into()
            }
            _ => Value::Null,
        })
    }),
    of_array!("ARRAY_IFNULL", |elements| {
        elements.iter().find(|element| element.is_known()).cloned().unwrap_or(Value::Null)
    }),
    strict("ARRAY_INTERSECT", 2, MANY, |args, _| {
        sets(args, |first, others| {
            first.retain(|value| others.iter().all(|other| other.contains(value)));
        })
    }),
    strict("ARRAY_EXCEPT", 2, 2, |args, _| {
        sets(args, |first, others| first.retain(|value| !others[0].contains(value)))
    }),
    strict("ARRAY_UNION", 2, MANY, |args, _| {
        sets(args, |first, others| first.extend(others.concat()))
    }),
    strict("ARRAY_SYMDIFF", 2, MANY, |args, _| Ok(symmetric_difference(args, |count| count == 1))),
    strict("ARRAY_SYMDIFF1", 2, MANY, |args, _| Ok(symmetric_difference(args, |count| count == 1))),
    strict("ARRAY_SYMDIFFN", 2, MANY, |args, _| {
        Ok(symmetric_difference(args, |count| count % 2 == 1))
    }),
    of_array!("ARRAY_LENGTH", |elements| (elements.len() as i64).into()),
    of_array!("ARRAY_MAX", |elements| {
        elements.iter().filter(|e| e.is_known()).max().cloned().unwrap_or(Value::Null)
    }),
    of_array!("ARRAY_MIN", |elements| {
        elements.iter().filter(|e| e.is_known()).min().cloned().unwrap_or(Value::Null)
    }),
    strict("ARRAY_MOVE", 3, 3, |args, _| {
        Ok(with_positions(args, |elements, from, to| {
            let moved = elements.remove(from);
            elements.insert(to, moved);
        }))
    }),
    strict("ARRAY_SWAP", 3, 3, |args, _| {
        Ok(with_positions(args, |elements, a, b| elements.swap(a, b)))
    }),
    strict("ARRAY_POSITION", 2, 2, |args, _| {
        Ok(args[0].as_array().map_or(Value::Null, |elements| {
            let at = elements.iter().position(|element| *element == args[1]);
            Value::Int(at.map_or(-1, |at| at as i64))
        }))
    }),
    strict("ARRAY_RANGE", 2, 3, array_range),
    open("ARRAY_REMOVE", 2, MANY, |args, _| {
        Ok(grown(args, |elements, unwanted| elements.retain(|element| !unwanted.contains(element))))
    }),
    open("ARRAY_REPEAT", 2, 2, |args, _| match (&args[0], args[1].as_i64()) {
        (Value::Missing, _) => Ok(Value::Missing),
        (_, None) => Ok(if args[1].is_missing() { Value::Missing } else { Value::Null }),
        (_, Some(count)) if count < 0 => Ok(Value::Null),
        (value, Some(count)) => {
            // `usize` has 32 bits in the sandbox.
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            if count.saturating_mul(value.size_bytes()) > RESULT_MAX {
                return Err(too_large());
            }
            Ok(vec![value.clone(); count].into())
        }
    }),
    strict("ARRAY_REPLACE", 3, 4, array_replace),
    open("ARRAY_REPLACE_EQUIVALENT", 3, 4, |args, context| {
        if args.iter().any(Value::is_missing) {
            Ok(Value::Missing)
        } else {
            array_replace(args, context)
        }
    }),
    of_array!("ARRAY_REVERSE", |elements| {
        elements.iter().rev().cloned().collect::<Vec<_>>().into()
    }),
    of_array!("ARRAY_SORT", |elements| {
        let mut sorted = elements.to_vec();
        sorted.sort();
        sorted.into()
    }),
    of_array!("ARRAY_STAR", star),
    of_array!("ARRAY_SUM", |elements| total(elements).0),
];

/// Returns the array in the first argument, changed by the other arguments.
fn grown(args: &[Value], change: impl Fn(&mut Vec<Value>, Vec<Value>)) -> Value {
    if args.iter().any(Value::is_missing) {
        return Value::Missing;
    }
    let Some(elements) = args[0].as_array() else { return Value::Null };
    let mut elements = elements.to_vec();
    change(&mut elements, args[1..].to_vec());
    elements.into()
}

fn array_insert(args: &[Value], _: &Context<'_>) -> Result<Value> {
    if args.iter().any(Value::is_missing) {
        return Ok(Value::Missing);
    }
    let (Some(elements), Some(at)) = (args[0].as_array(), args[1].as_i64()) else {
        return Ok(Value::Null);
    };
    // The position after the last element is also valid.
    let place = if at < 0 { at.checked_add(elements.len() as i64) } else { Some(at) };
    let Some(at) = place.and_then(|at| usize::try_from(at).ok()).filter(|at| *at <= elements.len())
    else {
        return Ok(Value::Null);
    };
    let mut elements = elements.to_vec();
    elements.splice(at..at, args[2..].to_vec());
    Ok(elements.into())
}

/// Returns the sum of the numbers among `elements`, and their count.
fn total(elements: &[Value]) -> (Value, usize) {
    let numbers: Vec<&Value> =
        elements.iter().filter(|element| element.as_f64().is_some()).collect();
    (numbers.iter().fold(Value::Int(0), |sum, n| number::add(&sum, n)), numbers.len())
}

fn average(array: &Value) -> Value {
    let Some(elements) = array.as_array() else { return Value::Null };
    let (sum, count) = total(elements);
    number::divide(&sum, &Value::Int(count as i64))
}

/// Returns the distinct values in the order of their first occurrence.
fn unique(elements: &[Value]) -> Vec<Value> {
    let mut seen = std::collections::BTreeSet::new();
    elements.iter().filter(|element| seen.insert((*element).clone())).cloned().collect()
}

fn flatten(value: &Value, depth: i64, out: &mut Vec<Value>) {
    for element in value.as_array().unwrap_or_default() {
        if depth != 0 && element.as_array().is_some() {
            flatten(element, depth - 1, out);
        } else {
            out.push(element.clone());
        }
    }
}

fn sets(args: &[Value], combine: fn(&mut Vec<Value>, &[Vec<Value>])) -> Result<Value> {
    let arrays: Option<Vec<Vec<Value>>> =
        args.iter().map(|arg| arg.as_array().map(<[Value]>::to_vec)).collect();
    Ok(arrays.map_or(Value::Null, |mut arrays| {
        let mut first = arrays.remove(0);
        combine(&mut first, &arrays);
        unique(&first).into()
    }))
}

fn symmetric_difference(args: &[Value], wanted: fn(usize) -> bool) -> Value {
    let mut counts: BTreeMap<Value, usize> = BTreeMap::new();
    for arg in args {
        let Some(elements) = arg.as_array() else { return Value::Null };
        for value in unique(elements) {
            *counts.entry(value).or_default() += 1;
        }
    }
    let kept = counts.into_iter().filter(|(_, count)| wanted(*count)).map(|(value, _)| value);
    kept.collect::<Vec<_>>().into()
}

fn with_positions(args: &[Value], change: fn(&mut Vec<Value>, usize, usize)) -> Value {
    let (Some(elements), Some(a), Some(b)) =
        (args[0].as_array(), args[1].as_i64(), args[2].as_i64())
    else {
        return Value::Null;
    };
    let (Some(a), Some(b)) = (position(a, elements.len()), position(b, elements.len())) else {
        return Value::Null;
    };
    let mut elements = elements.to_vec();
    change(&mut elements, a, b);
    elements.into()
}

fn array_range(args: &[Value], context: &Context<'_>) -> Result<Value> {
    let step = args.get(2).map_or(Some(1.0), Value::as_f64);
    let (Some(from), Some(to), Some(step)) = (args[0].as_f64(), args[1].as_f64(), step) else {
        return Ok(Value::Null);
    };
    if step == 0.0 || !(step * (to - from)).is_finite() || step * (to - from) <= 0.0 {
        return Ok(Value::array(Vec::new()));
    }
    let count = ((to - from) / step).ceil();
    if count * size_of::<Value>() as f64 > RESULT_MAX as f64 {
        return Err(too_large());
    }
    context.host.tick()?;
    Ok((0..count as i64).map(|n| Value::number(from + n as f64 * step)).collect::<Vec<_>>().into())
}

fn array_replace(args: &[Value], _: &Context<'_>) -> Result<Value> {
    let Some(elements) = args[0].as_array() else { return Ok(Value::Null) };
    let mut left = match args.get(3).map(Value::as_i64) {
        None => i64::MAX,
        Some(Some(count)) if count >= 0 => count,
        Some(Some(_)) => i64::MAX,
        Some(None) => return Ok(Value::Null),
    };
    let replaced = elements.iter().map(|element| {
        if left > 0 && *element == args[1] {
            left -= 1;
            return args[2].clone();
        }
        element.clone()
    });
    Ok(replaced.collect::<Vec<_>>().into())
}

/// Converts an array of objects into an object of arrays.
fn star(elements: &[Value]) -> Value {
    let mut names = Vec::new();
    for element in elements {
        for name in element.as_object().into_iter().flat_map(|fields| fields.keys()) {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
    }
    if names.is_empty() {
        return Value::Missing;
    }
    Value::object(names.into_iter().map(|name| {
        let column = elements.iter().map(|element| element.field(&name));
        (name.clone(), Value::Array(column.collect::<Vec<_>>().into()))
    }))
}
