//! Tokens of the API: users create, list and revoke their own tokens, and administrators of users may revoke any token.

use super::super::Call;
use super::super::body::{Reply, reply, unauthorized};
use super::super::refusal::{in_background, users_refused};
use super::super::users::read_role_list;
use super::read_body;
use hyper::StatusCode;
use nacre_auth::{ApiToken, Edit, Refused, UserChange, user_of_token};
use nacre_http::tokens::{Wanted, created, describe, describe_all, too_many_scopes};
use std::sync::Arc;

/// Lists the tokens of the user who asks.
pub(super) fn list(call: &Call) -> Result<Reply, Reply> {
    let users = call.node.users();
    let name = call.person();
    Ok(describe_all(users.person(name)))
}

/// Lists the tokens of another user.
pub(super) fn list_of(call: &Call) -> Result<Reply, Reply> {
    let users = call.node.users();
    let name = call.segment("user");
    let user = users.person(name);
    match user {
        Some(_) => Ok(describe_all(user)),
        None => Err(users_refused(&Refused::UserNotFound(name.to_owned()))),
    }
}

pub(super) async fn create(call: Call) -> Result<Reply, Reply> {
    let wanted: Wanted = read_body(&call)?;
    if user_of_token(&call.user).is_some() {
        return Err(users_refused(&Refused::ByToken));
    }
    let times = wanted.times(u64::from(call.node.now().unix_s()))?;
    let scopes = wanted
        .scopes
        .as_ref()
        .map(|scopes| read_role_list(&call, scopes.iter().map(String::as_str), "scopes"));
    let scopes = scopes.transpose()?;
    if scopes.as_ref().is_some_and(|scopes| scopes.len() > ApiToken::SCOPES_MAX) {
        return Err(too_many_scopes());
    }
    let (token, text) = ApiToken::new(&wanted.name, scopes, times, &call.node.random_bytes());
    let described = describe(&token);
    change(&call, Edit::CreateToken(token)).await?;
    Ok(created(described, &text))
}

pub(super) async fn revoke(call: Call) -> Result<Reply, Reply> {
    let user = call.person().to_owned();
    end(&call, user).await
}

pub(super) async fn revoke_of(call: Call) -> Result<Reply, Reply> {
    let user = call.segment("user").to_owned();
    end(&call, user).await
}

async fn end(call: &Call, user: String) -> Result<Reply, Reply> {
    let id = call.segment("token").to_owned();
    change(call, Edit::RevokeToken { user, id }).await?;
    Ok(reply(StatusCode::NO_CONTENT, "application/json", ""))
}

async fn change(call: &Call, edit: Edit) -> Result<(), Reply> {
    let by = Some(call.identity.clone().ok_or_else(unauthorized)?);
    let node = Arc::clone(&call.node);
    let change = UserChange { by, edit };
    call.node.users().permit(&change).map_err(|reason| users_refused(&reason))?;
    in_background(move || node.change_users(change)).await
}
