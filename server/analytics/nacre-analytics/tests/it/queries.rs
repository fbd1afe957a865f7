//! Queries that must run over columns, compared with the evaluator's answers.

use crate::world::{Answer, World, documents, normal};
use nacre_sql::Value;

fn world() -> World {
    let orders: Vec<String> = (0..40)
        .map(|n| {
            let lines: Vec<String> = (0..n % 5)
                .map(|at| format!("{{\"at\":{at},\"item\":{},\"price\":{}.25}}", (n * 7 + at) % 11, at + n))
                .collect();
            let note = match n % 3 {
                0 => ",\"note\":null".to_owned(),
                1 => String::new(),
                _ => format!(",\"note\":\"n{n}\""),
            };
            format!(
                "{{\"id\":{n},\"of\":{{\"name\":\"c{}\"}},\"day\":\"2020-0{}-11 10:00:00\",\"total\":{}.5,\"lines\":[{}]{note}}}",
                n % 6,
                n % 9 + 1,
                n * 3,
                lines.join(",")
            )
        })
        .collect();
    let items: Vec<String> = (0..11)
        .map(|n| {
            format!("{{\"item\":{n},\"text\":\"item {n}\",\"code\":\"{}\"}}", (b'a' + n) as char)
        })
        .collect();
    let texts = |texts: &[String]| documents(&texts.iter().map(String::as_str).collect::<Vec<_>>());
    let mixed = documents(&[
        r#"{"v":1}"#,
        r#"{"v":"1"}"#,
        r#"{"v":null}"#,
        "{}",
        r#"{"v":[1]}"#,
        r#"{"v":{"x":1}}"#,
        r#"{"v":1.5}"#,
        r#"{"v":true}"#,
        r#"{"v":9007199254740993}"#,
        r#"{"v":-0.0}"#,
        "17",
    ]);
    World::new(&[
        ("orders", texts(&orders)),
        ("items", texts(&items)),
        ("mixed", mixed),
        ("nothing", Vec::new()),
    ])
}

#[test]
fn plans_over_columns_give_the_answers_of_the_evaluator() {
    let world = world();
    for query in QUERIES {
        let Answer::Rows(columns) =
            world.columns(query).unwrap_or_else(|error| panic!("{query}: {error}"))
        else {
            let Ok(Answer::NoPlan(reason)) = world.columns(query) else {
                unreachable!("it was just asked")
            };
            panic!("{query} has no plan: {reason}");
        };
        let rows = world.rows(query).unwrap_or_else(|error| panic!("{query}: {error}"));
        assert_eq!(normal(&columns), normal(&rows), "{query}");
        for count in [1, 3] {
            let shared = world.processes(query, count);
            let shared = shared.unwrap_or_else(|error| panic!("{count}: {query}: {error}"));
            assert_eq!(normal(&shared), normal(&rows), "{count} processes: {query}");
        }
        if query.contains("ORDER BY") {
            assert_eq!(
                columns.first().map(|row| normal(&[row.clone()])),
                rows.first().map(|row| normal(&[row.clone()])),
                "{query}"
            );
        }
    }
}

#[test]
fn names_are_those_of_the_innermost_variable() {
    let world = world();
    for query in [
        // In the subquery, `t` is the row, not the query of WITH.
        "WITH t AS (SELECT o.id % 4 AS k, SUM(o.total) AS s FROM orders o GROUP BY o.id % 4) \
         SELECT t.k, t.s FROM t WHERE t.s = (SELECT VALUE MAX(u.s) FROM t u)[0]",
        "WITH t AS (SELECT i.item AS k FROM items i) SELECT o.id FROM orders o, t \
         WHERE o.id = t.k AND o.id IN (SELECT VALUE u.k FROM t u)",
        "WITH t AS (SELECT i.item AS k FROM items i WHERE i.item < 3), \
         u AS (SELECT t.k + 1 AS k FROM t) \
         SELECT v.k FROM (WITH t AS (SELECT o.id AS k FROM orders o) SELECT u.k FROM u) v",
    ] {
        let rows = world.rows(query).unwrap_or_else(|error| panic!("{query}: {error}"));
        match world.columns(query).unwrap_or_else(|error| panic!("{query}: {error}")) {
            Answer::NoPlan(_) => {}
            Answer::Rows(columns) => assert_eq!(normal(&columns), normal(&rows), "{query}"),
        }
        let shared = world.processes(query, 2).unwrap_or_else(|error| panic!("{query}: {error}"));
        assert_eq!(normal(&shared), normal(&rows), "{query}");
    }
}

#[test]
fn values_that_are_not_arrays_have_no_elements() {
    let world = World::new(&[(
        "docs",
        documents(&[
            r#"{"id":0,"l":[{"x":1},{"x":2}]}"#,
            r#"{"id":1,"l":null}"#,
            r#"{"id":2,"l":3}"#,
            r#"{"id":3,"l":{"x":4}}"#,
            r#"{"id":4,"l":[]}"#,
            r#"{"id":5}"#,
            r#"{"id":6,"l":[{"x":1},null]}"#,
        ]),
    )]);
    let elements = "[{\"x\":1,\"n\":2},{\"x\":2,\"n\":1},{\"x\":null,\"n\":1}]";
    for (query, expected) in [
        ("SELECT l.x, COUNT(*) AS n FROM docs t, t.l l GROUP BY l.x", elements),
        ("SELECT l.x, COUNT(*) AS n FROM docs t, (t.l) l GROUP BY l.x", elements),
        ("SELECT l.x, COUNT(*) AS n FROM docs t UNNEST t.l l GROUP BY l.x", elements),
        (
            "SELECT l.x, COUNT(*) AS n FROM docs t, t.l l WHERE NOT EXISTS \
             (SELECT VALUE 1 FROM t.l k WHERE k.x = l.x + 1) GROUP BY l.x",
            "[{\"x\":1,\"n\":1},{\"x\":2,\"n\":1},{\"x\":null,\"n\":1}]",
        ),
        (
            "SELECT COUNT(*) AS n FROM docs t WHERE EXISTS (SELECT VALUE k FROM t.l k)",
            "[{\"n\":2}]",
        ),
        (
            "SELECT COUNT(*) AS n FROM docs t WHERE EXISTS (SELECT VALUE k FROM (t.l) k)",
            "[{\"n\":2}]",
        ),
    ] {
        let Ok(Value::Array(expected)) = Value::parse(expected.as_bytes()) else {
            panic!("{expected} is no array")
        };
        let expected: Vec<String> = expected.iter().map(Value::to_json).collect();
        let rows = world.rows(query).unwrap_or_else(|error| panic!("{query}: {error}"));
        assert_eq!(normal(&rows), normal(&expected), "{query}");
        for count in [1, 2, 3] {
            let shared = world.processes(query, count);
            let shared = shared.unwrap_or_else(|error| panic!("{count}: {query}: {error}"));
            assert_eq!(normal(&shared), normal(&expected), "{count} processes: {query}");
        }
    }
}

const QUERIES: &[&str] = &[
    "SELECT o.id, o.total FROM orders o WHERE o.total > 30 ORDER BY o.id",
    "SELECT VALUE o FROM orders o WHERE o.id < 3",
    "SELECT * FROM items i WHERE i.item BETWEEN 2 AND 4",
    "SELECT o.* FROM orders o WHERE o.id = 7",
    "SELECT META(o).id AS place, o.of.name FROM orders o WHERE o.of.name = 'c1' ORDER BY place LIMIT 3",
    "SELECT o.of.name AS name, COUNT(*) AS count, SUM(o.total) AS sum, AVG(o.id) AS mean, MIN(o.day) AS low, MAX(o.id) AS high \
     FROM orders o GROUP BY o.of.name ORDER BY name",
    "SELECT COUNT(*) AS count, SUM(o.id) AS sum FROM orders o WHERE o.id > 1000",
    "SELECT COUNT(DISTINCT o.of.name) AS names, COUNT(o.note) AS notes FROM orders o",
    "SELECT o.note, COUNT(*) AS count FROM orders o GROUP BY o.note ORDER BY o.note",
    "SELECT l.item, SUM(l.price) AS price FROM orders o, o.lines l WHERE l.at >= 1 GROUP BY l.item HAVING COUNT(*) > 2 ORDER BY price DESC",
    "SELECT o.id, l.at FROM orders o UNNEST o.lines AS l WHERE l.price > o.total",
    "SELECT i.text, COUNT(*) AS count FROM orders o, o.lines l, items i WHERE l.item = i.item GROUP BY i.text ORDER BY count DESC, i.text LIMIT 4",
    "SELECT i.text, o.id FROM items i JOIN orders o ON i.item = o.id WHERE o.total > 9",
    "SELECT i.item, o.id FROM items i LEFT JOIN orders o ON i.item = o.id AND o.total > 9",
    "SELECT i.item, COUNT(o.id) AS count FROM items i LEFT JOIN orders o ON o.id % 11 = i.item AND o.id > 20 GROUP BY i.item",
    "SELECT t.name, t.sum FROM (SELECT o.of.name, SUM(o.total) AS sum FROM orders o GROUP BY o.of.name) t WHERE t.sum > 350",
    "WITH t AS (SELECT o.id % 4 AS k, SUM(o.total) AS s FROM orders o GROUP BY o.id % 4) \
     SELECT r.k, r.s FROM t r WHERE r.s = (SELECT VALUE MAX(u.s) FROM t u)[0]",
    "SELECT VALUE o.id FROM orders o WHERE o.total > (SELECT VALUE AVG(p.total) FROM orders p)[0]",
    "SELECT VALUE o.id FROM orders o WHERE o.id IN (SELECT VALUE i.item FROM items i WHERE i.text LIKE '%1%')",
    "SELECT VALUE o.id FROM orders o WHERE o.id NOT IN (SELECT VALUE i.item FROM items i)",
    "SELECT VALUE o.id FROM orders o WHERE EXISTS (SELECT VALUE 1 FROM items i WHERE i.item = o.id AND i.item > 3)",
    "SELECT VALUE o.id FROM orders o WHERE NOT EXISTS (SELECT VALUE 1 FROM items i WHERE i.item = o.id)",
    "SELECT VALUE o.id FROM orders o WHERE EXISTS (SELECT VALUE 1 FROM o.lines l WHERE l.price > 20 AND l.at > 1)",
    "SELECT o.id, l.at FROM orders o, o.lines l WHERE NOT EXISTS (SELECT VALUE 1 FROM o.lines m WHERE m.price > l.price)",
    "SELECT VALUE DATE_PART_STR(o.day, 'month') FROM orders o WHERE DATE_ADD_STR(o.day, 1, 'month') < '2020-06-01'",
    "SELECT DATE_PART_STR(o.day, 'month') AS month, ROUND(SUM(o.total), 1) AS sum FROM orders o \
     GROUP BY DATE_PART_STR(o.day, 'month') ORDER BY month",
    "SELECT SUM(CASE WHEN o.id % 2 = 0 THEN 1 ELSE 0 END) AS even, 100.0 * SUM(CASE WHEN o.note LIKE 'n%' THEN o.total ELSE 0 END) / (1 + SUM(o.total)) AS part FROM orders o",
    "SELECT i.item FROM items i WHERE STRING_TO_CODEPOINT(i.code)[0] = 100",
    "SELECT i.text, j.text AS other FROM items i, items j WHERE STRING_TO_CODEPOINT(i.code)[0] = j.item + 97 AND i.item > 8",
    "SELECT o.id FROM orders o WHERE (o.id = 3 AND o.total > 1) OR (o.id = 5 AND o.total > 1)",
    "SELECT o.id / 0 AS none, o.id % 0 AS rest, o.id / 4 AS part, o.id MOD 7 AS m FROM orders o WHERE o.id < 9",
    "SELECT VALUE o.id FROM orders o WHERE o.note IS NULL",
    "SELECT VALUE o.id FROM orders o WHERE o.note IS MISSING",
    "SELECT VALUE o.id FROM orders o WHERE NOT (o.note IS NULL)",
    "SELECT VALUE o.id FROM orders o WHERE o.note IS VALUED AND o.absent IS MISSING",
    "SELECT o.id, o.note FROM orders o ORDER BY o.note DESC, o.id LIMIT 50",
    "SELECT DISTINCT o.of.name FROM orders o",
    "SELECT VALUE {\"id\": o.id, \"note\": o.note, \"in\": {\"name\": o.of.name}} FROM orders o",
    "SELECT m.v FROM mixed m",
    "SELECT VALUE m.v FROM mixed m WHERE m.v = 1 OR m.v > '0'",
    "SELECT m.v, COUNT(*) AS count FROM mixed m GROUP BY m.v",
    "SELECT META(m).id AS k FROM mixed m ORDER BY m.v, META(m).id",
    "SELECT VALUE m.v.x FROM mixed m WHERE m.v.x = 1",
    "SELECT COUNT(m.v) AS count FROM mixed m",
    "SELECT COUNT(*) AS count, SUM(n.x) AS sum, MAX(n.x) AS high FROM nothing n",
    "SELECT n.x FROM nothing n, n.y z",
    "SELECT a.id, b.id AS other FROM orders a, orders b WHERE a.id = b.id + 1 AND a.id < 4",
    "SELECT a.item, b.item AS other FROM items a CROSS JOIN items b WHERE a.item < 2 AND b.item < 2",
    "SELECT o.id FROM orders o WHERE o.id IN [1, 2, 77] AND o.of.name NOT IN ['c1']",
    "SELECT o.id + 0.5 AS half, -o.id AS negative, o.id * o.total AS product, o.total - 1 AS less FROM orders o WHERE o.id < 5",
    "SELECT o.id FROM orders o WHERE o.id < 30 ORDER BY o.id DESC LIMIT 3 OFFSET 2",
    "SELECT UPPER(i.text) AS u, LENGTH(i.text) AS n, SUBSTR1(i.text, 1, 4) AS s FROM items i",
    "SELECT VALUE o.id FROM orders o WHERE ANY l IN o.lines SATISFIES l.price > o.total END",
];
