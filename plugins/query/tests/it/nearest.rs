//! Neighbours of a vector: which statements read them from a vector index, and what they ask of it.

use crate::world::World;
use nacre_query::{Keyspace, Searcher};
use nacre_sql::{Result, Value};
use std::cell::RefCell;
use std::rc::Rc;

const DOCUMENTS: [(&str, &str); 6] = [
    ("a", r#"{"v": [0, 0], "k": "x", "n": 1}"#),
    ("b", r#"{"v": [5, 5], "k": "y", "n": 2}"#),
    ("c", r#"{"v": [1, 1], "k": "x", "n": 3}"#),
    ("d", r#"{"v": [3, 3], "k": "y", "n": 4}"#),
    ("e", r#"{"v": [9, 9], "k": "x", "n": 5}"#),
    ("f", r#"{"v": [4, 4], "k": "x", "n": 6}"#),
];

/// Finds the nearest documents; `d` has a vector index for the metric L2.
struct Neighbours {
    asked: Rc<RefCell<Vec<Value>>>,
}

fn distance(a: &Value, b: &Value) -> f64 {
    let numbers = |of: &Value| -> Vec<f64> {
        of.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
    };
    numbers(a).iter().zip(numbers(b)).map(|(a, b)| (a - b) * (a - b)).sum()
}

impl Searcher for Neighbours {
    fn search(&self, _: &Keyspace, request: &Value) -> Result<Value> {
        self.asked.borrow_mut().push(request.clone());
        if request.field("do").as_str() == Some("find") {
            let metric = request.field("predicate").field("nearest").field("metric");
            if metric.as_str() != Some("l2_norm") {
                return Ok(Value::object::<&str>([]));
            }
            let query =
                Value::object([("dimension", Value::Int(2)), ("is_whole", Value::Bool(true))]);
            return Ok(Value::object([("index", Value::from("near")), ("query", query)]));
        }
        let knn = request.field("query").field("knn");
        let knn = &knn.as_array().unwrap()[0];
        let vector = knn.field("vector");
        let mut all: Vec<(f64, &str)> = DOCUMENTS
            .iter()
            .map(|(id, body)| {
                (distance(&Value::parse(body.as_bytes()).unwrap().field("v"), &vector), *id)
            })
            .collect();
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        let count = knn.field("k").as_i64().unwrap() as usize;
        let hits = all.into_iter().take(count);
        let hits = hits.map(|(_, id)| Value::object([("id", Value::from(id))]));
        Ok(Value::object([("hits", Value::array(hits.collect()))]))
    }
}

fn world() -> (World, Rc<RefCell<Vec<Value>>>) {
    let asked = Rc::<RefCell<Vec<Value>>>::default();
    (World::searched_by(Neighbours { asked: Rc::clone(&asked) }, &DOCUMENTS), asked)
}

fn rows(world: &World, statement: &str) -> String {
    let rows = world.query(statement).unwrap_or_else(|error| panic!("{statement}: {error:?}"));
    Value::array(rows).to_json()
}

/// Returns the numbers of neighbours that a statement asked for, after a comparison of its rows with those of the exact distance.
fn counts(world: &World, asked: &RefCell<Vec<Value>>, statement: &str) -> Vec<i64> {
    asked.borrow_mut().clear();
    let found = rows(world, statement);
    let counts = {
        let asked = asked.borrow();
        let hits = asked.iter().filter(|request| request.field("do").as_str() == Some("hits"));
        let knn = hits.map(|request| request.field("query").field("knn"));
        knn.map(|knn| knn.as_array().unwrap()[0].field("k").as_i64().unwrap()).collect()
    };
    assert_eq!(found, rows(world, &statement.replace("APPROX_", "")), "{statement}");
    counts
}

#[test]
fn neighbours_come_from_the_index_in_the_order_of_the_exact_distance() {
    let (world, asked) = world();
    for (statement, expected) in [
        (
            "SELECT RAW x.n FROM d AS x ORDER BY APPROX_VECTOR_DISTANCE(x.v, [4, 3.5], \"L2\") LIMIT 3",
            3,
        ),
        (
            "SELECT x.n, APPROX_VECTOR_DISTANCE(x.v, [4, 3.5], \"euclidean_squared\") AS far FROM d AS x ORDER BY far LIMIT 2 OFFSET 1",
            3,
        ),
        (
            "SELECT RAW x.n FROM d AS x WHERE x.k = \"x\" ORDER BY APPROX_VECTOR_DISTANCE(x.v, [4, 3.5], \"L2\", 4, true), x.n LIMIT 2",
            100,
        ),
        (
            "SELECT RAW x.n FROM d AS x WHERE x.v IS NOT MISSING AND x.v IS NOT NULL ORDER BY APPROX_VECTOR_DISTANCE(x.v, [4, 3.5], \"L2\") LIMIT 2",
            2,
        ),
        (
            "SELECT RAW x.n FROM d AS x WHERE x.n % 2 = 1 ORDER BY APPROX_VECTOR_DISTANCE(x.v, [4, 3.5], \"L2\") LIMIT 2",
            10_000,
        ),
    ] {
        // The exact distance has no arguments for an approximation.
        let (statement, exact) = (statement, statement.replace(", 4, true", ""));
        if exact == statement {
            assert_eq!(counts(&world, &asked, statement), [expected], "{statement}");
        } else {
            assert_eq!(rows(&world, statement), rows(&world, &exact.replace("APPROX_", "")));
            assert_eq!(counts(&world, &asked, &exact), [expected], "{statement}");
        }
    }
}

#[test]
fn statements_that_need_other_documents_do_not_use_the_index() {
    let (world, asked) = world();
    for statement in [
        "SELECT RAW x.n FROM d AS x ORDER BY APPROX_VECTOR_DISTANCE(x.v, [4, 3.5], \"L2\")",
        "SELECT RAW x.n FROM d AS x ORDER BY APPROX_VECTOR_DISTANCE(x.v, [4, 3.5], \"L2\") DESC LIMIT 2",
        "SELECT DISTINCT RAW x.k FROM d AS x ORDER BY APPROX_VECTOR_DISTANCE(x.v, [4, 3.5], \"L2\") LIMIT 1",
        "SELECT RAW x.n FROM d AS x ORDER BY x.n, APPROX_VECTOR_DISTANCE(x.v, [4, 3.5], \"L2\") LIMIT 2",
        "SELECT x.n, COUNT(*) OVER () AS c FROM d AS x ORDER BY APPROX_VECTOR_DISTANCE(x.v, [4, 3.5], \"L2\") LIMIT 2",
        "SELECT RAW x.n FROM d AS x ORDER BY APPROX_VECTOR_DISTANCE(x.v, [4, 3.5], \"DOT\") LIMIT 2",
        "SELECT RAW x.n FROM d AS x ORDER BY APPROX_VECTOR_DISTANCE(x.v, x.v, \"L2\"), x.n LIMIT 2",
        "SELECT RAW x.n FROM d AS x USE KEYS [\"a\", \"b\"] ORDER BY APPROX_VECTOR_DISTANCE(x.v, [4, 3.5], \"L2\") LIMIT 1",
    ] {
        assert_eq!(counts(&world, &asked, statement), [0_i64; 0], "{statement}");
    }
}

#[test]
fn a_plan_shows_the_vector_and_a_filter_is_asked_for() {
    let (world, asked) = world();
    let text = "SELECT RAW x.n FROM d AS x USE INDEX (near) WHERE x.k = \"x\" ORDER BY APPROX_VECTOR_DISTANCE(x.v, [4, 3.5], \"L2\") LIMIT 2";
    let plan = world.query(&format!("EXPLAIN {text}")).unwrap()[0].field("plan").to_json();
    for part in ["\"index\":\"near\"", "\"index_vector\":{", "\"dimension\":2", "\"limit\":100"] {
        assert!(plan.contains(part), "{part}: {plan}");
    }
    let asked = asked.borrow();
    assert_eq!(asked[0].field("options").to_json(), r#"{"use_index":["near"]}"#);
    let nearest = asked[0].field("predicate").field("nearest");
    let expected = Value::parse(
        br#"{"field": "v", "metric": "l2_norm", "filter": {"field": "k", "eq": "x"}}"#,
    );
    assert_eq!(nearest, expected.unwrap());
}

#[test]
fn a_vector_of_another_length_is_refused() {
    let (world, _) = world();
    for vector in ["[1, 2, 3]", "[\"a\", 2]"] {
        let refused = world.query(&format!(
            "SELECT RAW x.n FROM d AS x ORDER BY APPROX_VECTOR_DISTANCE(x.v, {vector}, \"L2\") LIMIT 2"
        ));
        let error = refused.unwrap_err();
        assert!(error.message.contains("a vector of 2 numbers"), "{vector}: {}", error.message);
    }
}

#[test]
fn a_vector_index_needs_a_search_service() {
    let (world, _) = world();
    let options = "WITH {\"dimension\": 2, \"similarity\": \"L2\", \"description\": \"IVF,SQ8\"}";
    for statement in [
        format!("CREATE VECTOR INDEX near ON d(v VECTOR) INCLUDE (k) {options}"),
        format!("CREATE INDEX near ON d(k, v VECTOR) {options}"),
    ] {
        let error = world.query(&statement).unwrap_err();
        assert_eq!(error.code, 5010, "{statement}");
        assert!(error.message.contains("search service"), "{}", error.message);
    }
    // Names are taken by indexes of all kinds.
    world.query("CREATE INDEX by_n ON d(n)").unwrap();
    let taken = format!("CREATE VECTOR INDEX by_n ON d(v VECTOR) {options}");
    assert_eq!(world.query(&taken).unwrap_err().code, 4300);
    let forgiven = format!("CREATE VECTOR INDEX IF NOT EXISTS by_n ON d(v VECTOR) {options}");
    assert_eq!(rows(&world, &forgiven), "[]");
}
