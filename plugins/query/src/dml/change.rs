//! SET and UNSET: change values at paths in a document.

use nacre_sql::ast::{Binding, Changes, Expr, Set};
use nacre_sql::{Context, Env, Error, Name, Object, Result, Value, eval, position};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A step into a document.
#[derive(Clone, Debug)]
enum Step {
    Field(Name),
    Element(i64),
}

/// A document after SET and UNSET.
pub(super) struct Changed {
    pub value: Value,
    /// `META().expiration`, if it was set.
    pub expiration: Option<u32>,
}

/// A position or name, the value there, and the path to it if it is in the document.
type Element = (Value, Value, Option<Vec<Step>>);

/// The paths to which variables of FOR refer.
type Places = BTreeMap<Name, Vec<Step>>;

/// Changes the document of `row`; each change sees the previous ones.
pub(super) fn changed(
    changes: &Changes,
    alias: &Name,
    row: &Env,
    context: &Context<'_>,
) -> Result<Changed> {
    let mut changed =
        Changed { value: row.get(alias).cloned().unwrap_or_default(), expiration: None };
    let meta = row.meta(alias).cloned();
    let all = changes
        .set
        .iter()
        .map(|set| (set, true))
        .chain(changes.unset.iter().map(|set| (set, false)));
    for (set, writes) in all {
        // Expressions see the original document.
        let env =
            row.with_document(alias, row.get(alias).cloned().unwrap_or_default(), meta.clone());
        let places = Places::from([(alias.clone(), Vec::new())]);
        each(set, &set.each, &env, &places, writes, &mut changed, context)?;
    }
    Ok(changed)
}

fn each(
    set: &Set,
    loops: &[Vec<Binding>],
    env: &Env,
    places: &Places,
    writes: bool,
    changed: &mut Changed,
    context: &Context<'_>,
) -> Result<()> {
    let Some((bindings, inner)) = loops.split_first() else {
        if let Some(condition) = &set.condition
            && !eval(condition, env, context)?.truth()
        {
            return Ok(());
        }
        return one(set, env, places, writes, changed, context);
    };
    let columns: Vec<Vec<Element>> = bindings
        .iter()
        .map(|binding| elements(binding, env, places, context))
        .collect::<Result<_>>()?;
    let length = columns.iter().map(Vec::len).min().unwrap_or(0);
    for at in 0..length {
        let mut env = env.clone();
        let mut places = places.clone();
        for (binding, column) in bindings.iter().zip(&columns) {
            let (place, value, path) = &column[at];
            if let Some(name) = &binding.position {
                env = env.with(name, place.clone());
            }
            env = env.with(&binding.variable, value.clone());
            places.remove(&binding.variable);
            if let Some(path) = path {
                places.insert(binding.variable.clone(), path.clone());
            }
        }
        each(set, inner, &env, &places, writes, changed, context)?;
    }
    Ok(())
}

/// Returns the elements that a variable of FOR visits, with their paths if the source is a path.
fn elements(
    binding: &Binding,
    env: &Env,
    places: &Places,
    context: &Context<'_>,
) -> Result<Vec<Element>> {
    let source = eval(&binding.source, env, context)?;
    let base = path_of(&binding.source, env, places, context)?;
    let mut found = Vec::new();
    children(&source, base.as_deref(), binding.within, &mut found);
    Ok(found)
}

fn children(of: &Value, base: Option<&[Step]>, deep: bool, found: &mut Vec<Element>) {
    let mut visit = |place: Value, value: &Value, step: Step| {
        let path = base.map(|base| [base, &[step]].concat());
        found.push((place, value.clone(), path.clone()));
        if deep {
            children(value, path.as_deref(), true, found);
        }
    };
    match of {
        Value::Array(elements) => {
            for (at, element) in elements.iter().enumerate() {
                visit(Value::Int(at as i64), element, Step::Element(at as i64));
            }
        }
        Value::Object(fields) => {
            for (name, value) in fields.iter() {
                visit(name.clone().into(), value, Step::Field(name.clone()));
            }
        }
        _ => {}
    }
}

/// Returns the path of an expression, if it is a path into the document.
fn path_of(
    expr: &Expr,
    env: &Env,
    places: &Places,
    context: &Context<'_>,
) -> Result<Option<Vec<Step>>> {
    let (of, step) = match expr {
        Expr::Ident(name) => return Ok(places.get(name).cloned()),
        Expr::Field(of, name, _) => (of, Step::Field(name.clone())),
        Expr::Element(of, index) => match eval(index, env, context)? {
            Value::String(name) => (of, Step::Field(name)),
            index => match index.as_i64() {
                Some(index) => (of, Step::Element(index)),
                None => return Ok(None),
            },
        },
        _ => return Ok(None),
    };
    let base = path_of(of, env, places, context)?;
    Ok(base.map(|mut path| {
        path.push(step);
        path
    }))
}

fn one(
    set: &Set,
    env: &Env,
    places: &Places,
    writes: bool,
    changed: &mut Changed,
    context: &Context<'_>,
) -> Result<()> {
    let value = if writes { eval(&set.value, env, context)? } else { Value::Missing };
    if is_of_meta(&set.path) {
        let is_expiration = matches!(&set.path, Expr::Field(of, name, _)
            if matches!(**of, Expr::Call(..)) && &**name == "expiration");
        if !is_expiration {
            return Err(Error::new(3150, format!("{} cannot be set", set.path)));
        }
        changed.expiration = value.as_i64().map(|seconds| u32::try_from(seconds).unwrap_or(0));
        return Ok(());
    }
    if let Some(path) = path_of(&set.path, env, places, context)? {
        put(&mut changed.value, &path, value);
    }
    Ok(())
}

/// Returns true if a path begins with `META()`.
fn is_of_meta(path: &Expr) -> bool {
    match path {
        Expr::Call(function, _) => function.name == "META",
        Expr::Field(of, ..) | Expr::Element(of, _) => is_of_meta(of),
        _ => false,
    }
}

/// Sets the value at a path; MISSING removes it. Missing parents are not created.
fn put(of: &mut Value, path: &[Step], value: Value) {
    match path {
        [] => {
            if !value.is_missing() {
                *of = value;
            }
        }
        [Step::Field(name), rest @ ..] => {
            let Value::Object(fields) = of else { return };
            let fields: &mut Object = Arc::make_mut(fields);
            match (rest, fields.get_mut(name)) {
                ([], _) if value.is_missing() => {
                    fields.shift_remove(name);
                }
                ([], _) => {
                    fields.insert(name.clone(), value);
                }
                (_, Some(inner)) => put(inner, rest, value),
                (_, None) => {}
            }
        }
        [Step::Element(index), rest @ ..] => {
            let Value::Array(elements) = of else { return };
            let elements = Arc::make_mut(elements);
            let Some(at) = position(*index, elements.len()) else { return };
            match rest {
                [] if value.is_missing() => {
                    elements.remove(at);
                }
                _ => put(&mut elements[at], rest, value),
            }
        }
    }
}
