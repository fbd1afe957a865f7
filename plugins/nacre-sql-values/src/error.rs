//! What is said when a statement cannot be parsed, planned or run.

use crate::value::Value;
use std::fmt;

/// A refusal with the code that clients know.
///
/// The code says who must act: 1xxx the request, 3xxx the statement's text, 4xxx its plan or a prepared statement,
/// 5xxx its execution, 12xxx the documents and indexes.
#[derive(Clone, Debug, PartialEq)]
pub struct Error {
    /// The number that SDKs map to their errors.
    pub code: u32,
    /// What is wrong, for people.
    pub message: String,
    /// Whether the same request may succeed later.
    pub retry: bool,
    /// Details for SDKs, as an object; MISSING when there are none.
    pub reason: Value,
}

/// The result of whatever can be refused.
pub type Result<T> = std::result::Result<T, Error>;

/// The statement does not parse.
pub const SYNTAX: u32 = 3000;
/// A name that could mean several things, or nothing.
pub const AMBIGUOUS: u32 = 3080;
/// What is valid in itself, but not at this place.
pub const SEMANTICS: u32 = 3100;
/// No plan can be made.
pub const PLAN: u32 = 4000;
/// Evaluation failed.
pub const EXECUTION: u32 = 5000;
/// Evaluation needs more memory than the request may have.
pub const MEMORY: u32 = 5500;

impl Error {
    /// An error that will come again.
    pub fn new(code: u32, message: impl Into<String>) -> Error {
        Error { code, message: message.into(), retry: false, reason: Value::Missing }
    }

    /// The same error with details for SDKs.
    #[must_use]
    pub fn with_reason(mut self, reason: Value) -> Error {
        self.reason = reason;
        self
    }

    /// An error that may pass.
    #[must_use]
    pub fn retryable(mut self) -> Error {
        self.retry = true;
        self
    }

    /// What is wrong with an expression while it is evaluated.
    pub fn execution(message: impl Into<String>) -> Error {
        Error::new(EXECUTION, message)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.code, self.message)
    }
}

impl std::error::Error for Error {}
