//! Logins over HTTP: every request names a user and a password, or uses a connection whose certificate names a user.
//!
//! The node caches passwords that were correct, so that checking one again takes microseconds. [`Logins`] hashes any other
//! password and delays the answers to failed logins; meanwhile the request occupies no thread.
//!
//! [`Logins`]: nacre_bucket::Logins

use super::body::{Reply, basic, bearer, busy_with_passwords, json_reply, no_node, wrong_token};
use hyper::StatusCode;
use nacre_auth::{ApiToken, Check, Credentials, Login, Privilege};
use nacre_bucket::LoginOutcome;
use nacre_links::tls::Shown;
use nacre_node::Node;
use serde_json::json;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Checks a name and a password. Returns `None` if the password is wrong or the user does not exist.
///
/// # Errors
/// 503 if too many passwords wait to be hashed.
pub(super) async fn by_password(
    node: &Node,
    from: IpAddr,
    name: &str,
    password: &str,
) -> Result<Option<Login>, Reply> {
    let (sender, outcome) = oneshot::channel();
    // Fails if the client has disconnected.
    let callback = Box::new(move |outcome| drop(sender.send(outcome)));
    let check = node.users().check(name, password);
    match check {
        Check::Granted(login) => return Ok(Some(login)),
        Check::Denied => node.logins().fail(Some(from), name, node.now().monotonic_ns, callback),
        Check::Hash(check) => node.logins().check(Some(from), check, callback),
    }
    match outcome.await {
        Ok(LoginOutcome::Granted(login)) => Ok(Some(login)),
        Ok(LoginOutcome::Denied) => Ok(None),
        Ok(LoginOutcome::Busy) | Err(_) => Err(busy_with_passwords()),
    }
}

/// Returns the name in the credentials, for logs: a user, or the ID of a token.
pub(super) fn named(authorization: &[u8]) -> Option<String> {
    let of_token = || ApiToken::id_of(bearer(authorization)?).map(|id| format!("token/{id}"));
    basic(authorization).map(|(name, _)| name).or_else(of_token)
}

/// Returns the login of an API token.
///
/// # Errors
/// 401 if the token is not valid, and 403 on a connection between nodes.
pub(super) fn by_token(node: &Node, shown: &Shown, text: Option<&str>) -> Result<Login, Reply> {
    if shown.key.is_some() {
        return Err(no_node());
    }
    let now_s = u64::from(node.now().unix_s());
    let login = text.and_then(|text| node.users().login_by_token(text, now_s));
    login.ok_or_else(wrong_token)
}

/// Hashes a new password.
///
/// # Errors
/// 503 when too many passwords wait to be hashed.
pub(super) async fn derive(
    node: &Arc<Node>,
    from: IpAddr,
    password: &str,
) -> Result<Credentials, Reply> {
    let (sender, derived) = oneshot::channel();
    let (salt, password) = (node.new_salt(), password.to_owned());
    let work = move || drop(sender.send(Credentials::derive(&password, salt)));
    match node.logins().run(Some(from), work) {
        true => derived.await.map_err(|_| busy_with_passwords()),
        false => Err(busy_with_passwords()),
    }
}

/// Returns the reply to users who lack `privilege`.
pub(super) fn forbidden(privilege: Privilege) -> Reply {
    let message = "Forbidden. User needs one of the following permissions";
    let value = json!({"message": message, "permissions": [format!("{privilege:?}")]});
    json_reply(StatusCode::FORBIDDEN, &value)
}
