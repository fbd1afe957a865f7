//! Documents of a collection over HTTP, for the console: pages, single documents, and writes that name the version that
//! they replace.
//!
//! Paths and formats are Couchbase's. In addition, answers contain the CAS as text, because it does not fit into a
//! JavaScript number.

use super::super::Call;
use super::super::body::{Reply, invalid, json_reply, ok};
use super::super::documents::{PATIENCE, keyspace, require, with_session};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hyper::StatusCode;
use nacre_auth::Privilege;
use nacre_http::documents::{ID_BYTES_MAX, check_id, limit, no_document};
use nacre_query_service::ListedDocuments;
use nacre_sandbox::{Action, DatabaseKeyspace, Mutation, Row, RowRefusal};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Bytes of a document that a page shows.
const HEAD_BYTES: usize = 200;
/// The `cas` with which a request creates a document that must not exist yet.
const NEW: &str = "0";

fn id_of(call: &Call) -> Result<String, Reply> {
    let id = call.segment("id").to_owned();
    check_id(&id).map(|()| id)
}

pub(super) async fn list(call: Call) -> Result<Reply, Reply> {
    let keyspace = keyspace(&call);
    require(&call, Privilege::ReadData, &keyspace)?;
    let limit = limit(call.parameter("limit").as_deref())?;
    let prefix = call.parameter("prefix").unwrap_or_default();
    let after = call.parameter("after");
    if prefix.len() > ID_BYTES_MAX || after.as_ref().is_some_and(|id| id.len() > ID_BYTES_MAX) {
        return Err(invalid("prefix", format!("an ID has at most {ID_BYTES_MAX} bytes")));
    }
    let listed = with_session(&call, move |session| {
        session.list_documents(&keyspace, &prefix, after.as_deref(), limit, PATIENCE)
    });
    let ListedDocuments { rows, next, count, is_sorted } = listed.await?;
    let rows: Vec<Value> = rows.iter().map(in_page).collect();
    Ok(ok(&json!({"rows": rows, "next": next, "count": count, "sorted": is_sorted})))
}

/// Describes a document in a page, with the beginning of its body only.
fn in_page(row: &Row) -> Value {
    let body: &[u8] = &row.body;
    let head = &body[..body.len().min(HEAD_BYTES)];
    let mut described = meta(row);
    described["bytes"] = json!(body.len());
    described["isJson"] = json!(row.is_json);
    described["head"] = json!(match row.is_json {
        true => String::from_utf8_lossy(head).trim_end_matches('\u{fffd}').to_owned(),
        false => String::new(),
    });
    described
}

fn meta(row: &Row) -> Value {
    json!({
        "id": row.id,
        "cas": row.cas.to_string(),
        "flags": row.flags,
        "expiration": row.expiry,
    })
}

/// Describes a whole document. JSON is sent as text, so that no number is rounded on the way.
fn whole(row: &Row) -> Value {
    let body: &[u8] = &row.body;
    match std::str::from_utf8(body) {
        Ok(text) if row.is_json => json!({"meta": meta(row), "json": text}),
        _ => json!({"meta": meta(row), "base64": BASE64_STANDARD.encode(body)}),
    }
}

pub(super) async fn show(call: Call) -> Result<Reply, Reply> {
    let keyspace = keyspace(&call);
    require(&call, Privilege::ReadData, &keyspace)?;
    let id = id_of(&call)?;
    let found =
        with_session(&call, move |session| session.find_document(&keyspace, &id, PATIENCE)).await?;
    found.as_ref().map(|row| ok(&whole(row))).ok_or_else(no_document)
}

pub(super) async fn store(call: Call) -> Result<Reply, Reply> {
    let keyspace = keyspace(&call);
    require(&call, Privilege::UpsertData, &keyspace)?;
    let id = id_of(&call)?;
    let fields = call.form();
    let field = |name: &str| fields.iter().find(|(known, _)| known == name).map(|(_, text)| text);
    let value = field("value").ok_or_else(|| invalid("value", "the document, as JSON"))?;
    if let Err(error) = serde_json::from_str::<&RawValue>(value) {
        let (line, column) = (error.line(), error.column());
        let reason = format!("not JSON at line {line}, column {column}: {error}");
        return Err(invalid("value", reason));
    }
    let expiry = field("expiry").map(|text| text.parse::<u32>()).transpose();
    let expiry = expiry.map_err(|_| invalid("expiry", "seconds, or 0 for never"))?;
    let cas = field("cas").map(|text| text.parse::<u64>()).transpose();
    let cas = cas.map_err(|_| invalid("cas", "the version, as it was given"))?;
    let action = match (cas, field("cas").map(String::as_str)) {
        (None, _) => Action::Upsert,
        (Some(_), Some(NEW)) => Action::Insert,
        (Some(_), _) => Action::Replace,
    };
    let body = value.trim().as_bytes().to_vec();
    let mutation = Mutation { action, id, body, cas: cas.unwrap_or_default(), expiry };
    write(&call, keyspace, mutation).await
}

pub(super) async fn remove(call: Call) -> Result<Reply, Reply> {
    let keyspace = keyspace(&call);
    require(&call, Privilege::DeleteData, &keyspace)?;
    let id = id_of(&call)?;
    let cas = call.parameter("cas").map_or(Ok(0), |text| text.parse());
    let cas = cas.map_err(|_| invalid("cas", "the version, as it was given"))?;
    let mutation = Mutation { action: Action::Remove, id, body: Vec::new(), cas, expiry: None };
    write(&call, keyspace, mutation).await
}

async fn write(
    call: &Call,
    keyspace: DatabaseKeyspace,
    mutation: Mutation,
) -> Result<Reply, Reply> {
    let id = mutation.id.clone();
    let written = {
        let keyspace = keyspace.clone();
        with_session(call, move |session| session.write_document(&keyspace, mutation, PATIENCE))
    };
    match written.await? {
        Ok(cas) => Ok(ok(&json!({"cas": cas.to_string()}))),
        Err(RowRefusal::NotFound) => Err(no_document()),
        Err(RowRefusal::Exists | RowRefusal::CasMismatch) => {
            let may_read = require(call, Privilege::ReadData, &keyspace).is_ok();
            let now = match may_read {
                true => {
                    with_session(call, move |session| {
                        session.find_document(&keyspace, &id, PATIENCE)
                    })
                    .await?
                }
                false => None,
            };
            let reason = "the document has changed";
            let now = now.as_ref().map(whole);
            let conflict = json!({"errors": {"cas": reason}, "now": now});
            Err(json_reply(StatusCode::CONFLICT, &conflict))
        }
        Err(RowRefusal::Other(failure)) => Err(invalid("value", failure.message)),
    }
}
