//! Errors with the codes of the analytics service, by which SDKs distinguish them.

use std::fmt;

/// The code of a bug in this program or a library.
pub const INTERNAL: u32 = 25000;

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// The reason why a request was refused or failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The code: 20xxx login and rights, 21xxx request, 22xxx links, 23xxx run time, 24xxx statement, 25xxx a
    /// bug.
    pub code: u32,
    /// The message for the sender of the request.
    pub message: String,
}

impl Error {
    /// Returns an error with this code.
    pub fn new(code: u32, message: impl Into<String>) -> Error {
        Error { code, message: message.into() }
    }

    /// Returns a syntax error.
    pub fn syntax(message: impl Into<String>) -> Error {
        Error::new(24000, message)
    }

    /// Returns the error for a bug in this program or a library.
    pub fn internal(message: impl fmt::Display) -> Error {
        Error::new(INTERNAL, format!("Internal error: {message}"))
    }

    /// Returns the error for a missing permission, given in the node's form.
    pub fn forbidden(permission: &str) -> Error {
        Error::new(20001, format!("User must have permission ({permission})"))
    }

    /// Returns the error for an unknown user.
    pub fn unauthorized() -> Error {
        Error::new(20000, "Unauthorized user.")
    }

    /// Returns the error for a request that exceeded its time limit.
    pub fn timeout() -> Error {
        Error::new(21002, "Request timed out and will be cancelled.")
    }

    /// Returns the error for a request that another one cancelled.
    pub fn cancelled() -> Error {
        Error::new(21007, "Request cancelled.")
    }

    /// Returns the HTTP status of an answer that fails before its first row.
    pub fn http_status(&self) -> u16 {
        match self.code {
            20000 => 401,
            20001 => 403,
            23000 | 23003 | 23007 => 503,
            25000..26000 => 500,
            _ => 400,
        }
    }

    /// Returns the `status` of the answer.
    pub fn status(&self) -> &'static str {
        match self.code {
            21002 => "timeout",
            21007 => "stopped",
            _ => "fatal",
        }
    }

    /// Returns true if the same request may succeed later.
    pub fn is_retriable(&self) -> bool {
        matches!(self.code, 23000 | 23003 | 23007)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

impl std::error::Error for Error {}

/// Errors of the evaluator, whose codes are those of SQL++ on port 8093.
impl From<nacre_sql::Error> for Error {
    fn from(error: nacre_sql::Error) -> Error {
        let code = match error.code {
            // Its callers pass errors of this crate with their own codes.
            20000..26000 => error.code,
            1080 => return Error::timeout(),
            1190 => return Error::cancelled(),
            3000 => 24000,
            nacre_sql::MEMORY => 23008,
            12003 => 24045,
            nacre_sql::EXECUTION if error.message.starts_with("No value for parameter") => 24050,
            _ => 24001,
        };
        Error::new(code, error.message)
    }
}

impl From<datafusion::error::DataFusionError> for Error {
    fn from(error: datafusion::error::DataFusionError) -> Error {
        use datafusion::error::DataFusionError;
        match error.find_root() {
            DataFusionError::ResourcesExhausted(reason) => {
                Error::new(23008, format!("The request needs more memory than there is: {reason}"))
            }
            // Sums are exact until they are converted to 64-bit integers.
            DataFusionError::ArrowError(reason, _)
                if ["verflow", "out of range"].iter().any(|w| reason.to_string().contains(w)) =>
            {
                Error::new(23011, format!("Numeric value out of range: {reason}"))
            }
            DataFusionError::External(inner) => match inner.downcast_ref::<Error>() {
                Some(own) => own.clone(),
                None => Error::internal(inner),
            },
            other => Error::internal(other),
        }
    }
}
