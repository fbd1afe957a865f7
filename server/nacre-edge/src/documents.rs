//! Documents over HTTP, as on a node: see [`nacre_http::documents`] for versions, conditions and
//! expiry.

use crate::access::random;
use crate::door::Call;
use crate::gateway::BUCKET;
use hyper::StatusCode;
use hyper::header::{HeaderValue, LOCATION, RETRY_AFTER};
use nacre::{Cas, Collection, Error, Found, Range, Stored, Write};
use nacre_auth::{Keyspace, Privilege};
use nacre_http::body::{Reply, error_reply, invalid, ok, reply};
use nacre_http::documents::{
    Condition, ID_BYTES_MAX, changed, check_id, condition, etag, expiry, json_body, limit,
    no_document, only, shown, stored,
};
use nacre_http::memory::charged;
use nacre_http::problem;
use serde_json::{Value, json};
use std::ops::Bound;

/// Largest document, in bytes.
pub(crate) const VALUE_BYTES_MAX: usize = nacre_types::VALUE_BYTES_MAX;

/// Returns the collection in the request's path, if it exists and the user has the right to it.
fn collection(call: &Call, privilege: Privilege) -> Result<Collection, Reply> {
    let scope = call.found("scope").unwrap_or("_default");
    let name = call.found("collection").unwrap_or("_default");
    let place = Keyspace { bucket: Some(BUCKET), scope: Some(scope), collection: Some(name) };
    call.gateway.access.require(&call.caller, privilege, place)?;
    let path = format!("{scope}.{name}");
    if scope == nacre::SYNC_SCOPE {
        // The documents of sync are internal, except for parked versions, which users resolve here.
        let is_parked =
            [nacre::PARKED_COLLECTION, nacre::PARKED_BODIES_COLLECTION].contains(&path.as_str());
        if !is_parked || !matches!(privilege, Privilege::ReadData | Privilege::DeleteData) {
            let reason = format!("the scope {scope} belongs to sync");
            return Err(problem::reply(StatusCode::FORBIDDEN, "forbidden", &reason));
        }
    }
    let db = &call.gateway.db;
    if let Some(found) = db.find_collection(&path).map_err(|error| failed(&error))? {
        return Ok(found);
    }
    let (code, what) = match db.scopes().iter().any(|known| known == scope) {
        true => ("collection_not_found", "collection"),
        false => ("scope_not_found", "scope"),
    };
    Err(error_reply(StatusCode::NOT_FOUND, code, &format!("there is no such {what}")))
}

pub(crate) fn list(call: Call) -> Result<Reply, Reply> {
    let docs = collection(&call, Privilege::ReadData)?;
    let limit = limit(call.parameter("limit").as_deref())?;
    let prefix = call.parameter("prefix").unwrap_or_default();
    let after = call.parameter("after");
    if prefix.len() > ID_BYTES_MAX || after.as_ref().is_some_and(|id| id.len() > ID_BYTES_MAX) {
        return Err(invalid("prefix", format!("an ID has at most {ID_BYTES_MAX} bytes")));
    }
    let range = match after.as_deref().filter(|after| *after >= prefix.as_str()) {
        None => Range::prefix(&prefix),
        Some(after) => Range::between(Bound::Excluded(after.as_bytes()), Bound::Unbounded),
    };
    let (mut rows, mut next) = (Vec::new(), None);
    for found in docs.scan(range).map_err(|error| failed(&error))? {
        let found = found.map_err(|error| failed(&error))?;
        if !found.key().starts_with(prefix.as_bytes()) {
            break;
        }
        // A key that is not UTF-8 has no path.
        let Ok(id) = std::str::from_utf8(found.key()) else { continue };
        if rows.len() == limit {
            next = rows.last().map(|row: &Value| row["id"].clone());
            break;
        }
        rows.push(meta(id, &found));
    }
    Ok(ok(&json!({"documents": rows, "next": next})))
}

fn meta(id: &str, found: &Found) -> Value {
    let expiry = (found.expiry() > 0).then_some(found.expiry());
    json!({"id": id, "etag": etag(found.cas().0), "expiry": expiry, "bytes": found.body().len()})
}

pub(crate) fn show(call: Call) -> Result<Reply, Reply> {
    let docs = collection(&call, Privilege::ReadData)?;
    let id = id_of(&call)?;
    let known = only(&call.headers, "if-none-match")?;
    let found = docs.get(id).map_err(|error| failed(&error))?.ok_or_else(no_document)?;
    Ok(shown(known, found.cas().0, found.expiry(), found.is_json(), || {
        charged(&call.account, found.body().to_vec())
    }))
}

pub(crate) fn create(call: Call) -> Result<Reply, Reply> {
    let docs = collection(&call, Privilege::InsertData)?;
    let bytes: [u8; 16] = random()
        .map_err(|reason| error_reply(StatusCode::INTERNAL_SERVER_ERROR, "failed", &reason))?;
    let id = format!("{:032x}", u128::from_be_bytes(bytes));
    let (body, write) = (document(&call)?, how(&call)?);
    let made = docs.insert(&id, body, write).map_err(|error| refused(&error, true))?;
    let mut answer = stored(StatusCode::CREATED, &id, made.cas.0);
    let segments = call.raw_path.split('/').filter(|part| !part.is_empty());
    let location = segments.chain([id.as_str()]).map(|part| format!("/{part}"));
    if let Ok(location) = HeaderValue::from_str(&location.collect::<String>()) {
        answer.headers_mut().insert(LOCATION, location);
    }
    Ok(answer)
}

pub(crate) fn store(call: Call) -> Result<Reply, Reply> {
    let docs = collection(&call, Privilege::UpsertData)?;
    let id = id_of(&call)?;
    let condition = condition(&call.headers)?;
    let (body, write) = (document(&call)?, how(&call)?);
    let written: Result<Stored, Error> = match condition {
        Condition::None => docs.upsert(id, body, write),
        Condition::Absent => docs.insert(id, body, write),
        Condition::Present => docs.replace(id, body, write),
        Condition::Version(cas) => docs.replace(id, body, write.cas(Cas(cas))),
    };
    let made = written.map_err(|error| refused(&error, condition != Condition::None))?;
    let status = match condition {
        Condition::Absent => StatusCode::CREATED,
        _ => StatusCode::OK,
    };
    Ok(stored(status, id, made.cas.0))
}

pub(crate) fn remove(call: Call) -> Result<Reply, Reply> {
    let docs = collection(&call, Privilege::DeleteData)?;
    let id = id_of(&call)?;
    let condition = condition(&call.headers)?;
    let write = match condition {
        Condition::None | Condition::Present => Write::new(),
        Condition::Version(cas) => Write::new().cas(Cas(cas)),
        Condition::Absent => {
            return Err(invalid("If-None-Match", "there is nothing to remove then"));
        }
    };
    let removed = docs.remove(id, write);
    removed.map_err(|error| refused(&error, condition != Condition::None))?;
    Ok(reply(StatusCode::NO_CONTENT, "application/json", ""))
}

fn id_of(call: &Call) -> Result<&str, Reply> {
    let id = call.segment("id");
    check_id(id).map(|()| id)
}

/// Returns the body of a request, which must be JSON.
fn document(call: &Call) -> Result<&[u8], Reply> {
    json_body(only(&call.headers, "content-type")?, &call.body)
}

/// Returns the options of a write, with the expiry of the query.
fn how(call: &Call) -> Result<Write, Reply> {
    let now_s = u32::try_from(crate::access::unix_s()).unwrap_or(u32::MAX);
    Ok(match expiry(call.parameter("ttl").as_deref(), now_s)? {
        Some(expiry) => Write::new().expiry(expiry),
        None => Write::new().keep_expiry(),
    })
}

/// Returns the answer to a write that was refused.
fn refused(error: &Error, is_conditional: bool) -> Reply {
    match error {
        Error::DocumentNotFound if is_conditional => changed("there is no such document"),
        Error::DocumentNotFound => no_document(),
        Error::DocumentExists => changed("there is a document with this ID"),
        Error::CasMismatch => changed("the document has another version"),
        error => failed(error),
    }
}

/// Returns the answer to a request that the database refuses.
pub(crate) fn failed(error: &Error) -> Reply {
    let (status, code) = match error {
        Error::InvalidArgument(_) => (StatusCode::BAD_REQUEST, "invalid"),
        Error::DocumentNotFound | Error::CollectionNotFound(_) | Error::ScopeNotFound(_) => {
            (StatusCode::NOT_FOUND, "not_found")
        }
        Error::DocumentLocked => (StatusCode::LOCKED, "locked"),
        Error::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "too_large"),
        Error::Full => (StatusCode::INSUFFICIENT_STORAGE, "disk_full"),
        Error::QuotaExceeded => (StatusCode::INSUFFICIENT_STORAGE, "quota_exceeded"),
        Error::Closed | Error::SyncRuns => (StatusCode::SERVICE_UNAVAILABLE, "try_again"),
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "failed"),
    };
    let mut reply = problem::reply(status, code, &error.to_string());
    if error.is_retryable() || *error == Error::Closed {
        reply.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    reply
}
