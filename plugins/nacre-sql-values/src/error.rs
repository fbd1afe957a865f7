//! Errors of statements that cannot be parsed, planned or run.

use crate::value::Value;
use std::fmt;

/// An error with a code that clients know.
///
/// The code shows what the error concerns: 1xxx the request, 3xxx the statement's text, 4xxx its plan or a
/// prepared statement, 5xxx its execution, 12xxx documents and indexes.
#[derive(Clone, Debug, PartialEq)]
pub struct Error {
    /// The code, which SDKs map to their errors.
    pub code: u32,
    /// The message for the user.
    pub message: String,
    /// True if the same request may succeed later.
    pub retry: bool,
    /// Details for SDKs, as an object; MISSING if there are none.
    pub reason: Value,
}

/// The result of an operation that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// Code of a syntax error.
pub const SYNTAX: u32 = 3000;
/// Code of a name that is ambiguous or unknown.
pub const AMBIGUOUS: u32 = 3080;
/// Code of a construct that is not allowed in its place.
pub const SEMANTICS: u32 = 3100;
/// Code of a statement that cannot be planned.
pub const PLAN: u32 = 4000;
/// Code of a failed evaluation.
pub const EXECUTION: u32 = 5000;
/// Code of an evaluation that needs more memory than the request may use.
pub const MEMORY: u32 = 5500;

impl Error {
    /// Creates a permanent error.
    pub fn new(code: u32, message: impl Into<String>) -> Error {
        Error { code, message: message.into(), retry: false, reason: Value::Missing }
    }

    /// Returns the same error with details for SDKs.
    #[must_use]
    pub fn with_reason(mut self, reason: Value) -> Error {
        self.reason = reason;
        self
    }

    /// Returns the same error, marked as temporary.
    #[must_use]
    pub fn retryable(mut self) -> Error {
        self.retry = true;
        self
    }

    /// Creates an error of the evaluation of an expression.
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
