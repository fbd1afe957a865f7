//! Bodies of requests and answers, as they take the node's memory for them.

use super::body::{Reply, error_reply};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::StatusCode;
use hyper::body::{Body, Incoming};
use hyper::header::{HeaderValue, RETRY_AFTER};
use nacre_budget::{Account, Exceeded, Permit, Purpose};
use std::sync::Arc;
use std::time::Duration;

/// Longest time of a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest pause within a body.
const SILENCE_MAX: Duration = Duration::from_secs(20);

/// The answer to a request for which there is no memory.
pub fn no_memory(why: &Exceeded) -> Reply {
    try_again(error_reply(StatusCode::SERVICE_UNAVAILABLE, "no_memory", &why.to_string()))
}

/// Adds the advice to repeat the request soon.
pub fn try_again(mut reply: Reply) -> Reply {
    reply.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    reply
}

/// Reads a whole body of at most `bytes_max` bytes, which are taken from the account as they come.
///
/// # Errors
/// 413 for a body that announces or has more, 408 for one that comes too slowly, 503 without memory for it.
pub async fn read_body(
    incoming: Incoming,
    account: &Arc<Account>,
    bytes_max: usize,
) -> Result<(Vec<u8>, Permit), Reply> {
    if incoming.size_hint().lower() > bytes_max as u64 {
        return Err(too_large(format!("a body may have {bytes_max} bytes")));
    }
    let late = |after: Duration| {
        let reason = format!("the body did not come within {after:?}");
        error_reply(StatusCode::REQUEST_TIMEOUT, "timeout", &reason)
    };
    let read = tokio::time::timeout(BODY_TIMEOUT, read(incoming, account, bytes_max, late));
    read.await.unwrap_or_else(|_| Err(late(BODY_TIMEOUT)))
}

fn too_large(reason: String) -> Reply {
    error_reply(StatusCode::PAYLOAD_TOO_LARGE, "too_large", &reason)
}

async fn read(
    mut incoming: Incoming,
    account: &Arc<Account>,
    bytes_max: usize,
    late: impl Fn(Duration) -> Reply,
) -> Result<(Vec<u8>, Permit), Reply> {
    let (mut body, mut permit) = (Vec::new(), account.permit(Purpose::Request));
    loop {
        let next = tokio::time::timeout(SILENCE_MAX, incoming.frame()).await;
        let frame = match next.map_err(|_| late(SILENCE_MAX))? {
            None => return Ok((body, permit)),
            Some(Err(error)) => return Err(too_large(format!("the body cannot be read: {error}"))),
            Some(Ok(frame)) => frame,
        };
        let Ok(piece) = frame.into_data() else { continue };
        if body.len() + piece.len() > bytes_max {
            return Err(too_large(format!("a body may have {bytes_max} bytes")));
        }
        permit.grow(piece.len()).map_err(|why| no_memory(&why))?;
        body.extend_from_slice(&piece);
    }
}

/// A piece of an answer, with its memory.
struct Charged {
    piece: Vec<u8>,
    _permit: Permit,
}

impl AsRef<[u8]> for Charged {
    fn as_ref(&self) -> &[u8] {
        &self.piece
    }
}

/// A piece of an answer that takes memory of an account until it is sent.
pub fn charged(account: &Arc<Account>, piece: Vec<u8>) -> Bytes {
    let mut permit = account.permit(Purpose::Answer);
    // The piece has arrived in full.
    permit.set(piece.len());
    Bytes::from_owner(Charged { piece, _permit: permit })
}
