//! Opens connections between nodes: an HTTP request to the management port with TLS becomes a stream of frames.
//!
//! ```text
//! both present their keys     ──►  403 for a node that presents none
//! GET /_nacre/link                 401 without the cluster's secret
//! Upgrade: nacre/2                 403 from another cluster, from a node that was removed, or with the key of another
//! Nacre-Cluster: <uuid>            421 if it is for another node
//! Nacre-From: <id> <uuid>
//! Nacre-To: <id>                   426 for another protocol
//! Nacre-At: <host:port>
//! Nacre-Lane: <purpose>      ◄──  101, then frames
//! ```

use super::consensus::Consensus;
use super::directory::Directory;
use super::frame::{self, Frame, Kind};
use super::request::Login;
use crate::tls::{Purpose, Shown, Socket};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONNECTION, HOST, HeaderName, UPGRADE};
use hyper::upgrade::Upgraded;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use nacre_auth::INTERNAL;
use nacre_cluster::Address;
use nacre_http::body::{Reply, basic, error_reply, no_node, reply, unauthorized};
use nacre_http::linger::Lingering;
use nacre_http::patient::Patient;
use nacre_http::request_target::Lenient;
use nacre_types::NodeId;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::sync::mpsc;
use tokio_rustls::server;

/// Path of connections between nodes.
pub const PATH: &str = "/_nacre/link";
/// Protocol of the frames. Nodes with different versions cannot connect.
const PROTOCOL: &str = "nacre/2";
const CLUSTER: &str = "nacre-cluster";
const FROM: &str = "nacre-from";
const TO: &str = "nacre-to";
const AT: &str = "nacre-at";
const LANE: &str = "nacre-lane";
/// Silence after which a connection counts as dead: its node sends a sign of life every second.
const SILENCE_MAX: Duration = Duration::from_secs(15);
/// Purpose of a connection. Each has separate threads on both sides, so that large answers do not delay heartbeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Raft and messages.
    Agreement,
    /// Questions about vBuckets that the other node serves.
    Questions,
}

impl Lane {
    fn name(self) -> &'static str {
        match self {
            Lane::Agreement => "agreement",
            Lane::Questions => "questions",
        }
    }

    /// Maximum number of concurrent requests per connection.
    fn requests_max(self) -> usize {
        match self {
            Lane::Agreement => 64,
            // Most of them wait.
            Lane::Questions => 512,
        }
    }
}

/// Connects to another node of the cluster at its currently known address.
///
/// # Errors
/// The reason of the failure, as a sentence.
pub async fn connect(
    directory: &Directory,
    to: NodeId,
    lane: Lane,
) -> Result<TokioIo<Upgraded>, String> {
    let node = directory.node();
    let cluster = node.cluster();
    let place = directory.place(to).ok_or("it is not in the cluster")?;
    let Login { address, fingerprint, user, password } = Login::of_node(&place, &cluster)?;
    let (stream, _) = directory.key().connect(&address, Purpose::Management, fingerprint).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| format!("{address}: {error}"))?;
    tokio::spawn(connection.with_upgrades());
    // A new node has an old state at first, which lacks its own address.
    let endpoints = node.endpoints();
    let at = endpoints.host.as_ref().and_then(|_| endpoints.internal()).unwrap_or_default();
    let login = STANDARD.encode(format!("{user}:{password}"));
    let request = Request::get(PATH)
        .header(HOST, &address)
        .header(CONNECTION, "upgrade")
        .header(UPGRADE, PROTOCOL)
        .header(AUTHORIZATION, format!("Basic {login}"))
        .header(CLUSTER, &cluster.uuid)
        .header(FROM, format!("{} {}", node.id().0, node.uuid()))
        .header(TO, to.0.to_string())
        .header(AT, at)
        .header(LANE, lane.name())
        .body(Empty::<Bytes>::new())
        .map_err(|error| error.to_string())?;
    let answer =
        sender.send_request(request).await.map_err(|error| format!("{address}: {error}"))?;
    match answer.status() {
        StatusCode::SWITCHING_PROTOCOLS => {}
        StatusCode::UNAUTHORIZED => {
            return Err(format!("{address} does not know the cluster's secret"));
        }
        StatusCode::FORBIDDEN => {
            return Err(format!(
                "{address} belongs to another cluster, or this node was removed from it, or its key has changed"
            ));
        }
        StatusCode::MISDIRECTED_REQUEST => return Err(format!("{address} is another node")),
        other => return Err(format!("{address} answers {other}")),
    }
    let upgraded = hyper::upgrade::on(answer).await;
    upgraded.map(TokioIo::new).map_err(|error| format!("{address}: {error}"))
}

/// An encrypted connection of the management port.
type Encrypted = Lenient<Lingering<Patient<server::TlsStream<Socket>>>>;

/// Accepts a connection of another node, which has `shown` its key. Returns the response to its request, after which frames
/// are served.
pub async fn accept(
    consensus: &Arc<Consensus>,
    shown: &Shown,
    request: Request<Incoming>,
) -> Reply {
    let from = match check(consensus, shown, &request).await {
        Ok(from) => from,
        Err(refusal) => return refusal,
    };
    let consensus = Arc::clone(consensus);
    let lane = request.headers().get(LANE).map(|lane| lane.as_bytes());
    let lane = match lane == Some(Lane::Questions.name().as_bytes()) {
        true => Lane::Questions,
        false => Lane::Agreement,
    };
    consensus.peers(lane).found(from);
    consensus.runtime(lane).clone().spawn(async move {
        let Ok(upgraded) = hyper::upgrade::on(request).await else { return };
        let parts = upgraded.downcast::<TokioIo<Encrypted>>();
        let parts = parts.expect("a connection with a key has TLS");
        let mut stream = parts.io.into_inner();
        // Move the socket to this runtime, so that requests on the previous runtime do not delay it.
        let tls = stream.get_mut().get_mut().get_mut();
        if tls.get_mut().0.move_here().is_err() {
            return;
        }
        let (reader, writer) = tokio::io::split(stream);
        let begun = std::io::Cursor::new(parts.read_buf).chain(reader);
        serve(&consensus, (from, lane), begun, writer).await;
    });
    let mut reply = reply(StatusCode::SWITCHING_PROTOCOLS, "", "");
    let headers = reply.headers_mut();
    headers.clear();
    headers.insert(CONNECTION, hyper::header::HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, hyper::header::HeaderValue::from_static(PROTOCOL));
    reply
}

/// Returns the requesting node if it is authorised.
async fn check(
    consensus: &Arc<Consensus>,
    shown: &Shown,
    request: &Request<Incoming>,
) -> Result<NodeId, Reply> {
    let key = shown.key.ok_or_else(no_node)?;
    let text = |name: HeaderName| {
        request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    };
    let login = basic(text(AUTHORIZATION).as_bytes()).filter(|(name, _)| name == INTERNAL);
    let (name, password) = login.ok_or_else(unauthorized)?;
    // The nodes' secret is not stretched: this takes microseconds.
    if consensus.node().users().verify(&name, &password).is_none() {
        return Err(unauthorized());
    }
    let refused = |status, reason: &str| Err(error_reply(status, "refused", reason));
    let node = consensus.node();
    let cluster = node.cluster();
    if text(HeaderName::from_static(CLUSTER)) != cluster.uuid {
        return refused(StatusCode::FORBIDDEN, "this node belongs to another cluster");
    }
    if text(UPGRADE) != PROTOCOL {
        return refused(StatusCode::UPGRADE_REQUIRED, "this node speaks another protocol");
    }
    let from = text(HeaderName::from_static(FROM)).split_once(' ');
    let from = from.and_then(|(id, uuid)| Some((NodeId(id.parse().ok()?), uuid)));
    let known = |(id, uuid): &(NodeId, &str)| {
        consensus.directory().place(*id).is_some_and(|place| place.uuid == *uuid)
    };
    let Some((from, _)) = from.filter(known) else {
        return refused(StatusCode::FORBIDDEN, "there is no such node in the cluster");
    };
    let place = consensus.directory().place(from);
    if place.and_then(|place| place.fingerprint) != Some(key) {
        return refused(StatusCode::FORBIDDEN, "that node has another key");
    }
    if text(HeaderName::from_static(TO)) != node.id().0.to_string() {
        return refused(StatusCode::MISDIRECTED_REQUEST, "this is another node");
    }
    let at = text(HeaderName::from_static(AT));
    if Address::parse(at).is_ok() {
        consensus.directory().set_address(from, at);
    }
    Ok(from)
}

/// Serves the frames of a node until its connection ends, or one of the two nodes changes its cluster.
async fn serve(
    consensus: &Arc<Consensus>,
    (from, lane): (NodeId, Lane),
    mut reader: impl AsyncRead + Unpin,
    mut writer: impl AsyncWrite + Unpin + Send + 'static,
) {
    let uuid = consensus.node().cluster().uuid.clone();
    let (answers, mut answered) = mpsc::channel::<Frame>(lane.requests_max());
    let writing = tokio::spawn(async move {
        while let Some(frame) = answered.recv().await {
            if frame::write(&mut writer, &frame).await.is_err() {
                return;
            }
        }
    });
    let room = Arc::new(tokio::sync::Semaphore::new(lane.requests_max()));
    loop {
        let frame = match tokio::time::timeout(SILENCE_MAX, frame::read(&mut reader)).await {
            Ok(Ok(Some(frame))) => frame,
            Ok(Ok(None)) | Err(_) => break,
            Ok(Err(error)) => {
                tracing::warn!("the connection of {from} broke: {error}");
                break;
            }
        };
        let is_member = consensus.directory().place(from).is_some();
        if consensus.node().cluster().uuid != uuid || !is_member || writing.is_finished() {
            break;
        }
        if frame.kind == Kind::Message {
            consensus.receive(from, frame.payload);
            continue;
        }
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { break };
        let (consensus, answers) = (Arc::clone(consensus), answers.clone());
        tokio::spawn(async move {
            let (kind, payload) = match consensus.answer(frame.kind, frame.payload).await {
                Ok(payload) => (Kind::Answer, payload),
                Err(reason) => (Kind::Failure, reason.into_bytes()),
            };
            let _ = answers.send(Frame { kind, id: frame.id, payload }).await;
            drop(permit);
        });
    }
    writing.abort();
}
