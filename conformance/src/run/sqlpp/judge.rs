//! Compares an answer with a case's expectation.

use crate::run::{same_json, shorten};
use serde::Deserialize;
use serde_json::Value as Json;
use std::collections::BTreeMap;

/// The error that a case expects.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedError {
    code: u64,
    /// A part of its message, ignoring case.
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

/// Requires that an answer has the given rows, in any order unless `ordered`.
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

/// Requires that rows have these members, each named by its path of indexes and names, such as `0.plan.#operator`.
/// `{"$type": name}` matches any value of that type; null matches a missing one.
pub fn has_members(answer: &Json, expected: &BTreeMap<String, Json>) -> Result<(), String> {
    for (path, wanted) in expected {
        let found = path.split('.').try_fold(&answer["results"], |value, step| match value {
            Json::Array(elements) => elements.get(step.parse::<usize>().ok()?),
            value => value.get(step),
        });
        let found = found.unwrap_or(&Json::Null);
        let same = match wanted.get("$type").and_then(Json::as_str) {
            Some(wanted) => wanted == type_of(found),
            None => nearly_same(found, wanted),
        };
        if !same {
            return Err(format!("expected {path} to be {wanted}, got {found}"));
        }
    }
    Ok(())
}

/// Returns the name of a value's type.
pub(in crate::run) fn type_of(value: &Json) -> &'static str {
    match value {
        Json::Null => "null",
        Json::Bool(_) => "boolean",
        Json::Number(_) => "number",
        Json::String(_) => "string",
        Json::Array(_) => "array",
        Json::Object(_) => "object",
    }
}

fn same_bag(rows: &[Json], expected: &[Json]) -> bool {
    let mut left: Vec<&Json> = rows.iter().collect();
    expected.iter().all(|wanted| {
        let found = left.iter().position(|row| nearly_same(row, wanted));
        found.map(|at| left.swap_remove(at)).is_some()
    }) && left.is_empty()
}

/// Like [`same_json`], but numbers that are not integers need only be nearly equal.
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
    fn members_are_found_by_their_paths() {
        let answer = json!({"results": [{"a": {"~b": [1, "x"]}}]});
        let has = |path: &str, value: Json| {
            has_members(&answer, &BTreeMap::from([(path.to_owned(), value)])).is_ok()
        };
        assert!(has("0.a.~b.1", json!("x")) && has("0.a.~b.0", json!({"$type": "number"})));
        assert!(has("0.c", json!(null)) && has("1", json!(null)));
        assert!(!has("0.a.~b.1", json!("y")) && !has("0.a", json!({"$type": "array"})));
        assert!(!has("0.c", json!({"$type": "string"})));
    }

    #[test]
    fn rows_are_bags_of_nearly_the_same_values() {
        assert!(same_bag(&[json!(1), json!(0.1)], &[json!(0.100_000_000_000_01), json!(1.0)]));
        assert!(!same_bag(&[json!(1), json!(1)], &[json!(1), json!(2)]));
        assert!(!same_bag(&[json!(1)], &[]));
        assert!(!nearly_same(&json!({"a": 1}), &json!({"a": 1, "b": null})));
    }
}
