//! Functions of the paths into a value: lists of paths, and objects reduced to the wanted paths.
//!
//! A path is written as in a statement, such as `a.b[0].c`. A name with a space, a tab, a point or a back quote is in back quotes.
//! The options of these functions choose among the paths. Source: SQL++ reference, object functions.

use super::object::{pair, typed};
use super::{Function, RESULT_MAX, strict, too_large};
use crate::env::Context;
use crate::{Name, Object, Result, Value, sorted};
use regex_lite::Regex;
use std::sync::Arc;

pub(super) const FUNCTIONS: &[Function] = &[
    strict("OBJECT_EXTRACT", 1, 2, extract),
    strict("OBJECT_FILTER", 1, 2, filter),
    strict("OBJECT_PAIRS_NESTED", 1, 2, pairs_nested),
    strict("OBJECT_PATHS", 1, 2, paths),
];

/// The wanted paths, and their notation.
struct Options {
    /// True if objects and arrays count, not only scalars.
    composites: bool,
    /// True if paths contain positions of elements, instead of `*`.
    subscripts: bool,
    /// True if paths are written as in the key of an index: `a[].b`, with all names in back quotes.
    is_for_index: bool,
    /// True if the pattern must match one of the names in a path, instead of the whole path.
    is_of_names: bool,
    ignores_case: bool,
    pattern: Option<Arc<Regex>>,
}

impl Options {
    /// Reads the second argument; returns `None` if it is present but not an object.
    fn of(args: &[Value], composites: bool, context: &Context<'_>) -> Result<Option<Options>> {
        let given = match args.get(1) {
            None => Value::object::<Name>([]),
            Some(given @ Value::Object(_)) => given.clone(),
            Some(_) => return Ok(None),
        };
        let flag = |name: &str, default: bool| match given.field(name) {
            Value::Bool(flag) => flag,
            _ => default,
        };
        let ignores_case = flag("ignorecase", false);
        let pattern = match given.field("pattern").as_str() {
            Some("") | None => None,
            Some(pattern) => {
                let is_regex = flag("regex", true);
                let mut pattern =
                    if is_regex { pattern.to_owned() } else { regex_lite::escape(pattern) };
                if flag("exact", false) {
                    pattern = format!("^(?:{pattern})$");
                }
                let pattern = if ignores_case { in_lower_case(&pattern) } else { pattern };
                Some(super::regexp::compile(&pattern, context)?)
            }
        };
        let is_for_index = flag("index", false);
        Ok(Some(Options {
            composites: !is_for_index && flag("composites", composites),
            subscripts: !is_for_index && flag("arraysubscript", true),
            is_for_index,
            is_of_names: given.field("patternspace").as_str() == Some("field"),
            ignores_case,
            pattern,
        }))
    }

    fn fits(&self, path: &str) -> bool {
        let Some(pattern) = &self.pattern else { return true };
        let lower = self.ignores_case.then(|| path.to_lowercase());
        let path = lower.as_deref().unwrap_or(path);
        if !self.is_of_names {
            return pattern.is_match(path);
        }
        let mut is_quoted = false;
        let mut names = path.split(|c: char| {
            is_quoted ^= c == '`';
            c == '.' && !is_quoted
        });
        names.any(|name| pattern.is_match(name))
    }

    /// Returns a name in the notation of paths.
    fn written(&self, name: &str) -> String {
        if self.is_for_index || name.contains([' ', '\t', '.', '`']) {
            format!("`{}`", name.replace('`', "\\u0060"))
        } else {
            name.to_owned()
        }
    }

    /// Appends a name to a path. Below `*`, every further step selects all elements.
    fn join(&self, path: &str, name: &str, is_below_star: bool) -> String {
        let step = match is_below_star {
            _ if path.is_empty() => return self.written(name),
            true if self.is_for_index => "[]",
            true => "[*]",
            false => "",
        };
        format!("{path}{step}.{}", self.written(name))
    }
}

/// Returns a pattern in lower case, except for its classes such as `\W`.
fn in_lower_case(pattern: &str) -> String {
    let mut lower = String::with_capacity(pattern.len());
    let mut is_escaped = false;
    for c in pattern.chars() {
        if is_escaped {
            lower.push(c);
        } else {
            lower.extend(c.to_lowercase());
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    lower
}

/// A bounded list of paths, or of pairs of a path and a value.
struct List<T> {
    all: Vec<(String, T)>,
    bytes: usize,
}

impl<T> List<T> {
    fn new() -> List<T> {
        List { all: Vec::new(), bytes: 0 }
    }

    fn push(&mut self, path: String, value: T) -> Result<()> {
        self.bytes += path.len() + size_of::<(String, T)>();
        if self.bytes > RESULT_MAX {
            return Err(too_large());
        }
        self.all.push((path, value));
        Ok(())
    }

    fn sorted(mut self) -> Vec<(String, T)> {
        self.all.sort_by(|(a, _), (b, _)| a.cmp(b));
        self.all
    }
}

fn has_paths(value: &Value) -> bool {
    matches!(value, Value::Object(_) | Value::Array(_))
}

fn paths(args: &[Value], context: &Context<'_>) -> Result<Value> {
    let Some(options) = Options::of(args, true, context)?.filter(|_| has_paths(&args[0])) else {
        return Ok(Value::Null);
    };
    let mut list = List::new();
    list_paths(&options, &args[0], "", false, &mut list)?;
    let mut paths = list.sorted();
    if !matches!(args.get(1).map(|options| options.field("unique")), Some(Value::Bool(false))) {
        paths.dedup();
    }
    Ok(paths.into_iter().map(|(path, ())| path.into()).collect::<Vec<Value>>().into())
}

fn list_paths(
    options: &Options,
    of: &Value,
    path: &str,
    is_below_star: bool,
    out: &mut List<()>,
) -> Result<()> {
    match of {
        Value::Object(fields) => {
            for (name, value) in sorted(fields) {
                let path = options.join(path, name, is_below_star);
                if options.composites && options.fits(&path) {
                    out.push(path.clone(), ())?;
                }
                list_paths(options, value, &path, is_below_star, out)?;
            }
        }
        Value::Array(elements) if options.subscripts => {
            for (at, element) in elements.iter().enumerate() {
                list_paths(options, element, &format!("{path}[{at}]"), is_below_star, out)?;
            }
        }
        Value::Array(elements) => {
            for element in elements.iter() {
                list_paths(options, element, path, true, out)?;
            }
        }
        _ if !options.composites && options.fits(path) => out.push(path.to_owned(), ())?,
        _ => {}
    }
    Ok(())
}

fn pairs_nested(args: &[Value], context: &Context<'_>) -> Result<Value> {
    let Some(options) = Options::of(args, false, context)?.filter(|_| has_paths(&args[0])) else {
        return Ok(Value::Null);
    };
    let option = |name: &str| args.get(1).map(|options| options.field(name)).unwrap_or_default();
    let is_named_by_field = option("report").as_str() == Some("field");
    let mut list = List::new();
    list_pairs(&options, &args[0], "", is_named_by_field.then_some(""), &mut list)?;
    let make: fn(&Name, &Value) -> Value = match option("types") {
        Value::Bool(true) if !options.is_for_index => typed,
        _ => |name, value| pair(name, value.clone()),
    };
    let pairs = list.sorted().into_iter().map(|(path, value)| make(&path.into(), value));
    Ok(pairs.collect::<Vec<_>>().into())
}

/// Lists the pairs in a value at `path`, by their paths, or by the names at the ends of these if there is a `name`.
fn list_pairs<'a>(
    options: &Options,
    of: &'a Value,
    path: &str,
    name: Option<&str>,
    out: &mut List<&'a Value>,
) -> Result<()> {
    let mut step = |path: String, name: Option<String>, value: &'a Value| {
        if options.composites && has_paths(value) && options.fits(&path) {
            out.push(name.clone().unwrap_or_else(|| path.clone()), value)?;
        }
        list_pairs(options, value, &path, name.as_deref(), out)
    };
    match of {
        Value::Object(fields) => {
            for (field, value) in fields.iter() {
                let shown = name.map(|_| field.to_string());
                step(options.join(path, field, false), shown, value)?;
            }
        }
        Value::Array(elements) => {
            for (at, element) in elements.iter().enumerate() {
                let at = if options.is_for_index { "[]".to_owned() } else { format!("[{at}]") };
                step(format!("{path}{at}"), name.map(|name| format!("{name}{at}")), element)?;
            }
        }
        _ if options.fits(path) => out.push(name.unwrap_or(path).to_owned(), of)?,
        _ => {}
    }
    Ok(())
}

fn filter(args: &[Value], context: &Context<'_>) -> Result<Value> {
    let Some(options) = Options::of(args, true, context)?.filter(|_| has_paths(&args[0])) else {
        return Ok(Value::Null);
    };
    Ok(fitting(&options, &args[0], "", false).unwrap_or(Value::Null))
}

/// Returns the parts of a value whose paths match; `None` if no path matches.
fn fitting(options: &Options, of: &Value, path: &str, is_below_star: bool) -> Option<Value> {
    match of {
        Value::Object(fields) => {
            let fitting = |(name, value): (&Name, &Value)| {
                let path = options.join(path, name, is_below_star);
                let kept = match options.composites && options.fits(&path) {
                    true => value.clone(),
                    false => fitting(options, value, &path, is_below_star)?,
                };
                Some((name.clone(), kept))
            };
            let kept: Object = fields.iter().filter_map(fitting).collect();
            (!kept.is_empty()).then(|| Value::Object(Arc::new(kept)))
        }
        Value::Array(elements) => {
            let kept =
                elements.iter().enumerate().filter_map(|(at, element)| match options.subscripts {
                    true => fitting(options, element, &format!("{path}[{at}]"), is_below_star),
                    false => fitting(options, element, path, true),
                });
            let kept: Vec<Value> = kept.collect();
            (!kept.is_empty()).then(|| kept.into())
        }
        _ => (!options.composites && options.fits(path)).then(|| of.clone()),
    }
}

/// Returns the pairs of an object whose names are in a range or match a pattern.
fn extract(args: &[Value], context: &Context<'_>) -> Result<Value> {
    let (Some(fields), Some(options)) = (args[0].as_object(), Options::of(args, true, context)?)
    else {
        return Ok(Value::Null);
    };
    let bound = |name: &str| match args.get(1).map(|options| options.field(name)) {
        Some(Value::String(bound)) => Some(bound),
        _ => None,
    };
    let (min, max) = (bound("min"), bound("max"));
    let has_range = min.is_some() || max.is_some();
    let is_wanted = |name: &str| match has_range {
        true => {
            let is_above = min.as_ref().is_none_or(|min| **min <= *name);
            is_above && max.as_ref().is_none_or(|max| max.is_empty() || *name < **max)
        }
        false => options.fits(name),
    };
    let wanted = sorted(fields).into_iter().filter(|(name, _)| is_wanted(name));
    Ok(wanted.map(|(name, value)| pair(name, value.clone())).collect::<Vec<_>>().into())
}
