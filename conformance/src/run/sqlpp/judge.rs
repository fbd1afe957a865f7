//! Whether an answer is what a case expects.

use crate::run::{same_json, shorten};
use serde::Deserialize;
use serde_json::Value as Json;

/// Error that a case expects.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedError {
    code: u64,
    /// Part of its message, in any case of letters.
    #[serde(default)]
    contains: String,
}

/// Requires that an answer has an error.
pub fn has_failed(answer: &Json, expected: &ExpectedError) -> Result<(), String> {
    let errors = answer["errors"].as_array().cloned().unwrap_or_default();
    let is_expected = |error: &Json| {
        let text = error["msg"].as_str().unwrap_or_default().to_lowercase();
        error["code"] == expected.code && text.contains(&expected.contains.to_lowercase())
    };
    match errors.iter().any(is_expected) {
        true => Ok(()),
        false => {
            Err(format!("expected error {}, got {}", expected.code, shorten(&answer.to_string())))
        }
    }
}

/// Requires that an answer has rows, in any order unless they are ordered.
pub fn has_rows(answer: &Json, expected: &[Json], ordered: bool) -> Result<(), String> {
    if answer["status"] != "success" {
        return Err(answer["errors"].to_string());
    }
    let rows = answer["results"].as_array().map(Vec::as_slice).unwrap_or_default();
    let same = if ordered {
        rows.len() == expected.len() && rows.iter().zip(expected).all(|(a, b)| nearly_same(a, b))
    } else {
        same_bag(rows, expected)
    };
    if same { Ok(()) } else { Err(format!("got {}", shorten(&answer["results"].to_string()))) }
}

fn same_bag(rows: &[Json], expected: &[Json]) -> bool {
    let mut left: Vec<&Json> = rows.iter().collect();
    expected.iter().all(|wanted| {
        let found = left.iter().position(|row| nearly_same(row, wanted));
        found.map(|at| left.swap_remove(at)).is_some()
    }) && left.is_empty()
}

/// As [`same_json`], but that numbers which are no integers need only be nearly the same.
fn nearly_same(a: &Json, b: &Json) -> bool {
    match (a, b) {
        (Json::Number(x), Json::Number(y)) => {
            let (x, y) = (x.as_f64().unwrap_or(f64::NAN), y.as_f64().unwrap_or(f64::NAN));
            let is_whole = x.fract() == 0.0 && y.fract() == 0.0;
            same_json(a, b) || !is_whole && (x - y).abs() <= 1e-9 * x.abs().max(y.abs())
        }
        (Json::Array(a), Json::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| nearly_same(a, b))
        }
        (Json::Object(a), Json::Object(b)) => {
            a.len() == b.len()
                && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| nearly_same(a, b)))
        }
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rows_are_bags_of_nearly_the_same_values() {
        assert!(same_bag(&[json!(1), json!(0.1)], &[json!(0.100_000_000_000_01), json!(1.0)]));
        assert!(!same_bag(&[json!(1), json!(1)], &[json!(1), json!(2)]));
        assert!(!same_bag(&[json!(1)], &[]));
        assert!(!nearly_same(&json!({"a": 1}), &json!({"a": 1, "b": null})));
    }
}
