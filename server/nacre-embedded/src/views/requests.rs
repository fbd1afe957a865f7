//! The requests of SDKs about views, with the paths and answers of a node, without a port.
//!
//! ```text
//! GET               /pools/default/buckets/default/ddocs
//! GET, PUT, DELETE  /default/_design/{name}
//! GET, POST         /default/_design/{name}/_view/{view}?stale=…
//! ```

use super::Stale;
use crate::folder::BUCKET;
use crate::manage::{decoded, form};
use crate::{Db, Error};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Time limit of a request's wait for rows.
const PATIENCE: Duration = Duration::from_secs(60);

/// A status, and JSON.
type Reply = (u16, String);

/// Answers a request about views; `None` for other requests.
///
/// # Errors
/// [`Error::Closed`], [`Error::Forked`], and errors of the disk.
pub(crate) fn manage(
    db: &Db,
    method: &str,
    path: &str,
    body: &[u8],
) -> Result<Option<Reply>, Error> {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let parts: Vec<String> = path.split('/').skip(1).map(decoded).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let answered = match (method, &parts[..]) {
        ("GET", ["pools", "default", "buckets", BUCKET, "ddocs"]) => Ok(list(db)),
        (_, [BUCKET, "_design", name]) => design(db, method, name, body),
        (_, [BUCKET, "_design", name, "_view", view]) if !view.is_empty() => {
            rows(db, method, name, view, query, body)
        }
        _ => return Ok(None),
    };
    answered.or_else(problem).map(Some)
}

fn refusal(status: u16, error: &str, reason: &str) -> Reply {
    (status, json!({"error": error, "reason": reason}).to_string())
}

/// Returns the answer to a request that has failed. Errors that concern the whole database stay errors.
fn problem(error: Error) -> Result<Reply, Error> {
    if error.is_of_database() {
        return Err(error);
    }
    let reason = error.to_string();
    Ok(match error {
        // Clients repeat a query with the reason `missing` until their timeout.
        Error::ViewNotFound(name) => {
            refusal(404, "not_found", &format!("Design document _design/{name} not found"))
        }
        Error::InvalidArgument(reason) => refusal(400, "invalid_design_document", &reason),
        Error::ViewsTooLarge(_) => refusal(507, "too_large", &reason),
        Error::ViewsNotReady => refusal(503, "try_again", &reason),
        _ => refusal(500, "view_failed", &reason),
    })
}

fn no_method(method: &str) -> Reply {
    refusal(405, "method_not_allowed", &format!("{method} is not a method of this path"))
}

fn list(db: &Db) -> Reply {
    let rows = db.inner().with_config(|config| {
        let rows = config.design_documents.iter().map(|(name, text)| {
            let json: Value = serde_json::from_str(text).unwrap_or_default();
            let meta = json!({"id": format!("_design/{name}"), "rev": "1-0"});
            json!({"doc": {"meta": meta, "json": json}})
        });
        rows.collect::<Vec<Value>>()
    });
    (200, json!({"rows": rows}).to_string())
}

fn design(db: &Db, method: &str, name: &str, body: &[u8]) -> Result<Reply, Error> {
    let status = match method {
        "GET" => {
            let found = db.design_document(name)?;
            return Ok((200, found.ok_or_else(|| Error::ViewNotFound(name.to_owned()))?));
        }
        "PUT" => {
            let text = std::str::from_utf8(body)
                .map_err(|_| Error::InvalidArgument("the body is not UTF-8".into()))?;
            db.put_design_document(name, text)?;
            201
        }
        "DELETE" => {
            db.drop_design_document(name)?;
            200
        }
        _ => return Ok(no_method(method)),
    };
    Ok((status, json!({"ok": true, "id": format!("_design/{name}")}).to_string()))
}

fn rows(
    db: &Db,
    method: &str,
    design: &str,
    view: &str,
    query: &str,
    body: &[u8],
) -> Result<Reply, Error> {
    if method != "GET" && method != "POST" {
        return Ok(no_method(method));
    }
    let body: &[u8] = if method == "POST" { body } else { &[] };
    let stale = match stale_of(query, body) {
        Ok(stale) => stale,
        Err(reason) => return Ok(refusal(400, "query_parse_error", &reason)),
    };
    let request = db.request(method, view, query, body);
    let deadline = Instant::now().checked_add(PATIENCE);
    let (status, body) = db.ask_view(design, &request, stale, deadline)?;
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}

/// Reads the parameter `stale` of a query; a JSON body takes precedence over the query string, as for every parameter.
pub(super) fn stale_of(query: &str, body: &[u8]) -> Result<Stale, String> {
    let posted: Value = serde_json::from_slice(body).unwrap_or_default();
    let value = match &posted["stale"] {
        Value::Null => {
            form(query.as_bytes()).into_iter().find(|(name, _)| name == "stale").map(|it| it.1)
        }
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    };
    match value.as_deref() {
        None | Some("false") => Ok(Stale::False),
        Some("ok" | "true") => Ok(Stale::Ok),
        Some("update_after") => Ok(Stale::UpdateAfter),
        Some(other) => {
            Err(format!("Invalid value for stale: {other:?}, expected false, ok or update_after"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_values_of_stale_are_refused() {
        assert!(stale_of("stale=", b"").is_err());
        assert!(stale_of("stale=ok", br#"{"stale": "maybe"}"#).is_err());
        assert_eq!(stale_of("limit=1&stale=update_after", b""), Ok(Stale::UpdateAfter));
        assert_eq!(stale_of("stale=ok", br#"{"stale": false}"#), Ok(Stale::False));
        assert_eq!(stale_of("", b"not JSON"), Ok(Stale::False));
    }
}
