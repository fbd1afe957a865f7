//! The node's certificate, the authorities that it trusts, and client certificates.

use super::body::{Reply, done, invalid, json_reply, not_found, ok, reply};
use super::routes::{READ, Route, USERS, delete, get, post, ready};
use super::{Call, date};
use hyper::StatusCode;
use hyper::http::request::Parts;
use nacre_auth::Privilege;
use nacre_http::Access;
use nacre_links::tls::{Description, Tls, Trusted};
use serde_json::{Value, json};
use std::sync::Arc;

/// Returns the certificate of the node's own authority. No login is needed: the certificate is public, and clients need
/// it before a login.
pub(super) fn public(tls: &Tls, head: &Parts) -> Option<Reply> {
    if head.uri.path() != "/pools/default/certificate" {
        return None;
    }
    let own = tls.trusted().swap_remove(0);
    let (about, _) = tls.certificate();
    Some(match head.uri.query() {
        Some("extended" | "extended=true") => {
            let cert = json!({"type": "generated", "pem": own.about.pem, "subject": own.about.subject, "expires": date(own.about.not_after, 0)});
            ok(&json!({"cert": cert, "warnings": [], "node": {"subject": about.subject}}))
        }
        _ => reply(StatusCode::OK, "text/plain", own.about.pem),
    })
}

/// Privilege to decide who can become an administrator. A trusted authority can certify an administrator, and the
/// setting that selects the part of a certificate with the user's name can make a user one.
const ADMINISTRATORS: Access = Access::Cluster(Privilege::AdministerAdministrators);

pub(super) const ROUTES: &[Route] = &[
    get("/pools/default/certificates", READ, |call| ready(Ok(ok(&json!([describe_node(&call)]))))),
    get("/pools/default/certificate/node/{node}", READ, |call| {
        ready(Ok(ok(&describe_node(&call))))
    }),
    get("/pools/default/trustedCAs", READ, |call| ready(Ok(ok(&describe_trusted(&call.tls))))),
    delete("/pools/default/trustedCAs/{id}", USERS, |call| Box::pin(distrust(call))),
    post("/node/controller/loadTrustedCAs", USERS, |call| Box::pin(trust_inbox(call))),
    post("/controller/uploadClusterCA", ADMINISTRATORS, |call| Box::pin(trust(call))),
    post("/node/controller/reloadCertificate", USERS, |call| Box::pin(reload(call))),
    post("/controller/regenerateCertificate", USERS, |call| Box::pin(regenerate(call))),
    get("/settings/clientCertAuth", READ, |call| ready(Ok(ok(&json!(call.tls.clients()))))),
    post("/settings/clientCertAuth", ADMINISTRATORS, |call| Box::pin(set_clients(call))),
];

async fn distrust(call: Call) -> Result<Reply, Reply> {
    let id = call.segment("id").parse().map_err(|_| not_found())?;
    match change(&call, move |tls| tls.distrust(id)).await? {
        true => Ok(done()),
        false => Err(not_found()),
    }
}

async fn trust_inbox(call: Call) -> Result<Reply, Reply> {
    change(&call, Tls::trust_inbox).await?;
    Ok(ok(&describe_trusted(&call.tls)))
}

async fn trust(call: Call) -> Result<Reply, Reply> {
    let pem = call.body.clone();
    change(&call, move |tls| tls.trust(&pem)).await?;
    Ok(ok(&describe_trusted(&call.tls)))
}

async fn reload(call: Call) -> Result<Reply, Reply> {
    change(&call, Tls::reload).await?;
    Ok(done())
}

async fn regenerate(call: Call) -> Result<Reply, Reply> {
    let uuid = call.node.new_uuid();
    change(&call, move |tls| tls.regenerate(&uuid[..8])).await?;
    let own = call.tls.trusted().swap_remove(0);
    Ok(reply(StatusCode::OK, "text/plain", own.about.pem))
}

async fn set_clients(call: Call) -> Result<Reply, Reply> {
    let clients = serde_json::from_slice(&call.body).map_err(|error| {
        let reason = format!("the body is not a setting for client certificates: {error}");
        invalid("_", reason)
    })?;
    change(&call, move |tls| tls.set_clients(&clients)).await?;
    Ok(reply(StatusCode::ACCEPTED, "application/json", ""))
}

/// Makes a change that reads and writes files, and signs, on a blocking thread.
async fn change<T: Send + 'static>(
    call: &Call,
    work: impl FnOnce(&Tls) -> Result<T, String> + Send + 'static,
) -> Result<T, Reply> {
    let tls = Arc::clone(&call.tls);
    let outcome = tokio::task::spawn_blocking(move || work(&tls)).await;
    let outcome = outcome.unwrap_or_else(|_| Err("the change has panicked".to_owned()));
    // Clients display the text.
    outcome.map_err(|reason| json_reply(StatusCode::BAD_REQUEST, &json!(reason)))
}

fn describe_node(call: &Call) -> Value {
    let endpoints = call.node.endpoints();
    let (about, generated) = call.tls.certificate();
    let mut value = describe(&about);
    value["node"] = json!(endpoints.authority(endpoints.plain.mgmt()));
    value["type"] = json!(if generated { "generated" } else { "uploaded" });
    value["expires"] = value["notAfter"].clone();
    value
}

fn describe_trusted(tls: &Tls) -> Value {
    let describe = |trusted: Trusted| {
        let mut value = describe(&trusted.about);
        value["id"] = json!(trusted.id);
        value["type"] = json!(if trusted.id == 0 { "generated" } else { "uploaded" });
        value
    };
    Value::Array(tls.trusted().into_iter().map(describe).collect())
}

fn describe(about: &Description) -> Value {
    json!({
        "subject": about.subject,
        "notBefore": date(about.not_before, 0),
        "notAfter": date(about.not_after, 0),
        "pem": about.pem,
        "warnings": [],
    })
}
