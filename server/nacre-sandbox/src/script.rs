//! Scripts for plugins: documents, time and requests with their expected results.
//!
//! ```json
//! {"config": {}, "steps": [
//!     {"upsert": {"a": {"state": "CA"}, "b": {"state": "CA"}}},
//!     {"delete": ["b"]},
//!     {"advance_ms": 60000},
//!     {"request": "GET /CA", "status": 200, "answer": {"count": 1}},
//!     {"state": {"CA": 1}},
//!     {"documents": {}},
//!     {"log": []}
//! ]}
//! ```
//!
//! Requests to a plugin of the world `index-type` are scans: `GET /scan?prefix=ca`.
//!
//! Time passes only with `advance_ms`, so that a script always has the same result.

use crate::{Documents, Error, MemoryDocuments, Partition, Plugin, Reader, Request, Setup, World};
use nacre_dcp::{Batch, ResumePoint};
use nacre_state::{MemoryStorage, Scan, StateStorage};
use nacre_types::{
    Cas, CollectionId, DATATYPE_JSON, DocKey, Document, Kind, Meta, Now, Seqno, VbUuid, Vbid,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Start time of every script: 2026-01-01 00:00:00 UTC.
const BEGIN_NS: u64 = 1_767_225_600_000_000_000;
/// Number of vBuckets in a script's environment.
const VBUCKETS: u16 = 4;
/// The collection ID in the keys of its documents.
const COLLECTION: CollectionId = CollectionId(8);

/// A script.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// A sentence about the script's purpose.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// The configuration of the deployment.
    #[serde(default = "no_config")]
    pub config: Value,
    /// Documents that exist for `kv`, by `scope.collection` and key.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub documents: BTreeMap<String, BTreeMap<String, Value>>,
    /// Events, with their expected results.
    pub steps: Vec<Step>,
}

fn no_config() -> Value {
    json!({})
}

/// One step: an event or an observation, with the expected result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Documents to write, by key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upsert: Option<Map<String, Value>>,
    /// Keys of documents to delete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delete: Option<Vec<String>>,
    /// Keys of documents that expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expire: Option<Vec<String>>,
    /// Time to advance, in milliseconds. Due timers fire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advance_ms: Option<u64>,
    /// A request: method, path and query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// The body of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Value>,
    /// The expected status of the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The expected body of the reply: JSON, or text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Value>,
    /// The expected errors of documents and timers that the plugin could not process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errors: Option<Vec<String>>,
    /// All entries of the state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Map<String, Value>>,
    /// All documents that `kv` sees, by `scope.collection` and key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub documents: Option<Value>,
    /// Log lines since the last observation: level and text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<Vec<String>>,
}

impl Step {
    /// Returns the members that differ from `actual`, each with both values. Only expected members and errors are
    /// compared.
    pub fn differences(&self, actual: &Step) -> Vec<(&'static str, Value, Value)> {
        let no_errors = Some(Vec::new());
        let members = [
            ("status", json!(self.status), json!(actual.status)),
            ("answer", json!(self.answer), json!(actual.answer)),
            ("state", json!(self.state), json!(actual.state)),
            ("documents", json!(self.documents), json!(actual.documents)),
            ("log", json!(self.log), json!(actual.log)),
            (
                "errors",
                json!(self.errors.as_ref().or(no_errors.as_ref())),
                json!(actual.errors.as_ref().or(no_errors.as_ref())),
            ),
        ];
        members
            .into_iter()
            .filter(|(_, expected, actual)| !expected.is_null() && expected != actual)
            .collect()
    }
}

/// Plays a script. Returns it with the actual results instead of the expected ones.
///
/// `setup` provides the grants of the plugin; the configuration comes from the script, and documents are in memory.
///
/// # Errors
/// The errors of [`Partition::open`] and of any call that stops the partition.
pub fn play(plugin: &Plugin, setup: Setup, script: &Script) -> Result<Script, Error> {
    let documents = Arc::new(MemoryDocuments::default());
    for (keyspace, of_keyspace) in &script.documents {
        for (key, body) in of_keyspace {
            let content = crate::Content { body: body.to_string().into(), ..Default::default() };
            documents.put(keyspace, key.as_bytes(), content);
        }
    }
    let mut stage = Stage::new(plugin, setup, documents)?;
    let steps = script.steps.iter().map(|step| stage.play(step));
    let steps = steps.collect::<Result<Vec<Step>, Error>>()?;
    Ok(Script { steps, ..script.clone() })
}

/// The measured cost of documents.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Time of the writer per document, in nanoseconds.
    pub ns_each: f64,
    /// Number of failed documents, including those that killed an instance.
    pub failed: u64,
    /// Size of the state's keys, values and timers, in bytes.
    pub state_bytes: usize,
    /// Linear memory of its instances, in bytes.
    pub memory_bytes: usize,
}

/// Feeds `count` documents in batches of `batch`: the given ones, and then repeatedly the same ones under other
/// keys.
///
/// # Errors
/// The errors of [`play`].
pub fn measure(
    plugin: &Plugin,
    setup: Setup,
    documents: &[(String, Value)],
    count: usize,
    batch: usize,
) -> Result<Measured, Error> {
    let mut stage = Stage::new(plugin, setup, Arc::new(MemoryDocuments::default()))?;
    let bodies: Vec<(&str, String)> =
        documents.iter().map(|(key, body)| (key.as_str(), body.to_string())).collect();
    let turns = bodies.iter().cycle().enumerate().take(if bodies.is_empty() { 0 } else { count });
    let keyed: Vec<(String, &String)> = turns
        .map(|(index, (key, body))| (format!("{key}/{}", index / bodies.len()), body))
        .collect();
    for part in keyed.chunks(batch.max(1)) {
        let changes: Vec<_> =
            part.iter().map(|(key, body)| (key.as_str(), Kind::Alive, (*body).clone())).collect();
        stage.feed(&changes)?;
    }
    let status = stage.partition.status();
    Ok(Measured {
        ns_each: status.writer.elapsed_ns as f64 / status.documents.max(1) as f64,
        failed: status.errors + status.dead_letter_count,
        state_bytes: status.state_bytes,
        memory_bytes: status.memory_bytes,
    })
}

struct Stage {
    partition: Partition,
    reader: Reader,
    storage: MemoryStorage,
    documents: Arc<MemoryDocuments>,
    seqnos: BTreeMap<Vbid, u64>,
    now: Now,
    /// True if requests are scans, which the host answers instead of the plugin.
    is_index: bool,
    /// Number of log lines already shown.
    lines_seen: usize,
}

impl Stage {
    fn new(plugin: &Plugin, setup: Setup, documents: Arc<MemoryDocuments>) -> Result<Stage, Error> {
        let storage = MemoryStorage::default();
        let setup = Setup { documents: Arc::clone(&documents) as Arc<dyn Documents>, ..setup };
        let partition = Partition::open(plugin.clone(), setup, Box::new(storage.clone()))?;
        Ok(Stage {
            reader: partition.reader(),
            partition,
            storage,
            documents,
            seqnos: BTreeMap::new(),
            now: Now { unix_ns: BEGIN_NS, monotonic_ns: 0 },
            is_index: plugin.world() == World::IndexType,
            lines_seen: 0,
        })
    }

    fn play(&mut self, step: &Step) -> Result<Step, Error> {
        let mut actual = Step {
            status: None,
            answer: None,
            errors: None,
            state: None,
            documents: None,
            log: None,
            ..step.clone()
        };
        let mut changes: Vec<(&str, Kind, String)> = Vec::new();
        let upserts = step.upsert.iter().flatten();
        changes.extend(upserts.map(|(key, body)| (key.as_str(), Kind::Alive, body.to_string())));
        let gone = |kind| move |key: &'_ String| (key.clone(), kind, String::new());
        let deleted: Vec<_> = step.delete.iter().flatten().map(gone(Kind::Deleted)).collect();
        let expired: Vec<_> = step.expire.iter().flatten().map(gone(Kind::Expired)).collect();
        let ended = deleted.iter().chain(&expired);
        changes.extend(ended.map(|(key, kind, body)| (key.as_str(), *kind, body.clone())));
        let mut errors = Vec::new();
        if !changes.is_empty() {
            errors.extend(self.feed(&changes)?);
        }
        if let Some(ms) = step.advance_ms {
            self.now.unix_ns += ms * 1_000_000;
            self.now.monotonic_ns += ms * 1_000_000;
        }
        errors.extend(self.fire()?);
        actual.errors = (!errors.is_empty()).then_some(errors);
        if let Some(request) = &step.request {
            let (status, answer) = self.ask(request, step.body.as_ref());
            (actual.status, actual.answer) = (Some(status), Some(answer));
        }
        if step.state.is_some() {
            actual.state = Some(self.state());
        }
        if step.documents.is_some() {
            actual.documents = Some(self.documents());
        }
        if step.log.is_some() {
            actual.log = Some(self.log());
        }
        Ok(actual)
    }

    fn feed(&mut self, changes: &[(&str, Kind, String)]) -> Result<Vec<String>, Error> {
        let mut batch = Batch::default();
        for (key, kind, body) in changes {
            let vbid = Vbid::of(key.as_bytes(), VBUCKETS);
            let seqno = self.seqnos.entry(vbid).or_default();
            *seqno += 1;
            let meta = Meta {
                seqno: Seqno(*seqno),
                cas: Cas(self.now.unix_ns + *seqno),
                rev: 1,
                datatype: if *kind == Kind::Alive { DATATYPE_JSON } else { 0 },
                kind: *kind,
                ..Meta::default()
            };
            let key = DocKey::new(COLLECTION, key.as_bytes());
            let document = Document::new(meta, key.prefixed(), body.as_bytes());
            batch.documents.push((vbid, document));
        }
        batch.progress = self.seqnos.iter().map(|(vbid, seqno)| (*vbid, point(*seqno))).collect();
        let report = self.partition.on_batch(&batch, self.now)?;
        let text = |key: &[u8], reason: &str| format!("{}: {reason}", String::from_utf8_lossy(key));
        let failed = report.errors.iter().map(|error| text(&error.key, &error.message));
        let dead = report.dead_letters.iter().map(|dead| text(&dead.key, &dead.reason));
        Ok(failed.chain(dead).collect())
    }

    /// Fires all due timers, including those that fired timers set.
    fn fire(&mut self) -> Result<Vec<String>, Error> {
        let mut errors = Vec::new();
        while self.partition.next_timer_us().is_some_and(|due| due <= self.now.unix_ns / 1000) {
            let report = self.partition.on_timers(self.now)?;
            let dead = report.dead_timers.iter();
            errors.extend(dead.map(|timer| format!("timer {}: {}", timer.name, timer.reason)));
        }
        Ok(errors)
    }

    fn ask(&self, request: &str, body: Option<&Value>) -> (u16, Value) {
        let (method, target) = request.split_once(' ').unwrap_or(("GET", request));
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let request = Request {
            method: method.into(),
            path: path.into(),
            query: query.into(),
            headers: Vec::new(),
            body: body.map(text_of).unwrap_or_default().into(),
        };
        if self.is_index {
            return self.scan(&request);
        }
        match self.reader.handle(&request, self.now).and_then(|answer| answer.collect()) {
            Ok(response) => (response.status, value_of(&response.body)),
            // Equals the node's reply for a plugin that fails.
            Err(error) => (500, error.to_string().into()),
        }
    }

    /// Equals the node's reply for an index.
    fn scan(&self, request: &Request) -> (u16, Value) {
        if request.path != "/scan" {
            return (404, "an index answers GET /scan?…, and nothing else".into());
        }
        let scan = match Scan::read(&request.query) {
            Ok(scan) => scan,
            Err(reason) => return (400, reason.into()),
        };
        match self.reader.index() {
            Ok(index) => (200, scan.answer(&index.page(&scan, |_| true), false, |_| None)),
            Err(error) => (503, error.to_string().into()),
        }
    }

    fn state(&mut self) -> Map<String, Value> {
        let loaded = self.storage.load().expect("memory can be read");
        let entry = |(key, value): (Vec<u8>, Vec<u8>)| (shown(&key), value_of(&value));
        loaded.entries.into_iter().map(entry).collect()
    }

    fn documents(&self) -> Value {
        let mut all: BTreeMap<String, BTreeMap<String, Value>> = BTreeMap::new();
        for (keyspace, key, found) in self.documents.all() {
            all.entry(keyspace).or_default().insert(shown(&key), value_of(&found.body));
        }
        json!(all)
    }

    fn log(&mut self) -> Vec<String> {
        let lines = self.partition.status().log;
        let new = lines.iter().skip(self.lines_seen.min(lines.len()));
        let new: Vec<String> = new.map(|line| format!("{} {}", line.level, line.message)).collect();
        self.lines_seen = lines.len();
        new
    }
}

fn point(seqno: u64) -> ResumePoint {
    let seqno = Seqno(seqno);
    ResumePoint { vb_uuid: VbUuid(1), seqno, snapshot_start: seqno, snapshot_end: seqno }
}

/// Renders bytes for a script: text, or bytes with escapes.
fn shown(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.escape_ascii().to_string(),
    }
}

fn value_of(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or_else(|_| Value::String(shown(bytes)))
}

fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
