//! `http-out`: requests to hosts that the deployment names, sent by the embedder.
//!
//! The URL is parsed here, once, and its parts are passed on. A client that parsed the URL differently could be led to
//! another host than the one that was checked.

use crate::abi::nacre::plugin::{http_out as abi, types};
use crate::capability::Capability;
use crate::instance::Data;
use std::sync::Arc;
use std::time::Duration;
use wasmtime::Result;

/// Name and value of a header.
pub type Header = (String, String);

/// Headers that describe the connection. Only the HTTP client sets them.
const CONNECTION_HEADERS: [&str; 8] = [
    "connection",
    "content-length",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The request header with the time limit in milliseconds. The host does not send it.
const TIMEOUT_HEADER: &str = "nacre-timeout-ms";

/// A request to a granted host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRequest {
    /// Method such as `GET` or `POST`; a token of HTTP.
    pub method: String,
    /// True for an encrypted connection with a verified certificate.
    pub is_secure: bool,
    /// Host name or address in lower case; an IPv6 address in brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Path and query, starting with `/`.
    pub target: String,
    /// Headers without line breaks, except connection headers.
    pub headers: Vec<Header>,
    /// The body.
    pub body: Vec<u8>,
    /// Time limit of the reply, if the request has one.
    pub timeout: Option<Duration>,
}

/// An HTTP response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpResponse {
    /// The HTTP status.
    pub status: u16,
    /// Headers, with names in lower case.
    pub headers: Vec<Header>,
    /// The whole body.
    pub body: Vec<u8>,
}

/// The reason why there is no response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    /// The host is not granted, or the request is invalid.
    #[error("{0}")]
    Denied(String),
    /// The response did not arrive in time.
    #[error("no answer in time")]
    Timeout,
    /// The response is too large.
    #[error("the answer is too large")]
    TooLarge,
    /// The connection failed.
    #[error("{0}")]
    Failed(String),
}

/// Sends requests; implemented by the embedder.
pub trait Http: Send + Sync {
    /// Sends `request` and waits for the complete response of at most `bytes_max` bytes, for at most `left`. Does not
    /// follow redirects, because they may lead to hosts that are not granted.
    ///
    /// # Errors
    /// The reason why there is no response.
    fn send(
        &self,
        request: &HttpRequest,
        bytes_max: usize,
        left: Duration,
    ) -> std::result::Result<HttpResponse, HttpError>;
}

/// Rejects all requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHttp;

impl Http for NoHttp {
    fn send(
        &self,
        _: &HttpRequest,
        _: usize,
        _: Duration,
    ) -> std::result::Result<HttpResponse, HttpError> {
        Err(HttpError::Denied("there is no network here".into()))
    }
}

impl HttpRequest {
    /// Creates a request from a URL, without a time limit. Any host is accepted.
    ///
    /// # Errors
    /// Fails when the method, the URL or a header is invalid.
    pub fn new(
        method: &str,
        url: &str,
        headers: Vec<Header>,
        body: Vec<u8>,
    ) -> std::result::Result<HttpRequest, HttpError> {
        let (is_secure, host, port, target) = split_url(method, url)?;
        headers.iter().try_for_each(|(name, value)| check_header(name, value))?;
        let (method, timeout) = (method.to_owned(), None);
        Ok(HttpRequest { method, is_secure, host, port, target, headers, body, timeout })
    }
}

/// The encryption, host, port and target of a URL.
type Destination = (bool, String, u16, String);

fn split_url(method: &str, url: &str) -> std::result::Result<Destination, HttpError> {
    if !is_token(method) {
        return Err(HttpError::Denied(format!("{method:?} is not a method")));
    }
    parse(url).ok_or_else(|| {
        HttpError::Denied(format!("{url:?} is not a URL of the form https://host/path"))
    })
}

fn check_header(name: &str, value: &str) -> std::result::Result<(), HttpError> {
    let is_control = |byte: u8| byte < b' ' && byte != b'\t' || byte == 127;
    if !is_token(name) || value.bytes().any(is_control) {
        return Err(HttpError::Denied(format!("{name:?} is not a header")));
    }
    if CONNECTION_HEADERS.contains(&&*name.to_ascii_lowercase()) {
        let why = format!("the header {name:?} belongs to the connection");
        return Err(HttpError::Denied(why));
    }
    Ok(())
}

/// Parses a request and checks it against the granted hosts.
fn checked(
    request: abi::Request,
    granted: &[String],
) -> std::result::Result<HttpRequest, HttpError> {
    let denied = |why: String| Err(HttpError::Denied(why));
    let abi::Request { method, url, headers, body } = request;
    let (is_secure, host, port, target) = split_url(&method, &url)?;
    let named = format!("{host}:{port}");
    let is_default = port == default_port(is_secure);
    if !granted.iter().any(|grant| *grant == named || is_default && *grant == host) {
        return denied(format!("requests to {named} are not granted"));
    }
    for types::Header { name, value } in &headers {
        check_header(name, value)?;
    }
    let mut timeout = None;
    let mut sent = Vec::with_capacity(headers.len());
    for types::Header { name, value } in headers {
        if name.eq_ignore_ascii_case(TIMEOUT_HEADER) {
            let Ok(ms) = value.parse() else {
                return denied(format!(
                    "{TIMEOUT_HEADER} is a number of milliseconds, not {value:?}"
                ));
            };
            timeout = Some(Duration::from_millis(ms));
        } else {
            sent.push((name, value));
        }
    }
    Ok(HttpRequest { method, is_secure, host, port, target, headers: sent, body, timeout })
}

fn default_port(is_secure: bool) -> u16 {
    if is_secure { 443 } else { 80 }
}

fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

/// Returns the encryption, host and port of a URL, as in [`HttpRequest`]; `None` if the text is not such a URL.
///
/// Two URLs with the same origin lead to the same server, so credentials for one are valid for the other.
pub fn origin(url: &str) -> Option<(bool, String, u16)> {
    parse(url).map(|(is_secure, host, port, _)| (is_secure, host, port))
}

/// Parses encryption, host, port and target of a URL. Strict: refuses URLs with a user, a space or a character outside
/// ASCII.
fn parse(url: &str) -> Option<(bool, String, u16, String)> {
    let (is_secure, rest) = match url.split_once("://")? {
        ("https", rest) => (true, rest),
        ("http", rest) => (false, rest),
        _ => return None,
    };
    if !rest.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\') {
        return None;
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, target) = rest.split_at(end);
    let target = target.split('#').next().unwrap_or_default();
    let target = match target.starts_with('/') {
        true => target.to_owned(),
        false => format!("/{target}"),
    };
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
        _ => (authority, default_port(is_secure)),
    };
    let is_host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => host.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.'),
    };
    (is_host && !host.is_empty()).then(|| (is_secure, host.to_ascii_lowercase(), port, target))
}

impl abi::Host for Data {
    fn send(
        &mut self,
        request: abi::Request,
    ) -> Result<std::result::Result<abi::Response, abi::Error>> {
        self.count(Capability::HttpOut)?;
        let context = Arc::clone(&self.context);
        let setup = &context.setup;
        let answer = match checked(request, &setup.grants.http_out) {
            Ok(request) => {
                let bytes_max = setup.limits.http_bytes;
                let left = self.time_left()?;
                let left = request.timeout.map_or(left, |timeout| timeout.min(left));
                let answer = match setup.http.send(&request, bytes_max, left) {
                    Ok(response) if response.body.len() > bytes_max => Err(HttpError::TooLarge),
                    answer => answer,
                };
                self.journal.answer(answer.clone().into());
                // Waiting for the response counts towards the deadline.
                self.time_left()?;
                answer
            }
            Err(error) => Err(error),
        };
        Ok(match answer {
            Ok(HttpResponse { status, headers, body }) => {
                let header = |(name, value)| types::Header { name, value };
                let headers = headers.into_iter().map(header).collect();
                Ok(abi::Response { status, headers, body })
            }
            Err(HttpError::Denied(why)) => Err(abi::Error::Denied(why)),
            Err(HttpError::Timeout) => Err(abi::Error::Timeout),
            Err(HttpError::TooLarge) => Err(abi::Error::TooLarge),
            Err(HttpError::Failed(why)) => Err(abi::Error::Failed(why)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(url: &str) -> String {
        let granted = ["api.example.com", "localhost:8080", "[::1]:81"].map(String::from);
        let request = abi::Request {
            method: "GET".into(),
            url: url.into(),
            headers: Vec::new(),
            body: Vec::new(),
        };
        match checked(request, &granted) {
            Ok(HttpRequest { is_secure, host, port, target, .. }) => {
                format!("{} {host} {port} {target}", if is_secure { "tls" } else { "plain" })
            }
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn only_granted_hosts_are_asked() {
        let told = [
            "https://api.example.com/v1?q=a#b",
            "http://API.example.com",
            "https://api.example.com?q",
            "https://api.example.com:8443/",
            "http://localhost:8080/x",
            "http://localhost/x",
            "http://[::1]:81/",
            "https://evil.com/",
            "https://api.example.com.evil.com/",
            "https://api.example.com@evil.com/",
            "https://evil.com\\@api.example.com/",
            "https://api.example.com:80:80/",
            "https://api.example.com/a b",
            "https://api.exämple.com/",
            "file:///etc/passwd",
            "https:///path",
            "",
        ]
        .map(|url| format!("{url}\n    {}", verdict(url)));
        insta::assert_snapshot!(told.join("\n"), @r#"
        https://api.example.com/v1?q=a#b
            tls api.example.com 443 /v1?q=a
        http://API.example.com
            plain api.example.com 80 /
        https://api.example.com?q
            tls api.example.com 443 /?q
        https://api.example.com:8443/
            requests to api.example.com:8443 are not granted
        http://localhost:8080/x
            plain localhost 8080 /x
        http://localhost/x
            requests to localhost:80 are not granted
        http://[::1]:81/
            plain [::1] 81 /
        https://evil.com/
            requests to evil.com:443 are not granted
        https://api.example.com.evil.com/
            requests to api.example.com.evil.com:443 are not granted
        https://api.example.com@evil.com/
            "https://api.example.com@evil.com/" is not a URL of the form https://host/path
        https://evil.com\@api.example.com/
            "https://evil.com\\@api.example.com/" is not a URL of the form https://host/path
        https://api.example.com:80:80/
            "https://api.example.com:80:80/" is not a URL of the form https://host/path
        https://api.example.com/a b
            "https://api.example.com/a b" is not a URL of the form https://host/path
        https://api.exämple.com/
            "https://api.exämple.com/" is not a URL of the form https://host/path
        file:///etc/passwd
            "file:///etc/passwd" is not a URL of the form https://host/path
        https:///path
            "https:///path" is not a URL of the form https://host/path

            "" is not a URL of the form https://host/path
        "#);
    }

    #[test]
    fn headers_cannot_break_out_of_the_request() {
        let with = |name: &str, value: &str| {
            let header = types::Header { name: name.into(), value: value.into() };
            let request = abi::Request {
                method: "GET".into(),
                url: "https://a/".into(),
                headers: vec![header],
                body: Vec::new(),
            };
            checked(request, &["a".to_owned()]).is_ok()
        };
        assert!(with("x-name", "a value\tof words"));
        assert!(!with("x-name", "a\r\nhost: b") && !with("x name", "a") && !with("", "a"));
        assert!(!with("Host", "b") && !with("transfer-encoding", "chunked"));
    }
}
