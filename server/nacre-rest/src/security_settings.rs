//! `/settings/security`: TLS of client connections, and HTTP headers. Paths, fields and texts are Couchbase's.

use super::Call;
use super::body::{Reply, done, invalid, not_found, ok};
use super::routes::{READ, Route, USERS, delete, get, post, ready};
use super::settings;
use hyper::HeaderMap;
use hyper::header::{HeaderValue, STRICT_TRANSPORT_SECURITY, WWW_AUTHENTICATE};
use nacre_cluster::{Security, SettingsChange, TlsFloor};
use nacre_links::tls;
use serde_json::{Value, json};

/// Settings that cannot be changed: field, value and reason.
const FIXED: [(&str, &str, &str); 2] = [
    ("clusterEncryptionLevel", "all", "Nodes always encrypt their connections to each other."),
    ("allowNonLocalCACertUpload", "true", "Administrators may upload certificates from anywhere."),
];

const SECURITY: &str = "/settings/security";
const FIELD: &str = "/settings/security/{field}";

pub(super) const ROUTES: &[Route] = &[
    get(SECURITY, READ, |call| ready(Ok(ok(&describe(&call.node.cluster().settings.security))))),
    post(SECURITY, USERS, |call| Box::pin(change(call))),
    get(FIELD, READ, |call| ready(show(&call))),
    delete(FIELD, USERS, |call| Box::pin(reset(call))),
];

async fn change(call: Call) -> Result<Reply, Reply> {
    let mut security = call.node.cluster().settings.security.clone();
    for (field, value) in call.form() {
        read(&mut security, &field, &value)?;
    }
    set(&call, security).await
}

fn show(call: &Call) -> Result<Reply, Reply> {
    let known = describe(&call.node.cluster().settings.security);
    known.get(call.segment("field")).map(ok).ok_or_else(not_found)
}

/// Resets a field to its value in a new cluster.
async fn reset(call: Call) -> Result<Reply, Reply> {
    let mut security = call.node.cluster().settings.security.clone();
    let usual = Security::default();
    match call.segment("field") {
        "tlsMinVersion" => security.tls_min = usual.tls_min,
        "cipherSuites" => security.cipher_suites = usual.cipher_suites,
        "honorCipherOrder" => security.honor_cipher_order = usual.honor_cipher_order,
        "disableWWWAuthenticate" => security.hide_challenge = usual.hide_challenge,
        "responseHeaders" => security.hsts = usual.hsts,
        "disableUIOverHttp" => security.disable_ui_http = usual.disable_ui_http,
        "disableUIOverHttps" => security.disable_ui_https = usual.disable_ui_https,
        _ => return Err(not_found()),
    }
    set(&call, security).await
}

async fn set(call: &Call, security: Security) -> Result<Reply, Reply> {
    tls::check(&security).map_err(|reason| invalid("cipherSuites", reason))?;
    settings::change(call, SettingsChange::Security(security)).await?;
    Ok(done())
}

fn flag(field: &str, value: &str) -> Result<bool, Reply> {
    match value {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(invalid(field, "Accepted values are 'true' and 'false'.")),
    }
}

fn read(security: &mut Security, field: &str, value: &str) -> Result<(), Reply> {
    match field {
        "tlsMinVersion" => {
            security.tls_min = match value {
                "tlsv1.2" => TlsFloor::Tls12,
                "tlsv1.3" => TlsFloor::Tls13,
                _ => return Err(invalid(field, "Supported TLS versions are tlsv1.2, tlsv1.3")),
            };
        }
        "cipherSuites" => {
            let names: Vec<String> = serde_json::from_str(value)
                .map_err(|_| invalid(field, "Invalid format. Expecting a list of ciphers."))?;
            let known = tls::suite_names();
            let unknown: Vec<&str> =
                names.iter().map(String::as_str).filter(|name| !known.contains(name)).collect();
            if !unknown.is_empty() {
                let reason = format!("Invalid cipher suite names {}", unknown.join(", "));
                return Err(invalid(field, reason));
            }
            security.cipher_suites = names;
        }
        "honorCipherOrder" => security.honor_cipher_order = flag(field, value)?,
        "disableWWWAuthenticate" => security.hide_challenge = flag(field, value)?,
        "disableUIOverHttp" => security.disable_ui_http = flag(field, value)?,
        "disableUIOverHttps" => security.disable_ui_https = flag(field, value)?,
        "responseHeaders" => security.hsts = hsts(field, value)?,
        _ => match FIXED.iter().find(|(name, ..)| *name == field) {
            Some((_, known, _)) if *known == value => {}
            Some((.., reason)) => return Err(invalid(field, *reason)),
            None => return Err(invalid(field, "Unsupported key")),
        },
    }
    Ok(())
}

/// Reads the value of `Strict-Transport-Security`, the only header that can be set.
fn hsts(field: &str, value: &str) -> Result<Option<String>, Reply> {
    let headers: Value = serde_json::from_str(value)
        .map_err(|_| invalid(field, "Invalid format. Expecting a json."))?;
    let headers =
        headers.as_object().ok_or_else(|| invalid(field, "Invalid format. Expecting a json."))?;
    let value = match headers.get("Strict-Transport-Security") {
        None if headers.is_empty() => return Ok(None),
        Some(Value::String(value)) if headers.len() == 1 => value,
        _ => return Err(invalid(field, "Only \"Strict-Transport-Security\" header allowed")),
    };
    let mut has_age = false;
    for directive in value.split(';').map(str::trim) {
        match directive.split_once('=') {
            Some(("max-age", age)) if age.parse::<u64>().is_ok() && !has_age => has_age = true,
            None if ["includeSubDomains", "preload"].contains(&directive) => {}
            _ => return Err(invalid(field, format!("Invalid directives {directive}"))),
        }
    }
    if has_age {
        Ok(Some(value.clone()))
    } else {
        Err(invalid(field, "max-age directive is required"))
    }
}

fn describe(security: &Security) -> Value {
    let headers = match &security.hsts {
        Some(value) => json!({"Strict-Transport-Security": value}),
        None => json!({}),
    };
    let mut described = json!({
        "tlsMinVersion": match security.tls_min {
            TlsFloor::Tls12 => "tlsv1.2",
            TlsFloor::Tls13 => "tlsv1.3",
        },
        "cipherSuites": security.cipher_suites,
        "supportedCipherSuites": tls::suite_names(),
        "honorCipherOrder": security.honor_cipher_order,
        "disableWWWAuthenticate": security.hide_challenge,
        "disableUIOverHttp": security.disable_ui_http,
        "disableUIOverHttps": security.disable_ui_https,
        "responseHeaders": headers,
    });
    for (name, value, _) in FIXED {
        described[name] = serde_json::from_str(value).unwrap_or_else(|_| json!(value));
    }
    described
}

/// Adds headers to an answer and removes headers from it, according to the settings.
pub(super) fn apply(security: &Security, encrypted: bool, headers: &mut HeaderMap) {
    if security.hide_challenge {
        headers.remove(WWW_AUTHENTICATE);
    }
    let hsts = security.hsts.as_deref().filter(|_| encrypted);
    if let Some(value) = hsts.and_then(|value| HeaderValue::from_str(value).ok()) {
        headers.insert(STRICT_TRANSPORT_SECURITY, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_is_returned_or_refused() {
        let mut security = Security::default();
        let suites = json!(tls::suite_names()[..2]).to_string();
        for (field, value) in [
            ("tlsMinVersion", "tlsv1.3"),
            ("cipherSuites", suites.as_str()),
            ("honorCipherOrder", "true"),
            ("disableWWWAuthenticate", "true"),
            ("disableUIOverHttp", "true"),
            ("disableUIOverHttps", "true"),
            ("responseHeaders", r#"{"Strict-Transport-Security":"max-age=10;preload"}"#),
            ("clusterEncryptionLevel", "all"),
        ] {
            read(&mut security, field, value).unwrap();
            let known = describe(&security)[field].clone();
            let given = serde_json::from_str(value).unwrap_or_else(|_| json!(value));
            assert_eq!(known, given, "{field}");
        }
        for (field, value) in [
            ("tlsMinVersion", "tlsv1.1"),
            ("cipherSuites", "RC4"),
            ("cipherSuites", "[\"RC4\"]"),
            ("honorCipherOrder", "1"),
            ("responseHeaders", "{\"Server\":\"x\"}"),
            ("responseHeaders", r#"{"Strict-Transport-Security":"preload"}"#),
            ("responseHeaders", r#"{"Strict-Transport-Security":"max-age=1;evil"}"#),
            ("clusterEncryptionLevel", "strict"),
            ("uiSessionTimeout", "600"),
        ] {
            assert!(read(&mut security, field, value).is_err(), "{field} {value}");
        }
    }
}
