//! The node's certificate, the authorities it trusts, and certificates of clients.

use super::body::{Reply, done, invalid, json_reply, not_found, ok, reply};
use super::{Call, date};
use crate::tls::{Description, Tls, Trusted};
use hyper::StatusCode;
use hyper::http::request::Parts;
use nacre_auth::Privilege;
use serde_json::{Value, json};
use std::sync::Arc;

/// The certificate of the node's own authority, to whoever asks: it is no secret, and is needed before a login.
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

pub(super) async fn route(call: Call, path: &[&str]) -> Result<Reply, Reply> {
    match (call.method.as_str(), path) {
        ("GET", ["pools", "default", "certificates"]) => {
            call.require(Privilege::ReadCluster, None)?;
            Ok(ok(&json!([describe_node(&call)])))
        }
        ("GET", ["pools", "default", "certificate", "node", _]) => {
            call.require(Privilege::ReadCluster, None)?;
            Ok(ok(&describe_node(&call)))
        }
        ("GET", ["pools", "default", "trustedCAs"]) => {
            call.require(Privilege::ReadCluster, None)?;
            Ok(ok(&describe_trusted(&call.tls)))
        }
        ("DELETE", ["pools", "default", "trustedCAs", id]) => {
            call.require(Privilege::AdministerUsers, None)?;
            let id = id.parse().map_err(|_| not_found())?;
            if !change(&call, move |tls| tls.distrust(id)).await? {
                return Err(not_found());
            }
            Ok(done())
        }
        ("POST", ["node", "controller", "loadTrustedCAs"]) => {
            call.require(Privilege::AdministerUsers, None)?;
            change(&call, Tls::trust_inbox).await?;
            Ok(ok(&describe_trusted(&call.tls)))
        }
        ("POST", ["controller", "uploadClusterCA"]) => {
            // Such an authority may vouch for an administrator.
            call.require(Privilege::AdministerAdministrators, None)?;
            let pem = call.body.clone();
            change(&call, move |tls| tls.trust(&pem)).await?;
            Ok(ok(&describe_trusted(&call.tls)))
        }
        ("POST", ["node", "controller", "reloadCertificate"]) => {
            call.require(Privilege::AdministerUsers, None)?;
            change(&call, Tls::reload).await?;
            Ok(done())
        }
        ("POST", ["controller", "regenerateCertificate"]) => {
            call.require(Privilege::AdministerUsers, None)?;
            let uuid = call.node.new_uuid();
            change(&call, move |tls| tls.regenerate(&uuid[..8])).await?;
            let own = call.tls.trusted().swap_remove(0);
            Ok(reply(StatusCode::OK, "text/plain", own.about.pem))
        }
        ("GET", ["settings", "clientCertAuth"]) => {
            call.require(Privilege::ReadCluster, None)?;
            Ok(ok(&json!(call.tls.clients())))
        }
        ("POST", ["settings", "clientCertAuth"]) => {
            // Which part of a certificate names the user decides who becomes an administrator.
            call.require(Privilege::AdministerAdministrators, None)?;
            let clients = serde_json::from_slice(&call.body).map_err(|error| {
                let reason = format!("the body is no setting for certificates of clients: {error}");
                invalid("_", reason)
            })?;
            change(&call, move |tls| tls.set_clients(&clients)).await?;
            Ok(reply(StatusCode::ACCEPTED, "application/json", ""))
        }
        _ => Err(not_found()),
    }
}

/// Runs what reads and writes files, and signs.
async fn change<T: Send + 'static>(
    call: &Call,
    work: impl FnOnce(&Tls) -> Result<T, String> + Send + 'static,
) -> Result<T, Reply> {
    let tls = Arc::clone(&call.tls);
    let outcome = tokio::task::spawn_blocking(move || work(&tls)).await;
    let outcome = outcome.unwrap_or_else(|_| Err("the change has panicked".to_owned()));
    // Clients show the text to people.
    outcome.map_err(|reason| json_reply(StatusCode::BAD_REQUEST, &json!(reason)))
}

fn describe_node(call: &Call) -> Value {
    let endpoints = call.node.endpoints();
    let (about, generated) = call.tls.certificate();
    let mut value = describe(&about);
    value["node"] = json!(endpoints.authority(endpoints.plain.mgmt));
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
