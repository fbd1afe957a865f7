//! Reductions: built-in ones in Rust, others in JavaScript.
//!
//! In the tree, a reduction is a tag followed by its content: `c` and a count, `s` and a sum, `v` and the sums of arrays by
//! position, `t` and the five numbers of `_stats`, `T` and five numbers for each array position (all numbers are
//! little-endian), `j` and JSON text, `e` and the text of an error. Re-reducing an error results in the error; a query that
//! reads an error reports it.

use crate::row::{ViewRow, key_and_value};
use nacre_js::{Argument, Error, FunctionId, Functions, quote};
use nacre_plugin::btree::{Reducer, Row};
use std::cell::RefCell;

/// A reduce function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduce {
    /// The number of rows.
    Count,
    /// The sum of the values. Arrays of numbers are added by position, where a number counts as an array with one
    /// element.
    Sum,
    /// Sum, count, minimum, maximum, and sum of squares of the values. For arrays of numbers with equal lengths, by
    /// position.
    Stats,
    /// A function of the design document.
    Custom(FunctionId),
}

impl Reduce {
    /// Returns the built-in named `text`, or the custom function with that text, which `add` compiles.
    ///
    /// # Errors
    /// The text is neither a built-in nor a function.
    pub fn read(
        text: &str,
        add: impl FnOnce(&str) -> Result<FunctionId, Error>,
    ) -> Result<Reduce, String> {
        // As in CouchDB, anything after the name of a built-in is ignored.
        match text.split_whitespace().next().unwrap_or_default() {
            "_count" => Ok(Reduce::Count),
            "_sum" => Ok(Reduce::Sum),
            "_stats" => Ok(Reduce::Stats),
            _ if text.starts_with('_') && !text.contains('(') && !text.contains('=') => {
                Err(format!("no built-in {text:?}; there are _count, _sum and _stats"))
            }
            _ => add(text).map(Reduce::Custom).map_err(|error| error.to_string()),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Stats {
    sum: f64,
    count: f64,
    min: f64,
    max: f64,
    sumsqr: f64,
}

/// A decoded reduction: see the module documentation.
#[derive(Clone, Debug, PartialEq)]
enum Reduction {
    Count(u64),
    Sum(f64),
    Sums(Vec<f64>),
    Stats(Stats),
    StatsList(Vec<Stats>),
    Json(String),
    Error(String),
}

impl Stats {
    /// Returns the statistics of one number.
    fn of(number: f64) -> Stats {
        Stats { sum: number, count: 1.0, min: number, max: number, sumsqr: number * number }
    }

    fn and(self, other: Stats) -> Stats {
        Stats {
            sum: self.sum + other.sum,
            count: self.count + other.count,
            min: self.min.min(other.min),
            max: self.max.max(other.max),
            sumsqr: self.sumsqr + other.sumsqr,
        }
    }

    fn numbers(&self) -> [f64; 5] {
        [self.sum, self.count, self.min, self.max, self.sumsqr]
    }

    fn from_numbers([sum, count, min, max, sumsqr]: [f64; 5]) -> Stats {
        Stats { sum, count, min, max, sumsqr }
    }

    fn json(&self) -> String {
        let [sum, count, min, max, sumsqr] = self.numbers().map(number_json);
        format!(r#"{{"sum":{sum},"count":{count},"min":{min},"max":{max},"sumsqr":{sumsqr}}}"#)
    }
}

impl Reduction {
    fn encode(&self) -> Vec<u8> {
        match self {
            Reduction::Count(count) => [&b"c"[..], &count.to_le_bytes()].concat(),
            Reduction::Sum(sum) => [&b"s"[..], &sum.to_le_bytes()].concat(),
            Reduction::Sums(sums) => {
                let numbers: Vec<u8> = sums.iter().flat_map(|sum| sum.to_le_bytes()).collect();
                [&b"v"[..], &numbers].concat()
            }
            Reduction::Stats(stats) => {
                let numbers = stats.numbers().map(f64::to_le_bytes);
                [&b"t"[..], numbers.as_flattened()].concat()
            }
            Reduction::StatsList(list) => {
                let numbers = list.iter().flat_map(Stats::numbers).flat_map(f64::to_le_bytes);
                b"T".iter().copied().chain(numbers).collect()
            }
            Reduction::Json(text) => [b"j", text.as_bytes()].concat(),
            Reduction::Error(text) => [b"e", text.as_bytes()].concat(),
        }
    }

    fn decode(bytes: &[u8]) -> Reduction {
        Reduction::try_decode(bytes)
            .unwrap_or_else(|| Reduction::Error("a reduction in the index is damaged".into()))
    }

    fn try_decode(bytes: &[u8]) -> Option<Reduction> {
        let (tag, content) = bytes.split_first()?;
        let number = |index: usize| {
            let bytes = content.get(index * 8..index * 8 + 8)?;
            Some(f64::from_le_bytes(bytes.try_into().ok()?))
        };
        Some(match tag {
            b'c' => Reduction::Count(u64::from_le_bytes(content.try_into().ok()?)),
            b's' => Reduction::Sum(number(0)?),
            b'v' => Reduction::Sums((0..content.len() / 8).map(number).collect::<Option<_>>()?),
            b't' => Reduction::Stats(stats_at(&number, 0)?),
            b'T' => {
                let list = (0..content.len() / 40).map(|at| stats_at(&number, at * 5));
                Reduction::StatsList(list.collect::<Option<_>>()?)
            }
            b'j' => Reduction::Json(String::from_utf8(content.to_vec()).ok()?),
            b'e' => Reduction::Error(String::from_utf8(content.to_vec()).ok()?),
            _ => return None,
        })
    }
}

/// Returns the value of a reduction as JSON.
///
/// # Errors
/// The error that is the result of the reduction, for the author of the view.
pub fn result_json(reduction: &[u8]) -> Result<String, String> {
    match Reduction::decode(reduction) {
        Reduction::Count(count) => Ok(count.to_string()),
        Reduction::Sum(sum) => Ok(number_json(sum)),
        Reduction::Sums(sums) => {
            let numbers: Vec<String> = sums.into_iter().map(number_json).collect();
            Ok(format!("[{}]", numbers.join(",")))
        }
        Reduction::Stats(stats) => Ok(stats.json()),
        Reduction::StatsList(list) => {
            let list: Vec<String> = list.iter().map(Stats::json).collect();
            Ok(format!("[{}]", list.join(",")))
        }
        Reduction::Json(text) => Ok(text),
        Reduction::Error(text) => Err(text),
    }
}

/// Returns the error if the reduction is one.
pub fn error_of(reduction: &[u8]) -> Option<String> {
    match Reduction::decode(reduction) {
        Reduction::Error(text) => Some(text),
        _ => None,
    }
}

/// Formats a number as JavaScript does: whole numbers without a fraction, and numbers that are not finite as null.
fn number_json(number: f64) -> String {
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    match number {
        _ if !number.is_finite() => "null".into(),
        _ if number.fract() == 0.0 && number.abs() <= EXACT_MAX => (number as i64).to_string(),
        _ => serde_json::json!(number).to_string(),
    }
}

/// Reduces the rows in a view's tree.
pub struct ViewReducer<'a> {
    /// `None` for a view without a reduce function.
    pub reduce: Option<&'a Reduce>,
    /// The engine for custom functions.
    pub functions: &'a RefCell<Functions>,
}

impl Reducer for ViewReducer<'_> {
    fn reduce(&self, rows: &[Row<'_>]) -> Vec<u8> {
        let Some(reduce) = self.reduce else { return Vec::new() };
        let reduction = match reduce {
            Reduce::Count => Ok(Reduction::Count(rows.len() as u64)),
            Reduce::Sum => sum(rows),
            Reduce::Stats => stats(rows),
            Reduce::Custom(function) => {
                self.custom(*function, rows).map_err(|error| format!("reduce: {error}"))
            }
        };
        reduction.unwrap_or_else(Reduction::Error).encode()
    }

    fn rereduce(&self, parts: &[&[u8]]) -> Vec<u8> {
        let Some(reduce) = self.reduce else { return Vec::new() };
        let parts: Vec<_> = parts.iter().map(|part| Reduction::decode(part)).collect();
        let error = parts.iter().find(|part| matches!(part, Reduction::Error(_)));
        if let Some(error) = error {
            return error.encode();
        }
        let whole = match reduce {
            Reduce::Custom(function) => self
                .custom_again(*function, &parts)
                .unwrap_or_else(|error| Reduction::Error(format!("reduce: {error}"))),
            _ => parts.into_iter().reduce(combined).unwrap_or(Reduction::Count(0)),
        };
        whole.encode()
    }
}

impl ViewReducer<'_> {
    fn custom(&self, function: FunctionId, rows: &[Row<'_>]) -> Result<Reduction, Error> {
        let (mut keys, mut values) = (String::from("["), String::from("["));
        for (index, row) in rows.iter().enumerate() {
            let Some(row) = ViewRow::decode(row.key, row.value) else {
                return Ok(Reduction::Error("a row of the index is damaged".into()));
            };
            if index > 0 {
                keys.push(',');
                values.push(',');
            }
            keys.push('[');
            keys.push_str(row.key);
            keys.push(',');
            quote(&row.id, &mut keys);
            keys.push(']');
            values.push_str(row.value);
        }
        keys.push(']');
        values.push(']');
        let arguments = [Argument::Json(&keys), Argument::Json(&values), Argument::Bool(false)];
        let result = self.functions.borrow_mut().engine()?.call(function, &arguments)?;
        Ok(Reduction::Json(result.unwrap_or_else(|| "null".into())))
    }

    fn custom_again(&self, function: FunctionId, parts: &[Reduction]) -> Result<Reduction, Error> {
        let texts = parts.iter().filter_map(|part| match part {
            Reduction::Json(text) => Some(&text[..]),
            _ => None,
        });
        let values = format!("[{}]", texts.collect::<Vec<_>>().join(","));
        let arguments = [Argument::Null, Argument::Json(&values), Argument::Bool(true)];
        let result = self.functions.borrow_mut().engine()?.call(function, &arguments)?;
        Ok(Reduction::Json(result.unwrap_or_else(|| "null".into())))
    }
}

/// Applies `read` to the value of each row.
///
/// # Errors
/// A sentence that begins with `needs` and names the document whose value cannot be read.
fn values<T>(
    rows: &[Row<'_>],
    needs: &str,
    read: impl Fn(&str) -> Option<T>,
) -> Result<Vec<T>, String> {
    let one = |row: &Row<'_>| {
        let (_, value) = key_and_value(row.value).ok_or("a row of the index is damaged")?;
        read(value).ok_or_else(|| {
            let id = ViewRow::decode(row.key, row.value).map(|row| row.id).unwrap_or_default();
            let value: String = value.chars().take(60).collect();
            format!("{needs}, and document {id:?} emitted {value}")
        })
    };
    rows.iter().map(one).collect()
}

fn sum(rows: &[Row<'_>]) -> Result<Reduction, String> {
    let read = |value: &str| match value.parse() {
        Ok(number) => Some(Reduction::Sum(number)),
        Err(_) => serde_json::from_str(value).ok().map(Reduction::Sums),
    };
    let parts = values(rows, "_sum needs numbers or arrays of numbers", read)?;
    Ok(parts.into_iter().reduce(combined).unwrap_or(Reduction::Sum(0.0)))
}

/// Returns five numbers, starting at `first`.
fn stats_at(number: &impl Fn(usize) -> Option<f64>, first: usize) -> Option<Stats> {
    let at = |index: usize| number(first + index);
    Some(Stats::from_numbers([at(0)?, at(1)?, at(2)?, at(3)?, at(4)?]))
}

fn stats(rows: &[Row<'_>]) -> Result<Reduction, String> {
    let read = |value: &str| match value.parse() {
        Ok(number) => Some(Reduction::Stats(Stats::of(number))),
        Err(_) => {
            let numbers: Vec<f64> = serde_json::from_str(value).ok()?;
            Some(Reduction::StatsList(numbers.into_iter().map(Stats::of).collect()))
        }
    };
    let parts = values(rows, "_stats needs numbers or arrays of numbers", read)?;
    Ok(parts.into_iter().reduce(combined).unwrap_or(Reduction::Error("_stats of no rows".into())))
}

fn combined(a: Reduction, b: Reduction) -> Reduction {
    match (a, b) {
        (Reduction::Count(a), Reduction::Count(b)) => Reduction::Count(a.saturating_add(b)),
        (Reduction::Sum(a), Reduction::Sum(b)) => Reduction::Sum(a + b),
        (Reduction::Sums(sums), Reduction::Sum(sum))
        | (Reduction::Sum(sum), Reduction::Sums(sums)) => {
            combined(Reduction::Sums(sums), Reduction::Sums(vec![sum]))
        }
        (Reduction::Sums(a), Reduction::Sums(b)) => {
            let (mut longer, shorter) = if a.len() < b.len() { (b, a) } else { (a, b) };
            longer.iter_mut().zip(shorter).for_each(|(sum, number)| *sum += number);
            Reduction::Sums(longer)
        }
        (Reduction::Stats(a), Reduction::Stats(b)) => Reduction::Stats(a.and(b)),
        (Reduction::StatsList(a), Reduction::StatsList(b)) if a.len() == b.len() => {
            Reduction::StatsList(a.into_iter().zip(b).map(|(a, b)| a.and(b)).collect())
        }
        (
            Reduction::Stats(_) | Reduction::StatsList(_),
            Reduction::Stats(_) | Reduction::StatsList(_),
        ) => Reduction::Error("_stats needs numbers, or arrays of one length".into()),
        (error @ Reduction::Error(_), _) | (_, error @ Reduction::Error(_)) => error,
        _ => Reduction::Error("reductions of different kinds in one index".into()),
    }
}
