//! A host for tests: runs a service as plain Rust with a scripted feed and a clock that only the test moves.
//!
//! ```
//! use nacre_plugin::testing::Harness;
//! use nacre_plugin::{DocumentError, Events, Fault, Service, StateMut, Timer, timer};
//! use std::time::Duration;
//!
//! /// Remembers when a document was seen last, and forgets it after an hour.
//! struct Seen;
//!
//! impl Service for Seen {
//!     fn describe() -> String {
//!         r#"{"name":"seen","version":"0.1.0","limits":{}}"#.into()
//!     }
//!     fn init(_: &str) -> Result<Seen, Fault> {
//!         Ok(Seen)
//!     }
//!     fn on_batch(
//!         &mut self,
//!         events: &Events<'_>,
//!         state: &mut dyn StateMut,
//!     ) -> Result<Vec<DocumentError>, Fault> {
//!         for event in events.iter() {
//!             state.put(event.key, event.body);
//!             let name = String::from_utf8_lossy(event.key);
//!             timer::set(&name, events.now_us() + 3_600_000_000, event.key);
//!         }
//!         Ok(Vec::new())
//!     }
//!     fn on_timer(
//!         &mut self,
//!         _now_us: u64,
//!         timers: &[Timer],
//!         state: &mut dyn StateMut,
//!     ) -> Result<(), Fault> {
//!         timers.iter().for_each(|timer| state.delete(&timer.payload));
//!         Ok(())
//!     }
//! }
//!
//! let mut seen = Harness::<Seen>::new("{}").unwrap();
//! seen.put("a", "1").put("b", "2").feed().unwrap();
//! seen.advance(Duration::from_secs(1800)).unwrap();
//! seen.put("b", "3").feed().unwrap();
//! assert_eq!(seen.state_text(), "a = 1\nb = 3\n");
//! seen.advance(Duration::from_secs(1800)).unwrap();
//! assert_eq!(seen.state_text(), "b = 3\n");
//! ```
//!
//! Like the host, it uses a new instance for every call, so that no surviving data can hide in the service, and
//! drops the writes of a failed call. External effects of a service (documents, requests) are not undone.

pub(crate) mod outside;
mod paths;
mod resolver;

pub use resolver::{kept, merged, version};

use crate::{
    DocumentError, Event, EventKind, Events, Fault, MemoryState, Request, Response, Service,
    StateMut, Timer, http, kv, pack, query,
};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::marker::PhantomData;
use std::time::Duration;

/// The clock of a new harness: 2023-11-14 22:13:20 UTC, in microseconds since the Unix epoch.
pub const START_US: u64 = 1_700_000_000_000_000;

/// Returns the lines that plugins have logged on this thread, and forgets them. For a program that runs a plugin as plain Rust, in
/// which the lines would fill the memory.
pub fn take_log() -> Vec<String> {
    outside::with(|outside| std::mem::take(&mut outside.log))
}

/// A change that has not been fed yet.
struct Change {
    vb: u16,
    key: String,
    /// `None` for a deletion.
    body: Option<Vec<u8>>,
    seqno: u64,
    /// The CAS.
    cas: u64,
    rev: u64,
    /// The section of extended attributes.
    xattrs: Vec<u8>,
    kind: EventKind,
}

/// A host for one service. A thread can have one harness at a time.
pub struct Harness<S: Service> {
    config: String,
    state: MemoryState,
    changes: Vec<Change>,
    seqno: u64,
    now_us: u64,
    service: PhantomData<S>,
}

impl<S: Service> Harness<S> {
    /// Deploys the service on an empty bucket.
    ///
    /// # Errors
    /// Fails if the service rejects its configuration.
    pub fn new(config: &str) -> Result<Harness<S>, Fault> {
        outside::with(|outside| *outside = outside::Outside::default());
        S::init(config)?;
        Ok(Harness {
            config: config.to_owned(),
            state: MemoryState::default(),
            changes: Vec::new(),
            seqno: 0,
            now_us: START_US,
            service: PhantomData,
        })
    }

    /// Queues a document for the next batch. JSON text is marked as JSON.
    pub fn put(&mut self, key: &str, body: &str) -> &mut Harness<S> {
        self.change(key, Some(body.into()))
    }

    /// Queues a deletion for the next batch.
    pub fn delete(&mut self, key: &str) -> &mut Harness<S> {
        self.change(key, None)
    }

    /// Turns the last queued change into an expiration.
    pub fn expired(&mut self) -> &mut Harness<S> {
        self.last().kind = EventKind::Expire;
        self
    }

    /// Moves the last queued change to another vBucket than 0.
    pub fn in_vbucket(&mut self, vb: u16) -> &mut Harness<S> {
        self.last().vb = vb;
        self
    }

    /// Sets CAS and revision of the last queued change.
    pub fn with_version(&mut self, cas: u64, rev: u64) -> &mut Harness<S> {
        let change = self.last();
        (change.cas, change.rev) = (cas, rev);
        self
    }

    /// Sets the section of extended attributes of the last queued change.
    pub fn with_xattrs(&mut self, section: &[u8]) -> &mut Harness<S> {
        self.last().xattrs = section.to_vec();
        self
    }

    fn last(&mut self) -> &mut Change {
        self.changes.last_mut().expect("a change was queued")
    }

    fn change(&mut self, key: &str, body: Option<Vec<u8>>) -> &mut Harness<S> {
        self.seqno += 1;
        let seqno = self.seqno;
        let kind = if body.is_some() { EventKind::Upsert } else { EventKind::Delete };
        let (key, cas) = (key.to_owned(), seqno << 16);
        let change = Change { vb: 0, key, body, seqno, cas, rev: 1, xattrs: Vec::new(), kind };
        self.changes.push(change);
        self
    }

    /// Feeds the queued changes as one batch. Returns the documents that failed.
    ///
    /// # Errors
    /// The fault of the service; its writes and the batch are then dropped.
    pub fn feed(&mut self) -> Result<Vec<DocumentError>, Fault> {
        let changes = std::mem::take(&mut self.changes);
        let events: Vec<_> = changes.iter().map(event).collect();
        let buffer = pack(&events, self.now_us);
        let events = Events::decode(&buffer).expect("it was just packed");
        let errors = self.write(|service, state| service.on_batch(&events, state))?;
        let mut all = outside::with(|outside| std::mem::take(&mut outside.failures));
        all.extend(errors);
        Ok(all)
    }

    /// Moves the clock, and fires each timer that becomes due at its time.
    ///
    /// # Errors
    /// The fault of the service; the clock then stays at the time of the failure.
    pub fn advance(&mut self, by: Duration) -> Result<(), Fault> {
        let end_us = self.now_us + u64::try_from(by.as_micros()).unwrap_or(u64::MAX / 2);
        while let Some(due_us) = self.timers().iter().map(|timer| timer.due_us).min()
            && due_us <= end_us
        {
            self.now_us = self.now_us.max(due_us);
            let now_us = self.now_us;
            self.write(|service, state| {
                let due: Vec<Timer> = outside::with(|outside| {
                    outside
                        .timers
                        .extract_if(.., |_, timer| timer.due_us <= now_us)
                        .collect::<Vec<_>>()
                })
                .into_iter()
                .map(|(_, timer)| timer)
                .collect();
                service.on_timer(now_us, &due, state)
            })?;
        }
        self.now_us = end_us;
        Ok(())
    }

    /// Cuts the history of vBucket 0 back to `seqno`. Returns the seqno at which the feed resumes.
    ///
    /// # Errors
    /// The fault of the service.
    pub fn rollback(&mut self, seqno: u64) -> Result<u64, Fault> {
        self.rollback_in(0, seqno)
    }

    /// Cuts the history of a vBucket back to `seqno`. Returns the seqno at which the feed resumes.
    ///
    /// # Errors
    /// The fault of the service.
    pub fn rollback_in(&mut self, vb: u16, seqno: u64) -> Result<u64, Fault> {
        loop {
            if let Some(reached) =
                self.write(|service, state| service.rollback(vb, seqno, state))?
            {
                return Ok(reached);
            }
        }
    }

    /// Returns the complete response to `GET path`.
    ///
    /// # Errors
    /// As for [`Harness::ask`].
    pub fn get(&mut self, path: &str) -> Result<Response, Fault> {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let request = Request {
            method: "GET".into(),
            path: path.into(),
            query: query.into(),
            ..Request::default()
        };
        self.ask(&request)
    }

    /// Returns the complete response to a request, which gets the time of the clock.
    ///
    /// # Errors
    /// The fault of the service.
    pub fn ask(&mut self, request: &Request) -> Result<Response, Fault> {
        let request = Request { now_us: self.now_us, ..request.clone() };
        let mut service = S::init(&self.config)?;
        let response = service.handle(&request, &self.state)?;
        self.whole(&mut service, response)
    }

    /// Returns the complete response that is merged from those of several nodes.
    ///
    /// # Errors
    /// The fault of the service.
    pub fn merge(&mut self, request: &Request, parts: Vec<Response>) -> Result<Response, Fault> {
        let request = Request { now_us: self.now_us, ..request.clone() };
        let mut service = S::init(&self.config)?;
        let response = service.merge(&request, parts)?;
        self.whole(&mut service, response)
    }

    fn whole(&self, service: &mut S, mut response: Response) -> Result<Response, Fault> {
        while let Some(cursor) = response.cursor.take() {
            let chunk = service.more(&cursor, &self.state)?;
            response.body.extend(chunk.body);
            response.cursor = chunk.cursor;
        }
        Ok(response)
    }

    /// Sets the handler of HTTP requests that the service sends.
    pub fn on_http(
        &mut self,
        answering: impl FnMut(&http::Request) -> Result<http::Response, http::Error> + 'static,
    ) {
        outside::with(|outside| outside.answering = Some(Box::new(answering)));
    }

    /// Sets the handler of queries that the service sends; it returns the rows.
    pub fn on_query(
        &mut self,
        querying: impl FnMut(&query::Statement) -> Result<Vec<String>, query::Failure> + 'static,
    ) {
        outside::with(|outside| outside.querying = Some(Box::new(querying)));
    }

    /// Sets the handler of queries that the service sends to other services; it returns the rows.
    pub fn on_query_at(
        &mut self,
        querying: impl FnMut(query::Service, &query::Statement) -> Result<Vec<String>, query::Failure>
        + 'static,
    ) {
        outside::with(|outside| outside.querying_at = Some(Box::new(querying)));
    }

    /// Returns the number of queries that have not ended.
    pub fn open_queries(&self) -> usize {
        outside::with(|outside| outside.queries.len())
    }

    /// Stores a document that the service can read, without feeding it.
    pub fn store(&mut self, keyspace: &str, key: &str, content: &kv::Content) {
        outside::store(keyspace, key.as_bytes(), content);
    }

    /// Returns the extended attributes of a document that the service can read, as a JSON object.
    pub fn attributes(&self, keyspace: &str, key: &str) -> serde_json::Value {
        let at = outside::place(keyspace, key.as_bytes());
        outside::with(|outside| outside.xattrs.get(&at).cloned()).unwrap_or_default().into()
    }

    /// Removes a document that the service can read, like a crash before it was stored.
    pub fn lose(&mut self, keyspace: &str, key: &str) {
        outside::with(|outside| {
            outside.documents.remove(&outside::place(keyspace, key.as_bytes()))
        });
    }

    /// Refuses all document calls of the service with `error` from now on; `None` stops this.
    pub fn refuse_documents(&mut self, error: Option<kv::Error>) {
        outside::with(|outside| outside.refusing = error);
    }

    /// Returns the documents that can be read through `kv`, by keyspace and key.
    pub fn documents(&self) -> BTreeMap<(String, Vec<u8>), kv::Document> {
        outside::with(|outside| outside.documents.clone())
    }

    /// Lets the time `by` pass whenever the service asks for the duration of an item.
    pub fn pass_when_asked(&mut self, by: Duration) {
        let by_ms = u32::try_from(by.as_millis()).unwrap_or(u32::MAX);
        outside::with(|outside| outside.ask_ms = by_ms);
    }

    /// Returns the timers that are set, by name.
    pub fn timers(&self) -> Vec<Timer> {
        outside::with(|outside| outside.timers.values().cloned().collect())
    }

    /// Returns the last item that began in the last call, if any; the items before it are not repeated.
    pub fn turn(&self) -> Option<u32> {
        outside::with(|outside| outside.turn)
    }

    /// Returns the lines of the log.
    pub fn log(&self) -> Vec<String> {
        outside::with(|outside| outside.log.clone())
    }

    /// Returns the metrics.
    pub fn metrics(&self) -> BTreeMap<String, f64> {
        outside::with(|outside| outside.metrics.clone())
    }

    /// Returns the time in microseconds since the Unix epoch.
    pub fn now_us(&self) -> u64 {
        self.now_us
    }

    /// Returns the state.
    pub fn state(&self) -> &MemoryState {
        &self.state
    }

    /// Returns the state as text: one line per entry, with non-ASCII bytes escaped.
    pub fn state_text(&self) -> String {
        let mut text = String::new();
        for (key, value) in self.state.iter() {
            writeln!(text, "{} = {}", key.escape_ascii(), value.escape_ascii())
                .expect("a text takes all that is written to it");
        }
        text
    }

    fn write<T>(
        &mut self,
        call: impl FnOnce(&mut S, &mut dyn StateMut) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let timers = outside::with(|outside| {
            (outside.timers_vb, outside.turn, outside.passed_ms) = (None, None, 0);
            outside.failures.clear();
            outside.timers.clone()
        });
        let mut state = self.state.clone();
        let outcome = S::init(&self.config).and_then(|mut service| call(&mut service, &mut state));
        match &outcome {
            Ok(_) => self.state = state,
            Err(_) => outside::with(|outside| outside.timers = timers),
        }
        outcome
    }
}

fn event(change: &Change) -> Event<'_> {
    let body = change.body.as_deref().unwrap_or_default();
    let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok();
    Event {
        index: 0,
        vb: change.vb,
        seqno: change.seqno,
        cas: change.cas,
        rev: change.rev,
        flags: 0,
        expiry: 0,
        collection: 0,
        kind: change.kind,
        datatype: u8::from(is_json),
        key: change.key.as_bytes(),
        xattrs: &change.xattrs,
        body,
        previous: None,
    }
}
