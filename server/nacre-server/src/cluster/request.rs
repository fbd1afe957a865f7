//! Requests of one node to another: HTTP within a connection in which both have shown their keys.

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

/// How long a node may take to let itself be connected to.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The largest answer of another node: a package.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// The largest answer of whoever has not shown a key.
const INTRODUCTION_BYTES_MAX: usize = 4 << 10;
/// Where a node says to whoever asks how other nodes reach it.
pub const INTRODUCTION: &str = "/_nacre/node";

/// How a node is reached by others, as it says without being asked for a login.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Introduction {
    /// [`VERSION`](super::membership::VERSION) of that node.
    pub version: u32,
    /// The port of its management with TLS.
    pub port: u16,
    /// Of its key. Who asks without TLS must not believe it.
    pub fingerprint: Fingerprint,
}

/// A node that is asked, and by whom.
#[derive(Clone)]
pub struct Login {
    /// `host:port` of its management with TLS.
    pub address: String,
    /// Of its key, if that is known.
    pub fingerprint: Option<Fingerprint>,
    /// User there.
    pub user: String,
    /// Password.
    pub password: String,
}

impl Login {
    /// A node of the same cluster, asked by this one.
    ///
    /// # Errors
    /// When the cluster does not know its key: such a node is asked nothing.
    pub fn of_node(place: &Place, cluster: &Cluster) -> Result<Login, String> {
        let fingerprint = Some(place.known_key()?);
        let (address, user) = (place.address.clone(), INTERNAL.to_owned());
        Ok(Login { address, fingerprint, user, password: cluster.secret.reveal().to_owned() })
    }
}

/// What a node answers.
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// Its body.
    pub body: Vec<u8>,
    /// Of the key that the node has shown.
    pub key: Fingerprint,
}

/// Sends requests to other nodes, and waits for the answers. Not for threads of an event loop.
#[derive(Clone, Copy)]
pub struct Caller<'a> {
    /// Where connections are looked after.
    pub runtime: &'a Handle,
    /// What other nodes are shown.
    pub key: &'a NodeKey,
}

/// A request without what is the same in all.
pub struct Call<'a> {
    /// Method.
    pub method: Method,
    /// Path.
    pub path: &'a str,
    /// Type of the body.
    pub kind: &'static str,
    /// Body.
    pub body: &'a [u8],
    /// How long the node may take.
    pub patience: Duration,
}

impl<'a> Call<'a> {
    /// A question.
    pub fn get(path: &'a str, patience: Duration) -> Call<'a> {
        Call { method: Method::GET, path, kind: "application/json", body: b"", patience }
    }

    /// A request with JSON.
    pub fn post(path: &'a str, body: &'a [u8], patience: Duration) -> Call<'a> {
        Call { method: Method::POST, path, kind: "application/json", body, patience }
    }

    /// A request with the fields of a form.
    pub fn form(path: &'a str, form: &'a str, patience: Duration) -> Call<'a> {
        let kind = "application/x-www-form-urlencoded";
        Call { method: Method::POST, path, kind, body: form.as_bytes(), patience }
    }
}

impl Caller<'_> {
    /// Asks a node.
    ///
    /// # Errors
    /// Why it has not answered, for people.
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

    /// Asks the node whose management is at `address` without TLS how others reach it. What comes may be of anybody.
    ///
    /// # Errors
    /// That it has not answered; an answer of something else is [`None`].
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

/// Sends a request over a connection of its own; gives status and body.
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
    // A connection that breaks, the answer tells of.
    let (answered, _) = tokio::join!(answering, connection);
    answered
}
