//! Random queries over random documents with random indexes return the rows that the definition of the language requires;
//! these are computed without planner, indexes or pushdown.
//!
//! `NACRE_QUERIES=100000 NACRE_SEED=7 cargo test -p nacre-query --test it naive` runs more or different queries.

mod query;
mod value;

use crate::world::World;
use query::{Collections, Query, any_array, any_value};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use value::Value;

/// The field of the evaluator's documents with their ID; stored documents do not have it.
const ID: &str = "#id";
const QUERIES: u64 = 2_000;
/// Number of queries over the same documents and indexes.
const QUERIES_A_WORLD: u64 = 20;

/// Index definitions, for one collection each.
const INDEXES: [&str; 19] = [
    "(b, c)",
    "(c INCLUDE MISSING, b DESC)",
    "(a DESC, c)",
    "(a)",
    "(b)",
    "(a, b)",
    "(b DESC, a)",
    "(c, a DESC, b)",
    "(a INCLUDE MISSING)",
    "(a INCLUDE MISSING DESC, c)",
    "(a, b, c, t)",
    "(a) WHERE b > 1",
    "(b) WHERE a IS NOT MISSING",
    "(c) WHERE a = 1 OR b = 1",
    "(a + b)",
    "(DISTINCT ARRAY v FOR v IN t END)",
    "(ALL t, a)",
    "(a, DISTINCT ARRAY v FOR v IN t WHEN v > 1 END)",
    "(META().id, a)",
];

fn documents(chance: &mut StdRng, prefix: &str) -> Vec<Value> {
    let count = chance.random_range(0..10);
    let document = |at: usize, chance: &mut StdRng| {
        let mut fields = std::collections::BTreeMap::new();
        for name in ["a", "b", "c"] {
            if chance.random_bool(0.8) {
                fields.insert(name.to_owned(), any_value(chance));
            }
        }
        if chance.random_bool(0.7) {
            let value =
                if chance.random_bool(0.9) { any_array(chance, true) } else { any_value(chance) };
            fields.insert("t".to_owned(), value);
        }
        fields.insert(ID.to_owned(), Value::Text(format!("{prefix}{at}")));
        Value::Object(fields)
    };
    (0..count).map(|at| document(at, chance)).collect()
}

/// Stores documents without the field that holds their ID.
fn store(world: &World, name: &'static str, documents: &[Value]) {
    let documents: Vec<(String, nacre_sql::Value)> = documents
        .iter()
        .map(|document| {
            let Value::Object(mut fields) = document.clone() else {
                unreachable!("all are objects")
            };
            let Some(Value::Text(id)) = fields.remove(ID) else { unreachable!("all have an ID") };
            (id, nacre_sql::Value::parse(Value::Object(fields).text().as_bytes()).unwrap())
        })
        .collect();
    world.add(name, documents.iter().map(|(id, value)| (id.as_str(), value.clone())));
}

/// Removes the fields that only the evaluator has.
fn without_ids(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().filter(|(name, _)| name != ID);
            Value::Object(fields.map(|(name, value)| (name, without_ids(value))).collect())
        }
        Value::Array(elements) => Value::Array(elements.into_iter().map(without_ids).collect()),
        other => other,
    }
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect("it is a number"))
}

#[test]
fn random_queries_give_the_rows_of_their_definition() {
    let (queries, first) = (number("NACRE_QUERIES", QUERIES), number("NACRE_SEED", 0));
    for seed in first..first + queries.div_ceil(QUERIES_A_WORLD) {
        let chance = &mut StdRng::seed_from_u64(seed);
        let world = World::new();
        let mut collections = Collections::new();
        let mut indexes = Vec::new();
        // Every other world has statistics, so that plans are made by cost.
        let is_described = seed % 2 == 1;
        for name in ["l", "r"] {
            let documents = documents(chance, name);
            store(&world, name, &documents);
            collections.insert(name, documents);
            let count = chance.random_range(0..8);
            for (at, keys) in INDEXES.choose_multiple(chance, count).enumerate() {
                let statement = format!("CREATE INDEX {name}{at} ON {name}{keys}");
                world.query(&statement).unwrap();
                indexes.push(statement);
            }
            if is_described {
                let all = if count > 0 { "INDEX ALL" } else { "(a, b, c)" };
                for described in ["(a, b, c)", all] {
                    let statement = format!("UPDATE STATISTICS FOR {name} {described}");
                    world.query(&statement).unwrap();
                    indexes.push(statement);
                }
            }
        }
        for _ in 0..QUERIES_A_WORLD {
            let query = Query::any(chance);
            let text = query.text();
            let answer =
                world.query(&text).unwrap_or_else(|error| panic!("seed {seed}: {text}: {error}"));
            let parsed = answer.iter().map(|row| serde_json::from_str(&row.to_json()).unwrap());
            let mut rows: Vec<Value> = parsed.map(|row| Value::from_json(&row)).collect();
            if !query.is_ordered() {
                rows.sort();
            }
            let wanted: Vec<Value> =
                query.rows(&collections).into_iter().map(without_ids).collect();
            if rows != wanted {
                let texts =
                    |rows: &[Value]| rows.iter().map(Value::text).collect::<Vec<_>>().join("\n");
                let stored =
                    collections.iter().map(|(name, rows)| format!("{name}:\n{}", texts(rows)));
                panic!(
                    "seed {seed}: {text}\n{}\n{}\nanswer:\n{}\nby definition:\n{}",
                    indexes.join("\n"),
                    stored.collect::<Vec<_>>().join("\n"),
                    texts(&rows),
                    texts(&wanted)
                );
            }
        }
    }
}
