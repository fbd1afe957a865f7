//! Documents over HTTP: see [`nacre_http::documents`] for versions, conditions and lives.

use super::super::Call;
use super::super::body::{Reply, invalid, ok, reply};
use super::super::documents::{PATIENCE, keyspace, require, with_session};
use super::super::memory::charged;
use super::problem;
use hyper::StatusCode;
use hyper::header::{HeaderValue, LOCATION};
use nacre_auth::Privilege;
use nacre_http::documents::{
    Condition, ID_BYTES_MAX, changed, check_id, condition, etag, expiry, json_body, limit,
    no_document, only, shown, stored,
};
use nacre_query_service::ListedDocuments;
use nacre_sandbox::{Action, DatabaseKeyspace, Mutation, Row, RowRefusal};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

/// Largest document, in bytes.
pub(super) const VALUE_BYTES_MAX: usize = nacre_types::VALUE_BYTES_MAX;

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
    let ListedDocuments { rows, next, count, .. } = listed.await?;
    let rows: Vec<Value> = rows.iter().map(meta).collect();
    Ok(ok(&json!({"documents": rows, "next": next, "count": count})))
}

fn meta(row: &Row) -> Value {
    let expiry = (row.expiry > 0).then_some(row.expiry);
    let body: &[u8] = &row.body;
    json!({"id": row.id, "etag": etag(row.cas), "expiry": expiry, "bytes": body.len()})
}

pub(super) async fn show(call: Call) -> Result<Reply, Reply> {
    let keyspace = keyspace(&call);
    require(&call, Privilege::ReadData, &keyspace)?;
    let id = id_of(&call)?;
    let known = only(&call.headers, "if-none-match")?.map(str::to_owned);
    let found = with_session(&call, move |session| session.find_document(&keyspace, &id, PATIENCE));
    let row = found.await?.ok_or_else(no_document)?;
    Ok(shown(known.as_deref(), row.cas, row.expiry, row.is_json, || {
        let body: &[u8] = &row.body;
        charged(&call.account, body.to_vec())
    }))
}

pub(super) async fn create(call: Call) -> Result<Reply, Reply> {
    let keyspace = keyspace(&call);
    require(&call, Privilege::InsertData, &keyspace)?;
    let id = call.node.new_uuid();
    let (body, expiry) = (document(&call)?, life(&call)?);
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
    let (action, cas) = match condition(&call.headers)? {
        Condition::None => (Action::Upsert, 0),
        Condition::Absent => (Action::Insert, 0),
        Condition::Present => (Action::Replace, 0),
        Condition::Version(cas) => (Action::Replace, cas),
    };
    let status = if action == Action::Insert { StatusCode::CREATED } else { StatusCode::OK };
    let (body, expiry) = (document(&call)?, life(&call)?);
    let mutation = Mutation { action, id: id.clone(), body, cas, expiry };
    let cas = write(&call, keyspace, mutation).await?;
    Ok(stored(status, &id, cas))
}

pub(super) async fn remove(call: Call) -> Result<Reply, Reply> {
    let keyspace = keyspace(&call);
    require(&call, Privilege::DeleteData, &keyspace)?;
    let id = id_of(&call)?;
    let cas = match condition(&call.headers)? {
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

fn id_of(call: &Call) -> Result<String, Reply> {
    let id = call.segment("id").to_owned();
    check_id(&id).map(|()| id)
}

/// Returns the body of a request, which is JSON.
fn document(call: &Call) -> Result<Vec<u8>, Reply> {
    json_body(only(&call.headers, "content-type")?, &call.body).map(<[u8]>::to_vec)
}

/// Returns the expiry that the query asks for.
fn life(call: &Call) -> Result<Option<u32>, Reply> {
    expiry(call.parameter("ttl").as_deref(), call.node.now().unix_s())
}

fn has(call: &Call, name: &str) -> bool {
    call.headers.iter().any(|(known, _)| known == name)
}
