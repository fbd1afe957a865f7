//! Functions of objects.

use super::{Function, MANY, open, strict};
use crate::env::Context;
use crate::{Name, Object, Result, Value, sorted};
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
    strict("OBJECT_FILTER", 1, 2, object_filter),
    of_object!("OBJECT_INNER_PAIRS", |fields| pairs(fields, false)),
    of_object!("OBJECT_INNER_VALUES", |fields| {
        sorted(fields)
            .into_iter()
            .filter(|(_, v)| v.is_known())
            .map(|(_, v)| v.clone())
            .collect::<Vec<_>>()
            .into()
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
    strict("OBJECT_PAIRS_NESTED", 1, 2, |args, context| match wants_types(args) {
        true => nested(args, context, false, |path, value| typed(&path.into(), value)),
        false => nested(args, context, false, |path, value| pair(&path.into(), value.clone())),
    }),
    strict("OBJECT_PATHS", 1, 2, |args, context| {
        nested(args, context, true, |path, _| path.into())
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

/// Returns the object with only the fields whose paths match a pattern. Source: SQL++ reference, object functions.
fn object_filter(args: &[Value], context: &Context<'_>) -> Result<Value> {
    if args[0].as_object().is_none() {
        return Ok(Value::Null);
    }
    let option = |name: &str| args.get(1).map(|options| options.field(name)).unwrap_or_default();
    let Value::String(pattern) = option("pattern") else { return Ok(args[0].clone()) };
    let subscripts = !matches!(option("arraysubscript"), Value::Bool(false));
    let is_exact = matches!(option("exact"), Value::Bool(true));
    if matches!(option("regex"), Value::Bool(false)) {
        let fits = |path: &str| if is_exact { *path == *pattern } else { path.contains(&*pattern) };
        return Ok(fitting(&args[0], "", subscripts, &fits).unwrap_or(Value::object::<Name>([])));
    }
    let whole = format!("^(?:{pattern})$");
    let regex = super::regexp::compile(if is_exact { &whole } else { &pattern }, context)?;
    let fits = |path: &str| regex.is_match(path);
    Ok(fitting(&args[0], "", subscripts, &fits).unwrap_or(Value::object::<Name>([])))
}

/// Returns the parts of a value whose paths match; `None` if there are none.
fn fitting(of: &Value, path: &str, subscripts: bool, fits: &dyn Fn(&str) -> bool) -> Option<Value> {
    match of {
        Value::Object(fields) => {
            let fitting = |(name, value): (&Name, &Value)| {
                let path = join(path, name);
                let kept = match fits(&path) {
                    true => value.clone(),
                    false => fitting(value, &path, subscripts, fits)?,
                };
                Some((name.clone(), kept))
            };
            let kept: Object = fields.iter().filter_map(fitting).collect();
            (!kept.is_empty()).then(|| Value::Object(Arc::new(kept)))
        }
        Value::Array(elements) => {
            let kept = elements.iter().enumerate().filter_map(|(at, element)| {
                let step = if subscripts { format!("{path}[{at}]") } else { path.to_owned() };
                fitting(element, &step, subscripts, fits)
            });
            let kept: Vec<Value> = kept.collect();
            (!kept.is_empty()).then(|| kept.into())
        }
        _ => None,
    }
}

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
    let Some(fields) = args[0].as_object() else { return Value::Null };
    if !wants_types(args) {
        return pairs(fields, true);
    }
    let typed = sorted(fields).into_iter().map(|(name, value)| typed(name, value));
    typed.collect::<Vec<_>>().into()
}

/// Returns true if the options request types instead of values.
fn wants_types(args: &[Value]) -> bool {
    args.get(1).is_some_and(|options| options.field("types").truth())
}

fn typed(name: &Name, value: &Value) -> Value {
    Value::object([("name", name.clone().into()), ("type", value.type_name().into())])
}

fn pair(name: &Name, value: Value) -> Value {
    Value::object([("name", name.clone().into()), ("val", value)])
}

fn pairs(fields: &Object, with_null: bool) -> Value {
    let fields = sorted(fields).into_iter().filter(|(_, value)| with_null || value.is_known());
    fields
        .map(|(name, value)| pair(name, if with_null { value.clone() } else { inner(value) }))
        .collect::<Vec<_>>()
        .into()
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

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Returns the value at a path such as `a.b[0]`.
pub(super) fn at_path(of: &Value, path: &str) -> Value {
    path.split('.').fold(of.clone(), |of, step| {
        let mut parts = step.split('[');
        let field = of.field(parts.next().unwrap_or_default());
        parts.fold(field, |of, index| {
            let index = index.trim_end_matches(']').parse();
            index.map_or(Value::Missing, |index| of.element(index))
        })
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

/// Options for listing the paths into an object.
struct Listing {
    /// True to list fields with objects and arrays too.
    composites: bool,
    /// True to show the positions of elements instead of `*`.
    subscripts: bool,
    /// True to list a path once, however many elements have it.
    is_unique: bool,
}

/// A path into an object.
struct Listed {
    path: String,
    /// The field at its end.
    name: Name,
    value: Value,
}

/// Applies `make` to each path into an object that the options select; `pattern` filters the paths, or with `patternspace` the
/// fields at their ends.
fn nested(
    args: &[Value],
    context: &Context<'_>,
    composites: bool,
    make: fn(&str, &Value) -> Value,
) -> Result<Value> {
    if args[0].as_object().is_none() {
        return Ok(Value::Null);
    }
    let option = |name: &str, default: bool| match args.get(1).map(|options| options.field(name)) {
        Some(Value::Bool(choice)) => choice,
        _ => default,
    };
    let listing = Listing {
        composites: option("composites", composites),
        subscripts: option("arraysubscript", true),
        is_unique: option("unique", true),
    };
    let mut all: Vec<Listed> = Vec::new();
    listing.walk(&args[0], "", &mut all);
    if let Some(pattern) = args.get(1).map(|options| options.field("pattern"))
        && let Some(pattern) = pattern.as_str()
    {
        let regex = super::regexp::compile(pattern, context)?;
        let space = args.get(1).map(|options| options.field("patternspace")).unwrap_or_default();
        let is_of_fields = space.as_str() == Some("field");
        all.retain(|at| regex.is_match(if is_of_fields { &at.name } else { &at.path }));
    }
    Ok(all.iter().map(|at| make(&at.path, &at.value)).collect::<Vec<_>>().into())
}

impl Listing {
    fn walk(&self, of: &Value, path: &str, out: &mut Vec<Listed>) {
        for (name, value) in of.as_object().map(sorted).unwrap_or_default() {
            let path = join(path, name);
            let has_fields = |value: &Value| value.as_object().is_some();
            let inner =
                has_fields(value) || value.as_array().is_some_and(|all| all.iter().any(has_fields));
            if self.composites || !inner {
                out.push(Listed { path: path.clone(), name: name.clone(), value: value.clone() });
            }
            self.walk(value, &path, out);
            for (at, element) in value.as_array().unwrap_or_default().iter().enumerate() {
                let step =
                    if self.subscripts { format!("{path}[{at}]") } else { format!("{path}[*]") };
                let from = out.len();
                self.walk(element, &step, out);
                // Without positions, several elements have the same path.
                let new = out.split_off(from);
                for entry in new {
                    let is_new = || !out.iter().any(|known| known.path == entry.path);
                    if self.subscripts || !self.is_unique || is_new() {
                        out.push(entry);
                    }
                }
            }
        }
    }
}
