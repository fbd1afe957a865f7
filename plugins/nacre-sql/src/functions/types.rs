//! Functions that test and convert types.

use super::{Function, open, strict};
use crate::{Name, Value};

/// Defines a function that tests the type of a value; MISSING and NULL are returned unchanged.
macro_rules! is {
    ($name:literal, $test:expr) => {
        strict($name, 1, 1, |args, _| {
            let test: fn(&Value) -> bool = $test;
            Ok(Value::Bool(test(&args[0])))
        })
    };
}

/// Defines a function that converts a value; MISSING and NULL are returned unchanged.
macro_rules! to {
    ($name:literal, $convert:expr) => {
        strict($name, 1, 1, |args, _| {
            let convert: fn(&Value) -> Value = $convert;
            Ok(convert(&args[0]))
        })
    };
}

pub(super) const FUNCTIONS: &[Function] = &[
    is!("IS_ARRAY", is_array),
    is!("ISARRAY", is_array),
    is!("IS_ATOM", is_atom),
    is!("ISATOM", is_atom),
    is!("IS_BINARY", |_| false),
    is!("ISBINARY", |_| false),
    is!("IS_BOOLEAN", is_boolean),
    is!("IS_BOOL", is_boolean),
    is!("ISBOOLEAN", is_boolean),
    is!("ISBOOL", is_boolean),
    is!("IS_NUMBER", is_number),
    is!("IS_NUM", is_number),
    is!("ISNUMBER", is_number),
    is!("ISNUM", is_number),
    is!("IS_OBJECT", is_object),
    is!("IS_OBJ", is_object),
    is!("ISOBJECT", is_object),
    is!("ISOBJ", is_object),
    is!("IS_STRING", is_string),
    is!("IS_STR", is_string),
    is!("ISSTRING", is_string),
    is!("ISSTR", is_string),
    strict("IS_NAN", 1, 1, |args, _| {
        Ok(args[0].as_f64().map_or(Value::Null, |number| number.is_nan().into()))
    }),
    open("TYPE", 1, 1, |args, _| Ok(args[0].type_name().into())),
    open("TYPENAME", 1, 1, |args, _| Ok(args[0].type_name().into())),
    to!("TO_ARRAY", to_array),
    to!("TOARRAY", to_array),
    to!("TO_ATOM", to_atom),
    to!("TOATOM", to_atom),
    to!("TO_BOOLEAN", |value| value.truth().into()),
    to!("TO_BOOL", |value| value.truth().into()),
    to!("TOBOOLEAN", |value| value.truth().into()),
    to!("TOBOOL", |value| value.truth().into()),
    strict("TO_NUMBER", 1, 2, |args, _| Ok(to_number(args))),
    strict("TO_NUM", 1, 2, |args, _| Ok(to_number(args))),
    strict("TONUMBER", 1, 2, |args, _| Ok(to_number(args))),
    strict("TONUM", 1, 2, |args, _| Ok(to_number(args))),
    to!("TO_OBJECT", to_object),
    to!("TO_OBJ", to_object),
    to!("TOOBJECT", to_object),
    to!("TOOBJ", to_object),
    to!("TO_STRING", to_string),
    to!("TO_STR", to_string),
    to!("TOSTRING", to_string),
    to!("TOSTR", to_string),
];

fn is_array(value: &Value) -> bool {
    value.as_array().is_some()
}

fn is_atom(value: &Value) -> bool {
    is_boolean(value) || is_number(value) || is_string(value)
}

fn is_boolean(value: &Value) -> bool {
    matches!(value, Value::Bool(_))
}

fn is_number(value: &Value) -> bool {
    value.as_f64().is_some()
}

fn is_object(value: &Value) -> bool {
    value.as_object().is_some()
}

fn is_string(value: &Value) -> bool {
    value.as_str().is_some()
}

fn to_array(value: &Value) -> Value {
    if is_array(value) { value.clone() } else { vec![value.clone()].into() }
}

/// Unwraps arrays and objects while they have exactly one element or field.
fn to_atom(value: &Value) -> Value {
    let only = match value {
        Value::Array(elements) if elements.len() == 1 => elements.first(),
        Value::Object(fields) if fields.len() == 1 => fields.values().next(),
        Value::Array(_) | Value::Object(_) => None,
        _ => return value.clone(),
    };
    only.map_or(Value::Null, to_atom)
}

/// Converts a number, boolean or text to a number; a second argument lists characters to remove
/// from the text.
fn to_number(args: &[Value]) -> Value {
    match (&args[0], args.get(1)) {
        (number, _) if is_number(number) => number.clone(),
        (Value::Bool(truth), _) => Value::Int(i64::from(*truth)),
        (Value::String(text), None) => parse_number(text),
        (Value::String(text), Some(Value::String(unwanted))) => {
            let text: String = text.chars().filter(|c| !unwanted.contains(*c)).collect();
            // If points are removed, the comma is the decimal separator.
            parse_number(&if unwanted.contains('.') { text.replace(',', ".") } else { text })
        }
        _ => Value::Null,
    }
}

fn parse_number(text: &str) -> Value {
    let text = text.trim();
    // Rust parses "inf" and "nan" as numbers; JSON does not.
    if !text.chars().all(|c| c.is_ascii_digit() || "+-.eE".contains(c)) {
        return Value::Null;
    }
    match text.parse::<i64>() {
        Ok(number) => Value::Int(number),
        Err(_) => text.parse::<f64>().map_or(Value::Null, Value::number),
    }
}

fn to_object(value: &Value) -> Value {
    if is_object(value) { value.clone() } else { Value::object::<Name>([]) }
}

fn to_string(value: &Value) -> Value {
    match value {
        Value::String(_) => value.clone(),
        Value::Array(_) | Value::Object(_) => Value::Null,
        Value::Float(number) if !number.is_finite() => value.to_json().trim_matches('"').into(),
        _ => value.to_json().into(),
    }
}
