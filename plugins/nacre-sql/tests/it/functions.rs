//! The tables of functions as a whole: every one takes every kind of argument without a panic.

use nacre_sql::functions::{AGGREGATES, WINDOW_FUNCTIONS, all};
use nacre_sql::{Caches, Context, Env, NoHost, Value, eval, parse_expr};
use std::collections::{BTreeMap, BTreeSet};

fn evaluate(text: &str) -> nacre_sql::Result<Value> {
    let (named, caches) = (BTreeMap::new(), Caches::default());
    let context =
        Context { host: &NoHost, positional: &[], named: &named, statement_ms: 0, caches: &caches };
    eval(&parse_expr(text).unwrap_or_else(|error| panic!("{text}: {error}")), &Env::new(), &context)
}

#[test]
fn names_are_unique_and_many() {
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
                // Each kind together with its neighbours, so that pairs of kinds meet.
                for shift in 0..4 {
                    let args: Vec<&str> = (0..count)
                        .map(|n| if n == 0 { kind } else { kinds[(at + n * shift) % kinds.len()] })
                        .collect();
                    let text = format!("{}({})", function.name, args.join(", "));
                    // Errors are answers too; only results that are too large and wrong patterns give one.
                    if let Err(error) = evaluate(&text) {
                        assert!([5000, 5500].contains(&error.code), "{text}: {error}");
                    }
                }
            }
        }
    }
}

#[test]
fn the_reference_names_every_function() {
    let page = include_str!("../../../../docs/reference/sqlpp.md");
    for name in all().map(|function| function.name) {
        assert!(page.contains(&format!("`{name}`")), "{name}");
    }
    let others = AGGREGATES
        .iter()
        .map(|(name, _)| name)
        .chain(WINDOW_FUNCTIONS.iter().map(|(name, ..)| name));
    for name in others {
        assert!(page.contains(&format!("`{}`", name.to_ascii_uppercase())), "{name}");
    }
}
