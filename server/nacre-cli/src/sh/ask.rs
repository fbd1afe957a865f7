//! Requests to a node, and its answers.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::time::Duration;

/// The members of a request to `/query/service`.
pub type Request = Map<String, Value>;

/// A source of answers: a node over HTTP, or a list of answers in tests.
pub trait Ask {
    /// Sends a request and waits for its answer, which may be an error.
    ///
    /// # Errors
    /// The reason as a message, if there is no answer or it is not from a query service.
    fn ask(&mut self, request: &Request) -> Result<Answer, String>;
}

/// The answer of a query service.
#[derive(Debug)]
pub struct Answer {
    /// The rows as sent: members keep their order and numbers their digits.
    pub rows: Vec<Box<RawValue>>,
    /// The errors.
    pub errors: Vec<Problem>,
    /// The warnings.
    pub warnings: Vec<Problem>,
    /// True if the statement succeeded.
    pub is_success: bool,
    /// The number of changed documents.
    pub mutation_count: u64,
    /// The time from the request to the last byte of the answer.
    pub elapsed: Duration,
}

/// An error or a warning.
#[derive(Debug, Deserialize)]
pub struct Problem {
    /// The error code that SDKs know.
    #[serde(default)]
    pub code: i64,
    /// The message of the problem.
    #[serde(default, rename = "msg")]
    pub message: String,
    /// Details, such as `line` and `column` of a syntax error.
    #[serde(default)]
    pub reason: Value,
}

#[derive(Deserialize)]
struct Body {
    #[serde(default)]
    results: Vec<Box<RawValue>>,
    #[serde(default)]
    errors: Vec<Problem>,
    #[serde(default)]
    warnings: Vec<Problem>,
    status: String,
    #[serde(default)]
    metrics: Metrics,
}

#[derive(Default, Deserialize)]
struct Metrics {
    #[serde(default, rename = "mutationCount")]
    mutation_count: u64,
}

impl Answer {
    /// Parses the body of an answer.
    ///
    /// # Errors
    /// The reason, if the body is not a valid answer.
    pub fn read(body: &[u8], elapsed: Duration) -> Result<Answer, String> {
        let body: Body = serde_json::from_slice(body)
            .map_err(|error| format!("the response is not a query service's: {error}"))?;
        Ok(Answer {
            is_success: body.status == "success" && body.errors.is_empty(),
            rows: body.results,
            errors: body.errors,
            warnings: body.warnings,
            mutation_count: body.metrics.mutation_count,
            elapsed,
        })
    }
}
