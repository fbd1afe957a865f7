//! Errors of invalid definitions.

use std::fmt;

/// Why a definition is invalid, in the wording that clients match on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(String);

/// A result whose error is an [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn new(text: impl Into<String>) -> Error {
        Error(text.into())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}
