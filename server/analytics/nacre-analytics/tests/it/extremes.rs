//! Extreme values and documents: both ways must return the same rows or an error code.

use crate::world::{Answer, World, in_order, normal};
use nacre_sql::Value;

/// The numbers of queries with and without a plan over columns.
#[derive(Default)]
struct Compared {
    planned: usize,
    asked: usize,
}

impl Compared {
    /// Runs a query both ways and compares the rows, in their order if the query orders them.
    fn ask(&mut self, world: &World, query: &str) -> Vec<String> {
        let rows = world.rows(query).unwrap_or_else(|error| panic!("{query}: {error}"));
        let seen = |rows: &[String]| match query.contains("ORDER BY") {
            true => in_order(rows),
            false => normal(rows),
        };
        self.asked += 1;
        match world.columns(query).unwrap_or_else(|error| panic!("{query}: {error}")) {
            Answer::NoPlan(_) => {}
            Answer::Rows(columns) => {
                self.planned += 1;
                assert_eq!(seen(&columns), seen(&rows), "{query}");
            }
        }
        rows
    }
}

/// Returns documents with a field `v` of these JSON texts, and their number as `k`.
fn values(texts: &[&str]) -> World {
    let document =
        |(k, text): (usize, &&str)| (format!("k{k:04}"), format!("{{\"k\":{k},\"v\":{text}}}"));
    World::with_ids(&[("docs", texts.iter().enumerate().map(document).collect())])
}

/// Queries about numbers.
const OF_NUMBERS: &[&str] = &[
    "SELECT VALUE d.v FROM docs d ORDER BY d.v",
    "SELECT VALUE d.v FROM docs d ORDER BY d.v DESC LIMIT 3",
    "SELECT d.v, COUNT(*) AS n FROM docs d GROUP BY d.v",
    "SELECT DISTINCT d.v FROM docs d",
    "SELECT MIN(d.v) AS low, MAX(d.v) AS high, COUNT(DISTINCT d.v) AS n FROM docs d",
    "SELECT d.k, d.v + 1 AS a, d.v - 1 AS b, d.v * 2 AS c, d.v * d.v AS d FROM docs d",
    "SELECT d.k, -d.v AS a, ABS(d.v) AS b, d.v / 2 AS c, d.v / -1 AS d FROM docs d",
    "SELECT d.k, d.v % 7 AS a, d.v % -1 AS b, d.v MOD 10 AS c, d.v DIV 3 AS d FROM docs d",
    "SELECT d.k, d.v / 0 AS a, d.v % 0 AS b, d.v / 0.0 AS c, 1 / (d.v - d.v) AS d, d.v DIV 0 AS e FROM docs d",
    "SELECT d.k, d.k / (d.k - 2) AS a, d.k % (d.k - 2) AS b, SUM(d.v / (d.k - d.k)) AS c FROM docs d GROUP BY d.k",
    "SELECT VALUE d.k FROM docs d WHERE d.v = 9223372036854775807",
    "SELECT VALUE d.k FROM docs d WHERE d.v > 9223372036854775806",
    "SELECT VALUE d.k FROM docs d WHERE d.v >= 9223372036854775808",
    "SELECT VALUE d.k FROM docs d WHERE d.v < -9223372036854775807",
    "SELECT VALUE d.k FROM docs d WHERE d.v = 9007199254740992.0",
    "SELECT VALUE d.k FROM docs d WHERE d.v > 9007199254740992.5",
    "SELECT VALUE d.k FROM docs d WHERE d.v IN [9007199254740993, 0, -1]",
    "SELECT VALUE d.k FROM docs d WHERE d.v BETWEEN -1.5 AND 9007199254740993",
    "SELECT a.k, b.k AS other FROM docs a JOIN docs b ON a.v = b.v",
    "SELECT a.k, b.k AS other FROM docs a JOIN docs b ON a.v = -b.v",
    "SELECT VALUE d.k FROM docs d WHERE d.v > (SELECT VALUE AVG(e.k) FROM docs e)[0]",
    "SELECT VALUE SUM(d.k) FROM docs d WHERE d.k / 0 IS NULL",
];

#[test]
fn integers_at_the_edge_of_64_bits_are_exact() {
    let world = values(&[
        "9223372036854775807",
        "-9223372036854775808",
        "9223372036854775806",
        "-9223372036854775807",
        "9007199254740991",
        "9007199254740992",
        "9007199254740993",
        "-9007199254740993",
        "0",
        "1",
        "-1",
        "9223372036854775807",
    ]);
    let mut compared = Compared::default();
    OF_NUMBERS.iter().for_each(|query| drop(compared.ask(&world, query)));
    assert!(compared.planned * 2 > compared.asked, "{} plans", compared.planned);
}

#[test]
fn numbers_beyond_64_bits_are_doubles() {
    let world = values(&[
        "9223372036854775808",
        "-9223372036854775809",
        "18446744073709551616",
        "1e308",
        "-1e308",
        "1e-308",
        "5e-324",
        "-0.0",
        "0",
        "9223372036854775807",
        "1.5",
    ]);
    let mut compared = Compared::default();
    OF_NUMBERS.iter().for_each(|query| drop(compared.ask(&world, query)));
    assert!(compared.planned * 3 > compared.asked, "{} plans", compared.planned);
}

#[test]
fn most_queries_on_small_numbers_have_plans_over_columns() {
    let world = values(&["3", "-3", "0", "2", "2", "10", "7"]);
    let mut compared = Compared::default();
    OF_NUMBERS.iter().for_each(|query| drop(compared.ask(&world, query)));
    assert!(compared.planned * 10 > compared.asked * 9, "{} plans", compared.planned);
}

#[test]
fn a_sum_of_integers_is_exact_or_refused() {
    let sum = "SELECT VALUE SUM(d.v) FROM docs d";
    let within = values(&["9223372036854775807", "-9223372036854775808", "9223372036854775807"]);
    match within.columns(sum) {
        Ok(Answer::Rows(rows)) => assert_eq!(rows, ["9223372036854775806"]),
        Ok(Answer::NoPlan(reason)) => panic!("{reason}"),
        Err(error) => panic!("{error}"),
    }
    for texts in [
        &["9223372036854775807", "1"][..],
        &["-9223372036854775808", "-1"],
        &["9223372036854775807", "9223372036854775807", "9223372036854775807"],
    ] {
        match values(texts).columns(sum) {
            Ok(Answer::Rows(rows)) => panic!("{rows:?}"),
            Ok(Answer::NoPlan(reason)) => panic!("{reason}"),
            Err(error) => assert_eq!(error.code, 23011, "{error}"),
        }
    }
}

#[test]
fn texts_that_are_not_dates_have_no_parts() {
    let world = values(&[
        "\"2020-02-29 12:00:00\"",
        "\"2020-13-45\"",
        "\"2021-02-29\"",
        "\"\"",
        "\"yesterday\"",
        "\"9999-12-31T23:59:59.999Z\"",
        "\"0000-00-00\"",
        "\"2020-02-29 25:61:61\"",
        "\"-2020-01-01\"",
        "\"2020-02-29Z\u{e9}\"",
    ]);
    let mut compared = Compared::default();
    for query in [
        "SELECT d.k, DATE_PART_STR(d.v, 'year') AS y FROM docs d",
        "SELECT d.k, DATE_PART_STR(d.v, 'no_part') AS y FROM docs d",
        "SELECT d.k, DATE_ADD_STR(d.v, 1, 'month') AS y FROM docs d",
        "SELECT d.k, DATE_ADD_STR(d.v, 9223372036854775807, 'year') AS y FROM docs d",
        "SELECT d.k, DATE_TRUNC_STR(d.v, 'week') AS y FROM docs d",
        "SELECT DATE_PART_STR(d.v, 'month') AS m, COUNT(*) AS n FROM docs d GROUP BY DATE_PART_STR(d.v, 'month')",
        "SELECT VALUE d.k FROM docs d WHERE DATE_ADD_STR(d.v, -1, 'day') < '2020-03-01'",
    ] {
        compared.ask(&world, query);
    }
    assert_eq!(compared.planned, compared.asked);
}

/// Nested arrays, deeper than the levels of columns.
#[test]
fn deep_arrays_are_read_at_every_level() {
    const DEPTH: usize = 60;
    let nested = |value: &str| format!("{}{value}{}", "[".repeat(DEPTH), "]".repeat(DEPTH));
    let world = values(&[&nested("1"), &nested("2, 3"), &nested(""), "[[]]", "[]"]);
    let mut compared = Compared::default();
    for levels in 1..=14 {
        let mut from = "docs d, d.v AS l1".to_owned();
        for level in 2..=levels {
            from += &format!(", l{} AS l{level}", level - 1);
        }
        let rows = compared.ask(&world, &format!("SELECT VALUE COUNT(*) FROM {from}"));
        let expected = if levels == 1 { "4" } else { "3" };
        assert_eq!(rows, [expected], "{levels} levels");
        compared.ask(&world, &format!("SELECT d.k, l{levels} AS v FROM {from}"));
    }
    let element = format!("d.v{}", "[0]".repeat(DEPTH));
    let query = format!("SELECT VALUE {element} FROM docs d WHERE {element} > 1");
    assert_eq!(compared.ask(&world, &query), ["2"]);
    assert!(compared.planned > 6, "{} plans", compared.planned);
}

#[test]
fn documents_with_fifty_thousand_paths_are_read_by_each() {
    const DOCUMENTS: usize = 500;
    const FIELDS: usize = 100;
    let document = |n: usize| {
        let fields: Vec<String> =
            (0..FIELDS).map(|at| format!("\"f{}\":{at}", n * FIELDS + at)).collect();
        (format!("k{n:04}"), format!("{{\"n\":{n},{}}}", fields.join(",")))
    };
    let world = World::with_ids(&[("docs", (0..DOCUMENTS).map(document).collect())]);
    let mut compared = Compared::default();
    for field in [0, 99, 100, 999, 1000, 1001, 25_050, 49_999] {
        let query =
            format!("SELECT d.n, d.f{field} AS v FROM docs d WHERE d.f{field} IS NOT MISSING");
        let expected = format!("{{\"n\":{},\"v\":{}}}", field / FIELDS, field % FIELDS);
        assert_eq!(compared.ask(&world, &query), [expected]);
        let query =
            format!("SELECT d.f{field} AS v, COUNT(*) AS n FROM docs d GROUP BY d.f{field}");
        assert_eq!(compared.ask(&world, &query).len(), 2);
    }
    assert!(compared.planned > 8, "{} plans", compared.planned);
}

#[test]
fn a_document_of_twenty_megabytes_is_one_row() {
    let text = "x".repeat(20 << 20);
    let world = values(&[&format!("\"{text}\""), "\"short\""]);
    let mut compared = Compared::default();
    assert_eq!(
        compared.ask(&world, "SELECT VALUE LENGTH(d.v) FROM docs d ORDER BY d.k"),
        [(20 << 20).to_string(), "5".to_owned()]
    );
    let rows = compared.ask(&world, "SELECT d.v, COUNT(*) AS n FROM docs d GROUP BY d.v");
    assert_eq!(rows.len(), 2);
    assert_eq!(compared.planned, 2);
}

/// Sorts and groups a product of collections with little memory: all rows, or an error code.
#[test]
fn a_product_that_does_not_fit_is_refused_both_ways() {
    const COUNT: usize = 300;
    let document = |n: usize| {
        let text = format!("{n:05}").repeat(40);
        Value::object([("n", Value::Int(n as i64)), ("text", Value::string(text))])
    };
    let mut world = World::new(&[("docs", (0..COUNT).map(document).collect())]);
    world.set_memory(4 << 20);
    let query = "SELECT a.text || b.text AS t FROM docs a, docs b ORDER BY a.text || b.text";
    match world.columns(query) {
        Ok(Answer::Rows(rows)) => assert_eq!(rows.len(), COUNT * COUNT),
        Ok(Answer::NoPlan(reason)) => panic!("{reason}"),
        Err(error) => assert_eq!(error.code, 23008, "{error}"),
    }
    match world.rows(query) {
        Ok(rows) => panic!("{} rows within 4 MiB", rows.len()),
        Err(error) => assert_eq!(error.code, 23008, "{error}"),
    }
    // The memory is free again.
    assert_eq!(world.rows("SELECT VALUE COUNT(*) FROM docs d").unwrap(), [COUNT.to_string()]);
}
