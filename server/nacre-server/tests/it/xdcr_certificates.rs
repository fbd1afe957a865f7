//! Replication to a cluster that demands client certificates.

use crate::cluster::Node;
use crate::process::USER;
use crate::tls::{Authority, Pair, demand_certificates};
use crate::xdcr::{CREATE, REFERENCES, client, make_bucket, printed, replication};
use nacre_client::{Key, StoreOptions};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use std::cell::RefCell;

/// Returns the encrypted management port of a node, as host and port.
fn encrypted(node: &Node) -> String {
    let services = node.json("/pools/default/nodeServices");
    format!("127.0.0.1:{}", services["nodesExt"][0]["services"]["mgmtSSL"])
}

fn authority_of(node: &Node) -> String {
    node.ask("GET", "/pools/default/certificate", "").1
}

/// Returns the form of a reference to `to`, with a client certificate as the login.
fn reference(to: &Node, pair: &Pair) -> String {
    let (authority, host) = (authority_of(to), encrypted(to));
    let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    format!(
        "name=there&hostname={host}&secureType=full&certificate={}&clientCertificate={}&clientKey={}",
        encoded(&authority),
        encoded(&pair.certificate),
        encoded(&pair.key)
    )
}

#[test]
fn a_client_certificate_is_the_login_at_another_cluster() {
    let (here, there) = (Node::start(), Node::start());
    let operator = Authority::new();
    demand_certificates(there.server(), there.data_dir(), &operator);
    let pair = operator.sign(&format!("user:{USER}"));
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let authority = file("authority.pem", &authority_of(&there));
    let (certificate, key) = (file("user.pem", &pair.certificate), file("key.pem", &pair.key));
    let host = encrypted(&there);
    let linked = printed(
        &here,
        &[
            "link",
            "there",
            &host,
            "--secure",
            "full",
            "--certificate",
            &authority,
            "--client-certificate",
            &certificate,
            "--client-key",
            &key,
        ],
    );
    assert!(linked.starts_with("there is the cluster"), "{linked}");
    let listed = here.json(REFERENCES);
    assert_eq!((&listed[0]["secureType"], &listed[0]["username"]), (&json!("full"), &json!("")));
    assert_eq!(listed[0]["clientCertificate"], json!(pair.certificate));
    assert!(!listed.to_string().contains("PRIVATE KEY"), "{listed}");

    for node in [&here, &there] {
        make_bucket(node, "b", "numVBuckets=16");
    }
    here.succeed("POST", CREATE, &replication("b", "there", "b"));
    client(&here, "b").set(Key::of_default(b"k"), b"1", StoreOptions::default()).unwrap();
    let target = RefCell::new(client(&there, "b"));
    here.wait_until("the document to arrive", |_| {
        target.borrow_mut().get(Key::of_default(b"k")).unwrap().is_some()
    });
    // A new name keeps the login.
    here.succeed("POST", &format!("{REFERENCES}/there"), "name=other");
    assert_eq!(here.json(REFERENCES)[0]["clientCertificate"], json!(pair.certificate));
}

#[test]
fn a_client_certificate_of_somebody_else_is_refused_by_name() {
    let node = Node::start();
    let operator = Authority::new();
    demand_certificates(node.server(), node.data_dir(), &operator);
    let own = operator.sign(&format!("user:{USER}"));
    let mixed = Pair { certificate: own.certificate.clone(), key: operator.sign("other").key };
    let stranger = Authority::new().sign(&format!("user:{USER}"));
    for (pair, field, expected) in [
        (operator.sign("user:nobody"), "clientCertificate", "names no user"),
        (operator.sign("somebody"), "clientCertificate", "names no user"),
        (mixed, "clientKey", "does not belong to the certificate"),
        (stranger, "hostname", "may refuse the client certificate"),
    ] {
        let (status, text) = node.ask("POST", REFERENCES, &reference(&node, &pair));
        assert_eq!(status, 400, "{text}");
        let wrong: Value = serde_json::from_str(&text).unwrap();
        let reason = wrong[field].as_str().unwrap_or_default();
        assert!(reason.contains(expected), "{field}: {text}");
    }
    assert_eq!(node.json(REFERENCES), json!([]));
}
