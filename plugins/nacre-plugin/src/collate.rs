//! Collation: encodes JSON values as bytes that compare as the values do.
//!
//! null < false < true < numbers < strings < arrays < objects. Numbers compare as IEEE doubles (as in
//! JavaScript), strings by the root collation of Unicode (CLDR, tertiary), arrays element by element, objects
//! pair by pair in the order in which they are written.
//!
//! ```text
//! null    10
//! false   11
//! true    12
//! number  20, then 8 bytes: the double, big-endian, sign bit flipped (all bits flipped when negative)
//! string  30, sort key, 00
//! array   40, elements, 00
//! object  50, key (a string), value, …, 00
//! ```
//!
//! Encodings are self-delimiting, and no encoding is a prefix of another. Therefore bytes may be appended (a
//! document ID), a range of values is a range of bytes, and the first elements of an array are a prefix that
//! can be cut off.
//!
//! Strings that the collation treats as equal ("a" and "a\u0001") have equal bytes, because they are one key
//! to a view. Sort keys may change with a new version of the Unicode data: code that stores them must store
//! [`VERSION`] too.

mod ascii;

use icu_collator::{CollatorBorrowed, options::CollatorOptions};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// Identifies the encoding and its Unicode data; state built under another version must be rebuilt.
pub const VERSION: &str = "1/icu4x-2.4";

const END: u8 = 0x00;
const NULL: u8 = 0x10;
const FALSE: u8 = 0x11;
const TRUE: u8 = 0x12;
const NUMBER: u8 = 0x20;
const STRING: u8 = 0x30;
const ARRAY: u8 = 0x40;
const OBJECT: u8 = 0x50;

/// Appends the encoding of the JSON text `json` to `out`.
///
/// # Errors
/// The parser's message if `json` is not one JSON value, nests deeper than 127, or has a lone surrogate. `out`
/// may have grown in that case.
pub fn encode(json: &str, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    Encoder(out).deserialize(&mut deserializer)?;
    deserializer.end()
}

/// Returns the number of bytes of the value at the start of `bytes`; `None` if they are not an encoding.
pub fn value_bytes(bytes: &[u8]) -> Option<usize> {
    // Counts nesting instead of recursing, because the bytes may be untrusted.
    let mut depth = 0usize;
    let mut at = 0;
    loop {
        at += match *bytes.get(at)? {
            NULL | FALSE | TRUE => 1,
            NUMBER => 9,
            STRING => 1 + bytes[at..].iter().position(|&byte| byte == END)?,
            ARRAY | OBJECT => {
                depth += 1;
                1
            }
            END if depth > 0 => {
                depth -= 1;
                1
            }
            _ => return None,
        };
        if depth == 0 {
            return (at <= bytes.len()).then_some(at);
        }
    }
}

/// Returns the number of bytes up to the end of the first `level` elements of the array at the start of
/// `bytes`.
///
/// Returns the size of the whole value if it is not an array, or is a shorter one. Two values belong to the
/// same group at this level if and only if these bytes are equal. Returns `None` if `bytes` are not an
/// encoding.
pub fn group_bytes(bytes: &[u8], level: usize) -> Option<usize> {
    if bytes.first() != Some(&ARRAY) {
        return value_bytes(bytes);
    }
    let mut at = 1;
    for _ in 0..level {
        if bytes.get(at) == Some(&END) {
            return Some(at + 1);
        }
        at += value_bytes(bytes.get(at..)?)?;
    }
    Some(at)
}

/// Returns the collator of the encoding, for code that must agree with it.
pub fn collator() -> &'static CollatorBorrowed<'static> {
    // Uses the root data only, which keeps the tables of all languages out of the component.
    static COLLATOR: CollatorBorrowed<'static> =
        CollatorBorrowed::new_root(CollatorOptions::default());
    &COLLATOR
}

fn encode_number(number: f64, out: &mut Vec<u8>) {
    // -0 and 0 are the same key.
    let bits = if number == 0.0 { 0 } else { number.to_bits() };
    let ordered = if bits >> 63 == 1 { !bits } else { bits ^ (1 << 63) };
    out.push(NUMBER);
    out.extend_from_slice(&ordered.to_be_bytes());
}

fn encode_string(text: &str, out: &mut Vec<u8>) {
    out.push(STRING);
    if !ascii::write_sort_key(text, out) {
        let Ok(()) = collator().write_sort_key_to(text, out);
    }
    out.push(END);
}

/// Writes each value when the parser reads it, so that no tree of values is built.
struct Encoder<'a>(&'a mut Vec<u8>);

impl<'de> DeserializeSeed<'de> for Encoder<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Encoder<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.0.push(NULL);
        Ok(())
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.0.push(if value { TRUE } else { FALSE });
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        encode_number(value as f64, self.0);
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        encode_number(value as f64, self.0);
        Ok(())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        if value.is_nan() {
            return Err(E::custom("NaN is not a JSON number"));
        }
        encode_number(value, self.0);
        Ok(())
    }

    fn visit_str<E>(self, value: &str) -> Result<(), E> {
        encode_string(value, self.0);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        self.0.push(ARRAY);
        while elements.next_element_seed(Encoder(self.0))?.is_some() {}
        self.0.push(END);
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<(), A::Error> {
        self.0.push(OBJECT);
        while pairs.next_key_seed(Encoder(self.0))?.is_some() {
            pairs.next_value_seed(Encoder(self.0))?;
        }
        self.0.push(END);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use std::cmp::Ordering;

    fn encoded(value: &Value) -> Vec<u8> {
        let mut out = Vec::new();
        encode(&value.to_string(), &mut out).unwrap();
        out
    }

    fn rank(value: &Value) -> u8 {
        match value {
            Value::Null => 0,
            Value::Bool(false) => 1,
            Value::Bool(true) => 2,
            Value::Number(_) => 3,
            Value::String(_) => 4,
            Value::Array(_) => 5,
            Value::Object(_) => 6,
        }
    }

    /// A direct implementation of the rules, against which the encoding is tested.
    fn compare(a: &Value, b: &Value) -> Ordering {
        match (a, b) {
            (Value::Number(a), Value::Number(b)) => {
                a.as_f64().unwrap().partial_cmp(&b.as_f64().unwrap()).unwrap()
            }
            (Value::String(a), Value::String(b)) => collator().compare(a, b),
            (Value::Array(a), Value::Array(b)) => {
                let unequal = a.iter().zip(b).map(|(a, b)| compare(a, b)).find(|o| o.is_ne());
                unequal.unwrap_or(a.len().cmp(&b.len()))
            }
            (Value::Object(a), Value::Object(b)) => {
                let unequal = a
                    .iter()
                    .zip(b)
                    .map(|((ka, va), (kb, vb))| collator().compare(ka, kb).then(compare(va, vb)))
                    .find(|o| o.is_ne());
                unequal.unwrap_or(a.len().cmp(&b.len()))
            }
            _ => rank(a).cmp(&rank(b)),
        }
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-3i64..3).prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_filter_map("finite", |n| n.is_finite().then(|| Value::from(n))),
            "[aAbBéß z0\u{0}\u{1}-]{0,4}".prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 12, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec(("[aAb]{0,2}", inner), 0..3)
                    .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
            ]
        })
    }

    #[test]
    fn values_are_ordered_by_the_collation_rules() {
        let ordered = [
            json!(null),
            json!(false),
            json!(true),
            json!(-1.5),
            json!(0),
            json!(9),
            json!(10),
            json!(""),
            json!("-"),
            json!("1"),
            json!("a"),
            json!("A"),
            json!("ä"),
            json!("aa"),
            json!("b"),
            json!("B"),
            json!([]),
            json!([null]),
            json!(["a"]),
            json!(["a", 1]),
            json!(["b"]),
            json!({}),
            json!({"a": 1}),
            json!({"a": 2}),
            json!({"b": 1}),
        ];
        for pair in ordered.windows(2) {
            assert!(encoded(&pair[0]) < encoded(&pair[1]), "{} < {}", pair[0], pair[1]);
        }
        assert_eq!(encoded(&json!(1)), encoded(&json!(1.0)));
        assert_eq!(encoded(&json!(0.0)), encoded(&json!(-0.0)));
    }

    #[test]
    fn groups_are_the_first_elements_of_an_array() {
        let value = encoded(&json!(["a", [1, {"k": "v"}], true]));
        let lengths: Vec<_> = (0..5).map(|level| group_bytes(&value, level).unwrap()).collect();
        assert_eq!(lengths[0], 1);
        assert_eq!(
            lengths[3],
            value.len() - 1,
            "three elements, the end of the array not included"
        );
        assert_eq!(lengths[4], value.len(), "a shorter array is a group of its own");
        let sibling = encoded(&json!(["a", [1, {"k": "v"}], false]));
        assert_eq!(value[..lengths[2]], sibling[..lengths[2]]);
        assert_eq!(group_bytes(&encoded(&json!("text")), 1), Some(encoded(&json!("text")).len()));
    }

    #[test]
    fn text_that_is_not_one_value_is_refused() {
        for text in ["", "1 2", "[", r#""\ud800""#, &"[".repeat(100_000)] {
            assert!(encode(text, &mut Vec::new()).is_err());
        }
    }

    proptest! {
        #[test]
        fn bytes_compare_like_their_values(a in any_value(), b in any_value()) {
            prop_assert_eq!(encoded(&a).cmp(&encoded(&b)), compare(&a, &b));
        }

        #[test]
        fn every_encoded_value_is_self_delimiting(value in any_value(), tail in prop::collection::vec(any::<u8>(), 0..4)) {
            let mut bytes = encoded(&value);
            let length = bytes.len();
            bytes.extend(tail);
            prop_assert_eq!(value_bytes(&bytes), Some(length));
        }

        #[test]
        fn foreign_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..40), level in 0usize..4) {
            let _ = value_bytes(&bytes);
            let _ = group_bytes(&bytes, level);
        }
    }
}
