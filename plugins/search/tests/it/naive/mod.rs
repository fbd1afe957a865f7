//! Compares random queries on random documents with an evaluator that scans all tokens and values.
//!
//! `NACRE_QUERIES=50000 NACRE_SEED=7 cargo test -p nacre-search --test it naive` runs more or other queries.

mod document;
mod oracle;
mod pattern;
mod query;
mod text;

use crate::world::World;
use document::{DIMS, Document};
use pattern::Pattern;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// Number of queries per set of documents.
const PER_WORLD: u64 = 250;

thread_local! {
    /// The regular expressions of queries, which refer to them by number.
    static PATTERNS: RefCell<Vec<Pattern>> = const { RefCell::new(Vec::new()) };
}

type Documents = BTreeMap<String, Document>;

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// Creates an index and its documents. Some were written several times, and some were deleted again.
fn indexed(random: &mut StdRng, similarity: &str) -> (World, Documents) {
    let mut world = World::new(&document::params(random, similarity)).unwrap();
    let mut documents = Documents::new();
    for _ in 0..90 {
        let number = random.random_range(0..60);
        let document = document::document(random, number);
        let body = document.json.to_string();
        world.add([(&*document.id, body.as_bytes())], 1);
        documents.insert(document.id.clone(), document);
        if random.random_bool(0.1) {
            let id = format!("d{:03}", random.random_range(0..60));
            world.delete(&id);
            documents.remove(&id);
        }
        if random.random_bool(0.1) {
            world.index.merge(1000).unwrap();
        }
    }
    (world, documents)
}

/// Returns the nearest documents for a member of `knn`, or `None` if `f32` cannot distinguish the last one from the next.
fn nearest<'a>(
    documents: &'a Documents,
    knn: &Value,
    similarity: &str,
) -> Option<BTreeSet<&'a String>> {
    let vector: [f64; DIMS] = std::array::from_fn(|at| knn["vector"][at].as_f64().unwrap());
    let eligible = documents
        .values()
        .filter(|document| knn.get("filter").is_none_or(|filter| document.matches(filter)));
    let mut near: Vec<(f64, &String)> = eligible
        .filter_map(|document| Some((document.nearness(&vector, similarity)?, &document.id)))
        .collect();
    near.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    let count = knn["k"].as_u64().unwrap() as usize;
    if let (Some((last, _)), Some((next, _))) = (near.get(count - 1), near.get(count))
        && (last - next).abs() <= 1e-5 * last.abs().max(next.abs())
    {
        return None;
    }
    Some(near.into_iter().take(count).map(|(_, id)| id).collect())
}

/// Returns the hits of a request, or `None` if they depend on the last bits of numbers.
fn hits<'a>(
    documents: &'a Documents,
    request: &Value,
    similarity: &str,
) -> Option<BTreeSet<&'a String>> {
    let by_query = || -> BTreeSet<&String> {
        let found = documents.values().filter(|document| document.matches(&request["query"]));
        found.map(|document| &document.id).collect()
    };
    let Some(knn) = request["knn"].as_array() else { return Some(by_query()) };
    let has_query = request["query"].get("match_none").is_none();
    let lists = knn.iter().map(|knn| nearest(documents, knn, similarity));
    let mut lists = lists.collect::<Option<Vec<_>>>()?;
    lists.extend(has_query.then(by_query));
    let both = |a: BTreeSet<_>, b: BTreeSet<_>| match request["knn_operator"].as_str() {
        Some("and") => &a & &b,
        _ => &a | &b,
    };
    lists.into_iter().reduce(both)
}

fn request(random: &mut StdRng) -> Value {
    let has_vectors = random.random_bool(0.15);
    let mut request = if has_vectors && random.random_bool(0.5) {
        json!({"query": {"match_none": null}})
    } else {
        json!({"query": query::query(random, 3)})
    };
    if has_vectors {
        request["knn"] = query::nearest(random).into();
        request["knn_operator"] = if random.random_bool(0.7) { "or" } else { "and" }.into();
    }
    if random.random_bool(0.2) {
        request["score"] = "none".into();
    }
    request
}

/// Checks that the pages of a request, in several sort orders, contain each hit once.
fn check_pages(random: &mut StdRng, world: &World, request: &Value, wanted: &[String]) {
    let orders = [
        json!(["_id"]),
        json!(["-_score"]),
        json!(["number", "-_id"]),
        json!(["-title", "time"]),
        json!([{"by": "field", "field": "body", "missing": "first"}, "_score"]),
        json!([{"by": "geo_distance", "field": "place", "location": [10.0, 50.0]}]),
    ];
    let mut request = request.clone();
    request["sort"] = orders.choose(random).unwrap().clone();
    request["size"] = 7.into();
    let mut found = Vec::new();
    for from in (0..wanted.len()).step_by(7) {
        request["from"] = from.into();
        let answer = world.search(&request).unwrap();
        assert_eq!(answer["total_hits"], wanted.len(), "{request}");
        found.extend(crate::world::ids(&answer));
    }
    found.sort_unstable();
    assert_eq!(found, wanted, "{request}");
}

#[test]
fn random_queries_have_the_hits_of_a_scan() {
    let (queries, seed) = (variable("NACRE_QUERIES", 2000), variable("NACRE_SEED", 0));
    let (mut found_any, mut compared) = (0_u64, 0_u64);
    for round in 0..queries.div_ceil(PER_WORLD) {
        let mut random = StdRng::seed_from_u64(seed + round);
        let similarity = *["l2_norm", "dot_product", "cosine"].choose(&mut random).unwrap();
        let (world, documents) = indexed(&mut random, similarity);
        for number in 0..PER_WORLD {
            let mut request = request(&mut random);
            let Some(wanted) = hits(&documents, &request, similarity) else { continue };
            let wanted: Vec<String> = wanted.into_iter().cloned().collect();
            request["size"] = 100.into();
            request["sort"] = json!(["_id"]);
            let answer = world.search(&request);
            let answer = answer.unwrap_or_else(|error| panic!("{error}: {request}"));
            let found = crate::world::ids(&answer);
            assert_eq!(found, wanted, "seed {} query {number}: {request}", seed + round);
            assert_eq!(answer["total_hits"], wanted.len());
            for hit in answer["hits"].as_array().unwrap() {
                assert!(hit["score"].as_f64().unwrap().is_finite());
            }
            if number % 16 == 0 {
                check_pages(&mut random, &world, &request, &wanted);
            }
            compared += 1;
            found_any += u64::from(!wanted.is_empty());
        }
    }
    println!("{compared} queries, {found_any} with hits");
    assert!(found_any * 3 > compared, "{found_any} of {compared} queries find something");
}
