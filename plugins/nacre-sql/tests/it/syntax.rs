//! Printing a tree and parsing the text returns the same tree; no text makes the parser panic.

use nacre_sql::ast::Statement;
use nacre_sql::{Scope, parse, parse_expr, resolve_select};
use proptest::prelude::*;

/// Expressions of all forms.
const EXPRESSIONS: &[&str] = &[
    "1 + 2 * -x.y - 3",
    "-x",
    "- -1",
    "-9223372036854775808",
    "1e30 / 0.5 % 2",
    "a = b < c",
    "NOT a = b AND NOT c OR d",
    "a || 'x' || \"y\\n\\\"\"",
    "a BETWEEN 1 AND 2 AND b",
    "a NOT BETWEEN 1 AND 2",
    "a LIKE 'x%' ESCAPE '!'",
    "a NOT IN [1, 'x', NULL, MISSING, TRUE]",
    "a WITHIN b",
    "a IS NOT NULL",
    "a IS MISSING",
    "a IS NOT KNOWN",
    "a IS UNKNOWN",
    "a IS NOT VALUED",
    "a IS DISTINCT FROM b",
    "a IS NOT DISTINCT FROM b",
    "EXISTS (SELECT 1)",
    "CASE WHEN a THEN 1 ELSE 2 END",
    "CASE a WHEN 1 THEN 2 WHEN 3 THEN 4 END",
    "ANY v IN a SATISFIES v > 1 END",
    "SOME AND EVERY i : v IN a, w WITHIN b SATISFIES v = w END",
    "EVERY v IN a SATISFIES v END",
    "ARRAY v.x FOR v IN a WHEN v.y END",
    "FIRST v FOR v IN a END",
    "OBJECT k : v FOR k : v IN a END",
    "a.b.`c d`.`E`i[0][-1][1:2][:2][1:]",
    "a.[b || 'x']",
    "(-1).x",
    "{\"a\": 1, b.c, 'd': {}}",
    "[]",
    "COUNT(*) FILTER (WHERE a > 1)",
    "SUM(DISTINCT a)",
    "COUNT(DISTINCT a.b)",
    "ROW_NUMBER() OVER (PARTITION BY a, b ORDER BY c DESC NULLS LAST)",
    "SUM(a) OVER (ORDER BY b ROWS BETWEEN 1 PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE TIES)",
    "NTH_VALUE(a, 2) FROM LAST IGNORE NULLS OVER w",
    "$1 + $name + ?",
    "META().id",
    "META(a).cas",
    "UPPER(a)",
    "f(1)",
    "`default`:b.s.f(1, x)",
    "(SELECT RAW 1)",
    "((SELECT 1))[0]",
    "x[*].y",
];

const QUERIES: &[&str] = &[
    "SELECT 1",
    "SELECT DISTINCT a AS x, b.*, *",
    "SELECT RAW a FROM b",
    "SELECT VALUE a.b AS c FROM b AS a ORDER BY c",
    "FROM b AS a WHERE a.x SELECT a",
    "SELECT * FROM default:b.s.c AS a USE KEYS ['x'] WHERE 1",
    "SELECT * FROM a USE INDEX (i, j USING GSI)",
    "SELECT * FROM a USE INDEX (i, j USING GSI, k USING FTS)",
    "SELECT * FROM a USE INDEX (USING FTS)",
    "SELECT * FROM a USE INDEX (i, USING FTS)",
    "SELECT * FROM a JOIN b USE HASH(BUILD) ON a.x = b.y",
    "SELECT * FROM a LEFT OUTER JOIN b ON KEYS a.x RIGHT JOIN c ON c.y = a.y, d, (a.list) AS e",
    "SELECT * FROM a INNER NEST b ON KEYS a.ks LEFT UNNEST a.xs AS x JOIN c ON KEY c.k FOR a",
    "SELECT * FROM (SELECT 1 AS one) AS s LET t = s.one, u = 2 WHERE t GROUP BY s.one AS g, t GROUP AS gs LETTING n = 1 HAVING n > 0 ORDER BY n DESC LIMIT 1 + 1 OFFSET $1",
    "SELECT 1 UNION ALL SELECT 2 INTERSECT (SELECT 3 LIMIT 1) EXCEPT ALL SELECT 4 ORDER BY x LIMIT 3",
    "WITH a AS (SELECT 1), b AS (2) SELECT a, b",
    "WITH RECURSIVE r AS (SELECT 1 UNION SELECT 2 FROM r) SELECT * FROM r",
    "SELECT SUM(a) OVER w FROM b WINDOW w AS (PARTITION BY c), v AS (w ORDER BY d)",
    "SELECT * EXCLUDE a, b.c FROM b",
    "SELECT f(1) FROM g(2) AS h",
    "(SELECT 1) UNION (SELECT 2)",
];

#[test]
fn printed_expressions_parse_to_the_same_tree() {
    for text in EXPRESSIONS {
        let tree = parse_expr(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let printed = tree.to_string();
        let again =
            parse_expr(&printed).unwrap_or_else(|error| panic!("{text} -> {printed}: {error}"));
        assert_eq!(tree, again, "{text} -> {printed}");
    }
}

#[test]
fn printed_queries_parse_to_the_same_tree() {
    for text in QUERIES {
        let Statement::Select(tree) = parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
        else {
            panic!("{text} is a query")
        };
        let printed = tree.to_string();
        let again = parse(&printed).unwrap_or_else(|error| panic!("{text} -> {printed}: {error}"));
        assert_eq!(Statement::Select(tree), again, "{text} -> {printed}");
    }
}

/// Tokens of all kinds, for random sequences.
const TOKENS: &[&str] = &[
    "SELECT",
    "FROM",
    "WHERE",
    "a",
    "b",
    "`c`",
    "`d`i",
    "1",
    "2.5",
    "'s'",
    "\"t\"",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ".",
    ":",
    "*",
    "+",
    "-",
    "=",
    "<",
    "||",
    "AND",
    "OR",
    "NOT",
    "IN",
    "LIKE",
    "BETWEEN",
    "IS",
    "NULL",
    "MISSING",
    "CASE",
    "WHEN",
    "THEN",
    "END",
    "ANY",
    "SATISFIES",
    "ARRAY",
    "FOR",
    "FIRST",
    "OBJECT",
    "EXISTS",
    "UNNEST",
    "NEST",
    "JOIN",
    "ON",
    "KEYS",
    "KEY",
    "LET",
    "GROUP BY",
    "HAVING",
    "ORDER BY",
    "LIMIT",
    "UNION",
    "INSERT INTO",
    "VALUES",
    "UPDATE",
    "SET",
    "UNSET",
    "DELETE",
    "MERGE",
    "USING",
    "MATCHED",
    "CREATE",
    "INDEX",
    "DROP",
    "PREPARE",
    "EXECUTE",
    "EXPLAIN",
    "WITH",
    "AS",
    "RAW",
    "DISTINCT",
    "COUNT(",
    "OVER",
    "ROWS",
    "PARTITION BY",
    "$1",
    "?",
    "$x",
    "META()",
    "USE",
    ";",
    "--",
    "/*",
    "\u{0}",
    "é",
    "'",
    "\\",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn arbitrary_tokens_never_panic_the_parser(soup in prop::collection::vec(prop::sample::select(TOKENS), 0..40)) {
        let text = soup.join(" ");
        if let Ok(Statement::Select(mut select)) = parse(&text) {
            let printed = select.to_string();
            prop_assert_eq!(parse(&printed), Ok(Statement::Select(select.clone())), "{} -> {}", text, printed);
            let _ = resolve_select(&mut select, &Scope::new());
        }
    }

    #[test]
    fn arbitrary_text_never_panics_the_parser(text in "\\PC{0,60}") {
        let _ = parse(&text);
    }

    #[test]
    fn combined_expressions_print_and_parse_back(
        parts in prop::collection::vec(prop::sample::select(EXPRESSIONS), 1..4),
        operators in prop::collection::vec(prop::sample::select(&["+", "=", "<", "AND", "OR", "||", "IN", "LIKE"][..]), 3),
    ) {
        let mut text = parts[0].to_owned();
        for (part, operator) in parts[1..].iter().zip(&operators) {
            text = format!("{text} {operator} {part}");
        }
        if let Ok(tree) = parse_expr(&text) {
            let printed = tree.to_string();
            prop_assert_eq!(parse_expr(&printed), Ok(tree), "{} -> {}", text, printed);
        }
    }
}

#[test]
fn transaction_statements_have_several_forms() {
    use nacre_sql::ast::{Statement, TransactionStatement as Of};
    for (text, expected) in [
        ("BEGIN WORK", Of::Begin),
        ("START TRANSACTION", Of::Begin),
        ("begin tran isolation level read committed;", Of::Begin),
        ("COMMIT", Of::Commit),
        ("COMMIT TRANSACTION", Of::Commit),
        ("ROLLBACK WORK", Of::Rollback(None)),
        ("ROLLBACK TRAN TO SAVEPOINT `a b`", Of::Rollback(Some("a b".into()))),
        ("SAVEPOINT s1", Of::Savepoint("s1".into())),
        ("SET TRANSACTION ISOLATION LEVEL READ COMMITTED", Of::SetIsolation),
    ] {
        assert_eq!(nacre_sql::parse(text), Ok(Statement::Transaction(expected)), "{text}");
    }
    for text in [
        "BEGIN",
        "START",
        "BEGIN WORK ISOLATION LEVEL SERIALIZABLE",
        "COMMIT WORK TO SAVEPOINT s",
        "ROLLBACK TO s",
        "SAVEPOINT",
        "SET x = 1",
        "SET TRANSACTION",
    ] {
        assert_eq!(nacre_sql::parse(text).map_err(|error| error.code), Err(3000), "{text}");
    }
}

#[test]
fn operators_of_analytics_are_parsed_only_in_analytics() {
    let of_analytics = |text: &str| match nacre_sql::parse_analytics(text).unwrap() {
        Statement::Select(select) => select.to_string(),
        other => panic!("{other:?} is no query"),
    };
    for (text, queried) in [
        ("SELECT a * b MOD 10 + 1 AS x", "SELECT (a * b) % 10 + 1 AS x"),
        ("SELECT a DIV b AS x", "SELECT IDIV(a, b) AS x"),
        ("SELECT 1 FROM a CROSS JOIN b", "SELECT 1 FROM a, b"),
    ] {
        let Ok(Statement::Select(expected)) = parse(queried) else { panic!("{queried}") };
        assert_eq!(of_analytics(text), expected.to_string(), "{text}");
        assert!(parse(text).is_err(), "{text}");
    }
    // In queries, MOD without AS is still an alias.
    assert!(parse("SELECT a mod FROM b").is_ok());
}
