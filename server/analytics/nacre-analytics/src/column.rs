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
    ArrayRef, BooleanBuilder, Float64Builder, Int64Builder, StringViewBuilder,
};
use nacre_sql::{Name, Value};
use std::collections::HashMap;
use std::sync::Arc;

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
        let rows = self.rows;
        self.rows += 1;
        self.kinds = self.kinds.with(Kinds::of(&[Kind::of(value)]));
        match value {
            Value::Missing | Value::Null => {}
            Value::Bool(truth) => padded!(self.bools, rows).append_value(*truth),
            Value::Int(number) => {
                let (low, high) = self.range.unwrap_or((*number, *number));
                self.range = Some((low.min(*number), high.max(*number)));
                padded!(self.ints, rows).append_value(*number);
            }
            Value::Float(number) => padded!(self.floats, rows).append_value(*number),
            Value::String(text) => padded!(self.strings, rows).append_value(text),
            Value::Array(_) | Value::Object(_) if depth >= DEPTH_MAX => self.is_partial = true,
            Value::Array(elements) => {
                if self.items.is_none() {
                    if !budget.take() {
                        self.is_partial = true;
                        return;
                    }
                    self.items = Some((vec![0], Box::default()));
                }
                let (offsets, builder) = self.items.as_mut().expect("it was just made");
                offsets.resize(rows + 1, builder.rows as u32);
                elements.iter().for_each(|element| builder.push(element, depth + 1, budget));
                offsets.push(builder.rows as u32);
            }
            Value::Object(fields) => {
                for (name, value) in fields.iter() {
                    if !self.fields.contains_key(name) {
                        if !budget.take() {
                            self.is_partial = true;
                            continue;
                        }
                        self.fields.insert(name.clone(), Builder::default());
                    }
                    let field = self.fields.get_mut(name).expect("it was just made");
                    field.miss(rows);
                    field.push(value, depth + 1, budget);
                }
            }
        }
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
            Items { offsets, element: Box::new(builder.finish(count)) }
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
        let n = field(&items.element, "n");
        let ints = n.ints.as_ref().unwrap().as_primitive::<Int64Type>();
        assert_eq!(ints.iter().collect::<Vec<_>>(), [Some(1), Some(2), None, Some(3)]);
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
