//! Values of the language: JSON, and MISSING for absent values.
//!
//! Cloning is cheap: strings, arrays and objects are shared. Objects keep the order in which their fields were
//! written. Integers have 64 bits; arithmetic that overflows continues in doubles.
//!
//! Collation ([`Value::collate`]): MISSING < NULL < FALSE < TRUE < numbers < strings (by bytes) < arrays (element by
//! element, then length) < objects (count of fields first, then names in order, each with its value).

use foldhash::fast::FixedState;
use indexmap::IndexMap;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use std::cmp::Ordering;
use std::fmt::{self, Write};
use std::sync::Arc;

/// A shared name or string.
pub type Name = Arc<str>;

/// The fields of an object, in the order they were written.
pub type Object = IndexMap<Name, Value, FixedState>;

/// A value of the language.
#[derive(Clone, Debug, Default)]
pub enum Value {
    /// An absent field, element or variable.
    #[default]
    Missing,
    /// JSON's null; also the result of operations on wrong types.
    Null,
    /// TRUE or FALSE.
    Bool(bool),
    /// An integer that fits into 64 bits.
    Int(i64),
    /// Every other number.
    Float(f64),
    /// Text.
    String(Name),
    /// An array; its elements are never MISSING.
    Array(Arc<Vec<Value>>),
    /// An object; its fields are never MISSING.
    Object(Arc<Object>),
}

/// Maximum nesting of JSON that is read; deeper values must not be written.
pub const DEPTH_MAX: usize = 127;

/// The smallest number that is written with an exponent.
const EXPONENT_FROM: f64 = 1e21;

impl Value {
    /// Creates a string.
    pub fn string(text: impl Into<Name>) -> Value {
        Value::String(text.into())
    }

    /// Creates an array; MISSING elements become NULL.
    pub fn array(mut elements: Vec<Value>) -> Value {
        for element in &mut elements {
            if element.is_missing() {
                *element = Value::Null;
            }
        }
        Value::Array(Arc::new(elements))
    }

    /// Creates an object; MISSING fields are omitted.
    pub fn object<N: Into<Name>>(fields: impl IntoIterator<Item = (N, Value)>) -> Value {
        let fields = fields.into_iter().filter(|(_, value)| !value.is_missing());
        Value::Object(Arc::new(fields.map(|(name, value)| (name.into(), value)).collect()))
    }

    /// Creates a number, as an integer if it is exactly one.
    pub fn number(number: f64) -> Value {
        let integral = number.fract() == 0.0 && number.abs() < 9_007_199_254_740_992.0;
        if integral && !(number == 0.0 && number.is_sign_negative()) {
            Value::Int(number as i64)
        } else {
            Value::Float(number)
        }
    }

    /// Reads JSON text.
    ///
    /// # Errors
    /// The parser's message if `json` is not valid JSON, or nests deeper than 127.
    pub fn parse(json: &[u8]) -> Result<Value, String> {
        serde_json::from_slice(json).map_err(|error| error.to_string())
    }

    /// Returns true if the value is MISSING.
    pub fn is_missing(&self) -> bool {
        matches!(self, Value::Missing)
    }

    /// Returns true if the value is neither MISSING nor NULL.
    pub fn is_known(&self) -> bool {
        !matches!(self, Value::Missing | Value::Null)
    }

    /// Returns the number as a double, if it is a number.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Value::Int(number) => Some(*number as f64),
            Value::Float(number) => Some(*number),
            _ => None,
        }
    }

    /// Returns the number as an integer, if it is a number without fraction within 64 bits.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Value::Int(number) => Some(*number),
            Value::Float(number) if number.fract() == 0.0 && number.abs() < 9.2e18 => {
                Some(*number as i64)
            }
            _ => None,
        }
    }

    /// Returns the text, if it is a string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the elements, if it is an array.
    pub fn as_array(&self) -> Option<&[Value]> {
        match self {
            Value::Array(elements) => Some(elements),
            _ => None,
        }
    }

    /// Returns the fields, if it is an object.
    pub fn as_object(&self) -> Option<&Object> {
        match self {
            Value::Object(fields) => Some(fields),
            _ => None,
        }
    }

    /// Returns the field `name` of an object; MISSING if the field does not exist, or the value is not an object.
    pub fn field(&self, name: &str) -> Value {
        self.as_object().and_then(|fields| fields.get(name)).cloned().unwrap_or_default()
    }

    /// Returns the element at `index`, counted from the end if negative; MISSING if it does not exist.
    pub fn element(&self, index: i64) -> Value {
        let Some(elements) = self.as_array() else { return Value::Missing };
        position(index, elements.len()).map(|at| elements[at].clone()).unwrap_or_default()
    }

    /// Returns true if a condition with this value holds: TRUE, a number other than 0 and NaN, or a string, array or
    /// object that is not empty.
    pub fn truth(&self) -> bool {
        match self {
            Value::Missing | Value::Null => false,
            Value::Bool(truth) => *truth,
            Value::Int(number) => *number != 0,
            Value::Float(number) => *number != 0.0 && !number.is_nan(),
            Value::String(text) => !text.is_empty(),
            Value::Array(elements) => !elements.is_empty(),
            Value::Object(fields) => !fields.is_empty(),
        }
    }

    /// Returns the position of the value's type in the collation.
    pub fn rank(&self) -> u8 {
        match self {
            Value::Missing => 0,
            Value::Null => 1,
            Value::Bool(_) => 2,
            Value::Int(_) | Value::Float(_) => 3,
            Value::String(_) => 4,
            Value::Array(_) => 5,
            Value::Object(_) => 6,
        }
    }

    /// Returns the name of the type, as in `TYPE()`.
    pub fn type_name(&self) -> &'static str {
        ["missing", "null", "boolean", "number", "string", "array", "object"][self.rank() as usize]
    }

    /// Compares two values in the total order that the module's header describes.
    pub fn collate(&self, other: &Value) -> Ordering {
        match (self, other) {
            (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
            (Value::Int(a), Value::Int(b)) => a.cmp(b),
            (Value::Int(a), Value::Float(b)) => compare_int(*a, *b),
            (Value::Float(a), Value::Int(b)) => compare_int(*b, *a).reverse(),
            (Value::Float(a), Value::Float(b)) => compare_floats(*a, *b),
            (Value::String(a), Value::String(b)) => a.as_bytes().cmp(b.as_bytes()),
            (Value::Array(a), Value::Array(b)) => collate_arrays(a, b),
            (Value::Object(a), Value::Object(b)) => collate_objects(a, b),
            _ => self.rank().cmp(&other.rank()),
        }
    }

    /// Returns `self = other` in four-valued logic: MISSING or NULL if either value is, or an element at the same
    /// place is.
    pub fn equals(&self, other: &Value) -> Value {
        match (self, other) {
            (Value::Missing, _) | (_, Value::Missing) => Value::Missing,
            (Value::Null, _) | (_, Value::Null) => Value::Null,
            (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
                all_equal(a.iter().zip(b.iter()).map(|(a, b)| a.equals(b)))
            }
            (Value::Object(a), Value::Object(b)) if a.len() == b.len() => {
                all_equal(a.iter().map(|(name, a)| match b.get(name) {
                    Some(b) => a.equals(b),
                    None => Value::Bool(false),
                }))
            }
            _ => Value::Bool(self.rank() == other.rank() && self.collate(other).is_eq()),
        }
    }

    /// Compares two values for `<` and similar operators.
    ///
    /// # Errors
    /// The result of the operator if it cannot compare: MISSING if either value is MISSING, otherwise NULL if either
    /// is NULL.
    pub fn compare(&self, other: &Value) -> Result<Ordering, Value> {
        match (self, other) {
            (Value::Missing, _) | (_, Value::Missing) => Err(Value::Missing),
            (Value::Null, _) | (_, Value::Null) => Err(Value::Null),
            _ => Ok(self.collate(other)),
        }
    }

    /// Returns true if arrays and objects nest more than `levels` deep.
    pub fn nests_deeper_than(&self, levels: usize) -> bool {
        let Some(inner) = levels.checked_sub(1) else {
            return matches!(self, Value::Array(_) | Value::Object(_));
        };
        match self {
            Value::Array(elements) => {
                elements.iter().any(|element| element.nests_deeper_than(inner))
            }
            Value::Object(fields) => fields.values().any(|value| value.nests_deeper_than(inner)),
            _ => false,
        }
    }

    /// Returns the approximate memory of the value in bytes.
    pub fn size_bytes(&self) -> usize {
        let inner = match self {
            Value::String(text) => text.len() + 16,
            Value::Array(elements) => elements.iter().map(Value::size_bytes).sum::<usize>() + 40,
            Value::Object(fields) => {
                let fields =
                    fields.iter().map(|(name, value)| name.len() + 40 + value.size_bytes());
                fields.sum::<usize>() + 64
            }
            _ => 0,
        };
        inner + size_of::<Value>()
    }

    /// Appends the value as JSON text; MISSING as null.
    pub fn write_json(&self, out: &mut String) {
        match self {
            Value::Missing | Value::Null => out.push_str("null"),
            Value::Bool(truth) => out.push_str(if *truth { "true" } else { "false" }),
            Value::Int(number) => write!(out, "{number}").expect("strings take all text"),
            Value::Float(number) => write_float(*number, out),
            Value::String(text) => write_string(text, out),
            Value::Array(elements) => {
                out.push('[');
                for (index, element) in elements.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    element.write_json(out);
                }
                out.push(']');
            }
            Value::Object(fields) => {
                out.push('{');
                for (index, (name, value)) in fields.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    write_string(name, out);
                    out.push(':');
                    value.write_json(out);
                }
                out.push('}');
            }
        }
    }

    /// Returns the value with the fields of all objects sorted by name.
    #[must_use]
    pub fn with_sorted_names(&self) -> Value {
        match self {
            Value::Array(elements) => {
                Value::Array(Arc::new(elements.iter().map(Value::with_sorted_names).collect()))
            }
            Value::Object(fields) => {
                let fields = sorted(fields).into_iter();
                let fields =
                    fields.map(|(name, value)| (name.clone(), value.with_sorted_names())).collect();
                Value::Object(Arc::new(fields))
            }
            scalar => scalar.clone(),
        }
    }

    /// Returns the value as JSON text, with the fields of all objects sorted by name.
    pub fn to_sorted_json(&self) -> String {
        self.with_sorted_names().to_json()
    }

    /// Returns the value as JSON text.
    pub fn to_json(&self) -> String {
        let mut out = String::new();
        self.write_json(&mut out);
        out
    }
}

/// Returns the position that `index` means in an array of `length`, counted from the end if negative.
pub fn position(index: i64, length: usize) -> Option<usize> {
    let at = if index < 0 { index.checked_add(i64::try_from(length).ok()?)? } else { index };
    usize::try_from(at).ok().filter(|at| *at < length)
}

/// Appends `text` as a JSON string with quotes.
pub fn write_string(text: &str, out: &mut String) {
    out.push('"');
    let mut clean_from = 0;
    for (at, byte) in text.bytes().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.push_str(&text[clean_from..at]);
        clean_from = at + 1;
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            _ => write!(out, "\\u{byte:04x}").expect("strings take all text"),
        }
    }
    out.push_str(&text[clean_from..]);
    out.push('"');
}

fn write_float(number: f64, out: &mut String) {
    let magnitude = number.abs();
    if number.is_nan() {
        out.push_str("\"NaN\"");
    } else if number.is_infinite() {
        out.push_str(if number > 0.0 { "\"+Infinity\"" } else { "\"-Infinity\"" });
    } else if magnitude != 0.0 && !(1e-6..EXPONENT_FROM).contains(&magnitude) {
        write!(out, "{number:e}").expect("strings take all text");
    } else {
        write!(out, "{number}").expect("strings take all text");
    }
}

fn all_equal(results: impl Iterator<Item = Value>) -> Value {
    let mut answer = Value::Bool(true);
    for result in results {
        match result {
            Value::Bool(false) => return result,
            Value::Missing => answer = Value::Missing,
            Value::Null if !answer.is_missing() => answer = Value::Null,
            _ => {}
        }
    }
    answer
}

fn compare_floats(a: f64, b: f64) -> Ordering {
    // NaN is the smallest number, and equal to itself.
    a.partial_cmp(&b).unwrap_or_else(|| b.is_nan().cmp(&a.is_nan()))
}

fn compare_int(a: i64, b: f64) -> Ordering {
    if b.is_nan() {
        return Ordering::Greater;
    }
    // Rounding preserves order, so only equal rounded values need a second comparison; the double is then an
    // integer.
    compare_floats(a as f64, b).then_with(|| i128::from(a).cmp(&(b as i128)))
}

fn collate_arrays(a: &[Value], b: &[Value]) -> Ordering {
    let differing = a.iter().zip(b).map(|(a, b)| a.collate(b)).find(|order| order.is_ne());
    differing.unwrap_or_else(|| a.len().cmp(&b.len()))
}

fn collate_objects(a: &Object, b: &Object) -> Ordering {
    a.len().cmp(&b.len()).then_with(|| {
        for ((name, value), (other_name, other)) in sorted(a).into_iter().zip(sorted(b)) {
            let order =
                name.as_bytes().cmp(other_name.as_bytes()).then_with(|| value.collate(other));
            if order.is_ne() {
                return order;
            }
        }
        Ordering::Equal
    })
}

/// Returns the fields of an object sorted by name, as in collation and keys.
pub fn sorted(fields: &Object) -> Vec<(&Name, &Value)> {
    let mut fields: Vec<_> = fields.iter().collect();
    fields.sort_unstable_by(|a, b| a.0.cmp(b.0));
    fields
}

/// Values are equal if they collate as equal, even if one is an integer and the other a double.
impl PartialEq for Value {
    fn eq(&self, other: &Value) -> bool {
        self.collate(other).is_eq()
    }
}

impl Eq for Value {}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Value) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Value {
    fn cmp(&self, other: &Value) -> Ordering {
        self.collate(other)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_missing() { "missing" } else { "" })?;
        if self.is_missing() { Ok(()) } else { f.write_str(&self.to_json()) }
    }
}

impl From<bool> for Value {
    fn from(truth: bool) -> Value {
        Value::Bool(truth)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Value {
        Value::Int(number)
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Value {
        Value::number(number)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::string(text)
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::string(text)
    }
}

impl From<Name> for Value {
    fn from(text: Name) -> Value {
        Value::String(text)
    }
}

impl From<Vec<Value>> for Value {
    fn from(elements: Vec<Value>) -> Value {
        Value::array(elements)
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, truth: bool) -> Result<Value, E> {
        Ok(Value::Bool(truth))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Int(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(i64::try_from(number).map_or(Value::Float(number as f64), Value::Int))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(Value::Float(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::string(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(element) = elements.next_element()? {
            array.push(element);
        }
        Ok(Value::Array(Arc::new(array)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut object = Object::default();
        while let Some((name, value)) = fields.next_entry::<String, Value>()? {
            object.insert(name.into(), value);
        }
        Ok(Value::Object(Arc::new(object)))
    }
}
