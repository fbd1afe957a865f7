//! References to other clusters: `/pools/default/remoteClusters`.

use crate::Xdcr;
use crate::form::{self, Form, invalid, ok, refused, segment};
use crate::record::{self, Agreed, Reference, Security, Write};
use crate::target::{Management, Unusable};
use nacre_client::IdentityError;
use nacre_node::service::{HttpReply, HttpRequest};
use nacre_node::{Error, Node};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// The longest name of a reference, in bytes.
const NAME_BYTES_MAX: usize = 100;
/// The longest certificate or key, in bytes.
const CERTIFICATE_BYTES_MAX: usize = 64 << 10;
/// The longest other field, in bytes.
const TEXT_BYTES_MAX: usize = 1024;
/// Default ports of the management service: plain, encrypted.
const PORTS: (u16, u16) = (8091, 18091);

/// Known fields.
const FIELDS: [&str; 14] = [
    "name",
    "hostname",
    "username",
    "password",
    "secureType",
    "demandEncryption",
    "encryptionType",
    "certificate",
    "clientCertificate",
    "clientKey",
    "network_type",
    "just_validate",
    "restrictHostnameReplace",
    "stage",
];

/// `GET /pools/default/remoteClusters`.
pub(super) fn list(node: &Arc<Node>, _: &HttpRequest) -> HttpReply {
    let agreed = record::agreed(node);
    ok(&Value::Array(agreed.references.iter().map(|it| describe(node, it)).collect()))
}

/// `POST /pools/default/remoteClusters`.
pub(super) fn create(node: &Arc<Node>, request: &HttpRequest) -> HttpReply {
    put(node, request, None).unwrap_or_else(|reply| reply)
}

/// `POST /pools/default/remoteClusters/{name}`.
pub(super) fn edit(node: &Arc<Node>, request: &HttpRequest) -> HttpReply {
    node.catch_up();
    let name = &request.parameters[0];
    match record::agreed(node).reference(name) {
        None => unknown(),
        Some(known) => put(node, request, Some(known)).unwrap_or_else(|reply| reply),
    }
}

/// `DELETE /pools/default/remoteClusters/{name}`.
pub(super) fn delete(node: &Arc<Node>, request: &HttpRequest) -> HttpReply {
    let name = &request.parameters[0];
    let deleted = record::change(node, |seen, agreed| {
        let Some(reference) = agreed.reference(name) else { return Ok(unknown()) };
        let of_it = agreed.replications.iter().filter(|it| it.cluster == reference.uuid);
        let ids: Vec<&str> = of_it.map(|replication| replication.id.as_str()).collect();
        if !ids.is_empty() {
            let reason = format!(
                "Cannot delete remote cluster `{name}` since it is referenced by replications [{}]",
                ids.join(" ")
            );
            return Ok(invalid("_", reason));
        }
        record::put(node, seen, &Write::NoReference(name))?;
        Ok(ok(&json!("ok")))
    });
    deleted.unwrap_or_else(|error| refused(&error))
}

fn unknown() -> HttpReply {
    form::reply(404, &json!("unknown remote cluster"))
}

fn put(
    node: &Arc<Node>,
    request: &HttpRequest,
    known: Option<&Reference>,
) -> Result<HttpReply, HttpReply> {
    let form = form::read(request)?;
    let mut reference = read(&form, known)?;
    let only_checks =
        form.get("just_validate").is_some_and(|value| value == "1" || value == "true");
    let management =
        Management::new(&reference, &[]).map_err(|reason| invalid("certificate", reason))?;
    reference.uuid =
        management.cluster().map_err(|unusable| unreachable(&reference, &unusable))?.uuid;
    let before = known.map(|known| known.name.clone());
    let done = record::change(node, |seen, agreed| {
        if let Some(reason) = conflict(&agreed, &reference, before.as_deref()) {
            return Ok(Some(reason));
        }
        if only_checks {
            return Ok(None);
        }
        record::put(node, seen, &Write::Reference(&reference))?;
        if let Some(before) = before.as_deref().filter(|before| *before != reference.name) {
            record::put(node, &node.cluster(), &Write::NoReference(before))?;
        }
        Ok::<_, Error>(None)
    });
    match done {
        Err(error) => Err(refused(&error)),
        Ok(Some((field, reason))) => Err(invalid(field, reason)),
        Ok(None) => Ok(ok(&describe(node, &reference))),
    }
}

/// Returns the reason why a reference conflicts with an existing one.
fn conflict(
    agreed: &Agreed,
    wanted: &Reference,
    before: Option<&str>,
) -> Option<(&'static str, String)> {
    let others = || agreed.references.iter().filter(|it| Some(it.name.as_str()) != before);
    if others().any(|other| other.name == wanted.name) {
        return Some(("name", "duplicate cluster names are not allowed".to_owned()));
    }
    if let Some(other) = others().find(|other| other.uuid == wanted.uuid) {
        let reason = format!("the reference {} is to the same cluster", other.name);
        return Some(("_", reason));
    }
    let known = before.and_then(|before| agreed.reference(before));
    let is_used =
        |known: &&Reference| agreed.replications.iter().any(|it| it.cluster == known.uuid);
    if known.filter(is_used).is_some_and(|known| known.uuid != wanted.uuid) {
        let reason = "the node belongs to another cluster than before, and there are replications to that one";
        return Some(("hostname", reason.to_owned()));
    }
    None
}

fn unreachable(reference: &Reference, unusable: &Unusable) -> HttpReply {
    match unusable {
        Unusable::Unauthorized(_) if reference.has_client_certificate() => invalid(
            "clientCertificate",
            format!("Authentication failed. Verify the client certificate: {unusable}."),
        ),
        // A node that does not know the authority of the certificate closes the connection.
        other if reference.has_client_certificate() => invalid(
            "hostname",
            format!(
                "Could not connect to the remote cluster, which may refuse the client certificate: {other}"
            ),
        ),
        Unusable::Unauthorized(_) => invalid(
            "_",
            format!("Authentication failed. Verify username and password: {unusable}."),
        ),
        other => invalid("hostname", format!("Could not connect to the remote cluster: {other}")),
    }
}

/// Reads a reference. Fields that the form lacks keep their values of `known`.
fn read(form: &Form, known: Option<&Reference>) -> Result<Reference, HttpReply> {
    let mut wrong = Map::new();
    for field in form.keys().filter(|field| !FIELDS.contains(&field.as_str())) {
        wrong.insert(field.clone(), json!("it is not a field of references"));
    }
    for (field, value) in form {
        let is_pem = ["certificate", "clientCertificate", "clientKey"].contains(&field.as_str());
        let most = if is_pem { CERTIFICATE_BYTES_MAX } else { TEXT_BYTES_MAX };
        if value.len() > most {
            wrong.insert(field.clone(), json!(format!("it has more than {most} bytes")));
        }
    }
    let mut required = |field: &str, before: Option<&String>, reason: &str| {
        required(form, &mut wrong, field, before, reason)
    };
    let name = required("name", known.map(|known| &known.name), "cluster name is missing");
    let hostname =
        required("hostname", known.map(|known| &known.hostname), "hostname (ip) is missing");
    let login = login(form, known, &mut wrong);
    let security = match security(form) {
        Ok(security) => security.or(known.map(|known| known.security)).unwrap_or_default(),
        Err((field, reason)) => {
            wrong.insert(field.to_owned(), json!(reason));
            Security::None
        }
    };
    let certificate = match form.get("certificate") {
        Some(certificate) => certificate.clone(),
        None => known.map(|known| known.certificate.clone()).unwrap_or_default(),
    };
    if security == Security::None && !certificate.is_empty() {
        let reason = "a certificate is used with encryption only: set secureType to full";
        wrong.insert("certificate".to_owned(), json!(reason));
    }
    if login.is_by_certificate && security != Security::Full {
        let reason =
            "a client certificate is used with full encryption only: set secureType to full";
        wrong.insert("clientCertificate".to_owned(), json!(reason));
    }
    if name.len() > NAME_BYTES_MAX || name.contains('/') {
        wrong.insert("name".to_owned(), json!("a name has up to 100 bytes and no slash"));
    }
    let hostname = with_port(&hostname, security).unwrap_or_else(|reason| {
        wrong.entry("hostname").or_insert_with(|| json!(reason));
        String::new()
    });
    let keeps_password = !login.is_by_certificate && given(form, "password").is_none();
    if known.is_some_and(|known| {
        keeps_password && !is_same_server(known, &hostname, security, &certificate)
    }) {
        let reason =
            "give the password again: it was given for another host, or for other encryption";
        wrong.insert("password".to_owned(), json!(reason));
    }
    if !wrong.is_empty() {
        return Err(form::reply(400, &Value::Object(wrong)));
    }
    let external = form.get("network_type").map(|value| value == "external");
    let external = external.or(known.map(|known| known.external)).unwrap_or(false);
    let uuid = String::new();
    let Login { username, password, client_certificate, client_key, .. } = login;
    let reference = Reference {
        name,
        uuid,
        hostname,
        username,
        password,
        security,
        certificate,
        client_certificate,
        client_key,
        external,
    };
    match reference.identity() {
        Ok(_) => Ok(reference),
        Err(IdentityError::Certificate(reason)) => Err(invalid("clientCertificate", reason)),
        Err(IdentityError::Key(reason)) => Err(invalid("clientKey", reason)),
    }
}

/// Returns the value of a field that is not empty.
fn given<'a>(form: &'a Form, field: &str) -> Option<&'a String> {
    form.get(field).filter(|value| !value.is_empty())
}

/// Returns the value of a field, or else the value `before`. If both are missing, `wrong` gets the reason.
fn required(
    form: &Form,
    wrong: &mut Map<String, Value>,
    field: &str,
    before: Option<&String>,
    reason: &str,
) -> String {
    let value = given(form, field).or(before.filter(|value| !value.is_empty()));
    if value.is_none() {
        wrong.insert(field.to_owned(), json!(reason));
    }
    value.cloned().unwrap_or_default()
}

/// The login of a reference: a user and a password, or a client certificate and its key.
#[derive(Default)]
struct Login {
    is_by_certificate: bool,
    username: String,
    password: String,
    client_certificate: String,
    client_key: String,
}

/// Reads the login. A form without any part of it keeps that of `known`.
fn login(form: &Form, known: Option<&Reference>, wrong: &mut Map<String, Value>) -> Login {
    let has_one = |fields: [&str; 2]| fields.iter().any(|field| given(form, field).is_some());
    let (names_user, has_certificate) =
        (has_one(["username", "password"]), has_one(["clientCertificate", "clientKey"]));
    let keeps_certificate = known.filter(|known| known.has_client_certificate() && !names_user);
    if has_certificate || keeps_certificate.is_some() {
        if names_user {
            let reason =
                "username and client certificate cannot both be given when secure type is full";
            wrong.insert("clientCertificate".to_owned(), json!(reason));
            return Login { is_by_certificate: true, ..Login::default() };
        }
        // A certificate and its key are replaced together.
        let kept = keeps_certificate.filter(|_| !has_certificate);
        let (certificate, key) =
            kept.map(|kept| (&kept.client_certificate, &kept.client_key)).unzip();
        let missing = ["the certificate is missing", "the key of the certificate is missing"];
        return Login {
            is_by_certificate: true,
            client_certificate: required(form, wrong, "clientCertificate", certificate, missing[0]),
            client_key: required(form, wrong, "clientKey", key, missing[1]),
            ..Login::default()
        };
    }
    let (username, password) = known.map(|known| (&known.username, &known.password)).unzip();
    Login {
        username: required(form, wrong, "username", username, "username is missing"),
        password: required(form, wrong, "password", password, "password is missing"),
        ..Login::default()
    }
}

/// Returns true if the login goes to the same server as that of `known`, with at least the same protection on the way.
fn is_same_server(
    known: &Reference,
    hostname: &str,
    security: Security,
    certificate: &str,
) -> bool {
    known.hostname == hostname && known.security == security && known.certificate == certificate
}

/// Reads the connection security; `None` if the form does not specify it.
fn security(form: &Form) -> Result<Option<Security>, (&'static str, String)> {
    let word = |field: &'static str, value: &str| match value {
        "none" if field == "secureType" => Ok(Security::None),
        "half" => Ok(Security::Half),
        "full" => Ok(Security::Full),
        _ => Err((field, "it must be none, half or full".to_owned())),
    };
    if let Some(value) = form.get("secureType").filter(|value| !value.is_empty()) {
        return word("secureType", value).map(Some);
    }
    match form.get("demandEncryption").map(String::as_str) {
        None => Ok(None),
        Some("0" | "false" | "off" | "") => Ok(Some(Security::None)),
        Some("1" | "true" | "on") => match form.get("encryptionType") {
            Some(value) if !value.is_empty() => word("encryptionType", value).map(Some),
            _ => Ok(Some(Security::Full)),
        },
        Some(_) => Err(("demandEncryption", "it must be 0 or 1".to_owned())),
    }
}

/// Returns the host with its port. The default is the management port.
fn with_port(hostname: &str, security: Security) -> Result<String, String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
    if hostname.is_empty() || !hostname.bytes().all(is_plain) {
        return Err("it is not a host with or without a port".to_owned());
    }
    let default = if security == Security::None { PORTS.0 } else { PORTS.1 };
    let is_address = hostname.starts_with('[') && hostname.ends_with(']');
    match hostname.rsplit_once(':') {
        Some((host, port)) if !is_address => match port.parse::<u16>() {
            Ok(port) if port > 0 && !host.is_empty() => Ok(hostname.to_owned()),
            _ => Err("its port is not a number between 1 and 65535".to_owned()),
        },
        _ => Ok(format!("{hostname}:{default}")),
    }
}

fn describe(node: &Arc<Node>, reference: &Reference) -> Value {
    let connectivity = node.service::<Xdcr>().map(|service| service.connectivity(&reference.uuid));
    let uri = format!("/pools/default/remoteClusters/{}", segment(&reference.name));
    let mut described = json!({
        "uuid": reference.uuid,
        "name": reference.name,
        "uri": uri,
        "validateURI": format!("{uri}?just_validate=1"),
        "hostname": reference.hostname,
        "username": reference.username,
        "deleted": false,
        "secureType": reference.security.name(),
        "network_type": if reference.external { "external" } else { "" },
        "connectivityStatus": connectivity.unwrap_or_default().name(),
        "connectivityErrors": [],
    });
    if reference.security != Security::None {
        described["demandEncryption"] = json!(true);
        described["encryptionType"] = json!(reference.security.name());
        described["certificate"] = json!(reference.certificate);
    }
    if reference.has_client_certificate() {
        described["clientCertificate"] = json!(reference.client_certificate);
    }
    described
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(fields: &[(&str, &str)]) -> Form {
        let whole = [("name", "b"), ("hostname", "b"), ("username", "ann"), ("password", "pw")];
        let all = whole.iter().chain(fields);
        all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn wrong(fields: &[(&str, &str)]) -> String {
        let reply = read(&form(fields), None).unwrap_err();
        assert_eq!(reply.status, 400);
        String::from_utf8(reply.body).unwrap()
    }

    #[test]
    fn a_host_without_a_port_has_that_of_management() {
        let read = |fields: &[(&str, &str)]| read(&form(fields), None).unwrap();
        assert_eq!(read(&[]).hostname, "b:8091");
        assert_eq!(read(&[("secureType", "full")]).url(), "https://b:18091");
        assert_eq!(read(&[("demandEncryption", "1")]).security, Security::Full);
        let half = [("demandEncryption", "1"), ("encryptionType", "half")];
        assert_eq!(read(&half).security, Security::Half);
        assert_eq!(read(&[("hostname", "[::1]:9000")]).hostname, "[::1]:9000");
        assert_eq!(read(&[("hostname", "[::1]")]).hostname, "[::1]:8091");
    }

    #[test]
    fn each_field_that_is_wrong_is_named() {
        let text = wrong(&[("name", ""), ("password", "")]);
        insta::assert_snapshot!(text, @r#"{"name":"cluster name is missing","password":"password is missing"}"#);
        for (field, value) in [
            ("hostname", "b:0"),
            ("hostname", "b:x"),
            ("hostname", "http://b"),
            ("name", "a/b"),
            ("secureType", "some"),
            ("demandEncryption", "2"),
            ("certificate", "x"),
            ("clientKey", "x"),
            ("colour", "red"),
            ("username", &"x".repeat(2000)),
        ] {
            assert!(wrong(&[(field, value)]).contains(field) || field == "clientKey", "{field}");
        }
    }

    /// Returns the answer to a form without a user.
    fn refused_certificate(fields: &[(&str, &str)]) -> String {
        let whole = [("name", "b"), ("hostname", "b"), ("secureType", "full")];
        let all = whole.iter().chain(fields);
        let form = all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let reply = read(&form, None).unwrap_err();
        assert_eq!(reply.status, 400);
        String::from_utf8(reply.body).unwrap()
    }

    #[test]
    fn a_client_certificate_that_cannot_be_used_is_refused_by_name() {
        let lone = refused_certificate(&[("clientCertificate", "x")]);
        insta::assert_snapshot!(lone, @r#"{"clientKey":"the key of the certificate is missing"}"#);
        let lone = refused_certificate(&[("clientKey", "x")]);
        insta::assert_snapshot!(lone, @r#"{"clientCertificate":"the certificate is missing"}"#);
        let pair = [("clientCertificate", "x"), ("clientKey", "y")];
        let malformed = refused_certificate(&pair);
        insta::assert_snapshot!(malformed, @r#"{"clientCertificate":"it has no certificate in PEM"}"#);
        let half = refused_certificate(&[&pair[..], &[("secureType", "half")]].concat());
        assert!(half.contains("full encryption only"), "{half}");
        let both = wrong(&[&pair[..], &[("secureType", "full")]].concat());
        assert!(both.contains("cannot both be given"), "{both}");
        let large = "x".repeat(CERTIFICATE_BYTES_MAX + 1);
        let large = refused_certificate(&[("clientCertificate", "x"), ("clientKey", &large)]);
        assert!(large.contains("it has more than 65536 bytes"), "{large}");
    }

    #[test]
    fn an_edit_keeps_or_replaces_the_login() {
        let known = Reference {
            username: String::new(),
            password: String::new(),
            client_certificate: "c".to_owned(),
            client_key: "k".to_owned(),
            ..read(&form(&[("secureType", "full")]), None).unwrap()
        };
        let edit = |fields: &[(&str, &str)]| {
            let fields =
                fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            let mut wrong = Map::new();
            (login(&fields.collect(), Some(&known), &mut wrong), wrong)
        };
        let (kept, wrong) = edit(&[("name", "c")]);
        assert!(kept.is_by_certificate && wrong.is_empty(), "{wrong:?}");
        assert_eq!((&kept.client_certificate[..], &kept.client_key[..]), ("c", "k"));
        let (_, wrong) = edit(&[("clientCertificate", "other")]);
        assert!(wrong.contains_key("clientKey"), "they are replaced together: {wrong:?}");
        let (user, wrong) = edit(&[("username", "ann"), ("password", "pw")]);
        assert!(!user.is_by_certificate && wrong.is_empty(), "{wrong:?}");
        assert_eq!((&user.password[..], &user.client_key[..]), ("pw", ""));
        let (_, wrong) = edit(&[("username", "ann")]);
        assert!(wrong.contains_key("password"), "{wrong:?}");
    }

    #[test]
    fn fields_that_an_edit_omits_stay() {
        let known = read(&form(&[]), None).unwrap();
        let edited: Form = [("password".to_owned(), "other".to_owned())].into();
        let edited = read(&edited, Some(&known)).unwrap();
        assert_eq!(edited, Reference { password: "other".to_owned(), ..known });
    }

    #[test]
    fn a_stored_password_stays_with_the_server_that_it_was_given_for() {
        let known = read(&form(&[("secureType", "full")]), None).unwrap();
        let edit = |fields: &[(&str, &str)]| {
            let fields =
                fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            read(&fields.collect(), Some(&known))
        };
        for fields in [
            &[("hostname", "evil")][..],
            &[("hostname", "b:9000")],
            &[("secureType", "none")],
            &[("secureType", "half")],
            &[("demandEncryption", "0")],
            &[("certificate", "another")],
            &[("hostname", "evil"), ("password", "")],
        ] {
            let refused = edit(fields).unwrap_err();
            let text = String::from_utf8(refused.body).unwrap();
            assert!(refused.status == 400 && text.contains("give the password again"), "{text}");
            let mut whole = fields.to_vec();
            whole.push(("password", "other"));
            assert_eq!(edit(&whole).unwrap().password, "other");
        }
        for fields in [&[("username", "bob")][..], &[("name", "c")], &[("hostname", "b:18091")]] {
            assert_eq!(edit(fields).unwrap().password, "pw", "{fields:?}");
        }
    }
}
