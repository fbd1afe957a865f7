//! Queries of functions: they run with the rights of the function's owner and within the function's time limit.
//!
//! The writes of such a query cannot be marked as the function's own, so they would trigger it again. Therefore the
//! query may not change the keyspace that the function listens to.

use super::failure::{code, failure};
use super::remote_services;
use super::session::{Session, gone_by};
use crate::Answer;
use crate::NodeQueries;
use nacre_cluster::Source;
use nacre_node::Node;
use nacre_node::service::{self, QueryWrites};
use nacre_sandbox::{
    DatabaseKeyspace, Effect, Failure, Mutation, Queries, Query, QueryRows, QueryService, Request,
    RowRefusal, TOO_MUCH,
};
use nacre_types::Vbid;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Text before the first row of an answer.
const RESULTS: &str = "\"results\":[";

/// The queries of one function.
pub(crate) struct FunctionQueries {
    node: Weak<Node>,
    owner: String,
    guard: Arc<Guard>,
}

/// Restrictions for the queries of a function, and the record of their changes.
pub(super) struct Guard {
    source: Source,
    writes: QueryWrites,
}

impl Guard {
    /// Records mutations instead of applying them, in a dry run. Returns the results that they would have had; `None`
    /// outside of a dry run.
    pub fn rehearse(
        &self,
        keyspace: &DatabaseKeyspace,
        mutations: &[Mutation],
    ) -> Option<Vec<Result<u64, RowRefusal>>> {
        let QueryWrites::Recorded(effects) = &self.writes else { return None };
        let tell = |mutation: &Mutation| {
            let (keyspace, mutation) = (keyspace.clone(), mutation.clone());
            match effects.add(Effect::Row { keyspace, mutation }) {
                true => Ok(0),
                false => Err(RowRefusal::Other(failure(code::DML, TOO_MUCH))),
            }
        };
        Some(mutations.iter().map(tell).collect())
    }

    /// Checks that definitions may be changed.
    pub fn check_definition(&self) -> Result<(), Failure> {
        match self.writes {
            QueryWrites::Made(_) => Ok(()),
            QueryWrites::Recorded(_) => {
                Err(failure(code::INTERNAL, "A dry run cannot define anything"))
            }
        }
    }

    /// Checks that documents of `keyspace` may be changed.
    pub fn check(&self, keyspace: &DatabaseKeyspace) -> Result<(), Failure> {
        let Source { bucket, scope, collection } = &self.source;
        let covers = |wanted: &Option<String>, name: &String| {
            wanted.as_ref().is_none_or(|wanted| wanted == name)
        };
        let is_source = *bucket == keyspace.bucket
            && covers(scope, &keyspace.scope)
            && covers(collection, &keyspace.collection);
        match is_source {
            true => Err(failure(
                code::DML,
                "A query of a function may not change the collection that the function listens to: use the alias of a bucket",
            )),
            false => Ok(()),
        }
    }

    /// Records that a vBucket of `bucket` was written.
    pub fn note(&self, bucket: &str, vbid: Vbid) {
        if let QueryWrites::Made(listener) = &self.writes {
            listener.has_written(bucket, vbid);
        }
    }
}

impl FunctionQueries {
    /// Creates the queries of a function.
    pub fn new(node: &Arc<Node>, function: &service::FunctionQueries<'_>) -> FunctionQueries {
        let service::FunctionQueries { owner, source, writes } = function;
        let guard = Guard { source: (*source).clone(), writes: writes.clone() };
        let (node, owner) = (Arc::downgrade(node), (*owner).to_owned());
        FunctionQueries { node, owner, guard: Arc::new(guard) }
    }
}

impl Queries for FunctionQueries {
    fn begin(&self, query: &Query, left: Duration) -> Result<Box<dyn QueryRows>, Failure> {
        let internal = |reason: &str| failure(code::INTERNAL, reason);
        let node = self.node.upgrade().ok_or_else(|| internal("the node ends"))?;
        if self.owner.is_empty() {
            return Err(failure(
                code::FORBIDDEN,
                "It is not known with whose rights the function queries: define it again",
            ));
        }
        if query.service != QueryService::Query {
            return remote_services::begin(&node, &self.owner, query, left);
        }
        let body = request(query, left)?;
        let gone = Arc::new(AtomicBool::new(false));
        let session =
            Session::new(&node, &self.owner, gone_by(&gone)).guarded(Arc::clone(&self.guard));
        ask(&node, session, gone, body)
    }
}

/// Sends a request to the query service, which ends it soon after `gone` is set.
pub(super) fn ask(
    node: &Arc<Node>,
    session: Session,
    gone: Arc<AtomicBool>,
    body: Map<String, Value>,
) -> Result<Box<dyn QueryRows>, Failure> {
    let request = Request {
        method: "POST".into(),
        path: "/query/service".into(),
        query: String::new(),
        headers: vec![("content-type".into(), "application/json".into())],
        body: Value::from(body).to_string().into_bytes(),
    };
    let answer = node.queries().answer(node, &request, session).map_err(|reason| {
        let message = format!("The query service cannot run on this node: {reason}");
        failure(code::INTERNAL, message)
    })?;
    let mut rows = Rows { answer, gone, has_begun: false, first: None, failed: None };
    // Errors in a statement are reported where the query starts.
    rows.first = Some(rows.piece()?);
    Ok(Box::new(rows))
}

/// Returns the body of a request whose answer has only rows.
pub(super) fn request(query: &Query, left: Duration) -> Result<Map<String, Value>, Failure> {
    let mut body = statement(query, left)?;
    body.insert("signature".into(), json!(false));
    body.insert("metrics".into(), json!(false));
    Ok(body)
}

/// Returns a statement with its parameters, consistency and timeout, as the query and analytics services read them.
pub(super) fn statement(query: &Query, left: Duration) -> Result<Map<String, Value>, Failure> {
    let mut body = Map::new();
    match query.parameters.as_str() {
        "" => {}
        text => match serde_json::from_str(text) {
            Ok(Value::Array(values)) => drop(body.insert("args".into(), values.into())),
            Ok(Value::Object(named)) => {
                body.extend(named.into_iter().map(|(name, value)| (format!("${name}"), value)));
            }
            _ => {
                return Err(failure(
                    code::INTERNAL,
                    "The parameters must be an object or an array",
                ));
            }
        },
    }
    let level = if query.is_fresh { "request_plus" } else { "not_bounded" };
    body.insert("statement".into(), query.text.as_str().into());
    body.insert("timeout".into(), format!("{}ms", left.as_millis().max(1)).into());
    body.insert("scan_consistency".into(), level.into());
    Ok(body)
}

/// The rows of an answer, read piece by piece.
struct Rows {
    answer: Answer,
    /// Set to end the query.
    gone: Arc<AtomicBool>,
    has_begun: bool,
    /// The rows of the first piece, until they are requested.
    first: Option<Vec<String>>,
    /// The failure after the last rows.
    failed: Option<Failure>,
}

impl Rows {
    /// Returns the rows of the next piece with rows; empty at the end.
    fn piece(&mut self) -> Result<Vec<String>, Failure> {
        if let Some(failed) = self.failed.take() {
            return Err(failed);
        }
        let broken = || failure(code::INTERNAL, "The query service sent an unexpected response");
        while let Some(piece) = self.answer.next_piece() {
            let mut text = str::from_utf8(&piece).map_err(|_| broken())?;
            if !self.has_begun {
                let at = text.find(RESULTS).ok_or_else(broken)?;
                text = &text[at + RESULTS.len()..];
                self.has_begun = true;
            }
            let (rows, tail) = rows_of(text).ok_or_else(broken)?;
            match (tail.and_then(refusal), rows.is_empty()) {
                (Some(failure), true) => return Err(failure),
                (None, true) => {}
                (failed, false) => {
                    self.failed = failed;
                    return Ok(rows);
                }
            }
        }
        Ok(Vec::new())
    }
}

impl QueryRows for Rows {
    fn next(&mut self) -> Result<Vec<String>, Failure> {
        match self.first.take() {
            Some(rows) => Ok(rows),
            None => self.piece(),
        }
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        self.gone.store(true, Ordering::Relaxed);
    }
}

/// Returns the complete rows at the beginning of `text`, and, after the last row of the answer, the rest of the text.
fn rows_of(text: &str) -> Option<(Vec<String>, Option<&str>)> {
    let mut rows = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches(|c: char| c == ',' || c.is_ascii_whitespace());
        if rest.is_empty() {
            return Some((rows, None));
        }
        if let Some(tail) = rest.strip_prefix(']') {
            return Some((rows, Some(tail)));
        }
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<&RawValue>();
        rows.push(values.next()?.ok()?.get().to_owned());
        rest = &rest[values.byte_offset()..];
    }
}

/// Returns the first error in the text after the rows of an answer.
fn refusal(tail: &str) -> Option<Failure> {
    let members = format!("{{{}", tail.trim_start().strip_prefix(',').unwrap_or("}"));
    let Ok(answer) = serde_json::from_str::<Value>(&members) else {
        return Some(failure(code::INTERNAL, "The query service ends its answer too early"));
    };
    let error = answer["errors"].get(0)?;
    let mut message = error["msg"].as_str().unwrap_or_default().to_owned();
    // The exception of a JavaScript function comes with the error; only its message is passed on.
    if let Some(thrown) = error["reason"]["details"].get("Exception") {
        message.push_str(&format!(": {thrown}"));
    }
    Some(Failure {
        code: error["code"].as_u64().and_then(|code| u32::try_from(code).ok()).unwrap_or(5000),
        message,
        retry: error["retry"].as_bool().unwrap_or(false),
    })
}
