//! `/evaluator/v1/libraries`, on the query port: the JavaScript code that user-defined functions call.

use super::Call;
use super::body::{Reply, blocking, form, ok, reply};
use super::login::forbidden;
use super::refusal::refused;
use super::routes::{Route, any, delete, get, post, ready};
use hyper::StatusCode;
use nacre_auth::{Keyspace, Privilege};
use nacre_cluster::{Change, FunctionId, QueryChange};
use nacre_http::Access;
use nacre_node::Error;
use nacre_query_service::NodeQueries;
use serde_json::{Map, json};
use std::sync::Arc;

const ALL: &str = "/evaluator/v1/libraries";
const ONE: &str = "/evaluator/v1/libraries/{name}";

/// The privilege depends on the scope, which the query string names.
pub(super) const ROUTES: &[Route] = &[
    get(ALL, Access::Handler, |call| ready(list(&call))),
    any(ALL, Access::Handler, |call| ready(not_allowed(&call))),
    get(ONE, Access::Handler, |call| ready(library_of(&call).and_then(|id| read(&call, &id)))),
    post(ONE, Access::Handler, |call| {
        Box::pin(async move {
            let id = library_of(&call)?;
            put(call, id).await
        })
    }),
    delete(ONE, Access::Handler, |call| Box::pin(remove(call))),
    any(ONE, Access::Handler, |call| ready(not_allowed(&call))),
];

/// Returns the ID of the library that the request names.
fn library_of(call: &Call) -> Result<FunctionId, Reply> {
    Ok(FunctionId { scope: scope_of(call)?, name: call.segment("name").to_owned() })
}

fn not_allowed(call: &Call) -> Result<Reply, Reply> {
    scope_of(call)?;
    Err(said(StatusCode::METHOD_NOT_ALLOWED, "Method not allowed"))
}

async fn remove(call: Call) -> Result<Reply, Reply> {
    let id = library_of(&call)?;
    require_managing(&call, &id)?;
    change(call, Change::Query(QueryChange::DropQueryLibrary { id })).await
}

/// Returns an error as plain text.
fn said(status: StatusCode, text: &str) -> Reply {
    reply(status, "text/plain", text.to_owned())
}

/// Returns the bucket and scope that the request names: both or neither.
fn scope_of(call: &Call) -> Result<Option<(String, String)>, Reply> {
    let fields = form(call.query.as_bytes());
    let field = |name: &str| {
        let found = fields.iter().find(|(field, _)| field == name);
        found.map(|(_, value)| value.clone()).filter(|value| !value.is_empty())
    };
    match (field("bucket"), field("scope")) {
        (Some(bucket), Some(scope)) => Ok(Some((bucket, scope))),
        (None, None) => Ok(None),
        _ => Err(said(StatusCode::BAD_REQUEST, "bucket and scope have to be given together")),
    }
}

/// Returns the privilege to change libraries of a scope.
fn managing(scope: Option<&(String, String)>) -> Privilege {
    Privilege::of_managing(true, scope.is_some())
}

fn may_manage(call: &Call, scope: Option<&(String, String)>) -> bool {
    let users = call.node.users();
    let user = call.holder(&users);
    user.is_some_and(|user| user.may(managing(scope), Keyspace::of_scope(scope)))
}

fn require_managing(call: &Call, id: &FunctionId) -> Result<(), Reply> {
    if may_manage(call, id.scope.as_ref()) {
        return Ok(());
    }
    Err(forbidden(managing(id.scope.as_ref())))
}

/// Returns true if the user may read a library. Source: Couchbase's reference, Functions REST API: users who manage the
/// libraries of a scope may read the global ones.
fn may_read(call: &Call, id: &FunctionId) -> bool {
    let cluster = call.node.cluster();
    may_manage(call, id.scope.as_ref())
        || id.scope.is_none()
            && cluster.buckets.iter().any(|(bucket, config)| {
                let scopes = config.manifest.scopes.iter();
                scopes
                    .into_iter()
                    .any(|scope| may_manage(call, Some(&(bucket.clone(), scope.name.clone()))))
            })
}

fn list(call: &Call) -> Result<Reply, Reply> {
    let scope = scope_of(call)?;
    let scope = scope.as_ref();
    let cluster = call.node.cluster();
    let all = cluster.query_libraries.iter();
    let wanted = all.filter(|(id, _)| scope.is_none() || id.scope.as_ref() == scope);
    let describe = |(id, code): (FunctionId, &str)| {
        let (bucket, scope) = id.scope.unwrap_or_default();
        json!({"name": id.name, "bucket": bucket, "scope": scope, "code": code})
    };
    let described = wanted.filter(|(id, _)| may_read(call, id)).map(describe);
    Ok(ok(&described.collect()))
}

fn read(call: &Call, id: &FunctionId) -> Result<Reply, Reply> {
    if !may_read(call, id) {
        require_managing(call, id)?;
    }
    match call.node.cluster().query_libraries.get(id) {
        Some(code) => Ok(ok(&Map::from_iter([(id.name.clone(), json!(code))]).into())),
        None => Err(not_found(id)),
    }
}

fn not_found(id: &FunctionId) -> Reply {
    said(StatusCode::NOT_FOUND, &format!("Library not found: {id}"))
}

async fn put(call: Call, id: FunctionId) -> Result<Reply, Reply> {
    require_managing(&call, &id)?;
    let Some(code) = code_of(&call.body) else {
        return Err(said(StatusCode::BAD_REQUEST, "The body has to be JavaScript, as UTF-8"));
    };
    let (node, of, text) = (Arc::clone(&call.node), id.clone(), code.clone());
    let checked =
        blocking("a check of code", move || node.queries().check_library(&node, &of, &text));
    checked.await?.map_err(|failure| match failure.retry {
        true => said(StatusCode::SERVICE_UNAVAILABLE, &failure.message),
        false => said(StatusCode::BAD_REQUEST, &failure.message),
    })?;
    change(call, Change::Query(QueryChange::PutQueryLibrary { id, code })).await
}

/// Returns the code in a body, which is either the code itself or a JSON string.
fn code_of(body: &[u8]) -> Option<String> {
    let text = str::from_utf8(body).ok().filter(|text| !text.trim().is_empty())?;
    Some(serde_json::from_str(text).unwrap_or_else(|_| text.to_owned()))
}

async fn change(call: Call, change: Change) -> Result<Reply, Reply> {
    let node = Arc::clone(&call.node);
    let changed = blocking("a change", move || node.change(&change)).await?;
    match changed {
        Ok(_) => Ok(ok(&json!({"status": "OK"}))),
        Err(Error::Refused(refusal)) => {
            let status = refused(&Error::Refused(refusal.clone())).status();
            Err(said(status, &refusal.to_string()))
        }
        Err(error) => Err(refused(&error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_can_be_raw_or_a_json_string() {
        assert_eq!(code_of(b"function f() {}").as_deref(), Some("function f() {}"));
        assert_eq!(
            code_of(br#""function f() { return \"\" }""#).as_deref(),
            Some("function f() { return \"\" }")
        );
        assert_eq!(code_of(b"1 + 1").as_deref(), Some("1 + 1"));
        assert_eq!((code_of(b" \n"), code_of(b"\xff")), (None, None));
    }
}
