//! Converts documents into tantivy's format.

use super::encoded::{Encoder, TERM_MAX};
use super::{Fields, column_key};
use crate::document::{Field as Value, FieldValue, Mapped};
use crate::geo;
use nacre_text::Analyzer;
use std::collections::{BTreeMap, BTreeSet};
use tantivy::TantivyDocument;
use tantivy::schema::{Field, OwnedValue};

/// Distance between the last position of a value and the first of the next, so that no phrase spans two values.
const GAP: u32 = 1_000;
/// Maximum number of field names of a document. Further ones are counted as skipped.
const NAMES_MAX: usize = 10_000;
/// Maximum number of terms of a path in the column for facets and sorts. A document with more terms has [`LONG`] there.
const VALUES_MAX: usize = 32;
/// Replaces the terms of a document with too many at a path. The dictionary contains them.
pub const LONG: &str = "\0\0";
/// The composite field.
pub const ALL: &str = "_all";
/// The field that contains the collection.
pub const COLLECTION: &str = "_$c";

#[derive(Default)]
struct Columns {
    numbers: BTreeMap<String, Vec<f64>>,
    dates: BTreeMap<String, Vec<i64>>,
    places: BTreeMap<String, Vec<u64>>,
    values: BTreeMap<String, BTreeSet<String>>,
    lengths: BTreeMap<String, u64>,
    shapes: BTreeMap<String, Vec<String>>,
}

struct Builder {
    document: TantivyDocument,
    columns: Columns,
    /// Paths that already have a value with positions.
    seen: BTreeSet<String>,
    /// The field for terms of the composite field.
    all: Field,
    /// The terms of the composite field, one text per value.
    composite: Vec<String>,
    vectors: Vectors,
    fields: Fields,
}

/// The vectors of a document, with their paths.
pub type Vectors = Vec<(String, Vec<f32>)>;

/// The identity of a document.
pub struct Identity<'a> {
    /// The ID, with its collection.
    pub key: &'a str,
    /// The vBucket.
    pub vb: u16,
    /// The collection, in an index of collections.
    pub collection: Option<&'a str>,
}

/// Builds the tantivy document; `source` is stored in it. With `has_all`, the composite field is separate from the
/// others.
pub fn build(
    fields: &Fields,
    identity: &Identity<'_>,
    mapped: &Mapped,
    has_all: bool,
    source: Option<&[u8]>,
    skipped: &mut u64,
) -> (TantivyDocument, Vectors) {
    let document = TantivyDocument::default();
    let mut builder = Builder {
        document,
        columns: Columns::default(),
        seen: BTreeSet::new(),
        all: if has_all { fields.all } else { fields.terms },
        composite: Vec::new(),
        vectors: Vec::new(),
        fields: *fields,
    };
    builder.document.add_text(fields.id, identity.key);
    builder.document.add_u64(fields.vbucket, u64::from(identity.vb));
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for field in &mapped.fields {
        if !field.index {
            continue;
        }
        if !names.contains(&*field.name) {
            if names.len() == NAMES_MAX {
                *skipped += 1;
                continue;
            }
            names.insert(&field.name);
        }
        match &field.value {
            FieldValue::Text(text, analyzer) => builder.text(field, text, analyzer),
            value => {
                builder.add(&field.name, value, field.doc_values);
                if field.in_all {
                    builder.add(ALL, value, false);
                }
            }
        }
    }
    // Positions increase from value to value, and small positions take less space. Terms that occur twice therefore
    // come last.
    for terms in std::mem::take(&mut builder.composite) {
        builder.document.add_text(builder.all, terms);
    }
    if let Some(collection) = identity.collection {
        let collection = if collection.is_empty() { "_default" } else { collection };
        builder.token(COLLECTION, collection, true);
    }
    if let Some(source) = source {
        builder.document.add_bytes(fields.source, source);
    }
    let vectors = std::mem::take(&mut builder.vectors);
    (builder.finish(), vectors)
}

impl Builder {
    fn add(&mut self, name: &str, value: &FieldValue, doc_values: bool) {
        let key = || column_key(name);
        match value {
            // A text is analyzed once for both the field and the composite field.
            FieldValue::Text(..) => {}
            FieldValue::Number(number) => {
                // Adding zero turns -0.0 into 0.0, because columns distinguish the two.
                self.columns.numbers.entry(key()).or_default().push(*number + 0.0);
            }
            FieldValue::Date(nanos, _) => {
                self.columns.dates.entry(key()).or_default().push(*nanos);
            }
            // The composite field contains no vectors.
            FieldValue::Vectors(_) if name == ALL => {}
            FieldValue::Vectors(vectors) => {
                self.vectors.extend(vectors.iter().map(|vector| (name.to_owned(), vector.clone())));
            }
            FieldValue::Boolean(flag) => {
                self.token(name, if *flag { "T" } else { "F" }, doc_values);
            }
            FieldValue::Ip(address) => self.token(name, &format!("{address:032x}"), doc_values),
            FieldValue::Terms(terms) => {
                for term in terms.iter().filter(|term| term.len() <= TERM_MAX) {
                    self.token(name, term, doc_values);
                }
            }
            FieldValue::Point(lon, lat) => {
                self.columns.places.entry(key()).or_default().push(geo::encode(*lon, *lat));
            }
            FieldValue::Shape(shape) => {
                self.columns.shapes.entry(key()).or_default().push(shape.to_string());
            }
        }
    }

    fn text(&mut self, field: &Value, text: &str, analyzer: &Analyzer) {
        let name = &*field.name;
        let gap = self.gap(name);
        let mut encoder = Encoder::new(name);
        let mut composite = field.in_all.then(|| (self.gap(ALL), Encoder::new(ALL)));
        let mut count = 0;
        let mut distinct = field.doc_values.then(BTreeSet::new);
        analyzer.analyze_in_parts(text, |tokens| {
            for token in tokens {
                if token.term.len() > TERM_MAX {
                    continue;
                }
                encoder.push(gap + token.position, &token.term);
                if let Some((gap, composite)) = &mut composite {
                    composite.push(*gap + token.position, &token.term);
                }
                count += 1;
                if let Some(distinct) = &mut distinct
                    && distinct.len() <= VALUES_MAX
                {
                    distinct.insert(token.term);
                }
            }
        });
        self.add_terms(name, encoder.finish());
        let lengths = &mut self.columns.lengths;
        *lengths.entry(column_key(name)).or_default() += count;
        if let Some((_, composite)) = composite {
            self.composite.push(composite.finish());
            *lengths.entry(ALL.to_owned()).or_default() += count;
        }
        if let Some(distinct) = distinct {
            self.columns.values.entry(column_key(name)).or_default().extend(distinct);
        }
    }

    /// Adds the terms of a value at a path.
    fn add_terms(&mut self, name: &str, terms: String) {
        if name == ALL {
            self.composite.push(terms);
        } else {
            self.document.add_text(self.fields.terms, terms);
        }
    }

    /// Returns the distance of a value's first position from the last position of the previous value.
    fn gap(&mut self, name: &str) -> u32 {
        if self.seen.contains(name) {
            return GAP;
        }
        self.seen.insert(name.to_owned());
        0
    }

    fn token(&mut self, name: &str, term: &str, doc_values: bool) {
        let gap = self.gap(name);
        let mut encoder = Encoder::new(name);
        encoder.push(gap + 1, term);
        self.add_terms(name, encoder.finish());
        *self.columns.lengths.entry(column_key(name)).or_default() += 1;
        if doc_values {
            self.columns.values.entry(column_key(name)).or_default().insert(term.to_owned());
        }
    }

    fn finish(self) -> TantivyDocument {
        let Builder { mut document, mut columns, fields, .. } = self;
        // Columns of long texts would occupy a quarter of the index, and are not useful for sorting.
        for values in columns.values.values_mut().filter(|values| values.len() > VALUES_MAX) {
            *values = BTreeSet::from([LONG.to_owned()]);
        }
        fn object<V, I: IntoIterator<Item = V>>(
            columns: BTreeMap<String, I>,
            value: impl Fn(V) -> OwnedValue,
        ) -> BTreeMap<String, OwnedValue> {
            let array = |values: I| OwnedValue::Array(values.into_iter().map(&value).collect());
            columns.into_iter().map(|(key, values)| (key, array(values))).collect()
        }
        let mut add = |field, object: BTreeMap<String, OwnedValue>| {
            if !object.is_empty() {
                document.add_object(field, object);
            }
        };
        add(fields.numbers, object(columns.numbers, OwnedValue::F64));
        add(fields.dates, object(columns.dates, OwnedValue::I64));
        add(fields.places, object(columns.places, OwnedValue::U64));
        add(fields.values, object(columns.values, OwnedValue::Str));
        add(fields.shapes, object(columns.shapes, OwnedValue::Str));
        let lengths = columns.lengths.into_iter().map(|(key, count)| (key, Some(count))).collect();
        add(fields.lengths, object(lengths, OwnedValue::U64));
        document
    }
}
