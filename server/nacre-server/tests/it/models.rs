//! Views and indexes against brute force: random documents, updates and deletions, kill -9 and clean stops between
//! them; every consistent answer equals a count over the present documents.
//!
//! `NACRE_MODEL_CYCLES` makes it longer: each has 100 queries.

use crate::process::{BUCKET, Server, from_env, port_base};
use nacre_conformance::kv::KvClient;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const CYCLES: u64 = 4;
const QUERIES: u32 = 100;
const KEYS: u32 = 400;
const WRITES: std::ops::Range<u32> = 50..600;

const DESIGN: &str = r#"{"views": {
    "sums": {"map": "function (doc, meta) { emit([doc.a, doc.b], doc.n) }", "reduce": "_sum"},
    "each": {"map": "function (doc, meta) { doc.t.forEach(function (t) { emit(t, meta.id) }) }"},
    "most": {
        "map": "function (doc, meta) { if (doc.n > 0) emit(doc.b, doc.n) }",
        "reduce": "function (keys, values, rereduce) { return Math.max.apply(null, values) }"
    }
}}"#;

/// The known documents, read back by key, because after a kill they are not known otherwise.
type Documents = BTreeMap<String, Value>;

fn key(number: u32) -> String {
    format!("k{number:03}")
}

fn any_document(random: &mut StdRng) -> Value {
    let tags: Vec<u32> =
        (0..random.random_range(0..4)).map(|_| random.random_range(0..9)).collect();
    json!({
        "a": random.random_range(0..3),
        "b": random.random_range(0..8),
        "n": random.random_range(-20..50),
        "t": tags,
    })
}

fn write(client: &mut KvClient, random: &mut StdRng) {
    for _ in 0..random.random_range(WRITES) {
        let key = key(random.random_range(0..KEYS));
        if random.random_range(0..5) == 0 {
            let vbid = client.vbid(key.as_bytes());
            // Deleting a missing document fails, which does no harm.
            client.request(0x04, vbid, &client.wire_key(0, key.as_bytes()), &[], &[], 0).unwrap();
        } else {
            let body = any_document(random).to_string();
            assert!(client.set(key.as_bytes(), body.as_bytes()).unwrap().is_success());
        }
    }
}

fn read(client: &mut KvClient) -> Documents {
    let found = (0..KEYS).map(key).filter_map(|key| {
        let reply = client.get(key.as_bytes()).unwrap();
        let value = reply.is_success().then(|| serde_json::from_slice(&reply.value).unwrap());
        value.map(|value| (key, value))
    });
    found.collect()
}

fn number(document: &Value, field: &str) -> i64 {
    document[field].as_i64().unwrap()
}

/// Sums of `n` by `[a, b]` or by `[a]`, of those with `a` in a range.
fn sums(documents: &Documents, level: usize, first: i64, last: i64) -> Vec<Value> {
    let mut groups: BTreeMap<Vec<i64>, i64> = BTreeMap::new();
    for document in documents.values() {
        let a = number(document, "a");
        if (first..=last).contains(&a) {
            let group = [a, number(document, "b")][..level].to_vec();
            *groups.entry(group).or_default() += number(document, "n");
        }
    }
    groups.into_iter().map(|(key, value)| json!({"key": key, "value": value})).collect()
}

fn rows_of_a_tag(documents: &Documents, tag: u32) -> Vec<Value> {
    let rows = documents.iter().flat_map(|(id, document)| {
        let tags = document["t"].as_array().unwrap().iter().filter(|found| **found == tag);
        tags.map(|_| json!({"id": id, "key": tag, "value": id})).collect::<Vec<_>>()
    });
    rows.collect()
}

fn most(documents: &Documents) -> Vec<Value> {
    let positive = documents.values().filter(|document| number(document, "n") > 0);
    match positive.map(|document| number(document, "n")).max() {
        Some(most) => vec![json!({"key": null, "value": most})],
        None => Vec::new(),
    }
}

fn select(server: &Server, statement: &str) -> Vec<Value> {
    let request = json!({"statement": statement, "scan_consistency": "request_plus"});
    let answer = server.query(&request.to_string());
    assert_eq!(answer["status"], "success", "{statement}: {answer}");
    answer["results"].as_array().unwrap().clone()
}

fn check(server: &Server, documents: &Documents, random: &mut StdRng) {
    match random.random_range(0..5) {
        0 => {
            let (level, first) = (random.random_range(1..=2), random.random_range(0..3));
            let last = random.random_range(first..3);
            let query = format!("group_level={level}&startkey=[{first}]&endkey=[{last},{{}}]");
            let expected = sums(documents, level, first, last);
            assert_eq!(server.rows("d", "sums", &query), expected, "{query}");
        }
        1 => {
            let tag = random.random_range(0..9);
            let expected = rows_of_a_tag(documents, tag);
            assert_eq!(server.rows("d", "each", &format!("key={tag}")), expected, "{tag}");
        }
        2 => assert_eq!(server.rows("d", "most", ""), most(documents)),
        3 => {
            let (a, b) = (random.random_range(0..3), random.random_range(0..8));
            let mut expected: Vec<_> = documents
                .iter()
                .filter(|(_, found)| number(found, "a") == a && number(found, "b") >= b)
                .map(|(id, found)| (number(found, "b"), id.clone()))
                .collect();
            expected.sort();
            let index = ["by_a_and_b", "spread"][random.random_range(0..2)];
            let statement = format!(
                "SELECT RAW [b, META().id] FROM {BUCKET} USE INDEX ({index}) WHERE a = {a} AND b >= {b} ORDER BY a, b, META().id"
            );
            let expected: Vec<_> = expected.into_iter().map(|pair| json!(pair)).collect();
            assert_eq!(select(server, &statement), expected, "{statement}");
        }
        _ => {
            let tag = random.random_range(0..9);
            let has = |document: &&Value| document["t"].as_array().unwrap().contains(&json!(tag));
            let expected = documents.values().filter(has).count();
            let statement = format!(
                "SELECT RAW COUNT(*) FROM {BUCKET} WHERE ANY x IN t SATISFIES x = {tag} END"
            );
            assert_eq!(select(server, &statement), [json!(expected)], "{statement}");
        }
    }
}

#[test]
fn fresh_answers_equal_brute_force_despite_stops_of_the_node() {
    let cycles = from_env("NACRE_MODEL_CYCLES", CYCLES);
    let directory = tempfile::tempdir().unwrap();
    let port_base = port_base();
    let mut random = StdRng::seed_from_u64(8);
    let mut server = Server::start_at(directory.path(), port_base);
    server.put_design("d", DESIGN);
    for statement in [
        format!("CREATE INDEX by_a_and_b ON {BUCKET}(a, b)"),
        format!("CREATE INDEX by_tag ON {BUCKET}(DISTINCT ARRAY x FOR x IN t END)"),
        format!("CREATE INDEX spread ON {BUCKET}(a, b) PARTITION BY HASH(a)"),
    ] {
        select(&server, &statement);
    }
    for cycle in 0..cycles {
        let mut client = server.client();
        write(&mut client, &mut random);
        let documents = read(&mut client);
        for _ in 0..QUERIES {
            check(&server, &documents, &mut random);
        }
        write(&mut client, &mut random);
        if cycle % 3 == 2 {
            server.stop()
        } else {
            server.kill()
        }
        server = Server::start_at(directory.path(), port_base);
        // Whichever writes have survived, views and indexes reflect the same documents.
        let documents = read(&mut server.client());
        server.put_design("warm", r#"{"views": {}}"#);
        for _ in 0..QUERIES / 4 {
            check(&server, &documents, &mut random);
        }
    }
}
