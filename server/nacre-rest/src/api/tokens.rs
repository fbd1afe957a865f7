//! Tokens of the API: users create, list and revoke their own tokens, and administrators of users may revoke any token.

use super::super::Call;
use super::super::body::{Reply, invalid, json_reply, ok, reply, unauthorized};
use super::super::refusal::{in_background, users_refused};
use super::super::users::read_role_list;
use super::read_body;
use hyper::StatusCode;
use hyper::header::{CACHE_CONTROL, HeaderValue};
use nacre_auth::{ApiToken, Edit, Refused, User, UserChange, user_of_token};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// Default lifetime of a token, in seconds: 30 days.
const LIFE_S_DEFAULT: u64 = 30 * 24 * 3600;

/// Body of `POST /api/v1/tokens`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    /// A name for people.
    name: String,
    /// Roles of the token. Without roles, the token has all privileges of its user.
    scopes: Option<Vec<String>>,
    /// Lifetime of the token, in seconds.
    ttl: Option<u64>,
}

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

fn describe_all(user: Option<&User>) -> Reply {
    let tokens = user.into_iter().flat_map(|user| user.tokens.iter().map(describe));
    ok(&json!({"tokens": tokens.collect::<Vec<_>>()}))
}

/// Describes a token, without its text: the server stores only a hash of it.
fn describe(token: &ApiToken) -> Value {
    let scopes = token.scopes.as_ref();
    let scopes = scopes.map(|scopes| scopes.iter().map(ToString::to_string).collect::<Vec<_>>());
    json!({
        "id": token.id,
        "name": token.name,
        "scopes": scopes,
        "created": token.created_s,
        "expires": token.expires_s,
    })
}

pub(super) async fn create(call: Call) -> Result<Reply, Reply> {
    let wanted: Wanted = read_body(&call)?;
    if user_of_token(&call.user).is_some() {
        return Err(users_refused(&Refused::ByToken));
    }
    if !(1..=ApiToken::NAME_BYTES_MAX).contains(&wanted.name.len()) {
        let most = ApiToken::NAME_BYTES_MAX;
        return Err(invalid("name", format!("a name of 1 to {most} bytes")));
    }
    let life_s = wanted.ttl.unwrap_or(LIFE_S_DEFAULT);
    if !(1..=ApiToken::AGE_S_MAX).contains(&life_s) {
        return Err(invalid("ttl", format!("seconds, 1 to {}", ApiToken::AGE_S_MAX)));
    }
    let scopes = wanted
        .scopes
        .as_ref()
        .map(|scopes| read_role_list(&call, scopes.iter().map(String::as_str), "scopes"));
    let scopes = scopes.transpose()?;
    if scopes.as_ref().is_some_and(|scopes| scopes.len() > ApiToken::SCOPES_MAX) {
        return Err(invalid("scopes", format!("at most {} roles", ApiToken::SCOPES_MAX)));
    }
    let now_s = u64::from(call.node.now().unix_s());
    let times = [now_s, now_s + life_s];
    let (token, text) = ApiToken::new(&wanted.name, scopes, times, &call.node.random_bytes());
    let mut described = describe(&token);
    change(&call, Edit::CreateToken(token)).await?;
    described["token"] = json!(text);
    let mut answer = json_reply(StatusCode::CREATED, &described);
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(answer)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_has_nothing_of_the_text() {
        let (token, text) = ApiToken::new("ci", None, [1, 2], &[7; 40]);
        let described = describe(&token).to_string();
        assert!(!described.contains(&text[text.len() - 64..]) && !described.contains("sha256"));
    }
}
