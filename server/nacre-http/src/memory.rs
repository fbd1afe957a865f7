//! Bodies of requests and answers, and the node's memory that they occupy.

use super::body::{Reply, error_reply};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::StatusCode;
use hyper::body::{Body, Incoming};
use hyper::header::{HeaderValue, RETRY_AFTER};
use nacre_budget::{Account, Exceeded, Permit, Purpose};
use std::sync::Arc;
use std::time::Duration;

/// Timeout of reading a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest pause while a body arrives.
const SILENCE_MAX: Duration = Duration::from_secs(20);

/// Returns the answer to a request for which the node has no memory.
pub fn no_memory(why: &Exceeded) -> Reply {
    try_again(error_reply(StatusCode::SERVICE_UNAVAILABLE, "no_memory", &why.to_string()))
}

/// Adds the header that tells the client to retry soon.
pub fn try_again(mut reply: Reply) -> Reply {
    reply.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    reply
}

/// Reads a whole body of at most `bytes_max` bytes, and charges the account as the bytes arrive.
///
/// # Errors
/// 413 for a body that announces or contains more bytes, 408 for a body that arrives too slowly, 503 if there is no
/// memory for it.
pub async fn read_body(
    incoming: Incoming,
    account: &Arc<Account>,
    bytes_max: usize,
) -> Result<(Vec<u8>, Permit), Reply> {
    if incoming.size_hint().lower() > bytes_max as u64 {
        return Err(too_large(format!("a body may have {bytes_max} bytes")));
    }
    let late = |after: Duration| {
        let reason = format!("the body did not arrive within {after:?}");
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

/// A piece of an answer, and the permit for its memory.
struct Charged {
    piece: Vec<u8>,
    _permit: Permit,
}

impl AsRef<[u8]> for Charged {
    fn as_ref(&self) -> &[u8] {
        &self.piece
    }
}

/// Charges an account for a piece of an answer until the piece is sent.
pub fn charged(account: &Arc<Account>, piece: Vec<u8>) -> Bytes {
    let mut permit = account.permit(Purpose::Answer);
    // The piece already exists, so it is charged even above the limit.
    permit.set(piece.len());
    Bytes::from_owner(Charged { piece, _permit: permit })
}
