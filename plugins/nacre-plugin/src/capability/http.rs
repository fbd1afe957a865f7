//! Capability `http-out`: HTTP requests to the hosts that the deployment names.

use super::outside;
use crate::Header;

/// A request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// `GET`, `POST`, ….
    pub method: String,
    /// `https://host/path?query`, or `http:`.
    pub url: String,
    /// Headers, without those of the connection.
    pub headers: Vec<Header>,
    /// The body.
    pub body: Vec<u8>,
}

/// An answer, whatever its status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// Headers, their names in lower case.
    pub headers: Vec<Header>,
    /// The whole body.
    pub body: Vec<u8>,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The host is not granted, or the URL is none.
    #[error("{0}")]
    Denied(String),
    /// The answer did not come in time.
    #[error("no answer in time")]
    Timeout,
    /// The answer is too large.
    #[error("the answer is too large")]
    TooLarge,
    /// There is no connection.
    #[error("{0}")]
    Failed(String),
}

/// Sends a request and waits for its answer.
///
/// # Errors
/// Why there is none.
pub fn send(request: Request) -> Result<Response, Error> {
    outside::send(request)
}
