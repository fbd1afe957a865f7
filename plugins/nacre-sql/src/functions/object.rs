//! Functions of objects.

use super::{Function, MANY, open, strict};
use crate::value::{Name, Object, Value, sorted};
use std::sync::Arc;

/// A strict function of one object.
macro_rules! of_object {
    ($name:literal, $compute:expr) => {
        strict($name, 1, 1, |args, _| {
            let compute: fn(&Object) -> Value = $compute;
            Ok(args[0].as_object().map_or(Value::Null, compute))
        })
    };
}

pub(super) const FUNCTIONS: &[Function] = &[
    open("OBJECT_ADD", 3, 3, |args, _| {
        Ok(changed(args, |fields, name, value| {
            if value.is_known() || matches!(value, Value::Null) {
                fields.entry(name).or_insert(value);
            }
        }))
    }),
    open("OBJECT_PUT", 3, 3, |args, _| {
        Ok(changed(args, |fields, name, value| {
            if value.is_missing() {
                fields.shift_remove(&name);
            } else {
                fields.insert(name, value);
            }
        }))
    }),
    strict("OBJECT_CONCAT", 2, MANY, |args, _| {
        let mut fields = Object::default();
        for arg in args {
            let Some(more) = arg.as_object() else { return Ok(Value::Null) };
            fields.extend(more.iter().map(|(name, value)| (name.clone(), value.clone())));
        }
        Ok(Value::Object(Arc::new(fields)))
    }),
    strict("OBJECT_FIELD", 2, 2, |args, _| {
        Ok(match (&args[0], args[1].as_str()) {
            (Value::Object(_), Some(path)) => {
                path.split('.').fold(args[0].clone(), |of, name| of.field(name))
            }
            _ => Value::Null,
        })
    }),
    of_object!("OBJECT_INNER_PAIRS", |fields| pairs(fields, false)),
    of_object!("OBJECT_INNER_VALUES", |fields| {
        sorted(fields)
            .into_iter()
            .filter(|(_, v)| v.is_known())
            .map(|(_, v)| v.clone())
            .collect::<Vec<_>>()
            .into()
    }),
    of_object!("OBJECT_OUTER_PAIRS", |fields| pairs(fields, true)),
    of_object!("OBJECT_OUTER_VALUES", values),
    of_object!("OBJECT_LENGTH", |fields| (fields.len() as i64).into()),
    of_object!("OBJECT_NAMES", |fields| {
        sorted(fields).into_iter().map(|(name, _)| name.clone().into()).collect::<Vec<_>>().into()
    }),
    of_object!("OBJECT_PAIRS", |fields| pairs(fields, true)),
    strict("OBJECT_PAIRS_NESTED", 1, 2, |args, _| {
        Ok(args[0].as_object().map_or(Value::Null, |_| {
            let mut all = Vec::new();
            leaves(&args[0], "", &mut all);
            all.into_iter()
                .map(|(name, value)| pair(&name.into(), value))
                .collect::<Vec<_>>()
                .into()
        }))
    }),
    strict("OBJECT_PATHS", 1, 2, |args, _| {
        Ok(args[0].as_object().map_or(Value::Null, |_| {
            let mut all = Vec::new();
            paths(&args[0], "", &mut all);
            all.into()
        }))
    }),
    strict("OBJECT_REMOVE", 2, MANY, |args, _| {
        let names: Option<Vec<&str>> = args[1..].iter().map(Value::as_str).collect();
        Ok(match (args[0].as_object(), names) {
            (Some(fields), Some(names)) => {
                let mut fields = fields.clone();
                fields.retain(|name, _| !names.contains(&&**name));
                Value::Object(Arc::new(fields))
            }
            _ => Value::Null,
        })
    }),
    strict("OBJECT_RENAME", 3, 3, |args, _| {
        Ok(match (args[0].as_object(), &args[1], &args[2]) {
            (Some(fields), Value::String(from), Value::String(to)) => {
                let renamed = fields.iter().map(|(name, value)| {
                    (if name == from { to.clone() } else { name.clone() }, value.clone())
                });
                Value::object(renamed)
            }
            _ => Value::Null,
        })
    }),
    strict("OBJECT_REPLACE", 3, 3, |args, _| {
        Ok(args[0].as_object().map_or(Value::Null, |fields| {
            Value::object(fields.iter().map(|(name, value)| {
                (name.clone(), if *value == args[1] { args[2].clone() } else { value.clone() })
            }))
        }))
    }),
    of_object!("OBJECT_UNWRAP", |fields| match fields.values().next() {
        Some(value) if fields.len() == 1 => value.clone(),
        _ => Value::Null,
    }),
    of_object!("OBJECT_VALUES", values),
];

/// The object in the first argument, with a change to the field that the second names.
fn changed(args: &[Value], change: fn(&mut Object, Name, Value)) -> Value {
    match (&args[0], &args[1]) {
        (Value::Missing, _) | (_, Value::Missing) => Value::Missing,
        (Value::Object(fields), Value::String(name)) => {
            let mut fields = (**fields).clone();
            change(&mut fields, name.clone(), args[2].clone());
            Value::Object(Arc::new(fields))
        }
        _ => Value::Null,
    }
}

fn values(fields: &Object) -> Value {
    sorted(fields).into_iter().map(|(_, value)| value.clone()).collect::<Vec<_>>().into()
}

fn pair(name: &Name, value: Value) -> Value {
    Value::object([("name", name.clone().into()), ("val", value)])
}

fn pairs(fields: &Object, with_null: bool) -> Value {
    let fields = sorted(fields).into_iter().filter(|(_, value)| with_null || value.is_known());
    fields.map(|(name, value)| pair(name, value.clone())).collect::<Vec<_>>().into()
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Values that are no objects, with their paths.
fn leaves(of: &Value, path: &str, out: &mut Vec<(String, Value)>) {
    match of.as_object() {
        Some(fields) => sorted(fields)
            .into_iter()
            .for_each(|(name, value)| leaves(value, &join(path, name), out)),
        None => out.push((path.to_owned(), of.clone())),
    }
}

fn paths(of: &Value, path: &str, out: &mut Vec<Value>) {
    for (name, value) in of.as_object().map(sorted).unwrap_or_default() {
        let path = join(path, name);
        out.push(path.as_str().into());
        paths(value, &path, out);
    }
}
