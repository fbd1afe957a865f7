//! Functions of regular expressions, which match in linear time.

use super::{Function, RESULT_MAX, strict, too_large};
use crate::env::Context;
use crate::{Error, Result, Value, pattern};
use regex_lite::Regex;
use std::sync::Arc;

/// Maximum number of compiled expressions that a request keeps.
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
    strict("LIKE_PREFIX", 1, 2, |args, _| like_part(args, |prefix, _| prefix.into())),
    strict("LIKE_STOP", 1, 2, |args, _| like_part(args, stop)),
    strict("LIKE_SUFFIX", 1, 2, |args, _| {
        let (Some(pattern), Some(escape)) = (args[0].as_str(), escape(args)?) else {
            return Ok(Value::Null);
        };
        let has_prefix = |at: &usize| !pattern::prefix(&pattern[*at..], escape).0.is_empty();
        let from = pattern.char_indices().map(|(at, _)| at).find(has_prefix);
        Ok(from.map_or("", |from| &pattern[from..]).into())
    }),
    strict("REGEXP_PREFIX", 1, 1, |args, context| regexp_part(args, context, |p, _| p.into())),
    strict("REGEXP_STOP", 1, 1, |args, context| regexp_part(args, context, stop)),
    strict("REGEXP_SUFFIX", 1, 1, |args, _| {
        let Some(pattern) = args[0].as_str() else { return Ok(Value::Null) };
        let has_prefix = |at: &usize| !literal_prefix(&pattern[*at..]).0.is_empty();
        let from = pattern.char_indices().map(|(at, _)| at).find(has_prefix);
        Ok(from.map_or("", |from| &pattern[from..]).into())
    }),
];

/// Returns the escape character of LIKE in the second argument; `None` if it is not a string.
fn escape(args: &[Value]) -> Result<Option<char>> {
    let Some(escape) = args.get(1) else { return Ok(Some('\\')) };
    let Some(text) = escape.as_str() else { return Ok(None) };
    let mut characters = text.chars();
    match (characters.next(), characters.next()) {
        (Some(escape), None) => Ok(Some(escape)),
        _ => Err(Error::execution("the escape of LIKE is one character")),
    }
}

fn like_part(args: &[Value], part: fn(String, bool) -> Value) -> Result<Value> {
    let (Some(text), Some(escape)) = (args[0].as_str(), escape(args)?) else {
        return Ok(Value::Null);
    };
    let (prefix, _) = pattern::prefix(text, escape);
    // The prefix is the whole pattern only if the pattern has no `%` and no `_`.
    let is_whole = pattern::is_literal(text, escape);
    Ok(part(prefix, is_whole))
}

fn regexp_part(
    args: &[Value],
    context: &Context<'_>,
    part: fn(String, bool) -> Value,
) -> Result<Value> {
    let Some(text) = args[0].as_str() else { return Ok(Value::Null) };
    compile(text, context)?;
    let (prefix, is_whole) = literal_prefix(text);
    Ok(part(prefix, is_whole))
}

/// Returns a bound above each text that begins with a prefix; if `is_whole`, just above the prefix
/// itself.
fn stop(prefix: String, is_whole: bool) -> Value {
    if is_whole {
        return format!("{prefix}\0").into();
    }
    let mut characters: Vec<char> = prefix.chars().collect();
    let next = characters.pop().and_then(|last| char::from_u32(last as u32 + 1));
    match next {
        Some(next) => characters.into_iter().chain([next]).collect::<String>().into(),
        None => Value::array(Vec::new()),
    }
}

/// Returns the common prefix of all matches of an expression, and true if the prefix is the only
/// match.
fn literal_prefix(pattern: &str) -> (String, bool) {
    if pattern.contains('|') {
        return (String::new(), false);
    }
    let mut prefix = String::new();
    let mut rest = pattern.chars().peekable();
    while let Some(c) = rest.next() {
        let literal = match c {
            '\\' => match rest.next() {
                Some(escaped) if !escaped.is_alphanumeric() => escaped,
                _ => return (prefix, false),
            },
            '.' | '[' | '(' | ')' | '^' | '$' | '*' | '+' | '?' | '{' => return (prefix, false),
            c => c,
        };
        if matches!(rest.peek(), Some('*' | '?' | '{')) {
            return (prefix, false);
        }
        prefix.push(literal);
        if rest.peek() == Some(&'+') {
            return (prefix, false);
        }
    }
    (prefix, true)
}

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
        // 0 means all for the engine, but none for the user.
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
