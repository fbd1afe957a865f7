//! The node's certificate, the authorities it trusts, and certificates of clients.

use super::Call;
use super::body::{Reply, done, invalid, json_reply, not_found, ok, reply};
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
            let cert = json!({"type": "generated", "pem": own.about.pem, "subject": own.about.subject, "expires": date(own.about.not_after)});
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
            call.require(Privilege::AdministerUsers, None)?;
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
            call.require(Privilege::AdministerUsers, None)?;
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
        "notBefore": date(about.not_before),
        "notAfter": date(about.not_after),
        "pem": about.pem,
        "warnings": [],
    })
}

/// A Unix time in seconds as ISO 8601 has it. Source: the days of a civil calendar, from March on, so that a leap day
/// is the last of its year.
fn date(unix: i64) -> String {
    let (days, seconds) = (unix.div_euclid(86_400), unix.rem_euclid(86_400));
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.000Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (unix, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, "2000-02-28T23:59:59.000Z"),
            (951_868_800, "2000-03-01T00:00:00.000Z"),
            (1_709_210_096, "2024-02-29T12:34:56.000Z"),
            (4_102_444_800, "2100-01-01T00:00:00.000Z"),
        ] {
            assert_eq!(date(unix), expected);
        }
    }
}
