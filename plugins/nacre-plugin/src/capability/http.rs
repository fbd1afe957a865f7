//! Capability `http-out`: HTTP requests to the hosts that the deployment lists.

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

/// A response of any status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// Headers; names are in lower case.
    pub headers: Vec<Header>,
    /// The whole body.
    pub body: Vec<u8>,
}

/// Why there is no response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The URL is invalid, or its host is not granted.
    #[error("{0}")]
    Denied(String),
    /// The response did not arrive before the deadline of the call.
    #[error("no answer in time")]
    Timeout,
    /// The response is too large.
    #[error("the answer is too large")]
    TooLarge,
    /// The connection failed.
    #[error("{0}")]
    Failed(String),
}

/// Sends a request and waits for the response.
///
/// # Errors
/// Fails if there is no response.
pub fn send(request: Request) -> Result<Response, Error> {
    outside::send(request)
}
