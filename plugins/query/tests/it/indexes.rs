//! Indexes change how rows are found, but not the result: each statement returns the same rows with its indexes and without.

use crate::world::World;
use nacre_query::Request;
use nacre_sql::Value;

/// Returns the rows of a statement on documents `d0`, `d1`, … of `l`, after checking that they are the same with the indexes
/// and without; `$p` is NULL.
fn rows(documents: &[&str], indexes: &[&str], statement: &str) -> String {
    let run = |indexes: &[&str]| {
        let world = World::new();
        let ids: Vec<String> = (0..documents.len()).map(|at| format!("d{at}")).collect();
        let values = documents.iter().map(|json| Value::parse(json.as_bytes()).unwrap());
        world.add("l", ids.iter().map(String::as_str).zip(values));
        for index in indexes {
            world.query(index).unwrap();
        }
        let settings = [("query_context", "default:default._default"), ("$p", "null")];
        let mut request = Request::from_pairs(settings).unwrap();
        request.statement = Some(statement.to_owned());
        let mut rows = world.run(request).unwrap();
        rows.sort();
        Value::array(rows).to_json()
    };
    let plain = run(&[]);
    assert_eq!(run(indexes), plain, "{statement}");
    plain
}

#[test]
fn a_bound_that_is_unknown_is_not_implied_by_a_partial_index() {
    let documents = [r#"{"a": 1, "b": 1}"#];
    for operator in [">", ">=", "<", "<="] {
        let index = format!("CREATE INDEX i ON l(b) WHERE a {operator} 1 OR a = 1");
        let known = format!("(a {operator} 1 OR a = 1)");
        for bound in ["$p", "null"] {
            let statement =
                format!("SELECT b FROM l WHERE b > 0 AND {known} AND a {operator} {bound}");
            assert_eq!(rows(&documents, &[&index], &statement), "[]");
        }
    }
    for (held, asked) in [("> 0", "> "), ("> 0", ">= "), ("= 1", "> "), ("= 1", ">= ")] {
        let index = format!("CREATE INDEX i ON l(b) WHERE a {held}");
        for bound in ["$p", "null"] {
            let statement =
                format!("SELECT b FROM l WHERE b > 0 AND a {held} AND a {asked}{bound}");
            assert_eq!(rows(&documents, &[&index], &statement), "[]");
        }
    }
}

#[test]
fn a_document_with_an_empty_array_is_found_by_conditions_without_elements() {
    let documents = [r#"{"a": 1, "tags": []}"#, r#"{"a": 1, "tags": [2]}"#, r#"{"a": 1}"#];
    for index in [
        "CREATE INDEX i ON l(a, DISTINCT ARRAY v FOR v IN tags END)",
        "CREATE INDEX i ON l(a, b, ALL tags)",
        "CREATE INDEX i ON l(ALL tags, a)",
    ] {
        let found = |condition: &str| {
            rows(&documents, &[index], &format!("SELECT RAW META().id FROM l WHERE {condition}"))
        };
        assert_eq!(found("a = 1"), r#"["d0","d1","d2"]"#);
        assert_eq!(found("a = 1 AND ANY v IN tags SATISFIES v = 2 END"), r#"["d1"]"#);
    }
}

#[test]
fn values_of_an_object_are_in_an_array_index_as_any_has_them() {
    let documents = [r#"{"tags": {"x": 1}}"#, r#"{"tags": [1]}"#, r#"{"tags": 1}"#];
    for index in [
        "CREATE INDEX i ON l(DISTINCT tags)",
        "CREATE INDEX i ON l(ALL tags)",
        "CREATE INDEX i ON l(ALL ARRAY v FOR v IN tags END)",
    ] {
        let statement = "SELECT RAW META().id FROM l WHERE ANY v IN tags SATISFIES v = 1 END";
        assert_eq!(rows(&documents, &[index], statement), r#"["d0","d1"]"#);
    }
}

#[test]
fn a_document_without_an_entry_is_found_by_conditions_outside_the_index() {
    let long = format!(r#"{{"a": "{}", "b": 1}}"#, "x".repeat(70_000));
    let documents = [&long[..], r#"{"a": 1, "b": 1}"#];
    for statement in [
        "SELECT RAW META().id FROM l",
        "SELECT RAW META().id FROM l WHERE b = 1",
        "SELECT RAW META().id FROM l WHERE b = 1 ORDER BY META().id LIMIT 5",
        "SELECT RAW b FROM l WHERE b = 1",
    ] {
        for index in [
            "CREATE INDEX i ON l(a INCLUDE MISSING)",
            "CREATE INDEX i ON l(a INCLUDE MISSING) WHERE b = 1",
            "CREATE INDEX i ON l(a INCLUDE MISSING, b)",
        ] {
            let found = rows(&documents, &[index], statement);
            assert_eq!(Value::parse(found.as_bytes()).unwrap().as_array().unwrap().len(), 2);
        }
    }
}

#[test]
fn a_name_of_with_is_not_taken_for_the_other_side_of_a_right_join() {
    let documents = [r#"{"x": 1}"#, r#"{"x": 2}"#];
    let statement = "WITH b AS ([{\"x\": 1}]) SELECT a.x AS l, b.x AS r FROM b AS a RIGHT JOIN l AS b ON a.x = b.x";
    assert_eq!(rows(&documents, &[], statement), r#"[{"r":2},{"l":1,"r":1}]"#);
}

#[test]
fn large_groups_are_the_same_from_entries_and_from_documents() {
    let documents: Vec<String> = (0..6000)
        .map(|n| {
            let (group, value) = (["a", "b", "c"][n % 7 % 3], n * 31 % 6000);
            match n % 11 {
                0 => format!(r#"{{"g": "{group}", "h": {}}}"#, n % 2),
                1 => format!(r#"{{"g": "{group}", "h": {}, "v": null}}"#, n % 2),
                _ => format!(r#"{{"g": "{group}", "h": {}, "v": {value}}}"#, n % 2),
            }
        })
        .collect();
    let documents: Vec<&str> = documents.iter().map(String::as_str).collect();
    for index in [
        "CREATE INDEX i ON l(g, v)",
        "CREATE INDEX i ON l(g DESC, v DESC)",
        "CREATE INDEX i ON l(h, g, v)",
        "CREATE INDEX i ON l(g, h, v DESC)",
    ] {
        for statement in [
            "SELECT d.g, MIN(d.v) AS m FROM l AS d WHERE d.g >= 'a' AND d.g < 'c' GROUP BY d.g",
            "SELECT d.g, MAX(d.v) AS m FROM l AS d WHERE d.g >= 'a' GROUP BY d.g",
            "SELECT d.g FROM l AS d WHERE d.g >= 'a' GROUP BY d.g",
            "SELECT d.g, MIN(d.v) AS m, COUNT(*) AS n FROM l AS d WHERE d.g IN ['a', 'c'] GROUP BY d.g",
            "SELECT d.g, MIN(d.v) AS m FROM l AS d WHERE d.h = 1 AND d.g > 'a' GROUP BY d.g",
            "SELECT d.h, MIN(d.v) AS m FROM l AS d WHERE d.g = 'b' GROUP BY d.h",
            "SELECT AVG(d.v) AS v, COUNT(DISTINCT d.v) AS n FROM l AS d WHERE d.g = 'b'",
        ] {
            rows(&documents, &[index], statement);
        }
    }
}
