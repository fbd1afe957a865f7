//! Tests of the function tables: every function accepts every type of argument without a panic.

use nacre_sql::functions::{AGGREGATES, WINDOW_FUNCTIONS, all, find_error};
use nacre_sql::{Caches, Context, Env, NoHost, Value, eval, parse_expr};
use std::collections::{BTreeMap, BTreeSet};

fn evaluate(text: &str) -> nacre_sql::Result<Value> {
    let (named, caches) = (BTreeMap::new(), Caches::default());
    let context =
        Context { host: &NoHost, positional: &[], named: &named, statement_ms: 0, caches: &caches };
    eval(&parse_expr(text).unwrap_or_else(|error| panic!("{text}: {error}")), &Env::new(), &context)
}

#[test]
fn function_names_are_unique() {
    let names: BTreeSet<&str> = all().map(|function| function.name).collect();
    assert_eq!(names.len(), all().count());
    assert!(names.len() + AGGREGATES.len() + WINDOW_FUNCTIONS.len() >= 170, "{}", names.len());
}

#[test]
fn every_function_takes_every_kind_of_argument() {
    let kinds = [
        "MISSING",
        "NULL",
        "TRUE",
        "0",
        "-1",
        "2",
        "1.5",
        "9223372036854775807",
        "1e308",
        "''",
        "'abc'",
        "'day'",
        "'2024-02-29'",
        "[]",
        "[1, 'a', NULL]",
        "{}",
        "{'a': [1]}",
    ];
    for function in all().filter(|function| {
        !["ABORT", "META", "UNNEST_POS", "UNNEST_POSITION"].contains(&function.name)
    }) {
        for count in function.args_min..=function.args_max.min(function.args_min + 2) {
            for (at, kind) in kinds.iter().enumerate() {
                // Each type together with its neighbours, so that pairs of types are covered.
                for shift in 0..4 {
                    let args: Vec<&str> = (0..count)
                        .map(|n| if n == 0 { kind } else { kinds[(at + n * shift) % kinds.len()] })
                        .collect();
                    let text = format!("{}({})", function.name, args.join(", "));
                    // Errors are allowed only for results that are too large and for invalid patterns.
                    if let Err(error) = evaluate(&text) {
                        assert!([5000, 5500].contains(&error.code), "{text}: {error}");
                    }
                }
            }
        }
    }
}

/// The functions of Couchbase. Source: its registry of functions.
const COUCHBASE: &str = include_str!("couchbase_functions.txt");

/// Statements of Couchbase, each with an example.
const STATEMENTS: &[(&str, &str)] = &[
    ("ALTER BUCKET", r#"ALTER BUCKET b WITH {"ramQuota": 200}"#),
    ("ALTER COLLECTION", r#"ALTER COLLECTION b.s.c WITH {"maxTTL": 5}"#),
    ("ALTER GROUP", "ALTER GROUP g ROLES admin"),
    ("ALTER SEQUENCE", "ALTER SEQUENCE s RESTART"),
    ("ALTER USER", r#"ALTER USER u PASSWORD "p""#),
    ("ANALYZE", "ANALYZE KEYSPACE b(a)"),
    ("CREATE BUCKET", "CREATE BUCKET b"),
    ("CREATE GROUP", "CREATE GROUP g ROLES admin"),
    ("CREATE SEQUENCE", "CREATE SEQUENCE s"),
    ("CREATE USER", r#"CREATE USER u PASSWORD "p""#),
    ("CREATE VECTOR INDEX", "CREATE VECTOR INDEX i ON b(v VECTOR)"),
    ("DROP BUCKET", "DROP BUCKET b"),
    ("DROP GROUP", "DROP GROUP g"),
    ("DROP SEQUENCE", "DROP SEQUENCE s"),
    ("DROP USER", "DROP USER u"),
    ("FLUSH COLLECTION", "FLUSH COLLECTION b.s.c"),
    ("GRANT", "GRANT admin TO u"),
    ("REVOKE", "REVOKE admin FROM u"),
    ("TRUNCATE COLLECTION", "TRUNCATE COLLECTION b.s.c"),
    ("UPDATE STATISTICS", "UPDATE STATISTICS FOR b(a)"),
];

fn page() -> &'static str {
    include_str!("../../../../docs/reference/sqlpp.md")
}

#[test]
fn the_reference_names_every_function() {
    for name in nacre_sql::functions::names() {
        assert!(page().contains(&format!("`{name}`")), "{name}");
    }
}

#[test]
fn the_errors_of_the_reference_can_be_found() {
    let known: BTreeSet<u32> = find_error::codes().collect();
    let (_, table) = page().split_once("| code | when |").expect("the page lists codes");
    let rows = table.lines().take_while(|line| line.is_empty() || line.starts_with('|'));
    let codes = rows.filter_map(|row| row.split('|').nth(1)).flat_map(|cell| cell.split(','));
    let codes: Vec<u32> = codes.filter_map(|code| code.trim().parse().ok()).collect();
    assert!(codes.len() > 50, "{codes:?}");
    let unknown: Vec<u32> = codes.into_iter().filter(|code| !known.contains(code)).collect();
    assert_eq!(unknown, [] as [u32; 0]);
}

#[test]
fn the_reference_lists_missing_functions() {
    let listed = |names: Vec<&str>| {
        names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
    };
    let known: BTreeSet<String> = nacre_sql::functions::names().into_iter().collect();
    let missing = COUCHBASE.split_whitespace().filter(|name| !known.contains(*name));
    let functions = match listed(missing.collect()).as_str() {
        "" => "Functions of Couchbase: none.".to_owned(),
        names => format!("Functions of Couchbase: {names}."),
    };
    assert!(page().contains(&functions), "{functions}");
    let missing = STATEMENTS.iter().filter(|(_, example)| nacre_sql::parse(example).is_err());
    let statements = listed(missing.map(|(name, _)| *name).collect());
    let statements = match statements.as_str() {
        "" => "Statements of Couchbase: none.".to_owned(),
        names => format!("Statements of Couchbase: {names}."),
    };
    assert!(page().contains(&statements), "{statements}");
}
