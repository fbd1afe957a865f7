//! Browser sessions: `/uilogin` exchanges a password for a cookie, and on the management port the cookie replaces Basic authentication.
//!
//! Path, fields, cookie and header are Couchbase's. The cookie is valid only with the header `ns-server-ui: yes`, which a page of
//! another site cannot send, and for the stream of measurements, because a browser's EventSource cannot send headers. The cookie is
//! valid on every node of the cluster: see [`BrowserSession`].

use super::super::body::{Reply, blocking, error_reply, form, reply};
use super::super::{Call, Door, audited, login, memory, settings};
use super::stream;
use hyper::body::Incoming;
use hyper::header::{COOKIE, HOST, HeaderValue, SET_COOKIE, WWW_AUTHENTICATE};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, StatusCode};
use nacre_auth::{BrowserSession, INTERNAL};
use nacre_cluster::{EndSessions, SettingsChange};
use nacre_links::audit::{self, AuditEvent};
use nacre_node::Node;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use std::net::SocketAddr;
use std::sync::Arc;

/// Header of requests that a page of the console sends.
const OF_CONSOLE: &str = "ns-server-ui";
/// Header of requests that no person has triggered, such as those of a timer. They do not renew a session.
const BACKGROUND: &str = "nacre-background";
/// Maximum size of the body of a login, in bytes.
const LOGIN_BYTES_MAX: usize = 4 << 10;
/// Age of a session's signature, in seconds, after which a request renews the session.
const RENEWED_AFTER_S: u64 = 30;

/// Returns true if a page of the console sent the request.
pub(in super::super) fn is_of_console(headers: &HeaderMap) -> bool {
    headers.get(OF_CONSOLE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"yes"))
}

/// Removes the authentication challenge from an answer to the console, which shows its own login form.
pub(in super::super) fn hides_challenge(answer: &mut Reply) {
    answer.headers_mut().remove(WWW_AUTHENTICATE);
}

/// Returns the name of the cookie. It contains the port: cookies do not distinguish ports, and several nodes on one
/// machine have separate sessions.
fn cookie_name(headers: &HeaderMap) -> Option<String> {
    let host = headers.get(HOST)?.to_str().ok()?;
    Some(format!("ui-auth-{}", utf8_percent_encode(host, NON_ALPHANUMERIC)))
}

fn now_s(node: &Node) -> u64 {
    u64::from(node.now().unix_s())
}

/// Returns the session of a request, if it is valid.
pub(in super::super) fn session_of(node: &Node, head: &Parts) -> Option<BrowserSession> {
    let is_stream = head.method == Method::GET && head.uri.path() == stream::PATH;
    if !is_of_console(&head.headers) && !is_stream {
        return None;
    }
    let name = cookie_name(&head.headers)?;
    let cookies = head.headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|value| value.split(';'));
    let token = pairs.find_map(|pair| pair.trim().strip_prefix(&name)?.strip_prefix('='))?;
    let session = node.users().read_session(token)?;
    counts(node, &session).then_some(session)
}

/// Returns true if a session has not ended. The check of each privilege also checks that its login is valid.
pub(super) fn counts(node: &Node, session: &BrowserSession) -> bool {
    let BrowserSession { login, id, begun_s, .. } = session;
    session.is_alive(now_s(node))
        && login.user != INTERNAL
        && node.users().holder(login).is_some()
        && !node.cluster().settings.ended_sessions.contains(&login.user, id, *begun_s)
}

/// Returns the value of `Set-Cookie`. Without a token, the value removes the cookie.
fn cookie(headers: &HeaderMap, token: Option<&str>, encrypted: bool) -> Option<HeaderValue> {
    let name = cookie_name(headers)?;
    let secure = if encrypted { "; Secure" } else { "" };
    let value = match token {
        Some(token) => format!("{name}={token}; Path=/; HttpOnly; SameSite=Strict{secure}"),
        None => format!("{name}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0{secure}"),
    };
    HeaderValue::from_str(&value).ok()
}

/// The cookie that renews a session after a request of its user.
pub(in super::super) struct Renewal(HeaderValue);

impl Renewal {
    /// Returns the renewal of a request's session, if it is due.
    pub fn of(
        node: &Node,
        session: &BrowserSession,
        head: &Parts,
        encrypted: bool,
    ) -> Option<Renewal> {
        let now_s = now_s(node);
        let is_due = now_s.saturating_sub(session.seen_s) >= RENEWED_AFTER_S;
        if !is_due || !is_of_console(&head.headers) || head.headers.contains_key(BACKGROUND) {
            return None;
        }
        let renewed = BrowserSession { seen_s: now_s, ..session.clone() };
        let token = node.users().sign(&renewed);
        cookie(&head.headers, Some(&token), encrypted).map(Renewal)
    }

    /// Adds the cookie to an answer.
    pub fn apply(self, answer: &mut Reply) {
        // An answer that ends the session, or starts another one, already sets a cookie.
        answer.headers_mut().entry(SET_COOKIE).or_insert(self.0);
    }
}

/// Answers `POST /uilogin`. Returns `None` for any other request, whose body others then read.
pub(in super::super) async fn at_login(
    door: &Door,
    from: SocketAddr,
    head: &Parts,
    body: Incoming,
) -> Result<Reply, Incoming> {
    let is_management = door.service == super::super::Service::Management;
    if !is_management || head.method != Method::POST || head.uri.path() != "/uilogin" {
        return Err(body);
    }
    Ok(log_in(door, from, head, body).await.unwrap_or_else(|reply| reply))
}

async fn log_in(
    door: &Door,
    from: SocketAddr,
    head: &Parts,
    body: Incoming,
) -> Result<Reply, Reply> {
    let node = &door.node;
    let security = node.cluster().settings.security.clone();
    let is_disabled =
        if door.encrypted { security.disable_ui_https } else { security.disable_ui_http };
    if is_disabled {
        return Err(error_reply(StatusCode::NOT_FOUND, "not_found", "the console is disabled"));
    }
    let account = node.memory().budgets().of_user("");
    let (body, _permit) = memory::read_body(body, &account, LOGIN_BYTES_MAX).await?;
    let fields = form(&body);
    let field = |name: &str| fields.iter().find(|(known, _)| known == name).map(|(_, text)| text);
    let (Some(user), Some(password)) = (field("user"), field("password")) else {
        let reason = "the fields user and password are needed, as a form";
        return Err(error_reply(StatusCode::BAD_REQUEST, "bad_request", reason));
    };
    let found = match user.as_str() {
        INTERNAL => None,
        user => login::by_password(node, from.ip(), user, password).await?,
    };
    let Some(found) = found else {
        audited::refused(door, Some(user.clone()), from, StatusCode::UNAUTHORIZED);
        let reason = "the user or the password is wrong";
        return Err(error_reply(StatusCode::BAD_REQUEST, "wrong_login", reason));
    };
    let now_s = now_s(node);
    let id = format!("{:016x}{:016x}", node.random(), node.random());
    let session = BrowserSession { login: found, id, begun_s: now_s, seen_s: now_s };
    // A login within the second in which all sessions were ended counts as ended with them.
    if !counts(node, &session) {
        let reason = "all sessions of the user have just been ended: try again in a second";
        return Err(error_reply(StatusCode::SERVICE_UNAVAILABLE, "try_again", reason));
    }
    let token = node.users().sign(&session);
    let Some(cookie) = cookie(&head.headers, Some(&token), door.encrypted) else {
        let reason = "the header Host is needed";
        return Err(error_reply(StatusCode::BAD_REQUEST, "bad_request", reason));
    };
    let event = AuditEvent {
        kind: audit::LOGIN_SUCCESS,
        user: user.clone(),
        domain: "local".to_owned(),
        remote: from,
        details: serde_json::json!({}),
    };
    door.front.records.audit.write(&node.cluster().settings.audit, &event);
    let mut answer = reply(StatusCode::OK, "application/json", "");
    answer.headers_mut().insert(SET_COOKIE, cookie);
    Ok(answer)
}

/// Answers `POST /uilogout`: ends the session, or all sessions of the user with `everywhere=true`.
pub(super) async fn logout(call: Call) -> Result<Reply, Reply> {
    let is_everywhere =
        call.form().iter().any(|field| *field == ("everywhere".into(), "true".into()));
    let id = call.session.as_ref().map(|session| session.id.clone());
    let node = Arc::clone(&call.node);
    let at_s = blocking("the clock", move || now_s(&node)).await?;
    if is_everywhere || id.is_some() {
        let id = id.filter(|_| !is_everywhere);
        let end = EndSessions { user: call.user.clone(), id, at_s };
        settings::change(&call, SettingsChange::EndSessions(end)).await?;
    }
    let mut headers = HeaderMap::new();
    if let Ok(host) = HeaderValue::from_str(call.host()) {
        headers.insert(HOST, host);
    }
    let mut answer = reply(StatusCode::OK, "application/json", "");
    if let Some(cookie) = cookie(&headers, None, false) {
        answer.headers_mut().insert(SET_COOKIE, cookie);
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_for_one_host_and_port_and_for_no_script() {
        let mut headers = HeaderMap::new();
        assert!(cookie(&headers, Some("t"), false).is_none());
        headers.insert(HOST, HeaderValue::from_static("[::1]:8091"));
        let value = cookie(&headers, Some("t"), true).unwrap();
        assert_eq!(
            value,
            "ui-auth-%5B%3A%3A1%5D%3A8091=t; Path=/; HttpOnly; SameSite=Strict; Secure"
        );
        let gone = cookie(&headers, None, false).unwrap();
        assert!(gone.to_str().unwrap().contains("Max-Age=0"));
    }
}
