//! The component: receives HTTP requests and answers them in pieces.
//!
//! ```text
//! GET, POST /query/service      a statement: parameters in the query string, as a form, or as JSON
//! /admin/…                      see [`admin`]
//! ```

use crate::admin::{AdminReply, admin};
use crate::host::{Host, IndexNames};
use crate::request::Request;
use crate::response::Response;
use crate::service::Service;
use nacre_plugin::{Chunk, Fault, State};
use nacre_sql::Error;

/// The query service as a stateless plugin.
pub struct Query {
    service: Service,
    indexes: IndexNames,
    /// The response in progress.
    response: Option<(Response, Host)>,
}

/// The cursor needs no content, because it returns to the instance that has the response.
const MORE: &[u8] = b"more";

impl nacre_plugin::Service for Query {
    fn describe() -> String {
        serde_json::json!({
            "name": "query",
            "version": env!("CARGO_PKG_VERSION"),
            "state_version": "1",
            "limits": {},
        })
        .to_string()
    }

    fn init(_: &str) -> Result<Query, Fault> {
        Ok(Query { service: Service::new(), indexes: IndexNames::default(), response: None })
    }

    fn handle(
        &mut self,
        request: &nacre_plugin::Request,
        _: &dyn State,
    ) -> Result<nacre_plugin::Response, Fault> {
        if request.path.starts_with("/admin/") {
            let host = Host::new(None, &self.indexes);
            let reply =
                admin(&self.service, &request.method, &request.path, &request.body, &host, &host);
            let reply = reply.unwrap_or(AdminReply { status: 404, body: "{}".into() });
            return Ok(nacre_plugin::Response::json(reply.status, reply.body));
        }
        let read = read(request);
        let timeout_ms = read.as_ref().ok().and_then(|request| request.timeout_ms);
        let host = Host::new(timeout_ms, &self.indexes);
        let response = match read {
            Ok(request) => self.service.start(request, &host, &host),
            Err(error) => Response::refused(error, &host),
        };
        self.response = Some((response, host));
        let Chunk { body, cursor } = self.piece()?;
        let status = self.response.as_ref().map_or(200, |(response, _)| response.http_status());
        Ok(nacre_plugin::Response { cursor, ..nacre_plugin::Response::json(status, body) })
    }

    fn more(&mut self, _: &[u8], _: &dyn State) -> Result<Chunk, Fault> {
        self.piece()
    }
}

impl Query {
    fn piece(&mut self) -> Result<Chunk, Fault> {
        let no_answer = || Fault::Reject("there is no answer to continue".into());
        let (response, host) = self.response.as_mut().ok_or_else(no_answer)?;
        let piece = response.next_chunk(&self.service, host, host).unwrap_or_default();
        let cursor = (!response.is_done()).then(|| MORE.to_vec());
        Ok(Chunk { body: host.pass_on(piece).into(), cursor })
    }
}

/// Returns the parameters of a request: those of the query string, and those of the body, which
/// take precedence.
fn read(request: &nacre_plugin::Request) -> nacre_sql::Result<Request> {
    let header = |wanted: &str| {
        let mut headers = request.headers.iter();
        headers.find(|(name, _)| name == wanted).map_or("", |(_, value)| value.as_str())
    };
    if request.method == "POST" && header("content-type").starts_with("application/json") {
        return Request::from_json(&request.body);
    }
    let body = str::from_utf8(&request.body)
        .map_err(|_| Error::new(1040, "the body of a form is text"))?;
    let read = Request::from_form([request.query.as_str(), body])?;
    if request.method == "GET" { read.by_get() } else { Ok(read) }
}

nacre_plugin::export!(Query);
