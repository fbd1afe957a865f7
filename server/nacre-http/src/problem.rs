//! Errors as problem documents (RFC 9457): `application/problem+json`.
//!
//! ```json
//! {"type": "about:blank", "title": "Precondition Failed", "status": 412, "code": "changed", "detail": "the document has changed"}
//! ```
//!
//! `code` is for programs and never changes; `detail` is for people. Other parts of the server answer errors in the formats that
//! Couchbase's clients read. The API converts them before it sends them, so that all its errors have one format.

use crate::body::{self, Reply};
use http_body_util::BodyExt;
use hyper::StatusCode;
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use serde_json::{Map, Value, json};

const CONTENT: &str = "application/problem+json";
/// Largest error of another part of the server that the API converts, in bytes.
const ERROR_BYTES_MAX: u64 = 64 << 10;

/// Returns an error as a reply.
pub fn reply(status: StatusCode, code: &str, detail: &str) -> Reply {
    of(status, code, detail, Map::new())
}

/// Returns an error with additional members as a reply.
pub fn of(status: StatusCode, code: &str, detail: &str, more: Map<String, Value>) -> Reply {
    let title = status.canonical_reason().unwrap_or("Error");
    let mut problem = json!({
        "type": "about:blank",
        "title": title,
        "status": status.as_u16(),
        "code": code,
        "detail": detail,
    });
    for (member, value) in more {
        problem[member] = value;
    }
    body::reply(status, CONTENT, problem.to_string())
}

/// Converts an error into a problem document; returns other answers unchanged.
pub async fn shape(answer: Reply) -> Reply {
    let is_problem = answer.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == CONTENT);
    if answer.status().as_u16() < 400 || is_problem {
        return answer;
    }
    let (mut head, body) = answer.into_parts();
    let is_short =
        hyper::body::Body::size_hint(&body).upper().is_some_and(|bytes| bytes <= ERROR_BYTES_MAX);
    let text = match is_short {
        true => body.collect().await.map(|body| body.to_bytes()).unwrap_or_default(),
        false => Default::default(),
    };
    let (code, detail, more) = explain(head.status, &text);
    let problem = of(head.status, &code, &detail, more);
    head.headers.remove(CONTENT_LENGTH);
    head.headers.insert(CONTENT_TYPE, HeaderValue::from_static(CONTENT));
    Reply::from_parts(head, problem.into_body())
}

/// Reads an error in any of the formats that the server uses.
fn explain(status: StatusCode, text: &[u8]) -> (String, String, Map<String, Value>) {
    let usual = || {
        let reason = status.canonical_reason().unwrap_or("Error");
        reason.to_ascii_lowercase().replace([' ', '-'], "_")
    };
    let mut more = Map::new();
    let value: Value = match serde_json::from_slice(text) {
        Ok(value) => value,
        Err(_) => Value::String(String::from_utf8_lossy(text).into_owned()),
    };
    if let (Some(code), Some(reason)) = (value["error"].as_str(), value["reason"].as_str()) {
        return (code.to_owned(), reason.to_owned(), more);
    }
    if let (Some(message), permissions @ Value::Array(_)) =
        (value["message"].as_str(), &value["permissions"])
    {
        more.insert("permissions".into(), permissions.clone());
        return ("forbidden".into(), message.to_owned(), more);
    }
    if let Value::Object(errors) = &value["errors"] {
        let texts = errors.iter().filter_map(|(field, reason)| {
            let reason = reason.as_str()?;
            Some(if field == "_" { reason.to_owned() } else { format!("{field}: {reason}") })
        });
        let detail = texts.collect::<Vec<_>>().join("; ");
        more.insert("errors".into(), value["errors"].clone());
        let code = if status == StatusCode::BAD_REQUEST { "invalid".into() } else { usual() };
        return (code, detail, more);
    }
    let detail = value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    (usual(), detail.unwrap_or_else(|| "no details are known".into()), more)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_in_all_shapes_of_the_server_are_read() {
        let of = |status: u16, text: &str| {
            let (code, detail, more) =
                explain(StatusCode::from_u16(status).unwrap(), text.as_bytes());
            (code, detail, more.keys().cloned().collect::<Vec<_>>().join(" "))
        };
        let expected = |code: &str, detail: &str, more: &str| {
            (code.to_owned(), detail.to_owned(), more.to_owned())
        };
        assert_eq!(
            of(413, r#"{"error":"too_large","reason":"x"}"#),
            expected("too_large", "x", "")
        );
        assert_eq!(
            of(403, r#"{"message":"no","permissions":["ReadData"]}"#),
            expected("forbidden", "no", "permissions")
        );
        assert_eq!(
            of(400, r#"{"errors":{"_":"a","ttl":"b"}}"#),
            expected("invalid", "a; ttl: b", "errors")
        );
        assert_eq!(of(404, r#""gone""#), expected("not_found", "gone", ""));
        assert_eq!(of(503, "busy"), expected("service_unavailable", "busy", ""));
        assert_eq!(of(500, "").0, "internal_server_error");
    }
}
