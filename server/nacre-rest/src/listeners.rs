//! Setup of a node: its name, address family, encryption between nodes, and its reset to a new node. Paths, fields and texts are
//! Couchbase's.
//!
//! Nodes talk to each other over TLS only, at the address with which the node was started. Requests for exactly this succeed;
//! requests for anything else are refused.

use super::body::{Reply, blocking, done, invalid, json_reply};
use super::nodes::Form;
use super::routes::{ADMINISTER, Route, post, ready};
use super::{Call, nodes};
use hyper::StatusCode;
use nacre_cluster::Endpoints;
use serde_json::json;
use std::net::Ipv6Addr;
use std::sync::Arc;

const ENCRYPTED: &str = "Nodes always encrypt their connections to each other.";
const FAMILY: &str = "The node listens on the address that it was started with: --host.";
const FOLDER: &str = "All data is in the one folder that the node was started with: --data-dir.";
/// Directories of services, as forms name them.
const FOLDERS: [&str; 5] = ["dataPath", "indexPath", "eventingPath", "analyticsPath", "javaHome"];

/// Returns the address family of a node, as lists of nodes name it.
pub(super) fn family(endpoints: &Endpoints) -> &'static str {
    let host = endpoints.host.as_deref().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host.parse::<Ipv6Addr>().is_ok() { "inet6" } else { "inet" }
}

/// Returns the address family as forms name it.
fn family_in_forms(endpoints: &Endpoints) -> &'static str {
    if family(endpoints) == "inet6" { "ipv6" } else { "ipv4" }
}

/// Checks a field that describes how a node listens; returns false for other fields.
///
/// # Errors
/// A value that differs from the way in which the node listens.
pub(super) fn check_field(call: &Call, field: &str, value: &str) -> Result<bool, Reply> {
    let endpoints = call.node.endpoints();
    match (field, value) {
        ("afamily", family) if family == family_in_forms(&endpoints) => {}
        ("afamily", "ipv4" | "ipv6") => return Err(invalid(field, FAMILY)),
        ("afamily", _) => return Err(invalid(field, "must be one of [\"ipv4\",\"ipv6\"]")),
        ("afamilyOnly", "false") => {}
        ("afamilyOnly", "true") => return Err(invalid(field, FAMILY)),
        ("afamilyOnly", _) => return Err(invalid(field, "afamilyOnly must be true or false")),
        ("nodeEncryption", "on" | "true") => {}
        ("nodeEncryption", "off" | "false") => return Err(invalid(field, ENCRYPTED)),
        ("nodeEncryption", _) => return Err(invalid(field, "must be one of [\"on\",\"off\"]")),
        (field, "") if FOLDERS.contains(&field) => {}
        (field, path) if FOLDERS.contains(&field) => {
            if call.records.data_dir.as_os_str() != path {
                return Err(invalid(field, FOLDER));
            }
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// `/nodeInit`, `/controller/hardResetNode`, and the paths below `/node/controller` that concern listeners.
pub(super) const ROUTES: &[Route] = &[
    post("/nodeInit", ADMINISTER, |call| Box::pin(node_init(call))),
    post("/controller/hardResetNode", ADMINISTER, |call| Box::pin(reset(call))),
    post("/node/controller/enableExternalListener", ADMINISTER, |call| ready(confirm(&call))),
    post("/node/controller/setupNetConfig", ADMINISTER, |call| ready(confirm(&call))),
    post("/node/controller/disableExternalListener", ADMINISTER, |call| ready(disable(&call))),
    // There are no unused listeners.
    post("/node/controller/disableUnusedExternalListeners", ADMINISTER, |_| ready(Ok(done()))),
    post("/node/controller/reloadClientCertificate", ADMINISTER, |_| {
        let reason = "Nodes recognise each other by their keys and show no client certificate.";
        ready(Err(json_reply(StatusCode::BAD_REQUEST, &json!(reason))))
    }),
];

/// Confirms a request that asks for the present settings.
fn confirm(call: &Call) -> Result<Reply, Reply> {
    check_form(call).map(|()| done())
}

fn check_form(call: &Call) -> Result<(), Reply> {
    for (field, value) in call.form() {
        let is_known = field != "javaHome" && check_field(call, &field, &value)?;
        if !is_known || FOLDERS.contains(&field.as_str()) {
            return Err(invalid(&field, "Unsupported key"));
        }
    }
    Ok(())
}

/// `POST /nodeInit`: sets the name of a node, and confirms its other settings.
async fn node_init(call: Call) -> Result<Reply, Reply> {
    let form = call.form();
    for (field, value) in &form {
        // Tools that set up a node without encryption send this before they know that nodes always encrypt.
        let is_off = field == "nodeEncryption" && value == "off";
        if field != "hostname" && !is_off && !check_field(&call, field, value)? {
            return Err(invalid(field, "Unsupported key"));
        }
    }
    if Form(form).optional("hostname").is_some() {
        nodes::rename(&call).await?;
    }
    Ok(done())
}

/// `POST /node/controller/disableExternalListener`: succeeds only for listeners that do not exist.
fn disable(call: &Call) -> Result<Reply, Reply> {
    let form = Form(call.form());
    let own = family_in_forms(&call.node.endpoints());
    for (field, value) in &form.0 {
        match (field.as_str(), value.as_str()) {
            ("afamily", "ipv4" | "ipv6") | ("nodeEncryption", "on" | "off") => {}
            ("afamily" | "nodeEncryption", _) => return Err(invalid(field, "unknown value")),
            _ => return Err(invalid(field, "Unsupported key")),
        }
    }
    let is_family = form.optional("afamily").is_none_or(|family| family == own);
    let is_encrypted = form.optional("nodeEncryption").is_none_or(|encryption| encryption == "on");
    if is_family && is_encrypted {
        return Err(invalid("_", "The listener is the only one that the node has."));
    }
    Ok(done())
}

/// `POST /controller/hardResetNode`: the node deletes everything, including its buckets and users, and starts as it did the first
/// time: with the administrator that its command line names, or without an administrator.
async fn reset(call: Call) -> Result<Reply, Reply> {
    if call.node.cluster().nodes.len() > 1 {
        let reason = "The node is part of a cluster: remove it with a rebalance first.";
        return Err(json_reply(StatusCode::BAD_REQUEST, &json!([reason])));
    }
    let consensus = Arc::clone(&call.consensus);
    let reset = blocking("the reset", move || nacre_links::cluster::membership::reset(&consensus));
    reset
        .await?
        .map_err(|reason| json_reply(StatusCode::INTERNAL_SERVER_ERROR, &json!([reason])))?;
    Ok(done())
}
