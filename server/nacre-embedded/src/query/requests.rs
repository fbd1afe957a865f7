//! The request of SDKs for SQL++, with the path and the answers of a node's query service, without a port.
//!
//! ```text
//! POST /query/service    {"statement": …, "args": […], "$name": …, "query_context": …, "readonly": …, "timeout": …}
//! ```
//!
//! The reader of the request and the writer of the answer are those of the service, so SDKs raise the same errors as with a node.
//! Members about the consistency of indexes have no effect, because every statement reads the current documents.

use super::datastore::Store;
use super::{Environment, MEMORY_MIB, TIMEOUT, refused};
use crate::{Db, Error};
use nacre_query::{Consistency, Request, Response, Service};
use nacre_sql::ast::Statement;
use serde_json::json;
use std::time::Duration;

const PATH: &str = "/query/service";

/// A status, and JSON.
type Reply = (u16, String);

/// An answer whose last piece was written.
struct Answer {
    response: Response,
    text: String,
    /// The first error of the database, if there was one.
    failure: Option<Error>,
}

/// See [`Db::query_request`].
pub(super) fn execute(db: &Db, statement: &str, parameters: &str) -> Result<String, Error> {
    db.inner().check()?;
    let mut request = Request::from_json(parameters.as_bytes()).map_err(refused)?;
    request.statement = Some(statement.to_owned());
    let Answer { response, text, failure } = answer(db, Ok(request));
    match response.errors().first() {
        Some(error) => Err(failure.unwrap_or_else(|| refused(error.clone()))),
        None => Ok(text),
    }
}

/// Answers a request to the query service; `None` for other requests.
///
/// # Errors
/// [`Error::Closed`] and [`Error::Forked`]. Other errors are part of the answer.
pub(crate) fn manage(
    db: &Db,
    method: &str,
    path: &str,
    body: &[u8],
) -> Result<Option<Reply>, Error> {
    if path.split('?').next() != Some(PATH) {
        return Ok(None);
    }
    if method != "POST" {
        // Code of a method that the service does not support. Source: Couchbase's list.
        let error = json!({"code": 1010, "msg": format!("Unsupported http method: {method}")});
        let text = json!({"results": [], "errors": [error], "status": "fatal"}).to_string();
        return Ok(Some((405, text)));
    }
    let Answer { response, text, failure } = answer(db, Request::from_json(body));
    match failure {
        Some(error @ (Error::Closed | Error::Forked)) => Err(error),
        _ => Ok(Some((response.http_status(), text))),
    }
}

fn answer(db: &Db, read: nacre_sql::Result<Request>) -> Answer {
    let timeout_ms = read.as_ref().ok().and_then(|request| request.timeout_ms);
    let timeout = timeout_ms.map_or(TIMEOUT, Duration::from_millis);
    let (store, environment) = (Store::new(db), Environment::new(db.inner(), timeout));
    let service = Service::new();
    let mut response = match read {
        Ok(request) => service.start(executable(request), &store, &environment),
        Err(error) => Response::refused(error, &environment),
    };
    let mut text = String::new();
    while let Some(piece) = response.next_chunk(&service, &store, &environment) {
        text.push_str(&piece.into_text());
    }
    Answer { response, text, failure: store.failure() }
}

/// Returns a request with the settings of a database in the process.
fn executable(mut request: Request) -> Request {
    request.scan_wait_ms = None;
    let settings = &mut request.settings;
    settings.consistency = Consistency::default();
    settings.keeps_nothing = true;
    if settings.memory_quota == 0 {
        settings.memory_quota = MEMORY_MIB << 20;
    }
    // SDKs prepare a statement that is to be executed at once. Nothing is kept here: each of their requests executes it.
    if request.auto_execute {
        let prepared = request.statement.as_deref().and_then(prepared_text);
        request.statement = prepared.or(request.statement);
    }
    request
}

/// Returns the text of the statement that a PREPARE contains.
fn prepared_text(text: &str) -> Option<String> {
    match nacre_sql::parse(text) {
        Ok(Statement::Prepare(prepare)) => Some(prepare.text),
        _ => None,
    }
}
