//! Functions of regular expressions, whose time is linear in the text.

use super::{Function, RESULT_MAX, strict, too_large};
use crate::env::Context;
use crate::error::{Error, Result};
use crate::value::Value;
use regex_lite::Regex;
use std::sync::Arc;

/// How many compiled expressions a request keeps.
const CACHED_MAX: usize = 64;

pub(super) const FUNCTIONS: &[Function] = &[
    strict("REGEXP_CONTAINS", 2, 2, contains),
    strict("CONTAINS_REGEX", 2, 2, contains),
    strict("CONTAINS_REGEXP", 2, 2, contains),
    strict("REGEX_CONTAINS", 2, 2, contains),
    strict("REGEXP_LIKE", 2, 2, like),
    strict("REGEX_LIKE", 2, 2, like),
    strict("REGEXP_MATCHES", 2, 2, matches),
    strict("REGEX_MATCHES", 2, 2, matches),
    strict("REGEXP_POSITION", 2, 2, |args, context| place(args, context, 0)),
    strict("REGEXP_POSITION0", 2, 2, |args, context| place(args, context, 0)),
    strict("REGEXP_POSITION1", 2, 2, |args, context| place(args, context, 1)),
    strict("REGEX_POSITION", 2, 2, |args, context| place(args, context, 0)),
    strict("REGEXP_REPLACE", 3, 4, replace),
    strict("REGEX_REPLACE", 3, 4, replace),
    strict("REGEXP_SPLIT", 2, 2, split),
    strict("REGEX_SPLIT", 2, 2, split),
];

pub(super) fn compile(pattern: &str, context: &Context<'_>) -> Result<Arc<Regex>> {
    let mut known = context.caches.regexes.borrow_mut();
    if let Some(regex) = known.get(pattern) {
        return Ok(regex.clone());
    }
    let regex = Regex::new(pattern)
        .map_err(|error| Error::execution(format!("regular expression {pattern:?}: {error}")))?;
    if known.len() >= CACHED_MAX {
        known.clear();
    }
    let regex = Arc::new(regex);
    known.insert(pattern.to_owned(), regex.clone());
    Ok(regex)
}

/// Runs `compute` with the text and the expression, if both are strings.
fn with(
    args: &[Value],
    context: &Context<'_>,
    whole: bool,
    compute: impl Fn(&str, &Regex) -> Value,
) -> Result<Value> {
    let (Some(text), Some(pattern)) = (args[0].as_str(), args[1].as_str()) else {
        return Ok(Value::Null);
    };
    let regex = if whole {
        compile(&format!("^(?:{pattern})$"), context)?
    } else {
        compile(pattern, context)?
    };
    Ok(compute(text, &regex))
}

fn contains(args: &[Value], context: &Context<'_>) -> Result<Value> {
    with(args, context, false, |text, regex| regex.is_match(text).into())
}

fn like(args: &[Value], context: &Context<'_>) -> Result<Value> {
    with(args, context, true, |text, regex| regex.is_match(text).into())
}

fn matches(args: &[Value], context: &Context<'_>) -> Result<Value> {
    with(args, context, false, |text, regex| {
        regex.find_iter(text).map(|found| found.as_str().into()).collect::<Vec<_>>().into()
    })
}

fn place(args: &[Value], context: &Context<'_>, first: i64) -> Result<Value> {
    with(args, context, false, |text, regex| {
        regex.find(text).map_or(first - 1, |found| found.start() as i64 + first).into()
    })
}

fn replace(args: &[Value], context: &Context<'_>) -> Result<Value> {
    let Some(to) = args[2].as_str() else { return Ok(Value::Null) };
    let count = match args.get(3).map(Value::as_i64) {
        None => 0,
        // 0 means all to the engine, and nothing to the user.
        Some(Some(0)) => return Ok(args[0].clone()),
        Some(Some(count)) => usize::try_from(count).unwrap_or(0),
        Some(None) => return Ok(Value::Null),
    };
    if args[0].as_str().is_some_and(|text| (text.len() + 1).saturating_mul(to.len()) > RESULT_MAX) {
        return Err(too_large());
    }
    with(args, context, false, |text, regex| regex.replacen(text, count, to).into_owned().into())
}

fn split(args: &[Value], context: &Context<'_>) -> Result<Value> {
    with(args, context, false, |text, regex| {
        regex.split(text).map(Value::from).collect::<Vec<_>>().into()
    })
}
