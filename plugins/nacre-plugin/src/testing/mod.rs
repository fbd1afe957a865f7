//! A host for tests: a service as plain Rust, fed by a script, with a clock that only the test moves.
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
//! Like the host, it gives every call a new instance, so that nothing that must survive can hide in the service, and
//! drops what a failed call wrote. What a service does outside (documents, requests) is not taken back.

pub(crate) mod outside;
mod paths;

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

/// A change that has not been fed yet.
struct Change {
    key: String,
    /// None for a deletion.
    body: Option<Vec<u8>>,
    seqno: u64,
    /// The version.
    cas: u64,
    rev: u64,
    /// The section of extended attributes.
    xattrs: Vec<u8>,
    kind: EventKind,
}

/// A host for one service, on one thread: a thread has one at a time.
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
    /// What the service says about its configuration.
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

    /// Queues a document for the next batch. Text that is JSON is marked as that.
    pub fn put(&mut self, key: &str, body: &str) -> &mut Harness<S> {
        self.change(key, Some(body.into()))
    }

    /// Queues a deletion for the next batch.
    pub fn delete(&mut self, key: &str) -> &mut Harness<S> {
        self.change(key, None)
    }

    /// Makes what was queued last expire instead.
    pub fn expired(&mut self) -> &mut Harness<S> {
        self.last().kind = EventKind::Expire;
        self
    }

    /// Gives what was queued last another version.
    pub fn with_version(&mut self, cas: u64, rev: u64) -> &mut Harness<S> {
        let change = self.last();
        (change.cas, change.rev) = (cas, rev);
        self
    }

    /// Gives what was queued last a section of extended attributes.
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
        self.changes.push(Change { key, body, seqno, cas, rev: 1, xattrs: Vec::new(), kind });
        self
    }

    /// Feeds what is queued as one batch of vBucket 0; gives the documents that failed.
    ///
    /// # Errors
    /// What the service says; its writes are dropped then, and the batch with them.
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

    /// Moves the clock, and fires the timers that are due on the way, each at its time.
    ///
    /// # Errors
    /// What the service says; the clock stands where it failed.
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

    /// Cuts the history back to `seqno`; gives where the feed goes on.
    ///
    /// # Errors
    /// What the service says.
    pub fn rollback(&mut self, seqno: u64) -> Result<u64, Fault> {
        loop {
            if let Some(reached) = self.write(|service, state| service.rollback(0, seqno, state))? {
                return Ok(reached);
            }
        }
    }

    /// The answer to `GET path`, all pieces together.
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

    /// The answer to a request, all pieces together; its time is that of the clock.
    ///
    /// # Errors
    /// What the service says.
    pub fn ask(&mut self, request: &Request) -> Result<Response, Fault> {
        let request = Request { now_us: self.now_us, ..request.clone() };
        let mut service = S::init(&self.config)?;
        let response = service.handle(&request, &self.state)?;
        self.whole(&mut service, response)
    }

    /// The answer that is made of those of several nodes, all pieces together.
    ///
    /// # Errors
    /// What the service says.
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

    /// Answers the requests that the service sends.
    pub fn on_http(
        &mut self,
        answering: impl FnMut(&http::Request) -> Result<http::Response, http::Error> + 'static,
    ) {
        outside::with(|outside| outside.answering = Some(Box::new(answering)));
    }

    /// Gives the rows of the queries that the service asks.
    pub fn on_query(
        &mut self,
        querying: impl FnMut(&query::Statement) -> Result<Vec<String>, query::Failure> + 'static,
    ) {
        outside::with(|outside| outside.querying = Some(Box::new(querying)));
    }

    /// Gives the rows of the queries that the service asks of other services.
    pub fn on_query_at(
        &mut self,
        querying: impl FnMut(query::Service, &query::Statement) -> Result<Vec<String>, query::Failure>
        + 'static,
    ) {
        outside::with(|outside| outside.querying_at = Some(Box::new(querying)));
    }

    /// How many queries have begun and not ended.
    pub fn open_queries(&self) -> usize {
        outside::with(|outside| outside.queries.len())
    }

    /// Stores a document that the service can read, without feeding it.
    pub fn store(&mut self, keyspace: &str, key: &str, content: &kv::Content) {
        outside::store(keyspace, key.as_bytes(), content);
    }

    /// The extended attributes of a document that the service can read, as a JSON object.
    pub fn attributes(&self, keyspace: &str, key: &str) -> serde_json::Value {
        let at = outside::place(keyspace, key.as_bytes());
        outside::with(|outside| outside.xattrs.get(&at).cloned()).unwrap_or_default().into()
    }

    /// Removes a document that the service can read, as a crash does with one that was not stored yet.
    pub fn lose(&mut self, keyspace: &str, key: &str) {
        outside::with(|outside| {
            outside.documents.remove(&outside::place(keyspace, key.as_bytes()))
        });
    }

    /// Refuses with `error` whatever the service asks of documents from now on; with none, nothing any more.
    pub fn refuse_documents(&mut self, error: Option<kv::Error>) {
        outside::with(|outside| outside.refusing = error);
    }

    /// The documents that can be read through `kv`, by keyspace and key.
    pub fn documents(&self) -> BTreeMap<(String, Vec<u8>), kv::Document> {
        outside::with(|outside| outside.documents.clone())
    }

    /// Has `by` pass each time that the service asks how long an item has taken.
    pub fn pass_when_asked(&mut self, by: Duration) {
        let by_ms = u32::try_from(by.as_millis()).unwrap_or(u32::MAX);
        outside::with(|outside| outside.ask_ms = by_ms);
    }

    /// The timers that are set, by name.
    pub fn timers(&self) -> Vec<Timer> {
        outside::with(|outside| outside.timers.values().cloned().collect())
    }

    /// The item that began last in the last call, if one did: those before it are not done again.
    pub fn turn(&self) -> Option<u32> {
        outside::with(|outside| outside.turn)
    }

    /// The lines of the log.
    pub fn log(&self) -> Vec<String> {
        outside::with(|outside| outside.log.clone())
    }

    /// The numbers for the operator.
    pub fn metrics(&self) -> BTreeMap<String, f64> {
        outside::with(|outside| outside.metrics.clone())
    }

    /// The time, in microseconds since the Unix epoch.
    pub fn now_us(&self) -> u64 {
        self.now_us
    }

    /// The state.
    pub fn state(&self) -> &MemoryState {
        &self.state
    }

    /// The state as text: a line an entry, what is not ASCII escaped.
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
        vb: 0,
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
