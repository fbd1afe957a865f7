//! `MULTIKEY_OBJECTS`: an object for each combination of the values at several paths, through the arrays on each path.
//!
//! ```text
//! {"sku": items.sku, "tag": items.tags}
//! items ─► each item ─┬─► sku   one value of each item
//!                     └─► tags  each tag of the same item
//! ```
//!
//! Paths with a common prefix use the same elements together; other paths give all combinations. An empty array omits its
//! names. Source: Couchbase's function of that name.

use crate::ast::Expr;
use crate::env::{Context, Env};
use crate::functions::{RESULT_MAX, too_large};
use crate::{Name, Object, Result, Value, eval};
use std::sync::Arc;

/// A step of several paths.
#[derive(Default)]
struct Node {
    /// The names for the value at this step.
    names: Vec<Name>,
    steps: Vec<(Name, Node)>,
}

/// Evaluates a call with this argument: an object, or a path, which is equivalent to an object with the path's last name.
pub(crate) fn objects(of: &Expr, env: &Env, context: &Context<'_>) -> Result<Value> {
    let mut roots: Vec<(Expr, Node)> = Vec::new();
    let mut add = |name: Name, mut path: &Expr| {
        let mut steps = Vec::new();
        while let Expr::Field(inner, step, false) = path {
            steps.push(step.clone());
            path = inner;
        }
        let at = roots.iter().position(|(base, _)| base == path).unwrap_or_else(|| {
            roots.push((path.clone(), Node::default()));
            roots.len() - 1
        });
        let mut node = &mut roots[at].1;
        for step in steps.into_iter().rev() {
            let at = node.steps.iter().position(|(known, _)| *known == step);
            let at = at.unwrap_or_else(|| {
                node.steps.push((step, Node::default()));
                node.steps.len() - 1
            });
            node = &mut node.steps[at].1;
        }
        node.names.push(name);
    };
    match of {
        Expr::Object(fields) => {
            for (name, path) in fields {
                match eval(name, env, context)? {
                    Value::String(name) => add(name, path),
                    Value::Missing | Value::Null => {}
                    _ => return Ok(Value::Null),
                }
            }
        }
        Expr::Literal(Value::Object(fields)) => {
            for (name, value) in fields.iter() {
                add(name.clone(), &Expr::Literal(value.clone()));
            }
        }
        path => match path.implicit_name() {
            Some(name) => add(name, path),
            None => return Ok(Value::Missing),
        },
    }
    let mut all = vec![Object::default()];
    for (base, node) in &roots {
        all = combined(all, node.rows(&eval(base, env, context)?, context)?, context)?;
    }
    all.retain(|object| !object.is_empty());
    Ok(all.into_iter().map(|object| Value::Object(Arc::new(object))).collect::<Vec<_>>().into())
}

impl Node {
    /// Returns an object for each combination of the values below this step of `value`.
    fn rows(&self, value: &Value, context: &Context<'_>) -> Result<Vec<Object>> {
        context.host.tick()?;
        let Value::Array(elements) = value else {
            return self.below(value, context);
        };
        let mut rows = Vec::new();
        for element in elements.iter() {
            rows.extend(self.below(element, context)?);
            check(rows.len(), self.names.len())?;
        }
        Ok(rows)
    }

    /// Returns the objects for one element, which is not split further.
    fn below(&self, value: &Value, context: &Context<'_>) -> Result<Vec<Object>> {
        let mut rows = vec![Object::default()];
        for (step, node) in &self.steps {
            let next = match value {
                Value::Object(_) => value.field(step),
                Value::Missing => Value::Missing,
                _ => Value::Null,
            };
            rows = combined(rows, node.rows(&next, context)?, context)?;
        }
        if !value.is_missing() {
            for row in &mut rows {
                row.extend(self.names.iter().map(|name| (name.clone(), value.clone())));
            }
        }
        Ok(rows)
    }
}

/// Combines each of `rows` with each of `others`; returns `rows` alone if there are no others.
fn combined(rows: Vec<Object>, others: Vec<Object>, context: &Context<'_>) -> Result<Vec<Object>> {
    if others.is_empty() {
        return Ok(rows);
    }
    let width = rows.first().map_or(0, Object::len) + others.first().map_or(0, Object::len);
    check(rows.len().saturating_mul(others.len()), width)?;
    let mut all = Vec::with_capacity(rows.len() * others.len());
    for row in &rows {
        context.host.tick()?;
        for other in &others {
            let mut row = row.clone();
            row.extend(other.iter().map(|(name, value)| (name.clone(), value.clone())));
            all.push(row);
        }
    }
    Ok(all)
}

/// Refuses too many objects.
fn check(count: usize, width: usize) -> Result<()> {
    let bytes = size_of::<Object>() + width * size_of::<(Name, Value)>();
    if count.saturating_mul(bytes) > RESULT_MAX { Err(too_large()) } else { Ok(()) }
}
