//! Requests and answers in CouchDB's form.

use crate::json::quoted;
use nacre_plugin::{Request, Response, kv};
use serde::de::DeserializeOwned;

/// The reason why a request, or a part of one, is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The HTTP status.
    pub status: u16,
    /// The short name.
    pub error: &'static str,
    /// The reason, for people.
    pub reason: String,
}

impl Problem {
    /// Returns a problem of any kind.
    pub fn new(status: u16, error: &'static str, reason: &str) -> Problem {
        Problem { status, error, reason: reason.to_owned() }
    }

    /// Returns the problem of a malformed request.
    pub fn bad(reason: &str) -> Problem {
        Problem::new(400, "bad_request", reason)
    }

    /// Returns the problem of an invalid document.
    pub fn invalid(reason: &str) -> Problem {
        Problem::new(400, "doc_validation", reason)
    }

    /// Returns the problem of a missing object.
    pub fn missing(reason: &str) -> Problem {
        Problem::new(404, "not_found", reason)
    }

    /// Returns the problem of an edit of a revision that is not current.
    pub fn conflict() -> Problem {
        Problem::new(409, "conflict", "Document update conflict.")
    }

    /// Returns the answer for the problem.
    pub fn response(&self) -> Response {
        let body =
            format!("{{\"error\":{},\"reason\":{}}}\n", quoted(self.error), quoted(&self.reason));
        json(self.status, body)
    }

    /// Returns the row of a bulk answer for the problem.
    pub fn row(&self, id: &str, rev: Option<&str>) -> String {
        let rev = rev.map(|rev| format!(",\"rev\":{}", quoted(rev))).unwrap_or_default();
        let (error, reason) = (quoted(self.error), quoted(&self.reason));
        format!("{{\"id\":{}{rev},\"error\":{error},\"reason\":{reason}}}", quoted(id))
    }
}

impl From<kv::Error> for Problem {
    fn from(error: kv::Error) -> Problem {
        let reason = error.to_string();
        match error {
            kv::Error::TooLarge => Problem::new(413, "document_too_large", &reason),
            kv::Error::Locked | kv::Error::Temporary(_) => {
                Problem::new(503, "service_unavailable", &reason)
            }
            kv::Error::Denied(_) => Problem::new(403, "forbidden", &reason),
            _ => Problem::new(500, "internal_server_error", &reason),
        }
    }
}

/// Returns a JSON answer.
pub fn json(status: u16, body: impl Into<Vec<u8>>) -> Response {
    let mut response = Response::json(status, body);
    response.headers.push(("cache-control".into(), "must-revalidate".into()));
    response
}

/// Returns an answer that is sent once the writes are on disk.
pub fn durable(mut response: Response) -> Response {
    response.headers.push(("nacre-durable".into(), "true".into()));
    response
}

/// The parameters of a query string.
#[derive(Clone, Debug, Default)]
pub struct Parameters(Vec<(String, String)>);

impl Parameters {
    /// Parses a query string.
    pub fn read(query: &str) -> Parameters {
        let pair = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name, true), decode(value, true))
        };
        Parameters(query.split('&').filter(|pair| !pair.is_empty()).map(pair).collect())
    }

    /// Returns the value of a parameter.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns true if a parameter is `true`.
    pub fn is(&self, name: &str) -> bool {
        self.get(name) == Some("true")
    }

    /// Returns a parameter that is a number.
    ///
    /// # Errors
    /// 400 for other values.
    pub fn number(&self, name: &str) -> Result<Option<u64>, Problem> {
        let wrong = |value: &str| {
            let reason = format!("Invalid value for {name}: {value:?} is not a number from 0 on");
            Problem::new(400, "query_parse_error", &reason)
        };
        let read = |value: &str| value.parse().map_err(|_| wrong(value));
        self.get(name).map(read).transpose()
    }

    /// Returns a parameter that is JSON.
    ///
    /// # Errors
    /// 400 for other values.
    pub fn json<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Problem> {
        let read = |value: &str| {
            serde_json::from_str(value)
                .map_err(|error| Problem::bad(&format!("invalid_json: {name}: {error}")))
        };
        self.get(name).map(read).transpose()
    }

    /// Sets a parameter.
    pub fn set(&mut self, name: &str, value: String) {
        self.0.push((name.to_owned(), value));
    }
}

/// Decodes percent-encoded text.
pub fn decode(text: &str, is_query: bool) -> String {
    let (bytes, mut out, mut at) = (text.as_bytes(), Vec::with_capacity(text.len()), 0);
    let digit = |index: usize| {
        bytes.get(index).and_then(|byte| char::from(*byte).to_digit(16)).map(|digit| digit as u8)
    };
    while let Some(byte) = bytes.get(at) {
        let escaped = digit(at + 1).zip(digit(at + 2)).filter(|_| *byte == b'%');
        match escaped {
            Some((high, low)) => {
                out.push(high << 4 | low);
                at += 3;
                continue;
            }
            None if *byte == b'+' && is_query => out.push(b' '),
            None => out.push(*byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Returns a header of a request.
pub fn header<'a>(request: &'a Request, name: &str) -> Option<&'a str> {
    request.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

/// Returns the decoded segments of the path: a `/` within a name is kept.
pub fn segments(request: &Request) -> Vec<String> {
    let path = header(request, "nacre-path").unwrap_or(&request.path);
    let parts = path.split('/').filter(|part| !part.is_empty());
    parts.map(|part| decode(part, false)).collect()
}

/// Parses a JSON body.
///
/// # Errors
/// 400 for other bodies.
pub fn body<T: DeserializeOwned>(request: &Request) -> Result<T, Problem> {
    serde_json::from_slice(&request.body)
        .map_err(|error| Problem::bad(&format!("invalid UTF-8 JSON: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded() {
        let parameters = Parameters::read("a=%22x+y%22&b&limit=7&bad=x&a=1");
        assert_eq!(parameters.get("a"), Some("1"));
        assert_eq!(parameters.get("b"), Some(""));
        assert_eq!(parameters.number("limit"), Ok(Some(7)));
        assert!(parameters.number("bad").is_err());
        assert_eq!(decode("a%2Fb%zz%4", false), "a/b%zz%4");
    }

    #[test]
    fn a_slash_within_a_name_is_kept() {
        let request = Request {
            path: "/db/a/b/c".into(),
            headers: vec![("nacre-path".into(), "/db/a%2Fb/c".into())],
            ..Request::default()
        };
        assert_eq!(segments(&request), ["db", "a/b", "c"]);
    }
}
