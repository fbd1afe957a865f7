//! `/admin/…`: the catalogs of the service over HTTP, for tools that do not use SQL++.
//!
//! ```text
//! GET           /admin/prepareds             all of them, as an array
//! GET, DELETE   /admin/prepareds/{name}      one of them
//! GET           /admin/indexes/prepareds     their names
//! ```
//!
//! The same paths exist for `active_requests` and `completed_requests`, whose names are IDs of requests; only `GET` exists for
//! `functions_cache`, `tasks_cache` and `dictionary_cache`. `GET /admin/settings` returns the service's settings, and `POST`
//! changes them on this node until it stops: `{"timeout": nanoseconds}` is the maximum time of a request, 0 for that of the
//! cluster's settings.

use crate::prepared_key::PreparedKey;
use crate::request::Request;
use crate::run::{Run, State};
use crate::service::Service;
use crate::watch;
use nacre_datastore::{Datastore, Platform};
use nacre_sql::{Error, Result, Value};

/// A response of the management API.
#[derive(Clone, Debug, PartialEq)]
pub struct AdminReply {
    /// The HTTP status.
    pub status: u16,
    /// The body, as JSON.
    pub body: String,
}

/// Catalogs that can be read and whose entries can be removed.
const CATALOGS: [&str; 3] = ["prepareds", "active_requests", "completed_requests"];
/// Catalogs that can only be read.
const CACHES: [&str; 3] = ["functions_cache", "tasks_cache", "dictionary_cache"];

/// Answers a request for a path below `/admin/`; `None` if another part of the service handles the path.
pub fn admin(
    service: &Service,
    method: &str,
    path: &str,
    body: &[u8],
    store: &dyn Datastore,
    platform: &dyn Platform,
) -> Option<AdminReply> {
    match (method, path) {
        ("GET", "/admin/settings") => {
            return Some(AdminReply { status: 200, body: settings(store).to_json() });
        }
        ("POST", "/admin/settings") => return Some(changed_settings(body, store)),
        _ => {}
    }
    let (catalog, name) = match path.strip_prefix("/admin/")?.split_once('/') {
        Some((catalog, name)) => (catalog, Some(name)),
        None => (path.strip_prefix("/admin/")?, None),
    };
    let (catalog, name, is_index) = match (method, catalog, name) {
        ("GET", "indexes", Some(catalog)) => (catalog, None, true),
        _ => (catalog, name, false),
    };
    let is_read_cache = method == "GET" && CACHES.contains(&catalog);
    if !CATALOGS.contains(&catalog) && !is_read_cache {
        return None;
    }
    let mut request = Request::default();
    request.settings.statement_ms = platform.now_ms();
    let state = State::default();
    let run = Run { store, platform, service, settings: &request.settings, state: &state };
    let reply = match is_index {
        true => names(catalog, &run),
        false => answered(method, catalog, name, &run),
    };
    Some(reply.unwrap_or_else(|error| {
        let status = match error.code {
            13014 => 401,
            _ => 500,
        };
        AdminReply { status, body: error_body(&error).to_json() }
    }))
}

/// The key of the note with the maximum time of a request in milliseconds. The note has the cluster's setting if the node has none of
/// its own.
pub(crate) const TIMEOUT: &str = "settings/timeout";

const NS_IN_MS: i64 = 1_000_000;

fn settings(store: &dyn Datastore) -> Value {
    let timeout = store.notes().recall(TIMEOUT).and_then(|text| text.parse::<i64>().ok());
    let timeout_ns = timeout.unwrap_or(0).saturating_mul(NS_IN_MS);
    Value::object([
        ("completed-threshold", Value::Int(watch::completed_threshold_ms(store))),
        ("timeout", Value::Int(timeout_ns)),
    ])
}

/// Applies new settings, either all or none of them.
fn changed_settings(body: &[u8], store: &dyn Datastore) -> AdminReply {
    let refused = |code, message: String| AdminReply {
        status: 400,
        body: error_body(&Error::new(code, message)).to_json(),
    };
    let given = match Value::parse(body) {
        Ok(given) if given.as_object().is_some() => given,
        _ => return refused(2220, "The body is a JSON object of settings".to_owned()),
    };
    if let Some((name, _)) =
        given.as_object().into_iter().flatten().find(|(name, _)| &***name != "timeout")
    {
        return refused(2031, format!("Unknown setting: {name}"));
    }
    let Some(timeout_ns) =
        given.field("timeout").as_i64().filter(|ns| (0..=i64::MAX - NS_IN_MS).contains(ns))
    else {
        return refused(2032, "timeout is a number of nanoseconds, or 0 for no limit".to_owned());
    };
    // A limit below one millisecond is still a limit.
    let timeout_ms = (timeout_ns + NS_IN_MS - 1) / NS_IN_MS;
    let note = (timeout_ms > 0).then(|| timeout_ms.to_string());
    store.notes().note(TIMEOUT, note.as_deref());
    AdminReply { status: 200, body: settings(store).to_json() }
}

/// Answers with the names of the entries of a catalog.
fn names(catalog: &str, run: &Run<'_>) -> Result<AdminReply> {
    let rows = run.service.catalog(catalog, run)?;
    let names = rows.iter().map(|(id, _)| Value::from(&**id)).collect();
    Ok(AdminReply { status: 200, body: Value::array(names).to_json() })
}

fn answered(method: &str, catalog: &str, name: Option<&str>, run: &Run<'_>) -> Result<AdminReply> {
    let ok = |value: Value| AdminReply { status: 200, body: value.to_json() };
    let rows = run.service.catalog(catalog, run)?;
    let Some(name) = name else {
        return Ok(match method {
            "GET" => ok(Value::array(rows.into_iter().map(|(_, row)| row).collect())),
            _ => AdminReply { status: 405, body: "{}".into() },
        });
    };
    // A user's own prepared statement is also found without its query context.
    let user = run.store.user();
    let is_own = |id: &str| {
        let key = PreparedKey::from_id(id, &user);
        catalog == "prepareds" && key.user == user && key.name == name
    };
    let at = rows.iter().position(|(id, _)| &**id == name);
    let at = at.or_else(|| rows.iter().position(|(id, _)| is_own(id)));
    let Some((id, row)) = at.and_then(|at| rows.into_iter().nth(at)) else {
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

fn error_body(error: &Error) -> Value {
    Value::object([
        ("code", Value::Int(i64::from(error.code))),
        ("msg", error.message.as_str().into()),
    ])
}
