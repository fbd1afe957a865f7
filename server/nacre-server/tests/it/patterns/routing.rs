//! A13: how many nodes each way to find a document or a page touches, counted by the nodes. This is what the patterns are about, and it
//! is exact on any machine.

use super::{bucket_at, json, key};
use crate::cluster::Node;
use crate::copies::{is_rebalancing, rebalance};
use crate::spread::rows_at;
use nacre_client::Bucket;
use serde_json::{Value, json as value};
use std::fmt::Write;

const BUCKET: &str = "spread";
const USERS: usize = 40;
/// Users whom each follows, all on one page of a feed that is made when it is read.
const FRIENDS: usize = 10;

/// The value of a metric of a node; 0 while it has none.
fn metric(node: &Node, name: &str) -> u64 {
    let (_, text) = node.ask("GET", "/metrics", "");
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.map_or(0, |value| value.parse().unwrap())
}

/// Touches of queries that a node has carried out: of indexes, and of documents.
fn touches(node: &Node) -> [u64; 2] {
    ["index", "document"]
        .map(|subject| metric(node, &format!("nacre_query_{subject}_touches_total")))
}

/// Reads of clients that each node has answered.
fn reads(nodes: &[Node]) -> Vec<u64> {
    let name = format!(r#"nacre_bucket_operations_total{{bucket="{BUCKET}",kind="read"}}"#);
    nodes.iter().map(|node| metric(node, &name)).collect()
}

/// Touches of one statement, asked of one node.
fn touched(node: &Node, statement: &str) -> ([u64; 2], Value) {
    let before = touches(node);
    let rows = rows_at(node, "not_bounded", statement);
    let after = touches(node);
    ([after[0] - before[0], after[1] - before[1]], rows)
}

fn address(user: usize) -> String {
    format!("u{user}@example.com")
}

/// Users with lookups and activities, and feeds of them.
fn fill(node: &Node) {
    for statement in [
        "CREATE INDEX local_email ON spread(email)",
        "CREATE INDEX hash_email ON spread(email) PARTITION BY HASH(email)",
        "CREATE INDEX activities ON spread(author, `at` DESC, text) PARTITION BY HASH(author)",
        "CREATE INDEX feeds ON spread(reader, `at` DESC, friend) PARTITION BY HASH(reader)",
    ] {
        rows_at(node, "not_bounded", statement);
    }
    let mut values = String::new();
    let mut add = |id: String, document: Value| {
        let _ = write!(
            values,
            "{}VALUES ('{id}', {document})",
            if values.is_empty() { "" } else { ", " }
        );
    };
    for user in 0..USERS {
        add(format!("user::{user}"), value!({"email": address(user), "n": user}));
        add(format!("email::{}", address(user)), value!(format!("user::{user}")));
        for at in 0..3 {
            let time = user + at * USERS;
            let activity = value!({"author": user, "at": time, "text": "t"});
            add(format!("activity::{user}::{time}"), activity);
            for reader in (1..=FRIENDS).map(|step| (user + USERS - step) % USERS) {
                let entry = value!({"reader": reader, "at": time, "friend": user});
                add(format!("feed::{reader}::{time}"), entry);
            }
        }
    }
    rows_at(node, "not_bounded", &format!("UPSERT INTO {BUCKET} (KEY, VALUE) {values}"));
}

/// Two reads of a client, each of the node that has the document.
fn check_index_table(nodes: &[Node], client: &mut Bucket, user: usize) {
    let before = reads(nodes);
    let lookup = format!("email::{}", address(user));
    let found = client.get(key(&lookup)).unwrap().unwrap();
    let id: String = serde_json::from_slice(&found.value).unwrap();
    let document = client.get(key(&id)).unwrap().unwrap();
    let document: Value = serde_json::from_slice(&document.value).unwrap();
    assert_eq!(document["n"], user);
    let map = client.map();
    let servers =
        [&lookup, &id].map(|name| map.server_of(map.vbucket_of(name.as_bytes())).unwrap());
    let expected: Vec<u64> = nodes
        .iter()
        .zip(&before)
        .map(|(node, before)| {
            let own = format!("127.0.0.1:{}", node.port_base + 10);
            before + servers.iter().filter(|server| **server == own).count() as u64
        })
        .collect();
    // A node counts a request behind its answer.
    let sum = |counts: &[u64]| counts.iter().sum::<u64>();
    nodes[0].wait_until("the reads to be counted", |_| sum(&reads(nodes)) >= sum(&expected));
    assert_eq!(reads(nodes), expected, "two touches, at the nodes of both documents");
}

fn check(nodes: &[Node], client: &mut Bucket) {
    let count = nodes.len() as u64;
    for (place, node) in nodes.iter().enumerate() {
        let user = place * 5 + 3;
        check_index_table(nodes, client, user);
        let by = |index: &str| {
            format!(
                "SELECT RAW s.n FROM {BUCKET} AS s USE INDEX ({index}) WHERE s.email = '{}'",
                address(user)
            )
        };
        let found = value!([user]);
        assert_eq!(touched(node, &by("local_email")), ([count, 1], found.clone()), "N + 1");
        assert_eq!(touched(node, &by("hash_email")), ([1, 1], found), "2, as by an index table");
        let page = format!(
            "SELECT f.`at`, f.friend FROM {BUCKET} AS f WHERE f.reader = {user} AND f.`at` < 1000 \
             ORDER BY f.`at` DESC LIMIT 10"
        );
        let (touches, rows) = touched(node, &page);
        assert_eq!((touches, rows.as_array().unwrap().len()), ([1, 0], 10), "a page is 1");
        let mut on_read = 0;
        for friend in (1..=FRIENDS).map(|step| (user + step) % USERS) {
            let newest = format!(
                "SELECT a.`at`, a.text FROM {BUCKET} AS a WHERE a.author = {friend} AND a.`at` < 1000 \
                 ORDER BY a.`at` DESC LIMIT 1"
            );
            let (touches, rows) = touched(node, &newest);
            assert_eq!(rows[0]["at"], friend + 2 * USERS);
            on_read += touches.iter().sum::<u64>();
        }
        assert!(on_read >= FRIENDS as u64, "one for each friend at least: {on_read}");
    }
}

#[test]
fn a_lookup_touches_two_nodes_a_local_index_all_and_a_page_of_a_feed_one() {
    let mut nodes = vec![Node::start()];
    let form = format!("name={BUCKET}&ramQuotaMB=100&replicaNumber=0&numVBuckets=64");
    nodes[0].succeed("POST", "/pools/default/buckets", &form);
    fill(&nodes[0]);
    for count in [1, 4, 8] {
        for node in (nodes.len()..count).map(|_| Node::start()) {
            let (status, said) = nodes[0].add(&node);
            assert_eq!(status, 200, "{said}");
            nodes.push(node);
        }
        rebalance(&nodes, &[]);
        nodes[0].wait_until("the rebalance", |node| !is_rebalancing(node));
        // Each node has all entries of each index, so that pages are full without waiting.
        for node in &nodes {
            for (index, field, entries) in [
                ("local_email", "email", USERS),
                ("hash_email", "email", USERS),
                ("activities", "author", 3 * USERS),
                ("feeds", "reader", 3 * USERS * FRIENDS),
            ] {
                let all = format!(
                    "SELECT RAW COUNT(*) FROM {BUCKET} AS s USE INDEX ({index}) WHERE s.{field} IS NOT MISSING"
                );
                assert_eq!(rows_at(node, "request_plus", &all), value!([entries]), "{index}");
            }
        }
        let mut client = bucket_at(nodes[0].server().kv_address(), BUCKET);
        // It goes where documents are now.
        client.set(key("settled"), b"1", json()).unwrap();
        check(&nodes, &mut client);
    }
}
