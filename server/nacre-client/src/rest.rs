//! REST client of a cluster: any of several hosts can answer.

use crate::{ClientIdentity, TrustedRoots};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use ureq::http::Request;
use ureq::tls::TlsConfig;

/// Time limit for a reply, because compiling a plugin takes seconds.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Maximum size of a reply in bytes.
const ANSWER_BYTES_MAX: u64 = 256 << 20;

/// Reply of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestReply {
    /// Status code.
    pub status: u16,
    /// Body. Invalid UTF-8 is replaced.
    pub text: String,
    /// ETag of the reply, including its quotation marks.
    pub etag: Option<String>,
}

impl RestReply {
    /// Returns true for the statuses 200 to 299.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// The reason why no host replied. The text is a sentence for the person at a terminal.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestError {
    /// Nothing answers at the address, or the address is invalid. Another host can be tried.
    #[error("{}", unreachable(address, source))]
    Unreachable {
        /// The URL as given.
        address: String,
        /// The error of the HTTP library.
        source: ureq::Error,
    },
    /// Something answers at the address, but not in HTTP: the caller must use another port.
    #[error("{}", unreachable(address, source))]
    NotHttp {
        /// The URL as given.
        address: String,
        /// The error of the HTTP library.
        source: ureq::Error,
    },
    /// The reply was cut off, or is larger than 256 MiB. The request may have been carried out.
    #[error("{0}")]
    Body(String),
}

/// REST client for the nodes of a cluster, with one login.
pub struct Rest {
    /// URLs without a path, such as `http://127.0.0.1:8091`.
    hosts: Vec<String>,
    /// Index of the host that answered last.
    current: AtomicUsize,
    agent: ureq::Agent,
    /// `None` if a client certificate is the login.
    authorization: Option<String>,
}

impl Rest {
    /// Creates a client for several hosts. It connects with the first request.
    pub fn new(hosts: &[String], user: &str, password: &str, trust: &TrustedRoots) -> Rest {
        let login = STANDARD.encode(format!("{user}:{password}"));
        Rest::with(hosts, Some(format!("Basic {login}")), trust.http_config(None))
    }

    /// Creates a client that authenticates with an API token.
    pub fn with_token(hosts: &[String], token: &str, trust: &TrustedRoots) -> Rest {
        Rest::with(hosts, Some(format!("Bearer {token}")), trust.http_config(None))
    }

    /// Creates a client that authenticates with a client certificate. The hosts must be reached by `https`.
    pub fn with_identity(
        hosts: &[String],
        identity: &ClientIdentity,
        trust: &TrustedRoots,
    ) -> Rest {
        Rest::with(hosts, None, trust.http_config(Some(identity)))
    }

    fn with(hosts: &[String], authorization: Option<String>, tls: TlsConfig) -> Rest {
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(TIMEOUT))
            .tls_config(tls)
            .build()
            .into();
        Rest { hosts: hosts.to_vec(), current: AtomicUsize::new(0), agent, authorization }
    }

    /// Sends a request to the host that answered last; if a host cannot be reached, tries the others in turn.
    ///
    /// A reply with any status is a success. A request that may have been carried out is not repeated.
    ///
    /// # Errors
    /// The [`RestError`] of the last host that was tried.
    pub fn call(&self, method: &str, path: &str, body: &[u8]) -> Result<RestReply, RestError> {
        self.call_with(method, path, &[], body)
    }

    /// Like [`Rest::call`], with headers.
    ///
    /// # Errors
    /// The errors of [`Rest::call`].
    pub fn call_with(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<RestReply, RestError> {
        let first = self.current.load(Ordering::Relaxed);
        let mut last = RestError::Body("there is no host to ask".to_owned());
        for turn in 0..self.hosts.len() {
            let place = (first + turn) % self.hosts.len();
            match self.call_host(&self.hosts[place], method, path, headers, body) {
                Err(error) if is_unsent(&error) => last = error,
                answered => {
                    self.current.store(place, Ordering::Relaxed);
                    return answered;
                }
            }
        }
        Err(last)
    }

    fn call_host(
        &self,
        host: &str,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<RestReply, RestError> {
        let failed = |source: ureq::Error| {
            let address = host.to_owned();
            match is_not_http(&source) {
                true => RestError::NotHttp { address, source },
                false => RestError::Unreachable { address, source },
            }
        };
        let request = Request::builder().method(method).uri(format!("{host}{path}"));
        let request = match &self.authorization {
            Some(authorization) => request.header("authorization", authorization),
            None => request,
        };
        let request =
            headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let request = request.body(body).map_err(|error| failed(error.into()))?;
        let mut answer = self.agent.run(request).map_err(failed)?;
        let etag = answer.headers().get("etag").and_then(|etag| etag.to_str().ok());
        let etag = etag.map(str::to_owned);
        let text = answer
            .body_mut()
            .with_config()
            .limit(ANSWER_BYTES_MAX)
            .read_to_string()
            .map_err(|error| RestError::Body(error.to_string()))?;
        Ok(RestReply { status: answer.status().as_u16(), text, etag })
    }
}

/// Returns true if there was no connection, so that the request was not sent. A timeout does not prove that.
fn is_unsent(error: &RestError) -> bool {
    let RestError::Unreachable { source, .. } = error else { return false };
    match source {
        ureq::Error::HostNotFound => true,
        ureq::Error::Io(error) => matches!(
            error.kind(),
            ErrorKind::ConnectionRefused
                | ErrorKind::HostUnreachable
                | ErrorKind::NetworkUnreachable
        ),
        _ => false,
    }
}

/// Returns true if the peer does not speak HTTP, such as the key-value port.
fn is_not_http(error: &ureq::Error) -> bool {
    match error {
        ureq::Error::Protocol(_) => true,
        ureq::Error::Io(error) => !matches!(
            error.kind(),
            ErrorKind::ConnectionRefused
                | ErrorKind::HostUnreachable
                | ErrorKind::NetworkUnreachable
                | ErrorKind::TimedOut
        ),
        _ => false,
    }
}

/// Returns a sentence with the address, the reason, and advice if possible.
fn unreachable(address: &str, error: &ureq::Error) -> String {
    let refused =
        matches!(error, ureq::Error::Io(error) if error.kind() == ErrorKind::ConnectionRefused);
    let hint = if !address.contains("://") {
        ": an address begins with http:// or https://"
    } else if refused {
        ": does a node run there?"
    } else if error.to_string().contains("UnknownIssuer") {
        ": name the authority of the node with --cacert, see certificates.md"
    } else {
        ""
    };
    format!("cannot reach {address}: {error}{hint}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    /// Replies to `count` requests with `answer`, each on its own connection. Returns the request lines.
    fn host(count: usize, answer: &'static str) -> (String, std::thread::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let serving = std::thread::spawn(move || {
            let serve = |_| {
                let (mut stream, _) = listener.accept().unwrap();
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                let first = lines.next().unwrap().unwrap();
                lines.find(|line| line.as_ref().unwrap().is_empty());
                stream.write_all(answer.as_bytes()).unwrap();
                first
            };
            (0..count).map(serve).collect()
        });
        (address, serving)
    }

    fn closed() -> String {
        format!("http://{}", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap())
    }

    fn rest(hosts: &[String]) -> Rest {
        Rest::new(hosts, "ann", "secret", &TrustedRoots::default())
    }

    #[test]
    fn an_unreachable_host_is_skipped_and_a_responding_host_is_kept() {
        const ANSWER: &str =
            "HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\nconnection: close\r\n\r\nno";
        let (open, serving) = host(2, ANSWER);
        let rest = rest(&[closed(), open]);
        let expected = RestReply { status: 404, text: "no".into(), etag: None };
        assert_eq!(rest.call("GET", "/a", b"").unwrap(), expected);
        assert_eq!(rest.call("GET", "/b", b"").unwrap(), expected);
        assert!(!expected.is_success());
        assert_eq!(serving.join().unwrap(), ["GET /a HTTP/1.1", "GET /b HTTP/1.1"]);
    }

    #[test]
    fn a_sent_request_is_not_repeated_on_another_host() {
        let (broken, serving) = host(1, "no HTTP at all\r\n\r\n");
        let (other, _) = host(1, "");
        let error = rest(&[broken, other]).call("POST", "/", b"").unwrap_err();
        assert!(matches!(error, RestError::NotHttp { .. }), "{error}");
        serving.join().unwrap();
    }

    #[test]
    fn an_invalid_address_and_a_refused_connection_have_different_errors() {
        let refused = || ureq::Error::Io(ErrorKind::ConnectionRefused.into());
        let told = unreachable("http://127.0.0.1:1", &refused());
        assert!(told.starts_with("cannot reach http://127.0.0.1:1: "), "{told}");
        assert!(told.ends_with(": does a node run there?"), "{told}");
        let told = unreachable("127.0.0.1:8091", &refused());
        assert!(told.ends_with(": an address begins with http:// or https://"), "{told}");
        let error = rest(&[closed()]).call("GET", "/", b"").unwrap_err();
        assert!(error.to_string().ends_with(": does a node run there?"), "{error}");
        assert!(rest(&[]).call("GET", "/", b"").is_err());
    }
}
