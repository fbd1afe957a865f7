//! Tokens of the owner: as on a node, but stored in the gateway's folder.

use crate::access::{Access, Caller, random, unix_s};
use crate::door::Call;
use crate::gateway::BUCKET;
use hyper::StatusCode;
use nacre_auth::{ApiToken, Edit, Refused, Role, UserChange, person};
use nacre_http::body::{Reply, error_reply, invalid, reply};
use nacre_http::tokens::{Wanted, created, describe, describe_all, too_many_scopes};
use nacre_store::Space;

/// Prefix of the rows of tokens, followed by the name of the owner and the ID.
const ROW: &str = "token/";

fn row(owner: &str, id: &str) -> Vec<u8> {
    format!("{ROW}{owner}/{id}").into_bytes()
}

/// Reads the unexpired tokens of an owner.
pub(crate) fn load(space: &dyn Space, owner: &str, now_s: u64) -> Result<Vec<ApiToken>, String> {
    let rows = space.load().map_err(|error| format!("read tokens: {error}"))?;
    let begin = row(owner, "");
    let mut tokens = Vec::new();
    for (_, text) in rows.iter().filter(|(key, _)| key.starts_with(&begin)) {
        let token: ApiToken = serde_json::from_slice(text)
            .map_err(|error| format!("the record of a token is damaged: {error}"))?;
        tokens.push(token);
    }
    tokens.retain(|token| !token.has_expired(now_s));
    tokens.sort_by_key(|token| token.created_s);
    Ok(tokens)
}

/// Returns the name of the owner who sent a request.
fn owner(caller: &Caller) -> Result<&str, Reply> {
    match caller {
        Caller::Known(login) => Ok(person(&login.user)),
        Caller::Anybody => {
            let reason = "this gateway has no owner: set --user and NACRE_EDGE_PASSWORD";
            Err(error_reply(StatusCode::CONFLICT, "no_owner", reason))
        }
    }
}

pub(crate) fn list(call: Call) -> Result<Reply, Reply> {
    let name = owner(&call.caller)?;
    let access = &call.gateway.access;
    let users = access.users().map(|users| users.read());
    Ok(describe_all(users.as_ref().and_then(|users| users.person(name))))
}

pub(crate) fn create(call: Call) -> Result<Reply, Reply> {
    let wanted: Wanted =
        serde_json::from_slice(&call.body).map_err(|error| invalid("_", error.to_string()))?;
    let name = owner(&call.caller)?;
    let times = wanted.times(unix_s())?;
    let scopes = wanted.scopes.map(|scopes| roles(&scopes)).transpose()?;
    let bytes = random().map_err(|reason| failed(&reason))?;
    let (token, text) = ApiToken::new(&wanted.name, scopes, times, &bytes);
    let described = describe(&token);
    let record = serde_json::to_vec(&token).map_err(|error| failed(&error.to_string()))?;
    let key = row(name, &token.id);
    change(&call.gateway.access, &call.caller, Edit::CreateToken(token), (key, Some(record)))?;
    Ok(created(described, &text))
}

pub(crate) fn revoke(call: Call) -> Result<Reply, Reply> {
    let (user, id) = (owner(&call.caller)?.to_owned(), call.segment("token").to_owned());
    let row = (row(&user, &id), None);
    change(&call.gateway.access, &call.caller, Edit::RevokeToken { user, id }, row)?;
    Ok(reply(StatusCode::NO_CONTENT, "application/json", ""))
}

/// Parses the scopes of a token: roles on this bucket.
fn roles(names: &[String]) -> Result<Vec<Role>, Reply> {
    if names.len() > ApiToken::SCOPES_MAX {
        return Err(too_many_scopes());
    }
    let read = |name: &String| {
        let role = name.parse::<Role>().ok();
        let is_here = |role: &Role| {
            role.keyspace().bucket.is_none_or(|bucket| bucket == BUCKET || bucket == "*")
        };
        let reason = || invalid("scopes", format!("{name:?} is not a role on the bucket {BUCKET}"));
        role.filter(is_here).ok_or_else(reason)
    };
    names.iter().map(read).collect()
}

/// Changes tokens, on disk first.
fn change(
    access: &Access,
    caller: &Caller,
    edit: Edit,
    row: nacre_store::Write,
) -> Result<(), Reply> {
    let (Caller::Known(login), Some(users)) = (caller, access.users()) else {
        return Err(failed("nobody is logged in"));
    };
    let change = UserChange { by: Some(login.clone()), edit };
    let mut users = users.write();
    let mut after = users.clone();
    after.apply(&change, |_| true).map_err(|reason| refused(&reason))?;
    access.tokens().apply(&[row], true).map_err(|error| failed(&error.to_string()))?;
    *users = after;
    Ok(())
}

fn refused(reason: &Refused) -> Reply {
    let (status, code) = match reason {
        Refused::ByToken => (StatusCode::FORBIDDEN, "by_token"),
        Refused::LoginEnded => (StatusCode::UNAUTHORIZED, "unauthorized"),
        Refused::Forbidden(_) => (StatusCode::FORBIDDEN, "forbidden"),
        Refused::TokenNotFound { .. } => (StatusCode::NOT_FOUND, "not_found"),
        Refused::TooManyTokens => (StatusCode::CONFLICT, "too_many_tokens"),
        _ => (StatusCode::BAD_REQUEST, "invalid"),
    };
    error_reply(status, code, &reason.to_string())
}

fn failed(reason: &str) -> Reply {
    error_reply(StatusCode::INTERNAL_SERVER_ERROR, "failed", reason)
}
