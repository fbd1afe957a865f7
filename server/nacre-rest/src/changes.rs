//! The changes of a collection over HTTP: present changes at once, as soon as a change arrives (long poll), or as a
//! stream of events.

use super::Call;
use super::body::{Reply, blocking, error_reply, form};
use super::memory::no_memory;
use super::pieces::{Sender, pieces};
use super::routes::{Route, any, get, post, ready};
use super::streams::{Kind, STALLED_MAX};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http_body_util::BodyExt;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Response, StatusCode};
use nacre_auth::{Keyspace, Login, Privilege};
use nacre_bucket::Waiter;
use nacre_changes_service::{self as changes, Change, Changes, Next, Refused, Since, Until};
use nacre_http::Access;
use nacre_node::Node;
use nacre_sandbox::{Permit, Purpose};
use nacre_types::{CollectionId, DATATYPE_JSON};
use serde::Serialize;
use serde_json::value::RawValue;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// Default and longest time that a request waits for a change.
const LONGPOLL_DEFAULT: Duration = Duration::from_secs(60);
const LONGPOLL_MAX: Duration = Duration::from_secs(300);
/// Silence after which a stream of events sends a heartbeat.
const HEARTBEAT: Duration = Duration::from_secs(30);
/// Interval at which a stream of events sends the client's position. With many vBuckets, the position is far longer
/// than a change.
const STAND: Duration = Duration::from_secs(1);
/// Maximum size of a piece of the answer in bytes, give or take one change, and maximum number of changes read for it.
const PIECE_BYTES: usize = 256 << 10;
const PIECE_CHANGES: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Feed {
    /// Sends the present changes, and ends.
    Normal,
    /// Waits for at least one change, sends the present changes, and ends.
    Longpoll(Duration),
    /// Sends present and future changes as server-sent events.
    Events,
}

/// Memory that one answer occupies while its client does not read, in bytes: batches of the read, and pieces that wait.
const READER_BYTES: usize = 3 << 20;

/// The changes that a request asks for, and their format.
struct Wanted {
    feed: Feed,
    since: Since,
    limit: u64,
    include_docs: bool,
    /// Restricts the answer to these documents.
    ids: Option<BTreeSet<Vec<u8>>>,
}

impl Wanted {
    /// Returns the request in the form that the node takes.
    fn changes(&self) -> changes::Wanted {
        changes::Wanted {
            since: self.since.clone(),
            until: if self.feed == Feed::Normal { Until::Now } else { Until::Forever },
            ids: self.ids.clone(),
            bodies: self.include_docs,
            limit: self.limit,
        }
    }
}

/// A change in the format of the answer.
#[derive(Serialize)]
struct Row<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    /// Replaces `id` if the document's ID is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    id_hex: Option<String>,
    vbucket: u16,
    seqno: u64,
    rev: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    deleted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    doc: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
}

/// Wakes the task that answers the request.
#[derive(Default)]
struct RequestWaker(Notify);

impl Waiter for RequestWaker {
    fn wake(&self) {
        self.0.notify_one();
    }
}

const PATH: &str = "/{bucket}/{scope}/{collection}/_changes";

pub(super) const ROUTES: &[Route] = &[
    get(PATH, Access::Handler, |call| Box::pin(answer(call))),
    post(PATH, Access::Handler, |call| Box::pin(answer(call))),
    any(PATH, Access::Login, |_| {
        let reason = "changes are asked for with GET or POST";
        ready(Err(error_reply(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", reason)))
    }),
];

/// Answers with the changes of a collection, as long as the user may read its documents.
async fn answer(call: Call) -> Result<Reply, Reply> {
    let call = &call;
    let names = ["bucket", "scope", "collection"].map(|name| call.segment(name));
    let [bucket, scope, collection] = names;
    let reader = Reader {
        node: Arc::clone(&call.node),
        login: call.identity.clone(),
        names: names.map(str::to_owned),
    };
    if !reader.may_read() {
        let reason = "reading documents of this collection is not permitted";
        return Err(error_reply(StatusCode::FORBIDDEN, "forbidden", reason));
    }
    let missing = |reason: &str| error_reply(StatusCode::NOT_FOUND, "not_found", reason);
    let found = call.node.bucket(bucket).ok_or_else(|| missing("there is no such bucket"))?;
    let manifest = found.manifest();
    let id = manifest.collection(scope, collection).map(|known| CollectionId(known.id));
    let id = id.ok_or_else(|| missing("there is no such collection"))?;
    let wanted = parse(call).map_err(|reason| bad_request(&reason))?;
    let permit = call.account.take(Purpose::Answer, READER_BYTES).map_err(|why| no_memory(&why))?;
    let waker = Arc::new(RequestWaker::default());
    let (node, waiter): (_, Arc<dyn Waiter>) = (Arc::clone(&call.node), Arc::clone(&waker) as _);
    let asked = wanted.changes();
    let changes = move || Changes::open(&node, &found, id, asked, waiter);
    let changes = blocking("changes", changes).await?.map_err(|refused| match refused {
        Refused::Gone(why) => {
            let reason = format!("start again without \"since\": {why}");
            error_reply(StatusCode::GONE, "gone", &reason)
        }
        Refused::Unavailable(why) => {
            error_reply(StatusCode::SERVICE_UNAVAILABLE, "unavailable", &why)
        }
    })?;
    let place = call.desk().enter(Kind::Watch)?;
    let (sender, body) = pieces();
    let events = wanted.feed == Feed::Events;
    let users_version = call.node.users_version();
    let answer =
        Answer { reader, changes, waker, wanted, sender, sent: 0, users_version, _permit: permit };
    tokio::spawn(async move {
        let _place = place;
        answer.run().await;
    });
    let mut reply = Response::new(body.boxed());
    let kind = if events { "text/event-stream" } else { "application/json" };
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    reply.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(reply)
}

fn bad_request(reason: &str) -> Reply {
    error_reply(StatusCode::BAD_REQUEST, "bad_request", reason)
}

/// Reads the parameters of a request. The error names the invalid parameter.
fn parse(call: &Call) -> Result<Wanted, String> {
    let mut wanted = Wanted {
        feed: Feed::Normal,
        since: Since::Beginning,
        limit: u64::MAX,
        include_docs: false,
        ids: None,
    };
    let (mut timeout, mut filtered, mut ids) = (LONGPOLL_DEFAULT, false, None);
    for (name, value) in parameters(call)? {
        let wrong = |expected: &str| format!("{name:?} must be {expected}, not {value:?}");
        match &name[..] {
            "feed" => {
                wanted.feed = match &value[..] {
                    "normal" => Feed::Normal,
                    "longpoll" => Feed::Longpoll(LONGPOLL_DEFAULT),
                    "sse" | "eventsource" => Feed::Events,
                    _ => return Err(wrong("normal, longpoll or sse")),
                };
            }
            "since" => wanted.since = since(&value).ok_or_else(|| wrong("0, now or a last_seq"))?,
            "limit" => wanted.limit = value.parse().map_err(|_| wrong("a number"))?,
            "include_docs" => {
                wanted.include_docs = value.parse().map_err(|_| wrong("true or false"))?;
            }
            "timeout" => {
                let asked = value.parse().map_err(|_| wrong("a number of milliseconds"))?;
                timeout = Duration::from_millis(asked).min(LONGPOLL_MAX);
            }
            "filter" if value == "_doc_ids" => filtered = true,
            "filter" => return Err(wrong("_doc_ids")),
            "doc_ids" => {
                let list: Vec<String> =
                    serde_json::from_str(&value).map_err(|_| wrong("a JSON array of texts"))?;
                ids = Some(list.into_iter().map(String::into_bytes).collect());
            }
            _ => return Err(format!("{name:?} is not a parameter of changes")),
        }
    }
    if filtered != ids.is_some() {
        return Err("\"filter=_doc_ids\" and \"doc_ids\" go together".into());
    }
    wanted.ids = ids;
    if let Feed::Longpoll(wait) = &mut wanted.feed {
        *wait = timeout;
    }
    // A browser sends this header when it reconnects.
    let last = call.headers.iter().find(|(name, _)| name == "last-event-id");
    if let (Feed::Events, Some((_, last))) = (wanted.feed, last) {
        wanted.since = since(last).ok_or("\"Last-Event-ID\" must be one that was given")?;
    }
    Ok(wanted)
}

/// Reads the parameters of the query string and of the body, which may be a form or a JSON object. The last value of a
/// parameter counts.
fn parameters(call: &Call) -> Result<Vec<(String, String)>, String> {
    let mut parameters = form(call.query.as_bytes());
    if call.method != Method::POST || call.body.trim_ascii().is_empty() {
        return Ok(parameters);
    }
    if call.body.trim_ascii_start().first() != Some(&b'{') {
        parameters.extend(form(&call.body));
        return Ok(parameters);
    }
    let members: BTreeMap<String, serde_json::Value> = serde_json::from_slice(&call.body)
        .map_err(|error| format!("the body is neither a form nor a JSON object: {error}"))?;
    parameters.extend(members.into_iter().map(|(name, value)| match value {
        serde_json::Value::String(text) => (name, text),
        value => (name, value.to_string()),
    }));
    Ok(parameters)
}

fn since(text: &str) -> Option<Since> {
    match text {
        "" | "0" => Some(Since::Beginning),
        "now" => Some(Since::Now),
        token => token.parse().ok().map(Since::Token),
    }
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A user who reads changes, and the collection.
struct Reader {
    node: Arc<Node>,
    login: Option<Login>,
    names: [String; 3],
}

impl Reader {
    fn may_read(&self) -> bool {
        let [bucket, scope, collection] = self.names.each_ref().map(|name| Some(name.as_str()));
        let users = self.node.users();
        let user = self.login.as_ref().and_then(|login| users.holder(login));
        user.is_some_and(|user| {
            user.may(Privilege::ReadData, Keyspace { bucket, scope, collection })
        })
    }
}

/// An answer in progress.
struct Answer {
    reader: Reader,
    changes: Changes,
    waker: Arc<RequestWaker>,
    wanted: Wanted,
    sender: Sender,
    /// Number of changes sent.
    sent: u64,
    /// Version of the users for which the reader's privilege was last checked.
    users_version: u64,
    /// Holds the memory of the answer.
    _permit: Permit,
}

/// State of the read after a batch.
enum Pause {
    /// More changes are available immediately.
    None,
    /// No change is available now.
    Wait,
    /// No more changes will come.
    End,
    /// The read has failed.
    Broken(String),
}

/// The reason why an answer ends early.
enum End {
    /// The client has disconnected, does not read, or has lost the privilege to read.
    Client(&'static str),
    /// The node cannot continue.
    Broken(String),
}

impl Answer {
    async fn run(mut self) {
        let outcome = match self.wanted.feed {
            Feed::Normal => self.results(None).await,
            Feed::Longpoll(wait) => self.results(Some(wait)).await,
            Feed::Events => self.events().await,
        };
        match outcome {
            Ok(()) => self.sender.finish(),
            Err(End::Client(why)) => tracing::debug!("changes break off: {why}"),
            Err(End::Broken(why)) => {
                tracing::warn!("changes break off: {why}");
                if matches!(self.wanted.feed, Feed::Events) {
                    // A comment of server-sent events: clients skip it, and people can read it.
                    let line = why.replace(['\r', '\n'], " ");
                    self.sender.send(format!(": the changes break off: {line}\n\n")).await;
                }
            }
        }
    }

    /// Sends one JSON object. With a time to wait, the object ends after the first changes or when the time is over.
    async fn results(&mut self, wait: Option<Duration>) -> Result<(), End> {
        let deadline = tokio::time::Instant::now() + wait.unwrap_or_default();
        let mut piece = String::from("{\"results\":[\n");
        loop {
            self.check_reader()?;
            let pause = self.read(&mut piece, |sent, row| {
                let comma = if sent > 0 { ",\n" } else { "" };
                format!("{comma}{row}")
            });
            match pause {
                Pause::None => self.send(&mut piece).await?,
                Pause::Wait => {
                    // Changes that the reader still fetches from the store are older than the request.
                    let complete = self.sent > 0 && self.changes.is_caught_up();
                    if wait.is_some() && complete {
                        break;
                    }
                    if !self.rest(wait.map(|_| deadline)).await {
                        break;
                    }
                }
                Pause::End => break,
                Pause::Broken(why) => return Err(End::Broken(why)),
            }
        }
        piece.push_str(&format!("\n],\n\"last_seq\":\"{}\"}}\n", self.changes.token().short()));
        self.send(&mut piece).await
    }

    /// Sends a server-sent event for each change, and now and then the client's position with a change.
    async fn events(&mut self) -> Result<(), End> {
        let mut piece = String::new();
        let begun = tokio::time::Instant::now();
        let mut heartbeat = begun + HEARTBEAT;
        // The time at which the client may next receive its position, and whether the position has changed.
        let (mut stand, mut has_moved) = (begun, false);
        loop {
            self.check_reader()?;
            let before = self.sent;
            let pause = self.read(&mut piece, |_, row| format!("data: {row}\n\n"));
            let now = tokio::time::Instant::now();
            has_moved |= self.sent > before;
            if has_moved && (now >= stand || matches!(pause, Pause::End)) {
                piece.push_str(&format!("id: {}\n\n", self.changes.token().short()));
                (stand, has_moved) = (now + STAND, false);
            }
            if !piece.is_empty() {
                heartbeat = now + HEARTBEAT;
            }
            self.send(&mut piece).await?;
            match pause {
                Pause::None => {}
                Pause::Wait => {
                    let end = if has_moved { stand } else { heartbeat };
                    if !self.rest(Some(end)).await && !has_moved {
                        piece.push_str(":\n\n");
                    }
                }
                Pause::End => return Ok(()),
                Pause::Broken(why) => return Err(End::Broken(why)),
            }
        }
    }

    /// Fails if the client has disconnected, or if its user has lost the privilege to read.
    fn check_reader(&mut self) -> Result<(), End> {
        if self.sender.is_closed() {
            return Err(End::Client("the client is gone"));
        }
        let version = self.reader.node.users_version();
        if version != std::mem::replace(&mut self.users_version, version) && !self.reader.may_read()
        {
            return Err(End::Client("the right to read is gone"));
        }
        Ok(())
    }

    /// Waits until changes may be available, or until users have changed. Returns false when `deadline` has passed.
    async fn rest(&mut self, deadline: Option<tokio::time::Instant>) -> bool {
        let soon = self.changes.pause().map(|pause| tokio::time::Instant::now() + pause);
        let users = self.reader.node.users_changed();
        if self.reader.node.users_version() != self.users_version {
            return true;
        }
        let woken = async {
            tokio::select! {
                () = self.waker.0.notified() => {}
                () = users => {}
                () = self.sender.closed() => {}
            }
        };
        match soon.into_iter().chain(deadline).min() {
            Some(end) => match tokio::time::timeout_at(end, woken).await {
                Ok(()) => true,
                Err(_) => deadline.is_none_or(|deadline| end < deadline),
            },
            None => {
                woken.await;
                true
            }
        }
    }

    /// Appends the present changes to `piece`. `shape` formats each change from its number and its JSON.
    fn read(&mut self, piece: &mut String, shape: impl Fn(u64, String) -> String) -> Pause {
        for _ in 0..PIECE_CHANGES {
            if piece.len() >= PIECE_BYTES {
                break;
            }
            if self.sent == self.wanted.limit {
                return Pause::End;
            }
            match self.changes.next_change() {
                Next::Change(change) => {
                    if let Some(row) = self.row(&change) {
                        piece.push_str(&shape(self.sent, row));
                        self.sent += 1;
                    }
                }
                Next::Passed => {}
                Next::Nothing => return Pause::Wait,
                Next::Complete => return Pause::End,
                Next::Broken(why) => return Pause::Broken(why),
            }
        }
        Pause::None
    }

    /// Formats a change as JSON.
    fn row(&self, Change { vbid, document }: &Change) -> Option<String> {
        let (meta, alive) = (document.meta, document.is_alive());
        let shown = self.wanted.include_docs && alive;
        let json = (shown && meta.datatype & DATATYPE_JSON != 0)
            .then(|| serde_json::from_slice::<&RawValue>(document.body()).ok())
            .flatten();
        let id = str::from_utf8(document.name()).ok();
        let row = Row {
            id,
            id_hex: id.is_none().then(|| to_hex(document.name())),
            vbucket: vbid.0,
            seqno: meta.seqno.0,
            rev: format!("{}-{:016x}", meta.rev, meta.cas.0),
            deleted: !alive,
            doc: json,
            base64: (shown && json.is_none()).then(|| BASE64_STANDARD.encode(document.body())),
        };
        // A document may span several lines, but an event or a row must be one line.
        serde_json::to_string(&row).ok().map(|text| text.replace(['\n', '\r'], " "))
    }

    /// Sends the collected piece, and lets other tasks run.
    async fn send(&mut self, piece: &mut String) -> Result<(), End> {
        if piece.is_empty() {
            tokio::task::yield_now().await;
            return Ok(());
        }
        // While the client has an open read, the store cannot reclaim space.
        match tokio::time::timeout(STALLED_MAX, self.sender.send(std::mem::take(piece))).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(End::Client("the client is gone")),
            Err(_) => Err(End::Client("the client does not read")),
        }
    }
}
