//! Evaluates expressions.

use crate::ast::{
    Binary, Binding, Case, Chain, Collect, Comprehension, Expr, Quantified, Quantifier, Unary,
};
use crate::env::{Context, Env, Set};
use crate::functions::{RESULT_MAX, number, too_large};
use crate::{Error, Name, Object, Result, Value, key, pattern};
use std::sync::Arc;

/// Number of elements from which an array is searched by hash.
const SET_FROM: usize = 16;

/// Evaluates `expr`, whose names are resolved, with the variables of `env`.
///
/// # Errors
/// Refusals of the host, missing parameters, and values that grow too large. Wrong types are not errors.
pub fn eval(expr: &Expr, env: &Env, context: &Context<'_>) -> Result<Value> {
    if let Some(value) = borrow(expr, env) {
        return Ok(value.clone());
    }
    match expr {
        Expr::Literal(value) => Ok(value.clone()),
        Expr::Ident(_) | Expr::Itself => Ok(Value::Missing),
        Expr::Bound(bound) => Ok(env.get(&bound.name).cloned().unwrap_or_default()),
        Expr::Positional(position) => context
            .positional
            .get(position - 1)
            .cloned()
            .ok_or_else(|| no_parameter(&format!("${position}"))),
        Expr::Named(name) => {
            context.named.get(name).cloned().ok_or_else(|| no_parameter(&format!("${name}")))
        }
        Expr::Field(of, name, folded) => match id_of(of, name, env) {
            Some(id) => Ok(Value::String(id.clone())),
            None => Ok(field(&eval(of, env, context)?, name, *folded)),
        },
        Expr::Element(of, index) => {
            Ok(element(&eval(of, env, context)?, &eval(index, env, context)?))
        }
        Expr::Slice(of, from, to) => eval_slice(of, from.as_deref(), to.as_deref(), env, context),
        Expr::Unary(operator, of) => eval_unary(*operator, of, env, context),
        Expr::Binary(Binary::In, item, list) => eval_in(item, list, env, context),
        Expr::Binary(operator, a, b) => {
            Ok(binary(*operator, &eval(a, env, context)?, &eval(b, env, context)?))
        }
        Expr::Fold(first, rest) => {
            let mut value = eval(first, env, context)?;
            for (operator, operand) in rest {
                value = binary(*operator, &value, &eval(operand, env, context)?);
            }
            Ok(value)
        }
        Expr::Chain(chain, operands) => eval_chain(*chain, operands, env, context),
        Expr::Like(of, text, escape) => eval_like(of, text, escape.as_deref(), env, context),
        Expr::Between(of, low, high) => {
            let of = eval(of, env, context)?;
            let above = binary(Binary::GreaterOrEqual, &of, &eval(low, env, context)?);
            let below = binary(Binary::LessOrEqual, &of, &eval(high, env, context)?);
            Ok(and(above, &below))
        }
        Expr::Case(case) => eval_case(case, env, context),
        Expr::Array(elements) => {
            // MISSING stays until it is written as null.
            let elements = elements.iter().map(|element| {
                context.host.tick()?;
                eval(element, env, context)
            });
            Ok(Value::Array(Arc::new(elements.collect::<Result<_>>()?)))
        }
        Expr::Object(fields) => eval_object(fields, env, context),
        Expr::Quantified(quantified) => eval_quantified(quantified, env, context),
        Expr::Comprehension(comprehension) => eval_comprehension(comprehension, env, context),
        Expr::Call(function, args) if function.name == "META" => Ok(meta(&args[0], env)),
        Expr::Call(function, args) if function.name.starts_with("SEARCH") => {
            crate::search::call(function.name, args, env, context)
        }
        Expr::Call(function, args) if function.name == "MULTIKEY_OBJECTS" => {
            crate::multikey::objects(&args[0], env, context)
        }
        Expr::Call(function, args) if function.name.starts_with("UNNEST_POS") => {
            Ok(unnest_position(&args[0], env))
        }
        Expr::Call(function, args) => {
            let args: Vec<Value> =
                args.iter().map(|arg| eval(arg, env, context)).collect::<Result<_>>()?;
            function.call(&args, context)
        }
        Expr::UserCall(path, args) => {
            let args = args.iter().map(|arg| eval(arg, env, context)).collect::<Result<_>>()?;
            context.host.call(path, args, context)
        }
        Expr::FlattenKeys(keys) => {
            let values = keys.iter().map(|key| eval(&key.expr, env, context));
            Ok(Value::array(values.collect::<Result<_>>()?))
        }
        Expr::Aggregate(aggregate) => {
            Err(Error::new(4200, format!("aggregates are not possible here: {}", aggregate.name)))
        }
        Expr::Subquery(select) => {
            Ok(Value::array(context.host.subquery(select, env, usize::MAX, context)?))
        }
    }
}

fn no_parameter(name: &str) -> Error {
    Error::execution(format!("No value for parameter {name}"))
}

/// Returns the value of a path from a variable, without copying intermediate values.
fn borrow<'e>(expr: &Expr, env: &'e Env) -> Option<&'e Value> {
    match expr {
        Expr::Ident(name) => env.get(name),
        Expr::Field(of, name, false) => borrow(of, env)?.as_object()?.get(name),
        _ => None,
    }
}

fn field(of: &Value, name: &str, folded: bool) -> Value {
    match of {
        Value::Null => Value::Null,
        Value::Object(fields) if folded && !fields.contains_key(name) => {
            let found = fields.iter().find(|(key, _)| key.to_lowercase() == name.to_lowercase());
            found.map(|(_, value)| value.clone()).unwrap_or_default()
        }
        _ => of.field(name),
    }
}

fn element(of: &Value, index: &Value) -> Value {
    match (of, index) {
        (Value::Missing, _) | (_, Value::Missing) => Value::Missing,
        (_, Value::String(name)) => field(of, name, false),
        (Value::Null, _) => Value::Null,
        (_, Value::Int(_) | Value::Float(_)) => {
            index.as_i64().map(|index| of.element(index)).unwrap_or_default()
        }
        _ => Value::Null,
    }
}

fn eval_slice(
    of: &Expr,
    from: Option<&Expr>,
    to: Option<&Expr>,
    env: &Env,
    context: &Context<'_>,
) -> Result<Value> {
    let of = eval(of, env, context)?;
    let from = from.map_or(Ok(Value::Int(0)), |from| eval(from, env, context))?;
    let length = of.as_array().map_or(0, <[Value]>::len);
    let to = to.map_or(Ok(Value::Int(length as i64)), |to| eval(to, env, context))?;
    if of.is_missing() || from.is_missing() || to.is_missing() {
        return Ok(Value::Missing);
    }
    let (Some(elements), Some(from), Some(to)) = (of.as_array(), from.as_i64(), to.as_i64()) else {
        return Ok(Value::Null);
    };
    let place = |at: i64| if at < 0 { at.saturating_add(length as i64) } else { at };
    let range = usize::try_from(place(from)).ok().zip(usize::try_from(place(to)).ok());
    let slice = range.and_then(|(from, to)| elements.get(from..to));
    Ok(slice.map(|slice| Value::array(slice.to_vec())).unwrap_or_default())
}

fn eval_unary(operator: Unary, of: &Expr, env: &Env, context: &Context<'_>) -> Result<Value> {
    if let (Unary::Exists, Expr::Subquery(select)) = (operator, of) {
        return Ok(Value::Bool(!context.host.subquery(select, env, 1, context)?.is_empty()));
    }
    let value = eval(of, env, context)?;
    Ok(match operator {
        Unary::IsMissing => Value::Bool(value.is_missing()),
        Unary::IsKnown => Value::Bool(value.is_known()),
        Unary::Exists => Value::Bool(value.as_array().is_some_and(|elements| !elements.is_empty())),
        _ if value.is_missing() => Value::Missing,
        Unary::IsNull => Value::Bool(matches!(value, Value::Null)),
        Unary::Not if value.is_known() => Value::Bool(!value.truth()),
        Unary::Not => Value::Null,
        Unary::Negate => match value {
            Value::Int(number) => {
                number.checked_neg().map_or(Value::Float(-(number as f64)), Value::Int)
            }
            Value::Float(number) => Value::Float(-number),
            _ => Value::Null,
        },
    })
}

fn binary(operator: Binary, a: &Value, b: &Value) -> Value {
    let compared = |wanted: fn(std::cmp::Ordering) -> bool| match a.compare(b) {
        Ok(order) => Value::Bool(wanted(order)),
        Err(unknown) => unknown,
    };
    match operator {
        Binary::Add => number::add(a, b),
        Binary::Subtract => number::subtract(a, b),
        Binary::Multiply => number::multiply(a, b),
        Binary::Divide => number::divide(a, b),
        Binary::Modulo => number::modulo(a, b),
        Binary::Equal => a.equals(b),
        Binary::NotEqual => match a.equals(b) {
            Value::Bool(equal) => Value::Bool(!equal),
            unknown => unknown,
        },
        Binary::Less => compared(std::cmp::Ordering::is_lt),
        Binary::LessOrEqual => compared(std::cmp::Ordering::is_le),
        Binary::Greater => compared(std::cmp::Ordering::is_gt),
        Binary::GreaterOrEqual => compared(std::cmp::Ordering::is_ge),
        Binary::DistinctFrom => Value::Bool(a.collate(b).is_ne()),
        Binary::In => search(a, b.as_array().unwrap_or_default()),
        Binary::Within => within(a, b),
    }
}

/// Returns `a AND b`: FALSE decides, then MISSING, then NULL.
fn and(a: Value, b: &Value) -> Value {
    match (a, b) {
        (a, _) if a.is_known() && !a.truth() => Value::Bool(false),
        (_, b) if b.is_known() && !b.truth() => Value::Bool(false),
        (Value::Missing, _) | (_, Value::Missing) => Value::Missing,
        (Value::Null, _) | (_, Value::Null) => Value::Null,
        _ => Value::Bool(true),
    }
}

fn eval_chain(chain: Chain, operands: &[Expr], env: &Env, context: &Context<'_>) -> Result<Value> {
    match chain {
        Chain::Concat => {
            let values: Vec<Value> = operands
                .iter()
                .map(|operand| eval(operand, env, context))
                .collect::<Result<_>>()?;
            concat(&values)
        }
        Chain::And => {
            let mut all = Value::Bool(true);
            for operand in operands {
                all = and(all, &eval(operand, env, context)?);
                if matches!(all, Value::Bool(false)) {
                    break;
                }
            }
            Ok(all)
        }
        Chain::Or => {
            let mut any = Value::Bool(false);
            for operand in operands {
                match eval(operand, env, context)? {
                    Value::Null => any = Value::Null,
                    Value::Missing if !matches!(any, Value::Null) => any = Value::Missing,
                    value if value.truth() => return Ok(Value::Bool(true)),
                    _ => {}
                }
            }
            Ok(any)
        }
    }
}

/// Concatenates strings.
pub(crate) fn concat(values: &[Value]) -> Result<Value> {
    if values.iter().any(Value::is_missing) {
        return Ok(Value::Missing);
    }
    let texts: Option<Vec<&str>> = values.iter().map(Value::as_str).collect();
    let Some(texts) = texts else { return Ok(Value::Null) };
    // Repeated concatenation of a variable with itself would fill the memory.
    if texts.iter().map(|text| text.len()).sum::<usize>() > RESULT_MAX {
        return Err(too_large());
    }
    Ok(texts.concat().into())
}

fn eval_like(
    of: &Expr,
    pattern: &Expr,
    escape: Option<&Expr>,
    env: &Env,
    context: &Context<'_>,
) -> Result<Value> {
    let of = eval(of, env, context)?;
    let pattern = eval(pattern, env, context)?;
    let escape = escape.map_or(Ok("\\".into()), |escape| eval(escape, env, context))?;
    if of.is_missing() || pattern.is_missing() || escape.is_missing() {
        return Ok(Value::Missing);
    }
    let (Some(of), Some(pattern), Some(escape)) = (of.as_str(), pattern.as_str(), escape.as_str())
    else {
        return Ok(Value::Null);
    };
    let mut characters = escape.chars();
    let (Some(escape), None) = (characters.next(), characters.next()) else {
        return Err(Error::execution("the escape of LIKE is one character"));
    };
    Ok(Value::Bool(pattern::like(of, pattern, escape)))
}

fn eval_case(case: &Case, env: &Env, context: &Context<'_>) -> Result<Value> {
    let operand = case.operand.as_ref().map(|operand| eval(operand, env, context)).transpose()?;
    for (when, then) in &case.whens {
        let when = eval(when, env, context)?;
        let holds =
            operand.as_ref().map_or_else(|| when.truth(), |operand| operand.equals(&when).truth());
        if holds {
            return eval(then, env, context);
        }
    }
    case.otherwise.as_ref().map_or(Ok(Value::Null), |otherwise| eval(otherwise, env, context))
}

fn eval_object(fields: &[(Expr, Expr)], env: &Env, context: &Context<'_>) -> Result<Value> {
    let mut object = Object::default();
    for (name, value) in fields {
        context.host.tick()?;
        match eval(name, env, context)? {
            Value::String(name) => match eval(value, env, context)? {
                Value::Missing => {}
                value => {
                    object.insert(name, value);
                }
            },
            Value::Missing => return Ok(Value::Missing),
            _ => return Ok(Value::Null),
        }
    }
    Ok(Value::Object(Arc::new(object)))
}

fn eval_in(item: &Expr, list: &Expr, env: &Env, context: &Context<'_>) -> Result<Value> {
    let item = eval(item, env, context)?;
    let values = eval(list, env, context)?;
    let Value::Array(elements) = &values else {
        let missing = item.is_missing() || values.is_missing();
        return Ok(if missing { Value::Missing } else { Value::Null });
    };
    let constant = matches!(list, Expr::Literal(_) | Expr::Positional(_) | Expr::Named(_));
    let plain = matches!(item, Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::String(_));
    if !constant || !plain || elements.len() < SET_FROM {
        return Ok(search(&item, elements));
    }
    let address = Arc::as_ptr(elements) as usize;
    let known = context.caches.sets.borrow().get(&address).map(|(_, set)| set.clone());
    let set = known.unwrap_or_else(|| {
        let set: Arc<Set> = Arc::new(elements.iter().map(key::encoded).collect());
        context.caches.sets.borrow_mut().insert(address, (elements.clone(), set.clone()));
        set
    });
    let null = || set.contains(&key::encoded(&Value::Null));
    Ok(match set.contains(&key::encoded(&item)) {
        true => Value::Bool(true),
        false if null() => Value::Null,
        false => Value::Bool(false),
    })
}

/// Returns `item IN elements`; NULL if the item is not found but an element is NULL.
fn search(item: &Value, elements: &[Value]) -> Value {
    match item {
        Value::Missing => return Value::Missing,
        Value::Null => return Value::Null,
        _ => {}
    }
    let mut answer = Value::Bool(false);
    for element in elements {
        match item.equals(element) {
            Value::Bool(true) => return Value::Bool(true),
            Value::Bool(_) => {}
            _ => answer = Value::Null,
        }
    }
    answer
}

fn within(item: &Value, of: &Value) -> Value {
    match (item, of) {
        (Value::Missing, _) | (_, Value::Missing) => Value::Missing,
        (Value::Null, _) => Value::Null,
        (_, Value::Array(_) | Value::Object(_)) => {
            let mut all = Vec::new();
            descendants(of, &mut all);
            Value::Bool(all.iter().any(|(_, value)| item.equals(value).truth()))
        }
        _ => Value::Null,
    }
}

/// Appends all values inside of `of`, each with its position or name; a value comes before its descendants.
fn descendants(of: &Value, out: &mut Vec<(Value, Value)>) {
    let from = out.len();
    children(of, out);
    for at in from..out.len() {
        let child = out[at].1.clone();
        descendants(&child, out);
    }
}

/// Appends the elements of an array with their positions, or the values of an object with their names.
pub(crate) fn children(of: &Value, out: &mut Vec<(Value, Value)>) {
    match of {
        Value::Array(elements) => {
            let numbered = elements.iter().enumerate();
            out.extend(numbered.map(|(at, element)| (Value::Int(at as i64), element.clone())));
        }
        Value::Object(fields) => {
            out.extend(
                fields.iter().map(|(name, value)| (Value::String(name.clone()), value.clone())),
            );
        }
        _ => {}
    }
}

/// Returns the environments of `bindings`, whose sources advance in parallel until the shortest ends.
///
/// Returns MISSING or NULL instead if a source is MISSING, or has no elements.
///
/// # Errors
/// As for [`eval`].
pub fn bindings_of(
    bindings: &[Binding],
    env: &Env,
    context: &Context<'_>,
) -> Result<std::result::Result<Vec<Env>, Value>> {
    let mut columns: Vec<Vec<(Value, Value)>> = Vec::with_capacity(bindings.len());
    for binding in bindings {
        let source = eval(&binding.source, env, context)?;
        let mut column = Vec::new();
        match &source {
            Value::Missing => return Ok(Err(Value::Missing)),
            Value::Array(_) | Value::Object(_) if binding.within => {
                descendants(&source, &mut column)
            }
            Value::Array(_) | Value::Object(_) => children(&source, &mut column),
            _ => return Ok(Err(Value::Null)),
        }
        columns.push(column);
    }
    let length = columns.iter().map(Vec::len).min().unwrap_or(0);
    let mut envs = Vec::with_capacity(length);
    for at in 0..length {
        let mut inner = env.clone();
        for (binding, column) in bindings.iter().zip(&columns) {
            let (position, value) = &column[at];
            if let Some(name) = &binding.position {
                inner = inner.with(name, position.clone());
            }
            inner = inner.with(&binding.variable, value.clone());
        }
        envs.push(inner);
    }
    Ok(Ok(envs))
}

fn eval_quantified(quantified: &Quantified, env: &Env, context: &Context<'_>) -> Result<Value> {
    let envs = match bindings_of(&quantified.bindings, env, context)? {
        Ok(envs) => envs,
        Err(unknown) => return Ok(unknown),
    };
    context.host.tick()?;
    let wanted = quantified.kind == Quantifier::Any;
    for inner in &envs {
        if eval(&quantified.condition, inner, context)?.truth() == wanted {
            return Ok(Value::Bool(wanted));
        }
    }
    Ok(Value::Bool(match quantified.kind {
        Quantifier::Any => false,
        Quantifier::Every => true,
        Quantifier::AnyAndEvery => !envs.is_empty(),
    }))
}

fn eval_comprehension(
    comprehension: &Comprehension,
    env: &Env,
    context: &Context<'_>,
) -> Result<Value> {
    let envs = match bindings_of(&comprehension.bindings, env, context)? {
        Ok(envs) => envs,
        Err(unknown) => return Ok(unknown),
    };
    context.host.tick()?;
    let mut values = Vec::new();
    let mut object = Object::default();
    for inner in &envs {
        if let Some(condition) = &comprehension.condition
            && !eval(condition, inner, context)?.truth()
        {
            continue;
        }
        let value = eval(&comprehension.value, inner, context)?;
        match &comprehension.collect {
            Collect::First => return Ok(value),
            _ if value.is_missing() => {}
            Collect::Array | Collect::DistinctArray => values.push(value),
            Collect::Object(name) => {
                // A field needs a string as its name.
                if let Value::String(name) = eval(name, inner, context)? {
                    object.insert(name, value);
                }
            }
        }
    }
    Ok(match comprehension.collect {
        Collect::First => Value::Missing,
        Collect::Object(_) => Value::Object(Arc::new(object)),
        Collect::Array => Value::array(values),
        Collect::DistinctArray => {
            values.sort();
            values.dedup();
            Value::array(values)
        }
    })
}

/// Returns the ID of a document if the expression is `META().id`, without building the whole metadata object.
fn id_of<'e>(of: &Expr, name: &str, env: &'e Env) -> Option<&'e Name> {
    match of {
        Expr::Call(function, args) if name == "id" && function.name == "META" => match &args[0] {
            Expr::Ident(alias) => env.meta(alias).map(|meta| &meta.id),
            _ => None,
        },
        _ => None,
    }
}

/// Evaluates `META(alias)`.
fn meta(of: &Expr, env: &Env) -> Value {
    let Expr::Ident(alias) = of else { return Value::Missing };
    let Some(meta) = env.meta(alias) else { return Value::Missing };
    Value::object([
        ("id", Value::String(meta.id.clone())),
        ("keyspace", Value::String(meta.keyspace.clone())),
        ("cas", Value::Int(meta.cas as i64)),
        ("expiration", Value::Int(i64::from(meta.expiration))),
        ("flags", Value::Int(i64::from(meta.flags))),
        ("type", Value::from(if meta.json { "json" } else { "base64" })),
        ("xattrs", meta.xattrs.clone()),
    ])
}

/// Returns the name under which the position of an unnested element is bound.
pub fn position_name(alias: &str) -> Name {
    format!("#position.{alias}").into()
}

/// Evaluates `UNNEST_POS(alias)`.
fn unnest_position(of: &Expr, env: &Env) -> Value {
    let Expr::Ident(alias) = of else { return Value::Null };
    env.get(&position_name(alias)).cloned().unwrap_or(Value::Null)
}
