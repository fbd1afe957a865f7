//! Index entries of documents.

use nacre_sql::index::Definition;
use nacre_sql::{Meta, Value};
use std::sync::Arc;

/// Returns the entries of a document, as JSON arrays of their parts.
fn entries(definition: &str, document: &str) -> Vec<String> {
    let definition = Definition::parse(definition).unwrap();
    let meta = Arc::new(Meta { id: "d1".into(), ..Meta::default() });
    let value = Value::parse(document.as_bytes()).unwrap();
    let entries = definition.entries(&value, &meta).unwrap();
    let parts = entries.iter().map(|entry| definition.decode(entry).unwrap().0);
    parts.map(|parts| Value::array(parts).to_json()).collect()
}

#[test]
fn a_document_has_an_entry_with_its_key_parts() {
    assert_eq!(entries("CREATE INDEX i ON o(a, b DESC)", r#"{"a": 1, "b": "x"}"#), [r#"[1,"x"]"#]);
    assert_eq!(entries("CREATE INDEX i ON o(a, b)", r#"{"a": null}"#), ["[null,null]"]);
    assert_eq!(
        entries("CREATE INDEX i ON o(LOWER(o.a), META().id)", r#"{"a": "X"}"#),
        [r#"["x","d1"]"#]
    );
}

#[test]
fn a_document_without_the_first_key_part_has_no_entry() {
    assert!(entries("CREATE INDEX i ON o(a, b)", r#"{"b": 1}"#).is_empty());
    assert_eq!(entries("CREATE INDEX i ON o(a INCLUDE MISSING, b)", r#"{"b": 1}"#), ["[null,1]"]);
}

#[test]
fn a_condition_selects_documents() {
    let definition = "CREATE INDEX i ON o(a) WHERE b > 1";
    assert_eq!(entries(definition, r#"{"a": 1, "b": 2}"#), ["[1]"]);
    assert!(entries(definition, r#"{"a": 1, "b": 1}"#).is_empty());
    assert!(entries(definition, r#"{"a": 1}"#).is_empty());
}

#[test]
fn an_array_part_has_an_entry_for_each_element_once() {
    let definition = "CREATE INDEX i ON o(DISTINCT ARRAY t.n FOR t IN ts WHEN t.n > 0 END, a)";
    let document = r#"{"a": 9, "ts": [{"n": 2}, {"n": 1}, {"n": 2}, {"n": 0}, {}]}"#;
    assert_eq!(entries(definition, document), ["[1,9]", "[2,9]"]);
    assert_eq!(entries("CREATE INDEX i ON o(ALL ts)", r#"{"ts": [1, "x"]}"#), ["[1]", r#"["x"]"#]);
}

#[test]
fn volatile_expressions_are_not_indexed() {
    for expr in ["NOW_MILLIS()", "RANDOM()", "$1", "(SELECT 1)", "COUNT(*)", "f(a)"] {
        let error = Definition::parse(&format!("CREATE INDEX i ON o({expr})")).unwrap_err();
        assert!((3000..5000).contains(&error.code), "{expr}: {error}");
    }
}

/// Returns the partition of a document by its field `v`, of `count`.
fn partition(count: u16, v: &str) -> u16 {
    let text = format!(
        "CREATE INDEX i ON o(v) PARTITION BY HASH(o.v) WITH {{\"num_partition\": {count}}}"
    );
    let definition = Definition::parse(&text).unwrap();
    let value = Value::parse(format!("{{\"v\": {v}}}").as_bytes()).unwrap();
    definition
        .partition(&value, &Arc::new(Meta { id: "id".into(), ..Meta::default() }))
        .unwrap()
        .unwrap()
}

#[test]
fn values_are_spread_over_partitions_and_equal_values_share_one() {
    let spread = |values: &mut dyn Iterator<Item = String>| {
        let mut counts = [0; 8];
        values.for_each(|value| counts[usize::from(partition(8, &value))] += 1);
        counts
    };
    for counts in [
        spread(&mut (0..800).map(|n| n.to_string())),
        spread(&mut (0..800).map(|n| format!("\"k{n}\""))),
        spread(&mut (0..800).map(|n| format!("[{}, {}]", n % 20, n / 20))),
    ] {
        assert!(counts.iter().all(|count| (60..140).contains(count)), "{counts:?}");
    }
    assert_eq!(partition(64, "1"), partition(64, "1.0"));
    assert_eq!(partition(64, "0"), partition(64, "-0.0"));
    let few = spread(&mut (0..8).map(|n| format!("\"k{n}\"")));
    assert!(few.iter().all(|count| *count <= 3), "{few:?}");
}

#[test]
fn a_vector_key_is_an_attribute_of_one_key() {
    let parsed = |text: &str| match nacre_sql::parse(text) {
        Ok(nacre_sql::ast::Statement::CreateIndex(create)) => create,
        other => panic!("{text}: {other:?}"),
    };
    let text = "CREATE VECTOR INDEX IF NOT EXISTS i ON b.s.c(v VECTOR) INCLUDE (a, o.p) PARTITION BY HASH(a) WHERE a > 1 USING GSI WITH {\"dimension\": 3}";
    let create = parsed(text);
    assert!(create.is_vector_index && create.if_not_exists);
    assert_eq!((create.vector, create.include.len(), create.partition.len()), (Some(0), 2, 1));
    let printed = create.to_string();
    let again = parsed(&printed);
    assert_eq!((again.vector, again.include.clone()), (create.vector, create.include.clone()));
    assert_eq!(again.to_string(), printed);
    let composite = parsed("CREATE INDEX i ON c(a, v VECTOR, b DESC)");
    assert_eq!((composite.vector, composite.is_vector_index), (Some(1), false));
    assert_eq!(parsed(&composite.to_string()).vector, Some(1));
    assert_eq!(parsed("CREATE INDEX i ON c(vector)").vector, None);
    for wrong in [
        "CREATE VECTOR INDEX i ON c(v)",
        "CREATE VECTOR INDEX ON c(v VECTOR)",
        "CREATE INDEX i ON c(v VECTOR, w VECTOR)",
        "CREATE INDEX i ON c(a, v VECTOR) INCLUDE (b)",
        "UPDATE STATISTICS FOR c(v VECTOR)",
    ] {
        assert!(nacre_sql::parse(wrong).is_err(), "{wrong}");
    }
    assert!(Definition::parse("CREATE INDEX i ON c(v VECTOR)").is_err(), "it has no entries");
}

#[test]
fn index_types_report_their_partition_keys() {
    let printed = |text: &str| match nacre_sql::parse(text) {
        Ok(nacre_sql::ast::Statement::CreateIndex(create)) => create.to_string(),
        other => panic!("{text}: {other:?}"),
    };
    let same = [
        (
            "CREATE INDEX i ON o(a, b) USING HASH",
            "CREATE INDEX i ON o(a, b) PARTITION BY HASH(a, b)",
        ),
        (
            "CREATE INDEX i ON o(a, b DESC, c) USING CLUSTERED WHERE a > 1",
            "CREATE INDEX i ON o(a, b DESC, c) PARTITION BY HASH(a) WHERE a > 1",
        ),
        ("CREATE INDEX i ON o(a) USING GSI", "CREATE INDEX i ON o(a)"),
    ];
    for (text, expected) in same {
        assert_eq!(printed(text), printed(expected), "{text}");
    }
    for wrong in [
        "CREATE PRIMARY INDEX ON o USING HASH",
        "CREATE INDEX i ON o(DISTINCT ARRAY t FOR t IN ts END) USING CLUSTERED",
        "CREATE INDEX i ON o(a) USING HASH PARTITION BY HASH(a)",
        "CREATE INDEX i ON o(a) PARTITION BY HASH(a) USING CLUSTERED",
        "CREATE INDEX i ON o(a) USING BITMAP",
    ] {
        assert!(Definition::parse(wrong).is_err(), "{wrong}");
    }
}
