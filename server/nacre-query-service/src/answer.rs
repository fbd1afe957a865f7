//! Answers of queries. They are complete JSON, however their instance ends.

use super::failure::code;
use super::vitals::Counted;
use nacre_sandbox::{Answer as Given, Error, Header};
use serde_json::{Value, json};
use std::time::Duration;

/// An answer whose body is produced in pieces on demand.
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// Headers.
    pub headers: Vec<Header>,
    rest: Rest,
    counted: Counted,
}

enum Rest {
    /// From the instance. Each piece ends with a complete row, or with the end of the answer.
    Given(Box<Given>),
    /// The only piece.
    Whole(Vec<u8>),
    Nothing,
}

impl Answer {
    pub(super) fn given(given: Given, counted: Counted) -> Answer {
        let (status, headers) = (given.status, given.headers.clone());
        Answer { status, headers, rest: Rest::Given(Box::new(given)), counted }
    }

    /// Creates the answer to a request that has failed before its first row; `description` is the description that its
    /// instance has noted.
    pub(super) fn failed(error: &Error, description: Option<&Value>, counted: Counted) -> Answer {
        counted.fail();
        let mut body = String::from("{\n");
        for (name, of) in [("requestID", "requestId"), ("clientContextID", "clientContextID")] {
            if let Some(value) = description.and_then(|description| description.get(of)) {
                body.push_str(&format!("\"{name}\":{value},\n"));
            }
        }
        body.push_str("\"results\":[");
        body.push_str(&end(error));
        Answer {
            status: if error.is_retryable() { 503 } else { 200 },
            headers: headers_of(error),
            rest: Rest::Whole(body.into_bytes()),
            counted,
        }
    }

    /// Returns the time left for the rest of the answer by the request's own limit, which also counts while no piece is
    /// requested.
    pub fn time_left(&self) -> Option<Duration> {
        match &self.rest {
            Rest::Given(given) => given.time_left(),
            Rest::Whole(_) | Rest::Nothing => None,
        }
    }

    /// Returns the next piece of the body; `None` after the last. Blocks while the query runs.
    pub fn next_piece(&mut self) -> Option<Vec<u8>> {
        match std::mem::replace(&mut self.rest, Rest::Nothing) {
            Rest::Given(mut given) => match given.next_piece() {
                Ok(Some(piece)) => {
                    self.rest = Rest::Given(given);
                    Some(piece)
                }
                Ok(None) => None,
                Err(error) => {
                    self.counted.fail();
                    Some(end(&error).into_bytes())
                }
            },
            Rest::Whole(body) => Some(body),
            Rest::Nothing => None,
        }
    }
}

/// Returns the headers of an answer without rows.
fn headers_of(error: &Error) -> Vec<Header> {
    let mut headers = vec![("content-type".into(), "application/json".into())];
    if error.is_retryable() {
        headers.push(("retry-after".into(), "1".into()));
    }
    headers
}

/// Returns the end of the answer after the rows, if the instance has stopped without writing it. Codes are those of
/// Couchbase.
fn end(error: &Error) -> String {
    let (code, status, message) = match error {
        Error::Deadline { .. } => (code::TIMEOUT, "timeout", "Timeout exceeded".to_owned()),
        Error::Memory { limit_bytes, .. } => (
            5500,
            "errors",
            format!("Request has exceeded its memory quota of {limit_bytes} bytes"),
        ),
        Error::NodeMemory { exceeded, .. } => {
            (code::NODE_MEMORY, "errors", format!("Query node has run out of memory: {exceeded}"))
        }
        other => (code::INTERNAL, "errors", other.to_string()),
    };
    let mut entry = json!({"code": code, "msg": message});
    if error.is_retryable() {
        entry["retry"] = true.into();
    }
    format!("\n],\n\"errors\":[{entry}],\n\"status\":\"{status}\"\n}}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_an_answer_completes_its_json() {
        let errors = [
            Error::Deadline { deployment: "query".into(), after: Duration::from_secs(1) },
            Error::Memory { deployment: "query".into(), limit_bytes: 7 },
            Error::Trap { deployment: "query".into(), reason: "a \"b\"".into() },
        ];
        let codes = errors.map(|error| {
            let text = format!("{{\"results\":[{{\"a\":1}}{}", end(&error));
            let whole: Value = serde_json::from_str(&text).unwrap();
            (whole["errors"][0]["code"].as_u64(), whole["status"].as_str().map(str::to_owned))
        });
        let expected = [(1080, "timeout"), (5500, "errors"), (5000, "errors")];
        let expected = expected.map(|(code, status)| (Some(code), Some(status.to_owned())));
        assert_eq!(codes, expected);
    }
}
