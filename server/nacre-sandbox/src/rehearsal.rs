//! Dry runs of a plugin: it gets real documents, and its effects are recorded instead of carried out.
//!
//! Later reads of the plugin see its writes; other readers do not. An HTTP request gets status 200 and an empty body.
//! Timers are recorded, but do not fire.

use crate::capability::{
    DatabaseKeyspace, DocumentCall, DocumentReply, Documents, Found, Http, HttpError, HttpRequest,
    HttpResponse, KvError, LogLine, MemoryDocuments, Mutation,
};
use crate::{Error, Partition, Plugin, Request, Response, Setup};
use nacre_dcp::Batch;
use nacre_state::{Changes, Loaded, StateStorage, Timer};
use nacre_types::{Document, Now, Vbid};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// A recorded effect.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// A document is written.
    Document {
        /// `scope.collection`, or `bucket.scope.collection`.
        keyspace: String,
        /// The key.
        key: Vec<u8>,
        /// The operation: `store`, `remove`, `count`, `touch` or `mutate`.
        operation: &'static str,
        /// The document afterwards; `None` if it is deleted.
        after: Option<Found>,
    },
    /// A query changes a document.
    Row {
        /// The collection.
        keyspace: DatabaseKeyspace,
        /// The mutation.
        mutation: Mutation,
    },
    /// A request is sent.
    Request(HttpRequest),
    /// A timer is set, or cancelled if `set` is `None`.
    Timer {
        /// The name.
        name: String,
        /// Its time and payload.
        set: Option<Timer>,
    },
}

/// Maximum size of the recorded effects of all documents in a dry run, in bytes, because they are kept in memory
/// together.
const EFFECTS_BYTES_MAX: usize = 32 << 20;

/// Error message for an effect beyond the maximum.
pub const TOO_MUCH: &str = "a dry run reports at most 32 MiB of effects";

/// Effects in order. Clones share them.
#[derive(Clone, Default)]
pub struct Effects(Arc<Mutex<Noted>>);

#[derive(Default)]
struct Noted {
    effects: Vec<Effect>,
    /// Size of all effects so far, in bytes.
    bytes: usize,
}

impl Effect {
    fn bytes(&self) -> usize {
        let content = match self {
            Effect::Document { keyspace, key, after, .. } => {
                keyspace.len() + key.len() + after.as_ref().map_or(0, |found| found.body.len())
            }
            Effect::Row { mutation, .. } => mutation.id.len() + mutation.body.len(),
            Effect::Request(request) => request.target.len() + request.body.len(),
            Effect::Timer { name, set } => {
                name.len() + set.as_ref().map_or(0, |timer| timer.payload.len())
            }
        };
        size_of::<Effect>() + content
    }
}

impl Effects {
    /// Records an effect. Returns false, and records nothing, if there are too many.
    pub fn add(&self, effect: Effect) -> bool {
        let mut noted = self.0.lock();
        noted.bytes = noted.bytes.saturating_add(effect.bytes());
        if noted.bytes > EFFECTS_BYTES_MAX {
            return false;
        }
        noted.effects.push(effect);
        true
    }

    fn take(&self) -> Vec<Effect> {
        std::mem::take(&mut self.0.lock().effects)
    }
}

/// The effects of a plugin on one document.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rehearsed {
    /// The effects, including those before an error.
    pub effects: Vec<Effect>,
    /// The error, if the document failed.
    pub error: Option<String>,
    /// The log lines.
    pub log: Vec<LogLine>,
    /// The changes of metrics.
    pub counted: BTreeMap<String, f64>,
}

/// A dry run of a plugin.
pub struct Rehearsal {
    partition: Partition,
    effects: Effects,
    counted: BTreeMap<String, f64>,
}

impl Rehearsal {
    /// Starts `plugin` with an empty state. The documents of `setup` are only read, and no requests are sent; the
    /// implementation of its queries must record their effects in `effects` too.
    ///
    /// # Errors
    /// The errors of [`Partition::open`].
    pub fn new(plugin: Plugin, setup: Setup, effects: Effects) -> Result<Rehearsal, Error> {
        let documents = Overlay {
            beneath: Arc::clone(&setup.documents),
            written: MemoryDocuments::default(),
            known: Mutex::default(),
            effects: effects.clone(),
        };
        let http = Arc::new(Unsent(effects.clone()));
        let setup = Setup { documents: Arc::new(documents), http, ..setup };
        let partition = Partition::open(plugin, setup, Box::new(Ledger(effects.clone())))?;
        Ok(Rehearsal { partition, effects, counted: BTreeMap::new() })
    }

    /// Passes a document to the plugin, with its previous version if known.
    ///
    /// # Errors
    /// The error that stops the plugin. The failure of a single document is part of the result.
    pub fn play(
        &mut self,
        vbid: Vbid,
        document: &Document,
        previous: Option<Document>,
        now: Now,
    ) -> Result<Rehearsed, Error> {
        let previous = previous.map(|previous| ((vbid, document.meta.seqno), previous));
        let batch = Batch {
            documents: vec![(vbid, document.clone())],
            previous: previous.into_iter().collect(),
            ..Batch::default()
        };
        let lines = self.partition.status().log.len();
        let error = match self.partition.on_batch(&batch, now) {
            Ok(report) => {
                let failed = report.errors.into_iter().map(|error| error.message);
                failed.chain(report.dead_letters.into_iter().map(|dead| dead.reason)).next()
            }
            Err(error) if error.is_retryable() => Some(error.to_string()),
            Err(error) => return Err(error),
        };
        let status = self.partition.status();
        let before = std::mem::replace(&mut self.counted, status.metrics);
        let more = |(name, count): (&String, &f64)| {
            let more = count - before.get(name).copied().unwrap_or_default();
            (more != 0.0).then(|| (name.clone(), more))
        };
        Ok(Rehearsed {
            effects: self.effects.take(),
            error,
            log: status.log.into_iter().skip(lines).collect(),
            counted: self.counted.iter().filter_map(more).collect(),
        })
    }

    /// Answers a request from the state after the documents so far.
    ///
    /// # Errors
    /// The errors of [`Reader::handle`](crate::Reader::handle).
    pub fn ask(&self, request: &Request, now: Now) -> Result<Response, Error> {
        self.partition.reader().handle(request, now)?.collect()
    }
}

/// Documents with an overlay of writes.
struct Overlay {
    beneath: Arc<dyn Documents>,
    written: MemoryDocuments,
    /// Keys that were written or removed.
    known: Mutex<BTreeSet<(String, Vec<u8>)>>,
    effects: Effects,
}

impl Documents for Overlay {
    fn call(
        &self,
        keyspace: &str,
        key: &[u8],
        call: &DocumentCall,
        left: Duration,
    ) -> Result<DocumentReply, KvError> {
        let at = (keyspace.to_owned(), key.to_vec());
        let is_known = self.known.lock().contains(&at);
        if !is_known && !call.writes() {
            return self.beneath.call(keyspace, key, call, left);
        }
        if !is_known {
            match self.beneath.get(keyspace, key, left) {
                Ok(found) => self.written.adopt(keyspace, key, found),
                Err(KvError::NotFound) => {}
                Err(error) => return Err(error),
            }
            self.known.lock().insert(at);
        }
        let reply = self.written.call(keyspace, key, call, left)?;
        let operation = match call {
            DocumentCall::Get | DocumentCall::Lookup(_) | DocumentCall::LookupAny(_) => {
                return Ok(reply);
            }
            DocumentCall::Store(..) => "store",
            DocumentCall::Remove(_) => "remove",
            DocumentCall::Count(..) => "count",
            DocumentCall::Touch(_) => "touch",
            DocumentCall::Mutate(..) | DocumentCall::MutateAny(..) => "mutate",
        };
        let after = self.written.get(keyspace, key, left).ok();
        let (keyspace, key) = (keyspace.to_owned(), key.to_vec());
        match self.effects.add(Effect::Document { keyspace, key, operation, after }) {
            true => Ok(reply),
            false => Err(KvError::Denied(TOO_MUCH.into())),
        }
    }
}

/// Replies to requests without sending them.
struct Unsent(Effects);

impl Http for Unsent {
    fn send(
        &self,
        request: &HttpRequest,
        _: usize,
        _: Duration,
    ) -> Result<HttpResponse, HttpError> {
        match self.0.add(Effect::Request(request.clone())) {
            true => Ok(HttpResponse { status: 200, ..HttpResponse::default() }),
            false => Err(HttpError::Denied(TOO_MUCH.into())),
        }
    }
}

/// A storage that stores nothing and records timers.
struct Ledger(Effects);

impl StateStorage for Ledger {
    fn load(&mut self) -> Result<Loaded, String> {
        Ok(Loaded::default())
    }

    fn commit(&mut self, changes: &Changes) -> Result<(), String> {
        for ((_, name), timer) in &changes.timers {
            if !self.0.add(Effect::Timer { name: name.clone(), set: timer.clone() }) {
                return Err(TOO_MUCH.into());
            }
        }
        Ok(())
    }

    fn clear(&mut self) -> Result<(), String> {
        Ok(())
    }
}
