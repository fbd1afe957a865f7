//! Shares from a histogram equal exact counts within the accuracy of its bins.

use nacre_cost::{Sarg, Table, Tally};
use nacre_sql::ast::{Expr, Statement};
use nacre_sql::index::Definition;
use nacre_sql::{Value, parse};
use proptest::prelude::*;

const KEY: &str = "(`#self`.`a`)";

/// Returns statistics of a key `a` with these values, including MISSING, in a keyspace of at least as many
/// documents.
fn table(values: &[Value], documents: u64, resolution: Option<f64>) -> Table {
    let mut tally = Tally::default();
    for value in values {
        tally.add(value.clone());
    }
    let mut fields = vec![("expression".to_owned(), Value::from(KEY))];
    let histogram = tally.histogram(values.len() as u64, resolution);
    let members = histogram.as_object().unwrap();
    fields.extend(members.iter().map(|(name, value)| (name.to_string(), value.clone())));
    let row = Value::object([
        ("docCount", Value::Int(documents as i64)),
        ("histograms", Value::object([("a", Value::object(fields))])),
    ]);
    // The row is stored as the JSON of a note.
    let row = Value::parse(row.to_json().as_bytes()).unwrap();
    Table::from_row(&row).unwrap()
}

fn literal(value: impl Into<Value>) -> Expr {
    Expr::Literal(value.into())
}

fn numbers(values: impl IntoIterator<Item = i64>) -> Vec<Value> {
    values.into_iter().map(Value::Int).collect()
}

fn condition(text: &str) -> Expr {
    let Statement::Select(select) = parse(&format!("SELECT RAW {text}")).unwrap() else {
        panic!("{text} is no expression")
    };
    let mut select = *select;
    let mut found = None;
    nacre_sql::each_in_select(&mut select, &mut |expr| {
        found.get_or_insert_with(|| expr.clone());
        Ok(())
    })
    .unwrap();
    found.unwrap()
}

#[test]
fn the_key_of_an_index_is_found_by_its_text() {
    let definition = Definition::parse("CREATE INDEX i ON k(a)").unwrap();
    assert_eq!(Table::key_of(&definition.keys[0].expr, None), KEY);
}

#[test]
fn frequent_and_rare_values_are_distinguished() {
    // 900 of 1,000 values are equal, and 100 others differ.
    let values = numbers((0..900).map(|_| 5).chain(1000..1100));
    let table = table(&values, 1000, None);
    let equal = |value: i64| table.share(KEY, &[Sarg::Equal(literal(Value::Int(value)))]);
    assert!((equal(5) - 0.9).abs() < 1e-9);
    assert!((equal(1050) - 0.001).abs() < 1e-9);
    assert!(equal(7) < 0.001, "it was not seen, and may be there all the same");
    assert!(equal(7) > 0.0);
}

#[test]
fn an_unknown_value_is_estimated_as_one_of_the_distinct_values() {
    let table = table(&numbers((0..100).map(|n| n % 4)), 100, None);
    let share = table.share(KEY, &[Sarg::Equal(condition("$x"))]);
    assert!((share - 0.25).abs() < 1e-9);
    let listed = [Sarg::In(condition("[1, 2]"))];
    assert!((table.share(KEY, &listed) - 0.5).abs() < 1e-9);
}

#[test]
fn missing_and_null_have_separate_shares() {
    let mut values = numbers(0..6);
    values.extend([Value::Null, Value::Null, Value::Missing, Value::Missing]);
    let table = table(&values, 10, None);
    for (sarg, share) in [
        (Sarg::IsNull, 0.2),
        (Sarg::IsMissing, 0.2),
        (Sarg::IsKnown, 0.6),
        (Sarg::NotMissing, 0.8),
        (Sarg::Equal(literal(Value::Null)), 0.05),
    ] {
        assert!((table.share(KEY, std::slice::from_ref(&sarg)) - share).abs() < 1e-9, "{sarg:?}");
    }
}

#[test]
fn a_prefix_is_a_range_of_texts() {
    let texts = (0..100).map(|n| Value::from(format!("{}-{n}", if n < 20 { "de" } else { "fr" })));
    let table = table(&texts.collect::<Vec<_>>(), 100, None);
    let share = table.share(KEY, &[Sarg::Like(literal("de%"), None)]);
    assert!((share - 0.2).abs() < 0.02, "{share}");
}

#[test]
fn a_sample_of_distinct_values_implies_more_distinct_values() {
    let unique = table(&numbers(0..1000), 100_000, None);
    let found = unique.distribution(KEY).unwrap().distinct();
    assert!(found > 50_000.0, "{found}");
    let few = table(&numbers((0..1000).map(|n| n % 10)), 100_000, None);
    assert_eq!(few.distribution(KEY).unwrap().distinct(), 10.0);
}

#[test]
fn conditions_multiply_and_alternatives_add() {
    let table = table(&numbers((0..100).map(|n| n % 10)), 100, None);
    let share = |text: &str| table.selectivity(&condition(text), &"t".into());
    assert!((share("t.a = 1") - 0.1).abs() < 1e-9);
    assert!((share("1 = t.a") - 0.1).abs() < 1e-9);
    assert!((share("t.a = 1 OR t.a = 2") - 0.19).abs() < 1e-9);
    assert!((share("NOT (t.a = 1)") - 0.9).abs() < 1e-9);
    assert!((share("t.a BETWEEN 0 AND 4") - 0.5).abs() < 0.1);
    assert_eq!(share("t.unheard_of = 1"), 0.1);
    assert_eq!(share("TRUE"), 1.0);
    assert_eq!(share("FALSE"), 0.0);
}

#[test]
fn long_texts_are_not_kept() {
    let long: Vec<Value> =
        (0..4).map(|n| Value::from(format!("{n}{}", "x".repeat(5000)))).collect();
    let mut tally = Tally::default();
    for value in &long {
        tally.add(value.clone());
    }
    assert!(tally.histogram(4, None).to_json().len() < 1000);
    let share = table(&long, 4, None).share(KEY, &[Sarg::Equal(condition("$x"))]);
    assert!((share - 0.25).abs() < 1e-9);
}

#[test]
fn damaged_histograms_are_refused() {
    for histogram in [
        r#"{}"#,
        r#"{"bins": 7, "distinct": 1, "missing": 0, "null": 0, "once": 0, "sampled": 1, "values": 1}"#,
        r#"{"bins": [[1]], "distinct": 1, "missing": 0, "null": 0, "once": 0, "sampled": 1, "values": 1}"#,
        r#"{"bins": [[2, 1, 3, 1]], "distinct": 1, "missing": 0, "null": 0, "once": 0, "sampled": 1, "values": 1}"#,
        r#"{"bins": [], "distinct": -1, "missing": 0, "null": 0, "once": 0, "sampled": 1, "values": 1}"#,
    ] {
        let histogram = Value::parse(histogram.as_bytes()).unwrap();
        assert_eq!(nacre_cost::Distribution::from_value(&histogram, 10.0), None, "{histogram}");
    }
    assert!(Table::from_row(&Value::Null).is_none());
}

proptest! {
    /// The share of a range is exact to within two bins of a hundredth at each end.
    #[test]
    fn the_share_of_a_range_equals_the_counted_share(
        values in prop::collection::vec(-50_i64..50, 1..400),
        low in -60_i64..60,
        width in 0_i64..60,
        inclusive in any::<[bool; 2]>(),
    ) {
        let high = low + width;
        let table = table(&numbers(values.iter().copied()), values.len() as u64, None);
        let sargs = [
            Sarg::Above(literal(Value::Int(low)), inclusive[0]),
            Sarg::Below(literal(Value::Int(high)), inclusive[1]),
        ];
        let holds = |value: &&i64| {
            (**value > low || inclusive[0] && **value == low)
                && (**value < high || inclusive[1] && **value == high)
        };
        let count = values.iter().filter(holds).count() as f64;
        let share = table.share(KEY, &sargs);
        let depth = (values.len() as f64 / 100.0).ceil();
        let off = (share * values.len() as f64 - count).abs();
        prop_assert!(off <= 4.0 * depth + 0.5, "{share} of {} for {count}", values.len());
    }

    /// A share is always between 0 and 1, because each document has one value.
    #[test]
    fn shares_are_between_zero_and_one(
        values in prop::collection::vec(
            prop_oneof![
                Just(Value::Missing), Just(Value::Null), any::<bool>().prop_map(Value::from),
                any::<i64>().prop_map(Value::Int), any::<f64>().prop_map(Value::number),
                "[a-c]{0,3}".prop_map(Value::from),
            ],
            1..60,
        ),
        bound in prop_oneof![any::<i64>().prop_map(Value::Int), any::<f64>().prop_map(Value::number), "[a-c]{0,3}".prop_map(Value::from)],
        resolution in prop::option::of(-1.0_f64..200.0),
        more in 0_u64..1000,
    ) {
        let table = table(&values, values.len() as u64 + more, resolution);
        let bound = literal(bound);
        for sargs in [
            vec![Sarg::Equal(bound.clone())],
            vec![Sarg::Above(bound.clone(), true)],
            vec![Sarg::Below(bound.clone(), false)],
            vec![Sarg::Like(bound.clone(), None)],
            vec![Sarg::Above(bound.clone(), true), Sarg::Below(bound.clone(), true)],
            vec![Sarg::Below(bound.clone(), true), Sarg::Above(condition("$x"), true)],
            vec![Sarg::In(Expr::Array(vec![bound.clone(), bound.clone()]))],
            vec![Sarg::In(bound.clone())],
            vec![],
        ] {
            let share = table.share(KEY, &sargs);
            prop_assert!((0.0..=1.0 + 1e-9).contains(&share), "{share} for {sargs:?}");
        }
    }
}
