//! Questions to a node, and its answers.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::time::Duration;

/// The members of a request to `/query/service`.
pub type Request = Map<String, Value>;

/// Source of answers: a node over HTTP, or a list of answers in tests.
pub trait Ask {
    /// Sends a request and waits for its answer, which may be a refusal.
    ///
    /// # Errors
    /// When there is no answer, or it is none of a query service: why, in a sentence.
    fn ask(&mut self, request: &Request) -> Result<Answer, String>;
}

/// Answer of a query service.
#[derive(Debug)]
pub struct Answer {
    /// Rows as they were sent: members keep their order and numbers their digits.
    pub rows: Vec<Box<RawValue>>,
    /// Why it failed.
    pub errors: Vec<Problem>,
    /// Warnings.
    pub warnings: Vec<Problem>,
    /// True if the statement was carried out.
    pub is_success: bool,
    /// Number of documents that were changed.
    pub mutation_count: u64,
    /// From the request to the last byte of the answer.
    pub elapsed: Duration,
}

/// An error or a warning.
#[derive(Debug, Deserialize)]
pub struct Problem {
    /// The code that SDKs know.
    #[serde(default)]
    pub code: i64,
    /// Text of the problem.
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
    /// Reads the body of an answer.
    ///
    /// # Errors
    /// When it is none.
    pub fn read(body: &[u8], elapsed: Duration) -> Result<Answer, String> {
        let body: Body = serde_json::from_slice(body)
            .map_err(|error| format!("the answer is none of a query service: {error}"))?;
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
