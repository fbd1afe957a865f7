//! The functions of the language as tables: name, number of arguments, and implementation.
//!
//! Most functions are *strict*: they return MISSING if an argument is MISSING, otherwise NULL if one is NULL.
//! Functions that handle such arguments themselves are defined with [`open`]. Wrong types give NULL.

mod alias;
mod array;
mod bits;
mod comparison;
mod conditional;
mod date;
mod date_format;
mod date_parts;
pub mod find_error;
pub mod infer;
mod json;
pub mod number;
mod object;
mod object_paths;
mod redact;
mod regexp;
mod service;
mod string;
mod time_series;
mod types;
mod vector;

pub use alias::OPERATORS;
pub(crate) use alias::{operator, operator_takes};

use crate::env::Context;
use crate::{Error, MEMORY, Result, Value};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::OnceLock;

/// Any number of arguments.
const MANY: usize = usize::MAX;

/// Maximum size of a function's result, in bytes or elements.
pub(crate) const RESULT_MAX: usize = 32 << 20;

type Implementation = fn(&[Value], &Context<'_>) -> Result<Value>;

/// A function of the language.
pub struct Function {
    /// The name, in upper case.
    pub name: &'static str,
    /// The minimum number of arguments.
    pub args_min: usize,
    /// The maximum number of arguments.
    pub args_max: usize,
    strict: bool,
    implementation: Implementation,
}

impl Function {
    pub(crate) fn call(&self, args: &[Value], context: &Context<'_>) -> Result<Value> {
        if self.strict {
            if args.iter().any(Value::is_missing) {
                return Ok(Value::Missing);
            }
            if args.iter().any(|arg| matches!(arg, Value::Null)) {
                return Ok(Value::Null);
            }
        }
        (self.implementation)(args, context)
    }

    /// Returns true if equal arguments give equal results, so that an index may store them.
    pub fn is_deterministic(&self) -> bool {
        let varies = ["NOW_", "CLOCK_", "RANDOM", "SEARCH", "UUID"];
        !varies.iter().any(|prefix| self.name.starts_with(prefix))
            && !service::is_of_service(self.name)
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Function {
    fn eq(&self, other: &Function) -> bool {
        self.name == other.name
    }
}

/// Defines a function that never receives MISSING or NULL.
const fn strict(
    name: &'static str,
    args_min: usize,
    args_max: usize,
    implementation: Implementation,
) -> Function {
    Function { name, args_min, args_max, strict: true, implementation }
}

/// Defines a function that receives MISSING and NULL.
const fn open(
    name: &'static str,
    args_min: usize,
    args_max: usize,
    implementation: Implementation,
) -> Function {
    Function { name, args_min, args_max, strict: false, implementation }
}

/// `META` is evaluated with access to the documents; the table only has its name.
static META: Function = open("META", 0, 1, |_, _| Ok(Value::Missing));

/// See [`META`].
static UNNEST_POS: Function = open("UNNEST_POS", 1, 1, |_, _| Ok(Value::Missing));

/// See [`META`].
static UNNEST_POSITION: Function = open("UNNEST_POSITION", 1, 1, |_, _| Ok(Value::Missing));

/// See [`META`]; [`crate::multikey`] evaluates it.
static MULTIKEY_OBJECTS: Function = open("MULTIKEY_OBJECTS", 1, 1, |_, _| Ok(Value::Missing));

/// See [`META`]; [`crate::search`] evaluates these.
static SEARCHES: &[Function] = &[
    open("SEARCH", 2, 3, |_, _| Ok(Value::Missing)),
    open("SEARCH_META", 0, 1, |_, _| Ok(Value::Missing)),
    open("SEARCH_SCORE", 0, 1, |_, _| Ok(Value::Missing)),
];

static TABLES: &[&[Function]] = &[
    array::FUNCTIONS,
    bits::FUNCTIONS,
    comparison::FUNCTIONS,
    conditional::FUNCTIONS,
    date::FUNCTIONS,
    find_error::FUNCTIONS,
    infer::FUNCTIONS,
    json::FUNCTIONS,
    number::FUNCTIONS,
    object::FUNCTIONS,
    object_paths::FUNCTIONS,
    redact::FUNCTIONS,
    regexp::FUNCTIONS,
    SEARCHES,
    service::FUNCTIONS,
    string::FUNCTIONS,
    time_series::FUNCTIONS,
    types::FUNCTIONS,
    vector::FUNCTIONS,
];

/// Returns the function with this name, ignoring case.
pub fn find(name: &str) -> Option<&'static Function> {
    static BY_NAME: OnceLock<BTreeMap<&'static str, &'static Function>> = OnceLock::new();
    let by_name = BY_NAME.get_or_init(|| {
        let mut by_name: BTreeMap<&'static str, &'static Function> =
            all().map(|function| (function.name, function)).collect();
        for (other, name) in alias::ALIASES {
            let function = by_name[name];
            by_name.insert(other, function);
        }
        by_name
    });
    by_name.get(name.to_ascii_uppercase().as_str()).copied()
}

/// Returns all names by which functions, aggregates and operators can be called, in upper case and sorted.
pub fn names() -> Vec<String> {
    let aggregates = AGGREGATES.iter().map(|(name, _)| *name);
    let windows = WINDOW_FUNCTIONS.iter().map(|(name, ..)| *name);
    let operators = OPERATORS.iter().map(|(name, ..)| *name);
    let functions = all().map(|function| function.name);
    let others = alias::ALIASES.iter().map(|(name, _)| *name);
    let names = functions.chain(others).chain(aggregates).chain(windows).chain(operators);
    let mut names: Vec<String> =
        names.chain(["flatten_keys"]).map(str::to_ascii_uppercase).collect();
    names.sort();
    names.dedup();
    names
}

/// Returns all functions except aggregates.
pub fn all() -> impl Iterator<Item = &'static Function> {
    let evaluated_elsewhere = [&META, &MULTIKEY_OBJECTS, &UNNEST_POS, &UNNEST_POSITION];
    TABLES.iter().flat_map(|table| table.iter()).chain(evaluated_elsewhere)
}

/// Aggregates, with their number of arguments. All of them can also be used with a window.
pub const AGGREGATES: &[(&str, usize)] = &[
    ("array_agg", 1),
    ("avg", 1),
    ("count", 1),
    ("countn", 1),
    ("max", 1),
    ("mean", 1),
    ("median", 1),
    ("min", 1),
    ("stddev", 1),
    ("stddev_pop", 1),
    ("stddev_samp", 1),
    ("sum", 1),
    ("var_pop", 1),
    ("var_samp", 1),
    ("variance", 1),
    ("variance_pop", 1),
    ("variance_samp", 1),
];

/// Functions that need a window, with the minimum and maximum number of arguments.
pub const WINDOW_FUNCTIONS: &[(&str, usize, usize)] = &[
    ("cume_dist", 0, 0),
    ("dense_rank", 0, 0),
    ("first_value", 1, 1),
    ("lag", 1, 3),
    ("last_value", 1, 1),
    ("lead", 1, 3),
    ("nth_value", 2, 2),
    ("ntile", 1, 1),
    ("percent_rank", 0, 0),
    ("rank", 0, 0),
    ("ratio_to_report", 1, 1),
    ("row_number", 0, 0),
];

/// Returns true if `name` is an aggregate or window function, ignoring case.
pub(crate) fn is_aggregate(name: &str) -> bool {
    AGGREGATES.iter().any(|(aggregate, _)| aggregate.eq_ignore_ascii_case(name))
        || WINDOW_FUNCTIONS.iter().any(|(function, ..)| function.eq_ignore_ascii_case(name))
}

pub(crate) fn is_window_only(name: &str) -> bool {
    WINDOW_FUNCTIONS.iter().any(|(function, ..)| *function == name)
}

pub(crate) fn aggregate_takes(name: &str, args: usize, star: bool) -> bool {
    star || AGGREGATES.iter().any(|(aggregate, count)| *aggregate == name && *count == args)
        || WINDOW_FUNCTIONS
            .iter()
            .any(|(function, min, max)| *function == name && (*min..=*max).contains(&args))
}

/// Returns the error of a result that would be too large.
pub(crate) fn too_large() -> Error {
    Error::new(MEMORY, "a function's result is too large")
}

/// Defines a strict function of one number.
macro_rules! of_number {
    ($name:literal, $compute:expr) => {
        $crate::functions::strict($name, 1, 1, |args, _| {
            let compute: fn(f64) -> f64 = $compute;
            Ok(match args[0].as_f64() {
                Some(number) => $crate::Value::number(compute(number)),
                None => $crate::Value::Null,
            })
        })
    };
}

/// Defines a strict function of one string.
macro_rules! of_string {
    ($name:literal, $compute:expr) => {
        $crate::functions::strict($name, 1, 1, |args, _| {
            let compute: fn(&str) -> $crate::Value = $compute;
            Ok(args[0].as_str().map_or($crate::Value::Null, compute))
        })
    };
}

/// Defines a strict function of one array.
macro_rules! of_array {
    ($name:literal, $compute:expr) => {
        $crate::functions::strict($name, 1, 1, |args, _| {
            let compute: fn(&[$crate::Value]) -> $crate::Value = $compute;
            Ok(args[0].as_array().map_or($crate::Value::Null, compute))
        })
    };
}

use {of_array, of_number, of_string};
