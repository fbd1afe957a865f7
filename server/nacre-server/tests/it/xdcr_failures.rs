//! Peers that fail or lie: what is wrong is said by name, and nothing is lost on either side.

use crate::cluster::Node;
use crate::copies::{is_rebalancing, rebalance};
use crate::xdcr::{CREATE, REFERENCES, client, make_bucket, printed, reference, replication, task};
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

/// Two replications read the same bucket. Its deletion ends the one that has no setting to stay.
#[test]
fn a_replication_may_stay_without_its_bucket() {
    let node = Node::start();
    for name in ["one", "two"] {
        make_bucket(&node, name, "numVBuckets=16");
    }
    let other = Node::start();
    make_bucket(&other, "two", "numVBuckets=16");
    for (name, to) in [("self", &node), ("other", &other)] {
        node.succeed("POST", REFERENCES, &reference(name, to));
    }
    let stays = format!("{}&skipReplSpecAutoGc=true", replication("one", "self", "two"));
    node.succeed("POST", CREATE, &stays);
    node.succeed("POST", CREATE, &replication("one", "other", "two"));
    node.succeed("DELETE", "/pools/default/buckets/one", "");
    let count = |node: &Node| node.json("/pools/default/replications").as_array().unwrap().len();
    node.wait_until("the end of the other one", |node| count(node) == 1);
    let shown = task(&node);
    assert_eq!(shown["status"], "notRunning", "{shown}");
    let errors = shown["errors"].to_string();
    assert!(errors.contains("the source bucket one does not exist any more"), "{errors}");
    let settings = shown["settingsURI"].as_str().unwrap();
    assert_eq!(node.json(settings)["skipReplSpecAutoGc"], true);
    node.succeed("POST", settings, "skipReplSpecAutoGc=false");
    node.wait_until("its end", |node| count(node) == 0);
}

/// All vBuckets of the target have other UUIDs afterwards, so that no checkpoint fits.
#[test]
fn a_flushed_target_receives_everything_again() {
    let node = Node::start();
    make_bucket(&node, "one", "numVBuckets=16");
    make_bucket(&node, "two", "numVBuckets=16&flushEnabled=1");
    node.succeed("POST", REFERENCES, &reference("self", &node));
    node.succeed("POST", CREATE, &replication("one", "self", "two"));
    let mut one = client(&node, "one");
    let keys: Vec<String> = (0..40).map(|number| format!("k{number}")).collect();
    keys.iter().for_each(|key| set(&mut one, key, "1"));
    node.wait_until("the documents", |node| task(node)["docsWritten"] == 40);
    node.succeed("POST", "/pools/default/buckets/two/controller/doFlush", "");
    let two = RefCell::new(client(&node, "two"));
    node.wait_until("all documents again", |_| {
        keys.iter().all(|key| get(&mut two.borrow_mut(), key).is_some())
    });
    assert_eq!(printed(&node, &["diff", "one"]), "40 documents and deletions are equal\n");
}

/// The target drops a collection and makes it again, under another ID. Other collections are not held up in the meantime.
#[test]
fn documents_of_a_dropped_collection_arrive_once_the_target_has_it_again() {
    let node = Node::start();
    let scopes = |name: &str| format!("/pools/default/buckets/{name}/scopes");
    for name in ["one", "two"] {
        make_bucket(&node, name, "numVBuckets=16");
        node.succeed("POST", &scopes(name), "name=shop");
        node.succeed("POST", &format!("{}/shop/collections", scopes(name)), "name=orders");
    }
    node.succeed("POST", REFERENCES, &reference("self", &node));
    node.succeed("POST", CREATE, &replication("one", "self", "two"));
    let mut one = client(&node, "one");
    let orders = one.collection_id("shop.orders").unwrap();
    let order = |one: &mut Bucket, name: &str| {
        let key = Key { collection: orders, name: name.as_bytes() };
        one.set(key, b"1", StoreOptions::default()).unwrap();
    };
    order(&mut one, "before");
    node.wait_until("the order", |node| task(node)["docsWritten"] == 1);
    node.succeed("DELETE", &format!("{}/shop/collections/orders", scopes("two")), "");
    node.wait_until("the collection to be missed", |node| {
        let errors = task(node)["errors"].to_string();
        errors.contains("will not get replicated to") && errors.contains("shop.orders")
    });
    order(&mut one, "meanwhile");
    set(&mut one, "other", "2");
    let two = RefCell::new(client(&node, "two"));
    node.wait_until("the other document", |_| get(&mut two.borrow_mut(), "other").is_some());
    node.succeed("POST", &format!("{}/shop/collections", scopes("two")), "name=orders");
    let mut two = client(&node, "two");
    let again = two.collection_id("shop.orders").unwrap();
    let two = RefCell::new(two);
    node.wait_until("both orders", |_| {
        ["before", "meanwhile"].iter().all(|name| {
            let key = Key { collection: again, name: name.as_bytes() };
            two.borrow_mut().get(key).unwrap().is_some()
        })
    });
}

/// First the vBuckets of the target spread over a second node, then those of the source, while clients write.
#[test]
fn vbuckets_that_move_on_either_side_are_followed() {
    let [source, target] = [(); 2].map(|()| [Node::start(), Node::start()]);
    for (nodes, vbuckets) in [(&source, 16), (&target, 32)] {
        make_bucket(&nodes[0], "b", &format!("numVBuckets={vbuckets}&replicaNumber=0"));
    }
    source[0].succeed("POST", REFERENCES, &reference("other", &target[0]));
    source[0].succeed("POST", CREATE, &replication("b", "other", "b"));
    let mut client = client(&source[0], "b");
    let mut count = 0;
    for nodes in [&target, &source] {
        assert_eq!(nodes[0].add(&nodes[1]).0, 200);
        rebalance(nodes, &[]);
        let mut is_moving = true;
        while is_moving {
            is_moving = is_rebalancing(&nodes[0]);
            for _ in 0..50 {
                set(&mut client, &format!("k{count}"), "1");
                count += 1;
            }
        }
    }
    source[0].wait_until("nothing to be left", |node| {
        let task = task(node);
        task["status"] == "running" && task["changesLeft"] == 0
    });
    let equal = printed(&source[0], &["diff", "b"]);
    assert_eq!(equal, format!("{count} documents and deletions are equal\n"));
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

/// The clock of the source was wrong for a while: its versions would win until the clock gets there.
#[test]
fn a_source_with_versions_of_the_future_is_refused() {
    let node = Node::start();
    for name in ["one", "two"] {
        make_bucket(&node, name, "numVBuckets=16&conflictResolutionType=lww");
    }
    let minute = 60 * 1_000_000_000;
    let sent = send(&mut client(&node, "one"), "k", unix_ns() + 63 * minute, None);
    assert_eq!(sent, Ok(()), "the bucket takes versions up to 65 minutes ahead");
    node.succeed("POST", REFERENCES, &reference("self", &node));
    let form = |hours: u32| {
        let plain = replication("one", "self", "two");
        format!("{plain}&preCheckCasDriftThresholdHours={hours}")
    };
    let (status, refused) = node.ask("POST", CREATE, &form(1));
    assert_eq!(status, 400, "{refused}");
    assert!(refused.contains("more than 1 h ahead of the clock"), "{refused}");
    node.succeed("POST", CREATE, &form(2));
    node.wait_until("the version", |node| task(node)["docsWritten"] == 1);
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
