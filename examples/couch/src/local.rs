//! `_local/{id}`: documents that are not replicated, such as the checkpoints of clients.

use crate::Call;
use crate::http::{Problem, durable, json};
use crate::json::{document, quoted, read};
use md5::{Digest, Md5};
use nacre_plugin::{Response, kv};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

#[derive(Serialize, Deserialize)]
struct Stored {
    id: String,
    rev: u64,
    body: Box<RawValue>,
}

/// Answers a request about a local document.
///
/// # Errors
/// The problem to answer with.
pub fn answer(call: &Call<'_>, method: &str, id: &str) -> Result<Response, Problem> {
    let config = call.store.config;
    let digest: String = Md5::digest(id).iter().map(|byte| format!("{byte:02x}")).collect();
    let key = format!("{}/local/{digest}", config.database).into_bytes();
    let found = match kv::get(&config.private, &key) {
        Ok(document) => Some(document),
        Err(kv::Error::NotFound) => None,
        Err(error) => return Err(error.into()),
    };
    let stored: Option<Stored> =
        found.as_ref().and_then(|document| serde_json::from_slice(&document.body).ok());
    let shown = quoted(&format!("_local/{id}"));
    match (method, &stored) {
        ("GET", None) => Err(Problem::missing("missing")),
        ("GET", Some(stored)) => {
            let rev = quoted(&format!("0-{}", stored.rev));
            let text = document(&[("_id", shown), ("_rev", rev)], stored.body.get());
            Ok(json(200, format!("{text}\n")))
        }
        ("PUT", _) => {
            let text = std::str::from_utf8(&call.request.body);
            let text = text.map_err(|_| Problem::bad("invalid UTF-8 JSON"))?;
            // Revisions of local documents have the generation 0.
            let (text, in_body) = local_rev(text)?;
            let given = read(&text)?;
            if !given.attachments.is_empty() {
                let reason = "_local documents do not accept attachments.";
                return Err(Problem::bad(reason));
            }
            let known = stored.as_ref().map_or(0, |stored| stored.rev);
            let wanted = in_body.or(parameter(call)?).unwrap_or(0);
            if wanted != known {
                return Err(Problem::conflict());
            }
            let body = RawValue::from_string(given.body);
            let body = body.map_err(|error| Problem::bad(&error.to_string()))?;
            let next = Stored { id: id.to_owned(), rev: known + 1, body };
            let body = serde_json::to_vec(&next).unwrap_or_default();
            let content = kv::Content { body, flags: 0x0200_0006, expiry: 0 };
            let written = match &found {
                None => kv::insert(&config.private, &key, &content),
                Some(found) => kv::replace(&config.private, &key, &content, Some(found.cas)),
            };
            written.map_err(moved)?;
            let rev = known + 1;
            let body = format!("{{\"ok\":true,\"id\":{shown},\"rev\":\"0-{rev}\"}}\n");
            Ok(durable(json(201, body)))
        }
        ("DELETE", None) => Err(Problem::missing("missing")),
        ("DELETE", Some(stored)) => {
            if parameter(call)? != Some(stored.rev) {
                return Err(Problem::conflict());
            }
            kv::remove(&config.private, &key, found.map(|found| found.cas)).map_err(moved)?;
            let body = format!("{{\"ok\":true,\"id\":{shown},\"rev\":\"0-0\"}}\n");
            Ok(durable(json(200, body)))
        }
        _ => Err(Problem::new(405, "method_not_allowed", "Only DELETE,GET,HEAD,PUT allowed")),
    }
}

fn moved(error: kv::Error) -> Problem {
    match error {
        kv::Error::CasMismatch | kv::Error::Exists | kv::Error::NotFound => Problem::conflict(),
        error => error.into(),
    }
}

fn number(text: &str) -> Result<u64, Problem> {
    let number = text.strip_prefix("0-").and_then(|number| number.parse().ok());
    number.ok_or_else(|| Problem::bad("Invalid rev format"))
}

/// Returns the revision in the query string.
fn parameter(call: &Call<'_>) -> Result<Option<u64>, Problem> {
    call.parameters.get("rev").map(number).transpose()
}

/// Removes `_rev` from a document.
fn local_rev(text: &str) -> Result<(String, Option<u64>), Problem> {
    let invalid = |error: serde_json::Error| Problem::bad(&format!("invalid UTF-8 JSON: {error}"));
    let mut value: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(text).map_err(invalid)?;
    let rev = match value.remove("_rev") {
        None | Some(serde_json::Value::Null) => None,
        Some(serde_json::Value::String(rev)) => Some(number(&rev)?),
        Some(_) => return Err(Problem::bad("Invalid rev format")),
    };
    Ok((serde_json::Value::Object(value).to_string(), rev))
}
