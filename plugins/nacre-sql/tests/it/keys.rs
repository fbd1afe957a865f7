//! Keys have the order of their values, and decode to the values.

use nacre_sql::{Value, key};
use proptest::prelude::*;

fn scalar() -> impl Strategy<Value = Value> {
    let near_limit = (0i64..2000).prop_map(|below| Value::Int(i64::MAX - below));
    let near_double = (-600i64..600).prop_map(|off| Value::Int(9_007_199_254_740_992 * 8 + off));
    prop_oneof![
        Just(Value::Missing),
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        (-3i64..4).prop_map(Value::Int),
        any::<i64>().prop_map(Value::Int),
        near_limit,
        near_double,
        any::<f64>().prop_map(Value::Float),
        (-3i32..4).prop_map(|half| Value::Float(f64::from(half) / 2.0)),
        "[ab\u{0}é]{0,3}".prop_map(Value::from),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(3, 12, 3, |inner| {
        let present = inner.prop_filter("nothing is in an array", |value| !value.is_missing());
        prop_oneof![
            prop::collection::vec(present.clone(), 0..3).prop_map(Value::array),
            prop::collection::vec(("[ab]{0,2}", present), 0..3).prop_map(Value::object),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn keys_compare_as_their_values_collate(a in value(), b in value(), descending: bool) {
        let (mut left, mut right) = (Vec::new(), Vec::new());
        key::encode(&a, descending, &mut left);
        key::encode(&b, descending, &mut right);
        let wanted = if descending { b.collate(&a) } else { a.collate(&b) };
        prop_assert_eq!(left.cmp(&right), wanted);
    }

    #[test]
    fn no_key_is_a_prefix_of_another(a in value(), b in value(), descending: bool) {
        let (mut left, mut right) = (Vec::new(), Vec::new());
        key::encode(&a, descending, &mut left);
        key::encode(&b, descending, &mut right);
        prop_assert!(left == right || !right.starts_with(&left));
        prop_assert!(left[0] != 0 && left[0] != 0xFF);
    }

    #[test]
    fn keys_decode_to_their_values(values in prop::collection::vec((value(), any::<bool>()), 0..4)) {
        let mut bytes = Vec::new();
        for (value, descending) in &values {
            key::encode(value, *descending, &mut bytes);
        }
        let (mut rest, mut whole) = (bytes.as_slice(), bytes.as_slice());
        for (value, descending) in &values {
            let encoding = key::split(&mut whole, *descending).unwrap();
            prop_assert_eq!(key::decode(&mut &*encoding, *descending), Some(value.clone()));
            prop_assert_eq!(key::is_known(encoding, *descending), value.is_known());
            prop_assert_eq!(key::decode(&mut rest, *descending), Some(value.clone()));
            prop_assert_eq!(rest, whole);
        }
        prop_assert!(rest.is_empty());
    }

    #[test]
    fn arbitrary_bytes_never_panic_as_keys(bytes: Vec<u8>, descending: bool) {
        let decoded = key::decode(&mut bytes.as_slice(), descending);
        let encoding = key::split(&mut bytes.as_slice(), descending);
        prop_assert!(decoded.is_none() || encoding.is_some());
    }

    #[test]
    fn collation_is_a_total_order(a in value(), b in value(), c in value()) {
        prop_assert_eq!(a.collate(&b), b.collate(&a).reverse());
        if a <= b && b <= c {
            prop_assert!(a <= c);
        }
    }

    #[test]
    fn json_text_is_read_as_it_was_written(a in value()) {
        let text = a.to_json();
        // Numbers that JSON lacks are written as strings.
        if !text.contains("Infinity") && !text.contains("NaN") {
            prop_assert_eq!(Value::parse(text.as_bytes()).unwrap().to_json(), text);
        }
    }
}

#[test]
fn deeply_nested_bytes_are_refused_as_key() {
    let bytes = vec![7u8; 100_000];
    assert_eq!(key::decode(&mut bytes.as_slice(), false), None);
    assert_eq!(key::split(&mut bytes.as_slice(), false), None);
}
