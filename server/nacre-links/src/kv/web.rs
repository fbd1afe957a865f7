//! Connections of devices: a WebSocket on the management port, whose binary messages carry the bytes of a session. Devices thus
//! pass proxies that allow only HTTP, and need only one port.
//!
//! ```text
//! GET /_sync/{bucket} ─► privileges ─► 101 ─► text: Hello ─► binary: frames of the key-value protocol, split anywhere
//! ```
//!
//! A separate thread serves them, with the loops and limits of `stream`. The session has the user of the request and
//! that user's privileges, which it checks again whenever they change.

use super::stream::{Buffers, ConnectionWaker, connection};
use super::{Door, LOGIN_TIMEOUT};
use crate::STACK_BYTES;
use crate::strangers::Permit;
use crate::vital::depend_on_this_thread;
use futures_util::{Sink, SinkExt, Stream};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use nacre_auth::Login;
use nacre_bucket::Waiter;
use nacre_bucket::kv::{Peer, Session};
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{self, Bytes, Message};

/// Maximum size of a message from a device, which may split frames anywhere.
const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Size of a message to a device.
const PIECE_BYTES: usize = 64 << 10;
/// Maximum bytes that wait for the socket; the session pauses above it.
const WRITE_BYTES_MAX: usize = 4 << 20;
/// Interval of checks whether the login is still valid.
const LOGIN_INTERVAL: Duration = Duration::from_secs(1);

/// A connection whose upgrade request was accepted.
pub struct Upgrade {
    /// Yields the connection once the response is sent.
    pub upgrade: OnUpgrade,
    /// The login of the request.
    pub login: Login,
    /// The address of the client.
    pub from: IpAddr,
    /// The connection's permit.
    pub permit: Permit,
    /// The first message.
    pub hello: String,
}

/// Passes connections to their thread.
#[derive(Clone)]
pub struct WebSessions {
    sender: mpsc::UnboundedSender<Upgrade>,
}

impl WebSessions {
    /// Starts the thread, which ends with the process.
    ///
    /// # Errors
    /// Fails when the thread cannot be started.
    pub fn start(door: &Arc<Door>) -> io::Result<WebSessions> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let door = Arc::clone(door);
        let thread = std::thread::Builder::new().name("kv-web".into()).stack_size(STACK_BYTES);
        thread.spawn(move || {
            depend_on_this_thread();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.expect("the machine has room for another event loop");
            tokio::task::LocalSet::new().block_on(&runtime, converse(door, receiver));
        })?;
        Ok(WebSessions { sender })
    }

    /// Serves a connection.
    pub fn serve(&self, upgrade: Upgrade) {
        // The thread lives as long as the process.
        let _ = self.sender.send(upgrade);
    }
}

async fn converse(door: Arc<Door>, mut accepted: mpsc::UnboundedReceiver<Upgrade>) {
    let buffers = Rc::new(Buffers::default());
    while let Some(next) = accepted.recv().await {
        let (door, buffers) = (Arc::clone(&door), Rc::clone(&buffers));
        tokio::task::spawn_local(async move {
            let (from, user) = (next.from, next.login.user.clone());
            if let Err(reason) = welcome(&door, next, &buffers).await {
                tracing::debug!("closed the session of {user}'s device at {from}: {reason}");
            }
        });
    }
}

async fn welcome(door: &Door, accepted: Upgrade, buffers: &Buffers) -> Result<(), String> {
    let Upgrade { upgrade, login, from, permit, hello } = accepted;
    let upgraded = tokio::time::timeout(LOGIN_TIMEOUT, upgrade).await;
    let Ok(Ok(upgraded)) = upgraded else { return Ok(()) };
    permit.admit();
    let limits = WebSocketConfig::default()
        .max_message_size(Some(MESSAGE_BYTES_MAX))
        .max_frame_size(Some(MESSAGE_BYTES_MAX))
        .write_buffer_size(PIECE_BYTES)
        .max_write_buffer_size(WRITE_BYTES_MAX);
    let stream = TokioIo::new(upgraded);
    let mut socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(limits)).await;
    if socket.send(Message::text(hello)).await.is_err() {
        return Ok(());
    }
    let waker = Arc::new(ConnectionWaker::default());
    let peer = Peer {
        // No password is sent over this connection: the login is that of the request.
        confidential: false,
        user: Some(login.user.clone()),
        is_node: false,
        address: Some(from),
    };
    let session =
        Session::new(Arc::clone(&door.node) as _, peer, Arc::clone(&waker) as Arc<dyn Waiter>);
    let pipe = Pipe { socket, input: Bytes::new() };
    tokio::select! {
        ended = connection(session, pipe, buffers, &waker, &permit) => ended,
        () = end_of(door, &login) => Err("the login is no longer valid".into()),
    }
}

/// Completes when a login is no longer valid: the user was deleted, or has another password.
async fn end_of(door: &Door, login: &Login) {
    while door.node.users().holder(login).is_some() {
        tokio::time::sleep(LOGIN_INTERVAL).await;
    }
}

/// The binary messages of a WebSocket as a byte stream.
struct Pipe<S> {
    socket: WebSocketStream<S>,
    /// The unread rest of a message.
    input: Bytes,
}

fn failed(error: tungstenite::Error) -> io::Error {
    match error {
        tungstenite::Error::Io(error) => error,
        error => io::Error::new(io::ErrorKind::InvalidData, error),
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Pipe<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.input.is_empty() {
            match ready!(Pin::new(&mut self.socket).poll_next(context)) {
                Some(Ok(Message::Binary(bytes))) => self.input = bytes,
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                Some(Ok(Message::Text(_))) => {
                    let reason = "a session has binary messages only";
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, reason)));
                }
                Some(Ok(Message::Close(_))) | None => return Poll::Ready(Ok(())),
                Some(Err(error)) => return Poll::Ready(Err(failed(error))),
            }
        }
        let length = self.input.len().min(into.remaining());
        into.put_slice(&self.input.split_to(length));
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Pipe<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut socket = Pin::new(&mut self.socket);
        ready!(socket.as_mut().poll_ready(context)).map_err(failed)?;
        let piece = &bytes[..bytes.len().min(PIECE_BYTES)];
        let message = Message::Binary(Bytes::copy_from_slice(piece));
        socket.start_send(message).map_err(failed)?;
        Poll::Ready(Ok(piece.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context).map_err(failed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_close(context).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn messages_are_a_stream_of_bytes() {
        let (far, near) = tokio::io::duplex(100);
        let mut client = WebSocketStream::from_raw_socket(far, Role::Client, None).await;
        let socket = WebSocketStream::from_raw_socket(near, Role::Server, None).await;
        let mut pipe = Pipe { socket, input: Bytes::new() };
        let client = tokio::spawn(async move {
            for bytes in [&b"ab"[..], b"", b"cdef"] {
                client.send(Message::Binary(Bytes::copy_from_slice(bytes))).await.unwrap();
                client.send(Message::Ping(Bytes::new())).await.unwrap();
            }
            let mut heard = Vec::new();
            while heard.len() < 300 {
                match futures_util::StreamExt::next(&mut client).await.unwrap().unwrap() {
                    Message::Binary(bytes) => heard.extend_from_slice(&bytes),
                    Message::Pong(_) => {}
                    other => panic!("{other:?}"),
                }
            }
            client.send(Message::text("?")).await.unwrap();
            heard
        });
        let mut read = [0; 6];
        pipe.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"abcdef");
        pipe.write_all(&[7; 300]).await.unwrap();
        pipe.flush().await.unwrap();
        let refused = pipe.read(&mut read).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
        assert_eq!(client.await.unwrap(), [7; 300]);
    }
}
