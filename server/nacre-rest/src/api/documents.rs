//! Documents over HTTP. The ETag of a document is its CAS.
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

use super::super::Call;
use super::super::body::{Reply, invalid, json_reply, ok, reply};
use super::super::documents::{
    ID_BYTES_MAX, PATIENCE, keyspace, no_document, require, with_session,
};
use super::super::memory::charged;
use super::problem;
use hyper::StatusCode;
use hyper::header::{ETAG, HeaderName, HeaderValue, LOCATION};
use nacre_auth::Privilege;
use nacre_query_service::ListedDocuments;
use nacre_sandbox::{Action, DatabaseKeyspace, Mutation, Row, RowRefusal};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Largest document, in bytes.
pub(super) const VALUE_BYTES_MAX: usize = nacre_types::VALUE_BYTES_MAX;
/// Documents of a page, by default and at most.
const LIMIT_DEFAULT: usize = 50;
const LIMIT_MAX: usize = 200;
/// Longest time in seconds that the key-value protocol reads as a duration; it reads a larger number as a point in time. Source:
/// memcached binary protocol.
const RELATIVE_S_MAX: u64 = 30 * 24 * 3600;
/// Longest `ttl`, in seconds: 50 years. Source: Couchbase's SDKs.
const TTL_S_MAX: u64 = 50 * 365 * 24 * 3600;
/// Expiry of a document, in seconds of Unix time.
const EXPIRY: HeaderName = HeaderName::from_static("nacre-expiry");

/// Condition of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Condition {
    None,
    /// The document does not exist.
    Absent,
    /// The document exists.
    Present,
    /// The document has that CAS.
    Version(u64),
}

pub(super) async fn list(call: Call) -> Result<Reply, Reply> {
    let keyspace = keyspace(&call);
    require(&call, Privilege::ReadData, &keyspace)?;
    let limit = call.parameter("limit").map_or(Ok(LIMIT_DEFAULT), |limit| limit.parse());
    let Some(limit) = limit.ok().filter(|limit| (1..=LIMIT_MAX).contains(limit)) else {
        return Err(invalid("limit", format!("a number, 1 to {LIMIT_MAX}")));
    };
    let prefix = call.parameter("prefix").unwrap_or_default();
    let after = call.parameter("after");
    if prefix.len() > ID_BYTES_MAX || after.as_ref().is_some_and(|id| id.len() > ID_BYTES_MAX) {
        return Err(invalid("prefix", format!("an ID has at most {ID_BYTES_MAX} bytes")));
    }
    let listed = with_session(&call, move |session| {
        session.list_documents(&keyspace, &prefix, after.as_deref(), limit, PATIENCE)
    });
    let ListedDocuments { rows, next, count, .. } = listed.await?;
    let rows: Vec<Value> = rows.iter().map(meta).collect();
    Ok(ok(&json!({"documents": rows, "next": next, "count": count})))
}

fn meta(row: &Row) -> Value {
    let expiry = (row.expiry > 0).then_some(row.expiry);
    let body: &[u8] = &row.body;
    json!({"id": row.id, "etag": etag(row.cas), "expiry": expiry, "bytes": body.len()})
}

/// Returns the CAS as an ETag. A JSON number cannot hold 64 bits, so the API writes it as text everywhere.
fn etag(cas: u64) -> String {
    format!("\"{cas}\"")
}

pub(super) async fn show(call: Call) -> Result<Reply, Reply> {
    let keyspace = keyspace(&call);
    require(&call, Privilege::ReadData, &keyspace)?;
    let id = id_of(&call)?;
    let known = only(&call, "if-none-match")?;
    let found = with_session(&call, move |session| session.find_document(&keyspace, &id, PATIENCE));
    let row = found.await?.ok_or_else(no_document)?;
    let etag = etag(row.cas);
    let is_known = known.is_some_and(|known| {
        known == "*" || known.split(',').any(|one| one.trim().trim_start_matches("W/") == etag)
    });
    let kind = if row.is_json { "application/json" } else { "application/octet-stream" };
    let body: &[u8] = &row.body;
    let mut answer = match is_known {
        true => reply(StatusCode::NOT_MODIFIED, kind, ""),
        false => reply(StatusCode::OK, kind, charged(&call.account, body.to_vec())),
    };
    mark(&mut answer, row.cas);
    if row.expiry > 0 {
        answer.headers_mut().insert(EXPIRY, HeaderValue::from(row.expiry));
    }
    Ok(answer)
}

fn mark(answer: &mut Reply, cas: u64) {
    if let Ok(etag) = HeaderValue::from_str(&etag(cas)) {
        answer.headers_mut().insert(ETAG, etag);
    }
}

pub(super) async fn create(call: Call) -> Result<Reply, Reply> {
    let keyspace = keyspace(&call);
    require(&call, Privilege::InsertData, &keyspace)?;
    let id = call.node.new_uuid();
    let (body, expiry) = (document(&call)?, expiry(&call)?);
    let mutation = Mutation { action: Action::Insert, id: id.clone(), body, cas: 0, expiry };
    let cas = write(&call, keyspace, mutation).await?;
    let mut answer = stored(StatusCode::CREATED, &id, cas);
    let path = call.path.iter().map(|part| utf8_percent_encode(part, NON_ALPHANUMERIC).to_string());
    let location = format!("/{}/{id}", path.collect::<Vec<_>>().join("/"));
    if let Ok(location) = HeaderValue::from_str(&location) {
        answer.headers_mut().insert(LOCATION, location);
    }
    Ok(answer)
}

pub(super) async fn store(call: Call) -> Result<Reply, Reply> {
    let keyspace = keyspace(&call);
    require(&call, Privilege::UpsertData, &keyspace)?;
    let id = id_of(&call)?;
    let (action, cas) = match condition(&call)? {
        Condition::None => (Action::Upsert, 0),
        Condition::Absent => (Action::Insert, 0),
        Condition::Present => (Action::Replace, 0),
        Condition::Version(cas) => (Action::Replace, cas),
    };
    let status = if action == Action::Insert { StatusCode::CREATED } else { StatusCode::OK };
    let (body, expiry) = (document(&call)?, expiry(&call)?);
    let mutation = Mutation { action, id: id.clone(), body, cas, expiry };
    let cas = write(&call, keyspace, mutation).await?;
    Ok(stored(status, &id, cas))
}

fn stored(status: StatusCode, id: &str, cas: u64) -> Reply {
    let mut answer = json_reply(status, &json!({"id": id, "etag": etag(cas)}));
    mark(&mut answer, cas);
    answer
}

pub(super) async fn remove(call: Call) -> Result<Reply, Reply> {
    let keyspace = keyspace(&call);
    require(&call, Privilege::DeleteData, &keyspace)?;
    let id = id_of(&call)?;
    let cas = match condition(&call)? {
        Condition::None | Condition::Present => 0,
        Condition::Version(cas) => cas,
        Condition::Absent => {
            return Err(invalid("If-None-Match", "there is nothing to remove then"));
        }
    };
    let mutation = Mutation { action: Action::Remove, id, body: Vec::new(), cas, expiry: None };
    write(&call, keyspace, mutation).await?;
    Ok(reply(StatusCode::NO_CONTENT, "application/json", ""))
}

async fn write(call: &Call, keyspace: DatabaseKeyspace, mutation: Mutation) -> Result<u64, Reply> {
    let is_conditional = mutation.cas != 0 || has(call, "if-match");
    let written =
        with_session(call, move |session| session.write_document(&keyspace, mutation, PATIENCE));
    match written.await? {
        Ok(cas) => Ok(cas),
        Err(RowRefusal::NotFound) if is_conditional => Err(changed("there is no such document")),
        Err(RowRefusal::NotFound) => Err(no_document()),
        Err(RowRefusal::Exists) => Err(changed("there is a document with this ID")),
        Err(RowRefusal::CasMismatch) => Err(changed("the document has another version")),
        Err(RowRefusal::Other(failure)) if failure.retry => {
            let status = StatusCode::SERVICE_UNAVAILABLE;
            Err(problem::reply(status, "try_again", &failure.message))
        }
        Err(RowRefusal::Other(failure)) => Err(invalid("_", failure.message)),
    }
}

fn changed(detail: &str) -> Reply {
    problem::reply(StatusCode::PRECONDITION_FAILED, "changed", detail)
}

fn id_of(call: &Call) -> Result<String, Reply> {
    let id = call.segment("id").to_owned();
    match (1..=ID_BYTES_MAX).contains(&id.len()) {
        true => Ok(id),
        false => Err(invalid("id", format!("an ID has 1 to {ID_BYTES_MAX} bytes"))),
    }
}

/// Media type that `curl -d` and other tools send by default. An earlier check refuses it in requests of browsers'
/// pages.
const UNSPECIFIED: &str = "application/x-www-form-urlencoded";

/// Returns the body of a request, which must be JSON.
fn document(call: &Call) -> Result<Vec<u8>, Reply> {
    let kind = only(call, "content-type")?.unwrap_or("application/json");
    let essence = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if !matches!(&*essence, "application/json" | UNSPECIFIED) && !essence.ends_with("+json") {
        let detail = format!("a document is JSON: send it as application/json, not as {essence}");
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return Err(problem::reply(status, "unsupported_media_type", &detail));
    }
    match serde_json::from_slice::<&RawValue>(&call.body) {
        Ok(json) => Ok(json.get().as_bytes().to_vec()),
        Err(error) => Err(invalid("_", format!("the body is not JSON: {error}"))),
    }
}

/// Returns the expiry as the key-value protocol takes it, or `None` if the document keeps its present expiry.
fn expiry(call: &Call) -> Result<Option<u32>, Reply> {
    let Some(text) = call.parameter("ttl") else { return Ok(Some(0)) };
    if text == "keep" {
        return Ok(None);
    }
    let refused = || invalid("ttl", format!("seconds, 0 (never) to {TTL_S_MAX}, or keep"));
    let seconds = text.parse::<u64>().ok().filter(|seconds| *seconds <= TTL_S_MAX);
    let seconds = seconds.ok_or_else(refused)?;
    let expiry = match seconds {
        0..=RELATIVE_S_MAX => seconds,
        _ => u64::from(call.node.now().unix_s()) + seconds,
    };
    u32::try_from(expiry).map(Some).map_err(|_| refused())
}

fn has(call: &Call, name: &str) -> bool {
    call.headers.iter().any(|(known, _)| known == name)
}

/// Returns the value of a header that may occur only once.
fn only<'c>(call: &'c Call, name: &str) -> Result<Option<&'c str>, Reply> {
    let mut values = call.headers.iter().filter(|(known, _)| known == name);
    match (values.next(), values.next()) {
        (value, None) => Ok(value.map(|(_, value)| value.as_str())),
        _ => Err(invalid(name, "the header can be sent once")),
    }
}

fn condition(call: &Call) -> Result<Condition, Reply> {
    read_condition(only(call, "if-match")?, only(call, "if-none-match")?)
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
