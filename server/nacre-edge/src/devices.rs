//! Devices that sync with the gateway: `GET /_sync/default` becomes a session of the database, as on a node.
//!
//! ```text
//! 101 ─► text: Hello ─► binary: frames of the key-value protocol, cut anywhere
//! ```
//!
//! A gateway with an upstream refuses devices: their versions arrive with their history, so they would count as in step and
//! not be sent on.

use crate::access::Caller;
use crate::door::Call;
use crate::gateway::Gateway;
use futures_util::{SinkExt, StreamExt};
use hyper::StatusCode;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use nacre_auth::Privilege;
use nacre_http::body::{Reply, error_reply};
use nacre_http::strangers::Permit;
use nacre_http::streams::STALLED_MAX;
use nacre_http::{Caller as _, websocket};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::block_in_place;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Bytes, Message};

/// Maximum bytes of a message from a device. Messages may split frames anywhere.
const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Maximum bytes of a message to a device.
const PIECE_BYTES: usize = 64 << 10;
/// Time limit for the upgrade of a connection.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(20);
/// Interval of checks that the login is still valid.
const LOGIN_INTERVAL: Duration = Duration::from_secs(1);

fn refused(status: StatusCode, code: &str, reason: &str) -> Result<Reply, Reply> {
    Err(error_reply(status, code, reason))
}

pub(crate) fn accept(mut call: Call) -> Result<Reply, Reply> {
    call.require(Privilege::AdministerCluster, None)?;
    if call.caller.is_token() {
        let reason = "a device logs in with name and password";
        return refused(StatusCode::FORBIDDEN, "forbidden", reason);
    }
    if call.gateway.has_upstream() {
        let reason = "this gateway syncs with a cluster and is not a hub: sync with that cluster";
        return refused(StatusCode::CONFLICT, "has_upstream", reason);
    }
    let reply = websocket::accept(&call.headers, nacre::SYNC_PROTOCOL)?;
    let Some(upgrade) = call.upgrade.take() else {
        return refused(StatusCode::BAD_REQUEST, "bad_request", "this connection cannot change");
    };
    let Some(permit) = call.gateway.connections.enter(call.from, 1) else {
        let reason = "there are too many connections: try again later";
        return refused(StatusCode::SERVICE_UNAVAILABLE, "busy", reason);
    };
    if let Err(error) = call.gateway.become_hub() {
        return refused(StatusCode::INTERNAL_SERVER_ERROR, "failed", &error.to_string());
    }
    let (gateway, caller) = (Arc::clone(&call.gateway), call.caller.clone());
    tokio::spawn(async move {
        permit.admit();
        tokio::select! {
            () = converse(&gateway, upgrade, permit) => {}
            () = end_of(&gateway, &caller) => {}
            () = gateway.stopped() => {}
        }
    });
    Ok(reply)
}

/// Returns once a login is no longer valid.
async fn end_of(gateway: &Gateway, caller: &Caller) {
    while gateway.access.holds(caller) {
        tokio::time::sleep(LOGIN_INTERVAL).await;
    }
}

/// Serves a device until either side ends the connection.
async fn converse(gateway: &Gateway, upgrade: OnUpgrade, _permit: Permit) {
    let upgraded = tokio::time::timeout(UPGRADE_TIMEOUT, upgrade).await;
    let Ok(Ok(upgraded)) = upgraded else { return };
    let limits = WebSocketConfig::default()
        .max_message_size(Some(MESSAGE_BYTES_MAX))
        .max_frame_size(Some(MESSAGE_BYTES_MAX))
        .write_buffer_size(PIECE_BYTES);
    let stream = TokioIo::new(upgraded);
    let mut socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(limits)).await;
    let Ok(hello) = serde_json::to_string(&gateway.db.hello()) else { return };
    if socket.send(Message::text(hello)).await.is_err() {
        return;
    }
    let bell = Arc::new(Notify::new());
    let rung = Arc::clone(&bell);
    let Ok(mut session) = gateway.db.session(move || rung.notify_one()) else { return };
    let mut output = Vec::new();
    loop {
        let ended = tokio::select! {
            message = socket.next() => match message {
                // With `always`, the session stores before it answers.
                Some(Ok(Message::Binary(bytes))) => {
                    block_in_place(|| session.receive(&bytes, &mut output)).is_err()
                }
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => false,
                Some(Ok(Message::Text(_) | Message::Close(_)) | Err(_)) | None => true,
            },
            () = bell.notified() => block_in_place(|| session.poll(&mut output)).is_err(),
        };
        for piece in output.chunks(PIECE_BYTES) {
            let message = Message::Binary(Bytes::copy_from_slice(piece));
            let sent = tokio::time::timeout(STALLED_MAX, socket.send(message)).await;
            let Ok(Ok(())) = sent else { return };
        }
        output.clear();
        if ended {
            let _ = tokio::time::timeout(STALLED_MAX, socket.close(None)).await;
            return;
        }
    }
}
