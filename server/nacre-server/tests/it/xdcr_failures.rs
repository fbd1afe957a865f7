//! Peers that fail or lie: what is wrong is said by name, and nothing is lost on either side.

use crate::cluster::Node;
use crate::xdcr::{CREATE, REFERENCES, client, make_bucket, reference, replication, task};
use nacre_client::{Bucket, Key, Metadata, StoreOptions, Version};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::cell::RefCell;
use std::time::{SystemTime, UNIX_EPOCH};

fn set(client: &mut Bucket, key: &str, body: &str) {
    client.set(Key::of_default(key.as_bytes()), body.as_bytes(), StoreOptions::default()).unwrap();
}

fn get(client: &mut Bucket, key: &str) -> Option<Vec<u8>> {
    client.get(Key::of_default(key.as_bytes())).unwrap().map(|document| document.value)
}

/// Sends a version with attributes, as another cluster does.
fn send(
    client: &mut Bucket,
    key: &str,
    cas: u64,
    attribute: Option<(&str, &str)>,
) -> Result<(), u16> {
    let mut value = Vec::new();
    if let Some((name, text)) = attribute {
        let pair = [name.as_bytes(), &[0], text.as_bytes(), &[0]].concat();
        value.extend((pair.len() as u32 + 4).to_be_bytes());
        value.extend((pair.len() as u32).to_be_bytes());
        value.extend(pair);
    }
    let datatype = if value.is_empty() { 0 } else { 4 };
    value.extend(b"\"lie\"");
    let metadata = Metadata { is_deleted: false, flags: 0, expiry: 0, rev: 9, cas };
    let version = Version { metadata, datatype, value: &value, by_time: true };
    let sent = client.set_version(Key::of_default(key.as_bytes()), version);
    sent.map(drop).map_err(|error| error.status().unwrap_or(0))
}

/// The clock of the machine, in ticks of CAS.
#[allow(clippy::disallowed_methods, reason = "the node under test reads the clock of the machine")]
pub fn unix_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64 & !0xffff
}

/// The bucket is deleted and made again, with another UUID: it may be anybody's now.
#[test]
fn a_bucket_of_the_same_name_and_another_uuid_gets_nothing() {
    let node = Node::start();
    for name in ["one", "two"] {
        make_bucket(&node, name, "numVBuckets=16");
    }
    node.succeed("POST", REFERENCES, &reference("self", &node));
    node.succeed("POST", CREATE, &replication("one", "self", "two"));
    set(&mut client(&node, "one"), "before", "1");
    node.wait_until("nothing to be left", |node| task(node)["docsWritten"] == 1);
    node.succeed("DELETE", "/pools/default/buckets/two", "");
    let mut one = client(&node, "one");
    set(&mut one, "after", "2");
    node.wait_until("the bucket to be missed", |node| {
        task(node)["errors"].to_string().contains("bucket 'two' does not exist")
    });
    make_bucket(&node, "two", "numVBuckets=16");
    // A connection may find it before the target is looked at.
    node.wait_until("the error", |node| {
        let task = task(node);
        task["errors"].to_string().contains("create it again") && task["status"] == "notRunning"
    });
    let mut two = client(&node, "two");
    assert_eq!((get(&mut two, "before"), get(&mut two, "after")), (None, None));
    assert_eq!(get(&mut one, "after").as_deref(), Some(&b"2"[..]), "nothing is lost here");
}

#[test]
fn a_replication_ends_with_the_bucket_that_it_reads() {
    let node = Node::start();
    for name in ["one", "two"] {
        make_bucket(&node, name, "numVBuckets=16");
    }
    node.succeed("POST", REFERENCES, &reference("self", &node));
    node.succeed("POST", CREATE, &replication("one", "self", "two"));
    set(&mut client(&node, "one"), "k", "1");
    node.wait_until("the document", |node| task(node)["docsWritten"] == 1);
    node.succeed("DELETE", "/pools/default/buckets/one", "");
    // A bucket of the same name is another one.
    make_bucket(&node, "one", "numVBuckets=16");
    let replications = "/pools/default/replications";
    node.wait_until("its end", |node| node.json(replications) == serde_json::json!([]));
    set(&mut client(&node, "one"), "later", "2");
    let mut two = client(&node, "two");
    assert_eq!(get(&mut two, "k").as_deref(), Some(&b"1"[..]), "what was replicated stays");
    assert_eq!(get(&mut two, "later"), None);
}

/// The password is changed at the target. What is written meanwhile waits, and goes with the new password.
#[test]
fn a_changed_password_is_reported_and_the_next_one_resumes_replication() {
    let node = Node::start();
    for name in ["one", "two"] {
        make_bucket(&node, name, "numVBuckets=16");
    }
    let user = |password: &str| {
        let form = format!("password={password}&roles=replication_target[two]");
        node.succeed("PUT", "/settings/rbac/users/local/rep", &form);
    };
    let form = |password: &str| {
        format!("name=self&hostname={}&username=rep&password={password}", node.address())
    };
    user("secret1");
    node.succeed("POST", REFERENCES, &form("secret1"));
    node.succeed("POST", CREATE, &replication("one", "self", "two"));
    let mut one = client(&node, "one");
    set(&mut one, "before", "1");
    node.wait_until("the document", |node| task(node)["docsWritten"] == 1);
    user("secret2");
    set(&mut one, "meanwhile", "2");
    node.wait_until("the login to be refused", |node| {
        node.json(REFERENCES)[0]["connectivityStatus"] == "RC_AUTH_ERR"
    });
    let mut two = client(&node, "two");
    assert_eq!(get(&mut two, "meanwhile"), None);
    node.succeed("POST", &format!("{REFERENCES}/self"), &form("secret2"));
    let two = RefCell::new(two);
    node.wait_until("the document", |_| get(&mut two.borrow_mut(), "meanwhile").is_some());
    node.wait_until("the state", |node| {
        node.json(REFERENCES)[0]["connectivityStatus"] == "RC_OK" && task(node)["changesLeft"] == 0
    });
}

#[test]
fn a_cluster_with_an_untrusted_certificate_gets_no_requests() {
    let node = Node::start();
    make_bucket(&node, "one", "numVBuckets=16");
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let other = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let encode = |pem: &str| pem.replace('+', "%2B").replace('\n', "%0A").replace('=', "%3D");
    let tls =
        node.json("/pools/default/nodeServices")["nodesExt"][0]["services"]["mgmtSSL"].clone();
    let address = node.address();
    let host = address.rsplit_once(':').unwrap().0;
    let encrypted = reference("self", &node).replace(&address, &format!("{host}:{tls}"));
    let form = |pem: &str| format!("{encrypted}&secureType=full&certificate={}", encode(pem));
    let (status, refused) = node.ask("POST", REFERENCES, &form(&other.pem()));
    assert_eq!(status, 400, "{refused}");
    assert!(refused.to_lowercase().contains("certificate"), "{refused}");
    assert_eq!(node.json(REFERENCES).as_array().map(Vec::len), Some(0));
    let own = node.ask("GET", "/pools/default/certificate", "").1;
    let (status, made) = node.ask("POST", REFERENCES, &form(&own));
    assert_eq!(status, 200, "the right one is believed: {made}");
}

/// A version of the far future would win every conflict for as long.
#[test]
fn a_version_of_the_next_year_is_refused_and_others_are_not() {
    let node = Node::start();
    make_bucket(&node, "one", "numVBuckets=16&conflictResolutionType=lww");
    let mut one = client(&node, "one");
    let year = 365 * 86_400 * 1_000_000_000;
    assert_eq!(send(&mut one, "k", unix_ns() + year, None), Err(0x0f));
    assert_eq!(get(&mut one, "k"), None);
    assert_eq!(send(&mut one, "k", unix_ns() + 60_000_000_000, None), Ok(()));
    set(&mut one, "k", "\"mine\"");
    let metadata = one.metadata(Key::of_default(b"k")).unwrap().unwrap();
    assert!(metadata.cas > unix_ns() + 59_000_000_000, "later writes are later");
    assert!(metadata.cas < unix_ns() + year / 2);
}

/// Histories of other clusters are data of strangers: one that has no end, or none at all, stops neither its document nor the others.
#[test]
fn endless_or_missing_histories_do_not_stop_replication() {
    let node = Node::start();
    for name in ["one", "two"] {
        make_bucket(&node, name, "numVBuckets=16&conflictResolutionType=lww");
        let path = format!("/pools/default/buckets/{name}");
        node.succeed("POST", &path, "enableCrossClusterVersioning=true");
    }
    let (mut one, mut two) = (client(&node, "one"), client(&node, "two"));
    let now = unix_ns();
    let endless = (0..3000).map(|number| format!("\"01@s{number}\"")).collect::<Vec<_>>().join(",");
    let endless = format!(r#"{{"cvCas":"0x01","src":"s","ver":"0x01","pv":[{endless}]}}"#);
    for (number, text) in [endless.as_str(), "{}", "[1]"].into_iter().enumerate() {
        assert_eq!(send(&mut one, &format!("lie{number}"), now, Some(("_vv", text))), Ok(()));
        // The target has one as well, and an older version.
        assert_eq!(
            send(&mut two, &format!("lie{number}"), now - (1 << 20), Some(("_vv", text))),
            Ok(())
        );
    }
    set(&mut one, "honest", "1");
    node.succeed("POST", REFERENCES, &reference("self", &node));
    node.succeed("POST", CREATE, &replication("one", "self", "two"));
    let two = RefCell::new(two);
    node.wait_until("the honest one", |_| get(&mut two.borrow_mut(), "honest").is_some());
    node.wait_until("the others", |_| {
        (0..3).all(|number| {
            let key = format!("lie{number}");
            let found = two.borrow_mut().metadata(Key::of_default(key.as_bytes())).unwrap();
            found.is_some_and(|found| found.cas == now)
        })
    });
}
