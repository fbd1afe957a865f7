//! JSON in columns: each path of a segment has one typed array for each kind of its values.
//!
//! ```text
//! {"a": 1, "b": [{"c": "x"}]}     root ─ a: ints [1, 2, ·]   kinds {int, missing}
//! {"a": 2}                             └ b: items ─ offsets [0, 1, 1, 2], element ─ c: strings ["x", ·]
//! {"b": [{}]}
//! ```
//!
//! All columns except those below `items` have one entry per row. *Invariant:* an array has a value exactly where the row has
//! that kind; the kind of each row is known, so that MISSING and NULL are distinguished; no value is converted to another kind.
//!
//! A value that is not shredded (too deep, or beyond [`COLUMNS_MAX`] paths) makes its parent [`Column::is_partial`]: readers of
//! such values read the text of the document.

use datafusion::arrow::array::{
    ArrayRef, BooleanBuilder, Float64Builder, Int64Builder, StringViewBuilder, UInt32Array,
};
use nacre_sql::{Name, Value};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// Maximum number of columns of a segment; other fields are read from the document's text.
pub const COLUMNS_MAX: usize = 1000;
/// Maximum depth of objects and arrays in columns.
const DEPTH_MAX: usize = 8;

/// The kind of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// The field does not exist.
    Missing,
    /// JSON's null.
    Null,
    /// TRUE or FALSE.
    Bool,
    /// A 64-bit integer.
    Int,
    /// Any other number.
    Float,
    /// Text.
    String,
    /// Array.
    Array,
    /// Object.
    Object,
}

impl Kind {
    fn of(value: &Value) -> Kind {
        match value {
            Value::Missing => Kind::Missing,
            Value::Null => Kind::Null,
            Value::Bool(_) => Kind::Bool,
            Value::Int(_) => Kind::Int,
            Value::Float(_) => Kind::Float,
            Value::String(_) => Kind::String,
            Value::Array(_) => Kind::Array,
            Value::Object(_) => Kind::Object,
        }
    }
}

/// A set of kinds, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds(pub u8);

impl Kinds {
    /// Returns the set of the given kinds.
    pub fn of(kinds: &[Kind]) -> Kinds {
        Kinds(kinds.iter().fold(0, |bits, kind| bits | 1 << *kind as u8))
    }

    /// Returns true if the kind is in the set.
    pub fn has(self, kind: Kind) -> bool {
        self.0 & 1 << kind as u8 != 0
    }

    /// Returns the union of both sets.
    #[must_use]
    pub fn with(self, other: Kinds) -> Kinds {
        Kinds(self.0 | other.0)
    }

    /// Returns the set without MISSING and NULL.
    #[must_use]
    pub fn known(self) -> Kinds {
        Kinds(self.0 & !0b11)
    }
}

/// Elements of arrays: those of row `r` are at `offsets[r]..offsets[r + 1]`.
#[derive(Clone, Debug)]
pub struct Items {
    /// The offsets, one more than the number of rows.
    pub offsets: Vec<u32>,
    /// The elements of all rows, one after the other.
    pub element: Box<Column>,
    parents: OnceLock<UInt32Array>,
}

impl Items {
    /// Returns the row of each element.
    pub fn parents(&self) -> &UInt32Array {
        self.parents.get_or_init(|| {
            let counts = self.offsets.windows(2).map(|pair| (pair[1] - pair[0]) as usize);
            let rows =
                (0_u32..).zip(counts).flat_map(|(row, count)| std::iter::repeat_n(row, count));
            rows.collect::<Vec<u32>>().into()
        })
    }
}

/// The values of one path.
#[derive(Clone, Debug)]
pub struct Column {
    /// Number of entries.
    pub rows: usize,
    /// Kinds that occur.
    pub kinds: Kinds,
    /// Minimum and maximum integer.
    pub range: Option<(i64, i64)>,
    /// Typed arrays of the kinds that occur, each with `rows` entries.
    pub bools: Option<ArrayRef>,
    /// Integers.
    pub ints: Option<ArrayRef>,
    /// Other numbers.
    pub floats: Option<ArrayRef>,
    /// Texts.
    pub strings: Option<ArrayRef>,
    /// Fields of objects.
    pub fields: HashMap<Name, Column>,
    /// Elements of arrays.
    pub items: Option<Items>,
    /// True if some values below have no column.
    pub is_partial: bool,
}

/// The column at a path.
pub enum Found<'a> {
    /// The column.
    Column(&'a Column),
    /// No row has the path.
    Nowhere,
    /// Only the text of the documents has the answer.
    Unknown,
}

impl Column {
    /// Finds the column of a path of fields.
    pub fn find(&self, path: &[Name]) -> Found<'_> {
        let mut at = self;
        for name in path {
            match at.fields.get(name) {
                Some(field) => at = field,
                None if at.is_partial => return Found::Unknown,
                None => return Found::Nowhere,
            }
        }
        Found::Column(at)
    }
}

/// The number of further columns that a segment may have.
struct Budget(usize);

impl Budget {
    fn take(&mut self) -> bool {
        let has_room = self.0 > 0;
        self.0 = self.0.saturating_sub(1);
        has_room
    }
}

/// Converts documents to the columns of a segment.
pub fn shred(documents: &[Value]) -> Column {
    let mut budget = Budget(COLUMNS_MAX);
    let mut builder = Builder::default();
    for document in documents {
        builder.push(document, 0, &mut budget);
    }
    builder.finish(documents.len())
}

#[derive(Default)]
struct Builder {
    rows: usize,
    kinds: Kinds,
    range: Option<(i64, i64)>,
    bools: Option<BooleanBuilder>,
    ints: Option<Int64Builder>,
    floats: Option<Float64Builder>,
    strings: Option<StringViewBuilder>,
    fields: HashMap<Name, Builder>,
    items: Option<(Vec<u32>, Box<Builder>)>,
    is_partial: bool,
}

/// Finishes an array builder with `rows` entries, padded with nulls.
macro_rules! padded {
    ($builder:expr, $rows:expr) => {{
        let builder = $builder.get_or_insert_default();
        for _ in datafusion::arrow::array::ArrayBuilder::len(builder)..$rows {
            builder.append_null();
        }
        builder
    }};
}

impl Builder {
    fn push(&mut self, value: &Value, depth: usize, budget: &mut Budget) {
        match value {
            Value::Missing | Value::Null => {
                self.begin(Kind::of(value));
            }
            Value::Bool(truth) => self.push_bool(*truth),
            Value::Int(number) => self.push_int(*number),
            Value::Float(number) => self.push_float(*number),
            Value::String(text) => self.push_text(text),
            Value::Array(elements) => {
                let Some((offsets, builder)) = self.elements(depth, budget) else { return };
                elements.iter().for_each(|element| builder.push(element, depth + 1, budget));
                offsets.push(builder.rows as u32);
            }
            Value::Object(fields) => {
                let rows = self.begin(Kind::Object);
                if depth >= DEPTH_MAX {
                    self.is_partial = true;
                    return;
                }
                for (name, value) in fields.iter() {
                    if let Some(field) = self.field(name, rows, budget) {
                        field.push(value, depth + 1, budget);
                    }
                }
            }
        }
    }

    /// Begins a value; returns the number of those before it.
    fn begin(&mut self, kind: Kind) -> usize {
        self.kinds = self.kinds.with(Kinds::of(&[kind]));
        self.rows += 1;
        self.rows - 1
    }

    fn push_bool(&mut self, truth: bool) {
        let rows = self.begin(Kind::Bool);
        padded!(self.bools, rows).append_value(truth);
    }

    fn push_int(&mut self, number: i64) {
        let rows = self.begin(Kind::Int);
        let (low, high) = self.range.unwrap_or((number, number));
        self.range = Some((low.min(number), high.max(number)));
        padded!(self.ints, rows).append_value(number);
    }

    fn push_float(&mut self, number: f64) {
        let rows = self.begin(Kind::Float);
        padded!(self.floats, rows).append_value(number);
    }

    fn push_text(&mut self, text: &str) {
        let rows = self.begin(Kind::String);
        padded!(self.strings, rows).append_value(text);
    }

    /// Begins an array; returns the offsets and elements, or `None` if the array has no columns.
    fn elements(
        &mut self,
        depth: usize,
        budget: &mut Budget,
    ) -> Option<(&mut Vec<u32>, &mut Builder)> {
        let rows = self.begin(Kind::Array);
        if depth >= DEPTH_MAX || self.items.is_none() && !budget.take() {
            self.is_partial = true;
            return None;
        }
        let (offsets, builder) = self.items.get_or_insert_with(|| (vec![0], Box::default()));
        offsets.resize(rows + 1, builder.rows as u32);
        Some((offsets, &mut **builder))
    }

    /// Returns a field of the object in a row, which has no value yet; `None` if the field has no column.
    fn field(&mut self, name: &str, rows: usize, budget: &mut Budget) -> Option<&mut Builder> {
        if !self.fields.contains_key(name) {
            if !budget.take() {
                self.is_partial = true;
                return None;
            }
            self.fields.insert(name.into(), Builder::default());
        }
        let field = self.fields.get_mut(name).expect("it was just made");
        field.miss(rows);
        Some(field)
    }

    /// Adds MISSING up to a row.
    fn miss(&mut self, rows: usize) {
        if self.rows < rows {
            self.kinds = self.kinds.with(Kinds::of(&[Kind::Missing]));
            self.rows = rows;
        }
    }

    fn finish(mut self, rows: usize) -> Column {
        self.miss(rows);
        macro_rules! array {
            ($builder:ident) => {
                self.$builder.is_some().then(|| {
                    let builder = padded!(self.$builder, rows);
                    Arc::new(builder.finish()) as ArrayRef
                })
            };
        }
        let (bools, ints, floats, strings) =
            (array!(bools), array!(ints), array!(floats), array!(strings));
        let items = self.items.map(|(mut offsets, builder)| {
            let count = builder.rows;
            offsets.resize(rows + 1, count as u32);
            Items { offsets, element: Box::new(builder.finish(count)), parents: OnceLock::new() }
        });
        let fields = self.fields.into_iter();
        Column {
            rows,
            kinds: self.kinds,
            range: self.range,
            bools,
            ints,
            floats,
            strings,
            fields: fields.map(|(name, field)| (name, field.finish(rows))).collect(),
            items,
            is_partial: self.is_partial,
        }
    }
}

/// Converts the JSON texts of documents to the columns of a segment, without values in between.
///
/// # Errors
/// The parser's error, and an error for an object in which a name occurs twice.
pub fn shred_texts<'t>(texts: impl Iterator<Item = &'t str>) -> Result<Column, serde_json::Error> {
    let (mut budget, mut builder, mut count) = (Budget(COLUMNS_MAX), Builder::default(), 0);
    for text in texts {
        let mut parser = serde_json::Deserializer::from_str(text);
        let reader = Reader { builder: &mut builder, depth: 0, budget: &mut budget };
        reader.deserialize(&mut parser)?;
        parser.end()?;
        count += 1;
    }
    Ok(builder.finish(count))
}

/// Reads a value into a builder.
struct Reader<'b> {
    builder: &'b mut Builder,
    depth: usize,
    budget: &'b mut Budget,
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.builder.begin(Kind::Null);
        Ok(())
    }

    fn visit_bool<E>(self, truth: bool) -> Result<(), E> {
        self.builder.push_bool(truth);
        Ok(())
    }

    fn visit_i64<E>(self, number: i64) -> Result<(), E> {
        self.builder.push_int(number);
        Ok(())
    }

    fn visit_u64<E>(self, number: u64) -> Result<(), E> {
        match i64::try_from(number) {
            Ok(number) => self.builder.push_int(number),
            Err(_) => self.builder.push_float(number as f64),
        }
        Ok(())
    }

    fn visit_f64<E>(self, number: f64) -> Result<(), E> {
        self.builder.push_float(number);
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.builder.push_text(text);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        let Reader { builder, depth, budget } = self;
        let Some((offsets, builder)) = builder.elements(depth, budget) else {
            while elements.next_element::<Value>()?.is_some() {}
            return Ok(());
        };
        loop {
            let reader = Reader { builder: &mut *builder, depth: depth + 1, budget: &mut *budget };
            if elements.next_element_seed(reader)?.is_none() {
                break;
            }
        }
        offsets.push(builder.rows as u32);
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let Reader { builder, depth, budget } = self;
        let rows = builder.begin(Kind::Object);
        if depth >= DEPTH_MAX {
            builder.is_partial = true;
            while fields.next_entry::<Value, Value>()?.is_some() {}
            return Ok(());
        }
        loop {
            let name = FieldReader { builder: &mut *builder, rows, budget: &mut *budget };
            match fields.next_key_seed(name)? {
                None => return Ok(()),
                Some(None) => drop(fields.next_value::<Value>()?),
                Some(Some(builder)) => {
                    let reader = Reader { builder, depth: depth + 1, budget: &mut *budget };
                    fields.next_value_seed(reader)?;
                }
            }
        }
    }
}

/// Reads a name, and returns the builder of the field; `None` if the field has no column.
struct FieldReader<'b, 'c> {
    builder: &'b mut Builder,
    rows: usize,
    budget: &'c mut Budget,
}

impl<'de, 'b> DeserializeSeed<'de> for FieldReader<'b, '_> {
    type Value = Option<&'b mut Builder>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'b> Visitor<'_> for FieldReader<'b, '_> {
    type Value = Option<&'b mut Builder>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        match self.builder.field(name, self.rows, self.budget) {
            Some(field) if field.rows > self.rows => Err(E::custom("a name occurs twice")),
            field => Ok(field),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{Array, AsArray};
    use datafusion::arrow::datatypes::Int64Type;

    fn documents(texts: &[&str]) -> Vec<Value> {
        texts.iter().map(|text| Value::parse(text.as_bytes()).unwrap()).collect()
    }

    fn field<'a>(column: &'a Column, name: &str) -> &'a Column {
        match column.find(&[name.into()]) {
            Found::Column(found) => found,
            _ => panic!("no column {name}"),
        }
    }

    #[test]
    fn every_kind_of_a_path_has_a_column() {
        let root = shred(&documents(&[r#"{"a":1}"#, r#"{"a":"x"}"#, "{}", r#"{"a":null}"#]));
        let a = field(&root, "a");
        assert_eq!(a.kinds, Kinds::of(&[Kind::Int, Kind::String, Kind::Missing, Kind::Null]));
        let ints = a.ints.as_ref().unwrap().as_primitive::<Int64Type>();
        assert_eq!(ints.iter().collect::<Vec<_>>(), [Some(1), None, None, None]);
        let strings = a.strings.as_ref().unwrap().as_string_view();
        assert_eq!(strings.iter().collect::<Vec<_>>(), [None, Some("x"), None, None]);
        assert!(matches!(root.find(&["b".into()]), Found::Nowhere));
    }

    #[test]
    fn elements_of_arrays_are_one_column() {
        let root = shred(&documents(&[
            r#"{"l":[{"n":1},{"n":2}]}"#,
            "{}",
            r#"{"l":[]}"#,
            r#"{"l":[{},{"n":3}]}"#,
        ]));
        let items = field(&root, "l").items.as_ref().unwrap();
        assert_eq!(items.offsets, [0, 2, 2, 2, 4]);
        assert_eq!(items.parents().values().to_vec(), [0, 0, 3, 3]);
        let n = field(&items.element, "n");
        let ints = n.ints.as_ref().unwrap().as_primitive::<Int64Type>();
        assert_eq!(ints.iter().collect::<Vec<_>>(), [Some(1), Some(2), None, Some(3)]);
    }

    /// Returns the content of a column as text, with its fields in order.
    fn shown(column: &Column) -> String {
        let mut fields: Vec<_> = column.fields.iter().collect();
        fields.sort_by_key(|(name, _)| (*name).clone());
        let fields: Vec<String> =
            fields.iter().map(|(name, field)| format!("{name}: {}", shown(field))).collect();
        let items = column.items.as_ref();
        let items = items.map(|items| (items.offsets.clone(), shown(&items.element)));
        let Column { rows, kinds, range, bools, ints, floats, strings, is_partial, .. } = column;
        format!(
            "{rows} {kinds:?} {range:?} {bools:?} {ints:?} {floats:?} {strings:?} {is_partial} {fields:?} {items:?}"
        )
    }

    #[test]
    fn columns_of_texts_are_those_of_their_values() {
        let deep = format!("{}1{}", "[".repeat(20), "]".repeat(20));
        let wide: Vec<String> =
            (0..COLUMNS_MAX + 9).map(|at| format!("\"f{at}\":[{at}]")).collect();
        let wide = format!("{{{}}}", wide.join(","));
        let objects = format!("{}1{}", "{\"a\":".repeat(20), "}".repeat(20));
        let texts = [
            r#"{"a":1,"b":[{"c":"x","d":null},{"c":2.5},[],7]}"#,
            r#"{"b":{"c":true},"a":[1,[2,"\u00e9\n"],{}]}"#,
            "{}",
            r#"{"a":18446744073709551615,"b":-9223372036854775808,"z":1e300}"#,
            "[1,2]",
            "null",
            r#""text""#,
            &deep,
            &objects,
            &wide,
            r#"{"a":false,"f1008":1,"b":[]}"#,
        ];
        for from in 0..texts.len() {
            let of_texts = shred_texts(texts[from..].iter().copied()).unwrap();
            assert_eq!(shown(&of_texts), shown(&shred(&documents(&texts[from..]))), "from {from}");
        }
    }

    #[test]
    fn texts_that_need_values_are_refused() {
        let too_deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
        for text in [r#"{"a":1,"a":2}"#, r#"{"b":{"a":1,"a":2}}"#, "{", "", "1 2", &too_deep] {
            assert!(shred_texts([text].into_iter()).is_err(), "{text}");
        }
    }

    #[test]
    fn more_paths_than_columns_are_left_to_the_text() {
        let object: Vec<String> =
            (0..COLUMNS_MAX + 50).map(|at| format!("\"f{at}\":{at}")).collect();
        let root = shred(&documents(&[&format!("{{{}}}", object.join(","))]));
        assert!(root.fields.len() <= COLUMNS_MAX && root.is_partial);
        assert!(matches!(root.find(&["f1049".into()]), Found::Unknown));
        let column = field(&root, "f3");
        assert_eq!((column.rows, column.range), (1, Some((3, 3))));
        assert_eq!(column.ints.as_ref().unwrap().len(), 1);
    }
}
