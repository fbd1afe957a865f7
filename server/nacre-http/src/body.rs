//! Bodies and texts of HTTP requests and replies.

use super::blocking_yield;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Body;
use hyper::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use hyper::{Response, StatusCode};
use percent_encoding::percent_decode;
use serde_json::{Value, json};
use std::convert::Infallible;
use tokio::runtime::Handle;

/// A reply. An error of its body is the reason why the body ends early.
pub type Reply = Response<BoxBody<Bytes, String>>;

/// A reply with a body of any type.
pub fn reply(status: StatusCode, content_type: &str, body: impl Into<Bytes>) -> Reply {
    let mut reply = Response::new(never_fails(Full::new(body.into())));
    *reply.status_mut() = status;
    if let Ok(value) = HeaderValue::from_str(content_type) {
        reply.headers_mut().insert(CONTENT_TYPE, value);
    }
    reply
}

/// Converts a body that cannot fail into the body of a [`Reply`].
pub fn never_fails(
    body: impl Body<Data = Bytes, Error = Infallible> + Send + Sync + 'static,
) -> BoxBody<Bytes, String> {
    body.map_err(|never| match never {}).boxed()
}

/// Returns a reply with `value` as JSON.
pub fn json_reply(status: StatusCode, value: &Value) -> Reply {
    reply(status, "application/json", value.to_string())
}

/// Returns the reply of a successful request, with `value` as JSON.
pub fn ok(value: &Value) -> Reply {
    json_reply(StatusCode::OK, value)
}

/// Returns an error in the format of the views port: a kind and a reason.
pub fn error_reply(status: StatusCode, error: &str, reason: &str) -> Reply {
    json_reply(status, &json!({"error": error, "reason": reason}))
}

/// Runs blocking `work` on threads that serve no connections.
///
/// # Errors
/// A reply that says that `what` has panicked.
pub async fn blocking<T: Send + 'static>(
    what: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Reply> {
    match blocking_yield::here(work) {
        Ok(done) => done.map_err(|_| panicked(what)),
        Err(work) => blocking_on(&Handle::current(), what, work).await,
    }
}

/// Runs blocking `work` on the threads of another runtime.
///
/// # Errors
/// A reply that says that `what` has panicked.
pub async fn blocking_on<T: Send + 'static>(
    threads: &Handle,
    what: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Reply> {
    threads.spawn_blocking(work).await.map_err(|_| panicked(what))
}

fn panicked(what: &str) -> Reply {
    let reason = format!("{what} has panicked");
    error_reply(StatusCode::INTERNAL_SERVER_ERROR, "internal", &reason)
}

/// Returns the answer to a successful change: an empty body.
pub fn done() -> Reply {
    reply(StatusCode::OK, "application/json", "")
}

/// Returns the reply for an invalid field of a form.
pub fn invalid(field: &str, reason: impl Into<String>) -> Reply {
    Invalid::new(field, reason).into()
}

/// A field of a form that is invalid, and the reason.
#[derive(Debug, PartialEq, Eq)]
pub struct Invalid {
    /// Name of the field.
    pub field: String,
    /// Why the value is invalid.
    pub reason: String,
}

impl Invalid {
    /// Creates the error for `field`.
    pub fn new(field: &str, reason: impl Into<String>) -> Invalid {
        Invalid { field: field.to_owned(), reason: reason.into() }
    }
}

impl From<Invalid> for Reply {
    fn from(Invalid { field, reason }: Invalid) -> Reply {
        json_reply(StatusCode::BAD_REQUEST, &json!({"errors": {field: reason}}))
    }
}

/// Returns the reply to a request without a login.
pub fn unauthorized() -> Reply {
    let mut reply =
        error_reply(StatusCode::UNAUTHORIZED, "unauthorized", "log in with a user and a password");
    let challenge = HeaderValue::from_static("Basic realm=\"nacre\"");
    reply.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    reply
}

/// Returns the reply to a wrong name or password. The reply does not say which of the two is wrong.
pub fn wrong_login() -> Reply {
    let mut reply = unauthorized();
    let reason = json!({"error": "unauthorized", "reason": "the user or the password is wrong"});
    *reply.body_mut() = json_reply(StatusCode::UNAUTHORIZED, &reason).into_body();
    reply
}

/// Returns the reply to an API token that is not valid.
pub fn wrong_token() -> Reply {
    let reason = "the token is unknown, was revoked or has expired: create another one";
    let mut reply = error_reply(StatusCode::UNAUTHORIZED, "invalid_token", reason);
    let challenge = "Bearer realm=\"nacre\", error=\"invalid_token\"";
    reply.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
    reply
}

/// Returns the reply to a login while too many passwords are being checked.
pub fn busy_with_passwords() -> Reply {
    let reason = "too many passwords are being checked: try again";
    let mut reply = error_reply(StatusCode::SERVICE_UNAVAILABLE, "busy", reason);
    reply.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    reply
}

/// Returns the reply to a client that asks for something that is reserved for nodes of the cluster.
pub fn no_node() -> Reply {
    let reason = "only for the nodes of the cluster, over TLS and with the keys that it knows";
    error_reply(StatusCode::FORBIDDEN, "refused", reason)
}

/// Returns the reply of the management port to an unknown path.
pub fn not_found() -> Reply {
    json_reply(StatusCode::NOT_FOUND, &json!("Requested resource not found."))
}

/// Returns the segments of a path, percent-decoded, or `None` if they are not UTF-8.
pub fn segments(path: &str) -> Option<Vec<String>> {
    path.split('/')
        .filter(|segment| !segment.is_empty())
        .map(|segment| {
            percent_decode(segment.as_bytes()).decode_utf8().ok().map(|text| text.into_owned())
        })
        .collect()
}

/// Parses the fields of a form or query string: `name=value` joined by `&`, percent-encoded, with `+` for a space.
pub fn form(text: &[u8]) -> Vec<(String, String)> {
    let decoded = |part: &[u8]| {
        let spaced: Vec<u8> =
            part.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
        percent_decode(&spaced).decode_utf8_lossy().into_owned()
    };
    text.split(|byte| *byte == b'&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let cut = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
            (decoded(&pair[..cut]), decoded(pair.get(cut + 1..).unwrap_or_default()))
        })
        .collect()
}

/// Returns the user and password of `Basic` credentials.
pub fn basic(value: &[u8]) -> Option<(String, String)> {
    let encoded = value.strip_prefix(b"Basic ").or_else(|| value.strip_prefix(b"basic "))?;
    let decoded = String::from_utf8(STANDARD.decode(encoded.trim_ascii()).ok()?).ok()?;
    let (user, password) = decoded.split_once(':')?;
    Some((user.to_owned(), password.to_owned()))
}

/// Returns the token of `Bearer` credentials.
pub fn bearer(value: &[u8]) -> Option<&str> {
    let (scheme, text) = value.split_at_checked(b"Bearer ".len())?;
    let is_bearer = scheme.eq_ignore_ascii_case(b"Bearer ");
    std::str::from_utf8(text.trim_ascii()).ok().filter(|_| is_bearer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_decoded() {
        assert_eq!(
            form(b"name=a%20b+c&ramQuotaMB=100&flag&=x"),
            [("name", "a b c"), ("ramQuotaMB", "100"), ("flag", ""), ("", "x")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
    }

    #[test]
    fn basic_authorization_is_decoded_or_refused() {
        assert_eq!(basic(b"Basic YW5uOnA6dw=="), Some(("ann".into(), "p:w".into())));
        assert_eq!(basic(b"Basic !!"), None);
        assert_eq!(basic(b"Bearer x"), None);
        assert_eq!(bearer(b"bearer  x "), Some("x"));
        for value in [&b"Bearer"[..], b"Basic x", b"", b"Bearer \xff"] {
            assert_eq!(bearer(value), None);
        }
    }
}
