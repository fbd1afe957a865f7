//! Converts answers of plugins and queries into HTTP replies: whole, or piece by piece at the pace of the client.

use super::body::{Reply, blocking, blocking_on, error_reply, reply, unauthorized};
use super::memory::{charged, try_again};
use super::origin::is_reserved;
use super::pieces::{Sender, pieces};
use super::streams::{Kind, Place, STALLED_MAX, Streams};
use http_body_util::BodyExt;
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, HeaderName, HeaderValue, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use hyper::{HeaderMap, StatusCode};
use nacre_auth::{Keyspace, Login, Privilege};
use nacre_node::Node;
use nacre_plugins_service::{self as plugins, Missing, Pause, Terms};
use nacre_query_service as query;
use nacre_sandbox::{Account, Header, Request};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// An answer that the node produces in pieces.
pub(super) trait Pieces: Send + 'static {
    /// Returns the status and the headers.
    fn head(&self) -> (u16, &[Header]);

    /// Returns the next piece, or `None` after the last.
    fn next_piece(&mut self) -> Result<Option<Vec<u8>>, String>;

    /// Returns the pause that is due before the next piece, if there is one, and forgets it.
    fn take_pause(&mut self) -> Option<Pause> {
        None
    }

    /// Returns true if a pause is due before the next piece.
    fn is_held(&self) -> bool {
        false
    }

    /// Returns the time left for the rest of the answer, including the wait for the client, if the request sets a
    /// limit.
    fn time_left(&self) -> Option<Duration> {
        None
    }
}

impl Pieces for plugins::Reply {
    fn head(&self) -> (u16, &[Header]) {
        plugins::Reply::head(self)
    }

    fn next_piece(&mut self) -> Result<Option<Vec<u8>>, String> {
        plugins::Reply::next_piece(self)
    }

    fn take_pause(&mut self) -> Option<Pause> {
        plugins::Reply::take_pause(self)
    }

    fn is_held(&self) -> bool {
        plugins::Reply::is_held(self)
    }
}

impl Pieces for query::Answer {
    fn head(&self) -> (u16, &[Header]) {
        (self.status, &self.headers)
    }

    fn next_piece(&mut self) -> Result<Option<Vec<u8>>, String> {
        Ok(query::Answer::next_piece(self))
    }

    fn time_left(&self) -> Option<Duration> {
        query::Answer::time_left(self)
    }
}

/// Pause between a change and the next piece of an answer that waits for changes, so that one piece reports changes that
/// arrive together.
const MOVED_PAUSE: Duration = Duration::from_millis(10);

/// Minimum rate at which a client must read an answer, in bytes per second.
const SLOWEST_BYTES_PER_SECOND: u64 = 16 << 10;

/// The threads and limits for the answers to a user.
#[derive(Clone)]
pub(super) struct Desk {
    /// Threads that wait for plugins and queries. Management requests and logins use other threads.
    pub threads: Handle,
    pub streams: Arc<Streams>,
    pub user: String,
    pub address: IpAddr,
    /// Account that is charged for the memory of answers.
    pub account: Arc<Account>,
    /// The user who receives the answers, whose access is checked again before each answer is sent.
    pub reader: Reader,
}

/// A user who receives an answer, and the access that the answer requires.
#[derive(Clone)]
pub(super) struct Reader {
    pub node: Arc<Node>,
    /// The login of the request; `None` on a node that has no administrator yet.
    pub login: Option<Login>,
    /// A privilege on a bucket. Without a privilege, a valid login is enough.
    pub right: Option<(Privilege, String)>,
}

impl Reader {
    /// Returns true as long as the login is valid and the user has the privilege.
    pub(super) fn counts(&self) -> bool {
        let Some(login) = &self.login else { return true };
        let users = self.node.users();
        users.holder(login).is_some_and(|user| {
            self.right.as_ref().is_none_or(|(privilege, bucket)| {
                user.may(*privilege, Keyspace { bucket: Some(bucket), ..Keyspace::default() })
            })
        })
    }

    /// Waits for the end of a pause. Returns false if the user has lost the login or the privilege in the meantime.
    async fn rest(&self, pause: Pause) -> bool {
        let Pause { at_most, mut moved } = pause;
        let end = tokio::time::sleep(at_most);
        tokio::pin!(end);
        loop {
            let changed = self.node.users_changed();
            tokio::pin!(changed);
            // From here on, the future sees every change.
            changed.as_mut().enable();
            if !self.counts() {
                return false;
            }
            tokio::select! {
                () = &mut moved => {
                    tokio::time::sleep(MOVED_PAUSE).await;
                    return self.counts();
                }
                () = &mut end => return self.counts(),
                () = changed => {}
            }
        }
    }
}

impl Desk {
    /// Returns the desk for an answer that requires a privilege on a bucket until its end.
    pub fn with_right(mut self, privilege: Privilege, bucket: &str) -> Desk {
        self.reader.right = Some((privilege, bucket.to_owned()));
        self
    }

    /// Reserves a place for an answer.
    ///
    /// # Errors
    /// 503 if all places are taken.
    pub fn enter(&self, kind: Kind) -> Result<Option<Place>, Reply> {
        self.streams.enter(kind, &self.user, self.address)
    }

    /// Runs `work` on the threads of the desk.
    ///
    /// # Errors
    /// A reply that says that `what` has panicked.
    pub async fn work<T: Send + 'static>(
        &self,
        what: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Reply> {
        blocking_on(&self.threads, what, work).await
    }
}

/// Lets a deployment answer a request, on threads that do not serve other requests.
///
/// # Errors
/// An error of the kind `failure` if there is no answer, with the status `stopped` if the deployment does not run; 503
/// if the user has too many answers in progress. An error after the first pieces closes the connection before the end
/// of the body.
pub(super) async fn answered(
    node: &Arc<Node>,
    desk: &Desk,
    name: &str,
    request: Request,
    terms: Terms,
    (failure, stopped): (&str, StatusCode),
) -> Result<Reply, Reply> {
    let shape = |answer: Result<plugins::Reply, Missing>| {
        answer.map_err(|missing| unanswered(&missing, (failure, stopped)))
    };
    answered_as(node, desk, name, request, terms, failure, shape).await
}

/// Like [`answered`]; `shape` converts the answer, or the reason why there is none.
///
/// # Errors
/// As for [`answered`], and the errors of `shape`.
pub(super) async fn answered_as<A: Pieces>(
    node: &Arc<Node>,
    desk: &Desk,
    name: &str,
    request: Request,
    terms: Terms,
    failure: &str,
    shape: impl FnOnce(Result<plugins::Reply, Missing>) -> Result<A, Reply>,
) -> Result<Reply, Reply> {
    // The request may wait for fresh rows, so it occupies its place from the beginning.
    let place = desk.enter(Kind::Answer)?;
    let (node, name) = (Arc::clone(node), name.to_owned());
    let ask = move || plugins::request(&node, &name, &request, &terms);
    let answer = shape(desk.work("the request", ask).await?)?;
    let begun = desk.work("the request", move || begin(answer)).await?;
    // The user may have been removed while the request waited.
    if !desk.reader.counts() {
        return Err(unauthorized());
    }
    send(desk, place, failure, begun)
}

/// Returns the reply for a deployment that does not answer: an error of the kind `failure`, with the status `stopped`
/// if it does not run.
pub(super) fn unanswered(missing: &Missing, (failure, stopped): (&str, StatusCode)) -> Reply {
    let (status, error) = match missing {
        Missing::NoMemory(reason) => {
            let reply = error_reply(StatusCode::SERVICE_UNAVAILABLE, "no_memory", reason);
            return try_again(reply);
        }
        Missing::NotOwner | Missing::NotYet(_) => (StatusCode::SERVICE_UNAVAILABLE, "not_ready"),
        Missing::Stopped(_) => (stopped, failure),
        Missing::Late | Missing::TimedOut(_) => (StatusCode::GATEWAY_TIMEOUT, "timeout"),
        Missing::Failed(_) => (StatusCode::INTERNAL_SERVER_ERROR, failure),
    };
    error_reply(status, error, &missing.to_string())
}

/// An answer with its first piece, and its second if it has more than one.
struct Begun<A> {
    answer: A,
    first: Vec<u8>,
    second: Option<Vec<u8>>,
}

fn begin<A: Pieces>(mut answer: A) -> Result<Begun<A>, String> {
    let first = answer.next_piece()?.unwrap_or_default();
    // The server sends the head of an answer that pauses before the pause.
    let second = if answer.is_held() { Some(Vec::new()) } else { answer.next_piece()? };
    Ok(Begun { answer, first, second })
}

/// Starts an answer on a blocking thread, and sends it. Threads that serve other requests do not wait for it.
///
/// # Errors
/// As for [`answered`].
pub(super) async fn sent<A: Pieces>(
    desk: &Desk,
    failure: &str,
    answer: impl FnOnce() -> Result<A, String> + Send + 'static,
) -> Result<Reply, Reply> {
    let begun = blocking("the request", move || begin(answer()?)).await?;
    let is_long = begun.as_ref().is_ok_and(|begun| begun.second.is_some());
    let place = if is_long { desk.enter(Kind::Answer)? } else { None };
    send(desk, place, failure, begun)
}

fn send<A: Pieces>(
    desk: &Desk,
    place: Option<Place>,
    failure: &str,
    begun: Result<Begun<A>, String>,
) -> Result<Reply, Reply> {
    let failed = |reason: String| error_reply(StatusCode::INTERNAL_SERVER_ERROR, failure, &reason);
    let Begun { answer, first, second } = begun.map_err(failed)?;
    let (status, headers) = head_of(answer.head()).map_err(failed)?;
    // An answer that pauses may last until its client disconnects.
    let place = if answer.is_held() { desk.enter(Kind::Watch)? } else { place };
    let mut reply = match second {
        None => reply(status, "application/octet-stream", charged(&desk.account, first)),
        Some(second) => streamed(desk, place, answer, [first, second]),
    };
    *reply.status_mut() = status;
    reply.headers_mut().extend(headers);
    Ok(reply)
}

/// Returns the status and the headers of an answer, without the headers that only the server sets.
///
/// # Errors
/// The invalid status or header, for the author of the plugin.
fn head_of((status, given): (u16, &[Header])) -> Result<(StatusCode, HeaderMap), String> {
    // A status below 200 announces another answer to the same request.
    let known = StatusCode::from_u16(status).ok().filter(|_| (200..600).contains(&status));
    let status =
        known.ok_or_else(|| format!("the answer has the status {status}, not 200 to 599"))?;
    let of_the_connection = [CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING, TRAILER, UPGRADE];
    let header = |(name, value): &(String, String)| {
        let known = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| format!("the answer has a header with an invalid name: {name:?}"))?;
        let value = HeaderValue::from_str(value)
            .map_err(|_| format!("the header {name:?} of the answer has an invalid value"))?;
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

/// Sends an answer piece by piece, at the pace of the client.
///
/// The answer occupies a thread only while the plugin makes a piece, and not while the client reads it. A client that does not read
/// therefore occupies memory only, and for no longer than [`STALLED_MAX`].
fn streamed(desk: &Desk, place: Option<Place>, answer: impl Pieces, begun: [Vec<u8>; 2]) -> Reply {
    let (sender, body) = pieces();
    let (threads, account) = (desk.threads.clone(), Arc::clone(&desk.account));
    let reader = desk.reader.clone();
    tokio::spawn(async move {
        let _place = place;
        let mut outgoing = Outgoing { sender, account, ahead_bytes: 0 };
        let mut answer = answer;
        for piece in begun {
            if piece.is_empty() {
                continue;
            }
            if !outgoing.send(piece, answer.time_left()).await {
                // Dropping the source of an answer may take a long time.
                threads.spawn_blocking(move || drop(answer));
                return;
            }
        }
        loop {
            let goes_on = match answer.take_pause() {
                Some(pause) => tokio::select! {
                    counts = reader.rest(pause) => counts,
                    () = outgoing.sender.closed() => false,
                },
                None => reader.counts(),
            };
            if !goes_on {
                threads.spawn_blocking(move || drop(answer));
                return;
            }
            let next = threads.spawn_blocking(move || {
                let piece = answer.next_piece();
                (answer, piece)
            });
            let piece = match next.await {
                Ok((given_back, piece)) => {
                    answer = given_back;
                    piece
                }
                Err(error) => return tracing::warn!("an answer was interrupted: {error}"),
            };
            let goes_on = match piece {
                Ok(Some(piece)) if piece.is_empty() => true,
                Ok(Some(piece)) => outgoing.send(piece, answer.time_left()).await,
                Ok(None) => return outgoing.sender.finish(),
                Err(error) => return tracing::warn!("an answer was interrupted: {error}"),
            };
            if !goes_on {
                threads.spawn_blocking(move || drop(answer));
                return;
            }
        }
    });
    Reply::new(body.boxed())
}

/// Pieces on their way to a client.
struct Outgoing {
    sender: Sender,
    account: Arc<Account>,
    /// Size of the previous piece, which the client must read before there is room for the next one.
    ahead_bytes: usize,
}

impl Outgoing {
    /// Sends a piece as soon as there is room. Returns false if the client has disconnected or is too slow, or if
    /// `time_left` is over.
    async fn send(&mut self, piece: Vec<u8>, time_left: Option<Duration>) -> bool {
        let bytes = piece.len();
        let seconds = (self.ahead_bytes + bytes) as u64 / SLOWEST_BYTES_PER_SECOND;
        self.ahead_bytes = bytes;
        let patience = STALLED_MAX + Duration::from_secs(seconds);
        let patience = time_left.map_or(patience, |left| left.min(patience));
        let piece = charged(&self.account, piece);
        tokio::time::timeout(patience, self.sender.send(piece)).await.unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::head_of;

    #[test]
    fn an_invalid_final_status_is_named() {
        for status in [0, 42, 100, 101, 199, 600, 1000, u16::MAX] {
            let reason = head_of((status, &[])).unwrap_err();
            assert_eq!(reason, format!("the answer has the status {status}, not 200 to 599"));
        }
        for status in [200, 204, 404, 599] {
            assert_eq!(head_of((status, &[])).unwrap().0.as_u16(), status);
        }
    }
}
