//! Queries as text, with indexes and without: an index changes how rows are found, and not which.

use crate::tables::{COLLECTIONS, INDEXES, Tables, is_limit};
use nacre_sql::ast::Statement;
use nacre_sql::{Value, parse};

/// What makes rows depend on the order in which documents are read, on chance, or on what is not evaluated.
const DEPENDENT: [&str; 17] = [
    "limit",
    "offset",
    "fetch",
    "nest",
    "group as",
    "array_agg",
    "over",
    "sum",
    "avg",
    "mean",
    "std",
    "var",
    "random",
    "uuid",
    "system",
    "abort",
    "raise",
];
/// As above: parameters without values.
const PARAMETERS: [char; 2] = ['$', '?'];

const DOCUMENTS: [&str; 12] = [
    r#"{"a": 1, "b": "x", "tags": [1, "x", null]}"#,
    r#"{"a": 1, "b": "y"}"#,
    r#"{"a": 2.5, "b": null, "tags": []}"#,
    r#"{"a": "x", "b": 1, "tags": ["x", "x", {"c": 1}]}"#,
    r#"{"a": null, "b": [1, 2]}"#,
    r#"{"b": 3, "tags": "x"}"#,
    r#"{"a": true, "c": {"d": [1, {"e": "x"}]}}"#,
    r#"{"a": 9007199254740993, "b": -1}"#,
    r#"{"a": {"d": 1}, "b": {"d": 1}, "tags": [[1], 2]}"#,
    r#"{"a": 1, "b": 2, "tags": {"c": "x", "d": 1}}"#,
    r#"{"a": 1, "b": 0, "tags": {}}"#,
    "{}",
];

thread_local! {
    static TABLES: [Tables; 2] = [tables(&[]), tables(&INDEXES)];
}

fn tables(indexes: &[&str]) -> Tables {
    let tables = Tables::new();
    for name in COLLECTIONS {
        let document = |(at, json): (usize, &&str)| {
            (format!("d{at}"), Value::parse(json.as_bytes()).expect("documents are JSON"))
        };
        tables.add(name, &DOCUMENTS.iter().enumerate().map(document).collect::<Vec<_>>());
    }
    for index in indexes {
        tables.query(index).expect("each index is new");
    }
    tables
}

/// Runs a query, and shows its plan.
///
/// Law: with indexes the rows are those that there are without, in some order; none of both ends because of the other's plan.
pub fn queries(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    let Ok(Statement::Select(_)) = parse(text) else { return };
    let lower = text.to_ascii_lowercase();
    let is_dependent = DEPENDENT.iter().any(|word| lower.contains(word))
        || lower.contains(PARAMETERS)
        || lower.matches("select").count() > 1;
    TABLES.with(|[plain, indexed]| {
        let explained = indexed.query(&format!("EXPLAIN {text}"));
        let (without, with) = (plain.query(text), indexed.query(text));
        match (without, with) {
            (Ok(mut without), Ok(mut with)) if !is_dependent => {
                without.sort();
                with.sort();
                assert!(
                    without == with,
                    "{text}\n without indexes {without:?}\n with            {with:?}\n{explained:?}"
                );
            }
            (Ok(_), Err(error)) if !is_dependent && !is_limit(&error) => {
                panic!("{text} fails with indexes only: {error}")
            }
            _ => {}
        }
    });
}
