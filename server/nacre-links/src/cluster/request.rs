//! Requests from one node to another: HTTP over a connection on which both have presented their keys.

use super::types::Place;
use crate::tls::{NodeKey, Purpose};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use nacre_auth::INTERNAL;
use nacre_cluster::{Cluster, Fingerprint};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::time::timeout;

/// Timeout of connecting to a node.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of a response of another node: a package.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Maximum size of a response of an unauthenticated server.
const INTRODUCTION_BYTES_MAX: usize = 4 << 10;
/// Path at which a node describes how to reach it.
pub const INTRODUCTION: &str = "/_nacre/node";

/// A node's description of how to reach it, available without a login.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Introduction {
    /// [`VERSION`](super::membership::VERSION) of that node.
    pub version: u32,
    /// Its management port with TLS.
    pub port: u16,
    /// Fingerprint of its key. Must not be trusted when it was read without TLS.
    pub fingerprint: Fingerprint,
}

/// A node to ask, with the credentials.
#[derive(Clone)]
pub struct Login {
    /// `host:port` of its TLS management port.
    pub address: String,
    /// Fingerprint of its key, if known.
    pub fingerprint: Option<Fingerprint>,
    /// User there.
    pub user: String,
    /// Password.
    pub password: String,
}

impl Login {
    /// Returns the login of this node at another node of the same cluster.
    ///
    /// # Errors
    /// Fails when the cluster does not know that node's key; such a node must not be asked.
    pub fn of_node(place: &Place, cluster: &Cluster) -> Result<Login, String> {
        let fingerprint = Some(place.known_key()?);
        let (address, user) = (place.address.clone(), INTERNAL.to_owned());
        Ok(Login { address, fingerprint, user, password: cluster.secret.reveal().to_owned() })
    }
}

/// The response of a node.
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
    /// Fingerprint of the key that the node has presented.
    pub key: Fingerprint,
}

/// Sends requests to other nodes and waits for the responses. Must not be used on threads of an event loop.
#[derive(Clone, Copy)]
pub struct Caller<'a> {
    /// Runtime for the connections.
    pub runtime: &'a Handle,
    /// The key to present to other nodes.
    pub key: &'a NodeKey,
}

/// The variable parts of a request.
pub struct Call<'a> {
    /// Method.
    pub method: Method,
    /// Path.
    pub path: &'a str,
    /// Content type of the body.
    pub kind: &'static str,
    /// Body.
    pub body: &'a [u8],
    /// Timeout of the request.
    pub patience: Duration,
}

impl<'a> Call<'a> {
    /// Creates a GET request.
    pub fn get(path: &'a str, patience: Duration) -> Call<'a> {
        Call { method: Method::GET, path, kind: "application/json", body: b"", patience }
    }

    /// Creates a POST request with JSON.
    pub fn post(path: &'a str, body: &'a [u8], patience: Duration) -> Call<'a> {
        Call { method: Method::POST, path, kind: "application/json", body, patience }
    }

    /// Creates a POST request with form fields.
    pub fn form(path: &'a str, form: &'a str, patience: Duration) -> Call<'a> {
        let kind = "application/x-www-form-urlencoded";
        Call { method: Method::POST, path, kind, body: form.as_bytes(), patience }
    }
}

impl Caller<'_> {
    /// Sends a request to a node.
    ///
    /// # Errors
    /// The reason why the node has not answered, as a sentence.
    pub fn ask(&self, to: &Login, call: Call<'_>) -> Result<Answer, String> {
        let login = STANDARD.encode(format!("{}:{}", to.user, to.password));
        let request = Request::builder()
            .method(call.method)
            .uri(call.path)
            .header(HOST, &to.address)
            .header(AUTHORIZATION, format!("Basic {login}"))
            .header(CONTENT_TYPE, call.kind)
            .body(Full::new(Bytes::copy_from_slice(call.body)))
            .map_err(|error| error.to_string())?;
        self.runtime.block_on(async {
            let connecting = self.key.connect(&to.address, Purpose::Management, to.fingerprint);
            let connected = timeout(CONNECT_TIMEOUT, connecting).await;
            let (stream, key) = connected.map_err(|_| silent(&to.address))??;
            let answered = timeout(call.patience, exchange(stream, request, ANSWER_BYTES_MAX));
            let answered = answered.await.map_err(|_| silent(&to.address))?;
            let (status, body) = answered.map_err(|error| format!("{}: {error}", to.address))?;
            Ok(Answer { status, body, key })
        })
    }

    /// Asks the node at the management port `address`, without TLS, how to reach it. The response is not authenticated.
    ///
    /// # Errors
    /// Fails when there is no response; returns [`None`] for a response of another kind.
    pub fn introduction(&self, address: &str) -> Result<Option<Introduction>, String> {
        let request = Request::get(INTRODUCTION).header(HOST, address);
        let request = request.body(Full::default()).map_err(|error| error.to_string())?;
        self.runtime.block_on(async {
            let asking = async {
                let stream =
                    TcpStream::connect(address).await.map_err(|error| error.to_string())?;
                exchange(stream, request, INTRODUCTION_BYTES_MAX).await
            };
            let answered = timeout(CONNECT_TIMEOUT, asking).await;
            let (_, body) = answered.map_err(|_| silent(address))??;
            Ok(serde_json::from_slice(&body).ok())
        })
    }
}

fn silent(address: &str) -> String {
    format!("{address} does not answer")
}

/// Sends a request over its own connection. Returns status and body.
async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
    answer_bytes_max: usize,
) -> Result<(u16, Vec<u8>), String> {
    let failed = |error: hyper::Error| error.to_string();
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let answering = async move {
        let answer = sender.send_request(request).await.map_err(failed)?;
        let status = answer.status().as_u16();
        let body = Limited::new(answer.into_body(), answer_bytes_max).collect().await;
        let body = body.map_err(|error| error.to_string())?.to_bytes();
        Ok((status, body.to_vec()))
    };
    // `answering` reports a broken connection.
    let (answered, _) = tokio::join!(answering, connection);
    answered
}
