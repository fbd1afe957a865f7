//! Answers of plugins as replies: whole, or piece by piece as fast as the client takes them.

use super::body::{Reply, blocking, error_reply, reply};
use super::origin::is_reserved;
use super::pieces::pieces;
use http_body_util::BodyExt;
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, HeaderName, HeaderValue, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use hyper::{HeaderMap, StatusCode};
use nacre_node::plugins::{self, Missing, Terms};
use nacre_node::{Node, query};
use nacre_plugin_host::{Header, Request};
use std::sync::Arc;
use tokio::runtime::Handle;

/// An answer that comes in pieces.
pub(super) trait Pieces: Send + 'static {
    /// The status, and the headers.
    fn head(&self) -> (u16, &[Header]);

    /// The next piece; none after the last.
    fn next_piece(&mut self) -> Result<Option<Vec<u8>>, String>;
}

impl Pieces for plugins::Reply {
    fn head(&self) -> (u16, &[Header]) {
        plugins::Reply::head(self)
    }

    fn next_piece(&mut self) -> Result<Option<Vec<u8>>, String> {
        plugins::Reply::next_piece(self)
    }
}

impl Pieces for query::Answer {
    fn head(&self) -> (u16, &[Header]) {
        (self.status, &self.headers)
    }

    fn next_piece(&mut self) -> Result<Option<Vec<u8>>, String> {
        Ok(query::Answer::next_piece(self))
    }
}

/// Has a deployment answer a request, away from the threads that serve others.
///
/// # Errors
/// A reply of the kind `failure` when there is no answer, with the status `stopped` when the deployment does not run. One
/// that breaks off later breaks off the body.
pub(super) async fn answered(
    node: &Arc<Node>,
    name: &str,
    request: Request,
    terms: Terms,
    (failure, stopped): (&str, StatusCode),
) -> Result<Reply, Reply> {
    let (node, name) = (Arc::clone(node), name.to_owned());
    let ask = move || node.plugins().request(&node, &name, &request, &terms);
    let answer = blocking("the request", ask).await?;
    let answer = answer.map_err(|missing| unanswered(&missing, (failure, stopped)))?;
    sent(failure, move || Ok(answer)).await
}

/// Why a deployment does not answer: of the kind `failure`, with the status `stopped` when it does not run.
pub(super) fn unanswered(missing: &Missing, (failure, stopped): (&str, StatusCode)) -> Reply {
    let (status, error) = match missing {
        Missing::Elsewhere | Missing::NotYet(_) => (StatusCode::SERVICE_UNAVAILABLE, "not_ready"),
        Missing::Stopped(_) => (stopped, failure),
        Missing::Late => (StatusCode::GATEWAY_TIMEOUT, "timeout"),
        Missing::Failed(_) => (StatusCode::INTERNAL_SERVER_ERROR, failure),
    };
    error_reply(status, error, &missing.to_string())
}

/// Begins an answer away from the threads that serve others, and sends it.
///
/// # Errors
/// As for [`answered`].
pub(super) async fn sent<A: Pieces>(
    failure: &str,
    answer: impl FnOnce() -> Result<A, String> + Send + 'static,
) -> Result<Reply, Reply> {
    let begin = move || {
        let mut answer = answer()?;
        let (first, second) = (answer.next_piece()?.unwrap_or_default(), answer.next_piece()?);
        Ok((answer, first, second))
    };
    let (answer, first, second) =
        blocking("the request", begin).await?.map_err(|reason: String| {
            error_reply(StatusCode::INTERNAL_SERVER_ERROR, failure, &reason)
        })?;
    let (status, headers) = head_of(answer.head())
        .map_err(|reason| error_reply(StatusCode::INTERNAL_SERVER_ERROR, failure, &reason))?;
    let mut reply = match second {
        None => reply(status, "application/octet-stream", first),
        Some(second) => streamed(answer, [first, second]),
    };
    *reply.status_mut() = status;
    reply.headers_mut().extend(headers);
    Ok(reply)
}

/// The status of an answer, and its headers without those that the server sets, whatever a plugin says.
///
/// # Errors
/// Which of them is none, for the author of the plugin.
fn head_of((status, given): (u16, &[Header])) -> Result<(StatusCode, HeaderMap), String> {
    // What is below announces another answer.
    let known = StatusCode::from_u16(status).ok().filter(|_| (200..600).contains(&status));
    let status =
        known.ok_or_else(|| format!("the answer has the status {status}, not 200 to 599"))?;
    let of_the_connection = [CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING, TRAILER, UPGRADE];
    let header = |(name, value): &(String, String)| {
        let known = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| format!("the answer has a header whose name is none: {name:?}"))?;
        let value = HeaderValue::from_str(value)
            .map_err(|_| format!("the header {name:?} of the answer has a value that is none"))?;
        Ok((known, value))
    };
    let headers: Result<HeaderMap, String> = given.iter().map(header).collect();
    let mut headers = headers?;
    of_the_connection.iter().for_each(|name| drop(headers.remove(name)));
    let reserved = headers.keys().filter(|name| is_reserved(name.as_str()));
    let reserved: Vec<HeaderName> = reserved.cloned().collect();
    reserved.iter().for_each(|name| drop(headers.remove(name)));
    Ok((status, headers))
}

/// An answer that goes out piece by piece, as fast as the client takes them.
fn streamed(mut answer: impl Pieces, begun: [Vec<u8>; 2]) -> Reply {
    let (sender, body) = pieces();
    let runtime = Handle::current();
    tokio::task::spawn_blocking(move || {
        // Fails when nobody is left to read the rest.
        let send = |piece: Vec<u8>| runtime.block_on(sender.send(piece));
        if !begun.into_iter().all(send) {
            return;
        }
        loop {
            match answer.next_piece() {
                Ok(Some(piece)) => {
                    if !send(piece) {
                        return;
                    }
                }
                Ok(None) => return sender.finish(),
                Err(error) => return tracing::warn!("an answer breaks off: {error}"),
            }
        }
    });
    Reply::new(body.boxed())
}

#[cfg(test)]
mod tests {
    use super::head_of;

    #[test]
    fn a_status_that_ends_no_request_is_named() {
        for status in [0, 42, 100, 101, 199, 600, 1000, u16::MAX] {
            let reason = head_of((status, &[])).unwrap_err();
            assert_eq!(reason, format!("the answer has the status {status}, not 200 to 599"));
        }
        for status in [200, 204, 404, 599] {
            assert_eq!(head_of((status, &[])).unwrap().0.as_u16(), status);
        }
    }
}
