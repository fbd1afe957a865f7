//! Views: the code of the views plugin (nacre-views), as native Rust in a thread of the gateway.
//!
//! ```text
//! PUT /default/_design/d             ─► checked ─► settings, on disk
//! GET /default/_design/d/_view/v     ─► thread `edge-views`: changes since the last query ─► rows ─► answer
//! ```
//!
//! The rows are in memory. The first query after a start builds them: reading ten thousand documents takes a fraction of a
//! second. An answer always reflects every write before the request. Only the owner can define functions; the engine limits their
//! memory, stack and steps.
//!
//! *Invariant:* the thread owns everything that cannot be shared between threads, such as the engine.

use crate::design::{check_members, check_stale};
use crate::documents;
use crate::door::Call;
use crate::endpoints::Handler;
use hyper::StatusCode;
use hyper::header::{HeaderName, HeaderValue};
use nacre::{Change, ChangeKind, Changes, Db, Error, Since};
use nacre_auth::Privilege;
use nacre_http::body::{Reply, json_reply, ok, reply};
use nacre_http::memory::charged;
use nacre_http::{Access, Method, Route, problem};
use nacre_plugin::{
    Entry, Event, EventKind, Events, Fault, MemoryState, Request, Service, State, StateMut, pack,
};
use nacre_store::Space;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::Semaphore;

/// Maximum bytes of a design document.
const DESIGN_BYTES_MAX: usize = 1 << 20;
/// Maximum bytes of the name of a design document.
const NAME_BYTES_MAX: usize = 240;
/// Maximum number of design documents.
const DESIGNS_MAX: usize = 64;
/// Maximum bytes of the rows of one design document.
const ROWS_BYTES_MAX: usize = 256 << 20;
/// Maximum bytes of an answer.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Maximum number of changes per batch.
const BATCH_MAX: usize = 256;
/// Maximum bytes of the bodies per batch.
const BATCH_BYTES_MAX: usize = 4 << 20;
/// Time limit of a query's wait for rows.
const PATIENCE: Duration = Duration::from_secs(60);
/// Maximum number of requests that wait for the views thread: each holds a thread that documents need, too.
const WAITERS_MAX: usize = 8;
/// The pause of the thread while another one reads changes from disk.
const PAUSE: Duration = Duration::from_millis(20);
/// Stack size of the thread. The limit for functions is far below it.
const STACK_BYTES: usize = 8 << 20;
/// Prefix of the rows of the settings, followed by the name.
const ROW: &str = "design/";

const DESIGN: &str = "/{bucket}/_design/{name}";
const VIEW: &str = "/{bucket}/_design/{name}/_view/{view}";
const ADMINISTER: Access = Access::Bucket(Privilege::AdministerViews);
const READ: Access = Access::Bucket(Privilege::ReadViews);

pub(crate) const ROUTES: &[Route<Handler>] = &[
    Route::new(Method::Get, "/{bucket}/_design", READ, list as Handler),
    Route::new(Method::Get, DESIGN, READ, get as Handler),
    Route::new(Method::Put, DESIGN, ADMINISTER, put as Handler).with_body(DESIGN_BYTES_MAX),
    Route::new(Method::Delete, DESIGN, ADMINISTER, delete as Handler),
    Route::new(Method::Get, VIEW, READ, query as Handler),
    Route::new(Method::Post, VIEW, READ, query as Handler).with_body(DESIGN_BYTES_MAX),
];

/// The reason why there is no answer.
enum Failure {
    /// The design document does not exist.
    Missing,
    /// The design document is invalid, for this reason.
    Invalid(String),
    /// The answer, or the rows, are too large.
    TooLarge(String),
    /// The rows were not ready in time.
    Late,
    /// Too many requests are already waiting.
    Busy,
    /// The views or the database failed.
    Failed(String),
}

impl From<Failure> for Reply {
    fn from(failure: Failure) -> Reply {
        let (status, code, reason) = match failure {
            Failure::Missing => (StatusCode::NOT_FOUND, "not_found", "missing".to_owned()),
            Failure::Invalid(reason) => {
                (StatusCode::BAD_REQUEST, "invalid_design_document", reason)
            }
            Failure::TooLarge(reason) => (StatusCode::INSUFFICIENT_STORAGE, "too_large", reason),
            Failure::Late => {
                let reason = "the rows are not ready yet: try again".to_owned();
                (StatusCode::SERVICE_UNAVAILABLE, "try_again", reason)
            }
            Failure::Busy => {
                let reason = "too many requests wait for views: try again".to_owned();
                (StatusCode::SERVICE_UNAVAILABLE, "busy", reason)
            }
            Failure::Failed(reason) => (StatusCode::INTERNAL_SERVER_ERROR, "view_failed", reason),
        };
        problem::reply(status, code, &reason)
    }
}

/// The answer of a view.
struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

/// Jobs of the thread, each with a channel for the answer.
enum Job {
    Check { text: String, done: Sender<Result<(), Failure>> },
    Query { name: String, request: Box<Request>, done: Sender<Result<Answer, Failure>> },
    Forget { name: String },
}

/// The design documents, and the thread that owns their rows.
pub(crate) struct Views {
    db: Db,
    settings: Arc<dyn Space>,
    /// The thread starts on demand and ends with the gateway.
    jobs: Mutex<Option<Sender<Job>>>,
    waiters: Semaphore,
}

fn row(name: &str) -> Vec<u8> {
    format!("{ROW}{name}").into_bytes()
}

fn failed(error: impl ToString) -> Failure {
    Failure::Failed(error.to_string())
}

impl Views {
    /// Returns the views of the design documents in these settings.
    pub fn new(db: &Db, settings: &Arc<dyn Space>) -> Views {
        let (db, settings, jobs) = (db.clone(), Arc::clone(settings), Mutex::default());
        Views { db, settings, jobs, waiters: Semaphore::new(WAITERS_MAX) }
    }

    /// Ends the thread once it is idle.
    pub fn stop(&self) {
        *self.jobs.lock() = None;
    }

    fn send(&self, job: Job) -> Result<(), Failure> {
        let mut jobs = self.jobs.lock();
        let job = match &*jobs {
            None => job,
            Some(sender) => match sender.send(job) {
                Ok(()) => return Ok(()),
                // The thread has panicked and has reported it: start another one.
                Err(unsent) => unsent.0,
            },
        };
        let (sender, receiver) = channel();
        let (db, settings) = (self.db.clone(), Arc::clone(&self.settings));
        let thread = std::thread::Builder::new().name("edge-views".into()).stack_size(STACK_BYTES);
        thread.spawn(move || work(&db, &*settings, &receiver)).map_err(failed)?;
        sender.send(job).map_err(failed)?;
        *jobs = Some(sender);
        Ok(())
    }

    fn names(&self) -> Result<Vec<String>, Failure> {
        let rows = self.settings.load().map_err(failed)?;
        let names = rows.iter().filter_map(|(key, _)| key.strip_prefix(ROW.as_bytes()));
        Ok(names.map(|name| String::from_utf8_lossy(name).into_owned()).collect())
    }
}

/// A key space that records its size.
#[derive(Default)]
struct Rows {
    state: MemoryState,
    bytes: usize,
}

impl State for Rows {
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.state.get(key)
    }

    fn scan(&self, start: &[u8], end: &[u8], limit: u32, reverse: bool) -> Vec<Entry> {
        self.state.scan(start, end, limit, reverse)
    }
}

impl StateMut for Rows {
    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.delete(key);
        self.bytes += key.len() + value.len();
        self.state.put(key, value);
    }

    fn delete(&mut self, key: &[u8]) {
        if let Some(old) = self.state.get(key) {
            self.bytes -= key.len() + old.len();
            self.state.delete(key);
        }
    }

    fn reading(&self) -> &dyn State {
        self
    }
}

/// A design document with its rows.
struct Design {
    views: nacre_views::Views,
    rows: Rows,
    changes: Changes,
}

/// Parses a design document: returns the object, and the collection that it indexes.
fn read(text: &[u8]) -> Result<(Map<String, Value>, String), Failure> {
    let invalid = |reason: &str| Failure::Invalid(reason.to_owned());
    let parsed: Value = serde_json::from_slice(text)
        .map_err(|error| Failure::Invalid(format!("the body is not JSON: {error}")))?;
    let Value::Object(members) = parsed else { return Err(invalid("it is not a JSON object")) };
    let collection = match members.get("collection") {
        None => "_default._default".to_owned(),
        Some(Value::String(path)) if path.split('.').count() == 2 => path.clone(),
        Some(_) => return Err(invalid("\"collection\" must be \"scope.collection\"")),
    };
    if collection.split('.').next() == Some(nacre::SYNC_SCOPE) {
        return Err(invalid("the collections of sync have no views"));
    }
    Ok((members, collection))
}

/// Returns a plugin for a design document.
fn plugin(
    name: &str,
    mut members: Map<String, Value>,
    is_checked: bool,
) -> Result<nacre_views::Views, Failure> {
    members.insert("name".into(), name.into());
    members.insert("checked".into(), is_checked.into());
    nacre_views::Views::init(&Value::Object(members).to_string())
        .map_err(|fault| Failure::Invalid(fault.to_string()))
}

impl Design {
    fn open(db: &Db, settings: &dyn Space, name: &str) -> Result<Design, Failure> {
        let text = settings.get(&row(name)).map_err(failed)?.ok_or(Failure::Missing)?;
        let (members, collection) = read(&text)?;
        let views = plugin(name, members, true)?;
        let found = db.find_collection(&collection).map_err(failed)?;
        let found = found.ok_or_else(|| failed(Error::CollectionNotFound(collection)))?;
        let changes = found.changes(Since::Start).map_err(failed)?;
        Ok(Design { views, rows: Rows::default(), changes })
    }

    /// Applies every earlier change, at most until `deadline`. Changes applied by then stay.
    fn update(&mut self, deadline: Instant) -> Result<(), Failure> {
        loop {
            let mut batch = Vec::new();
            let mut bytes = 0;
            while batch.len() < BATCH_MAX && bytes < BATCH_BYTES_MAX {
                let Some(change) = self.changes.try_next().map_err(failed)? else { break };
                bytes += change.body().len();
                batch.push(change);
            }
            if !batch.is_empty() {
                self.apply(&batch)?;
            } else if self.changes.is_caught_up() {
                return Ok(());
            } else if let Some(change) = self.changes.next_within(PAUSE).map_err(failed)? {
                self.apply(&[change])?;
            }
            if Instant::now() > deadline {
                return Err(Failure::Late);
            }
        }
    }

    fn apply(&mut self, batch: &[Change]) -> Result<(), Failure> {
        let events: Vec<Event<'_>> = batch.iter().map(event).collect();
        let buffer = pack(&events, now_us());
        let events = Events::decode(&buffer).map_err(failed)?;
        // A document whose map function fails has no rows, as on a node.
        self.views.on_batch(&events, &mut self.rows).map_err(failed)?;
        if self.rows.bytes > ROWS_BYTES_MAX {
            let reason = format!("the rows of these views take more than {ROWS_BYTES_MAX} bytes");
            return Err(Failure::TooLarge(reason));
        }
        Ok(())
    }

    fn answer(&mut self, request: &Request) -> Result<Answer, Failure> {
        let refused = |fault| match fault {
            Fault::Reject(reason) => Failure::Invalid(reason),
            Fault::Retry(_) => Failure::Late,
            Fault::Fatal(reason) => Failure::Failed(reason),
        };
        let response = self.views.handle(request, &self.rows).map_err(refused)?;
        let (mut body, mut cursor) = (response.body, response.cursor);
        while let Some(at) = cursor {
            let chunk = self.views.more(&at, &self.rows).map_err(refused)?;
            body.extend_from_slice(&chunk.body);
            cursor = chunk.cursor;
            if body.len() > ANSWER_BYTES_MAX {
                let reason =
                    format!("the answer has more than {ANSWER_BYTES_MAX} bytes: set limit");
                return Err(Failure::TooLarge(reason));
            }
        }
        Ok(Answer { status: response.status, headers: response.headers, body })
    }
}

fn event(change: &Change) -> Event<'_> {
    let (vbid, seqno) = change.place();
    let kind = match change.kind() {
        ChangeKind::Written => EventKind::Upsert,
        ChangeKind::Removed => EventKind::Delete,
        ChangeKind::Expired => EventKind::Expire,
    };
    Event {
        index: 0,
        vb: vbid.0,
        seqno: seqno.0,
        cas: change.cas().0,
        rev: change.rev(),
        flags: change.flags(),
        expiry: change.expiry(),
        collection: 0,
        kind,
        datatype: u8::from(change.is_json()),
        key: change.key(),
        xattrs: b"",
        body: change.body(),
        previous: None,
    }
}

fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64
}

/// Runs the thread.
fn work(db: &Db, settings: &dyn Space, jobs: &Receiver<Job>) {
    let mut designs: BTreeMap<String, Design> = BTreeMap::new();
    while let Ok(job) = jobs.recv() {
        match job {
            Job::Forget { name } => drop(designs.remove(&name)),
            Job::Check { text, done } => {
                let checked = read(text.as_bytes())
                    .and_then(|(members, _)| plugin("check", members, false))
                    .map(drop);
                // The client may have disconnected, here and below.
                let _ = done.send(checked);
            }
            Job::Query { name, request, done } => {
                let deadline = Instant::now() + PATIENCE;
                let _ = done.send(answer(db, settings, &mut designs, &name, &request, deadline));
            }
        }
    }
}

fn answer(
    db: &Db,
    settings: &dyn Space,
    designs: &mut BTreeMap<String, Design>,
    name: &str,
    request: &Request,
    deadline: Instant,
) -> Result<Answer, Failure> {
    if !designs.contains_key(name) {
        designs.insert(name.to_owned(), Design::open(db, settings, name)?);
    }
    let design = designs.get_mut(name).ok_or(Failure::Missing)?;
    match design.update(deadline) {
        Ok(()) => design.answer(request),
        // The next query continues from here.
        Err(Failure::Late) => Err(Failure::Late),
        Err(failure) => {
            // The next query starts over: after half a batch or a dropped collection the rows are invalid.
            designs.remove(name);
            Err(failure)
        }
    }
}

fn check_name(name: &str) -> Result<(), Failure> {
    let is_name = !name.trim().is_empty()
        && name.len() <= NAME_BYTES_MAX
        && !name.chars().any(char::is_control);
    let reason = format!("a name of 1 to {NAME_BYTES_MAX} bytes, without control characters");
    if is_name { Ok(()) } else { Err(Failure::Invalid(reason)) }
}

/// Sends a job to the thread and waits for its answer.
fn ask<T>(call: &Call, job: impl FnOnce(Sender<Result<T, Failure>>) -> Job) -> Result<T, Failure> {
    let views = &call.gateway.views;
    let Ok(_waits) = views.waiters.try_acquire() else { return Err(Failure::Busy) };
    let (done, answer) = channel();
    views.send(job(done))?;
    answer.recv().unwrap_or_else(|_| Err(failed("the thread of views has ended: try again")))
}

fn list(call: Call) -> Result<Reply, Reply> {
    Ok(ok(&json!({"designs": call.gateway.views.names()?})))
}

fn get(call: Call) -> Result<Reply, Reply> {
    let found = call.gateway.views.settings.get(&row(call.segment("name"))).map_err(failed)?;
    let text = found.ok_or(Failure::Missing)?;
    Ok(reply(StatusCode::OK, "application/json", text))
}

fn put(call: Call) -> Result<Reply, Reply> {
    let name = call.segment("name").to_owned();
    check_name(&name)?;
    let text = String::from_utf8(call.body.clone())
        .map_err(|_| Failure::Invalid("the body is not UTF-8".into()))?;
    let (members, collection) = read(text.as_bytes())?;
    check_members(&members).map_err(Failure::Invalid)?;
    let found = call.gateway.db.find_collection(&collection);
    if found.map_err(|error| documents::failed(&error))?.is_none() {
        let reason = format!("there is no collection {collection}");
        return Err(Failure::Invalid(reason).into());
    }
    let names = call.gateway.views.names()?;
    if names.len() >= DESIGNS_MAX && !names.contains(&name) {
        let reason = format!("a gateway has {DESIGNS_MAX} design documents at most");
        return Err(Failure::Invalid(reason).into());
    }
    let owned = text.clone();
    ask(&call, |done| Job::Check { text: owned, done })?;
    let views = &call.gateway.views;
    let write = (row(&name), Some(text.into_bytes()));
    views.settings.apply(&[write], true).map_err(failed)?;
    views.send(Job::Forget { name: name.clone() })?;
    Ok(json_reply(StatusCode::CREATED, &json!({"ok": true, "id": format!("_design/{name}")})))
}

fn delete(call: Call) -> Result<Reply, Reply> {
    let (name, views) = (call.segment("name").to_owned(), &call.gateway.views);
    if views.settings.get(&row(&name)).map_err(failed)?.is_none() {
        return Err(Failure::Missing.into());
    }
    views.settings.apply(&[(row(&name), None)], true).map_err(failed)?;
    views.send(Job::Forget { name: name.clone() })?;
    Ok(ok(&json!({"ok": true, "id": format!("_design/{name}")})))
}

fn query(call: Call) -> Result<Reply, Reply> {
    check_stale(&call.query, &call.body)
        .map_err(|reason| problem::reply(StatusCode::BAD_REQUEST, "query_parse_error", &reason))?;
    let request = Request {
        method: call.method.to_string(),
        path: format!("/{}", call.segment("view")),
        query: call.query.clone(),
        headers: Vec::new(),
        body: call.body.clone(),
        now_us: now_us(),
    };
    let (name, request) = (call.segment("name").to_owned(), Box::new(request));
    let Answer { status, headers, body } = ask(&call, |done| Job::Query { name, request, done })?;
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut answer = reply(status, "application/json", charged(&call.account, body));
    for (name, value) in headers {
        // The plugin sets these headers: invalid ones are skipped.
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            answer.headers_mut().insert(name, value);
        }
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre::{Options, Write};
    use nacre_store::{MemorySpaces, Spaces};

    #[test]
    fn a_query_that_was_late_leaves_its_rows_to_the_next_one() {
        let db = Db::open_with(":memory:", Options::default()).unwrap();
        let docs = db.find_collection("_default._default").unwrap().unwrap();
        let count = 3 * BATCH_MAX;
        for number in 0..count {
            docs.upsert(format!("d{number}"), b"{}", Write::new()).unwrap();
        }
        let settings = MemorySpaces::default().open("gateway").unwrap();
        let design = br#"{"views": {"ids": {"map": "function (doc, meta) { emit(meta.id); }", "reduce": "_count"}}}"#;
        settings.apply(&[(row("d"), Some(design.to_vec()))], true).unwrap();
        let request = Request {
            method: "GET".into(),
            path: "/ids".into(),
            query: String::new(),
            headers: Vec::new(),
            body: Vec::new(),
            now_us: 0,
        };
        let mut designs = BTreeMap::new();
        let mut ask = |deadline| answer(&db, &*settings, &mut designs, "d", &request, deadline);
        let now = Instant::now();
        // Each call applies one batch.
        assert!(matches!(ask(now), Err(Failure::Late)));
        assert!(matches!(ask(now), Err(Failure::Late)));
        let Ok(answer) = ask(now + PATIENCE) else { panic!("the rows are not ready") };
        let counted: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(counted["rows"][0]["value"], count);
        assert!(designs["d"].rows.bytes > 0);
    }
}
