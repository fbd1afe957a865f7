//! `/admin/…`: the catalogs of the service over HTTP, for tools that speak no SQL++.
//!
//! ```text
//! GET           /admin/prepareds             all of them, as an array
//! GET, DELETE   /admin/prepareds/{name}      one of them
//! ```
//!
//! The same for `active_requests` and `completed_requests`, whose names are ids of requests. `GET /admin/settings` tells
//! what the service goes by.

use crate::datastore::{Datastore, Platform};
use crate::request::Request;
use crate::run::{Run, State};
use crate::service::Service;
use crate::watch;
use nacre_sql::{Error, Result, Value};

/// An answer of management.
#[derive(Clone, Debug, PartialEq)]
pub struct AdminReply {
    /// A status of HTTP.
    pub status: u16,
    /// JSON.
    pub body: String,
}

const CATALOGS: [&str; 3] = ["prepareds", "active_requests", "completed_requests"];

/// Answers a request for a path below `/admin/`; none when it is not for this part of the service.
pub fn admin(
    service: &Service,
    method: &str,
    path: &str,
    store: &dyn Datastore,
    platform: &dyn Platform,
) -> Option<AdminReply> {
    if (method, path) == ("GET", "/admin/settings") {
        let settings = [("completed-threshold", Value::Int(watch::COMPLETED_THRESHOLD_MS))];
        return Some(AdminReply { status: 200, body: Value::object(settings).to_json() });
    }
    let (catalog, name) = match path.strip_prefix("/admin/")?.split_once('/') {
        Some((catalog, name)) => (catalog, Some(name)),
        None => (path.strip_prefix("/admin/")?, None),
    };
    if !CATALOGS.contains(&catalog) {
        return None;
    }
    let mut request = Request::default();
    request.settings.statement_ms = platform.now_ms();
    let state = State::default();
    let run = Run { store, platform, service, settings: &request.settings, state: &state };
    let reply = answered(method, catalog, name, &run);
    Some(reply.unwrap_or_else(|error| {
        let status = match error.code {
            13014 => 401,
            _ => 500,
        };
        AdminReply { status, body: told(&error).to_json() }
    }))
}

fn answered(method: &str, catalog: &str, name: Option<&str>, run: &Run<'_>) -> Result<AdminReply> {
    let ok = |value: Value| AdminReply { status: 200, body: value.to_json() };
    let mut rows = run.service.catalog(catalog, run)?.into_iter();
    let Some(name) = name else {
        return Ok(match method {
            "GET" => ok(Value::array(rows.map(|(_, row)| row).collect())),
            _ => AdminReply { status: 405, body: "{}".into() },
        });
    };
    let Some((id, row)) = rows.find(|(id, _)| &**id == name) else {
        return Ok(AdminReply { status: 404, body: "{}".into() });
    };
    match method {
        "GET" => Ok(ok(row)),
        "DELETE" => {
            run.service.remove_entry(catalog, &id, run)?;
            Ok(ok(true.into()))
        }
        _ => Ok(AdminReply { status: 405, body: "{}".into() }),
    }
}

fn told(error: &Error) -> Value {
    Value::object([
        ("code", Value::Int(i64::from(error.code))),
        ("msg", error.message.as_str().into()),
    ])
}
