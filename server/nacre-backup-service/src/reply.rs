//! Answers, and the bodies of requests.

use nacre_cluster::Refusal;
use nacre_node::Error;
use nacre_node::service::{HttpReply, HttpRequest};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Media type of all answers.
const JSON: &str = "application/json";

/// A request that was not carried out: a status of HTTP, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Status of HTTP.
    pub status: u16,
    /// The failed step, in a few words that tools look for.
    pub message: String,
    /// The reason.
    pub extras: String,
}

impl Failure {
    /// A failure without a further reason.
    pub fn new(status: u16, message: impl Into<String>) -> Failure {
        Failure { status, message: message.into(), extras: String::new() }
    }

    /// A fault of the caller.
    pub fn bad_request(message: impl Into<String>) -> Failure {
        Failure::new(400, message)
    }

    /// Adds the reason.
    pub fn because(self, reason: impl Into<String>) -> Failure {
        Failure { extras: reason.into(), ..self }
    }

    /// The answer. Source: errors of Couchbase's backup service.
    pub fn reply(&self) -> HttpReply {
        let mut body = json!({"status": self.status, "msg": self.message});
        if !self.extras.is_empty() {
            body["extras"] = self.extras.as_str().into();
        }
        HttpReply { status: self.status, content_type: JSON, body: body.to_string().into_bytes() }
    }
}

/// A change of the agreed state that was refused, or could not be made.
impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match error {
            Error::Refused(Refusal::RecordChanged { .. } | Refusal::RecordExists { .. }) => {
                Failure::new(409, "somebody else has changed it at the same time: try again")
            }
            Error::Refused(Refusal::RecordNotFound { .. }) => {
                Failure::new(404, "somebody else has removed it")
            }
            Error::Refused(refusal) => Failure::bad_request(refusal.to_string()),
            error @ (Error::Unavailable(_) | Error::Effect(_)) => {
                Failure::new(503, "the nodes cannot agree now").because(error.to_string())
            }
            error => Failure::new(500, "the change has failed").because(error.to_string()),
        }
    }
}

/// An answer in JSON.
pub(crate) fn ok(value: &Value) -> HttpReply {
    HttpReply { status: 200, content_type: JSON, body: value.to_string().into_bytes() }
}

/// An answer without a body.
pub(crate) fn done() -> HttpReply {
    HttpReply { status: 200, content_type: JSON, body: Vec::new() }
}

/// Reads the body of a request; an empty one counts as an object without members.
///
/// # Errors
/// 400 for what is no such object.
pub(crate) fn body<T: DeserializeOwned>(request: &HttpRequest) -> Result<T, Failure> {
    let bytes = if request.body.is_empty() { &b"{}"[..] } else { &request.body };
    let unreadable = |error: serde_json::Error| {
        Failure::bad_request("could not decode the body of the request").because(error.to_string())
    };
    serde_json::from_slice(bytes).map_err(unreadable)
}

/// Returns a segment of the path that the route left open.
pub(crate) fn segment(request: &HttpRequest, at: usize) -> &str {
    request.parameters.get(at).map_or("", String::as_str)
}

/// Returns a parameter of the query, percent-decoded; `Some("")` for one without a value.
pub(crate) fn parameter(request: &HttpRequest, name: &str) -> Option<String> {
    request.query_pairs().find(|(found, _)| *found == name).map(|(_, value)| value)
}

/// Names of plans and repositories: 1 to 50 letters, digits, `-` and `_`, the first one a letter or a digit.
///
/// # Errors
/// 400.
pub(crate) fn check_name(what: &str, name: &str) -> Result<(), Failure> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_valid = (1..=50).contains(&name.len())
        && name.bytes().all(is_plain)
        && name.as_bytes()[0].is_ascii_alphanumeric();
    if is_valid {
        return Ok(());
    }
    Err(Failure::bad_request(format!(
        "the name of a {what} has 1 to 50 letters, digits, - and _, and begins with a letter or a digit"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_can_be_part_of_a_path() {
        for name in ["a", "7", "a-b_c", &"x".repeat(50)] {
            assert_eq!(check_name("plan", name), Ok(()), "{name}");
        }
        for name in ["", "_a", "-a", "a/b", "a.b", "..", "a b", "é", &"x".repeat(51)] {
            assert_eq!(check_name("plan", name).unwrap_err().status, 400, "{name}");
        }
    }

    #[test]
    fn an_invalid_body_is_refused() {
        let read = |text: &str| {
            let request = HttpRequest { body: text.into(), ..HttpRequest::default() };
            body::<std::collections::BTreeMap<String, u32>>(&request)
        };
        assert_eq!(read(""), Ok(std::collections::BTreeMap::new()));
        assert_eq!(read(r#"{"a":1}"#).unwrap()["a"], 1);
        for text in ["[", "7", r#"{"a":"x"}"#] {
            assert_eq!(read(text).unwrap_err().status, 400, "{text}");
        }
    }

    #[test]
    fn parameters_are_found_with_and_without_a_value() {
        let query = "limit=5&first=2026-11-01T00%3A00%3A00Z&remove_repository";
        let request = HttpRequest { query: query.into(), ..HttpRequest::default() };
        assert_eq!(parameter(&request, "limit").as_deref(), Some("5"));
        assert_eq!(parameter(&request, "first").as_deref(), Some("2026-11-01T00:00:00Z"));
        assert_eq!(parameter(&request, "remove_repository").as_deref(), Some(""));
        assert_eq!(parameter(&request, "other"), None);
    }
}
