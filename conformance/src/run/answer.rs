//! Compares answers to view queries with what a case expects.

use super::{same_json, shorten};
use crate::case::ViewExpect;
use crate::http::Answer;
use crate::kv::frame::invalid;
use serde_json::{Value as Json, json};
use std::io;

/// Describes how an answer differs from the expected one; `None` if they are equal. `prefix` is the
/// prefix of the documents' keys.
pub(super) fn judge(
    expect: &ViewExpect,
    prefix: &str,
    answer: &Answer,
) -> io::Result<Option<String>> {
    let wanted = expect.status.unwrap_or(200);
    if answer.status != wanted {
        return Ok(Some(differs("status", wanted, format!("{} {}", answer.status, answer.text()))));
    }
    // A body that is not JSON has none of the expected members.
    let body = answer.json().unwrap_or_else(|_| Json::from(answer.text()));
    let body = plain_error(body);
    if let Some(rows) = &expect.rows {
        let wanted: Json = rows.iter().map(|row| with_prefix(row, prefix)).collect();
        let got = rows_of(&body)?;
        if !same_json(&wanted, &got) {
            return Ok(Some(differs("rows", wanted, got)));
        }
    }
    if let Some(wanted) = &expect.body {
        let wanted = replace(wanted, prefix);
        if !same_json(&wanted, &body) {
            return Ok(Some(differs("body", wanted, body)));
        }
    }
    let missing = expect.members.iter().find(|name| body.get(name.as_str()).is_none());
    if let Some(name) = missing {
        return Ok(Some(differs("a member", name, body)));
    }
    let length = |name: &str| body.get(name).and_then(Json::as_array).map(Vec::len);
    let error_count = expect.error_count.or(expect.rows.as_ref().map(|_| 0));
    let facts = [
        ("row_count", expect.row_count.map(Json::from), length("rows").map(Json::from)),
        ("total_rows", expect.total_rows.map(Json::from), body.get("total_rows").cloned()),
        ("error", expect.error.clone().map(Json::from), body.get("error").cloned()),
        ("reason", expect.reason.clone().map(Json::from), body.get("reason").cloned()),
        (
            "error_count",
            error_count.map(Json::from),
            Some(Json::from(length("errors").unwrap_or(0))),
        ),
    ];
    let wrong = facts.into_iter().find(|(_, wanted, got)| wanted.is_some() && wanted != got);
    Ok(wrong.map(|(what, wanted, _)| differs(what, wanted.unwrap_or_default(), body)))
}

/// Gives an error in the form of RFC 9457, as a gateway answers it, the names of the members that a node's errors have.
fn plain_error(body: Json) -> Json {
    match (body.get("code"), body.get("detail")) {
        (Some(code @ Json::String(_)), Some(detail)) if body.get("title").is_some() => {
            json!({"error": code, "reason": detail})
        }
        _ => body,
    }
}

fn differs(what: &str, wanted: impl ToString, got: impl ToString) -> String {
    format!("expected {what} {}, got {}", shorten(&wanted.to_string()), shorten(&got.to_string()))
}

/// Returns an expected row in the server's form: with complete ids, and `$PREFIX` replaced in all text.
fn with_prefix(row: &Json, prefix: &str) -> Json {
    let mut row = replace(row, prefix);
    if let Some(Json::String(id)) = row.get_mut("id") {
        id.insert_str(0, prefix);
    }
    row
}

fn replace(json: &Json, prefix: &str) -> Json {
    match json {
        Json::String(text) => Json::from(text.replace("$PREFIX", prefix)),
        Json::Array(elements) => elements.iter().map(|element| replace(element, prefix)).collect(),
        Json::Object(members) => Json::Object(
            members.iter().map(|(name, value)| (name.clone(), replace(value, prefix))).collect(),
        ),
        other => other.clone(),
    }
}

/// Returns the rows of an answer, each reduced to the members that cases compare: id, key and value.
fn rows_of(body: &Json) -> io::Result<Json> {
    let rows = body["rows"].as_array().ok_or_else(|| invalid("the answer has no rows"))?;
    let cut = |row: &Json| {
        let members = ["id", "key", "value"].iter();
        let members =
            members.filter_map(|name| Some(((*name).to_owned(), row.get(*name)?.clone())));
        Json::Object(members.collect())
    };
    Ok(rows.iter().map(cut).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Returns the problem of a complete answer with two rows and an error, given the expectation.
    fn problem(expect: Json) -> Option<String> {
        let body = json!({
            "total_rows": 2,
            "rows": [{"id": "p:a", "key": 1, "value": null}, {"id": "p:b", "key": "p:", "value": 2, "more": 3}],
            "errors": [{"from": "local", "reason": "r"}],
        });
        let answer =
            Answer { status: 200, headers: Vec::new(), body: body.to_string().into_bytes() };
        judge(&serde_json::from_value(expect).unwrap(), "p:", &answer).unwrap()
    }

    #[test]
    fn each_part_of_an_expectation_can_hold_and_can_fail() {
        let rows = json!([{"id": "a", "key": 1, "value": null}, {"id": "b", "key": "$PREFIX", "value": 2}]);
        let holds = [
            json!({}),
            json!({"status": 200}),
            json!({"rows": rows, "error_count": 1}),
            json!({"row_count": 2, "total_rows": 2, "members": ["errors"]}),
        ];
        for expect in holds {
            assert_eq!(problem(expect.clone()), None, "{expect}");
        }
        let fails = [
            json!({"status": 404}),
            // Errors in addition to rows must be expected.
            json!({"rows": rows}),
            json!({"rows": [], "error_count": 1}),
            json!({"row_count": 1}),
            json!({"total_rows": 3}),
            json!({"error": "e"}),
            json!({"reason": "r"}),
            json!({"error_count": 0}),
            json!({"members": ["debug_info"]}),
            json!({"body": {}}),
        ];
        for expect in fails {
            assert!(problem(expect.clone()).is_some(), "{expect}");
        }
    }

    #[test]
    fn a_response_that_is_not_json_has_only_a_status() {
        let answer = Answer { status: 200, headers: Vec::new(), body: b"<html>".to_vec() };
        let judged = |expect: Json| judge(&serde_json::from_value(expect).unwrap(), "", &answer);
        assert_eq!(judged(json!({})).unwrap(), None);
        assert!(judged(json!({"row_count": 0})).unwrap().is_some());
        assert!(judged(json!({"rows": []})).is_err());
    }
}
