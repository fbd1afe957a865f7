//! Documents of a snapshot as a table: the rows of a collection, optionally joined with elements of their arrays, with the
//! columns that a query reads.
//!
//! ```text
//! FROM orders o, o.lines l     level 0: the documents     level 1: the elements of `lines`, each with the row of its document
//! ```
//!
//! A segment stores columns below level 0 as one array, so their values are used directly, and those of documents are repeated.

use crate::column::{Column, Found, Kind, Kinds};
use crate::shadow::{Snapshot, View};
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Float64Builder, RecordBatch, RecordBatchOptions, StringViewBuilder,
    UInt32Array, UInt64Array, new_null_array,
};
use datafusion::arrow::compute::take;
use datafusion::arrow::datatypes::{DataType, Field, Float64Type, Int64Type, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use nacre_sql::{Name, Value};
use std::sync::Arc;

/// Integers up to this magnitude are exact as doubles.
pub const EXACT_MAX: u64 = 1 << 53;
/// Rows of a batch.
const BATCH_ROWS: usize = 8192;

/// The type of a column whose known values all have one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ty {
    /// TRUE and FALSE.
    Bool,
    /// Integers.
    Int,
    /// Doubles, and integers that are exact as doubles.
    Float,
    /// Texts.
    String,
}

impl Ty {
    /// Returns the type of the array.
    pub fn data_type(self) -> DataType {
        match self {
            Ty::Bool => DataType::Boolean,
            Ty::Int => DataType::Int64,
            Ty::Float => DataType::Float64,
            Ty::String => DataType::Utf8View,
        }
    }
}

/// Statistics of the values of a path.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known {
    /// Kinds that occur.
    pub kinds: Kinds,
    /// Minimum and maximum integer.
    pub range: Option<(i64, i64)>,
    /// True if some values have no column.
    pub is_unknown: bool,
}

impl Known {
    fn add(&mut self, column: &Column) {
        self.kinds = self.kinds.with(column.kinds);
        if let Some((low, high)) = column.range {
            let (least, greatest) = self.range.unwrap_or((low, high));
            self.range = Some((least.min(low), greatest.max(high)));
        }
    }

    /// Returns the maximum magnitude of the integers.
    pub fn magnitude(&self) -> u64 {
        self.range.map_or(0, |(low, high)| low.unsigned_abs().max(high.unsigned_abs()))
    }

    /// Returns the type of the known values: `Some(None)` if there are none, `None` if they have several types.
    pub fn ty(&self) -> Option<Option<Ty>> {
        let known = self.kinds.known();
        let is = |kinds: &[Kind]| known == Kinds::of(kinds);
        match () {
            () if self.is_unknown => None,
            () if is(&[]) => Some(None),
            () if is(&[Kind::Bool]) => Some(Some(Ty::Bool)),
            () if is(&[Kind::Int]) => Some(Some(Ty::Int)),
            () if is(&[Kind::Float]) => Some(Some(Ty::Float)),
            () if is(&[Kind::Int, Kind::Float]) && self.magnitude() <= EXACT_MAX => {
                Some(Some(Ty::Float))
            }
            () if is(&[Kind::String]) => Some(Some(Ty::String)),
            () => None,
        }
    }
}

/// The rows of an array of the level above it.
#[derive(Clone, Debug)]
pub struct Level {
    /// The level whose documents or elements have the array.
    pub parent: usize,
    /// The path of the array in them.
    pub path: Vec<Name>,
}

/// The content of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Values of one type; null for other values.
    Typed(Ty),
    /// JSON texts; null for MISSING.
    Json,
    /// IDs of the documents.
    Id,
    /// The number of the document in the snapshot.
    Row,
}

/// A column that a query reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The level at which the path begins.
    pub level: usize,
    /// Path.
    pub path: Vec<Name>,
    /// Form.
    pub form: Form,
}

/// A table of documents, optionally with elements of their arrays.
#[derive(Clone, Debug)]
pub struct Relation {
    /// Documents.
    pub snapshot: Snapshot,
    /// The levels above the first one.
    pub levels: Vec<Level>,
    /// Columns with their names.
    pub columns: Vec<(String, Wanted)>,
}

/// Returns the column of a level's own values within a segment.
fn root_of<'a>(root: &'a Column, levels: &[Level], level: usize) -> Found<'a> {
    let Some(above) = level.checked_sub(1) else { return Found::Column(root) };
    let Level { parent, path } = &levels[above];
    match root_of(root, levels, *parent) {
        Found::Column(column) => match column.find(path) {
            Found::Column(array) => match &array.items {
                Some(items) => Found::Column(&items.element),
                None if array.is_partial => Found::Unknown,
                None => Found::Nowhere,
            },
            other => other,
        },
        other => other,
    }
}

fn column_of<'a>(
    root: &'a Column,
    levels: &[Level],
    wanted_level: usize,
    path: &[Name],
) -> Found<'a> {
    match root_of(root, levels, wanted_level) {
        Found::Column(column) => column.find(path),
        other => other,
    }
}

impl Relation {
    /// Returns the statistics of a path.
    pub fn known(&self, level: usize, path: &[Name]) -> Known {
        let mut known = Known::default();
        for view in self.snapshot.views.iter().filter(|view| view.live_count() > 0) {
            let find = |path: &[Name]| column_of(&view.segment.root, &self.levels, level, path);
            match find(path) {
                Found::Column(column) => known.add(column),
                Found::Nowhere => known.kinds = known.kinds.with(Kinds::of(&[Kind::Missing])),
                Found::Unknown => known.is_unknown = true,
            }
            // A field of NULL is NULL, although its column has no value.
            let is_null = |above: usize| match find(&path[..above]) {
                Found::Column(column) => column.kinds.has(Kind::Null),
                _ => false,
            };
            known.is_unknown |= (0..path.len()).any(is_null);
        }
        if self.snapshot.row_count() == 0 {
            known.kinds = Kinds::of(&[Kind::Missing]);
        }
        known
    }

    /// Returns true if elements of the array can be read from columns: all its values are arrays.
    pub fn can_unnest(&self, level: usize, path: &[Name]) -> bool {
        let known = self.known(level, path);
        let others = Kinds(known.kinds.0 & !Kinds::of(&[Kind::Missing, Kind::Array]).0);
        let is_shredded = self.snapshot.views.iter().all(|view| {
            match column_of(&view.segment.root, &self.levels, level, path) {
                Found::Column(array) => array.items.is_some() || !array.kinds.has(Kind::Array),
                Found::Nowhere => true,
                Found::Unknown => false,
            }
        });
        !known.is_unknown && others == Kinds::default() && is_shredded
    }

    /// Returns the approximate number of rows.
    pub fn row_estimate(&self) -> f64 {
        let level = self.levels.len();
        let rows = self.snapshot.views.iter().map(|view| {
            let all = view.segment.rows.len().max(1) as f64;
            match root_of(&view.segment.root, &self.levels, level) {
                Found::Column(column) => column.rows as f64 * view.live_count() as f64 / all,
                _ => 0.0,
            }
        });
        rows.sum::<f64>().max(1.0)
    }

    /// Returns the approximate bytes of the columns: those of texts are read from the documents.
    pub fn bytes(&self) -> usize {
        let of_views = self.snapshot.views.iter().map(|view| {
            let of_columns = self.columns.iter().map(|(_, wanted)| self.column_bytes(view, wanted));
            of_columns.sum::<usize>()
        });
        of_views.sum()
    }

    fn column_bytes(&self, view: &View, wanted: &Wanted) -> usize {
        let rows = &view.segment.rows;
        let ty = match wanted.form {
            Form::Typed(ty) => ty,
            Form::Json => return rows.iter().map(|row| row.text.len()).sum(),
            Form::Id => return rows.iter().map(|row| row.id.len()).sum(),
            Form::Row => return size_of::<u64>() * rows.len(),
        };
        let root = &view.segment.root;
        let Found::Column(column) = column_of(root, &self.levels, wanted.level, &wanted.path)
        else {
            return 0;
        };
        let arrays: [Option<&ArrayRef>; 2] = match ty {
            Ty::Bool => [column.bools.as_ref(), None],
            Ty::Int => [column.ints.as_ref(), None],
            Ty::Float => [column.floats.as_ref(), column.ints.as_ref()],
            Ty::String => [column.strings.as_ref(), None],
        };
        arrays.into_iter().flatten().map(|array| array.get_array_memory_size()).sum()
    }

    /// Returns the schema of the columns.
    pub fn schema(&self) -> SchemaRef {
        let field = |(name, wanted): &(String, Wanted)| {
            let kind = match wanted.form {
                Form::Typed(ty) => ty.data_type(),
                Form::Json | Form::Id => DataType::Utf8View,
                Form::Row => DataType::UInt64,
            };
            Field::new(name, kind, true)
        };
        Arc::new(Schema::new(self.columns.iter().map(field).collect::<Vec<_>>()))
    }

    /// Creates the table, in `parts` parts. Arrays of complete segments are not copied.
    ///
    /// # Errors
    /// The errors of the library, which are bugs.
    pub fn batches(&self, parts: usize) -> Result<Vec<Vec<RecordBatch>>, ArrowError> {
        let schema = self.schema();
        let mut of_parts = vec![Vec::new(); parts.max(1)];
        let (mut next, mut before) = (0, 0);
        for view in &self.snapshot.views {
            let rows = Rows::of(view, &self.levels);
            let arrays = self
                .columns
                .iter()
                .map(|(_, wanted)| rows.array(view, self, wanted, before))
                .collect::<Result<Vec<_>, _>>()?;
            before += view.segment.rows.len() as u64;
            let options = RecordBatchOptions::new().with_row_count(Some(rows.count));
            let batch = RecordBatch::try_new_with_options(Arc::clone(&schema), arrays, &options)?;
            for from in (0..rows.count).step_by(BATCH_ROWS) {
                let length = BATCH_ROWS.min(rows.count - from);
                of_parts[next].push(batch.slice(from, length));
                next = (next + 1) % of_parts.len();
            }
        }
        Ok(of_parts)
    }
}

/// Rows of one segment: the index of each level's value.
struct Rows {
    count: usize,
    /// For each level, the indexes of its values; `None` for all of them, in order.
    places: Vec<Option<UInt32Array>>,
}

impl Rows {
    fn of(view: &View, levels: &[Level]) -> Rows {
        let all = view.segment.rows.len();
        let documents = view.live_places();
        let count = documents.as_ref().map_or(all, Array::len);
        let mut rows = Rows { count, places: vec![documents] };
        for (above, level) in levels.iter().enumerate() {
            rows.unnest(view, &levels[..above], level);
        }
        rows
    }

    /// Adds a level: repeats each row for each of its elements.
    fn unnest(&mut self, view: &View, levels: &[Level], level: &Level) {
        let array = column_of(&view.segment.root, levels, level.parent, &level.path);
        let items = match array {
            Found::Column(array) => array.items.as_ref(),
            _ => None,
        };
        if let (Some(items), [None]) = (items, &self.places[..]) {
            // All documents with all their elements: only the values of the documents are repeated.
            self.places = vec![Some(items.parents().clone()), None];
            self.count = items.element.rows;
            return;
        }
        let (mut repeated, mut elements) = (Vec::new(), Vec::new());
        for row in 0..self.count {
            let place = self.place(level.parent, row);
            let range = items.map_or(0..0, |items| items.offsets[place]..items.offsets[place + 1]);
            repeated.extend(range.clone().map(|_| row as u32));
            elements.extend(range);
        }
        let repeated = UInt32Array::from(repeated);
        for places in &mut self.places {
            *places = Some(match places {
                None => repeated.clone(),
                Some(places) => {
                    let taken = take(places, &repeated, None).expect("the places are within");
                    taken.as_primitive().clone()
                }
            });
        }
        self.count = elements.len();
        self.places.push(Some(elements.into()));
    }

    fn place(&self, level: usize, row: usize) -> usize {
        self.places[level].as_ref().map_or(row, |places| places.value(row) as usize)
    }

    fn array(
        &self,
        view: &View,
        relation: &Relation,
        wanted: &Wanted,
        before: u64,
    ) -> Result<ArrayRef, ArrowError> {
        match wanted.form {
            Form::Typed(ty) => {
                let found =
                    column_of(&view.segment.root, &relation.levels, wanted.level, &wanted.path);
                let array = match found {
                    Found::Column(column) => typed(column, ty),
                    _ => None,
                };
                match (array, &self.places[wanted.level]) {
                    (None, _) => Ok(new_null_array(&ty.data_type(), self.count)),
                    (Some(array), None) => Ok(array),
                    (Some(array), Some(places)) => take(&array, places, None),
                }
            }
            Form::Row => {
                let numbers = (0..self.count).map(|row| before + self.place(0, row) as u64);
                Ok(Arc::new(UInt64Array::from_iter_values(numbers)))
            }
            Form::Id => {
                let mut builder = StringViewBuilder::with_capacity(self.count);
                for row in 0..self.count {
                    builder.append_value(&*view.segment.rows[self.place(0, row)].id);
                }
                Ok(Arc::new(builder.finish()))
            }
            Form::Json => Ok(self.texts(view, relation, wanted)),
        }
    }

    /// Returns the JSON texts of a path, read from the texts of the documents.
    fn texts(&self, view: &View, relation: &Relation, wanted: &Wanted) -> ArrayRef {
        let mut builder = StringViewBuilder::with_capacity(self.count);
        let is_document = wanted.level == 0 && wanted.path.is_empty();
        let mut last: Option<(usize, Value)> = None;
        for row in 0..self.count {
            let place = self.place(0, row);
            if is_document {
                builder.append_value(&*view.segment.rows[place].text);
                continue;
            }
            if last.as_ref().is_none_or(|(of, _)| *of != place) {
                let text = view.segment.rows[place].text.as_bytes();
                last = Some((place, Value::parse(text).unwrap_or_default()));
            }
            let (_, document) = last.as_ref().expect("it was just read");
            let own = self.own(view, relation, wanted.level, row, document);
            match wanted.path.iter().fold(own, field) {
                Value::Missing => builder.append_null(),
                value => builder.append_value(value.to_json()),
            }
        }
        Arc::new(builder.finish())
    }

    /// Returns the value of a level in a row, whose document is `document`.
    fn own(
        &self,
        view: &View,
        relation: &Relation,
        level: usize,
        row: usize,
        document: &Value,
    ) -> Value {
        let Some(above) = level.checked_sub(1) else { return document.clone() };
        let Level { parent, path } = &relation.levels[above];
        let parent_value = self.own(view, relation, *parent, row, document);
        let array = path.iter().fold(parent_value, field);
        let found = column_of(&view.segment.root, &relation.levels, *parent, path);
        let Found::Column(Column { items: Some(items), .. }) = found else { return Value::Missing };
        let first = items.offsets[self.place(*parent, row)] as usize;
        array.element((self.place(level, row) - first) as i64)
    }
}

/// Returns a field of a value; a field of NULL is NULL.
fn field(value: Value, name: &Name) -> Value {
    match value {
        Value::Null => Value::Null,
        value => value.field(name),
    }
}

/// Returns a column's array of a type; `None` if it has no value of the type.
fn typed(column: &Column, ty: Ty) -> Option<ArrayRef> {
    match ty {
        Ty::Bool => column.bools.clone(),
        Ty::Int => column.ints.clone(),
        Ty::String => column.strings.clone(),
        Ty::Float => match (&column.floats, &column.ints) {
            (None, None) => None,
            (Some(floats), None) => Some(Arc::clone(floats)),
            (floats, Some(ints)) => {
                let ints = ints.as_primitive::<Int64Type>();
                let floats = floats.as_ref().map(|floats| floats.as_primitive::<Float64Type>());
                let mut builder = Float64Builder::with_capacity(ints.len());
                for row in 0..ints.len() {
                    let float = floats.filter(|floats| floats.is_valid(row));
                    builder.append_option(match float {
                        Some(floats) => Some(floats.value(row)),
                        None => ints.is_valid(row).then(|| ints.value(row) as f64),
                    });
                }
                Some(Arc::new(builder.finish()))
            }
        },
    }
}
