//! Errors, as clients read them.

use nacre_cluster::Refusal;
use nacre_node::Error;
use nacre_node::service::{HttpReply, HttpRequest};
use serde_json::{Value, json};

/// Media type of all answers.
const JSON: &str = "application/json";

/// An unsuccessful answer: an HTTP status, and the member `error` of the body.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Failure {
    /// HTTP status.
    pub status: u16,
    /// Usually a text, in which clients look for certain words.
    pub error: Value,
}

impl Failure {
    /// Creates a failure with a text.
    pub fn new(status: u16, text: impl Into<String>) -> Failure {
        Failure { status, error: text.into().into() }
    }

    /// Creates the failure for an error of the client.
    pub fn bad_request(text: impl Into<String>) -> Failure {
        Failure::new(400, text)
    }

    /// Creates the failure for a missing index. Each of these words is what some client looks for.
    pub fn no_index(name: &str) -> Failure {
        Failure::bad_request(format!("index not found, no indexName: {name} found"))
    }

    /// Creates the failure for a user who lacks a privilege.
    pub fn forbidden(permission: &str) -> Failure {
        let text = format!("forbidden: the user needs the permission {permission}");
        Failure::new(403, text)
    }

    /// Returns the failure with `words` before its text.
    pub fn within(self, words: &str) -> Failure {
        match self.error {
            Value::String(text) => Failure::new(self.status, format!("{words}{text}")),
            error => Failure { error, ..self },
        }
    }

    /// Returns the answer to `request`. The answer repeats the request.
    pub fn reply(&self, request: &HttpRequest) -> HttpReply {
        let mut body = json!({"status": "fail", "error": self.error});
        if !request.body.is_empty() {
            body["request"] = serde_json::from_slice(&request.body).unwrap_or_else(|_| {
                Value::from(String::from_utf8_lossy(&request.body).into_owned())
            });
        }
        HttpReply { status: self.status, content_type: JSON, body: body.to_string().into_bytes() }
    }
}

/// A change of the agreed state that was refused or failed.
impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match error {
            Error::Refused(refusal) => refusal.into(),
            error => Failure::new(500, error.to_string()),
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        Failure::bad_request(match refusal {
            Refusal::RecordExists { name } => format!(
                "manager_api: cannot create index because an index with the same name already exists: {name}"
            ),
            Refusal::RecordNotFound { name } => {
                format!("manager_api: index not found, index missing for update, indexName: {name}")
            }
            Refusal::RecordChanged { name, version } => format!(
                "manager_api: perhaps there was concurrent index definition update, current index UUID: {version}, did not match input UUID, indexName: {name}"
            ),
            Refusal::BucketNotFound { bucket } => format!("bucket not found: {bucket}"),
            Refusal::ScopeNotFound { scope } => {
                format!("collection_utils: scope: '{scope}' not found in bucket")
            }
            refusal => refusal.to_string(),
        })
    }
}

/// Returns a success: `members` with `"status":"ok"`.
pub(crate) fn ok(mut members: Value) -> HttpReply {
    members["status"] = "ok".into();
    HttpReply { status: 200, content_type: JSON, body: members.to_string().into_bytes() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_repeats_the_request() {
        let body = |request: &[u8]| {
            let request = HttpRequest { body: request.to_vec(), ..HttpRequest::default() };
            let reply = Failure::bad_request("no").reply(&request);
            serde_json::from_slice::<Value>(&reply.body).unwrap()
        };
        assert_eq!(body(b""), json!({"status": "fail", "error": "no"}));
        let repeated = json!({"status": "fail", "error": "no", "request": {"a": 1}});
        assert_eq!(body(br#"{"a":1}"#), repeated);
        assert_eq!(body(b"{a")["request"], "{a");
    }

    #[test]
    fn messages_contain_the_words_that_clients_look_for() {
        let text = |failure: Failure| failure.error.as_str().unwrap().to_owned();
        let (name, version) = ("i".to_owned(), "7".to_owned());
        for (failure, words) in [
            (Failure::no_index("i"), "index not found"),
            (Failure::no_index("i"), "no indexName:"),
            (
                Refusal::RecordExists { name: name.clone() }.into(),
                "index with the same name already exists",
            ),
            (Refusal::RecordNotFound { name: name.clone() }.into(), "index missing for update"),
            (Refusal::RecordNotFound { name: name.clone() }.into(), "index not found"),
            (
                Refusal::RecordChanged { name, version }.into(),
                "concurrent index definition update, current index UUID: 7, did not match input UUID",
            ),
        ] {
            assert_eq!(failure.status, 400);
            assert!(text(failure.clone()).contains(words), "{failure:?}");
        }
    }
}
