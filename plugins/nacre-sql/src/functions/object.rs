//! Functions of objects.

use super::{Function, MANY, open, strict};
use crate::ast::{Expr, Unary};
use crate::{Name, Object, Value, sorted};
use std::sync::Arc;

/// Defines a strict function of one object.
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
            (Value::Object(_), Some(path)) => at_path(&args[0], path),
            _ => Value::Null,
        })
    }),
    of_object!("OBJECT_INNER_PAIRS", |fields| pairs(fields, inner)),
    of_object!("OBJECT_INNER_VALUES", |fields| {
        sorted(fields).into_iter().map(|(_, value)| inner(value)).collect::<Vec<_>>().into()
    }),
    strict("OBJECT_OUTER_PAIRS", 1, 2, |args, _| Ok(outer_pairs(args))),
    of_object!("OBJECT_OUTER_VALUES", values),
    of_object!("OBJECT_LENGTH", |fields| (fields.len() as i64).into()),
    of_object!("OBJECT_NAMES", |fields| {
        sorted(fields).into_iter().map(|(name, _)| name.clone().into()).collect::<Vec<_>>().into()
    }),
    strict("OBJECT_PAIRS", 1, 2, |args, _| Ok(outer_pairs(args))),
    open("OBJECT_CONCAT2", 2, MANY, |args, _| {
        let mut fields = Object::default();
        for part in args.iter().flat_map(|arg| arg.as_array().unwrap_or(std::slice::from_ref(arg)))
        {
            match part {
                Value::Object(more) => {
                    fields.extend(more.iter().map(|(name, value)| (name.clone(), value.clone())));
                }
                Value::Missing => return Ok(Value::Missing),
                _ => return Ok(Value::Null),
            }
        }
        Ok(Value::Object(Arc::new(fields)))
    }),
    of_object!("OBJECT_TYPES", |fields| {
        Value::object(
            sorted(fields)
                .into_iter()
                .map(|(name, value)| (name.clone(), value.type_name().into())),
        )
    }),
    strict("OBJECT_TYPES_NESTED", 1, 1, |args, _| {
        Ok(if args[0].as_object().is_some() { nested_types(&args[0]) } else { Value::Null })
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
                // A field that already has the new name is removed, wherever it is.
                let stays = |name: &Name| name != to || from == to || !fields.contains_key(from);
                let kept = fields.iter().filter(|(name, _)| stays(name));
                let renamed = kept.map(|(name, value)| {
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

/// Returns the object in the first argument, with a change of the field that the second argument names.
fn changed(args: &[Value], change: fn(&mut Object, Name, Value)) -> Value {
    match (&args[0], &args[1]) {
        (Value::Missing, _) | (_, Value::Missing) => Value::Missing,
        (Value::Object(_), Value::Null) => args[0].clone(),
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

/// Returns a pair for each field, with its value, or its type if that is requested.
fn outer_pairs(args: &[Value]) -> Value {
    let is_no_object = |options: &Value| options.as_object().is_none();
    let Some(fields) = args[0].as_object().filter(|_| !args[1..].iter().any(is_no_object)) else {
        return Value::Null;
    };
    if !matches!(args.get(1).map(|options| options.field("types")), Some(Value::Bool(true))) {
        return pairs(fields, Value::clone);
    }
    let typed = sorted(fields).into_iter().map(|(name, value)| typed(name, value));
    typed.collect::<Vec<_>>().into()
}

/// Returns a pair of a name and the type of a value.
pub(super) fn typed(name: &Name, value: &Value) -> Value {
    Value::object([("name", name.clone().into()), ("type", value.type_name().into())])
}

/// A pair of a name and a value.
pub(super) fn pair(name: &Name, value: Value) -> Value {
    Value::object([("name", name.clone().into()), ("val", value)])
}

fn pairs(fields: &Object, shown: fn(&Value) -> Value) -> Value {
    let pairs = sorted(fields).into_iter().map(|(name, value)| pair(name, shown(value)));
    pairs.collect::<Vec<_>>().into()
}

/// Returns an array without MISSING elements.
fn inner(value: &Value) -> Value {
    match value.as_array() {
        Some(elements) => elements
            .iter()
            .filter(|element| !element.is_missing())
            .cloned()
            .collect::<Vec<_>>()
            .into(),
        None => value.clone(),
    }
}

/// Returns the value at a path such as `a.b[0]`, written as in a statement or without back quotes.
pub(super) fn at_path(of: &Value, path: &str) -> Value {
    let found = crate::parse_expr(path).ok().and_then(|path| follow(of, &path));
    found.unwrap_or_else(|| {
        path.split('.').fold(of.clone(), |of, step| {
            let mut parts = step.split('[');
            let field = of.field(parts.next().unwrap_or_default());
            parts.fold(field, |of, index| {
                let index = index.trim_end_matches(']').parse();
                index.map_or(Value::Missing, |index| of.element(index))
            })
        })
    })
}

/// Returns the value at an expression that is a path; `None` for other expressions.
fn follow(of: &Value, path: &Expr) -> Option<Value> {
    Some(match path {
        Expr::Ident(name) => of.field(name),
        Expr::Field(inner, name, false) => follow(of, inner)?.field(name),
        Expr::Field(inner, name, true) => {
            let inner = follow(of, inner)?;
            let fields = inner.as_object();
            let found = fields.and_then(|fields| {
                fields.iter().find(|(field, _)| field.to_lowercase() == name.to_lowercase())
            });
            found.map_or(Value::Missing, |(_, value)| value.clone())
        }
        Expr::Element(inner, at) => {
            let at = match &**at {
                Expr::Literal(at) => at.as_i64()?,
                Expr::Unary(Unary::Negate, at) => match &**at {
                    Expr::Literal(at) => at.as_i64()?.checked_neg()?,
                    _ => return None,
                },
                _ => return None,
            };
            follow(of, inner)?.element(at)
        }
        _ => return None,
    })
}

fn nested_types(value: &Value) -> Value {
    match value {
        Value::Object(fields) => Value::object(
            sorted(fields).into_iter().map(|(name, value)| (name.clone(), nested_types(value))),
        ),
        Value::Array(elements) => elements.iter().map(nested_types).collect::<Vec<_>>().into(),
        scalar => scalar.type_name().into(),
    }
}
