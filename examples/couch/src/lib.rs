//! CouchDB's replication protocol, so that PouchDB and RxDB sync with a collection of nacre in both directions.
//!
//! ```text
//! PouchDB ── HTTP ──▶ handle ── kv ──▶ document + attribute _couch ── change stream ──▶ on_batch ──▶ state
//!    ▲                                        ▲                                                        │
//!    └────────────── _changes ────────────────│────────────────────────────────────────────────────────┘
//!                                        SDKs of Couchbase
//! ```
//!
//! - The winning revision of a document is its body, as plain JSON; everything else is in the [attribute](record) `_couch`.
//! - A write of a key-value client becomes a revision when it arrives in the change stream.
//! - A revision gets a sequence number once its attribute is written, so that no revision that a client has seen is lost.
//!
//! Not supported: views, filter functions and `validate_doc_update` of design documents, multipart bodies, bodies of revisions
//! that are not leaves, and buckets whose documents are on several nodes.

pub mod all_docs;
pub mod attachments;
pub mod bulk;
pub mod changes;
pub mod documents;
pub mod find;
pub mod http;
pub mod index;
pub mod json;
pub mod local;
pub mod record;
pub mod selector;
pub mod store;
pub mod tree;

use http::{Parameters, Problem, header, json, segments};
use index::Meta;
use nacre_plugin::{
    Chunk, DocumentError, EventKind, Events, Fault, Request, Response, Service, State, StateMut,
    turn,
};
use record::{Record, cas_text, crc_text};
use serde::Deserialize;
use std::collections::VecDeque;
use store::Store;

/// The deployer's configuration.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The name of the database: the first part of each path.
    #[serde(default = "default_database")]
    pub database: String,
    /// The collection for checkpoints of clients, attachments, and large bodies of conflicting revisions.
    #[serde(default = "default_private")]
    pub private: String,
    /// The number of revisions kept for each branch.
    #[serde(default = "default_revs_limit")]
    pub revs_limit: usize,
}

fn default_database() -> String {
    "db".into()
}

fn default_private() -> String {
    "_default.couch".into()
}

fn default_revs_limit() -> usize {
    200
}

/// The plugin.
pub struct Couch {
    config: Config,
    /// The epoch of the sequence numbers that this instance assigns.
    epoch: index::Epoch,
    /// Documents of a bulk request that are not processed yet.
    pending: Option<bulk::Pending>,
}

/// A request with everything that is needed to answer it.
pub struct Call<'a> {
    /// The request.
    pub request: &'a Request,
    /// The parameters of its query string.
    pub parameters: Parameters,
    /// The documents.
    pub store: Store<'a>,
}

impl Call<'_> {
    /// The plugin's state.
    pub fn state(&self) -> &dyn State {
        self.store.state
    }

    /// Returns true if the state reflects all writes before the request.
    pub fn is_fresh(&self) -> bool {
        header(self.request, "nacre-fresh").is_some()
    }
}

/// Returns the answer that makes the node call again once the state reflects all writes before the request.
pub fn ask_again() -> Response {
    let headers = vec![("nacre-fresh".into(), "true".into())];
    Response { status: 200, headers, ..Response::default() }
}

impl Service for Couch {
    fn describe() -> String {
        let version = env!("CARGO_PKG_VERSION");
        format!(r#"{{"name":"couch","version":"{version}","state_version":"1","limits":{{}}}}"#)
    }

    fn init(config: &str) -> Result<Couch, Fault> {
        let config: Config =
            serde_json::from_str(config).map_err(|error| Fault::Reject(error.to_string()))?;
        if !is_database_name(&config.database) {
            let reason = format!("{:?} is no name of a database", config.database);
            return Err(Fault::Reject(reason));
        }
        if !(20..=1000).contains(&config.revs_limit) {
            return Err(Fault::Reject("revs_limit is 20 to 1000".into()));
        }
        Ok(Couch { config, epoch: index::Epoch::default(), pending: None })
    }

    fn on_batch(
        &mut self,
        events: &Events<'_>,
        state: &mut dyn StateMut,
    ) -> Result<Vec<DocumentError>, Fault> {
        let now_us = events.now_us();
        for event in events.iter() {
            let Ok(id) = std::str::from_utf8(event.key) else { continue };
            // Transaction records and similar documents.
            if store::check_id(id).is_err() {
                continue;
            }
            let record = record::find(event.xattrs).and_then(Record::read);
            let is_alive = event.kind == EventKind::Upsert;
            let is_ours = |record: &Record| {
                let winner = record.tree.winner();
                let wins_alive = winner.is_some_and(|winner| !record.tree.is_deleted(&winner));
                wins_alive == is_alive
                    && (record.cas == cas_text(event.cas)
                        || (is_alive && record.crc == crc_text(event.body)))
            };
            if let Some(record) = record.as_ref().filter(|record| is_ours(record)) {
                index::note(state, &mut self.epoch, id, &record.tree, now_us);
                continue;
            }
            if !is_alive && record.is_none() && index::by_id(state, id).is_none() {
                continue;
            }
            turn::begin(event.index, state);
            let imported = Store { config: &self.config, state }.import(id);
            match imported {
                Ok(Some(tree)) => index::note(state, &mut self.epoch, id, &tree, now_us),
                // A newer version will arrive.
                Ok(None) => {}
                Err(problem) if problem.status == 503 => return Err(Fault::Retry(problem.reason)),
                Err(problem) => turn::failed(event.index, &problem.reason),
            }
        }
        Ok(Vec::new())
    }

    fn handle(&mut self, request: &Request, state: &dyn State) -> Result<Response, Fault> {
        self.pending = None;
        let config = self.config.clone();
        let parameters = Parameters::read(&request.query);
        let call = Call { request, parameters, store: Store { config: &config, state } };
        let mut response = match self.route(&call) {
            Ok(response) => response,
            Err(problem) => problem.response(),
        };
        if request.method == "HEAD" {
            response.body.clear();
            response.cursor = None;
        }
        Ok(response)
    }

    fn more(&mut self, cursor: &[u8], state: &dyn State) -> Result<Chunk, Fault> {
        let store = Store { config: &self.config, state };
        match cursor.first() {
            Some(b'b') => {
                let pending = self.pending.as_mut();
                let pending = pending.ok_or_else(|| Fault::Reject("no such answer".into()))?;
                Ok(pending.piece(&store))
            }
            Some(b'c') => changes::piece(&store, &cursor[1..]),
            Some(b'a') => all_docs::piece(&store, &cursor[1..]),
            _ => Err(Fault::Reject("no such answer".into())),
        }
    }

    fn merge(&mut self, _: &Request, partials: Vec<Response>) -> Result<Response, Fault> {
        let first = VecDeque::from(partials).pop_front();
        first.ok_or_else(|| Fault::Reject("no node has answered".into()))
    }
}

nacre_plugin::export!(Couch);

/// Returns true for a valid database name in CouchDB.
fn is_database_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.bytes().all(|byte| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_$()+/-".contains(&byte)
        })
}

impl Couch {
    fn route(&mut self, call: &Call<'_>) -> Result<Response, Problem> {
        if header(call.request, "nacre-part").is_some() {
            let reason = "the documents are on several nodes, which this plugin does not support";
            return Err(Problem::new(501, "not_implemented", reason));
        }
        let path = segments(call.request);
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        let method = match call.request.method.as_str() {
            "HEAD" => "GET",
            method => method,
        };
        match (method, &path[..]) {
            (_, []) => only(method, &["GET"], || Ok(welcome(call))),
            ("GET", ["_up"]) => Ok(json(200, "{\"status\":\"ok\"}\n")),
            ("GET", ["_all_dbs"]) => {
                Ok(json(200, format!("[{}]\n", json::quoted(&self.config.database))))
            }
            ("GET", ["_session"]) => Ok(session(call)),
            ("PUT", [database]) => self.create(database),
            (_, [database, ..]) if *database != self.config.database => {
                let reason = match is_database_name(database) {
                    true => "Database does not exist.",
                    false => return Err(illegal_name(database)),
                };
                Err(Problem::missing(reason))
            }
            (_, [_, rest @ ..]) => self.database(call, method, rest),
        }
    }

    fn create(&self, database: &str) -> Result<Response, Problem> {
        if *database == self.config.database {
            let reason = "The database could not be created, the file already exists.";
            return Err(Problem::new(412, "file_exists", reason));
        }
        if !is_database_name(database) {
            return Err(illegal_name(database));
        }
        let reason = "a database is a collection: deploy the plugin on another one";
        Err(Problem::new(403, "forbidden", reason))
    }

    fn database(
        &mut self,
        call: &Call<'_>,
        method: &str,
        path: &[&str],
    ) -> Result<Response, Problem> {
        let post = |answer: fn(&Call<'_>) -> Result<Response, Problem>| {
            only(method, &["POST"], || answer(call))
        };
        match (method, path) {
            ("GET", []) => information(call),
            ("POST", []) => documents::create(call),
            ("DELETE", []) => {
                let reason = "a database is a collection: drop that, or flush its documents";
                Err(Problem::new(403, "forbidden", reason))
            }
            ("GET" | "POST", ["_changes"]) => changes::answer(call),
            ("GET" | "POST", ["_all_docs"]) => all_docs::answer(call, ""),
            ("GET" | "POST", ["_design_docs"]) => all_docs::answer(call, "_design/"),
            (_, ["_bulk_docs"]) => only(method, &["POST"], || {
                let (response, pending) = bulk::write(call)?;
                self.pending = pending;
                Ok(response)
            }),
            (_, ["_bulk_get"]) => post(bulk::get),
            (_, ["_revs_diff"]) => post(bulk::revs_diff),
            (_, ["_missing_revs"]) => post(bulk::missing_revs),
            (_, ["_find"]) => post(find::answer),
            ("GET", ["_index"]) => Ok(json(200, find::INDEXES)),
            (_, ["_ensure_full_commit"]) => post(|_| {
                let body = "{\"ok\":true,\"instance_start_time\":\"0\"}\n";
                Ok(http::durable(json(201, body)))
            }),
            (_, ["_compact", ..] | ["_view_cleanup"]) => post(|_| Ok(json(202, "{\"ok\":true}\n"))),
            ("GET", ["_revs_limit"]) => Ok(json(200, format!("{}\n", self.config.revs_limit))),
            ("GET", ["_security"]) => Ok(json(
                200,
                "{\"members\":{\"names\":[],\"roles\":[]},\"admins\":{\"names\":[],\"roles\":[]}}\n",
            )),
            (_, ["_local", id @ ..]) if !id.is_empty() => {
                local::answer(call, method, &id.join("/"))
            }
            (_, ["_design", name]) => documents::answer(call, method, &format!("_design/{name}")),
            (_, ["_design", name, attachment @ ..])
                if !attachment.is_empty() && !attachment[0].starts_with('_') =>
            {
                attachments::answer(call, method, &format!("_design/{name}"), &attachment.join("/"))
            }
            (_, [id]) => match id.strip_prefix("_local/") {
                Some(local) => local::answer(call, method, local),
                None if id.starts_with('_') && !id.starts_with("_design/") => {
                    Err(unknown(method, id))
                }
                None => documents::answer(call, method, id),
            },
            (_, [id, attachment @ ..]) if !id.starts_with('_') || id.starts_with("_design/") => {
                attachments::answer(call, method, id, &attachment.join("/"))
            }
            (_, path) => Err(unknown(method, path.first().unwrap_or(&""))),
        }
    }
}

fn illegal_name(database: &str) -> Problem {
    let reason = format!(
        "Name: '{database}'. Only lowercase characters (a-z), digits (0-9), and any of the characters _, $, (, ), +, -, and / are allowed. Must begin with a letter."
    );
    Problem::new(400, "illegal_database_name", &reason)
}

/// Returns the answer for an unknown special path, or a method that it does not support.
fn unknown(method: &str, path: &str) -> Problem {
    match (method, path) {
        ("PUT", _) => Problem::new(
            400,
            "illegal_docid",
            "Only reserved document ids may start with underscore.",
        ),
        _ => Problem::missing("missing"),
    }
}

/// Answers if the method is one of these.
fn only(
    method: &str,
    allowed: &[&str],
    answer: impl FnOnce() -> Result<Response, Problem>,
) -> Result<Response, Problem> {
    match allowed.contains(&method) {
        true => answer(),
        false => {
            let reason = format!("Only {} allowed", allowed.join(","));
            Err(Problem::new(405, "method_not_allowed", &reason))
        }
    }
}

fn welcome(call: &Call<'_>) -> Response {
    use md5::{Digest, Md5};
    let Meta { epoch, .. } = Meta::of(call.state());
    let digest = Md5::digest(format!("{} {epoch}", call.store.config.database));
    let uuid: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let version = env!("CARGO_PKG_VERSION");
    json(
        200,
        format!(
            "{{\"couchdb\":\"Welcome\",\"version\":\"3.0.0\",\"uuid\":\"{uuid}\",\"features\":[],\"vendor\":{{\"name\":\"nacre\",\"version\":\"{version}\"}}}}\n"
        ),
    )
}

fn session(call: &Call<'_>) -> Response {
    let user = header(call.request, "nacre-user").unwrap_or_default();
    let name = if user.is_empty() { "null".to_owned() } else { json::quoted(user) };
    json(
        200,
        format!(
            "{{\"ok\":true,\"userCtx\":{{\"name\":{name},\"roles\":[]}},\"info\":{{\"authentication_handlers\":[\"default\"],\"authenticated\":\"default\"}}}}\n"
        ),
    )
}

fn information(call: &Call<'_>) -> Result<Response, Problem> {
    if !call.is_fresh() {
        return Ok(ask_again());
    }
    let meta = Meta::of(call.state());
    let name = json::quoted(&call.store.config.database);
    let Meta { documents, deleted, .. } = meta;
    let seq = meta.token(meta.seq);
    Ok(json(
        200,
        format!(
            "{{\"db_name\":{name},\"doc_count\":{documents},\"doc_del_count\":{deleted},\"update_seq\":\"{seq}\",\"purge_seq\":\"0\",\"compact_running\":false,\"sizes\":{{\"file\":0,\"external\":0,\"active\":0}},\"instance_start_time\":\"0\",\"cluster\":{{\"q\":1,\"n\":1,\"w\":1,\"r\":1}},\"props\":{{}},\"disk_format_version\":8}}\n"
        ),
    ))
}

#[cfg(test)]
mod tests;
