//! Documents over HTTP: CAS, conditions and time to live in headers and queries. The ETag of a document is its CAS.
//!
//! | request | condition | meaning |
//! | --- | --- | --- |
//! | `PUT` | none | stores the document, whatever exists |
//! | `PUT` | `If-None-Match: *` | creates the document; 412 if it exists |
//! | `PUT`, `DELETE` | `If-Match: "CAS"` | changes that version only; 412 if the document has another CAS or does not exist |
//! | `PUT`, `DELETE` | `If-Match: *` | changes an existing document only |
//! | `GET` | `If-None-Match: "CAS"` | 304 if the document still has that CAS |
//!
//! The query parameter `ttl` is the document's time to live in seconds. Without it the document has no expiry of its own, as after a
//! `SET` of the key-value protocol; `ttl=keep` keeps the present expiry.

use crate::body::{Reply, error_reply, invalid, json_reply, reply};
use crate::problem;
use hyper::StatusCode;
use hyper::header::{ETAG, HeaderName, HeaderValue};
use serde_json::json;
use serde_json::value::RawValue;

/// Longest document ID, in bytes. Source: memcached binary protocol.
pub const ID_BYTES_MAX: usize = 250;
/// Documents of a page by default.
pub const LIMIT_DEFAULT: usize = 50;
/// Documents of a page at most.
pub const LIMIT_MAX: usize = 200;
/// Longest time until an expiry that the key-value protocol takes as a duration, in seconds; it takes more as a time. Source: memcached
/// binary protocol.
const RELATIVE_S_MAX: u64 = 30 * 24 * 3600;
/// Longest `ttl`, in seconds: 50 years. Source: Couchbase's SDKs.
const TTL_S_MAX: u64 = 50 * 365 * 24 * 3600;
/// Expiry of a document, in seconds of Unix time.
const EXPIRY: HeaderName = HeaderName::from_static("nacre-expiry");
/// Type that `curl -d` and other tools send unless they are given one. Pages of browsers are checked before.
const UNSPECIFIED: &str = "application/x-www-form-urlencoded";

/// Condition of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// There is none.
    None,
    /// There is no document.
    Absent,
    /// There is a document.
    Present,
    /// There is that version, which is never 0.
    Version(u64),
}

/// Returns the version as an ETag: 64 bits do not fit into a number of JSON, so it is text everywhere.
pub fn etag(cas: u64) -> String {
    format!("\"{cas}\"")
}

/// Adds the version of a document to an answer.
pub fn mark(answer: &mut Reply, cas: u64) {
    if let Ok(etag) = HeaderValue::from_str(&etag(cas)) {
        answer.headers_mut().insert(ETAG, etag);
    }
}

/// Returns the answer to a request for a document, with its expiry in seconds of Unix time, or 0. `known` is the header
/// `If-None-Match`. The body is made only if it is sent.
pub fn shown(
    known: Option<&str>,
    cas: u64,
    expiry: u32,
    is_json: bool,
    body: impl FnOnce() -> bytes::Bytes,
) -> Reply {
    let etag = etag(cas);
    let is_known = known.is_some_and(|known| {
        known == "*" || known.split(',').any(|one| one.trim().trim_start_matches("W/") == etag)
    });
    let kind = if is_json { "application/json" } else { "application/octet-stream" };
    let mut answer = match is_known {
        true => reply(StatusCode::NOT_MODIFIED, kind, ""),
        false => reply(StatusCode::OK, kind, body()),
    };
    mark(&mut answer, cas);
    if expiry > 0 {
        answer.headers_mut().insert(EXPIRY, HeaderValue::from(expiry));
    }
    answer
}

/// Returns the answer to a write.
pub fn stored(status: StatusCode, id: &str, cas: u64) -> Reply {
    let mut answer = json_reply(status, &json!({"id": id, "etag": etag(cas)}));
    mark(&mut answer, cas);
    answer
}

/// Returns the answer to a write whose condition is not met.
pub fn changed(detail: &str) -> Reply {
    problem::reply(StatusCode::PRECONDITION_FAILED, "changed", detail)
}

/// Returns the reply for a document that is not there.
pub fn no_document() -> Reply {
    error_reply(StatusCode::NOT_FOUND, "not_found", "there is no such document")
}

/// Checks the length of an ID.
///
/// # Errors
/// 400.
pub fn check_id(id: &str) -> Result<(), Reply> {
    match (1..=ID_BYTES_MAX).contains(&id.len()) {
        true => Ok(()),
        false => Err(invalid("id", format!("an ID has 1 to {ID_BYTES_MAX} bytes"))),
    }
}

/// Reads how many documents a page has.
///
/// # Errors
/// 400.
pub fn limit(text: Option<&str>) -> Result<usize, Reply> {
    let limit = text.map_or(Ok(LIMIT_DEFAULT), str::parse);
    let limit = limit.ok().filter(|limit| (1..=LIMIT_MAX).contains(limit));
    limit.ok_or_else(|| invalid("limit", format!("a number, 1 to {LIMIT_MAX}")))
}

/// Returns the body of a request, which is JSON, without space around it. `kind` is its type.
///
/// # Errors
/// 415 for another type, 400 for another text.
pub fn json_body<'b>(kind: Option<&str>, body: &'b [u8]) -> Result<&'b [u8], Reply> {
    let kind = kind.unwrap_or("application/json");
    let essence = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if !matches!(&*essence, "application/json" | UNSPECIFIED) && !essence.ends_with("+json") {
        let detail = format!("a document is JSON: send it as application/json, not as {essence}");
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return Err(problem::reply(status, "unsupported_media_type", &detail));
    }
    match serde_json::from_slice::<&RawValue>(body) {
        Ok(json) => Ok(json.get().as_bytes()),
        Err(error) => Err(invalid("_", format!("the body is not JSON: {error}"))),
    }
}

/// Reads `ttl` of a query as the key-value protocol takes an expiry: `None` if the document keeps what it has. `now_s` is the Unix time.
///
/// # Errors
/// 400.
pub fn expiry(ttl: Option<&str>, now_s: u32) -> Result<Option<u32>, Reply> {
    let Some(text) = ttl else { return Ok(Some(0)) };
    if text == "keep" {
        return Ok(None);
    }
    let refused = || invalid("ttl", format!("seconds, 0 (never) to {TTL_S_MAX}, or keep"));
    let seconds = text.parse::<u64>().ok().filter(|seconds| *seconds <= TTL_S_MAX);
    let seconds = seconds.ok_or_else(refused)?;
    let expiry = match seconds {
        0..=RELATIVE_S_MAX => seconds,
        _ => u64::from(now_s) + seconds,
    };
    u32::try_from(expiry).map(Some).map_err(|_| refused())
}

/// Returns the only value of a header of a request; names are in lower case.
///
/// # Errors
/// 400 when there are several.
pub fn only<'h>(headers: &'h [(String, String)], name: &str) -> Result<Option<&'h str>, Reply> {
    let mut values = headers.iter().filter(|(known, _)| known == name);
    match (values.next(), values.next()) {
        (value, None) => Ok(value.map(|(_, value)| value.as_str())),
        _ => Err(invalid(name, "the header can be sent once")),
    }
}

/// Reads the condition of a write.
///
/// # Errors
/// 400.
pub fn condition(headers: &[(String, String)]) -> Result<Condition, Reply> {
    read_condition(only(headers, "if-match")?, only(headers, "if-none-match")?)
        .map_err(|(header, reason)| invalid(header, reason))
}

fn read_condition(
    matches: Option<&str>,
    none_match: Option<&str>,
) -> Result<Condition, (&'static str, &'static str)> {
    match (matches.map(str::trim), none_match.map(str::trim)) {
        (None, None) => Ok(Condition::None),
        (None, Some("*")) => Ok(Condition::Absent),
        (None, Some(_)) => Err(("If-None-Match", "only * has a meaning for a write")),
        (Some("*"), None) => Ok(Condition::Present),
        (Some(tag), None) => {
            let digits = tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"'));
            let cas = digits.and_then(|digits| digits.parse().ok()).filter(|cas| *cas > 0);
            let reason = "one ETag as it was given, with its quotes, or *";
            cas.map(Condition::Version).ok_or(("If-Match", reason))
        }
        (Some(_), Some(_)) => Err(("If-Match", "send it, or If-None-Match, not both")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_of_writes_are_one_version_any_or_none() {
        let of =
            |matches, none_match| read_condition(matches, none_match).map_err(|(name, _)| name);
        assert_eq!(of(None, None), Ok(Condition::None));
        assert_eq!(of(Some("*"), None), Ok(Condition::Present));
        assert_eq!(of(None, Some(" * ")), Ok(Condition::Absent));
        assert_eq!(of(Some("\"18446744073709551615\""), None), Ok(Condition::Version(u64::MAX)));
        for tag in [
            "",
            "7",
            "\"\"",
            "\"0\"",
            "\"-1\"",
            "W/\"7\"",
            "\"7\", \"8\"",
            "\"18446744073709551616\"",
        ] {
            assert_eq!(of(Some(tag), None), Err("If-Match"), "{tag}");
        }
        assert_eq!(of(None, Some("\"7\"")), Err("If-None-Match"));
        assert_eq!(of(Some("\"7\""), Some("*")), Err("If-Match"));
    }
}
