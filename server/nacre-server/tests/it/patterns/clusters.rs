//! Two clusters that are cut off from each other, write, and meet again.

use super::{bucket_at, json, key};
use crate::cluster::Node;
use crate::plugin_functions::upload;
use crate::plugins::ask;
use crate::process::{PASSWORD, USER};
use crate::xdcr::{CREATE, REFERENCES, make_bucket, printed, reference, replication, task};
use crate::xdcr_distance::{far_apart, set_cut};
use nacre_client::{Bucket, Key};
use nacre_conformance::kv::{KvClient, Request};
use serde_json::{Value, json as value};
use std::cell::RefCell;

const BUCKET: &str = "b";
/// Users whom each side adds, as in the dissertation, and clients that do it.
const USERS: usize = 10_000;
const CLIENTS: usize = 8;
const COUNTER: &str = "counter::usercounter";
/// The sides; bodies of the second one are longer, so that a plugin which keeps the longer one keeps them.
const SITES: [&str; 2] = ["oslo", "reykjavik"];
const OP_SUBDOC_COUNTER: u8 = 0xcf;

/// Two clusters of one node that follow each other, and are cut off from each other.
fn cut_off(more: &str) -> [Node; 2] {
    let nodes = [Node::start(), Node::start()];
    for node in &nodes {
        make_bucket(node, BUCKET, &format!("numVBuckets=64&{more}"));
    }
    for (node, other) in [(&nodes[0], &nodes[1]), (&nodes[1], &nodes[0])] {
        node.succeed("POST", REFERENCES, &reference("other", other));
        node.succeed("POST", CREATE, &replication(BUCKET, "other", BUCKET));
    }
    for node in &nodes {
        printed(node, &["pause", BUCKET]);
        node.wait_until("it to rest", |node| task(node)["status"] == "paused");
    }
    nodes
}

fn client(node: &Node) -> Bucket {
    bucket_at(node.server().kv_address(), BUCKET)
}

/// Has one side add its users, then the other. `name` gives the key of the next one.
///
/// A CAS counts in steps of 65 microseconds, and both sides have the clock of this machine: at the same time they would give two versions
/// of a document all of the same metadata, which the rule of the bucket takes for the same version.
fn add_users(nodes: [&Node; 2], name: &(impl Fn(&Node, &mut Bucket, usize) -> String + Sync)) {
    for (node, site) in nodes.into_iter().zip(SITES) {
        std::thread::scope(|scope| {
            for first in 0..CLIENTS {
                scope.spawn(move || {
                    let mut client = client(node);
                    for number in (first..USERS).step_by(CLIENTS) {
                        let name = name(node, &mut client, number);
                        let user = format!(r#"{{"user_id":"{name}","site":"{site}"}}"#);
                        client.add(key(&name), user.as_bytes(), json()).unwrap();
                    }
                });
            }
        });
    }
}

/// Lets both follow each other again, and waits until they are the same. Returns the number of their documents.
fn meet(nodes: &[Node; 2]) -> u64 {
    for node in nodes {
        printed(node, &["resume", BUCKET]);
    }
    until_equal(nodes.each_ref())
}

/// Waits until both sides are the same, each with one of its nodes. Returns the number of their documents.
fn until_equal(nodes: [&Node; 2]) -> u64 {
    for node in nodes {
        node.wait_until("nothing to be left", |node| {
            let task = task(node);
            task["status"] == "running" && task["changesLeft"] == 0
        });
    }
    let said = printed(nodes[0], &["diff", BUCKET]);
    let count = said.strip_suffix(" documents and deletions are equal\n").expect(&said);
    let count: u64 = count.parse().unwrap();
    for node in nodes {
        let bucket = node.json(&format!("/pools/default/buckets/{BUCKET}"));
        assert_eq!(bucket["basicStats"]["itemCount"], count);
    }
    count
}

fn increment(_: &Node, client: &mut Bucket, _: usize) -> String {
    format!("user::{}", client.counter(key(COUNTER), 1, Some(1), None).unwrap())
}

/// Bodies that both sides have of a user.
fn bodies(nodes: &[Node; 2], name: &str) -> [Value; 2] {
    let body = |node: &Node| {
        let found = client(node).get(Key::of_default(name.as_bytes())).unwrap();
        serde_json::from_slice(&found.unwrap().value).unwrap()
    };
    [body(&nodes[0]), body(&nodes[1])]
}

/// A03: all inserts succeed, and half of the users are gone afterwards.
#[test]
fn half_of_the_users_are_left_when_both_sides_have_counted() {
    let nodes = cut_off("");
    add_users(nodes.each_ref(), &increment);
    // One document is the counter.
    assert_eq!(meet(&nodes), USERS as u64 + 1);
    for node in &nodes {
        let counter = client(node).get(key(COUNTER)).unwrap().unwrap();
        assert_eq!(counter.value, b"10000");
    }
    for number in [1, 2, 77, 9_999, 10_000] {
        let [one, other] = bodies(&nodes, &format!("user::{number}"));
        assert_eq!(one, other);
    }
}

/// A04: UUIDs need nobody.
#[test]
fn all_users_are_left_when_both_sides_have_made_keys_by_themselves() {
    let nodes = cut_off("");
    let uuid = || std::fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap();
    add_users(nodes.each_ref(), &|_, _, _| format!("user::{}", uuid().trim()));
    assert_eq!(meet(&nodes), 2 * USERS as u64);
}

/// A03 and A04 between clusters of two nodes that are 70 ms apart, and whose links are cut while both sides add users.
#[test]
fn distant_clusters_that_were_cut_off_have_lost_the_same_users() {
    let (clusters, links) = far_apart();
    let nodes = clusters.each_ref().map(|nodes| &nodes[0]);
    set_cut(&links, true);
    let uuid = || std::fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap();
    add_users(nodes, &increment);
    add_users(nodes, &|_, _, _| format!("user::{}", uuid().trim()));
    set_cut(&links, false);
    // Half of those with numbers, all with UUIDs, and the counter.
    assert_eq!(until_equal(nodes), USERS as u64 + 2 * USERS as u64 + 1);
}

/// A05: a counter that both sides have counted is right, and still half of the users are gone: their numbers were the same.
#[test]
fn a_counter_that_is_merged_is_right_and_does_not_bring_the_users_back() {
    let nodes = cut_off("");
    for node in &nodes {
        let path = format!("/pools/default/buckets/{BUCKET}");
        node.succeed("POST", &path, "enableCrossClusterVersioning=true");
    }
    for node in &nodes {
        assert_eq!(upload(node.server(), "resolver", "1", "").0, 201);
        let wanted = value!({"package": "resolver", "version": "1", "bucket": BUCKET}).to_string();
        let (status, told) = ask(node.server(), "PUT", "/deployments/merge", "", wanted.as_bytes());
        assert_eq!((status, &told["state"]), (200, &value!("running")), "{told}");
        client(node).set(key(COUNTER), b"{}", json()).unwrap();
    }
    let count = |node: &Node, _: &mut Bucket, _: usize| {
        let site = SITES[usize::from(node.port_base != nodes[0].port_base)];
        format!("user::{}", count_at(node, site))
    };
    add_users(nodes.each_ref(), &count);
    assert_eq!(meet(&nodes), USERS as u64 + 1);
    for counter in bodies(&nodes, COUNTER) {
        assert_eq!(counter, value!({"oslo": USERS, "reykjavik": USERS}));
        let total: u64 = counter.as_object().unwrap().values().flat_map(Value::as_u64).sum();
        assert_eq!(total, 20_000);
    }
    for number in [1, 77, 10_000] {
        let user = value!({"user_id": format!("user::{number}"), "site": SITES[1]});
        assert_eq!(bodies(&nodes, &format!("user::{number}")), [user.clone(), user]);
    }
}

thread_local! {
    /// The connection of a client that counts.
    static COUNTING: RefCell<Option<KvClient>> = const { RefCell::new(None) };
}

/// Adds to the number of a site, a member of the counter. Returns it.
fn count_at(node: &Node, site: &str) -> u64 {
    COUNTING.with_borrow_mut(|kept| {
        let client = kept.get_or_insert_with(|| {
            KvClient::connect(node.server().kv_address(), USER, PASSWORD, BUCKET).unwrap()
        });
        let length = u16::try_from(site.len()).unwrap().to_be_bytes();
        // Creates the member when it is missing.
        let extras = [&length[..], &[1]].concat();
        let request = Request {
            opcode: OP_SUBDOC_COUNTER,
            vbid: nacre_conformance::kv::vbid(COUNTER.as_bytes(), 64),
            key: client.wire_key(0, COUNTER.as_bytes()),
            extras,
            value: format!("{site}1").into_bytes(),
            ..Request::default()
        };
        let reply = client.call(&request).unwrap();
        assert!(reply.is_success(), "{reply:?}");
        reply.text().parse().unwrap()
    })
}
