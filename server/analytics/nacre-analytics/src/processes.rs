//! Queries over documents that are in several processes.
//!
//! ```text
//! query ─► split ─► fragments ─┬─► own part, in this process      ─► rows ─┐
//!                              ├─► POST read ─► part 1, process 1 ─► rows ─┼─► snapshot ─► last step of the query
//!                              └─► POST read ─► part 2, process 2 ╳        │
//!                                    once more  part 2, process 0 ─► rows ─┘
//! ```
//!
//! The rows of a fragment are used only if its answer is complete. If a process ends before, the following process is asked for
//! the same part: it begins to follow the part's vBuckets, and answers when it has their documents.

use crate::answer::{Answer, Piece};
use crate::catalog::{Catalog, Collection};
use crate::engine::{CollectionName, Engine};
use crate::error::{self, Error, Result};
use crate::fleet::{self, Failure};
use crate::follower::{Follower, lock};
use crate::plan;
use crate::plan::fragment::{Fragment, PARTIAL, split};
use crate::request::Request;
use crate::rows::{self, Patience, Snapshots};
use crate::shadow::{Row, Snapshot};
use bytes::Bytes;
use nacre_query::Settings;
use nacre_sql::ast::{Select, Statement as Sql};
use nacre_sql::{parse_analytics, write_string};
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::Sender;

/// Time for which a process keeps the part of another one without being asked for it.
const ADOPTED_FOR: Duration = Duration::from_secs(600);
/// Time limit for a process to accept a catalog.
const ANNOUNCE_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of a piece of an answer.
const PIECE_BYTES: usize = 64 << 10;
/// The beginning of the last line of a complete answer; no JSON text begins so.
const END: &str = "end ";
/// The beginning of the last line of an answer that has failed.
const ERROR: &str = "error ";

/// A request for the rows of a fragment over a part of a collection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PartRequest {
    /// Scope of the collection.
    pub scope: String,
    /// Name of the collection.
    pub name: String,
    /// Definition of the collection.
    pub collection: Collection,
    /// False if the link of the scope is disconnected.
    pub is_connected: bool,
    /// The part.
    pub part: u16,
    /// The query; `None` for all documents with their metadata.
    pub statement: Option<String>,
    /// True if the rows must reflect all writes before the request.
    pub is_consistent: bool,
    /// Time limit of the wait for these writes, in milliseconds.
    pub scan_wait_ms: Option<u64>,
    /// Time limit in milliseconds.
    pub timeout_ms: u64,
}

/// Counts of the data that was read for an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Read {
    /// Documents in the part.
    pub documents: u64,
    /// Bytes of the columns and texts that were read.
    pub bytes: u64,
    /// Rows in the answer.
    pub rows: u64,
}

/// The work of a process for a query.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// The position of the process.
    pub process: usize,
    /// The part.
    pub part: u16,
    /// Counts of the data that was read.
    #[serde(flatten)]
    pub read: Read,
    /// The number of processes that were asked.
    pub attempts: usize,
}

/// A part of another process that this one follows.
pub(crate) struct Adopted {
    follower: Arc<Follower>,
    used: Instant,
}

/// A query of a user.
pub(crate) struct Asked<'a> {
    pub text: &'a str,
    pub catalog: &'a Catalog,
    pub request: &'a Request,
    pub settings: Settings,
    pub patience: &'a Patience,
}

/// The state of a query over several processes.
struct Gathering<'a> {
    asked: &'a Asked<'a>,
    work: Mutex<Vec<Work>>,
    /// Bytes of the rows in memory.
    bytes: AtomicUsize,
}

impl Engine {
    /// Answers a query over the documents of all processes.
    pub(crate) fn query_processes(
        &self,
        asked: &Asked<'_>,
        select: Box<Select>,
        used: &BTreeSet<CollectionName>,
        is_explained: bool,
        answer: &mut Answer,
    ) -> Result<()> {
        let split = split(&select, used, &asked.settings);
        if is_explained {
            let first = match &split.groups {
                Some((fragment, _)) => std::slice::from_ref(fragment),
                None => &split.documents[..],
            };
            answer.run();
            return answer.row(&self.explained(first));
        }
        let gathering = Gathering { asked, work: Mutex::default(), bytes: AtomicUsize::new(0) };
        if let Some((fragment, last)) = split.groups {
            match self.gather(std::slice::from_ref(&fragment), &gathering) {
                Ok(mut snapshots) => {
                    gathering.report(answer);
                    let rows = snapshots.remove(&fragment.collection).unwrap_or_default();
                    let name = (PARTIAL.0.to_owned(), PARTIAL.1.to_owned());
                    let snapshots = Snapshots::from([(name, rows)]);
                    return self.query_snapshots(asked, last, &snapshots, answer);
                }
                Err(error) if is_final(&error) => return Err(error),
                // A sum may exceed its range in a part, but not in all of them.
                Err(error) => tracing::debug!(%error, "groups of a part cannot be computed"),
            }
        }
        let gathered = match self.gather(&split.documents, &gathering) {
            Err(error) if !is_final(&error) => {
                // A condition may fail for documents that another condition excludes.
                let whole: Vec<Fragment> = used.iter().map(Fragment::whole).collect();
                self.gather(&whole, &gathering)
            }
            gathered => gathered,
        };
        gathering.report(answer);
        self.query_snapshots(asked, select, &gathered?, answer)
    }

    /// Describes as JSON what each process runs.
    fn explained(&self, fragments: &[Fragment]) -> String {
        let fragments: Vec<_> = fragments
            .iter()
            .map(|Fragment { collection: (scope, name), statement }| {
                json!({"scope": scope, "collection": name, "statement": statement})
            })
            .collect();
        json!({"engine": "processes", "processes": self.fleet.count(), "fragments": fragments})
            .to_string()
    }

    /// Returns the rows of fragments from all processes.
    fn gather(&self, fragments: &[Fragment], gathering: &Gathering<'_>) -> Result<Snapshots> {
        lock(&gathering.work).clear();
        gathering.bytes.store(0, Ordering::Relaxed);
        let outcomes = std::thread::scope(|threads| {
            let mut running = Vec::new();
            for fragment in fragments {
                for part in 0..self.fleet.count() {
                    let fetching = threads.spawn(move || self.fetch(fragment, part, gathering));
                    running.push((fragment, fetching));
                }
            }
            let joined = running.into_iter().map(|(fragment, fetching)| {
                let ended = |_| Err(Error::internal("a thread has ended early"));
                (fragment, fetching.join().unwrap_or_else(ended))
            });
            joined.collect::<Vec<_>>()
        });
        let mut rows: Vec<(CollectionName, Vec<Row>)> = Vec::new();
        for (fragment, outcome) in outcomes {
            let outcome = outcome?;
            match rows.last_mut() {
                Some((name, rows)) if *name == fragment.collection => rows.extend(outcome),
                _ => rows.push((fragment.collection.clone(), outcome)),
            }
        }
        Ok(rows.into_iter().map(|(name, rows)| (name, Snapshot::of(rows))).collect())
    }

    /// Returns the rows of a fragment over a part, from the second process if the first one does not answer.
    fn fetch(&self, fragment: &Fragment, part: u16, gathering: &Gathering<'_>) -> Result<Vec<Row>> {
        let asked = gathering.asked;
        let (scope, name) = &fragment.collection;
        let found = &asked.catalog.scopes[scope];
        let mut lost = Vec::new();
        for process in self.fleet.processes_of(part) {
            let left = asked.patience.deadline.saturating_duration_since(Instant::now());
            let request = PartRequest {
                scope: scope.clone(),
                name: name.clone(),
                collection: found.collections[name].clone(),
                is_connected: !found.is_disconnected,
                part,
                statement: fragment.statement.clone(),
                is_consistent: asked.request.is_consistent,
                scan_wait_ms: asked.request.scan_wait.map(milliseconds),
                timeout_ms: milliseconds(left),
            };
            let mut rows = PartRows { part, rows: Vec::new(), bytes: 0, gathering };
            let reason = match self.fetch_from(process, &request, &mut rows) {
                Ok(read) => {
                    let attempts = lost.len() + 1;
                    lock(&gathering.work).push(Work { process, part, read, attempts });
                    return Ok(rows.rows);
                }
                Err(Failure::Refused(error)) if !error.is_retriable() => return Err(error),
                Err(Failure::Refused(error)) => error.to_string(),
                Err(Failure::Lost(reason)) => reason,
            };
            gathering.bytes.fetch_sub(rows.bytes, Ordering::Relaxed);
            tracing::warn!(process, part, %reason, "a process does not answer");
            lost.push(format!("process {process}: {reason}"));
        }
        let reasons = lost.join("; ");
        Err(Error::new(23000, format!("Analytics Service is temporarily unavailable: {reasons}")))
    }

    fn fetch_from(
        &self,
        process: usize,
        request: &PartRequest,
        rows: &mut PartRows<'_>,
    ) -> std::result::Result<Read, Failure> {
        let patience = rows.gathering.asked.patience;
        let is_whole = request.statement.is_none();
        if self.fleet.is_own(process) {
            let mut take = |row: String| rows.take(&row, is_whole);
            return self.read_part(request, patience, &mut take).map_err(Failure::Refused);
        }
        let mut end: Option<Read> = None;
        let body = serde_json::to_vec(request).map_err(|error| Failure::Lost(error.to_string()))?;
        let authorization = self.node.authorization();
        let address = self.fleet.address(process);
        let path = fleet::READ_PATH;
        fleet::post(address, path, &authorization, &body, patience, &mut |line| {
            if let Some(read) = line.strip_prefix(END) {
                end = Some(serde_json::from_str(read).map_err(Error::internal)?);
                return Ok(());
            }
            match line.strip_prefix(ERROR) {
                Some(error) => Err(error_of(error)),
                None => rows.take(line, is_whole),
            }
        })?;
        end.ok_or_else(|| Failure::Lost("the answer is not complete".to_owned()))
    }

    /// Returns the follower of a part of a collection, and starts it if this process does not follow the part yet. Returns `None`
    /// if the link is disconnected and there are no documents.
    pub fn follower_of(&self, request: &PartRequest) -> Option<Arc<Follower>> {
        let part = self.fleet.part(request.part);
        let keyspace = request.collection.keyspace();
        let condition = request.collection.condition.clone();
        let is_same = |follower: &Follower| {
            follower.keyspace == keyspace
                && follower.part == part
                && follower.condition() == condition.as_deref()
        };
        let name = (request.scope.clone(), request.name.clone());
        let mut adopted = lock(&self.adopted);
        // Also before a request for the own part: after a process has recovered, nobody asks for its part here.
        adopted.retain(|(of, index), adopted| {
            let is_this = *of == name && *index == request.part;
            let is_kept = match is_this {
                true => is_same(&adopted.follower),
                false => adopted.used.elapsed() < ADOPTED_FOR,
            };
            if !is_kept {
                adopted.follower.close();
            }
            is_kept
        });
        if let Some(own) = lock(&self.followers).get(&name).filter(|own| is_same(own)) {
            return Some(Arc::clone(own));
        }
        if let Some(known) = adopted.get_mut(&(name.clone(), request.part)) {
            known.used = Instant::now();
            return Some(Arc::clone(&known.follower));
        }
        if !request.is_connected {
            return None;
        }
        let (node, quota) = (Arc::clone(&self.node), Arc::clone(&self.quota));
        let follower = Follower::start(keyspace, part, condition, node, quota);
        let used = Instant::now();
        let known = Adopted { follower: Arc::clone(&follower), used };
        adopted.insert((name, request.part), known);
        Some(follower)
    }

    /// Runs a fragment over a part of a collection, and passes each row to `take`.
    ///
    /// # Errors
    /// The errors of the query and of `take`, the end of patience, and code 23000 while the documents cannot be read.
    pub fn read_part(
        &self,
        request: &PartRequest,
        patience: &Patience,
        take: &mut dyn FnMut(String) -> Result<()>,
    ) -> Result<Read> {
        if request.part >= self.fleet.count() {
            return Err(Error::internal("the processes have different lists of processes"));
        }
        let snapshot = match self.follower_of(request) {
            None => Snapshot::default(),
            Some(follower) => {
                if request.is_connected {
                    wait(&follower, request, patience)?;
                }
                follower.shadow().snapshot()
            }
        };
        let documents = snapshot.row_count() as u64;
        let rows = Cell::new(0);
        let mut counted = |row: String| {
            patience.check()?;
            rows.set(rows.get() + 1);
            take(row)
        };
        let bytes = match &request.statement {
            None => whole_rows(&snapshot, &mut counted)?,
            Some(statement) => {
                let name = (request.scope.clone(), request.name.clone());
                let snapshots = Snapshots::from([(name, snapshot)]);
                self.read_statement(statement, &snapshots, patience, &rows, &mut counted)?
            }
        };
        Ok(Read { documents, bytes: bytes as u64, rows: rows.get() })
    }

    /// Runs the statement of a fragment, and returns the bytes that it has read. `rows` counts the rows.
    fn read_statement(
        &self,
        statement: &str,
        snapshots: &Snapshots,
        patience: &Patience,
        rows: &Cell<u64>,
        take: &mut dyn FnMut(String) -> Result<()>,
    ) -> Result<usize> {
        let Sql::Select(select) = parse_analytics(statement)? else {
            return Err(Error::internal("a fragment is a query"));
        };
        let settings = self.settings();
        if let plan::Outcome::Columns(query) = self.planner.plan(&select, snapshots, &settings)? {
            let bytes = query.bytes();
            match self.planner.run(query, patience, &mut *take) {
                // After an error of the engine, the slower way still answers.
                Err(error) if error.code == error::INTERNAL && rows.get() == 0 => {
                    tracing::warn!(%error, statement, "a plan over columns has failed");
                }
                outcome => return outcome.map(|()| bytes),
            }
        }
        self.counters.by_rows.fetch_add(1, Ordering::Relaxed);
        rows::run(*select, settings, snapshots, patience, take)?;
        Ok(snapshots.values().map(Snapshot::text_bytes).sum())
    }

    /// Answers the request of another process. Blocks; sends the answer to `pieces`.
    pub fn answer_part(&self, request: &PartRequest, pieces: Sender<Piece>) {
        let patience = Patience {
            deadline: Instant::now() + Duration::from_millis(request.timeout_ms.min(DAY_MS)),
            is_cancelled: Arc::default(),
            client: Some(pieces.clone()),
        };
        let mut lines = PartAnswer { pieces, text: String::new(), has_begun: false };
        let outcome = self.read_part(request, &patience, &mut |row| {
            // A line end in JSON is white space between its parts.
            match row.contains(['\n', '\r']) {
                true => lines.line(&row.replace(['\n', '\r'], " ")),
                false => lines.line(&row),
            }
        });
        let last = match outcome {
            Ok(read) => format!("{END}{}", json!(read)),
            Err(Error { code, message }) => {
                format!("{ERROR}{}", json!({"code": code, "message": message}))
            }
        };
        // A process that has disconnected needs no end.
        let _ = lines.line(&last).and_then(|()| lines.send());
    }

    /// Gives the other processes a new catalog.
    ///
    /// # Errors
    /// Code 23000 if a process does not accept it.
    pub(crate) fn announce(&self, catalog: &Catalog) -> Result<()> {
        let body = serde_json::to_vec(catalog).map_err(Error::internal)?;
        let authorization = self.node.authorization();
        for address in self.fleet.others() {
            // Two processes that define at the same time wait for each other until then.
            let patience = Patience {
                deadline: Instant::now() + ANNOUNCE_TIMEOUT,
                is_cancelled: Arc::default(),
                client: None,
            };
            let path = fleet::CATALOG_PATH;
            fleet::post(address, path, &authorization, &body, &patience, &mut |_| Ok(())).map_err(
                |failure| {
                    let reason = match failure {
                        Failure::Lost(reason) => reason,
                        Failure::Refused(error) => error.to_string(),
                    };
                    let message = format!(
                        "Analytics Service is temporarily unavailable: the process at {address}: {reason}"
                    );
                    Error::new(23000, message)
                },
            )?;
        }
        Ok(())
    }
}

/// The longest time limit.
const DAY_MS: u64 = 24 * 3600 * 1000;

/// Returns true if another form of the same query would end in the same way.
fn is_final(error: &Error) -> bool {
    matches!(error.code, 20000..22000 | 23000 | 23003 | 23007 | 23008)
}

fn error_of(line: &str) -> Error {
    let json: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
    let code = json["code"].as_u64().and_then(|code| u32::try_from(code).ok());
    Error::new(code.unwrap_or(error::INTERNAL), json["message"].as_str().unwrap_or(line))
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Waits until the shadow has the documents that a request needs.
fn wait(follower: &Follower, request: &PartRequest, patience: &Patience) -> Result<()> {
    let limit = request.scan_wait_ms.map(|wait| Duration::from_millis(wait.min(DAY_MS)));
    let limit =
        limit.map_or(patience.deadline, |wait| patience.deadline.min(Instant::now() + wait));
    let waited = match request.is_consistent {
        true => follower.catch_up(limit),
        false => follower.wait_until_whole(patience.deadline),
    };
    match waited {
        Ok(true) => Ok(()),
        Ok(false) => Err(Error::timeout()),
        Err(reason) => Err(Error::new(
            23000,
            format!("Analytics Service is temporarily unavailable: {reason}"),
        )),
    }
}

/// Passes all documents with their metadata to `take`; returns the bytes of their texts.
fn whole_rows(snapshot: &Snapshot, take: &mut dyn FnMut(String) -> Result<()>) -> Result<usize> {
    let mut bytes = 0;
    for view in &snapshot.views {
        for at in view.live_rows() {
            let row = &view.segment.rows[at];
            let mut line = String::from("[");
            write_string(&row.id, &mut line);
            let Row { cas, flags, expiry, text, .. } = row;
            line.push_str(&format!(",{cas},{flags},{expiry},{text}]"));
            bytes += text.len();
            take(line)?;
        }
    }
    Ok(bytes)
}

impl Gathering<'_> {
    /// Adds the work to an answer.
    fn report(&self, answer: &mut Answer) {
        let mut work = std::mem::take(&mut *lock(&self.work));
        work.sort_by_key(|work| (work.process, work.part));
        answer.processed = work.iter().map(|work| work.read.documents).sum();
        answer.work = work;
    }
}

/// The rows of a part.
struct PartRows<'a> {
    part: u16,
    rows: Vec<Row>,
    bytes: usize,
    gathering: &'a Gathering<'a>,
}

impl PartRows<'_> {
    /// Adds a row; `is_whole` if it is a document with its metadata.
    fn take(&mut self, line: &str, is_whole: bool) -> Result<()> {
        let Gathering { asked, bytes, .. } = self.gathering;
        let bytes_max = asked.settings.memory_quota;
        self.bytes += line.len();
        let all = bytes.fetch_add(line.len(), Ordering::Relaxed) + line.len();
        if bytes_max > 0 && all > bytes_max {
            let message = "The request needs too much memory for the rows of the other processes";
            return Err(Error::new(23008, message));
        }
        self.rows.push(match is_whole {
            true => {
                let parsed = serde_json::from_str::<(String, u64, u32, u32, Box<RawValue>)>(line);
                let (id, cas, flags, expiry, text) = parsed.map_err(Error::internal)?;
                Row { id: id.into(), vbid: 0, cas, flags, expiry, text: text.get().into() }
            }
            // No expression reads the ID.
            false => {
                let id = format!("{}:{}", self.part, self.rows.len());
                Row { id: id.into(), vbid: 0, cas: 0, flags: 0, expiry: 0, text: line.into() }
            }
        });
        Ok(())
    }
}

/// The answer to another process.
struct PartAnswer {
    pieces: Sender<Piece>,
    text: String,
    has_begun: bool,
}

impl PartAnswer {
    fn line(&mut self, line: &str) -> Result<()> {
        self.text.push_str(line);
        self.text.push('\n');
        match self.text.len() >= PIECE_BYTES {
            true => self.send(),
            false => Ok(()),
        }
    }

    fn send(&mut self) -> Result<()> {
        let left = |_| Error::cancelled();
        if !self.has_begun {
            self.has_begun = true;
            self.pieces.blocking_send(Piece::Status(200)).map_err(left)?;
        }
        let bytes = Bytes::from(std::mem::take(&mut self.text));
        self.pieces.blocking_send(Piece::Bytes(bytes)).map_err(left)
    }
}
