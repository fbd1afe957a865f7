//! Statements over HTTP.

use super::ask::{Answer, Ask, Request};
use crate::failure::Kind;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, WWW_AUTHENTICATE};
use hyper::{StatusCode, Uri};
use hyper_util::rt::TokioIo;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

/// Time limit for a connection. The node limits the time of a statement.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum bytes of an answer.
const ANSWER_BYTES_MAX: usize = 1 << 30;
/// The interval at which the shell checks for Ctrl-C.
const INTERRUPT_INTERVAL: Duration = Duration::from_millis(20);

/// A byte stream, encrypted or not.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// The query service of a node. Each statement has its own connection; when it closes, the node stops the statement.
pub struct Node {
    runtime: tokio::runtime::Runtime,
    url: Uri,
    user: String,
    login: String,
    tls: Arc<ClientConfig>,
    interrupted: Arc<AtomicBool>,
    /// Why the first statement without an answer had none; `None` if each had one.
    trouble: Option<Kind>,
}

/// The answer to a request.
struct Exchanged {
    is_refused: bool,
    status: StatusCode,
    body: Bytes,
    elapsed: Duration,
}

impl Node {
    /// Creates a client, which connects with the first statement.
    ///
    /// `url` is the address of the query service without a path, such as `http://127.0.0.1:8093`. Setting `interrupted`
    /// stops the current statement.
    ///
    /// # Errors
    /// The reason, if `url` is not an address.
    pub fn new(
        url: &str,
        (user, password): (&str, &str),
        tls: Arc<ClientConfig>,
        interrupted: Arc<AtomicBool>,
    ) -> Result<Node, String> {
        let wrong = || format!("{url} is not an address: it begins with http:// or https://");
        let url: Uri = url.trim_end_matches('/').parse().map_err(|_| wrong())?;
        if !matches!(url.scheme_str(), Some("http" | "https")) || url.host().is_none() {
            return Err(wrong());
        }
        let login = format!("Basic {}", STANDARD.encode(format!("{user}:{password}")));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| format!("cannot wait for answers: {error}"))?;
        let user = user.to_owned();
        Ok(Node { runtime, url, user, login, tls, interrupted, trouble: None })
    }

    /// Returns why a statement had no answer: the node cannot be reached, or refuses the login. `None` if each had one.
    pub fn trouble(&self) -> Option<Kind> {
        self.trouble
    }

    /// Returns the address, for messages.
    pub fn address(&self) -> String {
        self.url.to_string().trim_end_matches('/').to_owned()
    }

    async fn connect(&self) -> Result<Box<dyn Stream>, String> {
        let is_encrypted = self.url.scheme_str() == Some("https");
        let host = self.url.host().unwrap_or_default().trim_matches(['[', ']']);
        let port = self.url.port_u16().unwrap_or(if is_encrypted { 443 } else { 80 });
        let stream = TcpStream::connect((host, port)).await.map_err(|error| {
            let is_refused = error.kind() == std::io::ErrorKind::ConnectionRefused;
            let hint = if is_refused { ": does a node run there?" } else { "" };
            format!("{error}{hint}")
        })?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        if !is_encrypted {
            return Ok(Box::new(stream));
        }
        let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
        let connector = TlsConnector::from(Arc::clone(&self.tls));
        let stream = connector.connect(name, stream).await.map_err(|error| {
            let is_unknown = error.to_string().contains("UnknownIssuer");
            let hint = ": pass the node's own authority with --cacert, see certificates.md";
            format!("{error}{}", if is_unknown { hint } else { "" })
        })?;
        Ok(Box::new(stream))
    }

    /// Sends a request and returns the answer: its status and body, whether the login was refused, and the time it took.
    async fn exchange(&self, body: Vec<u8>) -> Result<Exchanged, String> {
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, self.connect()).await;
        let stream = connected.unwrap_or_else(|_| Err("it does not answer".to_owned()))?;
        let begun = Instant::now();
        let broken = |error: hyper::Error| format!("the connection broke: {error}");
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        let host = self.url.authority().map_or("", |authority| authority.as_str());
        let request = hyper::Request::post("/query/service")
            .header(HOST, host)
            .header(AUTHORIZATION, &self.login)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| error.to_string())?;
        let answer = async {
            let answer = sender.send_request(request).await.map_err(broken)?;
            let status = answer.status();
            // A missing right has that status too, but only a missing login has this header.
            let is_refused = status == StatusCode::UNAUTHORIZED
                && answer.headers().contains_key(WWW_AUTHENTICATE);
            let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
            let body = body.map_err(|error| format!("the connection broke: {error}"))?;
            Ok(Exchanged { is_refused, status, body: body.to_bytes(), elapsed: begun.elapsed() })
        };
        // The connection transfers bytes only while it is polled; it ends with this function.
        let (mut connection, mut answer) = (std::pin::pin!(connection), std::pin::pin!(answer));
        tokio::select! {
            answer = &mut answer => answer,
            _ = &mut connection => answer.await,
        }
    }

    /// Waits for Ctrl-C.
    async fn interruption(&self) {
        let mut ticks = tokio::time::interval(INTERRUPT_INTERVAL);
        while !self.interrupted.load(Ordering::Relaxed) {
            ticks.tick().await;
        }
    }
}

impl Ask for Node {
    fn ask(&mut self, request: &Request) -> Result<Answer, String> {
        let body = serde_json::to_vec(request).map_err(|error| error.to_string())?;
        self.interrupted.store(false, Ordering::Relaxed);
        let answer = self.runtime.block_on(async {
            tokio::select! {
                answer = self.exchange(body) => Some(answer),
                () = self.interruption() => None,
            }
        });
        let Some(answer) = answer else {
            return Err("interrupted: the node ends the statement".to_owned());
        };
        let Exchanged { is_refused, status, body, elapsed } = match answer {
            Ok(answer) => answer,
            Err(reason) => {
                self.trouble.get_or_insert(Kind::Unreachable);
                return Err(format!("cannot reach {}: {reason}", self.address()));
            }
        };
        if is_refused {
            self.trouble.get_or_insert(Kind::Denied);
            return Err(format!("{} refuses the login of {}", self.address(), self.user));
        }
        Answer::read(&body, elapsed)
            .map_err(|reason| format!("{} answers {status}: {reason}", self.address()))
    }
}
