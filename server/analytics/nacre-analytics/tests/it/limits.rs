//! Queries that exceed time or memory: they must end with an error code or the right answer.

use crate::world::{Answer, World};
use nacre_analytics::rows::Patience;
use nacre_sql::Value;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A product that no machine can count within the time of these tests.
const PRODUCT: &str = "SELECT VALUE COUNT(*) FROM docs a, docs b WHERE a.n * b.n + a.n - b.n = -7";
/// The same for the evaluator: window functions have no plan.
const PRODUCT_BY_ROWS: &str =
    "SELECT ROW_NUMBER() OVER () AS n FROM docs a, docs b WHERE a.n * b.n + a.n - b.n = -7";
/// Maximum time until a query that must end has ended.
const SOON: Duration = Duration::from_secs(90);

fn world(count: usize, text_bytes: usize) -> World {
    let document = |n: usize| {
        let text = format!("{n:08}").repeat(text_bytes / 8);
        Value::object([("n", Value::Int(n as i64)), ("text", Value::string(text))])
    };
    World::new(&[("docs", (0..count).map(document).collect())])
}

/// Runs both products, and returns their error codes.
fn codes(world: &World, patience: &Patience) -> [u32; 2] {
    let began = Instant::now();
    let columns = match world.columns_within(PRODUCT, patience) {
        Ok(Answer::NoPlan(reason)) => panic!("no plan: {reason}"),
        Ok(Answer::Rows(rows)) => panic!("{rows:?}"),
        Err(error) => error.code,
    };
    let rows = match world.rows_within(PRODUCT_BY_ROWS, patience) {
        Ok(rows) => panic!("{rows:?}"),
        Err(error) => error.code,
    };
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    [columns, rows]
}

#[test]
fn a_product_that_takes_too_long_times_out() {
    let world = world(50_000, 0);
    let deadline = Instant::now() + Duration::from_millis(300);
    assert_eq!(codes(&world, &Patience { deadline, ..World::patience() }), [21002, 21002]);
}

#[test]
fn a_query_that_is_cancelled_ends() {
    let world = world(50_000, 0);
    let patience = World::patience();
    let flag = patience.is_cancelled.clone();
    std::thread::scope(|threads| {
        threads.spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            flag.store(true, Ordering::Relaxed);
        });
        assert_eq!(codes(&world, &patience), [21007, 21007]);
    });
}

#[test]
fn a_query_of_a_disconnected_client_ends() {
    let world = world(50_000, 0);
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    drop(receiver);
    let patience = Patience { client: Some(sender), ..World::patience() };
    assert_eq!(codes(&world, &patience), [21007, 21007]);
}

/// Sorts, groups and joins more than fits into memory: queries that can spill to disk return all rows, others are refused
/// with their code.
#[test]
fn a_query_that_needs_more_memory_than_there_is_gives_all_rows_or_a_code() {
    const COUNT: usize = 20_000;
    let mut world = world(COUNT, 512);
    world.set_memory(8 << 20);
    let mut refused = 0;
    for (query, count) in [
        ("SELECT VALUE d.text FROM docs d ORDER BY d.text DESC", COUNT),
        ("SELECT d.text, COUNT(*) AS n FROM docs d GROUP BY d.text", COUNT),
        ("SELECT a.n FROM docs a JOIN docs b ON a.text = b.text", COUNT),
        ("SELECT DISTINCT d.text FROM docs d", COUNT),
    ] {
        match world.columns(query) {
            Ok(Answer::Rows(rows)) => assert_eq!(rows.len(), count, "{query}"),
            Ok(Answer::NoPlan(reason)) => panic!("{query}: {reason}"),
            Err(error) => {
                assert_eq!(error.code, 23008, "{query}: {error}");
                refused += 1;
            }
        }
    }
    // Memory used by one query is available for the next.
    let Ok(Answer::Rows(rows)) = world.columns("SELECT VALUE SUM(d.n) FROM docs d") else {
        panic!("no answer")
    };
    assert_eq!(rows, [(COUNT * (COUNT - 1) / 2).to_string()]);
    println!("{refused} of 4 refused");
}

#[test]
fn a_million_groups_are_counted() {
    let world = world(1000, 0);
    let query = "SELECT VALUE COUNT(*) FROM (SELECT a.n AS x, b.n AS y FROM docs a, docs b GROUP BY a.n, b.n) t";
    let Ok(Answer::Rows(rows)) = world.columns(query) else { panic!("no answer") };
    assert_eq!(rows, ["1000000"]);
}

#[test]
fn groups_of_long_texts_are_distinguished_by_their_last_letter() {
    let document = |n: usize| {
        let text = "x".repeat(1 << 20) + &(n % 2).to_string();
        Value::object([("n", Value::Int(n as i64)), ("text", Value::string(text))])
    };
    let world = World::new(&[("docs", (0..16).map(document).collect())]);
    let query = "SELECT VALUE COUNT(*) FROM docs d GROUP BY d.text";
    let Ok(Answer::Rows(rows)) = world.columns(query) else { panic!("no answer") };
    assert_eq!(rows, ["8", "8"]);
}
