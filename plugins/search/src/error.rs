//! Errors, with the words that clients match on.

use std::fmt;

/// An error: the HTTP status, and the text of the member `error`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// HTTP status: 400 for an error of the client, 500 for an error of the store.
    pub status: u16,
    /// The text.
    pub text: String,
}

/// A result whose error is an [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Creates an error of the client: status 400.
    pub fn request(text: impl Into<String>) -> Error {
        Error { status: 400, text: text.into() }
    }

    /// Creates an error of the store, or of an unreadable index: status 500.
    pub fn internal(text: impl fmt::Display) -> Error {
        Error { status: 500, text: text.to_string() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}

impl From<tantivy::TantivyError> for Error {
    fn from(error: tantivy::TantivyError) -> Error {
        Error::internal(error)
    }
}

impl From<nacre_text::Error> for Error {
    fn from(error: nacre_text::Error) -> Error {
        Error::request(error.to_string())
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Error {
        Error::internal(error)
    }
}
